//! Transfers by the clock of a source that sends unasked.
//!
//! The thesis measured many flows with DBS: connections are up, all sources begin, and the
//! receivers count (thesis 5.2.1). No request crosses the path before. Ours are asked, so by their
//! own clock they are half a round trip later; here both stand side by side.

use super::{metrics, sets, transfer};
use crate::limit::{Clock, Job};
use crate::report::Measured;
use crate::scenario::{Cell, Scenario};

/// Metrics that begin with `source_`, where the paper's clock is the source's. Each flow: its
/// bytes, and its seconds from the moment at which the source began to send; without those of all
/// flows there is nothing to say.
pub(crate) fn measure(
    scenario: &Scenario,
    cell: &Cell,
    flows: &[(u64, Option<f64>)],
    measured: &mut Measured,
) {
    if scenario.paper_clock != Some(Clock::Source) {
        return;
    }
    let Some(times) = flows.iter().map(|(_, s)| *s).collect::<Option<Vec<f64>>>() else { return };
    let longest = times.iter().copied().fold(0.0, f64::max);
    if longest <= 0.0 {
        return;
    }
    let bytes: u64 = flows.iter().map(|(bytes, _)| bytes).sum();
    let rates: Vec<f64> =
        flows.iter().zip(&times).map(|((bytes, _), s)| *bytes as f64 / s.max(1e-9)).collect();
    let mut by_source = Measured::default();
    by_source.metric("seconds", longest);
    // All flows together. The mean of their rates counts those that end first more than those that
    // end last.
    by_source.metric("goodput_bps", 8.0 * bytes as f64 / longest);
    metrics::of_flows(&rates, &mut by_source);
    if sets::has_sets(scenario, cell) {
        sets::of_flows(&rates, &mut by_source);
    } else if !cell.settings.is_scheduled() {
        let limit = Job { clock: Clock::Source, ..transfer::limit_of(scenario, cell) }.seconds();
        by_source.metric("limit_seconds", limit);
        // What each has when all end together at the limit. A mean of rates beyond it comes of
        // unequal shares.
        by_source.metric("equal_flow_goodput_bps", 8.0 * cell.number("size_bytes", 0) as f64 / limit);
    }
    for (name, value) in by_source.metrics {
        measured.metric(&format!("source_{name}"), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(flows: &[(u64, Option<f64>)]) -> Measured {
        let scenario = Scenario::find("thesis-parallel").unwrap();
        let cells = scenario.cells().unwrap();
        let is_meant = |c: &&Cell| {
            c.variant == "farlink" && c.number("flows", 0) == 10 && c.word("hosts", "") == "modern"
        };
        let mut measured = Measured::default();
        measure(&scenario, cells.iter().find(is_meant).unwrap(), flows, &mut measured);
        measured
    }

    #[test]
    fn a_mean_of_rates_grows_with_unequal_shares_and_the_sum_does_not() {
        let equal = measured(&[(10_240, Some(2.0)), (10_240, Some(2.0))]).metrics;
        let unequal = measured(&[(10_240, Some(1.0)), (10_240, Some(2.0))]).metrics;
        assert!(unequal["source_flow_goodput_bps"] > equal["source_flow_goodput_bps"]);
        assert_eq!(unequal["source_goodput_bps"], equal["source_goodput_bps"]);
        assert!(unequal["source_jain"] < equal["source_jain"]);
        // Half a round trip, and ten times 10,240 bytes in 8 packets with 52 bytes of headers each,
        // at 8 Mbit/s.
        let limit = 0.25 + 8.0 * 10.0 * (10_240.0 + 8.0 * 52.0) / 8e6;
        assert!((equal["source_limit_seconds"] - limit).abs() < 1e-6, "{limit}");
    }

    #[test]
    fn nothing_is_said_of_a_run_in_which_a_source_never_began() {
        assert!(measured(&[(10_240, Some(2.0)), (0, None)]).metrics.is_empty());
    }
}
