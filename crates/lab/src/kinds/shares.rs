//! How connections share the first hard link, as it has carried them: how even their shares are
//! (`jain_from_25_rtt`), how soon the one that joined last has its own (`round_trips_to_share`),
//! for how long one falls back (`round_trips_below_half`), and how long the queue is at the start
//! and later (`queue_start_bdp`, `queue_from_20_rtt_bdp`).

use farlink_channel::CARRIED_INTERVAL_MS;

use super::carried::Carried;
use super::metrics::jain;
use crate::report::{Measured, Shares};
use crate::settings::Settings;

/// Intervals shorter than this show single packets, and no rates. Seconds.
const WINDOW_S_MIN: f64 = 0.05;
/// Round trips after the last start from which on the shares have to be even.
const EVEN_FROM: f64 = 25.0;
/// Round trips after the last start from which on the queue has to be short.
const SHORT_FROM: f64 = 20.0;
/// Round trips after the last start from which on each has a rate of its own.
const STEADY_FROM: f64 = 20.0;
/// Round trips that are the start.
const START: f64 = 10.0;
/// A share is reached when it stays within so much of it.
const NEAR: f64 = 0.1;
/// Windows that are told.
const WINDOWS_MAX: usize = 400;
/// Connections that are told.
const CONNECTIONS_MAX: usize = 10;

/// What the link carried of one connection.
struct Series<'a> {
    begin_s: f64,
    end_s: f64,
    first: usize,
    bytes: &'a [u64],
}

impl<'a> Series<'a> {
    fn new((first, bytes): &'a (usize, Vec<u64>)) -> Self {
        let begin_s = seconds(*first);
        Self { begin_s, end_s: seconds(first + bytes.len()), first: *first, bytes }
    }

    /// Bytes between two times.
    fn between(&self, from_s: f64, to_s: f64) -> f64 {
        within(self.bytes, self.first, (from_s, to_s)).iter().sum::<u64>() as f64
    }
}

/// What was counted between two times, of a list that begins with the interval of this number.
fn within(counted: &[u64], first: usize, (from_s, to_s): (f64, f64)) -> &[u64] {
    let place = |at_s: f64| {
        let n = (at_s * 1e3 / CARRIED_INTERVAL_MS as f64).round().max(0.0) as usize;
        n.saturating_sub(first).min(counted.len())
    };
    counted.get(place(from_s)..place(to_s)).unwrap_or_default()
}

fn seconds(interval: usize) -> f64 {
    (interval as u64 * CARRIED_INTERVAL_MS) as f64 / 1e3
}

/// The longest round trip, and the mean one, of those that data takes over the link.
fn round_trips(settings: &Settings) -> (f64, f64) {
    let own: Vec<f64> = settings.eth_rtts_ms.values().map(|ms| (settings.rtt_ms + ms) / 1e3).collect();
    if own.is_empty() {
        return (settings.rtt_ms / 1e3, settings.rtt_ms / 1e3);
    }
    (own.iter().copied().fold(0.0, f64::max), own.iter().sum::<f64>() / own.len() as f64)
}

/// Measures a run of transfers.
pub(super) fn measure(settings: &Settings, carried: &Carried, measured: &mut Measured) {
    let all: Vec<Series<'_>> = carried.connections.iter().map(Series::new).collect();
    let (rtt_s, mean_rtt_s) = round_trips(settings);
    let window_s = rtt_s.max(WINDOW_S_MIN);
    let Some(first_s) = all.iter().map(|c| c.begin_s).reduce(f64::min) else { return };
    let last_s = all.iter().map(|c| c.begin_s).fold(first_s, f64::max);
    // One transfer's end gives its share to the others.
    let until_s = all.iter().map(|c| c.end_s).fold(f64::INFINITY, f64::min);
    queue(carried, settings.rate_bps as f64 / 8.0 * mean_rtt_s, (rtt_s, first_s, last_s, until_s), measured);
    measured.shares = told(&all, carried, (first_s, window_s));
    let steady = (last_s + STEADY_FROM * rtt_s, until_s);
    if let Some(below_s) = all.iter().filter_map(|c| below_half(c, steady, window_s)).reduce(f64::max) {
        measured.metric("round_trips_below_half", below_s / rtt_s);
    }
    if all.len() < 2 || until_s - last_s < window_s {
        return;
    }
    if let Some(jain) = least_jain(&all, (last_s + EVEN_FROM * rtt_s, until_s), window_s) {
        measured.metric("jain_from_25_rtt", jain);
    }
    if let Some(newest) = all.iter().max_by(|a, b| a.begin_s.total_cmp(&b.begin_s)) {
        let reached_s = reached(&all, newest, until_s, window_s);
        measured.metric("round_trips_to_share", (reached_s - newest.begin_s) / rtt_s);
    }
}

/// The least of Jain's indices of windows between two times.
fn least_jain(all: &[Series<'_>], (from_s, until_s): (f64, f64), window_s: f64) -> Option<f64> {
    let count = ((until_s - from_s) / window_s).floor();
    let in_window = |n: usize| {
        let from_s = from_s + n as f64 * window_s;
        jain(all.iter().map(|c| c.between(from_s, from_s + window_s)))
    };
    (0..count.max(0.0) as usize).map(in_window).reduce(f64::min)
}

/// When a connection has an equal share of what the link carries, and keeps it until the first of
/// all ends: the end of the first window of those.
fn reached(all: &[Series<'_>], newest: &Series<'_>, until_s: f64, window_s: f64) -> f64 {
    let step_s = window_s / 4.0;
    let count = ((until_s - newest.begin_s - window_s) / step_s).floor().max(0.0) as usize;
    let mut reached_s = newest.begin_s + window_s;
    for n in 0..=count {
        let from_s = newest.begin_s + n as f64 * step_s;
        let sum: f64 = all.iter().map(|c| c.between(from_s, from_s + window_s)).sum();
        let fair = sum / all.len() as f64;
        if (newest.between(from_s, from_s + window_s) - fair).abs() > NEAR * fair {
            reached_s = from_s + step_s + window_s;
        }
    }
    reached_s
}

/// For how long, without a break, a connection had less than half of its rate, which is the median
/// of its windows between two times. Seconds; `None`: there are fewer than four.
fn below_half(of: &Series<'_>, (from_s, until_s): (f64, f64), window_s: f64) -> Option<f64> {
    let step_s = window_s / 4.0;
    let count = ((until_s - from_s - window_s) / step_s).floor().max(0.0) as usize;
    let carried: Vec<f64> = (0..count)
        .map(|n| from_s + n as f64 * step_s)
        .map(|from_s| of.between(from_s, from_s + window_s))
        .collect();
    let mut sorted = carried.clone();
    sorted.sort_by(f64::total_cmp);
    let usual = *sorted.get(count / 2).filter(|_| count >= 4 * 4)?;
    let stretches = carried.split(|bytes| *bytes >= usual / 2.0).map(<[f64]>::len);
    Some(stretches.max().unwrap_or(0) as f64 * step_s)
}

/// The longest queue at the start and later, in parts of a bandwidth-delay product.
fn queue(
    carried: &Carried,
    product_bytes: f64,
    (rtt_s, first_s, last_s, until_s): (f64, f64, f64, f64),
    measured: &mut Measured,
) {
    if product_bytes <= 0.0 {
        return;
    }
    let mut tell = |name: &str, from_s: f64, to_s: f64| {
        let most = within(&carried.queue_bytes, 0, (from_s, to_s)).iter().copied().max();
        if let (Some(most), true) = (most, to_s > from_s) {
            measured.metric(name, most as f64 / product_bytes);
        }
    };
    tell("queue_start_bdp", first_s, (first_s + START * rtt_s).min(until_s));
    tell("queue_from_20_rtt_bdp", last_s + SHORT_FROM * rtt_s, until_s);
}

/// What plots show: the rate of each of the first connections, and the longest queue, by window.
fn told(all: &[Series<'_>], carried: &Carried, (first_s, window_s): (f64, f64)) -> Option<Shares> {
    let end_s = all.iter().map(|c| c.end_s).fold(first_s, f64::max);
    let count = (((end_s - first_s) / window_s).ceil().max(0.0) as usize).min(WINDOWS_MAX);
    let from_s = |n: usize| first_s + n as f64 * window_s;
    let bps = |c: &Series<'_>| -> Vec<f64> {
        let rates = (0..count).map(|n| c.between(from_s(n), from_s(n + 1)) * 8.0 / window_s);
        rates.map(f64::round).collect()
    };
    let longest = |n: usize| {
        within(&carried.queue_bytes, 0, (from_s(n), from_s(n + 1))).iter().copied().max().unwrap_or(0)
    };
    (count > 0).then(|| Shares {
        window_s,
        connections_bps: all.iter().take(CONNECTIONS_MAX).map(bps).collect(),
        queue_max_bytes: (0..count).map(longest).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100 ms of round trip; 1 kB in 10 ms are 0.8 Mbit/s.
    fn settings() -> Settings {
        Settings { rate_bps: 800_000, rtt_ms: 100.0, ..Settings::default() }
    }

    fn measured(connections: Vec<(usize, Vec<u64>)>, queue_bytes: Vec<u64>) -> Measured {
        let mut measured = Measured::default();
        let carried = Carried { connections, queue_bytes, ..Carried::default() };
        measure(&settings(), &carried, &mut measured);
        measured
    }

    #[test]
    fn who_joins_has_its_share_when_it_keeps_it() {
        // One has all of it for a second. The other one has a quarter, then half of it from the
        // fifth of its round trips on.
        let first: Vec<u64> = (0..500)
            .map(|n| {
                if n < 100 {
                    1_000
                } else if n < 150 {
                    750
                } else {
                    500
                }
            })
            .collect();
        let second: Vec<u64> = (0..420).map(|n| if n < 50 { 250 } else { 500 }).collect();
        let m = measured(vec![(10, first), (110, second)], Vec::new());
        let to_share = m.metrics["round_trips_to_share"];
        // Windows begin at quarters of a round trip: within a tenth is one that has three quarters
        // of the sixth in it.
        assert!((to_share - 5.75).abs() < 1e-9, "{to_share}");
        assert!(m.metrics["jain_from_25_rtt"] > 0.999);
        let shares = m.shares.unwrap();
        assert_eq!(shares.connections_bps[0][0], 800_000.0);
        assert_eq!((shares.connections_bps[1][0], shares.connections_bps[1][15]), (0.0, 400_000.0));
    }

    #[test]
    fn uneven_shares_show_in_the_worst_window() {
        let steady = |n: usize| vec![500u64; n];
        let mut uneven = steady(500);
        uneven[400..410].fill(0);
        let m = measured(vec![(0, steady(500)), (0, uneven)], Vec::new());
        assert!((m.metrics["jain_from_25_rtt"] - 0.5).abs() < 1e-9);
        assert_eq!(measured(vec![(0, steady(500))], Vec::new()).metrics.get("jain_from_25_rtt"), None);
    }

    #[test]
    fn who_falls_back_shows_for_how_long() {
        let steady = vec![500u64; 500];
        let below = |m: &Measured| m.metrics.get("round_trips_below_half").copied();
        assert_eq!(below(&measured(vec![(0, steady.clone())], Vec::new())), Some(0.0));
        // Three round trips with a fifth, and before that one with two thirds.
        let mut falls = steady.clone();
        falls[310..320].fill(330);
        falls[320..350].fill(100);
        let m = measured(vec![(0, steady.clone()), (0, falls)], Vec::new());
        // A window that begins a quarter sooner or later has less than half of the rate, too.
        assert!((below(&m).unwrap() - 3.0).abs() < 1e-9, "{m:?}");
        let m = measured(vec![(0, steady[..230].to_vec())], Vec::new());
        assert_eq!(below(&m), None, "too short to have a rate");
    }

    #[test]
    fn the_queue_is_told_in_bandwidth_delay_products() {
        let mut queue = vec![0; 300];
        (queue[20], queue[150], queue[260]) = (5_000, 9_000, 1_000);
        let m = measured(vec![(0, vec![1_000; 300])], queue);
        assert_eq!(m.metrics["queue_start_bdp"], 0.5);
        assert_eq!(m.metrics["queue_from_20_rtt_bdp"], 0.1);
    }

    #[test]
    fn own_round_trips_count_with_the_link() {
        let mut s = settings();
        s.set("eth_rtts", "eth1=0ms eth2=300ms").unwrap();
        assert_eq!(round_trips(&s), (0.4, 0.25));
    }
}
