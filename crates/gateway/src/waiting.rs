//! A forwarded packet that waits in the queue of a link.

use farlink_egress::Class;
use farlink_engine::net::IfaceId;
use farlink_wire::{Instant, PacketBuf};

use crate::kinds::Kind;

/// A forwarded packet in an egress queue.
pub struct Waiting {
    /// The packet.
    pub packet: PacketBuf,
    /// The interface whose TUN it goes to.
    pub via: IfaceId,
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
