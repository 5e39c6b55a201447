//! The one door to all controllers.

use farlink_wire::WireSize;
use farlink_wire::time::{Duration, Instant};
use farlink_wire::xcp::XcpFields;
use farlink_xcp::{Doubt, News, Reported};

use crate::api::{Ack, Config, Congestion, Copies, Kind, Lost};
use crate::bbr::Bbr;
use crate::cubic_bbr::CubicBbr;
use crate::fixed::Fixed;
use crate::known_rate::KnownRate;
use crate::loss_based::LossBased;
use crate::xcp::Xcp;

/// A congestion controller of one sender.
#[derive(Clone, Debug)]
pub struct Controller(State);

#[derive(Clone, Debug)]
enum State {
    LossBased(Box<LossBased>),
    Bbr(Box<Bbr>),
    CubicBbr(Box<CubicBbr>),
    KnownRate(Box<KnownRate>),
    Xcp(Box<Xcp>),
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
            Kind::Bbr => State::Bbr(Box::new(Bbr::new(config))),
            Kind::CubicBbr => State::CubicBbr(Box::new(CubicBbr::new(config))),
            Kind::KnownRate => State::KnownRate(Box::new(KnownRate::new(config))),
            Kind::Xcp => State::Xcp(Box::new(Xcp::new(config))),
            Kind::FixedRate | Kind::Unfair => State::Fixed(Fixed::new(config)),
        })
    }

    /// `bytes` of payload left; `in_flight_bytes` includes them. `app_limited`: before them the
    /// source had not had enough to send.
    pub fn on_sent(&mut self, now: Instant, bytes: u64, in_flight_bytes: u64, app_limited: bool) {
        match &mut self.0 {
            State::Bbr(c) => c.on_sent(now, bytes, in_flight_bytes, app_limited),
            State::CubicBbr(c) => c.on_sent(now, bytes, in_flight_bytes, app_limited),
            State::KnownRate(c) => c.on_sent(now, bytes, in_flight_bytes, app_limited),
            State::Xcp(c) => c.on_sent(now, bytes, in_flight_bytes, app_limited),
            State::LossBased(c) => c.on_sent(now, bytes, in_flight_bytes),
            State::Fixed(_) => {}
        }
    }

    /// So much of the window is used, though less is in flight: a source is on its way to it that
    /// was promised no more (RFC 7661 section 3).
    pub fn note_used(&mut self, bytes: u64) {
        match &mut self.0 {
            State::LossBased(c) => c.note_used(bytes),
            State::CubicBbr(c) => c.note_used(bytes),
            State::Bbr(_) | State::KnownRate(_) | State::Xcp(_) | State::Fixed(_) => {}
        }
    }

    /// Something new was acknowledged.
    pub fn on_ack(&mut self, ack: &Ack) {
        match &mut self.0 {
            State::LossBased(c) => c.on_ack(ack),
            State::Bbr(c) => c.on_ack(ack),
            State::CubicBbr(c) => c.on_ack(ack),
            State::KnownRate(c) => c.on_ack(ack),
            State::Xcp(c) => c.on_ack(ack),
            State::Fixed(_) => {}
        }
    }

    /// A transmission is taken for lost; told before [`Self::on_congestion`], [`Self::on_rto`] and
    /// the acknowledgement that showed it. Only wanted where [`Self::wants_losses`].
    pub fn on_lost(&mut self, lost: &Lost) {
        match &mut self.0 {
            State::Bbr(c) => c.on_lost(lost),
            State::CubicBbr(c) => c.on_lost(lost),
            State::KnownRate(c) => c.on_lost(lost),
            State::Xcp(c) => c.on_lost(lost),
            State::LossBased(_) | State::Fixed(_) => {}
        }
    }

    /// Congestion was detected: sets `ssthresh` and the window (to `ssthresh`; PRR may send
    /// otherwise meanwhile) and remembers both for [`Self::undo`]. The sender calls this once per
    /// window of data; further calls until [`Self::on_recovery_exit`] change nothing.
    /// `in_flight_bytes`: before anything is marked lost.
    pub fn on_congestion(&mut self, now: Instant, why: Congestion, in_flight_bytes: u64) {
        match &mut self.0 {
            State::Bbr(c) => c.on_congestion(now, why, in_flight_bytes),
            State::CubicBbr(c) => c.on_congestion(now, why, in_flight_bytes),
            State::KnownRate(c) => c.on_congestion(now, why, in_flight_bytes),
            State::Xcp(c) => c.on_congestion(now, why, in_flight_bytes),
            State::LossBased(c) => c.on_congestion(in_flight_bytes),
            State::Fixed(_) => {}
        }
    }

    /// The retransmission timer fired (RFC 5681 3.1): window of one segment. A repeated time-out of
    /// the same data holds `ssthresh`. `in_flight_bytes`: before anything is marked lost;
    /// `pipe_bytes`: after.
    pub fn on_rto(&mut self, now: Instant, in_flight_bytes: u64, pipe_bytes: u64) {
        match &mut self.0 {
            State::Bbr(c) => c.on_rto(now, pipe_bytes),
            State::CubicBbr(c) => c.on_rto(now, in_flight_bytes, pipe_bytes),
            State::KnownRate(c) => c.on_rto(now, in_flight_bytes, pipe_bytes),
            State::Xcp(c) => c.on_rto(now, pipe_bytes),
            State::LossBased(c) => c.on_rto(in_flight_bytes),
            State::Fixed(_) => {}
        }
    }

    /// Recovery is over, fast or after a time-out.
    pub fn on_recovery_exit(&mut self, _now: Instant) {
        match &mut self.0 {
            State::Bbr(c) => c.on_recovery_exit(),
            State::CubicBbr(c) => c.on_recovery_exit(),
            State::KnownRate(c) => c.on_recovery_exit(),
            State::Xcp(c) => c.on_recovery_exit(),
            State::LossBased(c) => c.on_recovery_exit(),
            State::Fixed(_) => {}
        }
    }

    /// The last reduction was spurious (F-RTO, DSACK, Eifel): window and `ssthresh` come back (RFC
    /// 9438 4.9). Ends recovery.
    pub fn undo(&mut self, now: Instant) {
        match &mut self.0 {
            State::LossBased(c) => c.undo(now),
            State::Bbr(c) => c.undo(),
            State::CubicBbr(c) => c.undo(now),
            State::KnownRate(c) => c.undo(now),
            State::Xcp(c) => c.undo(),
            State::Fixed(_) => {}
        }
    }

    /// So much has arrived that was taken for lost: packets overtake each other. Told before
    /// [`Self::on_ack`].
    pub fn on_found(&mut self, bytes: u64, segments: u64) {
        if let State::KnownRate(c) = &mut self.0 {
            c.on_found(bytes, segments);
        }
    }

    /// Nothing was in flight for `idle` (RFC 2861): the window decays by half per `rto`, down to
    /// the initial one. Not called on declared links.
    pub fn on_idle_restart(&mut self, _now: Instant, idle: Duration, rto: Duration) {
        match &mut self.0 {
            State::LossBased(c) => c.on_idle_restart(idle, rto),
            // BBR keeps its window and paces.
            State::Bbr(_) | State::CubicBbr(_) | State::KnownRate(_) | State::Xcp(_) | State::Fixed(_) => {}
        }
    }

    /// The largest segment changed (path MTU).
    pub fn set_mss(&mut self, mss: u32) {
        match &mut self.0 {
            State::LossBased(c) => c.set_mss(mss),
            State::Bbr(c) => c.set_mss(mss),
            State::CubicBbr(c) => c.set_mss(mss),
            State::KnownRate(c) => c.set_mss(mss),
            State::Xcp(c) => c.set_mss(mss),
            State::Fixed(_) => {}
        }
    }

    /// Congestion window.
    #[must_use]
    pub fn cwnd_bytes(&self) -> u64 {
        match &self.0 {
            State::LossBased(c) => c.cwnd(),
            State::Bbr(c) => c.cwnd(),
            State::CubicBbr(c) => c.cwnd(),
            State::KnownRate(c) => c.cwnd(),
            State::Xcp(c) => c.cwnd(),
            State::Fixed(c) => c.window_bytes,
        }
    }

    /// The same, or of a window that several flows share, its part.
    #[must_use]
    pub fn own_cwnd_bytes(&self) -> u64 {
        if let State::Xcp(c) = &self.0 { c.own_cwnd() } else { self.cwnd_bytes() }
    }

    /// Slow start threshold; `u64::MAX` while there is none. The window itself where PRR
    /// [does not govern](Self::uses_prr).
    #[must_use]
    pub fn ssthresh_bytes(&self) -> u64 {
        match &self.0 {
            State::LossBased(c) => c.ssthresh(),
            State::Bbr(c) => c.cwnd(),
            State::CubicBbr(c) => c.cwnd(),
            State::KnownRate(c) => c.cwnd(),
            State::Xcp(c) => c.cwnd(),
            State::Fixed(c) => c.window_bytes,
        }
    }

    /// The window is below `ssthresh`; Startup of BBR.
    #[must_use]
    pub fn in_slow_start(&self) -> bool {
        match &self.0 {
            State::LossBased(c) => c.in_slow_start(),
            State::Bbr(c) => c.in_startup(),
            State::CubicBbr(c) => c.in_startup(),
            State::KnownRate(c) => c.in_startup(),
            State::Xcp(c) => c.in_startup(),
            State::Fixed(_) => false,
        }
    }

    /// Rate at which to pace, payload bits per second; `None`: do not pace (no RTT known yet, or
    /// the egress queue is the clock).
    #[must_use]
    pub fn pacing_rate_bps(&self, srtt: Duration) -> Option<u64> {
        match &self.0 {
            State::LossBased(c) => c.pacing_rate_bps(srtt),
            State::Bbr(c) => c.pacing_rate_bps(),
            State::CubicBbr(c) => c.pacing_rate_bps(srtt),
            State::KnownRate(c) => c.pacing_rate_bps(srtt),
            State::Xcp(c) => c.pacing_rate_bps(),
            State::Fixed(c) => c.rate_bps(),
        }
    }

    /// [`Kind::KnownRate`]: the link carries so much payload from now on, bits per second.
    /// `watched`: less than is said, and all that is sent into it is looked at. The others go by
    /// what arrives, or by the queue of the link.
    pub fn set_link_rate(&mut self, payload_bps: u64, watched: bool) {
        if let State::KnownRate(c) = &mut self.0 {
            c.set_link_rate(payload_bps, watched);
        }
    }

    /// [`Kind::KnownRate`]: the path is another one from now on, with another delay and another
    /// rate. What was known is a first guess.
    pub fn begin_phase(&mut self) {
        if let State::KnownRate(c) = &mut self.0 {
            c.begin_phase();
        }
    }

    /// A round trip takes so long there at least, by what has been seen of it so far.
    pub fn settle_phase(&mut self, now: Instant, min_rtt: Duration) {
        match &mut self.0 {
            State::KnownRate(c) => c.settle_phase(now, min_rtt),
            State::CubicBbr(c) => c.settle_phase(now, min_rtt),
            State::Bbr(c) => c.settle_phase(now, min_rtt),
            State::LossBased(_) | State::Xcp(_) | State::Fixed(_) => {}
        }
    }

    /// [`Kind::KnownRate`]: what lies behind the link has taken what came before, so this much more
    /// of the initial window may leave at once, bytes.
    pub fn trust_path(&mut self, bytes: u64) {
        if let State::KnownRate(c) = &mut self.0 {
            c.trust_path(bytes);
        }
    }

    /// [`Kind::Xcp`]: packets leave that are alike, with so much payload together, and
    /// `wants_more`: more than is allowed. Returns what each of them says.
    pub fn stamp(
        &mut self,
        now: Instant,
        (size, payload_bytes): (WireSize, u32),
        wants_more: bool,
    ) -> Option<XcpFields> {
        match &mut self.0 {
            State::Xcp(c) => Some(c.stamp(now, (size, payload_bytes), wants_more)),
            _ => None,
        }
    }

    /// [`Kind::Xcp`]: what routers have left of its wishes has changed by so much since this was
    /// told last, bytes a second.
    pub fn hear_routers(&mut self, change_bytes_per_s: i32) {
        if let State::Xcp(c) = &mut self.0 {
            c.hear(change_bytes_per_s);
        }
    }

    /// [`Kind::Xcp`]: the gateway at the other end has reported what has come in of all flows to
    /// it.
    pub fn hear_report(&mut self, reported: Reported) {
        if let State::Xcp(c) = &mut self.0 {
            c.hear_report(reported);
        }
    }

    /// [`Kind::Xcp`]: what has become of the trust in routers since the last time.
    pub fn take_news(&mut self) -> Option<News> {
        if let State::Xcp(c) = &mut self.0 { c.take_news() } else { None }
    }

    /// [`Kind::Xcp`]: why routers are not believed, so that BBR governs.
    #[must_use]
    pub fn doubt(&self) -> Option<Doubt> {
        if let State::Xcp(c) = &self.0 { c.doubt() } else { None }
    }

    /// [`Kind::Xcp`]: so many flows to the same gateway share this window, in bytes of packets, and
    /// the queue spaces what leaves; `is_news`: routers have spoken to one of them since this was
    /// said last.
    pub fn share(&mut self, window_bytes: u64, flows: u32, is_news: bool) {
        if let State::Xcp(c) = &mut self.0 {
            c.share(window_bytes, flows, is_news);
        }
    }

    /// [`Kind::Xcp`]: it shares nothing any more, and goes on with its part. For who shares nothing
    /// nothing changes. `why`: another one has found out that routers are not to be
    /// believed.
    pub fn part(&mut self, why: Option<Doubt>) {
        if let State::Xcp(c) = &mut self.0 {
            c.part(why);
        }
    }

    /// [`Kind::Xcp`]: routers are asked, and answers are of use.
    #[must_use]
    pub fn asks_routers(&self) -> bool {
        matches!(&self.0, State::Xcp(c) if c.asks())
    }

    /// [`Kind::Xcp`]: it shares no longer because routers are not to be believed: why, and for how
    /// many round trips. It is told once.
    pub fn take_parted(&mut self) -> Option<(Doubt, u32)> {
        if let State::Xcp(c) = &mut self.0 { c.take_parted() } else { None }
    }

    /// No window above so many bytes from now on.
    pub fn set_window_limit(&mut self, bytes: u64) {
        match &mut self.0 {
            State::LossBased(c) => c.set_window_limit(bytes),
            State::Bbr(c) => c.set_window_limit(bytes),
            State::CubicBbr(c) => c.set_window_limit(bytes),
            State::KnownRate(c) => c.set_window_limit(bytes),
            State::Xcp(c) => c.set_window_limit(bytes),
            State::Fixed(c) => c.set_window_limit(bytes),
        }
    }

    /// In fast recovery PRR (RFC 9937) says what may be sent. Otherwise it is the window, as ever.
    #[must_use]
    pub fn uses_prr(&self) -> bool {
        matches!(self.0, State::LossBased(_))
    }

    /// As long as no more than so many bytes are under way, nothing is paced.
    #[must_use]
    pub fn unpaced_bytes(&self) -> u64 {
        match &self.0 {
            State::CubicBbr(c) => c.unpaced_bytes(),
            State::KnownRate(c) => c.unpaced_bytes(),
            State::LossBased(_) | State::Bbr(_) | State::Xcp(_) | State::Fixed(_) => 0,
        }
    }

    /// Pacing is a part of the algorithm, not a courtesy: it is paced however short the RTT.
    #[must_use]
    pub fn relies_on_pacing(&self) -> bool {
        match &self.0 {
            State::CubicBbr(c) => c.relies_on_pacing(),
            State::KnownRate(c) => c.relies_on_pacing(),
            State::Bbr(_) | State::Xcp(_) | State::Fixed(_) => true,
            State::LossBased(_) => false,
        }
    }

    /// [`Self::on_lost`] means something to it.
    #[must_use]
    pub fn wants_losses(&self) -> bool {
        !matches!(self.0, State::LossBased(_) | State::Fixed(_))
    }

    /// It holds back on purpose: what is sent now counts as limited by the source (BBR in
    /// ProbeRTT).
    #[must_use]
    pub fn holds_back(&self) -> bool {
        match &self.0 {
            State::Bbr(c) => c.is_probing_rtt(),
            State::Xcp(c) => c.is_probing_rtt(),
            // Beside CUBIC, and behind a link of known rate, BBR keeps the path full meanwhile.
            State::CubicBbr(_) | State::KnownRate(_) => false,
            State::LossBased(_) | State::Fixed(_) => false,
        }
    }

    /// On a link of known rate what is idle of it may be used for these copies, and by XCP what is
    /// not used of the allowance.
    #[must_use]
    pub fn copies(&self) -> Copies {
        match &self.0 {
            State::Fixed(c) if c.kind == Kind::FixedRate => Copies::All,
            State::KnownRate(c) => c.copies(),
            State::Xcp(c) => c.copies(),
            State::LossBased(_) | State::Bbr(_) | State::CubicBbr(_) | State::Fixed(_) => Copies::None,
        }
    }

    /// What [`Self::said`] says of a connection that has found less room than its link has.
    pub const GIVEN_WAY: &str = "known-rate: bbr, less room than the link has";

    /// The algorithm, for people; where another one leaves the field to BBR, why.
    #[must_use]
    pub fn said(&self) -> &'static str {
        match self.doubt() {
            None if matches!(&self.0, State::KnownRate(c) if c.has_given_way()) => Self::GIVEN_WAY,
            None => self.kind().name(),
            Some(Doubt::Silent) => "xcp: bbr, no router speaks",
            Some(Doubt::Marked) => "xcp: bbr, a queue marks packets",
            Some(Doubt::Overrun) => "xcp: bbr, a queue elsewhere overflows",
            Some(Doubt::Contradicted) => "xcp: bbr, routers give twice what arrives",
            Some(Doubt::Absurd) => "xcp: bbr, routers take more than any queue could",
            Some(Doubt::Starved) => "xcp: bbr, routers leave nothing",
        }
    }

    /// The algorithm.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match &self.0 {
            State::LossBased(c) => c.kind(),
            State::Bbr(_) => Kind::Bbr,
            State::CubicBbr(_) => Kind::CubicBbr,
            State::KnownRate(_) => Kind::KnownRate,
            State::Xcp(_) => Kind::Xcp,
            State::Fixed(c) => c.kind,
        }
    }
}
