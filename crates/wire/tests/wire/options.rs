//! TCP options: each kind, each way to be wrong.

use farlink_wire::options::{OptionWalk, TcpOptions};
use farlink_wire::xcp::{HeaderTime, XcpFields};
use farlink_wire::*;
use proptest::prelude::*;

fn parse(area: &[u8]) -> TcpOptions {
    TcpOptions::parse(area)
}

#[test]
fn a_linux_syn() {
    let o = parse(&[2, 4, 0x05, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7]);
    assert_eq!((o.mss, o.window_scale, o.sack_permitted), (Some(1460), Some(7), true));
    assert_eq!(o.timestamps, Some(Timestamps { val: 1, ecr: 0 }));
    assert!(o.unknown.is_empty() && !o.malformed && !o.fast_open && o.farlink.is_none());
}

#[test]
fn four_sack_blocks_fill_the_header() {
    let mut area = vec![1, 1, 5, 34];
    for n in 1..=4u32 {
        area.extend_from_slice(&(n * 100).to_be_bytes());
        area.extend_from_slice(&(n * 100 + 50).to_be_bytes());
    }
    let o = parse(&area);
    let starts: Vec<u32> = o.sack.iter().map(|b| b.start.0).collect();
    assert_eq!(starts, [100, 200, 300, 400]);
    assert_eq!(o.sack[3].end, SeqNum(450));
}

#[test]
fn odd_values_as_linux_takes_them() {
    assert_eq!(parse(&[3, 3, 15]).window_scale, Some(14), "RFC 7323 2.3");
    assert_eq!(parse(&[2, 4, 0, 0]).mss, None);
    assert_eq!(parse(&[2, 4, 1, 0, 2, 4, 2, 0]).mss, Some(512), "the last counts");
    assert_eq!(parse(&[0, 2, 4, 1, 0]), TcpOptions::default(), "nothing behind end-of-list");
}

#[test]
fn other_kinds() {
    assert!(parse(&[34, 2]).fast_open && parse(&[254, 8, 0xf9, 0x89, 1, 2, 3, 4]).fast_open);
    assert!(parse(&[&[19, 18][..], &[7; 16]].concat()).md5);
    assert!(parse(&[29, 16, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]).ao);
    assert!(parse(&[30, 4, 0x20, 0]).mptcp);
    let o = parse(&[77, 2, 99, 3, 0, 77, 2, 254, 4, 0x12, 0x34, 254, 3, 1]);
    assert_eq!(o.unknown[..], [77, 99, 254]);
    assert!(!o.malformed);
}

#[test]
fn known_kind_of_impossible_length_is_unknown() {
    for area in [&[2, 3, 1][..], &[3, 2], &[4, 3, 0], &[5, 2], &[5, 9, 0, 0, 0, 0, 0, 0, 0], &[8, 4, 0, 0]] {
        let o = parse(&[area, &[3, 3, 5]].concat());
        assert_eq!(o.unknown[..], [area[0]], "{area:?}");
        assert_eq!((o.window_scale, o.malformed), (Some(5), false), "what follows is read");
    }
}

#[test]
fn impossible_lengths_end_the_reading() {
    for bad in [&[9, 0][..], &[9, 1], &[9, 7, 0, 0], &[9]] {
        let o = parse(&[&[4, 2][..], bad].concat());
        assert!(o.malformed && o.sack_permitted, "{bad:?}");
        assert!(o.unknown.is_empty());
    }
    assert!(parse(&[9, 0, 3, 3, 5]).window_scale.is_none());
}

#[test]
fn more_unknown_kinds_than_are_remembered() {
    let area: Vec<u8> = (100..120).flat_map(|kind| [kind, 2]).collect();
    assert_eq!(parse(&area).unknown[..], [100, 101, 102, 103, 104, 105, 106, 107]);
}

#[test]
fn farlinks_own() {
    for form in FARLINK_EXIDS {
        let o = parse(&build::farlink_option(form, &[1, 2, 3]).unwrap());
        assert_eq!(o.farlink, Some(FarlinkOption { form, body: [1, 2, 3].into_iter().collect() }));
        assert!(o.unknown.is_empty());
    }
    let longest = build::farlink_option(FARLINK_SYN, &[9; 36]).unwrap();
    assert_eq!(parse(&longest).farlink.unwrap().body.len(), 36);
    assert_eq!(build::farlink_option(FARLINK_SYN, &[9; 37]), None);
    let two = [
        &build::farlink_option(FARLINK_SYN, &[1]).unwrap()[..],
        &build::farlink_option(FARLINK_SYN, &[2]).unwrap(),
    ]
    .concat();
    assert_eq!(parse(&two).farlink.unwrap().body[..], [1], "the first counts");
}

#[test]
fn a_mark_in_the_padding_of_timestamps() {
    const TIMESTAMPS: [u8; 10] = [8, 10, 0, 0, 0, 1, 0, 0, 0, 2];
    let mark = Some(FarlinkOption { form: FARLINK_DATA, body: Default::default() });
    let sack = [1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2];
    let option = build::farlink_option(FARLINK_DATA, &[7; 4]).unwrap();
    let marked = [&[1][..], &TIMESTAMPS, &[1]].concat();
    for behind in [&[][..], &sack, &[1; 4], &option] {
        let o = parse(&[&marked, behind].concat());
        assert_eq!((o.farlink, o.timestamps), (mark.clone(), Some(Timestamps { val: 1, ecr: 2 })));
        assert!(o.unknown.is_empty() && !o.malformed);
    }
    // What hosts write.
    for (before, behind) in [
        (&[1, 1][..], &[][..]),
        (&[1, 1], &[1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2]),
        (&[], &[1, 1]),
        (&[], &[0, 0]),
        (&[1], &[0]),
        (&[1], &[5, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 1, 1]),
        (&[2, 4, 5, 0xb4, 1], &[1]),
    ] {
        assert_eq!(parse(&[before, &TIMESTAMPS, behind].concat()).farlink, None, "{before:?} {behind:?}");
    }
}

#[test]
fn xcp_with_data_and_with_an_acknowledgement() {
    let said = XcpFields { spacing: HeaderTime(1), rtt: HeaderTime(u32::MAX), delta_bytes_per_s: -2 };
    let mark = build::farlink_option(FARLINK_DATA, &[]).unwrap();
    let o = parse(&[&mark, &said.option()[..], &xcp::sum_option(0xdead_beef), &xcp::sum_option(7)].concat());
    assert_eq!((o.xcp, o.xcp_sum), (Some(said), Some(0xdead_beef)), "the first counts");
    assert!(o.farlink.is_some() && o.unknown.is_empty() && !o.malformed);
    assert_eq!(said.option()[..], [254, 16, 0xfa, 0x54, 0, 0, 0, 1, 255, 255, 255, 255, 255, 255, 255, 254]);
    // Of a length that neither has.
    let o = parse(&[254, 12, 0xfa, 0x54, 0, 0, 0, 1, 0, 0, 0, 1]);
    assert_eq!((o.xcp, o.xcp_sum, &o.unknown[..]), (None, None, &[254][..]));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// The walk covers the area without gaps but padding, and agrees with etherparse on the
    /// well-known kinds.
    #[test]
    fn walk_is_in_order(area in proptest::collection::vec(prop_oneof![0u8..9, any::<u8>()], 0..=40)) {
        let mut at = 0;
        for raw in OptionWalk::new(&area) {
            prop_assert!(raw.offset >= at && raw.end == raw.offset + 2 + raw.body.len() && raw.end <= area.len());
            prop_assert!(area[at..raw.offset].iter().all(|b| *b == 1));
            at = raw.end;
        }
        let ours = TcpOptions::parse(&area);
        for element in etherparse::TcpOptionsIterator::from_slice(&area) {
            use etherparse::TcpOptionElement as E;
            match element {
                Ok(E::MaximumSegmentSize(n)) => prop_assert!(n == 0 || ours.mss.is_some()),
                Ok(E::WindowScale(_)) => prop_assert!(ours.window_scale.is_some()),
                Ok(E::SelectiveAcknowledgementPermitted) => prop_assert!(ours.sack_permitted),
                Ok(E::SelectiveAcknowledgement(..)) => prop_assert!(!ours.sack.is_empty()),
                Ok(E::Timestamp(..)) => prop_assert!(ours.timestamps.is_some()),
                Ok(E::Noop) => {}
                // It stops where it meets a kind or length that it does not know.
                Err(_) => break,
            }
        }
    }
}
