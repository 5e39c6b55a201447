//! What a scenario file says must hold of its cells, and which of them stand for the whole when
//! time is short.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use super::{Cell, Only};

/// What runs a scenario.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Driver {
    /// Network namespaces.
    Lab,
    /// Virtual time.
    Sim,
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lab => "lab",
            Self::Sim => "sim",
        })
    }
}

/// Which figure of a cell that was run several times is judged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Runs {
    /// The middle one.
    #[default]
    Median,
    /// The mean of all: of figures that have two modes, where chance decides in which one the
    /// middle falls.
    Mean,
    /// The one that nine of ten do not exceed (or, of what has to be large, do not fall below).
    P90,
    /// The worst one.
    Worst,
    /// The mean of all, with the noise of means allowed for, against the better of the cells
    /// compared with.
    Means,
    /// The mean of those whose seeds the cell compared with has, too.
    Paired,
}

impl fmt::Display for Runs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Median => "median",
            Self::Mean => "mean",
            Self::Means => "means",
            Self::P90 => "p90",
            Self::Worst => "worst",
            Self::Paired => "paired",
        })
    }
}

/// Whether a bound is each cell's, or that of all of them together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Across {
    /// It holds in each cell.
    #[default]
    Each,
    /// It holds for the mean of all cells of a variant, each of which counts once. Nothing is
    /// judged unless all of them ran.
    Mean,
}

/// What must hold of some cells: bounds of figures, by name, or a comparison with another variant.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// Why, in a few words.
    #[serde(default)]
    pub why: String,
    /// Of which cells: params and `variant`, each a value or a list of values. All cells if it is
    /// missing.
    #[serde(default)]
    pub of: Only,
    /// Under which driver; under both if it is missing.
    #[serde(default)]
    pub driver: Option<Driver>,
    /// Which of several runs counts.
    #[serde(default)]
    pub runs: Runs,
    /// Whether each cell is judged, or the mean of all.
    #[serde(default, rename = "cells")]
    pub across: Across,
    /// With fewer runs of a cell it is not judged.
    #[serde(default = "one")]
    pub runs_min: u32,
    /// Largest values.
    #[serde(default)]
    pub at_most: BTreeMap<String, f64>,
    /// Least values.
    #[serde(default)]
    pub at_least: BTreeMap<String, f64>,
    /// Params and `variant` of cells that differ from these in nothing that an axis varies.
    #[serde(default)]
    pub not_slower_than: Option<Only>,
    /// The share of the other's time that this one may be slower by, beside 5 ms.
    #[serde(default = "two_percent")]
    pub tolerance: f64,
    /// So many milliseconds may be added, too.
    #[serde(default)]
    pub later_ms: f64,
    /// And so many round trips of the link, by the param `rtt_ms`.
    #[serde(default)]
    pub later_round_trips: f64,
    /// And so many packets of the link's MTU, at its rate in the direction of the data.
    #[serde(default)]
    pub later_packets: f64,
    /// Of what is compared in bytes, so many more for each connection.
    #[serde(default)]
    pub more_bytes: f64,
    /// The largest ratio of two means, whatever their noise.
    #[serde(default)]
    pub never_above: Option<f64>,
    /// The largest ratio of second-worst runs.
    #[serde(default)]
    pub second_worst: Option<f64>,
    /// By variant, the variant of hosts alone on a link as it was declared: where the comparison
    /// misses, being no slower than these suffices, and spending no more.
    #[serde(default)]
    pub or_variant: BTreeMap<String, String>,
    /// The share of their time and bytes that may be added.
    #[serde(default = "five_percent")]
    pub or_tolerance: f64,
    /// Bounds of which one suffices in place of the comparison.
    #[serde(default)]
    pub or_at_most: BTreeMap<String, f64>,
    /// The figures that are compared, in seconds; `arrivals`: of all bytes the one that is latest.
    #[serde(default = "seconds")]
    pub measures: Vec<String>,
}

fn one() -> u32 {
    1
}

fn five_percent() -> f64 {
    0.05
}

fn two_percent() -> f64 {
    0.02
}

fn seconds() -> Vec<String> {
    vec!["seconds".into()]
}

/// Cells that may be slower than the better of those that they are compared with, by means.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Except {
    /// Which cells.
    pub of: Only,
    /// Why they may, with the bound that was computed.
    pub why: String,
    /// The largest ratio of mean times, beside what the expectation adds; `None`: as the others.
    #[serde(default)]
    pub at_most: Option<f64>,
    /// The same of what is compared in bytes.
    #[serde(default)]
    pub bytes_at_most: Option<f64>,
}

impl Except {
    /// That it is of some of these cells, and says why and how much.
    pub(crate) fn check(&self, cells: &[Cell]) -> Result<()> {
        if self.why.trim().is_empty() {
            bail!("it does not say why");
        }
        let bounds = [("at_most", self.at_most), ("bytes_at_most", self.bytes_at_most)];
        if bounds.iter().all(|(_, bound)| bound.is_none()) {
            bail!("neither at_most nor bytes_at_most");
        }
        for (name, bound) in bounds {
            if let Some(bound) = bound.filter(|bound| !bound.is_finite() || *bound <= 1.0) {
                bail!("{name} = {bound}: a number above 1 expected");
            }
        }
        self.of.check(cells)
    }
}

impl Expect {
    /// In words, without its cells: for messages.
    #[must_use]
    pub fn describe(&self) -> String {
        let of = self.of.to_string();
        let of = if of.is_empty() { "all cells".into() } else { of };
        if self.why.is_empty() { of } else { format!("{of} ({})", self.why) }
    }

    /// The cells of which it speaks.
    pub fn cells<'a>(&'a self, cells: &'a [Cell]) -> impl Iterator<Item = &'a Cell> {
        cells.iter().filter(|c| self.of.matches(&c.params, &c.variant))
    }

    /// That it can fail: it has a bound, and each value that it names occurs.
    pub(crate) fn check(&self, cells: &[Cell]) -> Result<()> {
        if self.at_most.is_empty() && self.at_least.is_empty() && self.not_slower_than.is_none() {
            bail!("neither at_most, at_least nor not_slower_than");
        }
        if self.not_slower_than.is_some() && self.measures.is_empty() {
            bail!("not_slower_than without measures");
        }
        let later =
            [&self.tolerance, &self.later_ms, &self.later_round_trips, &self.later_packets, &self.more_bytes];
        let later = later.into_iter().chain(&self.never_above).chain(&self.second_worst);
        let later = later.chain(self.or_at_most.values());
        let bounds = self.at_most.values().chain(self.at_least.values()).chain(later);
        if bounds.copied().any(|b| !b.is_finite()) {
            bail!("a bound is a finite number");
        }
        let is_comparison_alone =
            self.not_slower_than.is_some() && self.at_most.is_empty() && self.at_least.is_empty();
        let has_more = self.never_above.is_some()
            || self.second_worst.is_some()
            || !self.or_at_most.is_empty()
            || self.later_packets != 0.0
            || self.more_bytes != 0.0;
        if has_more && self.runs != Runs::Means {
            bail!(
                "later_packets, more_bytes, never_above, second_worst and or_at_most need runs = \"means\""
            );
        }
        if matches!(self.runs, Runs::Paired | Runs::Means) && !is_comparison_alone {
            bail!("runs = \"{}\" needs not_slower_than, and no other bound beside it", self.runs);
        }
        if self.across == Across::Mean && self.not_slower_than.is_some() {
            bail!("cells = \"mean\" is for at_most and at_least, not for not_slower_than");
        }
        if self.runs_min == 0 {
            bail!("runs_min = 0: it is 1 at least");
        }
        self.of.check(cells)
    }
}

/// Cells of a scenario that are run under a name: `--subset NAME`. Several of one name are joined.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subset {
    /// Its name.
    pub name: String,
    /// Which cells; all if it is missing.
    #[serde(default)]
    pub of: Only,
    /// Under which driver; under both if it is missing.
    #[serde(default)]
    pub driver: Option<Driver>,
    /// How often each cell is run at least.
    #[serde(default = "one")]
    pub repeat: u32,
}

/// Which cells are asked for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Conditions.
    pub only: &'a Only,
    /// Name of a subset, if any.
    pub subset: Option<&'a str>,
    /// What runs them.
    pub driver: Driver,
    /// How often each is run at least.
    pub repeat: u32,
}

impl super::Scenario {
    /// The cells that are asked for, and how often each is run.
    pub fn select(&self, cells: Vec<Cell>, wanted: &Wanted<'_>) -> Result<Vec<(Cell, u32)>> {
        let repeat = wanted.repeat.max(1);
        let Some(name) = wanted.subset else {
            let cells = wanted.only.select(cells)?;
            return Ok(cells.into_iter().map(|c| (c, repeat)).collect());
        };
        let is_meant = |s: &&Subset| s.name == name && s.driver.is_none_or(|d| d == wanted.driver);
        let parts: Vec<_> = self.subset.iter().filter(is_meant).collect();
        if parts.is_empty() {
            let names: Vec<_> = self.subset.iter().map(|s| s.name.as_str()).collect();
            bail!(
                "scenario `{}` has no subset `{name}` for `{}`; it has: {}",
                self.name,
                wanted.driver,
                names.join(" ")
            );
        }
        for part in &parts {
            part.of.check(&cells)?;
        }
        let often = |cell: &Cell| {
            let of = parts.iter().filter(|p| p.of.matches(&cell.params, &cell.variant));
            of.map(|p| p.repeat.max(repeat)).max()
        };
        let cells = wanted.only.select(cells)?;
        let chosen: Vec<_> = cells.into_iter().filter_map(|c| often(&c).map(|n| (c, n))).collect();
        if chosen.is_empty() {
            bail!("--only leaves no cell of the subset `{name}`");
        }
        Ok(chosen)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Scenario;
    use super::*;

    const TEXT: &str = r#"
        name = "t"
        title = "t"
        kind = "transfer"
        [[axis]]
        name = "size_bytes"
        values = [1000, 2000]
        [[variant]]
        name = "direct"
        gateways = 0
        [[variant]]
        name = "farlink"
    "#;

    fn error(more: &str) -> String {
        let scenario = Scenario::parse(&format!("{TEXT}\n{more}"));
        let error = match scenario {
            Err(error) => error,
            Ok(scenario) => {
                let cells = scenario.cells().unwrap();
                let checked = scenario.expect.iter().try_for_each(|e| e.check(&cells));
                checked.expect_err(more)
            }
        };
        format!("{error:#}")
    }

    #[test]
    fn an_expectation_that_cannot_fail_is_refused() {
        for (text, reason) in [
            ("[[expect]]\nof = { variant = 'farlink' }", "at_most"),
            ("[[expect]]\nof = { variant = 'farlnk' }\nat_most = { seconds = 1 }", "farlnk"),
            ("[[expect]]\nof = { sise = 1 }\nat_most = { seconds = 1 }", "sise"),
            ("[[expect]]\nof = { size_bytes = [1000, 3000] }\nat_most = { seconds = 1 }", "3000"),
            ("[[expect]]\nof = { size_bytes = [] }\nat_most = { seconds = 1 }", "size_bytes"),
            ("[[expect]]\nat_most = { seconds = nan }", "finite"),
            ("[[expect]]\nat_most = { seconds = 1 }\nruns = 'paired'", "not_slower_than"),
            (
                "[[expect]]\nof = { variant = 'farlink' }\nnot_slower_than = { variant = 'direct' }\ncells = 'mean'",
                "at_most",
            ),
            ("[[expect]]\nat_most = { seconds = 1 }\nruns = 'means'", "not_slower_than"),
            (
                "[[expect]]\nof = { variant = 'farlink' }\nnot_slower_than = { variant = 'direct' }\nnever_above = 1.1",
                "need runs = \"means\"",
            ),
            ("[[expect]]\nat_moost = { seconds = 1 }", "at_moost"),
            ("[[expect]]\nat_most = { seconds = 1 }\ndriver = 'simulator'", "driver"),
            ("[[subset]]\nname = 'test'\nrepeats = 2", "repeats"),
        ] {
            let error = error(text);
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn subsets_of_a_name_are_joined_and_say_how_often() {
        let text = format!(
            "{TEXT}
            [[subset]]
            name = 'test'
            of = {{ size_bytes = 1000 }}
            [[subset]]
            name = 'test'
            of = {{ variant = 'farlink' }}
            repeat = 5
            [[subset]]
            name = 'small'
            driver = 'lab'"
        );
        let scenario = Scenario::parse(&text).unwrap();
        let select = |subset: &str, only: &str| {
            let only = Only::parse(only).unwrap();
            let wanted = Wanted { only: &only, subset: Some(subset), driver: Driver::Sim, repeat: 1 };
            scenario.select(scenario.cells().unwrap(), &wanted)
        };
        let cells = select("test", "").unwrap();
        let shown: Vec<_> =
            cells.iter().map(|(c, n)| (c.number("size_bytes", 0), c.variant.as_str(), *n)).collect();
        assert_eq!(shown, [(1000, "direct", 1), (1000, "farlink", 5), (2000, "farlink", 5)]);
        assert_eq!(select("test", "variant=direct").unwrap().len(), 1);
        assert!(select("test", "variant=direct,size_bytes=2000").is_err());
        assert!(select("small", "").unwrap_err().to_string().contains("no subset"));
    }
}
