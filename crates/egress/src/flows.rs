//! Which flow of a group is next in a class: deficit round robin with a list for new flows (as
//! fq_codel, RFC 8290 4), and whose packet goes when the queue is full.
//!
//! A flow that has some of its quantum left when its next packet comes goes before those that have
//! had theirs. So one that sends less than a quantum in a round never waits for the round, however
//! many others there are.
//!
//! A strictly fair queue brings flows of one size to their end at the same moment, and the link
//! then idles for a round trip until whoever waited for them has asked for more. So each flow has a
//! *place*, and gets more than its quanta until it leads by what its place allows: equal flows end
//! one after the other, and the last of them keeps the link busy until the first is back.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use farlink_wire::WireSize;
use farlink_wire::time::Instant;
use slab::Slab;

use crate::classes::{ALL, PerClass};
use crate::codel::{Aqm, Codel, Managed, Verdict};
use crate::config::Class;

/// After so many grants in a row to new flows an old one gets its turn, so that a flood of new
/// flows starves nobody.
const NEW_STREAK_MAX: u32 = 8;
/// While it may, the flow of the best place gets so many quanta more than its own in each round:
/// then six flows of one size end within the last quarter of the time that they need, and none
/// later than it would without.
const LEAD_QUANTA: i64 = 2;
/// The golden section of 2^32: any number of its successive multiples, modulo 2^32, are spread
/// evenly (Weyl's sequence).
const GOLDEN_SECTION: u32 = 0x9e37_79b9;

/// What a packet counts for in the queue: never less than this, so that the limit on bytes also
/// limits the number of packets.
pub(crate) fn queued_bytes(size: WireSize) -> usize {
    size.bytes.max(64) as usize
}

/// All flows of one group, in all classes.
#[derive(Debug)]
pub(crate) struct Flows<P> {
    slots: Slab<Flow<P>>,
    by_id: BTreeMap<(Class, u64), usize>,
    /// Flows with owned packets: whether they only get what others leave, the bytes they hold, and
    /// where they are.
    by_backlog: BTreeSet<(bool, usize, usize)>,
    backlog_bytes: usize,
    rounds: PerClass<Round>,
    /// The place of the newest flow.
    place: u32,
}

/// The lists of one class.
#[derive(Debug, Default)]
struct Round {
    new: VecDeque<usize>,
    old: VecDeque<usize>,
    new_streak: u32,
}

/// A packet that waits.
#[derive(Debug)]
pub(crate) struct Queued<P> {
    pub(crate) size: WireSize,
    /// Since when it waits, and how it is managed; `None`: it may wait for ever.
    pub(crate) managed: Option<(Instant, Managed)>,
    /// It is part of what its flow was granted. It is no victim of a full queue: without it all of
    /// that would be in vain.
    pub(crate) is_granted: bool,
    pub(crate) packet: P,
}

/// What becomes of the packet that is next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Send,
    Mark,
    Drop,
}

/// One flow in one class. It stays listed until the round comes by and finds nothing to send: a
/// flow that empties and fills again keeps its place and its debt.
#[derive(Debug)]
pub(crate) struct Flow<P> {
    pub(crate) id: u64,
    pub(crate) class: Class,
    pub(crate) deficit: i64,
    pub(crate) ready: bool,
    /// Where among its equals it ends: 0 last, 2^32 first.
    place: u32,
    /// Bytes that it has been given beyond its quanta.
    lead: i64,
    /// It is in the list of new flows, and in that of old ones. Where it is in both, it waits in
    /// the first, and the other is where its round ends.
    is_new: bool,
    is_old: bool,
    packets: VecDeque<Queued<P>>,
    backlog_bytes: usize,
    codel: Codel,
}

impl<P> Flow<P> {
    fn new(id: u64, class: Class, quantum: i64, place: u32) -> Self {
        Self {
            id,
            class,
            deficit: quantum,
            ready: false,
            place,
            lead: 0,
            is_new: true,
            is_old: false,
            packets: VecDeque::new(),
            backlog_bytes: 0,
            codel: Codel::default(),
        }
    }

    pub(crate) fn waits(&self) -> bool {
        self.ready || !self.packets.is_empty()
    }

    /// Its newest packet, if that has this size.
    pub(crate) fn newest_mut(&mut self, size: WireSize) -> Option<&mut P> {
        self.packets.back_mut().filter(|queued| queued.size == size).map(|queued| &mut queued.packet)
    }

    /// The size of its oldest packet.
    pub(crate) fn front_size(&self) -> Option<WireSize> {
        self.packets.front().map(|queued| queued.size)
    }

    /// What becomes of its oldest packet. `aqm`: what is too long, and for TCP.
    pub(crate) fn judge(&mut self, now: Instant, (aqm, of_tcp): &(Aqm, Aqm)) -> Fate {
        let Some((since, managed)) = self.packets.front().and_then(|queued| queued.managed) else {
            return Fate::Send;
        };
        let is_last = self.packets.len() == 1 && !self.ready;
        let aqm = if managed.is_tcp { of_tcp } else { aqm };
        match self.codel.judge(now, aqm, now.since(since), is_last) {
            Verdict::Send => Fate::Send,
            Verdict::Tell if managed.can_be_marked => Fate::Mark,
            Verdict::Tell | Verdict::Drop => Fate::Drop,
        }
    }

    /// A round has come by.
    fn replenish(&mut self, quantum: i64, lead_max: i64) {
        let left = self.of_place(lead_max).saturating_sub(self.lead).max(0);
        let ahead = self.of_place(quantum.saturating_mul(LEAD_QUANTA)).min(left);
        self.lead = self.lead.saturating_add(ahead);
        self.deficit = self.deficit.saturating_add(quantum).saturating_add(ahead);
    }

    /// The part of these bytes that its place allows it.
    fn of_place(&self, bytes: i64) -> i64 {
        i64::try_from((i128::from(bytes) * i128::from(self.place)) >> 32).unwrap_or(0)
    }
}

impl<P> Default for Flows<P> {
    fn default() -> Self {
        Self {
            slots: Slab::new(),
            by_id: BTreeMap::new(),
            by_backlog: BTreeSet::new(),
            backlog_bytes: 0,
            rounds: PerClass::default(),
            place: 0,
        }
    }
}

impl<P> Flows<P> {
    /// The flow's slot; a new flow begins with one quantum in the list of new flows. Where more
    /// than `listed_max` are listed, those that have nothing to send go.
    pub(crate) fn entry(&mut self, class: Class, id: u64, quantum: i64, listed_max: usize) -> usize {
        if let Some(slot) = self.by_id.get(&(class, id)) {
            return *slot;
        }
        if self.slots.len() > listed_max {
            self.sweep();
        }
        self.place = self.place.wrapping_add(GOLDEN_SECTION);
        let slot = self.slots.insert(Flow::new(id, class, quantum, self.place));
        self.by_id.insert((class, id), slot);
        self.rounds.of_mut(class).new.push_back(slot);
        slot
    }

    /// A flow that has just begun is served when the round comes by, as those that have had their
    /// turn.
    pub(crate) fn wait_in_turn(&mut self, slot: usize) {
        let Some(flow) = self.slots.get_mut(slot) else { return };
        let round = self.rounds.of_mut(flow.class);
        if flow.is_new && !flow.is_old && round.new.back() == Some(&slot) {
            (flow.is_new, flow.is_old, flow.deficit) = (false, true, 0);
            round.new.pop_back();
            round.old.push_back(slot);
        }
    }

    /// Where this flow is, if it is listed.
    pub(crate) fn find(&self, class: Class, id: u64) -> Option<usize> {
        self.by_id.get(&(class, id)).copied()
    }

    pub(crate) fn get(&self, slot: usize) -> Option<&Flow<P>> {
        self.slots.get(slot)
    }

    pub(crate) fn get_mut(&mut self, slot: usize) -> Option<&mut Flow<P>> {
        self.slots.get_mut(slot)
    }

    /// The next flow of this class that has something to send and may. It stays where it is; what
    /// it sends comes off its deficit. Each step drops a flow from the lists or hands out a
    /// quantum, so the work is bounded by what is sent. `lead_max`: the bytes that the flow of the
    /// best place may lead by.
    pub(crate) fn next(&mut self, class: Class, quantum: i64, lead_max: i64) -> Option<usize> {
        loop {
            let round = self.rounds.of_mut(class);
            let from_new =
                !round.new.is_empty() && (round.new_streak < NEW_STREAK_MAX || round.old.is_empty());
            let list = if from_new { &mut round.new } else { &mut round.old };
            let slot = *list.front()?;
            let Some(flow) = self.slots.get_mut(slot) else {
                self.unlist(class, from_new);
                continue;
            };
            if !from_new && flow.is_new {
                // It waits there.
                flow.is_old = false;
                self.unlist(class, from_new);
            } else if !flow.waits() {
                // A flow that leaves the new list empties through the old one, else it could be new
                // again at once.
                let (is_old, is_last) = (flow.is_old, round.old.is_empty());
                flow.is_new = false;
                flow.is_old |= from_new;
                self.unlist(class, from_new);
                if !from_new || (!is_old && is_last) {
                    self.remove(slot);
                } else if !is_old {
                    self.rounds.of_mut(class).old.push_back(slot);
                }
            } else if flow.deficit <= 0 {
                flow.replenish(quantum, lead_max);
                let goes_back = !from_new || !flow.is_old;
                (flow.is_new, flow.is_old) = (false, true);
                self.unlist(class, from_new);
                if goes_back {
                    self.rounds.of_mut(class).old.push_back(slot);
                }
            } else {
                let round = self.rounds.of_mut(class);
                round.new_streak = if from_new { round.new_streak.saturating_add(1) } else { 0 };
                return Some(slot);
            }
        }
    }

    /// Puts a packet at the end of the flow's queue.
    pub(crate) fn push(&mut self, slot: usize, queued: Queued<P>) {
        let Some(flow) = self.slots.get_mut(slot) else { return };
        if !flow.waits() && !flow.is_new && flow.deficit > 0 {
            flow.is_new = true;
            self.rounds.of_mut(flow.class).new.push_back(slot);
        }
        let before = flow.backlog_bytes;
        if !queued.is_granted {
            flow.backlog_bytes += queued_bytes(queued.size);
        }
        flow.packets.push_back(queued);
        let after = flow.backlog_bytes;
        self.reorder(slot, before, after);
    }

    /// Another flow goes on in this one, behind what waits here.
    pub(crate) fn join(&mut self, slot: usize, other: Flow<P>) {
        for queued in other.packets {
            self.push(slot, queued);
        }
        if let Some(flow) = self.slots.get_mut(slot) {
            flow.ready |= other.ready;
        }
    }

    /// Takes the flow's oldest packet.
    pub(crate) fn pop(&mut self, slot: usize) -> Option<Queued<P>> {
        let flow = self.slots.get_mut(slot)?;
        let queued = flow.packets.pop_front()?;
        let before = flow.backlog_bytes;
        if !queued.is_granted {
            flow.backlog_bytes = before.saturating_sub(queued_bytes(queued.size));
        }
        let after = flow.backlog_bytes;
        self.reorder(slot, before, after);
        Some(queued)
    }

    /// The flow that a full queue takes from: the one that holds most bytes of those that only get
    /// what others leave, or else of all. With it, whether it is one of the former.
    pub(crate) fn longest(&self) -> Option<(bool, usize)> {
        self.by_backlog.last().map(|(is_low, _, slot)| (*is_low, *slot))
    }

    /// Bytes of all packets that wait.
    pub(crate) fn backlog_bytes(&self) -> usize {
        self.backlog_bytes
    }

    /// All flows that have something to send.
    pub(crate) fn into_waiting(self) -> impl Iterator<Item = Flow<P>> {
        self.slots.into_iter().map(|(_, flow)| flow).filter(Flow::waits)
    }

    /// Where all flows are.
    pub(crate) fn slots(&self) -> Vec<usize> {
        self.slots.iter().map(|(slot, _)| slot).collect()
    }

    /// Flows that are listed.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Unlists all flows that have nothing to send. Rare: only where flows empty much faster than
    /// the round comes by (a flood whose packets are dropped), and then once per as many new flows.
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
        for class in ALL {
            let round = rounds.of_mut(class);
            round.new.retain(&mut keep);
            round.old.retain(&mut keep);
        }
    }

    fn reorder(&mut self, slot: usize, before: usize, after: usize) {
        self.backlog_bytes = self.backlog_bytes.saturating_sub(before).saturating_add(after);
        let is_low = self.slots.get(slot).is_some_and(|flow| flow.class >= Class::Background);
        self.by_backlog.remove(&(is_low, before, slot));
        if after > 0 {
            self.by_backlog.insert((is_low, after, slot));
        }
    }

    fn remove(&mut self, slot: usize) {
        if let Some(flow) = self.slots.try_remove(slot) {
            self.by_id.remove(&(flow.class, flow.id));
        }
    }

    fn unlist(&mut self, class: Class, from_new: bool) {
        let round = self.rounds.of_mut(class);
        if from_new {
            round.new.pop_front()
        } else {
            round.old.pop_front()
        };
    }
}
