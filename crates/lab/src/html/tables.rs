//! Tables of a run: every cell with paper, baseline, ours, limit and ratios.

use super::subjects::{Group, Point, Role, Subject, Table, deviation, mean};
use super::words::{conditions, escaped, heading, plain, short, time};

/// A good ratio: at most 5 % above the limit.
const AT_LIMIT: f64 = 1.05;

/// How each subject did over all cells.
pub(super) fn summary(table: &Table) -> String {
    let mut rows = String::new();
    for subject in &table.subjects {
        let points: Vec<&Point> = table.points.iter().filter(|p| p.subject == *subject).collect();
        let mut ratios: Vec<f64> = points.iter().filter_map(|p| p.mean_ratio()).collect();
        ratios.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let place = ((ratios.len().max(1) - 1) as f64 * share).round() as usize;
            ratios.get(place).map_or("-".into(), |r| fixed(*r))
        };
        let near = ratios.iter().filter(|r| **r <= AT_LIMIT).count();
        let near = if ratios.is_empty() { "-".into() } else { format!("{near} of {}", ratios.len()) };
        let faster = table.groups(&[]).iter().filter_map(|g| gain(g, subject)).collect::<Vec<_>>();
        let typical = median(faster).map_or("-".into(), |g| format!("{} x", fixed(g)));
        let runs: usize = points.iter().map(|p| p.runs).sum();
        let broken = points.iter().filter(|p| !p.failures.is_empty()).count();
        let intact =
            if broken == 0 { "all".into() } else { format!("<b class=\"bad\">all but {broken}</b>") };
        rows += &format!(
            "<tr><th>{}</th><td>{}</td><td>{runs}</td><td>{intact}</td><td>{}</td><td>{}</td><td>{near}</td><td>{typical}</td></tr>\n",
            escaped(&subject.name),
            points.len(),
            at(0.5),
            at(1.0),
        );
    }
    format!(
        "<div class=\"wide\"><table>\n<tr><th>who</th><th>cells</th><th>runs</th><th>cells intact</th><th>time / limit, median</th>\
         <th>time / limit, worst</th><th>cells at most {AT_LIMIT} x limit</th><th>median gain over the best of the hosts alone</th></tr>\n\
         {rows}</table></div>\n"
    )
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// How many times faster than the fastest hosts alone in the same cell. Nothing for the hosts
/// themselves.
fn gain(group: &Group<'_>, subject: &Subject) -> Option<f64> {
    if subject.role == Role::Hosts {
        return None;
    }
    let hosts = group.points.iter().filter(|p| p.subject.role == Role::Hosts);
    let best = hosts.filter_map(|p| p.mean_seconds()).fold(f64::INFINITY, f64::min);
    let ours = group.of_subject(subject).find_map(Point::mean_seconds)?;
    (best.is_finite() && ours > 0.0).then(|| best / ours)
}

/// All cells: one row for each set of conditions, one column for each subject.
pub(super) fn cells(table: &Table) -> String {
    if table.points.iter().all(|p| p.seconds.is_empty() || p.limit_seconds.is_none()) {
        return list(table);
    }
    let mut header = String::new();
    for name in &table.varied {
        header += &format!("<th>{}</th>", escaped(&heading(name)));
    }
    header += "<th>limit, s</th>";
    for subject in &table.subjects {
        header += &format!("<th>{}</th>", escaped(&subject.name));
    }
    let has_hosts = table.subjects.iter().any(|s| s.role == Role::Hosts);
    let ours: Vec<&Subject> = table.subjects.iter().filter(|s| s.role == Role::Ours).collect();
    let gains = has_hosts && !ours.is_empty();
    if gains {
        header += "<th>gain</th>";
    }
    let mut rows = String::new();
    for group in table.groups(&[]) {
        rows += "<tr>";
        for name in &table.varied {
            let value = group.of.get(name).map_or("-".into(), |v| plain(name, v));
            rows += &format!("<th>{}</th>", escaped(&value));
        }
        let limits = group.points.iter().filter_map(|p| p.limit_seconds);
        let least = limits.fold(f64::INFINITY, f64::min);
        rows += &format!("<td>{}</td>", if least.is_finite() { time(least) } else { "-".into() });
        for subject in &table.subjects {
            rows += &group.of_subject(subject).next().map_or("<td>-</td>".into(), cell);
        }
        if gains {
            let best = ours.iter().filter_map(|s| gain(&group, s)).fold(0.0, f64::max);
            rows +=
                &format!("<td>{}</td>", if best > 0.0 { format!("{} x", fixed(best)) } else { "-".into() });
        }
        rows += "</tr>\n";
    }
    let gain_text = if gains {
        " Gain: the fastest of the hosts alone over the fastest of Farlink, mean times."
    } else {
        ""
    };
    format!(
        "<div class=\"wide\"><table class=\"cells\">\n<tr>{header}</tr>\n{rows}</table></div>\n\
         <p class=\"remark\">In each cell: seconds (mean; with a standard deviation where there are several runs), time over the physical \
         limit of these hosts' packets, and what the paper measured, with our time over it. Marked: at most {AT_LIMIT} times the \
         limit.{gain_text}</p>\n"
    )
}

fn cell(point: &Point) -> String {
    let Some(seconds) = point.mean_seconds() else {
        return "<td class=\"bad\">did not end</td>".into();
    };
    let mut class = "";
    let mut text = format!("<b>{}</b>", time(seconds));
    // What does not show in the mean's own digits is no deviation worth a word.
    if let Some(d) = deviation(&point.seconds).filter(|d| *d >= seconds / 10_000.0) {
        text += &format!(" <small>&plusmn; {}</small>", short(d));
    }
    if let Some(ratio) = point.mean_ratio() {
        text += &format!("<br><small>{} x limit</small>", fixed(ratio));
        if ratio <= AT_LIMIT {
            class = " class=\"near\"";
        }
    }
    if let Some(paper) = point.paper_seconds {
        text += &format!("<br><small>paper {}, x {}</small>", time(paper), fixed(seconds / paper));
    }
    if !point.failures.is_empty() {
        class = " class=\"bad\"";
        text += "<br><small>not intact</small>";
    }
    format!("<td{class}>{text}</td>")
}

/// A ratio: three decimals near one.
fn fixed(ratio: f64) -> String {
    if ratio < 10.0 { format!("{ratio:.3}") } else { format!("{ratio:.1}") }
}

/// Runs without times to compare: what ran, and whether it was as it has to be.
fn list(table: &Table) -> String {
    let mut rows = String::new();
    for point in &table.points {
        rows += "<tr>";
        for name in &table.varied {
            let value = point.conditions.get(name).map_or("-".into(), |v| plain(name, v));
            rows += &format!("<th>{}</th>", escaped(&value));
        }
        let seconds = point.mean_seconds().map_or("-".into(), time);
        let good = if point.failures.is_empty() { "yes" } else { "<b class=\"bad\">no</b>" };
        let limit = point.limit_seconds.map_or("-".into(), time);
        rows += &format!(
            "<td>{}</td><td>{seconds}</td><td>{limit}</td><td>{good}</td></tr>\n",
            escaped(&point.subject.name)
        );
    }
    let varied: String = table.varied.iter().map(|n| format!("<th>{}</th>", escaped(&heading(n)))).collect();
    format!(
        "<div class=\"wide\"><table>\n<tr>{varied}<th>who</th><th>seconds</th><th>limit, s</th><th>intact</th></tr>\n{rows}</table></div>\n"
    )
}

/// Numbers beside the times, where several subjects can be compared by them.
pub(super) fn metrics(table: &Table) -> String {
    const SHOWN: &[(&str, &str, f64)] = &[
        ("retransmitted_bytes", "sent again on the link, kB", 1e3),
        ("repaired_bytes", "of that taken for lost, kB", 1e3),
        ("early_bytes", "of that copies by an idle link, kB", 1e3),
        ("spent_needless_bytes", "come twice, kB", 1e3),
        ("source_retransmits", "repetitions by the source", 1.0),
        ("return_bytes", "return traffic, kB", 1e3),
        ("ack_packets", "acknowledgements on the link", 1.0),
        ("queue_max_bytes", "longest queue, kB", 1e3),
        ("memory_bytes", "memory of the gateways, kB", 1e3),
        ("jain", "fairness (Jain)", 1.0),
        ("flow_goodput_bps", "goodput of a flow, kbit/s", 1e3),
    ];
    let present = |name: &str| table.points.iter().any(|p| p.metrics.contains_key(name));
    let shown: Vec<_> = SHOWN.iter().filter(|(name, ..)| present(name)).collect();
    if shown.is_empty() {
        return String::new();
    }
    let header: String = shown.iter().map(|(_, title, _)| format!("<th>{title}</th>")).collect();
    let mut rows = String::new();
    for group in table.groups(&[]) {
        for point in &group.points {
            let values: String = shown
                .iter()
                .map(|(name, _, unit)| {
                    let value = point.metrics.get(*name).and_then(|v| mean(v));
                    format!("<td>{}</td>", value.map_or("-".into(), |v| short(v / unit)))
                })
                .collect();
            rows += &format!(
                "<tr><th>{}</th><th>{}</th>{values}</tr>\n",
                escaped(&conditions(&group.of)),
                escaped(&point.subject.name)
            );
        }
    }
    format!(
        "<details><summary>Queues, acknowledgements, memory</summary>\n<div class=\"wide\"><table>\n<tr><th>cell</th><th>who</th>{header}</tr>\n\
         {rows}</table></div>\n</details>\n"
    )
}

/// What was not as it has to be.
pub(super) fn failures(table: &Table) -> String {
    let mut items = String::new();
    for point in table.points.iter().filter(|p| !p.failures.is_empty()) {
        let mut seen: Vec<&String> = Vec::new();
        for failure in &point.failures {
            if !seen.contains(&failure) {
                seen.push(failure);
                items += &format!(
                    "<li>{}, {}: {}</li>\n",
                    escaped(&point.subject.name),
                    escaped(&conditions(&point.conditions)),
                    escaped(failure)
                );
            }
        }
    }
    if items.is_empty() { items } else { format!("<h3>Not intact</h3>\n<ul class=\"bad\">\n{items}</ul>\n") }
}
