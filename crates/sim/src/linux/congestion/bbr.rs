//! BBR as Linux has it (tcp_bbr.c, version 1), without its long-term sampling for policers.

use std::collections::VecDeque;

use farlink_wire::{Duration, Instant};

use super::{Acked, Window};

/// 2 / ln 2.
const HIGH_GAIN: f64 = 2885.0 / 1000.0;
const DRAIN_GAIN: f64 = 1000.0 / 2885.0;
const CWND_GAIN: f64 = 2.0;
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// Rounds that the largest bandwidth counts.
const BANDWIDTH_ROUNDS: u64 = 10;
const MIN_RTT_WINDOW: Duration = Duration::from_secs(10);
const PROBE_RTT_TIME: Duration = Duration::from_millis(200);
const CWND_MIN: u32 = 4;
/// Linux `bbr_pacing_margin_percent`.
const PACING_MARGIN: f64 = 0.99;
const FULL_BANDWIDTH_GROWTH: f64 = 1.25;
const FULL_BANDWIDTH_ROUNDS: u32 = 3;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    Startup,
    Drain,
    ProbeBandwidth,
    ProbeRtt,
}

/// Linux `struct bbr`.
#[derive(Clone, Debug)]
pub struct Bbr {
    mode: Mode,
    mss: f64,
    min_rtt: Option<Duration>,
    min_rtt_at: Instant,
    probe_rtt_done: Option<Instant>,
    probe_rtt_round_done: bool,
    /// Largest samples, packets per second, with their rounds, falling.
    bandwidths: VecDeque<(u64, f64)>,
    rounds: u64,
    round_start: bool,
    round_end_delivered: u64,
    prior_cwnd: u32,
    in_recovery: bool,
    packet_conservation: bool,
    idle_restart: bool,
    full_bandwidth: f64,
    full_bandwidth_rounds: u32,
    full: bool,
    cycle: usize,
    cycle_at: Instant,
    pacing_gain: f64,
    cwnd_gain: f64,
    pacing_bps: f64,
    has_rtt: bool,
    extra_acked: VecDeque<(u64, f64)>,
    ack_epoch: Instant,
    ack_epoch_packets: f64,
}

impl Bbr {
    pub(super) fn set_mss(&mut self, mss: u32) {
        self.mss = f64::from(mss);
    }

    pub(super) fn new(mss: u32) -> Self {
        Self {
            mode: Mode::Startup,
            mss: f64::from(mss),
            min_rtt: None,
            min_rtt_at: Instant::ZERO,
            probe_rtt_done: None,
            probe_rtt_round_done: false,
            bandwidths: VecDeque::new(),
            rounds: 0,
            round_start: false,
            round_end_delivered: 0,
            prior_cwnd: 0,
            in_recovery: false,
            packet_conservation: false,
            idle_restart: false,
            full_bandwidth: 0.0,
            full_bandwidth_rounds: 0,
            full: false,
            cycle: 0,
            cycle_at: Instant::ZERO,
            pacing_gain: HIGH_GAIN,
            cwnd_gain: HIGH_GAIN,
            // `bbr_init_pacing_rate_from_rtt`: without an RTT, 1 ms counts.
            pacing_bps: HIGH_GAIN * 10.0 * f64::from(mss) * 8.0 / 0.001,
            has_rtt: false,
            extra_acked: VecDeque::new(),
            ack_epoch: Instant::ZERO,
            ack_epoch_packets: 0.0,
        }
    }

    pub(super) fn pacing_bps(&self) -> f64 {
        self.pacing_bps
    }

    /// `bbr_ssthresh`
    pub(super) fn save_window(&mut self, cwnd: u32, ssthresh: u32) -> u32 {
        if !self.in_recovery && self.mode != Mode::ProbeRtt {
            self.prior_cwnd = cwnd;
        } else {
            self.prior_cwnd = self.prior_cwnd.max(cwnd);
        }
        ssthresh
    }

    pub(super) fn on_timeout(&mut self) {
        self.full_bandwidth = 0.0;
        self.round_start = true;
    }

    pub(super) fn on_undo(&mut self) {
        self.full_bandwidth = 0.0;
        self.full_bandwidth_rounds = 0;
    }

    pub(super) fn on_restart(&mut self) {
        self.idle_restart = true;
    }

    /// Packets per second.
    fn bandwidth(&self) -> f64 {
        self.bandwidths.front().map_or(0.0, |b| b.1)
    }

    /// Packets of bandwidth times smallest RTT, times a gain.
    fn bdp(&self, gain: f64, initial: u32) -> u32 {
        let Some(min_rtt) = self.min_rtt else { return initial };
        (self.bandwidth() * min_rtt.as_secs_f64() * gain).ceil() as u32
    }

    /// `bbr_quantization_budget`
    fn inflight(&self, gain: f64, initial: u32) -> u32 {
        let mut w = self.bdp(gain, initial) + 3 * self.burst_packets();
        w = (w + 1) & !1;
        if self.mode == Mode::ProbeBandwidth && self.cycle == 0 { w + 2 } else { w }
    }

    /// `bbr_tso_segs_goal`: a millisecond of packets, at least one or two.
    fn burst_packets(&self) -> u32 {
        let bytes = self.pacing_bps / 8.0 / 1024.0;
        let least = if self.pacing_bps < 1_200_000.0 { 1 } else { 2 };
        ((bytes / self.mss) as u32).clamp(least, 44)
    }

    pub(super) fn on_ack(&mut self, w: &mut Window, a: &Acked) {
        self.update_bandwidth(a);
        self.update_aggregation(w, a);
        self.update_cycle(a);
        self.check_full(a);
        self.check_drain(a);
        self.update_min_rtt(w, a);
        self.set_gains();
        self.set_pacing(w, a);
        self.set_window(w, a);
    }

    fn update_bandwidth(&mut self, a: &Acked) {
        self.round_start = false;
        let Some(delivered) = a.sample.delivered else { return };
        if a.sample.prior_delivered >= self.round_end_delivered {
            self.round_end_delivered = a.delivered;
            self.rounds += 1;
            self.round_start = true;
            self.packet_conservation = false;
        }
        let bw = delivered as f64 / a.sample.interval.as_secs_f64();
        if !a.sample.app_limited || bw >= self.bandwidth() {
            windowed_max(&mut self.bandwidths, self.rounds, bw);
        }
        while self.bandwidths.len() > 1
            && self.bandwidths.front().is_some_and(|b| b.0 + BANDWIDTH_ROUNDS < self.rounds)
        {
            self.bandwidths.pop_front();
        }
    }

    fn update_aggregation(&mut self, w: &Window, a: &Acked) {
        if a.packets == 0 || a.sample.delivered.is_none() {
            return;
        }
        let expected = self.bandwidth() * a.now.since(self.ack_epoch).as_secs_f64();
        let expected = if self.ack_epoch_packets <= expected {
            self.ack_epoch = a.now;
            self.ack_epoch_packets = 0.0;
            0.0
        } else {
            expected
        };
        self.ack_epoch_packets += f64::from(a.packets);
        let extra = (self.ack_epoch_packets - expected).min(f64::from(w.cwnd));
        let window = self.rounds / 5;
        windowed_max(&mut self.extra_acked, window, extra);
        while self.extra_acked.len() > 1 && self.extra_acked.front().is_some_and(|e| e.0 + 1 < window) {
            self.extra_acked.pop_front();
        }
    }

    fn update_cycle(&mut self, a: &Acked) {
        if self.mode != Mode::ProbeBandwidth {
            return;
        }
        let full_length = a.now.since(self.cycle_at) > self.min_rtt.unwrap_or_default();
        let next = if self.pacing_gain > 1.0 {
            full_length && (a.lost > 0 || a.prior_in_flight >= self.inflight(self.pacing_gain, 10))
        } else if self.pacing_gain < 1.0 {
            full_length || a.prior_in_flight <= self.inflight(1.0, 10)
        } else {
            full_length
        };
        if next {
            self.cycle = (self.cycle + 1) % CYCLE.len();
            self.cycle_at = a.now;
        }
    }

    fn check_full(&mut self, a: &Acked) {
        if self.full || !self.round_start || a.sample.app_limited {
            return;
        }
        if self.bandwidth() >= self.full_bandwidth * FULL_BANDWIDTH_GROWTH {
            self.full_bandwidth = self.bandwidth();
            self.full_bandwidth_rounds = 0;
            return;
        }
        self.full_bandwidth_rounds += 1;
        self.full = self.full_bandwidth_rounds >= FULL_BANDWIDTH_ROUNDS;
    }

    fn check_drain(&mut self, a: &Acked) {
        if self.mode == Mode::Startup && self.full {
            self.mode = Mode::Drain;
        }
        if self.mode == Mode::Drain && a.in_flight <= self.inflight(1.0, 10) {
            self.probe_bandwidth(a.now);
        }
    }

    /// Linux begins at a random phase other than the draining one; here always behind it.
    fn probe_bandwidth(&mut self, now: Instant) {
        self.mode = Mode::ProbeBandwidth;
        self.cycle = 2;
        self.cycle_at = now;
    }

    fn update_min_rtt(&mut self, w: &mut Window, a: &Acked) {
        let expired = a.now > self.min_rtt_at + MIN_RTT_WINDOW;
        if let Some(rtt) = a.rtt
            && (self.min_rtt.is_none_or(|m| rtt < m) || expired)
        {
            self.min_rtt = Some(rtt);
            self.min_rtt_at = a.now;
        }
        if expired && !self.idle_restart && self.mode != Mode::ProbeRtt {
            self.mode = Mode::ProbeRtt;
            self.save_window(w.cwnd, w.ssthresh);
            self.probe_rtt_done = None;
        }
        if self.mode == Mode::ProbeRtt {
            match self.probe_rtt_done {
                None if a.in_flight <= CWND_MIN => {
                    self.probe_rtt_done = Some(a.now + PROBE_RTT_TIME);
                    self.probe_rtt_round_done = false;
                    self.round_end_delivered = a.delivered;
                }
                Some(done) => {
                    self.probe_rtt_round_done |= self.round_start;
                    if self.probe_rtt_round_done && a.now > done {
                        self.min_rtt_at = a.now;
                        w.cwnd = w.cwnd.max(self.prior_cwnd);
                        if self.full {
                            self.probe_bandwidth(a.now);
                        } else {
                            self.mode = Mode::Startup;
                        }
                    }
                }
                None => {}
            }
        }
        if a.sample.delivered.is_some_and(|d| d > 0) {
            self.idle_restart = false;
        }
    }

    fn set_gains(&mut self) {
        (self.pacing_gain, self.cwnd_gain) = match self.mode {
            Mode::Startup => (HIGH_GAIN, HIGH_GAIN),
            Mode::Drain => (DRAIN_GAIN, HIGH_GAIN),
            Mode::ProbeBandwidth => (CYCLE[self.cycle], CWND_GAIN),
            Mode::ProbeRtt => (1.0, 1.0),
        };
    }

    fn set_pacing(&mut self, w: &Window, a: &Acked) {
        if !self.has_rtt && !a.srtt.is_zero() {
            self.has_rtt = true;
            let bw = f64::from(w.cwnd) * self.mss * 8.0 / a.srtt.as_secs_f64();
            self.pacing_bps = HIGH_GAIN * bw * PACING_MARGIN;
        }
        let rate = self.pacing_gain * self.bandwidth() * self.mss * 8.0 * PACING_MARGIN;
        if self.full || rate > self.pacing_bps {
            self.pacing_bps = rate.max(1.0);
        }
    }

    fn set_window(&mut self, w: &mut Window, a: &Acked) {
        let mut cwnd = w.cwnd;
        if a.packets > 0 {
            // `bbr_set_cwnd_to_recover_or_restore`
            cwnd = cwnd.saturating_sub(a.lost).max(1);
            let in_recovery = a.in_recovery;
            if in_recovery && !self.in_recovery {
                self.packet_conservation = true;
                self.round_end_delivered = a.delivered;
                cwnd = a.in_flight + a.packets;
            } else if !in_recovery && self.in_recovery {
                cwnd = cwnd.max(self.prior_cwnd);
                self.packet_conservation = false;
            }
            self.in_recovery = in_recovery;
            if self.packet_conservation {
                cwnd = cwnd.max(a.in_flight + a.packets);
            } else {
                let mut target = self.bdp(self.cwnd_gain, 10);
                target += self.aggregation_packets();
                // `bbr_quantization_budget`
                target = (target + 3 * self.burst_packets() + 1) & !1;
                if self.mode == Mode::ProbeBandwidth && self.cycle == 0 {
                    target += 2;
                }
                if self.full {
                    cwnd = (cwnd + a.packets).min(target);
                } else if cwnd < target || a.delivered < 10 {
                    cwnd += a.packets;
                }
                cwnd = cwnd.max(CWND_MIN);
            }
        }
        if self.mode == Mode::ProbeRtt {
            cwnd = cwnd.min(CWND_MIN);
        }
        w.cwnd = cwnd;
    }

    fn aggregation_packets(&self) -> u32 {
        if !self.full {
            return 0;
        }
        let most = self.bandwidth() * 0.1;
        self.extra_acked.front().map_or(0.0, |e| e.1).min(most) as u32
    }
}

/// Keeps the falling tail of a sliding maximum; the front is the largest.
fn windowed_max(samples: &mut VecDeque<(u64, f64)>, at: u64, value: f64) {
    while samples.back().is_some_and(|s| s.1 <= value) {
        samples.pop_back();
    }
    samples.push_back((at, value));
}
