//! How far a download was by time, over the times at which the link was there.

use super::edge;
use super::figure::{Axis, Figure, Mark, Series};
use super::plots::{Drawing, Plot, colour};
use super::subjects::{Group, Point, Role, Table};
use super::words::{conditions, short, slug};
use crate::report::Schedule;

const TITLE: &str = "A download by time; the link is there where it is shaded";

/// A plot for each set of conditions.
pub(super) fn all(table: &Table) -> Vec<Plot> {
    table.groups(&[]).iter().filter_map(|group| plot(table, group)).collect()
}

fn plot(table: &Table, group: &Group<'_>) -> Option<Plot> {
    let mut series = Vec::new();
    for subject in &table.subjects {
        let mark = if subject.role == Role::Other { Mark::Dashed } else { Mark::Line };
        for point in group.of_subject(subject).filter(|p| p.progress.len() > 1) {
            let points = point.progress.iter().map(|(at, bytes)| (*at, *bytes as f64 / 1e6)).collect();
            series.push(Series::new(&subject.name, colour(table, subject), mark, points));
        }
    }
    let last = |p: &&Point| p.progress.last().map_or(0.0, |(at, _)| *at);
    let longest = group.points.iter().copied().max_by(|a, b| last(a).total_cmp(&last(b)))?;
    let end_s = last(&longest);
    // All count their schedules from the beginning of the download, so one stands for all.
    let schedule = longest.schedule.as_ref().filter(|_| end_s > 0.0)?;
    series.insert(0, Series::limit(limit(longest, schedule).unwrap_or_default()));
    series.retain(|s| s.points.len() > 1);
    let ended = group.points.iter().filter(|p| !p.seconds.is_empty() && p.progress.len() > 1);
    let cut = edge::cut(&mut series, ended.map(last).reduce(f64::min)).unwrap_or_default();
    let all = |of: fn(&(f64, f64)) -> f64| series.iter().flat_map(move |s| s.points.iter().map(of));
    let x = Axis::from_zero("time since the beginning of the download, seconds", all(|p| p.0), short);
    let y = Axis::from_zero("arrived, MB", all(|p| p.1), short);
    let edge_s = series.iter().flat_map(|s| s.points.iter().map(|p| p.0)).fold(0.0, f64::max);
    let shaded = contacts(schedule, end_s.min(edge_s));
    let of = conditions(&group.of);
    let (title, name) = if of.is_empty() {
        (TITLE.into(), "progress".into())
    } else {
        (format!("{TITLE}: {of}"), format!("progress-{}", slug(&of)))
    };
    let remark = format!("The limit: a sender that knows when the link will be there.{cut}");
    Some(Plot { name, drawing: Drawing::Figure(Figure { title, x, y, series, shaded, remark }) })
}

/// When the link was there, in seconds since the beginning of the download.
fn contacts(schedule: &Schedule, end_s: f64) -> Vec<(f64, f64)> {
    let mut contacts = Vec::new();
    let mut from_s = 0.0_f64;
    for [away_s, back_s] in schedule.outages_s.iter().map(|o| o.map(|at| at - schedule.began_s)) {
        if away_s > from_s {
            contacts.push((from_s, away_s.min(end_s)));
        }
        from_s = from_s.max(back_s);
        if from_s >= end_s {
            return contacts;
        }
    }
    contacts.push((from_s, end_s));
    contacts
}

/// A perfect sender, as it goes by the link: all that arrived, at the time that it needs.
fn limit(point: &Point, schedule: &Schedule) -> Option<Vec<(f64, f64)>> {
    // Of the run whose progress it is.
    let perfect_s = *point.metrics.get("perfect_seconds")?.first()?;
    let (_, bytes) = *point.progress.last()?;
    let rate_at = |at_s: f64| schedule.rate_bps_at(at_s + schedule.began_s).unwrap_or(1.0);
    let mut steps = vec![(0.0, 0.0)];
    let mut carried = 0.0;
    for (from_s, until_s) in contacts(schedule, perfect_s) {
        steps.push((from_s, carried));
        let changes = schedule.rates.iter().map(|[at, _]| at - schedule.began_s);
        let mut times: Vec<f64> =
            changes.filter(|at| *at > from_s && *at < until_s).chain([until_s]).collect();
        times.sort_by(f64::total_cmp);
        let mut at_s = from_s;
        for next_s in times {
            carried += (next_s - at_s) * rate_at(at_s);
            steps.push((next_s, carried));
            at_s = next_s;
        }
    }
    (carried > 0.0).then(|| steps.iter().map(|(at, c)| (*at, c / carried * bytes as f64 / 1e6)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Report;

    #[test]
    fn progress_stands_over_the_times_at_which_the_link_was_there() {
        let cell = serde_json::json!({
            "params": { "size_bytes": 3_000_000, "host_cc": "bbr", "gateways": 2 }, "variant": "farlink", "repeat": 0, "seed": 1,
            "seconds": 4.0, "goodput_bps": 6e6, "limit_seconds": null, "ratio_to_limit": null, "intact": true,
            "paper_seconds": null, "metrics": { "perfect_seconds": 3.5 }, "progress": [[0.0, 0], [1.0, 900_000], [4.0, 3_000_000]],
            "schedule": { "began_s": 0.5, "first_data_s": 0.6, "outages_s": [[0.0, 0.25], [1.5, 2.0], [9.0, 10.0]], "rates": [[0.0, 8e6]] },
        });
        let cells = vec![serde_json::from_value(cell).unwrap()];
        let plots = all(&Table::of(&Report { scenario: "s".into(), cells, ..Report::default() }));
        assert_eq!(plots.len(), 1);
        let Drawing::Figure(figure) = &plots[0].drawing else { panic!("no figure") };
        assert_eq!(figure.shaded, [(0.0, 1.0), (1.5, 4.0)]);
        assert_eq!(figure.series[0].points, [(0.0, 0.0), (0.0, 0.0), (1.0, 1.0), (1.5, 1.0), (3.5, 3.0)]);
        assert_eq!(figure.series[1].points, [(0.0, 0.0), (1.0, 0.9), (4.0, 3.0)]);
    }

    #[test]
    fn nothing_is_drawn_without_a_schedule() {
        let cell = serde_json::json!({
            "params": {}, "variant": "farlink", "repeat": 0, "seed": 1, "seconds": 4.0, "goodput_bps": 6e6, "limit_seconds": null,
            "ratio_to_limit": null, "intact": true, "paper_seconds": null, "progress": [[0.0, 0], [4.0, 3_000_000]],
        });
        let cells = vec![serde_json::from_value(cell).unwrap()];
        assert!(all(&Table::of(&Report { scenario: "s".into(), cells, ..Report::default() })).is_empty());
    }
}
