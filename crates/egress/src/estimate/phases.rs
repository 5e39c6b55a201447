//! Satellites that take turns: every so often the link is away for a moment, and has another delay
//! and another rate from then on.
//!
//! What was measured across such a boundary is of neither phase. The packet that the boundary holds
//! shows it: it comes late by the time for which the link was away, at once, and the one that left
//! just before it did not. Where the operator says the period, a smaller step at the right moment
//! is one, too, and a large one at another moment is none.
//!
//! The rate of the phase before is the first guess of the next, until two rates of the new one
//! agree. Its delay is, until packets arrive as slowly as they left: nothing waits then.

use farlink_wire::time::{Duration, Instant};

use super::moving::Moving;
use super::peer::Sample;
use super::steer::GAIN_MIN;
use super::{LIFETIME, RateEstimate, SAMPLE_BYTES_MIN, time_of};

/// A packet that is held by less has met no boundary, unless one is due.
const HELD_MIN: Duration = Duration::from_millis(80);
/// The same where one is due.
const HELD_MIN_DUE: Duration = Duration::from_millis(10);
/// A packet that jitter holds is held by fewer spreads.
const HELD_SPREADS: u32 = 4;
/// One that is held for longer has met an outage.
const HELD_MAX: Duration = Duration::from_secs(1);
/// Boundaries come this much sooner or later than they are due.
const DUE_WITHIN: Duration = Duration::from_millis(250);
/// So often one that is due has not been seen when nothing is known of them any more.
const MISSED_MAX: u32 = 8;
/// Rates of the new phase agree if they differ by this part at most (one over it).
const AGREE_PARTS: u64 = 8;
/// The new phase is as usual after so many round trips, whatever has been seen.
const SETTLE_ROUNDS: u32 = 8;
/// Percent of the rate that is sent until it has been seen that nothing waits.
const SETTLE_GAIN: u32 = 85;
/// Nothing has been told for so long, though it should have been: the link may be away.
const SILENT_MIN: Duration = Duration::from_millis(20);
/// And for this part of a round trip (one over it), and so many times as long as reports are apart.
const SILENT_PARTS: u32 = 4;
const SILENT_INTERVALS: u32 = 4;
/// That is looked at by its mean over about so many.
const INTERVALS: u32 = 16;
/// Little is sent for so long, at most.
const HOLD_MAX: Duration = Duration::from_secs(1);
/// Two boundaries one after the other, so far apart at least.
const APART_MIN: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Phases {
    /// As the operator says.
    period: Option<Duration>,
    /// The last boundary: when the packet left that it held, and when that was noticed.
    last: Option<Instant>,
    noticed_at: Instant,
    /// Until the phase is as any other time.
    unsettled_until: Option<Instant>,
    /// Nothing is known of its rate so far.
    is_new: bool,
    /// The first rate that was seen.
    first_bps: Option<u64>,
    /// The last report, how late it was, and how far they are apart.
    heard_at: Option<Instant>,
    interval: Duration,
    /// Little is sent.
    holds: bool,
}

impl Phases {
    /// A boundary is due about then; `None`: nobody knows.
    fn is_due(&self, at: Instant) -> Option<bool> {
        let (period, last) = self.period.zip(self.last)?;
        let since = at.since(last).as_nanos();
        let after = since % period.as_nanos().max(1);
        let off = after.min(period.as_nanos() - after);
        let is_known = since / period.as_nanos().max(1) <= u128::from(MISSED_MAX);
        is_known.then_some(off <= DUE_WITHIN.as_nanos())
    }

    /// A packet that is held so long, and left then, has met one.
    fn is_boundary(&self, held: Duration, sent_at: Instant, (rtt, spread): (Duration, Duration)) -> bool {
        let jitters = spread * HELD_SPREADS;
        let least = match self.is_due(sent_at) {
            Some(false) => return false,
            Some(true) => HELD_MIN_DUE.max(jitters),
            None => HELD_MIN.max(rtt).max(jitters),
        };
        held >= least && held <= HELD_MAX.max(rtt * 2)
    }

    /// A report came.
    fn note_report(&mut self, now: Instant) {
        let Some(before) = self.heard_at.replace(now) else { return };
        let apart = now.since(before).min(HELD_MAX);
        if !self.holds {
            self.interval = (self.interval * (INTERVALS - 1) + apart) / INTERVALS;
        }
        self.holds = false;
    }

    /// A phase has begun, and its rate has not been seen.
    pub(super) fn is_new(&self) -> bool {
        self.is_new
    }

    /// Little is to be sent: the link seems to be away.
    pub(super) fn holds(&self) -> bool {
        self.holds
    }

    /// That the link was away until then is no outage.
    pub(super) fn explains(&self, back: Instant) -> bool {
        self.last.is_some() && self.noticed_at.max(back).since(self.noticed_at.min(back)) <= HELD_MAX
    }

    /// A phase has begun of late, and what waits there is looked at.
    pub(super) fn is_settling(&self, now: Instant) -> bool {
        self.unsettled_until.is_some_and(|until| now < until)
    }
}

impl RateEstimate {
    /// The link has another delay and another rate every so often; `None`: nobody says so.
    pub fn set_period(&mut self, period: Option<Duration>) {
        self.phases.period = period.filter(|period| !period.is_zero());
    }

    /// When the newest phase began, as far as that has been seen.
    #[must_use]
    pub fn phase_began(&self) -> Option<Instant> {
        self.phases.last
    }

    /// A report came of a packet that left then, and was held by so much longer than the one before
    /// it. A phase may have begun.
    pub(super) fn meets_boundary(&mut self, now: Instant, of_host: bool, held: (Instant, Duration)) {
        self.phases.note_report(now);
        let (sent_at, held) = held;
        // Hosts are late for reasons of their own.
        let may_be = !of_host || self.phases.period.is_some();
        if !may_be || !self.phases.is_boundary(held, sent_at, (self.round(), self.spread)) {
            return;
        }
        if self.phases.last.is_none_or(|last| sent_at.since(last) >= APART_MIN) {
            self.begin_phase(now, sent_at);
        }
    }

    /// Whoever hears the reports had no time for them for so long: that was no silence of the link.
    pub fn note_late(&mut self, late: Duration) {
        self.presence.note_late(late);
        self.phases.heard_at = self.phases.heard_at.map(|at| at + late);
    }

    fn begin_phase(&mut self, now: Instant, sent_at: Instant) {
        (self.phases.last, self.phases.noticed_at) = (Some(sent_at), now);
        self.phases.unsettled_until = Some(now + SETTLE_ROUNDS * self.beat());
        (self.phases.is_new, self.phases.first_bps) = (true, None);
        self.peers.iter_mut().for_each(|peer| peer.begin_phase(now, sent_at));
        self.recent.clear();
        (self.probe_until, self.draining, self.drained) = (None, None, None);
        (self.filling_bps, self.empty_at) = (None, now);
        self.moving = Moving::steady(now, self.rate_bps.unwrap_or(1));
        self.changed_at = now;
    }

    /// The first samples of a phase: two that agree are its rate. Whether there is no more to be
    /// learned of this one.
    pub(super) fn phase_goes_on(&mut self, now: Instant, sample: &Sample, rate_bps: u64) -> bool {
        if !self.phases.is_new {
            return false;
        }
        if !self.phases.is_settling(now) || !sample.saturated {
            self.phases.is_new = false;
            return false;
        }
        let agrees = |first: &u64| first.abs_diff(rate_bps) <= rate_bps / AGREE_PARTS;
        if self.phases.first_bps.replace(rate_bps).filter(agrees).is_none() {
            // What stands before the link goes meanwhile.
            (self.gain, self.gain_until) = (GAIN_MIN, Some(now + self.beat()));
            self.changed_at = now;
            return true;
        }
        self.phases.is_new = false;
        self.confirmed_at = now;
        self.rate_bps = Some(self.at_most(rate_bps.max(self.least_bps())));
        self.full_bps = rate_bps;
        self.moving = Moving::steady(now, rate_bps);
        self.next_probe_at = now + self.beat() * SETTLE_ROUNDS;
        (self.probe_gap, self.changed_at) = (0, sample.sent_at);
        false
    }

    /// Percent of the rate that may be sent in the beginning of a phase.
    pub(super) fn phase_gain(&mut self, now: Instant) -> u32 {
        if !self.phases.is_settling(now) {
            return u32::MAX;
        }
        if self.peers.iter().any(|peer| peer.is_settled) {
            self.phases.unsettled_until = None;
            return u32::MAX;
        }
        SETTLE_GAIN
    }

    /// Whether the link seems to be away: nothing is told of what should have arrived by now.
    pub(super) fn look_for_silence(&mut self, now: Instant) {
        // Where nothing has been held at a boundary so far, what is sent meanwhile may be lost, and
        // who sends little does not see that the link is back.
        let has_held = self.phases.last.is_some_and(|last| now.since(last) < LIFETIME);
        self.phases.holds = has_held && self.rate_bps.is_some() && !self.searching && self.is_silent(now);
    }

    fn is_silent(&self, now: Instant) -> bool {
        let Some(heard_at) = self.phases.heard_at.filter(|_| !self.hosts.tell) else { return false };
        let silent = now.since(heard_at);
        let spread = self.spread * HELD_SPREADS;
        let least = (self.round() / SILENT_PARTS)
            .max(SILENT_MIN)
            .max(spread)
            .max(self.phases.interval * SILENT_INTERVALS);
        if silent < least || silent > HOLD_MAX.max(self.round() * 2) {
            return false;
        }
        // By now this should have been told of, and more is under way than the link holds.
        let sent = self.sent.total_by(self.newest_sent_at + silent, now);
        let uncounted = self.uncounted.total_by(self.newest_sent_at + silent, now);
        let before = self.sent.total_by(self.newest_sent_at, now);
        let uncounted_before = self.uncounted.total_by(self.newest_sent_at, now);
        let Some((sent, before)) = sent.zip(before) else { return false };
        let Some((uncounted, uncounted_before)) = uncounted.zip(uncounted_before) else { return false };
        let untold = sent.saturating_sub(before).saturating_sub(uncounted.saturating_sub(uncounted_before));
        untold > u64::from(2 * SAMPLE_BYTES_MIN)
            && time_of(untold, self.rate_bps.unwrap_or(u64::MAX)) > silent / 4
    }

    /// When it is over at the latest.
    pub(super) fn silence_until(&self) -> Option<Instant> {
        let heard_at = self.phases.heard_at.filter(|_| self.phases.holds)?;
        Some(heard_at + HOLD_MAX.max(self.round() * 2) + Duration::from_millis(1))
    }
}
