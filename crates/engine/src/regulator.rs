//! How much a relay may hold, where that depends on how its destination takes it: thesis chapter 6,
//! and what follows it when the round trip towards the source is known.

use farlink_wire::{Duration, Instant, SeqNum};

use crate::bookmark::{Bookmark, bookmarks};
use crate::peer::TOLD_WINDOW_MAX;

/// What a relay may hold for want of better knowledge counts for an upstream round trip of at least
/// this: the gateway's own timers and batches.
const TURN: Duration = Duration::from_millis(5);
/// A backlog is measured over two round trips downstream, within these bounds.
const BACKLOG_MIN: Duration = Duration::from_millis(20);
const BACKLOG_MAX: Duration = Duration::from_millis(100);
/// A destination that has taken all there was for so many round trips, a quarter more in each, is
/// not what limits.
const TAKEN_ROUNDS_MAX: u8 = 8;
/// Segments that a relay may always hold beside what is on its way downstream.
pub(crate) const SPARE_SEGMENTS: u32 = 4;
/// A host's send window is at least this: two segments.
const LEAST_SEGMENTS: u32 = 2;
/// The round trip towards a source of which nothing is known: thesis 6.4 begins with the largest
/// segment lifetime of the Internet, and this is what satellite paths have.
const UPSTREAM_RTT_MAX: Duration = Duration::from_secs(2);

/// What a relay looks like at one moment. Sizes in bytes; the names in brackets are the thesis's.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Now.
    pub now: Instant,
    /// Bytes delivered downstream so far.
    pub delivered: u64,
    /// Sent and not acknowledged (Q'2).
    pub in_flight: u32,
    /// Held and not sent (Q1).
    pub queued: u32,
    /// min(congestion window, receiver's window) downstream (S2).
    pub send_window: u64,
    /// Congestion window downstream (W2).
    pub cwnd: u64,
    /// Slow-start threshold downstream (T).
    pub ssthresh: u64,
    /// What the source may still send (R1).
    pub offered: u32,
    /// Round trip towards the source, where it is known (tau 1).
    pub upstream: Option<Duration>,
    /// Round trip towards the destination (tau 2).
    pub downstream: Duration,
    /// How long acknowledgements to the source wait.
    pub ack_delay: Duration,
    /// How long acknowledgements of the destination wait: what they make room for is needed until
    /// the next one.
    pub turn: Duration,
    /// Segment size.
    pub segment: u32,
    /// Bound of the relay in any case.
    pub limit: u32,
    /// It goes into a link that relays share.
    pub shared: bool,
    /// Losses are being repeated downstream: congestion, on a leg that is no declared link.
    pub losing: bool,
    /// Timeouts in a row downstream.
    pub timeouts: u32,
}

/// Whether a source sends all that it is shown.
#[derive(Clone, Copy, Debug, Default)]
pub struct Appetite {
    /// What it was shown at some time, and when that was.
    shown: Bookmark<(SeqNum, Instant)>,
    is_whole: bool,
}

bookmarks!(Appetite { shown });

impl Appetite {
    /// The source has sent everything before `sent`, and is shown what stands before `edge`.
    /// Returns whether the window is what holds it: it sends what it was shown within two round
    /// trips. A faster source would need one, and a window that is twice too large is no bound.
    pub fn is_whole(&mut self, look: &Look, sent: SeqNum, edge: SeqNum) -> bool {
        let (shown, at) = *self.shown.get_or_insert((edge, look.now));
        let round_trip = look.upstream.unwrap_or_default().max(TURN) + look.ack_delay;
        let took = look.now.since(at);
        let has_sent = (sent + look.segment).after(shown);
        if has_sent || took > round_trip * 2 {
            self.is_whole = has_sent && took <= round_trip * 2;
            *self.shown = Some((edge, look.now));
        }
        self.is_whole
    }
}

/// How fast a destination takes what waits for it.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadRate {
    backlog: Option<Backlog>,
    /// Bytes per second, once there was a backlog that has lasted.
    rate: Option<u64>,
    /// It has taken all there was since then.
    taken_since: Option<Instant>,
    /// For so many round trips towards the source.
    taken_rounds: u8,
}

#[derive(Clone, Copy, Debug)]
struct Backlog {
    since: Instant,
    delivered: u64,
}

impl ReadRate {
    /// Looks at the relay after something has happened.
    pub fn update(&mut self, look: &Look) {
        if look.queued <= LEAST_SEGMENTS * look.segment {
            self.backlog = None;
            self.try_more(look);
            return;
        }
        self.taken_since = None;
        let backlog = self.backlog.get_or_insert(Backlog { since: look.now, delivered: look.delivered });
        let elapsed = look.now.since(backlog.since);
        if elapsed < (look.downstream * 2).clamp(BACKLOG_MIN, BACKLOG_MAX) {
            return;
        }
        let bytes = u128::from(look.delivered.saturating_sub(backlog.delivered));
        let rate = u64::try_from(bytes * 1_000_000 / elapsed.as_micros().max(1)).unwrap_or(u64::MAX);
        let old = self.rate.unwrap_or(rate);
        // Several connections to one host take turns at being slow.
        let falls = rate < old && !look.shared;
        self.rate = Some(if falls { old - (old - rate) / 8 } else { old.midpoint(rate) });
        // Only a rate that was measured anew begins the trials again: backlogs that come and go
        // would raise it without end.
        self.taken_rounds = 0;
        *backlog = Backlog { since: look.now, delivered: look.delivered };
    }

    /// It takes all there is: how much more it would take is not known. A quarter more is tried in
    /// each round trip towards the source, since all at once would be a flood again, and after some
    /// of them what was known is forgotten.
    fn try_more(&mut self, look: &Look) {
        let Some(rate) = self.rate else { return };
        let since = *self.taken_since.get_or_insert(look.now);
        if look.now.since(since) < (look.upstream.unwrap_or_default() + look.ack_delay).max(BACKLOG_MIN) {
            return;
        }
        if self.taken_rounds >= TAKEN_ROUNDS_MAX {
            *self = Self::default();
            return;
        }
        self.taken_since = Some(look.now);
        self.taken_rounds += 1;
        self.rate = Some(rate.saturating_add(rate / 4));
    }

    /// Bytes that the relay may hold: what is on its way, and what the destination takes until the
    /// source can answer, and a quarter more. With this the upstream-slower case of thesis 6.5
    /// needs no search: the round trip of the link is known, and the gateway at its other end obeys
    /// a window that is taken back.
    #[must_use]
    pub fn limit(&self, look: &Look) -> u32 {
        // Of a link that others share it is not known how much of what it took was its own limit.
        let Some(rate) = self.rate.filter(|_| self.backlog.is_some() || !look.shared) else {
            return look.limit;
        };
        let ahead = (look.upstream.unwrap_or_default() + look.ack_delay + look.turn).max(TURN);
        // The hard window is cut only when losses persist.
        let ahead = if look.timeouts > 0 { ahead / 2 } else { ahead + ahead / 4 };
        let supply = bytes_in(rate, ahead);
        // In slow start the next round trip takes twice as much.
        let growth = if look.cwnd < look.ssthresh { look.in_flight } else { 0 };
        let bytes = u64::from(look.in_flight + SPARE_SEGMENTS * look.segment) + u64::from(growth) + supply;
        u32::try_from(bytes).unwrap_or(u32::MAX).min(look.limit)
    }

    /// Bytes that the destination will take in one round trip towards the source, beyond what waits
    /// for it now: the soft window (TR 99-12 section 5). `None` where it has never left anything.
    #[must_use]
    pub fn soft_window(&self, look: &Look) -> Option<u32> {
        let rate = self.rate?;
        let ahead = (look.upstream.unwrap_or_default() + look.ack_delay).max(TURN);
        // Cut on losses, which on the leg to a host mean congestion.
        let supply = bytes_in(rate, ahead) / if look.losing { 2 } else { 1 };
        let supply = supply + u64::from(LEAST_SEGMENTS * look.segment);
        let beyond = u32::try_from(supply.saturating_sub(look.queued.into())).unwrap_or(u32::MAX);
        // What is told has room for so much, and what lies further ahead could not be told from
        // what lies behind.
        Some(beyond.min(TOLD_WINDOW_MAX))
    }
}

fn bytes_in(bytes_per_s: u64, time: Duration) -> u64 {
    let bytes = u128::from(bytes_per_s) * time.as_micros() / 1_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// The adaptive receive buffer of thesis 6.3 and 6.4.
#[derive(Clone, Copy, Debug, Default)]
pub struct Adaptive {
    /// B1; `None`: its largest value.
    buffer: Option<u32>,
    /// tau: when it was last looked at.
    at: Option<Instant>,
    /// t1: bound of the round trip towards the source.
    upstream: Option<Duration>,
    /// q2: Q'2 when nothing was queued last.
    in_flight: u32,
    /// The last change was a growth, from this Q'2: growing again without effect means a bottleneck
    /// upstream.
    grown_from: Option<u32>,
}

impl Adaptive {
    /// B1, at most once in 2 tau 1.
    pub fn update(&mut self, look: &Look) {
        let largest = look.limit.max(1);
        let buffer = self.buffer.unwrap_or(largest);
        let upstream = look.upstream.or(self.upstream).unwrap_or(UPSTREAM_RTT_MAX).max(TURN);
        let Some(at) = self.at else {
            // Step 2: nothing until something is queued.
            if look.queued > 0 {
                self.at = Some(look.now);
            }
            return;
        };
        if look.now.since(at) < upstream * 2 {
            return;
        }
        self.at = Some(look.now);
        if look.in_flight == 0 || look.offered == 0 {
            // Step 3: idle, or the last reduction has not settled.
            return;
        }
        let (tau1, tau2) = (upstream.as_micros().max(1), look.downstream.as_micros().max(1));
        let ratio =
            |bytes: u64, a: u128, b: u128| u64::try_from(u128::from(bytes) * a / b).unwrap_or(u64::MAX);
        let full = u64::from(look.in_flight + look.segment) > look.send_window;
        let mut bound = None;
        let wanted = match (look.queued > 0, full) {
            // Case 1: in balance.
            (false, true) => None,
            // Case 2: the receiver's window is what limits. What came in the last round trip was
            // enough.
            (true, _) if look.send_window < look.cwnd => {
                bound = Some(ratio(u64::from(look.offered), tau2, u128::from(look.send_window.max(1))));
                Some(u64::from(buffer.saturating_sub(look.queued)))
            }
            // Case 3: the congestion window is. Twice its threshold in a round trip (6.2).
            (true, _) => {
                let threshold = look.ssthresh.min(look.cwnd);
                bound = Some(ratio(u64::from(look.offered), tau2, u128::from(look.cwnd.max(1))));
                Some(ratio(2 * threshold, tau1, tau2))
            }
            // Case 4: less comes than could be sent. Once: if no more comes then, the bottleneck is
            // upstream.
            (false, false) => {
                let useless = self.grown_from.is_some_and(|before| look.in_flight <= before + look.segment);
                if useless {
                    None
                } else {
                    bound = Some(ratio(u64::from(buffer), tau2, u128::from(look.in_flight)));
                    Some(ratio(u64::from(buffer), u128::from(look.send_window), u128::from(look.in_flight)))
                }
            }
        };
        if look.queued == 0 {
            self.in_flight = look.in_flight;
        }
        if look.upstream.is_none()
            && let Some(us) = bound
        {
            // Each case bounds tau 1 from above.
            let us = Duration::from_micros(us).max(TURN);
            self.upstream = Some(self.upstream.map_or(us, |old| old.min(us)));
        }
        let Some(wanted) = wanted else { return };
        let least = LEAST_SEGMENTS * look.segment;
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX).clamp(least.min(largest), largest);
        self.grown_from = (wanted > buffer).then_some(look.in_flight);
        self.buffer = Some(wanted);
    }

    /// Bytes that the relay may hold: Q'2, and B1 beside it.
    #[must_use]
    pub fn limit(&self, look: &Look) -> u32 {
        self.buffer.map_or(look.limit, |b| look.in_flight.saturating_add(b).min(look.limit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn look(now_ms: u64) -> Look {
        Look {
            now: Instant::ZERO + Duration::from_millis(now_ms),
            delivered: 0,
            in_flight: 50_000,
            queued: 0,
            send_window: 100_000,
            cwnd: 100_000,
            ssthresh: 60_000,
            offered: 40_000,
            upstream: Some(MS * 100),
            downstream: MS * 50,
            ack_delay: Duration::ZERO,
            turn: Duration::ZERO,
            segment: 1000,
            limit: 1_000_000,
            shared: false,
            losing: false,
            timeouts: 0,
        }
    }

    #[test]
    fn a_source_that_sends_all_it_is_shown_is_held_by_its_window() {
        let at = |ms: u64| look(ms);
        let mut a = Appetite::default();
        assert!(!a.is_whole(&at(0), SeqNum(0), SeqNum(10_000)));
        assert!(!a.is_whole(&at(100), SeqNum(5_000), SeqNum(15_000)));
        // A segment more would not fit.
        assert!(a.is_whole(&at(150), SeqNum(9_001), SeqNum(19_000)));
        assert!(a.is_whole(&at(340), SeqNum(12_000), SeqNum(22_000)), "until the next one is due");
        assert!(!a.is_whole(&at(360), SeqNum(14_000), SeqNum(24_000)), "it takes twice as long now");
        assert!(a.is_whole(&at(460), SeqNum(24_000), SeqNum(34_000)));
    }

    #[test]
    fn a_slow_destination_gets_what_it_takes_in_a_round_trip() {
        let mut d = ReadRate::default();
        let mut l = Look { queued: 300_000, ..look(0) };
        for ms in (0..=1000u32).step_by(50) {
            l.now = Instant::ZERO + MS * ms;
            l.delivered = u64::from(ms) * 125;
            d.update(&l);
        }
        // 125,000 bytes per second for 125 ms, what is on its way, and four segments.
        assert_eq!(d.limit(&l), 50_000 + 15_625 + 4_000);
        assert_eq!(d.soft_window(&l), Some(0), "more than a round trip's worth waits already");
        assert_eq!(d.soft_window(&Look { queued: 10_000, ..l }), Some(12_500 + 2_000 - 10_000));
        let taken = |ms: u32| Look { queued: 1_500, now: Instant::ZERO + MS * ms, ..l };
        d.update(&taken(1000));
        d.update(&taken(1090));
        assert_eq!(d.soft_window(&taken(1090)), Some(12_500 + 2_000 - 1_500), "it takes all there is");
        d.update(&taken(1100));
        assert_eq!(d.soft_window(&taken(1100)), Some(15_625 + 2_000 - 1_500), "a quarter more is tried");
        (1200..=2000u32).step_by(100).for_each(|ms| d.update(&taken(ms)));
        assert_eq!((d.limit(&l), d.soft_window(&l)), (1_000_000, None), "it does not limit");
    }

    /// A stream went on by 45 MB at once, and its soft window ended 1.2 GB ahead of it.
    #[test]
    fn no_soft_window_is_larger_than_can_be_told() {
        let mut d = ReadRate::default();
        let mut l = Look { queued: 300_000, ..look(0) };
        for ms in (0..=1000u32).step_by(50) {
            l.now = Instant::ZERO + MS * ms;
            l.delivered = u64::from(ms) * 45_000_000;
            d.update(&l);
        }
        assert_eq!(d.soft_window(&Look { queued: 10_000, ..l }), Some(TOLD_WINDOW_MAX));
    }

    #[test]
    fn backlogs_that_come_and_go_do_not_raise_the_rate_without_end() {
        let mut d = ReadRate::default();
        let mut l = Look { queued: 300_000, ..look(0) };
        for ms in (0..=1000u32).step_by(50) {
            l.now = Instant::ZERO + MS * ms;
            l.delivered = u64::from(ms) * 125;
            d.update(&l);
        }
        for round in 0..300u32 {
            let at = |ms: u32, queued: u32| Look {
                queued,
                now: Instant::ZERO + MS * (1000 + 200 * round + ms),
                ..l
            };
            d.update(&at(0, 0));
            d.update(&at(110, 0));
            assert!(d.soft_window(&at(110, 0)).is_none_or(|window| window < 200_000), "round {round}");
            // Too short for its rate to be measured.
            d.update(&at(120, 300_000));
        }
    }

    #[test]
    fn the_four_cases_of_the_thesis() {
        let run = |l: Look| {
            let mut a = Adaptive::default();
            a.update(&Look { queued: 1, ..look(0) });
            a.update(&Look { now: look(150).now, ..l });
            assert_eq!(a.buffer, None, "at most once in two round trips");
            a.update(&Look { now: look(200).now, ..l });
            a.buffer
        };
        assert_eq!(run(Look { in_flight: 99_500, ..look(0) }), None, "1: balanced");
        let receiver = Look { queued: 700_000, cwnd: 500_000, in_flight: 100_000, ..look(0) };
        assert_eq!(run(receiver), Some(300_000), "2: what arrived was enough");
        assert_eq!(run(Look { queued: 700_000, ..look(0) }), Some(240_000), "3: 2 T tau1 / tau2");
        assert_eq!(run(look(0)), Some(1_000_000), "4: more can be sent, up to the bound");
    }

    #[test]
    fn a_bottleneck_upstream_does_not_make_it_grow_for_ever() {
        let mut a = Adaptive { buffer: Some(10_000), at: Some(Instant::ZERO), ..Adaptive::default() };
        a.update(&look(200));
        assert_eq!(a.buffer, Some(20_000));
        a.update(&look(400));
        assert_eq!(a.buffer, Some(20_000));
        a.update(&Look { in_flight: 80_000, ..look(600) });
        assert_eq!(a.buffer, Some(25_000));
    }

    #[test]
    fn an_unknown_round_trip_is_bounded_from_above() {
        let unknown = |ms: u64, queued: u32| Look { upstream: None, queued, cwnd: 500_000, ..look(ms) };
        let mut a = Adaptive::default();
        a.update(&unknown(0, 1));
        a.update(&unknown(3999, 100_000));
        assert_eq!(a.upstream, None);
        a.update(&unknown(4000, 100_000));
        // R1 tau2 / S2 = 40,000 x 50 ms / 100,000.
        assert_eq!(a.upstream, Some(MS * 20));
    }
}
