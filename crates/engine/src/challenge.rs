//! How many odd segments are answered (RFC 5961 section 7).
//!
//! One fixed number for all connections would tell a stranger of other people's: with challenges to
//! a connection of its own it could count whether a forged segment in another one had drawn one too
//! (CVE-2016-5696). So each connection has a small number of its own, and that of all together is
//! drawn anew each second. Resets that a closed connection answers with are counted apart: a flood
//! of challenges must not silence them.

use farlink_wire::{Duration, Instant};

/// Answers that a connection may give at once, and the time in which it gets another one.
const ANSWERS_MAX: u32 = 8;
const ANSWER_EVERY: Duration = Duration::from_millis(125);

/// The answers of one connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Answers {
    /// Until then what it has given counts.
    spent_until: Instant,
}

impl Answers {
    /// One more may be given, and is.
    pub fn may_answer(&mut self, now: Instant) -> bool {
        let next = self.spent_until.max(now) + ANSWER_EVERY;
        let may = next.since(now) <= ANSWER_EVERY * ANSWERS_MAX;
        if may {
            self.spent_until = next;
        }
        may
    }
}

/// The answers of all connections together.
#[derive(Clone, Copy, Debug)]
pub struct Challenges {
    per_s: u32,
    left: u32,
    resets_left: u32,
    since: Instant,
    random: u64,
}

impl Challenges {
    /// About `per_s` a second of each kind. The seed must be known to nobody outside.
    #[must_use]
    pub fn new(per_s: u32, seed: u64) -> Self {
        let mut new = Self { per_s, left: 0, resets_left: 0, since: Instant::ZERO, random: seed };
        new.draw();
        new
    }
    /// A second may have passed.
    pub fn refill(&mut self, now: Instant) {
        if now.since(self.since) >= Duration::from_secs(1) {
            self.since = now;
            self.draw();
        }
    }
    /// A challenge is wanted. Returns whether it may go.
    pub fn take(&mut self) -> bool {
        let may = self.left > 0;
        self.left = self.left.saturating_sub(1);
        may
    }
    /// A reset is wanted in answer to a segment of a connection that is over.
    pub fn take_reset(&mut self) -> bool {
        let may = self.resets_left > 0;
        self.resets_left = self.resets_left.saturating_sub(1);
        may
    }
    /// From half of the configured number to one and a half times as many, as Linux does.
    fn draw(&mut self) {
        // SplitMix64 (Steele, Lea, Flood 2014).
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        let more = u32::try_from(z % (u64::from(self.per_s) + 1)).unwrap_or(0);
        self.left = (self.per_s / 2).saturating_add(more).max(u32::from(self.per_s > 0));
        self.resets_left = self.per_s;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(c: &mut Challenges) -> u32 {
        (0..10_000).filter(|_| c.take()).count() as u32
    }

    #[test]
    fn nobody_can_count_on_the_number_of_all_challenges() {
        let mut c = Challenges::new(1_000, 42);
        let mut seconds: Vec<u32> = Vec::new();
        for s in 1..=100 {
            c.refill(Instant::from_millis(1_000 * s));
            seconds.push(given(&mut c));
        }
        assert!(seconds.iter().all(|n| (500..=1_500).contains(n)), "{seconds:?}");
        seconds.sort_unstable();
        seconds.dedup();
        assert!(seconds.len() > 80, "{} different numbers in 100 seconds", seconds.len());
        assert!(c.take_reset(), "resets are counted apart");
    }

    #[test]
    fn a_connection_answers_a_few_at_once_and_some_a_second() {
        let mut a = Answers::default();
        let at = |ms: u64| Instant::from_millis(1_000_000 + ms);
        assert_eq!((0..50).filter(|_| a.may_answer(at(0))).count(), 8);
        assert_eq!((0..50).filter(|_| a.may_answer(at(124))).count(), 0);
        assert_eq!((0..50).filter(|i| a.may_answer(at(125 + i / 10))).count(), 1);
        assert_eq!((0..50).filter(|_| a.may_answer(at(60_000))).count(), 8);
    }
}
