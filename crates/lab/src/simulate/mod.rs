//! Scenarios in virtual time: the laboratory's cells on the simulator's network, with the same
//! names in the report.
//!
//! Hosts are [`farlink_sim::linux`], gateways are the real ones with the configuration file that
//! the laboratory would write, the link is the emulator's channel. [`network`] builds a cell,
//! [`measure`] says what came of it.

mod classes;
mod measure;
mod network;
mod planned;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, anyhow, bail};
use farlink_sim::linux::Play;
use farlink_sim::trace::Trace;
use network::Network;

use crate::expect::Judge;
use crate::jobs::{Plan, Ran};
use crate::kinds::{self, notices};
use crate::report::{CellReport, Measured, Report, Skipped, command_line};
use crate::runner::{judged, line_of, name_of, skipped};
use crate::scenario::{Cell, Chosen, Driver, Scenario, Wanted};
use farlink_gateway::flow_trace::FlowTrace;

/// Reads the text of a gateway's configuration file. The format is the command's, not the
/// laboratory's.
pub type ReadConfig<'a> = &'a (dyn Fn(&str) -> Result<Read> + Sync);

/// What a configuration file says.
#[derive(Clone, Debug)]
pub struct Read {
    /// To the gateway.
    pub gateway: farlink_gateway::Config,
    /// Links into which everything is diverted, not only TCP.
    pub whole: Vec<farlink_gateway::IfaceId>,
    /// The same once their rate is known.
    pub whole_when_known: Vec<farlink_gateway::IfaceId>,
}

/// What `sim run` is told.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What is run. Of captures each node of each run has a file.
    pub chosen: Chosen,
    /// How many cells run at once. The results do not depend on it.
    pub threads: usize,
}

/// One run of one cell.
struct Job<'a> {
    cell: &'a Cell,
    repeat: u32,
    seed: u64,
    /// Directory of its captures, and how their names begin.
    captures: Option<(&'a Path, String)>,
}

enum Done {
    Ran(Box<CellReport>),
    Skipped(Skipped),
}

/// Whether scenarios of this kind can be simulated.
#[must_use]
pub fn has_kind(kind: &str) -> bool {
    kind == "transfer" || kind == notices::NAME || kind == kinds::classes::NAME || Plan::of(kind).is_some()
}

/// Runs it. `say` hears a line about each run that has ended, in no particular order.
pub fn run(options: &Options, read_config: ReadConfig<'_>, say: &(dyn Fn(&str) + Sync)) -> Result<Report> {
    let scenario = Scenario::find(&options.chosen.scenario)?;
    if !has_kind(&scenario.kind) {
        bail!(
            "scenario `{}` is of kind `{}`, which has no simulator; `farlink lab run {}` runs it. Simulated are \
             scenarios of the kinds `transfer`, `web`, `mixed`, `outage`, `field`, `stalled`, `classes` and `notices`",
            scenario.name,
            scenario.kind,
            options.chosen.scenario
        );
    }
    let all = scenario.cells()?;
    let judge = Judge::new(&scenario, &all, Driver::Sim)?;
    let cells = cells_of(&scenario, options)?;
    if let Some(directory) = &options.chosen.captures {
        std::fs::create_dir_all(directory)
            .with_context(|| format!("{} cannot be made", directory.display()))?;
    }
    let jobs: Vec<Job<'_>> = cells
        .iter()
        .enumerate()
        .flat_map(|(number, (cell, repeats))| {
            (0..*repeats).map(move |repeat| Job {
                cell,
                repeat,
                seed: options.chosen.seed.wrapping_add(1_000_003 * u64::from(repeat)),
                captures: options.chosen.captures.as_deref().map(|d| (d, format!("{number:03}-{repeat}"))),
            })
        })
        .collect();
    let done = run_jobs(&scenario, &jobs, options.threads, read_config, say);
    let mut report = Report {
        scenario: scenario.name.clone(),
        title: scenario.title.clone(),
        clocks: scenario.clocks(),
        driver: "sim".into(),
        seed: options.chosen.seed,
        version: env!("CARGO_PKG_VERSION").into(),
        command: command_line(
            Driver::Sim,
            &options.chosen.scenario,
            (&options.chosen.only, options.chosen.subset.as_deref()),
            options.chosen.repeat,
            options.chosen.seed,
            &options.chosen.set,
        ),
        ..Report::default()
    };
    for outcome in done {
        match outcome {
            Done::Ran(cell) => report.cells.push(*cell),
            Done::Skipped(cell) if report.skipped.contains(&cell) => {}
            Done::Skipped(cell) => report.skipped.push(cell),
        }
    }
    report.expectations = judged(judge, &options.chosen.set, &report);
    Ok(report)
}

/// The cells that are asked for, with what is changed in them, and how often each is run.
fn cells_of(scenario: &Scenario, options: &Options) -> Result<Vec<(Cell, u32)>> {
    let subset = options.chosen.subset.as_deref();
    let wanted =
        Wanted { only: &options.chosen.only, subset, driver: Driver::Sim, repeat: options.chosen.repeat };
    let mut cells = scenario.select(scenario.cells()?, &wanted)?;
    for (cell, _) in &mut cells {
        cell.set_all(options.chosen.set.iter().map(String::as_str))?;
    }
    Ok(cells)
}

/// Follows the first flow of the only cell, packet by packet, at the gateway on the side that its
/// data comes from.
///
/// # Errors
/// A scenario that has no plain transfers, more cells than one, or one without gateways.
pub fn trace(options: &Options, read_config: ReadConfig<'_>) -> Result<FlowTrace> {
    let scenario = Scenario::find(&options.chosen.scenario)?;
    if scenario.kind != "transfer" {
        bail!(
            "flows are traced in scenarios of the kind `transfer`; `{}` is of kind `{}`",
            scenario.name,
            scenario.kind
        );
    }
    let cells = cells_of(&scenario, options)?;
    let [(cell, _)] = cells.as_slice() else {
        bail!(
            "a flow is traced in one cell, and --only leaves {}: name variant and every value that varies",
            cells.len()
        );
    };
    if let Some(reason) = network::cannot_run(&scenario, cell) {
        bail!("{}: {reason}", name_of(cell));
    }
    let play = Play::new(measure::transfers(&scenario, cell, options.chosen.seed)?, Vec::new());
    let mut network =
        Network::build(&scenario, cell, options.chosen.seed, play, Trace::default(), read_config)?;
    let is_upload = crate::kinds::transfer::is_upload(cell);
    let collected = network.run_traced(is_upload)?;
    let collected = collected.ok_or_else(|| anyhow!("{}: no gateway runs in this cell", name_of(cell)))?;
    let rate_bps = if is_upload { cell.settings.up_bps() } else { cell.settings.rate_bps };
    let known = (rate_bps > 0).then(|| (rate_bps as f64, cell.settings.rtt_ms / 1e3));
    let command = command_line(
        Driver::Sim,
        &options.chosen.scenario,
        (&options.chosen.only, options.chosen.subset.as_deref()),
        1,
        options.chosen.seed,
        &options.chosen.set,
    ) + " --flow-trace FILE";
    let mut trace = collected.finish(known, &command);
    trace.title = format!("{}, {}", scenario.name, name_of(cell));
    Ok(trace)
}

/// Runs all jobs; the results stand in the order of the jobs.
fn run_jobs(
    scenario: &Scenario,
    jobs: &[Job<'_>],
    threads: usize,
    read_config: ReadConfig<'_>,
    say: &(dyn Fn(&str) + Sync),
) -> Vec<Done> {
    let next = AtomicUsize::new(0);
    let ended = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(number) else { break };
                    let (outcome, line) = run_job(scenario, job, read_config);
                    let n = ended.fetch_add(1, Ordering::Relaxed) + 1;
                    say(&format!("[{n}/{}] {line}", jobs.len()));
                    done.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((number, outcome));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, outcome)| outcome).collect()
}

fn run_job(scenario: &Scenario, job: &Job<'_>, read_config: ReadConfig<'_>) -> (Done, String) {
    if let Some(reason) = network::cannot_run(scenario, job.cell) {
        let line = format!("{}: skipped, {reason}", name_of(job.cell));
        return (Done::Skipped(skipped(job.cell, reason)), line);
    }
    let measured = run_cell(scenario, job, read_config);
    let report = CellReport::new(job.cell, job.repeat, job.seed, measured);
    let line = line_of(job.cell, &report);
    (Done::Ran(Box::new(report)), line)
}

/// Runs a cell once.
fn run_cell(scenario: &Scenario, job: &Job<'_>, read_config: ReadConfig<'_>) -> Result<Measured> {
    let (cell, seed) = (job.cell, job.seed);
    if scenario.kind == notices::NAME {
        return notices::simulated(cell);
    }
    let trace = || if job.captures.is_some() { Trace::default().and_captures() } else { Trace::default() };
    let build = |play| Network::build(scenario, cell, seed, play, trace(), read_config);
    let captured = |network: &mut Network| match &job.captures {
        Some((directory, begin)) => network.write_captures(directory, begin),
        None => Ok(()),
    };
    if scenario.kind == kinds::classes::NAME {
        let plan = kinds::classes::Plan::new(cell, seed)?;
        let mut alone = build(classes::play(&plan, false))?;
        let of_alone = classes::run(&plan, false, &mut alone)?;
        let mut network = build(classes::play(&plan, true))?;
        let of_beside = classes::run(&plan, true, &mut network)?;
        captured(&mut network)?;
        let mut measured = plan.measure(&of_alone, &of_beside);
        measure::of_network(cell, &mut network, &mut measured);
        return Ok(measured);
    }
    let Some(plan) = Plan::of(&scenario.kind) else {
        let transfers = measure::transfers(scenario, cell, seed)?;
        let datagrams = measure::datagrams(scenario, cell);
        let mut network = build(Play::new(transfers, Vec::new()).with_datagrams(datagrams))?;
        if cell.is_announced() {
            network.announce_contacts();
        }
        let ran = if scenario.watches_gateways {
            network.run_watched()
        } else {
            network.run().map(|()| Vec::new())
        };
        captured(&mut network)?;
        let samples = ran?;
        return Ok(measure::of_transfers(scenario, cell, seed, &mut network, &samples));
    };
    let jobs = plan.jobs(cell, seed)?;
    let outages = plan.outages(cell, seed)?;
    let cast = planned::Cast::new(&jobs, cell.v6(), &outages);
    let mut network = build(cast.play.clone())?;
    let ran = network.run_with_outages(&outages);
    captured(&mut network)?;
    let ran = Ran { done: cast.done(&jobs), progress_s: ran? };
    let mut measured = plan.measure(scenario, (cell, seed), &jobs, &ran)?;
    measure::of_network(cell, &mut network, &mut measured);
    Ok(measured)
}
