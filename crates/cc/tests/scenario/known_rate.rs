//! A link of known rate, and what lies behind it: nothing that is narrower, a link that corrupts, a
//! bottleneck of a tenth.

use farlink_cc::Kind;

use super::*;

/// A link of 10 Mbit/s before a path of this rate and buffer.
fn behind(rate_bps: u64, rtt_ms: u64, buffer_packets: u64) -> Link {
    Link { rate_bps, access_bps: Some(RATE_BPS), ..link(rtt_ms, buffer_packets) }
}

fn over(kind: Kind, link: Link) -> Net {
    let mut net = Net::new(link);
    let initial_window_segments = if kind == Kind::KnownRate { (link.rtt_ms as u32).max(10) } else { 10 };
    net.join(&Config { initial_window_segments, fixed_rate_bps: Some(RATE_BPS), ..config(kind) });
    net
}

/// Two round trips after the beginning it is full, and stays so.
#[test]
fn the_link_is_filled_where_nothing_else_is_narrow() {
    for rtt_ms in [20, 100, 500] {
        let mut net = over(Kind::KnownRate, behind(RATE_BPS, rtt_ms, 20));
        net.run(Duration::from_millis(2 * rtt_ms + 100));
        let delivered = net.delivered_in(secs(30))[0];
        assert!(delivered >= 29_900, "{rtt_ms} ms: {delivered} of 30,000");
        assert_eq!((net.flows[0].lost, net.flows[0].timeouts), (0, 0), "{rtt_ms} ms");
    }
}

#[test]
fn corruption_on_the_link_takes_nothing_but_what_it_spoils() {
    for rtt_ms in [20, 100, 500] {
        for loss_ppm in [10_000, 30_000, 50_000] {
            let mut net = over(Kind::KnownRate, Link { loss_ppm, ..behind(RATE_BPS, rtt_ms, 20) });
            net.run(secs(5));
            let delivered = net.delivered_in(secs(60))[0];
            let could = 60_000 - 60_000 * loss_ppm / 1_000_000;
            assert!(delivered >= could / 100 * 98, "{rtt_ms} ms, {loss_ppm} ppm: {delivered} of {could}");
        }
    }
}

/// Behind it lies a tenth: no more than twice of what CUBIC loses is lost there, in the beginning
/// and in the long run, and the bottleneck is about as full.
#[test]
fn a_bottleneck_of_a_tenth_is_found_and_not_flooded() {
    for rtt_ms in [20, 100, 500] {
        for buffer in [10, 50, 200] {
            for seconds in [10, 60, 300] {
                let run = |kind| {
                    let mut net = over(kind, behind(RATE_BPS / 10, rtt_ms, buffer));
                    net.run(secs(seconds));
                    (net.flows[0].lost, net.flows[0].delivered)
                };
                let (ours, cubic) = (run(Kind::KnownRate), run(Kind::Cubic));
                let cell = format!("{rtt_ms} ms, {buffer} packets, {seconds} s: {ours:?}, CUBIC {cubic:?}");
                assert!(ours.0 <= 2 * cubic.0 + 10, "{cell}");
                assert!(ours.1 >= cubic.1 / 100 * 90, "{cell}");
            }
        }
    }
}

/// A link that corrupts before a narrow network: neither hides the other.
#[test]
fn a_bottleneck_behind_a_link_that_corrupts() {
    for buffer in [10, 50, 200] {
        let run = |kind| {
            let mut net = over(kind, Link { loss_ppm: 10_000, ..behind(RATE_BPS / 10, 100, buffer) });
            net.run(secs(60));
            (net.flows[0].lost, net.flows[0].delivered)
        };
        let (ours, bbr) = (run(Kind::KnownRate), run(Kind::Bbr));
        // One in a hundred is spoilt in any case.
        assert!(ours.0 <= 60 + 150, "{buffer} packets: {ours:?}");
        assert!(ours.1 >= bbr.1 / 100 * 95, "{buffer} packets: {ours:?}, BBR {bbr:?}");
    }
}

/// Somebody else's traffic takes most of the path for a minute.
#[test]
fn a_bottleneck_that_comes_and_goes() {
    let run = |kind| {
        let mut net = over(kind, behind(RATE_BPS, 100, 100));
        net.run(secs(20));
        let lost = net.flows[0].lost;
        net.link.rate_bps /= 10;
        net.run(secs(30));
        let there = net.delivered_in(secs(30))[0];
        let lost = net.flows[0].lost - lost;
        net.link.rate_bps *= 10;
        net.run(secs(15));
        (lost, there, net.delivered_in(secs(30))[0])
    };
    let (ours, cubic) = (run(Kind::KnownRate), run(Kind::Cubic));
    assert!(ours.0 <= 2 * cubic.0, "{ours:?}, CUBIC {cubic:?}");
    assert!(ours.1 >= 2_800, "{ours:?} of 3,000");
    assert!(ours.2 >= 29_900, "{ours:?} of 30,000");
}

/// A time-out or a mark is answered; one of a few segments, as a lost request has it, is not.
#[test]
fn what_else_speaks_of_a_bottleneck() {
    let started = || {
        let mut net = over(Kind::KnownRate, behind(RATE_BPS, 100, 100));
        net.run(secs(5));
        net
    };
    let window = |net: &Net| net.flows[0].controller.cwnd_bytes();
    let mut net = started();
    let before = window(&net);
    let now = net.now;
    net.flows[0].controller.on_rto(now, 5 * 1250, 0);
    assert_eq!(window(&net), before);
    net.flows[0].controller.on_congestion(now, farlink_cc::Congestion::Loss, 100 * 1250);
    assert_eq!(window(&net), before, "a link corrupts");
    net.flows[0].controller.on_rto(now, 100 * 1250, 0);
    assert_eq!(window(&net), 1250, "as BBR: what is in flight, and one segment");
    let mut net = started();
    net.flows[0].controller.on_congestion(now, farlink_cc::Congestion::Ecn, 100 * 1250);
    assert!(net.flows[0].controller.pacing_rate_bps(Duration::ZERO).is_some_and(|rate| rate < RATE_BPS));
}
