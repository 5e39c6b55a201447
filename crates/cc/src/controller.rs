//! The one door to all controllers.

use farlink_wire::time::{Duration, Instant};

use crate::api::{Ack, Config, Congestion, Kind};
use crate::fixed::Fixed;
use crate::loss_based::LossBased;

/// A congestion controller of one sender.
#[derive(Clone, Debug)]
pub struct Controller(State);

#[derive(Clone, Debug)]
enum State {
    LossBased(Box<LossBased>),
    Fixed(Fixed),
}

impl Controller {
    /// A controller in its initial state.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self(match config.kind {
            Kind::NewReno | Kind::Cubic | Kind::Hybla | Kind::Vegas => {
                State::LossBased(Box::new(LossBased::new(config)))
            }
            Kind::FixedRate | Kind::Unfair => State::Fixed(Fixed::new(config)),
        })
    }

    /// `bytes` of payload left; `in_flight_bytes` includes them.
    pub fn on_sent(&mut self, now: Instant, bytes: u64, in_flight_bytes: u64) {
        match &mut self.0 {
            State::LossBased(c) => c.on_sent(now, bytes, in_flight_bytes),
            State::Fixed(_) => {}
        }
    }

    /// Something new was acknowledged.
    pub fn on_ack(&mut self, ack: &Ack) {
        match &mut self.0 {
            State::LossBased(c) => c.on_ack(ack),
            State::Fixed(_) => {}
        }
    }

    /// Congestion was detected: sets `ssthresh` and the window (to `ssthresh`; PRR may send otherwise meanwhile) and remembers
    /// both for [`Self::undo`]. The sender calls this once per window of data; further calls until
    /// [`Self::on_recovery_exit`] change nothing. `in_flight_bytes`: before anything is marked lost.
    pub fn on_congestion(&mut self, _now: Instant, _why: Congestion, in_flight_bytes: u64) {
        match &mut self.0 {
            State::LossBased(c) => c.on_congestion(in_flight_bytes),
            State::Fixed(_) => {}
        }
    }

    /// The retransmission timer fired (RFC 5681 3.1): window of one segment. A repeated time-out of the same data holds
    /// `ssthresh`.
    pub fn on_rto(&mut self, _now: Instant, in_flight_bytes: u64) {
        match &mut self.0 {
            State::LossBased(c) => c.on_rto(in_flight_bytes),
            State::Fixed(_) => {}
        }
    }

    /// Fast recovery is over.
    pub fn on_recovery_exit(&mut self, _now: Instant) {
        match &mut self.0 {
            State::LossBased(c) => c.on_recovery_exit(),
            State::Fixed(_) => {}
        }
    }

    /// The last reduction was spurious (F-RTO, DSACK, Eifel): window and `ssthresh` come back (RFC 9438 4.9). Ends recovery.
    pub fn undo(&mut self, now: Instant) {
        match &mut self.0 {
            State::LossBased(c) => c.undo(now),
            State::Fixed(_) => {}
        }
    }

    /// Nothing was in flight for `idle` (RFC 2861): the window decays by half per `rto`, down to the initial one. Not called
    /// on declared links.
    pub fn on_idle_restart(&mut self, _now: Instant, idle: Duration, rto: Duration) {
        match &mut self.0 {
            State::LossBased(c) => c.on_idle_restart(idle, rto),
            State::Fixed(_) => {}
        }
    }

    /// The largest segment changed (path MTU).
    pub fn set_mss(&mut self, mss: u32) {
        match &mut self.0 {
            State::LossBased(c) => c.set_mss(mss),
            State::Fixed(_) => {}
        }
    }

    /// Congestion window.
    #[must_use]
    pub fn cwnd_bytes(&self) -> u64 {
        match &self.0 {
            State::LossBased(c) => c.cwnd(),
            State::Fixed(c) => c.window_bytes,
        }
    }

    /// Slow start threshold; `u64::MAX` while there is none. The window itself where the controller
    /// [ignores losses](Self::ignores_losses).
    #[must_use]
    pub fn ssthresh_bytes(&self) -> u64 {
        match &self.0 {
            State::LossBased(c) => c.ssthresh(),
            State::Fixed(c) => c.window_bytes,
        }
    }

    /// The window is below `ssthresh`.
    #[must_use]
    pub fn in_slow_start(&self) -> bool {
        match &self.0 {
            State::LossBased(c) => c.in_slow_start(),
            State::Fixed(_) => false,
        }
    }

    /// Rate at which to pace, payload bits per second; `None`: do not pace (no RTT known yet, or the egress queue is the clock).
    #[must_use]
    pub fn pacing_rate_bps(&self, srtt: Duration) -> Option<u64> {
        match &self.0 {
            State::LossBased(c) => c.pacing_rate_bps(srtt),
            State::Fixed(c) => c.rate_bps,
        }
    }

    /// Losses change nothing: the sender repeats what was lost within the window, PRR does not govern.
    #[must_use]
    pub fn ignores_losses(&self) -> bool {
        matches!(self.0, State::Fixed(_))
    }

    /// The algorithm.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match &self.0 {
            State::LossBased(c) => c.kind(),
            State::Fixed(c) => c.kind,
        }
    }
}
