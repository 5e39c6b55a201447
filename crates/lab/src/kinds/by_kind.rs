//! What a gateway's queue did to each kind of traffic: `udp_carried_bytes`, `udp_packets`,
//! `udp_dropped_packets`, `udp_waited_mean_ms`, `udp_waited_max_ms`, and so on. And what has left
//! past it: `past_the_queue_bytes`, `past_the_queue_packets`. Of a run with more than split
//! connections, and of the link by which the most has left.

use std::collections::BTreeMap;

use farlink_gateway::Kind;
use serde_json::Value;

use crate::report::Measured;

/// Handshakes and the like are forwarded in every run: of less TCP than this nothing is said.
const FORWARDED_SHARE_MIN: f64 = 0.01;
/// Neighbours are asked for in every run, and the queue does not see it.
const PAST_SHARE_MIN: f64 = 0.01;

/// `links`: all links of all gateways, as `farlink status --json` shows them.
pub(crate) fn of_links<'a>(links: impl Iterator<Item = &'a Value> + Clone, measured: &mut Measured) {
    of_spent(links.clone(), measured);
    let number =
        |link: &Value, kind: Kind, name: &str| link["carried"][kind.name()][name].as_f64().unwrap_or(0.0);
    let past = |link: &Value, name: &str| link[name].as_f64().unwrap_or(0.0);
    let carried = |link: &Value| Kind::ALL.into_iter().map(|kind| number(link, kind, "bytes")).sum::<f64>();
    let all = |link: &Value| carried(link) + past(link, "beside_bytes");
    let Some(link) = links.max_by(|a, b| all(a).total_cmp(&all(b))) else { return };
    let is_there = |kind| number(link, kind, "packets") > 0.0;
    let is_forwarded = number(link, Kind::Tcp, "bytes") > FORWARDED_SHARE_MIN * carried(link);
    let is_past = past(link, "beside_bytes") > PAST_SHARE_MIN * all(link);
    if !is_forwarded && !is_past && ![Kind::Udp, Kind::Icmp, Kind::Other].into_iter().any(is_there) {
        return;
    }
    if is_past {
        measured.metric("past_the_queue_bytes", past(link, "beside_bytes"));
        measured.metric("past_the_queue_packets", past(link, "beside_packets"));
    }
    for kind in Kind::ALL {
        let name = kind.name();
        let packets = number(link, kind, "packets");
        let dropped = number(link, kind, "dropped_packets");
        if packets + dropped == 0.0 {
            continue;
        }
        measured.metric(&format!("{name}_carried_bytes"), number(link, kind, "bytes"));
        measured.metric(&format!("{name}_packets"), packets);
        measured.metric(&format!("{name}_dropped_packets"), dropped);
        // Of what is made here it is not known.
        if kind != Kind::Split {
            measured.metric(
                &format!("{name}_waited_mean_ms"),
                number(link, kind, "waited_us") / packets.max(1.0) / 1e3,
            );
            measured.metric(&format!("{name}_waited_max_ms"), number(link, kind, "waited_max_us") / 1e3);
        }
    }
}

/// What split TCP in all links together was for: `spent_payload_bytes` and so on.
fn of_spent<'a>(links: impl Iterator<Item = &'a Value>, measured: &mut Measured) {
    let mut sums = BTreeMap::new();
    for (name, bytes) in links.filter_map(|link| link["spent"].as_object()).flatten() {
        *sums.entry(format!("spent_{name}")).or_insert(0.0) += bytes.as_f64().unwrap_or(0.0);
    }
    let is_spent = sums.values().any(|bytes| *bytes > 0.0);
    sums.iter().filter(|_| is_spent).for_each(|(name, bytes)| measured.metric(name, *bytes));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn link(split: u64, forwarded: u64, udp: u64) -> Value {
        let of = |bytes: u64, waited_us: u64| {
            json!({"packets": bytes / 1000, "bytes": bytes, "dropped_packets": bytes / 10_000,
            "waited_us": waited_us, "waited_max_us": 2 * waited_us})
        };
        json!({"carried": {"split_tcp": of(split, 0), "forwarded_tcp": of(forwarded, 7_000), "udp": of(udp, 9_000)}})
    }

    #[test]
    fn the_busiest_link_counts_where_more_than_split_connections_leave_by_it() {
        let mut measured = Measured::default();
        of_links([link(0, 50_000, 0), link(100_000, 1_000, 30_000)].iter(), &mut measured);
        let of = |name: &str| measured.metrics.get(name).copied();
        assert_eq!(of("udp_carried_bytes"), Some(30_000.0));
        assert_eq!((of("udp_dropped_packets"), of("udp_waited_mean_ms")), (Some(3.0), Some(0.3)));
        assert_eq!((of("udp_waited_max_ms"), of("split_tcp_waited_max_ms")), (Some(18.0), None));
        assert_eq!((of("forwarded_tcp_packets"), of("icmp_packets")), (Some(1.0), None));
        let mut measured = Measured::default();
        of_links([link(1_000_000, 5_000, 0)].iter(), &mut measured);
        assert!(measured.metrics.is_empty(), "handshakes alone");
        of_links([link(1_000_000, 50_000, 0)].iter(), &mut measured);
        assert!(measured.metrics.contains_key("forwarded_tcp_waited_mean_ms"));
        assert!(!measured.metrics.contains_key("past_the_queue_bytes"));
    }

    #[test]
    fn what_leaves_past_the_queue_counts_where_it_is_more_than_a_hundredth() {
        let with_past = |split: u64, bytes: u64| {
            let mut link = link(split, 0, 0);
            link["beside_bytes"] = json!(bytes);
            link["beside_packets"] = json!(bytes / 500);
            link
        };
        let measured = |links: &[Value]| {
            let mut measured = Measured::default();
            of_links(links.iter(), &mut measured);
            measured.metrics
        };
        assert!(measured(&[with_past(1_000_000, 10_000)]).is_empty(), "neighbours that are asked for");
        let found = measured(&[with_past(1_000_000, 50_000)]);
        let of = |name: &str| found.get(name).copied();
        assert_eq!(of("past_the_queue_bytes"), Some(50_000.0));
        assert_eq!(of("past_the_queue_packets"), Some(100.0));
        assert_eq!(of("split_tcp_carried_bytes"), Some(1_000_000.0), "what it is a part of");
        // The link by which the most leaves is the one with the most past its queue.
        let found = measured(&[with_past(1_000_000, 0), with_past(600_000, 500_000)]);
        assert_eq!(found.get("past_the_queue_bytes"), Some(&500_000.0));
    }
}
