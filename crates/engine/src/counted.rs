//! What a flow has been counted with in the sums over all flows.

use crate::limited_by::Held;
use crate::net::Way;
use crate::side::{Pair, Side};
use crate::status::Load;

/// How a flow is treated, for counting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Split,
    Draining,
    Dormant,
    Closed,
}

/// What a flow has been counted with.
#[derive(Debug, Default)]
pub struct Counted {
    pub kind: Option<Kind>,
    pub with_peer: bool,
    /// Of flows with relays.
    pub work: Option<Box<Work>>,
    /// It stands in the list of those that have changed.
    pub waits: bool,
}

/// What a flow with relays adds to the sums.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Whose data its busier direction carries, and what holds that.
    pub held: (Side, Held),
    /// Towards each host: the way that it leaves, and what.
    pub legs: Pair<(Way, Load)>,
    pub memory: FlowMemory,
}

/// Memory of split flows beside their records and the pool, bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlowMemory {
    /// Both relays.
    pub relays: u64,
    /// What is known of segments under way.
    pub boards: u64,
    /// Lists of blocks.
    pub lists: u64,
}

impl Counted {
    /// That the flow has changed is known already: [`Census::note`] has nothing to do. One that was
    /// `split` and is no longer has something to give back.
    #[must_use]
    pub const fn is_noted(&self, split: bool) -> bool {
        self.waits && (split || self.work.is_none())
    }
}
