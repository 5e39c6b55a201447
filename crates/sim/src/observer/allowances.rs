//! What gateways may do in a run that they may not do in others.

use farlink_wire::Duration;

use crate::truth::Conn;

/// What is allowed in a run.
#[derive(Clone, Debug, Default)]
pub struct Allowances {
    /// Gateways may give up custody (a path is gone for good, a drain is bounded).
    pub abandonment: bool,
    /// Flows of hosts that do not scale windows may depend on their gateways: custody is not
    /// bounded by the hosts' windows.
    pub pinned: bool,
    /// Bytes that one direction of a flow may hold in one gateway.
    pub relay_bytes: u64,
    /// Gateways on the path.
    pub gateways: u64,
    /// Gateways whose custody is bounded together, if there are no more than two and they hear each
    /// other: how many there are.
    pub gateways_in_touch: Option<usize>,
    /// A flow that was silent for so long may have fallen asleep: then the hosts' own windows count
    /// again.
    pub dormant_after: Duration,
    /// Some link asks for segments that are larger than a packet.
    pub large: bool,
    /// Some rule has clients told so large an MSS.
    pub raised_mss: Option<u16>,
}

impl Allowances {
    /// A flow that gateways may hold more of than its hosts' windows.
    pub(super) fn may_pin(&self, conn: &Conn) -> bool {
        let scales = conn.sides.iter().all(|s| s.as_ref().is_some_and(|s| s.options.window_scale.is_some()));
        self.pinned && !scales
    }
}
