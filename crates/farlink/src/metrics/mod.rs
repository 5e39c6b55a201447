//! Counters in Prometheus' text format (version 0.0.4), made from the same snapshot that `farlink
//! status --json` prints.

mod families;
mod http;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use farlink_linux::divert::Severity;
use farlink_linux::driver::Troubles;
use farlink_linux::priority::{Priority, start_thread};
use serde_json::Value;

use crate::view::text;
use crate::words;
use families::{FAMILIES, Family, Kind, Place, Unit};

/// Where it is configured, and cannot be listened at.
const UNSERVED: &str = "metrics-unserved";
/// It is tried again so much later.
const AGAIN: Duration = Duration::from_secs(2);

/// Renders a snapshot: every family with what it means, its kind, and its numbers.
pub fn render(status: &Value) -> String {
    let mut out = String::new();
    let version = env!("CARGO_PKG_VERSION");
    head(&mut out, "farlink_build_info", "gauge", "The version, as a label. Always 1.");
    let _ = writeln!(out, "farlink_build_info{{version=\"{version}\"}} 1");
    for family in FAMILIES {
        let samples = samples(family, status);
        if samples.is_empty() {
            continue;
        }
        let kind = match family.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        head(&mut out, family.name, kind, family.help);
        for (labels, value) in samples {
            let _ = writeln!(out, "{}{labels} {}", family.name, in_base_unit(value, family.unit));
        }
    }
    stages(&mut out, crate::view::list(status, "/driver/profile"));
    out
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// The labels in their brackets, and the number as the snapshot has it.
type Sample = (String, u64);

fn samples(family: &Family, status: &Value) -> Vec<Sample> {
    let at = |pointer: &str| status.pointer(pointer).and_then(as_number);
    let of_list = |list, label, field| {
        let items = crate::view::list(status, list).iter();
        let one =
            |item| Some((labels(&[(label, text(item, "/name"))]), as_number(Value::get(item, field)?)?));
        items.filter_map(one).collect()
    };
    match family.place {
        Place::At(pointer) => at(pointer).map(|value| (String::new(), value)).into_iter().collect(),
        Place::Each(label, places) => {
            let one =
                |(name, pointer): &(&str, &str)| Some((labels(&[(label, (*name).to_owned())]), at(pointer)?));
            places.iter().filter_map(one).collect()
        }
        Place::Map(label, pointer) => {
            let entries = status.pointer(pointer).and_then(Value::as_object).into_iter().flatten();
            // `flows_bytes` of memory is what flows have.
            let name = |name: &str| name.strip_suffix("_bytes").unwrap_or(name).to_owned();
            let one =
                |(key, value): (&String, &Value)| Some((labels(&[(label, name(key))]), as_number(value)?));
            entries.filter_map(one).collect()
        }
        Place::OfLink(field) => of_list("/links", "link", field),
        Place::StateOfLink => {
            let links = crate::view::list(status, "/links").iter();
            let of = |link: &Value| {
                let (name, is) = (text(link, "/name"), words::state(link));
                words::STATES.map(|state| {
                    (labels(&[("link", name.clone()), ("state", state.to_owned())]), u64::from(is == state))
                })
            };
            links.flat_map(of).collect()
        }
        Place::StateOfCapture => {
            let captures = crate::view::list(status, "/diversion/captures").iter();
            let of = |capture: &Value| {
                let names = ["interface", "direction"].map(|name| (name, text(capture, &format!("/{name}"))));
                let is = text(capture, "/state");
                words::CAPTURE_STATES.map(|state| {
                    let [interface, direction] = names.clone();
                    let all = [interface, direction, ("state", state.to_owned())];
                    (labels(&all), u64::from(is == state))
                })
            };
            captures.flat_map(of).collect()
        }
        Place::MapOfLink(label, field) => {
            let links = crate::view::list(status, "/links").iter();
            let entries = links.flat_map(|link| {
                let entries = link.get(field).and_then(Value::as_object).into_iter().flatten();
                entries.map(move |entry| (link, entry))
            });
            let one = |(link, (key, value)): (&Value, (&String, &Value))| {
                let name = key.strip_suffix("_bytes").unwrap_or(key).to_owned();
                Some((labels(&[("link", text(link, "/name")), (label, name)]), as_number(value)?))
            };
            entries.filter_map(one).collect()
        }
        Place::OfInterface(field) => of_list("/interfaces", "interface", field),
        Place::OfRule(field) => of_list("/engine/rules", "rule", field),
        Place::OfKind(field) => {
            let kinds = crate::view::list(status, "/links").iter().flat_map(|link| {
                let kinds = link.get("carried").and_then(Value::as_object).into_iter().flatten();
                kinds.map(move |(kind, carried)| (link, kind, carried))
            });
            let one = |(link, kind, carried): (&Value, &String, &Value)| {
                let names = [("link", text(link, "/name")), ("kind", kind.clone())];
                Some((labels(&names), as_number(carried.get(field)?)?))
            };
            kinds.filter_map(one).collect()
        }
        Place::OfPair(field) => {
            let links = crate::view::list(status, "/links").iter();
            let pairs =
                links.flat_map(|link| crate::view::list(link, "/pairs").iter().map(move |p| (link, p)));
            let one = |(link, pair): (&Value, &Value)| {
                let names = [("link", text(link, "/name")), ("gateway", text(pair, "/gateway"))];
                Some((labels(&names), as_number(pair.get(field)?)?))
            };
            pairs.filter_map(one).collect()
        }
    }
}

fn labels(labels: &[(&str, String)]) -> String {
    let escaped = |value: &String| value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let all: Vec<_> = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
    format!("{{{}}}", all.join(","))
}

fn in_base_unit(value: u64, unit: Unit) -> String {
    match unit {
        Unit::Same => value.to_string(),
        Unit::Bits => (value as f64 / 8.0).to_string(),
        Unit::Microseconds => (value as f64 / 1e6).to_string(),
    }
}

/// The profile as a histogram in seconds; nothing while it is off.
fn stages(out: &mut String, stages: &[Value]) {
    if !stages.is_empty() {
        head(
            out,
            "farlink_stage_seconds",
            "histogram",
            "Time in each stage of the datapath, while it is measured.",
        );
    }
    for stage in stages {
        let name = text(stage, "/name");
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

fn as_number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_bool().map(u64::from))
}

/// Serves `/metrics`, on threads of its own, as soon as there is a listener. `listening`: the
/// outcome of listening at this address; where that failed, `listen_again` is asked for it until it
/// succeeds. `snapshot` asks the event loop.
///
/// # Errors
/// There can be no thread.
pub fn serve(
    address: SocketAddr,
    listening: io::Result<TcpListener>,
    listen_again: impl Fn() -> io::Result<TcpListener> + Send + 'static,
    troubles: Troubles,
    snapshot: impl Fn() -> Option<Value> + Send + Sync + 'static,
) -> anyhow::Result<()> {
    let answer = Arc::new(move |path: Option<&str>| answer(path, &snapshot));
    let work = move || http::serve(&patiently(address, listening, listen_again, &troubles), &answer);
    start_thread("metrics", Priority::Normal, work).context("cannot start the metrics thread")?;
    Ok(())
}

/// Tries it until there is one.
fn patiently(
    address: SocketAddr,
    mut listening: io::Result<TcpListener>,
    listen_again: impl Fn() -> io::Result<TcpListener>,
    troubles: &Troubles,
) -> TcpListener {
    loop {
        match listening {
            Ok(listener) => {
                troubles.end(UNSERVED);
                return listener;
            }
            Err(error) => {
                let text = format!(
                    "no metrics are served at {address} (`metrics_address`). It is tried again every two seconds"
                );
                troubles.begin(UNSERVED, Severity::Warning, &text, &error);
            }
        }
        std::thread::sleep(AGAIN);
        listening = listen_again();
    }
}

fn answer(path: Option<&str>, snapshot: &impl Fn() -> Option<Value>) -> http::Answer {
    match (path, path.filter(|path| *path == "/metrics").and_then(|_| snapshot())) {
        (_, Some(status)) => ("200 OK", render(&status)),
        (Some("/metrics"), None) => ("503 Service Unavailable", "the gateway is ending\n".to_owned()),
        _ => ("404 Not Found", "the counters are at /metrics\n".to_owned()),
    }
}
