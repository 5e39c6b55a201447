//! A host that sends datagrams of UDP, which nobody answers: what links carry beside TCP.

use std::collections::VecDeque;
use std::net::IpAddr;

use farlink_wire::{Duration, Instant, checksum};

use crate::app::End;
use crate::host::{Host, address};
use crate::rng::Rng;

const PROTOCOL_UDP: u8 = 17;
const HEADERS_BYTES: usize = 28;
const PORT: u16 = 5004;

/// What is said, and how fast.
#[derive(Clone, Copy, Debug)]
pub struct Talk {
    /// Since the start.
    pub begins: Duration,
    /// For so long.
    pub lasts: Duration,
    /// Bits a second, IP headers included.
    pub rate_bps: u64,
    /// Payload of a datagram, at most, bytes.
    pub most_bytes: usize,
}

/// See the module.
pub struct Talker {
    number: usize,
    to: usize,
    talk: Talk,
    rng: Rng,
    next: Instant,
    out: VecDeque<Vec<u8>>,
    sent: u16,
}

impl Talker {
    /// Host `number` talks to host `to`.
    #[must_use]
    pub fn new(number: usize, to: usize, talk: Talk, seed: u64) -> Self {
        let next = Instant::ZERO + talk.begins;
        Self { number, to, talk, rng: Rng::new(seed, "talker"), next, out: VecDeque::new(), sent: 0 }
    }

    fn datagram(&mut self, payload_bytes: usize) -> Option<Vec<u8>> {
        let (IpAddr::V4(src), IpAddr::V4(dst)) = (address(self.number, false), address(self.to, false))
        else {
            return None;
        };
        self.sent = self.sent.wrapping_add(1);
        let total = HEADERS_BYTES + payload_bytes;
        let mut bytes = vec![0x45, 0];
        bytes.extend((total as u16).to_be_bytes());
        bytes.extend(self.sent.to_be_bytes());
        bytes.extend([0x40, 0, 64, PROTOCOL_UDP, 0, 0]);
        bytes.extend(src.octets());
        bytes.extend(dst.octets());
        let check = !checksum::sum(&bytes);
        bytes[10..12].copy_from_slice(&check.to_be_bytes());
        bytes.extend(PORT.to_be_bytes());
        bytes.extend(PORT.to_be_bytes());
        // No checksum (RFC 768).
        bytes.extend(((payload_bytes + 8) as u16).to_be_bytes());
        bytes.extend([0, 0]);
        bytes.resize(total, self.sent as u8);
        Some(bytes)
    }
}

impl Host for Talker {
    fn receive(&mut self, _: Instant, _: &[u8]) {}

    fn run(&mut self, now: Instant) {
        while self.deadline().is_some_and(|at| at <= now) {
            let payload_bytes = self.rng.range(1, self.talk.most_bytes as u64 + 1) as usize;
            let packet = self.datagram(payload_bytes);
            self.out.extend(packet);
            let bits = (HEADERS_BYTES + payload_bytes) as f64 * 8.0;
            self.next += Duration::from_secs_f64(bits / self.talk.rate_bps.max(1) as f64);
        }
    }

    fn take_output(&mut self) -> Option<Vec<u8>> {
        self.out.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        (self.next < Instant::ZERO + self.talk.begins + self.talk.lasts).then_some(self.next)
    }

    fn is_finished(&self) -> bool {
        true
    }

    fn ends(&self) -> Vec<End> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_sends_at_its_rate_and_no_longer() {
        let talk = Talk {
            begins: Duration::from_secs(1),
            lasts: Duration::from_secs(2),
            rate_bps: 800_000,
            most_bytes: 1_200,
        };
        let mut talker = Talker::new(2, 3, talk, 7);
        let (mut bytes, mut last) = (0, Instant::ZERO);
        while let Some(at) = talker.deadline() {
            talker.run(at);
            last = at;
            while let Some(packet) = talker.take_output() {
                assert!(crate::packet::router_accepts(&packet), "{packet:02x?}");
                bytes += packet.len();
            }
        }
        assert!((195_000..205_000).contains(&bytes), "{bytes} bytes in two seconds");
        assert!(last < Instant::from_millis(3_000));
    }
}
