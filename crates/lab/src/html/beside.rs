//! The papers' figures beside ours, and the clocks by which both were taken.

use std::collections::BTreeSet;

use super::subjects::{Point, Table, mean};
use super::words::{conditions, escaped};
use crate::papers::{text, title};
use crate::report::Report;

/// When the clocks start and stop.
pub(super) fn clocks(report: &Report) -> String {
    let lines = report.clocks.iter().flat_map(|c| c.lines());
    let items: String =
        lines.map(|(whose, clock)| format!("<li>{whose}: {}</li>\n", escaped(&clock))).collect();
    if items.is_empty() { items } else { format!("<ul>\n{items}</ul>\n") }
}

/// Every figure of a paper but the seconds that stand in the table of all cells, with ours and the
/// ratio of both.
pub(super) fn figures(table: &Table) -> String {
    let mut names: BTreeSet<&str> = BTreeSet::new();
    let mut found = Vec::new();
    for point in &table.points {
        let shown = point.papers.iter().position(|p| p.figures.contains_key("seconds"));
        for (place, of) in point.papers.iter().enumerate() {
            let is_further = |name: &str| name != "seconds" || Some(place) != shown;
            let own: Vec<(&str, f64)> =
                of.figures.iter().map(|(n, v)| (n.as_str(), *v)).filter(|(n, _)| is_further(n)).collect();
            if !own.is_empty() {
                names.extend(own.iter().map(|(name, _)| *name));
                found.push((point, of.from.as_str(), own));
            }
        }
    }
    if found.is_empty() {
        return String::new();
    }
    let header: String = names.iter().map(|n| format!("<th>{}</th>", escaped(&title(n)))).collect();
    let mut rows = String::new();
    for (point, from, own) in found {
        let values: String = names
            .iter()
            .map(|name| {
                let paper = own.iter().find(|(own, _)| own == name).map(|(_, value)| *value);
                paper.map_or("<td>-</td>".into(), |paper| pair(name, ours(point, name), paper))
            })
            .collect();
        let of: crate::scenario::Params = point
            .conditions
            .iter()
            .filter(|(name, _)| table.varied.contains(name))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        rows += &format!(
            "<tr><th>{}</th><th>{}</th><td>{}</td>{values}</tr>\n",
            escaped(&conditions(&of)),
            escaped(&point.subject.name),
            escaped(from)
        );
    }
    format!(
        "<h3>Beside the papers</h3>\n<div class=\"wide\"><table class=\"cells\">\n\
         <tr><th>cell</th><th>who</th><th>from</th>{header}</tr>\n{rows}</table></div>\n"
    )
}

/// Mean of our runs.
fn ours(point: &Point, name: &str) -> Option<f64> {
    if name == "seconds" { point.mean_seconds() } else { mean(point.metrics.get(name)?) }
}

fn pair(name: &str, ours: Option<f64>, paper: f64) -> String {
    let shown = ours.map_or("-".into(), |v| text(name, v));
    let ratio = ours.filter(|_| paper != 0.0).map_or(String::new(), |v| format!(", x {:.3}", v / paper));
    format!("<td><b>{shown}</b><br><small>paper {}{ratio}</small></td>", text(name, paper))
}
