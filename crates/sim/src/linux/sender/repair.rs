//! What is lost, what was no loss after all, and what becomes of the windows meanwhile (Linux
//! `tcp_fastretrans_alert`).

use farlink_wire::{Duration, Instant};

use super::super::undo::Undo;
use super::{Arrived, PROBE_MARGIN, REORDERING, RTO_MAX, Sender, State, Told};

impl Sender {
    /// Looks for losses, and moves between the states (Linux `tcp_fastretrans_alert`). How many
    /// segments were newly judged lost.
    pub(super) fn judge(&mut self, a: &Arrived<'_>, told: Told) -> u32 {
        self.new_only = false;
        if told.advanced && self.board.is_given_up() {
            return 0;
        }
        match self.state {
            State::Recovery if self.una >= self.high => self.end_recovery(a),
            State::Recovery if told.advanced && self.undo.was_delayed(a.echo_ms) => {
                if self.board.resent_out > 0 {
                    // What was sent again may have been needless, too: it is waited for.
                    return 0;
                }
                self.take_back(true);
                self.state = State::Open;
            }
            State::Loss => self.judge_timeout(a, told),
            _ => {}
        }
        if self.state != State::Loss && self.undo.was_needless() {
            self.take_back(false);
            self.state = State::Open;
        }
        if self.state == State::Open {
            self.undo.is_over();
        }
        let lost = if self.has_sack {
            self.detect(a.now)
        } else if self.state == State::Recovery {
            // NewReno: a partial acknowledgement shows the next hole.
            u32::from(told.advanced && self.board.lose_head())
        } else if self.state == State::Open && self.board.sacked_out >= REORDERING {
            u32::from(self.board.lose_head())
        } else {
            0
        };
        if lost > 0 && self.state == State::Open {
            self.enter_recovery();
        }
        lost
    }

    /// Everything up to where the repair began has arrived (`tcp_try_undo_recovery`).
    fn end_recovery(&mut self, a: &Arrived<'_>) {
        if self.undo.may_undo(a.echo_ms) {
            self.take_back(false);
        } else if self.state == State::Recovery && !self.controller.governs_recovery() {
            self.window.cwnd = self.window.ssthresh;
        }
        self.state = State::Open;
    }

    /// After a timeout (Linux `tcp_process_loss`, RFC 5682 section 3.1).
    fn judge_timeout(&mut self, a: &Arrived<'_>, told: Told) {
        let recovered = self.una >= self.high;
        if told.advanced && self.undo.may_undo(a.echo_ms) {
            self.take_back(true);
            if self.has_sack {
                self.state = State::Open;
                return;
            }
        }
        if self.undo.frto {
            if told.original {
                // Step 3.b: what was sent only once has arrived, so not everything was lost.
                self.take_back(true);
                self.state = State::Open;
                return;
            }
            if self.nxt > self.high {
                // Step 3.a: the loss was real.
                self.undo.frto &= !(told.sacked || told.repeated);
            } else if told.advanced && !recovered {
                // Step 2.b: new data shows which it was.
                self.high = self.nxt;
                let has_new = self.nxt < self.end() && self.edge > self.nxt;
                self.undo.frto = has_new;
                self.new_only = has_new;
                if has_new {
                    return;
                }
            }
        }
        if recovered {
            self.end_recovery(a);
        }
    }

    pub(super) fn detect(&mut self, now: Instant) -> u32 {
        // Linux `tcp_rack_reo_wnd`: no tolerance once losses are certain.
        let certain = self.state != State::Open || self.board.sacked_out >= REORDERING;
        let tolerance = if certain { Duration::ZERO } else { (self.rtt.min / 4).min(self.rtt.srtt) };
        let (lost, again) = self.board.detect(now, tolerance);
        self.reorder_at = again.map(|t| t + PROBE_MARGIN);
        lost
    }

    pub(super) fn enter_recovery(&mut self) {
        self.high = self.nxt;
        self.undo.begin(self.una, &self.window, self.board.resent_out);
        self.window.ssthresh = self.controller.ssthresh(&self.window);
        self.prr_delivered = 0;
        self.prr_out = 0;
        self.state = State::Recovery;
    }

    /// A reduction was a mistake; with `unmark` also what was taken for lost.
    pub(super) fn take_back(&mut self, unmark: bool) {
        if unmark {
            self.board.forgive();
        }
        self.undo.restore(&mut self.window);
        self.undo.frto = false;
        self.controller.on_undo();
    }

    /// PRR (Linux `tcp_cwnd_reduction`, RFC 9937).
    pub(super) fn reduce(&mut self, delivered: u32, lost: u32, advanced: bool) {
        let in_flight = self.board.in_flight();
        self.prr_delivered += delivered;
        let room = i64::from(self.window.ssthresh) - i64::from(in_flight);
        let count = if room < 0 {
            let share = u64::from(self.window.ssthresh) * u64::from(self.prr_delivered);
            share.div_ceil(u64::from(self.undo.prior_cwnd.max(1))) as i64 - i64::from(self.prr_out)
        } else {
            let mut count =
                (i64::from(self.prr_delivered) - i64::from(self.prr_out)).max(i64::from(delivered));
            if advanced && lost == 0 {
                count += 1;
            }
            count.min(room)
        };
        let least = i64::from(self.prr_out == 0);
        self.window.cwnd = in_flight + count.max(least) as u32;
    }

    pub(super) fn on_rto(&mut self, now: Instant) {
        if self.patience.ends(now, self.edge <= self.una, self.rtt.rto() >= RTO_MAX) {
            self.rto_at = None;
            return;
        }
        // With a window of nothing the repetition is a probe, and the timeout counts as the first
        // each time.
        let shut = self.edge <= self.una;
        let again = self.state == State::Loss && !shut;
        if self.state == State::Open || self.una >= self.high || (self.state == State::Loss && shut) {
            self.undo.begin(self.una, &self.window, self.board.resent_out);
            self.window.ssthresh = self.controller.ssthresh(&self.window);
        }
        self.undo.frto = self.state == State::Open || again;
        self.new_only = false;
        self.board.lose_all(now, self.has_sack);
        self.window.cwnd = self.board.in_flight() + 1;
        self.controller.on_timeout();
        self.state = State::Loss;
        self.high = self.nxt;
        self.reorder_at = None;
        self.rtt.backoff += 1;
        self.rto_at = Some(now + self.rtt.rto());
    }

    /// The path takes no more than `mss` payload bytes: what is larger is sent again in smaller
    /// segments, and that is no sign of congestion (Linux `tcp_simple_retransmit`). Or it takes
    /// more again.
    pub fn set_mss(&mut self, mss: u32) {
        self.mss = u64::from(mss);
        self.controller.set_mss(mss);
        let fin_end = self.closed.then(|| self.written + 1);
        if self.board.cut(self.mss, fin_end) == 0 {
            return;
        }
        if self.state != State::Loss {
            self.high = self.nxt;
            if self.state == State::Open {
                // Linux `tcp_current_ssthresh`.
                self.window.ssthresh = self.window.ssthresh.max(self.window.cwnd / 2 + self.window.cwnd / 4);
            }
            self.undo = Undo::default();
            self.state = State::Loss;
        }
        self.new_only = false;
    }
}
