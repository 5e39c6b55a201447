//! What is split: the first rule that matches a SYN decides, and counts.

use farlink_wire::TcpSegment;

use crate::classes::Label;
use crate::config::{Action, Class, Config, Rule};
use crate::net::IfaceId;
use crate::passed::{PASSED_MAX, Passed};
use crate::status::RuleStatus;
use crate::table::Key;

/// A decision.
#[derive(Clone, Copy, Debug)]
pub struct Decision {
    /// What happens.
    pub action: Action,
    /// Which rule said so; the number of rules for the default.
    pub rule: usize,
    /// Class of the connection's data; `None`: by its DSCP.
    pub class: Option<Class>,
    /// The SYN is no repetition of one that was passed by or refused.
    pub is_first: bool,
}

impl Decision {
    /// It is split, under no rule.
    pub const SPLIT: Self = Self { action: Action::Split, rule: usize::MAX, class: None, is_first: true };
}

/// Where rules have gone when others took their place.
#[derive(Debug)]
pub struct Moved(Vec<usize>);

impl Moved {
    /// The number of the rule that connections of this one fall under now. What fell under none
    /// still does.
    #[must_use]
    pub fn of(&self, rule: usize) -> usize {
        self.0.get(rule).copied().unwrap_or(rule)
    }
}

/// The name of what no rule names.
const DEFAULT: &str = "default";

fn counter(name: &str) -> RuleStatus {
    RuleStatus { name: name.to_owned(), ..RuleStatus::default() }
}

/// The rules and their counters.
#[derive(Debug)]
pub struct Rules {
    rules: Vec<Rule>,
    default_action: Action,
    counters: Vec<RuleStatus>,
    passed: Passed,
}

impl Rules {
    /// Of a configuration.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let counters = config.rules.iter().map(|r| counter(&r.name)).chain([counter(DEFAULT)]).collect();
        let passed = Passed::new(PASSED_MAX, config.seed);
        Self { rules: config.rules.clone(), default_action: config.default_action, counters, passed }
    }

    /// Other rules from now on. What has been counted goes on under the same name. Returns where
    /// the old ones have gone, the default last: to the rule of the same name, or to the default.
    pub fn replace(&mut self, rules: &[Rule], default_action: Action) -> Moved {
        let default = rules.len();
        let to = |old: &Rule| rules.iter().position(|new| new.name == old.name).unwrap_or(default);
        let moved = Moved(self.rules.iter().map(to).chain([default]).collect());
        let mut counters: Vec<_> = rules.iter().map(|rule| counter(&rule.name)).collect();
        counters.push(counter(DEFAULT));
        for (old, to) in self.counters.drain(..).zip(&moved.0) {
            if let Some(new) = counters.get_mut(*to) {
                new.add(&old);
            }
        }
        (self.rules, self.default_action, self.counters) = (rules.to_vec(), default_action, counters);
        self.passed.move_rules(|rule| moved.of(rule));
        moved
    }

    /// What becomes of the connection that this SYN asks for. One that is repeated does not count
    /// again. `replaced`: the rule of one between the same ports, whose place it takes.
    pub fn decide(&mut self, via: IfaceId, key: Key, s: &TcpSegment, replaced: Option<usize>) -> Decision {
        let before = self.passed.decided(&key, s.seq);
        let mut d = Decision { is_first: before.is_none(), ..Decision::SPLIT };
        if let Some((rule, Action::Pass)) = before {
            // The hosts are on their own already.
            return Decision { action: Action::Pass, rule, ..d };
        }
        let label = Label::of(s);
        d.rule = self.rules.iter().position(|r| r.matches(via, &label)).unwrap_or(self.rules.len());
        let rule = self.rules.get(d.rule);
        d.action = rule.map_or(self.default_action, |r| r.action);
        d.class = rule.and_then(|r| r.class);
        if let Some(c) = self.counters.get_mut(d.rule) {
            c.connections += u64::from(d.is_first);
            if let Some(r) = rule
                && d.action.is_split()
                && r.connections_max
                    .is_some_and(|max| c.open >= u64::from(max) + u64::from(replaced == Some(d.rule)))
            {
                c.over_limit += u64::from(d.is_first);
                d.action = r.over_limit;
            }
        }
        if d.action.is_split() {
            self.passed.forget(&key);
        } else {
            self.passed.begin(key, s.seq, d.rule, d.action);
        }
        if d.action == Action::Pass {
            self.carried(d.rule, s.payload_len as u64);
        }
        d
    }

    /// A segment of a connection that is not split goes on.
    pub fn pass_by(&mut self, key: &Key, from_low: bool, s: &TcpSegment) {
        if let Some(rule) = self.passed.rule_of(key, from_low, s) {
            self.carried(rule, s.payload_len as u64);
        }
    }

    /// Memory of connections that are followed though they are not split, bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.passed.memory_bytes()
    }

    /// A connection was split under a rule.
    pub fn opened(&mut self, rule: usize) {
        if let Some(c) = self.counters.get_mut(rule) {
            c.open += 1;
        }
    }
    /// It is gone.
    pub fn closed(&mut self, rule: usize) {
        if let Some(c) = self.counters.get_mut(rule) {
            c.open = c.open.saturating_sub(1);
        }
    }
    /// A connection under a rule carried payload, split or not.
    pub fn carried(&mut self, rule: usize, bytes: u64) {
        if let Some(c) = self.counters.get_mut(rule) {
            c.bytes += bytes;
        }
    }
    /// Counters.
    #[must_use]
    pub fn status(&self) -> Vec<RuleStatus> {
        self.counters.clone()
    }
    /// What a rule does with connections, or the default; `None`: there is no such rule.
    #[must_use]
    pub fn action(&self, rule: usize) -> Option<Action> {
        let default = (rule == self.rules.len()).then_some(self.default_action);
        self.rules.get(rule).map(|r| r.action).or(default)
    }
    /// What it does from now on.
    pub fn set_action(&mut self, rule: usize, action: Action) {
        match self.rules.get_mut(rule) {
            Some(r) => r.action = action,
            None => self.default_action = action,
        }
    }
    /// The number of the rule of this name, or without a name that of the default.
    #[must_use]
    pub fn find(&self, name: Option<&str>) -> Option<usize> {
        name.map_or(Some(self.rules.len()), |name| self.rules.iter().position(|r| r.name == name))
    }
    /// Names of the rules, in their order. The default comes after them.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.rules.iter().map(|r| r.name.as_str())
    }
    /// Name of a rule.
    #[must_use]
    pub fn name(&self, rule: usize) -> String {
        self.counters.get(rule).map_or_else(String::new, |c| c.name.clone())
    }
}
