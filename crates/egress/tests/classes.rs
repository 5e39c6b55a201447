//! What a class costs those above it: a packet's time, and none of their packets.

mod common;

use common::lcg;
use farlink_egress::{Class, Config, Egress, Grant};
use farlink_wire::time::{Duration, Instant};

/// Which of the interactive packets it is, and its bytes.
type Packet = (usize, u32);

const MTU_BYTES: u32 = 1500;

fn queue(rate_bps: u64) -> Egress<Packet> {
    Egress::new(Config { rate_bps: Some(rate_bps), mtu_bytes: MTU_BYTES, ..Config::default() })
}

/// Poisson arrivals of packets of 200 to 1,000 bytes, `percent` of the rate, for ten seconds.
fn arrivals(rate_bps: u64, percent: u64, seed: u64) -> Vec<(Instant, u32)> {
    let mut x = seed;
    let mean_ns = 600.0 * 8e9 / rate_bps as f64 * 100.0 / percent as f64;
    let (mut at, mut all) = (Instant::from_millis(1), Vec::new());
    while at < Instant::from_millis(10_000) {
        let uniform = (lcg(&mut x, 1 << 30) + 1) as f64 / (1_u64 << 30) as f64;
        at += Duration::from_nanos((-uniform.ln() * mean_ns) as u64);
        all.push((at, 200 + lcg(&mut x, 801) as u32));
    }
    all
}

/// Plays the arrivals; beside them a flow of the engine that always has more, of this class.
/// Returns when each packet has left the link, and the bytes of the flow.
fn play(rate_bps: u64, arrivals: &[(Instant, u32)], beside: Option<Class>) -> (Vec<Instant>, u64) {
    let mut egress = queue(rate_bps);
    let mut left = vec![Instant::ZERO; arrivals.len()];
    let mut others = 0;
    if let Some(class) = beside {
        egress.set_ready(Instant::from_millis(1), 7, class);
    }
    let mut next = arrivals.iter().enumerate().peekable();
    let mut now = Instant::from_millis(1);
    loop {
        while let Some((n, (at, size))) = next.next_if(|(_, (at, _))| *at <= now) {
            assert!(egress.enqueue(*at, 1, Class::Interactive, *size, (n, *size)).is_empty());
        }
        while let Some(grant) = egress.next_grant(now) {
            match grant {
                Grant::Packet((n, size)) | Grant::Marked((n, size)) => {
                    left[n] = now + Duration::from_nanos(u64::from(size) * 8_000_000_000 / rate_bps);
                }
                Grant::Flow { id, bytes, .. } => {
                    egress.used(now, id, bytes, bytes.div_ceil(MTU_BYTES), true);
                    others += u64::from(bytes);
                }
            }
        }
        let arrival = next.peek().map(|(_, (at, _))| *at);
        // The flow goes on for ever; the arrivals do not.
        let Some(arrival) = arrival else { break };
        now = egress.poll_timeout().map_or(arrival, |at| at.min(arrival)).max(now);
    }
    let until = arrivals.last().unwrap().0;
    // What still waits when the last one has come leaves behind it.
    left.retain(|at| *at > Instant::ZERO && *at <= until);
    (left, others)
}

/// The packet that the link is sending cannot be taken back, so each packet of a higher class may
/// be a packet's time later than on an empty link, and not more: also behind others that were late
/// by the same.
#[test]
fn a_higher_class_is_later_by_one_packet_of_the_low_one_at_most() {
    for rate_bps in [8_000_000, 100_000_000] {
        let packet = Duration::from_nanos(u64::from(MTU_BYTES) * 8_000_000_000 / rate_bps);
        for percent in [10, 30, 60, 90] {
            let arrivals = arrivals(rate_bps, percent, percent);
            let (alone, _) = play(rate_bps, &arrivals, None);
            let (beside, low_bytes) = play(rate_bps, &arrivals, Some(Class::Background));
            assert!(alone.len() > 1_000 && beside.len() + 20 > alone.len());
            let late = alone.iter().zip(&beside).map(|(alone, beside)| beside.since(*alone)).max().unwrap();
            assert!(late > packet / 2, "it was beside something: {late:?}");
            assert!(late <= packet + Duration::from_micros(1), "{rate_bps} {percent} %: {late:?}");
            // And the low one has all that was left.
            let bytes: u64 = arrivals.iter().map(|(_, size)| u64::from(*size)).sum();
            let seconds = arrivals.last().unwrap().0.since(Instant::from_millis(1)).as_secs_f64();
            let share = (low_bytes + bytes) as f64 * 8.0 / rate_bps as f64 / seconds;
            assert!((0.995..1.005).contains(&share), "{rate_bps} {percent} %: {share}");
        }
    }
}

/// A full queue takes from the low class first, whoever holds more.
#[test]
fn the_low_class_gives_its_place_to_others() {
    let mut egress: Egress<Packet> =
        Egress::new(Config { rate_bps: Some(8_000_000), queue_limit_bytes: 100_000, ..Config::default() });
    let now = Instant::from_millis(1);
    for n in 0..60 {
        assert!(egress.enqueue(now, 1, Class::Interactive, 1_000, (n, 1_000)).is_empty());
    }
    for n in 100..140 {
        assert!(egress.enqueue(now, 2 + n as u64 % 4, Class::Background, 1_000, (n, 1_000)).is_empty());
    }
    for n in 200..240 {
        let victims = egress.enqueue(now, 1, Class::Interactive, 1_000, (n, 1_000));
        assert!(matches!(victims[..], [(100..140, _)]), "{victims:?}");
    }
    // Then those that hold most, as ever.
    let victims = egress.enqueue(now, 9, Class::Bulk, 1_000, (300, 1_000));
    assert!(matches!(victims[..], [(0, _)]), "{victims:?}");
}

/// Leads are for transfers that are to end one after the other. Whoever is interactive takes turns.
#[test]
fn interactive_flows_do_not_lead_each_other() {
    let rtt = Some(Duration::from_millis(500));
    let config = Config { rate_bps: Some(8_000_000), mtu_bytes: MTU_BYTES, rtt, ..Config::default() };
    for (class, turns) in [(Class::Interactive, true), (Class::Bulk, false)] {
        let mut egress: Egress<Packet> = Egress::new(config);
        let mut now = Instant::from_millis(1);
        let mut bytes = [0; 4];
        for flow in 0..4 {
            egress.set_ready(now, flow, class);
        }
        for _ in 0..100 {
            now = egress.poll_timeout().unwrap().max(now);
            let Some(Grant::Flow { id, bytes: granted, .. }) = egress.next_grant(now) else {
                panic!("all wait")
            };
            egress.used(now, id, granted, 1, true);
            bytes[id as usize] += granted;
        }
        // A turn is what the link carries in 5 ms.
        let (least, most) = (bytes.iter().min().unwrap(), bytes.iter().max().unwrap());
        assert_eq!(most - least <= 5_000 + MTU_BYTES, turns, "{class:?}: {bytes:?}");
    }
}

/// The caller is always late. A low class makes up for a quarter of a millisecond of it: what it
/// sent beyond would stand before the link, where others wait behind it.
#[test]
fn a_late_caller_costs_the_low_class_and_nobody_else() {
    let late = Duration::from_millis(4);
    for (class, from, until) in [(Class::Bulk, 0.99, 1.01), (Class::Background, 0.28, 0.31)] {
        let mut egress = queue(8_000_000);
        let start = Instant::from_millis(100);
        let mut now = start;
        egress.set_ready(now, 7, class);
        // The link itself, which sends on what has come.
        let (mut sent, mut free_at, mut stands) = (0_u64, now, Duration::ZERO);
        while now < start + Duration::from_secs(2) {
            while let Some(Grant::Flow { id, bytes, .. }) = egress.next_grant(now) {
                egress.used(now, id, bytes, 1, true);
                sent += u64::from(bytes);
                free_at = free_at.max(now) + Duration::from_micros(u64::from(bytes));
                stands = stands.max(free_at.since(now));
            }
            now = egress.poll_timeout().unwrap().max(now) + late;
        }
        let share = sent as f64 / 2e6;
        assert!((from..until).contains(&share), "{class:?}: {share}");
        assert!(
            (stands <= Duration::from_millis(2)) == (class == Class::Background),
            "{class:?}: {stands:?}"
        );
    }
}
