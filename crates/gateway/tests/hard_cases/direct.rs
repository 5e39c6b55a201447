//! Routes that leave us in one direction: the destination's answers reach its source round us.

use crate::receiver::Receiver;
use crate::script::{Host, Script};
use farlink_gateway::config::Link;

const OPTIONS: (&str, &str) = ("<mss 1460,sackOK,ws 7,ts 1000 0>", "<mss 1460,sackOK,ws 7,ts 5000 0>");

/// a has sent 43,440 bytes; b has been heard to acknowledge the first 1,448 of them, 100 ms after
/// they were sent, and no more comes from it.
fn left() -> Script {
    let mut t = Script::new();
    t.open_with(OPTIONS.0, OPTIONS.1);
    t.play("a > P. 1:1449 ack 1 <ts 1010 5000>\n b < P. 1:1449\n ~100\n drop\n b > . 1 ack 1449 win 500 <ts 5100 1010>\n ~100\n drop");
    t.play("a > P. 1449:43441 ack 1 {gso 1448} <ts 1200 5100>\n ~50\n drop a");
    t
}

#[test]
fn what_is_held_follows_at_the_first_timeout_and_what_comes_goes_on() {
    let mut t = left();
    let first: u32 = t.take(Host::B).iter().map(|s| s.seq + s.payload.len() as u32).max().unwrap();
    assert!(first < 43_441, "its congestion window holds it back: {first}");
    // b has answered, past us: a echoes what we have not seen.
    t.play("a > . 43441 ack 1 <ts 1260 5160>\n ~600\n drop a");
    let mut b = Receiver::new(first);
    b.put(&t.take(Host::B));
    assert_eq!(b.acked, 43_441, "all that is held, within three round trips");
    // What a sends from now on it sends to b.
    t.play("a > P. 43441:44889 ack 1 <ts 1900 5800>\n b < P. 43441:44889 ack 1 <ts 1900 5800>\n ~100");
    assert!(t.take(Host::A).is_empty(), "not acknowledged here");
}

/// What b acknowledges is less than what has been acknowledged here: a drops it, with its timestamp
/// (Linux `tcp_ack`), and shows nothing of it.
#[test]
fn what_is_held_follows_late_where_the_source_shows_nothing() {
    let mut t = left();
    let mut b = Receiver::new(1449);
    for second in 1..12 {
        t.play("~1000\n drop a");
        b.put(&t.take(Host::B));
        t.play(&format!("a > . 43440 ack 1 <ts {} 5100>", 1200 + 1000 * second));
    }
    assert_eq!(b.acked, 43_441, "all that is held");
}

#[test]
fn a_source_without_room_is_asked_what_it_has_heard() {
    let mut t = left();
    // One round trip after b should have answered: RTO is 300 ms, 50 of which have passed.
    t.play("~300");
    let asked = t.take(Host::A);
    assert!(asked.iter().any(|s| s.seq == 0 && s.payload.is_empty()), "{asked:?}");
}

#[test]
fn custody_is_let_go_when_its_source_has_gone_on_by_more_than_any_window() {
    let mut t = Script::new();
    // Neither scales its window.
    t.open_with("<mss 1460,sackOK,ts 1000 0>", "<mss 1460,sackOK,ts 5000 0>");
    t.play("b > . 1 ack 1 win 65535 <ts 5001 1000>\n drop");
    t.play("a > P. 1:1449 ack 1 <ts 1010 5001>\n b < P. 1:1449\n ~1000\n drop");
    t.play("a > . 1449 ack 1 <ts 2000 6000>\n ~50\n drop");
    for at in (1449..66_985u32).step_by(1448) {
        t.assert(t.status().custody_bytes == 1448, "b may still lack it");
        t.play(&format!("a > . {at}:{} ack 1 <ts 2100 6100>\n ~1\n drop", at + 1448));
    }
    t.play("a > . 66985:68433 ack 1 <ts 2100 6100>\n drop");
    // a could not have sent that without an acknowledgement of what is held here.
    t.assert(t.status().custody_bytes == 0 && t.journal().is_empty(), "b has it");
    t.play("~1000s");
    assert!(t.take(Host::A).iter().all(|s| !s.segment.flags.rst()), "a living connection is left alone");
}

#[test]
fn a_gateway_that_goes_on_far_may_go_by_a_window_that_another_one_has_told_it() {
    // The gateway next to a speaks over a declared link. What it holds for a does not show here.
    let mut t = Script::with(|s| s.link_a = Some(Link { name: "sat".into(), ..Link::default() }));
    t.play(
        "a > S 0 win 65535 <mss 1460,sackOK,ts 1000 0,flsyn>
         drop
         b > S. 0 ack 1 win 65535 <mss 1460,sackOK,ts 5000 0>
         drop
         a > . 1 ack 1 <ts 1001 5000,fl>
         drop
         b > . 1 ack 1 win 65535 <ts 5001 1001>
         drop
         a > P. 1:1449 ack 1 <ts 1010 5001,fl>
         b < P. 1:1449
         ~1000
         drop
         a > . 1449 ack 1 <ts 2000 6000,fl>
         ~50
         drop",
    );
    for at in (1449..201_000u32).step_by(1448) {
        t.play(&format!("a > . {at}:{} ack 1 <ts 2100 6100,fl>\n ~1\n drop", at + 1448));
    }
    t.assert(t.status().custody_bytes == 1448, "b may still lack what was acknowledged here");
    t.play("~3000");
    let again = t.take(Host::B);
    assert!(again.iter().any(|s| s.seq == 1 && s.payload.len() == 1448), "it is sent again: {again:?}");
}

/// A declared link, on which b has answered in 20 ms, and then no more.
fn silent_link(options: (&str, &str)) -> Script {
    let mut t = Script::with(|s| s.link = Some(Link { name: "sat".into(), ..Link::default() }));
    t.open_with(options.0, options.1);
    let stamp = |a: &str| if options.0.contains("ts") { a.to_owned() } else { String::new() };
    let (first, answer) = (stamp("<ts 1010 5000>"), stamp("<ts 5020 1010>"));
    t.play(&format!("a > P. 1:101 ack 1 {first}\n ~20\n drop\n b > . 1 ack 101 {answer}\n ~100\n drop"));
    t.play(&format!("a > P. 101:201 ack 1 {}\n ~20s\n drop", stamp("<ts 1200 5020>")));
    t
}

#[test]
fn an_outage_that_nobody_announces_is_no_way_round_us() {
    let plain = ("<mss 1460,sackOK,ws 7>", "<mss 1460,sackOK,ws 7>");
    for (options, stamp) in [(OPTIONS, "<ts 21000 5020>"), (plain, "")] {
        let mut t = silent_link(options);
        t.play(&format!("a > P. 201:301 ack 1 {stamp}\n ~40\n a < . 1 ack 301"));
        t.assert(t.status().custody_bytes == 200, "kept, not thrown into a dead link");
    }
}

#[test]
fn the_first_word_after_a_silence_brings_what_is_missing_at_once() {
    let mut t = silent_link(OPTIONS);
    // The timer stands at more than 20 s. b says something of its own.
    t.play("b > P. 1:51 ack 101 <ts 26000 1010>\n ~30");
    let got = t.take(Host::B);
    assert!(got.iter().any(|s| s.seq == 101 && s.payload.len() == 100), "{got:?}");
}

/// More than 2^31 bytes lie between: what was passed long ago is not taken for what lies ahead.
#[test]
fn what_was_passed_before_the_numbers_came_round_is_forgotten() {
    const SYN: &str = "win 65535 <mss 1460,sackOK,ws 14,ts 1000 0>";
    let mut t = Script::new();
    t.play(&format!("a > S 0 {SYN}\n b < S 0\n b > S. 0 ack 1 {SYN}\n a < S. 0 ack 1\n a > . 1 ack 1 win 65535 <ts 1000 1000>\n drop"));
    let mut at: u32 = 1;
    let mut stamp = 2_000;
    for carried in [0, (1 << 31) + (100 << 20)] {
        let begin = at;
        while at.wrapping_sub(begin) < carried {
            let end = at.wrapping_add(45 * 1448);
            t.play(&format!("a > P. {at}:{end} ack 1 win 65535 <ts {stamp} {stamp}> {{gso 1448}}\n drop a"));
            loop {
                let ends = t.take(Host::B).into_iter().filter(|s| !s.payload.is_empty());
                let Some(got) = ends.map(|s| s.seq.wrapping_add(s.payload.len() as u32)).next_back() else {
                    break;
                };
                stamp += 1;
                t.play(&format!("b > . 1 ack {got} win 65535 <ts {stamp} {stamp}>\n ~1\n drop a"));
            }
            at = end;
        }
        t.assert(t.status().custody_bytes == 0, "all of it has arrived");
        let end = at.wrapping_add(1448);
        stamp += 2_000;
        t.play(&format!("a > P. {at}:{end} ack 1 win 65535 <ts {stamp} {stamp}>\n ~1000\n drop"));
        // b answers past us.
        t.play(&format!("a > . {end} ack 1 win 65535 <ts {} {}>\n ~50\n drop", stamp + 1000, stamp + 1000));
        at = end;
        for _ in 0..3 {
            let end = at.wrapping_add(1448);
            t.play(&format!(
                "a > . {at}:{end} ack 1 win 65535 <ts {} {}>\n ~1\n drop",
                stamp + 1100,
                stamp + 1100
            ));
            t.assert(t.status().custody_bytes == 1448, "b may still lack it");
            at = end;
        }
        // The way leads here again.
        stamp += 2_000;
        for _ in 0..9 {
            stamp += 200;
            t.play(&format!("b > . 1 ack {at} win 65535 <ts {stamp} {stamp}>\n ~200\n drop"));
        }
    }
}
