//! Hostile and broken input: contradictions, blind guesses, floods. Bounded answers, other flows
//! exact.

use crate::script::{Host, Script};

#[test]
fn the_first_copy_of_a_byte_wins() {
    let mut t = Script::new();
    t.open();
    t.play(
        "b > . 1 ack 1 win 0
         drop
         a > P. 1:101 ack 1
         a > P. 1:101 ack 1 {fill 88}
         a < . 1 ack 101
         # It overlaps the end of what is held.
         a > P. 51:101 ack 1 {fill 88}
         a < . 1 ack 101
         b > . 1 ack 1 win 512
         b < P. 1:101 ack 1",
    );
}

#[test]
fn the_first_copy_wins_above_a_hole() {
    let mut t = Script::new();
    t.open();
    t.play(
        "a > P. 101:201 ack 1
         a < . 1 ack 1 <sack 101:201>
         a > P. 101:201 ack 1 {fill 88}
         a < . 1 ack 1
         # This one fills the hole with the stream's bytes, and contradicts nothing.
         a > P. 1:101 ack 1
         a < . 1 ack 201
         b < P. 1:201 ack 1",
    );
}

/// Somewhere in the window a guess falls easily, on exactly the next number hardly ever.
#[test]
fn what_comes_in_order_wins_over_a_guess_above_it() {
    let mut t = Script::new();
    t.open();
    t.play(
        "a > P. 51:101 ack 1 {fill 88}
         a < . 1 ack 1 <sack 51:101>
         a > P. 151:301 ack 1
         a < . 1 ack 1 <sack 151:301 51:101>
         a > P. 1:201 ack 1
         a < . 1 ack 301
         b < P. 1:301 ack 1",
    );
}

#[test]
fn what_a_host_would_drop_as_a_duplicate_acknowledges_nothing() {
    let mut t = Script::new();
    t.open();
    t.play(
        "b > P. 1:201 ack 1
         a < P. 1:201 ack 1
         a > . 1 ack 201
         ~40
         drop b
         a > P. 1:101 ack 201
         b < P. 1:101 ack 201
         ~40
         drop a
         b > . 50 ack 101 win 60000
         b < . 101 ack 201",
    );
    t.assert(t.status().custody_bytes == 100, "what b has not got is still held");
}

#[test]
fn data_outside_the_window_is_not_taken() {
    let mut t = Script::new();
    t.open();
    t.play("a > P. 1000001:1000101 ack 1\n ~100");
    t.assert(t.status().custody_bytes == 0, "nothing");
    // The other host judges it: the path may be another one.
    t.play("b < P. 1000001:1000101 ack 1\n drop a");
    t.play("a > P. 1:101 ack 1\n b < P. 1:101 ack 1");
}

#[test]
fn old_data_is_acknowledged_again_and_not_passed_on() {
    let mut t = Script::new();
    t.open();
    t.play(
        "a > P. 1:101 ack 1
         b < P. 1:101 ack 1
         b > . 1 ack 101
         +40
         a < . 1 ack 101
         a > P. 1:101 ack 1
         a < . 1 ack 101 <sack 1:101>
         quiet",
    );
}

#[test]
fn an_acknowledgement_from_the_distant_past_is_challenged() {
    let mut t = Script::new();
    t.open();
    t.play(
        "a > P. 1:101 ack 1
         b < P. 1:101
         +40
         a < . 1 ack 101
         # RFC 5961 5.2: SND.UNA - MAX.SND.WND is as far back as an ACK may reach.
         b > P. 1:11 ack -300000 {fill 88}
         b < . 101 ack 1
         quiet",
    );
    t.assert(t.status().custody_bytes == 100, "nothing was taken from it");
}

#[test]
fn what_a_relay_may_hold_lets_no_acknowledgement_be_older() {
    let mut t = Script::with(|s| s.config.limits.relay_bytes = 16 << 20);
    t.open();
    t.play(
        "a > P. 1:101 ack 1
         b < P. 1:101
         +40
         a < . 1 ack 101
         # b has shown a window of 65,535.
         b > P. 1:11 ack -70000 {fill 88}
         b < . 101 ack 1
         quiet
         b > P. 1:11 ack -60000
         a < P. 1:11 ack 101",
    );
}

#[test]
fn challenges_are_limited() {
    let mut t = Script::new();
    t.open();
    for i in 0..50 {
        t.play(&format!("a > R {}", 2 + i));
        t.play("drop b");
        // Answers are counted below.
        let n = t.take(Host::A).len();
        assert!(n <= 1 && (n == 1) == (i < 8), "challenge {i}: {n}");
    }
    t.play("~1100\n a > R 700\n a < . 1 ack 1");
}

/// Connections of host a from these ports on.
fn open_many(t: &mut Script, ports: core::ops::Range<u32>) {
    for p in ports {
        t.play(&format!(
            "a > S 0 win 65535 <mss 1460,sackOK,ws 7> {{port {p}}}
             drop
             b > S. 0 ack 1 win 65535 <mss 1460,sackOK,ws 7> {{port {p}}}
             drop
             a > . 1 ack 1 {{port {p}}}
             drop"
        ));
    }
}

#[test]
fn challenges_to_ones_own_connection_tell_nothing_of_anothers() {
    let mut t = Script::with(|s| s.config.limits.challenge_acks_per_s = 20);
    open_many(&mut t, 5000..5040);
    // All that the limit of all connections leaves, second by second. A connection of its own
    // answers eight at most.
    let mut seconds = Vec::new();
    for _ in 0..8 {
        t.play("~1100\n drop");
        let mut answered = 0;
        for p in 5000..5040 {
            t.play(&format!("a > R 2 {{port {p}}}\n drop b"));
            answered += t.take(Host::A).len();
        }
        seconds.push(answered);
    }
    assert!(seconds.iter().all(|n| (10..=30).contains(n)), "{seconds:?}");
    assert!(seconds.iter().any(|n| *n != seconds[0]), "nobody can count on it: {seconds:?}");
}

#[test]
fn a_flood_of_challenges_silences_no_closed_connection() {
    let mut t = Script::with(|s| s.config.limits.challenge_acks_per_s = 4);
    open_many(&mut t, 5000..5020);
    t.open();
    t.play("a > R. 1 ack 1\n b < R. 1 ack 1");
    for p in 5000..5020 {
        t.play(&format!("a > R 2 {{port {p}}}\n drop"));
    }
    t.play("b > P. 1:11 ack 1\n b < R. 1 ack 11");
}

#[test]
fn a_forged_fin_above_a_hole_ends_nothing() {
    let mut t = Script::new();
    t.open();
    t.play(
        "a > F. 301 ack 1
         a < . 1 ack 1
         # The stream goes on where it is said to end, and ends elsewhere.
         a > P. 1:401 ack 1
         b < P. 1:401 ack 1
         a < . 1 ack 401
         b > . 1 ack 401
         a > FP. 401:501 ack 1
         b < FP. 401:501 ack 1
         a < . 1 ack 501
         b > . 1 ack 502
         a < . 1 ack 502",
    );
}

#[test]
fn a_forged_fin_is_forgotten_when_its_host_speaks_from_beyond_it() {
    let mut t = Script::new();
    t.open();
    t.play(
        "a > F. 301 ack 1
         a < . 1 ack 1
         b > P. 1:101 ack 1
         a < P. 1:101 ack 1
         # It has sent more than this, which is late.
         a > . 501 ack 101
         +40
         b < . 1 ack 101
         # Had the stream ended at 301, this would be its end.
         a > . 1:301 ack 101
         a < . 101 ack 301
         b < . 1:301 ack 101
         a > P. 301:501 ack 101
         a < . 101 ack 501
         b < P. 301:501 ack 101",
    );
}

#[test]
fn the_later_of_two_fins_counts_and_data_behind_it_does_not() {
    let mut t = Script::new();
    t.open();
    t.play(
        "a > F. 301 ack 1
         a < . 1 ack 1
         a > P. 601:701 ack 1 {fill 88}
         a < . 1 ack 1 <sack 601:701>
         a > FP. 1:101 ack 1
         b < FP. 1:101 ack 1
         a < . 1 ack 101
         b > . 1 ack 102
         a < . 1 ack 102",
    );
}

#[test]
fn a_fin_that_overtakes_its_data_is_kept() {
    let mut t = Script::new();
    t.open();
    t.play(
        "a > FP. 101:201 ack 1
         a < . 1 ack 1 <sack 101:201>
         a > P. 1:101 ack 1
         b < FP. 1:201 ack 1
         a < . 1 ack 201
         b > . 1 ack 202
         a < . 1 ack 202",
    );
}

#[test]
fn wrong_checksums_teach_nothing_and_are_the_hosts_to_judge() {
    let mut t = Script::new();
    t.open();
    t.play("a > P. 1:101 ack 1 {badsum}");
    assert_eq!(t.take(Host::B).len(), 1, "forwarded");
    t.play("~100\n quiet\n a > P. 1:101 ack 1\n b < P. 1:101 ack 1");
    t.assert(t.status().counters.bad_checksums == 1, "counted");
    t.play("a > R 101 {badsum}");
    assert_eq!(t.take(Host::B).len(), 1);
    t.assert(t.mode() == "split", "a broken reset resets nobody");
}

#[test]
fn segments_without_ack_in_mid_flow_are_forwarded() {
    let mut t = Script::new();
    t.open();
    t.play("a > P 1:11\n b < P 1:11\n a > - 1\n b < - 1\n a > F 1\n b < F 1\n ~100\n quiet");
    t.assert(t.status().custody_bytes == 0, "not taken");
}

#[test]
fn nonsense_flags_are_forwarded_without_state() {
    let mut t = Script::new();
    t.play("a > SF 0 win 1 <mss 1460>\n b < SF 0\n a > SR 0 win 1\n b < SR 0\n a > SFRP.UEW 0 ack 0\n b < SFRP.UEW 0");
    t.assert(t.status().half_open == 0 && t.status().flows_split == 0, "no state");
}

#[test]
fn a_blind_syn_does_not_end_a_connection() {
    let mut t = Script::new();
    t.open();
    t.play(
        "a > P. 1:101 ack 1
         b < P. 1:101 ack 1
         +40
         a < . 1 ack 101
         # Who has not sent it hears where the connection stands (RFC 5961 section 4).
         a > S 123456 win 1000 <mss 1460>
         a < . 1 ack 101
         a > S 123457 win 1000 <mss 1460>
         a < . 1 ack 101
         a > P. 101:201 ack 1
         b < P. 101:201 ack 1",
    );
    t.assert(t.status().custody_bytes == 200, "unharmed");
}

#[test]
fn a_flood_of_syns_is_bounded_and_real_connections_open() {
    let mut t = Script::with(|s| s.config.limits.half_open_max = 100);
    for i in 0..1000 {
        t.play(&format!("a > S 0 win 65535 <mss 1460> {{port {}}}\n drop b", 1000 + i));
    }
    t.assert(t.status().half_open == 100, "bounded");
    t.assert(t.status().counters.half_open_evicted == 900, "the oldest go");
    t.open();
    t.assert(t.status().flows_split == 1, "a real one opens");
    t.play("~80s");
    t.assert(t.status().half_open == 0, "forgotten");
}

#[test]
fn after_a_flood_the_memory_goes_back() {
    let mut t = Script::new();
    for i in 0..20_000 {
        t.play(&format!("a > S {i} win 65535 <mss 1460> {{port {}}}\n drop b", 1000 + i));
    }
    let asked = t.status().table_bytes;
    for i in 0..20_000 {
        t.play(&format!("b > S. 7 ack {} win 65535 <mss 1460> {{port {}}}\n drop a", i + 1, 1000 + i));
    }
    let full = t.status().table_bytes;
    assert!(full > asked + 20_000 * 100, "answers are counted: {full} after {asked}");
    t.play("~80s");
    let empty = t.status().table_bytes;
    assert!(empty < full / 50, "{empty} of {full}");
}

#[test]
fn a_flood_of_syn_acks_leaves_nothing() {
    let mut t = Script::new();
    for i in 0..200 {
        t.play(&format!("b > S. 0 ack 1 win 65535 <mss 1460> {{port {}}}\n drop a", 1000 + i));
    }
    t.assert(t.status().half_open == 0 && t.status().flows_split == 0, "nothing");
}

#[test]
fn early_data_beyond_the_bounds_is_left_to_the_source() {
    let mut t = Script::new();
    t.open();
    // Every second byte: as many runs as an attacker likes.
    for i in 0..2000u32 {
        t.play(&format!("a > . {}:{} ack 1\n drop a\n drop b", 3 + 2 * i, 4 + 2 * i));
    }
    t.assert(t.status().pool_bytes < 4 << 20, "bounded memory");
    t.play("a > P. 1:4001 ack 1 {gso 1460}\n ~50");
    let acked = t.take(Host::A).iter().map(|s| s.ack).max();
    assert_eq!(acked, Some(4001), "the stream is whole");
    let got: usize = t.take(Host::B).iter().map(|s| s.payload.len()).sum();
    assert_eq!(got, 4000);
}

#[test]
fn junk_of_every_kind_passes_and_leaves_nothing() {
    let mut t = Script::new();
    t.open();
    let mut sent = 0;
    for len in 0..80usize {
        for first in [0x45u8, 0x46, 0x60, 0x4f, 0x00, 0xff] {
            let mut bytes: Vec<u8> = (0..len).map(|i| (i * 37 + len) as u8).collect();
            if let Some(b) = bytes.first_mut() {
                *b = first;
            }
            if farlink_wire::ip::addresses(&bytes).is_some() {
                t.inject(Host::A, bytes, farlink_wire::Offload::default());
                sent += 1;
            }
        }
    }
    assert!(sent > 100);
    t.play("drop\n a > P. 1:101 ack 1\n b < P. 1:101 ack 1");
}

#[test]
fn odd_segments_draw_no_dialogue() {
    let mut t = Script::new();
    t.open();
    // A host that answers each acknowledgement that it does not expect, as BSD does, and a gateway
    // that does the same.
    let mut answers = 0;
    for _ in 0..200 {
        t.play("a > . 1000001 ack 1\n ~5\n drop b");
        answers += t.take(Host::A).len();
    }
    assert!((1..=17).contains(&answers), "{answers} in a second");
}
