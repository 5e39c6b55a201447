//! Snapshots of the engine for people and monitors, and its rebirth after a crash.

use farlink_wire::{Duration, Instant};

use crate::ahead::waited;
use crate::census::Sums;
use crate::closed::{ASKS, Closed};
use crate::engine::Engine;
use crate::event::{Carried, Event};
use crate::flow::Flow;
use crate::leg::{Agreed, Leg};
use crate::limited_by::{Held, held_by};
use crate::net::Way;
use crate::record::Record;
use crate::relay::Relay;
use crate::relays::Relays;
use crate::sender::Sender;
use crate::side::{Pair, Side};
use crate::status::{Counters, FlowStatus, Load, Memory, Status};
use crate::table::Key;
use crate::treatment::Treatment;
use crate::world::World;

/// How long hosts of lost connections are waited for.
const RESET_WAIT: Duration = Duration::from_secs(30);

impl Engine {
    /// Flows that have given their buffers back since the start.
    #[must_use]
    pub fn freed_flows(&self) -> u64 {
        self.counters.flows_slept + self.counters.flows_closed + self.counters.flows_reset
    }
    /// The largest values of gauges count from now on.
    pub fn reset_peaks(&mut self) {
        self.links.held_mut().reset_peak();
        self.pool.reset_peak();
    }
    /// A snapshot of all counters and gauges.
    #[must_use]
    pub fn status(&self) -> Status {
        let sums = self.census.sums(&self.table);
        let load = sums.load();
        let memory = self.memory_with(&sums);
        Status {
            flows_split: sums.split,
            flows_dormant: sums.dormant,
            flows_draining: sums.draining,
            flows_closed: sums.closed,
            gateway: self.links.hello().into(),
            flows_with_peer: sums.with_peer,
            limited_by: sums.limited_by(|way| self.links.carries_nothing(way)),
            custody_bytes: load.custody_bytes,
            in_flight_bytes: load.in_flight_bytes,
            cwnd_bytes: load.cwnd_bytes,
            half_open: self.syns.len() as u64,
            pool_bytes: self.pool.used_bytes() as u64,
            pool_max_bytes: self.pool.used_max_bytes() as u64,
            pool_limit_bytes: self.pool.limit_bytes() as u64,
            held_max_bytes: self.links.held().bytes().1,
            table_bytes: memory.state_bytes(),
            memory,
            counters: Counters { half_open_evicted: self.syns.evicted(), ..self.counters },
            rules: self.rules.status(),
            draining: self.draining,
            short_of_time: self.short_of_time,
        }
    }

    /// What memory is used for.
    #[must_use]
    pub fn memory(&self) -> Memory {
        self.memory_with(&self.census.sums(&self.table))
    }

    fn memory_with(&self, sums: &Sums) -> Memory {
        Memory {
            blocks_bytes: self.pool.used_bytes() as u64,
            spare_blocks_bytes: self.pool.spare_bytes() as u64,
            flows_bytes: self.table.memory_bytes() as u64,
            relays_bytes: sums.memory.relays,
            boards_bytes: sums.memory.boards,
            lists_bytes: sums.memory.lists,
            half_open_bytes: self.syns.memory_bytes() as u64,
            passed_bytes: self.rules.memory_bytes() as u64,
            timers_bytes: self.timers_bytes() as u64,
            ready_bytes: (self.ready_bytes() + self.census.memory_bytes()) as u64,
        }
    }

    /// At most `limit` flows in table order.
    #[must_use]
    pub fn flows(&self, now: Instant, limit: usize) -> Vec<FlowStatus> {
        self.table.iter().take(limit).map(|(_, f)| self.flow_status(now, f)).collect()
    }

    /// The next flows in table order, from this slot on, of so many slots; and the slot to go on
    /// from.
    #[must_use]
    pub fn flows_from(&self, now: Instant, from: u32, slots: u32) -> (Vec<FlowStatus>, Option<u32>) {
        let end = self.table.slots();
        let until = from.saturating_add(slots).min(end);
        let some = (from..until).filter_map(|slot| self.table.get(self.table.in_slot(slot)?.0));
        (some.map(|f| self.flow_status(now, f)).collect(), (until < end).then_some(until))
    }

    /// The flow between two endpoints, in whichever order they are named and whichever routing
    /// domain it is in.
    #[must_use]
    pub fn flow_between(
        &self,
        now: Instant,
        one: core::net::SocketAddr,
        other: core::net::SocketAddr,
    ) -> Option<FlowStatus> {
        let ends = ((one.ip(), one.port()), (other.ip(), other.port()));
        let found = self.config.interfaces.iter().find_map(|i| {
            let (key, one_is_low) = Key::new(i.domain, ends.0, ends.1);
            self.table.find(&key, one_is_low)
        });
        found.and_then(|(id, _)| self.table.get(id)).map(|f| self.flow_status(now, f))
    }

    /// What all flows together send, by the way that it leaves.
    #[must_use]
    pub fn loads(&self) -> Vec<(Way, Load)> {
        self.census.sums(&self.table).loads().collect()
    }

    fn flow_status(&self, now: Instant, flow: &Flow) -> FlowStatus {
        let name = |way: Way| {
            let iface = self.links.iface(way);
            let interface = self.config.interfaces.iter().find(|i| i.id == iface);
            interface.map_or_else(Default::default, |i| i.name.clone())
        };
        let shared = |leg: &Leg| self.links.pair_share(leg).and_then(|share| share.rate_bps).unwrap_or(0);
        let (from, held) = flow.relays().map_or((Side::A, Held::Nothing), held_by);
        let held = held.over(self.links.carries_nothing(flow.legs.get(from.other()).out));
        let ahead = |leg: &Leg| match flow.is_split() && flow.binds() {
            true => waited(now, &self.config, &self.links, leg, flow.rule).name(),
            false => "",
        };
        FlowStatus {
            ahead_a: ahead(&flow.legs.a),
            ahead_b: ahead(&flow.legs.b),
            rule: self.rules.name(flow.rule),
            pair_a_bps: shared(&flow.legs.a),
            pair_b_bps: shared(&flow.legs.b),
            age_seconds: now.since(flow.began_at).as_secs(),
            out_a: name(flow.legs.a.out),
            out_b: name(flow.legs.b.out),
            limited_by: held.limit(),
            held_by: held.name(),
            direction: if from == Side::A { "ab" } else { "ba" },
            ..FlowStatus::of(flow)
        }
    }

    /// Connections whose custody died with an earlier process: both hosts are made to reset, at
    /// their own exact sequence numbers.
    pub fn reset_recorded(&mut self, now: Instant, records: &[Record], net: &mut dyn World) {
        for r in records {
            let domain = self.config.interfaces.iter().find(|i| i.id == r.iface_a).map_or(0, |i| i.domain);
            let (key, a_is_low) = Key::new(domain, r.a, r.b);
            if self.table.find(&key, a_is_low).is_some() {
                continue;
            }
            let mut flow = lost(now, r);
            self.resolve_ways(&mut flow.legs);
            let id = self.table.insert(domain, flow);
            let ends = self.table.get(id).map(|flow| flow.legs.ends());
            if let Some(ends) = ends {
                self.happened(&ends, Event::Abandoned(Carried::default()), net);
            }
            self.ask_now(now, id, net);
        }
    }
}

/// A connection known only by its record: closed, its hosts still to be reset.
pub(crate) fn lost(now: Instant, r: &Record) -> Flow {
    let closed = Closed {
        until: now + RESET_WAIT,
        next: Pair { a: r.acked_by_b, b: r.acked_by_a },
        reach_bytes: u64::from(r.reach_bytes),
        reset: true,
        reset_by: None,
        held_nothing: false,
        ask: Some((now, ASKS)),
    };
    let legs = Pair { a: Leg::of_record(now, r.a, r.iface_a), b: Leg::of_record(now, r.b, r.iface_b) };
    Flow::new(now, legs, Agreed::default(), Treatment::Closed(closed))
}

impl FlowStatus {
    fn of(flow: &Flow) -> Self {
        let r = flow.relays();
        let us = |x: Option<&Relay>| x.and_then(|x| x.tx.rtt().srtt()).map_or(0, |d| d.as_micros() as u64);
        let name = |l: &Leg| format!("{}", core::net::SocketAddr::new(l.addr, l.port));
        let (ab, ba) = (r.map(|r| &r.a), r.map(|r| &r.b));
        let of = |x: Option<&Relay>, what: fn(&Sender) -> u64| x.map_or(0, |x| what(&x.tx));
        let carried = r.map(Relays::carried).unwrap_or_default();
        Self {
            a: name(&flow.legs.a),
            b: name(&flow.legs.b),
            mode: flow.mode(),
            rule: String::new(),
            custody_ab_bytes: ab.map_or(0, |x| u64::from(x.custody_bytes())),
            custody_ba_bytes: ba.map_or(0, |x| u64::from(x.custody_bytes())),
            srtt_a_us: us(ba),
            srtt_b_us: us(ab),
            cwnd_a_bytes: ba.map_or(0, |x| x.tx.cc().cwnd_bytes()),
            cwnd_b_bytes: ab.map_or(0, |x| x.tx.cc().cwnd_bytes()),
            peer_a: flow.legs.a.peer.is_heard(),
            peer_b: flow.legs.b.peer.is_heard(),
            delivered_ab_bytes: carried.to_server_bytes,
            delivered_ba_bytes: carried.to_client_bytes,
            spent_a: carried.spent_to_client,
            spent_b: carried.spent_to_server,
            in_flight_a_bytes: of(ba, Sender::pipe),
            in_flight_b_bytes: of(ab, Sender::pipe),
            window_a_bytes: of(ba, Sender::window_bytes),
            window_b_bytes: of(ab, Sender::window_bytes),
            lost_a_bytes: of(ba, |tx| tx.board().lost_ever_bytes()),
            lost_b_bytes: of(ab, |tx| tx.board().lost_ever_bytes()),
            controller_a: ba.map_or("", |x| x.tx.cc().said()),
            controller_b: ab.map_or("", |x| x.tx.cc().said()),
            pacing_a_bps: of(ba, |tx| tx.pacing_rate().unwrap_or(0)),
            pacing_b_bps: of(ab, |tx| tx.pacing_rate().unwrap_or(0)),
            ..Self::default()
        }
    }
}
