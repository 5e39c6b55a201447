//! BBR version 3 (draft-ietf-ccwg-bbr, as of August 2026): a model of the path, its rate and its
//! RTT, instead of losses alone.
//!
//! Names and order are the draft's. What is where: here what the sender sees (window, pacing, the
//! events); `model.rs` rate, volume and congestion signals; `phases.rs` the state machine;
//! `probe_rtt.rs` the smallest RTT and how it is kept fresh; `filter.rs` windowed maxima. Rates are
//! bits per second, gains are percent, everything is an integer.

mod filter;
mod model;
mod phases;
mod probe_rtt;

use farlink_wire::time::{Duration, Instant};

use crate::api::{Ack, Config, Congestion, Lost, Sample};
use filter::{MaxBandwidth, MaxOfRounds};
use phases::{AckPhase, Phase};

/// "Not set" of a rate or a volume.
const INFINITE: u64 = u64::MAX;
/// BBR.PacingMarginPercent.
const PACING_MARGIN_PERCENT: u64 = 1;
/// BBR.MinPipeCwnd, segments.
const MIN_PIPE_SEGMENTS: u64 = 4;
/// Largest C.send_quantum.
const QUANTUM_BYTES_MAX: u64 = 64 << 10;
const SECOND_NS: u128 = 1_000_000_000;

/// What a recovery may have to give back (SaveStateUponLoss).
#[derive(Clone, Copy, Debug)]
struct Undo {
    phase: Option<Phase>,
    bw_shortterm: u64,
    inflight_shortterm: u64,
    inflight_longterm: u64,
}

/// A BBR controller.
#[derive(Clone, Debug)]
pub(crate) struct Bbr {
    mss: u64,
    initial_segments: u64,
    limit: u64,
    has_selective_acks: bool,
    random: u64,
    /// Before the bottleneck lies a link that corrupts: losses below the threshold say nothing.
    expects_corruption: bool,

    // What the sender goes by.
    cwnd: u64,
    prior_cwnd: u64,
    pacing_rate_bps: Option<u64>,
    send_quantum: u64,

    // The state machine.
    phase: Phase,
    ack_phase: AckPhase,
    idle_restart: bool,
    in_recovery: bool,
    undo: Option<Undo>,
    round_count: u64,
    round_start: bool,
    next_round_delivered: u64,
    drain_start_round: u64,

    // Of the last acknowledgement.
    sample: Sample,
    in_flight: u64,
    cwnd_limited: bool,

    // Rate and volume.
    max_bw: MaxBandwidth,
    bw_bps: u64,
    bw_shortterm_bps: u64,
    inflight_longterm: u64,
    inflight_shortterm: u64,
    extra_acked: MaxOfRounds,
    extra_acked_since: Instant,
    extra_acked_delivered: u64,

    // Congestion signals of this round trip.
    bw_latest_bps: u64,
    inflight_latest: u64,
    loss_round_delivered: u64,
    loss_round_start: bool,
    is_loss_in_round: bool,
    is_ce_in_round: bool,
    loss_ranges_in_round: u32,
    startup_ce_rounds: u32,

    // Is the pipe full?
    full_bw_reached: bool,
    full_bw_now: bool,
    full_bw_bps: u64,
    full_bw_count: u32,

    // Probing for bandwidth.
    is_bw_probe_sample: bool,
    prev_probe_too_high: bool,
    prev_probe_precautionary: bool,
    bw_probe_up_acked: u64,
    probe_up_acked_per_inc: u64,
    bw_probe_up_rounds: u32,
    rounds_since_probe_up: u64,
    bw_probe_wait: Duration,
    cycle_stamp: Instant,

    // Probing for the RTT. `None`: none known.
    min_rtt: Option<Duration>,
    min_rtt_stamp: Option<Instant>,
    probe_rtt_min_delay: Option<Duration>,
    probe_rtt_min_stamp: Instant,
    probe_rtt_expired: bool,
    probe_rtt_done_stamp: Option<Instant>,
    probe_rtt_round_done: bool,
}

impl Bbr {
    pub(crate) fn new(config: &Config) -> Self {
        let mss = u64::from(config.mss.max(1));
        let initial_segments = u64::from(config.initial_window_segments.max(1));
        let limit = config.window_limit_bytes.max(2 * mss);
        let mut new = Self {
            mss,
            initial_segments,
            limit,
            has_selective_acks: config.selective_acks,
            random: config.seed,
            expects_corruption: false,
            cwnd: (initial_segments * mss).min(limit),
            prior_cwnd: 0,
            pacing_rate_bps: None,
            send_quantum: 2 * mss,
            phase: Phase::Startup,
            ack_phase: AckPhase::Init,
            idle_restart: false,
            in_recovery: false,
            undo: None,
            round_count: 0,
            round_start: false,
            next_round_delivered: 0,
            drain_start_round: 0,
            sample: Sample::default(),
            in_flight: 0,
            cwnd_limited: false,
            max_bw: MaxBandwidth::default(),
            bw_bps: 0,
            bw_shortterm_bps: INFINITE,
            inflight_longterm: INFINITE,
            inflight_shortterm: INFINITE,
            extra_acked: MaxOfRounds::default(),
            extra_acked_since: Instant::ZERO,
            extra_acked_delivered: 0,
            bw_latest_bps: 0,
            inflight_latest: 0,
            loss_round_delivered: 0,
            loss_round_start: false,
            is_loss_in_round: false,
            is_ce_in_round: false,
            loss_ranges_in_round: 0,
            startup_ce_rounds: 0,
            full_bw_reached: false,
            full_bw_now: false,
            full_bw_bps: 0,
            full_bw_count: 0,
            is_bw_probe_sample: false,
            prev_probe_too_high: false,
            prev_probe_precautionary: false,
            bw_probe_up_acked: 0,
            probe_up_acked_per_inc: INFINITE,
            bw_probe_up_rounds: 0,
            rounds_since_probe_up: 0,
            bw_probe_wait: Duration::ZERO,
            cycle_stamp: Instant::ZERO,
            min_rtt: config.handshake_rtt.filter(|rtt| !rtt.is_zero()),
            min_rtt_stamp: None,
            probe_rtt_min_delay: None,
            probe_rtt_min_stamp: Instant::ZERO,
            probe_rtt_expired: false,
            probe_rtt_done_stamp: None,
            probe_rtt_round_done: false,
        };
        new.init_pacing_rate(new.min_rtt);
        new
    }

    /// For a path that has shown its rate and its RTT: as if Startup had found them. What waits in
    /// a queue goes first.
    pub(crate) fn resume(config: &Config, now: Instant, rate_bps: u64, min_rtt: Duration) -> Self {
        let mut new = Self::new(&Config { handshake_rtt: Some(min_rtt), ..*config });
        new.begin(now);
        new.expects_corruption = true;
        new.probe_rtt_min_delay = Some(min_rtt);
        new.max_bw.update(rate_bps);
        new.bw_bps = rate_bps;
        new.full_bw_reached = true;
        new.phase = Phase::Drain;
        new.set_pacing_rate(new.phase.pacing_gain_percent());
        new.set_send_quantum();
        new.cwnd = new.quantization_budget(new.bdp_multiple(new.phase.cwnd_gain_percent())).min(new.limit);
        new
    }

    /// InitPacingRate. While no RTT is known the initial window goes out unpaced, as it does with
    /// every controller.
    fn init_pacing_rate(&mut self, rtt: Option<Duration>) {
        let Some(rtt) = rtt.filter(|rtt| !rtt.is_zero()) else { return };
        let bits = u128::from(self.initial_cwnd()) * 8 * SECOND_NS / rtt.as_nanos();
        let gain = u128::from(Phase::Startup.pacing_gain_percent());
        self.pacing_rate_bps = Some(to_u64(bits * gain / 100).max(1));
        self.set_send_quantum();
    }

    fn initial_cwnd(&self) -> u64 {
        (self.initial_segments * self.mss).min(self.limit)
    }

    /// OnTransmit. `app_limited`: before this the source had nothing left to send.
    pub(crate) fn on_sent(&mut self, now: Instant, bytes: u64, in_flight: u64, app_limited: bool) {
        self.begin(now);
        // HandleRestartFromIdle
        if in_flight <= bytes && app_limited {
            self.idle_restart = true;
            self.extra_acked_since = now;
            if self.phase.is_probe_bw() {
                self.set_pacing_rate(100);
            } else if self.phase == Phase::ProbeRtt {
                self.check_probe_rtt_done(now);
            }
        }
        self.in_flight = in_flight;
    }

    /// The first event tells what time it is.
    fn begin(&mut self, now: Instant) {
        if self.min_rtt_stamp.is_none() {
            self.min_rtt_stamp = Some(now);
            self.probe_rtt_min_stamp = now;
            self.extra_acked_since = now;
        }
    }

    /// UpdateOnACK.
    pub(crate) fn on_ack(&mut self, ack: &Ack) {
        let now = ack.now;
        self.begin(now);
        self.sample = ack.sample;
        self.in_flight = ack.in_flight_bytes;
        self.cwnd_limited = ack.prior_in_flight_bytes.saturating_add(self.mss) >= self.cwnd;
        if self.pacing_rate_bps.is_none() {
            self.init_pacing_rate(Some(ack.srtt));
        }
        // UpdateModelAndState
        self.update_latest_delivery_signals();
        self.update_congestion_signals();
        self.update_ack_aggregation(now, ack.acked_bytes);
        self.check_full_bw_reached();
        self.check_startup_done();
        self.check_drain_done(now);
        self.update_probe_bw_cycle_phase(now, ack.acked_bytes);
        self.update_min_rtt(now, ack.rtt);
        self.check_probe_rtt(now);
        self.advance_latest_delivery_signals();
        self.bw_bps = self.max_bw.get().min(self.bw_shortterm_bps);
        // UpdateControlParameters
        self.set_pacing_rate(self.phase.pacing_gain_percent());
        self.set_send_quantum();
        self.set_cwnd(ack.acked_bytes);
    }

    /// HandleLostPacket: before the acknowledgement that showed it.
    pub(crate) fn on_lost(&mut self, lost: &Lost) {
        self.sample.delivered_bytes = self.sample.delivered_bytes.max(lost.delivered_bytes);
        if !lost.continues {
            self.loss_ranges_in_round = self.loss_ranges_in_round.saturating_add(1);
        }
        self.note_congestion();
        self.is_loss_in_round = true;
        if self.is_bw_probe_sample
            && self.is_inflight_too_high(lost.lost_since_sent_bytes, lost.tx_in_flight_bytes)
        {
            let volume = model::inflight_at_loss(lost);
            self.handle_inflight_too_high(lost.now, volume, lost.app_limited);
        }
    }

    /// OnEnterFastRecovery; or a congestion mark, to which the draft leaves the answer open but not
    /// whether there is one.
    pub(crate) fn on_congestion(&mut self, now: Instant, why: Congestion, in_flight: u64) {
        self.begin(now);
        self.save_cwnd();
        match why {
            // The state was saved with the first loss of the round trip; by now the phase may have
            // ended because of it.
            Congestion::Loss if self.is_loss_in_round => {}
            Congestion::Loss => self.save_state(),
            Congestion::Ecn => self.on_mark(now, in_flight),
        }
        self.in_recovery = true;
    }

    /// OnEnterRTO. `pipe`: what is in flight when losses are taken off.
    pub(crate) fn on_rto(&mut self, now: Instant, pipe: u64) {
        self.begin(now);
        self.save_cwnd();
        if !self.is_loss_in_round {
            self.save_state();
        }
        self.in_recovery = true;
        self.in_flight = pipe;
        self.cwnd = pipe.saturating_add(self.mss).min(self.limit);
    }

    pub(crate) fn on_recovery_exit(&mut self) {
        if self.in_recovery {
            self.in_recovery = false;
            self.restore_cwnd();
        }
    }

    /// HandleSpuriousLossDetection.
    pub(crate) fn undo(&mut self) {
        self.on_recovery_exit();
        let Some(undo) = self.undo.take() else { return };
        self.is_loss_in_round = false;
        self.is_ce_in_round = false;
        self.reset_full_bw();
        self.bw_shortterm_bps = self.bw_shortterm_bps.max(undo.bw_shortterm);
        self.inflight_shortterm = self.inflight_shortterm.max(undo.inflight_shortterm);
        self.inflight_longterm = self.inflight_longterm.max(undo.inflight_longterm);
        match undo.phase {
            Some(Phase::Startup) if self.phase != Phase::Startup => {
                self.full_bw_reached = false;
                if self.phase != Phase::ProbeRtt {
                    self.phase = Phase::Startup;
                }
            }
            Some(Phase::Up) if !matches!(self.phase, Phase::Up | Phase::ProbeRtt) => self.start_refill(),
            _ => {}
        }
    }

    pub(crate) fn set_window_limit(&mut self, bytes: u64) {
        self.limit = bytes.max(2 * self.mss);
        self.cwnd = self.cwnd.min(self.limit);
    }

    pub(crate) fn set_mss(&mut self, mss: u32) {
        self.mss = u64::from(mss.max(1));
        self.limit = self.limit.max(2 * self.mss);
        let untouched = self.sample.delivered_bytes == 0 && !self.in_recovery;
        self.cwnd = if untouched { self.initial_cwnd() } else { self.cwnd.max(self.mss) };
    }

    pub(crate) fn cwnd(&self) -> u64 {
        self.cwnd
    }

    /// What the path holds, as far as is known, bytes.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.bdp_multiple(100).max(self.cwnd).min(self.limit)
    }

    pub(crate) fn pacing_rate_bps(&self) -> Option<u64> {
        self.pacing_rate_bps
    }

    /// The rate that it goes by.
    pub(crate) fn bandwidth_bps(&self) -> u64 {
        self.bw_bps
    }

    pub(crate) fn min_rtt(&self) -> Option<Duration> {
        self.min_rtt
    }

    pub(crate) fn in_startup(&self) -> bool {
        self.phase == Phase::Startup
    }

    /// Rate samples of now say nothing of the path: few packets are let out on purpose.
    pub(crate) fn is_probing_rtt(&self) -> bool {
        self.phase == Phase::ProbeRtt
    }

    /// SetPacingRateWithGain.
    fn set_pacing_rate(&mut self, gain_percent: u64) {
        let margin = u128::from(100 - PACING_MARGIN_PERCENT);
        let rate = to_u64(u128::from(self.bw_bps) * u128::from(gain_percent) * margin / 10_000);
        if rate > 0 && (self.full_bw_reached || self.pacing_rate_bps.is_none_or(|now| rate > now)) {
            self.pacing_rate_bps = Some(rate);
        }
    }

    fn set_send_quantum(&mut self) {
        let per_ms = self.pacing_rate_bps.unwrap_or(0) / 8 / 1000;
        self.send_quantum = per_ms.min(QUANTUM_BYTES_MAX).max(2 * self.mss);
    }

    fn set_cwnd(&mut self, newly_acked: u64) {
        // UpdateMaxInflight
        let volume = self.bdp_multiple(self.phase.cwnd_gain_percent());
        let max_inflight = self.quantization_budget(volume.saturating_add(self.extra_acked.get()));
        let grown = self.cwnd.saturating_add(newly_acked);
        if self.full_bw_reached {
            self.cwnd = grown.min(max_inflight);
        } else if self.cwnd < max_inflight || self.sample.delivered_bytes < self.initial_cwnd() {
            self.cwnd = grown;
        }
        let floor = self.min_pipe_cwnd();
        self.cwnd = self.cwnd.max(floor);
        // BoundCwndForProbeRTT
        if self.phase == Phase::ProbeRtt {
            self.cwnd = self.cwnd.min(self.probe_rtt_cwnd());
        }
        // BoundCwndForModel
        let cap = match self.phase {
            Phase::Down | Phase::Refill | Phase::Up => self.inflight_longterm,
            Phase::ProbeRtt | Phase::Cruise => self.inflight_with_headroom(),
            Phase::Startup | Phase::Drain => INFINITE,
        };
        let cap = cap.min(self.inflight_shortterm).max(floor);
        self.cwnd = self.cwnd.min(cap).min(self.limit);
    }

    fn min_pipe_cwnd(&self) -> u64 {
        MIN_PIPE_SEGMENTS * self.mss
    }

    fn save_cwnd(&mut self) {
        let known_good = !self.in_recovery && self.phase != Phase::ProbeRtt;
        self.prior_cwnd = if known_good { self.cwnd } else { self.prior_cwnd.max(self.cwnd) };
    }

    fn restore_cwnd(&mut self) {
        self.cwnd = self.cwnd.max(self.prior_cwnd).min(self.limit);
    }

    /// SaveStateUponLoss.
    fn save_state(&mut self) {
        self.save_cwnd();
        self.undo = Some(Undo {
            phase: None,
            bw_shortterm: self.bw_shortterm_bps,
            inflight_shortterm: self.inflight_shortterm,
            inflight_longterm: self.inflight_longterm,
        });
    }

    /// A number below `n`, from the seed (splitmix64).
    fn draw(&mut self, n: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n.max(1)
    }
}

fn to_u64(n: u128) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}
