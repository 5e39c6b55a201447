//! At which pace it sends. At the rate of the link it has none: the link's queue is the clock.

use farlink_wire::time::Duration;

use super::{KnownRate, State};

impl KnownRate {
    pub(crate) fn pacing_rate_bps(&self, srtt: Duration) -> Option<u64> {
        match &self.state {
            State::Link(_) => None,
            State::Trial(trial) => Some(trial.rate_bps),
            State::Beyond(bbr, _) => bbr.pacing_rate_bps(srtt),
        }
    }

    pub(crate) fn unpaced_bytes(&self) -> u64 {
        if let State::Beyond(bbr, _) = &self.state { bbr.unpaced_bytes() } else { 0 }
    }

    pub(crate) fn relies_on_pacing(&self) -> bool {
        !matches!(&self.state, State::Beyond(bbr, _) if !bbr.relies_on_pacing())
    }
}
