//! A connection: what is known of it, whether it is split or sleeps, and the moves between.

use farlink_cc as cc;
use farlink_wire::{Duration, Instant, Pool, SeqNum, TcpSegment};

use crate::beyond::Beyond;
use crate::buffer::SeqBuffer;
use crate::challenge::Answers;
use crate::config::{Class, Config, Limits};
use crate::counted::Counted;
use crate::cx::Cx;
use crate::dormant::{Dormant, Told};
use crate::leg::{Agreed, Leg};
use crate::link::{Entry, Link, Links};
use crate::mode::{Closed, Mode};
use crate::net::{IfaceId, Way};
use crate::path_mtu::PathMtu;
use crate::queue_drop::QueueDrop;
use crate::reach::OLD_ACK_SLACK;
use crate::receiver::{Receiver, Stretch};
use crate::record::Record;
use crate::regulator::{Adaptive, Drain};
use crate::relay::Relay;
use crate::relays::Relays;
use crate::sender::Sender;
use crate::side::{Pair, Side};

/// Time for hosts to learn the path's RTT.
const LET_GO_MAX: Duration = Duration::from_secs(4);
/// A tombstone lives this long at least and at most.
const LINGER_MIN: Duration = Duration::from_secs(2);
const LINGER_MAX: Duration = Duration::from_secs(30);

/// A connection that ended asleep is remembered so long: what comes late passes, a SYN begins anew.
const LINGER_ASLEEP: Duration = Duration::from_secs(2);

/// A connection.
#[derive(Debug)]
pub struct Flow {
    /// What is known of the hosts.
    pub legs: Pair<Leg>,
    /// What they agreed on.
    pub agreed: Agreed,
    /// Split, dormant, ...
    pub mode: Mode,
    /// `relays.get(x)` carries data from host x; only while split or draining.
    pub relays: Option<Box<Relays>>,
    /// Index of the rule it came under; the number of rules for the default action.
    pub rule: usize,
    /// Class of its data on declared links.
    pub class: Class,
    /// It may lose its gateways at any time.
    pub free: bool,
    /// When it was split for the first time.
    pub began_at: Instant,
    /// So long its handshake took, seen from here.
    pub handshake: Duration,
    /// Last packet of either host.
    pub active_at: Instant,
    /// A host was reset or has reset: which, when it began.
    pub reset_from: Option<(Side, Instant)>,
    /// Ready-queue membership, per leg towards a host.
    pub queued: Pair<bool>,
    /// Deadline under which it stands in the timer heap.
    pub timer_queued: Option<Instant>,
    /// The engine counts it among the split ones.
    pub counted: bool,
    /// The engine counts it among those that hold data.
    pub busy: bool,
    /// It counts among the open connections of its rule.
    pub is_open: bool,
    /// What it adds to the sums over all flows.
    pub census: Counted,
    /// Its record stands in the journal.
    pub journaled: Option<Box<Record>>,
    /// Routes must be looked up again.
    pub route_generation: u32,
    /// A SYN has asked for a new connection on this 4-tuple, and no word of the old one has come since.
    pub asked_anew: bool,
    /// The interface by which the packet at hand came in.
    pub came_by: IfaceId,
    /// How many odd segments may be answered still.
    pub answers: Answers,
}

impl Flow {
    /// Splits: relays between the hosts, each beginning at these sequence numbers.
    pub fn split(&mut self, cx: &mut Cx<'_>, next_from_a: SeqNum, next_from_b: SeqNum) {
        self.find_routes(cx);
        for leg in [&self.legs.a, &self.legs.b] {
            if let (Some(rtt), Some(link)) = (leg.handshake_rtt, cx.links.get_mut(leg.out)) {
                link.note_rtt(cx.now, rtt);
            }
        }
        let a = self.new_relay(cx, Side::A, next_from_a);
        let b = self.new_relay(cx, Side::B, next_from_b);
        self.relays =
            Some(Box::new(Relays { both: Pair { a, b }, new_syn: None, lets_go_until: None, room_at: None }));
        self.mode = Mode::Split;
    }

    /// Looks its routes up where they may have changed since it did so last.
    pub fn renew_routes(&mut self, cx: &mut Cx<'_>, generation: u32) {
        if self.route_generation != generation && self.relays.is_some() {
            self.route_generation = generation;
            self.find_routes(cx);
        }
    }

    /// Looks up which way packets to each host leave, and how large they may be.
    pub fn find_routes(&mut self, cx: &mut Cx<'_>) {
        for side in [Side::A, Side::B] {
            let (from, src) = {
                let other = self.legs.get(side.other());
                (other.via, other.addr)
            };
            let leg = self.legs.get_mut(side);
            let Some(r) = cx.net.route(from, src, leg.addr) else { continue };
            let out = cx.links.way(r.iface);
            let before = core::mem::replace(&mut leg.out, out);
            if before != out {
                // What was found out about the size of packets was of another way.
                leg.path_mtu = PathMtu::default();
            }
            leg.path_mtu.set_route(cx.now, r.mtu_bytes.max(if leg.addr.is_ipv4() { 68 } else { 1280 }));
            if before != out {
                self.change_way(cx, side, before);
            }
        }
    }

    /// Packets to a host leave another way than before. A leg that leads into a declared link, or out of one, is governed
    /// anew: what is right on the operator's own link is not on anybody else's network, and what the old way has taught says
    /// nothing about the new one. Between two ordinary interfaces it goes on, as a host's connection would.
    fn change_way(&mut self, cx: &Cx<'_>, to: Side, before: Way) {
        let from = to.other();
        let Some(next) = self.relays.as_ref().map(|r| r.get(from).tx.snd_nxt) else { return };
        let out = self.legs.get(to).out;
        let link = cx.links.get(out);
        if link.is_some() || cx.links.get(before).is_some() {
            self.legs.get_mut(to).srtt = None;
            let config = self.controller_config(cx.config, cx.links, from, next);
            let paced_over = self.start(cx.config, cx.links, to).paced_over;
            let declared = link.and_then(Link::rtt_in_force);
            if let Some(r) = self.relays.as_mut() {
                r.get_mut(from).tx.change_way(cx.now, &config, paced_over, declared);
            }
        }
        if cx.links.is_away(before) && !cx.links.is_away(out) {
            // What was under way in it is lost, or will come late.
            self.restart_legs(cx.now, out);
        }
    }

    /// Payload bytes of a full segment towards a host, options deducted.
    #[must_use]
    pub fn segment_payload(&self, to: Side) -> u32 {
        self.payload_of(to, self.legs.get(to).path_mtu.bytes())
    }

    /// The same where packets may have so many bytes.
    #[must_use]
    pub fn payload_of(&self, to: Side, mtu_bytes: u32) -> u32 {
        let leg = self.legs.get(to);
        let by_mtu = mtu_bytes.saturating_sub(leg.header_bytes());
        let options = if self.agreed.timestamps { 12 } else { 0 } + if leg.peer.is_marked() { 4 } else { 0 };
        by_mtu.min(u32::from(leg.mss)).saturating_sub(options).max(8)
    }

    fn new_relay(&self, cx: &Cx<'_>, from: Side, next: SeqNum) -> Relay {
        let to = from.other();
        let dst = self.legs.get(to);
        let mss = self.segment_payload(to);
        let link = cx.links.get(dst.out);
        let limit_bytes = self.relay_limit(cx.config, cx.links, to);
        let governed = self.controller_config(cx.config, cx.links, from, next);
        let controller = cc::Controller::new(&governed);
        let bounds =
            crate::sender::RtoBounds { min: cx.config.timers.rto_min, max: cx.config.timers.rto_max };
        let mut tx = Sender::new(cx.now, next, controller, mss, self.agreed.sack, bounds);
        if let Some(srtt) = dst.srtt {
            tx.rtt.sample(srtt);
        }
        tx.pace_start(self.start(cx.config, cx.links, to).paced_over);
        tx.declare_rtt(link.and_then(Link::rtt_in_force));
        Relay {
            buffer: SeqBuffer::new(next),
            rx: Receiver::new(next, dst.window_bytes),
            tx,
            push: next,
            urgent_end: None,
            urgent_zero: None,
            far_ack: None,
            frozen_at: None,
            acked_beyond: None,
            limit_bytes,
            start_bytes: self.start_bytes(cx, limit_bytes),
            drain: Drain::default(),
            adaptive: Adaptive::default(),
            queue_drop: QueueDrop::default(),
            acked_at: None,
            begun: false,
            passed_end: None,
            bypassed: false,
            fin_since: None,
            fin_overdue: false,
            source_nxt: next,
            believed: None,
            far_waits: None,
            timeouts: 0,
            waits_since: None,
            keepalive_passed: false,
            beyond: Beyond::default(),
            booked: Entry::default(),
        }
    }

    /// How the data of `from` is governed on its way to the other host.
    pub(crate) fn controller_config(
        &self,
        config: &Config,
        links: &Links,
        from: Side,
        next: SeqNum,
    ) -> cc::Config {
        let to = from.other();
        let start = self.start(config, links, to);
        let dst = self.legs.get(to);
        let link = links.get(dst.out);
        let kind = self.controller_kind(config, links, to);
        let (mss, known) = (self.segment_payload(to), kind == cc::Kind::KnownRate);
        cc::Config {
            kind,
            mss,
            initial_window_segments: start.segments,
            fixed_rate_bps: link.filter(|_| known).and_then(|l| self.payload_bps(l, to, mss)),
            window_limit_bytes: Limits::window_bytes(self.relay_limit(config, links, to)),
            unfair_window_bytes: link.map_or(config.ordinary.unfair_window_bytes, Link::unfair_window_bytes),
            handshake_rtt: dst.srtt.or(start.paced_over).or(dst.handshake_rtt.filter(|_| known)),
            selective_acks: self.agreed.sack,
            // Of no use to anybody who guesses it: it only spreads the probes of flows over time.
            seed: config.seed ^ u64::from(next.0),
            hystart: true,
        }
    }

    /// One of the legs is a declared link.
    #[must_use]
    pub fn is_on_link(&self) -> bool {
        [self.legs.a.out, self.legs.b.out].into_iter().any(|out| matches!(out, Way::Link(_)))
    }

    /// The link towards a host is known to be down: no progress there means nothing.
    #[must_use]
    pub fn is_down(&self, cx: &Cx<'_>, to: Side) -> bool {
        cx.links.is_away(self.legs.get(to).out)
    }

    /// Whether some relay holds custody.
    #[must_use]
    pub fn has_custody(&self) -> bool {
        self.relays.as_ref().is_some_and(|r| r.a.has_custody() || r.b.has_custody())
    }

    /// Books what is held now.
    pub fn book(&mut self, links: &mut Links) {
        let Some(r) = self.relays.as_mut() else { return };
        for from in [Side::A, Side::B] {
            let relay = r.get_mut(from);
            relay.book(
                links,
                Entry {
                    out: self.legs.get(from.other()).out,
                    held_bytes: relay.buffer.len().saturating_add(relay.buffer.early_bytes()),
                    sacked_bytes: u32::try_from(relay.tx.board().sacked_bytes()).unwrap_or(u32::MAX),
                },
            );
        }
    }

    /// Gives all memory back.
    pub fn free_buffers(&mut self, pool: &mut Pool, links: &mut Links) {
        let Some(mut r) = self.relays.take() else { return };
        for relay in [&mut r.both.a, &mut r.both.b] {
            relay.buffer.clear(pool);
            relay.book(links, Entry::default());
        }
    }
}

impl Flow {
    /// Before draining: hosts whose timers know only the leg to us are shown the path's RTT, or their timers would expire
    /// over the first segment that goes the whole way. Only a source with data in flight can learn, and it is
    /// given a few seconds. Returns whether that is over.
    fn has_let_go(&mut self, cx: &Cx<'_>) -> bool {
        let Some(r) = self.relays.as_mut() else { return true };
        let Relays { both: Pair { a, b }, lets_go_until, .. } = &mut **r;
        let until = *lets_go_until.get_or_insert_with(|| {
            let known = |relay: &Relay| relay.tx.rtt.srtt().unwrap_or_default();
            let path = known(a) + known(b);
            for relay in [a, b] {
                relay.rx.stretch = Stretch::towards(path).filter(|_| !relay.buffer.is_empty());
            }
            cx.now + LET_GO_MAX
        });
        let done = |relay: &Relay| relay.buffer.is_empty() || relay.rx.stretch.is_none_or(|s| s.is_done());
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
            let t = |x: &Relay| x.tx.rtt.rto(cx.config.timers.rto_min, cx.config.timers.rto_max);
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
        let acked = |x: &Relay| x.acked_beyond.map_or(x.tx.snd_una, |b| b.max(x.tx.snd_una));
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
        let own_max = |x: &Relay| u32::try_from(x.tx.window_max_bytes()).unwrap_or(u32::MAX);
        let own_max = Pair { a: own_max(&r.b), b: own_max(&r.a) };
        self.free_buffers(cx.pool, cx.links);
        self.mode = Mode::Dormant(Dormant { sent, acked, edges, shown_max, own_max, fin });
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
            until: now + LINGER_ASLEEP,
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
