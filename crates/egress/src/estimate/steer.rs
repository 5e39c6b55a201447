//! How fast to send, by what waits before the link: above the estimate while nothing does, below it
//! while too much does.
//!
//! What is too much is gone soon, if the rate is what it is taken for. Where a link comes and goes
//! it may be another one each time, and then a queue that is taken for longer than it is leaves the
//! link idle. So after an interruption less is drained at a time.

use farlink_wire::time::{Duration, Instant};

use super::peer::Sample;
use super::{PROBE_GAIN, PROBE_GAIN_DECLARED, RateEstimate};

/// Where what is declared is a mistake, each probe that fails makes the next one wait twice as
/// long, up to so many times the usual time.
const PROBE_GAP_MAX: u32 = 16;
/// Less than this part of a declared rate, percent, is no mistake of who declared it.
const MISTAKEN_PERCENT: u64 = 75;
/// What waits for so many round trips, though less is sent than the link carries, does not wait:
/// the path has become longer.
const DRAIN_ROUNDS: u32 = 4;
/// And in so many round trips it is looked at whether that helps.
const VERIFY_ROUNDS: u32 = 4;
/// Where bytes have waited for so long without a break, a little less is sent for a while than the
/// link carries. Else the queue that stands would be taken for a part of the path, and another one
/// be built on it.
const LOWERING_AFTER: Duration = Duration::from_secs(12);
/// So much is sent then, percent, at most, for a round trip.
const LOWERING_GAIN: u32 = 95;
/// The same while the link carries what is declared, for two and a half: it is not to seem to carry
/// less.
const LOWERING_GAIN_AS_DECLARED: u32 = 98;
/// Percent of the estimate that is sent at least, however much waits before the link.
pub(super) const GAIN_MIN: u32 = 10;
/// The same after an interruption, where the rate is declared.
const GAIN_MIN_RESTLESS: u32 = 40;
/// Less is sent for so many round trips in which nobody tells anything, where the rate is declared.
const SILENCE_ROUNDS_DECLARED: u32 = 2;
/// And where it is found: who tells the rate may be busy in the other direction.
const SILENCE_ROUNDS: u32 = 16;
/// And for no longer than so many times what a change takes to show, beside these.
const SILENCE_BEATS: u32 = 2;
/// A link is slow where a change takes so many round trips to show.
const SLOW_ROUNDS: u32 = 4;
/// Nothing is heard for so many round trips, though something waits for the link all the time: it
/// was interrupted.
const INTERRUPTED_ROUNDS: u32 = 2;
/// And for so many more its rate may be another one.
const RESTLESS_ROUNDS: u32 = 32;

/// Less is sent than the link carries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draining {
    since: Instant,
    /// How long bytes waited then.
    waited: Duration,
    /// The time in which a change showed then.
    beat: Duration,
}

/// Less is sent, so that what stands before the link goes: whether it does is looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drained {
    since: Instant,
    /// Bytes that had left by then.
    total_bytes: u64,
    /// So long they waited.
    waited: Duration,
    /// And so much arrived, bits per second.
    carried_bps: u64,
}

/// Whether the link has been there all the time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Presence {
    heard_at: Option<Instant>,
    /// Something waited for it then, and had for a while.
    was_wanted: bool,
    /// It was away, and has been heard again then.
    back_at: Option<Instant>,
}

impl Presence {
    /// Nothing could be heard for so long.
    pub(super) fn note_late(&mut self, late: Duration) {
        self.heard_at = self.heard_at.map(|at| at + late);
    }
}

impl RateEstimate {
    /// A report came. `busy_since`: since when something has been waiting for the link.
    pub(super) fn note_presence(&mut self, now: Instant, busy_since: Option<Instant>) {
        let is_wanted = busy_since.is_some_and(|since| now.since(since) >= self.beat());
        let was_wanted = core::mem::replace(&mut self.presence.was_wanted, is_wanted);
        let Some(heard_at) = self.presence.heard_at.replace(now) else { return };
        if was_wanted && now.since(heard_at) > INTERRUPTED_ROUNDS * self.beat() {
            self.presence.back_at = Some(now);
        }
    }

    /// The link has been away: it may have another rate each time.
    pub(super) fn has_been_away(&self) -> bool {
        self.presence.back_at.is_some()
    }

    /// The link was away a short time ago.
    pub(super) fn is_restless(&self, now: Instant) -> bool {
        let is_new = |back: Instant| now.since(back) < RESTLESS_ROUNDS * self.beat();
        self.presence.back_at.is_some_and(|back| is_new(back) && !self.phases.explains(back))
    }

    /// A report came, of a packet that left then. On a slow link a rate is that of many round
    /// trips. Where less is sent meanwhile, one packet that has found nothing before it shows that
    /// all has gone.
    pub(super) fn end_drain(&mut self, now: Instant, sent_at: Instant, waited: Duration) {
        let is_slow = self.beat() > SLOW_ROUNDS * self.round();
        let is_drained = sent_at >= self.changed_at && waited < self.waiting_wanted();
        if self.gain < 100 && is_slow && is_drained && !self.phases.holds() {
            (self.gain, self.gain_until, self.draining) = (100, None, None);
            self.changed_at = now;
        }
    }

    /// How fast to send, by what waits before the link.
    pub(super) fn steer(&mut self, now: Instant, sample: &Sample, busy: bool) {
        // A queue stands; a machine that is late now and then does not make one.
        let waited = self.lately().map(|s| s.waited).min().unwrap_or(sample.waited);
        let left = self.lately().filter_map(|s| self.waits_now(now, (s.sent_at, s.waited))).min();
        if left.is_none() && sample.sent_at < self.changed_at {
            // What was sent before the last change does not say how fast to send now.
            return;
        }
        let left = left.unwrap_or(waited);
        self.verify_drained(now, sample, left.max(waited));
        let may_probe = busy && self.may_probe(now, waited.max(left));
        let prepares = may_probe && self.is_mistaken() && now.since(self.lowered.0) > self.beat();
        if prepares {
            // It will most likely be in vain: what it adds shall find nothing before the link.
            self.next_probe_at = now + self.probe_time();
            self.lowered = (self.next_probe_at, 200 - PROBE_GAIN_DECLARED);
        }
        let lowering = self.lowering(now, sample.waited);
        let gain = match self.is_drained_in_vain(now, (sample.sent_at, waited), left) {
            true => 100,
            false => self.gain_for(now, left, busy).min(lowering).min(self.phase_gain(now)),
        };
        // What a train has left is known to stand there, whatever hosts say.
        let gain = gain.max(self.gain_least(sample).min(lowering));
        if gain != self.gain {
            self.gain = gain;
            self.changed_at = now;
        }
        let rounds = match self.is_declared {
            // What was lost at the boundary goes again, and tells nothing.
            _ if self.phases.is_settling(now) => 1,
            true => SILENCE_ROUNDS_DECLARED,
            false => SILENCE_ROUNDS,
        };
        // What is reckoned to have been added may have been dropped: no line becomes much longer
        // than it has been.
        let left = left.min(SILENCE_ROUNDS * self.beat()).min(waited * 2 + self.beat());
        // On a slow link four packets take much longer than a round trip: less is sent, so they do
        // not come, and nothing is told though all has gone.
        let silence = (rounds * self.beat()).min(rounds * self.round() + SILENCE_BEATS * self.beat());
        self.gain_until = (gain < 100).then(|| now + silence + left);
        if may_probe && !prepares {
            self.probe_gain = if self.is_mistaken() { PROBE_GAIN_DECLARED } else { PROBE_GAIN };
            self.start_probe(now);
            if self.is_declared {
                let gap = if self.is_mistaken() { self.probe_gap } else { 1 };
                self.next_probe_at = now + self.next_probe_at.since(now) * gap;
                self.probe_gap = (2 * gap).min(PROBE_GAP_MAX);
            }
        }
    }

    /// It is time to try whether the link carries more, where bytes wait for so long before it.
    fn may_probe(&self, now: Instant, waits: Duration) -> bool {
        let most = self.waiting_wanted() * if self.is_mistaken() { 1 } else { 2 };
        !self.is_as_declared() && self.probe_until.is_none() && now >= self.next_probe_at && waits < most
    }

    /// What is declared is somewhat too high, a trial has failed, and others are likely to. A link
    /// that carries much less has become slower, and may become faster again.
    fn is_mistaken(&self) -> bool {
        let is_near = |most: u64| self.rate_bps.is_some_and(|rate| rate >= most / 100 * MISTAKEN_PERCENT);
        self.is_declared && self.probe_gap > 0 && self.most_bps.is_some_and(is_near)
    }

    /// Percent of the estimate that may be sent, so that the queue before the link is empty now and
    /// then.
    fn lowering(&mut self, now: Instant, waited: Duration) -> u32 {
        // After a silence nobody knows how long something has stood.
        if waited <= self.next_to_nothing() || self.recent.len() < 2 {
            self.empty_at = now;
        }
        if now.since(self.empty_at) > LOWERING_AFTER.max(16 * self.beat()) {
            self.empty_at = now;
            // As long as it takes until nothing stands.
            let (beats, gain) = match self.is_as_declared() {
                true => (self.beat() * 5 / 2, LOWERING_GAIN_AS_DECLARED),
                false => (self.beat(), LOWERING_GAIN),
            };
            let lasts = beats.max(waited * 100 / (100 - gain)).min(LOWERING_AFTER);
            self.lowered = (now + lasts, gain);
        }
        let (until, gain) = self.lowered;
        if now < until { gain } else { u32::MAX }
    }

    /// Less has been sent than arrived before, by as much as stood before the link. Where what has
    /// left since waits as long as ever, it was no queue: bytes need so much longer.
    fn verify_drained(&mut self, now: Instant, sample: &Sample, waits: Duration) {
        let Some(drained) = self.drained else {
            if self.gain < 100 && waits > self.waiting_wanted() {
                let carried_bps =
                    self.carried_of_late(sample).map(|(rate, _)| rate).or(self.rate_bps).unwrap_or(1);
                let total_bytes = self.sent.total_bytes();
                self.drained = Some(Drained { since: now, total_bytes, waited: waits, carried_bps });
            }
            return;
        };
        let has_gone = sample.waited < drained.waited / 2;
        let grows = sample.waited > drained.waited / 4 * 5;
        if has_gone || grows || now.since(drained.since) > VERIFY_ROUNDS * self.beat() {
            self.drained = None;
            return;
        }
        let Some(total) = self.sent.total_by(sample.sent_at, now) else { return };
        let sent = super::time_of(total.saturating_sub(drained.total_bytes), drained.carried_bps);
        let gone = sample.sent_at.since(drained.since).saturating_sub(sent);
        let most = drained.waited / 4 * 3;
        if gone >= most && sample.waited >= most {
            self.drained = None;
            let longer = sample.waited;
            self.peers.iter_mut().for_each(|peer| peer.rebase(now, longer));
            self.recent.clear();
            (self.gain, self.gain_until, self.draining) = (100, None, None);
        }
    }

    /// What waits seems to wait for as long as it did before less was sent than the link carries.
    /// Then that is what bytes need from now on.
    fn is_drained_in_vain(
        &mut self,
        now: Instant,
        (sent_at, waited): (Instant, Duration),
        left: Duration,
    ) -> bool {
        if self.gain >= 100 {
            self.draining = None;
            return false;
        }
        let anew = Draining { since: now, waited: waited.max(left), beat: self.beat() };
        let begun = *self.draining.get_or_insert(Draining { waited: left, ..anew });
        let before = begun.waited;
        if waited.max(left) > before / 4 * 5 {
            // It still grows.
            self.draining = Some(anew);
            return false;
        }
        let lasted = sent_at.since(begun.since);
        if lasted < DRAIN_ROUNDS * begun.beat {
            return false;
        }
        if self.is_declared && self.gain > LOWERING_GAIN {
            // So little less that it may be just what the link carries: it is to show.
            self.draining = Some(anew);
            self.lowered = (now + (DRAIN_ROUNDS + 2) * self.beat(), LOWERING_GAIN);
            return false;
        }
        self.draining = None;
        // Most of it stands, and less than half of what should have gone has.
        let gone = lasted / 100 * (100 - self.gain);
        if waited < before / 4 * 3 || waited < before.saturating_sub(gone / 2) {
            return false;
        }
        for peer in &mut self.peers {
            peer.rebase(now, waited);
        }
        true
    }

    /// Percent of the estimate, for bytes that wait so long before the link.
    fn gain_for(&self, now: Instant, waited: Duration, busy: bool) -> u32 {
        let wanted = self.waiting_wanted();
        if waited < wanted / 2 {
            return if busy { 102 } else { 100 };
        }
        let excess = waited.saturating_sub(wanted);
        // What is too much goes within a third of a round trip, and within half of one where nobody
        // has said the rate: it may be that of a moment. After an interruption within three times
        // and four times as long.
        let (part, least) = match (self.is_restless(now), self.is_declared) {
            (false, true) => (300, GAIN_MIN),
            (false, false) => (200, GAIN_MIN),
            (true, true) => (100, GAIN_MIN_RESTLESS),
            (true, false) => (50, GAIN_MIN),
        };
        let percent = excess.as_nanos() * part / self.beat().as_nanos().max(1);
        100_u32.saturating_sub(u32::try_from(percent).unwrap_or(100)).max(least)
    }
}
