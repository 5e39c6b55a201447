//! Vegas: two to four packets in the queue, whatever its size.

use farlink_cc::Kind;

use super::*;

fn vegas(link: Link) -> Net {
    one(Kind::Vegas, link)
}

/// Doubles every other round trip, leaves before a packet is lost, and works off what it then has
/// too much, a packet per round trip.
#[test]
fn clean_long_link() {
    let mut net = vegas(link(600, 1200));
    net.run(secs(60));
    let f = &net.flows[0];
    assert_eq!(
        every(&f.windows, 4),
        [10, 40, 160, 640, 1202, 1198, 1194, 1190, 1186, 1182, 1178, 1174, 1170, 1166, 1162]
    );
    assert_eq!((f.delivered, f.lost, f.timeouts), (53448, 0, 0));
}

#[test]
fn shallow_and_deep_buffer() {
    let run = |buffer| {
        let mut net = vegas(link(100, buffer));
        net.run(secs(30));
        net.queue_max = 0;
        let later = net.delivered_in(secs(60))[0];
        (later, net.flows[0].lost, net.queue_max, net.flows[0].windows.last().copied().unwrap_or(0))
    };
    assert_eq!(run(10), (60000, 2, 3, 104));
    assert_eq!(run(3000), (60000, 0, 3, 104));
}

#[test]
fn random_loss_of_one_percent() {
    let mut net = vegas(Link { loss_ppm: 10_000, ..link(100, 100) });
    net.run(secs(20));
    assert_eq!(net.delivered_in(secs(100))[0], 11316);
}

/// The queue that the fall leaves behind is worked off a packet per round trip, or by one loss.
#[test]
fn rate_falls_to_a_half() {
    let mut net = vegas(link(100, 100));
    net.run(secs(30));
    net.link.rate_bps /= 2;
    net.flows[0].windows.clear();
    net.run(secs(20));
    assert_eq!(
        every(&net.flows[0].windows, 10),
        [104, 96, 86, 76, 66, 56, 54, 54, 54, 54, 54, 54, 54, 54, 54, 54]
    );
    let delivered = net.delivered_in(secs(20))[0];
    assert!(delivered >= 9_800, "{delivered} of 10,000");
}

/// Two of its kind share, and beside Reno it starves: both are known of it.
#[test]
fn competing_flow() {
    let run = |other| {
        let mut net = vegas(link(100, 100));
        net.run(secs(10));
        net.join(&config(other));
        net.run(secs(30));
        net.delivered_in(secs(60))
    };
    assert_eq!(run(Kind::Vegas), [23999, 36001]);
    assert_eq!(run(Kind::NewReno), [2763, 57072]);
}

#[test]
fn app_limited_windows_do_not_grow() {
    let mut net = vegas(link(100, 100));
    net.trickle(50, secs(60));
    assert_eq!(net.flows[0].windows.last().copied(), Some(12));
}

#[test]
fn idle_restart() {
    let mut net = vegas(link(100, 100));
    net.run(secs(30));
    let before = net.flows[0].controller.cwnd_bytes() / 1250;
    net.pause(secs(20));
    net.flows[0].windows.clear();
    net.run(secs(3));
    assert_eq!(
        (before, every(&net.flows[0].windows, 2)),
        (104, vec![10, 20, 40, 80, 101, 103, 105, 105, 104, 104, 104, 104, 104, 104, 104])
    );
}
