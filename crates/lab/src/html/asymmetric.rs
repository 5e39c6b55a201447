//! What a slow return link leaves of a download, by models, over what was measured: goodput by the
//! rate of the return link, a figure for each round-trip time.

use anyhow::{Context, Result, bail};
use serde::Serialize;

use super::draw;
use super::figure::{Axis, BLACK, COOL, Figure, Mark, Series, WARM};
use super::input::Source;
use super::subjects::{Point, Table};
use super::words::{self, short};
use crate::model::asymmetric::{Asymmetric, Size};
use crate::model::grid::Spread;

/// Rates of the return link at which lines of models are calculated.
const STEPS: u32 = 100;

/// What one subject came to under one condition.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Measured {
    /// What ran.
    pub subject: String,
    /// Rate of the return link, bit/s.
    pub rate_up_bps: f64,
    /// Round-trip time, seconds.
    pub rtt_s: f64,
    /// Payload bits per second.
    pub goodput_bps: Spread,
    /// Payload for each acknowledgement that the return link carried, bytes.
    pub payload_per_ack_bytes: Option<f64>,
}

/// The results of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct Results {
    /// Rate towards the client, bit/s.
    pub rate_bps: f64,
    /// Cells that came to their end.
    pub measured: Vec<Measured>,
}

/// What models can be compared with in the results of a run.
///
/// # Errors
/// A file that is not the result of a run, or has several rates towards the client or sizes.
pub fn results(source: &Source) -> Result<Results> {
    read(&Table::of_run(source)?).with_context(|| source.name.clone())
}

fn read(table: &Table) -> Result<Results> {
    table.only("size_bytes")?;
    let measured: Vec<_> = table.points.iter().filter_map(|point| of_point(table, point)).collect();
    if measured.is_empty() {
        bail!("no cell with a return link of its own (`rate_up_bps`) came to its end");
    }
    Ok(Results { rate_bps: table.only("rate_bps")?, measured })
}

fn of_point(table: &Table, point: &Point) -> Option<Measured> {
    // What else tells the cells apart, such as the client's window.
    let others = table.varied.iter().filter(|name| !["rate_up_bps", "rtt_ms"].contains(&name.as_str()));
    let others = others.filter_map(|name| Some((name.clone(), point.conditions.get(name)?.clone())));
    let under = words::conditions(&others.collect());
    let name = &point.subject.name;
    let per_ack = point.metrics.get("payload_per_ack").map_or(&[][..], Vec::as_slice);
    Some(Measured {
        subject: if under.is_empty() { name.clone() } else { format!("{name}, {under}") },
        rate_up_bps: point.number("rate_up_bps")?,
        rtt_s: point.number("rtt_ms")? / 1e3,
        goodput_bps: Spread::of(&point.goodput_bps)?,
        payload_per_ack_bytes: Spread::of(per_ack).map(|spread| spread.mean),
    })
}

/// A figure for each round-trip time, as SVG files: names (without ending) and texts. `links`: the
/// link with each of its round-trip times; `rates`: return links, bit/s; `command`: what makes them
/// again.
///
/// # Errors
/// A figure that cannot be drawn.
pub fn plots(
    links: &[Asymmetric],
    rates: &[f64],
    measured: &[Measured],
    (under, command): (&str, &str),
) -> Result<Vec<(String, String)>> {
    let mut files = Vec::new();
    for link in links {
        let of: Vec<&Measured> = measured.iter().filter(|m| (m.rtt_s - link.rtt_s).abs() < 1e-9).collect();
        let figure = figure(link, rates, &of, under);
        let name = format!("asymmetric-rtt-{}-ms", words::slug(&short(link.rtt_s * 1e3)));
        files.push((name, draw::alone(&draw::figure(&figure)?, &figure.title, command)));
    }
    Ok(files)
}

/// The goodput of a size, Mbit/s, by the rate of the return link, kbit/s, between two rates in
/// bit/s.
pub(super) fn goodput(
    link: &Asymmetric,
    (low, high): (f64, f64),
    of: &dyn Fn(&Asymmetric) -> Option<Size>,
) -> Vec<(f64, f64)> {
    let step = |n: u32| low * (high / low).powf(f64::from(n) / f64::from(STEPS));
    let at = |n: u32| {
        let size = of(&Asymmetric { rate_up_bps: step(n), ..*link })?;
        Some((step(n) / 1e3, size.goodput_bps / 1e6))
    };
    (0..=STEPS).filter_map(at).collect()
}

fn figure(link: &Asymmetric, rates: &[f64], measured: &[&Measured], under: &str) -> Figure {
    let all = || rates.iter().copied().chain(measured.iter().map(|m| m.rate_up_bps));
    let (low, high) = (all().fold(f64::INFINITY, f64::min), all().fold(0.0, f64::max));
    let line = |of: &dyn Fn(&Asymmetric) -> Option<Size>| goodput(link, (low, high), of);
    let mut series = vec![
        Series::new("model: best size", BLACK, Mark::Line, line(&Asymmetric::best)),
        Series::new("model: not cut (1 packet)", COOL[0], Mark::Line, line(&|l| l.of(1))),
        Series::new("model: 3 packets, the paper's", COOL[1], Mark::Dashed, line(&|l| l.of(3))),
    ];
    let mut subjects: Vec<&str> = measured.iter().map(|m| m.subject.as_str()).collect();
    subjects.sort_unstable();
    subjects.dedup();
    for (subject, colour) in subjects.into_iter().zip(WARM.iter().cycle()) {
        let own = measured.iter().filter(|m| m.subject == subject);
        let points = own.map(|m| (m.rate_up_bps / 1e3, m.goodput_bps.mean / 1e6)).collect();
        series.push(Series::new(&format!("{subject}, measured"), *colour, Mark::Bold, points));
    }
    let xs = || series.iter().flat_map(|s| s.points.iter().map(|at| at.0));
    let ys = || series.iter().flat_map(|s| s.points.iter().map(|at| at.1));
    Figure {
        title: format!("Goodput by the rate of the return link, RTT {} ms: {under}", short(link.rtt_s * 1e3)),
        x: Axis::log("return link, kbit/s", xs(), short),
        y: Axis::from_zero("goodput, Mbit/s", ys(), short),
        series,
        shaded: Vec::new(),
        remark:
            "Models have hosts that acknowledge every second segment, and each one that is cut. They leave \
                 out handshakes and slow start, and acknowledgements that are lost on a full queue."
                .into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::asymmetric::Losses;

    fn source(cells: &serde_json::Value) -> Source {
        let report = json!({ "scenario": "asymmetric", "title": "t", "driver": "sim", "seed": 1, "version": "0", "cells": cells });
        Source { name: "r.json".into(), text: report.to_string() }
    }

    fn cell(variant: &str, rate_up_bps: u64, rtt_ms: u64, goodput_bps: f64) -> serde_json::Value {
        json!({
            "params": { "size_bytes": 10_000_000, "rate_bps": 8_000_000, "rate_up_bps": rate_up_bps, "rtt_ms": rtt_ms,
                "host_cc": "cubic", "gateways": 0 },
            "variant": variant, "repeat": 0, "seed": 1, "seconds": 8e7 / goodput_bps, "goodput_bps": goodput_bps,
            "limit_seconds": 2.0, "ratio_to_limit": 2.0, "intact": true, "paper_seconds": null,
            "metrics": { "payload_per_ack": 2888.0 }
        })
    }

    #[test]
    fn measurements_stand_beside_the_lines_of_their_round_trip_time() {
        let cells = json!([
            cell("direct", 32_000, 0, 1.8e6),
            cell("direct", 64_000, 0, 3.5e6),
            cell("farlink", 32_000, 500, 7e6)
        ]);
        let read = results(&source(&cells)).unwrap();
        assert_eq!((read.rate_bps, read.measured.len()), (8e6, 3));
        assert_eq!(read.measured[0].payload_per_ack_bytes, Some(2888.0));
        let link = |rtt_s| Asymmetric {
            rate_bps: 8e6,
            rate_up_bps: 32e3,
            rtt_s,
            mtu_bytes: 1500,
            is_v6: false,
            has_timestamps: true,
            window_bytes: None,
            losses: Losses::Fragment(0.0),
            acks_per_oversized: 1.0,
        };
        let links = [0.0, 0.5, 0.7].map(link);
        let told = ("8 Mbit/s", "farlink model asymmetric");
        let files = plots(&links, &[32e3, 128e3], &read.measured, told).unwrap();
        let names: Vec<_> = files.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["asymmetric-rtt-0-ms", "asymmetric-rtt-500-ms", "asymmetric-rtt-700-ms"]);
        let has_measured = files.iter().map(|(_, text)| text.contains(", measured")).collect::<Vec<_>>();
        assert_eq!(has_measured, [true, true, false]);
        assert!(files[1].1.contains("Made by: farlink model"));
    }

    #[test]
    fn what_cannot_be_compared_is_refused_with_the_reason() {
        let refused = |cells| format!("{:#}", results(&source(&cells)).unwrap_err());
        let mut other = cell("direct", 32_000, 0, 1e6);
        other["params"]["size_bytes"] = json!(1);
        assert!(refused(json!([cell("direct", 32_000, 0, 1e6), other])).contains("--only size_bytes="));
        assert!(refused(json!([])).contains("no cells"));
    }
}
