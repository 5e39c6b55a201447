//! Nodes whose processor is busy with something else at times: nothing is read, no timer runs, and
//! what comes in waits. Then all of it is read at once, before timers run, as an event loop does.

use std::collections::VecDeque;

use farlink_wire::{Duration, Instant};

use super::World;
use crate::node::Kind;
use crate::packet::{SimPacket, hash};

/// When a node stands still.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Stalls {
    /// For so long at a time.
    pub length: Duration,
    /// For this part of the time, 0 to 1.
    pub share: f64,
    /// Which moments they are.
    pub seed: u64,
}

/// One that stands still at times, or once, and what has come in meanwhile.
pub(super) struct Stalled {
    when: Stalls,
    /// Until when it does so once, and how many packets wait for it.
    once: Option<(Instant, usize)>,
    waiting: VecDeque<(usize, SimPacket)>,
}

impl Stalled {
    fn until(&self, now: Instant) -> Option<Instant> {
        let once = self.once.map(|(until, _)| until).filter(|until| *until > now);
        once.max(self.when.until(now))
    }

    fn keeps(&self) -> usize {
        self.once.map_or(usize::MAX, |(_, keeps)| keeps)
    }
}

impl Stalls {
    /// Until when it stands still; `None`: it does not.
    fn until(&self, now: Instant) -> Option<Instant> {
        if self.share <= 0.0 || self.length.is_zero() {
            return None;
        }
        // Once in each of these, anywhere in it.
        let every = self.length.mul_f64(1.0 / self.share.min(1.0));
        let number = u64::try_from(now.since(Instant::ZERO).as_nanos() / every.as_nanos().max(1)).ok()?;
        let drawn = hash(self.seed, &number.to_le_bytes()) >> 11;
        let unit = drawn as f64 / (1_u64 << 53) as f64;
        let begins = Instant::ZERO + every.mul_f64(number as f64) + (every - self.length).mul_f64(unit);
        (now >= begins && now < begins + self.length).then_some(begins + self.length)
    }
}

impl World {
    /// This node stands still at times.
    pub fn stall(&mut self, node: usize, when: Stalls) {
        self.stalled.insert(node, Stalled { when, once: None, waiting: VecDeque::new() });
    }

    /// It stands still until then, once. So many packets wait for it; what comes beyond them is
    /// lost.
    pub(super) fn stand_still(&mut self, node: usize, until: Instant, keeps: usize) {
        let never = Stalls { length: Duration::ZERO, share: 0.0, seed: 0 };
        let stalled = self.stalled.entry(node).or_insert_with(|| Stalled {
            when: never,
            once: None,
            waiting: VecDeque::new(),
        });
        let until = stalled.once.map_or(until, |(before, _)| before.max(until));
        stalled.once = Some((until, keeps));
        let now = self.now;
        // Until now its loop has got round.
        if let Some(gateway) = self.gateway(node).and_then(|node| node.gateway.as_mut()) {
            gateway.wake(now);
        }
    }

    /// Until when a node stands still.
    pub(super) fn stands_until(&self, node: usize) -> Option<Instant> {
        self.stalled.get(&node).and_then(|stalled| stalled.until(self.now))
    }

    /// Its process is gone, and so is what waited for it.
    pub(super) fn end_standstill(&mut self, node: usize) {
        if self.stalled.get(&node).is_some_and(|stalled| stalled.once.is_some()) {
            self.stalled.remove(&node);
        }
    }

    /// A packet that comes to a node that stands still waits. Returned: one that does not.
    pub(super) fn keep_stalled(&mut self, node: usize, port: usize, packet: SimPacket) -> Option<SimPacket> {
        let now = self.now;
        let Some(stalled) = self.stalled.get_mut(&node) else { return Some(packet) };
        // What came before it is to be read first.
        let until = stalled.until(now).or((!stalled.waiting.is_empty()).then_some(now));
        let Some(until) = until else { return Some(packet) };
        if stalled.waiting.len() < stalled.keeps() {
            stalled.waiting.push_back((port, packet));
        }
        self.node_due[node] = Some(self.node_due[node].map_or(until, |due| due.max(now).min(until)));
        None
    }

    /// Whether it stands still; if it no longer does, what has come in is read now.
    pub(super) fn stands_still(&mut self, node: usize) -> bool {
        let now = self.now;
        let Some(stalled) = self.stalled.get_mut(&node) else { return false };
        if let Some(until) = stalled.until(now) {
            self.node_due[node] = Some(until);
            return true;
        }
        let waiting = core::mem::take(&mut stalled.waiting);
        if stalled.once.take().is_some() && stalled.when.share <= 0.0 {
            self.stalled.remove(&node);
        }
        if let Kind::Gateway(g) = &mut self.nodes[node].kind
            && let Some(gateway) = &mut g.gateway
        {
            gateway.wake(now);
        }
        for (port, packet) in waiting {
            self.deliver(node, port, packet);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stands_still_for_its_part_of_the_time() {
        let stalls = Stalls { length: Duration::from_millis(200), share: 0.04, seed: 7 };
        let still = (0..100_000).filter(|ms| stalls.until(Instant::from_millis(*ms)).is_some()).count();
        assert!((3_900..=4_100).contains(&still), "{still} of 100,000 ms");
        let first = (0..).find(|ms| stalls.until(Instant::from_millis(*ms)).is_some()).unwrap();
        assert!(stalls.until(Instant::from_millis(first)) > Some(Instant::from_millis(first + 190)));
    }
}
