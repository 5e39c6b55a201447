//! `drain`: a gateway is told to end while many transfers are under way. All of them finish, the
//! daemon ends with status 0 and leaves nothing behind, and one that is started again splits again.

use std::process::ExitStatus;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::session::{Allowed, PORT, Session, expect_intact};
use super::{Kind, Run, leftovers, many};
use crate::build::Lab;
use crate::report::Measured;
use crate::scenario::{Cell, Scenario};
use crate::workload::Transfer;

/// A gateway that has not ended so long after the signal will not.
const END_PATIENCE: Duration = Duration::from_secs(120);
/// Size of the download after the restart.
const AFTERWARDS_BYTES: u64 = 100_000;

/// See the module.
pub(super) struct DrainKind;

/// What the signal has led to.
struct Drained {
    /// When it was sent, in seconds since the transfers began.
    at_s: f64,
    /// How long the gateway took to end.
    took_s: f64,
    /// Flows that were split at the signal.
    split: u64,
    /// How it ended, if it did.
    status: Option<ExitStatus>,
    /// What it left behind.
    left: Vec<String>,
    /// Its last words.
    words: String,
}

impl Kind for DrainKind {
    fn run(&mut self, scenario: &Scenario, cell: &Cell, run: &mut Run<'_>) -> Result<Measured> {
        let mut session = Session::start(&scenario.topology, &cell.settings, cell, run, Allowed::default())?;
        let transfers = many::transfers(scenario, cell, &session.lab, run.seed)?;
        let after = scenario.option("signal_after_s", 2.0)? as u64;
        let after = Duration::from_secs(cell.number("signal_after_s", after));
        let node = cell.word("case", "gw2").to_string();
        let (outcomes, drained) = session.transfer(&transfers, run, |lab| drain(lab, &node, after));
        let drained = drained?;
        let mut measured = Measured::default();
        expect_intact(&mut measured, &outcomes);
        judge(&mut measured, &node, &drained);
        let under_way = many::under_way(&outcomes, drained.at_s);
        measured.expect(under_way == transfers.len(), || {
            format!("only {under_way} of {} transfers were under way at the signal", transfers.len())
        });
        measured.metric("under_way", under_way as f64);

        session.lab.restart_gateway(&node)?;
        let to = session.lab.address("server", cell.v6())?;
        let once_more = Transfer::download(
            session.lab.ns("client"),
            to,
            PORT,
            AFTERWARDS_BYTES,
            run.seed.wrapping_sub(1),
        );
        let (after, ()) = session.transfer(&[once_more], run, |_| ());
        measured.expect(after[0].intact, || format!("after the restart: {:?}", after[0].error));
        let split = session.lab.gateway(&node)?.engine_number("counters.flows_split")?;
        measured.expect(split > 0, || "after the restart nothing is split".into());
        session.finish(cell, &mut measured)?;
        Ok(measured)
    }
}

fn drain(lab: &mut Lab, node: &str, after: Duration) -> Result<Drained> {
    let began = Instant::now();
    std::thread::sleep(after);
    let gateway = lab.gateway(node)?;
    let split = gateway.engine_number("flows_split")?;
    let at_s = began.elapsed().as_secs_f64();
    gateway.process.signal(libc::SIGTERM);
    let status = gateway.wait_end(END_PATIENCE)?;
    let took_s = began.elapsed().as_secs_f64() - at_s;
    let words = gateway.last_words();
    let left = leftovers::of(lab, node, "client")?;
    Ok(Drained { at_s, took_s, split, status, left, words })
}

fn judge(measured: &mut Measured, node: &str, drained: &Drained) {
    let Drained { at_s: _, took_s, split, status, left, words } = drained;
    measured.metric("drain_seconds", *took_s);
    measured.metric("split_at_signal", *split as f64);
    measured.expect(*split > 0, || format!("nothing was split on {node} at the signal"));
    match status {
        None => measured.failures.push(format!("the gateway on {node} does not end; its log: {words}")),
        Some(status) => {
            measured
                .expect(status.success(), || format!("the gateway on {node} ended with {status}: {words}"));
        }
    }
    measured.expect(!words.contains("were reset"), || format!("the gateway on {node} gave up: {words}"));
    for what in left {
        measured.failures.push(format!("the gateway on {node} left behind: {what}"));
    }
}
