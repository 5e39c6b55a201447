//! Delivery-rate samples (draft-ietf-ccwg-bbr 4.1): how fast a leg really delivers.

use farlink_cc::Sample;
use farlink_wire::{Duration, Instant};

use crate::scoreboard::{Acked, Then};

/// Counts what a leg has delivered.
#[derive(Clone, Copy, Debug, Default)]
pub struct RateSampler {
    delivered_bytes: u64,
    delivered_at: Instant,
    first_sent_at: Instant,
    /// Until so much is delivered, what is sent counts as limited by the source; 0: it does not.
    app_limited_until_bytes: u64,
    round_end: u64,
}

/// What an acknowledgement says of the leg's rate.
#[derive(Clone, Copy, Debug, Default)]
pub struct RateSample {
    /// For the controller.
    pub sample: Sample,
    /// A round trip has passed since the last round began.
    pub round_start: bool,
}

impl RateSampler {
    /// Bytes delivered so far.
    #[must_use]
    pub fn delivered_bytes(&self) -> u64 {
        self.delivered_bytes
    }
    /// Sending starts after an idle time: the interval begins now.
    pub fn restart(&mut self, now: Instant) {
        self.delivered_at = now;
        self.first_sent_at = now;
    }
    /// The source had nothing left to send, or the controller holds back: samples of what is sent
    /// until all that is now in flight has arrived do not show what the path can do
    /// (MarkConnectionAppLimited).
    pub fn mark_app_limited(&mut self, in_flight_bytes: u64) {
        self.app_limited_until_bytes = (self.delivered_bytes + in_flight_bytes).max(1);
    }
    /// What is sent now counts as limited by the source.
    #[must_use]
    pub fn is_app_limited(&self) -> bool {
        self.app_limited_until_bytes > 0
    }
    /// The state to remember with a transmission that leaves now.
    #[must_use]
    pub fn then(&self, lost_ever_bytes: u64, in_flight_bytes: u64) -> Then {
        Then {
            delivered_bytes: self.delivered_bytes,
            delivered_at: self.delivered_at,
            first_sent_at: self.first_sent_at,
            lost_bytes: lost_ever_bytes,
            in_flight_bytes,
            app_limited: self.is_app_limited(),
        }
    }
    /// Takes in an acknowledgement.
    pub fn on_ack(
        &mut self,
        now: Instant,
        acked: &Acked,
        lost_ever_bytes: u64,
        min_rtt: Duration,
    ) -> RateSample {
        self.delivered_bytes += acked.delivered_bytes;
        if acked.delivered_bytes > 0 {
            self.delivered_at = now;
        }
        if self.delivered_bytes > self.app_limited_until_bytes {
            self.app_limited_until_bytes = 0;
        }
        let Some((sent_at, then)) = acked.snapshot else {
            return RateSample::default();
        };
        self.first_sent_at = sent_at;
        let round_start = then.delivered_bytes >= self.round_end;
        if round_start {
            self.round_end = self.delivered_bytes;
        }
        // The slower of sending and acknowledging: acknowledgements that come in a bunch promise
        // too much.
        let interval = now.since(then.delivered_at).max(sent_at.since(then.first_sent_at));
        let bytes = self.delivered_bytes.saturating_sub(then.delivered_bytes);
        let rate_bps = (interval >= min_rtt && !interval.is_zero()).then(|| {
            let bits = u128::from(bytes) * 8 * 1_000_000_000 / interval.as_nanos().max(1);
            u64::try_from(bits).unwrap_or(u64::MAX)
        });
        let sample = Sample {
            rate_bps,
            delivered_bytes: self.delivered_bytes,
            prior_delivered_bytes: then.delivered_bytes,
            tx_in_flight_bytes: then.in_flight_bytes,
            lost_bytes: lost_ever_bytes.saturating_sub(then.lost_bytes),
            app_limited: then.app_limited,
        };
        RateSample { sample, round_start }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ack(bytes: u64, sent_at: Instant, then: Then) -> Acked {
        Acked { delivered_bytes: bytes, snapshot: Some((sent_at, then)), ..Acked::default() }
    }

    #[test]
    fn acknowledgements_in_a_bunch_do_not_raise_the_rate_above_that_of_sending() {
        let mut rate = RateSampler::default();
        let at = Instant::from_millis;
        rate.restart(at(0));
        let first = rate.then(0, 1000);
        let min_rtt = Duration::from_millis(10);
        let r = rate.on_ack(at(100), &ack(1000, at(0), first), 0, min_rtt);
        assert_eq!(r.sample.rate_bps, Some(80_000));
        // Sent over 100 ms, acknowledged within 20.
        let then = Then { first_sent_at: at(0), ..rate.then(0, 9000) };
        let r = rate.on_ack(at(120), &ack(9000, at(100), then), 500, min_rtt);
        assert_eq!((r.sample.rate_bps, r.sample.lost_bytes), (Some(720_000), 500));
    }

    #[test]
    fn limited_by_the_source_until_what_was_in_flight_has_arrived() {
        let mut rate = RateSampler::default();
        rate.mark_app_limited(3000);
        assert!(rate.then(0, 1).app_limited);
        let then = rate.then(0, 1000);
        rate.on_ack(Instant::from_millis(5), &ack(3000, Instant::ZERO, then), 0, Duration::ZERO);
        assert!(rate.is_app_limited());
        rate.on_ack(Instant::from_millis(6), &ack(1, Instant::ZERO, then), 0, Duration::ZERO);
        assert!(!rate.is_app_limited());
    }
}
