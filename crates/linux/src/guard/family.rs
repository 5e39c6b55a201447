//! One kind of traffic of one family of IP: is it diverted, and if not, since when, why, and when
//! is it tried again? Pure.

use farlink_wire::{Duration, Instant};

use crate::divert::{Diagnosis, Passage, Reading, Suspicion};
use crate::netlink::Family;

/// Diversion that was ended is tried again after this; it doubles with each failure. A trial costs
/// new connections a repeated SYN.
const RETRY: Duration = Duration::from_secs(30);
const RETRY_MAX: Duration = Duration::from_secs(1800);
/// After a change of rules it is tried again much sooner: a moment later, once the whole change is
/// there.
const RETRY_AFTER_CHANGE: Duration = Duration::from_secs(1);
/// But no sooner than this after the last failure; it doubles, too, for machines whose rules change
/// all the time.
const RETRY_SPACING: Duration = Duration::from_secs(2);
/// A trial that has lasted for so long was a success.
const GOOD_AFTER: Duration = Duration::from_secs(60);
/// Where nobody opens a connection for so long, a trial with new connections shows nothing: all is
/// diverted.
const QUIET_TRIAL: Duration = Duration::from_secs(5);
/// So many SYNs that take the ordinary way and are refused, over so much time, show that it is not
/// diversion that refuses them.
const REFUSED_SYNS: u64 = 3;
const REFUSED_SPAN: Duration = Duration::from_millis(900);

/// So long it may take to hand back what is split.
const HANDING_BACK: Duration = Duration::from_secs(15);

/// Kinds of traffic that are watched, and let go, each for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// TCP, which is diverted in any case.
    Tcp,
    /// What is no TCP, of all that leaves by a link. Its packets are counted where TCP's SYNs are:
    /// each may be the first.
    Rest,
}

impl Kind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Rest => "traffic other than TCP",
        }
    }
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Find out who is to blame, and end diversion.
    Suspect {
        /// On which interface.
        n: usize,
        /// What shows.
        suspicion: Suspicion,
    },
    /// It was not diversion's fault: divert again.
    Acquit,
    /// Try to divert again.
    Try,
    /// What is tried comes out: divert all of it.
    Keep,
}

/// Why and since when something is not done.
#[derive(Clone, Debug)]
pub(super) struct Ended {
    since: Instant,
    cause: Diagnosis,
    /// Diverted still, but not split.
    is_unsplit: bool,
    /// The interface on which it showed.
    n: usize,
    trial_at: Instant,
    refused_since: Option<Instant>,
    /// The ordinary way works: diversion is to blame.
    is_convicted: bool,
}

impl Ended {
    pub(super) fn undiverted(now: Instant, n: usize, cause: Diagnosis) -> Self {
        Self {
            since: now,
            cause,
            is_unsplit: false,
            n,
            trial_at: now,
            refused_since: None,
            is_convicted: false,
        }
    }
    /// It is known beforehand. What the ordinary way refuses meanwhile changes nothing about that.
    pub(super) fn foreseen(now: Instant, cause: Diagnosis) -> Self {
        Self { is_convicted: true, ..Self::undiverted(now, 0, cause) }
    }
    pub(super) fn unsplit(now: Instant, cause: Diagnosis) -> Self {
        Self { is_unsplit: true, ..Self::undiverted(now, 0, cause) }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct FamilyGuard {
    pub(super) family: Family,
    pub(super) kind: Kind,
    passages: Vec<Passage>,
    /// What took the ordinary way until diversion was ended, where that is counted on.
    plain_at: Vec<(u64, u64)>,
    ended: Option<Ended>,
    /// Trials that failed, in a row.
    failures: u32,
    /// When the last trial began.
    tried_at: Option<Instant>,
    /// In a trial with new connections alone: SYNs that were written, and since when it is so many.
    syns: Option<(u64, Instant)>,
    last_now: Instant,
}

impl FamilyGuard {
    /// `passages`: one for each interface.
    pub(super) fn new(family: Family, kind: Kind, passages: Vec<Passage>) -> Self {
        Self {
            family,
            kind,
            passages,
            plain_at: Vec::new(),
            ended: None,
            failures: 0,
            tried_at: None,
            syns: None,
            last_now: Instant::ZERO,
        }
    }

    /// The counters of an interface as they are now; `None`: they say nothing now.
    pub(super) fn look(&mut self, now: Instant, n: usize, reading: Option<Reading>) -> Option<Step> {
        self.last_now = now;
        let passage = self.passages.get_mut(n)?;
        let Some(reading) = reading else {
            passage.start_anew();
            return None;
        };
        // What is split is being handed back: what its hosts still send is acknowledged as before,
        // and lost as before.
        if self.ended.as_ref().is_some_and(|e| e.is_unsplit && now.since(e.since) < HANDING_BACK) {
            passage.start_anew();
            return None;
        }
        let suspicion = passage.look(now, reading)?;
        match &self.ended {
            Some(ended) if !ended.is_unsplit || matches!(suspicion, Suspicion::Share { .. }) => None,
            _ => Some(Step::Suspect { n, suspicion }),
        }
    }

    pub(super) fn is_losing(&self, n: usize) -> bool {
        self.passages.get(n).is_some_and(Passage::is_losing)
    }

    /// Whether it is time to divert again. `plain`: SYNs (of the rest: packets) on the ordinary way
    /// for each interface, how many came and how many left.
    pub(super) fn trial(&mut self, now: Instant, plain: &[(u64, u64)]) -> Option<Step> {
        if self.tried_at.is_some_and(|at| now.since(at) >= GOOD_AFTER) && self.ended.is_none() {
            (self.failures, self.tried_at) = (0, None);
        }
        let ended = self.ended.as_mut()?;
        if now >= ended.trial_at {
            return Some(Step::Try);
        }
        if ended.is_unsplit || ended.is_convicted {
            return None;
        }
        let (came, left) = plain.get(ended.n).copied().unwrap_or_default();
        if left > 0 {
            ended.is_convicted = true;
        } else if came > 0 {
            let since = *ended.refused_since.get_or_insert(now);
            if came >= REFUSED_SYNS && now.since(since) >= REFUSED_SPAN {
                self.acquit();
                self.failures = self.failures.saturating_sub(1);
                return Some(Step::Acquit);
            }
        }
        None
    }

    /// In a trial with new connections alone: whether all may be diverted. `written`, `left`: SYNs
    /// of all interfaces, in all and since the trial began.
    pub(super) fn may_keep(&mut self, now: Instant, (written, left): (u64, u64)) -> bool {
        let since = self.syns.filter(|(known, _)| *known == written).map_or(now, |(_, since)| since);
        self.syns = Some((written, since));
        let is_losing = self.passages.iter().any(Passage::is_losing);
        !is_losing && (left > 0 || now.since(since) >= QUIET_TRIAL)
    }

    /// The same for counters that never begin anew.
    pub(super) fn trial_since(&mut self, now: Instant, plain: &[(u64, u64)]) -> Option<Step> {
        if self.ended.is_none() {
            self.plain_at = plain.to_vec();
        }
        let since = |(now, then): (&(u64, u64), &(u64, u64))| {
            (now.0.saturating_sub(then.0), now.1.saturating_sub(then.1))
        };
        let plain: Vec<_> = plain.iter().zip(&self.plain_at).map(since).collect();
        self.trial(now, &plain)
    }

    /// What is lost would be lost without diversion, too.
    pub(super) fn acquit(&mut self) {
        self.passages.iter_mut().for_each(Passage::acquit);
    }

    /// Diversion, or splitting, has been ended.
    pub(super) fn end(&mut self, now: Instant, mut ended: Ended) {
        ended.trial_at = now + (RETRY * (1 << self.failures.min(10))).min(RETRY_MAX);
        self.failures = self.failures.saturating_add(1);
        (self.tried_at, self.syns) = (None, None);
        self.ended = Some(ended);
    }

    /// A trial would fail for sure: it waits until rules change, or as long as after a first
    /// failure. That costs nobody anything, so it is no failure.
    pub(super) fn wait_for_change(&mut self, now: Instant, cause: Diagnosis) {
        if let Some(ended) = &mut self.ended {
            (ended.since, ended.trial_at) = (now, now + RETRY);
            (ended.cause, ended.is_convicted) = (cause, true);
        }
    }

    /// It is diverted, or split, again.
    pub(super) fn begin_trial(&mut self) {
        self.ended = None;
        (self.tried_at, self.syns) = (Some(self.last_now), None);
        self.start_anew();
    }

    pub(super) fn is_ended(&self) -> bool {
        self.ended.as_ref().is_some_and(|e| !e.is_unsplit)
    }

    /// Why it is not diverted.
    pub(super) fn undiverted(&self) -> Option<Ended> {
        self.ended.clone().filter(|ended| !ended.is_unsplit)
    }

    /// Rules or routes have changed: what was lost may get through now, and the other way round.
    pub(super) fn rules_changed(&mut self, now: Instant) {
        self.passages.iter_mut().for_each(Passage::rules_changed);
        if let Some(ended) = &mut self.ended {
            let spacing = (RETRY_SPACING * (1 << self.failures.saturating_sub(1).min(10))).min(RETRY_MAX);
            let at = (now + RETRY_AFTER_CHANGE).max(ended.since + spacing);
            ended.trial_at = ended.trial_at.min(at);
        }
    }

    /// The counters begin at zero again.
    pub(super) fn counters_reset(&mut self) {
        self.passages.iter_mut().for_each(Passage::counters_reset);
        if let Some(ended) = &mut self.ended {
            ended.refused_since = None;
        }
    }

    /// This is another interface from here on.
    pub(super) fn begin(&mut self, n: usize) {
        if let Some(passage) = self.passages.get_mut(n) {
            passage.start_anew();
        }
    }

    pub(super) fn start_anew(&mut self) {
        self.passages.iter_mut().for_each(Passage::start_anew);
    }

    /// What is wrong now.
    pub(super) fn cause(&self) -> Option<Diagnosis> {
        let ended = self.ended.as_ref()?;
        let why = &ended.cause.text;
        let text = if ended.is_unsplit {
            format!("no connection is split now: {why}")
        } else {
            format!("{} {} is not diverted now: {why}", self.family, self.kind.name())
        };
        Some(Diagnosis { text, ..ended.cause.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::divert::Severity;

    fn cause(text: &str) -> Diagnosis {
        Diagnosis::new("lost", Severity::Problem, text)
    }

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    fn ended(guard: &mut FamilyGuard, ms: u64) {
        guard.end(at(ms), Ended::undiverted(at(ms), 0, cause("a chain")));
    }

    /// Milliseconds until it is tried again, with these SYNs on the ordinary way.
    fn wait(guard: &mut FamilyGuard, from_ms: u64, plain: (u64, u64)) -> (u64, Step) {
        for ms in (from_ms..).step_by(250) {
            guard.look(at(ms), 0, Some(Reading::default()));
            if let Some(step) = guard.trial(at(ms), &[plain]) {
                return (ms - from_ms, step);
            }
        }
        unreachable!()
    }

    #[test]
    fn trials_that_fail_become_rare_and_a_change_brings_the_next_forward() {
        let mut guard = FamilyGuard::new(Family::V4, Kind::Tcp, vec![Passage::default()]);
        let mut ms = 1000;
        let mut waits = Vec::new();
        for _ in 0..9 {
            ended(&mut guard, ms);
            let (waited, step) = wait(&mut guard, ms, (5, 5));
            assert_eq!(step, Step::Try);
            waits.push(waited / 1000);
            ms += waited;
            guard.begin_trial();
            assert!(guard.cause().is_none());
        }
        assert_eq!(waits, [30, 60, 120, 240, 480, 960, 1800, 1800, 1800]);
        // It has stood for a minute: forgiven.
        assert_eq!(guard.trial(at(ms + 60_000), &[(0, 0)]), None);
        ms += 60_000;
        ended(&mut guard, ms);
        assert!(guard.cause().unwrap().text.contains("IPv4 TCP is not diverted now: a chain"));
        guard.rules_changed(at(ms + 5000));
        assert_eq!(wait(&mut guard, ms + 5000, (0, 0)), (1000, Step::Try));
    }

    #[test]
    fn a_trial_ends_when_syns_come_out_and_none_is_lost_or_when_nobody_connects() {
        let mut guard = FamilyGuard::new(Family::V4, Kind::Tcp, vec![Passage::default(); 2]);
        assert!(!guard.may_keep(at(0), (7, 0)));
        assert!(!guard.may_keep(at(4_000), (8, 0)), "somebody tries");
        assert!(!guard.may_keep(at(8_750), (8, 0)));
        assert!(guard.may_keep(at(9_000), (8, 0)), "nobody for five seconds");
        guard.begin_trial();
        assert!(!guard.may_keep(at(9_250), (8, 0)), "another trial");
        assert!(guard.may_keep(at(9_500), (9, 1)));
        // One direction passes, and the other does not.
        for (n, ms) in [(1, 9_750), (2, 10_000)] {
            let lost = Reading { diverted: n, arrived: n, syns: n, ..Reading::default() };
            guard.look(at(ms), 1, Some(lost));
        }
        assert!(guard.is_losing(1) && !guard.may_keep(at(10_000), (9, 1)));
    }

    #[test]
    fn what_is_lost_while_connections_are_handed_back_is_no_news() {
        let mut guard = FamilyGuard::new(Family::V4, Kind::Tcp, vec![Passage::default()]);
        guard.end(at(1000), Ended::unsplit(at(1000), cause("a rule")));
        let mut reading = Reading::default();
        let mut suspected = Vec::new();
        for ms in (1250..20_000).step_by(250) {
            reading.others += 30;
            if let Some(step) = guard.look(at(ms), 0, Some(reading)) {
                suspected.push((ms, step));
            }
        }
        let (first, step) = suspected[0];
        assert!(
            first >= 16_000 && matches!(step, Step::Suspect { suspicion: Suspicion::Exit, .. }),
            "{first}"
        );
    }

    #[test]
    fn what_is_refused_without_diversion_too_acquits_it() {
        let mut guard = FamilyGuard::new(Family::V4, Kind::Tcp, vec![Passage::default()]);
        ended(&mut guard, 1000);
        assert_eq!(guard.trial(at(1250), &[(3, 0)]), None);
        let (waited, step) = wait(&mut guard, 1500, (3, 0));
        assert_eq!(step, Step::Acquit);
        assert!(waited <= 1000, "{waited}");
        // One that gets through convicts.
        ended(&mut guard, 5000);
        assert_eq!(guard.trial(at(5250), &[(1, 1)]), None);
        assert_eq!(wait(&mut guard, 5500, (9, 1)).1, Step::Try);
    }
}
