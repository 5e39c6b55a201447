//! What an acknowledgement told of the transmissions in flight.

use farlink_wire::{Duration, Instant, SeqNum};

use super::{Scoreboard, Then};

/// What an acknowledgement told.
#[derive(Clone, Copy, Debug, Default)]
pub struct Acked {
    /// Bytes newly acknowledged, cumulatively or by SACK.
    pub delivered_bytes: u64,
    /// Bytes newly acknowledged by SACK.
    pub sacked_bytes: u64,
    /// RTT sample from the newest segment acknowledged that was sent once.
    pub rtt: Option<Duration>,
    /// Payload of that segment, bytes.
    pub rtt_bytes: u32,
    /// Send time and end of the most recently sent segment acknowledged (RACK.xmit_ts,
    /// RACK.end_seq).
    pub newest: Option<(Instant, SeqNum, bool)>,
    /// Segments that are larger than a packet: when the one left that left last.
    pub large_sent_at: Option<Instant>,
    /// Highest end acknowledged, for reordering detection (RACK.fack).
    pub highest: Option<SeqNum>,
    /// A segment below the highest one acknowledged before, never sent again, was acknowledged:
    /// reordering.
    pub reordered: bool,
    /// How long ago the oldest of those was sent.
    pub late: Option<Duration>,
    /// Of segments that had been sent again once, the one whose repetition is youngest: how long
    /// ago that and the original were sent.
    pub repeated_once: Option<(Duration, Duration)>,
    /// How long ago the one of them was sent first that was sent last.
    pub age: Duration,
    /// What had been taken for lost and arrives all the same, before a repetition of it could have:
    /// bytes, and segments.
    pub found: (u64, u64),
    /// Some segment that was acknowledged had been sent only once.
    pub original: bool,
    /// Of the newest segment: when it left, and what the leg had done by then.
    pub snapshot: Option<(Instant, Then)>,
}

impl Scoreboard {
    /// Marks as lost what stands before so many bytes that have arrived.
    pub fn mark_overtaken(&mut self, bytes: u64) {
        let mut above = self.sacked_bytes;
        for i in 0..self.records.len() {
            let Some(r) = self.records.get(i).filter(|_| above >= bytes) else { break };
            if r.sacked {
                above -= r.len();
            } else if !r.lost {
                self.lose(i);
            }
        }
    }
}
