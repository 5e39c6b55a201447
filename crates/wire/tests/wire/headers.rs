//! IP and TCP headers: built and read back, cut short, contradictory, extended, oversized.

use crate::helpers::*;
use crate::targets::source::naive_sum;
use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use farlink_wire::xcp::{HeaderTime, XcpFields};
use farlink_wire::*;
use proptest::prelude::*;
use std::net::IpAddr;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_built_is_read_back(
        addresses in prop_oneof![
            any::<([u8; 4], [u8; 4])>().prop_map(|(a, b)| (IpAddr::from(a), IpAddr::from(b))),
            any::<([u8; 16], [u8; 16])>().prop_map(|(a, b)| (IpAddr::from(a), IpAddr::from(b))),
        ],
        (src_port, dst_port, seq, ack, flags) in any::<(u16, u16, u32, u32, u16)>(),
        (window, urgent, ttl, traffic_class, flow_label) in any::<(u16, u16, u8, u8, u32)>(),
        (ip_id, dont_fragment, timestamps, marks_padding) in any::<(u16, bool, Option<(u32, u32)>, bool)>(),
        sack in proptest::collection::vec(any::<(u32, u32)>(), 0..6),
        farlink in proptest::option::of(prop_oneof![Just(Vec::new()), proptest::collection::vec(any::<u8>(), 0..20)]),
        (fields_said, xcp_sum) in any::<(Option<(u32, u32, i32)>, Option<u32>)>(),
        payload in proptest::collection::vec(any::<u8>(), 0..100),
    ) {
        let v4 = addresses.0.is_ipv4();
        // 40 bytes of options are all.
        let body_bytes = farlink.as_ref().map_or(0, Vec::len);
        let fields = |(spacing, rtt, delta_bytes_per_s)| {
            XcpFields { spacing: HeaderTime(spacing), rtt: HeaderTime(rtt), delta_bytes_per_s }
        };
        let sack: Vec<SackBlock> =
            sack.into_iter().map(|(s, e)| SackBlock { start: SeqNum(s), end: SeqNum(e) }).collect();
        let header = SegmentHeader {
            src: addresses.0,
            dst: addresses.1,
            src_port, dst_port, ttl, traffic_class, ip_id, dont_fragment, window, urgent,
            flow_label: flow_label & 0xfffff,
            seq: SeqNum(seq),
            ack: SeqNum(ack),
            flags: Flags(flags & Flags::MASK),
            timestamps: timestamps.map(|(val, ecr)| Timestamps { val, ecr }),
            sack: &sack,
            farlink: farlink.as_deref(),
            marks_padding,
            xcp: fields_said.map(fields).filter(|_| body_bytes <= 4),
            xcp_sum: xcp_sum.filter(|_| body_bytes == 0),
        };
        let (bytes, offload) = header.write(payload.len()).unwrap();
        prop_assert_eq!(bytes.len(), header.header_len());
        prop_assert_eq!(offload.header_len as usize, bytes.len());
        let mut packet = [&bytes[..], &payload].concat();
        prop_assert!(verify_checksums(&packet, &tcp(&packet), &offload));
        finish_checksums(&mut packet, &offload);
        prop_assert!(is_right(&packet));

        let s = tcp(&packet);
        prop_assert_eq!((s.ip.src, s.ip.dst, s.src_port, s.dst_port), (header.src, header.dst, src_port, dst_port));
        prop_assert_eq!((s.seq, s.ack, s.flags), (header.seq, header.ack, header.flags));
        prop_assert_eq!((s.window, s.urgent, s.ip.ttl, s.ip.traffic_class), (window, urgent, ttl, traffic_class));
        prop_assert_eq!(s.ip.flow_label, if v4 { 0 } else { header.flow_label });
        prop_assert_eq!((s.ip.id, s.ip.dont_fragment), if v4 { (ip_id, dont_fragment) } else { (0, true) });
        prop_assert_eq!(s.payload(&packet), &payload[..]);
        prop_assert_eq!(s.options.timestamps, header.timestamps);
        prop_assert_eq!((s.options.xcp, s.options.xcp_sum), (header.xcp, header.xcp_sum));
        prop_assert_eq!(&s.options.sack[..], &sack[..header.sack_blocks_written()]);
        prop_assert_eq!(s.options.farlink.as_ref().map(|f| (f.form, f.body.to_vec())), farlink.clone().map(|f| (FARLINK_DATA, f)));
        prop_assert!(s.options.unknown.is_empty() && !s.options.malformed);

        let theirs = SlicedPacket::from_ip(&packet).unwrap();
        let Some(TransportSlice::Tcp(their_tcp)) = theirs.transport else { panic!("etherparse sees no TCP") };
        let check = match theirs.net.unwrap() {
            NetSlice::Ipv4(ip) => their_tcp.calc_checksum_ipv4(ip.header().source(), ip.header().destination()).unwrap(),
            NetSlice::Ipv6(ip) => their_tcp.calc_checksum_ipv6(ip.header().source(), ip.header().destination()).unwrap(),
            NetSlice::Arp(_) => panic!("ARP"),
        };
        prop_assert_eq!(their_tcp.checksum(), check);
    }
}

#[test]
fn as_many_sack_blocks_as_fit() {
    let sack = [SackBlock { start: SeqNum(1), end: SeqNum(2) }; 6];
    let timestamps = Some(Timestamps { val: 1, ecr: 2 });
    let fits = |timestamps, farlink| {
        let h = SegmentHeader { timestamps, sack: &sack, farlink, ..header(false) };
        (h.sack_blocks_written(), h.options_len())
    };
    assert_eq!(fits(None, None), (4, 36));
    assert_eq!(fits(timestamps, None), (3, 40));
    assert_eq!(fits(timestamps, Some(&[1, 2, 3, 4][..])), (2, 40));
    assert_eq!(fits(timestamps, Some(&[0; 24][..])), (0, 40));
    // A mark in the padding takes nothing, a message the same as without.
    let padded = |farlink: &[u8], timestamps| {
        let h = SegmentHeader {
            timestamps,
            sack: &sack,
            farlink: Some(farlink),
            marks_padding: true,
            ..header(false)
        };
        (h.sack_blocks_written(), h.options_len())
    };
    assert_eq!(padded(&[], timestamps), (3, 40));
    assert_eq!(padded(&[1, 2, 3, 4], timestamps), (2, 40));
    assert_eq!(padded(&[], None), (4, 40));
    let too_long = SegmentHeader { timestamps, farlink: Some(&[0; 25]), ..header(false) };
    assert_eq!(too_long.write(0).unwrap_err(), BuildError::OptionsTooLong(44));
}

#[test]
fn what_cannot_be_built() {
    let mixed = SegmentHeader { dst: header(true).dst, ..header(false) };
    assert_eq!(mixed.write(0).unwrap_err(), BuildError::MixedFamilies);
    assert!(header(false).write(65_535 - 40).is_ok());
    assert_eq!(header(false).write(65_535 - 39).unwrap_err(), BuildError::TooLong(65_536));
    assert!(header(true).write(65_535 - 20).is_ok());
    assert_eq!(header(true).write(65_535 - 19).unwrap_err(), BuildError::TooLong(65_576));
    assert_eq!(header(true).write_with_options(0, &[1; 41]).unwrap_err(), BuildError::OptionsTooLong(41));
}

#[test]
fn every_truncation_is_other() {
    let options = [2, 4, 5, 0xb4, 1, 1, 4, 2];
    let v6_extended = [60, 0, 1, 4, 0, 0, 0, 0, 43, 0, 1, 0, 0, 0, 0, 0];
    for whole in [
        packet(false, &options, b"abc"),
        packet(true, &options, b"abc"),
        with_extension(packet(false, &options, b"abc"), &[148, 4, 0, 0]),
        with_extension(packet(true, &options, b"abc"), &v6_extended),
    ] {
        assert_eq!(tcp(&whole).payload(&whole), b"abc");
        for len in 0..whole.len() {
            assert_eq!(parse(&whole[..len]), Parsed::Other, "first {len} bytes");
        }
    }
}

#[test]
fn padding_is_no_payload() {
    for v6 in [false, true] {
        let p = [&packet(v6, &[], b"ab")[..], &[0; 20]].concat();
        let s = tcp(&p);
        assert_eq!((s.payload(&p), s.payload_len), (&b"ab"[..], 2));
        assert!(verify_checksums(&p, &s, &Offload::default()));
    }
}

#[test]
fn sequence_space_counts_syn_and_fin() {
    let h =
        SegmentHeader { flags: Flags::SYN | Flags::FIN | Flags::ACK, seq: SeqNum(u32::MAX), ..header(false) };
    let s = tcp(&finished(&h, &[], b"abc"));
    assert_eq!((s.seq_len(), s.end_seq()), (5, SeqNum(4)));
    assert_eq!(format!("{:?}", s.flags), "ACK|SYN|FIN");
    assert_eq!(format!("{:?}", Flags::NONE), "-");
}

#[test]
fn contradictory_headers_are_other() {
    let good = packet(false, &[], b"abcdefgh");
    let change = |at: usize, value: u8| {
        let mut p = good.clone();
        p[at] = value;
        parse(&p)
    };
    assert_eq!(change(0, 0x55), Parsed::Other, "version 5");
    assert_eq!(change(0, 0x44), Parsed::Other, "header of 16 bytes");
    assert_eq!(change(0, 0x4f), Parsed::Other, "header longer than the packet");
    assert_eq!(change(3, 49), Parsed::Other, "longer than the buffer");
    assert_eq!(change(3, 19), Parsed::Other, "shorter than its header");
    assert_eq!(change(3, 39), Parsed::Other, "cuts the TCP header");
    assert_eq!(change(3, 0), Parsed::Other, "length 0 in a small buffer");
    assert_eq!(change(32, 0x40), Parsed::Other, "data offset 4");
    assert_eq!(change(32, 0xf0), Parsed::Other, "data offset beyond the end");
    assert!(matches!(change(32, 0x70), Parsed::Tcp(s) if s.payload_len == 0));
}

#[test]
fn other_protocols_are_other() {
    for protocol in [0, 4, 17, 41, 47, 50, 51, 59, 132, 135, 253, 255] {
        for v6 in [false, true] {
            if v6 && protocol == 0 {
                continue;
            }
            let mut p = packet(v6, &[], b"abcdefgh");
            p[if v6 { 6 } else { 9 }] = protocol;
            assert_eq!(parse(&p), Parsed::Other, "protocol {protocol}");
        }
    }
}

#[test]
fn ipv6_extension_headers() {
    let base = packet(true, &[], b"abc");
    let destination = [60, 0, 1, 4, 0, 0, 0, 0];
    let long_destination = [&[60, 2, 1, 20][..], &[0; 20]].concat();
    let hop_by_hop = [0, 0, 1, 4, 0, 0, 0, 0];
    let routing_done = [43, 0, 3, 0, 0, 0, 0, 0];
    let routing_on = [43, 0, 3, 1, 0, 0, 0, 0];
    let atomic = [44, 0, 0, 0, 1, 2, 3, 4];
    let extended = |parts: &[&[u8]]| with_extension(base.clone(), &parts.concat());

    for parts in [
        &[&destination[..]][..],
        &[&hop_by_hop],
        &[&atomic],
        &[&hop_by_hop, &long_destination, &routing_done, &atomic, &destination],
        &[&destination[..]; 8],
    ] {
        let p = extended(parts);
        let s = tcp(&p);
        assert_eq!(s.payload(&p), b"abc");
        assert_eq!(s.tcp_offset(), 40 + parts.concat().len());
        assert!(s.ip.has_options && is_right(&p) && verify_checksums(&p, &s, &Offload::default()));
    }
    assert!(!tcp(&base).ip.has_options);
    assert_eq!(parse(&extended(&[&routing_on])), Parsed::Other, "not at its destination yet");
    assert_eq!(
        parse(&extended(&[&destination, &hop_by_hop])),
        Parsed::Other,
        "hop-by-hop stands first or not at all"
    );
    assert_eq!(parse(&extended(&[&destination[..]; 9])), Parsed::Other, "a bounded walk");
    let mut endless = extended(&[&destination]);
    endless[41] = 255;
    assert_eq!(parse(&endless), Parsed::Other, "an extension longer than the packet");
}

#[test]
fn ipv4_options_are_noted() {
    let p = with_extension(packet(false, &[], b"abc"), &[148, 4, 0, 0]);
    let s = tcp(&p);
    assert!(s.ip.has_options && is_right(&p));
    assert_eq!((s.tcp_offset(), s.payload(&p)), (24, &b"abc"[..]));
    assert!(!tcp(&packet(false, &[], b"")).ip.has_options);
}

#[test]
fn fragments_are_told_apart() {
    let mut p = packet(false, &[], &payload(20));
    p[6] = 0x20;
    let f = fragment_info(&p);
    assert_eq!((f.offset, f.more, f.payload_len, f.protocol, f.id), (0, true, 40, 6, 0x1234));
    p[6..8].copy_from_slice(&[0x40, 3]);
    let f = fragment_info(&p);
    assert_eq!((f.offset, f.more, f.end(), f.ip.dont_fragment), (24, false, 64, true));
    p[6..8].copy_from_slice(&[0x1f, 0xff]);
    assert_eq!(parse(&p), Parsed::Other, "ends beyond 65,535");
    let mut odd = packet(false, &[], &payload(21));
    odd[6] = 0x20;
    assert_eq!(parse(&odd), Parsed::Other, "more to come, but not in eights");

    let p6 = with_extension(packet(true, &[], &payload(20)), &[44, 0, 0, 25, 1, 2, 3, 4]);
    let f = fragment_info(&p6);
    assert_eq!((f.offset, f.more, f.payload_len, f.id), (24, true, 40, 0x0102_0304));
    assert_eq!((f.payload_offset, f.ip.header_len), (48, 48));
}

#[test]
fn oversized_super_segments() {
    // Linux BIG TCP: length 0 in a buffer that no length could name.
    for v6 in [false, true] {
        let small = packet(v6, &[], b"");
        let mut p = [&small[..], &payload(66_000)].concat();
        let len_at = if v6 { 4 } else { 2 };
        p[len_at..len_at + 2].fill(0);
        let s = tcp(&p);
        assert_eq!((s.payload_len, s.ip.total_len as usize), (66_000, p.len()));
        let short = &p[..60_000];
        assert_eq!(parse(short), Parsed::Other);
    }
    // The jumbogram of RFC 2675.
    let p = jumbogram(66_000);
    let s = tcp(&p);
    assert_eq!((s.payload_len, s.payload_offset), (66_000, 68));
    assert_eq!(parse(&p[..p.len() - 1]), Parsed::Other);
    let mut lies = p.clone();
    lies[44..48].copy_from_slice(&65_535u32.to_be_bytes());
    assert_eq!(parse(&lies), Parsed::Other, "a jumbo length that is none");
}

pub fn jumbogram(payload_len: usize) -> Vec<u8> {
    let small = with_extension(packet(true, &[], b""), &[0, 0, 0xc2, 4, 0, 0, 0, 0]);
    let mut p = [&small[..], &payload(payload_len)].concat();
    p[4..6].fill(0);
    let len = (p.len() - 40) as u32;
    p[44..48].copy_from_slice(&len.to_be_bytes());
    p
}

#[test]
fn dscp_and_ecn() {
    let s = tcp(&packet(false, &[], b""));
    assert_eq!((s.ip.dscp(), s.ip.ecn()), (0x2e, Ecn::Ect0));
    for bits in 0..4 {
        assert_eq!(Ecn::from_traffic_class(0xfc | bits).bits(), bits);
    }
    assert_eq!(naive_sum(&packet(false, &[], b"")[..20]), 0xffff);
}
