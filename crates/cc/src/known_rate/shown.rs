//! How fast anything has arrived: what arrives as fast as it was sent shows no more room than that.

use super::{KnownRate, Shown};

/// This part of a rate (one over it) shows all of it: trains are short, and others send, too.
const SHOWS_PARTS: u64 = 2;

impl KnownRate {
    /// A train has arrived. Where acknowledgements wait on their way back nobody knows how fast.
    pub(super) fn note_shown(&mut self, shown: &Shown) {
        let is_clear = self.config.acks_wait.is_zero() && self.waited_back().is_zero();
        let rate_bps = if is_clear { shown.end.rate_bps_since(&shown.begin) } else { self.link_bps };
        self.shown_bps = self.shown_bps.max(rate_bps);
    }

    /// Nothing speaks against this rate.
    pub(super) fn has_shown(&self, rate_bps: u64) -> bool {
        self.shown_bps >= rate_bps / SHOWS_PARTS
    }
}
