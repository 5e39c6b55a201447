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
