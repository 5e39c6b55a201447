//! The estimate of a link's rate against a link of packets: first burst, steady sending, losses,
//! changes of the rate.

mod common;

use core::time::Duration;

use common::model::Model;
use farlink_egress::{RateEstimate, Report};
use farlink_wire::time::Instant;

#[test]
fn the_first_burst_tells_the_rate_within_one_round_trip() {
    for rate in [384_000, 1_536_000, 8_000_000, 100_000_000, 1_000_000_000] {
        for rtt_ms in [50, 250, 500] {
            let mut m = Model::new(rate, rtt_ms);
            let four_packets = Duration::from_nanos(5 * 12_000 * 1_000_000_000 / rate);
            m.run(m.rtt() + m.interval * 2 + four_packets);
            assert!((97..=103).contains(&m.percent()), "{rate} bit/s, {rtt_ms} ms: {} %", m.percent());
        }
    }
}

#[test]
fn the_link_is_kept_full_and_its_queue_short() {
    for rate in [384_000, 8_000_000, 100_000_000] {
        let mut m = Model::new(rate, 500);
        m.run(Duration::from_secs(3));
        m.waited_max = Duration::ZERO;
        let used = m.use_percent(Duration::from_secs(60));
        assert!(used >= 98, "{rate} bit/s: {used} %");
        let packets = Duration::from_nanos(6 * 12_000 * 1_000_000_000 / rate);
        assert!(m.waited_max < Duration::from_millis(100) + packets, "{rate} bit/s: {:?}", m.waited_max);
    }
}

#[test]
fn losses_say_nothing_about_the_rate() {
    for (loss_permille, least) in [(10, 96), (50, 90)] {
        let mut m = Model::new(8_000_000, 500);
        m.loss_permille = loss_permille;
        m.run(Duration::from_secs(3));
        // Delivered bytes: the lost ones are missing in any case.
        let used = m.use_percent(Duration::from_secs(60));
        assert!(used >= least, "{loss_permille} per mille lost: {used} %");
    }
}

#[test]
fn a_rate_that_drops_is_noticed_within_two_round_trips() {
    for divisor in [2, 4, 10] {
        let mut m = Model::new(8_000_000, 500);
        m.run(Duration::from_secs(10));
        m.rate_bps /= divisor;
        m.run(m.rtt() * 2);
        assert!(m.percent() < 130, "divided by {divisor}: {} %", m.percent());
        m.run(Duration::from_secs(20));
        m.waited_max = Duration::ZERO;
        let used = m.use_percent(Duration::from_secs(30));
        assert!(used >= 97, "divided by {divisor}: {used} %");
        assert!(
            m.waited_max < Duration::from_millis(250),
            "divided by {divisor}: {:?} in the queue",
            m.waited_max
        );
    }
}

#[test]
fn a_rate_that_rises_is_found() {
    for factor in [2, 10] {
        let mut m = Model::new(2_000_000, 500);
        m.run(Duration::from_secs(10));
        m.rate_bps *= factor;
        m.run(Duration::from_secs(15));
        assert!((95..=105).contains(&m.percent()), "times {factor}: {} %", m.percent());
    }
}

#[test]
fn what_waits_before_the_link_is_known() {
    let mut m = Model::new(384_000, 500);
    m.run(Duration::from_millis(900));
    assert!(m.has_backlog(), "a burst of 32 packets takes a second");
    m.run(Duration::from_secs(10));
    assert!(!m.has_backlog());
}

/// A report tells what waited a round trip ago. What has left since is known here: nothing, and the
/// queue is empty.
#[test]
fn a_burst_that_has_gone_over_the_link_waits_no_longer() {
    let mut m = Model::new(8_000_000, 500);
    while m.estimate.rate_bps().is_none() {
        m.run(Duration::from_millis(1));
    }
    assert!(m.waited_max > Duration::from_millis(40) && !m.has_backlog());
    // What leaves now faster than the link takes it stands there.
    m.rate_bps /= 2;
    m.run(Duration::from_millis(800));
    assert!(m.has_backlog());
}

/// Where the link holds less than a packet, a rate takes many round trips to show.
#[test]
fn a_short_slow_link_that_becomes_slower_is_noticed() {
    for (rtt_us, before, after) in
        [(20_000, 2_000_000, 400_000), (300, 100_000_000, 20_000_000), (300, 8_000_000, 384_000)]
    {
        let mut m = Model::near(before, Duration::from_micros(rtt_us));
        m.run(Duration::from_secs(10));
        m.rate_bps = after;
        m.run(Duration::from_secs(5));
        assert!(m.percent() < 130, "{rtt_us} us, {before} to {after}: {} %", m.percent());
        m.run(Duration::from_secs(20));
        m.waited_max = Duration::ZERO;
        let used = m.use_percent(Duration::from_secs(30));
        assert!(used >= 97, "{rtt_us} us, {before} to {after}: {used} %");
        let packets = Duration::from_nanos(8 * 12_000 * 1_000_000_000 / after);
        let most = Duration::from_millis(20) + packets;
        assert!(m.waited_max < most, "{rtt_us} us, {before} to {after}: {:?} in the queue", m.waited_max);
    }
}

#[test]
fn a_short_link_that_becomes_faster_is_noticed() {
    for (rtt_us, before, after) in
        [(300, 20_000_000, 100_000_000), (20_000, 400_000, 2_000_000), (300, 400_000, 8_000_000)]
    {
        let mut m = Model::near(before, Duration::from_micros(rtt_us));
        m.run(Duration::from_secs(10));
        m.rate_bps = after;
        m.run(Duration::from_secs(30));
        assert!((95..=105).contains(&m.percent()), "{rtt_us} us, {before} to {after}: {} %", m.percent());
        let used = m.use_percent(Duration::from_secs(10));
        assert!(used >= 97, "{rtt_us} us, {before} to {after}: {used} %");
    }
}

/// The machine at the far end was busy when the first burst came: it took thirty times as long as
/// on the link.
#[test]
fn a_first_estimate_that_was_wrong_is_corrected() {
    for rtt_us in [300, 2_000, 20_000] {
        let mut m = Model::near(24_000_000, Duration::from_micros(rtt_us));
        // And it stayed busy for a while.
        m.run(Duration::from_millis(200));
        assert!(m.estimate.rate_bps().is_some_and(|rate| rate < 30_000_000));
        m.rate_bps = 800_000_000;
        m.run(Duration::from_secs(5));
        assert!((95..=105).contains(&m.percent()), "{rtt_us} us: {} %", m.percent());
    }
}

#[test]
fn what_nobody_confirms_is_forgotten() {
    let mut m = Model::new(8_000_000, 500);
    m.run(Duration::from_secs(3));
    assert!(m.estimate.rate_bps().is_some());
    let later = m.now + Duration::from_secs(599);
    m.estimate.handle_timeout(later);
    assert!(m.estimate.rate_bps().is_some());
    m.estimate.handle_timeout(later + Duration::from_secs(2));
    assert_eq!((m.estimate.rate_bps(), m.estimate.poll_timeout()), (None, None));
}

/// Too little was sent to fill the link. What others send later is not held to that.
#[test]
fn a_search_of_which_nothing_more_is_told_is_over() {
    // 5,000 bytes in an eighth of a round trip: 640 kbit/s.
    let report = |at: Instant, n: u32| Report {
        peer: 1,
        arrived_us: (at - Duration::from_millis(250)).since(Instant::ZERO).as_micros() as u32,
        received_bytes: 5_000 * n,
        sent_at: Some(at - Duration::from_millis(500)),
        sent_again: false,
        place: (0, 0, 0),
        min_rtt: Some(Duration::from_millis(500)),
        of_host: false,
        waited_back: Duration::ZERO,
        back_is_slow: false,
    };
    let mut estimate = RateEstimate::default();
    let at = |n: u32| Instant::from_millis(1_000) + Duration::from_micros(62_500) * n;
    for n in 0..100 {
        estimate.note_sent(at(n), u64::from(5_000 * n), 0);
        estimate.on_report(at(n), &report(at(n), n), None);
        estimate.handle_timeout(at(n));
    }
    assert!(estimate.rate_bps().is_some() && !estimate.is_known(), "the link was never full");
    assert_eq!(estimate.sending_bps(), Some(96_000 * 8 * 2), "so much in a round trip at least");
    // As long as nobody else sends it may go on later.
    for n in 100..300 {
        estimate.note_sent(at(n), 500_000, 0);
        estimate.handle_timeout(at(n));
        assert!(estimate.poll_timeout().is_some_and(|next| next > at(n)));
    }
    assert!(estimate.rate_bps().is_some());
    for n in 300..500 {
        estimate.note_sent(at(n), u64::from(500_000 + 10_000 * (n - 300)), u64::from(10_000 * (n - 300)));
        estimate.handle_timeout(at(n));
    }
    assert_eq!((estimate.sending_bps(), estimate.poll_timeout()), (None, None));
    // The next transfer begins another one.
    for n in 500..520 {
        estimate.note_sent(at(n), u64::from(2_500_000 + 5_000 * (n - 500)), 2_000_000);
        estimate.on_report(at(n), &report(at(n), n), None);
    }
    assert!(estimate.sending_bps().is_some());
}

/// The far gateway starts again, by a name that it had before: its clock begins anew.
#[test]
fn a_clock_that_begins_anew_is_noticed_at_once() {
    for back_us in [3_000_000, 1_000_000_000] {
        let mut m = Model::new(8_000_000, 500);
        m.run(Duration::from_secs(20));
        (m.clock_us, m.received_bytes) = (m.clock_us.wrapping_sub(back_us), 0);
        m.run(Duration::from_secs(2));
        m.rate_bps /= 2;
        m.run(Duration::from_secs(6));
        assert!((95..=105).contains(&m.percent()), "{back_us} us: {} %", m.percent());
    }
}

/// The far gateway's clock is told modulo 2^32 microseconds: after 40 minutes without a word it
/// seems to have gone back.
#[test]
fn a_long_silence_before_the_first_estimate_does_no_harm() {
    let report = |at: Instant| Report {
        peer: 1,
        arrived_us: at.since(Instant::ZERO).as_micros() as u32,
        received_bytes: (at.since(Instant::ZERO).as_micros() as u32).wrapping_mul(2),
        sent_at: Some(at - Duration::from_millis(250)),
        sent_again: false,
        place: (0, 0, 0),
        min_rtt: Some(Duration::from_millis(500)),
        of_host: false,
        waited_back: Duration::ZERO,
        back_is_slow: false,
    };
    let mut estimate = RateEstimate::default();
    estimate.on_report(Instant::from_millis(1000), &report(Instant::from_millis(1000)), None);
    let later = Instant::from_millis(1000 + 40 * 60_000);
    for n in 0..20 {
        let at = later + Duration::from_millis(62 * n);
        estimate.on_report(at, &report(at), Some(later));
    }
    assert!(estimate.samples() > 10, "{} samples", estimate.samples());
}

#[test]
fn odd_numbers_do_no_harm() {
    let mut m = Model::new(8_000_000, 500);
    m.run(Duration::from_secs(3));
    let at = |ms: u64| Instant::from_millis(4000 + ms);
    for (n, arrived_us) in [0, u32::MAX, 1 << 31, 12_345].into_iter().enumerate() {
        let report = Report {
            peer: 1,
            arrived_us,
            received_bytes: 0,
            sent_at: (n % 2 == 0).then(|| at(n as u64)),
            sent_again: false,
            place: (0, 0, 0),
            min_rtt: Some(Duration::ZERO),
            of_host: false,
            waited_back: Duration::ZERO,
            back_is_slow: false,
        };
        m.estimate.on_report(at(500), &report, None);
    }
    assert!(m.estimate.sending_bps().is_some_and(|rate| rate > 0));
    for peer in 0..1000 {
        let report = Report {
            peer,
            arrived_us: 0,
            received_bytes: 0,
            sent_at: Some(at(0)),
            sent_again: false,
            place: (0, 0, 0),
            min_rtt: None,
            of_host: false,
            waited_back: Duration::ZERO,
            back_is_slow: false,
        };
        m.estimate.on_report(at(600), &report, None);
    }
}

/// Two gateways behind one link receive half of it each: the link's rate is the sum.
#[test]
fn gateways_behind_one_link_share_it() {
    let mut estimate = RateEstimate::default();
    let at = Instant::from_millis;
    for n in 0..40u32 {
        let sent_at = at(1000 + 50 * u64::from(n / 2));
        // The queue grows by 25 ms in each 50 ms: the link is full.
        let arrived_us = 1_000_000 + 75_000 * (n / 2);
        let report = Report {
            peer: 1 + n % 2,
            arrived_us,
            received_bytes: 37_500 * (n / 2),
            sent_at: Some(sent_at),
            sent_again: false,
            place: (0, 0, 0),
            min_rtt: Some(Duration::from_millis(200)),
            of_host: false,
            waited_back: Duration::ZERO,
            back_is_slow: false,
        };
        estimate.on_report(sent_at + Duration::from_millis(250), &report, Some(Instant::ZERO));
    }
    let rate = estimate.rate_bps().unwrap();
    assert!((7_800_000..=8_200_000).contains(&rate), "{rate}");
}

/// A repetition that was not the one that arrived makes the one-way delay look too short: it does
/// not count as the smallest.
#[test]
fn repetitions_do_not_count_as_short_delays() {
    let mut m = Model::new(8_000_000, 500);
    m.run(Duration::from_secs(5));
    for n in 0..20 {
        let (arrived, sent_at) = (m.now - m.one_way, m.now - Duration::from_millis(10));
        m.received_bytes = m.received_bytes.wrapping_add(60_000);
        let report = Report {
            peer: 1,
            arrived_us: (arrived.since(Instant::ZERO).as_micros() as u32).wrapping_add(0xfff0_0000),
            received_bytes: m.received_bytes,
            sent_at: Some(sent_at),
            sent_again: true,
            place: (0, 0, 0),
            min_rtt: Some(m.rtt()),
            of_host: false,
            waited_back: Duration::ZERO,
            back_is_slow: false,
        };
        m.estimate.on_report(m.now + Duration::from_millis(n), &report, Some(Instant::ZERO));
        m.run(Duration::from_millis(60));
    }
    m.run(Duration::from_secs(5));
    let used = m.use_percent(Duration::from_secs(20));
    assert!(used >= 97, "{used} %");
}
