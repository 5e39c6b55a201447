//! Whether what was taken for a loss was one: Eifel by timestamps (RFC 3522), D-SACK (RFC 3708) and
//! F-RTO (RFC 5682), as Linux goes by them (`tcp_may_undo`, `tcp_check_dsack`, `tcp_process_loss`
//! in tcp_input.c).

use super::congestion::Window;

/// What can be undone, and the evidence so far.
#[derive(Debug, Default)]
pub(super) struct Undo {
    /// Where the reduction began (`undo_marker`); `None`: there is nothing to undo.
    marker: Option<u64>,
    /// Repetitions that no D-SACK has answered (`undo_retrans`); `None`: nothing was repeated.
    unanswered: Option<u32>,
    /// When the first of them left, in milliseconds of the timestamp clock (`retrans_stamp`).
    resent_ms: Option<u32>,
    /// After a timeout: it may still turn out to have been too early (`frto`).
    pub frto: bool,
    /// The window before the reduction.
    pub prior_cwnd: u32,
    prior_ssthresh: u32,
}

impl Undo {
    /// A reduction begins (`tcp_init_undo`). `resent_out`: repetitions under way.
    pub fn begin(&mut self, una: u64, window: &Window, resent_out: u32) {
        self.marker = Some(una);
        self.unanswered = (resent_out > 0).then_some(resent_out);
        self.resent_ms = None;
        self.prior_cwnd = window.cwnd;
        self.prior_ssthresh = window.ssthresh;
    }

    /// A segment was sent again.
    pub fn resent(&mut self, clock_ms: u32) {
        self.resent_ms.get_or_insert(clock_ms);
        self.unanswered = Some(self.unanswered.unwrap_or(0) + 1);
    }

    /// Nothing is repaired any more.
    pub fn is_over(&mut self) {
        self.resent_ms = None;
    }

    /// The receiver says that it had these bytes already: a repetition was for nothing.
    pub fn duplicate(&mut self, (start, end): (u64, u64), una: u64, mss: u64) {
        let Some(marker) = self.marker else { return };
        if let Some(unanswered) = self.unanswered.as_mut().filter(|_| end <= una && end > marker) {
            let segments = (end - start).div_ceil(mss.max(1));
            *unanswered = unanswered.saturating_sub(u32::try_from(segments).unwrap_or(u32::MAX));
        }
    }

    /// The acknowledgement echoes a segment that was sent before the first repetition
    /// (`tcp_packet_delayed`).
    pub fn was_delayed(&self, echo_ms: Option<u32>) -> bool {
        match (echo_ms, self.resent_ms) {
            (Some(echo), Some(resent)) => self.marker.is_some() && echo.wrapping_sub(resent) > u32::MAX / 2,
            _ => false,
        }
    }

    /// Every repetition was for nothing.
    pub fn was_needless(&self) -> bool {
        self.marker.is_some() && self.unanswered == Some(0)
    }

    /// `tcp_may_undo`
    pub fn may_undo(&self, echo_ms: Option<u32>) -> bool {
        self.was_needless() || self.was_delayed(echo_ms)
    }

    /// The window is as before (`tcp_undo_cwnd_reduction`).
    pub fn restore(&mut self, window: &mut Window) {
        window.cwnd = window.cwnd.max(self.prior_cwnd);
        window.ssthresh = window.ssthresh.max(self.prior_ssthresh);
        self.marker = None;
        self.resent_ms = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window() -> Window {
        let mut window = Window::new(40);
        window.ssthresh = 60;
        window
    }

    #[test]
    fn answered_repetitions_are_needless_and_others_are_not() {
        let mut undo = Undo::default();
        undo.begin(1_000, &window(), 0);
        assert!(!undo.may_undo(None), "nothing was repeated");
        undo.resent(70);
        undo.resent(71);
        undo.duplicate((1_000, 2_460), 5_000, 1_460);
        assert!(!undo.was_needless(), "one of two");
        undo.duplicate((500, 900), 5_000, 1_460);
        assert!(!undo.was_needless(), "that was before");
        undo.duplicate((2_460, 3_920), 5_000, 1_460);
        assert!(undo.was_needless());
        let mut reduced = Window::new(1);
        reduced.ssthresh = 28;
        undo.restore(&mut reduced);
        assert_eq!((reduced.cwnd, reduced.ssthresh), (40, 60));
        assert!(!undo.may_undo(Some(0)), "once");
    }

    #[test]
    fn an_echo_from_before_the_repetition_shows_a_delay() {
        let mut undo = Undo::default();
        undo.begin(0, &window(), 0);
        assert!(!undo.was_delayed(Some(10)));
        undo.resent(u32::MAX - 5);
        assert!(
            undo.was_delayed(Some(u32::MAX - 6)) && !undo.was_delayed(Some(3)) && !undo.was_delayed(None)
        );
    }
}
