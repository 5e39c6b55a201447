//! What faults do to a network.

use super::World;
use crate::fault::Fault;

impl World {
    pub(super) fn inject(&mut self, fault: Fault) {
        // Who is told something while he stands still hears it later.
        let told = match &fault {
            Fault::LinkState { node, .. } | Fault::Drain { node, .. } | Fault::Reload { node, .. } => {
                Some(*node)
            }
            _ => None,
        };
        if let Some(until) = told.and_then(|node| self.stands_until(node)) {
            return self.add_faults([(until, fault)]);
        }
        self.trace.note(self.now, || format!("{fault:?}"));
        let now = self.now;
        match fault {
            Fault::Route { node, host, port } => {
                self.set_route(node, host, port);
                if let Some(g) = self.gateway(node) {
                    g.routes_changed(now);
                }
            }
            Fault::Channel { node, port, config } => {
                let wire = &mut self.wires[self.nodes[node].ports[port].wire];
                wire.channel.set_config(now, *config);
                wire.due = wire.channel.poll_timeout();
            }
            Fault::LinkState { node, port, up } => self.with_gateway(node, |g, ports, routes| {
                g.link_state(now, ports, routes, port, up);
            }),
            Fault::Drain { node, limit, restart_after } => {
                if let Some(g) = self.gateway(node) {
                    g.drain(now + limit, restart_after);
                }
            }
            Fault::Kill { node, restart_after } => {
                self.end_standstill(node);
                let mut records = self.gateway(node).map(|g| g.kill(now + restart_after)).unwrap_or_default();
                self.in_hosts_numbers(&mut records);
                self.observer.excuse(&records, "a gateway was killed while it held custody of it");
                self.observer.gateway_started(node, &[]);
            }
            Fault::Reload { node, changes } => self.with_gateway(node, |g, ports, routes| {
                g.reconfigure(now, ports, routes, &changes);
            }),
            Fault::Standstill { node, lasts, keeps } => self.stand_still(node, now + lasts, keeps),
            Fault::Jump => return self.step_of_jump(),
        }
        self.wake_all();
    }

    fn wake_all(&mut self) {
        self.node_due.fill(Some(self.now));
    }
}
