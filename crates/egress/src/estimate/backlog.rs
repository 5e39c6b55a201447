//! The backlog before the link: as the newest report shows it, and what has been sent since.

use farlink_wire::time::{Duration, Instant};

use super::peer::Sample;
use super::{RateEstimate, time_of};

impl RateEstimate {
    /// More waits before the link than is meant to, as far as the newest report tells, and what has
    /// been sent since.
    #[must_use]
    pub fn has_backlog(&self, now: Instant, total_bytes: u64) -> bool {
        let (sent_at, waited) = self.waited;
        let waits = || self.waits_after(now, self.waited, (total_bytes, self.carries_bps()?));
        now < sent_at + waited + 2 * (self.round() + self.usual_took_min(self.hosts.tell))
            && waits().unwrap_or(waited) > 2 * self.waiting_wanted()
    }

    /// How long a byte that leaves now will wait before the link, where one that left then waited
    /// so long. That was a round trip ago: a queue that nothing has been added to since is empty by
    /// now. `None`: nobody knows.
    pub(super) fn waits_now(&self, now: Instant, then: (Instant, Duration)) -> Option<Duration> {
        self.waits_after(now, then, (self.sent.total_bytes(), self.rate_bps?))
    }

    fn waits_after(
        &self,
        now: Instant,
        (sent_at, waited): (Instant, Duration),
        (total_bytes, rate_bps): (u64, u64),
    ) -> Option<Duration> {
        let added = time_of(self.sent.since(sent_at, now, total_bytes)?, rate_bps);
        Some((waited + added).saturating_sub(now.since(sent_at)))
    }

    /// Bits per second that the link carries, though it may not be believed yet. How fast to send
    /// does not go by this, since delay may have varied by itself.
    fn carries_bps(&self) -> Option<u64> {
        let rate_bps = self.rate_bps?;
        let newest = self.recent.back().map(|(_, s)| s).filter(|s| s.saturated && self.is_as_declared());
        let carried = newest.map(|s| self.carried_of_late(s).unwrap_or((s.rate_bps, true)));
        let carried = carried.filter(|(_, was_full)| *was_full);
        Some(carried.map_or(rate_bps, |(bps, _)| bps.min(rate_bps)))
    }

    /// A sample of hosts, while the declared rate is believed. One host without queueing delay
    /// shows that the queue of the others is not the link's.
    pub(super) fn note_wait_of_hosts(&mut self, sample: &Sample) {
        let waited = self.lately().map(|s| s.waited).min().unwrap_or(sample.waited);
        self.waited = (sample.sent_at, waited);
    }
}
