//! How long packets take on a link: size over rate. A round trip that was measured on a small
//! packet says nothing of it, and on a slow line it is longer than the round trip. Every timer that
//! waits for an answer asks here.

use farlink_wire::Duration;

use super::Link;
use crate::peer::Identity;

/// IP and TCP header with timestamps, IPv4. Bytes.
const HEADER_BYTES: u64 = 52;
/// An acknowledgement of a gateway, with a message of usual length (`ack_ration.rs`). Bytes.
const ACK_BYTES: u64 = 80;
/// Payload of a full segment, bytes.
const FULL_BYTES: u64 = 1_448;
/// What others send fills a packet of this size. Bytes.
const OTHERS_BYTES: u64 = 1_500;

/// The lower bound of the timeout is for acknowledgements that are delayed. This part of it is for
/// the time that packets take: 50 ms, with which no timer changes from half a Mbit/s on.
const COVERED_PARTS: u32 = 4;

/// The time of packets that a timeout with this lower bound has room for.
#[must_use]
pub fn covered(rto_min: Duration) -> Duration {
    rto_min / COVERED_PARTS
}

/// A way back that is so many times slower is starved (`ack_ration.rs`).
const STARVED_TIMES: u64 = 5;

/// A timer waits longer by this part (one over it): people declare what their contract says, which
/// is 20 % more than the line carries.
const DECLARED_TOO_HIGH_PARTS: u64 = 5;

/// How long packets take on a link, as far as its rates are known. Each sender has one, so it is
/// small. The default is a link of which nothing is known: packets take no time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PacketTime {
    /// A byte on its way into the link, nanoseconds.
    byte_ns: u32,
    /// What else an answer takes, microseconds.
    beside_us: u32,
}

impl PacketTime {
    /// Of these rates, bits per second, where the link layer adds so many bytes to a packet.
    ///
    /// The acknowledgement comes behind a packet of others. Our own queue is the clock of what goes
    /// out, so nothing stands before the segment. Where both directions share a medium they take
    /// turns: the segment waits for a packet of the other one, and each of the two on the way back
    /// for one of ours. Where the way back is starved, acknowledgements take turns anyway, which is
    /// reckoned with elsewhere ([`Link::acks_late_by`]).
    #[must_use]
    pub fn new(
        (out_bps, in_bps): (Option<u64>, Option<u64>),
        overhead_bytes: u32,
        is_half_duplex: bool,
    ) -> Self {
        let [out_ns, in_ns] = [byte_ns(out_bps), byte_ns(in_bps)];
        let time = |ns: u64, bytes: u64| ns.saturating_mul(bytes.saturating_add(overhead_bytes.into()));
        let [others, ours] = [in_ns, out_ns].map(|ns| time(ns, OTHERS_BYTES));
        let is_starved = in_ns > out_ns.saturating_mul(STARVED_TIMES);
        let before = if is_starved { 0 } else { others };
        let turns = if is_half_duplex { others.saturating_add(ours.saturating_mul(2)) } else { 0 };
        let waits = turns.saturating_add(before);
        let beside_us = waits.saturating_add(time(in_ns, ACK_BYTES)).saturating_add(time(out_ns, 0)) / 1_000;
        Self { byte_ns: small(out_ns), beside_us: small(beside_us) }
    }

    /// How long a segment with so much payload takes into the link.
    #[must_use]
    pub fn of_segment(self, payload_bytes: u64) -> Duration {
        Duration::from_nanos(self.segment_ns(payload_bytes))
    }

    /// And one of so many bytes with its headers.
    #[must_use]
    pub fn of_packet(self, bytes: u64) -> Duration {
        Duration::from_nanos(bytes.saturating_mul(self.byte_ns.into()))
    }

    fn segment_ns(self, payload_bytes: u64) -> u64 {
        HEADER_BYTES.saturating_add(payload_bytes).saturating_mul(self.byte_ns.into())
    }

    /// By how much the answer to a segment with so much payload may come later than a round trip in
    /// which packets take no time.
    #[must_use]
    pub fn of_answer(self, payload_bytes: u64) -> Duration {
        let answer_ns = self.segment_ns(payload_bytes).saturating_add(u64::from(self.beside_us) * 1_000);
        Duration::from_nanos(answer_ns.saturating_add(answer_ns / DECLARED_TOO_HIGH_PARTS))
    }
}

/// How long a byte takes at this rate, nanoseconds; 0: nobody knows it, or next to no time.
fn byte_ns(rate_bps: Option<u64>) -> u64 {
    8_000_000_000_u64.checked_div(rate_bps.unwrap_or(0)).unwrap_or(0)
}

fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl Link {
    /// How long the link may be silent and still deliver.
    pub(super) fn patience(&self) -> Duration {
        let packet = self.packet_time(None).of_segment(FULL_BYTES);
        self.measured_rtt().unwrap_or_default().max(super::DELIVERS_MIN).max(packet * 2)
    }

    /// How long packets take on it, to this gateway or to a host.
    #[must_use]
    pub fn packet_time(&self, gateway: Option<Identity>) -> PacketTime {
        let (brings_bps, is_half_duplex) = self.brings_of(gateway);
        PacketTime::new((self.rate_in_force_bps(), brings_bps), self.overhead_bytes(), is_half_duplex)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(rate_bps: u64, is_half_duplex: bool) -> u128 {
        let line = PacketTime::new((Some(rate_bps), Some(rate_bps)), 0, is_half_duplex);
        line.of_answer(1_448).as_millis()
    }

    #[test]
    fn a_packet_takes_seconds_on_a_slow_line_and_nothing_on_a_fast_one() {
        assert_eq!((ms(2_400, false), ms(2_400, true)), (12_319, 30_319));
        assert_eq!((ms(8_000_000, false), ms(40_000_000_000, true)), (3, 0));
        assert_eq!(ms(300, false), 98_559);
        assert_eq!(PacketTime::new((None, Some(0)), 20, true), PacketTime::default());
        let unknown = PacketTime::default();
        assert_eq!((unknown.of_segment(1_448), unknown.of_answer(1_448)), (Duration::ZERO, Duration::ZERO));
    }
}
