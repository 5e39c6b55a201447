//! Vegas (Brakmo and Peterson, "TCP Vegas: end to end congestion avoidance on a global Internet",
//! 1995; thresholds and the end of slow start as Linux tcp_vegas.c): the window follows the number
//! of one's own segments that wait in the network's queues.

use farlink_wire::time::Duration;

/// Fewer of one's own segments waiting: the window grows by one (Linux; the paper has 1 and 3, or 2
/// and 4).
const ALPHA_SEGMENTS: u128 = 2;
/// More of them waiting: it shrinks by one.
const BETA_SEGMENTS: u128 = 4;
/// More of them waiting in slow start: that is over.
const GAMMA_SEGMENTS: u128 = 1;
/// With fewer RTT samples in a round trip its minimum may be a delayed acknowledgement's: Reno
/// decides (Linux).
const SAMPLES_MIN: u32 = 3;

/// What a round trip's measurements advise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Advice {
    /// One segment more.
    Increase,
    /// Stay.
    Hold,
    /// One segment less; the threshold falls below the window.
    Decrease,
    /// Too little was measured: as Reno.
    AsReno,
    /// Slow start goes on.
    Double,
    /// Slow start is over, with at most this window.
    Leave(u64),
}

/// Measurements of Vegas.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Vegas {
    /// Smallest RTT of the connection; zero: none yet.
    base: Duration,
    /// Smallest RTT of this round trip; zero: none yet.
    round_min: Duration,
    samples: u32,
    /// In slow start every second round trip grows, the one between measures what that did (paper,
    /// 3.4).
    measuring: bool,
}

impl Vegas {
    /// Every sample counts.
    pub(crate) fn sample(&mut self, rtt: Duration) {
        let smaller = |known: Duration| if known.is_zero() { rtt } else { known.min(rtt) };
        self.base = smaller(self.base);
        self.round_min = smaller(self.round_min);
        self.samples = self.samples.saturating_add(1);
    }

    /// A round trip is over.
    pub(crate) fn round(&mut self, cwnd: u64, mss: u64, slow_start: bool) -> Advice {
        let advice = self.judge(cwnd, mss, slow_start);
        self.round_min = Duration::ZERO;
        self.samples = 0;
        self.measuring = slow_start && !self.measuring;
        advice
    }

    /// Whether this round trip of slow start grows.
    pub(crate) fn doubles(&self) -> bool {
        !self.measuring
    }

    /// After losses and idle times the measurements of the round trip mean nothing (Linux
    /// tcp_vegas_enable).
    pub(crate) fn forget_round(&mut self) {
        self.round_min = Duration::ZERO;
        self.samples = 0;
    }

    /// After an idle time the path may be another one.
    pub(crate) fn restart(&mut self) {
        *self = Self::default();
    }

    fn judge(&self, cwnd: u64, mss: u64, slow_start: bool) -> Advice {
        let (base, rtt) = (self.base.as_nanos(), self.round_min.as_nanos());
        if self.samples < SAMPLES_MIN || base == 0 {
            return if slow_start { Advice::Double } else { Advice::AsReno };
        }
        // In bytes: cwnd/base is what the path would carry without queues, cwnd/rtt what it does.
        let queued = u128::from(cwnd) * (rtt - base) / base;
        let segments = |n: u128| n * u128::from(mss);
        if slow_start {
            if queued <= segments(GAMMA_SEGMENTS) {
                return Advice::Double;
            }
            let target = u64::try_from(u128::from(cwnd) * base / rtt).unwrap_or(u64::MAX);
            return Advice::Leave(target.saturating_add(mss));
        }
        if queued > segments(BETA_SEGMENTS) {
            Advice::Decrease
        } else if queued < segments(ALPHA_SEGMENTS) {
            Advice::Increase
        } else {
            Advice::Hold
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(base_ms: u64, rtt_ms: u64, samples: u32, segments: u64, slow_start: bool) -> Advice {
        let mut vegas = Vegas::default();
        vegas.sample(Duration::from_millis(base_ms));
        vegas.forget_round();
        for _ in 0..samples {
            vegas.sample(Duration::from_millis(rtt_ms));
        }
        vegas.round(segments * 1000, 1000, slow_start)
    }

    /// 100 segments in flight, 100 ms: each millisecond more is a segment in the queue.
    #[test]
    fn two_to_four_segments_in_the_queue() {
        for (rtt_ms, advice) in [
            (100, Advice::Increase),
            (101, Advice::Increase),
            (102, Advice::Hold),
            (104, Advice::Hold),
            (105, Advice::Decrease),
        ] {
            assert_eq!(round(100, rtt_ms, 3, 100, false), advice, "{rtt_ms} ms");
        }
        assert_eq!(round(100, 105, 2, 100, false), Advice::AsReno, "two samples may both be delayed");
    }

    #[test]
    fn slow_start_ends_with_the_second_segment_in_the_queue() {
        assert_eq!(round(100, 101, 3, 100, true), Advice::Double);
        // What was delivered in a round trip without queue, and one.
        assert_eq!(round(100, 125, 3, 100, true), Advice::Leave(81_000));
    }

    #[test]
    fn every_second_round_trip_grows() {
        let mut vegas = Vegas::default();
        let grows: Vec<bool> = (0..4)
            .map(|_| {
                vegas.round(10_000, 1000, true);
                vegas.doubles()
            })
            .collect();
        assert_eq!(grows, [false, true, false, true]);
    }
}
