//! Custody mode before a gateway that splits: what that one has acknowledged the far host need not
//! have, and it may die with it.

use crate::script::network::TO_B;
use crate::script::{Host, Script};
use farlink_gateway::config::{Action, Link, Notice};

/// One gateway in custody mode, and behind its link another one.
fn before_a_gateway() -> Script {
    let mut t = Script::with(|s| {
        s.config.default_action = Action::Custody(Notice::Silence);
        s.link = Some(Link { name: "sat".into(), ..Link::default() });
    });
    t.play(
        "a > S 0 win 65535 <mss 1460,sackOK>
         drop b
         b > S. 0 ack 1 win 65535 <mss 1460,sackOK,flsynack>
         drop a
         a > . 1 ack 1
         drop b",
    );
    t
}

/// Behind the link of the one in custody mode another one has promised 301 bytes of
/// which host b has got 100.
fn behind_one_that_splits() -> Script {
    let mut t = before_a_gateway();
    t.play(
        "b > . 1 ack 1 <fl 1 64>
         drop a
         a > P. 1:101 ack 1
         b < P. 1:101
         b > . 1 ack 101 <fl 1 64>
         a > P. 101:201 ack 1
         b < P. 101:201
         a > P. 201:301 ack 1
         b < P. 201:301
         ~1
         drop a
         b > . 1 ack 301 <fl 101 64>
         a < . 1 ack 101",
    );
    t
}

/// Host b asks for what it lacks, again and again, and shows so that it is no gateway. What the
/// gateway that died has said of it counts for nothing.
#[test]
fn what_a_gateway_took_with_it_is_never_acknowledged_to_the_source() {
    let mut t = behind_one_that_splits();
    for _ in 0..100 {
        t.play("b > . 1 ack 101 win 65435\n ~10");
        let acks: Vec<_> = t.take(Host::A).iter().map(|s| s.ack).collect();
        // The gateway is asked where it stands.
        t.play("drop b");
        assert!(acks.iter().all(|ack| *ack == 101), "{acks:?}");
    }
}

/// The source has it still, and sends it again. Nothing of it is held here.
#[test]
fn what_a_gateway_took_with_it_goes_from_end_to_end() {
    let mut t = behind_one_that_splits();
    // It may be alive as long as nobody else speaks on its leg. It is asked, and the host answers.
    t.play(
        "+300
         a > P. 101:201 ack 1
         b < . 300
         ~200
         b < . 300
         b > . 1 ack 101 win 65435
         ~1
         drop a
         a > P. 101:201 ack 1
         b < P. 101:201 ack 1
         b > . 1 ack 201 win 65335
         a < . 1 ack 201
         a > P. 201:301 ack 1
         b < P. 201:301 ack 1
         b > . 1 ack 301 win 65235
         a < . 1 ack 301
         # And as ever from here on.
         a > P. 301:401 ack 1
         b < P. 301:401 ack 1
         b > . 1 ack 401
         a < . 1 ack 401
         +1000
         quiet",
    );
}

/// It would be lost.
#[test]
fn nothing_is_passed_on_into_a_link_that_is_away() {
    let mut t = behind_one_that_splits();
    t.play("~1s\n drop b\n b > . 1 ack 101 win 65435\n ~1\n drop");
    t.set_carrier(TO_B, false);
    t.play("a > P. 101:201 ack 1\n +500\n quiet");
    t.set_carrier(TO_B, true);
    t.play("~1s\n drop\n a > P. 101:201 ack 1\n b < P. 101:201 ack 1");
}

/// A gateway that lives and holds them for a host that does not read needs no copies.
#[test]
fn what_a_gateway_holds_that_lives_goes_to_it_once() {
    let mut t = behind_one_that_splits();
    for _ in 0..20 {
        t.play("~1s\n drop b\n b > . 1 ack 301 <fl 101 64>\n ~1\n drop\n a > P. 101:301 ack 1\n quiet");
    }
}

/// The far host does not get on for so long that the connection is let go. What the other gateway
/// took is the source's still, not the far host's.
#[test]
fn a_connection_that_stands_still_behind_a_gateway_is_left_to_its_hosts() {
    let mut t = behind_one_that_splits();
    t.play("~1s\n drop b\n b > . 1 ack 101 win 65435\n ~1\n drop");
    for n in 0..30 {
        let (from, to) = (1 + 10 * n, 11 + 10 * n);
        t.play(&format!("b > P. {from}:{to} ack 101\n ~1"));
        let mut acks: Vec<_> = t.take(Host::A).iter().map(|s| s.ack).collect();
        t.play(&format!("a > . 301 ack {to}\n ~1\n drop b\n a > P. 101:301 ack {to}"));
        t.play(&format!("b < P. 101:301 ack {to}\n ~60s\n drop b"));
        acks.extend(t.take(Host::A).iter().map(|s| s.ack));
        assert!(acks.iter().all(|ack| *ack == 101), "{n}: {acks:?}");
    }
    t.assert(t.mode() != "custody", "let go");
}

/// All that told the far host's word was lost, with the questions for it. Who is heard again is
/// asked again, without the back-off of the time in which it was not.
#[test]
fn the_far_hosts_word_is_asked_for_as_soon_as_its_gateway_is_heard() {
    let mut t = before_a_gateway();
    t.play(
        "a > P. 1:22 ack 1
         drop b
         b > . 1 ack 22 <fl>
         ~10s
         drop
         b > P. 1:101 ack 22 <fl>
         ~450",
    );
    t.play("drop a\n b < . 21 ack 1\n b > . 101 ack 22 <fl 22 64>\n a < . 101 ack 22");
}

/// The word was lost, and so was the question for it: the source's timer is sooner than the next.
#[test]
fn the_far_hosts_word_is_asked_for_when_the_source_repeats_what_it_waits_for() {
    let mut t = behind_one_that_splits();
    t.play("~900\n drop\n a > P. 201:301 ack 1\n quiet\n a > P. 101:201 ack 1\n b < . 300 ack 1");
    // It has just spoken, or the link is away.
    t.play("b > . 1 ack 301 <fl 101 64>\n ~1\n drop\n a > P. 101:201 ack 1\n quiet");
    t.play("~300\n drop");
    t.set_carrier(TO_B, false);
    t.play("a > P. 101:201 ack 1\n quiet");
}

/// Who is in custody mode says so when a connection begins.
#[test]
fn a_gateway_in_custody_mode_says_that_its_source_waits_for_the_far_host() {
    let link = || Some(Link { name: "sat".into(), ..Link::default() });
    let opens = |action: Action, ours: &str| {
        let mut t = Script::with(|s| {
            s.config.default_action = action;
            (s.link_a, s.link) = (link(), link());
        });
        t.play(&format!(
            "a > S 0 win 65535 <mss 1460,sackOK,flraw 51 6800000007 02 00df 00>
             b < S 0 <flraw 51 68 9e3779b9 02 {ours} 00>
             b > S. 0 ack 1 win 65535 <mss 1460,sackOK>
             a < S. 0 ack 1 <flraw 52 68 9e3779b9 02 {ours} 00>"
        ));
    };
    opens(Action::Split, "00df");
    opens(Action::Custody(Notice::Silence), "01df");
}

/// A gateway that splits, and upstream one whose capabilities are these. Its source has sent two
/// segments, which have gone on.
fn behind(capabilities: &str) -> Script {
    let mut t = Script::with(|s| s.link_a = Some(Link { name: "sat".into(), ..Link::default() }));
    t.play(&format!(
        "a > S 0 win 65535 <mss 1460,sackOK,flraw 51 6800000007 02 {capabilities} 00>
         drop b
         b > S. 0 ack 1 win 65535 <mss 1460,sackOK>
         drop a
         a > . 1 ack 1 <fl>
         ~1
         drop
         a > . 1:2921 ack 1 <fl> {{gso 1460}}
         ~1
         drop b"
    ));
    let acks: Vec<_> = t.take(Host::A).iter().map(|s| s.ack).collect();
    assert_eq!(acks, [2921]);
    t
}

#[test]
fn where_its_source_waits_for_it_the_far_hosts_word_is_passed_on_at_once() {
    let mut t = behind("01df");
    t.play("b > . 1 ack 1461\n ~1");
    assert_eq!(t.take(Host::A).len(), 0, "one segment: the next may follow");
    t.play("~2");
    assert_eq!(t.take(Host::A).len(), 1);
    t.play("b > . 1 ack 2921\n ~3");
    assert_eq!(t.take(Host::A).len(), 1);
    let mut t = behind("01df");
    t.play("b > . 1 ack 2921");
    assert_eq!(t.take(Host::A).len(), 1, "two segments");
    // Who splits waits for nothing.
    let mut t = behind("00df");
    t.play("b > . 1 ack 2921\n ~30");
    assert_eq!(t.take(Host::A).len(), 0);
}
