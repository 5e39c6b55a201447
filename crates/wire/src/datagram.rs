//! UDP super-segments: many datagrams of the same size between the same ports, which a network card
//! makes into packets (UDP_SEGMENT, Linux `__udp_gso_segment`). QUIC is sent so.

use core::net::IpAddr;

use crate::build::finish_checksums;
use crate::bytes::{put_u16, u8_at, u16_at};
use crate::checksum;
use crate::edit::{write_ipv4_fragment, write_total_len};
use crate::ip::{self, Extent, PROTOCOL_UDP, Upper};
use crate::offload::{ChecksumState, Offload};

const UDP_HEADER_BYTES: usize = 8;
/// Where the checksum stands in it.
const UDP_CHECKSUM_OFFSET: usize = 6;
/// Where its length stands in it.
const UDP_LENGTH_OFFSET: usize = 4;

/// Where the UDP header of a whole datagram stands; `None`: it is something else.
fn udp_at(packet: &[u8]) -> Option<usize> {
    let Upper::Whole { ip, protocol: PROTOCOL_UDP } = ip::parse_ip(packet, Extent::Whole)? else {
        return None;
    };
    let at = usize::from(ip.header_len);
    (packet.len() >= at.checked_add(UDP_HEADER_BYTES)?).then_some(at)
}

/// Bytes of IP and UDP header of a whole datagram.
pub(crate) fn header_bytes(packet: &[u8]) -> Option<usize> {
    udp_at(packet)?.checked_add(UDP_HEADER_BYTES)
}

/// As [`crate::supersegment::cut`], of a UDP super-segment. `false`: it is none, and nothing was
/// given.
pub(crate) fn cut(
    packet: &[u8],
    offload: &Offload,
    packets: usize,
    f: &mut dyn FnMut(&[u8], &Offload),
) -> bool {
    let Some((at, (src, dst))) = udp_at(packet).zip(ip::addresses(packet)) else { return false };
    let Some((header, payload)) = packet.split_at_checked(at.saturating_add(UDP_HEADER_BYTES)) else {
        return false;
    };
    let size = usize::from(offload.gso_size).saturating_mul(packets.max(1));
    if payload.len() <= size || size == 0 {
        return false;
    }
    // In IPv4 a datagram may have none.
    let has_checksum =
        offload.is_partial() || u16_at(header, at.saturating_add(UDP_CHECKSUM_OFFSET)) != Some(0);
    let mut out = Vec::with_capacity(header.len().saturating_add(size));
    for (n, chunk) in payload.chunks(size).enumerate() {
        out.clear();
        out.extend_from_slice(header);
        out.extend_from_slice(chunk);
        let first = n.saturating_mul(packets.max(1));
        let is_super = chunk.len() > usize::from(offload.gso_size);
        write_header(&mut out, at, first, has_checksum.then_some((src, dst)));
        let checksum = if has_checksum { partial(at) } else { offload.checksum };
        let rest = Offload { checksum, ..*offload };
        if !is_super && has_checksum {
            finish_checksums(&mut out, &rest);
        }
        f(&out, &if is_super { rest } else { Offload::default() });
    }
    true
}

fn partial(at: usize) -> ChecksumState {
    ChecksumState::Partial {
        start: u16::try_from(at).unwrap_or(u16::MAX),
        offset: UDP_CHECKSUM_OFFSET as u16,
    }
}

/// The copied header becomes that of the `first` datagram and those behind it; of the checksum the
/// sum of the pseudo header.
fn write_header(out: &mut [u8], at: usize, first: usize, ends: Option<(IpAddr, IpAddr)>) {
    let total = out.len();
    write_total_len(out, total);
    if u8_at(out, 0).is_some_and(|b| b >> 4 == 4) {
        let id = u16_at(out, 4).unwrap_or(0).wrapping_add(first as u16);
        write_ipv4_fragment(out, id, false, 0);
    }
    let len = total.saturating_sub(at);
    put_u16(out, at.saturating_add(UDP_LENGTH_OFFSET), u16::try_from(len).unwrap_or(0));
    if let Some((src, dst)) = ends {
        let pseudo = checksum::pseudo_header(src, dst, PROTOCOL_UDP, u32::try_from(len).unwrap_or(u32::MAX));
        put_u16(out, at.saturating_add(UDP_CHECKSUM_OFFSET), pseudo);
    }
}
