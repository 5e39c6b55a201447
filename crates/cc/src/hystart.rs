//! HyStart++ (RFC 9406): leave slow start when the round-trip time rises. And HyStart as Linux has
//! it, for CUBIC that has another controller beside it.

use farlink_wire::time::{Duration, Instant};

/// RFC 9406 4.3.
const MIN_RTT_THRESH: Duration = Duration::from_millis(4);
const MAX_RTT_THRESH: Duration = Duration::from_millis(16);
const MIN_RTT_DIVISOR: u32 = 8;
const N_RTT_SAMPLE: u32 = 8;
const CSS_ROUNDS: u32 = 5;
/// Divides the growth during conservative slow start.
pub(crate) const CSS_GROWTH_DIVISOR: u64 = 4;

/// Acknowledgements that come within so much of each other are one train (Linux
/// hystart_ack_delta_us).
const TRAIN_GAP: Duration = Duration::from_millis(2);

/// What slow start should do now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Advice {
    /// Grow by what was acknowledged.
    Standard,
    /// Conservative slow start: grow by a quarter of it.
    Conservative,
    /// Slow start is over.
    Exit,
}

/// Detector state. Only meaningful in the initial slow start (RFC 9406 4.3, last paragraph).
#[derive(Clone, Debug, Default)]
pub(crate) struct HyStart {
    last_round_min: Option<Duration>,
    current_round_min: Option<Duration>,
    samples: u32,
    css: Option<Css>,
}

#[derive(Clone, Copy, Debug)]
struct Css {
    baseline: Duration,
    /// Rounds begun, the partial one of the entry included.
    rounds: u32,
}

impl HyStart {
    /// One ACK in slow start.
    pub(crate) fn on_ack(&mut self, round_start: bool, rtt: Option<Duration>) -> Advice {
        if round_start {
            self.last_round_min = self.current_round_min.or(self.last_round_min);
            self.current_round_min = None;
            self.samples = 0;
            if let Some(css) = &mut self.css {
                css.rounds += 1;
                if css.rounds > CSS_ROUNDS {
                    return Advice::Exit;
                }
            }
        }
        if let Some(rtt) = rtt {
            self.current_round_min = Some(self.current_round_min.map_or(rtt, |min| min.min(rtt)));
            self.samples = self.samples.saturating_add(1);
            self.compare();
        }
        if self.css.is_some() { Advice::Conservative } else { Advice::Standard }
    }

    fn compare(&mut self) {
        let (Some(current), Some(last)) = (self.current_round_min, self.last_round_min) else { return };
        if self.samples < N_RTT_SAMPLE {
            return;
        }
        match self.css {
            // The rise was not there to stay: RFC 9406 4.2, back to slow start.
            Some(css) if current < css.baseline => self.css = None,
            Some(_) => {}
            None => {
                let threshold = (last / MIN_RTT_DIVISOR).clamp(MIN_RTT_THRESH, MAX_RTT_THRESH);
                if current >= last + threshold {
                    self.css = Some(Css { baseline: current, rounds: 1 });
                }
            }
        }
    }
}

/// HyStart of Linux (Ha and Rhee 2008): slow start ends with the first rise, and when a train of
/// acknowledgements takes half of the shortest round trip. What it misses by that another
/// controller finds. What it would send too much, one after the other, a short queue would lose.
#[derive(Clone, Debug, Default)]
pub(crate) struct OfLinux {
    round_began: Instant,
    last_at: Instant,
    least: Option<Duration>,
    /// The smallest of the first in this round.
    current: Option<Duration>,
    samples: u32,
}

impl OfLinux {
    /// One ACK in slow start. Returns whether that ends.
    pub(crate) fn on_ack(&mut self, now: Instant, round_start: bool, rtt: Option<Duration>) -> bool {
        if round_start {
            (self.round_began, self.last_at, self.current, self.samples) = (now, now, None, 0);
        }
        let smaller = |min: Option<Duration>, rtt: Duration| Some(min.map_or(rtt, |min| min.min(rtt)));
        if let Some(rtt) = rtt {
            self.least = smaller(self.least, rtt);
            if self.samples < N_RTT_SAMPLE {
                self.current = smaller(self.current, rtt);
                self.samples += 1;
            }
        }
        let Some(least) = self.least else { return false };
        if now.since(self.last_at) <= TRAIN_GAP {
            self.last_at = now;
            if now.since(self.round_began) > least / 2 {
                return true;
            }
        }
        let threshold = (least / MIN_RTT_DIVISOR).clamp(MIN_RTT_THRESH, MAX_RTT_THRESH);
        self.samples >= N_RTT_SAMPLE && self.current.is_some_and(|rtt| rtt > least + threshold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(h: &mut HyStart, rtt_ms: u64, acks: u32) -> Advice {
        let mut advice = Advice::Standard;
        for i in 0..acks {
            advice = h.on_ack(i == 0, Some(Duration::from_millis(rtt_ms)));
            if advice == Advice::Exit {
                break;
            }
        }
        advice
    }

    #[test]
    fn constant_delay_never_leaves() {
        let mut h = HyStart::default();
        for _ in 0..50 {
            assert_eq!(round(&mut h, 100, 20), Advice::Standard);
        }
    }

    #[test]
    fn needs_eight_samples_and_an_eighth_of_the_rtt() {
        let mut h = HyStart::default();
        round(&mut h, 80, 8);
        assert_eq!(round(&mut h, 89, 8), Advice::Standard);
        // Baseline of the next comparison is the last round, 89 ms: 11.125 ms more is needed.
        assert_eq!(round(&mut h, 101, 7), Advice::Standard);
        let mut h = HyStart::default();
        round(&mut h, 80, 8);
        assert_eq!(round(&mut h, 90, 7), Advice::Standard);
        assert_eq!(h.on_ack(false, Some(Duration::from_millis(90))), Advice::Conservative);
    }

    #[test]
    fn threshold_is_clamped_to_16_ms() {
        let mut h = HyStart::default();
        round(&mut h, 600, 8);
        assert_eq!(round(&mut h, 615, 8), Advice::Standard);
        assert_eq!(round(&mut h, 631, 8), Advice::Conservative);
    }

    #[test]
    fn five_rounds_of_css_then_exit() {
        let mut h = HyStart::default();
        round(&mut h, 100, 8);
        assert_eq!(round(&mut h, 120, 8), Advice::Conservative);
        for _ in 0..4 {
            assert_eq!(round(&mut h, 120, 8), Advice::Conservative);
        }
        assert_eq!(round(&mut h, 120, 8), Advice::Exit);
    }

    #[test]
    fn falls_back_when_the_rise_was_jitter() {
        let mut h = HyStart::default();
        round(&mut h, 100, 8);
        assert_eq!(round(&mut h, 120, 8), Advice::Conservative);
        assert_eq!(round(&mut h, 101, 8), Advice::Standard);
    }

    /// Rounds of acknowledgements so far apart, with these round trips. How many of the last round
    /// came until slow start ended; `None`: it goes on.
    fn of_linux(rtts_ms: &[u64], apart_us: u64, acks: u64) -> Option<u64> {
        let mut linux = OfLinux::default();
        let mut began = Instant::from_millis(1);
        for rtt_ms in rtts_ms {
            for n in 0..acks {
                let now = began + Duration::from_micros(apart_us * n);
                if linux.on_ack(now, n == 0, Some(Duration::from_millis(*rtt_ms))) {
                    return Some(n);
                }
            }
            began += Duration::from_millis(*rtt_ms) + Duration::from_micros(apart_us * acks);
        }
        None
    }

    #[test]
    fn beside_another_controller_the_first_rise_or_a_long_train_is_the_end() {
        assert_eq!(of_linux(&[40, 40, 40], 3_000, 16), None);
        assert_eq!(of_linux(&[40, 48], 3_000, 16), Some(7), "an eighth and more");
        assert_eq!(of_linux(&[600, 610], 3_000, 16), None, "16 ms at most");
        assert_eq!(of_linux(&[600, 617], 3_000, 16), Some(7));
        assert_eq!(of_linux(&[100], 1_000, 50), None);
        assert_eq!(of_linux(&[100], 1_000, 60), Some(51), "half of the round trip");
        assert_eq!(of_linux(&[100], 3_000, 60), None, "these are no train");
    }
}
