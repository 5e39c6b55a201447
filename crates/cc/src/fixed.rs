//! No congestion control. `fixed-rate` is for a link whose rate is known to its owner and shared by
//! a queue of our own: loss there is corruption or outage, and a smaller window would cure neither.
//! `unfair` is the same window without a clock, for comparison (Reynolds 4.4: the controller that
//! keeps the buffer of a bad link full, and the least considerate of all).

use core::num::NonZeroU64;

use crate::api::{Config, Kind};

/// The window is what it is, whatever happens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fixed {
    pub(crate) kind: Kind,
    pub(crate) window_bytes: u64,
    rate_bps: Option<NonZeroU64>,
    /// What was asked for, where not all that is allowed is.
    wanted_bytes: Option<NonZeroU64>,
    least_bytes: u32,
}

impl Fixed {
    pub(crate) fn new(config: &Config) -> Self {
        let (wanted, rate_bps) = match config.kind {
            Kind::Unfair => (config.unfair_window_bytes, None),
            _ => (None, config.fixed_rate_bps),
        };
        let mut fixed = Self {
            kind: config.kind,
            window_bytes: 0,
            rate_bps: rate_bps.and_then(NonZeroU64::new),
            wanted_bytes: wanted.and_then(NonZeroU64::new),
            least_bytes: config.mss.saturating_mul(2),
        };
        fixed.set_window_limit(config.window_limit_bytes);
        fixed
    }

    pub(crate) fn set_window_limit(&mut self, bytes: u64) {
        let wanted = self.wanted_bytes.map_or(bytes, |w| w.get().min(bytes));
        self.window_bytes = wanted.max(self.least_bytes.into());
    }

    /// The rate at which segments leave, if one was asked for.
    pub(crate) fn rate_bps(&self) -> Option<u64> {
        self.rate_bps.map(NonZeroU64::get)
    }
}
