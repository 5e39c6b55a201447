//! CUBIC and BBR at once, and the larger window of both: for a declared link of which nobody knows
//! the rate, with no gateway at its other end.
//!
//! There the connection is to be no slower than its hosts would be alone, whichever of the two they
//! use. CUBIC begins without BBR's pauses and keeps a link full whose rate moves. BBR goes on where
//! packets are lost at random, or their delay jitters. Neither knows of the other one: each goes by
//! the acknowledgements of all that is sent.
//!
//! BBR version 3 gives way from 2 % of loss on, version 1, which hosts have, does not. A loss while
//! nothing waits is not for want of room, so it is kept from BBR. One that comes while round trips
//! are longer than they could be counts.

use farlink_wire::time::{Duration, Instant};

use crate::api::{Ack, Config, Congestion, Kind, Lost};
use crate::bbr::Bbr;
use crate::loss_based::LossBased;

/// A round trip that is longer than the shortest one by more than this part shows a queue.
const QUEUE_PARTS: u32 = 8;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct CubicBbr {
    /// `None`: BBR is alone, which knows the rate, and delay that hardly varies shows a queue.
    cubic: Option<LossBased>,
    bbr: Bbr,
    /// The last round trip shows that packets wait somewhere.
    waits: bool,
}

impl CubicBbr {
    pub(crate) fn new(config: &Config) -> Self {
        let of = |kind| Config { kind, ..*config };
        let cubic = Some(LossBased::new(&of(Kind::Cubic)));
        Self { cubic, bbr: Bbr::new(&of(Kind::Bbr)), waits: false }
    }

    /// Where something has been carried already, at this rate, bits per second: BBR goes on from
    /// there, and CUBIC begins with what is under way then. Where delay does not vary BBR is alone.
    pub(crate) fn resume(
        config: &Config,
        now: Instant,
        (rate_bps, min_rtt): (u64, Duration),
        delay_varies: bool,
    ) -> Self {
        let bbr = Bbr::resume(&Config { kind: Kind::Bbr, ..*config }, now, rate_bps, min_rtt);
        let cubic = delay_varies.then(|| {
            let mut cubic = LossBased::new(&Config { kind: Kind::Cubic, ..*config });
            cubic.begin_with(bbr.cwnd() / 2);
            cubic
        });
        Self { cubic, bbr, waits: false }
    }

    pub(crate) fn on_sent(&mut self, now: Instant, bytes: u64, in_flight: u64, app_limited: bool) {
        if let Some(cubic) = &mut self.cubic {
            cubic.on_sent(now, bytes, in_flight);
        }
        self.bbr.on_sent(now, bytes, in_flight, app_limited);
    }

    pub(crate) fn note_used(&mut self, bytes: u64) {
        if let Some(cubic) = &mut self.cubic {
            cubic.note_used(bytes);
        }
    }

    pub(crate) fn on_ack(&mut self, ack: &Ack) {
        if let Some(rtt) = ack.rtt {
            self.waits = rtt > ack.min_rtt + ack.min_rtt / QUEUE_PARTS;
        }
        if let Some(cubic) = &mut self.cubic {
            cubic.on_ack(ack);
        }
        self.bbr.on_ack(ack);
    }

    pub(crate) fn on_lost(&mut self, lost: &Lost) {
        if self.waits || self.cubic.is_none() {
            self.bbr.on_lost(lost);
        }
    }

    pub(crate) fn on_congestion(&mut self, now: Instant, why: Congestion, in_flight: u64) {
        if let Some(cubic) = &mut self.cubic {
            cubic.on_congestion(in_flight);
        }
        self.bbr.on_congestion(now, why, in_flight);
    }

    pub(crate) fn on_rto(&mut self, now: Instant, in_flight: u64, pipe: u64) {
        if let Some(cubic) = &mut self.cubic {
            cubic.on_rto(in_flight);
        }
        self.bbr.on_rto(now, pipe);
    }

    pub(crate) fn on_recovery_exit(&mut self) {
        if let Some(cubic) = &mut self.cubic {
            cubic.on_recovery_exit();
        }
        self.bbr.on_recovery_exit();
    }

    pub(crate) fn undo(&mut self, now: Instant) {
        if let Some(cubic) = &mut self.cubic {
            cubic.undo(now);
        }
        self.bbr.undo();
    }

    pub(crate) fn set_mss(&mut self, mss: u32) {
        if let Some(cubic) = &mut self.cubic {
            cubic.set_mss(mss);
        }
        self.bbr.set_mss(mss);
    }

    pub(crate) fn set_window_limit(&mut self, bytes: u64) {
        if let Some(cubic) = &mut self.cubic {
            cubic.set_window_limit(bytes);
        }
        self.bbr.set_window_limit(bytes);
    }

    pub(crate) fn cwnd(&self) -> u64 {
        self.bbr.cwnd().max(self.cubic_cwnd())
    }

    /// Zero where BBR is alone.
    fn cubic_cwnd(&self) -> u64 {
        self.cubic.as_ref().map_or(0, LossBased::cwnd)
    }

    /// CUBIC goes by acknowledgements, as hosts do.
    pub(crate) fn pacing_rate_bps(&self) -> Option<u64> {
        self.bbr.pacing_rate_bps().filter(|_| self.bbr.cwnd() > self.cubic_cwnd())
    }

    pub(crate) fn in_startup(&self) -> bool {
        self.bbr.in_startup() || self.cubic.as_ref().is_some_and(LossBased::in_slow_start)
    }

    pub(crate) fn is_probing_rtt(&self) -> bool {
        self.bbr.is_probing_rtt() && self.bbr.cwnd() >= self.cubic_cwnd()
    }

    /// What has been carried of late, bits per second.
    pub(crate) fn bandwidth_bps(&self) -> u64 {
        self.bbr.bandwidth_bps()
    }

    /// The smallest RTT of late.
    pub(crate) fn min_rtt(&self) -> Option<Duration> {
        self.bbr.min_rtt()
    }
}
