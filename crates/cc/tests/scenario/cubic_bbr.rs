//! CUBIC and BBR at once.

use farlink_cc::Kind;

use super::{link, one, secs};
use crate::common::net::Link;

fn delivered(kind: Kind, loss_ppm: u64) -> u64 {
    let mut net = one(kind, Link { loss_ppm, ..link(100, 100) });
    net.run(secs(20));
    net.delivered_in(secs(100))[0]
}

/// A loss without a queue is no sign of congestion: version 1 of BBR, which hosts have,
/// fills such a link, and version 3 alone gives way from 2 % on.
#[test]
fn random_losses_leave_the_link_full() {
    let [alone, both] = [Kind::Bbr, Kind::CubicBbr].map(|kind| delivered(kind, 50_000));
    assert!(both >= 85_000 && alone < both * 3 / 4, "{both} of 95,000, BBR alone {alone}");
}

/// A queue of a twentieth to a fifth of what the path holds. Losses of bursts, and a probe for the
/// RTT that never ended beside CUBIC's window, cost a fifth of what the better of them carries.
#[test]
fn short_queues_cost_little() {
    for buffer_packets in [30, 60, 120] {
        let sent = |kind| {
            let mut net = one(kind, Link { rate_bps: 12_500_000, ..link(500, buffer_packets) });
            net.delivered_in(secs(15))[0]
        };
        let [cubic, bbr, both] = [Kind::Cubic, Kind::Bbr, Kind::CubicBbr].map(sent);
        assert!(both >= cubic.max(bbr) / 10 * 9, "{buffer_packets}: {both}, {cubic} and {bbr} alone");
    }
}
