//! A few hundred seeds of each mode. `farlink sim faults` runs as many as you like.

use farlink_sim::plan::{Mode, SimPlan};
use farlink_sim::runner::{run_plan, run_seed, run_seeds};
use farlink_sim::trace::Trace;

fn pass(mode: Mode, seeds: std::ops::Range<u64>) {
    let sum = run_seeds(seeds, mode, 2, 5, &|_| {});
    let failures: Vec<String> = sum.failures.iter().map(ToString::to_string).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(sum.received_bytes > 0);
}

#[test]
fn clean_paths() {
    pass(Mode::Clean, 0..100);
}

#[test]
fn routes_move_round_gateways_during_transfers() {
    pass(Mode::RouteFlap, 0..100);
}

#[test]
fn mixed_faults() {
    pass(Mode::Mixed, 0..100);
}

/// Invariant 9: one seed, one run.
#[test]
fn one_seed_is_one_run_bit_for_bit() {
    for seed in 0..20 {
        let (a, b) = (run_seed(seed, Mode::Mixed), run_seed(seed, Mode::Mixed));
        assert_eq!(a.digest, b.digest, "seed {seed}");
        assert_eq!((a.packets, a.virtual_time), (b.packets, b.virtual_time));
        // A trace watches; it does not touch.
        let traced = run_plan(&SimPlan::from_seed(seed, Mode::Mixed), Trace::with_text(None).and_captures());
        assert_eq!(a.digest, traced.report.digest, "seed {seed} with a trace");
        assert!(!traced.lines.is_empty());
    }
    assert_ne!(run_seed(1, Mode::Mixed).digest, run_seed(2, Mode::Mixed).digest);
}
