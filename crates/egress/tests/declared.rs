//! A link whose rate is declared: it carries that, less, or now this and now that.

mod common;

use core::time::Duration;

use common::model::Model;

const RATE_BPS: u64 = 8_000_000;
const RTT_MS: u64 = 500;
/// A packet of the model at 8 Mbit/s, and its tenfold.
const PACKET: Duration = Duration::from_micros(1_500);

fn declared(percent: u64) -> Model {
    Model::declared(RATE_BPS, RTT_MS, percent)
}

#[test]
fn a_link_that_carries_what_is_declared_is_left_alone() {
    for (loss_permille, other_percent) in [(0, 0), (1, 0), (10, 0), (50, 0), (0, 40), (10, 95)] {
        let mut m = declared(100);
        (m.loss_permille, m.other_percent) = (loss_permille, other_percent);
        m.run(Duration::from_secs(60));
        let what = format!("{loss_permille} per mille lost, {other_percent} % uncounted");
        assert!(m.estimate.is_as_declared(), "{what}: {} %", m.percent());
        assert_eq!(m.estimate.sending_bps(), Some(RATE_BPS), "{what}");
        assert_eq!(m.estimate.poll_timeout(), None, "{what}: there is nothing to wake up for");
    }
}

#[test]
fn a_link_that_carries_more_gets_what_is_declared() {
    let mut m = declared(90);
    m.run(Duration::from_secs(60));
    assert!(m.estimate.is_as_declared());
    assert!(m.waited_max < 2 * PACKET);
}

#[test]
fn what_is_declared_too_high_is_noticed_and_does_not_fill_the_queue_before_the_link() {
    for percent in [105, 110, 120, 200] {
        for other_percent in [0, 40] {
            let mut m = declared(percent);
            m.other_percent = other_percent;
            m.run(Duration::from_secs(5));
            let what = format!("{percent} %, {other_percent} % uncounted");
            assert!((96..=101).contains(&m.percent()), "{what}: {} %", m.percent());
            m.waited_max = Duration::ZERO;
            let used = m.use_percent(Duration::from_secs(60));
            assert!(used >= 98, "{what}: {used} %");
            // A link that carries so much less may be in the rain: it is tried harder.
            let most = Duration::from_millis(if percent >= 200 { 80 } else { 25 });
            assert!(m.waited_max < most, "{what}: {:?}", m.waited_max);
        }
    }
}

#[test]
fn a_link_that_becomes_slower_and_faster_again_is_followed() {
    for divisor in [2, 8] {
        let mut m = declared(100);
        m.run(Duration::from_secs(10));
        m.rate_bps = RATE_BPS / divisor;
        m.run(m.rtt() * 3);
        assert!(m.percent() < 115, "divided by {divisor}: {} %", m.percent());
        m.run(m.rtt() * (3 * divisor as u32));
        m.waited_max = Duration::ZERO;
        let used = m.use_percent(Duration::from_secs(50));
        assert!(used >= 97, "divided by {divisor}: {used} %");
        assert!(m.waited_max < Duration::from_millis(250), "divided by {divisor}: {:?}", m.waited_max);
        m.rate_bps = RATE_BPS;
        m.run(Duration::from_secs(10));
        assert!(m.percent() >= 97, "times {divisor}: {} %", m.percent());
        m.run(Duration::from_secs(20));
        assert!(m.estimate.is_as_declared(), "times {divisor}: {} %", m.percent());
    }
}

/// What is sent faster than a link carries it, and finds no room before it, seems to have been
/// carried: it arrives, as far as it does, as fast as it left.
#[test]
fn what_finds_no_room_before_a_link_that_became_slower_was_not_carried() {
    for (room_ms, loss_permille) in [(1_000, 0), (700, 0), (400, 0), (1_000, 10)] {
        let mut m = declared(100);
        (m.room, m.loss_permille) = (Duration::from_millis(room_ms), loss_permille);
        m.run(Duration::from_secs(6));
        m.interrupt(Duration::from_secs(2));
        m.rate_bps = RATE_BPS / 2;
        m.run(Duration::from_secs(4));
        for _ in 0..200 {
            m.run(Duration::from_millis(100));
            let what = format!("room for {room_ms} ms, {loss_permille} per mille lost");
            assert!(m.percent() < 120, "{what}, {:?}: {} %", m.now, m.percent());
        }
        let used = m.use_percent(Duration::from_secs(20));
        assert!(used >= 96, "room for {room_ms} ms: {used} %");
        m.rate_bps = RATE_BPS;
        m.run(Duration::from_secs(20));
        assert!(m.percent() >= 97, "faster again: {} %", m.percent());
    }
}

/// Twice: what one train has found may be a mistake.
#[test]
fn what_is_declared_too_low_is_found_by_short_trains() {
    for (rtt_ms, percent) in [(40, 50), (500, 50), (600, 50), (40, 25), (500, 25), (100, 75)] {
        let mut m = Model::declared(RATE_BPS, rtt_ms, percent);
        m.tries = true;
        m.run(Duration::from_secs(8) + m.rtt());
        assert_eq!(m.estimate.room_bps(), None, "{rtt_ms} ms, {percent} %: one train is none");
        m.run(Duration::from_secs(40));
        let room = m.estimate.room_bps().unwrap_or(0) * 100 / RATE_BPS;
        assert!((75..=106).contains(&room), "{rtt_ms} ms, {percent} %: {room} %");
        assert_eq!(m.estimate.rate_bps(), Some(RATE_BPS / 100 * percent), "it stays a limit");
        let most = Duration::from_millis(61);
        assert!(m.waited_max < most, "{rtt_ms} ms, {percent} %: {:?}", m.waited_max);
        // It is forgotten once the operator says another.
        m.estimate.declare(m.now, RATE_BPS);
        assert_eq!(m.estimate.room_bps(), None);
    }
}

/// And what a train in vain has left before the link goes soon.
#[test]
fn where_the_rate_is_right_a_train_finds_nothing_and_leaves_nothing() {
    for rtt_ms in [40, 500] {
        for (loss_permille, hosts_tell) in [(0, false), (10, false), (0, true)] {
            let mut m = Model::declared(RATE_BPS, rtt_ms, 100);
            (m.tries, m.loss_permille, m.hosts_tell) = (true, loss_permille, hosts_tell);
            m.run(Duration::from_secs(8) + m.rtt() * 5);
            assert!(m.waited_max < Duration::from_millis(61), "{:?}", m.waited_max);
            m.run(Duration::from_secs(4));
            assert!(m.waits() <= 4 * PACKET, "{rtt_ms} ms: {:?}", m.waits());
            m.waited_max = Duration::ZERO;
            let used = m.use_percent(Duration::from_secs(100));
            assert!(used >= 98, "{rtt_ms} ms: {used} %");
            assert!(m.waited_max < 8 * PACKET, "{rtt_ms} ms: the next comes much later: {:?}", m.waited_max);
            m.run(Duration::from_secs(1_000));
            assert_eq!(m.estimate.room_bps(), None);
            assert!(m.estimate.is_as_declared());
        }
    }
}

/// Whether the rate is declared, or found.
#[test]
fn what_stands_before_a_link_that_became_slower_is_gone_after_four_round_trips() {
    for mut m in [declared(100), Model::new(RATE_BPS, RTT_MS)] {
        m.run(Duration::from_secs(10));
        m.rate_bps = RATE_BPS / 2;
        m.run(m.rtt() * 3 / 2);
        assert!(m.waits() > m.rtt() / 2, "there is something to drain");
        m.run(m.rtt() * 5 / 2);
        assert!(m.waits() < m.rtt() / 10, "declared {}: {:?}", m.estimate.is_declared(), m.waits());
        let used = m.use_percent(m.rtt() * 10);
        assert!(used >= 97, "declared {}: {used} %", m.estimate.is_declared());
    }
}

/// A modem says at once what it carries from now on. What stands before it by then is no path.
#[test]
fn who_declares_another_rate_still_has_what_stands_before_the_link_drained() {
    let mut m = declared(100);
    m.run(Duration::from_secs(10));
    m.rate_bps = RATE_BPS / 2;
    m.run(m.rtt() / 2);
    m.estimate.declare(m.now, RATE_BPS / 2);
    assert_eq!(m.estimate.sending_bps(), Some(RATE_BPS / 2), "in force at once");
    m.run(m.rtt() * 3);
    assert!(m.waits() < m.rtt() / 10, "{:?}", m.waits());
    assert!(m.estimate.is_as_declared());
}

/// As a script does that asks a modem each second.
#[test]
fn who_declares_the_same_again_changes_nothing() {
    let mut m = declared(110);
    m.run(Duration::from_secs(5));
    m.waited_max = Duration::ZERO;
    for _ in 0..60 {
        m.estimate.declare(m.now, RATE_BPS / 100 * 110);
        m.run(Duration::from_secs(1));
        assert!((96..=101).contains(&m.percent()), "{} %", m.percent());
    }
    assert!(m.waited_max < Duration::from_millis(25), "{:?}", m.waited_max);
}

/// Nor who tells it a little higher or lower each time.
#[test]
fn who_declares_about_the_same_again_does_not_undo_what_was_found() {
    let mut m = declared(110);
    m.run(Duration::from_secs(5));
    m.waited_max = Duration::ZERO;
    for n in 0..60 {
        m.estimate.declare(m.now, RATE_BPS / 100 * (110 + n % 3));
        m.run(Duration::from_secs(1));
        assert!((96..=101).contains(&m.percent()), "{} %", m.percent());
    }
    assert!(m.waited_max < Duration::from_millis(45), "{:?}", m.waited_max);
    // Step by step it is another rate in the end.
    let mut declared_bps = RATE_BPS / 100 * 110;
    while declared_bps < RATE_BPS * 2 {
        declared_bps += declared_bps / 10;
        m.estimate.declare(m.now, declared_bps);
    }
    assert_eq!(m.estimate.rate_bps(), Some(declared_bps));
    // What it carries, or less, holds at once.
    m.estimate.declare(m.now, RATE_BPS);
    assert_eq!(m.estimate.sending_bps(), Some(RATE_BPS));
    m.estimate.declare(m.now, RATE_BPS / 2);
    assert_eq!(m.estimate.sending_bps(), Some(RATE_BPS / 2));
}

/// What stands before it may be less than it seems, each time.
#[test]
fn a_link_that_comes_and_goes_is_not_left_idle_for_a_queue() {
    let mut m = declared(100);
    m.run(Duration::from_secs(10));
    m.interrupt(Duration::from_secs(2));
    m.rate_bps = RATE_BPS / 2;
    for _ in 0..100 {
        m.run(Duration::from_millis(100));
        let (sending, rate) = (m.estimate.sending_bps().unwrap(), m.estimate.rate_bps().unwrap());
        assert!(sending * 100 >= rate * 40, "{sending} of {rate} bit/s");
    }
}

/// Each trial costs those that wait: who knows that they fail tries less.
#[test]
fn the_declared_rate_is_tried_again_and_ever_less_often() {
    let mut m = declared(120);
    m.run(Duration::from_secs(5));
    let mut trials = |seconds: u64| {
        let (mut trials, mut above) = (0, false);
        for _ in 0..seconds * 100 {
            m.run(Duration::from_millis(10));
            let is_above = m.estimate.sending_bps() > Some(RATE_BPS / 100 * 105);
            trials += u32::from(is_above && !above);
            above = is_above;
        }
        trials
    };
    let (early, late) = (trials(60), (trials(60), trials(60), trials(60)).2);
    assert!((2..=6).contains(&early), "{early} in the first minute");
    assert!((1..=2).contains(&late), "{late} in the fourth minute");
}

/// As when a satellite hands over to another one that is farther away.
#[test]
fn a_path_that_becomes_longer_is_no_queue_for_long() {
    let mut m = declared(100);
    m.run(Duration::from_secs(10));
    m.one_way += Duration::from_millis(40);
    m.run(Duration::from_secs(5));
    let used = m.use_percent(Duration::from_secs(20));
    assert!(used >= 99, "{used} %");
    assert!(m.estimate.is_as_declared(), "{} %", m.percent());
}

/// Connections that were there before go on with the round trip that they have measured.
#[test]
fn a_path_that_becomes_much_longer_does_not_slow_down_what_is_sent_for_long() {
    for (mut m, longer) in [
        (declared(100), 100),
        (Model::new(RATE_BPS, RTT_MS), 100),
        (declared(100), 250),
        (Model::new(RATE_BPS, RTT_MS), 250),
    ] {
        m.run(Duration::from_secs(10));
        m.measured_rtt = m.rtt();
        m.one_way += Duration::from_millis(longer);
        m.run(Duration::from_secs(5));
        let what = format!("declared {}, {longer} ms", m.estimate.is_declared());
        let used = m.use_percent(Duration::from_secs(20));
        assert!(used >= 95, "{what}: {used} %");
    }
}

/// It was short by a part of a round trip only, and a little more of it was taken for a part of the
/// path every half a minute.
#[test]
fn a_queue_that_stands_before_a_short_link_is_not_taken_for_the_path() {
    for percent in [101, 110] {
        let mut m = Model::declared(RATE_BPS, 50, percent);
        m.run(Duration::from_secs(600));
        m.waited_max = Duration::ZERO;
        let used = m.use_percent(Duration::from_secs(60));
        assert!(used >= 97, "{percent} %: {used} %");
        assert!(m.waited_max < Duration::from_millis(45), "{percent} %: {:?}", m.waited_max);
    }
}

/// It drifts by too little to show.
#[test]
fn a_rate_that_falls_by_a_percent_does_not_build_a_queue() {
    let mut m = declared(125);
    m.run(Duration::from_secs(10));
    m.rate_bps = RATE_BPS / 80 * 79;
    for _ in 0..60 {
        m.run(Duration::from_secs(1));
        assert!(m.waits() < Duration::from_millis(120), "{:?}", m.waits());
    }
}

#[test]
fn what_has_been_found_is_forgotten_in_favour_of_what_is_declared() {
    let mut m = declared(200);
    m.run(Duration::from_secs(5));
    assert!(!m.estimate.is_as_declared());
    let later = m.now + Duration::from_secs(601);
    assert!(m.estimate.poll_timeout().is_some_and(|at| at <= later));
    m.estimate.handle_timeout(later);
    assert_eq!((m.estimate.rate_bps(), m.estimate.poll_timeout()), (Some(2 * RATE_BPS), None));
}

/// A source that wants less than the link carries shows no rate, however long its packets take.
#[test]
fn little_to_send_is_no_slow_link() {
    let mut m = declared(100);
    m.demand_bps = 3_000_000;
    m.run(Duration::from_secs(10));
    m.one_way += Duration::from_millis(40);
    for _ in 0..600 {
        m.run(Duration::from_millis(100));
        assert!(m.estimate.is_as_declared(), "{} %", m.percent());
    }
}

/// Somebody has filled the queue for a moment, and then nobody tells anything any more.
#[test]
fn who_was_told_to_wait_goes_on_when_nobody_tells_anything() {
    for mut m in [declared(100), Model::new(RATE_BPS, RTT_MS)] {
        m.run(Duration::from_secs(10));
        m.rate_bps = RATE_BPS / 4;
        m.run(Duration::from_millis(900));
        m.is_silent = true;
        assert!(m.estimate.sending_bps() < Some(RATE_BPS / 4));
        m.run(Duration::from_secs(20));
        assert_eq!(m.estimate.sending_bps(), m.estimate.rate_bps(), "all that is believed of the link");
    }
}

/// What is lost has been carried.
#[test]
fn a_lossy_link_that_was_slower_is_taken_to_carry_all_again() {
    let mut m = declared(100);
    m.loss_permille = 50;
    m.run(Duration::from_secs(10));
    m.rate_bps = RATE_BPS / 2;
    m.run(Duration::from_secs(10));
    assert!((45..=55).contains(&(m.estimate.rate_bps().unwrap() * 100 / RATE_BPS)));
    m.rate_bps = RATE_BPS;
    m.run(Duration::from_secs(30));
    assert!(m.estimate.is_as_declared(), "{} %", m.percent());
}

/// As to a host without a gateway: who reports does not see it, and nobody here knows that.
#[test]
fn what_nobody_counts_is_no_slow_link() {
    for percent in [100, 110] {
        let mut m = declared(percent);
        (m.other_percent, m.others_are_known) = (60, false);
        m.run(Duration::from_secs(30));
        assert!((97..=101).contains(&m.percent()), "declared {percent} %: {} %", m.percent());
    }
}

/// Less was sent by just as much as the link carries less, and that the queue did not become
/// shorter was taken for a path that had become longer, again and again.
#[test]
fn what_is_declared_a_little_too_high_does_not_fill_the_queue_before_the_link_in_a_long_time() {
    for percent in [101, 102, 103] {
        let mut m = declared(percent);
        m.run(Duration::from_secs(300));
        let used = m.use_percent(Duration::from_secs(60));
        assert!(used >= 97, "{percent} %: {used} %");
        assert!(m.waited_max < Duration::from_millis(120), "{percent} %: {:?}", m.waited_max);
    }
}
