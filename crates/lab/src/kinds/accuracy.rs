//! `emulator-accuracy`: how precise the emulated link is, in delay and in rate.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use farlink_linux::emulator::accuracy::{self, DelayProbe};
use farlink_linux::netns::Namespace;

use super::{Kind, Run};
use crate::build::{Lab, Life};
use crate::report::Measured;
use crate::scenario::{Cell, Scenario};
use crate::settings::Settings;

/// See the module.
pub(super) struct AccuracyKind;

impl Kind for AccuracyKind {
    fn run(&mut self, scenario: &Scenario, cell: &Cell, run: &mut Run<'_>) -> Result<Measured> {
        let settings = Settings { seed: run.seed, ..cell.settings.clone() };
        let lab = Lab::up(&scenario.topology, &settings, &run.prefix, Life::WithUs)?;
        let open = |node: &str| Namespace::open(lab.ns(node).name());
        let (from, to) = (open("server")?, open("client")?);
        let address = lab.address("client", cell.v6())?;
        let bytes = scenario.option("packet_bytes", 1500.0)? as usize;
        let serialisation = Duration::from_secs_f64(bytes as f64 * 8.0 / settings.rate_bps as f64);
        let seconds = scenario.option("seconds", 5.0)?;
        let mut measured = Measured::default();
        match cell.word("case", "delay") {
            "delay" => {
                // The load is part of the case: so many packets that the link is busy for this
                // share of the time.
                let load = scenario.option("load", 0.6)?;
                let interval = serialisation.div_f64(load);
                let probe = DelayProbe {
                    count: (seconds / interval.as_secs_f64()) as usize,
                    interval,
                    bytes,
                    expected: Duration::from_secs_f64(settings.rtt_ms / 2e3) + serialisation,
                };
                let error =
                    accuracy::delay_error(&from, &to, address, &probe)?.context("no probe came through")?;
                measured.seconds = seconds;
                measured.metric("delay_error_p50_ms", error.p50_ns as f64 / 1e6);
                measured.metric("delay_error_p99_ms", error.p99_abs_ns as f64 / 1e6);
                measured.metric("delay_error_max_ms", error.max_abs_ns as f64 / 1e6);
                measured.metric("packets", error.count as f64);
                let p99 = error.p99_abs_ns as f64 / 1e6;
                measured.expect(p99 < 1.0, || format!("the delay is {p99:.3} ms off at the 99th percentile"));
            }
            "rate" => {
                let length = Duration::from_secs_f64(seconds);
                // A fifth more than it carries is offered.
                let offered = 1.2 * settings.rate_bps as f64;
                let rate = accuracy::rate(&from, &to, address, bytes, offered, length)?;
                let error = rate / settings.rate_bps as f64 - 1.0;
                measured.seconds = seconds;
                measured.metric("rate_bps", rate);
                measured.metric("rate_error", error);
                measured.expect(error.abs() < 0.01, || format!("the rate is {:.2} % off", error * 100.0));
            }
            other => bail!("unknown case `{other}`"),
        }
        lab.down()?;
        Ok(measured)
    }
}
