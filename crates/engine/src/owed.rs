//! What is owed: the hosts may have forgotten what was acknowledged to them here, so it is
//! delivered, or they learn that it was lost. Where nothing was promised nothing is owed.
//!
//! That is all that is here in order: it is acknowledged, or about to be. What was only SACKed is
//! the source's still (RFC 2018 section 8).
//!
//! A connection may change over to custody mode while something is owed. Then nothing more is
//! promised, and what was promised before stays a debt until the far host has acknowledged it.

use crate::config::Notice;
use crate::relays::Over;
use crate::split::Split;

impl Split<'_> {
    /// What is acknowledged here binds this gateway.
    #[must_use]
    pub fn binds(&self) -> bool {
        self.promise.binds()
    }

    /// What sources hear while the link is away, where nothing is promised to them.
    #[must_use]
    pub fn notice(&self) -> Option<Notice> {
        self.promise.notice()
    }

    /// How the connection ends if what is held cannot be delivered.
    #[must_use]
    pub fn given_up(&self) -> Over {
        self.promise.given_up(self.relays.is_relied_on())
    }

    /// Something was acknowledged to one of the hosts that the other one has not acknowledged.
    #[must_use]
    pub fn owes(&self) -> bool {
        self.relays.owe(self.binds())
    }
}
