//! Whose windows are sent ahead of: hosts behind a declared link that have taken what was.

use farlink_wire::{Instant, SackBlock, SeqNum, TcpSegment};

use crate::config::{Config, SendAhead};
use crate::cx::Cx;
use crate::event::Event;
use crate::leave::{Refusal, Waited};
use crate::leg::Leg;
use crate::link::Links;
use crate::sender::Happened;
use crate::side::Side;
use crate::split::Split;

/// Each host has room for so much, or the link is not what its owner thinks.
const WINDOW_BYTES: u64 = 65_535;

/// Whether the window of the host on this leg is waited for, in a connection of this rule. A
/// gateway shows a window of its own, which is as large as it needs to be.
#[must_use]
pub fn waited(now: Instant, config: &Config, links: &Links, leg: &Leg, rule: usize) -> Waited {
    let Some(link) = links.get(leg.out).filter(|_| !leg.peer.is_speaking()) else {
        return Waited::Elsewhere;
    };
    let of_rule = config.rules.get(rule).and_then(|rule| rule.send_ahead);
    match of_rule.unwrap_or(config.send_ahead) {
        SendAhead::On => Waited::Told,
        SendAhead::Off => Waited::Off,
        // What a host has no room for goes again.
        SendAhead::Auto if link.is_metered() => Waited::Metered,
        // Nor does it help where the link is what is waited for.
        SendAhead::Auto if !link.holds_more_than(WINDOW_BYTES) => Waited::Link,
        SendAhead::Auto if leg.is_direct() => Waited::Round,
        SendAhead::Auto => Waited::Known(link.clients().ahead(now, leg.addr)),
    }
}

impl Split<'_> {
    /// What may leave ahead of the window of this host is said to its sender.
    pub(crate) fn let_leave_ahead(&mut self, cx: &Cx<'_>, to: Side) {
        let waited = match self.binds() {
            true => waited(cx.now, cx.config, cx.links, self.legs.get(to), self.rule),
            false => Waited::Elsewhere,
        };
        self.relays.get_mut(to.other()).tx.leave_ahead(waited.leave(), waited == Waited::Told);
    }

    /// A reset has come that may be the word of a router on the way: one that tracks connections,
    /// and takes what is ahead of a window for its own, or a firewall. A host that answers to
    /// what it does not know says the same. So it is asked, and whoever is not there says it again
    /// when what left ahead can have been answered. Returns whether this one is not believed.
    pub(crate) fn doubts_reset(&mut self, cx: &mut Cx<'_>, from: Side, s: &TcpSegment) -> bool {
        let tx = &mut self.relays.get_mut(from.other()).tx;
        // Who has a connection and ends it acknowledges with that.
        if s.flags.ack() || !tx.may_be_refused(cx.now) {
            return false;
        }
        tx.ask_refusing();
        cx.counters.resets_doubted += 1;
        self.note_refused(cx, from, Refusal::Reset);
        true
    }

    /// What was ahead of its window was refused: the windows of this host are waited for.
    fn note_refused(&mut self, cx: &mut Cx<'_>, from: Side, why: Refusal) {
        let leg = self.legs.get(from);
        let Some(link) = cx.links.get_mut(leg.out) else { return };
        if link.clients_mut().note_refused(cx.now, leg.addr, why) {
            cx.happened(self.legs, Event::Refuses(from, why));
        }
    }

    /// An acknowledgement of a host has come: what it tells of segments that were larger than
    /// others, or were sent ahead of its window, and whether the window has `opened`.
    pub(crate) fn hear_of_room(
        &mut self,
        cx: &mut Cx<'_>,
        from: Side,
        told: (SeqNum, &[SackBlock]),
        (pure, opened, happened): (bool, bool, &Happened),
    ) {
        self.hear_of_oversize(cx, from, told, (pure, happened));
        let tx = &mut self.relays.get_mut(from.other()).tx;
        if opened && !happened.progress {
            tx.repeat_refused(cx.now);
        }
        if happened.progress || happened.lost_bytes > 0 {
            tx.repeat_beyond();
        }
        self.note_ahead(cx, from);
        if happened.progress || happened.delivered_bytes > 0 {
            self.hear_of_marks(cx, from, happened);
        }
    }

    /// What has become of what was sent ahead of the window of a host is remembered.
    pub(crate) fn note_ahead(&mut self, cx: &mut Cx<'_>, from: Side) {
        let leg = self.legs.get(from);
        let tx = &mut self.relays.get_mut(from.other()).tx;
        let (taken_bytes, is_dropped) = (tx.take_taken(), tx.take_dropped());
        if leg.peer.is_speaking() {
            return;
        }
        if is_dropped {
            self.note_refused(cx, from, Refusal::Dropped);
        } else if let Some(link) = cx.links.get_mut(leg.out).filter(|_| taken_bytes > 0) {
            link.clients_mut().note_taken(cx.now, leg.addr, taken_bytes);
        }
    }
}
