//! Bypass: the packets of one direction, or some of them, go round the gateway.

use crate::script::{Host, Script};
use farlink_gateway::config::Link;
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
    // b has everything up to 501; only a part came through here. The ACK fits b's own numbers
    // exactly.
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
    // b's data reached a another way; a acknowledges it. The acknowledgement goes on: b waits for
    // it.
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

#[test]
fn blind_acknowledgements_of_unsent_bytes_end_no_custody() {
    let mut t = Script::new();
    t.open();
    t.play(
        "a > P. 1:101 ack 1
         b < P. 1:101 ack 1
         +40
         a < . 1 ack 101",
    );
    // Who knows only the addresses tries sequence numbers: these are far from any that b could use.
    for _ in 0..8 {
        t.play("b > . 30000001 ack 501\n ~200\n drop");
    }
    t.play("b > . 51 ack 501\n ~50\n drop");
    t.assert(t.status().custody_bytes == 100, "one that happens to lie in the window changes nothing");
    t.play("b > . 1 ack 101\n ~10\n drop");
    t.assert(t.status().custody_bytes == 0, "b's own word does");
}

#[test]
fn an_honest_hosts_answer_ends_what_others_say_in_its_name() {
    let mut t = Script::new();
    t.open();
    t.play(
        "b > . 1 ack 1 win 0
         drop
         a > P. 1:101 ack 1
         ~50
         drop",
    );
    let mut answers = 0;
    for i in 0..600 {
        // In the window, some even exact, for a minute; b answers each probe of its closed window.
        t.play(&format!("b > . {} ack 61\n ~100\n drop a", 1 + i % 7 * 10));
        if !t.take(Host::B).is_empty() {
            answers += 1;
            t.play("b > . 1 ack 1 win 0\n drop");
        }
    }
    assert!(answers >= 4, "{answers}");
    t.assert(t.status().custody_bytes == 100 && t.mode() == "split", "custody stays");
    t.play("b > . 1 ack 1 win 512\n b < P. 1:101 ack 1");
}

#[test]
fn one_acknowledgement_of_bytes_that_were_never_sent_loses_none_of_them() {
    for beyond in [500u32, 5_000] {
        let mut t = Script::new();
        t.open();
        // Exact in everything else. It goes on: a knows what it has sent.
        t.play(&format!("b > . 1 ack {0}\n a < . 1 ack {0}", 1 + beyond));
        t.play(
            "a > . 1:1001 ack 1
             b < . 1:1001
             a > P. 1001:2001 ack 1
             a < . 1 ack 2001
             b < P. 1001:2001
             b > . 1 ack 2001
             b > P. 1:101 ack 2001
             a < P. 1:101 ack 2001
             a > . 2001 ack 101
             +40
             b < . 2001 ack 101
             quiet",
        );
        t.assert(t.status().custody_bytes == 0 && t.mode() == "split", "both directions stand");
    }
}

#[test]
fn a_host_that_goes_back_on_its_word_is_reset_and_the_other_one_told() {
    let mut t = Script::new();
    t.open();
    t.play(
        "a > P. 1:101 ack 1
         b < P. 1:101 ack 1
         b > . 1 ack 501
         a < . 1 ack 501
         # a has sent as much: what lies between went round us.
         a > P. 501:601 ack 1
         b < P. 501:601 ack 1
         # But b did not get it, and says so whenever it is asked.
         ~1500
         drop",
    );
    for _ in 0..36 {
        t.play("b > . 1 ack 101\n ~500\n drop");
    }
    t.assert(t.mode() == "split", "an old acknowledgement may come late");
    t.play("~2000\n drop\n b > . 1 ack 101\n drop\n b > . 1 ack 101\n drop");
    t.assert(t.mode() == "split", "and twice");
    t.play("b > . 1 ack 101");
    let ended = |seen: Vec<crate::script::notation::Seen>| seen.iter().any(|s| s.segment.flags.rst());
    assert!(ended(t.take(Host::A)) && ended(t.take(Host::B)), "nothing is lost in silence");
    t.assert(t.status().counters.flows_abandoned == 1, "counted");
}

#[test]
fn a_host_that_only_repeats_itself_is_asked_what_it_has_got_round_us() {
    let mut t = Script::new();
    t.open();
    t.play("a > F. 1:101 ack 1\n b < F. 1:101 ack 1\n ~40\n drop");
    // b has sent 100,000 bytes round us. What acknowledges none of them is older than any window,
    // and b refuses it.
    t.play("b > . 100001 ack 1\n drop");
    // a has them, and repeats its end.
    t.play("a > F. 101 ack 100001\n drop b\n ~10");
    let asked = t.take(Host::A);
    assert!(asked.iter().any(|s| s.seq == 0 && s.payload.is_empty()), "{asked:?}");
    t.play("drop\n a > . 102 ack 100001\n ~5s\n drop a");
    let again = t.take(Host::B);
    let taken = again.iter().any(|s| (s.seq, s.payload.len(), s.ack) == (1, 100, 100_001));
    assert!(taken, "{again:?}");
}

#[test]
fn a_gateway_and_a_host_that_answer_differently_are_not_asked_for_ever() {
    let link = Link { name: "sat".into(), ..Link::default() };
    let mut t = Script::with(|s| s.link = Some(link));
    t.play(
        "a > S 0 win 65535 <mss 1460,sackOK,ws 7>\n drop
         b > S. 0 ack 1 win 65535 <mss 1460,sackOK,ws 7,flsynack>\n drop
         a > . 1 ack 1\n drop
         # Its second part went round us, and so did what b said.
         a > P. 1:101 ack 1\n drop\n a > P. 201:301 ack 1\n ~10\n drop
         b > . 11 ack 301\n drop a",
    );
    let mut questions = 0;
    for _ in 0..200 {
        let asked = t.take(Host::B).iter().filter(|s| s.payload.is_empty()).count();
        if asked > 0 {
            questions += asked;
            t.play("b > . 1 ack 101 <fl>\n drop\n b > . 11 ack 301\n drop a");
        }
        t.play("~100");
    }
    assert!((1..=10).contains(&questions), "{questions} in 20 s");
}

/// What a source has said of itself before its end is known counts no more than what it says after.
#[test]
fn what_a_source_has_sent_behind_its_own_end_proves_nothing() {
    let without_data = "a > . 17 ack 1
         drop
         a > F. 1 ack 1
         drop a
         b < F. 1 ack 1
         b > . 1 ack 17
         drop
         b > . 1 ack 17
         drop
         b > . 1 ack 17
         ~2s";
    let behind_data = "a > P. 1:101 ack 1
         b < P. 1:101 ack 1
         b > . 1 ack 101
         ~40
         drop
         a > . 117 ack 1
         ~1
         drop
         a > F. 101 ack 1
         drop a
         b < F. 101 ack 1
         b > . 1 ack 117
         ~1
         drop
         b > . 1 ack 117
         ~1
         drop
         b > . 1 ack 117
         ~2s";
    for script in [without_data, behind_data] {
        let mut t = Script::new();
        t.open();
        t.play(script);
        let again = t.take(Host::B);
        t.assert(!again.is_empty(), "the FIN is still owed, and sent again");
    }
}

#[test]
fn what_a_source_sends_behind_its_own_end_proves_nothing() {
    let mut t = Script::new();
    t.open();
    t.play(
        "a > F. 1:101 ack 1
         b < F. 1:101 ack 1
         drop a
         # The stream is over, and nobody can have got more of it.
         a > P. 102:202 ack 1
         ~40
         drop a
         b > . 1 ack 202
         a < . 1 ack 202
         b > P. 1:11 ack 102
         a < P. 1:11 ack 102
         +40
         b < . 102 ack 11",
    );
}
