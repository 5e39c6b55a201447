//! Bypass (DESIGN 3.1): the packets of one direction, or some of them, go round the gateway.

use crate::script::{Host, Script};
use farlink_wire::Duration;

#[test]
fn early_acknowledgements_stop_when_nothing_is_heard_from_the_other_side() {
    let mut t = Script::new();
    t.open();
    t.play(
        "a > P. 1:101 ack 1
         b < P. 1:101 ack 1
         +40
         a < . 1 ack 101
         # Three timeouts: 1, 2 and 4 seconds.
         ~7100
         drop b
         a > P. 101:201 ack 1
         b < P. 101:201 ack 1
         ~20s
         drop b
         quiet",
    );
}

#[test]
fn a_crowded_leg_that_loses_a_segment_four_times_is_no_bypass() {
    let mut t = Script::new();
    t.open();
    // The leg to b is known to be short: its timeouts are 0.2, 0.4, 0.8 and 1.6 seconds.
    t.play(
        "a > P. 1:101 ack 1
         b < P. 1:101 ack 1
         ~5
         b > . 1 ack 101
         ~50
         drop
         a > P. 101:201 ack 1
         b < P. 101:201 ack 1
         ~5500
         drop",
    );
    // What comes from upstream is taken, so that nobody need send it again.
    t.play("a > P. 201:301 ack 1\n b < P. 201:301 ack 1\n +40\n a < . 1 ack 301");
}

#[test]
fn custody_that_nobody_acknowledges_is_passed_over_blindly_then_abandoned_with_reset_to_both() {
    let mut t = Script::with(|s| s.config.timers.user_timeout = Duration::from_secs(60));
    t.open();
    t.play(
        "a > P. 1:101 ack 1
         b < P. 1:101 ack 1
         +40
         a < . 1 ack 101
         ~59s",
    );
    let copies = t.take(Host::B);
    assert!(copies.len() >= 4, "passed over a few times: {}", copies.len());
    assert!(copies.iter().all(|s| s.seq == 1 && s.payload.len() == 100));
    t.play("~10s");
    let end = t.take(Host::B);
    let rst = end.last().expect("a reset");
    assert!(rst.segment.flags.rst() && rst.seq == 1, "{rst}");
    t.play("a < R. 1 ack 101\n quiet");
    t.assert(t.status().counters.flows_abandoned == 1 && t.journal().is_empty(), "abandoned");
}

#[test]
fn the_real_receivers_word_wins_whatever_path_the_data_took() {
    let mut t = Script::new();
    t.open();
    // b has everything up to 501; only a part came through here. The ACK fits b's own numbers exactly.
    t.play(
        "a > P. 1:101 ack 1
         b < P. 1:101 ack 1
         b > . 1 ack 501
         a < . 1 ack 501
         a > P. 501:601 ack 1
         b < P. 501:601 ack 1
         b > . 1 ack 601
         +40
         a < . 1 ack 601
         quiet",
    );
}

#[test]
fn an_ack_of_what_was_never_sent_is_forwarded_and_not_believed_at_once() {
    let mut t = Script::new();
    t.open();
    // b's own data went round us, too: its sequence number is ahead of what we know.
    t.play(
        "b > . 51 ack 501
         a < . 51 ack 501
         a > P. 1:101 ack 1
         b < P. 1:101 ack 1
         +40
         a < . 1 ack 101",
    );
    t.assert(t.status().counters.bypass_events > 0, "the bypass is seen");
}

#[test]
fn repeated_evidence_of_a_forward_bypass_is_believed() {
    let mut t = Script::new();
    t.open();
    t.play(
        "a > P. 1:101 ack 1
         b < P. 1:101 ack 1
         +40
         a < . 1 ack 101",
    );
    for _ in 0..9 {
        t.play("b > . 51 ack 501\n ~200\n drop");
    }
    t.assert(t.status().custody_bytes == 0, "what b has is not held any longer");
    // Nothing is sent to b again.
    t.play("~10s");
    assert!(t.take(Host::B).iter().all(|s| s.payload.is_empty()));
}

#[test]
fn an_ack_far_beyond_any_window_is_never_believed() {
    let mut t = Script::new();
    t.open();
    t.play(
        "a > P. 1:101 ack 1
         b < P. 1:101 ack 1
         +40
         a < . 1 ack 101",
    );
    for _ in 0..20 {
        t.play("b > . 1 ack 100000001\n ~100\n drop");
    }
    t.assert(t.status().custody_bytes == 100, "custody stays");
}

#[test]
fn acknowledged_data_that_never_passed_here_proves_a_bypass() {
    let mut t = Script::new();
    t.open();
    // b's data reached a another way; a acknowledges it. The acknowledgement goes on: b waits for it.
    t.play("a > . 1 ack 301");
    let got = t.take(Host::B);
    assert!(got.iter().any(|s| s.ack == 301), "{got:?}");
    t.assert(t.status().counters.bypass_events > 0, "seen");
    // b goes on; nothing is lost or sent twice.
    t.play(
        "b > P. 301:401 ack 1
         a < P. 301:401
         a > . 1 ack 401
         ~1000",
    );
    assert!(t.take(Host::A).is_empty());
}

#[test]
fn a_hole_that_passed_round_us_is_not_acknowledged() {
    let mut t = Script::new();
    t.open();
    t.play(
        "a > P. 101:201 ack 1
         a < . 1 ack 1 <sack 101:201>
         # What fills the hole will not come: b is asked, and a is told nothing that is not so.
         +2000
         b < . 0 ack 1
         # b got the hole another way, and has nothing of ours: its word fills it.
         b > . 1 ack 101
         a < . 1 ack 201
         b < P. 101:201 ack 1",
    );
}

#[test]
fn a_fin_is_not_acknowledged_early_once_packets_have_gone_round_us() {
    let mut t = Script::new();
    t.open();
    t.play(
        "b > . 51 ack 501
         a < . 51 ack 501
         a > F. 1 ack 1
         b < F. 1 ack 1
         a < . 1 ack 1
         +150
         b > . 1 ack 2
         a < . 1 ack 2",
    );
}
