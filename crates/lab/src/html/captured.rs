//! Plots of what captures saw: the time-sequence of a transfer, and those of all variants in one
//! plot.

use super::figure::{Axis, COOL, Figure, Mark, Series};
use super::plots::{Drawing, Plot, colour};
use super::subjects::{Point, Role, Table};
use super::words::{conditions, short, slug};
use crate::capture::Trace;
use crate::limit::Packets;
use crate::scenario::Params;

/// All plots of these transfers; each with the number of its cell in the report.
pub(super) fn all(table: &Table, traces: &[(usize, Trace)]) -> Vec<Plot> {
    let seen: Vec<Seen<'_>> =
        traces.iter().filter_map(|(cell, trace)| Seen::of(table, *cell, trace)).collect();
    let size = |seen: &Seen<'_>| seen.trace.delivered.last().map_or(0.0, |p| p.1);
    let largest = seen.iter().map(size).fold(0.0, f64::max);
    let largest: Vec<Seen<'_>> = seen.into_iter().filter(|s| size(s) > 0.9 * largest).collect();
    let single = largest.iter().map(time_sequence);
    single.chain((largest.len() > 1).then(|| time_sequences(table, &largest))).collect()
}

/// A transfer, and what it was one of.
struct Seen<'a> {
    trace: &'a Trace,
    point: &'a Point,
    /// The conditions that vary, in words.
    of: String,
}

impl<'a> Seen<'a> {
    fn of(table: &'a Table, cell: usize, trace: &'a Trace) -> Option<Self> {
        let point = table.points.get(*table.of_cell.get(cell)?)?;
        let mut varied: Params = point.conditions.clone();
        varied.retain(|name, _| table.varied.contains(name));
        Some(Self { trace, point, of: conditions(&varied) })
    }

    fn name(&self) -> String {
        let subject = &self.point.subject.name;
        if self.of.is_empty() { subject.clone() } else { format!("{subject}, {}", self.of) }
    }

    /// At the limit data flows at the full rate and ends at the limit.
    fn limit(&self) -> Option<Vec<(f64, f64)>> {
        let (size, rate) =
            (self.point.number("size_bytes")?, self.point.number("rate_bps").filter(|r| *r > 0.0)?);
        if self.point.number("flows").is_some_and(|n| n > 1.0) {
            // The limit is that of all of them together.
            return None;
        }
        let packets = Packets { mtu: 1500, v6: self.point.number("ip") == Some(6.0), timestamps: true };
        let end = self.point.limit_seconds?;
        Some(vec![((end - 8.0 * size / rate / packets.eta(size as u64)).max(0.0), 0.0), (end, size / 1e6)])
    }
}

fn time_sequence(seen: &Seen<'_>) -> Plot {
    let mut series: Vec<_> = seen.limit().map(Series::limit).into_iter().collect();
    series.push(Series::new("acknowledged", COOL[1], Mark::Line, seen.trace.acked.clone()));
    series.push(Series::new("sent into the link", COOL[0], Mark::Dots, seen.trace.sent.clone()));
    series.push(Series::new("delivered", COOL[3], Mark::Dots, seen.trace.delivered.clone()));
    let title = format!("Time-sequence: {}", seen.name());
    plot(format!("time-sequence-{}", slug(&seen.name())), title, "place in the stream, megabytes", series)
}

fn time_sequences(table: &Table, all: &[Seen<'_>]) -> Plot {
    let limit = all.iter().filter_map(Seen::limit).max_by(|a, b| end(a).total_cmp(&end(b)));
    let mut series: Vec<_> = limit.map(Series::limit).into_iter().collect();
    let same = all.first().map(|s| &s.of).filter(|of| all.iter().all(|s| s.of == **of));
    for seen in all {
        let name = if same.is_some() { seen.point.subject.name.clone() } else { seen.name() };
        let mark = if seen.point.subject.role == Role::Other { Mark::Dashed } else { Mark::Line };
        let points = seen.trace.delivered.clone();
        series.push(Series::new(&name, colour(table, &seen.point.subject), mark, points));
    }
    let title = match same {
        Some(of) if !of.is_empty() => format!("Data delivered over time: {of}"),
        _ => "Data delivered over time".into(),
    };
    plot("time-sequence".into(), title, "delivered, megabytes", series)
}

fn end(line: &[(f64, f64)]) -> f64 {
    line.last().map_or(0.0, |p| p.0)
}

fn plot(name: String, title: String, y: &str, mut series: Vec<Series>) -> Plot {
    series.retain(|s| !s.points.is_empty());
    let all = |of: fn(&(f64, f64)) -> f64| series.iter().flat_map(move |s| s.points.iter().map(of));
    let (x, y) = (
        Axis::from_zero("time since the SYN, seconds", all(|p| p.0), short),
        Axis::from_zero(y, all(|p| p.1), short),
    );
    let remark = "The limit: the link's rate, and the last byte when nothing can be faster.".into();
    Plot { name, drawing: Drawing::Figure(Figure { title, x, y, series, shaded: Vec::new(), remark }) }
}
