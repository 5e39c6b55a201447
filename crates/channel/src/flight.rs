//! What propagates, by the time of its arrival.

use core::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

use farlink_wire::time::Instant;

/// Packets under way. Those that keep their order, which are nearly all, cost a queue; only the
/// others a heap.
#[derive(Debug)]
pub(crate) struct Flight<P> {
    in_order: VecDeque<Entry<P>>,
    out_of_order: BinaryHeap<Reverse<Entry<P>>>,
    next_number: u64,
}

#[derive(Debug)]
struct Entry<P> {
    due: Instant,
    /// Those due at the same time arrive in the order in which they left.
    number: u64,
    packet: P,
}

impl<P> PartialEq for Entry<P> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl<P> Eq for Entry<P> {}
impl<P> PartialOrd for Entry<P> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<P> Ord for Entry<P> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.due, self.number).cmp(&(other.due, other.number))
    }
}

impl<P> Default for Flight<P> {
    fn default() -> Self {
        Self { in_order: VecDeque::new(), out_of_order: BinaryHeap::new(), next_number: 0 }
    }
}

impl<P> Flight<P> {
    /// `stays_behind`: later packets are expected to overtake this one.
    pub(crate) fn push(&mut self, due: Instant, stays_behind: bool, packet: P) {
        let entry = Entry { due, number: self.next_number, packet };
        self.next_number += 1;
        if stays_behind || self.in_order.back().is_some_and(|last| last.due > due) {
            self.out_of_order.push(Reverse(entry));
        } else {
            self.in_order.push_back(entry);
        }
    }

    /// When the next one arrives.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let a = self.in_order.front().map(|entry| entry.due);
        let b = self.out_of_order.peek().map(|entry| entry.0.due);
        [a, b].into_iter().flatten().min()
    }

    /// The next one that has arrived.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<P> {
        let from_heap = match (self.in_order.front(), self.out_of_order.peek()) {
            (Some(a), Some(Reverse(b))) => b < a,
            (None, Some(_)) => true,
            (_, None) => false,
        };
        let due = if from_heap { self.out_of_order.peek()?.0.due } else { self.in_order.front()?.due };
        if due > now {
            return None;
        }
        if from_heap {
            self.out_of_order.pop().map(|e| e.0.packet)
        } else {
            self.in_order.pop_front().map(|e| e.packet)
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.in_order.len() + self.out_of_order.len()
    }
}
