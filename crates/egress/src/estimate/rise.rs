//! Has the link become faster? By what arrives, whether the link seems full or not: where delay
//! jitters, packets seem to wait before a link that has room.

use super::RateEstimate;
use super::peer::Sample;

/// What has arrived over half a round trip and surpasses the estimate by this, percent, was not
/// only bunched.
const MORE_PERCENT: u64 = 108;

impl RateEstimate {
    /// What the link carries at least by a sample of more than the old rate, bits per second: the
    /// old rate where one alone does not prove it. `None`: it shows no more. `rate`: the sample's.
    /// `before`: the one before it.
    pub(super) fn risen(
        &self,
        (old, rate): (u64, u64),
        sample: &Sample,
        busy: bool,
        before: Option<Sample>,
    ) -> Option<u64> {
        if rate <= old {
            return None;
        }
        if let Some(carried) = self.carries_more(old, sample) {
            return Some(carried);
        }
        if sample.saturated || busy {
            // One report that came by a late timer, and the burst after it, prove nothing: two in a
            // row do.
            let two = before.filter(|b| b.saturated || busy).map_or(old, |b| b.rate_bps.min(rate));
            return Some(two.max(old));
        }
        // It may have come in a bunch.
        let carried = self.carried_of_late(sample).map(|(bps, _)| self.at_most(bps));
        carried.filter(|bps| *bps > old / 4 * 5)
    }

    /// What arrives is carried, whether the link seems full or not: bits per second, where they
    /// clearly are more. Acknowledgements of hosts come in bunches, and say it less clearly.
    pub(super) fn carries_more(&self, old_bps: u64, sample: &Sample) -> Option<u64> {
        let carried = self.carried_of_late(sample).map(|(bps, _)| self.at_most(bps));
        carried.filter(|bps| !self.hosts.tell && *bps > old_bps / 100 * MORE_PERCENT)
    }
}
