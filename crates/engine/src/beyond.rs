//! What a destination has said of bytes that never passed here: `evidence.rs` judges it.

use farlink_wire::{Instant, SeqNum};

/// Acknowledgements from a host of bytes that we have not sent to it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Beyond {
    pub count: u8,
    pub first_at: Instant,
    pub newest_at: Instant,
    /// When the host was asked for the first time after the first of them.
    pub asked_at: Option<Instant>,
    /// The newest one.
    pub ack: SeqNum,
    /// It had the exact sequence number.
    pub exact: bool,
    /// The highest byte of the source that was held then.
    pub highest: SeqNum,
}

/// An acknowledgement of what had not been sent, which was believed.
#[derive(Clone, Copy, Debug)]
pub struct Belief {
    pub upto: SeqNum,
    pub at: Instant,
    pub against: u8,
}
