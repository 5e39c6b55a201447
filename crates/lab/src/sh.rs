//! Running the system's own programs, with errors that name the command and quote what it said.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail};

/// Runs a program to its end; the error quotes its last words.
pub fn run(program: &str, args: &[&str]) -> Result<String> {
    let mut command = Command::new(program);
    command.args(args);
    output(command)
}

/// Runs a prepared command to its end; the error quotes its last words.
pub fn output(mut command: Command) -> Result<String> {
    let shown = format!("{command:?}").replace('"', "");
    let output =
        command.stdin(Stdio::null()).output().with_context(|| format!("`{shown}` cannot be started"))?;
    finish(&shown, &output)
}

/// Runs a program with text on its standard input.
pub fn run_with_input(program: &str, args: &[&str], input: &str) -> Result<()> {
    let shown = format!("{program} {}", args.join(" "));
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("`{shown}` cannot be started"))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes())?;
    }
    finish(&shown, &child.wait_with_output()?).map(drop)
}

fn finish(shown: &str, output: &Output) -> Result<String> {
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        bail!("`{shown}` failed ({}): {}", output.status, words.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Where a program of the system is, also in the sbin directories that an ordinary PATH lacks.
#[must_use]
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/bin", "/usr/local/bin"].map(PathBuf::from))
        .map(|directory| directory.join(program))
        .find(|candidate| candidate.is_file())
}

/// The `farlink` binary that plays gateway, emulator and helper: this very program, unless
/// `FARLINK_BIN` names another (tests do).
pub fn farlink_binary() -> Result<PathBuf> {
    match std::env::var_os("FARLINK_BIN") {
        Some(path) => Ok(path.into()),
        None => std::env::current_exe().context("this program's own path is unknown"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_quoted() {
        let error = run("sh", &["-c", "echo no such luck >&2; exit 3"]).unwrap_err().to_string();
        assert!(error.contains("no such luck") && error.contains("3"), "{error}");
        assert!(run("no-such-program-here", &[]).is_err());
    }

    #[test]
    fn input_reaches_the_program() {
        run_with_input("grep", &["-q", "needle"], "hay\nneedle\n").unwrap();
        assert!(run_with_input("grep", &["-q", "needle"], "hay\n").is_err());
    }

    #[test]
    fn programs_are_found() {
        assert!(find("sh").is_some());
        assert!(find("no-such-program-here").is_none());
    }
}
