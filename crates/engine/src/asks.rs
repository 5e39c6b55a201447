//! When the hosts of a sleeping connection are asked whether they live (RFC 9293 3.8.4), where a
//! rule says so: an address translation on the way forgets a connection that says nothing.
//!
//! Both are asked at one time, each in the name of the other one. Each word of a host puts the next
//! question off. A host that leaves three questions unanswered ends them for both: from then on the
//! connection is as it would be without us, and its hosts find out by themselves.

use farlink_wire::{Duration, Instant};

use crate::side::{Pair, Side};

/// So many questions a host may leave unanswered, until none is asked any more.
const UNANSWERED_MAX: u8 = 3;

/// What a host has said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Word {
    /// What answers a keepalive: an acknowledgement with nothing new.
    Answer,
    /// Anything else.
    Other,
}

/// What follows when time has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// It is not time.
    Wait,
    /// Both hosts are asked.
    Ask,
    /// None is asked any more.
    Stop,
}

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct Asks {
    /// When the hosts are asked next; `None`: no more.
    at: Option<Instant>,
    /// How many questions in a row each host has left unanswered.
    unanswered: Pair<u8>,
    /// The next answer of this host is to us.
    is_open: Pair<bool>,
}

impl Asks {
    /// For the first time then.
    #[must_use]
    pub fn new(at: Instant) -> Self {
        Self { at: Some(at), unanswered: Pair::default(), is_open: Pair::default() }
    }

    /// When the hosts are asked next; `None`: no more.
    #[must_use]
    pub fn at(&self) -> Option<Instant> {
        self.at
    }

    /// A host has said something that its other host takes. Returns whether that answers us, and is
    /// nothing to the other host.
    pub fn hear(&mut self, now: Instant, every: Duration, from: Side, word: Word) -> bool {
        *self.unanswered.get_mut(from) = 0;
        let is_open = self.is_open.get_mut(from);
        if word == Word::Answer && core::mem::take(is_open) {
            return true;
        }
        if word == Word::Other {
            // It goes on, and the next answer of the other host may be to it.
            *self.is_open.get_mut(from.other()) = false;
        }
        if self.unanswered.a.max(self.unanswered.b) < UNANSWERED_MAX {
            self.at = Some(now + every);
        }
        false
    }

    /// Time may have come. `may_ask`: everything that a host has sent has arrived, and no link on
    /// the way is away. Where it may not, no question counts.
    pub fn step(&mut self, now: Instant, every: Duration, may_ask: bool) -> Step {
        if self.at.is_none_or(|at| at > now) {
            return Step::Wait;
        }
        self.at = Some(now + every);
        if !may_ask {
            return Step::Wait;
        }
        if self.unanswered.a.max(self.unanswered.b) >= UNANSWERED_MAX {
            (self.at, self.is_open) = (None, Pair::default());
            return Step::Stop;
        }
        for host in [Side::A, Side::B] {
            *self.unanswered.get_mut(host) += 1;
            *self.is_open.get_mut(host) = true;
        }
        Step::Ask
    }

    /// No rule wants it any more.
    pub fn end(&mut self) {
        (self.at, self.is_open) = (None, Pair::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_secs(60);

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn hosts_that_answer_are_asked_again_and_again() {
        let mut asks = Asks::new(at(60));
        assert_eq!(asks.step(at(59), EVERY, true), Step::Wait);
        for minute in 1..10 {
            assert_eq!(asks.step(at(60 * minute), EVERY, true), Step::Ask);
            for host in [Side::A, Side::B] {
                assert!(asks.hear(at(60 * minute + 1), EVERY, host, Word::Answer));
                assert!(!asks.hear(at(60 * minute), EVERY, host, Word::Answer), "one answer to one question");
                asks.at = Some(at(60 * minute + 60));
            }
        }
    }

    #[test]
    fn a_host_that_is_silent_for_three_ends_it_until_it_speaks() {
        let mut asks = Asks::new(at(60));
        for minute in 1..4 {
            assert_eq!(asks.step(at(60 * minute), EVERY, true), Step::Ask);
            asks.hear(at(60 * minute), EVERY, Side::A, Word::Answer);
        }
        assert_eq!(asks.step(at(240), EVERY, true), Step::Stop);
        assert_eq!((asks.at(), asks.step(at(1_000), EVERY, true)), (None, Step::Wait));
        asks.hear(at(2_000), EVERY, Side::A, Word::Other);
        assert_eq!(asks.at(), None, "the other one is silent still");
        assert!(!asks.hear(at(2_001), EVERY, Side::B, Word::Answer), "it answers the other host");
        assert_eq!(asks.at(), Some(at(2_061)));
    }

    #[test]
    fn the_answer_to_a_hosts_own_question_goes_on() {
        let mut asks = Asks::new(at(60));
        assert_eq!(asks.step(at(60), EVERY, true), Step::Ask);
        assert!(!asks.hear(at(61), EVERY, Side::A, Word::Other));
        assert!(!asks.hear(at(62), EVERY, Side::B, Word::Answer), "to a");
        assert_eq!(asks.at(), Some(at(122)));
    }

    #[test]
    fn an_outage_counts_for_nothing() {
        let mut asks = Asks::new(at(60));
        for minute in 1..10 {
            assert_eq!(asks.step(at(60 * minute), EVERY, false), Step::Wait);
        }
        assert_eq!(asks.step(at(600), EVERY, true), Step::Ask);
    }
}
