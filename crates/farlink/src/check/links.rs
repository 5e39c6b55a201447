//! What of links shows at this end alone: one that is down, one that is declared elsewhere than the
//! other gateway is, a rate that is not the real one, an option that does not get through. Pure.

use std::collections::BTreeMap;

use farlink_gateway::BudgetLevel;
use farlink_gateway::cc::Controller;
use farlink_linux::divert::{Diagnosis, Remedy, Severity};
use serde_json::Value;

use super::live::Sample;
use super::{exchanged, past};
use crate::view::{bytes, count, list, microseconds, number, rate, text};
use crate::words;

/// Of what a link was sent, so much again at least shows that its rate is less than was said, or
/// that it loses much.
const AGAIN_SHARE_MIN: f64 = 0.1;
/// A link that was used for this part of its rate was full.
const FULL_SHARE: f64 = 0.8;
/// Less than so much says nothing, bytes.
const SENT_MIN_BYTES: u64 = 50_000;

/// Findings about the declared links between two samples that are `seconds` apart.
pub fn findings(before: &Sample, after: &Sample, seconds: u64) -> Vec<Diagnosis> {
    let links = list(&after.status, "/links");
    let flows = list(&after.flows, "");
    let mut found = Vec::new();
    for link in links {
        let earlier = list(&before.status, "/links");
        let earlier = earlier.iter().find(|l| text(l, "/name") == text(link, "/name"));
        found.extend(away(link, links.iter().all(words::carries_nothing)));
        let exchanged = exchanged::finding(link);
        // What has been found out is in force, and told by itself.
        let too_high = exchanged.or_else(|| declared_too_high(link));
        let too_high = too_high.or_else(|| too_fast(earlier?, link, seconds));
        found.extend(too_high.or_else(|| given_way(earlier?, link, flows, seconds)));
        found.extend(declared_too_low(link));
        found.extend(past::findings(earlier, link, (before, after), seconds));
        found.extend(budget(link));
        found.extend(boxes(link));
        found.extend(windows(link, flows));
        // Where the link is elsewhere nobody can answer at its other end.
        found.extend(elsewhere(link, links, flows).or_else(|| far_end(link, flows)));
    }
    found.extend(none_declared(links));
    found
}

/// A link that is not up. It is a problem where no other one carries anything: what comes in then
/// has no way on.
fn away(link: &Value, all_are: bool) -> Option<Diagnosis> {
    let (name, by) = (text(link, "/name"), words::witnesses(link));
    let worse = if all_are { Severity::Problem } else { Severity::Warning };
    let (id, severity, said) = if by.contains(&"operator") {
        let said = format!(
            "an operator has said that the link {name} is down (`farlink link {name} down`): nothing is sent into it until he says \
             `farlink link {name} up`"
        );
        ("link-down", worse, said)
    } else if by.contains(&"kernel") {
        if !all_are {
            // Which `interface-down` tells, or `no-interface`.
            return None;
        }
        let interface = text(link, "/interface");
        let said = format!(
            "the link {name} is down: its interface {interface} is down, has no carrier, or is not there. What hosts send is held until it is back"
        );
        ("link-down", worse, said)
    } else if by.contains(&"contact plan") {
        // As planned.
        ("link-away", Severity::Note, format!("by the contact plan the link {name} is away now"))
    } else if words::carries_nothing(link) {
        let said = format!(
            "nothing is heard over the link {name}, and nobody has said that it is down; it is probed, and what hosts send is held"
        );
        ("link-silent", worse, said)
    } else if by.contains(&"silence") {
        let said = format!(
            "nothing has been heard over the link {name} for a moment; it has just been asked whether it carries anything"
        );
        ("link-silent", Severity::Note, said)
    } else {
        return None;
    };
    let finding = Diagnosis::new(id, severity, said).seen("link", &name);
    let finding = finding.seen("state", words::state(link)).seen("down_by", by.join(", "));
    Some(match by.contains(&"operator") {
        true => finding.mended_by(Remedy::run(format!("farlink link {name} up"))),
        false if by.contains(&"kernel") => {
            finding.mended_by(Remedy::run(format!("ip link set {} up", text(link, "/interface"))))
        }
        false => finding,
    })
}

/// What the link may carry for a price is used, or soon will be.
fn budget(link: &Value) -> Option<Diagnosis> {
    let (name, level) = (text(link, "/name"), text(link, "/budget_level"));
    let (used, all) = (number(link, "/budget_used_bytes"), number(link, "/budget_bytes"));
    let of_all = format!("{} of {} a {}", bytes(used), bytes(all), text(link, "/budget_period"));
    let (id, said) = if level == BudgetLevel::UsedUp.name() {
        let said = format!(
            "the budget of the link {name} is used up ({of_all}): connections go on, and nothing leaves that no host has sent"
        );
        ("budget-used-up", said)
    } else if level == BudgetLevel::Low.name() {
        ("budget-low", format!("most of the budget of the link {name} is used ({of_all})"))
    } else {
        return None;
    };
    let finding = Diagnosis::new(id, Severity::Warning, said).seen("link", name);
    Some(finding.seen("used_bytes", used).seen("budget_bytes", all))
}

/// Less is a rounding, percent.
const CARRIES_PERCENT: u64 = 98;

/// What has been found out by the reports of the other gateway is less than what is declared.
fn declared_too_high(after: &Value) -> Option<Diagnosis> {
    let (declared_bps, carries_bps) = (number(after, "/declared_bps"), number(after, "/estimated_bps"));
    if carries_bps == 0 || carries_bps.saturating_mul(100) >= declared_bps.saturating_mul(CARRIES_PERCENT) {
        return None;
    }
    let (name, real_bps) = (text(after, "/name"), two_digits(carries_bps));
    let said = format!(
        "the link {name} is declared with {} and carries {}: no more is sent, and the declared rate is tried again now and then. If \
         it stays so, say so: `{}`, and in the configuration",
        rate(declared_bps),
        rate(carries_bps),
        set_rate(&name, real_bps),
    );
    let finding = rate_too_high(&name, real_bps, said);
    Some(finding.seen("declared_bps", declared_bps).seen("carries_bps", carries_bps))
}

/// Short trains at more than the declared rate have shown that the link carries more.
fn declared_too_low(after: &Value) -> Option<Diagnosis> {
    let (declared_bps, room_bps) = (number(after, "/declared_bps"), number(after, "/room_bps"));
    if room_bps <= declared_bps {
        return None;
    }
    let (name, real_bps) = (text(after, "/name"), two_digits(room_bps));
    let said = format!(
        "the link {name} is declared with {} and carries {} at least, as short bursts of data have shown: what is declared is a limit, so no \
         more is sent. If nobody wants that limit, say so: `{}`, and in the configuration",
        rate(declared_bps),
        rate(room_bps),
        set_rate(&name, real_bps),
    );
    let said = match number(after, "/rate_in_bps") {
        in_bps if is_swapped(declared_bps, room_bps, in_bps, after) => format!(
            "{said}. It looks as if the rates of the two directions were mistaken for each other: {} out and {} in are declared",
            rate(declared_bps),
            rate(in_bps),
        ),
        _ => said,
    };
    let finding = Diagnosis::new("rate-too-low", Severity::Warning, said).seen("link", &name);
    let finding = finding.seen("declared_bps", declared_bps).seen("carries_bps", room_bps);
    Some(finding.mended_by(Remedy::run(set_rate(&name, real_bps))))
}

/// More is declared to come in than to go out, and what is declared to go out is too low.
fn is_swapped(declared_bps: u64, room_bps: u64, in_bps: u64, after: &Value) -> bool {
    text(after, "/rate_in_source") == "declared" && in_bps > declared_bps && room_bps <= in_bps / 10 * 11
}

fn rate_too_high(name: &str, real_bps: u64, said: String) -> Diagnosis {
    let finding = Diagnosis::new("rate-too-high", Severity::Warning, said).seen("link", name);
    finding.mended_by(Remedy::run(set_rate(name, real_bps)))
}

/// The command that says what a link carries.
fn set_rate(name: &str, real_bps: u64) -> String {
    format!("farlink set link.{name}.rate_bps {real_bps}")
}

/// By so much a counter has grown.
pub(super) fn grown(before: &Value, after: &Value, key: &str) -> u64 {
    number(after, key).saturating_sub(number(before, key))
}

/// As much as a few seconds tell.
fn two_digits(bps: u64) -> u64 {
    let digits = 10_u64.pow(bps.max(10).ilog10() - 1);
    bps / digits * digits
}

/// A queue that is filled faster than the link empties it is somebody else's, and overflows.
fn too_fast(before: &Value, after: &Value, seconds: u64) -> Option<Diagnosis> {
    let grown = |key: &str| grown(before, after, key);
    let (sent, again, said_bps) =
        (grown("/sent_bytes"), grown("/retransmitted_bytes"), number(after, "/rate_bps"));
    let sent_bps = 8 * sent / seconds.max(1);
    let is_full = said_bps > 0 && sent_bps as f64 >= FULL_SHARE * said_bps as f64;
    // What has been found to be less is told by itself.
    let (found_bps, declared_bps) = (number(after, "/estimated_bps"), number(after, "/declared_bps"));
    let is_as_said = declared_bps > 0 && found_bps * 100 >= declared_bps * CARRIES_PERCENT;
    let is_known = found_bps == 0 || is_as_said;
    let share = again as f64 / sent.max(1) as f64;
    if sent < SENT_MIN_BYTES || !is_full || !is_known || share < AGAIN_SHARE_MIN {
        return None;
    }
    let name = text(after, "/name");
    let real_bps = two_digits(8 * sent.saturating_sub(again) / seconds.max(1));
    let said = format!(
        "the link {name} is said to carry {}, and of the {} that were sent {:.0} % was sent again: either it carries less (about {}), or it \
         loses that much. If it is slower, say so: `{}`, and in the configuration",
        rate(said_bps),
        rate(sent_bps),
        100.0 * share,
        rate(real_bps),
        set_rate(&name, real_bps),
    );
    let finding = rate_too_high(&name, real_bps, said);
    let finding = finding.seen("rate_bps", said_bps).seen("sent_bps", sent_bps);
    Some(finding.seen("sent_again_share", format!("{share:.2}")))
}

/// Where no gateway answers, connections find themselves that there is less room. All of those that
/// send say so: the link is slower, or what is narrow lies behind it.
fn given_way(before: &Value, after: &Value, flows: &[Value], seconds: u64) -> Option<Diagnosis> {
    let (said_bps, interface) = (number(after, "/rate_bps"), text(after, "/interface"));
    let grown = |key: &str| grown(before, after, key);
    let sent = grown("/sent_bytes") + grown("/beside_bytes");
    let sent_bps = 8 * sent / seconds.max(1);
    if sent < SENT_MIN_BYTES || sent_bps as f64 >= FULL_SHARE * said_bps as f64 {
        return None;
    }
    let sending = ends(flows).filter(|e| e.is_split && e.interface == interface && e.is_sending);
    let (narrow, wide): (Vec<_>, Vec<_>) = sending.partition(|e| e.has_given_way && !e.has_peer);
    if narrow.is_empty() || !wide.is_empty() {
        return None;
    }
    let (name, real_bps) = (text(after, "/name"), two_digits(sent_bps));
    let said = format!(
        "the link {name} is said to carry {}, and all that is sent over it now ({}, {} without a gateway at the other end) loses or waits \
         more at {}: either the link is slower, or what is narrow lies behind it. If it is the link, say so: \
         `{}`, and in the configuration",
        rate(said_bps),
        count(narrow.len() as u64, "connection"),
        if narrow.len() == 1 { "which is" } else { "which are" },
        rate(sent_bps),
        set_rate(&name, real_bps),
    );
    let finding = rate_too_high(&name, real_bps, said);
    let finding = finding.seen("rate_bps", said_bps).seen("sent_bps", sent_bps);
    Some(finding.seen("connections", narrow.len()))
}

/// One end of a connection.
struct End {
    /// The interface that leads to it; empty for one that is not configured.
    interface: String,
    /// A gateway answers there.
    has_peer: bool,
    /// The connection is split now.
    is_split: bool,
    /// Its round trip, microseconds; 0: unknown.
    rtt_us: u64,
    /// Something is under way to it, and there would be more but for the way.
    is_sending: bool,
    /// It has found less room than the link has.
    has_given_way: bool,
}

fn ends(flows: &[Value]) -> impl Iterator<Item = End> {
    flows.iter().flat_map(|flow| {
        let is_held = ["link", "loss"].contains(&text(flow, "/limited_by").as_str());
        ["a", "b"].map(move |end| End {
            interface: text(flow, &format!("/out_{end}")),
            has_peer: flow.pointer(&format!("/peer_{end}")) == Some(&Value::Bool(true)),
            is_split: text(flow, "/mode") == "split",
            rtt_us: number(flow, &format!("/srtt_{end}_us")),
            is_sending: number(flow, &format!("/in_flight_{end}_bytes")) > 0 && is_held,
            has_given_way: text(flow, &format!("/controller_{end}")) == Controller::GIVEN_WAY,
        })
    })
}

/// A box on the way takes offence at Farlink's option.
fn boxes(link: &Value) -> Option<Diagnosis> {
    let finding = Diagnosis::new("option-dropped", Severity::Warning, words::boxes(link)?);
    let of = |key: &str| number(link, key);
    Some(
        finding
            .seen("syn_option_dropped", of("/syn_option_dropped"))
            .seen("syn_ack_option_dropped", of("/syn_ack_option_dropped"))
            .seen("data_option_dropped", of("/data_option_dropped")),
    )
}

/// What `send_ahead` would spare is waited for.
fn windows(link: &Value, flows: &[Value]) -> Option<Diagnosis> {
    let finding = Diagnosis::new("waits-for-windows", Severity::Note, words::waits_for_windows(link, flows)?);
    let of = |key: &str| number(link, &format!("/ahead/{key}"));
    Some(finding.seen("reset_hosts", of("reset_hosts")).seen("dropped_hosts", of("dropped_hosts")))
}

fn far_end(link: &Value, flows: &[Value]) -> Option<Diagnosis> {
    let (name, interface) = (text(link, "/name"), text(link, "/interface"));
    let ids: Vec<_> = list(link, "/gateways").iter().map(|g| text(g, "/identity")).collect();
    let (with, without): (Vec<_>, Vec<_>) =
        ends(flows).filter(|end| end.is_split && end.interface == interface).partition(|end| end.has_peer);
    if without.is_empty() {
        return None;
    }
    let alone = count(without.len() as u64, "connection");
    let (id, severity, said) = match (ids.is_empty(), with.is_empty()) {
        (true, _) => (
            "no-far-gateway",
            Severity::Note,
            format!(
                "no gateway answers at the other end of the link {name} ({alone}): this side alone is improved. If there is one, either the \
                 link is not declared there (`farlink check` there says so), or something on the way removes Farlink's TCP option \
                 (kind 254)"
            ),
        ),
        (false, true) => (
            "option-stripped",
            Severity::Warning,
            format!(
                "a gateway has been heard at the other end of the link {name} ({}), and for {alone} that are open none answers: something on \
                 the way removes Farlink's TCP option (kind 254), or they take another way",
                ids.join(", ")
            ),
        ),
        (false, false) => (
            "some-without-gateway",
            Severity::Note,
            format!(
                "for {alone} over the link {name} no gateway answers at its other end, for {} one does: they lead elsewhere, or something on \
                 the way removes Farlink's TCP option (kind 254) from some",
                with.len()
            ),
        ),
    };
    Some(Diagnosis::new(id, severity, said).seen("link", name).seen("gateways", ids.join(", ")))
}

/// A round trip of so much at least can be told from a local network's.
const FAR_RTT_US: u64 = 40_000;
/// A local network has less.
const NEAR_RTT_US: u64 = 10_000;
/// Round trips that differ by this factor are of different ways.
const ELSEWHERE: u64 = 4;

/// The round trip that was said of the link is not behind its interface, but behind another one. Or
/// nobody has said any, and it is a local network's: the long way lies behind another interface.
fn elsewhere(link: &Value, links: &[Value], flows: &[Value]) -> Option<Diagnosis> {
    let said_us = number(link, "/rtt_us");
    let (name, interface) = (text(link, "/name"), text(link, "/interface"));
    // The smallest of each interface.
    let mut shortest_us = BTreeMap::new();
    for end in ends(flows).filter(|end| end.rtt_us > 0 && !end.interface.is_empty()) {
        let known = shortest_us.entry(end.interface).or_insert(u64::MAX);
        *known = end.rtt_us.min(*known);
    }
    let here_us = shortest_us.remove(&interface)?;
    let is_said = said_us >= FAR_RTT_US;
    if !is_said && (here_us >= NEAR_RTT_US || !list(link, "/gateways").is_empty()) {
        return None;
    }
    // Another link is declared where it is.
    shortest_us.retain(|at, _| is_said || !links.iter().any(|l| text(l, "/interface") == *at));
    let far_us = if is_said { said_us / 2 } else { FAR_RTT_US };
    let (there, there_us) = shortest_us.into_iter().find(|(_, us)| *us >= far_us)?;
    if here_us > said_us.max(there_us.min(FAR_RTT_US)) / ELSEWHERE {
        return None;
    }
    let (here, far) = (microseconds(here_us), microseconds(there_us));
    let said = match is_said {
        true => format!(
            "the link {name} is declared at {interface}, where the round trip is {here}, and the round trip of {} that was said of it is that \
             behind {there} ({far}): declare it there",
            microseconds(said_us),
        ),
        false => format!(
            "the link {name} is declared at {interface}, where the round trip is {here}, and behind {there} it is {far}: the hard link looks to be \
             that one. Declare it there (`farlink run --link {there}`), and {interface} as an ordinary interface"
        ),
    };
    let finding = Diagnosis::new("link-elsewhere", Severity::Warning, said)
        .seen("link", name)
        .seen("interface", interface)
        .seen("rtt_us", here_us)
        .seen("rtt_elsewhere_us", there_us);
    Some(finding.mended_by(Remedy::configure("link.interface", format!("\"{there}\""))))
}

/// Without a link everything is guessed.
fn none_declared(links: &[Value]) -> Option<Diagnosis> {
    let said = "no link is declared: Farlink does not know which interface leads to the hard link, finds no other gateway, and shapes nothing. \
                Declare it with `[[link]]`, at both ends";
    links.is_empty().then(|| Diagnosis::new("no-link", Severity::Note, said))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn ids(before: Value, after: Value, flows: Value) -> Vec<String> {
        let sample = |links: Value| Sample {
            status: json!({ "links": links }),
            flows: flows.clone(),
            ..Sample::default()
        };
        let found = findings(&sample(before), &sample(after), 2);
        found.into_iter().map(|d| format!("{} {:?}", d.id, d.severity)).collect()
    }

    fn link(more: Value) -> Value {
        let mut link = json!({"name": "geo", "interface": "sat0", "rate_bps": 8_000_000, "estimated_bps": 0, "up": true, "state": "up", "down_by": [],
            "gateways": [], "sent_bytes": 0, "retransmitted_bytes": 0});
        link.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!([link])
    }

    fn flow(peer_b: bool, out_b: &str) -> Value {
        json!({"mode": "split", "peer_a": false, "peer_b": peer_b, "out_a": "lan0", "out_b": out_b})
    }

    #[test]
    fn who_says_that_a_link_is_down_is_told() {
        let down = |state: &str, by: &str| json!({"state": state, "down_by": [by]});
        let of = |state: &str, by: &str| ids(link(json!({})), link(down(state, by)), json!([]));
        // The only one.
        assert_eq!(of("down", "operator"), ["link-down Problem"]);
        assert_eq!(of("down", "contact plan"), ["link-away Note"], "as planned");
        assert_eq!(of("probing", "silence"), ["link-silent Problem"]);
        assert_eq!(of("suspect", "silence"), ["link-silent Note"], "it has just been asked");
        assert_eq!(of("down", "kernel"), ["link-down Problem"]);
        // Another one carries what there is.
        let beside = |state: &str, by: &str| {
            let mut both = link(down(state, by));
            let lte = json!({"name": "lte", "interface": "wwan0", "state": "up", "up": true, "down_by": []});
            both.as_array_mut().unwrap().push(lte);
            ids(both.clone(), both, json!([]))
        };
        assert_eq!(beside("down", "operator"), ["link-down Warning"]);
        assert_eq!(beside("probing", "silence"), ["link-silent Warning"]);
        assert_eq!(beside("down", "kernel"), [""; 0], "which `interface-down` tells");
    }

    #[test]
    fn a_rate_that_is_too_high_shows_by_what_is_sent_again() {
        let of = |sent: u64, again: u64, more: Value| {
            let mut after = json!({"sent_bytes": sent, "retransmitted_bytes": again});
            after.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            ids(link(json!({})), link(after), json!([]))
        };
        assert_eq!(of(2_000_000, 1_000_000, json!({})), ["rate-too-high Warning"]);
        assert_eq!(of(2_000_000, 20_000, json!({})), [""; 0], "a lossy link");
        assert_eq!(of(400_000, 200_000, json!({})), [""; 0], "it is not full");
        assert_eq!(
            of(2_000_000, 1_000_000, json!({"estimated_bps": 8_000_000})),
            [""; 0],
            "nobody has said it"
        );
        let nearly = json!({"estimated_bps": 7_950_000, "declared_bps": 8_000_000});
        assert_eq!(of(2_000_000, 1_000_000, nearly), ["rate-too-high Warning"], "as said, by and large");
        assert_eq!(of(10_000, 5_000, json!({"rate_bps": 1000})), [""; 0], "too little to tell");
    }

    #[test]
    fn connections_that_all_find_less_room_show_that_a_rate_is_too_high() {
        let of = |controllers: &[&str], peer: bool, sent: u64| {
            let flows = controllers.iter().map(|controller| {
                let mut flow = flow(peer, "sat0");
                let more =
                    json!({"controller_b": controller, "in_flight_b_bytes": 20_000, "limited_by": "link"});
                flow.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
                flow
            });
            let found = ids(link(json!({})), link(json!({"sent_bytes": sent})), flows.collect());
            found.into_iter().filter(|id| id.starts_with("rate")).collect::<Vec<_>>()
        };
        assert_eq!(of(&[Controller::GIVEN_WAY], false, 400_000), ["rate-too-high Warning"]);
        assert_eq!(of(&[Controller::GIVEN_WAY], false, 2_000_000), [""; 0], "the link is full");
        assert_eq!(of(&[Controller::GIVEN_WAY], false, 10_000), [""; 0], "too little to tell");
        assert_eq!(of(&[Controller::GIVEN_WAY; 2], true, 400_000), [""; 0], "the other gateway reports");
        assert_eq!(of(&[Controller::GIVEN_WAY, "known-rate"], false, 400_000), [""; 0], "one finds room");
    }

    #[test]
    fn a_declared_rate_that_is_found_to_be_another_is_told_with_both() {
        let of = |found: u64| {
            let after = link(json!({"declared_bps": 8_800_000, "estimated_bps": found}));
            let sample = |links| Sample { status: json!({ "links": links }), ..Sample::default() };
            findings(&sample(after.clone()), &sample(after), 2)
        };
        assert!(of(0).is_empty(), "nothing else is known");
        assert!(of(8_700_000).is_empty());
        let found = of(8_010_000);
        assert_eq!(found[0].id, "rate-too-high");
        let text = found[0].text.replace('\u{a0}', " ");
        assert!(text.contains("declared with 8.8 Mbit/s and carries 8.0 Mbit/s"), "{text}");
        assert_eq!(found[0].remedies, [Remedy::run("farlink set link.geo.rate_bps 8000000")]);
    }

    #[test]
    fn a_declared_rate_that_is_too_low_is_told_with_both() {
        let of = |room: u64, in_bps: u64| {
            let after = link(
                json!({"declared_bps": 2_000_000, "room_bps": room, "rate_in_bps": in_bps, "rate_in_source": "declared"}),
            );
            let sample = |links| Sample { status: json!({ "links": links }), ..Sample::default() };
            findings(&sample(after.clone()), &sample(after), 2)
        };
        assert!(of(0, 2_000_000).is_empty(), "nothing else is known");
        let found = of(3_940_000, 2_000_000);
        assert_eq!(found[0].id, "rate-too-low");
        let text = found[0].text.replace('\u{a0}', " ");
        assert!(text.contains("declared with 2.0 Mbit/s and carries 3.9 Mbit/s at least"), "{text}");
        assert!(!text.contains("mistaken"), "{text}");
        assert_eq!(found[0].remedies, [Remedy::run("farlink set link.geo.rate_bps 3900000")]);
        assert!(of(3_940_000, 20_000_000)[0].text.contains("mistaken for each other"));
    }

    #[test]
    fn the_real_rate_is_the_remedy() {
        let sample = |after: Value| Sample { status: json!({"links": link(after)}), ..Sample::default() };
        let found = findings(
            &sample(json!({})),
            &sample(json!({"sent_bytes": 2_000_000, "retransmitted_bytes": 973_000})),
            2,
        );
        assert_eq!(found[0].remedies, [Remedy::run("farlink set link.geo.rate_bps 4100000")]);
    }

    #[test]
    fn whether_the_other_gateway_answers_is_told() {
        let heard = || link(json!({"gateways": [{"identity": "0a0b0c0d"}]}));
        let of = |link: Value, flows: Value| ids(link.clone(), link, flows);
        assert_eq!(of(link(json!({})), json!([flow(false, "sat0")])), ["no-far-gateway Note"]);
        assert_eq!(of(heard(), json!([flow(true, "sat0")])), [""; 0]);
        assert_eq!(of(heard(), json!([flow(false, "sat0")])), ["option-stripped Warning"]);
        assert_eq!(
            of(heard(), json!([flow(false, "sat0"), flow(true, "sat0")])),
            ["some-without-gateway Note"]
        );
        assert_eq!(ids(json!([]), json!([]), json!([])), ["no-link Note"]);
    }

    #[test]
    fn a_box_that_drops_the_option_is_told() {
        let refused = link(json!({"ahead": {"reset_hosts": 1}}));
        assert_eq!(ids(refused.clone(), refused, json!([])), ["waits-for-windows Note"]);
        let dropping = link(json!({"boxes": ["a box on the way drops SYNs"], "syn_option_dropped": 1}));
        assert_eq!(ids(dropping.clone(), dropping, json!([])), ["option-dropped Warning"]);
    }

    #[test]
    fn a_round_trip_that_is_elsewhere_shows_where_the_link_is() {
        let of = |said_us: u64, lan_us: u64, sat_us: u64| {
            let flow = json!({"mode": "dormant", "out_a": "lan0", "out_b": "sat0", "srtt_a_us": lan_us, "srtt_b_us": sat_us});
            let link = link(json!({"interface": "lan0", "rtt_us": said_us}));
            ids(link.clone(), link, json!([flow]))
        };
        assert_eq!(of(500_000, 400, 520_000), ["link-elsewhere Warning"]);
        assert_eq!(of(500_000, 510_000, 520_000), [""; 0], "it is as far as was said");
        assert_eq!(of(500_000, 400, 600), [""; 0], "a cache near by");
        // Nobody has said how far it is, and it has been found to be near.
        assert_eq!(of(0, 400, 520_000), ["link-elsewhere Warning"]);
        assert_eq!(of(400, 400, 520_000), ["link-elsewhere Warning"]);
        assert_eq!(of(0, 400, 30_000), [""; 0], "hosts that are not far");
        assert_eq!(of(0, 12_000, 520_000), [""; 0], "a link of some length, and hosts that are far");
    }

    #[test]
    fn a_budget_is_said_from_four_fifths_on() {
        let of = |level: Value| {
            let link = json!({"name": "geo", "budget_bytes": 20_000_000_000_u64, "budget_period": "month",
                "budget_used_bytes": 16_500_000_000_u64, "budget_level": level});
            budget(&link).map(|found| (found.id.to_string(), found.severity, found.text))
        };
        assert!(of(Value::Null).is_none() && of(json!("fine")).is_none());
        let (id, severity, said) = of(json!("low")).unwrap();
        assert_eq!((&*id, severity), ("budget-low", Severity::Warning));
        assert!(said.ends_with("(16.5 GB of 20.0 GB a month)"), "{said}");
        assert_eq!(of(json!("used up")).unwrap().0, "budget-used-up");
    }
}
