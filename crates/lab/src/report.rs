//! The report of a run: the JSON of the command line, and what a cell measured.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::expect::Judgement;
use crate::limit;
use crate::scenario::{Cell, Clocks, Driver, Figures, Only, Params};

/// How often a run is made before what could not be judged of it is a failure.
const RUNS_MAX: u32 = 3;

/// What a scenario kind hands back of one run of a cell.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Measured {
    /// Seconds by the scenario's clock.
    pub seconds: f64,
    /// Payload bytes that arrived.
    pub bytes: u64,
    /// The physical limit in seconds; `None` where there is none to speak of.
    pub limit_seconds: Option<f64>,
    /// Bits per second that the link has carried in each round trip since the first data.
    pub round_trip_bps: Vec<f64>,
    /// What the link was meant to do meanwhile, if it has a schedule.
    pub schedule: Option<Schedule>,
    /// Seconds since the clock of the run started, and payload bytes that had arrived.
    pub progress: Vec<(f64, u64)>,
    /// How connections shared the link, where the scenario watches it.
    pub shares: Option<Shares>,
    /// What came back and went by time, where the return link is starved.
    pub starved: Option<Starved>,
    /// When each thousandth of the first download had arrived, in seconds since the clock of the
    /// run started, where the scenario watches it.
    pub arrivals_s: Vec<f64>,
    /// Numbers that describe it.
    pub metrics: BTreeMap<String, f64>,
    /// What was not as it has to be; the cell is intact only without any.
    pub failures: Vec<String>,
    /// Remarks for people.
    pub notes: Vec<String>,
    /// Why it could not be measured on this machine; nothing else counts then.
    pub skipped: Option<String>,
    /// Why something could not be judged this time: it is to run again.
    pub unjudged: Option<String>,
}

impl Measured {
    /// Nothing was measured, for this reason.
    #[must_use]
    pub fn skipped(reason: impl Into<String>) -> Self {
        Self { skipped: Some(reason.into()), ..Self::default() }
    }

    /// Runs at most so often until everything can be judged; what cannot be then is a failure, for
    /// nobody knows.
    pub fn until_judged(mut run: impl FnMut() -> anyhow::Result<Self>) -> anyhow::Result<Self> {
        let mut measured = run()?;
        for _ in 1..RUNS_MAX {
            // What has gone wrong must not be forgotten over a run in which it does not.
            if measured.unjudged.is_none() || !measured.failures.is_empty() {
                break;
            }
            measured = run()?;
        }
        if let Some(why) = measured.unjudged.take() {
            measured.failures.push(format!("{why}, in each of {RUNS_MAX} runs"));
        }
        Ok(measured)
    }

    /// Adds a number.
    pub fn metric(&mut self, name: &str, value: f64) {
        self.metrics.insert(name.into(), value);
    }

    /// Says what is wrong unless it holds.
    pub fn expect(&mut self, holds: bool, otherwise: impl FnOnce() -> String) {
        if !holds {
            self.failures.push(otherwise());
        }
    }
}

/// One run of one cell.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CellReport {
    /// What was varied.
    pub params: Params,
    /// What ran.
    pub variant: String,
    /// Number of the repetition, from 0.
    pub repeat: u32,
    /// Seed of this run.
    pub seed: u64,
    /// Seconds by the scenario's clock; `null` when it did not run to its end.
    pub seconds: Option<f64>,
    /// Payload bits per second.
    pub goodput_bps: Option<f64>,
    /// The physical limit.
    pub limit_seconds: Option<f64>,
    /// Time over limit; cells whose limit is under 100 ms are judged with 5 ms more.
    pub ratio_to_limit: Option<f64>,
    /// What arrived is what was sent, and everything that is checked was as it has to be.
    pub intact: bool,
    /// What the paper measured.
    pub paper_seconds: Option<f64>,
    /// All that papers measured, by table; names are those of `metrics`, and `seconds`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub papers: Vec<Figures>,
    /// Further numbers.
    #[serde(default)]
    pub metrics: BTreeMap<String, f64>,
    /// Bits per second that the link has carried in each round trip since the first data, 200 at
    /// most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub round_trip_bps: Vec<f64>,
    /// When the link was away and which rates it had, if it has a schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Schedule>,
    /// How far it was: seconds since the clock of the run started, and payload bytes that had
    /// arrived.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub progress: Vec<(f64, u64)>,
    /// How connections shared the link, where the scenario watches it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shares: Option<Shares>,
    /// What came back and went by time, where the return link has less than a tenth of the rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starved: Option<Starved>,
    /// When each thousandth of the first download had arrived, in seconds since the clock of the
    /// run started, where the scenario watches it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arrivals_s: Vec<f64>,
    /// What was not as it has to be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<String>,
    /// Remarks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl CellReport {
    /// The report of a run that came to its end or did not.
    #[must_use]
    pub fn new(cell: &Cell, repeat: u32, seed: u64, outcome: anyhow::Result<Measured>) -> Self {
        let (measured, ran) = match outcome {
            Ok(measured) => (measured, true),
            Err(error) => (Measured { failures: vec![format!("{error:#}")], ..Measured::default() }, false),
        };
        let seconds = ran.then_some(measured.seconds);
        let goodput =
            seconds.filter(|s| *s > 0.0 && measured.bytes > 0).map(|s| measured.bytes as f64 * 8.0 / s);
        Self {
            params: cell.params.clone(),
            variant: cell.variant.clone(),
            repeat,
            seed,
            seconds,
            goodput_bps: goodput,
            limit_seconds: measured.limit_seconds,
            ratio_to_limit: seconds.zip(measured.limit_seconds).map(|(s, l)| limit::ratio(s, l)),
            intact: ran && measured.failures.is_empty(),
            paper_seconds: cell.papers.iter().find_map(|p| p.figures.get("seconds").copied()),
            papers: cell.papers.clone(),
            metrics: measured.metrics,
            round_trip_bps: measured.round_trip_bps.iter().map(|bps| bps.round()).collect(),
            schedule: measured.schedule,
            progress: measured.progress,
            shares: measured.shares,
            starved: measured.starved,
            arrivals_s: measured.arrivals_s,
            failures: measured.failures,
            notes: measured.notes,
        }
    }
}

/// How connections shared a link, in windows of a round trip since the first data; 400 at most.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Shares {
    /// Length of a window.
    pub window_s: f64,
    /// What the link carried of each connection's data, ten at most, in the order of their first.
    pub connections_bps: Vec<Vec<f64>>,
    /// The longest queue before the link.
    pub queue_max_bytes: Vec<u64>,
}

/// A starved return link by time, since the clock of the run started.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Starved {
    /// What it carried in each second, bit/s; 600 at most.
    pub return_bps: Vec<f64>,
    /// Pure acknowledgements in each of these seconds.
    #[serde(default)]
    pub acks: Vec<u64>,
    /// Length of a step of `carried_bytes`.
    pub step_s: f64,
    /// Bytes of packets that the link had carried in the direction of the data at the end of each
    /// step, from nothing on; 1,001 at most.
    pub carried_bytes: Vec<u64>,
    /// Payload that the acknowledgements on the return link had confirmed by then, of the first
    /// connection.
    #[serde(default)]
    pub acked_bytes: Vec<u64>,
}

/// What a link was meant to do during a run, in seconds since it began to carry.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Schedule {
    /// When the clock of the run started.
    pub began_s: f64,
    /// When the first full segment came.
    pub first_data_s: Option<f64>,
    /// From when to when it was away: contacts and winks, 1,000 at most.
    pub outages_s: Vec<[f64; 2]>,
    /// Rates in bit/s, each with the time from which it held.
    pub rates: Vec<[f64; 2]>,
}

impl Schedule {
    /// The link's rate at a time, bit/s, there or away; `None`: it has none.
    #[must_use]
    pub fn rate_bps_at(&self, at_s: f64) -> Option<f64> {
        self.rates.iter().rev().find(|[from_s, _]| *from_s <= at_s).map(|[_, bps]| *bps)
    }
}

/// A cell that could not run here, and why.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Skipped {
    /// What would have been varied.
    pub params: Params,
    /// What would have run.
    pub variant: String,
    /// Why it did not.
    pub reason: String,
}

/// The command line of a run: what decides over its results, in one order. (Threads and output
/// files do not.)
#[must_use]
pub fn command_line(
    driver: Driver,
    scenario: &str,
    (only, subset): (&Only, Option<&str>),
    repeat: u32,
    seed: u64,
    set: &[String],
) -> String {
    let mut line = format!("farlink {driver} run {}", quoted(scenario));
    if let Some(subset) = subset {
        line += &format!(" --subset {}", quoted(subset));
    }
    let only = only.to_string();
    if !only.is_empty() {
        line += &format!(" --only {}", quoted(&only));
    }
    if repeat > 1 {
        line += &format!(" --repeat {repeat}");
    }
    line += &format!(" --seed {seed}");
    if !set.is_empty() {
        let words: Vec<_> = set.iter().map(|s| quoted(s)).collect();
        line += &format!(" --set {}", words.join(" "));
    }
    line
}

/// A word as a shell wants it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:+%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.into()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// A run of a scenario.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// The scenario's name.
    pub scenario: String,
    /// One line about it.
    pub title: String,
    /// `lab` or `sim`.
    pub driver: String,
    /// The seed of the run.
    pub seed: u64,
    /// The version of Farlink.
    pub version: String,
    /// The command that makes these results again; empty in files of versions that did not write
    /// it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub command: String,
    /// When the clocks start, ours and the paper's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clocks: Option<Clocks>,
    /// What ran.
    pub cells: Vec<CellReport>,
    /// What could not run on this machine (a program is not installed).
    #[serde(default)]
    pub skipped: Vec<Skipped>,
    /// What a scenario adds to the cells.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub details: Value,
    /// What became of the scenario's expectations.
    #[serde(default, skip_serializing_if = "Judgement::is_empty")]
    pub expectations: Judgement,
}

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Every cell ran and is intact, and what was judged holds.
    Good,
    /// A cell is not intact, or an expectation is missed.
    Bad,
    /// What ran is good, and something did not run.
    Incomplete,
}

impl Report {
    /// How the run ended.
    #[must_use]
    pub fn outcome(&self, allows_skips: bool) -> Outcome {
        if self.cells.iter().any(|c| !c.intact) || self.expectations.missed() > 0 {
            return Outcome::Bad;
        }
        if self.skipped.is_empty() || allows_skips { Outcome::Good } else { Outcome::Incomplete }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    fn cell() -> Cell {
        Cell {
            params: [("size_bytes".to_string(), serde_json::json!(1000))].into_iter().collect(),
            variant: "farlink".into(),
            settings: Settings::default(),
            needs: None,
            papers: vec![Figures {
                from: "table 5.2".into(),
                figures: [("seconds".to_string(), 13.84)].into_iter().collect(),
            }],
        }
    }

    #[test]
    fn a_good_cell_has_every_documented_field() {
        let measured =
            Measured { seconds: 2.0, bytes: 1000, limit_seconds: Some(1.0), ..Measured::default() };
        let value = serde_json::to_value(CellReport::new(&cell(), 0, 1, Ok(measured))).unwrap();
        assert_eq!(value["goodput_bps"], 4000.0);
        assert_eq!(value["ratio_to_limit"], 2.0);
        assert_eq!(value["intact"], true);
        assert_eq!(value["paper_seconds"], 13.84);
        assert_eq!(value["papers"][0]["from"], "table 5.2");
        assert_eq!(value["papers"][0]["figures"]["seconds"], 13.84);
        assert!(value["metrics"].is_object() && value.get("failures").is_none());
    }

    #[test]
    fn the_command_is_what_a_shell_takes() {
        let only = Only::parse("size_bytes=1000,variant=farlink,variant=direct").unwrap();
        let set = ["loss=0.01".to_string(), "gateway_config=[limits]\nx".to_string()];
        assert_eq!(
            command_line(Driver::Sim, "loss-sweep", (&only, None), 3, 7, &set),
            "farlink sim run loss-sweep --only size_bytes=1000,variant=farlink,variant=direct --repeat 3 --seed 7 \
             --set loss=0.01 'gateway_config=[limits]\nx'"
        );
        assert_eq!(
            command_line(Driver::Lab, "it's", (&Only::default(), Some("test")), 1, 1, &[]),
            "farlink lab run 'it'\\''s' --subset test --seed 1"
        );
    }

    #[test]
    fn what_could_not_be_judged_runs_again_and_fails_in_the_end() {
        let missed =
            || Measured { unjudged: Some("captures missed 3 packets".into()), ..Measured::default() };
        let runs = std::cell::Cell::new(0);
        let from_run = |good: u32| {
            runs.set(0);
            Measured::until_judged(|| {
                runs.set(runs.get() + 1);
                Ok(if runs.get() >= good { Measured::default() } else { missed() })
            })
        };
        assert!(from_run(1).unwrap().failures.is_empty() && runs.get() == 1);
        assert!(from_run(2).unwrap().failures.is_empty() && runs.get() == 2);
        assert_eq!(from_run(9).unwrap().failures, ["captures missed 3 packets, in each of 3 runs"]);
        assert_eq!(runs.get(), 3);
    }

    #[test]
    fn a_miss_is_worse_than_a_skip_and_a_skip_may_be_allowed() {
        let good = CellReport::new(&cell(), 0, 1, Ok(Measured { seconds: 1.0, ..Measured::default() }));
        let bad = CellReport { intact: false, ..good.clone() };
        let skipped = Skipped { params: Params::new(), variant: "haproxy".into(), reason: "missing".into() };
        let mut report = Report { cells: vec![good], ..Report::default() };
        assert_eq!(report.outcome(false), Outcome::Good);
        report.skipped.push(skipped);
        assert_eq!(report.outcome(false), Outcome::Incomplete);
        assert_eq!(report.outcome(true), Outcome::Good);
        report.cells.push(bad);
        assert_eq!(report.outcome(true), Outcome::Bad);
    }

    #[test]
    fn a_cell_that_did_not_run_is_not_intact() {
        let report = CellReport::new(&cell(), 0, 1, Err(anyhow::anyhow!("no link")));
        assert!(!report.intact && report.seconds.is_none());
        assert_eq!(report.failures, ["no link"]);
    }
}
