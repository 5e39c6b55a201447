//! A forwarded packet that waits in the queue of a link.

use farlink_egress::Class;
use farlink_engine::net::Via;
use farlink_wire::{Instant, PacketBuf};

use crate::kinds::Kind;

/// A forwarded packet in an egress queue.
pub struct Waiting {
    /// The packet.
    pub packet: PacketBuf,
    /// How it came in, or packets of its source do.
    pub via: Via,
    /// Since when it waits.
    pub since: Instant,
    /// Its connection, as far as queues go.
    pub hash: u64,
    /// Its class.
    pub class: Class,
    /// What it is.
    pub kind: Kind,
    /// It waits in a flow with packets of other connections.
    pub is_shared: bool,
}
