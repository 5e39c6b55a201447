//! The model of the path: what it carries, what may be in flight, and what losses and marks take
//! from both.

use farlink_wire::time::Instant;

use super::phases::Phase;
use super::{Bbr, INFINITE, SECOND_NS, to_u64};
use crate::api::Lost;

/// BBR.LossThresh, percent of a round trip.
const LOSS_THRESH_PERCENT: u64 = 2;
/// Losses in a round trip that a link before the bottleneck may have spoilt, however few segments
/// are in flight.
const CORRUPTED_SEGMENTS: u64 = 2;
/// BBR.Beta, percent kept.
const BETA_PERCENT: u64 = 70;
/// BBR.Headroom, percent of inflight_longterm.
const HEADROOM_PERCENT: u64 = 15;
/// BBRStartupFullLossCnt.
const STARTUP_FULL_LOSS_RANGES: u32 = 6;
/// Round trips with congestion marks that end Startup (google/bbr, bbr_full_ecn_cnt).
const STARTUP_CE_ROUNDS: u32 = 2;
/// Growth of the rate by less than this in three round trips: the pipe is full.
const FULL_BW_GROWTH_PERCENT: u64 = 125;
const FULL_BW_ROUNDS: u32 = 3;
/// BBR.ExtraAckedFilterLen, round trips.
const EXTRA_ACKED_ROUNDS: u64 = 10;

fn percent(n: u64, percent: u64) -> u64 {
    to_u64(u128::from(n) * u128::from(percent) / 100)
}

/// InflightAtLoss: what was in flight when losses passed the threshold, somewhere in the middle of
/// what was lost.
pub(super) fn inflight_at_loss(lost: &Lost) -> u64 {
    let inflight_prev = lost.tx_in_flight_bytes.saturating_sub(lost.bytes);
    let lost_prev = lost.lost_since_sent_bytes.saturating_sub(lost.bytes);
    let budget = percent(inflight_prev, LOSS_THRESH_PERCENT);
    let prefix = budget.saturating_sub(lost_prev).saturating_mul(100) / (100 - LOSS_THRESH_PERCENT);
    inflight_prev.saturating_add(prefix)
}

impl Bbr {
    /// RS.delivery_rate; 0: no reliable sample.
    fn rate_bps(&self) -> u64 {
        self.sample.rate_bps.unwrap_or(0)
    }

    fn sample_delivered(&self) -> u64 {
        self.sample.delivered_bytes.saturating_sub(self.sample.prior_delivered_bytes)
    }

    /// BDPMultiple.
    pub(super) fn bdp_multiple(&self, gain_percent: u64) -> u64 {
        self.bdp_of(self.bw_bps, gain_percent)
    }

    fn bdp_of(&self, bw_bps: u64, gain_percent: u64) -> u64 {
        let Some(min_rtt) = self.min_rtt else { return self.initial_cwnd() };
        let bdp = u128::from(bw_bps) * min_rtt.as_nanos() / 8 / SECOND_NS;
        to_u64(bdp * u128::from(gain_percent) / 100)
    }

    /// QuantizationBudget.
    pub(super) fn quantization_budget(&self, volume: u64) -> u64 {
        let budget = volume.max(3 * self.send_quantum).max(self.min_pipe_cwnd());
        if self.phase == Phase::Up { budget.saturating_add(2 * self.mss) } else { budget }
    }

    /// Inflight(1.0), of the rate that it goes by or of the largest seen.
    pub(super) fn inflight_target(&self, bw_bps: u64) -> u64 {
        self.quantization_budget(self.bdp_of(bw_bps, 100))
    }

    pub(super) fn inflight_with_headroom(&self) -> u64 {
        if self.inflight_longterm == INFINITE {
            return INFINITE;
        }
        let headroom = percent(self.inflight_longterm, HEADROOM_PERCENT).max(self.mss);
        self.inflight_longterm.saturating_sub(headroom).max(self.min_pipe_cwnd())
    }

    /// TargetInflight: the BDP, unless congestion has cut the window.
    pub(super) fn target_inflight(&self) -> u64 {
        self.bdp_multiple(100).min(self.cwnd)
    }

    pub(super) fn update_latest_delivery_signals(&mut self) {
        self.loss_round_start = false;
        self.bw_latest_bps = self.bw_latest_bps.max(self.rate_bps());
        self.inflight_latest = self.inflight_latest.max(self.sample_delivered());
        if self.sample.prior_delivered_bytes >= self.loss_round_delivered {
            self.loss_round_delivered = self.sample.delivered_bytes;
            self.loss_round_start = true;
        }
    }

    pub(super) fn advance_latest_delivery_signals(&mut self) {
        if self.loss_round_start {
            self.bw_latest_bps = self.rate_bps();
            self.inflight_latest = self.sample_delivered();
        }
    }

    pub(super) fn reset_congestion_signals(&mut self) {
        self.is_loss_in_round = false;
        self.is_ce_in_round = false;
        self.bw_latest_bps = 0;
        self.inflight_latest = 0;
    }

    pub(super) fn reset_short_term_model(&mut self) {
        self.bw_shortterm_bps = INFINITE;
        self.inflight_shortterm = INFINITE;
    }

    pub(super) fn update_congestion_signals(&mut self) {
        self.update_max_bw();
        if !self.loss_round_start {
            return;
        }
        self.adapt_lower_bounds();
        self.is_loss_in_round = false;
        self.is_ce_in_round = false;
    }

    fn update_max_bw(&mut self) {
        // UpdateRound
        self.round_start = self.sample.prior_delivered_bytes >= self.next_round_delivered;
        if self.round_start {
            self.start_round();
            self.round_count += 1;
            self.rounds_since_probe_up += 1;
        }
        let rate = self.rate_bps();
        if rate > 0 && (rate >= self.max_bw.get() || !self.sample.app_limited) {
            self.max_bw.update(rate);
        }
    }

    pub(super) fn start_round(&mut self) {
        self.next_round_delivered = self.sample.delivered_bytes;
    }

    /// AdaptLowerBoundsFromCongestion: once per round trip.
    fn adapt_lower_bounds(&mut self) {
        let congested = self.is_loss_in_round || self.is_ce_in_round;
        let corrupted = self.expects_corruption && !self.is_ce_in_round && !self.is_sample_too_high();
        if self.phase.is_probing_bw() || !congested || corrupted {
            return;
        }
        if self.bw_shortterm_bps == INFINITE {
            self.bw_shortterm_bps = self.max_bw.get();
        }
        if self.inflight_shortterm == INFINITE {
            self.inflight_shortterm = self.cwnd;
        }
        let volume = percent(self.inflight_shortterm, BETA_PERCENT);
        self.bw_shortterm_bps = self.bw_latest_bps.max(percent(self.bw_shortterm_bps, BETA_PERCENT));
        // Marks come before the queue is full: all of the flight arrives, and what arrived is no
        // lower bound.
        self.inflight_shortterm = if self.is_ce_in_round { volume } else { self.inflight_latest.max(volume) };
    }

    pub(super) fn update_ack_aggregation(&mut self, now: Instant, newly_acked: u64) {
        let interval = now.since(self.extra_acked_since);
        let mut expected = to_u64(u128::from(self.bw_bps) * interval.as_nanos() / 8 / SECOND_NS);
        if self.extra_acked_delivered <= expected {
            self.extra_acked_delivered = 0;
            self.extra_acked_since = now;
            expected = 0;
        }
        self.extra_acked_delivered = self.extra_acked_delivered.saturating_add(newly_acked);
        let extra = self.extra_acked_delivered.saturating_sub(expected).min(self.cwnd);
        let rounds = if self.full_bw_reached { EXTRA_ACKED_ROUNDS } else { 1 };
        self.extra_acked.update(self.round_count, rounds, extra);
    }

    pub(super) fn reset_full_bw(&mut self) {
        self.full_bw_bps = 0;
        self.full_bw_count = 0;
        self.full_bw_now = false;
    }

    /// The same, with what is delivered now as the rate that has to be surpassed.
    pub(super) fn restart_full_bw(&mut self) {
        self.reset_full_bw();
        self.full_bw_bps = self.rate_bps();
    }

    pub(super) fn check_full_bw_reached(&mut self) {
        if self.full_bw_now || !self.round_start || self.sample.app_limited {
            return;
        }
        if self.rate_bps() >= percent(self.full_bw_bps, FULL_BW_GROWTH_PERCENT) {
            self.restart_full_bw();
            return;
        }
        self.full_bw_count += 1;
        self.full_bw_now = self.full_bw_count >= FULL_BW_ROUNDS;
        self.full_bw_reached |= self.full_bw_now;
    }

    /// CheckStartupHighLoss.
    pub(super) fn check_startup_high_loss(&mut self) {
        if self.phase == Phase::Startup && self.in_recovery && !self.full_bw_reached {
            let high = self.is_inflight_too_high(self.sample.lost_bytes, self.sample.tx_in_flight_bytes);
            let many = self.loss_ranges_in_round >= STARTUP_FULL_LOSS_RANGES;
            let losses = if self.has_selective_acks {
                self.loss_round_start && many && high
            } else {
                self.loss_ranges_in_round > 0
            };
            if losses {
                self.leave_startup_by_congestion();
            }
        }
        if self.loss_round_start {
            self.loss_ranges_in_round = 0;
        }
    }

    fn leave_startup_by_congestion(&mut self) {
        self.note_phase_left(Phase::Startup);
        self.full_bw_reached = true;
        self.full_bw_now = true;
        self.inflight_longterm = self.bdp_multiple(100).max(self.inflight_latest);
    }

    /// A later undo comes back to it.
    fn note_phase_left(&mut self, phase: Phase) {
        if let Some(undo) = &mut self.undo {
            undo.phase = Some(phase);
        }
    }

    pub(super) fn is_inflight_too_high(&self, lost: u64, tx_in_flight: u64) -> bool {
        // Of a few segments in flight a single one is more than the threshold.
        let spoilt = if self.expects_corruption { CORRUPTED_SEGMENTS * self.mss } else { 0 };
        lost > percent(tx_in_flight, LOSS_THRESH_PERCENT) + spoilt || (lost > 0 && !self.has_selective_acks)
    }

    pub(super) fn is_sample_too_high(&self) -> bool {
        self.is_inflight_too_high(self.sample.lost_bytes, self.sample.tx_in_flight_bytes)
    }

    pub(super) fn handle_inflight_too_high(&mut self, now: Instant, tx_in_flight: u64, app_limited: bool) {
        self.prev_probe_too_high = true;
        self.is_bw_probe_sample = false;
        if !app_limited {
            self.inflight_longterm = tx_in_flight.max(percent(self.target_inflight(), BETA_PERCENT));
        }
        if self.phase == Phase::Up {
            self.note_phase_left(Phase::Up);
            self.start_down(now);
        }
    }

    /// NoteLoss, for losses and marks.
    pub(super) fn note_congestion(&mut self) {
        if !self.is_loss_in_round && !self.is_ce_in_round {
            self.loss_round_delivered = self.sample.delivered_bytes;
            self.save_state();
        }
    }

    /// A congestion mark came back: answered like too much loss (the draft's section on ECN).
    pub(super) fn on_mark(&mut self, now: Instant, in_flight: u64) {
        self.note_congestion();
        self.is_ce_in_round = true;
        if self.phase == Phase::Startup {
            self.startup_ce_rounds += 1;
            if self.startup_ce_rounds >= STARTUP_CE_ROUNDS {
                self.leave_startup_by_congestion();
            }
        } else if self.is_bw_probe_sample {
            self.handle_inflight_too_high(now, percent(in_flight, BETA_PERCENT), self.sample.app_limited);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(bytes: u64, tx_in_flight_bytes: u64, lost_since_sent_bytes: u64) -> Lost {
        Lost {
            now: Instant::ZERO,
            bytes,
            segments: 1,
            tx_in_flight_bytes,
            lost_since_sent_bytes,
            app_limited: false,
            continues: false,
            delivered_bytes: 0,
        }
    }

    /// The draft's derivation: (lost_prev + prefix) / (inflight_prev + prefix) is the threshold.
    #[test]
    fn the_volume_at_which_losses_passed_the_threshold() {
        assert_eq!(inflight_at_loss(&lost(50_000, 148_000, 50_000)), 98_000 + 2_000);
        assert_eq!(inflight_at_loss(&lost(1_000, 101_000, 3_000)), 100_000, "it was passed before");
    }
}
