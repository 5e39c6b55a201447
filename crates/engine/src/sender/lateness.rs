//! How late the answers of a receiver come that answers all the time: from that shows soonest that
//! they have stopped.

use farlink_wire::{Duration, Instant, SeqNum};

use super::Sender;
use crate::ack_policy::AckPolicy;
use crate::rtt::micros;

/// A receiver that acknowledges at once may be later than usual by this at least.
const ANSWER_LATE_MIN: Duration = Duration::from_millis(1);
/// The first one may be later than its handshake by this.
const FIRST_LATE_MIN: Duration = Duration::from_millis(10);
/// It is not known before so many answers.
const ANSWERS_MIN: u8 = 16;
/// What was late once is remembered for so long at least, and twice as long at most.
const REMEMBERED: Duration = Duration::from_millis(500);
/// An answer may be later than all of them by this part.
const LATER_PART: u32 = 4;
/// And this late at any rate: where it is processed somebody else may have his turn.
const LATE_MIN: Duration = Duration::from_micros(500);

/// How much later answers come of late than the usual round trip and the answer before let expect.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lateness {
    answers: u8,
    since: Instant,
    /// The worst since then, microseconds: each sender has this, so it is small.
    worst_us: u32,
    /// The worst of the time before.
    worst_before_us: u32,
}

impl Lateness {
    fn note(&mut self, now: Instant, late: Duration) {
        if now.since(self.since) > REMEMBERED {
            self.worst_before_us = core::mem::take(&mut self.worst_us);
            self.since = now;
        }
        self.worst_us = self.worst_us.max(micros(late));
        self.answers = self.answers.saturating_add(1);
    }

    /// An answer that is later than this is missing.
    fn bound(&self) -> Option<Duration> {
        let worst = Duration::from_micros(self.worst_us.max(self.worst_before_us).into());
        (self.answers >= ANSWERS_MIN).then(|| (worst + worst / LATER_PART).max(LATE_MIN))
    }
}

impl Sender {
    /// When the segment left that draws the answer to the oldest one at once: more than one full
    /// segment is under way with it. One alone may be acknowledged late.
    fn to_be_answered(&self) -> Option<Instant> {
        let board = self.flight.board();
        board.first().filter(|r| !r.sacked && self.silence.timeouts == 0)?;
        board.exceeded_at(self.mss())
    }

    /// When it is answered if nothing disturbs, and whatever was heard before is no answer to it.
    /// `None`: what is usual is not known.
    fn answer_expected(&self, heard_at: Instant) -> Option<Instant> {
        let usual = self.rtt().srtt().filter(|_| !self.flight.is_after_outage())?;
        Some(heard_at.max(self.to_be_answered()? + usual))
    }

    /// An acknowledgement has come.
    pub(super) fn note_lateness(&mut self, now: Instant, ack: SeqNum) {
        let advanced = ack.after(self.snd_una());
        if advanced && let Some(expected) = self.answer_expected(self.flight.progress_at()) {
            self.lateness.note(now, now.since(expected));
        }
    }

    /// When a receiver that acknowledges every second segment at once has answered, and was heard
    /// over its link at `heard_at` last: `spared` is for answers that get lost, `first` how long
    /// the handshake took. `probe`: a window probe draws an answer at once, too. `None`: it need
    /// not answer yet, or what is usual is not known.
    #[must_use]
    pub fn answer_due(
        &self,
        heard_at: Instant,
        spared: Duration,
        first: Option<Duration>,
        probe: bool,
    ) -> Option<Instant> {
        let probed_at = || (probe && self.peer.is_unanswered()).then_some(self.asked_at);
        let left_at = self.to_be_answered().or_else(probed_at)?;
        let usual = match self.rtt().srtt() {
            Some(_) => self.rtt().rto(ANSWER_LATE_MIN, self.flight.rto_bounds().max),
            None => first? * 2 + FIRST_LATE_MIN,
        };
        Some(left_at.max(heard_at) + usual + spared + self.answers_late_by())
    }

    /// An answer is later than all were of late. Nothing new leaves then until one comes, or it is
    /// clear that the link is away: it is near, and its queue is here. Nor does what is held.
    pub(super) fn pauses(&self, now: Instant) -> bool {
        if self.governor.held_until(self.snd_nxt()).is_some_and(|until| now < until) {
            return true;
        }
        let is_near =
            || self.rtt().srtt().is_some_and(AckPolicy::is_near) && self.answers_late_by().is_zero();
        let expected = || self.answer_expected(self.flight.progress_at()).zip(self.lateness.bound());
        self.silence.expected.is_clocked && is_near() && expected().is_some_and(|(at, late)| now > at + late)
    }
}

#[cfg(test)]
mod tests {
    use farlink_cc::{Config, Controller};

    use super::super::{Plan, Purpose, RtoBounds};
    use super::*;

    /// One segment alone may wait for a delayed acknowledgement: what leaves behind it draws the
    /// answer.
    #[test]
    fn an_answer_is_due_from_when_the_second_segment_left() {
        let (at, ms) = (Instant::from_millis, Duration::from_millis);
        let bounds = RtoBounds { min: ms(200), max: ms(60_000) };
        let mut s = Sender::new(at(0), SeqNum(0), Controller::new(&Config::default()), 1000, false, bounds);
        let mut send = |now, seq, len| {
            let plan = Plan { seq: SeqNum(seq), len, fin: false, purpose: Purpose::New, mtu_probe: false };
            s.on_sent(now, &plan);
            s.answer_due(at(0), ms(3), Some(ms(1)), false)
        };
        assert_eq!(send(at(10), 0, 1000), None);
        assert_eq!(send(at(50), 1000, 200), Some(at(50) + ms(2) + FIRST_LATE_MIN + ms(3)));
        assert_eq!(send(at(60), 1200, 1000), Some(at(50) + ms(2) + FIRST_LATE_MIN + ms(3)));
    }

    #[test]
    fn what_was_late_once_may_be_late_again_and_is_forgotten() {
        let (at, ms) = (Instant::from_millis, Duration::from_millis);
        let mut lateness = Lateness::default();
        for n in 1..u64::from(ANSWERS_MIN) {
            lateness.note(at(n), Duration::ZERO);
        }
        assert_eq!(lateness.bound(), None, "too few");
        lateness.note(at(100), Duration::ZERO);
        assert_eq!(lateness.bound(), Some(LATE_MIN));
        lateness.note(at(200), ms(20));
        lateness.note(at(600), ms(3));
        assert_eq!(lateness.bound(), Some(ms(25)));
        lateness.note(at(1_200), ms(1));
        assert_eq!(lateness.bound(), Some(ms(3) + ms(3) / 4));
    }
}
