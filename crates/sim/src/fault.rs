//! What can go wrong, and when.

use farlink_channel::ChannelConfig;
use farlink_wire::Duration;

use crate::change::Change;

/// One event that befalls the network.
#[derive(Clone, Debug)]
pub enum Fault {
    /// A node sends what is for a host by another port from now on.
    Route {
        /// The node.
        node: usize,
        /// The destination.
        host: usize,
        /// The port.
        port: usize,
    },
    /// A channel gets other parameters.
    Channel {
        /// The node at its beginning.
        node: usize,
        /// The port at that node.
        port: usize,
        /// The parameters.
        config: Box<ChannelConfig>,
    },
    /// A gateway is told that a carrier came or went.
    LinkState {
        /// The node.
        node: usize,
        /// The port.
        port: usize,
        /// There is a carrier.
        up: bool,
    },
    /// A gateway drains and goes; later a new one starts in its place.
    Drain {
        /// The node.
        node: usize,
        /// Then what is left is abandoned.
        limit: Duration,
        /// From the end of the old one to the start of the new one.
        restart_after: Duration,
    },
    /// A gateway is killed: what it held is lost, its records are not. Later a new one starts in
    /// its place.
    Kill {
        /// The node.
        node: usize,
        /// From the kill to the start of the new one.
        restart_after: Duration,
    },
    /// A gateway is given another configuration.
    Reload {
        /// The node.
        node: usize,
        /// What that says otherwise.
        changes: Vec<Change>,
    },
    /// A gateway's process is stopped, or its machine.
    Standstill {
        /// The node.
        node: usize,
        /// For how long.
        lasts: Duration,
        /// So many packets wait for it; the others are lost.
        keeps: usize,
    },
    /// The streams of a connection go on round the gateways, as soon as nothing of it is under way.
    Jump,
}
