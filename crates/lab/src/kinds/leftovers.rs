//! What a gateway has left behind in its namespace: nftables tables, policy rules, routing tables,
//! devices.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::build::Lab;
use crate::netns::Ns;
use crate::sh;

/// Routing tables of every namespace.
const USUAL_TABLES: [&str; 3] = ["local", "main", "default"];
/// How the devices of the topology are called.
const CABLE: &str = "to-";

/// What stands in the namespace of `node` that does not stand in that of `untouched`, where no
/// gateway has ever run, in words. Cables and routes of the main table are the laboratory's own.
pub(super) fn of(lab: &Lab, node: &str, untouched: &str) -> Result<Vec<String>> {
    let usual = standing(&lab.ns(untouched))?;
    Ok(standing(&lab.ns(node))?.difference(&usual).cloned().collect())
}

/// Everything of these kinds in a namespace, in words.
pub(super) fn standing(ns: &Ns) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    if sh::find("nft").is_some() {
        let tables = ns.run("nft", &["list", "tables"])?;
        found.extend(tables.lines().map(|table| format!("nftables: {table}")));
    }
    for device in json(ns, &["-j", "link", "show"])? {
        let name = device["ifname"].as_str().unwrap_or_default();
        if !name.starts_with(CABLE) {
            found.insert(format!("device {name}"));
        }
    }
    for family in ["-4", "-6"] {
        let rules = ns.run("ip", &[family, "rule", "show"])?;
        found.extend(rules.lines().map(|rule| format!("rule {family} {rule}")));
        for route in json(ns, &[family, "-j", "route", "show", "table", "all"])? {
            let table = route["table"].as_str().unwrap_or("main");
            if !USUAL_TABLES.contains(&table) {
                found.insert(format!("route {family} {route}"));
            }
        }
    }
    Ok(found)
}

fn json(ns: &Ns, args: &[&str]) -> Result<Vec<Value>> {
    let text = ns.run("ip", args)?;
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let values: Vec<Value> = serde_json::from_str(&text).with_context(|| format!("ip {}", args.join(" ")))?;
    // `ip -j` leaves empty objects for what a filter has hidden.
    Ok(values.into_iter().filter(|v| v.as_object().is_some_and(|o| !o.is_empty())).collect())
}
