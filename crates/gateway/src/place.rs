//! Where a forwarded packet stands in the queue of a link: its class, and what tells its connection
//! apart.

use core::net::IpAddr;

use farlink_egress::Class;
use farlink_engine::classes::Label;
use farlink_engine::config::{Class as FlowClass, Config, DscpClasses, Rule};
use farlink_engine::net::IfaceId;
use farlink_wire::ip::UpperLayer;
use farlink_wire::shim::SHIM_BYTES;
use farlink_wire::{FragmentInfo, Parsed, Shim, ShimProtocols, TcpSegment, ip, parse_with};

use crate::secret::{Purpose, Secret};

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

/// Gives packets their places. Nobody outside can compute which addresses and ports have the place
/// of others.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    secret: Secret,
    /// These protocols stand for XCP's own header.
    shims: ShimProtocols,
}

/// What tells connections apart beside their addresses.
#[derive(Clone, Copy)]
enum Beside {
    /// Nothing: only the addresses are known.
    Nothing,
    /// Ports of TCP.
    Ports(u64),
    /// Protocol, and ports or flow label.
    Other(u64),
    /// ICMP errors.
    Errors,
    /// The crowd.
    Crowd,
}

impl Places {
    /// Those of a gateway of this configuration.
    pub fn new(config: &Config) -> Self {
        Self { secret: Secret::new(config.seed, Purpose::Places), shims: config.shims() }
    }

    /// IP protocols that stand for XCP's own header.
    pub fn shims(self) -> ShimProtocols {
        self.shims
    }

    /// Of a segment: what carries no data goes first.
    pub fn of(self, s: &TcpSegment) -> Place {
        let what = if s.payload_len == 0 { What::Control } else { What::Data };
        let ports = u64::from(s.src_port) << 16 | u64::from(s.dst_port);
        Place { what, hash: self.hash(s.ip.src, s.ip.dst, Beside::Ports(ports)) }
    }

    /// Of a copy of a packet of a handshake.
    pub fn of_copy(self, s: &TcpSegment) -> Place {
        Place { what: What::Copy, ..self.of(s) }
    }

    /// Of a fragment of a segment that was not put together: it is data, and only its addresses are
    /// known.
    pub fn of_fragment(self, info: &FragmentInfo) -> Place {
        Place { what: What::Data, hash: self.hash(info.ip.src, info.ip.dst, Beside::Nothing) }
    }

    /// Of what is no TCP, or no TCP that could be read. In its class it shares with the rest, each
    /// conversation for itself. One that sends little finds its turn soon: the queue serves new
    /// ones first.
    pub fn of_other(self, bytes: &[u8]) -> Place {
        let Some(label) = label(bytes, self.shims) else { return Place { what: What::Data, hash: 0 } };
        let ports = match label.ports {
            Some((src, dst)) => u64::from(src) << 16 | u64::from(dst),
            // A tunnel hides the ports, but its sender may tell the flows apart (RFC 6438).
            None => ip::flow_label(bytes).unwrap_or(0).into(),
        };
        let what = u64::from(label.protocol) << 32 | ports;
        Place { what: What::Data, hash: self.hash(label.src, label.dst, Beside::Other(what)) }
    }

    /// Of a packet of any kind.
    pub fn of_packet(self, bytes: &[u8]) -> Place {
        match parse_with(bytes, self.shims) {
            Parsed::Tcp(s) => self.of(&s),
            Parsed::Icmp(_) => Place::CONTROL,
            Parsed::Fragment(info) if info.protocol == ip::PROTOCOL_TCP || self.shims.has(info.protocol) => {
                self.of_fragment(&info)
            }
            Parsed::Fragment(_) | Parsed::Other => self.of_other(bytes),
        }
    }

    /// The host that a packet comes from, as far as queues go: of IPv6 its network of 64 bits, in
    /// which it may have any address.
    fn host(self, bytes: &[u8], beside: Beside) -> u64 {
        match ip::addresses(bytes).map(|(src, _)| src) {
            Some(src @ IpAddr::V4(_)) => self.hash(src, src, beside),
            Some(IpAddr::V6(src)) => {
                let network = IpAddr::V6((src.to_bits() >> 64 << 64).into());
                self.hash(network, network, beside)
            }
            None => 0,
        }
    }

    /// ICMP errors from the host of this one, where they are too many.
    pub fn of_errors(self, bytes: &[u8]) -> u64 {
        self.host(bytes, Beside::Errors)
    }

    /// The host of a packet, in the crowd: TCP waits for longer than what is none, so they wait
    /// apart, and still do where many hosts have one place (the lowest bit tells them apart).
    pub fn in_crowd(self, bytes: &[u8], is_tcp: bool) -> u64 {
        (self.host(bytes, Beside::Crowd) & !1) | u64::from(is_tcp)
    }

    /// Which direction does not matter in a queue that only one of them uses.
    fn hash(self, src: IpAddr, dst: IpAddr, beside: Beside) -> u64 {
        let (kind, word) = match beside {
            Beside::Nothing => (0, 0),
            Beside::Ports(ports) => (1, ports),
            Beside::Other(what) => (2, what),
            Beside::Errors => (3, 0),
            Beside::Crowd => (4, 0),
        };
        // Kinds, of families, too, differ in what no word of the others has.
        let word = |v6: u64| (kind << 1 | v6) << 48 | word;
        match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                self.secret.hash(&[u64::from(src.to_bits()) << 32 | u64::from(dst.to_bits()), word(0)])
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let halves = |a: u128| [(a >> 64) as u64, a as u64];
                let ([a, b], [c, d]) = (halves(src.to_bits()), halves(dst.to_bits()));
                self.secret.hash(&[a, b, c, d, word(1)])
            }
            // No packet has addresses of both.
            _ => 0,
        }
    }
}

impl Place {
    /// ICMP errors.
    pub const CONTROL: Self = Self { what: What::Control, hash: 0 };

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crowd::CROWD_FLOWS;

    fn places() -> Places {
        Places { secret: Secret::new(7, Purpose::Places), shims: ShimProtocols::NONE }
    }

    #[test]
    fn fragments_of_tcp_wait_with_the_data_and_by_their_addresses() {
        let fragment = |last: u8, offset: u8| {
            let mut bytes =
                vec![0x45, 0, 0, 44, 0, 9, 0x20, offset, 63, 6, 0, 0, 10, 0, 1, last, 10, 0, 2, 1];
            bytes.extend_from_slice(&[7; 24]);
            let sum = !farlink_wire::checksum::sum(&bytes[..20]);
            bytes[10..12].copy_from_slice(&sum.to_be_bytes());
            places().of_packet(&bytes)
        };
        let first = fragment(1, 0);
        assert_eq!((first.what, first), (What::Data, fragment(1, 3)));
        assert_ne!(first.hash, fragment(2, 0).hash, "not all in one heap");
        let garbage = [7; 24];
        let class = places().of_packet(&garbage).class(
            (&[], &DscpClasses::default()),
            (IfaceId(0), IfaceId(1)),
            &garbage,
            ShimProtocols::USUAL,
        );
        assert_eq!(class, Class::Bulk, "garbage goes before nobody");
    }

    fn from_host(n: u16) -> Vec<u8> {
        let mut bytes = vec![0x45, 0, 0, 28, 0, 9, 0x40, 0, 63, 17, 0, 0, 10, 0];
        bytes.extend(n.to_be_bytes());
        bytes.extend([10, 9, 2, 1, 0, 7, 0, 53, 0, 8, 0, 0]);
        bytes
    }

    #[test]
    fn tcp_and_what_is_none_share_no_place_in_a_crowd() {
        let in_crowd =
            |is_tcp: bool| (0..1_000).map(move |n| places().in_crowd(&from_host(n), is_tcp) % CROWD_FLOWS);
        assert!(in_crowd(true).all(|tcp| in_crowd(false).all(|other| other != tcp)));
    }

    /// Who knows the program, and not the secret, cannot tell which of his hosts share a place with
    /// another one.
    #[test]
    fn each_gateway_places_hosts_in_its_own_way() {
        let place = |seed: u64, n: u16| {
            Places { secret: Secret::new(seed, Purpose::Places), ..places() }.of_errors(&from_host(n)) % 64
        };
        let shares =
            |seed: u64| (1..=6_400).filter(|n| place(seed, *n) == place(seed, 0)).collect::<Vec<_>>();
        let (one, other) = (shares(1), shares(2));
        assert!(one.len() > 50 && other.len() > 50);
        let both = one.iter().filter(|n| other.contains(n)).count();
        assert!(both < 20, "{both} of {} share a place in both", one.len());
    }

    #[test]
    fn what_is_no_tcp_waits_with_the_data_each_conversation_for_itself() {
        let v4 = |protocol: u8, fragment: [u8; 2], port: u8| {
            let mut bytes = vec![0x45, 0, 0, 28, 0, 9, fragment[0], fragment[1], 63, protocol, 0, 0];
            bytes.extend_from_slice(&[10, 0, 1, 1, 10, 0, 2, 1, 0, port, 0, 53, 0, 8, 0, 0]);
            let sum = !farlink_wire::checksum::sum(&bytes[..20]);
            bytes[10..12].copy_from_slice(&sum.to_be_bytes());
            places().of_packet(&bytes)
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
            places().of_packet(&bytes)
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
            Places { shims, ..places() }.of_packet(bytes).class(
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
