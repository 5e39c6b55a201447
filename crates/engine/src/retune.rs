//! What the engine can be told while it runs, beside links going up and down.

use farlink_cc as cc;
use farlink_wire::{Duration, Instant};

use crate::config::{FlowControl, InitialWindow, LinkEstimate};
use crate::engine::Engine;
use crate::link::Link;
use crate::net::IfaceId;
use crate::side::Side;

impl Engine {
    /// Ends draining, complete or not: new connections are split again.
    pub fn end_drain(&mut self) {
        self.draining = false;
        for id in self.table.ids() {
            if let Some(flow) = self.table.get_mut(id) {
                flow.keep_hold();
            }
        }
    }

    /// From now on `kind` governs what is sent into the link behind `iface`, or with `None` on all legs that are no links; in
    /// connections that are open too. Returns whether there is such a link.
    pub fn set_cc(&mut self, now: Instant, iface: Option<IfaceId>, kind: cc::Kind) -> bool {
        match iface {
            None => self.config.ordinary.cc = kind,
            Some(iface) => {
                let Some(link) = self.config.link_mut(iface) else { return false };
                link.leg.cc = kind;
            }
        }
        let links: Vec<IfaceId> =
            self.config.interfaces.iter().filter(|i| i.link.is_some()).map(|i| i.id).collect();
        for id in self.table.ids() {
            let Some(flow) = self.table.get_mut(id) else { continue };
            for to in [Side::A, Side::B] {
                let out = flow.legs.get(to).out;
                if iface.map_or(links.contains(&out), |wanted| wanted != out) {
                    continue;
                }
                let from = to.other();
                let Some(next) = flow.relays.as_ref().map(|r| r.get(from).tx.snd_nxt) else { continue };
                let config = flow.controller_config(&self.config, &self.books, from, next);
                if let Some(relays) = flow.relays.as_mut() {
                    relays.get_mut(from).tx.change_cc(now, &config);
                }
            }
            self.census.note(&mut self.table, id);
        }
        true
    }

    /// What has been found out about the link behind `iface`; `None`: no longer anything. Flows that begin from now on go by it.
    pub fn set_link_estimate(&mut self, iface: IfaceId, estimate: Option<LinkEstimate>) {
        // Asked with every batch of packets, and seldom news.
        if let Some(link) = self.config.link_mut(iface).filter(|l| l.estimate != estimate) {
            link.estimate = estimate;
            self.books.link_changed(iface, link);
        }
    }

    /// From now on the gateways find out the rate of the link behind `iface`, or no longer.
    pub fn set_link_estimated(&mut self, iface: IfaceId, on: bool) {
        if let Some(link) = self.config.link_mut(iface) {
            link.estimate_rate = on;
        }
    }

    /// The smallest round trip of any connection over the link behind `iface` of late, where nobody has said one, is in force from
    /// now on. Returns it.
    pub fn follow_link_rtt(&mut self, iface: IfaceId) -> Option<Duration> {
        let measured = self.links.at(iface).and_then(Link::measured_rtt);
        if let Some(link) = self.config.link_mut(iface).filter(|l| l.measured_rtt != measured) {
            link.measured_rtt = measured;
            self.books.link_changed(iface, link);
        }
        measured
    }

    /// The initial window of connections that begin from now on, on the link behind `iface` or, with `None`, on all legs that
    /// are no links.
    pub fn set_initial_window(&mut self, iface: Option<IfaceId>, window: InitialWindow) {
        match iface {
            None => self.config.ordinary.initial_window = window,
            Some(iface) => {
                if let Some(link) = self.config.link_mut(iface) {
                    link.leg.initial_window = window;
                }
            }
        }
    }

    /// The initial window of connections over the link behind `iface`.
    #[must_use]
    pub fn initial_window(&self, iface: IfaceId) -> Option<InitialWindow> {
        self.config.link(iface).map(|l| l.leg.initial_window)
    }

    /// How relays are bounded from now on, those of open connections, too. Windows that were shown stay promised.
    pub fn set_flow_control(&mut self, policy: FlowControl) {
        self.config.flow_control = policy;
    }

    /// What one relay may hold from now on, those of open connections, too. Windows that were shown stay promised: with a smaller
    /// bound a relay holds what it holds until that has gone on.
    pub fn set_relay_bytes(&mut self, bytes: u32) {
        self.config.limits.relay_bytes = bytes;
        for id in self.table.ids() {
            if let Some(flow) = self.table.get_mut(id) {
                flow.limit_relays(&self.config);
            }
        }
    }

    /// How large the buffer pool is from now on. What is held above a smaller bound goes on first: until then no new
    /// connection is split and no window moves.
    pub fn set_pool_bytes(&mut self, bytes: usize) {
        self.config.limits.pool_bytes = bytes;
        self.share_memory();
    }

    /// Whether gateways tell each other what they will be able to pass on, from now on.
    pub fn set_soft_window(&mut self, on: bool) {
        self.config.soft_window = on;
    }

    /// Whether hosts that send too fast lose one segment in a window, from now on.
    pub fn set_queue_drop(&mut self, on: bool) {
        self.config.queue_drop = on;
    }

    /// The rate of the link behind `iface` in bits per second has become known, has changed, or is unknown from now on.
    pub fn set_link_rate(&mut self, iface: IfaceId, rate_bps: Option<u64>) {
        let Some(link) = self.config.link_mut(iface) else { return };
        link.rate_bps = rate_bps;
        self.books.memory.forget(iface);
        self.books.link_changed(iface, link);
        // Open connections, too: what their relays may hold, and the controllers that go by the rate.
        for id in self.table.ids() {
            let Some(flow) = self.table.get_mut(id) else { continue };
            for to in [Side::A, Side::B] {
                if flow.legs.get(to).out == iface {
                    flow.limit_relays(&self.config);
                    flow.follow_link_rate(&self.config, to);
                }
            }
        }
    }

    /// The controller of what is sent into the link behind `iface`.
    #[must_use]
    pub fn link_cc(&self, iface: IfaceId) -> Option<cc::Kind> {
        self.config.link(iface).map(|l| l.leg.cc)
    }
}
