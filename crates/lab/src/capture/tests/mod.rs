//! The checker against made-up gateways: an honest one passes, each kind of wrong is found and
//! named.

use std::net::{IpAddr, Ipv4Addr};

use farlink_wire::{Flags, SegmentHeader, SeqNum, finish_checksums};

use super::{Checker, Findings, Frame, Point};

mod lives;
mod split;

const CLIENT: (IpAddr, u16) = (IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 40_000);
const SERVER: (IpAddr, u16) = (IpAddr::V4(Ipv4Addr::new(10, 0, 1, 1)), 80);
/// Close to the end of the sequence space, so that every test goes round the corner.
const CLIENT_ISN: u32 = u32::MAX - 2;
const SERVER_ISN: u32 = 1000;

/// A segment in words that tests can change.
#[derive(Clone, Copy)]
struct Seg {
    from_client: bool,
    flags: Flags,
    /// Relative to the ISN.
    seq: u32,
    ack: u32,
    urgent: u16,
    payload: &'static [u8],
    spoil: bool,
}

impl Seg {
    fn new(from_client: bool, flags: Flags, seq: u32, ack: u32) -> Self {
        Self { from_client, flags, seq, ack, urgent: 0, payload: b"", spoil: false }
    }
    fn with(self, payload: &'static [u8]) -> Self {
        Self { payload, ..self }
    }
    fn bytes(self) -> Vec<u8> {
        self.bytes_of(CLIENT)
    }
    fn bytes_of(self, client: (IpAddr, u16)) -> Vec<u8> {
        let (src, dst, isn, peer) = if self.from_client {
            (client, SERVER, CLIENT_ISN, SERVER_ISN)
        } else {
            (SERVER, client, SERVER_ISN, CLIENT_ISN)
        };
        let ack = if self.flags.ack() { peer.wrapping_add(self.ack) } else { 0 };
        let header = SegmentHeader {
            src: src.0,
            dst: dst.0,
            src_port: src.1,
            dst_port: dst.1,
            ttl: 64,
            traffic_class: 0,
            flow_label: 0,
            ip_id: 1,
            dont_fragment: true,
            seq: SeqNum(isn.wrapping_add(self.seq)),
            ack: SeqNum(ack),
            flags: self.flags,
            window: 1000,
            urgent: self.urgent,
            timestamps: None,
            sack: &[],
            farlink: None,
            marks_padding: false,
            xcp: None,
            xcp_sum: None,
        };
        let (head, offload) = header.write(self.payload.len()).unwrap();
        let mut packet = head.to_vec();
        packet.extend_from_slice(self.payload);
        finish_checksums(&mut packet, &offload);
        if self.spoil {
            let last = packet.len() - 1;
            packet[last] ^= 1;
        }
        packet
    }
}

fn syn() -> Seg {
    Seg::new(true, Flags::SYN, 0, 0)
}
fn syn_ack() -> Seg {
    Seg::new(false, Flags::SYN | Flags::ACK, 0, 1)
}
fn ack() -> Seg {
    Seg::new(true, Flags::ACK, 1, 1)
}
fn data() -> Seg {
    Seg::new(false, Flags::ACK, 1, 1).with(b"hello world")
}
fn fin() -> Seg {
    Seg::new(false, Flags::ACK | Flags::FIN, 12, 1)
}
fn acked() -> Seg {
    Seg::new(true, Flags::ACK, 1, 13)
}

fn checker() -> Checker {
    let point = |interface: &str| Point { node: "gw".into(), interface: interface.into(), is_link: false };
    Checker::new(&[point("to-client"), point("to-server")], false, false)
}

/// A segment as the interfaces of the gateway see it: coming in by one, leaving by the other.
fn take(checker: &mut Checker, segment: Seg, came: bool, left: bool) {
    take_at(checker, 1, CLIENT, segment, came, left);
}

/// The same at a time, of a connection of any client.
fn take_at(checker: &mut Checker, at_ns: u64, client: (IpAddr, u16), segment: Seg, came: bool, left: bool) {
    let packet = segment.bytes_of(client);
    let (inside, outside) = if segment.from_client { (0, 1) } else { (1, 0) };
    let frame = |is_outgoing| Frame {
        at_ns,
        is_outgoing,
        is_checksum_open: false,
        len: packet.len(),
        wire_len: packet.len(),
    };
    if came {
        checker.take(inside, &frame(false), &packet);
    }
    if left {
        checker.take(outside, &frame(true), &packet);
    }
}

/// A connection through an honest gateway, with additional segments that only came in or only left.
fn run(only_came: &[Seg], only_left: &[Seg]) -> Findings {
    let mut checker = checker();
    for segment in [syn(), syn_ack(), ack(), data(), fin(), acked()] {
        take(&mut checker, segment, true, true);
    }
    only_came.iter().for_each(|s| take(&mut checker, *s, true, false));
    only_left.iter().for_each(|s| take(&mut checker, *s, false, true));
    checker.finish(0)
}

fn expect_failure(findings: &Findings, words: &str) {
    assert!(findings.failures.iter().any(|f| f.contains(words)), "{:?}", findings.failures);
}

#[test]
fn an_honest_gateway_passes() {
    let findings = run(&[], &[]);
    assert!(findings.failures.is_empty(), "{:?}", findings.failures);
    assert_eq!((findings.flows, findings.packets), (1, 12));
}

#[test]
fn cutting_and_repeating_data_is_honest() {
    let pieces = [
        Seg::new(false, Flags::ACK, 1, 1).with(b"hel"),
        Seg::new(false, Flags::ACK, 4, 1).with(b"lo world"),
        Seg::new(false, Flags::ACK | Flags::FIN, 9, 1).with(b"rld"),
    ];
    assert!(run(&[], &pieces).failures.is_empty());
}

#[test]
fn other_bytes_are_found() {
    let mut checker = checker();
    for segment in [syn(), syn_ack(), ack()] {
        take(&mut checker, segment, true, true);
    }
    take(&mut checker, data(), true, false);
    take(&mut checker, data().with(b"hello worle"), false, true);
    expect_failure(&checker.finish(0), "other bytes");
}

#[test]
fn bytes_that_never_came_are_found() {
    let more = Seg::new(false, Flags::ACK, 12, 1).with(b"!");
    expect_failure(&run(&[], &[more]), "byte 11 left, it never came in");
}

#[test]
fn a_syn_of_the_gateways_own_is_found() {
    let own = Seg { seq: 77, ..syn() };
    expect_failure(&run(&[], &[own]), "a SYN with ISN");
}

#[test]
fn a_fin_or_rst_of_the_gateways_own_is_found() {
    let early = Seg::new(false, Flags::ACK | Flags::FIN, 5, 1);
    expect_failure(&run(&[], &[early]), "a FIN left at byte 4");
    let reset = Seg::new(true, Flags::RST, 1, 0);
    expect_failure(&run(&[], &[reset]), "a RST left that no host sent");
    let honest = run(&[reset], &[Seg { seq: 5, ..reset }]);
    assert!(honest.failures.is_empty(), "its sequence number may change: {:?}", honest.failures);
}

#[test]
fn acknowledging_what_was_not_sent_is_found() {
    expect_failure(&run(&[], &[Seg { ack: 14, ..acked() }]), "its source has sent");
}

#[test]
fn urgent_data_elsewhere_is_found() {
    let urgent = |seq, urgent| Seg { urgent, ..Seg::new(false, Flags::ACK | Flags::URG, seq, 1) };
    let moved = run(&[urgent(1, 6)], &[urgent(1, 7)]);
    expect_failure(&moved, "urgent data ends at byte 7");
    let recut = run(&[urgent(1, 6)], &[urgent(3, 4)]);
    assert!(recut.failures.is_empty(), "the same absolute place: {:?}", recut.failures);
}

#[test]
fn a_spoiled_checksum_is_found_unless_it_came_so() {
    let bad = Seg { spoil: true, ..data() };
    expect_failure(&run(&[], &[bad]), "wrong checksum");
    assert!(run(&[bad], &[bad]).failures.is_empty());
}

#[test]
fn a_used_name_is_another_connection() {
    let mut checker = checker();
    for round in 0..50 {
        // The same 4-tuple with an ISN that has moved on, and other bytes at the same places.
        let shift = round * 100_000;
        let payload: &'static [u8] = if round % 2 == 0 { b"even rounds" } else { b"odd rounds!" };
        let moved = |s: Seg| Seg { seq: s.seq.wrapping_add(shift), ack: s.ack.wrapping_add(shift), ..s };
        for segment in [syn(), syn_ack(), ack(), data().with(payload), Seg::new(true, Flags::RST, 1, 0)] {
            take(&mut checker, moved(segment), true, true);
        }
    }
    let findings = checker.finish(0);
    assert!(findings.failures.is_empty(), "{:?}", findings.failures);
    assert_eq!(findings.flows, 50);
}

#[test]
fn a_connection_with_numbers_close_to_the_old_ones_is_another_one() {
    let mut checker = checker();
    for segment in [syn(), syn_ack(), ack(), data(), fin(), acked()] {
        take(&mut checker, segment, true, true);
    }
    // As Linux chooses its ISN when the client opens a connection that the server remembers in
    // TIME-WAIT.
    let again = |segment: Seg| {
        let (own, peer) = if segment.from_client { (2_000_000, 65_550) } else { (65_550, 2_000_000) };
        Seg { seq: segment.seq + own, ack: segment.ack + peer, ..segment }
    };
    for segment in [syn(), syn_ack(), ack(), data(), fin(), acked()].map(again) {
        take(&mut checker, segment, true, true);
    }
    let findings = checker.finish(0);
    assert!(findings.failures.is_empty(), "{:?}", findings.failures);
    assert_eq!(findings.flows, 2);
}

#[test]
fn spoofed_syns_do_not_confuse_a_connection() {
    let mut checker = checker();
    for segment in [syn(), syn_ack(), ack()] {
        take(&mut checker, segment, true, true);
    }
    for guess in 0..200 {
        take(&mut checker, Seg { seq: guess * 7, ..syn() }, true, true);
        take(&mut checker, Seg { from_client: false, seq: guess * 11, ..syn() }, true, guess % 2 == 0);
    }
    take(&mut checker, data(), true, true);
    let findings = checker.finish(0);
    assert!(findings.failures.is_empty(), "{:?}", findings.failures);
}

#[test]
fn missed_packets_are_said_and_absence_is_not_judged() {
    let mut checker = checker();
    take(&mut checker, data(), false, true);
    let findings = checker.finish(3);
    assert!(findings.failures.is_empty());
    assert_eq!(findings.drops, 3);
}

/// A plot of what has arrived goes up, whatever is sent again.
#[test]
fn each_byte_counts_once_in_what_has_passed() {
    let point = |interface: &str| Point { node: "gw".into(), interface: interface.into(), is_link: false };
    let mut checker = Checker::new(&[point("to-client"), point("to-server")], false, true);
    for segment in [syn(), syn_ack(), ack()] {
        take(&mut checker, segment, true, true);
    }
    for (seq, payload) in [(1, b"hel".as_slice()), (9, b"rld"), (1, b"hel"), (4, b"lo wo")] {
        take(&mut checker, Seg::new(false, Flags::ACK, seq, 1).with(payload), true, true);
    }
    let findings = checker.finish(0);
    let data = findings.streams.iter().flat_map(|(.., s)| &s.moments).filter(|m| !m.is_ack);
    let seen: Vec<_> = data.map(|m| (m.place, m.seen_bytes)).collect();
    assert_eq!(seen, [(3, 3), (11, 6), (3, 6), (8, 11)]);
}
