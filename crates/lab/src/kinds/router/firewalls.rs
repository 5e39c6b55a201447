//! Firewalls as operators have them, on a router with two interfaces: the LAN's and the link's.

use anyhow::{Result, bail};

use super::private;
use super::site::{Machine, Site};

/// What connection tracking does not know is dropped.
const INVALID: &str = "ct state invalid counter drop";
const KNOWN: &str = "ct state established,related counter accept";

/// The firewall of this name.
pub(super) fn named(case: &str, site: &Site) -> Result<Machine> {
    let (base, drops_invalid) = case.strip_suffix("-invalid").map_or((case, false), |base| (base, true));
    let (lan, link) = (&site.lan, &site.link);
    let invalid = if drops_invalid { INVALID } else { "" };
    let onward = format!("iifname \"{lan}\" oifname \"{link}\" counter accept");
    let both = format!("{onward}\niifname \"{link}\" oifname \"{lan}\" counter accept");
    let new = format!("iifname \"{lan}\" oifname \"{link}\" ct state new counter accept");
    let machine = match base {
        "iptables" => Machine::of_shell(iptables("iptables ip6tables", site, drops_invalid)),
        "legacy" => Machine::of_shell(iptables("iptables-legacy ip6tables-legacy", site, drops_invalid)),
        "nft-drop" => Machine::of_nft(&chain("drop", &[invalid, KNOWN, &onward])),
        "last-drop" => Machine::of_nft(&chain("accept", &[invalid, KNOWN, &both, "counter drop"])),
        "stateful" => Machine::of_nft(&chain("drop", &[invalid, KNOWN, &new])),
        "log" => Machine::of_nft(&chain(
            "accept",
            &[
                invalid,
                "ct state new counter log prefix \"new: \"",
                KNOWN,
                &both,
                "counter log prefix \"dropped: \" limit rate 3/second drop",
                "drop",
            ],
        )),
        "log-iptables" => Machine::of_shell(logging(site)),
        "ufw" => private::ufw(site),
        "firewalld" => private::firewalld(site, false),
        _ => bail!("unknown case `{case}`"),
    };
    Ok(machine)
}

/// A table with one chain for forwarded packets.
pub(super) fn chain(policy: &str, rules: &[&str]) -> String {
    let rules = rules.join("\n");
    format!(
        "table inet fw {{\nchain onward {{\ntype filter hook forward priority 0; policy {policy};\n{rules}\n}}\n}}\n"
    )
}

/// What a router does between its LAN and the world.
pub(super) fn usual(site: &Site) -> String {
    let onward = format!("iifname \"{}\" oifname \"{}\" counter accept", site.lan, site.link);
    chain("drop", &[INVALID, KNOWN, &onward, "ct status dnat counter accept"])
}

/// `iptables -P FORWARD DROP` with an accept for each way.
fn iptables(programs: &str, site: &Site, drops_invalid: bool) -> String {
    let (lan, link) = (&site.lan, &site.link);
    let invalid = "$t -w -A FORWARD -m conntrack --ctstate INVALID -j DROP;";
    format!(
        "for t in {programs}; do $t -w -P FORWARD DROP; {} $t -w -A FORWARD -i {lan} -o {link} -j ACCEPT; \
         $t -w -A FORWARD -i {link} -o {lan} -j ACCEPT; done",
        if drops_invalid { invalid } else { "" }
    )
}

/// A chain of its own that says what is new and what it drops.
fn logging(site: &Site) -> String {
    let (lan, link) = (&site.lan, &site.link);
    format!(
        "for t in iptables ip6tables; do $t -w -N ONWARD; $t -w -P FORWARD DROP; $t -w -A FORWARD -j ONWARD; \
         $t -w -A ONWARD -m conntrack --ctstate NEW -j LOG --log-prefix new:; \
         $t -w -A ONWARD -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT; \
         $t -w -A ONWARD -i {lan} -o {link} -j ACCEPT; \
         $t -w -A ONWARD -m limit --limit 3/min -j LOG --log-prefix dropped:; done"
    )
}
