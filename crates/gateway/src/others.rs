//! How what is not split shares a link with what is: UDP, ICMP, tunnels, and TCP that is only
//! forwarded.
//!
//! It has a group of its own, so that however many connections are split, they never have more than
//! half of the link from it. A call or a stream that needs less than that waits for nobody. Where
//! more flows of it wait than of what is split, it has a flow's share for each.
//!
//! Its queue stands here, and nobody in front of it is told to slow down but by it. So each flow's
//! packets wait for a bounded time (CoDel, RFC 8289). What is split needs no such thing: its source
//! waits when our buffers are full. Nor does TCP that is forwarded get it: how long its sender
//! needs to react is not known here, where acknowledgements come back over a slow link seconds
//! later. Its packets keep those of the same connection waiting, and are bounded by the queue.

use farlink_egress::{Aqm, Class, Egress, Lane, MAX_WEIGHT, Share};
use farlink_wire::{Duration, Instant, edit, ip};

use crate::group;
use crate::kinds::Kind;

/// The interval of a link whose round trip is not known, or short (RFC 8289 4.3).
const INTERVAL_MIN: Duration = Duration::from_millis(100);
const INTERVAL_MAX: Duration = Duration::from_secs(2);
/// A sender that slows down by a third after a round trip keeps the link busy if an eighth of that
/// waits. It waits for itself alone: others have their own turns.
const TARGET_PARTS: u32 = 8;
const TARGET_MAX: Duration = Duration::from_millis(60);
/// What a flow that does not listen waits for.
const BOUND: Duration = Duration::from_millis(20);
/// An empty group costs others a little with each packet: it goes after so long.
const IDLE: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Debug, Default)]
pub struct Others {
    /// The group exists, by these weights: of what is not split, and of what is.
    weights: Option<(u32, u32)>,
    used_at: Instant,
}

impl Others {
    /// Where a packet waits that is not split.
    pub fn lane<P>(&mut self, now: Instant, class: Class, egress: &mut Egress<P>) -> Lane {
        // What keeps connections going is split or not, as it comes.
        if class == Class::Control {
            return class.into();
        }
        self.used_at = now;
        if self.weights.is_none() {
            self.share(now, (1, 1), egress);
        }
        // Without the group it waits with the others.
        Lane { class, group: group::OTHERS }
    }

    fn share<P>(&mut self, now: Instant, weights: (u32, u32), egress: &mut Egress<P>) {
        let of = |weight| Share { weight, rate_bps: None };
        let exists = egress.set_group(now, group::OTHERS, of(weights.0));
        let _ = egress.set_group(now, group::PLAIN, of(weights.1));
        self.weights = exists.then_some(weights);
    }

    /// Time has passed: who waits, and whether anybody does. Returns whether something of it may.
    pub fn follow<P>(&mut self, now: Instant, egress: &mut Egress<P>) -> bool {
        let Some(weights) = self.weights else { return false };
        let waiting = egress.waiting_in(group::OTHERS);
        if waiting == 0 && now.since(self.used_at) > IDLE {
            egress.remove_group(now, group::OTHERS);
            let _ = egress.set_group(now, group::PLAIN, Share::default());
            self.weights = None;
            return false;
        }
        let plain = egress.waiting_in(group::PLAIN);
        let split = egress.waiting().saturating_sub(waiting);
        let wanted = weights_of(waiting, (plain, split));
        if wanted != weights {
            self.share(now, wanted, egress);
        }
        true
    }
}

/// Of so many flows that are not split and wait, and so many that are: in the default group, and
/// with those that have groups of their own, of a weight for each flow (XCP). Only the ratio of
/// the two counts where there are no others.
fn weights_of(others: usize, (plain, split): (usize, usize)) -> (u32, u32) {
    if plain == split && others <= split {
        return (1, 1);
    }
    let weight = |flows: usize| u32::try_from(flows).unwrap_or(MAX_WEIGHT).clamp(1, MAX_WEIGHT);
    (weight(others.max(split)), weight(plain))
}

/// How long packets may wait, where the largest takes so long on the link, and it takes so long
/// until all of them who wait have had a turn.
pub fn aqm(rtt: Option<Duration>, packet: Duration, round: Duration) -> Aqm {
    let interval = rtt.unwrap_or(INTERVAL_MIN).clamp(INTERVAL_MIN, INTERVAL_MAX);
    let usual = Aqm::default();
    Aqm {
        target: (interval / TARGET_PARTS).clamp(usual.target, TARGET_MAX) + packet / 2 * 3 + round,
        interval,
        bound: BOUND + 2 * packet + round,
    }
}

/// It waits for a bounded time (see the module).
pub fn is_managed(class: Class, kind: Kind) -> bool {
    class != Class::Control && kind != Kind::Tcp
}

/// Its sender understands marks (RFC 3168).
pub fn can_be_marked(packet: &[u8]) -> bool {
    ip::traffic_class(packet).is_some_and(|class| class & 3 != 0)
}

/// Tells the receiver, and by it the sender, that the path is congested (RFC 3168 section 5).
pub fn mark(packet: &mut [u8]) {
    if let Some(class) = ip::traffic_class(packet) {
        edit::write_traffic_class(packet, class | 3);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_split_has_half_at_least_and_a_share_for_each_flow() {
        assert_eq!(weights_of(1, (1, 1)), (1, 1));
        assert_eq!(weights_of(1, (40, 40)), (1, 1));
        assert_eq!(weights_of(40, (1, 1)), (40, 1));
        assert_eq!(weights_of(3, (2, 2)), (3, 2));
        assert_eq!(weights_of(0, (0, 0)), (1, 1));
        assert_eq!(weights_of(usize::MAX, (0, 0)), (MAX_WEIGHT, 1));
        // The forty have a group of weight 40.
        assert_eq!(weights_of(1, (0, 40)), (40, 1));
    }

    #[test]
    fn the_group_exists_while_somebody_uses_it() {
        let mut egress = Egress::<u8>::new(farlink_egress::Config {
            rate_bps: Some(8_000_000),
            ..farlink_egress::Config::default()
        });
        let mut others = Others::default();
        let now = Instant::from_millis(1_000);
        assert_eq!(others.lane(now, Class::Control, &mut egress), Class::Control.into());
        assert!(others.weights.is_none(), "nothing of it has come");
        let lane = others.lane(now, Class::Bulk, &mut egress);
        assert_eq!(lane.group, group::OTHERS);
        for flow in 0..12 {
            assert!(egress.enqueue(now, flow, lane, 1_500_u32, 0).is_empty());
        }
        egress.set_ready(now, 99, Class::Bulk);
        others.follow(now, &mut egress);
        assert_eq!(others.weights, Some((12, 1)));
        others.follow(now + Duration::from_secs(60), &mut egress);
        assert!(others.weights.is_some(), "something waits");
        assert_eq!(egress.take_packets(now).len(), 12);
        others.follow(now + Duration::from_secs(60), &mut egress);
        assert_eq!(others.weights, None);
    }

    #[test]
    fn the_target_follows_the_round_trip_and_the_packet() {
        let ms = Duration::from_millis;
        let satellite = aqm(Some(ms(500)), ms(2), ms(0));
        assert_eq!((satellite.interval, satellite.target, satellite.bound), (ms(500), ms(63), ms(24)));
        let unknown = aqm(None, ms(0), ms(0));
        assert_eq!((unknown.interval, unknown.target), (ms(100), Duration::from_micros(12_500)));
        let crowd = aqm(Some(ms(500)), ms(2), ms(120));
        assert_eq!((crowd.target, crowd.bound), (ms(183), ms(144)));
    }
}
