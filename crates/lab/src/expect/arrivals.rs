//! How late bytes are: when each arrived in one run, against the same byte in another one.

use crate::report::CellReport;

/// The name of what is compared.
pub(super) const MEASURE: &str = "arrivals";

/// How late the latest byte of a run is, in seconds: by when the same byte came in that run of the
/// other cell against which it is least late. A share of that time may be added. `None`: arrivals
/// are not told.
pub(super) fn late_s(run: &CellReport, others: &[&CellReport], tolerance: f64) -> Option<f64> {
    if !run.intact {
        return Some(f64::INFINITY);
    }
    let against = |other: &&CellReport| {
        let (ours, theirs) = (&run.arrivals_s, &other.arrivals_s);
        let late = ours.iter().zip(theirs).map(|(ours, theirs)| ours - theirs * (1.0 + tolerance));
        late.reduce(f64::max).filter(|_| other.intact && ours.len() == theirs.len())
    };
    others.iter().filter_map(against).reduce(f64::min)
}

/// The longest time between two parts of a download that are told.
pub(super) fn longest_gap_s(run: &CellReport) -> Option<f64> {
    run.arrivals_s.windows(2).map(|pair| pair[1] - pair[0]).reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(arrivals_s: &[f64]) -> CellReport {
        serde_json::from_value(serde_json::json!({
            "params": {}, "variant": "farlink", "repeat": 0, "seed": 1, "seconds": 4.0, "goodput_bps": null,
            "limit_seconds": null, "ratio_to_limit": null, "intact": true, "paper_seconds": null, "arrivals_s": arrivals_s,
        }))
        .unwrap()
    }

    #[test]
    fn the_latest_byte_counts_whenever_the_last_one_comes() {
        let (slow, quick) = (run(&[1.0, 2.0, 3.0]), run(&[1.0, 1.5, 2.0]));
        let ours = run(&[1.0, 2.6, 2.9]);
        let late = |run: &CellReport, others: &[&CellReport]| late_s(run, others, 0.0);
        assert!((late(&ours, &[&quick, &slow]).unwrap() - 0.6).abs() < 1e-9, "against the slow one");
        assert!((late(&ours, &[&quick]).unwrap() - 1.1).abs() < 1e-9);
        assert!((longest_gap_s(&ours).unwrap() - 1.6).abs() < 1e-9);
        assert!((late_s(&ours, &[&slow], 0.1).unwrap() - 0.4).abs() < 1e-9, "a tenth of two seconds more");
        assert_eq!(late(&ours, &[&run(&[])]), None);
        let broken = CellReport { intact: false, ..ours.clone() };
        assert_eq!(late(&broken, &[&slow]), Some(f64::INFINITY));
        assert_eq!(late(&ours, &[&CellReport { intact: false, ..slow.clone() }]), None);
    }
}
