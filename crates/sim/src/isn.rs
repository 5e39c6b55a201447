//! Initial sequence numbers as real hosts choose them (RFC 6528): a clock and a hash of the ports
//! and addresses, so that the numbers of two connections in turn between the same ports are near
//! each other. smoltcp draws them at random; they are translated between the stack and the wire.

use std::collections::BTreeMap;

use farlink_wire::{Instant, SeqNum, TcpSegment};

use crate::content::Endpoint;
use crate::packet::hash;

/// Nanoseconds of a step of the clock (Linux `seq_scale`).
const STEP_NS: u64 = 64;

type Key = (Endpoint, Endpoint);

/// The translation of one host.
pub struct IsnClock {
    /// `None`: the stack's own numbers.
    secret: Option<u64>,
    /// The stack's ISN of the newest connection, and what to add to its numbers.
    offsets: BTreeMap<Key, (SeqNum, u32)>,
}

impl IsnClock {
    /// A host that has a clock for its ISNs, with this secret, or none.
    #[must_use]
    pub fn new(secret: Option<u64>) -> Self {
        Self { secret, offsets: BTreeMap::new() }
    }

    /// A segment of the stack: its number on the wire.
    pub fn to_wire(&mut self, now: Instant, key: Key, s: &TcpSegment) -> SeqNum {
        let Some(secret) = self.secret else { return s.seq };
        if s.flags.syn() && self.offsets.get(&key).is_none_or(|(isn, _)| *isn != s.seq) {
            let mut h = secret;
            for (addr, port) in [key.0, key.1] {
                h = hash(h ^ u64::from(port), addr.to_string().as_bytes());
            }
            let isn = (h as u32).wrapping_add((now.as_nanos() / STEP_NS) as u32);
            self.offsets.insert(key, (s.seq, isn.wrapping_sub(s.seq.0)));
        }
        s.seq + self.offsets.get(&key).map_or(0, |(_, offset)| *offset)
    }

    /// An acknowledgement number on the wire: what the stack calls it.
    #[must_use]
    pub fn to_stack(&self, key: &Key, ack: SeqNum) -> SeqNum {
        ack - self.offsets.get(key).map_or(0, |(_, offset)| *offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_connections_in_turn_are_near_each_other() {
        let ends = (("10.0.0.1".parse().unwrap(), 1), ("10.0.0.2".parse().unwrap(), 2));
        let mut clock = IsnClock::new(Some(7));
        let syn = |seq: u32| {
            let header = farlink_wire::SegmentHeader {
                seq: SeqNum(seq),
                flags: farlink_wire::Flags::SYN,
                window: 1,
                ..farlink_wire::SegmentHeader::between(ends.0, ends.1)
            };
            crate::packet::tcp(&header.write(0).unwrap().0).unwrap()
        };
        let first = clock.to_wire(Instant::ZERO, ends, &syn(1_000));
        assert_eq!(clock.to_wire(Instant::from_millis(5), ends, &syn(1_000)), first, "a repeated SYN");
        assert_eq!(clock.to_stack(&ends, first + 1), SeqNum(1_001));
        let second = clock.to_wire(Instant::from_millis(1_000), ends, &syn(3_000_000_000));
        assert_eq!(second.since(first), 1_000_000_000 / 64);
        assert_eq!(clock.to_stack(&ends, second), SeqNum(3_000_000_000));
    }
}
