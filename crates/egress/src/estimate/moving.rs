//! A link whose rate moves: what it has carried of late is kept under way.
//!
//! A rate that has fallen may rise again in a moment, and who has too little under way then leaves
//! the link idle for a round trip. So bytes are under way for the most that it has carried of late,
//! as long as nobody knows whether it is steady, and for a while after it has become faster. A link
//! that only becomes slower is drained.

use std::collections::VecDeque;

use farlink_wire::time::{Duration, Instant};

use super::peer::Sample;
use super::spread::Spread;
use super::{NS_PER_S, RateEstimate};

/// What it has carried counts for so long, and so does a rise.
const HORIZON: Duration = Duration::from_secs(10);
/// Of a link that is new it is known after so many round trips, and so long at least.
const STEADY_ROUNDS: u32 = 8;
const STEADY_MIN: Duration = Duration::from_secs(3);
/// About the same is another one by this part at most (one over it).
const SAME_PARTS: u64 = 6;
/// And by this part where hosts tell: what is tried upwards, a quarter more, looks like a rise.
const SAME_PARTS_OF_HOSTS: u64 = 3;
/// What is under way where the rate moves fills the link for half a round trip longer, or so much:
/// it shows at once that the link has become faster.
const MORE_MAX: Duration = Duration::from_millis(20);
/// Values that are kept.
const BEST_MAX: usize = 32;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Moving {
    /// Each less than the one before, and later.
    best: VecDeque<(Instant, u64)>,
    /// About this is carried, bits per second.
    about_bps: u64,
    /// The link was full then: that was all that it could.
    was_full: bool,
    /// Its rate may move until then.
    until: Instant,
    /// So much is to be under way, bytes; zero: whatever the rate asks for.
    wanted_bytes: u64,
}

impl Moving {
    /// The link carries so much, and no other rate has been seen.
    pub(super) fn steady(now: Instant, about_bps: u64) -> Self {
        Self { about_bps, was_full: true, until: now, ..Self::default() }
    }

    /// Nobody knows that it is steady.
    pub(super) fn is_likely(&self, now: Instant) -> bool {
        self.about_bps == 0 || now < self.until
    }
}

impl RateEstimate {
    /// The link has been full of late, and carried so much.
    pub(super) fn follow_moves(&mut self, now: Instant, sample: &Sample) {
        let Some((rate_bps, was_full)) = self.carried_of_late(sample) else { return };
        let rtt = self.round();
        let moving = &mut self.moving;
        while moving.best.front().is_some_and(|(at, _)| now.since(*at) > HORIZON) {
            moving.best.pop_front();
        }
        while moving.best.back().is_some_and(|(_, best)| *best <= rate_bps) {
            moving.best.pop_back();
        }
        if moving.best.len() < BEST_MAX {
            moving.best.push_back((now, rate_bps));
        }
        let parts = if self.hosts.tell { SAME_PARTS_OF_HOSTS } else { SAME_PARTS };
        let is_same = moving.about_bps.abs_diff(rate_bps) <= moving.about_bps / parts;
        if moving.about_bps == 0 {
            moving.until = now + (rtt * STEADY_ROUNDS).max(STEADY_MIN);
        } else if !is_same && rate_bps > moving.about_bps && moving.was_full {
            moving.until = now + HORIZON;
        }
        // Who sends little does not show a slower link.
        if !is_same && (rate_bps > moving.about_bps || was_full) {
            (moving.about_bps, moving.was_full) = (rate_bps, was_full);
        }
        let best = self.best_bps(now).unwrap_or(0);
        let more = (self.round() / 2).min(MORE_MAX);
        let time = self.round() + sample.spread + more;
        self.moving.wanted_bytes =
            u64::try_from(u128::from(best) * time.as_nanos() / 8 / NS_PER_S).unwrap_or(0);
    }

    /// The most that the link has carried of late, where its rate moves, bits per second.
    pub(super) fn best_bps(&self, now: Instant) -> Option<u64> {
        let best = self.moving.best.front().filter(|(at, _)| now.since(*at) <= HORIZON);
        // A link that comes and goes may have another rate each time, and loses what waits.
        let may_fill = now < self.moving.until && !self.is_restless(now);
        best.map(|(_, best)| self.at_most(*best)).filter(|_| may_fill)
    }

    /// Less is under way than the link may carry in a moment.
    pub(super) fn wants_more_under_way(&self, now: Instant) -> Option<u64> {
        let best = self.best_bps(now).filter(|best| self.rate_bps.is_some_and(|rate| rate < *best))?;
        let under_way = self.sent.since(self.newest_sent_at, now, self.sent.total_bytes())?;
        (under_way < self.moving.wanted_bytes).then_some(best)
    }

    /// What the link has carried for sure in the last samples, bits per second, and whether it was
    /// full all the time; `None`: they are too few.
    pub(super) fn carried_of_late(&self, sample: &Sample) -> Option<(u64, bool)> {
        let mut was_full = true;
        let (mut bits, mut time) = (0_u128, Duration::ZERO);
        let least = (self.round() / 2).max(Spread::rate_time(sample.spread, self.round()));
        for (_, s) in self.recent.iter().rev().filter(|(_, s)| s.by == sample.by) {
            bits += u128::from(s.surely_bps) * s.took.as_nanos();
            time += s.took;
            was_full &= s.saturated;
            if time >= least {
                return Some((u64::try_from(bits / time.as_nanos().max(1)).ok()?, was_full));
            }
        }
        None
    }
}
