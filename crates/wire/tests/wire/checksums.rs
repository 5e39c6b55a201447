//! The fast sums against the definition.

use crate::helpers::*;
use crate::targets::source::{naive_sum, same_sum};
use farlink_wire::checksum::{add, combine, pseudo_header, sub, sum, sum_u32, update};
use farlink_wire::*;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sum_is_the_definition(bytes in proptest::collection::vec(any::<u8>(), 0..300), from in 0usize..40) {
        let part = bytes.get(from..).unwrap_or_default();
        prop_assert_eq!(sum(part), naive_sum(part));
    }

    #[test]
    fn pieces_combine(bytes in proptest::collection::vec(any::<u8>(), 0..200), cut in 0usize..200) {
        let (a, b) = bytes.split_at(cut.min(bytes.len()));
        prop_assert!(same_sum(combine(sum(a), a.len(), sum(b)), sum(&bytes)));
    }

    #[test]
    fn update_is_recomputing(mut bytes in proptest::collection::vec(any::<u8>(), 12..80), at in 0usize..4, new in any::<[u8; 4]>()) {
        bytes[10] |= 1; // Never all zeros.
        let check = !sum(&bytes);
        let at = at * 2;
        let old = sum(&bytes[at..at + 4]);
        bytes[at..at + 4].copy_from_slice(&new);
        prop_assert_eq!(update(check, old, sum(&new)), !sum(&bytes));
        prop_assert_eq!(add(sub(!check, old), sum_u32(u32::from_be_bytes(new))), sum(&bytes));
    }
}

#[test]
fn no_carry_is_lost_in_64_kilobytes() {
    for len in [65_535, 65_536, 73_728, 1_000_003] {
        assert_eq!(sum(&vec![0xff; len]), naive_sum(&vec![0xff; len]));
        assert_eq!(sum(&payload(len)), naive_sum(&payload(len)));
    }
    assert_eq!(sum(&[]), 0);
}

#[test]
fn rfc_1624_example() {
    // Section 4: the case in which RFC 1141 gives the wrong zero.
    assert_eq!(update(0xdd2f, 0x5555, 0x3285), 0x0000);
}

#[test]
fn pseudo_header_by_hand() {
    let (a, b) = ("10.1.2.3".parse().unwrap(), "10.4.5.6".parse().unwrap());
    assert_eq!(pseudo_header(a, b, 6, 20), naive_sum(&[10, 1, 2, 3, 10, 4, 5, 6, 0, 6, 0, 20]));
    // Lengths above 16 bits count in full: super-segments beyond 64 KB.
    assert_eq!(pseudo_header(a, b, 6, 0x0001_0002), naive_sum(&[10, 1, 2, 3, 10, 4, 5, 6, 0, 6, 0, 1, 0, 2]));
}

#[test]
fn finishing_a_partial_checksum_makes_it_right() {
    for v6 in [false, true] {
        for len in [0, 1, 2, 999, 65_000] {
            let p = packet(v6, &[], &payload(len));
            assert!(is_right(&p) && verify_checksums(&p, &tcp(&p), &Offload::default()));
            let padded = [&p[..], &[0xaa; 7]].concat();
            assert!(is_right(&padded), "padding behind the packet is not summed");
        }
        let (bytes, offload) = header(v6).write(3).unwrap();
        let mut padded = [&bytes[..], b"abc", &[0xaa; 7]].concat();
        finish_checksums(&mut padded, &offload);
        assert!(is_right(&padded), "padding behind the packet is not summed");
    }
}

#[test]
fn each_flipped_bit_shows() {
    for v6 in [false, true] {
        let good = packet(v6, &[8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 1], b"payload");
        // IPv6 has no header checksum: only what TCP covers can show.
        let from = if v6 { 40 } else { 0 };
        let s = tcp(&good);
        for bit in from * 8..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(!verify_checksums(&bad, &s, &Offload::default()), "bit {bit}");
        }
    }
}

#[test]
fn what_the_kernel_vouches_for_counts_as_right() {
    let mut p = packet(false, &[], b"x");
    let s = tcp(&p);
    *p.last_mut().unwrap() ^= 1;
    let with = |checksum| Offload { checksum, ..Offload::default() };
    assert!(!verify_checksums(&p, &s, &with(ChecksumState::Unverified)));
    assert!(verify_checksums(&p, &s, &with(ChecksumState::Verified)));
    assert!(verify_checksums(&p, &s, &with(ChecksumState::Partial { start: 20, offset: 16 })));
    // Some other checksum that is left partial says nothing about this one.
    assert!(!verify_checksums(&p, &s, &with(ChecksumState::Partial { start: 40, offset: 16 })));
    assert!(!verify_checksums(&p, &s, &with(ChecksumState::Partial { start: 20, offset: 6 })));
    p[8] ^= 1;
    assert!(!verify_checksums(&p, &s, &with(ChecksumState::Verified)), "nobody vouches for the IP header");
}
