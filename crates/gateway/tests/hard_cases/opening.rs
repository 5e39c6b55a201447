//! Connections that open while their link is away: what of their handshake meets it waits for it.

use crate::script::network::{SPARE, TO_A, TO_B};
use crate::script::{Host, Script};
use farlink_gateway::config::Link;

fn link() -> Link {
    Link { name: "sat".into(), ..Link::default() }
}

fn half_open_bytes(t: &mut Script) -> u64 {
    t.with_gateway(|g, _, _| g.memory()).half_open_bytes
}

#[test]
fn the_newest_syn_leaves_when_its_link_is_back() {
    for v6 in [false, true] {
        let mut t = Script::with(|s| (s.v6, s.link) = (v6, Some(link())));
        t.set_carrier(TO_B, false);
        t.play(
            "a > S 0 win 65535 <mss 1460,sackOK,ws 7,ts 1000 0>
             ~1s
             a > S 0 win 65535 <mss 1460,sackOK,ws 7,ts 2000 0>
             ~2s
             a > S 0 win 65535 <mss 1460,sackOK,ws 7,ts 4000 0>
             ~50s
             quiet",
        );
        t.set_carrier(TO_B, true);
        // It asks for a gateway as ever: the link has lost the others itself.
        t.play(
            "b < S 0 win 65535 <mss 1460,sackOK,ws 7,ts 4000 0,flsyn>
             ~1s
             quiet
             b > S. 0 ack 1 win 65535 <mss 1460,sackOK,ws 7,ts 9000 4000>
             a < S. 0 ack 1
             a > . 1 ack 1 <ts 60000 9000>
             b < . 1 ack 1
             a > P. 1:101 ack 1 <ts 60000 9000>
             b < P. 1:101 ack 1
             +40
             a < . 1 ack 101",
        );
    }
}

/// How long the link was away is no round trip.
#[test]
fn what_has_waited_tells_nothing_of_the_round_trip() {
    let mut t = Script::with(|s| s.link = Some(link()));
    t.set_carrier(TO_B, false);
    t.play("a > S 0 win 65535 <mss 1460>\n ~30s\n quiet");
    t.set_carrier(TO_B, true);
    t.play(
        "drop b
         ~10
         b > S. 0 ack 1 win 65535 <mss 1460>
         drop a
         a > . 1 ack 1
         drop b
         a > P. 1:101 ack 1
         b < P. 1:101 ack 1
         ~1100",
    );
    assert!(!t.take(Host::B).is_empty(), "repeated after the initial RTO of a second (RFC 6298)");
}

#[test]
fn the_newest_answer_leaves_when_its_link_is_back() {
    let mut t = Script::with(|s| s.link_a = Some(link()));
    t.play("a > S 0 win 65535 <mss 1460>\n b < S 0");
    t.set_carrier(TO_A, false);
    t.play("b > S. 0 ack 1 win 65535 <mss 1460>\n ~1s\n b > S. 0 ack 1 win 65535 <mss 1460>\n ~9s\n quiet");
    t.set_carrier(TO_A, true);
    t.play("a < S. 0 ack 1\n ~1s\n quiet\n a > . 1 ack 1\n b < . 1 ack 1\n a > P. 1:101 ack 1\n b < P. 1:101 ack 1");
    t.assert(t.status().flows_split == 1, "as if nothing had been");
}

#[test]
fn a_route_that_moves_takes_a_waiting_syn_along() {
    let mut t = Script::with(|s| (s.link, s.spare) = (Some(link()), Some(None)));
    t.set_carrier(TO_B, false);
    t.play("a > S 0 win 65535 <mss 1460>\n ~1s\n quiet");
    t.reroute_b(SPARE);
    t.play("b < S 0\n ~1s\n quiet");
    t.set_carrier(TO_B, true);
    t.play("~1s\n quiet");
}

/// A minute and a half after the last word of a host nobody waits for it.
#[test]
fn a_syn_waits_as_long_as_a_handshake_is_remembered() {
    let mut t = Script::with(|s| s.link = Some(link()));
    let before = half_open_bytes(&mut t);
    t.set_carrier(TO_B, false);
    t.play("a > S 0 win 65535 <mss 1460>\n ~60s\n a > S 0 win 65535 <mss 1460>\n ~60s");
    assert!(half_open_bytes(&mut t) > before);
    let waiting = t.status().half_open;
    t.assert(waiting == 1, "since it was heard last");
    t.play("~20s");
    t.assert(t.status().half_open == 0, "no longer");
    t.set_carrier(TO_B, true);
    t.play("~1s\n quiet");
}

#[test]
fn many_that_wait_take_bounded_memory_and_give_it_back() {
    let max = 100;
    let mut t = Script::with(|s| {
        s.config.limits.half_open_max = max;
        s.link = Some(link());
    });
    t.set_carrier(TO_B, false);
    for round in 0..3 {
        for port in 0..500 {
            t.play(&format!("a > S 0 win 65535 <mss 1460> {{port {}}}", 1024 + round * 500 + port));
        }
        t.assert(t.status().half_open <= 100, "bounded");
        assert!(half_open_bytes(&mut t) < 120_000, "{}", half_open_bytes(&mut t));
    }
    t.set_carrier(TO_B, true);
    let mut ports: Vec<u16> = t.take(Host::B).iter().map(|s| s.port).collect();
    assert_eq!(ports.len(), 64, "so many at once");
    t.play("~10");
    ports.extend(t.take(Host::B).iter().map(|s| s.port));
    assert_eq!(ports.len(), max);
    assert!(ports.is_sorted(), "in the order in which they came: {ports:?}");
    t.play("~80s");
    assert!(half_open_bytes(&mut t) < 22_000, "{}", half_open_bytes(&mut t));
}

/// A link that only is silent gets the SYN at once, and once more when it is heard again: the first
/// one may have been lost.
#[test]
fn a_syn_into_a_silent_link_leaves_twice() {
    let mut t = Script::with(|s| s.link = Some(Link { rate_bps: Some(8_000_000), ..link() }));
    t.open_with("<mss 1460,sackOK,ws 7>", "<mss 1460,sackOK,ws 7,flsynack>");
    t.play(
        "a > P. 1:101 ack 1\n ~200\n drop\n b > . 1 ack 101 <fl>\n drop\n a > P. 101:201 ack 1\n ~20s\n drop",
    );
    assert_eq!(t.with_gateway(|g, _, _| g.status()).links[0].state, "probing");
    t.play("a > S 0 win 65535 <mss 1460> {port 40001}");
    let syns = |t: &mut Script| t.take(Host::B).iter().filter(|s| s.segment.flags.syn()).count();
    assert_eq!(syns(&mut t), 1);
    t.play("b > . 1 ack 201 <fl>\n ~10");
    assert_eq!(syns(&mut t), 1, "the link is heard");
    t.play("drop\n b > S. 0 ack 1 win 65535 <mss 1460> {port 40001}\n ~1s");
    assert_eq!(syns(&mut t), 0);
}

/// Else what it tells by marks would be taken for the host's own word.
#[test]
fn a_gateway_that_was_answered_without_a_word_of_us_is_no_peer() {
    let mut t = Script::with(|s| s.link_a = Some(link()));
    t.play(
        "a > S 0 win 65535 <mss 1460>
         b < S 0
         b > S. 0 ack 1 win 65535 <mss 1460>
         a < S. 0 ack 1 <no flsynack>
         # The same SYN once more, by a gateway that has heard its link again meanwhile.
         a > S 0 win 65535 <mss 1460,flraw 51 68 0000000102000700>
         b < S 0
         a > . 1 ack 1
         b < . 1 ack 1
         a > P. 1:101 ack 1
         b < P. 1:101 ack 1
         +40
         a < . 1 ack 101 <no fl>",
    );
}
