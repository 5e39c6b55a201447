//! What flows to the same gateway have in common where routers say how fast (XCP): one allowance,
//! which is the link's (`link/pairs.rs`), and one place in the queue, which spaces what leaves.

use farlink_wire::xcp::XcpFields;
use farlink_wire::{SegmentHeader, SeqNum};

use crate::cx::Cx;
use crate::explicit::Said;
use crate::leg::Leg;
use crate::peer::Arrived;
use crate::sender::{Feedback, Happened, Plan, Sender, Supply};
use crate::side::Side;
use crate::split::Split;

/// What the segments of a plan say of their speed, to this leg and under this header, cut at `mss`.
pub fn stamp(
    cx: &mut Cx<'_>,
    (to, tx): (&Leg, &mut Sender),
    header: (&SegmentHeader<'_>, Said),
    plan: (&Plan, u32),
    supply: &Supply,
) -> Option<XcpFields> {
    let rtt = tx.rtt().srtt().or(to.srtt()).or(to.handshake_rtt());
    let context = cx.links.begin_context(cx.now, to, tx.mss(), rtt);
    tx.stamp(cx.now, header, plan, supply, context)
}

impl Split<'_> {
    /// What is sent to a host goes by the allowance that is shared, as it is now.
    pub(crate) fn follow_pair(&mut self, cx: &mut Cx<'_>, to: Side) {
        let context = cx.links.context_mut(self.legs.get(to));
        self.relays.get_mut(to.other()).tx.follow_pair(cx.now, context);
    }

    /// A gateway has told what routers have left of the wishes of this flow.
    pub(super) fn hear_routers(&mut self, cx: &mut Cx<'_>, from: Side, told: (SeqNum, Feedback)) {
        let leg = self.legs.get(from);
        let with = leg.explicit_peer().unwrap_or_default();
        let context = cx.links.context_mut(leg);
        self.relays.get_mut(from.other()).tx.hear_routers(cx.now, with, told, context);
    }

    /// What the acknowledgement of a host has told is of use to all that share with this flow.
    /// `arrived`: what the gateway there has counted.
    pub(crate) fn tell_pair(
        &mut self,
        cx: &mut Cx<'_>,
        from: Side,
        happened: &Happened,
        arrived: Option<&Arrived>,
    ) {
        let leg = self.legs.get(from);
        if let Some(context) = cx.links.context_mut(leg)
            && let Some(rtt) = happened.rtt.filter(|rtt| !rtt.is_zero())
        {
            context.on_rtt(cx.now, rtt);
        }
        if let Some(arrived) = arrived {
            cx.links.hear_report(cx.now, leg, arrived);
        }
        if let Some(reported) = cx.links.reported(leg) {
            self.relays.get_mut(from.other()).tx.hear_report(reported);
        }
    }
}
