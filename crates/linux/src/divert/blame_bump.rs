//! Why packets go into a bump and do not come out, in words. The machine's rules see the packets
//! that they would see without it, so they are to blame only for what they see differently.

use std::net::IpAddr;

use serde_json::Value;

use super::blame::droppers;
use super::nft;
use crate::bump::Side;
use crate::netlink::{Family, RouteKey, Socket};

/// RT_TABLE_MAIN (linux/rtnetlink.h).
const TABLE_MAIN: u32 = 254;

/// What was lost, and where.
#[derive(Clone, Copy, Debug)]
pub struct LostAtBump<'a> {
    /// The bumped interface.
    pub interface: &'a str,
    /// Where the packets were written to.
    pub to: Side,
    /// Of which family they are.
    pub family: Family,
    /// Source and destination of one of them.
    pub sample: Option<(IpAddr, IpAddr)>,
}

/// Finds the cause. `None`: they would be lost without a bump, too. Runs `nft` at most once.
pub fn blame_bump(socket: &mut Socket, lost: &LostAtBump<'_>) -> Option<String> {
    match lost.to {
        Side::Wire => no_next_hop(socket, lost),
        Side::Stack => {
            let index = socket.link_index(lost.interface).ok()?;
            if let Some((source, destination)) = lost.sample {
                // No route, or the source address check.
                let key = RouteKey { destination, from: Some((source, index)), mark: 0 };
                if socket.route_refusal(&key).ok()?.is_some() {
                    return None;
                }
            }
            of_rules(&nft::list(&["ruleset"]).unwrap_or_default(), lost)
        }
    }
}

/// The kernel sends by this interface, but does not know how when it is asked for this interface.
fn no_next_hop(socket: &mut Socket, lost: &LostAtBump<'_>) -> Option<String> {
    let (_, destination) = lost.sample?;
    let index = socket.link_index(lost.interface).ok()?;
    let key = RouteKey { destination, from: None, mark: 0 };
    if socket.route_lookup(&key).ok()?.is_some_and(|hop| hop.interface == index) {
        // The next hop does not answer: an outage.
        return None;
    }
    let covers = |to: Option<(IpAddr, u8)>| to.is_none_or(|(prefix, bits)| is_in(destination, prefix, bits));
    let routes = socket.routes(lost.family, TABLE_MAIN).ok()?;
    if routes.iter().any(|r| r.interface == Some(index) && covers(r.destination)) {
        return None;
    }
    Some(format!(
        "{} TCP to {destination} leaves by {interface}, but no route in the main table leads there: a policy-routing rule that looks at the \
         incoming interface or a mark has chosen {interface}, and what Farlink sends does not find its next hop; add it to the main \
         table (`ip {flag}route add default via NEXT-HOP dev {interface} metric 4000`), or divert by `method = \"policy\"`",
        lost.family,
        interface = lost.interface,
        flag = if lost.family == Family::V6 { "-6 " } else { "" },
    ))
}

fn is_in(address: IpAddr, prefix: IpAddr, bits: u8) -> bool {
    let number = |a: IpAddr| match a {
        IpAddr::V4(a) => u128::from(u32::from(a)) << 96,
        IpAddr::V6(a) => u128::from(a),
    };
    let differs = number(address) ^ number(prefix);
    address.is_ipv4() == prefix.is_ipv4() && (bits == 0 || differs >> (128 - u32::from(bits.min(128))) == 0)
}

/// A rule that looks at hardware addresses: those of Farlink's packets are its own.
fn of_rules(ruleset: &[Value], lost: &LostAtBump<'_>) -> Option<String> {
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
    match (strict, chains.is_empty()) {
        (Some(chain), _) => Some(format!(
            "the firewall (chain {} {} {}) drops {what}: a rule there looks at hardware addresses (`ether saddr`, `-m mac`), and Farlink's \
             packets do not have their sender's; let it look at IP addresses, or put the bump at another interface (`attach`)",
            chain.family, chain.table, chain.chain
        )),
        (None, false) => None,
        (None, true) => Some(format!(
            "{what} is dropped by something that nftables does not show (old iptables, BPF, IPsec policy) although routes lead on; if it \
             comes out without Farlink, put the bump at another interface (`attach`), or divert by `method = \"policy\"`"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn said(ruleset: &Value) -> Option<String> {
        let lost = LostAtBump { interface: "lan0", to: Side::Stack, family: Family::V4, sample: None };
        of_rules(ruleset.as_array().unwrap(), &lost)
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

    #[test]
    fn a_prefix_covers_its_addresses() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(is_in(ip("10.2.3.4"), ip("10.2.0.0"), 16) && !is_in(ip("10.3.0.1"), ip("10.2.0.0"), 16));
        assert!(is_in(ip("fd02::7"), ip("fd02::"), 64) && !is_in(ip("fd03::7"), ip("fd02::"), 64));
        assert!(is_in(ip("10.2.3.4"), ip("0.0.0.0"), 0) && !is_in(ip("10.2.3.4"), ip("::"), 0));
    }
}
