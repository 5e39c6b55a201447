//! Whether the way back over a link is full of acknowledgements, found out by a gateway alone.
//!
//! Acknowledgements that stand in line leave one after the other: they come evenly, in the time
//! that a packet of their size takes, and the round trip is longer by the line. Data that stands in
//! line the other way looks the same where its receiver acknowledges every second segment: then
//! twice the time of a full packet lies between them. What tells the two apart is a trial. Segments
//! larger than a packet are acknowledged once each. Where the way back was full, more is delivered
//! then, and where it was not, nothing changes. So it is
//!
//! - *suspected* for a while: segments become larger, and nothing else goes by it;
//! - *found*, when more has been delivered with fewer acknowledgements;
//! - *refuted*, when that has not happened, or when data waits although few acknowledgements come:
//!   then it is not suspected again for a time.

use arrayvec::ArrayVec;
use farlink_wire::{Duration, Instant};

use super::dated::Dated;

/// Acknowledgements that are looked at together, and for how long at most: others come too seldom
/// to be in line.
const LOOK_ACKS: usize = 24;
const LOOK_MAX: Duration = Duration::from_secs(3);
/// So many of a hundred are no further from the usual time than a part of it (one over it).
const EVEN_PERCENT: usize = 75;
const EVEN_PARTS: u64 = 5;
/// So many stand in line, and the line is no shorter than this: otherwise it is jitter.
const LINE_ACKS: u64 = 2;
const LINE_MIN: Duration = Duration::from_millis(10);
/// More than this percentage of what was delivered before is more.
const MORE_PERCENT: u128 = 130;
/// Acknowledgements of every second segment stand for no more than this, a segment having 1,460
/// bytes and a tolerance of a fifth.
const THINNED_BYTES: u64 = 3_500;
/// So many that stand for more show that others have been dropped.
const THINNED_ACKS: usize = 2;
/// A link that delivers less than this percentage of its rate may be the worse for them.
const SUFFERS_PERCENT: u128 = 70;
/// A trial takes so long, and so many round trips.
const TRIAL: Duration = Duration::from_secs(4);
const TRIAL_RTTS: u32 = 8;
/// What has been found counts for so long without being seen again; what has been refuted, too.
const LASTS: Duration = Duration::from_secs(600);
/// Few come: less than this percentage of what would fill the way back.
const FEW_PERCENT: u128 = 70;
/// A line in spite of that, in so many looks one after the other, refutes what was found.
const LINES_MAX: u8 = 3;
/// A look at what has been found.
const WATCH: Duration = Duration::from_secs(1);

/// A pure acknowledgement of a host, as the link brought it.
#[derive(Clone, Copy, Debug)]
pub struct Came {
    /// When.
    pub at: Instant,
    /// Bytes of all TCP packets that have come in by the link since the one before, this one
    /// included, with what the link adds to each.
    pub bytes: u64,
    /// Bytes that it is the first to acknowledge.
    pub delivered_bytes: u64,
    /// The round trip that it shows, and the smallest of the link.
    pub rtts: Option<(Duration, Duration)>,
    /// What the link is said to take, bits per second; 0: nobody knows.
    pub rate_bps: u64,
    /// Something was found to be lost.
    pub lost: bool,
}

impl Came {
    /// How long it has waited in the line. What it acknowledges has taken its time into the link
    /// before: a segment of many packets much more than those of which the smallest round trip is.
    fn line(&self) -> Option<Duration> {
        let of_data = u128::from(self.delivered_bytes) * 8_000_000_000 / u128::from(self.rate_bps.max(1));
        let of_data = Duration::from_nanos(u64::try_from(of_data).unwrap_or(u64::MAX));
        let of_data = if self.rate_bps == 0 { Duration::ZERO } else { of_data };
        self.rtts.map(|(rtt, least)| rtt.saturating_sub(least).saturating_sub(of_data))
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Nothing is known.
    #[default]
    Unknown,
    /// It may be full.
    Suspected { before: Look, until: Instant },
    /// It was full, and would be with usual segments.
    Found { bps: u64, at: Instant },
    /// It was not.
    Refuted { until: Instant },
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Recogniser {
    state: State,
    /// What has been found last, and nothing has refuted.
    last: Option<Dated>,
    /// It is of an earlier run, and no acknowledgement has come since.
    is_guess: bool,
    acks: ArrayVec<Came, LOOK_ACKS>,
    watch: Watch,
    lines: u8,
}

/// What came in a span of time.
#[derive(Clone, Copy, Debug, Default)]
struct Watch {
    since: Option<Instant>,
    bytes: u64,
    delivered_bytes: u64,
    /// The shortest line of any packet.
    line: Option<Duration>,
}

impl Recogniser {
    /// The rate of the way back as far as the size of segments goes by it, bits per second.
    #[must_use]
    pub fn suspected_bps(&self) -> Option<u64> {
        match self.state {
            State::Suspected { before: Look { bps, .. }, .. } | State::Found { bps, .. } => Some(bps),
            State::Unknown | State::Refuted { .. } => None,
        }
    }

    /// The rate of the way back, bits per second, and when that was seen last.
    #[must_use]
    pub fn found(&self) -> Option<(u64, Instant)> {
        if let State::Found { bps, at } = self.state { Some((bps, at)) } else { None }
    }

    /// What has been found last, whether it counts still or not.
    #[must_use]
    pub fn last(&self) -> Option<Dated> {
        self.last
    }

    /// This was found once. With the first acknowledgement it counts, and has to be seen again as
    /// whatever is found.
    pub fn recall(&mut self, once: Dated) {
        if self.state == State::Unknown && self.last.is_none() {
            (self.last, self.is_guess) = (Some(once), true);
        }
    }

    /// One has come.
    pub fn note(&mut self, came: Came) {
        let now = came.at;
        if core::mem::take(&mut self.is_guess)
            && let Some(Dated { bps, .. }) = self.last
        {
            self.state = State::Found { bps, at: now };
        }
        let before = self.state;
        self.follow(came);
        match self.state {
            State::Found { bps, at } if self.state != before => self.last = Some(Dated::seen(bps, at)),
            State::Refuted { .. } => self.last = None,
            _ => {}
        }
    }

    fn follow(&mut self, came: Came) {
        let now = came.at;
        match self.state {
            State::Unknown => {
                if let Some(before) = self.look(came) {
                    let until = now + TRIAL + before.rtt.saturating_mul(TRIAL_RTTS);
                    self.state = State::Suspected { before, until };
                    self.watch = Watch::default();
                }
            }
            State::Suspected { before, until } => {
                if self.watch(came).is_some_and(|seen| before.is_relieved(&seen)) {
                    self.state = State::Found { bps: before.bps, at: now };
                    self.lines = 0;
                } else if now >= until || came.lost {
                    self.state = State::Refuted { until: now + LASTS };
                }
            }
            State::Found { bps, at } => self.verify(came, bps, at),
            State::Refuted { until } if now >= until => self.state = State::Unknown,
            State::Refuted { .. } => {}
        }
    }

    /// What has been found is disproved by what comes faster, and by data that waits although
    /// acknowledgements have room. It ends by itself.
    fn verify(&mut self, came: Came, bps: u64, at: Instant) {
        let Some(seen) = self.watch(came) else { return };
        let few = u128::from(seen.bps) * 100 < u128::from(bps) * FEW_PERCENT;
        let stands = seen.line.is_some_and(|line| line > line_of(bps));
        self.lines = if few && stands { self.lines + 1 } else { 0 };
        self.state = if self.lines >= LINES_MAX {
            State::Refuted { until: came.at + LASTS }
        } else if seen.bps > bps {
            State::Found { bps: seen.bps, at: came.at }
        } else if came.at.since(at) >= LASTS {
            State::Unknown
        } else {
            self.state
        };
    }

    /// Whether they have come as those do that stand in line.
    fn look(&mut self, came: Came) -> Option<Look> {
        let began = self.acks.first().map_or(came.at, |first| first.at);
        if came.lost || came.at.since(began) > LOOK_MAX {
            self.acks.clear();
        }
        if !self.acks.is_full() {
            self.acks.push(came);
        }
        if !self.acks.is_full() {
            return None;
        }
        let looked = Look::at(&self.acks);
        self.acks.clear();
        looked
    }

    fn watch(&mut self, came: Came) -> Option<Seen> {
        let watch = &mut self.watch;
        let Some(since) = watch.since else {
            *watch = Watch { since: Some(came.at), ..Watch::default() };
            return None;
        };
        watch.bytes += came.bytes;
        watch.delivered_bytes += came.delivered_bytes;
        let line = came.line();
        watch.line = watch.line.into_iter().chain(line).min();
        let time = came.at.since(since);
        if time < WATCH {
            return None;
        }
        let seen = Seen {
            bps: rate(watch.bytes, time),
            delivered_bps: rate(watch.delivered_bytes, time),
            line: watch.line,
        };
        *watch = Watch { since: Some(came.at), ..Watch::default() };
        Some(seen)
    }
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    bps: u64,
    delivered_bps: u64,
    line: Option<Duration>,
}

/// Acknowledgements that came as those do that stand in line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Look {
    /// Bits per second of them, and of what they acknowledge.
    bps: u64,
    delivered_bps: u64,
    /// Some stand for several, which have been dropped from the line.
    is_thinned: bool,
    rtt: Duration,
}

impl Look {
    /// `None`: they do not come evenly, each in the time of its size, or none has waited.
    fn at(acks: &[Came]) -> Option<Self> {
        let (first, last) = (acks.first()?, acks.last()?);
        let later = acks.iter().skip(1);
        // Nanoseconds for each kilobyte, so that larger ones may take longer.
        let pace =
            |(one, next): (&Came, &Came)| next.at.since(one.at).as_nanos() as u64 * 1_000 / next.bytes.max(1);
        let mut paces: ArrayVec<u64, LOOK_ACKS> = acks.iter().zip(later.clone()).map(pace).collect();
        paces.sort_unstable();
        let usual = *paces.get(paces.len() / 2)?;
        // Those that come together after a pause do not come evenly, however many they are.
        let mean = paces.iter().sum::<u64>() / paces.len().max(1) as u64;
        let is_mean = usual > 0 && mean.abs_diff(usual) <= usual / EVEN_PARTS;
        let even = paces.iter().filter(|pace| pace.abs_diff(usual) <= usual / EVEN_PARTS).count();
        let time = last.at.since(first.at);
        let bytes = later.clone().map(|came| came.bytes).sum();
        let bps = rate(bytes, time);
        let shown = || acks.iter().filter_map(|came| came.rtts);
        // The first of them may have found nobody there.
        let mut lines: ArrayVec<Duration, LOOK_ACKS> =
            shown().map(|(rtt, least)| rtt.saturating_sub(least)).collect();
        lines.sort_unstable();
        let line = *lines.get(lines.len() / 2)?;
        let rtt = shown().map(|(rtt, _)| rtt).max()?;
        let delivered_bps = rate(later.map(|came| came.delivered_bytes).sum(), time);
        let is_thinned =
            acks.iter().filter(|came| came.delivered_bytes > THINNED_BYTES).count() >= THINNED_ACKS;
        // Where as much is delivered as the link takes there is nothing to be tried.
        let most_bps = u128::from(last.rate_bps) * SUFFERS_PERCENT;
        let suffers = is_thinned || u128::from(delivered_bps) * 100 < most_bps;
        let is_full = suffers && is_mean && even * 100 >= paces.len() * EVEN_PERCENT && line >= line_of(bps);
        is_full.then_some(Self { bps, delivered_bps, is_thinned, rtt })
    }

    /// Larger segments have helped: more is delivered, or as much, where acknowledgements were
    /// dropped before, and now few come and none waits.
    fn is_relieved(&self, seen: &Seen) -> bool {
        let of_before = u128::from(seen.delivered_bps) * 100 / u128::from(self.delivered_bps.max(1));
        let come = u128::from(seen.bps) * 100 / u128::from(self.bps.max(1));
        let is_short = seen.line.is_some_and(|line| line < line_of(self.bps));
        let helps_thinned = self.is_thinned && of_before >= 90 && come < FEW_PERCENT && is_short;
        come <= 105 && of_before > MORE_PERCENT || helps_thinned
    }
}

/// How long a packet waits at least where some acknowledgements stand before it.
fn line_of(bps: u64) -> Duration {
    const ACK_BITS: u64 = 52 * 8;
    Duration::from_nanos(LINE_ACKS * ACK_BITS * 1_000_000_000 / bps.max(1)).max(LINE_MIN)
}

fn rate(bytes: u64, time: Duration) -> u64 {
    u64::try_from(u128::from(bytes) * 8_000_000_000 / time.as_nanos().max(1)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET_BITS: u64 = 1_500 * 8;
    const PAYLOAD_BYTES: u64 = 1_448;
    const QUEUE_ACKS: u64 = 50;

    /// A path on which data arrives at its host without a pause.
    #[derive(Clone, Copy)]
    struct Path {
        /// What data arrives at, and what the way back takes, bits per second; 0: all.
        forward_bps: u64,
        back_bps: u64,
        rtt_ms: u64,
        /// Segments for each acknowledgement, before and while larger ones are tried.
        each: [u64; 2],
        /// The line before the forward link, milliseconds: what is sent is more than it takes.
        waits_ms: u64,
        /// Each acknowledgement comes later by up to this, in order.
        jitter_us: u64,
        /// Of ten bytes that come back so many are others'.
        others_tenths: u64,
    }

    const STILL: Path = Path {
        forward_bps: 8_000_000,
        back_bps: 0,
        rtt_ms: 40,
        each: [2, 9],
        waits_ms: 0,
        jitter_us: 0,
        others_tenths: 0,
    };

    /// What is recognised in so many seconds.
    fn recognise(path: Path, seconds: u64) -> Recogniser {
        let mut recogniser = Recogniser::default();
        let ns = |bits: u64, bps: u64| (bits * 1_000_000_000).checked_div(bps).unwrap_or(0);
        let (mut now, mut free, mut acked, mut got, mut last, mut noise) = (0u64, 0u64, 0, 0, 0, 1u64);
        let end = seconds * 1_000_000_000;
        while now < end {
            let each = path.each[usize::from(recogniser.suspected_bps().is_some())];
            now += each * ns(PACKET_BITS, path.forward_bps);
            got += each * PAYLOAD_BYTES;
            let others = 52 * path.others_tenths / 10;
            let takes = ns((52 + others) * 8, path.back_bps);
            if free > now + QUEUE_ACKS * takes {
                continue;
            }
            free = free.max(now) + takes;
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let late = if path.jitter_us == 0 { 0 } else { (noise >> 33) % (path.jitter_us * 1_000) };
            let rtt = (path.rtt_ms + path.waits_ms) * 1_000_000;
            let at = (free + rtt / 2 + late).max(last);
            last = at;
            let least = path.rtt_ms * 1_000_000 + ns(PACKET_BITS, path.forward_bps) + takes;
            let shown = at - now + rtt / 2;
            recogniser.note(Came {
                at: Instant::ZERO + Duration::from_nanos(at),
                bytes: 52 + others,
                delivered_bytes: got - acked,
                rate_bps: 8_000_000,
                rtts: Some((Duration::from_nanos(shown), Duration::from_nanos(least.min(shown)))),
                lost: false,
            });
            acked = got;
        }
        recogniser
    }

    #[test]
    fn a_full_way_back_is_found() {
        for back_bps in [32_000, 64_000, 128_000] {
            for rtt_ms in [0, 40, 500] {
                let path = Path { back_bps, rtt_ms, ..STILL };
                let found = recognise(path, 20).found().map(|(bps, _)| bps);
                let is_right = found.is_some_and(|bps| bps.abs_diff(back_bps) < back_bps / 10);
                assert!(is_right, "{back_bps} bit/s, {rtt_ms} ms: {found:?}");
                let jittered = Path { jitter_us: 300, ..path };
                assert!(recognise(jittered, 20).found().is_some(), "{back_bps} bit/s, jittered");
            }
        }
    }

    #[test]
    fn usual_acknowledgements_of_a_fast_way_back_are_none() {
        for each in [1, 2, 8, 40] {
            for rtt_ms in [0, 40, 500] {
                for jitter_us in [0, 5_000, 40_000] {
                    let path = Path { each: [each, 40], rtt_ms, jitter_us, ..STILL };
                    let recogniser = recognise(path, 30);
                    assert_eq!(recogniser.found(), None, "one for {each}, {rtt_ms} ms, {jitter_us} us");
                }
            }
        }
    }

    #[test]
    fn a_line_before_the_forward_link_is_tried_and_refuted() {
        let path = Path { forward_bps: 1_800_000, waits_ms: 300, ..STILL };
        let recogniser = recognise(path, 30);
        assert_eq!((recogniser.found(), recogniser.suspected_bps()), (None, None));
        assert!(matches!(recogniser.state, State::Refuted { .. }));
    }

    #[test]
    fn others_on_the_way_back_do_no_harm() {
        let path = Path { back_bps: 64_000, others_tenths: 5, ..STILL };
        let found = recognise(path, 20).found().map(|(bps, _)| bps);
        assert!(found.is_none_or(|bps| bps.abs_diff(64_000) < 6_400), "{found:?}");
    }

    #[test]
    fn what_was_found_is_given_up_when_data_waits_and_few_acknowledgements_come() {
        let mut recogniser = recognise(Path { back_bps: 32_000, ..STILL }, 20);
        assert!(recogniser.found().is_some());
        let rtts = Some((Duration::from_millis(400), Duration::from_millis(40)));
        for n in 0..100 {
            let at = Instant::from_millis(30_000 + n * 100);
            recogniser.note(Came {
                at,
                bytes: 52,
                delivered_bytes: 12_000,
                rtts,
                rate_bps: 8_000_000,
                lost: false,
            });
        }
        assert!(matches!(recogniser.state, State::Refuted { .. }), "{:?}", recogniser.state);
        // And what comes faster disproves it at once.
        let mut recogniser = recognise(Path { back_bps: 32_000, ..STILL }, 20);
        for n in 0..3_000 {
            let at = Instant::from_millis(30_000 + n);
            recogniser.note(Came {
                at,
                bytes: 52,
                delivered_bytes: 1_448,
                rtts: None,
                rate_bps: 8_000_000,
                lost: false,
            });
        }
        assert!(recogniser.found().is_some_and(|(bps, _)| bps > 300_000));
        // It ends by itself.
        let at = |s: u64| Instant::from_millis(s * 1_000);
        for s in [1_000, 1_002] {
            recogniser.note(Came {
                at: at(s),
                bytes: 52,
                delivered_bytes: 1_448,
                rtts: None,
                rate_bps: 8_000_000,
                lost: false,
            });
        }
        assert_eq!(recogniser.found(), None);
    }

    #[test]
    fn the_time_that_large_segments_take_is_no_line() {
        let mut recogniser = recognise(Path { back_bps: 32_000, ..STILL }, 20);
        // 26.6 ms of data, and the acknowledgement's own 13.
        let rtts = Some((Duration::from_micros(41_200), Duration::from_millis(14)));
        for n in 0..1_000 {
            let at = Instant::from_millis(30_000 + n * 27);
            let (bytes, delivered_bytes) = (52, 26_608);
            let came = Came { at, bytes, delivered_bytes, rtts, rate_bps: 8_000_000, lost: false };
            recogniser.note(came);
        }
        assert!(recogniser.found().is_some(), "{:?}", recogniser.state);
    }

    #[test]
    fn what_an_earlier_run_has_found_counts_from_the_first_acknowledgement_on() {
        let at = |s: u64| Instant::from_millis(s * 1_000);
        let came = |s: u64| Came {
            at: at(s),
            bytes: 52,
            delivered_bytes: 12_000,
            rtts: None,
            rate_bps: 8_000_000,
            lost: false,
        };
        let day_old = Dated::aged(32_000, at(0), Duration::from_secs(80_000));
        let mut recogniser = Recogniser::default();
        recogniser.recall(day_old);
        assert_eq!(recogniser.found(), None, "nobody has acknowledged anything");
        recogniser.note(came(100));
        assert_eq!(recogniser.found(), Some((32_000, at(100))));
        assert_eq!(recogniser.last(), Some(day_old), "it is no younger for that");
        for s in 101..701 {
            recogniser.note(came(s));
        }
        assert_eq!((recogniser.found(), recogniser.last()), (None, Some(day_old)));
        // What has been seen here is younger.
        let mut recogniser = recognise(Path { back_bps: 32_000, ..STILL }, 20);
        let last = recogniser.last().unwrap();
        assert!(last.age(at(20)) < Duration::from_secs(20), "{last:?}");
        recogniser.recall(day_old);
        assert_eq!(recogniser.last(), Some(last));
    }
}
