//! Who waits for a leg without egress queue: each leg once.

use std::collections::VecDeque;

use farlink_engine::{ReadyId, Wants};
use farlink_wire::Instant;
use foldhash::fast::FixedState;
use hashbrown::HashSet;

/// A leg that waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leg {
    /// What to pull.
    pub id: ReadyId,
    /// Since when.
    pub since: Instant,
}

/// Legs with something to send, in the order in which they said so. What is owed and what is held add up while a leg waits, so
/// the busier the processor, the more goes out in one turn.
#[derive(Debug)]
pub struct Ordinary {
    queue: VecDeque<Leg>,
    /// What is in the queue. A leg says that it has something with each packet that comes in, whether its turn has come or
    /// not: without this the queue would grow with what comes in, and who says it more often would have more turns.
    waiting: HashSet<u64, FixedState>,
}

impl Default for Ordinary {
    fn default() -> Self {
        // The numbers in it are our own: nobody outside can make them collide.
        Self { queue: VecDeque::new(), waiting: HashSet::with_hasher(FixedState::with_seed(0)) }
    }
}

impl Ordinary {
    /// Puts a leg at the end, unless it waits already.
    pub fn push(&mut self, now: Instant, id: ReadyId, wants: Wants) {
        let id = id.wanting(wants);
        if self.waiting.insert(id.as_u64()) {
            self.queue.push_back(Leg { id, since: now });
        }
    }

    /// The first in the queue leaves it.
    pub fn pop(&mut self) -> Option<Leg> {
        let leg = self.queue.pop_front()?;
        self.waiting.remove(&leg.id.as_u64());
        Some(leg)
    }

    /// All who wait leave it, in their order.
    pub fn take_all(&mut self) -> Vec<ReadyId> {
        self.waiting.clear();
        self.queue.drain(..).map(|leg| leg.id).collect()
    }

    /// Nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farlink_engine::config::Class;

    #[test]
    fn a_leg_waits_once_however_often_it_says_so() {
        let (one, other) = (ReadyId::from_u64(8), ReadyId::from_u64(16));
        let (bulk, at) = (Wants::Data(Class::Bulk), Instant::from_millis);
        let mut o = Ordinary::default();
        for ms in 0..1000 {
            o.push(at(ms), one, bulk);
            o.push(at(ms), other, bulk);
            o.push(at(ms), other, Wants::Ack);
        }
        let first = o.pop().unwrap();
        assert_eq!((first.id, first.since), (one, at(0)));
        assert_eq!(o.pop().map(|leg| leg.id), Some(other));
        assert_eq!(o.pop().map(|leg| leg.id), Some(other.wanting(Wants::Ack)));
        assert!(o.pop().is_none() && o.is_empty());
        o.push(at(2000), one, bulk);
        assert_eq!(o.pop().map(|leg| leg.since), Some(at(2000)));
    }
}
