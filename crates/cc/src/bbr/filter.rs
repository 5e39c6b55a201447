//! Maxima over windows that are counted in cycles and in round trips.

/// BBR.max_bw_filter: the largest sample of this bandwidth-probing cycle and the one before.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MaxBandwidth {
    before: u64,
    now: u64,
}

impl MaxBandwidth {
    pub(super) fn get(&self) -> u64 {
        self.before.max(self.now)
    }

    pub(super) fn update(&mut self, rate_bps: u64) {
        self.now = self.now.max(rate_bps);
    }

    /// AdvanceMaxBwFilter. A cycle without samples leaves the older one in force (google/bbr).
    pub(super) fn advance(&mut self) {
        if self.now > 0 {
            self.before = core::mem::take(&mut self.now);
        }
    }
}

/// Round trips that BBR.extra_acked_filter looks back on.
const ROUNDS: usize = 10;

/// A maximum over the last round trips: the largest value of each.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MaxOfRounds {
    newest: u64,
    values: [u64; ROUNDS],
    max: u64,
}

impl MaxOfRounds {
    pub(super) fn get(&self) -> u64 {
        self.max
    }

    /// `value` in round trip number `round`; the last `window` of them count, at most ten.
    pub(super) fn update(&mut self, round: u64, window: u64, value: u64) {
        let slots = ROUNDS as u64;
        for passed in self.newest.saturating_add(1)..=round.min(self.newest.saturating_add(slots)) {
            if let Some(slot) = self.values.get_mut((passed % slots) as usize) {
                *slot = 0;
            }
        }
        if round > self.newest.saturating_add(slots) {
            self.values = [0; ROUNDS];
        }
        self.newest = round;
        if let Some(slot) = self.values.get_mut((round % slots) as usize) {
            *slot = (*slot).max(value);
        }
        let recent = (0..window.min(slots)).filter_map(|ago| round.checked_sub(ago));
        let value_of = |r: u64| self.values.get((r % slots) as usize).copied().unwrap_or(0);
        self.max = recent.map(value_of).max().unwrap_or(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_cycles_of_bandwidth() {
        let mut f = MaxBandwidth::default();
        f.update(10);
        f.update(8);
        f.advance();
        f.update(5);
        assert_eq!(f.get(), 10);
        f.advance();
        assert_eq!(f.get(), 5);
        f.advance();
        f.advance();
        assert_eq!(f.get(), 5, "nothing was measured since");
    }

    #[test]
    fn ten_rounds_or_one() {
        let mut f = MaxOfRounds::default();
        f.update(3, 10, 100);
        f.update(3, 10, 50);
        f.update(12, 10, 7);
        assert_eq!(f.get(), 100);
        f.update(13, 10, 5);
        assert_eq!(f.get(), 7, "round 3 is ten rounds ago");
        f.update(13, 1, 0);
        assert_eq!(f.get(), 5);
        f.update(100, 10, 1);
        assert_eq!(f.get(), 1);
    }
}
