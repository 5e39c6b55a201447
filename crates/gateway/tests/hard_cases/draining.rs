//! Draining and forgetting, falling asleep and waking.

use crate::script::{Host, Script};

#[test]
fn custody_is_delivered_and_the_rest_forwarded_until_nothing_is_left() {
    let mut t = Script::new();
    t.open();
    t.play(
        "a > P. 1:101 ack 1
         b < P. 1:101 ack 1
         +40
         a < . 1 ack 101",
    );
    t.drain();
    t.assert(t.mode() == "draining", "custody is left");
    t.play(
        "quiet
         # Past the frozen edge: forwarded, not taken; no acknowledgement of ours.
         a > P. 101:201 ack 1
         b < P. 101:201 ack 1
         +500
         # What is ours is still sent again.
         +460
         b < P. 1:101 ack 1
         # b's acknowledgement of both is the hosts' own again.
         b > . 1 ack 201
         a < . 1 ack 201
         quiet",
    );
    t.assert(t.mode() == "none" && t.journal().is_empty(), "forgotten");
    t.play(
        "a > P. 201:301 ack 1
         b < P. 201:301 ack 1
         b > . 1 ack 301
         a < . 1 ack 301
         ~10s
         quiet",
    );
}

#[test]
fn what_is_forwarded_says_what_the_gateway_has_said() {
    let mut t = Script::new();
    t.open_with("<mss 1460,sackOK,ws 7,ts 1000 0>", "<mss 1460,sackOK,ws 7,ts 5000 0>");
    t.play(
        "b > P. 1:401 ack 1 <ts 5010 1000>
         a < P. 1:401 ack 1 <ts 5010 1000>
         +40
         b < . 1 ack 401 <ts 1000 5010>",
    );
    t.drain();
    t.play(
        "# a has not acknowledged b's bytes, the gateway has: ACK, window and echo must not go back.
         a > P. 1:101 ack 1 win 100 <ts 1020 5000>
         b < P. 1:101 ack 401 win 508 <ts 1020 5010>
         # b answers a directly.
         b > . 401 ack 101 <ts 5030 1020>
         a < . 401 ack 101
         # b has its acknowledgement already.
         a > . 101 ack 401 <ts 1040 5010>
         quiet",
    );
    t.assert(t.mode() == "none", "both custodies are empty");
}

#[test]
fn sacked_bytes_above_a_hole_are_custody() {
    let mut t = Script::new();
    t.open();
    t.play(
        "a > P. 101:201 ack 1
         a < . 1 ack 1 <sack 101:201>",
    );
    t.drain();
    t.assert(t.mode() == "draining", "SACKed bytes are owed");
    t.play(
        "a > P. 1:101 ack 1
         b < P. 1:201 ack 1
         a < . 1 ack 201
         a > P. 201:301 ack 1
         b < P. 201:301 ack 1
         b > . 1 ack 201
         quiet",
    );
    t.assert(t.mode() == "none", "delivered");
}

#[test]
fn nothing_new_is_split_while_draining() {
    let mut t = Script::new();
    t.drain();
    t.play(
        "a > S 0 win 65535 <mss 1460>
         b < S 0
         b > S. 0 ack 1 win 65535 <mss 1460>
         a < S. 0 ack 1
         a > . 1 ack 1
         b < . 1 ack 1
         a > P. 1:101 ack 1
         b < P. 1:101 ack 1
         ~1000
         quiet",
    );
    t.assert(t.mode() == "none" && t.status().half_open == 0, "no state");
}

#[test]
fn a_receiver_that_never_reads_is_reset_when_the_time_is_over() {
    let mut t = Script::new();
    t.open();
    t.play(
        "a > P. 1:101 ack 1
         b < P. 1:101 ack 1
         b > . 1 ack 1 win 0
         +40
         a < . 1 ack 101",
    );
    t.drain();
    t.play("~60s\n drop b");
    t.assert(t.mode() == "draining", "custody outlasts any time");
    let given_up = t.with_gateway(|g, now, net| g.abandon_all(now, net));
    assert_eq!(given_up, 1);
    t.play("a < R. 1 ack 101\n b < R. 1 ack 1\n quiet");
    t.assert(t.journal().is_empty(), "nothing is left");
    let drained = t.with_gateway(|g, _, _| g.is_drained());
    t.assert(drained, "the gateway may go");
}

#[test]
fn the_last_acknowledgements_are_given_before_a_connection_is_forgotten() {
    let mut t = Script::new();
    t.open();
    t.play("a > P. 1:101 ack 1\n b < P. 1:101 ack 1");
    t.drain();
    t.play(
        "# a's acknowledgement was still being delayed: nobody else would give it.
         b > . 1 ack 101
         a < . 1 ack 101
         quiet",
    );
    t.assert(t.mode() == "none", "forgotten");
}

#[test]
fn a_fin_that_is_held_is_delivered_too() {
    let mut t = Script::new();
    t.open();
    t.play(
        "a > FP. 1:101 ack 1
         b < FP. 1:101 ack 1
         a < . 1 ack 101",
    );
    t.drain();
    t.play(
        "b > . 1 ack 102
         a < . 1 ack 102
         b > P. 1:51 ack 102
         a < P. 1:51 ack 102",
    );
    t.assert(t.mode() == "none", "forgotten");
}

/// A split connection that has carried 100 bytes and fell asleep.
fn asleep() -> Script {
    let mut t = Script::new();
    t.open();
    t.play(
        "a > P. 1:101 ack 1
         b < P. 1:101 ack 1
         b > . 1 ack 101
         ~40
         drop a
         +11s",
    );
    t.assert(t.mode() == "dormant" && t.status().custody_bytes == 0, "asleep");
    t
}

#[test]
fn a_sleeping_connection_wakes_with_data_where_both_stand_acknowledged() {
    let mut t = asleep();
    t.play(
        "b > P. 1:101 ack 101
         a < P. 1:101 ack 101
         +40
         b < . 101 ack 101",
    );
    t.assert(t.mode() == "split" && t.status().counters.flows_woken == 1, "awake");
}

#[test]
fn a_sleeping_connection_does_not_wake_before_everything_is_acknowledged() {
    let mut t = asleep();
    t.play(
        "# Data in flight went another way: a is ahead of what was seen here.
         a > P. 201:301 ack 1
         b < P. 201:301 ack 1
         +200
         b > . 1 ack 101
         a < . 1 ack 101
         a > P. 301:401 ack 1
         b < P. 301:401 ack 1
         +200",
    );
    t.assert(t.mode() == "dormant", "only forwarded");
    t.play(
        "b > . 1 ack 401
         a < . 1 ack 401
         # Now both directions stand fully acknowledged.
         a > P. 401:501 ack 1
         b < P. 401:501 ack 1
         +40
         a < . 1 ack 501",
    );
    t.assert(t.mode() == "split", "awake");
}

#[test]
fn keepalives_and_closing_do_not_wake() {
    let mut t = asleep();
    t.play(
        "a > . 100 ack 1
         b < . 100 ack 1
         b > . 1 ack 101
         a < . 1 ack 101
         a > F. 101 ack 1
         b < F. 101 ack 1
         b > . 1 ack 102
         a < . 1 ack 102
         b > P. 1:11 ack 102
         a < P. 1:11 ack 102
         ~1000
         quiet",
    );
    t.assert(t.mode() == "dormant", "the end of a connection is the hosts' own");
}

#[test]
fn a_connection_with_custody_never_falls_asleep() {
    let mut t = Script::new();
    t.open();
    t.play("a > P. 1:101 ack 1\n ~100s");
    t.assert(t.mode() == "split" && t.status().custody_bytes == 100, "owed");
    assert!(!t.take(Host::B).is_empty());
}

#[test]
fn a_host_is_shown_the_paths_rtt_before_it_is_let_go() {
    let mut t = Script::new();
    t.open();
    // The RTT of b's leg is 400 ms, that of a's nothing. b acknowledges nothing more until the end.
    t.play("a > P. 1:101 ack 1\n ~400\n drop\n b > . 1 ack 101\n drop");
    t.play("a > P. 101:201 ack 1\n b < P. 101:201\n a > P. 201:301 ack 1\n ~40\n drop");
    t.drain();
    t.assert(t.mode() == "split", "not yet");
    // Each acknowledgement comes later than the one before, none later than the timer can bear.
    t.play("a > P. 301:401 ack 1\n b < P. 301:401\n +100\n a < . 1 ack 401");
    t.play("a > P. 401:501 ack 1\n b < P. 401:501\n +150\n a < . 1 ack 501");
    t.play("a > P. 501:601 ack 1\n b < P. 501:601\n +225\n a < . 1 ack 601");
    t.play("a > P. 601:701 ack 1\n ~400\n drop\n a > P. 701:801 ack 1\n drop");
    t.assert(t.mode() == "draining", "the rest goes the whole way");
}

#[test]
fn a_reset_that_is_forwarded_ends_what_is_held_for_its_host() {
    let mut t = Script::new();
    t.open();
    t.play(
        "b > P. 1:401 ack 1
         a < P. 1:401 ack 1
         +40
         b < . 1 ack 401",
    );
    t.drain();
    t.assert(t.mode() == "draining", "a has not acknowledged b's bytes");
    t.play(
        "a > R 1
         b < R 1
         ~60s
         quiet",
    );
    t.assert(t.mode() == "none" && t.status().custody_bytes == 0, "nothing is held for a host that is gone");
}

#[test]
fn a_dormant_record_is_forgotten_after_a_day() {
    let mut t = asleep();
    t.play("drop\n ~86400000\n quiet");
    t.assert(t.mode() == "none", "forgotten");
    // Without us, as any connection that is not known here.
    t.play("a > P. 101:201 ack 1\n b < P. 101:201 ack 1\n b > . 1 ack 201\n a < . 1 ack 201\n quiet");
}

#[test]
fn a_drain_that_ends_early_leaves_connections_as_they_were() {
    let mut t = Script::new();
    t.open();
    // b's leg is slow, so a is to be shown the path's RTT before it is let go.
    t.play("a > P. 1:101 ack 1\n ~400\n drop\n b > . 1 ack 101\n drop");
    t.play("a > P. 101:201 ack 1\n b < P. 101:201\n a > P. 201:301 ack 1\n ~40\n drop");
    t.drain();
    t.assert(t.mode() == "split", "not yet let go");
    t.end_drain();
    // The time to let go would have passed by then.
    t.play("~5s\n drop");
    t.assert(t.mode() == "split", "nobody wants it to be let go any more");
    t.play("b > . 1 ack 301\n drop\n a > P. 301:401 ack 1\n b < P. 301:401\n +40\n a < . 1 ack 401");
}

#[test]
fn a_connection_that_was_let_go_is_split_again_when_draining_has_ended() {
    let mut t = Script::new();
    t.open();
    t.play("a > P. 1:101 ack 1\n b < P. 1:101 ack 1\n +40\n a < . 1 ack 101");
    t.drain();
    t.assert(t.mode() == "draining", "custody is left");
    t.end_drain();
    t.play("b > . 1 ack 101\n drop");
    t.assert(t.mode() == "dormant", "nothing is held");
    t.play("~5s\n drop\n b > P. 1:101 ack 101\n a < P. 1:101 ack 101\n +40\n b < . 101 ack 101");
    t.assert(t.mode() == "split", "awake");
    t.play("a > . 101 ack 101\n ~5s\n quiet");
}
