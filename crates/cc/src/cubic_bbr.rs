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
    cubic: LossBased,
    bbr: Bbr,
    /// The last round trip shows that packets wait somewhere.
    waits: bool,
    /// BBR's window alone counts: its rate is known, and delay that hardly varies shows a queue.
    is_bbr_alone: bool,
}

impl CubicBbr {
    pub(crate) fn new(config: &Config) -> Self {
        let of = |kind| Config { kind, ..*config };
        Self {
            cubic: LossBased::new(&of(Kind::Cubic)),
            bbr: Bbr::new(&of(Kind::Bbr)),
            waits: false,
            is_bbr_alone: false,
        }
    }

    /// Where something has been carried already, at this rate, bits per second: BBR goes on from
    /// there, and CUBIC begins with what is under way then. Where delay does not vary BBR is alone.
    pub(crate) fn resume(
        config: &Config,
        now: Instant,
        (rate_bps, min_rtt): (u64, Duration),
        delay_varies: bool,
    ) -> Self {
        let mut new = Self { is_bbr_alone: !delay_varies, ..Self::new(config) };
        new.bbr = Bbr::resume(&Config { kind: Kind::Bbr, ..*config }, now, rate_bps, min_rtt);
        new.cubic.begin_with(new.bbr.cwnd() / 2);
        new
    }

    pub(crate) fn on_sent(&mut self, now: Instant, bytes: u64, in_flight: u64, app_limited: bool) {
        self.cubic.on_sent(now, bytes, in_flight);
        self.bbr.on_sent(now, bytes, in_flight, app_limited);
    }

    pub(crate) fn note_used(&mut self, bytes: u64) {
        self.cubic.note_used(bytes);
    }

    pub(crate) fn on_ack(&mut self, ack: &Ack) {
        if let Some(rtt) = ack.rtt {
            self.waits = rtt > ack.min_rtt + ack.min_rtt / QUEUE_PARTS;
        }
        self.cubic.on_ack(ack);
        self.bbr.on_ack(ack);
    }

    pub(crate) fn on_lost(&mut self, lost: &Lost) {
        if self.waits || self.is_bbr_alone {
            self.bbr.on_lost(lost);
        }
    }

    pub(crate) fn on_congestion(&mut self, now: Instant, why: Congestion, in_flight: u64) {
        self.cubic.on_congestion(in_flight);
        self.bbr.on_congestion(now, why, in_flight);
    }

    pub(crate) fn on_rto(&mut self, now: Instant, in_flight: u64, pipe: u64) {
        self.cubic.on_rto(in_flight);
        self.bbr.on_rto(now, pipe);
    }

    pub(crate) fn on_recovery_exit(&mut self) {
        self.cubic.on_recovery_exit();
        self.bbr.on_recovery_exit();
    }

    pub(crate) fn undo(&mut self, now: Instant) {
        self.cubic.undo(now);
        self.bbr.undo();
    }

    pub(crate) fn set_mss(&mut self, mss: u32) {
        self.cubic.set_mss(mss);
        self.bbr.set_mss(mss);
    }

    pub(crate) fn set_window_limit(&mut self, bytes: u64) {
        self.cubic.set_window_limit(bytes);
        self.bbr.set_window_limit(bytes);
    }

    pub(crate) fn cwnd(&self) -> u64 {
        if self.is_bbr_alone { self.bbr.cwnd() } else { self.cubic.cwnd().max(self.bbr.cwnd()) }
    }

    /// CUBIC goes by acknowledgements, as hosts do.
    pub(crate) fn pacing_rate_bps(&self) -> Option<u64> {
        self.bbr.pacing_rate_bps().filter(|_| self.is_bbr_alone || self.bbr.cwnd() > self.cubic.cwnd())
    }

    pub(crate) fn in_startup(&self) -> bool {
        self.bbr.in_startup() || (!self.is_bbr_alone && self.cubic.in_slow_start())
    }

    pub(crate) fn is_probing_rtt(&self) -> bool {
        self.bbr.is_probing_rtt() && (self.is_bbr_alone || self.bbr.cwnd() >= self.cubic.cwnd())
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
