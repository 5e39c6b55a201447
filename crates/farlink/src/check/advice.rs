//! What hosts can do for the connections over a link of known size (thesis 5.3). Pure.

use farlink_linux::divert::{Diagnosis, Severity};
use serde_json::Value;

use crate::view::{bytes, count, list, microseconds, number, rate, text};

/// The largest window that needs no scaling, bytes: what holds less is filled by any host.
const UNSCALED_WINDOW_BYTES: u64 = 65_535;
/// A full packet, bytes.
const PACKET_BYTES: u64 = 1500;
/// The usual initial window, segments (RFC 6928).
const USUAL_SEGMENTS: u64 = 10;

/// One note for each link whose rate and round trip are known, and which holds more than an
/// unscaled window.
pub fn advice(status: &Value) -> Vec<Diagnosis> {
    list(status, "/links").iter().filter_map(of_link).collect()
}

fn of_link(link: &Value) -> Option<Diagnosis> {
    let (rate_bps, rtt_us) = (number(link, "/rate_bps"), number(link, "/rtt_us"));
    let holds = u64::try_from(u128::from(rate_bps) * u128::from(rtt_us) / 8_000_000).ok()?;
    if holds <= UNSCALED_WINDOW_BYTES {
        return None;
    }
    let busy = number(link, "/flows").max(1);
    let share = (holds / busy / PACKET_BYTES).max(USUAL_SEGMENTS);
    let name = text(link, "/name");
    let among = if busy > 1 { format!(", shared by {}", count(busy, "connection")) } else { String::new() };
    Some(Diagnosis::new(
        "initial-window",
        Severity::Note,
        format!(
            "advice for hosts: {name} holds {} in a round trip ({}, {}){among}. Connections that are split get this from the \
             gateway. For those that are not, and for hosts that are themselves far from their gateway, a good initial window over \
             this link is {share} segments (Linux: initcwnd {share} on the sender's route, initrwnd {share} on the receiver's), and \
             a receiver wants buffers of {} or more (net.ipv4.tcp_rmem, third value). Without it 100 KB from servers that pace (BBR) take \
             a quarter longer than from others",
            bytes(holds),
            rate(rate_bps),
            microseconds(rtt_us),
            bytes(2 * holds),
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_link_that_holds_much_is_worth_a_word_to_the_hosts() {
        let link = |rate_bps: u64, rtt_us: u64, flows: u64| json!({"name": "geo", "rate_bps": rate_bps, "rtt_us": rtt_us, "flows": flows});
        let said = |links: Value| {
            advice(&json!({ "links": links })).iter().map(|d| d.text.clone()).collect::<Vec<_>>()
        };
        let one = said(json!([link(8_000_000, 500_000, 0), link(8_000_000, 20_000, 0), link(0, 500_000, 0)]));
        assert_eq!(one.len(), 1, "the others need no advice, or nothing is known of them");
        for part in ["geo holds 500 kB", "8.0 Mbit/s, 500 ms", "initcwnd 333", "1.0 MB or more"] {
            assert!(one[0].contains(part), "{part} is missing in {}", one[0]);
        }
        assert!(said(json!([link(8_000_000, 500_000, 4)]))[0].contains("initcwnd 83"));
        assert!(said(json!([link(8_000_000, 500_000, 400)]))[0].contains("initcwnd 10 "));
    }
}
