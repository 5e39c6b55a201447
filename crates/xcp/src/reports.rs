//! What the gateway at the other end of a link reports: how much has come in over it, of all flows
//! together.

use farlink_wire::{Duration, Instant};

/// Round trips after which what was reported says nothing any more; and that may lie between two
/// reports, else somebody has rested.
const FRESH_ROUNDS: u32 = 2;
/// Without a round trip, and with one that is shorter, it counts as this.
const RTT_MIN: Duration = Duration::from_millis(1);

/// What has come in for a round trip or two.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Reported {
    /// When that was heard.
    heard_at: Instant,
    /// Bytes that might be under way meanwhile, at least.
    pub(crate) window_bytes: u64,
    /// Bytes a second, by the clock of the other gateway.
    pub(crate) bytes_per_s: f64,
}

impl Reported {
    /// It still says something, where a round trip takes so long.
    #[must_use]
    pub fn is_fresh(&self, now: Instant, rtt: Duration) -> bool {
        now.since(self.heard_at) <= rtt.max(RTT_MIN) * FRESH_ROUNDS
    }
}

/// The reports of one gateway: times in microseconds of its clock and bytes, both modulo 2^32.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reports {
    /// The first of those that are looked at together, and what might be under way then.
    first: Option<(u32, u32, u64)>,
    newest: Option<Reported>,
}

impl Reports {
    /// By that time so many bytes had come in. `rtt`: how long a round trip takes; `window_bytes`:
    /// what may be under way now.
    pub fn hear(
        &mut self,
        now: Instant,
        (at_us, received_bytes): (u32, u32),
        rtt: Duration,
        window_bytes: u64,
    ) {
        let this = (at_us, received_bytes, window_bytes);
        let (first_us, first_bytes, first_window_bytes) = *self.first.get_or_insert(this);
        let (rtt_us, elapsed_us) = (rtt.max(RTT_MIN).as_micros(), at_us.wrapping_sub(first_us));
        let is_late = elapsed_us.cast_signed() < 0;
        let apart_us = u128::from(elapsed_us.cast_signed().unsigned_abs());
        if apart_us > rtt_us * u128::from(FRESH_ROUNDS) {
            // After a rest, or by another clock.
            (self.first, self.newest) = (Some(this), None);
        } else if !is_late && apart_us >= rtt_us {
            let came = f64::from(received_bytes.wrapping_sub(first_bytes));
            self.newest = Some(Reported {
                heard_at: now,
                window_bytes: first_window_bytes.min(window_bytes),
                bytes_per_s: came * 1e6 / f64::from(elapsed_us),
            });
            self.first = Some(this);
        }
    }

    /// What the newest ones say.
    #[must_use]
    pub fn newest(&self) -> Option<Reported> {
        self.newest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(100);

    fn at(ms: u64) -> Instant {
        Instant::from_millis(1_000 + ms)
    }

    #[test]
    fn a_round_trip_of_reports_is_a_rate_however_the_numbers_wrap() {
        let mut reports = Reports::default();
        let (began_us, began_bytes) = (u32::MAX - 60_000, u32::MAX - 10_000);
        for n in 0..=8_u32 {
            assert_eq!(reports.newest(), None, "{n}");
            let told = (began_us.wrapping_add(n * 12_500), began_bytes.wrapping_add(n * 5_000));
            reports.hear(at(u64::from(n) * 12), told, RTT, 100_000 - u64::from(n));
        }
        let newest = reports.newest().unwrap();
        assert_eq!((newest.bytes_per_s, newest.window_bytes), (400_000.0, 99_992));
        assert!(newest.is_fresh(at(96 + 200), RTT) && !newest.is_fresh(at(96 + 201), RTT));
        // One that was overtaken changes nothing.
        reports.hear(at(100), (began_us.wrapping_add(90_000), began_bytes), RTT, 1);
        assert_eq!(reports.newest(), Some(newest));
    }

    #[test]
    fn a_rest_or_another_clock_says_nothing_of_a_rate() {
        for later_us in [200_001, 1 << 31, 200_001_u32.wrapping_neg(), 1 << 30] {
            let mut reports = Reports::default();
            reports.hear(at(0), (7_000_000, 5), RTT, 1);
            reports.hear(at(100), (7_100_000, 10_005), RTT, 1);
            assert!(reports.newest().is_some());
            let again_us = 7_100_000_u32.wrapping_add(later_us);
            reports.hear(at(200), (again_us, 99), RTT, 1);
            assert_eq!(reports.newest(), None, "{later_us}");
            reports.hear(at(300), (again_us.wrapping_add(100_000), 20_099), RTT, 1);
            assert_eq!(reports.newest().map(|newest| newest.bytes_per_s), Some(200_000.0), "{later_us}");
        }
    }
}
