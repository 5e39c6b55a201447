//! ICMP and ICMPv6 errors: read, and the few that a gateway makes itself (RFC 792, 1191, 1812,
//! 4443).

use crate::bytes::{put_u16, u8_at, u16_at, u32_at};
use crate::checksum;
use crate::ip::{self, Extent, FragmentInfo, IpInfo, PROTOCOL_ICMP, PROTOCOL_ICMPV6, PROTOCOL_TCP, Upper};
use crate::seq::SeqNum;
use crate::shim::{SHIM_BYTES, Shim, ShimProtocols};
use core::net::IpAddr;

/// Bytes of an ICMP error before the packet it quotes.
const ERROR_HEADER_BYTES: usize = 8;
/// Longest ICMP error, headers included (RFC 1812 section 4.3.2.3), bytes.
const V4_ERROR_BYTES_MAX: usize = 576;
/// Longest ICMPv6 error: the least IPv6 MTU (RFC 4443 section 2.4 c), bytes.
const V6_ERROR_BYTES_MAX: usize = 1280;
const ERROR_TTL: u8 = 64;

/// An ICMP error message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IcmpError {
    /// IP header of the message itself.
    pub ip: IpInfo,
    /// What it says.
    pub kind: IcmpKind,
    /// Where the quoted packet begins, from the packet's start, in bytes.
    pub quote_offset: usize,
    /// The TCP segment it is about, when that can be told.
    pub inner: Option<InnerTcp>,
}

/// What an ICMP error says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpKind {
    /// IPv4 3/4 (RFC 1191). `mtu` is 0 when the router does not say.
    FragmentationNeeded {
        /// MTU of the next hop, bytes.
        mtu: u32,
    },
    /// IPv6 2/0 (RFC 4443 section 3.2).
    PacketTooBig {
        /// MTU of the next hop, bytes.
        mtu: u32,
    },
    /// IPv4 3, IPv6 1: destination unreachable.
    Unreachable {
        /// The code, of the family the message belongs to.
        code: u8,
    },
    /// IPv4 11, IPv6 3.
    TimeExceeded,
    /// Any other error.
    Other {
        /// ICMP type.
        kind: u8,
        /// ICMP code.
        code: u8,
    },
}

/// The head of a TCP segment quoted by an ICMP error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InnerTcp {
    /// Source of the quoted segment: the one the error goes to.
    pub src: IpAddr,
    /// Destination of the quoted segment.
    pub dst: IpAddr,
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Sequence number.
    pub seq: SeqNum,
    /// Length of the quoted packet by its own IP header, bytes.
    pub total_len: u32,
    /// XCP's header stands before it.
    pub has_shim: bool,
    /// A later fragment was quoted, and only its identification told which segment it is of. That
    /// is easier to guess than ports and a sequence number.
    pub is_by_identification: bool,
}

/// Read an ICMP error behind `ip`; `None` for queries, echoes, neighbour discovery and what is cut
/// short.
pub(crate) fn parse_error(packet: &[u8], ip: IpInfo, shims: ShimProtocols) -> Option<IcmpError> {
    let at = usize::from(ip.header_len);
    let message = packet.get(at..usize::try_from(ip.total_len).ok()?)?;
    let (kind, code) = (u8_at(message, 0)?, u8_at(message, 1)?);
    let quote = message.get(ERROR_HEADER_BYTES..)?;
    let kind = if ip.is_v4() {
        match (kind, code) {
            (3, 4) => IcmpKind::FragmentationNeeded { mtu: u32::from(u16_at(message, 6)?) },
            (3, code) => IcmpKind::Unreachable { code },
            (11, _) => IcmpKind::TimeExceeded,
            // Source quench, redirect, parameter problem.
            (4 | 5 | 12, _) => IcmpKind::Other { kind, code },
            _ => return None,
        }
    } else {
        match (kind, code) {
            (1, code) => IcmpKind::Unreachable { code },
            (2, _) => IcmpKind::PacketTooBig { mtu: u32_at(message, 4)? },
            (3, _) => IcmpKind::TimeExceeded,
            // Types below 128 are errors (RFC 4443 section 2.1).
            (0..128, _) => IcmpKind::Other { kind, code },
            _ => return None,
        }
    };
    let inner = parse_quote(quote, shims).filter(|q| q.src.is_ipv4() == ip.is_v4());
    Some(IcmpError { ip, kind, quote_offset: at.saturating_add(ERROR_HEADER_BYTES), inner })
}

/// The segment that a quoted beginning of a packet belongs to.
fn parse_quote(quote: &[u8], shims: ShimProtocols) -> Option<InnerTcp> {
    let (ip, protocol) = match ip::parse_ip(quote, Extent::Quoted)? {
        Upper::Whole { ip, protocol } | Upper::Fragment(FragmentInfo { ip, protocol, offset: 0, .. }) => {
            (ip, protocol)
        }
        Upper::Fragment(_) => return None,
    };
    let upper = quote.get(usize::from(ip.header_len)..)?;
    let (tcp, has_shim) = match protocol {
        PROTOCOL_TCP => (upper, false),
        // Routers quote all of it nowadays (RFC 1812 section 4.3.2.3).
        _ if ip.is_v4() && shims.has(protocol) && matches!(Shim::read(upper), Some((PROTOCOL_TCP, _))) => {
            (upper.get(SHIM_BYTES..)?, true)
        }
        _ => return None,
    };
    Some(InnerTcp {
        src: ip.src,
        dst: ip.dst,
        src_port: u16_at(tcp, 0)?,
        dst_port: u16_at(tcp, 2)?,
        seq: SeqNum(u32_at(tcp, 4)?),
        total_len: ip.total_len,
        has_shim,
        is_by_identification: false,
    })
}

/// The later fragment that an error quotes: it has no TCP header, so only addresses and
/// identification tell what it is about.
#[must_use]
pub fn quoted_fragment(packet: &[u8], error: &IcmpError) -> Option<FragmentInfo> {
    match ip::parse_ip(packet.get(error.quote_offset..)?, Extent::Quoted)? {
        Upper::Fragment(info) if info.offset > 0 && info.ip.is_v4() == error.ip.is_v4() => Some(info),
        _ => None,
    }
}

/// Whether the checksum of an ICMP error is right.
#[must_use]
pub fn verify_checksum(packet: &[u8], error: &IcmpError) -> bool {
    let end = usize::try_from(error.ip.total_len).unwrap_or(usize::MAX);
    packet.get(usize::from(error.ip.header_len)..end).is_some_and(|message| {
        let pseudo = if error.ip.is_v4() {
            0
        } else {
            let len = u32::try_from(message.len()).unwrap_or(u32::MAX);
            checksum::pseudo_header(error.ip.src, error.ip.dst, PROTOCOL_ICMPV6, len)
        };
        checksum::add(pseudo, checksum::sum(message)) == 0xffff
    })
}

/// Why a gateway cannot or must not send an error about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoError {
    /// Not IP, or not of the family of the address to send from.
    #[error("not an IP packet of the sender's address family")]
    NotIp,
    /// An ICMP error, a later fragment of IPv4, or a packet from or to an address that is not one
    /// host's (RFC 1122 3.2.2). IPv6 tells of later fragments, too (RFC 4443 section 2.4 e).
    #[error("a packet that no ICMP error may be sent about")]
    NotAllowed,
}

/// Write into `out` the error that says that `original` is administratively prohibited (RFC 1812
/// section 5.2.7.1: 3/13; RFC 4443 section 3.1: 1/1), from `src` to the sender of `original`.
///
/// # Errors
/// `out` is empty then.
pub fn build_admin_prohibited(original: &[u8], src: IpAddr, out: &mut Vec<u8>) -> Result<(), NoError> {
    let (kind, code) = if src.is_ipv4() { (3, 13) } else { (1, 1) };
    build_error(original, src, [kind, code, 0, 0, 0, 0, 0, 0], out)
}

/// Write into `out` the error that says that `original` does not fit the next hop's MTU, in bytes
/// (RFC 1191 section 4: 3/4; RFC 4443 section 3.2: 2/0).
///
/// # Errors
/// `out` is empty then.
pub fn build_packet_too_big(
    original: &[u8],
    src: IpAddr,
    mtu: u32,
    out: &mut Vec<u8>,
) -> Result<(), NoError> {
    let (kind, code) = if src.is_ipv4() { (3, 4) } else { (2, 0) };
    let mtu = if src.is_ipv4() { mtu.min(u32::from(u16::MAX)) } else { mtu };
    let [a, b, c, d] = mtu.to_be_bytes();
    build_error(original, src, [kind, code, 0, 0, a, b, c, d], out)
}

fn build_error(original: &[u8], src: IpAddr, head: [u8; 8], out: &mut Vec<u8>) -> Result<(), NoError> {
    out.clear();
    let upper = ip::parse_ip(original, Extent::Whole).ok_or(NoError::NotIp)?;
    let (inner, protocol, offset) = match upper {
        Upper::Whole { ip, protocol } => (ip, protocol, 0),
        Upper::Fragment(FragmentInfo { ip, protocol, offset, .. }) => (ip, protocol, offset),
    };
    if inner.is_v4() != src.is_ipv4() {
        return Err(NoError::NotIp);
    }
    let at = usize::from(inner.header_len);
    let is_error = match protocol {
        PROTOCOL_ICMP if inner.is_v4() => u8_at(original, at).is_none_or(|t| matches!(t, 3..=5 | 11 | 12)),
        PROTOCOL_ICMPV6 if !inner.is_v4() => u8_at(original, at).is_none_or(|t| t < 128),
        _ => false,
    };
    let is_later = offset != 0 && inner.is_v4();
    if is_error || is_later || !is_one_host(inner.src) || !is_one_host(inner.dst) {
        return Err(NoError::NotAllowed);
    }
    let total = original.len().min(usize::try_from(inner.total_len).unwrap_or(usize::MAX));
    let original = original.get(..total).unwrap_or_default();
    match (src, inner.src) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let quote = original.get(..V4_ERROR_BYTES_MAX - 28).unwrap_or(original);
            let len = u16::try_from(quote.len().saturating_add(28)).unwrap_or(u16::MAX);
            // Precedence 6, internetwork control (RFC 1812 section 4.3.2.5); atomic, so the
            // identification is free.
            out.extend_from_slice(&[0x45, 0xc0]);
            out.extend_from_slice(&len.to_be_bytes());
            out.extend_from_slice(&[0, 0, 0x40, 0, ERROR_TTL, PROTOCOL_ICMP, 0, 0]);
            out.extend_from_slice(&src.octets());
            out.extend_from_slice(&dst.octets());
            let check = !checksum::sum(out);
            put_u16(out, 10, check);
            out.extend_from_slice(&head);
            out.extend_from_slice(quote);
            let check = !checksum::sum(out.get(20..).unwrap_or_default());
            put_u16(out, 22, check);
        }
        (IpAddr::V6(v6_src), IpAddr::V6(dst)) => {
            let quote = original.get(..V6_ERROR_BYTES_MAX - 48).unwrap_or(original);
            let len = quote.len().saturating_add(8);
            out.extend_from_slice(&[0x60, 0, 0, 0]);
            out.extend_from_slice(&u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes());
            out.extend_from_slice(&[PROTOCOL_ICMPV6, ERROR_TTL]);
            out.extend_from_slice(&v6_src.octets());
            out.extend_from_slice(&dst.octets());
            out.extend_from_slice(&head);
            out.extend_from_slice(quote);
            let len = u32::try_from(len).unwrap_or(u32::MAX);
            let pseudo = checksum::pseudo_header(src, inner.src, PROTOCOL_ICMPV6, len);
            let check = !checksum::add(pseudo, checksum::sum(out.get(40..).unwrap_or_default()));
            put_u16(out, 42, check);
        }
        _ => return Err(NoError::NotIp),
    }
    Ok(())
}

/// An address that can be one host's.
fn is_one_host(a: IpAddr) -> bool {
    let is_odd_v4 = matches!(a, IpAddr::V4(a) if a.octets().first().is_some_and(|o| *o == 0 || *o >= 240));
    !(a.is_unspecified() || a.is_multicast() || a.is_loopback() || is_odd_v4)
}
