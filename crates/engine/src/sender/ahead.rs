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

/// A receiver reads as fast as data comes while it shows this part (one over it) of the largest
/// window that it has shown.
const READING_PART: u32 = 2;

/// A receiver that has taken so much with its window open reads what comes.
const READ_MUCH_BYTES: u64 = 64 << 10;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ahead {
    /// It is done.
    on: bool,
    /// What was sent beyond the window of its time ends here.
    end: Option<SeqNum>,
    /// What is missing has been found, and is sent again for the first time. What follows it will
    /// find it there.
    repairs: bool,
    /// What was delivered when this was told last: whether the receiver reads.
    told_bytes: u64,
    /// And what was told.
    told: Option<bool>,
}

impl Ahead {
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

    /// The window has opened, and nothing has been acknowledged: what had been sent beyond it, a
    /// round trip ago and more, was dropped there.
    pub fn repeat_refused(&mut self, now: Instant) {
        let round_trip = self.flight.known_rtt().unwrap_or(Duration::ZERO);
        let is_old = |sent_at: Instant| now.since(sent_at) > round_trip;
        let head = self.flight.board().first().filter(|r| !r.sacked && !r.lost && is_old(r.sent_at));
        if self.ahead.end.is_some() && head.is_some() {
            self.flight.resend_all();
            self.flight.forget_losses();
            self.arm(now);
        }
    }

    /// So much has been found lost. What was sent beyond the window meanwhile is dropped, and goes
    /// again behind what is missing. Where that has been sent again before, it is waited for.
    pub(super) fn repeat_beyond(&mut self, lost_bytes: u64) {
        if self.ahead.end.is_none() || lost_bytes == 0 {
            return;
        }
        self.ahead.repairs = self.flight.board().first().is_some_and(|r| r.repeats == 0);
        if self.ahead.repairs {
            self.flight.mark_beyond(self.flight.una() + self.peer.shown_bytes());
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
