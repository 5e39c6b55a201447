//! How late the loop is that drives a gateway: it gets its processor when others leave it one. What
//! was measured across such a moment took longer by that much than the link did.

use farlink_wire::{Duration, Instant};

/// Less than this is what any loop needs to get round.
const LATE_MIN: Duration = Duration::from_millis(1);
/// So many late moments are remembered, the newest ones.
const REMEMBERED: usize = 16;

/// When the loop was late.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Late {
    /// From when something was due until it was done. The oldest ones are overwritten.
    moments: [(Instant, Instant); REMEMBERED],
    next: usize,
    /// When the loop got round first: what was due before has waited for no loop.
    began: Option<Instant>,
    longest: Duration,
}

impl Late {
    /// The loop gets round now; something was due then. Since when it has been late, if it has.
    pub fn note(&mut self, now: Instant, due: Instant) -> Option<Instant> {
        // What is known of already counts once.
        let began = *self.began.get_or_insert(now);
        let from = due.max(self.newest().1).max(began);
        let late = now.since(from);
        if due == Instant::ZERO || late < LATE_MIN {
            return None;
        }
        self.longest = self.longest.max(late);
        if let Some(moment) = self.moments.get_mut(self.next) {
            *moment = (from, now);
        }
        self.next = (self.next + 1) % REMEMBERED;
        Some(from)
    }

    fn newest(&self) -> (Instant, Instant) {
        self.moments.get((self.next + REMEMBERED - 1) % REMEMBERED).copied().unwrap_or_default()
    }

    /// For how long between these two moments the loop was late.
    pub fn between(&self, since: Instant, until: Instant) -> Duration {
        let overlap = |(from, to): &(Instant, Instant)| to.min(&until).since(*from.max(&since));
        self.moments.iter().map(overlap).fold(Duration::ZERO, |sum, late| sum + late)
    }

    /// The longest that it ever was.
    pub fn longest(&self) -> Duration {
        self.longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    #[test]
    fn what_spans_a_late_moment_is_late_by_as_much() {
        let mut late = Late::default();
        late.note(at(100), at(10));
        assert_eq!(late.longest(), Duration::ZERO, "it began then");
        late.note(at(1_300), at(1_000));
        assert_eq!(late.between(at(0), at(2_000)), Duration::from_millis(300));
        assert_eq!(late.between(at(1_200), at(1_250)), Duration::from_millis(50));
        assert_eq!(late.between(at(0), at(1_000)), Duration::ZERO);
        assert_eq!(late.between(at(1_300), at(2_000)), Duration::ZERO);
        // The same deadline was due when the loop got round before.
        late.note(at(1_400), at(1_000));
        assert_eq!(late.between(at(0), at(2_000)), Duration::from_millis(400));
        assert_eq!(late.longest(), Duration::from_millis(300));
    }

    #[test]
    fn old_moments_are_forgotten() {
        let mut late = Late::default();
        late.note(at(1), at(1));
        for n in 1..=100 {
            late.note(at(n * 100 + 10), at(n * 100));
        }
        assert_eq!(late.between(at(0), at(100_000)), Duration::from_millis(160));
    }
}
