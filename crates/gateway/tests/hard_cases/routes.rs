//! Routes that move between the gateway's own interfaces: what waits goes where the kernel would
//! send it now, under the congestion control of the leg that it goes into.

use crate::script::network::{SPARE, TO_A, TO_B};
use crate::script::{Host, Script};
use farlink_gateway::cc::Kind;
use farlink_gateway::config::{LegConfig, Link};
use farlink_gateway::{FoundWay, IfaceId, Shown};
use farlink_wire::{Duration, Offload};

fn link(name: &str) -> Link {
    let leg = LegConfig { cc: Kind::FixedRate, ..LegConfig::default() };
    Link { name: name.into(), rate_bps: Some(8_000_000), leg, ..Link::default() }
}

/// A link towards b, and a second way: another link, or anybody's network.
fn two_ways(second: Option<Link>) -> Script {
    let mut t = Script::with(|s| {
        s.config.timers.user_timeout = Duration::from_secs(60);
        s.link = Some(link("sat"));
        s.spare = Some(second);
    });
    t.open();
    t.play("~100\n drop");
    t
}

#[test]
fn custody_leaves_a_dead_link_when_the_route_does_though_no_host_says_a_word() {
    for second in [Some(link("backup")), None] {
        let mut t = two_ways(second);
        t.set_carrier(TO_B, false);
        t.play("a > P. 1:101 ack 1\n +40\n a < . 1 ack 101\n ~100s\n quiet");
        t.reroute_b(SPARE);
        t.play("b < P. 1:101 ack 1\n b > . 1 ack 101\n ~2000\n drop a\n quiet");
    }
}

#[test]
fn the_route_may_have_moved_before_the_carrier_is_known_to_be_lost() {
    let mut t = two_ways(None);
    t.play("a > P. 1:101 ack 1\n b < P. 1:101\n +40\n a < . 1 ack 101");
    t.reroute_b(SPARE);
    t.set_carrier(TO_B, false);
    t.play("~20\n b < P. 1:101 ack 1");
}

#[test]
fn what_was_under_way_in_a_dead_link_goes_out_again_at_once() {
    let mut t = two_ways(Some(link("backup")));
    t.play("a > P. 1:101 ack 1\n b < P. 1:101\n +40\n a < . 1 ack 101");
    t.set_carrier(TO_B, false);
    // Its timer is backed off to a minute by now.
    t.play("~200s\n quiet");
    t.reroute_b(SPARE);
    t.play("b < P. 1:101 ack 1");
    // The user timeout counts from now on, for the link that is up.
    t.play("~50s\n drop b");
    assert!(t.take(Host::A).is_empty(), "not yet");
    t.play("~30s");
    let (a, b) = (t.take(Host::A), t.take(Host::B));
    assert!(a.iter().chain(&b).filter(|s| s.segment.flags.rst()).count() == 2, "b is gone: {a:?} {b:?}");
}

/// A UDP datagram from a to b, `marker` in its source port.
fn datagram(marker: u8) -> Vec<u8> {
    let mut p = vec![
        0x45, 0, 0, 29, 0, marker, 0x40, 0, 63, 17, 0, 0, 10, 0, 1, 1, 10, 0, 2, 1, 1, marker, 0, 53, 0, 9,
        0, 0, 7,
    ];
    let sum = !farlink_wire::checksum::sum(&p[..20]);
    p[10..12].copy_from_slice(&sum.to_be_bytes());
    p
}

#[test]
fn forwarded_packets_leave_the_queue_of_a_dead_link() {
    for second in [Some(link("backup")), None] {
        let mut t = two_ways(second);
        t.set_carrier(TO_B, false);
        t.inject(Host::A, datagram(1), Offload::default());
        t.play("~1000\n quiet");
        t.reroute_b(SPARE);
        t.play("b < other, 29 bytes\n quiet");
        t.set_carrier(TO_B, true);
        t.play("~1000\n quiet");
    }
}

#[test]
fn forwarded_packets_do_not_come_out_after_hours() {
    let mut t = two_ways(None);
    t.set_carrier(TO_B, false);
    t.inject(Host::A, datagram(1), Offload::default());
    t.play("~3600s");
    t.inject(Host::A, datagram(2), Offload::default());
    t.play("~1s\n quiet");
    t.set_carrier(TO_B, true);
    t.play("b < other, 29 bytes\n ~1000\n quiet");
}

/// A stream is not behind by an outage: of each flow its newest 64 KiB go out.
#[test]
fn of_datagrams_that_an_outage_held_the_newest_go_out() {
    let mut t = two_ways(None);
    t.set_carrier(TO_B, false);
    let call = |marker: u8| {
        let mut p = datagram(marker);
        p.resize(1_024, 7);
        (p[2..4]).copy_from_slice(&1_024_u16.to_be_bytes());
        (p[10..12]).copy_from_slice(&[0; 2]);
        let sum = !farlink_wire::checksum::sum(&p[..20]);
        p[10..12].copy_from_slice(&sum.to_be_bytes());
        p
    };
    for _ in 0..200 {
        t.inject(Host::A, call(1), Offload::default());
    }
    t.inject(Host::A, call(2), Offload::default());
    t.play("~1000\n quiet");
    t.set_carrier(TO_B, true);
    t.play("~2000\n drop");
    let link = &t.with_gateway(|g, _, _| g.status()).links[0];
    let udp = link.carried["udp"];
    assert_eq!((udp.packets, udp.dropped_packets), (64 + 1, 200 - 64));
    assert_eq!(link.dropped_packets, 200 - 64);
}

/// The link has gone, nobody says so, and the gateway at its other end is not heard.
fn silent() -> Script {
    let mut t = Script::with(|s| {
        s.link = Some(link("sat"));
        s.spare = Some(None);
    });
    t.play(
        "a > S 0 win 65535 <mss 1460,sackOK,ws 7>
         drop
         b > S. 0 ack 1 win 65535 <mss 1460,sackOK,ws 7,flsynack>
         drop
         a > . 1 ack 1
         drop
         a > P. 1:1461 ack 1
         ~20
         drop
         b > . 1 ack 1461 win 65535 <fl 1461 1024>
         ~100
         drop
         a > P. 1461:45261 ack 1 {gso 1460}
         ~20s
         drop",
    );
    let state = t.with_gateway(|g, _, _| g.status()).links[0].state;
    assert_eq!(state, "probing");
    t
}

#[test]
fn custody_leaves_a_silent_link_when_the_route_does() {
    let mut t = silent();
    t.reroute_b(SPARE);
    // At once, and no more than anybody's network is sent at first.
    let first: usize = t.take(Host::B).iter().map(|s| s.payload.len()).sum();
    assert!((1460..=14_600).contains(&first), "an initial window: {first}");
    assert_eq!(window(&mut t), 14_560, "ten segments with a mark");
    t.play("~10\n b > . 1 ack 45261 win 65535\n ~100\n drop\n quiet");
    t.assert(t.status().custody_bytes == 0, "delivered");
}

#[test]
fn the_route_may_move_before_anybody_doubts_the_link() {
    let mut t = silent();
    t.play("b > . 1 ack 45261 win 65535 <fl 45261 1024>\n ~1s\n drop");
    t.play("a > P. 45261:46721 ack 1\n ~100\n drop");
    t.reroute_b(SPARE);
    // It stood at 256 ms.
    t.play("~200");
    let again = t.take(Host::B);
    assert!(again.iter().any(|s| s.seq == 45_261), "within one RTO: {again:?}");
    let out = t.with_gateway(|g, now, _| g.flows(now, 1)[0].out_b.clone());
    assert_eq!((out.as_str(), window(&mut t)), ("spare", 14_560));
}

/// The congestion window towards b.
fn window(t: &mut Script) -> u64 {
    t.with_gateway(|g, now, _| g.flows(now, 1)[0].cwnd_b_bytes)
}

/// A full segment of a's that b acknowledges 20 ms later, by whichever way.
fn exchange(t: &mut Script, at: u32) {
    t.play(&format!(
        "a > P. {at}:{} ack 1\n ~20\n drop\n b > . 1 ack {}\n ~100\n drop",
        at + 1460,
        at + 1460
    ));
}

#[test]
fn anybodys_network_gets_congestion_control_and_the_link_does_without_again() {
    let mut t = two_ways(None);
    exchange(&mut t, 1);
    let own = window(&mut t);
    // No gateway answers: the link's rate, as far as the first acknowledgements bear it out.
    assert_eq!(own, 16_060);
    t.reroute_b(SPARE);
    exchange(&mut t, 1461);
    assert!((14_600..20_000).contains(&window(&mut t)), "an initial window: {}", window(&mut t));
    // Segments are lost there: three times the first of them, by the timer.
    t.play("a > P. 2921:17521 ack 1 {gso 1460}\n ~3000\n drop");
    assert!(window(&mut t) <= 1460, "RFC 5681 3.1: {}", window(&mut t));
    t.play("b > . 1 ack 17521\n ~1000\n drop");
    t.reroute_b(TO_B);
    exchange(&mut t, 17_521);
    assert_eq!(window(&mut t), own, "and back");
}

#[test]
fn what_is_under_way_over_the_link_does_not_train_the_other_way() {
    let mut t = two_ways(None);
    exchange(&mut t, 1);
    // 43,800 bytes are under way when the route moves.
    t.play("a > P. 1461:45261 ack 1 {gso 1460}\n ~100\n drop");
    t.reroute_b(SPARE);
    t.play("a > P. 45261:48181 ack 1 {gso 1460}\n ~20\n drop a");
    assert!(t.take(Host::B).is_empty(), "the initial window there is full");
    t.play("b > . 1 ack 45261\n ~20\n drop");
    assert_eq!(window(&mut t), 14_600, "acknowledged over the link");
    t.play("b > . 1 ack 48181\n ~500\n drop");
    assert!(window(&mut t) >= 14_600, "sent and acknowledged on the new way");
}

fn moved_by_an_event(t: &mut Script) {
    t.with_gateway(|g, now, _| g.routes_changed(now));
}

#[test]
fn a_path_mtu_that_was_told_outlasts_what_happens_to_other_routes() {
    let mut t = two_ways(None);
    t.play("a > P. 1:1461 ack 1\n ~10\n b < P. 1:1461\n drop a");
    t.play("r > a toobig 1300 . 1:1461 ack 1\n ~20\n drop\n b > . 1 ack 1461\n ~100\n drop a");
    let sizes = |t: &mut Script, at: u32| {
        t.play(&format!("a > P. {at}:{} ack 1 {{gso 1460}}\n ~100\n drop a", at + 2920));
        let sizes: Vec<usize> = t.take(Host::B).iter().map(|s| s.packet_payload()).collect();
        t.play(&format!("b > . 1 ack {}\n ~100\n drop", at + 2920));
        sizes.into_iter().max().unwrap()
    };
    moved_by_an_event(&mut t);
    assert_eq!(sizes(&mut t, 1461), 1260);
    // The connection sleeps, and an interface comes.
    t.play("~60s\n drop");
    moved_by_an_event(&mut t);
    assert_eq!(sizes(&mut t, 4381), 1260);
    // RFC 1191 section 6.3: after ten minutes a larger one may do.
    t.play("~600s\n drop");
    assert_eq!(sizes(&mut t, 7301), 1460);
}

#[test]
fn a_path_mtu_belongs_to_its_way() {
    let mut t = two_ways(None);
    t.play("a > P. 1:1461 ack 1\n ~10\n b < P. 1:1461\n drop a");
    t.play("r > a toobig 1300 . 1:1461 ack 1\n ~20\n drop\n b > . 1 ack 1461\n ~100\n drop a");
    t.reroute_b(SPARE);
    t.play("a > P. 1461:2921 ack 1\n ~20\n b < P. 1461:2921");
}

#[test]
fn the_operators_word_outlasts_the_carriers() {
    let mut t = two_ways(None);
    let operator = |t: &mut Script, up: bool| {
        t.with_gateway(|g, now, net| g.link_declared(now, IfaceId(1), up, net));
    };
    operator(&mut t, false);
    t.play("a > P. 1:101 ack 1\n +40\n a < . 1 ack 101");
    t.set_carrier(TO_B, false);
    t.set_carrier(TO_B, true);
    t.play("~10s\n quiet");
    operator(&mut t, true);
    t.play("b < P. 1:101 ack 1\n b > . 1 ack 101\n ~100\n drop a");
    // Nor does an operator's "up" make a carrier.
    t.set_carrier(TO_B, false);
    operator(&mut t, true);
    t.play("a > P. 101:201 ack 1\n +40\n a < . 1 ack 201\n ~10s\n quiet");
    t.set_carrier(TO_B, true);
    t.play("b < P. 101:201 ack 1");
}

#[test]
fn both_words_for_a_link_are_the_operators() {
    let mut t = two_ways(None);
    t.with_gateway(|g, now, _| g.set(now, "link.sat.up", "false")).unwrap();
    t.set_carrier(TO_B, true);
    t.play("a > P. 1:101 ack 1\n +40\n a < . 1 ack 101\n ~10s\n quiet");
    t.with_gateway(|g, now, net| g.link_declared(now, IfaceId(1), true, net));
    t.play("b < P. 1:101 ack 1");
}

#[test]
fn nobody_answers_for_the_far_side_of_a_link_from_this_one() {
    let mut t = silent();
    let state = |t: &mut Script| t.with_gateway(|g, _, _| g.status()).links[0].state;
    t.play("b > . 1 ack 2921 win 65535 <fl 2921 1024> {by a}\n drop");
    assert_eq!(state(&mut t), "probing");
    t.play("b > . 1 ack 2921 win 65535 <fl 2921 1024>\n drop");
    assert_eq!(state(&mut t), "up");
}

/// A link whose other end no gateway answers for may be silent because its only host is off.
#[test]
fn what_is_held_for_a_silent_host_follows_the_route_at_once() {
    for second in [Some(link("backup")), None] {
        let mut t = two_ways(second);
        exchange(&mut t, 1);
        t.play("a > P. 1461:16061 ack 1 {gso 1460}\n ~7000\n drop");
        t.reroute_b(SPARE);
        t.play("~10");
        let again = t.take(Host::B);
        assert_eq!(again.first().map(|s| s.seq), Some(1461), "not when a timer comes to it");
        let all: usize = again.iter().map(|s| s.payload.len()).sum();
        assert!(all > 7_300, "what the new way has room for: {all}");
    }
}

/// No event tells of it: the kernel sends a host's packets by another interface, with a mark, as
/// each of them shows. Each direction has its own, and what is forwarded keeps what it came with.
#[test]
fn what_is_made_leaves_as_the_kernel_has_shown() {
    let mut t = two_ways(Some(link("backup")));
    let of_a = Shown {
        out: Some(SPARE),
        next_hop: Some([2, 0, 0, 0, 0, 7]),
        mark: 0x200,
        priority: 0x1_0010,
        found: FoundWay::ByAddresses,
    };
    let of_b = Shown { mark: 9, ..Shown::default() };
    let b = "10.0.2.1".parse::<std::net::IpAddr>().unwrap();
    t.with_gateway(|_, _, net| {
        net.shown.extend([(TO_A, of_a), (TO_B, of_b)]);
        net.b_by = SPARE;
        net.left.clear();
    });
    // It leaves by the other link, which the script checks. Nobody answers, so it goes out again.
    t.play("a > P. 1:101 ack 1\n b < P. 1:101 ack 1\n ~3000\n drop");
    t.play("b > . 1 ack 101\n ~100\n drop");
    let left = t.with_gateway(|_, _, net| std::mem::take(&mut net.left));
    let to = |is_b: bool| left.iter().filter(move |(dst, _)| (*dst == b) == is_b).map(|(_, shown)| *shown);
    assert!(to(true).count() > 1 && to(true).all(|shown| shown == of_a), "{left:?}");
    let not_heard_yet = |shown: &Shown| *shown == Shown::default();
    assert!(to(false).skip_while(not_heard_yet).all(|shown| shown == of_b), "{left:?}");
    t.play("b > P. 1:101 ack 101\n ~100\n drop");
    t.with_gateway(|_, _, net| {
        let mut to_a = net.left.iter().filter(|(dst, _)| *dst != b);
        assert!(to_a.next().is_some() && to_a.all(|(_, shown)| *shown == of_b), "{:?}", net.left);
        net.left.clear();
        net.shown.insert(TO_A, Shown { mark: 5, ..of_a });
    });
    t.inject(Host::A, datagram(1), Offload::default());
    t.play("b < other, 29 bytes");
    t.with_gateway(|_, _, net| assert_eq!(net.left, [(b, Shown { mark: 5, ..of_a })]));
}
