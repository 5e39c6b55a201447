//! Plots of a flow: time-sequence, windows, rates, queue.

use super::figure::{Axis, BLACK, COOL, Figure, Mark, Series, WARM};
use super::plots::{Drawing, Plot};
use super::words::{short, slug};
use farlink_gateway::flow_trace::{DirectionTrace, Event, FlowTrace, Sample};

/// A direction that carried less than this part of the other (one over it) is a request, and its
/// plots would be empty.
const CARRIED_SHARE: u64 = 100;

/// What is more than so many times everything else in a plot is left out of it.
const FAR_ABOVE: f64 = 3.0;

/// All plots of a traced flow.
pub(super) fn all(trace: &FlowTrace) -> Vec<Plot> {
    let most = trace.directions.iter().map(carried_bytes).max().unwrap_or(0);
    let drawn = trace.directions.iter().filter(|d| carried_bytes(d) >= most / CARRIED_SHARE);
    drawn.flat_map(|direction| of_direction(trace, direction)).flatten().collect()
}

/// Payload that was sent for the first time.
fn carried_bytes(direction: &DirectionTrace) -> u64 {
    let first = |event: &Event| match event {
        Event::Sent { from, to, .. } => to.saturating_sub(*from),
        _ => 0,
    };
    direction.events.iter().map(first).sum()
}

fn of_direction(trace: &FlowTrace, direction: &DirectionTrace) -> [Option<Plot>; 3] {
    let limit = trace.limit.filter(|l| l.bytes > 0);
    let line = limit.map(|l| vec![(l.from_seconds, 0.0), (l.until_seconds, l.bytes as f64 / 1e6)]);
    // A rate of bytes of payload, as far as that limit goes.
    let rate = limit.map(|l| 8.0 * l.bytes as f64 / (l.until_seconds - l.from_seconds).max(1e-9) / 1e6);
    [time_sequence(direction, line), windows(trace, direction), rates(direction, rate)]
}

fn plot(kind: &str, direction: &DirectionTrace, figure: Figure) -> Option<Plot> {
    let has_points = figure.series.iter().any(|s| !s.points.is_empty() && s.colour != BLACK);
    has_points
        .then(|| Plot { name: format!("{kind}-{}", slug(&direction.name)), drawing: Drawing::Figure(figure) })
}

fn figure(title: String, y: &str, mut series: Vec<Series>, remark: &str) -> Figure {
    series.retain(|s| !s.points.is_empty());
    let all = |of: fn(&(f64, f64)) -> f64| series.iter().flat_map(move |s| s.points.iter().map(of));
    Figure {
        title,
        x: Axis::from_zero("time, seconds", all(|p| p.0), short),
        y: Axis::from_zero(y, all(|p| p.1), short),
        shaded: Vec::new(),
        remark: remark.into(),
        series,
    }
}

fn time_sequence(direction: &DirectionTrace, limit: Option<Vec<(f64, f64)>>) -> Option<Plot> {
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    let pick = |of: fn(&Event) -> Option<(f64, u64)>| -> Vec<(f64, f64)> {
        direction.events.iter().filter_map(of).map(|(t, to)| (t, megabytes(to))).collect()
    };
    let sent = pick(|e| if let Event::Sent { t, to, .. } = *e { Some((t, to)) } else { None });
    let repeated = pick(|e| if let Event::Repeated { t, from, .. } = *e { Some((t, from)) } else { None });
    let acked = pick(|e| if let Event::Acked { t, to } = *e { Some((t, to)) } else { None });
    let timed_out = pick(|e| if let Event::TimedOut { t, from, .. } = *e { Some((t, from)) } else { None });
    let mut series: Vec<_> = limit.map(Series::limit).into_iter().collect();
    series.push(Series::new("acknowledged", COOL[1], Mark::Line, acked));
    series.push(Series::new("sent", COOL[0], Mark::Dots, sent));
    series.push(Series::new("sent again", WARM[0], Mark::Bold, repeated));
    series.push(Series::new("retransmission timeout", WARM[1], Mark::Bold, timed_out));
    let lost = match direction.events_lost {
        0 => String::new(),
        n => format!(" {n} events were not kept because the log was full."),
    };
    let remark = format!(
        "The limit: the link's rate, from the first byte on; what is sent cannot be above it but for a burst.{lost}"
    );
    plot(
        "time-sequence",
        direction,
        figure(
            format!("Time-sequence: {}", direction.name),
            "place in the stream, megabytes",
            series,
            &remark,
        ),
    )
}

fn sampled(direction: &DirectionTrace, of: fn(&Sample) -> f64) -> Vec<(f64, f64)> {
    direction.samples.iter().map(|s| (s.t, of(s))).collect()
}

fn windows(trace: &FlowTrace, direction: &DirectionTrace) -> Option<Plot> {
    let kilobytes = |name: &str, colour, mark, of: fn(&Sample) -> f64| {
        Series::new(name, colour, mark, sampled(direction, of))
    };
    let end = direction.samples.last().map_or(0.0, |s| s.t);
    let bdp = trace.limit.map_or(0, |l| l.bdp_bytes) as f64 / 1e3;
    let bdp_line = if bdp > 0.0 { vec![(0.0, bdp), (end, bdp)] } else { Vec::new() };
    let mut series = vec![
        Series::limit(bdp_line),
        kilobytes("in flight", COOL[0], Mark::Line, |s| s.in_flight_bytes as f64 / 1e3),
        kilobytes("in custody, in flight included", COOL[1], Mark::Line, |s| s.custody_bytes as f64 / 1e3),
        kilobytes("egress queue of the link, all flows", WARM[1], Mark::Line, |s| {
            s.link_queue_bytes as f64 / 1e3
        }),
    ];
    // A window far above everything else does not limit anything, and would only flatten the plot.
    let most = series.iter().flat_map(|s| s.points.iter().map(|p| p.1)).fold(0.0, f64::max);
    let window = kilobytes("congestion window", COOL[3], Mark::Dashed, |s| s.cwnd_bytes as f64 / 1e3);
    let left_out = window.points.iter().any(|p| p.1 > FAR_ABOVE * most);
    series.extend((!left_out).then_some(window));
    let remark = format!(
        "The limit here: bandwidth times delay of the link, which has to be in flight to fill it. Sampled by a timer.{}",
        if left_out {
            " A congestion window far above all this, which limits nothing, is not drawn."
        } else {
            ""
        }
    );
    plot(
        "windows",
        direction,
        figure(format!("Windows and queue: {}", direction.name), "kilobytes", series, &remark),
    )
}

fn rates(direction: &DirectionTrace, limit: Option<f64>) -> Option<Plot> {
    let end =
        direction.events.last().map_or(0.0, Event::at).max(direction.samples.last().map_or(0.0, |s| s.t));
    let bin = (end / 60.0).max(0.05);
    let mut series = Vec::new();
    if let Some(limit) = limit {
        series.push(Series::limit(vec![(0.0, limit), (end, limit)]));
    }
    let sent = |e: &Event| match *e {
        Event::Sent { t, from, to } | Event::Repeated { t, from, to } => Some((t, to.saturating_sub(from))),
        Event::Acked { .. }
        | Event::TimedOut { .. }
        | Event::Recovers { .. }
        | Event::Explicit { .. }
        | Event::Doubted { .. } => None,
    };
    let mut before = None;
    let mut delivered = Vec::new();
    for event in &direction.events {
        if let Event::Acked { t, to } = *event {
            delivered.push((t, before.map_or(0, |b| to.saturating_sub(b))));
            before = Some(to);
        }
    }
    let sent = binned(direction.events.iter().filter_map(sent), bin, end);
    series.push(Series::new("sent, with repetitions", COOL[0], Mark::Line, sent));
    series.push(Series::new("acknowledged", COOL[1], Mark::Line, binned(delivered.into_iter(), bin, end)));
    let paced = direction.samples.iter().filter(|s| s.pacing_bps > 0);
    // A pace far above everything else would only flatten the plot.
    let most = series.iter().flat_map(|s| s.points.iter().map(|p| p.1)).fold(0.0, f64::max);
    let paced: Vec<_> =
        paced.map(|s| (s.t, s.pacing_bps as f64 / 1e6)).filter(|p| p.1 <= FAR_ABOVE * most).collect();
    series.push(Series::new("paced at", COOL[3], Mark::Dashed, paced));
    let remark = format!("Payload, in bins of {} s.", short(bin));
    plot("rate", direction, figure(format!("Rate: {}", direction.name), "Mbit/s of payload", series, &remark))
}

/// Mbit/s by bin.
fn binned(events: impl Iterator<Item = (f64, u64)>, bin: f64, end: f64) -> Vec<(f64, f64)> {
    let bins = ((end / bin).ceil() as usize).clamp(1, 10_000);
    let mut sums = vec![0u64; bins];
    for (t, bytes) in events {
        sums[((t / bin) as usize).min(bins - 1)] += bytes;
    }
    let at = |n: usize| (n as f64 + 0.5) * bin;
    sums.into_iter().enumerate().map(|(n, sum)| (at(n), 8.0 * sum as f64 / bin / 1e6)).collect()
}
