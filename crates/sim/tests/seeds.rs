//! A few hundred seeds of each mode. `farlink sim faults` runs as many as you like.

use farlink_gateway::config::{FlowControl, Pinned};
use farlink_sim::plan::{FaultPlan, Mode, SimPlan};
use farlink_sim::runner::{run_plan, run_seed, run_seeds};
use farlink_sim::trace::Trace;

fn pass(mode: Mode, policy: Option<FlowControl>, seeds: std::ops::Range<u64>) {
    let sum = run_seeds(seeds, mode, policy, 2, 5, &|_| {});
    let failures: Vec<String> = sum.failures.iter().map(ToString::to_string).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(sum.received_bytes > 0);
}

#[test]
fn clean_paths() {
    pass(Mode::Clean, None, 0..100);
}

#[test]
fn routes_move_round_gateways_during_transfers() {
    pass(Mode::RouteFlap, None, 0..100);
}

#[test]
fn mixed_faults() {
    pass(Mode::Mixed, None, 0..100);
}

/// A gateway asked for itself, and the question went on to the host with its acknowledgement.
#[test]
fn a_question_of_a_gateway_promises_no_host_anything() {
    pass(Mode::Mixed, None, 5_687..5_688);
}

#[test]
fn gateways_that_promise_nothing() {
    pass(Mode::Custody, None, 0..60);
}

/// Configurations, actions, clocks and sequence numbers change while connections are open.
#[test]
fn all_that_changes() {
    pass(Mode::Changing, None, 0..100);
}

/// Beside what changes a seed means what it means in the mode that it has its trouble from, and
/// each kind of change happens in many seeds.
#[test]
fn what_changes_comes_beside_the_rest() {
    let mut happens = [0; 6];
    for seed in 0..1_000 {
        let plan = SimPlan::from_seed(seed, Mode::Changing, None);
        let usual = SimPlan::from_seed(seed, plan.trouble(), None);
        let has = |of: fn(&FaultPlan) -> bool| plan.faults.iter().any(of);
        let is_new = |f: &&FaultPlan| matches!(f, FaultPlan::Reload { .. } | FaultPlan::Standstill { .. });
        let old = plan.faults.iter().filter(|f| !is_new(f)).count();
        let is_same = usual.gateways.len() == plan.gateways.len();
        assert!(!is_same || old == usual.faults.len(), "seed {seed}");
        assert_eq!(plan.hosts.len(), usual.hosts.len(), "seed {seed}");
        let kinds = [
            has(|f| matches!(f, FaultPlan::Reload { .. })),
            plan.changing.notices.iter().any(Option::is_some),
            has(|f| matches!(f, FaultPlan::Standstill { .. })),
            plan.changing.rate_in.iter().any(Option::is_some),
            plan.changing.oversize.iter().any(Option::is_some) && plan.changing.talk.is_some(),
            plan.changing.jump.is_some_and(|j| u64::from(j.step_bytes) * u64::from(j.steps) > 1 << 31),
        ];
        std::iter::zip(&mut happens, kinds).for_each(|(n, does)| *n += u32::from(does));
    }
    assert!(happens.iter().all(|n| *n >= 30), "{happens:?} of 1,000 seeds");
}

#[test]
fn windows_that_follow_the_need() {
    for mode in Mode::ALL {
        pass(mode, Some(FlowControl::Automatic), 0..60);
    }
}

/// Gateways that may hold more than hosts without window scaling can be shown do so, and others
/// never.
#[test]
fn some_flows_depend_on_their_gateways() {
    let mut pinned = 0;
    for seed in 0..60 {
        let plan = SimPlan::from_seed(seed, Mode::Clean, None);
        let may = plan.gateways.iter().any(|g| g.config.pinned != Pinned::Never);
        let report = run_plan(&plan, Trace::default()).report;
        assert_eq!(report.failure, None, "seed {seed}");
        assert!(may || report.beyond_windows_bytes == 0, "seed {seed}");
        pinned += u64::from(report.beyond_windows_bytes > 65_535);
        if may {
            let mut free = plan.clone();
            free.gateways.iter_mut().for_each(|g| g.config.pinned = Pinned::Never);
            let report = run_plan(&free, Trace::default()).report;
            assert_eq!((report.failure, report.beyond_windows_bytes), (None, 0), "seed {seed}, never pinned");
        }
    }
    assert!(pinned >= 3, "only {pinned} of 60 seeds have flows that depend on their gateways");
}

/// A flow that was made large enough to fill its path kept the small steps of a small one, and took
/// more than six hours.
#[test]
fn no_application_takes_its_time_for_hours() {
    for mode in Mode::ALL {
        for seed in 0..5_000 {
            for c in SimPlan::from_seed(seed, mode, None).connections {
                for (writer, reader) in [(&c.sides[0], &c.sides[1]), (&c.sides[1], &c.sides[0])] {
                    let written = writer.send_bytes / writer.write_bytes as u64;
                    let read = writer.send_bytes / reader.read_bytes as u64;
                    for (steps, gap) in [(written, writer.write_gap), (read, reader.read_gap)] {
                        let most = 60_000 + steps;
                        let takes = gap.as_nanos() as u64 * steps / 1_000_000;
                        assert!(takes <= most, "seed {seed} of {}: {takes} ms", mode.name());
                    }
                }
            }
        }
    }
}

/// A host without SACK whose head was sent in pieces of 8 bytes got one of them in each round trip.
#[test]
fn small_pieces_that_are_lost_are_repeated_together() {
    pass(Mode::RouteFlap, Some(FlowControl::Automatic), 258..259);
}

/// What a gateway had acknowledged was dropped where its source went by a window that another
/// gateway had told it.
#[test]
fn a_gateway_that_is_gone_round_keeps_what_it_owes() {
    pass(Mode::Mixed, Some(FlowControl::Fixed), 194..195);
}

/// A host that took nothing behind an old acknowledgement was sent the same segment until it was
/// reset.
#[test]
fn data_arrives_behind_an_old_acknowledgement() {
    pass(Mode::Mixed, None, 2611..2612);
}

/// A host whose connection was over answered late copies with a number that nobody could take.
#[test]
fn a_closed_port_ends_what_is_held_for_it() {
    pass(Mode::Mixed, None, 3711..3712);
}

/// The acknowledgements with the largest windows were lost, and the observer took the next one's
/// for the bound of custody.
#[test]
fn a_window_counts_as_shown_though_its_segment_is_lost() {
    pass(Mode::Mixed, None, 6739..6740);
}

/// A segment without payload and timestamps was edited, waited in the link's queue, and was taken
/// for one of the gateway's own.
#[test]
fn what_waits_for_the_link_is_forwarded_still() {
    pass(Mode::Mixed, None, 8206..8207);
}

/// Invariant 9: one seed, one run.
#[test]
fn one_seed_is_one_run_bit_for_bit() {
    for seed in 0..20 {
        let (a, b) = (run_seed(seed, Mode::Mixed, None), run_seed(seed, Mode::Mixed, None));
        assert_eq!(a.digest, b.digest, "seed {seed}");
        assert_eq!((a.packets, a.virtual_time), (b.packets, b.virtual_time));
        // A trace watches; it does not touch.
        let traced =
            run_plan(&SimPlan::from_seed(seed, Mode::Mixed, None), Trace::with_text(None).and_captures());
        assert_eq!(a.digest, traced.report.digest, "seed {seed} with a trace");
        assert!(!traced.lines.is_empty());
    }
    assert_ne!(run_seed(1, Mode::Mixed, None).digest, run_seed(2, Mode::Mixed, None).digest);
}
