//! Congestion marks (RFC 3168) on what is only forwarded: who understands them loses nothing at
//! first, and who does not is dropped instead.

use crate::script::{Host, Script};
use farlink_gateway::cc::Kind;
use farlink_gateway::config::{LegConfig, Link};
use farlink_wire::{Duration, Offload, checksum};

const BYTES: usize = 1_200;

/// A UDP datagram from a to b.
fn datagram(is_v6: bool, ecn: u8) -> Vec<u8> {
    let header = if is_v6 {
        let mut header = vec![0x60, ecn << 4, 0, 0, 0, 0, 17, 63];
        header[4..6].copy_from_slice(&(BYTES as u16 - 40).to_be_bytes());
        for last in [1, 2] {
            header.extend_from_slice(&[0xfd, 0, 0, 0, 0, 0, 0, last, 0, 0, 0, 0, 0, 0, 0, 1]);
        }
        header
    } else {
        let mut header = vec![0x45, ecn, 0, 0, 0, 1, 0x40, 0, 63, 17, 0, 0, 10, 0, 1, 1, 10, 0, 2, 1];
        header[2..4].copy_from_slice(&(BYTES as u16).to_be_bytes());
        let sum = !checksum::sum(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        header
    };
    let len = BYTES - header.len();
    let udp = [&[1, 1, 0, 53][..], &(len as u16).to_be_bytes(), &[0, 0], &vec![7; len - 8]].concat();
    [header, udp].concat()
}

/// 10 Mbit/s for 0.4 s, on a link of 8: what b gets, and how much of it is marked.
fn send(is_v6: bool, ecn: u8) -> (usize, usize) {
    let mut t = Script::with(|s| {
        let leg = LegConfig { cc: Kind::FixedRate, ..LegConfig::default() };
        let rtt = Some(Duration::from_millis(40));
        s.link = Some(Link { name: "sat".into(), rate_bps: Some(8_000_000), rtt, leg, ..Link::default() });
    });
    for _ in 0..400 {
        t.inject(Host::A, datagram(is_v6, ecn), Offload::default());
        t.play("~1");
    }
    t.play("~500");
    let lines = t.take_lines(Host::B);
    let marked = lines.iter().filter(|line| line.ends_with("congestion experienced")).count();
    t.assert(lines.iter().all(|line| line.starts_with("other, 1200 bytes")), "nothing else has come");
    (lines.len(), marked)
}

#[test]
fn who_understands_marks_is_marked_and_loses_nothing_and_others_lose_as_much() {
    for is_v6 in [false, true] {
        for ecn in [1, 2] {
            let (got, marked) = send(is_v6, ecn);
            assert!(got == 400 && marked > 2, "IPv6 {is_v6}, ECN {ecn}: {marked} of {got} are marked");
        }
        let (got, marked) = send(is_v6, 0);
        assert!(got < 398 && marked == 0, "IPv6 {is_v6}, no ECN: {marked} of {got} are marked");
    }
}
