//! Packets out of a string of bytes: valid ones of many shapes, damaged ones, and the bytes
//! themselves.

use farlink_wire::{Flags, SegmentHeader, SeqNum, finish_checksums};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Reads values from bytes; zeros when there are no more.
pub struct Source<'a>(pub &'a [u8]);

impl<'a> Source<'a> {
    pub fn u8(&mut self) -> u8 {
        match self.0.split_first() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => 0,
        }
    }

    pub fn u16(&mut self) -> u16 {
        u16::from_be_bytes([self.u8(), self.u8()])
    }

    pub fn u32(&mut self) -> u32 {
        u32::from(self.u16()) << 16 | u32::from(self.u16())
    }

    pub fn below(&mut self, n: usize) -> usize {
        usize::from(self.u16()) % n.max(1)
    }

    pub fn bytes(&mut self, n: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(n.min(self.0.len()));
        self.0 = rest;
        taken
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A packet: the bytes themselves, or a TCP segment shaped by them, possibly damaged.
    pub fn packet(&mut self) -> Vec<u8> {
        let shape = self.u8();
        if shape & 3 == 3 {
            return self.bytes(usize::MAX).to_vec();
        }
        let payload_len = if shape & 0x20 != 0 { self.below(65_536) } else { self.below(3_000) };
        let mut packet = self.tcp(shape & 4 != 0, shape & 8 != 0, payload_len);
        if shape & 0x10 != 0 {
            packet.extend_from_slice(&[0xee; 46][..self.below(46)]);
        }
        if shape & 0x40 != 0 {
            for _ in 0..self.below(6) {
                // Mostly in the headers.
                let at = if self.u8() & 7 == 0 {
                    self.below(packet.len())
                } else {
                    self.below(packet.len().min(100))
                };
                packet[at] ^= self.u8();
            }
        }
        if shape & 0x80 != 0 {
            packet.truncate(self.below(packet.len() + 1));
        }
        packet
    }

    /// A TCP segment with right checksums.
    pub fn tcp(&mut self, v6: bool, extended: bool, payload_len: usize) -> Vec<u8> {
        let address = |n: u8| -> IpAddr {
            if v6 {
                Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n.into()).into()
            } else {
                Ipv4Addr::new(10, 0, 0, n).into()
            }
        };
        let options = self.options();
        let header = SegmentHeader {
            src: address(1),
            dst: address(2),
            src_port: self.u16(),
            dst_port: self.u16(),
            ttl: self.u8(),
            traffic_class: self.u8(),
            flow_label: self.u32(),
            ip_id: self.u16(),
            dont_fragment: self.u8() & 1 == 0,
            seq: SeqNum(self.u32()),
            ack: SeqNum(self.u32()),
            flags: Flags(self.u16() & Flags::MASK),
            window: self.u16(),
            urgent: self.u16(),
            timestamps: None,
            sack: &[],
            farlink: None,
            marks_padding: false,
            xcp: None,
            xcp_sum: None,
        };
        let extension = if extended { self.extension(v6) } else { Vec::new() };
        let payload_len = payload_len.min(65_535 - 120 - extension.len());
        let (bytes, offload) = header.write_with_options(payload_len, &options).unwrap();
        let mut packet = bytes.to_vec();
        packet.resize(bytes.len() + payload_len, 0);
        let mut value = self.u8();
        for byte in &mut packet[bytes.len()..] {
            value = value.wrapping_mul(37).wrapping_add(11);
            *byte = value;
        }
        finish_checksums(&mut packet, &offload);
        insert_extension(&mut packet, &extension);
        packet
    }

    /// TCP options, at most 40 bytes: usual ones in any order, or anything.
    fn options(&mut self) -> Vec<u8> {
        let mode = self.u8();
        if mode & 0xc0 == 0xc0 {
            let n = usize::from(mode) % 41;
            return self.bytes(n).to_vec();
        }
        let usual: [&[u8]; 16] = [
            &[2, 4, 5, 0xb4],
            &[3, 3, 7],
            &[4, 2],
            &[8, 10, 0, 0, 0, 1, 0, 0, 0, 2],
            &[1],
            &[1, 1],
            &[5, 10, 0, 0, 0, 9, 0, 0, 0, 19],
            &[5, 18, 0, 0, 0, 9, 0, 0, 0, 19, 0, 0, 0, 29, 0, 0, 0, 39],
            &[34, 10, 1, 2, 3, 4, 5, 6, 7, 8],
            &[254, 4, 0xfa, 0x51],
            &[254, 6, 0xfa, 0x52, 7, 8],
            &[254, 11, 0xfa, 0x53, 1, 2, 3, 4, 5, 6, 7],
            &[254, 4, 0xf9, 0x89],
            &[30, 4, 0, 1],
            &[77, 3, 9],
            &[0],
        ];
        let mut out = Vec::new();
        for _ in 0..mode % 7 {
            let option = usual[usize::from(self.u8()) % usual.len()];
            if out.len() + option.len() <= 40 {
                out.extend_from_slice(option);
            }
        }
        out
    }

    /// IPv4 options, or IPv6 extension headers without the first next-header byte in place.
    fn extension(&mut self, v6: bool) -> Vec<u8> {
        if !v6 {
            let choices: [&[u8]; 4] = [
                &[148, 4, 0, 0],
                &[1, 1, 1, 0],
                &[7, 7, 4, 0, 0, 0, 0, 0],
                &[148, 4, 0, 0, 68, 8, 5, 0, 0, 0, 0, 0],
            ];
            return choices[usize::from(self.u8()) % 4].to_vec();
        }
        let mut out = Vec::new();
        let count = 1 + self.u8() % 3;
        for n in 0..count {
            // Kind in the first byte for now; `insert_extension` links them.
            let kind = match self.u8() % 4 {
                0 if n == 0 => 0,
                1 => 43,
                2 => 44,
                _ => 60,
            };
            match kind {
                44 => out.extend_from_slice(&[44, 0, 0, 0, 1, 2, 3, 4]),
                43 => out.extend_from_slice(&[
                    43, 2, 2, 0, 0, 0, 0, 0, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9,
                ]),
                _ => out.extend_from_slice(&[kind, 0, 1, 4, 0, 0, 0, 0]),
            }
        }
        out
    }
}

/// Put IPv4 options or (see [`Source::extension`]) IPv6 extension headers behind the IP header.
pub fn insert_extension(packet: &mut Vec<u8>, extension: &[u8]) {
    if extension.is_empty() {
        return;
    }
    if packet[0] >> 4 == 4 {
        packet.splice(20..20, extension.iter().copied());
        packet[0] = 0x40 | ((20 + extension.len()) / 4) as u8;
        let total = u16::from_be_bytes([packet[2], packet[3]]) + extension.len() as u16;
        packet[2..4].copy_from_slice(&total.to_be_bytes());
        packet[10..12].fill(0);
        let check = !naive_sum(&packet[..20 + extension.len()]);
        packet[10..12].copy_from_slice(&check.to_be_bytes());
        return;
    }
    packet.splice(40..40, extension.iter().copied());
    let len = u16::from_be_bytes([packet[4], packet[5]]) + extension.len() as u16;
    packet[4..6].copy_from_slice(&len.to_be_bytes());
    let protocol = packet[6];
    let (mut link, mut at) = (6, 40);
    while at < 40 + extension.len() {
        packet[link] = packet[at];
        link = at;
        at += if packet[link] == 44 { 8 } else { (usize::from(packet[at + 1]) + 1) * 8 };
    }
    packet[link] = protocol;
}

/// The ones' complement sum, word by word as RFC 1071 defines it.
pub fn naive_sum(bytes: &[u8]) -> u16 {
    let mut sum = 0u16;
    for pair in bytes.chunks(2) {
        let word = u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]);
        let (s, carry) = sum.overflowing_add(word);
        sum = s + u16::from(carry);
    }
    sum
}

/// The two sums stand for the same number: 0 and 0xffff are both zero.
pub fn same_sum(a: u16, b: u16) -> bool {
    a % 0xffff == b % 0xffff
}
