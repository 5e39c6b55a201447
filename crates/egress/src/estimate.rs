//! The rate of a link whose owner does not know it, from what the gateway at its other end tells.
//!
//! That gateway counts what comes in over the link and says, with its acknowledgements, how much
//! that was and when, by its own clock, the last of it came. Two such reports are a rate, free of
//! the return way's delays. Whether it is the *link's* rate shows in the one-way delay: where it
//! has risen above its smallest value, bytes were waiting before the link, and it carried what it
//! could. So a first burst, sent at once and drawn apart by the link, tells the rate within one
//! round trip (packet trains: Jain and Routhier 1986), without doubling a window up to it.
//!
//! From then on the queue is the clock as on a link of known rate, at the estimate: a little above
//! it while nothing waits at the far side's bottleneck, below it while too much does, and now and
//! then clearly above it, for a part of a round trip, in case the link has become faster. Losses
//! say nothing here: a link that corrupts has no queue.

use std::collections::VecDeque;

use farlink_wire::time::{Duration, Instant};

use crate::sent::SentLog;

/// An estimate that nothing has confirmed for so long is forgotten.
const LIFETIME: Duration = Duration::from_secs(600);
/// The smallest one-way delay is that of the last one to two of these.
const BASE_DELAY_WINDOW: Duration = Duration::from_secs(30);
/// Bytes that a rate is taken from, at least: four packets.
const SAMPLE_BYTES_MIN: u32 = 6_000;
/// And, once there is an estimate, at least so much time: packets come in bunches where a machine
/// is busy.
const SAMPLE_TIME_MIN: Duration = Duration::from_millis(1);
/// The least time after which what has arrived since the last sample is let go.
const PATIENCE_MIN: Duration = Duration::from_millis(100);
/// A probe lasts at least so long.
const PROBE_TIME_MIN: Duration = Duration::from_millis(20);
/// How much faster a probe is.
const PROBE_GAIN: u32 = 125;
/// A probe after one that has succeeded is faster still, up to this.
const PROBE_GAIN_MAX: u32 = 200;
/// A probe takes three eighths of a round trip, in every eighth one: three parts in so many of the
/// time.
const PROBE_PARTS: u32 = 64;
/// Bytes within a round trip from which a search for the rate begins: somebody has a lot to send.
const SEARCH_BYTES: u32 = 24_000;
/// What a search sends in each round trip at least, bytes.
const SEARCH_ROUND_BYTES: u64 = 96_000;
/// Percent of the estimate that is sent at least, however much waits before the link.
const GAIN_MIN: u32 = 50;
/// Samples that are kept.
const RECENT_MAX: usize = 64;
/// Gateways that report over one link.
const PEERS_MAX: usize = 64;
/// The RTT that counts while none has been measured.
const RTT_DEFAULT: Duration = Duration::from_millis(100);
const NS_PER_S: u128 = 1_000_000_000;

/// What the gateway at the other end has told.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    /// Which gateway: its own number.
    pub peer: u32,
    /// When the last packet it counts came, microseconds of its clock, modulo 2^32.
    pub arrived_us: u32,
    /// Bytes of packets that had come in over the link by then, modulo 2^32.
    pub received_bytes: u32,
    /// When that packet left here; `None`: not known.
    pub sent_at: Option<Instant>,
    /// It may have left earlier, too: the one-way delay is not known.
    pub sent_again: bool,
    /// Smallest RTT of the leg that the report came over.
    pub min_rtt: Option<Duration>,
}

/// A point on the line of what has arrived.
#[derive(Clone, Copy, Debug)]
struct Mark {
    arrived_us: u32,
    received_bytes: u32,
    sent_at: Instant,
    /// Above the smallest one-way delay.
    waited: Duration,
}

/// One gateway at the other end.
#[derive(Clone, Debug)]
struct Peer {
    id: u32,
    heard_at: Instant,
    last: Mark,
    /// When the packet of the newest report left, and how long it waited before the link.
    newest: (Instant, Duration),
    /// Every packet that was told of since the last mark had left before the one told of before it
    /// had gone over the link: the link has not been idle.
    unbroken: bool,
    /// Smallest difference of the two clocks seen in this window and in the one before,
    /// microseconds modulo 2^32.
    delay_us: u32,
    delay_before_us: Option<u32>,
    window_since: Instant,
    /// What it received of late, bits per second, and until when that counts.
    rate: Option<(u64, Instant)>,
}

/// What is known of the link's rate.
#[derive(Clone, Debug, Default)]
pub struct RateEstimate {
    peers: Vec<Peer>,
    /// Bits per second of IP packets.
    rate_bps: Option<u64>,
    confirmed_at: Instant,
    /// The estimate is only what the link has carried so far; it has not been full yet.
    searching: bool,
    rtt: Option<Duration>,
    /// Percent of the estimate at which the queue is to send.
    gain: u32,
    /// A probe ends then.
    probe_until: Option<Instant>,
    probe_gain: u32,
    next_probe_at: Instant,
    /// Samples of what left before this say nothing about the present rate of sending.
    changed_at: Instant,
    samples: u64,
    /// When the newest packet of the newest sample left, and how long it waited before the link.
    waited: (Instant, Duration),
    /// Before there is an estimate: since when so many bytes have been told of that did not fill
    /// the link.
    gathered: (Instant, u32),
    /// What has left of late.
    sent: SentLog,
    /// Samples of the last round trip, or where that brings none the last few.
    recent: VecDeque<(Instant, Sample)>,
}

/// A rate between two marks.
#[derive(Clone, Copy, Debug)]
struct Sample {
    rate_bps: u64,
    /// The link was the bottleneck in between.
    saturated: bool,
    /// How long the last byte waited before the link.
    waited: Duration,
    sent_at: Instant,
    bytes: u32,
    /// The time in which they came.
    took: Duration,
}

impl RateEstimate {
    /// Bits per second of IP packets that the link carries; `None`: not known (any more).
    #[must_use]
    pub fn rate_bps(&self) -> Option<u64> {
        self.rate_bps
    }

    /// The rate at which to send now.
    #[must_use]
    pub fn sending_bps(&self) -> Option<u64> {
        if self.searching {
            // As slow start does: twice as much with each round trip, until something has to wait.
            // But what is lost does not count.
            let floor = u128::from(SEARCH_ROUND_BYTES) * 8 * NS_PER_S / self.round().as_nanos().max(1);
            let floor = u64::try_from(floor).unwrap_or(u64::MAX);
            return self.rate_bps.map(|rate| rate.saturating_mul(2).max(floor));
        }
        let gain = if self.probe_until.is_some() { self.probe_gain } else { self.gain };
        self.rate_bps.map(|rate| (rate.saturating_mul(u64::from(gain)) / 100).max(1))
    }

    /// The smallest round trip over the link, as far as the reports show it.
    #[must_use]
    pub fn rtt(&self) -> Option<Duration> {
        self.rtt
    }

    /// By now `total_bytes` have been sent into the link in all.
    pub fn note_sent(&mut self, now: Instant, total_bytes: u64) {
        self.sent.note(now, total_bytes, self.round() / 32);
    }

    /// More waits before the link than is meant to, as far as the newest report tells, and what has
    /// been sent since.
    #[must_use]
    pub fn has_backlog(&self, now: Instant, total_bytes: u64) -> bool {
        let (sent_at, waited) = self.waited;
        now < sent_at + waited + 2 * self.round()
            && self.waits_now(now, total_bytes).unwrap_or(waited) > 2 * self.waiting_wanted()
    }

    /// How long a byte that leaves now will wait before the link. The newest report is a round trip
    /// old: a queue that nothing has been added to since is empty by now. `None`: nobody knows.
    fn waits_now(&self, now: Instant, total_bytes: u64) -> Option<Duration> {
        let (sent_at, waited) = self.waited;
        let added = time_of(self.sent.since(sent_at, now, total_bytes)?, self.rate_bps?);
        Some((waited + added).saturating_sub(now.since(sent_at)))
    }

    /// Rates taken from reports so far.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// A report came. `busy_since`: since when, without a break, something has been waiting for the
    /// link here.
    pub fn on_report(&mut self, now: Instant, report: &Report, busy_since: Option<Instant>) {
        if let Some(rtt) = report.min_rtt.filter(|rtt| !rtt.is_zero()) {
            self.rtt = Some(rtt);
        }
        let Some(sent_at) = report.sent_at else { return };
        let (round, patience) = (self.round(), self.beat().max(PATIENCE_MIN));
        let strong_only = self.rate_bps.is_none() || self.searching;
        let Some(sample) = self
            .peer(now, report, sent_at)
            .and_then(|p| p.sample(report, sent_at, round, patience, strong_only))
        else {
            return;
        };
        self.samples += 1;
        self.waited = (sample.sent_at, sample.waited);
        let sample = Sample { rate_bps: self.total(now, report.peer, &sample), ..sample };
        self.learn(now, &sample, busy_since);
    }

    /// The next time at which [`Self::handle_timeout`] changes something.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.rate_bps?;
        let forget = self.confirmed_at + LIFETIME;
        Some(self.probe_until.map_or(forget, |at| at.min(forget)))
    }

    /// Time has come.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.probe_until.is_some_and(|at| at <= now) {
            self.probe_until = None;
            self.changed_at = now;
        }
        if self.rate_bps.is_some() && self.confirmed_at + LIFETIME <= now {
            *self = Self::default();
        }
    }

    /// What all gateways behind the link receive, when this one receives so much: they share it.
    fn total(&mut self, now: Instant, id: u32, sample: &Sample) -> u64 {
        // Its next sample takes as long as this one, or somewhat longer.
        let until = now + self.round().max(Duration::from_millis(200)).max(sample.took * 3);
        let mut total = sample.rate_bps;
        for peer in &mut self.peers {
            if peer.id == id {
                peer.rate = Some((sample.rate_bps, until));
            } else if let Some((rate, _)) = peer.rate.filter(|(_, until)| *until >= now) {
                total = total.saturating_add(rate);
            }
        }
        total
    }

    fn round(&self) -> Duration {
        self.rtt.unwrap_or(RTT_DEFAULT)
    }

    /// The time in which a change shows: a round trip, or, where the link holds only a few packets
    /// in it, four samples.
    fn beat(&self) -> Duration {
        let samples = self.rate_bps.map(|rate| time_of(4 * u64::from(SAMPLE_BYTES_MIN), rate));
        self.round().max(samples.unwrap_or_default())
    }

    /// How long bytes are meant to wait before the link: so little that it is not felt, so much
    /// that the link never runs dry for want of a few packets.
    fn waiting_wanted(&self) -> Duration {
        let packets = self.rate_bps.map_or(Duration::ZERO, |rate| time_of(3_000, rate));
        (self.round() / 50).clamp(Duration::from_millis(2), Duration::from_millis(20)) + packets
    }

    fn learn(&mut self, now: Instant, sample: &Sample, busy_since: Option<Instant>) {
        let rate = sample.rate_bps.max(8_000);
        let Some(old) = self.rate_bps else {
            if sample.saturated {
                self.found(now, rate);
            } else if self.gathers(now, sample.bytes) >= SEARCH_BYTES {
                self.confirmed_at = now;
                self.rate_bps = Some(rate);
                self.searching = true;
            }
            return;
        };
        if self.searching {
            if sample.saturated {
                self.found(now, rate);
            } else if rate > old {
                self.confirmed_at = now;
                self.rate_bps = Some(rate);
            }
            return;
        }
        let busy = busy_since.is_some_and(|since| since <= sample.sent_at);
        let lately = self.round().max(sample.took * 4);
        while self.recent.front().is_some_and(|(at, _)| now.since(*at) > lately)
            || self.recent.len() >= RECENT_MAX
        {
            self.recent.pop_front();
        }
        let before = self.recent.back().map(|(_, s)| *s);
        self.recent.push_back((now, *sample));
        if rate > old && (sample.saturated || busy) {
            // One report that came by a late timer, and the haste after it, say nothing: two in a
            // row do.
            let rate = before.filter(|b| b.saturated || busy).map_or(old, |b| b.rate_bps.min(rate)).max(old);
            self.confirmed_at = now;
            self.rate_bps = Some(rate);
            if !sample.saturated && rate > old / 100 * 105 {
                // There is more than was thought.
                self.probe_gain = (self.probe_gain * 5 / 4).min(PROBE_GAIN_MAX);
                self.start_probe(now);
                return;
            }
        } else if let Some(less) = self.fallen(now, old, sample.took) {
            self.confirmed_at = now;
            self.rate_bps = Some(less.max(8_000));
        } else if busy && rate > old / 10 * 9 {
            self.confirmed_at = now;
        }
        self.steer(now, sample, busy);
    }

    /// Bytes that the samples of the last round trip tell of, this one included.
    fn gathers(&mut self, now: Instant, bytes: u32) -> u32 {
        let (since, before) = self.gathered;
        let goes_on = before > 0 && now.since(since) <= self.round();
        self.gathered = if goes_on { (since, before.saturating_add(bytes)) } else { (now, bytes) };
        self.gathered.1
    }

    /// What the link carries, where all that has been told for a while says that it is full and
    /// carries less than was thought.
    fn fallen(&self, now: Instant, rate_bps: u64, took: Duration) -> Option<u64> {
        let most = |time: Duration| {
            // Three samples, at least, however long they take.
            let time = time.max(took / 2 * 5);
            let lately = || self.recent.iter().rev().take_while(|(at, _)| now.since(*at) <= time);
            let full = lately().count() >= 3 && lately().all(|(_, s)| s.saturated);
            lately().map(|(_, s)| s.rate_bps).max().filter(|_| full)
        };
        let round = self.round();
        let much_less = most(round / 16 * 5).filter(|most| *most < rate_bps / 3 * 2);
        much_less.or_else(|| most(round / 8 * 5).filter(|most| *most < rate_bps))
    }

    /// How fast to send, by what waits before the link.
    fn steer(&mut self, now: Instant, sample: &Sample, busy: bool) {
        // What was sent before the last change says nothing about how fast to send now.
        if sample.sent_at < self.changed_at {
            return;
        }
        // A queue stands; a machine that is late now and then does not make one.
        let waited = self.recent.iter().rev().take(3).map(|(_, s)| s.waited).min().unwrap_or(sample.waited);
        // And one that has gone since is not to be drained once more, while the link has nothing to
        // do.
        let left = self.waits_now(now, self.sent.total_bytes()).filter(|_| waited > self.round() / 4);
        let gain = self.gain_for(waited.min(left.unwrap_or(waited)), busy);
        if gain != self.gain {
            self.gain = gain;
            self.changed_at = now;
        }
        if busy
            && self.probe_until.is_none()
            && now >= self.next_probe_at
            && waited < 2 * self.waiting_wanted()
        {
            self.probe_gain = PROBE_GAIN;
            self.start_probe(now);
        }
    }

    /// The link was full for the first time.
    fn found(&mut self, now: Instant, rate_bps: u64) {
        self.confirmed_at = now;
        self.rate_bps = Some(rate_bps);
        self.searching = false;
        self.recent.clear();
        self.gain = 100;
        self.probe_gain = PROBE_GAIN;
        self.start_probe(now);
    }

    /// Percent of the estimate, for bytes that wait so long before the link.
    fn gain_for(&self, waited: Duration, busy: bool) -> u32 {
        let wanted = self.waiting_wanted();
        if waited < wanted / 2 {
            return if busy { 102 } else { 100 };
        }
        let excess = waited.saturating_sub(wanted);
        // Half of what is too much goes within a round trip, and no faster than that shows.
        let percent = excess.as_nanos() * 50 / self.beat().as_nanos().max(1);
        (100 - u32::try_from(percent).unwrap_or(50).min(50)).max(GAIN_MIN)
    }

    fn start_probe(&mut self, now: Instant) {
        let samples = self.rate_bps.map(|rate| time_of(2 * u64::from(SAMPLE_BYTES_MIN), rate));
        let probe = (self.round() / 8 * 3).max(PROBE_TIME_MIN).max(samples.unwrap_or_default());
        self.probe_until = Some(now + probe);
        self.next_probe_at = now + probe / 3 * PROBE_PARTS;
    }

    /// The reporting gateway, with the clocks' smallest difference brought up to date; `None`: it
    /// was not known until now.
    fn peer(&mut self, now: Instant, report: &Report, sent_at: Instant) -> Option<&mut Peer> {
        let delay_us = report.arrived_us.wrapping_sub(micros(sent_at));
        let known = self.peers.iter().position(|p| p.id == report.peer);
        if report.sent_again && known.is_none() {
            return None;
        }
        let Some(at) = known else {
            if self.peers.len() >= PEERS_MAX {
                let oldest = (0..self.peers.len()).min_by_key(|&i| self.peers.get(i).map(|p| p.heard_at))?;
                self.peers.swap_remove(oldest);
            }
            self.peers.push(Peer {
                id: report.peer,
                heard_at: now,
                last: Mark {
                    arrived_us: report.arrived_us,
                    received_bytes: report.received_bytes,
                    sent_at,
                    waited: Duration::ZERO,
                },
                newest: (sent_at, Duration::ZERO),
                unbroken: true,
                delay_us,
                delay_before_us: None,
                window_since: now,
                rate: None,
            });
            return None;
        };
        let peer = self.peers.get_mut(at)?;
        peer.heard_at = now;
        if report.sent_again {
            return Some(peer);
        }
        if now.since(peer.window_since) >= BASE_DELAY_WINDOW {
            peer.delay_before_us = Some(peer.delay_us);
            peer.delay_us = delay_us;
            peer.window_since = now;
        } else if is_less(delay_us, peer.delay_us) {
            peer.delay_us = delay_us;
        }
        Some(peer)
    }
}

impl Peer {
    /// The rate since the last mark, if there is enough to tell; then this is the next mark.
    fn sample(
        &mut self,
        report: &Report,
        sent_at: Instant,
        round: Duration,
        patience: Duration,
        strong_only: bool,
    ) -> Option<Sample> {
        let base_us = match self.delay_before_us {
            Some(before) if is_less(before, self.delay_us) => before,
            _ => self.delay_us,
        };
        let waited_us = report.arrived_us.wrapping_sub(micros(sent_at)).wrapping_sub(base_us);
        // Above half of the range: less than ever before, by a transmission that was not the one
        // that arrived.
        let waited_us = if waited_us > i32::MAX as u32 { 0 } else { waited_us };
        let waited = Duration::from_micros(u64::from(waited_us));
        let took_us = report.arrived_us.wrapping_sub(self.last.arrived_us);
        let mark =
            Mark { arrived_us: report.arrived_us, received_bytes: report.received_bytes, sent_at, waited };
        if took_us == 0 || took_us > i32::MAX as u32 || sent_at < self.last.sent_at {
            // After half an hour of silence its clock seems to have gone back.
            if sent_at.since(self.last.sent_at) > LIFETIME {
                self.last = mark;
                self.unbroken = true;
            }
            return None;
        }
        let took = Duration::from_micros(u64::from(took_us));
        let (newest_sent_at, newest_waited) = core::mem::replace(&mut self.newest, (sent_at, waited));
        self.unbroken &= sent_at.since(newest_sent_at) <= newest_waited;
        let bytes = report.received_bytes.wrapping_sub(self.last.received_bytes);
        let sending = sent_at.since(self.last.sent_at);
        let grown = took.saturating_sub(sending);
        // A burst that was drawn apart tells at once; what was sent smoothly, over some time only.
        let burst = grown > took / 2;
        let too_short = !strong_only && took < SAMPLE_TIME_MIN;
        if bytes < SAMPLE_BYTES_MIN || too_short || !(burst || took >= round / 16) {
            // A link that has been idle meanwhile would seem to be slow; one that has not is slow.
            if took > patience && !self.unbroken {
                self.last = mark;
                self.unbroken = true;
            }
            return None;
        }
        let rate = u128::from(bytes) * 8 * NS_PER_S / took.as_nanos().max(1);
        let rate_bps = u64::try_from(rate).unwrap_or(u64::MAX);
        let some = time_of(6_000, rate_bps).max(Duration::from_millis(2));
        let waiting = waited > some && (self.last.waited > some / 2 || grown > took / 8);
        self.last = mark;
        self.unbroken = true;
        Some(Sample { rate_bps, saturated: waiting || (strong_only && burst), waited, sent_at, bytes, took })
    }
}

fn micros(at: Instant) -> u32 {
    // Modulo 2^32 on purpose: differences count.
    at.since(Instant::ZERO).as_micros() as u32
}

fn is_less(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) as i32 <= 0
}

fn time_of(bytes: u64, rate_bps: u64) -> Duration {
    Duration::from_nanos(
        u64::try_from(u128::from(bytes) * 8 * NS_PER_S / u128::from(rate_bps.max(1))).unwrap_or(u64::MAX),
    )
}
