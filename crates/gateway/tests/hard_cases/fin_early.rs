//! FIN acknowledged early: a host that has closed must not free what is held for the other one.

use crate::script::{Host, Script};

#[test]
fn a_fin_is_acknowledged_when_it_has_arrived() {
    let mut t = Script::new();
    t.open();
    t.play(
        "a > P. 1:101 ack 1
         b < P. 1:101 ack 1
         a > F. 101 ack 1
         b < F. 101 ack 1
         a < . 1 ack 101
         # The data has arrived, the FIN has not: its source is not let go yet.
         b > . 1 ack 101
         quiet
         b > . 1 ack 102
         a < . 1 ack 102
         quiet",
    );
}

#[test]
fn a_fin_that_waits_for_long_is_acknowledged_when_the_data_before_it_has_arrived() {
    let mut t = Script::new();
    t.open();
    t.play(
        "a > FP. 1:101 ack 1
         b < FP. 1:101 ack 1
         a < . 1 ack 101
         b > . 1 ack 101
         ~29000
         drop b
         quiet
         ~1100
         drop b
         a < . 1 ack 102",
    );
}

#[test]
fn both_directions_close_and_a_tombstone_answers_a_repeated_fin() {
    let mut t = Script::new();
    t.open();
    t.play(
        "a > F. 1 ack 1
         b < F. 1 ack 1
         a < . 1 ack 1
         b > . 1 ack 2
         a < . 1 ack 2
         b > F. 1 ack 2
         a < F. 1 ack 2
         b < . 2 ack 1
         a > . 2 ack 2
         b < . 2 ack 2
         quiet",
    );
    t.assert(t.mode() == "closed" && t.status().counters.flows_closed == 1, "closed in order");
    // The acknowledgement of b's FIN was lost.
    t.play(
        "b > F. 1 ack 2
         b < . 2 ack 2
         ~60s
         quiet",
    );
    t.assert(t.mode() == "none", "forgotten");
}

#[test]
fn the_reset_of_an_orphan_frees_nothing_in_custody() {
    let mut t = Script::new();
    t.open();
    t.play(
        "a > P. 1:401 ack 1
         b < P. 1:401 ack 1
         a > F. 401 ack 1
         b < F. 401 ack 1
         a < . 1 ack 401
         # b says something that the closed host does not want any more: RST (RFC 9293 3.10.7.1).
         b > P. 1:11 ack 1
         a < P. 1:11 ack 401
         a > R 402
         +40
         b < . 402 ack 11
         ~1500",
    );
    let again = t.take(Host::B);
    assert!(again.iter().all(|s| !s.segment.flags.rst()), "{again:?}");
    assert!(again.iter().any(|s| s.seq == 1), "the custody is still sent");
    t.play(
        "b > . 11 ack 402
         b < R. 402 ack 11
         quiet",
    );
}

#[test]
fn a_half_closed_host_gets_its_answer_a_minute_later() {
    let mut t = Script::new();
    t.open();
    t.play(
        "a > P. 1:101 ack 1
         b < P. 1:101 ack 1
         b > . 1 ack 101
         a > F. 101 ack 1
         b < F. 101 ack 1
         a < . 1 ack 101
         b > . 1 ack 102
         a < . 1 ack 102
         ~60s
         quiet
         b > P. 1:101 ack 102
         a < P. 1:101 ack 102
         a > . 102 ack 101
         ~1000
         drop b
         b > F. 101 ack 102
         a < F. 101 ack 102",
    );
}

#[test]
fn a_new_syn_on_the_same_4_tuple_waits_for_custody() {
    let mut t = Script::new();
    t.open();
    t.play(
        "a > FP. 1:101 ack 1
         b < FP. 1:101 ack 1
         a < . 1 ack 101
         # The host has lost its memory and begins anew.
         a > S 700000 win 65535 <mss 1460>
         a < . 1 ack 101
         b > . 1 ack 102
         a < . 1 ack 102
         a > S 700000 win 65535 <mss 1460>
         b < S 700000 win 65535 <mss 1460>
         # The challenge ACK to a stale SYN is the host's to see, and so is its answer.
         b > . 1 ack 102
         a < . 1 ack 102
         a > R 102
         b < R. 102 ack 1",
    );
}

#[test]
fn hosts_that_only_ask_anew_have_forgotten_the_old_connection() {
    let mut t = Script::new();
    t.open();
    t.play(
        "b > P. 1:101 ack 1
         a < P. 1:101 ack 1
         +40
         b < . 1 ack 101",
    );
    for _ in 0..3 {
        // It is told where the old one stands; its reset does not get through.
        t.play("a > S 700000 win 65535 <mss 1460>");
        assert!(t.take(Host::A).iter().any(|s| s.ack == 1 && s.payload.is_empty()), "challenged");
        t.play("~4000\n drop a\n quiet");
    }
    t.play(
        "a > S 700000 win 65535 <mss 1460>
         b < R. 1 ack 101
         +4000
         a > S 700000 win 65535 <mss 1460>
         b < S 700000 win 65535 <mss 1460>",
    );
}

/// Host a does not answer, and there have been enough timeouts for it to be thought deaf.
fn unanswered() -> Script {
    let mut t = Script::new();
    t.open();
    t.play(
        "b > P. 1:101 ack 1
         a < P. 1:101 ack 1
         +40
         b < . 1 ack 101
         ~8000
         drop a",
    );
    t
}

#[test]
fn syns_in_haste_or_from_elsewhere_end_nothing() {
    let mut t = unanswered();
    for _ in 0..20 {
        t.play("a > S 700000 win 65535 <mss 1460>\n ~20\n drop a\n quiet");
    }
    t.assert(t.status().custody_bytes == 100, "forged ones come as fast as they can");
    let mut t = unanswered();
    for _ in 0..8 {
        t.play("a > S 700000 win 65535 <mss 1460> {by b}\n ~1500\n drop a\n quiet");
    }
    t.assert(t.status().custody_bytes == 100 && t.mode() == "split", "a's packets come another way");
}

#[test]
fn who_has_forgotten_the_connection_says_so_to_the_challenge() {
    let mut t = unanswered();
    t.play("a > S 700000 win 65535 <mss 1460>\n a < . 101 ack 1\n a > R 1\n b < R. 1 ack 101");
    t.assert(t.status().custody_bytes == 0, "at once, by an exact reset");
}
