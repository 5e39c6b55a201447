//! Connections that a rule passes by or refuses: a repeated SYN is no new connection, and what they
//! carry counts for their rule. Bounded: of more connections than that those that have been quiet
//! longest are no longer followed, and their further bytes do not count.

use std::collections::VecDeque;

use farlink_wire::{SeqNum, TcpSegment};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::config::Action;
use crate::table::Key;

/// Connections that are followed at a time.
pub const PASSED_MAX: usize = 16_384;
/// Connections looked at for one that has been quiet since the last look.
const LOOKS_MAX: usize = 16;
/// Places in the order that are kept whatever happens.
const KEPT_PLACES: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Entry {
    serial: u64,
    isn: SeqNum,
    rule: usize,
    action: Action,
    /// It carried payload since it was last looked at.
    spoke: bool,
    /// Which hosts have sent a FIN, the lower one first.
    ended: [bool; 2],
}

/// See the module.
#[derive(Debug)]
pub struct Passed {
    map: HashMap<Key, Entry, FixedState>,
    order: VecDeque<(u64, Key)>,
    serial: u64,
    max: usize,
}

impl Passed {
    /// Nothing is followed yet.
    #[must_use]
    pub fn new(max: usize, seed: u64) -> Self {
        Self {
            map: HashMap::with_hasher(FixedState::with_seed(seed)),
            order: VecDeque::new(),
            serial: 0,
            max: max.max(1),
        }
    }

    /// Rule and action, when this SYN came before.
    #[must_use]
    pub fn decided(&self, key: &Key, isn: SeqNum) -> Option<(usize, Action)> {
        self.map.get(key).filter(|e| e.isn == isn).map(|e| (e.rule, e.action))
    }

    /// A connection begins that this rule passes by or refuses.
    pub fn begin(&mut self, key: Key, isn: SeqNum, rule: usize, action: Action) {
        if !self.map.contains_key(&key) && self.map.len() >= self.max {
            self.make_room();
        }
        if self.order.len() >= 2 * self.map.len().max(KEPT_PLACES) {
            let map = &self.map;
            self.order.retain(|(serial, key)| map.get(key).is_some_and(|e| e.serial == *serial));
        }
        self.serial += 1;
        let entry = Entry { serial: self.serial, isn, rule, action, spoke: false, ended: [false; 2] };
        self.map.insert(key, entry);
        self.order.push_back((self.serial, key));
    }

    /// Rules have other numbers now.
    pub fn move_rules(&mut self, to: impl Fn(usize) -> usize) {
        self.map.values_mut().for_each(|entry| entry.rule = to(entry.rule));
    }

    /// A new decision has been made about these ports.
    pub fn forget(&mut self, key: &Key) {
        self.map.remove(key);
    }

    /// A segment passes by: the rule that its payload counts for.
    pub fn rule_of(&mut self, key: &Key, from_low: bool, s: &TcpSegment) -> Option<usize> {
        if self.map.is_empty() {
            return None;
        }
        let entry = self.map.get_mut(key)?;
        let rule = entry.rule;
        entry.spoke |= s.payload_len > 0;
        let [low, high] = &mut entry.ended;
        *(if from_low { low } else { high }) |= s.flags.fin();
        if s.flags.rst() || (entry.ended == [true; 2] && !s.flags.fin()) {
            self.map.remove(key);
        }
        Some(rule)
    }

    /// Memory, bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.map.capacity() * (size_of::<Key>() + size_of::<Entry>() + 1)
            + self.order.capacity() * size_of::<(u64, Key)>()
    }

    /// Lets go of the connection that began first of those that have carried nothing since the last
    /// look: so handshakes without more (a flood) cannot drive out those that are in use.
    fn make_room(&mut self) {
        let mut looks = 0;
        while let Some((serial, key)) = self.order.pop_front() {
            let Some(entry) = self.map.get_mut(&key).filter(|e| e.serial == serial) else { continue };
            looks += 1;
            if entry.spoke && looks < LOOKS_MAX {
                entry.spoke = false;
                self.order.push_back((serial, key));
                continue;
            }
            self.map.remove(&key);
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{IpAddr, Ipv4Addr};

    fn key(port: u16) -> Key {
        let host = |n| IpAddr::from(Ipv4Addr::new(10, 0, 0, n));
        Key::new(0, (host(1), port), (host(2), 80)).0
    }

    #[test]
    fn a_flood_drives_out_what_is_quiet_and_memory_stays_bounded() {
        let mut passed = Passed::new(100, 1);
        let isn = SeqNum(7);
        passed.begin(key(1), isn, 0, Action::Pass);
        passed.begin(key(2), isn, 0, Action::Pass);
        for port in 1000..60_000 {
            if let Some(entry) = passed.map.get_mut(&key(1)) {
                entry.spoke = true;
            }
            passed.begin(key(port), isn, 0, Action::Pass);
        }
        assert!(passed.map.len() <= 100 && passed.order.len() <= 256);
        assert_eq!(passed.decided(&key(1), isn), Some((0, Action::Pass)));
        assert_eq!(passed.decided(&key(2), isn), None);
        // Twice the places at most stand in the order, and a table of hashes grows by doubling.
        let most = 4 * 100 * (size_of::<Key>() + size_of::<Entry>() + 1) + 256 * size_of::<(u64, Key)>();
        for port in 1000..60_000 {
            passed.begin(key(port), SeqNum(port.into()), 0, Action::Pass);
            passed.forget(&key(port));
        }
        assert!(passed.memory_bytes() <= most, "{} of {most}", passed.memory_bytes());
    }
}
