//! Pairs of gateways that have one allowance of a link (XCP): each has a group of its own in the
//! link's queue, whose rate is what routers allow.
//!
//! Engine and queue do not know each other. What the one finds out, the other is told here.

use farlink_egress::{GroupId, MAX_WEIGHT, Share};
use farlink_engine::Wants;
use farlink_engine::link::{PairId, PairShare};
use farlink_wire::Instant;

use crate::gateway::Gateway;
use crate::group;

/// The group of what a flow wants to send to a gateway. Acknowledgements are not what routers
/// count.
pub fn group_of(wants: Wants, pair: Option<PairId>) -> GroupId {
    match (wants, pair) {
        (Wants::Data(_) | Wants::Repeat, Some(pair)) => of_pair(pair),
        (Wants::GatewayAck, _) => group::GATEWAY_ACKS,
        _ => GroupId::DEFAULT,
    }
}

fn of_pair(PairId(n): PairId) -> GroupId {
    GroupId(group::FIRST_PAIR + u32::from(n))
}

/// A pair of several flows has as many parts of what the link's own queue shares out. Routers speak
/// of IP packets, and the queue counts what the link layer adds to each.
fn share_of(pair: PairShare, overhead_bytes: u32) -> Share {
    let on_the_link = |bps: u64| {
        let packet = u128::from(pair.packet_bytes.max(1));
        let bps = u128::from(bps) * (packet + u128::from(overhead_bytes)) / packet;
        u64::try_from(bps).unwrap_or(u64::MAX)
    };
    Share { weight: pair.flows.min(MAX_WEIGHT), rate_bps: pair.rate_bps.map(on_the_link) }
}

impl Gateway {
    /// The queues of links go by what pairs of gateways may send now.
    pub(crate) fn follow_pairs(&mut self, now: Instant) {
        for (way, pair, share) in self.engine.news_of_pairs(now) {
            let Some(link) = self.outlet.link_mut(way) else { continue };
            let overhead_bytes = link.egress.config().overhead_bytes;
            match share {
                None => link.egress.remove_group(now, of_pair(pair)),
                Some(share) => {
                    if !link.egress.set_group(now, of_pair(pair), share_of(share, overhead_bytes)) {
                        self.engine.refuse_pair(way, pair);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_counts_what_the_link_layer_adds() {
        let pair = PairShare { rate_bps: Some(10_000_000), flows: 3, packet_bytes: 1_000 };
        assert_eq!(share_of(pair, 0), Share { weight: 3, rate_bps: Some(10_000_000) });
        assert_eq!(share_of(pair, 100), Share { weight: 3, rate_bps: Some(11_000_000) });
        let silent = PairShare { rate_bps: None, flows: u32::MAX, packet_bytes: 1 };
        assert_eq!(share_of(silent, 100), Share { weight: MAX_WEIGHT, rate_bps: None });
    }

    #[test]
    fn acknowledgements_wait_for_no_pair() {
        assert_eq!(group_of(Wants::Ack, Some(PairId(0))), GroupId::DEFAULT);
        let data = Wants::Data(farlink_engine::config::Class::Bulk);
        assert_eq!(group_of(Wants::Repeat, Some(PairId(0))), group_of(data, Some(PairId(0))), "a copy does");
        assert_eq!(group_of(data, None), GroupId::DEFAULT);
        assert_ne!(group_of(data, Some(PairId(0))), group_of(data, Some(PairId(1))));
    }
}
