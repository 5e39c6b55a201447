//! Runs a scenario: its cells one after another, each in a laboratory of its own.

use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::expect::{Judge, Judgement};
use crate::kinds::{self, Kind, Run};
use crate::progress::Progress;
use crate::report::{CellReport, Measured, Report, Skipped, command_line};
use crate::scenario::{Cell, Chosen, Driver, Scenario, Wanted};
use crate::{html, interrupt, sh, state, table};

/// What `lab run` is told.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What is run.
    pub chosen: Chosen,
    /// Where plots go, if anywhere.
    pub plots: Option<PathBuf>,
}

/// Runs it. Call from the main thread: what the laboratory starts ends with the thread that started
/// it.
pub fn run(options: &Options) -> Result<Report> {
    let scenario = Scenario::find(&options.chosen.scenario)?;
    let mut kind = kinds::of(&scenario.kind)?;
    let all = kind.cells(&scenario)?;
    let judge = Judge::new(&scenario, &all, Driver::Lab)?;
    let subset = options.chosen.subset.as_deref();
    let wanted =
        Wanted { only: &options.chosen.only, subset, driver: Driver::Lab, repeat: options.chosen.repeat };
    let mut cells = scenario.select(all.clone(), &wanted)?;
    for (cell, _) in &mut cells {
        cell.set_all(options.chosen.set.iter().map(String::as_str))?;
    }
    for directory in options.plots.iter().chain(&options.chosen.captures) {
        std::fs::create_dir_all(directory)
            .with_context(|| format!("{} cannot be made", directory.display()))?;
    }
    interrupt::install(interrupt::remove_laboratories)?;
    state::sweep();
    let mut report = Report {
        scenario: scenario.name.clone(),
        title: scenario.title.clone(),
        clocks: scenario.clocks(),
        driver: "lab".into(),
        seed: options.chosen.seed,
        version: env!("CARGO_PKG_VERSION").into(),
        command: command_line(
            Driver::Lab,
            &options.chosen.scenario,
            (&options.chosen.only, subset),
            options.chosen.repeat,
            options.chosen.seed,
            &options.chosen.set,
        ),
        ..Report::default()
    };
    let only_cells: Vec<_> = cells.iter().map(|(cell, _)| cell.clone()).collect();
    kind.prepare(&only_cells);
    let mut traces = Vec::new();
    let progress = Progress::new(cells.iter().map(|(_, repeats)| *repeats as usize).sum());
    for (number, (cell, repeats)) in cells.iter().enumerate() {
        if let Some(reason) = cannot_run(cell, kind.as_ref()) {
            for _ in 0..*repeats {
                progress.end(&format!("{}: skipped, {reason}", name_of(cell)));
            }
            report.skipped.push(skipped(cell, reason));
            continue;
        }
        for repeat in 0..*repeats {
            progress.begin(&name_of(cell));
            let seed = options.chosen.seed.wrapping_add(1_000_003 * u64::from(repeat));
            let mut run = Run {
                seed,
                prefix: format!("flrun{}", std::process::id()),
                progress: &progress,
                keeps_moments: options.plots.is_some() && repeat == 0,
                captures: options.chosen.captures.clone().map(|d| (d, format!("{number:03}-{repeat}"))),
                trace: None,
            };
            let outcome = Measured::until_judged(|| kind.run(&scenario, cell, &mut run));
            let trace = run.trace.take();
            if let Some(reason) = outcome.as_ref().ok().and_then(|m| m.skipped.clone()) {
                progress.end(&format!("{}: skipped, {reason}", name_of(cell)));
                report.skipped.push(skipped(cell, reason));
                continue;
            }
            let cell_report = CellReport::new(cell, repeat, seed, outcome);
            progress.end(&line_of(cell, &cell_report));
            traces.extend(trace.map(|trace| (report.cells.len(), trace)));
            report.cells.push(cell_report);
        }
    }
    progress.finish();
    report.details = kind.details();
    report.expectations = judged(judge, &options.chosen.set, &report);
    if let Some(directory) = &options.plots {
        for (name, svg) in html::plots(&report, &traces)? {
            let path = directory.join(format!("{name}.svg"));
            std::fs::write(&path, svg).with_context(|| format!("{} cannot be written", path.display()))?;
        }
    }
    Ok(report)
}

/// What the scenario expects holds of its cells as they stand in the file.
pub(crate) fn judged(judge: Judge<'_>, set: &[String], report: &Report) -> Judgement {
    if set.is_empty() { judge.judge(report) } else { Judgement::none("--set changes the cells") }
}

pub(crate) fn skipped(cell: &Cell, reason: String) -> Skipped {
    Skipped { params: cell.params.clone(), variant: cell.variant.clone(), reason }
}

fn cannot_run(cell: &Cell, kind: &dyn Kind) -> Option<String> {
    if let Some(program) = cell.needs.as_ref().filter(|p| sh::find(p).is_none()) {
        return Some(format!("{program} is not installed"));
    }
    if cell.v6() && !cell.settings.has_v6() {
        return Some("IPv6 needs an MTU of 1280 bytes (RFC 8200 section 5)".into());
    }
    crate::hosts::missing(&cell.settings).or_else(|| kind.cannot_run(cell))
}

pub(crate) fn name_of(cell: &Cell) -> String {
    let mut words = vec![cell.variant.clone()];
    for name in ["case", "app", "topology"] {
        words.extend(cell.params.get(name).and_then(Value::as_str).map(String::from));
    }
    for (name, unit) in [("size_bytes", "B"), ("ip", "")] {
        let number = cell.params.get(name).and_then(Value::as_u64);
        words.extend(number.map(|n| if name == "ip" { format!("IPv{n}") } else { format!("{n} {unit}") }));
    }
    if cell.variant == "direct" {
        let legacy = if cell.word("hosts", "") == "legacy" { "legacy " } else { "" };
        words.push(format!("{legacy}{}", cell.settings.host_cc));
    }
    words.join(" ")
}

pub(crate) fn line_of(cell: &Cell, report: &CellReport) -> String {
    let mut line = name_of(cell);
    if let Some(seconds) = report.seconds {
        line += &format!(": {seconds:.3} s");
    }
    if let Some(ratio) = report.ratio_to_limit {
        line += &format!(", {ratio:.3} x limit");
    }
    if !report.intact {
        line += &format!(" NOT INTACT: {}", report.failures.first().map_or("", String::as_str));
    }
    line
}

/// The table of a report.
#[must_use]
pub fn table(report: &Report) -> String {
    table::render(report)
}
