//! A rate that has been found, and how long ago.

use farlink_wire::{Duration, Instant};

/// See the module. An earlier run may have found it: the clock here knows nothing of that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dated {
    /// Bits per second.
    pub bps: u64,
    noted_at: Instant,
    /// It was so old then.
    age_then: Duration,
}

impl Dated {
    /// It was seen at this moment.
    #[must_use]
    pub const fn seen(bps: u64, at: Instant) -> Self {
        Self { bps, noted_at: at, age_then: Duration::ZERO }
    }

    /// It is so old at this moment.
    #[must_use]
    pub const fn aged(bps: u64, now: Instant, age: Duration) -> Self {
        Self { bps, noted_at: now, age_then: age }
    }

    /// How long ago it was seen.
    #[must_use]
    pub fn age(self, now: Instant) -> Duration {
        self.age_then + now.since(self.noted_at)
    }
}
