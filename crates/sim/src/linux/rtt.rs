//! Round-trip time and retransmission timeout as Linux keeps them (`tcp_rtt_estimator`, RFC 6298).

use farlink_wire::{Duration, Instant};

/// Linux `TCP_RTO_MIN`: the floor of the variance, and so of the time beyond the RTT.
pub(super) const RTO_MIN: Duration = Duration::from_millis(200);
/// Linux `TCP_RTO_MAX`.
pub(super) const RTO_MAX: Duration = Duration::from_secs(120);
/// Linux `TCP_TIMEOUT_FALLBACK`: the timeout of data where the handshake repeated a SYN, and so
/// gave no sample.
const RTO_FALLBACK: Duration = Duration::from_secs(3);
/// How long the smallest RTT counts (Linux `tcp_min_rtt_wlen`).
const MIN_RTT_WINDOW: Duration = Duration::from_secs(300);

/// The estimator of one connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Rtt {
    /// Smoothed RTT; zero while unknown.
    pub srtt: Duration,
    /// Smallest RTT; zero while unknown.
    pub min: Duration,
    min_at: Instant,
    mdev: f64,
    rttvar: f64,
    mdev_max: f64,
    /// Sequence number at which the variance of this round is taken over.
    round_end: u64,
    /// Doublings of the timeout.
    pub backoff: u32,
}

impl Rtt {
    /// A sample. `una` and `nxt` tell rounds apart.
    pub fn sample(&mut self, now: Instant, rtt: Duration, una: u64, nxt: u64) {
        if self.min.is_zero() || rtt <= self.min || now.since(self.min_at) > MIN_RTT_WINDOW {
            self.min = rtt.max(Duration::from_nanos(1));
            self.min_at = now;
        }
        let r = rtt.as_secs_f64();
        let floor = RTO_MIN.as_secs_f64();
        if self.srtt.is_zero() {
            self.srtt = rtt.max(Duration::from_nanos(1));
            // mdev is half the RTT, as four times the deviation; so RTO = 3 RTT at least.
            self.mdev = 2.0 * r;
            self.rttvar = self.mdev.max(floor);
            self.mdev_max = self.rttvar;
            self.round_end = nxt;
            return;
        }
        let s = self.srtt.as_secs_f64();
        let error = r - s;
        self.srtt = Duration::from_secs_f64((s + error / 8.0).max(1e-9));
        // All deviations are kept times four. A falling RTT moves them an eighth as fast (Linux,
        // since Eifel).
        let change = if error < 0.0 && -error * 4.0 > self.mdev {
            (-error - self.mdev / 4.0) / 8.0
        } else {
            error.abs() - self.mdev / 4.0
        };
        self.mdev += change;
        if self.mdev > self.mdev_max {
            self.mdev_max = self.mdev;
            self.rttvar = self.rttvar.max(self.mdev_max);
        }
        if una > self.round_end {
            if self.mdev_max < self.rttvar {
                self.rttvar -= (self.rttvar - self.mdev_max) / 4.0;
            }
            self.round_end = nxt;
            self.mdev_max = floor;
        }
    }

    /// The retransmission timeout, back-off included.
    #[must_use]
    pub fn rto(&self) -> Duration {
        let base =
            if self.srtt.is_zero() { RTO_FALLBACK } else { self.srtt + Duration::from_secs_f64(self.rttvar) };
        (base * 2u32.saturating_pow(self.backoff.min(16))).min(RTO_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_path_has_the_least_margin() {
        let mut rtt = Rtt::default();
        assert_eq!(rtt.rto(), RTO_FALLBACK);
        for round in 0..100u64 {
            let now = Instant::from_millis(500 * round);
            rtt.sample(now, Duration::from_millis(500), round + 1, round + 1);
        }
        assert_eq!(rtt.min, Duration::from_millis(500));
        let rto = rtt.rto().as_secs_f64();
        assert!((rto - 0.7).abs() < 0.01, "{rto}");
        rtt.backoff = 2;
        assert!((rtt.rto().as_secs_f64() - 4.0 * rto).abs() < 1e-6);
    }
}
