//! A closed connection: what is remembered of it for a while, and what late segments are answered.

use farlink_wire::{Duration, Flags, Instant, PacketBuf, SeqNum, TcpSegment};

use crate::challenge::Answers;
use crate::cx::Cx;
use crate::fate::Fate;
use crate::hosts::Hosts;
use crate::side::{Pair, Side};

/// After a crash the hosts are asked again after this time, then after twice as long, and so on.
const ASK_AGAIN: Duration = Duration::from_millis(700);
/// So often: as long as the connection is remembered. A host that only reads says nothing by
/// itself, and its link may be silent for some seconds.
pub const ASKS: u8 = 5;

/// What is remembered of a closed flow.
#[derive(Clone, Copy, Debug)]
pub struct Closed {
    /// Forgotten at this time.
    pub until: Instant,
    /// Per host: the next sequence number expected from it.
    pub next: Pair<SeqNum>,
    /// How far from `next` the numbers of this connection's late segments can be; farther ones
    /// belong to another connection between the same ports, whose handshake went round us.
    pub reach_bytes: u64,
    /// Whose end is by reset: late segments of these hosts are answered with RST, not ACK.
    pub reset: bool,
    /// The host whose own reset ended it.
    pub reset_by: Option<Side>,
    /// It ended asleep: nothing was held, so what comes late is the hosts' own and passes.
    pub held_nothing: bool,
    /// After a crash: when the hosts are asked next for their sequence numbers, and how often
    /// still.
    pub ask: Option<(Instant, u8)>,
}

impl Closed {
    /// When it is forgotten, or its hosts are asked.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.ask.map_or(self.until, |(at, _)| at.min(self.until))
    }

    /// A packet that comes late.
    pub fn on_segment(
        &self,
        cx: &mut Cx<'_>,
        (hosts, answers): (Hosts<'_>, &mut Answers),
        from: Side,
        s: &TcpSegment,
        packet: PacketBuf,
    ) -> Fate {
        let Self { next, reach_bytes, reset, reset_by, held_nothing, .. } = *self;
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
            // As a closed port answers (RFC 9293 3.10.7.1), and the challenge ACK of a host that
            // doubted our RST. A host's own reset may have overtaken an acknowledgement that it
            // sent before.
            let overtaken = reset_by == Some(from) && s.seq == expected && s.seq_len() == 0;
            if s.flags.ack() && !overtaken && answers.may_answer(cx.now) && cx.challenges.take_reset() {
                hosts.make_rst(cx, from, s.ack, s.end_seq());
            }
        } else if s.seq.before(expected) && s.seq_len() > 0 {
            // A repeated FIN or its data: our acknowledgement was lost. One answers many.
            if answers.may_answer(cx.now) {
                let ack_of = *next.get(from.other());
                hosts.make_bare(cx, from, Flags::ACK, ack_of, expected);
            }
        } else if s.seq.after(expected) || s.seq_len() > 0 {
            return Fate::Forward(packet);
        }
        Fate::taken(cx.pool, packet)
    }

    /// After a crash: asks both hosts for their sequence numbers with a segment that no TCP
    /// accepts; their answer is answered with RST (`on_segment`), whose number is then exact.
    pub fn ask(&mut self, cx: &mut Cx<'_>, hosts: Hosts<'_>) {
        let Some((at, left)) = self.ask else { return };
        if at > cx.now {
            return;
        }
        for to in [Side::A, Side::B] {
            let (acked, own) = (*self.next.get(to.other()), *self.next.get(to));
            hosts.make_bare(cx, to, Flags::ACK, acked - 1, own);
        }
        let after = ASK_AGAIN * (1 << ASKS.saturating_sub(left).min(ASKS));
        self.ask = left.checked_sub(1).map(|left| (cx.now + after, left));
    }
}
