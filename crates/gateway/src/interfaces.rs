//! Interfaces that come, go, and change while the gateway runs.
//!
//! The engine knows interfaces and links by number, from its start on. So a configuration may hold
//! spare ones, without a name: one that is found or added later gets the number of a spare one. A
//! link that is added gets a spare link.

use core::net::IpAddr;

use farlink_engine::config::{Config, Interface, Rule};
use farlink_engine::link::Witness;
use farlink_engine::net::IfaceId;
use farlink_engine::status::FlowStatus;
use farlink_wire::Instant;

use crate::gateway::Gateway;
use crate::links::LinkQueue;

/// Numbers from here on are no interfaces. In a rule they stand for those that [`Gateway::mean`]
/// says.
pub const SELECTORS_FROM: u16 = 0x8000;

/// What is known of interfaces besides the configuration.
#[derive(Debug, Default)]
pub(crate) struct Interfaces {
    /// Nobody names these: the driver has found them.
    found: Vec<IfaceId>,
    /// Taken out: what is split goes on, and nothing new is.
    leaving: Vec<IfaceId>,
    /// What numbers in rules stand for.
    meant: Vec<(IfaceId, Vec<IfaceId>)>,
}

impl Interfaces {
    /// Connections that begin by this interface are forwarded.
    pub(crate) fn is_leaving(&self, id: IfaceId) -> bool {
        self.leaving.contains(&id)
    }
    pub(crate) fn is_found(&self, id: IfaceId) -> bool {
        self.found.contains(&id)
    }
    /// The configuration names it.
    pub(crate) fn keep(&mut self, id: IfaceId) {
        self.found.retain(|one| *one != id);
        self.leaving.retain(|one| *one != id);
    }
    pub(crate) fn let_go(&mut self, id: IfaceId) {
        self.keep(id);
        self.leaving.push(id);
    }

    /// Rules as the engine is to read them.
    pub(crate) fn resolved(&self, rules: &[Rule]) -> Vec<Rule> {
        let mut rules = rules.to_vec();
        for rule in &mut rules {
            let meant = rule.interfaces.iter().filter_map(|id| self.meant.iter().find(|(n, _)| n == id));
            let more: Vec<IfaceId> = meant.flat_map(|(_, ids)| ids.iter().copied()).collect();
            // Where nothing is meant the number itself stays: a list without any would mean all.
            rule.interfaces.extend(more);
        }
        rules
    }
}

/// A configuration for the engine: interfaces without a name get one that tells them apart.
pub(crate) fn told_apart(config: &Config) -> Config {
    let mut config = config.clone();
    for spare in config.interfaces.iter_mut().filter(|i| i.name.is_empty()) {
        spare.name = format!("#{}", spare.id.0);
    }
    config
}

impl Gateway {
    /// The number for an interface that the driver has found. `None`: there is no spare one of this
    /// domain.
    pub fn find_interface(&mut self, name: &str, domain: u16) -> Option<IfaceId> {
        let fits = |i: &Interface, name: &str| i.name == name && i.domain == domain && i.link.is_none();
        let known = self.told.interfaces.iter().find(|i| fits(i, name));
        let id = known.or_else(|| self.told.interfaces.iter().find(|i| fits(i, "")))?.id;
        self.take_back(id, name);
        Some(id)
    }

    /// The driver has found an interface again, by this name.
    pub fn take_back(&mut self, id: IfaceId, name: &str) {
        self.interfaces.keep(id);
        self.interfaces.found.push(id);
        self.call(id, name);
    }

    /// This interface has another name.
    pub fn call(&mut self, id: IfaceId, name: &str) {
        if let Some(interface) = self.told.interfaces.iter_mut().find(|i| i.id == id) {
            name.clone_into(&mut interface.name);
        }
        if let Some(link) = self.outlet.links_mut().iter_mut().find(|link| link.iface() == id) {
            link.call_interface(name);
        }
    }

    /// The addresses of an interface: ICMP errors of the gateway come from them.
    pub fn set_addresses(&mut self, id: IfaceId, addresses: Vec<IpAddr>) {
        if let Some(interface) = self.told.interfaces.iter_mut().find(|i| i.id == id) {
            interface.addresses = addresses;
        }
    }

    /// An address of the gateway for ICMP errors sent back by an interface.
    pub(crate) fn icmp_source(&self, id: IfaceId, v4: bool) -> Option<IpAddr> {
        let interface = self.told.interfaces.iter().find(|i| i.id == id)?;
        interface.addresses.iter().find(|a| a.is_ipv4() == v4).copied()
    }

    /// What the numbers stand for that rules have in place of interfaces.
    pub fn mean(&mut self, meant: Vec<(IfaceId, Vec<IfaceId>)>) {
        if self.interfaces.meant == meant {
            return;
        }
        self.interfaces.meant = meant;
        let mut rules = self.interfaces.resolved(&self.told.rules);
        let differs =
            rules.iter().zip(&self.engine.config().rules).any(|(a, b)| a.interfaces != b.interfaces);
        if !differs {
            return;
        }
        // What has been set stays.
        for rule in &mut rules {
            rule.action = self.engine.action_of(Some(&rule.name)).unwrap_or(rule.action);
        }
        let default_action = self.engine.action_of(None).unwrap_or(self.told.default_action);
        self.outlet.set_rules(&rules);
        self.engine.set_rules(rules, default_action);
    }

    /// The engine and the outlet hear of other rules.
    pub(crate) fn follow_rules(&mut self) {
        let rules = self.interfaces.resolved(&self.told.rules);
        self.outlet.set_rules(&rules);
        self.engine.set_rules(rules, self.told.default_action);
        self.actions_changed = true;
    }

    /// From here on connections that begin by this interface are forwarded. Those that are split go
    /// on.
    pub fn let_go(&mut self, id: IfaceId) {
        self.interfaces.let_go(id);
    }

    /// The interfaces that the configuration names.
    pub fn named(&self) -> impl Iterator<Item = &Interface> {
        let is_named = |i: &&Interface| !i.name.is_empty() && !self.interfaces.is_found(i.id);
        self.told.interfaces.iter().filter(is_named)
    }

    /// The interfaces that are taken out, and are still needed or not.
    #[must_use]
    pub fn leaving(&self) -> Vec<IfaceId> {
        self.interfaces.leaving.clone()
    }

    /// So many split connections leave by an interface, and something waits in the queue of its
    /// link.
    #[must_use]
    pub fn is_in_use(&self, id: IfaceId) -> bool {
        let way = self.outlet.way(id);
        let waits = self.outlet.links().iter().any(|link| link.way() == way && !link.egress.is_idle());
        waits || self.engine.loads().iter().any(|(w, load)| *w == way && load.legs > 0)
    }

    /// This interface is no concern any more. Its number is spare from here on.
    pub fn free(&mut self, now: Instant, id: IfaceId) {
        self.interfaces.keep(id);
        self.set_addresses(id, Vec::new());
        self.call(id, "");
        let way = self.outlet.way(id);
        if let Some(link) = self.outlet.link_mut(way) {
            link.retire();
        }
        // What nobody waits for is no outage.
        for witness in [Witness::Kernel, Witness::Operator, Witness::ContactPlan] {
            self.tell(now, way, witness, true);
        }
    }

    /// A flow with the names that interfaces have now.
    pub(crate) fn with_names(&self, mut flow: FlowStatus) -> FlowStatus {
        for name in [&mut flow.out_a, &mut flow.out_b] {
            let known = self.engine.config().interfaces.iter().find(|i| i.name == *name);
            let now = known.and_then(|known| self.told.interfaces.iter().find(|i| i.id == known.id));
            if let Some(now) = now {
                now.name.clone_into(name);
            }
        }
        flow
    }

    /// The links that somebody declares.
    pub(crate) fn declared(&self) -> impl Iterator<Item = &LinkQueue> {
        self.outlet.links().iter().filter(|link| !link.name().is_empty())
    }
}
