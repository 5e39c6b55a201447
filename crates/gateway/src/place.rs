//! Where a forwarded packet stands in the queue of a link: its class, and what tells its connection apart.

use core::net::IpAddr;

use farlink_egress::Class;
use farlink_wire::{FragmentInfo, Parsed, TcpSegment, ip, parse};

/// A place in a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// What it goes before, and behind.
    pub class: Class,
    /// Packets of one connection have the same.
    pub hash: u64,
}

impl Place {
    /// Errors, and what is no TCP.
    pub const CONTROL: Self = Self { class: Class::Control, hash: 0 };

    /// Of a segment: what carries no data goes first.
    pub fn of(s: &TcpSegment) -> Self {
        let class = if s.payload_len == 0 { Class::Control } else { Class::Bulk };
        let ports = u64::from(s.src_port) << 16 | u64::from(s.dst_port);
        Self { class, hash: mix(of_addresses(s.ip.src, s.ip.dst), ports) }
    }

    /// Of a fragment of a segment that was not put together: it is data, and only its addresses are known.
    pub fn of_fragment(info: &FragmentInfo) -> Self {
        Self { class: Class::Bulk, hash: of_addresses(info.ip.src, info.ip.dst) }
    }

    /// Of a packet of any kind.
    pub fn of_packet(bytes: &[u8]) -> Self {
        match parse(bytes) {
            Parsed::Tcp(s) => Self::of(&s),
            Parsed::Fragment(info) if info.protocol == ip::PROTOCOL_TCP => Self::of_fragment(&info),
            _ => Self::CONTROL,
        }
    }
}

/// Which direction does not matter in a queue that only one of them uses.
fn of_addresses(src: IpAddr, dst: IpAddr) -> u64 {
    let addr = |a: IpAddr| match a {
        IpAddr::V4(a) => u64::from(a.to_bits()),
        IpAddr::V6(a) => (a.to_bits() >> 64) as u64 ^ a.to_bits() as u64,
    };
    mix(mix(0, addr(src)), addr(dst))
}

fn mix(h: u64, v: u64) -> u64 {
    (h ^ v).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_of_tcp_wait_with_the_data_and_by_their_addresses() {
        let fragment = |last: u8, offset: u8| {
            let mut bytes =
                vec![0x45, 0, 0, 44, 0, 9, 0x20, offset, 63, 6, 0, 0, 10, 0, 1, last, 10, 0, 2, 1];
            bytes.extend_from_slice(&[7; 24]);
            let sum = !farlink_wire::checksum::sum(&bytes[..20]);
            bytes[10..12].copy_from_slice(&sum.to_be_bytes());
            Place::of_packet(&bytes)
        };
        let first = fragment(1, 0);
        assert_eq!((first.class, first), (Class::Bulk, fragment(1, 3)));
        assert_ne!(first.hash, fragment(2, 0).hash, "not all in one heap");
        assert_eq!(Place::of_packet(&[7; 24]), Place::CONTROL);
    }
}
