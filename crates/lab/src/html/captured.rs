//! Plots of what captures saw: the time-sequence of a transfer, and those of all variants in one
//! plot.

use plotters::style::RGBColor;

use super::edge;
use super::figure::{Axis, Figure, Mark, Series};
use super::plots::{Drawing, Plot, colour};
use super::subjects::{Point, Role, Table};
use super::words::{conditions, short, slug};
use crate::capture::Trace;
use crate::limit::Packets;
use crate::scenario::Params;

/// What is no subject's: grey, and none of their colours.
const SENT: RGBColor = RGBColor(90, 90, 90);
const ACKED: RGBColor = RGBColor(170, 170, 170);

/// All plots of these transfers; each with the number of its cell in the report.
pub(super) fn all(table: &Table, traces: &[(usize, Trace)]) -> Vec<Plot> {
    let seen: Vec<Seen<'_>> =
        traces.iter().filter_map(|(cell, trace)| Seen::of(table, *cell, trace)).collect();
    let size = |seen: &Seen<'_>| seen.trace.arrived.last().map_or(0.0, |p| p.1);
    let largest = seen.iter().map(size).fold(0.0, f64::max);
    let largest: Vec<Seen<'_>> = seen.into_iter().filter(|s| size(s) > 0.9 * largest).collect();
    let single = largest.iter().map(|seen| time_sequence(table, seen));
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

/// What is delivered has the colour that its subject has everywhere.
fn time_sequence(table: &Table, seen: &Seen<'_>) -> Plot {
    let mut series: Vec<_> = seen.limit().map(Series::limit).into_iter().collect();
    series.push(Series::new("acknowledged", ACKED, Mark::Line, seen.trace.acked.clone()));
    series.push(Series::new("sent into the link", SENT, Mark::Dots, seen.trace.sent.clone()));
    let own = colour(table, &seen.point.subject);
    series.push(Series::new("delivered", own, Mark::Dots, seen.trace.delivered.clone()));
    let title = format!("Time-sequence: {}", seen.name());
    let name = format!("time-sequence-{}", slug(&seen.name()));
    plot(name, title, "place in the stream, megabytes", series, None)
}

fn time_sequences(table: &Table, all: &[Seen<'_>]) -> Plot {
    let limit = all.iter().filter_map(Seen::limit).max_by(|a, b| end(a).total_cmp(&end(b)));
    let mut series: Vec<_> = limit.map(Series::limit).into_iter().collect();
    let same = all.first().map(|s| &s.of).filter(|of| all.iter().all(|s| s.of == **of));
    for seen in all {
        let name = if same.is_some() { seen.point.subject.name.clone() } else { seen.name() };
        let mark = if seen.point.subject.role == Role::Other { Mark::Dashed } else { Mark::Line };
        let points = seen.trace.arrived.clone();
        series.push(Series::new(&name, colour(table, &seen.point.subject), mark, points));
    }
    let title = match same {
        Some(of) if !of.is_empty() => format!("Data delivered over time: {of}"),
        _ => "Data delivered over time".into(),
    };
    let fastest_s = all.iter().map(|s| end(&s.trace.arrived)).reduce(f64::min);
    plot("time-sequence".into(), title, "delivered, megabytes", series, fastest_s)
}

fn end(line: &[(f64, f64)]) -> f64 {
    line.last().map_or(0.0, |p| p.0)
}

fn plot(name: String, title: String, y: &str, mut series: Vec<Series>, fastest_s: Option<f64>) -> Plot {
    series.retain(|s| !s.points.is_empty());
    let cut = edge::cut(&mut series, fastest_s).unwrap_or_default();
    let all = |of: fn(&(f64, f64)) -> f64| series.iter().flat_map(move |s| s.points.iter().map(of));
    let (x, y) = (
        Axis::from_zero("time since the SYN, seconds", all(|p| p.0), short),
        Axis::from_zero(y, all(|p| p.1), short),
    );
    let remark = format!("The limit: the link's rate, and the last byte when nothing can be faster.{cut}");
    Plot { name, drawing: Drawing::Figure(Figure { title, x, y, series, shaded: Vec::new(), remark }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Report;

    /// Transfers of 1 MB that take so long, of variants in this order.
    fn plots(variants: &[(&str, f64)]) -> Vec<Figure> {
        let cell = |(variant, seconds): &(&str, f64)| {
            serde_json::from_value(serde_json::json!({
                "params": { "size_bytes": 1_000_000, "host_cc": "cubic", "rate_bps": 8_000_000 }, "variant": variant, "repeat": 0,
                "seed": 1, "seconds": seconds, "goodput_bps": 8e6 / seconds, "limit_seconds": 1.5, "ratio_to_limit": seconds / 1.5,
                "intact": true, "paper_seconds": null,
            }))
            .unwrap()
        };
        let report =
            Report { scenario: "s".into(), cells: variants.iter().map(cell).collect(), ..Report::default() };
        let trace = |(n, (_, seconds)): (usize, &(&str, f64))| {
            let arrived: Vec<_> = (0..=100).map(|n| f64::from(n) / 100.0).map(|x| (x * seconds, x)).collect();
            // The middle comes once more at the end.
            let delivered = arrived.iter().copied().chain([(*seconds, 0.5)]).collect();
            (n, Trace { sent: arrived.clone(), delivered, arrived, acked: vec![(0.1, 0.0), (*seconds, 1.0)] })
        };
        let traces: Vec<_> = variants.iter().enumerate().map(trace).collect();
        let figure = |plot: Plot| match plot.drawing {
            Drawing::Figure(figure) => figure,
            Drawing::HeatMap(_) => panic!("a heat map"),
        };
        all(&Table::of(&report), &traces).into_iter().map(figure).collect()
    }

    #[test]
    fn a_variant_has_one_colour_in_all_plots() {
        let variants = [("farlink", 2.0), ("direct", 6.0), ("farlink-one-sided", 2.5), ("haproxy", 5.0)];
        let mut plots = plots(&variants);
        let joint = plots.pop().unwrap();
        let of = |figure: &Figure, name: &str| {
            figure.series.iter().find(|s| s.name == name).map(|s| s.colour).unwrap()
        };
        let names = ["Farlink", "hosts alone, CUBIC", "Farlink, one gateway", "HAProxy"];
        let colours = names.map(|name| of(&joint, name));
        assert_eq!(plots.iter().map(|p| of(p, "delivered")).collect::<Vec<_>>(), colours);
        for (n, colour) in colours.iter().enumerate() {
            assert!(!colours[..n].contains(colour), "two have the same: {colours:?}");
            assert!(*colour != SENT && *colour != ACKED);
        }
    }

    #[test]
    fn one_slow_variant_leaves_room_for_the_others() {
        let joint = plots(&[("farlink", 2.0), ("haproxy", 3.0), ("direct", 60.0)]).pop().unwrap();
        let part = 2.0 / joint.x.ends.1;
        assert!(part > 0.3, "the fastest takes {part} of the axis");
        let slow = joint.series.iter().find(|s| s.name.starts_with("hosts alone")).unwrap();
        assert_eq!(slow.name, "hosts alone, CUBIC, ends at 60 s");
        assert_eq!(slow.points.last().map(|p| p.0), Some(6.0));
        assert!(joint.remark.contains("the legend says"), "{}", joint.remark);
        let whole = plots(&[("farlink", 2.0), ("direct", 6.0)]).pop().unwrap();
        assert!(whole.x.ends.1 > 6.0 && !whole.remark.contains("legend"), "{}", whole.remark);
    }

    #[test]
    fn what_was_delivered_never_becomes_less() {
        let joint = plots(&[("farlink", 2.0), ("direct", 6.0)]).pop().unwrap();
        for series in &joint.series {
            let is_rising = series.points.windows(2).all(|pair| pair[0].1 <= pair[1].1);
            assert!(is_rising, "{}", series.name);
        }
    }
}
