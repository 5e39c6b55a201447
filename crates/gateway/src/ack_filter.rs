//! ACK filtering (RFC 3449 5.2.1) for connections that are only forwarded: where acknowledgements
//! wait for a slow link, the newest of a connection says all that the one before it said. So it
//! takes that one's place in the queue. What says something else is kept: duplicates, SACK blocks,
//! window updates, changes of ECE and CWR, data, SYN, FIN, RST, options that are not known.
//!
//! Each acknowledgement is compared with one other packet, the last of its connection that waits.

use farlink_wire::{Flags, PacketBuf, Parsed, TcpSegment, parse, verify_checksums};

/// A host that has so much under way is none. So a number that jumps by more is no newer one.
const ADVANCE_MAX_BYTES: u32 = 1 << 30;
/// What the flags of an acknowledgement may say besides. Their values count, too.
const ECN: Flags = Flags(Flags::ECE.0 | Flags::CWR.0);

/// Whether the second of two packets makes the first one needless.
pub fn supersedes(old: &PacketBuf, new: &PacketBuf) -> bool {
    let (Some(o), Some(n)) = (plain_ack(old), plain_ack(new)) else { return false };
    let is_same = (o.ip.src, o.src_port, o.ip.dst, o.dst_port)
        == (n.ip.src, n.src_port, n.ip.dst, n.dst_port)
        && o.ip.traffic_class == n.ip.traffic_class
        && o.flags == n.flags;
    // Who forges one and does not know where the sequence numbers are takes nothing away.
    let is_newer = o.seq == n.seq && n.ack.after(o.ack) && n.ack.since(o.ack) <= ADVANCE_MAX_BYTES;
    let in_order = match (o.options.timestamps, n.options.timestamps) {
        (None, None) => true,
        // RFC 7323 5.1: they wrap.
        (Some(before), Some(after)) => after.val.wrapping_sub(before.val) < 1 << 31,
        _ => false,
    };
    is_same && is_newer && in_order
}

/// A segment that only acknowledges, with no options but timestamps.
fn plain_ack(packet: &PacketBuf) -> Option<TcpSegment> {
    let Parsed::Tcp(s) = parse(packet.bytes()) else { return None };
    let o = &s.options;
    let says_more = o.mss.is_some()
        || o.window_scale.is_some()
        || o.sack_permitted
        || !o.sack.is_empty()
        || o.fast_open
        || o.md5
        || o.ao
        || o.mptcp
        || o.farlink.is_some()
        || o.xcp.is_some()
        || o.xcp_sum.is_some()
        || !o.unknown.is_empty()
        || o.malformed;
    let only_acks =
        s.seq_len() == 0 && s.flags.0 & !ECN.0 == Flags::ACK.0 && s.shim.is_none() && !s.is_iack();
    let is_plain = only_acks && !says_more && !s.ip.has_options;
    (is_plain && verify_checksums(packet.bytes(), &s, &packet.offload)).then_some(s)
}

#[cfg(test)]
mod tests {
    use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    use farlink_wire::{Offload, Pool, checksum};

    use super::*;

    /// An acknowledgement: what is changed in it, and how long its options are.
    #[derive(Clone)]
    struct Ack {
        v6: bool,
        port: u16,
        seq: u32,
        ack: u32,
        flags: u16,
        traffic_class: u8,
        options: Vec<u8>,
        payload: usize,
        spoilt: bool,
    }

    fn timestamps(val: u32) -> Vec<u8> {
        [&[1, 1, 8, 10][..], &val.to_be_bytes(), &[0, 0, 0, 9]].concat()
    }

    fn ack(number: u32) -> Ack {
        Ack {
            v6: false,
            port: 1000,
            seq: 77,
            ack: number,
            flags: Flags::ACK.0,
            traffic_class: 0,
            options: timestamps(number),
            payload: 0,
            spoilt: false,
        }
    }

    impl Ack {
        fn packet(&self) -> PacketBuf {
            let tcp_len = 20 + self.options.len() + self.payload;
            let mut bytes = if self.v6 {
                let class = self.traffic_class;
                let mut head = vec![0x60 | class >> 4, class << 4, 0, 0, 0, tcp_len as u8, 6, 64];
                for last in [1, 2] {
                    let IpAddr::V6(a) = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last)) else {
                        unreachable!()
                    };
                    head.extend(a.octets());
                }
                head
            } else {
                let len = (20 + tcp_len) as u8;
                let mut head = vec![0x45, self.traffic_class, 0, len, 0, 0, 0x40, 0, 64, 6, 0, 0];
                head.extend(Ipv4Addr::new(10, 0, 0, 1).octets());
                head.extend(Ipv4Addr::new(10, 0, 0, 2).octets());
                head
            };
            bytes.extend(self.port.to_be_bytes());
            bytes.extend(80_u16.to_be_bytes());
            bytes.extend(self.seq.to_be_bytes());
            bytes.extend(self.ack.to_be_bytes());
            let offset = ((20 + self.options.len()) / 4) as u16;
            bytes.extend((offset << 12 | self.flags).to_be_bytes());
            bytes.extend([1, 0, 0, 0, 0, 0]);
            bytes.extend(&self.options);
            bytes.resize(bytes.len() + self.payload, 7);
            self.finish(&mut bytes);
            if self.spoilt {
                bytes[if self.v6 { 50 } else { 30 }] ^= 1;
            }
            PacketBuf::from_slice(&mut Pool::new(1 << 20), &bytes, Offload::default())
        }
    }

    impl Ack {
        fn finish(&self, bytes: &mut [u8]) {
            let (at, addresses) = if self.v6 { (40, 8..40) } else { (20, 12..20) };
            let len = (bytes.len() - at) as u8;
            let pseudo = [&bytes[addresses], &[0, 6, 0, len][..], &bytes[at..]].concat();
            let sum = !checksum::sum(&pseudo);
            bytes[at + 16..at + 18].copy_from_slice(&sum.to_be_bytes());
            if !self.v6 {
                let sum = !checksum::sum(&bytes[..20]);
                bytes[10..12].copy_from_slice(&sum.to_be_bytes());
            }
        }
    }

    fn gives_way(old: &Ack, new: &Ack) -> bool {
        supersedes(&old.packet(), &new.packet())
    }

    #[test]
    fn the_newest_says_all_that_the_one_before_it_said() {
        assert!(gives_way(&ack(1_000), &ack(3_000)));
        assert!(gives_way(&Ack { v6: true, ..ack(1_000) }, &Ack { v6: true, ..ack(3_000) }));
        let plain = |number| Ack { options: Vec::new(), ..ack(number) };
        assert!(gives_way(&plain(1), &plain(2)));
        // Sequence numbers and timestamps wrap.
        assert!(gives_way(&ack(u32::MAX - 10), &ack(10)));
        // A state of ECN that both tell.
        let echo = |number| Ack { flags: Flags::ACK.0 | Flags::ECE.0, ..ack(number) };
        assert!(gives_way(&echo(1), &echo(2)));
    }

    #[test]
    fn what_says_something_else_is_kept() {
        let (old, new) = (ack(1_000), ack(3_000));
        let sack = [timestamps(3_000), vec![1, 1, 5, 10, 0, 0, 20, 0, 0, 0, 30, 0]].concat();
        let unknown = [timestamps(1_000), vec![99, 4, 0, 0]].concat();
        for (what, old, new) in [
            ("a duplicate, or an update of the window", old.clone(), Ack { ack: 1_000, ..new.clone() }),
            ("an older one", new.clone(), old.clone()),
            ("one that jumps", old.clone(), ack(1_000 + (1 << 30) + 1)),
            ("SACK blocks", Ack { options: sack.clone(), ..old.clone() }, new.clone()),
            (
                "a newer one with SACK blocks, which may say no more",
                old.clone(),
                Ack { options: sack, ..new.clone() },
            ),
            ("an option that is not known", Ack { options: unknown, ..old.clone() }, new.clone()),
            ("ECE", Ack { flags: Flags::ACK.0 | Flags::ECE.0, ..old.clone() }, new.clone()),
            ("CWR", old.clone(), Ack { flags: Flags::ACK.0 | Flags::CWR.0, ..new.clone() }),
            ("FIN", Ack { flags: Flags::ACK.0 | Flags::FIN.0, ..old.clone() }, new.clone()),
            ("RST", old.clone(), Ack { flags: Flags::ACK.0 | Flags::RST.0, ..new.clone() }),
            ("SYN", old.clone(), Ack { flags: Flags::ACK.0 | Flags::SYN.0, ..new.clone() }),
            ("data", Ack { payload: 1, ..old.clone() }, new.clone()),
            ("another connection", Ack { port: 1001, ..old.clone() }, new.clone()),
            ("another place of its own", Ack { seq: 78, ..old.clone() }, new.clone()),
            ("another mark", Ack { traffic_class: 2, ..old.clone() }, new.clone()),
            ("an older timestamp", Ack { options: timestamps(4_000), ..old.clone() }, new.clone()),
            ("no timestamps", Ack { options: Vec::new(), ..old.clone() }, new.clone()),
            ("a wrong checksum", Ack { spoilt: true, ..old.clone() }, new.clone()),
            ("a wrong checksum of the newer one", old, Ack { spoilt: true, ..new }),
        ] {
            assert!(!gives_way(&old, &new), "{what}");
        }
    }

    #[test]
    fn no_bytes_are_taken_for_an_acknowledgement_by_mistake() {
        let whole = ack(3_000).packet();
        let mut pool = Pool::new(1 << 20);
        for len in 0..whole.bytes().len() {
            let cut = PacketBuf::from_slice(&mut pool, &whole.bytes()[..len], Offload::default());
            assert!(!supersedes(&ack(1_000).packet(), &cut), "{len}");
            assert!(!supersedes(&cut, &whole), "{len}");
        }
    }
}
