//! What holds a sender back: the bound on its window, and the reason for those who ask.

use super::Sender;

impl Sender {
    /// Whether the congestion window has stopped it within the last round trip.
    #[must_use]
    pub fn is_cwnd_limited(&self) -> bool {
        self.governor.is_stopped()
    }
    /// Its own pace.
    #[must_use]
    pub fn waits_for_pace(&self) -> bool {
        self.governor.paced_until().is_some()
    }
    /// The receiver's window is closed, or too small to be worth a segment.
    #[must_use]
    pub fn waits_for_window(&self) -> bool {
        self.peer.is_waited_for()
    }
    /// Probes of a closed window have gone out since the receiver was last heard.
    #[must_use]
    pub fn is_unanswered(&self) -> bool {
        self.peer.is_unanswered()
    }
    /// So many of them.
    #[must_use]
    pub fn unanswered_probes(&self) -> u8 {
        self.peer.unanswered()
    }
    /// Recovery of any kind is under way.
    #[must_use]
    pub fn in_recovery(&self) -> bool {
        !self.governor.is_open()
    }
    /// The source is promised what the congestion window leaves, and has sent all of that; or not.
    pub fn hold_source(&mut self, holds: bool) {
        self.governor.hold_source(holds);
    }
    /// No congestion window above so many bytes from now on.
    pub fn set_window_limit(&mut self, bytes: u64) {
        self.governor.set_window_limit(bytes);
    }
    /// A loss has made the congestion window smaller, and it is full: without the loss more would
    /// be under way.
    #[must_use]
    pub fn is_slowed_by_losses(&self) -> bool {
        self.governor.answers_losses() && self.window_room() < u64::from(self.mss())
    }
}
