//! Processes that the laboratory starts: remembered by pid and start time, so that another
//! invocation ends exactly these and no later process that got the same pid.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// Set in the environment of everything a laboratory starts, to its prefix.
pub const MARK: &str = "FARLINK_LAB";

/// A process, beyond doubt.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Recorded {
    /// Process id.
    pub pid: u32,
    /// Its start, in clock ticks since boot (field 22 of /proc/PID/stat).
    pub start_ticks: u64,
    /// What it is, for people.
    pub what: String,
}

/// A process that was started, and where its words go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Started {
    /// The process.
    pub process: Recorded,
    /// Its log.
    pub log: PathBuf,
}

impl Started {
    /// The last lines of its log.
    #[must_use]
    pub fn last_words(&self) -> String {
        last_words(&self.log)
    }
}

/// The last lines of a log.
#[must_use]
pub fn last_words(log: &Path) -> String {
    const LINES: usize = 8;
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}

impl Recorded {
    /// The process that has this pid now.
    #[must_use]
    pub fn of(pid: u32, what: &str) -> Self {
        let start_ticks = stat(pid).map_or(0, |(_, ticks)| ticks);
        Self { pid, start_ticks, what: what.into() }
    }

    /// This very program.
    #[must_use]
    pub fn myself() -> Self {
        Self::of(std::process::id(), "lab")
    }

    /// Whether it still runs (a zombie does not).
    #[must_use]
    pub fn is_alive(&self) -> bool {
        stat(self.pid).is_some_and(|(state, ticks)| state != 'Z' && ticks == self.start_ticks)
    }

    /// Sends it a signal, if it still runs.
    pub fn signal(&self, signal: i32) -> bool {
        // SAFETY: a plain system call; the pid was just seen to be the process that was recorded.
        self.is_alive() && unsafe { libc::kill(self.pid as i32, signal) } == 0
    }

    /// Ends it: SIGTERM, and SIGKILL when it has not gone after `grace`.
    pub fn end(&self, grace: Duration) {
        if self.signal(libc::SIGTERM) && !self.wait_gone(grace) {
            self.signal(libc::SIGKILL);
            let _ = self.wait_gone(Duration::from_secs(2));
        }
    }

    /// Waits until it has gone; says whether it has.
    #[must_use]
    pub fn wait_gone(&self, patience: Duration) -> bool {
        let end = Instant::now() + patience;
        while self.is_alive() {
            if Instant::now() >= end {
                return false;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        true
    }
}

/// State letter and start ticks. The command name may hold blanks and brackets, so fields count
/// from the last `)`.
fn stat(pid: u32) -> Option<(char, u64)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = text[text.rfind(')')? + 1..].split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

/// Whether a process carries the mark of this laboratory.
#[must_use]
pub fn is_marked(pid: u32, prefix: &str) -> bool {
    let wanted = format!("{MARK}={prefix}");
    std::fs::read(format!("/proc/{pid}/environ"))
        .is_ok_and(|environment| environment.split(|b| *b == 0).any(|v| v == wanted.as_bytes()))
}

/// Starts a process of a laboratory, its words going to a log file, in a session of its own. With
/// `die_with_us` the kernel ends it when the thread that called this ends (so call it from the main
/// thread).
pub fn start(mut command: Command, prefix: &str, log: &Path, die_with_us: bool) -> Result<Child> {
    let shown = format!("{command:?}");
    let file = File::create(log).with_context(|| format!("{} cannot be written", log.display()))?;
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).env(MARK, prefix);
    // SAFETY: setsid and prctl are plain system calls, allowed between fork and exec.
    unsafe {
        command.pre_exec(move || {
            libc::setsid();
            if die_with_us {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            }
            Ok(())
        });
    }
    command.spawn().with_context(|| format!("{shown} cannot be started"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recorded_process_is_ended_and_only_that_one() {
        let mut child = Command::new("sleep").arg("100").env(MARK, "unit").spawn().unwrap();
        let recorded = Recorded::of(child.id(), "sleep");
        assert!(recorded.is_alive());
        let stranger = Recorded { start_ticks: recorded.start_ticks + 1, ..recorded.clone() };
        assert!(!stranger.is_alive() && !stranger.signal(libc::SIGKILL));
        recorded.end(Duration::from_secs(5));
        assert!(!recorded.is_alive());
        child.wait().unwrap();
    }

    #[test]
    fn the_mark_is_found() {
        let mut child = Command::new("sleep").arg("100").env(MARK, "unit2").spawn().unwrap();
        // The kernel shows the new environment a moment after exec has released the parent.
        let seen = (0..1000).any(|_| {
            std::thread::sleep(Duration::from_millis(1));
            is_marked(child.id(), "unit2")
        });
        assert!(seen);
        assert!(!is_marked(child.id(), "unit"));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
