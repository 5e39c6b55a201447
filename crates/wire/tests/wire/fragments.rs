//! Fragments: cutting, and joining what comes in any order, twice, overlapping, contradictory, or
//! not at all.

use crate::helpers::*;
use crate::targets::fragments::round_trip;
use crate::targets::source::naive_sum;
use farlink_wire::*;

fn cut(p: &[u8], mtu: usize) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    fragment(p, mtu, 7, &mut |f| out.push(f.to_vec())).unwrap();
    out
}

struct Bench {
    pool: Pool,
    reassembler: Reassembler,
}

impl Bench {
    fn new(limits: ReassemblyLimits) -> Self {
        Self { pool: Pool::new(1 << 20), reassembler: Reassembler::new(limits) }
    }

    fn push_at(&mut self, now: Instant, p: &[u8]) -> Pushed {
        let info = fragment_info(p);
        let p = PacketBuf::from_slice(&mut self.pool, p, Offload::default());
        self.reassembler.push(now, p, &info, &mut self.pool)
    }

    fn push(&mut self, p: &[u8]) -> Pushed {
        self.push_at(Instant::ZERO, p)
    }
}

fn bench() -> Bench {
    Bench::new(ReassemblyLimits::default())
}

/// A hand-made fragment: offset and length in bytes.
fn piece(v6: bool, offset: u16, more: bool, fill: &[u8]) -> Vec<u8> {
    let len = fill.len() as u16;
    let mut p = if v6 {
        let mut p = vec![0x60, 0, 0, 0];
        p.extend_from_slice(&(len + 8).to_be_bytes());
        p.extend_from_slice(&[44, 64]);
        p.extend_from_slice(&[0x20; 32]);
        p.extend_from_slice(&[6, 0]);
        p.extend_from_slice(&(offset | u16::from(more)).to_be_bytes());
        p.extend_from_slice(&[0, 0, 0, 1]);
        p
    } else {
        let mut p = vec![0x45, 0];
        p.extend_from_slice(&(len + 20).to_be_bytes());
        p.extend_from_slice(&[0, 1]);
        p.extend_from_slice(&((u16::from(more) << 13) | (offset / 8)).to_be_bytes());
        p.extend_from_slice(&[64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        p
    };
    p.extend_from_slice(fill);
    if !v6 {
        fix_ipv4(&mut p);
    }
    p
}

fn joined_payload(pushed: &Pushed, v6: bool) -> Vec<u8> {
    let whole = pushed.whole.as_ref().expect("complete").whole.bytes();
    whole[if v6 { 40 } else { 20 }..].to_vec()
}

#[test]
fn cut_and_joined_in_any_order() {
    let v6_extended =
        [0, 0, 1, 4, 0, 0, 0, 0, 60, 0, 1, 4, 0, 0, 0, 0, 43, 0, 3, 0, 0, 0, 0, 0, 60, 0, 1, 4, 0, 0, 0, 0];
    for p in [
        packet(false, &[1; 12], &payload(8_840)),
        packet(true, &[1; 12], &payload(8_840)),
        packet(false, &[], &payload(65_495)),
        packet(true, &[], &payload(65_515)),
        with_extension(packet(false, &[], &payload(4_000)), &[7, 7, 4, 0, 0, 0, 0, 1, 148, 4, 0, 0]),
        with_extension(packet(true, &[], &payload(4_000)), &v6_extended),
    ] {
        for mtu in [1_500, 1_280, 576, 300] {
            for seed in 0..4 {
                round_trip(&p, mtu, seed);
            }
        }
    }
}

#[test]
fn fragments_as_rfc_791_wants_them() {
    let (record_route, router_alert) = ([7, 7, 4, 0, 0, 0, 0], [148, 4, 0, 0]);
    let options = [&record_route[..], &router_alert, &[0]].concat();
    let p = with_extension(packet(false, &[], &payload(3_000)), &options);
    let out = cut(&p, 1_500);
    assert_eq!(out.len(), 3);
    for (n, f) in out.iter().enumerate() {
        let info = fragment_info(f);
        assert_eq!(naive_sum(&f[..usize::from(info.ip.header_len)]), 0xffff);
        assert_eq!((info.more, info.id, info.ip.dont_fragment), (n < 2, 0x1234, true));
        let want = if n == 0 { &options[..] } else { &router_alert[..] };
        assert_eq!(&f[20..usize::from(info.ip.header_len)], want, "only copied options go along");
    }
    assert_eq!(out[0].len(), 1_496, "as long as eights allow: 32 + 1,464");
    // A fragment cut again keeps its place and its more-flag.
    let again = cut(&out[1], 576);
    let infos: Vec<_> = again.iter().map(|f| fragment_info(f)).collect();
    assert_eq!(infos[0].offset, fragment_info(&out[1]).offset);
    assert!(infos.iter().all(|i| i.more));
    assert_eq!(infos.last().unwrap().end(), fragment_info(&out[1]).end());
}

#[test]
fn fragments_as_rfc_8200_wants_them() {
    let extension = [0, 0, 1, 4, 0, 0, 0, 0, 60, 0, 1, 4, 0, 0, 0, 0];
    let out = cut(&with_extension(packet(true, &[], &payload(3_000)), &extension), 1_400);
    for f in &out {
        let info = fragment_info(f);
        assert_eq!((f[6], f[40]), (0, 44), "hop-by-hop, then the fragment header");
        assert_eq!((info.id, info.protocol, info.payload_offset), (7, 60, 56));
        assert!(f.len() <= 1_400);
    }
    // With etherparse: still an IPv6 packet, a fragment now.
    let theirs = etherparse::SlicedPacket::from_ip(&out[1]).unwrap();
    assert!(theirs.transport.is_none());
}

#[test]
fn what_cannot_be_cut() {
    let p = packet(false, &[], &payload(100));
    let refuse = |p: &[u8], mtu| {
        let mut calls = 0;
        let error = fragment(p, mtu, 0, &mut |_| calls += 1).unwrap_err();
        assert_eq!(calls, 0);
        error
    };
    assert_eq!(refuse(&p, 27), FragmentError::MtuTooSmall(27));
    assert_eq!(refuse(&packet(true, &[], b"abc"), 55), FragmentError::MtuTooSmall(55));
    assert_eq!(refuse(&p[..50], 40), FragmentError::NotFragmentable);
    assert_eq!(refuse(&crate::headers::jumbogram(66_000), 1_500), FragmentError::NotFragmentable);
    assert_eq!(refuse(&piece(true, 0, true, &[1; 800]), 500), FragmentError::NotFragmentable);
    assert_eq!(cut(&p, 140), std::slice::from_ref(&p));
    assert_eq!(cut(&[&p[..], &[0; 30]].concat(), 150), [p], "padding is no part of it");
}

#[test]
fn where_ipv4_fragments_overlap_the_first_copy_wins() {
    let mut b = bench();
    assert!(b.push(&piece(false, 8, true, &[2; 16])).whole.is_none());
    assert!(b.push(&piece(false, 0, true, &[1; 24])).whole.is_none());
    assert!(b.push(&piece(false, 0, true, &[9; 32])).whole.is_none());
    let done = b.push(&piece(false, 24, false, &[4; 12]));
    let want = [&[1u8; 8][..], &[2; 16], &[9; 8], &[4; 4]].concat();
    assert_eq!(joined_payload(&done, false), want);
    let whole = done.whole.unwrap();
    assert_eq!(whole.originals.len(), 4);
    assert_eq!(whole.originals[0].bytes(), piece(false, 8, true, &[2; 16]));
    assert_eq!(naive_sum(&whole.whole.bytes()[..20]), 0xffff);
    assert!(whole.whole.headroom() >= PacketBuf::HEADROOM);
}

#[test]
fn ipv6_fragments_must_not_overlap() {
    let mut b = bench();
    b.push(&piece(true, 0, true, &[1; 16]));
    let repeated = b.push(&piece(true, 0, true, &[1; 16]));
    assert!(repeated.forward.is_empty(), "a mere repetition is not held against it");
    let overlapping = b.push(&piece(true, 8, true, &[2; 16]));
    assert_eq!(overlapping.forward.len(), 3, "RFC 5722: given up, for the host to see");
    assert!(b.reassembler.is_empty());
}

#[test]
fn contradictory_ends_are_given_back() {
    for v6 in [false, true] {
        // A second last fragment elsewhere; data beyond the end; an end before data that is there.
        for (a, b) in [
            (piece(v6, 32, false, &[1; 8]), piece(v6, 48, false, &[1; 8])),
            (piece(v6, 32, false, &[1; 8]), piece(v6, 40, true, &[1; 8])),
            (piece(v6, 64, true, &[1; 8]), piece(v6, 32, false, &[1; 8])),
        ] {
            let mut bench = bench();
            assert!(bench.push(&a).forward.is_empty());
            let out = bench.push(&b);
            let forwarded: Vec<_> = out.forward.iter().map(|p| p.bytes().to_vec()).collect();
            assert_eq!(forwarded, [a, b]);
            assert!(bench.reassembler.is_empty() && out.whole.is_none());
        }
    }
}

#[test]
fn packets_are_kept_apart() {
    let mut b = bench();
    let mut other_id = piece(false, 8, false, &[1; 8]);
    other_id[5] = 2;
    let mut other_protocol = piece(false, 8, false, &[1; 8]);
    other_protocol[9] = 17;
    let mut other_source = piece(false, 8, false, &[1; 8]);
    other_source[15] = 9;
    b.push(&piece(false, 0, true, &[1; 8]));
    for p in [other_id, other_protocol, other_source] {
        assert!(b.push(&p).whole.is_none());
    }
    assert_eq!(b.reassembler.len(), 4);
    assert!(b.push(&piece(false, 8, false, &[1; 8])).whole.is_some());
}

#[test]
fn congestion_marks_survive() {
    let with_ecn = |mut p: Vec<u8>, ecn: u8| {
        p[1] |= ecn;
        fix_ipv4(&mut p);
        p
    };
    let join = |first: u8, second: u8| {
        let mut b = bench();
        b.push(&with_ecn(piece(false, 0, true, &[1; 8]), first));
        b.push(&with_ecn(piece(false, 8, false, &[1; 8]), second))
    };
    let ecn = |pushed: &Pushed| pushed.whole.as_ref().unwrap().whole.bytes()[1] & 3;
    assert_eq!(ecn(&join(2, 2)), 2);
    assert_eq!(ecn(&join(2, 3)), 3);
    assert_eq!(ecn(&join(3, 2)), 3);
    assert_eq!(naive_sum(&join(2, 3).whole.unwrap().whole.bytes()[..20]), 0xffff);
    assert_eq!(join(0, 3).forward.len(), 2, "a mark where there may be none");
    assert_eq!(join(2, 0).forward.len(), 2);
}

#[test]
fn too_long_a_whole_is_given_back() {
    // 65,528 + 7 bytes of payload, and a header on top.
    let mut b = bench();
    let mut forwarded = 0;
    for n in 0..9 {
        let offset = n * 7_280;
        let out = b.push(&piece(false, offset, true, &[0; 7_280]));
        forwarded += out.forward.len();
    }
    let out = b.push(&piece(false, 65_520, false, &[1; 15]));
    assert!(out.whole.is_none());
    assert_eq!(forwarded + out.forward.len(), 10);
}

#[test]
fn time_runs_out_from_the_first_fragment() {
    let mut b = bench();
    let at = Instant::from_millis;
    b.push_at(at(100), &piece(false, 0, true, &[1; 8]));
    b.push_at(at(4_000), &piece(false, 16, false, &[1; 8]));
    assert_eq!(b.reassembler.next_deadline(), Some(at(5_100)));
    assert!(b.reassembler.expire(at(5_099)).is_empty());
    let out = b.reassembler.expire(at(5_100));
    assert_eq!(out.len(), 2);
    assert_eq!(out[0].bytes(), piece(false, 0, true, &[1; 8]));
    assert_eq!((b.reassembler.next_deadline(), b.reassembler.used_bytes()), (None, 0));
    assert!(b.push_at(at(5_200), &piece(false, 8, true, &[1; 8])).whole.is_none());
}

#[test]
fn bounds_hold_and_the_oldest_goes() {
    let timeout = Duration::from_secs(1);
    let mut b =
        Bench::new(ReassemblyLimits { bytes: 3 * SMALL_BLOCK_BYTES, datagrams: 2, fragments: 2, timeout });
    let with_id = |id: u8, offset: u16| {
        let mut p = piece(false, offset, true, &[1; 8]);
        p[5] = id;
        fix_ipv4(&mut p);
        p
    };
    assert!(b.push(&with_id(1, 0)).forward.is_empty());
    assert!(b.push(&with_id(2, 0)).forward.is_empty());
    let out = b.push(&with_id(3, 0));
    assert_eq!(out.forward[0].bytes(), with_id(1, 0), "too many packets");
    assert!(b.push(&with_id(3, 16)).forward.is_empty());
    let out = b.push(&with_id(3, 32));
    assert_eq!(out.forward.len(), 4, "too many bytes for the oldest, then too many fragments of one");
    assert!(b.reassembler.is_empty() && b.reassembler.used_bytes() == 0);
    // The packet that grows beyond all memory is the one that goes.
    let mut b =
        Bench::new(ReassemblyLimits { bytes: SMALL_BLOCK_BYTES, datagrams: 2, fragments: 9, timeout });
    b.push(&with_id(1, 0));
    assert_eq!(b.push(&with_id(1, 16)).forward.len(), 2);
    assert!(b.reassembler.is_empty());
}
