//! When the link is free: a virtual clock that says when the last byte has left.

use farlink_wire::time::{Duration, Instant};

use crate::config::MAX_BURST_BYTES;
use crate::medium::Medium;

/// A wake-up that comes this late loses nothing: what the link could have carried meanwhile goes
/// out at once. Timers of a quiet two-core machine are late by tens of microseconds, rarely by a
/// millisecond; those of a machine whose cores are all busy by several, at every packet.
const CATCH_UP_MAX: Duration = Duration::from_millis(10);
/// The same where the operator has named the largest burst.
const CATCH_UP_NAMED_MAX: Duration = Duration::from_millis(2);
const NS_PER_S: u64 = 1_000_000_000;
/// What is made up for stands before the link from then on, and all that follows waits for it. So
/// much may stand there: it keeps the link busy when the caller is late again. The rest is paid
/// back, this part of the time that each packet takes.
const STANDING_MAX: Duration = Duration::from_millis(1);
const PAYBACK_PARTS: u32 = 256;

/// The clock of one link. Exact in the long run: what a division leaves over is carried to the next
/// packet.
#[derive(Clone, Debug)]
pub(crate) struct Shaper {
    rate_bps: Option<u64>,
    /// Lateness that is made up for.
    catch_up: Duration,
    next_free: Instant,
    /// When the link itself has sent all of that, which it has got later. `None`: it is no link but
    /// a part of one, which is late whenever others have their turn.
    empty_at: Option<Instant>,
    /// Time beyond `next_free` in units of `1 / rate_bps` ns.
    fraction: u64,
    medium: Medium,
    busy: Duration,
}

impl Shaper {
    /// `catch_up`: lateness that is made up for, see [`link_catch_up`].
    pub(crate) fn new(rate_bps: Option<u64>, catch_up: Duration) -> Self {
        Self {
            rate_bps,
            catch_up,
            next_free: Instant::ZERO,
            empty_at: None,
            fraction: 0,
            medium: Medium::default(),
            busy: Duration::ZERO,
        }
    }

    /// The same of a link: what is made up for stands before it.
    pub(crate) fn of_link(rate_bps: Option<u64>, catch_up: Duration) -> Self {
        Self { empty_at: Some(Instant::ZERO), ..Self::new(rate_bps, catch_up) }
    }

    /// When the next byte may leave; `None`: never at this rate.
    pub(crate) fn free_at(&self) -> Option<Instant> {
        match self.rate_bps {
            None => Some(Instant::ZERO),
            Some(0) => None,
            Some(_) => Some(self.next_free),
        }
    }

    /// Nobody ever waits at this rate.
    pub(crate) fn is_unlimited(&self) -> bool {
        self.rate_bps.is_none()
    }

    /// Bytes leave. `waiting_since`: since when, without a break, something has been waiting; if
    /// that was before the link was free, the link was never idle and only our caller is late.
    pub(crate) fn spend(&mut self, now: Instant, waiting_since: Option<Instant>, bytes: u64) {
        let Some(rate) = self.rate_bps.filter(|rate| *rate > 0) else { return };
        let begin = self.begin(now, waiting_since);
        let idle = begin.since(self.next_free);
        if begin > self.next_free {
            self.next_free = begin;
            self.fraction = 0;
        }
        let work = u128::from(bytes) * 8 * u128::from(NS_PER_S) + u128::from(self.fraction);
        let time = Duration::from_nanos(u64::try_from(work / u128::from(rate)).unwrap_or(u64::MAX));
        self.fraction = u64::try_from(work % u128::from(rate)).unwrap_or(0);
        let taken = time + self.medium.leave(now, time, idle);
        self.next_free += taken;
        if let Some(empty_at) = &mut self.empty_at {
            *empty_at = (*empty_at).max(now) + taken;
            let standing = empty_at.since(self.next_free);
            if standing > STANDING_MAX {
                self.next_free += (taken / PAYBACK_PARTS).min(standing - STANDING_MAX);
            }
        }
        self.busy = self.busy.saturating_add(time);
    }

    /// The other direction needs much of the medium that both share.
    pub(crate) fn is_medium_busy(&self, now: Instant) -> bool {
        self.medium.is_busy(now)
    }

    /// Bits per second, without what the other direction takes of the medium.
    pub(crate) fn carries_bps(&self, now: Instant) -> Option<u64> {
        let rate = u128::from(self.rate_bps?);
        let (own, of) = self.medium.own_parts(now);
        Some(u64::try_from(rate * own / of.max(1)).unwrap_or(u64::MAX))
    }

    /// So much has come in over the medium that both directions share.
    pub(crate) fn note_taken(&mut self, now: Instant, bytes: u64) {
        let time = time_of(self.rate_bps, u32::try_from(bytes).unwrap_or(u32::MAX));
        self.medium.note_taken(now, time, time_of(self.rate_bps, MAX_BURST_BYTES));
    }

    /// Bytes that keep the link busy until then, at most.
    pub(crate) fn bytes_until(&self, now: Instant, until: Instant) -> u64 {
        let time = until.since(self.next_free.max(now)).as_nanos();
        let bits = time * u128::from(self.rate_bps.unwrap_or(0)) / u128::from(NS_PER_S);
        u64::try_from(bits / 8).unwrap_or(u64::MAX)
    }

    /// Bytes that the link could have carried already, had the caller been in time.
    pub(crate) fn overdue_bytes(&self, now: Instant, waiting_since: Option<Instant>) -> u64 {
        let Some(rate) = self.rate_bps else { return 0 };
        let late = now.since(self.begin(now, waiting_since)).as_nanos();
        u64::try_from(late * u128::from(rate) / (8 * u128::from(NS_PER_S))).unwrap_or(u64::MAX)
    }

    /// When the transmission that is decided at `now` begins.
    fn begin(&self, now: Instant, waiting_since: Option<Instant>) -> Instant {
        let idle_until = waiting_since.unwrap_or(now).min(now);
        self.next_free.max(idle_until).max(now - self.catch_up)
    }

    /// Another rate from now on. What is being sent is finished at the new one.
    pub(crate) fn set_rate(&mut self, now: Instant, rate_bps: Option<u64>, catch_up: Duration) {
        if self.rate_bps == rate_bps {
            return;
        }
        let standing = self.empty_at.map(|at| at.since(self.next_free));
        if self.next_free > now
            && let (Some(old), Some(new)) = (self.rate_bps, rate_bps)
            && new > 0
        {
            let rest = self.next_free.since(now).as_nanos() * u128::from(old) / u128::from(new);
            self.next_free = now + Duration::from_nanos(u64::try_from(rest).unwrap_or(u64::MAX));
        } else {
            self.next_free = self.next_free.min(now);
        }
        self.empty_at = standing.map(|standing| self.next_free + standing);
        self.fraction = 0;
        self.rate_bps = rate_bps;
        self.catch_up = catch_up;
    }

    pub(crate) fn busy(&self) -> Duration {
        self.busy
    }
}

/// Lateness that is made up for on a link: never more than the burst that the operator has named,
/// else no more than a super-segment.
pub(crate) fn link_catch_up(rate_bps: Option<u64>, named_burst_bytes: Option<u32>) -> Duration {
    let (bytes, longest) = match named_burst_bytes {
        Some(bytes) => (bytes, CATCH_UP_NAMED_MAX),
        None => (MAX_BURST_BYTES, CATCH_UP_MAX),
    };
    time_of(rate_bps, bytes).min(longest)
}

/// What so many bytes take at this rate; zero where that has no meaning.
pub(crate) fn time_of(rate_bps: Option<u64>, bytes: u32) -> Duration {
    match rate_bps {
        Some(rate) if rate > 0 => Duration::from_nanos(u64::from(bytes).saturating_mul(8 * NS_PER_S) / rate),
        _ => Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1,500 bytes at 7 Mbit/s take 1,714,285.714... ns: after 7 million packets the clock is right
    /// to the nanosecond.
    #[test]
    fn remainders_are_carried() {
        let mut shaper = Shaper::new(Some(7_000_000), Duration::ZERO);
        let start = Instant::from_millis(1);
        let mut now = start;
        for _ in 0..70_000 {
            shaper.spend(now, Some(start), 1500);
            now = shaper.free_at().unwrap();
        }
        assert_eq!(now.since(start), Duration::from_secs(120));
        assert_eq!(shaper.fraction, 0);
    }

    /// A link of 8 Mbit/s whose caller is late once by 8 ms: the link has been idle for so long,
    /// and gets what it missed. That stands before it, and is paid back while the link stays busy.
    #[test]
    fn what_is_made_up_for_does_not_stand_before_the_link_for_ever() {
        let mut shaper = Shaper::of_link(Some(8_000_000), CATCH_UP_MAX);
        let start = Instant::from_millis(1);
        let (mut due, mut empty_at, mut standing) = (start, start, Vec::new());
        for n in 0..4_000 {
            let late_ms = if n == 100 { 8 } else { 0 };
            let now = due + Duration::from_millis(late_ms);
            shaper.spend(now, Some(start), 1_000);
            assert!(n <= 100 || empty_at >= now, "the link stays busy");
            empty_at = empty_at.max(now) + Duration::from_millis(1);
            due = shaper.free_at().unwrap().max(now);
            standing.push(empty_at.since(shaper.free_at().unwrap()));
        }
        let about_8_ms = Duration::from_micros(7_900)..Duration::from_millis(8);
        assert!(standing[99] == Duration::ZERO && about_8_ms.contains(&standing[110]), "{:?}", standing[110]);
        assert!(standing[110..].is_sorted_by(|a, b| a >= b));
        assert_eq!(standing[3_999], STANDING_MAX);
        assert!(standing[1_100] > STANDING_MAX * 3, "and not at once");
    }

    #[test]
    fn a_new_rate_finishes_what_is_being_sent() {
        let mut shaper = Shaper::new(Some(8_000), Duration::ZERO);
        let now = Instant::from_millis(1000);
        shaper.spend(now, None, 1000);
        assert_eq!(shaper.free_at(), Some(Instant::from_millis(2000)));
        shaper.set_rate(Instant::from_millis(1500), Some(80_000), Duration::ZERO);
        assert_eq!(shaper.free_at(), Some(Instant::from_millis(1550)));
        shaper.set_rate(Instant::from_millis(1500), Some(0), Duration::ZERO);
        assert_eq!(shaper.free_at(), None);
        shaper.set_rate(Instant::from_millis(9500), None, Duration::ZERO);
        assert_eq!(shaper.free_at(), Some(Instant::ZERO));
    }
}
