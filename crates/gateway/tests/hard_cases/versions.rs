//! Gateways of other versions, by the exact bytes of their options: an older one, as it was
//! captured, and a newer one, as it might be.
//!
//! `flraw 53 2400...` is the option with ExID 0xFA53 and this body. Host a's first byte has the
//! sequence number ffffff01, host b's 7ffffe81.

use crate::script::{Host, Script};
use farlink_gateway::config::{Action, Link, Notice};
use farlink_gateway::engine_status::GatewayStatus;

/// What this gateway says of itself: its identity, version 2, five capabilities, no key.
const OURS: &str = "68 9e3779b9 02 00df 00";
/// A newer one says more: version 9, capabilities and bytes that nobody knows here, and a frame
/// before it.
const NEWER: &str = "a2 abcd 6a 0000002a 09 fff7 00 1234";
/// Another one cannot do anything that not every gateway can.
const PLAIN: &str = "68 0000002b 02 0000 00";

fn link() -> Link {
    Link { name: "sat".into(), ..Link::default() }
}

/// The script plays a gateway beyond the link towards b, which answers with these bytes.
fn beyond(link: Link, answer: &str) -> Script {
    let mut t = Script::with(|s| s.link = Some(link));
    t.play(&format!(
        "a > S 0 win 65535 <mss 1460,sackOK,ws 7>
         b < S 0 <flraw 51 {OURS},mss 1460,sackOK,ws 7>
         b > S. 0 ack 1 win 65535 <mss 1460,sackOK,ws 7,flraw 52 {answer}>
         a < S. 0 ack 1 <no flsynack,mss 1460,sackOK,ws 7>
         a > . 1 ack 1
         b < . 1 ack 1"
    ));
    t
}

/// The script plays a gateway before this one, on the link towards a, which asks with these bytes
/// and is answered with those.
fn before(asks: &str, answer: &str) -> Script {
    let mut t = Script::with(|s| s.link_a = Some(link()));
    t.play(&format!(
        "a > S 0 win 65535 <mss 1460,sackOK,ws 7,flraw 51 {asks}>
         b < S 0 <no flsyn,mss 1460,sackOK,ws 7>
         b > S. 0 ack 1 win 65535 <mss 1460,sackOK,ws 7>
         a < S. 0 ack 1 <flraw 52 {answer},mss 1460,sackOK,ws 7>
         a > . 1 ack 1
         b < . 1 ack 1 <no fl>"
    ));
    t
}

fn gateways(t: &mut Script) -> Vec<GatewayStatus> {
    t.with_gateway(|g, _, _| g.status()).links[0].gateways.clone()
}

fn names(t: &mut Script) -> Vec<(String, u8, usize)> {
    gateways(t).into_iter().map(|g| (g.identity, g.version, g.capabilities.len())).collect()
}

fn named(identity: &str, version: u8, capabilities: usize) -> Vec<(String, u8, usize)> {
    vec![(identity.to_owned(), version, capabilities)]
}

#[test]
fn an_older_gateway_beyond_the_link_is_spoken_to_as_it_speaks() {
    let mut t = beyond(link(), "");
    t.play(
        "a > P. 1:101 ack 1
         b < P. 1:101 ack 1 <flraw 53 13 7ffffe81 003f>
         # The far host has acknowledged nothing yet, and the window is 256 KiB.
         b > . 1 ack 101 <flraw 53 13 ffffff01 0100>
         b > P. 1:101 ack 101 <flraw 53>
         a < P. 1:101 <no fl>
         +40
         # 252 bytes had come in over the link, the newest of them 1,000 seconds after the clock began.
         b < . 101 ack 101 <flraw 53 17 7ffffe81 003f 79b9 3b9aca00 000000fc>
         # It holds something above a gap: two runs of a segment, in their old form.
         a > . 101:7381 ack 101 {gso 1460}
         drop
         b > . 101 ack 101 <flraw 53 12 0100 05b0 0a02 0402>
         ~60",
    );
    let again: Vec<_> = t.take(Host::B).iter().map(|s| (s.seq, s.payload.len())).collect();
    assert!(again.iter().any(|(seq, _)| *seq == 101), "what is missing: {again:?}");
    assert!(again.iter().all(|(seq, _)| *seq != 101 + 4 * 1_456), "not what is there: {again:?}");
    assert_eq!(names(&mut t), named("00000000", 1, 3));
    // Runs towards it have their old form, too.
    t.play("drop\n b > . 1101:2101 ack 7381 <flraw 53>\n ~10");
    let told = t.take(Host::B);
    let body =
        told.iter().filter_map(|s| s.segment.options.farlink.as_ref()).map(|o| o.body.as_slice()).next_back();
    assert_eq!(body.unwrap()[0] & 0xf0, 0x10, "{told:?}");
    assert!(body.unwrap().ends_with(&[0x03, 0xe8, 4, 2]), "{told:?}");
}

/// Twelve reports that look like a link of 8 Mbit/s, each after these bytes. The rate that is taken
/// from them.
fn reported(t: &mut Script, head: &str) -> u64 {
    let mut at = 1;
    for i in 0..12u32 {
        let end = at + 1_400;
        t.play(&format!("a > P. {at}:{end} ack 1\n ~20\n drop"));
        let (us, bytes) = (1_000_000 + i * 28_000, 20_000 + i * 28_000);
        t.play(&format!("b > . 1 ack {end} <flraw 53 {head} {us:08x} {bytes:08x}>\n ~20\n drop"));
        at = end;
    }
    t.with_gateway(|g, _, _| g.status()).links[0].estimated_bps
}

#[test]
fn gateways_of_either_version_tell_the_rate_of_the_link_and_are_told() {
    let unknown = || Link { estimate_rate: true, ..link() };
    // In the first version 16 bits of our identity stand behind the window; in frames the head of
    // the report stands in its place.
    for (answer, head, name, (at, ours)) in [
        ("", "14 afc9", named("0001afc9", 1, 3), (7, &[0x79, 0xb9][..])),
        (NEWER, "48", named("0000002a", 9, 7), (8, &[0x48])),
    ] {
        let mut t = beyond(unknown(), answer);
        assert!(reported(&mut t, head) > 0, "{head}");
        assert_eq!(names(&mut t), name);
        t.play("~1s\n drop\n b > P. 1:101 ack 16801 <flraw 53>\n ~100");
        let told = t.take(Host::B);
        let body =
            told.iter().filter_map(|s| s.segment.options.farlink.as_ref()).find(|o| !o.body.is_empty());
        let body = body.unwrap().body.as_slice();
        assert_eq!((body.len(), &body[at..at + ours.len()]), (17, ours), "{told:?}");
    }
    // A host tells nothing, in either version.
    for head in ["14 afc9", "48"] {
        let mut t = Script::with(|s| s.link = Some(unknown()));
        t.open();
        assert_eq!(reported(&mut t, head), 0, "{head}");
    }
}

#[test]
fn an_older_gateway_before_this_one_gets_the_answer_that_it_knows() {
    let mut t = before("", "");
    t.play(
        "b > P. 1:101 ack 1
         a < P. 1:101 ack 1 <flraw 53 13 ffffff01 003f>
         a > P. 1:101 ack 101 <flraw 53 13 7ffffee5 003f>
         b < P. 1:101 <no fl>
         # The report, and our 16 bits in it.
         +40
         a < . 101 ack 101",
    );
    assert_eq!(names(&mut t), named("00000000", 1, 3));
}

#[test]
fn a_newer_gateway_beyond_the_link_is_understood_as_far_as_this_one_goes() {
    let mut t = beyond(link(), NEWER);
    t.play(
        "a > P. 1:101 ack 1
         b < P. 1:101 ack 1 <flraw 53 c4 00000000 32 003f>
         # A frame that nobody knows, a tag that nobody can check, then what is known, and more of it than is known.
         b > . 1 ack 101 <flraw 53 a1 ff 7d 0000000001 1122334455667788 34 0100 0080>
         b > P. 1:101 ack 101 <flraw 53>
         a < P. 1:101 <no fl>
         ~60
         drop
         a > . 101:7381 ack 101 {gso 1460}
         drop
         # Runs, then a frame that is cut short.
         b > . 101 ack 101 <flraw 53 26 ffffff65 9999 57 05b0 0a02 0402 00 8e 01>
         ~60",
    );
    let again: Vec<_> = t.take(Host::B).iter().map(|s| (s.seq, s.payload.len())).collect();
    assert!(again.iter().any(|(seq, _)| *seq == 101), "what is missing: {again:?}");
    assert!(again.iter().all(|(seq, _)| *seq != 101 + 4 * 1_456), "not what is there: {again:?}");
    assert_eq!(names(&mut t), named("0000002a", 9, 7), "of its capabilities those that both have");
    // Runs towards it.
    t.play("drop\n b > . 1101:2101 ack 7381 <flraw 53>\n ~10");
    let told = t.take(Host::B);
    let body =
        told.iter().filter_map(|s| s.segment.options.farlink.as_ref()).map(|o| o.body.as_slice()).next_back();
    assert!(body.unwrap().ends_with(&[0x54, 0x03, 0xe8, 4, 2]), "{told:?}");
}

#[test]
fn a_newer_gateway_before_this_one_is_told_what_this_one_can() {
    let mut t = before(NEWER, OURS);
    t.play(
        "b > P. 1:101 ack 1
         a < P. 1:101 ack 1 <flraw 53 c4 00000000 32 003f>
         a > P. 1:101 ack 101 <flraw 53 00 24 7ffffee5 32 003f>
         b < P. 1:101 <no fl>",
    );
    assert_eq!(names(&mut t), named("0000002a", 9, 7));
    t.assert(t.status().flows_with_peer == 1, "heard");
}

#[test]
fn what_only_one_of_two_gateways_can_falls_away() {
    let soft = |s: &mut crate::script::Setup| s.config.soft_window = true;
    let mut t = Script::with(|s| {
        s.link = Some(Link { estimate_rate: true, ..link() });
        soft(s);
    });
    t.play(&format!(
        "a > S 0 win 65535 <mss 1460,sackOK,ws 7>
         drop
         b > S. 0 ack 1 win 65535 <mss 1460,sackOK,ws 7,flraw 52 {PLAIN}>
         drop
         a > . 1 ack 1
         drop
         b > . 1 ack 1 <flraw 53 24 ffffff01 32 0400>
         drop
         # Gaps are told as to a host, and no report goes with them.
         b > . 1001:2001 ack 1 <flraw 53>
         b < . 1 ack 1 <sack 1001:2001,fl>
         ~1s
         b > P. 1:1001 ack 1 <flraw 53>
         drop a
         ~40"
    ));
    let told = t.take(Host::B);
    let bodies: Vec<_> =
        told.iter().filter_map(|s| s.segment.options.farlink.as_ref()).map(|o| o.body.as_slice()).collect();
    assert!(bodies.iter().any(|b| b.first() == Some(&0x24)), "{told:?}");
    assert!(bodies.iter().all(|b| b.len() <= 8), "far acknowledgement and window are all: {told:?}");
    assert_eq!(names(&mut t), named("0000002b", 2, 0));
}

#[test]
fn in_custody_mode_a_mark_beside_timestamps_takes_bytes_only_for_who_cannot_do_without() {
    let custody = Action::Custody(Notice::Silence);
    let held = OURS.replace("00df", "01df");
    for (action, ours, answer, payload_bytes) in [
        (custody, held.as_str(), OURS.replace("9e3779b9", "0000002a"), 1_448),
        (custody, held.as_str(), PLAIN.to_owned(), 1_444),
        (Action::Split, OURS, OURS.replace("9e3779b9", "0000002a"), 1_444),
    ] {
        let end = 1 + 5 * payload_bytes;
        let mut t = Script::with(|s| {
            s.config.default_action = action;
            s.link = Some(link());
        });
        t.play(&format!(
            "a > S 0 win 65535 <mss 1460,sackOK,ts 1 0,ws 7>
             b < S 0 <flraw 51 {ours},ts 1 0>
             b > S. 0 ack 1 win 65535 <mss 1460,sackOK,ts 1 1,ws 7,flraw 52 {answer}>
             a < S. 0 ack 1 <no flsynack,ts 1 1>
             a > . 1 ack 1 <ts 2 1>
             drop
             # What it tells stands in an option of its own, a mark in the padding.
             b > . 1 ack 1 <ts 2 2,flraw 53 24 ffffff01 32 0400>
             b > P. 1:101 ack 1 <marked_ts 2 2>
             a < P. 1:101 <ts 2,no fl>
             drop
             a > . 1:7241 ack 101 <ts 3 2> {{gso 1448}}
             b < . 1:{end} ack 101 <ts 3 2,flraw 53> {{gso {payload_bytes}}}"
        ));
        t.assert(t.status().flows_with_peer == 1, "heard");
    }
}

#[test]
fn a_mark_in_the_padding_of_strangers_is_taken_out() {
    // Nobody has asked, and nobody was answered.
    let mut t = Script::with(|s| s.link = Some(link()));
    t.play(
        "a > S 0 win 65535 <mss 1460,sackOK,ts 1 0,ws 7,unk 70>
         drop
         b > S. 0 ack 1 win 65535 <mss 1460,sackOK,ts 1 1,ws 7>
         drop
         a > . 1 ack 1 <marked_ts 2 1>
         b < . 1 ack 1 <ts 2 1,no fl>
         a > P. 1:101 ack 1 <marked_ts 2 1>
         b < P. 1:101 ack 1 <ts 2 1,no fl>
         b > P. 1:101 ack 101 <marked_ts 2 2>
         a < P. 1:101 ack 101 <ts 2 2,no fl>",
    );
    t.assert(t.status().flows_with_peer == 0, "nobody is heard");
}

#[test]
fn without_room_for_more_the_handshake_has_a_bare_option_and_both_speak_the_oldest_version() {
    // 28 bytes of the host's own options.
    let full = "mss 1460,sackOK,ts 1 0,ws 7,unk 70,unk 71";
    let mut t = Script::with(|s| s.link = Some(link()));
    t.play(&format!(
        "a > S 0 win 65535 <{full}>
         b < S 0 <flraw 51>
         b > S. 0 ack 1 win 65535 <mss 1460,sackOK,ts 1 1,ws 7,flraw 52>
         drop
         a > . 1 ack 1 <ts 2 1>
         drop
         a > P. 1:101 ack 1 <ts 2 1>
         b < P. 1:101 ack 1 <flraw 53 13 7ffffe81 003f>"
    ));
    // The answer has no room: who asked takes this gateway for an older one, and both are read
    // here.
    let mut t = Script::with(|s| s.link_a = Some(link()));
    t.play(&format!(
        "a > S 0 win 65535 <mss 1460,sackOK,ts 1 0,ws 7,flraw 51 {OURS}>
         drop
         b > S. 0 ack 1 win 65535 <{full}>
         a < S. 0 ack 1 <flraw 52>
         a > . 1 ack 1 <ts 2 1>
         drop
         b > P. 1:101 ack 1 <ts 2 1>
         a < P. 1:101 ack 1 <flraw 53 c4 00000000 32 003f>
         a > P. 1:101 ack 101 <ts 3 2,flraw 53 13 7ffffee5 003f>
         b < P. 1:101"
    ));
    t.assert(t.status().flows_with_peer == 1, "heard");
}

/// Everything that a gateway could say, in both versions.
const SAYINGS: [&str; 10] = [
    "",
    "13 ffffff65 ffff",
    "1f ffffff65 ffff 0001 002a 000f4240 00004e20",
    "14 002a 000f4240 00004e20",
    "10 059c 0402",
    "24 ffffff65 34 ffff 0001",
    "24 ffffff65 32 ffff 48 000f4240 00004e20",
    "54 059c 0402",
    "68 0000002a 02 001f 00",
    "7d 0000000001 1122334455667788 32 ffff",
];

/// Host b says all that a gateway could. What is learned of it: flows with a gateway, gateways on
/// the link, its rate, whether a window counts that the header does not show, and who sees an
/// option.
fn all_said(t: &mut Script) -> (u64, usize, bool, bool, Vec<Host>) {
    let mut at = 1;
    let mut told = Vec::new();
    for saying in SAYINGS {
        let end = at + 1_400;
        for says in [
            format!("a > P. {at}:{end} ack 1"),
            format!("b > . 1 ack {at} win 512 <flraw 53 {saying}>"),
            format!("b > . 1 ack {end} win 512 <flraw 53 {saying}>"),
        ] {
            t.play(&format!("{says}\n ~20"));
            for host in [Host::A, Host::B] {
                let seen = t.take(host);
                told.extend(seen.iter().filter(|s| s.segment.options.farlink.is_some()).map(|_| host));
            }
        }
        at = end;
    }
    told.dedup();
    let status = t.with_gateway(|g, _, _| g.status());
    let window_bytes = t.with_gateway(|g, now, _| g.flows(now, 1))[0].window_b_bytes;
    let (gateways, rate) =
        status.links.iter().fold((0, 0), |(n, bps), l| (n + l.gateways.len(), bps + l.estimated_bps));
    (status.engine.flows_with_peer, gateways, rate > 0, window_bytes != 512 << 7, told)
}

const NOTHING: (u64, usize, bool, bool, Vec<Host>) = (0, 0, false, false, Vec::new());

#[test]
fn nothing_is_learned_from_what_hosts_forge() {
    let syn = "a > S 0 win 65535 <mss 1460,sackOK,ws 7,";
    let linked = || Script::with(|s| s.link = Some(Link { estimate_rate: true, ..link() }));
    // A gateway is believed.
    let mut t = linked();
    t.play(&format!(
        "{syn}unk 70> \n drop\n b > S. 0 ack 1 win 65535 <mss 1460,sackOK,ws 7,flraw 52 {OURS}>"
    ));
    t.play("drop\n a > . 1 ack 1\n drop");
    assert_eq!(all_said(&mut t), (1, 1, false, true, vec![Host::B]));
    // On an ordinary interface, whatever the handshake said.
    let mut t = Script::with(|s| s.link_a = Some(link()));
    t.play(&format!(
        "{syn}unk 70> \n drop\n b > S. 0 ack 1 win 65535 <mss 1460,sackOK,ws 7,flraw 52 {OURS}>"
    ));
    t.play("drop\n a > . 1 ack 1\n drop");
    assert_eq!(all_said(&mut t), NOTHING);
    // On a link, where the answer did not say so, or with the wrong form, who was asked is asked
    // once more by what follows: it could have said it at once.
    for answer in ["unk 71".to_owned(), format!("flraw 51 {OURS}"), format!("flraw 53 {OURS}")] {
        let mut t = linked();
        t.play(&format!("{syn}unk 70> \n drop\n b > S. 0 ack 1 win 65535 <mss 1460,sackOK,ws 7,{answer}>"));
        t.play("drop\n a > . 1 ack 1\n drop");
        assert_eq!(all_said(&mut t), (1, 1, false, true, vec![Host::B]));
    }
    // On a link, where nobody was asked.
    let mut t = linked();
    t.play("a > S 0 win 65535 <mss 1460,sackOK,ws 7,fo>\n drop");
    t.play(&format!(
        "b > S. 0 ack 1 win 65535 <mss 1460,sackOK,ws 7,flraw 52 {OURS}>\n drop\n a > . 1 ack 1\n drop"
    ));
    assert_eq!(all_said(&mut t), NOTHING);
}

#[test]
fn nothing_is_learned_from_a_hello_by_an_ordinary_way() {
    // The host that asks is on an ordinary interface; so is the one that speaks later.
    let mut t = Script::with(|s| s.link = Some(link()));
    t.play(&format!(
        "a > S 0 win 65535 <mss 1460,sackOK,ws 7,flraw 51 {NEWER}>
         b < S 0 <flraw 51 {OURS}>
         b > S. 0 ack 1 win 65535 <mss 1460,sackOK,ws 7,flraw 52 {NEWER}>
         a < S. 0 ack 1 <no flsynack>
         a > . 1 ack 1 <flraw 53 {NEWER}>
         b < . 1 ack 1 <no fl>
         a > P. 1:101 ack 1 <flraw 53 24 7ffffe81 32 ffff>
         b < P. 1:101 ack 1 <fl>
         # By another interface than the link.
         b > . 1 ack 1 <flraw 53 24 ffffff01 32 ffff> {{by a}}
         drop"
    ));
    t.assert(t.status().flows_with_peer == 0, "nobody has been heard");
    assert!(gateways(&mut t).is_empty());
}

#[test]
fn a_hello_from_anybodys_network_on_ports_that_are_known_is_no_gateways() {
    let mut t = Script::with(|s| s.link = Some(link()));
    t.open();
    t.play(&format!(
        "~11s
         drop
         a > S 5000000 win 65535 <mss 1460,sackOK,ws 7,flraw 51 {OURS}>
         drop
         b > S. 0 ack 5000001 win 65535 <mss 1460,sackOK,ws 7>
         a < S. 0 ack 5000001 <no flsynack,mss 1460,sackOK,ws 7>"
    ));
}
