//! A guard that cannot do its work says so, and tries again. Pure.

use farlink_wire::{Duration, Instant};

use super::QUIET_FOR;
use crate::divert::{Diagnosis, Severity};
use crate::error::Error;

/// An error that lasts for less is no finding: the kernel's lists change while they are read.
const LASTS_FOR: Duration = Duration::from_secs(2);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Failure {
    /// The error, and since when there is one.
    error: Option<(Instant, String)>,
    logged_at: Option<Instant>,
}

impl Failure {
    /// What came of the last look.
    pub(super) fn note(&mut self, now: Instant, error: Option<Error>) {
        let Some(error) = error else {
            self.error = None;
            return;
        };
        if self.logged_at.is_none_or(|at| now.since(at) > QUIET_FOR) {
            self.logged_at = Some(now);
            tracing::error!(%error, "diversion cannot be looked after; it is tried again");
        }
        let since = self.error.as_ref().map_or(now, |(since, _)| *since);
        self.error = Some((since, error.to_string()));
    }

    /// What is to be said of it.
    pub(super) fn found(&self, now: Instant) -> Option<Diagnosis> {
        let (since, error) = self.error.as_ref().filter(|(since, _)| now.since(*since) >= LASTS_FOR)?;
        let text = format!(
            "diversion cannot be looked after: {error}. It is tried again; until then nobody puts back what is taken away, and interfaces that \
             have come are not diverted"
        );
        let finding = Diagnosis::new("unguarded", Severity::Problem, text).seen("error", error);
        Some(finding.seen("seconds", now.since(*since).as_secs()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_lasts_is_a_finding_until_it_is_over() {
        let mut failure = Failure::default();
        let at = |ms: u64| Instant::from_nanos(ms * 1_000_000);
        let error = || Some(Error::Refused("the table is locked".to_owned()));
        failure.note(at(1_000), error());
        assert_eq!(failure.found(at(1_000)), None, "a moment is no news");
        for ms in (1_250..=3_000).step_by(250) {
            failure.note(at(ms), error());
        }
        let found = failure.found(at(3_000)).unwrap();
        assert!(found.text.contains("the table is locked") && found.severity == Severity::Problem, "{found}");
        failure.note(at(3_250), None);
        assert_eq!(failure.found(at(9_000)), None);
        failure.note(at(9_000), error());
        assert_eq!(failure.found(at(10_000)), None, "it begins anew");
    }
}
