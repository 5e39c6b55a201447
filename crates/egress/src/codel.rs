//! When a flow's packets have waited too long: CoDel (RFC 8289), and a bound for whoever does not
//! listen.
//!
//! CoDel tells a sender by a drop, or a mark, that its packets have waited for longer than the
//! target for a whole interval, and tells it ever more often until they do not. One that slows down
//! keeps a short queue. Others keep a long one: the control law takes seconds to minutes to drop as
//! much as is too much. So nothing waits for longer than an interval: that is what the queue of a
//! modem holds, and a sender that is paced and keeps two round trips under way, as BBR, lives with
//! it. Less would cost such a sender more than it costs without a gateway.
//!
//! One that sends too much for four intervals in a row, half a second at least, does not listen at
//! all. Then what has waited for longer than the bound is dropped, until the queue has been short
//! for a tenth of a second.

use farlink_wire::time::{Duration, Instant};

/// A state of dropping that ended within so many intervals is taken up where it was (RFC 8289 5.4).
const RESUME_INTERVALS: u32 = 16;
/// A flow whose packets have waited for longer than the most for so many intervals, in each of
/// them, does not listen.
const PATIENCE_INTERVALS: u32 = 4;
/// But not sooner: its round trip may be longer than the link's.
const PATIENCE_MIN: Duration = Duration::from_millis(500);
/// Whoever did not listen is taken to listen when the queue has been short for so long. A sender
/// that is only late for once has a short queue for a moment, too.
const SHORT_FOR: Duration = Duration::from_millis(100);

/// What is too long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Aqm {
    /// Packets may wait for so long all the time.
    pub target: Duration,
    /// And for longer for so long: the time in which a sender can react, a round trip.
    pub interval: Duration,
    /// Nothing waits for longer.
    pub most: Duration,
    /// Packets of a flow that does not listen wait for so long.
    pub bound: Duration,
}

impl Default for Aqm {
    /// As RFC 8289 4.3 and 4.4 have it for the Internet, the interval, and four times the target.
    fn default() -> Self {
        Self {
            target: Duration::from_millis(5),
            interval: Duration::from_millis(100),
            most: Duration::from_millis(100),
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
    /// Its flow is not served before the others when it begins: one of very many that come at once.
    pub in_turn: bool,
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
    /// It is in CoDel's dropping state: the sender is told again and again (RFC 8289 5.4).
    tells: bool,
    /// Since when, in each interval, packets have waited for longer than the most, and when one did
    /// last.
    too_much: Option<(Instant, Instant)>,
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
        if waited > aqm.most && !is_last {
            return self.judge_too_much(now, aqm);
        }
        let too_long = self.waits_too_long(now, aqm, waited, is_last);
        if !too_long {
            self.tells = false;
            return Verdict::Send;
        }
        if !self.tells {
            let grown = self.count.saturating_sub(self.last_count);
            let resumes = grown > 1 && now.since(self.next_at) < RESUME_INTERVALS * aqm.interval;
            self.count = if resumes { grown } else { 1 };
            self.last_count = self.count;
            self.tells = true;
            self.next_at = now + self.spacing(aqm);
            return Verdict::Tell;
        }
        if now < self.next_at {
            return Verdict::Send;
        }
        self.count = self.count.saturating_add(1);
        self.next_at += self.spacing(aqm);
        Verdict::Tell
    }

    /// It has waited for longer than anything may.
    fn judge_too_much(&mut self, now: Instant, aqm: &Aqm) -> Verdict {
        let goes_on = |(_, last): &(Instant, Instant)| now.since(*last) <= aqm.interval;
        let since = self.too_much.filter(goes_on).map_or(now, |(since, _)| since);
        self.too_much = Some((since, now));
        if now.since(since) >= (PATIENCE_INTERVALS * aqm.interval).max(PATIENCE_MIN) {
            self.is_deaf = true;
            (self.tells, self.above_until, self.too_much) = (false, None, None);
        }
        Verdict::Drop
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
    fn a_queue_that_stands_is_told_of_and_a_modem_would_hold_it() {
        let mut codel = Codel::default();
        let verdicts: Vec<_> = (0..5_000).map(|ms| judge(&mut codel, ms, 95)).collect();
        assert!(!verdicts.contains(&Verdict::Drop));
        let told = verdicts.iter().filter(|v| **v == Verdict::Tell).count();
        assert!(told > 100, "{told}");
    }

    #[test]
    fn nothing_waits_for_longer_than_an_interval_and_a_slow_start_that_ends_is_no_deafness() {
        let mut codel = Codel::default();
        // It finds out late that the path is full.
        for ms in 0..450 {
            assert_eq!(judge(&mut codel, ms, 101), Verdict::Drop, "{ms}");
        }
        assert_eq!(judge(&mut codel, 460, 99), Verdict::Send);
        assert_ne!(judge(&mut codel, 470, 40), Verdict::Drop, "within the bound no longer");
        for ms in 600..1_050 {
            assert_eq!(judge(&mut codel, ms, 101), Verdict::Drop, "{ms}: another time");
        }
        assert_ne!(judge(&mut codel, 1_060, 40), Verdict::Drop);
    }

    #[test]
    fn who_does_not_listen_waits_no_longer_than_the_bound_until_the_queue_stays_short() {
        let mut codel = Codel::default();
        let dropped = (0..500).filter(|ms| judge(&mut codel, *ms, 101) == Verdict::Drop).count();
        assert_eq!(dropped, 500, "too much, half a second long");
        assert_ne!(judge(&mut codel, 500, 99), Verdict::Drop, "it has an interval more");
        assert_eq!(judge(&mut codel, 501, 101), Verdict::Drop, "in vain");
        assert_eq!(judge(&mut codel, 502, 21), Verdict::Drop);
        assert_eq!(judge(&mut codel, 503, 19), Verdict::Send);
        assert_eq!(judge(&mut codel, 504, 21), Verdict::Drop, "still deaf");
        assert_eq!(judge(&mut codel, 505, 9), Verdict::Send);
        assert_eq!(judge(&mut codel, 506, 40), Verdict::Drop, "a pause of a moment");
        for ms in 510..=610 {
            assert_eq!(judge(&mut codel, ms, 9), Verdict::Send);
        }
        assert_eq!(judge(&mut codel, 611, 40), Verdict::Send, "a new beginning");
    }
}
