//! Which plots a run has data for.

use plotters::style::RGBColor;

use super::figure::{Axis, COOL, Figure, HeatMap, LIMIT, Mark, Series, WARM};
use super::subjects::{Group, Point, Role, Subject, Table, deviation, mean, numbers};
use super::words::{bytes, condition, conditions, plain, rate, short};

/// More plots of one kind than this are thinned out to those of the largest transfers.
const PLOTS_MAX: usize = 12;
/// Runs of a cell from which on their distribution is drawn.
const RUNS_FOR_CDF: usize = 10;
/// Cells from which on the distribution of their ratios is drawn.
const CELLS_FOR_CDF: usize = 5;
/// So much of its light has a colour that is given a second time.
const DARKER: f64 = 0.6;

/// A plot with the name of its file.
pub(super) struct Plot {
    pub(super) name: String,
    pub(super) drawing: Drawing,
}

/// What is to be drawn.
pub(super) enum Drawing {
    Figure(Figure),
    HeatMap(HeatMap),
}

/// All plots of a run, by kind.
pub(super) fn all(table: &Table) -> Vec<Plot> {
    let mut plots = completion_times(table);
    for name in table.varied.iter().filter(|n| !["size_bytes", "wink_p", "wink_i_ms"].contains(&n.as_str())) {
        plots.extend(sweep(table, name));
    }
    plots.extend(heat_maps(table));
    plots.extend(super::winks::all(table));
    plots.extend(distributions(table));
    plots.extend(ratios(table));
    plots.extend(super::held::plot(table));
    plots.extend(super::progress::all(table));
    plots.extend(super::starved::all(table));
    plots
}

/// Colour of a subject, the same in all plots of a page, and nobody else's.
pub(super) fn colour(table: &Table, subject: &Subject) -> RGBColor {
    let ours = subject.role == Role::Ours;
    let same_side = table.coloured.iter().filter(|s| (s.role == Role::Ours) == ours);
    let number = same_side.take_while(|s| *s != subject).count();
    let colours: &[RGBColor] = if ours { &COOL } else { &WARM };
    // Where there are more of them than colours, the next round is darker.
    let darker = DARKER.powi((number / colours.len()) as i32);
    let RGBColor(r, g, b) = colours[number % colours.len()];
    let [r, g, b] = [r, g, b].map(|part| (f64::from(part) * darker).round() as u8);
    RGBColor(r, g, b)
}

fn mark(subject: &Subject) -> Mark {
    if subject.role == Role::Other { Mark::Dashed } else { Mark::Dotted }
}

pub(super) fn title(what: &str, group: &Group<'_>, table: &Table) -> String {
    let mut all = table.fixed.clone();
    all.extend(group.of.clone());
    let of = conditions(&all);
    if of.is_empty() { what.into() } else { format!("{what}: {of}") }
}

/// Mean of a quantity by a numeric condition, in its order.
pub(super) fn line(
    group: &Group<'_>,
    subject: &Subject,
    x: &str,
    y: impl Fn(&Point) -> Option<f64>,
) -> Vec<(f64, f64)> {
    let mut line: Vec<_> = group.of_subject(subject).filter_map(|p| Some((p.number(x)?, y(p)?))).collect();
    line.sort_by(|a, b| a.0.total_cmp(&b.0));
    line
}

/// The limit by a numeric condition. Hosts of different kinds have slightly different headers: the
/// least limit stands for all.
pub(super) fn limit(
    group: &Group<'_>,
    x: &str,
    y: impl Fn(&Point) -> Option<f64>,
    least: bool,
) -> Vec<(f64, f64)> {
    let mut limits: Vec<(f64, f64)> = Vec::new();
    for (at, value) in group.points.iter().filter_map(|p| Some((p.number(x)?, y(p)?))) {
        match limits.iter_mut().find(|(known, _)| *known == at) {
            Some((_, known)) if least => *known = known.min(value),
            Some((_, known)) => *known = known.max(value),
            None => limits.push((at, value)),
        }
    }
    limits.sort_by(|a, b| a.0.total_cmp(&b.0));
    limits
}

pub(super) fn values(series: &[Series], of: impl Fn(&(f64, f64)) -> f64 + Copy) -> impl Iterator<Item = f64> {
    series.iter().flat_map(move |s| s.points.iter().map(of))
}

fn completion_times(table: &Table) -> Vec<Plot> {
    if table.values_of("size_bytes") < 2 {
        return Vec::new();
    }
    let groups = table.groups(&["size_bytes"]);
    groups.iter().flat_map(|g| [completion_time(table, g), time_over_limit(table, g)]).flatten().collect()
}

fn completion_time(table: &Table, group: &Group<'_>) -> Option<Plot> {
    let x = "size_bytes";
    let mut series = vec![Series::limit(limit(group, x, |p| p.limit_seconds, true))];
    for subject in &table.subjects {
        let points = line(group, subject, x, Point::mean_seconds);
        series.push(Series::new(&subject.name, colour(table, subject), mark(subject), points));
    }
    series.extend(papers(table, group, x, |p| p.paper_seconds));
    series.retain(|s| !s.points.is_empty());
    let figure = Figure {
        title: title("Completion time against size", group, table),
        x: Axis::log("size of the transfer, bytes", values(&series, |p| p.0), bytes),
        y: Axis::log("completion time, seconds", values(&series, |p| p.1), short),
        series,
        shaded: Vec::new(),
        remark: "Both axes are logarithmic. Nothing lies below the limit by more than the clock's error."
            .into(),
    };
    let is_line = figure.series.iter().any(|s| s.points.len() > 1 && s.name != LIMIT);
    is_line.then(|| plot("completion-time", group, Drawing::Figure(figure)))
}

/// What the paper measured for each subject, once where it is the same for several.
fn papers(table: &Table, group: &Group<'_>, x: &str, y: fn(&Point) -> Option<f64>) -> Vec<Series> {
    let mut papers: Vec<Series> = Vec::new();
    let mut known: Vec<Vec<(f64, f64)>> = Vec::new();
    for subject in &table.subjects {
        let points = line(group, subject, x, y);
        if !known.contains(&points) {
            known.push(points.clone());
            let name = format!("paper, for {}", subject.name);
            papers.push(Series::new(&name, colour(table, subject), Mark::Paper, points));
        }
    }
    papers
}

/// The same over the limit, where differences can be seen.
fn time_over_limit(table: &Table, group: &Group<'_>) -> Option<Plot> {
    let x = "size_bytes";
    let mut series = vec![Series::limit(limit(group, x, |p| p.limit_seconds.map(|_| 1.0), true))];
    for subject in &table.subjects {
        let points = line(group, subject, x, Point::mean_ratio);
        series.push(Series::new(&subject.name, colour(table, subject), mark(subject), points));
    }
    series
        .extend(papers(table, group, x, |p| Some(p.paper_seconds? / p.limit_seconds.filter(|l| *l > 0.0)?)));
    series.retain(|s| !s.points.is_empty());
    let figure = Figure {
        title: title("Time over the limit against size", group, table),
        x: Axis::log("size of the transfer, bytes", values(&series, |p| p.0), bytes),
        y: Axis::log("completion time over the limit, ratio", values(&series, |p| p.1), short),
        series,
        shaded: Vec::new(),
        remark: "Both axes are logarithmic. The limit is 1; times of the paper are over the same limit."
            .into(),
    };
    let is_line = figure.series.iter().any(|s| s.points.len() > 1 && s.name != LIMIT);
    is_line.then(|| plot("ratio", group, Drawing::Figure(figure)))
}

pub(super) fn plot(kind: &str, group: &Group<'_>, drawing: Drawing) -> Plot {
    let of = super::words::slug(&conditions(&group.of));
    Plot { name: format!("{kind}{}{of}", if of.is_empty() { "" } else { "-" }), drawing }
}

/// What is drawn against a condition.
struct Sweep {
    what: &'static str,
    file: &'static str,
    /// Names of the axes.
    x: String,
    y: &'static str,
    log_x: bool,
    log_y: bool,
    /// A limit is the least that can be, not the most.
    least: bool,
    value: fn(&Point) -> Option<f64>,
    deviation: fn(&Point) -> Option<f64>,
    limit: fn(&Point) -> Option<f64>,
    /// What the paper has.
    paper: fn(&Point) -> Option<f64>,
    /// How to read it, where that is not as always.
    remark: &'static str,
}

fn goodput_mbps(p: &Point) -> Option<f64> {
    Some(mean(&p.goodput_bps)? / 1e6)
}

fn goodput_deviation_mbps(p: &Point) -> Option<f64> {
    Some(deviation(&p.goodput_bps)? / 1e6)
}

fn limit_mbps(p: &Point) -> Option<f64> {
    Some(8.0 * p.bytes()? / p.limit_seconds.filter(|l| *l > 0.0)? / 1e6)
}

fn flow_goodput_mbps(p: &Point) -> Option<f64> {
    Some(mean(p.metrics.get("flow_goodput_bps")?)? / 1e6)
}

fn flow_deviation_mbps(p: &Point) -> Option<f64> {
    Some(mean(p.metrics.get("flow_goodput_deviation_bps")?)? / 1e6)
}

fn flow_limit_mbps(p: &Point) -> Option<f64> {
    Some(limit_mbps(p)? / p.number("flows").filter(|n| *n > 0.0)?)
}

fn sweep_of(name: &str) -> Sweep {
    let goodput = Sweep {
        what: "Goodput",
        file: "goodput",
        x: super::words::heading(name),
        y: "goodput, Mbit/s",
        log_x: true,
        log_y: false,
        least: false,
        value: goodput_mbps,
        deviation: goodput_deviation_mbps,
        limit: limit_mbps,
        paper: |_| None,
        remark: "",
    };
    match name {
        "loss" => Sweep {
            what: "Goodput against loss",
            file: "goodput-loss",
            x: "probability that a packet is lost, %".into(),
            ..goodput
        },
        "ber" => Sweep {
            what: "Goodput against bit errors",
            file: "goodput-ber",
            x: "bit error rate, errors per bit".into(),
            ..goodput
        },
        "rate_bps" => Sweep {
            what: "Goodput against the link's rate",
            file: "goodput-rate",
            x: "rate of the link, bit/s".into(),
            log_y: true,
            ..goodput
        },
        "flows" => Sweep {
            what: "Goodput of all flows against their number",
            file: "goodput-flows",
            x: "flows at once, number".into(),
            log_x: false,
            ..goodput
        },
        _ => Sweep {
            what: "Completion time",
            file: "completion-time",
            y: "completion time, seconds",
            log_x: false,
            log_y: true,
            least: true,
            value: Point::mean_seconds,
            deviation: |p| deviation(&p.seconds),
            limit: |p| p.limit_seconds,
            ..goodput
        },
    }
}

/// The thesis's measure of many flows.
fn each_flow() -> Sweep {
    Sweep {
        what: "Goodput of a flow against the number of flows",
        file: "goodput-of-a-flow",
        y: "goodput of a flow, mean, Mbit/s",
        log_y: true,
        value: flow_goodput_mbps,
        deviation: flow_deviation_mbps,
        limit: flow_limit_mbps,
        remark: "The limit is that of flows which share the link equally and end together; where some end sooner than others, their \
                 mean can be above it. Bars: one standard deviation among the flows of a run.",
        ..sweep_of("flows")
    }
}

const BY_SOURCE: &str = "By the clock of the paper's tool, which starts when the source begins to send. Bars: one standard deviation among \
    the flows of a run. A mean of rates counts the flows that end first more than those that end last: where shares are unequal it can be above the \
    limit, which is that of equal ones.";

fn named_mbps(p: &Point, name: &str) -> Option<f64> {
    Some(mean(p.metrics.get(name)?)? / 1e6)
}

/// The same by the clock of a source that sends unasked, with what the paper measured by it; and of
/// each of two sets.
fn by_source() -> [Sweep; 3] {
    let all = Sweep {
        what: "Goodput of a flow by the source's clock, against the number of flows",
        file: "goodput-of-a-flow-by-source",
        value: |p| named_mbps(p, "source_flow_goodput_bps"),
        deviation: |p| named_mbps(p, "source_flow_goodput_deviation_bps"),
        limit: |p| named_mbps(p, "source_equal_flow_goodput_bps"),
        paper: |p| Some(p.paper("source_flow_goodput_bps")? / 1e6),
        remark: BY_SOURCE,
        ..each_flow()
    };
    let far = Sweep {
        what: "Goodput of a far flow (set H) by the source's clock, against the number of flows",
        file: "goodput-of-a-far-flow-by-source",
        value: |p| named_mbps(p, "source_high_flow_goodput_bps"),
        deviation: |p| named_mbps(p, "source_high_flow_goodput_deviation_bps"),
        limit: |_| None,
        remark: BY_SOURCE,
        paper: |p| Some(p.paper("source_high_flow_goodput_bps")? / 1e6),
        ..each_flow()
    };
    let near = Sweep {
        what: "Goodput of a near flow (set L) by the source's clock, against the number of flows",
        file: "goodput-of-a-near-flow-by-source",
        value: |p| named_mbps(p, "source_low_flow_goodput_bps"),
        deviation: |p| named_mbps(p, "source_low_flow_goodput_deviation_bps"),
        limit: |_| None,
        remark: BY_SOURCE,
        paper: |p| Some(p.paper("source_low_flow_goodput_bps")? / 1e6),
        ..each_flow()
    };
    [all, far, near]
}

/// Something against a numeric condition that is not the size.
fn sweep(table: &Table, name: &str) -> Vec<Plot> {
    let is_known = ["loss", "ber", "rate_bps", "flows"].contains(&name);
    let is_numeric =
        table.points.iter().all(|p| p.conditions.get(name).is_none_or(serde_json::Value::is_number));
    let enough = if ["loss", "ber", "flows"].contains(&name) { 2 } else { 3 };
    if !is_numeric || table.values_of(name) < enough {
        return Vec::new();
    }
    let mut sweep = sweep_of(name);
    if !is_known {
        sweep.what = "Completion time by condition";
        if name.ends_with("_ms") {
            sweep.x += ", ms";
        } else if name.ends_with("_bytes") {
            sweep.x += ", bytes";
        } else if name.ends_with("_bps") {
            sweep.x += ", bit/s";
        }
    }
    let mut groups = table.groups(&[name]);
    let mut remark = String::new();
    if groups.len() > PLOTS_MAX && table.varied.iter().any(|n| n == "size_bytes") {
        let size = |g: &Group<'_>| g.of.get("size_bytes").and_then(serde_json::Value::as_f64).unwrap_or(0.0);
        let largest = groups.iter().map(size).fold(0.0, f64::max);
        groups.retain(|g| size(g) == largest);
        remark = format!(
            " Drawn for the largest transfers ({}); a run of fewer cells (--only) is drawn in full.",
            condition("size_bytes", &serde_json::json!(largest))
        );
    }
    let mut plots: Vec<Plot> =
        groups.iter().filter_map(|group| sweep_plot(table, group, name, &sweep, &remark)).collect();
    if name == "flows" {
        for sweep in [each_flow()].iter().chain(&by_source()) {
            plots.extend(groups.iter().filter_map(|group| sweep_plot(table, group, name, sweep, &remark)));
        }
    }
    plots
}

fn sweep_plot(table: &Table, group: &Group<'_>, name: &str, sweep: &Sweep, remark: &str) -> Option<Plot> {
    let mut series = vec![Series::limit(limit(group, name, sweep.limit, sweep.least))];
    for subject in &table.subjects {
        let points = line(group, subject, name, sweep.value);
        let mut s = Series::new(&subject.name, colour(table, subject), mark(subject), points);
        let deviations = line(group, subject, name, sweep.deviation);
        if deviations.len() == s.points.len() && deviations.iter().any(|(_, d)| *d > 0.0) {
            s.deviations = deviations.into_iter().map(|(_, d)| d).collect();
        }
        series.push(s);
    }
    series.extend(papers(table, group, name, sweep.paper));
    series.retain(|s| !s.points.is_empty());
    if !series.iter().any(|s| s.points.len() > 1 && s.name != LIMIT) {
        return None;
    }
    let word = |v: f64| match name {
        "loss" => short(v * 100.0),
        "rate_bps" => rate(v),
        _ => plain(name, &serde_json::json!(v)).replace(" ms", ""),
    };
    let xs = values(&series, |p| p.0);
    let ys = values(&series, |p| p.1).filter(|y| *y > 0.0);
    let bars = series.iter().any(|s| !s.deviations.is_empty());
    let figure = Figure {
        title: title(sweep.what, group, table),
        x: if sweep.log_x { Axis::log(&sweep.x, xs, word) } else { Axis::from_zero(&sweep.x, xs, word) },
        y: if sweep.log_y { Axis::log(sweep.y, ys, short) } else { Axis::from_zero(sweep.y, ys, short) },
        shaded: Vec::new(),
        remark: match sweep.remark {
            "" => format!(
                "Nothing lies {} the limit by more than the clock's error.{}{remark}",
                if sweep.least { "below" } else { "above" },
                if bars { " Bars: one standard deviation among the runs." } else { "" }
            ),
            own => format!("{own}{remark}"),
        },
        series,
    };
    let file = if sweep.file == "completion-time" {
        format!("completion-time-{}", super::words::slug(name))
    } else {
        sweep.file.into()
    };
    Some(plot(&file, group, Drawing::Figure(figure)))
}

/// Time over limit by probability and length of winks, one map for each subject.
fn heat_maps(table: &Table) -> Vec<Plot> {
    let (p, i) = ("wink_p", "wink_i_ms");
    if table.values_of(p) < 2 || table.values_of(i) < 2 {
        return Vec::new();
    }
    let (ps, is) = (numbers(table.points.iter(), p), numbers(table.points.iter(), i));
    let mut plots = Vec::new();
    for group in table.groups(&[p, i]) {
        for subject in &table.subjects {
            let at = |wink_p: f64, wink_i: f64| {
                let mut points = group.of_subject(subject);
                points.find(|x| x.number(p) == Some(wink_p) && x.number(i) == Some(wink_i))?.mean_ratio()
            };
            // Large p at the top, as on an axis.
            let ratios: Vec<Vec<_>> =
                ps.iter().rev().map(|p| is.iter().map(|i| at(*p, *i)).collect()).collect();
            if ratios.iter().flatten().all(Option::is_none) {
                continue;
            }
            let map = HeatMap {
                title: format!("{}, {}", title("Time over limit by wink", &group, table), subject.name),
                x: ("length of an interval i, ms".into(), is.iter().map(|v| short(*v)).collect()),
                y: ("probability p that the link is away".into(), ps.iter().rev().map(|v| short(*v)).collect()),
                ratios,
                remark: "Each number is the mean time over the physical limit, which counts the link's absence as 1 / (1 - p)."
                    .into(),
            };
            let name = format!("wink-{}", super::words::slug(&subject.name));
            plots.push(plot(&name, &group, Drawing::HeatMap(map)));
        }
    }
    plots
}

/// Steps of a distribution: value and share of values at or below it, %.
fn steps(mut values: Vec<f64>) -> Vec<(f64, f64)> {
    values.sort_by(f64::total_cmp);
    let n = values.len().max(1) as f64;
    let mut steps = Vec::with_capacity(2 * values.len());
    for (number, value) in values.into_iter().enumerate() {
        steps.push((value, 100.0 * number as f64 / n));
        steps.push((value, 100.0 * (number + 1) as f64 / n));
    }
    steps
}

/// Distribution of the completion times of many runs of a cell.
fn distributions(table: &Table) -> Vec<Plot> {
    let mut plots = Vec::new();
    for group in table.groups(&[]) {
        let runs = group.points.iter().map(|p| p.seconds.len()).max().unwrap_or(0);
        if runs < RUNS_FOR_CDF {
            continue;
        }
        let least = group.points.iter().filter_map(|p| p.limit_seconds).fold(f64::INFINITY, f64::min);
        let mut series = Vec::new();
        if least.is_finite() {
            series.push(Series::limit(vec![(least, 0.0), (least, 100.0)]));
        }
        for subject in &table.subjects {
            let seconds: Vec<f64> =
                group.of_subject(subject).flat_map(|p| p.seconds.iter().copied()).collect();
            if !seconds.is_empty() {
                series.push(Series::new(&subject.name, colour(table, subject), Mark::Line, steps(seconds)));
            }
        }
        let figure = Figure {
            title: title("Distribution of completion times", &group, table),
            x: Axis::log("completion time, seconds", values(&series, |p| p.0), short),
            y: Axis::between("runs that took at most so long, %", 0.0, 100.0, 20.0, short),
            series,
            shaded: Vec::new(),
            remark: format!(
                "{runs} runs each, every one with a seed of its own. Nothing lies left of the limit by more than the clock's error."
            ),
        };
        plots.push(plot("cdf", &group, Drawing::Figure(figure)));
    }
    plots.truncate(PLOTS_MAX);
    plots
}

/// Distribution of time over limit over all cells.
fn ratios(table: &Table) -> Option<Plot> {
    let mut series = vec![Series::limit(vec![(1.0, 0.0), (1.0, 100.0)])];
    for subject in &table.subjects {
        let points = table.points.iter().filter(|p| p.subject == *subject);
        let ratios: Vec<f64> = points.filter_map(Point::mean_ratio).collect();
        if ratios.len() >= CELLS_FOR_CDF {
            series.push(Series::new(&subject.name, colour(table, subject), Mark::Line, steps(ratios)));
        }
    }
    if series.len() < 2 {
        return None;
    }
    let figure = Figure {
        title: "All cells: time over the physical limit".into(),
        x: Axis::log("completion time over the limit, ratio", values(&series, |p| p.0), short),
        y: Axis::between("cells at or below this ratio, %", 0.0, 100.0, 20.0, short),
        series,
        shaded: Vec::new(),
        remark: "The further left and the steeper, the nearer to the limit. Each cell counts once, with the mean of its runs.".into(),
    };
    Some(Plot { name: "ratios".into(), drawing: Drawing::Figure(figure) })
}
