//! Whether XCP's own header gets through a link, to each gateway at its other end.
//!
//! A box on the way may drop a protocol that it does not know. So a gateway tells how many segments
//! with the header it has heard, and one that sends them looks whether that number grows. It is
//! tried out with copies of acknowledgements, which nobody misses. Until it is known to get
//! through, and where it does not, the option says what there is to say.

use arrayvec::ArrayVec;
use farlink_wire::{Duration, Instant};

use super::Link;
use crate::peer::Identity;

/// Gateways that are remembered.
const GATEWAYS_MAX: usize = 8;
/// Of so many that are sent one is heard of at least, or it is given up.
const UNANSWERED_MAX: u32 = 3;
/// What has been heard is told so often at most.
const TELL_EVERY: Duration = Duration::from_millis(250);
/// An answer may be late by this, beside two round trips: what is told waits for its time twice,
/// and for a segment to go with.
const LATE: Duration = Duration::from_secs(1);
/// The round trip that counts while none is known.
const RTT_DEFAULT: Duration = Duration::from_secs(1);
/// It is tried again after so long, and after twice as long each time, up to an hour.
const RETRY_FIRST: Duration = Duration::from_secs(60);
const RETRY_DOUBLINGS_MAX: u32 = 6;

/// What is to be done with the header now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Passage {
    /// It is not used.
    #[default]
    Shut,
    /// A copy of an acknowledgement tries it.
    Tried,
    /// Segments carry it.
    Open,
}

/// The gateways beyond a link that says it in this form.
#[derive(Clone, Debug, Default)]
pub struct Shims {
    /// The one that was met last stands last.
    ends: ArrayVec<End, GATEWAYS_MAX>,
}

/// One of them. Numbers are modulo 2^16: that they change is what counts.
#[derive(Clone, Copy, Debug)]
struct End {
    of: Identity,
    /// Segments with the header that have come from it.
    heard: u16,
    /// The number that it was told last, and when.
    told: Option<(u16, Instant)>,
    /// The number that it has told last.
    answer: Option<u16>,
    out: Out,
}

/// What goes there.
#[derive(Clone, Copy, Debug)]
enum Out {
    /// It has not been tried.
    New,
    /// So many have been tried since it was last known to get through, the last one then; none yet,
    /// and it has been in doubt since then.
    Tries { sent: u32, last_at: Instant },
    /// They get through; so many have left since it was last said, the first of them then.
    Open { unanswered: u32, since: Instant },
}

impl Link {
    /// To which gateways at its other end XCP's own header gets through; `None`: it is not used.
    #[must_use]
    pub fn shims(&self) -> Option<&Shims> {
        self.shims.as_ref()
    }

    pub(crate) fn shims_mut(&mut self) -> Option<&mut Shims> {
        self.shims.as_mut()
    }
}

impl End {
    const fn new(of: Identity) -> Self {
        Self { of, heard: 0, told: None, answer: None, out: Out::New }
    }

    fn passage(&self, now: Instant, rtt: Option<Duration>) -> Passage {
        let patience = rtt.unwrap_or(RTT_DEFAULT) * 2 + LATE;
        match self.out {
            Out::New => Passage::Tried,
            Out::Open { unanswered, since } => {
                let is_silent = unanswered >= UNANSWERED_MAX && now.since(since) > patience;
                if is_silent { Passage::Tried } else { Passage::Open }
            }
            Out::Tries { sent, last_at } => {
                let doublings = sent.saturating_sub(UNANSWERED_MAX).min(RETRY_DOUBLINGS_MAX);
                let wait = if sent < UNANSWERED_MAX { patience } else { RETRY_FIRST * (1 << doublings) };
                if now.since(last_at) > wait { Passage::Tried } else { Passage::Shut }
            }
        }
    }
}

impl Shims {
    fn get(&self, of: Identity) -> Option<&End> {
        self.ends.iter().find(|end| end.of == of)
    }

    fn get_mut(&mut self, of: Identity) -> Option<&mut End> {
        if self.get(of).is_none() {
            if self.ends.is_full() {
                self.ends.remove(0);
            }
            let _ = self.ends.try_push(End::new(of));
        }
        self.ends.iter_mut().find(|end| end.of == of)
    }

    /// What is to be done with it towards this gateway, whose round trip this is.
    #[must_use]
    pub fn passage(&self, now: Instant, of: Identity, rtt: Option<Duration>) -> Passage {
        self.get(of).map_or(Passage::Tried, |end| end.passage(now, rtt))
    }

    /// The same in a word, for people; empty: neither is known, nor has it been tried.
    #[must_use]
    pub fn word(&self, of: Identity) -> &'static str {
        match self.get(of).map(|end| end.out) {
            None | Some(Out::New) => "",
            Some(Out::Open { .. }) => "passes",
            Some(Out::Tries { sent: UNANSWERED_MAX.., .. }) => "given up",
            Some(Out::Tries { .. }) => "tried",
        }
    }

    /// A copy has been sent that tries it.
    pub fn note_tried(&mut self, now: Instant, of: Identity) {
        let Some(end) = self.get_mut(of) else { return };
        let before = if let Out::Tries { sent, .. } = end.out { sent } else { 0 };
        end.out = Out::Tries { sent: before.saturating_add(1), last_at: now };
    }

    /// A segment has been sent that carries it.
    pub fn note_sent(&mut self, now: Instant, of: Identity) {
        if let Some(End { out: Out::Open { unanswered, since }, .. }) = self.get_mut(of) {
            if *unanswered == 0 {
                *since = now;
            }
            *unanswered = unanswered.saturating_add(1);
        }
    }

    /// The gateway has heard so many. That means something once it has been sent one.
    pub fn hear_answer(&mut self, of: Identity, heard: u16) {
        let Some(end) = self.ends.iter_mut().find(|end| end.of == of) else { return };
        // What is told of those before the first try is late.
        let is_tried = !matches!(end.out, Out::New | Out::Tries { sent: 0, .. });
        if end.answer.replace(heard) != Some(heard) && is_tried {
            end.out = Out::Open { unanswered: 0, since: Instant::ZERO };
        }
    }

    /// What was sent to it is lost, and none of it answered: it is to be tried out anew, when all
    /// answers to what got through have come. Returns whether that is news.
    pub fn doubt(&mut self, now: Instant, of: Identity) -> bool {
        let end = self.ends.iter_mut().find(|end| end.of == of);
        let Some(end) = end.filter(|e| matches!(e.out, Out::Open { unanswered: 1.., .. })) else {
            return false;
        };
        end.out = Out::Tries { sent: 0, last_at: now };
        true
    }

    /// One has come from the gateway.
    pub fn hear(&mut self, of: Identity) {
        if let Some(end) = self.get_mut(of) {
            end.heard = end.heard.wrapping_add(1);
        }
    }

    /// What it is to be told now: how many it were.
    #[must_use]
    pub fn to_tell(&self, now: Instant, of: Identity) -> Option<u16> {
        let end = self.get(of)?;
        match end.told {
            Some((told, at)) if told == end.heard || now.since(at) < TELL_EVERY => None,
            None if end.heard == 0 => None,
            _ => Some(end.heard),
        }
    }

    /// It has been told this.
    pub fn note_told(&mut self, now: Instant, of: Identity, heard: u16) {
        if let Some(end) = self.get_mut(of) {
            end.told = Some((heard, now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Option<Duration> = Some(Duration::from_millis(200));

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    fn one() -> Identity {
        1.into()
    }

    #[test]
    fn it_is_tried_out_and_used_once_the_other_gateway_has_heard_it() {
        let mut shims = Shims::default();
        shims.hear_answer(one(), 7);
        assert_eq!(shims.passage(at(10), one(), RTT), Passage::Tried, "an answer to nothing");
        assert_eq!(shims.word(one()), "");
        shims.note_tried(at(10), one());
        assert_eq!(
            (shims.passage(at(11), one(), RTT), shims.word(one())),
            (Passage::Shut, "tried"),
            "one at a time"
        );
        shims.hear_answer(one(), 1);
        assert_eq!((shims.word(one()), shims.word(2.into())), ("passes", ""));
        assert_eq!(shims.passage(at(210), one(), RTT), Passage::Open);
        // So long as some of them are heard it stays open.
        for n in 0..100 {
            shims.note_sent(at(300 + n * 100), one());
            assert_eq!(shims.passage(at(300 + n * 100), one(), RTT), Passage::Open, "{n}");
            shims.hear_answer(one(), n as u16 + 9);
        }
        shims.note_sent(at(20_000), one());
        assert_eq!(shims.passage(at(90_000), one(), RTT), Passage::Open, "one alone may be lost");
        shims.note_sent(at(20_010), one());
        shims.note_sent(at(20_020), one());
        assert_eq!(shims.passage(at(21_400), one(), RTT), Passage::Open);
        assert_eq!(shims.passage(at(21_401), one(), RTT), Passage::Tried, "three are not");
        assert_eq!(shims.passage(at(21_401), 2.into(), RTT), Passage::Tried, "another gateway");
    }

    #[test]
    fn what_does_not_get_through_is_given_up_and_tried_again_ever_more_seldom() {
        let mut shims = Shims::default();
        let (mut now, mut tried) = (1_000, Vec::new());
        while now < 20_000_000 {
            if shims.passage(at(now), one(), RTT) == Passage::Tried {
                shims.note_tried(at(now), one());
                tried.push(now);
            }
            now += 100;
        }
        let waits: Vec<u64> = tried.windows(2).map(|w| (w[1] - w[0]).div_ceil(1_000)).collect();
        assert_eq!(waits[..9], [2, 2, 61, 121, 241, 481, 961, 1_921, 3_841]);
        assert!(waits[9..].iter().all(|s| *s == 3_841) && waits.len() > 10, "{waits:?}");
        assert_eq!(shims.word(one()), "given up");
        shims.hear_answer(one(), 1);
        assert_eq!(
            (shims.passage(at(now), one(), RTT), shims.word(one())),
            (Passage::Open, "passes"),
            "a box has gone"
        );
    }

    #[test]
    fn a_timeout_makes_doubt_only_of_what_is_not_answered() {
        let mut shims = Shims::default();
        assert!(!shims.doubt(at(0), one()));
        shims.note_tried(at(1), one());
        shims.hear_answer(one(), 1);
        assert!(!shims.doubt(at(2), one()), "nothing has left since");
        shims.note_sent(at(2), one());
        assert!(shims.doubt(at(1_000), one()) && !shims.doubt(at(1_000), one()));
        assert_eq!(shims.passage(at(2_400), one(), RTT), Passage::Shut);
        shims.hear_answer(one(), 2);
        assert_eq!(shims.passage(at(2_400), one(), RTT), Passage::Shut, "late, of what left before");
        assert_eq!(shims.passage(at(2_401), one(), RTT), Passage::Tried);
        shims.note_tried(at(2_401), one());
        shims.hear_answer(one(), 2);
        assert_eq!(shims.passage(at(2_402), one(), RTT), Passage::Shut);
        shims.hear_answer(one(), 3);
        assert_eq!(shims.passage(at(2_402), one(), RTT), Passage::Open);
    }

    #[test]
    fn what_has_been_heard_is_told_now_and_then() {
        let mut shims = Shims::default();
        assert_eq!(shims.to_tell(at(1), one()), None);
        shims.hear(one());
        assert_eq!(shims.to_tell(at(1), one()), Some(1), "the first at once");
        shims.note_told(at(1), one(), 1);
        shims.hear(one());
        assert_eq!(shims.to_tell(at(250), one()), None);
        assert_eq!(shims.to_tell(at(251), one()), Some(2));
        shims.note_told(at(251), one(), 2);
        assert_eq!(shims.to_tell(at(9_000), one()), None, "nothing new");
    }

    #[test]
    fn gateways_are_remembered_within_bounds() {
        let mut shims = Shims::default();
        for n in 1..=1_000 {
            shims.hear(n.into());
            assert!(shims.ends.len() <= GATEWAYS_MAX);
        }
        assert_eq!(shims.to_tell(at(1), 1_000.into()), Some(1));
        assert_eq!(shims.to_tell(at(1), one()), None);
    }
}
