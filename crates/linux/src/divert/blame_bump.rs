//! Why packets go into a bump and do not come out, in words. The machine's rules see the packets
//! that they would see without it, so they are to blame only for what they see differently.

use std::net::IpAddr;

use serde_json::Value;

use super::blame::droppers;
use super::diagnosis::{Diagnosis, Severity};
use super::nft;
use crate::netlink::{Family, RouteKey, Socket};

/// What was lost, and where.
#[derive(Clone, Copy, Debug)]
pub struct LostAtBump<'a> {
    /// The bumped interface.
    pub interface: &'a str,
    /// Of which family they are.
    pub family: Family,
    /// Source and destination of one of them.
    pub sample: Option<(IpAddr, IpAddr)>,
}

/// Finds the cause. `None`: they would be lost without a bump, too. Runs `nft` at most once.
pub fn blame_bump(socket: &mut Socket, lost: &LostAtBump<'_>) -> Option<Diagnosis> {
    let index = socket.link_index(lost.interface).ok()?;
    if let Some((source, destination)) = lost.sample {
        // No route, or the source address check.
        let key = RouteKey { destination, from: Some((source, index)), mark: 0 };
        if socket.route_refusal(&key).ok()?.is_some() {
            return None;
        }
    }
    of_rules(&nft::ruleset("farlink").unwrap_or_default(), lost)
}

/// A rule that looks at hardware addresses: those of Farlink's packets are its own.
fn of_rules(ruleset: &[Value], lost: &LostAtBump<'_>) -> Option<Diagnosis> {
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
    match (strict, chains.is_empty()) {
        (Some(chain), _) => {
            let place = format!("{} {} {}", chain.family, chain.table, chain.chain);
            let text = format!(
                "the firewall (chain {place}) drops {what}: a rule there looks at hardware addresses (`ether saddr`, `-m mac`), and Farlink's \
                 packets do not have their sender's; let it look at IP addresses, or put the bump at another interface (`attach`)"
            );
            Some(finding("lost-by-hardware-address", text).seen("chain", place))
        }
        (None, false) => None,
        (None, true) => {
            let text = format!(
                "{what} is dropped by something that nftables does not show (old iptables, BPF, IPsec policy) although routes lead on; if it \
                 comes out without Farlink, put the bump at another interface (`attach`), or divert by `method = \"policy\"`"
            );
            Some(finding("lost-unseen", text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn said(ruleset: &Value) -> Option<String> {
        let lost = LostAtBump { interface: "lan0", family: Family::V4, sample: None };
        of_rules(ruleset.as_array().unwrap(), &lost).map(|found| found.text)
    }

    #[test]
    fn only_what_rules_see_differently_is_the_fault_of_a_bump() {
        let chain = json!({"chain": {"family": "inet", "table": "t", "name": "f", "hook": "forward", "policy": "drop"}});
        let rule = |field: Value| json!({"rule": {"family": "inet", "table": "t", "chain": "f", "expr": [field, {"accept": null}]}});
        let mac = json!({"match": {"op": "==", "left": {"payload": {"protocol": "ether", "field": "saddr"}}, "right": "00:11:22:33:44:55"}});
        let ip = json!({"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "saddr"}}, "right": "10.0.0.1"}});
        assert_eq!(said(&json!([chain, rule(ip)])), None);
        let text = said(&json!([chain, rule(mac)])).unwrap();
        assert!(
            text.contains("chain inet t f") && text.contains("lan0") && text.contains("look at IP addresses"),
            "{text}"
        );
        assert!(said(&json!([])).unwrap().contains("nftables does not show"));
    }
}
