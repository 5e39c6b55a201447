//! When the next segment may leave: spreads a window over the round trip.

use farlink_wire::{Duration, Instant};

/// Lateness that is made up for: the loop's timers are no finer than this.
const CATCH_UP: Duration = Duration::from_millis(1);
/// Legs with a shorter RTT are not paced: their queues are on this machine, and a timer costs more than it saves.
const PACED_RTT_MIN: Duration = Duration::from_millis(2);
/// A burst lasts at most this long at the pacing rate (Linux tcp_tso_autosize: 1 ms).
const BURST: Duration = Duration::from_millis(1);

/// Pacing state of one sender.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pacer {
    next: Instant,
}

impl Pacer {
    /// Whether a leg of this RTT is paced.
    #[must_use]
    pub fn applies(srtt: Option<Duration>) -> bool {
        srtt.is_some_and(|s| s >= PACED_RTT_MIN)
    }
    /// `None`: now. Otherwise the time to wait for.
    #[must_use]
    pub fn wait_until(&self, now: Instant) -> Option<Instant> {
        (self.next > now).then_some(self.next)
    }
    /// Bytes that may leave as one burst at this rate.
    #[must_use]
    pub fn burst_bytes(rate_bps: u64, mss: u32) -> u32 {
        let bytes = u128::from(rate_bps) * BURST.as_nanos() / 8 / 1_000_000_000;
        u32::try_from(bytes).unwrap_or(u32::MAX).clamp(2 * mss, 65_000)
    }
    /// `bytes` left at `now` under this rate.
    pub fn on_sent(&mut self, now: Instant, bytes: u64, rate_bps: u64) {
        let nanos = u128::from(bytes) * 8 * 1_000_000_000 / u128::from(rate_bps.max(1));
        let start = self.next.max(now - CATCH_UP);
        self.next = start + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
    }
}
