//! A transfer that begins before those that are timed: one that is under way beside them, or has
//! just ended.

use std::time::Duration;

use crate::scenario::Cell;

/// Params: the size of that transfer, and how long after its beginning the timed ones begin.
const FIRST_BYTES: &str = "first_bytes";
const BEGINS: &str = "begins_s";

/// That transfer.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct First {
    pub bytes: u64,
    /// The timed ones begin so long after it.
    pub lead: Duration,
}

/// The one of a cell, if it has one.
pub(crate) fn of(cell: &Cell) -> Option<First> {
    let bytes = cell.number(FIRST_BYTES, 0);
    let lead = cell.params.get(BEGINS).and_then(serde_json::Value::as_f64).unwrap_or(0.0);
    (bytes > 0).then(|| First { bytes, lead: Duration::from_secs_f64(lead.clamp(0.0, 1e6)) })
}

impl First {
    /// A perfect sender would still be at it when the others begin: they share the link with it.
    pub(crate) fn is_under_way(self, rate_bps: f64) -> bool {
        8.0 * self.bytes as f64 > rate_bps * self.lead.as_secs_f64()
    }
}
