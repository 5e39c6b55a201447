//! Random draws of workloads.

/// A seed and what has been drawn from it so far (SplitMix64).
pub(crate) struct Draw(u64);

impl Draw {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Uniform in 0 to 1.
    pub(crate) fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(crate) fn between(&mut self, low: f64, high: f64) -> f64 {
        low + self.uniform() * (high - low)
    }

    /// Every order of magnitude alike.
    pub(crate) fn log_between(&mut self, low: f64, high: f64) -> u64 {
        self.between(low.ln(), high.ln()).exp() as u64
    }

    /// The gap before the next of events that come at random, so many seconds apart on average.
    pub(crate) fn gap(&mut self, mean_s: f64) -> f64 {
        -mean_s * (1.0 - self.uniform()).ln()
    }
}
