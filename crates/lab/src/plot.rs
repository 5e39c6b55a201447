//! Plots of a report: completion time against size with the limit drawn, and time-sequence plots from the captures.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;

use crate::capture::{Findings, FlowKey, Moment};
use crate::report::{CellReport, Report};
use crate::workload::Outcome;

/// Size of a plot in pixels.
const SIZE: (u32, u32) = (960, 600);
/// Colours that differ for most eyes (Okabe and Ito), black kept for the limit.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(120, 120, 120),
];

type Canvas<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// Points of a line: seconds or bytes, by what the axes say.
type Points = Vec<(f64, f64)>;

/// One transfer as the captures saw it: seconds since its first packet, and megabytes of its data.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Trace {
    /// Data as it leaves for the link, repetitions included.
    pub sent: Points,
    /// Data as it leaves the last gateway for its receiver.
    pub delivered: Points,
    /// What is acknowledged, as it leaves the receiver's side for the link.
    pub acked: Points,
}

impl Trace {
    /// The first transfer's. `None` when the captures kept nothing of it.
    #[must_use]
    pub fn of(findings: &Findings, outcomes: &[Outcome]) -> Option<Self> {
        let local = outcomes.first()?.local?;
        let is_ours = |key: &FlowKey| key.a == local || key.b == local;
        let streams: Vec<_> = findings.streams.iter().filter(|(_, key, ..)| is_ours(key)).collect();
        let start = streams.iter().map(|(.., s)| s.first_at_ns).min()?;
        let (_, _, data_direction, _) = streams.iter().max_by_key(|(.., s)| s.end_max)?;
        let points = |moments: &[Moment], acks: bool| -> Points {
            let wanted = moments.iter().filter(|m| m.is_ack == acks);
            wanted.map(|m| (m.at_ns.saturating_sub(start) as f64 / 1e9, m.place as f64 / 1e6)).collect()
        };
        // The sender's side sees the data first, the receiver's side last.
        let mut data: Vec<_> = streams.iter().filter(|(_, _, d, _)| d == data_direction).collect();
        data.sort_by_key(|(.., s)| s.moments.iter().find(|m| !m.is_ack).map(|m| m.at_ns));
        let back = streams.iter().filter(|(_, _, d, _)| d != data_direction);
        let back = back.min_by_key(|(.., s)| s.moments.iter().find(|m| m.is_ack).map(|m| m.at_ns));
        Some(Self {
            sent: data.first().map(|(.., s)| points(&s.moments, false)).unwrap_or_default(),
            delivered: data.last().map(|(.., s)| points(&s.moments, false)).unwrap_or_default(),
            acked: back.map(|(.., s)| points(&s.moments, true)).unwrap_or_default(),
        })
    }
}

/// Writes every plot that the report has data for.
pub fn write_all(report: &Report, traces: &[(String, Trace)], directory: &Path) -> Result<()> {
    let series = completion_series(report);
    if series.values().any(|points| points.len() > 1) {
        completion_time(
            report,
            &series,
            &directory.join(format!("{}-completion-time.svg", report.scenario)),
        )?;
    }
    let largest = largest_transfers(traces);
    for (name, trace) in &largest {
        let file: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        time_sequence(name, trace, &directory.join(format!("{}-time-sequence-{file}.svg", report.scenario)))?;
    }
    if largest.len() > 1 {
        let path = directory.join(format!("{}-time-sequence.svg", report.scenario));
        time_sequences(report, &largest, &path)?;
    }
    Ok(())
}

fn label(cell: &CellReport) -> String {
    let word = |name: &str| cell.params.get(name).and_then(|v| v.as_str()).unwrap_or("");
    match cell.variant.as_str() {
        "direct" if word("hosts") == "legacy" => "hosts alone, legacy".into(),
        "direct" => format!("hosts alone, {}", word("host_cc")),
        "farlink" => "two gateways".into(),
        "farlink-one-sided" => "one gateway".into(),
        other => other.into(),
    }
}

/// By variant: size in bytes and mean seconds.
fn completion_series(report: &Report) -> BTreeMap<String, Points> {
    let mut sums: BTreeMap<String, BTreeMap<u64, (f64, f64)>> = BTreeMap::new();
    for cell in &report.cells {
        let size = cell.params.get("size_bytes").and_then(serde_json::Value::as_u64);
        if let (Some(size), Some(seconds)) = (size, cell.seconds) {
            let sum = sums.entry(label(cell)).or_default().entry(size).or_default();
            *sum = (sum.0 + seconds, sum.1 + 1.0);
        }
    }
    let mean = |sizes: BTreeMap<u64, (f64, f64)>| {
        sizes.into_iter().map(|(s, (sum, n))| (s as f64, sum / n)).collect()
    };
    sums.into_iter().map(|(name, sizes)| (name, mean(sizes))).collect()
}

fn limit_line(report: &Report) -> Points {
    let mut limits: BTreeMap<u64, f64> = BTreeMap::new();
    for cell in &report.cells {
        let size = cell.params.get("size_bytes").and_then(serde_json::Value::as_u64);
        if let (Some(size), Some(limit)) = (size, cell.limit_seconds) {
            // Hosts of different kinds have slightly different limits: the greatest stands for all.
            let entry = limits.entry(size).or_insert(limit);
            *entry = entry.max(limit);
        }
    }
    limits.into_iter().map(|(size, limit)| (size as f64, limit)).collect()
}

/// Labels of a logarithmic axis: 1, 2 and 5 of each decade, so that they do not run into each other.
fn sparse(value: f64) -> String {
    let mantissa = value / 10f64.powf(value.log10().floor());
    let is_wanted = [1.0, 2.0, 5.0, 10.0].iter().any(|m| (mantissa - m).abs() < 1e-6);
    if is_wanted { format!("{value}") } else { String::new() }
}

fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)))
}

fn completion_time(report: &Report, series: &BTreeMap<String, Points>, path: &Path) -> Result<()> {
    let limit = limit_line(report);
    let all = || series.values().flatten().chain(&limit);
    let (x0, x1) = range(all().map(|p| p.0));
    let (y0, y1) = range(all().map(|p| p.1));
    let drawn = |canvas: &Canvas<'_>| -> Result<(), Box<dyn std::error::Error>> {
        canvas.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(canvas)
            .caption(&report.title, ("sans-serif", 20))
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(
                ((x0 * 0.8)..(x1 * 1.25)).log_scale(),
                ((y0 * 0.7)..(y1 * 1.4)).log_scale(),
            )?;
        chart
            .configure_mesh()
            .x_desc("size, bytes")
            .y_desc("completion time, seconds")
            .x_label_formatter(&|v| sparse(*v))
            .y_label_formatter(&|v| sparse(*v))
            .light_line_style(WHITE)
            .draw()?;
        chart
            .draw_series(LineSeries::new(limit.clone(), BLACK.stroke_width(3)))?
            .label("physical limit")
            .legend(|(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], BLACK.stroke_width(3)));
        for ((name, points), colour) in series.iter().zip(COLOURS.iter().cycle()) {
            let colour = *colour;
            chart
                .draw_series(LineSeries::new(points.clone(), colour.stroke_width(2)).point_size(4))?
                .label(name)
                .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], colour.stroke_width(2)));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.85))
            .border_style(BLACK.mix(0.3))
            .draw()?;
        Ok(canvas.present()?)
    };
    write(path, drawn)
}

fn write(
    path: &Path,
    draw: impl FnOnce(&Canvas<'_>) -> Result<(), Box<dyn std::error::Error>>,
) -> Result<()> {
    let canvas = SVGBackend::new(path, SIZE).into_drawing_area();
    draw(&canvas).map_err(|e| anyhow!("{}: {e}", path.display()))
}

/// A line of a time plot.
struct Line<'a> {
    name: &'a str,
    points: &'a Points,
    colour: RGBColor,
    as_dots: bool,
}

fn time_sequence(name: &str, trace: &Trace, path: &Path) -> Result<()> {
    let lines = [
        Line { name: "sent into the link", points: &trace.sent, colour: COLOURS[0], as_dots: true },
        Line { name: "delivered", points: &trace.delivered, colour: COLOURS[2], as_dots: true },
        Line { name: "acknowledged", points: &trace.acked, colour: COLOURS[1], as_dots: false },
    ];
    time_plot(&format!("time-sequence: {name}"), &lines, None, path)
}

/// The transfers of the largest size, one for each variant.
fn largest_transfers(traces: &[(String, Trace)]) -> Vec<&(String, Trace)> {
    let size = |t: &Trace| t.delivered.last().map_or(0.0, |p| p.1);
    let largest = traces.iter().map(|(_, t)| size(t)).fold(0.0, f64::max);
    traces.iter().filter(|(_, t)| size(t) > 0.9 * largest).collect()
}

fn time_sequences(report: &Report, traces: &[&(String, Trace)], path: &Path) -> Result<()> {
    let colours = COLOURS.iter().cycle();
    let lines: Vec<_> = traces
        .iter()
        .zip(colours)
        .map(|((name, trace), colour)| Line {
            name,
            points: &trace.delivered,
            colour: *colour,
            as_dots: false,
        })
        .collect();
    // At the limit data flows at the full rate and ends at the limit.
    let largest = report.cells.iter().filter_map(|c| {
        let size = c.params.get("size_bytes")?.as_f64()?;
        let rate = c.params.get("rate_bps")?.as_f64()?;
        Some((size, c.limit_seconds?, rate))
    });
    let limit =
        largest.max_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1))).map(|(size, end, rate)| {
            let start = end - 8.0 * size / rate / 0.965;
            vec![(start, 0.0), (end, size / 1e6)]
        });
    time_plot("data delivered", &lines, limit, path)
}

fn time_plot(title: &str, lines: &[Line<'_>], limit: Option<Points>, path: &Path) -> Result<()> {
    let all = || lines.iter().flat_map(|l| l.points).chain(limit.iter().flatten());
    let (_, x1) = range(all().map(|p| p.0));
    let (_, y1) = range(all().map(|p| p.1));
    if !x1.is_finite() || !y1.is_finite() || x1 <= 0.0 || y1 <= 0.0 {
        return Ok(());
    }
    let drawn = |canvas: &Canvas<'_>| -> Result<(), Box<dyn std::error::Error>> {
        canvas.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(canvas)
            .caption(title, ("sans-serif", 20))
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(0.0..x1 * 1.03, 0.0..y1 * 1.05)?;
        chart
            .configure_mesh()
            .x_desc("seconds since the SYN")
            .y_desc("megabytes")
            .light_line_style(WHITE)
            .draw()?;
        if let Some(limit) = &limit {
            chart
                .draw_series(LineSeries::new(limit.clone(), BLACK.stroke_width(2)))?
                .label("physical limit")
                .legend(|(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], BLACK.stroke_width(2)));
        }
        for line in lines {
            let colour = line.colour;
            let series = if line.as_dots {
                chart.draw_series(line.points.iter().map(|p| Circle::new(*p, 1, colour.filled())))?
            } else {
                chart.draw_series(LineSeries::new(line.points.clone(), colour.stroke_width(2)))?
            };
            series
                .label(line.name)
                .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], colour.stroke_width(2)));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerRight)
            .background_style(WHITE.mix(0.85))
            .border_style(BLACK.mix(0.3))
            .draw()?;
        Ok(canvas.present()?)
    };
    write(path, drawn)
}
