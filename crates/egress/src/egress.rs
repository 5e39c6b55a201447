//! The queue itself: who may send, and when.

use farlink_wire::WireSize;
use farlink_wire::time::{Duration, Instant};

use crate::classes::Credits;
use crate::codel::{Aqm, Managed};
use crate::config::{Class, Config, Grant, GroupId, Lane, MAX_BURST_BYTES, Share, Stats};
use crate::flows::{Fate, Flows, Queued, queued_bytes};
use crate::groups::{self, At, Groups};
use crate::shaper::{Shaper, link_catch_up};

/// What a flow of the class for acknowledgements may send in its turn: one of them, with SACK
/// blocks.
const CONTROL_QUANTUM_BYTES: u32 = 100;
/// A caller who is later than this loses what the low classes could have sent meanwhile. What is
/// sent later than the link could have carried it stands before the link from then on, and others
/// wait behind it until nothing waits here: with a low class that always has more, for ever.
const LOW_CATCH_UP_MAX: Duration = Duration::from_micros(250);
/// What an interactive flow may send in its turn: what the link carries in this time, but no more
/// than so many packets.
const INTERACTIVE_TURN_MS: u64 = 5;
/// What others have sent closes the queue for no longer than this.
const OTHERS_MAX: Duration = Duration::from_millis(100);
const INTERACTIVE_TURN_PACKETS: u32 = 4;

/// So many flows are a few.
const FEW: usize = 8;
/// Where more waits in a group than may, each packet that joins it costs so many at most.
const DROPS_OF_GROUP_MAX: usize = 2;

/// A flow that has been granted bytes.
#[derive(Clone, Copy, Debug)]
struct Granted {
    id: u64,
    class: Class,
    at: At,
}

/// The egress queue of one link. `P` is an owned packet.
#[derive(Debug)]
pub struct Egress<P> {
    config: Config,
    burst_bytes: u32,
    quantum_bytes: u32,
    /// Bytes that the link carries in a round trip; zero: not known.
    trip_bytes: i64,
    shaper: Shaper,
    credits: Credits,
    groups: Groups<P>,
    /// Since when, without a break, something has been waiting that the link could carry.
    waiting_since: Option<Instant>,
    /// When somebody joined last who had nothing waiting.
    joined_at: Instant,
    /// The flow whose grant has not been answered.
    granted: Option<Granted>,
    /// Packets that have waited too long, until somebody takes them.
    dropped: Vec<P>,
    /// Bytes and packets that wait as part of what was granted: no more than one grant of each
    /// flow. They make no queue full.
    granted_waiting: (usize, usize),
    up: bool,
    stats: Stats,
}

impl<P> Egress<P> {
    /// An empty queue; the link is up.
    #[must_use]
    pub fn new(mut config: Config) -> Self {
        config.mtu_bytes = config.mtu_bytes.clamp(1, MAX_BURST_BYTES);
        let (burst_bytes, quantum_bytes) = sizes(&config);
        Self {
            config,
            burst_bytes,
            quantum_bytes,
            trip_bytes: trip_bytes(&config),
            shaper: Shaper::of_link(config.rate_bps, link_catch_up(config.rate_bps, config.burst_bytes)),
            credits: Credits::default(),
            groups: Groups::new(config.mtu_bytes),
            waiting_since: None,
            joined_at: Instant::ZERO,
            granted: None,
            dropped: Vec::new(),
            granted_waiting: (0, 0),
            up: true,
            stats: Stats::default(),
        }
    }

    /// A packet waits for the link.
    ///
    /// When the queue is full the oldest packets of the longest flow (of the group that holds most
    /// for its weight) are dropped and handed back; the new one may be among them. Packets of
    /// [`Class::Background`] and below go first, whoever holds more. The same within a group that
    /// holds more than its own limit ([`Self::set_group_limit`]).
    pub fn enqueue(
        &mut self,
        now: Instant,
        flow: u64,
        lane: impl Into<Lane>,
        size: impl Into<WireSize>,
        packet: P,
    ) -> Vec<P> {
        let at = self.entry(lane.into(), flow);
        self.push_and_limit(now, at, Queued { size: size.into(), managed: None, is_granted: false, packet })
    }

    /// The same of a packet that does not wait for long: where packets of its flow do, it may be
    /// marked, if it can be, or dropped when its turn comes (see [`Aqm`]).
    pub fn enqueue_managed(
        &mut self,
        now: Instant,
        flow: u64,
        lane: impl Into<Lane>,
        size: impl Into<WireSize>,
        (packet, managed): (P, Managed),
    ) -> Vec<P> {
        let lane = lane.into();
        let begins = managed.in_turn && self.groups.find(lane, flow).is_none();
        let at = self.entry(lane, flow);
        if begins {
            self.change(now, at, |flows| flows.wait_in_turn(at.slot));
        }
        let managed = Some((now, managed));
        self.push_and_limit(now, at, Queued { size: size.into(), managed, is_granted: false, packet })
    }

    fn push_and_limit(&mut self, now: Instant, at: At, queued: Queued<P>) -> Vec<P> {
        self.push(now, at, queued);
        let mut victims = Vec::new();
        let full = |egress: &Self| {
            let (bytes, packets) = egress.granted_waiting;
            egress.stats.backlog_bytes - bytes > egress.config.queue_limit_bytes
                || egress.stats.backlog_packets - packets > egress.config.queue_limit_packets
        };
        while full(self) {
            let Some(dropped) = self.groups.longest().and_then(|longest| self.drop_from(now, longest)) else {
                break;
            };
            victims.push(dropped);
        }
        // A limit that has fallen is reached step by step, not at the expense of one packet.
        for _ in 0..DROPS_OF_GROUP_MAX {
            let longest = self.groups.longest_of_full(at);
            victims.extend(longest.and_then(|longest| self.drop_from(now, longest)));
        }
        self.stats.backlog_max_bytes = self.stats.backlog_max_bytes.max(self.stats.backlog_bytes);
        victims
    }

    /// Something of this flow waits, in this lane.
    #[must_use]
    pub fn is_waiting(&self, flow: u64, lane: impl Into<Lane>) -> bool {
        self.groups.find(lane.into(), flow).is_some_and(|at| self.groups.waits(at))
    }

    /// The packet of a flow that joined the queue last, if it has this size and still waits:
    /// another one of the same size may take its place.
    pub fn newest_mut(
        &mut self,
        flow: u64,
        lane: impl Into<Lane>,
        size: impl Into<WireSize>,
    ) -> Option<&mut P> {
        let at = self.groups.find(lane.into(), flow)?;
        self.groups.flow_mut(at)?.newest_mut(size.into())
    }

    /// A packet of the flow that has been granted bytes waits, before what else it has to send.
    /// Call it before the grant is answered. Handed back where nothing has been granted.
    ///
    /// # Errors
    /// The packet: nobody has been granted anything.
    pub fn push_granted(&mut self, now: Instant, size: impl Into<WireSize>, packet: P) -> Result<(), P> {
        let Some(at) = self.granted.map(|granted| granted.at) else { return Err(packet) };
        self.push(now, at, Queued { size: size.into(), managed: None, is_granted: true, packet });
        self.stats.backlog_max_bytes = self.stats.backlog_max_bytes.max(self.stats.backlog_bytes);
        Ok(())
    }

    fn push(&mut self, now: Instant, at: At, queued: Queued<P>) {
        let bytes = queued_bytes(queued.size);
        if queued.is_granted {
            self.granted_waiting.0 += bytes;
            self.granted_waiting.1 += 1;
        }
        self.stats.backlog_bytes += bytes;
        self.change(now, at, |flows| flows.push(at.slot, queued));
        self.stats.backlog_packets += 1;
    }

    /// The other direction takes a quarter or more of the medium that both share.
    #[must_use]
    pub fn is_medium_busy(&self, now: Instant) -> bool {
        self.shaper.is_medium_busy(now)
    }

    /// So much has come in by a medium that both directions share: it has taken its time of it.
    /// Each direction has a little less than half of the medium at least.
    pub fn note_medium_taken(&mut self, now: Instant, size: impl Into<WireSize>) {
        self.shaper.note_taken(now, self.cost(size.into()));
    }

    /// The flow has something to send (idempotent). A flow may be ready in several classes and
    /// groups at once, and has its turn in each.
    pub fn set_ready(&mut self, now: Instant, flow: u64, lane: impl Into<Lane>) {
        let lane = lane.into();
        if lane.class != Class::Control && !self.is_waiting(flow, lane) {
            self.joined_at = now;
        }
        let at = self.entry(lane, flow);
        self.set_ready_at(now, at, true);
    }

    /// Makes a group, or changes it: from now on it gets another share. What waits already stays
    /// where it is, in the default group too. `false`: there are [`crate::MAX_GROUPS`] already;
    /// what is put into it is in the default group.
    #[must_use = "without its own group, what it names is in the default group"]
    pub fn set_group(&mut self, now: Instant, group: GroupId, share: Share) -> bool {
        let exists = self.groups.set(now, group, share);
        self.update_waiting_since(now);
        exists
    }

    /// No more bytes of owned packets are to wait in this group, a packet counted as 64 at least.
    /// What waits already stays; a group that does not exist has no limit.
    pub fn set_group_limit(&mut self, group: GroupId, bytes: usize) {
        self.groups.set_limit(group, bytes);
    }

    /// Bytes of owned packets that wait in this group, a packet counted as 64 at least.
    #[must_use]
    pub fn group_backlog_bytes(&self, group: GroupId) -> usize {
        self.groups.backlog_bytes(group)
    }

    /// How many flows wait in this group, in all classes together but [`Class::Control`]; zero
    /// where there is no such group.
    #[must_use]
    pub fn waiting_in(&self, group: GroupId) -> usize {
        self.groups.waiting_in(group)
    }

    /// How many flows wait that may send, in all groups together, and in all classes but
    /// [`Class::Control`].
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.groups.waiting().sharing()
    }

    /// How many flows wait that go first, in all groups together ([`Class::Control`]).
    #[must_use]
    pub fn waiting_first(&self) -> usize {
        self.groups.waiting().total() - self.groups.waiting().sharing()
    }

    /// What the link carries now, in bits per second: its rate, less what the other direction takes
    /// of a medium that both share. `None`: unshaped.
    #[must_use]
    pub fn carries_bps(&self, now: Instant) -> Option<u64> {
        self.shaper.carries_bps(now)
    }

    /// Ends a group: what waits in it goes on in the default group, behind what the same flow has
    /// there. A grant to one of its flows that is not answered yet counts as not used. The default
    /// group stays.
    pub fn remove_group(&mut self, now: Instant, group: GroupId) {
        let Some(flows) = self.groups.remove(group) else { return };
        self.granted = self.granted.take().filter(|granted| self.groups.flow_mut(granted.at).is_some());
        for flow in flows.into_waiting() {
            let at = self.entry(flow.class.into(), flow.id);
            self.change(now, at, |flows| flows.join(at.slot, flow));
        }
        self.update_waiting_since(now);
    }

    /// Every flow that has something to send has its turn elsewhere; returned as they were named,
    /// in the order of the queue's own books. One that comes back at once keeps its place and its
    /// debt.
    pub fn take_ready(&mut self, now: Instant) -> Vec<u64> {
        self.granted = None;
        let mut ids = Vec::new();
        for at in self.groups.all() {
            if let Some(id) = self.groups.flow_mut(at).filter(|f| f.ready).map(|f| f.id) {
                ids.push(id);
                self.set_ready_at(now, at, false);
            }
        }
        ids
    }

    /// All packets that wait, those of one flow in their order.
    pub fn take_packets(&mut self, now: Instant) -> Vec<P> {
        let mut packets = Vec::new();
        for at in self.groups.all() {
            while let Some((_, packet)) = self.take_packet(now, at) {
                packets.push(packet);
            }
        }
        packets
    }

    /// Who may send now; `None`: nobody, or not yet (see [`Self::poll_timeout`]). A [`Grant::Flow`]
    /// must be answered by [`Self::used`] before the next call, else it counts as not used.
    pub fn next_grant(&mut self, now: Instant) -> Option<Grant<P>> {
        if let Some(granted) = self.granted.take() {
            self.set_ready_at(now, granted.at, false);
        }
        if let Some(since) = self.groups.release(now) {
            self.update_waiting_since(since);
        }
        if !self.up || self.shaper.free_at().is_none_or(|at| at > now) {
            return None;
        }
        let (class, next) = loop {
            let class = self.credits.choose(self.groups.waiting())?;
            let next = self.groups.next(now, class, self.quantum(class), self.lead_max(class))?;
            let Some(size) = next.packet else { break (class, next) };
            let of = (self.config.aqm, self.config.aqm_of_tcp);
            match self.groups.flow_mut(next.at).map_or(Fate::Send, |flow| flow.judge(now, &of)) {
                Fate::Drop => {
                    let dropped = self.drop_from(now, next.at);
                    self.dropped.extend(dropped);
                }
                fate => {
                    self.spend(now, next.at, class, size);
                    let (_, packet) = self.take_packet(now, next.at)?;
                    return Some(match fate {
                        Fate::Mark => Grant::Marked(packet),
                        Fate::Send | Fate::Drop => Grant::Packet(packet),
                    });
                }
            }
        };
        // Late by some bytes: these may go at once, but no burst may grow from it.
        let since = self.since(now, class);
        let overdue = u32::try_from(self.shaper.overdue_bytes(now, since)).unwrap_or(u32::MAX);
        let burst = self.turn_bytes(class).saturating_sub(overdue);
        self.granted = Some(Granted { id: next.id, class, at: next.at });
        Some(Grant::Flow { id: next.id, class, bytes: next.bytes.min(burst).max(self.config.mtu_bytes) })
    }

    /// Packets that have waited too long and were dropped when their turn came, since this was last
    /// asked.
    pub fn take_dropped(&mut self) -> impl Iterator<Item = P> {
        self.dropped.drain(..)
    }

    /// How long managed packets may wait from now on, and those of TCP.
    pub fn set_aqm(&mut self, aqm: Aqm, of_tcp: Aqm) {
        (self.config.aqm, self.config.aqm_of_tcp) = (aqm, of_tcp);
    }

    /// In which group the flow stands that has been granted bytes; `None`: none has, or the group
    /// is gone.
    #[must_use]
    pub fn granted_group(&self) -> Option<GroupId> {
        self.granted.and_then(|granted| self.groups.id(granted.at))
    }

    /// What a granted flow really sent: `wire_bytes` in `packets` packets, IP headers included.
    /// `still_ready`: it has more. With zero bytes it leaves the round in any case, and must be
    /// made ready again when it can send.
    pub fn used(&mut self, now: Instant, flow: u64, wire_bytes: u32, packets: u32, still_ready: bool) {
        let size = WireSize { bytes: wire_bytes, packets };
        let Some(Granted { class, at, .. }) = self.granted.take().filter(|granted| granted.id == flow) else {
            // Not the one that was asked: the link carried the bytes all the same.
            self.charge(now, size);
            return;
        };
        if wire_bytes > 0 {
            self.spend(now, at, class, size);
        }
        if !still_ready || wire_bytes == 0 {
            self.set_ready_at(now, at, false);
        }
    }

    /// The most that one of a class sends before others are asked again, in bytes: a packet where
    /// it only gets what they leave. An owned packet of more bytes would keep them waiting for as
    /// long: whoever has such puts it in in parts.
    #[must_use]
    pub fn turn_bytes(&self, class: Class) -> u32 {
        match (self.config.rate_bps, class >= Class::Background) {
            (Some(_), true) => self.config.mtu_bytes,
            _ => self.burst_bytes,
        }
    }

    /// What a flow may send in its turn, bytes.
    ///
    /// Acknowledgements take turns one by one: a turn of a whole packet's bytes would be twenty of
    /// one flow, and on a slow link the others would wait for seconds. The few messages that an
    /// interactive flow has waiting leave in one turn: one that waits for a second round is late by
    /// all that others have, and nobody gains by it.
    fn quantum(&self, class: Class) -> i64 {
        i64::from(match class {
            Class::Control => self.quantum_bytes.min(CONTROL_QUANTUM_BYTES),
            Class::Interactive => {
                let carried = self.config.rate_bps.unwrap_or(0) / (1_000 / INTERACTIVE_TURN_MS) / 8;
                let most = INTERACTIVE_TURN_PACKETS.saturating_mul(self.config.mtu_bytes);
                self.quantum_bytes.max(u32::try_from(carried).unwrap_or(u32::MAX).min(most))
            }
            Class::Bulk | Class::Background | Class::Spare => self.quantum_bytes,
        })
    }

    /// Packets went past the queue over the same link, and count for no group.
    pub fn charge(&mut self, now: Instant, size: impl Into<WireSize>) {
        let size = size.into();
        let cost = self.cost(size);
        self.shaper.spend(now, self.waiting_since, cost);
        self.stats.sent_bytes += u64::from(size.bytes);
        self.stats.carried_bytes += cost;
    }

    /// So many bytes have gone over the same link that the queue knows nothing of; what the link
    /// adds to packets is in them. However many they are, the queue is not closed for long.
    pub fn note_others(&mut self, now: Instant, bytes: u64) {
        let most = self.shaper.bytes_until(now, now + OTHERS_MAX);
        let bytes = bytes.min(most);
        if bytes > 0 {
            self.shaper.spend(now, self.waiting_since, bytes);
        }
    }

    /// When [`Self::next_grant`] can next succeed, as far as is known now; may lie in the past.
    /// `None`: nothing waits that ever may, or the link is down.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if !self.up {
            return None;
        }
        let free_at = self.shaper.free_at()?;
        if self.groups.waiting().any() {
            return Some(free_at);
        }
        let held_until = self.groups.first_held().filter(|at| *at < Instant::FAR_FUTURE);
        held_until.map(|at| at.max(free_at))
    }

    /// The link has another rate from now on; `None`: unshaped.
    pub fn set_rate(&mut self, now: Instant, rate_bps: Option<u64>) {
        let had_none = self.config.rate_bps.is_none_or(|rate| rate == 0);
        self.config.rate_bps = rate_bps;
        (self.burst_bytes, self.quantum_bytes) = sizes(&self.config);
        self.trip_bytes = trip_bytes(&self.config);
        self.shaper.set_rate(now, rate_bps, link_catch_up(rate_bps, self.config.burst_bytes));
        if had_none {
            self.restart_waiting(now);
        }
    }

    /// The link has another round-trip time from now on; `None`: it is not known.
    pub fn set_rtt(&mut self, rtt: Option<Duration>) {
        self.config.rtt = rtt;
        self.trip_bytes = trip_bytes(&self.config);
    }

    /// A link that is down grants nothing; everything waits.
    pub fn set_link_up(&mut self, now: Instant, up: bool) {
        if up && !self.up {
            self.restart_waiting(now);
        }
        self.up = up;
    }

    /// Whether grants are made.
    #[must_use]
    pub fn is_link_up(&self) -> bool {
        self.up
    }

    /// Nothing waits.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        !self.groups.waiting().any() && self.groups.first_held().is_none()
    }

    /// Since when, without a break, something has been waiting that the link could carry; `None`:
    /// nothing waits.
    #[must_use]
    pub fn busy_since(&self) -> Option<Instant> {
        self.waiting_since
    }

    /// Since when something has been waiting, where all that waits now is data of a few who send a
    /// lot, and nobody has joined them for so long: nobody else notices a queue. `None`: others
    /// wait, or nobody does.
    #[must_use]
    pub fn bulk_alone_since(&self, now: Instant, quiet: Duration) -> Option<Instant> {
        let waiting = self.groups.waiting();
        let is = |class| *waiting.of(class) > 0;
        let is_alone = is(Class::Bulk) && !is(Class::Control) && !is(Class::Interactive);
        let are_few = self.waiting() <= FEW && now.since(self.joined_at) >= quiet;
        self.waiting_since.filter(|_| is_alone && are_few && self.stats.backlog_packets == 0)
    }

    /// The largest burst that leaves at once, in bytes.
    #[must_use]
    pub fn burst_bytes(&self) -> u32 {
        self.burst_bytes
    }

    /// The configuration in force.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Wire bytes sent, without link-layer overhead.
    #[must_use]
    pub fn sent_bytes(&self) -> u64 {
        self.stats.sent_bytes
    }

    /// The same with it.
    #[must_use]
    pub fn carried_bytes(&self) -> u64 {
        self.stats.carried_bytes
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats { busy: self.shaper.busy(), flows: self.groups.len(), ..self.stats }
    }

    fn entry(&mut self, lane: Lane, flow: u64) -> At {
        self.groups.entry(lane, flow, self.quantum(lane.class))
    }

    /// By how many bytes the foremost of the flows of a class may lead. Leads go from nothing to
    /// this, so of n flows of one size those behind have n times half of it left when the first
    /// ends: what the link carries in a round trip. Who is interactive ends nothing, and would wait
    /// for those that lead.
    fn lead_max(&self, class: Class) -> i64 {
        if class == Class::Interactive {
            return 0;
        }
        let flows = i64::try_from(*self.groups.waiting().of(class)).unwrap_or(i64::MAX).max(1);
        self.trip_bytes.saturating_mul(2) / flows
    }

    fn spend(&mut self, now: Instant, at: At, class: Class, size: WireSize) {
        let cost = self.cost(size);
        let since = self.since(now, class);
        self.shaper.spend(now, since, cost);
        self.credits.spend(class, cost, self.groups.waiting());
        if self.groups.spend(now, at, class, cost) {
            self.update_waiting_since(now);
        }
        self.stats.sent_bytes += u64::from(size.bytes);
        self.stats.carried_bytes += cost;
        self.stats.sent_grants += 1;
    }

    /// Since when the link would have carried something of this class, had the caller been in time.
    fn since(&self, now: Instant, class: Class) -> Option<Instant> {
        let earliest = if class >= Class::Background { now - LOW_CATCH_UP_MAX } else { Instant::ZERO };
        self.waiting_since.map(|since| since.max(earliest))
    }

    fn cost(&self, size: WireSize) -> u64 {
        u64::from(size.bytes) + u64::from(size.packets) * u64::from(self.config.overhead_bytes)
    }

    fn take_packet(&mut self, now: Instant, at: At) -> Option<(WireSize, P)> {
        let mut taken = None;
        self.change(now, at, |flows| taken = flows.pop(at.slot));
        let Queued { size, is_granted, packet, .. } = taken?;
        let bytes = queued_bytes(size);
        if is_granted {
            self.granted_waiting.0 = self.granted_waiting.0.saturating_sub(bytes);
            self.granted_waiting.1 = self.granted_waiting.1.saturating_sub(1);
        }
        self.stats.backlog_bytes = self.stats.backlog_bytes.saturating_sub(bytes);
        self.stats.backlog_packets = self.stats.backlog_packets.saturating_sub(1);
        Some((size, packet))
    }

    fn drop_from(&mut self, now: Instant, at: At) -> Option<P> {
        let (size, packet) = self.take_packet(now, at)?;
        self.stats.dropped_packets += 1;
        self.stats.dropped_bytes += u64::from(size.bytes);
        Some(packet)
    }

    fn set_ready_at(&mut self, now: Instant, at: At, ready: bool) {
        self.change(now, at, |flows| {
            if let Some(flow) = flows.get_mut(at.slot) {
                flow.ready = ready;
            }
        });
    }

    fn change(&mut self, now: Instant, at: At, change: impl FnOnce(&mut Flows<P>)) {
        if self.groups.change(now, at, change) {
            self.update_waiting_since(now);
        }
    }

    fn update_waiting_since(&mut self, now: Instant) {
        if !self.groups.waiting().any() {
            self.waiting_since = None;
        } else if self.waiting_since.is_none() {
            self.waiting_since = Some(now);
        }
    }

    /// What waits could not be carried until now.
    fn restart_waiting(&mut self, now: Instant) {
        if self.waiting_since.is_some() {
            self.waiting_since = Some(now);
        }
    }
}

/// Burst and quantum of a configuration, in bytes.
fn sizes(config: &Config) -> (u32, u32) {
    let burst = match config.burst_bytes {
        Some(burst) => burst.clamp(config.mtu_bytes, MAX_BURST_BYTES),
        None => groups::burst_bytes(config.rate_bps, config.mtu_bytes),
    };
    (burst, config.quantum_bytes.unwrap_or(burst).max(config.mtu_bytes))
}

/// What the link carries in a round trip, in bytes; zero where that is not known.
fn trip_bytes(config: &Config) -> i64 {
    let (rate, rtt) = (config.rate_bps.unwrap_or(0), config.rtt.unwrap_or_default());
    i64::try_from(u128::from(rate).saturating_mul(rtt.as_nanos()) / 8_000_000_000).unwrap_or(i64::MAX)
}
