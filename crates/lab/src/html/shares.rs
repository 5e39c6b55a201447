//! How transfers shared the link by time: the rate of each, how even the shares were, and the
//! queue.

use super::figure::{Axis, COOL, Figure, Mark, Series, WARM};
use super::plots::{Drawing, Plot, colour};
use super::subjects::{Group, Point, Table};
use super::words::{conditions, short, slug};
use crate::kinds::metrics::jain;
use crate::report::Shares;

/// More conditions than this are not drawn.
const GROUPS_MAX: usize = 6;
const X: &str = "time since the first data, seconds";

/// Plots of each set of conditions.
pub(super) fn all(table: &Table) -> Vec<Plot> {
    let has_shares = |p: &&Point| p.shares.is_some();
    let mut groups = table.groups(&[]);
    groups.retain(|g| g.points.iter().any(has_shares));
    groups.truncate(GROUPS_MAX);
    groups.iter().flat_map(|group| of_group(table, group)).collect()
}

fn of_group(table: &Table, group: &Group<'_>) -> Vec<Plot> {
    let mut plots = Vec::new();
    let (mut even, mut queues) = (Vec::new(), Vec::new());
    for subject in &table.subjects {
        let Some((point, shares)) = group
            .of_subject(subject)
            .find_map(|p| Some((p, p.shares.as_ref().filter(|s| s.window_s > 0.0)?)))
        else {
            continue;
        };
        let line = |points| Series::new(&subject.name, colour(table, subject), Mark::Line, points);
        queues.push(line(queue(shares)));
        if shares.connections_bps.len() > 1 {
            even.push(line(evenness(shares)));
            plots.push(rates(group, &subject.name, point, shares));
        }
    }
    if !even.is_empty() {
        let y = Axis::between("Jain's index", 0.0, 1.0, 0.2, short);
        let remark =
            "Of the transfers that have data in a window of a round trip: 1 where all carry the same.";
        plots.push(plot(group, ("evenness", "How even the shares of transfers are"), even, y, remark));
    }
    if !queues.is_empty() {
        let kilobytes = queues.iter().flat_map(|s| s.points.iter().map(|p| p.1));
        let y = Axis::from_zero("waiting before the link, kB", kilobytes, short);
        let remark = "The longest queue in each round trip.";
        plots.push(plot(group, ("queue", "The queue before the link"), queues, y, remark));
    }
    plots
}

/// The rate of each transfer.
fn rates(group: &Group<'_>, subject: &str, point: &Point, shares: &Shares) -> Plot {
    let rate = point.number("rate_bps").unwrap_or(0.0) / 1e6;
    let colours = COOL.iter().chain(&WARM).cycle();
    let mut series: Vec<Series> = shares
        .connections_bps
        .iter()
        .zip(colours)
        .enumerate()
        .map(|(n, (bps, colour))| {
            let points = by_time(shares, bps.iter().map(|bps| bps / 1e6)).filter(|p| p.1 > 0.0).collect();
            Series::new(&format!("transfer {}", n + 1), *colour, Mark::Line, points)
        })
        .collect();
    let end_s = series.iter().flat_map(|s| s.points.iter().map(|p| p.0)).fold(0.0, f64::max);
    series.insert(0, Series::limit(vec![(0.0, rate), (end_s, rate)]));
    let y = Axis::from_zero(
        "carried of a transfer, Mbit/s",
        series.iter().flat_map(|s| s.points.iter().map(|p| p.1)),
        short,
    );
    let remark = "A point for each round trip, at its end. The limit: the link's rate, for all together.";
    plot(
        group,
        (&format!("rates-{}", slug(subject)), &format!("The rate of each transfer, {subject}")),
        series,
        y,
        remark,
    )
}

fn plot(group: &Group<'_>, (name, title): (&str, &str), series: Vec<Series>, y: Axis, remark: &str) -> Plot {
    let x = Axis::from_zero(X, series.iter().flat_map(|s| s.points.iter().map(|p| p.0)), short);
    let of = conditions(&group.of);
    let (title, name) = if of.is_empty() {
        (title.to_owned(), name.to_owned())
    } else {
        (format!("{title}: {of}"), format!("{name}-{}", slug(&of)))
    };
    let figure = Figure { title, x, y, series, shaded: Vec::new(), remark: remark.into() };
    Plot { name, drawing: Drawing::Figure(figure) }
}

/// Values at the ends of their windows.
fn by_time(shares: &Shares, values: impl Iterator<Item = f64>) -> impl Iterator<Item = (f64, f64)> {
    let window_s = shares.window_s;
    values.enumerate().map(move |(n, value)| ((n as f64 + 1.0) * window_s, value))
}

fn queue(shares: &Shares) -> Vec<(f64, f64)> {
    by_time(shares, shares.queue_max_bytes.iter().map(|bytes| *bytes as f64 / 1e3)).collect()
}

fn evenness(shares: &Shares) -> Vec<(f64, f64)> {
    let count = shares.connections_bps.iter().map(Vec::len).max().unwrap_or(0);
    let active = |n: usize| {
        let rates = shares.connections_bps.iter().filter_map(move |bps| bps.get(n).copied());
        rates.filter(|bps| *bps > 0.0).collect::<Vec<_>>()
    };
    let indices =
        (0..count).map(|n| Some(active(n)).filter(|a| a.len() > 1).map_or(1.0, |a| jain(a.into_iter())));
    by_time(shares, indices).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{CellReport, Report};

    #[test]
    fn rates_evenness_and_queue_are_drawn_by_time() {
        let cell = serde_json::json!({
            "params": { "rate_bps": 8_000_000, "rtt_ms": 500, "gateways": 2, "cc": "xcp" },
            "variant": "farlink-xcp", "repeat": 0, "seed": 1, "seconds": 4.0, "goodput_bps": 2e6, "limit_seconds": null,
            "ratio_to_limit": null, "intact": true, "paper_seconds": null, "metrics": {},
            "shares": { "window_s": 0.5, "connections_bps": [[8e6, 6e6, 4e6], [0.0, 2e6, 4e6]], "queue_max_bytes": [0, 9_000, 1_000] },
        });
        let cells: Vec<CellReport> = vec![serde_json::from_value(cell).unwrap()];
        let plots = all(&Table::of(&Report { scenario: "s".into(), cells, ..Report::default() }));
        let names: Vec<_> = plots.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names, ["rates-farlink-xcp", "evenness", "queue"]);
        let series = |n: usize| {
            let Drawing::Figure(figure) = &plots[n].drawing else { panic!("no figure") };
            figure.series.clone()
        };
        assert_eq!(series(0)[2].points, [(1.0, 2.0), (1.5, 4.0)]);
        assert_eq!(series(1)[0].points[1], (1.0, 0.8));
        assert_eq!(series(2)[0].points, [(0.5, 0.0), (1.0, 9.0), (1.5, 1.0)]);
    }
}
