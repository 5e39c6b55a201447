//! A recorded link as a table: what delay, rate and loss were from a time on.
//!
//! ```text
//! # any comment
//! time_s,delay_ms,rate_bps,loss
//! 0,20,50e6,0
//! 1.5,35,20e6,0.001
//! ```
//!
//! The first line that is no comment names the columns; `time_s` and one of the others have to be
//! there. An empty cell leaves what was. Each row holds until the next one, and the last one for
//! ever.

use farlink_wire::time::Duration;

use crate::config::{DelayChange, LossChange, RateChange};

const ROWS_MAX: usize = 100_000;
const COLUMNS: [&str; 4] = ["time_s", "delay_ms", "rate_bps", "loss"];
const EXPECTED: &str = "columns time_s and some of delay_ms, rate_bps, loss expected";
/// Greater numbers are no times of a link: a year.
const SECONDS_MAX: f64 = 3.2e7;

/// See the module. Rows that change nothing are left out.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Trace {
    /// One-way delays.
    pub delay_changes: Vec<DelayChange>,
    /// Rates.
    pub rate_changes: Vec<RateChange>,
    /// Losses.
    pub loss_changes: Vec<LossChange>,
}

/// Reads a table.
///
/// # Errors
/// The line that cannot be read, and what is expected.
pub fn parse_trace(text: &str) -> Result<Trace, String> {
    let lines = text.lines().zip(1_u32..).map(|(line, number)| (line.trim(), number));
    let mut lines = lines.filter(|(line, _)| !line.is_empty() && !line.starts_with('#'));
    let (header, number) = lines.next().ok_or_else(|| format!("an empty trace: {EXPECTED}"))?;
    let names: Vec<_> = header.split(',').map(str::trim).collect();
    if let Some(unknown) = names.iter().find(|name| !COLUMNS.contains(name)) {
        return Err(format!("line {number}: unknown column `{unknown}`; {EXPECTED}"));
    }
    if !names.contains(&"time_s") || names.len() < 2 {
        return Err(format!("line {number}: {EXPECTED}"));
    }
    let mut trace = Trace::default();
    let mut last = None;
    for (row, (line, number)) in lines.enumerate() {
        let wrong = |what: &str| format!("line {number}, `{line}`: {what}");
        if row >= ROWS_MAX {
            return Err(wrong("no more than 100,000 rows are taken"));
        }
        let cells: Vec<_> = line.split(',').map(str::trim).collect();
        if cells.len() != names.len() {
            return Err(wrong("as many values as columns expected"));
        }
        let cell = |name: &str| {
            let found = names.iter().zip(&cells).find(|(own, _)| **own == name);
            found.map(|(_, cell)| *cell).filter(|cell| !cell.is_empty())
        };
        let at = seconds(cell("time_s"), 1.0).ok_or_else(|| wrong("a time in seconds expected"))?;
        let at = at.ok_or_else(|| wrong("a time in seconds expected"))?;
        if last.is_some_and(|last| at <= last) {
            return Err(wrong("a time after that of the row before expected"));
        }
        last = Some(at);
        let delay = seconds(cell("delay_ms"), 1e-3).ok_or_else(|| wrong("a delay in ms expected"))?;
        let rate = number_up_to(cell("rate_bps"), 1e15).ok_or_else(|| wrong("a rate in bit/s expected"))?;
        let loss = number_up_to(cell("loss"), 1.0).ok_or_else(|| wrong("a loss from 0 to 1 expected"))?;
        trace.add(at, delay, rate.map(|bps| bps as u64), loss);
    }
    if last.is_none() { Err(format!("a trace without rows: {EXPECTED}")) } else { Ok(trace) }
}

impl Trace {
    fn add(&mut self, at: Duration, delay: Option<Duration>, rate_bps: Option<u64>, loss: Option<f64>) {
        if let Some(delay) = delay.filter(|new| self.delay_changes.last().map(|c| c.delay) != Some(*new)) {
            self.delay_changes.push(DelayChange { at, until: at, delay });
        }
        if let Some(bps) = rate_bps.filter(|new| self.rate_changes.last().map(|c| c.rate_bps) != Some(*new)) {
            self.rate_changes.push(RateChange { at, rate_bps: bps });
        }
        if let Some(loss) = loss.filter(|new| self.loss_changes.last().map(|c| c.loss) != Some(*new)) {
            self.loss_changes.push(LossChange { at, loss });
        }
    }
}

/// A number from zero on, if there is one; `None`: it cannot be read.
fn number_up_to(cell: Option<&str>, most: f64) -> Option<Option<f64>> {
    let Some(cell) = cell else { return Some(None) };
    cell.parse::<f64>().ok().filter(|number| (0.0..=most).contains(number)).map(Some)
}

fn seconds(cell: Option<&str>, unit_s: f64) -> Option<Option<Duration>> {
    let number = number_up_to(cell, SECONDS_MAX / unit_s)?;
    Some(number.map(|number| Duration::from_nanos((number * unit_s * 1e9).round() as u64)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_becomes_schedules() {
        let text =
            "# recorded\n\ntime_s, rate_bps, delay_ms, loss\n0,50e6,20,0\n1.5,,35.5,0.001\n2,50e6,35.5,0\n";
        let trace = parse_trace(text).unwrap();
        let step = |at, us| DelayChange {
            at: Duration::from_millis(at),
            until: Duration::from_millis(at),
            delay: Duration::from_micros(us),
        };
        assert_eq!(trace.delay_changes, [step(0, 20_000), step(1_500, 35_500)]);
        assert_eq!(trace.rate_changes, [RateChange { at: Duration::ZERO, rate_bps: 50_000_000 }]);
        let losses: Vec<_> = trace.loss_changes.iter().map(|c| c.loss).collect();
        assert_eq!(losses, [0.0, 0.001, 0.0]);
    }

    #[test]
    fn what_is_wrong_is_said_by_its_line() {
        for (text, hint) in [
            ("", "an empty trace"),
            ("time_s\n1\n", "line 1: columns time_s and some of"),
            ("time_s,delay\n1,2\n", "unknown column `delay`"),
            ("time_s,loss\n", "without rows"),
            ("time_s,loss\n1\n", "line 2, `1`: as many values"),
            ("time_s,loss\n1,2\n", "a loss from 0 to 1"),
            ("time_s,loss\n,0\n", "a time in seconds"),
            ("#\ntime_s,delay_ms\n1,5\n1,6\n", "line 4, `1,6`: a time after"),
            ("time_s,delay_ms\n1,-5\n", "a delay in ms"),
            ("time_s,rate_bps\n1,fast\n", "a rate in bit/s"),
        ] {
            let said = parse_trace(text).unwrap_err();
            assert!(said.contains(hint), "{text}: {said}");
        }
    }
}
