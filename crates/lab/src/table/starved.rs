//! What came back over a starved return link, beside each cell: acknowledgements in all, and second
//! by second, with how the data went meanwhile.

use super::{align, heading, param};
use crate::report::{CellReport, Report, Starved};

/// In reports of more cells these figures stand in the JSON alone.
const CELLS_MAX: usize = 40;
/// The seconds that are shown.
const SECONDS: [usize; 8] = [1, 2, 3, 5, 10, 15, 20, 40];

pub(super) fn render(report: &Report, varied: &[String]) -> String {
    let cells: Vec<(&CellReport, &Starved)> =
        report.cells.iter().filter_map(|cell| Some((cell, cell.starved.as_ref()?))).collect();
    if cells.is_empty() || cells.len() > CELLS_MAX {
        return String::new();
    }
    let head = |columns: Vec<String>| {
        let names = varied.iter().map(|name| heading(name)).chain(["variant".into()]);
        names.chain(columns).collect::<Vec<String>>()
    };
    let row = |cell: &CellReport, columns: Vec<String>| {
        let names = varied.iter().map(|name| param(cell, name)).chain([cell.variant.clone()]);
        names.chain(columns).collect::<Vec<String>>()
    };
    let words = varied.len() + 1;
    let mut sums =
        vec![head(["ACKs", "kB", "bytes per ACK", "kbit/s", "lost to the queue"].map(String::from).into())];
    sums.extend(cells.iter().map(|(cell, _)| row(cell, totals(cell))));
    let mut text = format!("\nthe return link; kbit/s from the second second on:\n{}", align(&sums, words));
    for (what, of) in [
        (
            "carried towards the receiver, Mbit/s by second",
            carried_mbps as fn(&Starved, usize) -> Option<String>,
        ),
        ("acknowledgements on the return link by second", acknowledgements),
    ] {
        let mut rows = vec![head(SECONDS.iter().map(|n| format!("{n} s")).collect())];
        let shown = |starved: &Starved| SECONDS.map(|n| of(starved, n).unwrap_or("-".into())).into();
        rows.extend(cells.iter().map(|(cell, starved)| row(cell, shown(starved))));
        text += &format!("\n{what}:\n{}", align(&rows, words));
    }
    text
}

fn totals(cell: &CellReport) -> Vec<String> {
    let metric = |name: &str, unit: f64, digits: usize| {
        cell.metrics.get(name).map_or("-".into(), |v| format!("{:.digits$}", v / unit))
    };
    vec![
        metric("link_ack_packets", 1.0, 0),
        metric("link_ack_bytes", 1e3, 1),
        metric("payload_per_ack", 1.0, 0),
        metric("return_bps_from_1s", 1e3, 2),
        metric("return_queue_drops", 1.0, 0),
    ]
}

/// Of the second that ends after so many; `None`: the transfer was over before.
fn carried_mbps(starved: &Starved, second: usize) -> Option<String> {
    let by = |seconds: usize| {
        let step = (seconds as f64 / starved.step_s).round() as usize;
        starved.carried_bytes.get(step).or(starved.carried_bytes.last()).copied()
    };
    starved.return_bps.get(second - 1)?;
    Some(format!("{:.2}", 8.0 * by(second)?.saturating_sub(by(second - 1)?) as f64 / 1e6))
}

fn acknowledgements(starved: &Starved, second: usize) -> Option<String> {
    starved.acks.get(second - 1).map(u64::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_stand_beside_each_other_and_what_was_over_has_none() {
        let starved = Starved {
            return_bps: vec![8_000.0, 4_000.0],
            acks: vec![20, 10],
            step_s: 0.5,
            carried_bytes: vec![0, 250_000, 1_000_000, 1_500_000],
            ..Starved::default()
        };
        let cell = serde_json::json!({
            "params": {}, "variant": "farlink", "repeat": 0, "seed": 1, "seconds": 1.5, "goodput_bps": 8e6, "limit_seconds": 1.0,
            "ratio_to_limit": 1.5, "intact": true, "paper_seconds": null, "starved": starved,
            "metrics": { "link_ack_packets": 30.0, "link_ack_bytes": 1_560.0, "payload_per_ack": 50_000.0 },
        });
        let mut report = Report { cells: vec![serde_json::from_value(cell).unwrap()], ..Report::default() };
        let text = render(&report, &[]);
        let rows: Vec<Vec<&str>> = text.lines().map(|l| l.split_whitespace().collect()).collect();
        for wanted in [
            vec!["farlink", "30", "1.6", "50000", "-", "-"],
            vec!["farlink", "8.00", "4.00", "-", "-", "-", "-", "-", "-"],
            vec!["farlink", "20", "10", "-", "-", "-", "-", "-", "-"],
        ] {
            assert!(rows.contains(&wanted), "{wanted:?}: {text}");
        }
        report.cells[0].starved = None;
        assert_eq!(render(&report, &[]), "");
    }
}
