//! What a connection has only while it is split. An idle one does without, and is small.

use core::ops::{Deref, DerefMut};

use farlink_wire::{Instant, SeqNum};

use crate::relay::Relay;
use crate::side::{Pair, Side};

/// What a connection has only while it is split: the two relays, and what concerns both.
#[derive(Debug)]
pub struct Relays {
    /// One of what each host sends: a pair with something beside it, and used as one.
    pub both: Pair<Relay>,
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

impl Deref for Relays {
    type Target = Pair<Relay>;

    fn deref(&self) -> &Pair<Relay> {
        &self.both
    }
}

impl DerefMut for Relays {
    fn deref_mut(&mut self) -> &mut Pair<Relay> {
        &mut self.both
    }
}
