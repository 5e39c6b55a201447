//! In which flow of a queue a forwarded packet waits. Usually in its connection's; where very many
//! wait, connections that have just begun share the flow of their host, and where hosts are many
//! they share a few. So a flood, with ports and addresses of all kinds, delays nobody who was there
//! before it.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashSet};

use farlink_wire::{Duration, Instant};
use foldhash::fast::FixedState;

/// From so many flows that wait on, those that join them are told apart by their hosts alone.
pub const CROWD: usize = 32;
/// It stays while so many connections wait in flows that they share: a flood from one host is one
/// flow.
const CROWD_STAYS: usize = 8;
/// And for so long afterwards.
pub const CROWD_FOR: Duration = Duration::from_secs(10);
/// From so many on, hosts share this number of flows.
pub const CROWD_OF_HOSTS: usize = 96;
pub const CROWD_FLOWS: u64 = 64;
/// Connections that came before the crowd are remembered, so many of each generation, for one or
/// two of these times after their last packet.
const KNOWN_MAX: usize = 1_024;
const KNOWN_FOR: Duration = Duration::from_secs(10);

/// Connections that were there before a crowd, in two generations.
#[derive(Clone, Debug)]
struct Known {
    newest: HashSet<u64, FixedState>,
    before: HashSet<u64, FixedState>,
    /// Those of which one packet has come: the first packets of a flood look like that.
    once: HashSet<u64, FixedState>,
    began: Instant,
}

impl Default for Known {
    fn default() -> Self {
        // Connections are named by a hash that is secret already.
        let none = || HashSet::with_hasher(FixedState::with_seed(0));
        Self { newest: none(), before: none(), once: none(), began: Instant::ZERO }
    }
}

impl Known {
    /// A packet of this connection has come. Returns whether it was known. `may_join`: it is from
    /// its second packet on.
    fn note(&mut self, now: Instant, connection: u64, may_join: bool) -> bool {
        if now.since(self.began) >= KNOWN_FOR || self.newest.len() >= KNOWN_MAX {
            core::mem::swap(&mut self.newest, &mut self.before);
            self.newest.clear();
            self.once.clear();
            self.began = now;
        }
        if self.newest.contains(&connection) {
            return true;
        }
        let is_known = self.before.contains(&connection);
        if is_known || (may_join && self.once.contains(&connection)) {
            self.newest.insert(connection);
        } else if may_join {
            if self.once.len() >= KNOWN_MAX {
                self.once.clear();
            }
            self.once.insert(connection);
        }
        is_known
    }
}

/// Where a packet waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Joined {
    /// In this flow.
    pub flow: u64,
    /// Its connection shares that with others: [`Crowd::note_left`] is told when it leaves.
    pub is_shared: bool,
    /// Very many wait, and this connection was not there before.
    pub is_new: bool,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Crowd {
    /// Very many flows waited last.
    since: Option<Instant>,
    known: Known,
    /// Connections of which packets wait in a flow that they share with others: which, and how
    /// many.
    shared: BTreeMap<u64, (u64, u32)>,
}

impl Crowd {
    /// Very many flows wait, or did until lately.
    pub fn is_there(&self, now: Instant) -> bool {
        self.since.is_some_and(|at| now.since(at) < CROWD_FOR)
    }

    /// A packet of this connection and this host joins so many flows that wait. One of which
    /// packets wait already goes on where they are (`goes_on`: in a flow of its own), so that they
    /// keep their order.
    pub fn join(
        &mut self,
        now: Instant,
        (connection, host): (u64, impl FnOnce() -> u64),
        (waiting, goes_on): (usize, bool),
    ) -> Joined {
        if waiting >= CROWD || self.shared.len() >= CROWD_STAYS {
            self.since = Some(now);
        }
        let is_crowded = self.is_there(now);
        let is_known = self.known.note(now, connection, !is_crowded);
        let own = Joined { flow: connection, is_shared: false, is_new: is_crowded && !is_known };
        if goes_on {
            return own;
        }
        let (flow, packets) = match self.shared.get(&connection) {
            Some(shared) => *shared,
            None if !is_crowded || is_known => return own,
            None if waiting < CROWD_OF_HOSTS => (host(), 0),
            None => {
                let host = host();
                ((host & (1 << 63)) | (host % CROWD_FLOWS), 0)
            }
        };
        self.shared.insert(connection, (flow, packets + 1));
        Joined { flow, is_shared: true, ..own }
    }

    /// A packet of this connection waits no longer in a flow that it shared.
    pub fn note_left(&mut self, connection: u64) {
        if let Entry::Occupied(mut shared) = self.shared.entry(connection) {
            shared.get_mut().1 -= 1;
            if shared.get().1 == 0 {
                shared.remove();
            }
        }
    }

    /// No packet waits in a flow that it shares with those of others.
    #[cfg(test)]
    pub fn is_over(&self) -> bool {
        self.shared.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    #[test]
    fn a_connection_keeps_its_flow_as_long_as_its_packets_wait() {
        let mut crowd = Crowd::default();
        let packet = |crowd: &mut Crowd, connection: u64, host: u64, waiting: usize, goes_on: bool| {
            crowd.join(at(1_000), (connection, || host), (waiting, goes_on)).flow
        };
        let (early, late, host) = (7, 1 << 40, 5 << 20);
        assert_eq!(packet(&mut crowd, early, host, 0, false), early);
        assert_eq!(packet(&mut crowd, late, host, CROWD, false), host);
        assert!(packet(&mut crowd, 1 << 52, 3 << 20 | 3, CROWD_OF_HOSTS, false) < CROWD_FLOWS);
        let later = CROWD_OF_HOSTS;
        assert_eq!(packet(&mut crowd, early, host, later, true), early);
        assert_eq!(packet(&mut crowd, late, host, later, false), host);
        for _ in 0..2 {
            crowd.note_left(late);
        }
        assert!(packet(&mut crowd, late, host, later, false) < CROWD_FLOWS, "all of it has left");
    }

    #[test]
    fn who_was_there_before_keeps_a_flow_of_its_own_and_memory_is_bounded() {
        let mut crowd = Crowd::default();
        let call = 1 << 50;
        let mut now = at(1_000);
        for _ in 0..2 {
            assert_eq!(crowd.join(now, (call, || 1), (0, false)).flow, call);
        }
        for n in 0..100_000_u64 {
            now += Duration::from_micros(600);
            assert!(crowd.join(now, (n << 8, || n), (200, false)).is_new);
            crowd.note_left(n << 8);
            if n % 33 == 0 {
                let joined = crowd.join(now, (call, || 1), (200, false));
                assert_eq!(joined, Joined { flow: call, is_shared: false, is_new: false }, "after {n}");
            }
        }
        assert!(crowd.known.newest.len() <= KNOWN_MAX && crowd.known.before.len() <= KNOWN_MAX);
        assert!(crowd.is_over());
        // One that has been quiet for long is as new as any.
        now += KNOWN_FOR * 2;
        for _ in 0..2 {
            now += KNOWN_FOR;
            crowd.join(now, (9, || 9), (200, false));
        }
        assert!(crowd.join(now, (call, || 1), (200, false)).is_new);
    }

    #[test]
    fn those_who_come_where_nobody_waits_do_not_drive_out_who_speaks_often() {
        let mut crowd = Crowd::default();
        let (call, mut now) = (1 << 50, at(1_000));
        for n in 0..100_000_u64 {
            now += Duration::from_micros(600);
            crowd.join(now, (n << 8, || n), (1, false));
            if n % 33 == 0 {
                crowd.join(now, (call, || 1), (1, false));
            }
        }
        assert!(!crowd.join(now, (call, || 1), (200, false)).is_new);
        assert!(crowd.known.newest.len() <= KNOWN_MAX && crowd.known.before.len() <= KNOWN_MAX);
    }
}
