//! Super-segments: the packets that come out say together what went in, and each is right by
//! itself.

use super::source::Source;
use farlink_wire::{
    ChecksumState, Gso, Offload, Parsed, checksum, parse, segment, segment_count, supersegment,
    verify_checksums,
};

/// A segment size, then a packet.
pub fn run(data: &[u8]) {
    let mut source = Source(data);
    let gso_size = source.u16();
    let state = source.u8();
    if state >= 0xc0 {
        return datagrams(&source.packet(), gso_size);
    }
    let state = state % 3;
    let mut packet = source.packet();
    let parsed = parse(&packet);
    let mut offload = Offload { gso: Gso::Tcp4, gso_size, ..Offload::default() };
    if let Parsed::Tcp(s) = &parsed {
        if !s.ip.is_v4() {
            offload.gso = Gso::Tcp6;
        }
        offload.checksum = match state {
            0 => ChecksumState::Unverified,
            1 => ChecksumState::Verified,
            _ => {
                let at = s.tcp_offset();
                let pseudo = checksum::pseudo_header(s.ip.src, s.ip.dst, 6, s.ip.total_len - at as u32);
                packet[at + 16..at + 18].copy_from_slice(&pseudo.to_be_bytes());
                ChecksumState::Partial { start: s.ip.header_len, offset: 16 }
            }
        };
    }
    let mut out = Vec::new();
    // At most 65,535 pieces; sizes below 8 only for small packets, to keep the work in bounds.
    if gso_size < 8 && packet.len() > 4_000 {
        return;
    }
    segment(&packet, &offload, &mut |p| out.push(p.to_vec()));
    let Parsed::Tcp(whole) = parsed else {
        assert_eq!(out.len(), 1);
        return;
    };
    assert_eq!(out.len(), segment_count(&whole, &offload));
    if out.len() == 1 {
        assert_eq!(out[0].len(), packet.len());
        return;
    }
    let ip_right = !whole.ip.is_v4() || checksum::sum(&packet[..whole.tcp_offset()]) == 0xffff;
    let mut payload = Vec::new();
    for (n, p) in out.iter().enumerate() {
        let Parsed::Tcp(s) = parse(p) else { panic!("segment {n} is not TCP") };
        let (first, last) = (n == 0, n + 1 == out.len());
        assert_eq!(verify_checksums(p, &s, &Offload::default()), ip_right, "segment {n}");
        assert_eq!(s.seq, whole.seq + payload.len() as u32);
        assert_eq!(s.ip.total_len as usize, p.len());
        assert!(last || s.payload_len == usize::from(gso_size));
        assert!(whole.ip.id.wrapping_add(n as u16) == s.ip.id || !whole.ip.is_v4());
        assert_eq!(s.flags.cwr(), whole.flags.cwr() && first);
        assert_eq!((s.flags.fin(), s.flags.psh()), (whole.flags.fin() && last, whole.flags.psh() && last));
        assert_eq!((s.urgent, s.flags.urg(), &s.options), (whole.urgent, whole.flags.urg(), &whole.options));
        payload.extend_from_slice(s.payload(p));
    }
    assert_eq!(payload, whole.payload(&packet));
}

/// Whatever is called a UDP super-segment comes out in as many packets as was said, or as it came,
/// and cutting it twice changes nothing.
fn datagrams(packet: &[u8], gso_size: u16) {
    if gso_size < 8 && packet.len() > 4_000 {
        return;
    }
    let offload = Offload { gso: Gso::Udp, gso_size, ..Offload::default() };
    let mut out = Vec::new();
    segment(packet, &offload, &mut |p| out.push(p.to_vec()));
    let size = supersegment::wire_size(packet, &offload);
    let has_header = out.len() > 1;
    if has_header {
        assert_eq!(out.len(), size.packets as usize);
        assert_eq!(out.iter().map(Vec::len).sum::<usize>(), size.bytes as usize);
    } else {
        assert_eq!(out, [packet]);
    }
    let mut parts = Vec::new();
    supersegment::cut(packet, &offload, 3, &mut |part, rest| {
        segment(part, rest, &mut |p| parts.push(p.to_vec()));
    });
    assert_eq!(parts, out);
}
