//! The smallest round trip of a path that has just become another one.
//!
//! What the path before had is a first guess. What waited at the boundary makes round trips longer
//! for a while, and shows nothing. After that the smallest one of many is the path's.

use farlink_wire::{Duration, Instant};

/// What waited at the boundary has gone after so many round trips of the path before, or after so
/// long. The smallest one is looked for as long again.
const SETTLE_ROUNDS: u32 = 8;
const SETTLE_MIN: Duration = Duration::from_millis(500);
/// Fewer round trips show nothing.
const SEEN_MIN: u32 = 8;
/// Another satellite is farther away by no more than this, and twice the round trip before. What
/// takes longer has waited: the path has become slow at the boundary, not long.
const LONGER_MAX: Duration = Duration::from_millis(100);

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct Anew {
    from: Instant,
    until: Instant,
    seen: u32,
    smallest: Duration,
    before: Duration,
}

impl Anew {
    /// From now on, where a round trip took so long at least before.
    pub fn begin(now: Instant, before: Duration) -> Self {
        let lasts = (before * SETTLE_ROUNDS).max(SETTLE_MIN);
        Self { from: now + lasts, until: now + lasts * 2, seen: 0, smallest: Duration::MAX, before }
    }

    /// A round trip took so long. Returns the smallest once it is known.
    pub fn note(&mut self, now: Instant, rtt: Duration) -> Option<Duration> {
        if now < self.from {
            return None;
        }
        self.seen = (self.seen + 1).min(SEEN_MIN);
        self.smallest = self.smallest.min(rtt);
        let is_path = self.smallest <= self.before * 2 + LONGER_MAX;
        let known = if is_path { self.smallest } else { self.before };
        (now >= self.until && self.seen >= SEEN_MIN).then_some(known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waited_at_the_boundary_shows_nothing() {
        let (ms, at) = (Duration::from_millis, Instant::from_millis);
        let mut anew = Anew::begin(at(1_000), ms(30));
        assert!((0..50).all(|n| anew.note(at(1_000 + n * 10), ms(200 - n)).is_none()));
        assert!((0..50).all(|n| anew.note(at(1_500 + n * 10), ms(60 + n)).is_none()));
        assert_eq!(anew.note(at(2_000), ms(70)), Some(ms(60)));
        let mut anew = Anew::begin(at(1_000), ms(30));
        assert!((0..7).all(|n| anew.note(at(9_000 + n), ms(60)).is_none()), "too few");
        assert_eq!(anew.note(at(9_100), ms(70)), Some(ms(60)));
        let mut anew = Anew::begin(at(1_000), ms(50));
        assert!((0..7).all(|n| anew.note(at(9_000 + n), ms(15_000)).is_none()));
        assert_eq!(anew.note(at(9_100), ms(16_000)), Some(ms(50)), "a queue");
    }
}
