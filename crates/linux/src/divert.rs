//! Diversion: TCP that comes in by chosen interfaces goes to their TUNs, by nftables mark and policy routing.
//!
//! `meta mark` in a table of our own -> `ip rule fwmark` -> a routing table whose only route is the TUN. When the process dies the
//! TUN and that route vanish, the table is empty, and packets take the main table: fail-open without a watchdog.

mod diagnose;
mod nft;
mod plan;

use std::collections::BTreeMap;

pub use diagnose::{Diagnosis, Severity, diagnose, verify};
pub use plan::{DivertConfig, Diverted};

use crate::error::{Error, Result};
use crate::netlink::{Family, Socket};
use nft::Builder;
use plan::{PROTOCOL, Plan};

/// Diversion in force; taken back when dropped.
#[derive(Debug)]
pub struct Divert {
    plan: Plan,
    is_active: bool,
}

/// Packets and bytes that a counter of the nftables table has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Packets (super-segments count once).
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Divert {
    /// Checks that nobody else uses our numbers, removes what a killed predecessor left behind, then diverts.
    /// The TUNs must exist and have a reader: packets come from here on.
    pub fn apply(config: DivertConfig, interfaces: Vec<Diverted>) -> Result<Self> {
        let plan = Plan::new(config, interfaces)?;
        let mut socket = Socket::open()?;
        let mut found = Vec::new();
        diagnose::collisions(&mut socket, &plan.config, &mut found)?;
        if let Some(problem) = found.into_iter().find(|d| d.severity == Severity::Problem) {
            return Err(Error::Refused(problem.text));
        }
        remove_leftovers(&plan.config)?;
        // From here on dropping `divert` takes back what has been done.
        let divert = Self { plan, is_active: true };
        for route in divert.plan.routes() {
            unless_no_ipv6(route.family, socket.route_add(&route))?;
        }
        for rule in divert.plan.rules() {
            unless_no_ipv6(rule.family, socket.rule_add(&rule))?;
        }
        // A kernel without connection tracking knows no `notrack`, and needs none.
        if let Err(first) = divert.plan.script(true).apply() {
            divert.plan.script(false).apply().map_err(|_| first)?;
        }
        Ok(divert)
    }

    /// Takes everything back. Packets take the main routing table from here on; those already in a TUN can still be read.
    pub fn remove(mut self) -> Result<()> {
        self.is_active = false;
        remove_leftovers(&self.plan.config)
    }

    /// The interfaces and their TUNs.
    #[must_use]
    pub fn interfaces(&self) -> &[Diverted] {
        &self.plan.interfaces
    }

    /// The counters of the nftables table by name: `diverted_N` and `passed_N` of the N-th interface (passed: TCP that the
    /// kernel would not have routed to the TUN), and `ip_options`.
    pub fn counters(&self) -> Result<BTreeMap<String, Count>> {
        counters(&self.plan.config)
    }
}

impl Drop for Divert {
    fn drop(&mut self) {
        if self.is_active
            && let Err(error) = remove_leftovers(&self.plan.config)
        {
            tracing::error!(%error, "diversion could not be taken back completely");
        }
    }
}

/// As [`Divert::counters`], from any process.
pub fn counters(config: &DivertConfig) -> Result<BTreeMap<String, Count>> {
    let entries = nft::list(&["counters", "table", "inet", &config.table_name()])?;
    let counters = entries.iter().filter_map(|e| {
        let counter = e.get("counter")?;
        let number = |key: &str| counter.get(key).and_then(serde_json::Value::as_u64).unwrap_or(0);
        let name = counter.get("name")?.as_str()?.to_owned();
        Some((name, Count { packets: number("packets"), bytes: number("bytes") }))
    });
    Ok(counters.collect())
}

/// Removes everything that this instance may have left behind, and nothing else: the nftables table of its name; rules and routes
/// that carry our protocol number, in its tables. Needs no knowledge of which interfaces were diverted.
pub fn remove_leftovers(config: &DivertConfig) -> Result<()> {
    config.check()?;
    // First the marks, so that no packet is marked without a rule that knows the mark.
    let nft = Builder::removing(&config.table_name()).build().apply();
    let mut socket = Socket::open()?;
    for family in Family::BOTH {
        let ours = |r: &crate::netlink::Rule| r.protocol == PROTOCOL && config.tables().contains(&r.table);
        for rule in socket.rules(family)?.into_iter().filter(ours) {
            socket.rule_delete(&rule)?;
        }
        for table in config.tables() {
            let routes = socket.routes(family, table)?;
            let is_used = !routes.is_empty();
            for route in routes.into_iter().filter(|r| r.protocol == PROTOCOL) {
                // It may vanish with its TUN in this moment.
                let _ = socket.route_delete(&route);
            }
            // Tables are filled from the first on; do not ask for all of a large range.
            if !is_used && table >= config.table_base.saturating_add(16) {
                break;
            }
        }
    }
    nft
}

/// A kernel with IPv6 switched off diverts IPv4 only.
fn unless_no_ipv6(family: Family, outcome: Result<()>) -> Result<()> {
    match outcome {
        Err(e)
            if family == Family::V6
                && [libc::EAFNOSUPPORT, libc::EOPNOTSUPP].map(|n| e.is(n)).contains(&true) =>
        {
            Ok(())
        }
        other => other,
    }
}
