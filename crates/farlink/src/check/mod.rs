//! `farlink check`: can this host divert traffic, is it being split right now, and if not, why?

mod advice;
mod exchanged;
pub mod host;
mod judge;
mod links;
mod live;
mod past;
pub mod undeclared;
pub mod watch;

use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use farlink_linux::divert::{
    self, Capture, CaptureState, Diagnosis, DivertConfig, Diverted, Method, Remedy, Selection, Severity,
};
use farlink_wire::ShimProtocols;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::admin::client::{NoGateway, Silent, ask_within};
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
/// So long it takes at most, beside listening.
const BESIDE_LISTENING: Duration = Duration::from_secs(2);

// The questions.
const HOST: &str = "Can this host divert traffic?";
const RUNNING: &str = "Is a gateway running?";
const IN_PLACE: &str = "Is its diversion in place?";
const SPLIT: &str = "Is traffic being split right now?";

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
    pub trouble: Vec<Diagnosis>,
    /// Whether its guard sees all of it in place; an older gateway does not say.
    #[serde(default)]
    pub in_place: Option<bool>,
    /// What is captured at each interface, as its guard sees it.
    #[serde(default)]
    pub captures: Vec<Capture>,
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
            whole_when_known: Vec::new(),
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
    /// Something is wrong with the diversion itself.
    pub fn has_problem(&self) -> bool {
        self.trouble.iter().any(|found| found.severity == Severity::Problem)
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
            let lines = view::wrap(&text, 96);
            for (i, line) in lines.iter().enumerate() {
                outln!("  {}{line}", if i == 0 { "- " } else { "  " });
            }
            // In words the best remedy is enough; `--json` has the others.
            match finding.remedies.first() {
                Some(Remedy::Run(commands)) => {
                    commands.iter().for_each(|command| outln!("    # {command}"));
                }
                Some(Remedy::Configure { key, value }) => outln!("    farlink.toml: {key} = {value}"),
                None => {}
            }
        }
    }
}

/// What the looking thread tells on its way.
enum Step {
    /// It looks for the answer to this now.
    Asks(&'static str),
    /// It has one.
    Has(Answer),
}

/// How the looking ended.
enum Outcome {
    /// With a gateway.
    Running,
    /// Nobody answers.
    NotRunning,
    /// There is nothing to go by.
    WrongConfiguration(anyhow::Error),
}

/// `farlink check`. It ends two seconds after it has listened, whatever hangs.
pub fn run(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let until = Instant::now() + Duration::from_secs(args.seconds) + BESIDE_LISTENING;
    let (tell, told) = channel();
    let asked = args.clone();
    let looking = std::thread::spawn(move || look(&asked, &tell));
    let (mut answers, mut question) = (Vec::new(), HOST);
    let is_late = loop {
        match told.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(Step::Asks(next)) => question = next,
            Ok(Step::Has(answer)) => answers.push(answer),
            Err(RecvTimeoutError::Disconnected) => break false,
            Err(RecvTimeoutError::Timeout) => break true,
        }
    };
    let outcome = if is_late {
        answers.push(late(question));
        Outcome::Running
    } else {
        looking.join().map_err(|_| anyhow::anyhow!("the thread that looks ended unexpectedly"))?
    };
    let code = match (answers.iter().any(Answer::has_problem), outcome) {
        (_, Outcome::WrongConfiguration(wrong)) => {
            crate::out::complain(&format!("{wrong:#}"));
            return Ok(ExitCode::from(crate::run::WRONG_CONFIGURATION));
        }
        (true, _) => BAD,
        (false, Outcome::Running) => GOOD,
        (false, Outcome::NotRunning) => NOT_RUNNING,
    };
    if args.json {
        let one = |a: &Answer| json!({"question": a.question, "answer": a.answer, "found": a.found});
        let answers: Vec<_> = answers.iter().map(one).collect();
        outln!("{}", serde_json::to_string_pretty(&json!({"exit_status": code, "answers": answers}))?);
    } else {
        answers.iter().for_each(Answer::print);
    }
    Ok(ExitCode::from(code))
}

fn look(args: &CheckArgs, tell: &Sender<Step>) -> Outcome {
    // Nobody waits any more: the rest is for nobody.
    let say = |step| drop(tell.send(step));
    say(Step::Asks(RUNNING));
    let running = ask_within(&args.socket.socket, &Request::Check {}, live::PATIENCE)
        .and_then(|value| Ok(serde_json::from_value::<Running>(value)?));
    let (divert, interfaces) = match &running {
        Ok(running) => (running.divert(), running.interfaces.iter().map(|i| i.name.clone()).collect()),
        Err(_) => match planned(args.config.as_deref()) {
            Ok(planned) => planned,
            Err(wrong) => return Outcome::WrongConfiguration(wrong),
        },
    };
    say(Step::Asks(HOST));
    say(Step::Has(host_answer(&divert, &interfaces, running.is_ok())));
    match &running {
        Ok(running) => {
            say(Step::Has(running_answer(running)));
            say(Step::Asks(IN_PLACE));
            say(Step::Has(in_place_answer(running)));
            say(Step::Asks(SPLIT));
            say(Step::Has(split_answer(args, running).unwrap_or_else(|error| absent(SPLIT, &error))));
            Outcome::Running
        }
        Err(error) => {
            say(Step::Has(absent(RUNNING, error)));
            Outcome::NotRunning
        }
    }
}

/// Something hangs: the process, a program that is asked.
fn late(question: &'static str) -> Answer {
    let text = "the answer did not come in time: this machine is overloaded, or a program that is asked hangs (`nft`)";
    Answer {
        question,
        answer: "unknown".to_owned(),
        found: vec![Diagnosis::new("late", Severity::Problem, text)],
    }
}

/// Nobody answers, or not as he should.
fn absent(question: &'static str, error: &anyhow::Error) -> Answer {
    let none = error.downcast_ref::<NoGateway>();
    let start = Remedy::run("systemctl start farlink");
    let (answer, finding) = match (error.is::<Silent>(), none.map(|e| e.was_killed)) {
        (true, _) => ("it does not answer", Diagnosis::new("silent", Severity::Problem, error.to_string())),
        (false, Some(true)) => {
            let finding = Diagnosis::new("killed", Severity::Problem, error.to_string());
            ("not any more", finding.mended_by(start))
        }
        (false, Some(false)) => {
            let finding = Diagnosis::new("not-running", Severity::Note, error.to_string());
            ("no", finding.mended_by(start))
        }
        (false, None) => ("unknown", Diagnosis::new("no-answer", Severity::Problem, format!("{error:#}"))),
    };
    Answer { question, answer: answer.to_owned(), found: vec![finding] }
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
    found.extend(divert::refusal(divert.method, interfaces).filter(|_| !is_running));
    found.extend(host::further(interfaces));
    // Whoever asks may have another PATH; the gateway has found it.
    found.iter_mut().filter(|d| d.id == "nft" && is_running).for_each(|d| d.severity = Severity::Warning);
    let bad = found.iter().any(|d| d.severity == Severity::Problem);
    let answer = match (bad, interfaces.is_empty()) {
        (true, _) => "no".to_owned(),
        (false, true) => "yes, but no interface is up".to_owned(),
        (false, false) => format!("yes ({})", interfaces.join(", ")),
    };
    Answer { question: HOST, answer, found }
}

fn running_answer(running: &Running) -> Answer {
    let up = view::seconds(running.uptime_seconds);
    let answer = format!("yes, farlink {}, process {}, for {up}", running.version, running.pid);
    Answer { question: RUNNING, answer, found: Vec::new() }
}

fn in_place_answer(running: &Running) -> Answer {
    let mut found = divert::verify(&running.divert(), &running.diverted());
    found.extend(running.trouble.iter().cloned());
    found.extend(unexplained(running, &found));
    let pairs: Vec<_> = running.with_devices().map(|i| format!("{} -> {}", i.name, i.device)).collect();
    let how = if running.has_bumps() { "by a bump: " } else { "by policy routing: " };
    let has_problem = found.iter().any(|d| d.severity == Severity::Problem);
    Answer {
        question: IN_PLACE,
        answer: match (has_problem, running.in_place, &running.whole[..]) {
            (true, ..) => "no".to_owned(),
            (false, Some(false), _) => "not yet".to_owned(),
            (false, _, []) => format!("yes ({how}{})", pairs.join(", ")),
            (false, _, links) => {
                format!("yes ({how}{}; everything that leaves by {})", pairs.join(", "), links.join(" or "))
            }
        },
        found,
    }
}

/// The guard does not see it in place, and nothing of `found` says why.
fn unexplained(running: &Running, found: &[Diagnosis]) -> Option<Diagnosis> {
    if running.in_place != Some(false) || !found.is_empty() {
        return None;
    }
    let is_wanted = |capture: &&Capture| capture.state == CaptureState::Wanted;
    let missing: Vec<_> = running.captures.iter().filter(is_wanted).map(|c| c.interface.as_str()).collect();
    let text = "the gateway's own guard does not see its diversion in place, and does not know why: the log says more";
    Some(Diagnosis::new("diversion-missing", Severity::Problem, text).seen("interfaces", missing.join(", ")))
}

fn split_answer(args: &CheckArgs, running: &Running) -> anyhow::Result<Answer> {
    let (before, after) = live::listen(&args.socket.socket, running, args.seconds, true)?;
    let mut verdict = judge::judge(running, &before, &after, args.seconds);
    // What is not about this machine is asked for.
    if args.hosts {
        verdict.found.extend(advice::advice(&after.status));
    }
    Ok(Answer { question: SPLIT, answer: verdict.answer, found: verdict.found })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running(in_place: Option<bool>, trouble: Vec<Diagnosis>) -> Running {
        // No device of this name is anywhere: what the guard says is what counts.
        let interfaces =
            vec![Interface { name: "sat0".into(), device: String::new(), device_index: 0, is_link: true }];
        Running {
            version: "1".into(),
            uptime_seconds: 1,
            pid: 1,
            method: "bump".into(),
            instance: String::new(),
            mark_mask: 0x7f00_0000,
            table_base: 51_000,
            rule_priority: 500,
            interfaces,
            whole: Vec::new(),
            shims: Vec::new(),
            trouble,
            in_place,
            captures: Vec::new(),
        }
    }

    /// What it answers, and the worst of what it found.
    fn answered(in_place: Option<bool>, trouble: &[(&'static str, Severity)]) -> (String, Option<Severity>) {
        let trouble = trouble.iter().map(|(id, severity)| Diagnosis::new(*id, *severity, *id)).collect();
        let Answer { answer, found, .. } = in_place_answer(&running(in_place, trouble));
        (answer, found.iter().map(|d| d.severity).max())
    }

    #[test]
    fn what_the_guard_does_not_see_in_place_is_not() {
        use Severity::{Note, Problem, Warning};
        assert_eq!(answered(Some(true), &[]).0, "yes (by a bump: )");
        assert_eq!(answered(None, &[]).0, "yes (by a bump: )", "an older gateway");
        assert_eq!(answered(Some(false), &[]), ("no".into(), Some(Problem)));
        assert_eq!(answered(Some(false), &[("on-trial", Note)]), ("not yet".into(), Some(Note)));
        assert_eq!(answered(Some(false), &[("not-attached", Problem)]), ("no".into(), Some(Problem)));
        // What is wrong elsewhere does not say that nothing is diverted.
        assert_eq!(
            answered(Some(true), &[("unwatched", Warning)]),
            ("yes (by a bump: )".into(), Some(Warning))
        );
        assert_eq!(answered(Some(true), &[("not-seen", Problem)]).0, "no");
    }
}
