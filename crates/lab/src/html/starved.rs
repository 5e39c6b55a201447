//! A starved return link: goodput and acknowledgements by its rate, the data and what comes back by
//! time. These are the figures 8 to 12 of Hasegawa (IPSJ Digital Courier 2, 2006), of our runs,
//! with the numbers that the paper's text gives. Its curves have none.

use super::asymmetric;
use super::figure::{Axis, BLACK, Figure, Mark, Series, WARM};
use super::plots::{Drawing, Plot, colour, limit, line, plot, values};
use super::subjects::{Group, Point, Role, Subject, Table, mean};
use super::words::{conditions, escaped, short};
use crate::model::asymmetric::{Asymmetric, Losses, Size};
use crate::report::{CellReport, Report};

const UP: &str = "rate_up_bps";
/// More plots of a kind are thinned out to those of the largest transfers.
const PLOTS_MAX: usize = 12;
/// So many conditions are drawn by time: those in which most subjects ran.
const BY_TIME_MAX: usize = 8;
/// The data is drawn in steps of so many seconds.
const STEP_S: f64 = 0.5;
/// What takes longer than so many times the shortest transfer is cut off, for the rest to be seen.
const LONGEST: f64 = 6.0;
/// With more subjects acknowledgements would hide each other.
const SUBJECTS_WITH_ACKS: usize = 5;
/// Conditions that the models do not know.
const NOT_MODELLED: [&str; 5] = ["client_window", "link_mtu", "udp_percent", "fragment_loss", "direction"];

/// All of them.
pub(super) fn all(table: &Table) -> Vec<Plot> {
    if !table.points.iter().any(|point| point.starved.is_some()) {
        return Vec::new();
    }
    let size = |g: &Group<'_>| g.points.first().and_then(|p| p.number("size_bytes")).unwrap_or(0.0);
    let mut rates = table.groups(&[UP]);
    rates.retain(|group| group.numbers(UP).len() > 1);
    rates.sort_by(|a, b| size(b).total_cmp(&size(a)));
    rates.truncate(PLOTS_MAX);
    let mut plots: Vec<Plot> = rates.iter().map(|group| goodput(table, group)).collect();
    plots.extend(rates.iter().filter_map(|group| acknowledgements(table, group)));
    let mut times = table.groups(&[]);
    times.retain(|group| group.points.iter().any(|point| point.starved.is_some()));
    times.sort_by(|a, b| size(b).total_cmp(&size(a)).then(b.points.len().cmp(&a.points.len())));
    times.truncate(BY_TIME_MAX);
    for group in &times {
        plots.push(by_second(table, group));
        plots.push(coming_back(table, group));
        plots.push(sequence(table, group));
    }
    plots
}

/// The same with the return link's rate in kbit/s.
fn in_kbit(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    points.into_iter().map(|(bps, y)| (bps / 1e3, y)).collect()
}

fn mark(subject: &Subject) -> Mark {
    if subject.role == Role::Other { Mark::Dashed } else { Mark::Dotted }
}

fn goodput_mbps(point: &Point) -> Option<f64> {
    Some(mean(&point.goodput_bps)? / 1e6)
}

/// A title with the conditions that people look for. Others stand in the name of the case.
fn told_of(what: &str, group: &Group<'_>, table: &Table) -> String {
    let mut all = table.fixed.clone();
    all.extend(group.of.clone());
    all.retain(|name, value| match name.as_str() {
        "case" => value.as_str() != Some("paper"),
        "client_window" | "flows" => false,
        name => !name.starts_with("up.queue"),
    });
    format!("{what}: {}", conditions(&all))
}

fn rate_axis(series: &[Series]) -> Axis {
    Axis::log("return link, kbit/s", values(series, |p| p.0), short)
}

/// Figures 8 to 10.
fn goodput(table: &Table, group: &Group<'_>) -> Plot {
    let limit_mbps = |p: &Point| Some(8.0 * p.bytes()? / p.limit_seconds.filter(|s| *s > 0.0)? / 1e6);
    let mut series = vec![Series::limit(in_kbit(limit(group, UP, limit_mbps, false)))];
    series.extend(models(group));
    for subject in &table.subjects {
        let points = in_kbit(line(group, subject, UP, goodput_mbps));
        series.push(Series::new(&subject.name, colour(table, subject), mark(subject), points));
    }
    let is_the_papers = |case: &str| {
        let has = |name: &str, value: f64| group.points.iter().all(|p| p.number(name) == Some(value));
        let is_case = |p: &&Point| p.conditions.get("case").and_then(|v| v.as_str()) == Some(case);
        has("rtt_ms", 0.0) && has("rate_bps", 8e6) && group.points.iter().all(is_case)
    };
    for (number, (_, who, mbps)) in PAPER.into_iter().enumerate().filter(|(_, p)| is_the_papers(p.0)) {
        let points = vec![(32.0, mbps)];
        series.push(Series::new(who, WARM[number % WARM.len()], Mark::Paper, points));
    }
    series.retain(|s| !s.points.is_empty());
    let figure = Figure {
        title: told_of("Goodput by the rate of the return link", group, table),
        x: rate_axis(&series),
        y: Axis::from_zero("goodput, Mbit/s", values(&series, |p| p.1), short),
        series,
        shaded: Vec::new(),
        remark: "Figures 8 to 10 of the paper. The limit counts the packets of hosts, so larger segments, which have \
                 fewer headers, can be above it. Dashed lines are its equations for hosts that acknowledge each segment \
                 which is cut; they leave out handshakes and acknowledgements lost to a full queue."
            .into(),
    };
    plot("goodput-return", group, Drawing::Figure(figure))
}

/// The paper's equations over the same rates, where they hold.
fn models(group: &Group<'_>) -> Vec<Series> {
    let ups = group.numbers(UP);
    let (Some(first), [low, .., high]) = (group.points.first(), ups.as_slice()) else { return Vec::new() };
    let is_plain = NOT_MODELLED.iter().all(|name| first.number(name).is_none_or(|v| v == 0.0));
    let Some(rate_bps) = first.number("rate_bps").filter(|_| is_plain && *low > 0.0) else {
        return Vec::new();
    };
    let link = Asymmetric {
        rate_bps,
        rate_up_bps: *low,
        rtt_s: first.number("rtt_ms").unwrap_or(0.0) / 1e3,
        mtu_bytes: 1500,
        is_v6: first.number("ip") == Some(6.0),
        has_timestamps: true,
        window_bytes: None,
        losses: Losses::Fragment(0.0),
        acks_per_oversized: 1.0,
    };
    let of = |name: &str, colour, size: &dyn Fn(&Asymmetric) -> Option<Size>| {
        Series::new(name, colour, Mark::Dashed, asymmetric::goodput(&link, (*low, *high), size))
    };
    vec![
        of("equations: best size", BLACK, &Asymmetric::best),
        of("equations: 3 packets", WARM[3], &|link| link.of(3)),
        of("equations: 1 packet", WARM[4], &|link| link.of(1)),
    ]
}

/// Figure 11, by all rates.
fn acknowledgements(table: &Table, group: &Group<'_>) -> Option<Plot> {
    let mut series = Vec::new();
    for subject in &table.subjects {
        let number = |point: &Point| mean(point.metrics.get("link_ack_packets")?);
        let points = in_kbit(line(group, subject, UP, number));
        series.push(Series::new(&subject.name, colour(table, subject), mark(subject), points));
    }
    series.retain(|s| !s.points.is_empty());
    if series.is_empty() {
        return None;
    }
    let figure = Figure {
        title: told_of("Acknowledgements on the return link", group, table),
        x: rate_axis(&series),
        y: Axis::log("acknowledgements", values(&series, |p| p.1), short),
        series,
        shaded: Vec::new(),
        remark: "Figure 11 of the paper. Those that found no room in the queue are not counted.".into(),
    };
    Some(plot("acks-return", group, Drawing::Figure(figure)))
}

/// A line for each subject of a group that has one.
fn lines(
    table: &Table,
    group: &Group<'_>,
    what: &str,
    line: impl Fn(&Point) -> Vec<(f64, f64)>,
) -> Vec<Series> {
    let mut series = Vec::new();
    for subject in &table.subjects {
        let mark = if subject.role == Role::Other { Mark::Dashed } else { Mark::Line };
        for point in group.of_subject(subject) {
            let name = format!("{}{what}", subject.name);
            series.push(Series::new(&name, colour(table, subject), mark, line(point)));
        }
    }
    series.retain(|s| s.points.len() > 1);
    series
}

/// Up to which time is drawn.
fn end_s(group: &Group<'_>) -> f64 {
    let all = || group.points.iter().filter_map(|p| p.mean_seconds());
    let (least, most) = all().fold((f64::INFINITY, 0.0_f64), |(l, m), s| (l.min(s), m.max(s)));
    most.min(least * LONGEST)
}

fn by_time(
    of: (&Table, &Group<'_>),
    (what, file, y): (&str, &str, &str),
    mut series: Vec<Series>,
    remark: &str,
) -> Plot {
    let (table, group) = of;
    let end_s = end_s(group);
    for series in &mut series {
        series.points.retain(|(at, _)| *at <= end_s);
    }
    let figure = Figure {
        title: told_of(what, group, table),
        x: Axis::from_zero("time since the clock started, seconds", values(&series, |p| p.0), short),
        y: Axis::from_zero(y, values(&series, |p| p.1), short),
        series,
        shaded: Vec::new(),
        remark: remark.into(),
    };
    plot(file, group, Drawing::Figure(figure))
}

/// A level over the whole time.
fn level(group: &Group<'_>, value: Option<f64>) -> Option<Series> {
    let value = value.filter(|v| *v > 0.0)?;
    Some(Series::limit(vec![(0.0, value), (end_s(group), value)]))
}

fn rate_of(group: &Group<'_>, name: &str) -> Option<f64> {
    group.points.first().and_then(|p| p.number(name))
}

fn by_second(table: &Table, group: &Group<'_>) -> Plot {
    let line = |point: &Point| {
        let Some(starved) = point.starved.as_ref().filter(|s| s.step_s > 0.0) else { return Vec::new() };
        let each = (STEP_S / starved.step_s).round().max(1.0) as usize;
        let ends: Vec<u64> = starved.carried_bytes.iter().step_by(each).copied().collect();
        let length_s = each as f64 * starved.step_s;
        let of = |(n, pair): (usize, &[u64])| {
            let more = pair[1].saturating_sub(pair[0]) as f64;
            ((n + 1) as f64 * length_s, 8.0 * more / length_s / 1e6)
        };
        ends.windows(2).enumerate().map(of).collect()
    };
    let limit = level(group, rate_of(group, "rate_bps").map(|bps| bps / 1e6));
    let series = limit.into_iter().chain(lines(table, group, "", line)).collect();
    let remark = "A point for each half second, at its end. The limit is the link's rate.";
    let told = ("Throughput by time", "data-by-time", "carried towards the receiver, Mbit/s");
    by_time((table, group), told, series, remark)
}

fn coming_back(table: &Table, group: &Group<'_>) -> Plot {
    let line = |point: &Point| {
        let of = |(n, bps): (usize, &f64)| ((n + 1) as f64, bps / 1e3);
        point.starved.iter().flat_map(|s| s.return_bps.iter().enumerate().map(of)).collect()
    };
    let limit = level(group, rate_of(group, UP).map(|bps| bps / 1e3));
    let series = limit.into_iter().chain(lines(table, group, "", line)).collect();
    let remark = "A point for each second, at its end: acknowledgements, handshake and request. The limit is the return link's rate.";
    let told = ("What comes back by time", "return-by-time", "carried by the return link, kbit/s");
    by_time((table, group), told, series, remark)
}

/// Figure 12.
fn sequence(table: &Table, group: &Group<'_>) -> Plot {
    let steps = |point: &Point, of: fn(&crate::report::Starved) -> &[u64]| {
        let Some(starved) = &point.starved else { return Vec::new() };
        let at = |(n, bytes): (usize, &u64)| (n as f64 * starved.step_s, *bytes as f64 / 1e6);
        of(starved).iter().enumerate().map(at).collect()
    };
    let mut series = lines(table, group, ", data", |point| steps(point, |s| &s.carried_bytes));
    if group.points.len() <= SUBJECTS_WITH_ACKS {
        let mut acks = lines(table, group, ", ACKs", |point| steps(point, |s| &s.acked_bytes));
        for series in &mut acks {
            series.mark = Mark::Dots;
        }
        series.extend(acks);
    }
    let remark = "As figure 12 of the paper. Data: bytes that the link has carried, with headers. ACKs: payload that \
                  acknowledgements have confirmed when they left the return link.";
    let told = ("Time-sequence: data and acknowledgements", "sequence", "megabytes");
    by_time((table, group), told, series, remark)
}

/// A number of the paper's text, and ours of the same thing.
struct Told {
    from: &'static str,
    what: &'static str,
    paper: &'static str,
    ours: fn(&Report) -> Option<String>,
}

const NORMAL: &str = "farlink-one-sided";
const AS_PAPER: &str = "farlink-oversized-4420";
const LINUX: &str = "window 65,535";
const WINDOWS: &str = "window 17,520";
const SCALED: &str = "window 524,280";

/// What the text says of segments of 1,460 bytes at 32 kbit/s without a delay (6.1), with the case
/// that has the client's window.
const PAPER: [(&str, &str, f64); 3] = [
    (LINUX, "paper, FreeBSD, 1,460 bytes", 1.2),
    (LINUX, "paper, Linux 2.4, 1,460 bytes", 1.6),
    (WINDOWS, "paper, Windows 2000, 1,460 bytes", 2.2),
];

/// Cells are those of scenario `asymmetric`: variant, case, return link in kbit/s, round trip in
/// ms.
type At = (&'static str, &'static str, u64, u64);

const TOLD: [Told; 9] = [
    Told {
        from: "6.1",
        what: "client #1 (FreeBSD), 1,460 bytes, 32 kbit/s, no delay",
        paper: "1.2 Mbit/s, 266,188 bytes of ACKs",
        ours: |_| None,
    },
    Told {
        from: "6.1",
        what: "client #2 (Linux 2.4), the same",
        paper: "1.6 Mbit/s, 200,928 bytes of ACKs",
        ours: |report| rate_and_acks(report, (NORMAL, LINUX, 32, 0)),
    },
    Told {
        from: "6.1",
        what: "client #3 (Windows 2000), the same",
        paper: "2.2 Mbit/s, 143,800 bytes of ACKs",
        ours: |report| rate_and_acks(report, (NORMAL, WINDOWS, 32, 0)),
    },
    Told {
        from: "5.3",
        what: "4,420 bytes over 1,460, client #2, 32 kbit/s",
        paper: "about 3",
        ours: |report| ratio(report, goodput_of, (AS_PAPER, LINUX, 32, 0), (NORMAL, LINUX, 32, 0)),
    },
    Told {
        from: "figure 11",
        what: "ACKs with 4,420 bytes over those with 1,460, client #2, 32 kbit/s",
        paper: "about 1/3; FreeBSD 1/2",
        ours: |report| ratio(report, acks_of, (AS_PAPER, LINUX, 32, 0), (NORMAL, LINUX, 32, 0)),
    },
    Told {
        from: "figure 11",
        what: "the same, client #3",
        paper: "about 1/3",
        ours: |report| ratio(report, acks_of, (AS_PAPER, WINDOWS, 32, 0), (NORMAL, WINDOWS, 32, 0)),
    },
    Told {
        from: "figures 9, 10",
        what: "client #2, 500 ms, 128 kbit/s: sent ahead over a window of 524,280 bytes",
        paper: "1.05 to 1.09",
        ours: |report| ahead(report, 128),
    },
    Told {
        from: "figures 9, 10",
        what: "the same, 64 kbit/s",
        paper: "1.05 to 1.09",
        ours: |report| ahead(report, 64),
    },
    Told {
        from: "figures 9, 10",
        what: "the same, 32 kbit/s",
        paper: "1.05 to 1.09",
        ours: |report| ahead(report, 32),
    },
];

fn goodput_of(cell: &CellReport) -> Option<f64> {
    cell.goodput_bps
}

fn acks_of(cell: &CellReport) -> Option<f64> {
    cell.metrics.get("link_ack_packets").copied()
}

/// The mean of a quantity over the runs of a cell.
fn of_cell(
    report: &Report,
    of: impl Fn(&CellReport) -> Option<f64>,
    (variant, case, up, rtt): At,
) -> Option<f64> {
    let number = |cell: &CellReport, name: &str| cell.params.get(name).and_then(serde_json::Value::as_f64);
    let is_meant = |cell: &&CellReport| {
        cell.variant == variant
            && cell.params.get("case").and_then(|v| v.as_str()) == Some(case)
            && number(cell, UP) == Some(1e3 * up as f64)
            && number(cell, "rtt_ms") == Some(rtt as f64)
            && number(cell, "rate_bps") == Some(8e6)
            && number(cell, "size_bytes") == Some(1e7)
            && number(cell, "ip") != Some(6.0)
    };
    mean(&report.cells.iter().filter(is_meant).filter_map(of).collect::<Vec<_>>())
}

fn rate_and_acks(report: &Report, at: At) -> Option<String> {
    let bytes = of_cell(report, |cell| cell.metrics.get("link_ack_bytes").copied(), at)?;
    Some(format!("{:.2} Mbit/s, {bytes:.0} bytes of ACKs", of_cell(report, goodput_of, at)? / 1e6))
}

fn ratio(report: &Report, of: fn(&CellReport) -> Option<f64>, over: At, under: At) -> Option<String> {
    let under = of_cell(report, of, under).filter(|v| *v > 0.0)?;
    Some(format!("{:.2}", of_cell(report, of, over)? / under))
}

/// With the size of the paper where the window is waited for, and adaptive where it is not.
fn ahead(report: &Report, up: u64) -> Option<String> {
    ratio(report, goodput_of, ("farlink-ahead", LINUX, up, 500), (AS_PAPER, SCALED, up, 500))
}

/// The numbers of the text beside ours; empty for other scenarios.
pub(super) fn numbers_of_the_text(report: &Report) -> String {
    if TOLD.iter().all(|told| (told.ours)(report).is_none()) {
        return String::new();
    }
    let mut rows = String::new();
    for told in &TOLD {
        rows += &format!(
            "<tr><th>{}</th><td>{}</td><td>{}</td><td><b>{}</b></td></tr>\n",
            escaped(told.from),
            escaped(told.what),
            escaped(told.paper),
            escaped(&(told.ours)(report).unwrap_or("-".into())),
        );
    }
    format!(
        "<h3>Beside the numbers in Hasegawa's text</h3>\n<p>8 Mbit/s down, 10 MB. Our clients have the paper's windows, \
         timestamps, and acknowledge each segment of 4,420 bytes.</p>\n<div class=\"wide\"><table class=\"cells\">\n\
         <tr><th>from</th><th>what</th><th>paper</th><th>ours</th></tr>\n{rows}</table></div>\n"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cell(variant: &str, case: &str, up: u64, goodput_bps: f64, acks: f64) -> CellReport {
        serde_json::from_value(json!({
            "params": { "size_bytes": 10_000_000, "rate_bps": 8_000_000, "rate_up_bps": up, "rtt_ms": 0, "host_cc": "cubic",
                "gateways": 1, "case": case },
            "variant": variant, "repeat": 0, "seed": 1, "seconds": 8e7 / goodput_bps, "goodput_bps": goodput_bps,
            "limit_seconds": 10.0, "ratio_to_limit": 2.0, "intact": true, "paper_seconds": null,
            "metrics": { "link_ack_packets": acks, "link_ack_bytes": 52.0 * acks },
            "starved": { "return_bps": [8_000.0, 4_000.0], "acks": [20, 10], "step_s": 0.25,
                "carried_bytes": [0, 50_000, 100_000, 300_000, 500_000], "acked_bytes": [0, 0, 40_000, 90_000, 300_000] },
        }))
        .unwrap()
    }

    fn report() -> Report {
        let cells = vec![
            cell(NORMAL, LINUX, 32_000, 1e6, 3_000.0),
            cell(NORMAL, LINUX, 128_000, 4e6, 3_000.0),
            cell(AS_PAPER, LINUX, 32_000, 3e6, 2_000.0),
        ];
        Report { scenario: "asymmetric".into(), cells, ..Report::default() }
    }

    fn figure(plots: &[Plot], name: &str) -> Figure {
        let plot = plots.iter().find(|p| p.name.starts_with(name));
        let Some(Drawing::Figure(figure)) = plot.map(|p| &p.drawing) else { panic!("no {name}") };
        figure.clone()
    }

    #[test]
    fn goodput_and_acknowledgements_stand_over_the_rate_of_the_return_link() {
        let plots = all(&Table::of(&report()));
        let goodput = figure(&plots, "goodput-return");
        let of = |name: &str| goodput.series.iter().find(|s| s.name == name).map(|s| s.points.clone());
        assert_eq!(of("Farlink, one gateway"), Some(vec![(32.0, 1.0), (128.0, 4.0)]));
        assert_eq!(of("paper, Linux 2.4, 1,460 bytes").unwrap()[0], (32.0, 1.6));
        assert!(of("equations: 1 packet").unwrap().len() > 10);
        let acks = figure(&plots, "acks-return");
        assert_eq!(acks.series[1].points, [(32.0, 2_000.0)]);
    }

    #[test]
    fn data_and_acknowledgements_go_by_time() {
        let plots = all(&Table::of(&report()));
        let data = figure(&plots, "data-by-time");
        assert_eq!(data.series[0].points[0], (0.0, 8.0));
        assert_eq!(data.series[1].points, [(0.5, 1.6), (1.0, 6.4)]);
        let back = figure(&plots, "return-by-time");
        assert_eq!(back.series[1].points, [(1.0, 8.0), (2.0, 4.0)]);
        let sequence = figure(&plots, "sequence");
        let acks = sequence.series.iter().find(|s| s.name.ends_with(", ACKs")).unwrap();
        assert_eq!((acks.mark, acks.points[2]), (Mark::Dots, (0.5, 0.04)));
    }

    #[test]
    fn the_papers_words_stand_beside_ours() {
        let text = numbers_of_the_text(&report());
        for part in ["1.00 Mbit/s, 156000 bytes of ACKs", "<b>3.00</b>", "<b>0.67</b>", "about 1/3"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(numbers_of_the_text(&Report::default()), "");
        assert!(all(&Table::of(&Report::default())).is_empty());
    }
}
