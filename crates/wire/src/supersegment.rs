//! Cut a super-segment into the packets that a network card would make of it (Linux
//! `tcp_gso_segment`; of UDP see `datagram.rs`).

use crate::build::finish_checksums;
use crate::bytes::{put, put_u16, u16_at};
use crate::checksum;
use crate::datagram;
use crate::edit::{write_ipv4_fragment, write_total_len};
use crate::ip::{PROTOCOL_TCP, Parsed, clear_jumbo, parse};
use crate::offload::{ChecksumState, Gso, Offload, WireSize};
use crate::tcp::{Flags, TCP_CHECKSUM_OFFSET, TcpSegment};

/// How many packets [`segment`] makes of this one.
#[must_use]
pub fn segment_count(s: &TcpSegment, offload: &Offload) -> usize {
    WireSize::of(s.payload_offset, s.payload_len, offload).packets as usize
}

/// What a packet, or super-segment, takes on the wire.
#[must_use]
pub fn wire_size(packet: &[u8], offload: &Offload) -> WireSize {
    let header_bytes = match (offload.is_super_segment(), offload.gso) {
        (true, Gso::Udp) => datagram::header_bytes(packet).unwrap_or(0),
        (true, _) => match parse(packet) {
            Parsed::Tcp(s) => s.payload_offset.min(packet.len()),
            _ => 0,
        },
        (false, _) => 0,
    };
    WireSize::of(header_bytes, packet.len().saturating_sub(header_bytes), offload)
}

/// Give `f` the packets of `gso_size` payload bytes each, in order, with complete checksums. The
/// sequence number advances, the IPv4 identification counts up, FIN and PSH stand on the last only,
/// CWR on the first only. URG and the urgent pointer are copied as they are, as the kernel does it
/// (which is why urgent data must not go into a super-segment). A packet that is no super-segment
/// comes out once, its checksum completed; so does one that is neither TCP nor UDP. Of a UDP
/// super-segment each packet is a datagram of its own.
///
/// One scratch buffer is allocated per call.
pub fn segment(packet: &[u8], offload: &Offload, f: &mut dyn FnMut(&[u8])) {
    if offload.is_super_segment() && offload.gso == Gso::Udp {
        if !datagram::cut(packet, offload, 1, &mut |datagram, _| f(datagram)) {
            whole(packet, offload, f);
        }
        return;
    }
    let parsed = if offload.is_super_segment() { parse(packet) } else { Parsed::Other };
    let Parsed::Tcp(s) = parsed else {
        whole(packet, offload, f);
        return;
    };
    let size = usize::from(offload.gso_size);
    if s.payload_len <= size {
        whole(packet, offload, f);
        return;
    }
    let Some(header) = packet.get(..s.payload_offset) else { return };
    let mut out = Vec::with_capacity(header.len().saturating_add(size));
    let last = segment_count(&s, offload).saturating_sub(1);
    for (n, chunk) in s.payload(packet).chunks(size).enumerate() {
        out.clear();
        out.extend_from_slice(header);
        out.extend_from_slice(chunk);
        write_header(&mut out, &s, n.saturating_mul(size), n, n == last);
        f(&out);
    }
}

/// Give `f` super-segments of at most so many packets each, in order, and what is left to be done
/// to each. Put together again they are the same as what [`segment`] makes of the whole. A packet
/// that is no super-segment, or one of so few packets, comes out as it came. So does one with URG:
/// its pointer counts from its own sequence number.
pub fn cut(packet: &[u8], offload: &Offload, packets: usize, f: &mut dyn FnMut(&[u8], &Offload)) {
    if offload.is_super_segment() && offload.gso == Gso::Udp {
        if !datagram::cut(packet, offload, packets, f) {
            f(packet, offload);
        }
        return;
    }
    let parsed = if offload.is_super_segment() { parse(packet) } else { Parsed::Other };
    let size = usize::from(offload.gso_size).saturating_mul(packets.max(1));
    let Parsed::Tcp(s) = parsed else { return f(packet, offload) };
    let Some(header) = packet.get(..s.payload_offset).filter(|_| s.payload_len > size && !s.flags.urg())
    else {
        return f(packet, offload);
    };
    let mut out = Vec::with_capacity(header.len().saturating_add(size));
    let last = s.payload_len.div_ceil(size).saturating_sub(1);
    for (n, chunk) in s.payload(packet).chunks(size).enumerate() {
        out.clear();
        out.extend_from_slice(header);
        out.extend_from_slice(chunk);
        write_header(&mut out, &s, n.saturating_mul(size), n.saturating_mul(packets.max(1)), n == last);
        let is_super = chunk.len() > usize::from(offload.gso_size);
        if is_super {
            let tcp_len = out.len().saturating_sub(s.tcp_offset());
            let pseudo = checksum::pseudo_header(
                s.ip.src,
                s.ip.dst,
                PROTOCOL_TCP,
                u32::try_from(tcp_len).unwrap_or(u32::MAX),
            );
            put_u16(&mut out, s.tcp_offset().saturating_add(TCP_CHECKSUM_OFFSET), pseudo);
        }
        let partial = ChecksumState::Partial {
            start: u16::try_from(s.tcp_offset()).unwrap_or(u16::MAX),
            offset: TCP_CHECKSUM_OFFSET as u16,
        };
        let rest = Offload { checksum: partial, gso_ecn: offload.gso_ecn && n == 0, ..*offload };
        f(&out, &if is_super { rest } else { Offload::default() });
    }
}

/// Make the copied header that of segment number `n`, whose payload begins `offset` bytes into the
/// super-segment's.
fn write_header(out: &mut [u8], s: &TcpSegment, offset: usize, n: usize, is_last: bool) {
    let at = s.tcp_offset();
    let total = out.len();
    clear_jumbo(out);
    write_total_len(out, total);
    if s.ip.is_v4() {
        let id = s.ip.id.wrapping_add(n as u16);
        write_ipv4_fragment(out, id, false, 0);
    }
    let seq = s.seq + u32::try_from(offset).unwrap_or(u32::MAX);
    put(out, at.saturating_add(4), &seq.0.to_be_bytes());
    let mut gone = Flags::NONE;
    if n > 0 {
        gone = gone | Flags::CWR;
    }
    if !is_last {
        gone = gone | Flags::FIN | Flags::PSH;
    }
    let flags_at = at.saturating_add(12);
    let word = u16_at(out, flags_at).unwrap_or(0) & !gone.0;
    put_u16(out, flags_at, word);
    let check_at = at.saturating_add(TCP_CHECKSUM_OFFSET);
    put_u16(out, check_at, 0);
    let tcp = out.get(at..).unwrap_or_default();
    let len = u32::try_from(tcp.len()).unwrap_or(u32::MAX);
    let pseudo = checksum::pseudo_header(s.ip.src, s.ip.dst, PROTOCOL_TCP, len);
    let check = !checksum::add(pseudo, checksum::sum(tcp));
    put_u16(out, check_at, check);
}

fn whole(packet: &[u8], offload: &Offload, f: &mut dyn FnMut(&[u8])) {
    if offload.is_partial() {
        let mut out = packet.to_vec();
        finish_checksums(&mut out, offload);
        f(&out);
    } else {
        f(packet);
    }
}
