//! When what routers say is believed, and when it is not.

use farlink_wire::{Duration, Instant};
use farlink_xcp::{Doubt, News, Reports, Seen, Trust};

const RTT: Duration = Duration::from_millis(100);
const PACKET: u64 = 1_500;

/// A path of so many bytes in a round trip, of which all are used.
struct Way {
    trust: Trust,
    now: Instant,
    window: u64,
    /// What arrives in a round trip, and how long that takes.
    arrives: u64,
    rtt: Duration,
    is_idle: bool,
}

impl Way {
    fn new(window: u64) -> Self {
        let (trust, now) = (Trust::new(), Instant::from_millis(1_000));
        Self { trust, now, window, arrives: window, rtt: RTT, is_idle: false }
    }

    fn believed(window: u64) -> Self {
        let mut way = Self::new(window);
        assert!(way.trust.on_sum(0, window));
        assert_eq!(way.trust.take_news(), Some(News::Believed));
        way
    }

    fn seen(&self, arrived_bytes: u64) -> Seen {
        Seen {
            rtt: Some(self.rtt),
            srtt: self.rtt,
            min_rtt: RTT,
            arrived_bytes,
            in_flight_bytes: self.window,
            window_bytes: self.window,
            least_bytes: PACKET,
            is_idle: self.is_idle,
        }
    }

    /// A round trip, in which routers give so much of the rate, or say nothing.
    fn round(&mut self, given: Option<f64>) {
        for _ in 0..4 {
            self.now += self.rtt / 4;
            if let Some(given) = given {
                let rate = self.window as f64 / self.rtt.as_secs_f64();
                self.trust.on_sum((rate * given / 4.0) as i32, self.window);
            }
            self.trust.on_ack(self.now, &self.seen(self.arrives / 4));
        }
    }

    /// How many round trips of this it takes until there is a doubt, 100 at most.
    fn doubts_after(
        &mut self,
        given: Option<f64>,
        mut change: impl FnMut(&mut Self),
    ) -> Option<(u32, Doubt)> {
        for n in 1..=100 {
            change(self);
            self.round(given);
            if let Some(doubt) = self.trust.doubt() {
                return Some((n, doubt));
            }
        }
        None
    }
}

#[test]
fn the_first_word_is_believed_and_silence_ends_that() {
    let mut way = Way::new(100_000);
    assert_eq!((way.trust.doubt(), way.trust.asks()), (Some(Doubt::Silent), true));
    way.round(None);
    assert_eq!(way.trust.take_news(), None, "none has spoken: that is no news");
    let mut way = Way::believed(100_000);
    way.round(Some(0.0));
    let (rounds, doubt) = way.doubts_after(None, |_| {}).unwrap();
    assert!(rounds <= 3 && doubt == Doubt::Silent, "{rounds}");
    assert_eq!(way.trust.take_news(), Some(News::Doubted(Doubt::Silent)));
    assert!(way.trust.on_sum(0, 100_000), "who comes back for the first time is welcome");
}

#[test]
fn corruption_is_none_of_their_business() {
    let mut way = Way::believed(100_000);
    assert_eq!(way.doubts_after(Some(0.05), |way| way.trust.on_loss()), None, "no round trip has risen");
    // A queue of theirs that stays, for its router believes in too much: it gives nothing more.
    let mut way = Way::believed(100_000);
    way.rtt = RTT * 8 / 5;
    assert_eq!(way.doubts_after(Some(0.0), |way| way.trust.on_loss()), None);
    // The capacity has halved, and it takes.
    let mut way = Way::believed(100_000);
    way.rtt = RTT * 2;
    assert_eq!(way.doubts_after(Some(-0.2), |way| way.trust.on_loss()), None);
}

#[test]
fn a_queue_elsewhere_shows_by_losses_while_they_give_more() {
    let mut way = Way::believed(100_000);
    for _ in 0..4 {
        way.round(Some(0.1));
    }
    way.rtt = RTT * 3 / 2;
    way.trust.on_loss();
    assert_eq!(way.doubts_after(Some(0.1), |_| {}), Some((1, Doubt::Overrun)));
}

#[test]
fn the_second_timeout_without_a_word_is_silence() {
    let mut way = Way::believed(100_000);
    way.trust.on_timeout();
    way.round(Some(0.0));
    way.trust.on_timeout();
    assert!(way.trust.believes(), "a repetition was lost, twice");
    way.trust.on_timeout();
    assert_eq!(way.trust.doubt(), Some(Doubt::Silent));
    assert!(way.trust.on_sum(0, 100_000), "it speaks again");
}

#[test]
fn a_mark_ends_it_at_once() {
    let mut way = Way::believed(100_000);
    way.trust.on_mark();
    assert_eq!(way.trust.doubt(), Some(Doubt::Marked));
}

#[test]
fn twice_what_arrives_for_ten_round_trips_contradicts() {
    let mut way = Way::believed(250_000);
    way.arrives = 100_000;
    // The round trips of the clock do not begin with those of this test.
    assert_eq!(way.doubts_after(Some(0.0), |_| {}), Some((11, Doubt::Contradicted)));
    // A source that has no more to send contradicts nobody, and neither does a router that takes.
    let mut way = Way::believed(250_000);
    (way.arrives, way.is_idle) = (100_000, true);
    assert_eq!(way.doubts_after(Some(0.0), |_| {}), None);
    let mut way = Way::believed(250_000);
    way.arrives = 100_000;
    assert_eq!(way.doubts_after(Some(-0.05), |_| {}), None);
}

/// The other gateway counts what comes of all flows that share; `part` of what they may send.
fn reported(way: &mut Way, reports: &mut Reports, counted: &mut u32, part: f64) {
    // This one has a quarter, and the way has carried all of that.
    let shared = 4 * way.window;
    *counted = counted.wrapping_add((shared as f64 * part) as u32);
    let at_us = (way.now.since(Instant::ZERO).as_micros() as u32).wrapping_add(77);
    reports.hear(way.now, (at_us, *counted), RTT, shared);
    if let Some(newest) = reports.newest() {
        way.trust.on_report(newest);
    }
}

#[test]
fn what_the_other_gateway_reports_of_all_flows_counts_as_well() {
    let after = |part: f64, rounds_of_reports: u32, given: f64| {
        let (mut reports, mut counted, mut n) = (Reports::default(), u32::MAX - 9, 0);
        Way::believed(100_000).doubts_after(Some(given), |way| {
            n += 1;
            if n <= rounds_of_reports {
                reported(way, &mut reports, &mut counted, part);
            }
        })
    };
    // Two reports make the first rate, and the round trips of the clock are not those of the test.
    let (rounds, doubt) = after(0.45, u32::MAX, 0.0).expect("less than half of it arrives");
    assert!((11..=12).contains(&rounds) && doubt == Doubt::Contradicted, "{rounds} {doubt:?}");
    assert_eq!(after(0.55, u32::MAX, 0.0), None);
    assert_eq!(after(0.45, u32::MAX, -0.05), None, "routers take");
    assert_eq!(after(0.45, 8, 0.0), None, "what is old says nothing, and its acknowledgements are in order");
}

#[test]
fn no_queue_takes_all_and_none_leaves_nothing_unseen() {
    let mut way = Way::believed(100_000);
    way.round(Some(0.0));
    assert_eq!(way.doubts_after(Some(-0.5), |_| {}), None, "half of it: the draft's constants");
    assert_eq!(way.doubts_after(Some(-0.9), |_| {}), Some((2, Doubt::Absurd)));
    let mut way = Way::believed(100_000);
    way.rtt = RTT * 2;
    way.round(Some(0.0));
    assert_eq!(way.doubts_after(Some(-0.9), |_| {}), None, "with a queue that may be");
    let mut way = Way::believed(PACKET);
    assert_eq!(way.doubts_after(Some(0.0), |_| {}), Some((5, Doubt::Starved)));
    let mut way = Way::believed(PACKET);
    way.rtt = RTT * 2;
    assert_eq!(way.doubts_after(Some(0.0), |_| {}), None, "who shares a full queue with many");
}

#[test]
fn each_doubt_lasts_longer_than_the_one_before_and_long_trust_forgets_them() {
    let mut way = Way::believed(100_000);
    let held = |way: &mut Way| {
        way.trust.on_mark();
        let mut rounds = 0;
        while !way.trust.believes() {
            way.round(Some(0.0));
            rounds += 1;
        }
        rounds
    };
    let first: Vec<u32> = (0..6).map(|_| held(&mut way)).collect();
    assert!(first[0] >= 64 && first[0] < 70, "{first:?}");
    assert!(first.windows(2).all(|w| w[1] > w[0] * 3 / 2 || w[1] > 1_000), "{first:?}");
    assert!(first[5] < 1_100, "{first:?}");
    for _ in 0..200 {
        way.round(Some(0.0));
    }
    assert!(held(&mut way) < 70);
}

#[test]
fn what_is_given_must_be_proven_and_what_is_taken_is_half_at_most() {
    let mut way = Way::believed(10 * PACKET);
    let (least, most) = way.trust.bounds_bytes(PACKET);
    assert_eq!((least, most), (5 * PACKET, 2_048 * PACKET), "3 MB unproven");
    (way.window, way.arrives) = (2_048 * PACKET, 2_048 * PACKET);
    way.round(Some(0.0));
    way.round(Some(0.0));
    let (least, most) = way.trust.bounds_bytes(PACKET);
    assert_eq!((least, most), (1_024 * PACKET, 4 * 2_048 * PACKET));
}
