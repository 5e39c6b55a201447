//! Hybla: 24 times the reference at 600 ms.

use farlink_cc::Kind;

use super::*;

fn hybla(link: Link) -> Net {
    one(Kind::Hybla, link)
}

#[test]
fn clean_long_link() {
    let mut net = hybla(link(600, 1200));
    net.run(secs(30));
    let f = &net.flows[0];
    assert_eq!(every(&f.windows, 4), [24, 1154, 1154, 2157, 1844, 1656]);
    assert_eq!((f.delivered, f.lost, f.timeouts), (28823, 2530, 0));
}

#[test]
fn shallow_and_deep_buffer() {
    let run = |buffer| {
        let mut net = hybla(link(600, buffer));
        net.run(secs(30));
        let later = net.delivered_in(secs(60))[0];
        (later, net.flows[0].lost, every(&net.flows[0].windows, 8))
    };
    assert_eq!(
        run(60),
        (
            48513,
            8777,
            vec![24, 780, 605, 573, 525, 496, 483, 447, 423, 483, 447, 423, 775, 687, 616, 591, 550, 504]
        )
    );
    assert_eq!(run(3000), (60000, 2685, vec![24, 2069, 2568, 3621, 2069]));
}

#[test]
fn random_loss_of_one_percent() {
    let mut net = hybla(Link { loss_ppm: 10_000, ..link(600, 600) });
    net.run(secs(20));
    let delivered = net.delivered_in(secs(100))[0];
    let mut reno = one(Kind::NewReno, net.link);
    reno.run(secs(20));
    let by_reno = reno.delivered_in(secs(100))[0];
    assert_eq!((delivered, by_reno), (9594, 2177));
}

#[test]
fn rate_falls_to_a_half() {
    let mut net = hybla(link(600, 600));
    net.run(secs(30));
    net.link.rate_bps /= 2;
    net.flows[0].windows.clear();
    net.run(secs(10));
    let delivered = net.delivered_in(secs(30))[0];
    assert_eq!(every(&net.flows[0].windows, 4), [841, 681, 681, 758, 880, 1157, 1223, 681]);
    assert!(delivered >= 14_000, "{delivered} of 15,000");
}

/// The share of a connection with Reno on the same long path: what makes Hybla one for links of
/// one's own.
#[test]
fn competing_flow() {
    let mut net = hybla(link(600, 600));
    net.join(&config(Kind::NewReno));
    net.run(secs(30));
    assert_eq!(net.delivered_in(secs(60)), [58499, 84]);
}

#[test]
fn app_limited_windows_do_not_grow() {
    let mut net = hybla(link(600, 600));
    net.trickle(20, secs(60));
    assert_eq!(net.flows[0].windows.last().copied(), Some(24));
}

#[test]
fn idle_restart() {
    let mut net = hybla(link(600, 600));
    net.run(secs(30));
    let before = net.flows[0].controller.cwnd_bytes() / 1250;
    net.pause(secs(20));
    net.flows[0].windows.clear();
    net.run(secs(3));
    assert_eq!((before, &net.flows[0].windows[..]), (1637, &[24, 818, 1268][..]));
}
