//! What diversion consists of: names, marks, tables, and the nftables rules. Pure data; nothing is
//! applied here.

use super::method::Method;
use super::nft::{
    Builder, Expr, Hook, Operation, Script, Statement, and, equal, field, meta, or, prefix, set, text,
};
use super::selection::{Selection, TCP, is, is_no_tcp};
use crate::error::{Error, Result};
use crate::netlink::{Family, Route, Rule};

/// Before nf_defrag (-400) and conntrack (-200): TCP fragments are seen as they came, and what is
/// diverted is not tracked twice.
const PRIORITY: i32 = -450;
/// Marks our routes and rules as made by us (RTPROT_...; 192 to 254 are nobody's).
pub(crate) const PROTOCOL: u8 = 0xFA;

/// Hooks of ours that only count come before everybody's rules, or after them.
const FIRST: i32 = -450;
const LAST: i32 = 500;

/// So that "farlink", the instance and a number stay within the 15 bytes of an interface name.
const INSTANCE_BYTES_MAX: usize = 6;

/// One interface of whose incoming traffic something is diverted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diverted {
    /// The real interface.
    pub interface: String,
    /// Name of its TUN.
    pub tun: String,
    /// Number of its TUN.
    pub tun_index: u32,
}

/// Everything about diversion that an operator may choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DivertConfig {
    /// Tells several daemons on one machine apart; empty for the only one. Letters and digits.
    pub instance: String,
    /// Bits of the packet mark that are ours; all others are left as they are. One contiguous run
    /// of bits.
    pub mark_mask: u32,
    /// First routing table; one per interface from here on.
    pub table_base: u32,
    /// Priority of the policy-routing rules: after `local` (0), before everybody else's.
    pub rule_priority: u32,
    /// Which traffic is diverted.
    pub selections: Vec<Selection>,
    /// Interfaces of which everything that leaves by them is taken, too, once the rate of their
    /// link is known.
    pub whole_when_known: Vec<String>,
    /// By which means.
    pub method: Method,
    /// Interfaces that get a bump, where that is the means; none: the links.
    pub attach: Vec<String>,
}

impl Default for DivertConfig {
    /// Numbers that neither the usual VPN, container nor multi-WAN software uses by default.
    fn default() -> Self {
        Self {
            instance: String::new(),
            mark_mask: 0x7f00_0000,
            table_base: 51_000,
            rule_priority: 500,
            selections: Selection::tcp(),
            whole_when_known: Vec::new(),
            method: Method::default(),
            attach: Vec::new(),
        }
    }
}

impl DivertConfig {
    /// Name of the nftables table.
    #[must_use]
    pub fn table_name(&self) -> String {
        if self.instance.is_empty() { "farlink".to_owned() } else { format!("farlink_{}", self.instance) }
    }

    /// What an instance may be called, in words.
    pub const INSTANCE_NAMES: &str = "at most 6 letters and digits, the last one a letter";

    /// Whether an instance may be called so. The numbers of its devices stand behind its name: if
    /// that ended in a digit, `farlink10` would be a device of two instances.
    #[must_use]
    pub fn can_name_instance(name: &str) -> bool {
        name.len() <= INSTANCE_BYTES_MAX
            && name.chars().all(|c| c.is_ascii_alphanumeric())
            && !name.ends_with(|c: char| c.is_ascii_digit())
    }

    /// Name of the `n`-th TUN.
    #[must_use]
    pub fn tun_name(&self, n: usize) -> String {
        format!("farlink{}{n}", self.instance)
    }

    /// The number of a TUN, by its name; `other` if it is none of this instance.
    #[must_use]
    pub fn tun_number(&self, name: &str, other: usize) -> usize {
        let number = name.strip_prefix("farlink").and_then(|rest| rest.strip_prefix(&self.instance));
        number.and_then(|number| number.parse().ok()).unwrap_or(other)
    }

    /// How many interfaces the mask and the tables have room for.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        (self.mark_mask >> self.mark_mask.trailing_zeros().min(31)).min(4096)
    }

    /// Everything that leaves by some interface is diverted, whatever it is.
    #[must_use]
    pub fn takes_everything(&self) -> bool {
        self.selections.iter().any(Selection::is_whole)
    }

    /// The IP protocols besides TCP of which packets are diverted wherever they go: those that
    /// stand for XCP's own header.
    #[must_use]
    pub fn shims(&self) -> Vec<u8> {
        let protocols = self.selections.iter().filter_map(|s| match s {
            Selection::Protocol(protocol) if *protocol != TCP => Some(*protocol),
            _ => None,
        });
        protocols.collect()
    }

    /// The interfaces of which that is so.
    pub fn whole_interfaces(&self) -> impl Iterator<Item = &str> {
        self.selections.iter().filter_map(|s| match s {
            Selection::LeavesBy(interface) => Some(interface.as_str()),
            _ => None,
        })
    }

    /// Everything is diverted that leaves by these interfaces, and by no others.
    pub(crate) fn take_all_of(&mut self, interfaces: &[String]) {
        self.selections.retain(|selection| !selection.is_whole());
        self.selections.extend(interfaces.iter().cloned().map(Selection::LeavesBy));
    }

    pub(crate) fn tables(&self) -> std::ops::Range<u32> {
        self.table_base..self.table_base.saturating_add(self.capacity())
    }

    /// Refuses what cannot work.
    pub fn check(&self) -> Result<()> {
        let shifted = self.mark_mask >> self.mark_mask.trailing_zeros().min(31);
        if self.mark_mask == 0 || shifted & shifted.wrapping_add(1) != 0 {
            return Err(Error::Refused(format!(
                "mark_mask {:#010x} must be one run of one bits, such as 0x7f000000",
                self.mark_mask
            )));
        }
        if self.tables().any(|t| t == 0 || (253..=255).contains(&t)) {
            return Err(Error::Refused(format!(
                "table_base {} overlaps the tables local, main or default (253 to 255)",
                self.table_base
            )));
        }
        if self.rule_priority == 0 || self.rule_priority >= 32_766 {
            return Err(Error::Refused(format!(
                "rule_priority {} must lie between the rules `local` (0) and `main` (32766)",
                self.rule_priority
            )));
        }
        if !Self::can_name_instance(&self.instance) {
            return Err(Error::Refused(format!(
                "instance \"{}\" must be {}",
                self.instance,
                Self::INSTANCE_NAMES
            )));
        }
        Ok(())
    }
}

/// Families of IP: of which something is done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Families {
    /// IPv4.
    pub v4: bool,
    /// IPv6.
    pub v6: bool,
}

impl Families {
    /// Both of them.
    pub const BOTH: Self = Self { v4: true, v6: true };
    /// None of them.
    pub const NEITHER: Self = Self { v4: false, v6: false };

    /// Whether this one is among them.
    #[must_use]
    pub const fn has(self, family: Family) -> bool {
        match family {
            Family::V4 => self.v4,
            Family::V6 => self.v6,
        }
    }
    /// The same with this one or without it.
    #[must_use]
    pub const fn with(self, family: Family, on: bool) -> Self {
        match family {
            Family::V4 => Self { v4: on, ..self },
            Family::V6 => Self { v6: on, ..self },
        }
    }
}

/// What is diverted now: what did not come out on the other side is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Now {
    /// Of which families anything; the others take the ordinary way.
    pub(crate) families: Families,
    /// Of which families everything that leaves by an interface, where that was chosen; of the
    /// others TCP alone.
    pub(crate) whole: Families,
    /// Of which families it is only being tried: of their TCP SYNs alone, whatever was chosen. If
    /// these are lost they come again, and whatever is open is left alone.
    pub(crate) trials: Families,
}

impl Now {
    /// All that was chosen.
    pub(crate) const ALL: Self =
        Self { families: Families::BOTH, whole: Families::BOTH, trials: Families::NEITHER };
}

/// Name of a counter of the `n`-th interface.
pub(crate) fn counter_name(what: &str, family: Family, n: usize) -> String {
    match family {
        Family::V4 => format!("{what}_{n}"),
        Family::V6 => format!("{what}6_{n}"),
    }
}

/// What is to be applied for a set of interfaces.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) config: DivertConfig,
    pub(crate) interfaces: Vec<Diverted>,
}

impl Plan {
    pub(crate) fn new(config: DivertConfig, interfaces: Vec<Diverted>) -> Result<Self> {
        config.check()?;
        let plan = Self { config, interfaces };
        let Self { config, interfaces } = &plan;
        if plan.numbered().any(|(n, _)| n >= config.capacity() as usize) {
            return Err(Error::Refused(format!(
                "{} interfaces are more than mark_mask {:#010x} has values for ({})",
                interfaces.len(),
                config.mark_mask,
                config.capacity()
            )));
        }
        let awaited = config.whole_when_known.iter().map(String::as_str);
        config.whole_interfaces().chain(awaited).try_for_each(check_name)?;
        for one in interfaces {
            [&one.interface, &one.tun].into_iter().try_for_each(|name| check_name(name))?;
            if interfaces.iter().filter(|o| o.interface == one.interface).count() > 1 {
                return Err(Error::Refused(format!("interface {} is named twice", one.interface)));
            }
            if interfaces.iter().any(|o| o.tun == one.interface) {
                return Err(Error::Refused(format!("{} is one of Farlink's own devices", one.interface)));
            }
        }
        Ok(plan)
    }

    /// The interfaces with their numbers, which are those of their TUNs: they stay when another
    /// interface goes.
    pub(crate) fn numbered(&self) -> impl Iterator<Item = (usize, &Diverted)> {
        self.interfaces.iter().enumerate().map(|(place, one)| (self.config.tun_number(&one.tun, place), one))
    }

    /// Mark of the `n`-th interface.
    pub(crate) fn mark(&self, n: usize) -> u32 {
        let n = u32::try_from(n).unwrap_or(u32::MAX);
        n.wrapping_add(1) << self.config.mark_mask.trailing_zeros().min(31)
    }

    fn table(&self, n: usize) -> u32 {
        self.config.table_base.saturating_add(u32::try_from(n).unwrap_or(u32::MAX))
    }

    /// One default route to each TUN, in a table of its own.
    pub(crate) fn routes(&self) -> impl Iterator<Item = Route> + '_ {
        self.numbered().flat_map(|(n, one)| {
            Family::BOTH.map(|family| Route {
                interface: Some(one.tun_index),
                table: self.table(n),
                protocol: PROTOCOL,
                ..Route::new(family)
            })
        })
    }

    /// One rule per mark and family.
    pub(crate) fn rules(&self) -> impl Iterator<Item = Rule> + '_ {
        self.numbered().flat_map(|(n, _)| {
            Family::BOTH.map(|family| Rule {
                family,
                priority: self.config.rule_priority,
                mark: self.mark(n),
                mask: self.config.mark_mask,
                table: self.table(n),
                protocol: PROTOCOL,
                selector: None,
            })
        })
    }

    /// The nftables table. `notrack`: what is diverted stays out of connection tracking, which then
    /// sees each packet once, on its way out of the TUN (so that NAT and stateful filters work as
    /// without us).
    pub(crate) fn script(&self, notrack: bool, now: Now) -> Script {
        let Now { families, mut whole, trials } = now;
        for family in Family::BOTH.into_iter().filter(|f| trials.has(*f)) {
            whole = whole.with(family, false);
        }
        let mut b = Builder::fresh_table(&self.config.table_name());
        b.counter("ip_options");
        if self.interfaces.is_empty() {
            return b.build();
        }
        // Before the base chain that refers to them.
        b.chain("choose", None);
        for (n, one) in self.numbered() {
            self.mark_chain(&mut b, n, one, notrack);
        }
        b.chain(
            "prerouting",
            Some(Hook { kind: "filter", hook: "prerouting", prio: PRIORITY, policy: "accept" }),
        );
        let names = self.interfaces.iter().map(|one| text(&one.interface)).collect();
        b.rule(
            "prerouting",
            vec![
                Statement::Match { op: "!=", left: meta("iifname"), right: set(names) },
                Statement::Return(()),
            ],
        );
        for family in Family::BOTH.into_iter().filter(|f| !families.has(*f)) {
            b.rule("prerouting", vec![of(family), Statement::Return(())]);
        }
        for family in Family::BOTH.into_iter().filter(|f| trials.has(*f)) {
            let tcp = is(TCP, meta("l4proto"));
            b.rule("prerouting", vec![of(family), tcp, is_no_syn(), Statement::Return(())]);
        }
        exclusions(&mut b);
        for selection in &self.config.selections {
            selection.rules(&mut b, whole);
        }
        self.arrivals(&mut b);
        for family in Family::BOTH.into_iter().filter(|f| !families.has(*f)) {
            self.plain(&mut b, family);
        }
        for family in Family::BOTH.into_iter().filter(|f| !whole.has(*f)) {
            self.plain_rest(&mut b, family);
        }
        b.build()
    }

    /// Marks, asks the kernel whether the mark would lead into the TUN, and takes the mark back if
    /// not: the packet is for this machine itself, somebody's rule comes before ours, or the TUN is
    /// gone. So a killed daemon leaves rules that do nothing.
    fn mark_chain(&self, b: &mut Builder, n: usize, one: &Diverted, notrack: bool) {
        let (chain, passed) = (format!("to_{n}"), format!("passed_{n}"));
        b.counter(&passed);
        b.chain(&chain, None);
        let cleared = || and(meta("mark"), Expr::Number(!self.config.mark_mask));
        let mangle = |value| Statement::Mangle { key: meta("mark"), value };
        b.rule(&chain, vec![mangle(or(cleared(), Expr::Number(self.mark(n))))]);
        for family in Family::BOTH {
            let diverted = counter_name("diverted", family, n);
            b.counter(&diverted);
            let leads_to =
                Expr::Operation(Operation::Fib { result: "oifname", flags: vec!["daddr", "mark"] });
            let mut take = vec![of(family), equal(leads_to, text(&one.tun)), Statement::Counter(diverted)];
            if notrack {
                take.push(Statement::Notrack(()));
            }
            take.push(Statement::Accept(()));
            b.rule(&chain, take);
        }
        b.rule(&chain, vec![Statement::Counter(passed), mangle(cleared())]);
        b.rule(
            "choose",
            vec![equal(meta("iifname"), text(&one.interface)), Statement::Goto { target: chain }],
        );
    }

    /// Counts the TCP that came out of a TUN and has passed everybody's rules and routes, so that
    /// it is known whether what is written into the TUN gets through. SYNs apart: a filter may know
    /// old connections and refuse new ones.
    fn arrivals(&self, b: &mut Builder) {
        let hook = |hook, prio| Some(Hook { kind: "filter", hook, prio, policy: "accept" });
        b.chain("input", hook("input", FIRST));
        for (n, one) in self.numbered() {
            let from = || equal(meta("iifname"), text(&one.tun));
            let chain = format!("left_{n}");
            b.chain(&chain, None);
            for family in Family::BOTH {
                let [local, syn, data] =
                    ["local", "syn_left", "left"].map(|what| counter_name(what, family, n));
                for counter in [&local, &syn, &data] {
                    b.counter(counter);
                }
                // Translated to an address of this machine (a transparent proxy, for example).
                b.rule(
                    "input",
                    vec![from(), of(family), is(TCP, meta("l4proto")), Statement::Counter(local)],
                );
                // Nearly all are none: they are to meet one rule.
                let [data, syn] = [data, syn].map(Statement::Counter);
                b.rule(&chain, vec![of(family), is_no_syn(), data, Statement::Accept(())]);
                b.rule(&chain, vec![of(family), is_syn(), syn, Statement::Accept(())]);
                if self.config.takes_everything() {
                    let rest = counter_name("rest_left", family, n);
                    b.counter(&rest);
                    for (chain, only) in [(chain.as_str(), None), ("input", Some(from()))] {
                        let mut rule: Vec<_> = only.into_iter().collect();
                        rule.extend([of(family), is_no_tcp(), Statement::Counter(rest.clone())]);
                        b.rule(chain, rule);
                    }
                }
            }
        }
        b.chain("postrouting", hook("postrouting", LAST));
        for (n, one) in self.numbered() {
            let target = format!("left_{n}");
            b.rule("postrouting", vec![equal(meta("iifname"), text(&one.tun)), Statement::Goto { target }]);
        }
    }

    /// While TCP of a family is not diverted: how many SYNs are to be forwarded, and how many are.
    /// What the machine's own rules refuse anyway is not the fault of diversion.
    fn plain(&self, b: &mut Builder, family: Family) {
        let base = format!("plain_{family}").to_lowercase();
        b.chain(&base, Some(Hook { kind: "filter", hook: "forward", prio: FIRST, policy: "accept" }));
        for (n, one) in self.numbered() {
            for (chain, what) in [(base.as_str(), "plain"), ("postrouting", "plain_left")] {
                let counter = counter_name(what, family, n);
                b.counter(&counter);
                let from = equal(meta("iifname"), text(&one.interface));
                b.rule(chain, vec![from, of(family), is_syn(), Statement::Counter(counter)]);
            }
        }
    }

    /// While only TCP of a family is diverted: how much of the rest is to be forwarded, and how
    /// much is.
    fn plain_rest(&self, b: &mut Builder, family: Family) {
        let links: Vec<Expr> = self.config.whole_interfaces().map(text).collect();
        if links.is_empty() {
            return;
        }
        let base = format!("plain_rest_{family}").to_lowercase();
        b.chain(&base, Some(Hook { kind: "filter", hook: "forward", prio: FIRST, policy: "accept" }));
        for (n, one) in self.numbered() {
            for (chain, what) in [(base.as_str(), "rest_plain"), ("postrouting", "rest_plain_left")] {
                let counter = counter_name(what, family, n);
                b.counter(&counter);
                let from = equal(meta("iifname"), text(&one.interface));
                let to = equal(meta("oifname"), set(links.clone()));
                b.rule(chain, vec![from, to, of(family), is_no_tcp(), Statement::Counter(counter)]);
            }
        }
    }
}

/// Rules can name an interface that is called so.
pub(crate) fn is_plain(name: &str) -> bool {
    let odd = |c: char| c.is_whitespace() || c.is_control() || "\"*/\\".contains(c);
    !name.is_empty() && name.len() <= 15 && !name.contains(odd)
}

fn check_name(name: &str) -> Result<()> {
    if !is_plain(name) {
        return Err(Error::Refused(format!("\"{name}\" is not the name of an interface")));
    }
    Ok(())
}

pub(super) fn of(family: Family) -> Statement {
    equal(meta("nfproto"), text(if family == Family::V4 { "ipv4" } else { "ipv6" }))
}

/// The first packet of a connection: SYN without ACK.
fn is_syn() -> Statement {
    equal(syn_and_ack(), Expr::Number(SYN))
}

/// Any other TCP segment.
fn is_no_syn() -> Statement {
    Statement::Match { op: "!=", left: syn_and_ack(), right: Expr::Number(SYN) }
}

/// These two flags of a segment.
fn syn_and_ack() -> Expr {
    and(field("tcp", "flags"), Expr::Number(SYN | 0x10))
}

/// The flag.
const SYN: u32 = 0x02;

/// What is never diverted, whatever it carries.
fn exclusions(b: &mut Builder) {
    b.rule(
        "prerouting",
        vec![
            Statement::Match { op: ">", left: field("ip", "hdrlength"), right: Expr::Number(5) },
            Statement::Counter("ip_options".to_owned()),
            Statement::Return(()),
        ],
    );
    let multicast4 = set(vec![prefix("224.0.0.0", 4), text("255.255.255.255")]);
    b.rule("prerouting", vec![equal(field("ip", "daddr"), multicast4), Statement::Return(())]);
    let multicast6 = set(vec![prefix("ff00::", 8), prefix("fe80::", 10)]);
    b.rule("prerouting", vec![equal(field("ip6", "daddr"), multicast6), Statement::Return(())]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use farlink_wire::ShimProtocols;

    fn two() -> Vec<Diverted> {
        ["eth0", "wan.7"]
            .iter()
            .zip(0u32..)
            .map(|(name, n)| Diverted {
                interface: (*name).to_owned(),
                tun: format!("farlink{n}"),
                tun_index: 10 + n,
            })
            .collect()
    }

    #[test]
    fn marks_stay_inside_the_mask_and_differ() {
        let plan = Plan::new(DivertConfig::default(), two()).unwrap();
        let rules: Vec<_> = plan.rules().collect();
        assert_eq!(rules.len(), 4);
        assert!(rules.iter().all(|r| r.mark & !r.mask == 0 && r.mark != 0));
        assert_ne!(rules[0].mark, rules[2].mark);
        assert_ne!(rules[0].table, rules[2].table);
        assert_eq!(plan.routes().filter(|r| r.interface == Some(11)).count(), 2);
    }

    #[test]
    fn bad_numbers_are_refused_in_words() {
        let base = DivertConfig::default;
        let bad = [
            DivertConfig { mark_mask: 0, ..base() },
            DivertConfig { mark_mask: 0x0f0f, ..base() },
            DivertConfig { table_base: 200, mark_mask: 0xff, ..base() },
            DivertConfig { rule_priority: 0, ..base() },
            DivertConfig { rule_priority: 40_000, ..base() },
            DivertConfig { instance: "no-good".into(), ..base() },
            DivertConfig { instance: "1".into(), ..base() },
        ];
        for config in bad {
            assert!(config.check().is_err(), "{config:?}");
        }
        assert!(base().check().is_ok());
        let one_bit = DivertConfig { mark_mask: 0x100, ..base() };
        assert!(Plan::new(one_bit.clone(), two()[..1].to_vec()).is_ok());
        assert!(Plan::new(one_bit, two()).is_err());
        let twice = vec![two()[0].clone(), two()[0].clone()];
        assert!(Plan::new(base(), twice).is_err());
        let odd = Diverted { interface: "eth*".into(), ..two()[0].clone() };
        assert!(Plan::new(base(), vec![odd]).is_err());
    }

    /// Whoever may be an instance has devices of its own.
    #[test]
    fn a_device_belongs_to_one_instance() {
        let names = ["", "1", "b", "b1", "b1c", "1b", "10"];
        let allowed: Vec<_> =
            names.into_iter().filter(|name| DivertConfig::can_name_instance(name)).collect();
        assert_eq!(allowed, ["", "b", "b1c", "1b"]);
        let mut devices = std::collections::BTreeMap::new();
        for name in allowed {
            let config = DivertConfig { instance: name.to_owned(), ..DivertConfig::default() };
            for n in 0..200 {
                let device = config.tun_name(n);
                assert_eq!(config.tun_number(&device, 999), n);
                assert_eq!(devices.insert(device.clone(), name), None, "{device}");
            }
        }
    }

    #[test]
    fn script_is_one_transaction_that_starts_from_nothing() {
        let plan = Plan::new(DivertConfig::default(), two()).unwrap();
        let json: serde_json::Value =
            serde_json::from_str(&plan.script(true, Now::ALL).to_json().unwrap()).unwrap();
        let entries = json["nftables"].as_array().unwrap();
        assert_eq!(entries[1]["add"]["table"]["name"], "farlink");
        assert_eq!(entries[2]["delete"]["table"]["name"], "farlink");
        assert!(entries[3].get("add").is_some());
        let text = json.to_string();
        assert!(text.contains("notrack"));
        assert!(!plan.script(false, Now::ALL).to_json().unwrap().contains("notrack"));
        assert!(!text.contains("plain"));
        let partly = plan.script(true, Now { families: Families { v4: false, v6: true }, ..Now::ALL });
        assert!(partly.to_json().unwrap().contains("plain_ipv4"));
        assert!(partly.rule_count() > plan.script(true, Now::ALL).rule_count());
        let trial = plan.script(true, Now { trials: Families { v4: true, v6: false }, ..Now::ALL });
        assert_eq!(trial.rule_count(), plan.script(true, Now::ALL).rule_count() + 1, "SYNs alone");
    }

    #[test]
    fn a_list_says_what_is_diverted() {
        let said = |selections: Vec<Selection>, now| {
            let config = DivertConfig { selections, ..DivertConfig::default() };
            Plan::new(config, two()).unwrap().script(true, now).to_json().unwrap()
        };
        let rules = |selections| said(selections, Now::ALL);
        let nothing = rules(Vec::new());
        assert!(!nothing.contains(r#""goto":{"target":"choose"}"#), "nothing is chosen: {nothing}");
        let udp = rules(vec![Selection::Protocol(17), Selection::ErrorsAbout(17)]);
        assert!(
            udp.contains(r#""field":"protocol"}},"right":17"#) && udp.contains(r#""len":8}},"right":17"#)
        );
        let shims = rules(Selection::shims(ShimProtocols::NONE.with(254)).collect());
        assert!(
            shims.contains(r#""field":"protocol"}},"right":254"#)
                && shims.contains(r#""len":8}},"right":254"#)
        );
        let mut selections = Selection::tcp();
        assert!(!rules(selections.clone()).contains("rest_"), "what is no TCP is nobody's business");
        selections.push(Selection::LeavesBy("wan.7".into()));
        let to_link = r#""flags":["daddr","mark"]}},"right":"wan.7""#;
        let whole = rules(selections.clone());
        assert_eq!(whole.matches(to_link).count(), 2, "both families: {whole}");
        assert!(whole.contains("rest_left_0") && !whole.contains("rest_plain"));
        let four = said(selections, Now { whole: Families { v4: true, v6: false }, ..Now::ALL });
        assert_eq!(four.matches(to_link).count(), 1);
        assert!(four.contains("rest_plain6_1") && !four.contains("rest_plain_1"));
    }

    #[test]
    fn a_selection_names_an_interface() {
        let selections = vec![Selection::LeavesBy("eth*".into())];
        assert!(Plan::new(DivertConfig { selections, ..DivertConfig::default() }, two()).is_err());
    }
}
