//! How many handshakes that are under way will soon be connections.
//!
//! Who shares a link out leaves room for connections that begin together. But a SYN costs nothing
//! and may be anybody's, so SYNs alone must not narrow those that speak. Handshakes over a link
//! take its round trip at least, so they come to an end about as long after their SYNs as the last
//! one did. Those of which nothing has become by then speak against the ones that follow.

use farlink_wire::{Duration, Instant};

/// Parts of a round trip in which SYNs are counted together.
const SLOTS_PER_ROUND_TRIP: u32 = 8;
/// Slots that are remembered: four round trips.
const SLOTS: usize = 32;
/// A handshake counts as no longer than so many slots.
const HANDSHAKE_MAX: u64 = 20;
/// Handshakes that end up to so many slots later than another one are still under way.
const LATE_MAX: u64 = 4;

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// Which one since the beginning of time.
    number: u64,
    begun: u32,
    completed: u32,
}

/// Handshakes by the time of their SYN.
#[derive(Clone, Debug)]
pub struct Arrivals {
    width: Duration,
    slots: [Slot; SLOTS],
}

impl Arrivals {
    /// For a link of this round trip.
    #[must_use]
    pub fn new(round_trip: Duration) -> Self {
        let width = (round_trip / SLOTS_PER_ROUND_TRIP).max(Duration::from_millis(1));
        Self { width, slots: [Slot::default(); SLOTS] }
    }

    /// So long it takes until more is known.
    #[must_use]
    pub fn width(&self) -> Duration {
        self.width
    }

    fn number(&self, at: Instant) -> u64 {
        self.slots_in(at.since(Instant::ZERO))
    }

    fn slots_in(&self, time: Duration) -> u64 {
        self.slots_in_ns(time.as_nanos())
    }

    fn slots_in_ns(&self, time_ns: u128) -> u64 {
        u64::try_from(time_ns / self.width.as_nanos().max(1)).unwrap_or(u64::MAX)
    }

    fn slot(&mut self, number: u64) -> Option<&mut Slot> {
        self.slots.get_mut(usize::try_from(number).unwrap_or(0) % SLOTS)
    }

    /// A handshake begins.
    pub fn begin(&mut self, now: Instant) {
        let number = self.number(now);
        let Some(slot) = self.slot(number) else { return };
        if slot.number != number {
            *slot = Slot { number, ..Slot::default() };
        }
        slot.begun = slot.begun.saturating_add(1);
    }

    /// The round trip is another, or has become known: what has been counted stays.
    pub fn follow(&mut self, round_trip: Duration) {
        let old = core::mem::replace(self, Self::new(round_trip));
        for Slot { number, begun, completed } in old.slots {
            let number = self.slots_in_ns(old.width.as_nanos().saturating_mul(number.into()));
            let Some(slot) = self.slot(number) else { return };
            // What is newer stays.
            if slot.number < number {
                *slot = Slot { number, begun, completed };
            } else if slot.number == number {
                slot.begun = slot.begun.saturating_add(begun);
                slot.completed = slot.completed.saturating_add(completed);
            }
        }
    }

    /// One that began at `syn_at` is complete.
    pub fn complete(&mut self, syn_at: Instant) {
        let number = self.number(syn_at);
        if let Some(slot) = self.slot(number).filter(|s| s.number == number) {
            slot.completed = (slot.completed + 1).min(slot.begun);
        }
    }

    /// Of those that began about as long ago as a handshake takes (`handshake`: so long did the
    /// last one), so many can be expected to become connections: the more of the older ones have
    /// come to nothing, the fewer.
    #[must_use]
    pub fn expected(&self, now: Instant, handshake: Duration) -> usize {
        let last = self.number(now);
        let took = self.slots_in(handshake).clamp(u64::from(SLOTS_PER_ROUND_TRIP), HANDSHAKE_MAX);
        let (mut due, mut overdue, mut completed) = (0u64, 0u64, 0u64);
        for slot in self.slots.iter().filter(|s| s.number <= last && last - s.number < SLOTS as u64) {
            let (age, open) = (last - slot.number, u64::from(slot.begun - slot.completed));
            completed += u64::from(slot.completed);
            due += if (took - 1..=took + 1 + LATE_MAX).contains(&age) { open } else { 0 };
            overdue += if age > took + 1 { open } else { 0 };
        }
        // Twice: most of what is late by a slot or two is only late, what is late by many will
        // never come.
        let share = |n: u64| n * (completed + 1) / (completed + 1 + overdue);
        usize::try_from(share(share(due))).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP: Duration = Duration::from_millis(400);
    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(10_000 + ms)
    }

    #[test]
    fn those_that_began_together_are_expected_together() {
        let mut a = Arrivals::new(ROUND_TRIP);
        (0..100).for_each(|_| a.begin(at(0)));
        for n in 0..100 {
            assert_eq!(a.expected(at(410), Duration::from_millis(410)), 100 - n);
            a.complete(at(0));
        }
        assert_eq!(a.expected(at(410), Duration::from_millis(410)), 0);
    }

    #[test]
    fn syns_of_which_nothing_becomes_are_soon_expected_no_more() {
        let mut a = Arrivals::new(ROUND_TRIP);
        for ms in 0..2_000 {
            a.begin(at(ms));
            if ms == 50 {
                a.begin(at(ms));
            }
            if ms == 460 {
                a.complete(at(50));
            }
            let expected = a.expected(at(ms), ROUND_TRIP);
            let most = if ms < 600 { 150 + expected.min(1) } else { 1 };
            assert!(expected <= most, "{expected} at {ms} ms");
        }
    }

    #[test]
    fn another_round_trip_forgets_nobody() {
        let mut a = Arrivals::new(Duration::from_millis(20));
        (0..20).for_each(|ms| a.begin(at(ms)));
        a.follow(ROUND_TRIP);
        a.complete(at(0));
        assert_eq!(a.expected(at(400), ROUND_TRIP), 19);
        a.follow(ROUND_TRIP * 2);
        assert_eq!(a.expected(at(400), ROUND_TRIP), 0);
        assert_eq!(a.expected(at(800), ROUND_TRIP * 2), 19);
    }

    #[test]
    fn what_is_long_past_is_forgotten() {
        let mut a = Arrivals::new(ROUND_TRIP);
        (0..100).for_each(|_| a.begin(at(0)));
        a.begin(at(5_000));
        assert_eq!(a.expected(at(5_400), ROUND_TRIP), 1);
        a.complete(at(0));
        assert_eq!(a.expected(at(5_400), ROUND_TRIP), 1);
    }
}
