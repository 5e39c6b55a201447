//! While the gateway runs, its log says what `farlink check` would call a problem or warn of: once
//! when it begins, once when it has gone.

use std::path::Path;
use std::time::Duration;

use farlink_linux::divert::{Diagnosis, Severity};
use farlink_linux::priority::{Priority, start_thread};

use super::{Running, host, judge, live, undeclared};
use crate::admin::client::ask_within;
use crate::admin::protocol::Request;

/// Where this machine and the counters are looked at for the first time, and then again.
const FIRST_AFTER: Duration = Duration::from_secs(5);
const THEN_EVERY: Duration = Duration::from_secs(50);
/// So long counters are listened to.
const LISTENS: u64 = 10;
/// What is so for a moment is no news: it has to be so twice in a row.
const TIMES: u32 = 2;

/// Looks for ever, on a thread of its own, at the gateway that answers at this socket.
pub fn start(socket: &Path) {
    let socket = socket.to_owned();
    // Without it the log says less.
    let _ = start_thread("check", Priority::Normal, move || watch(&socket));
}

fn watch(socket: &Path) {
    let mut known = Known::default();
    for look in 0_u32.. {
        std::thread::sleep(if look < TIMES { FIRST_AFTER } else { THEN_EVERY });
        // A gateway that ends, or is busy, has other things to say.
        if let Ok(found) = found(socket) {
            known.update(found, |change| match change {
                Change::Begins(d) => tracing::warn!(id = %d.id, "{}", d.text),
                Change::Ends(d) => tracing::info!(id = %d.id, "no longer so: {}", d.text),
                Change::Advice(d) => tracing::info!(id = %d.id, "{}", d.text),
            });
        }
    }
}

/// What the guard of the diversion does not say in the log itself.
fn found(socket: &Path) -> anyhow::Result<Vec<Diagnosis>> {
    let running: Running = serde_json::from_value(ask_within(socket, &Request::Check {}, live::PATIENCE)?)?;
    let (before, after) = live::listen(socket, &running, LISTENS, false)?;
    let mut found = judge::judge(&running, &before, &after, LISTENS).found;
    let interfaces: Vec<_> = running.interfaces.iter().map(|i| i.name.clone()).collect();
    found.extend(host::further(&interfaces));
    if running.has_bumps() {
        found.extend(farlink_linux::divert::diagnose(&running.divert(), &interfaces));
    }
    Ok(found)
}

/// News.
enum Change<'a> {
    Begins(&'a Diagnosis),
    Ends(&'a Diagnosis),
    /// It would help. That is said once of each link.
    Advice(&'a Diagnosis),
}

/// What was found at the last looks.
#[derive(Default)]
struct Known {
    seen: Vec<Seen>,
    /// Links of which it was said what would help.
    advised: Vec<String>,
}

struct Seen {
    finding: Diagnosis,
    /// How often in a row.
    times: u32,
}

impl Known {
    /// The same, whatever its numbers are now.
    fn is_same(a: &Diagnosis, b: &Diagnosis) -> bool {
        let place = |d: &Diagnosis| ["link", "interface", "chain"].map(|key| d.evidence.get(key).cloned());
        let without_numbers = |d: &Diagnosis| d.text.split(|c: char| c.is_ascii_digit()).next().map(str::len);
        a.id == b.id
            && place(a) == place(b)
            && (place(a).iter().any(Option::is_some) || without_numbers(a) == without_numbers(b))
    }

    fn advise(&mut self, found: &[Diagnosis], say: &mut impl FnMut(Change<'_>)) {
        for advice in found.iter().filter(|d| d.id == undeclared::UNKNOWN) {
            let link = advice.evidence.get("link").map(ToString::to_string).unwrap_or_default();
            if !self.advised.contains(&link) {
                say(Change::Advice(advice));
                self.advised.push(link);
            }
        }
    }

    fn update(&mut self, found: Vec<Diagnosis>, mut say: impl FnMut(Change<'_>)) {
        self.advise(&found, &mut say);
        let is_loud = |d: &Diagnosis| d.severity >= Severity::Warning;
        // What was told, and is only worth a note now, has not gone.
        let counts = |d: &Diagnosis, seen: &Seen| is_loud(d) || seen.times >= TIMES;
        let is_found = |seen: &Seen| found.iter().any(|d| Self::is_same(d, &seen.finding) && counts(d, seen));
        for gone in self.seen.extract_if(.., |seen| !is_found(seen)) {
            if gone.times >= TIMES {
                say(Change::Ends(&gone.finding));
            }
        }
        for finding in found.into_iter().filter(is_loud) {
            match self.seen.iter_mut().find(|seen| Self::is_same(&seen.finding, &finding)) {
                Some(seen) => {
                    seen.times = seen.times.saturating_add(1);
                    if seen.times == TIMES {
                        say(Change::Begins(&finding));
                    }
                }
                None => self.seen.push(Seen { finding, times: 1 }),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lasts_is_said_once_when_it_begins_and_once_when_it_ends() {
        let mut known = Known::default();
        let mut said = Vec::new();
        let rate = |mbps: u32| {
            Diagnosis::new("rate-too-high", Severity::Warning, format!("geo carries {mbps}"))
                .seen("link", "geo")
        };
        let down = |name: &str| {
            Diagnosis::new("interface-down", Severity::Warning, format!("{name} is down"))
                .seen("interface", name)
        };
        for found in [
            vec![rate(4), down("lan0")],
            vec![rate(5), down("lan0"), down("sat0")],
            vec![rate(4), down("lan0")],
            vec![rate(4)],
            vec![],
        ] {
            known.update(found, |change| {
                said.push(match change {
                    Change::Begins(d) => format!("+ {}", d.text),
                    Change::Ends(d) => format!("- {}", d.text),
                    Change::Advice(d) => format!("= {}", d.text),
                });
            });
        }
        assert_eq!(said, ["+ geo carries 5", "+ lan0 is down", "- lan0 is down", "- geo carries 4"]);
    }

    #[test]
    fn what_would_help_is_said_once_of_each_link() {
        let (mut known, mut said) = (Known::default(), Vec::new());
        let unknown = |link: &str| {
            Diagnosis::new(undeclared::UNKNOWN, Severity::Note, format!("say it of {link}"))
                .seen("link", link)
        };
        for found in [vec![], vec![unknown("geo")], vec![], vec![unknown("geo"), unknown("lte")], vec![]] {
            known.update(found, |change| match change {
                Change::Advice(d) => said.push(d.text.clone()),
                Change::Begins(d) | Change::Ends(d) => panic!("{}", d.text),
            });
        }
        assert_eq!(said, ["say it of geo", "say it of lte"]);
    }

    #[test]
    fn what_becomes_a_note_has_not_gone() {
        let mut known = Known::default();
        let mut said = Vec::new();
        let past = |percent: u32| {
            let severity = if percent < 25 { Severity::Note } else { Severity::Warning };
            Diagnosis::new("past-the-queue", severity, format!("{percent} %")).seen("link", "geo")
        };
        for percent in [24, 26, 24, 26, 27, 24, 26, 0] {
            let found = Some(past(percent)).filter(|_| percent > 0).into_iter().collect();
            known.update(found, |change| {
                said.push(match change {
                    Change::Begins(d) => format!("+ {}", d.text),
                    Change::Ends(d) => format!("- {}", d.text),
                    Change::Advice(d) => format!("= {}", d.text),
                });
            });
        }
        assert_eq!(said, ["+ 27 %", "- 26 %"]);
    }
}
