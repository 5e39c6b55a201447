//! Laboratory against simulator, cell by cell.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::jobs::quantile;

/// A cell under which seconds are compared with this allowance: a laboratory's kernels and programs
/// take time.
const ALLOWANCE_S: f64 = 0.005;
/// Limits below which the allowance counts.
const SHORT_S: f64 = 0.1;

/// Seconds of the runs of one cell, in the laboratory and in the simulator.
#[derive(Clone, PartialEq, Debug, Default)]
struct Cell {
    lab: Vec<f64>,
    sim: Vec<f64>,
}

/// A cell that both have run.
#[derive(Clone, PartialEq, Debug)]
pub struct Pair {
    /// Scenario, variant and what distinguishes the cell.
    pub name: String,
    /// Medians of the seconds.
    pub lab_s: f64,
    /// Likewise.
    pub sim_s: f64,
    /// How often each has run it.
    pub runs: [usize; 2],
}

/// What two sets of results have in common.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Comparison {
    /// Cells that both have run, the worst first.
    pub pairs: Vec<Pair>,
    /// Cells that only one of them has run.
    pub alone: usize,
    /// Runs that did not come to their end or were not intact; they are not compared.
    pub broken: usize,
}

impl Pair {
    /// Simulator over laboratory, less one. Of cells shorter than 100 ms, 5 ms are nothing.
    #[must_use]
    pub fn difference(&self) -> f64 {
        let difference = self.sim_s - self.lab_s;
        if self.lab_s < SHORT_S && difference.abs() <= ALLOWANCE_S {
            return 0.0;
        }
        difference / self.lab_s.max(1e-9)
    }
}

impl Comparison {
    /// Of result files, as name and text; which driver made one stands in it.
    pub fn of(files: &[(String, String)]) -> Result<Self> {
        let mut cells: BTreeMap<(String, String, String), (Cell, Value)> = BTreeMap::new();
        let mut comparison = Self::default();
        for (name, text) in files {
            let report: Value = serde_json::from_str(text).with_context(|| format!("{name} is no JSON"))?;
            let (Some(scenario), Some(driver)) = (report["scenario"].as_str(), report["driver"].as_str())
            else {
                bail!("{name} is no result of `lab run` or `sim run`");
            };
            for cell in report["cells"].as_array().into_iter().flatten() {
                let (Some(seconds), Some(true)) = (cell["seconds"].as_f64(), cell["intact"].as_bool()) else {
                    comparison.broken += 1;
                    continue;
                };
                let variant = cell["variant"].as_str().unwrap_or("").to_string();
                let key = (scenario.to_string(), cell["params"].to_string(), variant);
                let (of, params) = cells.entry(key).or_default();
                *params = cell["params"].clone();
                match driver {
                    "lab" => of.lab.push(seconds),
                    "sim" => of.sim.push(seconds),
                    other => bail!("{name}: unknown driver `{other}`"),
                }
            }
        }
        let varied = varied(cells.iter().map(|((scenario, ..), (_, params))| (scenario.as_str(), params)));
        for ((scenario, _, variant), (cell, params)) in &cells {
            if cell.lab.is_empty() || cell.sim.is_empty() {
                comparison.alone += 1;
                continue;
            }
            let mut name = format!("{scenario} {variant}");
            for param in &varied[scenario.as_str()] {
                let value = &params[param];
                let value = value.as_str().map_or_else(|| value.to_string(), String::from);
                let _ = write!(name, " {param}={value}");
            }
            comparison.pairs.push(Pair {
                name,
                lab_s: quantile(&cell.lab, 0.5),
                sim_s: quantile(&cell.sim, 0.5),
                runs: [cell.lab.len(), cell.sim.len()],
            });
        }
        let worse = |p: &Pair| p.difference().abs();
        comparison.pairs.sort_by(|a, b| worse(b).total_cmp(&worse(a)).then_with(|| a.name.cmp(&b.name)));
        Ok(comparison)
    }

    /// How many cells differ by no more than this.
    #[must_use]
    pub fn within(&self, tolerance: f64) -> usize {
        self.pairs.iter().filter(|p| p.difference().abs() <= tolerance).count()
    }

    /// As a table, the worst cells first.
    #[must_use]
    pub fn table(&self, tolerance: f64, most: usize) -> String {
        let mut text = format!("{:>9} {:>9} {:>8}  {:>7}  cell\n", "lab s", "sim s", "differs", "runs");
        for p in self.pairs.iter().take(most) {
            let runs = format!("{}/{}", p.runs[0], p.runs[1]);
            let _ = writeln!(
                text,
                "{:>9.3} {:>9.3} {:>+7.1}%  {runs:>7}  {}",
                p.lab_s,
                p.sim_s,
                100.0 * p.difference(),
                p.name
            );
        }
        let _ = writeln!(
            text,
            "{} of {} cells within {:.0} % (medians); {} cells only one of them has run, {} runs not intact",
            self.within(tolerance),
            self.pairs.len(),
            100.0 * tolerance,
            self.alone,
            self.broken
        );
        text
    }
}

/// Names of the params that are not the same in all cells of a scenario.
fn varied<'a>(cells: impl Iterator<Item = (&'a str, &'a Value)>) -> BTreeMap<&'a str, Vec<&'a String>> {
    let mut values: BTreeMap<&str, BTreeMap<&String, Vec<&Value>>> = BTreeMap::new();
    for (scenario, params) in cells {
        for (name, value) in params.as_object().into_iter().flatten() {
            values.entry(scenario).or_default().entry(name).or_default().push(value);
        }
        values.entry(scenario).or_default();
    }
    let is_varied = |v: &[&Value]| v.iter().any(|x| *x != v[0]);
    let names = values.into_iter().map(|(scenario, of)| {
        (scenario, of.into_iter().filter(|(_, v)| is_varied(v)).map(|(name, _)| name).collect())
    });
    names.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(driver: &str, cells: &[(u64, f64, bool)]) -> (String, String) {
        let cells: Vec<_> = cells
            .iter()
            .map(|(size, seconds, intact)| {
                serde_json::json!({"params": {"size_bytes": size, "rtt_ms": 500}, "variant": "direct",
                    "seconds": seconds, "intact": intact})
            })
            .collect();
        let report = serde_json::json!({"scenario": "s", "driver": driver, "cells": cells});
        (driver.into(), report.to_string())
    }

    #[test]
    fn medians_are_compared_and_the_worst_stands_first() {
        let lab =
            file("lab", &[(1, 2.0, true), (1, 9.0, true), (1, 2.1, true), (2, 4.0, true), (3, 1.0, true)]);
        let sim = file("sim", &[(1, 2.1, true), (2, 5.0, true), (4, 1.0, true), (3, 1.0, false)]);
        let c = Comparison::of(&[lab, sim]).unwrap();
        let shown: Vec<_> = c.pairs.iter().map(|p| (p.name.as_str(), p.lab_s, p.sim_s)).collect();
        assert_eq!(shown, [("s direct size_bytes=2", 4.0, 5.0), ("s direct size_bytes=1", 2.1, 2.1)]);
        assert_eq!((c.alone, c.broken, c.within(0.05)), (2, 1, 1));
        assert!(c.table(0.05, 10).contains("+25.0%"));
    }

    #[test]
    fn five_milliseconds_of_a_short_cell_are_nothing() {
        let pair = |lab_s, sim_s| Pair { name: String::new(), lab_s, sim_s, runs: [1, 1] };
        assert_eq!(pair(0.012, 0.008).difference(), 0.0);
        assert!(pair(0.012, 0.019).difference() > 0.5);
    }

    #[test]
    fn what_is_no_result_is_said() {
        let error = Comparison::of(&[("x.json".into(), "{}".into())]).unwrap_err();
        assert!(error.to_string().contains("x.json"));
    }
}
