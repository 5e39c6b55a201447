//! How a flow is treated, and the moves between the ways: split, draining, dormant, closed.

use farlink_wire::{Instant, SeqNum};

use crate::dormant::Dormant;
use crate::side::{Pair, Side};

/// How a flow is treated. A connection without a flow is simply forwarded.
#[derive(Clone, Copy, Debug)]
pub enum Mode {
    /// Two relays hold and send.
    Split,
    /// Nothing new is taken; custody is delivered, the rest forwarded.
    Draining,
    /// Forwarded; re-split when both directions are seen fully acknowledged.
    Dormant(Dormant),
    /// Gone; answers late segments until the time given.
    Closed(Closed),
}

/// What is remembered of a closed flow.
#[derive(Clone, Copy, Debug)]
pub struct Closed {
    /// Forgotten at this time.
    pub until: Instant,
    /// Per host: the next sequence number expected from it.
    pub next: Pair<SeqNum>,
    /// How far from `next` the numbers of this connection's late segments can be; farther ones belong to another
    /// connection between the same ports, whose handshake went round us.
    pub reach_bytes: u64,
    /// Whose end is by reset: late segments of these hosts are answered with RST, not ACK.
    pub reset: bool,
    /// The host whose own reset ended it.
    pub reset_by: Option<Side>,
    /// It ended asleep: nothing was held, so what comes late is the hosts' own and passes.
    pub held_nothing: bool,
    /// After a crash: when the hosts are asked next for their sequence numbers, and how often still.
    pub ask: Option<(Instant, u8)>,
}

impl Mode {
    /// For people.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Split => "split",
            Self::Draining => "draining",
            Self::Dormant(_) => "dormant",
            Self::Closed(_) => "closed",
        }
    }
}
