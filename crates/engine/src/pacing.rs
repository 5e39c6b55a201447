//! When the next segment may leave: spreads a window over the round trip.

use farlink_wire::{Duration, Instant};

/// Lateness that is made up for: the loop's timers are no finer than this.
const CATCH_UP: Duration = Duration::from_millis(1);
/// Legs with a shorter RTT are not paced: their queues are on this machine, and a timer costs more
/// than it saves.
const PACED_RTT_MIN: Duration = Duration::from_millis(2);
/// What may leave as one burst at most, bytes, but for two segments.
const BURST_BYTES_MAX: u32 = 65_000;
/// A burst lasts at most this long at the pacing rate (Linux tcp_tso_autosize: 1 ms).
const BURST: Duration = Duration::from_millis(1);

/// Pacing state of one sender.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pacer {
    next: Instant,
    /// How long the sender waited for its turn, see [`Pacer::wait_for_turn`].
    waited: Duration,
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
    /// The sender was free to send so long ago, and others had their turn first: what the rate
    /// allows for that time may leave at once. Thousands of senders that took a burst of a
    /// millisecond each time they came round would never use their windows.
    pub fn wait_for_turn(&mut self, waited: Duration) {
        self.waited = waited;
    }
    /// Bytes that may leave as one burst at this rate.
    #[must_use]
    pub fn burst_bytes(&self, rate_bps: u64, mss: u32) -> u32 {
        let bytes = u128::from(rate_bps) * BURST.max(self.waited).as_nanos() / 8 / 1_000_000_000;
        u32::try_from(bytes).unwrap_or(u32::MAX).min(BURST_BYTES_MAX).max(mss.saturating_mul(2))
    }
    /// `bytes` left at `now` under this rate.
    pub fn on_sent(&mut self, now: Instant, bytes: u64, rate_bps: u64) {
        let nanos = u128::from(bytes) * 8 * 1_000_000_000 / u128::from(rate_bps.max(1));
        let start = self.next.max(now - CATCH_UP.max(self.waited));
        self.next = start + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 8 Mbit/s are a kilobyte in a millisecond.
    #[test]
    fn who_waited_for_a_turn_may_send_what_that_time_allows() {
        let (mut p, now, rate) = (Pacer::default(), Instant::from_millis(1000), 8_000_000);
        p.on_sent(now, 2_000, rate);
        assert_eq!(p.wait_until(now), Some(now + Duration::from_millis(1)));
        assert_eq!(p.burst_bytes(rate, 500), 1_000);
        let later = now + Duration::from_millis(20);
        p.wait_for_turn(Duration::from_millis(15));
        assert_eq!((p.wait_until(later), p.burst_bytes(rate, 500)), (None, 15_000));
        p.on_sent(later, 15_000, rate);
        assert_eq!(p.wait_until(later), None, "that time is used up, and no more");
        p.wait_for_turn(Duration::ZERO);
        p.on_sent(later, 5_000, rate);
        assert_eq!(p.wait_until(later), Some(later + Duration::from_millis(5)));
        assert_eq!(p.burst_bytes(rate, 500), 1_000);
    }
}
