//! Where a forwarded packet stands in the queue of a link: its class, and what tells its connection
//! apart.

use core::net::IpAddr;

use farlink_egress::Class;
use farlink_wire::{FragmentInfo, Parsed, TcpSegment, ip, parse};

/// Protocols whose first four bytes are ports: UDP, DCCP, SCTP, UDP-Lite.
const WITH_PORTS: [u8; 4] = [17, 33, 132, 136];

/// A place in a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// What it goes before, and behind.
    pub class: Class,
    /// Packets of one connection have the same.
    pub hash: u64,
}

impl Place {
    /// ICMP errors.
    pub const CONTROL: Self = Self { class: Class::Control, hash: 0 };

    /// Of a segment: what carries no data goes first.
    pub fn of(s: &TcpSegment) -> Self {
        let class = if s.payload_len == 0 { Class::Control } else { Class::Bulk };
        let ports = u64::from(s.src_port) << 16 | u64::from(s.dst_port);
        Self { class, hash: mix(of_addresses(s.ip.src, s.ip.dst), ports) }
    }

    /// Of a fragment of a segment that was not put together: it is data, and only its addresses are
    /// known.
    pub fn of_fragment(info: &FragmentInfo) -> Self {
        Self { class: Class::Bulk, hash: of_addresses(info.ip.src, info.ip.dst) }
    }

    /// Of what is no TCP, or no TCP that could be read. It shares with the data, each conversation
    /// for itself. One that sends little finds its turn soon: the queue serves new ones first.
    pub fn of_other(bytes: &[u8]) -> Self {
        let Some((src, dst)) = ip::addresses(bytes) else { return Self { class: Class::Bulk, hash: 0 } };
        let byte = |at: usize| bytes.get(at).copied().unwrap_or(0);
        let (protocol, ports_at, is_fragment) = match src {
            IpAddr::V4(_) => (byte(9), usize::from(byte(0) & 0x0f) * 4, (byte(6) & 0x3f) | byte(7) > 0),
            IpAddr::V6(_) => (byte(6), 40, false),
        };
        // Fragments after the first have no ports, so the first goes without, too: they keep their
        // order.
        let has_ports = WITH_PORTS.contains(&protocol) && !is_fragment;
        let ports = (0..4).map(|n| u64::from(byte(ports_at + n))).fold(0, |all, b| all << 8 | b);
        let what = u64::from(protocol) << 32 | if has_ports { ports } else { 0 };
        Self { class: Class::Bulk, hash: mix(of_addresses(src, dst), what) }
    }

    /// Of a packet of any kind.
    pub fn of_packet(bytes: &[u8]) -> Self {
        match parse(bytes) {
            Parsed::Tcp(s) => Self::of(&s),
            Parsed::Icmp(_) => Self::CONTROL,
            Parsed::Fragment(info) if info.protocol == ip::PROTOCOL_TCP => Self::of_fragment(&info),
            Parsed::Fragment(_) | Parsed::Other => Self::of_other(bytes),
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
        assert_eq!(Place::of_packet(&[7; 24]).class, Class::Bulk, "garbage goes before nobody");
    }

    #[test]
    fn what_is_no_tcp_waits_with_the_data_each_conversation_for_itself() {
        let v4 = |protocol: u8, fragment: [u8; 2], port: u8| {
            let mut bytes = vec![0x45, 0, 0, 28, 0, 9, fragment[0], fragment[1], 63, protocol, 0, 0];
            bytes.extend_from_slice(&[10, 0, 1, 1, 10, 0, 2, 1, 0, port, 0, 53, 0, 8, 0, 0]);
            let sum = !farlink_wire::checksum::sum(&bytes[..20]);
            bytes[10..12].copy_from_slice(&sum.to_be_bytes());
            Place::of_packet(&bytes)
        };
        let udp = v4(17, [0x40, 0], 1);
        assert_eq!(udp.class, Class::Bulk);
        assert_ne!(udp, v4(17, [0, 0], 2), "two ports, two flows");
        assert_eq!(udp, v4(17, [0, 0], 1), "DF makes no difference");
        assert_ne!(udp, v4(50, [0, 0], 1), "nor do others stand in its place");
        assert_eq!(v4(50, [0, 0], 1), v4(50, [0, 0], 2), "a protocol without ports");
        assert_eq!(v4(17, [0x20, 0], 1), v4(17, [0, 9], 2), "fragments of a datagram stay together");
        let v6 = |port: u8| {
            let mut bytes = vec![0x60, 0, 0, 0, 0, 8, 17, 63];
            bytes.extend_from_slice(&[1; 32]);
            bytes.extend_from_slice(&[0, port, 0, 53, 0, 8, 0, 0]);
            Place::of_packet(&bytes)
        };
        assert_eq!(v6(1), v6(1));
        assert_ne!(v6(1), v6(2));
    }
}
