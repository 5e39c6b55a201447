//! Another configuration, while the gateway runs: what differs is applied, and no connection is
//! dropped for it.

use farlink_engine::config::{Config, Interface, LegConfig, Limits, Link, Weights};
use farlink_engine::link::Change;
use farlink_engine::net::{IfaceId, Way};
use farlink_wire::Instant;

use crate::gateway::Gateway;
use crate::interfaces::SELECTORS_FROM;
use crate::links::LinkQueue;

/// What has become of what differs, by the names that the configuration has for it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Reconfigured {
    /// It holds from now on.
    pub applied: Vec<String>,
    /// It holds when the gateway is started anew.
    pub at_restart: Vec<String>,
}

impl Reconfigured {
    fn apply(&mut self, differs: bool, key: &str, apply: impl FnOnce()) {
        if differs {
            apply();
            self.applied.push(key.to_owned());
        }
    }

    fn leave(&mut self, differs: bool, key: &str) {
        if differs {
            self.at_restart.push(key.to_owned());
        }
    }
}

impl Gateway {
    /// The configuration that it goes by: what it has been given last, without what waits for a
    /// restart.
    #[must_use]
    pub fn configuration(&self) -> &Config {
        &self.told
    }

    /// What `after` says otherwise than the configuration before holds from now on, for
    /// connections that are open, too. What [`Gateway::set`] has changed stays so where both say
    /// the same. Interfaces are the same where they have the same name; their numbers in `after`
    /// may be others.
    ///
    /// Rules that have the same name count on. Open connections stay split or in custody mode
    /// whatever new rules say of passing by. An interface or a link that is new gets the number of
    /// a spare one. One that is missing is let go ([`Gateway::let_go`]).
    pub fn reconfigure(&mut self, now: Instant, mut after: Config) -> Reconfigured {
        let mut done = Reconfigured::default();
        let before = self.told.clone();
        after.interfaces.retain(|interface| !interface.name.is_empty());
        let back = self.number(&before, &mut after);
        let (before, after) = (&before, &after);
        let has_other_rules = after.rules != before.rules || after.default_action != before.default_action;
        done.apply(has_other_rules, "rules", || {});
        done.apply(before.dscps != after.dscps, "dscp", || {
            self.engine.set_dscps(after.dscps);
            self.outlet.set_dscps(after.dscps);
        });
        self.change_whole(now, before, after, &mut done);
        back.iter().for_each(|back| done.apply(true, back, || {}));
        for interface in &after.interfaces {
            match before.interfaces.iter().find(|old| old.id == interface.id && old.name == interface.name) {
                Some(old) => self.change_interface(now, old, interface, &mut done),
                None if interface.id == IfaceId::OTHER => {
                    done.leave(true, &format!("{} {}", kind(interface), interface.name));
                }
                None => self.add(now, interface, &mut done),
            }
        }
        for old in before.interfaces.iter().filter(|old| !old.name.is_empty()) {
            let is_named = !self.interfaces.is_found(old.id) && !self.interfaces.is_leaving(old.id);
            if is_named && !after.interfaces.iter().any(|new| new.id == old.id) {
                self.let_go(old.id);
                done.apply(true, &format!("{} {} is let go", kind(old), old.name), || {});
            }
        }
        let interfaces = self.told.interfaces.iter().map(|one| interface_in_force(one, after)).collect();
        self.told = Config { interfaces, ..in_force(before, after) };
        if has_other_rules {
            self.follow_rules();
        }
        done
    }

    /// Interfaces of another configuration get the numbers that they have, and so they do in rules.
    /// New ones get those of spare ones. Returns those that had been let go.
    fn number(&mut self, before: &Config, after: &mut Config) -> Vec<String> {
        let mut back = Vec::new();
        let mut taken: Vec<IfaceId> = Vec::new();
        let mut numbers = Vec::new();
        for new in &after.interfaces {
            let same = |old: &&Interface| old.name == new.name && old.link.is_some() == new.link.is_some();
            let is_free = |old: &&Interface| old.name.is_empty() && !taken.contains(&old.id);
            let spare = || before.interfaces.iter().filter(is_free).find(|old| may_become(old, new));
            let id = before.interfaces.iter().find(same).or_else(spare).map_or(IfaceId::OTHER, |old| old.id);
            taken.push(id);
            numbers.push((new.id, id));
            if self.interfaces.is_leaving(id) {
                back.push(format!("{} {}", kind(new), new.name));
            }
            self.interfaces.keep(id);
        }
        let number = |id: &mut IfaceId| {
            if id.0 < SELECTORS_FROM {
                *id = numbers.iter().find(|(new, _)| new == id).map_or(IfaceId::OTHER, |(_, old)| *old);
            }
        };
        after.interfaces.iter_mut().for_each(|interface| number(&mut interface.id));
        after.rules.iter_mut().flat_map(|rule| &mut rule.interfaces).for_each(number);
        back
    }

    /// An interface takes the place of a spare one.
    fn add(&mut self, now: Instant, interface: &Interface, done: &mut Reconfigured) {
        done.apply(true, &format!("{} {}", kind(interface), interface.name), || {});
        let Some(spare) = self.told.interfaces.iter_mut().find(|i| i.id == interface.id) else { return };
        interface.name.clone_into(&mut spare.name);
        let (Some(old), Some(link)) = (&mut spare.link, &interface.link) else { return };
        // Which protocols are XCP's packets are asked from the start on.
        done.leave(old.xcp_shim != link.xcp_shim, &format!("link.{}.xcp_form", link.name));
        let link = &Link { xcp_shim: old.xcp_shim, ..link.clone() };
        old.clone_from(link);
        let way = self.outlet.way(interface.id);
        let common = (self.told.limits.pool_bytes, self.outlet.places());
        if let Some(queue) = self.outlet.link_mut(way) {
            *queue = LinkQueue::new(queue.id(), interface, link, common);
        }
        self.engine.begin_link(way, link);
        self.impose(now, way, link);
    }

    /// All that can be changed of a link is as it is here.
    fn impose(&mut self, now: Instant, way: Way, link: &Link) {
        if let Some(queue) = self.outlet.link_mut(way) {
            queue.look_at_rate(link);
        }
        self.engine.apply(now, way, Change::Rate(link.rate_bps));
        let controller = (!link.estimate_rate).then_some(link.leg.cc);
        self.engine.apply(now, way, Change::Controller(controller));
        self.follow_rate_source(now, way);
        self.engine.apply(now, way, Change::InitialWindow(link.leg.initial_window));
        self.engine.set_link_action(way, link.action);
        self.engine.set_xcp_context(way, link.xcp_context);
        self.engine.set_copies(way, link.copies);
        self.engine.set_metered(way, link.is_metered);
        self.actions_changed = true;
    }

    fn change_whole(&mut self, now: Instant, before: &Config, after: &Config, done: &mut Reconfigured) {
        let engine = &mut self.engine;
        let (old, new) = (&before.limits, &after.limits);
        let bounds = |limits: &Limits| (limits.relay_bytes, limits.relay_follows_link);
        done.apply(bounds(old) != bounds(new), "limits.relay_bytes", || {
            engine.set_relay_bytes(new.relay_bytes, new.relay_follows_link);
        });
        done.apply(old.pool_bytes != new.pool_bytes, "limits.pool_bytes", || {
            engine.set_pool_bytes(new.pool_bytes);
        });
        done.leave(old.flows_max != new.flows_max, "limits.flows_max");
        done.leave(old.half_open_max != new.half_open_max, "limits.half_open_max");
        done.leave(old.reassembly_bytes != new.reassembly_bytes, "limits.reassembly_bytes");
        done.leave(old.challenge_acks_per_s != new.challenge_acks_per_s, "limits.challenge_acks_per_s");
        done.leave(before.timers != after.timers, "timers");
        let (old, new) = (&before.ordinary, &after.ordinary);
        done.apply(old.cc != new.cc, "ordinary.cc", || engine.set_ordinary_cc(now, new.cc));
        done.apply(old.initial_window != new.initial_window, "ordinary.initial_window", || {
            engine.set_ordinary_initial_window(new.initial_window);
        });
        done.leave(old.unfair_window_bytes != new.unfair_window_bytes, "ordinary.unfair_window");
        done.leave(before.custody_notice != after.custody_notice, "custody_notice");
        done.leave(before.pinned != after.pinned, "pinned");
        done.leave(before.identity != after.identity, "gateway_id");
        done.apply(before.flow_control != after.flow_control, "flow_control.policy", || {
            engine.set_flow_control(after.flow_control);
        });
        done.apply(before.soft_window != after.soft_window, "flow_control.soft_window", || {
            engine.set_soft_window(after.soft_window);
        });
        done.apply(before.queue_drop != after.queue_drop, "flow_control.queue_drop", || {
            engine.set_queue_drop(after.queue_drop);
        });
        done.apply(before.send_ahead != after.send_ahead, "send_ahead", || {
            engine.set_send_ahead(None, after.send_ahead);
        });
    }

    fn change_interface(
        &mut self,
        now: Instant,
        before: &Interface,
        after: &Interface,
        done: &mut Reconfigured,
    ) {
        done.leave(before.domain != after.domain, &format!("interface {}: its domain", after.name));
        if let (Some(old), Some(new)) = (&before.link, &after.link) {
            self.change_link(now, self.outlet.way(before.id), old, new, done);
        }
    }

    fn change_link(&mut self, now: Instant, way: Way, before: &Link, after: &Link, done: &mut Reconfigured) {
        let key = |what: &str| format!("link.{}.{what}", before.name);
        if let Some(queue) = self.outlet.link_mut(way) {
            queue.look_at_rate(after);
        }
        done.apply(before.is_metered != after.is_metered, &key("metered"), || {
            self.engine.set_metered(way, after.is_metered);
        });
        let is_declared = after.rate_bps.is_some();
        done.apply(before.corrects_rate != after.corrects_rate, &key("rate_correction"), || {
            if is_declared {
                self.follow_rate_source(now, way);
            }
        });
        done.apply(before.rate_max_bps != after.rate_max_bps, &key("rate_max"), || {
            if !is_declared {
                self.follow_rate_source(now, way);
            }
        });
        done.apply(before.rate_bps != after.rate_bps, &key("rate"), || {
            self.engine.apply(now, way, Change::Rate(after.rate_bps));
            self.follow_rate_source(now, way);
        });
        let [old, new] = [before, after].map(|link| (!link.estimate_rate).then_some(link.leg.cc));
        done.apply(old != new, &key("cc"), || {
            self.engine.apply(now, way, Change::Controller(new));
            self.follow_rate_source(now, way);
        });
        let [old, new] = [before, after].map(|link| link.leg.initial_window);
        done.apply(old != new, &key("initial_window"), || {
            self.engine.apply(now, way, Change::InitialWindow(new));
        });
        done.apply(before.action != after.action, &key("action"), || {
            self.engine.set_link_action(way, after.action);
            self.actions_changed = true;
        });
        done.apply(before.is_half_duplex != after.is_half_duplex, &key("duplex"), || {
            if let Some(link) = self.outlet.link_mut(way) {
                link.set_half_duplex(after.is_half_duplex);
            }
            self.engine.set_half_duplex(way, after.is_half_duplex);
            self.follow_duplex(now, way);
        });
        done.apply(before.xcp_weights != after.xcp_weights, &key("xcp_weights"), || {
            if let Some(link) = self.outlet.link_mut(way) {
                link.set_xcp_weights(now, after.xcp_weights);
            }
        });
        let differs = |which: fn(Weights) -> u32| before.weights.map(which) != after.weights.map(which);
        let weights = (differs(|weights| weights.split), differs(|weights| weights.forwarded));
        for (what, differs) in [("split_weight", weights.0), ("forwarded_weight", weights.1)] {
            done.apply(differs, &key(what), || {
                if let Some(link) = self.outlet.link_mut(way) {
                    link.set_weights(after.weights);
                }
            });
        }
        done.apply(before.xcp_context != after.xcp_context, &key("xcp_context"), || {
            self.engine.set_xcp_context(way, after.xcp_context);
        });
        done.apply(before.copies != after.copies, &key("early_repetition"), || {
            self.engine.set_copies(way, after.copies);
        });
        done.apply(before.byte_budget != after.byte_budget, &key("budget"), || {});
        for (what, differs) in at_restart(before, after) {
            done.leave(differs, &key(what));
        }
    }
}

/// What an interface is called in messages.
fn kind(interface: &Interface) -> &'static str {
    if interface.link.is_some() { "link at" } else { "interface" }
}

/// Whether this one may have the place of a spare interface. A link is made anew there.
fn may_become(spare: &Interface, wanted: &Interface) -> bool {
    spare.link.is_some() == wanted.link.is_some() && spare.domain == wanted.domain
}

/// What holds after a change: what is left for a restart is as before, and differs the next time,
/// too.
fn in_force(before: &Config, after: &Config) -> Config {
    let limits = Limits {
        relay_bytes: after.limits.relay_bytes,
        relay_follows_link: after.limits.relay_follows_link,
        pool_bytes: after.limits.pool_bytes,
        ..before.limits.clone()
    };
    let ordinary = LegConfig {
        cc: after.ordinary.cc,
        initial_window: after.ordinary.initial_window,
        ..before.ordinary.clone()
    };
    Config {
        limits,
        ordinary,
        rules: after.rules.clone(),
        default_action: after.default_action,
        dscps: after.dscps,
        flow_control: after.flow_control,
        soft_window: after.soft_window,
        queue_drop: after.queue_drop,
        send_ahead: after.send_ahead,
        ..before.clone()
    }
}

fn interface_in_force(old: &Interface, after: &Config) -> Interface {
    let new = after.interfaces.iter().find(|new| new.id == old.id);
    let link = match (&old.link, new.and_then(|new| new.link.as_ref())) {
        (Some(old), Some(new)) => Some(link_in_force(old, new)),
        _ => old.link.clone(),
    };
    Interface { link, ..old.clone() }
}

fn link_in_force(before: &Link, after: &Link) -> Link {
    Link {
        rate_bps: after.rate_bps,
        estimate_rate: after.estimate_rate,
        rate_max_bps: after.rate_max_bps,
        corrects_rate: after.corrects_rate,
        is_metered: after.is_metered,
        byte_budget: after.byte_budget,
        reconfigures: after.reconfigures,
        leg: LegConfig { cc: after.leg.cc, initial_window: after.leg.initial_window, ..before.leg.clone() },
        action: after.action,
        is_half_duplex: after.is_half_duplex,
        xcp_weights: after.xcp_weights,
        weights: after.weights,
        xcp_context: after.xcp_context,
        copies: after.copies,
        ..before.clone()
    }
}

/// What of a link holds only from its start on, and whether it differs.
fn at_restart(before: &Link, after: &Link) -> [(&'static str, bool); 10] {
    [
        ("name", before.name != after.name),
        ("rate_in", before.rate_in_bps != after.rate_in_bps),
        ("rtt", before.rtt != after.rtt),
        ("overhead_bytes", before.overhead_bytes != after.overhead_bytes),
        ("oversize", before.oversize != after.oversize),
        ("xcp_router", before.is_xcp_router != after.is_xcp_router),
        ("xcp_sources", before.explicit != after.explicit),
        ("xcp_form", before.xcp_shim != after.xcp_shim),
        ("window_bytes", before.leg.unfair_window_bytes != after.leg.unfair_window_bytes),
        ("ack_filter", before.ack_filter != after.ack_filter),
    ]
}
