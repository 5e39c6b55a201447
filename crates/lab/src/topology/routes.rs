//! Shortest paths through a topology, as static routes.

use std::collections::VecDeque;
use std::net::IpAddr;

use super::{Role, Topology, subnet_of};

/// A static route of one node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route {
    /// Destination subnet with its length.
    pub to: (IpAddr, u8),
    /// Next hop.
    pub via: IpAddr,
    /// Interface.
    pub interface: String,
}

impl Topology {
    /// Nodes from one to another, both included; hosts forward nothing. Empty when there is no way.
    #[must_use]
    pub fn path(&self, from: usize, to: usize) -> Vec<usize> {
        let mut before: Vec<Option<usize>> = vec![None; self.nodes.len()];
        let mut queue = VecDeque::from([from]);
        while let Some(node) = queue.pop_front() {
            if node == to {
                break;
            }
            if node != from && self.nodes[node].role == Role::Host {
                continue;
            }
            for interface in self.interfaces(node) {
                let next = interface.neighbour;
                if next != from && before[next].is_none() {
                    before[next] = Some(node);
                    queue.push_back(next);
                }
            }
        }
        let mut path = vec![to];
        while let Some(previous) = before[path[path.len() - 1]] {
            path.push(previous);
        }
        path.reverse();
        if path[0] == from { path } else { Vec::new() }
    }

    /// The static routes of a node to every subnet that it is not itself on, both families. A link
    /// has none.
    #[must_use]
    pub fn routes(&self, node: usize) -> Vec<Route> {
        let own = self.interfaces(node);
        let own_nets: Vec<_> = own.iter().filter_map(|i| i.ipv4).map(|a| a.octets()[2]).collect();
        let mut done = Vec::new();
        let mut routes = Vec::new();
        for wire in 0..self.wires.len() {
            // The addresses of the wire's ends say which subnet it is part of.
            let ends = [self.wires[wire].a, self.wires[wire].b];
            let here =
                ends.iter().flat_map(|n| self.interfaces(*n)).find(|i| i.wire == wire && i.ipv4.is_some());
            let Some(net) = here.and_then(|i| i.ipv4).map(|a| a.octets()[2]) else { continue };
            if self.nodes[node].role == Role::Link || own_nets.contains(&net) || done.contains(&net) {
                continue;
            }
            done.push(net);
            let ways = ends.map(|end| self.path(node, end));
            let Some(way) = ways.into_iter().filter(|w| w.len() > 1).min_by_key(Vec::len) else { continue };
            let Some(out) = own.iter().find(|i| i.neighbour == way[1]) else { continue };
            let Some(next) = self.interfaces(out.peer).into_iter().find(|i| i.peer == node) else { continue };
            let (Some(via4), Some(via6)) = (next.ipv4, next.ipv6) else { continue };
            let (to4, to6) = subnet_of(usize::from(net));
            for (to, via) in [((to4.into(), 24), via4.into()), ((to6.into(), 64), IpAddr::from(via6))] {
                routes.push(Route { to, via, interface: out.name.clone() });
            }
        }
        routes
    }
}

#[cfg(test)]
mod tests {
    use super::super::NAMES;
    use super::*;
    use crate::settings::Settings;

    /// Follows the routes hop by hop, as the kernels will.
    fn follow(t: &Topology, from: usize, to: IpAddr) -> Vec<usize> {
        let mut way = vec![from];
        for _ in 0..t.nodes.len() {
            let here = way[way.len() - 1];
            let owns =
                |n: usize| t.interfaces(n).iter().any(|i| to == i.ipv4.unwrap() || to == i.ipv6.unwrap());
            if owns(here) {
                return way;
            }
            let same_net = |i: &super::super::Interface| match to {
                IpAddr::V4(a) => a.octets()[..3] == i.ipv4.unwrap().octets()[..3],
                IpAddr::V6(a) => a.octets()[..8] == i.ipv6.unwrap().octets()[..8],
            };
            let next = if let Some(i) = t.interfaces(here).iter().find(|i| same_net(i)) {
                i.peer
            } else {
                let covers = |r: &Route| match (r.to.0, to) {
                    (IpAddr::V4(n), IpAddr::V4(a)) => n.octets()[..3] == a.octets()[..3],
                    (IpAddr::V6(n), IpAddr::V6(a)) => n.octets()[..8] == a.octets()[..8],
                    _ => false,
                };
                let route = t.routes(here).into_iter().find(covers).expect("a route");
                let next = t.interfaces(here).into_iter().find(|i| i.name == route.interface).unwrap();
                next.peer
            };
            way.push(next);
        }
        panic!("a loop: {way:?}");
    }

    #[test]
    fn every_pair_reaches_each_other_and_the_ways_are_symmetrical() {
        for name in NAMES {
            let t = Topology::named(name, &Settings::default()).unwrap();
            for (client, server) in &t.pairs {
                let (c, s) = (t.index(client).unwrap(), t.index(server).unwrap());
                for v6 in [false, true] {
                    let there = follow(&t, c, t.address(server, v6).unwrap());
                    let mut back = follow(&t, s, t.address(client, v6).unwrap());
                    back.reverse();
                    assert_eq!(there, back, "{name} {client} {server}");
                    assert!(there[1..there.len() - 1].iter().all(|n| t.nodes[*n].role != Role::Host));
                }
            }
        }
    }
}
