//! Models over measurements: for each probability the time by interval, and the time over a perfect
//! sender's.

use anyhow::{Context, Result, bail};

use super::draw;
use super::figure::{Axis, BLACK, COOL, Figure, Mark, Series, WARM};
use super::input::Source;
use super::subjects::{Point as Run, Table};
use super::words::{self, short};
use crate::model::grid::{Measured, Point, Results, Spread, Transfer};
use crate::model::wink::Winks;

/// What models can be compared with in the results of a run.
///
/// # Errors
/// A file that is not the result of a run, or has no winks, or several sizes, rates or round-trip
/// times.
pub fn results(source: &Source) -> Result<Results> {
    read(&Table::of_run(source)?).with_context(|| source.name.clone())
}

fn read(table: &Table) -> Result<Results> {
    let points: Vec<_> = table.points.iter().filter_map(|run| measured(table, run)).collect();
    if points.is_empty() {
        bail!("no cell of a link that winks (`wink_p`, `wink_i_ms`) came to its end");
    }
    let (size, rate) = (table.only("size_bytes")?, table.only("rate_bps")?);
    Ok(Results { size_bytes: size as u64, rate_bps: rate as u64, rtt_s: table.only("rtt_ms")? / 1e3, points })
}

fn measured(table: &Table, run: &Run) -> Option<(f64, f64, Measured)> {
    // What else tells the cells apart, such as IPv6.
    let others = table.varied.iter().filter(|name| !["wink_p", "wink_i_ms"].contains(&name.as_str()));
    let others = others.filter_map(|name| Some((name.clone(), run.conditions.get(name)?.clone())));
    let under = words::conditions(&others.collect());
    let name = &run.subject.name;
    let interval_ms = run.number("wink_i_ms").filter(|ms| *ms > 0.0)?;
    let ratios = run.metrics.get("ratio_to_perfect").map_or(&[][..], Vec::as_slice);
    let measured = Measured {
        subject: if under.is_empty() { name.clone() } else { format!("{name}, {under}") },
        seconds: Spread::of(&run.seconds)?,
        ratio_to_perfect: Spread::of(ratios),
    };
    Some((run.number("wink_p")?, interval_ms, measured))
}

/// Intervals at which the lines of models are calculated, between the shortest and the longest of
/// the points.
const STEPS: u32 = 200;

/// Two figures for each probability, as SVG files: names (without ending) and texts. `under`: the
/// conditions in words; `command`: what makes them again.
///
/// # Errors
/// A figure that cannot be drawn.
pub fn plots(
    transfer: &Transfer,
    points: &[Point],
    under: &str,
    command: &str,
) -> Result<Vec<(String, String)>> {
    let mut ps: Vec<f64> = points.iter().map(|point| point.p).collect();
    ps.dedup();
    let mut files = Vec::new();
    for p in ps {
        let of: Vec<&Point> = points.iter().filter(|point| point.p == p).collect();
        let models = between(transfer, p, &of)?;
        for (what, figure) in
            [("seconds", seconds(&models, &of, under)), ("ratio", ratios(&models, &of, under))]
        {
            let name = format!("wink-{what}-p-{}", words::slug(&short(p)));
            files.push((name, draw::alone(&draw::figure(&figure)?, &figure.title, command)));
        }
    }
    Ok(files)
}

/// What models say from the shortest to the longest interval of the points: their valleys lie
/// between.
fn between(transfer: &Transfer, p: f64, points: &[&Point]) -> Result<Vec<Point>> {
    let all_ms = || points.iter().map(|point| point.interval_ms);
    let (low, high) = (all_ms().fold(f64::INFINITY, f64::min), all_ms().fold(0.0, f64::max));
    let step = |n: u32| low * (high / low).powf(f64::from(n) / f64::from(STEPS));
    let mut intervals_ms: Vec<f64> = (0..=STEPS).map(step).chain(all_ms()).collect();
    intervals_ms.sort_by(f64::total_cmp);
    intervals_ms.dedup();
    let of = |ms: &f64| -> Result<Point> { Ok(Point::of(transfer, Winks::new(p, ms / 1e3)?, &(0..0))) };
    intervals_ms.iter().map(of).collect()
}

/// Points by interval.
fn line(models: &[Point], of: impl Fn(&Point) -> f64) -> Vec<(f64, f64)> {
    models.iter().map(|point| (point.interval_ms, of(point))).filter(|(_, y)| y.is_finite()).collect()
}

/// What each subject measured, with extremes as a second series.
fn runs(points: &[&Point], of: impl Fn(&Measured) -> Option<Spread>) -> Vec<Series> {
    let mut subjects: Vec<&str> =
        points.iter().flat_map(|point| &point.measured).map(|measured| measured.subject.as_str()).collect();
    subjects.sort_unstable();
    subjects.dedup();
    let colours = WARM.iter().cycle();
    let mut all = Vec::new();
    for (subject, colour) in subjects.into_iter().zip(colours) {
        let spreads: Vec<(f64, Spread)> = points
            .iter()
            .flat_map(|point| point.measured.iter().map(move |measured| (point.interval_ms, measured)))
            .filter(|(_, measured)| measured.subject == subject)
            .filter_map(|(at, measured)| Some((at, of(measured)?)))
            .collect();
        let means = spreads.iter().map(|(at, spread)| (*at, spread.mean)).collect();
        let ends = spreads.iter().flat_map(|(at, spread)| [(*at, spread.min), (*at, spread.max)]).collect();
        let is_spread = spreads.iter().any(|(_, spread)| spread.runs > 1);
        all.push(Series::new(&format!("{subject}, measured"), *colour, Mark::Bold, means));
        if is_spread {
            all.push(Series::new("its least and greatest", *colour, Mark::Dots, ends));
        }
    }
    all
}

fn figure(title: String, y: &str, series: Vec<Series>, remark: &str) -> Figure {
    let ys = || series.iter().flat_map(|s| s.points.iter().map(|at| at.1));
    let xs = || series.iter().flat_map(|s| s.points.iter().map(|at| at.0));
    Figure {
        title,
        x: Axis::log("length of an interval i, ms", xs(), short),
        y: Axis::log(y, ys(), short),
        series,
        shaded: Vec::new(),
        remark: remark.into(),
    }
}

fn seconds(models: &[Point], points: &[&Point], under: &str) -> Figure {
    let p = points.first().map_or(0.0, |point| point.p);
    let model =
        |name: &str, colour, mark, of: fn(&Point) -> f64| Series::new(name, colour, mark, line(models, of));
    let mut series = vec![
        model("perfect, mean: t / (1 - p)", BLACK, Mark::Line, |x| x.perfect_s),
        model("hosts alone, paper (3.11)", WARM[3], Mark::Dashed, |x| x.paper_hosts_alone_s),
        model("hosts alone, by timers", COOL[1], Mark::Line, |x| x.timers_s),
        model("custody, paper (3.12)", WARM[2], Mark::Dashed, |x| x.paper_custody_s),
        model("custody, probing", COOL[0], Mark::Line, |x| x.probing_s),
    ];
    let seeds = |of: fn(&Spread) -> f64| {
        let spread = |x: &&Point| Some((x.interval_ms, of(x.perfect_seconds.as_ref()?)));
        points.iter().filter_map(spread).collect::<Vec<_>>()
    };
    if points.iter().any(|x| x.perfect_seconds.is_some()) {
        series.push(Series::new("perfect, mean of seeds", BLACK, Mark::Bold, seeds(|s| s.mean)));
        let ends = [seeds(|s| s.min), seeds(|s| s.max)].concat();
        series.push(Series::new("its least and greatest", BLACK, Mark::Dots, ends));
    }
    series.extend(runs(points, |measured| Some(measured.seconds)));
    let remark = "The paper's custody line lies below what nothing can beat on average. Single runs can.";
    figure(format!("Time by interval, p = {}: {under}", short(p)), "time, seconds", series, remark)
}

fn ratios(models: &[Point], points: &[&Point], under: &str) -> Figure {
    let p = points.first().map_or(0.0, |point| point.p);
    let model =
        |name: &str, colour, mark, of: fn(&Point) -> f64| Series::new(name, colour, mark, line(models, of));
    let mut series = vec![
        Series::limit(line(models, |_| 1.0)),
        model("custody: 1 + p (d/2 + r) / i", COOL[0], Mark::Line, |x| x.probing_ratio),
        model("hosts alone, by timers", COOL[1], Mark::Line, |x| x.timers_s / x.perfect_s),
        model("hosts alone, paper (3.11)", WARM[3], Mark::Dashed, |x| x.paper_hosts_alone_s / x.perfect_s),
        model("custody, paper (3.12)", WARM[2], Mark::Dashed, |x| x.paper_custody_s / x.perfect_s),
    ];
    series.extend(runs(points, |measured| measured.ratio_to_perfect));
    let remark = "Measured times are over the perfect sender's with the same winks.";
    let title = format!("Time over a perfect sender's, p = {}: {under}", short(p));
    figure(title, "time over a perfect sender's, ratio", series, remark)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::grid::{PAPER_RATE_BPS, PAPER_SIZE_BYTES, points};
    use crate::settings::WinkAt;
    use serde_json::json;

    fn source(cells: &serde_json::Value) -> Source {
        let report = json!({ "scenario": "wink", "title": "t", "driver": "sim", "seed": 1, "version": "0", "cells": cells });
        Source { name: "r.json".into(), text: report.to_string() }
    }

    fn cell(p: f64, interval_ms: f64, size: u64, seconds: f64) -> serde_json::Value {
        json!({
            "params": { "wink_p": p, "wink_i_ms": interval_ms, "size_bytes": size, "rate_bps": 100_000_000, "rtt_ms": 0.5,
                "host_cc": "cubic", "gateways": 0 },
            "variant": "direct", "repeat": 0, "seed": 1, "seconds": seconds, "goodput_bps": 1e6, "limit_seconds": 2.0,
            "ratio_to_limit": 2.0, "intact": true, "paper_seconds": null, "metrics": { "ratio_to_perfect": seconds / 2.0 }
        })
    }

    #[test]
    fn results_are_read_by_point() {
        let read =
            results(&source(&json!([cell(0.1, 40.0, 1000, 4.0), cell(0.1, 40.0, 1000, 8.0)]))).unwrap();
        assert_eq!((read.size_bytes, read.rate_bps, read.rtt_s), (1000, 100_000_000, 0.0005));
        let [(p, interval_ms, of)] = read.points.as_slice() else { panic!("{read:?}") };
        assert_eq!((*p, *interval_ms, of.seconds.mean, of.seconds.runs), (0.1, 40.0, 6.0, 2));
        assert_eq!(of.ratio_to_perfect.map(|r| r.mean), Some(3.0));
    }

    #[test]
    fn what_cannot_be_compared_is_refused_with_the_reason() {
        let refused = |cells| format!("{:#}", results(&source(&cells)).unwrap_err());
        let several = refused(json!([cell(0.1, 40.0, 1000, 4.0), cell(0.1, 40.0, 2000, 4.0)]));
        assert!(several.starts_with("r.json: ") && several.contains("--only size_bytes="), "{several}");
        assert!(refused(json!([cell(0.0, 0.0, 1000, 4.0)])).contains("a link that winks"));
        assert!(refused(json!([])).contains("no cells"));
    }

    #[test]
    fn each_probability_has_two_plots() {
        let results = results(&source(&json!([
            cell(0.4, 40.0, PAPER_SIZE_BYTES, 30.0),
            cell(0.4, 40.0, PAPER_SIZE_BYTES, 20.0)
        ])))
        .unwrap();
        let transfer = Transfer {
            size_bytes: PAPER_SIZE_BYTES,
            rate_bps: PAPER_RATE_BPS,
            rtt_s: 0.0005,
            probe_s: 0.01,
            wink_side: WinkAt::Entry,
        };
        let points = points(&transfer, (&[0.1, 0.4], &[0.04, 0.24, 1.1]), &(0..2), Some(&results)).unwrap();
        let files = plots(&transfer, &points, "20 MB", "farlink model wink").unwrap();
        let names: Vec<_> = files.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            names,
            ["wink-seconds-p-0-1", "wink-ratio-p-0-1", "wink-seconds-p-0-4", "wink-ratio-p-0-4"]
        );
        for part in [
            "measured",
            "custody, paper (3.12)",
            "its least and greatest",
            "t / (1 - p)",
            "Made by: farlink model",
        ] {
            assert!(files[2].1.contains(part), "{part}");
        }
        assert!(!files[0].1.contains("measured"));
    }
}
