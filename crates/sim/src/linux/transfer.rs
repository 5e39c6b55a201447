//! The application: the laboratory's transfers, by the laboratory's clocks.

use std::cell::RefCell;
use std::rc::Rc;

use farlink_wire::{Duration, Instant};

/// A transfer that stands still for so long has failed, as in the laboratory.
pub const PATIENCE: Duration = Duration::from_secs(300);
/// Bytes of the answer to an upload.
pub const ANSWER_BYTES: u64 = 32;

/// Which way the bytes go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Direction {
    /// From the server.
    #[default]
    Download,
    /// To the server.
    Upload,
}

/// A transfer to be made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transfer {
    /// Which way.
    pub direction: Direction,
    /// Payload.
    pub bytes: u64,
    /// The client's first line.
    pub request_bytes: u64,
    /// When the client connects.
    pub start: Duration,
    /// Over IPv6.
    pub v6: bool,
}

impl Transfer {
    /// Bytes that the client sends.
    #[must_use]
    pub fn client_bytes(&self) -> u64 {
        match self.direction {
            Direction::Download => self.request_bytes,
            Direction::Upload => self.request_bytes + self.bytes,
        }
    }

    /// Bytes that the server sends.
    #[must_use]
    pub fn server_bytes(&self) -> u64 {
        match self.direction {
            Direction::Download => self.bytes,
            Direction::Upload => ANSWER_BYTES,
        }
    }
}

/// What became of a transfer.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Outcome {
    /// When the client called connect().
    pub began: Instant,
    /// When it was connected.
    pub connected: Option<Instant>,
    /// When it read its first byte.
    pub first_byte: Option<Instant>,
    /// When it read its newest byte.
    pub last_byte: Option<Instant>,
    /// Payload bytes that the client and the server read.
    pub received: [u64; 2],
    /// Client and server have seen the end of the other's stream, and all of theirs was acknowledged.
    pub ended: [bool; 2],
    /// What went wrong.
    pub error: Option<String>,
    /// Segments that client and server sent again.
    pub retransmits: [u64; 2],
}

impl Outcome {
    /// Nothing more will happen.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.error.is_some() || self.ended == [true; 2]
    }

    /// Every byte arrived, each the one that was sent, and both streams ended in order.
    #[must_use]
    pub fn is_intact(&self, transfer: &Transfer) -> bool {
        let wanted = [transfer.server_bytes(), transfer.client_bytes()];
        self.error.is_none() && self.ended == [true; 2] && self.received == wanted
    }
}

/// The outcomes, shared by both hosts and whoever reads them.
pub type Outcomes = Rc<RefCell<Vec<Outcome>>>;

/// Outcomes for so many transfers.
#[must_use]
pub fn outcomes(transfers: &[Transfer]) -> Outcomes {
    let begin = |t: &Transfer| Outcome { began: Instant::ZERO + t.start, ..Outcome::default() };
    Rc::new(RefCell::new(transfers.iter().map(begin).collect()))
}
