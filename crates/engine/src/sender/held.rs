//! What holds a sender back: the bound on its window, and the reason for those who ask.

use super::Sender;
use crate::recovery::Recovery;

impl Sender {
    /// Whether the congestion window has stopped it within the last round trip.
    #[must_use]
    pub fn is_cwnd_limited(&self) -> bool {
        self.cwnd_stop.is_some()
    }
    /// Recovery of any kind is under way.
    #[must_use]
    pub fn in_recovery(&self) -> bool {
        !self.recovery.is_open()
    }
    /// No congestion window above so many bytes from now on.
    pub fn set_window_limit(&mut self, bytes: u64) {
        self.cc.set_window_limit(bytes);
    }
    /// A loss has made the congestion window smaller, and it is full: without the loss more would be under way.
    #[must_use]
    pub fn is_slowed_by_losses(&self) -> bool {
        let answers_losses = match self.recovery {
            Recovery::Open => false,
            Recovery::Fast { .. } => self.cc.uses_prr(),
            Recovery::Timeout { .. } => true,
        };
        answers_losses && self.window_room() < u64::from(self.mss)
    }
}
