//! Who speaks on a leg, told behind the handshake: where the SYNs that asked for a gateway were
//! lost, and one that went as it came was answered.
//!
//! The gateway that would have asked says who it is in acknowledgements that it makes for that. One
//! that hears it answers so. A box on the way may drop what it does not know: nothing else is lost
//! with them.

use farlink_wire::{Duration, FARLINK_DATA, FarlinkOption, Instant};

use super::{Hello, Peer};

/// Acknowledgements that ask. Count.
const ASKS_MAX: u8 = 8;
/// Acknowledgements that answer each one that asks. Count.
const ANSWERS_MAX: u8 = 2;
/// The second of them leaves so much later, and each one after twice as long: what loses one may
/// lose all of a burst.
const APART: Duration = Duration::from_millis(20);

/// What is left to be said on a leg of who speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Introduction {
    /// Nothing: the handshake has said it, or could have.
    #[default]
    None,
    /// The handshake has asked, and nobody has answered. Who is marked all the same has answered,
    /// and a box on the way has taken that out.
    Asked,
    /// This gateway asks.
    Asks(Left),
    /// Another one has asked.
    Answers(Left),
    /// The answer has come.
    Over,
    /// Nobody is heard here any more: what is marked does not arrive.
    Shut,
}

/// Acknowledgements that say it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Left {
    /// So many.
    count: u8,
    /// The next one not before this.
    at: Instant,
    apart: Duration,
}

impl Left {
    const fn begin(now: Instant, count: u8) -> Self {
        Self { count, at: now, apart: APART }
    }
}

impl Introduction {
    /// The handshake could not ask.
    #[must_use]
    pub const fn begin(now: Instant) -> Self {
        Self::Asks(Left::begin(now, ASKS_MAX))
    }

    /// An acknowledgement is to say it.
    #[must_use]
    pub fn is_due(self, now: Instant) -> bool {
        matches!(self, Self::Asks(left) | Self::Answers(left) if left.count > 0 && left.at <= now)
    }

    /// One has said it.
    pub fn note_said(&mut self, now: Instant) {
        if let Self::Asks(left) | Self::Answers(left) = self {
            *left = Left { count: left.count.saturating_sub(1), at: now + left.apart, apart: left.apart * 2 };
        }
    }

    /// A gateway on this leg may have said who it is. `of_client`: on the leg of the host that sent
    /// the SYN, which could have said it as well; on the other one only who was asked may say it.
    /// `own` is what is said of this one, which some boxes echo. Returns whether it shows that the
    /// handshake was answered, and a box on the way has taken the answer's option out.
    pub fn hear(
        &mut self,
        now: Instant,
        peer: &mut Peer,
        option: Option<&FarlinkOption>,
        of_client: bool,
        own: Hello,
    ) -> bool {
        let told = option.filter(|o| o.form == FARLINK_DATA && *self != Self::Shut);
        let Some(told) = told else { return false };
        let is_stripped = *self == Self::Asked;
        if is_stripped {
            *self = Self::begin(now);
        }
        let Some(hello) = Hello::find(&told.body) else { return is_stripped };
        // One that the handshake has told of itself asks all the same where it has not got the
        // answer.
        let is_known = peer.identity().is_some_and(|known| known != hello.identity);
        let is_unasked = *self == Self::None && (!of_client || is_known);
        if is_unasked || hello.identity == own.identity {
            return is_stripped;
        }
        if *peer == Peer::None {
            *peer = Peer::Offered(hello);
        }
        *self = match *self {
            Self::None => Self::Answers(Left::begin(now, ANSWERS_MAX)),
            Self::Answers(left) => Self::Answers(Left { count: ANSWERS_MAX, ..left }),
            Self::Asked | Self::Asks(_) | Self::Over => Self::Over,
            Self::Shut => Self::Shut,
        };
        is_stripped
    }

    /// Who is marked there is a gateway, though it has not been heard who it is.
    #[must_use]
    pub fn is_asking(self) -> bool {
        matches!(self, Self::Asked | Self::Asks(_))
    }

    /// The handshake has said who speaks, or could have.
    #[must_use]
    pub fn is_needless(self) -> bool {
        self == Self::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKING: Hello = Hello::of(super::super::Identity([0, 0, 0, 1]));
    const ANSWERING: Hello = Hello::of(super::super::Identity([0, 0, 0, 2]));

    fn said_by(hello: Hello) -> FarlinkOption {
        FarlinkOption { form: FARLINK_DATA, body: hello.body().iter().copied().collect() }
    }

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    /// How often it is said from then on, where something leaves each millisecond.
    fn times(word: &mut Introduction, from_ms: u64) -> usize {
        let mut due = |ms: &u64| {
            let is_due = word.is_due(at(*ms));
            is_due.then(|| word.note_said(at(*ms))).is_some()
        };
        (from_ms..from_ms + 9_000).filter(|ms| due(ms)).count()
    }

    #[test]
    fn both_find_each_other_and_stop_saying_so() {
        let (mut one, mut other) = (Introduction::begin(at(0)), Introduction::None);
        let (mut beyond, mut before) = (Peer::None, Peer::None);
        other.hear(at(250), &mut before, Some(&said_by(ASKING)), true, ANSWERING);
        assert_eq!((before, other.is_due(at(250))), (Peer::Offered(ASKING), true));
        one.hear(at(500), &mut beyond, Some(&said_by(ANSWERING)), false, ASKING);
        assert_eq!((beyond, times(&mut one, 500)), (Peer::Offered(ANSWERING), 0));
        assert_eq!(times(&mut other, 250), usize::from(ANSWERS_MAX));
        one.hear(at(9_000), &mut beyond, Some(&said_by(ANSWERING)), false, ASKING);
        assert_eq!(times(&mut one, 9_000), 0, "an answer is not answered");
        other.hear(at(9_999), &mut before, Some(&said_by(ASKING)), true, ANSWERING);
        assert!(other.is_due(at(9_999)), "who asks again has not heard the answer");
    }

    #[test]
    fn an_echo_and_a_mark_say_nothing_and_nobody_is_asked_for_ever() {
        let (mut one, mut peer) = (Introduction::begin(at(0)), Peer::None);
        let mark = FarlinkOption { form: FARLINK_DATA, body: Default::default() };
        for option in [Some(&said_by(ASKING)), Some(&mark), None] {
            one.hear(at(0), &mut peer, option, false, ASKING);
        }
        assert_eq!(peer, Peer::None);
        assert_eq!(times(&mut one, 0), usize::from(ASKS_MAX));
        assert!(!one.is_due(at(60_000)));
    }

    #[test]
    fn a_gateway_that_the_handshake_has_found_is_not_exchanged_for_another() {
        let (mut word, mut peer) = (Introduction::None, Peer::Offered(ASKING));
        let third = Hello::of(super::super::Identity([0, 0, 0, 3]));
        word.hear(at(0), &mut peer, Some(&said_by(third)), true, ANSWERING);
        assert_eq!((word, peer), (Introduction::None, Peer::Offered(ASKING)));
        peer = Peer::None;
        word.hear(at(0), &mut peer, Some(&said_by(third)), false, ANSWERING);
        assert_eq!((word, peer), (Introduction::None, Peer::None), "nobody was asked");
    }
}
