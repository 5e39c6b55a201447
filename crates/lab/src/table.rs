//! A report as a table for the terminal.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::expect;
use crate::papers;
use crate::report::{CellReport, Report};

mod starved;

/// In reports of more cells the figures of the link stand in the JSON alone.
const LINK_CELLS_MAX: usize = 40;

/// The table, one line per run of a cell, with what differs between cells and what was measured.
#[must_use]
pub fn render(report: &Report) -> String {
    let varied = varied(report);
    let mut header: Vec<String> = varied.iter().map(|name| heading(name)).collect();
    let has_papers = report.cells.iter().any(|c| c.paper_seconds.is_some());
    let limits = report.cells.iter().any(|c| c.limit_seconds.is_some());
    header.extend(["variant", "seconds", "Mbit/s"].map(String::from));
    if limits {
        header.extend(["limit", "x limit"].map(String::from));
    }
    if has_papers {
        header.push("paper".into());
    }
    header.push("intact".into());
    let judged = !report.expectations.verdicts.is_empty();
    if judged {
        header.push("expected".into());
    }
    let mut rows = vec![header];
    for cell in &report.cells {
        let mut row: Vec<String> = varied.iter().map(|name| param(cell, name)).collect();
        row.push(cell.variant.clone());
        row.push(cell.seconds.map_or("-".into(), |s| format!("{s:.3}")));
        row.push(cell.goodput_bps.map_or("-".into(), |g| format!("{:.3}", g / 1e6)));
        if limits {
            row.push(cell.limit_seconds.map_or("-".into(), |s| format!("{s:.3}")));
            row.push(cell.ratio_to_limit.map_or("-".into(), |r| format!("{r:.3}")));
        }
        if has_papers {
            row.push(cell.paper_seconds.map_or("-".into(), |s| format!("{s}")));
        }
        row.push(if cell.intact { "yes".into() } else { "NO".into() });
        if judged {
            row.push(expect::mark(&report.expectations, cell).into());
        }
        rows.push(row);
    }
    let mut text = format!("{}: {}\n\n{}", report.scenario, report.title, align(&rows, varied.len() + 1));
    for cell in report.cells.iter().filter(|c| !c.intact) {
        let mut seen = BTreeSet::new();
        for failure in cell.failures.iter().filter(|f| seen.insert(f.as_str())) {
            text.push_str(&format!("\nNOT INTACT {}: {failure}", describe(cell, &varied)));
        }
    }
    for (variant, reason, cells) in skipped(report) {
        text.push_str(&format!("\nskipped {variant}, {cells} cells: {reason}"));
    }
    let mut seen = BTreeSet::new();
    for note in report.cells.iter().flat_map(|c| &c.notes).filter(|n| seen.insert(n.as_str())) {
        text.push_str(&format!("\nnote: {note}"));
    }
    if let Some(file) = report.details.get("file").and_then(Value::as_str) {
        text.push_str(&format!("\nfile: {file}"));
        for hash in report.details["sha256"].as_array().into_iter().flatten() {
            let sha = hash["sha256"].as_str().unwrap_or("");
            text.push_str(&format!(
                "\n  SHA-256 of its first {:>10} bytes: {sha}",
                hash["bytes"].to_string()
            ));
        }
    }
    text += &link(report, &varied);
    text += &starved::render(report, &varied);
    text += &papers::beside(report, &varied);
    text.truncate(text.trim_end().len());
    text.push('\n');
    text + &expect::render(&report.expectations)
}

/// What the link carried, beside each cell: when it was full, what it carried in vain, a perfect
/// sender's time, and its throughput in some round trips.
fn link(report: &Report, varied: &[String]) -> String {
    const ROUND_TRIPS: [usize; 6] = [1, 2, 3, 5, 10, 20];
    let cells: Vec<&CellReport> = report.cells.iter().filter(|c| !c.round_trip_bps.is_empty()).collect();
    if cells.is_empty() || cells.len() > LINK_CELLS_MAX {
        return String::new();
    }
    let mut header: Vec<String> = varied.iter().map(|name| heading(name)).collect();
    header.extend(["variant", "s to 95 %", "wasted kB", "perfect s", "x perfect"].map(String::from));
    header.extend(ROUND_TRIPS.map(|n| format!("RTT {n}")));
    let mut rows = vec![header];
    for cell in cells {
        let metric = |name: &str, unit: f64, digits: usize| {
            cell.metrics.get(name).map_or("-".into(), |v| format!("{:.digits$}", v / unit))
        };
        let mut row: Vec<String> = varied.iter().map(|name| param(cell, name)).collect();
        row.push(cell.variant.clone());
        row.push(metric("seconds_to_95", 1.0, 2));
        row.push(metric("wasted_bytes", 1e3, 1));
        row.push(metric("perfect_seconds", 1.0, 3));
        row.push(metric("ratio_to_perfect", 1.0, 3));
        let of =
            |n: usize| cell.round_trip_bps.get(n - 1).map_or("-".into(), |bps| format!("{:.2}", bps / 1e6));
        row.extend(ROUND_TRIPS.map(of));
        rows.push(row);
    }
    format!("\nthe link, in Mbit/s by round trip:\n{}", align(&rows, varied.len() + 1))
}

/// Variants with cells that could not run, why, and how many, in the order of the cells.
fn skipped(report: &Report) -> Vec<(&str, &str, usize)> {
    let mut groups: Vec<(&str, &str, usize)> = Vec::new();
    for s in &report.skipped {
        match groups.iter_mut().find(|(variant, reason, _)| *variant == s.variant && *reason == s.reason) {
            Some((.., cells)) => *cells += 1,
            None => groups.push((&s.variant, &s.reason, 1)),
        }
    }
    groups
}

/// One line about a cell, e.g. `farlink size_bytes=1000000`.
#[must_use]
pub fn describe(cell: &CellReport, varied: &[String]) -> String {
    let params: Vec<_> = varied.iter().map(|n| format!("{n}={}", param(cell, n))).collect();
    format!("{} {}", cell.variant, params.join(" "))
}

/// Names of the params that are not the same in all cells.
#[must_use]
pub fn varied(report: &Report) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let all: BTreeSet<&String> = report.cells.iter().flat_map(|c| c.params.keys()).collect();
    for name in all {
        let mut values = report.cells.iter().map(|c| c.params.get(name));
        let first = values.next();
        // What a variant means by itself is not repeated.
        if name != "gateways" && name != "baseline" && values.any(|v| Some(v) != first) {
            names.push(name.clone());
        }
    }
    names.sort_by_key(|n| (order(n), n.clone()));
    if report.cells.iter().any(|c| c.repeat > 0) {
        names.push("repeat".into());
    }
    names
}

fn order(name: &str) -> u8 {
    match name {
        "case" | "app" | "topology" => 0,
        "rate_bps" | "rate_up_bps" | "rtt_ms" => 1,
        "size_bytes" => 2,
        "hosts" | "host_cc" => 4,
        _ => 3,
    }
}

pub(crate) fn heading(name: &str) -> String {
    name.trim_end_matches("_bytes").trim_end_matches("_bps").replace('_', " ")
}

pub(crate) fn param(cell: &CellReport, name: &str) -> String {
    if name == "repeat" {
        return cell.repeat.to_string();
    }
    match cell.params.get(name) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(n)) => grouped(&n.to_string()),
        Some(other) => other.to_string(),
        None => "-".into(),
    }
}

/// Thousands set apart: 10,000,000.
fn grouped(digits: &str) -> String {
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return digits.into();
    }
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// Columns side by side, the first `words` of them to the left, numbers to the right.
pub(crate) fn align(rows: &[Vec<String>], words: usize) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |c: usize| rows.iter().filter_map(|r| r.get(c)).map(|t| t.chars().count()).max().unwrap_or(0);
    let widths: Vec<_> = (0..columns).map(width).collect();
    let is_number = |t: &String| t.chars().next().is_some_and(|x| x.is_ascii_digit() || x == '-');
    let has_numbers = |c: usize| rows.iter().skip(1).all(|r| r.get(c).is_none_or(is_number));
    let to_the_left: Vec<_> = (0..columns).map(|c| c < words && !has_numbers(c)).collect();
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        let mut line = String::new();
        for (c, cell) in row.iter().enumerate() {
            let width = widths[c];
            line += &if to_the_left[c] { format!("{cell:<width$}  ") } else { format!("{cell:>width$}  ") };
        }
        text += line.trim_end();
        text.push('\n');
        if number == 0 {
            let all: usize = widths.iter().map(|w| w + 2).sum();
            text += &"-".repeat(all.saturating_sub(2));
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Measured;
    use crate::scenario::Cell;
    use crate::settings::Settings;

    #[test]
    fn only_what_differs_gets_a_column() {
        let cell = |size: u64, ok: bool| {
            let params = [
                ("size_bytes".to_string(), serde_json::json!(size)),
                ("rate_bps".to_string(), serde_json::json!(8_000_000)),
            ];
            let cell = Cell {
                params: params.into_iter().collect(),
                variant: "direct".into(),
                settings: Settings::default(),
                needs: None,
                papers: Vec::new(),
            };
            let mut measured =
                Measured { seconds: 1.5, bytes: size, limit_seconds: Some(1.0), ..Measured::default() };
            measured.expect(ok, || "a byte was lost".into());
            CellReport::new(&cell, 0, 1, Ok(measured))
        };
        let report = Report {
            scenario: "s".into(),
            title: "t".into(),
            driver: "lab".into(),
            seed: 1,
            version: "0".into(),
            command: String::new(),
            cells: vec![cell(1_000_000, true), cell(10_000_000, false)],
            ..Report::default()
        };
        let text = render(&report);
        assert!(text.contains("10,000,000") && !text.contains("rate"), "{text}");
        assert!(
            text.contains("1.500")
                && text.contains("NOT INTACT direct size_bytes=10,000,000: a byte was lost")
        );
    }
}
