//! The receiver's window: where it ends, by whose word, and when the receiver is asked where it
//! stands.

use farlink_wire::{Duration, Instant, SeqNum};

use crate::bookmark::is_near;
use crate::checked::{Checked, all_hold};
use crate::due::{Deadline, Due, Earliest};

/// Back-off of a question stops doubling here; the largest RTO bounds it anyway.
const BACKOFF_MAX: u8 = 12;

/// A question is put again after `base`, doubled each time.
fn again_at(now: Instant, base: Duration, backoff: u8, max: Duration) -> Instant {
    now + base.saturating_mul(1 << backoff).min(max)
}

/// What is known of the receiver's window.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerWindow {
    /// Its right edge, SND.UNA + SND.WND.
    edge: SeqNum,
    /// Bytes that were shown last.
    shown_bytes: u32,
    /// MAX.SND.WND of RFC 5961.
    max_bytes: u32,
    /// SND.WL1.
    told_at: SeqNum,
    /// SND.WL2.
    told_with_ack: SeqNum,
    /// It is closed (RFC 9293 3.8.6.1), or too small to be worth a segment.
    persist_at: Option<Instant>,
    persist_backoff: u8,
    /// Bytes may have gone round us behind a hole.
    hole_at: Option<Instant>,
    hole_backoff: u8,
    /// It was asked because of that, and has not answered.
    hole_asked: bool,
    /// The receiver is to be asked next.
    probe_wanted: bool,
    /// It is to hear of urgent data before that.
    urgent_notice_wanted: bool,
    /// So many probes of a closed window have gone out since the receiver was last heard.
    unanswered: u8,
    /// The other host has asked whether the receiver lives: when its word is due, or is missed
    /// again.
    word_due: Option<Instant>,
}

impl PeerWindow {
    /// Nothing has been shown yet of what begins at `next`.
    pub fn new(next: SeqNum) -> Self {
        Self {
            edge: next,
            shown_bytes: 0,
            max_bytes: 0,
            told_at: SeqNum(0),
            told_with_ack: next,
            persist_at: None,
            persist_backoff: 0,
            hole_at: None,
            hole_backoff: 0,
            hole_asked: false,
            probe_wanted: false,
            urgent_notice_wanted: false,
            unanswered: 0,
            word_due: None,
        }
    }

    /// What holds, where everything before `una` is acknowledged.
    pub fn check(&self, una: SeqNum) -> Checked {
        all_hold(&[(self.room_from(una) <= self.max_bytes, "the window is larger than the largest")])
    }
    /// Its right edge.
    pub fn edge(&self) -> SeqNum {
        self.edge
    }
    /// What was shown last.
    pub fn shown_bytes(&self) -> u32 {
        self.shown_bytes
    }
    /// The largest that was shown.
    pub fn max_bytes(&self) -> u32 {
        self.max_bytes
    }
    /// Something has been shown.
    pub fn is_known(&self) -> bool {
        self.max_bytes > 0
    }
    /// What it leaves from `next` on.
    pub fn room_from(&self, next: SeqNum) -> u32 {
        if self.edge.after(next) { self.edge.since(next) } else { 0 }
    }
    /// The next question about it has a time: it is closed, or small.
    pub fn is_waited_for(&self) -> bool {
        self.persist_at.is_some()
    }
    /// So little room is worth waiting for more, as long as that has not been tried (sender SWS
    /// avoidance, RFC 9293 3.8.6.2.1).
    pub fn is_worth_waiting(&self, room_bytes: u32) -> bool {
        self.max_bytes / 2 > room_bytes && self.persist_backoff == 0
    }
    /// Probes have gone out since the receiver was last heard.
    pub fn is_unanswered(&self) -> bool {
        self.unanswered > 0
    }
    /// So many of them.
    pub fn unanswered(&self) -> u8 {
        self.unanswered
    }
    /// The receiver is to be asked or told something next.
    pub fn has_question(&self) -> bool {
        self.probe_wanted || self.urgent_notice_wanted
    }
    /// The receiver is to be asked where it stands.
    pub fn wants_probe(&self) -> bool {
        self.probe_wanted
    }
    /// When it is asked next.
    #[inline]
    pub fn deadline(&self) -> Option<Deadline> {
        Earliest::default()
            .and(Due::Persist, self.persist_at)
            .and(Due::Gap, self.hole_at)
            .and(Due::Answer, self.word_due)
            .deadline()
    }

    /// A segment at `seq` that acknowledges `ack` shows so many bytes (RFC 9293 3.10.7.4), `una`
    /// being acknowledged. Returns whether it opened.
    ///
    /// `kept`: a gateway says so, which takes no promise back. Its right edge counts whatever came
    /// before: segments of the host itself that went round it have higher sequence numbers than it
    /// has reached.
    pub fn update(&mut self, una: SeqNum, seq: SeqNum, ack: SeqNum, bytes: u64, kept: bool) -> bool {
        // What is too far from the newest word to be compared with it is no older one: its number
        // has been judged by now.
        let newer = !self.is_known()
            || ack.after_eq(una)
                && (!is_near(self.told_at, seq)
                    || self.told_at.before(seq)
                    || (self.told_at == seq && self.told_with_ack.before_eq(ack)));
        let before = self.edge;
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX >> 1).min(u32::MAX >> 1);
        if newer {
            self.told_at = seq;
            self.told_with_ack = ack;
            self.edge = una + bytes;
            self.shown_bytes = bytes;
        } else if kept && (ack + bytes).after(self.edge) {
            self.edge = ack + bytes;
        } else {
            return false;
        }
        self.max_bytes = self.max_bytes.max(self.edge.since(una));
        let opened = self.edge.after(before);
        if opened {
            self.forget_wait();
            self.probe_wanted = false;
        }
        opened
    }

    /// Everything before `una` has arrived. The edge stands until a segment moves it: acknowledged
    /// bytes leave the window.
    pub fn advance(&mut self, una: SeqNum) {
        self.edge = self.edge.max(una);
        self.unanswered = 0;
    }

    /// The receiver has been heard. Returns whether it was asked behind a hole and has not
    /// answered: that may have been lost, with the way there, and is to be asked again.
    pub fn on_word(&mut self) -> bool {
        self.unanswered = 0;
        self.word_due = None;
        core::mem::take(&mut self.hole_asked)
    }
    /// Behind a hole it is asked again by then at the latest, and the back-off begins anew.
    pub fn ask_again_by(&mut self, at: Instant) {
        self.hole_backoff = 0;
        self.hole_at = self.hole_at.map(|hole_at| hole_at.min(at));
    }
    /// It has answered whether there is a gap for it, or how far the host behind it has come.
    pub fn on_answer(&mut self) {
        self.hole_asked = false;
    }
    /// It is asked whether it lives; a word is due by then.
    pub fn inquire(&mut self, due: Instant) {
        if self.word_due.is_none() {
            self.word_due = Some(due);
            self.probe_wanted = true;
        }
    }
    /// It has been asked whether it lives, and has not been heard since.
    pub fn is_inquired(&self) -> bool {
        self.word_due.is_some()
    }
    /// Nobody waits for its word any more.
    pub fn stop_inquiry(&mut self) {
        self.word_due = None;
    }
    /// Returns whether its word is missed now; it is missed again after `again`.
    pub fn miss_word(&mut self, now: Instant, again: Duration) -> bool {
        let is_missed = self.word_due.is_some_and(|at| at <= now);
        if is_missed {
            self.word_due = Some(now + again);
        }
        is_missed
    }

    /// Something new has left.
    pub fn on_sent_new(&mut self) {
        self.forget_wait();
    }

    fn forget_wait(&mut self) {
        self.persist_at = None;
        self.persist_backoff = 0;
    }

    /// It is not waited for any longer.
    pub fn stop_waiting(&mut self) {
        self.persist_at = None;
    }

    /// The receiver has everything before `upto`: what was waited for is over.
    pub fn skip_to(&mut self, upto: SeqNum) {
        self.edge = self.edge.max(upto);
        self.persist_at = None;
        self.hole_at = None;
    }

    /// It stands in the way: it is asked after `base`, later each time.
    pub fn wait(&mut self, now: Instant, base: Duration, max: Duration) {
        let at = again_at(now, base, self.persist_backoff, max);
        self.persist_at.get_or_insert(at);
    }

    /// Bytes may have gone round us behind a hole: the receiver is asked as over a closed window,
    /// at first after so long, and at most so long apart. `None`: none may.
    pub fn watch_hole(&mut self, now: Instant, wait: Option<(Duration, Duration)>) {
        if let Some((base, max)) = wait {
            self.hole_at.get_or_insert(again_at(now, base, self.hole_backoff, max));
        } else {
            self.hole_at = None;
            self.hole_backoff = 0;
            self.hole_asked = false;
        }
    }

    /// The receiver is asked next, whether or not its window is closed.
    pub fn ask(&mut self) {
        self.probe_wanted = true;
    }
    /// It is told next where urgent data ends.
    pub fn announce_urgent(&mut self) {
        self.urgent_notice_wanted = true;
    }
    /// Returns whether it is to be asked, which is done with this.
    pub fn take_probe(&mut self) -> bool {
        core::mem::take(&mut self.probe_wanted)
    }
    /// Returns whether it is to be told of urgent data, which is done with this.
    pub fn take_urgent_notice(&mut self) -> bool {
        core::mem::take(&mut self.urgent_notice_wanted)
    }

    /// Whatever is due, with `next` to be sent next.
    pub fn on_timer(&mut self, now: Instant, next: SeqNum, rto: Duration, max: Duration) {
        let is_due = |at: &mut Option<Instant>| at.take_if(|at| *at <= now).is_some();
        if is_due(&mut self.persist_at) {
            self.persist_backoff = (self.persist_backoff + 1).min(BACKOFF_MAX);
            // Over a window that is small, not closed, waiting ends here: what fits it goes (the
            // override timeout of RFC 9293 3.8.6.2.1).
            if self.room_from(next) == 0 {
                self.unanswered = self.unanswered.saturating_add(1);
                self.probe_wanted = true;
                self.urgent_notice_wanted = true;
                self.wait(now, rto, max);
            }
        }
        if is_due(&mut self.hole_at) {
            self.hole_backoff = (self.hole_backoff + 1).min(BACKOFF_MAX);
            self.hole_asked = true;
            self.probe_wanted = true;
        }
    }

    /// The link is away: what is due waits. Whether the window has opened is asked as soon as
    /// anything can be. Until then the timer is set less and less often.
    pub fn put_off(&mut self, now: Instant) {
        if self.persist_at.take_if(|at| *at <= now).is_some() {
            self.probe_wanted = true;
            self.persist_backoff = (self.persist_backoff + 1).min(BACKOFF_MAX);
        }
        self.hole_at = self.hole_at.filter(|at| *at > now);
    }

    /// What the time of an outage has left behind is forgotten. Whether the window has opened
    /// meanwhile is asked at once.
    pub fn begin_anew(&mut self) {
        self.unanswered = 0;
        self.word_due = None;
        self.probe_wanted |= self.persist_at.is_some();
        self.forget_wait();
    }
}
