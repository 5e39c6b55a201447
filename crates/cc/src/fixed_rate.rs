//! No congestion control: for a link whose rate is known to its owner and shared by a queue of our own. Loss there is
//! corruption or outage, and a smaller window would cure neither.

use crate::api::Config;

/// The window is the limit, whatever happens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FixedRate {
    pub(crate) window_bytes: u64,
    pub(crate) rate_bps: Option<u64>,
}

impl FixedRate {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            window_bytes: config.window_limit_bytes.max(2 * u64::from(config.mss)),
            rate_bps: config.fixed_rate_bps,
        }
    }
}
