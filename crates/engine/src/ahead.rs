//! Whose windows are sent ahead of: hosts behind a declared link that take all that comes at once.

use farlink_wire::{SackBlock, SeqNum};

use crate::config::SendAhead;
use crate::cx::Cx;
use crate::sender::Happened;
use crate::side::Side;
use crate::split::Split;

impl Split<'_> {
    /// The window of this host is not waited for, while it reads. A gateway shows a window of its
    /// own, which is as large as it needs to be.
    pub(crate) fn may_go_ahead(&self, cx: &Cx<'_>, to: Side) -> bool {
        let leg = self.legs.get(to);
        let Some(link) = cx.links.get(leg.out) else { return false };
        if leg.peer.is_speaking() || !self.binds() {
            return false;
        }
        let of_rule = cx.config.rules.get(self.rule).and_then(|rule| rule.send_ahead);
        match of_rule.unwrap_or(cx.config.send_ahead) {
            SendAhead::On => true,
            SendAhead::Off => false,
            SendAhead::Auto => link.clients().reads(cx.now, leg.addr),
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
        self.note_reading(cx, from);
    }

    /// What an acknowledgement of a host shows of how it reads is remembered.
    fn note_reading(&mut self, cx: &mut Cx<'_>, from: Side) {
        let leg = self.legs.get(from);
        let tx = &mut self.relays.get_mut(from.other()).tx;
        if leg.peer.is_speaking() {
            return;
        }
        if let Some(reads) = tx.take_reading()
            && let Some(link) = cx.links.get_mut(leg.out)
        {
            link.clients_mut().note_reading(cx.now, leg.addr, reads);
        }
    }
}
