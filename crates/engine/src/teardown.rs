//! The end of a connection: RST, a SYN in mid-flow, abandonment, tombstones.

use farlink_wire::{Duration, Instant, PacketBuf, SeqNum, TcpSegment};

use crate::config::Config;
use crate::cx::Cx;
use crate::event::Event;
use crate::fate::Fate;
use crate::link::Links;
use crate::relays::{NewSyn, Over};
use crate::side::Side;
use crate::split::Split;

/// A reset waits this long for custody before it that makes no progress, where its link is not
/// away.
const RESET_STALL: Duration = Duration::from_secs(10);
/// So many SYNs of one new connection, and timeouts of the old one's data, show that a host has
/// forgotten the old one. Hosts repeat a SYN after a second or more; what comes sooner is not
/// counted.
const DEAF_SYNS: u8 = 4;
const DEAF_TIMEOUTS: u32 = 3;
const SYN_SPACING: Duration = Duration::from_millis(500);
/// A reset waits this long for custody before it in any case, where its link is not away.
const RESET_WAIT_MAX: Duration = Duration::from_secs(120);

impl Split<'_> {
    /// RST from a host. Only the exact next sequence number counts (RFC 5961 3.2); what lies
    /// elsewhere in the window is challenged, the rest dropped.
    pub fn on_rst(&mut self, cx: &mut Cx<'_>, from: Side, s: &TcpSegment, packet: PacketBuf) -> Fate {
        let r = &*self.relays;
        let relay = r.get(from);
        let nxt = relay.rcv_nxt();
        let exact = s.seq == nxt || (relay.buffer.has_early() && s.seq == relay.buffer.highest());
        let past_us = s.seq.after_eq(relay.frozen_at().unwrap_or(nxt)) && s.seq != nxt;
        if self.relays.is_draining() && (past_us || relay.is_drained()) {
            // What it ends has been forwarded: the other host has the better view. Where the number
            // is exact, what is held for the host that resets is nobody's any more.
            if exact {
                let to_dead = self.relays.get_mut(from.other());
                to_dead.buffer.clear(cx.pool);
                let next = to_dead.rcv_nxt();
                to_dead.tx.skip_to(cx.now, next);
            }
            return Fate::Forward(packet);
        }
        if !exact {
            let in_window = s.seq.after_eq(nxt) && s.seq.before(relay.rx.edge().max(nxt + 1));
            if in_window {
                self.challenge(cx, from);
            }
            return Fate::taken(cx.pool, packet);
        }
        if self.doubts_reset(cx, from, s) {
            return Fate::taken(cx.pool, packet);
        }
        let r = &*self.relays;
        let over = r.get(from).rx.fin_at().is_some() && r.get(from.other()).is_finished();
        cx.pool.give_back(packet.into_block().0);
        if over {
            // It has closed in order, both ways, and only answers a late duplicate; its FIN is
            // still on its way.
            return Fate::Taken;
        }
        cx.happened(self.legs, Event::Reset(self.relays.carried()));
        self.reset_by(cx, from);
        Fate::Taken
    }

    /// A host has reset: what it sent before is still delivered, then the other host is reset.
    fn reset_by(&mut self, cx: &mut Cx<'_>, from: Side) {
        let r = &mut *self.relays;
        r.get_mut(from).buffer.clear_early(cx.pool);
        let to_dead = r.get_mut(from.other());
        to_dead.buffer.clear(cx.pool);
        // It has not got the end of the stream, unless it has said so.
        let next = to_dead.buffer.end().max(to_dead.tx.snd_una());
        to_dead.tx.skip_to(cx.now, next);
        self.relays.begin_reset(cx.now, from);
    }

    /// Sends the reset on when everything before it has been delivered, or has had its time. A link
    /// that is away would lose it, and nobody would repeat it. Returns whether it has been sent.
    pub(crate) fn finish_reset(&mut self, cx: &mut Cx<'_>) -> bool {
        let Some((from, _)) = self.relays.reset() else { return false };
        let is_due = self.reset_deadline(cx.config, cx.links).is_none_or(|at| at <= cx.now);
        let waits = self.waits_for_link(cx.links, from.other());
        let is_time = is_due || (!waits && !self.relays.get(from).is_busy());
        if is_time {
            self.send_rst(cx, from.other());
        }
        is_time
    }

    /// When `finish_reset` must look again.
    #[must_use]
    pub fn reset_deadline(&self, config: &Config, links: &Links) -> Option<Instant> {
        let (from, since) = self.relays.reset()?;
        let progress = self.relays.get(from).tx.progress_at();
        let stalls_at = (progress.max(since) + RESET_STALL).min(since + RESET_WAIT_MAX);
        Some(self.outage_ends_at(config, links, from.other()).unwrap_or(stalls_at))
    }

    /// The link to the host that is to be reset is back: what stands before the reset has its time
    /// from now on.
    pub(crate) fn hasten_reset(&mut self, now: Instant, to: Side) {
        if let Some((from, _)) = self.relays.reset().filter(|(from, _)| from.other() == to) {
            self.relays.begin_reset(now, from);
        }
    }

    /// Custody that cannot be delivered is given up: both hosts learn it (invariant 4, the one
    /// exception).
    pub(crate) fn tell_both(&mut self, cx: &mut Cx<'_>) {
        cx.happened(self.legs, Event::Abandoned(self.relays.carried()));
        self.send_rst(cx, Side::A);
        self.send_rst(cx, Side::B);
    }

    /// RST to a host, at the sequence number that it acknowledged last: the only one that every TCP
    /// takes.
    fn send_rst(&self, cx: &mut Cx<'_>, to: Side) {
        let r = &*self.relays;
        let seq = r.get(to.other()).tx.snd_una();
        self.hosts().make_rst(cx, to, seq, self.ack_for(to));
    }

    /// SYN (or a repeated SYN-ACK) on a connection that stands.
    pub fn on_syn(&mut self, cx: &mut Cx<'_>, from: Side, s: &TcpSegment, packet: PacketBuf) -> Fate {
        let r = &*self.relays;
        let repeated_syn_ack = s.flags.ack() && from == Side::B && s.seq + 1 == r.b.buffer.base();
        if repeated_syn_ack && r.a.tx.snd_una() == s.ack {
            // The server has not heard the client's ACK. What we hold for it says so. That goes
            // again if it has had the time to arrive.
            self.legs.b.hear(cx.now, s);
            let r = &mut *self.relays;
            r.b.rx.marks_mut().note_unheard(cx.now);
            if r.a.tx.board().is_empty() {
                r.b.rx.owe_now();
            } else if r.a.tx.is_answer_overdue(cx.now, self.legs.b.handshake_rtt()) {
                r.a.tx.resend_head();
            }
            return Fate::taken(cx.pool, packet);
        }
        let same = s.seq + 1 == r.get(from).buffer.base();
        let owes = self.owes();
        if !same && owes && s.flags.ack() {
            // The answer to a late copy of the SYN, with an ISN of its own: it asks for nothing.
            return Fate::taken(cx.pool, packet);
        }
        if !same && owes {
            // A new connection on the old 4-tuple waits until the old custody is delivered or
            // abandoned; the host repeats its SYN. It is told where the old one stands: who has
            // forgotten it answers with an exact reset (RFC 5961 section 4), who has not sent the
            // SYN with the truth.
            let deaf = self.relays.get(from.other()).timeouts() >= DEAF_TIMEOUTS;
            if self.count_syn(cx, from, s.seq) >= DEAF_SYNS && deaf && !self.relays.is_reset() {
                self.reset_by(cx, from);
            } else {
                self.challenge(cx, from);
            }
            return Fate::taken(cx.pool, packet);
        }
        // The host decides: its challenge ACK, and the reset that answers it, pass. When it answers
        // with a SYN of its own, the old connection is over, though its end went round us.
        if !owes && self.asked_anew && s.flags.ack() {
            self.relays.end(Over::Asleep);
        }
        Fate::Forward(packet)
    }

    /// How often this new connection has been asked for, by the way that the host's packets come,
    /// and not in haste.
    fn count_syn(&mut self, cx: &Cx<'_>, from: Side, isn: SeqNum) -> u8 {
        let r = &mut *self.relays;
        let old = r.new_syn.filter(|n| n.from == from && n.isn == isn);
        let is_elsewhere = self.came_by != self.legs.get(from).came_by;
        if is_elsewhere || old.is_some_and(|n| cx.now.since(n.at) < SYN_SPACING) {
            return 0;
        }
        let count = old.map_or(1, |n| n.count.saturating_add(1));
        r.new_syn = Some(NewSyn { from, isn, count, at: cx.now });
        count
    }
}
