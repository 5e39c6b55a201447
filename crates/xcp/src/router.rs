//! The algorithm of a queue: what it may give to each packet that leaves.
//!
//! Twice it is told of a packet: when it arrives, and when it leaves. It needs no timer. What it
//! counts of arrivals in one control interval says how much faster or slower all senders together
//! should be in the next one. Each packet that leaves gets its part of that.

use farlink_wire::xcp::{HeaderTime, XcpFields};
use farlink_wire::{Duration, Instant, WireSize};

use crate::interval::{Counted, Residue};
use crate::standing::Standing;

/// The first interval, before any round trip is known (INITIAL_Te_VALUE of the authors' simulator).
const FIRST_INTERVAL_S: f64 = 0.05;

/// The first interval of a queue that nobody has used, in round trips of who begins. With 0.7 one
/// flow has 95 % of 100 Mbit/s, 200 ms, after 1.05 s, and its first queue is 0.19 of the product;
/// with 1 it is 1.2 s and 0.09, with 0.4 0.95 s and 0.34 (`tests/reference.rs`).
const FIRST_OF_RTT: f64 = 0.7;
/// A queue that nobody has used for so many intervals begins anew.
const SLEEP_INTERVALS: u32 = 3;

/// A capacity that falls below this part of what it was is not left to the end of the interval, and
/// what it has fallen by is taken back whole: all that comes meanwhile would wait. Where half of
/// 100 Mbit/s is left, 200 ms, the queue becomes 0.59 of what the path held at most, and not 0.78
/// (`tests/reference.rs`).
const MUCH_LESS: f64 = 0.9;
/// An interval that is cut short has lasted for this part of a round trip at least, else chance
/// decides what it has counted.
const ENOUGH_OF_RTT: f64 = 0.1;

/// How a queue is controlled.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Config {
    /// What the queue drains at, in bits of IP packets a second.
    pub capacity_bps: u64,
    /// No control interval is shorter: MIN_INTERVAL.
    pub min_interval: Duration,
    /// No round trip counts as longer: MAX_INTERVAL. More than the longest that is ordinary here.
    pub max_interval: Duration,
}

impl Config {
    /// For a queue of this rate, round trips of up to a second, and intervals as short as 5 ms.
    #[must_use]
    pub const fn of_rate(capacity_bps: u64) -> Self {
        Self { capacity_bps, min_interval: Duration::from_millis(5), max_interval: Duration::from_secs(1) }
    }
}

/// The control of one queue.
#[derive(Clone, Debug)]
pub struct Router {
    config: Config,
    counted: Counted,
    residue: Residue,
    standing: Standing,
    /// The mean round trip of all flows.
    mean_rtt_s: f64,
    interval_began_at: Instant,
    interval_ends_at: Instant,
    /// Whole intervals without a packet.
    idle_intervals: u32,
    /// What rounding has left of what was given out, bytes a second.
    fraction: f64,
    /// By so much has the capacity fallen in this interval, which ends as soon as it has counted
    /// enough. Bytes a second.
    fallen: f64,
}

impl Router {
    /// Of an empty queue.
    #[must_use]
    pub fn new(now: Instant, config: Config) -> Self {
        Self {
            config,
            counted: Counted::default(),
            residue: Residue::default(),
            standing: Standing::new(now),
            mean_rtt_s: FIRST_INTERVAL_S,
            interval_began_at: now,
            interval_ends_at: now + Duration::from_secs_f64(FIRST_INTERVAL_S),
            idle_intervals: SLEEP_INTERVALS,
            fraction: 0.0,
            fallen: 0.0,
        }
    }

    /// The queue drains at another rate from now on. The next interval goes by it; where it is much
    /// less, this one ends early.
    pub fn set_capacity(&mut self, capacity_bps: u64) {
        let (before, now) = (self.config.capacity_bps as f64, capacity_bps as f64);
        if now < MUCH_LESS * before {
            self.fallen += (before - now) / 8.0;
        }
        self.config.capacity_bps = capacity_bps;
    }

    /// How it is controlled.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The mean round trip of all flows.
    #[must_use]
    pub fn mean_rtt(&self) -> Duration {
        Duration::from_secs_f64(self.mean_rtt_s)
    }

    /// Packets that are alike join the queue: one, or the segments of a super-segment. In it so
    /// many bytes wait before them. `said`: what each of them says; `None`: they know nothing of
    /// XCP.
    pub fn on_arrival(&mut self, now: Instant, size: WireSize, said: Option<&XcpFields>, queue_bytes: u64) {
        self.catch_up(now, queue_bytes);
        let longest_s = self.config.max_interval.as_secs_f64();
        if self.is_asleep() {
            // The interval keeps step with whoever begins: what it is given shows in the next one.
            // A shorter one lets it begin sooner, and the first queue become longer.
            let rtt_s = said.map(|said| said.rtt.seconds()).filter(|rtt_s| *rtt_s > 0.0);
            self.mean_rtt_s = rtt_s.map_or(self.mean_rtt_s, |rtt_s| rtt_s.min(longest_s));
            self.begin_interval(now, FIRST_OF_RTT * self.mean_rtt_s);
            self.standing = Standing::new(now);
        }
        self.idle_intervals = 0;
        self.counted.add(f64::from(size.bytes), f64::from(size.packets), said, longest_s);
    }

    /// Packets leave, and so many bytes wait behind them. Returns what each of them says from here
    /// on. One that knows no round trip yet goes on as it came: it would know no rate to change.
    #[must_use]
    pub fn on_departure(
        &mut self,
        now: Instant,
        size: WireSize,
        said: &XcpFields,
        queue_bytes: u64,
    ) -> XcpFields {
        self.note_departure(now, queue_bytes);
        if said.rtt == HeaderTime::UNKNOWN {
            return *said;
        }
        let packets = f64::from(size.packets.max(1));
        let spacing_s = packets * said.spacing.seconds().min(self.config.max_interval.as_secs_f64());
        let wished = packets * f64::from(said.delta_bytes_per_s);
        let got = self.residue.spend(f64::from(size.bytes), spacing_s, wished);
        if got == wished {
            return *said;
        }
        // A header has whole bytes a second. What is cut off here, the next one gets.
        let exact = got + self.fraction;
        let delta = (exact / packets).floor().clamp(f64::from(i32::MIN), f64::from(i32::MAX)) as i32;
        let delta = delta.min(said.delta_bytes_per_s);
        self.fraction = (exact - packets * f64::from(delta)).clamp(0.0, packets);
        XcpFields { delta_bytes_per_s: delta, ..*said }
    }

    /// Packets that know nothing of XCP leave, and so many bytes wait behind them.
    pub fn note_departure(&mut self, now: Instant, queue_bytes: u64) {
        self.catch_up(now, queue_bytes);
        self.standing.note(queue_bytes);
    }

    /// What has become due since the last packet came or went. Nothing has changed in between, so
    /// no timer is needed for it.
    fn catch_up(&mut self, now: Instant, queue_bytes: u64) {
        if self.fallen > 0.0 {
            let enough = self.interval_began_at + Duration::from_secs_f64(ENOUGH_OF_RTT * self.mean_rtt_s);
            self.interval_ends_at = self.interval_ends_at.min(enough.max(now));
        }
        while !self.is_asleep() && self.interval_ends_at <= now {
            let end = self.interval_ends_at;
            self.end_interval(end);
            self.idle_intervals += u32::from(self.counted.is_empty());
            self.begin_interval(end, self.mean_rtt_s);
        }
        if self.standing.ends_at() <= now {
            let drain_s = queue_bytes as f64 / self.capacity().max(1.0);
            self.standing.end(now, queue_bytes, (self.mean_rtt_s, drain_s));
        }
    }

    fn is_asleep(&self) -> bool {
        self.idle_intervals >= SLEEP_INTERVALS
    }

    /// Bytes a second.
    fn capacity(&self) -> f64 {
        self.config.capacity_bps as f64 / 8.0
    }

    fn end_interval(&mut self, now: Instant) {
        if let Some(mean) = self.counted.mean_rtt_s() {
            self.mean_rtt_s = mean;
        }
        let elapsed_s = now.since(self.interval_began_at).as_secs_f64();
        let standing = self.standing.bytes() as f64;
        let queue = (standing, self.mean_rtt_s);
        self.residue = self.counted.residue(elapsed_s, self.capacity(), self.fallen, queue);
    }

    fn begin_interval(&mut self, now: Instant, lasts_s: f64) {
        self.fallen = 0.0;
        self.counted = Counted::default();
        self.interval_began_at = now;
        let (least, most) = (self.config.min_interval, self.config.max_interval);
        let interval = Duration::from_secs_f64(lasts_s).min(most).max(least);
        self.interval_ends_at = now + interval;
    }
}
