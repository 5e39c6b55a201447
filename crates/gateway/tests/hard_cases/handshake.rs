//! Handshake: relayed, never completed for a host; what must not be split is not.

use crate::script::{Host, Script, USUAL};

/// Opens with these options, then sends both ways and looks whether the gateway acknowledges.
fn is_split(a: &str, b: &str) -> bool {
    let mut t = Script::new();
    t.open_with(a, b);
    t.play("a > P. 1:101 ack 1\n b < P. 1:101 ack 1\n ~100");
    let acknowledged = !t.take(crate::script::Host::A).is_empty();
    t.assert(acknowledged == (t.mode() == "split"), "one answer");
    acknowledged
}

#[test]
fn a_leg_is_established_only_by_the_clients_first_segment_after_the_syn_ack() {
    let mut t = Script::new();
    t.play(
        "a > S 0 win 65535 <mss 1460>
         b < S 0
         ~3000
         quiet
         b > S. 0 ack 1 win 65535 <mss 1460>
         a < S. 0 ack 1
         # A server that speaks first: its client is not known to live (a spoofed SYN).
         b > P. 1:11 ack 1
         a < P. 1:11 ack 1
         ~3000
         quiet",
    );
    t.assert(t.status().flows_split == 0 && t.status().custody_bytes == 0, "nothing is split");
    t.play("a > . 1 ack 11\n b < . 1 ack 11");
    t.assert(t.status().flows_split == 1, "now it is");
}

#[test]
fn with_fast_open_nothing_is_acknowledged_before_the_clients_own_ack() {
    let mut t = Script::new();
    t.play(
        "a > S 0:100 win 65535 <mss 1460,fo>
         b < S 0:100 <fo>
         ~500
         quiet
         b > S. 0 ack 101 win 65535 <mss 1460>
         a < S. 0 ack 101
         b > P. 1:51 ack 101
         a < P. 1:51 ack 101
         ~500
         quiet
         a > . 101 ack 51
         b < . 101 ack 51
         a > P. 101:201 ack 51
         b < P. 101:201 ack 51
         +40
         a < . 51 ack 201",
    );
}

#[test]
fn with_fast_open_whose_data_was_refused_the_client_repeats_it() {
    let mut t = Script::new();
    t.play(
        "a > S 0:100 win 65535 <mss 1460,fo>
         b < S 0:100
         b > S. 0 ack 1 win 65535 <mss 1460>
         a < S. 0 ack 1
         a > P. 1:101 ack 1
         b < P. 1:101 ack 1
         +40
         a < . 1 ack 101",
    );
}

#[test]
fn a_repeated_syn_ack_after_early_acknowledged_data_means_send_again() {
    let mut t = Script::new();
    t.play(
        "a > S 0 win 65535 <mss 1460>
         drop b
         b > S. 0 ack 1 win 65535 <mss 1460>
         drop a
         a > . 1 ack 1
         b < . 1 ack 1
         a > P. 1:101 ack 1
         b < P. 1:101 ack 1
         +40
         a < . 1 ack 101
         # Neither the ACK nor the data arrived: the server is still in SYN-RECEIVED.
         +200
         b > S. 0 ack 1 win 65535 <mss 1460>
         b < P. 1:101 ack 1
         quiet",
    );
}

/// After this handshake data is sent, and the SYN-ACK comes again so many milliseconds after the
/// acknowledgement.
fn a_later_syn_ack_repeats_nothing(handshake: &str, later_ms: u32) {
    let mut t = Script::new();
    t.play(handshake);
    t.play(&format!(
        "a > . 1 ack 1
         b < . 1 ack 1
         a > P. 1:101 ack 1
         b < P. 1:101 ack 1
         +40
         a < . 1 ack 101
         +{later_ms}
         b > S. 0 ack 1 win 65535 <mss 1460>
         quiet"
    ));
}

/// The server's timer of a second is shorter than two round trips: nothing is lost yet.
#[test]
fn a_repeated_syn_ack_that_comes_early_repeats_nothing() {
    a_later_syn_ack_repeats_nothing(
        "a > S 0 win 65535 <mss 1460>
         b < S 0
         +600
         b > S. 0 ack 1 win 65535 <mss 1460>
         a < S. 0 ack 1",
        860,
    );
}

/// The answers to a SYN and to its repetition come a second apart, as these left. What leaves in
/// between is not there yet when the second one does.
#[test]
fn a_syn_ack_that_left_before_the_data_could_be_there_repeats_nothing() {
    a_later_syn_ack_repeats_nothing(
        "a > S 0 win 65535 <mss 1460>
         drop b
         +1000
         a > S 0 win 65535 <mss 1460>
         drop b
         +600
         b > S. 0 ack 1 win 65535 <mss 1460>
         drop a",
        960,
    );
}

#[test]
fn a_repeated_syn_ack_without_data_is_answered() {
    let mut t = Script::new();
    t.open();
    t.play(
        "b > S. 0 ack 1 win 65535 <mss 1460,sackOK,ws 7>
         b < . 1 ack 1
         quiet",
    );
}

#[test]
fn the_syn_cache_knows_connections_by_their_isn() {
    let mut t = Script::new();
    t.play(
        "a > S 0 win 65535 <mss 1460>
         b < S 0
         # Another attempt from the same port.
         a > S 5000 win 65535 <mss 1460>
         b < S 5000
         # The answer to the first: the client will reset it.
         b > S. 0 ack 1 win 65535 <mss 1460>
         a < S. 0 ack 1
         a > . 1 ack 1
         b < . 1 ack 1",
    );
    t.assert(t.status().flows_split == 0, "not split on the strength of the wrong SYN");
    t.play(
        "b > S. 9000 ack 5001 win 65535 <mss 1460>
         a < S. 9000 ack 5001
         a > . 5001 ack 9001
         b < . 5001 ack 9001",
    );
    t.assert(t.status().flows_split == 1, "the right one is");
}

#[test]
fn a_repeated_syn_is_one_connection() {
    let mut t = Script::new();
    t.play("a > S 0 win 65535 <mss 1460>\n b < S 0\n ~1000\n a > S 0 win 65535 <mss 1460>\n b < S 0");
    t.assert(t.status().half_open == 1, "one");
}

#[test]
fn an_option_that_both_hosts_speak_and_we_do_not_forbids_splitting() {
    assert!(is_split("<mss 1460>", "<mss 1460>"));
    assert!(is_split("<mss 1460,unk 70>", "<mss 1460>"), "the server does not speak it");
    assert!(is_split("<mss 1460,unk 70>", "<mss 1460,unk 71>"), "no common one");
    assert!(!is_split("<mss 1460,unk 70>", "<mss 1460,unk 70>"));
}

#[test]
fn md5_ao_and_multipath_are_not_split() {
    assert!(!is_split("<mss 1460,md5>", "<mss 1460,md5>"));
    assert!(!is_split("<mss 1460,ao>", "<mss 1460,ao>"));
    assert!(!is_split("<mss 1460>", "<mss 1460,md5>"));
    assert!(!is_split("<mss 1460,mptcp>", "<mss 1460,mptcp>"));
    assert!(is_split("<mss 1460,mptcp>", "<mss 1460>"), "the server fell back to TCP");
}

#[test]
fn the_options_of_the_hosts_pass_unchanged() {
    let mut t = Script::new();
    t.play(
        "a > S 0 win 4321 <mss 1337,sackOK,ts 7 0,ws 3,unk 70>
         b < S 0 win 4321 <mss 1337,sackOK,ts 7 0,ws 3,unk 70,no flsyn>
         b > S. 0 ack 1 win 1234 <mss 999,ts 9 7,ws 14>
         a < S. 0 ack 1 win 1234 <mss 999,ts 9 7,ws 14,no sackOK,no flsynack>",
    );
}

#[test]
fn simultaneous_open_is_forwarded() {
    let mut t = Script::new();
    t.play(
        "a > S 0 win 65535 <mss 1460>
         b < S 0
         b > S 0 win 65535 <mss 1460>
         a < S 0
         a > S. 0 ack 1 win 65535 <mss 1460>
         b < S. 0 ack 1
         b > S. 0 ack 1 win 65535 <mss 1460>
         a < S. 0 ack 1
         a > P. 1:101 ack 1
         b < P. 1:101 ack 1
         b > . 1 ack 101
         a < . 1 ack 101
         ~1000
         quiet",
    );
    t.assert(t.status().counters.flows_split == 0, "the hosts sort it out");
}

#[test]
fn accurate_ecn_is_not_negotiated_through_us() {
    let mut t = Script::new();
    t.play(
        "a > SEWA 0 win 65535 <mss 1460>
         b < SEW 0
         b > S.EA 0 ack 1 win 65535 <mss 1460>
         a < S.E 0 ack 1",
    );
}

#[test]
fn a_refused_connection_is_the_hosts_business() {
    let mut t = Script::new();
    t.play(
        "a > S 0 win 65535 <mss 1460>
         b < S 0
         b > R. 0 ack 1
         a < R. 0 ack 1
         ~5000
         quiet",
    );
    t.assert(t.status().half_open == 0, "forgotten");
}

#[test]
fn a_half_open_connection_is_forgotten_and_then_simply_forwarded() {
    let mut t = Script::new();
    t.play(
        "a > S 0 win 65535 <mss 1460>
         b < S 0
         ~80s
         quiet",
    );
    t.assert(t.status().half_open == 0, "forgotten");
    t.play(&format!(
        "b > S. 0 ack 1 win 65535 {USUAL}
         a < S. 0 ack 1
         a > . 1 ack 1
         b < . 1 ack 1
         a > P. 1:101 ack 1
         b < P. 1:101 ack 1
         ~200
         quiet"
    ));
}

#[test]
fn an_established_connection_that_was_never_seen_before_is_forwarded() {
    let mut t = Script::new();
    t.play(
        "a > P. 5001:5101 ack 7001
         b < P. 5001:5101 ack 7001
         b > . 7001 ack 5101
         a < . 7001 ack 5101
         ~200
         quiet",
    );
    t.assert(t.mode() == "none", "no state for it");
}

#[test]
fn data_with_the_clients_first_ack_is_taken() {
    let mut t = Script::new();
    t.play(
        "a > S 0 win 65535 <mss 1460>
         drop b
         b > S. 0 ack 1 win 65535 <mss 1460>
         drop a
         # The bare ACK was lost before the gateway.
         a > P. 1:101 ack 1
         b < P. 1:101 ack 1
         +40
         a < . 1 ack 101",
    );
}

#[test]
fn a_server_that_answers_a_late_copy_of_the_syn_anew_is_no_reason_for_a_reset() {
    let mut t = Script::new();
    t.open();
    t.play("a > P. 1:26 ack 1 win 512\n ~100\n drop");
    // The copy of the SYN has met a server that knew nothing of the first one.
    for wait in [1000, 1000, 2000, 4000, 8000, 16_000] {
        t.play(&format!("drop b\n b > S. 900000 ack 1 win 65535 <mss 1460,sackOK,ws 7>\n ~{wait}"));
        let seen = t.take(Host::A);
        t.assert(!seen.iter().any(|s| s.segment.flags.rst()), "no host has sent a RST");
    }
}

#[test]
fn a_reset_from_outside_the_window_ends_no_handshake() {
    for (number, splits) in [(200_000, 1), (1, 0)] {
        let mut t = Script::new();
        t.play(&format!(
            "a > S 0 win 65535 <mss 1460>
             b < S 0
             # Late, of an older connection between these ports. The client has another one in mind.
             b > . 900000 ack {number}
             a < . 900000 ack {number}
             a > R {number}
             b < R {number}
             b > S. 0 ack 1 win 65535 <mss 1460>
             a < S. 0 ack 1
             a > . 1 ack 1
             b < . 1 ack 1"
        ));
        t.assert(t.status().flows_split == splits, "a host may have taken the one in the window");
    }
}

#[test]
fn a_servers_reset_that_answers_nothing_ends_no_handshake() {
    for (number, splits) in [("900000", 1), ("0 ack 1", 0)] {
        let mut t = Script::new();
        let flags = if number.contains("ack") { "R." } else { "R" };
        t.play(&format!(
            "a > S 0 win 65535 <mss 1460>
             b < S 0
             b > {flags} {number}
             a < {flags} {number}
             b > S. 0 ack 1 win 65535 <mss 1460>
             a < S. 0 ack 1
             a > . 1 ack 1
             b < . 1 ack 1"
        ));
        t.assert(t.status().flows_split == splits, "the client takes only what answers its SYN");
    }
}
