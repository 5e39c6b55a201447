//! Runs the cases on one path: those that need the hosts for themselves first, the others side by
//! side.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::host::Host;
use super::sock::Family;
use super::{Case, Ctx, Ends, FIRST_PORT, Isolation, Outcome, PORTS_PER_CASE, cases};

/// One case on one path.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CaseResult {
    /// Name with the family, e.g. `refused-v6`.
    pub name: String,
    /// What the case is about.
    pub about: String,
    /// How long it took.
    pub seconds: f64,
    /// Whether a longer time than on the direct path is a difference. Not where the machine's speed
    /// decides: that is for the benchmark to judge.
    pub duration_counts: bool,
    /// Why it was not run on this path; then there is no outcome worth reading.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
    /// What the applications saw.
    pub outcome: Outcome,
}

/// Which cases to run, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// Run only cases whose name contains one of these; empty runs all.
    pub only: Vec<String>,
    /// How many shared cases run at the same time. Most of them wait most of the time.
    pub parallel: usize,
    /// Run only cases that need at least this rate: the second pass, over an unshaped path.
    pub from_rate_bps: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options { only: Vec::new(), parallel: 20, from_rate_bps: 0 }
    }
}

/// Cases that need at least this rate run as fast as the machine can.
const MACHINE_BOUND_BPS: u64 = 1_000_000_000;

struct Job {
    case: Case,
    family: Family,
    first_port: u16,
    position: usize,
}

impl Job {
    fn name(&self) -> String {
        match self.case.families {
            [_] => self.case.name.to_string(),
            _ => format!("{}-{}", self.case.name, self.family.suffix()),
        }
    }
}

/// Runs all cases that `options` select on the path `ends`; results in the order of [`cases`].
///
/// `done` is called after each case, from several threads.
pub fn run_all(
    ends: &Ends,
    options: &Options,
    done: &(dyn Fn(&CaseResult) + Sync),
) -> Result<Vec<CaseResult>> {
    let (client, server) = (Host::open(&ends.client.ns)?, Host::open(&ends.server.ns)?);
    let _settings = prepare(&client, &server)?;
    let (alone, mut shared): (Vec<Job>, Vec<Job>) =
        jobs(options).into_iter().partition(|job| job.case.isolation == Isolation::Alone);
    shared.sort_by_key(|job| std::cmp::Reverse(job.case.seconds));

    let results = Mutex::new(Vec::new());
    let finish = |job: &Job| {
        let result = run_one(job, ends, &client, &server);
        done(&result);
        results.lock().unwrap_or_else(PoisonError::into_inner).push((job.position, result));
    };
    alone.iter().for_each(finish);
    let queue = Mutex::new(VecDeque::from(shared));
    std::thread::scope(|scope| {
        for _ in 0..options.parallel.max(1) {
            scope.spawn(|| {
                let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                while let Some(job) = next() {
                    finish(&job);
                }
            });
        }
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(position, _)| *position);
    Ok(results.into_iter().map(|(_, result)| result).collect())
}

fn jobs(options: &Options) -> Vec<Job> {
    let mut jobs = Vec::new();
    for case in cases() {
        for &family in case.families {
            let first_port = FIRST_PORT + jobs.len() as u16 * PORTS_PER_CASE;
            let position = jobs.len();
            jobs.push(Job { case: Case { ..case }, family, first_port, position });
        }
    }
    jobs.retain(|job| {
        let name = job.name();
        job.case.min_rate_bps >= options.from_rate_bps
            && (options.only.is_empty() || options.only.iter().any(|part| name.contains(part.as_str())))
    });
    jobs
}

/// Settings that all cases rely on: error messages without rate limit, and answers to Fast Open.
fn prepare<'a>(client: &'a Host, server: &'a Host) -> Result<Vec<super::host::SysctlGuard<'a>>> {
    let mut guards = Vec::new();
    for host in [client, server] {
        for (key, value) in
            [("ipv4/icmp_ratelimit", "0"), ("ipv6/icmp/ratelimit", "0"), ("ipv4/tcp_fastopen", "3")]
        {
            guards.push(host.hold_sysctl(key, value)?);
        }
    }
    Ok(guards)
}

fn run_one(job: &Job, ends: &Ends, client: &Host, server: &Host) -> CaseResult {
    let start = Instant::now();
    let ctx = Ctx {
        client,
        server,
        ends,
        family: job.family,
        name: job.name(),
        first_port: job.first_port,
        outcome: Mutex::default(),
    };
    let skipped = reason_to_skip(&job.case, ends);
    if skipped.is_none() {
        let run = std::panic::AssertUnwindSafe(|| (job.case.run)(&ctx));
        match std::panic::catch_unwind(run) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => ctx.fault(format!("could not be carried out: {error:#}")),
            Err(_) => ctx.fault("the case panicked"),
        }
    }
    CaseResult {
        name: job.name(),
        about: job.case.about.to_string(),
        seconds: start.elapsed().as_secs_f64(),
        duration_counts: job.case.min_rate_bps < MACHINE_BOUND_BPS,
        skipped,
        outcome: ctx.outcome.into_inner().unwrap_or_else(PoisonError::into_inner),
    }
}

fn reason_to_skip(case: &Case, ends: &Ends) -> Option<String> {
    match ends.rate_bps {
        Some(rate) if rate < case.min_rate_bps => {
            Some(format!("needs a path of {} Mbit/s", case.min_rate_bps / 1_000_000))
        }
        _ if case.name.starts_with("pmtu") && ends.narrow.is_empty() => {
            Some("needs an inner link whose MTU may be lowered".to_string())
        }
        _ => None,
    }
}
