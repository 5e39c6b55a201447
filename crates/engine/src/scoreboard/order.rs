//! Transmissions in the order in which they left: what left first is lost first, so losses are
//! looked for from the front (RFC 8985 section 6.2, as the list that Linux sorts by time).

use std::collections::VecDeque;

use farlink_wire::{Instant, SeqNum};

use super::Sent;

/// One transmission. Of its records those count that nothing has happened to since.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    /// When it left.
    pub sent_at: Instant,
    /// Where what is still to be looked at begins.
    pub seq: SeqNum,
    /// And ends.
    pub end: SeqNum,
}

/// All transmissions that may still be found to be lost, the oldest first.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Order(VecDeque<Turn>);

impl Order {
    /// The nth oldest.
    pub fn get(&self, nth: usize) -> Option<Turn> {
        self.0.get(nth).copied()
    }
    /// The oldest is done with.
    pub fn pop(&mut self) {
        self.0.pop_front();
    }
    /// What stands before `seq` in the nth is done with.
    pub fn begin_at(&mut self, nth: usize, seq: SeqNum) {
        if let Some(turn) = self.0.get_mut(nth) {
            turn.seq = seq;
        }
    }
    /// A transmission left. `records` are those of the board.
    pub fn push(&mut self, sent_at: Instant, seq: SeqNum, end: SeqNum, records: &VecDeque<Sent>) {
        // What was acknowledged or sent again leaves its turn behind: as many at most as there are
        // records.
        if self.0.len() > 2 * records.len() + 64 {
            self.rebuild(records);
        }
        self.0.push_back(Turn { sent_at, seq, end });
    }
    /// Anew, from the records themselves.
    pub fn rebuild(&mut self, records: &VecDeque<Sent>) {
        self.0.clear();
        let live = records.iter().filter(|r| !r.sacked && !r.lost);
        self.0.extend(live.map(|r| Turn { sent_at: r.sent_at, seq: r.seq, end: r.end }));
        self.0.make_contiguous().sort_by_key(|turn| turn.sent_at);
    }
    /// Nothing is in flight.
    pub fn clear(&mut self) {
        self.0 = VecDeque::new();
    }
    /// Memory, bytes.
    pub fn memory_bytes(&self) -> usize {
        self.0.capacity() * size_of::<Turn>()
    }
}
