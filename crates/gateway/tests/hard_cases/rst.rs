//! RST: behind its own custody, at a number the receiver takes, and never by a guess.

use crate::script::{Host, Script};

/// Host a has 100 bytes in the gateway's custody, not acknowledged by b.
fn custody_of_100() -> Script {
    let mut t = Script::new();
    t.open();
    t.play(
        "a > P. 1:101 ack 1
         b < P. 1:101 ack 1
         +40
         a < . 1 ack 101",
    );
    t
}

#[test]
fn a_reset_waits_behind_its_own_custody() {
    let mut t = custody_of_100();
    t.play(
        "a > R. 101 ack 1
         quiet
         +100
         b > . 1 ack 101
         b < R. 101 ack 1
         quiet",
    );
    t.assert(t.journal().is_empty() && t.mode() == "closed", "a tombstone is left");
}

#[test]
fn an_acknowledgement_that_its_own_reset_has_overtaken_is_not_answered() {
    let mut t = custody_of_100();
    t.play(
        "b > P. 1:51 ack 101
         a < P. 1:51 ack 101
         # Two processors of one host: the reset leaves before the acknowledgement of the data.
         a > R. 101 ack 51
         b < R. 101 ack 51
         a > . 101 ack 51
         quiet
         # A host that still lives, whoever sent the reset: it learns that the connection is gone.
         a > P. 101:111 ack 51
         a < R. 51 ack 111",
    );
    t.assert(t.mode() == "closed", "a tombstone is left");
}

#[test]
fn a_reset_with_custody_delivers_what_was_lost_first() {
    let mut t = custody_of_100();
    t.play(
        "a > R. 101 ack 1
         +960
         b < P. 1:101 ack 1
         b > . 1 ack 101
         b < R. 101 ack 1",
    );
}

#[test]
fn a_reset_goes_at_the_last_ack_of_a_receiver_whose_window_is_closed() {
    let mut t = custody_of_100();
    t.play(
        "b > . 1 ack 41 win 0
         a > R. 101 ack 1
         ~9900",
    );
    assert!(t.take(Host::B).iter().all(|s| !s.segment.flags.rst()), "the reset has its time to wait");
    t.play("~200");
    // Linux with a zero window takes no other number, without even a challenge.
    t.play("b < R. 41 ack 1 win 0\n quiet");
}

#[test]
fn a_slow_receiver_that_progresses_gets_everything_before_the_reset() {
    let mut t = custody_of_100();
    t.play("a > R. 101 ack 1");
    // Ten bytes every eight seconds: longer than a stall in all, but it moves.
    for ack in (11..101).step_by(10) {
        t.play(&format!("~8s\n drop b\n b > . 1 ack {ack} win 1"));
    }
    t.play("drop b\n ~8s");
    assert!(t.take(Host::B).iter().all(|s| !s.segment.flags.rst()));
    t.play("b > . 1 ack 101\n b < R. 101 ack 1");
}

#[test]
fn the_tombstone_answers_challenges_with_an_exact_reset() {
    let mut t = custody_of_100();
    t.play(
        "a > R. 101 ack 1
         b > . 1 ack 101
         b < R. 101 ack 1
         # RFC 5961 3.2: a receiver that doubts it sends a challenge ACK.
         +200
         b > . 1 ack 101
         b < R. 101 ack 1 {ttl 63}
         b > P. 1:11 ack 101
         b < R. 101 ack 11
         ~60s
         # It is forgotten after a few RTO: now packets pass.
         b > P. 1:11 ack 101
         a < P. 1:11 ack 101",
    );
    t.assert(t.mode() == "none", "the tombstone is gone");
}

#[test]
fn a_reset_within_the_window_but_not_exact_is_only_challenged() {
    let mut t = custody_of_100();
    t.play(
        "a > R 102
         a < . 1 ack 101
         a > R 5000
         a < . 1 ack 101
         # What lies before or behind the window is dropped (RFC 5961 3.2, case 1).
         a > R 100
         a > R 1
         a > R 200000
         quiet
         b > R 2
         b < . 101 ack 1
         b > R 0
         quiet",
    );
    t.assert(t.mode() == "split" && t.status().counters.flows_reset == 0, "nobody is reset");
    t.assert(t.status().counters.challenge_acks == 3, "three challenges");
}

#[test]
fn a_reset_behind_the_highest_byte_that_came_counts_as_exact() {
    let mut t = Script::new();
    t.open();
    // The first hundred bytes are lost before the gateway.
    t.play(
        "a > P. 101:201 ack 1
         a < . 1 ack 1 <sack 101:201>
         a > R. 201 ack 1
         b < R. 1 ack 1
         quiet",
    );
}

#[test]
fn the_receivers_reset_ends_custody_towards_it() {
    let mut t = custody_of_100();
    t.play(
        "b > R 1
         a < R. 1 ack 101
         +5000
         quiet",
    );
    t.assert(t.journal().is_empty() && t.status().custody_bytes == 0, "nothing is held");
}

#[test]
fn each_side_gets_what_the_other_sent_before_its_reset() {
    let mut t = Script::new();
    t.open();
    t.play(
        "a > P. 1:101 ack 1
         b < P. 1:101 ack 1
         b > P. 1:51 ack 1
         a < P. 1:51 ack 101
         b > R. 51 ack 1
         quiet
         a > . 101 ack 51
         a < R. 51 ack 101
         quiet",
    );
}

#[test]
fn what_a_host_acknowledged_before_its_reset_stays_so() {
    let mut t = Script::new();
    t.open();
    t.play(
        "a > F. 1:101 ack 1
         b < F. 1:101 ack 1
         drop a
         b > P. 1:51 ack 102
         a < P. 1:51 ack 102
         # What b sent is delivered first. The end of a's stream, which b has, is no custody meanwhile.
         b > R. 51 ack 102
         quiet
         a > . 102 ack 51
         a < R. 51 ack 102
         quiet",
    );
}

#[test]
fn a_reset_carries_timestamps_where_they_are_agreed() {
    let mut t = Script::new();
    t.open_with("<mss 1460,sackOK,ws 7,ts 1000 0>", "<mss 1460,sackOK,ws 7,ts 5000 0>");
    // RFC 7323 3.2: SHOULD. A relayed one, whatever its host has sent it with.
    t.play("a > P. 1:101 ack 1 <ts 1010 5000>\n ~40\n drop\n b > . 1 ack 101 <ts 5100 1010>\n ~20\n drop");
    t.play("a > R. 101 ack 1 <ts 1200 5100>\n ~1\n b < R. 101 ack 1 <ts 1010 5100>");
}
