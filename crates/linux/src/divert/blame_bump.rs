//! Why packets go into a bump and do not come out, in words. The machine's rules see the packets
//! that they would see without it, so they are to blame only for what they see differently.

use std::net::IpAddr;

use serde_json::Value;

use super::blame::{droppers, legacy_tables};
use super::diagnosis::{Diagnosis, Severity};
use super::nft;
use crate::bump::Side;
use crate::netlink::{Family, Link, RouteKey, Socket};
use crate::programs::{self, Program};

const RTN_UNICAST: u8 = 1;

/// What was lost, and where.
#[derive(Clone, Copy, Debug)]
pub struct LostAtBump<'a> {
    /// The bumped interface.
    pub interface: &'a str,
    /// To which of its sides they were written.
    pub to: Side,
    /// Of which family they are.
    pub family: Family,
    /// Source and destination of one of them.
    pub sample: Option<(IpAddr, IpAddr)>,
}

/// The finding of something that drops it; with another one all that is known was found innocent.
pub(crate) const FOUND_AT_BUMP: &str = "lost-by-hardware-address";

/// Finds the cause. `None`: they would be lost without a bump, too. Runs `nft` at most once.
pub fn blame_bump(socket: &mut Socket, lost: &LostAtBump<'_>) -> Option<Diagnosis> {
    if lost.to == Side::Wire {
        return on_the_way_out(socket, lost);
    }
    let index = socket.link_index(lost.interface).ok()?;
    let mut leads_on = false;
    if let Some((source, destination)) = lost.sample {
        // No route, or the source address check.
        let key = RouteKey { destination, from: Some((source, index)), mark: 0, ports: None };
        if socket.route_refusal(&key).ok()?.is_some() {
            return None;
        }
        leads_on = reaches_next_hop(socket, &key);
    }
    let legacy = legacy_rules(lost.family);
    let cause = of_rules(&nft::ruleset("farlink").unwrap_or_default(), &legacy, lost)?;
    (cause.id == FOUND_AT_BUMP || leads_on).then_some(cause)
}

/// What Farlink sends by an interface passes whoever stands at its exit a second time, and without
/// its mark. Where no next hop is known nobody's packets leave.
fn on_the_way_out(socket: &mut Socket, lost: &LostAtBump<'_>) -> Option<Diagnosis> {
    let link = socket.link(lost.interface).ok()??;
    let (_, destination) = lost.sample?;
    let key = RouteKey { destination, from: None, mark: 0, ports: None };
    let hop = socket.route_lookup(&key).ok()??;
    let is_by_it = hop.kind == RTN_UNICAST && hop.interface == link.index;
    let next = hop.gateway.unwrap_or(destination);
    (is_by_it && leads_to(socket, &link, next)).then(|| {
        let LostAtBump { interface, family, .. } = lost;
        let text = format!(
            "what Farlink sends by {interface} of {family} TCP does not leave, although the next hop is there: a program or a rule at the exit of \
             {interface} drops it (`tc filter show dev {interface} egress`, `bpftool net`, `nft list hooks`). Packets pass it a second time there, as new \
             ones: let it pass these, or divert by `method = \"policy\"`"
        );
        let finding = Diagnosis::new(FOUND_AT_EXIT, Severity::Problem, text);
        finding.seen("interface", interface).seen("family", family)
    })
}

/// Something at the exit of an interface drops it.
const FOUND_AT_EXIT: &str = "lost-at-exit";

/// What is forwarded this way gets to a next hop that is there. An address of this machine is one
/// that is translated: nobody here knows to which.
fn reaches_next_hop(socket: &mut Socket, key: &RouteKey) -> bool {
    let Ok(Some(hop)) = socket.route_lookup(key) else { return false };
    if hop.kind != RTN_UNICAST {
        return false;
    }
    let links = socket.links().unwrap_or_default();
    let Some(link) = links.iter().find(|link| link.index == hop.interface) else { return false };
    leads_to(socket, link, hop.gateway.unwrap_or(key.destination))
}

/// Without Ethernet headers there are no next hops.
fn leads_to(socket: &mut Socket, link: &Link, next: IpAddr) -> bool {
    let is_known = |socket: &mut Socket| socket.is_neighbour_known(link.index, next).unwrap_or(false);
    link.is_usable() && (link.ethernet.is_none() || is_known(socket))
}

/// The rules of the old iptables for a family, which nftables does not show. `None`: there are
/// some, and nobody can say which.
fn legacy_rules(family: Family) -> Option<String> {
    let (name, program) = match family {
        Family::V4 => ("ip", Program::IptablesLegacySave),
        Family::V6 => ("ip6", Program::Ip6tablesLegacySave),
    };
    if !legacy_tables().iter().any(|table| table == name) {
        return Some(String::new());
    }
    let output = programs::run(program, &[], "").ok()?;
    output.is_success.then_some(output.stdout)
}

/// A rule that looks at hardware addresses: those of Farlink's packets are its own.
fn of_rules(ruleset: &[Value], legacy: &Option<String>, lost: &LostAtBump<'_>) -> Option<Diagnosis> {
    let chains = droppers(ruleset, Some(lost.family), "farlink");
    let what = format!("{} TCP that comes in by {}", lost.family, lost.interface);
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let strict = chains.iter().find(|chain| {
        ruleset.iter().filter_map(|entry| entry.get("rule")).any(|rule| {
            let expr = rule.get("expr").map(Value::to_string).unwrap_or_default();
            text(rule, "family").as_deref() == Some(&chain.family)
                && text(rule, "table").as_deref() == Some(&chain.table)
                && (expr.contains("\"ether\"") || expr.contains("\"mac\""))
        })
    });
    let finding = |id: &'static str, text: String| {
        let finding = Diagnosis::new(id, Severity::Problem, text).seen("interface", lost.interface);
        finding.seen("family", lost.family)
    };
    let hardware = |who: &str| {
        let text = format!(
            "the firewall ({who}) drops {what}: a rule there looks at hardware addresses (`ether saddr`, `-m mac`), and Farlink's \
             packets do not have their sender's; let it look at IP addresses, or put the bump at another interface (`attach`)"
        );
        finding(FOUND_AT_BUMP, text).seen("chain", who)
    };
    if let Some(chain) = strict {
        return Some(hardware(&format!("chain {} {} {}", chain.family, chain.table, chain.chain)));
    }
    match legacy {
        Some(rules) if rules.contains("--mac-source") => return Some(hardware("rules of the old iptables")),
        // These refuse it without a bump, too.
        _ if !chains.is_empty() => return None,
        Some(rules) if !rules.is_empty() => return None,
        _ => {}
    }
    let text = format!(
        "{what} is dropped by something that nftables does not show (old iptables, BPF, IPsec policy) although routes lead on; if it \
         comes out without Farlink, put the bump at another interface (`attach`), or divert by `method = \"policy\"`"
    );
    Some(finding("lost-unseen", text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn said(ruleset: &Value, legacy: Option<&str>) -> Option<String> {
        let lost = LostAtBump { interface: "lan0", to: Side::Stack, family: Family::V4, sample: None };
        let cause = of_rules(ruleset.as_array().unwrap(), &legacy.map(str::to_owned), &lost)?;
        assert_eq!(cause.id == FOUND_AT_BUMP, cause.text.contains("hardware addresses"));
        Some(cause.text)
    }

    #[test]
    fn only_what_rules_see_differently_is_the_fault_of_a_bump() {
        let chain = json!({"chain": {"family": "inet", "table": "t", "name": "f", "hook": "forward", "policy": "drop"}});
        let rule = |field: Value| json!({"rule": {"family": "inet", "table": "t", "chain": "f", "expr": [field, {"accept": null}]}});
        let mac = json!({"match": {"op": "==", "left": {"payload": {"protocol": "ether", "field": "saddr"}}, "right": "00:11:22:33:44:55"}});
        let ip = json!({"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "saddr"}}, "right": "10.0.0.1"}});
        assert_eq!(said(&json!([chain, rule(ip)]), Some("")), None);
        let text = said(&json!([chain, rule(mac)]), Some("")).unwrap();
        assert!(
            text.contains("chain inet t f") && text.contains("lan0") && text.contains("look at IP addresses"),
            "{text}"
        );
        for unknown in [Some(""), None] {
            assert!(said(&json!([]), unknown).unwrap().contains("nftables does not show"));
        }
        assert_eq!(said(&json!([]), Some("-A FORWARD -i lan0 -j DROP")), None, "it does so without a bump");
        let mac = "-A FORWARD -m mac --mac-source 00:11:22:33:44:55 -j ACCEPT";
        assert!(said(&json!([]), Some(mac)).unwrap().contains("the old iptables"));
    }
}
