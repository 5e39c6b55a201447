//! What holds of a sender.

use super::{Sender, Supply};
use crate::checked::{Checked, all_hold};

impl Sender {
    /// What holds, with this supply; `closely`: of each record of what is under way, too.
    pub fn check(&self, supply: &Supply, closely: bool) -> Checked {
        let t = &self.timers;
        let is_idle = t.rto.or(t.probe).or(t.reorder).or(t.early).is_none();
        all_hold(&[(is_idle || !self.flight.is_empty(), "a timer watches over nothing")])?;
        self.flight.check(supply.end + u32::from(supply.fin), closely)?;
        self.governor.check(self.snd_nxt())?;
        self.peer.check(self.snd_una())
    }

    /// A timer watches over what is under way.
    pub fn is_watched(&self) -> bool {
        self.flight.is_empty() || self.timers.rto.is_some()
    }
}

#[cfg(test)]
mod tests {
    use farlink_cc::{Config, Controller, Kind};
    use farlink_wire::{Duration, Instant, SeqNum};

    use super::super::{Plan, Purpose, RtoBounds, Sender, Supply};

    /// A probe was armed for it, and a turn of the link was asked for.
    #[test]
    fn nothing_under_way_needs_no_timer_and_no_turn() {
        let config = Config { kind: Kind::KnownRate, fixed_rate_bps: Some(8_000_000), ..Config::default() };
        let bounds = RtoBounds { min: Duration::from_millis(200), max: Duration::from_secs(60) };
        let mut now = Instant::from_millis(5);
        let mut s = Sender::new(now, SeqNum(0), Controller::new(&config), 1000, true, bounds);
        s.update_window(SeqNum(0), SeqNum(0), 1 << 20, true);
        s.remember_rtt(Duration::from_millis(500));
        let (end, urgent_end, urgent_until, urgent_zero) = (SeqNum(500), None, None, None);
        let supply = Supply { end, fin: false, push: end, urgent_end, urgent_until, urgent_zero };
        let plan = s.plan(now, &supply, 1000).expect("a segment");
        assert_eq!(
            plan,
            Plan { seq: SeqNum(0), len: 500, fin: false, purpose: Purpose::New, mtu_probe: false }
        );
        s.on_sent(now, &plan);
        now = s.timers.early.expect("a copy is due");
        s.on_timer(now);
        assert!(s.is_early_ready(now));
        let _ = s.on_ack(now, end, &[], true, false);
        assert!(!s.is_early_ready(now), "it has arrived");
        s.change_cc(now, &Config { kind: Kind::Cubic, ..config });
        assert_eq!((s.deadline(), s.check(&supply, true)), (None, Ok(())));
    }
}
