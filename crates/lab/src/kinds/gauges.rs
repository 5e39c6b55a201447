//! What gateways hold while transfers are under way, and how fast payload comes out at the far end
//! meanwhile: scenarios with `watches_gateways`.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use portable_atomic::AtomicU64;
use serde_json::Value;

use crate::build::Lab;
use crate::report::Measured;
use crate::scenario::Cell;

/// Round trips of the link after which transfers have settled: handshake and request take two, what
/// a gateway says of a slow receiver takes effect after the fourth, and what came too much until
/// then has been taken by the receiver.
const SETTLED_ROUND_TRIPS: f64 = 8.0;
/// Time between two looks in the laboratory; each starts a program.
const LAB_INTERVAL: Duration = Duration::from_millis(200);
/// The laboratory stops looking when nothing has arrived for so long.
const LAB_PATIENCE: Duration = Duration::from_secs(20);

/// What one gateway holds at one moment, bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Gauge {
    /// Its node.
    pub(crate) node: String,
    /// Payload in custody: acknowledged to its source and not yet by the next TCP.
    pub(crate) held: u64,
    /// Of that, what is not under way.
    pub(crate) waiting: u64,
    /// Blocks of the buffer pool.
    pub(crate) blocks: u64,
    /// What its first link that has a rate is taken to carry, bit/s; 0: none has.
    pub(crate) rate_bps: u64,
}

/// Copies that all gateways sent for the second time before a loss could be known, and tries of a
/// larger size.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Copies {
    /// Packets.
    pub(crate) packets: u64,
    /// Their IP bytes.
    pub(crate) bytes: u64,
    /// Of them, SYNs and answers to SYNs.
    pub(crate) openings: u64,
}

impl Copies {
    /// As figures of a run.
    pub(crate) fn measure(self, measured: &mut Measured) {
        measured.metric("copy_packets", self.packets as f64);
        measured.metric("copy_bytes", self.bytes as f64);
        measured.metric("openings_copied", self.openings as f64);
    }
}

/// One look.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Sample {
    /// Seconds since the transfers began.
    pub(crate) at_s: f64,
    /// Payload that has arrived.
    pub(crate) payload: u64,
    pub(crate) gateways: Vec<Gauge>,
}

impl Gauge {
    /// From what `farlink status --json` says.
    pub(crate) fn of_status(node: &str, status: &Value) -> Self {
        let engine = status.get("engine").or_else(|| status.get("gateway")?.get("engine"));
        let number = |name: &str| engine.and_then(|e| e.get(name)?.as_u64()).unwrap_or(0);
        let links = status["links"].as_array().into_iter().flatten();
        let rates = links.map(|link| {
            taken_to_carry(
                ["estimated_bps", "declared_bps", "rate_bps"].map(|at| link[at].as_u64().unwrap_or(0)),
            )
        });
        Self::new(node, number("custody_bytes"), number("in_flight_bytes"), number("pool_bytes")).at(rates)
    }

    pub(crate) fn new(node: &str, held: u64, in_flight: u64, blocks: u64) -> Self {
        Self { node: node.into(), held, waiting: held.saturating_sub(in_flight), blocks, rate_bps: 0 }
    }

    /// With what its links are taken to carry, bit/s.
    pub(crate) fn at(self, mut rates: impl Iterator<Item = u64>) -> Self {
        Self { rate_bps: rates.find(|bps| *bps > 0).unwrap_or(0), ..self }
    }
}

/// What a link is taken to carry, bit/s: what was found, or declared, or else what the queue sends
/// at now, which is more or less for a moment where something is tried.
pub(crate) fn taken_to_carry(found_declared_sent: [u64; 3]) -> u64 {
    found_declared_sent.into_iter().find(|bps| *bps > 0).unwrap_or(0)
}

/// Looks at the gateways of a laboratory until all payload has arrived.
pub(super) fn watch(lab: &Lab, arrived: &AtomicU64, total: u64) -> Vec<Sample> {
    let began = Instant::now();
    let mut samples: Vec<Sample> = Vec::new();
    let mut moved = (began, 0);
    loop {
        let payload = arrived.load(Ordering::Relaxed);
        let at_s = began.elapsed().as_secs_f64();
        let gauge = |g: &crate::gateway::Gateway| Some(Gauge::of_status(&g.node, &g.status().ok()?));
        samples.push(Sample { at_s, payload, gateways: lab.gateways.iter().filter_map(gauge).collect() });
        if payload > moved.1 {
            moved = (Instant::now(), payload);
        }
        if payload >= total || moved.0.elapsed() > LAB_PATIENCE {
            return samples;
        }
        std::thread::sleep(LAB_INTERVAL);
    }
}

/// The metrics: `egress_bps`, payload that came out at the far end from its first byte until the
/// first transfer was over; and of each gateway the most that it held (`..._held_shared_bytes`),
/// that waited (`..._waiting_shared_bytes`) and that its blocks took (`..._blocks_shared_bytes`)
/// from eight round trips on until then. Of each that has a link with a rate, the least and the
/// highest that it was taken to carry meanwhile (`..._rate_least_bps`, `..._rate_most_bps`).
pub(crate) fn of_samples(cell: &Cell, samples: &[Sample], over_s: f64, measured: &mut Measured) {
    let until = samples.iter().rposition(|s| s.at_s <= over_s);
    let Some(until) = until else { return };
    let samples = samples.get(..=until).unwrap_or_default();
    let first = samples.iter().rposition(|s| s.payload == 0);
    if let (Some(first), Some(last)) = (first.and_then(|n| samples.get(n)), samples.last())
        && last.at_s > first.at_s
    {
        measured.metric("egress_bps", 8.0 * last.payload as f64 / (last.at_s - first.at_s));
    }
    let settled_s = SETTLED_ROUND_TRIPS * cell.settings.rtt_ms / 1e3;
    for gauge in samples.iter().filter(|s| s.at_s >= settled_s).flat_map(|s| &s.gateways) {
        for (what, bytes) in [("held", gauge.held), ("waiting", gauge.waiting), ("blocks", gauge.blocks)] {
            let name = format!("{}_{what}_shared_bytes", gauge.node);
            let most = measured.metrics.get(&name).copied().unwrap_or(0.0);
            measured.metric(&name, most.max(bytes as f64));
        }
        if gauge.rate_bps > 0 {
            let rate = gauge.rate_bps as f64;
            let [least, most] = ["least", "most"].map(|what| format!("{}_rate_{what}_bps", gauge.node));
            let so_far = |name: &str| measured.metrics.get(name).copied().unwrap_or(rate);
            let bounds = (so_far(&least).min(rate), so_far(&most).max(rate));
            measured.metric(&least, bounds.0);
            measured.metric(&most, bounds.1);
        }
    }
}

/// The most that a gateway has held in order, and the most that its blocks have taken, by its own
/// count, bytes.
pub(crate) fn of_peaks(node: &str, held_max: u64, blocks_max: u64, measured: &mut Measured) {
    measured.metric(&format!("{node}_held_max_bytes"), held_max as f64);
    measured.metric(&format!("{node}_blocks_max_bytes"), blocks_max as f64);
}

/// How much a gateway held for a link in the mean when that came back, bytes.
pub(crate) fn of_returns(node: &str, times: u64, on_hand_total: u64, measured: &mut Measured) {
    if times > 0 {
        measured.metric(&format!("{node}_on_hand_bytes"), on_hand_total as f64 / times as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    #[test]
    fn only_the_shared_time_counts_and_egress_begins_with_the_first_byte() {
        let cell = Scenario::find("two-receivers").unwrap().cells().unwrap().remove(0);
        let sample = |at_s: f64, payload: u64, held: u64| Sample {
            at_s,
            payload,
            gateways: vec![Gauge::new("gw1", held, 100, 2 * held).at([0, 8 * payload, 3].into_iter())],
        };
        let samples = [
            sample(0.0, 0, 0),
            sample(3.0, 0, 900),
            sample(4.0, 1000, 700),
            sample(5.0, 2000, 500),
            sample(6.0, 2100, 5000),
        ];
        let mut measured = Measured::default();
        of_samples(&cell, &samples, 5.5, &mut measured);
        assert_eq!(measured.metrics["egress_bps"], 8.0 * 1000.0);
        assert_eq!(measured.metrics["gw1_held_shared_bytes"], 700.0);
        assert_eq!(measured.metrics["gw1_waiting_shared_bytes"], 600.0);
        assert_eq!(measured.metrics["gw1_blocks_shared_bytes"], 1400.0);
        assert_eq!(measured.metrics["gw1_rate_least_bps"], 8000.0);
        assert_eq!(measured.metrics["gw1_rate_most_bps"], 16000.0);
    }
}
