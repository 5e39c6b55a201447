//! The flow table: lookup by 4-tuple and domain, limits, memory.

use core::hash::{BuildHasher, Hash, Hasher};
use core::net::IpAddr;

use farlink_wire::Instant;
use foldhash::fast::FixedState;
use hashbrown::HashTable;
use slab::Slab;

use crate::flow::Flow;
use crate::flow_id::{FlowId, GENERATION_MASK};
use crate::side::Side;

/// A connection's endpoints in a fixed order, and its routing domain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key {
    low: (IpAddr, u16),
    high: (IpAddr, u16),
    domain: u16,
}

impl Key {
    /// The key of a segment from `src` to `dst`, and whether the source is the lower endpoint.
    #[must_use]
    pub fn new(domain: u16, src: (IpAddr, u16), dst: (IpAddr, u16)) -> (Self, bool) {
        if src <= dst {
            (Self { low: src, high: dst, domain }, true)
        } else {
            (Self { low: dst, high: src, domain }, false)
        }
    }
    /// The routing domain.
    #[must_use]
    pub fn domain(&self) -> u16 {
        self.domain
    }
}

/// In few words: it is done for every packet.
impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let ((low, low_port), (high, high_port)) = (self.low, self.high);
        for addr in [low, high] {
            match addr {
                IpAddr::V4(addr) => state.write_u32(addr.to_bits()),
                IpAddr::V6(addr) => state.write_u128(addr.to_bits()),
            }
        }
        state.write_u64(u64::from(low_port) << 32 | u64::from(high_port) << 16 | u64::from(self.domain));
    }
}

/// What an idle connection costs, beside its [`Found`]: ten thousand of them are nothing unusual.
#[derive(Debug)]
struct Entry {
    domain: u16,
    a_is_low: bool,
    generation: u32,
    /// Its place among the sleepers.
    place: Option<Place>,
    flow: Flow,
}

impl Entry {
    fn key(&self) -> Key {
        let [a, b] = [&self.flow.legs.a, &self.flow.legs.b].map(|leg| (leg.addr, leg.port));
        let (low, high) = if self.a_is_low { (a, b) } else { (b, a) };
        Key { low, high, domain: self.domain }
    }
}

/// A place in the list of the sleepers: slots of its neighbours, and since when it is there.
#[derive(Clone, Copy, Debug)]
struct Place {
    older: Option<u32>,
    newer: Option<u32>,
    since: Instant,
}

/// Where a flow is found by the hash of its key. The key itself stands nowhere: the flow has the
/// endpoints. The hash is kept, so that the index can grow without a look at every flow.
#[derive(Clone, Copy, Debug)]
struct Found {
    hash: u32,
    slot: u32,
}

/// The index looks for the highest bits and the lowest.
fn spread(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}

/// All flows.
#[derive(Debug)]
pub struct Table {
    index: HashTable<Found>,
    hasher: FixedState,
    flows: Slab<Entry>,
    generation: u32,
    /// The sleeper that has been silent longest, and the one that spoke last: a list through the
    /// entries, so that a word costs the same however many sleep.
    oldest: Option<u32>,
    newest: Option<u32>,
}

impl Table {
    /// An empty table whose hashing is seeded.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            index: HashTable::new(),
            hasher: FixedState::with_seed(seed),
            flows: Slab::new(),
            generation: 0,
            oldest: None,
            newest: None,
        }
    }
    /// Number of flows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.flows.len()
    }
    /// Which flow, and from which of its hosts.
    #[must_use]
    pub fn find(&self, key: &Key, from_low: bool) -> Option<(FlowId, Side)> {
        let hash = self.hash(key);
        let slot = self.index.find(spread(hash), |f| f.hash == hash && self.is_at(f.slot, key))?.slot;
        let e = self.flows.get(slot as usize)?;
        let from = if e.a_is_low == from_low { Side::A } else { Side::B };
        Some((FlowId { slot, generation: e.generation }, from))
    }
    fn hash(&self, key: &Key) -> u32 {
        (self.hasher.hash_one(key) >> 32) as u32
    }
    fn is_at(&self, slot: u32, key: &Key) -> bool {
        self.flows.get(slot as usize).is_some_and(|e| e.key() == *key)
    }
    /// A flow by its name, if it still lives.
    pub fn get_mut(&mut self, id: FlowId) -> Option<&mut Flow> {
        let e = self.flows.get_mut(id.slot as usize)?;
        (e.generation == id.generation).then_some(&mut e.flow)
    }
    /// A flow by its name, if it still lives.
    #[must_use]
    pub fn get(&self, id: FlowId) -> Option<&Flow> {
        let e = self.flows.get(id.slot as usize)?;
        (e.generation == id.generation).then_some(&e.flow)
    }
    /// Adds a flow between endpoints that have none in this domain.
    pub fn insert(&mut self, domain: u16, flow: Flow) -> FlowId {
        self.generation = (self.generation + 1) & GENERATION_MASK;
        let generation = self.generation;
        let [a, b] = [&flow.legs.a, &flow.legs.b].map(|leg| (leg.addr, leg.port));
        let (key, a_is_low) = Key::new(domain, a, b);
        debug_assert!(self.find(&key, a_is_low).is_none(), "two flows between the same ports");
        let hash = self.hash(&key);
        let slot = self.flows.insert(Entry { domain, a_is_low, generation, place: None, flow });
        let slot = u32::try_from(slot).unwrap_or(u32::MAX);
        self.index.insert_unique(spread(hash), Found { hash, slot }, |f| spread(f.hash));
        FlowId { slot, generation }
    }
    /// Takes a flow out.
    pub fn remove(&mut self, id: FlowId) -> Option<Flow> {
        self.get(id)?;
        self.wake(id);
        let e = self.flows.try_remove(id.slot as usize)?;
        let hash = self.hash(&e.key());
        if let Ok(found) = self.index.find_entry(spread(hash), |f| f.slot == id.slot) {
            found.remove();
        }
        if self.flows.is_empty() && self.index.capacity() > 1024 {
            self.index.shrink_to(0, |f| spread(f.hash));
            self.flows.shrink_to_fit();
        }
        Some(e.flow)
    }
    /// It sleeps, and has been silent from now on: the last of the sleepers.
    pub fn sleep(&mut self, now: Instant, id: FlowId) {
        self.wake(id);
        let older = self.newest;
        let Some(e) = self.flows.get_mut(id.slot as usize).filter(|e| e.generation == id.generation) else {
            return;
        };
        e.place = Some(Place { older, newer: None, since: now });
        match older {
            Some(slot) => self.link(slot, |p| p.newer = Some(id.slot)),
            None => self.oldest = Some(id.slot),
        }
        self.newest = Some(id.slot);
    }
    /// It sleeps no longer.
    pub fn wake(&mut self, id: FlowId) {
        let e = self.flows.get_mut(id.slot as usize).filter(|e| e.generation == id.generation);
        let Some(place) = e.and_then(|e| e.place.take()) else { return };
        match place.older {
            Some(slot) => self.link(slot, |p| p.newer = place.newer),
            None => self.oldest = place.newer,
        }
        match place.newer {
            Some(slot) => self.link(slot, |p| p.older = place.older),
            None => self.newest = place.older,
        }
    }
    fn link(&mut self, slot: u32, change: impl FnOnce(&mut Place)) {
        if let Some(place) = self.flows.get_mut(slot as usize).and_then(|e| e.place.as_mut()) {
            change(place);
        }
    }
    /// Whether it stands among the sleepers.
    #[must_use]
    pub fn is_asleep(&self, id: FlowId) -> bool {
        self.flows.get(id.slot as usize).is_some_and(|e| e.generation == id.generation && e.place.is_some())
    }
    /// The sleeper that has been silent longest, and since when.
    #[must_use]
    pub fn oldest_sleeper(&self) -> Option<(FlowId, Instant)> {
        let slot = self.oldest?;
        let e = self.flows.get(slot as usize)?;
        Some((FlowId { slot, generation: e.generation }, e.place?.since))
    }
    /// All flows in slot order.
    pub fn iter(&self) -> impl Iterator<Item = (FlowId, &Flow)> {
        self.flows.iter().map(|(slot, e)| {
            (FlowId { slot: u32::try_from(slot).unwrap_or(u32::MAX), generation: e.generation }, &e.flow)
        })
    }
    /// No flow's slot is as high as this.
    #[must_use]
    pub fn slots(&self) -> u32 {
        u32::try_from(self.flows.capacity()).unwrap_or(u32::MAX)
    }
    /// The flow in a slot, and whether it stands among the sleepers.
    #[must_use]
    pub fn in_slot(&self, slot: u32) -> Option<(FlowId, bool)> {
        let e = self.flows.get(slot as usize)?;
        Some((FlowId { slot, generation: e.generation }, e.place.is_some()))
    }
    /// Names of all flows in slot order.
    #[must_use]
    pub fn ids(&self) -> Vec<FlowId> {
        self.iter().map(|(id, _)| id).collect()
    }
    /// Memory of the index and the records, bytes; what split flows have beside their records is
    /// not counted.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.index.capacity() * (size_of::<Found>() + 1) + self.flows.capacity() * (size_of::<Entry>() + 8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Buckets of the index for each flow, when it has just grown.
    const BUCKETS_MAX: usize = 3;

    #[test]
    fn an_idle_connection_takes_little() {
        let entry = size_of::<Option<Entry>>();
        let bytes = entry + BUCKETS_MAX * (size_of::<Found>() + 1);
        assert!(bytes <= 540, "{bytes} bytes, {entry} of them in the table");
    }
}
