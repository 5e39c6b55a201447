//! The controller alone: what shows a bottleneck, and what does not.

use super::*;
use crate::{Kind, Sample};

/// A link that is said to carry so much, bits per second, and a handshake of 500 ms.
fn on_long_path(rate_bps: u64) -> KnownRate {
    KnownRate::new(&Config {
        kind: Kind::KnownRate,
        mss: 1448,
        fixed_rate_bps: Some(rate_bps),
        handshake_rtt: Some(Duration::from_millis(500)),
        ..Config::default()
    })
}

/// Whether BBR takes over where this is lost of 70 KB in a round trip.
fn gives_way(lost_bytes: u64, segments: u64) -> bool {
    after_losses(lost_bytes, segments).has_given_way()
}

/// The same.
fn after_losses(lost_bytes: u64, segments: u64) -> KnownRate {
    let rate = Some(8_000_000);
    let mut cc = KnownRate::new(&Config {
        kind: Kind::KnownRate,
        mss: 1448,
        fixed_rate_bps: rate,
        ..Config::default()
    });
    let (now, rtt) = (Instant::from_millis(1_000), Duration::from_millis(20));
    cc.on_lost(&Lost {
        now,
        bytes: lost_bytes,
        segments,
        tx_in_flight_bytes: 70_000,
        lost_since_sent_bytes: lost_bytes,
        app_limited: false,
        continues: false,
        delivered_bytes: 0,
    });
    cc.on_ack(&Ack {
        now,
        acked_bytes: 70_000 - lost_bytes,
        rtt: Some(rtt),
        srtt: rtt,
        min_rtt: rtt,
        in_flight_bytes: 0,
        prior_in_flight_bytes: 70_000,
        sample: Sample::default(),
        app_limited: false,
        in_recovery: false,
        round_start: true,
        waited_back: None,
    });
    cc
}

/// Acknowledgements that arrive at half of 8 Mbit/s, each later than the one before, from this
/// RTT on.
fn wait(cc: &mut KnownRate, from_ms: u64) {
    for n in 0..64 {
        let (now, rtt) = (Instant::from_millis(5_000 + from_ms + 3 * n), from_ms + n + n / 2);
        cc.on_ack(&Ack {
            now,
            acked_bytes: 1_448,
            rtt: Some(Duration::from_millis(rtt)),
            srtt: Duration::from_millis(rtt),
            min_rtt: Duration::from_millis(500),
            in_flight_bytes: 70_000,
            prior_in_flight_bytes: 70_000,
            sample: Sample::default(),
            app_limited: false,
            in_recovery: false,
            round_start: false,
            waited_back: None,
        });
    }
}

#[test]
fn who_has_waited_for_a_link_that_carries_less_goes_back_to_its_queue() {
    let mut cc = on_long_path(8_000_000);
    wait(&mut cc, 560);
    assert!(cc.has_given_way(), "something is slow");
    cc.set_link_rate(7_950_000, true);
    assert!(cc.has_given_way(), "that is no news");
    cc.set_link_rate(4_000_000, true);
    assert!(!cc.has_given_way(), "it was the link");
    wait(&mut cc, 700);
    assert!(!cc.has_given_way(), "what had been sent before waits still");
    let mut other = cc.clone();
    other.draining_rounds = 0;
    wait(&mut other, 560);
    assert!(!other.has_given_way(), "others see to so short a queue");
    wait(&mut other, 700);
    assert!(!other.has_given_way(), "it comes as fast as the link sends");
    cc.set_link_rate(8_000_000, false);
    cc.draining_rounds = 0;
    // The trains before were far apart, and that is delay that jitters until these go on for long.
    wait(&mut cc, 800);
    wait(&mut cc, 896);
    wait(&mut cc, 992);
    assert!(cc.has_given_way());
}

#[test]
fn the_loss_of_one_large_segment_says_nothing_of_a_bottleneck() {
    assert!(gives_way(28_960, 20), "twenty packets of fifty are more than a link corrupts");
    assert!(!gives_way(26_608, 1));
}

#[test]
fn what_was_not_lost_is_no_bottleneck() {
    let mut cc = after_losses(39_096, 27);
    assert!(cc.has_given_way());
    cc.on_found(14_480, 10);
    assert!(cc.has_given_way(), "as much is lost as before");
    cc.on_found(14_480, 10);
    assert!(!cc.has_given_way(), "packets overtake each other");
    assert_eq!((cc.patience_rounds, cc.free, cc.moves), (TRIAL_ROUNDS, 0, false));
}

/// Before anybody knows how much it varies it may by a quarter of the smallest one: 8 Mbit/s, 16
/// segments at once.
#[test]
fn a_first_flight_that_is_held_by_chance_is_no_bottleneck() {
    for (later_ms, is_slow) in [(6, false), (12, true)] {
        let mut cc = on_long_path(100_000_000);
        for n in 0..24 {
            let rtt = Duration::from_millis(510 + later_ms * n);
            cc.on_ack(&Ack {
                now: Instant::from_millis(1_510 + later_ms * n),
                acked_bytes: 1_448,
                rtt: Some(rtt),
                srtt: rtt,
                min_rtt: Duration::from_millis(500),
                in_flight_bytes: 30_000,
                prior_in_flight_bytes: 30_000,
                sample: Sample::default(),
                app_limited: false,
                in_recovery: false,
                round_start: false,
                waited_back: None,
            });
        }
        assert_eq!(cc.has_given_way(), is_slow, "{later_ms} ms each");
    }
}

/// Acknowledgements at the link's rate, 8 Mbit/s, whose RTT varies by up to 40 ms.
#[test]
fn delay_that_rises_and_falls_is_no_bottleneck() {
    let mut cc = KnownRate::new(&Config {
        kind: Kind::KnownRate,
        mss: 1448,
        fixed_rate_bps: Some(8_000_000),
        ..Config::default()
    });
    for n in 0..2_000_u64 {
        let (now, rtt) = (Instant::from_micros(50_000 + 1_448 * n), 30 + (n / 8 * 7_919) % 41);
        cc.on_ack(&Ack {
            now,
            acked_bytes: 1_448,
            rtt: Some(Duration::from_millis(rtt)),
            srtt: Duration::from_millis(rtt),
            min_rtt: Duration::from_millis(30),
            in_flight_bytes: 70_000,
            prior_in_flight_bytes: 70_000,
            sample: Sample::default(),
            app_limited: false,
            in_recovery: false,
            round_start: n % 48 == 0,
            waited_back: None,
        });
        assert!(!cc.has_given_way(), "after {n} acknowledgements");
    }
}

#[test]
fn a_timeout_before_the_first_rtt_was_a_guess() {
    let config =
        Config { kind: Kind::KnownRate, mss: 1448, fixed_rate_bps: Some(8_000_000), ..Config::default() };
    let mut cc = KnownRate::new(&config);
    cc.on_rto(Instant::from_millis(1_000), 32 * 1_448, 0);
    assert!(!cc.has_given_way());
    let mut cc = KnownRate::new(&Config { handshake_rtt: Some(Duration::from_millis(20)), ..config });
    cc.on_rto(Instant::from_millis(1_000), 32 * 1_448, 0);
    assert!(cc.has_given_way());
}

#[test]
fn what_is_not_known_to_be_steady_is_tried_again_soon() {
    let mut cc = on_long_path(8_000_000);
    cc.arrived_bps = 4_000_000;
    for ms in [0, 900, 1_800] {
        cc.give_way(Instant::from_millis(10_000 + ms));
        assert_eq!(cc.patience_rounds, TRIAL_ROUNDS);
    }
    for n in 1..4 {
        cc.give_way(Instant::from_millis(13_000));
        assert_eq!(cc.patience_rounds, TRIAL_ROUNDS << n, "it is steady");
    }
}

#[test]
fn a_startup_is_no_slower_for_round_trips_without_a_queue() {
    let mut cc = on_long_path(8_000_000);
    // Before anything has arrived, and so without a rate to go on from.
    cc.on_congestion(Instant::from_millis(900), Congestion::Ecn, 14_480);
    let rtt = Duration::from_millis(500);
    let mut sent = 14_480;
    for n in 1..6 {
        cc.on_ack(&Ack {
            now: Instant::from_millis(1_000 + 500 * n),
            acked_bytes: sent,
            rtt: Some(rtt),
            srtt: rtt,
            min_rtt: rtt,
            in_flight_bytes: 0,
            prior_in_flight_bytes: sent,
            sample: Sample { rate_bps: Some(sent * 16), ..Sample::default() },
            app_limited: false,
            in_recovery: false,
            round_start: true,
            waited_back: None,
        });
        assert!(cc.has_given_way() && cc.in_startup(), "round trip {n}: nothing is tried beside it");
        assert!(cc.cwnd() >= 2 * sent - 14_480, "round trip {n}: {} after {sent}", cc.cwnd());
        sent = cc.cwnd();
    }
}
