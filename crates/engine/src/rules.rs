//! What is split: the first rule that matches a SYN decides, and counts.

use core::net::IpAddr;

use farlink_wire::TcpSegment;

use crate::config::{Action, Class, Config, Rule};
use crate::net::IfaceId;
use crate::status::RuleStatus;

/// A decision.
#[derive(Clone, Copy, Debug)]
pub struct Decision {
    /// What happens.
    pub action: Action,
    /// Which rule said so; the number of rules for the default.
    pub rule: usize,
    /// Class of the connection's data.
    pub class: Class,
}

/// The rules and their counters.
#[derive(Debug)]
pub struct Rules {
    rules: Vec<Rule>,
    default_action: Action,
    counters: Vec<RuleStatus>,
}

impl Rules {
    /// Of a configuration.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let name = |n: &str| RuleStatus { name: n.to_owned(), ..RuleStatus::default() };
        let counters = config.rules.iter().map(|r| name(&r.name)).chain([name("default")]).collect();
        Self { rules: config.rules.clone(), default_action: config.default_action, counters }
    }

    /// What becomes of the connection that this SYN asks for. `replaced`: the rule of one between the same ports, whose place
    /// it takes.
    pub fn decide(&mut self, via: IfaceId, s: &TcpSegment, replaced: Option<usize>) -> Decision {
        let index = self.rules.iter().position(|r| matches(r, via, s)).unwrap_or(self.rules.len());
        let rule = self.rules.get(index);
        let mut action = rule.map_or(self.default_action, |r| r.action);
        let class = rule.map_or(Class::Bulk, |r| r.class);
        if let Some(c) = self.counters.get_mut(index) {
            c.connections += 1;
            if let Some(r) = rule
                && action == Action::Split
                && r.connections_max
                    .is_some_and(|max| c.open >= u64::from(max) + u64::from(replaced == Some(index)))
            {
                c.over_limit += 1;
                action = r.over_limit;
            }
        }
        Decision { action, rule: index, class }
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
    /// It relayed payload.
    pub fn relayed(&mut self, rule: usize, bytes: u64) {
        if let Some(c) = self.counters.get_mut(rule) {
            c.bytes += bytes;
        }
    }
    /// Counters.
    #[must_use]
    pub fn status(&self) -> Vec<RuleStatus> {
        self.counters.clone()
    }
    /// Name of a rule.
    #[must_use]
    pub fn name(&self, rule: usize) -> String {
        self.counters.get(rule).map_or_else(String::new, |c| c.name.clone())
    }
}

fn matches(r: &Rule, via: IfaceId, s: &TcpSegment) -> bool {
    let Rule { interfaces, sources, destinations, ports, dscps, .. } = r;
    (interfaces.is_empty() || interfaces.contains(&via))
        && (sources.is_empty() || sources.iter().any(|p| in_prefix(s.ip.src, *p)))
        && (destinations.is_empty() || destinations.iter().any(|p| in_prefix(s.ip.dst, *p)))
        && (ports.is_empty() || ports.iter().any(|(lo, hi)| (*lo..=*hi).contains(&s.dst_port)))
        && (dscps.is_empty() || dscps.contains(&s.ip.dscp()))
}

/// Whether an address lies in a prefix of the same family.
#[must_use]
pub fn in_prefix(addr: IpAddr, (net, len): (IpAddr, u8)) -> bool {
    match (addr, net) {
        (IpAddr::V4(a), IpAddr::V4(n)) => {
            let shift = 32 - u32::from(len.min(32));
            (u64::from(a.to_bits()) >> shift) == (u64::from(n.to_bits()) >> shift)
        }
        (IpAddr::V6(a), IpAddr::V6(n)) => {
            let shift = 128 - u32::from(len.min(128));
            a.to_bits().checked_shr(shift).unwrap_or(0) == n.to_bits().checked_shr(shift).unwrap_or(0)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_of_every_length() {
        let p = |s: &str| s.parse::<IpAddr>().unwrap();
        assert!(in_prefix(p("10.1.2.3"), (p("10.0.0.0"), 8)));
        assert!(!in_prefix(p("11.1.2.3"), (p("10.0.0.0"), 8)));
        assert!(in_prefix(p("1.2.3.4"), (p("0.0.0.0"), 0)));
        assert!(in_prefix(p("1.2.3.4"), (p("1.2.3.4"), 32)));
        assert!(in_prefix(p("fd00::1"), (p("fd00::"), 64)));
        assert!(!in_prefix(p("fd01::1"), (p("fd00::"), 64)));
        assert!(in_prefix(p("::1"), (p("::"), 0)));
        assert!(!in_prefix(p("1.2.3.4"), (p("::"), 0)));
    }
}
