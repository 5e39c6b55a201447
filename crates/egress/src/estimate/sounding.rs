//! What a link carries whose delay varies for longer than its first burst lasts.
//!
//! Such a burst comes in clumps, and its whole is the least that the link carries. So a train
//! follows, up to eight times as fast, that takes twice as long as delay has been seen to vary.
//! Behind it goes what is known. The link is full where bytes wait for longer than delay varies,
//! and what has been carried by then is its rate. Where the train comes as it left, another
//! follows.

use farlink_wire::time::{Duration, Instant};

use super::burst::STARTUP_GAIN;
use super::peer::{Peer, Sample, rate_of};
use super::spread::Spread;
use super::{RateEstimate, Report};

/// The fastest part of a burst in clumps came faster than its whole by this, percent.
const UNEVEN_PERCENT: u64 = 150;
/// A burst without dispersion has so many bytes at least: eleven packets.
const AT_ONCE_BYTES: u64 = 16_000;
/// What came at once may have taken so long, if nothing else is known, or a sixteenth of a round
/// trip where that is shorter.
const AT_ONCE_MAX: Duration = Duration::from_millis(25);
/// How much faster a train is than what is known, percent: at most after a burst in clumps, and
/// after one that came at once.
const GAIN_CLUMPS: u64 = 800;
const GAIN_AT_ONCE: u64 = 600;
/// A train takes twice as long as delay varies, and so long at least.
const TRAIN_MIN: Duration = Duration::from_millis(40);
/// What takes longer by this part (one over it), beside what delay varies by, is carried more
/// slowly than it left.
const SLOWER_PARTS: u32 = 7;
/// A burst leaves within this part of a round trip (one over it).
const BURST_PARTS: u32 = 128;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sounding {
    /// The first burst left before this, and reports of it may come until then.
    burst_sent_at: Instant,
    burst_until: Instant,
    varies: Duration,
    gain: u64,
    /// The train leaves from one to the other.
    from: Instant,
    until: Instant,
    leaves: bool,
    /// What it has shown so far, bits per second.
    best_bps: u64,
}

/// What a burst has shown that says little.
struct Unclear {
    least_bps: u64,
    varies: Duration,
    gain: u64,
}

impl Sounding {
    /// Percent of what is known that is to be sent now.
    pub(super) fn gain(&self) -> u64 {
        if self.leaves { self.gain } else { 100 }
    }

    /// When the train has left.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.leaves.then_some(self.until)
    }

    /// What comes within less shows nothing.
    pub(super) fn chance(&self) -> Duration {
        self.varies
    }
}

impl RateEstimate {
    /// A report of a packet that left then. It may be of the first burst.
    pub(super) fn hear_of_burst(&mut self, now: Instant, report: &Report, sent_at: Instant) {
        let goes_on = match &self.sounding {
            Some(s) => sent_at < s.from && now < s.burst_until.min(s.until),
            None => self.rate_bps.is_none() || self.searching || self.burst.lasts(now),
        };
        if self.is_declared || !goes_on || report.of_host || report.sent_again {
            return;
        }
        let Some(peer) = self.peers.iter().find(|peer| peer.id == report.peer) else { return };
        let unclear = self.in_clumps(peer).or_else(|| self.at_once(peer, report, (now, sent_at)));
        let Some(Unclear { least_bps, varies, gain }) = unclear else { return };
        let least_bps = self.at_most(least_bps);
        let is_first = self.sounding.is_none() && self.burst.lasts(now);
        if !is_first && self.rate_bps.is_some_and(|rate| rate >= least_bps) {
            return;
        }
        let burst_until = self.sounding.map_or(now + self.round() / 2, |s| s.burst_until);
        let burst = (sent_at + self.round() / BURST_PARTS, burst_until);
        (self.rate_bps, self.searching, self.told_at, self.confirmed_at) = (Some(least_bps), true, now, now);
        self.send_train(now, burst, (varies, gain));
    }

    fn send_train(
        &mut self,
        now: Instant,
        (burst_sent_at, burst_until): (Instant, Instant),
        (varies, gain): (Duration, u64),
    ) {
        let until = now + (varies * 2).max(TRAIN_MIN);
        let train = Sounding {
            burst_sent_at,
            burst_until,
            varies,
            gain,
            from: now,
            until,
            leaves: true,
            best_bps: 0,
        };
        (self.sounding, self.probe_until) = (Some(train), None);
    }

    /// The burst has come in clumps, within a time by which delay may vary.
    fn in_clumps(&self, peer: &Peer) -> Option<Unclear> {
        let parts = peer.train().parts()?;
        let least_bps = rate_of(u64::from(parts.bytes), parts.took);
        let faster = parts.fastest_bps.saturating_mul(100) / least_bps.max(1);
        let is_short = parts.took < Spread::most(self.round());
        let is_unclear = is_short
            && faster.min(parts.uneven_percent) >= UNEVEN_PERCENT
            && u64::from(parts.bytes) >= AT_ONCE_BYTES;
        let gain = faster.min(parts.uneven_percent.saturating_mul(3)).min(GAIN_CLUMPS);
        is_unclear.then_some(Unclear { least_bps, varies: parts.took, gain })
    }

    /// The burst has no dispersion: the time by which delay may vary is the longest that the link
    /// can have taken for it.
    fn at_once(&self, peer: &Peer, report: &Report, (now, sent_at): (Instant, Instant)) -> Option<Unclear> {
        let varies = (self.round() / 16).min(AT_ONCE_MAX);
        let moment = varies / 4;
        let (_, place, missing) = report.place;
        let left_since = |then: Instant| self.sent.since(then, now, self.sent.total_bytes());
        let before = left_since(sent_at - moment).unwrap_or(0);
        let together = before.saturating_sub(left_since(sent_at + moment).unwrap_or(before));
        let bytes = together.min(u64::from(place.saturating_sub(missing)));
        let least_bps = rate_of(bytes, peer.waited(report.arrived_us, sent_at) + varies);
        let is_unclear = missing == 0
            && peer.train().has_just_begun()
            && bytes >= AT_ONCE_BYTES
            && self.rate_bps.is_none_or(|rate| rate < least_bps);
        // A frame may be twice as long as that, and ends anywhere.
        is_unclear.then_some(Unclear { least_bps, varies: varies * 2, gain: GAIN_AT_ONCE })
    }

    /// Time has come.
    pub(super) fn end_train(&mut self, now: Instant) {
        if let Some(train) = self.sounding.as_mut().filter(|train| train.until <= now) {
            train.leaves = false;
        }
    }

    /// A sample came. Returns whether it was for a train to say what it shows.
    pub(super) fn sound(&mut self, now: Instant, sample: &Sample) -> bool {
        let Some(mut train) = self.sounding else { return false };
        self.told_at = now;
        if sample.sent_at < train.from {
            return true;
        }
        let total = |at: Instant| self.sent.total_by(at, now).unwrap_or(0);
        let sent_bytes = |until: Instant| total(until).saturating_sub(total(train.from));
        let waited = sample.waited + sample.spread;
        let lasted = sample.sent_at.since(train.from);
        let surely_bps = rate_of(u64::from(sample.bytes), sample.took + train.varies / 2);
        let arrived_bytes = sample.arrived_of(sent_bytes(sample.sent_at));
        let so_far_bps = if lasted >= train.varies { rate_of(arrived_bytes, lasted + waited) } else { 0 };
        train.best_bps = train.best_bps.max(surely_bps).max(so_far_bps);
        self.sounding = Some(train);
        let is_full = waited > train.varies + lasted / SLOWER_PARTS || sample.lost_many();
        if is_full && sample.begins_at() > train.burst_sent_at {
            self.found(now, self.at_most(train.best_bps));
            self.peers.iter_mut().for_each(|peer| peer.spread.seed(now, train.varies));
        } else if sample.sent_at >= train.until {
            let lasted = train.until.since(train.from);
            // What stood when the train had left may have gone since.
            let waited_most =
                (waited + sample.sent_at.since(train.until)).min(train.varies + lasted / SLOWER_PARTS);
            let most_time = lasted + waited_most;
            self.pass(now, &train, rate_of(sent_bytes(train.until), most_time));
        }
        true
    }

    /// All of a train has come as fast as it left, at this rate.
    fn pass(&mut self, now: Instant, train: &Sounding, carried_bps: u64) {
        let known = self.rate_bps.unwrap_or(0);
        self.rate_bps = Some(self.at_most(carried_bps.max(train.best_bps).max(known)));
        (self.sounding, self.confirmed_at) = (None, now);
        // Where nobody had so much to send, the search goes on.
        let was_sent = carried_bps > known / 200 * train.gain;
        if was_sent {
            self.send_train(now, (train.burst_sent_at, train.burst_until), (train.varies, STARTUP_GAIN));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(500);

    /// A burst of 46,208 bytes left at 1 s. Each report: when it was made, milliseconds and a part
    /// of the next, the bytes that had come, and the place of the newest that was covered.
    fn hear(estimate: &mut RateEstimate, sent_ms: u64, came_us: u32, received_bytes: u32, place: u32) {
        let report = Report {
            peer: 1,
            arrived_us: came_us,
            received_bytes,
            sent_at: Some(Instant::from_millis(sent_ms)),
            sent_again: false,
            place: (7, place, 0),
            min_rtt: Some(RTT),
            of_host: false,
            waited_back: Duration::ZERO,
            back_is_slow: false,
        };
        let now = Instant::from_millis(u64::from(came_us) / 1_000 + 250);
        estimate.on_report(now, &report, None);
    }

    fn with_burst() -> RateEstimate {
        let mut estimate = RateEstimate::default();
        estimate.begin(Instant::from_millis(900), 0, 0);
        estimate.note_sent(Instant::from_millis(995), 76, 0);
        estimate.note_sent(Instant::from_millis(1_000), 48_076, 0);
        estimate
    }

    /// 100 Mbit/s, and delay varies by 40 ms.
    fn in_clumps() -> RateEstimate {
        let mut estimate = with_burst();
        for (came_us, bytes, place) in [
            (1_267_000, 1_576, 1_444),
            (1_279_000, 3_076, 5_776),
            (1_279_000, 6_076, 5_776),
            (1_291_000, 7_576, 46_208),
            (1_291_000, 48_076, 46_208),
        ] {
            hear(&mut estimate, 1_000, came_us, bytes, place);
        }
        estimate
    }

    #[test]
    fn a_burst_in_clumps_is_followed_by_a_train() {
        let mut estimate = in_clumps();
        let (least_bps, sent_bps) = (estimate.rate_bps().unwrap(), estimate.sending_bps().unwrap());
        assert_eq!(least_bps, 46_500 * 8 / 24 * 1_000, "the least that it carries");
        assert!(!estimate.is_known() && sent_bps == 8 * least_bps, "{sent_bps}");
        let ends_at = estimate.poll_timeout().unwrap();
        assert_eq!(ends_at, Instant::from_millis(1_541 + 48), "twice as long as delay varies");
        estimate.handle_timeout(ends_at);
        assert_eq!(estimate.sending_bps(), Some(least_bps), "and then what is known");
    }

    /// What is left behind the burst, and what of that the link carries, bits per second.
    fn train(carries_bps: u64) -> RateEstimate {
        let mut estimate = in_clumps();
        let mut total = 48_076;
        for ms in 1_541..2_000 {
            total += estimate.sending_bps().unwrap() / 8_000;
            estimate.note_sent(Instant::from_millis(ms), total, 0);
            estimate.handle_timeout(Instant::from_millis(ms));
        }
        let train_bytes = |ms: u64| 15_500_u64 * ms.min(48) + 1_937 * ms.saturating_sub(48);
        for ms in (20..200).step_by(20) {
            // It is carried at that rate, and comes 39 ms later than without jitter.
            let took_ms = (train_bytes(ms) * 8_000 / carries_bps).max(ms);
            let came_us = 1_541_000 + 290_000 + u32::try_from(took_ms).unwrap() * 1_000;
            let bytes = u32::try_from(train_bytes(ms)).unwrap();
            hear(&mut estimate, 1_541 + ms, came_us, 48_076 + bytes, 46_208 + bytes);
        }
        estimate
    }

    #[test]
    fn a_train_that_waits_shows_the_rate() {
        let rate_bps = train(60_000_000).rate_bps().unwrap();
        assert!((45_000_000..=75_000_000).contains(&rate_bps), "{rate_bps}");
        let rate_bps = train(20_000_000).rate_bps().unwrap();
        assert!((15_500_000..=26_000_000).contains(&rate_bps), "{rate_bps}");
    }

    #[test]
    fn a_train_that_comes_as_it_left_is_followed_by_a_faster_one() {
        let estimate = train(1_000_000_000);
        assert!(!estimate.is_known() && estimate.rate_bps() > Some(60_000_000), "{:?}", estimate.rate_bps());
    }

    #[test]
    fn an_even_burst_needs_no_train() {
        let mut estimate = with_burst();
        for n in 0..5_u32 {
            hear(&mut estimate, 1_000, 1_260_000 + 8_000 * n, 76 + 12_000 * n, 1 + 11_552 * n);
        }
        assert!(estimate.is_known() && estimate.sounding.is_none());
        assert_eq!(estimate.rate_bps(), Some(12_000_000));
    }

    /// 20 Mbit/s in frames of 20 ms.
    #[test]
    fn what_comes_at_once_is_the_least_that_the_link_carries() {
        let mut estimate = with_burst();
        hear(&mut estimate, 1_000, 1_260_000, 24_000, 23_104);
        // 23,104 bytes in 25 ms at most.
        assert_eq!((estimate.rate_bps(), estimate.is_known()), (Some(7_393_280), false));
        hear(&mut estimate, 1_000, 1_280_000, 25_500, 46_208);
        hear(&mut estimate, 1_000, 1_280_000, 48_000, 46_208);
        // The next frame brings as much, and shows how long one may take.
        assert_eq!((estimate.rate_bps(), estimate.is_known()), (Some(9_600_000), false));
    }
}
