//! `farlink check-config`: all that is wrong with a configuration. It reads one file, and nothing
//! else.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use farlink_gateway::config::Link;
use serde_json::{Value, json};

use crate::cli::CheckConfigArgs;
use crate::config::{self, ConfigError, Verdict};
use crate::out::outln;
use crate::run::summary;

/// A configuration that cannot be used; 2 is for a wrong command line.
const BAD: u8 = 1;
/// Between what is wrong and what to do about it.
const REMEDY: &str = "; allowed: ";

/// Says all that is wrong with a file.
pub fn run(args: &CheckConfigArgs) -> Result<ExitCode> {
    let verdict = config::judge(&args.file);
    let status = if verdict.settings.is_some() { 0 } else { BAD };
    if args.json {
        outln!("{}", serde_json::to_string_pretty(&as_json(&args.file, &verdict, status))?);
    } else {
        tell(&args.file, &verdict);
    }
    Ok(ExitCode::from(status))
}

fn tell(file: &Path, verdict: &Verdict) {
    for mistake in &verdict.mistakes {
        outln!("{mistake}");
    }
    match &verdict.settings {
        Some(settings) => {
            for note in notes(verdict) {
                outln!("note: {note}");
            }
            outln!("{}", summary(settings));
        }
        None => {
            let count = match verdict.mistakes.len() {
                1 => "one mistake".to_owned(),
                n => format!("{n} mistakes"),
            };
            let more = if verdict.is_partial { "; there may be more behind them" } else { "" };
            outln!("{}: {count}{more}", file.display());
        }
    }
}

/// What is no mistake, and may be none that was meant. Of the file alone: it may be read on another
/// machine than the one that it is for.
fn notes(verdict: &Verdict) -> Vec<String> {
    let Some(settings) = &verdict.settings else { return Vec::new() };
    let interfaces = &settings.gateway.interfaces;
    let mut notes = Vec::new();
    if let ([only], true) = (&interfaces[..], settings.finders.is_empty()) {
        notes.push(format!(
            "`{}` is the only interface: connections are split only where both of their directions pass it",
            only.name
        ));
    }
    let with_ceiling = |link: &&Link| link.rate_max_bps.is_some();
    notes.extend(interfaces.iter().filter_map(|i| i.link.as_ref()).filter(with_ceiling).map(|link| {
        format!(
            "link `{}`: `rate_max` bounds what two gateways find out. Where no gateway is at the other end it does nothing: if the rate moves \
             little, declare the highest as `rate`",
            link.name
        )
    }));
    notes
}

fn as_json(file: &Path, verdict: &Verdict, status: u8) -> Value {
    let mistake = |e: &ConfigError| {
        let (problem, allowed) = match e.problem.split_once(REMEDY) {
            Some((problem, allowed)) => (problem, Some(allowed)),
            None => (e.problem.as_str(), None),
        };
        json!({
            "line": e.place.map(|(line, _)| line),
            "column": e.place.map(|(_, column)| column),
            "key": e.key,
            "problem": problem,
            "allowed": allowed,
        })
    };
    json!({
        "file": file.display().to_string(),
        "exit_status": status,
        "mistakes": verdict.mistakes.iter().map(mistake).collect::<Vec<_>>(),
        "is_partial": verdict.is_partial,
        "notes": notes(verdict),
        "summary": verdict.settings.as_ref().map(|settings| summary(settings)),
    })
}
