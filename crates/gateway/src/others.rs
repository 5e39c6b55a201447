//! How what is not split shares a link with what is: UDP, ICMP, tunnels, and TCP that is only
//! forwarded.
//!
//! It has a group of its own, so that however many connections are split, they never have more than
//! half of the link from it. A call or a stream that needs less than that waits for nobody. Where
//! more flows of it wait than of what is split, it has a flow's share for each. An operator may
//! choose other shares.
//!
//! Where very many flows wait, they are those of hosts that scan, or flood with ports of all kinds.
//! Then a host is one flow, and where hosts are many they share a few.
//!
//! Its queue stands here, and nobody in front of it is told to slow down but by it. So each flow's
//! packets wait for a bounded time (CoDel, RFC 8289). What is split needs no such thing: its source
//! waits when our buffers are full. TCP that is forwarded is given more time: how long its sender
//! needs to react is not known here, and it always does in the end. Where few acknowledgements fit
//! the way back it is left alone: it would be long before it had repaired what was dropped.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use farlink_egress::{Aqm, Class, Egress, Lane, MAX_WEIGHT, Managed, Share};
use farlink_engine::config::Weights;
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
/// Of TCP that is forwarded the round trip is the link's and what lies behind it, and its
/// acknowledgements may wait, too. One that slows down by a third keeps the link busy if half a
/// round trip waits.
const TCP_INTERVALS: u32 = 2;
const TCP_TARGET_PARTS: u32 = 2;
/// After a loss a host acknowledges each packet, which is such a part of it in size. Where less
/// comes back, what is dropped costs tens of seconds: CUBIC needs 68 s for 20 MB over 8 Mbit/s and
/// 64 kbit/s, which are 23 s without a drop.
const ACK_PARTS: u64 = 20;
/// Where not even the link's is known.
const TCP_RTT: Duration = Duration::from_millis(500);
/// What a flow that does not listen waits for.
const BOUND: Duration = Duration::from_millis(10);
/// From so many flows that wait on, those that join them are told apart by their hosts alone.
const CROWD: usize = 32;
/// And for so long afterwards: a flood whose packets are dropped looks like few flows.
const CROWD_FOR: Duration = Duration::from_secs(10);
/// From so many on, hosts share this number of flows.
const CROWD_OF_HOSTS: usize = 96;
pub const CROWD_FLOWS: u64 = 64;
/// ICMP errors go first as long as they take no more than this part of the link (one over it).
const ERRORS_PARTS: u64 = 16;
/// And so many bytes of them at once, in any case.
const ERRORS_BURST_BYTES: u64 = 16_000;
/// An empty group costs others a little with each packet: it goes after so long.
const IDLE: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Debug, Default)]
pub struct Others {
    /// The group exists, by these weights: of what is not split, and of what is.
    weights: Option<(u32, u32)>,
    used_at: Instant,
    /// What an operator has chosen.
    chosen: Option<Weights>,
    /// Very many flows waited last.
    crowded_at: Option<Instant>,
    /// ICMP errors that have gone first have had their time by then.
    errors_until: Instant,
    /// Connections of which packets wait in a flow that they share with others: which, and how
    /// many.
    shared: BTreeMap<u64, (u64, u32)>,
}

impl Others {
    /// What is split and what is not share the link by these; `None`: by how many flows wait.
    pub fn sharing_by(chosen: Option<Weights>) -> Self {
        Self { chosen, ..Self::default() }
    }

    /// See [`Self::sharing_by`].
    pub fn chosen(&self) -> Option<Weights> {
        self.chosen
    }

    /// In how many turns of the link one is theirs, at least.
    pub fn turns(&self) -> u64 {
        let Weights { split, forwarded } = self.chosen.unwrap_or_default();
        1 + u64::from(split.div_ceil(forwarded.max(1)))
    }

    /// They share it by these from the next look on.
    pub fn choose(&mut self, chosen: Option<Weights>) {
        self.chosen = chosen;
    }

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

    /// The flow in which a packet of this connection and this host waits. One of which packets wait
    /// already goes on where they are, so that they keep their order.
    pub fn flow<P>(
        &mut self,
        now: Instant,
        (connection, host): (u64, impl FnOnce() -> u64),
        lane: Lane,
        egress: &Egress<P>,
    ) -> u64 {
        if lane.class == Class::Control || egress.is_waiting(connection, lane) {
            return connection;
        }
        let waiting = egress.waiting_in(lane.group);
        if waiting >= CROWD {
            self.crowded_at = Some(now);
        }
        let is_crowded = self.crowded_at.is_some_and(|at| now.since(at) < CROWD_FOR);
        let (flow, packets) = match self.shared.get(&connection) {
            Some(shared) => *shared,
            None if !is_crowded => return connection,
            None if waiting < CROWD_OF_HOSTS => (host(), 0),
            None => {
                let host = host();
                ((host & (1 << 63)) | (host % CROWD_FLOWS), 0)
            }
        };
        self.shared.insert(connection, (flow, packets + 1));
        flow
    }

    /// A packet of this connection waits no longer.
    pub fn note_left(&mut self, connection: u64) {
        if let Entry::Occupied(mut shared) = self.shared.entry(connection) {
            shared.get_mut().1 -= 1;
            if shared.get().1 == 0 {
                shared.remove();
            }
        }
    }

    /// An ICMP error of so many bytes goes before everything else. A flood of them does not.
    pub fn lets_error_go_first(&mut self, now: Instant, bytes: u32, rate_bps: Option<u64>) -> bool {
        let Some(rate_bps) = rate_bps else { return true };
        let time_of = |bytes: u64| {
            let ns = u128::from(bytes * ERRORS_PARTS * 8) * 1_000_000_000 / u128::from(rate_bps.max(1));
            Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX / 2))
        };
        let taken_until = self.errors_until.max(now);
        let goes_first = taken_until.since(now) <= time_of(ERRORS_BURST_BYTES);
        if goes_first {
            self.errors_until = taken_until + time_of(bytes.into());
        }
        goes_first
    }

    fn share<P>(&mut self, now: Instant, weights: (u32, u32), egress: &mut Egress<P>) {
        let of = |weight| Share { weight, rate_bps: None };
        let exists = egress.set_group(now, group::OTHERS, of(weights.0));
        let _ = egress.set_group(now, group::PLAIN, of(weights.1));
        self.weights = exists.then_some(weights);
    }

    /// Something of it has come within this time: a call or a stream goes on, perhaps, and would
    /// notice what waits before the link.
    pub fn has_come_within(&self, now: Instant, time: Duration) -> bool {
        self.weights.is_some() && now.since(self.used_at) < time
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
        let wanted = match self.chosen {
            Some(chosen) => weights_by(chosen, (plain, split)),
            None => weights_of(waiting, (plain, split)),
        };
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
    (weight(others.max(split)), weight(plain))
}

/// The same where an operator has chosen.
fn weights_by(chosen: Weights, (plain, split): (usize, usize)) -> (u32, u32) {
    if plain == split {
        return (chosen.forwarded, chosen.split);
    }
    let [forwarded_parts, split_parts] = [chosen.forwarded, chosen.split].map(|parts| parts as usize);
    (weight(split.saturating_mul(forwarded_parts).div_ceil(split_parts.max(1))), weight(plain))
}

fn weight(flows: usize) -> u32 {
    u32::try_from(flows).unwrap_or(MAX_WEIGHT).clamp(1, MAX_WEIGHT)
}

/// How long packets may wait, where the largest takes so long on the link, and it takes so long
/// until all of them who wait have had a turn.
pub fn aqm(rtt: Option<Duration>, packet: Duration, round: Duration) -> Aqm {
    let interval = rtt.unwrap_or(INTERVAL_MIN).clamp(INTERVAL_MIN, INTERVAL_MAX);
    let usual = Aqm::default();
    Aqm {
        target: (interval / TARGET_PARTS).clamp(usual.target, TARGET_MAX) + packet / 2 * 3 + round,
        interval,
        most: interval + packet + round,
        bound: BOUND + 2 * packet + round,
    }
}

/// The same of TCP: whoever sends it listens, sooner or later. `rates`: the link's, and what comes
/// back over it, where that is known.
pub fn aqm_of_tcp(
    rtt: Option<Duration>,
    rates: (Option<u64>, Option<u64>),
    (packet, round): (Duration, Duration),
) -> Aqm {
    if let (Some(bps), Some(back_bps)) = rates
        && back_bps.saturating_mul(ACK_PARTS) < bps
    {
        return Aqm { target: Duration::MAX, most: Duration::MAX, ..Aqm::default() };
    }
    let rtt = rtt.unwrap_or(TCP_RTT).clamp(INTERVAL_MIN, INTERVAL_MAX);
    Aqm {
        target: rtt / TCP_TARGET_PARTS + packet / 2 * 3 + round,
        interval: TCP_INTERVALS * rtt,
        most: Duration::MAX,
        bound: Duration::MAX,
    }
}

/// How it is managed (see the module); `None`: it waits as long as it takes.
pub fn managed(class: Class, kind: Kind, packet: &[u8]) -> Option<Managed> {
    // By RFC 3168 the sender of such a packet understands marks.
    let can_be_marked = || ip::traffic_class(packet).is_some_and(|class| class & 3 != 0);
    (class != Class::Control).then(|| Managed { can_be_marked: can_be_marked(), is_tcp: kind == Kind::Tcp })
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

    /// The queue of a link of 8 Mbit/s.
    fn egress<P>() -> Egress<P> {
        let rate_bps = Some(8_000_000);
        Egress::new(farlink_egress::Config { rate_bps, ..farlink_egress::Config::default() })
    }

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
    fn what_an_operator_has_chosen_holds_however_many_flows_wait() {
        let chosen = Weights { split: 3, forwarded: 1 };
        assert_eq!(weights_by(chosen, (40, 40)), (1, 3));
        assert_eq!(weights_by(chosen, (0, 0)), (1, 3));
        // Of thirty-six two are in the default group, and the others in groups of a weight each.
        assert_eq!(weights_by(chosen, (2, 36)), (12, 2));
        assert_eq!(weights_by(Weights { split: 1000, forwarded: 1 }, (0, 5)), (1, 1));
    }

    #[test]
    fn the_group_exists_while_somebody_uses_it() {
        let mut egress = egress::<u8>();
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
    fn a_flood_of_flows_of_one_host_is_one_flow_and_delays_nobody_else() {
        let mut egress = egress::<u64>();
        let (mut others, mut now) = (Others::default(), Instant::from_millis(1_000));
        let (flood, caller, mut worst) = (7_u64 << 40, 9_u64 << 40, 0);
        let mut called = None;
        // Twice what the link carries, each packet by another port; and a call all the while.
        for n in 0..20_000_u64 {
            let lane = others.lane(now, Class::Bulk, &mut egress);
            let flow = others.flow(now, (1 << 50 | n, || flood), lane, &egress);
            let managed = Managed { can_be_marked: false, is_tcp: false };
            let victims = egress.enqueue_managed(now, flow, lane, 1_200_u32, (1 << 50 | n, managed));
            victims.into_iter().for_each(|connection| others.note_left(connection));
            if n % 33 == 0 && called.is_none() {
                let flow = others.flow(now, (1 << 51, || caller), lane, &egress);
                drop(egress.enqueue_managed(now, flow, lane, 200_u32, (1 << 51, managed)));
                called = Some(n);
            }
            now += Duration::from_micros(600);
            others.follow(now, &mut egress);
            let mut left: Vec<u64> = Vec::new();
            while let Some(farlink_egress::Grant::Packet(packet)) = egress.next_grant(now) {
                if packet == 1 << 51 {
                    worst = worst.max(called.take().map_or(0, |at| n - at));
                }
                left.push(packet);
            }
            left.extend(egress.take_dropped());
            left.into_iter().for_each(|connection| others.note_left(connection));
        }
        assert!(called.is_none_or(|at| at > 19_000) && worst < 170, "{worst} packets: a tenth of a second");
        assert!(egress.waiting_in(group::OTHERS) <= CROWD + 2, "{}", egress.waiting_in(group::OTHERS));
        // When it is over, everybody has his own flow again.
        egress.take_packets(now).into_iter().for_each(|connection| others.note_left(connection));
        assert!(others.shared.is_empty());
        now += CROWD_FOR;
        let lane = others.lane(now, Class::Bulk, &mut egress);
        assert_eq!(others.flow(now, (1 << 50, || flood), lane, &egress), 1 << 50);
    }

    #[test]
    fn a_connection_keeps_its_flow_as_long_as_its_packets_wait() {
        let mut egress = egress::<u64>();
        let (mut others, now) = (Others::default(), Instant::from_millis(1_000));
        let mut packet = |others: &mut Others, connection: u64, host: u64| {
            let lane = others.lane(now, Class::Bulk, &mut egress);
            let flow = others.flow(now, (connection, || host), lane, &egress);
            assert!(egress.enqueue(now, flow, lane, 100_u32, connection).is_empty());
            flow
        };
        let (early, late, host) = (7, 1 << 40, 5 << 20);
        assert_eq!(packet(&mut others, early, host), early);
        for n in 0..100 {
            packet(&mut others, 1 << 50 | n, 9 << 20);
        }
        assert_eq!(packet(&mut others, late, host), host);
        for n in 0..200 {
            packet(&mut others, 1 << 51 | n, n << 20 | n);
        }
        // By now hosts share a few.
        assert!(packet(&mut others, 1 << 52, 3 << 20 | 3) < CROWD_FLOWS);
        assert_eq!((packet(&mut others, early, host), packet(&mut others, late, host)), (early, host));
        for _ in 0..2 {
            others.note_left(late);
        }
        assert!(packet(&mut others, late, host) < CROWD_FLOWS, "all of it has left");
    }

    #[test]
    fn very_many_hosts_share_a_few_flows() {
        let mut egress = egress::<u64>();
        let (mut others, now) = (Others::default(), Instant::from_millis(1_000));
        for n in 0..3_000_u64 {
            let lane = others.lane(now, Class::Bulk, &mut egress);
            let flow = others.flow(now, (1 << 50 | n, || n << 20 | n), lane, &egress);
            drop(egress.enqueue(now, flow, lane, 100_u32, n));
        }
        let most = CROWD_OF_HOSTS + CROWD_FLOWS as usize;
        assert!(egress.waiting_in(group::OTHERS) <= most, "{}", egress.waiting_in(group::OTHERS));
    }

    #[test]
    fn a_flood_of_icmp_errors_does_not_go_first() {
        let mut others = Others::default();
        let mut first = 0;
        // As much as the link carries, for a second.
        for n in 0..1_000 {
            let now = Instant::from_millis(1_000 + n);
            first += u64::from(others.lets_error_go_first(now, 1_000, Some(8_000_000)));
        }
        assert!((62..=62 + 18).contains(&first), "{first}");
        // However short the times in between are.
        let mut others = Others::default();
        let at = |n: u64| Instant::from_millis(1_000) + Duration::from_micros(10 * n);
        let first = (0..100_000).filter(|n| others.lets_error_go_first(at(*n), 64, Some(8_000_000))).count();
        assert!((970..=970 + 260).contains(&first), "{first}");
        assert!(others.lets_error_go_first(Instant::from_millis(9_000), 1_000, Some(8_000_000)));
        assert!(others.lets_error_go_first(Instant::from_millis(9_000), 1_000, None));
    }

    #[test]
    fn acknowledgements_that_wait_are_no_flows_that_share_the_link() {
        let rate_bps = Some(1_000_000);
        let mut egress = Egress::<u8>::new(farlink_egress::Config { rate_bps, ..Default::default() });
        let (mut others, now) = (Others::default(), Instant::from_millis(1_000));
        crate::acks::follow(now, &mut egress);
        let lane = others.lane(now, Class::Bulk, &mut egress);
        assert!(egress.enqueue(now, 1, lane, 1_500_u32, 0).is_empty());
        egress.set_ready(now, 2, Class::Bulk);
        for flow in 3..13 {
            egress.set_ready(now, flow, Lane { class: Class::Control, group: group::GATEWAY_ACKS });
        }
        others.follow(now, &mut egress);
        assert_eq!(others.weights, Some((1, 1)));
        others.choose(Some(Weights { split: 3, forwarded: 1 }));
        others.follow(now, &mut egress);
        assert_eq!(others.weights, Some((1, 3)));
    }

    #[test]
    fn a_mark_changes_nothing_else() {
        let mut v4 = vec![0x45, 0xb9, 0, 28, 0, 9, 0x40, 0, 63, 17, 0, 0, 10, 0, 1, 1, 10, 0, 2, 1];
        let sum = !farlink_wire::checksum::sum(&v4);
        v4[10..12].copy_from_slice(&sum.to_be_bytes());
        let mut v6 = vec![0x6b, 0x9a, 0xbc, 0xde, 0, 0, 17, 63];
        v6.extend_from_slice(&[1; 32]);
        for (mut packet, dscp) in [(v4, 46), (v6, 46)] {
            let before = packet.clone();
            mark(&mut packet);
            assert_eq!(ip::traffic_class(&packet), Some(dscp << 2 | 3));
            match packet[0] >> 4 {
                4 => assert_eq!(farlink_wire::checksum::sum(&packet), 0xffff),
                _ => assert_eq!(ip::flow_label(&packet), ip::flow_label(&before)),
            }
            edit::write_traffic_class(&mut packet, dscp << 2 | 1);
            assert_eq!(packet, before);
        }
    }

    #[test]
    fn the_target_follows_the_round_trip_and_the_packet() {
        let ms = Duration::from_millis;
        let satellite = aqm(Some(ms(500)), ms(2), ms(0));
        assert_eq!((satellite.interval, satellite.target, satellite.bound), (ms(500), ms(63), ms(14)));
        let unknown = aqm(None, ms(0), ms(0));
        assert_eq!((unknown.interval, unknown.target), (ms(100), Duration::from_micros(12_500)));
        let tcp = aqm_of_tcp(Some(ms(500)), (Some(8_000_000), Some(400_000)), (ms(2), ms(0)));
        assert_eq!((tcp.interval, tcp.target, tcp.bound), (ms(1000), ms(253), Duration::MAX));
        let starved = aqm_of_tcp(Some(ms(500)), (Some(8_000_000), Some(300_000)), (ms(2), ms(0)));
        assert_eq!(starved.target, Duration::MAX);
        let crowd = aqm(Some(ms(500)), ms(2), ms(120));
        assert_eq!((crowd.target, crowd.bound), (ms(183), ms(134)));
    }
}
