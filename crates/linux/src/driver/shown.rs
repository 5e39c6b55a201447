//! Which way the kernel sends packets, as they show it at the bump of the interface by which they
//! leave. Rules by mark, user, port or incoming interface, and addresses that are translated, are
//! in it, which a question about a route would miss.
//!
//! It stays with the packet and its connection until the kernel shows something else
//! ([`Via`](farlink_gateway::Via)). Found out here is whether a question has the same answer. Then
//! what is sent follows that answer, too, when nobody sends a packet that would show more.

use std::net::IpAddr;

use farlink_gateway::FoundWay;

use crate::netlink::{Leaves, RouteKey};

/// What the kernel did with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Passage {
    /// Source and destination.
    pub(crate) ends: (IpAddr, IpAddr),
    /// Ports of TCP: source and destination.
    pub(crate) ports: Option<(u16, u16)>,
    /// By this interface it came into the machine, and by this one it leaves.
    pub(crate) came_by: u32,
    /// See `came_by`.
    pub(crate) leaves_by: u32,
    /// Its mark.
    pub(crate) mark: u32,
}

/// What questions say of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Says {
    /// Which of them finds its interface.
    pub(crate) found: FoundWay,
    /// The kernel finds its next hop when it is asked for a packet of this machine's own, as such
    /// packets leave that are written to the device of a bump.
    pub(crate) finds_next_hop: bool,
}

/// What was found out last: most packets are like the one before.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    last: Option<(Passage, (u64, u64), Says)>,
}

impl Shown {
    /// What questions say of this packet. `state`: of what is known of routes, another one when
    /// that changes. `ask`: an answer of the kernel; `None`: it is being asked.
    pub(crate) fn says(
        &mut self,
        passage: &Passage,
        state: (u64, u64),
        mut ask: impl FnMut(&RouteKey) -> Option<Option<Leaves>>,
    ) -> Says {
        if let Some((_, _, says)) = self.last.filter(|(of, at, _)| of == passage && *at == state) {
            return says;
        }
        let Passage { ends: (src, dst), ports, came_by, leaves_by, mark } = *passage;
        let mut is_awaited = false;
        let mut leaves = |from, ports| {
            let answer = ask(&RouteKey { destination: dst, from, mark, ports });
            is_awaited |= answer.is_none();
            answer.flatten()
        };
        let is_it = |leaves: Option<Leaves>| leaves.is_some_and(|l| l.interface == leaves_by);
        let own = leaves(None, None);
        let forwarded = leaves(Some((src, came_by)), None);
        let found = match ports {
            // Of an address of its own the kernel says that nothing comes in from there.
            _ if is_it(forwarded.or(own)) => FoundWay::ByAddresses,
            Some((from, to)) => {
                let by_ports = leaves(Some((src, came_by)), ports);
                match is_it(by_ports.or_else(|| leaves(None, ports))) {
                    true => FoundWay::ByPorts(from, to),
                    false => FoundWay::Not,
                }
            }
            None => FoundWay::Not,
        };
        let hop = |leaves: Option<Leaves>| leaves.map(|l| l.gateway);
        let is_same = !is_it(forwarded) || hop(forwarded) == hop(own);
        let says = Says { found, finds_next_hop: is_it(own) && is_same };
        if !is_awaited {
            self.last = Some((*passage, state, says));
        }
        says
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAN: u32 = 1;
    const FIRST: u32 = 2;
    const SECOND: u32 = 3;

    fn by(interface: u32, last: u8) -> Option<Leaves> {
        Some(Leaves { interface, mtu: 1500, gateway: Some(IpAddr::from([10, 0, 0, last])) })
    }

    fn passage(mark: u32, leaves_by: u32) -> Passage {
        let ends = (IpAddr::from([10, 1, 0, 1]), IpAddr::from([10, 9, 0, 1]));
        Passage { ends, ports: Some((1000, 443)), came_by: LAN, leaves_by, mark }
    }

    fn says(passage: &Passage, answer: impl Fn(&RouteKey) -> Option<Leaves>) -> (FoundWay, bool) {
        let says = Shown::default().says(passage, (0, 0), |key| Some(answer(key)));
        (says.found, says.finds_next_hop)
    }

    #[test]
    fn a_question_that_finds_the_way_is_known() {
        let default = |_: &RouteKey| by(FIRST, 1);
        assert_eq!(says(&passage(0, FIRST), default), (FoundWay::ByAddresses, true));
        assert_eq!(says(&passage(0, SECOND), default), (FoundWay::Not, false));
        let by_mark = |key: &RouteKey| if key.mark == 7 { by(SECOND, 2) } else { by(FIRST, 1) };
        assert_eq!(says(&passage(7, SECOND), by_mark), (FoundWay::ByAddresses, true));
        assert_eq!(says(&passage(0, SECOND), by_mark), (FoundWay::Not, false));
        // A packet of the machine's own has no such ports for the kernel.
        let by_port = |key: &RouteKey| match key.ports {
            Some((_, 443)) => by(SECOND, 2),
            _ => by(FIRST, 1),
        };
        assert_eq!(says(&passage(0, SECOND), by_port), (FoundWay::ByPorts(1000, 443), false));
        // By the incoming interface, and to another next hop of the same interface.
        let by_interface = |key: &RouteKey| if key.from.is_some() { by(FIRST, 2) } else { by(FIRST, 1) };
        assert_eq!(says(&passage(0, FIRST), by_interface), (FoundWay::ByAddresses, false));
        // Behind masquerade its source is an address of the machine.
        let translated = |key: &RouteKey| if key.from.is_some() { None } else { by_mark(key) };
        assert_eq!(says(&passage(7, SECOND), translated), (FoundWay::ByAddresses, true));
    }

    #[test]
    fn what_is_not_answered_yet_is_asked_again() {
        let mut shown = Shown::default();
        let waits = shown.says(&passage(0, FIRST), (1, 1), |_| None);
        assert_eq!(waits, Says { found: FoundWay::Not, finds_next_hop: false });
        let answered = shown.says(&passage(0, FIRST), (1, 1), |_| Some(by(FIRST, 1)));
        assert_eq!(answered, Says { found: FoundWay::ByAddresses, finds_next_hop: true });
        let again = shown.says(&passage(0, FIRST), (1, 1), |_| panic!("it is known"));
        assert_eq!(again, answered);
        let moved = shown.says(&passage(0, FIRST), (1, 2), |_| Some(by(SECOND, 2)));
        assert_eq!(moved.found, FoundWay::Not);
    }
}
