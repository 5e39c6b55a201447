//! Hosts alone on a link that winks: they stand still until a retransmission timer of theirs meets
//! the link.
//!
//! This takes the place of Reynolds' equation 3.11. That one lets each interval that fails wait for
//! timers of its own. A sender waits once for each outage, and only the first retransmission that
//! meets the link counts. What the congestion window does afterwards is left out, and so is every
//! way of finding losses without a timer.

use super::wink::Winks;

/// Time is counted in steps of so many seconds.
const STEP_S: f64 = 0.001;
/// Steps at most, so that a long transfer is counted in longer ones.
const STEPS_MAX: f64 = 20_000.0;
/// Linux repeats no sooner and no later than this, seconds (`TCP_RTO_MIN`, `TCP_RTO_MAX`).
const RTO_MIN_S: f64 = 0.2;
const RTO_MAX_S: f64 = 120.0;
/// Repetitions that are made (`tcp_retries2`).
const REPEATS: usize = 15;

/// When a sender repeats, in seconds since it last heard an acknowledgement: the timers of today's
/// Linux, doubled each time. `rtt_s`: the round-trip time, to which the first timer adds 200 ms.
#[must_use]
pub fn linux_s(rtt_s: f64) -> Vec<f64> {
    let mut rto_s = rtt_s + RTO_MIN_S;
    let mut sum_s = 0.0;
    let mut all = Vec::with_capacity(REPEATS);
    for _ in 0..REPEATS {
        sum_s += rto_s;
        all.push(sum_s);
        rto_s = (rto_s * 2.0).min(RTO_MAX_S);
    }
    all
}

/// One way in which an outage can end for the sender.
struct Ending {
    probability: f64,
    /// Since the outage began.
    wait_s: f64,
    /// What is left of the interval in which it ends.
    rest_s: f64,
}

/// How outages end whose sender repeats at these times. An outage begins with an interval that is
/// away; in each later one the link is there with probability 1 - p, and there or away for all
/// repetitions within it.
fn endings(winks: Winks, timers_s: &[f64]) -> Vec<Ending> {
    let mut all: Vec<Ending> = Vec::new();
    let mut met_all_away = 1.0;
    let mut before = 0.0;
    for wait_s in timers_s {
        // A repetition exactly between two intervals falls into the later one.
        let interval = (wait_s / winks.interval_s() + 1e-9).floor();
        if interval > before {
            before = interval;
            let rest_s = (interval + 1.0) * winks.interval_s() - wait_s;
            all.push(Ending { probability: met_all_away * (1.0 - winks.p()), wait_s: *wait_s, rest_s });
            met_all_away *= winks.p();
        }
    }
    // Who gives up has waited for all of them.
    if let Some(last) = all.last_mut() {
        last.probability += met_all_away;
    }
    all
}

/// Mean seconds of a transfer that takes `perfect_s` on a link that is always there, and begins
/// with an interval in which the link is there. Infinite if no timer outlasts an interval.
#[must_use]
pub fn transfer_s(winks: Winks, perfect_s: f64, timers_s: &[f64]) -> f64 {
    let endings = endings(winks, timers_s);
    if endings.is_empty() {
        return if winks.p() > 0.0 && perfect_s > winks.interval_s() { f64::INFINITY } else { perfect_s };
    }
    let step_s = STEP_S.max(perfect_s / STEPS_MAX);
    let steps = |seconds: f64| (seconds / step_s).round().max(1.0) as usize;
    let interval = steps(winks.interval_s());
    // Extra time from the beginning of an interval on, by the steps that are left to send.
    let mut extra_s = vec![0.0; steps(perfect_s) + 1];
    for left in 1..extra_s.len() {
        let after = |sent: usize| extra_s.get(left.saturating_sub(sent)).copied().unwrap_or(0.0);
        let waits = endings.iter().map(|end| end.probability * (end.wait_s + after(steps(end.rest_s))));
        let away_s: f64 = waits.sum();
        let there_s = after(interval);
        if let Some(slot) = extra_s.get_mut(left) {
            *slot = (1.0 - winks.p()) * there_s + winks.p() * away_s;
        }
    }
    let after_the_first = extra_s.len().saturating_sub(1 + interval);
    perfect_s + extra_s.get(after_the_first).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::wink::Begins;

    fn winks(p: f64, interval_ms: f64) -> Winks {
        Winks::new(p, interval_ms / 1e3).unwrap()
    }

    #[test]
    fn linux_doubles_its_timer() {
        let all = linux_s(0.0);
        assert!((all[0] - 0.2).abs() < 1e-9 && (all[3] - 3.0).abs() < 1e-9, "{all:?}");
        // Fifteen repetitions end 15 minutes later.
        assert!((all[14] / 60.0 - 13.4).abs() < 0.1, "{}", all[14] / 60.0);
    }

    #[test]
    fn without_winks_nothing_waits() {
        assert_eq!(transfer_s(winks(0.0, 40.0), 1.86, &linux_s(0.0)), 1.86);
        assert_eq!(
            transfer_s(winks(0.4, 2000.0), 1.86, &linux_s(0.0)),
            1.86,
            "it ends before the first boundary"
        );
        assert_eq!(transfer_s(winks(0.4, 40.0), 1.86, &[]), f64::INFINITY);
    }

    /// One that repeats all the time is a perfect sender.
    #[test]
    fn eager_timers_are_the_bound() {
        let eager: Vec<f64> = (1..60_000).map(|n| f64::from(n) * 0.0001).collect();
        for (p, interval_ms) in [(0.1, 40.0), (0.4, 40.0), (0.4, 500.0), (0.4, 1100.0)] {
            let winks = winks(p, interval_ms);
            let bound_s = winks.perfect_s(1.86, Begins::WithAnIntervalThatIsThere);
            let ratio = transfer_s(winks, 1.86, &eager) / bound_s;
            assert!((ratio - 1.0).abs() < 0.005, "{p} {interval_ms}: {ratio}");
        }
    }

    /// A transfer with a single boundary: with probability p it waits for the first timer beyond an
    /// interval, and for later ones if the link is away again.
    #[test]
    fn one_boundary_can_be_counted_by_hand() {
        let timers_s = [0.2, 0.6, 1.4, 3.0];
        // Intervals of 500 ms: 0.6 s is in the second, 1.4 s in the third, 3.0 s in the seventh.
        let wait_s = 0.9 * 0.6 + 0.09 * 1.4 + 0.01 * 3.0;
        let is_s = transfer_s(winks(0.1, 500.0), 0.55, &timers_s);
        assert!((is_s - (0.55 + 0.1 * wait_s)).abs() < 1e-9, "{is_s}");
    }

    #[test]
    fn a_timer_just_beyond_an_interval_is_a_valley() {
        let of = |interval_ms| transfer_s(winks(0.3, interval_ms), 20.0, &linux_s(0.0));
        assert!(of(190.0) < of(210.0) && of(590.0) < of(610.0));
    }
}
