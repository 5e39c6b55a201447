//! One queue, packet by packet: what it gives, and what it makes of nonsense.

use farlink_wire::xcp::{HeaderTime, XcpFields};
use farlink_wire::{Duration, Instant, WireSize};
use farlink_xcp::{Config, NO_WISH, Receiver, Router, Sender, Sums};

const RTT_MS: u64 = 100;

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

fn said(spacing_ms: f64, rtt_ms: f64, delta_bytes_per_s: i32) -> XcpFields {
    XcpFields {
        spacing: HeaderTime::of_seconds(spacing_ms / 1e3),
        rtt: HeaderTime::of_seconds(rtt_ms / 1e3),
        delta_bytes_per_s,
    }
}

/// What all packets of one sender have got in each of 20 intervals of a queue of 8 Mbit/s: one
/// packet, or one super-segment of so many, in each 10 ms. Packets of 100 bytes.
fn given(said: &XcpFields, packets: u32) -> Vec<i64> {
    let mut router = Router::new(at(0), Config::of_rate(8_000_000));
    let size = WireSize { bytes: 100 * packets, packets };
    let mut per_interval = Vec::new();
    for interval in 0..20 {
        let mut sum = 0;
        for turn in 0..10 {
            let now = at(interval * RTT_MS + turn * 10);
            router.on_arrival(now, size, Some(said), 0);
            let left = router.on_departure(now, size, said, 0);
            assert_eq!((left.spacing, left.rtt), (said.spacing, said.rtt), "only the wish changes");
            assert!(left.delta_bytes_per_s <= said.delta_bytes_per_s, "nobody gets more than he wants");
            sum += i64::from(left.delta_bytes_per_s) * i64::from(packets);
        }
        per_interval.push(sum);
    }
    per_interval
}

#[test]
fn a_super_segment_counts_as_its_packets() {
    let ten_times = given(&said(1.0, 100.0, i32::MAX), 10);
    let mut router = Router::new(at(0), Config::of_rate(8_000_000));
    let (size, said) = (WireSize { bytes: 100, packets: 1 }, said(1.0, 100.0, i32::MAX));
    let mut sum = 0;
    for turn in 0..2_000 {
        let now = at(turn / 10 * 10);
        router.on_arrival(now, size, Some(&said), 0);
        sum += i64::from(router.on_departure(now, size, &said, 0).delta_bytes_per_s);
    }
    let whole: i64 = ten_times.iter().sum();
    assert!((sum - whole).abs() < whole / 20, "{sum} {whole}");
}

#[test]
fn what_is_cut_off_by_rounding_is_given_later() {
    // The queue has 100 bytes/s more than is used: 0.4 of them for ten packets, hardly less than 4
    // for each. Cut off, it would be 3.
    let mut router = Router::new(at(0), Config::of_rate(8 * 10_100));
    let (size, said) = (WireSize { bytes: 100, packets: 1 }, said(10.0, 100.0, i32::MAX));
    let mut sum = 0;
    for ms in (0..20_000).step_by(10) {
        router.on_arrival(at(ms), size, Some(&said), 0);
        let left = router.on_departure(at(ms), size, &said, 0);
        sum += if ms < 200 { 0 } else { i64::from(left.delta_bytes_per_s) };
    }
    assert!((sum - 4 * 1_980).abs() < 10, "{sum}");
}

#[test]
fn who_says_no_spacing_gets_nothing_and_who_wants_nothing_leaves_it_to_others() {
    assert!(given(&said(0.0, 100.0, i32::MAX), 1).iter().all(|sum| *sum <= 0));
    assert!(given(&said(10.0, 100.0, 0), 1).iter().all(|sum| *sum <= 0));
    // Two senders alike, of whom only one wants more.
    let mut router = Router::new(at(0), Config::of_rate(8_000_000));
    let size = WireSize { bytes: 100, packets: 1 };
    let wishes = [said(10.0, 100.0, i32::MAX), said(10.0, 100.0, 0)];
    let mut sums = [0i64; 2];
    for ms in (0..5_000).step_by(10) {
        for (sum, said) in sums.iter_mut().zip(&wishes) {
            router.on_arrival(at(ms), size, Some(said), 0);
            *sum += i64::from(router.on_departure(at(ms), size, said, 0).delta_bytes_per_s);
        }
    }
    assert!(sums[0] > 0 && sums[1].abs() <= 1_000, "{sums:?}");
}

#[test]
fn who_is_slower_than_he_wants_to_be_is_never_told_less_than_he_asks() {
    // A wish below what the queue offers is left as it is.
    for sum in given(&said(10.0, 100.0, -7), 1) {
        assert_eq!(sum, -70);
    }
}

#[test]
fn a_queue_that_nobody_has_used_begins_anew() {
    let mut router = Router::new(at(0), Config::of_rate(8_000_000));
    let size = WireSize { bytes: 1_500, packets: 1 };
    router.on_arrival(at(1_000), size, Some(&said(10.0, 100.0, i32::MAX)), 0);
    // A packet without XCP knows no round trip, and the old one counts.
    router.on_arrival(at(90_000), size, None, 0);
    assert!(router.mean_rtt().abs_diff(Duration::from_millis(100)) < Duration::from_nanos(4));
    router.on_arrival(at(200_000), size, Some(&said(10.0, 600.0, i32::MAX)), 0);
    assert!(router.mean_rtt().abs_diff(Duration::from_millis(600)) < Duration::from_nanos(4));
    // After an age as after a moment.
    router.on_arrival(Instant::FAR_FUTURE, size, None, 0);
}

#[test]
fn traffic_without_xcp_takes_its_part() {
    let mut router = Router::new(at(0), Config::of_rate(8_000_000));
    let said = said(10.0, 100.0, i32::MAX);
    let mut last = 0;
    for interval in 0..20 {
        last = 0;
        for turn in 0..10 {
            let now = at(interval * RTT_MS + turn * 10);
            router.on_arrival(now, WireSize { bytes: 20_900, packets: 14 }, None, 0);
            router.note_departure(now, 0);
            let size = WireSize { bytes: 100, packets: 1 };
            router.on_arrival(now, size, Some(&said), 0);
            last += i64::from(router.on_departure(now, size, &said, 0).delta_bytes_per_s);
        }
    }
    assert!(last < 0, "twice of what the link carries comes: {last}");
}

/// Draft section 2.1: a round trip of 0 is one that is not known.
#[test]
fn who_knows_no_round_trip_yet_wishes_for_nothing_and_is_answered_nothing() {
    let size = WireSize { bytes: 1_000, packets: 1 };
    let mut sender = Sender::new(at(0), 1_000, u64::MAX);
    let unknown = sender.on_send(at(0), size, true);
    assert_eq!((unknown.rtt, unknown.delta_bytes_per_s), (HeaderTime::UNKNOWN, NO_WISH));
    sender.set_rtt(Duration::from_nanos(1));
    assert_ne!(sender.on_send(at(0), size, true).rtt, HeaderTime::UNKNOWN, "however short it is");
    // A queue with twice of what it can carry takes from all but from them.
    let mut router = Router::new(at(0), Config::of_rate(8_000_000));
    let (mut receiver, mut taken) = (Receiver::default(), 0);
    for n in 0..1_000 {
        for fields in [said(1.0, RTT_MS as f64, 0), unknown, XcpFields { delta_bytes_per_s: 77, ..unknown }] {
            router.on_arrival(at(n), size, Some(&fields), 50_000);
            let left = router.on_departure(at(n), size, &fields, 50_000);
            if fields.rtt == HeaderTime::UNKNOWN {
                assert_eq!(left, fields);
                receiver.on_packets(1, &left);
            }
            taken += i64::from(left.delta_bytes_per_s.min(0));
        }
    }
    assert!(taken < -1_000_000, "{taken}");
    assert_eq!(receiver.sum(), 0, "and they are no answer");
}

/// A cheap source of odd numbers.
struct Odd(u64);

impl Odd {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let word = (self.0 >> 32) as u32;
        match word % 5 {
            0 => 0,
            1 => u32::MAX,
            2 => i32::MIN.cast_unsigned(),
            _ => word.rotate_left(word % 31),
        }
    }
}

#[test]
fn nonsense_does_no_harm() {
    for seed in 0..200 {
        let mut odd = Odd(seed);
        let mut now = at(0);
        let mut router = Router::new(now, Config::of_rate(u64::from(odd.next()) * 1_000));
        let mut sender = Sender::new(now, odd.next(), u64::from(odd.next()) << (odd.next() % 12));
        let (mut receiver, mut sums) = (Receiver::default(), Sums::of_new_flow());
        for _ in 0..400 {
            now += Duration::from_micros(u64::from(odd.next() % 2_000_000));
            let size = WireSize { bytes: odd.next(), packets: odd.next() };
            let forged = XcpFields {
                spacing: HeaderTime(odd.next()),
                rtt: HeaderTime(odd.next()),
                delta_bytes_per_s: odd.next().cast_signed(),
            };
            let said = if odd.next().is_multiple_of(2) { forged } else { sender.on_send(now, size, true) };
            let queue_bytes = u64::from(odd.next()) * u64::from(odd.next());
            match odd.next() % 6 {
                0 => router.note_departure(now, queue_bytes),
                1 => router.set_capacity(u64::from(odd.next())),
                2 => sender.set_rtt(Duration::from_micros(u64::from(odd.next()))),
                3 => sender.change(odd.next().cast_signed(), (0, u64::MAX)),
                4 => router.on_arrival(
                    now,
                    size,
                    Some(&said).filter(|_| odd.next().is_multiple_of(2)),
                    queue_bytes,
                ),
                _ => {
                    let left = router.on_departure(now, size, &said, queue_bytes);
                    assert!(left.delta_bytes_per_s <= said.delta_bytes_per_s);
                    receiver.on_packets(size.packets, &left);
                    let change = sums.hear(receiver.sum(), u64::from(odd.next()));
                    sender.change(change, (0, u64::MAX));
                }
            }
            assert!(router.mean_rtt() <= Duration::from_secs(1));
        }
    }
}
