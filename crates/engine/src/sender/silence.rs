//! Nothing is heard of what was sent: after two timeouts in a row a segment at a time asks for the receiver. Where it is known to be there
//! and to answer round us, all that is held goes to it blindly.

use farlink_wire::{Instant, SeqNum};

use super::{Plan, Purpose, Sender, Supply};
use crate::recovery::Recovery;

/// Timeouts in a row after which no more is sent than one segment each, whatever the controller would allow.
const ASK_AFTER: u32 = 2;
/// The same where a queue of others may have held everything up, so that the first one may be too early.
const ASK_AFTER_WAITING: u32 = 1;

/// How long nothing has been heard of what was sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Silence {
    /// Timeouts since the receiver acknowledged anything.
    pub timeouts: u32,
    /// What has been sent since the last one.
    pub asked_bytes: u32,
    /// When the first of them was.
    pub since: Instant,
    /// Segments may wait in a queue that is not ours.
    pub may_wait: bool,
    /// Silences of the link that ended since the receiver acknowledged anything.
    pub outlived: u8,
    /// The link has answered others meanwhile, so this silence is the receiver's own.
    pub is_alone: bool,
}

/// How a link is asked whether it carries anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Question {
    /// By the oldest segment, or the next one.
    Segment,
    /// By a small one: it may be large ones alone that get lost.
    Small,
}

impl Silence {
    /// The receiver, or the way there, may be gone: a segment asks for it. A controller without a window of its own would send
    /// all there is at every timeout, and a link would carry nothing but repetitions for hosts that are off.
    pub fn asks(&self) -> bool {
        self.timeouts >= if self.may_wait { ASK_AFTER_WAITING } else { ASK_AFTER }
    }
    /// It has been asked, and nothing else is sent before the answer or the next timeout.
    pub fn waits(&self, mss: u32) -> bool {
        self.asks() && self.asked_bytes >= mss
    }
}

/// So often all that is held is passed over to a receiver that answers round us.
const BLIND_PASSES_MAX: u8 = 6;
/// A receiver that takes what comes, and answers round us.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Blind {
    /// A pass is under way.
    pub on: bool,
    passes: u8,
    /// What the leg carried before it fell silent, bit/s.
    rate_bps: Option<u64>,
}

impl Sender {
    /// A word of the receiver, heard `before` for the last time. After a silence it is the end of an outage, or of a way round us: if the
    /// oldest segment is still missing, it goes out at once, not when a timer that has backed off comes to it.
    pub fn hear_word(&mut self, now: Instant, before: Instant, ack: SeqNum) {
        if self.silence.asks() && before < self.silence.since && ack == self.snd_una && !self.board.is_empty()
        {
            self.silence = Silence { outlived: self.silence.outlived, ..Silence::default() };
            self.rtt.reset_backoff();
            self.board.mark_head_lost(self.mss);
            self.head_due = true;
            self.timers.rto = Some(now + self.rto());
        }
    }

    /// The silence is over, by an acknowledgement of something new. What is found lost of its time is no measure of the leg.
    pub(super) fn end_silence(&mut self) {
        if self.silence.asks() {
            self.outage_until = Some(self.snd_nxt);
        }
        self.silence = Silence::default();
        self.blind = Blind::default();
    }

    /// The link is away or silent: a deadline that passes meanwhile says nothing. What is due then waits until the link is back.
    pub fn put_off_timers(&mut self, now: Instant) {
        self.note_outage();
        let t = &mut self.timers;
        if t.persist.is_some_and(|at| at <= now) {
            // Whether the window has opened is asked as soon as anything can be.
            self.window_probe_wanted = true;
        }
        for timer in
            [&mut t.rto, &mut t.probe, &mut t.reorder, &mut t.persist, &mut t.hole, &mut t.pace, &mut t.early]
        {
            *timer = timer.filter(|at| *at > now);
        }
    }

    /// A timer asks the receiver for an answer.
    #[must_use]
    pub fn is_timed(&self) -> bool {
        self.timers.rto.is_some() || self.timers.persist.is_some()
    }

    /// The link has not carried all of what is under way.
    pub fn note_outage(&mut self) {
        self.outage_until = (!self.board.is_empty()).then_some(self.snd_nxt);
    }

    /// The next segment asks whether the link carries anything.
    pub fn ask_link(&mut self, question: Question) {
        self.link_question = Some(question);
    }

    /// A bare acknowledgement that comes now may be the answer to something that was sent after `since`: nothing is answered sooner than
    /// in a round trip.
    #[must_use]
    pub fn may_be_answered(&self, now: Instant, since: Instant) -> bool {
        let shortest = self.rtt.min_rtt() / 4 * 3;
        self.asked_at > since && now.since(self.asked_at) >= shortest
    }

    /// It does, when it has its turn.
    #[must_use]
    pub fn asks_link(&self) -> bool {
        self.link_question.is_some()
    }

    /// The link has answered others while a timer ran here, or more than once since anything was acknowledged.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.silence.is_alone
    }

    /// It has: the silence is the receiver's own, until it is heard again.
    pub fn leave_alone(&mut self) {
        self.silence.is_alone = true;
    }

    /// Something waits for the link: an answer, or a window that was closed, or that there is anything to wait for.
    #[must_use]
    pub fn waits_for_link(&self, supply: &Supply) -> bool {
        !self.board.is_empty()
            || self.window_probe_wanted
            || self.timers.persist.is_some()
            || self.has_new(supply)
    }

    pub(super) fn plan_question(&mut self, supply: &Supply) -> Option<Plan> {
        let question = self.link_question.take()?;
        if question == Question::Segment {
            self.board.mark_head_lost(self.mss);
            self.board.take_losses().for_each(drop);
            if let Some((seq, len)) = self.board.next_lost(self.mss.max(1)) {
                let len = self.within_urgent(supply, seq, len);
                return Some(self.with_fin(seq, len, supply, Purpose::Retransmit));
            }
            let room = self.receiver_room(supply).min(self.mss);
            if self.board.is_empty() && room > 0 {
                let len = self.within_urgent(supply, self.snd_nxt, room);
                return Some(self.with_fin(self.snd_nxt, len, supply, Purpose::New));
            }
        }
        Some(self.plan_window_probe())
    }

    /// The link carries again what it did not carry for a while, without anybody knowing why. Timeouts of that time come due now, without
    /// back-off, and congestion control hears nothing of them (compare RFC 5682: they were no sign of congestion).
    pub fn resume_after_silence(&mut self, now: Instant) {
        let may_wait = self.silence.may_wait;
        let outlived = self.silence.outlived.saturating_add(1);
        // Once it may have been the link, which was heard for a moment only.
        let is_alone = self.silence.is_alone || outlived > 1 && !self.board.is_empty();
        self.begin_anew_after_outage(now);
        self.silence = Silence { outlived, is_alone, may_wait, ..Silence::default() };
        if self.board.is_empty() {
            return;
        }
        self.note_outage();
        if matches!(self.recovery, Recovery::Timeout { .. }) {
            self.recovery = Recovery::Open;
            self.cc.undo(now);
        }
        self.mark_lost_by_timeout(now);
        self.board.take_losses().for_each(drop);
        self.head_due = true;
        self.timers.rto = Some(now + self.rto());
    }

    /// What an outage has lost says nothing of how lossy the leg is.
    pub(super) fn lost_by_leg(&mut self, lost_bytes: u64) -> u64 {
        self.outage_until = self.outage_until.filter(|until| self.snd_una.before(*until));
        if self.outage_until.is_some() { 0 } else { lost_bytes }
    }

    /// The first timeout of a silence: what the leg carried until then.
    pub(super) fn note_rate_before_silence(&mut self, now: Instant) {
        let carried = self.rtt.srtt().filter(|rtt| !rtt.is_zero()).map(|rtt| {
            u64::try_from(u128::from(self.cc.cwnd_bytes()) * 8_000_000_000 / rtt.as_nanos())
                .unwrap_or(u64::MAX)
        });
        if self.silence.timeouts == 0 {
            self.silence.since = now;
            self.blind = Blind { rate_bps: carried, ..Blind::default() };
        }
    }

    /// The receiver is there, and its acknowledgements go round us: no word of it will ever make room, and nobody else has what
    /// is held here. What has not been sent goes out, paced; at the next timeouts all of it, each time more slowly.
    pub fn pass_blindly(&mut self, supply: &Supply) {
        if self.blind.passes >= BLIND_PASSES_MAX || self.silence.timeouts == 0 {
            return;
        }
        self.blind.passes += 1;
        self.blind.on = true;
        self.timers.persist = None;
        if self.blind.passes > 1 || !self.has_new(supply) {
            self.board.resend_all();
        } else {
            // It has most of what was sent: else it would not be answering.
            self.board.unmark_lost();
        }
    }

    /// The receiver is asked where it stands; its answer also tells what it has heard from the other host.
    pub fn ask(&mut self) {
        self.window_probe_wanted = true;
    }

    /// Nothing more is to be passed over in this pass.
    pub(super) fn end_pass(&mut self, supply: &Supply) {
        if self.board.lost_bytes() == 0 && !self.has_new(supply) {
            self.blind.on = false;
        }
    }

    /// The rate of a pass, bit/s: what the leg carried, then a half of it, a third. `None`: a queue of our own is the clock.
    pub(super) fn blind_rate(&self) -> Option<u64> {
        let clocked = self.cc.kind().is_clocked_by_queue();
        let slower = u64::from(self.blind.passes.max(1));
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
        s.rtt.sample(Duration::from_millis(100));
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
