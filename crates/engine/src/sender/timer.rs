//! The deadlines of a sender: retransmission (RFC 6298), tail loss probe (RFC 8985), persist (RFC
//! 9293).

use farlink_cc::Congestion;
use farlink_wire::{Duration, Instant};

use super::silence::Expected;
use super::{Happened, Purpose, Sender};
use crate::due::{Deadline, Due, Earliest};
use crate::link::{Link, covered};
use crate::peer::Identity;
use crate::rtt::micros;
use crate::scoreboard::Sent;

/// A receiver may delay the acknowledgement of a single segment this long (RFC 8985 7.2, Linux
/// TCP_DELACK_MAX).
const MAX_ACK_DELAY: Duration = Duration::from_millis(200);
/// Behind a hole the receiver is asked after so many timeouts.
pub(super) const HOLE_RTOS: u32 = 2;
/// Smallest probe timeout (Linux TCP_TIMEOUT_MIN: 2 jiffies).
pub(super) const PTO_MIN: Duration = Duration::from_millis(10);

/// An acknowledgement of a host with timestamps, IPv6. Bytes.
const HOST_ACK_BYTES: u32 = 72;

/// Deadlines of what is under way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Timers {
    /// Retransmission timeout.
    pub rto: Option<Instant>,
    /// Tail loss probe.
    pub probe: Option<Instant>,
    /// RACK looks again.
    pub reorder: Option<Instant>,
    /// The next round of early repetition.
    pub early: Option<Instant>,
}

impl Timers {
    /// The earliest.
    #[inline]
    fn earliest(&self) -> Earliest {
        let Self { rto, probe, reorder, early } = *self;
        Earliest::default()
            .and(Due::Retransmission, rto)
            .and(Due::TailProbe, probe)
            .and(Due::Reordering, reorder)
            .and(Due::EarlyRepetition, early)
    }

    /// What is due does not count.
    pub fn put_off(&mut self, now: Instant) {
        let Self { rto, probe, reorder, early } = self;
        for timer in [rto, probe, reorder, early] {
            *timer = timer.filter(|at| *at > now);
        }
    }
}

impl Sender {
    /// When it does something without being told to.
    #[must_use]
    pub fn deadline(&self) -> Option<Deadline> {
        let earliest = self.timers.earliest();
        let earliest = earliest.and(Due::Pacing, self.governor.paced_until());
        let earliest = earliest.and(Due::Pacing, self.governor.held_until(self.snd_nxt()));
        earliest.and_of(self.peer.deadline()).deadline()
    }

    /// Restarts the timers after an acknowledgement of something new (RFC 6298 5.3).
    pub(super) fn arm(&mut self, now: Instant) {
        if self.flight.is_empty() {
            self.timers.rto = None;
            self.timers.probe = None;
            self.timers.reorder = None;
            self.timers.early = None;
            return;
        }
        self.timers.rto = Some((self.rto_begins_at(now) + self.rto()).max(now + PTO_MIN));
        self.arm_probe(now);
    }

    /// When the timer that is restarted now began to run. At the end of what there is to send to a
    /// gateway, over a link whose queue is here, it is when the oldest segment left (RFC 7765): an
    /// end that is lost would cost a round trip more. Else it is now: there may be other queues.
    fn rto_begins_at(&self, now: Instant) -> Instant {
        let oldest = self.flight.board().first().filter(|r| !r.lost && !r.sacked);
        let is_end = self.tail_after && self.silence.expected.is_own && self.silence.timeouts == 0;
        oldest.filter(|_| is_end).map_or(now, |r| r.sent_at.min(now))
    }

    /// Starts the timers that do not run yet, after sending.
    pub(super) fn arm_after_sending(&mut self, now: Instant, purpose: Purpose) {
        if purpose == Purpose::TailProbe {
            self.timers.rto = Some(now + self.rto());
        } else if purpose == Purpose::New {
            self.arm_probe_by(now, self.rtt().probe_after_soonest());
        }
        if self.timers.rto.is_none() {
            // Others may show meanwhile how long a segment takes: it is asked for when it is due
            // (`wait_for_late_acks`).
            self.timers.rto = Some(now + self.rto().saturating_sub(self.flight.rto_guessed()));
        }
        self.hold_timer_while_blind(now);
    }

    /// The probe timeout (RFC 8985 7.2). One probe per flight.
    pub(super) fn arm_probe(&mut self, now: Instant) {
        self.arm_probe_by(now, self.rtt().probe_after());
    }

    fn arm_probe_by(&mut self, now: Instant, pto: Option<Duration>) {
        self.timers.probe = self.proof_due();
        if self.timers.probe.is_some() {
            return;
        }
        let spent = self.probed_end.is_some_and(|e| self.snd_una().before(e));
        let nothing = self.flight.is_empty() || self.flight.board().sacked_bytes() > 0;
        if !self.flight.has_sack() || !self.governor.is_open() || nothing || spent {
            return;
        }
        let Some(pto) = pto else { return };
        let mut pto = pto.max(PTO_MIN) + self.answers_late_by();
        // A few small ones are acknowledged without delay.
        if self.flight.is_one_segment() {
            pto += MAX_ACK_DELAY;
        }
        let at = now + pto;
        if self.timers.rto.is_none_or(|rto| at < rto) {
            self.timers.probe = Some(at);
        }
    }

    /// When the first segment that is larger than a packet should have been acknowledged, if it is
    /// the oldest.
    fn proof_due(&self) -> Option<Instant> {
        let of_packet = self.larger_than?;
        let is_waited_for = |r: &&Sent| !r.lost && !r.sacked && r.repeats == 0 && r.unit_bytes > of_packet;
        let first = self.flight.board().first().filter(is_waited_for)?;
        Some(first.sent_at + self.rtt().srtt()? + self.proof_wait?)
    }

    /// It has not been: all goes again, which is no sign of congestion.
    fn repeat_unproved(&mut self, now: Instant) -> bool {
        if self.proof_wait.take().is_none() || self.flight.is_empty() {
            return false;
        }
        self.flight.resend_all();
        self.flight.forget_losses();
        self.arm(now);
        true
    }

    pub(super) fn arm_persist(&mut self, now: Instant) {
        self.peer.wait(now, self.rto(), self.flight.rto_bounds().max);
    }

    /// `hole`: all that follows without a gap is acknowledged, and more is held behind a gap. The
    /// receiver may have got what is missing round us, and nothing that we have to send would draw
    /// its word: it is asked, as over a closed window.
    pub fn watch_hole(&mut self, now: Instant, hole: bool) {
        let wait = hole.then(|| (self.rto() * HOLE_RTOS, self.flight.rto_bounds().max));
        self.peer.watch_hole(now, wait);
    }

    /// What its link lets expect. Segments may wait in a queue of others, behind the link, or in it
    /// where its rate is only a guess: a timeout of everything at once says little then, so the
    /// first segment asks. `gateway`: at its other end.
    pub fn expect_of_link(&mut self, link: Option<&Link>, gateway: Option<Identity>) {
        let kind = self.cc().kind();
        let is_said = kind.is_clocked_by_queue() && link.is_some_and(Link::is_rate_declared);
        // A link that carries less than was said has a queue, too.
        let queues = self.rtt().srtt().is_some_and(|srtt| srtt > self.rtt().min_rtt() / 2 * 3);
        let is_own = is_said && !queues;
        let is_unsaid = link.is_some_and(|link| !link.is_rate_declared());
        self.flight.note_segment_took(link.and_then(Link::segment_took));
        self.silence.expected = Expected {
            may_wait: kind.goes_by_link_rate() && !is_said,
            is_unsaid,
            is_clocked: is_said,
            is_own,
            is_lossy: is_own && link.is_some_and(Link::is_lossy),
            acks_late_us: acks_late_us(link, gateway),
            packet_time: link.map(|link| link.packet_time(gateway)).unwrap_or_default(),
        };
    }

    /// The first of what is under way leaves, and nothing has been heard yet.
    pub fn expect_late_acks(&mut self, link: Option<&Link>, gateway: Option<Identity>) {
        self.silence.expected.acks_late_us = acks_late_us(link, gateway);
        self.silence.expected.packet_time = link.map(|link| link.packet_time(gateway)).unwrap_or_default();
    }

    /// Since a timer was set others may have begun to send, and the acknowledgements of all take
    /// turns on a slow way back, or the link may have been found to be slower: what is due waits
    /// until it would be due now.
    pub fn wait_for_late_acks(&mut self, now: Instant) {
        let (late_by, guessed) = (self.answers_late_by(), self.flight.rto_guessed());
        let is_due = |timer: Option<Instant>| timer.is_some_and(|at| at <= now);
        if (late_by.is_zero() && self.rtt().guess().is_none()) || self.silence.timeouts > 0 {
            return;
        }
        let Some(oldest) = self.flight.board().first().map(|r| r.sent_at) else { return };
        let rto_at = oldest.max(self.progress_at()) + self.rto();
        if is_due(self.timers.rto) && rto_at > now {
            let again_at = if guessed.is_zero() { rto_at } else { now + self.flight.rto_bounds().min };
            self.timers.rto = Some(rto_at.min(again_at));
        }
        if is_due(self.timers.probe) || (self.timers.probe.is_none() && !guessed.is_zero()) {
            self.arm_probe(oldest.max(self.progress_at()));
        }
    }

    /// The way delivers, and nothing has arrived that left after `newest`. What left later stands
    /// in line before a bottleneck, behind what others have sent: it is not lost, however long that
    /// takes, and a repetition would only stand behind it. Timers that are due wait a little, as
    /// long as the largest RTO in all. `sooner`: where `newest` is when it would have been
    /// answered.
    pub fn wait_in_line(&mut self, now: Instant, newest: Instant, sooner: Duration) {
        let bounds = self.flight.rto_bounds();
        let in_line = |r: &Sent| r.sent_at + sooner > newest && now.since(r.sent_at) < bounds.max;
        if !self.flight.board().first().is_some_and(in_line) {
            return;
        }
        let later = now + bounds.min;
        for timer in [&mut self.timers.rto, &mut self.timers.probe] {
            *timer = timer.map(|at| if at <= now { later } else { at });
        }
    }

    /// Whatever is due. Afterwards `plan` may have something.
    pub fn on_timer(&mut self, now: Instant) -> Happened {
        let mut happened = Happened::default();
        let due = |t: Option<Instant>| t.is_some_and(|t| t <= now);
        self.governor.on_timer(now);
        if due(self.timers.reorder) {
            let lost = self.detect_losses(now, false);
            self.repeat_beyond();
            happened.lost_bytes = lost;
            if lost > 0 && self.governor.is_open() {
                self.enter_recovery(now, Congestion::Loss);
                happened.recovery = true;
            }
        }
        if due(self.timers.early) {
            self.on_early_timer();
        }
        if due(self.timers.probe) {
            self.timers.probe = None;
            happened.unproved = due(self.proof_due()) && self.repeat_unproved(now);
            if !self.flight.is_empty() && !happened.unproved {
                self.probe_wanted = true;
                *self.probed_end = Some(self.snd_nxt());
            }
        }
        self.peer.on_timer(now, self.snd_nxt(), self.rto(), self.flight.rto_bounds().max);
        happened.silent = self.peer.miss_word(now, self.flight.rto_bounds().max);
        if due(self.timers.rto) {
            self.timers.rto = None;
            happened.rto = self.on_rto(now);
        }
        happened.mtu_probe = self.take_mtu_probe();
        happened
    }

    fn on_rto(&mut self, now: Instant) -> bool {
        if self.flight.is_empty() || self.waits_for_keeper(now) || self.waits_for_room(now) {
            return false;
        }
        self.flight.on_rto(now);
        self.report_losses(now);
        self.note_rate_before_silence(now);
        let flight = &self.flight;
        let bytes = (flight.in_flight_bytes(), flight.board().pipe());
        self.governor.on_rto(now, bytes, flight.next(), self.silence.expected.is_unsaid);
        self.timers.probe = None;
        self.timers.reorder = None;
        self.probe_wanted = false;
        self.silence.timeouts = self.silence.timeouts.saturating_add(1);
        self.silence.asked_bytes = 0;
        if self.silence.persists() {
            self.flight.reset_backoff();
        }
        self.timers.rto = Some(now + self.rto());
        true
    }

    /// The retransmission timeout, backed off as it is.
    #[must_use]
    pub fn rto(&self) -> Duration {
        self.flight.rto(self.silence.expected.is_lossy) + self.answers_late_by()
    }

    /// By how much the answer to what is under way may come later than round trips so far let
    /// expect: acknowledgements take turns, and packets take their time. What samples have shown of
    /// that is in the round trip already, and a little is in the lower bound of the timeout.
    pub(super) fn answers_late_by(&self) -> Duration {
        let Expected { acks_late_us, packet_time, .. } = self.silence.expected;
        let largest = self.flight.in_flight_bytes().min(u64::from(self.mss()));
        let answer = packet_time.of_answer(largest);
        // As a rule nothing of it is new, and each packet asks.
        let took = self.rtt().packets_took();
        let late =
            if answer <= took { Duration::ZERO } else { answer.saturating_sub(took + self.covered_time()) };
        if acks_late_us == 0 { late } else { late + Duration::from_micros(acks_late_us.into()) }
    }

    /// How long a segment with so much payload took into the link, where that is much.
    pub(super) fn packet_took(&self, payload_bytes: u32) -> Duration {
        let took = self.silence.expected.packet_time.of_segment(payload_bytes.into());
        if took > self.covered_time() { took } else { Duration::ZERO }
    }

    fn covered_time(&self) -> Duration {
        covered(self.flight.rto_bounds().min)
    }
}

/// By how much acknowledgements may be late, microseconds: each sender has this, so it is small.
/// Those of gateways take turns, however many connections there are. Those of hosts stand in a
/// queue, which holds so many and no more.
fn acks_late_us(link: Option<&Link>, gateway: Option<Identity>) -> u32 {
    let in_queue =
        |link: &Link| if gateway.is_none() { link.acks_wait(HOST_ACK_BYTES) } else { Duration::MAX };
    let late = link.map_or(Duration::ZERO, |link| link.acks_late_by().min(in_queue(link)));
    micros(late)
}
