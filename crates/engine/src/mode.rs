//! How a flow is treated, and the moves between the ways: split, draining, dormant, closed.

use farlink_wire::{Duration, Instant, SeqNum};

use crate::dormant::Dormant;
use crate::flow::{Cx, Flow};
use crate::receiver::Stretch;
use crate::side::{Pair, Side};

/// How a flow is treated. A connection without a flow is simply forwarded.
#[derive(Clone, Copy, Debug)]
pub enum Mode {
    /// Two relays hold and send.
    Split,
    /// Nothing new is taken; custody is delivered, the rest forwarded.
    Draining,
    /// Forwarded; re-split when both directions are seen fully acknowledged.
    Dormant(Dormant),
    /// Gone; answers late segments until the time given.
    Closed(Closed),
}

/// What is remembered of a closed flow.
#[derive(Clone, Copy, Debug)]
pub struct Closed {
    /// Forgotten at this time.
    pub until: Instant,
    /// Per host: the next sequence number expected from it.
    pub next: Pair<SeqNum>,
    /// How far from `next` the numbers of this connection's late segments can be; farther ones belong to another
    /// connection between the same ports, whose handshake went round us.
    pub reach_bytes: u64,
    /// Whose end is by reset: late segments of these hosts are answered with RST, not ACK.
    pub reset: bool,
    /// The host whose own reset ended it.
    pub reset_by: Option<Side>,
    /// It ended asleep: nothing was held, so what comes late is the hosts' own and passes.
    pub held_nothing: bool,
    /// After a crash: when the hosts are asked next for their sequence numbers, and how often still.
    pub ask: Option<(Instant, u8)>,
}

impl Mode {
    /// For people.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Split => "split",
            Self::Draining => "draining",
            Self::Dormant(_) => "dormant",
            Self::Closed(_) => "closed",
        }
    }
}

/// Time for hosts to learn the path's RTT.
const LET_GO_MAX: Duration = Duration::from_secs(4);
/// A tombstone lives this long at least and at most.
const LINGER_MIN: Duration = Duration::from_secs(2);
const LINGER_MAX: Duration = Duration::from_secs(30);

impl Flow {
    /// Before draining: hosts whose timers know only the leg to us are shown the path's RTT, or their timers would expire
    /// over the first segment that goes the whole way. Only a source with data in flight can learn, and it is
    /// given a few seconds. Returns whether that is over.
    fn has_let_go(&mut self, cx: &Cx<'_>) -> bool {
        let Some(r) = self.relays.as_mut() else { return true };
        let crate::relays::Relays { both: Pair { a, b }, lets_go_until, .. } = &mut **r;
        let until = *lets_go_until.get_or_insert_with(|| {
            let known = |relay: &crate::flow::Relay| relay.tx.rtt.srtt().unwrap_or_default();
            let path = known(a) + known(b);
            for relay in [a, b] {
                relay.rx.stretch = Stretch::towards(path).filter(|_| !relay.buffer.is_empty());
            }
            cx.now + LET_GO_MAX
        });
        let done = |relay: &crate::flow::Relay| {
            relay.buffer.is_empty() || relay.rx.stretch.is_none_or(|s| s.is_done())
        };
        (done(&r.a) && done(&r.b)) || cx.now >= until
    }

    /// Split becomes draining: both right edges freeze behind what is held (SACKed data is custody).
    pub fn start_draining(&mut self, _cx: &mut Cx<'_>) {
        if !matches!(self.mode, Mode::Split) {
            return;
        }
        if let Some(r) = self.relays.as_mut() {
            for relay in [&mut r.both.a, &mut r.both.b] {
                let highest = relay.buffer.highest();
                // A FIN that is there belongs to what is held.
                let fin = u32::from(relay.rx.fin_at.or(relay.rx.fin_claimed) == Some(highest));
                relay.frozen_at = Some(highest + fin);
            }
            r.lets_go_until = None;
        }
        self.mode = Mode::Draining;
    }

    /// Draining has ended before it began for this flow: it stays split, and its hosts need not know the path's RTT.
    pub fn keep_hold(&mut self) {
        if let Some(r) = self.relays.as_mut() {
            r.lets_go_until = None;
            r.a.rx.stretch = None;
            r.b.rx.stretch = None;
        }
    }

    /// After any event: moves on when nothing is left to do in this mode. Returns true when the flow may be removed.
    pub fn settle(&mut self, cx: &mut Cx<'_>, engine_draining: bool) -> bool {
        match self.mode {
            Mode::Split => {
                if self.finish_if_closed(cx) {
                    return false;
                }
                if engine_draining && self.has_let_go(cx) {
                    self.start_draining(cx);
                    return self.settle(cx, engine_draining);
                }
                false
            }
            Mode::Draining => {
                if self.finish_if_closed(cx) {
                    return engine_draining;
                }
                let drained = self.relays.as_ref().is_some_and(|r| r.a.is_drained() && r.b.is_drained());
                if drained {
                    self.send_owed(cx);
                    self.sleep(cx);
                }
                drained && engine_draining
            }
            // When it is forgotten, the table knows.
            Mode::Dormant(_) => engine_draining,
            Mode::Closed(c) => engine_draining || c.until <= cx.now,
        }
    }

    /// Both FINs are through: free everything but a tombstone.
    fn finish_if_closed(&mut self, cx: &mut Cx<'_>) -> bool {
        let both = self.relays.as_ref().is_some_and(|r| r.a.is_finished() && r.b.is_finished());
        if both {
            cx.counters.flows_closed += 1;
            self.send_owed(cx);
            self.close(cx, false);
        }
        both
    }

    /// The last acknowledgements, before the relays go: nobody would give them later.
    fn send_owed(&mut self, cx: &mut Cx<'_>) {
        for to in [Side::A, Side::B] {
            let owed = self.relays.as_ref().is_some_and(|r| r.get(to).rx.due().is_some());
            if owed {
                self.emit(cx, to, None);
            }
        }
    }

    /// Frees everything but a tombstone.
    pub fn close(&mut self, cx: &mut Cx<'_>, reset: bool) {
        let next =
            self.relays.as_ref().map_or(Pair::default(), |r| Pair { a: r.a.rcv_nxt(), b: r.b.rcv_nxt() });
        let rto = self.relays.as_ref().map_or(LINGER_MIN, |r| {
            let t = |x: &crate::flow::Relay| x.tx.rtt.rto(cx.config.timers.rto_min, cx.config.timers.rto_max);
            t(&r.a).max(t(&r.b))
        });
        let until = cx.now + (rto * 4).clamp(LINGER_MIN, LINGER_MAX);
        let reach_bytes = self.reach_bytes();
        self.remember_shares(cx.now, cx.links);
        self.free_buffers(cx.pool, cx.links);
        let reset_by = self.reset_from.take().map(|(side, _)| side);
        self.mode = Mode::Closed(Closed {
            until,
            next,
            reach_bytes,
            reset,
            reset_by,
            held_nothing: false,
            ask: None,
        });
    }

    /// Nothing is held: remember what it takes to split again, give the rest back.
    pub fn sleep(&mut self, cx: &mut Cx<'_>) {
        self.remember_shares(cx.now, cx.links);
        let Some(r) = self.relays.as_ref() else { return };
        let acked = |x: &crate::flow::Relay| x.acked_beyond.map_or(x.tx.snd_una, |b| b.max(x.tx.snd_una));
        // What the destination acknowledged, the source has sent.
        let sent = Pair { a: r.a.rcv_nxt().max(acked(&r.a)), b: r.b.rcv_nxt().max(acked(&r.b)) };
        let fin = Pair { a: r.a.rx.fin_at.map(|f| f + 1), b: r.b.rx.fin_at.map(|f| f + 1) };
        self.legs.b.srtt = r.a.tx.rtt.srtt();
        self.legs.a.srtt = r.b.tx.rtt.srtt();
        // What a gateway was told in its option goes with it.
        self.legs.a.told_edge = None;
        self.legs.b.told_edge = None;
        self.legs.a.soft_edge = None;
        self.legs.b.soft_edge = None;
        self.legs.a.window_bytes = self.legs.a.field_window_bytes;
        self.legs.b.window_bytes = self.legs.b.field_window_bytes;
        cx.counters.flows_slept += 1;
        let acked = Pair { a: acked(&r.b), b: acked(&r.a) };
        let edges = Pair { a: r.a.rx.edge, b: r.b.rx.edge };
        let shown_max = Pair { a: r.a.rx.window_shown_max, b: r.b.rx.window_shown_max };
        let own_max = |x: &crate::flow::Relay| u32::try_from(x.tx.window_max_bytes()).unwrap_or(u32::MAX);
        let own_max = Pair { a: own_max(&r.b), b: own_max(&r.a) };
        self.free_buffers(cx.pool, cx.links);
        self.mode = Mode::Dormant(Dormant { sent, acked, edges, shown_max, own_max, fin });
    }
}
