//! How far the time of a plot goes. One that takes many times as long as the fastest would squeeze
//! all others into a corner: the time ends before, and the legend says when that one ends.

use super::figure::{LIMIT, Series};
use super::words::short;

/// The time ends early where one takes more than so many times as long as the fastest,
const LONG: f64 = 4.0;
/// and then after so many times as long.
const SHOWN: f64 = 3.0;

/// Ends what goes on for much longer than the fastest takes. `fastest_s`: of those that came to
/// their end. Returned: what the remark says of it.
pub(super) fn cut(series: &mut [Series], fastest_s: Option<f64>) -> Option<String> {
    let fastest_s = fastest_s.filter(|s| *s > 0.0)?;
    let end = |series: &Series| series.points.iter().map(|p| p.0).fold(0.0, f64::max);
    let longest_s = series.iter().filter(|s| s.name != LIMIT).map(end).fold(0.0, f64::max);
    if longest_s <= LONG * fastest_s {
        return None;
    }
    let of_limit_s = series.iter().filter(|s| s.name == LIMIT).map(end).fold(0.0, f64::max);
    let edge_s = (SHOWN * fastest_s).max(of_limit_s.min(LONG * fastest_s));
    for series in series {
        let end_s = end(series);
        if end_s > edge_s {
            cut_line(&mut series.points, edge_s);
            if series.name != LIMIT {
                series.name += &format!(", ends at {} s", short(end_s));
            }
        }
    }
    Some(format!(
        " The time ends at {SHOWN} times that of the fastest; the legend says when those end that take longer."
    ))
}

/// A line until this time, with a point at the edge.
fn cut_line(points: &mut Vec<(f64, f64)>, edge_s: f64) {
    let Some(beyond) = points.iter().position(|p| p.0 > edge_s) else { return };
    let after = points[beyond];
    points.truncate(beyond);
    if let Some(before) = points.last().copied().filter(|before| before.0 < edge_s) {
        let share = (edge_s - before.0) / (after.0 - before.0);
        points.push((edge_s, before.1 + share * (after.1 - before.1)));
    }
}

#[cfg(test)]
mod tests {
    use super::super::figure::{BLACK, Mark};
    use super::*;

    fn line(name: &str, end_s: f64) -> Series {
        let points = (0..=10).map(|n| (end_s * f64::from(n) / 10.0, f64::from(n))).collect();
        Series::new(name, BLACK, Mark::Line, points)
    }

    #[test]
    fn one_that_takes_long_is_cut_and_its_end_is_told() {
        let mut series = vec![line(LIMIT, 9.0), line("fast", 10.0), line("slow", 60.25)];
        let told = cut(&mut series, Some(10.0));
        assert!(told.is_some_and(|t| t.contains("3 times that of the fastest")));
        let ends = series.iter().map(|s| s.points.last().copied().unwrap()).collect::<Vec<_>>();
        assert_eq!(ends[..2], [(9.0, 10.0), (10.0, 10.0)], "these are whole");
        assert!(ends[2].0 == 30.0 && (ends[2].1 - 300.0 / 60.25).abs() < 1e-9, "{:?}", ends[2]);
        let names: Vec<_> = series.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, [LIMIT, "fast", &format!("slow, ends at {} s", short(60.25))]);
    }

    #[test]
    fn what_takes_about_as_long_is_shown_whole() {
        let whole = vec![line("fast", 10.0), line("slower", 40.0)];
        let mut series = whole.clone();
        assert_eq!((cut(&mut series, Some(10.0)), &series), (None, &whole));
        // Nobody came to the end: there is nothing to go by.
        assert_eq!((cut(&mut series, None), &series), (None, &whole));
    }
}
