//! The TCP header as values (RFC 9293 section 3.1), and whether a segment's checksums are right.

use crate::bytes::{u16_at, u32_at};
use crate::checksum;
use crate::ip::{IpInfo, PROTOCOL_TCP};
use crate::offload::{ChecksumState, Offload};
use crate::options::TcpOptions;
use crate::seq::SeqNum;
use crate::shim::{SHIM_BYTES, Shim};
use core::fmt;
use core::ops::BitOr;

/// Bytes of a TCP header without options.
pub const TCP_HEADER_BYTES: usize = 20;
/// Where the checksum stands in the TCP header.
pub const TCP_CHECKSUM_OFFSET: usize = 16;

/// The control bits, AE (RFC 9768, once NS) as 0x100.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Flags(pub u16);

macro_rules! flags {
    ($($name:ident $method:ident $bit:literal $doc:literal;)*) => {
        impl Flags {
            $(#[doc = $doc] pub const $name: Self = Self($bit);)*
            $(#[doc = concat!(stringify!($name), " is set.")]
              #[must_use] pub const fn $method(self) -> bool { self.0 & $bit != 0 })*
            /// Their names, from the highest bit.
            const NAMES: &'static [(u16, &'static str)] = &[$(($bit, stringify!($name)),)*];
        }
    };
}

flags! {
    AE ae 0x100 "Accurate ECN (RFC 9768).";
    CWR cwr 0x80 "Congestion window reduced.";
    ECE ece 0x40 "ECN echo.";
    URG urg 0x20 "The urgent pointer means something.";
    ACK ack 0x10 "The acknowledgement number means something.";
    PSH psh 0x08 "Push.";
    RST rst 0x04 "Reset.";
    SYN syn 0x02 "Synchronise.";
    FIN fin 0x01 "No more data.";
}

impl Flags {
    /// None.
    pub const NONE: Self = Self(0);
    /// All bits that there are.
    pub const MASK: u16 = 0x1ff;

    /// All of `other` are set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// At least one of `other` is set.
    #[must_use]
    pub const fn any(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// These without `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// These and `other`; for constants, where `|` does not work.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOr for Flags {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for (bit, name) in Self::NAMES {
            if self.0 & bit != 0 {
                f.write_str(if first { "" } else { "|" })?;
                f.write_str(name)?;
                first = false;
            }
        }
        if first { f.write_str("-") } else { Ok(()) }
    }
}

/// A TCP segment inside a packet: values, and where its payload stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpSegment {
    /// The IP header.
    pub ip: IpInfo,
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Sequence number of the first byte (of the SYN where there is one).
    pub seq: SeqNum,
    /// Acknowledgement number; means something only with ACK.
    pub ack: SeqNum,
    /// Control bits.
    pub flags: Flags,
    /// Window field, not scaled.
    pub window: u16,
    /// Urgent pointer; means something only with URG.
    pub urgent: u16,
    /// Payload from the packet's start, in bytes.
    pub payload_offset: usize,
    /// Payload bytes by the IP length: padding behind the packet does not count.
    pub payload_len: usize,
    /// Options.
    pub options: TcpOptions,
    /// XCP's header, which stands before it.
    pub shim: Option<Shim>,
}

/// IPv4 identification of an intermediate acknowledgement (Reynolds, 3.4.5).
pub const IACK_IP_ID: u16 = 0xffff;
/// Its time to live (Reynolds, 3.4.5).
pub const IACK_TTL: u8 = 255;
/// Its sequence number (Reynolds, 3.4.5), and the one that takes its place where a host that knows
/// no such packets could take 0 for a number of its connection.
pub const IACK_SEQS: [SeqNum; 2] = [SeqNum(0), SeqNum(1 << 31)];

impl TcpSegment {
    /// An intermediate acknowledgement: a gateway on the way holds what stands before its
    /// acknowledgement number, and its destination has not got it (Reynolds, 3.4.5). It carries
    /// nothing, and its sequence number means nothing.
    #[must_use]
    pub fn is_iack(&self) -> bool {
        self.flags == Flags::ACK.with(Flags::URG)
            && self.payload_len == 0
            && self.urgent == 0
            && self.payload_offset == self.tcp_offset() + TCP_HEADER_BYTES
            && IACK_SEQS.contains(&self.seq)
            && (!self.ip.is_v4() || self.ip.id == IACK_IP_ID)
    }

    /// Sequence space it takes: payload, and one each for SYN and FIN.
    #[must_use]
    pub fn seq_len(&self) -> u32 {
        let payload = u32::try_from(self.payload_len).unwrap_or(u32::MAX);
        payload.saturating_add(u32::from(self.flags.syn())).saturating_add(u32::from(self.flags.fin()))
    }

    /// The sequence number after its last one.
    #[must_use]
    pub fn end_seq(&self) -> SeqNum {
        self.seq + self.seq_len()
    }

    /// The TCP header from the packet's start, in bytes.
    #[must_use]
    pub fn tcp_offset(&self) -> usize {
        usize::from(self.ip.header_len).saturating_add(shim_bytes(self.shim))
    }

    /// Bytes of TCP header, options included.
    #[must_use]
    pub fn tcp_header_len(&self) -> usize {
        self.payload_offset.saturating_sub(self.tcp_offset())
    }

    /// Its payload in the packet that it was parsed from; empty in one too short.
    #[must_use]
    pub fn payload<'a>(&self, packet: &'a [u8]) -> &'a [u8] {
        packet
            .get(self.payload_offset..self.payload_offset.saturating_add(self.payload_len))
            .unwrap_or_default()
    }
}

const fn shim_bytes(shim: Option<Shim>) -> usize {
    if shim.is_some() { SHIM_BYTES } else { 0 }
}

/// Read the TCP header behind `ip` and `shim`; `None` when it is cut short or its data offset
/// impossible.
pub(crate) fn parse_segment(packet: &[u8], ip: IpInfo, shim: Option<Shim>) -> Option<TcpSegment> {
    let at = usize::from(ip.header_len).saturating_add(shim_bytes(shim));
    let total = usize::try_from(ip.total_len).ok()?;
    let tcp = packet.get(at..total)?;
    let word = u16_at(tcp, 12)?;
    let header_len = usize::from(word >> 12) * 4;
    if header_len < TCP_HEADER_BYTES || header_len > tcp.len() {
        return None;
    }
    Some(TcpSegment {
        ip,
        src_port: u16_at(tcp, 0)?,
        dst_port: u16_at(tcp, 2)?,
        seq: SeqNum(u32_at(tcp, 4)?),
        ack: SeqNum(u32_at(tcp, 8)?),
        flags: Flags(word & Flags::MASK),
        window: u16_at(tcp, 14)?,
        urgent: u16_at(tcp, 18)?,
        payload_offset: at.saturating_add(header_len),
        payload_len: tcp.len().saturating_sub(header_len),
        options: TcpOptions::parse(tcp.get(TCP_HEADER_BYTES..header_len)?),
        shim,
    })
}

/// Whether the IPv4 header checksum and the TCP checksum are right. A TCP checksum that the kernel
/// verified counts as right, and so does one left partial, if it is this segment's TCP checksum
/// that is left so. Behind XCP's header the kernel knows no TCP.
#[must_use]
pub fn verify_checksums(packet: &[u8], segment: &TcpSegment, offload: &Offload) -> bool {
    let (at, ip_end) = (segment.tcp_offset(), usize::from(segment.ip.header_len));
    if segment.ip.is_v4() && packet.get(..ip_end).is_none_or(|header| checksum::sum(header) != 0xffff) {
        return false;
    }
    match offload.checksum {
        ChecksumState::Verified if segment.shim.is_none() => true,
        ChecksumState::Partial { start, offset } => {
            usize::from(start) == at && usize::from(offset) == TCP_CHECKSUM_OFFSET
        }
        ChecksumState::Verified | ChecksumState::Unverified => {
            let end = usize::try_from(segment.ip.total_len).unwrap_or(usize::MAX);
            packet.get(at..end).is_some_and(|tcp| {
                let len = u32::try_from(tcp.len()).unwrap_or(u32::MAX);
                let pseudo = checksum::pseudo_header(segment.ip.src, segment.ip.dst, PROTOCOL_TCP, len);
                checksum::add(pseudo, checksum::sum(tcp)) == 0xffff
            })
        }
    }
}
