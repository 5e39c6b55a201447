//! What acknowledgements mean for a sender: window, losses, recovery.

use farlink_cc::{Ack, Congestion, Lost};
use farlink_wire::{Instant, SackBlock, SeqNum};

use super::{Happened, Sender};
use crate::rate::RateSample;
use crate::recovery::{DUP_THRESH, Prr, Recovery};
use crate::scoreboard::Acked;

impl Sender {
    /// A window by a segment at `seq` that acknowledges `ack` (RFC 9293 3.10.7.4). Returns whether it opened.
    ///
    /// `kept`: a gateway says so, which takes no promise back. Its right edge counts whatever came before: segments of the host
    /// itself that went round it have higher sequence numbers than it has reached.
    pub fn update_window(&mut self, seq: SeqNum, ack: SeqNum, bytes: u64, kept: bool) -> bool {
        let newer = self.window_max_bytes == 0
            || ack.after_eq(self.snd_una)
                && (self.wl_seq.before(seq) || (self.wl_seq == seq && self.wl_ack.before_eq(ack)));
        let edge = self.window_edge();
        let told = ack + u32::try_from(bytes).unwrap_or(u32::MAX >> 1).min(u32::MAX >> 1);
        if newer {
            self.wl_seq = seq;
            self.wl_ack = ack;
            self.window_bytes = bytes;
        } else if kept && told.after(edge) {
            self.window_bytes = u64::from(told.since(self.snd_una));
        } else {
            return false;
        }
        self.window_max_bytes = self.window_max_bytes.max(self.window_bytes);
        let opened = self.window_edge().after(edge);
        if opened {
            self.timers.persist = None;
            self.persist_backoff = 0;
            self.window_probe_wanted = false;
        }
        opened
    }

    /// The receiver acknowledged up to `ack` (within what was sent), with SACK blocks. `pure`: without payload,
    /// window change, SYN or FIN, so that a repetition counts as duplicate.
    pub fn on_ack(
        &mut self,
        now: Instant,
        ack: SeqNum,
        sack: &[SackBlock],
        pure: bool,
        ece: bool,
    ) -> Happened {
        let mut happened = Happened::default();
        let prior_in_flight = self.pipe();
        let advanced = ack.after(self.snd_una);
        let sack = if self.sack_permitted { sack } else { &[] };
        // What was sent twice on purpose is told twice, too.
        let copied = |b: &SackBlock| self.copied.end.is_some_and(|end| b.end.before_eq(end));
        if sack.first().is_some_and(|b| b.start.before(ack) && b.start.before(b.end) && !copied(b)) {
            self.rack.on_dsack(self.snd_una, self.snd_nxt);
        }
        if ack.before(self.snd_una) || (!advanced && self.board.is_empty()) {
            return happened;
        }
        let unknown = self.rtt.srtt().is_none();
        self.board.set_min_rtt(self.declared_rtt.filter(|_| unknown).unwrap_or(self.rtt.min_rtt()));
        let acked = self.board.acknowledge(now, ack, sack);
        happened.delivered_bytes = acked.delivered_bytes;
        if advanced || acked.delivered_bytes > 0 {
            self.end_silence();
        }
        if advanced {
            self.advance(now, ack);
            happened.progress = true;
        }
        let of_old_way = self.is_of_old_way(acked.newest.map(|(sent_at, ..)| sent_at));
        self.measure(now, &acked, advanced, of_old_way);
        let min_rtt = self.rtt.min_rtt();
        // An answer that comes sooner than any before was to an earlier transmission (RFC 8985 6.2 step 2).
        let known = acked.newest.filter(|(sent_at, _, again)| !again || now.since(*sent_at) >= min_rtt);
        happened.newest_sent_at = known.map(|(sent_at, ..)| sent_at);
        happened.newest_again = known.is_some_and(|(.., again)| again);
        let mut sample = self.rate.on_ack(now, &acked, self.board.lost_ever_bytes(), min_rtt);
        let duplicate = self.count_duplicates(advanced, pure, acked.sacked_bytes);
        // What was told before tells nothing more: a segment that is not overdue yet has its timer.
        let news = !self.sack_permitted || advanced || acked.delivered_bytes > 0;
        let lost = if news { self.detect_losses(now, advanced) } else { 0 };
        happened.lost_bytes = self.lost_by_leg(lost);
        sample.sample.lost_bytes += lost;
        self.decide_timeout(now, &acked, advanced);
        let probe = self.mtu_probe_bytes();
        happened.mtu_probe = self.take_mtu_probe();
        // Where nothing but the probe is lost, its size was the reason (RFC 4821 7.6.2); what the old way loses says nothing of this one.
        // What an outage has lost is no sign of congestion either.
        let by_outage = self.outage_until.is_some();
        let excused = of_old_way || by_outage || (happened.mtu_probe == Some(false) && lost <= probe);
        if lost > 0 && !excused && self.recovery.is_open() {
            self.enter_recovery(now, Congestion::Loss);
            happened.recovery = true;
        }
        self.on_ece(now, ece);
        let delivered = self.delivered_in_recovery(acked.delivered_bytes, advanced, duplicate);
        self.pace_recovery(delivered, advanced, lost);
        self.leave_recovery(now);
        if acked.delivered_bytes > 0 && !of_old_way {
            self.tell_controller(now, &acked, &sample, prior_in_flight);
        }
        if acked.delivered_bytes > 0 {
            self.arm(now);
        }
        happened
    }

    /// Everything before `ack` has arrived.
    fn advance(&mut self, now: Instant, ack: SeqNum) {
        self.head_due = false;
        let edge = self.window_edge();
        self.snd_una = ack;
        self.cwnd_stop = self.cwnd_stop.filter(|stop| stop.after(ack));
        // The edge stands until a segment moves it: acknowledged bytes leave the window.
        self.window_bytes = u64::from(if edge.after(ack) { edge.since(ack) } else { 0 });
        self.progress_at = now;
        self.rack.on_progress(ack);
        // Kept longer, it would stand for bytes half the sequence space away.
        self.probed_end = self.probed_end.filter(|end| end.after(ack));
        self.probes_unanswered = 0;
    }

    /// What an acknowledgement tells of the path: its round trip, and whether it keeps the order.
    fn measure(&mut self, now: Instant, acked: &Acked, advanced: bool, of_old_way: bool) {
        if let Some(rtt) = acked.rtt.filter(|_| !of_old_way) {
            self.rtt.sample(rtt);
        } else if advanced {
            self.rtt.reset_backoff();
        }
        let min_rtt = self.rtt.min_rtt();
        self.rack.update(now, acked, min_rtt);
        if self.gateway {
            self.rack.measure_reordering(now, acked, min_rtt, self.rtt.srtt_or_default());
        }
    }

    fn tell_controller(
        &mut self,
        now: Instant,
        acked: &Acked,
        sample: &RateSample,
        prior_in_flight_bytes: u64,
    ) {
        let ack = Ack {
            now,
            acked_bytes: acked.delivered_bytes,
            rtt: acked.rtt,
            srtt: self.rtt.srtt().unwrap_or_default(),
            min_rtt: self.rtt.min_rtt(),
            in_flight_bytes: self.pipe(),
            prior_in_flight_bytes,
            sample: sample.sample,
            app_limited: !self.cwnd_limited,
            in_recovery: self.recovery.is_fast(),
            round_start: sample.round_start,
        };
        self.cc.on_ack(&ack);
        if self.cc.holds_back() {
            self.rate.mark_app_limited(self.board.pipe());
        }
    }

    /// What may be sent in recovery after an acknowledgement that shows so many bytes delivered, and others lost.
    fn pace_recovery(&mut self, delivered_bytes: u64, advanced: bool, lost_bytes: u64) {
        let Recovery::Fast { prr, .. } = &mut self.recovery else { return };
        let (pipe, mss) = (self.board.pipe().saturating_sub(self.dup_credit_bytes), self.mss);
        prr.on_ack(delivered_bytes, pipe, advanced && lost_bytes == 0, mss);
        if !self.sack_permitted && advanced && lost_bytes > 0 {
            // A partial acknowledgement repeats the new head at once (RFC 6582 section 3.2 step 3).
            prr.force(mss);
        }
    }

    /// Returns whether this is a duplicate.
    fn count_duplicates(&mut self, advanced: bool, pure: bool, sacked: u64) -> bool {
        if advanced {
            self.dup_acks = 0;
            return false;
        }
        let duplicate = sacked > 0 || pure;
        if duplicate {
            self.dup_acks = self.dup_acks.saturating_add(1).min(10_000);
        }
        duplicate
    }

    /// Bytes that an acknowledgement shows to be delivered. Without SACK a duplicate stands for a segment, which the
    /// acknowledgement that covers it does not count again (RFC 9937 section 5).
    fn delivered_in_recovery(&mut self, acked: u64, advanced: bool, duplicate: bool) -> u64 {
        if self.sack_permitted {
            acked
        } else if advanced {
            let known = self.dup_credit_bytes.min(acked);
            self.dup_credit_bytes -= known;
            acked - known
        } else if duplicate && self.recovery.is_fast() {
            self.dup_credit_bytes += u64::from(self.mss);
            u64::from(self.mss)
        } else {
            0
        }
    }

    pub(super) fn detect_losses(&mut self, now: Instant, advanced: bool) -> u64 {
        self.timers.reorder = None;
        if self.board.is_empty() {
            return 0;
        }
        if !self.sack_permitted {
            let lost = self.detect_without_sack(advanced);
            self.report_losses(now);
            return lost;
        }
        if self.board.sacked_bytes() == 0 && self.recovery.is_open() {
            return 0;
        }
        let segments = self.board.sacked_bytes() / u64::from(self.mss.max(1));
        let srtt = self.rtt.srtt_or_default();
        let reo = if self.gateway {
            self.rack.measured_reo_wnd(now, srtt)
        } else {
            self.rack.reo_wnd(!self.recovery.is_open(), segments, self.rtt.min_rtt(), srtt)
        };
        let (lost, again) = self.rack.detect(now, &mut self.board, reo);
        self.timers.reorder = again;
        self.report_losses(now);
        lost
    }

    /// Tells the controller which transmissions are taken for lost, if it wants to know.
    pub(super) fn report_losses(&mut self, now: Instant) {
        let delivered_bytes = self.rate.delivered_bytes();
        let mut before = None;
        for loss in self.board.take_losses() {
            self.cc.on_lost(&Lost {
                now,
                bytes: u64::from(loss.end.since(loss.seq)),
                tx_in_flight_bytes: loss.then.in_flight_bytes,
                lost_since_sent_bytes: loss.lost_ever_bytes.saturating_sub(loss.then.lost_bytes),
                app_limited: loss.then.app_limited,
                continues: before == Some(loss.seq),
                delivered_bytes,
            });
            before = Some(loss.end);
        }
    }

    /// NewReno: the third duplicate, or a partial acknowledgement, means that the head is lost (RFC 6582). The duplicates are of what
    /// follows it; behind a partial acknowledgement nothing is known of the rest of its segment.
    fn detect_without_sack(&mut self, advanced: bool) -> u64 {
        let open = self.recovery.is_open();
        let len = match self.board.first() {
            Some(head) if open && self.dup_acks >= DUP_THRESH => head.end.since(head.seq).min(self.mss),
            Some(_) if advanced && !open => self.mss,
            _ => return 0,
        };
        self.board.mark_head_lost(len)
    }

    /// F-RTO (RFC 5682, SACK-enhanced): the first acknowledgement after a timeout that covers something never sent
    /// again shows that the timeout was spurious.
    fn decide_timeout(&mut self, now: Instant, acked: &Acked, advanced: bool) {
        let Recovery::Timeout { undecided, .. } = &mut self.recovery else { return };
        if !*undecided || acked.delivered_bytes == 0 {
            return;
        }
        *undecided = false;
        // Without SACK the bytes behind the repeated one may have been there all the time.
        if acked.original && advanced && self.sack_permitted {
            self.board.unmark_lost();
            self.recovery = Recovery::Open;
            self.cc.undo(now);
        }
    }

    pub(super) fn enter_recovery(&mut self, now: Instant, why: Congestion) {
        let in_flight = self.board.pipe() + self.board.lost_bytes();
        self.cc.on_congestion(now, why, in_flight);
        let prr = Prr::new(in_flight, self.cc.ssthresh_bytes(), self.mss);
        self.dup_credit_bytes = u64::from(self.dup_acks) * u64::from(self.mss);
        self.recovery = Recovery::Fast { recover: self.snd_nxt, prr };
        self.timers.probe = None;
    }

    fn leave_recovery(&mut self, now: Instant) {
        let (Recovery::Fast { recover, .. } | Recovery::Timeout { recover, .. }) = self.recovery else {
            return;
        };
        if self.snd_una.after_eq(recover) {
            self.cc.on_recovery_exit(now);
            self.rack.on_recovery_exit();
            self.recovery = Recovery::Open;
            self.dup_acks = 0;
        }
    }

    fn on_ece(&mut self, now: Instant, ece: bool) {
        if self.cwr_until.is_some_and(|s| self.snd_una.after_eq(s)) {
            self.cwr_until = None;
        }
        if ece && self.cwr_until.is_none() && self.recovery.is_open() && !self.board.is_empty() {
            self.cwr_until = Some(self.snd_nxt);
            self.cwr_owed = true;
            self.enter_recovery(now, Congestion::Ecn);
        }
    }
}

#[cfg(test)]
mod tests {
    use farlink_cc::{Config, Controller, Kind};
    use farlink_wire::{Duration, Instant, SeqNum};

    use super::super::{Plan, Purpose, RtoBounds, Sender, Supply};

    #[test]
    fn a_tail_probe_is_forgotten_with_what_it_probed() {
        let cc = Controller::new(&Config {
            kind: Kind::Cubic,
            mss: 1000,
            initial_window_segments: 10,
            fixed_rate_bps: None,
            window_limit_bytes: 1 << 30,
            unfair_window_bytes: None,
            handshake_rtt: None,
            selective_acks: true,
            seed: 1,
            hystart: true,
        });
        let bounds = RtoBounds { min: Duration::from_millis(200), max: Duration::from_secs(60) };
        let mut now = Instant::from_millis(1_000_000);
        let mut s = Sender::new(now, SeqNum(0), cc, 1000, true, bounds);
        s.rtt.sample(Duration::from_millis(50));
        let send = |s: &mut Sender, now| {
            let seq = s.snd_nxt;
            s.on_sent(now, &Plan { seq, len: 500, fin: false, purpose: Purpose::New, mtu_probe: false });
        };
        send(&mut s, now);
        now = s.timers.probe.expect("a probe is due");
        s.on_timer(now);
        let _ = s.on_ack(now, SeqNum(500), &[], true, false);
        // Half the sequence space later, without a probe in between.
        (s.snd_una, s.snd_nxt) = (SeqNum(500 + (1 << 31)), SeqNum(500 + (1 << 31)));
        send(&mut s, now);
        assert!(s.timers.probe.is_some(), "the end of this flight has its own");
    }

    /// Hybla's window grew only where new data waited for it. With none left, what a timeout repeats went out a segment in each
    /// round trip that was measured last, which may be several of the present one.
    #[test]
    fn the_window_grows_over_what_a_timeout_repeats() {
        let cc = Controller::new(&Config {
            kind: Kind::Hybla,
            mss: 1000,
            handshake_rtt: Some(Duration::from_millis(500)),
            window_limit_bytes: 1 << 30,
            ..Config::default()
        });
        let bounds = RtoBounds { min: Duration::from_millis(200), max: Duration::from_secs(60) };
        let mut now = Instant::from_millis(1_000_000);
        let mut s = Sender::new(now, SeqNum(0), cc, 1000, true, bounds);
        s.update_window(SeqNum(0), SeqNum(0), 1 << 20, true);
        s.rtt.sample(Duration::from_millis(2_000));
        for _ in 0..200 {
            let (seq, purpose) = (s.snd_nxt, Purpose::New);
            s.on_sent(now, &Plan { seq, len: 1000, fin: false, purpose, mtu_probe: false });
        }
        let end = s.snd_nxt;
        let (urgent_end, urgent_until, urgent_zero) = (None, None, None);
        let supply = Supply { end, fin: false, push: end, urgent_end, urgent_until, urgent_zero };
        now = s.timers.rto.expect("something is under way");
        s.on_timer(now);
        let begun = now;
        let mut arrivals = std::collections::VecDeque::new();
        while s.snd_una.before(end) {
            while let Some(plan) = s.plan(now, &supply, 1000) {
                s.on_sent(now, &plan);
                arrivals.push_back((now + Duration::from_millis(500), plan.seq + plan.len));
            }
            let acked = arrivals.front().map(|(at, _)| *at);
            now = [acked, s.timers.earliest()].into_iter().flatten().min().expect("it goes on").max(now);
            s.on_timer(now);
            while let Some((_, ack)) = arrivals.pop_front_if(|(at, _)| *at <= now) {
                let _ = s.on_ack(now, ack, &[], true, false);
            }
        }
        let took = now.since(begun);
        // One by one they took 330 s.
        assert!(took < Duration::from_secs(60), "200 segments in {took:?}");
    }
}
