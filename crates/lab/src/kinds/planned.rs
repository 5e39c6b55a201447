//! `web`, `mixed`, `outage`, `field` and `stalled`: jobs of people, done with sockets.

use std::thread;
use std::time::Instant;

use anyhow::Result;

use super::session::{Allowed, PORT, Session};
use super::{Kind, Run, outages};
use crate::baseline;
use crate::jobs::outage::Outage;
use crate::jobs::{Client, Plan, Ran, lab};
use crate::report::Measured;
use crate::scenario::{Cell, Scenario};

/// See the module.
pub(super) struct PlannedKind(pub(super) Plan);

impl Kind for PlannedKind {
    fn cannot_run(&self, cell: &Cell) -> Option<String> {
        baseline::cannot_run(cell)
    }

    fn run(&mut self, scenario: &Scenario, cell: &Cell, run: &mut Run<'_>) -> Result<Measured> {
        let allowed = Allowed { resets: self.0.may_reset(cell), ..Allowed::default() };
        let mut session = Session::start(&scenario.topology, &cell.settings, cell, run, allowed)?;
        let is_ours = !baseline::start(&mut session.lab, cell, PORT)?;
        let jobs = self.0.jobs(cell, run.seed)?;
        let outages = self.0.outages(cell, run.seed)?;
        let has_second = session.lab.topology.index(Client::Second.name()).is_ok();
        let place = lab::Place {
            ns: session.lab.ns(Client::First.name()),
            ns_second: has_second.then(|| session.lab.ns(Client::Second.name())),
            to: session.lab.address("server", cell.v6())?,
            port: PORT,
            seed: run.seed,
            patience: outages.iter().map(Outage::patience).max().unwrap_or(lab::PATIENCE),
        };
        let progress = run.progress.bytes(jobs.iter().map(|j| j.task.bytes()).sum());
        let mut ran = thread::scope(|scope| -> Result<Ran> {
            let (began, lab, count) = (Instant::now(), &mut session.lab, &progress.count);
            let working = scope.spawn(|| lab::run_all(&place, &jobs, count));
            // A gateway that is started on the way ends with the thread that has started it.
            let progress_s = outages::play(lab, &outages, began, count, &|| working.is_finished());
            let done = working.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            Ok(Ran { done, progress_s: progress_s? })
        })?;
        for done in ran.done.iter_mut().filter(|done| done.resets > 0) {
            done.resets += u32::from(done.client.is_some_and(|client| session.server_hears(client)));
        }
        let mut measured = self.0.measure(scenario, (cell, run.seed), &jobs, &ran)?;
        let sound = measured.failures.len();
        session.finish(cell, &mut measured)?;
        if !is_ours {
            // Other proxies make connections of their own, with other sequence numbers.
            measured.failures.truncate(sound);
        }
        Ok(measured)
    }
}
