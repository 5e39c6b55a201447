//! Runs seeds, many or one.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use farlink_gateway::config::FlowControl;
use farlink_wire::{Duration, Instant};
use portable_atomic::AtomicU64;

use crate::build::build;
use crate::hostile;
use crate::plan::{FaultPlan, Mode, SimPlan};
use crate::trace::Trace;
use crate::verdict;

/// Virtual time within which every run has to end.
const TIME_LIMIT: Duration = Duration::from_secs(6 * 3600);
/// The same where links go away for minutes, again and again.
const TIME_LIMIT_CUSTODY: Duration = Duration::from_secs(24 * 3600);
/// Virtual time that a run goes on after the last connection has ended: late timers and packets.
const SETTLE: Duration = Duration::from_secs(90);
/// Packets on wires within which every run has to end.
const PACKETS_MAX: u64 = 20_000_000;

/// What came of one seed.
#[derive(Clone, Debug)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// The mode.
    pub mode: Mode,
    /// The policy of flow control that was asked for at all gateways.
    pub policy: Option<FlowControl>,
    /// What went wrong, if anything did.
    pub failure: Option<String>,
    /// Hash of every packet on every wire with its time.
    pub digest: u64,
    /// Packets on wires.
    pub packets: u64,
    /// Virtual time that passed.
    pub virtual_time: Duration,
    /// Payload bytes that the applications read.
    pub received_bytes: u64,
    /// The most bytes that gateways held beyond the largest window that their source was shown.
    pub beyond_windows_bytes: u64,
}

/// One run and what was kept of it.
pub struct Traced {
    /// The result.
    pub report: Report,
    /// A line per packet and event.
    pub lines: Vec<String>,
    /// A capture per node.
    pub captures: Vec<(String, Vec<u8>)>,
}

/// Runs one seed.
#[must_use]
pub fn run_seed(seed: u64, mode: Mode, policy: Option<FlowControl>) -> Report {
    trace_seed(seed, mode, policy, Trace::default()).report
}

/// Runs one seed and keeps what `trace` says.
#[must_use]
pub fn trace_seed(seed: u64, mode: Mode, policy: Option<FlowControl>, trace: Trace) -> Traced {
    match mode {
        Mode::Hostile => hostile::run::run(seed, policy, trace),
        _ => run_plan(&SimPlan::from_seed(seed, mode, policy), trace),
    }
}

/// What a seed means, for people.
#[must_use]
pub fn describe_seed(seed: u64, mode: Mode, policy: Option<FlowControl>) -> String {
    match mode {
        Mode::Hostile => format!("{:#?}", hostile::plan::HostilePlan::from_seed(seed, policy)),
        _ => format!("{:#?}", SimPlan::from_seed(seed, mode, policy)),
    }
}

/// How long a run goes on after its end: what was sent last may wait for a gap that is away.
fn settle(plan: &SimPlan) -> Duration {
    let outages = plan.faults.iter().filter(|_| plan.trouble() == Mode::Custody);
    let longest =
        outages.filter_map(|f| if let FaultPlan::Outage { lasts, .. } = f { Some(*lasts) } else { None });
    SETTLE + longest.max().unwrap_or_default()
}

/// Runs a plan.
#[must_use]
pub fn run_plan(plan: &SimPlan, trace: Trace) -> Traced {
    let mut world = build(plan, trace);
    let limit = if plan.trouble() == Mode::Custody { TIME_LIMIT_CUSTODY } else { TIME_LIMIT };
    let finished = world.run(settle(plan), Instant::ZERO + limit, PACKETS_MAX);
    let ends = world.ends();
    let failure = world.failure.clone().or_else(|| {
        let verdict = verdict::check(plan, &ends, &world.observer);
        match (verdict, finished) {
            (None, true) => None,
            (Some(v), true) => Some(v),
            (v, false) => Some(format!(
                "the run does not end: at {:.3} s after {} packets\n  {}\n{}",
                world.now().as_nanos() as f64 / 1e9,
                world.packets,
                v.unwrap_or_default(),
                world.observer.summary()
            )),
        }
    });
    let report = Report {
        seed: plan.seed,
        mode: plan.mode,
        policy: plan.policy,
        failure,
        digest: world.trace.digest(),
        packets: world.packets,
        virtual_time: world.now().since(Instant::ZERO),
        received_bytes: ends.iter().map(|e| e.received).sum(),
        beyond_windows_bytes: world.observer.beyond_windows_bytes,
    };
    Traced { report, lines: world.trace.take_text(), captures: world.trace.take_captures() }
}

impl Report {
    /// The command that runs this seed again and shows every packet.
    #[must_use]
    pub fn replay(&self) -> String {
        let policy = self.policy.map(|p| format!(" --policy {}", p.name())).unwrap_or_default();
        let mode = match self.mode {
            Mode::Hostile => "--hostile".to_string(),
            mode => format!("--mode {}", mode.name()),
        };
        format!("farlink sim faults {mode}{policy} --seeds {} --trace", self.seed)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.failure {
            Some(what) => write!(f, "seed {}: {what}\n  again: {}", self.seed, self.replay()),
            None => write!(
                f,
                "seed {}: {} packets, {} bytes read, {:.1} s, digest {:016x}",
                self.seed,
                self.packets,
                self.received_bytes,
                self.virtual_time.as_secs_f64(),
                self.digest
            ),
        }
    }
}

/// What came of many seeds.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Seeds that were run.
    pub runs: u64,
    /// The failed ones, in order of seed.
    pub failures: Vec<Report>,
    /// Packets on wires, all together.
    pub packets: u64,
    /// Payload bytes read, all together.
    pub received_bytes: u64,
    /// Virtual time, all together.
    pub virtual_time: Duration,
    /// Hash of all digests, in order of seed.
    pub digest: u64,
}

/// Runs all seeds of `seeds`, with `policy` at all gateways or each with its own, on `threads`
/// threads; ends early after `failures_max` failures. `progress` is told of each run.
pub fn run_seeds(
    seeds: std::ops::Range<u64>,
    mode: Mode,
    policy: Option<FlowControl>,
    threads: usize,
    failures_max: usize,
    progress: &(dyn Fn(&Report) + Sync),
) -> Summary {
    let next = AtomicU64::new(seeds.start);
    let stop = AtomicBool::new(false);
    let reports = Mutex::new(Vec::new());
    let failed = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        break;
                    }
                    let report = run_guarded(seed, mode, policy);
                    progress(&report);
                    if report.failure.is_some()
                        && failed.fetch_add(1, Ordering::Relaxed) + 1 >= failures_max as u64
                    {
                        stop.store(true, Ordering::Relaxed);
                    }
                    reports.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(report);
                }
            });
        }
    });
    let mut reports = reports.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    reports.sort_by_key(|r| r.seed);
    let mut sum = Summary::default();
    for r in reports {
        sum.runs += 1;
        sum.packets += r.packets;
        sum.received_bytes += r.received_bytes;
        sum.virtual_time += r.virtual_time;
        sum.digest = crate::packet::hash(sum.digest, &r.digest.to_le_bytes());
        if r.failure.is_some() {
            sum.failures.push(r);
        }
    }
    sum
}

/// A panic in a gateway is a finding with a seed like any other.
fn run_guarded(seed: u64, mode: Mode, policy: Option<FlowControl>) -> Report {
    std::panic::catch_unwind(|| run_seed(seed, mode, policy)).unwrap_or_else(|cause| {
        let text = cause
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| cause.downcast_ref::<&str>().map(|s| (*s).to_string()))
            .unwrap_or_else(|| "no message".to_string());
        Report {
            seed,
            mode,
            policy,
            failure: Some(format!("panic: {text}")),
            digest: 0,
            packets: 0,
            virtual_time: Duration::ZERO,
            received_bytes: 0,
            beyond_windows_bytes: 0,
        }
    })
}
