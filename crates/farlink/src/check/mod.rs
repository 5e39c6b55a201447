//! `farlink check`: can this host divert traffic, is it being split right now, and if not, why?

mod advice;
pub mod host;
mod judge;
mod live;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use farlink_linux::divert::{self, Diagnosis, DivertConfig, Diverted, Method, Selection, Severity};
use farlink_wire::ShimProtocols;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::admin::client::{NoGateway, Silent, ask};
use crate::admin::protocol::Request;
use crate::cli::CheckArgs;
use crate::out::outln;
use crate::{config, view};

/// All is well, as far as can be seen.
const GOOD: u8 = 0;
/// Something is wrong.
const BAD: u8 = 1;
/// The host could, but no gateway runs.
const NOT_RUNNING: u8 = 3;

/// What the running gateway says of its diversion: the answer to [`Request::Check`].
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Running {
    /// Its version.
    pub version: String,
    /// Since when, in seconds.
    pub uptime_seconds: u64,
    /// Process number.
    pub pid: u32,
    /// By which means it diverts; empty: an older gateway, by policy routing.
    #[serde(default)]
    pub method: String,
    /// Names and numbers of its diversion.
    pub instance: String,
    /// See [`DivertConfig`].
    pub mark_mask: u32,
    /// See [`DivertConfig`].
    pub table_base: u32,
    /// See [`DivertConfig`].
    pub rule_priority: u32,
    /// The diverted interfaces, in the order of their numbers.
    pub interfaces: Vec<Interface>,
    /// Those of which everything that leaves is diverted, whatever it is.
    #[serde(default)]
    pub whole: Vec<String>,
    /// The IP protocols that stand for XCP's own header.
    #[serde(default)]
    pub shims: Vec<u8>,
    /// What is wrong with the diversion, as its guard sees it.
    #[serde(default)]
    pub trouble: Vec<String>,
}

/// A diverted interface.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// The device that its traffic is diverted to; empty: what passes it meets the bump of another
    /// interface.
    pub device: String,
    /// Number of the TUN.
    pub device_index: u32,
    /// Whether a link is declared on it.
    pub is_link: bool,
}

impl Running {
    /// Programs at interfaces lead to the devices.
    pub fn has_bumps(&self) -> bool {
        self.method == Method::Bump.name()
    }
    fn divert(&self) -> DivertConfig {
        DivertConfig {
            instance: self.instance.clone(),
            mark_mask: self.mark_mask,
            table_base: self.table_base,
            rule_priority: self.rule_priority,
            selections: selections(&self.whole, &self.shims),
            method: if self.has_bumps() { Method::Bump } else { Method::Policy },
            attach: Vec::new(),
        }
    }
    fn diverted(&self) -> Vec<Diverted> {
        let one = |i: &Interface| Diverted {
            interface: i.name.clone(),
            tun: i.device.clone(),
            tun_index: i.device_index,
        };
        self.with_devices().map(one).collect()
    }
    fn with_devices(&self) -> impl Iterator<Item = &Interface> {
        self.interfaces.iter().filter(|i| !i.device.is_empty())
    }
}

/// TCP, what carries XCP's own header, and everything that leaves by these interfaces.
fn selections(whole: &[String], shims: &[u8]) -> Vec<Selection> {
    let shims = shims.iter().copied().fold(ShimProtocols::NONE, ShimProtocols::with);
    let mut all = Selection::tcp();
    all.extend(Selection::shims(shims));
    all.extend(whole.iter().cloned().map(Selection::LeavesBy));
    all
}

/// One question, its answer, and what was found.
struct Answer {
    question: &'static str,
    answer: String,
    found: Vec<Diagnosis>,
}

impl Answer {
    fn has_problem(&self) -> bool {
        self.found.iter().any(|d| d.severity == Severity::Problem)
    }
    fn print(&self) {
        outln!("{:<38} {}", self.question, self.answer);
        for finding in &self.found {
            let text = finding.to_string();
            let lines = wrap(&text, 96);
            for (i, line) in lines.iter().enumerate() {
                outln!("  {}{line}", if i == 0 { "- " } else { "  " });
            }
        }
    }
}

fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last().map_or(0, |l| l.chars().count());
        if last > 0 && last + 1 + word.chars().count() > width {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

/// `farlink check`
pub fn run(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let running = match ask(&args.socket.socket, &Request::Check {}) {
        Ok(value) => Ok(serde_json::from_value::<Running>(value)?),
        Err(e) if e.is::<NoGateway>() || e.is::<Silent>() => Err(e),
        Err(e) => return Err(e),
    };
    let (divert, interfaces) = match &running {
        Ok(running) => (running.divert(), running.interfaces.iter().map(|i| i.name.clone()).collect()),
        Err(_) => match planned(args.config.as_deref()) {
            Ok(planned) => planned,
            Err(wrong) => {
                crate::out::complain(&format!("{wrong:#}"));
                return Ok(ExitCode::from(crate::run::WRONG_CONFIGURATION));
            }
        },
    };
    let mut answers = vec![host_answer(&divert, &interfaces, running.is_ok())];
    match &running {
        Ok(running) => answers.extend(running_answers(args, running)?),
        Err(e) => answers.push(absent(e)),
    }
    let code = match (answers.iter().any(Answer::has_problem), &running) {
        (true, _) => BAD,
        (false, Ok(_)) => GOOD,
        (false, Err(_)) => NOT_RUNNING,
    };
    if args.json {
        let found = |d: &Diagnosis| json!({"id": d.id, "severity": format!("{:?}", d.severity).to_lowercase(), "text": d.text});
        let answers: Vec<_> = answers
            .iter()
            .map(|a| json!({"question": a.question, "answer": a.answer, "found": a.found.iter().map(found).collect::<Vec<_>>()}))
            .collect();
        outln!("{}", serde_json::to_string_pretty(&json!({"exit_status": code, "answers": answers}))?);
    } else {
        answers.iter().for_each(Answer::print);
    }
    Ok(ExitCode::from(code))
}

/// Nobody answers.
fn absent(error: &anyhow::Error) -> Answer {
    let was_killed = error.downcast_ref::<NoGateway>().is_some_and(|e| e.was_killed);
    let (answer, id, severity) = match (error.is::<Silent>(), was_killed) {
        (true, _) => ("it does not answer", "silent", Severity::Problem),
        (false, true) => ("not any more", "killed", Severity::Problem),
        (false, false) => ("no", "not-running", Severity::Note),
    };
    Answer {
        question: "Is a gateway running?",
        answer: answer.to_owned(),
        found: vec![Diagnosis::new(id, severity, error.to_string())],
    }
}

/// Without a gateway: what one would use.
fn planned(file: Option<&Path>) -> anyhow::Result<(DivertConfig, Vec<String>)> {
    let default = Path::new(config::DEFAULT_FILE);
    let Some(file) = file.or_else(|| default.exists().then_some(default)) else {
        return Ok((DivertConfig::default(), host::interfaces()));
    };
    let settings = config::load(Some(file), &config::Quick::default())?;
    let mut names: Vec<String> = settings.gateway.interfaces.into_iter().map(|i| i.name).collect();
    for found in farlink_linux::driver::found_by(&settings.finders)? {
        if !names.contains(&found) {
            names.push(found);
        }
    }
    Ok((settings.divert, names))
}

fn host_answer(divert: &DivertConfig, interfaces: &[String], is_running: bool) -> Answer {
    let mut found = divert::diagnose(divert, interfaces);
    // A gateway that runs has found its way.
    found.extend(divert::refusal(divert.method).filter(|_| !is_running));
    found.extend(host::further(interfaces));
    let bad = found.iter().any(|d| d.severity == Severity::Problem);
    let answer = match (bad, interfaces.is_empty()) {
        (true, _) => "no".to_owned(),
        (false, true) => "yes, but no interface is up".to_owned(),
        (false, false) => format!("yes ({})", interfaces.join(", ")),
    };
    Answer { question: "Can this host divert traffic?", answer, found }
}

fn running_answers(args: &CheckArgs, running: &Running) -> anyhow::Result<Vec<Answer>> {
    let up = view::seconds(running.uptime_seconds);
    let answer = format!("yes, farlink {}, process {}, for {up}", running.version, running.pid);
    let is_running = Answer { question: "Is a gateway running?", answer, found: Vec::new() };
    let mut missing = divert::verify(&running.divert(), &running.diverted());
    missing.extend(
        running.trouble.iter().map(|text| Diagnosis::new("diversion-trouble", Severity::Problem, text)),
    );
    let pairs: Vec<_> = running.with_devices().map(|i| format!("{} -> {}", i.name, i.device)).collect();
    let how = if running.has_bumps() { "by a bump: " } else { "by policy routing: " };
    let in_place = Answer {
        question: "Is its diversion in place?",
        answer: match (missing.is_empty(), &running.whole[..]) {
            (false, _) => "no".to_owned(),
            (true, []) => format!("yes ({how}{})", pairs.join(", ")),
            (true, links) => {
                format!("yes ({how}{}; everything that leaves by {})", pairs.join(", "), links.join(" or "))
            }
        },
        found: missing,
    };
    let socket = &args.socket.socket;
    let before = live::sample(socket, running)?;
    std::thread::sleep(Duration::from_secs(args.seconds));
    let after = live::sample(socket, running)?;
    let verdict = judge::judge(running, &before, &after, args.seconds);
    let is_split = Answer {
        question: "Is traffic being split right now?",
        answer: verdict.answer,
        found: verdict.found,
    };
    Ok(vec![is_running, in_place, is_split])
}
