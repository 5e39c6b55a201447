//! Schedules as people write them: contacts `0s-10s 30s-40s@2M`, rates from given times on `10s=4M
//! 20s=8M`.
//!
//! Times and rates are read as everywhere ([`farlink_wire::quantity`]); a rate without a unit is
//! bit/s. The same text comes out again.

use core::fmt::Write;

use farlink_wire::quantity::{self, Bare};
use farlink_wire::time::Duration;

use crate::config::{Contact, RateChange};

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
