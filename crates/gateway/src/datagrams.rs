//! Identifications of what is sent in fragments.
//!
//! A receiver puts fragments together by source, destination, protocol and identification. So a
//! number of IPv4 must not come again while fragments of the datagram that had it may still be
//! under way (RFC 6864 section 4.3; RFC 791 has two minutes for that, and receivers wait as long).
//! Numbers are given out block by block, and a block is used again when nothing has had a number of
//! it for four minutes: 273 datagrams a second for each pair of addresses.
//!
//! Who knows the next number plants a fragment: with the source's address, no port and no sequence
//! number, and the receiver puts it in the place of ours. So each pair of addresses has a
//! permutation of its own, made with a secret ([`crate::secret`]; RFC 7739 has the reasons for
//! IPv6).
//!
//! An ICMP error may quote a later fragment, which has no ports. So the last datagrams are
//! remembered for a few seconds, with what they were.

use core::net::{IpAddr, Ipv4Addr};
use std::collections::{BTreeMap, VecDeque};

use farlink_wire::ip::PROTOCOL_TCP;
use farlink_wire::{Duration, FragmentInfo, InnerTcp, Instant};

use crate::secret::{Purpose, Secret};

/// How long a number is not used again (twice the maximum segment lifetime of RFC 9293).
const LIFETIME: Duration = Duration::from_secs(240);
/// Numbers of a block, and how many blocks there are.
const BLOCK: u16 = 4096;
const BLOCKS: usize = 16;
/// Pairs of addresses. With more the others send segments that fit a packet.
const PAIRS_MAX: usize = 4096;

/// Datagrams that are remembered, and for how long: an error comes within a round trip.
const SENT_MAX: usize = 1024;
const SENT_FOR: Duration = Duration::from_secs(5);

/// The next number for each source and destination.
#[derive(Debug)]
pub struct Datagrams {
    pairs: BTreeMap<(Ipv4Addr, Ipv4Addr), Numbers>,
    /// How many of IPv6 were taken.
    taken_v6: u32,
    secret: Secret,
    /// The last ones, the oldest first.
    sent: VecDeque<Sent>,
}

/// A datagram that was sent in fragments.
#[derive(Debug)]
struct Sent {
    id: u32,
    at: Instant,
    segment: InnerTcp,
}

/// Those of one pair, before the permutation.
#[derive(Debug)]
struct Numbers {
    next: u16,
    /// When each block was used last.
    used_at: [Option<Instant>; BLOCKS],
    at: Instant,
}

impl Datagrams {
    /// Numbers that only who has the seed can compute.
    pub fn new(seed: u64) -> Self {
        let secret = Secret::new(seed, Purpose::Fragments);
        Self { pairs: BTreeMap::new(), taken_v6: 0, secret, sent: VecDeque::new() }
    }

    /// A datagram has left with this number.
    pub fn note_sent(&mut self, at: Instant, id: u32, segment: InnerTcp) {
        if self.sent.len() >= SENT_MAX {
            self.sent.pop_front();
        }
        self.sent.push_back(Sent { id, at, segment });
    }

    /// The segment of the datagram that had this fragment.
    pub fn quoted(&self, now: Instant, fragment: &FragmentInfo) -> Option<InnerTcp> {
        let (src, dst) = (fragment.ip.src, fragment.ip.dst);
        let is_it = |sent: &&Sent| (sent.id, sent.segment.src, sent.segment.dst) == (fragment.id, src, dst);
        let is_ours = fragment.protocol == PROTOCOL_TCP;
        let sent = self.sent.iter().rev().take_while(|sent| now.since(sent.at) < SENT_FOR).find(is_it);
        sent.filter(|_| is_ours).map(|sent| sent.segment)
    }

    /// One for a datagram; `None`: none is free yet.
    pub fn take(&mut self, now: Instant, src: IpAddr, dst: IpAddr) -> Option<u32> {
        let (IpAddr::V4(src), IpAddr::V4(dst)) = (src, dst) else {
            self.taken_v6 = self.taken_v6.wrapping_add(1);
            return Some(self.secret.permute_u32(0, self.taken_v6));
        };
        if !self.pairs.contains_key(&(src, dst)) && self.pairs.len() >= PAIRS_MAX {
            self.forget_old(now);
            if self.pairs.len() >= PAIRS_MAX {
                return None;
            }
        }
        let new = || Numbers { next: 0, used_at: [None; BLOCKS], at: now };
        let next = self.pairs.entry((src, dst)).or_insert_with(new).take(now)?;
        let pair = u64::from(src.to_bits()) << 32 | u64::from(dst.to_bits());
        Some(self.secret.permute_u16(pair, next).into())
    }

    fn forget_old(&mut self, now: Instant) {
        self.pairs.retain(|_, numbers| now.since(numbers.at) < LIFETIME);
    }
}

impl Numbers {
    fn take(&mut self, now: Instant) -> Option<u16> {
        let block = usize::from(self.next / BLOCK);
        let begins = self.next.is_multiple_of(BLOCK);
        let used_at = self.used_at.get_mut(block)?;
        if begins && used_at.is_some_and(|at| now.since(at) < LIFETIME) {
            return None;
        }
        *used_at = Some(now);
        self.at = now;
        let id = self.next;
        self.next = id.wrapping_add(1);
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use farlink_wire::SeqNum;

    use super::*;

    fn host(n: u32) -> IpAddr {
        IpAddr::from(Ipv4Addr::from_bits(0x0a00_0000 + n))
    }

    #[test]
    fn no_number_comes_twice_within_four_minutes() {
        let mut datagrams = Datagrams::new(7);
        let mut seen: BTreeMap<u32, Instant> = BTreeMap::new();
        let (mut taken, mut refused) = (0, 0);
        // 400 a second for ten minutes.
        for n in 0..240_000u64 {
            let now = Instant::from_millis(n * 5 / 2);
            match datagrams.take(now, host(1), host(2)) {
                Some(id) => {
                    taken += 1;
                    let before = seen.insert(id, now);
                    assert!(before.is_none_or(|at| now.since(at) >= LIFETIME), "{id} at {now:?}");
                }
                None => refused += 1,
            }
        }
        assert!(taken > 65_536 * 2, "{taken} of ten minutes");
        assert!(refused > 0);
    }

    #[test]
    fn each_pair_has_its_own_and_no_more_are_kept_than_so_many() {
        let mut datagrams = Datagrams::new(7);
        let now = Instant::ZERO;
        let first = datagrams.take(now, host(1), host(2));
        assert_ne!(datagrams.take(now, host(1), host(3)), first);
        for n in 0..10_000 {
            let _ = datagrams.take(now, host(1), host(n));
        }
        assert_eq!(datagrams.pairs.len(), PAIRS_MAX);
        assert_eq!(datagrams.take(now, host(1), host(20_000)), None);
        assert!(datagrams.take(now + LIFETIME, host(1), host(20_000)).is_some(), "old ones are forgotten");
    }

    /// A stranger plants a fragment with the number after the last that he has seen, for each pair
    /// of planted fragment and datagram: no more of them meet than chance has it.
    #[test]
    fn nobody_knows_the_next_number() {
        let mut met = 0;
        let mut pairs = 0;
        for seed in 0..200 {
            let mut datagrams = Datagrams::new(seed);
            let mut ids = Vec::new();
            for n in 0..330 {
                // 200 are seen, on a connection of the stranger's own and on this one.
                let own = datagrams.take(Instant::ZERO, host(1), host(9)).unwrap();
                let id = datagrams.take(Instant::ZERO, host(1), host(2)).unwrap();
                if n >= 200 {
                    let guesses = ids.iter().rev().take(8).map(|seen: &u32| (seen + 1) & 0xffff);
                    met += guesses.chain([own, (own + 1) & 0xffff]).filter(|guess| *guess == id).count();
                    pairs += 10;
                }
                ids.push(id);
            }
        }
        let expected = f64::from(pairs) / 65_536.0;
        assert!((met as f64) < expected + 3.0 * expected.sqrt(), "{met} of {pairs}, {expected} by chance");
    }

    #[test]
    fn ipv6_has_numbers_of_32_bits_that_do_not_come_twice() {
        let six = |n| IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, n]);
        let mut datagrams = Datagrams::new(7);
        let mut ids: Vec<_> =
            (0..10_000).map(|n| datagrams.take(Instant::ZERO, six(n % 7), six(9)).unwrap()).collect();
        assert!(ids.windows(2).all(|w| w[0].abs_diff(w[1]) > 1));
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 10_000);
    }

    #[test]
    fn a_later_fragment_tells_by_addresses_and_identification() {
        let mut datagrams = Datagrams::new(7);
        let (src, dst, seq) = (host(1), host(2), SeqNum(77));
        let segment = InnerTcp {
            src,
            dst,
            src_port: 80,
            dst_port: 4000,
            seq,
            total_len: 9_000,
            has_shim: false,
            is_by_identification: true,
        };
        let id = datagrams.take(Instant::ZERO, src, dst).unwrap();
        datagrams.note_sent(Instant::ZERO, id, segment);
        let mut fragment = quoted([10, 0, 0, 1], [10, 0, 0, 2], id as u16);
        let found = datagrams.quoted(Instant::ZERO, &fragment).unwrap();
        assert_eq!((found.src_port, found.dst_port, found.seq), (80, 4000, SeqNum(77)));
        assert_eq!(datagrams.quoted(Instant::ZERO + SENT_FOR, &fragment), None, "long ago");
        fragment.id += 1;
        assert_eq!(datagrams.quoted(Instant::ZERO, &fragment), None);
        let other = quoted([10, 0, 0, 1], [10, 0, 0, 3], id as u16);
        assert_eq!(datagrams.quoted(Instant::ZERO, &other), None);
        for _ in 0..3 * SENT_MAX {
            datagrams.note_sent(Instant::ZERO, id, segment);
        }
        assert_eq!(datagrams.sent.len(), SENT_MAX);
    }

    /// A fragment of TCP that is not the first.
    fn quoted(src: [u8; 4], dst: [u8; 4], id: u16) -> FragmentInfo {
        let mut packet = vec![0x45, 0, 0, 28, 0, 0, 0x20, 185, 64, 6, 0, 0];
        packet[4..6].copy_from_slice(&id.to_be_bytes());
        packet.extend(src);
        packet.extend(dst);
        packet.extend([0; 8]);
        let farlink_wire::Parsed::Fragment(info) = farlink_wire::parse(&packet) else {
            panic!("no fragment")
        };
        info
    }
}
