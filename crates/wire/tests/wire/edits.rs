//! Editing in place, where it is tight.

use crate::headers::jumbogram;
use crate::helpers::*;
use farlink_wire::xcp::{HeaderTime, XcpFields};
use farlink_wire::*;

const OPTION: [u8; 4] = [254, 4, 0xfa, 0x51];

/// With no spare byte in front and many behind.
fn without_headroom(bytes: &[u8]) -> PacketBuf {
    let mut block = Pool::new(0).take_small();
    block.as_mut_slice()[..bytes.len()].copy_from_slice(bytes);
    PacketBuf::from_block(block, 0, bytes.len(), Offload::default())
}

fn insert(p: &mut PacketBuf, option: &[u8]) -> Result<(), NoRoom> {
    let s = tcp(p.bytes());
    edit::insert_option(p, &s, option)
}

fn remove(p: &mut PacketBuf) {
    let s = tcp(p.bytes());
    edit::remove_farlink_option(p, &s);
}

fn area(p: &PacketBuf) -> Vec<u8> {
    let s = tcp(p.bytes());
    p.bytes()[s.tcp_offset() + 20..s.payload_offset].to_vec()
}

fn buf(bytes: &[u8]) -> PacketBuf {
    PacketBuf::from_slice(&mut Pool::new(0), bytes, Offload::default())
}

#[test]
fn an_option_goes_behind_the_others() {
    for v6 in [false, true] {
        let before = packet(v6, &[2, 4, 5, 0xb4, 1, 3, 3, 7], b"data");
        let mut p = buf(&before);
        insert(&mut p, &OPTION).unwrap();
        assert_eq!(area(&p), [2, 4, 5, 0xb4, 1, 3, 3, 7, 254, 4, 0xfa, 0x51]);
        assert!(is_right(p.bytes()));
        assert_eq!(p.headroom(), PacketBuf::HEADROOM - 4, "the payload stayed where it was");
        remove(&mut p);
        assert_eq!(p.bytes(), before);
    }
}

#[test]
fn but_before_the_end_of_the_list() {
    for options in [&[2, 4, 5, 0xb4, 4, 2, 0, 0][..], &[4, 2, 0, 9], &[4, 2, 9, 0], &[4, 2, 9, 200]] {
        let before = packet(false, options, b"data");
        let mut p = buf(&before);
        insert(&mut p, &OPTION).unwrap();
        assert_eq!(area(&p), [&OPTION[..], options].concat());
        assert_eq!(tcp(p.bytes()).options.farlink.unwrap().form, FARLINK_SYN);
        remove(&mut p);
        assert_eq!(p.bytes(), before);
    }
}

#[test]
fn an_option_is_padded() {
    let before = packet(false, &[], b"data");
    for len in 1..5 {
        let mut p = buf(&before);
        insert(&mut p, &build::farlink_option(FARLINK_DATA, &[7; 4][..len]).unwrap()).unwrap();
        assert_eq!(area(&p).len(), 8);
        assert!(area(&p)[4 + len..].iter().all(|b| *b == 1));
        assert!(is_right(p.bytes()));
        remove(&mut p);
        assert_eq!(p.bytes(), before);
    }
}

#[test]
fn the_wish_of_xcp_is_changed_in_place_and_taken_out_with_the_rest() {
    let said =
        |delta_bytes_per_s| XcpFields { spacing: HeaderTime(1), rtt: HeaderTime(2), delta_bytes_per_s };
    for v6 in [false, true] {
        // At an odd offset, too.
        for before in [&[][..], &[1], &[4, 2, 1]] {
            let with =
                |delta| packet(v6, &[before, &said(delta).option(), &xcp::sum_option(3)].concat(), b"data");
            let mut p = buf(&with(i32::MAX));
            let read = Said::of(p.bytes(), ShimProtocols::NONE).unwrap();
            assert_eq!(read.fields, said(i32::MAX));
            read.lower(&mut p, -5);
            assert_eq!(p.bytes(), with(-5));
            let mut bytes = with(7);
            read.lower_in(&mut bytes, -5);
            assert_eq!(bytes, with(-5));
            let s = tcp(&bytes);
            edit::write_xcp_words(&mut bytes, &s, [HeaderTime(8), HeaderTime(9)], 10);
            let o = tcp(&bytes).options;
            let times = o.xcp.map(|said| (said.spacing, said.rtt, said.delta_bytes_per_s));
            assert_eq!((times, o.xcp_sum), (Some((HeaderTime(8), HeaderTime(9), -5)), Some(10)));
            assert!(is_right(&bytes));
            edit::blank_xcp(&mut bytes, &s);
            let o = tcp(&bytes).options;
            assert!(is_right(&bytes) && !o.has_ours() && bytes.len() == with(7).len());
            assert_eq!(o.sack_permitted, before.len() == 3, "the rest stays");
            remove(&mut p);
            let s = tcp(p.bytes());
            assert!(is_right(p.bytes()) && s.options.xcp.is_none() && s.options.xcp_sum.is_none());
        }
        let none = packet(v6, &xcp::sum_option(3), b"data");
        assert_eq!(Said::of(&none, ShimProtocols::USUAL), None, "there is no wish");
    }
}

#[test]
fn the_padding_of_timestamps_is_made_as_hosts_make_it() {
    for v6 in [false, true] {
        let marked = [1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1];
        let plain = [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2];
        let option = build::farlink_option(FARLINK_DATA, &[7; 4]).unwrap();
        for behind in [&[][..], &option] {
            let mut p = buf(&packet(v6, &[&marked, behind].concat(), b"data"));
            remove(&mut p);
            assert_eq!(p.bytes(), packet(v6, &plain, b"data"));
        }
    }
}

#[test]
fn without_headroom_the_payload_moves() {
    for padding in [0, 9] {
        let before = [&packet(false, &[], b"data")[..], &vec![7; padding]].concat();
        let mut p = without_headroom(&before);
        insert(&mut p, &OPTION).unwrap();
        assert_eq!((p.headroom(), area(&p)), (0, OPTION.to_vec()));
        assert!(is_right(p.bytes()));
        assert_eq!(tcp(p.bytes()).payload(p.bytes()), b"data");
        remove(&mut p);
        assert_eq!(p.bytes(), before);
    }
}

#[test]
fn no_room_leaves_the_packet_alone() {
    let refuse = |mut p: PacketBuf, option: &[u8]| {
        let before = (p.bytes().to_vec(), p.offload);
        assert_eq!(insert(&mut p, option), Err(NoRoom(option.len())));
        assert_eq!((p.bytes().to_vec(), p.offload), before);
    };
    refuse(buf(&packet(false, &[1; 40], b"")), &OPTION);
    refuse(buf(&packet(false, &[1; 36], b"")), &[254, 5, 0xfa, 0x53, 1]);
    refuse(buf(&packet(false, &[], b"")), &[]);
    refuse(buf(&packet(false, &[], b"")), &[0; 41]);
    refuse(buf(&packet(false, &[], &payload(65_535 - 40))), &OPTION);
    refuse(buf(&packet(true, &[], &payload(65_535 - 20))), &OPTION);
    // A block that the packet fills to the last byte.
    let mut full = Pool::new(0).take_small();
    let bytes = packet(false, &[], &payload(SMALL_BLOCK_BYTES - 40));
    full.as_mut_slice().copy_from_slice(&bytes);
    refuse(PacketBuf::from_block(full, 0, SMALL_BLOCK_BYTES, Offload::default()), &OPTION);
}

#[test]
fn removing_an_option_that_stands_askew() {
    // Somebody reordered: ours begins at an odd offset and others follow.
    let mut p = buf(&packet(false, &[4, 2, 1, 254, 5, 0xfa, 0x53, 9, 3, 3, 7, 1], b"data"));
    remove(&mut p);
    assert_eq!(area(&p), [4, 2, 1, 3, 3, 7, 1, 0]);
    assert!(is_right(p.bytes()));
    let s = tcp(p.bytes());
    assert_eq!((s.options.window_scale, s.options.sack_permitted), (Some(7), true));
    assert_eq!(s.payload(p.bytes()), b"data");
    // Two of them.
    let mut p =
        buf(&packet(true, &[254, 4, 0xfa, 0x51, 2, 4, 5, 0xb4, 254, 5, 0xfa, 0x52, 1, 1, 1, 1], b"data"));
    remove(&mut p);
    assert_eq!(area(&p), [2, 4, 5, 0xb4]);
    assert!(is_right(p.bytes()));
}

#[test]
fn removing_none_changes_nothing() {
    let before = packet(false, &[254, 4, 0x12, 0x34], b"data");
    let mut p = buf(&before);
    remove(&mut p);
    assert_eq!(p.bytes(), before);
}

#[test]
fn an_inserted_option_is_in_the_offload() {
    let (bytes, offload) = header(false).write(4_000).unwrap();
    let mut p = PacketBuf::from_slice(&mut Pool::new(0), &[&bytes[..], &payload(4_000)].concat(), offload);
    p.offload.gso = Gso::Tcp4;
    p.offload.gso_size = 1_400;
    insert(&mut p, &OPTION).unwrap();
    assert_eq!(p.offload.header_len, 44);
    assert_eq!((p.offload.gso_size, p.offload.checksum), (1_400, offload.checksum));
    let mut cut = Vec::new();
    segment(p.bytes(), &p.offload, &mut |s| cut.push(s.to_vec()));
    assert!(cut.len() == 3 && cut.iter().all(|s| is_right(s) && tcp(s).options.farlink.is_some()));
    remove(&mut p);
    assert_eq!(p.offload.header_len, 40);
}

#[test]
fn oversized_packets_keep_their_kind_of_length() {
    let mut p = buf(&jumbogram(66_000));
    insert(&mut p, &OPTION).unwrap();
    let s = tcp(p.bytes());
    assert_eq!((s.payload_len, s.ip.total_len as usize), (66_000, p.len()));
    remove(&mut p);
    assert_eq!(p.bytes(), jumbogram(66_000));

    let small = packet(false, &[], b"");
    let mut big = [&small[..], &payload(66_000)].concat();
    big[2..4].fill(0);
    let mut p = buf(&big);
    insert(&mut p, &OPTION).unwrap();
    assert_eq!(tcp(p.bytes()).payload_len, 66_000);
    assert_eq!(p.bytes()[2..4], [0, 0]);
}

#[test]
fn timestamps_at_any_offset() {
    for pad in 0..4 {
        let options = [&vec![1; pad][..], &[8, 10, 0, 0, 0, 1, 0, 0, 0, 2]].concat();
        for v6 in [false, true] {
            let mut p = buf(&packet(v6, &options, b"odd"));
            let s = tcp(p.bytes());
            edit::set_timestamp_echo(&mut p, &s, 0xdead_beef);
            edit::set_timestamp_value(&mut p, &s, 0x0102_0304);
            assert!(is_right(p.bytes()));
            let got = tcp(p.bytes()).options.timestamps;
            assert_eq!(got, Some(Timestamps { val: 0x0102_0304, ecr: 0xdead_beef }));
        }
    }
}

#[test]
fn reserved_bits_stay() {
    let mut bytes = packet(false, &[], b"");
    bytes[32] |= 0x0a;
    let s = tcp(&bytes);
    let mut p = buf(&bytes);
    edit::set_flags(&mut p, &s, Flags::SYN | Flags::AE);
    assert_eq!(p.bytes()[32..34], [0x5b, 0x02]);
}

#[test]
fn hops_to_live() {
    for v6 in [false, true] {
        let mut p = buf(&packet(v6, &[], b"x"));
        let s = tcp(p.bytes());
        edit::increment_ttl(&mut p, &s);
        assert_eq!(tcp(p.bytes()).ip.ttl, 62);
        edit::set_ttl(&mut p, &s, 255);
        edit::increment_packet_ttl(p.bytes_mut());
        assert_eq!(tcp(p.bytes()).ip.ttl, 255);
        assert!(is_right(p.bytes()));
        edit::decrement_packet_ttl(p.bytes_mut());
        assert_eq!(tcp(p.bytes()).ip.ttl, 254);
        assert!(is_right(p.bytes()));
        edit::set_ttl(&mut p, &s, 0);
        edit::decrement_packet_ttl(p.bytes_mut());
        assert_eq!(tcp(p.bytes()).ip.ttl, 0);
        edit::set_traffic_class(&mut p, 3);
        assert_eq!(tcp(p.bytes()).ip.ecn(), Ecn::Ce);
        assert!(is_right(p.bytes()));
    }
    edit::increment_packet_ttl(&mut []);
    edit::increment_packet_ttl(&mut [0x45, 0, 0]);
}

#[test]
fn a_payload_is_cut_off() {
    for (v6, len) in [(false, 1_000), (false, 1_001), (true, 1_000), (true, 1_001)] {
        let payload: Vec<u8> = (0..len).map(|n| (n * n / 7) as u8).collect();
        for (partial, fin) in [(false, false), (true, false), (false, true), (true, true)] {
            let whole = packet(v6, &[2, 4, 5, 0xb4, 1, 3, 3, 7], &payload);
            let bare = packet(v6, &[2, 4, 5, 0xb4, 1, 3, 3, 7], &[]);
            let mut p = buf(&whole);
            if fin {
                // It stands behind the payload.
                let s = tcp(p.bytes());
                edit::set_flags(&mut p, &s, s.flags.with(Flags::FIN));
            }
            let s = tcp(p.bytes());
            if partial {
                let (at, len) = (s.tcp_offset(), (p.len() - s.tcp_offset()) as u32);
                let pseudo = checksum::pseudo_header(s.ip.src, s.ip.dst, 6, len);
                p.bytes_mut()[at + 16..at + 18].copy_from_slice(&pseudo.to_be_bytes());
                p.offload.checksum = ChecksumState::Partial { start: at as u16, offset: 16 };
            }
            edit::cut_payload(&mut p, &s);
            assert_eq!(p.len(), bare.len());
            if partial {
                let at = s.tcp_offset();
                let pseudo = checksum::pseudo_header(s.ip.src, s.ip.dst, 6, (p.len() - at) as u32);
                assert_eq!(p.bytes()[at + 16..at + 18], pseudo.to_be_bytes(), "of the shorter one");
            } else {
                assert_eq!(p.bytes(), bare);
            }
        }
    }
}
