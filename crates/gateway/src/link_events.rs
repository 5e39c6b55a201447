//! Links that come and go, and routes that move: who says so, and what becomes of everything that
//! waits.

use farlink_engine::ReadyId;
use farlink_engine::link::Boxes;
use farlink_engine::link::{Change, Evidence, State, Witness};
use farlink_engine::net::{IfaceId, Way};
use farlink_wire::{Duration, Instant, ip};

use crate::gateway::Gateway;
use crate::links::Waiting;
use crate::network::Network;
use crate::outlet::Grants;

/// Handshakes that have waited for their link go on so many at once, and so long apart.
const KEPT_AT_ONCE: usize = 64;
const KEPT_APART: Duration = Duration::from_millis(10);

impl Gateway {
    /// The carrier of an interface came or went.
    pub fn link_state(&mut self, now: Instant, iface: IfaceId, up: bool, net: &mut dyn Network) {
        self.tell(now, self.outlet.way(iface), Witness::Kernel, up);
        self.flush(now, net);
    }

    /// The operator says that an interface, or the link behind it, is down or up again, as he knows
    /// better than the carrier. His "down" stands until he takes it back.
    pub fn link_declared(&mut self, now: Instant, iface: IfaceId, up: bool, net: &mut dyn Network) {
        self.tell(now, self.outlet.way(iface), Witness::Operator, up);
        self.flush(now, net);
    }

    /// The declared links by name, with what is said of each.
    pub fn link_states(&self) -> impl Iterator<Item = (&str, Evidence)> {
        let links = self.engine.links();
        self.declared().filter_map(|link| Some((link.name(), links.evidence(link.way())?)))
    }

    /// The links with a declared rate by name: that rate, and what the link carries where that is
    /// another. Of more it is what short trains have shown. Bits per second.
    pub fn declared_rates(&self) -> impl Iterator<Item = (&str, u64, Option<u64>)> {
        let links = self.engine.links();
        self.declared().filter_map(|link| {
            let source = links.get(link.way())?.pace().source();
            let declared_bps = source.declared_bps()?;
            let carries_bps = link.found_bps().max(link.room_bps());
            Some((link.name(), declared_bps, Some(carries_bps).filter(|bps| *bps > 0)))
        })
    }

    /// The links by name, with what boxes on the way do to handshakes for Farlink's option.
    pub fn boxes(&self) -> impl Iterator<Item = (&str, &Boxes)> {
        let links = self.engine.links();
        self.declared().filter_map(move |link| Some((link.name(), links.get(link.way())?.boxes())))
    }

    /// The rate of the link at this interface is known: it was said, or has been found out.
    #[must_use]
    pub fn knows_rate_of(&self, interface: &str) -> bool {
        self.declared().any(|link| link.interface() == interface && link.is_rate_known())
    }

    /// A link or an ordinary interface is down or silent, or has been until just now.
    #[must_use]
    pub fn knows_of_outage(&self) -> bool {
        self.engine.links().is_any_away()
    }

    /// The same for the next flush to follow.
    pub(crate) fn tell(&mut self, now: Instant, way: Way, witness: Witness, up: bool) {
        self.engine.apply(now, way, Change::Up(witness, up));
        let down = self.engine.links().evidence(way).map_or(!up, |said| said.state() == State::Down);
        if let Some(link) = self.outlet.link_mut(way) {
            link.egress.set_link_up(now, !down);
        }
        // The route may have moved before the link was known to be down.
        self.reroute_wanted |= down;
    }

    /// Routes or MTUs changed: cached ones are looked up anew, and what waits for a link follows
    /// with the next flush.
    pub fn routes_changed(&mut self, now: Instant) {
        self.engine.routes_changed(now);
        self.reroute_wanted = true;
    }

    /// Links that are back, and routes that have moved, since the last flush.
    pub(crate) fn follow_links(&mut self, now: Instant, net: &mut dyn Network) {
        if !self.reroute_wanted && !self.engine.has_links_back() {
            if self.kept_due.is_some_and(|at| at <= now) {
                self.pass_kept(now, net);
            }
            return;
        }
        for way in self.engine.take_links_back() {
            self.link_back(now, way, net);
        }
        self.engine.restart_hosts(now, &mut self.outlet.exit(now, net, Grants::Unasked));
        self.reroute(now, net);
        self.pass_kept(now, net);
    }

    /// Handshakes that have waited for their link go on, a few at a time: there may be thousands,
    /// and others want to use the link, too.
    fn pass_kept(&mut self, now: Instant, net: &mut dyn Network) {
        let kept = self.engine.take_kept(KEPT_AT_ONCE, &mut self.outlet.exit(now, net, Grants::Unasked));
        self.kept_due = (kept.len() == KEPT_AT_ONCE).then_some(now + KEPT_APART);
        for (via, packet) in kept {
            self.forward(now, via, self.outlet.places().of_packet(packet.bytes()), packet, net);
        }
    }

    /// A link or interface is up again: what was under way goes out again, and what is too old does
    /// not.
    fn link_back(&mut self, now: Instant, way: Way, net: &mut dyn Network) {
        let pool = self.engine.pool();
        if let Some(link) = self.outlet.link_mut(way) {
            for waiting in link.take_waiting(now, pool) {
                link.enqueue(now, waiting, pool);
            }
        }
        self.engine.restart(now, way, &mut self.outlet.exit(now, net, Grants::Unasked));
    }

    /// Everything that waits somewhere goes where the kernel would send it now: legs of flows, and
    /// the forwarded packets of links that are down. Else a link that is gone would keep them, for
    /// it grants nothing.
    fn reroute(&mut self, now: Instant, net: &mut dyn Network) {
        if !core::mem::take(&mut self.reroute_wanted) {
            return;
        }
        for id in self.ordinary.take_all() {
            self.engine.requeue(id);
        }
        let mut moved: Vec<(IfaceId, Waiting)> = Vec::new();
        for link in self.outlet.links_mut() {
            for id in link.egress.take_ready(now) {
                self.engine.requeue(ReadyId::from_u64(id));
            }
            if link.egress.is_link_up() {
                continue;
            }
            for waiting in link.take_waiting(now, self.engine.pool()) {
                let ends = ip::addresses(waiting.packet.bytes());
                let out = ends.and_then(|(src, dst)| net.route(waiting.via, src, dst)).map(|r| r.iface);
                match out.filter(|out| *out != link.iface()) {
                    Some(out) => moved.push((out, waiting)),
                    None => link.enqueue(now, waiting, self.engine.pool()),
                }
            }
        }
        for (out, waiting) in moved {
            let out = self.outlet.way(out);
            self.outlet.move_on(now, out, waiting, (self.engine.pool(), net));
        }
        self.engine.reroute(now, &mut self.outlet.exit(now, net, Grants::Unasked));
    }
}
