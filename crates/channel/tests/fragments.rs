//! What happens to fragments, and to nothing else.

use farlink_channel::{Channel, ChannelConfig, Firewall};
use farlink_wire::time::Instant;

const COUNT: usize = 10_000;

/// IPv4, UDP: whole, or a fragment.
fn packet(flags: u8) -> Vec<u8> {
    let mut bytes = vec![0x45, 0, 1, 44, 0, 9, flags, 0, 63, 17, 0, 0, 10, 0, 1, 1, 10, 0, 2, 1];
    bytes.resize(300, 7);
    bytes
}

/// How many of these arrive.
fn arrive(config: ChannelConfig, flags: u8) -> (usize, Channel<Vec<u8>>) {
    let mut channel = Channel::new(config, 7);
    let mut arrived = 0;
    for ms in 0..COUNT as u64 {
        channel.push(Instant::from_millis(ms), packet(flags));
        arrived += usize::from(channel.pop(Instant::from_millis(ms)).is_some());
    }
    (arrived, channel)
}

#[test]
fn only_fragments_are_lost_as_such() {
    let lossy = || ChannelConfig { fragment_loss: 0.1, ..ChannelConfig::default() };
    assert_eq!(arrive(lossy(), 0x40).0, COUNT, "a whole packet is none");
    let (arrived, channel) = arrive(lossy(), 0x20);
    assert!(arrived.abs_diff(COUNT * 9 / 10) < COUNT / 100, "{arrived}");
    let stats = channel.stats();
    assert_eq!((stats.fragments, stats.dropped_loss), (COUNT as u64, (COUNT - arrived) as u64));
}

#[test]
fn a_firewall_lets_whole_packets_pass() {
    let behind = |firewall| ChannelConfig { firewall: Some(firewall), ..ChannelConfig::default() };
    for (firewall, flags, passes) in [
        (Firewall::Fragments, 0x40, true),
        (Firewall::Fragments, 0x20, false),
        (Firewall::Fragments, 0x60, false),
        (Firewall::FragmentsWithDf, 0x40, true),
        (Firewall::FragmentsWithDf, 0x20, true),
        (Firewall::FragmentsWithDf, 0x60, false),
    ] {
        let (arrived, channel) = arrive(behind(firewall), flags);
        assert_eq!(arrived, if passes { COUNT } else { 0 }, "{firewall:?} {flags:#x}");
        assert_eq!(channel.stats().dropped_firewall as usize, COUNT - arrived);
    }
}
