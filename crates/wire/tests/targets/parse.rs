//! Reading: no panic, no value that points outside the packet, and agreement with another parser.

use super::source::Source;
use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use farlink_wire::shim::SHIM_PROTOCOL;
use farlink_wire::{
    ChecksumState, Offload, PacketBuf, Parsed, PcapWriter, Pool, Said, ShimProtocols, TcpOptions,
    VNET_HEADER_BYTES, icmp, parse, parse_with, segment_count, shim, verify_checksums,
};
use std::net::IpAddr;

/// Any bytes.
pub fn run(data: &[u8]) {
    let mut source = Source(data);
    if let Some(header) = data.first_chunk::<VNET_HEADER_BYTES>()
        && let Ok(offload) = Offload::parse(header)
    {
        assert_eq!(Offload::parse(&offload.write()), Ok(offload));
    }
    let _ = TcpOptions::parse(data.get(..40).unwrap_or(data));
    check(data);
    check(&source.packet());
}

/// What must hold for the packet.
pub fn check(packet: &[u8]) {
    match parse(packet) {
        Parsed::Tcp(s) => {
            assert!(s.ip.total_len as usize <= packet.len());
            assert_eq!(s.payload_offset + s.payload_len, s.ip.total_len as usize);
            assert_eq!(s.payload(packet).len(), s.payload_len);
            assert!((20..=60).contains(&s.tcp_header_len()));
            let partial = ChecksumState::Partial { start: s.ip.header_len, offset: 16 };
            for checksum in [ChecksumState::Unverified, ChecksumState::Verified, partial] {
                let offload = Offload { checksum, ..Offload::default() };
                let _ = verify_checksums(packet, &s, &offload);
                assert_eq!(segment_count(&s, &offload), 1);
            }
            let _ = verify_checksums(&packet[..packet.len() / 2], &s, &Offload::default());
        }
        Parsed::Icmp(e) => {
            assert!(e.quote_offset <= packet.len());
            let _ = icmp::verify_checksum(packet, &e);
        }
        Parsed::Fragment(f) => {
            assert!(f.payload_offset + f.payload_len <= packet.len());
            assert!(f.end() <= 65_535 && f.payload_len > 0);
        }
        Parsed::Other => {}
    }
    let mut out = Vec::new();
    for src in ["192.0.2.1", "2001:db8::1"] {
        let src: IpAddr = src.parse().unwrap();
        if icmp::build_admin_prohibited(packet, src, &mut out).is_ok() {
            let Parsed::Icmp(e) = parse(&out) else { panic!("an error of our own does not parse") };
            assert!(icmp::verify_checksum(&out, &e));
            assert!(out.len() <= 1280);
        }
        let _ = icmp::build_packet_too_big(packet, src, 1300, &mut out);
    }
    PcapWriter::new(64).record(farlink_wire::Instant::ZERO, packet);
    check_shim(packet);
    compare(packet);
}

/// Whatever IPv4 packet it is: as one of XCP's.
fn check_shim(packet: &[u8]) {
    let mut packet = packet.to_vec();
    if packet.len() > 9 {
        packet[9] = SHIM_PROTOCOL;
    }
    let shims = ShimProtocols::USUAL;
    let said = Said::of(&packet, shims);
    let mut p = PacketBuf::from_slice(&mut Pool::new(1 << 20), &packet, Offload::default());
    if let Some(said) = said {
        said.lower(&mut p, 77);
        assert_eq!(Said::of(p.bytes(), shims).map(|s| s.fields.delta_bytes_per_s), Some(77));
        said.lower_in(&mut packet, 77);
        assert_eq!(p.bytes(), packet);
        said.lower_in(&mut packet[..9], 77);
    }
    let before = parse_with(&packet, shims);
    let had_one = shim::take_out(&mut p, shims);
    match (before, parse(p.bytes())) {
        (Parsed::Tcp(with), Parsed::Tcp(without)) if with.shim.is_some() => {
            assert!(had_one && without.shim.is_none());
            assert_eq!(with.payload(&packet), without.payload(p.bytes()));
            assert_eq!((with.seq, with.options), (without.seq, without.options));
            assert_eq!(with.ip.total_len, without.ip.total_len + 20);
        }
        (Parsed::Tcp(with), _) => assert!(with.shim.is_none() && !had_one),
        _ => {}
    }
}

/// Where etherparse finds a TCP segment, so do we, and it is the same one; and the other way round.
fn compare(packet: &[u8]) {
    let theirs = SlicedPacket::from_ip(packet).ok();
    let their_tcp = theirs.as_ref().and_then(|p| match (&p.net, &p.transport) {
        (Some(net), Some(TransportSlice::Tcp(tcp))) => Some((net, tcp)),
        _ => None,
    });
    match (parse(packet), their_tcp) {
        (Parsed::Tcp(s), Some((net, tcp))) => {
            assert_eq!((s.src_port, s.dst_port), (tcp.source_port(), tcp.destination_port()));
            assert_eq!((s.seq.0, s.ack.0), (tcp.sequence_number(), tcp.acknowledgment_number()));
            assert_eq!((s.window, s.urgent), (tcp.window_size(), tcp.urgent_pointer()));
            assert_eq!(
                (s.flags.fin(), s.flags.syn(), s.flags.rst(), s.flags.psh(), s.flags.ack(), s.flags.urg()),
                (tcp.fin(), tcp.syn(), tcp.rst(), tcp.psh(), tcp.ack(), tcp.urg())
            );
            assert_eq!((s.flags.ece(), s.flags.cwr(), s.flags.ae()), (tcp.ece(), tcp.cwr(), tcp.ns()));
            assert_eq!(s.payload(packet), tcp.payload());
            match net {
                NetSlice::Ipv4(ip) => {
                    let h = ip.header();
                    assert_eq!((s.ip.src, s.ip.dst), (h.source_addr().into(), h.destination_addr().into()));
                    assert_eq!((s.ip.ttl, s.ip.id), (h.ttl(), h.identification()));
                    assert_eq!((s.ip.dscp(), s.ip.ecn().bits()), (h.dcp().value(), h.ecn().value()));
                    assert_eq!(s.ip.dont_fragment, h.dont_fragment());
                    assert_eq!(s.ip.has_options, !h.options().is_empty());
                }
                NetSlice::Ipv6(ip) => {
                    let h = ip.header();
                    assert_eq!((s.ip.src, s.ip.dst), (h.source_addr().into(), h.destination_addr().into()));
                    assert_eq!((s.ip.ttl, s.ip.traffic_class), (h.hop_limit(), h.traffic_class()));
                    assert_eq!(s.ip.flow_label, h.flow_label().value());
                    assert_eq!(s.ip.has_options, !ip.extensions().is_empty());
                }
                NetSlice::Arp(_) => panic!("ARP in an IP packet"),
            }
        }
        (Parsed::Tcp(s), None) => {
            // etherparse reads each kind of extension header only where RFC 8200 recommends it, and
            // no BIG TCP.
            let is_known = s.ip.has_options && !s.ip.is_v4() || s.ip.total_len > 65_535;
            assert!(is_known, "we see TCP, etherparse does not: {:?}", SlicedPacket::from_ip(packet).err());
        }
        (ours, Some((net, _))) => {
            // It reads past authentication headers and headers that route on; a payload length of 0
            // it takes from the buffer.
            let is_known = match net {
                NetSlice::Ipv4(ip) => ip.extensions().auth.is_some(),
                NetSlice::Ipv6(ip) => !ip.extensions().is_empty() || ip.header().payload_length() == 0,
                NetSlice::Arp(_) => false,
            };
            assert!(is_known, "etherparse sees TCP, we see {ours:?}");
        }
        (_, None) => {}
    }
}
