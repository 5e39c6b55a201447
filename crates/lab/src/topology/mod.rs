//! What stands where: nodes, the wires between them, their names, addresses and routes. Plain data;
//! `crate::build` makes it real.

mod routes;
mod shapes;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::{Result, anyhow};

pub use routes::Route;
pub use shapes::NAMES;

use crate::settings::Settings;

/// How names of Ethernets begin.
const ETHERNET: &str = "eth";

/// What a node is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// An end system.
    Host,
    /// A router on which Farlink may run.
    Gateway,
    /// A plain router.
    Router,
    /// A hard link: it has two wires, the client's side first. It has no address and costs no hop:
    /// the nodes on its two sides are neighbours in one subnet.
    Link,
}

/// A machine of the laboratory: one network namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// Its short name: the namespace is `<prefix>-<name>`.
    pub name: String,
    /// What it is for.
    pub role: Role,
    /// Whether Farlink runs on it.
    pub runs_gateway: bool,
    /// Neighbours behind which a hard link lies, for a gateway: their interfaces are declared
    /// links. With it the number of the link node.
    pub declared: Vec<Declared>,
}

/// An interface of a gateway that leads to a hard link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Declared {
    /// The neighbour it leads to.
    pub neighbour: usize,
    /// The link node behind it.
    pub link: usize,
    /// The gateway is on the client's side of the link, so what it sends takes the upward rate.
    pub sends_up: bool,
}

/// A cable between two nodes: one IPv4 and one IPv6 subnet; the two of a link share one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wire {
    /// One end.
    pub a: usize,
    /// The other end.
    pub b: usize,
}

/// One end of a wire, as the node sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    /// Name in the node's namespace: `to-<neighbour>`.
    pub name: String,
    /// The wire.
    pub wire: usize,
    /// The node at the other end of the wire.
    pub neighbour: usize,
    /// The node at the other end of the subnet: beyond the link, where `neighbour` is one.
    pub peer: usize,
    /// IPv4 address, /24; a link has none.
    pub ipv4: Option<Ipv4Addr>,
    /// IPv6 address, /64; a link has none.
    pub ipv6: Option<Ipv6Addr>,
}

/// A laboratory on paper.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Topology {
    /// Its name.
    pub name: String,
    /// The machines.
    pub nodes: Vec<Node>,
    /// The cables. Where two paths are equally short, the one whose wire stands first is taken.
    pub wires: Vec<Wire>,
    /// Pairs of client and server between which transfers make sense.
    pub pairs: Vec<(String, String)>,
}

impl Topology {
    /// The topology of this name (`line` is the default one) with as many gateways as the settings
    /// say.
    pub fn named(name: &str, settings: &Settings) -> Result<Self> {
        shapes::build(name, settings)
    }

    /// Number of the node of this name.
    pub fn index(&self, name: &str) -> Result<usize> {
        self.nodes.iter().position(|n| n.name == name).ok_or_else(|| {
            let names: Vec<_> = self.nodes.iter().map(|n| n.name.as_str()).collect();
            anyhow!("no node `{name}` in the topology {}; there are {}", self.name, names.join(" "))
        })
    }

    /// The interfaces of a node, in the order of the wires.
    #[must_use]
    pub fn interfaces(&self, node: usize) -> Vec<Interface> {
        let ends = self.wires.iter().enumerate().filter_map(|(wire, w)| match node {
            n if n == w.a => Some((wire, w.b)),
            n if n == w.b => Some((wire, w.a)),
            _ => None,
        });
        ends.map(|(wire, neighbour)| self.describe(node, wire, neighbour)).collect()
    }

    fn describe(&self, node: usize, wire: usize, neighbour: usize) -> Interface {
        let mut interface = Interface {
            name: format!("to-{}", self.nodes[neighbour].name),
            wire,
            neighbour,
            peer: neighbour,
            ipv4: None,
            ipv6: None,
        };
        if self.nodes[node].role == Role::Link {
            return interface;
        }
        let (mut subnet, mut end) = (wire, if self.wires[wire].a == node { 1 } else { 2 });
        if self.nodes[neighbour].role == Role::Link {
            // The link's first wire names the subnet, and its end is 1.
            let mut of_link =
                self.wires.iter().enumerate().filter(|(_, w)| w.a == neighbour || w.b == neighbour);
            let far_end = |w: &Wire| if w.a == neighbour { w.b } else { w.a };
            if let (Some((first, first_wire)), Some((_, second_wire))) = (of_link.next(), of_link.next()) {
                subnet = first;
                end = if first == wire { 1 } else { 2 };
                interface.peer = far_end(if first == wire { second_wire } else { first_wire });
            }
        }
        let (v4, v6) = subnet_of(subnet);
        let [a, b, c, _] = v4.octets();
        interface.ipv4 = Some(Ipv4Addr::new(a, b, c, end));
        interface.ipv6 = Some(Ipv6Addr::from_bits(v6.to_bits() | u128::from(end)));
        interface
    }

    /// The interface of `node` that leads to `neighbour`.
    pub fn interface(&self, node: usize, neighbour: usize) -> Result<Interface> {
        let found = self.interfaces(node).into_iter().find(|i| i.neighbour == neighbour);
        found.ok_or_else(|| {
            anyhow!("{} and {} are not neighbours", self.nodes[node].name, self.nodes[neighbour].name)
        })
    }

    /// The address by which a node is known: that of its first interface.
    pub fn address(&self, name: &str, v6: bool) -> Result<IpAddr> {
        let first = self.interfaces(self.index(name)?).into_iter().next();
        let address =
            first.and_then(|i| if v6 { i.ipv6.map(IpAddr::from) } else { i.ipv4.map(IpAddr::from) });
        address.ok_or_else(|| anyhow!("{name} has no address"))
    }

    /// Whether a wire is an end of a hard link: there every packet stands for itself (no offloads).
    #[must_use]
    pub fn is_emulated(&self, wire: usize) -> bool {
        let wire = self.wires[wire];
        self.nodes[wire.a].role == Role::Link || self.nodes[wire.b].role == Role::Link
    }

    /// Numbers of the nodes on which Farlink runs.
    #[must_use]
    pub fn gateways(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|n| self.nodes[*n].runs_gateway).collect()
    }

    /// Numbers of the emulated links: the hard ones and the Ethernets.
    #[must_use]
    pub fn links(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|n| self.nodes[*n].role == Role::Link).collect()
    }

    /// Whether a link is a plain Ethernet of the terrestrial part, which no gateway declares.
    #[must_use]
    pub fn is_ethernet(&self, link: usize) -> bool {
        self.nodes[link].name.starts_with(ETHERNET)
    }

    /// The hard links, in the order of the nodes.
    #[must_use]
    pub fn hard_links(&self) -> Vec<usize> {
        self.links().into_iter().filter(|link| !self.is_ethernet(*link)).collect()
    }

    /// The number of a link among the hard ones; `None`: it is an Ethernet.
    #[must_use]
    pub fn hard_link(&self, link: usize) -> Option<usize> {
        self.hard_links().iter().position(|n| *n == link)
    }

    /// Whether a wire is an end of an Ethernet.
    #[must_use]
    pub fn is_of_ethernet(&self, wire: usize) -> bool {
        let Wire { a, b } = self.wires[wire];
        [a, b].into_iter().any(|n| self.nodes[n].role == Role::Link && self.is_ethernet(n))
    }

    /// A wire leads to a host.
    pub fn ends_at_host(&self, wire: usize) -> bool {
        let Wire { a, b } = self.wires[wire];
        [a, b].into_iter().any(|n| self.nodes[n].role == Role::Host)
    }

    /// The hard links that a packet crosses from one node to another, in its order: each by its
    /// number among them.
    pub fn links_between(&self, from: &str, to: &str) -> Result<Vec<usize>> {
        let path = self.path(self.index(from)?, self.index(to)?);
        Ok(path.into_iter().filter_map(|node| self.hard_link(node)).collect())
    }

    /// Gateways on the way from one node to another that run Farlink.
    pub fn gateways_between(&self, from: &str, to: &str) -> Result<Vec<usize>> {
        let path = self.path(self.index(from)?, self.index(to)?);
        Ok(path.into_iter().filter(|n| self.nodes[*n].runs_gateway).collect())
    }
}

/// The subnets of a wire, /24 and /64.
fn subnet_of(wire: usize) -> (Ipv4Addr, Ipv6Addr) {
    let net = u8::try_from(wire).unwrap_or(u8::MAX);
    (Ipv4Addr::new(10, 64, net, 0), Ipv6Addr::new(0xfd00, 0x64, u16::from(net), 0, 0, 0, 0, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_topology_is_the_documented_one() {
        let t = Topology::named("", &Settings::default()).unwrap();
        let names: Vec<_> = t.nodes.iter().map(|n| n.name.as_str()).collect();
        assert_eq!(names, ["client", "gw1", "sat", "gw2", "server"]);
        assert_eq!(t.gateways().len(), 2);
        assert_eq!(t.links_between("client", "server").unwrap(), [0]);
        let chain = Topology::named("bridge", &Settings::default()).unwrap();
        assert_eq!(chain.links_between("server", "client").unwrap(), [1, 0]);
        assert!(t.is_emulated(1) && t.is_emulated(2) && !t.is_emulated(0) && !t.is_emulated(3));
    }

    #[test]
    fn one_gateway_stands_on_the_servers_side_unless_told() {
        let mut s = Settings { gateways: 1, ..Settings::default() };
        let running = |s: &Settings| -> Vec<String> {
            let t = Topology::named("line", s).unwrap();
            t.gateways().into_iter().map(|n| t.nodes[n].name.clone()).collect()
        };
        assert_eq!(running(&s), ["gw2"]);
        s.set("gateway_at", "client").unwrap();
        assert_eq!(running(&s), ["gw1"]);
        s.set("gateways", "0").unwrap();
        assert!(running(&s).is_empty());
    }

    #[test]
    fn interface_names_fit_the_kernel_and_differ_in_a_node() {
        for name in NAMES {
            let t = Topology::named(name, &Settings::default()).unwrap();
            for node in 0..t.nodes.len() {
                let mut names: Vec<_> = t.interfaces(node).into_iter().map(|i| i.name).collect();
                assert!(names.iter().all(|n| n.len() <= 15), "{names:?}");
                let all = names.len();
                names.sort();
                names.dedup();
                assert_eq!(names.len(), all);
            }
        }
    }

    #[test]
    fn links_have_two_wires_with_the_client_first() {
        for name in NAMES {
            let t = Topology::named(name, &Settings::default()).unwrap();
            for link in t.links() {
                assert!(
                    !t.is_ethernet(link) || t.nodes.iter().all(|n| n.declared.iter().all(|d| d.link != link))
                );
                let ends = t.interfaces(link);
                assert_eq!(ends.len(), 2, "{name}");
                let clients = (0..t.nodes.len()).filter(|n| t.nodes[*n].name.starts_with("client"));
                let mut ways = clients.map(|client| t.path(link, client)[1]);
                assert!(ways.any(|next| next == ends[0].neighbour), "{name}");
            }
        }
    }

    #[test]
    fn declared_links_know_their_direction() {
        for name in NAMES {
            let t = Topology::named(name, &Settings::default()).unwrap();
            for gateway in t.gateways() {
                for declared in &t.nodes[gateway].declared {
                    let path = t.path(gateway, t.index("client").unwrap());
                    assert_eq!(!declared.sends_up, path.contains(&declared.link), "{name} {gateway}");
                }
            }
        }
    }

    #[test]
    fn unknown_names_are_told_what_there_is() {
        let error = Topology::named("star", &Settings::default()).unwrap_err().to_string();
        assert!(error.contains("multi-if"), "{error}");
        let t = Topology::named("line", &Settings::default()).unwrap();
        assert!(t.index("gw9").unwrap_err().to_string().contains("server"));
    }
}
