//! Programs of others that the daemon runs. It starts them itself, or, where it may start none, its
//! helper does ([`crate::helper`]).

use std::io::{self, PipeReader, PipeWriter, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use crate::helper::{Helper, Talk};

/// All programs that are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Program {
    /// nft(8), nftables.
    Nft,
    /// Rules of the old iptables, IPv4.
    IptablesLegacySave,
    /// Rules of the old iptables, IPv6.
    Ip6tablesLegacySave,
}

impl Program {
    const fn name(self) -> &'static str {
        match self {
            Self::Nft => "nft",
            Self::IptablesLegacySave => "iptables-legacy-save",
            Self::Ip6tablesLegacySave => "ip6tables-legacy-save",
        }
    }
}

/// A program with what it is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Asked {
    program: Program,
    args: Vec<String>,
    input: String,
}

/// What a program has said.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Output {
    /// Its exit status is 0.
    pub is_success: bool,
    /// Bytes that are no UTF-8 are replaced.
    pub stdout: String,
    /// As `stdout`.
    pub stderr: String,
}

/// Who starts programs; nobody: this process itself.
static HELPER: OnceLock<Helper> = OnceLock::new();

/// From here on this helper starts all programs. Only the first one counts.
pub fn start_with(helper: Helper) -> &'static Helper {
    HELPER.get_or_init(|| helper)
}

/// Runs a program to its end. `input` is what it reads.
///
/// # Errors
/// It cannot be started.
pub fn run(program: Program, args: &[&str], input: &str) -> io::Result<Output> {
    let asked = Asked::new(program, args, input);
    match HELPER.get() {
        Some(helper) => helper.run(&asked),
        None => asked.run_here(),
    }
}

impl Asked {
    fn new(program: Program, args: &[&str], input: &str) -> Self {
        Self { program, args: args.iter().map(|arg| (*arg).to_owned()).collect(), input: input.to_owned() }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(self.program.name());
        command.args(&self.args);
        command
    }

    pub(crate) fn run_here(&self) -> io::Result<Output> {
        let mut command = self.command();
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            // One that has ended without reading it says why.
            let _ = stdin.write_all(self.input.as_bytes());
        }
        let output = child.wait_with_output()?;
        Ok(Output {
            is_success: output.status.success(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// Starts it with these ends of pipes; errors go where the output goes.
    pub(crate) fn start_here(&self, input: OwnedFd, output: OwnedFd) -> io::Result<Child> {
        use std::os::unix::process::CommandExt;
        let errors = output.try_clone()?;
        let mut command = self.command();
        command.stdin(input).stdout(output).stderr(errors);
        // SAFETY: signal-safe calls only. What ends this process's group is not meant for it.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT] {
                    libc::signal(signal, libc::SIG_IGN);
                }
                Ok(())
            });
        }
        command.spawn()
    }
}

/// A program that goes on while this lives.
#[derive(Debug)]
pub struct Conversation {
    /// What it reads.
    pub input: PipeWriter,
    /// What it writes, errors among it.
    pub output: PipeReader,
    runs: Runs,
}

/// Who has started it.
#[derive(Debug)]
enum Runs {
    Here(Child),
    AtHelper(Talk),
}

impl Conversation {
    /// Starts a program.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(program: Program, args: &[&str]) -> io::Result<Self> {
        let asked = Asked::new(program, args, "");
        let (theirs, input) = io::pipe()?;
        let (output, said) = io::pipe()?;
        let runs = match HELPER.get() {
            Some(helper) => Runs::AtHelper(helper.talk(&asked, theirs.into(), said.into())?),
            None => Runs::Here(asked.start_here(theirs.into(), said.into())?),
        };
        Ok(Self { input, output, runs })
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        match &mut self.runs {
            Runs::Here(child) => {
                let _ = child.kill();
                let _ = child.wait();
            }
            Runs::AtHelper(talk) => talk.end(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same by itself and by a helper. Not a test by itself: a process without other threads.
    #[test]
    fn child_with_a_helper() {
        if std::env::var_os("FARLINK_TEST_HELPER").is_none() {
            return;
        }
        let address = "127.0.0.1:0".parse().unwrap();
        let helper = Helper::start(Some(address)).unwrap();
        speaks();
        start_with(helper);
        speaks();
        let listener = HELPER.get().unwrap().listen().unwrap();
        assert_eq!(listener.local_addr().unwrap().ip().to_string(), "127.0.0.1");
    }

    fn speaks() {
        use std::io::Read;
        let output = run(Program::Nft, &["--check", "--file", "-"], "nonsense\n").unwrap();
        assert!(!output.is_success && output.stderr.contains("nonsense"), "{output:?}");
        let output = run(Program::Nft, &["--version"], "").unwrap();
        assert!(output.is_success && output.stdout.starts_with("nftables"), "{output:?}");
        if Command::new(Program::IptablesLegacySave.name()).arg("--version").output().is_err() {
            let missing = run(Program::IptablesLegacySave, &[], "").unwrap_err();
            assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        }
        let mut one = Conversation::start(Program::Nft, &["-i"]).unwrap();
        one.input.write_all(b"nonsense\n").unwrap();
        let (mut said, mut part) = (String::new(), [0; 4096]);
        while !said.contains("rror") {
            let n = one.output.read(&mut part).unwrap();
            assert!(n > 0, "{said}");
            said += &String::from_utf8_lossy(&part[..n]);
        }
        let output = one.output.try_clone().unwrap();
        drop(one);
        // It has ended: nobody has the other end.
        assert!(io::read_to_string(output).is_ok());
    }

    #[test]
    fn programs_are_run_here_and_by_a_helper() {
        if Command::new("nft").arg("--version").output().is_err() {
            println!("left out: nft is not installed");
            return;
        }
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["programs::tests::child_with_a_helper", "--exact", "--nocapture", "--test-threads=1"]);
        let output = command.env("FARLINK_TEST_HELPER", "1").output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
    }
}
