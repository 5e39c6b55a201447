//! Which flow of a class is next: deficit round robin with a list for new flows (as fq_codel, RFC 8290 4), and whose packet goes
//! when the queue is full.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use slab::Slab;

use crate::config::Class;

/// Flows without anything to send that may stay listed, besides as many as there are with.
const EMPTY_MAX: usize = 1024;
/// After so many grants in a row to new flows an old one gets its turn, so that a flood of new flows starves nobody.
const NEW_STREAK_MAX: u32 = 8;

/// What a packet counts for in the queue: never less than this, so that the limit on bytes also limits the number of packets.
pub(crate) fn queued_bytes(wire_bytes: u32) -> usize {
    wire_bytes.max(64) as usize
}

/// All flows of one queue, in all classes.
#[derive(Debug)]
pub(crate) struct Flows<P> {
    slots: Slab<Flow<P>>,
    by_id: BTreeMap<(Class, u64), usize>,
    /// Flows with owned packets by the bytes they hold.
    by_backlog: BTreeSet<(usize, usize)>,
    rounds: [Round; 5],
}

/// The lists of one class.
#[derive(Debug, Default)]
struct Round {
    new: VecDeque<usize>,
    old: VecDeque<usize>,
    new_streak: u32,
}

/// One flow in one class. It stays listed until the round comes by and finds nothing to send: a flow that empties and fills
/// again keeps its place and its debt.
#[derive(Debug)]
pub(crate) struct Flow<P> {
    pub(crate) id: u64,
    pub(crate) class: Class,
    pub(crate) deficit: i64,
    pub(crate) ready: bool,
    packets: VecDeque<(u32, P)>,
    backlog_bytes: usize,
}

impl<P> Flow<P> {
    pub(crate) fn waits(&self) -> bool {
        self.ready || !self.packets.is_empty()
    }
}

impl<P> Default for Flows<P> {
    fn default() -> Self {
        Self {
            slots: Slab::new(),
            by_id: BTreeMap::new(),
            by_backlog: BTreeSet::new(),
            rounds: core::array::from_fn(|_| Round::default()),
        }
    }
}

impl<P> Flows<P> {
    /// The flow's slot; a new flow begins with one quantum in the list of new flows. `waiting`: flows that have something to send.
    pub(crate) fn entry(&mut self, class: Class, id: u64, quantum: i64, waiting: usize) -> usize {
        if let Some(slot) = self.by_id.get(&(class, id)) {
            return *slot;
        }
        if self.slots.len() > waiting.saturating_mul(2).saturating_add(EMPTY_MAX) {
            self.sweep();
        }
        let flow =
            Flow { id, class, deficit: quantum, ready: false, packets: VecDeque::new(), backlog_bytes: 0 };
        let slot = self.slots.insert(flow);
        self.by_id.insert((class, id), slot);
        self.round(class).new.push_back(slot);
        slot
    }

    pub(crate) fn find(&self, class: Class, id: u64) -> Option<usize> {
        self.by_id.get(&(class, id)).copied()
    }

    pub(crate) fn get_mut(&mut self, slot: usize) -> Option<&mut Flow<P>> {
        self.slots.get_mut(slot)
    }

    /// The next flow of this class that has something to send and may. It stays where it is; what it sends comes off its deficit.
    /// Each step drops a flow from the lists or hands out a quantum, so the work is bounded by what is sent.
    pub(crate) fn next(&mut self, class: Class, quantum: i64) -> Option<usize> {
        loop {
            let round = self.round(class);
            let from_new =
                !round.new.is_empty() && (round.new_streak < NEW_STREAK_MAX || round.old.is_empty());
            let list = if from_new { &mut round.new } else { &mut round.old };
            let slot = *list.front()?;
            let Some(flow) = self.slots.get_mut(slot) else {
                self.unlist(class, from_new);
                continue;
            };
            if !flow.waits() {
                self.unlist(class, from_new);
                // A flow that leaves the new list empties through the old one, else it could be new again at once.
                let round = self.round(class);
                if from_new && !round.old.is_empty() {
                    round.old.push_back(slot);
                } else {
                    self.remove(slot);
                }
            } else if flow.deficit <= 0 {
                flow.deficit = flow.deficit.saturating_add(quantum);
                self.unlist(class, from_new);
                self.round(class).old.push_back(slot);
            } else {
                let round = self.round(class);
                round.new_streak = if from_new { round.new_streak.saturating_add(1) } else { 0 };
                return Some(slot);
            }
        }
    }

    /// Puts a packet at the end of the flow's queue.
    pub(crate) fn push(&mut self, slot: usize, wire_bytes: u32, packet: P) {
        let Some(flow) = self.slots.get_mut(slot) else { return };
        let before = flow.backlog_bytes;
        flow.backlog_bytes += queued_bytes(wire_bytes);
        flow.packets.push_back((wire_bytes, packet));
        let after = flow.backlog_bytes;
        self.reorder(slot, before, after);
    }

    /// Takes the flow's oldest packet.
    pub(crate) fn pop(&mut self, slot: usize) -> Option<(u32, P)> {
        let flow = self.slots.get_mut(slot)?;
        let (wire_bytes, packet) = flow.packets.pop_front()?;
        let before = flow.backlog_bytes;
        flow.backlog_bytes = before.saturating_sub(queued_bytes(wire_bytes));
        let after = flow.backlog_bytes;
        self.reorder(slot, before, after);
        Some((wire_bytes, packet))
    }

    /// The flow that holds most bytes.
    pub(crate) fn longest(&self) -> Option<usize> {
        self.by_backlog.last().map(|(_, slot)| *slot)
    }

    /// Flows that are listed.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Unlists all flows that have nothing to send. Rare: only where flows empty much faster than the round comes by (a flood whose
    /// packets are dropped), and then once per as many new flows.
    fn sweep(&mut self) {
        let Self { slots, by_id, rounds, .. } = self;
        let mut keep = |slot: &usize| match slots.get(*slot) {
            Some(flow) if flow.waits() => true,
            Some(flow) => {
                by_id.remove(&(flow.class, flow.id));
                slots.try_remove(*slot);
                false
            }
            None => false,
        };
        for round in rounds {
            round.new.retain(&mut keep);
            round.old.retain(&mut keep);
        }
    }

    fn reorder(&mut self, slot: usize, before: usize, after: usize) {
        self.by_backlog.remove(&(before, slot));
        if after > 0 {
            self.by_backlog.insert((after, slot));
        }
    }

    fn remove(&mut self, slot: usize) {
        if let Some(flow) = self.slots.try_remove(slot) {
            self.by_id.remove(&(flow.class, flow.id));
        }
    }

    fn unlist(&mut self, class: Class, from_new: bool) {
        let round = self.round(class);
        if from_new {
            round.new.pop_front()
        } else {
            round.old.pop_front()
        };
    }

    fn round(&mut self, class: Class) -> &mut Round {
        let [control, interactive, bulk, background, spare] = &mut self.rounds;
        match class {
            Class::Control => control,
            Class::Interactive => interactive,
            Class::Bulk => bulk,
            Class::Background => background,
            Class::Spare => spare,
        }
    }
}
