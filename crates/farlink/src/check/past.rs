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

/// Interfaces by which less has come in than this part of it (one over it) are not named.
const PARTS: u64 = 10;
/// So many interfaces are named.
const NAMED_MAX: usize = 3;

/// Findings about one link between two samples that are `seconds` apart; `earlier` is missing where
/// the link is new.
pub fn findings(
    earlier: Option<&Value>,
    link: &Value,
    (before, after): (&Sample, &Sample),
    seconds: u64,
) -> Vec<Diagnosis> {
    let metered = earlier.and_then(|earlier| metered(earlier, link, (before, after), seconds));
    metered.into_iter().chain(not_metered(link, &after.machine)).collect()
}

/// What the counters of the interface tell.
fn metered(
    earlier: &Value,
    link: &Value,
    (before, after): (&Sample, &Sample),
    seconds: u64,
) -> Option<Diagnosis> {
    let (unseen, seen) = (grown(earlier, link, "/beside_bytes"), grown(earlier, link, "/sent_bytes"));
    let percent = 100 * unseen / (unseen + seen).max(1);
    if unseen < WORD_MIN_BYTES || percent < WORD_PERCENT {
        return None;
    }
    let rate_bps = number(link, "/rate_bps");
    let takes_all = after.machine.whole.contains(&text(link, "/interface"));
    let is_diverted = after.status.pointer("/diversion/everything") == Some(&Value::Bool(true));
    // A broadcast now and then is not what leaves here.
    let packets = grown(earlier, link, "/beside_packets");
    let left_out = after.machine.busy_since(&before.machine, packets / PARTS);
    let left_out = left_out.get(..NAMED_MAX).unwrap_or(&left_out);
    let why = match (takes_all, rate_bps) {
        (false, 0) => "its rate is not known, so that only TCP passes it".to_owned(),
        (false, _) => "only TCP passes it (`traffic = \"tcp\"`), and UDP, ICMP and tunnels do not".to_owned(),
        (true, _) if !is_diverted => "what is no TCP is not diverted now (see above)".to_owned(),
        (true, _) => of_whole(left_out),
    };
    let name = text(link, "/name");
    let follows =
        if rate_bps > 0 { ". The queue has the rest of the rate, and cannot say who goes first" } else { "" };
    let said =
        format!("{percent} % of what leaves by the link {name} does not pass its queue: {why}{follows}");
    let unseen_bps = 8 * unseen / seconds.max(1);
    let is_much = rate_bps > 0 && unseen_bps.saturating_mul(100) >= rate_bps.saturating_mul(WARN_PERCENT);
    let severity = if is_much { Severity::Warning } else { Severity::Note };
    let mut finding = Diagnosis::new("past-the-queue", severity, said).seen("link", name);
    finding = finding.seen("bytes_past", unseen).seen("bytes_through", seen);
    if takes_all && is_diverted && !left_out.is_empty() {
        finding = finding.seen("not_diverted", left_out.join(", "));
    }
    Some(match takes_all {
        false if rate_bps > 0 => finding.mended_by(Remedy::configure("link.traffic", "\"everything\"")),
        _ => finding,
    })
}

/// Why something passes the queue of a link that takes everything. By these interfaces something
/// comes in that is not diverted.
fn of_whole(left_out: &[String]) -> String {
    let all = "it is what this machine sends itself, multicast, what has IP options, or what is bridged or offloaded";
    match left_out {
        [] => all.to_owned(),
        [one] => {
            format!("{all}; or it comes in by {one}, which forwards and is not diverted (`[[interface]]`)")
        }
        more => format!(
            "{all}; or it comes in by {}, which forward and are not diverted (`[[interface]]`)",
            more.join(", ")
        ),
    }
}

/// The counters of the interface are of others, too. It matters where a rate is kept to.
fn not_metered(link: &Value, machine: &Machine) -> Option<Diagnosis> {
    let is_up = link.pointer("/up") == Some(&Value::Bool(true));
    let (name, interface) = (text(link, "/name"), text(link, "/interface"));
    let others = machine.standing_on(&interface);
    let is_metered = link.pointer("/beside_metered") != Some(&Value::Bool(false));
    // Of an interface that is away there is nothing to ask.
    if is_metered || number(link, "/rate_bps") == 0 || (others.is_empty() && !is_up) {
        return None;
    }
    let why = match &others[..] {
        [] => format!("the counters of {interface} cannot be asked"),
        some => format!("{} on it, and its counters have theirs, too", stands(some)),
    };
    let said = format!(
        "nobody can say what leaves by {interface} past the queue of the link {name}: {why}. The queue takes the whole rate, and what \
         leaves past it overruns the link: declare the link at an interface that nothing else stands on"
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

    /// In two seconds. `left_out`: interfaces that are not diverted, by which packets have come in.
    fn found(after: Value, everything: Value, machine: Machine) -> Vec<Diagnosis> {
        let quiet = machine.left_out.iter().map(|(name, _)| (name.clone(), 5)).collect();
        let before =
            Sample { machine: Machine { left_out: quiet, ..Machine::default() }, ..Sample::default() };
        let status = json!({"diversion": {"everything": everything}});
        let sample = Sample { status, machine, ..Sample::default() };
        findings(Some(&link(json!({}))), &link(after), (&before, &sample), 2)
    }

    /// `everything`: `None`: of this link only TCP is taken.
    fn past(unseen: u64, everything: Option<bool>, left_out: &[(&str, u64)]) -> Vec<Diagnosis> {
        let left_out = left_out.iter().map(|(name, came)| ((*name).to_owned(), *came)).collect();
        let after = json!({"sent_bytes": 300_000, "beside_bytes": unseen, "beside_packets": 10});
        let whole = everything.iter().map(|_| "sat0".to_owned()).collect();
        // Of another link everything is taken.
        let everything = everything.unwrap_or(true);
        found(after, json!(everything), Machine { left_out, whole, ..Machine::default() })
    }

    #[test]
    fn what_leaves_past_the_queue_is_told_with_the_reason() {
        assert!(past(2_000, None, &[]).is_empty(), "now and then a packet");
        let of_tcp = past(100_000, None, &[("wlan0", 9)]);
        assert_eq!((&*of_tcp[0].id, of_tcp[0].severity), ("past-the-queue", Severity::Note));
        assert!(of_tcp[0].text.contains("25 % of what leaves by the link geo"), "{}", of_tcp[0].text);
        assert!(of_tcp[0].text.contains("only TCP passes it"), "{}", of_tcp[0].text);
        assert_eq!(of_tcp[0].remedies, [Remedy::configure("link.traffic", "\"everything\"")]);
        let own = past(100_000, Some(true), &[]);
        assert!(own[0].text.contains("this machine sends itself") && own[0].remedies.is_empty());
        assert!(past(100_000, Some(false), &[])[0].text.contains("is not diverted now"));
        let unknown = json!({"rate_bps": 0, "beside_bytes": 100_000});
        let unknown = &found(unknown, json!(null), Machine::default())[0];
        assert!(
            unknown.text.ends_with("its rate is not known, so that only TCP passes it"),
            "{}",
            unknown.text
        );
        assert!(unknown.remedies.is_empty());
    }

    #[test]
    fn interfaces_that_forward_and_are_not_diverted_are_named_where_something_comes_in() {
        let one = past(100_000, Some(true), &[("wlan0", 90), ("docker0", 5)]);
        assert!(one[0].text.contains("by wlan0, which forwards and is not diverted"), "{}", one[0].text);
        assert_eq!(one[0].evidence["not_diverted"], "wlan0");
        let two = past(100_000, Some(true), &[("a", 6), ("b", 9), ("c", 5), ("d", 7), ("e", 8)]);
        assert!(two[0].text.contains("by b, e, d, which forward and are not diverted"), "{}", two[0].text);
    }

    #[test]
    fn from_a_quarter_of_the_rate_on_it_is_a_warning() {
        let severity = |unseen: u64| past(unseen, Some(true), &[])[0].severity;
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
        let down = json!({"beside_metered": false, "up": false});
        assert_eq!(of(down, &["sat0.7"]).len(), 1, "it does not become better by an outage");
        assert!(of(json!({"beside_metered": false, "rate_bps": 0}), &[]).is_empty(), "nothing is shaped");
        assert!(of(json!({"beside_metered": null}), &[]).is_empty(), "an older gateway does not say");
    }
}
