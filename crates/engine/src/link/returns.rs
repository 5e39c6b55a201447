//! Times at which a link came back, and what was on hand for it then.

use farlink_wire::{Duration, Instant};

/// A link that came back twice within a day comes and goes.
const LATELY: Duration = Duration::from_secs(24 * 3600);

/// What is on hand at the return of a link is all that it can carry until the source has heard of
/// it (Reynolds 2006, 3.3.7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Returns {
    /// How often it came back.
    pub times: u64,
    /// Bytes that were held for it when it came back last.
    pub on_hand_bytes: u64,
    /// The sum over all times.
    pub on_hand_total_bytes: u64,
    /// The last time, and the one before.
    at: [Option<Instant>; 2],
}

impl Returns {
    /// It is back, with so much held for it.
    pub(super) fn note(&mut self, now: Instant, on_hand_bytes: u64) {
        self.times += 1;
        self.at = [Some(now), self.at[0]];
        self.on_hand_bytes = on_hand_bytes;
        self.on_hand_total_bytes = self.on_hand_total_bytes.saturating_add(on_hand_bytes);
    }

    /// It comes and goes: it has come back more than once of late.
    pub(super) fn are_frequent(&self, now: Instant) -> bool {
        self.at[1].is_some_and(|at| now.since(at) < LATELY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_return_counts_and_two_within_a_day_are_frequent() {
        let at = |hours: u64| Instant::from_millis(hours * 3_600_000);
        let mut returns = Returns::default();
        returns.note(at(1), 3_000);
        assert!(!returns.are_frequent(at(2)));
        returns.note(at(20), 1_000);
        assert_eq!((returns.times, returns.on_hand_bytes, returns.on_hand_total_bytes), (2, 1_000, 4_000));
        assert!(returns.are_frequent(at(24)) && !returns.are_frequent(at(26)));
    }
}
