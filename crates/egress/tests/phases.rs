//! The estimate of a link whose satellites take turns every 15 s: another delay, another rate, and
//! nothing for a moment between two.

mod common;

use core::time::Duration;

use common::model::Model;

/// Rates, one-way delays and times away, in ms.
const TURNS: [(u64, u64, u64); 8] = [
    (20_000_000, 30, 150),
    (75_000_000, 12, 200),
    (30_000_000, 25, 100),
    (24_000_000, 10, 180),
    (70_000_000, 28, 120),
    (22_000_000, 20, 200),
    (60_000_000, 11, 160),
    (65_000_000, 29, 140),
];
const PERIOD: Duration = Duration::from_secs(15);
const STEP: Duration = Duration::from_millis(5);

/// What waits before the link three round trips after it is back, until the next turn: the worst
/// hundredth of all moments; and the part of all turns that was used, percent.
fn turns(m: &mut Model) -> (Duration, u64) {
    let mut waits = Vec::new();
    let (mut could, before) = (0, m.delivered_bytes);
    for (rate_bps, delay_ms, away_ms) in TURNS {
        let (delay, away) = (Duration::from_millis(delay_ms), Duration::from_millis(away_ms));
        m.take_turns(away, rate_bps, delay);
        could += u128::from(rate_bps) * (PERIOD - away).as_millis() / 8_000;
        m.run(away + 3 * m.rtt());
        for _ in 0..(PERIOD - away - 3 * m.rtt()).as_millis() / STEP.as_millis() {
            m.run(STEP);
            waits.push(m.waits());
        }
    }
    waits.sort();
    let used = u128::from(m.delivered_bytes - before) * 100 / could;
    (waits[waits.len() * 99 / 100], u64::try_from(used).unwrap())
}

fn judge(mut m: Model) {
    m.run(PERIOD);
    let (waits, used) = turns(&mut m);
    assert!(waits <= Duration::from_millis(30), "{waits:?}, {used} % used");
    assert!(used >= 98, "{used} %");
}

#[test]
fn boundaries_are_found() {
    judge(Model::new(50_000_000, 40));
}

#[test]
fn boundaries_are_declared() {
    let mut m = Model::new(50_000_000, 40);
    m.estimate.set_period(Some(PERIOD));
    judge(m);
}

/// A link that loses what it is given while it is away is none: who sent little there would not see
/// that it is back. Nor is one that only becomes slower, or whose delay jitters.
#[test]
fn losses_and_slower_links_are_no_boundaries() {
    let mut m = Model::new(50_000_000, 40);
    m.run(Duration::from_secs(5));
    for _ in 0..5 {
        m.loss_permille = 1_000;
        m.run(Duration::from_millis(150));
        m.loss_permille = 0;
        m.run(Duration::from_secs(3));
    }
    for rate_bps in [25_000_000, 5_000_000, 50_000_000] {
        m.rate_bps = rate_bps;
        m.run(Duration::from_secs(5));
    }
    assert_eq!(m.estimate.phase_began(), None);
}

/// The rate of the phase before is the first guess of the next, and two samples of it are enough.
#[test]
fn the_rate_of_a_phase_is_known_within_three_round_trips() {
    let mut m = Model::new(50_000_000, 40);
    m.run(PERIOD);
    for (rate_bps, delay_ms, away_ms) in TURNS {
        m.take_turns(Duration::from_millis(away_ms), rate_bps, Duration::from_millis(delay_ms));
        m.run(Duration::from_millis(away_ms) + 3 * m.rtt().max(Duration::from_millis(30)));
        assert!((90..=110).contains(&m.percent()), "{rate_bps}: {} %", m.percent());
        m.run(PERIOD);
    }
}

/// A single packet that is held is no boundary where one is not due, and a small step is one where
/// it is.
#[test]
fn where_the_period_is_declared_the_moment_counts() {
    let mut m = Model::new(50_000_000, 40);
    m.estimate.set_period(Some(PERIOD));
    m.run(Duration::from_secs(5));
    m.take_turns(Duration::from_millis(150), 50_000_000, Duration::from_millis(20));
    m.run(Duration::from_secs(5));
    let began = m.estimate.phase_began().expect("the first one is found");
    m.take_turns(Duration::from_millis(150), 50_000_000, Duration::from_millis(20));
    m.run(Duration::from_secs(10));
    assert_eq!(m.estimate.phase_began(), Some(began), "none is due");
    m.take_turns(Duration::from_millis(30), 50_000_000, Duration::from_millis(20));
    m.run(Duration::from_secs(5));
    assert!(m.estimate.phase_began().is_some_and(|at| at > began), "one is due, and short");
}
