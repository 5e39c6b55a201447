//! What gateways at the two ends of a link advertise of it to each other (frame type 9), to the
//! byte.
//!
//! The frame is `95` (three bytes of value: `93`), the sources (1 declared, 2 found, 3 told; of the
//! round trip four times that; 10 half duplex), the rate and the round trip.

use crate::script::{Host, Script};
use farlink_gateway::config::Link;
use farlink_wire::Duration;

/// It reads frames and tells no more of itself than it must.
const HIM: &str = "68 0000002b 02 0000 00";
/// Another one.
const HER: &str = "68 0000002c 02 0000 00";
/// 8 Mbit/s and 500 ms, both declared.
const OURS: &str = "95 05 67a1 47a1";
/// 32 kbit/s, declared: what it sends, so what the link brings.
const SLOW: &str = "93 01 27d0";

fn link() -> Link {
    Link {
        name: "sat".into(),
        rate_bps: Some(8_000_000),
        rtt: Some(Duration::from_millis(500)),
        ..Link::default()
    }
}

/// A connection over the link to the gateway that answers so.
fn open(t: &mut Script, port: u16, answer: &str) {
    let syn = "win 65535 <mss 1460,sackOK,ws 7";
    t.play(&format!(
        "a > S 0 {syn}> {{port {port}}}\n ~500\n drop
         b > S. 0 ack 1 {syn},flraw 52 {answer}> {{port {port}}}\n ~1\n drop a
         a > . 1 ack 1 {{port {port}}}\n drop"
    ));
}

fn linked(answer: &str) -> Script {
    let mut t = Script::with(|s| s.link = Some(link()));
    open(&mut t, 40_000, answer);
    t
}

/// How many of the segments that b has got since this was last asked carry this frame.
fn carrying(t: &mut Script, frame: &str) -> usize {
    let frame: Vec<u8> = {
        let digits: String = frame.split_whitespace().collect();
        (0..digits.len()).step_by(2).map(|i| u8::from_str_radix(&digits[i..i + 2], 16).unwrap()).collect()
    };
    let got = t.take(Host::B);
    let bodies = got.iter().filter_map(|s| s.segment.options.farlink.as_ref()).map(|o| o.body.as_slice());
    bodies.filter(|body| body.windows(frame.len()).any(|part| part == frame)).count()
}

/// What the link brings, bit/s, and whence that is known.
fn brings(t: &mut Script) -> (u64, Option<&'static str>) {
    let link = t.with_gateway(|g, _, _| g.status()).links.remove(0);
    (link.rate_in_bps, link.rate_in_source)
}

/// Of a kilobit per second and more the number is right to a thousandth.
fn is_about((bps, source): (u64, Option<&'static str>), expected: u64, whence: &str) -> bool {
    bps <= expected && expected - bps <= expected / 1_000 && source == Some(whence)
}

/// The request takes it along. Acknowledgements repeat it, twice soon, and then once a minute.
#[test]
fn what_is_declared_is_advertised_at_once_and_then_seldom() {
    let mut t = linked(HIM);
    t.play("a > P. 1:101 ack 1\n ~10");
    assert_eq!(carrying(&mut t, OURS), 1);
    let mut said = Vec::new();
    for second in 0..=130u32 {
        let at = second * 10 + 1;
        t.play(&format!("drop\n b > P. {at}:{} ack 101 <flraw 53>\n ~1000", at + 10));
        said.extend((0..carrying(&mut t, OURS)).map(|_| second));
    }
    assert_eq!(said.len(), 4, "{said:?}");
    assert!(said[1] <= 6 && said[2] >= 60 && said[3] >= 120, "{said:?}");
}

/// A gateway that has not heard anything yet is worth a segment of its own.
#[test]
fn who_has_not_heard_anything_is_told_at_once() {
    let mut t = linked(HIM);
    t.play("b > P. 1:101 ack 1 <flraw 53>\n ~1");
    assert_eq!(carrying(&mut t, OURS), 1);
}

/// Version 1 has no frames, and nobody is spoken to before the answer to the SYN.
#[test]
fn an_older_gateway_and_a_host_hear_nothing_of_it() {
    let mut t = linked("");
    t.play("a > P. 1:101 ack 1\n ~100");
    assert_eq!(carrying(&mut t, OURS), 0);
    let mut t = Script::with(|s| s.link = Some(link()));
    t.open();
    t.play("a > P. 1:101 ack 1\n ~100");
    assert!(t.take(Host::B).iter().all(|s| s.segment.options.farlink.is_none()));
}

/// What the gateway at the other end sends is what the link brings. What the operator says here
/// counts more.
#[test]
fn what_is_heard_is_what_the_link_brings() {
    let mut t = linked(HIM);
    assert_eq!(brings(&mut t), (0, None));
    t.play(&format!("b > . 1 ack 1 <flraw 53 {SLOW}>\n ~1"));
    assert!(is_about(brings(&mut t), 32_000, "told"), "{:?}", brings(&mut t));
    let mut t = Script::with(|s| s.link = Some(Link { rate_in_bps: Some(64_000), ..link() }));
    open(&mut t, 40_000, HIM);
    t.play(&format!("b > . 1 ack 1 <flraw 53 {SLOW}>\n ~1"));
    assert_eq!(brings(&mut t), (64_000, Some("declared")));
    // And what the other one says is shown all the same.
    let told_bps = t.with_gateway(|g, _, _| g.status()).links[0].rate_in_told_bps;
    assert!(is_about((told_bps, Some("told")), 32_000, "told"), "{told_bps}");
}

/// A host that plays a gateway cannot make the link slower than an honest one says, nor half
/// duplex's opposite: what is cut short, of zero, or without a source says nothing at all.
#[test]
fn who_plays_a_gateway_makes_no_link_slower() {
    let mut t = linked(HIM);
    open(&mut t, 5_000, HER);
    t.play(&format!("b > . 1 ack 1 <flraw 53 {SLOW}>\n ~1"));
    for lie in
        ["93 01 0001", "93 01 0000", "93 00 ffff", "92 01 ff", "95 05 0001 ffff", "97 02 0001 0000 00 00"]
    {
        t.play(&format!("drop\n b > . 1 ack 1 <flraw 53 {lie}> {{port 5000}}\n ~1"));
        assert!(is_about(brings(&mut t), 32_000, "told"), "after {lie}: {:?}", brings(&mut t));
    }
}

/// Nobody else has spoken yet. Its own answers may be late by what it says, and nobody else's.
#[test]
fn what_a_gateway_says_makes_only_its_own_timers_patient() {
    for lie in ["93 01 0001", "93 11 2963"] {
        let mut t = linked("");
        open(&mut t, 5_000, HER);
        t.play(&format!("drop\n b > . 1 ack 1 <flraw 53 {lie}> {{port 5000}}\n ~1\n drop"));
        t.play("a > P. 1:101 ack 1\n ~2500");
        let again = t.take(Host::B).len();
        assert!(again >= 2, "after {lie}: {again} segments in five round trips");
    }
}

/// The first one was lost, and what leaves is full segments of data.
#[test]
fn who_only_uploads_says_it_again() {
    let mut t = linked(HIM);
    let mut said = 0;
    for n in 0..80u32 {
        let at = n * 1_400 + 1;
        t.play(&format!("drop\n a > . {at}:{} ack 1\n ~100\n drop a", at + 1_400));
        said += carrying(&mut t, OURS);
        t.play(&format!("drop\n b > . 1 ack {} <flraw 53>\n ~1", at + 1_400));
        said += carrying(&mut t, OURS);
    }
    assert_eq!(said, 3);
}

/// At 9,600 bit/s a request would come seven milliseconds later for it: the next acknowledgement
/// takes it along.
#[test]
fn data_does_not_wait_for_an_advert_on_a_slow_line() {
    let mut t = Script::with(|s| s.link = Some(Link { rate_bps: Some(9_600), ..link() }));
    let syn = "win 65535 <mss 1460,sackOK,ws 7";
    t.play(&format!("a > S 0 {syn}>\n ~500\n drop\n b > S. 0 ack 1 {syn},flraw 52 {HIM}>\n drop"));
    t.play("a > P. 1:101 ack 1\n ~300");
    let ours = "95 05 1cb0 47a1";
    assert_eq!(carrying(&mut t, ours), 0, "not with the request, nor alone");
    t.play("drop\n b > P. 1:101 ack 101 <flraw 53>\n ~1000");
    assert_eq!(carrying(&mut t, ours), 1);
}
