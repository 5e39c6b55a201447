//! Delivery-rate samples (draft-cheng-iccrg-delivery-rate-estimation): how fast a leg really delivers.

use farlink_wire::{Duration, Instant};

use crate::scoreboard::Acked;

/// Counts what a leg has delivered.
#[derive(Clone, Copy, Debug, Default)]
pub struct RateSampler {
    delivered_bytes: u64,
    delivered_at: Instant,
    round_end: u64,
}

/// What an acknowledgement says of the leg's rate.
#[derive(Clone, Copy, Debug, Default)]
pub struct RateSample {
    /// Bits per second; `None` when the interval is too short to tell.
    pub rate_bps: Option<u64>,
    /// A round trip has passed since the last round began.
    pub round_start: bool,
}

impl RateSampler {
    /// Bytes delivered so far.
    #[must_use]
    pub fn delivered_bytes(&self) -> u64 {
        self.delivered_bytes
    }
    /// Time of the last delivery.
    #[must_use]
    pub fn delivered_at(&self) -> Instant {
        self.delivered_at
    }
    /// Sending starts after an idle time: the interval begins now.
    pub fn restart(&mut self, now: Instant) {
        self.delivered_at = now;
    }
    /// Takes in an acknowledgement.
    pub fn on_ack(&mut self, now: Instant, acked: &Acked, min_rtt: Duration) -> RateSample {
        self.delivered_bytes += acked.delivered_bytes;
        if acked.delivered_bytes > 0 {
            self.delivered_at = now;
        }
        let Some((delivered_before, at)) = acked.snapshot else {
            return RateSample::default();
        };
        let round_start = delivered_before >= self.round_end;
        if round_start {
            self.round_end = self.delivered_bytes;
        }
        let interval = now.since(at);
        let bytes = self.delivered_bytes.saturating_sub(delivered_before);
        let rate_bps = (interval >= min_rtt && !interval.is_zero()).then(|| {
            let bits = u128::from(bytes) * 8 * 1_000_000_000 / interval.as_nanos().max(1);
            u64::try_from(bits).unwrap_or(u64::MAX)
        });
        RateSample { rate_bps, round_start }
    }
}
