//! What becomes of a packet that a flow has seen.

use farlink_wire::{PacketBuf, Pool};

/// What is to be done with the packet.
#[derive(Debug)]
pub enum Fate {
    /// It goes on as it is (or as it was edited).
    Forward(PacketBuf),
    /// The engine has it, or answers in its stead.
    Taken,
    /// The connection is over or begins anew: the flow is removed, then the packet is handled
    /// without it.
    Forget(PacketBuf),
}

impl Fate {
    /// The engine has it, and needs nothing of it any more.
    pub fn taken(pool: &mut Pool, packet: PacketBuf) -> Self {
        pool.give_back(packet.into_block().0);
        Self::Taken
    }
}
