//! What a firewall would do with a new connection if it were diverted, read from its rules. A
//! packet is walked through the forward chains with what is known of it: that it is the SYN of a
//! new connection, and by which interfaces it comes and goes. Whatever else a rule looks at may be
//! so or not. Only where no rule could let it through is it foreseen to be dropped.

use serde_json::Value;

use super::blame::{commands, droppers, name_of, remedy, text};
use super::diagnosis::{Diagnosis, Severity};
use super::plan::{Diverted, Families};
use crate::netlink::Family;

/// Chains within chains, at most: nft allows no more.
const DEPTH_MAX: usize = 16;
/// Rules that are looked at, at most. Beyond that anything may happen.
const RULES_MAX: usize = 20_000;

/// What is known of a packet.
#[derive(Clone, Copy)]
struct Packet<'a> {
    family: Family,
    from: &'a str,
    to: &'a str,
    /// It is on its way into a TUN, and connection tracking is told to leave it alone.
    is_untracked: bool,
}

/// Whether a rule is about it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Fits {
    No,
    Maybe,
    Yes,
}

impl Fits {
    const fn unless(self, negated: bool) -> Self {
        match (self, negated) {
            (Self::No, true) => Self::Yes,
            (Self::Yes, true) => Self::No,
            (fits, _) => fits,
        }
    }
}

/// What becomes of it in a chain.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Fate {
    /// A rule may let it through.
    may_pass: bool,
    /// One does, or nothing is there that would not. Rules that may drop it are not thought of.
    passes: bool,
    /// One that refuses it with an answer may be reached.
    may_be_refused: bool,
    /// Nothing gets beyond this chain.
    ends: bool,
}

/// The chains and rules of a machine.
struct Ruleset<'a> {
    entries: &'a [Value],
    own_table: &'a str,
    left: usize,
}

/// What a firewall would do to a family if it were diverted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Foreseen {
    /// The family.
    pub(crate) family: Family,
    /// Who would drop it, and what helps.
    pub(crate) cause: Diagnosis,
}

/// Families that a firewall is sure to drop where they are diverted, and those of which its rules
/// do not say it.
pub(super) fn foresee(ruleset: &[Value], own_table: &str, all: &[Diverted]) -> (Vec<Foreseen>, Families) {
    let (mut foreseen, mut unknown) = (Vec::new(), Families::NEITHER);
    for family in Family::BOTH {
        match outlook(ruleset, own_table, all, family) {
            Outlook::Free => {}
            Outlook::Unknown => unknown = unknown.with(family, true),
            Outlook::CutOff => foreseen.extend(named(ruleset, own_table, all, family)),
        }
    }
    (foreseen, unknown)
}

/// Who drops it, where a chain does.
fn named(ruleset: &[Value], own_table: &str, all: &[Diverted], family: Family) -> Option<Foreseen> {
    let found = droppers(ruleset, Some(family), own_table);
    let first = found.iter().find(|d| d.hook == "forward" && d.drops_the_rest)?;
    let named = format!("{} {} {}", first.family, first.table, first.chain);
    let text = format!(
        "the firewall (chain {named}) drops what it does not know, and it does not know Farlink's devices: diverted {family} would be \
         cut off; add {}",
        remedy(Some(first), all)
    );
    let cause = Diagnosis::new("lost-by-firewall", Severity::Problem, text).seen("chain", named);
    Some(Foreseen { family, cause: cause.mended_by(commands(first, all)) })
}

/// What becomes of new connections that are diverted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outlook {
    /// Some get through, or none would without us.
    Free,
    /// It is more than can be read from the rules. Those that do not get through are dropped, and
    /// may be tried: a SYN that is dropped comes again, one that is refused does not.
    Unknown,
    /// None gets through as far as can be read, and some would without us.
    CutOff,
}

/// What becomes of a family that is diverted.
fn outlook(entries: &[Value], own_table: &str, all: &[Diverted], family: Family) -> Outlook {
    let mut ruleset = Ruleset { entries, own_table, left: RULES_MAX };
    let mut fate =
        |from: &str, to: &str, is_untracked: bool| ruleset.forward(Packet { family, from, to, is_untracked });
    let (mut plain, mut may_pass, mut may_be_refused) = (false, false, false);
    for one in all {
        let others = || all.iter().filter(|other| other.interface != one.interface);
        plain |= others().any(|other| fate(&one.interface, &other.interface, false).may_pass);
        let enters = fate(&one.interface, &one.tun, true);
        may_be_refused |= enters.may_be_refused;
        for leaves in others().map(|other| fate(&one.tun, &other.interface, false)) {
            may_be_refused |= leaves.may_be_refused;
            if enters.passes && leaves.passes {
                return Outlook::Free;
            }
            may_pass |= enters.may_pass && leaves.may_pass;
        }
    }
    match (may_pass, plain) {
        (true, _) if !may_be_refused => Outlook::Unknown,
        (_, true) => Outlook::CutOff,
        (_, false) => Outlook::Free,
    }
}

impl Ruleset<'_> {
    /// Through all base chains of the hook: each of them may drop it.
    fn forward(&mut self, packet: Packet<'_>) -> Fate {
        let of_family = name_of(packet.family);
        let entries = self.entries;
        let mut all = Fate { may_pass: true, passes: true, ..Fate::default() };
        for chain in entries.iter().filter_map(|entry| entry.get("chain")) {
            let (family, table) = (text(chain, "family"), text(chain, "table"));
            let is_on_the_way = text(chain, "hook") == "forward" && table != self.own_table;
            if !is_on_the_way || (family != of_family && family != "inet") {
                continue;
            }
            let mut fate = self.walk((family, table, text(chain, "name")), packet, 0);
            let falls_through = !fate.ends && text(chain, "policy") != "drop";
            fate.may_pass |= falls_through;
            fate.passes |= falls_through;
            all.may_pass &= fate.may_pass;
            all.passes &= fate.passes;
            all.may_be_refused |= fate.may_be_refused;
        }
        all
    }

    fn walk(&mut self, chain: (&str, &str, &str), packet: Packet<'_>, depth: usize) -> Fate {
        let mut fate = Fate::default();
        if depth > DEPTH_MAX {
            return Fate { may_pass: true, ..fate };
        }
        let entries = self.entries;
        let (family, table, name) = chain;
        let rules = entries.iter().filter_map(|entry| entry.get("rule")).filter(|rule| {
            text(rule, "chain") == name && text(rule, "table") == table && text(rule, "family") == family
        });
        for rule in rules {
            if self.left == 0 {
                return Fate { may_pass: true, ..fate };
            }
            self.left -= 1;
            let statements =
                rule.get("expr").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            let fits = statements.iter().map(|s| fits(s, packet)).min().unwrap_or(Fits::Yes);
            if fits == Fits::No {
                continue;
            }
            for (verdict, fits) in verdicts(statements, packet).map(|(v, own)| (v, own.min(fits))) {
                let end = self.apply((verdict, fits), chain, packet, depth, &mut fate);
                if fits == Fits::Yes
                    && let Some(ends) = end
                {
                    fate.ends |= ends;
                    return fate;
                }
            }
        }
        fate
    }

    /// `None`: what comes behind this verdict in its chain is next. Else whether nothing comes
    /// behind the chain, either.
    fn apply(
        &mut self,
        (verdict, fits): (Verdict<'_>, Fits),
        (family, table, _): (&str, &str, &str),
        packet: Packet<'_>,
        depth: usize,
        fate: &mut Fate,
    ) -> Option<bool> {
        match verdict {
            Verdict::Accept => {
                fate.may_pass = true;
                fate.passes |= fits == Fits::Yes;
            }
            Verdict::Drop => {}
            Verdict::Reject => fate.may_be_refused = true,
            Verdict::Return => return Some(false),
            Verdict::Jump(to, is_goto) => {
                let inner = self.walk((family, table, to), packet, depth + 1);
                fate.may_pass |= inner.may_pass;
                fate.passes |= inner.passes && fits == Fits::Yes;
                fate.may_be_refused |= inner.may_be_refused;
                // From where a goto leads nothing comes back here.
                return (inner.ends || is_goto).then_some(inner.ends);
            }
        }
        Some(true)
    }
}

/// What is decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict<'a> {
    Accept,
    Drop,
    Reject,
    Return,
    Jump(&'a str, bool),
}

impl<'a> Verdict<'a> {
    fn of(statement: &'a Value) -> Option<Self> {
        let has = |key: &str| statement.get(key).is_some();
        let target = |key: &str| statement.get(key).map(|to| text(to, "target"));
        if has("accept") {
            Some(Self::Accept)
        } else if has("drop") {
            Some(Self::Drop)
        } else if has("reject") {
            Some(Self::Reject)
        } else if has("return") {
            Some(Self::Return)
        } else {
            target("jump").map(|to| Self::Jump(to, false)).or(target("goto").map(|to| Self::Jump(to, true)))
        }
    }
}

/// All verdicts of a rule, and whether each is about this packet. A verdict that is none of those
/// known here (a queue, TPROXY, a program) may do anything.
fn verdicts<'a>(statements: &'a [Value], packet: Packet<'a>) -> impl Iterator<Item = (Verdict<'a>, Fits)> {
    statements.iter().flat_map(move |statement| {
        if let Some(map) = statement.get("vmap") {
            return of_map(map, packet);
        }
        if let Some(verdict) = Verdict::of(statement) {
            return vec![(verdict, Fits::Yes)];
        }
        let known =
            ["match", "counter", "log", "limit", "comment", "mangle", "notrack", "xt", "flow", "ct helper"];
        let is_known = known.iter().any(|key| statement.get(key).is_some());
        if is_known { Vec::new() } else { vec![(Verdict::Accept, Fits::Maybe)] }
    })
}

/// Of a map of verdicts.
fn of_map<'a>(map: &'a Value, packet: Packet<'a>) -> Vec<(Verdict<'a>, Fits)> {
    let anything = || vec![(Verdict::Accept, Fits::Maybe)];
    let Some(elements) = map.pointer("/data/set").and_then(Value::as_array) else { return anything() };
    let Some(key) = map.get("key") else { return anything() };
    if is_of_another_protocol(key, packet.family) {
        return Vec::new();
    }
    let of = |element: &'a Value| {
        let (wanted, verdict) = (element.get(0)?, Verdict::of(element.get(1)?)?);
        let fits = compare(key, wanted, packet);
        (fits != Fits::No).then_some((verdict, fits))
    };
    elements.iter().filter_map(of).collect()
}

/// Whether a statement is about this packet, where it says so.
fn fits(statement: &Value, packet: Packet<'_>) -> Fits {
    if statement.get("limit").is_some() || statement.get("xt").is_some() {
        return Fits::Maybe;
    }
    let Some(condition) = statement.get("match") else { return Fits::Yes };
    let (Some(left), Some(right)) = (condition.get("left"), condition.get("right")) else {
        return Fits::Maybe;
    };
    // Whatever it looks at there, a packet of another protocol has none.
    if is_of_another_protocol(left, packet.family) {
        return Fits::No;
    }
    compare(left, right, packet).unless(text(condition, "op") == "!=")
}

/// Whether what a rule looks at is what it wants.
fn compare(left: &Value, right: &Value, packet: Packet<'_>) -> Fits {
    let one_of = |fits: &dyn Fn(&str) -> Fits| {
        let fits = |one: &Value| one.as_str().map_or(Fits::Maybe, fits);
        match right.as_array().or_else(|| right.get("set").and_then(Value::as_array)) {
            Some(all) => all.iter().map(fits).max().unwrap_or(Fits::No),
            None => fits(right),
        }
    };
    if let Some(key) = left.pointer("/meta/key").and_then(Value::as_str) {
        return match key {
            "iifname" | "iif" => one_of(&|name| is_called(packet.from, name)),
            "oifname" | "oif" => one_of(&|name| is_called(packet.to, name)),
            "l4proto" => one_of(&|name| yes(name == "tcp")),
            "nfproto" => {
                one_of(&|name| yes(name == if packet.family == Family::V4 { "ipv4" } else { "ipv6" }))
            }
            _ => Fits::Maybe,
        };
    }
    match left.pointer("/ct/key").and_then(Value::as_str) {
        Some("state") => {
            return one_of(&|state| yes(state == if packet.is_untracked { "untracked" } else { "new" }));
        }
        // What is translated on its way in is the lesser part.
        Some("status") => return one_of(&|status| if status == "dnat" { Fits::No } else { Fits::Maybe }),
        _ => {}
    }
    Fits::Maybe
}

/// What a rule looks at stands in the header of a protocol that a TCP packet of this family does
/// not have.
fn is_of_another_protocol(left: &Value, family: Family) -> bool {
    match left.pointer("/payload/protocol").and_then(Value::as_str) {
        Some("udp" | "icmp" | "icmpv6" | "sctp" | "dccp" | "esp" | "ah") => true,
        Some("ip") => family == Family::V6,
        Some("ip6") => family == Family::V4,
        _ => false,
    }
}

const fn yes(is: bool) -> Fits {
    if is { Fits::Yes } else { Fits::No }
}

/// Names of interfaces may end with an asterisk. Sets that have a name are not looked at.
fn is_called(interface: &str, name: &str) -> Fits {
    match name.strip_suffix('*') {
        _ if name.starts_with('@') => Fits::Maybe,
        Some(stem) => yes(interface.starts_with(stem)),
        None => yes(interface == name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn all() -> Vec<Diverted> {
        let one = |interface: &str, n: u32| Diverted {
            interface: interface.into(),
            tun: format!("farlink{n}"),
            tun_index: n,
        };
        vec![one("lan0", 0), one("sat0", 1)]
    }

    fn by(key: &str, value: &str) -> Value {
        json!({"match": {"op": "==", "left": {"meta": {"key": key}}, "right": value}})
    }

    /// A base chain of this policy with these rules, and one that is jumped to.
    fn judged(policy: &str, rules: &[Value], inner: &[Value]) -> Outlook {
        let chain = |name: &str| json!({"family": "inet", "table": "fw", "name": name});
        let mut base = chain("onward");
        base["hook"] = json!("forward");
        base["policy"] = json!(policy);
        let mut entries = vec![json!({"chain": base}), json!({"chain": chain("inner")})];
        let rule = |chain: &str, expr: &Value| json!({"rule": {"family": "inet", "table": "fw", "chain": chain, "expr": expr}});
        entries.extend(rules.iter().map(|expr| rule("onward", expr)));
        entries.extend(inner.iter().map(|expr| rule("inner", expr)));
        outlook(&entries, "farlink", &all(), Family::V4)
    }

    fn established() -> Value {
        let states = json!(["established", "related"]);
        json!([{"match": {"op": "in", "left": {"ct": {"key": "state"}}, "right": states}}, {"accept": null}])
    }

    fn out() -> Value {
        json!([by("iifname", "lan0"), by("oifname", "sat0"), {"counter": {"packets": 1}}, {"accept": null}])
    }

    fn reject() -> Value {
        json!([{"log": null}, {"counter": {"packets": 0}}, {"reject": {"type": "icmpx"}}])
    }

    #[test]
    fn a_chain_that_knows_single_interfaces_drops_ours() {
        assert_eq!(judged("drop", &[established(), out()], &[]), Outlook::CutOff);
        assert_eq!(judged("accept", &[established(), out(), reject()], &[]), Outlook::CutOff);
        // Half of the way is not enough.
        let to_us = json!([by("oifname", "farlink*"), {"accept": null}]);
        assert_eq!(judged("drop", &[out(), to_us.clone()], &[]), Outlook::CutOff);
        let from_us = json!([by("iifname", "farlink0"), by("oif", "sat0"), {"accept": null}]);
        assert_eq!(judged("drop", &[out(), to_us, from_us], &[]), Outlook::Free);
        // Zones as firewalld has them.
        let map = json!([{"vmap": {"key": {"meta": {"key": "iifname"}}, "data": {"set": [["lan0", {"goto": {"target": "inner"}}]]}}}]);
        let accepts = json!([by("oifname", "sat0"), {"accept": null}]);
        assert_eq!(judged("accept", &[established(), map, reject()], &[accepts, reject()]), Outlook::CutOff);
    }

    #[test]
    fn what_may_get_through_is_tried() {
        let state_map = json!([{"vmap": {"key": {"ct": {"key": "state"}}, "data": {"set":
            [["established", {"accept": null}], ["invalid", {"drop": null}]]}}}]);
        let limited = json!([{"limit": {"rate": 5}}, {"drop": null}]);
        let invalid = json!([{"xt": {"type": "match", "name": "conntrack"}}, {"drop": null}]);
        assert_eq!(judged("accept", &[state_map, limited, invalid], &[]), Outlook::Free);
        // What another interface would have to bear.
        let jump = json!([by("iifname", "ppp0"), {"jump": {"target": "inner"}}]);
        assert_eq!(judged("accept", &[jump], &[established(), reject()]), Outlook::Free);
        for accept in [
            json!([by("iifname", "@lans"), {"accept": null}]),
            json!([{"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "saddr"}}, "right": "10.0.0.0/8"}}, {"accept": null}]),
            json!([{"queue": {"num": 1}}]),
        ] {
            assert_eq!(judged("drop", &[out(), accept.clone()], &[]), Outlook::Unknown, "{accept}");
        }
        let all_but_one = json!([{"match": {"op": "!=", "left": {"meta": {"key": "iifname"}}, "right": "sat0"}}, {"accept": null}]);
        assert_eq!(judged("drop", &[out(), all_but_one], &[]), Outlook::Free);
        // What a packet of another protocol would have says nothing of TCP.
        let port = json!({"payload": {"protocol": "udp", "field": "dport"}});
        let map = json!([{"vmap": {"key": port, "data": {"set": [[53, {"accept": null}]]}}}]);
        let all_but_dns = json!([{"match": {"op": "!=", "left": port, "right": 53}}, {"accept": null}]);
        assert_eq!(judged("drop", &[out(), map, all_but_dns], &[]), Outlook::CutOff);
        // Nobody gets through: that is not for our sake.
        assert_eq!(judged("drop", &[established()], &[]), Outlook::Free);
        assert_eq!(judged("accept", &[], &[]), Outlook::Free);
    }
}
