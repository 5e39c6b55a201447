//! A link that is known to be down: custody lasts as long as the outage, and hosts need not notice.

use crate::script::{Host, Script};
use farlink_gateway::IfaceId;
use farlink_gateway::config::Link;
use farlink_wire::Duration;

/// 100 bytes of a's on their way to b when the link towards b goes down.
fn outage() -> Script {
    let mut t = Script::with(|s| {
        s.config.timers.user_timeout = Duration::from_secs(60);
        s.link = Some(Link { name: "sat".into(), ..Link::default() });
    });
    t.open();
    t.play("a > P. 1:101 ack 1\n b < P. 1:101\n +40\n a < . 1 ack 101");
    set_link(&mut t, false);
    t
}

fn set_link(t: &mut Script, up: bool) {
    t.with_gateway(|g, now, net| g.link_state(now, IfaceId(1), up, net));
}

#[test]
fn custody_outlasts_any_outage_that_is_known() {
    let mut t = outage();
    t.play("~300s\n quiet");
    t.assert(t.status().custody_bytes == 100, "an outage is no reason to give up");
    set_link(&mut t, true);
    // At once, without waiting for a backed-off timer.
    t.play(
        "b < P. 1:101 ack 1
         b > . 1 ack 101
         ~1000
         drop a
         quiet",
    );
}

#[test]
fn keepalives_are_answered_while_the_link_is_down() {
    let mut t = outage();
    t.play("~300s\n quiet\n a > . 100 ack 1\n a < . 1 ack 101\n quiet");
}

#[test]
fn keepalives_are_not_answered_for_a_host_that_may_be_dead() {
    let mut t = Script::new();
    t.open();
    t.play(
        "a > P. 1:101 ack 1
         b < P. 1:101 ack 1
         +40
         a < . 1 ack 101
         ~20s
         drop b
         # Three timeouts, and nobody says that the link is down: a is to find out by itself.
         a > . 100 ack 1
         b < . 100 ack 1
         quiet",
    );
}

#[test]
fn the_user_timeout_begins_anew_when_the_link_is_back() {
    let mut t = outage();
    t.play("~300s\n quiet");
    set_link(&mut t, true);
    t.play("~50s");
    assert!(t.take(Host::A).is_empty(), "not yet");
    t.play("drop b\n ~60s");
    assert!(t.take(Host::A).iter().any(|s| s.segment.flags.rst()), "the far side is really gone");
}

#[test]
fn the_operator_can_say_that_a_link_is_down_and_up() {
    let mut t = Script::with(|s| {
        s.link = Some(Link { name: "sat".into(), ..Link::default() });
        s.config.timers.user_timeout = Duration::from_secs(60);
    });
    t.open();
    t.with_gateway(|g, now, _| g.set(now, "link.sat.up", "false")).unwrap();
    t.play("a > P. 1:101 ack 1\n +40\n a < . 1 ack 101\n ~300s\n quiet");
    t.with_gateway(|g, now, _| g.set(now, "link.sat.up", "true")).unwrap();
    t.play("b < P. 1:101 ack 1\n b > . 1 ack 101\n ~1000\n drop a\n quiet");
}

#[test]
fn an_outage_does_not_make_segments_small() {
    let mut t = outage();
    t.play("~300s\n quiet");
    set_link(&mut t, true);
    t.play(
        "b < P. 1:101 ack 1
         b > . 1 ack 101
         a > P. 101:3021 ack 1 {gso 1460}
         ~10",
    );
    let largest = t.take(Host::B).iter().map(|s| s.payload.len()).max();
    assert_eq!(largest, Some(1460));
}

#[test]
fn data_goes_into_custody_during_an_outage() {
    let mut t = outage();
    t.play(
        "~300s
         a > P. 101:201 ack 1
         +40
         a < . 1 ack 201
         ~300s
         quiet",
    );
    t.assert(t.status().custody_bytes == 200, "held");
    set_link(&mut t, true);
    let got: usize = t.take(Host::B).iter().map(|s| s.payload.len()).sum();
    assert_eq!(got, 200);
}
