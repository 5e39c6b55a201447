//! Losses: more than a link corrupts, and those that were none. Where packets overtake each other
//! some are taken for lost that come a little later.

use super::{KnownRate, State};

/// Loss of this share of a round trip, percent, is not corruption.
const LOSS_PERCENT: u64 = 33;
/// Nor is this, in two round trips one after the other.
pub(super) const LOSS_AGAIN_PERCENT: u64 = 10;
/// Fewer lost segments in a round trip are no evidence of congestion.
pub(super) const LOST_SEGMENTS_MIN: u64 = 10;

/// What a round trip has lost that lost too much, and what was known before that.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heavy {
    sent: u64,
    lost: u64,
    lost_segments: u64,
    free: u32,
    patience_rounds: u32,
    found_bps: u64,
    moves: bool,
}

impl KnownRate {
    /// A round trip has passed: whether it lost more than a link corrupts.
    pub(super) fn judge_losses(&mut self) -> bool {
        let lossy = self.rounds.lossy;
        let (delivered, lost) = (self.rounds.delivered, self.rounds.lost);
        let sent = delivered + lost;
        // One that is larger than a packet is lost with any of its fragments.
        let counts = self.rounds.lost_segments >= LOST_SEGMENTS_MIN;
        let much = counts && lost.saturating_mul(100) > sent.saturating_mul(LOSS_AGAIN_PERCENT);
        self.rounds.lossy = much;
        much && (lossy || lost.saturating_mul(100) > sent.saturating_mul(LOSS_PERCENT))
    }

    /// What is known before it gives way to such losses.
    pub(super) fn before_heavy(&self) -> Heavy {
        Heavy {
            sent: self.rounds.delivered + self.rounds.lost,
            lost: self.rounds.lost,
            lost_segments: self.rounds.lost_segments,
            free: self.free,
            patience_rounds: self.patience_rounds,
            found_bps: self.found_bps,
            moves: self.moves,
        }
    }

    /// So much has arrived that was taken for lost. If it gave way for that, it was a mistake.
    pub(crate) fn on_found(&mut self, bytes: u64, segments: u64) {
        self.lost = (self.lost.0.saturating_sub(bytes), self.lost.1.saturating_sub(segments));
        self.rounds.lost = self.rounds.lost.saturating_sub(bytes);
        self.rounds.lost_segments = self.rounds.lost_segments.saturating_sub(segments);
        let Some(heavy) = &mut self.heavy else { return };
        heavy.lost = heavy.lost.saturating_sub(bytes);
        heavy.lost_segments = heavy.lost_segments.saturating_sub(segments);
        let is_less = heavy.lost.saturating_mul(100) <= heavy.sent.saturating_mul(LOSS_AGAIN_PERCENT);
        if heavy.lost_segments >= LOST_SEGMENTS_MIN && !is_less {
            return;
        }
        let Heavy { free, patience_rounds, found_bps, moves, .. } = *heavy;
        self.heavy = None;
        if matches!(self.state, State::Beyond(..)) {
            (self.free, self.patience_rounds) = (free, patience_rounds);
            (self.found_bps, self.moves) = (found_bps, moves);
            self.state = State::Link(0);
        }
    }
}
