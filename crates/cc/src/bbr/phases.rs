//! The state machine: Startup, Drain, and the cycle of probing for bandwidth.

use farlink_wire::time::{Duration, Instant};

use super::{Bbr, INFINITE};

/// BBR.state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    Startup,
    Drain,
    Down,
    Cruise,
    Refill,
    Up,
    ProbeRtt,
}

/// BBR.ack_phase: what acknowledgements have to do with the last probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AckPhase {
    Init,
    Refilling,
    ProbeStarting,
    ProbeFeedback,
    ProbeStopping,
}

/// Longest number of round trips between two probes: about as often as Reno would lose a packet.
const RENO_ROUNDS_MAX: u64 = 63;
/// A flow that cannot drain (the rate was overestimated) leaves Drain after so many round trips.
const DRAIN_ROUNDS: u64 = 3;
const PROBE_WAIT: Duration = Duration::from_secs(2);
const PROBE_WAIT_JITTER_NS: u64 = 1_000_000_000;

impl Phase {
    pub(super) fn pacing_gain_percent(self) -> u64 {
        match self {
            Self::Startup => 277,
            Self::Drain => 50,
            Self::Down => 90,
            Self::Up => 125,
            Self::Cruise | Self::Refill | Self::ProbeRtt => 100,
        }
    }

    pub(super) fn cwnd_gain_percent(self) -> u64 {
        match self {
            Self::Up => 225,
            Self::ProbeRtt => 50,
            _ => 200,
        }
    }

    pub(super) fn is_probe_bw(self) -> bool {
        matches!(self, Self::Down | Self::Cruise | Self::Refill | Self::Up)
    }

    pub(super) fn is_probing_bw(self) -> bool {
        matches!(self, Self::Startup | Self::Refill | Self::Up)
    }
}

impl Bbr {
    pub(super) fn check_startup_done(&mut self) {
        self.check_startup_high_loss();
        if self.phase == Phase::Startup && self.full_bw_reached {
            self.phase = Phase::Drain;
            self.drain_start_round = self.round_count;
        }
    }

    pub(super) fn check_drain_done(&mut self, now: Instant) {
        if self.phase == Phase::Drain
            && (self.in_flight <= self.inflight_target(self.bw_bps)
                || self.round_count > self.drain_start_round + DRAIN_ROUNDS)
        {
            self.start_down(now);
        }
    }

    /// StartProbeBW_DOWN.
    pub(super) fn start_down(&mut self, now: Instant) {
        self.reset_congestion_signals();
        self.probe_up_acked_per_inc = INFINITE;
        // PickProbeWait
        self.rounds_since_probe_up = self.draw(2);
        self.bw_probe_wait = PROBE_WAIT + Duration::from_nanos(self.draw(PROBE_WAIT_JITTER_NS));
        self.cycle_stamp = now;
        self.ack_phase = AckPhase::ProbeStopping;
        self.start_round();
        self.phase = Phase::Down;
    }

    pub(super) fn start_refill(&mut self) {
        self.reset_short_term_model();
        self.bw_probe_up_rounds = 0;
        self.bw_probe_up_acked = 0;
        self.prev_probe_precautionary = false;
        self.ack_phase = AckPhase::Refilling;
        self.start_round();
        self.phase = Phase::Refill;
    }

    fn start_up(&mut self) {
        self.ack_phase = AckPhase::ProbeStarting;
        self.start_round();
        self.restart_full_bw();
        self.phase = Phase::Up;
        self.raise_inflight_longterm_slope();
    }

    pub(super) fn update_probe_bw_cycle_phase(&mut self, now: Instant, newly_acked: u64) {
        if !self.full_bw_reached || self.adapt_long_term_model(newly_acked) {
            return;
        }
        match self.phase {
            Phase::Down => {
                if !self.is_time_to_probe_bw(now) && self.is_time_to_cruise() {
                    self.phase = Phase::Cruise;
                }
            }
            Phase::Cruise => {
                self.is_time_to_probe_bw(now);
            }
            Phase::Refill => {
                if self.round_start {
                    self.is_bw_probe_sample = true;
                    self.start_up();
                }
            }
            Phase::Up => {
                if self.is_time_to_go_down() {
                    self.prev_probe_too_high = false;
                    self.start_down(now);
                }
            }
            Phase::Startup | Phase::Drain | Phase::ProbeRtt => {}
        }
    }

    /// By the clock, or as often as Reno would fill the pipe. Starts the probe.
    fn is_time_to_probe_bw(&mut self, now: Instant) -> bool {
        let reno_rounds = self.target_inflight() / self.mss;
        let due = now > self.cycle_stamp + self.bw_probe_wait
            || self.rounds_since_probe_up >= reno_rounds.min(RENO_ROUNDS_MAX);
        if due {
            self.start_refill();
        }
        due
    }

    fn is_time_to_cruise(&self) -> bool {
        self.in_flight <= self.inflight_with_headroom()
            && self.in_flight <= self.inflight_target(self.max_bw.get())
    }

    fn is_time_to_go_down(&mut self) -> bool {
        if self.prev_probe_too_high && self.in_flight >= self.inflight_longterm {
            self.prev_probe_precautionary = true;
            return true;
        }
        if self.cwnd_limited && self.cwnd >= self.inflight_longterm {
            self.restart_full_bw();
            return false;
        }
        self.full_bw_now
    }

    fn raise_inflight_longterm_slope(&mut self) {
        let growth_this_round = 1u64 << self.bw_probe_up_rounds;
        self.bw_probe_up_rounds = (self.bw_probe_up_rounds + 1).min(30);
        self.probe_up_acked_per_inc = (self.cwnd / growth_this_round).max(self.mss);
    }

    fn probe_inflight_longterm_upward(&mut self, newly_acked: u64) {
        if !self.cwnd_limited || self.cwnd < self.inflight_longterm {
            return;
        }
        self.bw_probe_up_acked = self.bw_probe_up_acked.saturating_add(newly_acked);
        let steps = self.bw_probe_up_acked / self.probe_up_acked_per_inc.max(1);
        self.bw_probe_up_acked -= steps * self.probe_up_acked_per_inc.max(1);
        self.inflight_longterm = self.inflight_longterm.saturating_add(steps.saturating_mul(self.mss));
        if self.round_start {
            self.raise_inflight_longterm_slope();
        }
    }

    /// AdaptLongTermModel: whether it has decided the phase.
    fn adapt_long_term_model(&mut self, newly_acked: u64) -> bool {
        if self.ack_phase == AckPhase::ProbeStarting && self.round_start {
            self.ack_phase = AckPhase::ProbeFeedback;
        }
        if self.ack_phase == AckPhase::ProbeStopping && self.round_start {
            self.is_bw_probe_sample = false;
            self.ack_phase = AckPhase::Init;
            if self.phase.is_probe_bw() {
                if !self.sample.app_limited {
                    self.max_bw.advance();
                }
                if self.prev_probe_precautionary && !self.prev_probe_too_high {
                    self.start_refill();
                    return true;
                }
            }
        }
        if !self.is_sample_too_high() {
            if self.inflight_longterm == INFINITE {
                return false;
            }
            self.inflight_longterm = self.inflight_longterm.max(self.sample.tx_in_flight_bytes);
            if self.phase == Phase::Up {
                self.probe_inflight_longterm_upward(newly_acked);
            }
        }
        false
    }
}
