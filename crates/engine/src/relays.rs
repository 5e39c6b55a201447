//! What a connection has only while it is split. An idle one does without, and is small.

use farlink_wire::{Instant, SeqNum};

use crate::flow::Relay;
use crate::side::Side;

/// What a connection has only while it is split: the two relays, and what concerns both.
#[derive(Debug)]
pub struct Relays {
    /// Of what host A sends.
    pub a: Relay,
    /// Of what host B sends.
    pub b: Relay,
    /// A host asks for a new connection on this 4-tuple, while bytes of the old one are owed.
    pub new_syn: Option<NewSyn>,
    /// Draining is to begin, at this time at the latest.
    pub lets_go_until: Option<Instant>,
    /// When to look whether a source can be shown more.
    pub room_at: Option<Instant>,
}

/// SYNs for a new connection while the old one holds something.
#[derive(Clone, Copy, Debug)]
pub struct NewSyn {
    /// Who asks.
    pub from: Side,
    /// Its initial sequence number.
    pub isn: SeqNum,
    /// How often, repetitions in haste not counted.
    pub count: u8,
    /// When it was counted last.
    pub at: Instant,
}

impl Relays {
    /// The one that carries what a host sends.
    #[must_use]
    pub const fn get(&self, from: Side) -> &Relay {
        match from {
            Side::A => &self.a,
            Side::B => &self.b,
        }
    }
    /// The same, to change.
    pub const fn get_mut(&mut self, from: Side) -> &mut Relay {
        match from {
            Side::A => &mut self.a,
            Side::B => &mut self.b,
        }
    }
    /// The one that carries what a host sends, and the other one, both to change.
    pub const fn both_mut(&mut self, from: Side) -> (&mut Relay, &mut Relay) {
        match from {
            Side::A => (&mut self.a, &mut self.b),
            Side::B => (&mut self.b, &mut self.a),
        }
    }
}
