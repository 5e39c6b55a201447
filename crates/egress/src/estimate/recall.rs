//! A first guess of the rate: what has been found before, and nothing confirms any more.
//!
//! It takes the place of the first burst. So many bytes are under way from the beginning, and the
//! first reports show what the link carries now: it is followed as any rate that has changed. A
//! guess that nothing confirms ends soon.

use farlink_wire::time::{Duration, Instant};

use super::{LIFETIME, PROBE_GAIN, RateEstimate, hosts};

/// A guess that nothing has confirmed for so long is forgotten.
const GUESS_LIFETIME: Duration = Duration::from_secs(60);

impl RateEstimate {
    /// It was this once, in bits per second, with that round trip. Where something is known, or is
    /// declared, this says nothing.
    pub fn recall(&mut self, now: Instant, rate_bps: u64, rtt: Duration) {
        if self.is_declared || self.rate_bps.is_some() {
            return;
        }
        let rate = self.at_most(rate_bps.max(8_000));
        (self.rate_bps, self.full_bps) = (Some(rate), rate);
        self.rtt = self.rtt.or(Some(rtt));
        (self.confirmed_at, self.recalled_at, self.told_at) = (now, Some(now), now);
        (self.changed_at, self.searching, self.sounding) = (now, false, None);
        (self.gain, self.gain_until, self.probe_gain) = (100, None, PROBE_GAIN);
        // The link may carry more by now: the first report that finds nothing waiting tries.
        (self.probe_until, self.next_probe_at) = (None, now);
        self.recent.clear();
    }

    /// What is in force has been found before, and nothing has confirmed it since.
    #[must_use]
    pub fn is_recalled(&self) -> bool {
        self.recalled_at == Some(self.confirmed_at) && self.rate_bps.is_some()
    }

    /// When what is in force was confirmed last; `None`: nothing is.
    #[must_use]
    pub fn confirmed_at(&self) -> Option<Instant> {
        self.rate_bps.map(|_| self.confirmed_at)
    }

    /// For how long it holds what nothing confirms.
    pub(super) fn lifetime(&self) -> Duration {
        match self.hosts.are_one() {
            true => hosts::ONE_LIFETIME,
            false if self.is_recalled() => GUESS_LIFETIME,
            false => LIFETIME,
        }
    }
}
