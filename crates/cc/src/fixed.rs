//! No congestion control. `fixed-rate` is for a link whose rate is known to its owner and shared by a queue of our own: loss there
//! is corruption or outage, and a smaller window would cure neither. `unfair` is the same window without a clock, for
//! comparison (Reynolds 4.4: the controller that keeps the buffer of a bad link full, and the least considerate of all).

use crate::api::{Config, Kind};

/// The window is what it is, whatever happens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fixed {
    pub(crate) kind: Kind,
    pub(crate) window_bytes: u64,
    pub(crate) rate_bps: Option<u64>,
}

impl Fixed {
    pub(crate) fn new(config: &Config) -> Self {
        let (wanted, rate_bps) = match config.kind {
            Kind::Unfair => (config.unfair_window_bytes, None),
            _ => (None, config.fixed_rate_bps),
        };
        let limit = config.window_limit_bytes;
        Self {
            kind: config.kind,
            window_bytes: wanted.map_or(limit, |w| w.min(limit)).max(2 * u64::from(config.mss)),
            rate_bps,
        }
    }
}
