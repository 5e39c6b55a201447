//! What the RFCs demand of single events.

use farlink_cc::{Ack, Config, Congestion, Controller, Kind, Lost, Sample};
use farlink_wire::time::{Duration, Instant};

const MSS: u64 = 1000;
const RTT: Duration = Duration::from_millis(100);

fn controller(kind: Kind) -> Controller {
    Controller::new(&Config { kind, mss: 1000, hystart: false, ..Config::default() })
}

/// One round trip with the window full, one ACK per two segments.
fn round(c: &mut Controller, now: &mut Instant) {
    let cwnd = c.cwnd_bytes();
    let mut left = cwnd;
    let mut first = true;
    c.on_sent(*now, cwnd, cwnd, false);
    while left > 0 {
        let acked = left.min(2 * MSS);
        left -= acked;
        *now += Duration::from_nanos(100_000_000 * acked / cwnd);
        c.on_ack(&ack(*now, acked, cwnd, first));
        first = false;
    }
}

fn ack(now: Instant, acked_bytes: u64, prior: u64, round_start: bool) -> Ack {
    Ack {
        now,
        acked_bytes,
        rtt: Some(RTT),
        srtt: RTT,
        min_rtt: RTT,
        in_flight_bytes: prior.saturating_sub(acked_bytes),
        prior_in_flight_bytes: prior,
        sample: Sample::default(),
        app_limited: false,
        in_recovery: false,
        round_start,
        waited_back: None,
    }
}

fn grown(kind: Kind, rounds: u32) -> (Controller, Instant) {
    let mut c = controller(kind);
    let mut now = Instant::from_millis(1);
    for _ in 0..rounds {
        round(&mut c, &mut now);
    }
    (c, now)
}

#[test]
fn slow_start_doubles_per_round_trip() {
    for kind in [Kind::NewReno, Kind::Cubic] {
        for rounds in 0..8 {
            let (c, _) = grown(kind, rounds);
            assert_eq!(c.cwnd_bytes(), (10 * MSS) << rounds, "{kind}");
            assert!(c.in_slow_start());
            assert_eq!(c.ssthresh_bytes(), u64::MAX);
        }
    }
}

#[test]
fn slow_start_stops_at_ssthresh_exactly() {
    let (mut c, mut now) = grown(Kind::NewReno, 3);
    c.on_rto(now, 80 * MSS, 0);
    assert_eq!(c.ssthresh_bytes(), 40 * MSS);
    c.on_ack(&ack(now, MSS, MSS, true));
    assert_eq!(c.cwnd_bytes(), 2 * MSS);
    for expected in [4, 8, 16, 32, 40] {
        round(&mut c, &mut now);
        assert_eq!(c.cwnd_bytes(), expected * MSS);
    }
}

#[test]
fn reno_halves_and_adds_one_segment_per_round_trip() {
    let (mut c, mut now) = grown(Kind::NewReno, 4);
    assert_eq!(c.cwnd_bytes(), 160 * MSS);
    c.on_congestion(now, Congestion::Loss, 160 * MSS);
    assert_eq!((c.cwnd_bytes(), c.ssthresh_bytes()), (80 * MSS, 80 * MSS));
    // Once per recovery.
    c.on_congestion(now, Congestion::Ecn, 80 * MSS);
    assert_eq!(c.cwnd_bytes(), 80 * MSS);
    // PRR's business meanwhile.
    c.on_ack(&Ack { in_recovery: true, ..ack(now, 40 * MSS, 80 * MSS, true) });
    assert_eq!(c.cwnd_bytes(), 80 * MSS);
    c.on_recovery_exit(now);
    for i in 1..=50 {
        round(&mut c, &mut now);
        assert!((80 + i - 1..=80 + i).contains(&(c.cwnd_bytes() / MSS)), "{i}: {}", c.cwnd_bytes());
    }
}

#[test]
fn cubic_keeps_seven_tenths() {
    let (mut c, now) = grown(Kind::Cubic, 4);
    c.on_congestion(now, Congestion::Loss, 160 * MSS);
    assert_eq!(c.cwnd_bytes(), 112 * MSS);
    assert_eq!(c.ssthresh_bytes(), 112 * MSS);
}

#[test]
fn the_flight_counts_not_the_window() {
    let (mut c, mut now) = grown(Kind::NewReno, 5);
    assert_eq!(c.cwnd_bytes(), 320 * MSS);
    // Two round trips with 100 segments in flight.
    for _ in 0..3 {
        now += RTT;
        c.on_ack(&ack(now, 100 * MSS, 100 * MSS, true));
    }
    c.on_congestion(now, Congestion::Loss, 100 * MSS);
    assert_eq!(c.ssthresh_bytes(), 50 * MSS);
}

#[test]
fn never_below_two_segments_but_one_after_a_time_out() {
    for kind in [Kind::NewReno, Kind::Cubic] {
        let (mut c, now) = grown(kind, 1);
        for _ in 0..20 {
            c.on_congestion(now, Congestion::Loss, 1);
            c.on_recovery_exit(now);
        }
        assert_eq!((c.cwnd_bytes(), c.ssthresh_bytes()), (2 * MSS, 2 * MSS), "{kind}");
        c.on_rto(now, MSS, 0);
        assert_eq!((c.cwnd_bytes(), c.ssthresh_bytes()), (MSS, 2 * MSS), "{kind}");
    }
}

#[test]
fn repeated_time_outs_hold_ssthresh() {
    let (mut c, now) = grown(Kind::NewReno, 4);
    c.on_rto(now, 160 * MSS, 0);
    for _ in 0..5 {
        c.on_rto(now, MSS, 0);
    }
    assert_eq!(c.ssthresh_bytes(), 80 * MSS);
    // And all of it can be undone.
    c.undo(now);
    assert_eq!((c.cwnd_bytes(), c.ssthresh_bytes()), (160 * MSS, u64::MAX));
}

#[test]
fn spurious_reductions_are_undone_once() {
    for kind in [Kind::NewReno, Kind::Cubic] {
        let (mut c, mut now) = grown(kind, 4);
        c.on_congestion(now, Congestion::Loss, 160 * MSS);
        c.on_recovery_exit(now);
        for _ in 0..3 {
            round(&mut c, &mut now);
        }
        let before = (c.cwnd_bytes(), c.ssthresh_bytes());
        c.on_rto(now, 100 * MSS, 0);
        c.undo(now);
        assert_eq!((c.cwnd_bytes(), c.ssthresh_bytes()), before, "{kind}");
        c.undo(now);
        assert_eq!((c.cwnd_bytes(), c.ssthresh_bytes()), before, "{kind}");
        round(&mut c, &mut now);
        assert!(
            c.cwnd_bytes() >= before.0 && c.cwnd_bytes() <= before.0 + 3 * MSS,
            "{kind}: {}",
            c.cwnd_bytes()
        );
    }
}

#[test]
fn idle_decays_to_the_restart_window() {
    let (mut c, now) = grown(Kind::Cubic, 4);
    let rto = Duration::from_millis(300);
    c.on_idle_restart(now, Duration::from_millis(299), rto);
    assert_eq!(c.cwnd_bytes(), 160 * MSS);
    c.on_idle_restart(now, Duration::from_millis(650), rto);
    assert_eq!(c.cwnd_bytes(), 40 * MSS);
    c.on_idle_restart(now, Duration::from_secs(3600), rto);
    assert_eq!(c.cwnd_bytes(), 10 * MSS);
    assert_eq!(c.ssthresh_bytes(), u64::MAX);
    c.on_idle_restart(now, Duration::from_secs(3600), Duration::ZERO);
    assert_eq!(c.cwnd_bytes(), 10 * MSS);
}

#[test]
fn pacing_as_linux() {
    let (c, _) = grown(Kind::NewReno, 4);
    assert_eq!(c.pacing_rate_bps(Duration::ZERO), None);
    // 160,000 bytes per 100 ms, doubled.
    assert_eq!(c.pacing_rate_bps(RTT), Some(25_600_000));
    let (mut c, now) = grown(Kind::NewReno, 4);
    c.on_congestion(now, Congestion::Loss, 160 * MSS);
    assert_eq!(c.pacing_rate_bps(RTT), Some(80_000 * 80 * 12 / 10));
}

#[test]
fn fixed_rate_takes_no_notice() {
    let mut c = Controller::new(&Config {
        kind: Kind::FixedRate,
        fixed_rate_bps: Some(8_000_000),
        window_limit_bytes: 1 << 20,
        ..Config::default()
    });
    let now = Instant::from_millis(5);
    c.on_sent(now, 1000, 1000, false);
    c.on_congestion(now, Congestion::Loss, 1 << 20);
    c.on_rto(now, 1 << 20, 0);
    c.on_idle_restart(now, Duration::from_secs(10), RTT);
    assert_eq!((c.cwnd_bytes(), c.ssthresh_bytes()), (1 << 20, 1 << 20));
    assert_eq!(c.pacing_rate_bps(RTT), Some(8_000_000));
    assert!(!c.in_slow_start());
}

#[test]
fn unfair_keeps_the_window_that_it_was_given() {
    let window = |unfair_window_bytes| {
        let mut c = Controller::new(&Config {
            kind: Kind::Unfair,
            unfair_window_bytes,
            window_limit_bytes: 1 << 20,
            fixed_rate_bps: Some(1),
            ..Config::default()
        });
        let now = Instant::from_millis(5);
        c.on_congestion(now, Congestion::Loss, 1 << 20);
        c.on_rto(now, 1 << 20, 0);
        assert_eq!(c.pacing_rate_bps(RTT), None, "it has no clock");
        assert_eq!(c.cwnd_bytes(), c.ssthresh_bytes());
        c.cwnd_bytes()
    };
    assert_eq!(window(Some(100_000)), 100_000);
    assert_eq!(window(Some(1 << 30)), 1 << 20, "the limit is the limit");
    assert_eq!(window(None), 1 << 20);
    assert_eq!(window(Some(1)), 2 * 1460, "two segments, so that the receiver acknowledges without delay");
}

#[test]
fn mss_changes() {
    let mut c = controller(Kind::Cubic);
    c.set_mss(500);
    assert_eq!(c.cwnd_bytes(), 5_000, "the initial window is counted in segments");
    let (mut c, _) = grown(Kind::Cubic, 3);
    c.set_mss(8000);
    assert_eq!(c.cwnd_bytes(), 80 * MSS, "later it is bytes");
}

#[test]
fn names() {
    for kind in Kind::ALL {
        assert_eq!(kind.name().parse::<Kind>(), Ok(*kind));
    }
    let error = "bbr9".parse::<Kind>().unwrap_err().to_string();
    assert_eq!(
        error,
        "unknown congestion control \"bbr9\"; known are reno, cubic, hybla, vegas, bbr, cubic-bbr, fixed-rate, xcp, unfair"
    );
}

#[test]
fn small() {
    assert!(size_of::<Controller>() <= 32);
}

/// Any order of events, sensible or not: the window stays within its bounds and nothing overflows.
#[test]
fn any_order_of_events() {
    let mut x = 0x9e37_79b9_7f4a_7c15_u64;
    let mut draw = move |n: u64| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x % n
    };
    for round in 0..200 {
        let kind = Kind::ALL[round % Kind::ALL.len()];
        let limit = 1 + draw(1 << 24);
        let mss = 1 + draw(9000) as u32;
        let mut c = Controller::new(&Config {
            kind,
            mss,
            initial_window_segments: draw(100) as u32,
            fixed_rate_bps: None,
            window_limit_bytes: limit,
            unfair_window_bytes: (draw(2) == 0).then(|| draw(1 << 24)),
            selective_acks: draw(2) == 0,
            seed: draw(u64::MAX),
            acks_wait: Duration::ZERO,
            handshake_rtt: (draw(2) == 0).then(|| Duration::from_nanos(draw(1 << 36))),
            hystart: draw(2) == 0,
        });
        let mut now = Instant::from_millis(draw(1000));
        let mut mss = u64::from(mss);
        let mut mss_max = mss;
        for _ in 0..500 {
            let scale = 1 + draw(40);
            now += Duration::from_nanos(draw(1 << scale));
            let amount = if draw(50) == 0 { u64::MAX / 4 } else { draw(1 << 22) };
            match draw(13) {
                0 => c.on_congestion(
                    now,
                    if draw(2) == 0 { Congestion::Loss } else { Congestion::Ecn },
                    amount,
                ),
                1 => c.on_rto(now, amount, 0),
                2 => c.on_recovery_exit(now),
                3 => c.undo(now),
                4 => {
                    c.on_idle_restart(now, Duration::from_nanos(amount), Duration::from_nanos(draw(1 << 30)))
                }
                5 => {
                    mss = draw(9000);
                    mss_max = mss_max.max(mss);
                    c.set_mss(mss as u32);
                }
                6 => c.on_sent(now, draw(70_000), amount, draw(2) == 0),
                7 => c.on_lost(&Lost {
                    now,
                    bytes: draw(70_000),
                    segments: 1,
                    tx_in_flight_bytes: draw(1 << scale),
                    lost_since_sent_bytes: amount,
                    app_limited: draw(2) == 0,
                    continues: draw(2) == 0,
                    delivered_bytes: amount,
                }),
                _ => c.on_ack(&Ack {
                    app_limited: draw(3) == 0,
                    sample: Sample {
                        rate_bps: (draw(2) == 0).then(|| draw(1 << scale)),
                        delivered_bytes: amount,
                        prior_delivered_bytes: draw(1 << scale),
                        tx_in_flight_bytes: draw(1 << scale),
                        lost_bytes: draw(1 << scale),
                        app_limited: draw(2) == 0,
                    },
                    rtt: (draw(2) == 0).then(|| Duration::from_nanos(draw(1 << 36))),
                    ..ack(now, amount, amount + draw(100_000), draw(10) == 0)
                }),
            }
            let cwnd = c.cwnd_bytes();
            assert!(
                cwnd >= mss.clamp(1, 2 * limit) && cwnd <= limit.max(2 * mss_max),
                "{kind} {cwnd} {limit} {mss}"
            );
            assert!(c.pacing_rate_bps(Duration::from_nanos(draw(1 << 36))) != Some(0));
        }
    }
}

#[test]
fn hybla_starts_with_rho_segments_and_a_threshold() {
    let start = |rtt_ms: u64| {
        let c = Controller::new(&Config {
            kind: Kind::Hybla,
            mss: 1000,
            handshake_rtt: Some(Duration::from_millis(rtt_ms)),
            ..Config::default()
        });
        (c.cwnd_bytes() / MSS, c.ssthresh_bytes())
    };
    assert_eq!(start(10), (10, 65_535), "below 25 ms it is NewReno, with RFC 6928's window");
    assert_eq!(start(600), (24, 24 * 65_535));
}
