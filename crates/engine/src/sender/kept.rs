//! What the next gateway keeps for its far host while its own link is away, in custody mode: it
//! tells so, and acknowledges nothing by itself. It is not sent again, but asked for now and then,
//! because a gateway may die.

use farlink_wire::{Duration, Instant, SackBlock, SeqNum};

use super::Sender;

/// The gateway is asked again after this part of the time that it has kept the oldest segment for.
const PART: u32 = 16;
/// And after so long at the latest.
const APART_MAX: Duration = Duration::from_secs(10);

/// What it has told of the oldest segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    since: Instant,
    told_at: Instant,
    asked_at: Option<Instant>,
}

impl Sender {
    /// It has told these blocks beside the far host's acknowledgement.
    pub(super) fn note_kept(&mut self, now: Instant, ack: SeqNum, told: &[SackBlock]) {
        let is_kept = self.flight.is_head_kept();
        if !is_kept || ack.after(self.snd_una()) {
            self.kept = None;
        }
        if is_kept && told.iter().any(|b| b.start.before_eq(ack) && b.end.after(ack)) {
            self.kept.get_or_insert(Kept { since: now, told_at: now, asked_at: None }).told_at = now;
        }
    }

    /// Since when the next gateway keeps what the far host has not acknowledged, for its own link.
    #[must_use]
    pub fn kept_since(&self) -> Option<Instant> {
        self.kept.map(|kept| kept.since)
    }

    /// The retransmission timer has expired. Returns whether that was all: what is under way is
    /// kept further on, as far as is known.
    pub(super) fn waits_for_keeper(&mut self, now: Instant) -> bool {
        let Some(kept) = self.kept else { return false };
        if kept.asked_at.is_some_and(|asked_at| kept.told_at < asked_at) {
            self.kept = None;
            return false;
        }
        let apart = (now.since(kept.since) / PART).min(APART_MAX).max(self.rto());
        let due = kept.asked_at.unwrap_or(kept.since) + apart;
        if now < due {
            self.timers.rto = Some(due);
            return true;
        }
        self.kept = Some(Kept { asked_at: Some(now), ..kept });
        self.flight.doubt_head();
        self.timers.rto = Some(now + self.rto());
        true
    }
}
