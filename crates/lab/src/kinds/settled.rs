//! How a link settles that is shared by XCP traffic and other, or whose rate changes: which part of
//! it XCP has, what waits before it after a step, and how soon it is full again.

use farlink_channel::{CARRIED_INTERVAL_MS, ChannelConfig};

use super::carried::Carried;
use crate::report::Measured;

/// Round trips after which all that share a link have their share, or a step is forgotten.
const SETTLED_ROUND_TRIPS: f64 = 25.0;
/// Round trips over which shares are judged: a saw tooth is longer than one.
const SHARE_ROUND_TRIPS: f64 = 10.0;
/// Round trips after a link is back in which what waited for it goes.
const RETURN_ROUND_TRIPS: f64 = 3.0;
/// A change of the rate by less than this factor is part of a ramp.
const STEP_FACTOR: f64 = 1.4;
/// Seconds after which a load has begun.
const STARTED_S: f64 = 5.0;
/// Little waits before a link: this part of its bandwidth-delay product.
const LITTLE: f64 = 0.1;
/// The link is full when it carries this share of its rate.
const FULL: f64 = 0.95;

/// Measures what can be said of this link.
pub(super) fn measure(config: &ChannelConfig, carried: &Carried, rtt_s: f64, measured: &mut Measured) {
    let Some(first_s) = carried.first_data_s else { return };
    // The last round trip is that of the end.
    let end_s = carried.first_end_s.unwrap_or_else(|| end_of(&carried.bytes)) - rtt_s;
    let settled_s = first_s + SETTLED_ROUND_TRIPS * rtt_s;
    if config.xcp.is_some() && settled_s + rtt_s < end_s {
        of_shares(carried, (settled_s, end_s), rtt_s, measured);
    }
    of_steps(config, carried, (first_s, end_s), rtt_s, measured);
    of_waiting(config, carried, (first_s + STARTED_S, end_s), measured);
    of_waiting_between_gaps(config, carried, (first_s, end_s), rtt_s, measured);
}

/// The same where packets wait for a link that is away at times: while it is there, and has been
/// for some round trips.
fn of_waiting_between_gaps(
    config: &ChannelConfig,
    carried: &Carried,
    (from, to): (f64, f64),
    rtt_s: f64,
    measured: &mut Measured,
) {
    if !config.contact_hold || config.contact_period.is_some() {
        return;
    }
    let step_s = CARRIED_INTERVAL_MS as f64 / 1e3;
    let mut waited_ms = Vec::new();
    for contact in &config.contact_plan {
        let begins = contact.start.as_secs_f64();
        // Of the delays that it has from then on, where they move.
        let moved = config.delay_changes.iter().rev().find(|c| c.at <= contact.start);
        let rtt_s = moved.map_or(rtt_s, |c| 2.0 * c.delay.as_secs_f64());
        let begins = if begins > 0.0 { begins + RETURN_ROUND_TRIPS * rtt_s } else { begins };
        let (begins, ends) = (begins.max(from), contact.end.as_secs_f64().min(to));
        if begins + step_s >= ends {
            continue;
        }
        let changed = config.rate_changes.iter().rev().find(|c| c.at <= contact.start);
        let Some(rate_bps) = changed.map(|c| c.rate_bps).or(config.rate_bps) else { return };
        let waiting = between(&carried.queue_bytes, begins, ends).iter();
        waited_ms.extend(waiting.map(|bytes| 8e3 * *bytes as f64 / rate_bps.max(1) as f64));
    }
    waited_ms.sort_by(f64::total_cmp);
    if let Some(ms) = waited_ms.get((waited_ms.len() * 99 / 100).min(waited_ms.len().max(1) - 1)) {
        measured.metric("there_waits_p99_ms", *ms);
    }
}

/// How long a packet would have waited before the link, from the fifth second on: what a ping feels
/// of a load.
fn of_waiting(config: &ChannelConfig, carried: &Carried, (from, to): (f64, f64), measured: &mut Measured) {
    if config.rate_bps.is_none() || !config.contact_plan.is_empty() || from >= to {
        return;
    }
    let rate_at = |at: f64| {
        let changed = config.rate_changes.iter().rev().find(|c| c.at.as_secs_f64() <= at);
        changed.map_or(config.rate_bps, |c| Some(c.rate_bps)).unwrap_or(0).max(1) as f64
    };
    let start = from * 1e3 / CARRIED_INTERVAL_MS as f64;
    let waiting = between(&carried.queue_bytes, from, to).iter().enumerate();
    let mut waited_ms: Vec<f64> = waiting
        .map(|(n, bytes)| {
            let at = (start + n as f64) * CARRIED_INTERVAL_MS as f64 / 1e3;
            8e3 * *bytes as f64 / rate_at(at)
        })
        .collect();
    waited_ms.sort_by(f64::total_cmp);
    let part =
        |percent: usize| waited_ms.get((waited_ms.len() * percent / 100).min(waited_ms.len().max(1) - 1));
    for (name, percent) in [("link_waits_p50_ms", 50), ("link_waits_p99_ms", 99), ("link_waits_max_ms", 100)]
    {
        if let Some(ms) = part(percent) {
            measured.metric(name, *ms);
        }
    }
}

/// What part of the bytes was of XCP: of all, and over windows of some round trips the least and
/// the most; and the longest queue of XCP.
fn of_shares(carried: &Carried, (from, to): (f64, f64), rtt_s: f64, measured: &mut Measured) {
    let share =
        |from: f64, to: f64| sum(&carried.xcp_bytes, from, to) / sum(&carried.bytes, from, to).max(1.0);
    measured.metric("xcp_share", share(from, to));
    let window_s = (SHARE_ROUND_TRIPS * rtt_s).min(to - from);
    let windows = ((to - from) / window_s).floor().max(1.0) as u32;
    let shares = (0..windows).map(|n| from + f64::from(n) * window_s).map(|at| share(at, at + window_s));
    let (least, most) = shares.fold((1.0_f64, 0.0_f64), |(least, most), s| (least.min(s), most.max(s)));
    measured.metric("xcp_share_least", least);
    measured.metric("xcp_share_most", most);
    measured.metric("xcp_queue_max_bytes", most_of(&carried.xcp_queue_bytes, from, to));
    let rate = carried_bps(carried, from, to);
    measured.metric("settled_bps", rate);
}

/// After each step down: the longest queue within the round trips that it may take, and after them,
/// in bandwidth-delay products of the rate before, and round trips until little waits. After each
/// step up: round trips until the link is full. Over all changes: what was carried from the
/// twentieth round trip on, of what could be.
fn of_steps(
    config: &ChannelConfig,
    carried: &Carried,
    (first_s, end_s): (f64, f64),
    rtt_s: f64,
    measured: &mut Measured,
) {
    let Some(start_bps) = config.rate_bps.map(|bps| bps as f64) else { return };
    if config.rate_changes.is_empty() || !config.contact_plan.is_empty() {
        return;
    }
    let changes: Vec<(f64, f64)> =
        config.rate_changes.iter().map(|c| (c.at.as_secs_f64(), c.rate_bps as f64)).collect();
    let mut before = start_bps;
    for (n, (at, bps)) in changes.iter().enumerate() {
        let until = changes.get(n + 1).map_or(end_s, |next| next.0).min(end_s);
        let settled = at + SETTLED_ROUND_TRIPS * rtt_s;
        let product = before * rtt_s / 8.0;
        if before >= STEP_FACTOR * bps && *at < until {
            let queue = most_of(&carried.queue_bytes, *at, until.min(settled));
            most_metric("step_queue_products", queue / product, measured);
            let rounds = rounds_to_little(carried, (*at, until), LITTLE * bps * rtt_s / 8.0, rtt_s);
            most_metric("step_round_trips_to_drain", rounds, measured);
            if settled + rtt_s < until {
                let queue = most_of(&carried.queue_bytes, settled, until);
                most_metric("step_settled_queue_products", queue / product, measured);
            }
        } else if *bps >= STEP_FACTOR * before && at + rtt_s < until {
            let rounds = rounds_to_full(carried, (*at, until), *bps, rtt_s);
            most_metric("step_round_trips_to_95", rounds, measured);
        }
        before = *bps;
    }
    let from = first_s + 20.0 * rtt_s;
    let mut edges = vec![(0.0, start_bps)];
    edges.extend(&changes);
    let possible: f64 = edges
        .iter()
        .enumerate()
        .map(|(n, (at, bps))| {
            let until = edges.get(n + 1).map_or(end_s, |next| next.0).min(end_s);
            bps * (until - at.max(from)).max(0.0)
        })
        .sum();
    if possible > 0.0 {
        measured.metric("use_of_schedule", 8.0 * sum(&carried.bytes, from, end_s) / possible);
    }
}

/// Round trips from a time until the end of the first window of one, moved by a quarter, in which
/// the link was full; as many as there were if it never was.
fn rounds_to_full(carried: &Carried, (from, until): (f64, f64), rate_bps: f64, rtt_s: f64) -> f64 {
    let quarters = (4.0 * (until - from) / rtt_s).floor() as u32;
    let is_full = |n: &u32| {
        let at = from + f64::from(*n) * rtt_s / 4.0;
        carried_bps(carried, at, at + rtt_s) >= FULL * rate_bps
    };
    f64::from((0..quarters).find(is_full).unwrap_or(quarters)) / 4.0 + 1.0
}

/// Round trips from a time until no more than so much waits, for a round trip; as many as there
/// were if it never came to that.
fn rounds_to_little(carried: &Carried, (from, until): (f64, f64), bytes: f64, rtt_s: f64) -> f64 {
    let step_s = CARRIED_INTERVAL_MS as f64 / 1e3;
    let steps = ((until - from) / step_s).floor().max(0.0) as u32;
    let is_little = |n: &u32| {
        let at = from + f64::from(*n) * step_s;
        most_of(&carried.queue_bytes, at, at + rtt_s) <= bytes
    };
    f64::from((0..steps).find(is_little).unwrap_or(steps)) * step_s / rtt_s
}

/// The worst of several.
fn most_metric(name: &str, value: f64, measured: &mut Measured) {
    let most = measured.metrics.get(name).copied().unwrap_or(0.0).max(value);
    measured.metric(name, most);
}

fn carried_bps(carried: &Carried, from: f64, to: f64) -> f64 {
    8.0 * sum(&carried.bytes, from, to) / (to - from).max(1e-9)
}

fn end_of(series: &[u64]) -> f64 {
    (series.len() as u64 * CARRIED_INTERVAL_MS) as f64 / 1e3
}

/// Whole intervals between two times.
fn between(series: &[u64], from: f64, to: f64) -> &[u64] {
    let place =
        |at: f64| ((at * 1e3 / CARRIED_INTERVAL_MS as f64).round().max(0.0) as usize).min(series.len());
    series.get(place(from)..place(to)).unwrap_or_default()
}

fn sum(series: &[u64], from: f64, to: f64) -> f64 {
    between(series, from, to).iter().sum::<u64>() as f64
}

fn most_of(series: &[u64], from: f64, to: f64) -> f64 {
    between(series, from, to).iter().max().map_or(0.0, |most| *most as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Settings, Way};

    fn config(pairs: &[&str]) -> ChannelConfig {
        let mut settings = Settings::default();
        settings.set_all(["rate=8M", "rtt=100ms"].iter().chain(pairs).copied()).unwrap();
        settings.channel(Way::Down)
    }

    /// 8 Mbit/s are 10,000 bytes in an interval.
    fn series(parts: &[(usize, u64)]) -> Vec<u64> {
        parts.iter().flat_map(|(intervals, bytes)| vec![*bytes; *intervals]).collect()
    }

    #[test]
    fn shares_count_from_the_twenty_fifth_round_trip_on_until_the_first_ends() {
        let carried = Carried {
            bytes: series(&[(800, 10_000), (100, 9)]),
            // Unfair for 2.5 s, and then half of it, a little less and a little more by turns.
            xcp_bytes: series(&[(250, 9_000), (100, 4_000), (100, 6_000), (350, 5_000)]),
            xcp_queue_bytes: series(&[(200, 70_000), (100, 2_000)]),
            first_data_s: Some(0.0),
            first_end_s: Some(7.6),
            ..Carried::default()
        };
        let mut measured = Measured::default();
        measure(&config(&["xcp=true", "xcp_weights=1:1"]), &carried, 0.1, &mut measured);
        let near = |name: &str, wanted: f64| {
            let is = measured.metrics[name];
            assert!((is - wanted).abs() < 1e-6 * wanted, "{name}: {is}");
        };
        near("xcp_share", 0.5);
        near("xcp_share_least", 0.4);
        near("xcp_share_most", 0.6);
        near("xcp_queue_max_bytes", 2_000.0);
        near("settled_bps", 8e6);
        let mut no_router = Measured::default();
        measure(&config(&[]), &carried, 0.1, &mut no_router);
        assert!(no_router.metrics.is_empty(), "{no_router:?}");
    }

    #[test]
    fn steps_are_judged_by_what_waits_and_by_how_soon_the_link_is_full() {
        let carried = Carried {
            bytes: series(&[(500, 10_000), (500, 5_000), (40, 5_000), (460, 10_000)]),
            // 50,000 bytes at once, which is half a product, 2,000 from 2.5 s later on.
            queue_bytes: series(&[(500, 0), (250, 50_000), (750, 2_000)]),
            first_data_s: Some(0.0),
            first_end_s: Some(15.0),
            ..Carried::default()
        };
        let mut measured = Measured::default();
        measure(&config(&["rate_changes=5s=4M 10s=8M"]), &carried, 0.1, &mut measured);
        let is = |name: &str| measured.metrics[name];
        assert!((is("step_queue_products") - 0.5).abs() < 1e-9);
        assert!((is("step_settled_queue_products") - 0.02).abs() < 1e-9);
        assert!((is("step_round_trips_to_drain") - 25.0).abs() < 1e-9, "{}", is("step_round_trips_to_drain"));
        assert!((is("step_round_trips_to_95") - 5.0).abs() < 1e-9, "{}", is("step_round_trips_to_95"));
        let used = is("use_of_schedule");
        let lost = 0.4 * 0.5 / (3.0 + 2.5 + 4.9);
        assert!((used - (1.0 - lost)).abs() < 1e-3, "{used}");
    }
}
