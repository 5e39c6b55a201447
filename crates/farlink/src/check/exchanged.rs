//! The rates out and in, mistaken for each other: `--rate 2M/20M` on a link that takes 20 Mbit/s
//! and brings 2. Pure.
//!
//! What is declared is held against all that is known of the two directions: what the link has been
//! found to take, what it has room for, what the gateway at its other end advertises that it sends,
//! and what has come in. One of these has to be near the rate that is declared of the *other*
//! direction, and far from its own; and none may say the contrary. Where both are about the same
//! there is nothing to be exchanged.

use farlink_linux::divert::{Diagnosis, Remedy, Severity};
use serde_json::Value;

use crate::view::{number, rate, text};

/// Rates that differ by less, percent of the smaller one, are not told apart.
const APART_PERCENT: u64 = 150;
/// A rate is near another one within so much of it, percent.
const NEAR_PERCENT: u64 = 20;
/// More than this, percent, is more than a rate is declared to be.
const MORE_PERCENT: u64 = 125;

/// What the other direction is declared to be is what this one is.
pub fn finding(link: &Value) -> Option<Diagnosis> {
    let of = |key: &str| number(link, key);
    let is_declared = text(link, "/rate_in_source") == "declared";
    let (out_bps, in_bps) = (of("/declared_bps"), if is_declared { of("/rate_in_bps") } else { 0 });
    if out_bps == 0 || in_bps == 0 || !are_apart(out_bps, in_bps) {
        return None;
    }
    let evidence = Evidence {
        carries_bps: of("/estimated_bps"),
        room_bps: of("/room_bps"),
        told_bps: of("/rate_in_told_bps"),
        seen_bps: of("/rate_in_seen_bps"),
    };
    let why = evidence.of_exchange(out_bps, in_bps)?;
    let name = text(link, "/name");
    let said = format!(
        "the rates of the link {name} look exchanged: {} out and {} in are declared, and {why}. What leaves by the link is `rate`, what it \
         brings is `rate_in`: try `rate = \"{}\"` and `rate_in = \"{}\"`, or `farlink run --rate {in_bps}/{out_bps}`",
        rate(out_bps),
        rate(in_bps),
        as_typed(in_bps),
        as_typed(out_bps),
    );
    let finding = Diagnosis::new("rates-exchanged", Severity::Warning, said).seen("link", name);
    let finding = finding.seen("declared_bps", out_bps).seen("rate_in_bps", in_bps);
    let finding = finding.mended_by(Remedy::configure("link.rate", format!("\"{}\"", as_typed(in_bps))));
    Some(finding.mended_by(Remedy::configure("link.rate_in", format!("\"{}\"", as_typed(out_bps)))))
}

/// What is known of a link beside what is declared, bits per second; 0: nothing.
struct Evidence {
    /// What it takes, where that is less than is declared.
    carries_bps: u64,
    /// What it takes, where that is more.
    room_bps: u64,
    /// What the other gateway advertises that it sends.
    told_bps: u64,
    /// What has come in, at least.
    seen_bps: u64,
}

impl Evidence {
    /// What shows that the rates are exchanged; `None`: nothing does, or something says that they
    /// are not.
    fn of_exchange(&self, out_bps: u64, in_bps: u64) -> Option<String> {
        let Self { carries_bps, room_bps, told_bps, seen_bps } = *self;
        let exceeds = |bps: u64, than: u64| bps.saturating_mul(100) > than.saturating_mul(MORE_PERCENT);
        // So much comes in, or leaves, that the declared order is right. The other gateway may have
        // them exchanged, too: its word counts less than room that was found here.
        let denied = match out_bps < in_bps {
            true => exceeds(seen_bps, out_bps),
            false => exceeds(carries_bps, in_bps) || is_near(told_bps, in_bps),
        };
        if denied {
            return None;
        }
        if is_near(told_bps, out_bps) {
            let told = rate(told_bps);
            return Some(format!(
                "the gateway at the other end says that it sends {told}: one of the two ends has them so"
            ));
        }
        if out_bps > in_bps && exceeds(seen_bps, in_bps) && (carries_bps == 0 || is_near(carries_bps, in_bps))
        {
            return Some(format!("{} have come in", rate(seen_bps)));
        }
        if is_near(carries_bps, in_bps) {
            return Some(format!("the link takes {}", rate(carries_bps)));
        }
        (out_bps < in_bps && is_near(room_bps, in_bps)).then(|| format!("the link takes {}", rate(room_bps)))
    }
}

fn are_apart(one: u64, other: u64) -> bool {
    one.max(other).saturating_mul(100) >= one.min(other).saturating_mul(APART_PERCENT)
}

fn is_near(bps: u64, to: u64) -> bool {
    bps > 0 && bps.abs_diff(to).saturating_mul(100) <= to.saturating_mul(NEAR_PERCENT)
}

/// As a rate is typed, exactly.
fn as_typed(bps: u64) -> String {
    match bps {
        bps if bps.is_multiple_of(100_000) => format!("{} Mbit/s", bps as f64 / 1e6),
        bps if bps.is_multiple_of(100) => format!("{} kbit/s", bps as f64 / 1e3),
        bps => format!("{bps} bit/s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const M: u64 = 1_000_000;

    /// Of a link that is declared so, and of which this is known.
    fn of(out_bps: u64, in_bps: u64, known: Value) -> Option<Diagnosis> {
        let mut link = json!({"name": "geo", "declared_bps": out_bps, "rate_in_bps": in_bps, "rate_in_source": "declared"});
        link.as_object_mut().unwrap().extend(known.as_object().unwrap().clone());
        finding(&link)
    }

    #[test]
    fn rates_that_are_exchanged_are_named_with_what_to_type() {
        // At the end that sends 20 and gets 2, and at the other one: told by the gateway, or alone.
        for (out, back, known) in [
            (2, 20, json!({"rate_in_told_bps": 2 * M})),
            (2, 20, json!({"room_bps": 19 * M})),
            // Both ends have them so.
            (2, 20, json!({"room_bps": 19 * M, "rate_in_told_bps": 20 * M})),
            (20, 2, json!({"rate_in_told_bps": 20 * M})),
            (20, 2, json!({"estimated_bps": 2 * M})),
            (20, 2, json!({"estimated_bps": 2 * M, "rate_in_seen_bps": 18 * M})),
            (20, 2, json!({"rate_in_seen_bps": 18 * M})),
            (8, 1, json!({"estimated_bps": 950_000, "rate_in_told_bps": 8 * M})),
        ] {
            let found =
                of(out * M, back * M, known.clone()).unwrap_or_else(|| panic!("{out}/{back}: {known}"));
            assert_eq!((&*found.id, found.severity), ("rates-exchanged", Severity::Warning));
            let typed = format!("try `rate = \"{back} Mbit/s\"` and `rate_in = \"{out} Mbit/s\"`");
            assert!(found.text.contains(&typed), "{}", found.text);
            assert_eq!(found.remedies.len(), 2);
        }
    }

    #[test]
    fn rates_that_are_right_or_wrong_by_themselves_are_not() {
        for (out, back, known) in [
            (20, 2, json!({})),
            (20, 2, json!({"rate_in_told_bps": 2 * M, "rate_in_seen_bps": 2 * M})),
            (2, 20, json!({"rate_in_told_bps": 20 * M, "rate_in_seen_bps": 15 * M})),
            // It carries less than is declared, or more, and what it brings is right.
            (20, 2, json!({"estimated_bps": 15 * M, "rate_in_seen_bps": 2 * M})),
            (20, 2, json!({"estimated_bps": 2 * M, "rate_in_told_bps": 2 * M})),
            (20, 2, json!({"rate_in_seen_bps": 3 * M, "estimated_bps": 10 * M})),
            (2, 20, json!({"room_bps": 4 * M})),
            (2, 20, json!({"room_bps": 20 * M, "rate_in_seen_bps": 18 * M})),
            // Symmetric, whatever is found.
            (8, 8, json!({"estimated_bps": 4 * M, "rate_in_told_bps": 8 * M, "rate_in_seen_bps": 8 * M})),
            (8, 8, json!({"room_bps": 16 * M, "rate_in_told_bps": 16 * M})),
            (8, 10, json!({"rate_in_told_bps": 8 * M})),
        ] {
            assert_eq!(of(out * M, back * M, known.clone()).map(|d| d.text), None, "{out}/{back}: {known}");
        }
        // What nobody declares cannot be mistaken for anything.
        let link =
            json!({"name": "geo", "declared_bps": 20 * M, "rate_in_bps": 20 * M, "rate_in_source": "told"});
        assert!(finding(&link).is_none());
    }
}
