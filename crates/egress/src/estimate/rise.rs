//! Has the link become faster? By what arrives, whether the link seems full or not: where delay
//! jitters, packets seem to wait before a link that has room.

use super::RateEstimate;
use super::peer::Sample;

/// What has arrived over half a round trip and surpasses the estimate by this, percent, was not
/// only bunched.
const MORE_PERCENT: u64 = 108;

impl RateEstimate {
    /// What the link carries at least by a sample of more than the old rate, bits per second: the
    /// old rate where one alone does not prove it; and whether it is clear, since that has arrived,
    /// full or not. `None`: it shows no more. `before`: the sample before it.
    pub(super) fn risen(
        &self,
        old: u64,
        sample: &Sample,
        busy: bool,
        before: Option<Sample>,
    ) -> Option<(u64, bool)> {
        let rate = self.at_most(sample.surely_bps);
        if rate <= old {
            return None;
        }
        let carried = self.carried_of_late(sample).map(|(bps, _)| self.at_most(bps));
        // Acknowledgements of hosts come in bunches, and say it less clearly.
        let is_clear = |bps: &u64| !self.hosts.tell && *bps > old / 100 * MORE_PERCENT;
        if let Some(carried) = carried.filter(is_clear) {
            return Some((carried, true));
        }
        if sample.saturated || busy {
            // One report that came by a late timer, and the burst after it, prove nothing: two in a
            // row do.
            let two = before.filter(|b| b.saturated || busy).map_or(old, |b| b.surely_bps.min(rate));
            return Some((two.max(old), false));
        }
        carried.filter(|bps| *bps > old / 4 * 5).map(|bps| (bps, false))
    }
}
