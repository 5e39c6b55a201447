//! ICMP errors: read, and made.

use crate::helpers::*;
use crate::targets::source::naive_sum;
use farlink_wire::icmp::{NoError, build_admin_prohibited, build_packet_too_big, verify_checksum};
use farlink_wire::*;
use std::net::IpAddr;

fn router(v6: bool) -> IpAddr {
    if v6 { "2001:db8::ff".parse().unwrap() } else { "192.0.2.255".parse().unwrap() }
}

fn icmp(p: &[u8]) -> IcmpError {
    match parse(p) {
        Parsed::Icmp(e) => e,
        other => panic!("not an ICMP error but {other:?}"),
    }
}

/// An error about a segment, its type, code and last header word as given.
fn error(v6: bool, kind: u8, code: u8, word: u32, quote: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    build_admin_prohibited(&packet(v6, &[], b""), router(v6), &mut out).unwrap();
    let at = if v6 { 40 } else { 20 };
    out.truncate(at + 8);
    out[at] = kind;
    out[at + 1] = code;
    out[at + 4..at + 8].copy_from_slice(&word.to_be_bytes());
    out.extend_from_slice(quote);
    let len = out.len() - if v6 { 40 } else { 0 };
    let len_at = if v6 { 4 } else { 2 };
    out[len_at..len_at + 2].copy_from_slice(&(len as u16).to_be_bytes());
    out
}

#[test]
fn what_they_say() {
    let quoted = |v6: bool| packet(v6, &[], b"payload")[..if v6 { 48 } else { 28 }].to_vec();
    for (v6, kind, code, word, want) in [
        (false, 3, 4, 1_300, IcmpKind::FragmentationNeeded { mtu: 1_300 }),
        (false, 3, 13, 0, IcmpKind::Unreachable { code: 13 }),
        (false, 11, 0, 0, IcmpKind::TimeExceeded),
        (false, 4, 0, 0, IcmpKind::Other { kind: 4, code: 0 }),
        (false, 12, 1, 0, IcmpKind::Other { kind: 12, code: 1 }),
        (true, 2, 0, 70_000, IcmpKind::PacketTooBig { mtu: 70_000 }),
        (true, 1, 4, 0, IcmpKind::Unreachable { code: 4 }),
        (true, 3, 0, 0, IcmpKind::TimeExceeded),
        (true, 4, 2, 0, IcmpKind::Other { kind: 4, code: 2 }),
    ] {
        let p = error(v6, kind, code, word, &quoted(v6));
        let e = icmp(&p);
        assert_eq!(e.kind, want);
        assert_eq!(&p[e.quote_offset..], quoted(v6));
        let h = header(v6);
        let total_len = if v6 { 67 } else { 47 };
        let inner = InnerTcp {
            src: h.src,
            dst: h.dst,
            src_port: h.src_port,
            dst_port: h.dst_port,
            seq: h.seq,
            total_len,
            has_shim: false,
            is_by_identification: false,
        };
        assert_eq!(e.inner, Some(inner));
        for len in 0..p.len() {
            assert_eq!(parse(&p[..len]), Parsed::Other);
        }
    }
}

#[test]
fn no_errors_are_other() {
    for (v6, kind) in [(false, 0), (false, 8), (false, 13), (true, 128), (true, 135), (true, 255)] {
        assert_eq!(parse(&error(v6, kind, 0, 0, &packet(v6, &[], b""))), Parsed::Other);
    }
}

#[test]
fn quotes_that_name_no_segment() {
    let inner = |v6: bool, quote: &[u8]| icmp(&error(v6, 3, 0, 0, quote)).inner;
    assert_eq!(inner(false, b""), None);
    assert_eq!(inner(false, &packet(false, &[], b"")[..27]), None, "seven bytes of TCP");
    assert_eq!(inner(false, &packet(true, &[], b"")), None, "the other family");
    let mut udp = packet(false, &[], b"");
    udp[9] = 17;
    assert_eq!(inner(false, &udp), None);
    let mut later = packet(false, &[], b"");
    later[7] = 5;
    assert_eq!(inner(false, &later), None, "a later fragment has no ports");
    let mut first = packet(false, &[], b"abcd");
    first[6] = 0x20;
    assert!(inner(false, &first[..40]).is_some(), "a first fragment has");
    let extended = with_extension(packet(true, &[], b"abcd"), &[60, 0, 1, 4, 0, 0, 0, 0]);
    assert_eq!(inner(true, &extended).unwrap().seq, header(true).seq);
}

#[test]
fn what_we_send() {
    for v6 in [false, true] {
        let original = packet(v6, &[], &payload(2_000));
        let mut out = vec![1, 2, 3];
        build_admin_prohibited(&original, router(v6), &mut out).unwrap();
        let e = icmp(&out);
        assert_eq!(e.kind, IcmpKind::Unreachable { code: if v6 { 1 } else { 13 } });
        assert_eq!((e.ip.src, e.ip.dst), (router(v6), header(v6).src));
        assert_eq!(out.len(), if v6 { 1_280 } else { 576 });
        assert!(verify_checksum(&out, &e) && original.starts_with(&out[e.quote_offset..]));
        assert!(v6 || naive_sum(&out[..20]) == 0xffff && naive_sum(&out[20..]) == 0xffff);
        assert_eq!(e.inner.unwrap().dst_port, 443);
        let copy = out.clone();
        let theirs = etherparse::SlicedPacket::from_ip(&copy).unwrap();
        if let (Some(etherparse::NetSlice::Ipv6(ip)), Some(etherparse::TransportSlice::Icmpv6(icmp))) =
            (&theirs.net, &theirs.transport)
        {
            assert!(icmp.is_checksum_valid(ip.header().source(), ip.header().destination()));
        }
        build_packet_too_big(&original, router(v6), 1_300, &mut out).unwrap();
        let e = icmp(&out);
        let want = if v6 {
            IcmpKind::PacketTooBig { mtu: 1_300 }
        } else {
            IcmpKind::FragmentationNeeded { mtu: 1_300 }
        };
        assert_eq!(e.kind, want);
        assert!(verify_checksum(&out, &e));
        let bad = {
            out[e.quote_offset] ^= 1;
            verify_checksum(&out, &e)
        };
        assert!(!bad);
    }
}

#[test]
fn ipv6_tells_of_later_fragments() {
    let mut fragments = Vec::new();
    let whole = packet(true, &[], &payload(2_000));
    fragment(&whole, 1_400, 77, &mut |f| fragments.push(f.to_vec())).unwrap();
    let mut out = Vec::new();
    build_packet_too_big(&fragments[1], router(true), 1_300, &mut out).unwrap();
    let e = icmp(&out);
    assert!(verify_checksum(&out, &e) && e.inner.is_none());
    let quoted = farlink_wire::icmp::quoted_fragment(&out, &e).unwrap();
    assert_eq!((quoted.id, quoted.ip.src, quoted.ip.dst), (77, header(true).src, header(true).dst));
}

#[test]
fn what_we_must_not_answer() {
    let refuse = |original: &[u8], v6, why| {
        let mut out = vec![1];
        assert_eq!(build_admin_prohibited(original, router(v6), &mut out), Err(why));
        assert!(out.is_empty());
    };
    refuse(b"x", false, NoError::NotIp);
    refuse(&packet(false, &[], b""), true, NoError::NotIp);
    refuse(&error(false, 3, 0, 0, &packet(false, &[], b"")), false, NoError::NotAllowed);
    refuse(&error(true, 3, 0, 0, &packet(true, &[], b"")), true, NoError::NotAllowed);
    let mut later = packet(false, &[], b"");
    later[7] = 5;
    refuse(&later, false, NoError::NotAllowed);
    for dst in ["224.0.0.1", "255.255.255.255", "0.0.0.0", "127.0.0.1"] {
        let h = SegmentHeader { dst: dst.parse().unwrap(), ..header(false) };
        refuse(&finished(&h, &[], b""), false, NoError::NotAllowed);
    }
    let h = SegmentHeader { src: "ff02::1".parse().unwrap(), ..header(true) };
    refuse(&finished(&h, &[], b""), true, NoError::NotAllowed);
    // A ping may be answered.
    let mut out = Vec::new();
    let ping = error(false, 8, 0, 0, b"ping");
    assert_eq!(build_admin_prohibited(&ping, router(false), &mut out), Ok(()));
}
