//! A medium that both directions of a link share: one packet at a time, whoever sends it.

use std::sync::{Arc, Mutex, PoisonError};

use farlink_wire::time::Instant;

/// A half-duplex medium. Each packet takes it from where it is free: directions that both have
/// something to send take turns.
#[derive(Clone, Debug, Default)]
pub struct Medium(Arc<Mutex<Instant>>);

impl Medium {
    /// Nobody uses it.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes it from `at` or from when it is free, until what `end` says of that beginning. The
    /// beginning.
    pub(crate) fn take(&self, at: Instant, end: impl FnOnce(Instant) -> Instant) -> Instant {
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let begin = at.max(*free);
        *free = end(begin).max(begin);
        begin
    }
}
