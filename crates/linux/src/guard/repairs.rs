//! How often diversion is put back: at once, but not for ever against somebody who means it. Pure.

use std::collections::VecDeque;

use farlink_wire::{Duration, Instant};

use crate::divert::{Diagnosis, Severity};

/// So many times in a row without delay.
const AT_ONCE: u32 = 24;
/// What is found in two parts within this is one.
const TOGETHER: Duration = Duration::from_secs(1);
/// The first delay after that; it doubles.
const DELAY: Duration = Duration::from_secs(10);
const DELAY_MAX: Duration = Duration::from_secs(600);
/// What has stood for so long counts as accepted.
const ACCEPTED_AFTER: Duration = Duration::from_secs(1800);
/// For so long a repair is worth a word to whoever asks.
const RECENT: Duration = Duration::from_secs(60);
/// So many different ones.
const RECENT_MAX: usize = 4;

/// The repairs until now.
#[derive(Debug, Default)]
pub(super) struct Repairs {
    count: u64,
    in_a_row: u32,
    /// When the newest of these was counted.
    counted: Option<Instant>,
    last: Option<Instant>,
    /// What was put back lately, the newest last.
    recent: VecDeque<(Instant, String)>,
    refused_until: Option<Instant>,
}

impl Repairs {
    /// Whether it may be put back now; otherwise when.
    pub(super) fn may(&mut self, now: Instant) -> Result<(), Instant> {
        let Some(last) = self.last else { return Ok(()) };
        if now.since(last) >= ACCEPTED_AFTER {
            self.in_a_row = 0;
        }
        let delay = match self.in_a_row.checked_sub(AT_ONCE) {
            None => return Ok(()),
            Some(beyond) => (DELAY * (1 << beyond.min(10))).min(DELAY_MAX),
        };
        if now >= last + delay { Ok(()) } else { Err(last + delay) }
    }

    /// It was put back.
    pub(super) fn done(&mut self, now: Instant, what: String) {
        self.count += 1;
        if self.counted.is_none_or(|at| now.since(at) >= TOGETHER) {
            self.in_a_row = self.in_a_row.saturating_add(1);
            self.counted = Some(now);
        }
        self.last = Some(now);
        self.recent.retain(|(_, known)| *known != what);
        self.recent.push_back((now, what));
        if self.recent.len() > RECENT_MAX {
            self.recent.pop_front();
        }
        self.refused_until = None;
    }

    /// Whether that it has to wait until then was not known before.
    pub(super) fn is_news(&mut self, until: Instant) -> bool {
        self.refused_until.replace(until) != Some(until)
    }

    /// How often.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// What is to be said of it now.
    pub(super) fn recent(&self, now: Instant) -> Vec<Diagnosis> {
        let ago = |at: &Instant| now.since(*at).as_secs();
        if let (true, Some((at, what))) = (self.refused_until.is_some(), self.recent.back()) {
            let text = format!(
                "diversion is not in place: {what}. It was put back {} times, the last time {} s ago, and removed again; it is put back \
                 later. Find out what removes it",
                self.count,
                ago(at)
            );
            return vec![Diagnosis::new("removed-again", Severity::Problem, text).seen("times", self.count)];
        }
        let recent = self.recent.iter().filter(|(at, _)| now.since(*at) < RECENT);
        let say = |(at, what): &(Instant, String)| {
            let text = format!(
                "{what}; it was put back {} s ago. If that happens again, find out what removes it",
                ago(at)
            );
            Diagnosis::new("put-back", Severity::Problem, text).seen("seconds_ago", ago(at))
        };
        recent.map(say).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_put_back_at_once_and_then_more_and_more_slowly() {
        let mut r = Repairs::default();
        let mut now = Instant::from_nanos(1);
        let mut waits = Vec::new();
        for _ in 0..33 {
            let began = now;
            while let Err(at) = r.may(now) {
                assert!(at > now);
                now = at;
            }
            waits.push(now.since(began).as_secs());
            r.done(now, "the table".into());
            r.done(now + Duration::from_millis(250), "a rule".into());
            now += TOGETHER;
        }
        assert_eq!(waits[..24], [0; 24], "somebody who works on rules and devices for a while");
        assert_eq!(waits[24..], [9, 19, 39, 79, 159, 319, 599, 599, 599]);
        assert_eq!(r.recent(now).len(), 2);
        // It was left alone for a while.
        now += Duration::from_secs(2000);
        assert!(r.may(now).is_ok() && r.recent(now).is_empty());
        r.done(now, "the table".into());
        assert!(r.may(now).is_ok());
    }
}
