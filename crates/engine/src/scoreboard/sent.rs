//! One transmission of what is in flight.

use farlink_wire::{Instant, SeqNum};

use super::Then;

/// One transmission (a super-segment counts once, until an acknowledgement cuts it).
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// First sequence number.
    pub seq: SeqNum,
    /// The one after the last.
    pub end: SeqNum,
    /// The segments of its last transmission are this long, counted from `unit_from`. Bytes.
    pub unit_bytes: u32,
    /// Where the first of them began: what has been acknowledged since may lie between.
    pub unit_from: SeqNum,
    /// It ends with FIN, which receivers tell apart from the byte before it.
    pub fin: bool,
    /// When it was last sent.
    pub sent_at: Instant,
    /// What the leg had done when it was sent.
    pub then: Then,
    /// The receiver holds it.
    pub sacked: bool,
    /// Taken for lost and not sent again yet.
    pub lost: bool,
    /// Sent more than once.
    pub retransmitted: bool,
    /// When it was sent first.
    pub original_at: Instant,
    /// How often it was sent again.
    pub repeats: u8,
    /// Copies of the last of these transmissions that went out early, before it could be known to
    /// be lost.
    pub copies: u8,
    /// When the newest copy of any of them did.
    pub copied_at: Option<Instant>,
}

impl Sent {
    pub(super) fn len(&self) -> u64 {
        u64::from(self.end.since(self.seq))
    }

    /// The first place from `at` on, which lies within, where a segment began, or where the record
    /// ends.
    pub(super) fn edge_from(&self, at: SeqNum) -> SeqNum {
        let unit = self.unit_bytes.max(1);
        let past = at.since(self.unit_from);
        let up = self.unit_from + past.div_ceil(unit).saturating_mul(unit);
        if up.before(at) || up.after_eq(self.end) { self.end } else { up }
    }

    /// The last place up to `at`, which lies within, where a segment ended, or where the record
    /// begins.
    pub(super) fn edge_until(&self, at: SeqNum) -> SeqNum {
        if self.fin && at + 1 == self.end {
            return at;
        }
        let unit = self.unit_bytes.max(1);
        let down = self.unit_from + at.since(self.unit_from) / unit * unit;
        if down.before(self.seq) || down.after(at) { self.seq } else { down }
    }
}
