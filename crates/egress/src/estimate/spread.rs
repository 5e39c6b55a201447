//! How much the delay of a link varies by itself, without a queue: slots, frames, radio repeats,
//! bursts of a host's acknowledgements.
//!
//! Delay that grows may be a queue, and delay that falls a link that has become faster. Delay that
//! does both within a moment, by more than what has been sent explains, is neither. Therefore a
//! fall counts by as much as there was a rise just before. A link that becomes slower never looks
//! like one that jitters, and one whose rate moves hardly ever.

use farlink_wire::time::{Duration, Instant};

/// What is not confirmed halves in this time.
const HALF_LIFE: Duration = Duration::from_secs(10);
/// And a rise in this one, until a fall follows.
const RISE_HALF_LIFE: Duration = Duration::from_millis(250);
/// The spread is never taken for more than a quarter of a round trip, or than this where that is
/// shorter.
const MOST_MIN: Duration = Duration::from_millis(50);
/// A rate is taken over so many spreads at least: it is wrong by an eighth at most, then.
const RATE_SPREADS: u32 = 4;
/// But over half of a round trip, or over this where that is shorter, at most: what rises is to
/// be seen soon.
const RATE_TIME_MAX: Duration = Duration::from_millis(40);
/// And a lower one has to show for so many.
const FALL_SPREADS: u32 = 8;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spread {
    rise: Peak,
    both: Peak,
}

/// The largest value of late.
#[derive(Clone, Copy, Debug, Default)]
struct Peak {
    value: Duration,
    at: Instant,
}

impl Peak {
    fn after(&self, now: Instant, half_life: Duration) -> Duration {
        let age = now.since(self.at).as_nanos();
        let halves = u32::try_from(age / half_life.as_nanos()).unwrap_or(u32::MAX);
        let value = if halves < 32 { self.value / (1 << halves) } else { Duration::ZERO };
        // Evenly between two halves.
        let rest = u32::try_from(age % half_life.as_nanos() * 500 / half_life.as_nanos()).unwrap_or(0);
        value.saturating_sub(value / 1_000 * rest)
    }

    fn note(&mut self, now: Instant, value: Duration, half_life: Duration) {
        if value > self.after(now, half_life) {
            *self = Self { value, at: now };
        }
    }
}

impl Spread {
    /// What it is now.
    pub(super) fn now(&self, now: Instant) -> Duration {
        self.both.after(now, HALF_LIFE)
    }

    /// It varies by so much, as has been seen otherwise.
    pub(super) fn seed(&mut self, now: Instant, varies: Duration) {
        self.both.note(now, varies, HALF_LIFE);
    }

    /// A packet waited so long, where a queue would explain no less than `least` and no more than
    /// `most`.
    pub(super) fn note(
        &mut self,
        now: Instant,
        waited: Duration,
        (least, most): (Duration, Duration),
        rtt: Duration,
    ) {
        let fell = least.saturating_sub(waited);
        let both = fell.min(self.rise.after(now, RISE_HALF_LIFE)).min(Self::most(rtt));
        self.both.note(now, both, HALF_LIFE);
        self.rise.note(now, waited.saturating_sub(most), RISE_HALF_LIFE);
    }

    /// The most that delay is taken to vary by on its own.
    pub(super) fn most(rtt: Duration) -> Duration {
        (rtt / 4).max(MOST_MIN)
    }

    /// The time over which a rate is taken, at least.
    pub(super) fn rate_time(spread: Duration, rtt: Duration) -> Duration {
        (spread * RATE_SPREADS).min((rtt / 2).max(RATE_TIME_MAX))
    }

    /// The time for which a link has to seem slower until it is believed to be.
    pub(super) fn fall_time(spread: Duration) -> Duration {
        spread * FALL_SPREADS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_rises_and_falls_by_itself_counts_and_is_forgotten() {
        let (at, ms) = (Instant::from_millis, Duration::from_millis);
        let mut spread = Spread::default();
        spread.note(at(1_000), ms(500), (ms(0), ms(10)), ms(100));
        assert_eq!(spread.now(at(1_000)), ms(0), "it only rises: a queue, perhaps");
        spread.note(at(1_000), ms(4), (ms(20), ms(30)), ms(100));
        assert_eq!(spread.now(at(1_000)), ms(16));
        spread.note(at(2_000), ms(0), (ms(300), ms(300)), ms(100));
        assert_eq!(spread.now(at(2_000)).max(ms(31)), ms(31), "that rise was long ago");
        assert_eq!(spread.now(at(200_000)).as_micros(), 0);
        spread.note(at(1_000_000), ms(9_000), (ms(0), ms(0)), ms(400));
        spread.note(at(1_000_000), ms(0), (ms(9_000), ms(9_000)), ms(400));
        assert_eq!(spread.now(at(1_000_000)), ms(100), "no more than a quarter of a round trip");
        assert_eq!(spread.now(at(1_010_000)), ms(50));
        assert_eq!(spread.now(at(1_015_000)).as_micros(), 37_500, "evenly between two halves");
    }
}
