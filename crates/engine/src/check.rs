//! What holds of a flow after each event, as far as its own state shows it: the invariants of
//! ARCHITECTURE.md.
//!
//! Whoever breaks one loses bytes, or waits for ever, much later and elsewhere. So debug builds
//! look after each event, and the sums over all that is held are made now and then.

use farlink_wire::{Instant, SeqNum};

use crate::checked::{Checked, all_hold};
use crate::closed::Closed;
use crate::dormant::Dormant;
use crate::link::Links;
use crate::relay::Relay;
use crate::relays::Relays;
use crate::side::Side;
use crate::split::Split;

impl Split<'_> {
    /// What holds of a split connection. `is_due`: it has a timer; `closely`: of all it holds, too.
    pub fn check(&self, links: &Links, is_due: bool, closely: bool) -> Checked {
        let r = &*self.relays;
        let is_away = |to: Side| links.is_away(self.legs.get(to).out);
        let is_frozen = (r.a.is_frozen(), r.b.is_frozen());
        let is_looked_at = is_due || is_away(Side::A) || is_away(Side::B);
        all_hold(&[
            (r.over().is_none(), "what has been decided is not carried out"),
            (is_frozen == (r.is_draining(), r.is_draining()), "what is taken ends although nothing drains"),
            (is_looked_at, "nothing will ever look at it again"),
        ])?;
        for from in [Side::A, Side::B] {
            let relay = r.get(from);
            relay.check(closely)?;
            self.check_promises(from)?;
            let is_watched = relay.tx.is_watched() || is_away(from.other());
            let are_near =
                relay.has_near_bookmarks(self.legs.get(from.other()), &r.get(from.other()).rx.marks());
            all_hold(&[
                (is_watched, "nothing watches over what is under way"),
                (are_near, "what is remembered of its stream is too far away to be compared"),
            ])?;
        }
        Ok(())
    }

    /// What has been acknowledged to a host (invariants 3 and 7).
    fn check_promises(&self, from: Side) -> Checked {
        let relay = self.relays.get(from);
        let acked = relay.rx.last_ack_sent();
        let far = relay.far_acked();
        // A gateway counts for itself, and one that was heard may have been shown more than a host.
        let most = self.ack_reach(from).filter(|_| !self.legs.get(from).peer.is_marked());
        let within = |at: SeqNum, most: SeqNum| at.before_eq(relay.with_beyond(most));
        all_hold(&[
            (within(acked, relay.rcv_nxt()), "acknowledged, and neither held nor at its destination"),
            (
                most.is_none_or(|most| within(acked, relay.debt().or_more(most))),
                "custody reaches further than the largest window shown",
            ),
            (within(far, relay.tx.snd_nxt()), "the far host has what was never sent"),
        ])
    }
}

impl Relay {
    /// What holds of one direction.
    fn check(&self, closely: bool) -> Checked {
        let (held, fin, una) = (&self.buffer, self.rx.fin_at(), self.tx.snd_una());
        let promised = self.frozen_at().unwrap_or(self.rx.edge()).max(self.rx.edge()).max(una);
        all_hold(&[
            (held.base() == una.min(held.end()), "held is not what the destination lacks"),
            (fin.is_none_or(|fin| fin == held.end()), "the stream ends elsewhere than what is held"),
            (fin.is_none() || !held.has_early(), "something waits behind the end of the stream"),
            (held.highest().before_eq(promised), "held is more than was promised to be taken"),
        ])?;
        held.check(closely)?;
        self.tx.check(&self.supply(), closely)
    }
}

impl Relays {
    /// The sums that the engine keeps of it are right: it holds data, and stands in the journal.
    pub fn check_counted(&self, busy: bool, journaled: bool, binds: bool) -> Checked {
        all_hold(&[
            (busy == self.is_busy(), "it counts wrongly among those that hold data"),
            (journaled == (binds && self.holds()), "its custody stands wrongly in the journal"),
        ])
    }
}

impl Dormant {
    /// What holds of a sleeper.
    pub fn check(&self) -> Checked {
        all_hold(&[
            (self.acked.a.before_eq(self.sent.b), "a sleeper has acknowledged what was never sent"),
            (self.acked.b.before_eq(self.sent.a), "a sleeper has acknowledged what was never sent"),
        ])
    }
}

impl Closed {
    /// What holds of a tombstone.
    pub fn check(&self, now: Instant) -> Checked {
        all_hold(&[(self.until > now, "a tombstone outlives its time")])
    }
}
