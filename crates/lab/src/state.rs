//! What a laboratory has made, on disk before it is made: so that `lab down` finds it all, also
//! after a kill.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::netns::Ns;
use crate::process::{self, Recorded};

/// Where laboratories keep their files: one directory each, named as the prefix.
pub const ROOT: &str = "/run/farlink/lab";
const FILE: &str = "state.json";
/// How long a process may take to end after SIGTERM.
const GRACE: Duration = Duration::from_millis(1500);

/// A laboratory's possessions.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct State {
    /// First part of the namespaces' names.
    pub prefix: String,
    /// Topology, for people.
    pub topology: String,
    /// The program whose life it shares (`lab run`); none for `lab up`.
    pub owner: Option<Recorded>,
    /// Namespaces that exist or were about to be made.
    pub namespaces: Vec<String>,
    /// Everything that was started.
    pub processes: Vec<Recorded>,
}

/// Directory of the laboratory of this prefix.
#[must_use]
pub fn directory(prefix: &str) -> PathBuf {
    Path::new(ROOT).join(prefix)
}

/// A prefix becomes part of file and namespace names.
pub fn check_prefix(prefix: &str) -> Result<()> {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if prefix.is_empty() || prefix.len() > 32 || !prefix.chars().all(good) || prefix.starts_with('-') {
        bail!("`{prefix}` cannot be a prefix: 1 to 32 letters, digits, - and _ are allowed");
    }
    Ok(())
}

impl State {
    /// Reads the state of a laboratory; `None` when there is none.
    pub fn load(prefix: &str) -> Result<Option<Self>> {
        let path = directory(prefix).join(FILE);
        match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map(Some)
                .with_context(|| format!("{} is no state of a laboratory", path.display())),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e).with_context(|| format!("{} cannot be read", path.display())),
        }
    }

    /// Every laboratory of which there is a trace.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let Ok(entries) = std::fs::read_dir(ROOT) else { return Vec::new() };
        let mut states: Vec<Self> =
            entries.flatten().filter_map(|e| Self::load(e.file_name().to_str()?).ok().flatten()).collect();
        states.sort_by(|a, b| a.prefix.cmp(&b.prefix));
        states
    }

    /// Writes it; a reader sees the old or the new one whole.
    pub fn save(&self) -> Result<()> {
        let directory = directory(&self.prefix);
        std::fs::create_dir_all(&directory)
            .with_context(|| format!("{} cannot be made", directory.display()))?;
        let next = directory.join("state.next");
        std::fs::write(&next, serde_json::to_vec_pretty(self)?)?;
        std::fs::rename(&next, directory.join(FILE)).context("the state of the laboratory cannot be written")
    }

    /// Remembers a process at once.
    pub fn add(&mut self, pid: u32, what: &str) -> Result<Recorded> {
        let recorded = Recorded::of(pid, what);
        self.processes.push(recorded.clone());
        self.save()?;
        Ok(recorded)
    }

    /// Whether the program that it belonged to has gone without clearing up.
    #[must_use]
    pub fn is_orphan(&self) -> bool {
        self.owner.as_ref().is_some_and(|o| !o.is_alive())
    }

    /// Ends every process and removes every namespace and file. Goes on after an error and reports
    /// the first one.
    pub fn take_down(&self) -> Result<()> {
        let mut ending: Vec<Recorded> = self.processes.clone();
        // What was started in the instant before a kill is not in the list, but bears the mark.
        for name in &self.namespaces {
            for pid in Ns::named(name).processes() {
                if process::is_marked(pid, &self.prefix) && !ending.iter().any(|r| r.pid == pid) {
                    ending.push(Recorded::of(pid, "unrecorded"));
                }
            }
        }
        let me = std::process::id();
        ending.retain(|r| r.pid != me);
        for process in &ending {
            process.signal(libc::SIGTERM);
        }
        let deadline = std::time::Instant::now() + GRACE;
        for process in &ending {
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            if !process.wait_gone(left) {
                process.end(Duration::ZERO);
            }
        }
        let mut outcome = Ok(());
        for name in &self.namespaces {
            outcome = outcome.and(Ns::named(name).delete());
        }
        if outcome.is_ok() {
            let directory = directory(&self.prefix);
            outcome = std::fs::remove_dir_all(&directory)
                .with_context(|| format!("{} cannot be removed", directory.display()));
        }
        outcome
    }
}

/// Removes what killed runs have left. Says which.
pub fn sweep() -> Vec<String> {
    let orphans = State::all().into_iter().filter(State::is_orphan);
    orphans.filter(|state| state.take_down().is_ok()).map(|state| state.prefix).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_plain_names() {
        for good in ["fl", "a-b_2"] {
            check_prefix(good).unwrap();
        }
        for bad in ["", "../etc", "a b", "-x", "a/b", "ä", "a.b"] {
            assert!(check_prefix(bad).is_err(), "{bad}");
        }
    }
}
