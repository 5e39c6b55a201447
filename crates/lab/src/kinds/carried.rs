//! What the hard link has carried by time: how soon it was full (`seconds_to_95`), what it carried
//! in each round trip, what it carried in vain (`wasted_bytes`), and how long a perfect sender
//! would have taken while it was there (`perfect_seconds`).

use anyhow::Result;
use farlink_channel::{CARRIED_INTERVAL_MS, Channel, ChannelConfig};
use farlink_wire::time::{Duration, Instant};

use serde_json::Value;

use super::transfer::{EARLIER, has_both_directions, is_upload, limit_of};
use super::{declared, first, sets, settled, shares};
use crate::build::Lab;
use crate::limit::{Packets, Path};
use crate::report::{Measured, Schedule};
use crate::scenario::{Cell, Scenario};
use crate::settings::{Settings, Way};
use crate::topology::Topology;

/// The link is full when it carries this share of its rate.
const FULL: f64 = 0.95;
/// The window of a round trip is moved by so much.
const STEP_S: f64 = 0.05;
/// Round trips whose throughput is kept.
const ROUND_TRIPS_MAX: usize = 200;
/// Round trips after which a controller should have found the rate.
const SETTLED_ROUND_TRIPS: f64 = 20.0;
/// Outages that are kept.
const OUTAGES_MAX: usize = 1_000;

/// One direction of the first hard link of a run: times count since the link began to carry.
#[derive(Clone, Debug, Default)]
pub(crate) struct Carried {
    /// Bytes that left its line, by intervals of [`CARRIED_INTERVAL_MS`].
    pub(crate) bytes: Vec<u64>,
    /// When the first full segment came.
    pub(crate) first_data_s: Option<f64>,
    /// All bytes that left its line, of all hard links together.
    pub(crate) serialised_bytes: u64,
    /// The longest queue before the line in each interval, bytes.
    pub(crate) queue_bytes: Vec<u64>,
    /// Of both, what packets have that say how fast they are sent: of the queue only where they
    /// wait apart.
    pub(crate) xcp_bytes: Vec<u64>,
    pub(crate) xcp_queue_bytes: Vec<u64>,
    /// When the first of the transfers had all its bytes.
    pub(crate) first_end_s: Option<f64>,
    /// Connections in the order of their first data: the interval of that, and the bytes of their
    /// data in it and in those after it.
    pub(crate) connections: Vec<(usize, Vec<u64>)>,
}

impl Carried {
    /// Bytes carried before a time.
    fn before(&self, at_s: f64) -> f64 {
        let place = (at_s * 1e3 / CARRIED_INTERVAL_MS as f64).max(0.0);
        let whole = (place.floor() as usize).min(self.bytes.len());
        let sum: u64 = self.bytes.iter().take(whole).sum();
        let part = self.bytes.get(whole).map_or(0.0, |b| *b as f64 * (place - place.floor()));
        sum as f64 + part
    }

    fn end_s(&self) -> f64 {
        (self.bytes.len() as u64 * CARRIED_INTERVAL_MS) as f64 / 1e3
    }

    /// From the first data on to the end of the first window that was full.
    fn seconds_to_full(&self, rate_bps: f64, window_s: f64) -> Option<f64> {
        let first = self.first_data_s?;
        let steps = ((self.end_s() - first) / STEP_S).ceil().max(0.0) as u32;
        (0..steps).map(|n| f64::from(n) * STEP_S).find_map(|from| {
            let carried = self.before(first + from + window_s) - self.before(first + from);
            (carried * 8.0 >= FULL * rate_bps * window_s).then_some(from + window_s)
        })
    }

    /// Bits per second in each window since the first data, until nothing more was carried.
    fn by_window(&self, window_s: f64) -> Vec<f64> {
        let Some(first) = self.first_data_s else { return Vec::new() };
        let count = ((self.end_s() - first) / window_s).ceil().max(0.0) as usize;
        let at = |n: usize| self.before(first + n as f64 * window_s);
        (0..count.min(ROUND_TRIPS_MAX)).map(|n| (at(n + 1) - at(n)) * 8.0 / window_s).collect()
    }
}

/// The direction in which the data goes.
pub(crate) fn way(cell: &Cell) -> Way {
    if is_upload(cell) { Way::Up } else { Way::Down }
}

/// What the links of a laboratory have carried, with the time since the first of them began to
/// carry.
pub(crate) fn of_lab(cell: &Cell, lab: &Lab) -> Result<(Carried, f64)> {
    let direction = if way(cell) == Way::Up { "a_to_b" } else { "b_to_a" };
    let mut carried = Carried::default();
    let mut age_s = 0.0;
    for (number, link) in lab.hard_links().enumerate() {
        let stats = link.stats()?;
        let of = |name: &str| stats[direction][name].as_f64();
        carried.serialised_bytes += of("serialised_bytes").unwrap_or(0.0) as u64;
        if number == 0 {
            age_s = of("age_ms").unwrap_or(0.0) / 1e3;
            carried.first_data_s = of("first_data_ms").map(|ms| ms / 1e3);
            let series = link.carried()?;
            let series = &series[direction];
            carried.bytes = numbers(&series["bytes"]);
            carried.queue_bytes = numbers(&series["queue_bytes"]);
            carried.xcp_bytes = numbers(&series["xcp_bytes"]);
            carried.xcp_queue_bytes = numbers(&series["xcp_queue_bytes"]);
            let connections = series["connections"].as_array().into_iter().flatten();
            let read = |c: &Value| (c["first_interval"].as_u64().unwrap_or(0) as usize, numbers(&c["bytes"]));
            carried.connections = connections.map(read).collect();
        }
    }
    Ok((carried, age_s))
}

fn numbers(list: &Value) -> Vec<u64> {
    list.as_array().into_iter().flatten().filter_map(Value::as_u64).collect()
}

/// Measures a cell of transfers. `began_s`: when its clock started, since the link began to carry.
pub(crate) fn measure(
    scenario: &Scenario,
    cell: &Cell,
    seed: u64,
    carried: &Carried,
    began_s: Option<f64>,
    measured: &mut Measured,
) {
    if has_both_directions(cell) {
        return;
    }
    let settings = Settings { seed, ..cell.settings.clone() };
    let way = way(cell);
    let config = settings.channel(way);
    if let Some(began_s) = began_s {
        measured.schedule = schedule(&config, began_s, carried.end_s())
            .map(|s| Schedule { first_data_s: carried.first_data_s, ..s });
    }
    let window_s = (settings.rtt_ms / 1e3).max(STEP_S);
    measured.round_trip_bps = carried.by_window(window_s);
    settled::measure(&config, carried, window_s, measured);
    if scenario.watches_shares {
        shares::measure(&settings, carried, measured);
    }
    let Some(rate_bps) = config.rate_bps.map(|r| r as f64) else { return };
    let has_one_rate =
        config.rate_changes.is_empty() && config.contact_plan.iter().all(|c| c.rate_bps.is_none());
    if let Some(seconds) = carried.seconds_to_full(rate_bps, window_s).filter(|_| has_one_rate) {
        measured.metric("seconds_to_95", seconds);
    }
    if let Some(share) = settled_share(&measured.round_trip_bps, rate_bps).filter(|_| has_one_rate) {
        measured.metric("use_from_20_rtt", share);
    }
    let name = cell.word("topology", &scenario.topology);
    let Ok(topology) = Topology::named(name, &settings) else { return };
    let ends = if way == Way::Down { ["server", "client"] } else { ["client", "server"] };
    let crossed = topology.links_between(ends[0], ends[1]).unwrap_or_default();
    let all = topology.hard_links().len();
    let are_together =
        cell.number(EARLIER, 0) == 0 && settings.stagger_ms == 0.0 && first::of(cell).is_none();
    if sets::has_sets(scenario, cell) || !are_together || crossed.len() != all || all == 0 {
        // Only a part of the bytes crosses these links, or not all of them are timed.
        return;
    }
    let job = limit_of(scenario, cell);
    let needed = job.bytes / job.eta * all as f64;
    measured.metric("wasted_bytes", (carried.serialised_bytes as f64 - needed).max(0.0));
    if let Some(began_s) = began_s.filter(|_| job.rate_bps == rate_bps) {
        let packets =
            Packets { mtu: settings.link_mtu, v6: cell.v6(), timestamps: settings.has_timestamps() };
        debug_assert!(packets.mtu > packets.header_bytes());
        let other = if way == Way::Down { Way::Up } else { Way::Down };
        let there: Vec<_> = crossed.iter().map(|n| settings.of_link(*n).channel(way)).collect();
        let back: Vec<_> = crossed.iter().rev().map(|n| settings.of_link(*n).channel(other)).collect();
        let path = Path { there: &there, back: &back };
        if let Some(perfect_s) = job.perfect_seconds(&path, instant(began_s), packets.mtu) {
            measured.metric("perfect_seconds", perfect_s);
            if measured.seconds > 0.0 && perfect_s > 0.0 {
                measured.metric("ratio_to_perfect", crate::limit::ratio(measured.seconds, perfect_s));
            }
        }
        let cell = Cell { settings, ..cell.clone() };
        declared::measure_moving(scenario, &cell, &path, (instant(began_s), packets.mtu), measured);
    }
}

/// The mean share of the rate from the twentieth round trip on; the last one, in which the data
/// ends, does not count.
fn settled_share(by_window: &[f64], rate_bps: f64) -> Option<f64> {
    let settled = by_window.get(SETTLED_ROUND_TRIPS as usize..by_window.len().checked_sub(1)?)?;
    let mean = settled.iter().sum::<f64>() / settled.len().max(1) as f64;
    (!settled.is_empty() && rate_bps > 0.0).then(|| mean / rate_bps)
}

/// A time on the clock of a channel, in seconds since it began.
pub(super) fn instant(seconds: f64) -> Instant {
    Instant::ZERO + Duration::from_secs_f64(seconds.max(0.0))
}

/// When the link was away, and its rates, until the last byte was carried; nothing if it has no
/// schedule.
fn schedule(config: &ChannelConfig, began_s: f64, end_s: f64) -> Option<Schedule> {
    if config.is_steady() {
        return None;
    }
    let channel = Channel::<Vec<u8>>::new(config.clone(), 0);
    let end = instant(end_s);
    let (mut at, mut outages) = (Instant::ZERO, Vec::new());
    let mut is_up = channel.is_up(at);
    let mut away_since = (!is_up).then_some(0.0);
    while let Some(next) =
        channel.next_transition(at).filter(|next| *next < end && outages.len() < OUTAGES_MAX)
    {
        let next_s = next.since(Instant::ZERO).as_secs_f64();
        is_up = !is_up;
        if is_up {
            outages.extend(away_since.take().map(|from| [from, next_s]));
        } else {
            away_since = Some(next_s);
        }
        at = next;
    }
    outages.extend(away_since.filter(|_| outages.len() < OUTAGES_MAX).map(|from| [from, end_s.max(from)]));
    let first = config.rate_bps.map(|bps| [0.0, bps as f64]);
    let later = config.rate_changes.iter().map(|c| [c.at.as_secs_f64(), c.rate_bps as f64]);
    let rates = first.into_iter().chain(later).collect();
    Some(Schedule { began_s, first_data_s: None, outages_s: outages, rates })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 Mbit/s is 1,250 bytes in 10 ms.
    fn carried(first_data_s: f64, share: impl Fn(usize) -> f64, count: usize) -> Carried {
        let bytes = (0..count).map(|n| (1_250.0 * share(n)) as u64).collect();
        Carried { bytes, first_data_s: Some(first_data_s), ..Carried::default() }
    }

    #[test]
    fn the_first_full_round_trip_ends_the_clock() {
        // Data from 1 s on, the full rate from 2 s on.
        let c = carried(1.0, |n| [0.0, 0.5, 1.0][(n / 100).min(2)], 500);
        let seconds = c.seconds_to_full(1e6, 0.2).unwrap();
        // A window that begins at 0.99 s has 0.01 s of half the rate in it: 97.5 %; windows begin
        // at multiples of 50 ms.
        assert!((seconds - 1.2).abs() < 1e-9, "{seconds}");
        assert_eq!(c.seconds_to_full(1.1e6, 0.2), None);
    }

    #[test]
    fn throughput_is_told_for_each_round_trip() {
        let c = carried(
            0.5,
            |n| {
                if n < 50 {
                    0.0
                } else if n < 75 {
                    0.4
                } else {
                    1.0
                }
            },
            125,
        );
        let by = c.by_window(0.25);
        assert_eq!(by.len(), 3);
        for (is, wanted) in by.iter().zip([0.4e6, 1e6, 1e6]) {
            assert!((is / wanted - 1.0).abs() < 1e-3, "{by:?}");
        }
        let steady = [vec![1.0; 20], vec![99.0, 97.0, 3.0]].concat();
        assert_eq!(settled_share(&steady, 100.0), Some(0.98));
        assert_eq!(settled_share(&steady[..21], 100.0), None);
    }

    /// 10 MB take 10.36 s at 8 Mbit/s, 1.5 round trips after the clock has started and half a one
    /// before it ends.
    #[test]
    fn a_perfect_sender_knows_gaps_and_steps() {
        let scenario = Scenario::find("link-schedule").unwrap();
        let all = scenario.cells().unwrap();
        let perfect_s = |contacts: &str, steps: &str| {
            let is_it = |c: &&Cell| {
                let word = |name: &str| c.params.get(name).and_then(Value::as_str).unwrap_or("");
                let size = c.number("size_bytes", 0) == 10_000_000;
                c.variant == "farlink"
                    && size
                    && !c.v6()
                    && word("contacts") == contacts
                    && word("rate_changes") == steps
            };
            let mut measured = Measured::default();
            let carried = Carried { serialised_bytes: 10_500_000, ..Carried::default() };
            measure(&scenario, all.iter().find(is_it).unwrap(), 1, &carried, Some(0.0), &mut measured);
            assert!(!measured.metrics.contains_key("seconds_to_95"), "nothing was carried");
            assert!((130_000.0..150_000.0).contains(&measured.metrics["wasted_bytes"]));
            measured.metrics["perfect_seconds"]
        };
        // From 0.75 s on, away from 6 to 8 s: 5.25 s and 5.11 s at the full rate.
        let gaps_s = perfect_s("0s-6s", "");
        assert!((gaps_s - (8.0 + 10.36 - 5.25 + 0.25)).abs() < 0.01, "{gaps_s}");
        // From 8 s on at half the rate, and away again from 14 to 16 s, when the full rate is back.
        let steps_s = perfect_s("0s-6s", "7s=4M 15s=8M");
        assert!((steps_s - (16.0 + 10.36 - 5.25 - 3.0 + 0.25)).abs() < 0.01, "{steps_s}");
    }

    #[test]
    fn a_schedule_names_outages_and_rates() {
        let mut settings = Settings::default();
        settings
            .set_all(["rate=8M", "contacts=1s-3s 5s-6s", "contact_period=6s", "rate_changes=2s=4M"])
            .unwrap();
        let s = schedule(&settings.channel(Way::Down), 0.5, 8.0).unwrap();
        assert_eq!(s.outages_s, [[0.0, 1.0], [3.0, 5.0], [6.0, 7.0]]);
        assert_eq!((s.rates, s.began_s), (vec![[0.0, 8e6], [2.0, 4e6]], 0.5));
        assert_eq!(schedule(&Settings::default().channel(Way::Down), 0.0, 9.0), None);
    }
}
