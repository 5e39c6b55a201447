//! What a destination has said of bytes that never passed here: `evidence.rs` judges it.

use farlink_wire::{Instant, SeqNum};

/// Acknowledgements from a host of bytes that we have not sent to it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Beyond {
    pub count: u8,
    pub first_at: Instant,
    pub newest_at: Instant,
    /// When the host was asked, for the first time after the first of them or, if it was not, after
    /// earlier ones.
    pub asked_at: Option<Instant>,
    /// The newest one.
    pub ack: SeqNum,
    /// It had the exact sequence number.
    pub exact: bool,
    /// The highest byte of the source that was held then.
    pub highest: SeqNum,
}

impl Beyond {
    /// The host has been asked after the first of them.
    #[must_use]
    pub fn asked_since(&self) -> Option<Instant> {
        self.asked_at.filter(|at| *at > self.first_at)
    }

    /// The host was asked last at this time, maybe for another reason.
    pub fn note_asked(&mut self, at: Instant) {
        if self.count > 0 && self.asked_since().is_none() && at > self.first_at {
            self.asked_at = Some(at);
        }
    }

    /// The host stands where we took it to be. When it was asked stays known.
    pub fn refute(&mut self, asked_at: Instant) {
        self.note_asked(asked_at);
        *self = Self { asked_at: self.asked_at, ..Self::default() };
    }
}

/// An acknowledgement of what had not been sent, which was believed.
#[derive(Clone, Copy, Debug)]
pub struct Belief {
    pub upto: SeqNum,
    pub at: Instant,
    pub against: u8,
}
