//! The topologies: the default line, those of thesis figure 3.3 (a-d), and the line with ways round
//! its gateways.

use anyhow::{Result, bail};

use super::{Declared, ETHERNET, Node, Role, Topology, Wire};
use crate::settings::{GatewayAt, Settings};

/// Names of the topologies.
pub const NAMES: &[&str] = &[
    "line",
    "chain",
    "bridge",
    "last-hop",
    "multi-if",
    "detour",
    "congested",
    "fairness",
    "receivers",
    "two-ways",
    "remotes",
    "crossing",
    "boxed",
];

/// Builds the topology of this name.
pub(super) fn build(name: &str, settings: &Settings) -> Result<Topology> {
    // (cables along which nodes stand, pairs, the only gateway on the server's side, on the
    // client's side)
    let (lines, pairs, at_server, at_client): (&[&str], &[(&str, &str)], _, _) = match name {
        "" | "default" | "line" => (&["client gw1 sat gw2 server"], &[("client", "server")], "gw2", "gw1"),
        // (a) Several accelerated links in a row.
        "chain" => (&["client gw1 sat1 gw2 gw3 sat2 gw4 server"], &[("client", "server")], "gw4", "gw1"),
        // (b) One gateway bridges two hard links: alone, or with others at their far ends.
        "bridge" => (&["client gw1 sat1 gw2 sat2 gw3 server"], &[("client", "server")], "gw2", "gw2"),
        // (c) The hard link ends at the client itself.
        "last-hop" => (&["client sat gw1 server"], &[("client", "server")], "gw1", "gw1"),
        // (d) A gateway with several interfaces: two hosts and two hard links.
        "multi-if" => (
            &["client gw1 sat1 gw2 server", "gw1 sat2 gw3 server2", "client2 gw1"],
            &[("client", "server"), ("client", "server2"), ("client2", "server"), ("client", "client2")],
            "gw1",
            "gw1",
        ),
        // A plain router beside each gateway: routes can be moved away from it and back.
        "detour" => (
            &["client edge1 gw1 rt1 sat rt2 gw2 edge2 server", "edge1 by1 rt1", "rt2 by2 edge2"],
            &[("client", "server")],
            "gw2",
            "gw1",
        ),
        // The terrestrial leg of the client is an Ethernet that can be the bottleneck (thesis
        // tables 5.11 and 5.12).
        "congested" => (&["client eth gw1 sat gw2 server"], &[("client", "server")], "gw2", "gw1"),
        // Near and far clients share the server's Ethernet (thesis table 5.13).
        "fairness" => (
            &["client gw1 sat gw2 hub eth server", "client2 hub"],
            &[("client", "server"), ("client2", "server")],
            "gw2",
            "gw1",
        ),
        // Clients and server stand behind Ethernets of their own: fast and slow ones, before and
        // after the hard link (TR 99-12 section 5, thesis chapter 6).
        "receivers" => (
            &["client eth1 gw1 sat gw2 eth3 server", "client2 eth2 gw1"],
            &[("client", "server"), ("client2", "server")],
            "gw2",
            "gw1",
        ),
        // A second client stands behind an Ethernet of the gateway at the server's end of the link.
        "two-ways" => (
            &["client gw1 sat gw2 server", "client2 eth gw2"],
            &[("client", "server"), ("client2", "server")],
            "gw2",
            "gw1",
        ),
        // A hub shared by remote gateways, each behind an Ethernet of its own delay. All that comes
        // to the remotes passes the queue of one hard link.
        "remotes" => (
            &["client gw1 eth1 rt sat gw2 server", "client2 gw3 eth2 rt", "client3 gw4 eth3 rt"],
            &[("client", "server"), ("client2", "server"), ("client3", "server")],
            "gw2",
            "gw1",
        ),
        // A second client stands next to the gateway between two links: what it sends meets there
        // what comes over the other one.
        "crossing" => (
            &["client2 gw2 sat gw3 server", "client gw1 sat1 gw2"],
            &[("client", "server"), ("client2", "server")],
            "gw2",
            "gw2",
        ),
        // A router between the gateways does things to what passes.
        "boxed" => (&["client gw1 sat rt gw2 server"], &[("client", "server")], "gw2", "gw1"),
        _ => bail!("unknown topology `{name}`; there are {}", NAMES.join(" ")),
    };
    let mut topology = Topology {
        name: if name.is_empty() || name == "default" { "line".into() } else { name.into() },
        nodes: Vec::new(),
        wires: Vec::new(),
        pairs: pairs.iter().map(|(a, b)| ((*a).into(), (*b).into())).collect(),
    };
    for line in lines {
        let mut previous = None;
        for word in line.split(' ') {
            let number = add(&mut topology, word);
            if let Some(previous) = previous {
                topology.wires.push(Wire { a: previous, b: number });
            }
            previous = Some(number);
        }
    }
    if let Some(unknown) = settings.modes.keys().find(|name| !is_gateway(&topology, name)) {
        bail!("`modes`: there is no gateway `{unknown}` in the topology {}", topology.name);
    }
    let only = if settings.gateway_at == GatewayAt::Client { at_client } else { at_server };
    for number in 0..topology.nodes.len() {
        let node = &topology.nodes[number];
        let runs = node.role == Role::Gateway
            && match settings.gateways {
                0 => false,
                1 => node.name == only,
                _ => true,
            };
        topology.nodes[number].runs_gateway = runs;
        if node_is_gateway(&topology, number) {
            topology.nodes[number].declared = declared(&topology, number);
        }
    }
    Ok(topology)
}

fn node_is_gateway(topology: &Topology, number: usize) -> bool {
    topology.nodes[number].role == Role::Gateway
}

fn is_gateway(topology: &Topology, name: &str) -> bool {
    topology.nodes.iter().any(|node| node.name == name && node.role == Role::Gateway)
}

fn add(topology: &mut Topology, name: &str) -> usize {
    if let Some(number) = topology.nodes.iter().position(|n| n.name == name) {
        return number;
    }
    let role = match name.trim_end_matches(|c: char| c.is_ascii_digit()) {
        "gw" => Role::Gateway,
        "sat" | ETHERNET => Role::Link,
        "client" | "server" => Role::Host,
        _ => Role::Router,
    };
    topology.nodes.push(Node { name: name.into(), role, runs_gateway: false, declared: Vec::new() });
    topology.nodes.len() - 1
}

/// The interfaces of a gateway that lead to a hard link, directly or over the `rt` router before
/// it, to which an Ethernet may lead.
fn declared(topology: &Topology, gateway: usize) -> Vec<Declared> {
    let mut found = Vec::new();
    for interface in topology.interfaces(gateway) {
        let neighbour = interface.neighbour;
        let is_hard = |n: &usize| topology.nodes[*n].role == Role::Link && !topology.is_ethernet(*n);
        // A neighbour beyond an Ethernet is told by the interface.
        let next = if topology.is_ethernet(neighbour) { interface.peer } else { neighbour };
        let link = if is_hard(&next) {
            Some(next)
        } else if topology.nodes[next].name.starts_with("rt") {
            topology.interfaces(next).into_iter().map(|i| i.neighbour).find(is_hard)
        } else {
            None
        };
        let Some(link) = link else { continue };
        // A link's first wire is the client's side.
        let towards_client = topology.interfaces(link)[0].neighbour;
        let sends_up = towards_client == gateway || towards_client == next;
        found.push(Declared { neighbour, link, sends_up });
    }
    found
}
