//! When a packet that has left the line is at the far end: delays and losses over time, and frames.

use farlink_wire::time::{Duration, Instant};

use crate::config::ChannelConfig;

impl ChannelConfig {
    /// One-way delay of a packet that leaves the line at this time.
    #[must_use]
    pub fn delay_at(&self, at: Instant) -> Duration {
        if at < self.start {
            return self.delay;
        }
        let elapsed = at.since(self.start);
        let later = self.delay_changes.partition_point(|change| change.at <= elapsed);
        let number = later.checked_sub(1);
        let Some(current) = number.and_then(|n| self.delay_changes.get(n)) else { return self.delay };
        if elapsed >= current.until {
            return current.delay;
        }
        let earlier = number.and_then(|n| n.checked_sub(1)).and_then(|n| self.delay_changes.get(n));
        let before = earlier.map_or(self.delay, |earlier| earlier.delay);
        between(before, current.delay, elapsed - current.at, current.until - current.at)
    }

    /// When a packet that leaves the line at this time is at the far end, without jitter.
    #[must_use]
    pub fn arrives_at(&self, at: Instant) -> Instant {
        self.end_of_frame(at + self.delay_at(at))
    }

    /// The least of all delays that there can be.
    pub(crate) fn least_delay(&self) -> Duration {
        self.delay_changes.iter().map(|change| change.delay).chain([self.delay]).min().unwrap_or_default()
    }

    /// Probability of an independent loss of a packet that leaves the line at this time.
    pub(crate) fn loss_at(&self, at: Instant) -> f64 {
        if self.loss_changes.is_empty() || at < self.start {
            return self.loss;
        }
        let elapsed = at.since(self.start);
        let later = self.loss_changes.partition_point(|change| change.at <= elapsed);
        let current = later.checked_sub(1).and_then(|n| self.loss_changes.get(n));
        current.map_or(self.loss, |change| change.loss)
    }

    /// The first end of a frame at which a packet can leave the far end that is there at `at`.
    /// Frames are counted on the clock itself, so that both directions have the same.
    pub(crate) fn end_of_frame(&self, at: Instant) -> Instant {
        let frame_ns = u64::try_from(self.jitter_frame.as_nanos()).unwrap_or(u64::MAX);
        let late_ns = at.as_nanos().checked_rem(frame_ns).unwrap_or(0);
        if late_ns == 0 { at } else { at + Duration::from_nanos(frame_ns - late_ns) }
    }
}

/// The delay on a straight line between two, after so much of the time that it takes.
fn between(from: Duration, to: Duration, passed: Duration, takes: Duration) -> Duration {
    let change = from.abs_diff(to);
    let part = change.as_nanos().saturating_mul(passed.as_nanos()).checked_div(takes.as_nanos());
    let part = Duration::from_nanos(part.and_then(|ns| u64::try_from(ns).ok()).unwrap_or(u64::MAX));
    if to >= from { from.saturating_add(part) } else { from.saturating_sub(part) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{DelayChange, LossChange};

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn delays_step_and_ramp_and_hold() {
        let step = |at, delay| DelayChange { at: ms(at), until: ms(at), delay: ms(delay) };
        let ramp = |at, until, delay| DelayChange { at: ms(at), until: ms(until), delay: ms(delay) };
        let config = ChannelConfig {
            start: Instant::from_millis(1_000),
            delay: ms(10),
            delay_changes: vec![step(100, 20), ramp(200, 300, 60), ramp(300, 500, 40)],
            ..ChannelConfig::default()
        };
        let at = |t: u64| config.delay_at(Instant::from_millis(t)).as_micros();
        let expected = [
            (0, 10_000),
            (1_099, 10_000),
            (1_100, 20_000),
            (1_200, 20_000),
            (1_225, 30_000),
            (1_300, 60_000),
            (1_400, 50_000),
            (1_500, 40_000),
            (99_000, 40_000),
        ];
        for (t, delay) in expected {
            assert_eq!(at(t), delay, "{t}");
        }
        assert_eq!(config.least_delay(), ms(10));
    }

    #[test]
    fn losses_change_and_frames_end() {
        let config = ChannelConfig {
            loss: 0.1,
            loss_changes: vec![LossChange { at: ms(5), loss: 0.5 }],
            jitter_frame: ms(20),
            ..ChannelConfig::default()
        };
        let at = Instant::from_millis;
        assert_eq!((config.loss_at(at(4)), config.loss_at(at(5))), (0.1, 0.5));
        assert_eq!([1, 20, 21, 40].map(|t| config.end_of_frame(at(t))), [20, 20, 40, 40].map(at));
        assert_eq!(ChannelConfig::default().end_of_frame(at(3)), at(3));
    }
}
