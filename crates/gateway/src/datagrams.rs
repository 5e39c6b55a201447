//! Identifications of what is sent in fragments.
//!
//! A receiver puts fragments together by source, destination, protocol and identification. So a
//! number of IPv4 must not come again while fragments of the datagram that had it may still be
//! under way (RFC 6864 section 4.3; RFC 791 has two minutes for that, and receivers wait as long).
//! Numbers are given out block by block, and a block is used again when nothing has had a number of
//! it for four minutes: 273 datagrams a second for each pair of addresses.

use core::net::{IpAddr, Ipv4Addr};
use std::collections::BTreeMap;

use farlink_wire::{Duration, Instant};

/// How long a number is not used again (twice the maximum segment lifetime of RFC 9293).
const LIFETIME: Duration = Duration::from_secs(240);
/// Numbers of a block, and how many blocks there are.
const BLOCK: u16 = 4096;
const BLOCKS: usize = 16;
/// Pairs of addresses. With more the others send segments that fit a packet.
const PAIRS_MAX: usize = 4096;

/// The next number for each source and destination.
#[derive(Debug)]
pub struct Datagrams {
    pairs: BTreeMap<(Ipv4Addr, Ipv4Addr), Numbers>,
    begin: u16,
    next_v6: u32,
}

/// Those of one pair.
#[derive(Debug)]
struct Numbers {
    next: u16,
    /// When each block was used last.
    used_at: [Option<Instant>; BLOCKS],
    at: Instant,
}

impl Datagrams {
    /// Numbers that begin anywhere (RFC 7739); the same seed gives the same ones.
    pub fn new(seed: u64) -> Self {
        let mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self { pairs: BTreeMap::new(), begin: (mixed >> 48) as u16, next_v6: (mixed >> 16) as u32 }
    }

    /// One for a datagram; `None`: none is free yet.
    pub fn take(&mut self, now: Instant, src: IpAddr, dst: IpAddr) -> Option<u32> {
        let (IpAddr::V4(src), IpAddr::V4(dst)) = (src, dst) else {
            self.next_v6 = self.next_v6.wrapping_add(1);
            return Some(self.next_v6);
        };
        if !self.pairs.contains_key(&(src, dst)) && self.pairs.len() >= PAIRS_MAX {
            self.forget_old(now);
            if self.pairs.len() >= PAIRS_MAX {
                return None;
            }
        }
        let begin = self.begin;
        let new = || Numbers { next: begin, used_at: [None; BLOCKS], at: now };
        self.pairs.entry((src, dst)).or_insert_with(new).take(now).map(u32::from)
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
        assert_eq!(datagrams.take(now, host(1), host(3)), first);
        for n in 0..10_000 {
            let _ = datagrams.take(now, host(1), host(n));
        }
        assert_eq!(datagrams.pairs.len(), PAIRS_MAX);
        assert_eq!(datagrams.take(now, host(1), host(20_000)), None);
        assert!(datagrams.take(now + LIFETIME, host(1), host(20_000)).is_some(), "old ones are forgotten");
    }

    #[test]
    fn ipv6_counts_for_itself() {
        let six = |n| IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, n]);
        let mut datagrams = Datagrams::new(7);
        let first = datagrams.take(Instant::ZERO, six(1), six(2)).unwrap();
        assert_eq!(datagrams.take(Instant::ZERO, six(1), six(2)), Some(first.wrapping_add(1)));
    }
}
