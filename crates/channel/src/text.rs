//! Schedules as people write them: contacts `0s-10s 30s-40s@2M`, rates from given times on `10s=4M
//! 20s=8M`, delays `10s=20ms 20s~30s=60ms`; capacity by demand `16k 2M 600ms`; and phases
//! `15s 20ms-60ms 50M-200M/5M-20M 100ms-200ms`.
//!
//! Times and rates are read as everywhere ([`farlink_wire::quantity`]); a rate without a unit is
//! bit/s. The same text comes out again.

use core::fmt::Write;

use farlink_wire::quantity::{self, Bare};
use farlink_wire::time::Duration;

use crate::config::{Contact, DelayChange, Demand, RateChange};
use crate::phases::Phases;

/// Units that rates are written in.
const FACTORS: [(char, u64); 3] = [('G', 1_000_000_000), ('M', 1_000_000), ('k', 1_000)];
/// Entries of one schedule.
const ENTRIES_MAX: usize = 10_000;

/// Reads contacts.
///
/// # Errors
/// The entry that cannot be read, and what is expected.
pub fn parse_contacts(text: &str) -> Result<Vec<Contact>, String> {
    entries(text, |entry| {
        let (times, rate) = match entry.split_once('@') {
            Some((times, rate)) => (times, Some(parse_rate(rate)?)),
            None => (entry, None),
        };
        let (start, end) = times.split_once('-')?;
        Some(Contact { start: parse_time(start)?, end: parse_time(end)?, rate_bps: rate })
    })
    .map_err(|entry| format!("`{entry}` is no contact: FROM-TO or FROM-TO@RATE such as 30s-40s@2M expected"))
}

/// Reads changes of the rate.
///
/// # Errors
/// The entry that cannot be read, and what is expected.
pub fn parse_rate_changes(text: &str) -> Result<Vec<RateChange>, String> {
    entries(text, |entry| {
        let (at, rate) = entry.split_once('=')?;
        Some(RateChange { at: parse_time(at)?, rate_bps: parse_rate(rate)? })
    })
    .map_err(|entry| format!("`{entry}` is no change of the rate: TIME=RATE such as 10s=4M expected"))
}

/// Reads delays: from a time on, or from one to another on a straight line.
///
/// # Errors
/// The entry that cannot be read, and what is expected.
pub fn parse_delay_changes(text: &str) -> Result<Vec<DelayChange>, String> {
    entries(text, |entry| {
        let (when, delay) = entry.split_once('=')?;
        let (at, until) = when.split_once('~').unwrap_or((when, when));
        let (at, until) = (parse_time(at)?, parse_time(until)?);
        Some(DelayChange { at, until, delay: parse_time(delay)? }).filter(|change| change.at <= change.until)
    })
    .map_err(|entry| {
        format!("`{entry}` is no change of the delay: TIME=DELAY or FROM~TO=DELAY such as 10s=20ms 20s~30s=60ms expected")
    })
}

/// Reads what a line has by demand.
///
/// # Errors
/// What is expected.
pub fn parse_demand(text: &str) -> Result<Demand, String> {
    let words: Vec<_> = text.split_whitespace().collect();
    let demand = match words.as_slice() {
        [least, most, latency] => parse_rate(least)
            .zip(parse_rate(most))
            .zip(parse_time(latency))
            .map(|((least_bps, most_bps), latency)| Demand { least_bps, most_bps, latency }),
        _ => None,
    };
    demand.ok_or_else(|| {
        format!("`{text}`: the least rate, the most, and the time from asking to getting such as `16k 2M 600ms` expected")
    })
}

/// Reads phases.
///
/// # Errors
/// What is expected.
pub fn parse_phases(text: &str) -> Result<Phases, String> {
    fn range<T: Copy>(text: &str, read: impl Fn(&str) -> Option<T>) -> Option<(T, T)> {
        let (least, most) = text.split_once('-').unwrap_or((text, text));
        Some((read(least)?, read(most)?))
    }
    let read = || {
        let words: Vec<_> = text.split_whitespace().collect();
        let [period, delay, rates, away] = words.as_slice() else { return None };
        let (down, up) = rates.split_once('/').unwrap_or((rates, rates));
        Some(Phases {
            period: parse_time(period)?,
            delay: range(delay, parse_time)?,
            rate_bps: [range(down, parse_rate)?, range(up, parse_rate)?],
            away: range(away, parse_time)?,
        })
    };
    let said = |phases: Phases| match phases.mistake() {
        Some(wrong) => Err(wrong),
        None => Ok(phases),
    };
    let expected = "period, delays, rates (towards the client/towards the server) and time away such as \
                    `15s 20ms-60ms 50M-200M/5M-20M 100ms-200ms`";
    match read().map(said) {
        Some(Ok(phases)) => Ok(phases),
        Some(Err(wrong)) => Err(format!("`{text}`: {wrong} expected: {expected}")),
        None => Err(format!("`{text}`: {expected} expected")),
    }
}

/// A time with its unit; zero needs none.
#[must_use]
pub fn parse_time(text: &str) -> Option<Duration> {
    if text == "0" { Some(Duration::ZERO) } else { quantity::time(text, Bare::Refused).ok() }
}

fn parse_rate(text: &str) -> Option<u64> {
    quantity::rate_bps(text, Bare::Base).ok()
}

/// Entries apart by blanks; the error is the one that cannot be read.
fn entries<T>(text: &str, read: impl Fn(&str) -> Option<T>) -> Result<Vec<T>, String> {
    let mut all = Vec::new();
    for entry in text.split_whitespace() {
        match read(entry) {
            Some(one) if all.len() < ENTRIES_MAX => all.push(one),
            _ => return Err(entry.to_owned()),
        }
    }
    Ok(all)
}

/// Contacts as [`parse_contacts`] reads them.
#[must_use]
pub fn contacts_text(contacts: &[Contact]) -> String {
    let mut text = String::new();
    for Contact { start, end, rate_bps } in contacts {
        let gap = if text.is_empty() { "" } else { " " };
        let _ = write!(text, "{gap}{}-{}", time_text(*start), time_text(*end));
        if let Some(bps) = rate_bps {
            let _ = write!(text, "@{}", rate_text(*bps));
        }
    }
    text
}

/// Changes of the rate as [`parse_rate_changes`] reads them.
#[must_use]
pub fn rate_changes_text(changes: &[RateChange]) -> String {
    let mut text = String::new();
    for RateChange { at, rate_bps } in changes {
        let gap = if text.is_empty() { "" } else { " " };
        let _ = write!(text, "{gap}{}={}", time_text(*at), rate_text(*rate_bps));
    }
    text
}

/// Delays as [`parse_delay_changes`] reads them.
#[must_use]
pub fn delay_changes_text(changes: &[DelayChange]) -> String {
    let entry = |DelayChange { at, until, delay }: &DelayChange| {
        let ramp = if until > at { format!("~{}", time_text(*until)) } else { String::new() };
        format!("{}{ramp}={}", time_text(*at), time_text(*delay))
    };
    changes.iter().map(entry).collect::<Vec<_>>().join(" ")
}

/// Capacity by demand as [`parse_demand`] reads it.
#[must_use]
pub fn demand_text(demand: &Demand) -> String {
    let Demand { least_bps, most_bps, latency } = demand;
    format!("{} {} {}", rate_text(*least_bps), rate_text(*most_bps), time_text(*latency))
}

/// Phases as [`parse_phases`] reads them.
#[must_use]
pub fn phases_text(phases: &Phases) -> String {
    let [down, up] = phases.rate_bps.map(|(least, most)| format!("{}-{}", rate_text(least), rate_text(most)));
    let times = |(least, most): (Duration, Duration)| format!("{}-{}", time_text(least), time_text(most));
    format!("{} {} {down}/{up} {}", time_text(phases.period), times(phases.delay), times(phases.away))
}

fn time_text(time: Duration) -> String {
    match time.as_nanos() {
        ns if ns.is_multiple_of(1_000_000_000) => format!("{}s", ns / 1_000_000_000),
        ns if ns.is_multiple_of(1_000_000) => format!("{}ms", ns / 1_000_000),
        ns => format!("{}us", ns as f64 / 1e3),
    }
}

fn rate_text(bps: u64) -> String {
    let unit = FACTORS.iter().find(|(_, factor)| bps > 0 && bps.is_multiple_of(*factor));
    unit.map_or_else(|| bps.to_string(), |(unit, factor)| format!("{}{unit}", bps / factor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_are_read_and_written_alike() {
        let text = "0s-10s 30s-40500ms@2M 50s-60s@1500k";
        let contacts = parse_contacts("0-10s  30s-40.5s@2M 50s-1min@1.5M").unwrap();
        assert_eq!(contacts.len(), 3);
        assert_eq!(contacts[1].end, Duration::from_millis(40_500));
        assert_eq!((contacts[0].rate_bps, contacts[2].rate_bps), (None, Some(1_500_000)));
        assert_eq!(contacts_text(&contacts), text);
        assert_eq!(parse_contacts(text).unwrap(), contacts);
        let changes = parse_rate_changes("10s=4M 1h=0 7200s=9600").unwrap();
        assert_eq!(rate_changes_text(&changes), "10s=4M 3600s=0 7200s=9600");
        assert_eq!(parse_contacts("").unwrap(), []);
    }

    #[test]
    fn delays_demand_and_phases_are_read_and_written_alike() {
        let text = "10s=20ms 20s~30s=60500us";
        let delays = parse_delay_changes("10s=20ms  20s~0.5min=60.5ms").unwrap();
        assert_eq!((delays[0].until, delays[1].until), (Duration::from_secs(10), Duration::from_secs(30)));
        assert_eq!(delay_changes_text(&delays), text);
        assert_eq!(parse_delay_changes(text).unwrap(), delays);
        let demand = parse_demand("16k 2M 0.6s").unwrap();
        assert_eq!((demand.least_bps, demand.most_bps), (16_000, 2_000_000));
        assert_eq!(demand_text(&demand), "16k 2M 600ms");
        let phases = parse_phases("15s 20ms-60ms 50M-200M 150ms").unwrap();
        assert_eq!(phases.rate_bps, [(50_000_000, 200_000_000); 2]);
        let text = phases_text(&phases);
        assert_eq!(text, "15s 20ms-60ms 50M-200M/50M-200M 150ms-150ms");
        assert_eq!(parse_phases(&text).unwrap(), phases);
        for wrong in ["10s", "10=20ms", "10s=20", "9s~8s=1ms", "10s~=1ms"] {
            assert!(parse_delay_changes(wrong).unwrap_err().contains("20s~30s=60ms"), "{wrong}");
        }
        for wrong in ["", "16k 2M", "16k 2M 600", "a 2M 600ms", "1 2 3s 4"] {
            assert!(parse_demand(wrong).unwrap_err().contains("16k 2M 600ms"), "{wrong}");
        }
        for wrong in ["15s", "15s 60ms-20ms 5M 1ms", "15s 2ms 5M 15s", "15s 2ms 0 1s", "15 2ms 5M 1s"] {
            assert!(parse_phases(wrong).unwrap_err().contains("15s 20ms-60ms"), "{wrong}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        for wrong in ["10s", "1-2", "a-b", "0s-1s@fast", "-1s-2s", "0s-1e999s"] {
            let said = parse_contacts(&format!("0s-1s {wrong}")).unwrap_err();
            assert!(said.contains(&format!("`{wrong}`")) && said.contains("30s-40s@2M"), "{said}");
        }
        for wrong in ["10s", "10s=", "10=4M", "10s=-1"] {
            assert!(parse_rate_changes(wrong).unwrap_err().contains("10s=4M"), "{wrong}");
        }
    }
}
