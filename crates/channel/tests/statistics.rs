//! That the random impairments have the probabilities they are given, and do not disturb each
//! other.

mod common;

use std::collections::BTreeSet;

use common::{numbers, run, stream};
use farlink_channel::{ChannelConfig, GilbertElliott, Payload};

const N: u32 = 100_000;

/// Within four standard deviations of the binomial distribution.
fn close(count: u64, n: u32, p: f64) {
    let expected = f64::from(n) * p;
    let deviation = (expected * (1.0 - p)).sqrt();
    assert!(
        (count as f64 - expected).abs() <= 4.0 * deviation + 1.0,
        "{count}, expected {expected} +- {deviation}"
    );
}

#[test]
fn independent_loss() {
    for (seed, loss) in [(1, 0.01), (2, 0.05), (3, 0.5), (4, 1.0)] {
        let (channel, delivered) = run(ChannelConfig { loss, ..ChannelConfig::default() }, seed, &stream(N));
        close(channel.stats().dropped_loss, N, loss);
        assert_eq!(delivered.len() as u64 + channel.stats().dropped_loss, u64::from(N));
    }
}

/// A packet of 1,500 bytes at a bit error rate of 1e-6: 1 - (1 - 1e-6)^12000 = 1.1928 %.
#[test]
fn bit_errors() {
    let (channel, _) = run(ChannelConfig { ber: 1e-6, ..ChannelConfig::default() }, 1, &stream(N));
    close(channel.stats().dropped_ber, N, 0.011_928);
    let (channel, _) = run(ChannelConfig { ber: 1e-5, ..ChannelConfig::default() }, 1, &stream(N));
    close(channel.stats().dropped_ber, N, 0.113_080);
    let (channel, _) = run(ChannelConfig { ber: 1.0, ..ChannelConfig::default() }, 1, &stream(10));
    assert_eq!(channel.stats().dropped_ber, 10);
}

/// Share of bad packets p / (p + r), mean burst 1 / r.
#[test]
fn gilbert_elliott() {
    let model = GilbertElliott { p_good_to_bad: 0.01, p_bad_to_good: 0.2, loss_good: 0.0, loss_bad: 1.0 };
    let config = ChannelConfig { gilbert_elliott: Some(model), ..ChannelConfig::default() };
    let (channel, delivered) = run(config, 1, &stream(N));
    let lost = channel.stats().dropped_loss as f64;
    assert!((lost / f64::from(N) / (0.01 / 0.21) - 1.0).abs() < 0.08, "{lost}");
    let bursts = numbers(&delivered).windows(2).filter(|pair| pair[1] != pair[0] + 1).count() as f64;
    assert!((lost / bursts - 5.0).abs() < 0.4, "{}", lost / bursts);

    let model = GilbertElliott { loss_good: 0.02, loss_bad: 0.5, ..model };
    let config = ChannelConfig { gilbert_elliott: Some(model), ..ChannelConfig::default() };
    let lost = run(config, 1, &stream(N)).0.stats().dropped_loss as f64 / f64::from(N);
    let expected = 0.02 * (0.2 / 0.21) + 0.5 * (0.01 / 0.21);
    assert!((lost / expected - 1.0).abs() < 0.08, "{lost} {expected}");
}

#[test]
fn duplicates_and_damage() {
    let config = ChannelConfig { duplicate: 0.1, corrupt: 0.02, ..ChannelConfig::default() };
    let (channel, delivered) = run(config, 1, &stream(N));
    let stats = channel.stats();
    close(stats.duplicated, N, 0.1);
    close(stats.corrupted, N, 0.02);
    assert_eq!(delivered.len() as u64, u64::from(N) + stats.duplicated);
    assert_eq!(stats.delivered_packets, delivered.len() as u64);
    let bits: Vec<usize> = delivered.iter().filter_map(|(_, packet)| packet.flipped).collect();
    let mean = bits.iter().sum::<usize>() / bits.len();
    assert!(bits.iter().all(|bit| *bit < 12_000) && (5_700..6_300).contains(&mean), "{mean}");
}

#[test]
fn one_bit_of_bytes() {
    let mut bytes = vec![0_u8; 4];
    bytes.flip_bit(0);
    bytes.flip_bit(17);
    bytes.flip_bit(99);
    assert_eq!(bytes, [1, 0, 2, 0]);
}

/// The same packets are lost whatever else happens to them; and a higher probability loses more,
/// not others.
#[test]
fn impairments_do_not_disturb_each_other() {
    let survivors = |config: ChannelConfig| {
        numbers(&run(config, 5, &stream(5_000)).1).into_iter().collect::<BTreeSet<_>>()
    };
    let base = ChannelConfig { loss: 0.1, ..ChannelConfig::default() };
    let plain = survivors(base.clone());
    let other = survivors(ChannelConfig {
        jitter: common::ms(3),
        duplicate: 0.3,
        corrupt: 0.2,
        reorder: 0.1,
        reorder_extra: common::ms(7),
        rate_bps: Some(8_000_000),
        ..base.clone()
    });
    assert_eq!(plain, other);
    let more = survivors(ChannelConfig { loss: 0.2, ..base.clone() });
    assert!(more.is_subset(&plain) && more.len() < plain.len());
    let both = survivors(ChannelConfig { ber: 1e-5, ..base });
    assert!(both.is_subset(&plain) && both.len() < plain.len());
}

#[test]
fn seeds() {
    let config = ChannelConfig { loss: 0.3, jitter: common::ms(9), ..ChannelConfig::default() };
    let offered = stream(1_000);
    let delivered = |seed| run(config.clone(), seed, &offered).1;
    assert_eq!(delivered(1), delivered(1));
    assert_ne!(delivered(1), delivered(2));
}
