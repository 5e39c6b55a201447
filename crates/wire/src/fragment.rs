//! Cut a packet into IP fragments (RFC 791 section 3.2, RFC 8200 section 4.5).

use crate::bytes::{pad4, put, u8_at};
use crate::edit::{write_ipv4_fragment, write_total_len};
use crate::ip::{
    Extent, FragmentInfo, IPV4_HEADER_BYTES, IPV6_FRAGMENT_HEADER_BYTES, IpInfo, UnfragmentablePart, Upper,
    parse_ip, unfragmentable_part,
};
use arrayvec::ArrayVec;

/// A packet that cannot be fragmented.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FragmentError {
    /// The MTU has no room for the headers and eight bytes.
    #[error("no fragment fits an MTU of {0} bytes")]
    MtuTooSmall(usize),
    /// Not IP, broken, an IPv6 fragment already, or longer than 65,535 bytes.
    #[error("not a packet that can be fragmented")]
    NotFragmentable,
}

/// Give `f` the fragments of `packet`, in order, each at most `mtu` bytes; a packet that fits comes
/// out as it is. Its checksums must be complete. IPv4 keeps its identification (and its DF bit:
/// whether to respect that is the caller's to decide); IPv6 fragments get `ident`.
///
/// Returns how many there were. One scratch buffer is allocated per call.
///
/// # Errors
/// Nothing has been given to `f` then.
pub fn fragment(
    packet: &[u8],
    mtu: usize,
    ident: u32,
    f: &mut dyn FnMut(&[u8]),
) -> Result<usize, FragmentError> {
    let upper = parse_ip(packet, Extent::Whole).ok_or(FragmentError::NotFragmentable)?;
    let (ip, base, more) = match &upper {
        Upper::Whole { ip, .. } => (ip, 0, false),
        Upper::Fragment(FragmentInfo { ip, offset, more, .. }) => (ip, *offset, *more),
    };
    let total = usize::try_from(ip.total_len).unwrap_or(usize::MAX);
    let packet = packet.get(..total).ok_or(FragmentError::NotFragmentable)?;
    if total <= mtu {
        f(packet);
        return Ok(1);
    }
    if ip.is_v4() {
        let base = usize::try_from(base).unwrap_or(usize::MAX);
        fragment_v4(packet, ip, base, more, mtu, f)
    } else {
        fragment_v6(packet, mtu, ident, f)
    }
}

/// Payload bytes that fit behind `header` in `mtu`: a positive multiple of eight.
fn room(mtu: usize, header: usize) -> Result<usize, FragmentError> {
    match mtu.saturating_sub(header) & !7 {
        0 => Err(FragmentError::MtuTooSmall(mtu)),
        n => Ok(n),
    }
}

fn fragment_v4(
    packet: &[u8],
    ip: &IpInfo,
    base: usize,
    more: bool,
    mtu: usize,
    f: &mut dyn FnMut(&[u8]),
) -> Result<usize, FragmentError> {
    let (header, payload) =
        packet.split_at_checked(usize::from(ip.header_len)).ok_or(FragmentError::NotFragmentable)?;
    if packet.len() > usize::from(u16::MAX) {
        return Err(FragmentError::NotFragmentable);
    }
    let later = later_header(header);
    let (first_room, later_room) = (room(mtu, header.len())?, room(mtu, later.len())?);
    let mut out = Vec::with_capacity(mtu);
    let (mut offset, mut count) = (0usize, 0usize);
    while offset < payload.len() {
        let (header, room) = if offset == 0 { (header, first_room) } else { (&later[..], later_room) };
        let end = offset.saturating_add(room).min(payload.len());
        out.clear();
        out.extend_from_slice(header);
        out.extend_from_slice(payload.get(offset..end).unwrap_or_default());
        let units = u16::try_from(base.saturating_add(offset) / 8).unwrap_or(0);
        let total = out.len();
        write_total_len(&mut out, total);
        write_ipv4_fragment(&mut out, ip.id, more || end < payload.len(), units);
        f(&out);
        offset = end;
        count = count.saturating_add(1);
    }
    Ok(count)
}

/// The header of all fragments but the first: only the options with the copied flag (RFC 791
/// section 3.1).
fn later_header(header: &[u8]) -> ArrayVec<u8, 60> {
    const COPIED: u8 = 0x80;
    let mut out = ArrayVec::<u8, 60>::new();
    let fixed = header.get(..IPV4_HEADER_BYTES).unwrap_or_default();
    let mut fits = out.try_extend_from_slice(fixed).is_ok();
    let mut at = IPV4_HEADER_BYTES;
    while let Some(kind) = u8_at(header, at) {
        let len = match kind {
            0 => break,
            1 => 1,
            _ => usize::from(u8_at(header, at.saturating_add(1)).unwrap_or(0)),
        };
        let Some(option) = header.get(at..at.saturating_add(len)) else { break };
        if option.is_empty() {
            break;
        }
        if kind & COPIED != 0 {
            fits &= out.try_extend_from_slice(option).is_ok();
        }
        at = at.saturating_add(len);
    }
    while out.len() < pad4(out.len()) {
        fits &= out.try_push(0).is_ok();
    }
    debug_assert!(fits, "a part of 60 bytes is at most 60");
    let quads = 0x40 | u8::try_from(out.len() / 4).unwrap_or(5);
    put(&mut out, 0, &[quads]);
    // The options changed: the check is computed anew over what was right before.
    let was_right = crate::checksum::sum(header) == 0xffff;
    put(&mut out, 10, &[0, 0]);
    let check = crate::checksum::sum(&out);
    put(&mut out, 10, &(if was_right { !check } else { check }).to_be_bytes());
    out
}

fn fragment_v6(
    packet: &[u8],
    mtu: usize,
    ident: u32,
    f: &mut dyn FnMut(&[u8]),
) -> Result<usize, FragmentError> {
    let UnfragmentablePart { len, next_header_at, has_fragment_header } =
        unfragmentable_part(packet).ok_or(FragmentError::NotFragmentable)?;
    let (part, payload) = packet.split_at_checked(len).ok_or(FragmentError::NotFragmentable)?;
    if has_fragment_header || payload.len() > usize::from(u16::MAX) {
        return Err(FragmentError::NotFragmentable);
    }
    let next = u8_at(part, next_header_at).ok_or(FragmentError::NotFragmentable)?;
    let header_len = len.saturating_add(IPV6_FRAGMENT_HEADER_BYTES);
    let room = room(mtu, header_len)?;
    let mut out = Vec::with_capacity(mtu);
    let mut count = 0usize;
    let chunks = payload.chunks(room);
    let last = chunks.len().saturating_sub(1);
    for (n, chunk) in chunks.enumerate() {
        let offset = u16::try_from(n.saturating_mul(room)).unwrap_or(0);
        out.clear();
        out.extend_from_slice(part);
        put(&mut out, next_header_at, &[crate::ip::EXT_FRAGMENT]);
        out.extend_from_slice(&[next, 0]);
        out.extend_from_slice(&(offset | u16::from(n != last)).to_be_bytes());
        out.extend_from_slice(&ident.to_be_bytes());
        out.extend_from_slice(chunk);
        let total = out.len();
        write_total_len(&mut out, total);
        f(&out);
        count = count.saturating_add(1);
    }
    Ok(count)
}
