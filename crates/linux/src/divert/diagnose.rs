//! What on this machine stands in the way of diverting, in plain sentences.

use super::diagnosis::{Diagnosis, Remedy, Severity};
use super::method::Method;
use super::plan::{DivertConfig, Diverted};
use super::{blame, nft, translation};
use crate::bump::Bump;
use crate::netlink::{Family, Link, Nftables, Route, Socket};
use crate::sysctl;

/// An interface is waited for.
pub(crate) const NO_INTERFACE: &str = "no-interface";

/// Looks at everything outside Farlink that diversion depends on. Changes nothing. `interfaces` are
/// the real ones.
#[must_use]
pub fn diagnose(config: &DivertConfig, interfaces: &[String]) -> Vec<Diagnosis> {
    let mut found = Vec::new();
    tools(&mut found);
    let method = match config.method {
        Method::Auto if Bump::is_possible_at(interfaces).is_ok() => Method::Bump,
        Method::Auto => Method::Policy,
        other => other,
    };
    match Socket::open() {
        Ok(mut socket) => {
            forwarding(&mut socket, interfaces, &mut found);
            links(&mut socket, interfaces, &mut found);
            if method != Method::Bump
                && let Err(e) = collisions(&mut socket, config, &mut found)
            {
                found.push(Diagnosis::new(
                    "rules-unreadable",
                    Severity::Warning,
                    format!("routing rules cannot be read: {e}"),
                ));
            }
        }
        Err(e) => found.push(Diagnosis::new("netlink", Severity::Problem, e.to_string())),
    }
    if method == Method::Bump {
        // Neither filters nor source checks see anything else than without us.
        return found;
    }
    for interface in interfaces {
        source_filters(interface, &mut found);
    }
    match nft::ruleset(&config.table_name()) {
        Ok(entries) => rulesets(&entries, config, interfaces, &mut found),
        Err(e) => found.push(Diagnosis::new("nft", Severity::Problem, e.to_string())),
    }
    found
}

/// Traffic is diverted by policy routing, since there can be no bump for this reason.
pub(crate) fn by_policy(error: &crate::Error) -> Diagnosis {
    let text = format!("there can be no bump here ({error}), so traffic is diverted by policy routing");
    Diagnosis::new("no-bump", Severity::Note, text)
}

/// Whether a method can be used by this process at these interfaces, where it is to be a bump: what
/// to know if not.
#[must_use]
pub fn refusal(method: Method, interfaces: &[String]) -> Option<Diagnosis> {
    if method == Method::Policy {
        return None;
    }
    if method == Method::Auto {
        return Bump::is_possible_at(interfaces).err().map(|error| by_policy(&error));
    }
    let error = Bump::is_possible().err()?;
    Some(
        Diagnosis::new(
            "no-bump",
            Severity::Problem,
            format!(
                "there can be no bump here: {error}; it takes Linux 5.11 with BPF, CAP_BPF and CAP_NET_ADMIN, and no lockdown. `method = \"auto\"` then \
                 diverts by policy routing"
            ),
        )
        .mended_by(Remedy::configure("divert.method", "\"auto\"")),
    )
}

fn tools(found: &mut Vec<Diagnosis>) {
    if !std::path::Path::new("/dev/net/tun").exists() {
        let text = "there is no /dev/net/tun, so no packet can reach Farlink; load the module with `modprobe tun` \
                    (in a container: pass the device in)";
        let finding = Diagnosis::new("no-tun", Severity::Problem, text).seen("/dev/net/tun", "missing");
        found.push(finding.mended_by(Remedy::run("modprobe tun")));
    }
    if !crate::caps::has_net_admin() {
        let text = "this process lacks CAP_NET_ADMIN, so it can set up neither devices nor rules; run it as root or \
                    give it that capability";
        found.push(Diagnosis::new("no-capability", Severity::Problem, text));
    }
}

/// A router of one family is meant so as often as not. But where interfaces of both sides have
/// addresses of the family that it does not forward, hosts send it such packets.
fn forwarding(socket: &mut Socket, interfaces: &[String], found: &mut Vec<Diagnosis>) {
    let families = [
        (Family::V4, &["ipv4", "ip_forward"][..], "net.ipv4.ip_forward"),
        (Family::V6, &["ipv6", "conf", "all", "forwarding"][..], "net.ipv6.conf.all.forwarding"),
    ];
    let off: Vec<_> = families.iter().filter(|(_, key, _)| sysctl::read_number(key) == Some(0)).collect();
    let has_none = off.len() == families.iter().filter(|(_, key, _)| sysctl::exists(key)).count();
    found.extend(off.into_iter().map(|(family, _, name)| {
        // With IPv6 addresses come by themselves.
        let is_missed = *family == Family::V4 && have_addresses(socket, interfaces, *family);
        let severity = if has_none || is_missed { Severity::Problem } else { Severity::Note };
        let text = format!(
            "this machine does not forward {family} packets ({name} is 0), so there is nothing to split of {family}; if it is to be a router of \
             them, set it with `sysctl -w {name}=1`"
        );
        let finding = Diagnosis::new("not-forwarding", severity, text).seen(*name, 0);
        finding.mended_by(Remedy::run(format!("sysctl -w {name}=1")))
    }));
}

/// Two of the interfaces have addresses of the family.
fn have_addresses(socket: &mut Socket, interfaces: &[String], family: Family) -> bool {
    let addresses = socket.addresses().unwrap_or_default();
    let has = |name: &&String| {
        let index = socket.link_index(name).ok();
        addresses.iter().any(|(of, a)| Some(*of) == index && a.is_ipv4() == (family == Family::V4))
    };
    interfaces.iter().filter(has).count() > 1
}

fn links(socket: &mut Socket, interfaces: &[String], found: &mut Vec<Diagnosis>) {
    if interfaces.is_empty() {
        let text = "no interface is there that is to be diverted, so nothing is split; each is diverted when it comes. `ip link` lists \
                    the ones that exist";
        found.push(Diagnosis::new(NO_INTERFACE, Severity::Problem, text));
    }
    for name in interfaces {
        match socket.link(name) {
            Ok(Some(link)) if !link.up => {
                let text = format!("interface {name} is down; bring it up with `ip link set {name} up`");
                let finding =
                    Diagnosis::new("interface-down", Severity::Warning, text).seen("interface", name);
                found.push(finding.mended_by(Remedy::run(format!("ip link set {name} up"))));
            }
            Ok(Some(link)) if !link.carrier => {
                let text = format!("interface {name} has no carrier (cable, modem or peer is missing)");
                found.push(Diagnosis::new("no-carrier", Severity::Warning, text).seen("interface", name));
            }
            Ok(Some(_)) => {}
            Ok(None) => found.push(Diagnosis::new(
                NO_INTERFACE,
                Severity::Problem,
                format!(
                    "there is no interface {name} now, so nothing is split that would pass it; it is diverted when it comes. `ip link` \
                     lists the ones that exist"
                ),
            )),
            Err(e) => found.push(Diagnosis::new("netlink", Severity::Warning, e.to_string())),
        }
    }
}

/// Foreign rules and routes that use our numbers, or come before us.
pub(super) fn collisions(
    socket: &mut Socket,
    config: &DivertConfig,
    found: &mut Vec<Diagnosis>,
) -> crate::Result<()> {
    let links = socket.links()?;
    for family in Family::BOTH {
        for rule in socket.rules(family)? {
            let ours = rule.protocol == super::plan::PROTOCOL && config.tables().contains(&rule.table);
            if ours {
                continue;
            }
            if rule.mask & config.mark_mask != 0 {
                let finding = Diagnosis::new(
                    "mark-in-use",
                    Severity::Problem,
                    format!(
                        "the {family} rule with priority {} looks at mark bits {:#010x} that Farlink uses \
                         (mark_mask {:#010x}); choose other bits with `mark_mask`",
                        rule.priority, rule.mask, config.mark_mask
                    ),
                );
                let free = OTHER_MASKS.into_iter().find(|other| rule.mask & other == 0);
                let remedy = free.map(|bits| Remedy::configure("divert.mark_mask", format!("{bits:#010x}")));
                found.push(Diagnosis { remedies: remedy.into_iter().collect(), ..finding });
            }
            if config.tables().contains(&rule.table) {
                let text = format!(
                    "the {family} rule with priority {} uses routing table {}, which Farlink needs; choose \
                     others with `table_base`",
                    rule.priority, rule.table
                );
                let finding = Diagnosis::new("table-in-use", Severity::Problem, text);
                found.push(finding.mended_by(other_tables(config)));
            }
            if rule.priority > 0 && rule.priority < config.rule_priority && rule.table != TABLE_LOCAL {
                found.push(Diagnosis::new(
                    "earlier-rule", Severity::Note,
                    format!(
                        "the {family} rule with priority {} is asked before Farlink's ({}); connections that it \
                         routes are not split (change `rule_priority` if they should be)",
                        rule.priority, config.rule_priority
                    ),
                ));
            }
        }
        for (n, table) in config.tables().take(16).enumerate() {
            let routes = socket.routes(family, table)?;
            if let Some(other) = other_instance(&routes, &config.tun_name(n), &links) {
                found.push(Diagnosis::new(
                    "other-instance", Severity::Problem,
                    format!(
                        "routing table {table} leads to {other}, which another Farlink process serves; give this one \
                         an `instance`, a `table_base` and a `mark_mask` of its own"
                    ),
                ));
            }
            if routes.iter().any(|r| r.protocol != super::plan::PROTOCOL) {
                let text = format!(
                    "routing table {table} holds {family} routes of somebody else; choose other tables with \
                     `table_base`"
                );
                let finding = Diagnosis::new("foreign-routes", Severity::Problem, text);
                found.push(finding.mended_by(other_tables(config)));
            }
        }
    }
    Ok(())
}

const TABLE_LOCAL: u32 = 255;

/// What else `mark_mask` could be.
const OTHER_MASKS: [u32; 3] = [0xff00_0000, 0x00ff_0000, 0x0000_ff00];

fn other_tables(config: &DivertConfig) -> Remedy {
    let base = config.table_base.saturating_add(OTHER_TABLES);
    Remedy::configure("divert.table_base", base.to_string())
}

/// So far away other routing tables are offered.
const OTHER_TABLES: u32 = 10_000;

/// The device that a route of ours in the `n`-th table leads to, if it is not the `n`-th of this
/// instance. A killed process leaves no such route: it goes with its device.
fn other_instance(routes: &[Route], expected: &str, links: &[Link]) -> Option<String> {
    let ours = routes.iter().filter(|r| r.protocol == super::plan::PROTOCOL);
    ours.filter_map(|r| links.iter().find(|l| Some(l.index) == r.interface))
        .map(|l| l.name.clone())
        .find(|name| name != expected)
}

/// `src_valid_mark` makes the source check look at our mark; it then finds the TUN where it expects
/// the interface.
fn source_filters(interface: &str, found: &mut Vec<Diagnosis>) {
    let larger = |key: &str| {
        let of = |who: &str| sysctl::read_number(&["ipv4", "conf", who, key]).unwrap_or(0);
        of("all").max(of(interface))
    };
    if larger("src_valid_mark") == 1 && larger("rp_filter") == 1 {
        let text = format!(
            "interface {interface} has rp_filter=1 together with src_valid_mark=1, so the kernel drops every \
             packet that is diverted; set net.ipv4.conf.{interface}.rp_filter to 2 or src_valid_mark to 0"
        );
        let finding = Diagnosis::new("source-check", Severity::Problem, text)
            .seen(format!("net.ipv4.conf.{interface}.rp_filter"), 1)
            .seen(format!("net.ipv4.conf.{interface}.src_valid_mark"), 1);
        let remedy = Remedy::run(format!("sysctl -w net.ipv4.conf.{interface}.rp_filter=2"));
        found.push(finding.mended_by(remedy));
    }
}

/// Forward chains that would drop what is diverted, or the acknowledgements of split connections.
fn filters(
    entries: &[serde_json::Value],
    config: &DivertConfig,
    interfaces: &[String],
    found: &mut Vec<Diagnosis>,
) {
    let all: Vec<Diverted> = interfaces
        .iter()
        .enumerate()
        .map(|(n, i)| Diverted { interface: i.clone(), tun: config.tun_name(n), tun_index: 0 })
        .collect();
    let is_liberal = sysctl::read_number(&["netfilter", "nf_conntrack_tcp_be_liberal"]) == Some(1);
    for dropper in blame::droppers(entries, None, &config.table_name()) {
        let chain = format!("{}/{}", dropper.table, dropper.chain);
        if dropper.drops_invalid && !is_liberal {
            let text = format!(
                "the firewall chain {chain} drops what connection tracking calls invalid, and with it acknowledgements of split \
                 connections: {}",
                blame::INVALID_REMEDY
            );
            let finding = Diagnosis::new("drops-invalid", Severity::Warning, text)
                .seen("chain", &chain)
                .seen("net.netfilter.nf_conntrack_tcp_be_liberal", 0);
            found.push(finding.mended_by(blame::invalid_remedy()));
        }
        let knows = match dropper.knows_us {
            (true, true) => continue,
            (true, false) => "only what goes to Farlink's devices, not what comes out of them",
            (false, true) => "only what comes out of Farlink's devices, not what goes to them",
            (false, false) => "nothing of Farlink's devices",
        };
        if dropper.hook == "forward" && dropper.drops_the_rest {
            let text = format!(
                "the firewall chain {chain} drops what it does not know, and it knows {knows}: diverted connections would be cut off; \
                 add {}",
                blame::remedy(Some(&dropper), &all)
            );
            let mut finding = Diagnosis::new("forward-drops", Severity::Warning, text).seen("chain", chain);
            finding.remedies.push(blame::commands(&dropper, &all));
            found.push(finding);
        }
    }
}

/// What other nftables tables do to diverted packets.
fn rulesets(
    entries: &[serde_json::Value],
    config: &DivertConfig,
    interfaces: &[String],
    found: &mut Vec<Diagnosis>,
) {
    let own = config.table_name();
    let text_of = |v: &serde_json::Value, key: &str| v.get(key).and_then(|t| t.as_str()).map(str::to_owned);
    let tun = format!("farlink{}", config.instance);
    filters(entries, config, interfaces, found);
    if let Ok(mut socket) = Socket::open() {
        let tables = translation::translating(entries, &own, interfaces, &mut socket);
        found.extend(tables.iter().map(|table| translates(table)));
    }
    for entry in entries {
        if let Some(flowtable) = entry.get("flowtable") {
            let devices = flowtable.get("dev").map(ToString::to_string).unwrap_or_default();
            if interfaces.iter().any(|i| devices.contains(&format!("\"{i}\""))) {
                let name = text_of(flowtable, "name").unwrap_or_default();
                let text = format!(
                    "the flowtable {name} forwards connections of a diverted interface past all rules; those are \
                     not split after their first packets"
                );
                found.push(Diagnosis::new("flowtable", Severity::Warning, text).seen("flowtable", name));
            }
        }
        let Some(rule) = entry.get("rule").filter(|r| text_of(r, "table").is_some_and(|t| t != own)) else {
            continue;
        };
        let text = rule.get("expr").map(ToString::to_string).unwrap_or_default();
        if text.contains("\"fib\"")
            && text.contains("\"saddr\"")
            && text.contains("\"iif\"")
            && text.contains("\"drop\"")
        {
            found.push(reverse_path_filter(rule, &tun));
        }
    }
    let mut seen = Vec::new();
    found.retain(|d| {
        let fresh = !seen.contains(d);
        if fresh {
            seen.push(d.clone());
        }
        fresh
    });
}

fn translates(table: &str) -> Diagnosis {
    let text = format!(
        "table {table} translates source addresses on this machine: the answers to translated connections are addressed to this machine \
         itself, so Farlink sees one direction only and forwards those connections unsplit. A bump sees both: `method = \"bump\"`, where \
         the kernel allows it; else run Farlink on another router, or before the translation"
    );
    Diagnosis::new("nat-here", Severity::Warning, text)
        .seen("table", table)
        .mended_by(Remedy::configure("divert.method", "\"bump\""))
}

fn reverse_path_filter(rule: &serde_json::Value, tun: &str) -> Diagnosis {
    let of = |key: &str| rule.get(key).and_then(|t| t.as_str()).unwrap_or_default();
    let place = format!("{} {} {}", of("family"), of("table"), of("chain"));
    let text = format!(
        "table {} drops packets whose source is not routed back to where they came in (a reverse path filter, such as firewalld's \
         IPv6_rpfilter): that hits everything Farlink sends; exempt `iifname \"{tun}*\"`",
        of("table")
    );
    Diagnosis::new("reverse-path-filter", Severity::Warning, text)
        .seen("chain", &place)
        .mended_by(Remedy::run(format!("nft insert rule {place} iifname '\"{tun}*\"' accept")))
}

/// Looks at whether what [`super::Divert`] set up is still there. Empty when all is well.
#[must_use]
pub fn verify(config: &DivertConfig, interfaces: &[Diverted]) -> Vec<Diagnosis> {
    let mut found = Vec::new();
    let mut miss = |text: String| found.push(Diagnosis::new("diversion-missing", Severity::Problem, text));
    if config.method == Method::Bump {
        let Ok(mut socket) = Socket::open() else { return found };
        for Diverted { interface, tun, .. } in interfaces {
            if !socket.link(tun).is_ok_and(|link| link.is_some_and(|l| l.up)) {
                miss(format!("the device {tun} is down or gone; nothing that passes {interface} is split"));
            }
        }
        return found;
    }
    let has_table = Nftables::open().and_then(|mut nft| nft.has_table(&config.table_name()));
    if has_table.is_ok_and(|has| !has) {
        miss(format!("the nftables table inet {} is gone; nothing is diverted", config.table_name()));
    }
    let Ok(plan) = super::plan::Plan::new(config.clone(), interfaces.to_vec()) else { return found };
    let Ok(mut socket) = Socket::open() else { return found };
    for family in Family::BOTH {
        let rules = socket.rules(family).unwrap_or_default();
        for rule in plan.rules().filter(|r| r.family == family) {
            if !rules.contains(&rule) {
                miss(format!("the {family} policy-routing rule for mark {:#x} is gone", rule.mark));
            }
        }
    }
    for route in plan.routes() {
        let routes = socket.routes(route.family, route.table).unwrap_or_default();
        if !routes.iter().any(|r| r.interface == route.interface && r.destination.is_none()) {
            miss(format!("routing table {} has lost its {} route", route.table, route.family));
        }
    }
    found
}
