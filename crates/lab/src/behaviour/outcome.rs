//! What the two applications saw: plain data that can be compared between two runs of a case.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// One thing an application sees on its socket, in its own order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// `connect()` or `accept()` succeeded.
    Connected,
    /// A call failed.
    Failed {
        /// The call, e.g. `connect`.
        call: String,
        /// Name of the error, e.g. `ECONNREFUSED`.
        errno: String,
    },
    /// Bytes read since the last event.
    Received {
        /// How many.
        bytes: u64,
        /// Their SHA-256, hexadecimal.
        sha256: String,
    },
    /// Orderly end of stream (`recv` returned 0).
    End,
    /// Anything else that must be the same on every path.
    Fact {
        /// What was looked at.
        what: String,
        /// What it was.
        value: String,
    },
}

/// How the duration of another run may differ from the direct one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TimingRule {
    /// Not later than direct + 1 RTT; earlier is welcome (data transfer).
    NotLater,
    /// Neither earlier nor later than direct by more than 1 RTT (errors, time-outs).
    Same,
}

/// One duration, measured by the application.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// What took this time.
    pub what: String,
    /// How long, in milliseconds.
    pub ms: f64,
    /// What another run may differ by.
    pub rule: TimingRule,
    /// Allowance for the machine's own noise, in milliseconds, on top of one RTT.
    pub slack_ms: f64,
}

/// The application-visible result of one case on one path.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// What the client saw.
    pub client: Vec<Event>,
    /// What the server saw.
    pub server: Vec<Event>,
    /// Durations, compared by their rules.
    pub timings: Vec<Timing>,
    /// What is wrong on any path, whatever the direct one did (wrong bytes, for example).
    pub faults: Vec<String>,
    /// Side remarks; reported, never compared.
    pub notes: BTreeMap<String, String>,
}

/// The result of comparing one run with the direct one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub enum Verdict {
    /// Nothing an application can see differs.
    Same,
    /// What differs, one line each.
    Differs {
        /// The differences.
        lines: Vec<String>,
    },
}

impl Verdict {
    /// Whether nothing differs.
    pub fn is_same(&self) -> bool {
        matches!(self, Verdict::Same)
    }
}

impl std::fmt::Display for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Event::Connected => write!(f, "connected"),
            Event::Failed { call, errno } => write!(f, "{call}: {errno}"),
            Event::Received { bytes, sha256 } => {
                write!(f, "received {bytes} bytes sha256 {:.12}", sha256)
            }
            Event::End => write!(f, "end of stream"),
            Event::Fact { what, value } => write!(f, "{what} = {value}"),
        }
    }
}

/// Compares `other` with `direct`: events exactly, timings by their rules with `rtt` as the unit.
pub fn judge(direct: &Outcome, other: &Outcome, rtt: Duration) -> Verdict {
    let mut lines = Vec::new();
    lines.extend(other.faults.iter().map(|fault| format!("fault: {fault}")));
    compare_events("client", &direct.client, &other.client, &mut lines);
    compare_events("server", &direct.server, &other.server, &mut lines);
    compare_timings(direct, other, rtt, &mut lines);
    if lines.is_empty() { Verdict::Same } else { Verdict::Differs { lines } }
}

fn compare_events(side: &str, direct: &[Event], other: &[Event], lines: &mut Vec<String>) {
    for index in 0..direct.len().max(other.len()) {
        match (direct.get(index), other.get(index)) {
            (Some(a), Some(b)) if a == b => {}
            (Some(a), Some(b)) => lines.push(format!("{side} event {index}: direct: {a}; here: {b}")),
            (Some(a), None) => lines.push(format!("{side} event {index}: direct: {a}; here: nothing")),
            (None, Some(b)) => lines.push(format!("{side} event {index}: direct: nothing; here: {b}")),
            (None, None) => {}
        }
    }
}

fn compare_timings(direct: &Outcome, other: &Outcome, rtt: Duration, lines: &mut Vec<String>) {
    let rtt_ms = rtt.as_secs_f64() * 1e3;
    for a in &direct.timings {
        let Some(b) = other.timings.iter().find(|timing| timing.what == a.what) else {
            lines.push(format!("{}: direct {:.0} ms, here not measured", a.what, a.ms));
            continue;
        };
        let latest = a.ms + rtt_ms + a.slack_ms;
        let earliest = a.ms - rtt_ms - a.slack_ms;
        if b.ms > latest || (a.rule == TimingRule::Same && b.ms < earliest) {
            lines
                .push(format!("{}: direct {:.0} ms, here {:.0} ms (RTT {rtt_ms:.0} ms)", a.what, a.ms, b.ms));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(ms: f64) -> Outcome {
        Outcome {
            client: vec![Event::Failed { call: "connect".into(), errno: "ECONNREFUSED".into() }],
            timings: vec![Timing { what: "connect".into(), ms, rule: TimingRule::Same, slack_ms: 10.0 }],
            ..Outcome::default()
        }
    }

    #[test]
    fn equal_outcomes_are_the_same_within_one_rtt() {
        let rtt = Duration::from_millis(40);
        assert!(judge(&refused(40.0), &refused(89.0), rtt).is_same());
        assert!(!judge(&refused(40.0), &refused(91.0), rtt).is_same());
        assert!(!judge(&refused(100.0), &refused(40.0), rtt).is_same(), "too early is a difference too");
    }

    #[test]
    fn transfers_may_be_faster() {
        let timing = |ms| Outcome {
            timings: vec![Timing { what: "get".into(), ms, rule: TimingRule::NotLater, slack_ms: 0.0 }],
            ..Outcome::default()
        };
        let rtt = Duration::from_millis(10);
        assert!(judge(&timing(100.0), &timing(1.0), rtt).is_same());
        assert!(!judge(&timing(100.0), &timing(111.0), rtt).is_same());
        assert!(
            !judge(&timing(100.0), &Outcome::default(), rtt).is_same(),
            "a missing timing is a difference"
        );
    }

    #[test]
    fn every_kind_of_difference_is_named() {
        let rtt = Duration::ZERO;
        let mut other = refused(40.0);
        other.client.push(Event::End);
        assert!(!judge(&refused(40.0), &other, rtt).is_same());
        assert!(!judge(&other, &refused(40.0), rtt).is_same());
        let mut faulty = refused(40.0);
        faulty.faults.push("wrong byte at 7".into());
        assert!(!judge(&refused(40.0), &faulty, rtt).is_same(), "a fault counts even where direct had none");
        let mut noted = refused(40.0);
        noted.notes.insert("segments".into(), "3".into());
        assert!(judge(&refused(40.0), &noted, rtt).is_same(), "notes are not compared");
    }
}
