//! What the first burst shows where delay jitters.
//!
//! A link draws a burst apart evenly. One that jitters, or sends in frames, holds some packets and
//! lets them go together. So where the parts of a burst came at different rates, its whole is the
//! least that the link carries, and its fastest part the most. Then the next probe goes up to that,
//! for as long as a frame may last. Where all of the burst came within a time by which delay may
//! vary, the next round trip is as fast as a controller begins that knows nothing.

use farlink_wire::time::{Duration, Instant};

use super::peer::{Sample, rate_of};
use super::{PROBE_GAIN, RateEstimate, Report};

/// A probe above the whole takes no longer: what it adds is not to fill the queue before the link.
const PROBE_MAX: Duration = Duration::from_millis(40);
/// And is no faster than so many times the whole, percent.
const GAIN_MAX: u64 = 800;

/// A burst with uneven parts that took less than this part of a round trip (one over it) may have
/// been held by chance all of that time: its whole says little. Then more is tried for a round
/// trip.
const SHORT_PARTS: u32 = 4;
/// A train without dispersion has so many bytes at least: eleven packets.
const AT_ONCE_BYTES: u64 = 16_000;
/// What came at once may have taken so long, if nothing else is known, or a sixteenth of a round
/// trip where that is shorter.
const VARIES_MAX: Duration = Duration::from_millis(25);
/// As fast as other controllers begin, percent (2 / ln 2), and less where its parts differ by less.
const GAIN_MAX_SHORT: u64 = 289;

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
    /// All of it came within a time by which delay may vary.
    came_at_once: bool,
}

impl Burst {
    /// Its first part has come.
    pub(super) fn new(until: Instant, sample: &Sample) -> Self {
        Self { until, ..Self::default() }.and(sample)
    }

    fn and(self, sample: &Sample) -> Self {
        Self {
            until: self.until,
            came_at_once: false,
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

    /// What a search sends, percent of what the link has carried: as slow start does, or as fast as
    /// other controllers begin, where nothing is known but the least that it carries.
    pub(super) fn search_gain(&self) -> u64 {
        if self.came_at_once { GAIN_MAX_SHORT } else { 200 }
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

    /// A report of the last packet of a train. Where the train has no dispersion, the time by which
    /// delay may vary is the longest that the link can have taken for it.
    pub(super) fn hear_of_burst(&mut self, now: Instant, report: &Report, sent_at: Instant) {
        let is_sought = !self.is_declared && (self.rate_bps.is_none() || self.searching);
        if !is_sought || report.of_host || report.sent_again {
            return;
        }
        let varies = self.may_vary();
        let moment = varies / 4;
        let (_, place, missing) = report.place;
        let left_since = |then: Instant| self.sent.since(then, now, self.sent.total_bytes());
        let before = left_since(sent_at - moment).unwrap_or(0);
        let together = before.saturating_sub(left_since(sent_at + moment).unwrap_or(before));
        let bytes = together.min(u64::from(place.saturating_sub(missing)));
        if bytes < AT_ONCE_BYTES {
            return;
        }
        let peer = self.peers.iter().find(|peer| peer.id == report.peer);
        let waited = peer.map_or(Duration::ZERO, |peer| peer.waited(report.arrived_us, sent_at));
        let least_bps = self.at_most(rate_of(bytes, waited + varies));
        if self.rate_bps.is_none_or(|rate| rate < least_bps) {
            (self.rate_bps, self.searching, self.burst.came_at_once) = (Some(least_bps), true, true);
            (self.told_at, self.confirmed_at) = (now, now);
        }
    }

    /// By so much the delay may vary, if nothing is known of it.
    fn may_vary(&self) -> Duration {
        (self.round() / 16).min(VARIES_MAX)
    }

    /// A part of what came before came at once, and this took no longer than delay may vary by.
    pub(super) fn may_be_chance(&self, sample: &Sample) -> bool {
        self.burst.came_at_once && sample.took < self.may_vary()
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
        let gain =
            if is_short { (gain * gain / GAIN_MAX_SHORT).min(GAIN_MAX_SHORT) } else { gain.min(GAIN_MAX) };
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
            counted_bps: Some(rate_bps),
            saturated: true,
            is_burst: true,
            is_overtaken: false,
            most_bps: rate_bps,
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

    /// Reports of a link that carries 20 Mbit/s in frames of 20 ms, of a burst of 46,208 bytes.
    #[test]
    fn what_comes_at_once_is_the_least_that_the_link_carries() {
        let (at, ms) = (Instant::from_millis, Duration::from_millis);
        let mut estimate = RateEstimate::default();
        estimate.begin(at(900), 0, 0);
        estimate.note_sent(at(995), 76, 0);
        estimate.note_sent(at(1_000), 48_076, 0);
        let mut tell = |came_ms: u64, received_bytes, place| {
            let report = Report {
                peer: 1,
                arrived_us: came_ms as u32 * 1_000,
                received_bytes,
                sent_at: Some(at(1_000)),
                sent_again: false,
                place: (7, place, 0),
                min_rtt: Some(ms(500)),
                of_host: false,
                waited_back: Duration::ZERO,
                back_is_slow: false,
            };
            estimate.on_report(at(came_ms + 250), &report, None);
            (estimate.rate_bps(), estimate.is_known(), estimate.sending_bps())
        };
        // 23,104 bytes in 25 ms at most, and so fast a search goes on.
        let (least, is_known, sent) = tell(1_260, 24_000, 23_104);
        assert_eq!((least, is_known), (Some(7_393_280), false));
        assert!(sent.unwrap() * 100 / least.unwrap() >= 288, "{sent:?}");
        // What the next frame brings shows no dispersion of the link's either.
        let (rate, is_known, _) = tell(1_280, 48_000, 46_208);
        assert!(!is_known && rate < Some(9_000_000), "{rate:?}");
    }
}
