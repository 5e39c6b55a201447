//! Diversion: what is selected of the traffic that comes in by chosen interfaces goes to their
//! TUNs, by nftables mark and policy routing.
//!
//! `meta mark` in a table of our own -> `ip rule fwmark` -> a routing table whose only route is the
//! TUN. When the process dies the TUN and that route vanish, the table is empty, and packets take
//! the main table: fail-open without a watchdog.

mod audit;
mod blame;
mod blame_bump;
mod capture;
mod diagnose;
mod diagnosis;
mod dropped;
mod foresee;
mod method;
mod nft;
mod owner;
mod passage;
mod plan;
mod selection;
mod translation;

use std::collections::BTreeMap;

pub use audit::{Auditor, Missing};
pub use blame::{Cause, Lost, blame};
pub(crate) use blame_bump::FOUND_AT_BUMP;
pub use blame_bump::{LostAtBump, blame_bump};
pub use capture::{Capture, CaptureState, Direction};
pub(crate) use capture::{not_attached, not_seen};
pub(crate) use diagnose::NO_INTERFACE;
pub(crate) use diagnose::by_policy;
pub use diagnose::{diagnose, refusal, verify};
pub use diagnosis::{Diagnosis, Remedy, Severity};
pub use dropped::dropped;
pub(crate) use foresee::Foreseen;
pub use method::Method;
pub use passage::{Passage, Reading, Suspicion};
pub use plan::{DivertConfig, Diverted, Families};
pub(crate) use plan::{counter_name, is_plain};
pub use selection::Selection;

pub use crate::netlink::Count;

use crate::error::{Error, Result};
use crate::netlink::{Family, Nftables, Socket};
use nft::Builder;
use owner::OwnedTable;
use plan::{Now, PROTOCOL, Plan};

/// Said where there can be no owner.
const NO_OWNER: &str =
    "the nftables table has no owner here: whoever flushes the rules removes it, until it is put back";

/// Diversion in force; taken back when dropped.
#[derive(Debug)]
pub struct Divert {
    plan: Plan,
    is_active: bool,
    now: Now,
    /// What is diverted stays out of connection tracking. A kernel without it knows no `notrack`,
    /// and needs none.
    notrack: bool,
    /// Rules that the nftables table has when it is whole.
    rule_count: usize,
    /// `None`: the table is anybody's.
    owned: Option<OwnedTable>,
    /// Families that were let go from the start.
    foreseen: Vec<Foreseen>,
}

impl Divert {
    /// Checks that nobody else uses our numbers, removes what a killed predecessor left behind,
    /// then diverts. The TUNs must exist and have a reader: packets come from here on. A family
    /// that a firewall is sure to drop takes the ordinary way; where its rules do not say, it is
    /// tried with new connections first.
    pub fn apply(config: DivertConfig, interfaces: Vec<Diverted>) -> Result<Self> {
        let plan = Plan::new(config, interfaces)?;
        let mut socket = Socket::open()?;
        let mut found = Vec::new();
        diagnose::collisions(&mut socket, &plan.config, &mut found)?;
        if let Some(problem) = found.into_iter().find(|d| d.severity == Severity::Problem) {
            return Err(Error::Refused(problem.text));
        }
        remove_leftovers(&plan.config)?;
        let (foreseen, unknown) = foresee(&plan);
        let mut now = Now { trials: unknown, ..Now::ALL };
        for Foreseen { family, .. } in &foreseen {
            let is_whole = !plan.config.takes_everything();
            now.families = now.families.with(*family, false);
            now.whole = now.whole.with(*family, is_whole);
        }
        // From here on dropping `divert` takes back what has been done.
        let owned = match OwnedTable::make(&plan.config.table_name()) {
            Ok(owned) => Some(owned),
            Err(error) => {
                tracing::info!(%error, "{NO_OWNER}");
                None
            }
        };
        let mut divert = Self { plan, is_active: true, now, notrack: true, rule_count: 0, owned, foreseen };
        divert.put_routes(&mut socket)?;
        let Err(error) = divert.put_first_table() else { return Ok(divert) };
        if divert.owned.take().is_none() {
            return Err(error);
        }
        divert.put_first_table()?;
        tracing::info!(%error, "{NO_OWNER}");
        Ok(divert)
    }

    /// Which families a firewall would drop if they were diverted now, and of which its rules do
    /// not say. Runs `nft` once.
    pub(crate) fn foresee(&self) -> (Vec<Foreseen>, Families) {
        foresee(&self.plan)
    }

    /// The families that took the ordinary way from the start.
    pub(crate) fn foreseen(&self) -> &[Foreseen] {
        &self.foreseen
    }

    fn put_first_table(&mut self) -> Result<()> {
        self.notrack = true;
        let Err(first) = self.put_table() else { return Ok(()) };
        self.notrack = false;
        self.put_table().map_err(|_| first)
    }

    fn put_routes(&self, socket: &mut Socket) -> Result<()> {
        for route in self.plan.routes() {
            unless_no_ipv6(route.family, socket.route_add(&route))?;
        }
        for rule in self.plan.rules() {
            unless_no_ipv6(rule.family, socket.rule_add(&rule))?;
        }
        Ok(())
    }

    fn put_table(&mut self) -> Result<()> {
        let script = self.plan.script(self.notrack, self.now);
        self.rule_count = script.rule_count();
        match &mut self.owned {
            Some(owned) => owned.put(script),
            None => script.apply(),
        }
    }

    /// Whether a flush of the firewall's rules leaves the table alone.
    #[must_use]
    pub fn is_owned(&self) -> bool {
        self.owned.is_some()
    }

    /// Diverts this family from here on, or lets it take the ordinary way. Counters begin anew.
    pub(crate) fn set_family(&mut self, family: Family, on: bool) -> Result<()> {
        self.now.families = self.now.families.with(family, on);
        self.now.trials = self.now.trials.with(family, false);
        self.put_table()
    }

    /// Diverts new connections of a family until [`Self::set_family`], so that it shows whether
    /// they come out. Those that are open take the ordinary way meanwhile. Counters begin anew.
    pub(crate) fn try_out(&mut self, family: Family) -> Result<()> {
        self.now.families = self.now.families.with(family, true);
        self.now.trials = self.now.trials.with(family, true);
        self.put_table()
    }

    /// The families of which new connections alone are diverted.
    pub(crate) fn trials(&self) -> Families {
        self.now.trials
    }

    /// Diverts everything that leaves by the chosen interfaces of these families from here on, of
    /// the others TCP alone. Counters begin anew.
    pub fn set_whole(&mut self, families: Families) -> Result<()> {
        self.now.whole = families;
        self.put_table()
    }

    /// The families of which everything is diverted that leaves by the chosen interfaces, if there
    /// are any.
    #[must_use]
    pub fn whole(&self) -> Families {
        self.now.whole
    }

    /// The families that are diverted now.
    #[must_use]
    pub fn families(&self) -> Families {
        self.now.families
    }

    /// Puts back whatever somebody has removed: devices that are down, routes, rules, the nftables
    /// table.
    pub fn put_back(&mut self, socket: &mut Socket) -> Result<()> {
        self.bring_up(socket);
        self.put_routes(socket)?;
        let Err(first) = self.put_table() else { return Ok(()) };
        if self.owned.take().is_none() {
            return Err(first);
        }
        // Who held the table is gone, or what it holds is not what was put there.
        self.owned = Some(OwnedTable::make(&self.plan.config.table_name())?);
        self.put_table()
    }

    /// A device that is down takes no route. One that is gone is soon another one.
    fn bring_up(&self, socket: &mut Socket) {
        for one in &self.plan.interfaces {
            let _ = socket.link_up(one.tun_index, true);
        }
    }

    /// Diverts what comes in by these interfaces from here on, and everything that leaves by those
    /// of `whole`, where that was chosen of any. Counters begin anew. What stays is diverted all
    /// the while. Where nothing but TCP was taken before, a family of which that takes the ordinary
    /// way keeps to it with all else, too.
    ///
    /// # Errors
    /// The kernel refuses. What was diverted before still is.
    pub fn change(&mut self, interfaces: Vec<Diverted>, whole: &[String], socket: &mut Socket) -> Result<()> {
        let mut config = self.plan.config.clone();
        config.take_all_of(whole);
        let takes_more = config.takes_everything() && !self.plan.config.takes_everything();
        let before = std::mem::replace(&mut self.plan, Plan::new(config, interfaces)?);
        let whole_before = self.now.whole;
        if takes_more {
            self.now.whole = self.now.families;
        }
        self.bring_up(socket);
        // Marks last, so that no packet is marked without a rule that knows the mark.
        if let Err(error) = self.put_routes(socket).and_then(|()| self.put_table()) {
            (self.plan, self.now.whole) = (before, whole_before);
            return Err(error);
        }
        for rule in before.rules().filter(|old| !self.plan.rules().any(|new| new == *old)) {
            socket.rule_delete(&rule)?;
        }
        for route in before.routes().filter(|old| !self.plan.routes().any(|new| new == *old)) {
            // It goes with its TUN, which may be gone.
            let _ = socket.route_delete(&route);
        }
        Ok(())
    }

    /// Takes everything back. Packets take the main routing table from here on; those already in a
    /// TUN can still be read.
    pub fn remove(mut self) -> Result<()> {
        self.is_active = false;
        self.owned = None;
        remove_leftovers(&self.plan.config)
    }

    /// How it is configured.
    #[must_use]
    pub fn config(&self) -> &DivertConfig {
        &self.plan.config
    }

    /// Name of its nftables table.
    #[must_use]
    pub fn table_name(&self) -> String {
        self.plan.config.table_name()
    }

    /// The interfaces and their TUNs, with the numbers of these.
    pub fn numbered(&self) -> impl Iterator<Item = (usize, &Diverted)> {
        self.plan.numbered()
    }

    /// The interfaces and their TUNs.
    #[must_use]
    pub fn interfaces(&self) -> &[Diverted] {
        &self.plan.interfaces
    }

    /// The counters of the nftables table by name. Of the N-th interface `diverted_N` (IPv6:
    /// `diverted6_N`), `passed_N` (what the kernel would not have routed to the TUN), `syn_left_N`
    /// and `left_N` (TCP that came out of the TUN and left the machine), `local_N` (what came out
    /// of it for the machine itself), `rest_left_N` (what is no TCP, where everything is diverted);
    /// and `ip_options`.
    pub fn counters(&self) -> Result<BTreeMap<String, Count>> {
        counters(&self.plan.config)
    }
}

/// See [`Divert::foresee`]; and the families of which the rules do not say it.
fn foresee(plan: &Plan) -> (Vec<Foreseen>, Families) {
    let table = plan.config.table_name();
    // Where the rules cannot be read, trying tells.
    let ruleset = nft::ruleset(&table).unwrap_or_default();
    foresee::foresee(&ruleset, &table, &plan.interfaces)
}

impl Drop for Divert {
    fn drop(&mut self) {
        self.owned = None;
        if self.is_active
            && let Err(error) = remove_leftovers(&self.plan.config)
        {
            tracing::error!(%error, "diversion could not be taken back completely");
        }
    }
}

/// As [`Divert::counters`], from any process.
pub fn counters(config: &DivertConfig) -> Result<BTreeMap<String, Count>> {
    Nftables::open()?.counters(&config.table_name())
}

/// Removes everything that this instance may have left behind, and nothing else: the nftables table
/// of its name; rules and routes that carry our protocol number, in its tables. Needs no knowledge
/// of which interfaces were diverted.
pub fn remove_leftovers(config: &DivertConfig) -> Result<()> {
    config.check()?;
    // First the marks, so that no packet is marked without a rule that knows the mark.
    let nft = remove_table(&config.table_name());
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

/// The owner of a killed predecessor's table needs a moment to see that it is gone.
fn remove_table(name: &str) -> Result<()> {
    const ATTEMPTS: u32 = 40;
    let script = Builder::removing(name).build();
    for _ in 1..ATTEMPTS {
        match script.apply() {
            Err(Error::Tool { output, .. }) if output.contains("not permitted") => {
                std::thread::sleep(std::time::Duration::from_millis(25));
            }
            other => return other,
        }
    }
    script.apply()
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
