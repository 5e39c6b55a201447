//! `farlink sim`: the simulator from the command line.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};
use farlink_gateway::config::FlowControl;
use farlink_lab::compare::Comparison;
use farlink_lab::scenario::{BUILTIN, Scenario};
use farlink_lab::simulate;
use farlink_sim::hostile::{blind, planted, run::run_alone};
use farlink_sim::plan::Mode;
use farlink_sim::runner::{describe_seed, run_seeds, trace_seed};
use farlink_sim::trace::Trace;
use portable_atomic::AtomicU64;

use crate::out::{out, outln};
use crate::scenario_args::ScenarioArgs;
use crate::view::Table;

/// Identifications are guessed with so many seeds at most: each is a run of thousands of guesses.
const IDENTIFICATION_SEEDS: u64 = 4;

/// `farlink sim`
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Run a scenario of the laboratory in virtual time
    #[command(after_help = "Examples:
  farlink sim run geo-download
  farlink sim run thesis-single --only rate_bps=8000000,size_bytes=10240000 --json results.json
  farlink sim run my.toml --repeat 30 --seed 7
  farlink sim run geo-download --only variant=farlink,size_bytes=1000000 --flow-trace flow.json

SCENARIO is a builtin one (`farlink lab list`) of kind `transfer`, `web` or `mixed`, or the path of such a file. Needs no privilege. The same seed
gives the same results, to the byte, whatever the number of threads.

Exit status: 0 only if every cell ran and is intact and what the scenario expects holds; 1 if not; 3 if all of that holds of what ran, and
a cell could not run here (--allow-skips: 0).")]
    Run(RunArgs),
    /// Name the builtin scenarios that can be simulated
    List,
    /// Compare results of the laboratory with those of the simulator, cell by cell
    #[command(after_help = "Examples:
  farlink sim compare lab.json sim.json
  farlink sim compare lab-single.json lab-web.json sim-single.json sim-web.json --worst 50

Which file is whose stands in it (`driver`). Of a cell that was repeated the median counts. Exit status: 0 only if all cells that both
have run are within the tolerance.")]
    Compare(Compare),
    /// Count the guesses that end, stall or corrupt a connection, without gateways and with them
    #[command(after_help = "Examples:
  farlink sim blind
  farlink sim blind --guesses 256 --seeds 8

The attacker knows addresses and ports, and sequence numbers to within 4,096 (acknowledgement numbers to within 8 million). Its guesses
are the same in every set-up. What gateways send in fragments hosts alone do not: there fragments are planted, and ICMP errors quote each
identification. Exit status: 0 only if no attack is easier with gateways than between the hosts alone, planted fragments meet no oftener
than by chance, and no error counts beyond the one connection.")]
    Blind(Blind),
    /// Run connections through gateways, losses, moving routes, drains and kills, and check every
    /// packet
    Faults(Faults),
}

#[derive(clap::Args, Debug)]
struct RunArgs {
    #[command(flatten)]
    cells: ScenarioArgs,
    /// Write a trace of the first flow of the only cell, for `farlink report`
    #[arg(long, value_name = "FILE")]
    flow_trace: Option<PathBuf>,
    /// Cells that run at once
    #[arg(long, value_name = "N", default_value_t = 2)]
    threads: usize,
}

#[derive(clap::Args, Debug)]
struct Compare {
    /// Results of `lab run --json` and of `sim run --json`
    #[arg(required = true, num_args = 2..)]
    files: Vec<PathBuf>,
    /// How many cells are shown, the worst first
    #[arg(long, value_name = "N", default_value_t = 30)]
    worst: usize,
    /// Difference of the seconds that is still agreement
    #[arg(long, value_name = "SHARE", default_value_t = 0.05)]
    tolerance: f64,
}

#[derive(clap::Args, Debug)]
struct Blind {
    /// Most guesses in one run
    #[arg(long, value_name = "N", default_value_t = 4_096)]
    guesses: u64,
    /// Attacks of each kind; the guesses of each come in another order
    #[arg(long, value_name = "N", default_value_t = 16)]
    seeds: u64,
    /// Threads
    #[arg(long, value_name = "N", default_value_t = 2)]
    threads: usize,
}

/// Each seed is a run of its own: topology, hosts, traffic and faults follow from it, bit for bit.
/// An observer checks the invariants on every packet of every leg. A seed that breaks one is
/// printed as the command that runs it again.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  farlink sim faults --seeds 0..10000             mixed faults
  farlink sim faults --mode route-flap --seeds 0..1000
  farlink sim faults --mode custody --seeds 0..1000    gateways that promise nothing, links that go away
  farlink sim faults --mode changing --seeds 0..10000  beside that: configurations, actions, clocks and sequence numbers change
  farlink sim faults --mode long --seeds 0..20         connections of more than 2^31 bytes, a minute each
  farlink sim faults --hostile --seeds 0..3000    hosts that lie, and forged packets, beside honest connections
  farlink sim faults --policy automatic --seeds 0..1000
  farlink sim faults --mode clean --seeds 7 --trace    one seed, every packet

Exit status: 0 only if no invariant was broken.")]
struct Faults {
    /// Seeds: one number, or FROM..TO (TO is not run)
    #[arg(long, value_name = "SEEDS", default_value = "0..1000")]
    seeds: String,
    /// What may go wrong: mixed, route-flap, clean, custody, hostile, changing, long
    #[arg(long, default_value = "mixed")]
    mode: String,
    /// Hosts that lie, and senders in other hosts' names (the same as --mode hostile)
    #[arg(long, conflicts_with = "mode")]
    hostile: bool,
    /// Flow control of all gateways: fixed, send-window, adaptive, automatic [default: by the seed,
    /// a quarter of the runs automatic]
    #[arg(long, value_name = "POLICY")]
    policy: Option<String>,
    /// Threads
    #[arg(long, value_name = "N", default_value_t = 2)]
    threads: usize,
    /// Stop after so many failures
    #[arg(long, value_name = "N", default_value_t = 10)]
    failures: usize,
    /// Print every packet and event of the run (one seed only); with a text, the lines that contain
    /// it
    #[arg(long, value_name = "TEXT", num_args = 0..=1, default_missing_value = "")]
    trace: Option<String>,
    /// With --hostile and --trace: the run without attackers, which the honest connections are
    /// compared with
    #[arg(long, requires_all = ["hostile", "trace"])]
    alone: bool,
}

/// Runs it.
///
/// # Errors
/// Arguments that make no sense.
pub fn run(args: Args) -> Result<ExitCode> {
    match args.command {
        Command::Run(args) => run_scenario(args),
        Command::List => list(),
        Command::Compare(args) => compare(&args),
        Command::Faults(faults) => run_faults(&faults),
        Command::Blind(args) => Ok(blind(&args)),
    }
}

fn blind(args: &Blind) -> ExitCode {
    let kinds = blind::Kind::all();
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..args.threads.max(1) {
            scope.spawn(|| {
                while let Some(kind) = kinds.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let compared = blind::compare(*kind, args.seeds, args.guesses);
                    done.lock().unwrap_or_else(PoisonError::into_inner).push(compared);
                }
            });
        }
    });
    let done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    outln!(
        "One of how many guesses did harm, in {} attacks of up to {} guesses each (-: none did)",
        args.seeds,
        args.guesses
    );
    let mut table = Table::new(&[
        "STATE",
        "TIMESTAMPS",
        "GUESSED",
        "NAME",
        "HOSTS ALONE",
        "CLIENT'S SIDE",
        "SERVER'S SIDE",
        "BOTH",
        "",
    ]);
    let shown = |t: &blind::Tally| match t.harmed {
        0 => "-".to_owned(),
        n => (t.guesses / n).to_string(),
    };
    let mut easier = 0;
    for kind in &kinds {
        let is_it = |c: &&blind::Compared| c.kind == *kind;
        let Some(c) = done.iter().find(is_it) else { continue };
        easier += u64::from(c.is_easier());
        let [client, server, both] = c.with.each_ref().map(shown);
        table.row([
            kind.state.name().to_owned(),
            if kind.timestamps { "yes" } else { "no" }.to_owned(),
            kind.guess.name().to_owned(),
            kind.name.name().to_owned(),
            shown(&c.direct),
            client,
            server,
            both,
            if c.is_easier() { "EASIER" } else { "" }.to_owned(),
        ]);
    }
    out!("{table}");
    outln!("{easier} of {} kinds of attack are easier with gateways", kinds.len());
    let is_as_chance_has_it = identifications(args.seeds.min(IDENTIFICATION_SEEDS));
    if easier == 0 && is_as_chance_has_it { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Counts guesses of identifications, and says what they came to. Returns whether none is better
/// than by chance, and none concerns more than one connection.
fn identifications(seeds: u64) -> bool {
    let mut sum = planted::Planted::default();
    for told in (0..seeds).map(|seed| planted::plant(seed, false)) {
        sum.fragments += told.fragments;
        sum.datagrams += told.datagrams;
        sum.pairs += told.pairs;
        sum.met += told.met;
    }
    outln!(
        "{} fragments planted into {} datagrams that left in fragments: {} of {} pairs met, at most {} by chance{}",
        sum.fragments,
        sum.datagrams,
        sum.met,
        sum.pairs,
        sum.most_by_chance(),
        if sum.is_easier() { ", EASIER" } else { "" },
    );
    let mut beyond = 0;
    for v6 in [false, true] {
        for told in (0..seeds).map(|seed| planted::quote(seed, v6)) {
            beyond += told.beyond_the_one();
            outln!(
                "{} errors that quote a later fragment ({}): {} believed, of {} datagrams; {} beyond the one connection{}",
                told.errors,
                if v6 { "IPv6" } else { "IPv4, each identification" },
                told.believed,
                told.datagrams,
                told.beyond_the_one(),
                if told.beyond_the_one() > 0 { ", EASIER" } else { "" },
            );
        }
    }
    beyond == 0 && !sum.is_easier()
}

fn list() -> Result<ExitCode> {
    for (name, _) in BUILTIN {
        if simulate::has_kind(&Scenario::find(name)?.kind) {
            outln!("{name}");
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn run_scenario(args: RunArgs) -> Result<ExitCode> {
    let RunArgs { cells, flow_trace, threads } = args;
    let options = simulate::Options { chosen: cells.chosen()?, threads };
    if let Some(path) = &flow_trace {
        let trace = simulate::trace(&options, &crate::config::gateway_of)?;
        std::fs::write(path, serde_json::to_string(&trace)? + "\n")
            .with_context(|| format!("{} cannot be written", path.display()))?;
    }
    let report = simulate::run(&options, &crate::config::gateway_of, &|line| eprintln!("{line}"))?;
    cells.publish(&report)
}

fn compare(args: &Compare) -> Result<ExitCode> {
    let read = |path: &PathBuf| {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).with_context(|| format!("{name} cannot be read"))?;
        Ok((name, text))
    };
    let files = args.files.iter().map(read).collect::<Result<Vec<_>>>()?;
    let comparison = Comparison::of(&files)?;
    out!("{}", comparison.table(args.tolerance, args.worst));
    let all = !comparison.pairs.is_empty() && comparison.within(args.tolerance) == comparison.pairs.len();
    Ok(if all { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn run_faults(args: &Faults) -> Result<ExitCode> {
    let mode: Mode = match args.mode.parse() {
        _ if args.hostile => Mode::Hostile,
        Ok(mode) => mode,
        Err(_) => bail!("--mode {}: known are {}", args.mode, Mode::names()),
    };
    let policy = args.policy.as_deref().map(|text| {
        text.parse::<FlowControl>()
            .map_err(|_| anyhow!("--policy {text}: known are fixed, send-window, adaptive and automatic"))
    });
    let policy = policy.transpose()?;
    let seeds = parse_seeds(&args.seeds)?;
    if let Some(filter) = &args.trace {
        if seeds.end - seeds.start != 1 {
            bail!("--trace shows one seed: --seeds wants a single number with it");
        }
        let filter = (!filter.is_empty()).then(|| filter.clone());
        return Ok(trace_one(seeds.start, mode, policy, filter, args.alone));
    }
    let total = seeds.end - seeds.start;
    let (done, start) = (AtomicU64::new(0), Instant::now());
    let sum = run_seeds(seeds, mode, policy, args.threads, args.failures, &|report| {
        let n = done.fetch_add(1, Ordering::Relaxed) + 1;
        if report.failure.is_some() {
            eprintln!("{report}");
        } else if n % 1000 == 0 {
            eprintln!("{n} of {total} seeds, {:.0} s", start.elapsed().as_secs_f64());
        }
    });
    outln!(
        "{} seeds ({}): {} broken, {} packets, {:.1} MB, {:.0} s of virtual time in {:.1} s, digest {:016x}",
        sum.runs,
        mode.name(),
        sum.failures.len(),
        sum.packets,
        sum.received_bytes as f64 / 1e6,
        sum.virtual_time.as_secs_f64(),
        start.elapsed().as_secs_f64(),
        sum.digest
    );
    Ok(if sum.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn trace_one(
    seed: u64,
    mode: Mode,
    policy: Option<FlowControl>,
    filter: Option<String>,
    alone: bool,
) -> ExitCode {
    outln!("{}", describe_seed(seed, mode, policy));
    let trace = Trace::with_text(filter);
    let traced = if alone { run_alone(seed, policy, trace) } else { trace_seed(seed, mode, policy, trace) };
    for line in &traced.lines {
        outln!("{line}");
    }
    outln!("{}", traced.report);
    if traced.report.failure.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// `7` or `0..1000`.
pub fn parse_seeds(text: &str) -> Result<std::ops::Range<u64>> {
    let number =
        |s: &str| s.trim().parse::<u64>().with_context(|| format!("--seeds {text}: `{s}` is no number"));
    let range = match text.split_once("..") {
        Some((from, to)) => number(from)?..number(to)?,
        None => {
            let n = number(text)?;
            n..n.checked_add(1).context("--seeds: too large")?
        }
    };
    if range.is_empty() {
        bail!("--seeds {text}: there is no seed in this range");
    }
    Ok(range)
}
