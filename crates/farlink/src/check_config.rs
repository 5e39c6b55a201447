//! `farlink check-config`: all that is wrong with a configuration. It reads one file, and nothing
//! else.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
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

/// What is no mistake, and may be none that was meant.
fn notes(verdict: &Verdict) -> Vec<String> {
    let named = verdict.settings.iter().flat_map(|s| &s.gateway.interfaces).map(|i| i.name.as_str());
    let is_away = |name: &&str| !Path::new("/sys/class/net").join(name).exists();
    // A pattern is no name.
    let is_name = |name: &&str| !name.contains(['*', '?', '[', ':']);
    let away = named.clone().filter(is_name).filter(is_away);
    let mut notes: Vec<_> = away.map(|name| format!("this machine has no interface `{name}` now")).collect();
    let all: Vec<_> = named.collect();
    if let [only] = all[..]
        && is_name(&only)
    {
        notes.push(format!(
            "`{only}` is the only interface: connections are split only where both of their directions pass it"
        ));
    }
    let pool = verdict.settings.as_ref().map_or(0, |s| s.gateway.limits.pool_bytes as u64);
    if let Some(memory) = memory_bytes().filter(|memory| pool > *memory) {
        notes.push(format!(
            "`limits.pool_bytes` is {}, and this machine has {} of memory",
            crate::view::bytes(pool),
            crate::view::bytes(memory)
        ));
    }
    notes
}

/// What this machine has.
fn memory_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let kib = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(kib.trim().trim_end_matches(" kB").trim().parse::<u64>().ok()? * 1024)
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
