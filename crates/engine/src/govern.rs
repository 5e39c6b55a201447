//! Which controller governs a leg, by what is known of its other end.

use farlink_cc as cc;

use crate::config::Config;
use crate::cx::Cx;
use crate::flow::Flow;
use crate::link::{Clock, Link, Links};
use crate::side::Side;

impl Flow {
    /// The controller of what is sent towards a host.
    ///
    /// On a link of known rate no congestion control is needed where the leg ends with the link. That is so where a gateway is heard at
    /// its other end, or has answered the handshake and nothing has been acknowledged since by anybody. Else the leg leads on through
    /// networks of others.
    pub(crate) fn controller_kind(&self, config: &Config, links: &Links, to: Side) -> cc::Kind {
        let leg = self.legs.get(to);
        let clock = links.get(leg.out).map_or(Clock::Connections(config.ordinary.cc), |l| l.pace().clock());
        let kind = clock.controller();
        if clock != Clock::Queue || leg.peer.is_heard() {
            return kind;
        }
        let delivered = self.relays.as_ref().map_or(0, |r| r.get(to.other()).tx.delivered_bytes());
        if leg.peer.is_marked() && delivered == 0 { kind } else { cc::Kind::KnownRate }
    }

    /// A gateway has been heard on the leg towards a host, or is silent now: on a link of known rate another controller may be right.
    pub(crate) fn govern_by_gateway(&mut self, cx: &Cx<'_>, to: Side) {
        let from = to.other();
        let Some(tx) = self.relays.as_ref().map(|r| &r.get(from).tx) else { return };
        let (kind, next) = (tx.cc().kind(), tx.snd_nxt);
        if !kind.goes_by_link_rate() || kind == self.controller_kind(cx.config, cx.links, to) {
            return;
        }
        let config = self.controller_config(cx.config, cx.links, from, next);
        if let Some(r) = self.relays.as_mut() {
            r.get_mut(from).tx.change_cc(cx.now, &config);
        }
    }

    /// The link towards a host carries another rate than before: a controller that goes by it follows.
    pub(crate) fn follow_link_rate(&mut self, links: &Links, to: Side) {
        let from = to.other();
        let Some(mss) = self.relays.as_ref().map(|r| r.get(from).tx.mss) else { return };
        let rate = links.get(self.legs.get(to).out).and_then(|link| self.payload_bps(link, to, mss));
        if let (Some(r), Some(rate)) = (self.relays.as_mut(), rate) {
            r.get_mut(from).tx.set_link_rate(rate);
        }
    }

    /// What a link carries of payload in segments of this size towards a host, bits per second.
    pub(crate) fn payload_bps(&self, link: &Link, to: Side, mss: u32) -> Option<u64> {
        let options = if self.agreed.timestamps { 12 } else { 0 };
        let headers = self.legs.get(to).header_bytes() + options + link.overhead_bytes();
        let (mss, packet) = (u128::from(mss), u128::from(mss.saturating_add(headers)));
        let bps = u128::from(link.rate_in_force_bps()?) * mss / packet.max(1);
        Some(u64::try_from(bps).unwrap_or(u64::MAX))
    }
}
