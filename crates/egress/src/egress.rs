//! The queue itself: who may send, and when.

use farlink_wire::WireSize;
use farlink_wire::time::{Duration, Instant};

use crate::classes::{self, Credits, Waiting};
use crate::config::{Class, Config, Grant, MAX_BURST_BYTES, Stats};
use crate::flows::{Flows, queued_bytes};
use crate::shaper::Shaper;

/// What a flow of the class for acknowledgements may send in its turn: one of them, with SACK
/// blocks.
const CONTROL_QUANTUM_BYTES: u32 = 100;

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
    flows: Flows<P>,
    waiting: Waiting,
    /// Since when, without a break, something has been waiting that the link could carry.
    waiting_since: Option<Instant>,
    /// The flow whose grant has not been answered.
    granted: Option<usize>,
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
            shaper: Shaper::new(config.rate_bps, config.burst_bytes),
            credits: Credits::default(),
            flows: Flows::default(),
            waiting: Waiting::default(),
            waiting_since: None,
            granted: None,
            up: true,
            stats: Stats::default(),
        }
    }

    /// A packet waits for the link.
    ///
    /// When the queue is full the oldest packets of the longest flow are dropped and handed back;
    /// the new one may be among them.
    pub fn enqueue(
        &mut self,
        now: Instant,
        flow: u64,
        class: Class,
        size: impl Into<WireSize>,
        packet: P,
    ) -> Vec<P> {
        let slot = self.entry(class, flow);
        let size = size.into();
        self.change(now, slot, |flows| flows.push(slot, size, packet));
        self.stats.backlog_bytes += queued_bytes(size);
        self.stats.backlog_packets += 1;
        let mut victims = Vec::new();
        while self.stats.backlog_bytes > self.config.queue_limit_bytes
            || self.stats.backlog_packets > self.config.queue_limit_packets
        {
            let Some(dropped) = self.drop_from_longest(now) else { break };
            victims.push(dropped);
        }
        self.stats.backlog_max_bytes = self.stats.backlog_max_bytes.max(self.stats.backlog_bytes);
        victims
    }

    /// The flow has something to send (idempotent). A flow may be ready in several classes at once.
    pub fn set_ready(&mut self, now: Instant, flow: u64, class: Class) {
        let slot = self.entry(class, flow);
        self.set_ready_slot(now, slot, true);
    }

    /// The flow has nothing to send any more, in any class. Its owned packets stay.
    pub fn clear(&mut self, flow: u64) {
        for class in classes::ALL {
            if let Some(slot) = self.flows.find(class, flow) {
                // The time only matters for what begins to wait.
                self.set_ready_slot(Instant::ZERO, slot, false);
            }
        }
    }

    /// Every flow that has something to send has its turn elsewhere; returned as they were named,
    /// in the order of the queue's own books. One that comes back at once keeps its place and its
    /// debt.
    pub fn take_ready(&mut self, now: Instant) -> Vec<u64> {
        self.granted = None;
        let mut ids = Vec::new();
        for slot in self.flows.slots() {
            if let Some(id) = self.flows.get_mut(slot).filter(|f| f.ready).map(|f| f.id) {
                ids.push(id);
                self.set_ready_slot(now, slot, false);
            }
        }
        ids
    }

    /// All packets that wait, those of one flow in their order.
    pub fn take_packets(&mut self, now: Instant) -> Vec<P> {
        let mut packets = Vec::new();
        for slot in self.flows.slots() {
            while let Some((_, packet)) = self.take_packet(now, slot) {
                packets.push(packet);
            }
        }
        self.update_waiting_since(now);
        packets
    }

    /// Who may send now; `None`: nobody, or not yet (see [`Self::poll_timeout`]). A [`Grant::Flow`]
    /// must be answered by [`Self::used`] before the next call, else it counts as not used.
    pub fn next_grant(&mut self, now: Instant) -> Option<Grant<P>> {
        if let Some(slot) = self.granted.take() {
            self.set_ready_slot(now, slot, false);
        }
        if !self.up || self.shaper.free_at().is_none_or(|at| at > now) {
            return None;
        }
        let class = self.credits.choose(&self.waiting)?;
        let lead_max = self.lead_max(class);
        let slot = self.flows.next(class, self.quantum(class), lead_max)?;
        if let Some((size, packet)) = self.take_packet(now, slot) {
            self.spend(now, slot, class, size);
            self.update_waiting_since(now);
            return Some(Grant::Packet(packet));
        }
        let flow = self.flows.get_mut(slot)?;
        let deficit = u32::try_from(flow.deficit).unwrap_or(0);
        let id = flow.id;
        // Late by some bytes: these may go at once, but no burst may grow from it.
        let overdue = u32::try_from(self.shaper.overdue_bytes(now, self.waiting_since)).unwrap_or(u32::MAX);
        let burst = if class >= Class::Background { 0 } else { self.burst_bytes.saturating_sub(overdue) };
        self.granted = Some(slot);
        Some(Grant::Flow { id, class, bytes: deficit.min(burst).max(self.config.mtu_bytes) })
    }

    /// What a granted flow really sent: `wire_bytes` in `packets` packets, IP headers included.
    /// `still_ready`: it has more. With zero bytes it leaves the round in any case, and must be
    /// made ready again when it can send.
    pub fn used(&mut self, now: Instant, flow: u64, wire_bytes: u32, packets: u32, still_ready: bool) {
        let granted = self.granted.take();
        let size = WireSize { bytes: wire_bytes, packets };
        let Some((slot, class)) = granted
            .and_then(|slot| self.flows.get_mut(slot).filter(|f| f.id == flow).map(|f| (slot, f.class)))
        else {
            // Not the one that was asked: the link carried the bytes all the same.
            self.charge(now, size);
            return;
        };
        if wire_bytes > 0 {
            self.spend(now, slot, class, size);
        }
        self.set_ready_slot(now, slot, still_ready && wire_bytes > 0);
    }

    /// What a flow may send in its turn, bytes. Acknowledgements take turns one by one: a turn of a
    /// whole packet's bytes would be twenty of one flow, and on a slow link the others would wait
    /// for seconds.
    fn quantum(&self, class: Class) -> i64 {
        let bytes = if class == Class::Control { CONTROL_QUANTUM_BYTES } else { u32::MAX };
        i64::from(self.quantum_bytes.min(bytes))
    }

    /// Packets went past the queue over the same link.
    pub fn charge(&mut self, now: Instant, size: impl Into<WireSize>) {
        let size = size.into();
        self.shaper.spend(now, self.waiting_since, self.cost(size));
        self.stats.sent_bytes += u64::from(size.bytes);
    }

    /// When [`Self::next_grant`] can next succeed, as far as is known now; may lie in the past.
    /// `None`: nothing waits, or the link is down.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.up && self.waiting.any() { self.shaper.free_at() } else { None }
    }

    /// The link has another rate from now on; `None`: unshaped.
    pub fn set_rate(&mut self, now: Instant, rate_bps: Option<u64>) {
        let had_none = self.config.rate_bps.is_none_or(|rate| rate == 0);
        self.config.rate_bps = rate_bps;
        (self.burst_bytes, self.quantum_bytes) = sizes(&self.config);
        self.trip_bytes = trip_bytes(&self.config);
        self.shaper.set_rate(now, rate_bps, self.config.burst_bytes);
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
        !self.waiting.any()
    }

    /// Since when, without a break, something has been waiting that the link could carry; `None`:
    /// nothing waits.
    #[must_use]
    pub fn busy_since(&self) -> Option<Instant> {
        self.waiting_since
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

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats { busy: self.shaper.busy(), flows: self.flows.len(), ..self.stats }
    }

    fn entry(&mut self, class: Class, flow: u64) -> usize {
        self.flows.entry(class, flow, self.quantum(class), self.waiting.total())
    }

    /// By how many bytes the foremost of the flows of a class may lead. Leads go from nothing to
    /// this, so of n flows of one size those behind have n times half of it left when the first
    /// ends: what the link carries in a round trip.
    fn lead_max(&mut self, class: Class) -> i64 {
        let flows = i64::try_from(*self.waiting.of(class)).unwrap_or(i64::MAX).max(1);
        self.trip_bytes.saturating_mul(2) / flows
    }

    fn spend(&mut self, now: Instant, slot: usize, class: Class, size: WireSize) {
        let cost = self.cost(size);
        self.shaper.spend(now, self.waiting_since, cost);
        self.credits.spend(class, cost, &self.waiting);
        if let Some(flow) = self.flows.get_mut(slot) {
            flow.deficit = flow.deficit.saturating_sub(i64::try_from(cost).unwrap_or(i64::MAX));
        }
        self.stats.sent_bytes += u64::from(size.bytes);
        self.stats.sent_grants += 1;
    }

    fn cost(&self, size: WireSize) -> u64 {
        u64::from(size.bytes) + u64::from(size.packets) * u64::from(self.config.overhead_bytes)
    }

    fn take_packet(&mut self, now: Instant, slot: usize) -> Option<(WireSize, P)> {
        let mut taken = None;
        // The wait goes on until the packet is charged: see next_grant.
        let since = self.waiting_since;
        self.change(now, slot, |flows| taken = flows.pop(slot));
        self.waiting_since = since;
        let (size, _) = taken.as_ref()?;
        self.stats.backlog_bytes = self.stats.backlog_bytes.saturating_sub(queued_bytes(*size));
        self.stats.backlog_packets = self.stats.backlog_packets.saturating_sub(1);
        taken
    }

    fn drop_from_longest(&mut self, now: Instant) -> Option<P> {
        let slot = self.flows.longest()?;
        let (size, packet) = self.take_packet(now, slot)?;
        self.update_waiting_since(now);
        self.stats.dropped_packets += 1;
        self.stats.dropped_bytes += u64::from(size.bytes);
        Some(packet)
    }

    fn set_ready_slot(&mut self, now: Instant, slot: usize, ready: bool) {
        self.change(now, slot, |flows| {
            if let Some(flow) = flows.get_mut(slot) {
                flow.ready = ready;
            }
        });
    }

    /// Changes a flow and keeps the counts of what waits.
    fn change(&mut self, now: Instant, slot: usize, change: impl FnOnce(&mut Flows<P>)) {
        let Some((class, before)) = self.flows.get_mut(slot).map(|f| (f.class, f.waits())) else { return };
        change(&mut self.flows);
        let after = self.flows.get_mut(slot).is_some_and(|f| f.waits());
        let count = self.waiting.of(class);
        match (before, after) {
            (false, true) => *count += 1,
            (true, false) => *count = count.saturating_sub(1),
            _ => return,
        }
        self.update_waiting_since(now);
    }

    fn update_waiting_since(&mut self, now: Instant) {
        if !self.waiting.any() {
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
    let burst = match (config.burst_bytes, config.rate_bps) {
        (Some(burst), _) => burst,
        (None, None) => MAX_BURST_BYTES,
        (None, Some(rate)) => u32::try_from(rate / 8_000).unwrap_or(u32::MAX),
    };
    let burst = burst.clamp(config.mtu_bytes, MAX_BURST_BYTES);
    (burst, config.quantum_bytes.unwrap_or(burst).max(config.mtu_bytes))
}

/// What the link carries in a round trip, in bytes; zero where that is not known.
fn trip_bytes(config: &Config) -> i64 {
    let (rate, rtt) = (config.rate_bps.unwrap_or(0), config.rtt.unwrap_or_default());
    i64::try_from(u128::from(rate).saturating_mul(rtt.as_nanos()) / 8_000_000_000).unwrap_or(i64::MAX)
}
