//! The path becomes another one, as where satellites take turns.

use farlink_wire::time::{Duration, Instant};

use super::{KnownRate, Rounds, State, TRIAL_ROUNDS, Train};

impl KnownRate {
    /// The path is another one from now on: what the trains under way show is of the one that was.
    pub(crate) fn begin_phase(&mut self) {
        (self.train, self.train_began, self.waiting) = (Train::default(), None, None);
        self.patience_rounds = TRIAL_ROUNDS;
        self.rounds = Rounds { waited_back: self.rounds.waited_back, ..Rounds::default() };
    }

    /// A round trip takes so long there at least.
    pub(crate) fn settle_phase(&mut self, now: Instant, min_rtt: Duration) {
        self.base = Some(min_rtt);
        if let State::Beyond(bbr, _) = &mut self.state {
            bbr.settle_phase(now, min_rtt);
        }
    }
}
