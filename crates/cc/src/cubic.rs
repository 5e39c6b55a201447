//! CUBIC (RFC 9438): the window is a cubic function of the time since the last reduction.

use farlink_wire::time::{Duration, Instant};

use crate::math::cbrt;

/// Multiplicative decrease, RFC 9438 4.6.
const BETA: f64 = 0.7;
/// Aggressiveness in segments per second cubed, RFC 9438 4.1.2 and 5.
const C: f64 = 0.4;
/// Additive increase of the Reno-friendly estimate until it reaches the window before the
/// reduction, RFC 9438 4.3.
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// State of congestion avoidance. Windows are bytes here, so `C` is scaled by the MSS.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cubic {
    /// Window before the last reduction, lowered by fast convergence; zero: none yet.
    w_max: f64,
    /// Seconds from the beginning of the epoch until the window is back at `w_max`.
    k: f64,
    /// What Reno's window would be.
    w_est: f64,
    /// Window before the last reduction.
    cwnd_prior: f64,
    /// The part of the window below one byte.
    fraction: f64,
    /// Begin of this congestion avoidance; `None`: the next ACK begins it.
    epoch: Option<Instant>,
    /// Last time the window was looked at: time in which the sender was limited by other things is
    /// not counted.
    last_seen: Instant,
    /// The next epoch begins where it stands (after slow start without loss, or after a time-out).
    flat: bool,
}

impl Cubic {
    /// The window after `acked` bytes.
    pub(crate) fn grow(&mut self, now: Instant, cwnd: u64, acked: u64, srtt: Duration, mss: u64) -> u64 {
        self.last_seen = now;
        let window = cwnd as f64 + self.fraction;
        let c = C * mss as f64;
        let epoch = match self.epoch {
            Some(epoch) => epoch,
            None => {
                self.begin_epoch(window, c);
                *self.epoch.insert(now)
            }
        };
        let t = now.since(epoch).as_secs_f64();
        // A single ACK cannot count for more than a window.
        let share = (acked as f64 / window).min(1.0);

        let alpha = if self.w_est >= self.cwnd_prior { 1.0 } else { ALPHA };
        self.w_est += alpha * mss as f64 * share;

        let target = self.w_cubic(t + srtt.as_secs_f64(), c).clamp(window, 1.5 * window);
        let grown = if self.w_cubic(t, c) < self.w_est {
            window.max(self.w_est)
        } else {
            window + (target - window) * share
        };
        let whole = grown as u64;
        self.fraction = grown - whole as f64;
        whole
    }

    /// The reduction after congestion at `flight` bytes; the result is `ssthresh` (RFC 9438 4.6,
    /// 4.7).
    pub(crate) fn reduce(&mut self, flight: u64) -> u64 {
        let flight = flight as f64;
        self.cwnd_prior = flight;
        // Fast convergence: a flow that falls before it is back at its old maximum leaves room for
        // newcomers.
        self.w_max = if flight < self.w_max { flight * (1.0 + BETA) / 2.0 } else { flight };
        self.epoch = None;
        self.fraction = 0.0;
        self.flat = false;
        (flight * BETA) as u64
    }

    /// The next congestion avoidance begins with K = 0 and `w_max` as the window then is: after a
    /// time-out (RFC 9438 4.8) and after slow start that ended without loss (4.10).
    pub(crate) fn begin_flat(&mut self) {
        self.epoch = None;
        self.flat = true;
    }

    /// An ACK came while the window was not what limited the sender: the time since the last one
    /// does not count (RFC 9438 5.8).
    pub(crate) fn skip_time(&mut self, now: Instant) {
        if let Some(epoch) = &mut self.epoch {
            *epoch += now.since(self.last_seen);
        }
        self.last_seen = now;
    }

    fn begin_epoch(&mut self, window: f64, c: f64) {
        self.w_est = window;
        if self.flat || self.w_max <= window {
            self.w_max = window;
            self.k = 0.0;
        } else {
            self.k = cbrt((self.w_max - window) / c);
        }
        self.flat = false;
    }

    fn w_cubic(&self, t: f64, c: f64) -> f64 {
        let d = t - self.k;
        c * d * d * d + self.w_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9438 figure 2: after a reduction the window is back at `w_max` after K seconds, and
    /// symmetric round it.
    #[test]
    fn comes_back_to_w_max_after_k() {
        const MSS: u64 = 1000;
        let mut cubic = Cubic::default();
        let mut cwnd = cubic.reduce(1_000_000);
        assert_eq!(cwnd, 700_000);
        let rtt = Duration::from_millis(100);
        // K = cbrt(1000 * 0.3 / 0.4) = 9.086 s
        let mut at_half_k = 0;
        for step in 0..=1817_u64 {
            // 10 ACKs per round trip
            let now = Instant::from_millis(1000 + step * 10);
            cwnd = cubic.grow(now, cwnd, cwnd / 10, rtt, MSS);
            if step == 454 {
                at_half_k = cwnd;
            }
            if step == 909 {
                assert!((995_000..=1_001_000).contains(&cwnd), "at K: {cwnd}");
            }
        }
        // Half of K: 1/8 of the distance is left.
        assert!((955_000..=964_000).contains(&at_half_k), "{at_half_k}");
        // Two K: as far above as it began below.
        assert!((1_285_000..=1_305_000).contains(&cwnd), "{cwnd}");
    }

    #[test]
    fn fast_convergence_lowers_w_max() {
        let mut cubic = Cubic::default();
        cubic.reduce(1_000_000);
        assert_eq!(cubic.w_max, 1_000_000.0);
        cubic.reduce(800_000);
        assert!((cubic.w_max - 680_000.0).abs() < 1e-6, "800,000 * (1 + 0.7) / 2");
        cubic.reduce(900_000);
        assert_eq!(cubic.w_max, 900_000.0);
    }

    #[test]
    fn time_without_need_does_not_count() {
        let rtt = Duration::from_millis(100);
        let run = |pause_ms: u64| {
            let mut cubic = Cubic::default();
            let mut cwnd = cubic.reduce(1_000_000);
            for step in 0..100_u64 {
                let pause = if step >= 50 { pause_ms } else { 0 };
                if step == 50 {
                    cubic.skip_time(Instant::from_millis(step * 10 - 10 + pause));
                }
                cwnd = cubic.grow(Instant::from_millis(step * 10 + pause), cwnd, cwnd / 10, rtt, 1000);
            }
            cwnd
        };
        assert_eq!(run(0), run(60_000));
    }
}
