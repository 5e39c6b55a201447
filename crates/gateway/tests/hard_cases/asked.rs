//! A rule with `keepalive`: hosts of an idle connection are asked by the gateway whether they live.

use farlink_gateway::config::{Action, Link, Rule};
use farlink_wire::Duration;

use crate::limits::rule;
use crate::script::{Host, Script};

/// Each two seconds, also while a connection is not asleep by the usual timer.
fn script() -> Script {
    Script::with(|s| {
        s.config.rules = vec![Rule { keepalive: Some(Duration::from_secs(2)), ..rule(Action::Split) }];
    })
}

/// A request of 100 bytes and an answer of 50, all acknowledged, and then nothing for 10 ms.
const TALK: &str = "a > P. 1:101 ack 1
     b < P. 1:101 ack 1
     b > P. 1:51 ack 101
     a < P. 1:51 ack 101
     a > . 101 ack 51
     ~50
     drop";

/// Both hosts are asked, and answer.
const ASKED: &str = "a < . 50 ack 101
     b < . 100 ack 51
     a > . 101 ack 51
     b > . 51 ack 101
     quiet";

fn counts(t: &mut Script) -> (u64, u64, u64) {
    let c = t.status().counters;
    (c.keepalives_asked, c.keepalives_answered, c.keepalives_given_up)
}

#[test]
fn both_hosts_are_asked_and_their_answers_are_absorbed() {
    let mut t = script();
    t.open();
    t.play(TALK);
    t.play("~1940");
    for _ in 0..30 {
        t.play("~20");
        t.play(ASKED);
        t.play("+1980");
    }
    assert_eq!(counts(&mut t), (60, 60, 0));
    t.assert(t.mode() == "dormant", "it sleeps all the time");
    // The connection goes on, and is asked again when it is idle again.
    t.play(
        "~20\n drop\n a > P. 101:201 ack 51\n b < P. 101:201 ack 51\n b > . 51 ack 201\n ~100\n drop\n +1800",
    );
    t.play("~200\n a < . 50 ack 201\n b < . 200 ack 51\n quiet");
}

#[test]
fn without_the_rule_nobody_is_asked() {
    let mut t = Script::new();
    t.open();
    t.play(TALK);
    t.play("+60000\n quiet");
    assert_eq!(counts(&mut t), (0, 0, 0));
}

/// Three questions, and then the connection is as without us: data of the other host goes out, and
/// is repeated by that host alone.
#[test]
fn a_host_that_is_silent_for_three_ends_it_for_both() {
    let mut t = script();
    t.open();
    t.play(TALK);
    t.play("~1940");
    for _ in 0..3 {
        t.play("~20\n a < . 50 ack 101\n b < . 100 ack 51\n a > . 101 ack 51\n quiet\n +1980");
    }
    assert_eq!(counts(&mut t), (6, 3, 0));
    t.play("+60000\n quiet");
    assert_eq!(counts(&mut t), (6, 3, 1));
    // Its own keepalive passes, and the answer to it.
    t.play("a > . 100 ack 51\n b < . 100 ack 51\n quiet\n +10000");
    t.play("b > . 51 ack 101\n a < . 51 ack 101");
    // It lives after all: both are asked again.
    t.play("~2100\n a < . 50 ack 101\n b < . 100 ack 51");
}

#[test]
fn a_host_that_has_gone_is_reported_to_the_other_one() {
    let mut t = script();
    t.open();
    t.play(TALK);
    t.play("~1940\n ~20\n drop a\n b < . 100 ack 51");
    // The server has been restarted: it answers with the number that it was asked about.
    t.play("b > R 51\n a < R 51\n ~5s");
    t.assert(t.mode() == "none", "it is over");
    assert_eq!(counts(&mut t).0, 2);
}

#[test]
fn what_is_not_an_answer_to_us_passes() {
    let mut t = script();
    t.open();
    t.play(TALK);
    t.play("~1940\n ~20\n drop");
    // Another window than before is news for the other host.
    t.play("b > . 51 ack 101 win 300\n a < . 51 ack 101 win 300");
    // A host asks by itself while ours is under way: it gets its answer.
    t.play(
        "~2100\n drop\n a > . 100 ack 51\n b < . 100 ack 51\n b > . 51 ack 101 win 300\n a < . 51 ack 101",
    );
    t.play("a > . 101 ack 51\n quiet");
}

#[test]
fn a_link_that_is_away_is_not_asked() {
    let mut t = script();
    t.open();
    t.play(TALK);
    t.play("~1940");
    t.set_carrier(crate::script::network::TO_B, false);
    t.play("drop\n +20000\n quiet");
    t.set_carrier(crate::script::network::TO_B, true);
    t.play("~1000\n a < . 50 ack 101\n b < . 100 ack 51");
    assert!(t.take(Host::A).is_empty(), "once");
}

#[test]
fn a_connection_that_has_begun_to_end_is_the_hosts_own() {
    let mut t = script();
    t.open();
    t.play(TALK);
    t.play(
        "a > F. 101 ack 51
         ~50
         drop
         b > . 51 ack 102
         ~50
         drop
         +30000
         quiet",
    );
}

/// Each question of one gateway passes the other one, whose own it puts off.
#[test]
fn two_gateways_with_the_rule_ask_as_often_as_one() {
    let mut t = Script::with(|s| {
        s.gateways = 2;
        s.link = Some(Link { name: "sat".into(), ..Link::default() });
        s.config.rules = vec![Rule { keepalive: Some(Duration::from_secs(2)), ..rule(Action::Split) }];
    });
    t.open();
    t.play("a > P. 1:101 ack 1\n ~600\n drop\n b > P. 1:51 ack 101\n ~600\n drop\n a > . 101 ack 51\n ~800\n drop");
    let (mut asked_a, mut asked_b) = (0, 0);
    for _ in 0..30 {
        t.play("~1500");
        let (of_a, of_b) = (t.take(Host::A).len(), t.take(Host::B).len());
        (0..of_a).for_each(|_| t.send(Host::A, ". 101 ack 51"));
        (0..of_b).for_each(|_| t.send(Host::B, ". 51 ack 101"));
        asked_a += of_a;
        asked_b += of_b;
        // Answers to the other gateway may come to the hosts.
        t.play("~500\n drop");
    }
    assert!((20..=62).contains(&asked_a) && (20..=62).contains(&asked_b), "{asked_a} {asked_b}");
    assert_eq!(counts(&mut t).2, 0, "nobody was silent");
    assert_eq!(t.mode(), "dormant");
}
