//! What is owed: the hosts may have forgotten what was acknowledged to them here, so it is
//! delivered, or they learn that it was lost. Where nothing was promised nothing is owed.
//!
//! That is all that is here in order: it is acknowledged, or about to be. What was only SACKed is
//! the source's still (RFC 2018 section 8).

use crate::side::Side;
use crate::split::Split;

impl Split<'_> {
    /// What is acknowledged here binds this gateway.
    #[must_use]
    pub fn binds(&self) -> bool {
        self.promise.binds()
    }

    /// Something is owed to one of the hosts.
    #[must_use]
    pub fn owes(&self) -> bool {
        self.owes_to(Side::A) || self.owes_to(Side::B)
    }

    /// Something was acknowledged to this host that the other one has not acknowledged.
    #[must_use]
    pub fn owes_to(&self, source: Side) -> bool {
        self.binds() && self.relays.get(source).is_busy()
    }
}
