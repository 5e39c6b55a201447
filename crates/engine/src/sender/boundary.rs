//! Does the path become another one, at once? Where satellites take turns a packet is held for as
//! long as the link is away, and those after it take another time than those before.
//!
//! The link's queue finds that by what gateways report (`phases.rs` of `egress`), and every
//! connection is told. Where no gateway answers, a connection sees for itself that an answer took
//! much longer than the one before. A host may be late for reasons of its own, so that counts for
//! this connection only, and costs next to nothing where it is wrong: for one round trip nothing is
//! learned, and the smallest round trip is looked for anew.

use farlink_wire::{Duration, Instant};

use super::Sender;
use crate::anew::Anew;

/// An answer that comes by less later than the one before has met no boundary.
const HELD_MIN: Duration = Duration::from_millis(80);
/// One that comes later by more than this, or two round trips, has met an outage.
const HELD_MAX: Duration = Duration::from_secs(1);
/// It is so many times as much as answers are later than the one before on an average, by the last
/// of so many.
const USUAL_TIMES: u32 = 8;
const USUAL: u32 = 8;
/// And as the time in which the two left: a queue that others fill grows while a connection has a
/// break, and no faster than that, as a rule.
const QUEUE_TIMES: u32 = 8;
/// Two boundaries one after the other, so far apart at least.
const APART_MIN: Duration = Duration::from_secs(1);

/// By how much each answer took longer than the one before.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Steps {
    last: Option<(Instant, Duration)>,
    usual: Duration,
    seen: u32,
    /// When the last boundary was noticed.
    boundary_at: Option<Instant>,
    /// When the path became another one on the same way.
    pub(super) phase_at: Option<Instant>,
    /// Its smallest round trip is looked for.
    pub(super) anew: Option<Anew>,
    /// The smallest of all phases so far.
    pub(super) smallest: Option<Duration>,
}

impl Steps {
    /// An answer took so long. Whether it has met a boundary. `shortest`: the shortest round trip.
    pub(super) fn meets_boundary(&mut self, now: Instant, rtt: Duration, shortest: Duration) -> bool {
        let Some((sent_at, before)) = self.last.replace((now - rtt, rtt)) else { return false };
        let held = rtt.saturating_sub(before);
        let apart = (now - rtt).since(sent_at);
        let least = HELD_MIN.max(shortest).max(self.usual * USUAL_TIMES).max(apart * QUEUE_TIMES);
        let is_held = now - rtt >= sent_at && held >= least && held <= HELD_MAX.max(shortest * 2);
        let meets = is_held && self.seen >= USUAL && self.note_boundary(now);
        if !meets {
            self.seen = (self.seen + 1).min(USUAL);
            self.usual = self.usual / self.seen * (self.seen - 1) + held / self.seen;
        }
        meets
    }

    /// A boundary has been noticed, here or elsewhere. Whether that is news.
    fn note_boundary(&mut self, now: Instant) -> bool {
        let is_new = self.boundary_at.is_none_or(|at| now.since(at) >= APART_MIN);
        if is_new {
            self.boundary_at = Some(now);
        }
        is_new
    }
}

impl Sender {
    /// The path is another one from now on: what was sent before teaches nothing about it. What was
    /// known is a first guess.
    pub fn begin_phase(&mut self, now: Instant) {
        // Before the first answer nothing is known.
        if self.flight.steps.as_mut().is_some_and(|steps| steps.note_boundary(now)) {
            self.forget_phase(now);
        }
    }

    pub(super) fn forget_phase(&mut self, now: Instant) {
        self.flight.begin_phase(now);
        self.governor.begin_phase();
    }

    pub(super) fn settle_phase(&mut self, now: Instant, rtt: Option<Duration>) {
        if let Some(min_rtt) = rtt.and_then(|rtt| self.flight.settle_phase(now, rtt)) {
            self.governor.settle_phase(now, min_rtt);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(steps: &mut Steps, at_ms: u64, rtt_ms: u64) -> bool {
        let ms = Duration::from_millis;
        steps.meets_boundary(Instant::from_millis(at_ms), ms(rtt_ms), ms(40))
    }

    #[test]
    fn an_answer_that_is_held_has_met_a_boundary() {
        let mut steps = Steps::default();
        (0..20).for_each(|n| assert!(!of(&mut steps, 1_000 + n, 40 + n % 3)));
        assert!(of(&mut steps, 1_160, 180));
        assert!(!of(&mut steps, 1_300, 320), "at once another one is none");
        assert!(!of(&mut steps, 3_000, 60));
        assert!(!of(&mut steps, 3_001, 120), "less than the link was away");
        assert!(!of(&mut steps, 6_000, 4_000), "an outage");
    }

    #[test]
    fn packets_that_take_long_have_met_none() {
        let mut steps = Steps::default();
        (1..40).for_each(|n| assert!(!of(&mut steps, 10_000 + n * 100, 100 * n)));
    }

    #[test]
    fn a_queue_that_grew_in_a_break_is_none() {
        let mut steps = Steps::default();
        (0..20).for_each(|n| assert!(!of(&mut steps, 1_000 + n, 40 + n % 3)));
        assert!(!of(&mut steps, 1_220, 200), "that left 40 ms later");
    }

    #[test]
    fn a_boundary_is_told_of_once() {
        let mut steps = Steps::default();
        assert!(steps.note_boundary(Instant::from_millis(2_000)));
        assert!(!steps.note_boundary(Instant::from_millis(2_400)));
        assert!(steps.note_boundary(Instant::from_millis(4_000)));
    }
}
