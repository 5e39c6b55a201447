//! What holds of the records of what is under way.

use farlink_wire::SeqNum;

use super::{Scoreboard, Sent};
use crate::checked::{Checked, all_hold};

/// Sums over so few records are made each time.
const FEW: usize = 8;

impl Scoreboard {
    /// What holds, where all from `una` to `nxt` is under way; `closely`: of each record, too.
    pub fn check(&self, una: SeqNum, nxt: SeqNum, closely: bool) -> Checked {
        let covers = match (self.records.front(), self.records.back()) {
            (Some(first), Some(last)) => first.seq == una && last.end == nxt,
            _ => una == nxt,
        };
        all_hold(&[
            (covers, "what is under way is not what the records tell"),
            (self.out_bytes == u64::from(nxt.since(una)), "bytes under way are miscounted"),
        ])?;
        let sums = closely || self.records.len() <= FEW;
        all_hold(&[(!sums || self.is_consistent(), "the sums of the records are wrong")])
    }

    /// The records follow one another, and sums over them match the running totals.
    #[must_use]
    pub fn is_consistent(&self) -> bool {
        let sum = |f: fn(&Sent) -> bool| self.records.iter().filter(|r| f(r)).map(Sent::len).sum::<u64>();
        let follow = self.records.iter().zip(self.records.iter().skip(1)).all(|(r, next)| r.end == next.seq);
        follow
            && self.records.iter().all(|r| r.seq.before(r.end) && !(r.sacked && r.lost))
            && sum(|_| true) == self.out_bytes
            && sum(|r| r.sacked) == self.sacked_bytes
            && sum(|r| r.lost) == self.lost_bytes
    }
}
