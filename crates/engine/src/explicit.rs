//! Explicit control between gateways (XCP): segments say how fast they are sent and wish for more,
//! routers on the way lower the wishes, and acknowledgements bring back what was left of them.
//!
//! Only what a gateway says counts, and only to one is anything said: hosts know nothing of it.

use farlink_wire::xcp::{XCP_DATA_BYTES, XCP_SUM_BYTES, XcpFields};
use farlink_wire::{Instant, PacketBuf, SegmentHeader, TcpSegment, WireSize};

use crate::leg::Leg;
use crate::link::Link;
use crate::peer::Capability;
use crate::sender::{Plan, Sender, Supply};
use crate::side::Side;
use crate::split::Split;

impl Leg {
    /// Segments to it say how fast they are sent: the gateway there tells what comes of it.
    #[must_use]
    pub fn is_explicit(&self) -> bool {
        self.by_routers && self.peer.hello().is_some_and(|hello| hello.can(Capability::Xcp))
    }

    /// Bytes of options that this takes in segments of data.
    #[must_use]
    pub fn explicit_bytes(&self) -> u32 {
        if self.is_explicit() { XCP_DATA_BYTES as u32 } else { 0 }
    }

    /// Its packets leave over this link from now on.
    pub fn leave_over(&mut self, link: Option<&Link>) {
        self.by_routers = link.is_some_and(Link::is_controlled_by_routers);
    }
}

/// What a segment says of XCP, and what it takes of the options.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Said {
    /// It says how fast it is sent.
    pub fields: bool,
    /// What has come of the wishes of the gateway that it goes to.
    pub sum: Option<u32>,
}

impl Said {
    /// Bytes of options.
    pub const fn bytes(self) -> usize {
        let fields = if self.fields { XCP_DATA_BYTES } else { 0 };
        fields + self.sum_bytes()
    }

    /// Of them, those that segments of data have no room kept for.
    pub const fn sum_bytes(self) -> usize {
        if self.sum.is_some() { XCP_SUM_BYTES } else { 0 }
    }
}

impl Split<'_> {
    /// What a segment to a host says: with this plan, or as an acknowledgement alone.
    pub(crate) fn says_explicitly(&self, to: Side, plan: Option<&Plan>) -> Said {
        let leg = self.legs.get(to);
        if !leg.is_explicit() {
            return Said::default();
        }
        let wishes = &self.relays.get(to).rx.wishes();
        let is_data = plan.is_some_and(|p| p.len > 0);
        let sum = wishes.sum().filter(|_| leg.peer.is_speaking() && (!is_data || wishes.are_untold()));
        Said { fields: is_data, sum }
    }

    /// What the gateway on a leg says with a segment that counts.
    pub(crate) fn hear_explicitly(&mut self, from: Side, s: &TcpSegment, packet: &PacketBuf) {
        if !self.legs.get(from).peer.is_speaking() {
            return;
        }
        if let Some(said) = &s.options.xcp {
            let packets = WireSize::of(0, s.payload_len, &packet.offload).packets;
            self.relays.get_mut(from).rx.wishes_mut().hear(packets, said);
        }
        if let Some(sum) = s.options.xcp_sum {
            self.relays.get_mut(from.other()).tx.hear_sum(sum);
        }
    }
}

impl Sender {
    /// What the segments of a plan say, which leave under this header and are cut at `mss`.
    pub(crate) fn stamp(
        &mut self,
        now: Instant,
        header: &SegmentHeader<'_>,
        (plan, mss): (&Plan, u32),
        supply: &Supply,
    ) -> Option<XcpFields> {
        let with_fields = SegmentHeader { xcp: Some(XcpFields::default()), ..*header };
        let packets = plan.len.div_ceil(mss.max(1)).max(1);
        let headers = u32::try_from(with_fields.header_len()).unwrap_or(u32::MAX);
        let size = WireSize { bytes: headers.saturating_mul(packets).saturating_add(plan.len), packets };
        let wants_more = supply.end.after(plan.seq + plan.len);
        self.stamp_size(now, (size, plan.len), wants_more)
    }
}
