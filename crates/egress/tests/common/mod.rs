//! What several of these tests use.
#![allow(dead_code, reason = "each test uses a part")]

pub mod model;

use farlink_egress::{Egress, Grant};
use farlink_wire::time::Instant;

/// A deterministic sequence of numbers below `n`.
pub fn lcg(x: &mut u64, n: u64) -> u64 {
    *x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*x >> 33) % n
}

/// Serves a queue that no rate holds back until nothing is left; how many packets came out.
pub fn take_all<P>(egress: &mut Egress<P>, now: Instant) -> u64 {
    let mut packets = 0;
    while let Some(grant) = egress.next_grant(now) {
        packets += u64::from(matches!(grant, Grant::Packet(_)));
    }
    let stats = egress.stats();
    assert_eq!((stats.backlog_bytes, stats.backlog_packets), (0, 0));
    assert!(egress.is_idle());
    packets
}
