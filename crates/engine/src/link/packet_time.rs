//! How long packets take on a link: size over rate. A round trip that was measured on a small
//! packet says nothing of it, and on a slow line it is longer than the round trip. Every timer that
//! waits for an answer asks here.

use farlink_wire::Duration;

use super::Link;

/// IP and TCP header with timestamps, IPv4. Bytes.
const HEADER_BYTES: u64 = 52;
/// An acknowledgement of a gateway, with a message of usual length (`ack_ration.rs`). Bytes.
const ACK_BYTES: u64 = 80;
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

/// The rates of a link, as far as they are known, bits per second of IP packets. The default is one
/// of which nothing is known: packets take no time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PacketTime {
    out_bps: Option<u64>,
    in_bps: Option<u64>,
    /// What the link layer adds to a packet, bytes.
    overhead_bytes: u64,
    /// Both directions take turns on one medium.
    is_half_duplex: bool,
}

impl PacketTime {
    /// How long a segment with so much payload takes into the link.
    #[must_use]
    pub fn of_segment(&self, payload_bytes: u64) -> Duration {
        self.time(self.out_bps, HEADER_BYTES.saturating_add(payload_bytes))
    }

    /// By how much the answer to a segment with so much payload may come later than a round trip in
    /// which packets take no time: the segment goes its way, and the acknowledgement comes behind a
    /// packet of others. Our own queue is the clock of what goes out, so nothing stands before the
    /// segment. Where both directions share a medium they take turns: the segment waits for a packet
    /// of the other one, and each of the two on the way back for one of ours.
    #[must_use]
    pub fn of_answer(&self, payload_bytes: u64) -> Duration {
        let back = self.time(self.in_bps, ACK_BYTES) + self.time(self.in_bps, OTHERS_BYTES);
        let turns = self.time(self.in_bps, OTHERS_BYTES) + self.time(self.out_bps, OTHERS_BYTES) * 2;
        let turns = if self.is_half_duplex { turns } else { Duration::ZERO };
        self.of_segment(payload_bytes) + turns + back
    }

    fn time(&self, rate_bps: Option<u64>, bytes: u64) -> Duration {
        let Some(rate) = rate_bps.filter(|rate| *rate > 0) else { return Duration::ZERO };
        let bits = u128::from(bytes.saturating_add(self.overhead_bytes)) * 8;
        Duration::from_nanos(u64::try_from(bits * 1_000_000_000 / u128::from(rate)).unwrap_or(u64::MAX))
    }
}

impl Link {
    /// How long packets take on it.
    #[must_use]
    pub fn packet_time(&self) -> PacketTime {
        PacketTime {
            out_bps: self.rate_in_force_bps(),
            in_bps: self.rate_in_bps(),
            overhead_bytes: self.overhead_bytes().into(),
            is_half_duplex: self.is_half_duplex,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(rate_bps: u64, is_half_duplex: bool) -> u128 {
        let (out_bps, in_bps) = (Some(rate_bps), Some(rate_bps));
        let line = PacketTime { out_bps, in_bps, overhead_bytes: 0, is_half_duplex };
        line.of_answer(1_448).as_millis().into()
    }

    #[test]
    fn a_packet_takes_seconds_on_a_slow_line_and_nothing_on_a_fast_one() {
        assert_eq!((ms(2_400, false), ms(2_400, true)), (10_266, 25_266));
        assert_eq!((ms(8_000_000, false), ms(40_000_000_000, true)), (3, 0));
        assert_eq!(ms(300, false), 82_133);
        let unknown = PacketTime::default();
        assert_eq!((unknown.of_segment(1_448), unknown.of_answer(1_448)), (Duration::ZERO, Duration::ZERO));
    }
}
