//! Whether a connection may be split: room in the table, memory, and whether it takes the place of
//! an old one between the same ports.

use farlink_wire::{Instant, TcpSegment};

use crate::engine::Engine;
use crate::event::{Because, Event};
use crate::flow::Flow;
use crate::flow_id::FlowId;
use crate::net::IfaceId;
use crate::relays::Relays;
use crate::room::SHARE_MIN_BYTES;
use crate::side::{Pair, Side};
use crate::table::Key;
use crate::world::World;

/// What a split flow takes beside the blocks that it holds: record, relays, places in the index,
/// first lists. Bytes.
const FLOW_BYTES: usize = size_of::<Flow>() + size_of::<Relays>() + 1024;

impl Engine {
    /// A new connection may be split: there is time for it, a place, if need be that of the sleeper
    /// that has been silent longest, and memory.
    pub(crate) fn has_room(&self) -> bool {
        let l = &self.config.limits;
        let evictable = l.flows_max > 0 && self.table.oldest_sleeper().is_some();
        !self.short_of_time && (self.table.len() < l.flows_max || evictable) && self.has_memory()
    }

    /// What is short where there is no room.
    pub(crate) fn shortage(&self) -> Event {
        Event::Forwarded(if self.short_of_time { Because::Processor } else { Because::Memory })
    }

    /// The driver's loop was late since then: what comes in now may have waited for it, and not
    /// before a link.
    pub fn note_late(&mut self, since: Instant, now: Instant) {
        self.links.note_late(since, now);
    }

    /// The driver's loop has done nothing since then, although something was due: its process was
    /// stopped, or its clock jumped.
    pub fn note_stood(&mut self, since: Instant, now: Instant) {
        self.links.note_stood(since, now);
    }

    /// Whether packets wait too long for their turn, as only the driver knows. While they do, new
    /// connections are forwarded and sleeping ones stay asleep. Those that are split go on.
    pub fn set_short_of_time(&mut self, is_short: bool) {
        self.short_of_time = is_short;
    }

    /// One flow more may be split, or wake. Half of the memory at most is for the state of split
    /// flows, and a quarter is left free. Blocks count as those in use, or as what flows that hold
    /// data now may always hold, if that is more. Most connections have little to say and take no
    /// more than their state.
    pub(crate) fn has_memory(&self) -> bool {
        let state = (self.split_count + 1).saturating_mul(FLOW_BYTES);
        let blocks =
            (self.busy_count + 1).saturating_mul(SHARE_MIN_BYTES as usize).max(self.pool.used_bytes());
        let all = self.config.limits.pool_bytes;
        state <= all / 2 && state.saturating_add(blocks) <= all / 4 * 3
    }

    /// The state of split flows comes out of the same memory as the blocks that they hold.
    pub(crate) fn share_memory(&mut self) {
        let all = self.config.limits.pool_bytes;
        let state = self.split_count.saturating_mul(FLOW_BYTES).min(all / 2);
        self.pool.set_limit(all - state);
    }

    /// A connection that is about to be split finds a place.
    pub(crate) fn make_place(&mut self, net: &mut dyn World) {
        if self.table.len() >= self.config.limits.flows_max
            && let Some((id, _)) = self.table.oldest_sleeper()
        {
            if let Some(flow) = self.table.get(id) {
                self.happened(&flow.legs.ends(), Event::Evicted, net);
            }
            self.remove(id, net);
        }
    }

    /// A segment between the ports of a flow belongs to a new connection. A SYN begins one where
    /// nothing of the old one is owed; what follows does by its numbers. The old one is kept until
    /// the handshake is complete: whoever guesses a SYN has not ended it, and the first word of a
    /// host that still has it, such as its challenge ACK (RFC 5961 section 4), ends the handshake
    /// here.
    pub(crate) fn is_of_new_connection(
        &mut self,
        key: &Key,
        (id, from): (FlowId, Side),
        from_low: bool,
        s: &TcpSegment,
    ) -> bool {
        if self.draining {
            return false;
        }
        let Some(flow) = self.table.get_mut(id) else { return false };
        if s.flags.syn() && !s.flags.ack() {
            let begins = flow.gives_way(from, s);
            flow.asked_anew |= begins;
            return begins;
        }
        flow.asked_anew && self.syns.has_part_in(key, from_low, s)
    }

    /// The rule of the flow whose place a connection between these ports would take.
    pub(crate) fn rule_of(&self, key: &Key) -> Option<usize> {
        let (id, _) = self.table.find(key, true)?;
        self.table.get(id).and_then(Flow::open_rule)
    }

    /// The handshake of a connection is complete: an old one between the same ports is over, and
    /// forgotten. Returns whether there is none any longer. Not so where bytes of it are owed, or
    /// where one of the hosts has spoken from another side than before (`came_by`): a complete
    /// handshake, too, can be guessed by somebody who sits on one side.
    pub(crate) fn replaces(
        &mut self,
        key: &Key,
        a_is_low: bool,
        came_by: Pair<[IfaceId; 2]>,
        net: &mut dyn World,
    ) -> bool {
        let Some((id, a)) = self.table.find(key, a_is_low) else { return true };
        let Some(flow) = self.table.get(id) else { return true };
        let same = |old: Side, new: [IfaceId; 2]| new == [flow.legs.get(old).came_by; 2];
        let sides = same(a, came_by.a) && same(a.other(), came_by.b);
        let over = flow.is_closed() || (sides && !flow.holds_on());
        if over {
            self.remove(id, net);
        }
        over
    }
}
