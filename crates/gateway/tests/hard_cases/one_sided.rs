//! A link of known rate with no gateway at its other end: the leg leads on through networks of
//! others.

use crate::script::{Host, Script};
use farlink_gateway::cc::Kind;
use farlink_gateway::config::{LegConfig, Link};
use farlink_wire::Duration;

const MSS: u32 = 1460;

/// The link towards b has 8 Mbit/s and 500 ms. `gateway`: one answers at its other end, and the
/// script plays it.
fn script(gateway: bool) -> Script {
    let mut t = Script::with(|s| {
        let leg = LegConfig { cc: Kind::FixedRate, ..LegConfig::default() };
        s.link = Some(Link {
            name: "sat".into(),
            rate_bps: Some(8_000_000),
            rtt: Some(Duration::from_millis(500)),
            leg,
            ..Link::default()
        });
        s.config.limits.relay_bytes = 4 << 20;
    });
    let answer = if gateway { ",flsynack" } else { "" };
    t.play(&format!(
        "a > S 0 win 65535 <mss {MSS},sackOK,ws 7>
         b < S 0 <flsyn>
         +500
         b > S. 0 ack 1 win 65535 <mss {MSS},sackOK,ws 7{answer}>
         a < S. 0 ack 1
         a > . 1 ack 1
         ~1
         drop"
    ));
    t
}

fn window_towards_b(t: &mut Script) -> u64 {
    t.with_gateway(|g, now, _| g.flows(now, 10))[0].cwnd_b_bytes
}

/// `count` segments come from a and are acknowledged by b, the first one half a second after the
/// first was sent, the others at this distance.
fn transfer(t: &mut Script, from: u32, count: u32, apart: &str, options: &str) -> u32 {
    let segment = MSS - 4 * u32::from(!options.is_empty());
    for n in 0..count {
        let at = from + n * segment;
        t.play(&format!("a > P. {at}:{} ack 1\n ~1.5\n drop", at + segment));
    }
    t.play("~400\n drop");
    for n in 1..=count {
        t.play(&format!("b > . 1 ack {} win 8192{options}\n ~{apart}\n drop", from + n * segment));
    }
    from + count * segment
}

/// 15 ms a segment: behind the link lies a tenth of its rate.
#[test]
fn a_bottleneck_behind_the_link_takes_the_window() {
    let mut t = script(false);
    transfer(&mut t, 1, 40, "15", "");
    let window = window_towards_b(&mut t);
    // Twice 800 kbit/s for half a second, and some.
    assert!(window < 150_000, "{window}");
}

#[test]
fn a_link_that_is_the_narrowest_part_keeps_it() {
    let mut t = script(false);
    let next = transfer(&mut t, 1, 40, "1.4", "");
    let window = window_towards_b(&mut t);
    assert!(window > 800_000, "{window}: twice what the link holds");
    // A loss is corruption.
    let end = next + 20 * MSS;
    t.play(&format!("a > P. {next}:{end} ack 1 {{gso {MSS}}}\n ~500\n drop"));
    t.play(&format!("b > . 1 ack {next} win 8192 <sack {}:{end}>\n ~30\n drop", next + MSS));
    // It goes by the round trip of the last one before, which was a little shorter.
    assert!(window_towards_b(&mut t).abs_diff(window) < window / 50, "{window}");
}

/// Segments may wait in a queue behind the link: a time-out of all of them repeats the first, and
/// the rest when that has been answered.
#[test]
fn a_time_out_asks_with_one_segment() {
    let mut t = script(false);
    t.play(&format!("a > P. 1:{} ack 1 {{gso {MSS}}}\n ~900\n drop", 1 + 20 * MSS));
    t.play("~1500");
    let repeated: Vec<u32> = t.take(Host::B).iter().map(|s| s.seq).collect();
    assert_eq!(repeated, [1]);
    // It was the queue: nothing is repeated in vain.
    t.play(&format!("b > . 1 ack {} win 8192\n ~500\n drop a\n quiet", 1 + 20 * MSS));
}

/// Behind the link lies a network of small packets that says nothing. The host is heard now and
/// then, and gets nothing: smaller segments are tried all the same.
#[test]
fn a_black_hole_of_large_segments_is_found_though_the_host_is_heard() {
    let mut t = script(false);
    t.play(&format!("a > P. 1:{} ack 1 {{gso {MSS}}}", 1 + 20 * MSS));
    let mut smallest = usize::MAX;
    for _ in 0..12 {
        t.play("~2500");
        let sizes = t.take(Host::B).into_iter().map(|s| s.packet_payload()).filter(|size| *size > 0);
        smallest = smallest.min(sizes.min().unwrap_or(usize::MAX));
        t.play("drop\n b > . 1 ack 1 win 8192");
    }
    assert!(smallest <= 536, "{smallest} bytes after 30 s");
}

/// The same slow acknowledgements from a gateway are its own affair: the leg ends with the link.
#[test]
fn a_gateway_at_the_other_end_answers_for_what_lies_behind_it() {
    let mut t = script(true);
    transfer(&mut t, 1, 40, "15", " <fl>");
    let window = window_towards_b(&mut t);
    assert!(window >= 4 << 20, "{window}");
}

/// Whoever answers as a gateway and then speaks as a host is one.
#[test]
fn a_host_that_claims_to_be_a_gateway_is_governed_like_one() {
    let mut t = script(true);
    // Of these there were copies, so no round trip is known.
    let next = transfer(&mut t, 1, 40, "15", "");
    transfer(&mut t, next, 40, "15", "");
    let window = window_towards_b(&mut t);
    assert!(window < 150_000, "{window}");
}

/// A connection that lives for hours has seen a shorter way once, which has long been gone.
#[test]
fn the_round_trip_of_a_link_grows_while_one_old_connection_lives() {
    let mut t = Script::with(|s| {
        s.link = Some(Link { name: "sat".into(), rate_bps: Some(8_000_000), ..Link::default() });
    });
    t.play(
        "a > S 0 win 65535 <mss 1460,sackOK,ws 7>
         b < S 0 <flsyn>
         +100
         b > S. 0 ack 1 win 65535 <mss 1460,sackOK,ws 7>
         a < S. 0 ack 1
         a > . 1 ack 1
         ~1
         drop",
    );
    let mut at = 1;
    let mut talk = |t: &mut Script, rounds: u32, rtt_ms: u32| {
        for _ in 0..rounds {
            let (from, to) = (at, at + 1_000);
            at = to;
            t.play(&format!("a > P. {from}:{to} ack 1\n ~{rtt_ms}\n drop"));
            t.play(&format!("b > . 1 ack {to} win 8192\n ~5000\n drop"));
        }
        t.with_gateway(|g, _, _| g.status()).links[0].rtt_us / 1_000
    };
    assert_eq!(talk(&mut t, 20, 100), 100);
    assert_eq!(talk(&mut t, 20, 180), 100, "it may be a queue");
    // Twice five minutes.
    assert_eq!(talk(&mut t, 120, 180), 180);
}
