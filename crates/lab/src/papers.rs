//! What papers measured beside what we did, figure by figure.

use std::collections::BTreeSet;

use crate::expect::figure;
use crate::report::{CellReport, Report};
use crate::table::{align, heading, param};

/// A paper's figure and ours of the same name.
pub(crate) struct Pair<'a> {
    /// Its table.
    pub(crate) from: &'a str,
    /// Its name.
    pub(crate) name: &'a str,
    /// Ours; `None` where this run has none.
    pub(crate) ours: Option<f64>,
    /// The paper's.
    pub(crate) paper: f64,
}

/// Every pair of a run.
pub(crate) fn pairs(cell: &CellReport) -> impl Iterator<Item = Pair<'_>> {
    cell.papers.iter().flat_map(move |of| {
        of.figures.iter().map(move |(name, paper)| Pair {
            from: &of.from,
            name,
            ours: figure(cell, name),
            paper: *paper,
        })
    })
}

/// A figure as people read it: rates in Mbit/s.
pub(crate) fn text(name: &str, value: f64) -> String {
    match name {
        name if name.ends_with("_bps") => format!("{:.4}", value / 1e6),
        name if name.ends_with("seconds") => format!("{value:.3}"),
        _ => format!("{value:.4}"),
    }
}

/// A figure's name as people read it: `flow goodput, Mbit/s`.
pub(crate) fn title(name: &str) -> String {
    let (name, unit) = name.strip_suffix("_bps").map_or((name, ""), |name| (name, ", Mbit/s"));
    let (name, clock) =
        name.strip_prefix("source_").map_or((name, ""), |name| (name, ", by the source's clock"));
    let (name, set) = [("high_", "set H: "), ("low_", "set L: ")]
        .iter()
        .find_map(|(prefix, set)| Some((name.strip_prefix(prefix)?, *set)))
        .unwrap_or((name, ""));
    format!("{set}{}{unit}{clock}", name.replace('_', " "))
}

/// The clocks, and a table of the figures that the main table has no column for. Empty where there
/// is nothing of it.
pub(crate) fn beside(report: &Report, varied: &[String]) -> String {
    let mut text = String::new();
    if let Some(clocks) = &report.clocks {
        for (whose, clock) in clocks.lines() {
            text += &format!("\n{whose}: {clock}");
        }
        text.push('\n');
    }
    let cells: Vec<_> = report.cells.iter().filter(|c| further(c).next().is_some()).collect();
    if cells.is_empty() {
        return text;
    }
    let names: BTreeSet<&str> = cells.iter().flat_map(|c| further(c)).map(|p| p.name).collect();
    let mut header: Vec<String> = varied.iter().map(|name| heading(name)).collect();
    header.push("variant".into());
    header.extend((1..=names.len()).flat_map(|n| [format!("({n})"), "paper".into()]));
    header.push("from".into());
    let mut rows = vec![header];
    for cell in cells {
        for of in &cell.papers {
            let own: Vec<_> = further(cell).filter(|p| p.from == of.from).collect();
            if own.is_empty() {
                continue;
            }
            let mut row: Vec<String> = varied.iter().map(|name| param(cell, name)).collect();
            row.push(cell.variant.clone());
            for name in &names {
                let pair = own.iter().find(|p| p.name == *name);
                let shown = |value: Option<f64>| value.map_or("-".into(), |v| self::text(name, v));
                row.extend([shown(pair.and_then(|p| p.ours)), shown(pair.map(|p| p.paper))]);
            }
            row.push(of.from.clone());
            rows.push(row);
        }
    }
    text += "\nBeside the papers:\n";
    for (n, name) in names.iter().enumerate() {
        text += &format!("  ({}) {}\n", n + 1, title(name));
    }
    text += &align(&rows, varied.len() + 1);
    text
}

/// Pairs beyond the seconds of the first table that has some: these stand in the main table.
fn further(cell: &CellReport) -> impl Iterator<Item = Pair<'_>> {
    let shown = cell.papers.iter().find(|p| p.figures.contains_key("seconds")).map(|p| p.from.as_str());
    pairs(cell).filter(move |p| p.name != "seconds" || Some(p.from) != shown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Clock;
    use crate::scenario::Clocks;

    fn report() -> Report {
        let cell = serde_json::json!({
            "params": { "flows": 40 }, "variant": "farlink", "repeat": 0, "seed": 1, "seconds": 2.0, "goodput_bps": 1e6,
            "limit_seconds": 1.0, "ratio_to_limit": 2.0, "intact": true, "paper_seconds": 3.0,
            "papers": [
                { "from": "table 1", "figures": { "seconds": 3.0, "source_flow_goodput_bps": 124_400.0 } },
                { "from": "table 2", "figures": { "seconds": 3.5, "pages_per_s": 7.0 } }],
            "metrics": { "source_flow_goodput_bps": 130_000.0 } });
        Report {
            cells: vec![serde_json::from_value(cell).unwrap()],
            clocks: Some(Clocks { ours: Clock::Request, paper: Some(Clock::Source), note: "DBS".into() }),
            ..Report::default()
        }
    }

    #[test]
    fn the_papers_figures_and_clocks_stand_beside_ours() {
        let text = crate::table::render(&report());
        for part in ["clock: from the request", "clock of the paper: from the source's start", "; DBS"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let rows: Vec<Vec<&str>> = text.lines().map(|l| l.split_whitespace().collect()).collect();
        // Names in their order: pages, seconds, the rate of a flow.
        assert!(
            rows.contains(&vec!["farlink", "-", "-", "-", "-", "0.1300", "0.1244", "table", "1"]),
            "{text}"
        );
        assert!(
            rows.contains(&vec!["farlink", "-", "7.0000", "2.000", "3.500", "-", "-", "table", "2"]),
            "{text}"
        );
        assert!(text.contains("flow goodput, Mbit/s, by the source's clock"), "{text}");
    }

    #[test]
    fn a_run_without_papers_has_no_such_table() {
        let mut report = report();
        report.cells[0].papers.clear();
        report.clocks = None;
        assert_eq!(beside(&report, &[]), "");
    }
}
