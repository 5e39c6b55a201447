//! BBR version 3, with the example test cases of the draft's appendix where a bottleneck can show
//! them.

use farlink_cc::Kind;

use super::*;

fn bbr(link: Link) -> Net {
    one(Kind::Bbr, link)
}

/// Startup doubles each round trip, Drain empties the queue, and the link stays full but for
/// ProbeRTT.
#[test]
fn clean_long_link() {
    let mut net = bbr(link(600, 1200));
    net.run(secs(30));
    let f = &net.flows[0];
    assert_eq!(
        every(&f.windows, 2),
        [
            10, 37, 119, 464, 300, 1229, 1229, 300, 1229, 1234, 1203, 300, 1203, 1203, 1203, 1355, 300, 1203,
            1203, 1342
        ]
    );
    assert_eq!((f.lost, f.timeouts), (0, 0));
    net.queue_max = 0;
    let delivered = net.delivered_in(secs(60))[0];
    assert_eq!((delivered, net.queue_max), (53706, 538));
}

#[test]
fn shallow_and_deep_buffer() {
    let run = |buffer| {
        let mut net = bbr(link(100, buffer));
        net.run(secs(30));
        let (lost, before) = (net.flows[0].lost, net.flows[0].windows.len());
        net.queue_max = 0;
        let later = net.delivered_in(secs(60))[0];
        let f = &net.flows[0];
        (later, lost, f.lost - lost, net.queue_max, every(&f.windows[before..], 40))
    };
    assert_eq!(
        run(10),
        (56105, 446, 78, 10, vec![97, 97, 97, 97, 97, 115, 97, 97, 97, 97, 97, 97, 50, 97, 97])
    );
    assert_eq!(
        run(3000),
        (57747, 0, 0, 90, vec![203, 203, 203, 203, 203, 203, 230, 203, 203, 203, 50, 203, 203, 203])
    );
}

/// Below the threshold of 2 % losses do not end a probe. Between two probes the rate follows what
/// arrives, a percent less each round trip: the draft's (1 - loss)^N, here over some 25 round
/// trips.
#[test]
fn random_loss_of_one_percent() {
    let mut net = bbr(Link { loss_ppm: 10_000, ..link(100, 100) });
    net.run(secs(20));
    let delivered = net.delivered_in(secs(100))[0];
    assert_eq!(delivered, 82932);
    assert!(delivered >= 80_000, "{delivered} of 99,000");
}

#[test]
fn rate_falls_to_a_half() {
    let mut net = bbr(link(100, 100));
    net.run(secs(30));
    net.link.rate_bps /= 2;
    net.flows[0].windows.clear();
    let lost = net.flows[0].lost;
    net.run(secs(20));
    let delivered = net.delivered_in(secs(20))[0];
    let f = &net.flows[0];
    assert_eq!(
        (f.lost - lost, every(&f.windows, 10)),
        (
            305,
            vec![
                203, 203, 114, 25, 133, 103, 103, 103, 103, 117, 103, 103, 103, 103, 103, 103, 103, 103, 103,
                103, 25, 103, 103, 103, 103, 103, 103, 103, 117, 103, 103, 103
            ]
        )
    );
    assert!(delivered >= 9_500, "{delivered} of 10,000");
}

#[test]
fn rate_rises_tenfold() {
    let mut net = bbr(link(100, 1000));
    net.run(secs(30));
    net.link.rate_bps *= 10;
    let per_second: Vec<u64> = (0..12).map(|_| net.delivered_in(secs(1))[0]).collect();
    assert_eq!(per_second, [992, 1032, 3061, 9089, 9959, 8427, 9900, 9912, 10000, 9909, 8427, 9900]);
}

/// With its own kind it shares; from those that take loss for congestion it takes about four fifths
/// of a link with a buffer of one bandwidth-delay product.
#[test]
fn competing_flow() {
    let run = |other| {
        let mut net = bbr(link(100, 100));
        net.run(secs(10));
        net.join(&config(other));
        net.run(secs(60));
        net.delivered_in(secs(120))
    };
    assert_eq!(run(Kind::Bbr), [61914, 54697]);
    assert_eq!(run(Kind::Cubic), [91771, 26600]);
    assert_eq!(run(Kind::NewReno), [95589, 22504]);
}

/// Samples that the source limits neither end Startup nor lower the rate.
#[test]
fn app_limited() {
    let mut net = bbr(link(100, 100));
    net.trickle(50, secs(60));
    assert!(net.flows[0].controller.in_slow_start(), "Startup has no reason to end");
    assert_eq!(net.flows[0].windows.last().copied(), Some(19));
    let mut net = bbr(link(100, 100));
    net.run(secs(10));
    net.trickle(50, secs(60));
    assert_eq!(net.flows[0].windows.last().copied(), Some(203));
}

/// The window is kept, and paced out at the rate that was known.
#[test]
fn idle_restart() {
    let mut net = bbr(link(100, 100));
    net.run(secs(30));
    let before = net.flows[0].controller.cwnd_bytes() / 1250;
    net.pause(secs(20));
    net.flows[0].windows.clear();
    net.queue_max = 0;
    let delivered = net.delivered_in(secs(3))[0];
    assert_eq!((before, delivered, net.queue_max), (203, 2883, 90));
    assert_eq!(
        every(&net.flows[0].windows, 2),
        [203, 230, 230, 203, 203, 203, 203, 203, 203, 203, 203, 203, 203]
    );
}

/// The quanta are the least that is in flight, and the link is full all the same.
#[test]
fn less_than_a_packet_in_the_pipe() {
    let mut net = bbr(Link { rate_bps: 100_000, ..link(20, 20) });
    net.run(secs(60));
    assert_eq!((net.flows[0].controller.cwnd_bytes() / 1250, net.delivered_in(secs(60))[0]), (4, 600));
}
