//! Whether the processor is short: packets wait too long for their turn, or are dropped because
//! nobody reads them.
//!
//! A loop that is busy all the time is no sign. It carries what it can, and its hosts adapt. What
//! harms connections is the wait.

use farlink_wire::{Duration, Instant};

/// A turn of the loop that takes longer is slow: everything that comes meanwhile waits as long.
const SLOW: Duration = Duration::from_millis(50);
/// So many slow turns within [`PERIOD`] are no accident.
const SLOW_TURNS: u32 = 3;
/// How often the evidence is looked at.
const PERIOD: Duration = Duration::from_secs(1);
/// What a device drops while it is down was never to be read. For so long it may still be found.
const DOWN_FOR: Duration = Duration::from_secs(2);
/// A shortage lasts so long beyond its last evidence.
const HOLD: Duration = Duration::from_secs(3);

/// Watches the turns of the loop.
#[derive(Debug, Default)]
pub(crate) struct Shortage {
    since: Option<Instant>,
    slow: u32,
    drops: Option<u64>,
    until: Option<Instant>,
    /// Drops until then are those of a device that was down.
    down_until: Option<Instant>,
}

impl Shortage {
    /// A turn with packets is over. `dropped`: how many packets the devices have dropped so far, as
    /// far as that is known. Returns what is new: the shortage has begun, or it is over.
    pub(crate) fn turn(&mut self, began: Instant, ended: Instant, dropped: Option<u64>) -> Option<bool> {
        let was_short = self.until.is_some();
        self.slow += u32::from(ended.since(began) >= SLOW);
        if self.slow >= SLOW_TURNS {
            self.until = Some(ended + HOLD);
        }
        let since = *self.since.get_or_insert(began);
        if ended.since(since) >= PERIOD {
            self.since = Some(ended);
            self.slow = 0;
            if let (Some(before), Some(now)) = (self.drops, dropped)
                && now > before
                && self.down_until.is_none_or(|until| until < ended)
            {
                self.until = Some(ended + HOLD);
            }
            self.drops = dropped;
        }
        if self.until.is_some_and(|until| until <= ended) {
            self.until = None;
        }
        let is_short = self.until.is_some();
        (is_short != was_short).then_some(is_short)
    }

    /// A device was taken down: what it drops shows nothing.
    pub(crate) fn device_was_down(&mut self, now: Instant) {
        self.down_until = Some(now + DOWN_FOR);
    }

    /// When it has to be looked at without a packet.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    /// Turns of so many milliseconds, one after the other, from one time to another. Returns the
    /// last news.
    fn turns(s: &mut Shortage, from_ms: u64, to_ms: u64, each_ms: u64, drops: u64) -> Option<bool> {
        let mut news = None;
        let mut ms = from_ms;
        while ms < to_ms {
            news = s.turn(at(ms), at(ms + each_ms), Some(drops)).or(news);
            ms += each_ms;
        }
        news
    }

    #[test]
    fn a_busy_loop_is_not_short() {
        let mut s = Shortage::default();
        assert_eq!(turns(&mut s, 1, 10_000, 20, 7), None, "drops of before do not count");
        assert_eq!(s.deadline(), None);
    }

    #[test]
    fn slow_turns_in_a_row_are_a_shortage_that_ends() {
        let mut s = Shortage::default();
        assert_eq!(turns(&mut s, 1, 250, 80, 0), Some(true));
        assert_eq!(turns(&mut s, 250, 2_000, 80, 0), None, "it goes on");
        assert_eq!(turns(&mut s, 2_000, 6_000, 1, 0), Some(false));
        let mut once = Shortage::default();
        for n in 0..20 {
            assert_eq!(turns(&mut once, n * 2_000 + 1, n * 2_000 + 101, 100, 0), None, "now and then one");
        }
    }

    #[test]
    fn packets_that_nobody_read_are_a_shortage() {
        let mut s = Shortage::default();
        assert_eq!(turns(&mut s, 1, 3_000, 10, 0), None);
        assert_eq!(turns(&mut s, 3_000, 5_000, 10, 1), Some(true));
        assert_eq!(turns(&mut s, 5_000, 12_000, 10, 1), Some(false));
    }

    #[test]
    fn what_a_device_drops_while_it_is_down_is_none() {
        let mut s = Shortage::default();
        assert_eq!(turns(&mut s, 1, 3_000, 10, 0), None);
        s.device_was_down(at(3_000));
        assert_eq!(turns(&mut s, 3_000, 6_000, 10, 9), None);
        assert_eq!(turns(&mut s, 6_000, 8_000, 10, 10), Some(true), "later ones count");
    }
}
