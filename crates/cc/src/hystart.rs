//! HyStart++ (RFC 9406): leave slow start when the round-trip time rises.

use farlink_wire::time::Duration;

/// RFC 9406 4.3.
const MIN_RTT_THRESH: Duration = Duration::from_millis(4);
const MAX_RTT_THRESH: Duration = Duration::from_millis(16);
const MIN_RTT_DIVISOR: u32 = 8;
const N_RTT_SAMPLE: u32 = 8;
const CSS_ROUNDS: u32 = 5;
/// Divides the growth during conservative slow start.
pub(crate) const CSS_GROWTH_DIVISOR: u64 = 4;

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
}
