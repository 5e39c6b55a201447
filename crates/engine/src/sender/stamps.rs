//! The receiver's clock (RFC 7323): how long its acknowledgements wait on their way back.
//!
//! A host stamps what it sends. So an acknowledgement shows when it left, by a clock of which only
//! the differences are known, and by how much more than any other it has waited since. What made a
//! round trip longer on the way there is not in it. That holds if the clock counts milliseconds, as
//! those of most hosts do. It does if it goes on by as much as the time in which what is
//! acknowledged was sent.

use farlink_wire::{Duration, Instant, Timestamps};

/// Less time than this shows no clock.
const SHOWN_MIN: Duration = Duration::from_millis(8);
/// Two stamps differ by up to this more or less than the times do.
const GRAIN_MS: u64 = 2;
/// A clock that is slower than this by the time in which was sent, percent, counts no milliseconds.
const SLOW_PERCENT: u64 = 75;
/// Nor does one that is so many times as fast, for longer than anything waits on its way there.
const FAST_TIMES: u64 = 2;
const WAITS_MAX_MS: u64 = 10_000;
/// The acknowledgement that has waited least is remembered for so long, and twice as long at most:
/// clocks drift.
const REMEMBERED: Duration = Duration::from_secs(300);

/// What is known of that clock.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stamps {
    /// The stamp of the segment that has just come.
    now: Option<u32>,
    began: Option<Began>,
    /// It counts milliseconds.
    is_ms: bool,
    /// The shortest way back, milliseconds by the two clocks: of this span of time, and the one
    /// before.
    least_ms: [Option<i64>; 2],
    since: Instant,
    waits: Option<Duration>,
}

/// The first acknowledgement: when it came, when what it covers had left, its stamp.
#[derive(Clone, Copy, Debug)]
struct Began {
    at: Instant,
    sent_at: Instant,
    stamp: u32,
}

impl Stamps {
    /// The segment that has just come has this stamp.
    pub fn set(&mut self, stamps: Option<Timestamps>) {
        self.now = stamps.map(|stamps| stamps.val);
    }

    /// It acknowledges what was sent once, so long ago; `None`: nobody knows when that left.
    pub fn note(&mut self, now: Instant, rtt: Option<Duration>) {
        self.waits = None;
        let Some(stamp) = self.now.take() else { return };
        let sent_at = rtt.map(|rtt| now - rtt);
        let begins = || sent_at.map(|sent_at| Began { at: now, sent_at, stamp });
        let Some(began) = self.began.or_else(begins) else { return };
        self.began = Some(began);
        let counted = stamp.wrapping_sub(began.stamp);
        if counted > u32::MAX / 2 {
            // An old one that was overtaken.
            return;
        }
        let counted = u64::from(counted);
        if let Some(sent_at) = sent_at {
            self.judge(sent_at.since(began.sent_at), counted);
        }
        let passed = i64::try_from(now.since(began.at).as_millis()).unwrap_or(i64::MAX);
        let back = passed.saturating_sub(i64::try_from(counted).unwrap_or(i64::MAX));
        if now.since(self.since) >= REMEMBERED {
            self.least_ms = [None, self.least_ms.first().copied().flatten()];
            self.since = now;
        }
        let [least, before] = &mut self.least_ms;
        let least = *least.insert(least.map_or(back, |least| least.min(back)));
        let least = before.map_or(least, |before| before.min(least));
        let waits = u64::try_from(back.saturating_sub(least)).unwrap_or(0);
        // A millisecond may be begun twice.
        let waits = Duration::from_millis(waits.saturating_sub(1));
        self.waits = self.is_ms.then(|| waits.min(rtt.unwrap_or(waits)));
    }

    fn judge(&mut self, sent: Duration, counted_ms: u64) {
        let sent_ms = u64::try_from(sent.as_millis()).unwrap_or(u64::MAX);
        if sent < SHOWN_MIN {
            return;
        }
        let is_slow = counted_ms.saturating_add(GRAIN_MS) < sent_ms / 100 * SLOW_PERCENT;
        let is_fast = counted_ms > sent_ms.saturating_mul(FAST_TIMES).saturating_add(WAITS_MAX_MS);
        self.is_ms = !is_slow && !is_fast;
    }

    /// So much longer than the shortest of its way back the last acknowledgement took; `None`:
    /// nobody knows.
    pub fn waits(&self) -> Option<Duration> {
        self.waits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Acknowledgements of segments that left a millisecond and a half apart, each this much later
    /// than the one before on its way there and back, by a clock of so many ticks a second.
    fn waits(later_us: [u64; 2], hertz: u64) -> Option<u128> {
        let mut stamps = Stamps::default();
        for n in 0..100_u64 {
            let (sent, [there, back]) = (n * 1_500, later_us.map(|us| us * n + 20_000));
            let arrived = sent + there;
            let now = Instant::ZERO + Duration::from_micros(arrived + back);
            let val = u32::MAX.wrapping_add((arrived * hertz / 1_000_000) as u32);
            stamps.set(Some(Timestamps { val, ecr: 0 }));
            stamps.note(now, Some(Duration::from_micros(there + back)));
        }
        stamps.waits().map(|waits| waits.as_millis())
    }

    #[test]
    fn only_what_waits_on_its_way_back_counts() {
        assert_eq!(waits([0, 0], 1_000), Some(0));
        assert!(waits([6_000, 0], 1_000).is_some_and(|ms| ms == 0), "the way there is slow");
        assert!(waits([0, 6_000], 1_000).is_some_and(|ms| ms.abs_diff(594) <= 2), "the way back is");
    }

    #[test]
    fn a_clock_that_counts_something_else_tells_nothing() {
        assert_eq!(waits([0, 6_000], 100), None);
        assert_eq!(waits([0, 6_000], 2), None);
    }
}
