//! What the router's own rules and its connection tracking have seen of transfers.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::netns::Ns;
use crate::sh;

/// Before all filters, behind connection tracking: TCP that is forwarded, by its two interfaces.
const WATCH: &str = "table inet router_watch {
set pairs { type ifname . ifname; size 64; flags dynamic; counter; }
counter invalid { }
chain onward {
type filter hook forward priority -300; policy accept;
meta l4proto tcp update @pairs { iifname . oifname }
meta l4proto tcp ct state invalid counter name invalid
}
}";
const WATCH_TABLE: &str = "router_watch";
/// Beyond the router: packets of TCP with a private address.
const LEAK_TABLE: &str = "router_leak";
/// Headers of a packet: those of IPv6 with the options that hosts send, beside data.
const HEADER_BYTES: u64 = 80;
/// Those of an acknowledgement with SACK blocks.
const BARE_BYTES: u64 = 104;
/// Handshake, request and end of a transfer, with all options.
const EDGE_BYTES: u64 = 1500;

/// Packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) packets: u64,
    pub(super) bytes: u64,
}

impl Count {
    fn read(value: &Value) -> Option<Self> {
        Some(Self { packets: value["packets"].as_u64()?, bytes: value["bytes"].as_u64()? })
    }

    fn since(self, earlier: Self) -> Self {
        Self {
            packets: self.packets.saturating_sub(earlier.packets),
            bytes: self.bytes.saturating_sub(earlier.bytes),
        }
    }

    /// Whether these are `payload` bytes, each once, with the headers of so many packets. A
    /// super-segment is one packet. One byte in 200 may ask for a window.
    fn is_once(self, payload: u64) -> bool {
        let most = payload + payload / 200 + self.packets * HEADER_BYTES + EDGE_BYTES;
        (payload..=most).contains(&self.bytes)
    }

    /// Whether these are `payload` bytes, each once, or some of them again: not all, as where
    /// packets are counted twice.
    pub(super) fn is_of(self, payload: u64, has_repetitions: bool) -> bool {
        let most = payload / 2 * 3 + self.packets * HEADER_BYTES;
        self.is_once(payload) || has_repetitions && (payload..=most).contains(&self.bytes)
    }

    /// Whether these are headers only.
    pub(super) fn is_bare(self) -> bool {
        self.bytes <= self.packets * BARE_BYTES + EDGE_BYTES
    }
}

/// What a router has seen until now.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// By the interfaces that packets came in and left by.
    pub(super) pairs: BTreeMap<(String, String), Count>,
    /// Packets that connection tracking calls invalid.
    pub(super) invalid: u64,
    /// The rules of the operator, by their place: those that count.
    pub(super) rules: BTreeMap<String, Count>,
}

impl Seen {
    pub(super) fn since(&self, earlier: &Self) -> Self {
        Self {
            pairs: differences(&self.pairs, &earlier.pairs),
            invalid: self.invalid.saturating_sub(earlier.invalid),
            rules: differences(&self.rules, &earlier.rules),
        }
    }
}

/// Those that have counted something meanwhile.
fn differences<K: Ord + Clone>(now: &BTreeMap<K, Count>, then: &BTreeMap<K, Count>) -> BTreeMap<K, Count> {
    let since = |(key, count): (&K, &Count)| {
        let count = count.since(then.get(key).copied().unwrap_or_default());
        (count.packets > 0).then(|| (key.clone(), count))
    };
    now.iter().filter_map(since).collect()
}

/// Begins to watch what a router forwards, and has connection tracking count.
pub(super) fn watch(ns: &Ns) -> Result<()> {
    ns.run("nft", &[WATCH]).context("watching the forward chain")?;
    ns.sysctls(&[("net.netfilter.nf_conntrack_acct".into(), "1".into())])
}

/// What the router has seen.
pub(super) fn seen(ns: &Ns) -> Result<Seen> {
    let mut seen = of_nft(&ruleset(ns)?);
    // The old iptables has rules that nftables does not show.
    for program in ["iptables-legacy-save", "ip6tables-legacy-save"].map(sh::find).into_iter().flatten() {
        let text = ns.run(&program.to_string_lossy(), &["-c"])?;
        seen.rules.extend(of_legacy(&text));
    }
    Ok(seen)
}

/// All objects of all tables but ours. Table by table: nft 1.0.6 breaks off a list of all of them
/// where one has an owner, as ours has with policy routing.
fn ruleset(ns: &Ns) -> Result<Vec<Value>> {
    let list = |family: &str, name: &str| -> Result<Vec<Value>> {
        let text = ns.run("nft", &["-j", "list", "table", family, name])?;
        if text.trim().is_empty() {
            // It cannot write some rules of iptables as JSON.
            return Ok(Vec::new());
        }
        let mut listed: Value =
            serde_json::from_str(&text).with_context(|| format!("nft -j list table {family} {name}"))?;
        Ok(std::mem::take(listed["nftables"].as_array_mut().context("no list of nft")?))
    };
    let mut objects = Vec::new();
    // As text: beside some rules of iptables the list of tables is empty as JSON.
    for line in ns.run("nft", &["list", "tables"])?.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        if let ["table", family, name] = words[..]
            && !name.starts_with("farlink")
        {
            objects.extend(list(family, name)?);
        }
    }
    Ok(objects)
}

fn of_nft(objects: &[Value]) -> Seen {
    let mut seen = Seen::default();
    let mut places: BTreeMap<String, u32> = BTreeMap::new();
    for object in objects {
        let text = |of: &Value, key: &str| of[key].as_str().unwrap_or_default().to_owned();
        if object["set"]["table"] == WATCH_TABLE {
            for element in object["set"]["elem"].as_array().into_iter().flatten() {
                let element = &element["elem"];
                let names = &element["val"]["concat"];
                let pair = (names[0].as_str(), names[1].as_str());
                if let ((Some(from), Some(to)), Some(count)) = (pair, Count::read(&element["counter"])) {
                    seen.pairs.insert((from.into(), to.into()), count);
                }
            }
        }
        if object["counter"]["table"] == WATCH_TABLE {
            seen.invalid = object["counter"]["packets"].as_u64().unwrap_or(0);
        }
        let rule = &object["rule"];
        let table = text(rule, "table");
        if rule.is_null() || table == WATCH_TABLE {
            continue;
        }
        let chain = format!("{} {table} {}", text(rule, "family"), text(rule, "chain"));
        let place = places.entry(chain.clone()).or_default();
        *place += 1;
        let counters = rule["expr"].as_array().into_iter().flatten();
        if let Some(count) = counters.filter_map(|e| Count::read(&e["counter"])).next() {
            seen.rules.insert(format!("{chain} {place}"), count);
        }
    }
    seen
}

/// Lines such as `[3:180] -A FORWARD -i lan0 -j ACCEPT`.
fn of_legacy(text: &str) -> impl Iterator<Item = (String, Count)> {
    text.lines().filter_map(|line| {
        let (counter, rule) = line.strip_prefix('[')?.split_once("] -A ")?;
        let (packets, bytes) = counter.split_once(':')?;
        let count = Count { packets: packets.parse().ok()?, bytes: bytes.parse().ok()? };
        Some((format!("legacy {rule}"), count))
    })
}

/// An entry of connection tracking.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tracked {
    pub(super) state: String,
    pub(super) is_assured: bool,
    /// In the direction of who opened it, and back.
    pub(super) counts: [Count; 2],
}

/// The entries of connections whose opener has this port.
pub(super) fn tracked(ns: &Ns, v6: bool, port: u16) -> Result<Vec<Tracked>> {
    let family = if v6 { "ipv6" } else { "ipv4" };
    let text = ns.run("conntrack", &["-L", "-p", "tcp", "-f", family])?;
    Ok(of_text(&text, port))
}

/// The same of what `conntrack -L` has said.
pub(super) fn of_text(text: &str, port: u16) -> Vec<Tracked> {
    text.lines().filter_map(|line| of_line(line, port)).collect()
}

/// `tcp 6 119 STATE src= dst= sport= dport= packets= bytes=`, and all of these once more.
fn of_line(line: &str, port: u16) -> Option<Tracked> {
    let mut tracked = Tracked::default();
    let mut words = line.split_whitespace();
    tracked.state = words.nth(3)?.to_owned();
    let mut way = None;
    let mut ports = Vec::new();
    for word in words {
        tracked.is_assured |= word == "[ASSURED]";
        let Some((key, value)) = word.split_once('=') else { continue };
        match key {
            "src" => way = Some(way.map_or(0, |w: usize| w + 1).min(1)),
            "sport" => ports.push(value.parse::<u16>().ok()?),
            "packets" => tracked.counts[way?].packets = value.parse().ok()?,
            "bytes" => tracked.counts[way?].bytes = value.parse().ok()?,
            _ => {}
        }
    }
    (ports.first() == Some(&port)).then_some(tracked)
}

/// Begins to look for this address on a machine beyond the router.
pub(super) fn watch_for(ns: &Ns, address: std::net::IpAddr) -> Result<()> {
    let family = if address.is_ipv6() { "ip6" } else { "ip" };
    let rules = ["saddr", "daddr"].map(|side| format!("{family} {side} {address} counter name leaked"));
    ns.run(
        "nft",
        &[&format!(
            "table inet {LEAK_TABLE} {{\ncounter leaked {{ }}\nchain seen {{\n\
             type filter hook prerouting priority -300; policy accept;\n{}\n}}\n}}",
            rules.join("\n")
        )],
    )?;
    Ok(())
}

/// How many packets with it came there.
pub(super) fn leaked(ns: &Ns) -> Result<u64> {
    let text = ns.run("nft", &["-j", "list", "counter", "inet", LEAK_TABLE, "leaked"])?;
    let value: Value = serde_json::from_str(&text)?;
    let objects = value["nftables"].as_array().into_iter().flatten();
    let packets = objects.filter_map(|o| o["counter"]["packets"].as_u64()).next();
    packets.context("the counter of private addresses is gone")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn entries_of_connection_tracking_are_read() {
        let line = "tcp      6 119 ESTABLISHED src=10.9.1.2 dst=10.9.2.2 sport=59200 dport=80 packets=5 bytes=318 \
                    src=10.9.2.2 dst=10.9.3.2 sport=80 dport=1025 packets=3 bytes=164 [ASSURED] mark=0 use=1";
        let tracked = of_line(line, 59200).unwrap();
        assert_eq!((tracked.state.as_str(), tracked.is_assured), ("ESTABLISHED", true));
        let of = |packets, bytes| Count { packets, bytes };
        assert_eq!(tracked.counts, [of(5, 318), of(3, 164)]);
        assert_eq!(of_line(line, 80), None, "the port of the one who opened it");
    }

    #[test]
    fn pairs_and_rules_are_read_and_what_watches_is_left_out() {
        let counter = json!({"counter": {"packets": 2, "bytes": 90}});
        let rule =
            |table: &str| json!({"rule": {"family": "ip", "table": table, "chain": "c", "expr": [counter]}});
        let objects = [
            json!({"set": {"table": WATCH_TABLE, "elem": [{"elem": {"val": {"concat": ["a", "b"]},
                "counter": {"packets": 3, "bytes": 164}}}]}}),
            json!({"counter": {"table": WATCH_TABLE, "name": "invalid", "packets": 7, "bytes": 0}}),
            rule(WATCH_TABLE),
            rule("filter"),
            rule("filter"),
        ];
        let seen = of_nft(&objects);
        assert_eq!(seen.pairs[&("a".into(), "b".into())], Count { packets: 3, bytes: 164 });
        assert_eq!(seen.invalid, 7);
        assert_eq!(seen.rules.keys().collect::<Vec<_>>(), ["ip filter c 1", "ip filter c 2"]);
        assert!(seen.since(&seen).rules.is_empty(), "nothing since then");
    }

    #[test]
    fn rules_of_the_old_iptables_are_read() {
        let rules: Vec<_> =
            of_legacy(":FORWARD DROP [0:0]\n[3:180] -A FORWARD -i lan0 -j ACCEPT\n").collect();
        let count = Count { packets: 3, bytes: 180 };
        assert_eq!(rules, [("legacy FORWARD -i lan0 -j ACCEPT".to_owned(), count)]);
    }

    #[test]
    fn data_is_counted_once_or_not() {
        let of = |packets, bytes| Count { packets, bytes };
        assert!(of(10, 100_500).is_once(100_000) && of(70, 103_640).is_once(100_000));
        assert!(!of(70, 207_000).is_once(100_000) && !of(70, 99_999).is_once(100_000));
        assert!(of(35, 35 * 52).is_bare() && !of(35, 50_000).is_bare());
    }
}
