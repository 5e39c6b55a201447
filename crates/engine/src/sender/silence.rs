//! Nothing is heard of what was sent: after two timeouts in a row a segment at a time asks for the
//! receiver. Where it is known to be there and to answer round us, all that is held goes to it
//! blindly.

use farlink_wire::{Instant, SeqNum};

use super::timer::HOLE_RTOS;
use super::{Plan, Purpose, Sender, Supply};
use crate::link::PacketTime;

/// Timeouts in a row after which no more is sent than one segment each, whatever the controller
/// would allow.
const ASK_AFTER: u32 = 2;
/// The same where a queue of others may have held everything up, so that the first one may be too
/// early.
const ASK_AFTER_WAITING: u32 = 1;

/// The same where the link loses whole bursts: until then all of it is sent again, without
/// back-off.
const ASK_AFTER_LOSSES: u32 = 5;

/// What the link of a leg lets expect of its silences.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Expected {
    /// Segments may wait in a queue that is not ours.
    pub may_wait: bool,
    /// Nobody has said the rate of the link: a queue there may be longer than any timeout.
    pub is_unsaid: bool,
    /// The link's rate is declared, and its queue is the clock here.
    pub is_clocked: bool,
    /// They wait in ours alone: a gateway is at the other end of the link, and its rate is known.
    pub is_own: bool,
    /// Such a link loses whole bursts.
    pub is_lossy: bool,
    /// Acknowledgements may come later by so many microseconds: they have little room on the way
    /// back.
    pub acks_late_us: u32,
    /// How long packets take on it.
    pub packet_time: PacketTime,
}

/// How long nothing has been heard of what was sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Silence {
    /// Timeouts since the receiver acknowledged anything.
    pub timeouts: u32,
    /// What has been sent since the last one.
    pub asked_bytes: u32,
    /// When the first of them was.
    pub since: Instant,
    /// What the link lets expect.
    pub expected: Expected,
    /// Silences of the link that ended since the receiver acknowledged anything; a long one counts
    /// as several short ones.
    pub outlived: u8,
    /// The link has answered others meanwhile, so this silence is the receiver's own.
    pub is_alone: bool,
}

/// A silence in which a timer expired counts as so many in which none did.
const SHORT_SILENCES: u8 = 8;
/// The same where a gateway is to answer: it does so whether its host lives or not.
const SHORT_SILENCES_OWN: u8 = 3;

/// How a link is asked whether it carries anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Question {
    /// By the oldest segment, or the next one.
    Segment,
    /// By a small one: it may be large ones alone that get lost.
    Small,
}

impl Silence {
    /// The receiver, or the way there, may be gone: a segment asks for it. A controller without a
    /// window of its own would send all there is at every timeout, and a link would carry nothing
    /// but repetitions for hosts that are off.
    pub fn asks(&self) -> bool {
        self.timeouts >= if self.expected.may_wait { ASK_AFTER_WAITING } else { ASK_AFTER }
            && !self.persists()
    }
    /// It is over. What its link lets expect remains.
    fn over(self) -> Self {
        Self { expected: self.expected, ..Self::default() }
    }
    /// All that is under way is sent again at each timeout: it may have been lost as a whole.
    pub fn persists(&self) -> bool {
        self.expected.is_lossy && self.timeouts < ASK_AFTER_LOSSES
    }
    /// It has been asked, and nothing else is sent before the answer or the next timeout.
    pub fn waits(&self, mss: u32) -> bool {
        self.asks() && self.asked_bytes >= mss
    }
    /// So much has been sent.
    pub fn note_asked(&mut self, bytes: u32) {
        self.asked_bytes = self.asked_bytes.saturating_add(bytes);
    }
}

/// So often all that is held is passed over to a receiver that answers round us.
const BLIND_PASSES_MAX: u8 = 6;
/// The same where nothing shows that it does: it may be gone.
const GUESSED_PASSES_MAX: u8 = 2;
/// Such a pass takes this part of what the leg carried.
const GUESSED_PART: u64 = 8;
/// A receiver that takes what comes, and answers round us.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Blind {
    /// A pass is under way.
    pub on: bool,
    passes: u8,
    /// Nothing shows that the receiver answers round us.
    is_guess: bool,
    /// What the leg carried before it fell silent, bit/s.
    rate_bps: Option<u64>,
}

impl Sender {
    /// The receiver has been heard, whatever it said.
    pub fn on_word(&mut self, now: Instant) {
        if self.peer.on_word() {
            self.peer.ask_again_by(now + self.rto() * HOLE_RTOS);
        }
    }

    /// It has said how far the host behind it has come.
    pub fn on_answer(&mut self) {
        self.peer.on_answer();
    }

    /// A word of the receiver, heard `before` for the last time. After a silence it is the end of
    /// an outage, or of a way round us: if the oldest segment is still missing, it goes out at
    /// once, not when a timer that has backed off comes to it.
    pub fn hear_word(&mut self, now: Instant, before: Instant, ack: SeqNum) {
        if self.silence.asks()
            && before < self.silence.since
            && ack == self.snd_una()
            && !self.flight.is_empty()
        {
            self.silence = Silence { outlived: self.silence.outlived, ..Silence::default() };
            self.flight.reset_backoff();
            self.flight.mark_head_lost();
            self.flight.hasten_head();
            self.timers.rto = Some(now + self.rto());
        }
    }

    /// The silence is over, by an acknowledgement of something new. What is found lost of its time
    /// is no measure of the leg.
    pub(super) fn end_silence(&mut self) {
        // Where nobody has said the rate it may have been a queue as well: that is a round trip.
        if self.silence.asks() && !self.silence.expected.is_unsaid {
            self.flight.note_outage();
        }
        self.silence = self.silence.over();
        self.blind = Blind::default();
    }

    /// The link is away or silent: a deadline that passes meanwhile says nothing. What is due then
    /// waits until the link is back.
    pub fn put_off_timers(&mut self, now: Instant) {
        self.note_outage();
        self.peer.put_off(now);
        self.peer.miss_word(now, self.flight.rto_bounds().max);
        self.governor.on_timer(now);
        self.timers.put_off(now);
    }

    /// A timer asks the receiver for an answer.
    #[must_use]
    pub fn is_timed(&self) -> bool {
        self.timers.rto.is_some() || self.peer.is_waited_for()
    }

    /// The link has not carried all of what is under way.
    pub fn note_outage(&mut self) {
        self.flight.note_outage();
    }

    /// The next segment asks whether the link carries anything.
    pub fn ask_link(&mut self, question: Question) {
        self.link_question = Some(question);
    }

    /// A bare acknowledgement that comes now may be the answer to something that was sent after
    /// `since`: nothing is answered sooner than in a round trip.
    #[must_use]
    pub fn may_be_answered(&self, now: Instant, since: Instant) -> bool {
        let shortest = self.rtt().min_rtt() / 4 * 3;
        self.asked_at > since && now.since(self.asked_at) >= shortest
    }

    /// It has been asked for, and nothing else is sent before the answer or the next timeout.
    pub(super) fn waits_for_answer(&self) -> bool {
        self.silence.waits(self.mss()) && !self.blind.on
    }

    /// It does, when it has its turn.
    #[must_use]
    pub fn asks_link(&self) -> bool {
        self.link_question.is_some()
    }

    /// The link has answered others while a timer ran here, or more than once since anything was
    /// acknowledged.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.silence.is_alone
    }

    /// It has: the silence is the receiver's own, until it is heard again.
    pub fn leave_alone(&mut self) {
        self.silence.is_alone = true;
        self.peer.stop_inquiry();
    }

    /// Its source asks whether the receiver lives, and waits for its word. So does whoever is next
    /// on the way there, who is asked as well: a word is due as soon as an acknowledgement would
    /// be.
    pub fn inquire(&mut self, now: Instant) {
        self.peer.inquire(now + self.rto());
    }

    /// Nobody waits for that word any more.
    pub fn stop_inquiry(&mut self) {
        self.peer.stop_inquiry();
    }

    /// It has been asked, and nobody has been heard there since.
    #[must_use]
    pub fn is_inquired(&self) -> bool {
        self.peer.is_inquired()
    }

    /// Something waits for the link: an answer, or a window that was closed, or that there is
    /// anything to wait for.
    #[must_use]
    pub fn waits_for_link(&self, supply: &Supply) -> bool {
        !self.flight.is_empty()
            || self.peer.wants_probe()
            || self.peer.is_waited_for()
            || self.peer.is_inquired()
            || self.has_new(supply)
    }

    pub(super) fn plan_question(&mut self, supply: &Supply) -> Option<Plan> {
        let question = self.link_question.take()?;
        if question == Question::Segment {
            self.flight.mark_head_lost();
            self.flight.forget_losses();
            if let Some((seq, len)) = self.flight.next_lost(self.probe_bytes()) {
                let len = self.within_urgent(supply, seq, self.within_window(seq, len));
                return Some(self.with_fin(seq, len, supply, Purpose::Retransmit));
            }
            let (room, next) = (self.receiver_room(supply).min(self.probe_bytes()), self.snd_nxt());
            if self.flight.is_empty() && room > 0 {
                let len = self.within_urgent(supply, next, room);
                return Some(self.with_fin(next, len, supply, Purpose::New));
            }
        }
        Some(self.plan_window_probe())
    }

    /// The link carries again what it did not carry for a while, without anybody knowing why.
    /// Timeouts of that time come due now, without back-off, and congestion control hears nothing
    /// of them (compare RFC 5682: they were no sign of congestion).
    pub fn resume_after_silence(&mut self, now: Instant) {
        // Where no timer has expired it was a short one, and several in a row are the link's.
        let counts = match self.silence {
            Silence { timeouts: 0, .. } => 1,
            Silence { expected: Expected { is_own: true, .. }, .. } => SHORT_SILENCES_OWN,
            _ => SHORT_SILENCES,
        };
        let outlived = self.silence.outlived.saturating_add(counts);
        // Once it may have been the link, which was heard for a moment only.
        let is_alone = self.silence.is_alone || outlived > SHORT_SILENCES && !self.flight.is_empty();
        self.begin_anew_after_outage(now);
        self.silence = Silence { outlived, is_alone, ..self.silence.over() };
        if self.flight.is_empty() {
            return;
        }
        self.flight.doubt_head();
        self.note_outage();
        self.governor.undo_timeout(now);
        self.flight.mark_lost_by_timeout(now);
        self.flight.forget_losses();
        self.flight.hasten_head();
        self.timers.rto = Some(now + self.rto());
    }

    /// The first timeout of a silence: what the leg carried until then.
    pub(super) fn note_rate_before_silence(&mut self, now: Instant) {
        let carried = self.rtt().srtt().filter(|rtt| !rtt.is_zero()).map(|rtt| {
            u64::try_from(u128::from(self.cc().cwnd_bytes()) * 8_000_000_000 / rtt.as_nanos())
                .unwrap_or(u64::MAX)
        });
        if self.silence.timeouts == 0 {
            self.silence.since = now;
            self.blind = Blind { rate_bps: carried, ..Blind::default() };
        }
    }

    /// The receiver is there, and its acknowledgements go round us: no word of it will ever make
    /// room, and nobody else has what is held here. What has not been sent goes out, paced; at the
    /// next timeouts all of it, each time more slowly. `is_guess`: it is silent, and nothing shows
    /// more than that.
    pub fn pass_blindly(&mut self, supply: &Supply, is_guess: bool) {
        let most = if is_guess { GUESSED_PASSES_MAX } else { BLIND_PASSES_MAX };
        if self.blind.passes >= most || self.silence.timeouts == 0 {
            return;
        }
        self.blind.is_guess = is_guess;
        self.blind.passes += 1;
        self.blind.on = true;
        self.peer.stop_waiting();
        if self.blind.passes > 1 || !self.has_new(supply) {
            self.flight.resend_all();
        } else {
            // It has most of what was sent: else it would not be answering.
            self.flight.unmark_lost();
        }
    }

    /// The receiver is asked where it stands; its answer also tells what it has heard from the
    /// other host.
    pub fn ask(&mut self) {
        self.peer.ask();
    }

    /// Nothing more is to be passed over in this pass.
    pub(super) fn end_pass(&mut self, supply: &Supply) {
        if !self.flight.has_lost() && !self.has_new(supply) {
            self.blind.on = false;
        }
    }

    /// The rate of a pass, bit/s: what the leg carried, then a half of it, a third. `None`: a queue
    /// of our own is the clock.
    pub(super) fn blind_rate(&self) -> Option<u64> {
        let clocked = self.cc().kind().is_clocked_by_queue();
        let slower = u64::from(self.blind.passes.max(1)) * if self.blind.is_guess { GUESSED_PART } else { 1 };
        self.blind.rate_bps.filter(|_| !clocked).map(|rate| (rate / slower).max(1))
    }

    /// A pass goes on: the timer waits for its end.
    pub(super) fn hold_timer_while_blind(&mut self, now: Instant) {
        if self.blind.on {
            self.timers.rto = Some(now + self.rto());
        }
    }
}

#[cfg(test)]
mod tests {
    use farlink_cc::{Config, Controller, Kind};
    use farlink_wire::{Duration, SackBlock};

    use super::super::RtoBounds;
    use super::*;

    /// Ten segments are under way.
    fn sender(now: Instant) -> Sender {
        let cc = Controller::new(&Config { kind: Kind::FixedRate, ..Config::default() });
        let bounds = RtoBounds { min: Duration::from_millis(200), max: Duration::from_secs(60) };
        let mut s = Sender::new(now, SeqNum(0), cc, 1000, true, bounds);
        s.remember_rtt(Duration::from_millis(100));
        for n in 0..10 {
            let plan = Plan {
                seq: SeqNum(n * 1000),
                len: 1000,
                fin: false,
                purpose: Purpose::New,
                mtu_probe: false,
            };
            s.on_sent(now, &plan);
        }
        s
    }

    /// The last segments arrive alone: what is found to be lost, after so many timeouts.
    fn lost_after(timeouts: u32) -> u64 {
        let mut now = Instant::from_millis(5);
        let mut s = sender(now);
        for _ in 0..timeouts {
            now = s.timers.rto.unwrap();
            s.on_timer(now);
        }
        let head =
            Plan { seq: SeqNum(0), len: 1000, fin: false, purpose: Purpose::Retransmit, mtu_probe: false };
        s.on_sent(now, &head);
        now += Duration::from_millis(150);
        let block = SackBlock { start: SeqNum(6000), end: SeqNum(10_000) };
        s.on_ack(now, SeqNum(1000), &[block], true, false).lost_bytes
    }

    #[test]
    fn what_an_outage_loses_is_no_measure_of_the_leg() {
        assert!(lost_after(0) > 0);
        assert_eq!(lost_after(3), 0);
    }
}
