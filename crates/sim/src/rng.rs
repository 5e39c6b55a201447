//! Randomness with a seed. Each purpose draws from a stream of its own, so that a new draw in one
//! place does not change what all the others get.

use farlink_wire::Duration;
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

/// A stream of random numbers, named by seed and purpose.
#[derive(Clone, Debug)]
pub struct Rng(ChaCha8Rng);

impl Rng {
    /// The stream of `seed` for `purpose`.
    #[must_use]
    pub fn new(seed: u64, purpose: &str) -> Self {
        let mut r = ChaCha8Rng::seed_from_u64(seed);
        let name = purpose
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
        r.set_stream(name);
        Self(r)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Uniform in `low..high`; `low` when the range is empty.
    pub fn range(&mut self, low: u64, high: u64) -> u64 {
        if high <= low {
            return low;
        }
        // The bias of a 128-bit product is below 2^-64 times the range: of no account here.
        low + ((u128::from(self.bits()) * u128::from(high - low)) >> 64) as u64
    }

    /// Spread evenly over the orders of magnitude of `low..high` (`low` at least 1): small values
    /// as often as large ones.
    pub fn log_range(&mut self, low: u64, high: u64) -> u64 {
        let (low, high) = (low.max(1), high.max(2));
        let span = 64 - (high / low).leading_zeros() as u64;
        let shift = self.range(0, span);
        let from = low << shift;
        self.range(from, (from * 2).min(high)).min(high - 1)
    }

    /// True with probability `p`.
    pub fn chance(&mut self, p: f64) -> bool {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64 <= p && p > 0.0
    }

    /// One of `choices`, each as likely.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.range(0, choices.len() as u64) as usize]
    }

    /// A duration in whole microseconds between `low` and `high` milliseconds.
    pub fn millis(&mut self, low: u64, high: u64) -> Duration {
        Duration::from_micros(self.range(low * 1000, high * 1000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_repeatable_and_apart() {
        let draw = |seed, purpose| {
            let mut r = Rng::new(seed, purpose);
            [r.bits(), r.range(10, 20), r.log_range(10, 100_000)]
        };
        assert_eq!(draw(1, "a"), draw(1, "a"));
        assert_ne!(draw(1, "a")[0], draw(1, "b")[0]);
        assert_ne!(draw(1, "a")[0], draw(2, "a")[0]);
    }

    #[test]
    fn ranges_hold() {
        let mut r = Rng::new(7, "ranges");
        for _ in 0..10_000 {
            assert!((10..20).contains(&r.range(10, 20)));
            assert!((10..2_000_000).contains(&r.log_range(10, 2_000_000)));
            assert!(!r.chance(0.0));
            assert!(r.chance(1.0));
        }
    }
}
