//! Whether gateways split is seen, and so are packets of which only the headers were captured.

use farlink_wire::Flags;

use super::{CLIENT, Seg, ack, checker, data, expect_failure, syn, syn_ack};
use crate::capture::{Checker, Findings, Frame};

/// More than a gateway can let pass without a word of its own.
static MUCH: [u8; 10_000] = [7; 10_000];
const SEGMENTS: u32 = 12;

fn frame(packet: &[u8], wire_len: usize, is_outgoing: bool) -> Frame {
    Frame { at_ns: 1, is_outgoing, is_checksum_open: false, len: packet.len(), wire_len }
}

/// A segment as a gateway's interfaces see it, or only the first bytes of it.
fn take(checker: &mut Checker, segment: Seg, came: bool, left: bool, kept: usize) {
    let packet = segment.bytes_of(CLIENT);
    let seen = &packet[..kept.min(packet.len())];
    let (inside, outside) = if segment.from_client { (0, 1) } else { (1, 0) };
    if came {
        checker.take(inside, &frame(seen, packet.len(), false), seen);
    }
    if left {
        checker.take(outside, &frame(seen, packet.len(), true), seen);
    }
}

/// A download through a gateway that acknowledges each segment itself, before the client does, or
/// through a router.
fn download(splits: bool, kept: usize, checker: &mut Checker) {
    for segment in [syn(), syn_ack(), ack()] {
        take(checker, segment, true, true, kept);
    }
    for n in 0..SEGMENTS {
        let from = 1 + n * MUCH.len() as u32;
        take(checker, Seg::new(false, Flags::ACK, from, 1).with(&MUCH), true, true, kept);
        let acknowledgement = Seg::new(true, Flags::ACK, 1, from + MUCH.len() as u32);
        if splits {
            take(checker, acknowledgement, false, true, kept);
        }
        take(checker, acknowledgement, true, true, kept);
    }
}

fn judged(splits: bool, kept: usize) -> Findings {
    let mut checker = checker();
    download(splits, kept, &mut checker);
    checker.finish(0)
}

#[test]
fn a_gateway_that_splits_is_told_from_one_that_only_forwards() {
    for kept in [usize::MAX, 60] {
        for splits in [true, false] {
            let findings = judged(splits, kept);
            assert!(findings.failures.is_empty(), "{:?}", findings.failures);
            assert_eq!(findings.split.splittable["gw"].count, 1);
            let early: Vec<_> = findings.split.bulk.values().collect();
            assert_eq!(early.len(), 1);
            assert_eq!(early[0].contains("gw"), splits, "{kept} bytes of each packet");
        }
    }
}

/// A FIN is acknowledged by the host that got it, and what carries nothing need not be split.
#[test]
fn what_says_nothing_about_splitting_is_not_counted() {
    let mut checker = checker();
    let fin = Seg::new(false, Flags::ACK | Flags::FIN, 1, 1);
    for segment in [syn(), syn_ack(), ack(), fin, Seg::new(true, Flags::ACK, 1, 2)] {
        take(&mut checker, segment, true, true, usize::MAX);
    }
    let split = checker.finish(0).split;
    assert!(split.splittable.is_empty() && split.bulk.is_empty(), "{split:?}");
}

#[test]
fn handshakes_that_cross_or_are_reset_are_left_to_the_hosts() {
    let reset = Seg::new(false, Flags::RST, 9_000_000, 0);
    let crossing = Seg { flags: Flags::SYN, ..syn_ack() };
    for odd in [reset, crossing] {
        let mut checker = checker();
        for segment in [syn(), odd, syn_ack(), ack(), data()] {
            take(&mut checker, segment, true, true, usize::MAX);
        }
        let split = checker.finish(0).split;
        assert!(split.splittable.is_empty(), "{split:?}");
    }
    // What comes after the handshake is another matter.
    let mut checker = checker();
    for segment in [syn(), syn_ack(), ack(), data(), reset] {
        take(&mut checker, segment, true, true, usize::MAX);
    }
    assert_eq!(checker.finish(0).split.splittable["gw"].count, 1);
}

#[test]
fn of_cut_packets_the_places_are_judged_and_the_bytes_are_not() {
    let run = |left: Seg| {
        let mut checker = checker();
        for segment in [syn(), syn_ack(), ack()] {
            take(&mut checker, segment, true, true, 44);
        }
        take(&mut checker, data(), true, false, 44);
        take(&mut checker, left, false, true, 44);
        checker.finish(0)
    };
    assert!(run(data()).failures.is_empty());
    assert!(run(data().with(b"hello worle")).failures.is_empty(), "these bytes were not captured");
    expect_failure(&run(data().with(b"hello world!")), "byte 11 left, it never came in");
    let early = Seg { ack: 5, ..data() };
    expect_failure(&run(early), "byte 4 is acknowledged; its source has sent 0");
}
