//! How lossy each declared link is, over all its flows: whether repeating early is worth its bytes.

use crate::config::Config;
use crate::net::IfaceId;

/// Before anything is known: as if one segment in 300 had been lost. A link that then carries 2.5 MB without a loss is taken to be
/// clean, until it loses something.
const ASSUMED_LOST_BYTES: u64 = 1_500;
const ASSUMED_BYTES: u64 = 300 * 1_500;
/// Early repetition is worth while above one loss in so many bytes (0.05 %).
const WORTH_ONE_IN: u64 = 2_000;
/// Older knowledge counts half after so many bytes.
const FADE_BYTES: u64 = 32 << 20;

/// What has been sent into one link and what was lost of it.
#[derive(Clone, Copy, Debug, Default)]
struct Link {
    sent_bytes: u64,
    lost_bytes: u64,
}

/// All declared links.
#[derive(Debug, Default)]
pub struct Losses(Vec<(IfaceId, Link)>);

impl Losses {
    /// Nothing is known yet of the links of this configuration.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let links = config.interfaces.iter().filter(|i| i.link.is_some());
        Self(links.map(|i| (i.id, Link::default())).collect())
    }
    /// So much has been delivered over the interface, and so much was found to be lost.
    pub fn note(&mut self, out: IfaceId, delivered_bytes: u64, lost_bytes: u64) {
        let Some((_, link)) = self.0.iter_mut().find(|(id, _)| *id == out) else { return };
        link.sent_bytes += delivered_bytes + lost_bytes;
        link.lost_bytes += lost_bytes;
        if link.sent_bytes > FADE_BYTES {
            link.sent_bytes /= 2;
            link.lost_bytes /= 2;
        }
    }
    /// What has been sent into the link behind an interface, and what was lost of it, as far as it is remembered; as if a little
    /// more had been sent, so that a single loss at the beginning does not count for much. Bytes.
    #[must_use]
    pub fn of(&self, out: IfaceId) -> (u64, u64) {
        let link = self.0.iter().find(|(id, _)| *id == out).map(|(_, link)| *link).unwrap_or_default();
        (link.sent_bytes + ASSUMED_BYTES, link.lost_bytes)
    }
    /// The interface leads to a declared link that loses enough for repetitions before the loss is known.
    #[must_use]
    pub fn is_repeating_worth(&self, out: IfaceId) -> bool {
        self.0.iter().any(|(id, link)| {
            let lost = link.lost_bytes + ASSUMED_LOST_BYTES;
            *id == out && lost.saturating_mul(WORTH_ONE_IN) >= link.sent_bytes + ASSUMED_BYTES
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clean_link_is_known_as_one_after_a_while_and_a_loss_changes_that() {
        let sat = IfaceId(3);
        let mut losses = Losses(vec![(sat, Link::default())]);
        assert!(losses.is_repeating_worth(sat) && !losses.is_repeating_worth(IfaceId(4)));
        for _ in 0..25 {
            losses.note(sat, 100_000, 0);
        }
        assert!(losses.is_repeating_worth(sat));
        losses.note(sat, 100_000, 0);
        assert!(!losses.is_repeating_worth(sat));
        losses.note(sat, 0, 1448);
        assert!(losses.is_repeating_worth(sat));
        for _ in 0..10_000 {
            losses.note(sat, 100_000, 0);
        }
        assert!(!losses.is_repeating_worth(sat));
    }
}
