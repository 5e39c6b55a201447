//! How large a host's segments are: the one that it sends to is told no larger MSS, as far as they
//! show.
//!
//! What a host announces in its SYN is not always what the other one is told. The rules of this very
//! machine, or a box on the way, make the MSS smaller, so that both keep to what a tunnel takes
//! further on; often nobody says so by ICMP. A gateway sees the SYN on one side of such a place, and
//! the host on the other. Data shows what a host has been told, wherever that was changed: what it
//! sends while more stands behind is as large as it may be.

use farlink_wire::{Flags, PacketBuf, TcpSegment};

/// No host need be told less (RFC 9293 section 3.7.1), and hosts with less to say at a time make no
/// link of a gateway's pay for their small segments.
const MSS_MIN: u16 = 536;
/// TCP's header without options.
const TCP_HEADER_BYTES: usize = 20;

/// What the segments of a host show of what it may send.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Filled {
    /// Payload and options of the largest one, bytes.
    largest: u16,
    /// More stood behind one of them.
    has_more: bool,
}

impl Filled {
    /// A segment has come with so many bytes of payload and options; `has_more`: its host had more
    /// to send at once. Returns whether that shows another MSS than before.
    pub fn see(&mut self, bytes: usize, has_more: bool) -> bool {
        let before = self.mss();
        self.largest = self.largest.max(u16::try_from(bytes).unwrap_or(u16::MAX));
        self.has_more |= has_more;
        self.mss() != before
    }

    /// The MSS that the host goes by; `None`: none of its segments shows it.
    #[must_use]
    pub fn mss(self) -> Option<u16> {
        self.has_more.then(|| self.largest())
    }

    /// Its largest segment, as an MSS.
    #[must_use]
    pub fn largest(self) -> u16 {
        self.largest.max(MSS_MIN)
    }
}

/// Payload and options of a segment, bytes, and whether its host had more to send at once; `None`: it
/// has no payload.
#[must_use]
pub fn shown_by(s: &TcpSegment, packet: &PacketBuf) -> Option<(usize, bool)> {
    let offload = &packet.offload;
    // Of several in one all but the last are full.
    let is_several = offload.is_super_segment();
    let payload = if is_several { s.payload_len.min(offload.gso_size.into()) } else { s.payload_len };
    // Hosts push the end of what they have been given to send (RFC 9293 section 3.9.1.2).
    let has_more = is_several || !s.flags.any(Flags::PSH | Flags::FIN | Flags::URG);
    let options = s.payload_offset.saturating_sub(usize::from(s.ip.header_len) + TCP_HEADER_BYTES);
    (payload > 0).then_some((payload + options, has_more))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_with_more_behind_it_shows_what_its_host_was_told() {
        let mut filled = Filled::default();
        assert!(!filled.see(529, false) && filled.mss().is_none(), "the whole of a question");
        assert!(filled.see(1000, true));
        assert_eq!(filled.mss(), Some(1000));
        assert!(!filled.see(700, false) && !filled.see(1000, true));
        assert_eq!(filled.mss(), Some(1000));
    }

    #[test]
    fn a_small_one_shows_little_and_the_next_larger_one_all() {
        let mut filled = Filled::default();
        assert!(filled.see(212, true));
        assert_eq!(filled.mss(), Some(MSS_MIN), "a header that was sent before its file");
        assert!(filled.see(1460, true));
        assert_eq!(filled.mss(), Some(1460));
        assert!(!filled.see(1 << 20, false) || filled.mss() == Some(u16::MAX));
    }
}
