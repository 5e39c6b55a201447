//! Sums over all flows, kept as they change: who asks for them does not make the packets wait for a
//! walk through the table.
//!
//! An event only notes that a flow has changed. It is counted when many others have changed after
//! it, or when somebody asks: so a busy flow costs one count for many packets, and an answer costs
//! no more than the bound below. Where more flows are busy than may wait, most are counted at each
//! event, while they are at hand. Each event counts one flow at most. Who counted many at once
//! would hold up the packet that has the bad luck.

use std::collections::VecDeque;

use crate::counted::{Counted, FlowMemory, Kind, Work};
use crate::flow::Flow;
use crate::flow_id::FlowId;
use crate::limited_by::{Held, held_by};
use crate::net::Way;
use crate::relays::Relays;
use crate::side::{Pair, Side};
use crate::status::{LimitedBy, Load};
use crate::table::Table;
use crate::treatment::Treatment;

/// So many flows may wait to be counted.
const CHANGED_MAX: usize = 512;
/// When so many wait, one event in so many lets its flow wait in place of the first. The others
/// count their own.
const TAKES_PLACE: u32 = 16;

/// The sums.
#[derive(Clone, Debug, Default)]
pub struct Sums {
    /// Flows that are split.
    pub split: u64,
    /// Flows that are being drained.
    pub draining: u64,
    /// Flows that sleep.
    pub dormant: u64,
    /// Closed flows.
    pub closed: u64,
    /// Flows with a gateway on one of their legs.
    pub with_peer: u64,
    /// Memory.
    pub memory: FlowMemory,
    /// What leaves each way.
    ways: Vec<OfWay>,
}

/// The sums of one way.
#[derive(Clone, Debug)]
struct OfWay {
    way: Way,
    load: Load,
    /// What holds the split flows whose busier direction leaves by it.
    limited_by: LimitedBy,
    /// Those of them that are held by their sources, and have something under way.
    under_way: u64,
}

impl Sums {
    /// What all flows together send.
    #[must_use]
    pub fn load(&self) -> Load {
        let mut sum = Load::default();
        for of in &self.ways {
            change_load(&mut sum, &of.load, u64::wrapping_add);
        }
        sum
    }

    /// What leaves each way.
    pub fn loads(&self) -> impl Iterator<Item = (Way, Load)> + '_ {
        self.ways.iter().map(|of| (of.way, of.load))
    }

    /// What holds the split flows. By a way that is away nothing else does: the count changes as
    /// soon as that does, whatever has been counted.
    #[must_use]
    pub fn limited_by(&self, is_away: impl Fn(Way) -> bool) -> LimitedBy {
        let mut sum = LimitedBy::default();
        for OfWay { way, limited_by: of, under_way, .. } in &self.ways {
            let LimitedBy { link, receiver, loss, gateway, application } = *of;
            if is_away(*way) {
                sum.application += application.saturating_sub(*under_way);
                sum.link += link + receiver + loss + gateway + under_way;
            } else {
                sum.application += application;
                sum.link += link;
                sum.receiver += receiver;
                sum.loss += loss;
                sum.gateway += gateway;
            }
        }
        sum
    }

    fn change(&mut self, counted: &Counted, by: fn(u64, u64) -> u64) {
        let Some(kind) = counted.kind else { return };
        let count = match kind {
            Kind::Split => &mut self.split,
            Kind::Draining => &mut self.draining,
            Kind::Dormant => &mut self.dormant,
            Kind::Closed => &mut self.closed,
        };
        *count = by(*count, 1);
        self.with_peer = by(self.with_peer, u64::from(counted.with_peer));
        let Some(work) = counted.work.as_deref() else { return };
        self.memory.relays = by(self.memory.relays, work.memory.relays);
        self.memory.boards = by(self.memory.boards, work.memory.boards);
        self.memory.lists = by(self.memory.lists, work.memory.lists);
        let (from, held) = work.held;
        for (side, (way, load)) in [(Side::A, &work.legs.a), (Side::B, &work.legs.b)] {
            let place = self.ways.iter().position(|of| of.way == *way).unwrap_or_else(|| {
                self.ways.push(OfWay::new(*way));
                self.ways.len() - 1
            });
            let Some(of) = self.ways.get_mut(place) else { continue };
            change_load(&mut of.load, load, by);
            if side != from {
                of.change_limit(held, by);
            }
        }
    }
}

impl OfWay {
    fn new(way: Way) -> Self {
        Self { way, load: Load::default(), limited_by: LimitedBy::default(), under_way: 0 }
    }

    fn change_limit(&mut self, held: Held, by: fn(u64, u64) -> u64) {
        let limited = &mut self.limited_by;
        let count = match held {
            Held::Nothing | Held::UnderWay => &mut limited.application,
            Held::Bound => &mut limited.gateway,
            Held::Losses => &mut limited.loss,
            Held::ReceiveWindow => &mut limited.receiver,
            Held::CongestionWindow | Held::Pacing | Held::Turn | Held::LinkAway => &mut limited.link,
        };
        *count = by(*count, 1);
        self.under_way = by(self.under_way, u64::from(held == Held::UnderWay));
    }
}

fn change_load(sum: &mut Load, load: &Load, by: fn(u64, u64) -> u64) {
    sum.legs = by(sum.legs, load.legs);
    sum.busy = by(sum.busy, load.busy);
    sum.custody_bytes = by(sum.custody_bytes, load.custody_bytes);
    sum.in_flight_bytes = by(sum.in_flight_bytes, load.in_flight_bytes);
    sum.cwnd_bytes = by(sum.cwnd_bytes, load.cwnd_bytes);
    sum.lost_bytes = by(sum.lost_bytes, load.lost_bytes);
}

/// The sums, and the flows that have changed since they were counted.
#[derive(Debug, Default)]
pub struct Census {
    sums: Sums,
    /// The one that changed first stands first.
    changed: VecDeque<FlowId>,
    /// Events since as many wait as may.
    crowded: u32,
}

impl Census {
    /// Something has happened to a flow.
    pub fn note(&mut self, table: &mut Table, id: FlowId) {
        let Some(flow) = table.get_mut(id) else { return };
        if !flow.is_split() && flow.census.work.is_some() {
            // What it has to give back goes at once: a few hundred small blocks would keep as many
            // pages of the heap.
            return self.count(flow);
        }
        if flow.census.waits {
            return;
        }
        let is_crowded = self.changed.len() >= CHANGED_MAX;
        if is_crowded {
            self.crowded = self.crowded.wrapping_add(1);
            if !self.crowded.is_multiple_of(TAKES_PLACE) {
                return self.count(flow);
            }
        }
        flow.census.waits = true;
        self.changed.push_back(id);
        if is_crowded {
            self.settle_first(table);
        }
    }

    /// A flow has left the table.
    pub fn forget(&mut self, flow: &Flow) {
        self.sums.change(&flow.census, u64::wrapping_sub);
    }

    fn settle_first(&mut self, table: &mut Table) {
        let Some(flow) = self.changed.pop_front().and_then(|id| table.get_mut(id)) else { return };
        flow.census.waits = false;
        self.count(flow);
    }

    fn count(&mut self, flow: &mut Flow) {
        self.sums.change(&flow.census, u64::wrapping_sub);
        let (place, waits) = (flow.census.work.take(), flow.census.waits);
        flow.census = Counted { waits, ..counted_now(flow, place) };
        self.sums.change(&flow.census, u64::wrapping_add);
    }

    /// The sums as they are.
    #[must_use]
    pub fn sums(&self, table: &Table) -> Sums {
        let mut sums = self.sums.clone();
        for flow in self.changed.iter().filter_map(|id| table.get(*id)) {
            sums.change(&flow.census, u64::wrapping_sub);
            sums.change(&counted_now(flow, None), u64::wrapping_add);
        }
        sums
    }

    /// Memory of the list, bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.changed.capacity() * size_of::<FlowId>()
    }
}

/// `place`: where the work of a split flow may stand.
fn counted_now(flow: &Flow, place: Option<Box<Work>>) -> Counted {
    let kind = match flow.treatment() {
        Treatment::Split(r) if r.is_draining() => Kind::Draining,
        Treatment::Split(_) => Kind::Split,
        Treatment::Dormant(_) => Kind::Dormant,
        Treatment::Closed(_) => Kind::Closed,
    };
    let is_heard = flow.legs.a.peer.is_heard() || flow.legs.b.peer.is_heard();
    let work = flow.relays().map(|r| {
        let work = work(flow, r);
        match place {
            Some(mut place) => {
                *place = work;
                place
            }
            None => Box::new(work),
        }
    });
    Counted { kind: Some(kind), with_peer: kind != Kind::Closed && is_heard, work, waits: false }
}

fn work(flow: &Flow, r: &Relays) -> Work {
    let leg = |to: Side| {
        let x = r.get(to.other());
        let busy = x.is_busy();
        let load = Load {
            legs: 1,
            busy: u64::from(busy),
            custody_bytes: u64::from(x.custody_bytes()),
            in_flight_bytes: x.tx.pipe(),
            cwnd_bytes: if busy { x.tx.cc().own_cwnd_bytes() } else { 0 },
            lost_bytes: x.tx.board().lost_ever_bytes(),
        };
        (flow.legs.get(to).out, load)
    };
    let bytes = |a: usize, b: usize| (a + b) as u64;
    let memory = FlowMemory {
        relays: (size_of::<Relays>() + size_of::<Work>()) as u64,
        boards: bytes(r.a.tx.memory_bytes(), r.b.tx.memory_bytes()),
        lists: bytes(r.a.buffer.memory_bytes(), r.b.buffer.memory_bytes()),
    };
    Work { held: held_by(r), legs: Pair { a: leg(Side::A), b: leg(Side::B) }, memory }
}

#[cfg(test)]
mod tests {
    use core::net::IpAddr;

    use farlink_wire::{Instant, SeqNum};

    use super::*;
    use crate::net::IfaceId;
    use crate::record::Record;
    use crate::report::lost;

    /// However many flows have changed, none waits for more than one of them to be counted.
    #[test]
    fn an_event_counts_one_flow_at_most() {
        let at = |n: usize| (IpAddr::from([10, 0, (n >> 8) as u8, n as u8]), 80);
        let record = |n: usize| Record {
            iface_a: IfaceId(0),
            iface_b: IfaceId(1),
            a: at(n),
            b: at(60_000),
            acked_by_a: SeqNum(1),
            acked_by_b: SeqNum(1),
            reach_bytes: 0,
        };
        let (mut table, mut census) = (Table::new(1), Census::default());
        for n in 0..3 * CHANGED_MAX {
            let id = table.insert(0, lost(Instant::ZERO, &record(n)));
            let before = census.sums.closed;
            census.note(&mut table, id);
            assert!(census.sums.closed <= before + 1, "flow {n}");
            assert!(census.changed.len() <= CHANGED_MAX, "flow {n}");
            assert_eq!(census.sums(&table).closed, n as u64 + 1);
        }
        assert_eq!(census.sums.closed, 2 * CHANGED_MAX as u64);
    }
}
