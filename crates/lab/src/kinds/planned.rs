//! `web` and `mixed`: jobs of people, done with sockets.

use anyhow::Result;

use super::session::{Allowed, PORT, Session};
use super::{Kind, Run};
use crate::baseline;
use crate::jobs::{Plan, lab};
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
        let place = lab::Place {
            ns: session.lab.ns("client"),
            to: session.lab.address("server", cell.v6())?,
            port: PORT,
            seed: run.seed,
        };
        let progress = run.progress.bytes(jobs.iter().map(|j| j.task.bytes()).sum());
        let done = lab::run_all(&place, &jobs, &progress.count);
        let mut measured = self.0.measure(scenario, cell, &jobs, &done)?;
        let sound = measured.failures.len();
        session.finish(cell, &mut measured)?;
        if !is_ours {
            // Other proxies make connections of their own, with other sequence numbers.
            measured.failures.truncate(sound);
        }
        Ok(measured)
    }
}
