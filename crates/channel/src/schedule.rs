//! Rates and contacts over time.

use farlink_wire::time::{Duration, Instant};

use crate::config::{ChannelConfig, Contact};

/// What holds from a time until the next change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Section {
    /// In contact.
    pub(crate) open: bool,
    /// Serialisation rate; `None`: infinite.
    pub(crate) rate_bps: Option<u64>,
    /// When to ask again; `None`: never.
    pub(crate) until: Option<Instant>,
}

/// The section that contains `at`. Before the start the link is there, at its usual rate.
pub(crate) fn section(config: &ChannelConfig, at: Instant) -> Section {
    if at < config.start {
        return Section { open: true, rate_bps: config.rate_bps, until: Some(config.start) };
    }
    let elapsed = at.since(config.start);
    let later = config.rate_changes.partition_point(|change| change.at <= elapsed);
    let current = later.checked_sub(1).and_then(|i| config.rate_changes.get(i));
    let rate_bps = current.map(|change| change.rate_bps).or(config.rate_bps);
    let rate_until = config.rate_changes.get(later).map(|change| config.start + change.at);

    let contact = contact(config, elapsed);
    let contact_until = contact.until.map(|until| config.start + until);
    Section {
        open: contact.open,
        rate_bps: contact.rate_bps.or(rate_bps),
        until: [rate_until, contact_until].into_iter().flatten().min(),
    }
}

struct State {
    open: bool,
    rate_bps: Option<u64>,
    /// Since the start.
    until: Option<Duration>,
}

fn contact(config: &ChannelConfig, elapsed: Duration) -> State {
    if config.contact_plan.is_empty() {
        return State { open: true, rate_bps: None, until: None };
    }
    let period = config.contact_period.filter(|period| !period.is_zero());
    let (begin, within) = match period {
        None => (Duration::ZERO, elapsed),
        Some(period) => {
            let within = nanos(elapsed.as_nanos() % period.as_nanos());
            (elapsed.saturating_sub(within), within)
        }
    };
    let later = config.contact_plan.partition_point(|contact| contact.start <= within);
    let is_open = |contact: &&Contact| within < contact.end;
    let end_of_period = period.map(|period| begin + period);
    if let Some(contact) = later.checked_sub(1).and_then(|i| config.contact_plan.get(i)).filter(is_open) {
        // A contact cannot outlast its period.
        let end = begin + contact.end;
        let until = end_of_period.map_or(end, |period| period.min(end));
        State { open: true, rate_bps: contact.rate_bps, until: Some(until) }
    } else {
        let next = config.contact_plan.get(later).map(|contact| begin + contact.start);
        let until = match (next, end_of_period) {
            (Some(next), Some(end)) => Some(next.min(end)),
            (next, end) => next.or(end),
        };
        State { open: false, rate_bps: None, until }
    }
}

fn nanos(nanos: u128) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RateChange;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn sections() {
        let start = Instant::from_millis(1000);
        let mut config = ChannelConfig { start, rate_bps: Some(5), ..ChannelConfig::default() };
        assert_eq!(section(&config, start), Section { open: true, rate_bps: Some(5), until: None });
        config.rate_changes =
            vec![RateChange { at: ms(100), rate_bps: 6 }, RateChange { at: ms(200), rate_bps: 7 }];
        let at = |config: &ChannelConfig, t: u64| section(config, Instant::from_millis(1000 + t));
        let until = |t: u64| Some(Instant::from_millis(1000 + t));
        assert_eq!(at(&config, 99), Section { open: true, rate_bps: Some(5), until: until(100) });
        assert_eq!(at(&config, 100), Section { open: true, rate_bps: Some(6), until: until(200) });
        assert_eq!(at(&config, 5000), Section { open: true, rate_bps: Some(7), until: None });

        config.contact_plan = vec![
            Contact { start: ms(10), end: ms(20), rate_bps: None },
            Contact { start: ms(150), end: ms(350), rate_bps: Some(9) },
        ];
        assert_eq!(at(&config, 0), Section { open: false, rate_bps: Some(5), until: until(10) });
        let before = section(&config, start - Duration::from_nanos(1));
        assert_eq!(before, Section { open: true, rate_bps: Some(5), until: Some(start) });
        assert_eq!(at(&config, 10), Section { open: true, rate_bps: Some(5), until: until(20) });
        assert_eq!(at(&config, 20), Section { open: false, rate_bps: Some(5), until: until(100) });
        assert_eq!(at(&config, 160), Section { open: true, rate_bps: Some(9), until: until(200) });
        assert_eq!(at(&config, 350), Section { open: false, rate_bps: Some(7), until: None });
        // With a period, and a contact that is longer than what is left of it.
        config.contact_period = Some(ms(300));
        assert_eq!(at(&config, 299), Section { open: true, rate_bps: Some(9), until: until(300) });
        assert_eq!(at(&config, 300), Section { open: false, rate_bps: Some(7), until: until(310) });
        assert_eq!(
            at(&config, 300 * 1000 + 15),
            Section { open: true, rate_bps: Some(7), until: until(300_020) }
        );
    }
}
