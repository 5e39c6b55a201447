//! IPv4 identifications of what is made here.
//!
//! What is made here in one packet is atomic: it has DF set and is no fragment (for others see
//! `datagrams.rs`). RFC 6864 (4.1) lets such a packet carry any identification, and nobody puts
//! it together with another one. So it cannot meet the host's own packets in a receiver's
//! reassembly, whatever numbers these have. What the host sends without DF goes on with the
//! host's own number, also cut into fragments again. But boxes exist that clear DF and cut what
//! they should have refused. For their sake numbers repeat as late as they can: there is one
//! count for each source and destination, not for each connection.

use core::net::{IpAddr, Ipv4Addr};

use crate::secret::{Purpose, Secret};

/// Counts, a power of two. Several pairs of addresses may share one, as in Linux (`ip_idents`).
/// Their numbers then come again sooner.
const COUNTS: usize = 1 << 10;

/// The next identification for each source and destination.
pub struct Identifications {
    next: Box<[u16]>,
    secret: Secret,
}

impl Identifications {
    /// Counts that begin anywhere (RFC 7739 has the reasons, for IPv6). The same seed gives the
    /// same ones.
    pub fn new(seed: u64) -> Self {
        let secret = Secret::new(seed, Purpose::Whole);
        let begin = |n| secret.hash(&[n]) as u16;
        Self { next: (0..COUNTS as u64).map(begin).collect(), secret }
    }

    /// For so many packets, which count up from it. IPv6 has none.
    pub fn take(&mut self, src: IpAddr, dst: IpAddr, packets: u32) -> u16 {
        let (IpAddr::V4(src), IpAddr::V4(dst)) = (src, dst) else { return 0 };
        let place = self.place(src, dst);
        let Some(next) = self.next.get_mut(place) else { return 0 };
        core::mem::replace(next, next.wrapping_add(packets as u16))
    }

    fn place(&self, src: Ipv4Addr, dst: Ipv4Addr) -> usize {
        let pair = u64::from(src.to_bits()) << 32 | u64::from(dst.to_bits());
        self.secret.hash(&[pair, 0]) as usize & (COUNTS - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(n: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, n])
    }

    #[test]
    fn a_number_comes_again_when_all_others_have_been() {
        let mut ids = Identifications::new(7);
        let first = ids.take(host(1), host(2), 1);
        let mut taken = 1u32;
        for packets in [45, 1, 3].into_iter().cycle().take(4_000) {
            assert_eq!(ids.take(host(1), host(2), packets), first.wrapping_add(taken as u16));
            taken += packets;
        }
        assert!((60_000..1 << 16).contains(&taken), "every number was another one: {taken}");
    }

    #[test]
    fn each_direction_and_each_pair_has_its_own() {
        let mut ids = Identifications::new(7);
        let pairs = [(host(1), host(2)), (host(2), host(1)), (host(1), host(3))];
        let first = pairs.map(|(src, dst)| ids.take(src, dst, 100));
        let second = pairs.map(|(src, dst)| ids.take(src, dst, 1));
        assert_eq!(second, first.map(|n| n.wrapping_add(100)));
        assert!(first[0] != first[1] && first[0] != first[2], "they begin anywhere: {first:?}");
    }

    #[test]
    fn the_seed_decides_where_they_begin() {
        let first = |seed| Identifications::new(seed).take(host(1), host(2), 1);
        assert_eq!(first(1), first(1));
        assert!((2..10).any(|seed| first(seed) != first(1)));
    }

    #[test]
    fn ipv6_has_none() {
        let six = |n| IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, n]);
        assert_eq!(Identifications::new(7).take(six(1), six(2), 1), 0);
    }
}
