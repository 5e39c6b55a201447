//! What `lab run` and `sim run` have in common: which cells are run, how often, and where the
//! results go.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use farlink_lab::report::{Outcome, Report};
use farlink_lab::runner;
use farlink_lab::scenario::{Chosen, Only};

use crate::out::{out, outln};

/// Exit status of a run in which all is well but some cells could not run.
const INCOMPLETE: u8 = 3;

/// See the module.
#[derive(clap::Args, Debug)]
pub struct ScenarioArgs {
    /// Name of a builtin scenario, or path of a scenario file
    scenario: String,
    /// Run only the cells with these params; `variant` is one too
    #[arg(long, value_name = "K=V,...")]
    only: Vec<String>,
    /// Run only the cells of this subset of the scenario
    #[arg(long, value_name = "NAME")]
    subset: Option<String>,
    /// Cells that cannot run here are no failure
    #[arg(long)]
    allow_skips: bool,
    /// How often each cell is run
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    repeat: u32,
    /// Seed of everything random
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Write the results as JSON; `-` is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write what each node carried into a directory (pcap)
    #[arg(long, value_name = "DIR")]
    captures: Option<PathBuf>,
    /// Change settings of all cells, each key=value; `farlink lab up --help` lists the keys
    #[arg(long, value_name = "K=V", num_args = 1..)]
    set: Vec<String>,
}

impl ScenarioArgs {
    /// What is to be run.
    pub fn chosen(&self) -> Result<Chosen> {
        Ok(Chosen {
            scenario: self.scenario.clone(),
            only: Only::parse(&self.only.join(","))?,
            subset: self.subset.clone(),
            repeat: self.repeat,
            seed: self.seed,
            set: self.set.clone(),
            captures: self.captures.clone(),
        })
    }

    /// Prints the table of a report and writes its JSON where it was asked for.
    pub fn publish(&self, report: &Report) -> Result<ExitCode> {
        let table = runner::table(report);
        match &self.json {
            Some(path) if path.as_os_str() == "-" => {
                eprint!("{table}");
                outln!("{}", serde_json::to_string_pretty(report)?);
            }
            Some(path) => {
                out!("{table}");
                std::fs::write(path, serde_json::to_string_pretty(report)? + "\n")
                    .with_context(|| format!("{} cannot be written", path.display()))?;
            }
            None => out!("{table}"),
        }
        Ok(match report.outcome(self.allow_skips) {
            Outcome::Good => ExitCode::SUCCESS,
            Outcome::Bad => ExitCode::FAILURE,
            Outcome::Incomplete => {
                eprintln!("{} cells did not run; --allow-skips accepts that", report.skipped.len());
                ExitCode::from(INCOMPLETE)
            }
        })
    }
}
