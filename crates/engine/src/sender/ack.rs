//! What acknowledgements mean for a sender: window, losses, recovery.

use farlink_cc::{Ack, Congestion};
use farlink_wire::{Instant, SackBlock, SeqNum};

use super::flight::Told;
use super::timer::PTO_MIN;
use super::{Happened, Sender};
use crate::rate::RateSample;
use crate::scoreboard::Acked;

/// Segments of new data that may be sent while it is not clear whether a timeout was spurious (RFC
/// 5682 step 2b).
const NEW_IN_DOUBT: u32 = 2;

impl Sender {
    /// A window by a segment at `seq` that acknowledges `ack`, see `PeerWindow::update`. Returns
    /// whether it opened.
    pub fn update_window(&mut self, seq: SeqNum, ack: SeqNum, bytes: u64, kept: bool) -> bool {
        self.note_refused();
        let opened = self.peer.update(self.flight.una(), seq, ack, bytes, kept);
        self.note_stopped();
        opened
    }

    /// The receiver acknowledged up to `ack` (within what was sent), with SACK blocks. `pure`:
    /// without payload, window change, SYN or FIN, so that a repetition counts as duplicate.
    pub fn on_ack(
        &mut self,
        now: Instant,
        ack: SeqNum,
        sack: &[SackBlock],
        pure: bool,
        ece: bool,
    ) -> Happened {
        let mut happened = Happened::default();
        let prior_in_flight = self.flight.pipe();
        let (una, advanced) = (self.flight.una(), ack.after(self.flight.una()));
        let sack = if self.flight.has_sack() { sack } else { &[] };
        happened.twice_bytes = self.flight.note_dsack(ack, sack);
        if ack.before(una) || (!advanced && self.flight.is_empty()) {
            return happened;
        }
        let acked = self.acknowledge(now, ack, sack);
        happened.delivered_bytes = acked.delivered_bytes;
        // What is answered too soon was not the repetition.
        let too_soon = || self.flight.answered_too_soon(&acked, self.packet_took(self.mss())).is_some();
        happened.original = acked.original || too_soon();
        self.go_on(now, ack, advanced, acked.delivered_bytes);
        happened.progress = advanced;
        if acked.rtt.is_some_and(|rtt| self.flight.meets_boundary(now, rtt)) {
            self.forget_phase(now);
        }
        let newest_at = acked.newest.map(|(sent_at, ..)| sent_at);
        let of_old_way = self.flight.is_of_old_way(newest_at);
        let of_old_phase = self.flight.is_of_old_phase(newest_at);
        self.measure(now, &acked, advanced, of_old_way || of_old_phase);
        // An answer that comes sooner than any before was to an earlier transmission (RFC 8985 6.2
        // step 2). All before may have waited: then nothing would ever be learned of repetitions.
        let soonest = || self.flight.soonest().min(self.flight.rtt().soonest_of_all());
        let known = acked.newest.filter(|(sent_at, _, again)| !again || now.since(*sent_at) >= soonest());
        let again = acked.newest.is_some_and(|(.., again)| again);
        happened.note_newest(known, again, acked.large_sent_at);
        let mut sample = self.flight.sample_rate(now, &acked);
        // A copy that has come twice is behind no gap.
        let is_pure = pure && happened.twice_bytes == 0;
        let duplicate = self.flight.count_duplicates(advanced, is_pure, acked.sacked_bytes);
        self.repeat_dropped(advanced, newest_at);
        // What was told before tells nothing more: a segment that is not overdue yet has its timer.
        let news = !self.flight.has_sack() || advanced || acked.delivered_bytes > 0;
        let lost = if news { self.detect_losses(now, advanced) } else { 0 };
        happened.lost_bytes = self.flight.lost_by_leg(lost);
        sample.sample.lost_bytes += lost;
        self.decide_timeout(now, &acked, advanced);
        let probe = self.mtu_probe_bytes();
        happened.mtu_probe = self.take_mtu_probe();
        // Where nothing but the probe is lost, its size was the reason (RFC 4821 7.6.2); what the
        // old way loses says nothing of this one. What an outage has lost is no sign of congestion
        // either.
        let by_outage = self.flight.is_after_outage();
        let excused = of_old_way || by_outage || (happened.mtu_probe == Some(false) && lost <= probe);
        happened.recovery = self.answer_congestion(now, lost > 0 && !excused, ece);
        self.pace_recovery(&acked, advanced, duplicate, lost);
        if self.governor.leave_recovery(now, self.flight.una()) {
            self.flight.leave_recovery();
        }
        if acked.delivered_bytes > 0 && !of_old_way {
            let acked = Acked { rtt: acked.rtt.filter(|_| !of_old_phase), ..acked };
            self.learn(now, &acked, (&sample, prior_in_flight), &mut happened);
        }
        // What had all been acknowledged selectively brings nothing new at last (RFC 6298 5.2).
        if acked.delivered_bytes > 0 || self.flight.is_empty() {
            self.arm(now);
            self.wait_for_verdict(now, &acked);
        }
        happened
    }

    /// Something has arrived: nothing is silent, and the window moves on.
    fn go_on(&mut self, now: Instant, ack: SeqNum, advanced: bool, delivered_bytes: u64) {
        if advanced || delivered_bytes > 0 {
            self.end_silence();
        }
        if advanced {
            self.advance(now, ack);
        }
    }

    /// The controller and the link learn from what has been delivered, of this path and phase.
    fn learn(
        &mut self,
        now: Instant,
        acked: &Acked,
        (sample, prior_in_flight): (&RateSample, u64),
        happened: &mut Happened,
    ) {
        self.note_wait(now, acked.rtt);
        happened.waited_back = self.waited_back();
        if let Some(rtt) = acked.rtt {
            self.note_round(rtt.saturating_sub(happened.waited_back.unwrap_or_default()));
        }
        self.tell_controller(now, acked, sample, prior_in_flight);
        self.settle_phase(now, acked.rtt);
        happened.rtt = acked.rtt;
        happened.min_rtt = self.rtt().min_rtt();
        happened.rtt_is_full = acked.rtt_bytes >= self.mss();
    }

    /// Loss or a mark begins a recovery. Returns whether loss did.
    fn answer_congestion(&mut self, now: Instant, lost: bool, ece: bool) -> bool {
        let begins = lost && self.governor.is_open();
        if begins {
            self.enter_recovery(now, Congestion::Loss);
        }
        if self.governor.on_ece(self.flight.una(), self.flight.next(), ece, !self.flight.is_empty()) {
            self.enter_recovery(now, Congestion::Ecn);
        }
        begins
    }

    fn measure(&mut self, now: Instant, acked: &Acked, advanced: bool, of_old_path: bool) {
        let told = Told { advanced, of_old_path, took: self.packet_took(acked.rtt_bytes) };
        self.flight.measure(now, acked, told, self.silence.expected.is_unsaid);
    }

    /// What left together comes one after the other: the next acknowledgement is not farther away
    /// than the first one was. Where nothing is left to draw it, and the line is so fast that it
    /// would have come long ago, it is not waited for.
    fn wait_for_verdict(&mut self, now: Instant, acked: &Acked) {
        if self.governor.awaits_verdict().is_some() && !self.flight.is_after_outage() {
            let age = acked.age.min(self.flight.rto_bounds().max);
            let shown = self.rtt().srtt().map(|srtt| srtt + srtt / 4 + self.answers_late_by());
            let soonest = self.rtt().next_within().or(shown).filter(|_| self.tail_after);
            let soonest = soonest.map(|within| now + within.max(PTO_MIN));
            let usual = self.timers.rto.max(Some(now + age + age / 4));
            self.timers.rto = [usual, soonest].into_iter().flatten().min();
        }
    }

    fn acknowledge(&mut self, now: Instant, ack: SeqNum, sack: &[SackBlock]) -> Acked {
        self.note_lateness(now, ack);
        let acked = self.flight.acknowledge(now, ack, sack);
        self.note_kept(now, ack, sack);
        acked
    }

    /// Everything before `ack` has arrived.
    fn advance(&mut self, now: Instant, ack: SeqNum) {
        let soonest = self.flight.soonest().min(self.flight.rtt().soonest_of_all());
        self.flight.advance(now, ack);
        self.governor.advance(ack);
        self.peer.advance(ack);
        self.ahead.advance(now, ack, soonest);
        // Kept longer, it would stand for bytes half the sequence space away.
        *self.probed_end = self.probed_end.filter(|end| end.after(ack));
    }

    fn tell_controller(
        &mut self,
        now: Instant,
        acked: &Acked,
        sample: &RateSample,
        prior_in_flight_bytes: u64,
    ) {
        let rtt = self.flight.rtt();
        if acked.found.0 > 0 {
            self.governor.on_found(acked.found);
        }
        let holds_back = self.governor.on_ack(&Ack {
            now,
            acked_bytes: acked.delivered_bytes,
            rtt: acked.rtt,
            srtt: rtt.srtt().unwrap_or_default(),
            min_rtt: rtt.min_rtt(),
            in_flight_bytes: self.flight.pipe(),
            prior_in_flight_bytes,
            sample: sample.sample,
            app_limited: !self.governor.is_limited(),
            in_recovery: self.governor.is_fast(),
            round_start: sample.round_start,
            waited_back: self.waited_back(),
        });
        if holds_back {
            self.flight.mark_app_limited();
        }
    }

    /// What may be sent in recovery after an acknowledgement that found so many bytes lost.
    fn pace_recovery(&mut self, acked: &Acked, advanced: bool, duplicate: bool, lost_bytes: u64) {
        let duplicate_in_recovery = duplicate && self.governor.is_fast();
        let delivered = self.flight.credit(acked.delivered_bytes, advanced, duplicate_in_recovery);
        let (pipe, mss) = (self.flight.pipe_in_recovery(), self.flight.mss());
        let safe = advanced && lost_bytes == 0;
        let partial = !self.flight.has_sack() && advanced && lost_bytes > 0;
        self.governor.pace_recovery(delivered, pipe, safe, partial, mss);
    }

    pub(super) fn detect_losses(&mut self, now: Instant, advanced: bool) -> u64 {
        // What acknowledges all of a recovery is no partial acknowledgement (RFC 6582 section 3.2).
        // Elsewhere one segment is sent in vain for that; ahead of a window a round trip would be.
        let is_part = !self.ahead.is_on() || self.governor.recovers_beyond(self.flight.una());
        let partial = advanced && is_part;
        let found = self.flight.detect_losses(now, partial, self.governor.is_open());
        let (lost, again) = found.unwrap_or_default();
        self.timers.reorder = again;
        if found.is_some() {
            self.report_losses(now);
        }
        self.note_missing(lost);
        lost
    }

    /// Tells the controller which transmissions are taken for lost, if it wants to know.
    pub(super) fn report_losses(&mut self, now: Instant) {
        for loss in self.flight.take_losses(now) {
            self.governor.on_lost(&loss);
        }
    }

    /// The first acknowledgement after a timeout decides whether that was spurious. Without SACK
    /// the bytes behind the repeated one may have been there all the time. One that comes sooner
    /// than any answer can was not for the repetition (RFC 3522), and shows how long a round trip
    /// may be (RFC 4015 section 3.2 step 6).
    fn decide_timeout(&mut self, now: Instant, acked: &Acked, advanced: bool) {
        let too_soon = self.flight.answered_too_soon(acked, self.packet_took(self.mss()));
        let original = (acked.original || too_soon.is_some()) && advanced && self.flight.has_sack();
        let may_wait = advanced && self.silence.expected.is_unsaid;
        let doubtful_bytes = may_wait.then(|| self.mss() * NEW_IN_DOUBT);
        if acked.delivered_bytes > 0 && self.governor.decide_timeout(now, original, doubtful_bytes) {
            self.flight.unmark_lost();
            if let Some(rtt) = too_soon {
                self.flight.note_too_soon(rtt);
            }
        }
    }

    pub(super) fn enter_recovery(&mut self, now: Instant, why: Congestion) {
        let flight = &mut self.flight;
        self.governor.enter_recovery(now, why, flight.in_flight_bytes(), flight.next(), flight.mss());
        flight.enter_recovery();
        self.timers.probe = None;
    }
}

#[cfg(test)]
mod tests {
    use farlink_cc::{Config, Controller, Kind};
    use farlink_wire::{Duration, Instant, SackBlock, SeqNum};

    use super::super::{Plan, Purpose, RtoBounds, Sender, Supply};

    fn sender(now: Instant) -> Sender {
        let cc = Controller::new(&Config {
            kind: Kind::Cubic,
            mss: 1000,
            initial_window_segments: 10,
            fixed_rate_bps: None,
            window_limit_bytes: 1 << 30,
            unfair_window_bytes: None,
            handshake_rtt: None,
            acks_wait: Duration::ZERO,
            selective_acks: true,
            seed: 1,
            hystart: true,
        });
        let bounds = RtoBounds { min: Duration::from_millis(200), max: Duration::from_secs(60) };
        let mut s = Sender::new(now, SeqNum(0), cc, 1000, true, bounds);
        s.remember_rtt(Duration::from_millis(50));
        s
    }

    fn send(s: &mut Sender, now: Instant) {
        let seq = s.snd_nxt();
        s.on_sent(now, &Plan { seq, len: 500, fin: false, purpose: Purpose::New, mtu_probe: false });
    }

    /// What was sent after the loss had been found is not missing when all before it has arrived.
    #[test]
    fn without_sack_what_ends_a_recovery_shows_no_loss() {
        let mut now = Instant::from_millis(1_000_000);
        let mut s = sender(now);
        s.note_gateway(false, false);
        s.leave_ahead(crate::leave::Leave::All, true);
        (0..5).for_each(|_| send(&mut s, now));
        now += Duration::from_millis(50);
        for _ in 0..3 {
            let _ = s.on_ack(now, SeqNum(0), &[], true, false);
        }
        assert!(s.flight.has_lost());
        s.flight.on_sent_again(now, SeqNum(0), 1000, true);
        (0..2).for_each(|_| send(&mut s, now));
        now += Duration::from_millis(50);
        let happened = s.on_ack(now, SeqNum(2500), &[], true, false);
        assert!(happened.lost_bytes == 0 && !s.flight.has_lost() && s.governor.is_open());
    }

    /// A minute of timeouts counted as the time in which one segment was delivered. BBR sent the
    /// next one at 67 bit/s then, and whatever followed that waited for minutes.
    #[test]
    fn timeouts_are_no_measure_of_the_rate() {
        let mut now = Instant::from_millis(1_000_000);
        let mut s = sender(now);
        send(&mut s, now);
        send(&mut s, now);
        now += Duration::from_secs(60);
        s.flight.on_rto(now);
        s.flight.on_sent_again(now, SeqNum(0), 500, true);
        now += Duration::from_millis(100);
        let acked = s.flight.acknowledge(now, SeqNum(500), &[]);
        assert_eq!(s.flight.sample_rate(now, &acked).sample.rate_bps, Some(40_000));
    }

    /// A receiver may say of the last byte, too, that it has it, before it acknowledges it.
    #[test]
    fn nothing_is_waited_for_when_all_is_acknowledged() {
        let mut now = Instant::from_millis(1_000_000);
        let mut s = sender(now);
        send(&mut s, now);
        now += Duration::from_millis(50);
        let _ = s.on_ack(now, SeqNum(0), &[SackBlock { start: SeqNum(0), end: SeqNum(500) }], true, false);
        assert!(s.timers.rto.is_some(), "it may take that back");
        now += Duration::from_millis(5);
        let _ = s.on_ack(now, SeqNum(500), &[], true, false);
        assert!(s.timers.rto.or(s.timers.probe).or(s.timers.early).is_none());
    }

    #[test]
    fn a_tail_probe_is_forgotten_with_what_it_probed() {
        let mut now = Instant::from_millis(1_000_000);
        let mut s = sender(now);
        send(&mut s, now);
        now = s.timers.probe.expect("a probe is due");
        s.on_timer(now);
        let _ = s.on_ack(now, SeqNum(500), &[], true, false);
        // Half the sequence space later, without a probe in between.
        s.skip_to(now, SeqNum(500 + (1 << 31)));
        send(&mut s, now);
        assert!(s.timers.probe.is_some(), "the end of this flight has its own");
    }

    /// Hybla's window grew only where new data waited for it. With none left, what a timeout
    /// repeats went out a segment in each round trip that was measured last, which may be several
    /// of the present one.
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
        s.remember_rtt(Duration::from_millis(2_000));
        for _ in 0..200 {
            let (seq, purpose) = (s.snd_nxt(), Purpose::New);
            s.on_sent(now, &Plan { seq, len: 1000, fin: false, purpose, mtu_probe: false });
        }
        let end = s.snd_nxt();
        let (urgent_end, urgent_until, urgent_zero) = (None, None, None);
        let supply = Supply { end, fin: false, push: end, urgent_end, urgent_until, urgent_zero };
        now = s.timers.rto.expect("something is under way");
        s.on_timer(now);
        let begun = now;
        let mut arrivals = std::collections::VecDeque::new();
        while s.snd_una().before(end) {
            while let Some(plan) = s.plan(now, &supply, 1000) {
                s.on_sent(now, &plan);
                arrivals.push_back((now + Duration::from_millis(500), plan.seq + plan.len));
            }
            let acked = arrivals.front().map(|(at, _)| *at);
            let due = s.deadline().map(|due| due.at);
            now = [acked, due].into_iter().flatten().min().expect("it goes on").max(now);
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
