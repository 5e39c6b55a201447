//! Boxes on the way that drop a handshake for the option in it, or take the option out.

use crate::script::{Host, Script, USUAL};
use farlink_gateway::config::Link;
use farlink_wire::Duration;

fn link() -> Link {
    Link { name: "sat".into(), rtt: Some(Duration::from_millis(500)), ..Link::default() }
}

/// One gateway; the link towards b is declared.
fn linked() -> Script {
    Script::with(|s| s.link = Some(link()))
}

/// The gateway beyond the link, whose client is a's.
fn beyond() -> Script {
    Script::with(|s| s.link_a = Some(link()))
}

const OURS: &str = "68000000070200070000";
const ASKED: &str = "mss 1460,sackOK,ws 7,flsyn";

/// The same, and its answer with the option does not arrive.
fn answered_in_vain() -> Script {
    let mut t = beyond();
    t.play(&format!(
        "a > S 0 win 65535 <{ASKED}>
         b < S 0 <no flsyn>
         b > S. 0 ack 1 win 65535 {USUAL}
         a < S. 0 ack 1 <flsynack>
         ~1000"
    ));
    t
}

/// A connection whose SYN is dropped for the option: its repetition is answered.
fn dropped_once(t: &mut Script, port: u32) {
    t.play(&format!(
        "a > S 0 win 65535 {USUAL} {{port {port}}}
         b < S 0 <flsyn> {{port {port}}}
         ~1000
         a > S 0 win 65535 {USUAL} {{port {port}}}
         b < S 0 <flsyn> {{port {port}}}
         b < S 0 <no flsyn> {{port {port}}}
         ~600
         b > S. 0 ack 1 win 65535 {USUAL} {{port {port}}}
         a < S. 0 ack 1 {{port {port}}}
         a > . 1 ack 1 {{port {port}}}
         b < . 1 ack 1 {{port {port}}}"
    ));
}

/// A handshake whose SYN goes as it came.
fn plain(port: u32, answer: &str) -> String {
    format!(
        "a > S 0 win 65535 {USUAL} {{port {port}}}
         b < S 0 <no flsyn> {{port {port}}}
         quiet
         ~600
         b > S. 0 ack 1 win 65535 <mss 1460,sackOK,ws 7{answer}> {{port {port}}}
         a < S. 0 ack 1 <no flsynack> {{port {port}}}
         a > . 1 ack 1 {{port {port}}}
         b < . 1 ack 1 {{port {port}}}\n"
    )
}

/// The same whose SYN goes twice: with the option, and right behind it as it came.
fn tried(port: u32, answer: &str) -> String {
    let twice = format!("b < S 0 <flsyn> {{port {port}}}\n b < S 0 <no flsyn>");
    plain(port, answer).replace("b < S 0 <no flsyn>", &twice)
}

#[test]
fn syns_that_are_dropped_for_the_option_cost_a_timeout_once() {
    let mut t = linked();
    dropped_once(&mut t, 41_000);
    // It may have been lost. Nobody waits to find that out.
    t.play(&tried(41_001, ""));
    for port in 41_002..41_010 {
        t.play(&plain(port, ""));
    }
    // A minute later, and two minutes after that.
    t.play("~55s\n drop");
    t.play(&tried(41_010, ""));
    t.play(&plain(41_011, ""));
    t.play("~62s\n drop");
    t.play(&plain(41_012, ""));
    t.play("~62s\n drop");
    t.play(&tried(41_013, ""));
    t.assert(t.status().flows_with_peer == 0, "there is no gateway");
}

/// The first was lost by chance: its repetition finds the gateway, for it asks as well.
#[test]
fn a_syn_that_gets_lost_costs_no_gateway() {
    let mut t = linked();
    t.play(&format!(
        "a > S 0 win 65535 {USUAL}
         b < S 0 <flsyn>
         ~1000
         a > S 0 win 65535 {USUAL}
         b < S 0 <flsyn>
         b < S 0 <no flsyn>
         ~600
         b > S. 0 ack 1 win 65535 <mss 1460,sackOK,ws 7,flsynack>
         a < S. 0 ack 1 <no flsynack>
         b > S. 0 ack 1 win 65535 <mss 1460,sackOK,ws 7,flsynack>
         a < S. 0 ack 1 <no flsynack>
         a > . 1 ack 1
         b < . 1 ack 1
         b > . 1 ack 1 <fl 1 1024>
         drop
         a > S 0 win 65535 {USUAL} {{port 41001}}
         b < S 0 <flsyn> {{port 41001}}
         quiet"
    ));
    t.assert(t.status().flows_with_peer == 1, "they have found each other");
}

/// The answer may still be on its way, and a slow link would notice the copy.
#[test]
fn a_syn_that_is_repeated_too_early_goes_as_it_came() {
    for (rate_bps, rtt_ms, both) in [
        (None, None, false),
        (Some(9_600), None, false),
        (Some(8_000_000), Some(1_500), false),
        (Some(8_000_000), None, true),
        (Some(9_600), Some(500), true),
    ] {
        let rtt = rtt_ms.map(Duration::from_millis);
        let mut t = Script::with(|s| s.link = Some(Link { rate_bps, rtt, ..link() }));
        let syn = format!("a > S 0 win 65535 {USUAL}\n ~400\n");
        t.play(&format!("{syn} drop\n ~600\n {syn}"));
        let has: Vec<_> = t.take(Host::B).iter().map(|s| s.segment.options.has_ours()).collect();
        assert_eq!(has, if both { vec![true, false] } else { vec![false] }, "{rate_bps:?} {rtt:?}");
    }
}

/// Twenty SYNs take 1.3 s into a slow link: the last ones have not left yet when their hosts repeat
/// them.
#[test]
fn what_is_repeated_before_it_has_left_goes_as_it_came() {
    let mut t = Script::with(|s| {
        s.link = Some(Link { rate_bps: Some(9_600), rtt: Some(Duration::from_millis(40)), ..link() });
    });
    let mut seen = Vec::new();
    let mut play = |text: &str| {
        t.play(text);
        seen.extend(t.take(Host::B));
    };
    for wait in ["~1000", "~5000"] {
        (41_000..41_020).for_each(|port| play(&format!("a > S 0 win 65535 {USUAL} {{port {port}}}")));
        play(wait);
    }
    let went = |port| {
        let of_port = seen.iter().filter(|s| s.segment.src_port == port);
        of_port.map(|s| s.segment.options.has_ours()).collect::<Vec<_>>()
    };
    assert_eq!((went(41_000), went(41_019)), (vec![true, true, false], vec![true, false]));
}

/// And a third goes as it came, on a link that loses, too: chance does not take so many.
#[test]
fn a_third_syn_asks_for_no_gateway() {
    let mut t = linked();
    t.play(&format!(
        "a > S 0 win 65535 {USUAL}
         drop
         ~1000
         a > S 0 win 65535 {USUAL}
         drop
         ~2000
         a > S 0 win 65535 {USUAL}
         b < S 0 <no flsyn>
         quiet"
    ));
}

/// A host alone answers both of the pair where both have arrived: the first was lost by chance.
#[test]
fn a_host_that_answers_both_syns_has_got_the_one_with_the_option() {
    let mut t = linked();
    dropped_once(&mut t, 41_000);
    t.play(&format!(
        "a > S 0 win 65535 {USUAL} {{port 41001}}
         b < S 0 <flsyn> {{port 41001}}
         b < S 0 <no flsyn> {{port 41001}}
         ~600
         b > S. 0 ack 1 win 65535 {USUAL} {{port 41001}}
         a < S. 0 ack 1 {{port 41001}}
         a > . 1 ack 1 {{port 41001}}
         b < . 1 ack 1 {{port 41001}}
         b > S. 0 ack 1 win 65535 {USUAL} {{port 41001}}
         ~100
         drop
         a > S 0 win 65535 {USUAL} {{port 41002}}
         b < S 0 <flsyn> {{port 41002}}
         quiet
         ~9s
         drop"
    ));
    let link = t.with_gateway(|g, now, _| g.status_at(now)).links.remove(0);
    assert!(link.boxes.is_empty(), "nobody is told of a box that is not there: {:?}", link.boxes);
}

#[test]
fn a_syn_that_gets_through_again_ends_it() {
    let mut t = linked();
    dropped_once(&mut t, 41_000);
    t.play(&tried(41_001, ",flsynack"));
    // It had been lost: the next one asks as ever.
    t.play(&plain(41_002, ",flsynack").replace("no flsyn>", "flsyn>"));
    t.play("b > . 1 ack 1 <fl 1 1024> {port 41002}\n drop");
    t.assert(t.status().flows_with_peer == 1, "and finds the gateway");
}

/// Stamps say which of the SYNs has been answered, where the way is longer than a host's patience.
#[test]
fn an_answer_that_is_late_is_not_that_of_the_repetition() {
    for (echo, next) in [("1000", "flsyn"), ("2000", "no flsyn")] {
        let mut t = linked();
        t.play(
            "a > S 0 win 65535 <mss 1460,sackOK,ts 1000 0>
             b < S 0 <flsyn>
             ~1000
             a > S 0 win 65535 <mss 1460,sackOK,ts 2000 0>
             b < S 0 <flsyn>
             b < S 0 <no flsyn>
             ~500",
        );
        t.play(&format!("b > S. 0 ack 1 win 65535 <mss 1460,sackOK,ts 7 {echo}>\n a < S. 0 ack 1"));
        t.play(&format!("a > S 0 win 65535 {USUAL} {{port 41001}}\n b < S 0 <flsyn> {{port 41001}}"));
        let then = if next == "flsyn" { "quiet" } else { "b < S 0 <no flsyn> {port 41001}" };
        t.play(then);
    }
}

#[test]
fn where_others_get_through_it_is_remembered_for_the_network_alone() {
    let mut t = linked();
    t.play(&plain(41_000, ",flsynack").replace("no flsyn>", "flsyn>"));
    t.play("~1s");
    dropped_once(&mut t, 41_001);
    t.play(&tried(41_002, ""));
    t.play("~3s\n drop\n a > P. 1:101 ack 1 {port 41002}\n ~10\n drop");
    let link = t.with_gateway(|g, now, _| g.status_at(now)).links.remove(0);
    assert_eq!((link.syn_option_dropped, link.syn_ack_option_dropped), (1, 0));
    assert!(link.boxes[0].contains("to 10."), "{:?}", link.boxes);
}

#[test]
fn a_gateway_behind_a_box_that_drops_syns_is_asked_by_what_follows() {
    let mut t = linked();
    dropped_once(&mut t, 41_000);
    let found = |t: &mut Script, port: u32| {
        t.play(&format!(
            "a > P. 1:1461 ack 1 {{port {port}}}
             b < . 1 ack 1 <fl> {{port {port}}}
             b < P. 1:1461 ack 1 <no fl> {{port {port}}}
             b > . 1 ack 1461 win 65535 <flraw 53 {OURS}> {{port {port}}}\n ~500\n drop"
        ));
    };
    found(&mut t, 41_000);
    t.assert(t.status().flows_with_peer == 1, "the gateway is heard");
    t.play(&tried(41_001, ""));
    found(&mut t, 41_001);
    t.play(&plain(41_002, ""));
    found(&mut t, 41_002);
    t.assert(t.status().flows_with_peer == 3, "each time");
}

#[test]
fn nobody_is_asked_for_ever_by_what_follows() {
    let mut t = linked();
    dropped_once(&mut t, 41_000);
    let says = |t: &mut Script, port: u32| {
        t.play(&format!("a > P. 1:101 ack 1 {{port {port}}}"));
        let has = t.take(Host::B).iter().any(|s| s.segment.options.has_ours());
        t.play(&format!("b > . 1 ack 101 {{port {port}}}\n ~500\n drop"));
        has
    };
    let mut said = u32::from(says(&mut t, 41_000));
    t.play(&tried(41_001, ""));
    for port in 41_002..41_040 {
        t.play(&plain(port, ""));
        said += u32::from(says(&mut t, port));
    }
    assert!((2..=8).contains(&said), "{said}");
}

/// N17: whoever has dropped the answer for the option lets the next one pass.
#[test]
fn a_syn_that_came_without_the_option_is_answered_without_it() {
    let mut t = answered_in_vain();
    t.play(&format!(
        "a > S 0 win 65535 {USUAL}
         b < S 0 <no flsyn>
         b > S. 0 ack 1 win 65535 {USUAL}
         a < S. 0 ack 1 <no flsynack>
         a > . 1 ack 1
         b < . 1 ack 1
         # It is there, and finds this one by the marks.
         b > P. 1:101 ack 1
         a < P. 1:101 <fl>"
    ));
}

/// It may have been lost by chance, or a box may have dropped it for the option: once more the
/// client gets it with the option, and right behind it as the server has made it.
#[test]
fn an_answer_that_the_server_repeats_goes_both_ways_and_then_as_it_came() {
    let mut t = answered_in_vain();
    t.play(&format!(
        "b > S. 0 ack 1 win 65535 {USUAL}
         a < S. 0 ack 1 <flsynack>
         a < S. 0 ack 1 <no flsynack>
         ~2000
         b > S. 0 ack 1 win 65535 {USUAL}
         a < S. 0 ack 1 <no flsynack>
         quiet
         a > . 1 ack 1
         b < . 1 ack 1"
    ));
}

/// The answers to one SYN after another, of which those with the option never arrive.
#[test]
fn answers_that_are_dropped_for_the_option_are_remembered() {
    let mut t = beyond();
    t.play(&format!(
        "a > S 0 win 65535 <{ASKED}>
         b < S 0
         b > S. 0 ack 1 win 65535 {USUAL}
         a < S. 0 ack 1 <flsynack>
         ~1000
         a > S 0 win 65535 {USUAL}
         b < S 0
         b > S. 0 ack 1 win 65535 {USUAL}
         a < S. 0 ack 1 <no flsynack>
         ~500
         a > . 1 ack 1
         b < . 1 ack 1"
    ));
    let asked = |port: u32, answers: &str| {
        format!(
            "a > S 0 win 65535 <{ASKED}> {{port {port}}}
             b < S 0 {{port {port}}}
             b > S. 0 ack 1 win 65535 {USUAL} {{port {port}}}
             {answers}
             quiet
             ~500
             a > . 1 ack 1 {{port {port}}}
             b < . 1 ack 1 {{port {port}}}"
        )
    };
    let twice = "a < S. 0 ack 1 <flsynack> {port 41001}\n a < S. 0 ack 1 <no flsynack> {port 41001}";
    t.play(&asked(41_001, twice));
    t.play(&asked(41_002, "a < S. 0 ack 1 <no flsynack> {port 41002}"));
    t.play(&asked(41_003, "a < S. 0 ack 1 <no flsynack> {port 41003}"));
    // The gateway before it is heard in a connection that was told: such answers arrive.
    t.play("a > P. 1:101 ack 1 <fl> {port 41001}\n ~200\n drop");
    t.play(&asked(41_004, "a < S. 0 ack 1 <flsynack> {port 41004}"));
}

/// A copy that has gone right behind it is no word of a host, and has done what it was for.
#[test]
fn a_copy_of_the_syn_takes_nothing_back() {
    let mut t = beyond();
    t.play(&format!(
        "a > S 0 win 65535 <{ASKED}>
         b < S 0 <no flsyn>
         a > S 0 win 65535 {USUAL}
         quiet
         b > S. 0 ack 1 win 65535 {USUAL}
         a < S. 0 ack 1 <flsynack>
         b > S. 0 ack 1 win 65535 {USUAL}
         a < S. 0 ack 1 <flsynack>
         a > . 1 ack 1
         b < . 1 ack 1
         a > P. 1:101 ack 1 <fl>
         b < P. 1:101 ack 1"
    ));
    t.assert(t.status().flows_with_peer == 1, "they have found each other");
}

/// And so has one behind the answer.
#[test]
fn a_copy_of_the_answer_goes_no_further() {
    let mut t = linked();
    let marked = format!("b > S. 0 ack 1 win 65535 {}", USUAL.replace(">", ",flsynack>"));
    t.play(&format!(
        "a > S 0 win 65535 {USUAL}
         b < S 0 <flsyn>
         {marked}
         a < S. 0 ack 1 <no flsynack>
         b > S. 0 ack 1 win 65535 {USUAL}
         quiet
         a > . 1 ack 1
         b < . 1 ack 1
         b > . 1 ack 1 <fl 1 1024>"
    ));
    t.assert(t.status().flows_with_peer == 1, "they have found each other");
}

/// What its host sends again goes on: it waits longer than a gateway.
#[test]
fn a_repetition_of_a_host_is_no_copy() {
    let mut t = beyond();
    t.play(&format!(
        "a > S 0 win 65535 <{ASKED}>
         b < S 0 <no flsyn>
         ~250
         a > S 0 win 65535 {USUAL}
         b < S 0 <no flsyn>
         b > S. 0 ack 1 win 65535 {USUAL}
         a < S. 0 ack 1
         ~1000
         b > S. 0 ack 1 win 65535 {USUAL}
         a < S. 0 ack 1"
    ));
}

/// The answer has arrived without the option that the gateway beyond has put there. That one marks
/// its segments, and so it is found.
#[test]
fn an_answer_that_was_stripped_is_made_good() {
    let mut t = linked();
    t.play(&format!(
        "a > S 0 win 65535 {USUAL}
         b < S 0 <flsyn>
         b > S. 0 ack 1 win 65535 {USUAL}
         a < S. 0 ack 1
         a > . 1 ack 1
         b < . 1 ack 1
         a > P. 1:101 ack 1
         b < P. 1:101 ack 1 <no fl>
         b > . 1 ack 101 win 65535 <fl>
         drop a
         a > P. 101:201 ack 1
         b < . 101 ack 1 <fl>
         b < P. 101:201 ack 1 <no fl>
         b > . 1 ack 201 win 65535 <flraw 53 {OURS}>
         drop a"
    ));
    t.assert(t.status().flows_with_peer == 1, "they have found each other");
    // And the one beyond answers who asks for it anew.
    let mut t = Script::with(|s| s.link_a = Some(Link { rtt: None, ..link() }));
    t.play(&format!(
        "a > S 0 win 65535 <mss 1460,sackOK,ws 7,flraw 51 {OURS}>
         b < S 0
         b > S. 0 ack 1 win 65535 {USUAL}
         a < S. 0 ack 1 <flsynack>
         a > . 1 ack 1
         b < . 1 ack 1
         a > P. 1:101 ack 1 <flraw 53 {OURS}>
         b < P. 1:101 ack 1
         +40"
    ));
    let told = t.take(Host::A);
    let body = |s: &crate::script::Seen| s.segment.options.farlink.as_ref().map(|o| o.body.first().copied());
    assert!(told.iter().any(|s| body(s) == Some(Some(0x68))), "it says who it is");
}

/// A box that lets handshakes with the option pass, and drops what follows them with it.
fn unmarked(port: u32) -> String {
    format!(
        "a > S 0 win 65535 {USUAL} {{port {port}}}
         b < S 0 <flsyn> {{port {port}}}
         ~600
         b > S. 0 ack 1 win 65535 <mss 1460,sackOK,ws 7,flsynack> {{port {port}}}
         a < S. 0 ack 1 {{port {port}}}
         a > . 1 ack 1 {{port {port}}}
         b < . 1 ack 1 {{port {port}}}
         a > P. 1:101 ack 1 {{port {port}}}
         b < P. 1:101 ack 1 <fl> {{port {port}}}"
    )
}

#[test]
fn a_connection_whose_marked_segments_are_dropped_goes_on_without_marks() {
    let mut t = linked();
    t.play(&unmarked(41_000));
    let says = |t: &mut Script| -> Vec<bool> {
        let seen = t.take(Host::B).into_iter().filter(|s| s.segment.payload_len > 0);
        seen.map(|s| s.segment.options.has_ours()).collect()
    };
    // Nobody answers. What goes again has no mark, and that arrives.
    t.play("~3s\n drop a");
    let repeated = says(&mut t);
    assert!(!repeated.is_empty() && repeated.iter().all(|marked| !marked), "{repeated:?}");
    t.play("b > . 1 ack 101 win 65535 {port 41000}\n ~100\n drop");
    t.play("a > P. 101:201 ack 1 {port 41000}\n ~10\n drop a");
    assert_eq!(says(&mut t), [true], "it may have been lost");
    t.play("~5s\n drop a");
    assert!(says(&mut t).iter().all(|marked| !marked));
    t.play("b > . 1 ack 201 win 65535 {port 41000}\n ~100\n drop");
    t.play("a > P. 201:301 ack 1 {port 41000}\n ~10\n");
    assert_eq!(says(&mut t), [false], "twice is no chance");
    t.play("b > P. 1:101 ack 301 win 65535 {port 41000}\n ~600\n drop a");
    assert!(t.take(Host::B).iter().all(|s| !s.segment.options.has_ours()), "nor are acknowledgements marked");
    t.play("a > . 301 ack 101 {port 41000}\n ~600");
    // The next connections do not ask, and what tries it again has nothing else to say.
    for port in 41_001..41_020 {
        t.play("drop");
        t.play(&plain(port, "").replace("         quiet\n", ""));
        t.play(&format!("a > P. 1:101 ack 1 {{port {port}}}\n ~100"));
        let seen = t.take(Host::B);
        assert!(seen.iter().all(|s| s.segment.payload_len == 0 || !s.segment.options.has_ours()));
        let asked = seen.iter().filter(|s| s.segment.options.has_ours()).count();
        assert_eq!(asked > 0, port == 41_001, "the next one tries it, and others do later");
        t.play(&format!("drop\n b > . 1 ack 101 win 65535 {{port {port}}}\n ~600"));
    }
    t.play("~3s\n drop");
    let link = t.with_gateway(|g, now, _| g.status_at(now)).links.remove(0);
    assert!(link.boxes[0].contains("drops segments"), "{:?}", link.boxes);
}

/// It had been lost: who is asked answers, and is found.
#[test]
fn a_gateway_that_answers_again_is_found_again() {
    let mut t = linked();
    t.play(&unmarked(41_000));
    for end in [101, 201] {
        t.play(&format!("~5s\n drop\n b > . 1 ack {end} win 65535 {{port 41000}}\n ~100\n drop"));
        t.play(&format!("a > P. {end}:{} ack 1 {{port 41000}}\n ~10\n drop", end + 100));
    }
    t.play("~600\n drop");
    t.play(&plain(41_001, "").replace("         quiet\n", ""));
    t.play(&format!(
        "a > P. 1:101 ack 1 {{port 41001}}
         b < . 1 ack 1 <fl> {{port 41001}}
         b < P. 1:101 ack 1 <no fl> {{port 41001}}
         b > . 1 ack 101 win 65535 <flraw 53 {OURS}> {{port 41001}}
         ~100
         drop"
    ));
    t.assert(t.status().flows_with_peer == 1, "they have found each other");
    t.play(&format!("a > S 0 win 65535 {USUAL} {{port 41002}}\n b < S 0 <flsyn> {{port 41002}}"));
}

/// Who receives only, and acknowledges in vain. What comes again before an acknowledgement can have
/// been heard is a copy.
#[test]
fn acknowledgements_that_are_dropped_for_the_option_go_without_it() {
    let mut t = linked();
    t.play(&format!(
        "a > S 0 win 65535 {USUAL}
         b < S 0 <flsyn>
         ~600
         b > S. 0 ack 1 win 65535 <mss 1460,sackOK,ws 7,flsynack>
         a < S. 0 ack 1
         a > . 1 ack 1
         ~1000
         drop
         b > S. 0 ack 1 win 65535 <mss 1460,sackOK,ws 7>
         b < . 1 ack 1 <no fl>
         b > P. 1:101 ack 1 win 65535
         ~400
         drop
         b > P. 1:101 ack 1 win 65535
         b < . 1 ack 101 <fl>
         ~300
         b > P. 1:101 ack 1 win 65535
         b < . 1 ack 101 <no fl>"
    ));
    t.play("b > P. 101:201 ack 1 win 65535\n ~500\n drop\n b > P. 201:301 ack 1 win 65535\n ~500");
    let seen = t.take(Host::B);
    assert!(!seen.is_empty() && seen.iter().all(|s| !s.segment.options.has_ours()), "no marks any more");
}
