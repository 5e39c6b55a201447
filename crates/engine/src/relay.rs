//! One direction of a split connection: what it holds, and what that says.

use farlink_cc as cc;
use farlink_wire::{Duration, Instant, Pool, SeqNum, TcpSegment};

use crate::beyond::{Belief, Beyond};
use crate::bookmark::{Bookmark, Bookmarks, bookmarks, is_near, part_of};
use crate::buffer::SeqBuffer;
use crate::config::Limits;
use crate::cx::Cx;
use crate::debt::Debt;
use crate::hosts::Hosts;
use crate::leg::Leg;
use crate::link::{Entry, Link, Links};
use crate::marks::Marks;
use crate::noticed::Noticed;
use crate::peer::Message;
use crate::queue_drop::QueueDrop;
use crate::receiver::Receiver;
use crate::regulator::{Adaptive, Appetite, ReadRate};
use crate::sender::{RtoBounds, Sender, Supply};
use crate::side::Side;

/// For each byte that its destination has taken beyond what a host takes for a program that reads
/// nothing, a relay may hold so many more.
const GROWTH: u64 = 2;
const UNREAD_BYTES: u64 = 128 << 10;
/// A receiver whose window is closed is silent when it has left so many probes unanswered.
const SILENT_PROBES: u8 = 3;
/// So many timeouts in a row, and a destination makes no progress.
const STALLED_TIMEOUTS: u32 = 3;
/// A far host that stands still for less has lost nothing: Linux TCP_RTO_MIN.
const LOST_AFTER: Duration = Duration::from_millis(200);
/// A FIN waits so long for its destination before its source is let go: Linux keeps a closed socket
/// that is not acknowledged for about twice this (tcp_orphan_retries).
const FIN_PATIENCE: Duration = Duration::from_secs(30);

/// One direction of a split connection.
#[derive(Debug)]
pub struct Relay {
    /// The bytes held.
    pub buffer: SeqBuffer,
    /// Towards the source.
    pub rx: Receiver,
    /// Towards the destination.
    pub tx: Sender,
    /// The source pushed everything before this.
    push: SeqNum,
    /// What has been released last was not pushed: its source has more to send.
    goes_on: bool,
    /// Urgent data ends before this, as the source's newest urgent pointer says.
    urgent_end: Bookmark,
    /// An urgent pointer of 0 stood in a segment that begins here: some receivers take its first
    /// byte as urgent, others nothing. Only the very same segment means the same to all.
    urgent_zero: Bookmark,
    /// What the far host has acknowledged, as a peer tells it.
    far_ack: Bookmark,
    /// Draining: nothing from here on is taken.
    frozen_at: Option<SeqNum>,
    /// Acknowledged by the destination beyond what passed through here (after freezing or a
    /// bypass).
    acked_beyond: Bookmark,
    /// Bytes that may be held in any case.
    limit_bytes: u32,
    /// Bytes that may be held before the destination has taken any.
    start_bytes: u32,
    /// How fast the destination takes what waits.
    pub read_rate: ReadRate,
    /// Whether the source sends all that it is shown, where that is asked.
    pub appetite: Option<Box<Appetite>>,
    /// The thesis's receive buffer.
    pub adaptive: Adaptive,
    /// Segments dropped to slow the source.
    pub queue_drop: QueueDrop,
    /// When the destination acknowledged something last, and how long after the time before.
    acked_at: Option<(Instant, Duration)>,
    /// Something has come from the source.
    begun: bool,
    /// The end of what was forwarded past what is held, because the destination answers round us.
    pub passed_end: Bookmark,
    /// Packets have been seen to go round us: the source's FIN is acknowledged only when its
    /// destination has it.
    bypassed: bool,
    /// When the source's FIN came.
    fin_since: Option<Instant>,
    /// The FIN has waited long enough for its destination: it is acknowledged with what stands
    /// before it.
    fin_overdue: bool,
    /// How far the source has shown that it has sent.
    pub source_nxt: SeqNum,
    /// The destination's word on bytes that went round us, until it stands by it.
    pub believed: Option<Belief>,
    /// Since when the far host has not gone on acknowledging what a gateway holds for it, and where
    /// it stands.
    pub far_waits: Bookmark<(SeqNum, Instant)>,
    /// What it owes its source though it promises nothing any more.
    debt: Debt,
    /// What stands before this a gateway further on has taken, and has died with.
    lost_until: Bookmark,
    /// Timeouts in a row without progress.
    timeouts: u32,
    /// Where its stream stood when its bookmarks were looked after, in parts.
    looked_at: u8,
    /// Since when something is held that could be sent, and nothing is under way: the leg has given
    /// it no turn.
    pub waits_since: Option<Instant>,
    /// When a keepalive of the source went on: the answer must, too.
    pub keepalive_passed: Option<Instant>,
    /// Evidence of a path round us: what the destination acknowledges and never passed here.
    pub beyond: Beyond,
    /// What its source was told of outages.
    pub noticed: Noticed,
    /// What it is booked with.
    booked: Entry,
}

bookmarks!(Relay {
    rx,
    tx,
    urgent_end,
    urgent_zero,
    far_ack,
    acked_beyond,
    appetite,
    queue_drop,
    passed_end,
    far_waits,
    lost_until
});

impl Relay {
    /// A relay of what host `from` sends, from this sequence number on. It holds nothing yet.
    #[must_use]
    pub fn new(hosts: Hosts<'_>, cx: &Cx<'_>, from: Side, next: SeqNum) -> Self {
        let to = from.other();
        let dst = hosts.legs.get(to);
        let mss = hosts.segment_payload(to);
        let link = cx.links.get(dst.out);
        let limit_bytes = hosts.relay_limit(cx.config, cx.links, to);
        let governed = hosts.controller_config(cx.config, cx.links, from, next, 0);
        let controller = cc::Controller::new(&governed);
        let bounds = RtoBounds { min: cx.config.timers.rto_min, max: cx.config.timers.rto_max };
        let mut tx = Sender::new(cx.now, next, controller, mss, hosts.agreed.sack, bounds);
        if let Some(srtt) = dst.srtt() {
            tx.remember_rtt(srtt);
        }
        tx.pace_start(hosts.start(cx.config, cx.links, to).paced_over);
        tx.declare_rtt(link.and_then(Link::rtt_in_force));
        // What the handshake has waited for on its way back the first answer waits for twice: more
        // stands before it.
        let is_declared = link.is_some_and(Link::is_rate_declared);
        let shown = link.zip(dst.handshake_rtt()).filter(|_| is_declared);
        let waits = shown.map_or(Duration::ZERO, |(link, rtt)| link.handshake_waits(rtt));
        let expected = link.and_then(|link| dst.handshake_rtt().max(link.rtt_in_force()));
        tx.expect_rtt(expected.map(|rtt| rtt + waits), is_declared);
        if dst.is_handshake_repeated() {
            tx.note_repeated_syns();
        }
        Self {
            buffer: SeqBuffer::new(next),
            rx: Receiver::new(next, dst.window_bytes()),
            tx,
            push: next,
            goes_on: false,
            urgent_end: Bookmark::NONE,
            urgent_zero: Bookmark::NONE,
            far_ack: Bookmark::NONE,
            frozen_at: None,
            acked_beyond: Bookmark::NONE,
            limit_bytes,
            start_bytes: hosts.start_bytes(cx, limit_bytes),
            read_rate: ReadRate::default(),
            appetite: None,
            adaptive: Adaptive::default(),
            queue_drop: QueueDrop::default(),
            acked_at: None,
            begun: false,
            passed_end: Bookmark::NONE,
            bypassed: false,
            fin_since: None,
            fin_overdue: false,
            source_nxt: next,
            believed: None,
            far_waits: Bookmark::NONE,
            debt: Debt::default(),
            lost_until: Bookmark::NONE,
            timeouts: 0,
            looked_at: part_of(next),
            waits_since: None,
            keepalive_passed: None,
            beyond: Beyond::default(),
            noticed: Noticed::default(),
            booked: Entry::default(),
        }
    }

    /// The destination has everything before `ack`.
    pub fn release(&mut self, pool: &mut Pool, ack: SeqNum) {
        if ack.after(self.buffer.base()) {
            self.goes_on = self.push.before(ack);
        }
        self.buffer.release(pool, ack.min(self.buffer.end()));
        // What was pushed before is not remembered until the numbers have wrapped.
        self.push = self.push.max(ack);
        *self.urgent_end = self.urgent_end.filter(|u| u.after(ack));
        *self.urgent_zero = self.urgent_zero.filter(|u| u.after_eq(ack));
    }
    /// Something of the source is here, in order or behind a gap: it takes room, and may be the
    /// only copy on its way.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.is_busy() || self.buffer.has_early()
    }
    /// It holds data, or the end of its stream, that has not arrived.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        !self.buffer.is_empty() || self.fin_outstanding()
    }
    /// In-order bytes in custody.
    #[must_use]
    pub fn custody_bytes(&self) -> u32 {
        self.buffer.len()
    }
    /// The source's FIN is here and not yet acknowledged by the destination.
    #[must_use]
    pub fn fin_outstanding(&self) -> bool {
        self.rx.fin_at().is_some_and(|f| f == self.buffer.end() && self.tx.snd_una().before_eq(f))
    }
    /// The source's FIN has come, and all that stands before it.
    pub fn note_fin(&mut self, now: Instant) {
        self.fin_since = Some(now);
    }
    /// When its FIN has waited long enough.
    #[must_use]
    pub fn fin_deadline(&self) -> Option<Instant> {
        self.fin_since.filter(|_| self.fin_outstanding() && !self.fin_overdue).map(|at| at + FIN_PATIENCE)
    }
    /// Its source is let go.
    pub fn stop_waiting_with_fin(&mut self) {
        self.fin_overdue = true;
        self.rx.owe_now();
    }
    /// The destination has acknowledged the source's FIN.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.rx.fin_at().is_some_and(|f| self.tx.snd_una().after(f))
    }
    /// RCV.NXT.
    #[must_use]
    pub fn rcv_nxt(&self) -> SeqNum {
        self.rx.rcv_nxt(&self.buffer)
    }
    /// The acknowledgement that the source gets: RCV.NXT, but of a FIN when its destination has
    /// acknowledged it, or when it has waited long, all before it has arrived, and nothing goes
    /// round us. A source whose FIN is acknowledged may be gone and answer a destination that
    /// reaches it directly with RST, or begin anew on the same ports while we still hold its end.
    #[must_use]
    pub fn ack(&self) -> SeqNum {
        let delivered = self.far_acked().after_eq(self.buffer.end());
        let early = self.fin_overdue && delivered && !self.bypassed;
        if self.fin_outstanding() && !early {
            self.rx.last_ack_sent().max(self.buffer.end())
        } else {
            self.rcv_nxt()
        }
    }
    /// Only bytes behind a gap are held: whether the destination lacks what is missing is not
    /// known.
    #[must_use]
    pub fn waits_behind_hole(&self) -> bool {
        let fin_ahead = self.rx.fin_claimed().is_some();
        (self.buffer.has_early() || fin_ahead) && !self.is_busy() && self.tx.board().is_empty()
    }
    /// A window that is larger than any before, and by enough to wait for it, can be shown to the
    /// source: windows are told in units of `1 << shift`.
    #[must_use]
    pub fn can_show_more(&self, limit_bytes: u32, shift: u8, field_max_bytes: u32) -> bool {
        let shift = shift.min(14);
        let shown = self.rx.window_shown_max();
        shown.saturating_add(shown / 2) >> shift < limit_bytes.min(field_max_bytes) >> shift
    }
    /// The stream goes on behind what the destination has.
    #[must_use]
    pub fn goes_on(&self) -> bool {
        self.goes_on
    }
    /// The source has pushed what stands before `end`, which is here.
    pub fn note_push(&mut self, end: SeqNum) {
        if end.after(self.push) && end.before_eq(self.buffer.highest()) {
            self.push = end;
        }
    }
    /// Its stream ends at `end`: nothing beyond was pushed.
    pub fn end_push(&mut self, end: SeqNum) {
        self.push = self.push.min(end);
    }
    /// A segment from `seq` to `end` holds the end of something that was pushed.
    #[must_use]
    pub fn is_pushed(&self, seq: SeqNum, end: SeqNum) -> bool {
        seq != end && (self.push == end || (self.push.after(seq) && self.push.before(end)))
    }
    /// Where urgent data ends, by a segment with URG and `len` payload bytes to be taken (RFC 9293
    /// 3.8.5).
    pub fn note_urgent(&mut self, s: &TcpSegment, len: u32) {
        if s.urgent == 0 {
            *self.urgent_zero = (len > 0 && s.seq.after_eq(self.tx.snd_nxt())).then_some(s.seq);
            return;
        }
        let urgent_end = s.seq + u32::from(s.urgent);
        if urgent_end.after(self.buffer.base()) && self.urgent_end.is_none_or(|u| urgent_end.after(u)) {
            *self.urgent_end = Some(urgent_end);
            self.tx.announce_urgent();
        }
    }
    /// The urgent pointer of a segment that begins at `seq`; `None`: it has none.
    #[must_use]
    pub fn urgent_pointer(&self, seq: SeqNum, len: u32) -> Option<u16> {
        let ahead = self.urgent_end.filter(|u| u.after(seq));
        let ahead = ahead.map(|u| u16::try_from(u.since(seq)).unwrap_or(u16::MAX));
        ahead.or((len > 0 && *self.urgent_zero == Some(seq)).then_some(0))
    }
    /// What the sender may draw on.
    #[must_use]
    pub fn supply(&self) -> Supply {
        Supply {
            end: self.buffer.end(),
            fin: self.rx.fin_at() == Some(self.buffer.end()),
            push: self.push,
            urgent_end: self.urgent_end.filter(|u| u.after(self.tx.snd_nxt())),
            urgent_until: *self.urgent_end,
            urgent_zero: *self.urgent_zero,
        }
    }
    /// The source has shown that it has sent what stands before `end`. Behind the end of its stream
    /// there is nothing.
    pub fn note_source_sent(&mut self, end: SeqNum) {
        let end = self.rx.fin_at().map_or(end, |fin| end.min(fin + 1));
        self.source_nxt = self.source_nxt.max(end);
    }
    /// It has shown that it has sent all before this.
    #[must_use]
    pub fn has_source_sent(&self, before: SeqNum) -> bool {
        before.before_eq(self.source_nxt)
    }
    /// The far host's acknowledgement, as far as it is known.
    #[must_use]
    pub fn far_acked(&self) -> SeqNum {
        self.far_ack.unwrap_or(self.tx.snd_una())
    }
    /// The source repeats what has been here and is not any more: a gateway further on has taken
    /// it, and has died with it. So it seems when the far host itself is heard (`is_direct`), and
    /// has stood still for a timeout before what is repeated. From then on that holds of all that
    /// such a gateway has taken by then.
    pub fn is_lost(&mut self, now: Instant, is_direct: bool, seq: SeqNum, end: SeqNum) -> bool {
        let (far, gone) = (self.far_acked(), self.tx.snd_una());
        if !is_direct || !seq.before(gone) || end.after(self.rcv_nxt()) || !end.min(gone).after(far) {
            return false;
        }
        let patience = self.tx.rto().max(LOST_AFTER);
        let stands = self.far_waits.is_some_and(|(at, since)| at == far && now.since(since) >= patience);
        if stands && seq.before_eq(far) {
            *self.lost_until = Some(gone);
        }
        self.lost_until.is_some()
    }
    /// Its source is promised what it sends from now on, and all that is here is acknowledged now;
    /// or nothing more is promised to it.
    pub fn change_promise(&mut self, binds: bool) {
        self.debt = if binds { Debt::default() } else { Debt::upto(self.rx.last_ack_sent()) };
        if binds {
            self.rx.owe_now();
        }
    }
    /// What it owes its source though it promises nothing any more.
    #[must_use]
    pub fn debt(&self) -> Debt {
        self.debt
    }
    /// How far the far host has come, now: whether it waits for what a gateway holds.
    pub fn watch_far(&mut self, now: Instant) {
        let far = self.far_acked();
        let waits = self.far_waits.filter(|(at, _)| *at == far).unwrap_or((far, now));
        *self.far_waits = far.before(self.tx.snd_una()).then_some(waits);
        *self.lost_until = self.lost_until.filter(|until| far.before(*until));
        self.debt.settle(self.with_beyond(far));
    }
    /// A gateway on the way to the destination has told of the far host's acknowledgement.
    #[must_use]
    pub fn is_far_known(&self) -> bool {
        self.far_ack.is_some()
    }
    /// The destination's leg acknowledges `ack`: with a `told` message by a gateway, without one by
    /// the far host itself, to which no gateway is heard any more if not `heard`. Where such a one
    /// has acknowledged more than the host, the host's word counts until it has come as far.
    pub fn hear_far(&mut self, ack: SeqNum, told: Option<&Message>, heard: bool) {
        let Some(told) = told else {
            let far = self.far_ack.map(|far| far.max(ack.min(self.tx.snd_nxt())));
            *self.far_ack = far.filter(|far| heard || far.before(self.tx.snd_una()));
            return;
        };
        if told.far_ack.is_some() {
            self.tx.on_answer();
        }
        // What a gateway acknowledges is not the far host's word: that stands where it stood before
        // the gateway spoke.
        let before = *self.far_ack.get_or_insert(self.tx.snd_una());
        if let Some(far) = told.far_ack.filter(|far| far.before_eq(ack) && far.after(before)) {
            *self.far_ack = Some(far);
        }
    }
    /// What a gateway has told of the far host counts no more.
    pub fn forget_far(&mut self) {
        *self.far_ack = None;
    }
    /// The destination has acknowledged so much, here or beyond what passed through here.
    #[must_use]
    pub fn acked(&self) -> SeqNum {
        self.with_beyond(self.tx.snd_una())
    }
    /// `ack`, or what the destination has acknowledged beyond what passed through here.
    #[must_use]
    pub fn with_beyond(&self, ack: SeqNum) -> SeqNum {
        self.acked_beyond.map_or(ack, |beyond| beyond.max(ack))
    }
    /// The destination has acknowledged so much beyond what passed through here.
    pub fn note_beyond(&mut self, ack: SeqNum) {
        *self.acked_beyond = Some(self.with_beyond(ack));
    }

    /// Nothing is taken from where it is frozen on: behind what is held, which SACKed data belongs
    /// to.
    pub fn freeze(&mut self) {
        let highest = self.buffer.highest();
        // A FIN that is there belongs to what is held.
        let fin = u32::from(self.rx.fin_at().or(self.rx.fin_claimed()) == Some(highest));
        self.frozen_at = Some(highest + fin);
    }
    /// Nothing is taken from some place on.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.frozen_at.is_some()
    }
    /// Where it is frozen.
    #[must_use]
    pub fn frozen_at(&self) -> Option<SeqNum> {
        self.frozen_at
    }
    /// Frozen, and everything below the frozen edge has been delivered. What waits above a hole is
    /// below the edge: it was SACKed, so the hole is filled in a round trip, and what was let go
    /// would come again only after a timeout.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.frozen_at.is_some() && !self.holds()
    }

    pub fn book(&mut self, links: &mut Links, new: Entry) {
        let old = core::mem::replace(&mut self.booked, new);
        if old != new {
            links.book(&old, &new);
        }
    }

    /// The destination acknowledges something.
    pub fn note_acked(&mut self, now: Instant) {
        let before = self.acked_at.map_or(Instant::ZERO, |(at, _)| at);
        self.acked_at = Some((now, now.since(before)));
    }
    /// How long ago that was, or how long after the time before, whichever is longer; `None`: it
    /// never did.
    #[must_use]
    pub fn ack_gap(&self, now: Instant) -> Option<Duration> {
        self.acked_at.map(|(at, gap)| now.since(at).max(gap))
    }

    /// Bytes that may be held in any case.
    #[must_use]
    pub fn limit_bytes(&self) -> u32 {
        self.limit_bytes
    }
    /// Another bound is in force. Where `whole`, all of it counts from the start.
    pub fn set_limit(&mut self, limit_bytes: u32, whole: bool) {
        self.limit_bytes = limit_bytes;
        self.start_bytes = if whole { limit_bytes } else { self.start_bytes.min(limit_bytes) };
        self.tx.set_window_limit(Limits::window_bytes(limit_bytes));
    }
    /// Something has come from the source.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.begun
    }
    /// Something comes from the source. Returns whether it is the first.
    pub fn begin(&mut self) -> bool {
        !core::mem::replace(&mut self.begun, true)
    }
    /// Packets have been `seen` to go round us, or have not.
    pub fn note_bypass(&mut self, seen: bool) {
        self.bypassed |= seen;
    }

    /// What is remembered of its stream and lies too far away is forgotten: here, on the leg of its
    /// destination, and with what is sent there. What goes round a gateway may do so while the
    /// stream stands still.
    pub fn end_bookmarks(&mut self, to: &mut Leg, marks: &mut Marks) {
        let here = self.tx.snd_una();
        self.acked_beyond.end_far(here);
        self.passed_end.end_far(here);
        if self.looked_at != part_of(here) {
            self.looked_at = part_of(here);
            self.end_far(here);
            // These two are places from which something counts: none is no answer.
            for at in [&mut self.source_nxt, &mut self.push] {
                if !is_near(*at, here) {
                    *at = here;
                }
            }
            to.end_far(here);
            marks.end_far(here);
        }
    }
    /// Each of them can be compared with what is sent and acknowledged now.
    #[must_use]
    pub fn has_near_bookmarks(&self, to: &Leg, marks: &Marks) -> bool {
        let here = self.tx.snd_una();
        self.are_near(here) && to.are_near(here) && marks.are_near(here)
    }

    /// Timeouts in a row without progress.
    #[must_use]
    pub fn timeouts(&self) -> u32 {
        self.timeouts
    }
    /// A timeout has passed without progress since.
    #[must_use]
    pub fn has_timed_out(&self) -> bool {
        self.timeouts > 0
    }
    /// The destination is waited for in vain: a timeout has passed, or several questions to a
    /// closed window have stayed unanswered.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.timeouts > 0 || self.tx.unanswered_probes() >= SILENT_PROBES
    }
    /// It has not answered for several timeouts: nothing more is promised, and others are to judge
    /// whether it lives.
    #[must_use]
    pub fn is_stalled(&self) -> bool {
        self.timeouts >= STALLED_TIMEOUTS
    }
    /// A timeout.
    pub fn note_timeout(&mut self) {
        self.timeouts = self.timeouts.saturating_add(1);
    }
    /// There is progress, or a reason why there was none. Returns how many timeouts there were.
    pub fn forget_timeouts(&mut self) -> u32 {
        core::mem::take(&mut self.timeouts)
    }

    /// Bytes that may be held by what the destination has taken so far.
    #[must_use]
    pub fn earned_bytes(&self) -> u32 {
        let read = self.tx.delivered_bytes().saturating_sub(UNREAD_BYTES);
        let grown = u64::from(self.start_bytes).saturating_add(GROWTH * read);
        u32::try_from(grown).unwrap_or(u32::MAX).min(self.limit_bytes)
    }
}
