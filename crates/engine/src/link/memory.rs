//! What the last connection over a link that has ended had of it.

use farlink_wire::{Duration, Instant};

use super::Link;

/// What one connection has had is worth so long (RFC 9959 4.1: minutes, and no more than an hour).
const LIFETIME: Duration = Duration::from_secs(600);

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory(Option<Remembered>);

#[derive(Clone, Copy, Debug)]
struct Remembered {
    window_bytes: u64,
    rtt: Duration,
    at: Instant,
}

impl Memory {
    /// A connection ends that had this window at this round trip.
    pub fn note(&mut self, now: Instant, window_bytes: u64, rtt: Duration) {
        self.0 = Some(Remembered { window_bytes, rtt, at: now });
    }

    /// The window that one had not long ago, on a path whose round trip is about the same: from
    /// half to ten times as long (RFC 9959 4.2.1).
    #[must_use]
    pub fn window_bytes(&self, now: Instant, rtt: Duration) -> Option<u64> {
        let r = self.0?;
        let fits = rtt >= r.rtt / 2 && rtt <= r.rtt * 10;
        (fits && now.since(r.at) < LIFETIME).then_some(r.window_bytes)
    }

    /// Nothing is known any more.
    pub fn forget(&mut self) {
        self.0 = None;
    }
}

impl Link {
    /// A connection ends that had this window of it at this round trip: for the next ones.
    pub(crate) fn remember(&mut self, now: Instant, window_bytes: u64, rtt: Duration) {
        self.memory.note(now, window_bytes, rtt);
    }

    /// The window that one had not long ago, at about this round trip.
    #[must_use]
    pub fn remembered_bytes(&self, now: Instant, rtt: Duration) -> Option<u64> {
        self.memory.window_bytes(now, rtt)
    }

    /// Its rate has changed: what connections had of it is no measure any more.
    pub(crate) fn forget(&mut self) {
        self.memory.forget();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_lasts_for_a_while_and_for_the_same_path() {
        let ms = Duration::from_millis;
        let mut memory = Memory::default();
        memory.note(Instant::ZERO, 300_000, ms(500));
        assert_eq!(memory.window_bytes(Instant::ZERO, ms(600)), Some(300_000));
        assert_eq!(memory.window_bytes(Instant::ZERO, ms(40)), None, "another path");
        assert_eq!(memory.window_bytes(Instant::ZERO + LIFETIME, ms(500)), None);
        memory.forget();
        assert_eq!(memory.window_bytes(Instant::ZERO, ms(500)), None);
    }
}
