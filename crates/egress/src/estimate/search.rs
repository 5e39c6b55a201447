//! The search for the rate of a link that has not been full yet: as slow start does, twice as much
//! with each round trip, until something has to wait. But what is lost does not count.

use farlink_wire::time::{Duration, Instant};

use super::peer::{Sample, rate_of};
use super::{LIFETIME, RateEstimate};

/// Bytes within a round trip from which a search for the rate begins: somebody has a lot to send.
const SEARCH_BYTES: u32 = 24_000;
/// What a search sends in each round trip at least, bytes.
const SEARCH_ROUND_BYTES: u64 = 96_000;
/// A search without a report for so many round trips, and for so long at least, is over if others
/// send meanwhile: they are not held to what it has found so far.
const SEARCH_ROUNDS: u32 = 4;
const SEARCH_SILENCE_MIN: Duration = Duration::from_secs(2);

impl RateEstimate {
    /// The rate at which to send meanwhile.
    pub(super) fn sought_bps(&self) -> Option<u64> {
        let floor_bps = rate_of(SEARCH_ROUND_BYTES, self.round());
        self.rate_bps.map(|rate| self.at_most(rate.saturating_mul(2).max(floor_bps)))
    }

    /// The sample did not show a full link. Once enough bytes have been reported, the search begins
    /// at its rate.
    pub(super) fn begin_search(&mut self, now: Instant, sample: &Sample, rate_bps: u64) {
        if self.gathers(now, sample.bytes) < SEARCH_BYTES {
            return;
        }
        // So much has been carried before.
        let before = self.searched.filter(|(at, _)| now.since(*at) < LIFETIME);
        self.rate_bps = Some(before.map_or(rate_bps, |(_, before)| before.max(rate_bps)));
        (self.searching, self.told_at, self.confirmed_at) = (true, now, now);
    }

    /// Bytes that the samples of the last round trip tell of, this one included.
    fn gathers(&mut self, now: Instant, bytes: u32) -> u32 {
        let (since, before) = self.gathered;
        let goes_on = before > 0 && now.since(since) <= self.round();
        self.gathered = if goes_on { (since, before.saturating_add(bytes)) } else { (now, bytes) };
        self.gathered.1
    }

    /// No report has come for a while.
    pub(super) fn look_at_search(&mut self, now: Instant) {
        self.sounding = None;
        let others_then = self.uncounted.total_by(self.told_at, now).unwrap_or(0);
        if self.uncounted.total_bytes().saturating_sub(others_then) < u64::from(SEARCH_BYTES) {
            self.told_at = now;
            return;
        }
        self.searched = self.rate_bps.map(|rate| (now, rate));
        (self.rate_bps, self.searching, self.sounding) = (None, false, None);
    }

    /// When it is looked at next whether a search is over.
    pub(super) fn search_until(&self) -> Option<Instant> {
        let silence = (self.round() * SEARCH_ROUNDS).max(SEARCH_SILENCE_MIN);
        self.searching.then_some(self.told_at + silence)
    }
}
