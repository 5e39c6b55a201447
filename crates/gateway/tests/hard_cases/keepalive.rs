//! Keepalives: the hosts' own while nothing is held, answered while something is.

use crate::script::Script;

#[test]
fn with_nothing_in_custody_keepalives_and_their_answers_pass_both_ways() {
    let mut t = Script::new();
    t.open();
    t.play(
        "a > . 0 ack 1
         b < . 0 ack 1
         b > . 1 ack 1
         a < . 1 ack 1
         b > . 0 ack 1
         a < . 0 ack 1
         a > . 1 ack 1
         b < . 1 ack 1
         # With the garbage byte of old stacks.
         a > . 0:1 ack 1 {fill 0}
         b < . 0:1 ack 1 {fill 0}
         b > . 1 ack 1
         a < . 1 ack 1
         ~1000
         quiet",
    );
}

#[test]
fn a_dead_server_is_noticed_by_its_client() {
    let mut t = Script::new();
    t.open();
    t.play(
        "a > P. 1:101 ack 1
         b < P. 1:101 ack 1
         b > . 1 ack 101
         ~40
         drop a
         +7200s
         a > . 100 ack 1
         b < . 100 ack 1
         # The server has been restarted and knows nothing.
         b > R 1
         a < R 1",
    );
}

#[test]
fn with_custody_the_gateway_answers() {
    let mut t = Script::new();
    t.open();
    t.play(
        "a > P. 1:101 ack 1
         b < P. 1:101 ack 1
         +40
         a < . 1 ack 101
         a > . 100 ack 1
         a < . 1 ack 101
         quiet
         # b's keepalive, too: what a is owed comes later.
         b > . 0 ack 1
         b < . 101 ack 1
         quiet",
    );
}

/// Who gets a keepalive drops it unread, and with it the window in it (RFC 9293 3.10.7.4). A source
/// that waits for room would wait on.
#[test]
fn a_window_that_a_keepalive_has_opened_is_shown_in_a_segment_of_its_own() {
    let mut t = Script::with(|s| s.config.limits.relay_bytes = 2_000);
    t.play(
        "a > S 0 win 65535 <mss 1460>
         drop b
         b > S. 0 ack 1 win 2000 <mss 1460>
         drop a
         a > . 1 ack 1
         drop b
         a > . 1:1001 ack 1
         b < . 1:1001
         a > P. 1001:2001 ack 1
         b < P. 1001:2001
         ~40
         drop a
         # Its acknowledgement was lost. It asks whether the other one lives.
         b > . 0 ack 2001 win 2000
         a < . 0 ack 2001 win 2000
         a < . 1 ack 2001 win 2000",
    );
}
