//! Explicit control: routers on the way say how fast (XCP, draft-falk-xcp-spec-03).
//!
//! What is allowed is a window of packets as they are on the wire, paced over the round trip. Each
//! packet says so, and wishes for more; what routers have left of the wishes comes back as a sum.
//! What is in flight may exceed the window a little, for acknowledgements come late and several at
//! once: the pace is what counts.
//!
//! A loss on a link is corruption as long as routers are believed (`Trust`): they would have said
//! so before they drop. This is a deviation from the draft. While they are not, and until one has
//! spoken, BBR governs. The first router that answers brings XCP back, from where BBR stood. After
//! a doubt that takes a while.

use farlink_wire::WireSize;
use farlink_wire::time::{Duration, Instant};
use farlink_wire::xcp::XcpFields;
use farlink_xcp::{Doubt, News, Reported, Seen, Sender, Trust};

use crate::api::{Ack, Config, Congestion, Copies, Lost};
use crate::bbr::Bbr;

/// What leaves before a router has spoken, segments (RFC 6928).
const INITIAL_SEGMENTS_MAX: u32 = 10;
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
    trust: Trust,
    /// Of a full packet's bytes so many are payload, as a share.
    payload_share: f64,
    /// What the newest acknowledgement has shown of the way.
    shown: Shown,
    /// BBR had found the rate of the path before routers were believed.
    is_path_known: bool,
    /// Routers are not believed, or none has spoken yet.
    beyond: Option<Box<Bbr>>,
    /// Bytes of packets that all flows to the same gateway may have under way together, and how
    /// many these are. Their queue is the clock then, and not each of them.
    shared: Option<(u64, u32)>,
    /// It has found out that routers are not to be believed, and the others do not know yet.
    parted: Option<Doubt>,
}

/// What an acknowledgement shows of the way.
#[derive(Clone, Copy, Debug, Default)]
struct Shown {
    at: Instant,
    rate_bps: u64,
    min_rtt: Duration,
    /// Payload that was under way before it.
    in_flight_bytes: u64,
}

impl Xcp {
    pub(crate) fn new(config: &Config) -> Self {
        let mss = config.mss.max(1);
        let packet = mss.saturating_add(HEADER_BYTES);
        let payload_share = f64::from(mss) / f64::from(packet);
        let on_wire = |payload: u64| (payload as f64 / payload_share) as u64;
        let allowed_max_bps = config.fixed_rate_bps.map_or(u64::MAX, on_wire);
        let mut sender = Sender::new(Instant::ZERO, packet, allowed_max_bps);
        let initial_window_segments = config.initial_window_segments.clamp(1, INITIAL_SEGMENTS_MAX);
        let config = Config { initial_window_segments, ..*config };
        if let Some(rtt) = config.handshake_rtt.filter(|rtt| !rtt.is_zero()) {
            sender.set_rtt(rtt);
        }
        let beyond = Some(Box::new(Bbr::new(&config)));
        let (trust, shown) = (Trust::new(), Shown::default());
        Self {
            config,
            sender,
            trust,
            payload_share,
            shown,
            is_path_known: false,
            beyond,
            shared: None,
            parted: None,
        }
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
        self.sender.on_send(now, size, wants_more && self.trust.asks())
    }

    /// What is under way by BBR is what the packets say, and what XCP begins with. While it looks
    /// for the rate of the path that is its window; later the window has room for a queue, too.
    fn follow_bbr(&mut self) {
        let Some(cwnd) = self.beyond.as_ref().map(|bbr| bbr.cwnd()) else { return };
        let used = if self.trust.has_believed() { self.shown.in_flight_bytes } else { u64::MAX };
        self.sender.follow(self.on_wire(cwnd.min(used)));
    }

    /// Bytes of packets that carry so much payload.
    fn on_wire(&self, payload_bytes: u64) -> u64 {
        (payload_bytes as f64 / self.payload_share) as u64
    }

    /// Routers have left so much more of its wishes since this was told last, or less, bytes a
    /// second.
    pub(crate) fn hear(&mut self, change: i32) {
        self.follow_bbr();
        if !self.trust.on_sum(change, self.sender.window_bytes()) {
            return self.follow_trust();
        }
        self.leave_bbr();
        if self.shared.is_none() {
            let bounds = self.trust.bounds_bytes(self.on_wire(u64::from(self.config.mss)));
            self.sender.change(change, bounds);
        }
    }

    /// What has come in of all flows to the same gateway is a proof of what they share.
    pub(crate) fn hear_report(&mut self, reported: Reported) {
        if self.shared.is_some() {
            self.trust.on_report(reported);
        }
    }

    /// Routers are believed from now on.
    fn leave_bbr(&mut self) {
        if let Some(bbr) = self.beyond.take() {
            self.is_path_known = !bbr.in_startup();
        }
    }

    /// What has become of the trust in routers since the last time.
    pub(crate) fn take_news(&mut self) -> Option<News> {
        self.trust.take_news()
    }

    /// Why routers are not believed.
    pub(crate) fn doubt(&self) -> Option<Doubt> {
        self.trust.doubt()
    }

    /// One of those that share an allowance: routers speak to one of them at least, and `is_news`:
    /// have spoken since this was said last.
    pub(crate) fn share(&mut self, window_bytes: u64, flows: u32, is_news: bool) {
        let own_bytes = window_bytes / u64::from(flows.max(1));
        if (is_news || self.shared.is_none()) && !self.trust.on_sum(0, own_bytes) {
            return self.follow_trust();
        }
        if self.trust.believes() {
            self.shared = Some((window_bytes, flows));
            self.sender.follow(own_bytes);
            self.leave_bbr();
        }
    }

    /// On its own again, with its part of what was shared. A router that speaks shows at once.
    /// `why`: another one has found out that none is to be believed.
    pub(crate) fn part(&mut self, why: Option<Doubt>) {
        let has_shared = self.shared.take().is_some();
        if let Some(why) = why {
            self.trust.share_doubt(why);
            self.follow_trust();
        }
        if has_shared {
            self.trust.expect_word();
        }
    }

    /// It shares no longer because routers are not to be believed: why, and for how many round
    /// trips. It is told once, to those with whom it has shared.
    pub(crate) fn take_parted(&mut self) -> Option<(Doubt, u32)> {
        self.parted.take().map(|why| (why, self.trust.hold_rounds()))
    }

    /// Routers are asked, for more or for their answer.
    pub(crate) fn asks(&self) -> bool {
        self.trust.asks()
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
        self.shown = Shown {
            at: ack.now,
            rate_bps: ack.sample.rate_bps.unwrap_or(self.shown.rate_bps),
            min_rtt: ack.min_rtt,
            in_flight_bytes: ack.prior_in_flight_bytes,
        };
        self.follow_bbr();
        let seen = Seen {
            rtt: ack.rtt,
            srtt: ack.srtt,
            min_rtt: ack.min_rtt,
            arrived_bytes: self.on_wire(ack.acked_bytes),
            in_flight_bytes: self.on_wire(ack.prior_in_flight_bytes),
            window_bytes: self.sender.window_bytes(),
            least_bytes: self.sender.least_bytes(),
            is_idle: ack.sample.app_limited,
        };
        self.trust.on_ack(ack.now, &seen);
        if let Some(bbr) = &mut self.beyond {
            bbr.on_ack(ack);
        } else {
            self.follow_trust();
        }
    }

    /// Where routers are believed no longer, it goes on by a model of the path, from what arrives.
    /// Where that was never more than they let through, the path is yet to be found out.
    fn follow_trust(&mut self) {
        let Some(why) = self.trust.doubt().filter(|_| self.beyond.is_none()) else { return };
        let Shown { at, rate_bps, min_rtt, in_flight_bytes } = self.shown;
        let arrives = self.on_wire((rate_bps as f64 / 8.0 * min_rtt.as_secs_f64()) as u64);
        let is_path_known = match why {
            Doubt::Marked | Doubt::Overrun | Doubt::Contradicted => true,
            Doubt::Silent | Doubt::Absurd => {
                (self.is_path_known || self.trust.is_settled()) && arrives >= self.trust.proven_bytes() / 2
            }
            Doubt::Starved => false,
        };
        let bbr = if is_path_known && rate_bps > 0 && !min_rtt.is_zero() {
            Bbr::resume(&self.config, at, rate_bps, min_rtt)
        } else {
            let used = u32::try_from(in_flight_bytes / u64::from(self.config.mss.max(1))).unwrap_or(u32::MAX);
            let initial_window_segments = self.config.initial_window_segments.max(used);
            let handshake_rtt = Some(min_rtt).filter(|rtt| !rtt.is_zero()).or(self.config.handshake_rtt);
            Bbr::new(&Config { initial_window_segments, handshake_rtt, ..self.config })
        };
        self.beyond = Some(Box::new(bbr));
        if self.shared.take().is_some() {
            self.parted = Some(why);
        }
        self.shared = None;
    }

    pub(crate) fn on_lost(&mut self, lost: &Lost) {
        self.trust.on_loss();
        if let Some(bbr) = &mut self.beyond {
            bbr.on_lost(lost);
        }
    }

    pub(crate) fn on_congestion(&mut self, now: Instant, why: Congestion, in_flight: u64) {
        if why == Congestion::Ecn {
            self.trust.on_mark();
            self.follow_trust();
        }
        if let Some(bbr) = &mut self.beyond {
            bbr.on_congestion(now, why, in_flight);
        }
    }

    pub(crate) fn on_rto(&mut self, now: Instant, pipe: u64) {
        self.trust.on_timeout();
        self.follow_trust();
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
        let window = self.shared.map_or(self.sender.window_bytes(), |(bytes, _)| bytes);
        let payload = (window as f64 * self.payload_share) as u64;
        let late = payload / LATE_PARTS + LATE_SEGMENTS * u64::from(self.config.mss);
        payload.saturating_add(late).min(self.config.window_limit_bytes)
    }

    /// Of a window that it shares, its part.
    pub(crate) fn own_cwnd(&self) -> u64 {
        let flows = self.shared.map_or(1, |(_, flows)| flows.max(1));
        self.cwnd() / u64::from(flows)
    }

    pub(crate) fn pacing_rate_bps(&self) -> Option<u64> {
        match &self.beyond {
            Some(bbr) => bbr.pacing_rate_bps(),
            None if self.shared.is_some() => None,
            None => self.sender.allowed_bps().map(|bps| (bps as f64 * self.payload_share) as u64),
        }
    }

    /// What the end of a transfer leaves of the allowance may be used for copies.
    pub(crate) fn copies(&self) -> Copies {
        if self.beyond.is_none() { Copies::All } else { Copies::None }
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
            waited_back: None,
        }
    }

    #[test]
    fn what_routers_leave_of_the_wishes_is_the_rate() {
        let mut c = controller();
        c.hear(0);
        let before = c.pacing_rate_bps().unwrap();
        assert!((560_000..620_000).contains(&before), "ten packets in a round trip: {before}");
        let stamp = |c: &mut Xcp| c.stamp(Instant::ZERO, (WireSize { bytes: 1528, packets: 1 }, 1460), true);
        let said = stamp(&mut c);
        assert!((said.rtt.seconds() - 0.2).abs() < 1e-6 && said.delta_bytes_per_s == i32::MAX);
        assert_eq!([said.spacing, stamp(&mut c).spacing], [said.rtt, HeaderTime(0)], "one for all");
        // 1 MB a second more on the wire.
        c.hear(1_000_000);
        let more = c.pacing_rate_bps().unwrap() - before;
        assert!((7_600_000..7_700_000).contains(&more), "{more}");
        assert!(c.cwnd() > 191_000 && c.cwnd() < 300_000, "{}", c.cwnd());
        let packets = 0.2 / stamp(&mut c).spacing.seconds();
        assert!((packets - 215_280.0 / 1_528.0).abs() < 0.1, "{packets}");
        c.hear(-100_000);
        assert!(c.pacing_rate_bps().unwrap() < before + more, "less again");
    }

    #[test]
    fn without_a_router_it_is_bbr_until_one_speaks() {
        let mut c = controller();
        assert!(c.beyond.is_some() && c.in_startup(), "none has spoken yet");
        c.hear(5_000);
        for n in 1..=3 {
            assert!(c.beyond.is_none());
            c.on_ack(&ack(Instant::ZERO + RTT * n));
        }
        assert!(c.beyond.is_some());
        c.hear(5_000);
        assert!(c.beyond.is_none());
    }
}
