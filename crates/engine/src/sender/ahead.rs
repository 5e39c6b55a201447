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

use farlink_wire::{Duration, Instant, SeqNum};

use super::Sender;
use crate::scoreboard::Sent;

/// A receiver reads as fast as data comes while it shows this part (one over it) of the largest
/// window that it has shown.
const READING_PART: u32 = 2;

/// A receiver that has taken so much with its window open reads what comes.
const READ_MUCH_BYTES: u64 = 64 << 10;

/// A segment that is missing is followed by more than the window holds so many times. If all of
/// these are lost, the window counts as it was shown.
const REPAIRS_MAX: u8 = 3;

/// What was dropped beyond windows is at most so many times what has arrived, with what is under
/// way. A host with 17 KB takes 145 KB between two losses of one packet in a hundred; a link of 8
/// Mbit/s and 500 ms has carried 480 KB in vain then.
const DROPPED_PARTS: u64 = 4;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ahead {
    /// It is done.
    on: bool,
    /// What was sent beyond the window of its time ends here.
    end: Option<SeqNum>,
    /// The oldest segment did not fit the window before the one that was shown last.
    refused: bool,
    /// What is missing has been found, and is sent again. What follows it will find it there.
    repairs: bool,
    /// What was sent again because the receiver had no room for it behind what was missing, bytes.
    dropped_bytes: u64,
    /// The oldest segment that was found missing, and how often it had been sent again before.
    missed: Option<(SeqNum, u8)>,
    /// What was delivered when this was told last: whether the receiver reads.
    told_bytes: u64,
    /// And what was told.
    told: Option<bool>,
}

impl Ahead {
    /// It is done.
    pub fn is_on(&self) -> bool {
        self.on
    }
    /// Something was sent, up to `end`, where the window that was shown ends at `edge`.
    pub fn note_sent(&mut self, end: SeqNum, edge: SeqNum) {
        if self.on && end.after(edge) {
            self.end = Some(self.end.map_or(end, |before| before.max(end)));
        }
    }
    /// Everything before `una` has arrived.
    pub fn advance(&mut self, una: SeqNum) {
        self.end = self.end.filter(|end| end.after(una));
    }
}

impl Sender {
    /// Windows are not waited for where the receiver takes all that comes; or they are.
    pub fn send_ahead(&mut self, on: bool) {
        if on && !self.ahead.on {
            self.governor.trust_path();
        }
        self.ahead.on = on;
        self.flight.repeat_many(on);
    }

    /// The receiver's window will have moved on when the next segment arrives.
    #[must_use]
    pub fn goes_ahead(&self) -> bool {
        self.ahead.on && (!self.flight.has_gap() || self.ahead.repairs) && self.is_read()
    }

    /// The receiver reads what comes.
    fn is_read(&self) -> bool {
        let shown = self.peer.shown_bytes();
        shown > 0 && shown >= self.peer.max_bytes() / READING_PART
    }

    /// Whether it reads, where that is news: it has let its window close, or has taken much since
    /// it was said last and has never done so meanwhile.
    pub fn take_reading(&mut self) -> Option<bool> {
        let delivered_bytes = self.delivered_bytes();
        let reads = self.is_read();
        let much = delivered_bytes.saturating_sub(self.ahead.told_bytes) >= READ_MUCH_BYTES;
        if reads && !much || (!reads && self.ahead.told == Some(false)) {
            return None;
        }
        self.ahead.told_bytes = delivered_bytes;
        self.ahead.told = Some(reads);
        Some(reads)
    }

    /// What the window will leave from `next` on.
    pub(super) fn room_ahead(&self, next: SeqNum) -> u32 {
        let room = self.peer.room_from(next);
        if self.goes_ahead() { room.max(self.peer.shown_bytes()) } else { room }
    }

    /// The receiver has no room for what stands there, and has been sent it.
    pub(super) fn is_refused(&self, seq: SeqNum) -> bool {
        self.ahead.end.is_some_and(|end| seq.before(end))
            && !self.goes_ahead()
            && seq.after_eq(self.peer.edge())
    }

    /// So much of this the receiver has room for, where it has been sent more: a segment that ends
    /// beyond its window it drops whole.
    pub(super) fn within_window(&self, seq: SeqNum, len: u32) -> u32 {
        let is_cut = self.ahead.end.is_some_and(|end| seq.before(end)) && !self.goes_ahead();
        let edge = self.peer.edge();
        if is_cut && edge.after(seq) { len.min(edge.since(seq)) } else { len }
    }

    /// A window is about to be shown: whether the oldest segment fits the one before.
    pub(super) fn note_refused(&mut self) {
        let edge = self.peer.edge();
        self.ahead.refused = self.flight.board().first().is_some_and(|head| head.end.after(edge));
    }

    /// The window has opened, and nothing has been acknowledged: what had been sent beyond it, a
    /// round trip ago and more, was dropped there.
    pub fn repeat_refused(&mut self, now: Instant) {
        let round_trip = self.flight.known_rtt().unwrap_or(Duration::ZERO);
        let is_old = |sent_at: Instant| now.since(sent_at) > round_trip;
        let head = self.flight.board().first().filter(|r| !r.sacked && !r.lost && is_old(r.sent_at));
        if self.ahead.refused && self.ahead.end.is_some() && head.is_some() {
            self.flight.resend_all();
            self.flight.forget_losses();
            self.arm(now);
        }
    }

    /// So much has been found lost, and is sent again.
    pub(super) fn note_missing(&mut self, lost_bytes: u64) {
        let Some(head) = self.flight.board().first().filter(|_| self.ahead.on && lost_bytes > 0) else {
            return;
        };
        let known = self.ahead.missed.filter(|(seq, _)| *seq == head.seq);
        let (seq, before) = known.unwrap_or((head.seq, head.repeats));
        let under_way = u64::from(self.flight.next().since(self.flight.una()));
        let may_drop = (self.delivered_bytes() + under_way).saturating_mul(DROPPED_PARTS);
        let repeats = head.repeats.saturating_sub(before);
        self.ahead.repairs = repeats < REPAIRS_MAX && self.ahead.dropped_bytes <= may_drop;
        self.ahead.missed = Some((seq, before));
    }

    /// While the oldest segment is missing the window stands still: what ends beyond it, and left
    /// before that segment was sent again, is dropped by the receiver. It goes again behind what is
    /// missing, at once, and is no loss.
    pub fn repeat_beyond(&mut self) {
        let board = self.flight.board();
        let Some(head) = board.first().filter(|head| head.lost || head.repeats > 0) else { return };
        if self.ahead.end.is_none() || !self.ahead.repairs {
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
            self.ahead.dropped_bytes += self.flight.mark_beyond(edge, is_dropped);
            self.flight.forget_losses();
        }
    }

    /// What was missing has arrived, by a repetition that left then. What had been sent beyond the
    /// window before that was dropped.
    pub(super) fn repeat_dropped(&mut self, advanced: bool, repaired_at: Option<Instant>) {
        let Some(at) = repaired_at.filter(|_| advanced) else { return };
        self.ahead.repairs &= self.flight.has_gap();
        if self.ahead.end.is_some() && !self.governor.is_open() && !self.flight.has_gap() {
            // That is no sign of congestion.
            self.flight.mark_sent_before(at);
            self.flight.forget_losses();
        }
    }

    /// A timeout has passed, and the receiver has no room for the oldest segment: it is asked, as
    /// over a closed window. Returns whether it is so.
    pub(super) fn waits_for_room(&mut self, now: Instant) -> bool {
        self.ahead.repairs = false;
        if !self.is_refused(self.flight.una()) {
            return false;
        }
        self.flight.resend_all();
        self.flight.forget_losses();
        self.arm_persist(now);
        self.timers.rto = Some(now + self.rto());
        true
    }
}
