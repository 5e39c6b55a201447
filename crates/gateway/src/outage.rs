//! What of the forwarded packets that wait for a link that is away is still worth sending.

use std::collections::BTreeMap;

use farlink_wire::Duration;

use crate::kinds::Kind;
use crate::links::Waiting;

/// A forwarded packet waits so long for a link that is down. Its source has long repeated it then,
/// and what comes after two minutes may meet another connection of the same ports (RFC 9293 section
/// 3.4.1, MSL).
pub const WAIT_MAX: Duration = Duration::from_secs(60);
/// Of each flow that is no TCP so much goes out when the link is back, the newest. A measurement
/// that was sent once is not lost, and a call does not wait for what it has said meanwhile.
const KEPT_BYTES: usize = 64 << 10;

/// Of these packets, those of a flow in their order, which are among its newest; of TCP all are.
pub fn newest(waiting: &[Waiting]) -> Vec<bool> {
    let mut bytes: BTreeMap<u64, usize> = BTreeMap::new();
    let mut is_newest = |waiting: &Waiting| {
        let sum = bytes.entry(waiting.hash).or_default();
        *sum += waiting.packet.len();
        matches!(waiting.kind, Kind::Tcp | Kind::Split) || *sum <= KEPT_BYTES
    };
    let mut all: Vec<bool> = waiting.iter().rev().map(&mut is_newest).collect();
    all.reverse();
    all
}

#[cfg(test)]
mod tests {
    use farlink_egress::Class;
    use farlink_engine::net::IfaceId;
    use farlink_wire::{Instant, Offload, PacketBuf};

    use super::*;

    #[test]
    fn the_newest_of_each_flow_are_kept_and_all_of_tcp() {
        let waiting = |hash: u64, kind: Kind| Waiting {
            packet: PacketBuf::outside(vec![7; 1_024], Offload::default()),
            via: IfaceId(1).into(),
            since: Instant::ZERO,
            hash,
            is_shared: false,
            class: Class::Bulk,
            kind,
        };
        let mut all: Vec<Waiting> = (0..100).map(|_| waiting(1, Kind::Udp)).collect();
        all.extend((0..10).map(|_| waiting(2, Kind::Icmp)));
        all.extend((0..100).map(|_| waiting(3, Kind::Tcp)));
        let is_kept = newest(&all);
        assert!(is_kept[..36].iter().all(|kept| !kept), "the oldest");
        assert!(is_kept[36..].iter().all(|kept| *kept));
    }
}
