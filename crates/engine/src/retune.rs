//! What the engine can be told while it runs, beside links going up and down.

use farlink_cc as cc;
use farlink_wire::Instant;

use crate::changed::Changed;
use crate::config::{
    self, Action, Copies, DscpClasses, FlowControl, InitialWindow, LinkAction, Rule, SendAhead, XcpContext,
};
use crate::engine::Engine;
use crate::flow_id::FlowId;
use crate::link::{Change, Clock, Dated, Link, PairId, PairShare, RateSource};
use crate::net::Way;
use crate::promise::Promise;
use crate::world::World;

impl Engine {
    /// Ends draining, complete or not: new connections are split again.
    pub fn end_drain(&mut self) {
        self.draining = false;
        self.tell_all(Changed::DrainEnded);
    }

    /// Names of the rules, in their order.
    pub fn rule_names(&self) -> impl Iterator<Item = &str> {
        self.rules.names()
    }

    /// What the rule of this name does with connections, or without a name the default. `None`:
    /// there is no such rule.
    #[must_use]
    pub fn action_of(&self, rule: Option<&str>) -> Option<Action> {
        self.rules.action(self.rules.find(rule)?)
    }

    /// It does something else from now on: with connections that begin, and after
    /// [`Engine::follow_actions`] with those that are open.
    pub fn set_action(&mut self, rule: Option<&str>, action: Action) {
        if let Some(rule) = self.rules.find(rule) {
            self.rules.set_action(rule, action);
        }
    }

    /// Other rules from now on. Open connections stay as they are, under the rule of the same name
    /// or, where there is none, under the default; after [`Engine::follow_actions`] they are split
    /// or in custody mode as that says.
    pub fn set_rules(&mut self, rules: Vec<Rule>, default_action: Action) {
        let moved = self.rules.replace(&rules, default_action);
        (self.config.rules, self.config.default_action) = (rules, default_action);
        for id in self.table.ids() {
            if let Some(flow) = self.table.get_mut(id) {
                flow.rule = moved.of(flow.rule);
            }
        }
        self.syns.move_rules(&moved);
    }

    /// Other classes for DSCPs from now on.
    pub fn set_dscps(&mut self, dscps: DscpClasses) {
        self.config.dscps = dscps;
    }

    /// What is done with a connection of this rule that takes these ways. Where it is the default,
    /// and that takes part in it, a link on the way has a word of its own.
    pub(crate) fn action_over(&self, now: Instant, rule: usize, ways: [Way; 2]) -> Option<Action> {
        let action = self.rules.action(rule);
        if self.rules.find(None) != Some(rule) || !action.is_some_and(Action::is_split) {
            return action;
        }
        let said = ways.into_iter().filter_map(|way| self.links.get(way)?.action(now));
        said.max_by_key(|action| action.custody().is_some()).or(action)
    }

    /// What is done with connections over a link that no rule names, from now on.
    pub fn set_link_action(&mut self, way: Way, action: Option<LinkAction>) {
        if let Some(link) = self.links.get_mut(way) {
            link.set_action(action);
        }
    }

    /// Both directions of a link take turns, or not: the gateway at its other end hears it.
    pub fn set_half_duplex(&mut self, way: Way, is_half_duplex: bool) {
        if let Some(link) = self.links.get_mut(way) {
            link.set_half_duplex(is_half_duplex);
        }
    }

    /// Open connections are split from now on, or in custody mode, as their rules and links say
    /// now. What has been promised stays owed.
    pub fn follow_actions(&mut self, now: Instant, net: &mut dyn World) {
        for id in self.table.ids() {
            let Some(flow) = self.table.get(id) else { continue };
            let action = self.action_over(now, flow.rule, [flow.legs.a.out, flow.legs.b.out]);
            let Some(action) = action.filter(|a| a.is_split()) else { continue };
            let Some(flow) = self.table.get_mut(id) else { continue };
            let promise = Promise::of(action.custody(), self.config.pinned, flow.agreed);
            if flow.change_promise(promise) {
                self.after_event(now, id, net);
            }
        }
    }

    /// Something about a link has changed; ordinary interfaces only come and go.
    pub fn apply(&mut self, now: Instant, way: Way, change: Change) {
        if let Change::Up(witness, up) = change {
            return self.links.tell(now, way, witness, up);
        }
        let Some(link) = self.links.get_mut(way) else { return };
        let before = link.pace();
        let after = change.of(before);
        // What open connections go by. What the gateways find out, and are to find out, is for
        // those that begin from now on.
        let source = match change {
            Change::Estimate(_) => before.source(),
            _ if after.source().is_sought() => RateSource::Nobody,
            _ => after.source(),
        };
        match change {
            Change::Up(..) => {}
            Change::InitialWindow(window) => link.set_initial_window(window),
            Change::Rate(_) => {
                link.forget();
                self.set_rate_source(way, source);
                self.tell_all(Changed::Rate(way));
                self.go_on_governed(now, way);
            }
            // Asked with every batch of packets, and seldom news.
            Change::Estimate(_) | Change::Carried(_) if after == before => return,
            Change::Estimate(_) | Change::Carried(_) => {}
            Change::Controller(_) => self.set_rate_source(way, source),
        }
        if after.clock() != before.clock() {
            self.set_clock(now, way, after.clock());
        }
        self.set_rate_source(way, after.source());
        let carried = matches!(change, Change::Carried(_));
        if carried && self.links.get_mut(way).is_some_and(Link::is_rate_news) {
            self.tell_all(Changed::Carried(way));
        }
    }

    fn set_rate_source(&mut self, way: Way, source: RateSource) {
        if let Some(link) = self.links.get_mut(way) {
            link.set_rate_source(source);
        }
    }

    fn set_clock(&mut self, now: Instant, way: Way, clock: Clock) {
        if let Some(link) = self.links.get_mut(way) {
            link.set_clock(clock);
        }
        self.change_controllers(Changed::Controller(now, way));
        self.go_on_governed(now, way);
    }

    /// Another controller governs open connections.
    fn change_controllers(&mut self, changed: Changed) {
        for id in self.table.ids() {
            if self.tell(id, changed) {
                self.census.note(&mut self.table, id);
            }
        }
    }

    /// What has changed round open connections.
    pub(crate) fn tell_all(&mut self, changed: Changed) {
        for id in self.table.ids() {
            self.tell(id, changed);
        }
    }

    /// What has changed round a connection. Returns whether that concerns it.
    pub(crate) fn tell(&mut self, id: FlowId, changed: Changed) -> bool {
        self.table.get_mut(id).is_some_and(|flow| flow.on_change(&self.config, &self.links, changed))
    }

    /// The smallest round trip of any connection over a link of late, where nobody has said one, is
    /// in force from now on.
    pub fn follow_link_rtt(&mut self, way: Way) {
        if let Some(link) = self.links.get_mut(way) {
            link.follow_rtt();
        }
    }

    /// Another satellite has taken over: the link has another delay and another rate. No round trip
    /// across that counts.
    pub fn begin_phase(&mut self, now: Instant, way: Way) {
        if let Some(link) = self.links.get_mut(way) {
            link.begin_phase(now);
            self.tell_all(Changed::Phase(now, way));
        }
    }

    /// What a link brings may have been told, or found out, since this was last called: open
    /// connections go by it from now on.
    pub fn follow_link_rate_in(&mut self, way: Way) {
        if self.links.get_mut(way).is_some_and(Link::is_rate_in_news) {
            self.tell_all(Changed::Brings(way));
        }
    }

    /// Acknowledgements have shown once that a link brings so much: a first guess.
    pub fn recall_link_rate_in(&mut self, way: Way, once: Dated) {
        if let Some(link) = self.links.get_mut(way) {
            link.recall_rate_in(once);
        }
    }

    /// From now on `kind` governs what is sent on legs that are no links, in connections that are
    /// open too.
    pub fn set_ordinary_cc(&mut self, now: Instant, kind: cc::Kind) {
        self.config.ordinary.cc = kind;
        self.change_controllers(Changed::OrdinaryController(now));
    }

    /// The initial window of connections that begin from now on, on legs that are no links.
    pub fn set_ordinary_initial_window(&mut self, window: InitialWindow) {
        self.config.ordinary.initial_window = window;
    }

    /// How relays are bounded from now on, those of open connections, too. Windows that were shown
    /// stay promised.
    pub fn set_flow_control(&mut self, policy: FlowControl) {
        self.config.flow_control = policy;
        self.tell_all(Changed::RelayBytes);
    }

    /// What one relay may hold from now on, those of open connections, too. Windows that were shown
    /// stay promised: with a smaller bound a relay holds what it holds until that has gone on.
    /// `follows_link`: over a link that holds more it may be more ([`Limits::relay_bytes_over`]).
    pub fn set_relay_bytes(&mut self, bytes: u32, follows_link: bool) {
        self.config.limits.relay_bytes = bytes;
        self.config.limits.relay_follows_link = follows_link;
        self.tell_all(Changed::RelayBytes);
    }

    /// How large the buffer pool is from now on. What is held above a smaller bound goes on first:
    /// until then no new connection is split and no window moves.
    pub fn set_pool_bytes(&mut self, bytes: usize) {
        self.config.limits.pool_bytes = bytes;
        self.links.set_pool_bytes(bytes);
        self.syns.set_pool_bytes(bytes);
        self.share_memory();
    }

    /// Whether small windows are waited for, under the rule of this name, or without a name where
    /// no rule says it.
    #[must_use]
    pub fn send_ahead(&self, rule: Option<&str>) -> SendAhead {
        let of_rule = rule.and_then(|name| self.config.rules.iter().find(|r| r.name == name)?.send_ahead);
        of_rule.unwrap_or(self.config.send_ahead)
    }

    /// The same from now on, for open connections, too. A rule that does not exist changes nothing.
    pub fn set_send_ahead(&mut self, rule: Option<&str>, ahead: SendAhead) {
        match rule {
            None => self.config.send_ahead = ahead,
            Some(name) => {
                let of_name = self.config.rules.iter_mut().filter(|r| r.name == name);
                of_name.for_each(|r| r.send_ahead = Some(ahead));
            }
        }
    }

    /// Whether gateways tell each other what they will be able to pass on, from now on.
    pub fn set_soft_window(&mut self, on: bool) {
        self.config.soft_window = on;
    }

    /// Whether hosts that send too fast lose one segment in a window, from now on.
    pub fn set_queue_drop(&mut self, on: bool) {
        self.config.queue_drop = on;
    }

    /// What the queues of links have to know of pairs of gateways, and have not been told; `None`:
    /// there is no such pair any more.
    pub fn news_of_pairs(&mut self, now: Instant) -> Vec<(Way, PairId, Option<PairShare>)> {
        self.links.news_of_pairs(now)
    }

    /// The queue of a link has no place for this pair: its flows go by their own clocks.
    pub fn refuse_pair(&mut self, way: Way, id: PairId) {
        self.links.refuse_pair(way, id);
    }

    /// Whether what may be lost is sent into a link again before that is known, from now on.
    pub fn set_copies(&mut self, way: Way, copies: Copies) {
        if let Some(link) = self.links.get_mut(way) {
            link.set_copies(copies == Copies::Off);
        }
    }

    /// A link takes the place of one that nothing leaves by any more.
    pub fn begin_link(&mut self, way: Way, link: &config::Link) {
        self.links.begin(&self.config, way, link);
    }

    /// Whether nothing is sent into a link that may be in vain, because its bytes cost money, from
    /// now on.
    pub fn set_metered(&mut self, way: Way, is_metered: bool) {
        if let Some(link) = self.links.get_mut(way) {
            link.set_metered(is_metered);
        }
    }

    /// Whether flows to the same gateway share one allowance on a link, from now on, those of open
    /// connections, too.
    pub fn set_xcp_context(&mut self, way: Way, by: XcpContext) {
        if let Some(link) = self.links.get_mut(way) {
            link.set_xcp_context(by);
        }
    }
}
