//! IPv4 identifications of datagrams that leave in fragments: none comes again for the same
//! addresses and protocol while fragments of the one before may be under way (RFC 6864 section
//! 4.3). Datagrams that are not fragmented and say "don't fragment" may have any.

use std::collections::HashMap;
use std::net::IpAddr;

use farlink_wire::{Duration, FragmentInfo, Instant};

/// How long a number is not used again: twice the maximum segment lifetime of RFC 9293.
const LIFETIME: Duration = Duration::from_secs(240);
/// Datagrams that are remembered at most. Those beyond are not judged.
const KEPT_MAX: usize = 1 << 20;

/// Source, destination, protocol and identification.
pub type Name = (IpAddr, IpAddr, u8, u32);

/// What has left at one place.
#[derive(Clone, Debug, Default)]
pub struct Identifications {
    left: HashMap<Name, Instant>,
    /// Datagrams in fragments that have left.
    pub datagrams: u64,
    /// Those of them whose identification had been used within the last four minutes.
    pub repeated: u64,
}

impl Identifications {
    /// The name of the datagram whose first fragment this is; `None`: it is another one, or of
    /// IPv6.
    #[must_use]
    pub fn name(fragment: &FragmentInfo) -> Option<Name> {
        let is_first = fragment.offset == 0 && fragment.ip.src.is_ipv4();
        is_first.then_some((fragment.ip.src, fragment.ip.dst, fragment.protocol, fragment.id))
    }

    /// What has left, and when last, in no order.
    pub fn names(&self) -> impl Iterator<Item = (Instant, Name)> + '_ {
        self.left.iter().map(|(name, at)| (*at, *name))
    }

    /// A datagram of this name leaves.
    pub fn leave(&mut self, now: Instant, name: Name) {
        self.datagrams += 1;
        if self.left.len() >= KEPT_MAX && !self.left.contains_key(&name) {
            return;
        }
        let before = self.left.insert(name, now);
        self.repeated += u64::from(before.is_some_and(|at| now.since(at) < LIFETIME));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_comes_again_too_early_is_counted() {
        let host = |n: u8| IpAddr::from([10, 0, 0, n]);
        let mut all = Identifications::default();
        let at = Instant::from_millis;
        all.leave(at(0), (host(1), host(2), 6, 7));
        all.leave(at(1), (host(1), host(3), 6, 7));
        all.leave(at(2), (host(1), host(2), 17, 7));
        all.leave(at(240_000), (host(1), host(2), 6, 7));
        assert_eq!((all.datagrams, all.repeated), (4, 0));
        all.leave(at(479_999), (host(1), host(2), 6, 7));
        assert_eq!((all.datagrams, all.repeated), (5, 1));
    }
}
