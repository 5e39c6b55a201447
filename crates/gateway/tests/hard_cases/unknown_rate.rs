//! A link whose rate the gateways are finding out.

use crate::script::{Host, Script};
use farlink_gateway::config::Link;

fn script() -> Script {
    Script::with(|s| {
        s.link = Some(Link { name: "sat".into(), estimate_rate: true, ..Link::default() });
    })
}

/// The handshake, with a gateway at the other end of the link, a tenth of a second away.
fn open(t: &mut Script, port: u32) {
    let syn = "win 65535 <mss 1460,sackOK,ws 7";
    t.play(&format!("a > S 0 {syn}> {{port {port}}}\n ~100\n drop"));
    t.play(&format!("b > S. 0 ack 1 {syn},flsynack> {{port {port}}}\n drop a"));
    t.play(&format!("a > . 1 ack 1 {{port {port}}}\n ~1\n drop"));
}

/// Plays this. Payload that b gets of a connection meanwhile.
fn got(t: &mut Script, port: u16, play: &str) -> usize {
    t.play(play);
    let got = t.take(Host::B).iter().filter(|s| s.port == port).map(|s| s.payload.len()).sum();
    t.play("drop");
    got
}

/// The first connection was to send the burst from which the rate shows, and had only a request.
/// The next that has much to send sends it instead, and one that begins in the same round trip does
/// not.
#[test]
fn the_burst_that_tells_the_rate_is_sent_by_who_has_enough_for_it() {
    let mut t = script();
    open(&mut t, 40_000);
    t.play("a > P. 1:101 ack 1\n ~1\n drop");
    let mut burst = |port: u16| {
        open(&mut t, port.into());
        let data = (1..58_000).step_by(5_800);
        data.map(|at| {
            let segment = format!("a > . {at}:{} ack 1 {{gso 1450,port {port}}}\n ~1", at + 5_800);
            got(&mut t, port, &segment)
        })
        .sum::<usize>()
    };
    let sent = burst(5_000);
    assert!((32 * 1_400..=33 * 1_460).contains(&sent), "{sent} bytes");
    let next = burst(5_001);
    assert!(next <= 10 * 1_460, "{next} bytes: one burst in a round trip");
}

/// A queue before the link takes longer than a timeout, and delivers what others have sent before.
#[test]
fn what_stands_in_line_behind_others_is_not_repeated() {
    let mut t = script();
    open(&mut t, 40_000);
    open(&mut t, 5_000);
    for at in (1..28_000).step_by(1_400) {
        t.play(&format!("a > P. {at}:{} ack 1\n ~1\n drop", at + 1_400));
    }
    assert_eq!(got(&mut t, 5_000, "a > P. 1:101 ack 1 {port 5000}\n ~1"), 100);
    for n in 1..20u32 {
        let (us, bytes) = (1_000_000 + 100_000 * n, 1_500 * n);
        let told = format!("b > . 1 ack {} <flcame 7 {us} {bytes}>\n ~100", 1 + 1_400 * n);
        assert_eq!(
            got(&mut t, 5_000, &told),
            0,
            "after {n} tenths of a second: what was sent before it still arrives"
        );
    }
    // Something that was sent later has arrived: it is lost.
    t.play("a > P. 28001:29401 ack 1\n ~100\n drop");
    assert_eq!(got(&mut t, 5_000, "b > . 1 ack 29401 <flcame 7 3200000 40000>\n ~1000"), 100);
}

/// Nobody has said the rate, and no gateway answers: a queue may be longer than a timeout. What is
/// acknowledged first after one may have been the original or the repetition, so the next one is
/// waited for, with two new segments (F-RTO, RFC 5682).
#[test]
fn where_the_rate_is_not_said_a_timeout_waits_for_a_second_word() {
    let mut t = Script::with(|s| s.link = Some(Link { name: "sat".into(), ..Link::default() }));
    let syn = "win 65535 <mss 1460,sackOK,ws 7>";
    t.play(&format!("a > S 0 {syn}\n ~500\n drop\n b > S. 0 ack 1 {syn}\n drop\n a > . 1 ack 1\n drop"));
    t.play("a > P. 1:11201 ack 1 {gso 1400}\n ~2500");
    let first = t.take(Host::B);
    assert!(first.iter().filter(|s| s.seq == 1).count() > 1, "the timeout repeats the first one");
    // The queue lets one segment through each 300 ms.
    let mut again = Vec::new();
    for n in 1..=8u32 {
        t.play(&format!("drop\n b > . 1 ack {}\n ~300", 1 + 1_400 * n));
        again.extend(t.take(Host::B).iter().map(|s| s.seq).filter(|seq| *seq < 11_201));
    }
    assert_eq!(again, [], "nothing of it was lost");
}

/// A full packet takes 40 s at 300 bit/s. Of a link of which nothing is known that is not silence,
/// even where a gateway is to answer.
#[test]
fn a_new_link_is_given_the_time_of_a_packet_on_the_slowest_line() {
    let state = |t: &mut Script| t.with_gateway(|g, _, _| g.status()).links.remove(0).state;
    let mut t = script();
    open(&mut t, 40_000);
    t.play("b > . 1 ack 1 <fl>\n ~1\n drop\n a > P. 1:101 ack 1\n ~35000\n drop");
    assert_eq!(state(&mut t), "up");
    t.play("~60000\n drop");
    assert_ne!(state(&mut t), "up");
    // Of one whose rate is said it is.
    let mut t = Script::with(|s| {
        s.link = Some(Link { name: "sat".into(), rate_bps: Some(8_000_000), ..Link::default() });
    });
    open(&mut t, 40_000);
    t.play("b > . 1 ack 1 <fl>\n ~1\n drop\n a > P. 1:101 ack 1\n ~35000\n drop");
    assert_ne!(state(&mut t), "up");
}

/// The window that the first of so many connections, which begin together, is shown at once.
fn first_window_bytes(connections: u32) -> u32 {
    let mut t = Script::with(|s| {
        s.config.limits.relay_bytes = 64 << 20;
        s.link = Some(Link { name: "sat".into(), ..Link::default() });
    });
    let syn = "win 65535 <mss 1460,sackOK,ws 7>";
    for port in 5_000..5_000 + connections {
        t.play(&format!("a > S 0 {syn} {{port {port}}}\n ~1\n drop"));
    }
    t.play(&format!(
        "~80\n b > S. 0 ack 1 {syn} {{port 5000}}\n drop a\n a > . 1 ack 1 {{port 5000}}\n drop"
    ));
    t.play("a > P. 1:1461 ack 1 {port 5000}\n drop b\n a > P. 1461:2921 ack 1 {port 5000}\n ~5");
    let window_bytes = t.take(Host::A).last().map(|s| u32::from(s.segment.window) << 7);
    t.play("drop");
    window_bytes.unwrap_or_default()
}

/// A source that was shown much holds it for long once others share the link. So half-open
/// connections count, also where nobody has declared the round-trip time.
#[test]
fn the_first_of_many_leaves_the_others_their_part() {
    let alone = first_window_bytes(1);
    assert!(alone > 8_000_000, "{alone}");
    let together = first_window_bytes(20);
    assert!((800_000..900_000).contains(&together), "{together}");
}
