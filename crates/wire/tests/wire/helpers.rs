//! Packets to begin with.

use crate::targets::source::{insert_extension, naive_sum};
use farlink_wire::*;
use std::net::IpAddr;

pub fn header(v6: bool) -> SegmentHeader<'static> {
    let (src, dst): (IpAddr, IpAddr) = if v6 {
        ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap())
    } else {
        ("198.51.100.1".parse().unwrap(), "203.0.113.2".parse().unwrap())
    };
    SegmentHeader {
        src,
        dst,
        src_port: 40_000,
        dst_port: 443,
        ttl: 61,
        traffic_class: 0x2e << 2 | 2,
        flow_label: if v6 { 0xabcde } else { 0 },
        ip_id: 0x1234,
        dont_fragment: true,
        seq: SeqNum(0xffff_ff00),
        ack: SeqNum(77),
        flags: Flags::ACK,
        window: 501,
        urgent: 0,
        timestamps: None,
        sack: &[],
        farlink: None,
        marks_padding: false,
        xcp: None,
        xcp_sum: None,
    }
}

/// A segment with a complete checksum.
pub fn packet(v6: bool, options: &[u8], payload: &[u8]) -> Vec<u8> {
    finished(&header(v6), options, payload)
}

pub fn finished(header: &SegmentHeader<'_>, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let (bytes, offload) = header.write_with_options(payload.len(), options).unwrap();
    let mut out = [&bytes[..], payload].concat();
    finish_checksums(&mut out, &offload);
    out
}

pub fn with_extension(mut packet: Vec<u8>, extension: &[u8]) -> Vec<u8> {
    insert_extension(&mut packet, extension);
    packet
}

pub fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 7 + n / 256) as u8).collect()
}

pub fn tcp(packet: &[u8]) -> TcpSegment {
    match parse(packet) {
        Parsed::Tcp(s) => s,
        other => panic!("not TCP but {other:?}"),
    }
}

pub fn fragment_info(packet: &[u8]) -> FragmentInfo {
    match parse(packet) {
        Parsed::Fragment(f) => f,
        other => panic!("not a fragment but {other:?}"),
    }
}

/// Both checksums are right, by a sum that shares no code with the crate.
pub fn is_right(packet: &[u8]) -> bool {
    let s = tcp(packet);
    let total = s.ip.total_len as usize;
    let mut pseudo = Vec::new();
    match (s.ip.src, s.ip.dst) {
        (IpAddr::V4(a), IpAddr::V4(b)) => {
            if naive_sum(&packet[..s.tcp_offset()]) != 0xffff {
                return false;
            }
            pseudo.extend_from_slice(&a.octets());
            pseudo.extend_from_slice(&b.octets());
        }
        (IpAddr::V6(a), IpAddr::V6(b)) => {
            pseudo.extend_from_slice(&a.octets());
            pseudo.extend_from_slice(&b.octets());
        }
        _ => return false,
    }
    pseudo.extend_from_slice(&[0, 0, 0, 6]);
    pseudo.extend_from_slice(&((total - s.tcp_offset()) as u32).to_be_bytes());
    pseudo.extend_from_slice(&packet[s.tcp_offset()..total]);
    naive_sum(&pseudo) == 0xffff
}

/// An IPv4 header checksum as it should be.
pub fn fix_ipv4(packet: &mut [u8]) {
    let len = usize::from(packet[0] & 15) * 4;
    packet[10..12].fill(0);
    let check = !naive_sum(&packet[..len]);
    packet[10..12].copy_from_slice(&check.to_be_bytes());
}
