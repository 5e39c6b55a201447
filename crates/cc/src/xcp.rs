//! Explicit control: routers on the way say how fast (XCP, draft-falk-xcp-spec-03).
//!
//! What is allowed is a window of packets as they are on the wire, paced over the round trip. Each
//! packet says so, and wishes for more; what routers have left of the wishes comes back as a sum.
//! What is in flight may exceed the window a little, for acknowledgements come late and several at
//! once: the pace is what counts.
//!
//! A loss on a link is corruption as long as routers speak: they would have said so before they
//! drop. This is a deviation from the draft. Until one has spoken, and where none has for two round
//! trips, BBR governs. The packets go on wishing, so the first router that answers brings XCP back,
//! from where BBR stood.

use farlink_wire::WireSize;
use farlink_wire::time::Instant;
use farlink_wire::xcp::XcpFields;
use farlink_xcp::Sender;

use crate::api::{Ack, Config, Congestion, Lost};
use crate::bbr::Bbr;

/// What leaves before a router has spoken, segments (RFC 6928).
const INITIAL_SEGMENTS_MAX: u32 = 10;
/// Round trips without a word of a router after which there is none.
const ROUNDS_UNHEARD: u32 = 2;
/// Beyond the window so much of it may be in flight (one over it), and so many segments.
const LATE_PARTS: u64 = 8;
const LATE_SEGMENTS: u64 = 4;
/// Headers of a segment until one has left, bytes.
const HEADER_BYTES: u32 = 68;

/// A controller for a way on which routers speak.
#[derive(Clone, Debug)]
pub(crate) struct Xcp {
    config: Config,
    sender: Sender,
    /// Of a full packet's bytes so many are payload, as a share.
    payload_share: f64,
    /// Round trips since a router has spoken.
    unheard: u32,
    /// No router speaks, or has spoken yet.
    beyond: Option<Box<Bbr>>,
}

impl Xcp {
    pub(crate) fn new(config: &Config) -> Self {
        let mss = config.mss.max(1);
        let packet = mss.saturating_add(HEADER_BYTES);
        let mut sender = Sender::new(Instant::ZERO, packet, config.fixed_rate_bps.unwrap_or(u64::MAX));
        let initial_window_segments = config.initial_window_segments.clamp(1, INITIAL_SEGMENTS_MAX);
        let config = Config { initial_window_segments, ..*config };
        if let Some(rtt) = config.handshake_rtt.filter(|rtt| !rtt.is_zero()) {
            sender.set_rtt(rtt);
        }
        let payload_share = f64::from(mss) / f64::from(packet);
        let beyond = Some(Box::new(Bbr::new(&config)));
        Self { config, sender, payload_share, unheard: 0, beyond }
    }

    /// Packets leave that are alike, with so much payload together. Returns what each says.
    pub(crate) fn stamp(
        &mut self,
        now: Instant,
        (size, payload_bytes): (WireSize, u32),
        wants_more: bool,
    ) -> XcpFields {
        if payload_bytes >= self.config.mss {
            self.payload_share = f64::from(payload_bytes) / f64::from(size.bytes.max(payload_bytes));
        }
        self.follow_bbr();
        self.sender.on_send(now, size, wants_more)
    }

    /// What is under way by BBR is what the packets say, and what XCP begins with.
    fn follow_bbr(&mut self) {
        if let Some(bbr) = &self.beyond {
            self.sender.follow((bbr.cwnd() as f64 / self.payload_share) as u64);
        }
    }

    /// Routers have left so much of all wishes, as the receiver tells it.
    pub(crate) fn hear_sum(&mut self, sum: u32) {
        self.unheard = 0;
        self.follow_bbr();
        self.beyond = None;
        self.sender.on_sum(sum);
    }

    pub(crate) fn on_sent(&mut self, now: Instant, bytes: u64, in_flight: u64, app_limited: bool) {
        if let Some(bbr) = &mut self.beyond {
            bbr.on_sent(now, bytes, in_flight, app_limited);
        }
    }

    pub(crate) fn on_ack(&mut self, ack: &Ack) {
        if let Some(rtt) = ack.rtt.filter(|rtt| !rtt.is_zero()) {
            self.sender.set_rtt(rtt);
        }
        if ack.round_start {
            self.unheard = self.unheard.saturating_add(1);
        }
        if let Some(bbr) = &mut self.beyond {
            bbr.on_ack(ack);
        } else if self.unheard >= ROUNDS_UNHEARD {
            self.give_way(ack);
        }
    }

    /// Nobody on the way speaks: by a model of the path, from what arrives.
    fn give_way(&mut self, ack: &Ack) {
        let bbr = match ack.sample.rate_bps {
            Some(rate_bps) if rate_bps > 0 && !ack.min_rtt.is_zero() => {
                Bbr::resume(&self.config, ack.now, rate_bps, ack.min_rtt)
            }
            _ => Bbr::new(&self.config),
        };
        self.beyond = Some(Box::new(bbr));
    }

    pub(crate) fn on_lost(&mut self, lost: &Lost) {
        if let Some(bbr) = &mut self.beyond {
            bbr.on_lost(lost);
        }
    }

    pub(crate) fn on_congestion(&mut self, now: Instant, why: Congestion, in_flight: u64) {
        if let Some(bbr) = &mut self.beyond {
            bbr.on_congestion(now, why, in_flight);
        }
    }

    pub(crate) fn on_rto(&mut self, now: Instant, pipe: u64) {
        if let Some(bbr) = &mut self.beyond {
            bbr.on_rto(now, pipe);
        }
    }

    pub(crate) fn on_recovery_exit(&mut self) {
        if let Some(bbr) = &mut self.beyond {
            bbr.on_recovery_exit();
        }
    }

    pub(crate) fn undo(&mut self) {
        if let Some(bbr) = &mut self.beyond {
            bbr.undo();
        }
    }

    pub(crate) fn set_mss(&mut self, mss: u32) {
        self.config.mss = mss.max(1);
        if let Some(bbr) = &mut self.beyond {
            bbr.set_mss(mss);
        }
    }

    pub(crate) fn set_window_limit(&mut self, bytes: u64) {
        self.config.window_limit_bytes = bytes.max(2 * u64::from(self.config.mss));
        if let Some(bbr) = &mut self.beyond {
            bbr.set_window_limit(bytes);
        }
    }

    pub(crate) fn cwnd(&self) -> u64 {
        if let Some(bbr) = &self.beyond {
            return bbr.cwnd();
        }
        let payload = (self.sender.window_bytes() as f64 * self.payload_share) as u64;
        let late = payload / LATE_PARTS + LATE_SEGMENTS * u64::from(self.config.mss);
        payload.saturating_add(late).min(self.config.window_limit_bytes)
    }

    pub(crate) fn pacing_rate_bps(&self) -> Option<u64> {
        match &self.beyond {
            Some(bbr) => bbr.pacing_rate_bps(),
            None => self.sender.allowed_bps().map(|bps| (bps as f64 * self.payload_share) as u64),
        }
    }

    pub(crate) fn is_probing_rtt(&self) -> bool {
        self.beyond.as_ref().is_some_and(|bbr| bbr.is_probing_rtt())
    }

    pub(crate) fn in_startup(&self) -> bool {
        self.beyond.as_ref().is_some_and(|bbr| bbr.in_startup())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Sample;
    use farlink_wire::time::Duration;
    use farlink_wire::xcp::HeaderTime;

    const RTT: Duration = Duration::from_millis(200);

    fn controller() -> Xcp {
        Xcp::new(&Config { handshake_rtt: Some(RTT), initial_window_segments: 64, ..Config::default() })
    }

    fn ack(now: Instant) -> Ack {
        Ack {
            now,
            acked_bytes: 1460,
            rtt: Some(RTT),
            srtt: RTT,
            min_rtt: RTT,
            in_flight_bytes: 14_600,
            prior_in_flight_bytes: 16_060,
            sample: Sample { rate_bps: Some(10_000_000), ..Sample::default() },
            app_limited: false,
            in_recovery: false,
            round_start: true,
        }
    }

    #[test]
    fn what_routers_leave_of_the_wishes_is_the_rate() {
        let mut c = controller();
        c.hear_sum(0);
        let before = c.pacing_rate_bps().unwrap();
        assert!((560_000..620_000).contains(&before), "ten packets in a round trip: {before}");
        let stamp = |c: &mut Xcp| c.stamp(Instant::ZERO, (WireSize { bytes: 1528, packets: 1 }, 1460), true);
        let said = stamp(&mut c);
        assert!((said.rtt.seconds() - 0.2).abs() < 1e-6 && said.delta_bytes_per_s == i32::MAX);
        assert_eq!([said.spacing, stamp(&mut c).spacing], [said.rtt, HeaderTime(0)], "one for all");
        // 1 MB a second more on the wire.
        c.hear_sum(1_000_000);
        let more = c.pacing_rate_bps().unwrap() - before;
        assert!((7_600_000..7_700_000).contains(&more), "{more}");
        assert!(c.cwnd() > 191_000 && c.cwnd() < 300_000, "{}", c.cwnd());
        let packets = 0.2 / stamp(&mut c).spacing.seconds();
        assert!((packets - 215_280.0 / 1_528.0).abs() < 0.1, "{packets}");
        c.hear_sum(900_000);
        assert!(c.pacing_rate_bps().unwrap() < before + more, "less again");
    }

    #[test]
    fn without_a_router_it_is_bbr_until_one_speaks() {
        let mut c = controller();
        assert!(c.beyond.is_some() && c.in_startup(), "none has spoken yet");
        c.hear_sum(5_000);
        for n in 1..=ROUNDS_UNHEARD {
            assert!(c.beyond.is_none());
            c.on_ack(&ack(Instant::ZERO + RTT * n));
        }
        assert!(c.beyond.is_some());
        c.hear_sum(10_000);
        assert!(c.beyond.is_none());
    }
}
