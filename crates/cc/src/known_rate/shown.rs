//! How fast anything has arrived. A train that the path has drawn apart shows that it carries less
//! than the link is said to, until another one arrives faster. One that arrives as fast as it was
//! sent shows nothing: others may have had their share of the link.

use super::{KnownRate, Shown};

/// This part of a rate (one over it) shows all of it: trains are short, and others send, too.
const SHOWS_PARTS: u64 = 2;
/// A train has been drawn apart where its end waited longer than its beginning by more than this
/// part of its time (one over it).
const APART_PARTS: u32 = 2;

impl KnownRate {
    /// A train has arrived. Where acknowledgements wait on their way back nobody knows how fast.
    pub(super) fn note_shown(&mut self, shown: &Shown) {
        if !self.config.acks_wait.is_zero() || !self.waited_back().is_zero() {
            return;
        }
        self.shown_bps = self.shown_bps.max(shown.end.rate_bps_since(&shown.begin));
        self.is_drawn_apart |= shown.grown > shown.took / APART_PARTS;
    }

    /// The link carries another rate from now on.
    pub(super) fn forget_shown(&mut self) {
        (self.shown_bps, self.is_drawn_apart) = (0, false);
    }

    /// Nothing speaks against this rate.
    pub(super) fn has_shown(&self, rate_bps: u64) -> bool {
        !self.is_drawn_apart || self.shown_bps >= rate_bps / SHOWS_PARTS
    }
}
