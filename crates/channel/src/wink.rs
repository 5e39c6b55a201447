//! When the link winks (Reynolds 3.3.2).

use farlink_wire::time::{Duration, Instant};

use crate::config::Wink;
use crate::random::{Stream, Use};

/// Shorter intervals than this are taken as this: shorter than any packet.
const INTERVAL_MIN_NS: u64 = 1_000;
/// Intervals looked at for one packet; a packet that spans more has met an outage.
const SPAN_MAX: u64 = 100_000;

/// The draws of all intervals. Each interval's draw depends only on the seed and its number, so
/// that two directions with one seed wink together, whatever passes through them.
#[derive(Clone, Debug)]
pub(crate) struct Winker {
    p: f64,
    interval_ns: u64,
    start: Instant,
    stream: Stream,
    /// The interval that was asked for last, and its answer.
    last: Option<(u64, bool)>,
}

impl Winker {
    pub(crate) fn new(wink: &Wink, start: Instant, channel_seed: u64) -> Self {
        let interval_ns = u64::try_from(wink.interval.as_nanos()).unwrap_or(u64::MAX).max(INTERVAL_MIN_NS);
        let stream = Stream::new(wink.seed.unwrap_or(channel_seed), Use::Wink);
        Self { p: wink.p, interval_ns, start, stream, last: None }
    }

    /// Nothing winks before the start.
    pub(crate) fn is_down(&mut self, at: Instant) -> bool {
        at >= self.start && self.is_interval_down(self.interval(at))
    }

    /// Down at any time from `begin` to before `end` (or at `begin`, if they are the same).
    pub(crate) fn is_down_within(&mut self, begin: Instant, end: Instant) -> bool {
        let Some((first, last)) = self.intervals(begin, end) else { return false };
        if self.p <= 0.0 {
            return false;
        }
        if last - first > SPAN_MAX {
            return true;
        }
        (first..=last).any(|interval| self.is_interval_down(interval))
    }

    /// The same, and when first.
    pub(crate) fn first_down_within(&mut self, begin: Instant, end: Instant) -> Option<Instant> {
        let (first, last) = self.intervals(begin, end)?;
        let last = last.min(first + SPAN_MAX);
        let down = (first..=last).find(|interval| self.is_interval_down(*interval))?;
        let start = self.start + Duration::from_nanos(down.saturating_mul(self.interval_ns));
        Some(start.max(begin))
    }

    /// When the interval after the one of `at` begins.
    pub(crate) fn next_interval(&self, at: Instant) -> Instant {
        if at < self.start {
            return self.start;
        }
        self.start + Duration::from_nanos((self.interval(at) + 1).saturating_mul(self.interval_ns))
    }

    /// The first and the last interval from `begin` to before `end`; `None`: all of it lies before
    /// the start.
    fn intervals(&self, begin: Instant, end: Instant) -> Option<(u64, u64)> {
        let last = (end - Duration::from_nanos(1)).max(begin);
        (last >= self.start).then(|| (self.interval(begin), self.interval(last)))
    }

    fn interval(&self, at: Instant) -> u64 {
        at.as_nanos().saturating_sub(self.start.as_nanos()) / self.interval_ns
    }

    fn is_interval_down(&mut self, interval: u64) -> bool {
        if let Some((known, down)) = self.last
            && known == interval
        {
            return down;
        }
        let down = self.stream.unit_at(interval) < self.p;
        self.last = Some((interval, down));
        down
    }
}
