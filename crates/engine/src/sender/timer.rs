//! The deadlines of a sender: retransmission (RFC 6298), tail loss probe (RFC 8985), persist (RFC 9293).

use farlink_cc::Congestion;
use farlink_wire::{Duration, Instant};

use super::{Happened, Sender, SenderTimers};
use crate::recovery::Recovery;
use crate::scoreboard::Sent;

/// A receiver may delay the acknowledgement of a single segment this long (RFC 8985 7.2, Linux TCP_DELACK_MAX).
const MAX_ACK_DELAY: Duration = Duration::from_millis(200);
/// Smallest probe timeout (Linux TCP_TIMEOUT_MIN: 2 jiffies).
const PTO_MIN: Duration = Duration::from_millis(10);

impl SenderTimers {
    /// The earliest.
    #[must_use]
    pub fn earliest(&self) -> Option<Instant> {
        let Self { rto, probe, reorder, persist, hole, pace, early } = *self;
        [rto, probe, reorder, persist, hole, pace, early].into_iter().flatten().min()
    }
}

impl Sender {
    /// Restarts the timers after an acknowledgement of something new (RFC 6298 5.3).
    pub(super) fn arm(&mut self, now: Instant) {
        if self.board.is_empty() {
            self.timers.rto = None;
            self.timers.probe = None;
            self.timers.reorder = None;
            self.timers.early = None;
            return;
        }
        self.timers.rto = Some(now + self.rto());
        self.arm_probe(now);
    }

    /// The probe timeout (RFC 8985 7.2). One probe per flight.
    pub(super) fn arm_probe(&mut self, now: Instant) {
        self.timers.probe = None;
        let spent = self.probed_end.is_some_and(|e| self.snd_una.before(e));
        if !self.sack_permitted || !self.recovery.is_open() || self.board.sacked_bytes() > 0 || spent {
            return;
        }
        let Some(srtt) = self.rtt.srtt() else { return };
        let mut pto = (srtt * 2).max(PTO_MIN);
        // A single segment, not a few small ones: those are acknowledged without delay.
        let ends = (self.board.first().map(|r| r.seq), self.board.last().map(|r| r.seq));
        if self.board.pipe() <= u64::from(self.mss) && ends.0 == ends.1 {
            pto += MAX_ACK_DELAY;
        }
        let at = now + pto;
        if self.timers.rto.is_none_or(|rto| at < rto) {
            self.timers.probe = Some(at);
        }
    }

    pub(super) fn arm_persist(&mut self, now: Instant) {
        if self.timers.persist.is_none() {
            let base = self.rto();
            let wait = base.saturating_mul(1 << self.persist_backoff.min(12)).min(self.rto_bounds.max);
            self.timers.persist = Some(now + wait);
        }
    }

    /// `hole`: all that follows without a gap is acknowledged, and more is held behind a gap. The receiver may have got
    /// what is missing round us, and nothing that we have to send would draw its word: it is asked, as over a closed
    /// window.
    pub fn watch_hole(&mut self, now: Instant, hole: bool) {
        if !hole {
            self.timers.hole = None;
            self.hole_backoff = 0;
        } else if self.timers.hole.is_none() {
            let base = self.rto() * 2;
            let wait = base.saturating_mul(1 << self.hole_backoff.min(12)).min(self.rto_bounds.max);
            self.timers.hole = Some(now + wait);
        }
    }

    /// Segments may wait in a queue that is not ours: a timeout of everything at once says little, so the first segment asks.
    pub fn expect_queues(&mut self, may_wait: bool) {
        self.silence.may_wait = may_wait;
    }

    /// The way delivers, and nothing has arrived that left after `newest`. What left later stands in line before a bottleneck, behind
    /// what others have sent: it is not lost, however long that takes, and a repetition would only stand behind it. Timers that are due
    /// wait a little, as long as the largest RTO in all.
    pub fn wait_in_line(&mut self, now: Instant, newest: Instant) {
        let in_line = |r: &Sent| r.sent_at > newest && now.since(r.sent_at) < self.rto_bounds.max;
        if !self.board.first().is_some_and(in_line) {
            return;
        }
        let later = now + self.rto_bounds.min;
        for timer in [&mut self.timers.rto, &mut self.timers.probe] {
            *timer = timer.map(|at| if at <= now { later } else { at });
        }
    }

    /// Whatever is due. Afterwards `plan` may have something.
    pub fn on_timer(&mut self, now: Instant) -> Happened {
        let mut happened = Happened::default();
        let due = |t: Option<Instant>| t.is_some_and(|t| t <= now);
        if due(self.timers.pace) {
            self.timers.pace = None;
        }
        if due(self.timers.reorder) {
            let lost = self.detect_losses(now, false);
            happened.lost_bytes = lost;
            if lost > 0 && self.recovery.is_open() {
                self.enter_recovery(now, Congestion::Loss);
                happened.recovery = true;
            }
        }
        if due(self.timers.early) {
            self.on_early_timer();
        }
        if due(self.timers.probe) {
            self.timers.probe = None;
            if !self.board.is_empty() {
                self.probe_wanted = true;
                self.probed_end = Some(self.snd_nxt);
            }
        }
        if due(self.timers.persist) {
            self.timers.persist = None;
            self.persist_backoff = (self.persist_backoff + 1).min(12);
            // Over a window that is small, not closed, waiting ends here: what fits it goes (the override timeout of
            // RFC 9293 3.8.6.2.1).
            if !self.window_edge().after(self.snd_nxt) {
                self.probes_unanswered = self.probes_unanswered.saturating_add(1);
                self.window_probe_wanted = true;
                self.urgent_notice_wanted = true;
                self.arm_persist(now);
            }
        }
        if due(self.timers.hole) {
            self.timers.hole = None;
            self.hole_backoff = (self.hole_backoff + 1).min(12);
            self.window_probe_wanted = true;
        }
        if due(self.timers.rto) {
            self.timers.rto = None;
            happened.rto = self.on_rto(now);
        }
        happened.mtu_probe = self.take_mtu_probe();
        happened
    }

    fn on_rto(&mut self, now: Instant) -> bool {
        if self.board.is_empty() {
            return false;
        }
        if self.board.first().is_some_and(|r| r.sacked) {
            self.board.forget_sacks();
        }
        self.mark_lost_by_timeout(now);
        let first = !matches!(self.recovery, Recovery::Timeout { .. });
        self.report_losses(now);
        self.note_rate_before_silence(now);
        self.cc.on_rto(now, self.board.pipe() + self.board.lost_bytes(), self.board.pipe());
        self.recovery = Recovery::Timeout { recover: self.snd_nxt, undecided: first };
        self.head_due = true;
        self.dup_acks = 0;
        self.timers.probe = None;
        self.timers.reorder = None;
        self.probe_wanted = false;
        self.rtt.back_off();
        self.silence.timeouts = self.silence.timeouts.saturating_add(1);
        self.silence.asked_bytes = 0;
        self.timers.rto = Some(now + self.rto());
        true
    }

    /// The head, and what was sent long enough ago (RFC 8985 6.3).
    pub(super) fn mark_lost_by_timeout(&mut self, now: Instant) {
        let head = self.board.first().map(|r| r.seq);
        let reo = self.rack.reo_wnd(true, 0, self.rtt.min_rtt(), self.rtt.srtt_or_default());
        let rack = self.rack;
        // Without SACK nothing tells what has arrived behind the head: all of it is sent again (RFC 5681 section 3.1).
        let all = !self.sack_permitted;
        self.board.mark_lost(|r| all || Some(r.seq) == head || rack.overdue(now, r.sent_at, reo));
    }

    /// The retransmission timeout, backed off as it is.
    #[must_use]
    pub fn rto(&self) -> Duration {
        self.rtt.rto(self.rto_bounds.min, self.rto_bounds.max)
    }
}
