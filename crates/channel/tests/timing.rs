//! When packets arrive: rate, delay, queue, changes of rate.

mod common;

use common::{Packet, at_ms, drive, ms, numbers, packet, run, stream};
use farlink_channel::{Channel, ChannelConfig, RateChange};
use farlink_wire::time::{Duration, Instant};

fn link(rate_bps: u64, delay_ms: u64) -> ChannelConfig {
    ChannelConfig { rate_bps: Some(rate_bps), delay: ms(delay_ms), ..ChannelConfig::default() }
}

#[test]
fn a_perfect_wire() {
    let offered = stream(100);
    let (channel, delivered) = run(ChannelConfig::default(), 1, &offered);
    assert_eq!(delivered, offered);
    assert_eq!((channel.stats().delivered_bytes, channel.stats().serialised_bytes), (150_000, 150_000));
}

#[test]
fn serialisation_then_delay() {
    let offered: Vec<_> = (0..5).map(|i| (7_000_000, packet(i, 1500))).collect();
    let (channel, delivered) = run(link(12_000_000, 250), 1, &offered);
    let times: Vec<u64> = delivered.iter().map(|(at, _)| at / 1_000_000).collect();
    assert_eq!(times, [258, 259, 260, 261, 262]);
    assert_eq!((channel.stats().queue_max_packets, channel.stats().queue_max_bytes), (4, 6000));
}

/// Back to back at a rate that does not divide: no gap, no drift, not a nanosecond after 70,000
/// packets.
#[test]
fn the_rate_is_exact() {
    let offered: Vec<_> = (0..70_000).map(|i| (1_000, packet(i, 1500))).collect();
    let (_, delivered) = run(link(7_000_000, 0), 1, &offered);
    assert_eq!(delivered.last().unwrap().0, 1_000 + 120_000_000_000);
    let config = ChannelConfig { overhead_bytes: 18, ..link(7_000_000, 0) };
    let (channel, delivered) = run(config, 1, &offered);
    assert_eq!(delivered.last().unwrap().0, 1_000 + 121_440_000_000);
    assert_eq!(channel.stats().serialised_bytes, 70_000 * 1518);
}

/// How often the driver looks does not matter: what arrives, and when it could have been taken, is
/// the same.
#[test]
fn the_driver_does_not_matter() {
    let config = || ChannelConfig {
        queue_limit_packets: Some(20),
        loss: 0.1,
        ber: 1e-5,
        duplicate: 0.1,
        reorder: 0.1,
        reorder_extra: ms(5),
        jitter: ms(2),
        rate_changes: vec![
            RateChange { at: ms(100), rate_bps: 3_000_000 },
            RateChange { at: ms(400), rate_bps: 50_000_000 },
        ],
        ..link(12_000_000, 30)
    };
    let mut offered: Vec<_> = (0..1000_u64)
        .map(|i| (i * i * 911 % 700 * 5_000 + i * 900_000, packet(i as u32, 100 + i as usize)))
        .collect();
    offered.sort_by_key(|(at, _)| *at);
    let (_, lazy) = run(config(), 9, &offered);
    let mut busy = Vec::new();
    let mut channel = Channel::new(config(), 9);
    let mut next = offered.iter().peekable();
    for step in 0..400_000_u64 {
        let now = Instant::from_nanos(step * 5_000);
        while let Some((_, packet)) = next.next_if(|(at, _)| *at <= now.as_nanos()) {
            channel.push(now, *packet);
        }
        while let Some(packet) = channel.pop(now) {
            busy.push((now.as_nanos(), packet));
        }
    }
    assert!(channel.is_empty());
    assert!(lazy.len() > 500, "{}", lazy.len());
    assert_eq!(numbers(&lazy), numbers(&busy));
    assert!(lazy.iter().zip(&busy).all(|((exact, _), (seen, _))| exact.next_multiple_of(5_000) == *seen));
}

#[test]
fn the_queue_drops_its_tail() {
    let offered: Vec<_> = (0..20).map(|i| (0, packet(i, 1000))).collect();
    let limit = ChannelConfig { queue_limit_bytes: Some(3_999), ..link(8_000_000, 1) };
    let (channel, delivered) = run(limit, 1, &offered);
    assert_eq!(numbers(&delivered), [0, 1, 2, 3], "one on the line, three waiting");
    assert_eq!((channel.stats().dropped_queue, channel.stats().queue_max_bytes), (16, 3000));
    let limit = ChannelConfig { queue_limit_packets: Some(5), ..link(8_000_000, 1) };
    assert_eq!(numbers(&run(limit, 1, &offered).1).len(), 6);
}

/// 1,000 bytes at 1 Mbit/s take 8 ms; after 2 ms the rate falls to a quarter: the other 6,000 bits
/// take 24 ms.
#[test]
fn a_rate_changes_within_a_packet() {
    let config = ChannelConfig {
        start: at_ms(1_000),
        rate_changes: vec![RateChange { at: ms(2), rate_bps: 250_000 }],
        ..link(1_000_000, 10)
    };
    let (_, delivered) = run(config, 1, &[(1_000_000_000, packet(0, 1000))]);
    assert_eq!(delivered[0].0, 1_036_000_000);

    let mut channel = Channel::new(link(1_000_000, 10), 1);
    for i in 0..2 {
        channel.push(at_ms(1_000), packet(i, 1000));
    }
    channel.update(at_ms(1_002), |config| config.rate_bps = Some(250_000));
    assert_eq!(channel.poll_timeout(), Some(at_ms(1_036)));
    // Delay and rate change while one propagates and one is on the line.
    channel.update(at_ms(1_030), |config| {
        config.rate_bps = Some(7_000_000);
        config.delay = ms(1);
    });
    assert_eq!(
        drive(&mut channel, &[]),
        [(1_032_000_000, packet(1, 1000)), (1_036_000_000, packet(0, 1000))]
    );
}

#[test]
fn a_rate_of_zero_holds_everything() {
    let mut channel = Channel::new(link(0, 1), 1);
    channel.push(at_ms(1), packet(0, 1000));
    assert_eq!(channel.poll_timeout(), None);
    assert_eq!(channel.pop(at_ms(100_000)), None);
    channel.update(at_ms(100_000), |config| config.rate_bps = Some(8_000_000));
    assert_eq!(drive(&mut channel, &[]), [(100_002_000_000, packet(0, 1000))]);
    // And one of none releases it.
    let mut channel = Channel::new(link(8, 1), 1);
    channel.push(at_ms(1), packet(0, 1000));
    channel.update(at_ms(3), |config| config.rate_bps = None);
    assert_eq!(drive(&mut channel, &[]), [(4_000_000, packet(0, 1000))]);
}

fn order(config: ChannelConfig) -> (Vec<u32>, Vec<u64>) {
    let (_, delivered) = run(config, 3, &stream(1000));
    let delays = delivered.iter().map(|(at, p)| at - u64::from(p.number) * 1_000_000).collect();
    (numbers(&delivered), delays)
}

#[test]
fn jitter() {
    let config = |keeps| ChannelConfig {
        delay: ms(10),
        jitter: ms(5),
        jitter_keeps_order: keeps,
        ..ChannelConfig::default()
    };
    let (numbers, delays) = order(config(false));
    assert!(!numbers.is_sorted());
    assert!(delays.iter().all(|d| (10_000_000..=15_000_000).contains(d)));
    let mean = delays.iter().sum::<u64>() / 1000;
    assert!((12_350_000..=12_650_000).contains(&mean), "{mean}");
    let (numbers, delays) = order(config(true));
    assert!(numbers.is_sorted());
    assert!(delays.iter().all(|d| (10_000_000..=15_000_000).contains(d)));
}

#[test]
fn reordering() {
    let config = |reorder, jitter_keeps_order| ChannelConfig {
        reorder,
        reorder_extra: Duration::from_micros(2_500),
        jitter_keeps_order,
        ..ChannelConfig::default()
    };
    for keeps in [false, true] {
        let (numbers, delays) = order(config(0.05, keeps));
        let late = delays.iter().filter(|d| **d > 0).count();
        assert!((30..=70).contains(&late), "{late}");
        assert!(delays.iter().all(|d| *d == 0 || *d == 2_500_000), "only the chosen ones wait");
        assert!(!numbers.is_sorted());
    }
    assert!(order(config(1.0, false)).0.is_sorted(), "all late alike");
}

#[test]
fn what_makes_no_sense_is_named() {
    let broken = ChannelConfig { loss: 1.5, ..ChannelConfig::default() };
    assert_eq!(broken.check().unwrap_err().to_string(), "loss: must be a probability from 0 to 1");
    let broken = ChannelConfig { ber: f64::NAN, ..ChannelConfig::default() };
    assert_eq!(broken.check().unwrap_err().field, "ber");
    let broken = ChannelConfig {
        rate_changes: vec![RateChange { at: ms(2), rate_bps: 1 }, RateChange { at: ms(1), rate_bps: 1 }],
        ..ChannelConfig::default()
    };
    assert_eq!(broken.check().unwrap_err().field, "rate_changes");
    assert_eq!(ChannelConfig::default().check(), Ok(()));
    // It works all the same, without a hang or a panic.
    let all_wrong = ChannelConfig {
        loss: -1.0,
        ber: 7.0,
        duplicate: f64::NAN,
        corrupt: f64::INFINITY,
        jitter: Duration::MAX,
        delay: Duration::MAX,
        rate_bps: Some(u64::MAX),
        overhead_bytes: u32::MAX,
        ..broken
    };
    let mut channel = Channel::<Packet>::new(all_wrong, 1);
    for (at, packet) in stream(10) {
        channel.push(Instant::from_nanos(at), packet);
    }
    assert_eq!(channel.pop(at_ms(100_000)), None);
}
