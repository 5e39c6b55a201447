//! What comes in over a link: counted here, and told to the gateway at its other end.
//!
//! The engine only counts and carries; what the numbers mean for the rate of a link is for the one
//! that owns its queue.

use farlink_wire::{Duration, Instant, PacketBuf, TcpSegment, WireSize};

use crate::peer::{Arrived, Identity};

/// Reports that follow the first one early, and the bytes that each of them tells of at least: a
/// quarter of the burst that is sent for them.
const EARLY_REPORTS: u8 = 3;
const EARLY_BYTES: u64 = 12_000;

/// The count.
#[derive(Clone, Copy, Debug, Default)]
pub struct Meter {
    /// By which other gateways tell us apart.
    identity: Identity,
    received_bytes: u64,
    told_at: Option<Instant>,
    /// What had been received by then.
    told_bytes: u64,
    /// Reports that still come early.
    early: u8,
}

impl Meter {
    /// The count of the gateway with this identity.
    #[must_use]
    pub fn new(identity: Identity) -> Self {
        Self { identity, ..Self::default() }
    }

    /// A TCP packet came in: as many bytes as its segments had on the link, IP headers included.
    pub fn count(&mut self, s: &TcpSegment, packet: &PacketBuf) {
        let payload_bytes = packet.len().saturating_sub(s.payload_offset);
        self.receive(WireSize::of(s.payload_offset, payload_bytes, &packet.offload).bytes);
    }

    /// So many bytes came in.
    pub(super) fn receive(&mut self, bytes: u32) {
        self.received_bytes = self.received_bytes.wrapping_add(u64::from(bytes));
    }

    /// Bytes of TCP that have come in, modulo 2^64.
    pub(super) const fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    /// What a segment that has just come in leaves to be told.
    #[must_use]
    pub fn arrival(&self, now: Instant) -> Arrived {
        Arrived {
            by: self.identity,
            // Both modulo 2^32 on purpose: differences count.
            at_us: now.since(Instant::ZERO).as_micros() as u32,
            received_bytes: self.received_bytes as u32,
        }
    }

    /// Nothing has been told for so long.
    #[must_use]
    pub fn is_due(&self, now: Instant, interval: Duration) -> bool {
        self.told_at.is_none_or(|at| now.since(at) >= interval)
    }

    /// The first report after a silence is followed by a few that do not wait for their time: a
    /// rate shows in two of them, and where little comes in, or one is lost, no other may follow.
    #[must_use]
    pub fn is_due_early(&self, now: Instant, apart: Duration) -> bool {
        let enough = self.received_bytes.wrapping_sub(self.told_bytes) >= EARLY_BYTES;
        self.early > 0 && enough && self.told_at.is_some_and(|at| now.since(at) >= apart)
    }

    /// The other gateway has been told. It is the first time after a silence where nothing was told
    /// for `silence`.
    pub fn told(&mut self, now: Instant, silence: Duration) {
        let first = self.told_at.is_none_or(|at| now.since(at) >= silence);
        self.early = if first { EARLY_REPORTS } else { self.early.saturating_sub(1) };
        self.told_at = Some(now);
        self.told_bytes = self.received_bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_report_is_followed_by_some_that_come_early() {
        let (at, ms) = (Instant::from_millis, Duration::from_millis);
        let mut meter = Meter { received_bytes: 10_000, ..Meter::new(1.into()) };
        let silence = ms(250);
        assert!(!meter.is_due_early(at(1_000), ms(20)), "the first is due as ever");
        meter.told(at(1_000), silence);
        for n in 1..=3 {
            meter.receive(11_999);
            assert!(!meter.is_due_early(at(1_000 + 20 * n), ms(20)), "too little");
            meter.receive(1);
            assert!(meter.is_due_early(at(1_000 + 20 * n), ms(20)));
            assert!(!meter.is_due_early(at(999 + 20 * n), ms(20)), "too soon");
            meter.told(at(1_000 + 20 * n), silence);
        }
        meter.receive(50_000);
        assert!(!meter.is_due_early(at(1_200), ms(20)), "enough of them");
        meter.told(at(2_000), silence);
        meter.receive(12_000);
        assert!(meter.is_due_early(at(2_020), ms(20)), "after a silence");
    }
}
