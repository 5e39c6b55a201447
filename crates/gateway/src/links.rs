//! The egress queues of the declared links: forwarded packets wait in them, flows are granted
//! bytes.

use farlink_egress::{Class, Config as EgressConfig, Egress, GroupId, Lane};
use farlink_engine::config::{self, AckFilter, Config, Interface, Weights, XcpWeights};
use farlink_engine::link::{Carrier, Change, Dated, Link, LinkReport, Pace, PairId, State, Witness};
use farlink_engine::net::{IfaceId, LinkId, Via, Way};
use farlink_engine::status::Load;
use farlink_engine::{Pulled, ReadyId, Wants};
use farlink_wire::{Duration, Instant, Offload, PacketBuf, Pool, SMALL_BLOCK_BYTES, WireSize, supersegment};

use crate::ack_filter;
use crate::acks;
use crate::beside::Beside;
use crate::byte_budget::{BudgetLevel, Tab};
use crate::due::{Deadline, Due, Earliest};
use crate::found::FoundRate;
use crate::group;
use crate::kinds::{Kind, Kinds};
use crate::link_rate::LinkRate;
use crate::network::{Counts, Network};
use crate::others::{self, Arrived, Others};
use crate::outage;
use crate::pairs::group_of;
use crate::place::{self, Places};
use crate::status::LinkStatus;
pub use crate::waiting::Waiting;
use crate::xcp_queue::XcpQueue;

/// Marks the queue numbers of forwarded packets; the engine's never have this bit.
const FORWARDED: u64 = 1 << 63;

/// What waits in a link's queue is at most this part of the pool (one over it): a block is up to
/// three times as large as the ordinary packet in it, and most of the pool is for custody.
const QUEUE_SHARE: usize = 16;
/// The blocks of what waits are at most this part of the pool, however small the packets in them
/// are.
const QUEUE_BLOCKS_SHARE: usize = 4;

/// It is not tried whether a link carries more than is declared as long as somebody comes and goes,
/// or calls and the like go on: of those something comes within this time.
const QUIET: Duration = Duration::from_secs(2);

/// So many flows are counted at most that have their turns one after the other.
const CROWD_MAX: u64 = 1024;

/// A declared link's queue.
pub struct LinkQueue {
    id: LinkId,
    iface: IfaceId,
    /// The queue.
    pub egress: Egress<Waiting>,
    places: Places,
    /// Payload bytes that were sent into it again.
    repeated_bytes: u64,
    name: String,
    interface: String,
    /// Packets that the pool had no room for.
    refused: u64,
    /// The rate of the link; `None`: not known. The queue has what others leave of it.
    rate_bps: Option<u64>,
    /// What comes back over the link, as far as that is known.
    rate_in_bps: Option<u64>,
    /// The rate as it is seen.
    rate: LinkRate,
    /// What leaves by the interface and does not pass the queue.
    beside: Beside,
    /// What it has carried of what is paid for.
    tab: Tab,
    /// What it has carried.
    kinds: Kinds,
    /// How what is not split shares it.
    others: Others,
    /// What comes in has taken its time of the rate that is declared.
    is_half_duplex: bool,
    /// It answers the wishes of packets that are forwarded.
    router: Option<XcpQueue>,
    /// The IP protocol of XCP's own header, which may stand in packets on it.
    shim: Option<u8>,
    /// Of forwarded acknowledgements that wait only the newest are kept.
    filters_acks: bool,
    /// Whether that is so.
    ack_filter: AckFilter,
    /// How many others were dropped.
    acks_filtered: u64,
    /// Acknowledgements to gateways have a group of their own.
    rations_acks: bool,
}

/// Class of a flow's wish.
pub fn class_of(wants: Wants) -> Class {
    match wants {
        Wants::Ack | Wants::GatewayAck => Class::Control,
        Wants::Data(class) => place::class_of(class),
        Wants::Repeat => Class::Spare,
    }
}

/// Queues of all declared links of a configuration.
pub fn queues(config: &Config) -> Vec<LinkQueue> {
    let declared = config.interfaces.iter().filter_map(|i| Some((i, i.link.as_ref()?)));
    let ids = (0..).map(LinkId);
    let common = (config.limits.pool_bytes, Places::new(config));
    ids.zip(declared).map(|(id, (i, link))| LinkQueue::new(id, i, link, common)).collect()
}

impl LinkQueue {
    /// An empty one.
    pub fn new(
        id: LinkId,
        interface: &Interface,
        link: &config::Link,
        (pool_bytes, places): (usize, Places),
    ) -> Self {
        let usual = EgressConfig::default();
        let egress = EgressConfig {
            rate_bps: link.rate_bps,
            overhead_bytes: link.overhead_bytes,
            queue_limit_bytes: usual.queue_limit_bytes.min(pool_bytes / QUEUE_SHARE),
            queue_limit_packets: (pool_bytes / QUEUE_BLOCKS_SHARE / SMALL_BLOCK_BYTES).max(1),
            rtt: link.rtt,
            ..usual
        };
        let mut egress = Egress::new(egress);
        let rations_acks = acks::follow(Instant::ZERO, &mut egress);
        let router = link
            .is_xcp_router
            .then(|| XcpQueue::new(Instant::ZERO, &mut egress, link.xcp_weights, places.shims()));
        let mut queue = Self {
            id,
            iface: interface.id,
            egress,
            places,
            repeated_bytes: 0,
            name: link.name.clone(),
            interface: interface.name.clone(),
            refused: 0,
            rate_bps: link.rate_bps,
            rate_in_bps: link.rate_in_bps,
            beside: Beside::default(),
            tab: Tab::new(link.byte_budget),
            rate: LinkRate::new(link, !link.is_half_duplex && !link.is_xcp_router),
            kinds: Kinds::default(),
            others: Others::sharing_by(link.weights),
            is_half_duplex: link.is_half_duplex,
            router,
            shim: link.xcp_shim,
            filters_acks: link.filters_acks(),
            ack_filter: link.ack_filter,
            acks_filtered: 0,
            rations_acks,
        };
        queue.follow_aqm();
        queue
    }

    /// Its place among all.
    pub fn id(&self) -> LinkId {
        self.id
    }

    /// The way into it.
    pub fn way(&self) -> Way {
        Way::Link(self.id)
    }

    /// The number of its interface.
    pub fn iface(&self) -> IfaceId {
        self.iface
    }

    /// The IP protocol of XCP's own header, which may stand in packets on it.
    pub fn shim(&self) -> Option<u8> {
        self.shim
    }

    /// The link's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its interface's name.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// It is known what the link carries: somebody has said it, or it has been found out.
    pub fn is_rate_known(&self) -> bool {
        self.rate.is_known().unwrap_or(self.rate_bps.is_some())
    }

    /// Its interface has this name now.
    pub fn call_interface(&mut self, name: &str) {
        name.clone_into(&mut self.interface);
    }

    /// Nobody declares it any more.
    pub fn retire(&mut self) {
        self.name.clear();
    }

    /// A forwarded packet joins the queue. The victims of a full queue go back to the pool.
    pub fn enqueue(&mut self, now: Instant, waiting: Waiting, pool: &mut Pool) {
        let size = supersegment::wire_size(waiting.packet.bytes(), &waiting.packet.offload);
        let Some(mut waiting) = self.filter(waiting, size, pool) else { return };
        let egress = &mut self.egress;
        // One that waits already has been counted.
        if waiting.class == Class::Control
            && waiting.kind == Kind::Icmp
            && waiting.since == now
            && !self.others.lets_error_go_first(now, size.bytes, self.rate_bps)
        {
            (waiting.class, waiting.hash) = (Class::Bulk, self.places.of_errors(waiting.packet.bytes()));
        }
        let flow = waiting.hash | FORWARDED;
        waiting.is_shared = false;
        let victims = match &mut self.router {
            Some(router) => {
                let lane = router.arrive(now, &waiting.packet, waiting.class, egress);
                egress.enqueue(now, flow, lane, size, waiting)
            }
            None => {
                let is_tcp = waiting.kind == Kind::Tcp;
                let bytes = waiting.packet.bytes();
                let host = || self.places.in_crowd(bytes, is_tcp) | FORWARDED;
                let arrived = Arrived { connection: flow, class: waiting.class, is_tcp, bytes: size.bytes };
                let (lane, joined) = self.others.place(now, arrived, host, self.rate_bps, egress);
                (waiting.class, waiting.is_shared) = (lane.class, joined.is_shared);
                let flow = joined.flow;
                match others::managed(waiting.class, waiting.kind, joined.is_new, waiting.packet.bytes()) {
                    Some(managed) => egress.enqueue_managed(now, flow, lane, size, (waiting, managed)),
                    None => egress.enqueue(now, flow, lane, size, waiting),
                }
            }
        };
        for victim in victims {
            self.let_go(victim, pool);
        }
    }

    /// Packets that have waited too long go back to the pool.
    pub fn recycle_dropped(&mut self, pool: &mut Pool) {
        for victim in self.egress.take_dropped().collect::<Vec<_>>() {
            self.let_go(victim, pool);
        }
    }

    /// It waits no longer.
    fn note_left(&mut self, waiting: &Waiting) {
        if waiting.is_shared {
            self.others.note_left(waiting.hash | FORWARDED, waiting.class);
        }
    }

    fn let_go(&mut self, victim: Waiting, pool: &mut Pool) {
        let size = supersegment::wire_size(victim.packet.bytes(), &victim.packet.offload);
        self.note_left(&victim);
        self.kinds.note_dropped(victim.kind, size.packets);
        victim.packet.recycle(pool);
    }

    /// All packets that wait, those of one flow in their order. Of those that an outage has held
    /// longest some are let go.
    pub fn take_waiting(&mut self, now: Instant, pool: &mut Pool) -> Vec<Waiting> {
        let waiting = self.egress.take_packets(now);
        let mut kept = Vec::with_capacity(waiting.len());
        let is_newest = outage::newest(&waiting);
        for (waiting, is_newest) in waiting.into_iter().zip(is_newest) {
            if is_newest && now.since(waiting.since) <= outage::WAIT_MAX {
                self.note_left(&waiting);
                kept.push(waiting);
            } else {
                self.refused += 1;
                self.let_go(waiting, pool);
            }
        }
        kept
    }

    /// An acknowledgement that says all that the one before it says takes the place of that one.
    /// Returned: what is still to join the queue.
    fn filter(&mut self, waiting: Waiting, size: WireSize, pool: &mut Pool) -> Option<Waiting> {
        if !self.filters_acks || waiting.class != Class::Control || self.router.is_some() {
            return Some(waiting);
        }
        let flow = waiting.hash | FORWARDED;
        // Acknowledgements stand in the default group.
        let before = self.egress.newest_mut(flow, waiting.class, size);
        let Some(before) = before.filter(|before| ack_filter::supersedes(&before.packet, &waiting.packet))
        else {
            return Some(waiting);
        };
        core::mem::replace(&mut before.packet, waiting.packet).recycle(pool);
        self.acks_filtered += 1;
        None
    }

    /// Fragments of a segment that has just been made: each waits for its turn, before what its
    /// connection has to send next. Returned: those that find no place, because nobody was granted
    /// anything.
    pub fn queue_fragments(
        &mut self,
        now: Instant,
        via: Via,
        fragments: impl Iterator<Item = Vec<u8>>,
    ) -> Vec<Vec<u8>> {
        let mut left = Vec::new();
        for bytes in fragments {
            let size = WireSize { bytes: u32::try_from(bytes.len()).unwrap_or(u32::MAX), packets: 1 };
            let packet = PacketBuf::outside(bytes, Offload::default());
            // The router of XCP, if there is one, sees them as it sees all that is made here.
            let (class, kind) = (Class::Control, Kind::Split);
            let waiting = Waiting { packet, via, since: now, hash: 0, class, kind, is_shared: false };
            if let Err(waiting) = self.egress.push_granted(now, size, waiting) {
                left.push(waiting.packet.bytes().to_vec());
            }
        }
        left
    }

    /// A packet that has waited leaves.
    pub fn release(&mut self, now: Instant, waiting: &mut Waiting) {
        let size = supersegment::wire_size(waiting.packet.bytes(), &waiting.packet.offload);
        self.note_sent(waiting.kind, size, now.since(waiting.since));
        self.note_left(waiting);
        if let Some(router) = &mut self.router {
            router.depart(now, &mut waiting.packet, waiting.class, &self.egress);
        }
    }

    /// Something of the gateway's own has left past the queue.
    pub fn charge(&mut self, now: Instant, size: WireSize, kind: Kind) {
        self.egress.charge(now, size);
        self.count_own(now, size, Class::Control);
        self.note_sent(kind, size, Duration::ZERO);
    }

    fn note_sent(&mut self, kind: Kind, size: WireSize, waited: Duration) {
        self.kinds.note_sent(kind, size, waited);
        if kind.is_counted() {
            self.rate.note_counted(size.bytes);
        }
    }

    fn count_own(&mut self, now: Instant, size: WireSize, class: Class) {
        if let Some(router) = self.router.as_mut().filter(|_| !size.is_nothing()) {
            router.pass(now, size, class, &self.egress);
        }
    }

    /// How XCP traffic and the rest share its queue; `None`: it is no XCP router.
    pub fn xcp_weights(&self) -> Option<XcpWeights> {
        self.router.as_ref().map(XcpQueue::weights)
    }

    /// They share it by these from now on. Returns whether it is an XCP router at all.
    pub fn set_xcp_weights(&mut self, now: Instant, weights: XcpWeights) -> bool {
        if let Some(router) = &mut self.router {
            router.set_weights(now, &mut self.egress, weights);
        }
        self.router.is_some()
    }

    /// How what is split and what is not share it; `None`: by how many flows wait.
    pub fn weights(&self) -> Option<Weights> {
        self.others.chosen()
    }

    /// They share it by these from now on.
    pub fn set_weights(&mut self, weights: Option<Weights>) {
        self.others.choose(weights);
    }

    fn follow_aqm(&mut self) {
        let config = self.egress.config();
        let ns = |bytes: u64| {
            let ns = config.rate_bps.map(|bps| u128::from(bytes) * 8_000_000_000 / u128::from(bps.max(1)));
            u64::try_from(ns.unwrap_or(0)).unwrap_or(u64::MAX)
        };
        let packet = Duration::from_nanos(ns(u64::from(config.mtu_bytes)));
        // So many times their own turn passes until all have had one.
        let others = u64::try_from(others::forwarded_in(&self.egress)).unwrap_or(u64::MAX).min(CROWD_MAX);
        let turns = self.others.turns().saturating_mul(others);
        let round = Duration::from_nanos(ns(turns.saturating_mul(self.egress.burst_bytes().into())));
        let rates = (config.rate_bps, self.rate_in_bps);
        let of_tcp = others::aqm_of_tcp(config.rtt, rates, (packet, round));
        self.egress.set_aqm(others::aqm(config.rtt, packet, round), of_tcp);
    }

    fn set_rate(&mut self, now: Instant, rate_bps: Option<u64>) {
        self.rate_bps = rate_bps;
        let left_bps = rate_bps.map(|bps| self.beside.left_of(bps, self.rate.carried_bps().unwrap_or(bps)));
        if self.egress.config().rate_bps == left_bps {
            return;
        }
        self.egress.set_rate(now, left_bps);
        self.follow_aqm();
        self.rations_acks = acks::follow(now, &mut self.egress);
        if let Some(router) = &mut self.router {
            router.set_rate(self.egress.carries_bps(now));
        }
    }

    /// One packet or super-segment has been put onto the interface, of so many bytes.
    pub fn note_written(&mut self, bytes: usize, size: WireSize) {
        self.beside.note_own(bytes, size);
    }

    /// Asks the interface what leaves by it past the queue, when it is time.
    pub fn meter(&mut self, now: Instant, net: &mut dyn Network) {
        let (is_tab_due, is_due) = (self.tab.is_due(now), self.beside.is_due(now));
        let counts = if is_tab_due || is_due { net.counts(self.iface) } else { Counts::Awaited };
        if is_tab_due && counts != Counts::Awaited {
            self.tab.look(now, self.iface, net);
        }
        if !is_due || counts == Counts::Awaited {
            return;
        }
        let link = (self.egress.config().overhead_bytes, self.rate_bps.unwrap_or(0));
        let sent = net.sent_by(self.iface).map(|sent| (sent, counts));
        let unforeseen_bytes = self.beside.look(now, sent, link);
        self.set_rate(now, self.rate_bps);
        // It has taken its time of the whole rate, and the queue sends at what is left of it.
        let (left_bps, whole_bps) = (self.egress.config().rate_bps.unwrap_or(0), self.rate_bps.unwrap_or(0));
        let bytes = u128::from(unforeseen_bytes) * u128::from(left_bps) / u128::from(whole_bps.max(1));
        self.egress.note_others(now, u64::try_from(bytes).unwrap_or(u64::MAX));
    }

    /// Bytes sent into the link in all, past the queue or through it, with what it adds to packets.
    fn carried_bytes(&mut self, now: Instant) -> u64 {
        self.egress.carried_bytes() + self.beside.carried_bytes(now)
    }

    /// A packet has come in by the link. An estimate counts already what the other direction takes.
    pub fn note_arrival(&mut self, now: Instant, packet: &PacketBuf) {
        if self.tab.is_open() {
            self.tab.note_received(supersegment::wire_size(packet.bytes(), &packet.offload).bytes);
        }
        if self.is_half_duplex && !self.rate.is_sought() {
            self.egress.note_medium_taken(now, supersegment::wire_size(packet.bytes(), &packet.offload));
        }
    }

    /// Both directions share its medium.
    pub fn is_half_duplex(&self) -> bool {
        self.is_half_duplex
    }

    /// Neither the other direction nor routers have a say in how fast it is.
    fn is_own(&self) -> bool {
        !self.is_half_duplex && self.router.is_none()
    }

    /// From now on they do, or do not.
    pub fn set_half_duplex(&mut self, is_half_duplex: bool) {
        self.is_half_duplex = is_half_duplex;
    }

    /// The rate is known from somewhere else now, or somebody else is the clock: what was found out
    /// so far is forgotten, unless it is of the same declared rate.
    pub fn follow_pace(&mut self, now: Instant, pace: Pace) {
        self.rate.follow(now, pace, self.is_own());
        self.set_rate(now, pace.source().declared_bps());
    }

    /// What the configuration says of the rate, beside the rate itself, and of the budget.
    pub fn look_at_rate(&mut self, link: &config::Link) {
        self.rate.set(link);
        self.tab.renew(link.byte_budget);
    }

    /// It is tried whether it carries more than is declared, or not.
    pub fn set_tries(&mut self, tries: bool) {
        self.rate.set_tries(tries);
    }

    /// What it has sent since the start, IP bytes, past the queue or through it.
    pub fn passed_bytes(&self) -> u64 {
        self.egress.sent_bytes() + self.beside.total().bytes
    }

    /// What counts for its budget.
    pub fn tab_mut(&mut self) -> &mut Tab {
        &mut self.tab
    }

    /// Its budget, what is used of it, and how far that is.
    pub fn budget(&self) -> Option<(config::ByteBudget, u64, BudgetLevel)> {
        self.tab.read(self.passed_bytes())
    }

    /// The gateway at the other end has told what arrived there.
    pub fn hear(&mut self, now: Instant, report: &LinkReport) {
        let carried_bytes = self.carried_bytes(now);
        self.rate.hear(now, report, (carried_bytes, self.egress.busy_since()));
    }

    /// The loop was late by so much: nothing could be heard meanwhile.
    pub fn note_late(&mut self, late: Duration) {
        self.rate.note_late(late);
    }

    /// Time may have come for what is found out of the rate; the queue sends at it. Returns what
    /// follows for the connections.
    pub fn follow_rate(&mut self, now: Instant, known: &Link) -> Option<Change> {
        let rtt = self.rate.rtt(known);
        if self.egress.config().rtt != rtt {
            self.egress.set_rtt(rtt);
        }
        let brings = known.rate_in_bps();
        if core::mem::replace(&mut self.rate_in_bps, brings) != brings {
            self.filters_acks = self.ack_filter.filters(self.rate_bps, brings);
            self.follow_aqm();
            // Acknowledgements were late by the way back: what they showed of the rate is void.
            self.forget_correction(now, known.pace());
        }
        if self.others.follow(now, &mut self.egress) {
            self.follow_aqm();
        }
        self.rate.meet(now, known);
        let carried_bytes = self.carried_bytes(now);
        if let Some(since) = self.egress.bulk_alone_since(now, QUIET)
            && !self.others.has_come_within(now, QUIET)
        {
            self.rate.may_try(now, since);
        }
        let sending_bps = self.rate.step(now, carried_bytes)?;
        if self.rate_bps != sending_bps {
            self.set_rate(now, sending_bps);
        }
        self.rate.news(now)
    }

    /// Another satellite has taken over, and nobody has been told.
    pub fn takes_turns(&mut self) -> bool {
        self.rate.takes_turns()
    }

    /// Nothing is known of what a link of declared rate carries beside what is declared.
    fn forget_correction(&mut self, now: Instant, pace: Pace) {
        if pace.source().declared_bps().is_some() {
            self.rate.forget(now, pace, self.is_own());
        }
    }

    /// When [`Self::follow_rate`] or the queue wants attention.
    pub fn poll_timeout(&self) -> Option<Deadline> {
        let grant = self.egress.poll_timeout().map(|at| Deadline { at, what: Due::Grant });
        let rate = self.rate.poll_timeout();
        Earliest::default().and_of(grant).and(Due::Estimate, rate).deadline()
    }

    /// What has been found out of its rate, bits per second; zero: nothing, or it is as declared.
    pub fn found_bps(&self) -> u64 {
        self.rate.found_bps()
    }

    /// What has been found of its rate where nobody declares it, with the round trip that belongs
    /// to it.
    pub fn rate_found(&self, now: Instant) -> Option<(FoundRate, Duration)> {
        let (dated, rtt) = self.rate.found(now)?;
        Some((FoundRate::of(dated, now)?, rtt))
    }

    /// The rate that is found in this run where nobody says it, bits per second.
    pub fn rate_in_force_found(&self, now: Instant) -> Option<u64> {
        self.rate.in_force(now).map(|(found, _)| found.bps)
    }

    /// An earlier run has found this. Returns whether it is a first guess.
    pub fn recall(&mut self, once: Dated, rtt: Duration) -> bool {
        self.rate.recall(once, rtt)
    }

    /// The most that its rate can be where it is found out, bits per second; `None`: nobody has
    /// said so.
    pub fn rate_max_bps(&self) -> Option<u64> {
        self.rate.most_bps()
    }

    /// What trials have shown it to carry, bits per second; zero: no more than is declared.
    pub fn room_bps(&self) -> u64 {
        self.rate.room_bps()
    }

    /// A packet of this kind could not wait for want of memory, or has waited too long.
    pub fn note_dropped(&mut self, kind: Kind) {
        self.refused += 1;
        self.kinds.note_dropped(kind, 1);
    }

    /// The group of what a flow wants to send.
    fn group_of(&self, wants: Wants, pair: Option<PairId>) -> GroupId {
        match wants {
            // One whose group there is not would lose its place with each turn.
            Wants::GatewayAck if !self.rations_acks => group::PLAIN,
            _ => group_of(wants, pair),
        }
    }

    /// A leg of a flow has something to send.
    /// `pair`: data has its place with it.
    pub fn set_ready(&mut self, now: Instant, id: ReadyId, wants: Wants, pair: Option<PairId>) {
        // The link is not idle where bytes wait before it that have left here, or that come the
        // other way.
        let carried_bytes = self.carried_bytes(now);
        let has_backlog = self.rate.has_backlog(now, carried_bytes);
        let is_busy = has_backlog || self.egress.is_medium_busy(now);
        let is_late = wants == Wants::Repeat && is_busy;
        if !is_late {
            let lane = Lane { class: class_of(wants), group: self.group_of(wants, pair) };
            self.egress.set_ready(now, id.wanting(wants).as_u64(), lane);
        }
    }

    /// A leg of a flow has sent so much in answer to a grant, and may have more.
    pub fn answer(&mut self, now: Instant, id: ReadyId, class: Class, pulled: &Pulled) {
        let group = self.egress.granted_group();
        let same = pulled.more.is_some_and(|w| {
            id.wanting(w) == id && class_of(w) == class && group == Some(self.group_of(w, pulled.pair))
        });
        self.repeated_bytes += u64::from(pulled.repeated_bytes);
        self.egress.used(now, id.as_u64(), pulled.size.bytes, pulled.size.packets, same);
        self.count_own(now, pulled.size, class);
        self.note_sent(Kind::Split, pulled.size, Duration::ZERO);
        if let (Some(wants), false) = (pulled.more, same) {
            self.set_ready(now, id, wants, pulled.pair);
        }
    }

    /// A snapshot.
    pub fn status(&self, now: Instant, load: Load, known: Option<&Link>) -> LinkStatus {
        let s = self.egress.stats();
        let rtt = known.and_then(Link::rtt_in_force);
        let said = known.map(Link::evidence).unwrap_or_default();
        let returns = known.map(Link::returns).unwrap_or_default();
        let once = self.rate.once(now);
        let budget = self.budget();
        let dropped = |carrier| known.map_or(0, |link| link.boxes().shut(now, carrier).count() as u64);
        LinkStatus {
            name: self.name.clone(),
            interface: self.interface.clone(),
            up: said.state() != State::Down,
            silent: said.is_denied_by(Witness::Silence),
            state: said.state().name(),
            down_by: said.names(),
            rate_bps: self.rate_bps.unwrap_or(0),
            queue_bps: self.egress.config().rate_bps.unwrap_or(0),
            beside_metered: self.beside.is_metered(),
            ahead: known.map(|known| known.clients().count_ahead(now)).unwrap_or_default(),
            beside_bps: self.beside.bps(),
            beside_packets: self.beside.total().packets,
            beside_bytes: self.beside.total().bytes,
            declared_bps: known.and_then(|known| known.pace().source().declared_bps()).unwrap_or(0),
            estimated_bps: self.rate.found_bps(),
            found_age_s: self.rate.in_force(now).map(|(found, _)| found.age(now).as_secs()),
            remembered_bps: once.map_or(0, |once| once.bps),
            remembered_age_s: once.map(|once| once.age.as_secs()),
            room_bps: self.rate.room_bps(),
            rate_in_bps: known.and_then(Link::rate_in_bps).unwrap_or(0),
            rate_in_source: known.and_then(Link::rate_in).map(|known| known.source.name()),
            rate_in_age_s: known.and_then(|known| known.rate_in_age(now)).map(|age| age.as_secs()),
            rate_in_told_bps: known.and_then(Link::rate_in_told_bps).unwrap_or(0),
            rate_in_seen_bps: known.map_or(0, Link::rate_in_seen_bps),
            carried: self.kinds.named().collect(),
            xcp_capacity_bps: self.router.as_ref().and_then(XcpQueue::capacity_bps).unwrap_or(0),
            rtt_us: rtt.map_or(0, |rtt| u64::try_from(rtt.as_micros()).unwrap_or(u64::MAX)),
            gateways: known.into_iter().flat_map(Link::gateways).map(Into::into).collect(),
            boxes: known.map(|link| link.boxes().words(now)).unwrap_or_default(),
            syn_option_dropped: dropped(Carrier::Syn),
            syn_ack_option_dropped: dropped(Carrier::Answer),
            data_option_dropped: dropped(Carrier::Data),
            pairs: known.into_iter().flat_map(Link::shares).collect(),
            sent_bytes: s.sent_bytes,
            spent: known.map(Link::spent).unwrap_or_default(),
            budget_bytes: budget.map_or(0, |(budget, ..)| budget.bytes),
            budget_period: budget.map(|(budget, ..)| budget.period.name()),
            budget_used_bytes: budget.map_or(0, |(_, used, _)| used),
            budget_level: budget.map(|(.., level)| level.name()),
            backlog_bytes: s.backlog_bytes as u64,
            backlog_max_bytes: s.backlog_max_bytes as u64,
            dropped_packets: s.dropped_packets + self.refused,
            acks_filtered: self.acks_filtered,
            flows: load.busy,
            custody_bytes: load.custody_bytes,
            in_flight_bytes: load.in_flight_bytes,
            cwnd_bytes: load.cwnd_bytes,
            lost_bytes: load.lost_bytes,
            retransmitted_bytes: self.repeated_bytes,
            returns: returns.times,
            on_hand_bytes: returns.on_hand_bytes,
            on_hand_total_bytes: returns.on_hand_total_bytes,
        }
    }
}
