//! `farlink status`, `flows`, `set`, `drain` and `link`: what is asked of the running gateway, and
//! how the answer looks.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::bail;
use farlink_gateway::{Kind, Passed};
use serde_json::Value;

use crate::admin::client::{NoGateway, ask};
use crate::admin::protocol::Request;
use crate::check::undeclared;
use crate::cli::{DrainArgs, FlowsArgs, LinkArgs, LinkState, ReloadArgs, SetArgs, StatusArgs};
use crate::out::{out, outln};
use crate::spent;
use crate::view::{self, Table, bytes, count, list, number, text};
use crate::{hosts, metrics, words};

/// `farlink status`
pub fn status(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    let status = ask(&args.socket.socket, &Request::Status {})?;
    if args.budget {
        return spent::budgets(&status, args.json);
    }
    if args.json {
        outln!("{}", serde_json::to_string_pretty(&status)?);
    } else if args.prometheus {
        out!("{}", metrics::render(&status));
    } else {
        out!("{}", status_text(&status));
    }
    Ok(ExitCode::SUCCESS)
}

/// `farlink flows`
pub fn flows(args: &FlowsArgs) -> anyhow::Result<ExitCode> {
    // One more than is shown tells whether there are more.
    let limit = args.limit.saturating_add(1);
    let mut flows = ask(&args.socket.socket, &Request::Flows { limit })?;
    let has_more = list(&flows, "").len() > args.limit;
    if let Some(flows) = flows.as_array_mut() {
        flows.truncate(args.limit);
    }
    if args.json {
        outln!("{}", serde_json::to_string_pretty(&flows)?);
    } else {
        out!("{}", flows_text(&flows, has_more));
    }
    Ok(ExitCode::SUCCESS)
}

/// `farlink set`
pub fn set(args: &SetArgs) -> anyhow::Result<ExitCode> {
    let Some((key, value)) = args.key.clone().zip(args.value.clone()) else {
        return settings(args);
    };
    ask(&args.socket.socket, &Request::Set { key, value })?;
    Ok(ExitCode::SUCCESS)
}

/// Without a value: what is in force.
fn settings(args: &SetArgs) -> anyhow::Result<ExitCode> {
    let status = ask(&args.socket.socket, &Request::Status {})?;
    let settings = status.pointer("/settings").and_then(Value::as_object).cloned().unwrap_or_default();
    match &args.key {
        None if args.json => outln!("{}", serde_json::to_string_pretty(&settings)?),
        None => out!("{}", settings_text(&settings)),
        Some(key) => match settings.get(&as_told(key)) {
            Some(value) if args.json => outln!("{value}"),
            Some(value) => outln!("{}", value.as_str().unwrap_or_default()),
            None => bail!("unknown key `{key}`; `farlink set` alone shows all of them"),
        },
    }
    Ok(ExitCode::SUCCESS)
}

/// `rate` is `rate_bps` with a unit.
fn as_told(key: &str) -> String {
    if key.starts_with("link.") && key.ends_with(".rate") { format!("{key}_bps") } else { key.to_owned() }
}

fn settings_text(settings: &serde_json::Map<String, Value>) -> String {
    let width = settings.keys().map(String::len).max().unwrap_or(0);
    let line =
        |(key, value): (&String, &Value)| format!("{key:<width$}  {}\n", value.as_str().unwrap_or_default());
    settings.iter().map(line).collect()
}

/// `farlink link`
pub fn link(args: &LinkArgs) -> anyhow::Result<ExitCode> {
    let request = Request::Link { link: args.link.clone(), up: args.state == LinkState::Up };
    ask(&args.socket.socket, &request)?;
    Ok(ExitCode::SUCCESS)
}

/// `farlink reload`
pub fn reload(args: &ReloadArgs) -> anyhow::Result<ExitCode> {
    let outcome = ask(&args.socket.socket, &Request::Reload {})?;
    if args.json {
        outln!("{}", serde_json::to_string_pretty(&outcome)?);
        return Ok(ExitCode::SUCCESS);
    }
    let names = |key| list(&outcome, key).iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ");
    match (names("/applied"), names("/at_restart")) {
        (none, left) if none.is_empty() && left.is_empty() => outln!("nothing differs"),
        (applied, left) => {
            if !applied.is_empty() {
                outln!("holds now: {applied}");
            }
            if !left.is_empty() {
                outln!("holds after a restart: {left}");
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// `farlink drain`
pub fn drain(args: &DrainArgs) -> anyhow::Result<ExitCode> {
    let started = Instant::now();
    let timeout = ask(&args.socket.socket, &Request::Drain {})?;
    if args.no_wait {
        return Ok(ExitCode::SUCCESS);
    }
    // The gateway keeps to its timeout; some seconds more are for taking back rules and devices.
    let patience = Duration::from_secs(view::number(&timeout, "/drain_timeout_seconds").saturating_add(10));
    while started.elapsed() < patience {
        match ask(&args.socket.socket, &Request::Status {}) {
            Err(e) if e.is::<NoGateway>() => return Ok(ExitCode::SUCCESS),
            _ => std::thread::sleep(Duration::from_millis(100)),
        }
    }
    bail!(
        "the gateway is still there after {}; its log says what holds it",
        view::seconds(patience.as_secs())
    )
}

fn status_text(status: &Value) -> String {
    let engine = |key: &str| number(status, &format!("/engine/{key}"));
    let is_true = |pointer: &str| status.pointer(pointer) == Some(&Value::Bool(true));
    let mut out = format!(
        "farlink {}, up for {}{}\n",
        text(status, "/version"),
        view::seconds(number(status, "/uptime_seconds")),
        if is_true("/engine/draining") {
            ", DRAINING: nothing new is split"
        } else if is_true("/engine/short_of_time") {
            ", SHORT OF PROCESSOR TIME: new connections are forwarded"
        } else if list(status, "/interfaces").iter().all(is_awaited) {
            ", WAITING: no interface is there that is to be diverted"
        } else {
            ""
        }
    );
    out += &format!(
        "connections: {} split ({} with a gateway on the other side), {} dormant, {} draining, {} half-open\n",
        engine("flows_split"),
        engine("flows_with_peer"),
        engine("flows_dormant"),
        engine("flows_draining"),
        engine("half_open"),
    );
    out += &format!(
        "in custody:  {}; pool {} of {}, tables {}\n",
        bytes(engine("custody_bytes")),
        bytes(engine("pool_bytes")),
        bytes(engine("pool_limit_bytes")),
        bytes(engine("table_bytes")),
    );
    let mut links = Table::new(&[
        "LINK",
        "INTERFACE",
        "STATE",
        "RATE",
        "CC",
        "SENT",
        "WAITING",
        "MOST WAITING",
        "DROPPED",
        "GATEWAYS",
    ]);
    for link in list(status, "/links") {
        links.row([
            text(link, "/name"),
            text(link, "/interface"),
            words::state_and_witnesses(link),
            rate_of(link),
            text(
                status.pointer("/settings").unwrap_or(&Value::Null),
                &format!("/link.{}.cc", text(link, "/name")),
            ),
            bytes(number(link, "/sent_bytes")),
            bytes(number(link, "/backlog_bytes")),
            bytes(number(link, "/backlog_max_bytes")),
            number(link, "/dropped_packets").to_string(),
            gateways_of(link),
        ]);
    }
    let mut interfaces = Table::new(&["INTERFACE", "STATE", "CAPTURED", "DEVICE", "READ", "WRITTEN", "LOST"]);
    for interface in list(status, "/interfaces") {
        interfaces.row([
            text(interface, "/name"),
            state_of_interface(interface),
            words::captured(status, interface),
            text(interface, "/device"),
            bytes(number(interface, "/bytes_in")),
            bytes(number(interface, "/bytes_out")),
            number(interface, "/queue_drops").to_string(),
        ]);
    }
    let mut pairs = Table::new(&["LINK", "TO GATEWAY", "ROUTERS", "MAY SEND", "FLOWS", "HEADER"]);
    for link in list(status, "/links") {
        for pair in list(link, "/pairs") {
            let speak = pair.pointer("/routers_speak") == Some(&Value::Bool(true));
            pairs.row([
                text(link, "/name"),
                text(pair, "/gateway"),
                if speak { "speak".into() } else { "silent".into() },
                if speak { view::rate(number(pair, "/rate_bps")) } else { "-".into() },
                number(pair, "/flows").to_string(),
                Some(text(pair, "/header")).filter(|word| !word.is_empty()).unwrap_or_else(|| "-".into()),
            ]);
        }
    }
    let limited = |by: &str| engine(&format!("limited_by/{by}"));
    out += &format!(
        "limited by:  link {}, receiver {}, loss {}, gateway {}, application {}\n",
        limited("link"),
        limited("receiver"),
        limited("loss"),
        limited("gateway"),
        limited("application"),
    );
    let mut rules = Table::new(&["RULE", "CONNECTIONS", "OPEN", "BYTES", "OVER LIMIT"]);
    for rule in list(status, "/engine/rules") {
        rules.row([
            text(rule, "/name"),
            number(rule, "/connections").to_string(),
            number(rule, "/open").to_string(),
            bytes(number(rule, "/bytes")),
            number(rule, "/over_limit").to_string(),
        ]);
    }
    let mut counters = Table::new(&["COUNTER", "SINCE THE START"]);
    for (name, value) in status.pointer("/engine/counters").and_then(Value::as_object).into_iter().flatten() {
        if let Some(value) = value.as_u64().filter(|v| *v > 0) {
            counters.row([name.replace('_', " "), value.to_string()]);
        }
    }
    for found in list(status, "/diversion/found") {
        out += &format!("{:<12} {}\n", text(found, "/severity") + ":", text(found, "/text"));
    }
    let of_links = list(status, "/links").iter();
    for said in of_links.clone().filter_map(undeclared::advice).chain(of_links.filter_map(words::boxes)) {
        out += &format!("{:<12} {said}\n", "note:");
    }
    for table in [
        links,
        carried(status),
        spent::table(status),
        spent::budget_table(status),
        pairs,
        sent_ahead(status),
        interfaces,
        rules,
        hosts::table(status),
        stages(status),
        counters,
    ]
    .iter()
    .filter(|t| !t.is_empty())
    {
        out += &format!("\n{table}");
    }
    out
}

/// Hosts behind links by whether their windows are waited for, where any is known.
fn sent_ahead(status: &Value) -> Table {
    let mut table = Table::new(&["LINK", "HOSTS SENT AHEAD OF", "TRIED", "OFF: RESET", "OFF: DROPPED"]);
    for link in list(status, "/links") {
        let of =
            ["taking", "tried", "reset", "dropped"].map(|kind| number(link, &format!("/ahead/{kind}_hosts")));
        if of.iter().any(|hosts| *hosts > 0) {
            table.row([text(link, "/name")].into_iter().chain(of.map(|hosts| hosts.to_string())));
        }
    }
    table
}

/// The kind that is made here.
pub const SPLIT_TCP: &str = Kind::Split.name();
/// What leaves by a link's interface, and is not seen by its queue.
pub const PAST_THE_QUEUE: &str = "past the queue";

/// What a link has carried of each kind since the start, with the kind's name in the status.
pub fn carried_by_kind(link: &Value) -> impl Iterator<Item = (&str, Passed)> {
    let kinds = link.get("carried").and_then(Value::as_object).into_iter().flatten();
    kinds.map(|(name, kind)| {
        let passed = Passed {
            packets: number(kind, "/packets"),
            bytes: number(kind, "/bytes"),
            dropped_packets: number(kind, "/dropped_packets"),
            waited_us: number(kind, "/waited_us"),
            waited_max_us: number(kind, "/waited_max_us"),
        };
        (name.as_str(), passed)
    })
}

/// Whether anything of a kind was sent or dropped.
pub fn is_used(passed: &Passed) -> bool {
    passed.packets + passed.dropped_packets > 0
}

/// A kind's name, for people.
pub fn kind_in_words(name: &str) -> String {
    name.replace('_', " ")
}

/// What has left by a link since the start, in words; `-` where nothing is known.
pub struct Figures {
    pub packets: String,
    pub bytes: String,
    pub dropped: String,
    pub mean_wait: String,
    pub longest_wait: String,
}

impl Figures {
    /// Of the kind with this name in the status.
    pub fn of_kind(name: &str, passed: &Passed) -> Self {
        // What is made here waits as what is held for the connection.
        let waits = |us: u64| if name == SPLIT_TCP { "-".into() } else { view::microseconds(us) };
        Self {
            packets: passed.packets.to_string(),
            bytes: bytes(passed.bytes),
            dropped: passed.dropped_packets.to_string(),
            mean_wait: waits(passed.waited_us / passed.packets.max(1)),
            longest_wait: waits(passed.waited_max_us),
        }
    }

    /// Of so much that has left past the queue, so that the queue knows no more of it.
    pub fn past_the_queue(packets: u64, passed_bytes: u64) -> Self {
        Self { packets: packets.to_string(), bytes: bytes(passed_bytes), ..Self::unknown() }
    }

    /// Nobody knows how much.
    fn unknown() -> Self {
        let [packets, bytes, dropped, mean_wait, longest_wait] = std::array::from_fn(|_| "-".to_owned());
        Self { packets, bytes, dropped, mean_wait, longest_wait }
    }

    /// Below these headings: PACKETS, BYTES, DROPPED, MEAN WAIT, LONGEST WAIT.
    pub fn cells(self) -> [String; 5] {
        let Self { packets, bytes, dropped, mean_wait, longest_wait } = self;
        [packets, bytes, dropped, mean_wait, longest_wait]
    }
}

/// What links have carried, by kind, where that is more than split TCP.
fn carried(status: &Value) -> Table {
    let mut table =
        Table::new(&["LINK", "CARRIED", "PACKETS", "BYTES", "DROPPED", "MEAN WAIT", "LONGEST WAIT"]);
    for link in list(status, "/links") {
        let used = || carried_by_kind(link).filter(|(_, passed)| is_used(passed));
        let past = past_the_queue(link);
        if past.is_none() && used().all(|(name, _)| name == SPLIT_TCP) {
            continue;
        }
        for (name, passed) in used() {
            let of = [text(link, "/name"), kind_in_words(name)];
            table.row(of.into_iter().chain(Figures::of_kind(name, &passed).cells()));
        }
        if let Some((name, figures)) = past {
            table.row([text(link, "/name"), name].into_iter().chain(figures.cells()));
        }
    }
    table
}

/// What has left past a link's queue, in words. Where the interface's counters do not tell, that is
/// said; a gateway of an older version does not say it.
fn past_the_queue(link: &Value) -> Option<(String, Figures)> {
    let packets = number(link, "/beside_packets");
    // Of an interface that is away there is nothing to tell.
    let is = |key: &str, wanted: bool| link.pointer(key) == Some(&Value::Bool(wanted));
    let is_metered = !is("/beside_metered", false) || !is("/up", true);
    let now = match is_metered {
        true if packets == 0 => return None,
        true => format!("now {}", view::rate(number(link, "/beside_bps"))),
        false => "not metered".to_owned(),
    };
    // They may have told before.
    let figures = match packets {
        0 => Figures::unknown(),
        _ => Figures::past_the_queue(packets, number(link, "/beside_bytes")),
    };
    Some((format!("{PAST_THE_QUEUE}, {now}"), figures))
}

/// The gateways that were heard at the other end of a link, with the version of their messages.
fn gateways_of(link: &Value) -> String {
    let name = |g: &Value| format!("{} v{}", text(g, "/identity"), number(g, "/version"));
    match list(link, "/gateways") {
        [] => "-".to_owned(),
        heard => heard.iter().map(name).collect::<Vec<_>>().join(", "),
    }
}

/// A link's rate, as said or as found out, and what its queue sends at where that is another.
fn rate_of(link: &Value) -> String {
    let (rate_bps, queue_bps) = (number(link, "/rate_bps"), number(link, "/queue_bps"));
    let rate = match (number(link, "/estimated_bps"), number(link, "/declared_bps")) {
        (carries, declared) if carries > 0 && declared > 0 => {
            format!("{} (declared {})", view::rate(carries), view::rate(declared))
        }
        _ => undeclared::in_short(link).unwrap_or_else(|| view::rate(rate_bps)),
    };
    let rate = match number(link, "/room_bps") {
        0 => rate,
        room => format!("{rate}, carries {} at least", view::rate(room)),
    };
    let is_another = queue_bps > 0 && queue_bps.abs_diff(rate_bps) > rate_bps / 100;
    let rate = if is_another { format!("{rate}, queue {}", view::rate(queue_bps)) } else { rate };
    // What the operator has declared he knows.
    match (number(link, "/rate_in_bps"), text(link, "/rate_in_source").as_str()) {
        (bps, source @ ("told" | "found")) if bps > 0 => format!("{rate}, in {} ({source})", view::rate(bps)),
        _ => rate,
    }
}

/// The profile, while it is on.
fn stages(status: &Value) -> Table {
    let mut table = Table::new(&["STAGE", "CALLS", "TOGETHER", "MEAN", "HALF BELOW", "99 % BELOW"]);
    for stage in list(status, "/driver/profile") {
        let (calls, ns) = (number(stage, "/calls"), number(stage, "/ns"));
        let classes: Vec<u64> = list(stage, "/histogram").iter().filter_map(Value::as_u64).collect();
        table.row([
            text(stage, "/name"),
            calls.to_string(),
            view::nanoseconds(ns),
            view::nanoseconds(ns.checked_div(calls).unwrap_or(0)),
            below(&classes, calls, 50),
            below(&classes, calls, 99),
        ]);
    }
    table
}

/// The class that so many percent of the calls are within.
fn below(classes: &[u64], calls: u64, percent: u64) -> String {
    let mut sum = 0;
    for (class, n) in classes.iter().enumerate() {
        sum += n;
        if calls > 0 && sum * 100 >= calls * percent {
            let is_last = class + 1 == classes.len();
            return if is_last { "more".into() } else { view::nanoseconds(256 << class) };
        }
    }
    "-".into()
}

fn is_awaited(interface: &Value) -> bool {
    interface.pointer("/present") == Some(&Value::Bool(false))
}

/// One that is not there is waited for; one that has another name now says so.
fn state_of_interface(interface: &Value) -> String {
    let (name, called) = (text(interface, "/name"), text(interface, "/called"));
    match is_awaited(interface) {
        true => "awaited".to_owned(),
        false if called.is_empty() || called == name => words::state_of_interface(interface).to_owned(),
        false => format!("{}, as {called}", words::state_of_interface(interface)),
    }
}

fn flows_text(flows: &Value, has_more: bool) -> String {
    let heading = [
        "CLIENT",
        "SERVER",
        "MODE",
        "HELD ->",
        "HELD <-",
        "RTT CLIENT",
        "RTT SERVER",
        "CWND ->",
        "CWND <-",
        "PEER",
        "LIMITED BY",
        "RULE",
    ];
    let mut table = Table::new(&heading);
    let flows = list(flows, "");
    for flow in flows {
        let has = |side: &str| flow.pointer(side) == Some(&Value::Bool(true));
        table.row([
            text(flow, "/a"),
            text(flow, "/b"),
            text(flow, "/mode"),
            bytes(number(flow, "/custody_ab_bytes")),
            bytes(number(flow, "/custody_ba_bytes")),
            view::microseconds(number(flow, "/srtt_a_us")),
            view::microseconds(number(flow, "/srtt_b_us")),
            bytes(number(flow, "/cwnd_b_bytes")),
            bytes(number(flow, "/cwnd_a_bytes")),
            match (has("/peer_a"), has("/peer_b")) {
                (false, false) => "-",
                (true, false) => "client side",
                (false, true) => "server side",
                (true, true) => "both sides",
            }
            .to_owned(),
            words::limit(flow),
            text(flow, "/rule"),
        ]);
    }
    let more = if has_more { "; there are more, `--limit N` shows them" } else { "" };
    format!("{table}{} shown{more}\n", count(flows.len() as u64, "connection"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use farlink_gateway::engine_status::{FlowStatus, GatewayStatus, RuleStatus};
    use farlink_gateway::{LinkStatus, Status};

    /// The text reads the very snapshot that the gateway gives; a renamed field would show as a
    /// zero here.
    #[test]
    fn status_shows_what_the_gateway_says() {
        let mut status = Status::default();
        status.engine.flows_split = 42;
        status.engine.flows_dormant = 12;
        status.engine.custody_bytes = 1_200_000;
        status.engine.counters.syns = 77;
        status.engine.rules.push(RuleStatus { name: "web".into(), connections: 9, ..Default::default() });
        status.links.push(LinkStatus {
            name: "geo".into(),
            up: true,
            state: "probing",
            down_by: vec!["silence"],
            rate_bps: 8_000_000,
            gateways: vec![GatewayStatus { identity: "5eed0001".into(), version: 2, ..Default::default() }],
            ..Default::default()
        });
        let text = status_text(&serde_json::to_value(&status).unwrap());
        for part in [
            "42 split",
            "12 dormant",
            "1.2 MB",
            "geo",
            "probing (silence) ",
            "8.0 Mbit/s",
            "web",
            "syns",
            "77",
            "5eed0001 v2",
        ] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        assert!(!text.contains("DRAINING"));
        status.engine.limited_by.receiver = 31;
        let mut value = serde_json::to_value(&status).unwrap();
        value["settings"] = serde_json::json!({"link.geo.cc": "hybla"});
        value["driver"] = serde_json::json!({"profile": [
            {"name": "write", "calls": 100, "ns": 200_000, "histogram": [0, 0, 98, 0, 2]},
        ]});
        value["diversion"] =
            serde_json::json!({"found": [{"severity": "problem", "text": "IPv4 is not diverted"}]});
        let text = status_text(&value);
        assert!(text.contains("problem:     IPv4 is not diverted\n"), "{text}");
        for part in ["receiver 31", "hybla", "write", "2.0 us", "1.0 us", "more"] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        status.engine.draining = true;
        assert!(status_text(&serde_json::to_value(&status).unwrap()).contains("DRAINING"));
    }

    /// A link that has carried split TCP alone says no more than the table of links.
    #[test]
    fn what_links_carry_stands_by_kind_where_it_is_more_than_split_tcp() {
        let split = Passed { packets: 9, bytes: 9_000, ..Passed::default() };
        let mut status = Status::default();
        status.links.push(LinkStatus {
            name: "geo".into(),
            carried: [("split_tcp", split), ("udp", Passed::default())].into(),
            beside_metered: true,
            ..Default::default()
        });
        assert!(carried(&serde_json::to_value(&status).unwrap()).is_empty());
        let udp =
            Passed { packets: 10, bytes: 5_000, dropped_packets: 3, waited_us: 20_000, waited_max_us: 7_000 };
        status.links[0].carried.insert("udp", udp);
        (status.links[0].beside_packets, status.links[0].beside_bps) = (4, 64_000);
        let table = carried(&serde_json::to_value(&status).unwrap()).to_string();
        let words: Vec<_> =
            table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(
            words[1..],
            [
                "geo split tcp 9 9.0 kB 0 - -",
                "geo udp 10 5.0 kB 3 2.0 ms 7.0 ms",
                "geo past the queue, now 64.0 kbit/s 4 0 B - - -"
            ]
        );
    }

    #[test]
    fn an_interface_that_does_not_tell_what_leaves_past_the_queue_is_said() {
        let split = Passed { packets: 9, bytes: 9_000, ..Passed::default() };
        let link = LinkStatus {
            name: "geo".into(),
            carried: [("split_tcp", split)].into(),
            up: true,
            ..LinkStatus::default()
        };
        let mut status = serde_json::to_value(Status { links: vec![link], ..Status::default() }).unwrap();
        let lines = |status: &Value| {
            let table = carried(status).to_string();
            let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
            table.lines().skip(1).map(words).collect::<Vec<_>>()
        };
        let counted = "geo split tcp 9 9.0 kB 0 - -";
        assert_eq!(lines(&status), [counted, "geo past the queue, not metered - - - - -"]);
        status["links"][0]["beside_packets"] = serde_json::json!(4);
        assert_eq!(lines(&status), [counted, "geo past the queue, not metered 4 0 B - - -"]);
        status["links"][0]["beside_packets"] = serde_json::json!(0);
        status["links"][0].as_object_mut().unwrap().remove("beside_metered");
        assert!(lines(&status).is_empty(), "an older gateway does not say it");
    }

    #[test]
    fn what_the_queue_sends_at_is_shown_where_it_is_another_rate() {
        let shown = |rate_bps, queue_bps, estimated_bps, declared_bps| {
            let link = LinkStatus { rate_bps, queue_bps, estimated_bps, declared_bps, ..Default::default() };
            rate_of(&serde_json::to_value(link).unwrap())
        };
        assert_eq!(shown(8_000_000, 7_600_000, 0, 8_000_000), "8.0 Mbit/s, queue 7.6 Mbit/s");
        assert_eq!(shown(8_000_000, 7_920_000, 0, 8_000_000), "8.0 Mbit/s", "the same, but for a hundredth");
        assert_eq!(
            shown(6_000_000, 5_600_000, 6_000_000, 8_000_000),
            "6.0 Mbit/s (declared 8.0 Mbit/s), queue 5.6 Mbit/s"
        );
        assert_eq!(shown(8_000_000, 0, 0, 8_000_000), "8.0 Mbit/s", "an older gateway does not say it");
        assert_eq!(shown(0, 0, 0, 0), "unknown");
    }

    #[test]
    fn settings_are_shown_under_each_other() {
        let settings = serde_json::json!({"link.geo.cc": "auto", "profile": "off"});
        let text = settings_text(settings.as_object().unwrap());
        assert_eq!(text, "link.geo.cc  auto\nprofile      off\n");
    }

    #[test]
    fn flows_show_every_column() {
        let flow = FlowStatus {
            a: "10.0.0.1:4000".into(),
            b: "[fd00::2]:80".into(),
            mode: "split",
            rule: "web".into(),
            custody_ab_bytes: 1_000,
            custody_ba_bytes: 2_000,
            srtt_a_us: 1_500,
            srtt_b_us: 532_000,
            cwnd_a_bytes: 3_000,
            cwnd_b_bytes: 4_000,
            peer_a: false,
            peer_b: true,
            limited_by: "link",
            ..FlowStatus::default()
        };
        let flows = serde_json::to_value([flow]).unwrap();
        assert!(
            flows_text(&flows, true)
                .ends_with("1 connection shown; there are more, `--limit N` shows them\n")
        );
        let text = flows_text(&flows, false);
        assert!(text.ends_with("1 connection shown\n"), "{text}");
        for part in [
            "10.0.0.1:4000",
            "[fd00::2]:80",
            "split",
            "1.0 kB",
            "2.0 kB",
            "1.5 ms",
            "532 ms",
            "server side",
            "link",
            "web",
            "1 connection shown",
        ] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
    }
}
