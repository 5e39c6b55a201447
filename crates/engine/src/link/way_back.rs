//! What a link brings, where that is another rate than it takes, and how soon answers come by it.

use farlink_wire::Duration;

use super::Link;
use crate::ack_policy::AckPolicy;
use crate::ack_ration;

/// Nothing waits longer for acknowledgements that take turns, however many flows there are.
const ACKS_LATE_MAX: Duration = Duration::from_secs(10);

impl Link {
    /// Bits per second of IP packets that it brings: as the operator says, else as many as it
    /// takes.
    #[must_use]
    pub fn rate_in_bps(&self) -> Option<u64> {
        self.rate_in_bps.or(self.rate_in_force_bps())
    }

    /// Whoever is at its other end answers at once.
    #[must_use]
    pub fn is_near(&self) -> bool {
        self.rtt_in_force().is_some_and(AckPolicy::is_near)
    }

    /// By how much acknowledgements of a gateway at its other end may come later than they would,
    /// because they have little room on the way back. All who have something under way take turns,
    /// and some of them twice: what a far host has acknowledged is told, too.
    #[must_use]
    pub fn acks_late_by(&self) -> Duration {
        let Some((rate, back)) = self.rate_in_force_bps().zip(self.rate_in_bps) else {
            return Duration::ZERO;
        };
        let flows = u32::try_from(self.budget.sharers()).unwrap_or(u32::MAX).max(1);
        let turns = flows.saturating_mul(2).saturating_sub(1);
        ack_ration::apart(rate, back).saturating_mul(turns).min(ACKS_LATE_MAX)
    }
}
