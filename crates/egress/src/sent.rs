//! How much has been sent into a link, and when: so that what waited before it once can be reckoned
//! forward.

use std::collections::VecDeque;

use farlink_wire::time::{Duration, Instant};

/// Points that are kept.
const POINTS_MAX: usize = 2048;

/// Bytes that have left, over the time of a few round trips.
#[derive(Clone, Debug, Default)]
pub(crate) struct SentLog {
    points: VecDeque<(Instant, u64)>,
    total_bytes: u64,
}

impl SentLog {
    /// By now `total_bytes` have left in all. Points nearer to each other than `apart` are not
    /// kept.
    pub(crate) fn note(&mut self, now: Instant, total_bytes: u64, apart: Duration) {
        self.total_bytes = total_bytes;
        if self.points.back().is_some_and(|(at, total)| now.since(*at) < apart || *total == total_bytes) {
            return;
        }
        if self.points.len() >= POINTS_MAX {
            self.points.pop_front();
        }
        self.points.push_back((now, total_bytes));
    }

    /// Nothing has been noted.
    pub(crate) fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// What had left in all when that was noted last.
    pub(crate) const fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// Bytes that have left since `then`, where `total_bytes` have left in all by `now`; `None`:
    /// that is too long ago.
    pub(crate) fn since(&self, then: Instant, now: Instant, total_bytes: u64) -> Option<u64> {
        let at = self.points.partition_point(|(at, _)| *at <= then).checked_sub(1)?;
        let &(from, before) = self.points.get(at)?;
        let &(to, after) = self.points.get(at + 1).unwrap_or(&(now, total_bytes));
        // Evenly between two points.
        let span = to.since(from).as_nanos().max(1);
        let part = then.since(from).as_nanos().min(span);
        let grown = u128::from(after.saturating_sub(before)) * part / span;
        Some(total_bytes.saturating_sub(before.saturating_add(u64::try_from(grown).unwrap_or(u64::MAX))))
    }

    /// Bytes that had left in all by `then`; `None`: that is too long ago.
    pub(crate) fn total_by(&self, then: Instant, now: Instant) -> Option<u64> {
        if self.points.is_empty() {
            return Some(self.total_bytes);
        }
        Some(self.total_bytes.saturating_sub(self.since(then, now, self.total_bytes)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_left_since_then_is_known_for_a_while() {
        let (ms, at) = (Duration::from_millis, Instant::from_millis);
        let mut log = SentLog::default();
        assert_eq!(log.since(at(100), at(100), 0), None);
        log.note(at(100), 1_000, ms(10));
        log.note(at(105), 5_000, ms(10));
        log.note(at(120), 3_000, ms(10));
        assert_eq!(log.since(at(110), at(200), 9_000), Some(7_000), "half of 2,000 by then");
        assert_eq!(log.since(at(160), at(200), 9_000), Some(3_000));
        assert_eq!(log.since(at(99), at(200), 9_000), None);
        for i in 0..POINTS_MAX as u64 {
            log.note(at(300 + 10 * i), 10_000 + i, ms(10));
        }
        assert_eq!(log.since(at(120), at(9_000), 20_000), None, "bounded");
    }
}
