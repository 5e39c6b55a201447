//! What leaves by a link past its queue: which part it is, why, and where nobody can say. Pure.

use farlink_linux::divert::{Diagnosis, Remedy, Severity};
use serde_json::Value;

use super::links::grown;
use super::live::{Machine, Sample};
use crate::view::{number, text};

/// Less than this part of what leaves is not worth a word.
const WORD_PERCENT: u64 = 1;
const WORD_MIN_BYTES: u64 = 5_000;
/// So much of the link's rate is a reason to warn.
const WARN_PERCENT: u64 = 25;

/// Findings about one link between two samples that are `seconds` apart; `before` is missing where
/// the link is new.
pub fn findings(before: Option<&Value>, link: &Value, after: &Sample, seconds: u64) -> Vec<Diagnosis> {
    let is_whole = after.status.pointer("/diversion/everything").and_then(Value::as_bool);
    let metered = before.and_then(|before| metered(before, link, is_whole, &after.machine, seconds));
    metered.into_iter().chain(not_metered(link, &after.machine)).collect()
}

/// What the counters of the interface tell. `is_whole`: everything that leaves by links is
/// diverted, or would be; `None`: nobody wants that.
fn metered(
    before: &Value,
    link: &Value,
    is_whole: Option<bool>,
    machine: &Machine,
    seconds: u64,
) -> Option<Diagnosis> {
    let (unseen, seen) = (grown(before, link, "/beside_bytes"), grown(before, link, "/sent_bytes"));
    let percent = 100 * unseen / (unseen + seen).max(1);
    if unseen < WORD_MIN_BYTES || percent < WORD_PERCENT {
        return None;
    }
    let left_out = &machine.left_out;
    let why = match is_whole {
        None => "only TCP passes it (`traffic = \"tcp\"`, or no rate is known yet), and UDP, ICMP and tunnels do not".to_owned(),
        Some(false) => "what is no TCP is not diverted now (see above)".to_owned(),
        Some(true) => {
            let all = "it is what this machine sends itself, multicast, what has IP options, or what is bridged or offloaded";
            match &left_out[..] {
                [] => all.to_owned(),
                some => format!(
                    "{all}; or it comes in by {}, which {} and {} not diverted: name {} in `[[interface]]`",
                    some.join(", "),
                    if some.len() == 1 { "forwards" } else { "forward" },
                    if some.len() == 1 { "is" } else { "are" },
                    if some.len() == 1 { "it" } else { "them" },
                ),
            }
        }
    };
    let name = text(link, "/name");
    let said = format!(
        "{percent} % of what leaves by the link {name} does not pass its queue: {why}. The queue has the rest of the rate, and cannot say \
         who goes first"
    );
    let (unseen_bps, rate_bps) = (8 * unseen / seconds.max(1), number(link, "/rate_bps"));
    let is_much = rate_bps > 0 && unseen_bps.saturating_mul(100) >= rate_bps.saturating_mul(WARN_PERCENT);
    let severity = if is_much { Severity::Warning } else { Severity::Note };
    let mut finding = Diagnosis::new("past-the-queue", severity, said).seen("link", name);
    finding = finding.seen("bytes_past", unseen).seen("bytes_through", seen);
    if is_whole == Some(true) && !left_out.is_empty() {
        finding = finding.seen("not_diverted", left_out.join(", "));
    }
    Some(match (is_whole, left_out.first()) {
        (None, _) => finding.mended_by(Remedy::configure("link.traffic", "\"everything\"")),
        (Some(true), Some(first)) => {
            finding.mended_by(Remedy::configure("interface.name", format!("\"{first}\"")))
        }
        _ => finding,
    })
}

/// The counters of the interface are of others, too. It matters where a rate is kept to.
fn not_metered(link: &Value, machine: &Machine) -> Option<Diagnosis> {
    let is_up = link.pointer("/up") == Some(&Value::Bool(true));
    if link.pointer("/beside_metered") != Some(&Value::Bool(false))
        || !is_up
        || number(link, "/rate_bps") == 0
    {
        return None;
    }
    let (name, interface) = (text(link, "/name"), text(link, "/interface"));
    let others = machine.standing_on(&interface);
    let why = match &others[..] {
        [] => format!("the counters of {interface} cannot be asked"),
        some => format!("{} on it, and its counters have theirs, too", stands(some)),
    };
    let said = format!(
        "nobody can say what leaves by {interface} past the queue of the link {name}: {why}. The queue takes the whole rate, and the link is \
         overrun by what leaves past it: declare the link at the interface that it alone leads over, or with a rate that leaves room"
    );
    let finding = Diagnosis::new("not-metered", Severity::Warning, said).seen("link", name);
    Some(finding.seen("interface", interface).seen("others", others.join(", ")))
}

fn stands(some: &[String]) -> String {
    match some {
        [one] => format!("{one} stands"),
        more => format!("{} stand", more.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn link(more: Value) -> Value {
        let mut link = json!({"name": "geo", "interface": "sat0", "rate_bps": 8_000_000, "up": true, "beside_metered": true,
            "sent_bytes": 0, "beside_bytes": 0});
        link.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        link
    }

    /// In two seconds.
    fn found(after: Value, everything: Value, machine: Machine) -> Vec<Diagnosis> {
        let sample =
            Sample { status: json!({"diversion": {"everything": everything}}), machine, ..Sample::default() };
        findings(Some(&link(json!({}))), &link(after), &sample, 2)
    }

    fn past(unseen: u64, everything: Value, left_out: &[&str]) -> Vec<Diagnosis> {
        let left_out = left_out.iter().map(|name| (*name).to_owned()).collect();
        let after = json!({"sent_bytes": 300_000, "beside_bytes": unseen});
        found(after, everything, Machine { left_out, ..Machine::default() })
    }

    #[test]
    fn what_leaves_past_the_queue_is_told_with_the_reason() {
        assert!(past(2_000, json!(null), &[]).is_empty(), "now and then a packet");
        let of_tcp = past(100_000, json!(null), &["wlan0"]);
        assert_eq!((&*of_tcp[0].id, of_tcp[0].severity), ("past-the-queue", Severity::Note));
        assert!(of_tcp[0].text.contains("25 % of what leaves by the link geo"), "{}", of_tcp[0].text);
        assert_eq!(of_tcp[0].remedies, [Remedy::configure("link.traffic", "\"everything\"")]);
        let own = past(100_000, json!(true), &[]);
        assert!(own[0].text.contains("this machine sends itself") && own[0].remedies.is_empty());
        assert!(past(100_000, json!(false), &[])[0].text.contains("is not diverted now"));
    }

    #[test]
    fn interfaces_that_forward_and_are_not_diverted_are_named() {
        let one = past(100_000, json!(true), &["wlan0"]);
        assert!(
            one[0].text.contains("by wlan0, which forwards and is not diverted: name it"),
            "{}",
            one[0].text
        );
        assert_eq!(one[0].evidence["not_diverted"], "wlan0");
        assert_eq!(one[0].remedies, [Remedy::configure("interface.name", "\"wlan0\"")]);
        let two = past(100_000, json!(true), &["wlan0", "tun1"]);
        assert!(two[0].text.contains("by wlan0, tun1, which forward and are not diverted: name them"));
    }

    #[test]
    fn from_a_quarter_of_the_rate_on_it_is_a_warning() {
        let severity = |unseen: u64| past(unseen, json!(true), &[])[0].severity;
        assert_eq!(severity(499_000), Severity::Note);
        assert_eq!(severity(500_000), Severity::Warning, "2 of 8 Mbit/s");
        let unknown = json!({"rate_bps": 0, "beside_bytes": 5_000_000});
        assert_eq!(found(unknown, json!(true), Machine::default())[0].severity, Severity::Note);
    }

    #[test]
    fn an_interface_whose_counters_are_of_others_too_is_a_warning() {
        let machine = |names: &[&str]| Machine {
            stands_on: names.iter().map(|name| ((*name).to_owned(), "sat0".to_owned())).collect(),
            ..Machine::default()
        };
        let of = |more: Value, names: &[&str]| found(more, json!(true), machine(names));
        assert!(of(json!({}), &["sat0.7"]).is_empty());
        let blind = of(json!({"beside_metered": false}), &["sat0.7"]);
        assert_eq!((&*blind[0].id, blind[0].severity), ("not-metered", Severity::Warning));
        assert!(blind[0].text.contains("sat0.7 stands on it"), "{}", blind[0].text);
        let more = of(json!({"beside_metered": false}), &["sat0.7", "sat0.8"]);
        assert!(more[0].text.contains("sat0.7, sat0.8 stand on it"), "{}", more[0].text);
        assert!(of(json!({"beside_metered": false}), &[])[0].text.contains("cannot be asked"));
        assert!(of(json!({"beside_metered": false, "up": false}), &[]).is_empty(), "it is away");
        assert!(of(json!({"beside_metered": false, "rate_bps": 0}), &[]).is_empty(), "nothing is shaped");
        assert!(of(json!({"beside_metered": null}), &[]).is_empty(), "an older gateway does not say");
    }
}
