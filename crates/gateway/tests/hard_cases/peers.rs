//! Gateways that find each other, and what they tell: believed only while heard.

use crate::script::{Host, Script, USUAL};
use farlink_gateway::config::Link;
use farlink_wire::Duration;

fn link() -> Link {
    Link { name: "sat".into(), ..Link::default() }
}

/// One gateway; the link towards b is declared, and the script plays the gateway at its other end.
fn linked() -> Script {
    Script::with(|s| s.link = Some(link()))
}

const HANDSHAKE: &str = "a > S 0 win 65535 <mss 1460,sackOK,ws 7>
     b < S 0 <flsyn,mss 1460,sackOK,ws 7>
     b > S. 0 ack 1 win 65535 <mss 1460,sackOK,ws 7,flsynack>
     a < S. 0 ack 1 <no flsynack,mss 1460,sackOK,ws 7>
     a > . 1 ack 1
     b < . 1 ack 1";

/// A SYN that the gateway at the client's side has marked, up to the answer.
pub const ASKED: &str = "a > S 0 win 65535 <mss 1460,sackOK,ws 7,flsyn>
     b < S 0
     b > S. 0 ack 1 win 65535 <mss 1460,sackOK,ws 7>
     a < S. 0 ack 1 <flsynack>";

/// As `linked`, with an answer in the handshake.
fn with_peer() -> Script {
    let mut t = linked();
    t.play(HANDSHAKE);
    t
}

#[test]
fn the_option_goes_only_into_syns_that_leave_over_a_declared_link() {
    let mut t = linked();
    t.play(
        "a > S 0 win 65535 <mss 1460,sackOK,ws 7>
         b < S 0 <flsyn,mss 1460,sackOK,ws 7>
         # The other direction leaves over an ordinary interface.
         b > S 0 win 65535 <mss 1460> {port 41000}
         a < S 0 <no flsyn> {port 41000}",
    );
    let mut t = Script::new();
    t.play("a > S 0 win 65535 <mss 1460>\n b < S 0 <no flsyn>");
}

#[test]
fn a_syn_with_fast_open_multipath_or_without_room_has_no_place_for_it() {
    for options in ["<mss 1460,fo>", "<mss 1460,mptcp>", "<mss 1460,ts 1 0,ws 7,md5>"] {
        let mut t = linked();
        t.play(&format!("a > S 0 win 65535 {options}\n b < S 0 <no flsyn>"));
    }
    let full = "<mss 1460,sackOK,ts 1 0,ws 7,unk 70,unk 71,unk 72,unk 73,unk 74>";
    let mut t = linked();
    t.play(&format!("a > S 0 win 65535 {full}\n b < S 0 <no flsyn>"));
}

#[test]
fn the_far_gateway_answers_in_another_form_and_the_hosts_never_see_it() {
    let mut t = Script::with(|s| s.link_a = Some(link()));
    t.play(
        "a > S 0 win 65535 <mss 1460,flsyn>
         b < S 0 <no flsyn,mss 1460>
         b > S. 0 ack 1 win 65535 <mss 1460>
         a < S. 0 ack 1 <flsynack>
         a > . 1 ack 1
         b < . 1 ack 1
         # Marked towards the gateway, not towards the host.
         b > P. 1:101 ack 1
         a < P. 1:101 <fl>
         a > P. 1:101 ack 1
         b < P. 1:101 <no fl>",
    );
}

/// Answers are late because the link was away for a moment each time. If acknowledgements then came
/// a few times for each such round trip, the other gateway would take the link for silent.
#[test]
fn late_answers_do_not_make_a_near_gateway_a_far_one() {
    let mut t = Script::with(|s| s.link_a = Some(link()));
    t.play(ASKED);
    t.play("+1\n a > . 1 ack 1 <fl 1 1024>\n b < . 1 ack 1");
    for n in 0..4 {
        let (from, to) = (n * 100 + 1, n * 100 + 101);
        t.play(&format!("b > P. {from}:{to} ack 1\n a < P. {from}:{to} <fl>\n ~45\n drop b\n ~105\n quiet"));
        t.play(&format!("a > . 1 ack {to} win 512 <fl {to} 1024>\n drop"));
    }
    t.play("a > . 1:2921 ack 401 <fl> {gso 1460}\n ~5\n drop");
    t.play("a > . 2921:5841 ack 401 <fl> {gso 1460}\n a < . 401 ack 5841 <fl>");
}

#[test]
fn an_echoed_option_is_no_answer() {
    let mut t = linked();
    t.play(
        "a > S 0 win 65535 <mss 1460,sackOK,ws 7>
         b < S 0 <flsyn>
         b > S. 0 ack 1 win 65535 <mss 1460,sackOK,ws 7,flsyn>
         a < S. 0 ack 1 <no flsyn>
         a > . 1 ack 1
         b < . 1 ack 1
         a > P. 1:101 ack 1
         b < P. 1:101 ack 1 <no fl>",
    );
}

#[test]
fn made_segments_carry_a_mark_while_the_pair_is_up() {
    let mut t = with_peer();
    t.play(
        "a > P. 1:101 ack 1
         b < P. 1:101 ack 1 <fl>
         b > P. 1:101 ack 101 <fl>
         a < P. 1:101 <no fl>
         +40
         # What host a has acknowledged, and the gateway's window.
         b < . 101 ack 101 <fl 1 63>
         a > . 101 ack 101
         b > P. 101:201 ack 101 <fl>
         a < P. 101:201 <no fl>
         +40
         b < . 101 ack 201 <fl 101 63>",
    );
}

#[test]
fn a_mark_makes_room_for_itself() {
    let mut t = with_peer();
    t.play("a > P. 1:2921 ack 1 {gso 1460}\n a < . 1 ack 2921\n b < P. 1:2921 <fl> {gso 1456}");
}

#[test]
fn a_gateway_that_falls_silent_is_not_relied_on_any_more_but_still_told() {
    let mut t = with_peer();
    t.play("b > . 1 ack 1 <fl>\n drop");
    let mut at = 1;
    for _ in 0..33 {
        t.play(&format!("a > P. {at}:{} ack 1\n drop\n b > . 1 ack {}\n drop", at + 10, at + 10));
        at += 10;
    }
    t.play(&format!("~50\n drop\n a > P. {at}:{} ack 1\n b < P. {at}:{} ack 1 <fl>", at + 10, at + 10));
    // Without marks it would take our acknowledgements for the host's own if it were still there.
    t.assert(t.status().flows_with_peer == 0, "not relied on");
}

#[test]
fn what_was_offered_but_never_heard_is_not_relied_on() {
    let mut t = with_peer();
    t.assert(t.status().flows_with_peer == 0, "the SYN-ACK may have come another way");
    t.play("b > . 1 ack 1 <fl>\n drop");
    t.assert(t.status().flows_with_peer == 1, "heard");
    t.play("a > R. 1 ack 1\n ~10\n drop");
    t.assert(t.status().flows_with_peer == 0, "it has ended");
}

#[test]
fn custody_beyond_the_next_gateway_counts_until_the_far_host_has_acknowledged_it() {
    let mut t = with_peer();
    t.play("b > . 1 ack 1 <fl 1 1024>\n drop");
    // The peer acknowledges all at once; the host behind it reads nothing.
    let mut at = 1;
    let mut edge = 65_536;
    for _ in 0..60 {
        let end = (at + 1400).min(edge);
        if end <= at {
            break;
        }
        t.play(&format!(
            "a > P. {at}:{end} ack 1\n drop b\n b > . 1 ack {end} <fl 1 1024>\n drop b\n ~50\n drop b"
        ));
        for s in t.take(Host::A) {
            edge = edge.max(s.ack + (u32::from(s.segment.window) << 7));
        }
        at = end;
    }
    assert!(edge <= 1 + 65_535 + 128, "the sum stays within the window shown: {edge}");
    // The far host reads: the window moves on.
    t.play(&format!("b > . 1 ack {at} <fl 40001 1024>\n ~50\n drop b"));
    let moved = t.take(Host::A).iter().any(|s| s.ack + (u32::from(s.segment.window) << 7) > edge);
    assert!(moved, "the far ACK opens it");
}

#[test]
fn what_a_far_host_is_said_to_have_of_bytes_that_were_never_sent_makes_no_room() {
    let mut t = with_peer();
    t.play("b > . 1 ack 1 <fl 1 1024>\n drop");
    // Said twice, with the exact sequence number: still nobody has sent it.
    t.play("b > . 1 ack 60001 <fl 60001 1024>\n drop\n b > . 1 ack 60001 <fl 60001 1024>\n drop");
    let mut edge = 65_536;
    let mut at = 1;
    while at < edge && at < 200_000 {
        let end = (at + 1400).min(edge);
        t.play(&format!(
            "a > P. {at}:{end} ack 1\n drop b\n b > . 1 ack {end} <fl 1 1024>\n drop b\n ~50\n drop b"
        ));
        for s in t.take(Host::A) {
            edge = edge.max(s.ack + (u32::from(s.segment.window) << 7));
        }
        at = end;
    }
    assert!(edge <= 1 + 65_535 + 128, "custody stays within the window shown: {edge}");
}

#[test]
fn a_larger_window_is_shown_once_the_far_host_has_acknowledged_an_earlier_exchange() {
    let mut t = Script::with(|s| {
        s.link = Some(link());
        s.config.limits.relay_bytes = 1 << 20;
    });
    t.play(HANDSHAKE);
    t.play(
        "a > P. 1:38 ack 1
         ~45
         drop
         b > . 1 ack 38 <fl 38 1024>
         drop
         # Bulk: nothing is in custody anywhere, so the window may grow before anything is.
         a > . 38:2958 ack 1 {gso 1460}
         a < . 1 ack 38 win 8192
         a < . 1 ack 2958",
    );
}

#[test]
fn a_far_ack_beyond_the_peers_own_is_nonsense() {
    let mut t = with_peer();
    t.play(
        "b > . 1 ack 1 <fl 1 1024>
         drop
         a > P. 1:101 ack 1
         b < P. 1:101
         b > . 1 ack 101 <fl 60000 1024>
         ~50
         drop
         quiet",
    );
    t.assert(t.status().custody_bytes == 0 && t.mode() == "split", "not believed, no harm");
}

#[test]
fn a_host_may_be_as_far_behind_as_its_gateway_holds() {
    let mut t = with_peer();
    t.play("b > . 1 ack 1 win 511 <fl 1 40>\n drop");
    for i in 0..40u32 {
        let (from, to) = (1 + i * 2_912, 1 + (i + 1) * 2_912);
        t.play(&format!("a > . {from}:{to} ack 1 {{gso 1456}}\n ~50\n drop"));
        t.play(&format!("b > . 1 ack {to} win 511 <fl 1 40>\n ~50\n drop"));
    }
    t.assert(t.status().custody_bytes == 0, "the gateway has it all");
    // The host itself has nothing yet, and speaks round its gateway.
    t.play("b > P. 1:11 ack 1\n ~10");
    assert!(t.take(Host::A).iter().any(|s| s.seq == 1 && s.payload.len() == 10), "taken");
}

#[test]
fn garbage_in_the_option_is_read_as_a_bare_mark() {
    let mut t = with_peer();
    t.play("b > P. 1:11 ack 1 <fl>\n a < P. 1:11\n b > P. 11:21 ack 1 <fl 4000000000 65535>\n a < P. 11:21");
    t.play("~50\n drop\n a > P. 1:101 ack 21\n b < P. 1:101");
}

#[test]
fn two_gateways_relay_both_ways_and_the_hosts_see_plain_tcp() {
    let mut t = Script::with(|s| {
        s.gateways = 2;
        s.link = Some(link());
        s.link_delay = Duration::from_millis(250);
    });
    t.play(&format!(
        "a > S 0 win 65535 {USUAL}
         +250
         b < S 0 <no flsyn,mss 1460,sackOK,ws 7>
         b > S. 0 ack 1 win 65535 {USUAL}
         +250
         a < S. 0 ack 1 <no flsynack,mss 1460,sackOK,ws 7>
         a > . 1 ack 1
         +250
         b < . 1 ack 1 <no fl>
         a > P. 1:101 ack 1
         +40
         # Early: half a second before it could come from b.
         a < . 1 ack 101 <no fl>
         +210
         b < P. 1:101 ack 1 <no fl>
         b > P. 1:301 ack 101
         +40
         b < . 101 ack 301 <no fl>
         +210
         a < P. 1:301 ack 101 <no fl>
         a > . 101 ack 301
         ~10s
         quiet"
    ));
    t.assert(t.status().counters.flows_split == 1 && t.status().custody_bytes == 0, "split and delivered");
}

#[test]
fn either_of_two_gateways_can_vanish_with_nothing_in_custody() {
    let mut t = Script::with(|s| {
        s.gateways = 2;
        s.link = Some(link());
    });
    t.open();
    t.play("a > P. 1:101 ack 1\n b < P. 1:101\n b > . 1 ack 101\n ~500\n drop");
    t.kill_and_restart();
    t.play(
        "quiet
         a > P. 101:201 ack 1
         b < P. 101:201 ack 1 <no fl>
         ~40
         drop a
         b > P. 1:51 ack 201
         a < P. 1:51 ack 201
         a > . 201 ack 51
         ~1000
         drop
         b > . 51 ack 201
         ~2000
         drop
         quiet",
    );
}

#[test]
fn a_gateway_that_falls_silent_with_its_host_behind_is_asked_no_longer_than_the_user_timeout() {
    let mut t = with_peer();
    t.play(
        "b > . 1 ack 1 <fl 1 1024>
         drop
         a > P. 1:101 ack 1
         b < P. 1:101
         b > . 1 ack 101 <fl 1 1024>
         ~600s",
    );
    t.assert(t.mode() == "split", "its bytes count as in custody");
    t.play("~600s\n drop");
    t.assert(t.mode() == "dormant", "they are its own");
    t.play("~3600s\n quiet");
}

#[test]
fn a_host_that_marks_its_segments_is_no_gateway() {
    // On an ordinary interface, whatever was said in the handshake.
    let mut t = Script::new();
    t.play(
        "a > S 0 win 65535 <mss 1460,sackOK,ws 7,flsyn>
         b < S 0 <no flsyn>
         b > S. 0 ack 1 win 65535 <mss 1460,sackOK,ws 7,flsynack>
         a < S. 0 ack 1 <no flsynack>
         a > . 1 ack 1 <fl>
         b < . 1 ack 1 <no fl>
         b > . 1 ack 1 <fl 1 1024>
         a > P. 1:101 ack 1 <fl 1 1024>
         b < P. 1:101 ack 1 <no fl>",
    );
    t.assert(t.status().flows_with_peer == 0, "neither is believed");
    // On a declared link where the handshake was not answered.
    let mut t = linked();
    t.play(
        "a > S 0 win 65535 <mss 1460,sackOK,ws 7>
         b < S 0 <flsyn>
         b > S. 0 ack 1 win 65535 <mss 1460,sackOK,ws 7>
         a < S. 0 ack 1
         a > . 1 ack 1
         b < . 1 ack 1
         b > . 1 ack 1 <fl 1 1024>
         drop",
    );
    t.assert(t.status().flows_with_peer == 0, "nobody was found there");
    // Nor where it answers a SYN that did not ask, as one with Fast Open.
    let mut t = linked();
    t.play(
        "a > S 0 win 65535 <mss 1460,fo>
         b < S 0 <no flsyn>
         b > S. 0 ack 1 win 65535 <mss 1460,flsynack>
         drop
         a > . 1 ack 1
         drop
         b > . 1 ack 1 <fl 1 1024>
         drop",
    );
    t.assert(t.status().flows_with_peer == 0, "nobody was asked");
    // And no mark counts that comes in by another interface than a declared link.
    let mut t = with_peer();
    t.play("b > . 1 ack 1 <fl 1 1024> {by a}\n drop");
    t.assert(t.status().flows_with_peer == 0, "not from there");
}

#[test]
fn the_option_of_strangers_goes_no_further() {
    // Before the handshake is complete, and where there is none.
    let mut t = linked();
    t.play(
        "a > P. 1:11 ack 1 <fl 1 1024>
         b < P. 1:11 ack 1 <no fl>
         a > S 0 win 65535 <mss 1460,sackOK,ws 7>
         b < S 0 <flsyn>
         a > P. 1:11 ack 1 <fl 1 1024>
         b < P. 1:11 ack 1 <no fl>
         b > P. 1:11 ack 1 <fl 1 1024>
         a < P. 1:11 ack 1 <no fl>",
    );
    // A connection that is not split: what the gateway before this one asks is not for the host.
    let mut t = Script::with(|s| {
        s.link_a = Some(link());
        s.config.limits.flows_max = 0;
    });
    t.play(
        "a > S 0 win 65535 <mss 1460,flsyn>
         b < S 0 <no flsyn>
         b > S. 0 ack 1 win 65535 <mss 1460,flsynack>
         a < S. 0 ack 1 <no flsynack>
         a > . 1 ack 1 <fl>
         b < . 1 ack 1 <no fl>",
    );
}

/// Two reports that look like a link of 8 Mbit/s, from host b, or the gateway before it, over this
/// script's link.
fn report(t: &mut Script, by: [u32; 2]) -> u64 {
    let mut at = 1;
    for i in 0..12 {
        let end = at + 1_400;
        t.play(&format!("a > P. {at}:{end} ack 1\n ~20\n drop"));
        let (by, us, bytes) = (by[i % 2], 1_000_000 + i as u32 * 28_000, 20_000 + i as u32 * 28_000);
        t.play(&format!("b > . 1 ack {end} <flcame {by} {us} {bytes}>\n ~20\n drop"));
        at = end;
    }
    t.with_gateway(|g, _, _| g.status()).links[0].estimated_bps
}

#[test]
fn a_links_rate_is_taken_only_from_the_gateway_that_was_found_there() {
    let opened = |handshake: Option<&str>| {
        let mut t = Script::with(|s| s.link = Some(Link { estimate_rate: true, ..link() }));
        match handshake {
            Some(handshake) => t.play(handshake),
            None => t.open(),
        }
        t
    };
    let told = report(&mut opened(Some(HANDSHAKE)), [7, 7]);
    assert!(told > 0, "this is how a gateway tells it");
    assert_eq!(report(&mut opened(None), [7, 7]), 0, "a host cannot");
    // Another number on the same leg is not another gateway, whose rate would add to the first
    // one's.
    let of_two = report(&mut opened(Some(HANDSHAKE)), [7, 8]);
    assert!(of_two <= told, "{of_two} of {told}");
}

#[test]
fn a_gateway_whose_host_takes_nothing_keeps_the_flow_awake_no_longer_than_the_user_timeout() {
    let mut t = with_peer();
    t.play(
        "b > . 1 ack 1 <fl 1 1024>
         drop
         a > P. 1:101 ack 1
         b < P. 1:101
         b > . 1 ack 101 <fl 1 1024>
         ~50
         drop",
    );
    // Bare marks now and then: all is said to be well, and the far host has acknowledged nothing.
    for _ in 0..3 {
        t.play("b > . 1 ack 101 <fl>\n ~300s\n drop");
    }
    t.play("~200s\n drop");
    t.assert(t.mode() == "dormant", "they are its own");
}

#[test]
fn a_soft_window_that_was_lost_starves_nobody() {
    let mut t = Script::with(|s| {
        s.link = Some(Link { rate_bps: Some(80_000), ..link() });
        s.config.soft_window = true;
    });
    for port in ["", "{port 5000}"] {
        t.play(&format!(
            "a > S 0 win 65535 <mss 1460,sackOK,ws 7> {port}
             drop
             b > S. 0 ack 1 win 65535 <mss 1460,sackOK,ws 7,flsynack> {port}
             drop
             a > . 1 ack 1 {port}
             ~100
             drop"
        ));
    }
    // What the gateway said last: it could pass nothing on. It has told of better times since, and
    // that was lost.
    t.play("b > . 1 ack 1 <flsoft 1 1024 0> {port 5000}\n ~10\n drop");
    // The other connection fills the link for six seconds.
    t.play("a > P. 1:60001 ack 1 {gso 1400}\n ~100\n drop");
    t.play("a > P. 1:1001 ack 1 {port 5000}\n ~900");
    let got = t.take(Host::B);
    let (old, new): (Vec<_>, Vec<_>) = got.iter().partition(|s| s.port != 5000);
    assert!(old.iter().any(|s| !s.payload.is_empty()), "the link is full");
    assert!(new.iter().any(|s| !s.payload.is_empty()), "its first bytes have their turn all the same");
}

#[test]
fn a_fin_waits_for_a_far_host_that_takes_what_stands_before_it() {
    let mut t = Script::with(|s| {
        s.link = Some(link());
        s.config.timers.user_timeout = Duration::from_secs(60);
    });
    t.play(HANDSHAKE);
    t.play(
        "a > F. 1:1001 ack 1\n b < F. 1:1001 ack 1\n ~40\n drop a\n b > . 1 ack 1001 <fl 1 63>\n ~40\n drop",
    );
    // The peer holds it all, and its host takes 50 bytes in 20 seconds.
    for taken in (51..=951).step_by(50) {
        t.play(&format!("~20s\n drop\n b > . 1 ack 1001 <fl {taken} 63>\n drop"));
    }
    t.assert(t.mode() == "split" && t.status().counters.flows_abandoned == 0, "the far host goes on");
    // Nothing else is heard over the link either: the user timeout twice.
    t.play("~130s");
    t.assert(t.status().counters.flows_abandoned == 1, "until it does not");
}

#[test]
fn a_small_window_counts_to_the_byte() {
    let mut t = with_peer();
    // 1,920 bytes, of which our option tells 1,024.
    t.play("b > . 1 ack 1 win 15 <fl 1 1>\n drop\n a > P. 1:1901 ack 1 {gso 950}\n ~5\n drop a");
    let sent: usize = t.take(Host::B).iter().map(|s| s.payload.len()).sum();
    assert_eq!(sent, 1_900);
    // What our option takes back counts.
    let mut t = with_peer();
    t.play("b > . 1 ack 1 win 30 <fl 1 1>\n drop\n a > P. 1:1901 ack 1 {gso 950}\n ~5\n drop a");
    let sent: usize = t.take(Host::B).iter().map(|s| s.payload.len()).sum();
    assert!(sent <= 1_024, "{sent}");
}
