//! Change a forwarded packet in place and keep its checksums as right, or as wrong, as they were.
//!
//! A complete TCP checksum is updated from the old and new bytes (RFC 1624), never computed anew,
//! so that damage done elsewhere stays visible. A partial one holds only the pseudo header's sum: a
//! changed field needs no update there, a changed length does.
//!
//! Each function takes the segment as parsed from this very packet. On a packet that it does not
//! belong to nothing is changed, or bytes inside the packet are; never a panic.

use crate::bytes::{pad4, put, put_u16, u8_at, u16_at, u32_at};
use crate::checksum;
use crate::ip::{IPV6_HEADER_BYTES, MORE_FRAGMENTS, OFFSET_MASK, jumbo_len_at};
use crate::offload::{ChecksumState, Gso, Offload};
use crate::options::{
    KIND_END, KIND_MSS, KIND_NOP, KIND_TIMESTAMPS, OPTIONS_BYTES_MAX, OptionWalk, RawOption,
    TIMESTAMPS_PADDED_BYTES, is_marked_in_padding,
};
use crate::packet::PacketBuf;
use crate::seq::SeqNum;
use crate::tcp::{Flags, TCP_CHECKSUM_OFFSET, TCP_HEADER_BYTES, TcpSegment};
use crate::xcp::{FARLINK_XCP, HeaderTime, WORDS_AT, XcpFields};
use arrayvec::ArrayVec;

/// No room for an option: in the TCP header (40 bytes), in the IP length field, or in the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no room for a TCP option of {0} bytes")]
pub struct NoRoom(pub usize);

/// Set the sequence number.
pub fn set_seq(p: &mut PacketBuf, s: &TcpSegment, seq: SeqNum) {
    patch(p, s, 4, &seq.0.to_be_bytes());
}

/// Set the acknowledgement number.
pub fn set_ack(p: &mut PacketBuf, s: &TcpSegment, ack: SeqNum) {
    patch(p, s, 8, &ack.0.to_be_bytes());
}

/// Set the control bits; data offset and reserved bits stay.
pub fn set_flags(p: &mut PacketBuf, s: &TcpSegment, flags: Flags) {
    if let Some(word) = u16_at(p.bytes(), s.tcp_offset().saturating_add(12)) {
        let word = word & !Flags::MASK | flags.0 & Flags::MASK;
        patch(p, s, 12, &word.to_be_bytes());
    }
}

/// Set the window field.
pub fn set_window(p: &mut PacketBuf, s: &TcpSegment, window: u16) {
    patch(p, s, 14, &window.to_be_bytes());
}

/// Set the urgent pointer.
pub fn set_urgent(p: &mut PacketBuf, s: &TcpSegment, urgent: u16) {
    patch(p, s, 18, &urgent.to_be_bytes());
}

/// Set TSecr, where there is a timestamps option.
pub fn set_timestamp_echo(p: &mut PacketBuf, s: &TcpSegment, ecr: u32) {
    set_in_option(p, s, KIND_TIMESTAMPS, 8, 4, &ecr.to_be_bytes());
}

/// Set TSval, where there is a timestamps option.
pub fn set_timestamp_value(p: &mut PacketBuf, s: &TcpSegment, val: u32) {
    set_in_option(p, s, KIND_TIMESTAMPS, 8, 0, &val.to_be_bytes());
}

/// Set the maximum segment size, where there is that option.
pub fn set_mss(p: &mut PacketBuf, s: &TcpSegment, mss: u16) {
    set_in_option(p, s, KIND_MSS, 2, 0, &mss.to_be_bytes());
}

/// Puts fillers (NOP) in the place of all that is said of XCP, in a packet with a complete
/// checksum.
pub fn blank_xcp(packet: &mut [u8], s: &TcpSegment) {
    let found = options_area(packet, s).into_iter().flat_map(OptionWalk::new);
    let is_xcp = |raw: &RawOption<'_>| raw.exid() == Some(FARLINK_XCP);
    let places: ArrayVec<_, 4> = found.filter(is_xcp).map(|raw| (raw.offset, raw.end)).take(4).collect();
    let Some(tcp) = packet.get_mut(s.tcp_offset()..) else { return };
    for (from, to) in places {
        let fillers = [KIND_NOP; OPTIONS_BYTES_MAX];
        if let Some(fillers) = fillers.get(..to.saturating_sub(from)) {
            patch_covered(tcp, from.saturating_add(TCP_HEADER_BYTES), fillers, Some(TCP_CHECKSUM_OFFSET));
        }
    }
}

/// Set the spacing and the round trip of XCP, and the sum of what came of wishes, where they stand,
/// in a packet with a complete checksum.
pub fn write_xcp_words(packet: &mut [u8], s: &TcpSegment, times: [HeaderTime; 2], sum: u32) {
    let found = options_area(packet, s).into_iter().flat_map(OptionWalk::new);
    let is_xcp = |raw: &RawOption<'_>| raw.exid() == Some(FARLINK_XCP);
    let places: ArrayVec<_, 4> = found
        .filter(is_xcp)
        .map(|raw| (raw.offset.saturating_add(TCP_HEADER_BYTES + WORDS_AT), XcpFields::of(&raw).is_some()))
        .take(4)
        .collect();
    let Some(tcp) = packet.get_mut(s.tcp_offset()..) else { return };
    for (at, has_fields) in places {
        if has_fields {
            let [a, b] = times.map(|time| time.0.to_be_bytes());
            patch_covered(tcp, at, &a, Some(TCP_CHECKSUM_OFFSET));
            patch_covered(tcp, at.saturating_add(4), &b, Some(TCP_CHECKSUM_OFFSET));
        } else if s.options.xcp_sum.is_some() {
            patch_covered(tcp, at, &sum.to_be_bytes(), Some(TCP_CHECKSUM_OFFSET));
        }
    }
}

/// Set the time to live or hop limit.
pub fn set_ttl(p: &mut PacketBuf, s: &TcpSegment, ttl: u8) {
    set_packet_ttl(p.bytes_mut(), s.ip.is_v4(), ttl);
}

/// One more hop to live, 255 at most.
pub fn increment_ttl(p: &mut PacketBuf, s: &TcpSegment) {
    set_ttl(p, s, s.ip.ttl.saturating_add(1));
}

/// One more hop to live, 255 at most, for a packet of any kind.
pub fn increment_packet_ttl(packet: &mut [u8]) {
    change_packet_ttl(packet, |ttl| ttl.saturating_add(1));
}

/// One hop less to live, zero at least, for a packet of any kind.
pub fn decrement_packet_ttl(packet: &mut [u8]) {
    change_packet_ttl(packet, |ttl| ttl.saturating_sub(1));
}

fn change_packet_ttl(packet: &mut [u8], change: fn(u8) -> u8) {
    let (at, v4) = match u8_at(packet, 0).map(|b| b >> 4) {
        Some(4) => (8, true),
        Some(6) => (7, false),
        _ => return,
    };
    if let Some(ttl) = u8_at(packet, at) {
        set_packet_ttl(packet, v4, change(ttl));
    }
}

fn set_packet_ttl(packet: &mut [u8], v4: bool, ttl: u8) {
    if v4 {
        if let Some(protocol) = u8_at(packet, 9) {
            patch_ipv4(packet, 8, &[ttl, protocol]);
        }
    } else {
        put(packet, 7, &[ttl]);
    }
}

/// Set the protocol behind an IPv4 header.
pub(crate) fn write_protocol(packet: &mut [u8], protocol: u8) {
    if let Some(ttl) = u8_at(packet, 8) {
        patch_ipv4(packet, 8, &[ttl, protocol]);
    }
}

/// Set DSCP and ECN.
pub fn set_traffic_class(p: &mut PacketBuf, traffic_class: u8) {
    write_traffic_class(p.bytes_mut(), traffic_class);
}

/// Set DSCP and ECN of a packet of any kind.
pub fn write_traffic_class(packet: &mut [u8], traffic_class: u8) {
    let Some(first) = u16_at(packet, 0) else { return };
    match first >> 12 {
        4 => patch_ipv4(packet, 0, &(first & 0xff00 | u16::from(traffic_class)).to_be_bytes()),
        6 => {
            put_u16(packet, 0, first & 0xf00f | u16::from(traffic_class) << 4);
        }
        _ => {}
    }
}

/// Put `option` (kind, length, body, already complete) into the TCP header, padded with NOPs to
/// four bytes: behind the others, or before them where they end with end-of-list or in a broken
/// length, behind which nobody would read. The IP and TCP headers move into the headroom and `s` is
/// out of date afterwards.
///
/// A super-segment keeps its `gso_size`: the caller sees to it that its segments still fit the MTU.
///
/// # Errors
/// Where there is no room the packet stays as it was.
pub fn insert_option(p: &mut PacketBuf, s: &TcpSegment, option: &[u8]) -> Result<(), NoRoom> {
    let refuse = NoRoom(option.len());
    let grow = pad4(option.len());
    let area = options_area(p.bytes(), s).ok_or(refuse)?;
    let area_len = area.len();
    if grow == 0 || area_len.saturating_add(grow) > OPTIONS_BYTES_MAX {
        return Err(refuse);
    }
    let mut walk = OptionWalk::new(area);
    walk.by_ref().for_each(drop);
    let is_open = !walk.ended() && !walk.malformed();

    let new_total = usize::try_from(s.ip.total_len).ok().and_then(|t| t.checked_add(grow)).ok_or(refuse)?;
    if !can_write_total_len(p.bytes(), new_total) {
        return Err(refuse);
    }
    let options_at = s.tcp_offset().saturating_add(TCP_HEADER_BYTES);
    let at = if is_open { options_at.saturating_add(area_len) } else { options_at };
    let old = tcp_header_sum(p.bytes(), s.tcp_offset());
    if !p.open_gap(at, grow) {
        return Err(refuse);
    }
    let mut padded = [KIND_NOP; OPTIONS_BYTES_MAX];
    put(&mut padded, 0, option);
    put(p.bytes_mut(), at, padded.get(..grow).unwrap_or_default());
    finish_resize(p, s, new_total, area_len.saturating_add(grow), old);
    Ok(())
}

/// Take Farlink's options out (there is one, unless somebody plays tricks): each with its NOPs
/// where it was inserted by [`insert_option`], so that the header is as it was before; else the
/// options behind it move up. `s` is out of date afterwards.
pub fn remove_farlink_option(p: &mut PacketBuf, s: &TcpSegment) {
    let Some(area) = options_area(p.bytes(), s) else { return };
    let area_len = area.len();
    let Some(kept) = without_farlink(area) else { return };
    let shrink = area_len.saturating_sub(kept.len());
    let Some(new_total) = usize::try_from(s.ip.total_len).ok().and_then(|t| t.checked_sub(shrink)) else {
        return;
    };
    if !can_write_total_len(p.bytes(), new_total) {
        return;
    }
    let options_at = s.tcp_offset().saturating_add(TCP_HEADER_BYTES);
    let old = tcp_header_sum(p.bytes(), s.tcp_offset());
    if shrink > 0 && !p.close_gap(options_at, shrink) {
        return;
    }
    put(p.bytes_mut(), options_at, &kept);
    finish_resize(p, s, new_total, kept.len(), old);
}

/// Takes the payload out of a packet that need not carry it: what its sender will repeat. A FIN
/// goes with it, for it stands behind the payload.
pub fn cut_payload(p: &mut PacketBuf, s: &TcpSegment) {
    let at = s.tcp_offset();
    let (total, header_len) = (s.payload_offset, p.offload.header_len);
    let Some(payload) = p.bytes().get(total..total.saturating_add(s.payload_len)) else { return };
    if payload.is_empty() || !can_write_total_len(p.bytes(), total) {
        return;
    }
    let of_payload = checksum::sum(payload);
    set_flags(p, s, s.flags.without(Flags::FIN));
    let old = checksum::add(tcp_header_sum(p.bytes(), at), of_payload);
    let options_len = s.tcp_header_len().saturating_sub(TCP_HEADER_BYTES);
    finish_resize(p, s, total, options_len, old);
    p.truncate(total);
    p.offload = Offload { gso: Gso::None, gso_size: 0, gso_ecn: false, header_len, ..p.offload };
}

/// The options area without Farlink's options, a multiple of four bytes; `None` when there is none
/// of them.
fn without_farlink(area: &[u8]) -> Option<ArrayVec<u8, OPTIONS_BYTES_MAX>> {
    let mut kept = ArrayVec::<u8, OPTIONS_BYTES_MAX>::new();
    let mut from = 0;
    let mut aligned = true;
    for raw in OptionWalk::new(area).filter(RawOption::is_farlink) {
        kept.try_extend_from_slice(area.get(from..raw.offset)?).ok()?;
        let padded_end = pad4(raw.end);
        let padding = area.get(raw.end..padded_end);
        if raw.offset % 4 == 0 && padding.is_some_and(|b| b.iter().all(|b| *b == KIND_NOP)) {
            from = padded_end;
        } else {
            from = raw.end;
            aligned = false;
        }
    }
    if from == 0 && !is_marked_in_padding(area) {
        return None;
    }
    kept.try_extend_from_slice(area.get(from..)?).ok()?;
    if is_marked_in_padding(&kept) {
        // The NOP behind the timestamps goes before them, where hosts put it.
        kept.get_mut(..TIMESTAMPS_PADDED_BYTES)?.rotate_right(1);
    }
    while !aligned && kept.len() % 4 != 0 {
        kept.try_push(KIND_END).ok()?;
    }
    Some(kept)
}

/// After the options area has changed in size: data offset, IP length, TCP checksum, header length
/// hint. `old` is the sum of the TCP header before.
fn finish_resize(p: &mut PacketBuf, s: &TcpSegment, new_total: usize, new_area: usize, old: u16) {
    let at = s.tcp_offset();
    let old_total = usize::try_from(s.ip.total_len).unwrap_or(usize::MAX);
    let header_len = TCP_HEADER_BYTES.saturating_add(new_area);
    if let Some(word) = u16_at(p.bytes(), at.saturating_add(12)) {
        let quads = u16::try_from(header_len / 4).unwrap_or(15);
        put_u16(p.bytes_mut(), at.saturating_add(12), word & 0x0fff | quads << 12);
    }
    write_total_len(p.bytes_mut(), new_total);

    let len_sum =
        |total: usize| checksum::sum_u32(u32::try_from(total.saturating_sub(at)).unwrap_or(u32::MAX));
    let (old_len, new_len) = (len_sum(old_total), len_sum(new_total));
    let new = tcp_header_sum(p.bytes(), at);
    let check_at = at.saturating_add(TCP_CHECKSUM_OFFSET);
    if let Some(check) = u16_at(p.bytes(), check_at) {
        let check = if p.offload.is_partial() {
            checksum::add(checksum::sub(check, old_len), new_len)
        } else {
            checksum::update(check, checksum::add(old, old_len), checksum::add(new, new_len))
        };
        put_u16(p.bytes_mut(), check_at, check);
    }
    if p.offload.header_len != 0 {
        let hint = usize::from(p.offload.header_len).saturating_add(new_total).saturating_sub(old_total);
        p.offload.header_len = u16::try_from(hint).unwrap_or(u16::MAX);
    }
}

/// The sum of a TCP header, options included, without its checksum field.
fn tcp_header_sum(packet: &[u8], at: usize) -> u16 {
    let len = usize::from(u8_at(packet, at.saturating_add(12)).unwrap_or(0) >> 4) * 4;
    let header = packet.get(at..at.saturating_add(len)).unwrap_or_default();
    checksum::sub(checksum::sum(header), u16_at(header, TCP_CHECKSUM_OFFSET).unwrap_or(0))
}

pub(crate) fn options_area<'a>(packet: &'a [u8], s: &TcpSegment) -> Option<&'a [u8]> {
    packet.get(s.tcp_offset().checked_add(TCP_HEADER_BYTES)?..s.payload_offset)
}

/// Write `value` at `within` of the body of the option `kind`, if it is there with a body of
/// `body_len` bytes.
fn set_in_option(p: &mut PacketBuf, s: &TcpSegment, kind: u8, body_len: usize, within: usize, value: &[u8]) {
    let found = options_area(p.bytes(), s).and_then(|area| {
        // The last one, as the parser takes the last one.
        OptionWalk::new(area).filter(|o| o.kind == kind && o.body.len() == body_len).last().map(|o| o.offset)
    });
    if let Some(offset) = found {
        patch(p, s, TCP_HEADER_BYTES.saturating_add(offset).saturating_add(2).saturating_add(within), value);
    }
}

/// Write `value` at `at` of the TCP header and bring its checksum up to date.
fn patch(p: &mut PacketBuf, s: &TcpSegment, at: usize, value: &[u8]) {
    let partial = matches!(p.offload.checksum, ChecksumState::Partial { .. });
    if let Some(tcp) = p.bytes_mut().get_mut(s.tcp_offset()..) {
        patch_covered(tcp, at, value, if partial { None } else { Some(TCP_CHECKSUM_OFFSET) });
    }
}

/// Write `value` at `at` of an IPv4 header and bring the header checksum up to date.
fn patch_ipv4(packet: &mut [u8], at: usize, value: &[u8]) {
    patch_covered(packet, at, value, Some(10));
}

/// Write `value` at `at` of `covered`, whose check stands at `check_at`. Nothing happens if either
/// is out of bounds.
pub(crate) fn patch_covered(covered: &mut [u8], at: usize, value: &[u8], check_at: Option<usize>) {
    // Whole words round the value: an option may stand at an odd offset.
    let start = at & !1;
    let end = at.saturating_add(value.len()).saturating_add(1) & !1;
    let words = |bytes: &[u8]| bytes.get(start..end.min(bytes.len())).map_or(0, checksum::sum);
    let check = match check_at {
        Some(check_at) => match u16_at(covered, check_at) {
            Some(check) => Some((check_at, check)),
            None => return,
        },
        None => None,
    };
    let old = words(covered);
    if !put(covered, at, value) {
        return;
    }
    let new = words(covered);
    if let Some((check_at, check)) = check {
        put_u16(covered, check_at, checksum::update(check, old, new));
    }
}

/// Write identification, MF and fragment offset (in eights) of an IPv4 header; DF and the reserved
/// bit stay.
pub(crate) fn write_ipv4_fragment(packet: &mut [u8], id: u16, more: bool, offset: u16) {
    let flags = u16_at(packet, 6).unwrap_or(0) & !(MORE_FRAGMENTS | OFFSET_MASK);
    let more = if more { MORE_FRAGMENTS } else { 0 };
    let [a, b] = id.to_be_bytes();
    let [c, d] = (flags | more | offset & OFFSET_MASK).to_be_bytes();
    patch_ipv4(packet, 4, &[a, b, c, d]);
}

/// The IP length field(s) of this packet can say `total` bytes.
fn can_write_total_len(packet: &[u8], total: usize) -> bool {
    let Some(version) = u8_at(packet, 0).map(|b| b >> 4) else { return false };
    let (at, said) = match version {
        4 => (2, total),
        6 => (4, total.saturating_sub(IPV6_HEADER_BYTES)),
        _ => return false,
    };
    // A jumbogram stays one, an oversized super-segment with a field of 0 too.
    let is_over = said > usize::from(u16::MAX);
    if jumbo_len_at(packet).is_some() {
        is_over && u32::try_from(said).is_ok()
    } else {
        !is_over || u16_at(packet, at) == Some(0)
    }
}

/// Write the IP length; see [`can_write_total_len`].
pub(crate) fn write_total_len(packet: &mut [u8], total: usize) {
    if u8_at(packet, 0).is_some_and(|b| b >> 4 == 4) {
        patch_ipv4(packet, 2, &u16::try_from(total).unwrap_or(0).to_be_bytes());
        return;
    }
    let said = total.saturating_sub(IPV6_HEADER_BYTES);
    match jumbo_len_at(packet) {
        Some(at) if u32_at(packet, at).is_some() => {
            put(packet, at, &u32::try_from(said).unwrap_or(u32::MAX).to_be_bytes());
        }
        _ => {
            put_u16(packet, 4, u16::try_from(said).unwrap_or(0));
        }
    }
}
