//! Hosts that lie, forged packets, blind guesses, long times. `farlink sim faults --hostile` runs
//! as many seeds as you like.

use farlink_sim::hostile::blind::{self, Guess, Kind, Name, State};
use farlink_sim::hostile::day;
use farlink_sim::hostile::work::{Case, measure};
use farlink_sim::plan::Mode;
use farlink_sim::rig::{Rig, Saying, config};
use farlink_sim::runner::{run_seed, run_seeds, trace_seed};
use farlink_sim::trace::Trace;
use farlink_wire::Duration;

#[test]
fn honest_connections_do_not_notice_liars_and_forgers() {
    let sum = run_seeds(0..60, Mode::Hostile, None, 2, 5, &|_| {});
    let failures: Vec<String> = sum.failures.iter().map(ToString::to_string).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(sum.received_bytes > 0);
}

/// `send-window` promises the source what the congestion window leaves. So the window is never
/// full, and grew by whether two segments came together: 6.5 s beside liars, 4.9 s without.
#[test]
fn a_window_that_is_all_the_source_may_use_grows() {
    let report = run_seed(1208, Mode::Hostile, None);
    assert!(report.failure.is_none(), "{report}");
}

/// A host that plays a gateway says that the link brings a bit a second. Nobody's timers wait hours
/// for answers: connections were left 2,400 s after it.
#[test]
fn no_word_of_a_rate_makes_timers_wait_for_ever() {
    for seed in [1167, 4781] {
        let report = run_seed(seed, Mode::Hostile, None);
        assert!(report.failure.is_none(), "{report}");
    }
}

/// One seed, one run.
#[test]
fn one_hostile_seed_is_one_run_bit_for_bit() {
    for seed in 0..6 {
        let (a, b) = (run_seed(seed, Mode::Hostile, None), run_seed(seed, Mode::Hostile, None));
        assert_eq!(
            (a.digest, a.packets, a.virtual_time),
            (b.digest, b.packets, b.virtual_time),
            "seed {seed}"
        );
        let traced = trace_seed(seed, Mode::Hostile, None, Trace::with_text(None));
        assert_eq!(a.digest, traced.report.digest, "seed {seed} with a trace");
        assert!(
            traced.lines.iter().any(|l| l.contains("host2 >") || l.contains("host5 >")),
            "nobody attacks"
        );
    }
}

/// Connections that speak every half a minute and sleep between leave nothing behind, however long
/// they live.
#[test]
fn memory_after_many_hours_is_what_it_was_after_one() {
    let looks = day::run(40, &[1.0, 12.0], &mut |_| {});
    let (first, last) = (looks[0], looks[1]);
    assert!(first.exchanges >= 40 * 119 && last.exchanges >= 40 * 1_439, "{first:?} {last:?}");
    assert!(
        first.held_bytes > 0 && last.held_bytes <= first.held_bytes + first.held_bytes / 100,
        "{first:?} {last:?}"
    );
    assert_eq!(last.flows.0 + last.flows.1, 40, "{last:?}");
}

/// Whatever a host says on one connection, a packet of it makes the gateway keep little, and send
/// little.
#[test]
fn one_connection_cannot_make_a_gateway_hold_or_send_much() {
    const PACKETS: usize = 3_000;
    for case in Case::ALL {
        let cost = |packets| measure(case, 10, packets, 1, &|| 0);
        let (few, many) = (cost(500), cost(PACKETS));
        assert_eq!(many.packets, PACKETS, "{many:?}");
        let grown = many.held_bytes.saturating_sub(few.held_bytes);
        assert!(grown <= 256 << 10, "{case:?}: {grown} bytes more are held");
        assert!(many.packets_out <= 8 * PACKETS as u64, "{many:?}");
        let at_stake = match case {
            // So much in flight as made it slow when each block was looked for among all segments.
            Case::SackCuts | Case::Runs => 512 << 10,
            Case::TinySegments | Case::EarlyChunks => 1_000,
            Case::Honest | Case::Fragments => 0,
        };
        assert!(many.at_stake_bytes >= at_stake, "{many:?}: little is attacked");
    }
}

/// Very many connections wait for one link. Those behind the first ones go on a moment later, so
/// that nobody's packet waits for all of them.
#[test]
fn a_link_that_is_back_makes_no_packet_wait_for_all_its_connections() {
    const FLOWS: usize = 600;
    let mut rig = Rig::new(config(Some(1_000_000_000)), FLOWS);
    for n in 0..FLOWS {
        rig.flows[n][1].deaf = true;
        rig.send(n, 0, 1_000);
    }
    rig.pass(Duration::from_millis(10));
    rig.link_state(false);
    rig.pass(Duration::from_secs(5));
    // What is lost is under way no longer.
    let told =
        |rig: &Rig| rig.gateway.flows(rig.now, FLOWS).iter().filter(|f| f.in_flight_b_bytes == 0).count();
    assert_eq!(told(&rig), 0);
    let before = rig.packets_out;
    rig.link_state(true);
    let at_once = told(&rig);
    assert!((1..=100).contains(&at_once), "{at_once} of {FLOWS}");
    rig.pass(Duration::from_millis(20));
    assert_eq!(rig.packets_out - before, FLOWS as u64, "each sends what the link has lost");
}

/// A connection is waited for once, however often the time changes at which something is due. Times
/// that nobody waits for any longer would have to be cleared away some day, and the packet that
/// comes just then would wait for all of them.
#[test]
fn a_connection_has_one_timer_however_often_its_time_changes() {
    const FLOWS: usize = 20;
    let mut rig = Rig::new(config(None), FLOWS);
    for i in 0..10_000 {
        rig.say(i % FLOWS, 0, &Saying { len: 100, ..Saying::default() });
        rig.settle(i % FLOWS);
        rig.pass(farlink_wire::Duration::from_millis(3));
    }
    let bytes = rig.gateway.status().engine.memory.timers_bytes;
    assert!((1..=100 * FLOWS as u64).contains(&bytes), "{bytes} bytes of timers for {FLOWS} connections");
}

/// The kind that larger windows would make easier: forged data is refused by the age of its
/// acknowledgement.
#[test]
fn forged_data_is_guessed_no_more_easily_with_gateways() {
    for (state, name) in
        [(State::Quiet, Name::Client), (State::Asleep, Name::Client), (State::Asleep, Name::Server)]
    {
        let compared = blind::compare(Kind { guess: Guess::Data, state, timestamps: true, name }, 8, 4_096);
        assert!(compared.direct.harmed > 0, "{compared:?}: nothing is guessed even without gateways");
        assert!(!compared.is_easier(), "{compared:?}");
    }
}
