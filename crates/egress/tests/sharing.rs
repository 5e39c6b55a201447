//! Who gets the link: flows among each other, classes, new flows, and who loses when the queue is
//! full.

mod common;

use std::collections::BTreeMap;

use common::{lcg, take_all};
use farlink_egress::{Aqm, Class, Config, Egress, Grant, GroupId, Lane, Managed, Share};
use farlink_wire::time::{Duration, Instant};

/// A packet says which flow it is of and how long it is.
type Packet = (u64, u32);

fn queue(rate_bps: u64) -> Egress<Packet> {
    Egress::new(Config { rate_bps: Some(rate_bps), queue_limit_bytes: 16 << 20, ..Config::default() })
}

/// Serves until the time has come; flows use all of each grant. Returns bytes per flow.
fn serve(egress: &mut Egress<Packet>, now: &mut Instant, until: Instant) -> BTreeMap<u64, u64> {
    let mut bytes = BTreeMap::new();
    while *now < until {
        while let Some(grant) = egress.next_grant(*now) {
            match grant {
                Grant::Packet((flow, size)) | Grant::Marked((flow, size)) => {
                    *bytes.entry(flow).or_default() += u64::from(size)
                }
                Grant::Flow { id, bytes: budget, .. } => {
                    egress.used(*now, id, budget, 1, true);
                    *bytes.entry(id).or_default() += u64::from(budget);
                }
            }
        }
        let Some(wake) = egress.poll_timeout() else { return bytes };
        *now = wake.max(*now);
    }
    bytes
}

/// All of these go on; whoever else was ready has nothing to send any more.
fn only(egress: &mut Egress<Packet>, now: Instant, flows: &[(u64, Class)]) {
    egress.take_ready(now);
    flows.iter().for_each(|(flow, class)| egress.set_ready(now, *flow, *class));
}

/// Flows of owned packets of all sizes and flows of the engine: equal shares to a quantum.
#[test]
fn shares_are_equal_within_a_quantum() {
    for rate in [1_000_000, 50_000_000] {
        let mut egress = queue(rate);
        let mut now = Instant::from_millis(1);
        let mut x = 7;
        for flow in 0..6 {
            let mut backlog = 0;
            while backlog < 2_000_000 {
                let size = match flow {
                    0 => 64,
                    1 => 1500,
                    2 => 577,
                    3 => 9000,
                    _ => 64 + lcg(&mut x, 1436) as u32,
                };
                backlog += size;
                assert!(egress.enqueue(now, flow, Class::Bulk, size, (flow, size)).is_empty());
            }
        }
        egress.set_ready(now, 6, Class::Bulk);
        egress.set_ready(now, 7, Class::Bulk);
        let quantum = u64::from(egress.burst_bytes());
        let until = Instant::from_millis(8_000_000 * 8 / (rate / 1000));
        let bytes = serve(&mut egress, &mut now, until);
        let (min, max) = (bytes.values().min().unwrap(), bytes.values().max().unwrap());
        assert_eq!(bytes.len(), 8);
        assert!(*min > 900_000, "{bytes:?}");
        // One quantum, and the packet that went over its end.
        assert!(max - min <= quantum + 9000, "{rate}: {bytes:?}");
    }
}

/// Connections that owe the next acknowledgement before the link has carried one: a slow return
/// link.
#[test]
fn acknowledgements_take_turns_one_by_one() {
    const FLOWS: u64 = 8;
    let mut egress = queue(32_000);
    let mut now = Instant::from_millis(1);
    (0..FLOWS).for_each(|flow| egress.set_ready(now, flow, Class::Control));
    let mut order = Vec::new();
    while order.len() < 400 {
        match egress.next_grant(now) {
            Some(Grant::Flow { id, .. }) => {
                egress.used(now, id, 76, 1, false);
                egress.set_ready(now, id, Class::Control);
                order.push(id);
            }
            _ => now = egress.poll_timeout().unwrap(),
        }
    }
    for (at, some) in order.windows(20).enumerate() {
        let missing: Vec<_> = (0..FLOWS).filter(|flow| !some.contains(flow)).collect();
        assert!(missing.is_empty(), "{missing:?} got no turn of twenty from {at} on: {some:?}");
    }
}

#[test]
fn a_new_flow_goes_first() {
    let mut egress = queue(8_000_000);
    let mut now = Instant::from_millis(1);
    for flow in 0..1000 {
        egress.set_ready(now, flow, Class::Bulk);
    }
    serve(&mut egress, &mut now, Instant::from_millis(3_000));
    assert!(egress.enqueue(now, 5_000, Class::Bulk, 100, (5_000, 100)).is_empty());
    assert_eq!(egress.next_grant(egress.poll_timeout().unwrap()), Some(Grant::Packet((5_000, 100))));
}

/// Ever new flows of one packet each do not shut out one that is there.
#[test]
fn a_flood_of_new_flows_starves_nobody() {
    let mut egress = queue(8_000_000);
    let mut now = Instant::from_millis(1);
    egress.set_ready(now, 1, Class::Bulk);
    serve(&mut egress, &mut now, Instant::from_millis(20));
    let mut served = 0;
    for flow in 0..10_000_u64 {
        for copy in 0..2 {
            assert!(egress.enqueue(now, 10 + 2 * flow + copy, Class::Bulk, 1000, (0, 1000)).is_empty());
        }
        now = egress.poll_timeout().unwrap();
        if let Some(Grant::Flow { id, bytes, .. }) = egress.next_grant(now) {
            egress.used(now, id, bytes.min(1000), 1, true);
            served += 1;
        }
    }
    assert!(served >= 1000, "{served} of 10,000");
}

#[test]
fn classes_are_strict_within_limits() {
    let mut egress = queue(8_000_000);
    let mut now = Instant::from_millis(1);
    egress.set_ready(now, 3, Class::Background);
    egress.set_ready(now, 2, Class::Bulk);
    egress.set_ready(now, 1, Class::Interactive);
    egress.set_ready(now, 0, Class::Control);
    let until = Instant::from_millis(16_001);
    let bytes = serve(&mut egress, &mut now, until);
    let share = |flow| bytes.get(&flow).map_or(0, |b: &u64| (b + 80_000) / 160_000);
    // Of 16 MB in percent: three quarters, three quarters of the rest, the rest, nothing.
    assert_eq!([share(0), share(1), share(2), share(3)], [75, 19, 6, 0], "{bytes:?}");

    // A packet of a higher class waits for nobody as long as its class is modest.
    only(&mut egress, now, &[(3, Class::Background), (2, Class::Bulk), (1, Class::Interactive)]);
    let mut worst = 0;
    for i in 0..200 {
        let until = Instant::from_millis(17_000 + i * 20);
        serve(&mut egress, &mut now, until);
        assert!(egress.enqueue(now, 9, Class::Control, 60, (9, 60)).is_empty());
        let mut others = 0;
        loop {
            now = egress.poll_timeout().unwrap().max(now);
            match egress.next_grant(now) {
                Some(Grant::Packet(_) | Grant::Marked(_)) => break,
                Some(Grant::Flow { id, bytes, .. }) => {
                    others += 1;
                    egress.used(now, id, bytes, 1, true);
                }
                None => {}
            }
        }
        worst = worst.max(others);
    }
    assert_eq!(worst, 0);
}

#[test]
fn background_takes_every_idle_moment_and_no_other() {
    let mut egress = queue(8_000_000);
    let mut now = Instant::from_millis(1);
    egress.set_ready(now, 3, Class::Background);
    let bytes = serve(&mut egress, &mut now, Instant::from_millis(1_001));
    assert!((998_000..=1_002_000).contains(&bytes[&3]), "alone it has the link: {bytes:?}");
    egress.set_ready(now, 2, Class::Bulk);
    let bytes = serve(&mut egress, &mut now, Instant::from_millis(2_001));
    assert_eq!(bytes.get(&3), None, "{bytes:?}");
    only(&mut egress, now, &[(3, Class::Background)]);
    let bytes = serve(&mut egress, &mut now, Instant::from_millis(3_001));
    assert!((997_000..=1_002_000).contains(&bytes[&3]), "{bytes:?}");
}

#[test]
fn the_longest_flow_loses_its_oldest_packet() {
    let mut egress =
        Egress::new(Config { queue_limit_bytes: 10_000, rate_bps: Some(8_000), ..Config::default() });
    let now = Instant::from_millis(1);
    for i in 0..9 {
        assert!(egress.enqueue(now, 1, Class::Bulk, 1000, (1, i)).is_empty());
    }
    assert!(egress.enqueue(now, 2, Class::Bulk, 1000, (2, 0)).is_empty());
    assert_eq!(egress.enqueue(now, 2, Class::Bulk, 1000, (2, 1)), [(1, 0)]);
    assert_eq!(egress.enqueue(now, 1, Class::Bulk, 1000, (1, 9)), [(1, 1)]);
    // A large packet may cost several small ones.
    assert_eq!(egress.enqueue(now, 3, Class::Control, 3000, (3, 0)), [(1, 2), (1, 3), (1, 4)]);
    let stats = egress.stats();
    assert_eq!((stats.dropped_packets, stats.dropped_bytes), (5, 5000));
    assert_eq!((stats.backlog_bytes, stats.backlog_packets, stats.backlog_max_bytes), (10_000, 8, 10_000));
    // One that does not fit at all goes itself, when all others have.
    assert!(egress.enqueue(now, 4, Class::Bulk, 11_000, (4, 0)).contains(&(4, 0)));
    assert!(egress.stats().backlog_bytes <= 10_000);
}

#[test]
fn small_packets_are_counted_too() {
    let mut egress =
        Egress::new(Config { queue_limit_packets: 10, rate_bps: Some(8_000), ..Config::default() });
    let now = Instant::from_millis(1);
    let victims = (0..50).map(|i| egress.enqueue(now, 1, Class::Bulk, 40, (1, i)).len());
    assert_eq!(victims.sum::<usize>(), 40);
    assert_eq!(egress.stats().backlog_packets, 10);
}

/// A packet each of ever new flows, far more than the link carries: memory stays bounded by the
/// queue's limit.
#[test]
fn a_flood_of_flows_leaves_nothing_behind() {
    let mut egress =
        Egress::new(Config { queue_limit_bytes: 64_000, rate_bps: Some(1_000_000), ..Config::default() });
    let mut now = Instant::from_millis(1);
    egress.set_ready(now, 0, Class::Bulk);
    for flow in 1..50_000 {
        now = Instant::from_nanos(now.as_nanos() + 10_000);
        egress.enqueue(now, flow, Class::Bulk, 40, (flow, 40));
        if let Some(Grant::Flow { id, .. }) = egress.next_grant(now) {
            egress.used(now, id, 1000, 1, true);
        }
        let stats = egress.stats();
        assert!(stats.flows <= 2 * 1001 + 1025, "{}", stats.flows);
    }
    assert!(egress.stats().sent_bytes >= 60_000, "{}", egress.stats().sent_bytes);
}

#[test]
fn readiness() {
    let mut egress = Egress::<()>::new(Config::default());
    let now = Instant::from_millis(1);
    for _ in 0..5 {
        egress.set_ready(now, 1, Class::Bulk);
    }
    egress.set_ready(now, 1, Class::Control);
    // Twice in the queue, in two classes; the grant says which.
    assert!(matches!(egress.next_grant(now), Some(Grant::Flow { id: 1, class: Class::Control, .. })));
    egress.used(now, 1, 40, 1, false);
    assert!(matches!(egress.next_grant(now), Some(Grant::Flow { id: 1, class: Class::Bulk, .. })));
    // Nothing used: out of the round, whatever it says.
    egress.used(now, 1, 0, 0, true);
    assert_eq!(egress.next_grant(now), None);
    assert_eq!(egress.poll_timeout(), None);
    // An unanswered grant counts as not used.
    egress.set_ready(now, 1, Class::Bulk);
    assert!(egress.next_grant(now).is_some());
    assert_eq!(egress.next_grant(now), None);
    // Taken while granted.
    egress.set_ready(now, 1, Class::Bulk);
    egress.set_ready(now, 2, Class::Bulk);
    assert!(matches!(egress.next_grant(now), Some(Grant::Flow { id: 1, .. })));
    assert_eq!(egress.take_ready(now), [1, 2]);
    egress.used(now, 1, 0, 0, false);
    assert!(egress.is_idle());
    assert_eq!(egress.stats().sent_bytes, 40);
}

/// Anything in any order: each packet comes out once, granted or dropped; the counts agree; the
/// queue never locks up.
#[test]
fn any_order_of_operations() {
    let classes = [Class::Control, Class::Interactive, Class::Bulk, Class::Background, Class::Spare];
    for seed in 1..60 {
        let mut x = seed;
        let limit = 2_000 + lcg(&mut x, 100_000) as usize;
        let rate = [None, Some(0), Some(1), Some(64_000), Some(10_000_000_000)];
        let mut egress = Egress::<u64>::new(Config {
            rate_bps: rate[lcg(&mut x, 5) as usize],
            overhead_bytes: lcg(&mut x, 40) as u32,
            mtu_bytes: lcg(&mut x, 3000) as u32,
            burst_bytes: (lcg(&mut x, 2) == 0).then_some(lcg(&mut x, 100_000) as u32),
            queue_limit_packets: 1 + lcg(&mut x, 300) as usize,
            queue_limit_bytes: limit,
            quantum_bytes: (lcg(&mut x, 2) == 0).then_some(lcg(&mut x, 5_000) as u32),
            rtt: (lcg(&mut x, 2) == 0).then_some(Duration::from_millis(lcg(&mut x, 100_000))),
            aqm: Aqm::default(),
            aqm_of_tcp: Aqm::default(),
        });
        let mut now = Instant::from_millis(lcg(&mut x, 100));
        let (mut put, mut out, mut handed_back) = (0_u64, 0_u64, 0_u64);
        for _ in 0..3_000 {
            now = Instant::from_nanos(now.as_nanos() + lcg(&mut x, 3_000_000));
            let flow = lcg(&mut x, 20);
            let class = classes[lcg(&mut x, 5) as usize];
            match lcg(&mut x, 12) {
                0 => egress.set_ready(now, flow, class),
                1 => {
                    let ready = egress.take_ready(now).into_iter().filter(|id| *id != flow);
                    ready.for_each(|id| egress.set_ready(now, id, class));
                }
                2 => egress.set_link_up(now, lcg(&mut x, 4) > 0),
                3 => egress.set_rate(now, rate[lcg(&mut x, 5) as usize]),
                4 => egress.charge(now, lcg(&mut x, 2_000) as u32),
                5 => egress.used(now, flow, lcg(&mut x, 2_000) as u32, 1, lcg(&mut x, 2) > 0),
                6..=8 => {
                    put += 1;
                    let size = lcg(&mut x, 3_000) as u32;
                    handed_back += egress.enqueue(now, flow, class, size, put).len() as u64;
                }
                _ => match egress.next_grant(now) {
                    Some(Grant::Packet(_)) => out += 1,
                    Some(Grant::Flow { id, bytes, .. }) if lcg(&mut x, 3) > 0 => {
                        egress.used(now, id, lcg(&mut x, 2 * u64::from(bytes)) as u32, 2, lcg(&mut x, 2) > 0);
                    }
                    _ => {}
                },
            }
            let stats = egress.stats();
            assert!(stats.backlog_bytes <= limit);
            assert_eq!(put, out + stats.dropped_packets + stats.backlog_packets as u64);
            assert_eq!(handed_back, stats.dropped_packets);
        }
        egress.set_link_up(now, true);
        egress.set_rate(now, None);
        out += take_all(&mut egress, now);
        assert_eq!(put, out + egress.stats().dropped_packets);
    }
}

/// Flows of so many bytes each over 384 kbit/s: who is served when, as the order of packets, and
/// when each ends, in milliseconds.
fn serve_equal(flows: u8, bytes: u32, rtt: Option<Duration>) -> (String, Vec<u64>) {
    let config = Config { rate_bps: Some(384_000), mtu_bytes: 1500, rtt, ..Config::default() };
    let mut egress = Egress::<Packet>::new(config);
    let start = Instant::from_millis(1);
    let mut now = start;
    let mut left: BTreeMap<u64, u32> = (0..u64::from(flows)).map(|flow| (flow, bytes)).collect();
    for flow in left.keys() {
        egress.set_ready(now, *flow, Class::Bulk);
    }
    let (mut order, mut ends) = (String::new(), vec![0; usize::from(flows)]);
    while let Some(wake) = egress.poll_timeout() {
        now = wake.max(now);
        let Some(Grant::Flow { id, bytes, .. }) = egress.next_grant(now) else { continue };
        let rest = left.get_mut(&id).unwrap();
        let sent = bytes.min(1500).min(*rest);
        *rest -= sent;
        egress.used(now, id, sent, 1, *rest > 0);
        order.push(char::from(b'a' + u8::try_from(id).unwrap()));
        if *rest == 0 {
            ends[usize::try_from(id).unwrap()] = u64::try_from(now.since(start).as_millis()).unwrap();
        }
    }
    (order, ends)
}

/// Six objects of one size: without a known round trip they end together, with it one after the
/// other, and the last no later.
#[test]
fn equal_flows_end_one_after_the_other_over_a_round_trip() {
    let (order, ends) = serve_equal(6, 16_500, None);
    assert_eq!(order, "abcdef".repeat(11));
    assert_eq!(ends, [1875, 1906, 1937, 1968, 2000, 2031]);
    let (order, ends) = serve_equal(6, 16_500, Some(Duration::from_millis(500)));
    assert_eq!(order, "abcdefaaabbcccddeefffaabcccddeffaabbccddeffabcdefabcdefabddefbebee");
    assert_eq!(ends, [1718, 1968, 1593, 1812, 2031, 1875]);
}

/// However long they send, no flow leads another by more than twice its share of what the link
/// carries in a round trip.
#[test]
fn a_lead_is_bounded() {
    let rtt = Some(Duration::from_millis(500));
    for flows in [2, 8, 40] {
        let mut egress =
            Egress::<Packet>::new(Config { rate_bps: Some(8_000_000), rtt, ..Config::default() });
        let mut now = Instant::from_millis(1);
        for flow in 0..flows {
            egress.set_ready(now, flow, Class::Bulk);
        }
        let bytes = serve(&mut egress, &mut now, Instant::from_millis(20_000));
        let (min, max) = (bytes.values().min().unwrap(), bytes.values().max().unwrap());
        assert!(max - min <= 2 * 500_000 / flows + 2 * 1514, "{flows}: {bytes:?}");
        assert!(max - min >= 300_000 / flows, "{flows}: {bytes:?}");
    }
}

/// A flow that joins others is served at once, and has its share of the second that follows where
/// the others have had their leads; where they are still getting them, most of it.
#[test]
fn whoever_joins_has_its_share_at_once() {
    let rtt = Some(Duration::from_millis(500));
    for (joins_ms, least) in [(100, 70_000), (5_000, 100_000)] {
        let mut egress =
            Egress::<Packet>::new(Config { rate_bps: Some(8_000_000), rtt, ..Config::default() });
        let mut now = Instant::from_millis(1);
        for flow in 0..9 {
            egress.set_ready(now, flow, Class::Bulk);
        }
        serve(&mut egress, &mut now, Instant::from_millis(joins_ms));
        egress.set_ready(now, 9, Class::Bulk);
        assert!(matches!(egress.next_grant(egress.poll_timeout().unwrap()), Some(Grant::Flow { id: 9, .. })));
        egress.used(now, 9, 1514, 1, true);
        let until = now + Duration::from_secs(1);
        let bytes = serve(&mut egress, &mut now, until);
        assert!(bytes[&9] >= least, "{joins_ms}: {bytes:?}");
    }
}

/// Packets of 1,500 bytes that come in at these rates, in flows of one group each, for ten seconds,
/// through a link of 8 Mbit/s. Of each: the share that was dropped, and the longest wait in the
/// last five seconds, milliseconds.
fn managed(rates_bps: &[u64], weights: &[u32]) -> Vec<(f64, u64)> {
    let aqm =
        Aqm { interval: Duration::from_millis(500), target: Duration::from_millis(30), ..Aqm::default() };
    let mut egress = Egress::new(Config { rate_bps: Some(8_000_000), aqm, ..Config::default() });
    for (n, weight) in weights.iter().enumerate() {
        let share = Share { weight: *weight, rate_bps: None };
        assert!(egress.set_group(Instant::ZERO, GroupId(n as u32), share));
    }
    let mut sent = vec![0_u64; rates_bps.len()];
    let mut dropped = vec![0_u64; rates_bps.len()];
    let mut longest = vec![0; rates_bps.len()];
    for us in (0..10_000_000_u64).step_by(100) {
        let now = Instant::ZERO + Duration::from_micros(us);
        for (n, rate) in rates_bps.iter().enumerate() {
            while sent[n] * 12_000 * 1_000_000 < rate * us {
                sent[n] += 1;
                let lane = Lane { class: Class::Bulk, group: GroupId(n as u32) };
                let victims = egress.enqueue_managed(
                    now,
                    n as u64,
                    lane,
                    1_500_u32,
                    ((n, now), Managed { can_be_marked: false, is_tcp: false, in_turn: false }),
                );
                assert!(victims.is_empty(), "the limit of the queue is far");
            }
        }
        while let Some(grant) = egress.next_grant(now) {
            let Grant::Packet((n, since)) = grant else { panic!("nothing can be marked") };
            if us > 5_000_000 {
                longest[n] = longest[n].max(now.since(since).as_millis() as u64);
            }
        }
        egress.take_dropped().for_each(|(n, _)| dropped[n] += 1);
    }
    (0..rates_bps.len()).map(|n| (dropped[n] as f64 / sent[n] as f64, longest[n])).collect()
}

#[test]
fn who_sends_less_than_its_share_loses_nothing_and_hardly_waits() {
    for (rates, weights) in [([3_000_000, 12_000_000], [1, 1]), ([1_500_000, 12_000_000], [1, 4])] {
        let of = managed(&rates, &weights);
        assert_eq!(of[0].0, 0.0, "{rates:?}");
        assert!(of[0].1 <= 4, "{rates:?}: {} ms", of[0].1);
    }
}

#[test]
fn who_sends_more_than_the_link_carries_waits_no_longer_than_the_bound() {
    let of = managed(&[12_000_000], &[1]);
    assert!((0.28..0.38).contains(&of[0].0), "{} of a third too much", of[0].0);
    assert!(of[0].1 <= 21, "{} ms", of[0].1);
}
