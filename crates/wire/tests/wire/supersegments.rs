//! Super-segments and the virtio-net header that announces them.

use crate::headers::jumbogram;
use crate::helpers::*;
use farlink_wire::*;

fn cut(p: &[u8], gso_size: u16) -> Vec<Vec<u8>> {
    let gso = if p[0] >> 4 == 4 { Gso::Tcp4 } else { Gso::Tcp6 };
    let offload = Offload { gso, gso_size, ..Offload::default() };
    let mut out = Vec::new();
    segment(p, &offload, &mut |s| out.push(s.to_vec()));
    out
}

#[test]
fn a_full_one() {
    for v6 in [false, true] {
        let h = SegmentHeader {
            flags: Flags::ACK | Flags::PSH | Flags::FIN | Flags::CWR | Flags::URG,
            urgent: 9,
            ip_id: 0xffff,
            ..header(v6)
        };
        let p = finished(&h, &[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2], &payload(65_000));
        let out = cut(&p, 1_448);
        assert_eq!(out.len(), 45);
        let mut joined = Vec::new();
        for (n, s) in out.iter().enumerate() {
            assert!(is_right(s));
            let seg = tcp(s);
            assert_eq!(seg.seq, h.seq + 1_448 * n as u32);
            assert_eq!(seg.ip.id, if v6 { 0 } else { 0xffffu16.wrapping_add(n as u16) });
            assert_eq!(seg.flags.contains(Flags::PSH | Flags::FIN), n == 44);
            assert_eq!(seg.flags.any(Flags::PSH | Flags::FIN), n == 44);
            assert_eq!(seg.flags.cwr(), n == 0);
            assert_eq!((seg.urgent, seg.flags.urg(), seg.ip.dont_fragment), (9, true, true));
            assert_eq!(seg.ip.traffic_class, h.traffic_class);
            joined.extend_from_slice(seg.payload(s));
        }
        assert_eq!(joined, payload(65_000));
    }
}

#[test]
fn ordinary_packets_come_out_as_they_are() {
    let p = packet(false, &[], b"abc");
    assert_eq!(cut(&p, 3), std::slice::from_ref(&p));
    assert_eq!(cut(&p, 0), std::slice::from_ref(&p));
    assert_eq!(cut(b"no packet", 4), [b"no packet".to_vec()]);
    let (bytes, offload) = header(false).write(3).unwrap();
    let partial = [&bytes[..], b"abc"].concat();
    let mut out = Vec::new();
    segment(&partial, &offload, &mut |s| out.push(s.to_vec()));
    assert_eq!(out, [p], "a partial checksum is completed");
}

#[test]
fn oversized_ones_become_ordinary() {
    let out = cut(&jumbogram(66_000), 1_400);
    assert_eq!(out.len(), 48);
    assert!(out.iter().all(|s| is_right(s)));
    assert_eq!(out.iter().map(|s| tcp(s).payload_len).sum::<usize>(), 66_000);
    let mut big = [&packet(false, &[], b"")[..], &payload(66_000)].concat();
    big[2..4].fill(0);
    fix_ipv4(&mut big);
    let out = cut(&big, 1_400);
    assert!(out.len() == 48 && out.iter().all(|s| is_right(s)));
}

#[test]
fn virtio_net_header() {
    // NEEDS_CSUM, TCPv4 with ECN, 54 bytes of header, 1,448 a segment, checksum at 20 + 16.
    let le: [u8; 10] = [1, 0x81, 54, 0, 0xa8, 5, 20, 0, 16, 0];
    let be: [u8; 10] = [1, 0x81, 0, 54, 5, 0xa8, 0, 20, 0, 16];
    let bytes = if cfg!(target_endian = "little") { le } else { be };
    let want = Offload {
        checksum: ChecksumState::Partial { start: 20, offset: 16 },
        gso: Gso::Tcp4,
        gso_size: 1_448,
        gso_ecn: true,
        header_len: 54,
    };
    assert_eq!(Offload::parse(&bytes), Ok(want));
    assert_eq!(want.write(), bytes);
    assert_eq!(Offload::parse(&[0; 10]), Ok(Offload::default()));
    assert_eq!(Offload::default().write(), [0; 10]);
    assert_eq!(Offload::parse(&[2, 0, 0, 0, 0, 0, 0, 0, 0, 0]).unwrap().checksum, ChecksumState::Verified);
    assert_eq!(Offload::parse(&[0, 4, 0, 0, 0, 0, 0, 0, 0, 0]), Err(OffloadError::ZeroGsoSize(4)));
    for unsupported in [2, 3, 6, 0x7f] {
        let got = Offload::parse(&[0, unsupported, 0, 0, 1, 1, 0, 0, 0, 0]);
        assert_eq!(got, Err(OffloadError::UnsupportedGso(unsupported)));
    }
}

/// Cut into smaller super-segments first, or at once: the packets are the same.
#[test]
fn in_parts_it_is_the_same() {
    for v6 in [false, true] {
        let h = SegmentHeader {
            flags: Flags::ACK | Flags::PSH | Flags::FIN | Flags::CWR,
            ip_id: 0xfff0,
            ..header(v6)
        };
        for (bytes, packets) in
            [(65_000, 7), (65_000, 1), (20_000, 5), (1_448 * 4, 2), (1_448, 1), (9_000, 100)]
        {
            let p = finished(&h, &[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2], &payload(bytes));
            let gso = if v6 { Gso::Tcp6 } else { Gso::Tcp4 };
            let offload = Offload { gso, gso_size: 1_448, gso_ecn: true, ..Offload::default() };
            let mut out = Vec::new();
            supersegment::cut(&p, &offload, packets, &mut |part, offload| {
                let all = supersegment::wire_size(part, offload).packets as usize;
                assert!(all <= packets.max(1) || packets == 100, "{all} packets");
                assert_eq!(offload.is_partial(), all > 1 && packets < 100);
                segment(part, offload, &mut |s| out.push(s.to_vec()));
            });
            assert_eq!(out, cut(&p, 1_448), "{bytes} bytes, {packets} packets");
        }
    }
}

#[test]
fn a_header_of_the_link_layer_moves_what_is_counted_from_the_start() {
    let checksum = ChecksumState::Partial { start: 20, offset: 16 };
    let packet = Offload { checksum, header_len: 40, ..Offload::default() };
    let frame = packet.shifted(14);
    assert_eq!(frame.checksum, ChecksumState::Partial { start: 34, offset: 16 });
    assert_eq!((frame.header_len, frame.shifted(-14)), (54, packet));
    assert_eq!(Offload::default().shifted(14), Offload::default());
    assert_eq!(packet.shifted(-30).checksum, ChecksumState::Partial { start: 0, offset: 16 });
}

/// A UDP super-segment as the kernel hands it over: of the checksum only the pseudo header's sum.
fn datagrams(v6: bool, payload: &[u8]) -> (Vec<u8>, Offload) {
    let udp_bytes = 8 + payload.len();
    let mut p = if v6 {
        let mut p = vec![0x60, 0, 0, 0, 0, 0, 17, 63];
        p.extend_from_slice(&[0x20; 16]);
        p.extend_from_slice(&[0x21; 16]);
        p[4..6].copy_from_slice(&(udp_bytes as u16).to_be_bytes());
        p
    } else {
        let mut p = vec![0x45, 2, 0, 0, 0xff, 0xfe, 0x40, 0, 63, 17, 0, 0, 10, 0, 1, 1, 10, 0, 2, 1];
        p[2..4].copy_from_slice(&(20 + udp_bytes as u16).to_be_bytes());
        fix_ipv4(&mut p);
        p
    };
    let at = p.len();
    let (src, dst) = ip::addresses(&p).unwrap();
    let pseudo = checksum::pseudo_header(src, dst, 17, udp_bytes as u32);
    p.extend_from_slice(&[0x30, 0x39, 0x01, 0xbb]);
    p.extend_from_slice(&(udp_bytes as u16).to_be_bytes());
    p.extend_from_slice(&pseudo.to_be_bytes());
    p.extend_from_slice(payload);
    let checksum = ChecksumState::Partial { start: at as u16, offset: 6 };
    (p, Offload { gso: Gso::Udp, gso_size: 1_200, checksum, ..Offload::default() })
}

/// The same with IPv6's destination options before UDP.
fn behind_options(payload: &[u8]) -> (Vec<u8>, Offload) {
    let (mut p, offload) = datagrams(true, payload);
    let said = u16::from_be_bytes([p[4], p[5]]) + 8;
    p[4..6].copy_from_slice(&said.to_be_bytes());
    p[6] = 60;
    p.splice(40..40, [17, 0, 1, 4, 0, 0, 0, 0]);
    (p, Offload { checksum: ChecksumState::Partial { start: 48, offset: 6 }, ..offload })
}

#[test]
fn of_udp_each_packet_is_a_datagram() {
    let sent = payload(1_200 * 4 + 77);
    for (at, (p, offload)) in
        [(20, datagrams(false, &sent)), (40, datagrams(true, &sent)), (48, behind_options(&sent))]
    {
        let v6 = at > 20;
        let size = supersegment::wire_size(&p, &offload);
        assert_eq!((size.packets, size.bytes as usize), (5, 5 * (at + 8) + sent.len()));
        let mut out = Vec::new();
        segment(&p, &offload, &mut |d| out.push(d.to_vec()));
        assert_eq!(out.len(), 5);
        let mut joined = Vec::new();
        for (n, d) in out.iter().enumerate() {
            let (src, dst) = ip::addresses(d).unwrap();
            let pseudo = checksum::pseudo_header(src, dst, 17, (d.len() - at) as u32);
            assert_eq!(checksum::add(pseudo, checksum::sum(&d[at..])), 0xffff, "{n}");
            assert_eq!(d[at + 4..at + 6], ((d.len() - at) as u16).to_be_bytes());
            assert_eq!(d[at..at + 4], [0x30, 0x39, 0x01, 0xbb]);
            if !v6 {
                assert_eq!(checksum::sum(&d[..20]), 0xffff);
                assert_eq!(d[4..6], (0xfffe_u16.wrapping_add(n as u16)).to_be_bytes());
                assert_eq!((d[1], d[6]), (2, 0x40), "ECN and DF stay");
            }
            joined.extend_from_slice(&d[at + 8..]);
        }
        assert_eq!(joined, sent);
        for packets in [1, 2, 3, 4, 5, 9] {
            let mut parts = Vec::new();
            supersegment::cut(&p, &offload, packets, &mut |part, offload| {
                let count = supersegment::wire_size(part, offload).packets as usize;
                assert!(count <= packets && offload.is_partial() == (count > 1));
                segment(part, offload, &mut |d| parts.push(d.to_vec()));
            });
            assert_eq!(parts, out, "{packets}");
        }
        // As the kernel's header says it, and back.
        assert_eq!(Offload::parse(&offload.write()), Ok(offload));
    }
    // What says so and is none comes out as it came.
    let (p, offload) = datagrams(false, &payload(3_000));
    for change in [(9, 6), (6, 0x20), (7, 1)] {
        let mut p = p.clone();
        p[change.0] = change.1;
        let mut out = Vec::new();
        segment(&p, &Offload { checksum: ChecksumState::Unverified, ..offload }, &mut |d| {
            out.push(d.to_vec())
        });
        assert_eq!(out, [p]);
    }
}
