//! What the first burst shows where delay jitters.
//!
//! A link draws a burst apart evenly. One that jitters, or sends in frames, holds some packets and
//! lets them go together. So where the parts of a burst came at different rates, its whole is the
//! least that the link carries, and its fastest part the most. Then the next probe goes up to that,
//! for as long as a frame may last. Where all of the burst came within a time by which delay may
//! vary, the next round trip is as fast as a controller begins that knows nothing.

use farlink_wire::time::{Duration, Instant};

use super::peer::Sample;
use super::{PROBE_GAIN, RateEstimate};

/// A probe above the whole takes no longer: what it adds is not to fill the queue before the link.
const PROBE_MAX: Duration = Duration::from_millis(40);
/// And is no faster than so many times the whole, percent.
const GAIN_MAX: u64 = 800;

/// A burst with uneven parts that took less than this part of a round trip (one over it) may have
/// been held by chance all of that time: its whole says little. Then more is tried for a round
/// trip.
const SHORT_PARTS: u32 = 4;
/// As fast as other controllers begin, percent (2 / ln 2), and less where its parts differ by less.
pub(super) const STARTUP_GAIN: u64 = 289;

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
    /// The link was full for the first time. More of what has shown that may come.
    pub(super) fn found_by_burst(&mut self, now: Instant, rate_bps: u64, sample: &Sample) {
        self.found(now, rate_bps);
        self.burst = Burst::new(now + self.round() / 2, &sample.with_rate(rate_bps));
    }

    /// The sample is of the first burst, whose beginning has shown a rate.
    pub(super) fn burst_goes_on(&mut self, now: Instant, sample: &Sample) -> bool {
        if !self.burst.lasts(now) || !sample.is_burst {
            return false;
        }
        self.burst = self.burst.and(sample);
        let whole_bps = self.at_most(self.burst.whole_bps());
        self.found(now, whole_bps);
        let gain = self.burst.fastest_bps.saturating_mul(100) / whole_bps.max(1);
        let is_short = self.burst.took < self.round() / SHORT_PARTS;
        let gain = if is_short { (gain * gain / STARTUP_GAIN).min(STARTUP_GAIN) } else { gain.min(GAIN_MAX) };
        let gain = u32::try_from(gain).unwrap_or(PROBE_GAIN);
        if gain > PROBE_GAIN && is_short {
            self.probe_gain = gain;
            self.probe_until = Some(now + self.round());
        } else if gain > PROBE_GAIN {
            self.probe_gain = gain;
            self.probe_until = self.probe_until.map(|until| until.min(now + PROBE_MAX));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(rate_bps: u64, took_ms: u64) -> Sample {
        Sample {
            rate_bps,
            surely_bps: rate_bps,
            counted_bps: Some(rate_bps),
            saturated: true,
            is_burst: true,
            is_overtaken: false,
            most_bps: rate_bps,
            left: None,
            waited: Duration::ZERO,
            spread: Duration::ZERO,
            sent_at: Instant::from_millis(1_000),
            bytes: 6_000,
            took: Duration::from_millis(took_ms),
            by: 1,
            beside: false,
        }
    }

    /// What is sent after a search has found these two parts of a burst, over the whole, percent,
    /// and for how long.
    fn probe(first: Sample, second: Sample) -> (u64, Duration) {
        let mut estimate = RateEstimate { rtt: Some(Duration::from_millis(500)), ..Default::default() };
        (estimate.rate_bps, estimate.searching) = (Some(400_000), true);
        let now = Instant::from_millis(1_600);
        estimate.learn(now, &first, None);
        estimate.learn(now, &second, None);
        let lasts = estimate.probe_until.unwrap().since(now);
        (estimate.sending_bps().unwrap() * 100 / estimate.rate_bps.unwrap(), lasts)
    }

    #[test]
    fn a_short_burst_with_uneven_parts_says_little_of_the_rate() {
        let ms = Duration::from_millis;
        assert_eq!(probe(part(3_200_000, 37), part(125_000_000, 5)), (289, ms(500)));
        let (faster, lasts) = probe(part(60_000_000, 4), part(150_000_000, 2));
        assert!((105..=125).contains(&faster) && lasts < ms(500), "{faster} % for {lasts:?}");
        let (faster, lasts) = probe(part(320_000, 370), part(12_500_000, 50));
        assert!(faster > 600 && lasts == ms(40), "a long one: {faster} % for {lasts:?}");
        assert_eq!(probe(part(8_000_000, 40), part(8_000_000, 5)), (125, ms(500) / 8 * 3), "an even one");
    }
}
