//! Which way the packets of a connection leave, and what follows when that is another one than
//! before.

use crate::cx::Cx;
use crate::hosts::look_up;
use crate::link::Link;
use crate::net::Way;
use crate::side::Side;
use crate::split::Split;

impl Split<'_> {
    /// Looks up which way packets to each host leave, and how large they may be.
    pub fn find_routes(&mut self, cx: &mut Cx<'_>) {
        for to in [Side::A, Side::B] {
            if let Some(before) = look_up(cx, self.legs, to) {
                self.change_way(cx, to, before);
            }
        }
    }

    /// Packets to a host leave another way than before. A leg that leads into a declared link, or
    /// out of one, is governed anew: what is right on the operator's own link is not on anybody
    /// else's network, and what the old way has taught says nothing about the new one. Between two
    /// ordinary interfaces it goes on, as a host's connection would.
    fn change_way(&mut self, cx: &Cx<'_>, to: Side, before: Way) {
        let from = to.other();
        let out = self.legs.get(to).out;
        let link = cx.links.get(out);
        if link.is_some() || cx.links.get(before).is_some() {
            self.legs.get_mut(to).remember_rtt(None);
            let config = self.controller_config(cx.config, cx.links, from);
            let paced_over = self.hosts().start(cx.config, cx.links, to).paced_over;
            let declared = link.and_then(Link::rtt_in_force);
            self.relays.get_mut(from).tx.change_way(cx.now, &config, paced_over, declared);
        }
        let is_silent = self.relays.get(from).is_silent();
        if (cx.links.is_away(before) || is_silent) && !cx.links.is_away(out) {
            // What was under way the old way is lost, or will come late.
            self.restart_legs(cx.now, out, true, None);
        }
    }

    /// The link towards a host is known to be down: no progress there means nothing.
    #[must_use]
    pub fn is_down(&self, cx: &Cx<'_>, to: Side) -> bool {
        cx.links.is_away(self.legs.get(to).out)
    }
}
