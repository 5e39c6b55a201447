//! Whether a link, or an ordinary interface, carries packets: by whose word, and what follows from
//! all of them.

use farlink_wire::Instant;

/// Whose word it is that a link is up or down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Witness {
    /// The kernel, by the carrier.
    Kernel,
    /// The operator, or the modem on his behalf.
    Operator,
    /// A plan that says when there is contact.
    ContactPlan,
    /// The silence of all connections over it, or that one of them is heard.
    Silence,
}

impl Witness {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Kernel, Self::Operator, Self::ContactPlan, Self::Silence];

    /// For people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Operator => "operator",
            Self::ContactPlan => "contact plan",
            Self::Silence => "silence",
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// What follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Nobody says that it is down.
    Up,
    /// Nothing is heard over it, and nobody knows why. It has just been asked.
    Suspect,
    /// The question stays unanswered: it is asked again and again, by one segment at a time, and
    /// nothing else is sent.
    Probing,
    /// Somebody who knows says so.
    Down,
}

/// All words on one link. One witness cannot take back another one's: it is up when nobody says
/// that it is down.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Evidence {
    /// Who says that it is down: one bit for each.
    denied_by: u8,
    /// A probe of its silence has stayed unanswered.
    is_probed: bool,
    /// Since when it has been down or probed; what was under way in it has not been sent again yet.
    away_since: Option<Instant>,
    /// It has been down since it came back last.
    was_down: bool,
}

impl State {
    /// For people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Suspect => "suspect",
            Self::Probing => "probing",
            Self::Down => "down",
        }
    }
}

impl Evidence {
    /// A witness speaks. Returns the state by all of them.
    pub(super) fn tell(&mut self, now: Instant, witness: Witness, up: bool) -> State {
        if up {
            self.denied_by &= !witness.bit();
        } else {
            self.denied_by |= witness.bit();
        }
        self.is_probed &= self.is_denied_by(Witness::Silence);
        self.follow(now)
    }

    /// What silence says is to be found out. Returns the state.
    pub(super) fn probe(&mut self, now: Instant) -> State {
        self.is_probed = self.is_denied_by(Witness::Silence);
        self.follow(now)
    }

    fn follow(&mut self, now: Instant) -> State {
        let state = self.state();
        self.was_down |= state == State::Down;
        if matches!(state, State::Down | State::Probing) {
            self.away_since.get_or_insert(now);
        }
        state
    }

    /// This witness says that it is down.
    #[must_use]
    pub const fn is_denied_by(self, witness: Witness) -> bool {
        self.denied_by & witness.bit() != 0
    }

    /// The witnesses who say that it is down.
    #[must_use]
    pub fn names(self) -> Vec<&'static str> {
        Witness::ALL.into_iter().filter(|w| self.is_denied_by(*w)).map(Witness::name).collect()
    }

    /// The state by all of them.
    #[must_use]
    pub const fn state(self) -> State {
        match self.denied_by {
            0 => State::Up,
            // Silence is no knowledge: a route may have moved, or the hosts behind it are gone.
            by if by == Witness::Silence.bit() && self.is_probed => State::Probing,
            by if by == Witness::Silence.bit() => State::Suspect,
            _ => State::Down,
        }
    }

    /// What was under way in it is being sent again. Returns whether it has been down: then all of
    /// that is lost.
    pub(super) fn come_back(&mut self) -> bool {
        self.away_since = None;
        core::mem::take(&mut self.was_down)
    }

    /// It is down or silent, or has been until just now: that nothing is heard of what is under way
    /// in it means nothing.
    #[must_use]
    pub const fn is_away(self) -> bool {
        self.away_since.is_some()
    }

    /// Since when.
    #[must_use]
    pub const fn away_since(self) -> Option<Instant> {
        self.away_since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::ZERO;

    #[test]
    fn it_is_up_when_nobody_says_that_it_is_down() {
        let mut e = Evidence::default();
        assert_eq!(e.tell(NOW, Witness::Operator, false), State::Down);
        assert_eq!(e.tell(NOW, Witness::Kernel, false), State::Down);
        assert_eq!(
            e.tell(NOW, Witness::Kernel, true),
            State::Down,
            "the operator's word outlasts the carrier's"
        );
        assert!(e.is_denied_by(Witness::Operator) && !e.is_denied_by(Witness::Kernel));
        assert_eq!(e.tell(NOW, Witness::ContactPlan, false), State::Down);
        assert_eq!(e.tell(NOW, Witness::Operator, true), State::Down, "there is no contact");
        assert_eq!(e.tell(NOW, Witness::ContactPlan, true), State::Up);
        assert!(e.is_away(), "until what was under way is sent again");
        assert!(e.come_back() && !e.is_away());
    }

    #[test]
    fn silence_alone_is_a_suspicion() {
        let mut e = Evidence::default();
        assert_eq!(e.tell(NOW, Witness::Silence, false), State::Suspect);
        assert!(!e.is_away());
        assert_eq!(e.tell(NOW, Witness::Kernel, false), State::Down);
        assert_eq!(e.tell(NOW, Witness::Kernel, true), State::Suspect);
        assert_eq!(e.tell(NOW, Witness::Silence, true), State::Up);
        assert!(e.come_back(), "it was down in between");
    }

    #[test]
    fn a_question_that_stays_unanswered_makes_a_suspicion_count() {
        let mut e = Evidence::default();
        assert_eq!(e.probe(NOW), State::Up, "nobody suspects it");
        e.tell(NOW, Witness::Silence, false);
        assert_eq!(e.probe(NOW), State::Probing);
        assert!(e.is_away());
        assert_eq!(e.tell(NOW, Witness::Kernel, false), State::Down);
        assert_eq!(e.tell(NOW, Witness::Silence, true), State::Down);
        assert_eq!(e.tell(NOW, Witness::Kernel, true), State::Up);
        e.come_back();
        assert_eq!(e.tell(NOW, Witness::Silence, false), State::Suspect, "asked anew");
        e.probe(NOW);
        assert_eq!(e.tell(NOW, Witness::Silence, true), State::Up);
        assert!(!e.come_back(), "nobody knows that anything was lost");
    }
}
