//! Delay, rate and loss of a direction over time, whoever says so: schedules, a recorded trace, or
//! satellites that take turns.

use std::path::Path;

use anyhow::{Result, bail};
use farlink_channel::{
    Contact, DelayChange, Demand, LossChange, Phases, RateChange, Trace, parse_trace, text,
};
use serde::{Deserialize, Serialize};

use super::{Duplex, Settings, Way};

/// A recorded trace, and its file. Another process that is told of it reads the file again.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Recording {
    file: String,
    trace: Trace,
}

impl TryFrom<String> for Recording {
    type Error = String;
    fn try_from(file: String) -> Result<Self, String> {
        let read = std::fs::read_to_string(&file).map_err(|wrong| {
            format!("{wrong}; a CSV file with a line `time_s,delay_ms,rate_bps,loss` expected")
        })?;
        let trace = parse_trace(&read)?;
        // The process of a link may stand elsewhere.
        let file = std::path::absolute(Path::new(&file)).map_or(file, |path| path.display().to_string());
        Ok(Self { file, trace })
    }
}

impl From<Recording> for String {
    fn from(recording: Recording) -> Self {
        recording.file
    }
}

/// Capacity by demand.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ByDemand(pub Demand);

impl TryFrom<String> for ByDemand {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text::parse_demand(&text).map(Self)
    }
}

impl From<ByDemand> for String {
    fn from(demand: ByDemand) -> Self {
        text::demand_text(&demand.0)
    }
}

/// Satellites that take turns.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TurnsOf(pub Phases);

impl TryFrom<String> for TurnsOf {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text::parse_phases(&text).map(Self)
    }
}

impl From<TurnsOf> for String {
    fn from(turns: TurnsOf) -> Self {
        text::phases_text(&turns.0)
    }
}

/// What moves in one direction.
#[derive(Debug, Default)]
pub(super) struct Moving {
    pub contacts: Vec<Contact>,
    pub delay_changes: Vec<DelayChange>,
    pub rate_changes: Vec<RateChange>,
    pub loss_changes: Vec<LossChange>,
}

impl Settings {
    /// What moves in this direction, of which these are the settings.
    pub(super) fn moving(&self, way: Way) -> Moving {
        if let Some(TurnsOf(phases)) = &self.phases {
            let planned = phases.plan(self.seed, way == Way::Down);
            let (contacts, delay_changes) = (planned.contacts, planned.delay_changes);
            return Moving {
                contacts,
                delay_changes,
                rate_changes: planned.rate_changes,
                ..Moving::default()
            };
        }
        let contacts = self.contacts.0.clone();
        if let Some(Recording { trace, .. }) = &self.trace {
            let Trace { delay_changes, rate_changes, loss_changes } = trace.clone();
            return Moving { contacts, delay_changes, rate_changes, loss_changes };
        }
        let delay_changes = self.delay_changes.0.clone();
        Moving {
            contacts,
            delay_changes,
            rate_changes: self.rate_changes.0.clone(),
            loss_changes: Vec::new(),
        }
    }

    /// Finds settings of one direction that say different things of the same.
    pub(super) fn check_moving(&self) -> Result<()> {
        let has_changes = !(self.delay_changes.0.is_empty() && self.rate_changes.0.is_empty());
        if self.trace.is_some() && has_changes {
            bail!("`trace` says what `delay_changes` and `rate_changes` say; one of them is allowed");
        }
        if self.phases.is_some() && (self.trace.is_some() || has_changes || !self.contacts.0.is_empty()) {
            bail!(
                "`phases` says what `trace`, `delay_changes`, `rate_changes` and `contacts` say; one of them is allowed"
            );
        }
        if self.turnaround_ms > 0.0 && self.duplex != Duplex::Half {
            bail!("`turnaround` is of a medium that both directions share: `duplex = \"half\"`");
        }
        if self.demand.is_some() && self.duplex == Duplex::Half {
            bail!(
                "`demand` is of a direction with a medium of its own; with `duplex = \"half\"` it is not known"
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use farlink_wire::time::Duration;

    use super::*;
    use crate::settings::parsed as settings;

    #[test]
    fn what_moves_survives_the_way_to_the_process_of_a_link() {
        let trace = concat!("up.trace=", env!("CARGO_MANIFEST_DIR"), "/../../scenarios/traces/rain.csv");
        let s = settings(&[
            trace,
            "down.delay_changes=10s=20ms 20s~30s=60ms",
            "down.jitter_frame=5ms",
            "down.demand=16k 2M 600ms",
        ]);
        s.check().unwrap();
        let text = serde_json::to_string(&s).unwrap();
        let again: Settings = serde_json::from_str(&text).unwrap();
        assert_eq!(again, s);
        let (up, down) = (again.channel(Way::Up), again.channel(Way::Down));
        assert!(!up.rate_changes.is_empty() && !up.loss_changes.is_empty());
        assert_eq!((up.demand, down.rate_changes.len(), down.delay_changes.len()), (None, 0, 2));
        assert_eq!((down.jitter_frame, down.demand.unwrap().least_bps), (Duration::from_millis(5), 16_000));
        assert!(s.is_scheduled());
    }

    #[test]
    fn phases_are_of_the_whole_link_and_hold_what_waits() {
        let s = settings(&["phases=15s 20ms-60ms 50M-200M/5M 150ms", "seed=3"]);
        s.check().unwrap();
        let (up, down) = (s.channel(Way::Up), s.channel(Way::Down));
        assert_eq!((&up.contact_plan, &up.delay_changes), (&down.contact_plan, &down.delay_changes));
        assert!(up.contact_hold && up.rate_changes.iter().all(|c| c.rate_bps == 5_000_000));
        let text = serde_json::to_string(&s).unwrap();
        assert_eq!(serde_json::from_str::<Settings>(&text).unwrap().channel(Way::Down), down);
        assert_ne!(settings(&["phases=15s 20ms-60ms 50M-200M 150ms", "seed=4"]).channel(Way::Down), down);
    }

    #[test]
    fn what_moves_is_said_once() {
        for (pairs, hint) in [
            (&["phases=15s 20ms 5M 1s", "contacts=0s-1s"][..], "`phases` says what"),
            (&["phases=15s 20ms 5M 1s", "up.rate_changes=1s=5M"], "up: `phases` says what"),
            (&["phases=15s 20ms 5M 1s", "contact_period=3s"], "there are none"),
            (&["turnaround=150ms"], "`duplex"),
            (&["demand=16k 2M 600ms", "duplex=half"], "up: `demand`"),
            (&["delay_changes=5s=1ms 3s=2ms"], "`delay_changes` must be in order"),
            (&["delay_changes=5s~9s=1ms 8s=2ms"], "over before the next"),
            (&["demand=2M 1M 600ms"], "`demand` must be the least"),
        ] {
            let error = settings(pairs).check().unwrap_err().to_string();
            assert!(error.contains(hint), "{pairs:?}: {error}");
        }
        for (pair, hint) in [
            ("delay_changes=10=20ms", "20s~30s=60ms"),
            ("demand=2M", "16k 2M 600ms"),
            ("phases=15s", "50M-200M/5M-20M"),
            ("trace=/nowhere", "a CSV file"),
            ("up.phases=15s 20ms 5M 1s", "no key `phases` of its own"),
            ("up.turnaround=1s", "no key `turnaround`"),
        ] {
            let error = Settings::default().set_all([pair]).unwrap_err().to_string();
            assert!(error.contains(hint), "{pair}: {error}");
        }
    }
}
