//! Sending ahead of a window: what it will be when a segment arrives, not what it was when the last
//! word of the receiver left.
//!
//! A receiver that takes all that comes at once shows the same window behind each segment. So over
//! a long way a small window, or one that is only opening, need not be waited for: no segment ends
//! beyond what the window will be when it arrives, if all before it has arrived. Where something is
//! missing it will not have moved, and where the receiver has stopped reading it will be smaller:
//! then only the window counts that was shown. What it could not hold is sent again.
//!
//! Linux from 6.17 on drops a segment that ends beyond its window whole, and answers.
//!
//! Who is on the way may think otherwise: a router that tracks connections drops what is beyond the
//! window, or takes it for its own and resets. So a host begins with one segment ahead, and what
//! becomes of such runs is told: they were taken, or exactly they were dropped.
//!
//! Where all that was acknowledged in a round trip has waited on its way there, more before its
//! time would only stand in a queue: the link gives what it has, and the window is not what is
//! missing. A link that is asked by slots, or fades, is one of these. Who is told to send ahead
//! does so whatever waits.

use farlink_wire::{Duration, Instant, SeqNum};

use super::Sender;
use crate::bookmark::{Bookmark, bookmarks};
use crate::leave::Leave;
use crate::rtt::micros;
use crate::scoreboard::Sent;

/// A receiver reads as fast as data comes while it shows this part (one over it) of the largest
/// window that it has shown.
const READING_PART: u32 = 2;

/// A segment that is missing is followed by more than the window holds so many times. If all of
/// these are lost, the window counts as it was shown.
const REPAIRS_MAX: u8 = 3;

/// What was dropped beyond windows is at most so many times what has arrived, with what is under
/// way. A host with 17 KB takes 145 KB between two losses of one packet in a hundred; a link of 8
/// Mbit/s and 500 ms has carried 480 KB in vain then.
const DROPPED_PARTS: u64 = 4;

/// What has waited for less than this part of a round trip (one over it) has not met a queue that
/// holds more than the way.
const WAITED_PART: u32 = 2;

/// A reset that comes later than a round trip and a half, and this, is none for what left ahead.
const RESET_LATE: Duration = Duration::from_millis(200);

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Ahead {
    /// So much is done of it.
    leave: Leave,
    /// Whatever waits on its way.
    is_told: bool,
    /// The oldest segment did not fit the window before the one that was shown last.
    refused: bool,
    /// What is missing has been found, and is sent again. What follows it will find it there.
    repairs: bool,
    /// `None`: nothing has left ahead.
    left: Option<Box<Left>>,
    rounds: Rounds,
}

/// The shortest round trips of late, microseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Rounds {
    /// This one is over when so much is acknowledged.
    end: Bookmark,
    least_us: u32,
    before_us: u32,
}

bookmarks!(Rounds { end });

impl Rounds {
    /// Everything before `una` is acknowledged, and everything before `next` has been sent.
    fn hear(&mut self, rtt_us: u32, una: SeqNum, next: SeqNum) {
        if self.end.is_none_or(|end| una.after(end)) {
            *self = Self { end: Some(next).into(), least_us: rtt_us, before_us: self.least_us };
        } else {
            self.least_us = self.least_us.min(rtt_us);
        }
    }

    /// So long one has taken at least, in this one or in the one before.
    fn took(&self) -> Duration {
        Duration::from_micros(self.least_us.max(self.before_us).into())
    }
}

/// What has left ahead of a window.
#[derive(Clone, Debug, Default)]
struct Left {
    /// What was sent beyond the window of its time, and has not all been acknowledged.
    run: Option<Run>,
    /// When something left last that the window had no room for.
    at: Option<Instant>,
    /// The receiver was asked since, because of a reset.
    is_asked: bool,
    /// The window ended there, and had no room for a segment, while more was under way.
    stopped: Bookmark,
    /// What was sent again because the receiver had no room for it behind what was missing, bytes.
    dropped_bytes: u64,
    /// The oldest segment that was found missing, and how often it had been sent again before.
    missed: Bookmark<(SeqNum, u8)>,
    /// So much of runs was taken, and exactly a run was dropped, since that was told last.
    taken_bytes: u64,
    is_dropped: bool,
}

bookmarks!(Left { stopped, missed });

/// See [`Left::run`].
#[derive(Clone, Copy, Debug)]
struct Run {
    from: SeqNum,
    end: SeqNum,
    /// Something has left since that the window had room for: it becomes no longer.
    is_over: bool,
    /// So much of it was sent again, the last of that then.
    again_bytes: u32,
    again_at: Instant,
    /// Something before it was missing then.
    is_excused: bool,
}

bookmarks!(Ahead { left, rounds });

impl Ahead {
    /// All of it is done.
    pub fn is_on(&self) -> bool {
        self.leave == Leave::All
    }
    fn run(&self) -> Option<&Run> {
        self.left.as_ref()?.run.as_ref()
    }
    fn run_mut(&mut self) -> Option<&mut Run> {
        self.left.as_mut()?.run.as_mut()
    }
    /// Memory beside the struct itself, bytes.
    pub fn memory_bytes(&self) -> usize {
        self.left.as_ref().map_or(0, |_| size_of::<Left>())
    }
    /// Exactly what was ahead was dropped.
    fn note_dropped(&mut self) {
        if let Some(left) = &mut self.left {
            left.is_dropped = true;
        }
    }
    /// What was sent beyond the window of its time ends here.
    fn end(&self) -> Option<SeqNum> {
        self.run().map(|run| run.end)
    }
    /// Something new was sent, where the window that was shown ends at `edge`.
    pub fn note_sent(&mut self, now: Instant, (seq, end): (SeqNum, SeqNum), edge: SeqNum) {
        if self.leave == Leave::Nothing {
            return;
        }
        if !end.after(edge) {
            if let Some(run) = self.run_mut() {
                run.is_over = true;
            }
            return;
        }
        let left = self.left.get_or_insert_default();
        (left.at, left.is_asked) = (Some(now), false);
        let new = Run {
            from: seq.max(edge),
            end,
            is_over: false,
            again_bytes: 0,
            again_at: now,
            is_excused: false,
        };
        left.run.get_or_insert(new).end = end;
    }
    /// Something was sent again, everything before `una` being acknowledged.
    pub fn note_again(&mut self, now: Instant, (seq, end): (SeqNum, SeqNum), una: SeqNum, edge: SeqNum) {
        let Some(run) = self.run_mut() else { return };
        let (from, to) = (seq.max(run.from), end.min(run.end));
        if to.after(from) {
            run.again_bytes = run.again_bytes.saturating_add(to.since(from));
            run.again_at = now;
            run.is_excused |= una.before(run.from);
        }
        self.note_beyond(now, end, edge);
    }
    /// Something left up to `end`.
    pub fn note_beyond(&mut self, now: Instant, end: SeqNum, edge: SeqNum) {
        if let Some(left) = self.left.as_mut().filter(|left| left.run.is_some() && end.after(edge)) {
            left.at = Some(now);
        }
    }
    /// Everything before `una` has arrived. No answer comes sooner than after `soonest`.
    pub fn advance(&mut self, now: Instant, una: SeqNum, soonest: Duration) {
        let is_on = self.is_on();
        let Some(left) = &mut self.left else { return };
        let Some(run) = &mut left.run else { return };
        let taken = if una.after(run.from) { una.min(run.end).since(run.from) } else { 0 };
        if una.before(run.end) {
            if is_on {
                left.taken_bytes += u64::from(taken);
                run.from = run.from.max(una);
            }
            return;
        }
        if is_on || run.again_bytes == 0 {
            left.taken_bytes += u64::from(taken);
        } else if run.again_bytes >= taken && !run.is_excused && now.since(run.again_at) >= soonest {
            left.is_dropped = true;
        }
        (left.run, *left.stopped) = (None, None);
    }
    /// The receiver holds everything before `upto`, by whatever way it came.
    pub fn skip_to(&mut self, upto: SeqNum) {
        if let Some(left) = &mut self.left {
            left.run = left.run.filter(|run| run.end.after(upto));
        }
    }
    /// So much more may leave than the window has room for.
    fn more(&self, mss: u32) -> u32 {
        let most = match self.leave {
            Leave::Nothing | Leave::All => 0,
            Leave::Segment => mss,
            Leave::Bytes(bytes) => bytes,
        };
        match self.run() {
            None => most,
            Some(run) if run.is_over => 0,
            Some(run) => most.saturating_sub(run.end.since(run.from)),
        }
    }
}

impl Sender {
    /// So much may leave ahead of the window where the receiver takes all that comes. `is_told`: it
    /// is configured so, whatever waits.
    pub fn leave_ahead(&mut self, leave: Leave, is_told: bool) {
        self.ahead.is_told = is_told;
        if leave == self.ahead.leave {
            return;
        }
        self.ahead.leave = leave;
        self.flight.repeat_many(leave == Leave::All);
        // The path is trusted as far as the host is. What it was trusted with stays.
        match leave {
            Leave::Nothing => {}
            Leave::Segment => self.governor.trust_path(u64::from(self.flight.mss())),
            Leave::Bytes(bytes) => self.governor.trust_path(u64::from(bytes)),
            Leave::All => self.governor.trust_path(u64::MAX),
        }
    }

    /// The receiver's window will have moved on when the next segment arrives, and is not waited
    /// for.
    #[must_use]
    pub fn goes_ahead(&self) -> bool {
        self.ahead.is_on() && self.may_leave_ahead()
    }

    /// The same, where little may leave ahead, too.
    pub(super) fn may_leave_ahead(&self) -> bool {
        let repairs = self.ahead.repairs && self.ahead.is_on();
        self.ahead.leave != Leave::Nothing && (!self.flight.has_gap() || repairs) && self.is_read()
    }

    /// A segment was acknowledged after so long, without what its acknowledgement has waited.
    pub(super) fn note_round(&mut self, rtt: Duration) {
        self.ahead.rounds.hear(micros(rtt), self.flight.una(), self.flight.next());
    }

    /// All that left a round trip ago has waited for half of one.
    fn has_waited(&self) -> bool {
        let shortest = [self.flight.shortest_rtt(), self.rtt().expected()].into_iter().flatten().min();
        shortest.is_some_and(|rtt| self.ahead.rounds.took() > rtt + rtt / WAITED_PART)
    }

    /// The receiver reads what comes.
    fn is_read(&self) -> bool {
        let shown = self.peer.shown_bytes();
        shown > 0 && shown >= self.peer.max_bytes() / READING_PART
    }

    /// So much that had left ahead of the window was taken, since this was asked last.
    pub fn take_taken(&mut self) -> u64 {
        self.ahead.left.as_mut().map_or(0, |left| core::mem::take(&mut left.taken_bytes))
    }

    /// Whether exactly what had left ahead was dropped, since this was asked last.
    pub fn take_dropped(&mut self) -> bool {
        self.ahead.left.as_mut().is_some_and(|left| core::mem::take(&mut left.is_dropped))
    }

    /// A reset that comes now may be for what left ahead of the window.
    #[must_use]
    pub fn may_be_refused(&self, now: Instant) -> bool {
        let rtt = self.flight.known_rtt().unwrap_or_default();
        self.ahead
            .left
            .as_ref()
            .and_then(|left| left.at)
            .is_some_and(|at| now.since(at) <= rtt + rtt / 2 + RESET_LATE)
    }

    /// The receiver is asked whether it lives, once for what left ahead.
    pub fn ask_refusing(&mut self) {
        let left = self.ahead.left.as_mut();
        if left.is_some_and(|left| !core::mem::replace(&mut left.is_asked, true)) {
            self.peer.ask();
        }
    }

    /// What the window will leave from `next` on.
    pub(super) fn room_ahead(&self, next: SeqNum) -> u32 {
        let room = self.peer.room_from(next);
        let is_queued = !self.ahead.is_told && self.has_waited();
        if !self.may_leave_ahead() || is_queued {
            return room;
        }
        let will_be = room.max(self.peer.shown_bytes());
        if self.ahead.is_on() { will_be } else { will_be.min(room + self.ahead.more(self.flight.mss())) }
    }

    /// The receiver has no room for what stands there, and has been sent it.
    pub(super) fn is_refused(&self, seq: SeqNum) -> bool {
        self.ahead.end().is_some_and(|end| seq.before(end))
            && !self.may_leave_ahead()
            && seq.after_eq(self.peer.edge())
    }

    /// The receiver has stopped, and what is under way ends beyond its window: no copy helps.
    pub(super) fn is_beyond_room(&self) -> bool {
        let waits = self.ahead.leave == Leave::Nothing || !self.is_read();
        self.ahead.run().is_some() && waits && self.flight.next().after(self.peer.edge())
    }

    /// So much of this the receiver has room for, where it has been sent more: a segment that ends
    /// beyond its window it drops whole.
    pub(super) fn within_window(&self, seq: SeqNum, len: u32) -> u32 {
        let is_cut = self.ahead.end().is_some_and(|end| seq.before(end)) && !self.may_leave_ahead();
        let edge = self.peer.edge();
        if is_cut && edge.after(seq) { len.min(edge.since(seq)) } else { len }
    }

    /// A window is about to be shown: whether the oldest segment fits the one before.
    pub(super) fn note_refused(&mut self) {
        let edge = self.peer.edge();
        self.ahead.refused = self.flight.board().first().is_some_and(|head| head.end.after(edge));
    }

    /// A window has been shown: whether it is full, and more was under way.
    pub(super) fn note_stopped(&mut self) {
        let is_full = self.peer.room_from(self.flight.una()) < self.flight.mss();
        if let Some(left) = self.ahead.left.as_mut().filter(|left| is_full && left.run.is_some()) {
            *left.stopped = Some(self.peer.edge());
        }
    }

    /// The window has opened, and nothing has been acknowledged: what had been sent beyond it, a
    /// round trip ago and more, was dropped there.
    pub fn repeat_refused(&mut self, now: Instant) {
        let round_trip = self.flight.known_rtt().unwrap_or(Duration::ZERO);
        let is_old = |sent_at: Instant| now.since(sent_at) > round_trip;
        let head = self.flight.board().first().filter(|r| !r.sacked && (r.lost || is_old(r.sent_at)));
        let Some(head) = head.filter(|_| self.ahead.refused && self.ahead.run().is_some()) else { return };
        self.ahead.note_dropped();
        if !head.lost {
            self.flight.resend_all();
            self.flight.forget_losses();
        }
        // What the timer was set for was not to be answered.
        self.timers.rto = Some(now + self.rto());
    }

    /// So much has been found lost, and is sent again.
    pub(super) fn note_missing(&mut self, lost_bytes: u64) {
        let Some(head) = self.flight.board().first().filter(|_| lost_bytes > 0) else { return };
        let mss = self.flight.mss();
        if let Some(left) = &mut self.ahead.left {
            left.is_dropped |= left.stopped.is_some_and(|at| head.seq.since(at) < mss);
        }
        if !self.ahead.is_on() {
            return;
        }
        let under_way = u64::from(self.flight.next().since(self.flight.una()));
        let may_drop = (self.delivered_bytes() + under_way).saturating_mul(DROPPED_PARTS);
        let left = self.ahead.left.get_or_insert_default();
        let known = left.missed.filter(|(seq, _)| *seq == head.seq);
        let (seq, before) = known.unwrap_or((head.seq, head.repeats));
        let repeats = head.repeats.saturating_sub(before);
        *left.missed = Some((seq, before));
        self.ahead.repairs = repeats < REPAIRS_MAX && left.dropped_bytes <= may_drop;
    }

    /// While the oldest segment is missing the window stands still: what ends beyond it, and left
    /// before that segment was sent again, is dropped by the receiver. It goes again behind what is
    /// missing, at once, and is no loss.
    pub fn repeat_beyond(&mut self) {
        let board = self.flight.board();
        let Some(head) = board.first().filter(|head| head.lost || head.repeats > 0) else { return };
        if self.ahead.run().is_none() || !self.ahead.repairs {
            return;
        }
        let again_at = (!head.lost).then_some(head.sent_at);
        let edge = self.flight.una() + self.peer.shown_bytes();
        let is_dropped = |r: &Sent| again_at.is_none_or(|at| r.sent_at < at);
        // What lies beyond left in order: if the first of it is not dropped, nothing is.
        if board.first_missing_beyond(edge).is_some_and(is_dropped) {
            // Some of it may have been taken after all.
            let next = self.flight.next();
            self.flight.note_copy(next);
            let dropped_bytes = self.flight.mark_beyond(edge, is_dropped);
            if let Some(left) = &mut self.ahead.left {
                left.dropped_bytes += dropped_bytes;
            }
            self.flight.forget_losses();
        }
    }

    /// What was missing has arrived, by a repetition that left then. What had been sent beyond the
    /// window before that was dropped.
    pub(super) fn repeat_dropped(&mut self, advanced: bool, repaired_at: Option<Instant>) {
        let Some(at) = repaired_at.filter(|_| advanced) else { return };
        self.ahead.repairs &= self.flight.has_gap();
        if self.ahead.run().is_some() && !self.governor.is_open() && !self.flight.has_gap() {
            // That is no sign of congestion.
            self.flight.mark_sent_before(at);
            self.flight.forget_losses();
        }
    }

    /// A timeout has passed, and the receiver has no room for the oldest segment: it is asked, as
    /// over a closed window. Returns whether it is so.
    pub(super) fn waits_for_room(&mut self, now: Instant) -> bool {
        self.ahead.repairs = false;
        let edge = self.peer.edge();
        let is_beyond = self.flight.board().first().is_some_and(|head| head.end.after(edge));
        let left_ahead = self.ahead.end().is_some_and(|end| self.flight.una().before(end));
        if !is_beyond || !left_ahead || self.may_leave_ahead() {
            return false;
        }
        self.ahead.note_dropped();
        self.flight.resend_all();
        self.flight.forget_losses();
        self.arm_persist(now);
        self.timers.rto = Some(now + self.rto());
        true
    }
}
