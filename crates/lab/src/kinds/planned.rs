//! `web`, `mixed` and `outage`: jobs of people, done with sockets.

use std::thread;
use std::time::Instant;

use anyhow::Result;

use super::session::{Allowed, PORT, Session};
use super::{Kind, Run, outages};
use crate::baseline;
use crate::jobs::{Plan, Ran, lab};
use crate::report::Measured;
use crate::scenario::{Cell, Scenario};

/// See the module.
pub(super) struct PlannedKind(pub(super) Plan);

impl Kind for PlannedKind {
    fn cannot_run(&self, cell: &Cell) -> Option<String> {
        baseline::cannot_run(cell)
    }

    fn run(&mut self, scenario: &Scenario, cell: &Cell, run: &mut Run<'_>) -> Result<Measured> {
        let mut session = Session::start(&scenario.topology, &cell.settings, cell, run, Allowed::default())?;
        let is_ours = !baseline::start(&mut session.lab, cell, PORT)?;
        let jobs = self.0.jobs(cell, run.seed)?;
        let outage = self.0.outage(cell, run.seed)?;
        let place = lab::Place {
            ns: session.lab.ns("client"),
            to: session.lab.address("server", cell.v6())?,
            port: PORT,
            seed: run.seed,
            patience: outage.map_or(lab::PATIENCE, |o| o.patience()),
        };
        let progress = run.progress.bytes(jobs.iter().map(|j| j.task.bytes()).sum());
        let ran = thread::scope(|scope| -> Result<Ran> {
            let (began, lab, count) = (Instant::now(), &mut session.lab, &progress.count);
            let working = scope.spawn(|| lab::run_all(&place, &jobs, count));
            // A gateway that is started on the way ends with the thread that has started it.
            let away = outage.map(|o| outages::play(lab, &o, began, count));
            let done = working.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            Ok(Ran { done, progress_s: away.transpose()?.flatten() })
        })?;
        let mut measured = self.0.measure(scenario, cell, &jobs, &ran)?;
        let sound = measured.failures.len();
        session.finish(cell, &mut measured)?;
        if !is_ours {
            // Other proxies make connections of their own, with other sequence numbers.
            measured.failures.truncate(sound);
        }
        Ok(measured)
    }
}
