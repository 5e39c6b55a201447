//! Early repetition: what is not acknowledged goes out again over an idle link, before a loss can
//! be known.

use crate::script::{Host, Script};
use farlink_gateway::config::{Copies, LegConfig, Link};
use farlink_wire::Duration;

/// A handshake with a gateway at the other end of the link, which has not said anything since.
pub const BETWEEN_GATEWAYS: &str = "a > S 0 win 65535 <mss 1460,sackOK,ws 7>
     b < S 0 <flsyn>
     b > S. 0 ack 1 win 65535 <mss 1460,sackOK,ws 7,flsynack>
     a < S. 0 ack 1
     a > . 1 ack 1
     ~1
     drop";

/// The link towards b has 8 Mbit/s and 500 ms; the script plays the gateway at its other end.
fn script() -> Script {
    script_with(Copies::Auto)
}

fn script_with(copies: Copies) -> Script {
    let leg = LegConfig { cc: farlink_cc::Kind::FixedRate, ..LegConfig::default() };
    let mut t = Script::with(|s| {
        s.link = Some(Link {
            name: "sat".into(),
            rate_bps: Some(8_000_000),
            rtt: Some(Duration::from_millis(500)),
            leg: leg.clone(),
            copies,
            ..Link::default()
        });
    });
    t.play(BETWEEN_GATEWAYS);
    t.play(
        "b > . 1 ack 1 win 65535 <fl 1 1024>
         drop",
    );
    t
}

#[test]
fn a_request_is_repeated_twice_while_nobody_can_know_whether_it_was_lost() {
    let mut t = script();
    t.play(
        "+100
         a > P. 1:101 ack 1
         b < P. 1:101 ack 1 <fl>
         # A 32nd of the RTT later, and again an eighth later.
         ~15.7
         b < P. 1:101 ack 1 <fl>
         ~62.6
         b < P. 1:101 ack 1 <fl>
         ~400",
    );
    t.assert(t.status().counters.early_repeated_bytes == 200, "no more than that");
    t.assert(t.status().counters.retransmitted_bytes == 0, "no timer");
    t.play("drop\n b > . 1 ack 101 win 65535 <fl 101 1024>\n ~50\n drop\n ~5s\n drop a\n quiet");
}

/// Each byte of the link costs money.
#[test]
fn where_copies_are_off_nothing_is_sent_twice_before_it_is_missed() {
    let mut t = script_with(Copies::Off);
    t.play("+100\n a > P. 1:101 ack 1\n b < P. 1:101 ack 1 <fl>\n ~480");
    t.assert(t.status().counters.retransmitted_bytes == 0, "it is not missed yet");
    t.assert(t.status().counters.early_repeated_bytes == 0, "no copy");
}

#[test]
fn copies_go_from_the_end_backwards_and_never_before_new_data() {
    let mut t = script();
    let sent = |t: &mut Script| t.take(Host::B).iter().map(|s| s.seq).collect::<Vec<_>>();
    // Three segments, 1.5 ms each, and 15.6 ms later their copies.
    t.play("+100\n a > . 1:4369 ack 1 {gso 1460}\n drop a\n ~10");
    assert_eq!(sent(&mut t), [1, 1457, 2913]);
    t.play("~6");
    assert_eq!(sent(&mut t), [2913]);
    // New data while copies are waiting: at most the one goes before it that is on the link.
    t.play("a > P. 4369:4469 ack 1\n ~2");
    assert_eq!(sent(&mut t), [4369, 4369, 1457]);
    t.play("~20");
    assert_eq!(sent(&mut t)[0], 1);
}

#[test]
fn a_gateway_that_is_silent_is_asked_with_a_segment_each_time() {
    let mut t = script();
    t.play("a > P. 1:29201 ack 1 {gso 1460}\n ~60s\n drop a");
    let first = t.take(Host::B).len();
    assert!(first >= 40, "the window, its copies, all again at the first timeout: {first}");
    // The link is what is silent: it is asked every second.
    for _ in 0..10 {
        t.play("~60s\n drop a");
        let asked = t.take(Host::B);
        assert!((50..=62).contains(&asked.len()), "{asked:?}");
        let (full, small): (Vec<_>, Vec<_>) = asked.iter().partition(|s| s.seq == 1);
        assert!(full.len() > 2 * small.len(), "what it is waiting for: {asked:?}");
        assert!(
            small.iter().all(|s| s.seq == 0 && s.payload.is_empty()),
            "or whether it is there: {small:?}"
        );
    }
    // It answers: everything follows at once.
    t.play("b > . 1 ack 1461\n ~200\n drop a");
    let (mut end, mut got) = (1461, t.take(Host::B));
    got.sort_by_key(|s| s.seq);
    for s in got {
        if s.seq <= end {
            end = end.max(s.seq + s.segment.payload_len as u32);
        }
    }
    assert_eq!(end, 29_201);
}
