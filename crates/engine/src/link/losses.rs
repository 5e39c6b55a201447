//! How lossy a link is, over all its flows: whether repeating early is worth its bytes.

use super::Link;

/// Before anything is known: as if one segment in 300 had been lost. A link that then carries 2.5
/// MB without a loss is taken to be clean, until it loses something.
const ASSUMED_LOST_BYTES: u64 = 1_500;
const ASSUMED_BYTES: u64 = 300 * 1_500;
/// Early repetition is worth while above one loss in so many bytes (0.05 %).
const WORTH_ONE_IN: u64 = 2_000;
/// A link that loses more than one byte in so many (2 %) loses whole bursts, and what asks for an
/// answer, or the answer, as well.
const LOSSY_ONE_IN: u64 = 50;
/// Older knowledge counts half after so many bytes.
const FADE_BYTES: u64 = 32 << 20;

/// What has been sent into a link and what was lost of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Losses {
    sent_bytes: u64,
    lost_bytes: u64,
}

impl Losses {
    /// So much has been delivered over the link, and so much was found to be lost.
    pub fn note(&mut self, delivered_bytes: u64, lost_bytes: u64) {
        self.sent_bytes += delivered_bytes + lost_bytes;
        self.lost_bytes += lost_bytes;
        if self.sent_bytes > FADE_BYTES {
            self.sent_bytes /= 2;
            self.lost_bytes /= 2;
        }
    }
    /// What has been sent into the link, and what was lost of it, as far as it is remembered; as if
    /// a little more had been sent, so that a single loss at the beginning does not count for much.
    /// Bytes.
    #[must_use]
    pub fn sent_and_lost(&self) -> (u64, u64) {
        (self.sent_bytes + ASSUMED_BYTES, self.lost_bytes)
    }
    /// The link loses enough for repetitions before the loss is known.
    #[must_use]
    pub fn is_repeating_worth(&self) -> bool {
        let lost = self.lost_bytes + ASSUMED_LOST_BYTES;
        lost.saturating_mul(WORTH_ONE_IN) >= self.sent_bytes + ASSUMED_BYTES
    }

    /// The same, and not only because little is known yet.
    #[must_use]
    pub fn is_known_to_lose(&self) -> bool {
        self.lost_bytes.saturating_mul(WORTH_ONE_IN) >= self.sent_bytes + ASSUMED_BYTES
    }

    /// It loses so much that a burst without an answer says little.
    #[must_use]
    pub fn is_lossy(&self) -> bool {
        let (sent, lost) = self.sent_and_lost();
        lost.saturating_mul(LOSSY_ONE_IN) >= sent
    }
}

impl Link {
    /// It loses so much that a burst without an answer says little.
    #[must_use]
    pub fn is_lossy(&self) -> bool {
        self.losses.is_lossy()
    }

    /// It loses enough for repetitions before the loss is known.
    #[must_use]
    pub fn is_repeating_worth(&self) -> bool {
        self.losses.is_repeating_worth()
    }

    /// The same, and not only because little is known of it yet.
    #[must_use]
    pub fn is_known_to_lose(&self) -> bool {
        self.losses.is_known_to_lose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_lossy_from_two_percent_on_once_there_is_enough_to_tell() {
        let mut losses = Losses::default();
        losses.note(0, 5_000);
        assert!(!losses.is_lossy(), "a few segments");
        losses.note(0, 5_000);
        assert!(losses.is_lossy());
        losses.note(200_000, 0);
        assert!(!losses.is_lossy());
    }

    #[test]
    fn a_clean_link_is_known_as_one_after_a_while_and_a_loss_changes_that() {
        let mut losses = Losses::default();
        assert!(losses.is_repeating_worth());
        for _ in 0..25 {
            losses.note(100_000, 0);
        }
        assert!(losses.is_repeating_worth());
        losses.note(100_000, 0);
        assert!(!losses.is_repeating_worth());
        losses.note(0, 1448);
        assert!(losses.is_repeating_worth());
        for _ in 0..10_000 {
            losses.note(100_000, 0);
        }
        assert!(!losses.is_repeating_worth());
    }
}
