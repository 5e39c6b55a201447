//! How long something is tried before a connection is given up (Linux tcp_timer.c).

use farlink_wire::{Duration, Instant};

use super::{RTO_MAX, RTO_MIN};

/// Linux `net.ipv4.tcp_retries2`.
const RETRIES: u32 = 15;
/// Linux `net.ipv4.tcp_orphan_retries`: 0 stands for 8.
const ORPHAN_RETRIES: u32 = 8;

/// Time that so many doublings of the least timeout take (Linux `tcp_model_timeout`): 924.6 s for
/// 15, 102.2 s for 8. Counted is time and not repetitions, so that the RTT plays no part.
fn time_of(retries: u32) -> Duration {
    // Doublings until the greatest timeout is reached.
    let doublings = (RTO_MAX.as_nanos() / RTO_MIN.as_nanos()).ilog2();
    let doubled = RTO_MIN * ((2 << retries.min(doublings)) - 1);
    doubled + RTO_MAX * retries.saturating_sub(doublings)
}

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Patience {
    /// The application has closed the socket.
    pub is_orphan: bool,
    /// It has ended.
    pub is_over: bool,
    /// When the oldest repetition since the newest progress left.
    resent_at: Option<Instant>,
    /// When the newest acknowledgement came.
    heard_at: Instant,
    /// Window probes that nobody has answered.
    probes_out: u32,
}

impl Patience {
    /// An acknowledgement came, with something new or without.
    pub fn heard(&mut self, now: Instant, is_progress: bool) {
        self.heard_at = now;
        self.probes_out = 0;
        if is_progress {
            self.resent_at = None;
        }
    }

    /// Something was sent again.
    pub fn resent(&mut self, now: Instant) {
        self.resent_at.get_or_insert(now);
    }

    /// The retransmission timer has come. Whether that was the last time (Linux
    /// `tcp_write_timeout`, `tcp_rtx_probe0_timed_out`). With a window of nothing a receiver that
    /// answers may keep it up for ever, but not an orphan.
    pub fn ends(&mut self, now: Instant, is_shut: bool, is_slowest: bool) -> bool {
        let tried = self.resent_at.map(|at| now.since(at));
        self.is_over |= if is_shut && !self.is_orphan {
            let long = RTO_MAX * 2;
            now.since(self.heard_at) > long && tried.is_some_and(|t| t > long)
        } else {
            tried.is_some_and(|t| t >= time_of(self.retries(is_slowest)))
        };
        self.is_over
    }

    /// The window probe's time has come. Whether it may be sent (Linux `tcp_probe_timer`).
    pub fn may_probe_window(&mut self, is_slowest: bool) -> bool {
        self.is_over |= self.probes_out >= self.retries(is_slowest);
        self.probes_out += 1;
        !self.is_over
    }

    /// Linux `tcp_orphan_retries`: an orphan whose timeout is the greatest is not tried any more.
    fn retries(&self, is_slowest: bool) -> u32 {
        match (self.is_orphan, is_slowest) {
            (false, _) => RETRIES,
            (true, false) => ORPHAN_RETRIES,
            (true, true) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_are_times() {
        assert_eq!(time_of(RETRIES), Duration::from_millis(924_600));
        assert_eq!(time_of(ORPHAN_RETRIES), Duration::from_millis(102_200));
        assert_eq!(time_of(0), RTO_MIN);
    }

    #[test]
    fn a_window_of_nothing_may_last_for_ever_but_not_for_an_orphan() {
        let at = |s: u64| Instant::ZERO + Duration::from_secs(s);
        let mut p = Patience::default();
        p.resent(at(1));
        for minute in 1..1_000 {
            p.heard(at(60 * minute), false);
            assert!(!p.ends(at(60 * minute + 1), true, true));
        }
        assert!(p.ends(at(61_000), true, true), "nobody answers");
        let mut orphan = Patience { is_orphan: true, ..Patience::default() };
        orphan.resent(at(1));
        orphan.heard(at(103), false);
        assert!(!orphan.ends(at(103), true, false) && orphan.ends(at(104), true, false));
    }

    #[test]
    fn window_probes_are_counted_between_answers() {
        let mut p = Patience::default();
        for n in 0..100 {
            assert!(p.may_probe_window(true));
            if n % 10 == 0 {
                p.heard(Instant::ZERO, false);
            }
        }
        let left = (0..RETRIES + 1).filter(|_| p.may_probe_window(true)).count();
        assert_eq!(left as u32, RETRIES - 9);
        assert!(p.is_over);
        let mut orphan = Patience { is_orphan: true, ..Patience::default() };
        assert!(orphan.may_probe_window(false) && !orphan.may_probe_window(true));
    }
}
