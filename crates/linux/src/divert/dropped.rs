//! Connections that this machine is to forward, and whose openings come in and do not leave: its
//! own firewall drops them, with or without diversion.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::Value;

use super::blame::{Dropper, Maker, droppers, legacy_tables, name_of};
use super::diagnosis::{Diagnosis, Remedy, Severity};
use super::nft;
use crate::netlink::{Family, Socket};
use crate::openings::Opening;

/// A single one that does not leave says nothing: it may be on its way.
const LOST_MIN: usize = 2;
/// From so many on, of all that came in, it is a problem. Now and then a host tries what is meant
/// to be closed.
const PROBLEM_MIN: usize = 4;
/// So many ports are named.
const NAMED_MAX: usize = 4;

/// What came in by an interface to a port, and did not leave.
type Lost = BTreeMap<(String, Family), BTreeMap<u16, usize>>;

/// What was heard of connections that come in by one of these interfaces and do not leave, where a
/// firewall of this machine drops what it forwards. Runs `nft` once if there are any.
#[must_use]
pub fn dropped(heard: &[Opening], interfaces: &[String]) -> Vec<Diagnosis> {
    let Ok(mut socket) = Socket::open() else { return Vec::new() };
    let own: BTreeSet<IpAddr> =
        socket.addresses().unwrap_or_default().into_iter().map(|(_, address)| address).collect();
    let links = socket.links().unwrap_or_default();
    let name_of_index = |index| {
        let name = &links.iter().find(|link| link.index == index)?.name;
        interfaces.contains(name).then(|| name.clone())
    };
    let (lost, all_are) = lost(heard, &own, name_of_index);
    if lost.is_empty() {
        return Vec::new();
    }
    let ruleset = nft::ruleset("farlink").unwrap_or_default();
    findings(&lost, all_are, &ruleset, &legacy_tables())
}

/// What is lost of it, and whether that is all that came in.
fn lost(heard: &[Opening], own: &BTreeSet<IpAddr>, name_of: impl Fn(u32) -> Option<String>) -> (Lost, bool) {
    let family = |o: &Opening| if o.destination.is_ipv4() { Family::V4 } else { Family::V6 };
    let left: BTreeSet<_> =
        heard.iter().filter(|o| o.leaves).map(|o| (o.destination.is_ipv4(), o.port)).collect();
    let (mut lost, mut all_are) = (Lost::new(), true);
    let is_forwarded =
        |o: &&Opening| !o.leaves && !own.contains(&o.destination) && !o.destination.is_multicast();
    for opening in heard.iter().filter(is_forwarded) {
        let Some(interface) = name_of(opening.interface) else { continue };
        if left.contains(&(opening.destination.is_ipv4(), opening.port)) {
            all_are = false;
        } else {
            *lost.entry((interface, family(opening))).or_default().entry(opening.port).or_default() += 1;
        }
    }
    lost.retain(|_, ports| ports.values().sum::<usize>() >= LOST_MIN);
    (lost, all_are)
}

fn findings(lost: &Lost, all_are: bool, ruleset: &[Value], legacy: &[String]) -> Vec<Diagnosis> {
    let all: usize = lost.values().flat_map(BTreeMap::values).sum();
    let severity = match all_are {
        true if all >= PROBLEM_MIN => Severity::Problem,
        true => Severity::Warning,
        // Others get through: the rest is meant so as often as not.
        false => Severity::Note,
    };
    let one = |((interface, family), ports): (&(String, Family), &BTreeMap<u16, usize>)| {
        let found = droppers(ruleset, Some(*family), "farlink");
        let dropper = found.iter().find(|d| d.hook == "forward");
        let who = match dropper {
            Some(d) => format!("chain {} {} {}", d.family, d.table, d.chain),
            None if legacy.iter().any(|of| of == name_of(*family)) => "rules of the old iptables".to_owned(),
            // Nobody is known who would: there may be no route, or no neighbour.
            None => return None,
        };
        let named: Vec<_> = ports.keys().take(NAMED_MAX).map(ToString::to_string).collect();
        let more = if ports.len() > NAMED_MAX { ", ..." } else { "" };
        let count: usize = ports.values().sum();
        let text = format!(
            "the firewall of this machine ({who}) drops {family} connections to port {}{more} that come in by {interface}: {count} openings came \
             in, and none left. They do not get as far as Farlink. If they are meant to be forwarded, accept them",
            named.join(", ")
        );
        let finding = Diagnosis::new("dropped-here", severity, text).seen("interface", interface);
        let finding = finding.seen("chain", &who).seen("openings", count).seen("ports", named.join(", "));
        Some(match dropper.and_then(|d| accepting(d, interface, &named)) {
            Some(remedy) => finding.mended_by(remedy),
            None => finding,
        })
    };
    lost.iter().filter_map(one).collect()
}

/// Lets these ports through, in the language of the firewall's maker.
fn accepting(d: &Dropper, interface: &str, ports: &[String]) -> Option<Remedy> {
    let list = ports.join(",");
    Some(Remedy::run(match d.maker {
        Maker::Nft => format!(
            "nft insert rule {} {} {} iifname '\"{interface}\"' tcp dport '{{ {list} }}' accept",
            d.family, d.table, d.chain
        ),
        Maker::Iptables | Maker::Docker => {
            let tool = if d.family == "ip6" { "ip6tables" } else { "iptables" };
            let chain = if d.maker == Maker::Docker { "DOCKER-USER" } else { "FORWARD" };
            format!("{tool} -I {chain} -i {interface} -p tcp -m multiport --dports {list} -j ACCEPT")
        }
        Maker::Ufw => format!("ufw route allow in on {interface} proto tcp to any port {list}"),
        Maker::Firewalld => return None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn opening(interface: u32, port: u16, leaves: bool) -> Opening {
        let address = |host| IpAddr::from([10, 0, 0, host]);
        Opening { interface, leaves, source: address(1), destination: address(9), port }
    }

    fn said(heard: &[Opening]) -> Vec<Diagnosis> {
        let ruleset = [
            json!({"chain": {"family": "inet", "table": "fw", "name": "onward", "hook": "forward", "policy": "accept"}}),
            json!({"rule": {"family": "inet", "table": "fw", "chain": "onward", "expr": [
                {"match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": 80}}, {"drop": null}]}}),
        ];
        let own = BTreeSet::from([IpAddr::from([10, 0, 0, 254])]);
        let (lost, all_are) = lost(heard, &own, |index| (index == 1).then(|| "lan0".to_owned()));
        findings(&lost, all_are, &ruleset, &[])
    }

    #[test]
    fn openings_that_come_in_and_do_not_leave_are_dropped_here() {
        let found = said(&[opening(1, 80, false); 5]);
        assert_eq!((&*found[0].id, found[0].severity), ("dropped-here", Severity::Problem));
        assert!(found[0].text.contains("chain inet fw onward") && found[0].text.contains("port 80 that"));
        let accept = "nft insert rule inet fw onward iifname '\"lan0\"' tcp dport '{ 80 }' accept";
        assert_eq!(found[0].remedies, [Remedy::run(accept)]);
        assert_eq!(said(&[opening(1, 80, false); 2])[0].severity, Severity::Warning);
    }

    #[test]
    fn what_leaves_or_is_for_this_machine_is_not() {
        let passes = [opening(1, 80, false), opening(1, 80, false), opening(2, 80, true)];
        assert!(said(&passes).is_empty());
        assert!(
            said(&[opening(3, 80, false); 5]).is_empty(),
            "it came in by an interface that is not diverted"
        );
        let own = Opening { destination: [10, 0, 0, 254].into(), ..opening(1, 22, false) };
        assert!(said(&[own; 5]).is_empty());
        assert!(said(&[opening(1, 80, false)]).is_empty(), "it may be on its way");
        // Others get through.
        let some =
            [opening(1, 443, false), opening(2, 443, true), opening(1, 80, false), opening(1, 80, false)];
        assert_eq!(said(&some)[0].severity, Severity::Note);
    }
}
