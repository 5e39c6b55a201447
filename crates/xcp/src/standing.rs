//! The part of a queue that never goes away.
//!
//! Packets come in bursts, and wait for each other for a moment. What still waits when the queue is
//! shortest has nothing to do with bursts, and is to be drained (draft section 4.2.3, lines 32 to
//! 36).

use farlink_wire::{Duration, Instant};

/// The shortest time that is looked at: a queue of so long is allowed.
const ALLOWED: Duration = Duration::from_millis(2);

/// The shortest queue of late.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    /// In the last whole period.
    queue_bytes: u64,
    /// In this one, so far.
    least_bytes: u64,
    ends_at: Instant,
}

impl Standing {
    pub fn new(now: Instant) -> Self {
        Self { queue_bytes: 0, least_bytes: 0, ends_at: now }
    }

    /// Bytes that have been standing.
    pub fn bytes(&self) -> u64 {
        self.queue_bytes
    }

    /// A packet leaves, so many bytes wait behind it.
    pub fn note(&mut self, queue_bytes: u64) {
        self.least_bytes = self.least_bytes.min(queue_bytes);
    }

    /// When the period ends.
    pub fn ends_at(&self) -> Instant {
        self.ends_at
    }

    /// The period has ended. The next one is half of what a round trip lasts beside the time in
    /// this queue, `rtt_s` and `drain_s`, both in seconds.
    pub fn end(&mut self, now: Instant, queue_bytes: u64, (rtt_s, drain_s): (f64, f64)) {
        self.queue_bytes = self.least_bytes.min(queue_bytes);
        self.least_bytes = queue_bytes;
        let period = Duration::try_from_secs_f64((rtt_s - drain_s) / 2.0).unwrap_or(ALLOWED);
        self.ends_at = now + period.max(ALLOWED);
    }
}
