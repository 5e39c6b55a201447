//! Delays, losses and rates that move by themselves.

mod common;

use common::{Packet, at_ms, ms, numbers, packet, run, stream};
use farlink_channel::{ChannelConfig, DelayChange, Demand, LossChange, Phases, RateChange, perfect_arrival};
use farlink_wire::time::{Duration, Instant};

const RATE_BPS: u64 = 12_000_000;

fn line() -> ChannelConfig {
    ChannelConfig { rate_bps: Some(RATE_BPS), delay: ms(50), ..ChannelConfig::default() }
}

fn step(at: u64, delay: u64) -> DelayChange {
    DelayChange { at: ms(at), until: ms(at), delay: ms(delay) }
}

fn waits_ms(delivered: &[(u64, Packet)]) -> Vec<u64> {
    let waits = delivered.iter().map(|(at, p)| at / 1_000_000 - u64::from(p.number));
    waits.collect()
}

#[test]
fn a_delay_that_falls_overtakes_only_where_it_may() {
    let falls = ChannelConfig { delay_changes: vec![step(100, 80), step(200, 20)], ..line() };
    let kept = ChannelConfig { jitter_keeps_order: true, ..falls.clone() };
    let (_, delivered) = run(kept, 1, &stream(300));
    assert_eq!(numbers(&delivered), (0..300).collect::<Vec<_>>());
    let waits = waits_ms(&delivered);
    // A packet takes a millisecond to leave.
    assert_eq!((waits[0], waits[98], waits[99], waits[198]), (51, 51, 81, 81));
    // What leaves at 200 ms waits for the one that left a millisecond before.
    assert_eq!((waits[199], waits[229], waits[299]), (80, 50, 21));
    let (_, delivered) = run(falls, 1, &stream(300));
    assert_ne!(numbers(&delivered), (0..300).collect::<Vec<_>>());
    assert_eq!(delivered.len(), 300);
}

#[test]
fn a_ramp_delays_each_packet_by_a_little_more() {
    let ramp = DelayChange { at: ms(0), until: ms(100), delay: ms(150) };
    let (_, delivered) = run(ChannelConfig { delay_changes: vec![ramp], ..line() }, 1, &stream(100));
    let waits = waits_ms(&delivered);
    let expected: Vec<u64> = (0..100).map(|n| 50 + (n + 1) + 1).collect();
    assert_eq!(waits, expected);
}

#[test]
fn packets_leave_at_the_ends_of_frames_in_their_order() {
    for jitter_keeps_order in [true, false] {
        let framed = ChannelConfig { jitter_frame: ms(20), jitter: ms(3), jitter_keeps_order, ..line() };
        let (_, delivered) = run(framed, 1, &stream(100));
        assert!(delivered.iter().all(|(at, _)| at % 20_000_000 == 0));
        assert!(delivered.iter().all(|(at, p)| at / 1_000_000 - u64::from(p.number) <= 51 + 3 + 20));
        assert_eq!(delivered.len(), 100);
        if jitter_keeps_order {
            assert_eq!(numbers(&delivered), (0..100).collect::<Vec<_>>());
        }
    }
}

#[test]
fn losses_change_over_time() {
    let changes = [(100, 1.0), (200, 0.0)].map(|(at, loss)| LossChange { at: ms(at), loss });
    let (channel, delivered) =
        run(ChannelConfig { loss_changes: changes.to_vec(), ..line() }, 1, &stream(300));
    assert_eq!((delivered.len(), channel.stats().dropped_loss), (200, 100));
}

#[test]
fn capacity_by_demand_is_late_and_bounded() {
    let demand = Demand { least_bps: 120_000, most_bps: 1_200_000, latency: ms(600) };
    let config = ChannelConfig { demand: Some(demand), ..line() };
    // 30 packets of 1,500 bytes: at the least rate one takes 100 ms, at the most 10.
    let burst: Vec<_> = (0..30).map(|n| (0, packet(n, 1500))).collect();
    let (_, delivered) = run(config.clone(), 1, &burst);
    let at: Vec<u64> = delivered.iter().map(|(at, _)| at / 1_000_000).collect();
    assert_eq!((at[0], at[5]), (150, 650), "the least, until what was asked for is there");
    assert!(at[29] < 650 + 30 + 600 + 100, "what waits has left a round of asking later: {at:?}");
    assert!(at[29] > 650 + 240, "never more than the most: {at:?}");
    // A stream of half the most has what it sends, late by what it took to get it.
    let steady: Vec<_> = (0..300).map(|n| (u64::from(n) * 20_000_000, packet(n, 1500))).collect();
    let (_, delivered) = run(config.clone(), 1, &steady);
    let (last, packet) = delivered[299];
    let late = Duration::from_nanos(last - u64::from(packet.number) * 20_000_000);
    assert!(late < ms(50 + 100), "{late:?}");
    // Long after it, nothing is left of it.
    let mut again = steady;
    again.push((20_000_000_000, packet));
    let (_, delivered) = run(config.clone(), 1, &again);
    assert_eq!(delivered[300].0, 20_150_000_000);
    assert_eq!(perfect_arrival(&[config], 0, Instant::ZERO, 1_500, 1_500), None);
}

/// What always waits arrives when a perfect sender's does.
#[test]
fn a_perfect_sender_is_what_a_full_queue_is() {
    let phases = Phases {
        period: ms(700),
        delay: (ms(20), ms(60)),
        rate_bps: [(6_000_000, RATE_BPS); 2],
        away: (ms(70), ms(90)),
    };
    for seed in 0..20 {
        let planned = phases.plan(seed, true);
        let leo = ChannelConfig {
            contact_plan: planned.contacts,
            contact_hold: true,
            delay_changes: planned.delay_changes,
            rate_changes: planned.rate_changes,
            jitter_keeps_order: true,
            ..line()
        };
        let slots = ChannelConfig { jitter_frame: ms(5), ..leo.clone() };
        let moving = ChannelConfig {
            delay_changes: vec![step(100, 90), DelayChange { at: ms(300), until: ms(900), delay: ms(10) }],
            rate_changes: vec![RateChange { at: ms(500), rate_bps: RATE_BPS / 3 }],
            jitter_keeps_order: true,
            ..line()
        };
        for config in [leo, slots, moving] {
            let all: Vec<_> = (0..2_000).map(|n| (0, packet(n, 1500))).collect();
            let (_, delivered) = run(config.clone(), 1, &all);
            let perfect = perfect_arrival(&[config], 1, Instant::ZERO, 3_000_000, 1_500).unwrap();
            let off = perfect.as_nanos().abs_diff(delivered[1_999].0);
            assert!(off <= 2_000_000, "{off} ns, {}", delivered[1_999].0);
        }
    }
}

#[test]
fn the_delay_is_that_of_the_moment() {
    let config = ChannelConfig { start: at_ms(1_000), delay_changes: vec![step(10, 5)], ..line() };
    let at = |t: u64| config.delay_at(at_ms(t));
    assert_eq!([0, 1_000, 1_009, 1_010].map(at), [50, 50, 50, 5].map(ms));
}
