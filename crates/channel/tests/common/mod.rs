//! Packets with a number, and runs of them through a channel.
#![allow(dead_code)]

use farlink_channel::{Channel, ChannelConfig, Payload};
use farlink_wire::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    pub number: u32,
    pub len: usize,
    pub flipped: Option<usize>,
}

impl Payload for Packet {
    fn len_bytes(&self) -> usize {
        self.len
    }
    fn flip_bit(&mut self, bit: usize) {
        self.flipped = Some(bit);
    }
}

pub fn packet(number: u32, len: usize) -> Packet {
    Packet { number, len, flipped: None }
}

pub fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub fn at_ms(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

/// Offers packets at their times, waking up only when the channel asks for it; returns (time in ns,
/// packet) of all deliveries.
pub fn drive(channel: &mut Channel<Packet>, offered: &[(u64, Packet)]) -> Vec<(u64, Packet)> {
    let mut delivered = Vec::new();
    let mut wake = |channel: &mut Channel<Packet>, until: Instant| {
        let mut steps = 0;
        while let Some(at) = channel.poll_timeout().filter(|at| *at <= until) {
            while let Some(packet) = channel.pop(at) {
                delivered.push((at.as_nanos(), packet));
                steps = 0;
            }
            steps += 1;
            assert!(steps < 100_000, "a wake-up must get further");
        }
    };
    for (time, packet) in offered {
        let now = Instant::from_nanos(*time);
        wake(channel, now);
        channel.push(now, *packet);
    }
    wake(channel, Instant::FAR_FUTURE);
    delivered
}

/// As many packets as one may want, back to back in one millisecond each (at 12 Mbit/s and 1,500
/// bytes).
pub fn stream(count: u32) -> Vec<(u64, Packet)> {
    (0..count).map(|i| (u64::from(i) * 1_000_000, packet(i, 1500))).collect()
}

pub fn run(
    config: ChannelConfig,
    seed: u64,
    offered: &[(u64, Packet)],
) -> (Channel<Packet>, Vec<(u64, Packet)>) {
    let mut channel = Channel::new(config, seed);
    let delivered = drive(&mut channel, offered);
    assert!(channel.is_empty());
    (channel, delivered)
}

pub fn numbers(delivered: &[(u64, Packet)]) -> Vec<u32> {
    delivered.iter().map(|(_, packet)| packet.number).collect()
}
