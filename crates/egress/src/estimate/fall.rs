//! Has the link become slower? By reports that all show that it was full, over so long a time that
//! neither a late machine nor delay that jitters explains it.

use farlink_wire::time::{Duration, Instant};

use super::peer::Sample;
use super::spread::Spread;
use super::{DECLARED_PERCENT, RateEstimate, hosts};

impl RateEstimate {
    /// What the link carries, where all that has been told for a while says that it is full and
    /// carries less than was thought.
    pub(super) fn fallen(&self, now: Instant, rate_bps: u64, sample: &Sample) -> Option<u64> {
        let spread_time = self.fall_time(sample);
        let most = |time: Duration| {
            // Three samples, at least, however long they take.
            let time = time.max(sample.took / 2 * 5).max(spread_time);
            let lately = || self.recent.iter().rev().take_while(|(at, _)| now.since(*at) <= time);
            let covers =
                lately().last().is_some_and(|(at, s)| now.since(*at) + s.took >= spread_time / 4 * 3);
            let full = covers && lately().count() >= 3 && lately().all(|(_, s)| s.saturated);
            lately().map(|(_, s)| s.rate_bps).max().filter(|_| full)
        };
        let round = self.round();
        let much_less = most(round / 16 * 5).filter(|most| *most < rate_bps / 3 * 2);
        let percent = if self.is_as_declared() { DECLARED_PERCENT } else { 100 };
        let is_less = |most: &u64| most.saturating_mul(100) < rate_bps.saturating_mul(percent);
        much_less.or_else(|| most(round / 8 * 5).filter(is_less))
    }

    /// The link has to seem slower for so long, at least.
    pub(super) fn fall_time(&self, sample: &Sample) -> Duration {
        let least = if self.hosts.tell { hosts::FALL_TIME_MIN } else { Duration::ZERO };
        Spread::fall_time(sample.spread).max(least)
    }
}
