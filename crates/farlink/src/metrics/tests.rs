//! What Prometheus gets: complete, and by its conventions.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Instant;

use farlink_gateway::engine_status::{PairStatus, RuleStatus};
use farlink_gateway::{LinkStatus, Passed, Status};
use farlink_linux::divert::{Capture, CaptureState, Direction};
use farlink_linux::driver::{DiversionStatus, DriverStatus, PortStatus, TunCounters};
use serde_json::{Value, json};

use super::families::NO_METRICS;
use super::*;

/// A snapshot as the daemon makes it, with one of everything.
fn snapshot() -> Value {
    let mut status = Status::default();
    status.engine.flows_split = 42;
    status.engine.counters.flows_split = 99;
    status.engine.memory.timers_bytes = 5;
    status.engine.rules.push(RuleStatus { name: "r".into(), connections: 8, ..Default::default() });
    status.wakes.insert("pacing", 6);
    let pair =
        PairStatus { gateway: "5eed0001".into(), rate_bps: 8, routers_speak: true, flows: 2, header: "" };
    let link = LinkStatus {
        name: "a\"b".into(),
        up: true,
        sent_bytes: 5,
        rate_bps: 8_000_001,
        queue_bps: 7_600_000,
        beside_metered: true,
        rtt_us: 1_500,
        pairs: vec![pair],
        carried: [("udp", Passed { packets: 7, ..Passed::default() })].into(),
        ..Default::default()
    };
    status.links.extend([link, LinkStatus { name: "c".into(), ..Default::default() }]);
    let port = PortStatus {
        interface: "lan0".into(),
        called: "lan0".into(),
        present: true,
        up: true,
        tun: "farlink0".into(),
        tso4: true,
        tso6: true,
        uso: true,
        queue_drops: 3,
        packets_from_wire: Some(5),
        packets_to_wire: Some(6),
        counters: TunCounters::default(),
    };
    let driver = DriverStatus {
        ports: vec![port],
        counters: farlink_linux::driver::Counters { writes_busy: 7, ..Default::default() },
        profile: None,
        route_lookups: 0,
        journal_refused: 0,
        spread: false,
        diversion: DiversionStatus {
            everything: Some(true),
            ipv4: true,
            repairs: 3,
            captures: vec![Capture {
                interface: "lan0".into(),
                direction: Direction::Out,
                state: CaptureState::Proven,
            }],
            ..Default::default()
        },
        uptime_s: 1.5,
    };
    let mut value = serde_json::to_value(&status).unwrap();
    value["uptime_seconds"] = json!(1);
    value["interfaces"] = driver.ports.iter().map(crate::answers::port).collect();
    value["diversion"] = json!(driver.diversion);
    value["driver"] = crate::answers::driver_counters(&driver);
    value["driver"]["profile"] = json!([{"name": "read", "calls": 3, "ns": 1500, "histogram": [1, 1, 1]}]);
    value
}

/// Every family of an exposition: kind, help, and its samples' names with labels.
#[derive(Debug, Default)]
struct Exposed<'a> {
    kind: &'a str,
    help: &'a str,
    samples: Vec<&'a str>,
}

/// Reads an exposition as strictly as the format allows.
fn parse(text: &str) -> BTreeMap<&str, Exposed<'_>> {
    let mut families: BTreeMap<&str, Exposed<'_>> = BTreeMap::new();
    let mut current = "";
    for line in text.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|l| l.split_once(' ')) {
            assert!(families.insert(name, Exposed { help, ..Default::default() }).is_none(), "{name} twice");
            current = name;
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|l| l.split_once(' ')) {
            assert_eq!(name, current, "its help stands before it");
            families.get_mut(name).unwrap().kind = kind;
        } else {
            let (series, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().is_ok_and(|v| v.is_finite()), "{line}");
            let name = series.split('{').next().unwrap();
            let family = families.get_mut(current).unwrap();
            let parts = ["_bucket", "_sum", "_count"].map(|end| format!("{current}{end}"));
            let is_part = family.kind == "histogram" && parts.iter().any(|part| part == name);
            assert!(name == current || is_part, "{name} among {current}");
            family.samples.push(series);
        }
    }
    families
}

#[test]
fn every_number_is_exposed_in_base_units() {
    let text = render(&snapshot());
    for line in [
        concat!("farlink_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1"),
        "farlink_flows{mode=\"split\"} 42",
        "farlink_flows_split_total 99",
        "farlink_link_up{link=\"a\\\"b\"} 1",
        "farlink_link_sent_bytes_total{link=\"a\\\"b\"} 5",
        "farlink_link_sent_bytes_total{link=\"c\"} 0",
        "farlink_link_rate_bytes_per_second{link=\"a\\\"b\"} 1000000.125",
        "farlink_link_queue_bytes_per_second{link=\"a\\\"b\"} 950000",
        "farlink_link_beside_metered{link=\"a\\\"b\"} 1",
        "farlink_link_beside_metered{link=\"c\"} 0",
        "farlink_link_rtt_seconds{link=\"a\\\"b\"} 0.0015",
        "farlink_pair_rate_bytes_per_second{link=\"a\\\"b\",gateway=\"5eed0001\"} 1",
        "farlink_pair_routers_speak{link=\"a\\\"b\",gateway=\"5eed0001\"} 1",
        "farlink_flows_limited_by{by=\"receiver\"} 0",
        "farlink_memory_bytes{of=\"timers\"} 5",
        "farlink_wakes_total{for=\"pacing\"} 6",
        "farlink_rule_connections_total{rule=\"r\"} 8",
        "farlink_interface_queue_drops_total{interface=\"lan0\"} 3",
        "farlink_interface_packets_from_wire_total{interface=\"lan0\"} 5",
        "farlink_interface_packets_to_wire_total{interface=\"lan0\"} 6",
        "farlink_driver_writes_busy_total 7",
        "farlink_driver_spread 0",
        "farlink_diversion_in_place 0",
        "farlink_diversion_capture{interface=\"lan0\",direction=\"out\",state=\"proven\"} 1",
        "farlink_diversion_capture{interface=\"lan0\",direction=\"out\",state=\"wanted\"} 0",
        "farlink_diversion_ipv4 1",
        "farlink_diversion_ipv6 0",
        "farlink_diversion_repairs_total 3",
        "farlink_stage_seconds_bucket{stage=\"read\",le=\"0.000000512\"} 2",
        "farlink_stage_seconds_bucket{stage=\"read\",le=\"+Inf\"} 3",
        "farlink_stage_seconds_sum{stage=\"read\"} 0.0000015",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is missing in\n{text}");
    }
}

/// What promtool looks at, and more.
#[test]
fn names_follow_the_conventions() {
    let text = render(&snapshot());
    let families = parse(&text);
    assert!(families.len() > 90, "{}", families.len());
    for (name, Exposed { kind, help, samples }) in &families {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        assert!(name.starts_with("farlink_") && name.chars().all(plain), "{name}");
        assert!(
            help.ends_with('.') && help.starts_with(|c: char| c.is_ascii_uppercase() || c == '1'),
            "{name}: {help}"
        );
        assert!(["counter", "gauge", "histogram"].contains(kind), "{name}: {kind}");
        assert_eq!(name.ends_with("_total"), *kind == "counter", "{name} is a {kind}");
        let words: Vec<_> = name.split('_').collect();
        for unit in ["ms", "us", "ns", "bps", "bits", "kb", "mb", "percent", "milliseconds", "count", "sum"] {
            assert!(!words.contains(&unit), "{name}: base units are seconds and bytes");
        }
        // OpenMetrics calls a counter by what stands before `_total`.
        let base = name.strip_suffix("_total").filter(|base| families.contains_key(base));
        assert!(base.is_none(), "{name} and {base:?}");
        assert!(!samples.is_empty(), "{name}");
        let different: BTreeSet<_> = samples.iter().collect();
        assert_eq!(different.len(), samples.len(), "{name}: a series stands twice");
    }
}

/// Pointers of all numbers of a snapshot, with `*` for the place in a list.
fn numbers(value: &Value, at: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(entries) => {
            entries.iter().for_each(|(key, value)| numbers(value, &format!("{at}/{key}"), found));
        }
        Value::Array(items) => items.iter().for_each(|value| numbers(value, &format!("{at}/*"), found)),
        value if as_number(value).is_some() => _ = found.insert(at.to_owned()),
        _ => {}
    }
}

#[test]
fn no_number_of_the_snapshot_is_forgotten() {
    let snapshot = snapshot();
    let mut found = BTreeSet::new();
    numbers(&snapshot, "", &mut found);
    let is_exposed = |pointer: &str| {
        // A kind of traffic is a name of its own.
        let pointer = &pointer.replace("/carried/udp/", "/carried/*/");
        let of = |list: &str, field: &str| *pointer == format!("{list}/*/{field}");
        FAMILIES.iter().any(|family| match family.place {
            Place::At(at) => at == pointer,
            Place::Each(_, places) => places.iter().any(|(_, at)| *at == pointer),
            Place::Map(_, at) => pointer.starts_with(&format!("{at}/")),
            Place::OfLink(field) => of("/links", field),
            Place::StateOfLink | Place::StateOfCapture => false,
            Place::MapOfLink(_, field) => pointer.starts_with(&format!("/links/*/{field}/")),
            Place::OfKind(field) => of("/links/*/carried", field),
            Place::OfPair(field) => of("/links/*/pairs", field),
            Place::OfInterface(field) => of("/interfaces", field),
            Place::OfRule(field) => of("/engine/rules", field),
        })
    };
    let is_none = |pointer: &str| NO_METRICS.iter().any(|(at, _)| pointer.starts_with(at));
    let forgotten: Vec<_> = found.iter().filter(|p| !is_exposed(p) && !is_none(p)).collect();
    assert!(forgotten.is_empty(), "add them to families.rs, as metrics or to NO_METRICS: {forgotten:#?}");
    let empty: Vec<_> =
        FAMILIES.iter().filter(|f| samples(f, &snapshot).is_empty()).map(|f| f.name).collect();
    assert!(empty.is_empty(), "they stand nowhere in the snapshot: {empty:?}");
}

const DASHBOARD: &str = include_str!("../../../../packaging/grafana.json");
const ALERTS: &str = include_str!("../../../../packaging/farlink-alerts.yml");
const MANUAL: &str = include_str!("../../../../docs/operating.md");

/// Whole names of metrics in a text. `farlink_link_...` stands for several, and is none.
fn named(text: &str) -> BTreeSet<&str> {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let places = text.match_indices("farlink_").map(|(at, _)| at);
    let names = places.filter(|at| !text[..*at].ends_with(is_part)).map(|at| {
        let rest = &text[at..];
        &rest[..rest.find(|c| !is_part(c)).unwrap_or(rest.len())]
    });
    names.filter(|name| !name.ends_with('_')).collect()
}

#[test]
fn dashboard_alerts_and_manual_name_metrics_that_exist() {
    let text = render(&snapshot());
    let families = parse(&text);
    let is_there = |name: &str| {
        let histogram = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
        families.contains_key(name)
            || histogram.and_then(|base| families.get(base)).is_some_and(|f| f.kind == "histogram")
    };
    for (file, text, least) in
        [("grafana.json", DASHBOARD, 30), ("farlink-alerts.yml", ALERTS, 12), ("operating.md", MANUAL, 20)]
    {
        let names = named(text);
        assert!(names.len() >= least, "{file}: {names:?}");
        let gone: Vec<_> = names.into_iter().filter(|name| !is_there(name)).collect();
        assert!(gone.is_empty(), "{file} names metrics that do not exist: {gone:?}");
    }
}

#[test]
fn the_dashboard_is_whole() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let variables = crate::view::list(&dashboard, "/templating/list");
    let variables: Vec<_> = variables.iter().map(|v| format!("${}", text(v, "/name"))).collect();
    let mut ids = BTreeSet::new();
    let mut queries = 0;
    for panel in crate::view::list(&dashboard, "/panels") {
        assert!(ids.insert(panel["id"].as_u64()), "two panels have the number {}", panel["id"]);
        let targets = crate::view::list(panel, "/targets");
        assert_eq!(targets.is_empty(), panel["type"] == "row", "{}", panel["title"]);
        for target in targets {
            let query = text(target, "/expr");
            queries += 1;
            let unknown: Vec<_> = query
                .split(['"', '[', ']'])
                .filter(|part| part.starts_with('$') && *part != "$__rate_interval")
                .filter(|part| !variables.iter().any(|v| v == part))
                .collect();
            assert!(unknown.is_empty(), "{query}: {unknown:?}");
            assert!(query.matches('(').count() == query.matches(')').count(), "{query}");
            // One gateway's numbers are not another's.
            assert_eq!(!named(&query).is_empty(), query.contains("instance=~\"$instance\""), "{query}");
        }
    }
    assert!(queries > 30, "{queries}");
}

#[test]
fn alerts_fire_when_they_should_and_only_then() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let rules = root.join("packaging/farlink-alerts.yml");
    let cases = include_str!("../../tests/alerts.yml").replace("RULES", rules.to_str().unwrap());
    let file = std::env::temp_dir().join(format!("farlink-alerts-{}.yml", std::process::id()));
    std::fs::write(&file, cases).unwrap();
    for what in [["check", "rules", rules.to_str().unwrap()], ["test", "rules", file.to_str().unwrap()]] {
        let Ok(output) = Command::new("promtool").args(what).output() else {
            println!("left out: promtool is not installed");
            break;
        };
        let said = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{what:?}: {}", String::from_utf8_lossy(&said));
    }
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn promtool_finds_nothing() {
    let mut tool = Command::new("promtool");
    tool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(mut tool) = tool.stderr(Stdio::piped()).spawn() else {
        return println!("left out: promtool is not installed");
    };
    tool.stdin.take().unwrap().write_all(render(&snapshot()).as_bytes()).unwrap();
    let output = tool.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success() && said.is_empty(), "{}", String::from_utf8_lossy(&said));
}

/// Served at an address of this machine.
fn served(troubles: &Troubles) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    serve(address, Ok(listener), || unreachable!("there is one"), troubles.clone(), || Some(snapshot()))
        .unwrap();
    address
}

fn get(address: SocketAddr, path: &str) -> String {
    let mut s = TcpStream::connect(address).unwrap();
    s.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    s.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn metrics_are_served_over_http() {
    let address = served(&Troubles::default());
    let answer = get(address, "/metrics");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("\nfarlink_flows_split_total 99\n"));
    assert!(get(address, "/other").starts_with("HTTP/1.1 404"));
}

/// Twelve who send a byte now and then hold up nobody for longer than a request may take.
#[test]
fn who_drips_does_not_hold_up_others() {
    let address = served(&Troubles::default());
    let mut dripping: Vec<_> = (0..12).map(|_| TcpStream::connect(address).unwrap()).collect();
    let began = Instant::now();
    let asker = std::thread::spawn(move || get(address, "/metrics"));
    while !asker.is_finished() {
        // Some are closed by now.
        dripping.iter_mut().for_each(|one| drop(one.write_all(b"G")));
        assert!(began.elapsed() < Duration::from_secs(30), "nobody else is served");
        std::thread::sleep(Duration::from_millis(20));
    }
    let took = began.elapsed();
    assert!(asker.join().unwrap().starts_with("HTTP/1.1 200 OK\r\n"));
    assert!(took < Duration::from_secs(3), "{took:?}");
}

/// A port that another program has is a finding until it is free, and then served.
#[test]
fn a_port_that_is_taken_is_waited_for() {
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap();
    let troubles = Troubles::default();
    let listen = move || farlink_linux::listener::listen_at(address);
    serve(address, listen(), listen, troubles.clone(), || Some(snapshot())).unwrap();
    let until = Instant::now() + Duration::from_secs(10);
    let eventually = |what: &str, is_so: &dyn Fn() -> bool| {
        while !is_so() {
            assert!(Instant::now() < until, "{what}: not so");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let is_told = || troubles.found().iter().any(|found| found.id == UNSERVED);
    eventually("it is told", &is_told);
    drop(other);
    eventually("it is over", &|| !is_told());
    assert!(get(address, "/metrics").starts_with("HTTP/1.1 200 OK\r\n"));
}
