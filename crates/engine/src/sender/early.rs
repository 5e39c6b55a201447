//! Early repetition: when there is nothing new to send, what is not acknowledged is sent again
//! before anybody can know whether it was lost, with what a link of our own has idle.
//!
//! A byte lost near the end of a transfer would cost a round trip more. Repetitions that are under
//! way go first, for they have waited longest; then the rest from the end backwards: of what was
//! sent a round trip ago the receiver tells soon, of the end it tells last. Each transmission is
//! repeated twice at most, in two rounds.
//!
//! By XCP it is what routers allow that is idle at the end. Others may have a use for it, so it is
//! done once, for a part of what is sent at most, where something has been lost, and at the pace
//! that is allowed.
//!
//! Where a host's window keeps back the rest, the oldest go first: a hole among them keeps it shut,
//! and the earlier the longer.

use farlink_cc::{Copies, Kind};
use farlink_wire::{Duration, Instant, SeqNum};

use super::{Plan, Purpose, Sender, Supply};

/// Copies of one transmission on its way to a gateway, and to a host.
const COPIES_MAX: u8 = 2;
const COPIES_TO_HOST_MAX: u8 = 1;
/// The oldest outstanding byte is this part of an RTT old before a round begins, so that one burst
/// of losses does not take a byte and its copy.
const SPACING_PARTS: u32 = 32;
/// The second round begins this part of an RTT after the first one.
const ROUND_PARTS: u32 = 8;
/// Below this RTT waiting costs less than the bytes.
const RTT_MIN: Duration = Duration::from_millis(40);

/// Under XCP so many bytes may be copied, and one part of so many of what has arrived.
const FREE_BYTES: u64 = 64 << 10;
const EARNED_PARTS: u64 = 4;

/// How far early repetition has come.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Early {
    /// The next copy may go now.
    on: bool,
    round: u8,
    /// When the first copy of this round went.
    round_at: Option<Instant>,
    /// There is more to send than a window takes.
    oldest_first: bool,
    /// Repetitions from here on have had no turn in this round, nor has anything up to `down`.
    up: SeqNum,
    down: SeqNum,
}

impl Sender {
    /// Early repetition has something to send, if the link is idle.
    #[must_use]
    pub fn is_early_ready(&self, now: Instant) -> bool {
        // Each packet asks.
        if !self.early.on || self.flight.is_empty() || self.flight.has_lost() || self.silence.asks() {
            return false;
        }
        let is_paced =
            || self.copying_rate().is_some() && self.governor.paced_until().is_some_and(|at| at > now);
        self.may_copy_more() && !self.is_beyond_room() && !is_paced()
    }

    /// The rate that copies are paced at, bit/s: where an allowance is used for them that no queue
    /// spreads.
    fn copying_rate(&self) -> Option<u64> {
        self.pacing_rate().filter(|_| self.cc().kind() == Kind::Xcp)
    }

    /// What routers allow is no link of our own: others may have a use for it.
    fn may_copy_more(&self) -> bool {
        let earned = FREE_BYTES + self.flight.delivered_bytes() / EARNED_PARTS;
        self.cc().kind() != Kind::Xcp || self.flight.copied_bytes() < earned
    }

    /// Something was sent. `tail`: all that there is, so its copies may follow.
    pub(super) fn early_after_sending(&mut self, now: Instant, tail: bool) {
        self.timers.early = None;
        self.early = Early { up: self.flight.una(), down: self.flight.next(), ..Early::default() };
        // A round of copies that take long costs more than the round trip that one may save.
        let takes = self.silence.expected.packet_time.of_segment(self.mss().into()) * ROUND_PARTS;
        let is_worth = |rtt: &Duration| tail && *rtt >= RTT_MIN.max(takes);
        if let Some(rtt) = self.flight.known_rtt().filter(is_worth) {
            let first = self.flight.board().first().map_or(now, |r| r.sent_at);
            // A single copy takes its time: the queue that had no room for the last segment of a
            // burst has some then.
            let only_end = self.cc().copies() == Copies::End;
            let at = if only_end { now + rtt / ROUND_PARTS } else { first + rtt / SPACING_PARTS };
            self.early_from(now, at);
        }
    }

    fn copies_max(&self) -> u8 {
        let to_gateway = self.cc().kind().is_clocked_by_queue();
        if to_gateway { COPIES_MAX } else { COPIES_TO_HOST_MAX }
    }

    /// There is more, but no window for it: the hole that closes it is worth a copy, too.
    pub fn early_while_stalled(&mut self, now: Instant, supply: &Supply) {
        // Under XCP it may be the allowance that there is too little of.
        if self.cc().kind() == Kind::Xcp {
            return;
        }
        let begun = self.early.on || self.timers.early.is_some() || self.early.round > 0;
        if !begun
            && !self.silence.asks()
            && self.has_new(supply)
            && !self.flight.is_empty()
            && !self.peer.is_waited_for()
        {
            self.early_after_sending(now, true);
        }
        // A single copy is one of the end. A gateway's window grows by what its host takes, and not
        // by what is acknowledged. Once a round has begun its order stays.
        let is_new = self.early.round == 0 && self.early.round_at.is_none();
        let to_host = !self.cc().kind().is_clocked_by_queue();
        let waits = self.has_new(supply) && self.cc().copies() == Copies::All;
        self.early.oldest_first |= is_new && to_host && waits;
    }

    fn early_from(&mut self, now: Instant, at: Instant) {
        self.early.on = at <= now;
        self.timers.early = (at > now).then_some(at);
    }

    /// It is time for the next round.
    pub(super) fn on_early_timer(&mut self) {
        self.timers.early = None;
        self.early.on = !self.flight.is_empty();
    }

    /// The next copy, one segment.
    pub fn plan_early(&mut self, now: Instant, supply: &Supply) -> Option<Plan> {
        // Urgent pointers belong to what is sent when they are.
        if !self.is_early_ready(now) || supply.urgent_until.is_some() || supply.urgent_zero.is_some() {
            self.early.on = false;
            return None;
        }
        if self.early.round_at.is_some() && self.cc().copies() == Copies::End {
            self.early.on = false;
            return None;
        }
        if self.copying_rate().is_some() && self.governor.waits_for_pace(now) {
            return None;
        }
        while self.early.round < self.copies_max() {
            let Early { up, down, round, round_at, oldest_first, .. } = self.early;
            let (board, mss) = (self.flight.board(), self.flight.mss());
            let next = if oldest_first {
                board.oldest_early_candidate(up, round, mss)
            } else {
                board.early_candidate(up, down, round, mss)
            };
            if let Some((seq, len)) = next {
                self.early.round_at = round_at.or(Some(now));
                return Some(self.with_fin(seq, len, supply, Purpose::Early));
            }
            let (up, down) = (self.flight.una(), self.flight.next());
            self.early = Early { on: true, round: round + 1, round_at: None, oldest_first, up, down };
            if let Some(begun) = round_at {
                let next = begun + self.flight.known_rtt().unwrap_or_default() / ROUND_PARTS;
                self.early_from(now, next);
                if !self.early.on {
                    break;
                }
            }
        }
        if self.early.round >= self.copies_max() {
            self.early.on = false;
        }
        None
    }

    /// A copy went out.
    pub(super) fn on_sent_early(&mut self, now: Instant, plan: &Plan) {
        let len = plan.len + u32::from(plan.fin);
        if let Some(rate) = self.copying_rate() {
            self.governor.pace(now, u64::from(len), rate);
        }
        if self.flight.on_sent_copy(now, plan.seq, len) || self.early.oldest_first {
            self.early.up = plan.seq + len;
        } else {
            self.early.down = plan.seq;
        }
    }
}

#[cfg(test)]
mod tests {
    use farlink_cc::{Config, Controller, Kind};
    use farlink_wire::{Duration, Instant, SeqNum};

    use super::super::{RtoBounds, Sender, Supply};
    use super::Purpose;

    /// What is copied of 3,000 bytes that are under way, where there are so many to send and no
    /// window for more, when 20,000 bytes have come through.
    fn copied(kind: Kind, have: u32) -> Vec<u32> {
        let config = Config { kind, mss: 1000, fixed_rate_bps: Some(8_000_000), ..Config::default() };
        let bounds = RtoBounds { min: Duration::from_millis(200), max: Duration::from_secs(60) };
        let mut now = Instant::from_millis(5);
        let mut s = Sender::new(now, SeqNum(0), Controller::new(&config), 1000, true, bounds);
        s.update_window(SeqNum(0), SeqNum(0), 23_000, true);
        let (urgent_end, urgent_until, urgent_zero) = (None, None, None);
        let supply = |end| Supply { end, fin: false, push: end, urgent_end, urgent_until, urgent_zero };
        let send = |s: &mut Sender, now: &mut Instant, end: u32| {
            let plan = s.plan(*now, &supply(SeqNum(end)), 1000).expect("a segment");
            s.on_sent(*now, &plan);
            *now += Duration::from_millis(2);
        };
        for round in 0..2u32 {
            let first = now;
            (1..=10).for_each(|n| send(&mut s, &mut now, 10_000 * round + 1000 * n));
            now = first + Duration::from_millis(500);
            for n in 1..=10 {
                let _ = s.on_ack(now, SeqNum(10_000 * round + 1000 * n), &[], true, false);
                now += Duration::from_millis(2);
            }
        }
        (0..3).for_each(|_| send(&mut s, &mut now, 20_000 + have));
        let supply = supply(SeqNum(20_000 + have));
        assert_eq!(s.plan(now, &supply, 1000), None, "no window, or nothing more");
        s.early_while_stalled(now, &supply);
        now = s.timers.early.expect("copies are due");
        s.on_timer(now);
        let mut got = Vec::new();
        while let Some(plan) = s.plan_early(now, &supply).filter(|_| got.len() < 3) {
            assert_eq!((plan.purpose, plan.len), (Purpose::Early, 1000));
            s.on_sent(now, &plan);
            got.push(plan.seq.0 - 20_000);
        }
        got
    }

    #[test]
    fn copies_go_from_the_oldest_on_while_a_hosts_window_keeps_back_the_rest() {
        assert_eq!(copied(Kind::KnownRate, 5000), [0, 1000, 2000]);
        assert_eq!(copied(Kind::KnownRate, 3000), [2000, 1000, 0], "there is no rest");
        assert_eq!(copied(Kind::FixedRate, 5000), [2000, 1000, 0], "to a gateway");
    }
}
