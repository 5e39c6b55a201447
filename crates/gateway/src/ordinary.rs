//! Who waits for a leg without egress queue: each leg once.

use std::collections::VecDeque;

use farlink_engine::{ReadyId, Wants};
use farlink_wire::Instant;

/// A leg that waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leg {
    /// What to pull.
    pub id: ReadyId,
    /// Since when.
    pub since: Instant,
}

/// Legs with something to send, in the order in which they said so. What is owed and what is held
/// add up while a leg waits, so the busier the processor, the more goes out in one turn.
/// Acknowledgements have no precedence: with 8,000 connections the sources they call up keep the
/// processor from the data, and half as much is carried (`farlink bench --only many --many 8000`).
#[derive(Debug, Default)]
pub struct Ordinary {
    queue: VecDeque<Leg>,
    waiting: Marks,
}

impl Ordinary {
    /// Puts a leg at the end, unless it waits already.
    pub fn push(&mut self, now: Instant, id: ReadyId, wants: Wants) {
        let id = id.wanting(wants);
        // A leg says that it has something with each packet that comes in, whether its turn has
        // come or not: without this the queue would grow with what comes in, and who says it more
        // often would have more turns.
        if self.waiting.set(id) {
            self.queue.push_back(Leg { id, since: now });
        }
    }

    /// The first in the queue leaves it.
    pub fn pop(&mut self) -> Option<Leg> {
        let leg = self.queue.pop_front()?;
        self.waiting.clear(leg.id);
        Some(leg)
    }

    /// All who wait leave it, in their order.
    pub fn take_all(&mut self) -> Vec<ReadyId> {
        self.waiting = Marks::default();
        self.queue.drain(..).map(|leg| leg.id).collect()
    }

    /// Nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

/// What is in the queues, by slot of the flow table.
#[derive(Debug, Default)]
struct Marks {
    slots: Vec<Mark>,
}

/// Of one slot.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    /// The flow in it; another one's marks do not count.
    generation: u32,
    /// One bit for each leg and wish.
    bits: u8,
}

impl Marks {
    /// Returns whether it was not set before.
    fn set(&mut self, id: ReadyId) -> bool {
        let (slot, bit) = (id.slot(), 1 << id.leg_and_wish());
        if slot >= self.slots.len() {
            self.slots.resize(slot + 1, Mark::default());
        }
        let Some(mark) = self.slots.get_mut(slot) else { return false };
        if mark.generation != id.generation() {
            *mark = Mark { generation: id.generation(), bits: 0 };
        }
        let is_new = mark.bits & bit == 0;
        mark.bits |= bit;
        is_new
    }

    fn clear(&mut self, id: ReadyId) {
        let Some(mark) = self.slots.get_mut(id.slot()) else { return };
        if mark.generation == id.generation() {
            mark.bits &= !(1 << id.leg_and_wish());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farlink_engine::config::Class;

    const BULK: Wants = Wants::Data(Class::Bulk);

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    #[test]
    fn a_leg_waits_once_however_often_it_says_so() {
        let (one, other) = (ReadyId::from_u64(8), ReadyId::from_u64(16));
        let mut o = Ordinary::default();
        for ms in 0..1000 {
            o.push(at(ms), one, BULK);
            o.push(at(ms), other, BULK);
            o.push(at(ms), other, Wants::Ack);
        }
        let first = o.pop().unwrap();
        assert_eq!((first.id, first.since), (one, at(0)));
        assert_eq!(o.pop().map(|leg| leg.id), Some(other));
        assert_eq!(o.pop().map(|leg| leg.id), Some(other.wanting(Wants::Ack)));
        assert!(o.pop().is_none() && o.is_empty());
        o.push(at(2000), one, BULK);
        assert_eq!(o.pop().map(|leg| leg.since), Some(at(2000)));
    }

    #[test]
    fn the_next_flow_in_a_slot_does_not_inherit_a_place() {
        let (old, new) = (ReadyId::from_u64(1 << 35 | 8), ReadyId::from_u64(2 << 35 | 8));
        let mut o = Ordinary::default();
        o.push(at(0), old, BULK);
        o.push(at(1), new, BULK);
        assert_eq!(o.pop().map(|leg| leg.id), Some(old));
        o.push(at(2), new, BULK);
        assert_eq!(o.pop().map(|leg| (leg.id, leg.since)), Some((new, at(1))));
        assert!(o.is_empty(), "it stood there once");
    }
}
