//! `web`: one page of the thesis, asked for in three ways.

use std::time::Duration;

use anyhow::{Result, bail};

use super::{Client, Done, Job, REQUEST_BYTES, Style, Task};
use crate::limit::{Clock, Packets};
use crate::report::Measured;
use crate::scenario::{Cell, Scenario};

/// Handshake packets with IP headers: SYN and ACK, with timestamps.
const HANDSHAKE_BYTES: f64 = 60.0 + 52.0;
/// Connections of a browser to one server.
const BROWSER_CONNECTIONS: usize = 6;

/// The three pages of thesis 5.1.1: document and objects, in bytes; its KB are 1,024 bytes. Of the
/// second page it gives the smallest (19 KB) and the largest image (100 KB) and the sum; the sizes
/// between are ours.
fn page(number: u64) -> Result<(u64, Vec<u64>)> {
    const KB: u64 = 1024;
    Ok(match number {
        1 => (356, vec![391 * KB]),
        2 => {
            let kb = [19, 20, 22, 24, 26, 28, 30, 33, 36, 40, 45, 51, 58, 66, 71, 100];
            (1_741, kb.map(|n| n * KB).to_vec())
        }
        3 => (1_638, vec![262 * KB / 16; 16]),
        other => bail!("page {other}: the thesis has the pages 1, 2 and 3"),
    })
}

fn style(cell: &Cell) -> Result<Style> {
    Ok(match cell.word("transport", "persistent") {
        "persistent" => Style::Persistent,
        "six" => Style::Parallel(BROWSER_CONNECTIONS),
        "multiplexed" => Style::Multiplexed,
        other => bail!("transport `{other}`: known are persistent, six and multiplexed"),
    })
}

/// The page of a cell.
pub(super) fn jobs(cell: &Cell) -> Result<Vec<Job>> {
    let (document_bytes, object_bytes) = page(cell.number("page", 1))?;
    let task = Task::Page { document_bytes, object_bytes, style: style(cell)? };
    Ok(vec![Job { class: "page", client: Client::First, start: Duration::from_millis(1), task }])
}

/// The limit of a page. `persistent` waits one round trip for each object with the link idle; the
/// others for a handshake, the document and the objects at least, and six connections, of which the
/// first is there earlier, for as many rounds as they need.
fn limit_seconds(cell: &Cell, scenario: &Scenario) -> Result<f64> {
    let (document, objects) = page(cell.number("page", 1))?;
    let s = &cell.settings;
    let packets = Packets { mtu: s.link_mtu, v6: cell.v6(), timestamps: s.has_timestamps() };
    let seconds = |bytes: u64| {
        if s.rate_bps == 0 { 0.0 } else { 8.0 * bytes as f64 / packets.eta(bytes) / s.rate_bps as f64 }
    };
    let back = |bytes: f64| if s.up_bps() == 0 { 0.0 } else { 8.0 * bytes / s.up_bps() as f64 };
    let request = back((REQUEST_BYTES + u64::from(packets.header_bytes())) as f64);
    let rtt = s.rtt_ms / 1e3;
    let handshake = match scenario.clock {
        Clock::Connect => rtt + back(HANDSHAKE_BYTES),
        Clock::Request | Clock::FirstByte | Clock::Source => 0.0,
    };
    let (n, all) = (objects.len(), objects.iter().map(|o| seconds(*o)).sum::<f64>());
    let begun = handshake + rtt + request + seconds(document);
    Ok(match style(cell)? {
        Style::Persistent => begun + n as f64 * (rtt + request) + all,
        Style::Multiplexed => begun + rtt + request + all,
        Style::Parallel(connections) => {
            let connections = connections.min(n).max(1);
            let rounds = (n + connections - 1).div_ceil(connections);
            let least = objects.iter().map(|o| seconds(*o)).fold(f64::INFINITY, f64::min);
            begun + (rtt + request + all).max(rounds as f64 * (rtt + request) + least)
        }
    })
}

/// How long the page took.
pub(super) fn measure(scenario: &Scenario, cell: &Cell, _: &[Job], done: &[Done]) -> Result<Measured> {
    Ok(Measured {
        seconds: done.iter().map(|d| d.seconds).fold(0.0, f64::max),
        limit_seconds: Some(limit_seconds(cell, scenario)?).filter(|_| !cell.settings.is_scheduled()),
        ..Measured::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_have_the_sizes_of_the_thesis() {
        let sum = |n| page(n).unwrap().1.iter().sum::<u64>();
        assert_eq!([sum(1), sum(2), sum(3)], [391 * 1024, 669 * 1024, 262 * 1024]);
        assert_eq!(page(2).unwrap().1.len(), 16);
        assert!(page(4).is_err());
    }

    #[test]
    fn a_persistent_connection_waits_for_each_object() {
        let scenario = Scenario::find("thesis-web").unwrap();
        let cells = scenario.cells().unwrap();
        let cell = |transport: &str| {
            let wanted = |c: &&Cell| {
                c.variant == "farlink"
                    && c.number("page", 0) == 3
                    && c.settings.rate_bps == 8_000_000
                    && c.settings.rtt_ms > 0.0
                    && c.word("transport", "") == transport
            };
            cells.iter().find(wanted).unwrap()
        };
        let [serial, six, multiplexed] =
            ["persistent", "six", "multiplexed"].map(|t| limit_seconds(cell(t), &scenario).unwrap());
        // 18 round trips of half a second, and 262 KB.
        assert!((9.25..9.35).contains(&serial), "{serial}");
        assert!((1.75..1.82).contains(&multiplexed), "{multiplexed}");
        assert!(multiplexed < six && six < serial, "{six}");
    }
}
