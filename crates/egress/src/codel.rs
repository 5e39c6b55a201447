//! When a flow's packets have waited too long: CoDel (RFC 8289), and a bound for whoever does not
//! listen.
//!
//! CoDel tells a sender by a drop, or a mark, that its packets have waited for longer than the
//! target for a whole interval, and tells it ever more often until they do not. One that slows down
//! keeps a short queue. One that does not would keep a long one: the control law takes seconds to
//! minutes to drop as much as is too much. After four intervals of telling in vain, half a second
//! at least, and if the queue does not become shorter, what has waited for longer than the bound is
//! dropped, until the queue has been short for a tenth of a second.

use farlink_wire::time::{Duration, Instant};

/// A state of dropping that ended within so many intervals is taken up where it was (RFC 8289 5.4).
const RESUME_INTERVALS: u32 = 16;
/// A flow that is told for so many intervals, and whose packets wait for longer than the bound all
/// the same, does not listen.
const PATIENCE_INTERVALS: u32 = 4;
/// But not sooner: its round trip may be longer than the link's.
const PATIENCE_MIN: Duration = Duration::from_millis(500);
/// Whoever did not listen is taken to listen when the queue has been short for so long. A sender
/// that is only late for once has a short queue for a moment, too.
const SHORT_FOR: Duration = Duration::from_millis(100);
/// A queue whose packets wait for less than before by such a part (one over it) becomes shorter.
const FALLS_PARTS: u32 = 8;

/// What is too long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Aqm {
    /// Packets may wait for so long all the time.
    pub target: Duration,
    /// And for longer for so long: the time in which a sender can react, a round trip.
    pub interval: Duration,
    /// Packets of a flow that does not listen wait for so long.
    pub bound: Duration,
}

impl Default for Aqm {
    /// As RFC 8289 4.3 and 4.4 have it for the Internet, and four times the target.
    fn default() -> Self {
        Self {
            target: Duration::from_millis(5),
            interval: Duration::from_millis(100),
            bound: Duration::from_millis(20),
        }
    }
}

/// How packets are managed that may not wait for ever.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Managed {
    /// Its sender understands marks.
    pub can_be_marked: bool,
    /// It is TCP.
    pub is_tcp: bool,
}

/// What is done with the packet that is next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// It goes on.
    Send,
    /// It tells its sender: marked, or dropped where it cannot be marked.
    Tell,
    /// It is dropped.
    Drop,
}

/// What is known of one flow.
#[derive(Clone, Debug, Default)]
pub(crate) struct Codel {
    /// When packets will have waited too long for an interval; `None`: they do not.
    above_until: Option<Instant>,
    /// Since when the sender is told.
    telling_since: Option<Instant>,
    /// How long packets waited when an interval of that began last.
    waited: (Instant, Duration),
    /// In the interval before, that has become less: the sender listens.
    falls: bool,
    next_at: Instant,
    count: u32,
    last_count: u32,
    /// It has been told in vain.
    is_deaf: bool,
    /// Since when its packets have not waited for long all the same.
    short_since: Option<Instant>,
}

impl Codel {
    /// The packet that is next has waited for so long. `is_last`: nothing else waits in its flow.
    pub(crate) fn judge(&mut self, now: Instant, aqm: &Aqm, waited: Duration, is_last: bool) -> Verdict {
        if self.is_deaf {
            return self.judge_deaf(now, aqm, waited, is_last);
        }
        let too_long = self.waits_too_long(now, aqm, waited, is_last);
        let Some(since) = self.telling_since else {
            if !too_long {
                return Verdict::Send;
            }
            let grown = self.count.saturating_sub(self.last_count);
            let resumes = grown > 1 && now.since(self.next_at) < RESUME_INTERVALS * aqm.interval;
            self.count = if resumes { grown } else { 1 };
            self.last_count = self.count;
            self.telling_since = Some(now);
            (self.waited, self.falls) = ((now, waited), false);
            self.next_at = now + self.spacing(aqm);
            return Verdict::Tell;
        };
        if !too_long {
            self.telling_since = None;
            return Verdict::Send;
        }
        if now.since(self.waited.0) >= aqm.interval {
            self.falls = waited < self.waited.1 / FALLS_PARTS * (FALLS_PARTS - 1);
            self.waited = (now, waited);
        }
        let patience = (PATIENCE_INTERVALS * aqm.interval).max(PATIENCE_MIN);
        if now.since(since) >= patience && waited > aqm.bound.max(aqm.target) && !self.falls {
            (self.is_deaf, self.telling_since, self.above_until) = (true, None, None);
            return Verdict::Drop;
        }
        if now < self.next_at {
            return Verdict::Send;
        }
        self.count = self.count.saturating_add(1);
        self.next_at += self.spacing(aqm);
        Verdict::Tell
    }

    /// The same of a flow that does not listen.
    fn judge_deaf(&mut self, now: Instant, aqm: &Aqm, waited: Duration, is_last: bool) -> Verdict {
        if waited > aqm.bound / 2 {
            self.short_since = None;
            return if waited > aqm.bound && !is_last { Verdict::Drop } else { Verdict::Send };
        }
        let since = *self.short_since.get_or_insert(now);
        if now.since(since) >= SHORT_FOR {
            (self.is_deaf, self.short_since) = (false, None);
        }
        Verdict::Send
    }

    fn waits_too_long(&mut self, now: Instant, aqm: &Aqm, waited: Duration, is_last: bool) -> bool {
        if waited < aqm.target || is_last {
            self.above_until = None;
            return false;
        }
        now >= *self.above_until.get_or_insert(now + aqm.interval)
    }

    /// The control law: an interval over the root of how often it has been told.
    fn spacing(&self, aqm: &Aqm) -> Duration {
        aqm.interval.div_f64(f64::from(self.count.max(1)).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_millis(1_000 + ms)
    }

    fn judge(codel: &mut Codel, ms: u64, waited_ms: u64) -> Verdict {
        codel.judge(at(ms), &Aqm::default(), Duration::from_millis(waited_ms), false)
    }

    #[test]
    fn a_burst_that_is_gone_within_an_interval_costs_nothing() {
        let mut codel = Codel::default();
        for ms in 0..99 {
            assert_eq!(judge(&mut codel, ms, 60), Verdict::Send);
        }
        assert_eq!(judge(&mut codel, 99, 4), Verdict::Send);
        assert_eq!(judge(&mut codel, 150, 60), Verdict::Send, "another one");
    }

    #[test]
    fn who_keeps_others_waiting_is_told_ever_more_often() {
        let mut codel = Codel::default();
        let told: Vec<u64> = (0..300).filter(|ms| judge(&mut codel, *ms, 10) == Verdict::Tell).collect();
        // 100 ms after the first, then 100 / sqrt(2) and 100 / sqrt(3) more.
        assert_eq!(told, [100, 200, 271]);
        assert_eq!(judge(&mut codel, 301, 4), Verdict::Send);
        // Soon after that it goes on where it was.
        let told: Vec<u64> = (302..560).filter(|ms| judge(&mut codel, *ms, 10) == Verdict::Tell).collect();
        assert_eq!(told, [402, 473, 531]);
    }

    #[test]
    fn the_last_packet_of_a_flow_goes_on() {
        let mut codel = Codel::default();
        for ms in 0..1_000 {
            let waited = Duration::from_millis(500);
            assert_eq!(codel.judge(at(ms), &Aqm::default(), waited, true), Verdict::Send, "after {ms} ms");
        }
    }

    #[test]
    fn who_has_listened_is_not_taken_for_deaf_while_the_queue_becomes_shorter() {
        let mut codel = Codel::default();
        // A slow start that ends when its first loss is heard of.
        let waits = |ms: u64| if ms < 400 { ms / 2 + 10 } else { 210 - (ms - 400) / 2 };
        let dropped = (0..760).filter(|ms| judge(&mut codel, *ms, waits(*ms)) == Verdict::Drop).count();
        assert_eq!(dropped, 0);
        // It becomes no shorter any more.
        let dropped = (760..1_300).filter(|ms| judge(&mut codel, *ms, 40) == Verdict::Drop).count();
        assert!(dropped > 100, "{dropped}");
    }

    #[test]
    fn who_does_not_listen_waits_no_longer_than_the_bound_until_the_queue_stays_short() {
        let mut codel = Codel::default();
        let first = (0..1_000).find(|ms| judge(&mut codel, *ms, 40) == Verdict::Drop);
        assert_eq!(first, Some(600), "an interval, and half a second in vain");
        assert_eq!(judge(&mut codel, 601, 21), Verdict::Drop);
        assert_eq!(judge(&mut codel, 602, 19), Verdict::Send);
        assert_eq!(judge(&mut codel, 603, 21), Verdict::Drop, "still deaf");
        assert_eq!(judge(&mut codel, 604, 9), Verdict::Send);
        assert_eq!(judge(&mut codel, 605, 40), Verdict::Drop, "a pause of a moment");
        for ms in 610..=710 {
            assert_eq!(judge(&mut codel, ms, 9), Verdict::Send);
        }
        assert_eq!(judge(&mut codel, 711, 40), Verdict::Send, "a new beginning");
    }
}
