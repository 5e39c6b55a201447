//! The figures of Reynolds' fourth chapter, of our runs, with the numbers that his text gives of
//! his. He printed no tables of his runs but 4.1, and the curves themselves cannot be read. His
//! surfaces (3.6, 3.8, 4.5 to 4.13, 4.17 to 4.20) are the heat maps of `plots`, and lines of
//! figure 4.4. Titles say which of his figures they are.

use super::figure::{Axis, BLACK, COOL, Figure, Mark, Series, WARM};
use super::plots::{Drawing, Plot, colour, limit, line, plot, title, values};
use super::subjects::{Group, Point, Subject, Table, mean};
use super::words::{escaped, short};
use crate::model::grid::{PAPER_RATE_BPS, PAPER_SIZE_BYTES};
use crate::model::wink::{FirstFailure, Winks};
use crate::report::{CellReport, Report};

const P: &str = "wink_p";
const I: &str = "wink_i_ms";
/// The paper's file on a link that is always there (4.5), and with custody of its fastest source
/// (4.7), seconds.
const PERFECT_S: f64 = 1.86;
const CUSTODY_S: f64 = 3.6;
/// The paper's round-trip time, milliseconds (3.3.1).
const RTT_MS: f64 = 0.5;
/// Fewer intervals are no figure.
const INTERVALS_MIN: usize = 3;
/// Width of a bar of the histograms, seconds, and where they end.
const BAR_S: f64 = 0.1;
const BARS_END_S: f64 = 12.0;

/// All of them.
pub(super) fn all(table: &Table) -> Vec<Plot> {
    let mut plots = Vec::new();
    for group in table.groups(&[P, I]) {
        let winking = |point: &&&Point| point.number(P).is_some_and(|p| p > 0.0);
        let points = group.points.iter().filter(winking).copied().collect();
        let group = Group { of: group.of, points };
        let (ps, intervals) = (group.numbers(P), group.numbers(I));
        if ps.len() < 2 || intervals.len() < INTERVALS_MIN {
            continue;
        }
        plots.extend(by_probability(table, &group));
        plots.extend(by_interval(table, &group));
        plots.extend(ps.last().and_then(|p| at_probability(table, &group, *p)));
        for (number, from, to) in [(14, 0.0, 200.0), (15, 200.0, 500.0), (16, 500.0, f64::INFINITY)] {
            plots.extend(histogram(table, &group, number, (from, to)));
        }
    }
    plots
}

/// Whether the paper's numbers are of the same transfer.
fn is_the_papers(group: &Group<'_>) -> bool {
    let has = |name: &str, value: f64| group.points.iter().all(|point| point.number(name) == Some(value));
    has("size_bytes", PAPER_SIZE_BYTES as f64)
        && has("rate_bps", PAPER_RATE_BPS as f64)
        && has("rtt_ms", RTT_MS)
}

/// Whether a subject ran with all probabilities.
fn has_all(group: &Group<'_>, subject: &Subject) -> bool {
    let own = Group { of: group.of.clone(), points: group.of_subject(subject).collect() };
    own.numbers(P) == group.numbers(P)
}

/// Means by `x` of all values of the other condition.
fn means(group: &Group<'_>, subject: &Subject, x: &str, of: fn(&Point) -> Option<f64>) -> Vec<(f64, f64)> {
    let at = |value: &f64| {
        let points = group.of_subject(subject).filter(|point| point.number(x) == Some(*value));
        Some((*value, mean(&points.filter_map(of).collect::<Vec<_>>())?))
    };
    group.numbers(x).iter().filter_map(at).collect()
}

fn perfect_seconds(point: &Point) -> Option<f64> {
    mean(point.metrics.get("perfect_seconds")?)
}

fn paper(name: &str, number: usize, points: &[(f64, f64)]) -> Series {
    Series::new(name, WARM[number % WARM.len()], Mark::Paper, points.to_vec())
}

fn drawn(
    what: &str,
    file: &str,
    of: (&Table, &Group<'_>),
    x: Axis,
    series: Vec<Series>,
    remark: &str,
) -> Plot {
    let (table, group) = of;
    let figure = Figure {
        title: title(what, group, table),
        x,
        y: Axis::log("time, seconds", values(&series, |p| p.1), short),
        series,
        shaded: Vec::new(),
        remark: remark.into(),
    };
    plot(file, group, Drawing::Figure(figure))
}

/// Figure 4.1, with the bound of figure 3.7.
fn by_probability(table: &Table, group: &Group<'_>) -> Option<Plot> {
    let mut series = vec![Series::limit(limit(group, P, |point| point.limit_seconds, true))];
    for subject in &table.subjects {
        let points = means(group, subject, P, Point::mean_seconds);
        series.push(Series::new(&subject.name, colour(table, subject), Mark::Dotted, points));
    }
    let first = table.subjects.iter().find(|subject| group.of_subject(subject).next().is_some())?;
    let same_winks = means(group, first, P, perfect_seconds);
    series.push(Series::new("perfect, same winks", BLACK, Mark::Dots, same_winks));
    if is_the_papers(group) {
        series.push(paper("paper, hosts alone", 0, &[(0.05, 3.0), (0.4, 10.0)]));
    }
    series.retain(|s| !s.points.is_empty());
    let x = Axis::between("probability p that the link is away", 0.0, 0.5, 0.1, short);
    let remark = "Each point is the mean over all intervals that were run. The limit is the bound of figure 3.7, t / (1 - p). The paper's text has two \
         values of its curves.";
    let what = "Mean time by probability (paper: 4.1)";
    Some(drawn(what, "paper-4-1", (table, group), x, series, remark))
}

/// Figures 4.2 and 4.3.
fn by_interval(table: &Table, group: &Group<'_>) -> Option<Plot> {
    let mut series = Vec::new();
    for subject in &table.subjects {
        if has_all(group, subject) {
            let points = means(group, subject, I, Point::mean_seconds);
            series.push(Series::new(&subject.name, colour(table, subject), Mark::Line, points));
        }
    }
    let first = table.subjects.iter().find(|subject| group.of_subject(subject).next().is_some())?;
    series.insert(0, Series::limit(means(group, first, I, |point| point.limit_seconds)));
    let perfect = means(group, first, I, perfect_seconds);
    series.push(Series::new("perfect, same winks", BLACK, Mark::Dots, perfect));
    let x = Axis::from_zero("length of an interval i, ms", values(&series, |p| p.0), short);
    let remark = "Each point is the mean over all probabilities. The paper saw low places around 200 ms and from 500 to 600 ms.";
    let what = "Mean time by interval (paper: 4.2, 4.3)";
    Some(drawn(what, "paper-4-2", (table, group), x, series, remark))
}

/// Figures 4.4, 4.21 and 4.22, with slices of the models of figures 3.6, 3.8 and 4.20.
fn at_probability(table: &Table, group: &Group<'_>, p: f64) -> Option<Plot> {
    let at_p = |point: &&&Point| point.number(P) == Some(p);
    let group = Group { of: group.of.clone(), points: group.points.iter().filter(at_p).copied().collect() };
    let perfect_s =
        (1.0 - p) * mean(&group.points.iter().filter_map(|x| x.limit_seconds).collect::<Vec<_>>())?;
    let model = |name: &str, colour, base_s: f64, of: fn(Winks, f64) -> f64| {
        let at = |ms: &f64| {
            let winks = Winks::new(p, ms / 1e3).ok()?;
            Some((*ms, base_s + of(winks, winks.whole_intervals(perfect_s))))
        };
        Series::new(name, colour, Mark::Dashed, group.numbers(I).iter().filter_map(at).collect())
    };
    let mut series = vec![
        Series::limit(limit(&group, I, |x| x.limit_seconds, true)),
        model("hosts alone by equation 3.11 (figure 3.6)", WARM[3], perfect_s, |winks, n| {
            winks.hosts_alone_s(n, FirstFailure::Twice)
        }),
        model("custody by equation 3.12 (figure 3.8)", COOL[2], perfect_s, |winks, n| {
            winks.custody_s(n, FirstFailure::Twice)
        }),
    ];
    for subject in &table.subjects {
        let points = line(&group, subject, I, Point::mean_seconds);
        series.push(Series::new(&subject.name, colour(table, subject), Mark::Dotted, points));
    }
    if is_the_papers(&group) && p == 0.4 {
        series.push(model("the same and 3.6 s (figure 4.20)", COOL[3], CUSTODY_S, |winks, n| {
            winks.custody_s(n, FirstFailure::Twice)
        }));
        series.push(paper("paper, BIC alone", 0, &[(40.0, 217.6)]));
        series.push(paper("paper, Reno alone", 1, &[(40.0, 27.0)]));
        series.push(paper("paper, Unfair alone", 2, &[(40.0, 275.0), (620.0, 3.7)]));
        series.push(paper("paper, Unfair with custody", 4, &[(40.0, 7.0), (620.0, 5.8)]));
    }
    series.retain(|s| !s.points.is_empty());
    let x = Axis::from_zero("length of an interval i, ms", values(&series, |p| p.0), short);
    let remark = "The paper's custody costs more than hosts alone from 240 ms on, but for its source that never slows down.";
    let what = format!("Time at p = {} (paper: 4.4, 4.21, 4.22)", short(p));
    Some(drawn(&what, "paper-4-4", (table, &group), x, series, remark))
}

/// Figures 4.14 to 4.16: how many runs took how long.
fn histogram(table: &Table, group: &Group<'_>, number: u32, (from_ms, to_ms): (f64, f64)) -> Option<Plot> {
    let mut series = Vec::new();
    for subject in &table.subjects {
        let within = |point: &&Point| point.number(I).is_some_and(|ms| from_ms < ms && ms <= to_ms);
        let seconds: Vec<f64> = group
            .of_subject(subject)
            .filter(within)
            .flat_map(|point| point.seconds.iter().copied())
            .collect();
        if !seconds.is_empty() && has_all(group, subject) {
            series.push(Series::new(&subject.name, colour(table, subject), Mark::Line, bars(&seconds)));
        }
    }
    let most = values(&series, |p| p.1).fold(0.0, f64::max);
    let least_s = match number {
        14 => 2.1,
        15 => 2.5,
        _ => 3.3,
    };
    if series.is_empty() {
        return None;
    }
    let always = group.points.iter().filter_map(|x| Some(x.limit_seconds? * (1.0 - x.number(P)?)));
    let always_s = always.fold(f64::INFINITY, f64::min);
    if always_s.is_finite() {
        series.insert(0, Series::limit(vec![(always_s, 0.0), (always_s, most)]));
    }
    if is_the_papers(group) {
        series.push(paper("paper, least time with a wink", 0, &[(least_s, most / 2.0)]));
    }
    let of =
        if to_ms.is_finite() { format!("to {}", short(to_ms)) } else { format!("over {}", short(from_ms)) };
    let what = format!("Runs by time, i {of} ms (paper: 4.{number})");
    let figure = Figure {
        title: title(&what, group, table),
        x: Axis::between("time, seconds", 0.0, BARS_END_S, 2.0, short),
        y: Axis::from_zero("runs", values(&series, |p| p.1), short),
        series,
        shaded: Vec::new(),
        remark: format!(
            "Counted by {} s, of all probabilities. What took longer than the axis counts at its end.",
            short(BAR_S)
        ),
    };
    Some(plot(&format!("paper-4-{number}"), group, Drawing::Figure(figure)))
}

/// The outline of a histogram.
fn bars(seconds: &[f64]) -> Vec<(f64, f64)> {
    let count = (BARS_END_S / BAR_S).round() as usize;
    let mut bars = vec![0.0; count];
    for s in seconds {
        let place = ((s / BAR_S) as usize).min(count - 1);
        if let Some(bar) = bars.get_mut(place) {
            *bar += 1.0;
        }
    }
    (0u32..).zip(&bars).flat_map(|(n, bar)| [0, 1].map(|side| (f64::from(n + side) * BAR_S, *bar))).collect()
}

/// A number of the paper's text, and of which of our cells ours are.
struct Told {
    from: &'static str,
    what: &'static str,
    /// As it is written there, without seconds.
    paper: &'static str,
    cc: &'static str,
    p: f64,
    /// Which intervals, ms.
    intervals: (f64, f64),
    variant: &'static str,
    figure: fn(&[f64]) -> Option<f64>,
}

fn least(values: &[f64]) -> Option<f64> {
    values.iter().copied().reduce(f64::min)
}

const ALONE: &str = "direct";
const AS_PAPER: &str = "farlink-custody-paper";
const ANY_P: f64 = f64::NAN;
const ALL: (f64, f64) = (0.0, f64::INFINITY);

const fn told(from: &'static str, what: &'static str, paper: &'static str) -> Told {
    Told { from, what, paper, cc: "cubic", p: 0.4, intervals: ALL, variant: ALONE, figure: mean }
}

/// What the text of chapter 4 says in numbers. The paper's BIC is compared with CUBIC, which came
/// after it.
const TOLD: [Told; 15] = [
    Told { p: 0.0, ..told("4.5", "hosts alone, no winks", "1.86") },
    Told { p: 0.05, ..told("figure 4.1", "hosts alone, p 0.05, mean over intervals", "3") },
    told("figure 4.1", "hosts alone, p 0.4, mean over intervals", "10"),
    Told {
        intervals: (40.0, 40.0),
        ..told("table 4.1", "BIC alone, p 0.4, 40 ms", "217.6; 193 in figure 4.21")
    },
    Told {
        cc: "reno",
        intervals: (40.0, 40.0),
        ..told("4.7", "Reno alone, p 0.4, 40 ms", "27; 40 nearby in 4.8")
    },
    Told {
        intervals: (200.0, 250.0),
        ..told("5.2.3", "alone, p 0.4, valley from 200 to 250 ms", "2 to 3 x 1.86")
    },
    Told {
        intervals: (500.0, 600.0),
        ..told("5.2.3", "alone, p 0.4, valley from 500 to 600 ms", "2 to 3 x 1.86")
    },
    Told {
        p: ANY_P,
        intervals: (0.1, 200.0),
        figure: least,
        ..told("figure 4.14", "alone, least time, i to 200 ms", "2.1")
    },
    Told {
        p: ANY_P,
        intervals: (201.0, 500.0),
        figure: least,
        ..told("figure 4.15", "alone, least time, i to 500 ms", "2.5")
    },
    Told {
        p: ANY_P,
        intervals: (501.0, 1e9),
        figure: least,
        ..told("figure 4.16", "alone, least time, i over 500 ms", "3.3")
    },
    Told { p: 0.0, variant: AS_PAPER, ..told("4.7", "BIC with custody, no winks", "4.7") },
    Told {
        cc: "reno",
        intervals: (40.0, 40.0),
        variant: AS_PAPER,
        ..told("4.7", "Reno with custody, p 0.4, 40 ms", "below 10")
    },
    Told {
        cc: "unfair",
        intervals: (40.0, 40.0),
        variant: AS_PAPER,
        ..told("4.7", "Unfair with custody, p 0.4, 40 ms", "7")
    },
    Told {
        cc: "unfair",
        intervals: (620.0, 620.0),
        variant: AS_PAPER,
        ..told("4.7", "Unfair with custody, p 0.4, 620 ms", "5.8")
    },
    Told {
        cc: "unfair",
        variant: AS_PAPER,
        ..told("4.8", "Unfair with custody, p 0.4, mean over intervals", "about 6")
    },
];

impl Told {
    /// Of the cells of a variant at these points: one value for each cell's mean.
    fn of(&self, report: &Report, variant: &str, cc: Option<&str>) -> Option<f64> {
        let number =
            |cell: &CellReport, name: &str| cell.params.get(name).and_then(serde_json::Value::as_f64);
        let is_meant = |cell: &&CellReport| {
            let (p, ms) = (number(cell, P).unwrap_or(-1.0), number(cell, I).unwrap_or(-1.0));
            cell.variant == variant
                && cc.is_none_or(|cc| cell.params.get("host_cc").and_then(|v| v.as_str()) == Some(cc))
                && number(cell, "size_bytes") == Some(PAPER_SIZE_BYTES as f64)
                && number(cell, "rate_bps") == Some(PAPER_RATE_BPS as f64)
                && number(cell, "rtt_ms") == Some(RTT_MS)
                && cell.params.get("ip").is_none_or(|ip| ip.as_u64() != Some(6))
                && (self.p == p || (self.p.is_nan() && p > 0.0))
                && (p == 0.0 || (self.intervals.0 <= ms && ms <= self.intervals.1))
        };
        let seconds = report.cells.iter().filter(is_meant).filter_map(|cell| cell.seconds);
        // With a wink: what met none took the time of a link that is always there.
        let with_winks: Vec<f64> = seconds.filter(|s| !self.p.is_nan() || *s > PERFECT_S).collect();
        (self.figure)(&with_winks)
    }
}

/// The numbers of the text beside ours; empty for other scenarios.
pub(super) fn numbers_of_the_text(report: &Report) -> String {
    let shown = |value: Option<f64>| value.map_or("-".into(), |s| format!("{s:.2}"));
    let mut rows = String::new();
    for told in &TOLD {
        let ours = told.of(report, told.variant, Some(told.cc));
        let custody = told.of(report, "farlink-custody", None);
        if ours.is_some() {
            rows += &format!(
                "<tr><th>{}</th><td>{}</td><td>{}</td><td><b>{}</b></td><td>{}</td></tr>\n",
                escaped(told.from),
                escaped(told.what),
                escaped(told.paper),
                shown(ours),
                shown(custody)
            );
        }
    }
    if rows.is_empty() {
        return rows;
    }
    format!(
        "<h3>Beside the numbers in Reynolds' text</h3>\n<div class=\"wide\"><table class=\"cells\">\n<tr><th>from</th><th>what</th>\
         <th>paper, s</th><th>ours, s</th><th>Farlink's custody there, s</th></tr>\n{rows}</table></div>\n"
    )
}
