//! Which group of a class is next: the one that has had least for its weight; and which must wait
//! because of its own rate.
//!
//! Start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996): each group counts what it has
//! had, divided by its weight, and whoever has the lowest count goes. One that has been away goes
//! on from the count of the one served last, so that nothing is saved up. Deficit round robin, as
//! among flows, would hand out a group's whole quantum in one piece, and with weights of 37 and 63
//! that is a piece of 63 packets.
//!
//! A group that waits for its own rate is *held*: it does not count as waiting, and neither its
//! class nor the link waits for it. Only groups that wait are listed anywhere, so those that do not
//! cost nothing.
//!
//! Where the default group is alone, and has no rate, none of this is counted. What every grant
//! passes through is inlined: a call would cost as much as what is then left of it.

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use farlink_wire::WireSize;
use farlink_wire::time::Instant;
use slab::Slab;

use crate::classes::{ALL, PerClass, Waiting};
use crate::config::{Class, GroupId, Lane, MAX_BURST_BYTES, MAX_GROUPS, MAX_WEIGHT, Share};
use crate::flows::{Flow, Flows};
use crate::shaper::{Shaper, time_of};

/// Flows without anything to send that may stay listed in all groups together, besides as many as
/// there are with.
const EMPTY_MAX: usize = 1024;
/// In a group that has a rate a flow never has more than so many turns in one piece: its own, and
/// what its place allows.
const TURNS_MAX: i64 = 4;
/// The default group is the first, and stays.
const DEFAULT_INDEX: usize = 0;

/// Where a flow is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct At {
    pub(crate) group: usize,
    pub(crate) slot: usize,
}

/// The flow that is next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Next {
    pub(crate) at: At,
    pub(crate) id: u64,
    /// The size of its oldest packet, if it has one.
    pub(crate) packet: Option<WireSize>,
    /// What it and its group may send at once.
    pub(crate) bytes: u32,
}

/// All groups of one queue.
#[derive(Debug)]
pub(crate) struct Groups<P> {
    groups: Slab<Group<P>>,
    by_id: BTreeMap<GroupId, usize>,
    turns: PerClass<Turns>,
    /// Groups that wait, but not before then.
    held: BTreeSet<(Instant, usize)>,
    /// Flows that wait in groups that are not held.
    waiting: Waiting,
    /// The largest packet; no group's burst is smaller.
    mtu_bytes: u32,
    /// There is only the default group, and it has no rate: all that waits is its own.
    is_alone: bool,
}

/// One group.
#[derive(Debug)]
struct Group<P> {
    id: GroupId,
    weight: u32,
    /// What a byte counts for, in units of 2^-64.
    per_byte: u64,
    rate: Shaper,
    /// The largest burst that leaves at once, in bytes.
    burst_bytes: u32,
    /// Bytes of owned packets that may wait in it.
    limit_bytes: usize,
    flows: Flows<P>,
    /// Flows that wait in it; not kept where it is alone.
    waiting: Waiting,
    /// Since when, without a break, something has been waiting in it; only where it has a rate.
    waiting_since: Option<Instant>,
    /// Its place among those that are held.
    held: Option<Instant>,
    turns: PerClass<Turn>,
}

/// What a group has had in one class.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    /// Bytes by weight, in units of 2^-64.
    had: u128,
    listed: bool,
}

/// The groups that wait in one class, and some that did until lately.
#[derive(Debug, Default)]
struct Turns {
    /// Lowest count first. A count may be too low: it is looked at anew when its turn comes.
    listed: BinaryHeap<Reverse<(u128, usize)>>,
    /// The count of the group served last.
    served: u128,
}

impl<P> Group<P> {
    fn new(id: GroupId) -> Self {
        Self {
            id,
            weight: 1,
            per_byte: u64::MAX,
            rate: Shaper::new(None, time_of(None, 0)),
            burst_bytes: MAX_BURST_BYTES,
            limit_bytes: usize::MAX,
            flows: Flows::default(),
            waiting: Waiting::default(),
            waiting_since: None,
            held: None,
            turns: PerClass::default(),
        }
    }

    fn set(&mut self, now: Instant, share: Share, mtu_bytes: u32) {
        self.weight = share.weight.clamp(1, MAX_WEIGHT);
        self.per_byte = u64::MAX / u64::from(self.weight);
        self.burst_bytes = burst_bytes(share.rate_bps, mtu_bytes);
        self.waiting_since = self.waiting_since.filter(|_| share.rate_bps.is_some());
        // Whoever else has the link may make it late by some packets.
        self.rate.set_rate(now, share.rate_bps, time_of(share.rate_bps, self.burst_bytes));
    }

    /// Nothing in it ever waits for its own rate.
    fn has_no_rate(&self) -> bool {
        self.rate.is_unlimited() && self.held.is_none()
    }
}

impl<P> Groups<P> {
    pub(crate) fn new(mtu_bytes: u32) -> Self {
        let mut groups = Slab::new();
        let default = groups.insert(Group::new(GroupId::DEFAULT));
        debug_assert_eq!(default, DEFAULT_INDEX);
        Self {
            groups,
            by_id: BTreeMap::from([(GroupId::DEFAULT, default)]),
            turns: PerClass::default(),
            held: BTreeSet::new(),
            waiting: Waiting::default(),
            mtu_bytes,
            is_alone: true,
        }
    }

    /// Makes a group, or changes it. `false`: it would be one too many.
    pub(crate) fn set(&mut self, now: Instant, id: GroupId, share: Share) -> bool {
        let index = match self.by_id.get(&id) {
            Some(index) => *index,
            None if self.groups.len() >= MAX_GROUPS => return false,
            None => {
                let index = self.groups.insert(Group::new(id));
                self.by_id.insert(id, index);
                index
            }
        };
        self.begin();
        if let Some(group) = self.groups.get_mut(index) {
            group.set(now, share, self.mtu_bytes);
        }
        self.settle(now, index);
        self.end();
        true
    }

    /// In this group no more bytes of owned packets are to wait.
    pub(crate) fn set_limit(&mut self, id: GroupId, bytes: usize) {
        let index = self.by_id.get(&id).copied();
        if let Some(group) = index.and_then(|index| self.groups.get_mut(index)) {
            group.limit_bytes = bytes;
        }
    }

    /// Bytes of owned packets that wait in this group.
    pub(crate) fn backlog_bytes(&self, id: GroupId) -> usize {
        let group = self.by_id.get(&id).and_then(|index| self.groups.get(*index));
        group.map_or(0, |group| group.flows.backlog_bytes())
    }

    /// The flow of this one's group that holds most bytes, where more wait in the group than may.
    pub(crate) fn longest_of_full(&self, at: At) -> Option<At> {
        let group = self.groups.get(at.group).filter(|g| g.flows.backlog_bytes() > g.limit_bytes)?;
        Some(At { group: at.group, slot: group.flows.longest()?.1 })
    }

    /// Forgets a group and hands back its flows; `None`: there is none, or it is the default one.
    pub(crate) fn remove(&mut self, id: GroupId) -> Option<Flows<P>> {
        let index = *self.by_id.get(&id).filter(|index| **index != DEFAULT_INDEX)?;
        self.by_id.remove(&id);
        let group = self.groups.try_remove(index)?;
        for class in ALL {
            if group.held.is_none() {
                let count = self.waiting.of_mut(class);
                *count = count.saturating_sub(*group.waiting.of(class));
            }
            self.turns.of_mut(class).listed.retain(|Reverse((_, listed))| *listed != index);
        }
        if let Some(at) = group.held {
            self.held.remove(&(at, index));
        }
        self.end();
        Some(group.flows)
    }

    /// Counting begins: the default group may be alone no longer.
    fn begin(&mut self) {
        if !self.is_alone {
            return;
        }
        self.is_alone = false;
        self.turns = PerClass::default();
        if let Some(group) = self.groups.get_mut(DEFAULT_INDEX) {
            group.turns = PerClass::default();
            group.waiting = self.waiting;
        }
        for class in ALL {
            if *self.waiting.of(class) > 0 {
                self.list(class, DEFAULT_INDEX);
            }
        }
    }

    /// Counting ends where the default group is alone.
    fn end(&mut self) {
        let default = self.groups.get(DEFAULT_INDEX);
        self.is_alone = self.groups.len() == 1 && default.is_some_and(Group::has_no_rate);
    }

    /// Where this flow is; a new flow is listed.
    #[inline]
    pub(crate) fn entry(&mut self, lane: Lane, flow: u64, quantum: i64) -> At {
        let index = match lane.group {
            GroupId::DEFAULT => DEFAULT_INDEX,
            other => self.by_id.get(&other).copied().unwrap_or(DEFAULT_INDEX),
        };
        let empty_max = EMPTY_MAX / self.groups.len().max(1);
        // Nobody has a slot of this number where there is no such group.
        let Some(group) = self.groups.get_mut(index) else { return At { group: index, slot: usize::MAX } };
        let waiting = if self.is_alone { &self.waiting } else { &group.waiting };
        let listed_max = waiting.total().saturating_mul(2).saturating_add(empty_max);
        let quantum = quantum.min(i64::from(group.burst_bytes));
        At { group: index, slot: group.flows.entry(lane.class, flow, quantum, listed_max) }
    }

    /// Where this flow is, if it is listed.
    pub(crate) fn find(&self, lane: Lane, flow: u64) -> Option<At> {
        let index = self.by_id.get(&lane.group).copied()?;
        let slot = self.groups.get(index)?.flows.find(lane.class, flow)?;
        Some(At { group: index, slot })
    }

    /// The group of that place.
    pub(crate) fn id(&self, at: At) -> Option<GroupId> {
        self.groups.get(at.group).map(|group| group.id)
    }

    pub(crate) fn waits(&self, at: At) -> bool {
        self.groups.get(at.group).and_then(|group| group.flows.get(at.slot)).is_some_and(Flow::waits)
    }

    pub(crate) fn flow_mut(&mut self, at: At) -> Option<&mut Flow<P>> {
        self.groups.get_mut(at.group)?.flows.get_mut(at.slot)
    }

    /// The flow that holds most bytes of the group that holds most for its weight. What only gets
    /// what others leave goes before all others.
    pub(crate) fn longest(&self) -> Option<At> {
        let load = |of: &Group<P>, other: &Group<P>| {
            (of.flows.backlog_bytes() as u64).saturating_mul(u64::from(other.weight))
        };
        let has_low = |g: &Group<P>| g.flows.longest().is_some_and(|(is_low, _)| is_low);
        let order = |a: &Group<P>, b: &Group<P>| {
            has_low(a).cmp(&has_low(b)).then_with(|| load(a, b).cmp(&load(b, a)))
        };
        let (index, group) = self.groups.iter().max_by(|(_, a), (_, b)| order(a, b))?;
        Some(At { group: index, slot: group.flows.longest()?.1 })
    }

    /// Where all flows are.
    pub(crate) fn all(&self) -> Vec<At> {
        let all = self.groups.iter();
        all.flat_map(|(group, g)| g.flows.slots().into_iter().map(move |slot| At { group, slot })).collect()
    }

    /// Flows that are listed.
    pub(crate) fn len(&self) -> usize {
        self.groups.iter().map(|(_, group)| group.flows.len()).sum()
    }

    /// What waits and is not held.
    pub(crate) fn waiting(&self) -> &Waiting {
        &self.waiting
    }

    /// What waits for a share of the link in this group, held or not.
    pub(crate) fn waiting_in(&self, id: GroupId) -> usize {
        let Some(index) = self.by_id.get(&id) else { return 0 };
        if self.is_alone {
            return self.waiting.sharing();
        }
        self.groups.get(*index).map_or(0, |group| group.waiting.sharing())
    }

    /// When the first of the groups that are held may go; [`Instant::FAR_FUTURE`]: never, at its
    /// rate. `None`: none is held.
    pub(crate) fn first_held(&self) -> Option<Instant> {
        self.held.first().map(|(at, _)| *at)
    }

    /// The next flow of this class that has something to send and may.
    #[inline(always)]
    pub(crate) fn next(&mut self, now: Instant, class: Class, quantum: i64, lead_max: i64) -> Option<Next> {
        let index = self.choose(class)?;
        let group = self.groups.get_mut(index)?;
        // In a group that has a rate turns are as long as its bursts, or a slow one would be one
        // flow's for long.
        let quantum = quantum.min(i64::from(group.burst_bytes));
        let slot = group.flows.next(class, quantum, lead_max)?;
        let flow = group.flows.get_mut(slot)?;
        if !group.rate.is_unlimited() {
            // What is left of a turn at a higher rate, or at none, is not kept.
            flow.deficit = flow.deficit.min(quantum.saturating_mul(TURNS_MAX));
        }
        let (id, packet, deficit) = (flow.id, flow.front_size(), flow.deficit);
        let mut next = Next { at: At { group: index, slot }, id, packet, bytes: 0 };
        if packet.is_none() {
            let overdue = group.rate.overdue_bytes(now, group.waiting_since);
            let burst_bytes = group.burst_bytes.saturating_sub(u32::try_from(overdue).unwrap_or(u32::MAX));
            next.bytes = u32::try_from(deficit).unwrap_or(0).min(burst_bytes);
        }
        Some(next)
    }

    /// The group of this class that is next. Each step unlists a group, or corrects a count after a
    /// grant: the work is bounded by what is sent.
    fn choose(&mut self, class: Class) -> Option<usize> {
        if self.is_alone {
            return Some(DEFAULT_INDEX);
        }
        let turns = self.turns.of_mut(class);
        loop {
            let mut first = turns.listed.peek_mut()?;
            let Reverse((had, index)) = *first;
            let Some(group) = self.groups.get_mut(index) else {
                PeekMut::pop(first);
                continue;
            };
            let turn = group.turns.of_mut(class);
            if group.held.is_some() || *group.waiting.of(class) == 0 {
                turn.listed = false;
                PeekMut::pop(first);
            } else if had != turn.had {
                *first = Reverse((turn.had, index));
            } else {
                turns.served = had;
                return Some(index);
            }
        }
    }

    /// The flow sends bytes. Returns whether what may go has changed.
    #[inline(always)]
    pub(crate) fn spend(&mut self, now: Instant, at: At, class: Class, bytes: u64) -> bool {
        let Some(group) = self.groups.get_mut(at.group) else { return false };
        if let Some(flow) = group.flows.get_mut(at.slot) {
            flow.deficit = flow.deficit.saturating_sub(i64::try_from(bytes).unwrap_or(i64::MAX));
        }
        if self.is_alone {
            return false;
        }
        self.spend_beside_others(now, at.group, class, bytes)
    }

    /// What the group has had counts against others, and against its own rate.
    #[inline(never)]
    fn spend_beside_others(&mut self, now: Instant, index: usize, class: Class, bytes: u64) -> bool {
        let Some(group) = self.groups.get_mut(index) else { return false };
        let turn = group.turns.of_mut(class);
        turn.had = turn.had.saturating_add(u128::from(bytes) * u128::from(group.per_byte));
        group.rate.spend(now, group.waiting_since, bytes);
        self.settle(now, index)
    }

    /// Changes a flow and keeps the counts of what waits. Returns whether they have changed.
    #[inline(always)]
    pub(crate) fn change(&mut self, now: Instant, at: At, change: impl FnOnce(&mut Flows<P>)) -> bool {
        let Some(group) = self.groups.get_mut(at.group) else { return false };
        let Some((class, before)) = group.flows.get_mut(at.slot).map(|f| (f.class, f.waits())) else {
            return false;
        };
        change(&mut group.flows);
        let after = group.flows.get_mut(at.slot).is_some_and(|f| f.waits());
        if before == after {
            return false;
        }
        if self.is_alone {
            count(&mut self.waiting, class, after);
        } else {
            self.count_beside_others(now, at.group, class, after);
        }
        true
    }

    /// A flow of this group has begun to wait, or ended.
    #[inline(never)]
    fn count_beside_others(&mut self, now: Instant, index: usize, class: Class, waits: bool) {
        let Some(group) = self.groups.get_mut(index) else { return };
        count(&mut group.waiting, class, waits);
        if group.held.is_none() {
            count(&mut self.waiting, class, waits);
            if waits {
                self.list(class, index);
            }
        }
        self.settle(now, index);
    }

    /// Groups whose time has come are held no longer. Returns since when the first of them may go.
    pub(crate) fn release(&mut self, now: Instant) -> Option<Instant> {
        let mut since = None;
        while let Some(&(at, index)) = self.held.first()
            && at <= now
        {
            self.settle(now, index);
            since = since.or(Some(at));
        }
        since
    }

    /// A group that waits is held as long as its rate says. Returns whether that has changed.
    fn settle(&mut self, now: Instant, index: usize) -> bool {
        let Some(group) = self.groups.get_mut(index) else { return false };
        if group.has_no_rate() {
            return false;
        }
        let waits = group.waiting.any();
        group.waiting_since =
            if waits && !group.rate.is_unlimited() { group.waiting_since.or(Some(now)) } else { None };
        let at = group.rate.free_at().unwrap_or(Instant::FAR_FUTURE);
        let (old, new) = (group.held, (waits && at > now).then_some(at));
        if old == new {
            return false;
        }
        group.held = new;
        let waiting = group.waiting;
        if let Some(old) = old {
            self.held.remove(&(old, index));
        }
        if let Some(new) = new {
            self.held.insert((new, index));
        }
        for class in ALL {
            let (count, of_group) = (self.waiting.of_mut(class), *waiting.of(class));
            match (old.is_some(), new.is_some()) {
                (false, true) => *count = count.saturating_sub(of_group),
                (true, false) => {
                    *count = count.saturating_add(of_group);
                    if of_group > 0 {
                        self.list(class, index);
                    }
                }
                _ => {}
            }
        }
        true
    }

    /// The group waits in this class.
    fn list(&mut self, class: Class, index: usize) {
        let Some(group) = self.groups.get_mut(index) else { return };
        let (turn, turns) = (group.turns.of_mut(class), self.turns.of_mut(class));
        if !turn.listed {
            turn.listed = true;
            turn.had = turn.had.max(turns.served);
            turns.listed.push(Reverse((turn.had, index)));
        }
    }
}

/// One flow more waits in this class, or one less.
fn count(waiting: &mut Waiting, class: Class, waits: bool) {
    let count = waiting.of_mut(class);
    *count = if waits { count.saturating_add(1) } else { count.saturating_sub(1) };
}

/// The largest burst at a rate: what it carries in 1 ms, but a packet in any case.
pub(crate) fn burst_bytes(rate_bps: Option<u64>, mtu_bytes: u32) -> u32 {
    let bytes = rate_bps.map_or(u32::MAX, |rate| u32::try_from(rate / 8_000).unwrap_or(u32::MAX));
    bytes.clamp(mtu_bytes, MAX_BURST_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a grant looks at are the groups that wait: those that do not, and those that are held,
    /// stand in nobody's way.
    #[test]
    fn groups_that_do_not_wait_are_listed_nowhere() {
        let mut groups = Groups::<()>::new(1514);
        let now = Instant::from_millis(1);
        let lane = |group| Lane { class: Class::Bulk, group: GroupId(group) };
        let ready = |groups: &mut Groups<()>, at: At, ready| {
            groups.change(now, at, |flows| flows.get_mut(at.slot).unwrap().ready = ready);
        };
        for id in 0..MAX_GROUPS as u32 {
            let rate_bps = (id >= 128).then_some(1);
            assert!(groups.set(now, GroupId(id), Share { weight: 1, rate_bps }));
            let at = groups.entry(lane(id), 7, 1514);
            ready(&mut groups, at, true);
        }
        // All have sent once; then only two go on.
        for _ in 0..MAX_GROUPS {
            let at = groups.next(now, Class::Bulk, 1514, 0).unwrap().at;
            groups.spend(now, at, Class::Bulk, 1000);
            ready(&mut groups, at, !(2..128).contains(&at.group));
        }
        assert_eq!((groups.waiting().total(), groups.held.len()), (2, 128));
        for _ in 0..4 {
            let at = groups.next(now, Class::Bulk, 1514, 0).unwrap().at;
            groups.spend(now, at, Class::Bulk, 1000);
        }
        assert_eq!(groups.turns.of(Class::Bulk).listed.len(), 2);
    }

    /// Else the next rate would begin with a burst for time in which nothing waited.
    #[test]
    fn without_a_rate_no_wait_is_remembered() {
        let mut groups = Groups::<()>::new(1514);
        let now = Instant::from_millis(1);
        let share = |rate_bps| Share { weight: 1, rate_bps };
        assert!(groups.set(now, GroupId(1), share(Some(0))));
        let at = groups.entry(Lane { class: Class::Bulk, group: GroupId(1) }, 7, 1514);
        groups.change(now, at, |flows| flows.get_mut(at.slot).unwrap().ready = true);
        assert_eq!((groups.first_held(), groups.waiting().total()), (Some(Instant::FAR_FUTURE), 0));
        assert!(groups.set(now, GroupId(1), share(None)));
        assert_eq!((groups.first_held(), groups.waiting().total()), (None, 1));
        assert_eq!(groups.groups.get(at.group).unwrap().waiting_since, None);
    }
}
