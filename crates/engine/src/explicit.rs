//! Explicit control between gateways (XCP): segments say how fast they are sent and wish for more,
//! routers on the way lower the wishes, and acknowledgements bring back what was left of them.
//!
//! Only what a gateway says counts, and only to one is anything said: hosts know nothing of it. It
//! is said in options, or in XCP's own header where that gets through (`shimmed.rs`).

use core::net::IpAddr;

use farlink_cc::News;
use farlink_wire::shim::SHIM_BYTES;
use farlink_wire::xcp::{XCP_DATA_BYTES, XCP_SUM_BYTES, XcpFields};
use farlink_wire::{Instant, PacketBuf, SegmentHeader, TcpSegment, WireSize};

use farlink_xcp::Context;

use crate::ack_policy::AckPolicy;
use crate::cx::Cx;
use crate::event::Event;
use crate::leg::Leg;
use crate::link::Link;
use crate::peer::{Capability, Identity};
use crate::sender::{Feedback, Plan, Purpose, Sender, Supply};
use crate::side::{Pair, Side};
use crate::split::Split;

impl Leg {
    /// Segments to it say how fast they are sent: the gateway there tells what comes of it.
    #[must_use]
    pub fn is_explicit(&self) -> bool {
        self.by_routers && self.peer.hello().is_some_and(|hello| hello.can(Capability::Xcp))
    }

    /// Bytes that this takes in segments of data, whichever form each of them has.
    #[must_use]
    pub fn explicit_bytes(&self) -> u32 {
        match (self.is_explicit(), self.shim_reader()) {
            (false, _) => 0,
            (true, None) => XCP_DATA_BYTES as u32,
            (true, Some(_)) => SHIM_BYTES.max(XCP_DATA_BYTES) as u32,
        }
    }

    /// Its packets leave over this link from now on; they come from that host.
    pub fn leave_over(&mut self, link: Option<&Link>, from: IpAddr) {
        self.is_over_routers = link.is_some_and(Link::is_controlled_by_routers);
        self.by_routers = link.is_some_and(|link| link.is_explicit(from, self.addr));
        self.in_shims = link.is_some_and(|link| link.shims().is_some());
        if let Some(link) = link {
            self.peer.restrict(|hello| link.admits(hello));
        }
    }

    /// Who that gateway is; `None`: nothing is said to it of speeds, or it has no name.
    #[must_use]
    pub fn explicit_peer(&self) -> Option<Identity> {
        let hello = self.peer.hello().filter(|_| self.is_explicit())?;
        Some(hello.identity).filter(|with| *with != Identity::UNKNOWN)
    }
}

/// What a segment says of XCP, and what it takes of the options.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Said {
    /// It says how fast it is sent.
    pub fields: bool,
    /// What has come of the wishes of the gateway that it goes to.
    pub sum: Option<u32>,
    /// That is told with another acknowledgement, soon.
    pub sum_later: bool,
    /// All of it stands in XCP's own header, with this as what has come since the last one.
    pub shim: Option<i32>,
}

impl Said {
    /// Bytes of options.
    pub const fn bytes(self) -> usize {
        let in_option = self.fields && self.shim.is_none();
        let fields = if in_option { XCP_DATA_BYTES } else { 0 };
        fields + self.sum_bytes()
    }

    /// Of them, those that segments of data have no room kept for.
    pub const fn sum_bytes(self) -> usize {
        if self.sum.is_some() { XCP_SUM_BYTES } else { 0 }
    }
}

impl Split<'_> {
    /// What a segment to a host says: with this plan, or as an acknowledgement alone.
    pub(crate) fn says_explicitly(&self, cx: &Cx<'_>, to: Side, plan: Option<&Plan>) -> Said {
        let leg = self.legs.get(to);
        let is_data = plan.is_some_and(|p| p.len > 0);
        let fields = is_data && leg.is_explicit();
        if !leg.peer.speaks(Capability::Xcp) || !leg.is_over_routers {
            return Said { fields, ..Said::default() };
        }
        if let Some(said) = self.says_in_shim(cx, to, plan) {
            return said;
        }
        let inbound = self.relays.get(to);
        let wishes = inbound.rx.wishes();
        let is_told = match self.ack_policy(cx, to) {
            _ if is_data => wishes.are_untold(),
            // Above gaps there are more acknowledgements, and what is held there needs their room:
            // the sum is told as often as without.
            AckPolicy::Gateway(interval) | AckPolicy::Beginning(interval) if inbound.buffer.has_early() => {
                wishes.are_due(cx.now, interval)
            }
            _ => true,
        };
        let sum_later = !is_data && !is_told && wishes.are_untold();
        Said { fields, sum: wishes.sum().filter(|_| is_told), sum_later, shim: None }
    }

    /// What the gateway on a leg says with a segment that counts.
    pub(crate) fn hear_explicitly(
        &mut self,
        cx: &mut Cx<'_>,
        from: Side,
        s: &TcpSegment,
        packet: &PacketBuf,
    ) {
        let leg = self.legs.get(from);
        if !leg.peer.speaks(Capability::Xcp) || !leg.is_over_routers {
            return;
        }
        if let Some(shim) = &s.shim {
            self.hear_shim(cx, from, (s.ack, shim));
            return self.follow_pair(cx, from);
        }
        let wishes = self.relays.get_mut(from).rx.wishes_mut();
        let packets = WireSize::of(0, s.payload_len, &packet.offload).packets;
        match &s.options.xcp {
            Some(said) => wishes.hear(packets, said),
            None if s.payload_len > 0 => wishes.miss(packets),
            None => {}
        }
        if let (Some(sum), true) = (s.options.xcp_sum, leg.is_explicit()) {
            self.hear_routers(cx, from, (s.ack, Feedback::Sum(sum)));
        }
        self.follow_pair(cx, from);
    }
}

/// What is sent to a host goes by what routers say from now on, or no longer.
pub(crate) fn tell_trust(cx: &mut Cx<'_>, legs: &Pair<Leg>, tx: &mut Sender, to: Side) {
    if let Some(news) = tx.take_news() {
        cx.happened(
            legs,
            match news {
                News::Believed => Event::Explicit(to),
                News::Doubted(why) => Event::Doubted(to, why),
            },
        );
    }
}

impl Sender {
    /// What the segments of a plan say, which leave under this header and are cut at `mss`.
    pub(crate) fn stamp(
        &mut self,
        now: Instant,
        (header, said): (&SegmentHeader<'_>, Said),
        (plan, mss): (&Plan, u32),
        supply: &Supply,
        context: Option<&mut Context>,
    ) -> Option<XcpFields> {
        let with_fields = SegmentHeader { xcp: Some(XcpFields::default()), ..*header };
        let packets = plan.len.div_ceil(mss.max(1)).max(1);
        let headers =
            if said.shim.is_some() { header.header_len() + SHIM_BYTES } else { with_fields.header_len() };
        let headers = u32::try_from(headers).unwrap_or(u32::MAX);
        let size = WireSize { bytes: headers.saturating_mul(packets).saturating_add(plan.len), packets };
        // A copy is of use only while there is nothing more to send.
        let is_copy = plan.purpose == Purpose::Early;
        let wants_more = !is_copy && supply.end.after(plan.seq + plan.len);
        self.stamp_size(now, (size, plan.len), wants_more, context)
    }
}
