//! What the controllers share that take loss for congestion (Vegas too, beside delay): slow start,
//! reductions and their undoing, and growing only what is used.

use farlink_wire::time::{Duration, Instant};

use crate::api::{Ack, Config, Kind};
use crate::cubic::Cubic;
use crate::hybla::Hybla;
use crate::hystart::{Advice, CSS_GROWTH_DIVISOR, HyStart};
use crate::reno::Reno;
use crate::vegas::{self, Vegas};

/// A loss-based controller.
#[derive(Clone, Debug)]
pub(crate) struct LossBased {
    mss: u64,
    initial_window: u64,
    initial_segments: u64,
    limit: u64,
    cwnd: u64,
    ssthresh: u64,
    /// HyStart++ while the initial slow start lasts.
    hystart: Option<HyStart>,
    avoidance: Avoidance,
    usage: Usage,
    undo: Option<Undo>,
    phase: Phase,
    /// Something was acknowledged: the window is no longer the initial one.
    started: bool,
    /// There was congestion: `ssthresh` is a measurement.
    reduced: bool,
    /// Since a timeout it has not reached `ssthresh` again.
    anew: bool,
}

/// How the window grows above `ssthresh`.
#[derive(Clone, Debug)]
enum Avoidance {
    Reno(Reno),
    Cubic(Cubic),
    Hybla(Hybla),
    Vegas(Vegas),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Open,
    /// From [`LossBased::on_congestion`] to its end.
    Recovery,
    /// From a time-out to the next ACK: a further time-out is of the same data.
    TimedOut,
}

/// What a spurious reduction has to give back.
#[derive(Clone, Debug)]
struct Undo {
    cwnd: u64,
    ssthresh: u64,
    avoidance: Avoidance,
}

/// The most that was in flight in this round trip and in the one before: how much of the window is
/// really used.
#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    current: u64,
    previous: u64,
}

impl Usage {
    fn note(&mut self, in_flight: u64) {
        self.current = self.current.max(in_flight);
    }
    fn max(self) -> u64 {
        self.current.max(self.previous)
    }
}

impl LossBased {
    pub(crate) fn new(config: &Config) -> Self {
        let mss = u64::from(config.mss.max(1));
        let initial_segments = u64::from(config.initial_window_segments.max(1));
        let limit = config.window_limit_bytes.max(2 * mss);
        let initial_window = (initial_segments * mss).min(limit);
        let avoidance = match config.kind {
            Kind::NewReno => Avoidance::Reno(Reno::default()),
            Kind::Vegas => Avoidance::Vegas(Vegas::default()),
            Kind::Hybla => Avoidance::Hybla(Hybla::new(config.handshake_rtt.unwrap_or_default())),
            _ => Avoidance::Cubic(Cubic::default()),
        };
        let hystart = config.hystart && matches!(config.kind, Kind::NewReno | Kind::Cubic);
        let mut new = Self {
            mss,
            initial_window,
            initial_segments,
            limit,
            cwnd: initial_window,
            ssthresh: u64::MAX,
            hystart: hystart.then(HyStart::default),
            avoidance,
            usage: Usage::default(),
            undo: None,
            phase: Phase::Open,
            started: false,
            reduced: false,
            anew: false,
        };
        if config.handshake_rtt.is_some_and(|rtt| !rtt.is_zero()) {
            new.scale_start();
        }
        new
    }

    /// What Hybla's rho makes of the start: a larger first window, and a first threshold, because a
    /// slow start that fills any window with its first acknowledgements must know where to stop.
    fn scale_start(&mut self) {
        let Avoidance::Hybla(hybla) = &self.avoidance else { return };
        if !self.started {
            let window = (self.initial_segments * self.mss).max(hybla.initial_window(self.mss));
            self.initial_window = window.min(self.limit);
            self.cwnd = self.initial_window;
        }
        if !self.reduced {
            self.ssthresh = hybla.initial_ssthresh().max(2 * self.mss);
        }
    }

    /// So much is under way already: slow start is over.
    pub(crate) fn begin_with(&mut self, cwnd_bytes: u64) {
        self.cwnd = cwnd_bytes.clamp(self.initial_window.min(self.limit), self.limit);
        (self.ssthresh, self.hystart) = (self.cwnd, None);
        self.started = true;
    }

    pub(crate) fn on_sent(&mut self, now: Instant, bytes: u64, in_flight: u64) {
        self.usage.note(in_flight);
        if in_flight <= bytes
            && let Avoidance::Cubic(cubic) = &mut self.avoidance
        {
            cubic.skip_time(now);
        }
    }

    /// So much of the window is used, though less is in flight.
    pub(crate) fn note_used(&mut self, bytes: u64) {
        self.usage.note(bytes);
    }

    pub(crate) fn on_ack(&mut self, ack: &Ack) {
        self.usage.note(ack.prior_in_flight_bytes);
        if ack.round_start {
            self.usage.previous = self.usage.current;
            self.usage.current = ack.in_flight_bytes;
        }
        if ack.acked_bytes == 0 {
            return;
        }
        self.started = true;
        if let Avoidance::Hybla(hybla) = &mut self.avoidance {
            hybla.measure(ack.min_rtt);
            self.scale_start();
        }
        if self.phase == Phase::TimedOut {
            self.phase = Phase::Open;
        }
        if ack.in_recovery || self.phase == Phase::Recovery {
            if let Avoidance::Vegas(vegas) = &mut self.avoidance {
                vegas.forget_round();
            }
            return;
        }
        // RFC 7661: the window is valid as long as at least half of it is used; Linux grows in slow
        // start to twice what was used.
        let used = self.usage.max().saturating_mul(2) > self.cwnd;
        if let Avoidance::Vegas(vegas) = &mut self.avoidance {
            if let Some(rtt) = ack.rtt {
                vegas.sample(rtt);
            }
            let slow_start = self.cwnd < self.ssthresh;
            if ack.round_start {
                let advice = vegas.round(self.cwnd, self.mss, slow_start);
                self.follow(advice, used && !ack.app_limited);
            }
            if !self.in_slow_start() {
                return;
            }
        }
        let mut acked = ack.acked_bytes;
        if self.in_slow_start() {
            acked = self.slow_start(ack, acked, used);
            if acked == 0 {
                return;
            }
        }
        if used && !ack.app_limited {
            self.cwnd = match &mut self.avoidance {
                Avoidance::Reno(reno) => reno.grow(self.cwnd, acked, self.mss),
                Avoidance::Cubic(cubic) => cubic.grow(ack.now, self.cwnd, acked, ack.srtt, self.mss),
                Avoidance::Hybla(hybla) => hybla.grow(self.cwnd, acked, self.mss),
                // Once in a round trip, in `follow`.
                Avoidance::Vegas(_) => self.cwnd,
            }
            .min(self.limit);
        } else if let Avoidance::Cubic(cubic) = &mut self.avoidance {
            cubic.skip_time(ack.now);
        }
    }

    /// What Vegas' measurements of a round trip mean for the window (Linux tcp_vegas_cong_avoid).
    fn follow(&mut self, advice: vegas::Advice, may_grow: bool) {
        let below = |ssthresh: u64, cwnd: u64| ssthresh.min(cwnd.saturating_sub(1));
        match advice {
            vegas::Advice::Increase | vegas::Advice::AsReno if may_grow => {
                self.cwnd = self.cwnd.saturating_add(self.mss).min(self.limit);
            }
            vegas::Advice::Decrease => {
                self.cwnd = self.cwnd.saturating_sub(self.mss).max(2 * self.mss);
                self.ssthresh = below(self.ssthresh, self.cwnd);
            }
            vegas::Advice::Leave(target) => {
                self.cwnd = self.cwnd.min(target).max(2 * self.mss);
                self.ssthresh = below(self.ssthresh, self.cwnd);
            }
            _ => {}
        }
        if self.ssthresh < self.cwnd {
            // A time-out does not go far below what was good (Linux tcp_current_ssthresh).
            self.ssthresh = self.ssthresh.max(self.cwnd / 4 * 3);
        }
    }

    /// Grows by what was acknowledged (RFC 3465 with L unbounded: senders pace, RFC 9406 4.2) up to
    /// `ssthresh`; returns the acknowledged bytes that are left for congestion avoidance.
    fn slow_start(&mut self, ack: &Ack, acked: u64, used: bool) -> u64 {
        let advice = match &mut self.hystart {
            Some(hystart) => hystart.on_ack(ack.round_start, ack.rtt),
            None => Advice::Standard,
        };
        if advice == Advice::Exit {
            self.hystart = None;
            self.ssthresh = self.cwnd;
            if let Avoidance::Cubic(cubic) = &mut self.avoidance {
                cubic.begin_flat();
            }
            return acked;
        }
        if !used || matches!(&self.avoidance, Avoidance::Vegas(vegas) if !vegas.doubles()) {
            return 0;
        }
        let room = self.ssthresh - self.cwnd;
        if let Avoidance::Hybla(hybla) = &self.avoidance {
            // One acknowledgement can be a thousandfold: it has to be the window that was in the
            // way. After a timeout it is, for all that is to be repeated, new data or none.
            if ack.app_limited && !self.anew {
                return 0;
            }
            self.cwnd = (self.cwnd + hybla.slow_start(acked).min(room)).min(self.limit);
            self.anew = self.cwnd < self.ssthresh;
            return 0;
        }
        let growth = if advice == Advice::Conservative { acked / CSS_GROWTH_DIVISOR } else { acked };
        self.cwnd = (self.cwnd + growth.min(room)).min(self.limit);
        growth.saturating_sub(room)
    }

    pub(crate) fn on_congestion(&mut self, in_flight: u64) {
        if self.phase == Phase::Recovery {
            return;
        }
        self.remember();
        self.phase = Phase::Recovery;
        self.reduce(in_flight);
        self.cwnd = self.ssthresh;
    }

    /// Congestion, and packets wait. Slow start, which doubles what is under way in a round trip,
    /// has overrun a queue then: half of it is what the path holds (RFC 5681, 3.1).
    pub(crate) fn on_overflow(&mut self, in_flight: u64) {
        let starts = self.in_slow_start() && self.phase != Phase::Recovery;
        self.on_congestion(in_flight);
        if starts {
            self.ssthresh = self.ssthresh.min((in_flight / 2).max(2 * self.mss));
            self.cwnd = self.ssthresh;
        }
    }

    pub(crate) fn on_rto(&mut self, in_flight: u64) {
        match self.phase {
            Phase::Open => {
                self.remember();
                self.reduce(in_flight);
            }
            // The window fell already for this flight (as in Linux): only that is given back if the
            // time-out was spurious.
            Phase::Recovery => self.remember(),
            // RFC 5681 3.1: ssthresh is held for repeated time-outs.
            Phase::TimedOut => {}
        }
        self.phase = Phase::TimedOut;
        self.cwnd = self.mss;
        self.anew = true;
        if let Avoidance::Cubic(cubic) = &mut self.avoidance {
            cubic.begin_flat();
        }
    }

    pub(crate) fn on_recovery_exit(&mut self) {
        if self.phase == Phase::Recovery {
            self.phase = Phase::Open;
        }
    }

    pub(crate) fn undo(&mut self, now: Instant) {
        let Some(Undo { cwnd, ssthresh, avoidance }) = self.undo.take() else { return };
        self.phase = Phase::Open;
        self.cwnd = self.cwnd.max(cwnd);
        self.ssthresh = self.ssthresh.max(ssthresh);
        self.avoidance = avoidance;
        if let Avoidance::Cubic(cubic) = &mut self.avoidance {
            cubic.skip_time(now);
        }
    }

    pub(crate) fn on_idle_restart(&mut self, idle: Duration, rto: Duration) {
        // As Linux tcp_cwnd_restart: half per RTO, not below the restart window, and ssthresh
        // remembers three quarters.
        let restart = self.initial_window.min(self.cwnd);
        let halvings = idle.as_nanos().checked_div(rto.as_nanos()).unwrap_or(0);
        if halvings == 0 {
            return;
        }
        if self.ssthresh != u64::MAX {
            self.ssthresh = self.ssthresh.max(self.cwnd / 4 * 3);
        }
        let shift = u32::try_from(halvings).unwrap_or(u32::MAX);
        self.cwnd = self.cwnd.checked_shr(shift).unwrap_or(0).max(restart);
        self.usage = Usage::default();
        if let Avoidance::Vegas(vegas) = &mut self.avoidance {
            vegas.restart();
        }
    }

    pub(crate) fn set_window_limit(&mut self, bytes: u64) {
        self.limit = bytes.max(2 * self.mss);
        self.cwnd = self.cwnd.min(self.limit);
    }

    pub(crate) fn set_mss(&mut self, mss: u32) {
        self.mss = u64::from(mss.max(1));
        self.limit = self.limit.max(2 * self.mss);
        self.initial_window = (self.initial_segments * self.mss).min(self.limit);
        self.cwnd = if self.started { self.cwnd.max(self.mss) } else { self.initial_window };
        if !self.started && self.ssthresh != u64::MAX {
            self.scale_start();
        }
    }

    pub(crate) fn cwnd(&self) -> u64 {
        self.cwnd
    }

    pub(crate) fn ssthresh(&self) -> u64 {
        self.ssthresh
    }

    pub(crate) fn kind(&self) -> Kind {
        match self.avoidance {
            Avoidance::Reno(_) => Kind::NewReno,
            Avoidance::Cubic(_) => Kind::Cubic,
            Avoidance::Hybla(_) => Kind::Hybla,
            Avoidance::Vegas(_) => Kind::Vegas,
        }
    }

    pub(crate) fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// Linux tcp_update_pacing_rate: twice the rate of the window in early slow start, 1.2 times
    /// after.
    /// Payload of a full segment, bytes.
    pub(crate) fn mss(&self) -> u64 {
        self.mss
    }

    pub(crate) fn pacing_rate_bps(&self, srtt: Duration) -> Option<u64> {
        let srtt_ns = srtt.as_nanos();
        if srtt_ns == 0 {
            return None;
        }
        let percent = if self.cwnd < self.ssthresh / 2 { 200 } else { 120 };
        let rate = u128::from(self.cwnd) * 8 * 1_000_000_000 * percent / 100 / srtt_ns;
        Some(u64::try_from(rate).unwrap_or(u64::MAX).max(1))
    }

    /// Sets `ssthresh` for the flight that met congestion. The flight is what was in the network
    /// when it happened: at least what the round's largest was, however much of it is by now marked
    /// lost; never more than the window (RFC 9438 4.6).
    fn reduce(&mut self, in_flight: u64) {
        let flight = in_flight.max(self.usage.max()).min(self.cwnd);
        self.hystart = None;
        self.reduced = true;
        let ssthresh = match &mut self.avoidance {
            Avoidance::Reno(reno) => reno.reduce(flight),
            Avoidance::Cubic(cubic) => cubic.reduce(flight),
            Avoidance::Hybla(hybla) => hybla.reduce(flight),
            Avoidance::Vegas(vegas) => {
                vegas.forget_round();
                flight / 2
            }
        };
        self.ssthresh = ssthresh.max(2 * self.mss);
    }

    fn remember(&mut self) {
        self.undo =
            Some(Undo { cwnd: self.cwnd, ssthresh: self.ssthresh, avoidance: self.avoidance.clone() });
    }
}
