//! Lost segments are repaired by the gateway that holds them, not by the source.

use crate::script::{Host, Script, USUAL};

/// Four segments are out; the round-trip time is 100 ms.
fn four_out(options: &str) -> Script {
    let mut t = Script::new();
    t.open_with(options, options);
    t.play("a > P. 1:101 ack 1\n b < P. 1:101\n ~100\n drop\n b > . 1 ack 101\n ~100\n drop");
    for at in [101, 201, 301, 401] {
        // Paced: a little apart.
        t.play(&format!("a > P. {at}:{} ack 1\n ~2\n b < P. {at}:{}\n drop a", at + 100, at + 100));
    }
    t.play("~92\n drop a");
    t
}

#[test]
fn three_duplicates_repair_the_head_without_sack() {
    let mut t = four_out("<mss 1460,ws 7>");
    t.play(
        "b > . 1 ack 101
         b > . 1 ack 101
         quiet
         b > . 1 ack 101
         b < . 101:201 ack 1",
    );
}

#[test]
fn sacked_segments_are_not_sent_again() {
    let mut t = four_out(USUAL);
    t.play("b > . 1 ack 101 <sack 201:501>\n ~80\n drop a");
    let again = t.take(Host::B);
    assert!(again.iter().all(|s| s.seq == 101 && s.payload.len() == 100), "{again:?}");
    assert_eq!(again.len(), 1);
}

#[test]
fn the_tail_is_probed_before_the_timeout() {
    let mut t = four_out(USUAL);
    // RFC 8985 7.2: two round trips after the last segment.
    t.play(
        "quiet\n ~110\n drop a\n b < P. 401:501 ack 1\n ~110\n b > . 1 ack 101 <sack 401:501>\n ~80\n drop a",
    );
    let again: Vec<_> = t.take(Host::B).iter().map(|s| s.seq).collect();
    assert!(again.contains(&101), "{again:?}");
}

#[test]
fn the_source_repairs_its_own_leg_and_the_far_leg_never_notices() {
    let mut t = Script::new();
    t.open();
    t.play(
        "a > P. 1:101 ack 1
         b < P. 1:101 ack 1
         # 101:201 is lost before the gateway.
         a > P. 201:301 ack 1
         a < . 1 ack 101 <sack 201:301>
         a > P. 301:401 ack 1
         a < . 1 ack 101 <sack 201:401>
         a > P. 101:201 ack 1
         a < . 1 ack 401 <no sack>
         b < P. 101:401 ack 1",
    );
    t.play("b > . 1 ack 401\n ~2000\n quiet");
    assert!(t.take(Host::B).is_empty());
}

#[test]
fn after_a_gap_each_segment_is_acknowledged_at_once_for_a_while() {
    let mut t = Script::new();
    t.open();
    t.play(
        "a > P. 1:101 ack 1
         b < P. 1:101 ack 1
         a > P. 201:301 ack 1
         a < . 1 ack 101 <sack 201:301>
         a > P. 101:201 ack 1
         a < . 1 ack 301 <no sack>
         b < P. 101:301 ack 1
         # A source with a window of one segment need not wait for the delayed acknowledgement.
         a > P. 301:401 ack 1
         b < P. 301:401 ack 1
         a < . 1 ack 401",
    );
    for at in (401..3001).step_by(100) {
        t.play(&format!("a > P. {at}:{} ack 1\n drop b\n drop a", at + 100));
    }
    t.play("~50\n drop a\n a > P. 3001:3101 ack 1\n drop b\n quiet\n +40\n a < . 1 ack 3101");
}

#[test]
fn a_segment_that_begins_before_what_is_held_adds_only_its_end() {
    let mut t = Script::new();
    t.open();
    t.play(
        "a > P. 1:101 ack 1
         b < P. 1:101 ack 1
         a > P. 51:151 ack 1
         a < . 1 ack 151
         b < P. 101:151 ack 1",
    );
}

#[test]
fn the_head_goes_out_at_the_first_timeout_however_full_the_pipe_is() {
    let mut t = Script::new();
    t.open();
    t.play("a > P. 1:101 ack 1\n b < P. 1:101\n ~100\n drop\n b > . 1 ack 101\n ~100\n drop");
    // New segments in each round trip until the timer expires: the newest are not overdue then.
    let mut sent = Vec::new();
    for n in 0..7u32 {
        let at = 101 + n * 1460;
        t.play(&format!("a > P. {at}:{} ack 1\n ~45\n drop a", at + 1460));
        sent.extend(t.take(Host::B).iter().map(|s| s.seq));
    }
    let again: Vec<u32> =
        sent.iter().enumerate().filter(|(i, seq)| sent[..*i].contains(seq)).map(|(_, seq)| *seq).collect();
    // RFC 6298 5.4: the earliest segment, at one RTO (300 ms).
    assert_eq!(again, [101], "{sent:?}");
}

#[test]
fn a_source_that_does_not_hear_sack_blocks_is_answered_without_them() {
    // A firewall that follows connections drops SACK blocks of bytes that it has not seen, because
    // they wait here.
    let mut t = Script::new();
    t.open();
    t.play(
        "a > P. 1:101 ack 1
         b < P. 1:101 ack 1
         # 101:201 and 301:401 are lost.
         a > P. 201:301 ack 1
         a < . 1 ack 101 <sack 201:301>
         a > P. 401:501 ack 1
         a < . 1 ack 101 <sack 401:501 201:301>
         a > P. 1:101 ack 1
         a < . 1 ack 101 <sack 1:101 401:501 201:301>
         a > P. 1:101 ack 1
         a < . 1 ack 101 <sack 1:101>
         a > P. 101:201 ack 1
         b < . 101:301 ack 1
         a < . 1 ack 301 <no sack>
         a > P. 301:401 ack 1
         b < P. 301:501 ack 1
         a < . 1 ack 501 <no sack>
         # All holes are filled: of the next one is told again.
         a > P. 601:701 ack 1
         a < . 1 ack 501 <sack 601:701>",
    );
}

#[test]
fn a_source_that_repeats_itself_for_ever_is_counted_no_further_than_needed() {
    let mut t = Script::new();
    t.open();
    t.play("a > P. 1:101 ack 1\n b < P. 1:101 ack 1");
    for _ in 0..600 {
        t.play("a > P. 1:101 ack 1\n drop");
    }
    t.play("b > . 1 ack 101\n a > P. 101:201 ack 1\n b < P. 101:201 ack 1");
}
