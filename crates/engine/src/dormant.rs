//! A sleeping flow: what it believes, when it wakes, and when it is over.
//!
//! It holds nothing, so each of its packets is forwarded. It learns only from those that the host
//! they are for would take, as far as that can be told from here (RFC 5961): who guesses does not
//! change what is known of a connection. The price: a connection that moves on round the gateway by
//! more than a window is a stranger to its record, and stays unsplit until it ends.

use farlink_wire::{Duration, FARLINK_DATA, Flags, Instant, SeqNum, TcpSegment};

use crate::asks::{Asks, Step, Word};
use crate::closed::Closed;
use crate::cx::Cx;
use crate::event::Event;
use crate::hosts::{Hosts, look_up};
use crate::leg::{Agreed, Leg};
use crate::net::IfaceId;
use crate::reach::{OLD_ACK_SLACK, STRANGER_BYTES};
use crate::relays::Relays;
use crate::side::{Pair, Side};

/// A connection that ended asleep is remembered so long: what comes late passes, a SYN begins anew.
const LINGER: Duration = Duration::from_secs(2);

/// What is remembered of a sleeping flow.
#[derive(Clone, Debug)]
pub struct Dormant {
    /// Per host: the highest sequence number it has used up.
    pub sent: Pair<SeqNum>,
    /// Per host: the highest acknowledgement it has given.
    pub acked: Pair<SeqNum>,
    /// Per host: the right edge of the window that it has been shown.
    pub edges: Pair<SeqNum>,
    /// Per host: the largest window that it has been shown, bytes.
    pub shown_max: Pair<u32>,
    /// Per host: the largest window that it has shown itself, bytes.
    pub own_max: Pair<u32>,
    /// Per host: what acknowledges its FIN, if it has sent one. Then the flow is never split again.
    pub fin: Pair<Option<SeqNum>>,
    /// When its hosts are asked whether they live, where a rule says so.
    pub asks: Option<Box<Asks>>,
}

/// The way of a packet to its other host.
#[derive(Clone, Copy, Debug)]
pub struct Road {
    /// Its link is away.
    pub is_away: bool,
    /// That is so, or it leads over a link to the next gateway, or comes from one.
    pub is_watched: bool,
}

impl Road {
    /// That of a segment of this host, which came in by that interface.
    #[must_use]
    pub fn of(cx: &Cx<'_>, legs: &Pair<Leg>, (from, by): (Side, IfaceId), s: &TcpSegment) -> Self {
        let far = legs.get(from.other());
        let to_gateway = far.peer.is_marked() && cx.links.get(far.out).is_some();
        let is_marked = s.options.farlink.as_ref().is_some_and(|o| o.form == FARLINK_DATA);
        let of_gateway = is_marked && legs.get(from).peer.is_marked() && cx.links.at(by).is_some();
        let is_away = cx.links.is_away(far.out);
        Self { is_away, is_watched: is_away || to_gateway || of_gateway }
    }
}

/// What a packet means for a sleeping flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    /// It sleeps on.
    Little,
    /// Its host cannot have sent it. The other one might take it, for we have shown it larger
    /// windows.
    Forged,
    /// It is to be split again before this packet is handled: both directions stand fully
    /// acknowledged, and the packet fits in exactly.
    Wakes,
    /// Both hosts have closed it, and know of each other's end.
    Ends,
    /// A host has reset it.
    Resets,
}

impl Dormant {
    /// A segment of this host is one that its other host takes, and that says something new: its
    /// data lies in the window, from the last acknowledgement on (a keepalive just below it), and
    /// it acknowledges no less than the one before and nothing that was never sent. Where the other
    /// direction passes round us its acknowledgements run ahead of what is known here. Then the
    /// sequence number must be exactly the next one: a window is hit far more easily.
    fn is_in_windows(&self, from: Side, s: &TcpSegment) -> bool {
        let (own, other) = (*self.sent.get(from), from.other());
        let (sent, edge) = (*self.sent.get(other), *self.edges.get(other));
        let in_window =
            (s.seq + 1).after_eq(*self.acked.get(other)) && s.seq.before_eq(own.max(*self.edges.get(from)));
        let of_sent = s.ack.before_eq(sent) || (s.seq == own && s.ack.before_eq(edge));
        in_window && s.ack.after_eq(*self.acked.get(from)) && of_sent
    }

    /// The number at which the other host takes a reset (RFC 5961 section 3.2): the next one that
    /// it expects.
    fn is_exact(&self, from: Side, s: &TcpSegment) -> bool {
        s.seq == *self.sent.get(from) || s.seq == *self.acked.get(from.other())
    }

    /// It acknowledges less than its host did before, by more than any window of that host's. RFC
    /// 5961 (5.2) has the other host refuse that, but by the windows that it has seen, and those
    /// were ours.
    fn is_forged(&self, from: Side, s: &TcpSegment) -> bool {
        let acked = *self.acked.get(from);
        let age = if s.ack.before(acked) { acked.since(s.ack) } else { 0 };
        s.flags.ack() && age > *self.own_max.get(from) && u64::from(age) <= STRANGER_BYTES
    }

    /// Both directions stand fully acknowledged, and neither has ended.
    fn is_quiet(&self) -> bool {
        let ends = self.fin.a.is_some() || self.fin.b.is_some();
        self.acked.a == self.sent.b && self.acked.b == self.sent.a && !ends
    }

    /// The segment wakes the flow; `is_watched`: on its way is a link that is away, or one with a
    /// gateway at its other end. Then a keepalive does, too, by which it is found out whether the
    /// link is away, and the end of the stream.
    fn is_woken_by(&self, from: Side, s: &TcpSegment, is_watched: bool) -> bool {
        let next = *self.sent.get(from);
        let exact = s.seq == next && (s.payload_len > 0 || (is_watched && s.flags.fin()));
        let asks = is_watched && s.seq + 1 == next && s.payload_len <= 1 && !s.flags.fin();
        self.is_quiet() && s.ack == *self.acked.get(from) && (exact || asks) && !s.flags.urg()
    }

    /// Takes in a segment that passes the checks.
    fn learn(&mut self, from: Side, s: &TcpSegment, window: u32) {
        let end = s.end_seq();
        let sent = self.sent.get_mut(from);
        *sent = sent.max(end);
        let own_max = self.own_max.get_mut(from);
        *own_max = (*own_max).max(window);
        let edge = self.edges.get_mut(from.other());
        *edge = edge.max(s.ack + window);
        let shown = self.shown_max.get_mut(from.other());
        *shown = (*shown).max(window);
        let acked = self.acked.get_mut(from);
        *acked = acked.max(s.ack);
        // What is acknowledged has been sent, whichever way it went.
        let other = self.sent.get_mut(from.other());
        *other = other.max(s.ack);
        if s.flags.fin() {
            *self.fin.get_mut(from) = Some(end);
        }
    }

    /// Both FINs are acknowledged.
    fn is_over(&self) -> bool {
        let known = |fin: Option<SeqNum>, acked: SeqNum| fin.is_some_and(|f| acked.after_eq(f));
        known(self.fin.a, self.acked.b) && known(self.fin.b, self.acked.a)
    }

    /// This segment is one that its host's other host would take, so the host itself has spoken.
    #[must_use]
    pub fn is_word_of(&self, agreed: Agreed, from: Side, s: &TcpSegment) -> bool {
        // RFC 7323 section 3.2: where timestamps were agreed on, what has none is not taken.
        self.is_in_windows(from, s) && (!agreed.timestamps || s.options.timestamps.is_some())
    }

    /// A packet passes; `is_word`: by [`Self::is_word_of`], `may_wake`: there is room for one more,
    /// `road`: what is known of its way to the other host.
    pub fn pass(
        &mut self,
        now: Instant,
        (leg, agreed): (&mut Leg, Agreed),
        from: Side,
        s: &TcpSegment,
        (is_word, may_wake, road): (bool, bool, Road),
    ) -> Told {
        if s.flags.rst() && !s.flags.syn() {
            if !self.is_exact(from, s) {
                return Told::Little;
            }
            // Nobody would repeat it.
            let waits = road.is_away && may_wake && self.is_quiet();
            return if waits { Told::Wakes } else { Told::Resets };
        }
        if !is_word {
            let says_more = s.payload_len > 0 || s.flags.fin();
            return if says_more && self.is_forged(from, s) { Told::Forged } else { Told::Little };
        }
        if may_wake && self.is_woken_by(from, s, road.is_watched) {
            return Told::Wakes;
        }
        if let (true, Some(t)) = (agreed.timestamps, s.options.timestamps)
            && s.seq.before_eq(*self.acked.get(from.other()))
        {
            leg.note_stamp(t.val);
        }
        self.learn(from, s, u32::from(s.window) << leg.window_scale);
        leg.hear(now, s);
        if self.is_over() { Told::Ends } else { Told::Little }
    }

    /// This segment, by [`Self::is_word_of`] of its host, is the answer to a question of ours. It
    /// is nothing to the other host, unless it shows another window.
    pub fn takes_answer(
        &mut self,
        (now, every): (Instant, Option<Duration>),
        leg: &Leg,
        from: Side,
        s: &TcpSegment,
    ) -> bool {
        let is_bare = s.flags == Flags::ACK && s.payload_len == 0;
        let says_nothing_new = s.seq == *self.sent.get(from) && s.ack == *self.acked.get(from);
        let is_same_window = u32::from(s.window) << leg.window_scale == leg.window_bytes();
        let is_answer = is_bare && says_nothing_new && is_same_window && self.is_quiet();
        let Some((asks, every)) = self.asks.as_mut().zip(every) else { return false };
        asks.hear(now, every, from, if is_answer { Word::Answer } else { Word::Other })
    }

    /// When its hosts are to be asked whether they live.
    #[must_use]
    pub fn asks_at(&self) -> Option<Instant> {
        self.asks.as_ref().and_then(|asks| asks.at())
    }

    /// Time may have come to ask both hosts whether they live, each in the name of the other one
    /// and one below its next number (RFC 9293 3.8.4). `every`: so often a rule wants it.
    pub fn ask(
        &mut self,
        cx: &mut Cx<'_>,
        (legs, agreed): (&mut Pair<Leg>, Agreed),
        every: Option<Duration>,
    ) {
        let is_quiet = self.is_quiet();
        let Some(asks) = self.asks.as_mut() else { return };
        let Some(every) = every else { return asks.end() };
        let is_away = [&legs.a, &legs.b].into_iter().any(|leg| cx.links.is_away(leg.out));
        match asks.step(cx.now, every, is_quiet && !is_away) {
            Step::Wait => {}
            Step::Stop => cx.counters.keepalives_given_up += 1,
            Step::Ask => {
                for to in [Side::A, Side::B] {
                    look_up(cx, legs, to);
                    let from = to.other();
                    let (seq, ack) = (*self.sent.get(from) - 1, *self.acked.get(from));
                    Hosts { legs, agreed }.make_bare(cx, to, Flags::ACK, seq, ack);
                    cx.counters.keepalives_asked += 1;
                }
            }
        }
    }

    /// It is split again, before this segment is handled.
    pub fn wake(
        &self,
        cx: &mut Cx<'_>,
        (legs, agreed): (&mut Pair<Leg>, Agreed),
        from: Side,
        s: &TcpSegment,
    ) -> Box<Relays> {
        let next = self.sent;
        let heard_at = legs.get(from).heard_at();
        if !s.flags.rst() {
            legs.get_mut(from).hear(cx.now, s);
        }
        let mut r = Relays::begin(cx, legs, agreed, next);
        r.a.tx.wake_pair();
        r.b.tx.wake_pair();
        cx.happened(legs, Event::Woken);
        r.a.tx.update_window(next.b, next.a, u64::from(legs.b.window_bytes()), false);
        r.b.tx.update_window(next.a, next.b, u64::from(legs.a.window_bytes()), false);
        r.a.rx.remember_shown(self.edges.a, self.shown_max.a);
        r.b.rx.remember_shown(self.edges.b, self.shown_max.b);
        if s.seq + 1 == *next.get(from) {
            // What passed last may be the keepalive of a host, and its gateway asks behind it.
            r.get_mut(from).note_keepalive(Some(heard_at));
        }
        r
    }

    /// It has ended asleep.
    #[must_use]
    pub fn end(&self, now: Instant, reset: bool) -> Closed {
        Closed {
            until: now + LINGER,
            next: self.sent,
            reach_bytes: u64::from(self.shown_max.a.max(self.shown_max.b)) + OLD_ACK_SLACK,
            reset,
            reset_by: None,
            ask: None,
            held_nothing: true,
        }
    }
}
