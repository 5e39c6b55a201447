//! Killed with custody: the next life resets those connections, and only those.

use farlink_gateway::{Carried, Event, Fates};

use crate::script::Script;

/// A connection of which the gateway holds 100 bytes when it is killed.
fn killed() -> Script {
    let mut t = Script::new();
    t.open();
    t.play("a > P. 1:101 ack 1\n b < P. 1:101");
    t.kill_and_restart();
    t.play("a < . 0\n b < . 0");
    t
}

/// What is said of it.
fn said(mut t: Script, fates: Fates) {
    t.play("drop\n ~31s\n drop");
    let told: Vec<_> = t.take_happened().into_iter().map(|(_, what)| what).collect();
    let reset = vec![Event::Abandoned(Carried::default()); fates.reset as usize];
    assert_eq!((told, t.status().counters.flows_abandoned), (reset, fates.reset));
}

#[test]
fn what_has_ended_meanwhile_is_not_said_to_be_reset() {
    // Both are closed ports by now, or one of them is.
    for answers in ["a > R 1\n b < R 1\n b > R 1\n a < R 1", "b > R 1\n a < R 1"] {
        let mut t = killed();
        t.play(answers);
        let fates = Fates { ended: 1, ..Fates::default() };
        assert_eq!(t.take_fates(), Some(fates));
        assert_eq!(t.take_fates(), None, "it is told once");
        said(t, fates);
    }
    // The one that closed first waits, and answers: it is reset, which ends nothing.
    let mut t = killed();
    t.play("a > . 102 ack 1\n a < R. 1 ack 102\n b > R 1\n a < R 1");
    let fates = Fates { ended: 1, ..Fates::default() };
    assert_eq!(t.take_fates(), Some(fates));
    said(t, fates);
}

#[test]
fn what_is_reset_is_said_to_be() {
    let mut t = killed();
    t.play("a > . 101 ack 1\n a < R. 1\n b > . 1 ack 1\n b < R. 1");
    // Who is asked again after that has no such connection, and that is our doing.
    t.play("b > R 1\n a < R 1");
    let fates = Fates { reset: 1, ..Fates::default() };
    assert_eq!(t.take_fates(), Some(fates));
    said(t, fates);
}

#[test]
fn half_a_minute_later_silence_is_an_answer() {
    let mut t = killed();
    t.play("drop\n ~31s\n drop");
    let fates = Fates { unanswered: 1, ..Fates::default() };
    assert_eq!(t.take_fates(), Some(fates));
    said(t, fates);
    // One host was reset, and the other one is not to be heard.
    let mut t = killed();
    t.play("a > . 101 ack 1\n a < R. 1\n drop\n ~31s\n drop");
    let fates = Fates { reset: 1, ..Fates::default() };
    assert_eq!(t.take_fates(), Some(fates));
    said(t, fates);
}

#[test]
fn connections_with_custody_are_reset_exactly_and_at_once() {
    let mut t = Script::new();
    t.open();
    t.play(
        "b > P. 1:51 ack 1
         a < P. 1:51 ack 1
         a > P. 1:101 ack 51
         b < P. 1:101 ack 51
         +40
         a < . 51 ack 101",
    );
    assert_eq!(t.journal().len(), 1);
    t.kill_and_restart();
    t.play(
        "# Both are asked with a segment that no TCP accepts (one before the window).
         a < . 0
         b < . 0
         # Their answer tells where they stand: b has read more than the journal knew, a has sent more.
         b > . 51 ack 101
         b < R. 101
         a > . 151 ack 51
         a < R. 51
         +500
         quiet",
    );
}

#[test]
fn a_host_whose_answer_is_lost_is_asked_again() {
    let mut t = Script::new();
    t.open();
    t.play("a > P. 1:101 ack 1\n b < P. 1:101");
    t.kill_and_restart();
    t.play(
        "drop\n ~710\n a < . 0\n b < . 0\n ~1400\n a < . 0\n b < . 0\n b > . 1 ack 1\n b < R. 1\n ~60s\n drop",
    );
    t.play("a > P. 1:101 ack 1\n b < P. 1:101 ack 1");
    t.assert(t.mode() == "none", "forgotten in the end");
}

/// A host that only reads says nothing by itself. Where its link is silent for some seconds it
/// hears of the reset when that is over.
#[test]
fn a_host_behind_a_silent_link_hears_of_the_reset_later() {
    let mut t = Script::new();
    t.open();
    t.play("a > P. 1:101 ack 1\n b < P. 1:101");
    t.kill_and_restart();
    t.play("~10s\n drop\n ~1s\n drop a\n b < . 0\n b > . 1 ack 1\n b < R. 1");
}

#[test]
fn data_in_mid_flight_is_answered_with_an_exact_reset() {
    let mut t = Script::new();
    t.open();
    t.play("a > P. 1:101 ack 1\n b < P. 1:101\n +40\n a < . 1 ack 101");
    t.kill_and_restart();
    t.play(
        "drop
         a > P. 101:201 ack 1
         a < R. 1 ack 201
         b > P. 1:301 ack 1
         b < R. 1 ack 301",
    );
}

#[test]
fn connections_without_custody_simply_go_on() {
    let mut t = Script::new();
    t.open();
    t.play(
        "a > P. 1:101 ack 1
         b < P. 1:101 ack 1
         b > . 1 ack 101
         ~40
         drop a",
    );
    assert!(t.journal().is_empty());
    t.kill_and_restart();
    t.play(
        "quiet
         a > P. 101:201 ack 1
         b < P. 101:201 ack 1
         b > . 1 ack 201
         a < . 1 ack 201
         ~1000
         quiet",
    );
}

#[test]
fn a_new_connection_on_the_4_tuple_of_a_lost_one_opens() {
    let mut t = Script::new();
    t.open();
    t.play("a > P. 1:101 ack 1\n b < P. 1:101");
    t.kill_and_restart();
    t.play(
        "drop
         a > S 900000 win 65535 <mss 1460>
         b < S 900000
         b > S. 900000 ack 900001 win 65535 <mss 1460>
         a < S. 900000 ack 900001
         a > . 900001 ack 900001
         b < . 900001 ack 900001",
    );
    t.assert(t.mode() == "split", "split as any other");
}

#[test]
fn the_journal_names_exactly_the_connections_with_custody() {
    let mut t = Script::new();
    t.open();
    t.assert(t.journal().is_empty(), "nothing yet");
    t.play("a > P. 1:101 ack 1\n b < P. 1:101");
    let journal = t.journal();
    assert_eq!(journal.len(), 1);
    assert_eq!((journal[0].a.1, journal[0].b.1), (40_000, 80));
    // Out of order and SACKed counts, too.
    t.play("b > . 1 ack 101\n ~40\n drop\n a > P. 201:301 ack 1\n drop");
    assert_eq!(t.journal().len(), 1);
    t.play("a > P. 101:201 ack 1\n drop\n b > . 1 ack 301\n drop");
    assert!(t.journal().is_empty());
}
