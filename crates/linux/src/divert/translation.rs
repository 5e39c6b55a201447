//! Does this machine translate the source addresses of what Farlink diverts? Docker's masquerade,
//! for example, is for the networks of its containers alone.

use std::net::IpAddr;

use serde_json::Value;

use crate::netlink::{Family, Socket};

/// The routing table of what is connected and what operators add.
const TABLE_MAIN: u32 = 254;

/// A network that a diverted interface leads to.
type Network = (IpAddr, u8);

/// Names of the tables that translate source addresses of packets between `interfaces`, each once.
pub(super) fn translating(
    ruleset: &[Value],
    own_table: &str,
    interfaces: &[String],
    socket: &mut Socket,
) -> Vec<String> {
    let behind = networks(socket, interfaces);
    let mut tables = Vec::new();
    for rule in ruleset.iter().filter_map(|entry| entry.get("rule")) {
        let table = rule.get("table").and_then(Value::as_str).unwrap_or_default();
        let expr = rule.get("expr").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let translates =
            expr.iter().any(|part| part.get("masquerade").is_some() || part.get("snat").is_some());
        if table != own_table
            && translates
            && concerns(expr, interfaces, behind.as_deref())
            && !tables.iter().any(|known| known == table)
        {
            tables.push(table.to_owned());
        }
    }
    tables
}

/// Networks that the interfaces lead to, but for the rest of the world; `None`: unknown.
fn networks(socket: &mut Socket, interfaces: &[String]) -> Option<Vec<Network>> {
    let indices: Vec<_> = interfaces.iter().filter_map(|name| socket.link_index(name).ok()).collect();
    let mut found = Vec::new();
    for family in Family::BOTH {
        let routes = socket.routes(family, TABLE_MAIN).ok()?;
        let ours = routes.into_iter().filter(|r| r.interface.is_some_and(|i| indices.contains(&i)));
        found.extend(ours.filter_map(|r| r.destination));
    }
    Some(found)
}

/// Whether a rule can meet packets between the interfaces. What it does not understand can.
fn concerns(expr: &[Value], interfaces: &[String], behind: Option<&[Network]>) -> bool {
    expr.iter().filter_map(|part| part.get("match")).all(|m| {
        let (left, right) = (m.get("left"), m.get("right"));
        if m.get("op").and_then(Value::as_str) != Some("==") {
            return true;
        }
        let meta = left.and_then(|l| l.pointer("/meta/key")).and_then(Value::as_str);
        if let (Some("oifname" | "oif" | "iifname" | "iif"), Some(Value::String(name))) = (meta, right) {
            return interfaces.iter().any(|i| fits(name, i));
        }
        let field = left.and_then(|l| l.pointer("/payload/field")).and_then(Value::as_str);
        match (field, right.and_then(network), behind) {
            (Some("saddr"), Some(of_rule), Some(behind)) => {
                behind.iter().any(|known| overlap(of_rule, *known))
            }
            _ => true,
        }
    })
}

/// Names in rules may end in `*`.
fn fits(pattern: &str, name: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == name, |start| name.starts_with(start))
}

fn network(value: &Value) -> Option<Network> {
    if let Some(address) = value.as_str() {
        let address: IpAddr = address.parse().ok()?;
        return Some((address, if address.is_ipv4() { 32 } else { 128 }));
    }
    let prefix = value.get("prefix")?;
    let bits = u8::try_from(prefix.get("len")?.as_u64()?).ok()?;
    Some((prefix.get("addr")?.as_str()?.parse().ok()?, bits))
}

fn overlap((a, a_bits): Network, (b, b_bits): Network) -> bool {
    let bits = |address: IpAddr| match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()) << 96,
        IpAddr::V6(v6) => v6.to_bits(),
    };
    let common = u32::from(a_bits.min(b_bits));
    a.is_ipv4() == b.is_ipv4() && (bits(a) ^ bits(b)).checked_shr(128 - common).unwrap_or(0) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_rules_that_can_meet_diverted_packets_count() {
        let interfaces = ["lan0".to_owned(), "sat0".to_owned()];
        let behind: Vec<Network> = vec![("10.1.0.0".parse().unwrap(), 16), ("fd00:1::".parse().unwrap(), 64)];
        let met = |expr: Value| concerns(expr.as_array().unwrap(), &interfaces, Some(&behind));
        let out = |op: &str, name: &str| json!({"match": {"op": op, "left": {"meta": {"key": "oifname"}}, "right": name}});
        let from = |of: &str, addr: &str, len: u8| {
            json!({"match": {"op": "==", "left": {"payload": {"protocol": of, "field": "saddr"}},
                "right": {"prefix": {"addr": addr, "len": len}}}})
        };
        let masquerade = json!({"masquerade": null});
        assert!(met(json!([masquerade])));
        assert!(met(json!([out("==", "sat0"), masquerade])) && met(json!([out("==", "sat*"), masquerade])));
        assert!(!met(json!([out("==", "wan9"), masquerade])) && !met(json!([out("==", "wan*"), masquerade])));
        assert!(met(json!([out("!=", "docker0"), masquerade])));
        assert!(
            !met(json!([from("ip", "172.17.0.0", 16), out("!=", "docker0"), masquerade])),
            "Docker's own"
        );
        assert!(met(json!([from("ip", "10.1.2.0", 24), masquerade])));
        assert!(met(json!([from("ip", "10.0.0.0", 8), masquerade])));
        assert!(met(json!([from("ip6", "fd00:1::", 48), masquerade])));
        assert!(!met(json!([from("ip6", "fd00:2::", 64), masquerade])));
    }
}
