//! XCP's own header between IPv4 and TCP (draft-falk-xcp-spec-03): the exact bytes.

use crate::helpers::{header, packet, tcp};
use crate::targets::source::naive_sum;
use farlink_wire::shim::{self, SHIM_BYTES, SHIM_PROTOCOL, ShimVersion, may_stand_for_shim};
use farlink_wire::xcp::{HeaderTime, XcpFields};
use farlink_wire::*;

const SAID: XcpFields =
    XcpFields { spacing: HeaderTime(0x0102_0304), rtt: HeaderTime(0x1112_1314), delta_bytes_per_s: -2 };
const DATA: Shim = Shim { version: ShimVersion::Three, said: Some(SAID), feedback_bytes_per_s: 0x2122_2324 };
/// Behind the IP header.
const AT: usize = 20;

/// A segment with the header, as a gateway makes it, whose checksum is complete.
fn with(shim: &Shim, protocol: u8, payload: &[&[u8]]) -> Vec<u8> {
    let len = payload.iter().map(|part| part.len()).sum();
    let (mut head, mut offload) = header(false).write(len).unwrap();
    shim.put_into(protocol, (&mut head, &mut offload), payload).unwrap();
    assert_eq!(offload, Offload::default(), "nothing is left to do");
    [&head[..], &payload.concat()].concat()
}

fn with_shim(packet: &[u8]) -> TcpSegment {
    match parse_with(packet, ShimProtocols::USUAL) {
        Parsed::Tcp(s) if s.shim.is_some() => s,
        other => panic!("{other:?}"),
    }
}

fn buf(bytes: &[u8]) -> PacketBuf {
    PacketBuf::from_slice(&mut Pool::new(1 << 20), bytes, Offload::default())
}

#[test]
fn version_3_is_written_and_version_2_is_read_too() {
    let bytes = DATA.bytes();
    let expected = [
        &[6, 20, 0x31, 0][..],
        &[1, 2, 3, 4],
        &[0x11, 0x12, 0x13, 0x14],
        &[0x21, 0x22, 0x23, 0x24],
        &[0xff, 0xff, 0xff, 0xfe],
    ];
    assert_eq!(bytes[..], expected.concat());
    assert_eq!(Shim::read(&bytes), Some((6, DATA)));
    // RTT, X, Delta_Throughput, Reverse_Feedback.
    let older = [
        &[6, 20, 0x21, 0][..],
        &[0x11, 0x12, 0x13, 0x14],
        &[1, 2, 3, 4],
        &[0xff, 0xff, 0xff, 0xfe],
        &[0x21, 0x22, 0x23, 0x24],
    ];
    let two = Shim { version: ShimVersion::Two, ..DATA };
    assert_eq!(Shim::read(&older.concat()), Some((6, two)));
    assert_eq!(two.bytes()[..], older.concat());
    // An acknowledgement alone: the minimal format, and zeros.
    let ack = Shim { said: None, feedback_bytes_per_s: -1, ..DATA };
    let minimal = [&[6, 20, 0x32, 0][..], &[0; 8], &[0xff; 4], &[0; 4]].concat();
    assert_eq!((ack.bytes()[..].to_vec(), Shim::read(&minimal)), (minimal.clone(), Some((6, ack))));
}

#[test]
fn what_is_cut_short_or_of_an_unknown_kind_is_none() {
    let bytes = DATA.bytes();
    for cut in 0..SHIM_BYTES {
        assert_eq!(Shim::read(&bytes[..cut]), None);
    }
    for (at, value) in [(1, 19), (1, 40), (1, 0), (2, 0x11), (2, 0x41), (2, 0x01), (2, 0x30), (2, 0x33)] {
        let mut wrong = bytes;
        wrong[at] = value;
        assert_eq!(Shim::read(&wrong), None, "{at} {value:x}");
    }
    // In a packet: what is cut, what is not TCP, what stands for something else.
    let p = with(&DATA, SHIM_PROTOCOL, &[b"data"]);
    let said = |p: &[u8]| parse_with(p, ShimProtocols::USUAL);
    assert_eq!(parse(&p), Parsed::Other, "nobody has said that it is one");
    assert_eq!(parse_with(&p, ShimProtocols::NONE.with(253)), Parsed::Other);
    for cut in 0..p.len() {
        assert_eq!(said(&p[..cut]), Parsed::Other, "{cut}");
    }
    let mut short = p.clone();
    short[2..4].copy_from_slice(&(20u16 + 20 + 19).to_be_bytes());
    assert_eq!(said(&short), Parsed::Other, "no room for a TCP header");
    let mut udp = p.clone();
    udp[AT] = 17;
    assert_eq!(said(&udp), Parsed::Other);
    assert!(!shim::take_out(&mut buf(&udp), ShimProtocols::USUAL));
    let v6 = packet(true, &[], b"data");
    let (mut head, mut offload) = header(true).write(0).unwrap();
    assert!(DATA.put_into(SHIM_PROTOCOL, (&mut head, &mut offload), &[]).is_err(), "IPv4 only");
    let mut p6 = v6.clone();
    p6[6] = SHIM_PROTOCOL;
    assert_eq!(said(&p6), Parsed::Other);
    let too_long = header(false).write(65_535 - 40).unwrap();
    let (mut head, mut offload) = too_long.clone();
    assert!(DATA.put_into(SHIM_PROTOCOL, (&mut head, &mut offload), &[]).is_err());
    assert_eq!((head, offload), too_long);
}

#[test]
fn the_segment_behind_it_is_as_it_would_be_without() {
    for payload in [&[][..], &[&b"da"[..], b"ta"], &[b"d", b"a", b"tas"], &[b"odd"]] {
        let plain = packet(false, &[], &payload.concat());
        for protocol in [SHIM_PROTOCOL, 0x99] {
            let p = with(&DATA, protocol, payload);
            assert_eq!(p.len(), plain.len() + SHIM_BYTES);
            assert_eq!((p[9], usize::from(u16::from_be_bytes([p[2], p[3]]))), (protocol, p.len()));
            assert_eq!(naive_sum(&p[..20]), 0xffff, "the IP header's checksum");
            assert_eq!((p[AT..AT + 20].to_vec(), &p[40..]), (DATA.bytes().to_vec(), &plain[20..]));
            let shims = ShimProtocols::NONE.with(protocol);
            let Parsed::Tcp(s) = parse_with(&p, shims) else { panic!("TCP") };
            assert!(verify_checksums(&p, &s, &Offload::default()));
            assert_eq!((s.shim, s.tcp_offset(), s.payload(&p)), (Some(DATA), 40, &payload.concat()[..]));
            let mut p = buf(&p);
            assert!(shim::take_out(&mut p, shims) && !shim::take_out(&mut p, shims));
            assert_eq!(p.bytes(), plain);
        }
    }
}

#[test]
fn what_is_wrong_stays_wrong_and_nobody_vouches_for_it() {
    let mut wrong = with(&DATA, SHIM_PROTOCOL, &[b"data"]);
    *wrong.last_mut().unwrap() ^= 1;
    let s = with_shim(&wrong);
    for checksum in [ChecksumState::Unverified, ChecksumState::Verified] {
        let offload = Offload { checksum, ..Offload::default() };
        assert!(!verify_checksums(&wrong, &s, &offload), "the kernel knows no TCP there");
    }
    let mut p = buf(&wrong);
    assert!(shim::take_out(&mut p, ShimProtocols::USUAL));
    assert!(!verify_checksums(p.bytes(), &tcp(p.bytes()), &Offload::default()));
    let mut bad_ip = with(&DATA, SHIM_PROTOCOL, &[b"data"]);
    bad_ip[11] ^= 1;
    assert!(!verify_checksums(&bad_ip, &with_shim(&bad_ip), &Offload::default()));
    let mut p = buf(&bad_ip);
    shim::take_out(&mut p, ShimProtocols::USUAL);
    assert_ne!(naive_sum(&p.bytes()[..20]), 0xffff);
    // A partial checksum begins where TCP does.
    let mut p = buf(&with(&DATA, SHIM_PROTOCOL, &[b"data"]));
    p.offload.checksum = ChecksumState::Partial { start: 40, offset: 16 };
    p.offload.header_len = 60;
    shim::take_out(&mut p, ShimProtocols::USUAL);
    assert_eq!(p.offload.checksum, ChecksumState::Partial { start: 20, offset: 16 });
    assert_eq!(p.offload.header_len, 40);
}

#[test]
fn fields_of_the_segment_are_changed_behind_it() {
    let mut p = buf(&with(&DATA, SHIM_PROTOCOL, &[b"data"]));
    let s = with_shim(p.bytes());
    edit::set_window(&mut p, &s, 9);
    edit::set_ack(&mut p, &s, SeqNum(1));
    let option = build::farlink_option(FARLINK_DATA, &[7; 4]).unwrap();
    edit::insert_option(&mut p, &s, &option).unwrap();
    let s = with_shim(p.bytes());
    assert!(verify_checksums(p.bytes(), &s, &Offload::default()));
    assert_eq!((s.window, s.ack, s.shim, s.options.farlink.is_some()), (9, SeqNum(1), Some(DATA), true));
    edit::remove_farlink_option(&mut p, &s);
    let s = with_shim(p.bytes());
    assert!(verify_checksums(p.bytes(), &s, &Offload::default()) && s.options.farlink.is_none());
}

#[test]
fn routers_read_either_form_and_lower_the_wish_where_it_stands() {
    let shims = ShimProtocols::USUAL;
    for version in [ShimVersion::Two, ShimVersion::Three] {
        let wishes = |delta_bytes_per_s| {
            let said = Some(XcpFields { delta_bytes_per_s, ..SAID });
            with(&Shim { version, said, ..DATA }, SHIM_PROTOCOL, &[b"data"])
        };
        let before = wishes(i32::MAX);
        let said = Said::of(&before, shims).unwrap();
        assert_eq!(said.fields, XcpFields { delta_bytes_per_s: i32::MAX, ..SAID });
        assert_eq!(Said::of(&before, ShimProtocols::NONE), None);
        let mut p = buf(&before);
        said.lower(&mut p, -9);
        assert_eq!(p.bytes(), wishes(-9));
        let mut bytes = before.clone();
        said.lower_in(&mut bytes, -9);
        assert_eq!(bytes, wishes(-9));
        // Of whatever stands behind it.
        let mut udp = before;
        udp[AT] = 17;
        assert_eq!(Said::of(&udp, shims).map(|said| said.fields.rtt), Some(SAID.rtt));
    }
    let minimal = with(&Shim { said: None, ..DATA }, SHIM_PROTOCOL, &[]);
    assert_eq!(Said::of(&minimal, shims), None, "it is passed by");
}

#[test]
fn errors_that_quote_it_are_about_the_segment() {
    let p = with(&DATA, SHIM_PROTOCOL, &[&[7; 200]]);
    let mut error = Vec::new();
    icmp::build_packet_too_big(&p, "192.0.2.1".parse().unwrap(), 1_000, &mut error).unwrap();
    let about = |error: &[u8], shims| match parse_with(error, shims) {
        Parsed::Icmp(e) => e.inner,
        other => panic!("{other:?}"),
    };
    let inner = about(&error, ShimProtocols::USUAL).unwrap();
    assert_eq!((inner.src_port, inner.dst_port, inner.seq), (40_000, 443, SeqNum(0xffff_ff00)));
    assert!(inner.has_shim && inner.total_len == 20 + 20 + 20 + 200);
    assert_eq!(about(&error, ShimProtocols::NONE), None);
    // A router that quotes no more than 64 bits says too little.
    let mut short = error[..20 + 8 + 20 + 8].to_vec();
    let total = (short.len() as u16).to_be_bytes();
    short[2..4].copy_from_slice(&total);
    assert_eq!(about(&short, ShimProtocols::USUAL), None);
}

#[test]
fn any_number_may_stand_for_it_but_those_in_use() {
    for protocol in 0..=255 {
        let shims = ShimProtocols::NONE.with(protocol);
        assert!(shims.has(protocol) && !shims.is_empty());
        assert!((0..=255).filter(|other| *other != protocol).all(|other| !shims.has(other)));
    }
    assert_eq!(ShimProtocols::USUAL, ShimProtocols::NONE.with(SHIM_PROTOCOL));
    assert!(may_stand_for_shim(254) && may_stand_for_shim(200));
    assert!([1, 6, 17, 50, 58].iter().all(|n| !may_stand_for_shim(*n)));
}
