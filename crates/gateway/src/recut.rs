//! A segment that came in fragments and goes on changed. It keeps its identification: it is the
//! same datagram, and what came of it ends here.

use farlink_wire::{Offload, PacketBuf, Parsed, Pool, fragment, parse};

/// The headers of a segment, to see whether something has been changed in it. Nothing else ever is.
#[derive(PartialEq, Eq)]
pub struct Head(Vec<u8>);

impl Head {
    /// Of these bytes; empty where they are no TCP.
    pub fn of(bytes: &[u8]) -> Self {
        let Parsed::Tcp(s) = parse(bytes) else { return Self(Vec::new()) };
        Self(bytes.iter().take(s.payload_offset).copied().collect())
    }
}

/// The packet in fragments no larger than those that came. `None`: it cannot be cut.
pub fn cut_as(pool: &mut Pool, whole: &PacketBuf, id: u32, came: &[PacketBuf]) -> Option<Vec<PacketBuf>> {
    let mtu = came.iter().map(PacketBuf::len).max()?;
    let mut out = Vec::new();
    let mut add = |f: &[u8]| out.push(PacketBuf::from_slice(pool, f, Offload::default()));
    fragment(whole.bytes(), mtu, id, &mut add).ok()?;
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use farlink_wire::{Instant, Reassembler, ReassemblyLimits};
    use farlink_wire::{SegmentHeader, SeqNum, build, edit, finish_checksums, verify_checksums};

    #[test]
    fn a_changed_segment_is_whole_again_behind_its_fragments() {
        let mut pool = Pool::new(1 << 20);
        let ends = (("10.0.0.1".parse().unwrap(), 1), ("10.0.0.2".parse().unwrap(), 2));
        let header = SegmentHeader {
            ip_id: 77,
            dont_fragment: false,
            seq: SeqNum(1),
            ack: SeqNum(1),
            window: 9,
            ..SegmentHeader::between(ends.0, ends.1)
        };
        let mut p = build::packet(&mut pool, &header, None, &[7; 1_000]).unwrap();
        let offload = p.offload;
        finish_checksums(p.bytes_mut(), &offload);
        p.offload = Offload::default();
        let came =
            cut_as(&mut pool, &p, 77, &[PacketBuf::from_slice(&mut Pool::new(9_000), &[0; 576], p.offload)]);
        let came = came.unwrap();
        let before = Head::of(p.bytes());
        let Parsed::Tcp(s) = parse(p.bytes()) else { panic!("a segment") };
        edit::set_window(&mut p, &s, 1_234);
        assert!(Head::of(p.bytes()) != before);
        let mut again = Reassembler::new(ReassemblyLimits::default());
        let mut whole = None;
        for f in cut_as(&mut pool, &p, 77, &came).unwrap() {
            assert!(f.len() <= 576);
            let Parsed::Fragment(info) = parse(f.bytes()) else { panic!("a fragment") };
            whole = whole.or(again.push(Instant::ZERO, f, &info, &mut pool).whole);
        }
        let whole = whole.expect("nothing is missing").whole;
        let Parsed::Tcp(s) = parse(whole.bytes()) else { panic!("a segment") };
        assert!(verify_checksums(whole.bytes(), &s, &Offload::default()));
        assert_eq!((s.window, s.payload(whole.bytes()).len()), (1_234, 1_000));
    }
}
