//! The allowance of a pair of gateways.

use farlink_wire::{Duration, Instant, WireSize};
use farlink_xcp::{Context, Doubt, KEPT, Member};

const RTT: Duration = Duration::from_millis(100);
const PACKET: WireSize = WireSize { bytes: 1_500, packets: 1 };

fn at(ms: u64) -> Instant {
    Instant::from_millis(1_000 + ms)
}

/// A context of this round trip; nothing has been sent.
fn context() -> Context {
    let mut c = Context::new(at(0), PACKET.bytes, 1_000_000_000);
    c.expect_rtt(RTT);
    c
}

/// Sends at its own pace from one moment to another, in milliseconds. Returns the wishes.
fn send(c: &mut Context, m: &mut Member, from: u64, to: u64) -> Vec<i32> {
    let mut wishes = Vec::new();
    let mut now = at(from);
    while now < at(to) {
        wishes.push(c.on_send(now, m, PACKET, true).delta_bytes_per_s);
        let bps = c.rate_bps().expect("it is the clock");
        now += Duration::from_nanos(u64::from(PACKET.bytes) * 8_000_000_000 / bps);
    }
    wishes
}

/// One to which routers have left 8 Mbit/s, 100 kB under way, used since then until 1 s.
fn used() -> (Context, Member) {
    let (mut c, mut m) = (context(), Member::of_new_flow());
    for n in 0..10 {
        c.on_send(at(n * 10), &mut m, PACKET, true);
    }
    c.hear(at(100), 0);
    send(&mut c, &mut m, 100, 200);
    c.hear(at(200), 850_000);
    assert_eq!(c.window_bytes(), 100_000);
    send(&mut c, &mut m, 200, 1_000);
    (c, m)
}

#[test]
fn it_begins_with_what_was_sent_and_is_no_clock_before() {
    let (mut c, mut m) = (context(), Member::of_new_flow());
    for _ in 0..20 {
        c.on_send(at(0), &mut m, PACKET, true);
    }
    assert_eq!((c.speaks(), c.rate_bps()), (false, None));
    c.hear(at(100), 0);
    assert_eq!((c.window_bytes(), c.rate_bps()), (30_000, Some(2_400_000)));
    // Who has sent a small request only may send what any connection may begin with.
    let (mut c, mut m) = (context(), Member::of_new_flow());
    c.on_send(at(0), &mut m, PACKET, false);
    c.hear(at(100), 0);
    assert_eq!(c.window_bytes(), 15_000);
}

#[test]
fn of_those_that_begin_one_packet_each_says_the_round_trip() {
    let mut c = context();
    let mut members = [Member::of_new_flow(); 3];
    let mut spacings = Vec::new();
    for _ in 0..2 {
        for m in &mut members {
            spacings.push(c.on_send(at(0), m, PACKET, true).spacing.seconds());
        }
    }
    let says = |s: &f64| (s - RTT.as_secs_f64()).abs() < 1e-6;
    assert_eq!(spacings.iter().filter(|s| says(s)).count(), 3, "{spacings:?}");
    assert_eq!(spacings.iter().filter(|s| **s == 0.0).count(), 3, "{spacings:?}");
}

#[test]
fn a_flow_that_joins_finds_all_of_it_and_counts_as_one_more() {
    let (mut c, mut m) = used();
    let alone = c.on_send(at(1_000), &mut m, PACKET, true).spacing.seconds();
    assert!((alone - 0.0015).abs() < 1e-4, "1,500 of 100,000 bytes in 100 ms: {alone}");
    let mut second = Member::of_new_flow();
    let both = c.on_send(at(1_001), &mut second, PACKET, true).spacing.seconds();
    assert_eq!((c.flows(), c.window_bytes()), (2, 100_000));
    assert!((both / alone - 2.0).abs() < 0.01, "{both}");
    // One that sends no more counts no more, two round trips later.
    send(&mut c, &mut m, 1_001, 1_400);
    assert_eq!(c.flows(), 1);
}

#[test]
fn what_was_used_is_kept_for_a_while_and_then_given_up() {
    let (mut c, mut m) = used();
    let kept = u64::try_from(KEPT.as_millis()).unwrap();
    let mut rested = c.clone();
    rested.on_send(at(950 + kept), &mut m, PACKET, true);
    assert_eq!(rested.window_bytes(), 100_000, "all of it, and at once");
    assert_eq!(rested.rate_bps(), Some(8_000_000), "spread over the round trip as before");
    // Half in each round trip after that, but not all.
    let mut rested = c.clone();
    rested.on_send(at(1_000 + kept + 100), &mut m, PACKET, true);
    let window = rested.window_bytes();
    assert!((50_000..65_000).contains(&window), "{window}");
    c.on_send(at(1_000 + kept + 60_000), &mut m, PACKET, true);
    let least = 10 * u64::from(PACKET.bytes);
    assert_eq!(c.window_bytes(), least, "what any connection may begin with");
}

#[test]
fn after_a_rest_half_of_it_leaves_at_its_pace_and_the_rest_when_there_is_room() {
    let (mut c, mut m) = used();
    // A second of 80 Mbit/s, so that half of it is more than a page.
    c.hear(at(1_000), 9_000_000);
    assert_eq!(c.window_bytes(), 1_000_000);
    send(&mut c, &mut m, 1_000, 1_500);
    for (rtt, left) in [(RTT, 1_000_000), (RTT * 3 / 2, 250_000)] {
        let (mut c, mut m) = (c.clone(), m);
        let full = c.rate_bps();
        assert_eq!(send(&mut c, &mut m, 2_500, 2_545).len(), 300, "15 kB in 1.5 ms");
        assert_eq!(c.rate_bps(), full);
        send(&mut c, &mut m, 2_545, 2_560);
        assert_eq!(c.rate_bps().map(|bps| bps * 4), full, "half of it has left");
        c.on_rtt(at(2_600), RTT);
        assert_eq!(c.rate_bps().map(|bps| bps * 4), full, "the first packets met no queue of their own");
        c.on_rtt(at(2_660), rtt);
        assert_eq!(c.window_bytes(), left, "{rtt:?}");
    }
}

#[test]
fn who_uses_little_of_it_keeps_it_no_longer() {
    let (mut c, mut m) = used();
    // A packet in each round trip.
    for n in 0..60 {
        c.on_send(at(1_000 + n * 100), &mut m, PACKET, false);
    }
    assert_eq!(c.window_bytes(), 10 * u64::from(PACKET.bytes));
}

#[test]
fn more_is_for_those_who_use_what_there_is_and_less_is_for_all() {
    let (mut c, mut m) = used();
    c.hear(at(1_000), 100_000);
    assert_eq!(c.window_bytes(), 110_000, "in use");
    // A short flow after a rest: routers are asked once, and what they leave is not taken.
    let wishes = send(&mut c, &mut m, 2_000, 2_010);
    assert_eq!(wishes.iter().filter(|w| **w == i32::MAX).count(), 1, "{wishes:?}");
    c.hear(at(2_100), 100_000);
    assert_eq!(c.window_bytes(), 110_000);
    c.hear(at(2_100), -100_000);
    assert_eq!(c.window_bytes(), 100_000);
    // One that goes on has use for it.
    let wishes = send(&mut c, &mut m, 3_000, 3_200);
    assert!(wishes.iter().filter(|w| **w == i32::MAX).count() > wishes.len() / 3);
    c.hear(at(3_200), 100_000);
    assert_eq!(c.window_bytes(), 110_000);
}

#[test]
fn silence_ends_it_and_a_word_brings_it_back_from_where_its_flows_are() {
    let (mut c, mut m) = used();
    c.doubt(Instant::ZERO, Doubt::Silent, 0);
    assert_eq!(c.rate_bps(), None);
    // Meanwhile its flows have clocks of their own, and send 30 packets in a round trip.
    for n in 0..60 {
        c.on_send(at(1_500 + n * 100 / 30), &mut m, PACKET, true);
    }
    c.hear(at(1_700), 0);
    let window = c.window_bytes();
    assert!((43_000..47_000).contains(&window), "{window}");
}

#[test]
fn the_round_trip_is_that_of_all_and_of_those_who_begin_after_a_rest() {
    let (mut c, _) = used();
    for n in 0..20 {
        c.on_rtt(at(1_000 + n), RTT * 2);
    }
    assert!(c.rate_bps().is_some_and(|bps| (3_990_000..4_100_000).contains(&bps)), "a queue slows it down");
    c.on_rtt(at(5_000), RTT);
    assert_eq!(c.rate_bps(), Some(8_000_000), "what was measured in the queue says nothing any more");
}

#[test]
fn no_rest_and_no_round_trip_is_too_long_or_too_short() {
    let (mut c, mut m) = used();
    for rtt in [Duration::ZERO, Duration::from_nanos(1), Duration::from_secs(1 << 33)] {
        c.on_rtt(at(2_000), rtt);
        c.on_send(at(2_000), &mut m, PACKET, true);
        for change in [i32::MIN, i32::MAX, 0] {
            c.hear(at(2_000), change);
        }
    }
    c.on_send(Instant::FAR_FUTURE, &mut m, WireSize { bytes: u32::MAX, packets: 0 }, true);
    c.hear(Instant::FAR_FUTURE, i32::MAX);
    assert!(c.packet_bytes() > 0 && c.flows() > 0);
}
