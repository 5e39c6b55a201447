//! A report of a small run: every section, axis, legend, limit and command is there.

use serde_json::json;

use super::plots::colour;
use super::subjects::{Table, of_all};
use super::{Rendered, Source, render};
use crate::capture::Trace;
use crate::limit::Clock;
use crate::report::{CellReport, Report};
use crate::scenario::{Clocks, Figures};
use farlink_gateway::flow_trace::{DirectionTrace, Event, FORMAT, FlowTrace, Sample, TraceLimit};

const COMMAND: &str = "farlink sim run tiny --only variant=direct,variant=farlink --repeat 12 --seed 7";

fn cell(
    variant: &str,
    params: serde_json::Value,
    repeat: u32,
    seconds: f64,
    paper: Option<f64>,
) -> CellReport {
    let mut all = json!({ "rtt_ms": 500, "host_cc": "cubic", "hosts": "modern", "gateways": 2, "iw": 0, "loss_burst": 1 });
    for (name, value) in params.as_object().unwrap() {
        all[name] = value.clone();
    }
    let bytes = all["size_bytes"].as_f64().unwrap();
    let limit = 1.0 + bytes / 1e6;
    serde_json::from_value(json!({
        "params": all, "variant": variant, "repeat": repeat, "seed": 7, "seconds": seconds,
        "goodput_bps": bytes * 8.0 / seconds, "limit_seconds": limit, "ratio_to_limit": seconds / limit,
        "intact": true, "paper_seconds": paper,
        "metrics": { "return_bytes": 4_000.0, "flow_goodput_bps": 1e6, "flow_goodput_deviation_bps": 1e5 },
    }))
    .unwrap()
}

fn report(cells: Vec<CellReport>) -> Report {
    Report {
        scenario: "tiny".into(),
        title: "A <small> run".into(),
        driver: "sim".into(),
        seed: 7,
        version: "0.1.0".into(),
        command: COMMAND.into(),
        cells,
        ..Report::default()
    }
}

fn rendered(cells: Vec<CellReport>) -> Rendered {
    let text = serde_json::to_string(&report(cells)).unwrap();
    render(&[Source { name: "tiny.json".into(), text }]).unwrap()
}

/// Every combination of the values with both variants; Farlink near the limit, the hosts at thrice.
fn grid(name: &str, values: &[f64], repeats: u32) -> Vec<CellReport> {
    let mut cells = Vec::new();
    for value in values {
        for (variant, factor) in [("direct", 3.0), ("farlink", 1.02)] {
            for repeat in 0..repeats {
                let mut params = json!({ "size_bytes": 1_000_000, "loss": 0, "flows": 1 });
                params[name] = json!(value);
                let bytes = params["size_bytes"].as_f64().unwrap();
                let seconds = (1.0 + bytes / 1e6) * factor * (1.0 + f64::from(repeat) / 100.0);
                let paper = (variant == "direct").then_some(seconds * 1.1);
                cells.push(cell(variant, params, repeat, seconds, paper));
            }
        }
    }
    cells
}

fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "`{part}` is missing in\n{text}");
    }
}

/// Each plot by itself: axes with units, legend, limit and command.
fn plot<'a>(rendered: &'a Rendered, name: &str, parts: &[&str]) -> &'a str {
    let found = rendered.plots.iter().find(|(n, _)| n == name);
    let names: Vec<_> = rendered.plots.iter().map(|(n, _)| n).collect();
    let (_, svg) = found.unwrap_or_else(|| panic!("no plot {name}, there are {names:?}"));
    has(svg, &["physical limit", "Farlink", "hosts alone, CUBIC"]);
    has(svg, parts);
    let words: String = svg.split("Made by").nth(1).unwrap().split('<').next().unwrap().replace('\n', " ");
    has(&words, &["farlink sim run tiny", "--repeat 12"]);
    svg
}

#[test]
fn completion_time_against_size_stands_beside_paper_and_limit() {
    let rendered = rendered(grid("size_bytes", &[1e5, 1e6, 1e7], 1));
    plot(
        &rendered,
        "tiny-completion-time",
        &["size of the transfer, bytes", "completion time, seconds", "paper, for hosts alone", "RTT 500 ms"],
    );
    plot(&rendered, "tiny-ratio", &["completion time over the limit, ratio", "paper, for hosts alone"]);
    has(
        &rendered.html,
        &[
            "<h2>tiny (sim)</h2>",
            "<h3>Summary</h3>",
            "<h3>Plots</h3>",
            "<h3>All cells</h3>",
            "Queues, acknowledgements, memory",
            "A &lt;small&gt; run",
            "3.000 x limit",
            "class=\"near\"",
            "x 0.909",
            "2.941 x",
            "prefers-color-scheme: dark",
        ],
    );
}

#[test]
fn what_gateways_hold_stands_beside_the_time_that_it_takes() {
    let mut cells = grid("flows", &[1.0, 10.0, 100.0], 1);
    let alone = rendered(cells.clone());
    assert!(!alone.plots.iter().any(|(name, _)| name == "tiny-held"), "nothing is known of it");
    for cell in cells.iter_mut().filter(|c| c.variant == "farlink") {
        cell.params.insert("rate_bps".into(), json!(8_000_000));
        cell.metrics.insert("gw2_held_max_bytes".into(), 2_000_000.0);
    }
    let held = rendered(cells);
    let (_, svg) = held.plots.iter().find(|(name, _)| name == "tiny-held").expect("it is drawn");
    has(svg, &["physical limit", "aim", "Farlink", "held at most, over the aim"]);
    assert!(!svg.contains("hosts alone"), "where there is no gateway nothing is held");
}

#[test]
fn every_figure_names_its_command_and_the_page_needs_nothing_else() {
    let rendered = rendered(grid("size_bytes", &[1e5, 1e6, 1e7], 1));
    let figures = rendered.html.matches("<figure ").count();
    assert!(figures >= 2);
    assert_eq!(figures, rendered.html.matches("Made by <code>farlink sim run tiny --only ").count());
    assert_eq!(figures, rendered.html.matches("physical limit</text>").count());
    let without_names = rendered.html.replace("http://www.w3.org/2000/svg", "");
    for outside in ["http:", "https:", "<script", "<link", "<img", "@import", "url("] {
        assert!(!without_names.contains(outside), "{outside}");
    }
    assert!(
        !rendered.html.lines().any(|line| line.ends_with([' ', '\t'])),
        "white space at the end of a line"
    );
}

#[test]
fn goodput_is_drawn_against_loss_flows_and_rate() {
    let loss = rendered(grid("loss", &[0.0, 0.01, 0.05], 1));
    plot(&loss, "tiny-goodput-loss", &["probability that a packet is lost, %", "goodput, Mbit/s"]);
    let flows = rendered(grid("flows", &[1.0, 10.0], 1));
    plot(&flows, "tiny-goodput-flows", &["flows at once, number", "goodput, Mbit/s"]);
    plot(&flows, "tiny-goodput-of-a-flow", &["goodput of a flow, mean, Mbit/s"]);
    let rates = rendered(grid("rate_bps", &[1e6, 8e6, 1e8], 1));
    plot(&rates, "tiny-goodput-rate", &["rate of the link, bit/s", "100 Mbit/s"]);
}

#[test]
fn many_runs_become_a_distribution_and_deviations() {
    let rendered = rendered(grid("size_bytes", &[1e6], 12));
    plot(&rendered, "tiny-cdf", &["completion time, seconds", "runs that took at most so long, %"]);
    has(&rendered.html, &["&plusmn;", "12 runs each"]);
    let cells = self::rendered(grid("size_bytes", &[1e5, 2e5, 5e5, 1e6, 2e6], 1));
    plot(
        &cells,
        "tiny-ratios",
        &["completion time over the limit, ratio", "cells at or below this ratio, %"],
    );
}

#[test]
fn winks_become_a_heat_map() {
    let mut cells = Vec::new();
    for (wink_p, wink_i_ms, factor) in [(0.1, 40, 1.1), (0.1, 240, 1.2), (0.4, 40, 2.5), (0.4, 240, 12.0)] {
        let params = json!({ "size_bytes": 1_000_000, "wink_p": wink_p, "wink_i_ms": wink_i_ms });
        cells.push(cell("farlink", params, 0, 2.0 * factor, None));
    }
    let rendered = rendered(cells);
    let (_, svg) = rendered.plots.iter().find(|(n, _)| n == "tiny-wink-farlink").expect("a heat map");
    has(
        svg,
        &[
            "length of an interval i, ms",
            "probability p that the link is away",
            "physical limit",
            "at the limit",
        ],
    );
    has(svg, &["1.1", "1.2", "2.5", ">12"]);
}

#[test]
fn a_grid_of_winks_becomes_the_papers_figures() {
    let mut cells = Vec::new();
    for wink_p in [0.05, 0.4] {
        for (wink_i_ms, factor) in [(40, 9.0), (240, 3.0), (620, 1.5)] {
            for (variant, factor) in [("direct", factor), ("farlink-custody", 1.1)] {
                let params = json!({ "size_bytes": 20_971_520, "rate_bps": 100_000_000, "rtt_ms": 0.5,
                    "wink_p": wink_p, "wink_i_ms": wink_i_ms });
                let mut own = cell(variant, params, 0, 2.9 * factor, None);
                own.limit_seconds = Some(2.9);
                own.metrics.insert("perfect_seconds".into(), 2.8);
                cells.push(own);
            }
        }
    }
    let all = rendered(cells.clone());
    plot(&all, "tiny-paper-4-1", &["(paper: 4.1)", "paper, hosts alone", "perfect, same winks"]);
    plot(&all, "tiny-paper-4-2", &["(paper: 4.2, 4.3)", "length of an interval i, ms"]);
    plot(&all, "tiny-paper-4-4", &["p = 0.4", "equation 3.12", "paper, Unfair with", "hosts alone, CUBIC"]);
    for number in [14, 15, 16] {
        plot(&all, &format!("tiny-paper-4-{number}"), &["runs", "paper, least time"]);
    }
    // 26.1, 8.7 and 4.35 s: their mean beside the paper's 10 s, and each where it stands.
    has(
        &all.html,
        &["Beside the numbers in Reynolds", "<td><b>13.05</b></td><td>3.19</td>", "217.6", "<b>26.10</b>"],
    );
    // Of another transfer his numbers say nothing.
    for cell in &mut cells {
        cell.params.insert("rtt_ms".into(), 5.into());
    }
    let other = rendered(cells);
    assert!(!other.html.contains("Reynolds' text") && !other.html.contains("paper, hosts alone"));
    assert!(other.plots.iter().any(|(name, _)| name == "tiny-paper-4-1"));
}

#[test]
fn what_failed_or_was_skipped_is_said() {
    let mut cells = grid("size_bytes", &[1e5, 1e6], 1);
    cells[0].intact = false;
    cells[0].failures.push("a byte was <lost>".into());
    cells[1].seconds = None;
    cells[1].notes.push("captures missed packets".into());
    let html = rendered(cells).html;
    has(
        &html,
        &[
            "<h3>Not intact</h3>",
            "a byte was &lt;lost&gt;",
            "did not end",
            "all but 1",
            "captures missed packets",
        ],
    );
}

#[test]
fn scenarios_without_times_are_listed() {
    let case = |name: &str, intact: bool| -> CellReport {
        serde_json::from_value(json!({
            "params": { "case": name }, "variant": "farlink", "repeat": 0, "seed": 1, "seconds": null, "goodput_bps": null,
            "limit_seconds": null, "ratio_to_limit": null, "intact": intact, "paper_seconds": null, "metrics": {},
        }))
        .unwrap()
    };
    let html = rendered(vec![case("refused", true), case("silent", false)]).html;
    has(&html, &["refused", "silent", "<td>yes</td>", "no</b>"]);
}

#[test]
fn a_flow_is_drawn_with_its_limit() {
    let events = (0..50u64).flat_map(|n| {
        let t = n as f64 * 0.1;
        let sent = Event::Sent { t, from: n * 1000, to: (n + 1) * 1000 };
        let acked = Event::Acked { t: t + 0.05, to: (n + 1) * 1000 };
        let again = Event::Repeated { t: t + 0.01, from: n * 1000, to: (n + 1) * 1000 };
        let late = Event::TimedOut { t: t + 0.01, from: n * 1000, to: (n + 1) * 1000 };
        if n == 25 { vec![sent, late, again, acked] } else { vec![sent, acked] }
    });
    let sample =
        |n: u32| Sample { t: f64::from(n), cwnd_bytes: 90_000, in_flight_bytes: 50_000, ..Sample::default() };
    let trace = FlowTrace {
        farlink_flow_trace: FORMAT,
        title: "tiny".into(),
        version: "0.1.0".into(),
        command: "farlink sim run tiny --flow-trace flow.json".into(),
        limit: Some(TraceLimit { from_seconds: 1.0, until_seconds: 5.0, bytes: 50_000, bdp_bytes: 60_000 }),
        directions: vec![DirectionTrace {
            name: "gw2, server to client".into(),
            events: events.collect(),
            samples: (0..5).map(sample).collect(),
            events_lost: 3,
        }],
    };
    let request = DirectionTrace {
        name: "gw2, client to server".into(),
        events: vec![Event::Sent { t: 0.0, from: 0, to: 15 }],
        ..trace.directions[0].clone()
    };
    let trace = FlowTrace { directions: vec![request, trace.directions[0].clone()], ..trace };
    let text = serde_json::to_string(&trace).unwrap();
    let rendered = render(&[Source { name: "flow.json".into(), text }]).unwrap();
    assert!(!rendered.html.contains("client to server"), "a request of 15 bytes is not worth a plot");
    let svg = |name: &str| &rendered.plots.iter().find(|(n, _)| n.contains(name)).expect("a plot").1;
    has(
        svg("time-sequence"),
        &[
            "time, seconds",
            "place in the stream, megabytes",
            "sent again",
            "retransmission timeout",
            "acknowledged",
            "physical limit",
        ],
    );
    has(svg("windows"), &["kilobytes", "congestion window", "in flight", "physical limit"]);
    has(svg("rate"), &["Mbit/s of payload", "physical limit", "farlink sim run tiny --flow-trace flow.json"]);
    has(&rendered.html, &["Flow: tiny", "3 events were not kept"]);
}

#[test]
fn the_same_input_gives_the_same_page() {
    let page = || rendered(grid("loss", &[0.0, 0.01], 3)).html;
    assert_eq!(page(), page());
}

#[test]
fn runs_of_one_scenario_are_told_apart() {
    let source = |cells: Vec<CellReport>| {
        let text = serde_json::to_string(&report(cells)).unwrap();
        Source { name: "tiny.json".into(), text }
    };
    let sizes = || source(grid("size_bytes", &[1e5, 1e6, 1e7], 1));
    let rendered = render(&[sizes(), source(grid("loss", &[0.0, 0.01], 1)), sizes()]).unwrap();
    let titles: Vec<&str> = rendered
        .html
        .lines()
        .filter_map(|l| l.strip_prefix("<li><a href=\"#part-"))
        .filter_map(|l| l.split_once("\">")?.1.strip_suffix("</a></li>"))
        .collect();
    assert_eq!(
        titles,
        [
            "tiny (sim), RTT 500 ms, 1 flow, by size, run 1",
            "tiny (sim), RTT 500 ms, 1 flow, 1 MB, by loss",
            "tiny (sim), RTT 500 ms, 1 flow, by size, run 2",
        ]
    );
    let mut names: Vec<_> = rendered.plots.iter().map(|(name, _)| name).collect();
    assert!(names.iter().any(|n| *n == "tiny-completion-time-2"), "{names:?}");
    names.sort();
    names.dedup();
    assert_eq!(names.len(), rendered.plots.len(), "no file of a plot is written twice");
}

#[test]
fn a_subject_has_one_colour_in_all_runs_of_a_page() {
    let of = |variants: &[&str]| {
        let cells = variants.iter().map(|v| cell(v, json!({ "size_bytes": 1_000_000 }), 0, 2.0, None));
        Table::of(&report(cells.collect()))
    };
    let mut tables = [of(&["direct", "haproxy", "farlink"]), of(&["haproxy", "farlink-auto", "farlink"])];
    let coloured = of_all(&tables);
    for table in &mut tables {
        table.coloured = coloured.clone();
    }
    for subject in &tables[0].subjects {
        assert_eq!(colour(&tables[0], subject), colour(&tables[1], subject), "{subject:?}");
    }
    // More than there are colours: each has its own all the same.
    let variants: Vec<String> = (0..30).map(|n| format!("farlink-{n}")).collect();
    let many = of(&variants.iter().map(String::as_str).collect::<Vec<_>>());
    let mut seen = Vec::new();
    for subject in many.subjects.iter().take(18) {
        let colour = colour(&many, subject);
        assert!(!seen.contains(&colour), "{subject:?}");
        seen.push(colour);
    }
}

#[test]
fn what_captures_saw_is_drawn_with_the_other_plots() {
    let mut cells = Vec::new();
    for (variant, seconds) in [("direct", 6.0), ("farlink", 2.1)] {
        for bytes in [1e5, 1e6] {
            let params = json!({ "size_bytes": bytes, "rate_bps": 8e6 });
            cells.push(cell(variant, params, 0, seconds * bytes / 1e6, None));
        }
    }
    let seen = |seconds: f64, megabytes: f64| Trace {
        sent: (0..20).map(|n| (seconds * f64::from(n) / 19.0, megabytes * f64::from(n) / 19.0)).collect(),
        delivered: (0..20)
            .map(|n| (0.2 + seconds * f64::from(n) / 19.0, megabytes * f64::from(n) / 19.0))
            .collect(),
        arrived: (0..20)
            .map(|n| (0.2 + seconds * f64::from(n) / 19.0, megabytes * f64::from(n) / 19.0))
            .collect(),
        acked: vec![(0.4, 0.0), (0.4 + seconds, megabytes)],
    };
    let traces = [(0, seen(0.6, 0.1)), (1, seen(6.0, 1.0)), (2, seen(0.2, 0.1)), (3, seen(2.1, 1.0))];
    let plots = super::plots(&report(cells), &traces).unwrap();
    let names: Vec<_> = plots.iter().map(|(name, _)| name.as_str()).collect();
    // Time-sequences of the largest transfers only, and all of them in one.
    assert_eq!(
        names,
        [
            "tiny-completion-time",
            "tiny-ratio",
            "tiny-time-sequence-hosts-alone-cubic-1-mb",
            "tiny-time-sequence-farlink-1-mb",
            "tiny-time-sequence",
        ]
    );
    for (_, svg) in &plots[2..] {
        has(svg, &["time since the SYN, seconds", "megabytes", "physical limit", COMMAND]);
    }
    has(&plots[2].1, &["sent into the link", "delivered", "acknowledged"]);
    has(&plots[4].1, &["hosts alone, CUBIC<", "Farlink<", "Data delivered over time: 1 MB"]);
}

#[test]
fn figures_and_clocks_of_papers_stand_beside_ours_in_a_table_and_in_plots() {
    let mut cells = grid("flows", &[10.0, 40.0], 1);
    for (number, cell) in cells.iter_mut().enumerate() {
        cell.metrics.insert("source_flow_goodput_bps".into(), 130_000.0 + number as f64);
        cell.metrics.insert("source_equal_flow_goodput_bps".into(), 131_000.0);
        let figures = [("source_flow_goodput_bps".to_string(), 124_400.0 - number as f64)];
        cell.papers = vec![Figures { from: "table 5.9".into(), figures: figures.into_iter().collect() }];
    }
    let mut report = report(cells);
    report.clocks = Some(Clocks { ours: Clock::Request, paper: Some(Clock::Source), note: String::new() });
    let text = serde_json::to_string(&report).unwrap();
    let rendered = render(&[Source { name: "tiny.json".into(), text }]).unwrap();
    let html = &rendered.html;
    for part in [
        "<h3>Beside the papers</h3>",
        "paper 0.1244, x 1.045",
        "table 5.9",
        Clock::Source.text(),
        "clock of the paper",
    ] {
        assert!(html.contains(part), "{part}");
    }
    plot(&rendered, "tiny-goodput-of-a-flow-by-source", &["paper, for hosts alone", "paper, for Farlink"]);
    // Without any of it, nothing is said of it.
    assert!(!self::rendered(grid("flows", &[10.0, 40.0], 1)).html.contains("Beside the papers"));
}

#[test]
fn kinds_of_traffic_have_a_table_where_more_than_split_connections_ran() {
    let mut cells = grid("size_bytes", &[1e6], 2);
    assert!(!rendered(cells.clone()).html.contains("By kind of traffic"));
    let carried = [
        ("split_tcp_carried_bytes", 3e6),
        ("udp_carried_bytes", 1e6),
        ("udp_packets", 900.0),
        ("udp_dropped_packets", 7.0),
        ("udp_waited_mean_ms", 2.5),
        ("udp_waited_max_ms", 12.0),
    ];
    for cell in cells.iter_mut().filter(|c| c.variant == "farlink") {
        cell.metrics.extend(carried.map(|(name, value)| (name.into(), value)));
    }
    let html = rendered(cells.clone()).html;
    has(&html, &["<h3>By kind of traffic</h3>", "<th>split TCP</th><td>75</td><td>-</td>"]);
    has(&html, &["<th>UDP</th><td>25</td><td>900</td><td>7</td><td>2.5</td><td>12</td>"]);
    assert!(!html.contains("<th>past the queue</th>"));
    let past = [("past_the_queue_bytes", 1e6), ("past_the_queue_packets", 800.0)];
    for cell in cells.iter_mut().filter(|c| c.variant == "farlink") {
        cell.metrics.extend(past.map(|(name, value)| (name.into(), value)));
    }
    let html = rendered(cells).html;
    has(&html, &["<th>split TCP</th><td>60</td>", "<th>UDP</th><td>20</td><td>900</td>"]);
    has(&html, &["<th>past the queue</th><td>20</td><td>800</td><td>-</td><td>-</td><td>-</td>"]);
}
