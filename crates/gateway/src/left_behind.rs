//! What becomes of connections of which an earlier process held bytes when it was killed.
//!
//! The engine asks both hosts, and resets who answers for such a connection. Who has it no longer
//! answers with a reset of its own, or says nothing: then it had ended while nobody watched, and it
//! would be wrong to say that the gateway has reset it.

use core::net::SocketAddr;
use std::collections::BTreeMap;

use farlink_engine::event::Ends;
use farlink_wire::{Duration, Instant, SegmentHeader, TcpSegment};

/// So long the engine asks, and knows what it is answered.
const ASKED_FOR: Duration = Duration::from_secs(30);

/// What has become of them, once all of it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fates {
    /// A host still had the connection, and was reset.
    pub reset: u64,
    /// A host said that it has no such connection (any more).
    pub ended: u64,
    /// No host has said anything.
    pub unanswered: u64,
}

/// One of them.
#[derive(Clone, Copy, Debug)]
struct Asked {
    ends: Ends,
    client_is_reset: bool,
    server_is_reset: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct LeftBehind {
    /// By both ends, the lesser one first.
    asked: BTreeMap<(SocketAddr, SocketAddr), Asked>,
    /// They are being told now.
    is_beginning: bool,
    until: Instant,
    /// All of them: the engine has counted them as given up.
    counted: u64,
    fates: Fates,
    is_news: bool,
}

fn key(one: SocketAddr, other: SocketAddr) -> (SocketAddr, SocketAddr) {
    (one.min(other), one.max(other))
}

impl LeftBehind {
    /// What the engine gives up from here on belongs to them, until [`LeftBehind::has_begun`].
    pub fn begin(&mut self, now: Instant) {
        self.is_beginning = true;
        self.until = now + ASKED_FOR;
    }

    /// These were all.
    pub fn has_begun(&mut self) {
        self.is_beginning = false;
    }

    /// The engine gives up a connection. Returns whether it is one of them: nobody knows yet what
    /// becomes of it.
    pub fn takes(&mut self, ends: &Ends) -> bool {
        if self.is_beginning {
            self.counted += 1;
            let asked = Asked { ends: *ends, client_is_reset: false, server_is_reset: false };
            self.asked.insert(key(ends.client, ends.server), asked);
        }
        self.is_beginning
    }

    /// A segment of a host has come in. By a reset it says that it has no such connection, unless
    /// it was reset before.
    pub fn arrived(&mut self, s: &TcpSegment) {
        if self.asked.is_empty() || !s.flags.rst() {
            return;
        }
        let from = SocketAddr::new(s.ip.src, s.src_port);
        let key = key(from, SocketAddr::new(s.ip.dst, s.dst_port));
        let Some(asked) = self.asked.get(&key) else { return };
        let was_reset = if from == asked.ends.client { asked.client_is_reset } else { asked.server_is_reset };
        if !was_reset {
            self.asked.remove(&key);
            self.fates.ended += 1;
            self.tell_if_all();
        }
    }

    /// A segment was made here. Returned: the connection whose second host is reset by it.
    pub fn made(&mut self, header: &SegmentHeader<'_>) -> Option<Ends> {
        if self.asked.is_empty() || !header.flags.rst() {
            return None;
        }
        let to = SocketAddr::new(header.dst, header.dst_port);
        let key = key(SocketAddr::new(header.src, header.src_port), to);
        let asked = self.asked.get_mut(&key)?;
        if to == asked.ends.client {
            asked.client_is_reset = true;
        } else {
            asked.server_is_reset = true;
        }
        let Asked { ends, client_is_reset: true, server_is_reset: true } = *asked else { return None };
        self.asked.remove(&key);
        self.fates.reset += 1;
        self.tell_if_all();
        Some(ends)
    }

    /// When nobody is asked any more.
    pub fn deadline(&self) -> Option<Instant> {
        (!self.asked.is_empty()).then_some(self.until)
    }

    /// The time may be over. Returned: the connections of which one host was reset, and the other
    /// one has not been heard.
    pub fn settle(&mut self, now: Instant) -> Vec<Ends> {
        if self.deadline().is_none_or(|at| at > now) {
            return Vec::new();
        }
        let is_reset = |asked: &Asked| asked.client_is_reset || asked.server_is_reset;
        let left = core::mem::take(&mut self.asked);
        let all = left.len() as u64;
        let reset: Vec<Ends> = left.into_values().filter(is_reset).map(|asked| asked.ends).collect();
        self.fates.reset += reset.len() as u64;
        self.fates.unanswered += all - reset.len() as u64;
        self.tell_if_all();
        reset
    }

    fn tell_if_all(&mut self) {
        self.is_news |= self.asked.is_empty();
    }

    /// What has become of them, once, when all of it is known.
    pub fn take(&mut self) -> Option<Fates> {
        core::mem::take(&mut self.is_news).then_some(self.fates)
    }

    /// So many that the engine has counted as given up were not reset, as far as is known.
    pub fn not_reset(&self) -> u64 {
        self.counted.saturating_sub(self.fates.reset)
    }
}
