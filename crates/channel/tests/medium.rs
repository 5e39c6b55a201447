//! Two directions on one medium.

mod common;

use common::{Packet, at_ms, ms, packet};
use farlink_channel::{Channel, ChannelConfig, Contact, Medium, RateChange};
use farlink_wire::time::Instant;

/// Both directions as one thing: what arrives where, in milliseconds.
fn run(configs: [ChannelConfig; 2], offered: [&[(u64, Packet)]; 2]) -> [Vec<(u64, u32)>; 2] {
    let medium = Medium::new();
    let mut channels = configs.map(|config| {
        let mut channel = Channel::new(config, 7);
        channel.share(&medium);
        channel
    });
    let mut offers = offered.map(|o| o.iter().peekable());
    let mut arrived = [Vec::new(), Vec::new()];
    loop {
        let due = channels.iter().filter_map(Channel::poll_timeout);
        let next = offers.iter_mut().filter_map(|o| o.peek().map(|(ms, _)| at_ms(*ms)));
        let Some(now) = due.chain(next.collect::<Vec<_>>()).min() else { return arrived };
        for (n, channel) in channels.iter_mut().enumerate() {
            while let Some((_, packet)) = offers[n].next_if(|(ms, _)| at_ms(*ms) <= now) {
                channel.push(now, *packet);
            }
            while let Some(packet) = channel.pop(now) {
                arrived[n].push((now.since(Instant::ZERO).as_millis() as u64, packet.number));
            }
        }
        assert!(arrived.iter().all(|a| a.len() < 10_000));
    }
}

/// A packet of 1,500 bytes takes a millisecond.
fn fast(delay_ms: u64) -> ChannelConfig {
    ChannelConfig { rate_bps: Some(12_000_000), delay: ms(delay_ms), ..ChannelConfig::default() }
}

fn burst(count: u32, len: usize) -> Vec<(u64, Packet)> {
    (0..count).map(|n| (0, packet(n, len))).collect()
}

#[test]
fn two_directions_take_turns_and_one_alone_has_all() {
    let (all, none) = (burst(10, 1500), Vec::new());
    let [there, back] = run([fast(250), fast(250)], [&all, &all]);
    let ends = |first: u64| (0..10u64).map(|n| (251 + first + 2 * n, n as u32)).collect::<Vec<_>>();
    assert_eq!((there, back), (ends(0), ends(1)));
    let [there, _] = run([fast(250), fast(250)], [&all, &none]);
    assert_eq!(there.last(), Some(&(260, 9)));
}

#[test]
fn a_small_packet_waits_for_one_large_one_at_most() {
    let data = burst(20, 1500);
    let acks: Vec<_> = (0..5).map(|n| (3 * u64::from(n), packet(n, 15))).collect();
    let [_, back] = run([fast(0), fast(0)], [&data, &acks]);
    for (n, (at, _)) in back.iter().enumerate() {
        assert!(*at <= 3 * n as u64 + 2, "{back:?}");
    }
}

#[test]
fn a_slower_direction_holds_the_faster_one_up() {
    let slow = ChannelConfig { rate_bps: Some(1_200_000), ..fast(0) };
    let [there, back] = run([fast(0), slow], [&burst(2, 1500), &burst(1, 1500)]);
    assert_eq!((there, back), (vec![(1, 0), (12, 1)], vec![(11, 0)]));
}

#[test]
fn rates_and_contacts_change_below_a_packet() {
    let steps = vec![RateChange { at: ms(5), rate_bps: 12_000_000 }];
    let slow = ChannelConfig { rate_bps: Some(1_200_000), rate_changes: steps, ..ChannelConfig::default() };
    // Half of it at a tenth of the rate, the other half in half a millisecond.
    let [there, back] = run([slow, fast(0)], [&burst(1, 1500), &burst(1, 1500)]);
    assert_eq!((there, back), (vec![(5, 0)], vec![(6, 0)]));
    let contacts = vec![Contact { start: ms(10), end: ms(20), rate_bps: None }];
    let held = ChannelConfig { contact_plan: contacts, contact_hold: true, ..fast(0) };
    let [there, back] =
        run([held, fast(0)], [&burst(1, 1500), &[(2, packet(0, 1500)), (12, packet(1, 1500))]]);
    assert_eq!(there, [(11, 0)]);
    assert_eq!(back.last(), Some(&(13, 1)), "{back:?}");
}

#[test]
fn each_change_of_direction_takes_the_time_to_turn_round() {
    let turning = |delay_ms: u64| ChannelConfig { turnaround: ms(100), ..fast(delay_ms) };
    let all = burst(3, 1500);
    let [there, back] = run([turning(0), turning(0)], [&all, &all]);
    assert_eq!(there, [(1, 0), (203, 1), (405, 2)]);
    assert_eq!(back, [(102, 0), (304, 1), (506, 2)]);
    // One alone has no one to turn round for, however long nobody sends.
    let alone = [(0, packet(0, 1500)), (0, packet(1, 1500)), (50, packet(2, 1500))];
    let answer = [(500, packet(0, 1500))];
    let [there, back] = run([turning(0), turning(0)], [&alone, &answer]);
    assert_eq!(there, [(1, 0), (2, 1), (51, 2)]);
    // The medium turned long ago.
    assert_eq!(back, [(501, 0)]);
}
