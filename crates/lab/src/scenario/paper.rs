//! What papers measured, and the cells that it stands beside.

use std::collections::BTreeMap;

use anyhow::{Result, bail, ensure};
use serde::{Deserialize, Serialize};

use super::Cell;
use super::cells::conditions;
use crate::limit::Clock;

/// Figures of a paper and the cells that they belong to.
#[derive(Clone, Debug, Deserialize)]
pub struct Paper {
    /// Where they stand, e.g. `table 5.9`.
    #[serde(default)]
    pub from: String,
    /// Seconds.
    #[serde(default)]
    pub seconds: Option<f64>,
    /// Other figures, by the names and in the units of `metrics`.
    #[serde(default)]
    pub metrics: BTreeMap<String, f64>,
    /// Params and `variant` of the cells.
    #[serde(flatten)]
    pub of: toml::Table,
}

/// What one table of a paper has for a cell.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Figures {
    /// Where it stands.
    pub from: String,
    /// By the names of `metrics`, and `seconds`.
    pub figures: BTreeMap<String, f64>,
}

/// When the clocks of a scenario start.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Clocks {
    /// That of `seconds`.
    pub ours: Clock,
    /// That of the paper's figures, where there are some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paper: Option<Clock>,
    /// What else is to be known of the paper's.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

impl Clocks {
    /// Both in words: whose it is, and when it starts and stops.
    #[must_use]
    pub fn lines(&self) -> Vec<(&'static str, String)> {
        let mut lines = vec![("clock", self.ours.text().to_string())];
        let paper = match (self.paper, self.note.is_empty()) {
            (None, true) => return lines,
            (None, false) => self.note.clone(),
            (Some(clock), true) => clock.text().into(),
            (Some(clock), false) => format!("{}; {}", clock.text(), self.note),
        };
        lines.push(("clock of the paper", paper));
        lines
    }
}

/// Puts every figure beside its cells. One that belongs to no cell is an error: it would be
/// compared with nothing, and nobody would see it.
pub(super) fn of_cells(papers: &[Paper], cells: &mut [Cell]) -> Result<()> {
    for paper in papers {
        let of = conditions(&paper.of);
        let own: BTreeMap<String, f64> = paper.figures().collect();
        ensure!(!own.is_empty(), "[[paper]] {of}: neither seconds nor metrics");
        ensure!(own.values().all(|v| v.is_finite()), "[[paper]] {of}: a figure is not a number");
        let mut beside = 0;
        for cell in cells.iter_mut().filter(|c| of.matches(&c.params, &c.variant)) {
            beside += 1;
            add(cell, &paper.from, &own)?;
        }
        ensure!(beside > 0, "[[paper]] {of}: no cell of this scenario has that");
    }
    for figures in cells.iter_mut().flat_map(|c| &mut c.papers) {
        add_jain(&mut figures.figures);
    }
    Ok(())
}

impl Paper {
    fn figures(&self) -> impl Iterator<Item = (String, f64)> + '_ {
        let seconds = self.seconds.map(|s| ("seconds".to_string(), s));
        seconds.into_iter().chain(self.metrics.iter().map(|(name, value)| (name.clone(), *value)))
    }
}

fn add(cell: &mut Cell, from: &str, own: &BTreeMap<String, f64>) -> Result<()> {
    let place = cell.papers.iter().position(|f| f.from == from).unwrap_or_else(|| {
        cell.papers.push(Figures { from: from.into(), figures: BTreeMap::new() });
        cell.papers.len() - 1
    });
    for (name, value) in own {
        if let Some(other) = cell.papers[place].figures.insert(name.clone(), *value) {
            let cell = crate::runner::name_of(cell);
            bail!("[[paper]] {from}: {cell} has two figures of {name}, {other} and {value}");
        }
    }
    Ok(())
}

/// Jain's index follows from mean m and standard deviation d: 1 / (1 + (d / m)^2).
fn add_jain(figures: &mut BTreeMap<String, f64>) {
    let mut indices = Vec::new();
    for (name, mean) in figures.iter().filter(|(_, mean)| **mean > 0.0) {
        let Some(head) = name.strip_suffix("flow_goodput_bps") else { continue };
        if let Some(deviation) = figures.get(&format!("{head}flow_goodput_deviation_bps")) {
            indices.push((format!("{head}jain"), 1.0 / (1.0 + (deviation / mean).powi(2))));
        }
    }
    for (name, index) in indices {
        figures.entry(name).or_insert(index);
    }
}

#[cfg(test)]
mod tests {
    use crate::scenario::Scenario;

    fn scenario(papers: &str) -> anyhow::Result<Scenario> {
        Scenario::parse(&format!(
            "name = 't'\ntitle = 't'\nkind = 'transfer'\nclock = 'request'\npaper_clock = 'source'\n{papers}\n\
             [[axis]]\nname = 'flows'\nvalues = [10, 20]\n\
             [[variant]]\nname = 'direct'\nhosts = 'legacy'\ngateways = 0\n[[variant]]\nname = 'farlink'\n"
        ))
    }

    #[test]
    fn figures_of_any_name_stand_at_their_cells_by_table() {
        let papers = "paper = [\n\
            { from = 'table 1', metrics = { source_flow_goodput_bps = 200, source_flow_goodput_deviation_bps = 100 }, \
              flows = 10, variant = 'farlink' },\n\
            { from = 'table 2', seconds = 1.5, flows = [10, 20], variant = 'farlink' },\n\
            { from = 'table 1', seconds = 2.5, flows = 10, variant = 'farlink' },\n]";
        let scenario = scenario(papers).unwrap();
        let cells = scenario.cells().unwrap();
        let is = |variant: &'static str, flows: u64| {
            move |c: &&crate::scenario::Cell| c.variant == variant && c.number("flows", 0) == flows
        };
        let [first, second] = &cells.iter().find(is("farlink", 10)).unwrap().papers[..] else {
            panic!("two")
        };
        assert_eq!((first.from.as_str(), second.from.as_str()), ("table 1", "table 2"));
        assert_eq!(first.figures["source_flow_goodput_bps"], 200.0);
        assert_eq!(first.figures["seconds"], 2.5);
        assert!((first.figures["source_jain"] - 0.8).abs() < 1e-12, "from mean and deviation");
        assert_eq!(second.figures.len(), 1);
        assert_eq!(cells.iter().find(is("farlink", 20)).unwrap().papers.len(), 1);
        assert!(cells.iter().filter(|c| c.variant == "direct").all(|c| c.papers.is_empty()));
        let lines = scenario.clocks().unwrap().lines();
        assert!(lines[0].1.contains("from the request"), "{lines:?}");
        assert!(lines[1].1.contains("the source's start"), "{lines:?}");
    }

    #[test]
    fn a_figure_that_stands_beside_nothing_or_beside_another_is_refused() {
        for (paper, why) in [
            ("{ seconds = 1.0, flows = 30 }", "no cell"),
            ("{ seconds = 1.0, flow = 10 }", "no cell"),
            ("{ flows = 10 }", "neither seconds nor metrics"),
            ("{ metrics = {}, flows = 10 }", "neither seconds nor metrics"),
            ("{ seconds = nan, flows = 10 }", "not a number"),
            (
                "{ from = 'a', seconds = 1.0, flows = 10 }, { from = 'a', seconds = 2.0, flows = 10 }",
                "two figures",
            ),
        ] {
            let error = scenario(&format!("paper = [{paper}]")).expect_err(paper);
            assert!(format!("{error:#}").contains(why), "{paper}: {error:#}");
        }
    }

    /// docs/papers.md: with pings in their way transfers of 10 KB cannot be faster than without,
    /// and in the thesis they are.
    #[test]
    fn the_thesis_has_higher_rates_with_congestion_than_without() {
        let rate = |scenario: &str, flows: u64, iw: u64| {
            let cells = Scenario::find(scenario).unwrap().cells().unwrap();
            let is_meant = |c: &&crate::scenario::Cell| {
                c.variant == "farlink-auto"
                    && [c.number("flows", 0), c.number("iw", 0), c.number("size_bytes", 0)]
                        == [flows, iw, 10_240]
                    && !c.papers.is_empty()
            };
            cells.iter().find(is_meant).unwrap().papers[0].figures["source_flow_goodput_bps"]
        };
        for (flows, iw) in [(10, 16), (20, 16), (30, 4)] {
            assert!(
                rate("thesis-congested", flows, iw) > rate("thesis-parallel", flows, iw),
                "{flows} flows"
            );
        }
    }
}
