//! Results as a table for people and as JSON in the laboratory's format.

use serde_json::{Value, json};

use crate::view::Table;

use super::bed::Variant;

/// One measurement.
#[derive(Debug, Clone)]
pub struct Cell {
    /// bulk, latency, http, many, udp, idle or short.
    pub test: &'static str,
    /// Name of a [`Variant`].
    pub variant: &'static str,
    /// What was asked for.
    pub params: Value,
    /// Round.
    pub repeat: u32,
    /// How long it took.
    pub seconds: f64,
    /// Payload rate.
    pub goodput_bps: Option<f64>,
    /// Whether everything that should arrive did.
    pub intact: bool,
    /// Everything else.
    pub metrics: Value,
}

/// In the format of `farlink lab run --json`.
pub fn json(cells: &[Cell]) -> Value {
    let cells: Vec<_> = cells
        .iter()
        .map(|c| {
            let mut params = c.params.clone();
            params["test"] = json!(c.test);
            json!({
                "params": params, "variant": c.variant, "repeat": c.repeat, "seconds": c.seconds,
                "goodput_bps": c.goodput_bps, "intact": c.intact, "metrics": c.metrics,
            })
        })
        .collect();
    json!({"scenario": "bench", "driver": "lab", "seed": 0, "version": env!("CARGO_PKG_VERSION"), "cells": cells})
}

/// The middle of what `pick` finds in the cells of a test, variant and number of flows.
fn median(
    cells: &[Cell],
    test: &str,
    variant: &str,
    flows: Option<u64>,
    pick: impl Fn(&Cell) -> Option<f64>,
) -> Option<f64> {
    let of_these = cells.iter().filter(|c| c.test == test && c.variant == variant);
    let of_these = of_these.filter(|c| flows.is_none() || c.params["flows"].as_u64() == flows);
    let mut values: Vec<f64> = of_these.filter_map(pick).collect();
    values.sort_by(f64::total_cmp);
    let (below, above) = (values.get(values.len().checked_sub(1)? / 2)?, values.get(values.len() / 2)?);
    Some(f64::midpoint(*below, *above))
}

fn metric(name: &str) -> impl Fn(&Cell) -> Option<f64> {
    let pointer = format!("/{name}");
    move |c| c.metrics.pointer(&pointer).and_then(Value::as_f64)
}

fn shown(value: Option<f64>, digits: usize, unit: &str) -> String {
    value.map_or("-".to_owned(), |v| format!("{v:.digits$} {unit}").trim_end().to_owned())
}

/// A line that compares a figure with what is wanted.
fn judged(what: &str, value: Option<f64>, wanted: &str, is_met: impl Fn(f64) -> bool) -> String {
    match value {
        None => String::new(),
        Some(v) => {
            format!("{} {what}: {v:.2} (wanted: {wanted})\n", if is_met(v) { "met   " } else { "MISSED" })
        }
    }
}

/// The tables and the verdicts.
pub fn text(cells: &[Cell]) -> String {
    let mut out = throughput(cells);
    out += &many(cells);
    out += &datagrams(cells);
    out += &small_things(cells);
    for flows in [1, 8] {
        let rate = |variant| median(cells, "bulk", variant, Some(flows), |c| c.goodput_bps);
        if let (Some(own), Some(plain)) = (rate("farlink"), rate("forward")) {
            let what = format!("throughput of {flows} flows as a share of plain forwarding");
            out += &judged(&what, Some(own / plain), "at least 0.6", |v| v >= 0.6);
        }
        if let (Some(custody), Some(split)) = (rate("farlink-custody"), rate("farlink")) {
            let what =
                format!("throughput of {flows} flows in custody mode as a share of that of split ones");
            out += &judged(&what, Some(custody / split), "at least 0.95", |v| v >= 0.95);
        }
    }
    for at_once in [1, 32] {
        let through = datagrams_of(cells, (true, at_once));
        let rate = median(&through, "udp", "farlink", None, |c| c.goodput_bps).map(|bps| bps / 1e9);
        let what = format!("forwarded UDP through the queue, {at_once} datagrams at once, Gbit/s");
        out += &judged(&what, rate, "at least 1", |v| v >= 1.0);
    }
    let flows = cells.iter().find(|c| c.test == "many").and_then(|c| c.params["flows"].as_u64()).unwrap_or(0);
    let moved = median(cells, "many", "farlink", None, metric("flows_with_data"));
    let what = format!("of {flows} connections at once, those that carried data");
    out += &judged(&what, moved, "all", |v| v >= flows as f64);
    let failed = median(cells, "http", "farlink", None, metric("failed"));
    out += &judged("failed short connections", failed, "0", |v| v == 0.0);
    let rate = median(cells, "http", "farlink", None, metric("connections_per_s"));
    let asked =
        cells.iter().find(|c| c.test == "http").and_then(|c| c.params["rate_per_s"].as_f64()).unwrap_or(0.0);
    out += &judged("short connections per second", rate, &format!("{asked:.0}"), |v| v >= asked * 0.98);
    let delay = |variant| median(cells, "latency", variant, None, metric("p50_us"));
    let added = delay("farlink").zip(delay("forward")).map(|(own, plain)| own - plain);
    out += &judged("added latency of a small request in us (median)", added, "below 100", |v| v < 100.0);
    if let Some(cell) = cells.iter().find(|c| c.test == "short") {
        let of = |name: &str| cell.metrics[name].as_f64();
        let what = "with a fifth of a processor, failed connections";
        out += &judged(what, of("failed"), "0", |v| v == 0.0);
        let what = "with a fifth of a processor, connections that were forwarded";
        out += &judged(what, of("flows_forwarded_busy"), "some, said by status, none afterwards", |_| {
            cell.intact
        });
    }
    let each = median(cells, "idle", "farlink", None, metric("resident_bytes_each_idle"));
    out += &judged("resident bytes of an idle connection", each, "at most 600", |v| v <= 600.0);
    out
}

fn throughput(cells: &[Cell]) -> String {
    let mut table =
        Table::new(&["FLOWS", "DATAPATH", "GBIT/S", "OF FORWARDING", "CPU-S/GB", "ITS PROCESS", "SPLIT"]);
    for flows in [1, 8] {
        let of =
            |variant, pick: &dyn Fn(&Cell) -> Option<f64>| median(cells, "bulk", variant, Some(flows), pick);
        let plain = of("forward", &|c| c.goodput_bps);
        for variant in Variant::ALL.map(Variant::name) {
            let Some(rate) = of(variant, &|c| c.goodput_bps) else { continue };
            table.row([
                flows.to_string(),
                variant.to_owned(),
                shown(Some(rate / 1e9), 2, ""),
                shown(plain.map(|p| rate / p), 2, ""),
                shown(of(variant, &metric("cpu_s_per_gb")), 2, ""),
                shown(of(variant, &metric("process_cpu_s_per_gb")), 2, ""),
                shown(of(variant, &metric("flows_split")), 0, ""),
            ]);
        }
    }
    if table.is_empty() {
        String::new()
    } else {
        format!("Throughput, median; CPU of the whole machine, hosts included\n{table}\n")
    }
}

/// Very many flows at once.
fn many(cells: &[Cell]) -> String {
    let mut table = Table::new(&[
        "FLOWS AT ONCE",
        "DATAPATH",
        "GBIT/S",
        "CPU-S/GB",
        "WITH DATA",
        "FAIRNESS",
        "SPLIT",
        "MEMORY MB",
    ]);
    for variant in Variant::ALL.map(Variant::name) {
        let of = |pick: &dyn Fn(&Cell) -> Option<f64>| median(cells, "many", variant, None, pick);
        let Some(rate) = of(&|c| c.goodput_bps) else { continue };
        table.row([
            shown(of(&|c| c.params["flows"].as_f64()), 0, ""),
            variant.to_owned(),
            shown(Some(rate / 1e9), 2, ""),
            shown(of(&metric("cpu_s_per_gb")), 2, ""),
            shown(of(&metric("flows_with_data")), 0, ""),
            shown(of(&metric("jain")), 3, ""),
            shown(of(&metric("flows_split")), 0, ""),
            shown(of(&metric("resident_bytes")).map(|b| b / 1e6), 0, ""),
        ]);
    }
    if table.is_empty() { String::new() } else { format!("{table}\n") }
}

/// Those of UDP that passes the queue or not, with so many datagrams at once.
fn datagrams_of(cells: &[Cell], (has_link, at_once): (bool, u64)) -> Vec<Cell> {
    let is_one = |c: &&Cell| {
        c.test == "udp" && c.params["link"] == json!(has_link) && c.params["at_once"] == json!(at_once)
    };
    cells.iter().filter(is_one).cloned().collect()
}

/// Forwarded UDP.
fn datagrams(cells: &[Cell]) -> String {
    let mut table = Table::new(&[
        "UDP AT ONCE",
        "DATAPATH",
        "QUEUE",
        "GBIT/S",
        "PACKETS/S",
        "LOST",
        "CPU-S/GB",
        "ITS PROCESS",
    ]);
    for at_once in [1, 32] {
        for (variant, has_link) in Variant::ALL.iter().flat_map(|v| [(v.name(), false), (v.name(), true)]) {
            let cells = datagrams_of(cells, (has_link, at_once));
            let of = |pick: &dyn Fn(&Cell) -> Option<f64>| median(&cells, "udp", variant, None, pick);
            let Some(rate) = of(&|c| c.goodput_bps) else { continue };
            table.row([
                at_once.to_string(),
                variant.to_owned(),
                if has_link { "through" } else { "past" }.to_owned(),
                shown(Some(rate / 1e9), 2, ""),
                shown(of(&metric("packets_per_s")), 0, ""),
                shown(of(&metric("lost_share")).map(|share| share * 100.0), 2, "%"),
                shown(of(&metric("cpu_s_per_gb")), 2, ""),
                shown(of(&metric("process_cpu_s_per_gb")), 2, ""),
            ]);
        }
    }
    if table.is_empty() { String::new() } else { format!("Forwarded UDP of 1,200 bytes, median\n{table}\n") }
}

fn small_things(cells: &[Cell]) -> String {
    let mut table =
        Table::new(&["TEST", "DATAPATH", "MEDIAN US", "P99 US", "PER SECOND", "FAILED", "BYTES EACH"]);
    let rows = ["latency", "http", "idle"];
    for (test, variant) in rows.into_iter().flat_map(|test| Variant::ALL.map(|v| (test, v.name()))) {
        if !cells.iter().any(|c| c.test == test && c.variant == variant) {
            continue;
        }
        let of = |name| median(cells, test, variant, None, metric(name));
        table.row([
            test.to_owned(),
            variant.to_owned(),
            shown(of("p50_us"), 0, ""),
            shown(of("p99_us"), 0, ""),
            shown(of("connections_per_s"), 0, ""),
            shown(of("failed"), 0, ""),
            shown(of("resident_bytes_each_idle"), 0, ""),
        ]);
    }
    if table.is_empty() { String::new() } else { format!("{table}\n") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(
        test: &'static str,
        variant: &'static str,
        params: Value,
        goodput_bps: f64,
        metrics: Value,
    ) -> Cell {
        Cell {
            test,
            variant,
            params,
            repeat: 0,
            seconds: 1.0,
            goodput_bps: Some(goodput_bps),
            intact: true,
            metrics,
        }
    }

    #[test]
    fn medians_and_verdicts() {
        let bulk = |variant, gbit: f64| {
            cell("bulk", variant, json!({"flows": 1}), gbit * 1e9, json!({"cpu_s_per_gb": 0.5}))
        };
        let mut cells =
            vec![bulk("forward", 10.0), bulk("farlink", 4.0), bulk("farlink", 6.0), bulk("farlink", 9.0)];
        let said = text(&cells);
        assert!(said.contains("met    throughput of 1 flows as a share of plain forwarding: 0.60"), "{said}");
        assert!(said.contains("6.00") && !said.contains("haproxy"), "{said}");
        cells.retain(|c| c.variant == "forward" || c.goodput_bps == Some(4e9));
        assert!(text(&cells).contains("MISSED throughput of 1 flows as a share of plain forwarding: 0.40"));
        assert_eq!(json(&cells)["cells"][0]["params"]["test"], "bulk");
        assert_eq!(text(&[]), "");
    }

    #[test]
    fn small_things_are_judged() {
        let cells = [
            cell("latency", "forward", json!({}), 0.0, json!({"p50_us": 50.0})),
            cell("latency", "farlink", json!({}), 0.0, json!({"p50_us": 170.0})),
            cell(
                "http",
                "farlink",
                json!({"rate_per_s": 5000}),
                0.0,
                json!({"failed": 0, "connections_per_s": 4999.0}),
            ),
            cell("idle", "farlink", json!({"flows": 10}), 0.0, json!({"resident_bytes_each_idle": 300.0})),
        ];
        let said = text(&cells);
        assert!(said.contains("MISSED added latency of a small request in us (median): 120"), "{said}");
        assert!(
            said.contains("met    failed short connections: 0") && said.contains("met    resident bytes"),
            "{said}"
        );
    }
}
