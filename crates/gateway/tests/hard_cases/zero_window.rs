//! Zero windows: probing, persistence, and no silly windows.

use crate::script::{Host, Script};
use farlink_wire::Duration;

/// b has read 100 bytes and closed its window; 100 more wait in the gateway.
fn closed() -> Script {
    let mut t = Script::new();
    t.open();
    t.play(
        "a > P. 1:101 ack 1
         b < P. 1:101 ack 1
         +10
         b > . 1 ack 101 win 0
         +30
         a < . 1 ack 101
         a > P. 101:201 ack 1
         quiet
         +40
         a < . 1 ack 201",
    );
    t
}

#[test]
fn a_closed_window_is_probed_with_growing_pauses_and_opens_at_once() {
    let mut t = closed();
    t.play("~30s");
    let probes = t.take(Host::B);
    assert!((5..12).contains(&probes.len()), "doubling pauses: {}", probes.len());
    for p in &probes {
        assert!(p.seq == 100 && p.payload.is_empty(), "outside the window, so that it is answered: {p}");
    }
    t.play(
        "b > . 1 ack 101 win 512
         b < P. 101:201 ack 1
         b > . 1 ack 201
         ~5000
         quiet",
    );
}

#[test]
fn custody_waits_for_a_receiver_that_answers_its_probes_as_long_as_it_takes() {
    let mut t = Script::with(|s| s.config.timers.user_timeout = Duration::from_secs(120));
    t.open();
    t.play(
        "b > . 1 ack 1 win 0
         drop
         a > P. 1:101 ack 1
         +40
         a < . 1 ack 101",
    );
    for _ in 0..60 {
        t.play("~60s");
        if !t.take(Host::B).is_empty() {
            t.play("b > . 1 ack 1 win 0");
        }
    }
    t.play("quiet\n b > . 1 ack 1 win 512\n b < P. 1:101 ack 1");
}

#[test]
fn a_receiver_that_does_not_answer_its_probes_is_given_up() {
    let mut t = Script::with(|s| s.config.timers.user_timeout = Duration::from_secs(120));
    t.open();
    t.play("b > . 1 ack 1 win 0\n drop\n a > P. 1:101 ack 1\n ~119s");
    assert!(t.take(Host::A).iter().all(|s| !s.segment.flags.rst()));
    t.play("drop b\n ~70s");
    assert!(t.take(Host::B).last().is_some_and(|s| s.segment.flags.rst() && s.seq == 1));
    assert!(t.take(Host::A).last().is_some_and(|s| s.segment.flags.rst() && s.seq == 1));
}

#[test]
fn a_window_of_a_few_bytes_is_not_filled_in_crumbs() {
    let mut t = Script::new();
    t.open_with("<mss 1460,sackOK,ws 0>", "<mss 1460,sackOK,ws 0>");
    t.play(
        "b > . 1 ack 1 win 0
         drop
         a > P. 1:2921 ack 1 win 65535 {gso 1460}
         ~1
         drop a
         b > . 1 ack 1 win 10
         +1
         quiet
         b > . 1 ack 1 win 1460
         b < . 1:1461 ack 1",
    );
}

#[test]
fn the_window_of_the_gateway_opens_in_whole_segments() {
    let mut t = Script::with(|s| s.config.limits.relay_bytes = 8760);
    t.open_with("<mss 1460,sackOK,ws 0>", "<mss 1460,sackOK,ws 0>");
    // b's SYN-ACK promised 65,535 bytes; a fills them while b reads nothing.
    t.play("b > . 1 ack 1 win 0\n drop");
    for at in (1..65535).step_by(1285) {
        t.play(&format!("a > P. {at}:{} ack 1 win 65535\n ~1\n drop", at + 1285));
    }
    let mut edge = 65_536;
    t.play("~100\n drop\n b > . 1 ack 1 win 65535\n drop");
    for ack in (1..65_536u32).step_by(997).skip(1) {
        t.play(&format!("drop b\n b > . 1 ack {ack} win 65535"));
        for s in t.take(Host::A) {
            let new = s.ack + u32::from(s.segment.window);
            assert!(new >= edge, "taken back: {s}");
            assert!(new == edge || new - edge >= 1285, "a silly step from {edge}: {s}");
            edge = new;
        }
        t.play("~1\n drop b");
    }
    t.assert(edge > 65_536, "it opened");
}

#[test]
fn a_fin_goes_into_a_closed_window() {
    let mut t = closed();
    t.play(
        "b > . 1 ack 101 win 1
         b < P. 101:201 ack 1
         b > . 1 ack 201 win 0
         a > F. 201 ack 1
         b < F. 201 ack 1",
    );
}

#[test]
fn urgent_data_is_announced_at_a_closed_window() {
    let mut t = Script::new();
    t.open();
    // With the next sequence number: with an old one it would be dropped before the urgent pointer
    // is read.
    t.play(
        "b > . 1 ack 1 win 0
         drop
         a > PU. 1:101 ack 1 urg 50
         b < U. 1 ack 1 urg 50
         +40
         a < . 1 ack 101
         ~1000",
    );
    let probes = t.take(Host::B);
    assert!(
        probes.iter().any(|p| p.segment.flags.urg() && p.seq == 1 && p.segment.urgent == 50),
        "again with each probe: {probes:?}"
    );
}
