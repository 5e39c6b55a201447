//! The name of a flow.

/// Bits of a flow's generation: beside its slot, all that is told of it to queues that know nothing
/// of flows fits in 63.
pub(crate) const GENERATION_MASK: u32 = 0x0fff_ffff;

/// Names a flow while it lives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FlowId {
    /// Slot in the table.
    pub slot: u32,
    /// Tells users of the same slot apart.
    pub generation: u32,
}
