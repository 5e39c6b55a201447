//! When what is sent left, for a round trip or two, also after it has been acknowledged.
//!
//! Where packets overtake each other, an acknowledgement often covers nothing that is new. What it
//! covers has arrived all the same, and all that left before that has passed every queue on the
//! way: a queue keeps the order.

use std::collections::VecDeque;

use farlink_wire::{Duration, Instant, SeqNum};

/// Moments that are kept.
const POINTS_MAX: usize = 128;

/// Where something stands in all that was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Departed {
    /// When it left.
    pub at: Instant,
    /// Where that begins which has left without a break, and how much of it goes up to here, bytes.
    pub place: (SeqNum, u32),
}

/// What left from there on, in about a moment.
#[derive(Clone, Copy, Debug)]
struct Point {
    begin: SeqNum,
    end: SeqNum,
    first_at: Instant,
    last_at: Instant,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Departures {
    /// All that follows has left without a break.
    origin: SeqNum,
    points: VecDeque<Point>,
}

impl Departures {
    /// New data left. Moments nearer to each other than `apart` are one.
    pub(super) fn note(&mut self, now: Instant, begin: SeqNum, end: SeqNum, apart: Duration) {
        if let Some(point) = self.points.back_mut()
            && point.end == begin
            && now.since(point.first_at) < apart.max(Duration::from_nanos(1))
        {
            (point.end, point.last_at) = (end, now);
            return;
        }
        if self.points.back().is_none_or(|point| point.end != begin) {
            self.points.clear();
            self.origin = begin;
        }
        if self.points.len() >= POINTS_MAX {
            self.points.pop_front();
        }
        self.points.push_back(Point { begin, end, first_at: now, last_at: now });
    }

    /// Where the byte before this stands; `None`: it left too long ago.
    pub(super) fn of(&self, end: SeqNum) -> Option<Departed> {
        let at = self.points.partition_point(|point| point.end.before(end));
        let point = self.points.get(at).filter(|point| point.begin.before(end))?;
        let bytes = end.since(point.begin);
        let took = point.last_at.since(point.first_at);
        // Evenly in between.
        let part = u64::from(bytes) * u64::try_from(took.as_nanos()).unwrap_or(0)
            / u64::from(point.end.since(point.begin).max(1));
        let place = (self.origin, end.since(self.origin));
        Some(Departed { at: point.first_at + Duration::from_nanos(part), place })
    }

    /// Memory of it, bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.points.capacity() * size_of::<Point>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_left_is_known_for_a_while_whether_acknowledged_or_not() {
        let (at, ms, seq) = (Instant::from_millis, Duration::from_millis, SeqNum);
        let mut log = Departures::default();
        assert_eq!(log.of(seq(1)), None);
        for n in 0..10 {
            log.note(at(100), seq(n * 1_000), seq(n * 1_000 + 1_000), ms(1));
        }
        let departed = |ms, bytes| Some(Departed { at: at(ms), place: (seq(0), bytes) });
        assert_eq!(log.of(seq(0)), None);
        assert_eq!(log.of(seq(1)), departed(100, 1));
        assert_eq!(log.of(seq(10_000)), departed(100, 10_000));
        assert_eq!(log.of(seq(10_001)), None, "it has not left");
        log.note(at(200), seq(10_000), seq(11_000), ms(20));
        log.note(at(210), seq(11_000), seq(12_000), ms(20));
        assert_eq!(log.of(seq(11_000)), departed(205, 11_000), "evenly in about a moment");
        assert_eq!(log.of(seq(12_000)), departed(210, 12_000));
        for n in 0..POINTS_MAX as u32 {
            let begin = 12_000 + n * 1_000;
            log.note(at(1_000 + u64::from(n) * 20), seq(begin), seq(begin + 1_000), ms(20));
        }
        assert_eq!(log.of(seq(12_000)), None, "bounded");
        log.note(at(9_000), seq(0), seq(1_000), ms(20));
        assert_eq!(log.of(seq(13_000)), None, "it begins anew elsewhere");
    }
}
