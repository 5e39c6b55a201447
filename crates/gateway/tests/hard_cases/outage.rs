//! A link that is known to be down: custody lasts as long as the outage, and hosts need not notice.

use crate::receiver::Receiver;
use crate::script::network::TO_B;
use crate::script::{Host, Script};
use farlink_gateway::cc::Kind;
use farlink_gateway::config::{LegConfig, Link};
use farlink_wire::Duration;

/// 100 bytes of a's on their way to b when the link towards b goes down.
fn outage() -> Script {
    outage_after(Script::open)
}

/// The same after this handshake.
fn outage_after(open: impl Fn(&mut Script)) -> Script {
    let mut t = Script::with(|s| {
        s.config.timers.user_timeout = Duration::from_secs(60);
        s.link = Some(Link { name: "sat".into(), ..Link::default() });
    });
    open(&mut t);
    t.play("a > P. 1:101 ack 1\n b < P. 1:101\n +40\n a < . 1 ack 101");
    t.set_carrier(TO_B, false);
    t
}

#[test]
fn custody_outlasts_any_outage_that_is_known() {
    let mut t = outage();
    t.play("~300s\n quiet");
    t.assert(t.status().custody_bytes == 100, "an outage is no reason to give up");
    t.set_carrier(TO_B, true);
    // At once, without waiting for a backed-off timer.
    t.play(
        "b < P. 1:101 ack 1
         b > . 1 ack 101
         ~1000
         drop a
         quiet",
    );
}

/// The FIN that an outage held up is no longer to be sent: who it was for has reset.
#[test]
fn a_reset_ends_what_an_outage_left_under_way() {
    let mut t = Script::with(|s| s.link = Some(Link { name: "sat".into(), ..Link::default() }));
    t.open();
    t.play(
        "b > P. 1:101 ack 1
         a < P. 1:101 ack 1
         +40
         b < . 1 ack 101
         a > F. 1 ack 1
         drop",
    );
    t.set_carrier(TO_B, false);
    t.play("~1s\n drop");
    t.set_carrier(TO_B, true);
    t.play(
        "b < F. 1 ack 101
         b > R. 101 ack 1
         ~2s
         drop
         a > . 2 ack 101
         a < R. 101 ack 1",
    );
}

#[test]
fn an_outage_of_half_an_hour_does_not_outlast_a_timestamp() {
    let mut t = Script::with(|s| s.link = Some(Link { name: "sat".into(), ..Link::default() }));
    t.open_with("<mss 1460,sackOK,ws 7,ts 1000 0>", "<mss 1460,sackOK,ws 7,ts 5000 0>");
    t.set_carrier(TO_B, false);
    // A request; its source waits for the answer and has nothing more to say.
    t.play("a > P. 1:101 ack 1 <ts 1010 5000>\n +40\n a < . 1 ack 101\n ~1800s\n quiet");
    t.set_carrier(TO_B, true);
    t.play(
        "b < P. 1:101 ack 1 <ts 1010 5000>
         b > P. 1:51 ack 101 <ts 6000 1010>
         a < P. 1:51 ack 101 <ts 6000 1010>",
    );
}

#[test]
fn a_closed_window_outlasts_an_outage() {
    let mut t = Script::with(|s| {
        s.config.timers.user_timeout = Duration::from_secs(60);
        s.link = Some(Link { name: "sat".into(), ..Link::default() });
    });
    t.open();
    t.play("b > . 1 ack 1 win 0\n drop\n a > P. 1:101 ack 1\n +40\n a < . 1 ack 101\n ~2s\n drop b");
    t.set_carrier(TO_B, false);
    t.play("~300s\n quiet");
    t.set_carrier(TO_B, true);
    // Nobody could answer a probe that never left: it is asked anew, at once.
    t.play("b < . 0 ack 1\n ~30s");
    assert!(t.take(Host::A).is_empty(), "not given up");
    t.play("drop b\n b > . 1 ack 1 win 512\n b < P. 1:101 ack 1");
}

#[test]
fn custody_that_never_gets_a_turn_is_given_up() {
    let mut t = Script::with(|s| {
        s.config.timers.user_timeout = Duration::from_secs(60);
        let leg = LegConfig { cc: Kind::FixedRate, ..LegConfig::default() };
        s.link = Some(Link { name: "sat".into(), rate_bps: Some(8), leg, ..Link::default() });
    });
    t.open();
    // One packet takes this link minutes; what follows is not sent within the user timeout.
    t.play("a > P. 1:101 ack 1\n +40\n a < . 1 ack 101\n ~40s\n quiet");
    t.play("~30s");
    assert!(t.take(Host::A).iter().any(|s| s.segment.flags.rst()), "its source is told");
    assert!(t.take(Host::B).iter().any(|s| s.segment.flags.rst()), "its destination is told");
    t.assert(t.status().custody_bytes == 0 && t.status().counters.flows_abandoned == 1, "given up");
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
    t.set_carrier(TO_B, true);
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
fn who_knows_when_there_is_contact_has_a_word_of_his_own() {
    let mut t = Script::with(|s| s.link = Some(Link { name: "sat".into(), ..Link::default() }));
    t.open();
    let set = |t: &mut Script, key: &str, value: &str| t.with_gateway(|g, now, _| g.set(now, key, value));
    let said = |t: &mut Script| {
        let link = t.with_gateway(|g, _, _| g.status()).links.remove(0);
        (link.state, link.down_by.join(", "), link.up)
    };
    assert_eq!(said(&mut t), ("up", String::new(), true));
    set(&mut t, "link.sat.contact", "false").unwrap();
    assert_eq!(said(&mut t), ("down", "contact plan".into(), false));
    t.play("a > P. 1:101 ack 1\n +40\n a < . 1 ack 101\n ~1800s\n quiet");
    t.set_carrier(TO_B, false);
    assert_eq!(said(&mut t), ("down", "kernel, contact plan".into(), false));
    // There is contact, but no carrier yet.
    set(&mut t, "link.sat.contact", "true").unwrap();
    t.play("~1s\n quiet");
    assert_eq!(said(&mut t), ("down", "kernel".into(), false));
    t.set_carrier(TO_B, true);
    t.play("b < P. 1:101 ack 1\n b > . 1 ack 101\n ~1000\n drop a\n quiet");
    assert_eq!(said(&mut t), ("up", String::new(), true));
    let wrong = set(&mut t, "link.sat.contact", "up").unwrap_err();
    assert!(wrong.to_string().contains("true and false"), "{wrong}");
}

/// Else the next timer would wait for days, and what is held with it.
#[test]
fn an_answer_that_comes_after_an_outage_is_no_round_trip() {
    let mut t = outage();
    t.play("~75600s\n quiet\n b > . 1 ack 101");
    t.set_carrier(TO_B, true);
    t.play("~1s\n drop\n a > P. 101:201 ack 1\n b < P. 101:201 ack 1\n +40\n a < . 1 ack 201\n ~3s");
    assert!(!t.take(Host::B).is_empty(), "it is sent again by its timer");
    t.play("~100s");
    assert!(t.take(Host::A).iter().any(|s| s.segment.flags.rst()), "given up after the user timeout");
}

#[test]
fn an_outage_does_not_make_segments_small() {
    let mut t = outage_after(|t| t.open_in(50));
    t.play("~300s\n quiet");
    t.set_carrier(TO_B, true);
    t.play(
        "b < P. 1:101 ack 1
         b > . 1 ack 101
         a > P. 101:3021 ack 1 {gso 1460}
         ~10",
    );
    let sizes = Receiver::new(101).put(&t.take(Host::B));
    assert_eq!(sizes, [1460, 1460]);
}

#[test]
fn an_outage_that_nobody_announces_does_not_make_segments_small() {
    // However long it lasts: one, two, three and more timeouts.
    for seconds in [1, 2, 4, 7, 12, 40, 200] {
        let mut t = Script::new();
        t.open();
        t.play("a > P. 1:1461 ack 1\n b < P. 1:1461 ack 1\n ~100\n drop\n b > . 1 ack 1461\n ~100\n drop");
        t.play(&format!("a > P. 1461:7301 ack 1 {{gso 1460}}\n ~{seconds}s\n drop"));
        // It is over: b answers what comes next, and acknowledges all that it gets.
        let (mut b, mut end, mut rounds) = (Receiver::new(1461), 7301, Vec::new());
        while b.acked < 40_000 {
            rounds.push(b.take(&mut t).into_iter().max().unwrap_or(0));
            if b.acked == end {
                t.play(&format!("drop\n a > P. {end}:{} ack 1 {{gso 1460}}", end + 5840));
                end += 5840;
            }
        }
        let small = rounds.iter().filter(|n| **n < 1460).count();
        assert_eq!(rounds.last(), Some(&1460), "{seconds} s: {rounds:?}");
        assert!(small <= 3, "{seconds} s: only what found out is small: {rounds:?}");
    }
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
    t.set_carrier(TO_B, true);
    let got: usize = t.take(Host::B).iter().map(|s| s.payload.len()).sum();
    assert_eq!(got, 200);
}

#[test]
fn who_repeats_that_there_is_contact_makes_nothing_be_sent_again() {
    let mut t = Script::with(|s| s.link = Some(Link { name: "sat".into(), ..Link::default() }));
    t.open();
    t.play("a > P. 1:101 ack 1\n b < P. 1:101 ack 1\n +40\n a < . 1 ack 101");
    for key in ["link.sat.contact", "link.sat.up"] {
        t.with_gateway(|g, now, _| g.set(now, key, "true")).unwrap();
    }
    t.play("~100\n quiet\n b > . 1 ack 101");
}

#[test]
fn new_data_is_held_during_an_outage_however_long_nobody_was_heard_before() {
    let mut t = Script::with(|s| s.link = Some(Link { name: "sat".into(), ..Link::default() }));
    t.open();
    t.play("a > P. 1:101 ack 1\n b < P. 1:101 ack 1\n +40\n a < . 1 ack 101\n ~10s\n drop b");
    t.set_carrier(TO_B, false);
    t.play("~60s\n drop\n a > P. 101:201 ack 1\n +40\n a < . 1 ack 201\n quiet");
    t.set_carrier(TO_B, true);
    t.play("~100");
    assert!(t.take(Host::B).iter().any(|s| s.seq == 1), "it goes on");
}
