//! Links that come and go: winks and contact plans.

mod common;

use common::{Packet, at_ms, drive, ms, numbers, packet, run, stream};
use farlink_channel::{
    Carried, Channel, ChannelConfig, Contact, RateChange, Wink, WinkSide, perfect_arrival,
};
use farlink_wire::time::Instant;

fn winking(p: f64, interval_ms: u64, side: WinkSide) -> ChannelConfig {
    ChannelConfig {
        start: at_ms(500),
        wink: Some(Wink { p, interval: ms(interval_ms), seed: Some(77), side }),
        ..ChannelConfig::default()
    }
}

/// Which intervals of a channel are down, by looking.
fn down(channel: &Channel<Packet>, interval_ms: u64, count: u64) -> Vec<bool> {
    (0..count).map(|i| !channel.is_up(at_ms(500 + i * interval_ms))).collect()
}

/// Reynolds table 3.1: down with probability p, and p / (1 - p) intervals of outage to each
/// interval that is up.
#[test]
fn winks_have_their_probability_and_geometric_length() {
    for p in [0.05, 0.2, 0.4] {
        let channel = Channel::<Packet>::new(winking(p, 40, WinkSide::Entry), 1);
        let down = down(&channel, 40, 20_000);
        let count = down.iter().filter(|d| **d).count() as f64;
        assert!((count / 20_000.0 / p - 1.0).abs() < 0.08, "{p}: {count}");
        let begins = down.windows(2).filter(|pair| !pair[0] && pair[1]).count() as f64;
        assert!((count / begins * (1.0 - p) - 1.0).abs() < 0.08, "{p}: mean length {}", count / begins);
    }
}

#[test]
fn both_directions_wink_together() {
    let forward = Channel::<Packet>::new(winking(0.3, 100, WinkSide::Entry), 1);
    let mut backward = Channel::<Packet>::new(winking(0.3, 100, WinkSide::Exit), 2);
    // Traffic makes no difference.
    drive(&mut backward, &stream(1_000));
    assert_eq!(down(&forward, 100, 500), down(&backward, 100, 500));
    let mut own = winking(0.3, 100, WinkSide::Entry);
    own.wink = own.wink.map(|wink| Wink { seed: None, ..wink });
    let a = Channel::<Packet>::new(own.clone(), 1);
    let b = Channel::<Packet>::new(own, 2);
    assert_ne!(down(&a, 100, 500), down(&b, 100, 500));
}

/// What begins later, such as with the first byte of a transfer, is there before.
#[test]
fn nothing_winks_before_the_start() {
    let always = winking(1.0, 40, WinkSide::Entry);
    let mut channel = Channel::<Packet>::new(always.clone(), 1);
    assert!(channel.is_up(at_ms(499)) && !channel.is_up(at_ms(500)));
    assert_eq!(channel.next_transition(Instant::ZERO), Some(at_ms(500)));
    channel.push(at_ms(100), packet(0, 1500));
    assert!(channel.pop(at_ms(499)).is_some());
    channel.push(at_ms(600), packet(1, 1500));
    assert!(channel.pop(at_ms(10_000)).is_none());
    assert_eq!(channel.stats().dropped_wink, 1);
    // The perfect sender has until then.
    let rate = ChannelConfig { rate_bps: Some(8_000_000), ..always };
    assert_eq!(
        perfect_arrival(std::slice::from_ref(&rate), 1, Instant::ZERO, 500_000, 1000),
        Some(at_ms(500))
    );
    assert_eq!(perfect_arrival(std::slice::from_ref(&rate), 1, Instant::ZERO, 501_000, 1000), None);
}

#[test]
fn transitions_are_found() {
    let channel = Channel::<Packet>::new(winking(0.3, 100, WinkSide::Entry), 1);
    let mut at = Instant::ZERO;
    for _ in 0..200 {
        let next = channel.next_transition(at).unwrap();
        let up = channel.is_up(at);
        let mut probe = at;
        while probe < next {
            assert_eq!(channel.is_up(probe), up);
            probe += ms(7);
        }
        assert_ne!(channel.is_up(next), up);
        at = next;
    }
    assert_eq!(Channel::<Packet>::new(winking(0.0, 100, WinkSide::Entry), 1).next_transition(at_ms(1)), None);
    assert_eq!(
        Channel::<Packet>::new(winking(1.0, 100, WinkSide::Entry), 1).next_transition(at_ms(500)),
        None
    );
    assert_eq!(Channel::<Packet>::new(ChannelConfig::default(), 1).next_transition(at_ms(1)), None);
}

/// What is timed begins some time after the link: its schedule, and what it has carried, count from
/// then on.
#[test]
fn a_schedule_can_begin_anew() {
    let mut channel = Channel::<Packet>::new(winking(0.3, 100, WinkSide::Entry), 1);
    let before = down(&channel, 100, 50);
    drive(&mut channel, &stream(10));
    assert!(!channel.carried().bytes.is_empty());
    channel.update(at_ms(20_030), |config| config.start = at_ms(20_030));
    assert_eq!(*channel.carried(), Carried::default());
    let after: Vec<bool> = (0..50).map(|i| !channel.is_up(at_ms(20_030 + i * 100))).collect();
    assert_eq!(after, before);
}

/// Packets of 10 ms on a line that winks in intervals of 100 ms: lost is what was on the line at
/// any time of an outage, at the near end; or what would arrive in one, at the far end.
#[test]
fn who_is_lost_in_a_wink() {
    for side in [WinkSide::Entry, WinkSide::Exit] {
        let config = ChannelConfig { rate_bps: Some(1_200_000), delay: ms(1_234), ..winking(0.3, 100, side) };
        let probe = Channel::<Packet>::new(config.clone(), 1);
        let offered: Vec<_> = (0..2_000).map(|i| (495_000_000, packet(i, 1500))).collect();
        let (channel, delivered) = run(config, 1, &offered);
        let expected: Vec<u32> = (0..2_000)
            .filter(|i| {
                let begin = 495 + u64::from(*i) * 10;
                let mut times = match side {
                    WinkSide::Entry => (begin * 1_000..(begin + 10) * 1_000).step_by(500),
                    WinkSide::Exit => ((begin + 1_244) * 1_000..(begin + 1_244) * 1_000 + 1).step_by(1),
                };
                times.all(|us| probe.is_up(Instant::from_micros(us)))
            })
            .collect();
        assert_eq!(numbers(&delivered), expected);
        assert_eq!(channel.stats().dropped_wink, 2_000 - expected.len() as u64);
        assert_eq!(channel.stats().serialised_bytes, 3_000_000, "the line does not wait");
    }
}

fn plan(contact_hold: bool) -> ChannelConfig {
    ChannelConfig {
        rate_bps: Some(12_000_000),
        delay: ms(100),
        contact_plan: vec![
            Contact { start: ms(10), end: ms(20), rate_bps: None },
            Contact { start: ms(50), end: ms(60), rate_bps: Some(1_200_000) },
        ],
        contact_hold,
        ..ChannelConfig::default()
    }
}

#[test]
fn outside_contacts_packets_are_lost() {
    let (channel, delivered) = run(plan(false), 1, &stream(100));
    // One each millisecond for ten milliseconds; then one that takes the whole contact, during
    // which the others wait.
    assert_eq!(numbers(&delivered)[..10], [10, 11, 12, 13, 14, 15, 16, 17, 18, 19]);
    assert_eq!(numbers(&delivered)[10..], [50]);
    assert_eq!(channel.stats().dropped_contact, 89);
    assert!(channel.is_up(at_ms(55)) && !channel.is_up(at_ms(60)));
    assert_eq!(channel.next_transition(at_ms(0)), Some(at_ms(10)));
    assert_eq!(channel.next_transition(at_ms(20)), Some(at_ms(50)));
    assert_eq!(channel.next_transition(at_ms(60)), None);
}

#[test]
fn or_held_until_the_next_one() {
    let config = ChannelConfig { contact_period: Some(ms(1_000)), ..plan(true) };
    // 15 packets at once at 5.5 ms: ten fit into the first contact, one into the slow one, the rest
    // into the next period.
    let offered: Vec<_> = (0..15).map(|i| (5_500_000, packet(i, 1500))).collect();
    let (channel, delivered) = run(config, 1, &offered);
    assert_eq!(numbers(&delivered), (0..15).collect::<Vec<_>>());
    let times: Vec<u64> = delivered.iter().map(|(at, _)| at / 1_000_000).collect();
    assert_eq!(times, [111, 112, 113, 114, 115, 116, 117, 118, 119, 120, 160, 1111, 1112, 1113, 1114]);
    assert_eq!(channel.stats().dropped_contact, 0);
    // A packet cut by the end of a contact is sent again as a whole.
    let offered = [(19_500_000, packet(0, 1500))];
    let (_, delivered) = run(plan(true), 1, &offered);
    assert_eq!(delivered[0].0, 160_000_000);
}

#[test]
fn what_is_held_for_ever_asks_for_no_wake_up() {
    let mut channel = Channel::new(plan(true), 1);
    channel.push(at_ms(70), packet(0, 1500));
    assert_eq!(channel.pop(at_ms(10_000)), None);
    assert_eq!(channel.poll_timeout(), None);
    assert!(!channel.is_empty());
    channel.update(at_ms(20_000), |config| config.contact_plan.clear());
    assert_eq!(drive(&mut channel, &[]), [(20_101_000_000, packet(0, 1500))]);
}

/// A packet of 1,500 bytes takes a millisecond.
fn link() -> ChannelConfig {
    ChannelConfig { rate_bps: Some(12_000_000), delay: ms(30), ..ChannelConfig::default() }
}

/// The wink's draws are the same for a perfect sender and for packets that are sent blindly.
#[test]
fn a_perfect_sender_sends_into_no_outage() {
    let wink = |side| Wink { p: 0.4, interval: ms(40), seed: Some(3), side };
    for side in [WinkSide::Entry, WinkSide::Exit] {
        let config = ChannelConfig { wink: Some(wink(side)), ..link() };
        let up = |at: u64| Channel::<Packet>::new(config.clone(), 1).is_up(at_ms(at));
        let count = 1_000;
        let end = perfect_arrival(std::slice::from_ref(&config), 1, at_ms(0), 1500 * count, 1500).unwrap();
        let (took, delay) = (end.as_nanos() / 1_000_000, config.delay.as_millis() as u64);
        let shift = if side == WinkSide::Exit { delay } else { 0 };
        // A packet takes a millisecond, and each that fits an interval of up-time is sent.
        let up_ms = (0..took - delay).filter(|at| up(at + shift)).count() as u64;
        assert!((count..=count + 40).contains(&up_ms), "{side:?}: {up_ms} ms of {took} were up");
    }
}

#[test]
fn a_perfect_sender_waits_for_contacts_and_steps() {
    let contacts = vec![
        Contact { start: ms(10), end: ms(20), rate_bps: None },
        Contact { start: ms(50), end: ms(60), rate_bps: None },
    ];
    let config = ChannelConfig { contact_plan: contacts, ..link() };
    let arrives =
        |count: u64| perfect_arrival(std::slice::from_ref(&config), 1, at_ms(0), 1500 * count, 1500);
    assert_eq!(arrives(10), Some(at_ms(20) + config.delay));
    assert_eq!(arrives(11), Some(at_ms(51) + config.delay));
    assert_eq!(arrives(21), None, "the last contact is over");
    let steps = vec![RateChange { at: ms(5), rate_bps: 1_200_000 }];
    let config = ChannelConfig { rate_changes: steps, ..link() };
    assert_eq!(
        perfect_arrival(std::slice::from_ref(&config), 1, at_ms(0), 9_000, 1500),
        Some(at_ms(15) + config.delay)
    );
}

/// What has come over one link waits for the other one, and each is used when it is there.
#[test]
fn a_perfect_sender_goes_over_each_of_two_links_when_that_is_there() {
    let there = |start, end| ChannelConfig {
        contact_plan: vec![Contact { start: ms(start), end: ms(end), rate_bps: None }],
        ..link()
    };
    let arrives = |links: &[ChannelConfig]| perfect_arrival(links, 1, at_ms(0), 15_000, 1500);
    // A packet is whole at the second link before it leaves there.
    assert_eq!(arrives(&[link(), link()]), Some(at_ms(10 + 30 + 1 + 30)));
    // Never at the same time.
    assert_eq!(arrives(&[there(0, 20), there(100, 200)]), Some(at_ms(100 + 10 + 30)));
    assert_eq!(arrives(&[there(100, 200), there(0, 20)]), None, "the second one has gone");
    assert_eq!(arrives(&[there(100, 200), link()]), Some(at_ms(110 + 30 + 1 + 30)));
}
