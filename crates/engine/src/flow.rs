//! A connection: what is known of its two hosts, and the two relays between them while it is split.

use core::net::IpAddr;

use farlink_cc as cc;
use farlink_wire::{Duration, Instant, Pool, SeqNum, TcpSegment};

use crate::buffer::SeqBuffer;
use crate::census::Counted;
use crate::challenge::{Answers, Challenges};
use crate::config::{Class, Config, Limits};
use crate::evidence::{Belief, Beyond};
use crate::link::{Entry, Link, Links};
use crate::mode::Mode;
use crate::net::{IfaceId, Way};
use crate::path_mtu::PathMtu;
use crate::peer::{Message, Peer, WINDOW_UNIT};
use crate::queue_drop::QueueDrop;
use crate::receiver::Receiver;
use crate::record::Record;
use crate::regulator::{Adaptive, Drain};
use crate::relays::Relays;
use crate::sender::{Sender, Supply};
use crate::side::{Pair, Side};
use crate::status::Counters;
use crate::world::World;

/// For each byte that its destination has taken beyond what a host takes for a program that reads nothing, a relay may hold
/// so many more.
const GROWTH: u64 = 2;
const UNREAD_BYTES: u64 = 128 << 10;

/// What a flow's methods need of the engine.
pub struct Cx<'a> {
    /// The time.
    pub now: Instant,
    /// The configuration.
    pub config: &'a Config,
    /// The buffer pool.
    pub pool: &'a mut Pool,
    /// Counters.
    pub counters: &'a mut Counters,
    /// The declared links.
    pub links: &'a mut Links,
    /// Connections whose handshake is under way.
    pub half_open: usize,
    /// The driver.
    pub net: &'a mut dyn World,
    /// Split flows, for fair shares of the pool.
    pub flows_split: usize,
    /// Some connection's packets have been seen to go round us not long ago: routes are moving.
    pub routes_unsteady: bool,
    /// Answers to odd segments that may still be given (RFC 5961 section 7).
    pub challenges: &'a mut Challenges,
}

/// A host, and the leg towards it.
#[derive(Clone, Debug)]
pub struct Leg {
    /// The host's address.
    pub addr: IpAddr,
    /// The host's port.
    pub port: u16,
    /// Interface by which its packets come in.
    pub via: IfaceId,
    /// Which way packets to it leave.
    pub out: Way,
    /// How large packets towards it may be.
    pub path_mtu: PathMtu,
    /// Its announced maximum segment size.
    pub mss: u16,
    /// Shift of the windows it announces.
    pub window_scale: u8,
    /// TTL of its newest packet, as it came.
    pub ttl: u8,
    /// DSCP and ECN of its newest packet.
    pub traffic_class: u8,
    /// Flow label of its newest packet.
    pub flow_label: u32,
    /// DF of its newest packet.
    pub dont_fragment: bool,
    /// IP identification for the next segment made in its name.
    pub ip_id: u16,
    /// Its packets have been seen to reach the other host round us, and none has come here since.
    pub direct: bool,
    /// Its newest TSval.
    pub ts_val: u32,
    /// When that came.
    pub heard_at: Instant,
    /// Its TSval to be echoed to it (TS.Recent of RFC 7323).
    pub ts_recent: u32,
    /// The next gateway on this leg.
    pub peer: Peer,
    /// The number under which that gateway told first what has come in over the link.
    pub reporter: Option<u16>,
    /// Remembered RTT of this leg, for when a dormant flow wakes.
    pub srtt: Option<Duration>,
    /// Round trip of the handshake over this leg and what lies behind it; `None`: not known, or its SYN was repeated.
    pub handshake_rtt: Option<Duration>,
    /// Its newest window, in bytes.
    pub window_bytes: u32,
    /// Where the window ends that a gateway on this leg told last.
    pub told_edge: Option<SeqNum>,
    /// Where the part of it ends that the gateway will be able to pass on in time; `None`: with the window.
    pub soft_edge: Option<SeqNum>,
    /// The same as the field of the header says it: what the host itself, and the one that it speaks to, go by.
    pub field_window_bytes: u32,
}

/// What both hosts agreed on in the handshake.
#[derive(Clone, Copy, Debug, Default)]
pub struct Agreed {
    /// Timestamps (RFC 7323).
    pub timestamps: bool,
    /// SACK (RFC 2018).
    pub sack: bool,
    /// Window scaling (RFC 7323).
    pub window_scale: bool,
    /// ECN (RFC 3168).
    pub ecn: bool,
}

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
    pub push: SeqNum,
    /// Urgent data ends before this, as the source's newest urgent pointer says.
    pub urgent_end: Option<SeqNum>,
    /// An urgent pointer of 0 stood in a segment that begins here: some receivers take its first byte as urgent, others
    /// nothing. Only the very same segment means the same to all.
    pub urgent_zero: Option<SeqNum>,
    /// What the far host has acknowledged, as a peer tells it.
    pub far_ack: Option<SeqNum>,
    /// Draining: nothing from here on is taken.
    pub frozen_at: Option<SeqNum>,
    /// Acknowledged by the destination beyond what passed through here (after freezing or a bypass).
    pub acked_beyond: Option<SeqNum>,
    /// Bytes that may be held in any case.
    pub limit_bytes: u32,
    /// Bytes that may be held before the destination has taken any.
    pub start_bytes: u32,
    /// How fast the destination takes what waits.
    pub drain: Drain,
    /// The thesis's receive buffer.
    pub adaptive: Adaptive,
    /// Segments dropped to slow the source.
    pub queue_drop: QueueDrop,
    /// When the destination acknowledged something last, and how long after the time before.
    pub acked_at: Option<(Instant, Duration)>,
    /// Something has come from the source.
    pub begun: bool,
    /// The end of what was forwarded past what is held, because the destination answers round us.
    pub passed_end: Option<SeqNum>,
    /// Packets have been seen to go round us: the source's FIN is acknowledged only when its destination has it.
    pub bypassed: bool,
    /// When the source's FIN came.
    pub fin_since: Option<Instant>,
    /// The FIN has waited long enough for its destination: it is acknowledged with what stands before it.
    pub fin_overdue: bool,
    /// How far the source has shown that it has sent.
    pub source_nxt: SeqNum,
    /// The destination's word on bytes that went round us, until it stands by it.
    pub believed: Option<Belief>,
    /// Since when the far host has not gone on acknowledging what a gateway holds for it, and where it stands.
    pub far_waits: Option<(SeqNum, Instant)>,
    /// Timeouts in a row without progress.
    pub timeouts: u32,
    /// Since when something is held that could be sent, and nothing is under way: the leg has given it no turn.
    pub waits_since: Option<Instant>,
    /// A keepalive of the source went on: the answer must, too.
    pub keepalive_passed: bool,
    /// Evidence of a path round us: what the destination acknowledges and never passed here.
    pub beyond: Beyond,
    /// What it is booked with.
    pub booked: Entry,
}

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

impl Relay {
    /// Bytes acknowledged to the source, or SACKed, and not yet acknowledged by the destination.
    #[must_use]
    pub fn has_custody(&self) -> bool {
        !self.buffer.is_empty() || self.buffer.has_early() || self.fin_outstanding()
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
        self.rx.fin_at.is_some_and(|f| f == self.buffer.end() && self.tx.snd_una.before_eq(f))
    }
    /// The destination has acknowledged the source's FIN.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.rx.fin_at.is_some_and(|f| self.tx.snd_una.after(f))
    }
    /// RCV.NXT.
    #[must_use]
    pub fn rcv_nxt(&self) -> SeqNum {
        self.rx.rcv_nxt(&self.buffer)
    }
    /// The acknowledgement that the source gets: RCV.NXT, but of a FIN when its destination has acknowledged it, or when
    /// it has waited long, all before it has arrived, and nothing goes round us. A source whose FIN is acknowledged may
    /// be gone and answer a destination that reaches it directly with RST, or begin anew on the same ports while we still
    /// hold its end.
    #[must_use]
    pub fn ack(&self, downstream: Peer) -> SeqNum {
        let delivered = self.far_acked(downstream).after_eq(self.buffer.end());
        let early = self.fin_overdue && delivered && !self.bypassed;
        if self.fin_outstanding() && !early {
            self.rx.last_ack_sent.max(self.buffer.end())
        } else {
            self.rcv_nxt()
        }
    }
    /// Bytes or a FIN that were acknowledged to the source and not yet by the destination. What was only SACKed is the
    /// source's still.
    #[must_use]
    pub fn is_owed(&self) -> bool {
        !self.buffer.is_empty() || self.fin_outstanding()
    }
    /// Only bytes behind a gap are held: whether the destination lacks what is missing is not known.
    #[must_use]
    pub fn waits_behind_hole(&self) -> bool {
        let fin_ahead = self.rx.fin_claimed.is_some();
        (self.buffer.has_early() || fin_ahead) && !self.is_owed() && self.tx.board().is_empty()
    }
    /// A window that is larger than any before, and by enough to wait for it, can be shown to the source: windows are told in
    /// units of `1 << shift`.
    #[must_use]
    pub fn can_show_more(&self, limit_bytes: u32, shift: u8, field_max_bytes: u32) -> bool {
        let shift = shift.min(14);
        let shown = self.rx.window_shown_max;
        shown.saturating_add(shown / 2) >> shift < limit_bytes.min(field_max_bytes) >> shift
    }
    /// What the sender may draw on.
    #[must_use]
    pub fn supply(&self) -> Supply {
        Supply {
            end: self.buffer.end(),
            fin: self.rx.fin_at == Some(self.buffer.end()),
            push: self.push,
            urgent_end: self.urgent_end.filter(|u| u.after(self.tx.snd_nxt)),
            urgent_until: self.urgent_end,
            urgent_zero: self.urgent_zero,
        }
    }
    /// The far host's acknowledgement, as far as it is known.
    #[must_use]
    pub fn far_acked(&self, peer: Peer) -> SeqNum {
        match self.far_ack {
            Some(a) if peer.is_heard() => a,
            _ => self.tx.snd_una,
        }
    }
    /// Frozen, and everything below the frozen edge has been delivered.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.frozen_at.is_some() && !self.has_custody()
    }
}

impl Leg {
    /// A leg as a host's SYN or SYN-ACK shows it.
    #[must_use]
    pub fn new(now: Instant, s: &TcpSegment, via: IfaceId) -> Self {
        let default_mss = if s.ip.is_v4() { 536 } else { 1220 };
        Self {
            addr: s.ip.src,
            port: s.src_port,
            via,
            out: Way::Ordinary(via),
            path_mtu: PathMtu::default(),
            mss: s.options.mss.unwrap_or(default_mss),
            window_scale: 0,
            ttl: s.ip.ttl,
            traffic_class: s.ip.traffic_class,
            flow_label: s.ip.flow_label,
            dont_fragment: s.ip.dont_fragment,
            ip_id: s.ip.id,
            direct: false,
            ts_val: s.options.timestamps.map_or(0, |t| t.val),
            heard_at: now,
            ts_recent: s.options.timestamps.map_or(0, |t| t.val),
            peer: Peer::None,
            reporter: None,
            srtt: None,
            handshake_rtt: None,
            window_bytes: u32::from(s.window),
            told_edge: None,
            soft_edge: None,
            field_window_bytes: u32::from(s.window),
        }
    }

    /// The host has spoken: what segments made in its name copy from it.
    pub fn hear(&mut self, now: Instant, s: &TcpSegment) {
        self.ttl = s.ip.ttl;
        self.traffic_class = s.ip.traffic_class;
        self.flow_label = s.ip.flow_label;
        self.dont_fragment = s.ip.dont_fragment;
        if let Some(t) = s.options.timestamps
            && (t.val.wrapping_sub(self.ts_val) as i32) >= 0
        {
            self.ts_val = t.val;
        }
        self.heard_at = now;
        self.direct = false;
        if !s.flags.syn() {
            self.window_bytes = u32::from(s.window) << self.window_scale;
            self.field_window_bytes = self.window_bytes;
        }
    }

    /// A gateway's own window counts, not the header's: it may be larger, and it may be taken back. What it told last stands
    /// while its segments have no room for it.
    pub fn take_told_window(&mut self, ack: SeqNum, field_bytes: u32, told: Option<&Message>) {
        let Some(message) = told else {
            // A host, or a segment that passed its gateway by.
            self.told_edge = self.told_edge.filter(|_| self.peer.is_heard());
            self.soft_edge = self.soft_edge.filter(|_| self.peer.is_heard());
            return;
        };
        if let Some(window) = message.window_bytes {
            // Where both say the same, the header says it more exactly: a window of a few segments may end within a unit.
            let same = field_bytes.checked_sub(window).is_some_and(|more| more < WINDOW_UNIT);
            self.told_edge = Some(ack + if same { field_bytes } else { window });
            self.soft_edge = message.soft_window_bytes.map(|soft| ack + soft);
        }
        if let Some(edge) = self.told_edge {
            self.window_bytes = if edge.after(ack) { edge.since(ack) } else { 0 };
        }
    }

    /// Bytes of IP and TCP header without options towards this host.
    #[must_use]
    pub fn header_bytes(&self) -> u32 {
        if self.addr.is_ipv4() { 40 } else { 60 }
    }
}

impl Relay {
    fn book(&mut self, links: &mut Links, new: Entry) {
        let old = core::mem::replace(&mut self.booked, new);
        if old != new {
            links.book(&old, &new);
        }
    }

    /// Bytes that may be held by what the destination has taken so far.
    #[must_use]
    pub fn earned_bytes(&self) -> u32 {
        let read = self.tx.delivered_bytes().saturating_sub(UNREAD_BYTES);
        let grown = u64::from(self.start_bytes).saturating_add(GROWTH * read);
        u32::try_from(grown).unwrap_or(u32::MAX).min(self.limit_bytes)
    }
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
