//! What a burst shows where its packets overtake each other.
//!
//! A queue keeps the order. A packet that has arrived has left every queue on its way, and so has
//! all that left before it. So of a burst not only that has been carried which has arrived, but all
//! up to the packet that is farthest, though some of it is held somewhere and comes later. How fast
//! that one moves on is the rate of the link, however long single packets are held.

use farlink_wire::time::{Duration, Instant};

use super::peer::rate_of;
use super::{Report, SAMPLE_BYTES_MIN};

/// Reports of a burst that are kept.
const POINTS_MAX: usize = 16;
/// Two packets before the farthest have not arrived: they have been overtaken, or are lost.
const OVERTAKEN_BYTES: u32 = 3_000;

/// The rate is taken over so many bytes at least that have arrived: three packets.
const SEVERAL_BYTES: u32 = 4_000;

/// By then so much of the burst had arrived.
#[derive(Clone, Copy, Debug)]
struct Point {
    arrived_us: u32,
    /// Where the farthest stands, bytes, and when it left.
    place: u32,
    sent_at: Instant,
    received_bytes: u32,
    /// Bytes before the farthest that have not arrived.
    missing_bytes: u32,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Train {
    /// Of what it is a part.
    origin: u32,
    /// In the order in which they were made, not in which they came.
    points: Vec<Point>,
}

/// What it has shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown {
    pub(super) rate_bps: u64,
    /// The most that it can be.
    pub(super) most_bps: u64,
    pub(super) bytes: u32,
    pub(super) took: Duration,
}

/// What the parts of a burst show that keeps its order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    pub(super) bytes: u32,
    pub(super) took: Duration,
    /// By how much more slowly the rest came than the whole, without its largest clump, percent.
    pub(super) uneven_percent: u64,
    pub(super) fastest_bps: u64,
}

impl Point {
    /// It comes after one that arrived then, by when so much had been received.
    fn is_before(&self, arrived_us: u32, received_bytes: u32) -> bool {
        let later_us = arrived_us.wrapping_sub(self.arrived_us) as i32;
        let more = received_bytes.wrapping_sub(self.received_bytes) as i32;
        later_us > 0 || (later_us == 0 && more > 0)
    }

    /// Bytes that the link has carried from the one to the other, and how long that took; `None`:
    /// they did not leave as in a burst.
    fn since(&self, first: &Self) -> Option<(u32, Duration)> {
        let took_us = self.arrived_us.wrapping_sub(first.arrived_us).max(1);
        let took = Duration::from_micros(u64::from(took_us));
        let sending = self.sent_at.since(first.sent_at).max(first.sent_at.since(self.sent_at));
        let is_burst = took_us <= i32::MAX as u32 && took.saturating_sub(sending) > took / 2;
        is_burst.then(|| (self.place.saturating_sub(first.place), took))
    }
}

impl Train {
    /// A report came of a packet that left then. `None`: it is of no burst, or its packets keep
    /// their order, as far as is known.
    pub(super) fn hear(&mut self, report: &Report, sent_at: Instant) -> Option<Shown> {
        let (origin, place, missing_bytes) = report.place;
        if place == 0 || report.sent_again || report.of_host {
            return None;
        }
        let (arrived_us, received_bytes) = (report.arrived_us, report.received_bytes);
        let point = Point { arrived_us, place, sent_at, received_bytes, missing_bytes };
        let at = self.points.partition_point(|p| p.is_before(arrived_us, received_bytes));
        let first = self.points.first().copied().unwrap_or(point);
        let goes_on = if at == 0 { first.since(&point) } else { point.since(&first) };
        if origin != self.origin || goes_on.is_none() {
            // Another burst begins, perhaps.
            (self.origin, self.points) = (origin, vec![point]);
            return None;
        }
        if self.points.len() < POINTS_MAX {
            self.points.insert(at, point);
        }
        self.shown()
    }

    /// One report has been made of it, and no other.
    pub(super) fn has_just_begun(&self) -> bool {
        self.points.len() == 1
    }

    /// What its parts show, if it keeps its order.
    pub(super) fn parts(&self) -> Option<Parts> {
        let (first, last) = (self.points.first()?, self.points.last()?);
        if self.points.iter().any(|p| p.missing_bytes > 0) {
            return None;
        }
        let between = |a: &Point, b: &Point| {
            let took_us = b.arrived_us.wrapping_sub(a.arrived_us).max(1);
            (b.received_bytes.wrapping_sub(a.received_bytes), Duration::from_micros(u64::from(took_us)))
        };
        let each = self.points.iter().zip(self.points.iter().skip(1)).map(|(a, b)| between(a, b));
        let (bytes, took) = between(first, last);
        if self.points.iter().any(|p| p.received_bytes.wrapping_sub(first.received_bytes) > bytes) {
            return None;
        }
        // Others sent, too.
        if bytes > last.place.saturating_sub(first.place).saturating_add(first.place.min(bytes)) / 8 * 9 {
            return None;
        }
        let all_bytes = bytes.saturating_add(first.place);
        let rest = |(part_bytes, part_took): (u32, Duration)| {
            let rest_bytes = u128::from(all_bytes.saturating_sub(part_bytes).max(1)) * took.as_nanos();
            let rest_took = took.saturating_sub(part_took).as_nanos() * u128::from(all_bytes);
            u64::try_from(rest_took * 100 / rest_bytes.max(1)).unwrap_or(u64::MAX)
        };
        let uneven_percent = each.clone().map(rest).max()?;
        let several = each.filter(|(bytes, _)| *bytes >= SEVERAL_BYTES);
        let fastest_bps = several.map(|(bytes, took)| rate_of(u64::from(bytes), took)).max()?;
        Some(Parts { bytes, took, uneven_percent, fastest_bps })
    }

    fn shown(&self) -> Option<Shown> {
        let (first, later) = self.points.split_first()?;
        let carried = || later.iter().filter_map(|p| p.since(first).map(|since| (p, since)));
        let arrived = |p: &Point| p.received_bytes.wrapping_sub(first.received_bytes);
        if !self.points.iter().any(|p| p.missing_bytes >= OVERTAKEN_BYTES) {
            return None;
        }
        let shown = |(bytes, took): (u32, Duration)| {
            let rate_bps = rate_of(u64::from(bytes), took);
            Shown { rate_bps, most_bps: rate_bps, bytes, took }
        };
        let enough = || carried().filter(|(_, (bytes, _))| *bytes >= SAMPLE_BYTES_MIN);
        // The first packets are held by chance, too: the rate is that of several.
        let several = enough().filter(|(p, _)| arrived(p) >= SEVERAL_BYTES);
        // At most all of it has been carried since the first packet came.
        let most_bps = carried().map(|(p, (_, took))| rate_of(u64::from(p.place), took)).max()?;
        let whole = several.map(|(_, since)| shown(since)).max_by_key(|shown| shown.rate_bps)?;
        Some(Shown { most_bps, ..whole })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes up to the farthest packet that has arrived, and those that are missing before it.
    fn report(arrived_us: u32, (place, missing): (u32, u32)) -> Report {
        Report {
            peer: 1,
            arrived_us,
            received_bytes: 500 + place - missing,
            sent_at: None,
            sent_again: false,
            place: (7, place, missing),
            min_rtt: None,
            of_host: false,
            waited_back: Duration::ZERO,
            back_is_slow: false,
        }
    }

    /// 100 Mbit/s, and packets are held by up to 40 ms.
    const BURST: [(u32, (u32, u32)); 4] = [
        (1_000_000, (6_000, 4_500)),
        (1_001_500, (24_000, 19_500)),
        (1_004_000, (42_000, 36_000)),
        (1_040_000, (48_000, 0)),
    ];

    #[test]
    fn the_farthest_packet_shows_the_rate_in_whatever_order_reports_come() {
        let sent_at = Instant::from_millis(900);
        for order in [[0, 1, 2, 3], [3, 0, 2, 1], [2, 3, 1, 0]] {
            let mut train = Train::default();
            let mut shown = None;
            for at in order {
                let (arrived_us, place) = BURST[at];
                shown = train.hear(&report(arrived_us, place), sent_at);
            }
            let shown = shown.unwrap();
            assert_eq!((shown.rate_bps, shown.took), (72_000_000, Duration::from_millis(4)), "{order:?}");
            assert_eq!(shown.most_bps, 128_000_000, "{order:?}");
        }
    }

    #[test]
    fn a_burst_that_keeps_its_order_shows_nothing_here() {
        let mut train = Train::default();
        for n in 1..10 {
            let heard = train.hear(&report(1_000_000 + n * 1_200, (n * 1_500, 0)), Instant::from_millis(900));
            assert!(heard.is_none(), "{n}");
        }
    }

    #[test]
    fn what_is_sent_smoothly_is_no_burst() {
        let mut train = Train::default();
        for n in 1..10 {
            let sent_at = Instant::from_millis(900 + u64::from(n) * 10);
            assert!(
                train.hear(&report(1_000_000 + n * 10_000, (n * 15_000, 6_000)), sent_at).is_none(),
                "{n}"
            );
        }
    }
}
