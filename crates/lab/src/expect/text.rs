//! A judgement for people.

use std::fmt::Write as _;

use serde_json::Value;

use super::{Judgement, Verdict, for_other};
use crate::report::CellReport;
use crate::scenario::Driver;

/// Cells that miss one bound and are shown; the others are only counted.
const MISSES_MAX: usize = 12;

/// `PASS` or `FAIL` beside a cell; nothing where nothing is expected of it.
#[must_use]
pub fn mark(judgement: &Judgement, cell: &CellReport) -> &'static str {
    let is_of = |v: &&Verdict| {
        let has = |name: &String| cell.params.get(name).unwrap_or(&Value::Null);
        v.variant == cell.variant && v.params.iter().all(|(name, value)| has(name) == value)
    };
    let of_it: Vec<_> = judgement.verdicts.iter().filter(is_of).collect();
    match (of_it.is_empty(), of_it.iter().all(|v| v.holds)) {
        (true, _) => "-",
        (false, true) => "PASS",
        (false, false) => "FAIL",
    }
}

/// Each bound with the cell that comes nearest to it, or those that miss it; then what was not
/// judged.
#[must_use]
pub fn render(judgement: &Judgement) -> String {
    if judgement.is_empty() {
        return String::new();
    }
    let mut text = String::from("\nexpectations\n");
    for group in groups(&judgement.verdicts) {
        of_group(&group, &mut text);
    }
    let is_of_other = |reason: &str| [Driver::Lab, Driver::Sim].into_iter().any(|d| for_other(d) == reason);
    let (others, rest): (Vec<_>, Vec<_>) = judgement.not_judged.iter().partition(|n| is_of_other(&n.reason));
    if let Some(first) = others.first() {
        let _ = writeln!(text, "  not judged: {} more, {}", others.len(), first.reason);
    }
    for not in rest {
        let _ = match not.expectation {
            0 => writeln!(text, "  not judged: {}", not.reason),
            number => writeln!(text, "  not judged: {number}. {}: {}", not.of, not.reason),
        };
    }
    text.push_str(&of_means(&judgement.verdicts));
    let _ = writeln!(
        text,
        "  {} hold, {} missed, {} not judged",
        judgement.verdicts.len() - judgement.missed(),
        judgement.missed(),
        judgement.not_judged.len()
    );
    text
}

/// How many cells were compared by means, and how many of them are slower or exceptions.
fn of_means(verdicts: &[Verdict]) -> String {
    let compared: Vec<_> = verdicts.iter().filter(|v| v.ratio.is_some()).collect();
    if compared.is_empty() {
        return String::new();
    }
    let is_of = |one: &Verdict, v: &Verdict| v.variant == one.variant && v.params == one.params;
    let of = |one: &Verdict| verdicts.iter().filter(|v| is_of(one, v)).collect::<Vec<_>>();
    let misses = compared.iter().filter(|v| of(v).iter().any(|v| !v.holds)).count();
    let excepted = compared.iter().filter(|v| of(v).iter().any(|v| v.excepted)).count();
    let slower = compared.iter().filter(|v| !v.holds).count();
    format!(
        "  {} cells compared by means: {slower} slower, {misses} miss a bound, {excepted} excepted\n",
        compared.len()
    )
}

/// Verdicts about one bound.
fn groups(verdicts: &[Verdict]) -> Vec<Vec<&Verdict>> {
    let mut groups: Vec<Vec<&Verdict>> = Vec::new();
    let key = |v: &Verdict| (v.expectation, v.figure.clone(), v.relation.clone());
    for verdict in verdicts {
        match groups.iter_mut().find(|g| g.first().is_some_and(|first| key(first) == key(verdict))) {
            Some(group) => group.push(verdict),
            None => groups.push(vec![verdict]),
        }
    }
    groups
}

fn of_group(group: &[&Verdict], text: &mut String) {
    let Some(first) = group.first() else { return };
    let misses: Vec<_> = group.iter().filter(|v| !v.holds).collect();
    if misses.is_empty() {
        let nearest = group.iter().min_by(|a, b| room(a).total_cmp(&room(b))).unwrap_or(first);
        let cells = if group.len() == 1 { "1 cell".into() } else { format!("{} cells", group.len()) };
        let _ = writeln!(text, "  PASS {:>2}. {cells}, nearest {}", first.expectation, line(nearest));
        return;
    }
    for miss in misses.iter().take(MISSES_MAX) {
        let _ = writeln!(text, "  FAIL {:>2}. {}", first.expectation, line(miss));
    }
    if let Some(more) = misses.len().checked_sub(MISSES_MAX).filter(|n| *n > 0) {
        let _ = writeln!(text, "  FAIL {:>2}. and {more} more cells", first.expectation);
    }
    if !first.why.is_empty() {
        let _ = writeln!(text, "           expected because: {}", first.why);
    }
}

/// How far from its bound, as a share of it.
fn room(v: &Verdict) -> f64 {
    let (Some(value), Some(bound)) = (v.value, v.bound) else { return f64::INFINITY };
    let room = if v.relation == "<=" { bound - value } else { value - bound };
    room / bound.abs().max(1e-9)
}

fn line(v: &Verdict) -> String {
    let number = |n: Option<f64>| n.map_or("none".into(), shown);
    let mut line = format!("{} {} {} {}:", v.figure, number(v.value), v.relation, number(v.bound));
    let _ = write!(line, " {}", v.variant);
    for (name, value) in &v.params {
        // What a variant means by itself is not repeated.
        if name != "gateways" && name != "baseline" && !value.is_null() {
            let _ = write!(line, " {name}={}", value.as_str().map_or_else(|| plain(value), String::from));
        }
    }
    if v.runs > 1 {
        let _ = write!(line, ", {} runs", v.runs);
    }
    if !v.note.is_empty() {
        let _ = write!(line, " ({})", v.note);
    }
    line
}

fn plain(value: &Value) -> String {
    value.to_string()
}

/// Four digits that matter, and all those before the point.
pub(super) fn shown(n: f64) -> String {
    match n.abs() {
        x if x >= 1_000.0 => format!("{n:.0}"),
        x if x >= 100.0 => format!("{n:.1}"),
        _ => format!("{n:.4}"),
    }
}
