//! IPv4 and IPv6 headers, and the one function that says what a packet is.

use crate::bytes::{array_at, u8_at, u16_at, u32_at};
use crate::icmp::{self, IcmpError};
use crate::shim::{Shim, ShimProtocols};
use crate::tcp::{self, TcpSegment};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// IP protocol number of ICMP.
pub const PROTOCOL_ICMP: u8 = 1;
/// IP protocol number of TCP.
pub const PROTOCOL_TCP: u8 = 6;
/// UDP (RFC 768).
pub const PROTOCOL_UDP: u8 = 17;
/// IP protocol number of ICMPv6.
pub const PROTOCOL_ICMPV6: u8 = 58;

pub(crate) const EXT_HOP_BY_HOP: u8 = 0;
pub(crate) const EXT_ROUTING: u8 = 43;
pub(crate) const EXT_FRAGMENT: u8 = 44;
pub(crate) const EXT_DESTINATION: u8 = 60;

/// IPv6 extension headers walked before a packet counts as odd. RFC 8504 section 5.3 lets a host
/// set such a limit; no ordinary packet has more than four.
pub const EXTENSION_HEADERS_MAX: usize = 8;

/// Bytes of an IPv4 header without options.
pub const IPV4_HEADER_BYTES: usize = 20;
/// Bytes of the fixed IPv6 header.
pub const IPV6_HEADER_BYTES: usize = 40;
/// Bytes of the IPv6 fragment header.
pub const IPV6_FRAGMENT_HEADER_BYTES: usize = 8;

pub(crate) const MORE_FRAGMENTS: u16 = 0x2000;
pub(crate) const DONT_FRAGMENT: u16 = 0x4000;
pub(crate) const OFFSET_MASK: u16 = 0x1fff;

/// Source and destination of a packet, whatever it carries; `None` when it is too short to have
/// any.
#[must_use]
pub fn addresses(packet: &[u8]) -> Option<(IpAddr, IpAddr)> {
    match u8_at(packet, 0)? >> 4 {
        4 => Some((
            IpAddr::V4(Ipv4Addr::from(array_at::<4>(packet, 12)?)),
            IpAddr::V4(Ipv4Addr::from(array_at::<4>(packet, 16)?)),
        )),
        6 => Some((
            IpAddr::V6(Ipv6Addr::from(array_at::<16>(packet, 8)?)),
            IpAddr::V6(Ipv6Addr::from(array_at::<16>(packet, 24)?)),
        )),
        _ => None,
    }
}

/// DSCP and ECN of a packet, whatever it carries; `None` when it is too short to have any.
#[must_use]
pub fn traffic_class(packet: &[u8]) -> Option<u8> {
    let (first, second) = (u8_at(packet, 0)?, u8_at(packet, 1)?);
    match first >> 4 {
        4 => Some(second),
        6 => Some(first << 4 | second >> 4),
        _ => None,
    }
}

/// What a packet is, as far as this crate reads it.
// One value lives at a time, on the stack: boxing the large case would be the only allocation per
// packet.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// A whole TCP segment (or super-segment).
    Tcp(TcpSegment),
    /// An ICMP or ICMPv6 error message.
    Icmp(IcmpError),
    /// A fragment of a packet of any protocol.
    Fragment(FragmentInfo),
    /// Everything else: other protocols, and whatever is truncated, contradictory or unknown.
    Other,
}

/// The ECN field (RFC 3168 section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ecn {
    /// Not ECN-capable.
    NotEct,
    /// ECN-capable, ECT(1): L4S by RFC 9331.
    Ect1,
    /// ECN-capable, ECT(0).
    Ect0,
    /// Congestion experienced.
    Ce,
}

impl Ecn {
    /// From the low two bits of a traffic class.
    #[must_use]
    pub const fn from_traffic_class(traffic_class: u8) -> Self {
        match traffic_class & 3 {
            0 => Self::NotEct,
            1 => Self::Ect1,
            2 => Self::Ect0,
            _ => Self::Ce,
        }
    }

    /// The two bits.
    #[must_use]
    pub const fn bits(self) -> u8 {
        match self {
            Self::NotEct => 0,
            Self::Ect1 => 1,
            Self::Ect0 => 2,
            Self::Ce => 3,
        }
    }
}

/// The IP header of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpInfo {
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// Time to live, or hop limit.
    pub ttl: u8,
    /// DSCP shifted left by two, and ECN.
    pub traffic_class: u8,
    /// IPv6 flow label; 0 for IPv4.
    pub flow_label: u32,
    /// IPv4 identification; 0 for IPv6.
    pub id: u16,
    /// The DF bit; always set for IPv6, which routers do not fragment.
    pub dont_fragment: bool,
    /// Bytes from the packet's start to the upper layer's header, options and extension headers
    /// included.
    pub header_len: u16,
    /// Bytes of the packet by its own word; what stands behind them in the buffer is padding.
    pub total_len: u32,
    /// IPv4 options or IPv6 extension headers are there.
    pub has_options: bool,
}

impl IpInfo {
    /// IPv4, not IPv6.
    #[must_use]
    pub const fn is_v4(&self) -> bool {
        self.src.is_ipv4()
    }

    /// The DSCP.
    #[must_use]
    pub const fn dscp(&self) -> u8 {
        self.traffic_class >> 2
    }

    /// The ECN field.
    #[must_use]
    pub const fn ecn(&self) -> Ecn {
        Ecn::from_traffic_class(self.traffic_class)
    }
}

/// A fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentInfo {
    /// Its IP header. `header_len` includes the IPv6 fragment header.
    pub ip: IpInfo,
    /// Identification, 16 bits in IPv4, 32 in IPv6.
    pub id: u32,
    /// Protocol of the whole packet (IPv6: the next header of the fragment header, which may be
    /// another extension).
    pub protocol: u8,
    /// Where its payload stands in the whole packet's, in bytes.
    pub offset: u32,
    /// Payload from the packet's start, in bytes.
    pub payload_offset: usize,
    /// Payload bytes.
    pub payload_len: usize,
    /// More fragments follow.
    pub more: bool,
}

impl FragmentInfo {
    /// Where the payload ends in the whole packet's, in bytes.
    #[must_use]
    pub fn end(&self) -> u32 {
        self.offset.saturating_add(u32::try_from(self.payload_len).unwrap_or(u32::MAX))
    }
}

/// What stands behind the IP header(s).
pub(crate) enum Upper {
    /// A whole upper-layer packet of this protocol.
    Whole { ip: IpInfo, protocol: u8 },
    /// A fragment.
    Fragment(FragmentInfo),
}

/// Say what a packet is. A total function: anything odd, truncated, contradictory or unknown is
/// [`Parsed::Other`].
#[must_use]
pub fn parse(packet: &[u8]) -> Parsed {
    parse_with(packet, ShimProtocols::NONE)
}

/// The same, where these protocols of IPv4 stand for XCP's header, and TCP may stand behind it.
#[must_use]
pub fn parse_with(packet: &[u8], shims: ShimProtocols) -> Parsed {
    match parse_ip(packet, Extent::Whole) {
        Some(Upper::Fragment(info)) => Parsed::Fragment(info),
        Some(Upper::Whole { ip, protocol: PROTOCOL_TCP }) => {
            tcp::parse_segment(packet, ip, None).map_or(Parsed::Other, Parsed::Tcp)
        }
        Some(Upper::Whole { ip, protocol }) if ip.is_v4() && shims.has(protocol) => {
            behind_shim(packet, ip).map_or(Parsed::Other, Parsed::Tcp)
        }
        Some(Upper::Whole { ip, protocol }) => {
            let icmp = if ip.is_v4() { PROTOCOL_ICMP } else { PROTOCOL_ICMPV6 };
            if protocol == icmp {
                icmp::parse_error(packet, ip, shims).map_or(Parsed::Other, Parsed::Icmp)
            } else {
                Parsed::Other
            }
        }
        None => Parsed::Other,
    }
}

/// The segment behind XCP's header.
fn behind_shim(packet: &[u8], ip: IpInfo) -> Option<TcpSegment> {
    match Shim::read(packet.get(usize::from(ip.header_len)..usize::try_from(ip.total_len).ok()?)?)? {
        (PROTOCOL_TCP, shim) => tcp::parse_segment(packet, ip, Some(shim)),
        _ => None,
    }
}

/// Whether a packet must be there as far as it says.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// All of it.
    Whole,
    /// Only its beginning, as quoted by an ICMP error.
    Quoted,
}

/// Read the IP header(s).
pub(crate) fn parse_ip(packet: &[u8], extent: Extent) -> Option<Upper> {
    match u8_at(packet, 0)? >> 4 {
        4 => parse_v4(packet, extent),
        6 => parse_v6(packet, extent),
        _ => None,
    }
}

/// The length a packet has by the field `said`: `None` where that contradicts the buffer. A field
/// of 0 in a buffer that no 16-bit length could name is the kernel's mark of an oversized
/// super-segment (BIG TCP).
fn total_len(said: usize, header: usize, packet: &[u8], extent: Extent) -> Option<usize> {
    if said == header && packet.len() > usize::from(u16::MAX) + header {
        return Some(packet.len());
    }
    if extent == Extent::Whole && said > packet.len() { None } else { Some(said) }
}

fn parse_v4(packet: &[u8], extent: Extent) -> Option<Upper> {
    let header_len = usize::from(u8_at(packet, 0)? & 0x0f) * 4;
    if header_len < IPV4_HEADER_BYTES || header_len > packet.len() {
        return None;
    }
    let said = usize::from(u16_at(packet, 2)?);
    let total = total_len(said, 0, packet, extent)?;
    if total < header_len {
        return None;
    }
    let id = u16_at(packet, 4)?;
    let frag = u16_at(packet, 6)?;
    let protocol = u8_at(packet, 9)?;
    let ip = IpInfo {
        src: IpAddr::V4(Ipv4Addr::from(array_at::<4>(packet, 12)?)),
        dst: IpAddr::V4(Ipv4Addr::from(array_at::<4>(packet, 16)?)),
        ttl: u8_at(packet, 8)?,
        traffic_class: u8_at(packet, 1)?,
        flow_label: 0,
        id,
        dont_fragment: frag & DONT_FRAGMENT != 0,
        header_len: u16::try_from(header_len).ok()?,
        total_len: u32::try_from(total).ok()?,
        has_options: header_len > IPV4_HEADER_BYTES,
    };
    if frag & (MORE_FRAGMENTS | OFFSET_MASK) == 0 {
        return Some(Upper::Whole { ip, protocol });
    }
    let info = FragmentInfo {
        ip,
        id: u32::from(id),
        protocol,
        offset: u32::from(frag & OFFSET_MASK) * 8,
        payload_offset: header_len,
        payload_len: total.saturating_sub(header_len),
        more: frag & MORE_FRAGMENTS != 0,
    };
    check_fragment(info)
}

/// A fragment that can be part of a packet: it has payload, in eights unless it is the last, and
/// ends within 65,535.
fn check_fragment(info: FragmentInfo) -> Option<Upper> {
    let sound = info.payload_len > 0
        && (!info.more || info.payload_len.is_multiple_of(8))
        && info.end() <= u32::from(u16::MAX);
    sound.then_some(Upper::Fragment(info))
}

fn parse_v6(packet: &[u8], extent: Extent) -> Option<Upper> {
    let first = u32_at(packet, 0)?;
    let said = usize::from(u16_at(packet, 4)?).saturating_add(IPV6_HEADER_BYTES);
    let src = IpAddr::V6(Ipv6Addr::from(array_at::<16>(packet, 8)?));
    let dst = IpAddr::V6(Ipv6Addr::from(array_at::<16>(packet, 24)?));
    let total = match jumbo_len_at(packet).and_then(|at| u32_at(packet, at)) {
        // RFC 2675 section 3: a jumbo length is above 65,535 and comes with a length field of 0.
        Some(jumbo) => {
            let total = usize::try_from(jumbo).ok()?.checked_add(IPV6_HEADER_BYTES)?;
            if jumbo <= u32::from(u16::MAX) || (extent == Extent::Whole && total > packet.len()) {
                return None;
            }
            total
        }
        None => total_len(said, IPV6_HEADER_BYTES, packet, extent)?,
    };
    let mut ip = IpInfo {
        src,
        dst,
        ttl: u8_at(packet, 7)?,
        traffic_class: (first >> 20) as u8,
        flow_label: first & 0x000f_ffff,
        id: 0,
        dont_fragment: true,
        header_len: 0,
        total_len: u32::try_from(total).ok()?,
        has_options: false,
    };
    let mut next = u8_at(packet, 6)?;
    let mut at = IPV6_HEADER_BYTES;
    for n in 0..=EXTENSION_HEADERS_MAX {
        if at > total {
            return None;
        }
        ip.header_len = u16::try_from(at).ok()?;
        ip.has_options = n > 0;
        let length = match next {
            // Only as the first (RFC 8200 section 4.1).
            EXT_HOP_BY_HOP if n > 0 => return None,
            EXT_HOP_BY_HOP | EXT_DESTINATION => extension_len(packet, at)?,
            EXT_ROUTING => {
                // With segments left the address in the header is not where the packet ends, so
                // neither the flow nor the checksum can be told from it.
                if u8_at(packet, at.saturating_add(3))? != 0 {
                    return None;
                }
                extension_len(packet, at)?
            }
            EXT_FRAGMENT => {
                // Offset 0 and no more: an atomic fragment (RFC 6946), a whole packet.
                if u16_at(packet, at.saturating_add(2))? & 0xfff9 != 0 {
                    return v6_fragment(packet, ip, at, total);
                }
                IPV6_FRAGMENT_HEADER_BYTES
            }
            protocol => return Some(Upper::Whole { ip, protocol }),
        };
        next = u8_at(packet, at)?;
        at = at.saturating_add(length);
    }
    None
}

/// The fragment whose header stands at `at`, in a packet of `total` bytes.
fn v6_fragment(packet: &[u8], ip: IpInfo, at: usize, total: usize) -> Option<Upper> {
    let word = u16_at(packet, at.saturating_add(2))?;
    let payload_offset = at.saturating_add(IPV6_FRAGMENT_HEADER_BYTES);
    check_fragment(FragmentInfo {
        ip: IpInfo { header_len: u16::try_from(payload_offset).ok()?, has_options: true, ..ip },
        id: u32_at(packet, at.saturating_add(4))?,
        protocol: u8_at(packet, at)?,
        offset: u32::from(word & 0xfff8),
        payload_offset,
        payload_len: total.saturating_sub(payload_offset),
        more: word & 1 != 0,
    })
}

fn extension_len(packet: &[u8], at: usize) -> Option<usize> {
    Some((usize::from(u8_at(packet, at.saturating_add(1))?) + 1) * 8)
}

/// The header behind those of IP, as far as it can be told without any check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UpperLayer {
    /// Its protocol.
    pub protocol: u8,
    /// Where it begins, in bytes from the packet's start. In a fragment after the first it does
    /// not.
    pub at: usize,
    /// The packet is a fragment.
    pub is_fragment: bool,
}

/// Find the header of the upper layer, past the extension headers of IPv6 (RFC 8200 section 4), up
/// to [`EXTENSION_HEADERS_MAX`] of them. Of a fragment it is what the fragment header names. `None`
/// when cut short.
#[must_use]
pub fn upper_layer(packet: &[u8]) -> Option<UpperLayer> {
    if u8_at(packet, 0)? >> 4 == 4 {
        let at = usize::from(u8_at(packet, 0)? & 0x0f) * 4;
        let is_fragment = u16_at(packet, 6)? & 0x3fff != 0;
        return Some(UpperLayer { protocol: u8_at(packet, 9)?, at, is_fragment });
    }
    let (mut protocol, mut at) = (u8_at(packet, 6)?, IPV6_HEADER_BYTES);
    for _ in 0..EXTENSION_HEADERS_MAX {
        let len = match protocol {
            EXT_HOP_BY_HOP | EXT_DESTINATION | EXT_ROUTING => extension_len(packet, at)?,
            EXT_FRAGMENT => {
                let (protocol, at) = (u8_at(packet, at)?, at.saturating_add(IPV6_FRAGMENT_HEADER_BYTES));
                return Some(UpperLayer { protocol, at, is_fragment: true });
            }
            _ => break,
        };
        protocol = u8_at(packet, at)?;
        at = at.saturating_add(len);
    }
    Some(UpperLayer { protocol, at, is_fragment: false })
}

/// Ports of a TCP packet, source and destination; `None`: it is none, or only a part of one.
#[must_use]
pub fn tcp_ports(packet: &[u8]) -> Option<(u16, u16)> {
    let layer = upper_layer(packet).filter(|layer| layer.protocol == PROTOCOL_TCP && !layer.is_fragment)?;
    Some((u16_at(packet, layer.at)?, u16_at(packet, layer.at.saturating_add(2))?))
}

/// The flow label of an IPv6 packet (RFC 6437); `None`: it has none, or is of IPv4.
#[must_use]
pub fn flow_label(packet: &[u8]) -> Option<u32> {
    let label = u32_at(packet, 0).filter(|first| first >> 28 == 6)? & 0x000f_ffff;
    (label != 0).then_some(label)
}

/// Where the 32-bit length of an IPv6 jumbogram stands (RFC 2675 section 2); `None` for any other
/// packet.
pub(crate) fn jumbo_len_at(packet: &[u8]) -> Option<usize> {
    const PAD1: u8 = 0;
    const JUMBO: u8 = 0xc2;
    let is_candidate =
        u8_at(packet, 0)? >> 4 == 6 && u16_at(packet, 4)? == 0 && u8_at(packet, 6)? == EXT_HOP_BY_HOP;
    if !is_candidate {
        return None;
    }
    let end = IPV6_HEADER_BYTES.saturating_add(extension_len(packet, IPV6_HEADER_BYTES)?);
    let mut at = IPV6_HEADER_BYTES.saturating_add(2);
    // Each turn moves on by at least one of at most 2,048 bytes.
    while at < end {
        match u8_at(packet, at)? {
            PAD1 => at = at.saturating_add(1),
            JUMBO if u8_at(packet, at.saturating_add(1))? == 4 => {
                let value = at.saturating_add(2);
                return (value.saturating_add(4) <= end).then_some(value);
            }
            _ => at = at.saturating_add(2).saturating_add(usize::from(u8_at(packet, at.saturating_add(1))?)),
        }
    }
    None
}

/// The headers of an IPv6 packet that every fragment carries (RFC 8200 section 4.5).
pub(crate) struct UnfragmentablePart {
    /// Their length in bytes.
    pub len: usize,
    /// Where the next-header byte stands that names what follows them.
    pub next_header_at: usize,
    /// What follows them is a fragment header.
    pub has_fragment_header: bool,
}

/// Find the part of an IPv6 packet up to its routing header, its hop-by-hop header, or its fixed
/// header, whichever is the last there is; in a packet with a fragment header, the part before
/// that. `None` when cut short.
pub(crate) fn unfragmentable_part(packet: &[u8]) -> Option<UnfragmentablePart> {
    const NEXT_HEADER_AT: usize = 6;
    let mut part = UnfragmentablePart {
        len: IPV6_HEADER_BYTES,
        next_header_at: NEXT_HEADER_AT,
        has_fragment_header: false,
    };
    let (mut at, mut next_at) = (IPV6_HEADER_BYTES, NEXT_HEADER_AT);
    for _ in 0..=EXTENSION_HEADERS_MAX {
        let next = u8_at(packet, next_at)?;
        match next {
            EXT_HOP_BY_HOP | EXT_DESTINATION | EXT_ROUTING => {
                next_at = at;
                at = at.saturating_add(extension_len(packet, at)?);
                if next != EXT_DESTINATION {
                    part.len = at;
                    part.next_header_at = next_at;
                }
            }
            EXT_FRAGMENT => {
                return Some(UnfragmentablePart {
                    len: at,
                    next_header_at: next_at,
                    has_fragment_header: true,
                });
            }
            _ => break,
        }
    }
    Some(part)
}

/// Turn a jumbo length option into padding, for a packet that has become short.
pub(crate) fn clear_jumbo(packet: &mut [u8]) {
    const PADN: u8 = 1;
    if let Some(option) = jumbo_len_at(packet).and_then(|at| at.checked_sub(2)) {
        crate::bytes::put(packet, option, &[PADN, 4, 0, 0, 0, 0]);
    }
}
