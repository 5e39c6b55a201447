//! When a gateway advertises what it knows of a link to the one at its other end, and hears what
//! that one knows (`link/advertised.rs`).

use crate::cx::Cx;
use crate::leg::Leg;
use crate::peer::Advert;
use crate::side::Side;
use crate::split::Split;

impl Split<'_> {
    /// What the gateway there is to hear of the link to it. What is held above a gap goes before.
    /// It need not have been heard yet: a client's request takes it along, unless that costs time.
    pub(crate) fn advert_to_tell(&self, cx: &Cx<'_>, to: Side, pure: bool) -> Option<Advert> {
        let (leg, inbound) = (self.legs.get(to), self.relays.get(to));
        let hello = leg.peer.hello().filter(|hello| hello.reads_frames())?;
        let link = cx.links.get(leg.out).filter(|link| pure || !link.are_adverts_dear())?;
        link.advert_due(cx.now, hello.identity).filter(|_| !inbound.buffer.has_early())
    }

    /// The gateway there has said what it knows of the link, or not, and may have to hear what is
    /// known here. What it says counts for the link that it is heard over.
    pub(crate) fn exchange_adverts(&mut self, cx: &mut Cx<'_>, from: Side, advert: Option<Advert>) {
        let Leg { came_by, out, peer, .. } = *self.legs.get(from);
        let Some(hello) = peer.hello().filter(|hello| hello.reads_frames()) else { return };
        if let Some((advert, link)) = advert.zip(cx.links.at_mut(came_by))
            && link.believes(hello.identity)
        {
            link.hear_advert(cx.now, hello.identity, advert);
        }
        let now = cx.now;
        if self.binds() && cx.links.get_mut(out).is_some_and(|link| link.claim_advert(now, hello.identity)) {
            // Full segments of data have no room for it.
            self.relays.get_mut(from).rx.answer_gateway();
        }
    }
}
