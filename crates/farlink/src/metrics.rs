//! Counters in Prometheus' text format (version 0.0.4), made from the same snapshot that `farlink
//! status --json` prints.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use serde_json::Value;

/// How long an asker may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Lines of a request that are read.
const LINES_MAX: usize = 100;

/// What counts up, of links, interfaces and rules.
const COUNTS_UP: [&str; 15] = [
    "returns",
    "on_hand_total_bytes",
    "sent_bytes",
    "retransmitted_bytes",
    "dropped_packets",
    "acks_filtered",
    "queue_drops",
    "packets_in",
    "bytes_in",
    "super_segments_in",
    "packets_out",
    "bytes_out",
    "connections",
    "bytes",
    "over_limit",
];

/// Renders a snapshot. Numbers at the top become gauges, `counters` become counters; lists get
/// their names as labels.
pub fn render(status: &Value) -> String {
    let mut out = String::new();
    for (name, value) in status.pointer("/engine").and_then(Value::as_object).into_iter().flatten() {
        if let Some(value) = as_number(value) {
            let _ = writeln!(out, "# TYPE farlink_{name} gauge\nfarlink_{name} {value}");
        }
    }
    let groups = ["/traffic", "/engine/counters"].map(|at| status.pointer(at).and_then(Value::as_object));
    for (name, value) in groups.into_iter().flatten().flatten() {
        if let Some(value) = as_number(value) {
            let _ = writeln!(out, "# TYPE farlink_{name}_total counter\nfarlink_{name}_total {value}");
        }
    }
    let held = status.pointer("/engine/limited_by").and_then(Value::as_object);
    if let Some(held) = held {
        let _ = writeln!(out, "# TYPE farlink_flows_limited_by gauge");
        for (by, count) in held {
            let _ = writeln!(out, "farlink_flows_limited_by{{by=\"{by}\"}} {count}");
        }
    }
    let wakes = status.pointer("/wakes").and_then(Value::as_object);
    if let Some(wakes) = wakes {
        let _ = writeln!(out, "# TYPE farlink_wakes_total counter");
        for (what, times) in wakes {
            let _ = writeln!(out, "farlink_wakes_total{{for=\"{what}\"}} {times}");
        }
    }
    let memory = status.pointer("/engine/memory").and_then(Value::as_object);
    if let Some(memory) = memory {
        let _ = writeln!(out, "# TYPE farlink_memory_bytes gauge");
        for (name, bytes) in memory {
            let of = name.trim_end_matches("_bytes");
            let _ = writeln!(out, "farlink_memory_bytes{{of=\"{of}\"}} {bytes}");
        }
    }
    for (name, value) in status.pointer("/driver").and_then(Value::as_object).into_iter().flatten() {
        if let Some(value) = as_number(value) {
            let _ = writeln!(
                out,
                "# TYPE farlink_driver_{name}_total counter\nfarlink_driver_{name}_total {value}"
            );
        }
    }
    diversion(&mut out, status);
    if let Some(bytes) = status.pointer("/reassembly_bytes").and_then(Value::as_u64) {
        let _ = writeln!(out, "# TYPE farlink_reassembly_bytes gauge\nfarlink_reassembly_bytes {bytes}");
    }
    stages(&mut out, crate::view::list(status, "/driver/profile"));
    of_pairs(&mut out, status);
    for (list, label) in [("/links", "link"), ("/interfaces", "interface"), ("/engine/rules", "rule")] {
        labelled(&mut out, crate::view::list(status, list), label);
    }
    if let Some(uptime) = status.pointer("/uptime_seconds") {
        let _ = writeln!(out, "# TYPE farlink_uptime_seconds gauge\nfarlink_uptime_seconds {uptime}");
    }
    out
}

/// Whether traffic is diverted at all, and how often something was wrong with that.
fn diversion(out: &mut String, status: &Value) {
    for (name, value) in status.pointer("/diversion").and_then(Value::as_object).into_iter().flatten() {
        let Some(value) = as_number(value) else { continue };
        let (name, kind) = match name.as_str() {
            "repairs" | "ends" => (format!("{name}_total"), "counter"),
            name => (name.to_owned(), "gauge"),
        };
        let _ = writeln!(out, "# TYPE farlink_diversion_{name} {kind}\nfarlink_diversion_{name} {value}");
    }
}

/// The profile as a histogram in seconds; nothing while it is off.
fn stages(out: &mut String, stages: &[Value]) {
    if !stages.is_empty() {
        let _ = writeln!(out, "# TYPE farlink_stage_seconds histogram");
    }
    for stage in stages {
        let name = crate::view::text(stage, "/name");
        let classes: Vec<u64> =
            crate::view::list(stage, "/histogram").iter().filter_map(Value::as_u64).collect();
        let mut sum = 0;
        for (class, n) in classes.iter().enumerate() {
            sum += n;
            let bound = if class + 1 == classes.len() {
                "+Inf".to_owned()
            } else {
                format!("{}", (256_u64 << class) as f64 / 1e9)
            };
            let _ = writeln!(out, "farlink_stage_seconds_bucket{{stage=\"{name}\",le=\"{bound}\"}} {sum}");
        }
        let seconds = crate::view::number(stage, "/ns") as f64 / 1e9;
        let _ = writeln!(out, "farlink_stage_seconds_sum{{stage=\"{name}\"}} {seconds}");
        let _ = writeln!(out, "farlink_stage_seconds_count{{stage=\"{name}\"}} {sum}");
    }
}

fn labelled(out: &mut String, items: &[Value], label: &str) {
    let Some(first) = items.first().and_then(Value::as_object) else { return };
    for (name, _) in first.iter().filter(|(_, value)| as_number(value).is_some()) {
        let kind = if COUNTS_UP.contains(&name.as_str()) { "counter" } else { "gauge" };
        let _ = writeln!(out, "# TYPE farlink_{label}_{name} {kind}");
        for item in items {
            let of = label_text(item, "/name");
            if let Some(value) = item.get(name).and_then(as_number) {
                let _ = writeln!(out, "farlink_{label}_{name}{{{label}=\"{of}\"}} {value}");
            }
        }
    }
}

/// What flows to the same gateway share of a link on which routers say how fast.
fn of_pairs(out: &mut String, status: &Value) {
    let links = || status.pointer("/links").and_then(Value::as_array).into_iter().flatten();
    let pairs = |link| {
        let pairs = Value::pointer(link, "/pairs").and_then(Value::as_array).into_iter().flatten();
        pairs.map(move |pair| (link, pair))
    };
    if links().flat_map(pairs).next().is_none() {
        return;
    }
    for name in ["rate_bps", "routers_speak", "flows"] {
        let _ = writeln!(out, "# TYPE farlink_pair_{name} gauge");
        for (link, pair) in links().flat_map(pairs) {
            if let Some(value) = pair.get(name).and_then(as_number) {
                let [link, gateway] =
                    [(link, "/name"), (pair, "/gateway")].map(|(of, name)| label_text(of, name));
                let _ = writeln!(out, "farlink_pair_{name}{{link=\"{link}\",gateway=\"{gateway}\"}} {value}");
            }
        }
    }
}

/// A text as the value of a label.
fn label_text(of: &Value, name: &str) -> String {
    crate::view::text(of, name).replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn as_number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_bool().map(u64::from))
}

/// Serves `/metrics` from a thread of its own. `snapshot` asks the event loop.
pub fn serve(
    address: SocketAddr,
    snapshot: impl Fn() -> Option<Value> + Send + 'static,
) -> anyhow::Result<()> {
    let listener =
        TcpListener::bind(address).with_context(|| format!("cannot serve metrics at {address}"))?;
    let accept = move || {
        for connection in listener.incoming().flatten() {
            // One at a time: a scraper comes every few seconds. Its going away is its own affair.
            let _ = answer(&connection, &snapshot);
        }
    };
    thread::Builder::new()
        .name("metrics".to_owned())
        .spawn(accept)
        .context("cannot start the metrics thread")?;
    Ok(())
}

fn answer(connection: &TcpStream, snapshot: &dyn Fn() -> Option<Value>) -> std::io::Result<()> {
    connection.set_read_timeout(Some(PATIENCE))?;
    connection.set_write_timeout(Some(PATIENCE))?;
    let mut lines = BufReader::new(std::io::Read::take(connection, 16 << 10)).lines().take(LINES_MAX);
    let request = lines.next().transpose()?.unwrap_or_default();
    while lines.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
    let path = request.strip_prefix("GET ").and_then(|rest| rest.split([' ', '?']).next());
    let (code, body) = match (path, path.filter(|p| *p == "/metrics").and_then(|_| snapshot())) {
        (_, Some(status)) => ("200 OK", render(&status)),
        (Some("/metrics"), None) => ("503 Service Unavailable", "the gateway is ending\n".to_owned()),
        _ => ("404 Not Found", "the counters are at /metrics\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {code}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let mut writer = connection;
    writer.write_all(head.as_bytes())?;
    writer.write_all(body.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use farlink_gateway::engine_status::PairStatus;
    use farlink_gateway::{LinkStatus, Status};
    use std::io::Read;

    fn snapshot() -> Value {
        let mut status = Status::default();
        status.engine.flows_split = 42;
        status.engine.counters.flows_split = 99;
        status.engine.memory.timers_bytes = 5;
        status.wakes.insert("pacing", 6);
        status.links.push(LinkStatus { name: "a\"b".into(), up: true, sent_bytes: 5, ..Default::default() });
        status.links.push(LinkStatus {
            name: "c".into(),
            pairs: vec![PairStatus {
                gateway: "5eed0001".into(),
                rate_bps: 7,
                routers_speak: true,
                flows: 2,
                header: "",
            }],
            ..Default::default()
        });
        let mut value = serde_json::to_value(&status).unwrap();
        value["diversion"] =
            serde_json::json!({"in_place": false, "ipv4": true, "ipv6": false, "repairs": 3, "found": ["x"]});
        value["driver"] = serde_json::json!({"writes_busy": 7, "profile": [
            {"name": "read", "calls": 3, "ns": 1500, "histogram": [1, 1, 1]},
        ]});
        value
    }

    #[test]
    fn every_metric_has_a_type_and_a_name_of_its_own() {
        let text = render(&snapshot());
        for line in [
            "farlink_flows_split 42",
            "farlink_flows_split_total 99",
            "farlink_link_up{link=\"a\\\"b\"} 1",
            "# TYPE farlink_link_sent_bytes counter",
            "farlink_link_sent_bytes{link=\"c\"} 0",
            "# TYPE farlink_link_custody_bytes gauge",
            "farlink_link_custody_bytes{link=\"c\"} 0",
            "farlink_link_retransmitted_bytes{link=\"c\"} 0",
            "farlink_pair_rate_bps{link=\"c\",gateway=\"5eed0001\"} 7",
            "farlink_pair_routers_speak{link=\"c\",gateway=\"5eed0001\"} 1",
            "farlink_flows_limited_by{by=\"receiver\"} 0",
            "farlink_memory_bytes{of=\"timers\"} 5",
            "farlink_wakes_total{for=\"pacing\"} 6",
            "farlink_driver_writes_busy_total 7",
            "farlink_diversion_in_place 0",
            "farlink_diversion_ipv4 1",
            "farlink_diversion_ipv6 0",
            "farlink_diversion_repairs_total 3",
            "farlink_stage_seconds_bucket{stage=\"read\",le=\"0.000000512\"} 2",
            "farlink_stage_seconds_bucket{stage=\"read\",le=\"+Inf\"} 3",
            "farlink_stage_seconds_sum{stage=\"read\"} 0.0000015",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is missing in\n{text}");
        }
        let mut types: Vec<_> = text.lines().filter_map(|l| l.strip_prefix("# TYPE ")).collect();
        let all = types.len();
        types.sort_unstable();
        types.dedup();
        assert_eq!(types.len(), all, "no metric is declared twice");
    }

    #[test]
    fn metrics_are_served_over_http() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        serve(address, || Some(snapshot())).unwrap();
        let get = |path: &str| {
            let mut s = TcpStream::connect(address).unwrap();
            s.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
            let mut answer = String::new();
            s.read_to_string(&mut answer).unwrap();
            answer
        };
        let answer = get("/metrics");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("\nfarlink_flows_split 42\n"));
        assert!(get("/other").starts_with("HTTP/1.1 404"));
    }
}
