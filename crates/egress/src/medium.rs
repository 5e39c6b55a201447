//! What is left to the other direction of a medium that both share.
//!
//! Neither knows what the other wants to send, only what has come in. That has taken its time of
//! the medium, so as much of one's own time is given up for it. Each keeps a little less than half,
//! whatever the other takes, and what stands before the medium drains.

use farlink_wire::time::{Duration, Instant};

/// For each so many parts of time that are sent here, at most so many are left.
const OWN_PARTS: u32 = 49;
const OTHER_PARTS: u32 = 51;
/// Nothing that comes in for so long is silence: the other direction may have nothing to send, or
/// what it sends gets lost.
const SILENCE_MIN: Duration = Duration::from_millis(50);
/// What it took before is left to it for so long, as if it could not be heard. A link that winks
/// would else be flooded from both sides.
const SILENCE_MAX: Duration = Duration::from_secs(1);
/// What it takes is judged by so much time.
const WINDOW: Duration = Duration::from_millis(100);

/// The other direction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Medium {
    /// Time that it has taken, and that has not been left to it yet.
    taken: Duration,
    /// When something came in last.
    heard_at: Option<Instant>,
    /// It is not heard, and up to here it has been left what it is believed to take.
    believed_until: Instant,
    /// What it took in the last whole window: parts of the window.
    share: Share,
    /// When the window began, silences left out, and what it took since.
    window_at: Instant,
    window_taken: Duration,
}

/// Time that was taken, of time that passed.
#[derive(Clone, Copy, Debug)]
struct Share {
    taken: Duration,
    of: Duration,
}

impl Default for Share {
    fn default() -> Self {
        Self { taken: Duration::ZERO, of: WINDOW }
    }
}

impl Share {
    /// Of so much time.
    fn of(self, time: Duration) -> Duration {
        let part = time.as_nanos() * self.taken.min(self.of).as_nanos();
        Duration::from_nanos(u64::try_from(part / self.of.as_nanos().max(1)).unwrap_or(u64::MAX))
    }
}

impl Medium {
    /// Something has come in that took so much time. `most`: of what has not been left yet no more
    /// is remembered.
    pub fn note_taken(&mut self, now: Instant, time: Duration, most: Duration) {
        self.taken = self.taken.saturating_add(time).min(most);
        let silence = self.heard_at.map_or(SILENCE_MAX, |at| now.since(at));
        self.heard_at = Some(now);
        if silence >= SILENCE_MAX {
            (self.window_at, self.window_taken) = (now, Duration::ZERO);
        } else if silence > SILENCE_MIN {
            self.window_at += silence;
        }
        self.window_taken = self.window_taken.saturating_add(time);
        let of = now.since(self.window_at);
        if of >= WINDOW {
            self.share = Share { taken: self.window_taken, of };
            (self.window_at, self.window_taken) = (now, Duration::ZERO);
        }
    }

    /// It takes a quarter of the medium or more: what is of no need here is at its expense.
    pub fn is_busy(&self, now: Instant) -> bool {
        let is_heard = self.heard_at.is_some_and(|at| now.since(at) < SILENCE_MAX);
        is_heard && self.share.taken >= self.share.of / 4
    }

    /// Which part of the medium is left to this direction: so many parts of so many. No less than
    /// what is never given up.
    pub fn own_parts(&self, now: Instant) -> (u128, u128) {
        let is_heard = self.heard_at.is_some_and(|at| now.since(at) < SILENCE_MAX);
        let of = self.share.of.as_nanos();
        let taken = if is_heard { self.share.taken.as_nanos().min(of) } else { 0 };
        let least = of * u128::from(OWN_PARTS) / u128::from(OWN_PARTS + OTHER_PARTS);
        ((of - taken).max(least), of)
    }

    /// Time that is left to it when so much is sent. The medium has been `idle` before.
    pub fn leave(&mut self, now: Instant, own: Duration, idle: Duration) -> Duration {
        // Whose medium is its own has never heard anybody.
        let Some(heard_at) = self.heard_at else { return Duration::ZERO };
        let from = self.believed_until.max(heard_at + SILENCE_MIN);
        let until = now.min(heard_at + SILENCE_MAX);
        if from < until {
            self.taken = self.taken.saturating_add(self.share.of(until.since(from)));
            self.believed_until = until;
        }
        self.taken = self.taken.saturating_sub(idle);
        let left = self.taken.min(own / OWN_PARTS * OTHER_PARTS);
        self.taken = self.taken.saturating_sub(left);
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Duration = Duration::from_millis(50);

    /// What is sent from `from_ms` to `to_ms`, in parts of the medium, by who always has something
    /// to send, while in each millisecond so many per cent of it come in.
    fn sent(medium: &mut Medium, (from_ms, to_ms): (u64, u64), other_percent: u64) -> f64 {
        let (mut free, mut own) = (Instant::from_millis(from_ms), Duration::ZERO);
        for ms in from_ms..to_ms {
            let now = Instant::from_millis(ms);
            if other_percent > 0 {
                medium.note_taken(now, Duration::from_micros(10 * other_percent), MOST);
            }
            while free <= now {
                let time = Duration::from_micros(100);
                free = free + time + medium.leave(now, time, Duration::ZERO);
                own += time;
            }
        }
        own.as_millis() as f64 / (to_ms - from_ms) as f64
    }

    fn is_near(a: f64, b: f64) -> bool {
        (a - b).abs() < 0.02
    }

    #[test]
    fn what_the_other_direction_takes_is_left_to_it_up_to_half() {
        for (other_percent, own) in [(0, 1.0), (10, 0.9), (40, 0.6), (50, 0.5), (60, 0.49), (100, 0.49)] {
            let sent = sent(&mut Medium::default(), (1, 10_000), other_percent);
            assert!(is_near(sent, own), "{other_percent}: {sent}");
        }
    }

    #[test]
    fn what_was_taken_while_nothing_was_sent_is_over() {
        let mut medium = Medium::default();
        medium.note_taken(Instant::from_millis(1), Duration::from_secs(9), MOST);
        assert_eq!(medium.leave(Instant::from_millis(100), Duration::from_millis(1), MOST), Duration::ZERO);
    }

    #[test]
    fn who_is_not_heard_may_be_sending() {
        let mut medium = Medium::default();
        sent(&mut medium, (1, 1_000), 40);
        let silent = sent(&mut medium, (1_000, 1_900), 0);
        assert!((0.58..0.66).contains(&silent), "{silent}");
        assert!(medium.is_busy(Instant::from_millis(1_900)));
        let back = sent(&mut medium, (1_900, 2_400), 40);
        assert!(is_near(back, 0.6), "{back}");
        // Who sends little is heard all the same.
        sent(&mut medium, (2_400, 2_600), 1);
        let alone = sent(&mut medium, (2_600, 3_000), 0);
        assert!(alone > 0.97, "{alone}");
    }

    #[test]
    fn who_is_not_heard_for_long_is_not_there() {
        let mut medium = Medium::default();
        sent(&mut medium, (1, 1_000), 40);
        sent(&mut medium, (1_000, 2_100), 0);
        let alone = sent(&mut medium, (2_100, 3_000), 0);
        assert!(is_near(alone, 1.0), "{alone}");
        assert!(!medium.is_busy(Instant::from_millis(3_000)));
    }
}
