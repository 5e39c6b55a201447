//! Cells against the better of several others, by means over all their runs: `runs = "means"`.

use serde_json::Value;

use super::{ALLOWANCE_S, Verdict, figure, finite, later_s, missing, text, verdict_of};
use crate::kinds::transfer::is_upload;
use crate::report::CellReport;
use crate::scenario::{Cell, Except, Expect, Only};

/// With fewer runs there is no tail, and noise may exceed what `never_above` leaves.
const MANY_RUNS: usize = 20;
/// The noise that is allowed for with [`ALL_RUNS`], in standard errors of the difference.
const STANDARD_ERRORS: f64 = 2.0;
const ALL_RUNS: usize = 40;

/// One of the cells compared with, and its runs.
#[derive(Debug)]
pub(super) struct Other<'a> {
    cell: &'a Cell,
    runs: Vec<&'a CellReport>,
}

impl<'a> Other<'a> {
    pub(super) fn new(cell: &'a Cell, runs: Vec<&'a CellReport>) -> Self {
        Self { cell, runs }
    }

    pub(super) fn has_run(&self) -> bool {
        !self.runs.is_empty()
    }
}

/// The values of a figure in all runs of a cell.
struct Sample(Vec<f64>);

impl Sample {
    /// A run that broke off took for ever. An error: a run without this figure.
    fn of<'a>(runs: &[&'a CellReport], measure: &str) -> Result<Self, &'a CellReport> {
        let of = |run: &&'a CellReport| {
            if run.intact { figure(run, measure).ok_or(*run) } else { Ok(f64::INFINITY) }
        };
        runs.iter().map(of).collect::<Result<_, _>>().map(Self)
    }

    fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.0.len() as f64
    }

    /// The variance of the mean; 0 of a single run.
    fn variance_of_mean(&self) -> f64 {
        let (n, mean) = (self.0.len() as f64, self.mean());
        let sum: f64 = self.0.iter().map(|x| (x - mean).powi(2)).sum();
        if n > 1.0 { sum / (n - 1.0) / n } else { 0.0 }
    }

    fn second_largest(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(|a, b| b.total_cmp(a));
        sorted.get(1).or(sorted.first()).copied().unwrap_or(f64::NAN)
    }
}

/// The verdicts of a cell. The first measure says which of the others is the better one.
pub(super) fn compared(
    expect: &Expect,
    excepts: &[Except],
    (cell, runs): (&Cell, &[&CellReport]),
    (others, twins): (&[Other<'_>], &[Other<'_>]),
) -> Vec<Verdict> {
    let Some(first) = expect.measures.first() else { return Vec::new() };
    let Some(better) = better_of(others, first) else { return Vec::new() };
    let twin = better_of(twins, first);
    let except = excepts.iter().find(|except| except.of.matches(&cell.params, &cell.variant));
    let mut verdicts = Vec::new();
    for measure in &expect.measures {
        let twin = twin.and_then(|twin| Sample::of(&twin.runs, measure).ok());
        let comparison = Comparison { expect, except, cell, measure, twin };
        match (Sample::of(runs, measure), Sample::of(&better.runs, measure)) {
            (Ok(ours), Ok(theirs)) => {
                let is_alone = measure == first;
                verdicts.push(comparison.of_means(&ours, &theirs, runs, &better.name(expect), is_alone));
                verdicts.extend(comparison.of_tails(&ours, &theirs, runs));
            }
            (Err(run), _) | (_, Err(run)) => {
                let note = missing(run, measure);
                verdicts.push(Verdict { note, ..verdict_of(cell, measure, "<=", runs.len()) });
            }
        }
    }
    verdicts
}

/// Standard errors that one difference of twenty exceeds by chance: Student's t for so many runs
/// less one, by the first terms of its expansion in their reciprocal (Abramowitz and Stegun
/// 26.7.5).
fn standard_errors(runs: usize) -> f64 {
    if !(2..ALL_RUNS).contains(&runs) {
        return STANDARD_ERRORS;
    }
    let n = (runs - 1) as f64;
    1.96 + 2.37 / n + 2.82 / n.powi(2) + 2.55 / n.powi(3)
}

fn better_of<'a, 'b>(others: &'a [Other<'b>], measure: &str) -> Option<&'a Other<'b>> {
    let mean = |other: &Other<'_>| Sample::of(&other.runs, measure).map_or(f64::INFINITY, |s| s.mean());
    others.iter().min_by(|a, b| mean(a).total_cmp(&mean(b)))
}

impl Other<'_> {
    /// By what tells it from the others: its variant, and the params that the expectation names.
    fn name(&self, expect: &Expect) -> String {
        let names = expect.not_slower_than.iter().flat_map(Only::names);
        let values = names.filter_map(|name| Some((name, self.cell.params.get(name)?)));
        let values = values.map(|(name, value)| format!(" {name}={}", value.as_str().unwrap_or("")));
        format!("{}{}", self.cell.variant, values.collect::<String>())
    }
}

struct Comparison<'a> {
    expect: &'a Expect,
    except: Option<&'a Except>,
    cell: &'a Cell,
    measure: &'a str,
    /// Of hosts alone on the link as it was declared.
    twin: Option<Sample>,
}

impl Comparison<'_> {
    fn of_means(
        &self,
        ours: &Sample,
        theirs: &Sample,
        runs: &[&CellReport],
        name: &str,
        is_first: bool,
    ) -> Verdict {
        let (mean, other) = (ours.mean(), theirs.mean());
        let errors = standard_errors(runs.len());
        let noise = errors * (ours.variance_of_mean() + theirs.variance_of_mean()).sqrt();
        let noise = if noise.is_finite() { noise } else { 0.0 };
        let is_noise = runs.len() > 1 && runs.len() < MANY_RUNS;
        let most = self.expect.never_above.filter(|_| !is_noise).unwrap_or(f64::INFINITY);
        let share = (other * (1.0 + self.expect.tolerance) + noise).min(other * most);
        let bound = share + self.allowance();
        let ratio = (mean - self.allowance()) / other;
        let mut note = format!("{:.4} x {name}, which has {}", mean / other, text::shown(other));
        if runs.len() > 1 {
            note += &format!(", {errors:.1} standard errors {}", text::shown(noise));
        }
        let verdict = Verdict {
            value: finite(mean),
            bound: finite(bound),
            holds: mean.is_finite() && mean <= bound || other.is_infinite() && mean.is_finite(),
            ratio: finite(mean / other).filter(|_| is_first),
            note,
            ..verdict_of(self.cell, self.measure, "<=", runs.len())
        };
        self.or_otherwise(verdict, ratio, 1.0, runs)
    }

    /// The second-worst run against that of the other.
    fn of_tails(&self, ours: &Sample, theirs: &Sample, runs: &[&CellReport]) -> Option<Verdict> {
        let most = self.expect.second_worst?;
        if self.is_of_bytes() || runs.len() < MANY_RUNS {
            return None;
        }
        let (ours, theirs) = (ours.second_largest(), theirs.second_largest());
        let bound = theirs * most + self.allowance();
        let verdict = Verdict {
            value: finite(ours),
            bound: finite(bound),
            holds: ours.is_finite() && ours <= bound,
            note: format!("{:.4} x that of the other", ours / theirs),
            ..verdict_of(self.cell, &format!("{} of the second-worst run", self.measure), "<=", runs.len())
        };
        Some(self.or_otherwise(verdict, (ours - self.allowance()) / theirs, most, runs))
    }

    /// What is missed may hold by another bound, which is none for bytes, or be an exception.
    fn or_otherwise(&self, verdict: Verdict, ratio: f64, usual: f64, runs: &[&CellReport]) -> Verdict {
        if verdict.holds || verdict.value.is_none() {
            return verdict;
        }
        let others = self.expect.or_at_most.iter().filter(|_| !self.is_of_bytes());
        for (name, bound) in others {
            let of = Sample::of(runs, name).ok().map(|sample| sample.mean());
            if let Some(value) = of.filter(|value| value <= bound) {
                let note = format!("{}; but {name} {value:.4} <= {bound:.4}", verdict.note);
                return Verdict { holds: true, note, ..verdict };
            }
        }
        if let Some(bound) = self.bound_of_twin(usual > 1.0)
            && verdict.value.is_some_and(|value| value <= bound)
        {
            let note = format!("{}; but {} on the link as it was declared", verdict.note, text::shown(bound));
            return Verdict { holds: true, note, ..verdict };
        }
        match self.except {
            Some(except) if self.bound_of(except).is_some_and(|most| ratio <= most * usual) => {
                let note = format!("{}; an exception: {}", verdict.note, except.why);
                Verdict { holds: true, excepted: true, note, ..verdict }
            }
            _ => verdict,
        }
    }

    /// What hosts alone take on the link as it was declared, with what may be added.
    fn bound_of_twin(&self, is_tail: bool) -> Option<f64> {
        let twin = self.twin.as_ref()?;
        let theirs = match (is_tail, self.expect.second_worst) {
            (true, Some(most)) => twin.second_largest() * most,
            _ => twin.mean() * (1.0 + self.expect.or_tolerance),
        };
        finite(theirs + self.allowance())
    }

    fn bound_of(&self, except: &Except) -> Option<f64> {
        if self.is_of_bytes() { except.bytes_at_most } else { except.at_most }
    }

    fn is_of_bytes(&self) -> bool {
        self.measure.ends_with("_bytes")
    }

    /// What may be added beside a share: seconds, or bytes of each connection.
    fn allowance(&self) -> f64 {
        if self.is_of_bytes() {
            let flows = self.cell.params.get("flows").and_then(Value::as_f64).unwrap_or(1.0);
            return self.expect.more_bytes * flows;
        }
        let s = &self.cell.settings;
        let rate_bps = if is_upload(self.cell) { s.up_bps() } else { s.rate_bps };
        let packet_s = 8.0 * f64::from(s.link_mtu) / rate_bps.max(1) as f64;
        let packets_s = if rate_bps > 0 { self.expect.later_packets * packet_s } else { 0.0 };
        ALLOWANCE_S + later_s(self.expect, self.cell) + packets_s
    }
}

#[cfg(test)]
mod tests {
    use super::standard_errors;

    #[test]
    fn few_runs_are_allowed_more_noise() {
        // Student's t at 97.5 % for 2, 9 and 19 degrees of freedom: 4.303, 2.262, 2.093.
        for (runs, least, most) in
            [(3, 4.1, 4.31), (10, 2.25, 2.27), (20, 2.09, 2.10), (40, 2.0, 2.0), (1, 2.0, 2.0)]
        {
            let is = standard_errors(runs);
            assert!(is >= least && is <= most, "{runs}: {is}");
        }
    }
}
