//! Figures of a run by name: what stands in its report, and what follows from it.

use serde_json::Value;

use crate::report::CellReport;

/// Bytes of a full segment, for bounds that count in segments.
const SEGMENT_BYTES: f64 = 1_460.0;
/// Headers of an acknowledgement over IPv4 with timestamps and two SACK blocks, a D-SACK first.
const COPY_ACK_BYTES: f64 = 72.0;
/// The share of the limit that is no delay: what is later than that counts in round trips.
const AT_THE_LIMIT: f64 = 1.05;

/// `round_trip_3_bps`: what the link carried in the third round trip since the first data.
const ROUND_TRIP: &str = "round_trip_";

/// The names that follow from others, and what they are.
pub const DERIVED: &[(&str, &str)] = &[
    ("acks_per_s", "pure acknowledgements that cross the link in a second"),
    ("acks_per_round_trip", "the same, in a round trip of the link"),
    (
        "retransmitted_share",
        "payload that left for the link again, early copies included, for each byte delivered",
    ),
    ("repaired_share", "the part of it that had been taken for lost"),
    ("early_share", "the part of it that an idle link carried before a loss could be known"),
    (
        "link_own_bytes",
        "link_bytes without the copies that an idle link carried, their headers, and the acknowledgements that tell of them",
    ),
    ("wasted_share", "what the link carried in vain, for each byte delivered"),
    ("round_trips_late", "round trips of the link beyond 1.05 times the limit"),
    (
        "ratio_after_handshake",
        "ratio_to_limit of one transfer, without what connect() took beyond a round trip of the link",
    ),
    ("splits_per_flow", "gateways that have split each connection"),
    ("longest_gap_s", "the longest time between two thousandths of a download that is watched"),
    (
        "held_over_aim",
        "what a gateway held at most, over max(2 x rate x round trip, 4 segments for each flow)",
    ),
    ("blocks_over_aim", "the same of the blocks of its pool"),
];

/// A figure of a run. `None`: it has none of this name.
#[must_use]
pub fn figure(cell: &CellReport, name: &str) -> Option<f64> {
    match name {
        "seconds" => return cell.seconds,
        "goodput_bps" => return cell.goodput_bps,
        "ratio_to_limit" => return cell.ratio_to_limit,
        "limit_seconds" => return cell.limit_seconds,
        _ => {}
    }
    if let Some(number) = name.strip_prefix(ROUND_TRIP).and_then(|n| n.strip_suffix("_bps")) {
        let number: usize = number.parse().ok()?;
        return cell.round_trip_bps.get(number.checked_sub(1)?).copied();
    }
    if let Some(value) = cell.metrics.get(name) {
        return Some(*value);
    }
    let metric = |name: &str| cell.metrics.get(name).copied();
    let param = |name: &str| cell.params.get(name).and_then(Value::as_f64);
    let round_trip_s = || param("rtt_ms").filter(|ms| *ms > 0.0).map(|ms| ms / 1e3);
    let seconds = cell.seconds.filter(|s| *s > 0.0);
    let payload = || Some(cell.goodput_bps? / 8.0 * seconds?).filter(|bytes| *bytes > 0.0);
    let flows = || {
        param("flows").unwrap_or(1.0)
            + param("earlier").unwrap_or(0.0)
            + f64::from(param("first_bytes").is_some_and(|bytes| bytes > 0.0))
    };
    let largest = |what: &str| {
        let of = ["gw1", "gw2"].iter().filter_map(|gateway| metric(&format!("{gateway}_{what}_max_bytes")));
        of.reduce(f64::max)
    };
    let aim = || {
        let pipe = param("rate_bps")? / 8.0 * param("rtt_ms")? / 1e3;
        Some((2.0 * pipe).max(4.0 * SEGMENT_BYTES * flows()))
    };
    match name {
        "acks_per_s" => Some(metric("ack_packets")? / seconds?),
        "acks_per_round_trip" => Some(metric("ack_packets")? * round_trip_s()? / seconds?),
        "retransmitted_share" => Some(metric("retransmitted_bytes")? / payload()?),
        "repaired_share" => Some(metric("repaired_bytes")? / payload()?),
        "early_share" => Some(metric("early_bytes")? / payload()?),
        "link_own_bytes" => {
            let of_copies = |what: &str| metric(&format!("copy_{what}")).unwrap_or(0.0);
            // What came twice for another reason is told of, too: one for each copy at most.
            let told =
                metric("link_copy_ack_bytes").unwrap_or(0.0).min(of_copies("packets") * COPY_ACK_BYTES);
            Some(metric("link_bytes")? - of_copies("bytes") - told)
        }
        "wasted_share" => Some(metric("wasted_bytes")? / payload()?),
        "round_trips_late" => Some((cell.seconds? - AT_THE_LIMIT * cell.limit_seconds?) / round_trip_s()?),
        // A lost SYN waits for its host's timer, which no gateway can shorten.
        "ratio_after_handshake" if flows() <= 1.0 => {
            let waited = (metric("connect_seconds")? - round_trip_s()?).max(0.0);
            Some((cell.seconds? - waited) / cell.limit_seconds.filter(|s| *s > 0.0)?)
        }
        "splits_per_flow" => Some(metric("flows_split")? / flows()),
        "longest_gap_s" => super::arrivals::longest_gap_s(cell),
        "held_over_aim" => Some(largest("held")? / aim()?),
        "blocks_over_aim" => Some(largest("blocks")? / aim()?),
        _ => None,
    }
}

/// Every name that this run has a figure of.
#[must_use]
pub fn names(cell: &CellReport) -> Vec<String> {
    let own = ["seconds", "goodput_bps", "ratio_to_limit", "limit_seconds"].into_iter();
    let derived = DERIVED.iter().map(|(name, _)| *name);
    let all = own.chain(cell.metrics.keys().map(String::as_str)).chain(derived);
    all.filter(|name| figure(cell, name).is_some()).map(String::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derived_figures_follow_from_the_report() {
        let cell: CellReport = serde_json::from_value(serde_json::json!({
            "params": { "rate_bps": 8_000_000, "rtt_ms": 500, "flows": 100, "earlier": 0 }, "variant": "farlink",
            "repeat": 0, "seed": 1, "seconds": 4.0, "goodput_bps": 2_000_000.0, "limit_seconds": 3.0,
            "ratio_to_limit": 1.333, "intact": true, "paper_seconds": null,
            "metrics": { "ack_packets": 40.0, "retransmitted_bytes": 300_000.0, "repaired_bytes": 100_000.0,
                "early_bytes": 200_000.0, "wasted_bytes": 50_000.0, "flows_split": 200.0, "gw1_held_max_bytes": 500_000.0,
                "gw2_held_max_bytes": 2_000_000.0, "link_bytes": 1_400_000.0, "link_copy_ack_bytes": 20_000.0,
                "copy_packets": 100.0, "copy_bytes": 150_000.0 },
            "round_trip_bps": [1e6, 4e6],
        }))
        .unwrap();
        for (name, value) in [
            ("seconds", 4.0),
            ("acks_per_s", 10.0),
            ("acks_per_round_trip", 5.0),
            ("retransmitted_share", 0.3),
            ("repaired_share", 0.1),
            ("early_share", 0.2),
            ("wasted_share", 0.05),
            ("link_own_bytes", 1_242_800.0),
            ("round_trips_late", 1.7),
            ("splits_per_flow", 2.0),
            ("held_over_aim", 2.0),
            ("round_trip_2_bps", 4e6),
        ] {
            let is = figure(&cell, name).unwrap_or_else(|| panic!("{name}"));
            assert!((is - value).abs() < 1e-9, "{name}: {is}");
        }
        let of_one = |connect: f64| {
            let mut cell = cell.clone();
            cell.params.insert("flows".into(), 1.into());
            cell.metrics.insert("connect_seconds".into(), connect);
            figure(&cell, "ratio_after_handshake").unwrap()
        };
        assert!((of_one(1.5) - 1.0).abs() < 1e-9, "a second of waiting is not counted");
        assert!((of_one(0.4) - 4.0 / 3.0).abs() < 1e-9, "nothing waited");
        assert_eq!(
            figure(&cell, "ratio_after_handshake"),
            None,
            "of a hundred handshakes only the longest is known"
        );
        assert_eq!(figure(&cell, "jain"), None);
        assert_eq!((figure(&cell, "round_trip_0_bps"), figure(&cell, "round_trip_3_bps")), (None, None));
        assert!(names(&cell).contains(&"acks_per_s".to_string()));
        assert!(!names(&cell).contains(&"blocks_over_aim".to_string()));
    }
}
