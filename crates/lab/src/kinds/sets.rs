//! The two sets of thesis table 5.13: transfers of far clients (H, beyond the link) and of near
//! ones (L) that share the server's Ethernet. How much of it each set gets while both are active.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::metrics;
use super::transfer::is_upload;
use crate::build::Lab;
use crate::netns::Ns;
use crate::report::Measured;
use crate::scenario::{Cell, Scenario};

/// Time between two looks at the counters.
const INTERVAL: Duration = Duration::from_millis(farlink_sim::meter::INTERVAL_MS);
/// A set is active from the first to the last of these shares of its bytes: before and after are
/// handshakes and ends.
const ACTIVE_SHARES: [f64; 2] = [0.02, 0.98];

/// Whether a cell has two sets.
pub(crate) fn has_sets(scenario: &Scenario, cell: &Cell) -> bool {
    cell.word("topology", &scenario.topology) == "fairness"
}

/// Bytes of the far and the near client's transfers that crossed the hub so far, at each look.
pub(crate) type Series = Vec<[u64; 2]>;

/// A running count at the router behind the server's Ethernet.
pub(super) struct Counting {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Series>,
}

impl Counting {
    /// Counts, where the cell has two sets.
    pub(super) fn start(scenario: &Scenario, cell: &Cell, lab: &Lab) -> Result<Option<Self>> {
        if !has_sets(scenario, cell) {
            return Ok(None);
        }
        let ns = lab.ns("hub");
        let is_upload = is_upload(cell);
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let count = move || {
            let mut series = Series::new();
            let mut next = Instant::now();
            while !seen.load(Ordering::Relaxed) {
                series.extend(crossed_hub(&ns, is_upload));
                next += INTERVAL;
                std::thread::sleep(next.saturating_duration_since(Instant::now()));
            }
            series.extend(crossed_hub(&ns, is_upload));
            series
        };
        let thread = std::thread::Builder::new().name("counting".into()).spawn(count)?;
        Ok(Some(Self { stop, thread }))
    }

    /// Ends it.
    pub(super) fn finish(self) -> Series {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}

/// Bytes that the hub has sent towards the far and the near client, or has received from them, by
/// the kernel's counters.
fn crossed_hub(ns: &Ns, is_upload: bool) -> Option<[u64; 2]> {
    let text = ns.enter(|| Ok(std::fs::read_to_string("/proc/thread-self/net/dev")?)).ok()?;
    // Eight numbers of what was received, and what was sent.
    let column = if is_upload { 0 } else { 8 };
    let crossed = |interface: &str| -> Result<u64> {
        let line = text.lines().find_map(|l| l.trim().strip_prefix(interface)?.strip_prefix(':'));
        let word = line.and_then(|l| l.split_ascii_whitespace().nth(column)).context("no such interface")?;
        Ok(word.parse()?)
    };
    Some([crossed("to-gw2").ok()?, crossed("to-client2").ok()?])
}

/// What part of the bytes that crossed while both sets were active was the far set's: `share_high`.
pub(crate) fn share(series: &Series, measured: &mut Measured) {
    let (Some(first), Some(last)) = (series.first(), series.last()) else { return };
    let total = [last[0] - first[0], last[1] - first[1]];
    let is_below =
        |now: &[u64; 2], set: usize, share: f64| ((now[set] - first[set]) as f64) < share * total[set] as f64;
    let [from, until] = ACTIVE_SHARES;
    let begun = series.iter().rposition(|now| (0..2).any(|set| is_below(now, set, from))).unwrap_or(0);
    let ends = |now: &[u64; 2]| (0..2).all(|set| is_below(now, set, until));
    let Some(end) = series.iter().rposition(ends).filter(|end| *end > begun) else { return };
    let crossed = [0, 1].map(|set| (series[end][set] - series[begun][set]) as f64);
    let both = crossed[0] + crossed[1];
    if both > 0.0 {
        measured.metric("share_high", crossed[0] / both);
        measured.metric("both_active_seconds", (end - begun) as f64 * INTERVAL.as_secs_f64());
    }
}

/// Goodput of the flows of each set: every other one is of the far set.
pub(crate) fn of_flows(bytes_per_s: &[f64], measured: &mut Measured) {
    for (name, first) in [("high", 0), ("low", 1)] {
        let set: Vec<f64> = bytes_per_s.iter().skip(first).step_by(2).copied().collect();
        let mut of_set = Measured::default();
        metrics::of_flows(&set, &mut of_set);
        for (metric, value) in of_set.metrics {
            measured.metric(&format!("{name}_{metric}"), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_that_of_the_time_when_both_are_active() {
        let mut measured = Measured::default();
        // The far set begins one interval later and ends first; alone, the near one gets
        // everything.
        let series = vec![[0, 0], [0, 50], [60, 100], [120, 140], [180, 180], [200, 300], [200, 400]];
        share(&series, &mut measured);
        assert_eq!(measured.metrics["share_high"], 180.0 / 310.0);
        assert_eq!(measured.metrics["both_active_seconds"], 0.06);
    }
}
