//! Segments that go to a gateway without a mark, as to a host: see [`crate::marks`].

use crate::cx::Cx;
use crate::link::Carrier;
use crate::peer::{Introduction, Peer};
use crate::sender::{Happened, Plan};
use crate::side::Side;
use crate::split::Split;

impl Split<'_> {
    /// The gateway on the leg of this host is none to the next segment. Not where one in custody
    /// mode would hear of more than the far host has: without a mark it is that host's word.
    pub(crate) fn goes_plain(&self, to: Side, plan: Option<&Plan>) -> bool {
        let (peer, relay) = (self.legs.get(to).peer, self.relays.get(to));
        peer.is_marked()
            && relay.rx.marks().is_plain(plan, peer.is_speaking())
            && (!peer.binds() || self.ack_for(to).before_eq(relay.far_acked()))
    }

    /// Such a segment has gone on.
    pub(crate) fn note_plain(&mut self, to: Side, plan: Option<&Plan>) {
        self.relays.get_mut(to).rx.marks_mut().note_plain(plan);
    }

    /// This host acknowledges data.
    pub(crate) fn hear_of_marks(&mut self, cx: &mut Cx<'_>, from: Side, happened: &Happened) {
        let leg = self.legs.get(from);
        let marks = self.relays.get_mut(from).rx.marks_mut();
        let knew = marks.arrive();
        marks.note_acked(happened.original, happened.progress);
        let arrive = marks.arrive() && !knew;
        if arrive
            && leg.peer.is_marked()
            && let Some(link) = cx.links.get_mut(leg.out)
        {
            link.note_arrived(cx.now, Carrier::Data, leg.addr);
        }
    }

    /// A gateway whose marks are dropped on the way there is none from now on. One in custody mode
    /// stays: its source waits for the far host's word, which an acknowledgement from here is not.
    pub(crate) fn unmark(&mut self, cx: &mut Cx<'_>, to: Side) {
        let leg = self.legs.get_mut(to);
        let rx = &mut self.relays.get_mut(to).rx;
        if !leg.peer.is_marked() || leg.peer.binds() || !rx.marks().are_dropped() {
            return;
        }
        leg.peer = Peer::None;
        *rx.introduction_mut() = Introduction::Shut;
        self.take_back(to);
        let leg = self.legs.get(to);
        if let Some(link) = cx.links.get_mut(leg.out) {
            link.note_dropped(cx.now, Carrier::Data, leg.addr);
        }
    }

    /// A gateway was promised more than a host may be, with marks that are not known to have
    /// arrived: to the next segment that was nothing.
    pub(crate) fn take_back(&mut self, to: Side) {
        if let Some(reach) = self.ack_reach(to) {
            self.relays.get_mut(to).rx.take_back(reach);
        }
    }
}
