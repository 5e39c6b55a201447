//! What holds of the bytes of a buffer (invariants 3 and 8).

use super::{EARLY_RUNS_MAX, SeqBuffer};
use crate::checked::{Checked, all_hold};

impl SeqBuffer {
    /// What holds; `closely`: of each block, too.
    pub fn check(&self, closely: bool) -> Checked {
        let first_above = self.early.first().map(|c| c.seq);
        all_hold(&[
            (
                first_above.is_none_or(|at| at.after(self.end)),
                "what follows without a gap waits as if there were one",
            ),
            (self.early.len() <= EARLY_RUNS_MAX, "too many runs wait above a gap"),
        ])?;
        if closely { self.check_blocks() } else { Ok(()) }
    }

    fn check_blocks(&self) -> Checked {
        let follows = self.chunks.iter().try_fold(self.base, |at, c| (c.seq == at).then(|| c.end()));
        let above = self.early.iter().try_fold(self.end, |at, c| at.before_eq(c.seq).then(|| c.end()));
        let early_bytes: u32 = self.early.iter().map(|c| c.len as u32).sum();
        all_hold(&[
            (follows == Some(self.end), "a byte that is held in order is missing"),
            (above.is_some(), "blocks above a gap overlap"),
            (early_bytes == self.early_bytes, "bytes above a gap are miscounted"),
        ])
    }
}
