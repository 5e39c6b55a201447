//! Situations that routers get into, and what `farlink check` says of each: the table is
//! tests/situations/table.toml, and docs/check.md shows it. What mends a situation is typed here as
//! `check` says it, and has to mend it. In network namespaces, as root.

#[path = "situations/bed.rs"]
mod bed;
#[path = "situations/ends.rs"]
mod ends;
#[path = "situations/traffic.rs"]
mod traffic;
#[path = "situations/voices.rs"]
mod voices;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::Value;

use bed::{Bed, Plan};

/// So many at once: they wait most of the time.
const AT_ONCE: usize = 6;
/// What `check` may take beside listening.
const BESIDE_LISTENING: Duration = Duration::from_millis(2500);
/// A machine whose processors are all busy is another situation: hosts send less than the links
/// carry. So what is wrong is tried again.
const TRIES: u32 = 3;
/// A shortage of processor time is waited for so often, and so long.
const ATTEMPTS: u32 = 4;
const SHORTAGE: Duration = Duration::from_secs(4);
/// So often they may contradict each other because something changes meanwhile.
const AGREE_WITHIN: u32 = 4;
/// How long it may take until what was mended shows.
const MENDED_WITHIN: Duration = Duration::from_secs(8);

#[derive(Deserialize)]
struct Table {
    situation: Vec<Situation>,
}

/// A row.
#[derive(Deserialize, Clone)]
#[serde(deny_unknown_fields)]
struct Situation {
    /// In words.
    name: String,
    #[serde(flatten)]
    plan: Plan,
    /// With policy routing; absent: it is not tried so.
    policy: Option<Expected>,
    /// With a bump.
    bump: Option<Expected>,
}

/// What `check` says.
#[derive(Deserialize, Clone)]
#[serde(deny_unknown_fields)]
struct Expected {
    /// Its exit status.
    status: i32,
    /// Findings, by id, that are there: all warnings and problems, and the notes that matter.
    #[serde(default)]
    found: Vec<String>,
    /// The first remedy of the first finding is typed, or what is to be done elsewhere is, and
    /// afterwards none of these is there.
    #[serde(default)]
    mends: bool,
}

fn table() -> Vec<Situation> {
    let text = include_str!("situations/table.toml");
    let table: Table = toml::from_str(text).expect("tests/situations/table.toml");
    table.situation
}

/// Why nothing of this can run here.
fn cannot_run() -> Option<&'static str> {
    let may = farlink_linux::caps::can_administer() && std::fs::File::open("/dev/net/tun").is_ok();
    if !may {
        return Some("it takes root and /dev/net/tun");
    }
    (!has("nft") || !has("ip")).then_some("nft and ip are not installed")
}

/// Whether a program is installed.
fn has(program: &str) -> bool {
    std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).any(|d| d.join(program).exists())
}

/// Whether all that a situation needs beside is installed.
fn can_come_about(situation: &Situation) -> bool {
    let plan = &situation.plan;
    let scripts = [&plan.setup, &plan.change, &plan.far, &plan.far_change];
    let needs = |word: &str| scripts.iter().any(|script| script.contains(word));
    let programs = [("iptables", "iptables"), ("iptables", "ip6tables"), ("tc qdisc", "tc")];
    let programs = programs.into_iter().chain([("perl ", "perl"), ("setpriv ", "setpriv")]);
    let missing = programs.into_iter().find(|(word, program)| needs(word) && !has(program));
    if let Some((_, program)) = missing {
        use std::io::Write;
        let _ = writeln!(std::io::stderr(), "SKIPPED {}: {program} is not installed", situation.name);
    }
    missing.is_none()
}

#[test]
fn check_says_what_is_so_and_what_it_says_mends_it() {
    if let Some(why) = cannot_run() {
        use std::io::Write;
        let _ = writeln!(std::io::stderr(), "SKIPPED check_says_what_is_so_and_what_it_says_mends_it: {why}");
        return;
    }
    let only = std::env::var("FARLINK_SITUATION").unwrap_or_default();
    let runs: Vec<_> = table()
        .into_iter()
        .enumerate()
        .filter(|(_, s)| s.name.contains(&only) && can_come_about(s))
        .flat_map(|(n, s)| {
            [("policy", s.policy.clone()), ("bump", s.bump.clone())]
                .into_iter()
                .filter_map(|(method, expected)| Some((n, method, expected?)))
                .map(move |(n, method, expected)| (n, s.clone(), method, expected))
                .collect::<Vec<_>>()
        })
        .filter(|(_, _, method, _)| *method == "policy" || farlink_linux::bump::Bump::is_possible().is_ok())
        .collect();
    let queue = Mutex::new(runs.into_iter());
    let wrong = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().unwrap().next();
                    let Some((n, situation, method, expected)) = next else { return };
                    let began = Instant::now();
                    let mut outcome = try_one(n, &situation, method, &expected);
                    for _ in 1..TRIES {
                        let Err(wrong) = &outcome else { break };
                        let first = wrong.lines().next().unwrap_or_default();
                        println!("it is tried again: {} ({method}): {first}", situation.name);
                        outcome = try_one(n, &situation, method, &expected);
                    }
                    println!("{:5.1} s  {method:6}  {}", began.elapsed().as_secs_f64(), situation.name);
                    if let Err(why) = outcome {
                        wrong.lock().unwrap().push(format!("{} ({method}): {why}", situation.name));
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{} situations:\n{}", wrong.len(), wrong.join("\n"));
}

fn try_one(n: usize, situation: &Situation, method: &str, expected: &Expected) -> Result<(), String> {
    let mut bed = Bed::new(n, method, &situation.plan);
    bed.come_about();
    let mut said = Said::by(&bed, situation.plan.seconds);
    // Where the machine was short of time `check` says that, too: it is another situation.
    for _ in 0..ATTEMPTS {
        if !said.is_short_of_time() {
            break;
        }
        std::thread::sleep(SHORTAGE);
        said = Said::by(&bed, situation.plan.seconds);
    }
    let status = bed.status();
    said.judge(expected)
        .map_err(|wrong| format!("{wrong}\n{}\nlog:\n{}\nstatus:\n{status}", said.text, bed.log()))?;
    if bed.is_running() {
        agree(&bed, situation.plan.seconds, &said)?;
    }
    let refused = bed.refused();
    if situation.plan.never_refused && refused > 0 {
        return Err(format!("{refused} connections were refused\nlog:\n{}", bed.log()));
    }
    if !expected.mends {
        return Ok(());
    }
    let first = &expected.found[0];
    let remedy = if situation.plan.far_mend.is_empty() {
        let remedy = said.remedy(first).ok_or_else(|| format!("{first} has no remedy\n{}", said.text))?;
        bed.apply(&remedy)?;
        remedy
    } else {
        bed.mend_far()?;
        situation.plan.far_mend.as_str().into()
    };
    let within = Duration::from_secs(situation.plan.mended_within_s).max(MENDED_WITHIN);
    let (mut end, mut shortages) = (Instant::now() + within, 0);
    loop {
        let after = Said::by(&bed, situation.plan.seconds);
        if after.is_short_of_time() && shortages < ATTEMPTS {
            std::thread::sleep(SHORTAGE);
            (end, shortages) = (end.max(Instant::now() + MENDED_WITHIN), shortages + 1);
            continue;
        }
        let left: Vec<_> = expected.found.iter().filter(|id| after.is_left(id, &said)).collect();
        if left.is_empty() && after.status == 0 {
            return Ok(());
        }
        if Instant::now() > end {
            let bad = after.found.iter().filter(|f| f["severity"] == "problem").map(|f| f["id"].to_string());
            return Err(format!(
                "{remedy} does not mend it (status {}, {left:?} left, problems: {})\n{}\nlog:\n{}",
                after.status,
                bad.collect::<Vec<_>>().join(", "),
                after.text,
                bed.log()
            ));
        }
    }
}

/// All of them say the same. What changes between two questions contradicts itself once.
fn agree(bed: &Bed, seconds: u64, said: &Said) -> Result<(), String> {
    let mut found = said.found.clone();
    let mut wrong = Vec::new();
    for _ in 0..AGREE_WITHIN {
        wrong = voices::contradictions(bed, &found);
        if wrong.is_empty() {
            return Ok(());
        }
        found = Said::by(bed, seconds).found;
    }
    Err(format!("they contradict each other:\n{}", wrong.join("\n")))
}

/// What `farlink check --json` said.
struct Said {
    status: i32,
    text: String,
    took: Duration,
    listened: Duration,
    found: Vec<Value>,
}

impl Said {
    fn by(bed: &Bed, seconds: u64) -> Self {
        let began = Instant::now();
        let output = bed.ask(&["check", "--json", "--seconds", &seconds.to_string()]);
        let took = began.elapsed();
        let text =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let json: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let answers = json["answers"].as_array().cloned().unwrap_or_default();
        let found = answers.iter().filter_map(|a| a["found"].as_array()).flatten().cloned().collect();
        let status = output.status.code().unwrap_or(-1);
        Self { status, text, took, listened: Duration::from_secs(seconds), found }
    }

    fn severity(&self, id: &str) -> Option<&str> {
        self.found.iter().find(|f| f["id"] == id).and_then(|f| f["severity"].as_str())
    }

    /// The machine was, and that is told beside what matters.
    fn is_short_of_time(&self) -> bool {
        ["not-split-busy", "queue-full"].iter().any(|id| self.severity(id).is_some())
    }

    /// It is still so, and no less bad than it was: forwarding of the other family, for example, is
    /// another matter.
    fn is_left(&self, id: &str, before: &Self) -> bool {
        self.severity(id).is_some() && self.severity(id) == before.severity(id)
    }

    fn remedy(&self, id: &str) -> Option<Value> {
        self.found.iter().find(|f| f["id"] == id)?["remedies"].get(0).cloned()
    }

    fn judge(&self, expected: &Expected) -> Result<(), String> {
        let mut wrong = String::new();
        if self.status != expected.status {
            let _ = write!(wrong, "exit status {} and not {}; ", self.status, expected.status);
        }
        for id in expected.found.iter().filter(|id| self.severity(id).is_none()) {
            let _ = write!(wrong, "{id} is missing; ");
        }
        let bad = self.found.iter().filter(|f| f["severity"] != "note");
        for finding in bad.filter(|f| !expected.found.iter().any(|id| f["id"] == **id)) {
            let _ = write!(wrong, "{} was not expected; ", finding["id"]);
        }
        if self.took > self.listened + BESIDE_LISTENING {
            let _ = write!(wrong, "it took {:.1} s; ", self.took.as_secs_f64());
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong) }
    }
}

/// Every row stands in docs/check.md, in order, as it is tried here.
#[test]
fn the_documented_table_is_the_one_that_is_tried() {
    let document =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/check.md")).unwrap();
    let cell = |expected: &Option<Expected>| match expected {
        None => String::new(),
        Some(e) if e.found.is_empty() => format!("{}", e.status),
        Some(e) => {
            let ids: Vec<_> = e.found.iter().map(|id| format!("`{id}`")).collect();
            format!("{}: {}{}", e.status, ids.join(", "), if e.mends { " (mends)" } else { "" })
        }
    };
    let rows: Vec<_> =
        table().iter().map(|s| format!("| {} | {} | {} |", s.name, cell(&s.policy), cell(&s.bump))).collect();
    let shown: Vec<_> = document.lines().filter(|line| rows.iter().any(|row| row == line)).collect();
    let missing: Vec<_> = rows.iter().filter(|row| !shown.contains(&row.as_str())).cloned().collect();
    assert!(missing.is_empty(), "docs/check.md lacks:\n{}", missing.join("\n"));
    assert!(rows.len() >= 30, "{} situations", rows.len());
    let mut names = BTreeMap::new();
    table().iter().for_each(|s| *names.entry(s.name.clone()).or_insert(0) += 1);
    assert!(names.values().all(|n| *n == 1), "two situations have the same name");
}
