//! Which controller governs a leg, by what is known of its other end.

use farlink_cc as cc;
use farlink_wire::{Instant, SeqNum};

use crate::config::{Config, Limits};
use crate::cx::Cx;
use crate::hosts::Hosts;
use crate::link::{Clock, Link, Links, RateSource, UNKNOWN_RATE_CC};
use crate::side::Side;
use crate::split::Split;

impl Split<'_> {
    /// A gateway has been heard on the leg towards a host, or is silent now: on a link of known
    /// rate another controller may be right.
    pub(crate) fn govern_by_gateway(&mut self, cx: &Cx<'_>, to: Side) {
        let from = to.other();
        let tx = &self.relays.get(from).tx;
        let (kind, delivered) = (tx.cc().kind(), tx.delivered_bytes());
        let depends = kind.goes_by_link_rate() || self.legs.get(to).by_routers;
        if !depends || kind == self.hosts().controller_kind(cx.config, cx.links, (to, delivered)) {
            return;
        }
        self.change_controller(cx.now, cx.config, cx.links, to);
    }

    /// The configuration, or what is known of the link, asks for another controller of what is sent
    /// towards a host.
    pub(crate) fn change_controller(&mut self, now: Instant, config: &Config, links: &Links, to: Side) {
        let out = self.legs.get(to).out;
        let (from, leg) = self.legs.both_mut(to.other());
        leg.leave_over(links.get(out), from.addr);
        let config = self.controller_config(config, links, to.other());
        self.relays.get_mut(to.other()).tx.change_cc(now, &config);
    }

    /// How the data of `from` is governed on its way to the other host, from here on.
    pub(crate) fn controller_config(&self, config: &Config, links: &Links, from: Side) -> cc::Config {
        let tx = &self.relays.get(from).tx;
        self.hosts().controller_config(config, links, from, tx.snd_nxt(), tx.delivered_bytes())
    }

    /// The link towards a host carries another rate than before: a controller that goes by it
    /// follows.
    pub(crate) fn follow_link_rate(&mut self, links: &Links, to: Side) {
        let from = to.other();
        let mss = self.relays.get(from).tx.mss();
        let Some(link) = links.get(self.legs.get(to).out) else { return };
        let watched = matches!(link.pace().source(), RateSource::Corrected { .. });
        if let Some(rate) = self.hosts().payload_bps(link, to, mss) {
            self.relays.get_mut(from).tx.set_link_rate(rate, watched);
        }
    }
}

impl Hosts<'_> {
    /// The controller of what is sent towards a host.
    ///
    /// On a link of known rate no congestion control is needed where the leg ends with the link.
    /// That is so where a gateway is heard at its other end, or has answered the handshake and
    /// nothing has been acknowledged since by anybody. Else the leg leads on through networks of
    /// others.
    pub(crate) fn controller_kind(
        &self,
        config: &Config,
        links: &Links,
        (to, delivered_bytes): (Side, u64),
    ) -> cc::Kind {
        let leg = self.legs.get(to);
        let clock = links.get(leg.out).map_or(Clock::Connections(config.ordinary.cc), |l| l.pace().clock());
        let kind = clock.controller();
        if kind == cc::Kind::Xcp && !leg.is_explicit() {
            return UNKNOWN_RATE_CC;
        }
        if clock != Clock::Queue || leg.peer.is_heard() {
            return kind;
        }
        if leg.peer.is_marked() && delivered_bytes == 0 { kind } else { cc::Kind::KnownRate }
    }

    /// How the data of `from` is governed on its way to the other host.
    pub(crate) fn controller_config(
        &self,
        config: &Config,
        links: &Links,
        from: Side,
        next: SeqNum,
        delivered_bytes: u64,
    ) -> cc::Config {
        let to = from.other();
        let start = self.start(config, links, to);
        let dst = self.legs.get(to);
        let link = links.get(dst.out);
        let kind = self.controller_kind(config, links, (to, delivered_bytes));
        let (mss, known) = (self.segment_payload(to), kind == cc::Kind::KnownRate);
        let takes_handshake = known || kind == cc::Kind::Xcp;
        cc::Config {
            kind,
            mss,
            initial_window_segments: start.segments,
            fixed_rate_bps: link.filter(|_| known).and_then(|l| self.payload_bps(l, to, mss)),
            window_limit_bytes: Limits::window_bytes(self.relay_limit(config, links, to)),
            unfair_window_bytes: link.map_or(config.ordinary.unfair_window_bytes, Link::unfair_window_bytes),
            handshake_rtt: dst
                .srtt()
                .or(start.paced_over)
                .or(dst.handshake_rtt().filter(|_| takes_handshake)),
            acks_wait: self.acks_wait(links, to),
            selective_acks: self.agreed.sack,
            // Of no use to anybody who guesses it: it only spreads the probes of flows over time.
            seed: config.seed ^ u64::from(next.0),
            hystart: true,
        }
    }

    /// What a link carries of payload in segments of this size towards a host, bits per second.
    pub(crate) fn payload_bps(&self, link: &Link, to: Side, mss: u32) -> Option<u64> {
        let headers = self.ack_bytes(to) + link.overhead_bytes();
        let (mss, packet) = (u128::from(mss), u128::from(mss.saturating_add(headers)));
        let bps = u128::from(link.rate_in_force_bps()?) * mss / packet.max(1);
        Some(u64::try_from(bps).unwrap_or(u64::MAX))
    }
}
