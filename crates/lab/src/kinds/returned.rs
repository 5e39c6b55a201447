//! What came back: acknowledgements and bytes that the first hard link carried against the data,
//! and how the data went meanwhile. Where the return link is slow this decides over everything.

use std::time::Duration;

use anyhow::Result;
use farlink_channel::CARRIED_INTERVAL_MS;
use serde_json::Value;

use super::carried::way;
use super::transfer::has_both_directions;
use crate::build::Lab;
use crate::limit::{self, Packets};
use crate::link::Link;
use crate::report::{Measured, Starved};
use crate::scenario::Cell;
use crate::settings::Way;

/// Series are kept where the return link has less than this part of the rate.
const STARVED_PART: u64 = 10;
/// Handshake and request are over after this time: what comes back later acknowledges.
const SETTLED_S: f64 = 1.0;
/// The return traffic is looked at in windows of this length.
const WINDOW_S: f64 = 1.0;
/// Seconds of the series that are kept.
const SECONDS_MAX: usize = 600;
/// The data is told by steps of this time.
const STEP_S: f64 = 0.1;
/// Steps that are kept.
const STEPS_MAX: usize = 1_000;
/// Headers of a fragment.
const V4_HEADER_BYTES: f64 = 20.0;
const V6_FRAGMENT_BYTES: f64 = 48.0;

/// Of the first hard link; times count since it began to carry.
#[derive(Clone, Debug, Default)]
pub(crate) struct Returned {
    /// Bytes that left the line against the data, by intervals of [`CARRIED_INTERVAL_MS`].
    pub(crate) bytes: Vec<u64>,
    /// The same of the line of the data.
    pub(crate) data_bytes: Vec<u64>,
    /// Pure acknowledgements that left the line against the data, by the same intervals.
    pub(crate) acks: Vec<u64>,
    /// How much those of the first connection had confirmed by the end of each interval.
    pub(crate) acked_bytes: Vec<u64>,
    /// Pure acknowledgements that left the line against the data.
    pub(crate) ack_packets: u64,
    /// Their bytes.
    pub(crate) ack_bytes: u64,
    /// Of those in both directions that tell of data that came twice.
    pub(crate) copy_ack_bytes: u64,
    /// Packets that found no room before that line.
    pub(crate) drops: u64,
    /// Fragments that left the line of the data.
    pub(crate) fragments: u64,
    /// All that left both lines.
    pub(crate) link_bytes: u64,
}

/// The names that the emulator gives to the direction of the data and to the other one.
fn directions(cell: &Cell) -> [&'static str; 2] {
    if way(cell) == Way::Up { ["a_to_b", "b_to_a"] } else { ["b_to_a", "a_to_b"] }
}

/// Of a laboratory.
pub(crate) fn of_lab(cell: &Cell, lab: &Lab) -> Result<Returned> {
    let Some(link) = lab.hard_links().next() else { return Ok(Returned::default()) };
    let [data, back] = directions(cell);
    let (stats, carried) = (link.stats()?, link.carried()?);
    let number = |way: &str, name: &str| stats[way][name].as_u64().unwrap_or(0);
    let series = |way: &str, name: &str| {
        carried[way][name].as_array().into_iter().flatten().filter_map(Value::as_u64).collect()
    };
    Ok(Returned {
        bytes: series(back, "bytes"),
        data_bytes: series(data, "bytes"),
        acks: series(back, "acks"),
        acked_bytes: series(back, "acked_bytes"),
        ack_packets: number(back, "ack_packets"),
        ack_bytes: number(back, "ack_bytes"),
        copy_ack_bytes: number(data, "copy_ack_bytes") + number(back, "copy_ack_bytes"),
        drops: number(back, "dropped_queue"),
        fragments: number(data, "fragments"),
        link_bytes: number(data, "serialised_bytes") + number(back, "serialised_bytes"),
    })
}

/// Measures a cell of transfers. `began_s`: when its clock started, since the link began to carry.
pub(crate) fn measure(cell: &Cell, returned: &Returned, began_s: Option<f64>, measured: &mut Measured) {
    measured.metric("link_bytes", returned.link_bytes as f64);
    if has_both_directions(cell) {
        return;
    }
    measured.metric("link_ack_packets", returned.ack_packets as f64);
    measured.metric("link_ack_bytes", returned.ack_bytes as f64);
    measured.metric("link_copy_ack_bytes", returned.copy_ack_bytes as f64);
    measured.metric("return_queue_drops", returned.drops as f64);
    measured.metric("fragments", returned.fragments as f64);
    if let Some(ratio) = ratio_as_sent(cell, returned.fragments, measured) {
        measured.metric("ratio_as_sent", ratio);
    }
    if returned.ack_packets > 0 {
        measured.metric("payload_per_ack", measured.bytes as f64 / returned.ack_packets as f64);
    }
    let Some(began_s) = began_s else { return };
    let (from_s, end_s) = (began_s + SETTLED_S, began_s + measured.seconds);
    if end_s - from_s >= WINDOW_S {
        let bps = |from: f64, to: f64| {
            8.0 * (before(&returned.bytes, to) - before(&returned.bytes, from)) / (to - from)
        };
        let windows = ((end_s - from_s) / WINDOW_S).floor() as usize;
        let at = |n: usize| from_s + n as f64 * WINDOW_S;
        let most = (0..windows).map(|n| bps(at(n), at(n + 1))).fold(0.0, f64::max);
        measured.metric("return_bps_from_1s", bps(from_s, end_s));
        measured.metric("return_peak_bps_from_1s", most);
    }
    if is_starved(cell) {
        measured.starved = Some(series(returned, began_s, measured.seconds));
    }
}

/// Time over the limit of packets as they were really sent: in fragments headers are fewer, so more
/// payload fits the rate, and `ratio_to_limit` counts whole packets. TCP headers in fragments are
/// taken for payload, which makes the limit a little shorter. Of links without losses, where a
/// fragment counts once.
fn ratio_as_sent(cell: &Cell, fragments: u64, measured: &Measured) -> Option<f64> {
    let s = &cell.settings.towards(way(cell));
    if s.mean_loss() > 0.0 || s.ber > 0.0 || s.fragment_loss > 0.0 {
        return None;
    }
    let limit_s = measured.limit_seconds?;
    let packets = Packets { mtu: s.link_mtu, v6: cell.v6(), timestamps: s.has_timestamps() };
    let (rate_bps, _) = rates_bps(cell);
    let header_bytes = if cell.v6() { V6_FRAGMENT_BYTES } else { V4_HEADER_BYTES };
    let mtu_bytes = f64::from(s.link_mtu);
    let each_bytes = mtu_bytes - header_bytes;
    let in_fragments = (fragments as f64 * each_bytes).min(measured.bytes as f64);
    let saved_bytes = in_fragments / packets.eta(measured.bytes) - in_fragments * mtu_bytes / each_bytes;
    Some(limit::ratio(measured.seconds, limit_s - 8.0 * saved_bytes / rate_bps as f64))
}

/// Rates in the direction of the data, and against it.
fn rates_bps(cell: &Cell) -> (u64, u64) {
    let s = &cell.settings;
    match way(cell) {
        Way::Down => (s.rate_bps, s.up_bps()),
        Way::Up => (s.up_bps(), s.rate_bps),
    }
}

fn is_starved(cell: &Cell) -> bool {
    let (there, back) = rates_bps(cell);
    back > 0 && back < there / STARVED_PART
}

/// What people see of a starved link while it carries, once a second.
pub(super) struct Live<'a> {
    link: &'a Link,
    back: &'static str,
    /// Time since the transfer began, what had arrived, and the counters of the return link: its
    /// acknowledgements, all its bytes.
    last: (Duration, u64, [u64; 2]),
}

impl<'a> Live<'a> {
    pub(super) fn of(cell: &Cell, lab: &'a Lab) -> Option<Self> {
        let link = lab.hard_links().next().filter(|_| is_starved(cell))?;
        let back = directions(cell)[1];
        Some(Self { link, back, last: (Duration::ZERO, 0, counters(link, back).unwrap_or_default()) })
    }

    /// What has come and gone since a second ago; `None`: it was asked for less than a second ago.
    pub(super) fn words(&mut self, at: Duration, arrived: u64) -> Option<String> {
        let (before, had, [acks, bytes]) = self.last;
        let seconds = at.saturating_sub(before).as_secs_f64();
        let now = if seconds >= 1.0 { counters(self.link, self.back)? } else { return None };
        self.last = (at, arrived, now);
        let rate = |more: u64, unit: f64| more as f64 / seconds / unit;
        Some(format!(
            "now {:.2} Mbit/s, {:.0} acknowledgements a second, {:.1} kbit/s back",
            rate(8 * arrived.saturating_sub(had), 1e6),
            rate(now[0].saturating_sub(acks), 1.0),
            rate(8 * now[1].saturating_sub(bytes), 1e3),
        ))
    }
}

fn counters(link: &Link, way: &str) -> Option<[u64; 2]> {
    let stats = link.stats().ok()?;
    Some(["ack_packets", "serialised_bytes"].map(|name| stats[way][name].as_u64().unwrap_or(0)))
}

/// By time since the clock started.
fn series(returned: &Returned, began_s: f64, seconds: f64) -> Starved {
    let count = |step_s: f64, most: usize| ((seconds / step_s).ceil().max(0.0) as usize).min(most);
    let sum = |all: &[u64], at_s: f64| before(all, began_s + at_s) - before(all, began_s);
    let second = |all: &[u64], n: usize| sum(all, (n + 1) as f64) - sum(all, n as f64);
    // Long transfers have longer steps.
    let step_s = STEP_S.max(seconds / STEPS_MAX as f64);
    let (seconds, steps) = (0..count(1.0, SECONDS_MAX), 0..=count(step_s, STEPS_MAX));
    let ends = steps.map(|n| n as f64 * step_s);
    Starved {
        return_bps: seconds.clone().map(|n| (8.0 * second(&returned.bytes, n)).round()).collect(),
        acks: seconds.map(|n| second(&returned.acks, n).round() as u64).collect(),
        step_s,
        carried_bytes: ends.clone().map(|at_s| sum(&returned.data_bytes, at_s) as u64).collect(),
        acked_bytes: ends.map(|at_s| reached(&returned.acked_bytes, began_s + at_s)).collect(),
    }
}

/// What had been reached by a time, of what is told for the end of each interval.
fn reached(all: &[u64], at_s: f64) -> u64 {
    let whole = (at_s * 1e3 / CARRIED_INTERVAL_MS as f64).max(0.0).floor() as usize;
    all.get(..whole.min(all.len())).and_then(<[u64]>::last).copied().unwrap_or(0)
}

/// Bytes carried before a time.
fn before(all: &[u64], at_s: f64) -> f64 {
    let place = (at_s * 1e3 / CARRIED_INTERVAL_MS as f64).max(0.0);
    let whole = (place.floor() as usize).min(all.len());
    let sum: u64 = all.iter().take(whole).sum();
    sum as f64 + all.get(whole).map_or(0.0, |bytes| *bytes as f64 * (place - place.floor()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    fn cell(rate_up: &str) -> Cell {
        let text = format!(
            "name = 't'\ntitle = 't'\nkind = 'transfer'\nclock = 'connect'\n[settings]\nrate = '8M'\n\
             rate_up = '{rate_up}'\n[[variant]]\nname = 'direct'\n"
        );
        Scenario::parse(&text).unwrap().cells().unwrap().remove(0)
    }

    #[test]
    fn what_comes_back_is_told_by_second_and_from_the_second_one_on() {
        // From 0.5 s on, for 4 s: 20 bytes in 10 ms in the first second, then 5, at last 10.
        let by = |n: usize| [0, 20, 5, 5, 10, 0][(n + 50) / 100];
        let returned = Returned {
            bytes: (0..500).map(by).collect(),
            data_bytes: vec![1_000; 500],
            acks: (0..500).map(|n| u64::from(n % 25 == 0)).collect(),
            acked_bytes: (0..400).map(|n| n / 25 * 1_000).collect(),
            ack_packets: 40,
            ..Returned::default()
        };
        let mut measured = Measured { seconds: 4.0, bytes: 400_000, ..Measured::default() };
        measure(&cell("32k"), &returned, Some(0.5), &mut measured);
        let m = &measured.metrics;
        assert_eq!((m["return_peak_bps_from_1s"], m["payload_per_ack"]), (8_000.0, 10_000.0));
        assert!((m["return_bps_from_1s"] - 8.0 * 2_000.0 / 3.0).abs() < 1e-6);
        let starved = measured.starved.unwrap();
        assert_eq!(starved.return_bps, [16_000.0, 4_000.0, 4_000.0, 8_000.0]);
        assert_eq!((starved.step_s, starved.carried_bytes.len()), (0.1, 41));
        assert_eq!(starved.carried_bytes[..3], [0, 10_000, 20_000]);
        assert_eq!(starved.acks, [4, 4, 4, 4]);
        // Nothing more came after four seconds.
        assert_eq!((starved.acked_bytes[5], starved.acked_bytes[40]), (3_000, 15_000));
    }

    /// Nine fragments carry 13,320 bytes, and nine packets 13,032.
    #[test]
    fn fragments_have_a_limit_of_their_own() {
        let at = |fragments, bytes: u64, seconds| {
            let limit_seconds = Some(8.0 * bytes as f64 / 8e6 / (1_448.0 / 1_500.0));
            let mut measured = Measured { seconds, bytes, limit_seconds, ..Measured::default() };
            let returned = Returned { fragments, ..Returned::default() };
            measure(&cell("32k"), &returned, None, &mut measured);
            measured.metrics["ratio_as_sent"]
        };
        let (bytes, packet_s) = (1_332_000, 0.0015);
        assert!((at(900, bytes, 900.0 * packet_s) - 1.0).abs() < 1e-3, "all in fragments, at the limit");
        assert!((at(0, 1_303_200, 900.0 * packet_s) - 1.0).abs() < 1e-3, "none");
        assert!((at(450, bytes, 900.0 * packet_s) - 0.989).abs() < 1e-3, "half of them");
    }

    #[test]
    fn series_are_kept_of_starved_links_only() {
        let mut measured = Measured { seconds: 1.5, ..Measured::default() };
        measure(&cell("8M"), &Returned::default(), Some(0.0), &mut measured);
        assert_eq!(measured.starved, None);
        assert!(!measured.metrics.contains_key("payload_per_ack"), "nothing came back");
        assert!(!measured.metrics.contains_key("return_bps_from_1s"), "half a second tells nothing");
    }
}
