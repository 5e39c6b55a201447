//! What all models say of a transfer over a link that winks, by condition: the paper's, what holds
//! instead, the schedules of seeds, and what was measured.

use std::ops::Range;

use anyhow::{Result, bail};
use farlink_wire::time::Instant;
use serde::Serialize;

use super::timers;
use super::wink::{Begins, FirstFailure, Winks};
use crate::limit::{Clock, Job, Packets, Path};
use crate::settings::{Settings, Way, WinkAt};

/// The paper's probabilities without 0, and the first, last and step of its 54 intervals in
/// milliseconds (Reynolds 3.3.2).
pub const PAPER_P: [f64; 8] = [0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4];
/// See [`PAPER_P`].
pub const PAPER_INTERVALS_MS: (u32, u32, usize) = (40, 1100, 20);
/// The paper's file in bytes and its link in bit/s.
pub const PAPER_SIZE_BYTES: u64 = 20_971_520;
/// See [`PAPER_SIZE_BYTES`].
pub const PAPER_RATE_BPS: u64 = 100_000_000;

/// The transfer that is modelled.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Transfer {
    /// Payload.
    pub size_bytes: u64,
    /// Rate of the link in bit/s of IP packets.
    pub rate_bps: u64,
    /// Round-trip time of the link in seconds.
    pub rtt_s: f64,
    /// Time between two probes of a link that is away, in seconds.
    pub probe_s: f64,
    /// At which end of the link winks destroy packets.
    pub wink_side: WinkAt,
}

impl Transfer {
    fn packets() -> Packets {
        Packets { mtu: Settings::default().link_mtu, v6: false, timestamps: true }
    }

    fn job(&self) -> Job {
        Job {
            rate_bps: self.rate_bps as f64,
            return_bps: 0.0,
            rtt_s: self.rtt_s,
            bytes: self.size_bytes as f64,
            round_trips: 1.0,
            eta: Self::packets().eta(self.size_bytes),
            loss: 0.0,
            wink_p: 0.0,
            return_overhead_bytes: 0.0,
            clock: Clock::FirstByte,
        }
    }

    /// Seconds on a link that is always there, from the first byte to the last.
    #[must_use]
    pub fn perfect_s(&self) -> f64 {
        self.job().data_seconds()
    }

    /// The rate at which this transfer takes so long on a link that is always there, bit/s.
    #[must_use]
    pub fn rate_for(&self, perfect_s: f64) -> u64 {
        (8.0 * self.size_bytes as f64 / self.job().eta / perfect_s).round() as u64
    }

    /// A perfect sender's seconds with the winks of a seed, of which the first interval begins with
    /// the transfer. The schedule is that of a run with this seed. `None`: the link does not carry
    /// it all.
    #[must_use]
    pub fn perfect_seconds(&self, winks: Winks, seed: u64) -> Option<f64> {
        let settings = Settings {
            rate_bps: self.rate_bps,
            rtt_ms: self.rtt_s * 1e3,
            wink_p: winks.p(),
            wink_i_ms: winks.interval_s() * 1e3,
            wink_side: self.wink_side,
            seed,
            ..Settings::default()
        };
        let (config, back) = (settings.channel(Way::Down), settings.channel(Way::Up));
        // The clock starts when the first byte arrives.
        let began = Instant::ZERO + config.delay;
        self.job().perfect_seconds(&Path { there: &[config], back: &[back] }, began, Self::packets().mtu)
    }
}

/// Mean and extremes.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Spread {
    /// The mean.
    pub mean: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
    /// How many.
    pub runs: usize,
}

impl Spread {
    /// Of some values; nothing of none.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let runs = values.len();
        let mean = values.iter().sum::<f64>() / runs.max(1) as f64;
        let min = values.iter().copied().fold(f64::INFINITY, f64::min);
        let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        (runs > 0).then_some(Self { mean, min, max, runs })
    }
}

/// What a run measured of one subject at one point.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Measured {
    /// Who ran.
    pub subject: String,
    /// Seconds by the run's clock.
    pub seconds: Spread,
    /// Time over the perfect sender's with the same winks.
    pub ratio_to_perfect: Option<Spread>,
}

/// Results of runs as far as models can be compared with them.
#[derive(Clone, PartialEq, Debug)]
pub struct Results {
    /// Payload of their transfers.
    pub size_bytes: u64,
    /// Rate of their link, bit/s.
    pub rate_bps: u64,
    /// Round-trip time of their link, seconds.
    pub rtt_s: f64,
    /// p and i in milliseconds, with what was measured there.
    pub points: Vec<(f64, f64, Measured)>,
}

/// One condition, with what each model says. All times in seconds.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Point {
    /// Probability that the link is away in an interval.
    pub p: f64,
    /// Length of an interval.
    pub interval_ms: f64,
    /// Whole intervals that the transfer needs (equation 3.3).
    pub intervals: f64,
    /// The bound, t / (1 - p).
    pub perfect_s: f64,
    /// The same in whole intervals, if the first one begins with the transfer.
    pub perfect_with_schedule_s: f64,
    /// Hosts alone by equation 3.11.
    pub paper_hosts_alone_s: f64,
    /// The same with the first failure counted once.
    pub mended_hosts_alone_s: f64,
    /// Hosts alone that wait for Linux' timers, once for each outage.
    pub timers_s: f64,
    /// With custody, by equation 3.12.
    pub paper_custody_s: f64,
    /// The same with the first failure counted once.
    pub mended_custody_s: f64,
    /// A prober's time over the perfect sender's, 1 + p (d/2 + r) / i.
    pub probing_ratio: f64,
    /// The prober's time.
    pub probing_s: f64,
    /// `perfect_seconds` of seeds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub perfect_seconds: Option<Spread>,
    /// What was measured.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub measured: Vec<Measured>,
}

impl Point {
    /// What all models say of a transfer under one condition.
    #[must_use]
    pub fn of(transfer: &Transfer, winks: Winks, seeds: &Range<u64>) -> Self {
        let base_s = transfer.perfect_s();
        let n = winks.whole_intervals(base_s);
        let perfect_s = winks.perfect_s(base_s, Begins::Anytime);
        let probing_ratio = winks.probing_ratio_first_order(transfer.probe_s, transfer.rtt_s);
        let seconds: Vec<f64> =
            seeds.clone().filter_map(|seed| transfer.perfect_seconds(winks, seed)).collect();
        Self {
            p: winks.p(),
            interval_ms: winks.interval_s() * 1e3,
            intervals: n,
            perfect_s,
            perfect_with_schedule_s: winks.perfect_s(base_s, Begins::WithAnInterval),
            paper_hosts_alone_s: base_s + winks.hosts_alone_s(n, FirstFailure::Twice),
            mended_hosts_alone_s: base_s + winks.hosts_alone_s(n, FirstFailure::Once),
            timers_s: timers::transfer_s(winks, base_s, &timers::linux_s(transfer.rtt_s)),
            paper_custody_s: base_s + winks.custody_s(n, FirstFailure::Twice),
            mended_custody_s: base_s + winks.custody_s(n, FirstFailure::Once),
            probing_ratio,
            probing_s: perfect_s * probing_ratio,
            perfect_seconds: Spread::of(&seconds),
            measured: Vec::new(),
        }
    }
}

/// All points of a grid, p first, with what was measured there. Seeds: those whose schedules are
/// played; none is allowed.
///
/// # Errors
/// A condition that makes no sense; no condition; a transfer without a link or bytes.
pub fn points(
    transfer: &Transfer,
    (ps, intervals_s): (&[f64], &[f64]),
    seeds: &Range<u64>,
    results: Option<&Results>,
) -> Result<Vec<Point>> {
    if transfer.size_bytes == 0 || transfer.rate_bps == 0 {
        bail!("a transfer needs a size and a rate above zero");
    }
    if ps.is_empty() || intervals_s.is_empty() {
        bail!("at least one probability p and one interval i are needed");
    }
    let mut points = Vec::with_capacity(ps.len() * intervals_s.len());
    for p in ps {
        for interval_s in intervals_s {
            let mut point = Point::of(transfer, Winks::new(*p, *interval_s)?, seeds);
            let here = results
                .into_iter()
                .flat_map(|results| &results.points)
                .filter(|(p, ms, _)| (p - point.p).abs() < 1e-9 && (ms - point.interval_ms).abs() < 1e-6);
            point.measured = here.map(|(_, _, measured)| measured.clone()).collect();
            points.push(point);
        }
    }
    Ok(points)
}

/// The paper's 54 intervals in seconds.
#[must_use]
pub fn paper_intervals_s() -> Vec<f64> {
    let (first, last, step) = PAPER_INTERVALS_MS;
    (first..=last).step_by(step).map(|ms| f64::from(ms) / 1e3).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paper() -> Transfer {
        Transfer {
            size_bytes: PAPER_SIZE_BYTES,
            rate_bps: PAPER_RATE_BPS,
            rtt_s: 0.0005,
            probe_s: 0.01,
            wink_side: WinkAt::Entry,
        }
    }

    #[test]
    fn the_grid_has_54_intervals() {
        let all = paper_intervals_s();
        assert_eq!((all.len(), all[0], all[53]), (54, 0.04, 1.1));
    }

    #[test]
    fn a_rate_can_be_chosen_for_the_papers_time() {
        let transfer = paper();
        assert!((transfer.perfect_s() - 1.738).abs() < 1e-3, "{}", transfer.perfect_s());
        let slower = Transfer { rate_bps: transfer.rate_for(1.86), ..transfer };
        assert!((slower.perfect_s() - 1.86).abs() < 1e-6);
        let none = Winks::new(0.0, 0.04).unwrap();
        assert!((slower.perfect_seconds(none, 1).unwrap() - 1.86).abs() < 1e-4);
    }

    /// A tenth of the file at a tenth of the rate, for the sake of time.
    #[test]
    fn the_mean_of_seeds_is_the_models() {
        for (p, interval_s) in [(0.1, 0.04), (0.4, 0.04), (0.4, 0.5), (0.4, 1.1)] {
            let small = Transfer { size_bytes: 209_715, rate_bps: 1_000_000, ..paper() };
            let winks = Winks::new(p, interval_s).unwrap();
            let point = Point::of(&small, winks, &(0..1_000));
            let seeds = point.perfect_seconds.unwrap();
            // Packets take 12 ms here, so each contact ends with the half of one unused.
            let unused = 1.0 + p * 0.006 / interval_s;
            let ratio = seeds.mean / (point.perfect_with_schedule_s * unused);
            assert!((ratio - 1.0).abs() < 0.03, "{p} {interval_s}: {ratio}");
            assert!(seeds.min < seeds.mean && seeds.mean < seeds.max);
        }
    }

    #[test]
    fn what_was_measured_stands_at_its_point() {
        let seconds = Spread::of(&[2.0, 4.0]).unwrap();
        assert_eq!((seconds.mean, seconds.min, seconds.max, seconds.runs), (3.0, 2.0, 4.0, 2));
        assert_eq!(Spread::of(&[]), None);
        let measured = Measured { subject: "CUBIC".into(), seconds, ratio_to_perfect: None };
        let results = Results {
            size_bytes: PAPER_SIZE_BYTES,
            rate_bps: PAPER_RATE_BPS,
            rtt_s: 0.0005,
            points: vec![(0.1, 240.0, measured.clone()), (0.2, 240.0, measured)],
        };
        let all = points(&paper(), (&[0.1, 0.4], &[0.04, 0.24]), &(0..0), Some(&results)).unwrap();
        assert_eq!(all.iter().map(|p| p.measured.len()).collect::<Vec<_>>(), [0, 1, 0, 0]);
        assert!(all[0].perfect_seconds.is_none());
    }

    #[test]
    fn what_cannot_be_modelled_is_refused() {
        let refused = |transfer: Transfer, ps: &[f64], intervals_s: &[f64]| {
            points(&transfer, (ps, intervals_s), &(0..0), None).unwrap_err().to_string()
        };
        assert!(refused(paper(), &[1.0], &[0.04]).contains("from 0 to below 1"));
        assert!(refused(paper(), &[0.1], &[0.0]).contains("longer than zero"));
        assert!(refused(paper(), &[], &[0.04]).contains("at least one"));
        assert!(refused(Transfer { rate_bps: 0, ..paper() }, &[0.1], &[0.04]).contains("a rate above zero"));
    }
}
