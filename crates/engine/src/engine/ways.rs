//! Links that come and go, and routes that move: flows follow.

use core::net::IpAddr;
use core::ops::Range;

use farlink_wire::{Duration, Instant, PacketBuf, TcpSegment};

use super::Engine;
use crate::changed::Changed;
use crate::cx::Cx;
use crate::flow::Flow;
use crate::flow_id::FlowId;
use crate::kept::Kept;
use crate::leg::Leg;
use crate::link::State;
use crate::net::{Via, Way};
use crate::side::Pair;
use crate::table::Key;
use crate::world::World;

/// What connections cost that hear of a link at once: so much in sum, of which one that goes on is
/// so much. A packet waits for no more.
const RESTARTS_COST_MAX: u32 = 512;
const RESTART_COST: u32 = 15;
/// No timer waits longer for that.
const TIMERS_WAIT_MAX: Duration = Duration::from_millis(5);

/// What connections go on for, one after the other.
#[derive(Clone, Debug)]
pub(super) struct Return {
    why: Why,
    /// Where the connections stand that have not heard of it.
    slots: Range<u32>,
}

/// See [`Return`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// A link or interface is up again.
    Back {
        /// Which.
        way: Way,
        /// Nothing that was under way there arrives any more.
        all_lost: bool,
        /// Only towards this host; `None`: towards all.
        whose: Option<IpAddr>,
    },
    /// Another controller governs what leaves by it, or another rate is known of it: there may be
    /// room where there was none.
    Governed(Way),
    /// It has been found out what a host behind it takes.
    FoundOut(Way),
    /// Routes have changed. Who waits for an answer in vain may have another one now.
    Moved,
}

/// It is split, and something of it leaves by this way.
fn goes_by(flow: &Flow, way: Way) -> bool {
    flow.is_split() && [flow.legs.a.out, flow.legs.b.out].contains(&way)
}

impl Engine {
    /// Routes changed: every flow looks its own up again when it sends next. One that is silent may
    /// send nothing for a long time, so it looks with the next `handle_timeout`.
    pub fn routes_changed(&mut self, now: Instant) {
        self.route_generation = self.route_generation.wrapping_add(1);
        self.let_go_on(now, Why::Moved);
    }

    /// Until a route is found, packets to a host go back to where its own came from: that may be a
    /// link.
    pub(crate) fn resolve_ways(&self, legs: &mut Pair<Leg>) {
        for leg in [&mut legs.a, &mut legs.b] {
            leg.out = self.links.way(self.links.iface(leg.out));
        }
    }

    /// Links and interfaces that are up again since this was last asked, in order: for
    /// [`Self::restart`].
    pub fn take_links_back(&mut self) -> Vec<Way> {
        self.links.take_back()
    }

    /// There are such.
    #[must_use]
    pub fn has_links_back(&self) -> bool {
        self.links.are_some_back()
    }

    /// A link or interface is up again: what was in flight there is sent again at once. What a
    /// silence leaves open is found out first. Where there are very many connections this is the
    /// first part of it; `handle_timeout` does the others, and no timer expires before.
    pub fn restart(&mut self, now: Instant, way: Way, net: &mut dyn World) {
        let action = |engine: &Self| engine.links.get(way).and_then(|link| link.action(now));
        let before = action(self);
        let mut all_lost = self.links.come_back(now, way);
        let is_changed = action(self) != before;
        self.returns.retain(|earlier| match earlier.why {
            Why::Back { way: its, all_lost: before, .. } if its == way => {
                all_lost |= before;
                false
            }
            Why::Governed(its) | Why::FoundOut(its) => its != way,
            Why::Back { .. } | Why::Moved => true,
        });
        self.let_go_on(now, Why::Back { way, all_lost, whose: None });
        self.restart_some(now, net);
        if is_changed {
            self.follow_actions(now, net);
        }
    }

    /// Hosts that were silent alone go on, since their links have answered. Nobody else has waited.
    pub fn restart_hosts(&mut self, now: Instant, net: &mut dyn World) {
        for (way, host) in self.links.take_hosts_back() {
            self.let_go_on(now, Why::Back { way, all_lost: false, whose: Some(host) });
            self.restart_some(now, net);
        }
    }

    /// Another controller governs what leaves by this link, or another rate is known of it:
    /// connections that had no room go on. `handle_timeout` sees to it.
    pub(crate) fn go_on_governed(&mut self, now: Instant, way: Way) {
        self.let_go_on(now, Why::Governed(way));
    }

    /// What others have waited for has been found out.
    pub(crate) fn go_on_with_found(&mut self, now: Instant) {
        if let Some(way) = self.links.take_found_out() {
            self.let_go_on(now, Why::FoundOut(way));
        }
    }

    fn let_go_on(&mut self, now: Instant, why: Why) {
        if !self.is_restarting() {
            self.restarting_since = now;
        }
        if let Why::Back { way, whose, .. } = why {
            let is_same = |earlier| matches!(earlier, Why::Back { way: its, whose: before, .. } if (its, before) == (way, whose));
            self.returns.retain(|earlier| !is_same(earlier.why));
        } else if self.returns.iter().any(|earlier| (earlier.why, earlier.slots.start) == (why, 0)) {
            // It has not begun. One that has begun goes on, or it might never end.
            return;
        }
        self.returns.push_back(Return { why, slots: 0..self.table.slots() });
    }

    /// Not all connections know yet that a link is back, or governed otherwise.
    #[must_use]
    pub fn is_restarting(&self) -> bool {
        !self.returns.is_empty()
    }

    /// Timers wait for connections that do not know yet that their link is back. Not for long: a
    /// link may come and go faster than all of them can hear of it.
    pub(crate) fn restarts_first(&self, now: Instant) -> bool {
        self.is_restarting() && now.since(self.restarting_since) < TIMERS_WAIT_MAX
    }

    /// Some more connections hear that a link is back.
    pub(crate) fn restart_some(&mut self, now: Instant, net: &mut dyn World) {
        let mut cost = 0;
        while cost < RESTARTS_COST_MAX
            && let Some(back) = self.returns.front_mut()
        {
            let why = back.why;
            let Some(slot) = back.slots.next() else {
                self.returns.pop_front();
                continue;
            };
            cost += 1;
            let Some((id, false)) = self.table.in_slot(slot) else { continue };
            let goes_on = match why {
                Why::Back { way, all_lost, whose } => {
                    self.tell(id, Changed::Back { now, way, all_lost, whose })
                }
                Why::FoundOut(way) => self.tell(id, Changed::FoundOut(now, way)),
                Why::Governed(way) => self.table.get(id).is_some_and(|flow| goes_by(flow, way)),
                Why::Moved => self.leave_silent_ways(now, id, net),
            };
            if goes_on {
                self.after_event(now, id, net);
                cost += RESTART_COST;
            }
        }
    }

    /// A flow of which nothing has been acknowledged for a timeout looks its routes up. Returns
    /// whether it did.
    fn leave_silent_ways(&mut self, now: Instant, id: FlowId, net: &mut dyn World) -> bool {
        let generation = self.route_generation;
        let mut cx = cx!(self, now, net);
        self.table.get_mut(id).is_some_and(|flow| flow.leave_silent_ways(&mut cx, generation))
    }

    /// Flows whose way leads into a link that is down or silent look for another one. Nothing else
    /// would make them: such a link grants no turn, and a host that has said everything says no
    /// more.
    pub fn reroute(&mut self, now: Instant, net: &mut dyn World) {
        if !self.links.is_any_away() {
            return;
        }
        for id in self.table.ids() {
            let generation = self.route_generation;
            let mut cx = cx!(self, now, net);
            if self.table.get_mut(id).is_some_and(|flow| flow.leave_links_away(&mut cx, generation)) {
                self.after_event(now, id, net);
            }
        }
    }

    /// A packet of a handshake goes on. If its link is away a copy stays here. A link that only is
    /// silent gets the packet, too: its answer may be the first that is heard. `None`: the link is
    /// down, and there is nothing to forward.
    pub(crate) fn keep_for_link(
        &mut self,
        now: Instant,
        via: Via,
        key: Key,
        s: &TcpSegment,
        packet: PacketBuf,
        net: &mut dyn World,
    ) -> Option<PacketBuf> {
        if !self.links.is_any_away() {
            return Some(packet);
        }
        let Some(route) = net.route(via, s.ip.src, s.ip.dst) else { return Some(packet) };
        let way = self.links.way(route.iface);
        let is_away = self.links.is_away(way);
        let Some(link) = self.links.get_mut(way).filter(|_| is_away) else { return Some(packet) };
        let kept = Kept::headers_of(via, s, &packet, &mut self.pool);
        if !self.syns.keep(now, &key, kept) {
            return Some(packet);
        }
        link.hasten_probe(now);
        if link.evidence().state() == State::Down {
            self.pool.give_back(packet.into_block().0);
            return None;
        }
        Some(packet)
    }

    /// What has waited for a link that is there again, or no longer leaves by one that is away, in
    /// the order in which it came, so many at most: how, and what.
    pub fn take_kept(&mut self, most: usize, net: &mut dyn World) -> Vec<(Via, PacketBuf)> {
        let links = &self.links;
        let may_go = |kept: &Kept| {
            let route = net.route(kept.via, kept.ends.0, kept.ends.1);
            route.is_none_or(|r| !links.is_away(links.way(r.iface)))
        };
        let freed = self.syns.take_kept(most, may_go);
        freed.into_iter().map(|kept| (kept.via, kept.into_packet(&mut self.pool))).collect()
    }
}
