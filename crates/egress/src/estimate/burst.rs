//! What the first burst shows where delay jitters.
//!
//! A link draws a burst apart evenly. One that jitters, or sends in frames, holds some packets and
//! lets them go together. So where the parts of a burst came at different rates, its whole is the
//! least that the link carries, and its fastest part the most. Then the next probe goes up to that,
//! for as long as a frame may last.

use farlink_wire::time::{Duration, Instant};

use super::peer::Sample;
use super::{PROBE_GAIN, RateEstimate};

/// A probe above the whole takes no longer: what it adds is not to fill the queue before the link.
const PROBE_MAX: Duration = Duration::from_millis(40);
/// And is no faster than so many times the whole, percent.
const GAIN_MAX: u64 = 800;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Burst {
    /// Reports until then are of it.
    until: Instant,
    bits_ns: u128,
    took: Duration,
    fastest_bps: u64,
    /// Its packets overtake each other, and the farthest one has come so fast.
    farthest_bps: u64,
}

impl Burst {
    /// Its first part has come.
    pub(super) fn new(until: Instant, sample: &Sample) -> Self {
        Self { until, ..Self::default() }.and(sample)
    }

    fn and(self, sample: &Sample) -> Self {
        Self {
            until: self.until,
            bits_ns: self.bits_ns + u128::from(sample.rate_bps) * sample.took.as_nanos(),
            took: self.took + sample.took,
            fastest_bps: self.fastest_bps.max(sample.most_bps),
            farthest_bps: if sample.is_overtaken {
                self.farthest_bps.max(sample.rate_bps)
            } else {
                self.farthest_bps
            },
        }
    }

    /// More of it may come.
    pub(super) fn lasts(&self, now: Instant) -> bool {
        now < self.until
    }

    /// Bits per second of all of it.
    fn whole_bps(&self) -> u64 {
        if self.farthest_bps > 0 {
            return self.farthest_bps;
        }
        u64::try_from(self.bits_ns / self.took.as_nanos().max(1)).unwrap_or(u64::MAX)
    }
}

impl RateEstimate {
    /// The sample is of the first burst, whose beginning has shown a rate.
    pub(super) fn burst_goes_on(&mut self, now: Instant, sample: &Sample) -> bool {
        if !self.burst.lasts(now) || !sample.is_burst {
            return false;
        }
        self.burst = self.burst.and(sample);
        let whole_bps = self.at_most(self.burst.whole_bps());
        self.found(now, whole_bps);
        let gain = self.burst.fastest_bps.saturating_mul(100) / whole_bps.max(1);
        let gain = u32::try_from(gain.min(GAIN_MAX)).unwrap_or(PROBE_GAIN);
        if gain > PROBE_GAIN {
            self.probe_gain = gain;
            self.probe_until = self.probe_until.map(|until| until.min(now + PROBE_MAX));
        }
        true
    }
}
