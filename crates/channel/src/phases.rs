//! Satellites that take turns: every so often another one, with a delay and a rate of its own, and
//! nothing for a moment between two.

use farlink_wire::time::Duration;

use crate::config::{Contact, DelayChange, RateChange};
use crate::random::{Stream, Use};

/// Phases that are drawn; the last one stays. Of 15 s they are more than four hours.
const PHASES_MAX: u64 = 1_000;
/// Draws of one phase: delay, time away, and the rate of each direction.
const DRAWS: u64 = 4;
/// For ever: thirty years.
const FOR_EVER: Duration = Duration::from_secs(1_000_000_000);

/// What satellites have in common. Pairs are the least and the most of what is drawn, evenly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Phases {
    /// Length of a phase.
    pub period: Duration,
    /// One-way delay, the same in both directions.
    pub delay: (Duration, Duration),
    /// Rates in bits per second: towards the client, and towards the server. Each direction draws
    /// by itself.
    pub rate_bps: [(u64, u64); 2],
    /// How long the link is away at the beginning of a phase.
    pub away: (Duration, Duration),
}

/// The same as schedules of one direction.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Planned {
    /// When the link is there.
    pub contacts: Vec<Contact>,
    /// Its delays.
    pub delay_changes: Vec<DelayChange>,
    /// Its rates.
    pub rate_changes: Vec<RateChange>,
}

impl Phases {
    /// What this seed has drawn for the direction towards the client or the server. Both directions
    /// of one seed have the same boundaries and delays. The first boundary comes within one period.
    #[must_use]
    pub fn plan(&self, seed: u64, is_towards_client: bool) -> Planned {
        let mut draws = Stream::new(seed, Use::Phase);
        let [down, up] = self.rate_bps;
        let (rate, own) = if is_towards_client { (down, 2) } else { (up, 3) };
        let mut planned = Planned::default();
        let mut at = self.period.mul_f64(draws.unit_at(0));
        let mut back = Duration::ZERO;
        for phase in 0..PHASES_MAX {
            let mut draw = |number: u64| draws.unit_at(1 + phase * DRAWS + number);
            let begins = if phase == 0 { Duration::ZERO } else { at };
            let delay = self.delay.0 + self.delay.1.saturating_sub(self.delay.0).mul_f64(draw(0));
            let away = self.away.0 + self.away.1.saturating_sub(self.away.0).mul_f64(draw(1));
            let more_bps = rate.1.saturating_sub(rate.0) as f64 * draw(own);
            let rate_bps = rate.0.saturating_add(more_bps as u64);
            planned.delay_changes.push(DelayChange { at: begins, until: begins, delay });
            planned.rate_changes.push(RateChange { at: begins, rate_bps });
            if phase > 0 {
                planned.contacts.push(Contact { start: back, end: at, rate_bps: None });
                back = at + away;
                at += self.period;
            }
        }
        planned.contacts.push(Contact { start: back, end: back + FOR_EVER, rate_bps: None });
        planned.contacts.retain(|contact| contact.end > contact.start);
        planned
    }

    /// What makes no sense in it; `None`: nothing.
    #[must_use]
    pub fn mistake(&self) -> Option<&'static str> {
        let [down, up] = self.rate_bps;
        let are_ordered =
            self.delay.0 <= self.delay.1 && self.away.0 <= self.away.1 && down.0 <= down.1 && up.0 <= up.1;
        if !are_ordered {
            Some("ranges from the least to the most")
        } else if self.away.1 >= self.period {
            Some("away for less than a period")
        } else if down.0 == 0 || up.0 == 0 {
            Some("rates above zero")
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use farlink_wire::time::Instant;

    use super::*;
    use crate::config::ChannelConfig;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn both_directions_share_boundaries_and_delays_and_draw_rates() {
        let phases = Phases {
            period: ms(15_000),
            delay: (ms(20), ms(60)),
            rate_bps: [(50_000_000, 200_000_000), (5_000_000, 20_000_000)],
            away: (ms(100), ms(200)),
        };
        assert_eq!(phases.mistake(), None);
        let (down, up) = (phases.plan(7, true), phases.plan(7, false));
        assert_eq!((&down.contacts, &down.delay_changes), (&up.contacts, &up.delay_changes));
        assert_ne!(phases.plan(8, true), down);
        assert_eq!(down.contacts.len() as u64, PHASES_MAX);
        assert!(down.rate_changes.iter().all(|c| (50_000_000..=200_000_000).contains(&c.rate_bps)));
        assert!(up.rate_changes.iter().all(|c| (5_000_000..=20_000_000).contains(&c.rate_bps)));
        assert!(down.delay_changes.iter().all(|c| (ms(20)..=ms(60)).contains(&c.delay)));
        for (contact, next) in down.contacts.iter().zip(down.contacts.iter().skip(1)) {
            assert!((ms(100)..=ms(200)).contains(&(next.start - contact.end)));
        }
        // Delay and rate are new when the link goes.
        let config = ChannelConfig {
            contact_plan: down.contacts.clone(),
            delay_changes: down.delay_changes.clone(),
            rate_changes: down.rate_changes.clone(),
            ..ChannelConfig::default()
        };
        config.check().unwrap();
        let first = down.contacts[0].end;
        assert!(first <= ms(15_000));
        assert_eq!(config.delay_at(Instant::ZERO + first), down.delay_changes[1].delay);
        assert_eq!(down.delay_changes[2].at - down.delay_changes[1].at, ms(15_000));
        assert!(Phases { away: (ms(1), ms(15_000)), ..phases }.mistake().is_some());
        assert!(Phases { delay: (ms(3), ms(2)), ..phases }.mistake().is_some());
    }
}
