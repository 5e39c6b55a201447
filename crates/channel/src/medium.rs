//! A medium that both directions of a link share: one packet at a time, whoever sends it.

use std::sync::{Arc, Mutex, PoisonError};

use farlink_wire::time::{Duration, Instant};

/// A half-duplex medium. Each packet takes it from where it is free: directions that both have
/// something to send take turns.
#[derive(Clone, Debug, Default)]
pub struct Medium(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    free: Instant,
    /// Who had it last.
    last: Option<Side>,
    sides: u32,
}

/// One of those who share a medium.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Side(u32);

impl Medium {
    /// Nobody uses it.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// One more shares it.
    pub(crate) fn join(&self) -> Side {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.sides = state.sides.saturating_add(1);
        Side(state.sides)
    }

    /// Takes it from `at` or from when it is free, until what `end` says of that beginning. After
    /// another one who had it, it has to turn round first. The beginning.
    pub(crate) fn take(
        &self,
        side: Side,
        at: Instant,
        turnaround: Duration,
        end: impl FnOnce(Instant) -> Instant,
    ) -> Instant {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let turns = state.last.is_some_and(|last| last != side);
        let begin = at.max(if turns { state.free + turnaround } else { state.free });
        state.free = end(begin).max(begin);
        state.last = Some(side);
        begin
    }
}
