//! `status`, `flows`, `top`, Prometheus, the log and `check` about the same situation: none of them
//! may contradict another one.

use serde_json::Value;

use super::bed::Bed;

/// Findings of `check` about a link that is not up.
const AWAY: [&str; 3] = ["link-down", "link-away", "link-silent"];
/// Of what others send over a link this part of its rate is worth a word.
const OTHERS_SHARE: f64 = 0.1;

/// What each of them says, one after the other.
struct Voices {
    status: Value,
    status_text: String,
    prometheus: String,
    flows: Value,
    flows_text: String,
    top: Value,
    top_text: String,
    log: String,
}

impl Voices {
    fn of(bed: &Bed) -> Self {
        let ask = |arguments: &[&str]| String::from_utf8_lossy(&bed.tell(arguments).stdout).into_owned();
        let json = |arguments: &[&str]| serde_json::from_str(&ask(arguments)).unwrap_or_default();
        let top = ["top", "--once", "--interval", "500ms"];
        Self {
            status: json(&["status", "--json"]),
            status_text: ask(&["status"]),
            prometheus: ask(&["status", "--prometheus"]),
            flows: json(&["flows", "--json"]),
            flows_text: ask(&["flows"]),
            top: json(&[&top[..], &["--json"]].concat()),
            top_text: ask(&top),
            log: bed.log(),
        }
    }
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    let list = if key.is_empty() { value } else { &value[key] };
    list.as_array().map_or(&[], Vec::as_slice)
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// Where two of them contradict each other; `found`: what `check` has found just before.
pub fn contradictions(bed: &Bed, found: &[Value]) -> Vec<String> {
    let voices = Voices::of(bed);
    let mut wrong = Vec::new();
    for link in list(&voices.status, "links") {
        wrong.extend(of_link(&voices, link, found));
    }
    wrong.extend(of_captures(&voices, found));
    for flow in list(&voices.flows, "") {
        let (limit, who) = (text(flow, "limited_by"), text(flow, "a"));
        let line = voices.flows_text.lines().find(|line| line.starts_with(&format!("{who} ")));
        // It may have ended, or be held by something else by now; no word may be unknown.
        let words = ["link", "receiver", "loss", "gateway", "application"];
        if !words.contains(&limit) || line.is_some_and(|line| !words.iter().any(|w| line.contains(w))) {
            wrong.push(format!("flows: {who} is limited by {limit}, {line:?}"));
        }
        wrong.extend(of_away(&voices, flow));
    }
    for flow in list(&voices.top, "flows") {
        wrong.extend(of_reason(&voices, flow));
    }
    wrong
}

/// Its state in each of them.
fn of_link(voices: &Voices, link: &Value, found: &[Value]) -> Vec<String> {
    let (name, state) = (text(link, "name"), text(link, "state"));
    let mut wrong = Vec::new();
    let by: Vec<_> = list(link, "down_by").iter().filter_map(Value::as_str).collect();
    let in_words = if by.is_empty() { state.to_owned() } else { format!("{state} ({})", by.join(", ")) };
    let says = |text: &str| text.lines().any(|l| l.starts_with(&format!("{name} ")) && l.contains(&in_words));
    for (who, text) in [("status", &voices.status_text), ("top", &voices.top_text)] {
        if !says(text) {
            wrong.push(format!("{who} does not call {name} {in_words}\n{text}"));
        }
    }
    let of_top = list(&voices.top, "links").iter().find(|l| text(l, "name") == name);
    if of_top.map(|l| text(l, "state")) != Some(state) {
        wrong.push(format!("{name} is {state}, and top --json says {of_top:?}"));
    }
    let sample = format!("farlink_link_state{{link=\"{name}\",state=\"{state}\"}} 1");
    if !voices.prometheus.contains(&sample) {
        wrong.push(format!("Prometheus has no {sample}"));
    }
    // The log has nothing of one that has always been up, nor of a moment's silence.
    let logged = voices.log.lines().rfind(|line| line.contains(&format!("link=\"{name}\" state=")));
    let is_logged = logged.map_or(state == "up", |line| line.contains(&format!("state=\"{state}\"")));
    if !is_logged && state != "suspect" {
        wrong.push(format!("{name} is {state}, and the log says {logged:?}"));
    }
    let told = found.iter().find(|f| AWAY.contains(&text(f, "id")) && text(&f["evidence"], "link") == name);
    let is_away = ["down", "probing"].contains(&state);
    // Of an interface that is down beside other links `interface-down` tells.
    let may_be_untold = by.contains(&"kernel");
    match told {
        Some(f) if text(&f["evidence"], "state") != state => {
            wrong.push(format!("{name} is {state}, and check says {f}"));
        }
        None if is_away && !may_be_untold => wrong.push(format!("{name} is {in_words}, and check is silent")),
        _ => {}
    }
    wrong
}

/// What is captured where, in each of them. What is not there `check` calls a problem.
fn of_captures(voices: &Voices, found: &[Value]) -> Vec<String> {
    let mut wrong = Vec::new();
    let captures = list(&voices.status["diversion"], "captures");
    for capture in captures {
        let of = |key| text(capture, key);
        let (interface, direction, state) = (of("interface"), of("direction"), of("state"));
        let line = voices.status_text.lines().find(|line| {
            line.starts_with(&format!("{interface} ")) && line.contains(&format!("{direction} {state}"))
        });
        if line.is_none() {
            wrong.push(format!("status does not say {capture}\n{}", voices.status_text));
        }
        let labels = format!("{{interface=\"{interface}\",direction=\"{direction}\",state=\"{state}\"}}");
        let sample = format!("farlink_diversion_capture{labels} 1");
        if !voices.prometheus.contains(&sample) {
            wrong.push(format!("Prometheus has no {sample}"));
        }
    }
    let is_missing = captures.iter().any(|capture| text(capture, "state") == "wanted");
    let in_place = voices.status["diversion"]["in_place"] == true;
    if is_missing && (in_place || !found.iter().any(|f| text(f, "severity") == "problem")) {
        wrong.push(format!("something is not captured, and nobody minds: {captures:?}"));
    }
    wrong
}

fn link_at<'a>(links: &'a [Value], interface: &str) -> Option<&'a Value> {
    links.iter().find(|l| text(l, "interface") == interface)
}

/// The way that the busier direction of a connection leaves by.
fn way_of(flow: &Value) -> &str {
    if text(flow, "direction") == "ab" { text(flow, "out_b") } else { text(flow, "out_a") }
}

/// A connection is held by a link that is away where there is one, and only there.
fn of_away(voices: &Voices, flow: &Value) -> Option<String> {
    let link = link_at(list(&voices.status, "links"), way_of(flow))?;
    let is_away = ["down", "probing"].contains(&text(link, "state"));
    let says_away = text(flow, "held_by") == "link is away";
    let has_something = text(flow, "limited_by") != "application";
    (is_away != says_away && (says_away || has_something))
        .then(|| format!("{} is {}, and flows has {flow}", text(link, "name"), text(link, "state")))
}

/// Why a connection is not faster, by `top`.
fn of_reason(voices: &Voices, flow: &Value) -> Option<String> {
    let why = text(flow, "why");
    let name = why.strip_prefix("has all of ").and_then(|rest| rest.split(':').next());
    let link = list(&voices.top, "links").iter().find(|l| Some(text(l, "name")) == name)?;
    let carried = link["carried"].as_object().into_iter().flatten();
    let others: f64 =
        carried.filter(|(kind, _)| *kind != "split_tcp").filter_map(|(_, k)| k["share"].as_f64()).sum();
    let is_away = link["carries_nothing"] == true;
    (is_away || others > OTHERS_SHARE).then(|| format!("top says `{why}` of {link}"))
}
