//! The runs on several paths side by side: which case differs from the direct path, and how.

use std::fmt::Write as _;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::outcome::{Outcome, Verdict, judge};
use super::runner::CaseResult;

/// The results of all paths.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Round-trip time of the paths in milliseconds: the unit of the timing rules.
    pub rtt_ms: f64,
    /// One row for each case.
    pub rows: Vec<Row>,
}

/// One case on all paths.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Name of the case.
    pub name: String,
    /// What it is about.
    pub about: String,
    /// The direct run.
    pub direct: CaseResult,
    /// Whether the direct run itself was what the case expects: no fault.
    pub direct_ok: bool,
    /// The other paths.
    pub others: Vec<Cell>,
}

/// One case on one of the other paths.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cell {
    /// Name of the path, e.g. `gateways-2`.
    pub variant: String,
    /// Against the direct path.
    pub verdict: Verdict,
    /// The run.
    pub result: CaseResult,
}

impl Report {
    /// Holds the runs on other paths (variant name, results) against the direct run.
    pub fn new(rtt: Duration, direct: Vec<CaseResult>, others: Vec<(String, Vec<CaseResult>)>) -> Report {
        let rows = direct
            .into_iter()
            .map(|direct| {
                let cells = others.iter().map(|(variant, results)| {
                    let found = results.iter().find(|result| result.name == direct.name);
                    cell(variant, &direct, found, rtt)
                });
                Row {
                    name: direct.name.clone(),
                    about: direct.about.clone(),
                    others: cells.collect(),
                    direct_ok: direct.outcome.faults.is_empty(),
                    direct,
                }
            })
            .collect();
        Report { rtt_ms: rtt.as_secs_f64() * 1e3, rows }
    }

    /// Whether every case ran as expected on the direct path and looks the same on all others.
    pub fn all_same(&self) -> bool {
        self.rows.iter().all(Row::is_same)
    }

    /// Number of rows that differ somewhere.
    pub fn differing(&self) -> usize {
        self.rows.iter().filter(|row| !row.is_same()).count()
    }

    /// A table for the terminal: one line for each case, the differences below it.
    pub fn table(&self) -> String {
        let mut text = String::new();
        let width = self.rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
        for row in &self.rows {
            let _ = write!(text, "{:width$}  direct {}", row.name, mark(&row.direct, row.direct_ok));
            for cell in &row.others {
                let _ = write!(text, "  {} {}", cell.variant, mark(&cell.result, cell.verdict.is_same()));
            }
            text.push('\n');
            for fault in &row.direct.outcome.faults {
                let _ = writeln!(text, "    direct: {fault}");
            }
            for cell in &row.others {
                if let Verdict::Differs { lines } = &cell.verdict {
                    for line in lines {
                        let _ = writeln!(text, "    {}: {line}", cell.variant);
                    }
                }
            }
        }
        let _ = writeln!(text, "{} cases, {} differ", self.rows.len(), self.differing());
        text
    }
}

impl Row {
    /// Whether this case is the same everywhere.
    pub fn is_same(&self) -> bool {
        self.direct_ok && self.others.iter().all(|cell| cell.verdict.is_same())
    }
}

fn mark(result: &CaseResult, good: bool) -> String {
    match (&result.skipped, good) {
        (Some(_), _) => "skipped       ".to_string(),
        (None, true) => format!("ok     {:5.1} s", result.seconds),
        (None, false) => format!("DIFFERS{:5.1} s", result.seconds),
    }
}

/// As [`judge`], and no case may take much longer than on the direct path: a stall that heals is
/// one too.
pub fn judge_case(direct: &CaseResult, other: &CaseResult, rtt: Duration) -> Verdict {
    let mut lines = match judge(&direct.outcome, &other.outcome, rtt) {
        Verdict::Same => Vec::new(),
        Verdict::Differs { lines } => lines,
    };
    let latest = direct.seconds * 1.5 + 3.0 + 4.0 * rtt.as_secs_f64();
    if direct.duration_counts && other.seconds > latest {
        lines.push(format!("the case took {:.1} s, direct {:.1} s", other.seconds, direct.seconds));
    }
    if lines.is_empty() { Verdict::Same } else { Verdict::Differs { lines } }
}

fn cell(variant: &str, direct: &CaseResult, found: Option<&CaseResult>, rtt: Duration) -> Cell {
    let missing = |why: &str| {
        let lines = vec![why.to_string()];
        let result = CaseResult { outcome: Outcome::default(), ..direct.clone() };
        (Verdict::Differs { lines }, found.cloned().unwrap_or(result))
    };
    let (verdict, result) = match found {
        None => missing("was not run"),
        Some(other) if other.skipped.is_some() != direct.skipped.is_some() => {
            missing("run on one path, skipped on the other")
        }
        Some(other) => (judge_case(direct, other, rtt), other.clone()),
    };
    Cell { variant: variant.to_string(), verdict, result }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(name: &str, fault: Option<&str>) -> CaseResult {
        let faults = fault.map(str::to_string).into_iter().collect();
        let outcome = Outcome { faults, ..Outcome::default() };
        CaseResult {
            name: name.into(),
            about: String::new(),
            seconds: 1.0,
            duration_counts: true,
            skipped: None,
            outcome,
        }
    }

    fn report(direct: CaseResult, other: Vec<CaseResult>) -> Report {
        Report::new(Duration::from_millis(1), vec![direct], vec![("gateways-1".into(), other)])
    }

    #[test]
    fn equal_runs_pass_and_faults_or_gaps_do_not() {
        let good = report(result("a", None), vec![result("a", None)]);
        assert!(good.all_same(), "{}", good.table());
        assert!(!report(result("a", None), vec![result("a", Some("wrong byte"))]).all_same());
        assert!(!report(result("a", None), vec![]).all_same(), "a case that was not run is no success");
        let broken_case = report(result("a", Some("x")), vec![result("a", None)]);
        assert_eq!(broken_case.differing(), 1, "a fault on the direct path is a fault of the case");
    }

    #[test]
    fn a_stall_is_a_difference() {
        let slow = |seconds| CaseResult { seconds, ..result("a", None) };
        assert!(report(slow(10.0), vec![slow(17.0)]).all_same());
        assert!(!report(slow(10.0), vec![slow(19.0)]).all_same());
        let machine_bound = |seconds| CaseResult { duration_counts: false, ..slow(seconds) };
        assert!(report(machine_bound(10.0), vec![machine_bound(19.0)]).all_same());
    }

    #[test]
    fn skipping_on_one_path_only_is_a_difference() {
        let skipped = CaseResult { skipped: Some("slow path".into()), ..result("a", None) };
        assert!(report(skipped.clone(), vec![skipped.clone()]).all_same());
        assert!(!report(result("a", None), vec![skipped]).all_same());
    }
}
