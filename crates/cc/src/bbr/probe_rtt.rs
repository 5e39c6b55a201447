//! The smallest round-trip time: remembered for ten seconds, and looked for with half a pipe when
//! five have shown none smaller.

use farlink_wire::time::{Duration, Instant};

use super::Bbr;
use super::phases::{AckPhase, Phase};

/// BBR.MinRTTFilterLen.
const MIN_RTT_FILTER: Duration = Duration::from_secs(10);
/// BBR.ProbeRTTInterval: the same for every flow, so that they drain the queue together.
const PROBE_RTT_INTERVAL: Duration = Duration::from_secs(5);
/// BBR.ProbeRTTDuration.
const PROBE_RTT_DURATION: Duration = Duration::from_millis(200);

impl Bbr {
    /// The path is another one of late, with this smallest RTT. Whether it carries more is probed
    /// at once.
    pub(crate) fn settle_phase(&mut self, now: Instant, min_rtt: Duration) {
        (self.min_rtt, self.min_rtt_stamp) = (Some(min_rtt), Some(now));
        (self.probe_rtt_min_delay, self.probe_rtt_min_stamp) = (Some(min_rtt), now);
        if matches!(self.phase, Phase::Down | Phase::Cruise) {
            self.start_refill();
        }
    }

    pub(super) fn update_min_rtt(&mut self, now: Instant, rtt: Option<Duration>) {
        self.probe_rtt_expired = now > self.probe_rtt_min_stamp + PROBE_RTT_INTERVAL;
        if let Some(rtt) = rtt.filter(|rtt| !rtt.is_zero())
            && (self.probe_rtt_expired || self.probe_rtt_min_delay.is_none_or(|min| rtt < min))
        {
            self.probe_rtt_min_delay = Some(rtt);
            self.probe_rtt_min_stamp = now;
        }
        let Some(recent) = self.probe_rtt_min_delay else { return };
        let expired = self.min_rtt_stamp.is_some_and(|at| now > at + MIN_RTT_FILTER);
        if expired || self.min_rtt.is_none_or(|min| recent < min) {
            self.min_rtt = Some(recent);
            self.min_rtt_stamp = Some(self.probe_rtt_min_stamp);
        }
    }

    pub(super) fn check_probe_rtt(&mut self, now: Instant) {
        if self.phase != Phase::ProbeRtt && self.probe_rtt_expired && !self.idle_restart {
            self.phase = Phase::ProbeRtt;
            self.save_cwnd();
            self.probe_rtt_done_stamp = None;
            self.ack_phase = AckPhase::ProbeStopping;
            self.start_round();
        }
        if self.phase == Phase::ProbeRtt {
            self.handle_probe_rtt(now);
        }
        if self.sample.delivered_bytes > self.sample.prior_delivered_bytes {
            self.idle_restart = false;
        }
    }

    fn handle_probe_rtt(&mut self, now: Instant) {
        if self.probe_rtt_done_stamp.is_none() {
            if self.in_flight <= self.probe_rtt_cwnd() {
                self.probe_rtt_done_stamp = Some(now + PROBE_RTT_DURATION);
                self.probe_rtt_round_done = false;
                self.start_round();
            }
            return;
        }
        self.probe_rtt_round_done |= self.round_start;
        if self.probe_rtt_round_done {
            self.check_probe_rtt_done(now);
        }
    }

    pub(super) fn check_probe_rtt_done(&mut self, now: Instant) {
        if self.probe_rtt_done_stamp.is_some_and(|done| now > done) {
            self.probe_rtt_min_stamp = now;
            self.restore_cwnd();
            self.exit_probe_rtt(now);
        }
    }

    fn exit_probe_rtt(&mut self, now: Instant) {
        self.reset_short_term_model();
        if self.full_bw_reached {
            self.start_down(now);
            self.phase = Phase::Cruise;
        } else {
            self.phase = Phase::Startup;
        }
    }

    pub(super) fn probe_rtt_cwnd(&self) -> u64 {
        self.bdp_multiple(Phase::ProbeRtt.cwnd_gain_percent()).max(self.min_pipe_cwnd())
    }
}
