//! Who keeps diverted packets from coming out on the other side, and what helps, in words.

use std::net::IpAddr;

use serde_json::Value;

use super::diagnosis::{Diagnosis, Remedy, Severity};
use super::nft;
use super::passage::Suspicion;
use super::plan::Diverted;
use crate::netlink::{Family, RouteKey, Socket};

/// What was lost, and where.
#[derive(Clone, Copy, Debug)]
pub struct Lost {
    /// How it shows.
    pub suspicion: Suspicion,
    /// In which family.
    pub family: Family,
    /// On which interface, by its number among the diverted ones.
    pub n: usize,
    /// Source and destination of a packet that was written into the TUN meanwhile.
    pub sample: Option<(IpAddr, IpAddr)>,
}

/// Who is to blame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// There is no route, with or without diversion.
    NoRoute,
    /// No rule of the machine drops anything: a device was down for a moment, or a route away.
    NoRule,
    /// Something on this machine, with what helps.
    Machine(Diagnosis),
}

/// Finds the cause. Runs `nft` once.
pub fn blame(socket: &mut Socket, own_table: &str, all: &[Diverted], lost: &Lost) -> Cause {
    let Some(one) = all.get(lost.n) else { return Cause::NoRoute };
    if lost.suspicion != Suspicion::Entry
        && let Some((source, destination)) = lost.sample
        && let Some(cause) = of_routing(socket, (one, all), lost.family, source, destination)
    {
        return cause;
    }
    let ruleset = nft::ruleset(own_table);
    let is_read = ruleset.is_ok();
    let ruleset = ruleset.unwrap_or_default();
    let found = droppers(&ruleset, Some(lost.family), own_table);
    let legacy = legacy_tables();
    let may_drop = !is_read || !found.is_empty() || legacy.iter().any(|of| of == name_of(lost.family));
    // A part of what connections carry is lost only by rules, such as those against what connection
    // tracking calls invalid.
    if matches!(lost.suspicion, Suspicion::Share { .. }) && !may_drop && !hands_on(&ruleset) {
        return Cause::NoRule;
    }
    Cause::Machine(of_rules(&found, &legacy, all, one, lost))
}

/// What nftables calls a family, and what the old iptables does.
pub(super) const fn name_of(family: Family) -> &'static str {
    match family {
        Family::V4 => "ip",
        Family::V6 => "ip6",
    }
}

/// Whether there are rules that leave it to something else what becomes of a packet: a map with
/// verdicts, or a program.
fn hands_on(ruleset: &[Value]) -> bool {
    let has_verdicts = |entry: &Value| entry.get("map").is_some_and(|map| text(map, "map") == "verdict");
    let asks = |entry: &Value| entry.get("rule").is_some_and(|rule| expression(rule).contains("{\"queue\":"));
    ruleset.iter().any(|entry| has_verdicts(entry) || asks(entry))
}

/// What routing itself says of the sample; `None`: it lets it through.
fn of_routing(
    socket: &mut Socket,
    (one, all): (&Diverted, &[Diverted]),
    family: Family,
    source: IpAddr,
    destination: IpAddr,
) -> Option<Cause> {
    let key = |index| RouteKey { destination, from: Some((source, index)), mark: 0, ports: None };
    let refusal = socket.route_refusal(&key(one.tun_index)).ok()??;
    if refusal == libc::EXDEV {
        let tun = &one.tun;
        let keys = [format!("net.ipv4.conf.{tun}.rp_filter"), "net.ipv4.conf.all.rp_filter".to_owned()];
        let text = format!(
            "the source address check (rp_filter) drops what comes out of {tun}: there is no route back to {source}; add one, or set {} and {} \
             to 0",
            keys[1], keys[0]
        );
        let off = keys.iter().map(|key| format!("sysctl -w {key}=0")).collect();
        let finding = Diagnosis::new("lost-source-check", Severity::Problem, text).seen("source", source);
        return Some(Cause::Machine(finding.mended_by(Remedy::Run(off))));
    }
    let real = socket.link_index(&one.interface).ok()?;
    if socket.route_refusal(&key(real)).ok()?.is_some() {
        return Some(Cause::NoRoute);
    }
    let (real, tun) = (&one.interface, &one.tun);
    let flag = if family == Family::V6 { "-6" } else { "-4" };
    let text = format!(
        "there is a route to {destination} for what comes in by {real}, but none for what comes out of {tun}: a policy-routing rule names \
         {real}; add the same rule for {tun} (`ip {flag} rule add iif {tun} ...`)"
    );
    // Of both families, and for all devices: what one lacks the others will lack, too.
    let like = |flag: &'static str| {
        all.iter().map(move |Diverted { interface, tun, .. }| {
            format!(
                "ip {flag} rule | sed -n 's/^\\([0-9]*\\):\\(.*\\) iif {interface} /ip {flag} rule add pref \\1 \\2 iif {tun} /p' | sh"
            )
        })
    };
    let like = Remedy::Run(["-4", "-6"].into_iter().flat_map(like).collect());
    let finding = Diagnosis::new("lost-by-route", Severity::Problem, text).seen("destination", destination);
    Some(Cause::Machine(finding.mended_by(like)))
}

/// A chain that drops, and where it belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dropper {
    pub(super) family: String,
    pub(super) table: String,
    pub(super) chain: String,
    pub(super) hook: String,
    /// It, or a chain of its table, drops what connection tracking calls invalid.
    pub(super) drops_invalid: bool,
    /// It drops whatever no rule has accepted.
    pub(super) drops_the_rest: bool,
    /// Its table has a rule for what goes to, and for what comes from Farlink's devices.
    pub(super) knows_us: (bool, bool),
    /// Who has made it, and wants to be told in its own language.
    pub(super) maker: Maker,
}

/// A program that makes firewall rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Maker {
    Nft,
    Iptables,
    Ufw,
    Docker,
    Firewalld,
}

impl Maker {
    /// Of a chain, by what else its table has.
    fn of(table: &str, chain: &str, family: &str, chains: &[&str]) -> Self {
        let is_filter = table == "filter" && chain == "FORWARD" && matches!(family, "ip" | "ip6");
        let has = |name: &str| chains.contains(&name);
        match (table, is_filter) {
            ("firewalld", _) => Self::Firewalld,
            (_, true) if has("ufw-before-forward") || has("ufw6-before-forward") => Self::Ufw,
            (_, true) if has("DOCKER-USER") => Self::Docker,
            (_, true) => Self::Iptables,
            _ => Self::Nft,
        }
    }
}

/// What stands under a key, if it is text.
pub(super) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// All that a rule says, as text.
fn expression(rule: &Value) -> String {
    rule.get("expr").map(Value::to_string).unwrap_or_default()
}

fn drops(rule: &Value) -> bool {
    let expr = expression(rule);
    expr.contains("{\"drop\":") || expr.contains("{\"reject\":")
}

/// A rule for every packet, at the end of a chain.
fn is_unconditional(rule: &Value) -> bool {
    let expr = rule.get("expr").and_then(Value::as_array);
    expr.is_some_and(|e| e.iter().all(|s| s.get("match").is_none()))
}

fn names(rule: &Value, key: &str, stem: &str) -> bool {
    let expr = expression(rule);
    expr.contains(&format!("\"{key}\"")) && expr.contains(&format!("\"{stem}"))
}

fn drops_invalid(rule: &Value) -> bool {
    drops(rule) && expression(rule).contains("\"invalid\"")
}

/// Base chains on the way of forwarded packets of a family (`None`: of either) that drop something,
/// or belong to a table that does.
pub(super) fn droppers(ruleset: &[Value], family: Option<Family>, own_table: &str) -> Vec<Dropper> {
    // The table's name with the instance behind it is that of the devices, without the underscore.
    let stem = &own_table.replacen("farlink_", "farlink", 1);
    let fits = |of: &str| match family {
        Some(Family::V4) => matches!(of, "ip" | "inet"),
        Some(Family::V6) => matches!(of, "ip6" | "inet"),
        None => matches!(of, "ip" | "ip6" | "inet"),
    };
    let rules: Vec<&Value> = ruleset.iter().filter_map(|e| e.get("rule")).collect();
    let chains_of = |of: &str, table: &str| -> Vec<&str> {
        let all = ruleset.iter().filter_map(|e| e.get("chain"));
        all.filter(|c| text(c, "family") == of && text(c, "table") == table)
            .map(|c| text(c, "name"))
            .collect()
    };
    let mut found = Vec::new();
    for chain in ruleset.iter().filter_map(|e| e.get("chain")) {
        let (of, table, hook) = (text(chain, "family"), text(chain, "table"), text(chain, "hook"));
        if !fits(of) || table == own_table || !matches!(hook, "forward" | "prerouting" | "postrouting") {
            continue;
        }
        let name = text(chain, "name");
        let in_table = |r: &&&Value| text(r, "family") == of && text(r, "table") == table;
        let in_chain = |r: &&&Value| in_table(r) && text(r, "chain") == name;
        // Chains that are jumped to may drop, too: of the whole table, where this chain jumps.
        let jumps = rules.iter().filter(in_chain).any(|r| {
            let expr = expression(r);
            expr.contains("{\"jump\":") || expr.contains("{\"goto\":") || expr.contains("\"vmap\"")
        });
        let scope = |r: &&&Value| if jumps { in_table(r) } else { in_chain(r) };
        let dropping: Vec<_> = rules.iter().filter(scope).filter(|r| drops(r)).collect();
        if text(chain, "policy") != "drop" && dropping.is_empty() {
            continue;
        }
        found.push(Dropper {
            family: of.to_owned(),
            table: table.to_owned(),
            chain: name.to_owned(),
            hook: hook.to_owned(),
            drops_invalid: dropping.iter().any(|r| drops_invalid(r)),
            drops_the_rest: text(chain, "policy") == "drop" || dropping.iter().any(|r| is_unconditional(r)),
            knows_us: (
                rules.iter().filter(in_table).any(|r| names(r, "oifname", stem)),
                rules.iter().filter(in_table).any(|r| names(r, "iifname", stem)),
            ),
            maker: Maker::of(table, name, of, &chains_of(of, table)),
        });
    }
    // Where packets are most often dropped comes first.
    found.sort_by_key(|d| d.hook != "forward");
    found
}

/// Tables of the old iptables, which nftables does not show.
pub(super) fn legacy_tables() -> Vec<String> {
    ["ip", "ip6"]
        .iter()
        .filter(|of| {
            let file = format!("/proc/thread-self/net/{of}_tables_names");
            match std::fs::read_to_string(file) {
                Ok(names) => names.lines().any(|name| name == "filter"),
                // Root alone may read their names. There may be any.
                Err(error) => error.kind() == std::io::ErrorKind::PermissionDenied,
            }
        })
        .map(|of| (*of).to_owned())
        .collect()
}

/// Which TUN stands for which interface.
fn pairs(all: &[Diverted]) -> String {
    let one = |d: &Diverted| format!("{} for {}", d.tun, d.interface);
    all.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// The name of all TUNs together in rules: `farlink`, or with the instance's name behind it.
fn stem(all: &[Diverted]) -> &str {
    all.first().map_or("farlink", |d| d.tun.trim_end_matches(|c: char| c.is_ascii_digit()))
}

/// The rules that a filtering forward chain needs, in its own language.
pub(super) fn remedy(dropper: Option<&Dropper>, all: &[Diverted]) -> String {
    let stem = stem(all);
    // No rule for everything that comes out of them: it would let in what the firewall keeps out.
    let like = format!(
        "and wherever a rule names the interface that packets come in by, name its device beside it ({})",
        pairs(all)
    );
    let Some(d) = dropper else {
        return format!("let everything pass that goes to {stem}*, {like}");
    };
    match d.maker {
        Maker::Iptables | Maker::Docker => {
            format!("`{} -I {} -o {stem}+ -j ACCEPT`, {like}", d.tool(), d.own_chain())
        }
        Maker::Ufw => format!("`ufw route allow out on {stem}N` for each of them, {like}"),
        Maker::Firewalld => format!(
            "Farlink's devices to the zones of the interfaces that they stand for (`firewall-cmd --zone=ZONE --add-interface={stem}N`; {})",
            pairs(all)
        ),
        Maker::Nft => format!(
            "`nft insert rule {0} {1} {2} oifname \"{stem}*\" accept`, {like}",
            d.family, d.table, d.chain
        ),
    }
}

impl Dropper {
    fn tool(&self) -> &'static str {
        if self.family == "ip6" { "ip6tables" } else { "iptables" }
    }
    /// Where its maker wants to find rules of others.
    fn own_chain(&self) -> &'static str {
        if self.maker == Maker::Docker { "DOCKER-USER" } else { "FORWARD" }
    }
}

/// The same as commands. Rules that name an interface are repeated for the device that stands for
/// it: so nothing comes in that would not come in without Farlink.
pub(super) fn commands(dropper: &Dropper, all: &[Diverted]) -> Remedy {
    let (stem, d) = (stem(all), dropper);
    let place = format!("{} {} {}", d.family, d.table, d.chain);
    let mut lines = Vec::new();
    match d.maker {
        Maker::Iptables | Maker::Docker => {
            let tool = d.tool();
            lines.extend(all.iter().map(|Diverted { interface, tun, .. }| {
                format!(
                    "{tool} -S FORWARD | tac | sed -n 's/^-A FORWARD \\(.*\\)-i {interface} /{tool} -I {} \\1-i {tun} /p' | sh",
                    d.own_chain()
                )
            }));
            lines.push(format!("{tool} -I {} -o {stem}+ -j ACCEPT", d.own_chain()));
        }
        Maker::Ufw => {
            lines.extend(all.iter().map(|one| format!("ufw route allow out on {}", one.tun)));
            lines.extend(all.iter().map(|Diverted { interface, tun, .. }| {
                format!(
                    "ufw show added | sed -n 's/^ufw route \\(.*\\)in on {interface}\\( \\|$\\)/ufw route \\1in on {tun}\\2/p' | sh"
                )
            }));
        }
        Maker::Firewalld => lines.extend(all.iter().map(|Diverted { interface, tun, .. }| {
            format!("firewall-cmd --zone=\"$(firewall-cmd --get-zone-of-interface={interface})\" --add-interface={tun}")
        })),
        Maker::Nft => {
            lines.extend(all.iter().map(|Diverted { interface, tun, .. }| {
                format!(
                    "nft -s list chain {place} | tac | sed -nE 's/^\\s*(.*iif[a-z]* (\\{{[^}}]*)?)\"{interface}\"/insert rule {place} \\1\"{tun}\"/p' | nft -f -"
                )
            }));
            lines.push(format!("nft insert rule {place} oifname '\"{stem}*\"' accept"));
        }
    }
    Remedy::Run(lines)
}

/// What helps against `ct state invalid drop`.
pub(super) const INVALID_REMEDY: &str = "connection tracking sees acknowledgements of data that it has not seen yet; set \
     net.netfilter.nf_conntrack_tcp_be_liberal=1";

/// The same as a command.
pub(super) fn invalid_remedy() -> Remedy {
    Remedy::run("sysctl -w net.netfilter.nf_conntrack_tcp_be_liberal=1")
}

fn of_rules(
    found: &[Dropper],
    legacy: &[String],
    all: &[Diverted],
    one: &Diverted,
    lost: &Lost,
) -> Diagnosis {
    let named = |d: &Dropper| format!("{} {} {}", d.family, d.table, d.chain);
    if let Suspicion::Share { lost: n, of } = lost.suspicion {
        let invalid: Vec<_> = found.iter().filter(|d| d.drops_invalid).map(named).collect();
        let whose = if invalid.is_empty() { String::new() } else { format!(" (in {})", invalid.join(", ")) };
        let text = format!(
            "{n} of {of} packets of split connections were dropped behind {}, by a rule such as `ct state invalid drop`{whose}: \
             {INVALID_REMEDY}",
            one.tun
        );
        let finding =
            Diagnosis::new("lost-as-invalid", Severity::Problem, text).seen("lost", n).seen("of", of);
        return finding.mended_by(invalid_remedy());
    }
    let what = match lost.suspicion {
        Suspicion::Entry => format!("goes from {} to {}", one.interface, one.tun),
        _ => format!("comes out of {}, which stands for {}", one.tun, one.interface),
    };
    let family = name_of(lost.family);
    let by_firewall = |text: String, dropper: &Dropper| {
        let finding =
            Diagnosis::new("lost-by-firewall", Severity::Problem, text).seen("chain", named(dropper));
        finding.mended_by(commands(dropper, all))
    };
    match found.first() {
        Some(first) => {
            let names: Vec<_> = found.iter().take(3).map(named).collect();
            let chains = if names.len() == 1 { "chain" } else { "chains" };
            let text = format!(
                "the firewall ({chains} {}) drops {} that {what}; add {}",
                names.join(", "),
                lost.family,
                remedy(Some(first), all)
            );
            by_firewall(text, first)
        }
        None if legacy.iter().any(|of| of == family) => {
            let dropper = Dropper {
                family: family.to_owned(),
                table: "filter".to_owned(),
                chain: "FORWARD".to_owned(),
                hook: "forward".to_owned(),
                drops_invalid: false,
                drops_the_rest: true,
                knows_us: (false, false),
                maker: Maker::Iptables,
            };
            let text = format!(
                "the firewall (old {} rules) drops {} that {what}; add {}",
                dropper.tool(),
                lost.family,
                remedy(Some(&dropper), all)
            );
            by_firewall(text, &dropper)
        }
        None => {
            let text = format!(
                "{} that {what} is dropped by something that nftables does not show (BPF, XDP, IPsec policy); {}",
                lost.family,
                remedy(None, all)
            );
            Diagnosis::new("lost-unseen", Severity::Problem, text)
        }
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
            tun_index: 10 + n,
        };
        vec![one("lan0", 0), one("sat0", 1)]
    }

    fn lost(suspicion: Suspicion, family: Family) -> Lost {
        Lost { suspicion, family, n: 0, sample: None }
    }

    fn said(ruleset: &Value, lost: &Lost) -> String {
        let found = droppers(ruleset.as_array().unwrap(), Some(lost.family), "farlink");
        of_rules(&found, &[], &all(), &all()[0], lost).text
    }

    #[test]
    fn the_chain_is_named_and_the_remedy_speaks_its_language() {
        let iptables = json!([{"chain": {"family": "ip", "table": "filter", "name": "FORWARD", "hook": "forward",
            "type": "filter", "policy": "drop"}}]);
        let text = said(&iptables, &lost(Suspicion::Entry, Family::V4));
        for part in [
            "ip filter FORWARD",
            "goes from lan0 to farlink0",
            "iptables -I FORWARD -o farlink+ -j ACCEPT",
            "farlink1 for sat0",
        ] {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
        let text = said(&iptables, &lost(Suspicion::Entry, Family::V6));
        assert!(text.contains("nftables does not show"), "its IPv4 chain drops no IPv6: {text}");
        let last_drop = json!([
            {"chain": {"family": "inet", "table": "fw", "name": "fwd", "hook": "forward", "policy": "accept"}},
            {"rule": {"family": "inet", "table": "fw", "chain": "fwd", "expr": [{"drop": null}]}},
        ]);
        let text = said(&last_drop, &lost(Suspicion::Exit, Family::V6));
        for part in [
            "inet fw fwd",
            "comes out of farlink0, which stands for lan0",
            "nft insert rule inet fw fwd oifname",
        ] {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
    }

    #[test]
    fn invalid_is_told_apart() {
        let rule = json!([
            {"chain": {"family": "inet", "table": "fw", "name": "fwd", "hook": "forward", "policy": "accept"}},
            {"rule": {"family": "inet", "table": "fw", "chain": "fwd", "expr": [
                {"match": {"op": "in", "left": {"ct": {"key": "state"}}, "right": "invalid"}}, {"drop": null}]}},
        ]);
        let text = said(&rule, &lost(Suspicion::Share { lost: 30, of: 90 }, Family::V4));
        assert!(
            text.contains("30 of 90") && text.contains("inet fw fwd") && text.contains("be_liberal=1"),
            "{text}"
        );
    }

    #[test]
    fn what_is_left_to_others_is_seen() {
        let rule =
            |expr: Value| json!({"rule": {"family": "inet", "table": "fw", "chain": "fwd", "expr": expr}});
        assert!(!hands_on(&[rule(json!([{"accept": null}])), json!({"map": {"name": "m", "map": "mark"}})]));
        assert!(hands_on(&[json!({"map": {"name": "m", "type": "ct_state", "map": "verdict"}})]));
        assert!(hands_on(&[rule(json!([{"queue": {"num": 0}}]))]));
    }

    #[test]
    fn chains_that_are_jumped_to_count() {
        let firewalld = json!([
            {"chain": {"family": "inet", "table": "firewalld", "name": "filter_FORWARD", "hook": "forward", "policy": "accept"}},
            {"chain": {"family": "inet", "table": "firewalld", "name": "zone"}},
            {"rule": {"family": "inet", "table": "firewalld", "chain": "filter_FORWARD", "expr": [{"jump": {"target": "zone"}}]}},
            {"rule": {"family": "inet", "table": "firewalld", "chain": "zone", "expr": [{"reject": null}]}},
            {"chain": {"family": "inet", "table": "other", "name": "c", "hook": "forward", "policy": "accept"}},
        ]);
        let found = droppers(firewalld.as_array().unwrap(), Some(Family::V4), "farlink");
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].chain, "filter_FORWARD");
    }
}
