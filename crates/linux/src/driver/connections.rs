//! The log of connections: what becomes of each, and with more detail what happens to it. It is off
//! unless the log's filter asks for it: `connections=debug`, or `connections=trace`.

use farlink_gateway::{Ends, Event, Side};

/// The log's filter calls these lines so.
const TARGET: &str = "connections";

/// A line for those who want it.
pub(super) fn tell(ends: &Ends, what: Event) {
    let Ends { client, server } = ends;
    let name = what.name();
    if let Some(side) = what.side() {
        let host = if side == Side::A { "client" } else { "server" };
        tracing::trace!(target: TARGET, %client, %server, host, "{name}");
    } else if let Some(carried) = what.carried() {
        let (to_server_bytes, to_client_bytes) = (carried.to_server_bytes, carried.to_client_bytes);
        tracing::debug!(target: TARGET, %client, %server, to_server_bytes, to_client_bytes, "{name}");
    } else if what == Event::Bypassed {
        // It may come with every packet.
        tracing::trace!(target: TARGET, %client, %server, "{name}");
    } else {
        tracing::debug!(target: TARGET, %client, %server, "{name}");
    }
}
