//! The end of a connection: RST, a SYN in mid-flow, abandonment, tombstones.

use farlink_wire::{Duration, Flags, Instant, PacketBuf, SegmentHeader, SeqNum, TcpSegment, Timestamps};

use crate::arrival::Fate;
use crate::cx::Cx;
use crate::flow::Flow;
use crate::mode::{Closed, Mode};
use crate::relays::NewSyn;
use crate::side::Side;
use crate::world::Made;

/// A reset waits this long for custody before it that makes no progress.
const RESET_STALL: Duration = Duration::from_secs(10);
/// After a crash the hosts are asked again after this time.
const ASK_AGAIN: Duration = Duration::from_millis(700);
/// So many SYNs of one new connection, and timeouts of the old one's data, show that a host has forgotten the old one. Hosts
/// repeat a SYN after a second or more; what comes sooner is not counted.
const DEAF_SYNS: u8 = 4;
const DEAF_TIMEOUTS: u32 = 3;
const SYN_SPACING: Duration = Duration::from_millis(500);
/// A reset waits this long for custody before it in any case.
const RESET_WAIT_MAX: Duration = Duration::from_secs(120);

impl Flow {
    /// RST from a host. Only the exact next sequence number counts (RFC 5961 3.2); what lies elsewhere in the window is
    /// challenged, the rest dropped.
    pub fn on_rst(&mut self, cx: &mut Cx<'_>, from: Side, s: &TcpSegment, packet: PacketBuf) -> Fate {
        let Some(r) = self.relays.as_ref() else { return Fate::Forward(packet) };
        let relay = r.get(from);
        let nxt = relay.rcv_nxt();
        let exact = s.seq == nxt || (relay.buffer.has_early() && s.seq == relay.buffer.highest());
        let past_us = s.seq.after_eq(relay.frozen_at.unwrap_or(nxt)) && s.seq != nxt;
        if matches!(self.mode, Mode::Draining) && (past_us || relay.is_drained()) {
            // What it ends has been forwarded: the other host has the better view. Where the number is exact, what is held
            // for the host that resets is nobody's any more.
            if exact && let Some(r) = self.relays.as_mut() {
                let to_dead = r.get_mut(from.other());
                to_dead.buffer.clear(cx.pool);
                let next = to_dead.rcv_nxt();
                to_dead.tx.skip_to(cx.now, next);
            }
            return Fate::Forward(packet);
        }
        if !exact {
            let in_window = s.seq.after_eq(nxt) && s.seq.before(relay.rx.edge.max(nxt + 1));
            if in_window {
                self.challenge(cx, from);
            }
            cx.pool.give_back(packet.into_block().0);
            return Fate::Taken;
        }
        let over = relay.rx.fin_at.is_some() && r.get(from.other()).is_finished();
        cx.pool.give_back(packet.into_block().0);
        if over {
            // It has closed in order, both ways, and only answers a late duplicate; its FIN is still on its way.
            return Fate::Taken;
        }
        cx.counters.flows_reset += 1;
        self.reset_by(cx, from);
        Fate::Taken
    }

    /// A host has reset: what it sent before is still delivered, then the other host is reset.
    fn reset_by(&mut self, cx: &mut Cx<'_>, from: Side) {
        if let Some(r) = self.relays.as_mut() {
            r.get_mut(from).buffer.clear_early(cx.pool);
            let to_dead = r.get_mut(from.other());
            to_dead.buffer.clear(cx.pool);
            let next = to_dead.buffer.end();
            to_dead.tx.skip_to(cx.now, next);
        }
        self.reset_from = Some((from, cx.now));
        self.finish_reset(cx);
    }

    /// Sends the reset on when everything before it has been delivered, or has had its time.
    pub fn finish_reset(&mut self, cx: &mut Cx<'_>) {
        let Some((from, since)) = self.reset_from else { return };
        let Some(r) = self.relays.as_ref() else { return };
        let relay = r.get(from);
        let stalled = cx.now.since(relay.tx.progress_at.max(since)) >= RESET_STALL;
        if !relay.is_owed() || stalled || cx.now.since(since) >= RESET_WAIT_MAX {
            self.send_rst(cx, from.other());
            self.close(cx, true);
        }
    }

    /// When `finish_reset` must look again.
    #[must_use]
    pub fn reset_deadline(&self) -> Option<Instant> {
        let (from, since) = self.reset_from?;
        let progress = self.relays.as_ref()?.get(from).tx.progress_at;
        Some((progress.max(since) + RESET_STALL).min(since + RESET_WAIT_MAX))
    }

    /// Custody that cannot be delivered is given up: both hosts learn it (invariant 4, the one exception).
    pub fn abandon(&mut self, cx: &mut Cx<'_>) {
        cx.counters.flows_abandoned += 1;
        self.send_rst(cx, Side::A);
        self.send_rst(cx, Side::B);
        self.close(cx, true);
    }

    /// RST to a host, at the sequence number that it acknowledged last: the only one that every TCP takes.
    fn send_rst(&self, cx: &mut Cx<'_>, to: Side) {
        let Some(r) = self.relays.as_ref() else { return };
        let seq = r.get(to.other()).tx.snd_una;
        self.make_rst(cx, to, seq, self.ack_for(to));
    }

    /// RST to a host in the other one's name.
    pub fn make_rst(&self, cx: &mut Cx<'_>, to: Side, seq: SeqNum, ack: SeqNum) {
        self.make_bare(cx, to, Flags::RST | Flags::ACK, seq, ack);
    }

    /// A segment without payload and relay, to a host in the other one's name.
    fn make_bare(&self, cx: &mut Cx<'_>, to: Side, flags: Flags, seq: SeqNum, ack: SeqNum) {
        let (src, dst) = (self.legs.get(to.other()), self.legs.get(to));
        let stamp = Timestamps { val: src.ts_val, ecr: dst.ts_recent };
        let header = SegmentHeader {
            src: src.addr,
            dst: dst.addr,
            src_port: src.port,
            dst_port: dst.port,
            ttl: src.ttl.saturating_add(1),
            traffic_class: src.traffic_class & !3,
            flow_label: src.flow_label,
            ip_id: src.ip_id,
            dont_fragment: true,
            seq,
            ack,
            flags,
            window: if flags.rst() { 0 } else { crate::window::field(src.window_bytes, src.window_scale) },
            urgent: 0,
            timestamps: self.agreed.timestamps.then_some(stamp),
            sack: &[],
            farlink: None,
        };
        cx.net.send(&Made { via: src.via, out: dst.out, header, payload: &[], segment_bytes: 0 });
    }

    /// SYN (or a repeated SYN-ACK) on a connection that stands.
    pub fn on_syn(&mut self, cx: &mut Cx<'_>, from: Side, s: &TcpSegment, packet: PacketBuf) -> Fate {
        let Some(r) = self.relays.as_ref() else { return Fate::Forward(packet) };
        let repeated_syn_ack = s.flags.ack() && from == Side::B && s.seq + 1 == r.b.buffer.base();
        if repeated_syn_ack && r.a.tx.snd_una == s.ack {
            // The server has not heard the client's ACK: what we hold for it says so, sent again.
            self.legs.b.hear(cx.now, s);
            if let Some(r) = self.relays.as_mut() {
                if r.a.tx.board().is_empty() {
                    r.b.rx.owe_now();
                } else {
                    r.a.tx.resend_head();
                }
            }
            cx.pool.give_back(packet.into_block().0);
            return Fate::Taken;
        }
        let same = s.seq + 1 == r.get(from).buffer.base();
        let owed = self.relays.as_ref().is_some_and(|r| r.a.is_owed() || r.b.is_owed());
        if !same && owed && s.flags.ack() {
            // The answer to a late copy of the SYN, with an ISN of its own: it asks for nothing.
            cx.pool.give_back(packet.into_block().0);
            return Fate::Taken;
        }
        if !same && owed {
            // A new connection on the old 4-tuple waits until the old custody is delivered or abandoned; the host
            // repeats its SYN. It is told where the old one stands: who has forgotten it answers with an exact reset (RFC 5961
            // section 4), who has not sent the SYN with the truth.
            let deaf = self.relays.as_ref().is_some_and(|r| r.get(from.other()).timeouts >= DEAF_TIMEOUTS);
            if self.count_syn(cx, from, s.seq) >= DEAF_SYNS && deaf && self.reset_from.is_none() {
                self.reset_by(cx, from);
            } else {
                self.challenge(cx, from);
            }
            cx.pool.give_back(packet.into_block().0);
            return Fate::Taken;
        }
        // The host decides: its challenge ACK, and the reset that answers it, pass. When it answers with a SYN of its own,
        // the old connection is over, though its end went round us.
        if !owed && self.asked_anew && s.flags.ack() {
            self.sleep(cx);
        }
        Fate::Forward(packet)
    }

    /// How often this new connection has been asked for, by the way that the host's packets come, and not in haste.
    fn count_syn(&mut self, cx: &Cx<'_>, from: Side, isn: SeqNum) -> u8 {
        let Some(r) = self.relays.as_mut() else { return 0 };
        let old = r.new_syn.filter(|n| n.from == from && n.isn == isn);
        if self.came_by != self.legs.get(from).via || old.is_some_and(|n| cx.now.since(n.at) < SYN_SPACING) {
            return 0;
        }
        let count = old.map_or(1, |n| n.count.saturating_add(1));
        r.new_syn = Some(NewSyn { from, isn, count, at: cx.now });
        count
    }

    /// A packet for a closed flow.
    pub fn on_closed(&mut self, cx: &mut Cx<'_>, from: Side, s: &TcpSegment, packet: PacketBuf) -> Fate {
        let Mode::Closed(Closed { next, reach_bytes, reset, reset_by, held_nothing, .. }) = self.mode else {
            return Fate::Forward(packet);
        };
        if s.flags.syn() {
            return Fate::Forget(packet);
        }
        if s.flags.rst() || held_nothing {
            return Fate::Forward(packet);
        }
        let expected = *next.get(from);
        let far = |a: SeqNum, b: SeqNum| u64::from(a.diff(b).unsigned_abs()) > reach_bytes;
        let stranger = far(s.seq, expected) || (s.flags.ack() && far(s.ack, *next.get(from.other())));
        if stranger {
            return Fate::Forget(packet);
        }
        if reset {
            // As a closed port answers (RFC 9293 3.10.7.1), and the challenge ACK of a host that doubted our RST. A host's own
            // reset may have overtaken an acknowledgement that it sent before.
            let overtaken = reset_by == Some(from) && s.seq == expected && s.seq_len() == 0;
            if s.flags.ack() && !overtaken && self.answers.may_answer(cx.now) && cx.challenges.take_reset() {
                self.make_rst(cx, from, s.ack, s.end_seq());
            }
        } else if s.seq.before(expected) && s.seq_len() > 0 {
            // A repeated FIN or its data: our acknowledgement was lost.
            let ack_of = *next.get(from.other());
            self.make_bare(cx, from, Flags::ACK, ack_of, expected);
        } else if s.seq.after(expected) || s.seq_len() > 0 {
            return Fate::Forward(packet);
        }
        cx.pool.give_back(packet.into_block().0);
        Fate::Taken
    }

    /// After a crash: asks both hosts for their sequence numbers with a segment that no TCP accepts; their answer is
    /// answered with RST (`on_closed`), whose number is then exact.
    pub fn ask_for_reset(&mut self, cx: &mut Cx<'_>) {
        let Mode::Closed(Closed { next, ask: Some((at, left)), .. }) = self.mode else { return };
        if at > cx.now {
            return;
        }
        for to in [Side::A, Side::B] {
            let (acked, own) = (*next.get(to.other()), *next.get(to));
            self.make_bare(cx, to, Flags::ACK, acked - 1, own);
        }
        if let Mode::Closed(c) = &mut self.mode {
            c.ask = left.checked_sub(1).map(|left| (cx.now + ASK_AGAIN, left));
        }
    }
}
