//! Building and reading packets by hand. On purpose not the code under test (crate `wire`): a
//! mistake made twice the same way would go unseen.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// FIN flag.
pub const FIN: u8 = 0x01;
/// SYN flag.
pub const SYN: u8 = 0x02;
/// RST flag.
pub const RST: u8 = 0x04;
/// PSH flag.
pub const PSH: u8 = 0x08;
/// ACK flag.
pub const ACK: u8 = 0x10;
/// URG flag.
pub const URG: u8 = 0x20;
/// ECE flag.
pub const ECE: u8 = 0x40;
/// CWR flag.
pub const CWR: u8 = 0x80;

/// The IP header of a packet to be built.
#[derive(Clone, Debug)]
pub struct Ip {
    /// Source.
    pub src: IpAddr,
    /// Destination, of the same family.
    pub dst: IpAddr,
    /// Protocol or (IPv6) the first next-header value.
    pub protocol: u8,
    /// TTL or hop limit.
    pub ttl: u8,
    /// TOS or traffic class.
    pub tos: u8,
    /// IPv4 identification, also used for the IPv6 fragment header.
    pub id: u32,
    /// IPv4: do not fragment.
    pub df: bool,
    /// IPv4 options (a multiple of 4 bytes), or IPv6 extension headers that precede the payload.
    pub extra: Vec<u8>,
}

impl Ip {
    /// An ordinary header.
    pub fn new(src: IpAddr, dst: IpAddr, protocol: u8) -> Ip {
        Ip { src, dst, protocol, ttl: 64, tos: 0, id: 1, df: true, extra: Vec::new() }
    }

    /// The packet with this header; checksum and lengths correct.
    pub fn packet(&self, payload: &[u8]) -> Vec<u8> {
        match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                self.packet4(src, dst, if self.df { 0x4000 } else { 0 }, payload)
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => self.packet6(src, dst, self.protocol, &self.extra, payload),
            _ => Vec::new(),
        }
    }

    fn packet4(&self, src: Ipv4Addr, dst: Ipv4Addr, frag: u16, payload: &[u8]) -> Vec<u8> {
        let header = 20 + self.extra.len();
        let mut out = vec![0x40 | (header / 4) as u8, self.tos];
        out.extend(((header + payload.len()) as u16).to_be_bytes());
        out.extend((self.id as u16).to_be_bytes());
        out.extend(frag.to_be_bytes());
        out.extend([self.ttl, self.protocol, 0, 0]);
        out.extend(src.octets());
        out.extend(dst.octets());
        out.extend(&self.extra);
        let sum = checksum(&[&out]);
        out[10..12].copy_from_slice(&sum.to_be_bytes());
        out.extend(payload);
        out
    }

    fn packet6(&self, src: Ipv6Addr, dst: Ipv6Addr, next: u8, extra: &[u8], payload: &[u8]) -> Vec<u8> {
        let first = 0x6000_0000 | u32::from(self.tos) << 20;
        let mut out = first.to_be_bytes().to_vec();
        out.extend(((extra.len() + payload.len()) as u16).to_be_bytes());
        out.extend([next, self.ttl]);
        out.extend(src.octets());
        out.extend(dst.octets());
        out.extend(extra);
        out.extend(payload);
        out
    }

    /// The payload cut into fragments of at most `size` payload bytes (rounded down to a multiple
    /// of 8). IPv6: `extra` must be empty.
    pub fn fragments(&self, payload: &[u8], size: usize) -> Vec<Vec<u8>> {
        let size = (size / 8).max(1) * 8;
        let count = payload.len().div_ceil(size).max(1);
        (0..count)
            .map(|index| {
                let from = index * size;
                let to = payload.len().min(from + size);
                self.fragment(from, index + 1 < count, &payload[from..to])
            })
            .collect()
    }

    /// One fragment with any offset (in bytes, a multiple of 8) and any content.
    pub fn fragment(&self, offset: usize, more: bool, payload: &[u8]) -> Vec<u8> {
        match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let frag = (offset / 8) as u16 | if more { 0x2000 } else { 0 };
                self.packet4(src, dst, frag, payload)
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let mut header = vec![self.protocol, 0];
                header.extend((offset as u16 | u16::from(more)).to_be_bytes());
                header.extend(self.id.to_be_bytes());
                self.packet6(src, dst, 44, &header, payload)
            }
            _ => Vec::new(),
        }
    }
}

/// A TCP segment to be built, or one that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tcp {
    /// Source port.
    pub sport: u16,
    /// Destination port.
    pub dport: u16,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number.
    pub ack: u32,
    /// Flags of byte 13.
    pub flags: u8,
    /// The low four bits of byte 12: AE (1) and reserved ones.
    pub more_flags: u8,
    /// Window field.
    pub window: u16,
    /// Urgent pointer.
    pub urgent: u16,
    /// Options, raw; padded to a multiple of 4 when built.
    pub options: Vec<u8>,
    /// Payload.
    pub payload: Vec<u8>,
}

impl Tcp {
    /// The bytes of the segment with a correct checksum.
    pub fn bytes(&self, src: IpAddr, dst: IpAddr) -> Vec<u8> {
        let mut options = self.options.clone();
        while !options.len().is_multiple_of(4) {
            options.push(0);
        }
        let mut out = Vec::with_capacity(20 + options.len() + self.payload.len());
        out.extend(self.sport.to_be_bytes());
        out.extend(self.dport.to_be_bytes());
        out.extend(self.seq.to_be_bytes());
        out.extend(self.ack.to_be_bytes());
        out.extend([(((20 + options.len()) / 4) << 4) as u8 | self.more_flags & 15, self.flags]);
        out.extend(self.window.to_be_bytes());
        out.extend([0, 0]);
        out.extend(self.urgent.to_be_bytes());
        out.extend(&options);
        out.extend(&self.payload);
        let sum = transport_checksum(src, dst, 6, &out);
        out[16..18].copy_from_slice(&sum.to_be_bytes());
        out
    }

    /// The whole packet.
    pub fn packet(&self, src: IpAddr, dst: IpAddr) -> Vec<u8> {
        Ip::new(src, dst, 6).packet(&self.bytes(src, dst))
    }

    /// Reads a segment; `None` if it is not one.
    pub fn parse(segment: &[u8]) -> Option<Tcp> {
        let header = usize::from(*segment.get(12)? >> 4) * 4;
        let word16 = |at: usize| segment.get(at..at + 2).map(|b| u16::from_be_bytes([b[0], b[1]]));
        let word32 = |at: usize| segment.get(at..)?.first_chunk().map(|&b| u32::from_be_bytes(b));
        Some(Tcp {
            sport: word16(0)?,
            dport: word16(2)?,
            seq: word32(4)?,
            ack: word32(8)?,
            flags: *segment.get(13)?,
            more_flags: *segment.get(12)? & 15,
            window: word16(14)?,
            urgent: word16(18)?,
            options: segment.get(20..header)?.to_vec(),
            payload: segment.get(header..)?.to_vec(),
        })
    }

    /// The content (without kind and length) of the first option of a kind.
    pub fn option(&self, kind: u8) -> Option<&[u8]> {
        let mut rest = self.options.as_slice();
        while let Some((&this, tail)) = rest.split_first() {
            match this {
                0 => return None,
                1 => rest = tail,
                _ => {
                    let len = usize::from(*tail.first()?);
                    if this == kind {
                        return rest.get(2..len);
                    }
                    rest = rest.get(len.max(2)..)?;
                }
            }
        }
        None
    }

    /// Sequence numbers taken by payload, SYN and FIN.
    pub fn seq_len(&self) -> u32 {
        self.payload.len() as u32 + u32::from(self.flags & SYN != 0) + u32::from(self.flags & FIN != 0)
    }
}

/// An IP packet taken apart.
#[derive(Clone, Debug)]
pub struct Parsed {
    /// Source.
    pub src: IpAddr,
    /// Destination.
    pub dst: IpAddr,
    /// TTL or hop limit.
    pub ttl: u8,
    /// TOS or traffic class.
    pub tos: u8,
    /// IPv6 flow label.
    pub flow_label: u32,
    /// Identification of the fragments of one packet (IPv6: 0 without a fragment header).
    pub id: u32,
    /// Transport protocol.
    pub protocol: u8,
    /// IPv4 options or IPv6 extension headers.
    pub extra: Vec<u8>,
    /// Whether this is a fragment of something larger.
    pub fragment: bool,
    /// What follows the headers.
    pub payload: Vec<u8>,
}

/// Takes a packet apart; `None` if it is no IP packet.
pub fn parse(packet: &[u8]) -> Option<Parsed> {
    match packet.first()? >> 4 {
        4 => parse4(packet),
        6 => parse6(packet),
        _ => None,
    }
}

fn parse4(packet: &[u8]) -> Option<Parsed> {
    let header = usize::from(packet[0] & 15) * 4;
    let total = usize::from(u16::from_be_bytes([*packet.get(2)?, *packet.get(3)?]));
    // A super-segment longer than the field can say has the length 0.
    let total = if total == 0 { packet.len() } else { total };
    let frag = u16::from_be_bytes([*packet.get(6)?, *packet.get(7)?]);
    Some(Parsed {
        src: IpAddr::V4(Ipv4Addr::from(*packet.get(12..)?.first_chunk::<4>()?)),
        dst: IpAddr::V4(Ipv4Addr::from(*packet.get(16..)?.first_chunk::<4>()?)),
        ttl: packet[8],
        tos: packet[1],
        flow_label: 0,
        id: u32::from(u16::from_be_bytes([packet[4], packet[5]])),
        protocol: packet[9],
        extra: packet.get(20..header)?.to_vec(),
        fragment: frag & 0x3fff != 0,
        payload: packet.get(header..total)?.to_vec(),
    })
}

fn parse6(packet: &[u8]) -> Option<Parsed> {
    let first = u32::from_be_bytes(*packet.first_chunk::<4>()?);
    let (mut next, mut at, mut fragment, mut id) = (*packet.get(6)?, 40, false, 0);
    // Hop-by-hop, routing, fragment, destination options.
    while let 0 | 43 | 44 | 60 = next {
        let len = if next == 44 { 8 } else { (usize::from(*packet.get(at + 1)?) + 1) * 8 };
        if next == 44 {
            fragment = true;
            id = u32::from_be_bytes(*packet.get(at + 4..)?.first_chunk::<4>()?);
        }
        next = *packet.get(at)?;
        at += len;
    }
    Some(Parsed {
        src: IpAddr::V6(Ipv6Addr::from(*packet.get(8..)?.first_chunk::<16>()?)),
        dst: IpAddr::V6(Ipv6Addr::from(*packet.get(24..)?.first_chunk::<16>()?)),
        ttl: packet[7],
        tos: (first >> 20) as u8,
        flow_label: first & 0xf_ffff,
        id,
        protocol: next,
        extra: packet.get(40..at)?.to_vec(),
        fragment,
        payload: packet.get(at..)?.to_vec(),
    })
}

/// The Internet checksum over the parts laid end to end (all but the last of even length).
pub fn checksum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0_u32;
    for pair in parts.iter().flat_map(|part| part.chunks(2)) {
        sum += u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
    }
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Checksum of a transport header and payload with its pseudo-header.
pub fn transport_checksum(src: IpAddr, dst: IpAddr, protocol: u8, data: &[u8]) -> u16 {
    let mut pseudo = Vec::with_capacity(40);
    for addr in [src, dst] {
        match addr {
            IpAddr::V4(addr) => pseudo.extend(addr.octets()),
            IpAddr::V6(addr) => pseudo.extend(addr.octets()),
        }
    }
    pseudo.extend((data.len() as u32).to_be_bytes());
    pseudo.extend([0, 0, 0, protocol]);
    checksum(&[&pseudo, data])
}

/// A UDP packet's transport part.
pub fn udp(src: IpAddr, dst: IpAddr, sport: u16, dport: u16, payload: &[u8]) -> Vec<u8> {
    let mut out = sport.to_be_bytes().to_vec();
    out.extend(dport.to_be_bytes());
    out.extend(((8 + payload.len()) as u16).to_be_bytes());
    out.extend([0, 0]);
    out.extend(payload);
    let sum = transport_checksum(src, dst, 17, &out).max(1);
    out[6..8].copy_from_slice(&sum.to_be_bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const A4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    const B4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

    fn segment() -> Tcp {
        Tcp {
            sport: 1,
            dport: 2,
            seq: 0xffff_fff0,
            ack: 7,
            flags: SYN | ACK,
            more_flags: 1,
            window: 1000,
            urgent: 3,
            options: vec![2, 4, 5, 0xb4, 253, 6, 1, 2, 3, 4, 1, 1],
            payload: b"payload".to_vec(),
        }
    }

    #[test]
    fn built_packets_read_back() {
        let v6 = |last| IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last));
        for (src, dst) in [(A4, B4), (v6(1), v6(2))] {
            let parsed = parse(&segment().packet(src, dst)).expect("a packet");
            assert_eq!((parsed.src, parsed.dst, parsed.protocol, parsed.fragment), (src, dst, 6, false));
            assert_eq!(transport_checksum(src, dst, 6, &parsed.payload), 0, "the checksum verifies");
            let tcp = Tcp::parse(&parsed.payload).expect("a segment");
            assert_eq!(tcp, segment());
            assert_eq!(tcp.option(253), Some(&[1, 2, 3, 4][..]));
            assert_eq!(tcp.option(8), None);
            assert_eq!(tcp.seq_len(), 8);
        }
    }

    #[test]
    fn fragments_cover_the_payload_once() {
        let payload: Vec<u8> = (0..100).collect();
        let pieces = Ip::new(A4, B4, 17).fragments(&payload, 30);
        assert_eq!(pieces.len(), 5);
        let back: Vec<u8> = pieces.iter().flat_map(|piece| parse(piece).expect("a packet").payload).collect();
        assert_eq!(back, payload);
        assert!(pieces.iter().all(|piece| parse(piece).expect("a packet").fragment));
    }
}
