//! Judges the results of a run by what the scenario file expects of its cells.

mod arrivals;
mod figures;
mod means;
mod text;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use anyhow::{Context, Result, bail};

pub use figures::{DERIVED, figure};
use means::Other;
pub use text::{mark, render};

use crate::report::{CellReport, Report};
use crate::scenario::{Across, Cell, Driver, Expect, Params, Runs, Scenario};

/// So much later is nothing: kernels, programs and the cables of a simulated network take that.
const ALLOWANCE_S: f64 = 0.005;
/// So many of a hundred cells that are compared by means may be exceptions.
const EXCEPTED_PERCENT_MAX: usize = 3;

/// What became of the expectations of a scenario.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Judgement {
    /// Each bound of each cell that ran.
    #[serde(default)]
    pub verdicts: Vec<Verdict>,
    /// Expectations of which nothing was judged, and why.
    #[serde(default)]
    pub not_judged: Vec<NotJudged>,
}

/// Whether one bound holds in one cell.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Verdict {
    /// Number of the expectation in the file, from 1.
    pub expectation: usize,
    /// Why it is expected.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// The variant of the cell.
    pub variant: String,
    /// What distinguishes the cell from others of the scenario; `null` where it has no such param.
    pub params: Params,
    /// What is judged, e.g. `ratio_to_limit`.
    pub figure: String,
    /// `<=` or `>=`.
    pub relation: String,
    /// The figure, of all runs of the cell; `null` where there is none, or where it never came to
    /// its end.
    pub value: Option<f64>,
    /// The bound; `null` where the cell compared with never came to its end.
    pub bound: Option<f64>,
    /// How many runs there were.
    pub runs: usize,
    /// Whether it holds.
    pub holds: bool,
    /// The mean over that of the better of the others, where cells are compared by means.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// It holds as an exception only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub excepted: bool,
    /// What else there is to say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// An expectation of which nothing was judged.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct NotJudged {
    /// Number of the expectation in the file, from 1; 0: all of them.
    pub expectation: usize,
    /// Of which cells it speaks.
    pub of: String,
    /// Why it was not judged.
    pub reason: String,
}

impl Judgement {
    /// Nothing was judged, for this reason.
    #[must_use]
    pub fn none(reason: &str) -> Self {
        let all = NotJudged { expectation: 0, of: "all cells".into(), reason: reason.into() };
        Self { verdicts: Vec::new(), not_judged: vec![all] }
    }

    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.verdicts.is_empty() && self.not_judged.is_empty()
    }

    /// How many bounds are missed.
    #[must_use]
    pub fn missed(&self) -> usize {
        self.verdicts.iter().filter(|v| !v.holds).count()
    }
}

/// The expectations of a scenario for one driver.
#[derive(Clone, Copy, Debug)]
pub struct Judge<'a> {
    scenario: &'a Scenario,
    /// All cells of the scenario, selected or not.
    cells: &'a [Cell],
    driver: Driver,
}

impl<'a> Judge<'a> {
    /// Reads them. An error: one that speaks of no cell of the scenario, or can otherwise not fail.
    pub fn new(scenario: &'a Scenario, cells: &'a [Cell], driver: Driver) -> Result<Self> {
        let judge = Self { scenario, cells, driver };
        for (expect, number) in scenario.expect.iter().zip(1..) {
            judge.check(expect).with_context(|| format!("expectation {number}: {}", expect.describe()))?;
        }
        judge.check_exceptions()?;
        Ok(judge)
    }

    /// That exceptions are of cells that are compared by means, and of few of these.
    fn check_exceptions(&self) -> Result<()> {
        let compared = |cell: &&Cell| {
            let by_means = self.scenario.expect.iter().filter(|e| e.runs == Runs::Means);
            by_means.into_iter().any(|e| e.of.matches(&cell.params, &cell.variant))
        };
        let of_means: Vec<Cell> = self.cells.iter().filter(compared).cloned().collect();
        for except in &self.scenario.except {
            except.check(&of_means).with_context(|| format!("[[except]] of {}", except.of))?;
        }
        let is_excepted =
            |c: &&Cell| self.scenario.except.iter().any(|e| e.of.matches(&c.params, &c.variant));
        let excepted = of_means.iter().filter(is_excepted).count();
        if excepted * 100 > of_means.len() * EXCEPTED_PERCENT_MAX {
            bail!(
                "[[except]]: {excepted} of {} cells that are compared by means, and {EXCEPTED_PERCENT_MAX} % may be",
                of_means.len()
            );
        }
        Ok(())
    }

    fn check(&self, expect: &Expect) -> Result<()> {
        expect.check(self.cells)?;
        let Some(other) = &expect.not_slower_than else { return Ok(()) };
        if expect.runs == Runs::Means {
            other.check(self.cells).context("not_slower_than")?;
        }
        for axis in &self.scenario.axis {
            // A setting that is empty shows in no param; that is a value, too.
            let mut values: Vec<_> = self.cells.iter().map(|c| c.params.get(&axis.name)).collect();
            values.sort_by_key(|v| v.map(ToString::to_string));
            values.dedup();
            if values.len() < axis.values.len() {
                bail!(
                    "cells cannot be compared: params do not tell the values of the axis {} apart",
                    axis.name
                );
            }
        }
        for cell in expect.cells(self.cells) {
            if self.others(expect, cell).next().is_none() {
                bail!("nothing with {other} stands beside {} {}", cell.variant, json_of(&cell.params));
            }
        }
        Ok(())
    }

    /// The cells that this one is compared with: the same combination of the axes' values, and over
    /// the same IP where there are such cells.
    fn others<'b>(&'b self, expect: &'b Expect, cell: &'b Cell) -> impl Iterator<Item = &'b Cell> {
        let beside: Vec<_> = self.of_the_grid(expect, cell).collect();
        let is_like = move |c: &&Cell| c.params.get("ip") == cell.params.get("ip");
        let any_like = beside.iter().any(is_like);
        beside.into_iter().filter(move |c| !any_like || is_like(c))
    }

    /// Those of hosts alone on the link as it was declared, of the same hosts.
    fn as_declared<'b>(&'b self, expect: &'b Expect, cell: &'b Cell) -> impl Iterator<Item = &'b Cell> {
        let axes = &self.scenario.axis;
        let is_beside =
            move |c: &&Cell| axes.iter().all(|a| c.params.get(&a.name) == cell.params.get(&a.name));
        let variant = expect.or_variant.get(&cell.variant);
        let hosts = expect.not_slower_than.as_ref();
        let is_meant = move |c: &&Cell| {
            variant == Some(&c.variant) && hosts.is_some_and(|hosts| hosts.matches_params(&c.params))
        };
        self.cells.iter().filter(is_meant).filter(is_beside)
    }

    fn of_the_grid<'b>(&'b self, expect: &'b Expect, cell: &'b Cell) -> impl Iterator<Item = &'b Cell> {
        let axes = &self.scenario.axis;
        let is_beside =
            move |c: &&Cell| axes.iter().all(|a| c.params.get(&a.name) == cell.params.get(&a.name));
        let other = expect.not_slower_than.as_ref();
        let is_meant = move |c: &&Cell| other.is_some_and(|o| o.matches(&c.params, &c.variant));
        self.cells.iter().filter(is_meant).filter(is_beside)
    }

    /// What a report says to them.
    #[must_use]
    pub fn judge(&self, report: &Report) -> Judgement {
        let mut judgement = Judgement::default();
        let shown = shown_params(self.cells);
        for (expect, number) in self.scenario.expect.iter().zip(1..) {
            let mut not_judged = |reason: String| {
                judgement.not_judged.push(NotJudged { expectation: number, of: expect.describe(), reason });
            };
            if let Some(driver) = expect.driver.filter(|d| *d != self.driver) {
                not_judged(for_other(driver));
                continue;
            }
            let (mut verdicts, mut reason) = (Vec::new(), None);
            // The first that says more than that nobody asked for the cells.
            if expect.across == Across::Mean {
                for (variant, cells) in by_variant(expect.cells(self.cells)) {
                    let judged = judge_mean(expect, (variant, &cells), report, &mut verdicts);
                    reason = reason.or(judged.err().flatten());
                }
            } else {
                for cell in expect.cells(self.cells) {
                    let judged = self.judge_cell(expect, cell, report, &mut verdicts);
                    reason = reason.or(judged.err().flatten());
                }
            }
            for verdict in &mut verdicts {
                verdict.expectation = number;
                verdict.why.clone_from(&expect.why);
                let of = |name: &String| verdict.params.get(name).cloned().unwrap_or(Value::Null);
                verdict.params = shown.iter().map(|name| (name.clone(), of(name))).collect();
            }
            if verdicts.is_empty() {
                not_judged(reason.unwrap_or_else(|| "none of its cells was selected".into()));
            }
            judgement.verdicts.extend(verdicts);
        }
        judgement
    }

    /// The verdicts of one cell; an error: why there is none, unless the cell was not asked for.
    fn judge_cell(
        &self,
        expect: &Expect,
        cell: &Cell,
        report: &Report,
        verdicts: &mut Vec<Verdict>,
    ) -> std::result::Result<(), Option<String>> {
        let runs = runs_of(report, cell);
        if runs.is_empty() {
            let skipped =
                report.skipped.iter().find(|s| s.params == cell.params && s.variant == cell.variant);
            return Err(skipped.map(|s| format!("skipped: {}", s.reason)));
        }
        if runs.len() < expect.runs_min as usize {
            return Err(Some(format!("{} runs of a cell, and it needs {}", runs.len(), expect.runs_min)));
        }
        let bounds = [("<=", &expect.at_most), (">=", &expect.at_least)];
        for (relation, bounds) in bounds {
            for (name, bound) in bounds {
                verdicts.push(of_bound(expect, cell, &runs, name, relation, *bound));
            }
        }
        if expect.runs == Runs::Means {
            let others: Vec<_> =
                self.others(expect, cell).map(|c| Other::new(c, runs_of(report, c))).collect();
            if !others.iter().all(Other::has_run) {
                return Err(Some("the cells that it is compared with did not all run".into()));
            }
            let twins: Vec<_> =
                self.as_declared(expect, cell).map(|c| Other::new(c, runs_of(report, c))).collect();
            let twins = if twins.iter().all(Other::has_run) { twins } else { Vec::new() };
            verdicts.extend(means::compared(expect, &self.scenario.except, (cell, &runs), (&others, &twins)));
        } else if expect.not_slower_than.is_some() {
            let others: Vec<_> = self.others(expect, cell).flat_map(|c| runs_of(report, c)).collect();
            if others.is_empty() {
                return Err(Some("the cells that it is compared with did not run".into()));
            }
            for measure in &expect.measures {
                verdicts.push(compared(expect, cell, &runs, &others, measure));
            }
        }
        Ok(())
    }
}

/// Why an expectation for this driver is not judged under the other.
fn for_other(driver: Driver) -> String {
    format!("for `{driver} run` only")
}

fn runs_of<'a>(report: &'a Report, cell: &Cell) -> Vec<&'a CellReport> {
    report.cells.iter().filter(|c| c.variant == cell.variant && c.params == cell.params).collect()
}

/// Cells of each variant, in the order of the first.
fn by_variant<'a>(cells: impl Iterator<Item = &'a Cell>) -> Vec<(&'a str, Vec<&'a Cell>)> {
    let mut variants: Vec<(&str, Vec<&Cell>)> = Vec::new();
    for cell in cells {
        match variants.iter_mut().find(|(name, _)| *name == cell.variant) {
            Some((_, all)) => all.push(cell),
            None => variants.push((&cell.variant, vec![cell])),
        }
    }
    variants
}

/// The verdicts on the mean of all cells of a variant; an error as of [`Judge::judge_cell`].
fn judge_mean(
    expect: &Expect,
    (variant, cells): (&str, &[&Cell]),
    report: &Report,
    verdicts: &mut Vec<Verdict>,
) -> std::result::Result<(), Option<String>> {
    let runs: Vec<_> = cells.iter().map(|cell| runs_of(report, cell)).collect();
    let ran = runs.iter().filter(|runs| runs.len() >= expect.runs_min as usize).count();
    if ran < cells.len() {
        let why = format!("{ran} of the {} cells of {variant} ran, and the mean is of all", cells.len());
        return Err((ran > 0).then_some(why));
    }
    let bounds = [("<=", &expect.at_most), (">=", &expect.at_least)];
    for (relation, bounds) in bounds {
        for (name, bound) in bounds {
            let each: Vec<Verdict> = cells
                .iter()
                .zip(&runs)
                .map(|(cell, runs)| of_bound(expect, cell, runs, name, relation, *bound))
                .collect();
            let values: Option<Vec<f64>> = each.iter().map(|v| v.value).collect();
            let value = values.map(|values| values.iter().sum::<f64>() / values.len() as f64);
            let holds = value.is_some_and(|v| if relation == "<=" { v <= *bound } else { v >= *bound });
            let missing = each.iter().find(|v| v.value.is_none()).map(|v| v.note.clone());
            verdicts.push(Verdict {
                variant: variant.into(),
                params: Params::new(),
                value,
                runs: runs.iter().map(Vec::len).sum(),
                holds,
                note: missing.unwrap_or_else(|| format!("mean of {} cells", cells.len())),
                ..each.into_iter().next().unwrap_or_else(|| verdict_of(cells[0], name, relation, 0))
            });
        }
    }
    Ok(())
}

fn of_bound(
    expect: &Expect,
    cell: &Cell,
    runs: &[&CellReport],
    name: &str,
    relation: &str,
    bound: f64,
) -> Verdict {
    let values: Option<Vec<f64>> = runs.iter().map(|run| figure(run, name)).collect();
    let is_largest = relation == "<=";
    let value = values.map(|values| one_of(&values, expect.runs, is_largest));
    let holds = value.is_some_and(|v| if is_largest { v <= bound } else { v >= bound });
    let mut verdict = verdict_of(cell, name, relation, runs.len());
    if value.is_none() {
        let run = runs.iter().find(|run| figure(run, name).is_none());
        verdict.note = run.map_or(String::new(), |run| missing(run, name));
    }
    Verdict { value, bound: Some(bound), holds, ..verdict }
}

fn missing(run: &CellReport, name: &str) -> String {
    match run.failures.first() {
        Some(failure) => format!("not measured: {failure}"),
        None => format!("there is no `{name}`; there are {}", figures::names(run).join(" ")),
    }
}

/// Times of two cells. A run that broke off is slower than any other.
fn compared(
    expect: &Expect,
    cell: &Cell,
    runs: &[&CellReport],
    others: &[&CellReport],
    measure: &str,
) -> Verdict {
    let mut pairs: Vec<u64> = runs.iter().map(|run| run.seed).collect();
    pairs.retain(|seed| expect.runs != Runs::Paired || others.iter().any(|run| run.seed == *seed));
    let is_paired = |run: &&&CellReport| expect.runs != Runs::Paired || pairs.contains(&run.seed);
    let [runs, others] = [runs, others].map(|of| of.iter().filter(is_paired).copied().collect::<Vec<_>>());
    let (runs, others) = (runs.as_slice(), others.as_slice());
    let later = ALLOWANCE_S + later_s(expect, cell);
    if measure == arrivals::MEASURE {
        return latest(expect, cell, runs, others, later);
    }
    let time = |runs: &[&CellReport]| {
        let of = |run: &&CellReport| {
            if run.intact { figure(run, measure) } else { Some(f64::INFINITY) }
        };
        let times: Option<Vec<f64>> = runs.iter().map(of).collect();
        times.map(|times| one_of(&times, expect.runs, true))
    };
    let mut verdict = verdict_of(cell, measure, "<=", runs.len());
    let (Some(ours), Some(theirs)) = (time(runs), time(others)) else {
        let run = runs.iter().chain(others).find(|run| run.intact && figure(run, measure).is_none());
        verdict.note = run.map_or(String::new(), |run| missing(run, measure));
        return verdict;
    };
    let other = expect.not_slower_than.as_ref().map(ToString::to_string).unwrap_or_default();
    let bound = theirs * (1.0 + expect.tolerance) + later;
    verdict.note = format!("not slower than {other}, which took {theirs:.3}");
    Verdict { value: finite(ours), bound: finite(bound), holds: ours.is_finite() && ours <= bound, ..verdict }
}

/// What an expectation allows beside a share of the other's time and the usual allowance.
fn later_s(expect: &Expect, cell: &Cell) -> f64 {
    let round_trip_ms = cell.params.get("rtt_ms").and_then(Value::as_f64).unwrap_or(0.0);
    (expect.later_ms + expect.later_round_trips * round_trip_ms) / 1e3
}

/// How late the latest byte is, by when the same byte came in the cell compared with.
fn latest(expect: &Expect, cell: &Cell, runs: &[&CellReport], others: &[&CellReport], bound: f64) -> Verdict {
    let verdict = verdict_of(cell, arrivals::MEASURE, "<=", runs.len());
    let late: Option<Vec<f64>> =
        runs.iter().map(|run| arrivals::late_s(run, others, expect.tolerance)).collect();
    let Some(late) = late.map(|late| one_of(&late, expect.runs, true)) else {
        return Verdict { note: "arrivals are not told: watches_arrivals = true".into(), ..verdict };
    };
    let other = expect.not_slower_than.as_ref().map(ToString::to_string).unwrap_or_default();
    let note = format!("no byte so many seconds after it came with {other}");
    Verdict { value: finite(late), bound: Some(bound), holds: late <= bound, note, ..verdict }
}

fn finite(x: f64) -> Option<f64> {
    x.is_finite().then_some(x)
}

fn verdict_of(cell: &Cell, figure: &str, relation: &str, runs: usize) -> Verdict {
    Verdict {
        expectation: 0,
        why: String::new(),
        variant: cell.variant.clone(),
        params: cell.params.clone(),
        figure: figure.into(),
        relation: relation.into(),
        value: None,
        bound: None,
        runs,
        holds: false,
        ratio: None,
        excepted: false,
        note: String::new(),
    }
}

/// The value that stands for all runs. `is_largest`: large ones are bad.
fn one_of(values: &[f64], runs: Runs, is_largest: bool) -> f64 {
    if matches!(runs, Runs::Mean | Runs::Means | Runs::Paired) {
        return values.iter().sum::<f64>() / values.len() as f64;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    if !is_largest {
        sorted.reverse();
    }
    let share = match runs {
        Runs::Mean | Runs::Means | Runs::Paired | Runs::Median => 0.5,
        Runs::P90 => 0.9,
        Runs::Worst => 1.0,
    };
    // Of an even number the worse of the two in the middle.
    let at = (share * sorted.len() as f64).ceil().max(1.0) as usize
        - usize::from(share > 0.5 || sorted.len() % 2 == 1);
    sorted.get(at.min(sorted.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

/// Names of the params that are not the same in all cells of a scenario.
fn shown_params(cells: &[Cell]) -> Vec<String> {
    let mut names: Vec<&String> = cells.iter().flat_map(|c| c.params.keys()).collect();
    names.sort();
    names.dedup();
    let is_varied = |name: &&String| cells.iter().any(|c| c.params.get(*name) != cells[0].params.get(*name));
    names.into_iter().filter(is_varied).cloned().collect()
}

fn json_of(params: &Params) -> String {
    serde_json::to_string(params).unwrap_or_default()
}

#[cfg(test)]
mod tests;
