//! A sleeping flow: what it believes, when it wakes, and when it is over.
//!
//! It holds nothing, so each of its packets is forwarded. It learns only from those that the host they are for would take,
//! as far as that can be told from here (RFC 5961): who guesses does not change what is known of a connection.
//! The price: a connection that moves on round the gateway by more than a window is a stranger to its record, and stays
//! unsplit until it ends.

use farlink_wire::{Duration, Instant, SeqNum, TcpSegment};

use crate::flow::{Agreed, Cx, Flow, Leg};
use crate::mode::{Closed, Mode};
use crate::reach::{OLD_ACK_SLACK, STRANGER_BYTES};
use crate::side::{Pair, Side};

/// A connection that ended asleep is remembered so long: what comes late passes, a SYN begins anew.
const LINGER: Duration = Duration::from_secs(2);
/// TS.Recent of a host that was silent for longer is worth nothing (RFC 7323 section 5.5).
const STAMP_LIFE: Duration = Duration::from_secs(24 * 24 * 3600);

/// What is remembered of a sleeping flow.
#[derive(Clone, Copy, Debug)]
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
}

/// What a packet means for a sleeping flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    /// It sleeps on.
    Little,
    /// Its host cannot have sent it. The other one might take it, for we have shown it larger windows.
    Forged,
    /// It is to be split again before this packet is handled: both directions stand fully acknowledged, and the packet
    /// fits in exactly.
    Wakes,
    /// Both hosts have closed it, and know of each other's end.
    Ends,
    /// A host has reset it.
    Resets,
}

impl Dormant {
    /// A segment of this host is one that its other host takes, and that says something new: its data lies in the window, from
    /// the last acknowledgement on (a keepalive just below it), and it acknowledges no less than the one before and nothing
    /// that was never sent. Where the other direction passes round us its acknowledgements run ahead of what is known here.
    /// Then the sequence number must be exactly the next one: a window is hit far more easily.
    fn is_in_windows(&self, from: Side, s: &TcpSegment) -> bool {
        let (own, other) = (*self.sent.get(from), from.other());
        let (sent, edge) = (*self.sent.get(other), *self.edges.get(other));
        let in_window =
            (s.seq + 1).after_eq(*self.acked.get(other)) && s.seq.before_eq(own.max(*self.edges.get(from)));
        let of_sent = s.ack.before_eq(sent) || (s.seq == own && s.ack.before_eq(edge));
        in_window && s.ack.after_eq(*self.acked.get(from)) && of_sent
    }

    /// The number at which the other host takes a reset (RFC 5961 section 3.2): the next one that it expects.
    fn is_exact(&self, from: Side, s: &TcpSegment) -> bool {
        s.seq == *self.sent.get(from) || s.seq == *self.acked.get(from.other())
    }

    /// It acknowledges less than its host did before, by more than any window of that host's. RFC 5961 (5.2) has the other host
    /// refuse that, but by the windows that it has seen, and those were ours.
    fn is_forged(&self, from: Side, s: &TcpSegment) -> bool {
        let acked = *self.acked.get(from);
        let age = if s.ack.before(acked) { acked.since(s.ack) } else { 0 };
        s.flags.ack() && age > *self.own_max.get(from) && u64::from(age) <= STRANGER_BYTES
    }

    /// The segment wakes the flow.
    fn is_woken_by(&self, from: Side, s: &TcpSegment) -> bool {
        let quiet = self.acked.a == self.sent.b && self.acked.b == self.sent.a;
        let exact = s.seq == *self.sent.get(from) && s.ack == *self.acked.get(from);
        let ends = self.fin.a.is_some() || self.fin.b.is_some();
        quiet && exact && s.payload_len > 0 && !s.flags.urg() && !ends
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
}

impl Leg {
    /// PAWS (RFC 7323 section 5): its timestamp is older than its newest one. A host that was silent for 24 days has none.
    #[must_use]
    pub fn is_old_stamp(&self, now: Instant, agreed: Agreed, s: &TcpSegment) -> bool {
        let (true, Some(t)) = (agreed.timestamps, s.options.timestamps) else { return false };
        (t.val.wrapping_sub(self.ts_recent) as i32) < 0 && now.since(self.heard_at) < STAMP_LIFE
    }
}

impl Flow {
    /// A segment of a host that its other host would take, by what is known here: the host itself has spoken.
    #[must_use]
    pub fn is_word_of(&self, now: Instant, from: Side, s: &TcpSegment) -> bool {
        if s.flags.syn() || s.flags.rst() || !s.flags.ack() {
            return false;
        }
        if self.legs.get(from).is_old_stamp(now, self.agreed, s) {
            return false;
        }
        match &self.mode {
            Mode::Split | Mode::Draining => {
                self.is_ack_of_sent(from, s) && (self.is_in_window(from, s) || self.is_probe(from, s))
            }
            // RFC 7323 section 3.2: where timestamps were agreed on, what has none is not taken.
            Mode::Dormant(d) => {
                d.is_in_windows(from, s) && (!self.agreed.timestamps || s.options.timestamps.is_some())
            }
            Mode::Closed(_) => false,
        }
    }

    /// It acknowledges nothing that was not sent from here, and nothing older than any window reaches back.
    fn is_ack_of_sent(&self, from: Side, s: &TcpSegment) -> bool {
        let Some(r) = self.relays.as_ref() else { return false };
        let towards = r.get(from.other());
        let (age, reach) = towards.age_and_reach(self.legs.get(from).peer, s.ack);
        s.ack.before_eq(towards.tx.snd_nxt) && age <= reach
    }

    /// A packet of a sleeping flow passes; `is_word`: by [`Self::is_word_of`], `may_wake`: there is room for one more.
    pub fn pass_dormant(
        &mut self,
        now: Instant,
        from: Side,
        s: &TcpSegment,
        (is_word, may_wake): (bool, bool),
    ) -> Told {
        let Mode::Dormant(d) = &mut self.mode else { return Told::Little };
        if s.flags.rst() && !s.flags.syn() {
            return if d.is_exact(from, s) { Told::Resets } else { Told::Little };
        }
        if !is_word {
            let says_more = s.payload_len > 0 || s.flags.fin();
            return if says_more && d.is_forged(from, s) { Told::Forged } else { Told::Little };
        }
        if may_wake && d.is_woken_by(from, s) {
            return Told::Wakes;
        }
        let leg = self.legs.get_mut(from);
        if let (true, Some(t)) = (self.agreed.timestamps, s.options.timestamps)
            && s.seq.before_eq(*d.acked.get(from.other()))
        {
            leg.ts_recent = t.val;
        }
        d.learn(from, s, u32::from(s.window) << leg.window_scale);
        leg.hear(now, s);
        if d.is_over() { Told::Ends } else { Told::Little }
    }

    /// It is split again, before this segment is handled.
    pub fn wake(&mut self, cx: &mut Cx<'_>, from: Side, s: &TcpSegment) {
        let Mode::Dormant(d) = self.mode else { return };
        let next = d.sent;
        self.legs.get_mut(from).hear(cx.now, s);
        self.split(cx, next.a, next.b);
        cx.counters.flows_woken += 1;
        if let Some(r) = self.relays.as_mut() {
            let (wa, wb) = (self.legs.a.window_bytes, self.legs.b.window_bytes);
            r.a.tx.update_window(next.b, next.a, u64::from(wb), false);
            r.b.tx.update_window(next.a, next.b, u64::from(wa), false);
            r.a.rx.remember_shown(d.edges.a, d.shown_max.a);
            r.b.rx.remember_shown(d.edges.b, d.shown_max.b);
        }
    }

    /// It has ended asleep.
    pub fn end_dormant(&mut self, now: Instant, reset: bool) {
        let Mode::Dormant(d) = self.mode else { return };
        let reach_bytes = u64::from(d.shown_max.a.max(d.shown_max.b)) + OLD_ACK_SLACK;
        self.mode = Mode::Closed(Closed {
            until: now + LINGER,
            next: d.sent,
            reach_bytes,
            reset,
            reset_by: None,
            ask: None,
            held_nothing: true,
        });
    }

    /// A SYN from this host can ask for a new connection here: nothing of the old one is owed, and it is no late copy of
    /// the SYN that began it.
    #[must_use]
    pub fn gives_way(&self, from: Side, s: &TcpSegment) -> bool {
        match (&self.mode, &self.relays) {
            (Mode::Dormant(_), _) => true,
            (Mode::Split, Some(r)) => {
                let first = s.seq + 1 == r.get(from).buffer.base();
                !first && self.reset_from.is_none() && !r.a.is_owed() && !r.b.is_owed()
            }
            _ => false,
        }
    }
}
