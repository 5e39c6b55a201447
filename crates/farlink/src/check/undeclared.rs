//! Links whose rate nobody declares: what has been found of it, and what would help where nobody
//! finds it. The same words stand in `check`, `status` and the log. Pure.

use farlink_linux::divert::{Diagnosis, Remedy, Severity};
use serde_json::Value;

use crate::view::{list, number, rate, seconds, text};

/// The identity of the finding that says what would help.
pub const UNKNOWN: &str = "rate-unknown";

/// What is to be said of one link.
pub fn finding(link: &Value) -> Option<Diagnosis> {
    let name = text(link, "/name");
    if let Some(said) = advice(link) {
        let finding = Diagnosis::new(UNKNOWN, Severity::Note, said).seen("link", &name);
        return Some(finding.mended_by(Remedy::configure("link.rate", "\"8 Mbit/s\"")));
    }
    let found = found(link)?;
    let said = format!("nobody declares the rate of the link {name}: {found}");
    let finding = Diagnosis::new("rate-found", Severity::Note, said).seen("link", name);
    Some(finding.seen("rate_bps", number(link, "/estimated_bps").max(number(link, "/remembered_bps"))))
}

/// What has been found of the rate of a link where nobody declares it, and how long ago; `None`:
/// nothing, or somebody does.
pub fn found(link: &Value) -> Option<String> {
    if number(link, "/declared_bps") > 0 {
        return None;
    }
    let out = match (number(link, "/estimated_bps"), number(link, "/remembered_bps")) {
        (0, 0) => None,
        (bps, 0) => Some(format!("{} is found{}", rate(bps), ago(link, "/found_age_s"))),
        (0, once) => Some(format!("{} was found{}", rate(once), ago(link, "/remembered_age_s"))),
        (bps, _) => Some(format!("{} was found{}, and is tried", rate(bps), ago(link, "/remembered_age_s"))),
    };
    let source = text(link, "/rate_in_source");
    let back = (source == "told" || source == "found").then(|| {
        format!("{} in is {source}{}", rate(number(link, "/rate_in_bps")), ago(link, "/rate_in_age_s"))
    });
    let all: Vec<String> = out.into_iter().chain(back).collect();
    (!all.is_empty()).then(|| all.join(", "))
}

/// The same for a column: the rate out alone; `None`: nothing is found, or somebody declares it.
pub fn in_short(link: &Value) -> Option<String> {
    if number(link, "/declared_bps") > 0 {
        return None;
    }
    let age = |pointer: &str| link.pointer(pointer).and_then(Value::as_u64).map_or(String::new(), seconds);
    match (number(link, "/estimated_bps"), number(link, "/remembered_bps")) {
        (0, 0) => None,
        (bps, 0) => Some(format!("{} (found{})", rate(bps), ago(link, "/found_age_s"))),
        (0, once) => Some(format!("unknown ({} {} ago)", rate(once), age("/remembered_age_s"))),
        (bps, _) => Some(format!("{} (as {} ago)", rate(bps), age("/remembered_age_s"))),
    }
}

/// ` 12 s ago`.
fn ago(link: &Value, pointer: &str) -> String {
    link.pointer(pointer).and_then(Value::as_u64).map_or(String::new(), |s| format!(" {} ago", seconds(s)))
}

/// What would help where nobody declares the rate, nobody has found it, and no gateway answers;
/// `None`: nothing has to.
pub fn advice(link: &Value) -> Option<String> {
    let is_known = ["/rate_bps", "/declared_bps", "/estimated_bps"].iter().any(|key| number(link, key) > 0);
    let is_used = number(link, "/carried/split_tcp/packets") > 0;
    let is_answered = !list(link, "/gateways").is_empty();
    if is_known || is_answered || !is_used {
        return None;
    }
    let name = text(link, "/name");
    Some(format!(
        "nobody declares the rate of the link {name}, and no gateway answers at its other end, so each connection has to find it out anew. \
         If you know it, say it: `farlink run --link {} --rate 8M/1M` (out and in), or `rate` and `rate_in` in the configuration, or \
         `farlink set link.{name}.rate_bps 8000000`. A second gateway at the other end would find it out",
        text(link, "/interface"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn link(more: Value) -> Value {
        let mut link = json!({"name": "geo", "interface": "sat0", "rate_bps": 0, "declared_bps": 0, "estimated_bps": 0,
            "gateways": [], "carried": {"split_tcp": {"packets": 9}}});
        link.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        link
    }

    #[test]
    fn where_nobody_knows_the_rate_what_to_type_is_told() {
        let of = |more: Value| finding(&link(more)).map(|d| (d.id, d.severity, d.text));
        let (id, severity, text) = of(json!({})).unwrap();
        assert_eq!((&*id, severity), (UNKNOWN, Severity::Note));
        assert!(text.contains("farlink set link.geo.rate_bps") && text.contains("--link sat0"), "{text}");
        for known in [
            json!({"rate_bps": 8_000_000, "declared_bps": 8_000_000}),
            json!({"gateways": [{"identity": "5eed0001"}]}),
            json!({"carried": {"split_tcp": {"packets": 0}}}),
        ] {
            assert_eq!(of(known.clone()), None, "{known}");
        }
    }

    #[test]
    fn what_is_found_is_said_with_its_age() {
        let of = |more: Value| found(&link(more));
        let is = |more: Value, text: &str| assert_eq!(of(more).as_deref(), Some(text));
        is(json!({"estimated_bps": 8_000_000, "found_age_s": 12}), "8.0 Mbit/s is found 12 s ago");
        let once = json!({"remembered_bps": 8_000_000, "remembered_age_s": 7_300});
        is(once, "8.0 Mbit/s was found 2 h 1 min ago");
        let tried = json!({"estimated_bps": 8_000_000, "remembered_bps": 8_000_000, "remembered_age_s": 61});
        is(tried, "8.0 Mbit/s was found 1 min 1 s ago, and is tried");
        let back = json!({"rate_in_bps": 32_000, "rate_in_source": "found", "rate_in_age_s": 5});
        is(back, "32.0 kbit/s in is found 5 s ago");
        assert_eq!(of(json!({"rate_in_bps": 32_000, "rate_in_source": "declared"})), None);
        assert_eq!(of(json!({"declared_bps": 8_000_000, "estimated_bps": 4_000_000})), None);
        assert_eq!(finding(&link(json!({"estimated_bps": 8_000_000}))).unwrap().id, "rate-found");
    }
}
