//! What the link carried in each round trip, and what it could have carried.

use super::edge;
use super::figure::{Axis, Figure, Mark, Series};
use super::plots::{Drawing, Plot, colour};
use super::subjects::{Group, Point, Role, Table};
use super::words::{conditions, short, slug};

/// More plots than this are thinned out to those of the largest transfers.
const PLOTS_MAX: usize = 8;
/// With fewer round trips there is nothing to see.
const ROUND_TRIPS_MIN: usize = 6;

/// A plot for each set of conditions.
pub(super) fn all(table: &Table) -> Vec<Plot> {
    let mut groups = table.groups(&[]);
    let has_many = |p: &&Point| p.round_trip_bps.len() >= ROUND_TRIPS_MIN;
    groups.retain(|g| g.points.iter().any(has_many));
    let size = |g: &Group<'_>| g.points.first().and_then(|p| p.number("size_bytes")).unwrap_or(0.0);
    groups.sort_by(|a, b| size(b).total_cmp(&size(a)));
    groups.truncate(PLOTS_MAX);
    groups.iter().map(|g| throughput(table, g)).collect()
}

fn throughput(table: &Table, group: &Group<'_>) -> Plot {
    let mut series = Vec::new();
    let window_s = |p: &Point| (p.number("rtt_ms").unwrap_or(0.0) / 1e3).max(0.05);
    let end_s = group.points.iter().map(|p| p.round_trip_bps.len() as f64 * window_s(p)).fold(0.0, f64::max);
    for subject in &table.subjects {
        let mark = if subject.role == Role::Other { Mark::Dashed } else { Mark::Line };
        for point in group.of_subject(subject) {
            let at = |n: usize| (n as f64 + 1.0) * window_s(point);
            let points = point.round_trip_bps.iter().enumerate().map(|(n, bps)| (at(n), bps / 1e6)).collect();
            series.push(Series::new(&subject.name, colour(table, subject), mark, points));
        }
    }
    series.retain(|s| !s.points.is_empty());
    if let Some(steps) = group.points.iter().find_map(|p| steps(p, end_s)) {
        series.insert(0, Series::limit(steps));
    }
    let ended = group.points.iter().filter(|p| !p.seconds.is_empty() && !p.round_trip_bps.is_empty());
    let fastest_s = ended.map(|p| p.round_trip_bps.len() as f64 * window_s(p)).reduce(f64::min);
    let cut = edge::cut(&mut series, fastest_s).unwrap_or_default();
    let all = |of: fn(&(f64, f64)) -> f64| series.iter().flat_map(move |s| s.points.iter().map(of));
    let x = Axis::from_zero("time since the first data, seconds", all(|p| p.0), short);
    let y = Axis::from_zero("carried by the link, Mbit/s", all(|p| p.1), short);
    let of = conditions(&group.of);
    let title = if of.is_empty() {
        "Throughput by round trip".into()
    } else {
        format!("Throughput by round trip: {of}")
    };
    let remark = format!(
        "A point for each round trip, at its end. The limit: the link's rate, and nothing while it is away.{cut}"
    );
    let name = if of.is_empty() { "throughput".into() } else { format!("throughput-{}", slug(&of)) };
    Plot { name, drawing: Drawing::Figure(Figure { title, x, y, series, shaded: Vec::new(), remark }) }
}

/// The link's rate by time, in Mbit/s: that of its schedule, or the one that it always has.
fn steps(point: &Point, end_s: f64) -> Option<Vec<(f64, f64)>> {
    let Some(schedule) = &point.schedule else {
        let rate = point.number("rate_bps").filter(|r| *r > 0.0)? / 1e6;
        return Some(vec![(0.0, rate), (end_s, rate)]);
    };
    let from_s = schedule.first_data_s.unwrap_or(schedule.began_s);
    let rate_at = |t: f64| {
        let is_away = schedule.outages_s.iter().any(|[from, to]| *from <= t && t < *to);
        let rate = schedule.rate_bps_at(t).unwrap_or(0.0);
        if is_away { 0.0 } else { rate / 1e6 }
    };
    let changes =
        schedule.outages_s.iter().flatten().copied().chain(schedule.rates.iter().map(|[at, _]| *at));
    let mut times: Vec<f64> = changes.filter(|t| *t > from_s && *t < from_s + end_s).collect();
    times.sort_by(f64::total_cmp);
    let (mut line, mut rate) = (vec![(0.0, rate_at(from_s))], rate_at(from_s));
    for t in times {
        let next = rate_at(t);
        line.extend([(t - from_s, rate), (t - from_s, next)]);
        rate = next;
    }
    line.push((end_s, rate));
    Some(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Report, Schedule};

    fn report(schedule: Option<Schedule>) -> Report {
        let cell = serde_json::json!({
            "params": { "rate_bps": 8_000_000, "rtt_ms": 500, "size_bytes": 1_000_000, "host_cc": "bbr", "gateways": 2 },
            "variant": "farlink", "repeat": 0, "seed": 1, "seconds": 4.0, "goodput_bps": 2e6, "limit_seconds": null,
            "ratio_to_limit": null, "intact": true, "paper_seconds": null, "metrics": {},
            "round_trip_bps": [1e6, 2e6, 4e6, 8e6, 0.0, 4e6], "schedule": schedule,
        });
        let cells = vec![serde_json::from_value(cell).unwrap()];
        Report { scenario: "s".into(), cells, ..Report::default() }
    }

    fn series(report: &Report) -> Vec<Series> {
        let plots = all(&Table::of(report));
        assert_eq!(plots.len(), 1);
        let Drawing::Figure(figure) = &plots[0].drawing else { panic!("no figure") };
        figure.series.clone()
    }

    #[test]
    fn each_round_trip_is_a_point_below_the_rate() {
        let drawn = series(&report(None));
        assert_eq!(drawn[0].points, [(0.0, 8.0), (3.0, 8.0)]);
        assert_eq!(drawn[1].points[3], (2.0, 8.0));
    }

    #[test]
    fn the_schedule_is_drawn_as_the_limit() {
        let schedule = Schedule {
            began_s: 0.0,
            first_data_s: Some(1.0),
            outages_s: vec![[3.0, 3.5]],
            rates: vec![[0.0, 8e6], [3.25, 4e6]],
        };
        let drawn = series(&report(Some(schedule)));
        let limit = [
            (0.0, 8.0),
            (2.0, 8.0),
            (2.0, 0.0),
            (2.25, 0.0),
            (2.25, 0.0),
            (2.5, 0.0),
            (2.5, 4.0),
            (3.0, 4.0),
        ];
        assert_eq!(drawn[0].points, limit);
    }
}
