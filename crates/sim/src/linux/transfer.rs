//! The application: the laboratory's transfers, by the laboratory's clocks.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use farlink_wire::{Duration, Instant};

use super::datagrams::Datagrams;
use super::host::CLIENT;

/// A transfer that stands still for so long has failed, where the link is there. Hosts give up
/// before, after the 924.6 s of `tcp_retries2`.
pub const PATIENCE: Duration = Duration::from_secs(1_000);
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

/// A question and its answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// The client waits so long since the answer before.
    pub wait: Duration,
    /// Bytes of the question.
    pub up_bytes: u64,
    /// Bytes of the answer.
    pub down_bytes: u64,
}

/// When a client connects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// At this time.
    At(Duration),
    /// When the first answer of the transfer of this number is there.
    AfterFirstAnswerOf(usize),
}

/// A connection and what is said on it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transfer {
    /// Number of the client's host.
    pub client: usize,
    /// Which way most bytes go: whose silence counts.
    pub direction: Direction,
    /// When the client connects.
    pub start: Start,
    /// It asks its first question not before this time.
    pub ask_at: Duration,
    /// Over IPv6.
    pub v6: bool,
    /// What is asked and answered, one after the other.
    pub steps: Vec<Step>,
    /// Then it asks for what is left in the list of this number, as other connections do.
    pub draws_from: Option<usize>,
    /// The server ends the connection with its last answer; else the client does when it has no
    /// more questions.
    pub server_closes: bool,
    /// Bytes of its only question, or with [`Direction::Download`] of its only answer, that are
    /// written at these times, whatever comes the other way meanwhile. None: all of each when it
    /// is due.
    pub messages: Vec<(Duration, u64)>,
    /// DSCP of what both ends send.
    pub dscp: u8,
    /// The client ends the connection so long after its last answer.
    pub linger: Duration,
    /// It has failed when it stands still for so long.
    pub patience: Duration,
    /// The client notes when each so many bytes have come; 0: it does not.
    pub mark_every: u64,
    /// The client stops reading for so long when so many bytes have come.
    pub stops: Option<(u64, Duration)>,
}

impl Transfer {
    /// One question with its answer, ended by the server: what the laboratory's transfers are.
    #[must_use]
    pub fn single(direction: Direction, bytes: u64, request_bytes: u64, start: Duration, v6: bool) -> Self {
        let (up_bytes, down_bytes) = match direction {
            Direction::Download => (request_bytes, bytes),
            Direction::Upload => (request_bytes + bytes, ANSWER_BYTES),
        };
        Self {
            client: CLIENT,
            direction,
            start: Start::At(start),
            ask_at: Duration::ZERO,
            v6,
            steps: vec![Step { wait: Duration::ZERO, up_bytes, down_bytes }],
            draws_from: None,
            server_closes: true,
            messages: Vec::new(),
            dscp: 0,
            linger: Duration::ZERO,
            patience: PATIENCE,
            mark_every: 0,
            stops: None,
        }
    }

    /// It has messages, and they are the client's, or the server's.
    #[must_use]
    pub fn is_told_by(&self, is_client: bool) -> bool {
        !self.messages.is_empty() && is_client == (self.direction == Direction::Upload)
    }
}

/// What became of a transfer.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Outcome {
    /// When the client called connect().
    pub began: Instant,
    /// When it was connected.
    pub connected: Option<Instant>,
    /// When it asked its first question.
    pub asked: Option<Instant>,
    /// When the server began to answer it.
    pub answered: Option<Instant>,
    /// When it read its first byte.
    pub first_byte: Option<Instant>,
    /// When it read its newest byte.
    pub last_byte: Option<Instant>,
    /// When it had read each [`Transfer::mark_every`] bytes.
    pub marks: Vec<Instant>,
    /// What was asked so far, those steps included that were drawn from a list.
    pub steps: Vec<Step>,
    /// When each was asked, and answered in full.
    pub answers: Vec<(Instant, Instant)>,
    /// When the other side had read each message.
    pub heard: Vec<Instant>,
    /// Payload bytes that the client and the server read.
    pub received: [u64; 2],
    /// Client and server have seen the end of the other's stream, and all of theirs was
    /// acknowledged.
    pub ended: [bool; 2],
    /// When that was so at the client.
    pub client_ended: Option<Instant>,
    /// What went wrong.
    pub error: Option<String>,
    /// The connection was reset at the client, and at the server.
    pub was_reset: [bool; 2],
    /// Segments that client and server sent again.
    pub retransmits: [u64; 2],
    /// ICMP errors about the MTU of the path that client or server believed.
    pub path_errors: u64,
    counted_over: bool,
}

impl Outcome {
    /// The client has read so many bytes of this transfer by now.
    pub(super) fn note_read(&mut self, now: Instant, transfer: &Transfer, bytes: u64) {
        self.first_byte.get_or_insert(now);
        self.last_byte = Some(now);
        let marks = bytes.checked_div(transfer.mark_every).unwrap_or(0);
        self.marks.resize(self.marks.len().max(marks as usize), now);
    }

    /// Nothing more will happen.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.error.is_some() || self.ended == [true; 2]
    }

    /// Everything asked was answered, each byte the one that was sent, and both streams ended in
    /// order.
    #[must_use]
    pub fn is_intact(&self) -> bool {
        let wanted = [
            self.steps.iter().map(|s| s.down_bytes).sum::<u64>(),
            self.steps.iter().map(|s| s.up_bytes).sum::<u64>(),
        ];
        self.error.is_none() && self.ended == [true; 2] && self.received == wanted
    }
}

/// The transfers of a network with what became of them, shared by its hosts and whoever reads them.
#[derive(Debug, Default)]
pub struct Play {
    /// What is to be done.
    pub transfers: Vec<Transfer>,
    /// What became of each.
    pub outcomes: RefCell<Vec<Outcome>>,
    /// Lists of questions that several connections share.
    pub lists: RefCell<Vec<VecDeque<Step>>>,
    /// What the client sends in datagrams meanwhile.
    pub datagrams: Datagrams,
    open: Cell<usize>,
    /// Transfers that one host has ended: what the other has to hear of, the oldest first.
    pub(super) news: RefCell<Vec<usize>>,
}

impl Play {
    /// All is still to be done.
    #[must_use]
    pub fn new(transfers: Vec<Transfer>, lists: Vec<VecDeque<Step>>) -> Rc<Self> {
        let begin = |t: &Transfer| Outcome {
            began: match t.start {
                Start::At(at) => Instant::ZERO + at,
                Start::AfterFirstAnswerOf(_) => Instant::ZERO,
            },
            steps: t.steps.clone(),
            ..Outcome::default()
        };
        let outcomes: Vec<Outcome> = transfers.iter().map(begin).collect();
        let open = Cell::new(outcomes.len());
        let (outcomes, lists, news) = (RefCell::new(outcomes), RefCell::new(lists), RefCell::default());
        Rc::new(Self { transfers, outcomes, lists, open, news, datagrams: Datagrams::default() })
    }

    /// The same with datagrams. Nobody waits for these to arrive.
    ///
    /// # Panics
    /// Somebody has it already.
    #[must_use]
    pub fn with_datagrams(self: Rc<Self>, datagrams: Datagrams) -> Rc<Self> {
        let mut own = Rc::try_unwrap(self).expect("nobody has it yet");
        own.datagrams = datagrams;
        Rc::new(own)
    }

    /// Every transfer is over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.open.get() == 0
    }

    /// Counts a transfer that is over, once. `true` when it is.
    pub(super) fn note_over(&self, n: usize) -> bool {
        let outcome = &mut self.outcomes.borrow_mut()[n];
        if outcome.is_over() && !outcome.counted_over {
            outcome.counted_over = true;
            self.open.set(self.open.get().saturating_sub(1));
            self.news.borrow_mut().push(n);
        }
        outcome.counted_over
    }

    /// Somebody has waited for too long.
    pub(super) fn give_up(&self, n: usize, why: String) {
        self.outcomes.borrow_mut()[n].error = Some(why);
        self.news.borrow_mut().push(n);
    }
}
