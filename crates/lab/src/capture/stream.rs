//! One direction of one connection as it passed one place: what the checks and the plots need of
//! it.

use std::collections::BTreeSet;

use farlink_sim::repeats::Repeats;
use farlink_wire::tcp::TcpSegment;

use super::coverage::Coverage;

/// Bound on the moments kept for plots.
const MOMENTS_MAX: usize = 20_000;
/// No window is larger: what lies further ahead is spoofed or spoiled.
const JUMP_BYTES_MAX: u64 = 64 << 20;
/// Bound on remembered places of urgent data.
const URGENT_MAX: usize = 1024;

/// A point of a time-sequence plot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment {
    /// Nanoseconds since 1970.
    pub at_ns: u64,
    /// Place in the stream: one past the segment's last byte, or what is acknowledged of the other
    /// direction.
    pub place: u64,
    /// An acknowledgement instead of data.
    pub is_ack: bool,
    /// Payload that has passed here by then, each byte once.
    pub seen_bytes: u64,
}

/// One direction of a connection at one place.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    /// Packets, super-segments counting once.
    pub packets: u64,
    /// Time of the first one, nanoseconds since 1970.
    pub first_at_ns: u64,
    /// Segments with SYN.
    pub syns: u64,
    /// Segments with RST.
    pub rsts: u64,
    /// Segments with FIN.
    pub fins: u64,
    /// Places of FINs.
    pub fin_places: BTreeSet<u64>,
    /// Absolute places of the end of urgent data.
    pub urgent_places: BTreeSet<u64>,
    /// Greatest acknowledgement, as a place in the other direction's stream.
    pub ack_max: u64,
    /// One past the greatest place seen, with SYN and FIN not counted.
    pub end_max: u64,
    /// Payload.
    pub coverage: Coverage,
    /// Payload that comes again.
    pub repeats: Repeats,
    /// For plots.
    pub moments: Vec<Moment>,
}

/// Turns a sequence number into a place in its stream: 0 is the first byte after the SYN. `near` is
/// a place seen before. `None` before the beginning (a SYN is not a place) or so far ahead that it
/// can only be made up.
#[must_use]
pub fn place(isn: u32, seq: u32, near: u64) -> Option<u64> {
    // 32 bits of the place; the rest from what is nearest to `near`.
    let low = seq.wrapping_sub(isn).wrapping_sub(1);
    let distance = low.wrapping_sub(near as u32) as i32;
    near.checked_add_signed(i64::from(distance)).filter(|place| *place <= near + JUMP_BYTES_MAX)
}

impl Stream {
    /// Takes a segment; `None`: of its payload only the length is known. `isn` and `peer_isn` are
    /// those of this and of the other direction, where known.
    pub fn take(
        &mut self,
        segment: &TcpSegment,
        payload: Option<&[u8]>,
        isn: Option<u32>,
        peer_isn: Option<u32>,
        at_ns: u64,
        keep_moments: bool,
    ) {
        if self.packets == 0 {
            self.first_at_ns = at_ns;
        }
        self.packets += 1;
        self.syns += u64::from(segment.flags.syn());
        self.rsts += u64::from(segment.flags.rst());
        let mut moment = None;
        if let Some(isn) = isn.filter(|_| !segment.flags.rst()) {
            // Data on a SYN begins one after it.
            let first = segment.seq.0.wrapping_add(u32::from(segment.flags.syn()));
            if let Some(start) = place(isn, first, self.end_max) {
                let bytes = segment.payload_len as u64;
                match payload {
                    Some(payload) => self.coverage.add(start, payload),
                    None => self.coverage.add_unseen(start, bytes),
                }
                let end = start + bytes;
                if start < self.end_max {
                    self.repeats.note(start, bytes.min(self.end_max - start));
                }
                self.end_max = self.end_max.max(end);
                // A FIN on a SYN is no end of anything (RFC 9293 3.10.7.4): an attack.
                if segment.flags.fin() && !segment.flags.syn() {
                    self.fins += 1;
                    self.fin_places.insert(end);
                }
                if segment.flags.urg() && self.urgent_places.len() < URGENT_MAX {
                    self.urgent_places.insert(start + u64::from(segment.urgent));
                }
                if bytes > 0 && keep_moments {
                    let seen_bytes = self.coverage.bytes();
                    moment = Some(Moment { at_ns, place: end, is_ack: false, seen_bytes });
                }
            }
        }
        if let Some(peer_isn) = peer_isn.filter(|_| segment.flags.ack() && !segment.flags.rst())
            && let Some(acked) = place(peer_isn, segment.ack.0, self.ack_max)
        {
            self.ack_max = self.ack_max.max(acked);
            if segment.payload_len == 0 && !segment.flags.syn() {
                moment = Some(Moment { at_ns, place: acked, is_ack: true, seen_bytes: 0 });
            }
        }
        if let Some(moment) = moment.filter(|_| keep_moments && self.moments.len() < MOMENTS_MAX) {
            self.moments.push(moment);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_follow_the_sequence_numbers_round_the_corner() {
        assert_eq!(place(u32::MAX, 0, 0), Some(0));
        assert_eq!(place(u32::MAX - 5, 10, 0), Some(15));
        assert_eq!(place(100, 101, 0), Some(0));
        let far = 7 << 32;
        assert_eq!(place(100, 101, far), Some(far));
        assert_eq!(place(100, 100, far), Some(far - 1));
        assert_eq!(place(100, 100, 0), None, "the SYN itself is before the stream");
    }
}
