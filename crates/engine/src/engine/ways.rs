//! Links that come and go, and routes that move: flows follow.

use farlink_wire::Instant;

use super::Engine;
use crate::changed::Changed;
use crate::cx::Cx;
use crate::leg::Leg;
use crate::net::Way;
use crate::side::Pair;
use crate::world::World;

impl Engine {
    /// Routes changed: every flow looks its own up again when it sends next.
    pub fn routes_changed(&mut self) {
        self.route_generation = self.route_generation.wrapping_add(1);
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
    /// silence leaves open is found out first.
    pub fn restart(&mut self, now: Instant, way: Way, net: &mut dyn World) {
        let all_lost = self.links.come_back(way);
        for id in self.table.ids() {
            if self.tell(id, Changed::Back { now, way, all_lost }) {
                self.after_event(now, id, net);
            }
        }
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
}
