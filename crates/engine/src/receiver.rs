//! The receiving half of a relay: what it has, which acknowledgement it owes, which window it has
//! shown.

use arrayvec::ArrayVec;
use farlink_wire::{Duration, Instant, Pool, SackBlock, SeqNum};

use crate::ack_policy::{AckPolicy, Came, News, Owed};
use crate::bookmark::{Bookmark, bookmarks};
use crate::buffer::{Inserted, SeqBuffer};
use crate::link::Come;
use crate::marks::Marks;
use crate::peer::{Arrived, Introduction};
use crate::reopened::Reopened;
use crate::wishes::Wishes;

/// Segments acknowledged at once (RFC 9293 3.8.6.3: at least every second full-sized one).
const SEGMENTS_PER_ACK: u32 = 2;

/// Segments that a host acknowledges one by one after a gap, so that a source with a small window
/// goes on at once (Linux TCP_MAX_QUICKACKS).
const QUICK_ACKS: u8 = 16;

/// So often in a row a source repeats a segment that was acknowledged, until what it was told is
/// taken to be lost on the way.
const REPETITIONS_UNHEARD: u8 = 2;
/// A host that takes a FIN acknowledges it within the time that delayed acknowledgements take in
/// Linux (`TCP_DELACK_MIN`).
const FIN_TOLD_AFTER: Duration = Duration::from_millis(40);

/// How a payload stood to the bytes that wait above a hole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Early {
    /// Some were waiting before it came.
    pub waiting: bool,
    /// It lies behind all of them, and behind another hole.
    pub new_gap: bool,
}

/// First delay of a stretched acknowledgement: half of the smallest retransmission timeout that
/// hosts use (Linux TCP_RTO_MIN).
const STRETCH_FIRST: Duration = Duration::from_millis(100);

/// An ACK delay that grows towards the path's RTT, slowly enough for the source's retransmission
/// timer to follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stretch {
    /// Delay of the next acknowledgement.
    pub delay: Duration,
    /// Where it ends.
    pub target: Duration,
}

impl Stretch {
    /// Towards this RTT; `None` when the first step is there already.
    #[must_use]
    pub fn towards(target: Duration) -> Option<Self> {
        (target > STRETCH_FIRST).then_some(Self { delay: STRETCH_FIRST, target })
    }
    fn grow(&mut self) {
        self.delay = (self.delay + self.delay / 2).min(self.target);
    }
    /// The source has seen the path's RTT.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.delay >= self.target
    }
}

/// News of what has come twice is told so often: an acknowledgement may be lost.
const TWICE_TOLD: u8 = 2;

/// An initial window (RFC 6928).
const INITIAL_WINDOW_SEGMENTS: u32 = 10;

/// Packets that came together, after a pause.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Clump {
    None,
    /// Its first packet is to be told of.
    Untold,
    /// It has been, and the newest has not.
    Told,
}

/// The receiving half of a relay.
#[derive(Debug)]
pub struct Receiver {
    /// Where the source's FIN stands, once everything before it is there.
    fin_at: Option<SeqNum>,
    /// Where a FIN above a hole says that it stands.
    fin_claimed: Option<SeqNum>,
    /// The acknowledgement that is owed to the source.
    owed: Owed,
    /// Last acknowledgement number sent (Last.ACK.sent of RFC 7323).
    last_ack_sent: SeqNum,
    /// Right edge of the window shown to the source: never taken back.
    edge: SeqNum,
    /// Largest window shown to the source, bytes: how far behind an ACK may come (RFC 5961).
    window_shown_max: u32,
    /// Echo congestion until CWR (RFC 3168 6.1.3).
    pub ece: bool,
    /// What the upstream gateway was told last of the far host's acknowledgement.
    pub far_told: Bookmark,
    /// The last acknowledgement said less than is held: more follows as the destination progresses.
    ack_held_back: bool,
    /// Acknowledgements come later and later, so that the source learns the path's RTT before it is
    /// left to it.
    pub stretch: Option<Stretch>,
    /// What has come of the wishes of the gateway before.
    wishes: Wishes,
    /// What is left to be said towards the source of who speaks here.
    introduction: Introduction,
    /// Whether what is marked towards the source arrives there.
    marks: Marks,
    /// Where the window ended that the upstream gateway was told last.
    pub told_edge: Bookmark,
    /// Where the soft window ended that it was told last; `None`: none was told.
    pub told_soft_edge: Bookmark,
    /// The next pure acknowledgement shows a larger window before it acknowledges anything
    /// (invariant 7).
    pub raise_first: bool,
    /// Bytes came above a hole since the last pure acknowledgement, the only kind that tells of
    /// them, or a gateway has asked.
    early_untold: bool,
    /// The window has opened for a gateway that stood before it.
    reopened: Reopened,
    /// The newest segment, as it counts for the link that it came over; told once.
    arrived: Option<Arrived>,
    /// Whether that is the first of a clump.
    clump_is: Clump,
    /// Acknowledgements since the last report of the link.
    acks_since_report: u8,
    unacked_bytes: u32,
    segment_bytes: u32,
    /// So many segments more are acknowledged one by one.
    quick: u8,
    dsack: Option<SackBlock>,
    /// Payload that has come a second time, modulo 2^32; and how often that is still to be told.
    twice_bytes: u32,
    twice_untold: u8,
    /// Where the segment began that the source sent last although it was acknowledged, and how
    /// often in a row.
    repeated: Bookmark<(SeqNum, u8)>,
    /// What is said of bytes above the hole does not arrive.
    sack_is_lost: bool,
}

bookmarks!(Receiver { far_told, told_edge, told_soft_edge, repeated });

impl Receiver {
    /// A receiver that expects `next` from a source to which `window` bytes were shown.
    #[must_use]
    pub fn new(next: SeqNum, window: u32) -> Self {
        Self {
            fin_at: None,
            fin_claimed: None,
            owed: Owed::Nothing,
            last_ack_sent: next,
            edge: next + window,
            window_shown_max: window,
            ece: false,
            far_told: Bookmark::NONE,
            wishes: Wishes::default(),
            ack_held_back: false,
            stretch: None,
            introduction: Introduction::None,
            marks: Marks::default(),
            told_edge: Bookmark::NONE,
            reopened: Reopened::default(),
            told_soft_edge: Bookmark::NONE,
            raise_first: false,
            early_untold: false,
            arrived: None,
            clump_is: Clump::None,
            acks_since_report: 0,
            unacked_bytes: 0,
            segment_bytes: 536,
            quick: 0,
            dsack: None,
            twice_bytes: 0,
            twice_untold: 0,
            repeated: Bookmark::NONE,
            sack_is_lost: false,
        }
    }

    /// The handshake could not tell a gateway towards the source who speaks here.
    pub fn introduce(&mut self, now: Instant) {
        self.introduction = Introduction::begin(now);
    }

    /// The handshake has asked for one and found none; its answer may have been lost.
    pub fn may_introduce(&mut self) {
        self.introduction = Introduction::Asked;
    }

    /// An acknowledgement of its own towards the source is to say it.
    #[must_use]
    pub fn introduces(&self, now: Instant) -> bool {
        self.introduction.is_due(now)
    }

    /// Who speaks on the leg of the source may be said there, too.
    pub fn introduction_mut(&mut self) -> &mut Introduction {
        &mut self.introduction
    }

    /// Whether what is marked towards the source arrives there.
    #[must_use]
    pub fn marks(&self) -> Marks {
        self.marks
    }

    /// The same, to be changed.
    pub fn marks_mut(&mut self) -> &mut Marks {
        &mut self.marks
    }

    /// What was acknowledged beyond this has not been heard.
    pub fn take_back(&mut self, upto: SeqNum) {
        if self.last_ack_sent.after(upto) {
            self.last_ack_sent = upto;
        }
    }

    /// One has said it.
    pub fn note_introduced(&mut self, now: Instant) {
        self.introduction.note_said(now);
    }

    /// What the source has been shown before this receiver began: the right edge, and the largest
    /// window in bytes.
    pub fn remember_shown(&mut self, edge: SeqNum, window_max_bytes: u32) {
        self.edge = edge.max(self.last_ack_sent);
        self.window_shown_max = window_max_bytes;
    }

    /// RCV.NXT: the FIN counts once everything before it is there.
    #[must_use]
    pub fn rcv_nxt(&self, buffer: &SeqBuffer) -> SeqNum {
        buffer.end() + u32::from(self.fin_at == Some(buffer.end()))
    }

    /// Where the source's FIN stands, once everything before it is there.
    #[must_use]
    pub fn fin_at(&self) -> Option<SeqNum> {
        self.fin_at
    }

    /// Where a FIN above a hole says that it stands.
    #[must_use]
    pub fn fin_claimed(&self) -> Option<SeqNum> {
        self.fin_claimed
    }

    /// A FIN says that the stream ends here.
    pub fn claim_fin(&mut self, end: SeqNum) {
        self.fin_claimed = Some(end);
    }

    /// It was false, or what speaks for it is gone.
    pub fn forget_fin_claim(&mut self) {
        self.fin_claimed = None;
    }

    /// The stream ends here: everything before it is there.
    pub fn end_at(&mut self, fin: SeqNum) {
        self.fin_claimed = None;
        self.fin_at = Some(fin);
    }

    /// Last acknowledgement number sent (Last.ACK.sent of RFC 7323).
    #[must_use]
    pub fn last_ack_sent(&self) -> SeqNum {
        self.last_ack_sent
    }

    /// Largest window shown to the source, bytes: how far behind an ACK may come (RFC 5961).
    #[must_use]
    pub fn window_shown_max(&self) -> u32 {
        self.window_shown_max
    }

    /// Right edge of the window shown to the source.
    #[must_use]
    pub fn edge(&self) -> SeqNum {
        self.edge
    }

    /// So many bytes of the window that was shown lie behind this place.
    #[must_use]
    pub fn room_from(&self, at: SeqNum) -> u32 {
        self.edge.diff(at).max(0).unsigned_abs()
    }

    /// The source has been shown a window that ends here.
    pub fn note_shown_up_to(&mut self, edge: SeqNum) {
        self.edge = self.edge.max(edge);
    }

    /// The gateway towards the source has been told in the handshake that so much is taken at once.
    pub fn begin_with_told(&mut self, window_bytes: u32) {
        let edge = self.last_ack_sent + window_bytes;
        self.note_shown_up_to(edge);
        *self.told_edge = Some(edge);
    }

    /// The source counts the largest window anew.
    pub fn forget_window_shown_max(&mut self) {
        self.window_shown_max = 0;
    }

    /// The source sends segments of this payload.
    pub fn note_segment(&mut self, bytes: u32) {
        self.segment_bytes = self.segment_bytes.max(bytes.min(9_000));
    }

    /// A payload was inserted. The policy says how soon it is acknowledged.
    pub fn on_payload(
        &mut self,
        now: Instant,
        seq: SeqNum,
        len: u32,
        what: Inserted,
        early: Early,
        policy: AckPolicy,
    ) {
        if what.advanced_bytes == 0 && what.early_bytes == 0 && what.duplicate_bytes > 0 {
            self.dsack = Some(SackBlock { start: seq, end: seq + len });
        }
        if what.duplicate_bytes > 0 {
            self.twice_bytes = self.twice_bytes.wrapping_add(what.duplicate_bytes);
            self.twice_untold = TWICE_TOLD;
        }
        if what.advanced_bytes > 0 {
            self.reopened.note_used();
            self.marks.note_went_on();
        }
        self.note_repetition(now, (seq, seq + len), what, early.waiting);
        self.unacked_bytes = self.unacked_bytes.saturating_add(what.advanced_bytes);
        self.early_untold |= what.early_bytes > 0;
        let news = news(what, early);
        let came = Came {
            news,
            is_second: self.quick > 0 || self.unacked_bytes >= SEGMENTS_PER_ACK * self.segment_bytes,
            is_window: self.unacked_bytes >= INITIAL_WINDOW_SEGMENTS * self.segment_bytes,
            stretched: self.stretch.map(|stretch| stretch.delay),
        };
        let owed = policy.owed(now, &came);
        if policy.is_quick_after_gaps() {
            self.quick = match (news, owed) {
                (News::InOrder, Owed::Now) => self.quick.saturating_sub(1),
                (News::InOrder, _) => self.quick,
                _ => QUICK_ACKS,
            };
        }
        self.owe(owed);
    }

    /// What came has a FIN, or a report of the link is due. A destination acknowledges a FIN soon,
    /// as a rule: a gateway hears of both with one acknowledgement, then.
    pub fn hasten(&mut self, now: Instant, fin: bool, report_due: bool, policy: AckPolicy) {
        match policy {
            AckPolicy::Silent { .. } => {}
            AckPolicy::Gateway(interval) | AckPolicy::Beginning(interval) if fin => {
                self.ack_held_back = true;
                self.owe_by(now + interval.min(FIN_TOLD_AFTER));
            }
            _ if fin || report_due => self.owe_now(),
            _ => {}
        }
    }

    /// Less was acknowledged than has come.
    #[must_use]
    pub fn is_ack_held_back(&self) -> bool {
        self.ack_held_back
    }

    /// The same.
    pub fn set_ack_held_back(&mut self, is_held_back: bool) {
        self.ack_held_back = is_held_back;
    }

    /// A source that repeats what was acknowledged, again and again, has not got the
    /// acknowledgement. A firewall that follows connections may have dropped it: it has not seen
    /// the bytes above the hole, which wait here, and takes SACK blocks of them for forged. Until
    /// the holes are filled acknowledgements leave them out (RFC 2018 section 4 lets a receiver say
    /// less).
    fn note_repetition(
        &mut self,
        now: Instant,
        (seq, end): (SeqNum, SeqNum),
        what: Inserted,
        has_holes: bool,
    ) {
        if what.advanced_bytes > 0 {
            *self.repeated = None;
        } else if what.early_bytes == 0 && what.duplicate_bytes > 0 && !end.after(self.last_ack_sent) {
            self.marks.note_unheard(now);
            let before = self.repeated.filter(|(at, _)| *at == seq).map_or(0, |(_, times)| times);
            let times = before.saturating_add(1);
            *self.repeated = Some((seq, times));
            self.sack_is_lost |= times >= REPETITIONS_UNHEARD;
        }
        self.sack_is_lost &= has_holes;
    }

    /// An acknowledgement is owed by `at`.
    pub fn owe_by(&mut self, at: Instant) {
        self.owe(Owed::By(at));
    }

    /// As much is owed as before, or this, whichever is due first.
    fn owe(&mut self, more: Owed) {
        self.owed = self.owed.sooner(more);
    }

    /// What has come of the wishes of the gateway before.
    #[must_use]
    pub fn wishes(&self) -> &Wishes {
        &self.wishes
    }

    /// The same, to be heard or told.
    pub fn wishes_mut(&mut self) -> &mut Wishes {
        &mut self.wishes
    }

    /// An acknowledgement is owed at once.
    pub fn owe_now(&mut self) {
        self.owed = Owed::Now;
    }

    /// The gateway before asks where we stand. Full segments of data have no room for the answer,
    /// so an acknowledgement alone goes before them.
    pub fn answer_gateway(&mut self) {
        self.early_untold = true;
        self.owe_now();
    }

    /// None is owed any more.
    pub fn owe_nothing(&mut self) {
        self.owed = Owed::Nothing;
    }

    /// Until when the one that is owed may wait; `None`: none is owed, or it is owed at once.
    #[must_use]
    pub fn delayed_until(&self) -> Option<Instant> {
        if let Owed::By(t) = self.owed { Some(t) } else { None }
    }

    /// One is due that tells of bytes above a hole: only a pure acknowledgement can.
    #[must_use]
    pub fn must_tell_of_early(&self, now: Instant) -> bool {
        self.early_untold && self.due().is_some_and(|due| due <= now)
    }

    /// The source is told of all that is held above a hole.
    pub fn note_early_told(&mut self) {
        self.early_untold = false;
    }

    /// When it is due; `None` when none is owed.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        match self.owed {
            Owed::Nothing => None,
            Owed::By(t) => Some(t),
            Owed::Now => Some(Instant::ZERO),
        }
    }

    /// SACK blocks for the next acknowledgement: a D-SACK first (RFC 2883).
    #[must_use]
    pub fn sack_blocks(&self, buffer: &SeqBuffer) -> ArrayVec<SackBlock, 4> {
        let most = if self.dsack.is_some() { 3 } else { 4 };
        let mut blocks = buffer.sack_blocks(if self.sack_is_lost { 0 } else { most });
        if let Some(d) = self.dsack {
            let _ = blocks.try_insert(0, d);
        }
        blocks
    }

    /// An acknowledgement of `ack` with this right edge has been sent; its header shows a window of
    /// `shown_bytes`. What the source sends once it has heard it comes from `heard_from` on.
    pub fn on_ack_sent(&mut self, ack: SeqNum, edge: SeqNum, shown_bytes: u32, heard_from: Instant) {
        if !self.early_untold {
            self.owed = Owed::Nothing;
        }
        self.unacked_bytes = 0;
        self.acks_since_report = self.acks_since_report.saturating_add(1);
        self.dsack = None;
        if let Some(stretch) = self.stretch.as_mut().filter(|_| ack.after(self.last_ack_sent)) {
            stretch.grow();
        }
        if ack.after(self.last_ack_sent) {
            self.last_ack_sent = ack;
            self.marks.note_told(heard_from);
        }
        self.note_shown_up_to(edge);
        self.window_shown_max = self.window_shown_max.max(shown_bytes);
    }

    /// A gateway has been told of a window up to `edge`, and before of one up to `before`, with
    /// everything up to `next` here. Where it stood before it, it is told again.
    pub fn note_opened(
        &mut self,
        now: Instant,
        next: SeqNum,
        (before, edge): (SeqNum, SeqNum),
        rtt: Duration,
    ) {
        let stood = before.diff(next) < self.segment_bytes as i32;
        if let Some(after) = self.reopened.note_told(stood && edge.after(before), rtt) {
            self.owe_by(now + after);
        }
    }

    /// How much has come twice, modulo 2^32, where the gateway before is to be told that.
    #[must_use]
    pub fn twice_to_tell(&self) -> Option<u32> {
        (self.twice_untold > 0).then_some(self.twice_bytes)
    }

    /// It has been told.
    pub fn note_twice_told(&mut self) {
        self.twice_untold = self.twice_untold.saturating_sub(1);
    }

    /// A segment has come over a link. `bulk`: it is much, and nothing is missing before it.
    pub fn note_come(&mut self, come: &Come, bulk: bool) {
        if bulk && self.clump_is == Clump::Untold {
            return;
        }
        let first = come.clump.filter(|_| bulk && self.clump_is == Clump::None);
        self.arrived = first.or(come.arrived);
        if first.is_some() {
            self.clump_is = Clump::Untold;
        } else if !bulk {
            self.clump_is = Clump::None;
        }
    }

    /// What is to be told next of the link, if a report is due, or the rest of a clump: the newest
    /// that has come over it.
    #[must_use]
    pub fn to_report(&self, due: bool, newest: impl FnOnce() -> Arrived) -> Option<Arrived> {
        if self.clump_is == Clump::Told { Some(newest()) } else { self.arrived.filter(|_| due) }
    }

    /// The link's report has been told. Returns whether it was of a clump.
    pub fn note_reported(&mut self, newest: Arrived) -> bool {
        let (before, told) = (self.clump_is, self.arrived.take());
        self.acks_since_report = 0;
        self.clump_is = Clump::None;
        if before == Clump::Untold && told != Some(newest) {
            self.clump_is = Clump::Told;
            self.owe_now();
        }
        before != Clump::None
    }

    /// Acknowledgements since the last report of the link.
    #[must_use]
    pub fn acks_since_report(&self) -> u8 {
        self.acks_since_report
    }

    /// The largest payload of one packet that the source sent, bytes.
    #[must_use]
    pub fn segment_bytes(&self) -> u32 {
        self.segment_bytes
    }
}

/// Takes a payload into the buffer, cut at `edge`.
pub fn insert(
    buffer: &mut SeqBuffer,
    pool: &mut Pool,
    packet: farlink_wire::PacketBuf,
    seq: SeqNum,
    offset: usize,
    len: usize,
    edge: SeqNum,
) -> Inserted {
    let room = if edge.after(seq) { edge.since(seq) as usize } else { 0 };
    buffer.insert(pool, seq, packet, offset, len.min(room))
}

/// What a payload that was inserted so says of the stream.
fn news(what: Inserted, early: Early) -> News {
    if early.new_gap {
        News::NewGap
    } else if what.advanced_bytes == 0 && what.early_bytes == 0 {
        News::Nothing
    } else if early.waiting || what.early_bytes > 0 || what.duplicate_bytes > 0 {
        News::AtGap
    } else {
        News::InOrder
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_that_asks_is_answered_by_an_acknowledgement_alone() {
        let (now, at) = (Instant::from_millis(5), SeqNum(7));
        let mut rx = Receiver::new(at, 1000);
        assert!(!rx.must_tell_of_early(now));
        rx.answer_gateway();
        // Data that leaves first acknowledges, but has no room for more.
        rx.on_ack_sent(at, at + 1000, 1000, now);
        assert!(rx.must_tell_of_early(now));
        rx.note_early_told();
        rx.on_ack_sent(at, at + 1000, 1000, now);
        assert!(!rx.must_tell_of_early(now) && rx.due().is_none());
    }
}
