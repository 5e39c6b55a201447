//! Independent streams of random numbers from one seed, the same on every target.

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

/// What a stream is used for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Use {
    Loss = 1,
    GilbertElliott = 2,
    BitError = 3,
    Reorder = 4,
    Duplicate = 5,
    Corrupt = 6,
    Jitter = 7,
    Wink = 8,
    Harm = 9,
    FragmentLoss = 10,
    Phase = 11,
}

/// One stream.
#[derive(Clone, Debug)]
pub(crate) struct Stream(ChaCha8Rng);

impl Stream {
    pub(crate) fn new(seed: u64, r#use: Use) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(r#use as u64);
        Self(rng)
    }

    /// Uniform in [0, 1), 53 bits.
    pub(crate) fn unit(&mut self) -> f64 {
        unit(self.0.next_u64())
    }

    /// True with probability `p`. Always one draw, so that what a raised `p` hits includes what the
    /// lower one hit.
    pub(crate) fn chance(&mut self, p: f64) -> bool {
        self.unit() < p
    }

    /// Uniform below `n`; zero when `n` is.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        // The bias of a multiplication of 64 bits is far below anything that can be seen.
        let wide = u128::from(self.0.next_u64()) * u128::from(n);
        u64::try_from(wide >> 64).unwrap_or(0)
    }

    /// The number at a position of the stream, in [0, 1): draws that belong to a time and not to a
    /// packet.
    pub(crate) fn unit_at(&mut self, position: u64) -> f64 {
        self.0.set_word_pos(u128::from(position) * 2);
        self.unit()
    }
}

fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
}

/// `base` to the power of `exponent` by squaring: exact operations only, so the same on every
/// target.
pub(crate) fn power(base: f64, mut exponent: u64) -> f64 {
    let mut square = base;
    let mut result = 1.0;
    while exponent > 0 {
        if exponent & 1 == 1 {
            result *= square;
        }
        square *= square;
        exponent >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_differ_and_repeat() {
        let draw = |seed, r#use| Stream::new(seed, r#use).below(u64::MAX);
        assert_eq!(draw(1, Use::Loss), draw(1, Use::Loss));
        assert_ne!(draw(1, Use::Loss), draw(1, Use::Jitter));
        assert_ne!(draw(1, Use::Loss), draw(2, Use::Loss));
        // The same on every machine, for ever: seeds in bug reports stay good.
        assert_eq!(draw(1, Use::Loss), 15_715_005_604_373_573_094);
    }

    #[test]
    fn positions_are_the_sequence() {
        let mut a = Stream::new(5, Use::Wink);
        let mut b = Stream::new(5, Use::Wink);
        let sequence: Vec<f64> = (0..100).map(|_| a.unit()).collect();
        for i in (0..100).rev() {
            assert_eq!(b.unit_at(i), sequence[i as usize]);
        }
    }

    #[test]
    fn powers() {
        assert_eq!(power(0.5, 10), 1.0 / 1024.0);
        assert_eq!(power(0.3, 0), 1.0);
        // Exact value: 0.98807171...
        assert!((power(1.0 - 1e-6, 12_000) - 0.988_071_706_9).abs() < 1e-9);
    }
}
