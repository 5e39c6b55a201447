//! Congestion control as Linux does it, in packets: Reno, CUBIC with HyStart, BBR; and the one that
//! Reynolds added to his.

mod bbr;
mod cubic;

use std::str::FromStr;

use farlink_wire::{Duration, Instant};

use super::rate::Sample;
use bbr::Bbr;
use cubic::Cubic;

/// Which algorithm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Linux `reno`.
    Reno,
    /// Linux `cubic`.
    Cubic,
    /// Linux `bbr` (version 1).
    Bbr,
    /// A window of 2 GB, whatever happens (Reynolds, AFIT 2006, 3.2.3).
    Unfair,
}

impl FromStr for Kind {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "reno" => Ok(Self::Reno),
            "cubic" => Ok(Self::Cubic),
            "bbr" => Ok(Self::Bbr),
            "unfair" => Ok(Self::Unfair),
            _ => Err(format!(
                "simulated hosts have no congestion control `{s}`; they have reno, cubic, bbr, unfair"
            )),
        }
    }
}

/// The windows that a controller governs, in packets (Linux `struct tcp_sock`).
#[derive(Clone, Debug)]
pub struct Window {
    /// Congestion window.
    pub cwnd: u32,
    /// Slow-start threshold.
    pub ssthresh: u32,
    count: u32,
}

impl Window {
    /// A new connection's.
    #[must_use]
    pub fn new(initial: u32) -> Self {
        Self { cwnd: initial.max(1), ssthresh: u32::MAX, count: 0 }
    }

    /// Below the threshold.
    #[must_use]
    pub fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// Linux `tcp_slow_start`; the packets that are left.
    fn slow_start(&mut self, acked: u32) -> u32 {
        let cwnd = self.cwnd.saturating_add(acked).min(self.ssthresh);
        let left = acked - (cwnd - self.cwnd);
        self.cwnd = cwnd;
        left
    }

    /// Linux `tcp_cong_avoid_ai`: one packet for each `per` acknowledged ones.
    fn additive(&mut self, per: u32, acked: u32) {
        let per = per.max(1);
        if self.count >= per {
            self.count = 0;
            self.cwnd += 1;
        }
        self.count += acked;
        if self.count >= per {
            self.cwnd += self.count / per;
            self.count %= per;
        }
    }
}

/// What an acknowledgement brings to a controller.
#[derive(Clone, Copy, Debug)]
pub struct Acked {
    /// When.
    pub now: Instant,
    /// Packets newly acknowledged or selectively acknowledged.
    pub packets: u32,
    /// Those of them that the cumulative acknowledgement covers.
    pub cumulative: u32,
    /// RTT of the newest one that was sent only once.
    pub rtt: Option<Duration>,
    /// Smoothed RTT.
    pub srtt: Duration,
    /// Smallest RTT.
    pub min_rtt: Duration,
    /// Packets in flight before it.
    pub prior_in_flight: u32,
    /// Packets in flight after it.
    pub in_flight: u32,
    /// Packets newly judged lost.
    pub lost: u32,
    /// All packets delivered so far.
    pub delivered: u64,
    /// Rate sample.
    pub sample: Sample,
    /// Lowest sequence number not acknowledged, as an offset.
    pub una: u64,
    /// Next sequence number to be sent, as an offset.
    pub nxt: u64,
    /// The window, not the application, was the limit.
    pub window_limited: bool,
    /// Fast recovery is under way.
    pub in_recovery: bool,
    /// The time after a retransmission timeout.
    pub in_loss: bool,
}

/// Window of [`Kind::Unfair`], bytes.
const UNFAIR_BYTES: u32 = 2_000_000_000;

/// A controller.
#[derive(Clone, Debug)]
pub enum Controller {
    /// Reno.
    Reno,
    /// CUBIC.
    Cubic(Box<Cubic>),
    /// BBR.
    Bbr(Box<Bbr>),
    /// A fixed window, in packets.
    Unfair(u32),
}

impl Controller {
    /// A new connection's. `mss` in bytes.
    #[must_use]
    pub fn new(kind: Kind, mss: u32) -> Self {
        match kind {
            Kind::Reno => Self::Reno,
            Kind::Cubic => Self::Cubic(Box::default()),
            Kind::Bbr => Self::Bbr(Box::new(Bbr::new(mss))),
            Kind::Unfair => Self::Unfair(UNFAIR_BYTES / mss.max(1)),
        }
    }

    /// Whether it governs the window in recovery too, in place of PRR.
    #[must_use]
    pub fn governs_recovery(&self) -> bool {
        matches!(self, Self::Bbr(_) | Self::Unfair(_))
    }

    /// Congestion: the new threshold.
    pub fn ssthresh(&mut self, w: &Window) -> u32 {
        match self {
            Self::Reno => (w.cwnd / 2).max(2),
            Self::Cubic(c) => c.ssthresh(w.cwnd),
            Self::Bbr(b) => b.save_window(w.cwnd, w.ssthresh),
            Self::Unfair(window) => *window,
        }
    }

    /// A retransmission timeout.
    pub fn on_timeout(&mut self) {
        match self {
            Self::Reno | Self::Unfair(_) => {}
            Self::Cubic(c) => c.on_timeout(),
            Self::Bbr(b) => b.on_timeout(),
        }
    }

    /// A reduction was a mistake.
    pub fn on_undo(&mut self) {
        if let Self::Bbr(b) = self {
            b.on_undo();
        }
    }

    /// Segments have this size in bytes from now on.
    pub fn set_mss(&mut self, mss: u32) {
        if let Self::Bbr(b) = self {
            b.set_mss(mss);
        }
    }

    /// A segment is sent after nothing was in flight for a time.
    pub fn on_restart(&mut self, now: Instant, last_sent: Instant) {
        match self {
            Self::Reno | Self::Unfair(_) => {}
            Self::Cubic(c) => c.on_restart(now, last_sent),
            Self::Bbr(b) => b.on_restart(),
        }
    }

    /// An acknowledgement of something new.
    pub fn on_ack(&mut self, w: &mut Window, a: &Acked) {
        match self {
            Self::Reno => {
                if grows(a) {
                    let left = if w.in_slow_start() { w.slow_start(a.cumulative) } else { a.cumulative };
                    if left > 0 {
                        w.additive(w.cwnd, left);
                    }
                }
            }
            Self::Cubic(c) => {
                c.measure(w, a);
                if grows(a) {
                    let left = if w.in_slow_start() { w.slow_start(a.cumulative) } else { a.cumulative };
                    if left > 0 {
                        let per = c.update(a.now, w.cwnd, left);
                        w.additive(per, left);
                    }
                }
            }
            Self::Bbr(b) => b.on_ack(w, a),
            Self::Unfair(window) => w.cwnd = *window,
        }
    }

    /// Bits per second at which it paces, if it does.
    #[must_use]
    pub fn pacing_bps(&self) -> Option<f64> {
        match self {
            Self::Bbr(b) => Some(b.pacing_bps()),
            _ => None,
        }
    }
}

/// Whether a window that loss governs may grow now (Linux `tcp_cong_control`,
/// `tcp_is_cwnd_limited`).
fn grows(a: &Acked) -> bool {
    !a.in_recovery && a.window_limited && a.cumulative > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_start_doubles_and_avoidance_adds_one_a_round() {
        let mut w = Window::new(10);
        assert_eq!(w.slow_start(10), 0);
        assert_eq!(w.cwnd, 20);
        w.ssthresh = 25;
        assert_eq!(w.slow_start(10), 5);
        assert_eq!(w.cwnd, 25);
        for _ in 0..25 {
            w.additive(25, 1);
        }
        assert_eq!(w.cwnd, 26);
    }
}
