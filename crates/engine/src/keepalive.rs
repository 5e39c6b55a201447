//! A host asks whether the other one lives (RFC 9293 3.8.4): its keepalive goes on, and the link
//! that it goes over is asked as well; or it is answered here, while that is away.

use farlink_wire::{Duration, Instant};

use crate::cx::Cx;
use crate::link::Link;
use crate::relay::Relay;
use crate::side::Side;
use crate::split::Split;

/// A link over which somebody has just been answered is there, and is not asked.
const ANSWERED_LATELY: Duration = Duration::from_secs(5);

impl Split<'_> {
    /// A host that asks whether the other one lives is answered here: the link is away, and the
    /// other one could not answer.
    pub(crate) fn answers_for(&self, cx: &Cx<'_>, host: Side) -> bool {
        self.outage_ends_at(cx.config, cx.links, host).is_some_and(|end| cx.now < end)
    }

    /// A host's keepalive goes on: what the other one says next is its answer. The gateway at the
    /// other end of a link is asked as well. It answers whether that host lives or not, so it is
    /// found out that the link is away though nobody has anything else to say.
    pub(crate) fn pass_keepalive(&mut self, cx: &Cx<'_>, from: Side) {
        let to = from.other();
        let far = self.legs.get(to);
        let is_unheard = |link: &Link| cx.now.since(link.answered_at()) >= ANSWERED_LATELY;
        let is_asked = far.peer.is_marked() && cx.links.get(far.out).is_some_and(is_unheard);
        let is_asked = is_asked && !self.is_exempt(to) && !self.relays.is_draining();
        let relay = self.relays.get_mut(from);
        relay.note_keepalive(Some(cx.now));
        if is_asked {
            relay.tx.inquire(cx.now);
        }
    }

    /// A keepalive of this host has just gone on, and may still be answered: the gateway before us
    /// asks behind it.
    pub(crate) fn has_just_asked(&self, now: Instant, from: Side) -> bool {
        let relay = self.relays.get(from);
        relay.keepalive_passed.is_some_and(|at| now.since(at) < relay.tx.rto())
    }

    /// A host was asked whether it lives, and neither it nor the gateway before it has said a word
    /// for so long.
    pub(crate) fn miss_word(&mut self, cx: &mut Cx<'_>, to: Side, after: Duration) {
        self.doubt_link(cx, to, after);
        let is_silent = cx.links.get(self.legs.get(to).out).and_then(Link::silent_since).is_some();
        if !is_silent {
            // It is the host's own matter, and the other one's to find out.
            self.relays.get_mut(to.other()).tx.stop_inquiry();
        }
    }
}

impl Relay {
    /// When a keepalive of the source went on; `None`: it has been answered.
    pub(crate) fn note_keepalive(&mut self, passed_at: Option<Instant>) {
        self.keepalive_passed = passed_at;
    }

    /// One went on, and its answer must, too.
    pub(crate) fn waits_for_answer(&self) -> bool {
        self.keepalive_passed.is_some()
    }
}
