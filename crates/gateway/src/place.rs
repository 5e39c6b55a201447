//! Where a forwarded packet stands in the queue of a link: its class, and what tells its connection
//! apart.

use core::hash::Hasher;
use core::net::IpAddr;
use std::hash::DefaultHasher;

use farlink_egress::Class;
use farlink_engine::classes::Label;
use farlink_engine::config::{Class as FlowClass, DscpClasses, Rule};
use farlink_engine::net::IfaceId;
use farlink_wire::ip::UpperLayer;
use farlink_wire::shim::SHIM_BYTES;
use farlink_wire::{FragmentInfo, Parsed, Shim, ShimProtocols, TcpSegment, ip, parse_with};

/// Protocols whose first four bytes are ports: TCP, UDP, DCCP, SCTP, UDP-Lite.
const WITH_PORTS: [u8; 5] = [ip::PROTOCOL_TCP, 17, 33, 132, 136];

/// A place in a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// What it is.
    pub what: What,
    /// Packets of one connection have the same.
    pub hash: u64,
}

/// Which packets rules and DSCPs have a say about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// What keeps connections going, and goes first: handshakes, acknowledgements, ICMP errors.
    Control,
    /// A second one of a packet of a handshake, made here for a connection that is to be split. It
    /// goes first, too.
    Copy,
    /// All others.
    Data,
}

/// Class of what an engine's class names.
pub fn class_of(class: FlowClass) -> Class {
    match class {
        FlowClass::Interactive => Class::Interactive,
        FlowClass::Bulk => Class::Bulk,
        FlowClass::Background => Class::Background,
    }
}

impl Place {
    /// ICMP errors.
    pub const CONTROL: Self = Self { what: What::Control, hash: 0 };

    /// Of a segment: what carries no data goes first.
    pub fn of(s: &TcpSegment) -> Self {
        let what = if s.payload_len == 0 { What::Control } else { What::Data };
        let ports = u64::from(s.src_port) << 16 | u64::from(s.dst_port);
        Self { what, hash: mix(of_addresses(s.ip.src, s.ip.dst), ports) }
    }

    /// Of a copy of a packet of a handshake.
    pub fn of_copy(s: &TcpSegment) -> Self {
        Self { what: What::Copy, ..Self::of(s) }
    }

    /// Of a fragment of a segment that was not put together: it is data, and only its addresses are
    /// known.
    pub fn of_fragment(info: &FragmentInfo) -> Self {
        Self { what: What::Data, hash: of_addresses(info.ip.src, info.ip.dst) }
    }

    /// Of what is no TCP, or no TCP that could be read. In its class it shares with the rest, each
    /// conversation for itself. One that sends little finds its turn soon: the queue serves new
    /// ones first.
    pub fn of_other(bytes: &[u8], shims: ShimProtocols) -> Self {
        let Some(label) = label(bytes, shims) else { return Self { what: What::Data, hash: 0 } };
        let ports = match label.ports {
            Some((src, dst)) => u64::from(src) << 16 | u64::from(dst),
            // A tunnel hides the ports, but its sender may tell the flows apart (RFC 6438).
            None => ip::flow_label(bytes).unwrap_or(0).into(),
        };
        let what = u64::from(label.protocol) << 32 | ports;
        Self { what: What::Data, hash: mix(of_addresses(label.src, label.dst), what) }
    }

    /// Of a packet of any kind; these protocols stand for XCP's own header.
    pub fn of_packet(bytes: &[u8], shims: ShimProtocols) -> Self {
        match parse_with(bytes, shims) {
            Parsed::Tcp(s) => Self::of(&s),
            Parsed::Icmp(_) => Self::CONTROL,
            Parsed::Fragment(info) if info.protocol == ip::PROTOCOL_TCP || shims.has(info.protocol) => {
                Self::of_fragment(&info)
            }
            Parsed::Fragment(_) | Parsed::Other => Self::of_other(bytes, shims),
        }
    }

    /// The class of the packet that stands there, on its way between these interfaces.
    pub fn class(
        self,
        rules: (&[Rule], &DscpClasses),
        ways: (IfaceId, IfaceId),
        bytes: &[u8],
        shims: ShimProtocols,
    ) -> Class {
        match (self.what, label(bytes, shims)) {
            (What::Control | What::Copy, _) => Class::Control,
            (What::Data, Some(label)) => class_of(FlowClass::of_packet(rules, ways, &label)),
            (What::Data, None) => Class::Bulk,
        }
    }
}

/// What rules look at, without a check of any kind; `None`: it has no addresses. Behind XCP's own
/// header stands what they are about.
fn label(bytes: &[u8], shims: ShimProtocols) -> Option<Label> {
    let (src, dst) = ip::addresses(bytes)?;
    let byte = |at: usize| bytes.get(at).copied().unwrap_or(0);
    let UpperLayer { protocol, at: ports_at, is_fragment } = ip::upper_layer(bytes)?;
    let shim = bytes.get(ports_at..).filter(|_| src.is_ipv4() && !is_fragment && shims.has(protocol));
    let (protocol, ports_at) = match shim.and_then(Shim::read) {
        Some((next, _)) => (next, ports_at + SHIM_BYTES),
        None => (protocol, ports_at),
    };
    // Fragments after the first have no ports, so the first goes without, too: they keep their
    // order.
    let has_ports = WITH_PORTS.contains(&protocol) && !is_fragment;
    let port = |at: usize| u16::from_be_bytes([byte(at), byte(at + 1)]);
    let ports = has_ports.then(|| (port(ports_at), port(ports_at + 2)));
    Some(Label { src, dst, protocol, ports, dscp: ip::traffic_class(bytes)? >> 2 })
}

/// The host that a packet comes from, as far as queues go: of IPv6 its network of 64 bits, in which
/// it may have any address.
pub fn host_of(bytes: &[u8]) -> u64 {
    match ip::addresses(bytes) {
        Some((IpAddr::V4(src), _)) => mix(4, src.to_bits().into()),
        Some((IpAddr::V6(src), _)) => mix(6, (src.to_bits() >> 64) as u64),
        None => 0,
    }
}

/// Which direction does not matter in a queue that only one of them uses.
fn of_addresses(src: IpAddr, dst: IpAddr) -> u64 {
    let with = |h: u64, a: IpAddr| match a {
        IpAddr::V4(a) => mix(h, a.to_bits().into()),
        IpAddr::V6(a) => mix(mix(h, (a.to_bits() >> 64) as u64), a.to_bits() as u64),
    };
    with(with(0, src), dst)
}

/// ICMP errors from this host that are too many.
pub fn of_errors_from(host: u64) -> u64 {
    mix(host, 1)
}

/// The host of a packet, in the crowd: TCP waits for longer than what is none, so they wait apart,
/// and still do where many hosts have one place (the lowest bit tells them apart).
pub fn in_crowd(host: u64, is_tcp: bool) -> u64 {
    (mix(host, 2) & !1) | u64::from(is_tcp)
}

/// SipHash: nobody can reckon which addresses and ports have the place of another.
fn mix(h: u64, v: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write_u64(h);
    hasher.write_u64(v);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::others::CROWD_FLOWS;

    #[test]
    fn fragments_of_tcp_wait_with_the_data_and_by_their_addresses() {
        let fragment = |last: u8, offset: u8| {
            let mut bytes =
                vec![0x45, 0, 0, 44, 0, 9, 0x20, offset, 63, 6, 0, 0, 10, 0, 1, last, 10, 0, 2, 1];
            bytes.extend_from_slice(&[7; 24]);
            let sum = !farlink_wire::checksum::sum(&bytes[..20]);
            bytes[10..12].copy_from_slice(&sum.to_be_bytes());
            Place::of_packet(&bytes, ShimProtocols::NONE)
        };
        let first = fragment(1, 0);
        assert_eq!((first.what, first), (What::Data, fragment(1, 3)));
        assert_ne!(first.hash, fragment(2, 0).hash, "not all in one heap");
        let garbage = [7; 24];
        let class = Place::of_packet(&garbage, ShimProtocols::NONE).class(
            (&[], &DscpClasses::default()),
            (IfaceId(0), IfaceId(1)),
            &garbage,
            ShimProtocols::USUAL,
        );
        assert_eq!(class, Class::Bulk, "garbage goes before nobody");
    }

    #[test]
    fn tcp_and_what_is_none_share_no_place_in_a_crowd() {
        let places = |is_tcp: bool| (0..1_000).map(move |host| in_crowd(host, is_tcp) % CROWD_FLOWS);
        assert!(places(true).all(|tcp| places(false).all(|other| other != tcp)));
    }

    #[test]
    fn what_is_no_tcp_waits_with_the_data_each_conversation_for_itself() {
        let v4 = |protocol: u8, fragment: [u8; 2], port: u8| {
            let mut bytes = vec![0x45, 0, 0, 28, 0, 9, fragment[0], fragment[1], 63, protocol, 0, 0];
            bytes.extend_from_slice(&[10, 0, 1, 1, 10, 0, 2, 1, 0, port, 0, 53, 0, 8, 0, 0]);
            let sum = !farlink_wire::checksum::sum(&bytes[..20]);
            bytes[10..12].copy_from_slice(&sum.to_be_bytes());
            Place::of_packet(&bytes, ShimProtocols::NONE)
        };
        let udp = v4(17, [0x40, 0], 1);
        assert_eq!(udp.what, What::Data);
        assert_ne!(udp, v4(17, [0, 0], 2), "two ports, two flows");
        assert_eq!(udp, v4(17, [0, 0], 1), "DF makes no difference");
        assert_ne!(udp, v4(50, [0, 0], 1), "nor do others stand in its place");
        assert_eq!(v4(50, [0, 0], 1), v4(50, [0, 0], 2), "a protocol without ports");
        assert_eq!(v4(17, [0x20, 0], 1), v4(17, [0, 9], 2), "fragments of a datagram stay together");
    }

    #[test]
    fn conversations_of_ipv6_are_told_apart_as_those_of_ipv4() {
        let v6 = |next: u8, label: u8, behind: &[&[u8]]| {
            let payload = behind.concat();
            let mut bytes = vec![0x60, 0, 0, label, 0, payload.len() as u8, next, 63];
            bytes.extend_from_slice(&[1; 32]);
            bytes.extend_from_slice(&payload);
            Place::of_packet(&bytes, ShimProtocols::NONE)
        };
        let udp = |port: u8| [0, port, 0, 53, 0, 8, 0, 0];
        assert_eq!(v6(17, 0, &[&udp(1)]), v6(17, 9, &[&udp(1)]), "ports say enough");
        assert_ne!(v6(17, 0, &[&udp(1)]), v6(17, 0, &[&udp(2)]));
        let options = [17, 0, 1, 4, 0, 0, 0, 0];
        assert_ne!(v6(60, 0, &[&options, &udp(1)]), v6(60, 0, &[&options, &udp(2)]), "behind options");
        let fragment = |offset: u8, more: u8| [17, 0, 0, offset << 3 | more, 0, 0, 0, 7];
        let (first, last) = (v6(44, 3, &[&fragment(0, 1), &udp(1)]), v6(44, 3, &[&fragment(1, 0), &[5; 8]]));
        assert_eq!(first, last, "fragments of a datagram stay together");
        assert_ne!(first, v6(44, 4, &[&fragment(0, 1), &udp(1)]), "those of two flows do not");
        assert_ne!(v6(50, 1, &[&[7; 16]]), v6(50, 2, &[&[7; 16]]), "two flows in a tunnel");
    }

    /// As of IPv4.
    #[test]
    fn a_rule_for_udp_matches_fragments_of_ipv6() {
        let mut bytes = vec![0x60, 0, 0, 0, 0, 16, 44, 63];
        bytes.extend_from_slice(&[1; 32]);
        bytes.extend_from_slice(&[17, 0, 0, 9, 0, 0, 0, 7, 5, 5, 5, 5, 5, 5, 5, 5]);
        let label = label(&bytes, ShimProtocols::NONE).unwrap();
        assert_eq!((label.protocol, label.ports), (17, None));
    }

    #[test]
    fn the_dscp_stands_where_the_family_has_it() {
        let shims = ShimProtocols::USUAL;
        let class = |bytes: &[u8]| {
            Place::of_packet(bytes, shims).class(
                (&[], &DscpClasses::default()),
                (IfaceId(0), IfaceId(1)),
                bytes,
                shims,
            )
        };
        let v4 = |traffic_class: u8| {
            let mut bytes = vec![0x45, traffic_class, 0, 28, 0, 9, 0x40, 0, 63, 17, 0, 0];
            bytes.extend_from_slice(&[10, 0, 1, 1, 10, 0, 2, 1, 0, 7, 0, 53, 0, 8, 0, 0]);
            bytes
        };
        let v6 = |traffic_class: u8| {
            let mut bytes = vec![0x60 | traffic_class >> 4, traffic_class << 4, 0, 0, 0, 8, 58, 63];
            bytes.extend_from_slice(&[1; 32]);
            bytes.extend_from_slice(&[128, 0, 0, 0, 0, 0, 0, 0]);
            bytes
        };
        for (dscp, wanted) in [(46, Class::Interactive), (1, Class::Background), (0, Class::Bulk)] {
            // Whatever ECN says.
            assert_eq!((class(&v4(dscp << 2 | 3)), class(&v6(dscp << 2 | 3))), (wanted, wanted));
        }
    }
}
