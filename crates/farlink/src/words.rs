//! The words for what a link is at, and for what holds a connection. `status`, `flows`, `top`,
//! `check` and Prometheus take them from here; the engine has them from the same states that it
//! logs. Pure.

use serde_json::Value;

use crate::view::{self, bytes, list, microseconds, number, rate, text};

/// All states that a link can be in.
pub const STATES: [&str; 4] = ["up", "suspect", "probing", "down"];

/// A link's state in one word, of [`STATES`].
pub fn state(link: &Value) -> String {
    match text(link, "/state") {
        // A gateway of an older version has no word for it.
        none if none.is_empty() => if is_up(link) { "up" } else { "down" }.to_owned(),
        word => word,
    }
}

/// The same with those by whose word it is not up: `probing (silence)`.
pub fn state_and_witnesses(link: &Value) -> String {
    match &witnesses(link)[..] {
        [] => state(link),
        by => format!("{} ({})", state(link), by.join(", ")),
    }
}

/// By whose word a link is not up.
pub fn witnesses(link: &Value) -> Vec<&str> {
    list(link, "/down_by").iter().filter_map(Value::as_str).collect()
}

/// Nothing is sent into a link but what asks whether it carries anything.
pub fn carries_nothing(link: &Value) -> bool {
    ["down", "probing"].contains(&state(link).as_str())
}

/// What is to be done about a box on the way, behind what it does.
const LET_PASS: &str = "Let TCP options of kind 254 pass there, in SYNs, their answers and all that follows";

/// What boxes on the way do to segments over a link for Farlink's option, and what to do.
pub fn boxes(link: &Value) -> Option<String> {
    let said: Vec<_> = list(link, "/boxes").iter().filter_map(Value::as_str).collect();
    (!said.is_empty()).then(|| format!("link {}: {}. {LET_PASS}", text(link, "/name"), said.join("; ")))
}

/// Of an interface there is no more than the kernel's word.
pub fn state_of_interface(interface: &Value) -> &'static str {
    if is_up(interface) { "up" } else { "down" }
}

/// How far it can be with what is captured at an interface.
pub const CAPTURE_STATES: [&str; 3] = ["wanted", "attached", "proven"];

/// What is captured at an interface, and how that stands: `in proven, out attached`.
pub fn captured(status: &Value, interface: &Value) -> String {
    let called = text(interface, "/called");
    let captures = list(status, "/diversion/captures").iter().filter(|c| text(c, "/interface") == called);
    let said: Vec<_> = captures.map(|c| format!("{} {}", text(c, "/direction"), text(c, "/state"))).collect();
    // Where it is away, and where an older gateway does not say.
    if said.is_empty() { "-".to_owned() } else { said.join(", ") }
}

fn is_up(of: &Value) -> bool {
    of.pointer("/up") == Some(&Value::Bool(true))
}

/// What holds a connection, in one word.
pub fn limit(flow: &Value) -> String {
    text(flow, "/limited_by")
}

/// The side that the busier direction of a connection leads to, `a` or `b`.
pub fn towards(flow: &Value) -> &'static str {
    if text(flow, "/direction") == "ab" { "b" } else { "a" }
}

/// A link, as far as it can hold a connection.
pub struct Way {
    pub name: String,
    /// Its state in words, where nothing is sent into it.
    pub is_away: Option<String>,
    /// What it carries, bit/s; 0: unknown.
    pub rate_bps: u64,
    /// The same in words.
    pub rate: String,
    /// Of this, what has been sent into it of late that is no split TCP, bit/s.
    pub others_bps: u64,
    /// Connections with data for it.
    pub flows: u64,
}

/// Less than this part of a link's rate, percent, is not worth a word.
const OTHERS_MIN_PERCENT: u64 = 5;

impl Way {
    /// What is left of it for the connections, in words.
    fn left(&self) -> String {
        let others_bps = self.others_bps.min(self.rate_bps);
        match others_bps.saturating_mul(100) >= self.rate_bps.saturating_mul(OTHERS_MIN_PERCENT) {
            true => format!("{}, of which others take {}", self.rate, rate(others_bps)),
            false => self.rate.clone(),
        }
    }

    fn has_others(&self) -> bool {
        self.left() != self.rate
    }
}

/// Why a connection is not faster, in words and numbers. `way`: the link that the busier direction
/// leaves by, where it leaves by one.
pub fn why(flow: &Value, way: Option<&Way>) -> String {
    let towards = towards(flow);
    let of = |name: &str| number(flow, &format!("/{name}_{towards}_bytes"));
    let (srtt_us, window, cwnd) = (number(flow, &format!("/srtt_{towards}_us")), of("window"), of("cwnd"));
    let host = if towards == "a" { "client" } else { "server" };
    // The most that a window lets through in a round trip.
    let at_most = |window: u64| {
        let bps = if srtt_us > 0 { (8e6 * window as f64 / srtt_us as f64) as u64 } else { 0 };
        if bps > 0 {
            format!(", at most {} at an RTT of {}", rate(bps), microseconds(srtt_us))
        } else {
            String::new()
        }
    };
    match (limit(flow).as_str(), text(flow, "/held_by").as_str()) {
        _ if text(flow, "/mode") == "dormant" => "idle, nothing is held for it".into(),
        ("application", _) if text(flow, "/mode") == "closed" => "has ended".into(),
        ("application", _) => "nothing to send: the source sends no more, or no faster".into(),
        ("receiver", _) => {
            let ahead = ahead(flow, towards);
            format!(
                "the {host} reads slowly or shows a small window: {}{}{ahead}",
                bytes(window),
                at_most(window)
            )
        }
        ("gateway", _) => {
            let held = number(flow, if towards == "a" { "/custody_ba_bytes" } else { "/custody_ab_bytes" });
            format!("the gateway may hold no more for it than {}{}", bytes(held), at_most(held))
        }
        ("loss", _) => format!("repairs losses, {} so far", bytes(of("lost"))),
        ("link", "link is away") => match way {
            Some(Way { name, is_away: Some(state), .. }) => format!("{name} is {state}"),
            // It has come back between two questions, or is no declared link.
            _ => format!("{} is away", text(flow, &format!("/out_{towards}"))),
        },
        ("link", "congestion window") => format!("congestion window of {}{}", bytes(cwnd), at_most(cwnd)),
        ("link", _) => of_share(flow, towards, way),
        (other, _) => other.into(),
    }
}

/// Why a window is waited for, where it could be sent ahead of.
fn ahead(flow: &Value, towards: &str) -> String {
    match text(flow, &format!("/ahead_{towards}")).as_str() {
        "tried" => "; little goes ahead of it, until that is seen to be taken".into(),
        known => waited_for(known).map(|why| format!("; it is waited for: {why}")).unwrap_or_default(),
    }
}

fn waited_for(known: &str) -> Option<&'static str> {
    Some(match known {
        "off" => "send_ahead is \"off\"",
        "off: metered" => "the link is metered",
        "off: link" => "the link holds no more in a round trip, or carries less than is declared",
        "off: round" => "some packets go round this gateway, and so would a reset for what goes ahead",
        "off: reset" => "what went ahead drew a reset in the last ten minutes",
        "off: dropped" => "what went ahead was dropped in the last ten minutes",
        _ => return None,
    })
}

/// Whose windows are waited for over a link, where `send_ahead` might spare them that, and why:
/// hosts that refuse it, and connections that are slow for it now.
pub fn waits_for_windows(link: &Value, flows: &[Value]) -> Option<String> {
    let hosts = |name: &str| number(link, &format!("/ahead/{name}_hosts"));
    let mut said = Vec::new();
    for (count, known) in [(hosts("reset"), "off: reset"), (hosts("dropped"), "off: dropped")] {
        let why = waited_for(known).filter(|_| count > 0);
        said.extend(why.map(|why| format!("{why} ({})", view::count(count, "host"))));
    }
    for known in ["off: metered", "off: link", "off: round"] {
        let held =
            flows.iter().filter(|flow| limit(flow) == "receiver" && is_over(flow, link, known)).count();
        let why = waited_for(known).filter(|_| held > 0);
        said.extend(why.map(|why| format!("{why} ({})", view::count(held as u64, "connection"))));
    }
    let name = text(link, "/name");
    (!said.is_empty()).then(|| format!("over the link {name} windows are waited for: {}", said.join("; ")))
}

fn is_over(flow: &Value, link: &Value, ahead: &str) -> bool {
    let towards = towards(flow);
    text(flow, &format!("/out_{towards}")) == text(link, "/interface")
        && text(flow, &format!("/ahead_{towards}")) == ahead
}

/// It has its share of the link, or waits for its turn or its pace.
fn of_share(flow: &Value, towards: &str, way: Option<&Way>) -> String {
    match way {
        None => format!("paced on {}", text(flow, &format!("/out_{towards}"))),
        Some(way) if way.rate_bps == 0 => {
            let pacing_bps = number(flow, &format!("/pacing_{towards}_bps"));
            format!("as fast as {} is found to carry: {}", way.name, rate(pacing_bps))
        }
        Some(way) if way.flows > 1 => {
            format!("its share of {}: {} connections, {}", way.name, way.flows, way.left())
        }
        Some(way) if way.has_others() => format!("has the rest of {}: {}", way.name, way.left()),
        Some(way) => format!("has all of {}: {}", way.name, way.left()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn states_are_told_with_those_who_say_so() {
        let of = |state: &str, by: &[&str]| {
            let link = json!({"state": state, "down_by": by, "up": state != "down"});
            (state_and_witnesses(&link), carries_nothing(&link))
        };
        assert_eq!(of("up", &[]), ("up".into(), false));
        assert_eq!(of("suspect", &["silence"]), ("suspect (silence)".into(), false));
        assert_eq!(of("probing", &["silence"]), ("probing (silence)".into(), true));
        assert_eq!(of("down", &["kernel", "operator"]), ("down (kernel, operator)".into(), true));
        assert_eq!(state(&json!({"up": true})), "up", "an older gateway");
        assert_eq!(state(&json!({"up": false})), "down");
    }

    #[test]
    fn boxes_are_told_with_the_remedy() {
        assert_eq!(boxes(&json!({"name": "geo", "boxes": []})).or(boxes(&json!({}))), None);
        let said = boxes(&json!({"name": "geo", "boxes": ["a box drops SYNs", "a box strips answers"]}));
        assert_eq!(
            said.unwrap(),
            "link geo: a box drops SYNs; a box strips answers. Let TCP options of kind 254 pass there, in SYNs, their answers and all that follows"
        );
    }

    #[test]
    fn why_windows_are_waited_for_is_told_of_hosts_and_of_slow_connections() {
        let link = |reset: u64, dropped: u64| json!({"name": "geo", "interface": "sat0", "ahead": {"reset_hosts": reset, "dropped_hosts": dropped}});
        let with = |ahead: &str, limited_by: &str| {
            let mut flow = flow(limited_by, "window");
            flow["ahead_a"] = ahead.into();
            flow
        };
        assert_eq!(
            waits_for_windows(&link(0, 0), &[with("off: metered", "link"), with("tried", "receiver")]),
            None
        );
        assert_eq!(waits_for_windows(&link(0, 0), &[with("off", "receiver")]), None, "it is wanted so");
        let said = waits_for_windows(&link(2, 1), &[with("off: metered", "receiver")]).unwrap();
        assert_eq!(
            said,
            "over the link geo windows are waited for: what went ahead drew a reset in the last ten minutes (2 hosts); \
             what went ahead was dropped in the last ten minutes (1 host); the link is metered (1 connection)"
        );
    }

    fn flow(limited_by: &str, held_by: &str) -> Value {
        json!({"mode": "split", "direction": "ba", "out_a": "sat0", "limited_by": limited_by, "held_by": held_by,
            "custody_ba_bytes": 125_000, "window_a_bytes": 8_192, "cwnd_a_bytes": 50_000, "srtt_a_us": 500_000, "lost_a_bytes": 3_000,
            "pacing_a_bps": 2_000_000})
    }

    fn way(rate_bps: u64, others_bps: u64, flows: u64) -> Way {
        Way { name: "geo".into(), is_away: None, rate_bps, rate: rate(rate_bps), others_bps, flows }
    }

    #[test]
    fn each_limit_is_explained_with_its_numbers() {
        let of = |by: &str, held: &str, way: &Way| why(&flow(by, held), Some(way));
        let geo = way(8_000_000, 0, 1);
        assert_eq!(
            of("gateway", "what may be held", &geo),
            "the gateway may hold no more for it than 125 kB, at most 2.0 Mbit/s at an RTT of 500 ms"
        );
        assert_eq!(of("loss", "repairs losses", &geo), "repairs losses, 3.0 kB so far");
        assert_eq!(of("link", "pacing", &geo), "has all of geo: 8.0 Mbit/s");
        assert_eq!(
            of("link", "pacing", &way(8_000_000, 0, 2)),
            "its share of geo: 2 connections, 8.0 Mbit/s"
        );
        assert_eq!(of("link", "pacing", &way(0, 0, 2)), "as fast as geo is found to carry: 2.0 Mbit/s");
        assert_eq!(why(&flow("link", "pacing"), None), "paced on sat0");
        assert!(of("application", "nothing to send", &geo).starts_with("nothing to send"));
    }

    #[test]
    fn what_others_have_of_a_link_is_not_a_connections() {
        let of = |others_bps, flows| why(&flow("link", "turn"), Some(&way(8_000_000, others_bps, flows)));
        assert_eq!(of(4_000_000, 1), "has the rest of geo: 8.0 Mbit/s, of which others take 4.0 Mbit/s");
        assert_eq!(
            of(4_000_000, 3),
            "its share of geo: 3 connections, 8.0 Mbit/s, of which others take 4.0 Mbit/s"
        );
        assert_eq!(of(300_000, 1), "has all of geo: 8.0 Mbit/s");
    }

    #[test]
    fn a_link_that_is_away_is_said_with_its_state() {
        let away = Way { is_away: Some("probing (silence)".into()), ..way(8_000_000, 0, 1) };
        assert_eq!(why(&flow("link", "link is away"), Some(&away)), "geo is probing (silence)");
        assert_eq!(why(&flow("link", "link is away"), Some(&way(8_000_000, 0, 1))), "sat0 is away");
        assert!(why(&flow("application", "nothing to send"), Some(&away)).starts_with("nothing to send"));
    }
}
