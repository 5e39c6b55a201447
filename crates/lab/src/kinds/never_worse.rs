//! `never-worse`: something on the gateway's own machine keeps diverted packets from coming out,
//! takes diversion away, or stops the gateway, while connections are made. Within three seconds
//! (four where the gateway is frozen) new ones work, `farlink check` and the log say why, and when
//! the fault is mended connections are split again. Some of it touches nothing, with bumps most of
//! it: then all works on, and nobody complains.

mod faults;

use std::process::Output;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use portable_atomic::AtomicU64;

use self::faults::Fault;
use super::session::PORT;
use super::{Kind, Run};
use crate::build::{Lab, Life};
use crate::report::Measured;
use crate::scenario::{Cell, Scenario};
use crate::sh;
use crate::workload::{Direction, Outcome, Server, Transfer, run_all};

/// Bytes that each new connection fetches.
const PROBE_BYTES: u64 = 1000;
const PROBE_EVERY: Duration = Duration::from_millis(250);
/// New connections are opened for so long after the fault.
const PROBE_FOR: Duration = Duration::from_secs(6);
/// Within so long TCP works again, and with a gateway that is frozen.
const WITHIN_S: f64 = 3.0;
const FROZEN_WITHIN_S: f64 = 4.0;
/// A connection that hangs for so long is lost.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long it may take until connections are split again after the fault is mended.
const AGAIN_PATIENCE: Duration = Duration::from_secs(30);
/// Where the fault stands before the gateway starts: connections have been made for so long when it
/// does.
const START_AFTER: Duration = Duration::from_millis(500);
/// A connection that lasts while the gateway starts: so many bytes, read a little at a time.
const LASTING_BYTES: u64 = 1_500_000;
const LASTING_BUFFER_BYTES: u32 = 32 << 10;
const LASTING_PAUSE: Duration = Duration::from_millis(50);
/// An upload shows what lost acknowledgements cost.
const UPLOAD_BYTES: u64 = 6_000_000;
/// So many, until one of them loses a packet on the link and then its acknowledgements.
const UPLOADS_MAX: u32 = 5;
/// How much longer an upload may take that is not split. Behind a rule that drops acknowledgements
/// a split one took seven times as long.
const UPLOAD_RATIO_MAX: f64 = 4.0;

/// See the module.
pub(super) struct NeverWorseKind;

impl Kind for NeverWorseKind {
    fn cannot_run(&self, cell: &Cell) -> Option<String> {
        let is_legacy = cell.word("case", "").contains("legacy");
        let missing = faults::LEGACY.split(' ').find(|program| is_legacy && sh::find(program).is_none())?;
        Some(format!("{missing} is not installed"))
    }

    fn run(&mut self, scenario: &Scenario, cell: &Cell, run: &mut Run<'_>) -> Result<Measured> {
        let mut lab = Lab::up(&scenario.topology, &cell.settings, &run.prefix, Life::WithUs)?;
        let _server = Server::start(&lab.ns("server"), PORT)?;
        let node = lab.gateways.first().context("no gateway runs")?.node.clone();
        let fault = Fault::named(cell.word("case", ""), &lab, &node)?;
        let mut measured = Measured::default();
        let has_bumps = lab.gateway(&node)?.status()?["diversion"]["method"] == "bump";
        let is_untouched = fault.touches_nothing(has_bumps);
        let bench = Bench { cell, seed: run.seed, node, is_untouched };

        let before = bench.split_count(&lab)?;
        let upload_before = bench.one(&lab, Direction::Upload, UPLOAD_BYTES)?;
        bench.expect_intact(&mut measured, &upload_before, "an upload before the fault");
        measured.expect(bench.split_count(&lab)? > before, || "nothing was split before the fault".into());

        if fault.is_first() {
            bench.end_gateway(&mut lab)?;
            fault.apply(&mut lab, &bench.node)?;
            let plain = bench.one(&lab, Direction::Upload, UPLOAD_BYTES)?;
            bench.expect_intact(&mut measured, &plain, "an upload before the gateway starts");
        }
        let mut transfers = bench.probes(&lab)?;
        transfers.extend(fault.is_first().then(|| bench.lasting(&lab)).transpose()?);
        let (mut outcomes, broken) =
            run_all(&transfers, &AtomicU64::new(0), || bench.break_it(&mut lab, &fault));
        let broken = broken?;
        if fault.is_first() {
            let lasting = outcomes.pop().context("a connection lasts while the gateway starts")?;
            bench.expect_intact(
                &mut measured,
                &lasting,
                "a connection that was open when the gateway started",
            );
            let has_lasted = lasting.ended_s > broken.since_s + WITHIN_S;
            measured.expect(has_lasted || bench.is_untouched, || {
                format!("the lasting connection ended after {:.2} s already", lasting.ended_s)
            });
        }
        bench.judge_probes(&mut measured, &outcomes, &fault, broken.since_s);
        if fault.loses_acknowledgements() && !bench.is_untouched {
            // Those that show what is lost are slow, and arrive; the next one has what the path
            // has.
            for _ in 0..UPLOADS_MAX {
                let slow = bench.one(&lab, Direction::Upload, UPLOAD_BYTES)?;
                bench.expect_intact(&mut measured, &slow, "an upload whose acknowledgements are lost");
                if lab.gateway(&bench.node)?.status()?["diversion"]["split"] == false {
                    break;
                }
            }
            let after = bench.one(&lab, Direction::Upload, UPLOAD_BYTES)?;
            bench.expect_intact(&mut measured, &after, "an upload behind the rules");
            let ratio = after.seconds / upload_before.seconds.max(1e-9);
            measured.metric("upload_ratio", ratio);
            measured.expect(ratio < UPLOAD_RATIO_MAX, || {
                format!("an upload behind the rules took {ratio:.1} times as long as a split one")
            });
        }
        bench.judge_words(&mut measured, &mut lab, &fault, broken.status)?;
        bench.judge_recovery(&mut measured, &mut lab, &fault)?;
        measured.seconds = outcomes.iter().map(|o| o.ended_s).fold(0.0, f64::max);
        measured.bytes = outcomes.iter().map(|o| o.bytes).sum();
        lab.down()?;
        Ok(measured)
    }
}

/// What was seen while it broke.
struct Broken {
    /// From when on it was broken, in seconds since connections began to be made.
    since_s: f64,
    /// What a frozen gateway answered.
    status: Option<Output>,
}

struct Bench<'a> {
    cell: &'a Cell,
    seed: u64,
    node: String,
    /// The fault touches nothing of this diversion.
    is_untouched: bool,
}

impl Bench<'_> {
    fn one(&self, lab: &Lab, direction: Direction, bytes: u64) -> Result<Outcome> {
        let to = lab.address("server", self.cell.v6())?;
        let transfer = Transfer {
            direction,
            patience: PATIENCE,
            ..Transfer::download(lab.ns("client"), to, PORT, bytes, self.seed)
        };
        Ok(transfer.run(&AtomicU64::new(0)))
    }

    fn expect_intact(&self, measured: &mut Measured, outcome: &Outcome, what: &str) {
        measured.expect(outcome.intact, || {
            format!("{what}: {}", outcome.error.as_deref().unwrap_or("not intact"))
        });
    }

    fn probes(&self, lab: &Lab) -> Result<Vec<Transfer>> {
        let to = lab.address("server", self.cell.v6())?;
        let count = (PROBE_FOR.as_millis() / PROBE_EVERY.as_millis()) as u32;
        let probe = |n| Transfer {
            start_after: PROBE_EVERY * n,
            patience: PATIENCE,
            ..Transfer::download(lab.ns("client"), to, PORT, PROBE_BYTES, u64::from(n))
        };
        Ok((0..count).map(probe).collect())
    }

    fn split_count(&self, lab: &Lab) -> Result<u64> {
        let gateway = lab.gateways.iter().find(|g| g.node == self.node).context("no gateway runs")?;
        gateway.engine_number("counters.flows_split")
    }

    /// A download that lasts, and fails when it stands still for longer than it may.
    fn lasting(&self, lab: &Lab) -> Result<Transfer> {
        let mut lasting = Transfer {
            pause_per_chunk: LASTING_PAUSE,
            patience: Duration::from_secs_f64(WITHIN_S),
            ..Transfer::download(
                lab.ns("client"),
                lab.address("server", self.cell.v6())?,
                PORT,
                LASTING_BYTES,
                self.seed,
            )
        };
        lasting.options.receive_buffer_bytes = LASTING_BUFFER_BYTES;
        Ok(lasting)
    }

    fn end_gateway(&self, lab: &mut Lab) -> Result<()> {
        let gateway = lab.gateway(&self.node)?;
        gateway.process.signal(libc::SIGTERM);
        gateway.wait_end(PATIENCE)?.context("the gateway does not end")?;
        Ok(())
    }

    /// Breaks it, and for a frozen gateway asks for its status at once: the answer must come in
    /// time, whatever it is.
    fn break_it(&self, lab: &mut Lab, fault: &Fault) -> Result<Broken> {
        if fault.is_first() {
            let began = Instant::now();
            std::thread::sleep(START_AFTER);
            lab.restart_gateway(&self.node)?;
            return Ok(Broken { since_s: began.elapsed().as_secs_f64(), status: None });
        }
        fault.apply(lab, &self.node)?;
        let status = fault.freezes().then(|| self.ask(lab, &["status"])).transpose()?;
        Ok(Broken { since_s: 0.0, status })
    }

    fn ask(&self, lab: &Lab, words: &[&str]) -> Result<Output> {
        let gateway = lab.gateways.iter().find(|g| g.node == self.node).context("no gateway runs")?;
        let mut command = lab.ns(&self.node).command(sh::farlink_binary()?)?;
        command.args(words).arg("--socket").arg(&gateway.socket);
        Ok(command.output()?)
    }

    /// Connections work within the time after `since_s`, and from then on each does.
    fn judge_probes(&self, measured: &mut Measured, outcomes: &[Outcome], fault: &Fault, since_s: f64) {
        let within_s = if fault.freezes() { FROZEN_WITHIN_S } else { WITHIN_S };
        let affected = outcomes.iter().filter(|o| o.began_s >= since_s);
        let works_s =
            affected.filter(|o| o.intact).map(|o| o.ended_s - since_s).fold(f64::INFINITY, f64::min);
        measured.metric("works_after_seconds", works_s);
        measured.expect(works_s <= within_s, || {
            format!("the first connection worked {works_s:.2} s after the fault")
        });
        for outcome in outcomes {
            let after_s = outcome.began_s - since_s;
            let took_s = outcome.ended_s - outcome.began_s;
            let is_well = outcome.intact && (after_s < within_s || took_s < 1.0);
            measured.expect(is_well, || {
                format!(
                    "a connection opened {after_s:.2} s after the fault took {took_s:.2} s ({:?})",
                    outcome.error
                )
            });
        }
    }

    /// Both who asks and who reads the log learn why.
    fn judge_words(
        &self,
        measured: &mut Measured,
        lab: &mut Lab,
        fault: &Fault,
        frozen: Option<Output>,
    ) -> Result<()> {
        if let Some(status) = frozen {
            let said = String::from_utf8_lossy(&status.stderr).into_owned();
            // By the time that it asks again the frozen one has been killed.
            let words = ["does not answer", "before it answered", "was killed because it hung"];
            let says_why = !status.status.success() && words.iter().any(|word| said.contains(word));
            measured.expect(says_why, || format!("`farlink status` of a frozen gateway said: {said}"));
        }
        let check = self.ask(lab, &["check", "--seconds", "1"])?;
        let said = String::from_utf8_lossy(&check.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
        let wanted = if self.is_untouched { 0 } else { 1 };
        measured.expect(check.status.code() == Some(wanted), || {
            format!("`farlink check` ended with {:?}: {said}", check.status.code())
        });
        if self.is_untouched {
            return Ok(());
        }
        let log = std::fs::read_to_string(&lab.gateway(&self.node)?.log)?;
        for word in fault.words() {
            measured.expect(said.contains(word), || format!("`farlink check` does not say `{word}`: {said}"));
        }
        for word in fault.log_words() {
            measured.expect(log.contains(word), || format!("the log does not say `{word}`: {log}"));
        }
        Ok(())
    }

    /// The fault is mended: connections are split again.
    fn judge_recovery(&self, measured: &mut Measured, lab: &mut Lab, fault: &Fault) -> Result<()> {
        fault.mend(lab, &self.node)?;
        let mended = Instant::now();
        let before = self.split_count(lab)?;
        loop {
            let probe = self.one(lab, Direction::Download, PROBE_BYTES)?;
            self.expect_intact(measured, &probe, "a connection after the fault was mended");
            if self.split_count(lab)? > before {
                break;
            }
            if mended.elapsed() > AGAIN_PATIENCE || !probe.intact {
                measured.failures.push("connections are not split again after the fault is mended".into());
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        measured.metric("split_again_after_seconds", mended.elapsed().as_secs_f64());
        let check = self.ask(lab, &["status", "--json"])?;
        let status: serde_json::Value = serde_json::from_slice(&check.stdout)?;
        for (name, wanted) in [("ipv4", true), ("ipv6", true), ("split", true)] {
            measured.expect(status["diversion"][name] == wanted, || {
                format!("the status says {name}: {}", status["diversion"])
            });
        }
        Ok(())
    }
}
