//! One gateway at the other end of a link: the line of what has arrived there, and the rates that
//! lie between its points.

use farlink_wire::time::{Duration, Instant};

use super::spread::Spread;
use super::train::{Shown, Train};
use super::{NS_PER_S, Report, SAMPLE_BYTES_MIN, SAMPLE_TIME_MIN, time_of};

/// A link may carry so much more than it is thought to, or less, percent, without its delay being
/// taken to vary.
const FASTER_PERCENT: u64 = 125;
const SLOWER_PERCENT: u64 = 80;

/// Where the rate is declared, packets have to arrive faster or more slowly than they left by this
/// part (one over it), or they show no rate.
const SHOWS_PARTS: u32 = 64;

/// They arrive as slowly as they left where the two times differ by this part at most (one over
/// it).
const SETTLED_PARTS: u32 = 16;
/// And the link is idle now and then where less than this part of its rate arrives, percent.
const SETTLED_PERCENT: u64 = 92;

/// Packets overtake each other by less than this.
const OVERTAKEN_MAX: Duration = Duration::from_secs(1);

/// What is more than this part of all that leaves (one over it) is much. Less may be what the link
/// layer adds.
const BESIDE_PARTS: u64 = 8;

/// A point on the line of what has arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    pub(super) arrived_us: u32,
    pub(super) received_bytes: u32,
    pub(super) sent_at: Instant,
    /// Above the smallest one-way delay.
    pub(super) waited: Duration,
    /// What had been sent by then; `None`: not known.
    pub(super) sent: Option<Sent>,
}

impl Mark {
    /// A packet that left later by so much seems to have arrived earlier: the clock there has begun
    /// anew, or has gone around in half an hour of silence.
    pub(super) fn is_of_another_clock(&self, arrived_us: u32, sent_at: Instant) -> bool {
        let is_earlier = arrived_us.wrapping_sub(self.arrived_us) > i32::MAX as u32;
        is_earlier && sent_at.since(self.sent_at) > OVERTAKEN_MAX
    }
}

/// Bytes that had been sent into the link in all.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    /// `None`: too long ago. What is not counted changes more seldom, and is known for longer.
    pub(super) total_bytes: Option<u64>,
    /// Those of them that the other gateway does not count.
    pub(super) uncounted_bytes: u64,
}

/// What a sample is judged by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) patience: Duration,
    /// Bytes that wait for less are not taken to wait.
    pub(super) wait_min: Duration,
    /// Nothing is known but what the link has carried.
    pub(super) strong_only: bool,
    /// Nor that, or the first burst goes on.
    pub(super) is_new: bool,
    pub(super) is_declared: bool,
    /// Less is sent than the link is thought to carry.
    pub(super) is_slowed: bool,
    /// A rate is taken over so long at least.
    pub(super) took_min: Duration,
    /// A burst that takes less shows nothing.
    pub(super) chance: Duration,
    pub(super) sent: Option<Sent>,
    pub(super) now: Instant,
    pub(super) rtt: Duration,
    /// The link was away a short time ago.
    pub(super) is_restless: bool,
    /// What the link is thought to carry, bits per second.
    pub(super) rate_bps: Option<u64>,
}

/// The newest packet that was reported.
#[derive(Clone, Copy, Debug)]
pub(super) struct Newest {
    pub(super) sent_at: Instant,
    pub(super) arrived_us: u32,
    /// Above the smallest one-way delay.
    pub(super) waited: Duration,
    /// Bytes that had been sent by then; `None`: not known.
    pub(super) total_bytes: Option<u64>,
    /// Bytes that had arrived with it, modulo 2^32.
    pub(super) received_bytes: u32,
}

/// One gateway at the other end.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub(super) id: u32,
    /// It is a host that has acknowledged.
    pub(super) is_host: bool,
    pub(super) heard_at: Instant,
    pub(super) last: Mark,
    pub(super) newest: Newest,
    pub(super) spread: Spread,
    /// A burst, by how far its packets have come.
    train: Train,
    /// Where the newest packet of the last report stands.
    place: (u32, u32),
    /// What left before this is of another phase.
    phase_at: Instant,
    /// Of this one the smallest delay is known.
    pub(super) is_settled: bool,
    /// Every packet that was told of since the last mark had left before the one told of before it
    /// had gone over the link: the link has not been idle.
    pub(super) unbroken: bool,
    /// Smallest difference of the two clocks seen in this window and in the one before,
    /// microseconds modulo 2^32.
    pub(super) delay_us: u32,
    pub(super) delay_before_us: Option<u32>,
    pub(super) window_since: Instant,
    /// What it counted of late, bits per second, and until when that holds.
    pub(super) rate: Option<(u64, Instant)>,
}

/// A rate between two marks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// What the link carried, bits per second.
    pub(super) rate_bps: u64,
    /// What it carried for sure. Where bytes wait before it, what is missing may have found no room
    /// there: only what has arrived counts. Of hosts all counts: they acknowledge in strides, and
    /// what is missing behind a hole may have arrived.
    pub(super) surely_bps: u64,
    /// The part of what has arrived that each gateway counts, its own; `None`: hosts count all.
    pub(super) counted_bps: Option<u64>,
    /// The link was the bottleneck in between.
    pub(super) saturated: bool,
    /// What was sent at once has been drawn apart.
    pub(super) is_burst: bool,
    /// Its packets overtake each other: the rate is that of the farthest one.
    pub(super) is_overtaken: bool,
    /// The most that the link can carry by that, bits per second.
    pub(super) most_bps: u64,
    /// What left between the two, bytes, and for how long; `None`: not known.
    pub(super) left: Option<(u64, Duration)>,
    /// How long the last byte waited before the link, beyond the spread of its delay.
    pub(super) waited: Duration,
    pub(super) spread: Duration,
    pub(super) sent_at: Instant,
    pub(super) bytes: u32,
    /// The time in which they came.
    pub(super) took: Duration,
    /// Who has told.
    pub(super) by: u32,
    /// Much of what left in between was not of TCP.
    pub(super) beside: bool,
}

impl Sample {
    /// The same with another rate, bits per second.
    pub(super) fn with_rate(self, rate_bps: u64) -> Self {
        Self { rate_bps, ..self }
    }

    /// More than a quarter of what it tells of has not arrived.
    pub(super) fn lost_many(&self) -> bool {
        self.left.is_some_and(|(bytes, _)| u64::from(self.bytes) < bytes / 4 * 3)
    }

    /// When the packet left from which on it tells.
    pub(super) fn begins_at(&self) -> Instant {
        self.left.map_or(self.sent_at, |(_, time)| self.sent_at - time)
    }

    /// The part of these bytes that has arrived, if no more was lost of them than of what it tells
    /// of.
    pub(super) fn arrived_of(&self, bytes: u64) -> u64 {
        let left_bytes = self.left.map_or(0, |(left_bytes, _)| left_bytes);
        if left_bytes <= u64::from(self.bytes) {
            return bytes;
        }
        u64::try_from(u128::from(bytes) * u128::from(self.bytes) / u128::from(left_bytes)).unwrap_or(bytes)
    }
}

impl Peer {
    /// Its first report.
    pub(super) fn new(now: Instant, report: &Report, sent_at: Instant, sent: Option<Sent>) -> Self {
        let Report { peer: id, arrived_us, received_bytes, of_host, .. } = *report;
        let (waited, total_bytes) = (Duration::ZERO, sent.and_then(|sent| sent.total_bytes));
        let mut train = Train::default();
        train.hear(report, sent_at);
        Self {
            id,
            is_host: of_host,
            heard_at: now,
            last: Mark { arrived_us, received_bytes, sent_at, waited, sent },
            newest: Newest { sent_at, arrived_us, waited, total_bytes, received_bytes },
            spread: Spread::default(),
            train,
            place: (0, 0),
            phase_at: Instant::ZERO,
            is_settled: true,
            unbroken: true,
            delay_us: arrived_us.wrapping_sub(micros(sent_at)),
            delay_before_us: None,
            window_since: now,
            rate: None,
        }
    }

    /// Bytes need so much longer than was thought, even if none wait.
    pub(super) fn rebase(&mut self, now: Instant, longer: Duration) {
        let longer_us = longer.as_micros() as u32;
        self.delay_us = self.base_us().wrapping_add(longer_us);
        self.delay_before_us = None;
        (self.window_since, self.is_settled) = (now, true);
    }

    /// A phase of the link has begun: what left before this is of the last one. Its smallest delay
    /// is a guess from now on.
    pub(super) fn begin_phase(&mut self, now: Instant, sent_at: Instant) {
        self.delay_us = self.base_us();
        self.delay_before_us = None;
        (self.window_since, self.phase_at, self.is_settled) = (now, sent_at, false);
    }

    /// By how much longer this packet took than the newest one that was reported before; `None`: it
    /// left before that, or perhaps more than once.
    pub(super) fn held(&self, report: &Report, sent_at: Instant) -> Option<Duration> {
        if report.sent_again || sent_at < self.newest.sent_at {
            return None;
        }
        let took_us = report.arrived_us.wrapping_sub(self.newest.arrived_us);
        let took = Duration::from_micros(if took_us > i32::MAX as u32 { 0 } else { u64::from(took_us) });
        Some(took.saturating_sub(sent_at.since(self.newest.sent_at)))
    }

    /// The smallest difference of the clocks of late, microseconds modulo 2^32.
    fn base_us(&self) -> u32 {
        match self.delay_before_us {
            Some(before) if is_less(before, self.delay_us) => before,
            _ => self.delay_us,
        }
    }

    /// How much longer than ever of late a packet took that left then and arrived at that time.
    pub(super) fn waited(&self, arrived_us: u32, sent_at: Instant) -> Duration {
        let waited_us = arrived_us.wrapping_sub(micros(sent_at)).wrapping_sub(self.base_us());
        // Above half of the range: less than ever before, by a transmission that was not the one
        // that arrived.
        Duration::from_micros(if waited_us > i32::MAX as u32 { 0 } else { u64::from(waited_us) })
    }

    /// How far the packets of a burst have come.
    pub(super) fn train(&self) -> &Train {
        &self.train
    }

    /// It tells of the first packet of a clump, and its acknowledgement covers all of it.
    fn begins_clump(&self, report: &Report) -> bool {
        let ((origin, bytes, missing), (origin_before, bytes_before)) = (report.place, self.place);
        let goes_on = missing == 0 && origin == origin_before && bytes_before > 0;
        let came = report.received_bytes.wrapping_sub(self.newest.received_bytes);
        goes_on && came < bytes.saturating_sub(bytes_before)
    }

    /// Nothing has come that is newer than what the last report told of, and yet something has:
    /// what was overtaken, or left again. Nobody knows when that left.
    fn stands_still(&mut self, report: &Report) -> bool {
        let (origin, bytes, _) = report.place;
        let before = core::mem::replace(&mut self.place, (origin, bytes));
        bytes > 0 && before == (origin, bytes)
    }

    /// The rate since the last mark, if there is enough to tell; then this is the next mark.
    pub(super) fn sample(&mut self, report: &Report, sent_at: Instant, terms: &Terms) -> Option<Sample> {
        let Terms { patience, wait_min, strong_only, is_declared, is_slowed, took_min, sent, .. } = *terms;
        let waited = self.waited(report.arrived_us, sent_at);
        if let Some(shown) = self.train.hear(report, sent_at).filter(|_| terms.is_new) {
            return Some(self.overtaken(shown, report, (sent_at, waited), terms));
        }
        if self.begins_clump(report) || self.stands_still(report) {
            return None;
        }
        let took_us = report.arrived_us.wrapping_sub(self.last.arrived_us);
        let (arrived_us, received_bytes) = (report.arrived_us, report.received_bytes);
        let mark = Mark { arrived_us, received_bytes, sent_at, waited, sent };
        if took_us == 0 || took_us > i32::MAX as u32 || sent_at < self.last.sent_at {
            return None;
        }
        let took = Duration::from_micros(u64::from(took_us));
        let spread = self.follow_spread((sent_at, arrived_us, received_bytes), waited, terms);
        if self.last.sent_at < self.phase_at && sent_at >= self.phase_at {
            (self.last, self.unbroken) = (mark, true);
            return None;
        }
        let took_min = took_min.max(Spread::rate_time(spread, terms.rtt));
        let bytes = report.received_bytes.wrapping_sub(self.last.received_bytes);
        let sending = sent_at.since(self.last.sent_at);
        let grown = took.saturating_sub(sending);
        // A burst that was drawn apart tells at once; what was sent smoothly, over some time only.
        let burst = grown > took / 2 && !self.is_host && took >= terms.chance;
        let too_short = !strong_only && took < SAMPLE_TIME_MIN;
        if bytes < SAMPLE_BYTES_MIN || too_short || !(burst || took >= took_min) {
            // A link that has been idle meanwhile would seem to be slow; one that has not is slow.
            if took > patience && !self.unbroken {
                (self.last, self.unbroken) = (mark, true);
            }
            return None;
        }
        let before = core::mem::replace(&mut self.last, mark);
        self.unbroken = true;
        let (now, then) = (sent?, before.sent?);
        let beside_bytes = now.uncounted_bytes.saturating_sub(then.uncounted_bytes);
        let (rate_bps, arrived_bps) = self.rates((now, then), (bytes, took), is_declared)?;
        let is_new = !self.is_settled && before.sent_at >= self.phase_at;
        let waited = if is_new { self.settle(waited, (took, sending), rate_bps, terms) } else { waited };
        let some = time_of(6_000, rate_bps).max(wait_min);
        let waiting =
            waited > some + spread && (before.waited > some / 2 + spread || grown > took / 8 + spread);
        // What arrives as fast as it was sent shows how fast it was sent.
        let shows = !(is_declared || is_slowed) || took.abs_diff(sending) > took / SHOWS_PARTS;
        let saturated = (waiting && shows) || (strong_only && burst);
        let all_bytes = now.total_bytes.zip(then.total_bytes).map(|(now, then)| now.saturating_sub(then));
        let beside = all_bytes.is_some_and(|all_bytes| beside_bytes > all_bytes / BESIDE_PARTS);
        let waited = waited.saturating_sub(spread);
        Some(Sample {
            rate_bps,
            surely_bps: if waiting && !self.is_host { arrived_bps } else { rate_bps },
            counted_bps: (!self.is_host).then(|| rate_of(u64::from(bytes), took)),
            saturated,
            is_burst: burst,
            is_overtaken: false,
            most_bps: rate_bps,
            left: all_bytes.map(|bytes| (bytes, sending)),
            waited,
            spread,
            sent_at,
            bytes,
            took,
            by: self.id,
            beside,
        })
    }

    /// The rate between two marks, and that of what has arrived, as far as this one counts it, bits
    /// per second.
    fn rates(
        &self,
        (now, then): (Sent, Sent),
        (bytes, took): (u32, Duration),
        is_declared: bool,
    ) -> Option<(u64, u64)> {
        let grew = |now: u64, then: u64| rate_of(now.saturating_sub(then), took);
        let counted_bps = rate_of(u64::from(bytes), took);
        let arrived_bps = counted_bps.saturating_add(grew(now.uncounted_bytes, then.uncounted_bytes));
        if !is_declared {
            return Some((arrived_bps, arrived_bps));
        }
        // All that left in between was carried in between, whoever counts it, and whatever was
        // lost. But what found no room while the link was away was not.
        let sent_bps = grew(now.total_bytes?, then.total_bytes?);
        Some((if self.is_settled { sent_bps } else { sent_bps.min(arrived_bps) }, arrived_bps))
    }

    /// The packets of a burst overtake each other, and show this.
    fn overtaken(
        &mut self,
        shown: Shown,
        report: &Report,
        (sent_at, waited): (Instant, Duration),
        terms: &Terms,
    ) -> Sample {
        let Report { arrived_us, received_bytes, .. } = *report;
        let later = arrived_us.wrapping_sub(self.last.arrived_us) as i32 > 0;
        if later && sent_at >= self.last.sent_at {
            self.last = Mark { arrived_us, received_bytes, sent_at, waited, sent: terms.sent };
            self.unbroken = true;
        }
        Sample {
            rate_bps: shown.rate_bps,
            surely_bps: shown.rate_bps,
            counted_bps: Some(shown.rate_bps),
            saturated: true,
            is_burst: true,
            is_overtaken: true,
            most_bps: shown.most_bps,
            left: None,
            waited: Duration::ZERO,
            spread: self.spread.now(terms.now),
            sent_at,
            bytes: shown.bytes,
            took: shown.took,
            by: self.id,
            beside: false,
        }
    }

    /// What arrives as slowly as it left, and more slowly than the link carries, did not wait: so
    /// long it takes in the new phase. Returns how long it waited.
    fn settle(
        &mut self,
        waited: Duration,
        (took, sending): (Duration, Duration),
        rate_bps: u64,
        terms: &Terms,
    ) -> Duration {
        let is_idle = took.abs_diff(sending) <= took / SETTLED_PARTS
            && terms.rate_bps.is_some_and(|most| rate_bps < most / 100 * SETTLED_PERCENT);
        if !is_idle {
            return waited;
        }
        self.rebase(terms.now, waited);
        Duration::ZERO
    }

    /// A packet waited so long that left then, and with which so much had arrived. Returns how much
    /// the delay varies by itself.
    fn follow_spread(
        &mut self,
        (sent_at, arrived_us, received_bytes): (Instant, u32, u32),
        waited: Duration,
        terms: &Terms,
    ) -> Duration {
        let total_bytes = terms.sent.and_then(|sent| sent.total_bytes);
        let newest = Newest { sent_at, arrived_us, waited, total_bytes, received_bytes };
        let before = core::mem::replace(&mut self.newest, newest);
        let apart = sent_at.since(before.sent_at);
        self.unbroken &= apart <= before.waited;
        let added = total_bytes.zip(before.total_bytes).zip(terms.rate_bps);
        if let Some(((total, total_before), rate_bps)) = added {
            // Packets that leave together have the same time, and arrive one after the other.
            let sent = total.saturating_sub(total_before);
            let came = u64::from(received_bytes.wrapping_sub(before.received_bytes));
            let queue_at = |bytes, percent: u64| {
                (before.waited + time_of(bytes, rate_bps / 100 * percent)).saturating_sub(apart)
            };
            let least = queue_at(sent.min(came), FASTER_PERCENT);
            let most = queue_at(sent.max(came), SLOWER_PERCENT);
            // A queue that has been lost is no delay that fell by itself.
            if !terms.is_restless && self.is_settled && came >= sent / 2 {
                self.spread.note(terms.now, waited, (least, most), terms.rtt);
            }
        }
        self.spread.now(terms.now)
    }
}

/// So many bytes in this time, bits per second.
pub(super) fn rate_of(bytes: u64, time: Duration) -> u64 {
    u64::try_from(u128::from(bytes) * 8 * NS_PER_S / time.as_nanos().max(1)).unwrap_or(u64::MAX)
}

pub(super) fn micros(at: Instant) -> u32 {
    // Modulo 2^32 on purpose: differences count.
    at.since(Instant::ZERO).as_micros() as u32
}

pub(super) fn is_less(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) as i32 <= 0
}
