//! What a packet is by its headers, as a firewall and the counters see it.

use farlink_wire::{Parsed, SackBlock, ShimProtocols, TcpSegment, parse_with};

use crate::carried::DATA_BYTES_MIN;
use crate::config::Firewall;

/// IPv6's fragment header (RFC 8200 section 4.5).
const IPV6_FRAGMENT: u8 = 44;

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Look {
    /// A segment that only acknowledges, with its acknowledgement number. Does it tell of data that
    /// came twice (D-SACK, RFC 2883)?
    Ack { number: u32, of_copy: bool },
    /// A part of a packet. Does it say "don't fragment"?
    Fragment { has_df: bool },
    /// Anything else.
    Other,
}

impl Look {
    /// Of a packet; nothing is checked.
    pub(crate) fn of(packet: &[u8]) -> Self {
        let byte = |at: usize| packet.get(at).copied().unwrap_or(0);
        match byte(0) >> 4 {
            4 if byte(6) & 0x3f != 0 || byte(7) != 0 => Self::Fragment { has_df: byte(6) & 0x40 != 0 },
            6 if byte(6) == IPV6_FRAGMENT => Self::Fragment { has_df: false },
            // What carries data is larger, and not worth a closer look.
            4 | 6 if packet.len() <= DATA_BYTES_MIN => Self::of_small(packet),
            _ => Self::Other,
        }
    }

    fn of_small(packet: &[u8]) -> Self {
        match parse_with(packet, ShimProtocols::USUAL) {
            Parsed::Tcp(s) if s.seq_len() == 0 && s.flags.ack() && !s.flags.rst() => {
                Self::Ack { number: s.ack.0, of_copy: tells_of_copy(&s) }
            }
            _ => Self::Other,
        }
    }

    pub(crate) fn is_fragment(self) -> bool {
        matches!(self, Self::Fragment { .. })
    }

    pub(crate) fn is_dropped_by(self, firewall: Firewall) -> bool {
        match (self, firewall) {
            (Self::Fragment { .. }, Firewall::Fragments) => true,
            (Self::Fragment { has_df }, Firewall::FragmentsWithDf) => has_df,
            (Self::Ack { .. } | Self::Other, _) => false,
        }
    }
}

/// The first SACK block lies below the acknowledgement, or within the second one (RFC 2883
/// section 4).
fn tells_of_copy(s: &TcpSegment) -> bool {
    let blocks = &s.options.sack;
    let Some(first) = blocks.first() else { return false };
    let is_within = |b: &SackBlock| b.start.before_eq(first.start) && first.end.before_eq(b.end);
    first.start.before(s.ack) || blocks.get(1).is_some_and(is_within)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(fragment: [u8; 2], flags: u8, payload: usize) -> Vec<u8> {
        let len = 40 + payload;
        let mut bytes = vec![0x45, 0, 0, len as u8, 0, 9, fragment[0], fragment[1], 63, 6, 0, 0];
        bytes.extend_from_slice(&[10, 0, 1, 1, 10, 0, 2, 1, 0, 80, 4, 0, 0, 0, 0, 1, 0, 0, 0, 1]);
        bytes.extend_from_slice(&[0x50, flags, 1, 0, 0, 0, 0, 0]);
        bytes.resize(len, 0);
        let sum = !farlink_wire::checksum::sum(&bytes[..20]);
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        bytes
    }

    #[test]
    fn acknowledgements_and_fragments_are_told_apart() {
        assert_eq!(Look::of(&v4([0x40, 0], 0x10, 0)), Look::Ack { number: 1, of_copy: false });
        for (flags, payload) in [(0x11, 0), (0x12, 0), (0x14, 0), (0x10, 1), (0x02, 0)] {
            assert_eq!(Look::of(&v4([0x40, 0], flags, payload)), Look::Other, "{flags} {payload}");
        }
        let (first, last, with_df) = (v4([0x20, 0], 0x10, 60), v4([0, 9], 0, 60), v4([0x60, 0], 0, 60));
        for packet in [first, last] {
            assert_eq!(Look::of(&packet), Look::Fragment { has_df: false });
        }
        assert_eq!(Look::of(&with_df), Look::Fragment { has_df: true });
        let mut v6 = vec![0x60, 0, 0, 0, 0, 8, IPV6_FRAGMENT, 63];
        v6.resize(48, 0);
        assert_eq!(Look::of(&v6), Look::Fragment { has_df: false });
        assert_eq!(Look::of(&[]), Look::Other);
    }

    #[test]
    fn a_firewall_drops_what_it_is_set_up_for() {
        let (plain, with_df) = (Look::Fragment { has_df: false }, Look::Fragment { has_df: true });
        for (look, of_all, of_df) in [
            (plain, true, false),
            (with_df, true, true),
            (Look::Ack { number: 1, of_copy: false }, false, false),
            (Look::Other, false, false),
        ] {
            assert_eq!(look.is_dropped_by(Firewall::Fragments), of_all);
            assert_eq!(look.is_dropped_by(Firewall::FragmentsWithDf), of_df);
        }
    }
}
