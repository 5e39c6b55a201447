//! The answer of the gateway beyond a link tells how much it takes at once: the header's window has
//! no scale yet.
//!
//! Host a's first byte has the sequence number ffffff01, host b's 7ffffe81.

use farlink_cc::Kind;
use farlink_gateway::config::{Action, Copies, FlowControl, LegConfig, Link, Notice, SendAhead};
use farlink_wire::Duration;

use crate::script::{Host, Script, Seen, Setup};

/// Another gateway: version 2, all capabilities but XCP's own header and the last.
const OTHER: &str = "68 0000002a 02 005f 00";
/// This one.
const OURS: &str = "68 9e3779b9 02 00df 00";

/// Full segments over IPv6.
const UPLOAD_BYTES: u32 = 139 * 1_440;

/// 8 Mbit/s, 500 ms, without copies.
fn link() -> Link {
    Link {
        name: "sat".into(),
        rate_bps: Some(8_000_000),
        rtt: Some(Duration::from_millis(500)),
        copies: Copies::Off,
        leg: LegConfig { cc: Kind::FixedRate, ..LegConfig::default() },
        ..Link::default()
    }
}

fn script(change: impl FnOnce(&mut Setup)) -> Script {
    Script::with(|s| {
        s.config.limits.relay_bytes = 4 << 20;
        change(s);
    })
}

/// A client's 200 kB behind this gateway, whose link leads to one that has answered with these
/// bytes. Returns where what has left ends, before anything is acknowledged.
fn sent_at_once(v6: bool, ws: &str, answer: &str) -> u32 {
    let mut t = script(|s| {
        (s.v6, s.link) = (v6, Some(link()));
        // A host alone is waited for.
        s.config.send_ahead = SendAhead::Off;
    });
    t.play(&format!(
        "a > S 0 win 65535 <mss 1460,sackOK{ws}>
         b < S 0
         b > S. 0 ack 1 win 65535 <mss 1460,sackOK{ws},flraw 52 {answer}>
         a < S. 0 ack 1 win 65535 <no flsynack>
         a > . 1 ack 1
         ~10
         b < . 1 ack 1"
    ));
    upload(&mut t, 1, "")
}

/// 200 kB of host a from this byte on. Returns where what has left of it ends 0.3 s later, while
/// nothing is acknowledged.
fn upload(t: &mut Script, from: u32, mark: &str) -> u32 {
    let mut end = 0;
    let mut look = |t: &mut Script| {
        t.take(Host::A);
        // What lies beyond the window that was shown goes on as it came.
        let made = |s: &&Seen| s.segment.options.farlink.is_some();
        end = t.take(Host::B).iter().filter(made).map(|s| s.seq + s.payload.len() as u32).fold(end, u32::max);
    };
    for at in (from..from + UPLOAD_BYTES).step_by(1_440) {
        t.play(&format!("a > . {at}:{} ack 1 {mark}", at + 1_440));
        look(t);
    }
    t.play("~300");
    look(t);
    end
}

#[test]
fn more_than_a_header_can_say_leaves_at_once() {
    for v6 in [false, true] {
        for ws in [",ws 7", ",ws 0"] {
            let told = sent_at_once(v6, ws, &format!("{OTHER} 32 0400"));
            let untold = sent_at_once(v6, ws, OTHER);
            assert!(untold <= 1 + 65_535, "{untold}");
            // A source that is shown 65,535 bytes and no more has no more under way (invariant 7).
            let most = if ws == ",ws 7" { 1 + UPLOAD_BYTES } else { 1 + 65_535 };
            assert!((most - 1_460..=most).contains(&told), "{told} {ws}");
        }
    }
    assert!(sent_at_once(false, "", &format!("{OTHER} 32 0400")) > 190_000, "who is told all is held");
    // No more than is told, and what cannot be read tells nothing.
    let told = sent_at_once(false, ",ws 7", &format!("{OTHER} 32 0064"));
    assert!((100_000..=1 + 100 * 1_024).contains(&told), "{told}");
    for odd in ["31 04", "32 04", "3f", "32 0000", "32 0010"] {
        let told = sent_at_once(false, ",ws 7", &format!("{OTHER} {odd}"));
        assert!(told <= 1 + 65_535, "{odd}: {told}");
    }
    assert!(sent_at_once(false, ",ws 7", &format!("{OTHER} 32 ffff")) <= 1 + UPLOAD_BYTES, "bounded here");
}

/// Nobody stands there any more: the host's own word counts, and what it has no room for goes
/// again.
#[test]
fn a_host_that_answers_for_itself_takes_the_word_back() {
    let mut t = script(|s| s.link = Some(link()));
    t.play(&format!(
        "a > S 0 win 65535 <mss 1460,sackOK,ws 7>
         drop
         b > S. 0 ack 1 win 65535 <mss 1460,sackOK,ws 7,flraw 52 {OTHER} 32 0400>
         drop
         a > . 1 ack 1
         drop
         a > . 1:1461 ack 1
         ~20
         drop
         drop b
         b > . 1 ack 1457 win 8
         drop"
    ));
    let end = upload(&mut t, 1_461, "");
    assert!(end <= 1_457 + 8 * 128, "{end}");
}

/// What this gateway tells the one before it.
fn told(asks: &str, change: impl FnOnce(&mut Setup), server: &str) -> Script {
    let mut t = script(|s| {
        s.link_a = Some(link());
        change(s);
    });
    t.play(&format!(
        "a > S 0 win 65535 <mss 1460,sackOK,ws 7,flraw 51 {asks}>
         b < S 0 <no flsyn>
         b > S. 0 ack 1 win 65535 <mss 1460,sackOK,{server}>"
    ));
    t
}

#[test]
fn the_gateway_before_is_told_what_is_taken_and_it_is() {
    for v6 in [false, true] {
        let mut t = told(OTHER, |s| s.v6 = v6, "ws 7");
        t.play(&format!("a < S. 0 ack 1 win 65535 <flraw 52 {OURS} 32 0f42,mss 1460,sackOK,ws 7>"));
        // A repetition tells the same.
        t.play(&format!(
            "b > S. 0 ack 1 win 65535 <mss 1460,sackOK,ws 7>
             ~10
             a < S. 0 ack 1 win 65535 <flraw 52 {OURS} 32 0f42>
             a > . 1 ack 1
             b < . 1 ack 1 <no fl>"
        ));
        upload(&mut t, 1, "<fl>");
        t.assert(t.status().counters.payload_in_bytes == u64::from(UPLOAD_BYTES), "all of it");
    }
}

#[test]
fn nothing_is_told_to_who_cannot_read_it_or_where_nothing_is_promised() {
    let bare = "a < S. 0 ack 1 <flraw 52>";
    told("", |_| {}, "ws 7").play(bare);
    let hello = format!("a < S. 0 ack 1 <flraw 52 {OURS}>");
    let custody = |s: &mut Setup| s.config.default_action = Action::Custody(Notice::Silence);
    told(OTHER, custody, "ws 7").play(&hello.replace("00df", "01df"));
    let small = |s: &mut Setup| s.config.limits.relay_bytes = 65_535;
    told(
        OTHER,
        |s| {
            small(s);
            s.config.limits.relay_follows_link = false
        },
        "ws 7",
    )
    .play(&hello);
    let by_window = |s: &mut Setup| s.config.flow_control = FlowControl::SendWindow;
    told(OTHER, by_window, "ws 7").play(&hello);
    // The server's own options leave no room for it.
    told(OTHER, |_| {}, "ws 7,ts 1 0,unk 70")
        .play("a < S. 0 ack 1 <flraw 52 68 9e3779b9 02 00df 00 32 0f42>");
    told(OTHER, |_| {}, "ws 7,ts 1 0,unk 70,unk 71").play("a < S. 0 ack 1 <flraw 52>");
}

/// The client's acknowledgement and its first data are lost: what follows by the same gateway is
/// held, and not passed to a host that has no room for it.
#[test]
fn what_a_gateway_sends_begins_the_connection_though_its_first_segment_is_lost() {
    for v6 in [false, true] {
        let mut t = told(OTHER, |s| s.v6 = v6, "ws 7");
        let mss = if v6 { 1_440 } else { 1_460 };
        let [first, second, third] = [0, 1, 2].map(|n| format!("{}:{}", 1 + n * mss, 1 + (n + 1) * mss));
        t.play(&format!(
            "drop a
             a > . {second} ack 1 <fl>
             a > . {third} ack 1 <fl>
             drop a
             quiet
             a > . {first} ack 1 <fl>
             ~10"
        ));
        let end = t.take(Host::B).iter().map(|s| s.seq + s.payload.len() as u32).max();
        assert_eq!(end, Some(1 + 3 * mss));
        t.assert(t.status().counters.flows_split == 1, "split");
        // A host's own goes round us as ever, and so does what lies beyond all that was told.
        for odd in ["1441:2881 ack 1", "4000001:4001441 ack 1 <fl>", "1:1441 ack 70001 <fl>"] {
            let mut t = told(OTHER, |s| s.v6 = v6, "ws 7");
            t.play(&format!("drop a\n a > . {odd}\n drop b"));
            t.assert(t.status().counters.flows_split == 0, "not split");
        }
    }
}
