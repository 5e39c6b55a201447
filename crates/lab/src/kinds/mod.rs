//! Kinds of scenario: what runs in a cell. A plain transfer grid needs only a file; the others have
//! a module each.

mod accuracy;
mod applications;
mod behaviour;
pub(crate) mod by_kind;
pub(crate) mod carried;
pub(crate) mod classes;
pub(crate) mod declared;
mod drain;
pub(crate) mod first;
mod fragmenting;
pub(crate) mod gauges;
mod http;
mod idle;
mod kill;
mod leftovers;
mod many;
mod memory_cap;
pub(crate) mod metrics;
mod middleboxes;
mod never_worse;
pub(crate) mod notices;
mod outages;
mod planned;
mod programs;
pub(crate) mod returned;
mod route_flap;
mod router;
mod rules;
mod session;
pub(crate) mod sets;
pub(crate) mod settled;
pub(crate) mod shares;
mod sizes;
pub(crate) mod source_clock;
mod syn_flood;
mod topologies;
mod tracked;
pub(crate) mod transfer;

use std::path::PathBuf;

use anyhow::{Result, bail};
use serde_json::Value;

use crate::capture::Trace;
use crate::jobs::Plan;
use crate::progress::Progress;
use crate::report::Measured;
use crate::scenario::{Cell, Scenario};

/// One run of a cell: what it is told, and what it hands back besides its measurement.
#[derive(Debug)]
pub struct Run<'a> {
    /// Seed of everything random in it.
    pub seed: u64,
    /// Prefix of its namespaces.
    pub prefix: String,
    /// Where it shows how far it is.
    pub progress: &'a Progress,
    /// A time-sequence plot is wanted.
    pub keeps_moments: bool,
    /// Where captures go, and how their names begin.
    pub captures: Option<(PathBuf, String)>,
    /// For the time-sequence plot.
    pub trace: Option<Trace>,
}

/// A kind of scenario.
pub trait Kind {
    /// Runs a cell once. An error: it could not be run to its end.
    fn run(&mut self, scenario: &Scenario, cell: &Cell, run: &mut Run<'_>) -> Result<Measured>;

    /// Told once, before anything runs: the cells that will be.
    fn prepare(&mut self, cells: &[Cell]) {
        let _ = cells;
    }

    /// The cells; the grid of the file unless the kind has its own.
    fn cells(&self, scenario: &Scenario) -> Result<Vec<Cell>> {
        scenario.cells()
    }

    /// Why a cell cannot run on this machine.
    fn cannot_run(&self, cell: &Cell) -> Option<String> {
        let _ = cell;
        None
    }

    /// What the report says besides its cells, after all have run.
    fn details(&self) -> Value {
        Value::Null
    }
}

/// The kind of this name.
pub fn of(name: &str) -> Result<Box<dyn Kind>> {
    Ok(match name {
        "applications" => Box::new(applications::ApplicationsKind),
        "behaviour" => Box::new(behaviour::BehaviourKind::default()),
        classes::NAME => Box::new(classes::ClassesKind),
        "drain" => Box::new(drain::DrainKind),
        "emulator-accuracy" => Box::new(accuracy::AccuracyKind),
        "fragmenting-host" => Box::new(fragmenting::FragmentingKind),
        "http" => Box::new(http::HttpKind::default()),
        "idle" => Box::new(idle::IdleKind),
        "kill" => Box::new(kill::KillKind),
        "memory-cap" => Box::new(memory_cap::MemoryCapKind),
        "middleboxes" => Box::new(middleboxes::MiddleboxesKind),
        "never-worse" => Box::new(never_worse::NeverWorseKind),
        notices::NAME => Box::new(notices::NoticesKind),
        "programs" => Box::new(programs::ProgramsKind),
        "route-flap" => Box::new(route_flap::RouteFlapKind),
        "router" => Box::new(router::RouterKind),
        "rules" => Box::new(rules::RulesKind),
        "sizes" => Box::new(sizes::SizesKind),
        "syn-flood" => Box::new(syn_flood::SynFloodKind),
        "topologies" => Box::new(topologies::TopologiesKind),
        "tracked" => Box::new(tracked::TrackedKind),
        "transfer" => Box::new(transfer::TransferKind),
        _ => match Plan::of(name) {
            Some(plan) => Box::new(planned::PlannedKind(plan)),
            None => bail!("unknown kind of scenario `{name}`"),
        },
    })
}
