//! Fragments: what is cut comes together again in any order, and a reassembler gives everything
//! back and stays in bounds.

use super::source::{Source, naive_sum, same_sum};
use farlink_wire::{
    Duration, Instant, Offload, PacketBuf, Parsed, Pool, Reassembler, ReassemblyLimits, fragment, parse,
};

/// An MTU, an order, then a packet; the same bytes as a run of fragments.
pub fn run(data: &[u8]) {
    let mut source = Source(data);
    let (mtu, seed) = (source.below(2_000), source.u32());
    let packet = source.packet();
    round_trip(&packet, mtu, seed);
    flood(data);
}

/// Cut to `mtu`, shuffle by `seed`, join.
pub fn round_trip(packet: &[u8], mtu: usize, seed: u32) {
    let mut pieces: Vec<Vec<u8>> = Vec::new();
    let Ok(count) = fragment(packet, mtu, seed, &mut |p| pieces.push(p.to_vec())) else {
        assert!(pieces.is_empty());
        return;
    };
    assert_eq!(count, pieces.len());
    assert!(pieces.iter().all(|p| p.len() <= mtu));
    if count == 1 || count > 256 || matches!(parse(packet), Parsed::Fragment(_)) {
        return;
    }
    let mut random = seed;
    for n in (1..pieces.len()).rev() {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        pieces.swap(n, (random >> 8) as usize % (n + 1));
    }
    let mut pool = Pool::new(1 << 22);
    let mut joined = None;
    let mut reassembler = Reassembler::new(ReassemblyLimits::default());
    for piece in &pieces {
        assert!(joined.is_none(), "whole before its last fragment came");
        let Parsed::Fragment(info) = parse(piece) else { panic!("a fragment that does not parse as one") };
        let p = PacketBuf::from_slice(&mut pool, piece, Offload::default());
        let pushed = reassembler.push(Instant::ZERO, p, &info, &mut pool);
        assert!(pushed.forward.is_empty());
        joined = pushed.whole;
    }
    let joined = joined.expect("all fragments came");
    assert_eq!(joined.originals.len(), count);
    assert!(reassembler.is_empty() && reassembler.used_bytes() == 0);
    let whole = joined.whole.bytes();
    if packet[0] >> 4 == 4 {
        let header = usize::from(packet[0] & 15) * 4;
        assert!(same_sum(naive_sum(&packet[..header]), naive_sum(&whole[..header])));
        assert_eq!(whole[..10], packet[..10]);
        assert_eq!(whole[12..], packet[12..whole.len()]);
    } else {
        assert_eq!(whole, &packet[..whole.len()]);
    }
}

/// The bytes as fragments of a few packets that overlap, contradict and repeat each other; nothing
/// may be lost.
pub fn flood(data: &[u8]) {
    let limits =
        ReassemblyLimits { bytes: 20 * 4096, datagrams: 4, fragments: 8, timeout: Duration::from_millis(50) };
    let mut reassembler = Reassembler::new(limits);
    let mut pool = Pool::new(1 << 22);
    let mut source = Source(data);
    let mut now = Instant::ZERO;
    let (mut gone_in, mut come_out) = (0, 0);
    while !source.is_empty() && gone_in < 400 {
        now += Duration::from_millis(u64::from(source.u8() % 8));
        let packet = made_fragment(&mut source);
        let Parsed::Fragment(info) = parse(&packet) else { continue };
        let p = PacketBuf::from_slice(&mut pool, &packet, Offload::default());
        gone_in += 1;
        come_out += reassembler.expire(now).len();
        let pushed = reassembler.push(now, p, &info, &mut pool);
        come_out += pushed.forward.len();
        if let Some(r) = pushed.whole {
            come_out += r.originals.len();
            assert!(!matches!(parse(r.whole.bytes()), Parsed::Fragment(_)));
            r.whole.recycle(&mut pool);
        }
        assert!(reassembler.used_bytes() <= limits.bytes && reassembler.len() <= limits.datagrams);
        assert!(reassembler.next_deadline().is_none_or(|d| d > now));
    }
    come_out += reassembler.clear().len();
    assert_eq!(gone_in, come_out, "a fragment was lost or made");
    assert_eq!(reassembler.used_bytes(), 0);
}

fn made_fragment(source: &mut Source<'_>) -> Vec<u8> {
    let (kind, place, extent) = (source.u8(), source.u8(), source.u8());
    let offset = u16::from(place % 8) * 8;
    let more = u16::from(kind & 1 != 0);
    let len = usize::from(extent % 5) * 8 + if more == 1 { 0 } else { usize::from(kind >> 5) };
    let fill = vec![source.u8(); len];
    let id = kind >> 1 & 3;
    let mut out = Vec::new();
    if kind & 8 == 0 {
        out.extend_from_slice(&[0x45, kind >> 6]);
        out.extend_from_slice(&(20 + len as u16).to_be_bytes());
        out.extend_from_slice(&[0, id]);
        out.extend_from_slice(&((more << 13) | (offset / 8)).to_be_bytes());
        out.extend_from_slice(&[64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        let check = !naive_sum(&out);
        out[10..12].copy_from_slice(&check.to_be_bytes());
    } else {
        out.extend_from_slice(&[0x60, 0, 0, 0]);
        out.extend_from_slice(&(8 + len as u16).to_be_bytes());
        out.extend_from_slice(&[44, 64]);
        out.extend_from_slice(&[1; 16]);
        out.extend_from_slice(&[2; 16]);
        out.extend_from_slice(&[6, 0]);
        out.extend_from_slice(&(offset | more).to_be_bytes());
        out.extend_from_slice(&[0, 0, 0, id]);
    }
    out.extend_from_slice(&fill);
    out
}
