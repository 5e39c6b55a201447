//! The shaper: rate, bursts, gaps.

mod common;

use common::lcg;
use farlink_egress::{Class, Config, Egress, Grant};
use farlink_wire::time::{Duration, Instant};

/// Drives a queue that always has work for that long; every wake-up is late by up to `late_ns`.
/// Returns what left when.
fn saturate(config: Config, seconds: u64, late_ns: u64, flows: bool) -> Vec<(u64, u64)> {
    let mut egress = Egress::<u32>::new(config);
    let mut now = Instant::from_millis(10);
    let end = now + Duration::from_secs(seconds);
    let mut x = 1;
    let mut sent = Vec::new();
    let size = |x: &mut u64| 40 + lcg(x, 1475) as u32;
    for flow in 0..4 {
        egress.set_ready(now, flow, Class::Bulk);
    }
    while now < end {
        if !flows {
            while egress.stats().backlog_bytes < 100_000 {
                let bytes = size(&mut x);
                assert!(egress.enqueue(now, lcg(&mut x, 5), Class::Bulk, bytes, bytes).is_empty());
            }
        }
        while let Some(grant) = egress.next_grant(now) {
            let bytes = match grant {
                Grant::Packet(bytes) | Grant::Marked(bytes) => bytes,
                Grant::Flow { id, bytes, .. } => {
                    // Less than granted, as whole segments make it.
                    let used = bytes.min(40 + lcg(&mut x, u64::from(bytes)) as u32);
                    egress.used(now, id, used, 1, true);
                    used
                }
            };
            sent.push((now.as_nanos(), u64::from(bytes) + u64::from(config.overhead_bytes)));
        }
        let wake = egress.poll_timeout().expect("there is work");
        assert!(wake > now, "no grant, but it is time");
        now = wake + Duration::from_nanos(if late_ns > 0 { lcg(&mut x, late_ns) } else { 0 });
    }
    sent
}

/// The most that was ever sent above the rate, in bytes, over all intervals.
fn worst_burst(sent: &[(u64, u64)], rate_bps: u64) -> u64 {
    let mut bucket = 0.0_f64;
    let mut last = sent[0].0;
    let mut worst = 0.0_f64;
    for (at, bytes) in sent {
        bucket = (bucket - (at - last) as f64 * rate_bps as f64 / 8e9).max(0.0) + *bytes as f64;
        last = *at;
        worst = worst.max(bucket);
    }
    worst as u64
}

fn mean_rate(sent: &[(u64, u64)]) -> f64 {
    let bytes: u64 = sent[..sent.len() - 1].iter().map(|(_, bytes)| bytes).sum();
    bytes as f64 * 8e9 / (sent[sent.len() - 1].0 - sent[0].0) as f64
}

#[test]
fn rate_is_exact_and_bursts_are_bounded() {
    for rate in [9_600, 128_000, 8_000_000, 99_999_999, 1_000_000_000] {
        for overhead_bytes in [0, 18] {
            for flows in [false, true] {
                let config = Config { rate_bps: Some(rate), overhead_bytes, ..Config::default() };
                let seconds = if rate < 1_000_000 { 2000 } else { 2 };
                let burst = u64::from(Egress::<u32>::new(config).burst_bytes()) + 18;

                let sent = saturate(config, seconds, 0, flows);
                let mean = mean_rate(&sent);
                assert!((mean / rate as f64 - 1.0).abs() < 1e-4, "{rate}, in time: {mean}");
                assert!(worst_burst(&sent, rate) <= burst, "{rate}: {}", worst_burst(&sent, rate));

                // Late wake-ups: 400 us is within a burst at any of the rates.
                let sent = saturate(config, seconds, 400_000, flows);
                let mean = mean_rate(&sent);
                assert!((mean / rate as f64 - 1.0).abs() < 1e-3, "{rate}, late: {mean}");
                let most = burst + 1514 + rate * 4 / 80_000;
                assert!(worst_burst(&sent, rate) <= most, "{rate}: {}", worst_burst(&sent, rate));
            }
        }
    }
}

/// After a pause nothing is made up for: the first packets go at the pace of the rate.
#[test]
fn idle_time_earns_nothing() {
    let mut egress =
        Egress::new(Config { rate_bps: Some(8_000_000), burst_bytes: Some(1514), ..Config::default() });
    let now = Instant::from_millis(60_000);
    for i in 0..3 {
        assert!(egress.enqueue(now, 1, Class::Bulk, 1000, i).is_empty());
    }
    assert_eq!(egress.next_grant(now), Some(Grant::Packet(0)));
    assert_eq!(egress.next_grant(now), None);
    assert_eq!(egress.poll_timeout(), Some(Instant::from_millis(60_001)));
    assert_eq!(egress.next_grant(Instant::from_millis(60_001)), Some(Grant::Packet(1)));
    assert_eq!(egress.next_grant(Instant::from_millis(60_001)), None);
    assert_eq!(egress.next_grant(Instant::from_millis(60_002)), Some(Grant::Packet(2)));
    assert_eq!(egress.poll_timeout(), None);
    // A packet that comes while the last one is still being sent follows without a gap.
    assert!(egress.enqueue(Instant::from_micros(60_002_500), 1, Class::Bulk, 1000, 3).is_empty());
    assert_eq!(egress.poll_timeout(), Some(Instant::from_millis(60_003)));
    // However late the caller is: no more than the burst is made up for.
    let late = Instant::from_millis(60_999);
    for i in 4..9 {
        assert!(egress.enqueue(late, 1, Class::Bulk, 1000, i).is_empty());
    }
    let mut at_once = 0;
    while egress.next_grant(late).is_some() {
        at_once += 1;
    }
    assert_eq!(at_once, 2, "1,514 bytes of burst and the one whose turn it is");
    assert_eq!(egress.stats().busy, Duration::from_millis(5));
}

#[test]
fn what_goes_past_the_queue_is_charged() {
    let mut egress = Egress::new(Config { rate_bps: Some(8_000_000), ..Config::default() });
    let now = Instant::from_millis(5);
    egress.charge(now, 3000);
    assert!(egress.enqueue(now, 1, Class::Control, 100, ()).is_empty());
    assert_eq!(egress.next_grant(now), None);
    assert_eq!(egress.poll_timeout(), Some(Instant::from_millis(8)));
    assert!(egress.next_grant(Instant::from_millis(8)).is_some());
    assert_eq!(egress.stats().sent_bytes, 3100);
}

#[test]
fn down_and_up() {
    let mut egress = Egress::new(Config { rate_bps: Some(8_000_000), ..Config::default() });
    let now = Instant::from_millis(5);
    egress.set_link_up(now, false);
    for i in 0..3 {
        assert!(egress.enqueue(now, 1, Class::Bulk, 1000, i).is_empty());
    }
    assert_eq!((egress.next_grant(now), egress.poll_timeout()), (None, None));
    // The time of the outage is not made up for.
    let now = Instant::from_millis(500);
    egress.set_link_up(now, true);
    assert_eq!(egress.next_grant(now), Some(Grant::Packet(0)));
    assert_eq!(egress.next_grant(now), None);
    assert_eq!(egress.poll_timeout(), Some(Instant::from_millis(501)));
    // Nor is that of a rate of zero.
    egress.set_rate(Instant::from_millis(501), Some(0));
    assert_eq!((egress.next_grant(Instant::from_millis(600)), egress.poll_timeout()), (None, None));
    let now = Instant::from_millis(700);
    egress.set_rate(now, Some(80_000));
    assert_eq!(egress.next_grant(now), Some(Grant::Packet(1)));
    assert_eq!(egress.poll_timeout(), Some(Instant::from_millis(800)));
    // Unshaped: at once.
    egress.set_rate(now, None);
    assert_eq!(egress.next_grant(now), Some(Grant::Packet(2)));
}

#[test]
fn unshaped_grants_whole_super_segments() {
    let mut egress = Egress::<()>::new(Config::default());
    let now = Instant::from_millis(1);
    egress.set_ready(now, 7, Class::Bulk);
    assert_eq!(egress.next_grant(now), Some(Grant::Flow { id: 7, class: Class::Bulk, bytes: 65_536 }));
    egress.used(now, 7, 65_000, 1, true);
    assert!(matches!(egress.next_grant(now), Some(Grant::Flow { id: 7, .. })));
    egress.used(now, 7, 65_000, 1, false);
    assert_eq!(egress.next_grant(now), None);
    assert!(egress.is_idle());
}

#[test]
fn a_busy_machine_that_wakes_late_at_every_packet_loses_no_rate() {
    let mut egress = Egress::new(Config { rate_bps: Some(8_000_000), ..Config::default() });
    let start = Instant::from_millis(60_000);
    for i in 0..200 {
        assert!(egress.enqueue(start, 1, Class::Bulk, 1000, i).is_empty());
    }
    let (mut sent, mut now) = (0, start);
    while sent < 200 {
        while egress.next_grant(now).is_some() {
            sent += 1;
        }
        // 8 ms too late, each time: eight packets leave at once, and the link has them in its own
        // queue.
        now = egress.poll_timeout().map_or(now, |t| t + Duration::from_millis(8));
    }
    assert!(now.since(start) <= Duration::from_millis(212), "{:?}", now.since(start));
}
