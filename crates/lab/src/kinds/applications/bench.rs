//! What every application is tried with: files of known content in a private directory that goes
//! with the laboratory, a server program that listens, client programs that end in time.

use std::fs::{self, File};
use std::io::Read;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use super::super::http::wait_for_port;
use crate::build::Lab;
use crate::process::{MARK, last_words};
use crate::report::Measured;
use crate::sh;
use crate::workload::content::{fill, hex};

/// How long a client program may take: several times what any of them needs.
const PATIENCE: Duration = Duration::from_secs(90);
/// A search path that has the servers too.
const PATH: &str = "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// See the module.
pub(super) struct Bench<'a> {
    pub(super) lab: &'a mut Lab,
    /// Address of the server.
    pub(super) server: IpAddr,
    /// Size of the large files, in bytes.
    pub(super) size_bytes: u64,
    directory: PathBuf,
    seed: u64,
    ran: u32,
}

/// What a client program did.
pub(super) struct Done {
    pub(super) status: ExitStatus,
    /// What it wrote to standard output.
    pub(super) said: Vec<u8>,
}

impl<'a> Bench<'a> {
    pub(super) fn new(lab: &'a mut Lab, v6: bool, size_bytes: u64, seed: u64) -> Result<Self> {
        let directory = lab.directory().join("applications");
        fs::create_dir_all(&directory)?;
        let server = lab.address("server", v6)?;
        Ok(Self { lab, server, size_bytes, directory, seed, ran: 0 })
    }

    /// The server's address as URLs and scp want it.
    pub(super) fn host(&self) -> String {
        if self.server.is_ipv6() { format!("[{}]", self.server) } else { self.server.to_string() }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// As [`Bench::path`], for command lines.
    pub(super) fn text(&self, name: &str) -> String {
        self.path(name).to_string_lossy().into_owned()
    }

    /// Writes a configuration file; its path.
    pub(super) fn config(&self, name: &str, text: &str) -> Result<String> {
        fs::write(self.path(name), text)?;
        Ok(self.text(name))
    }

    /// A file of bytes that no compression makes smaller; its SHA-256. Each `number` has bytes of
    /// its own.
    pub(super) fn file(&self, name: &str, bytes: u64, number: u64) -> Result<String> {
        let path = self.path(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let mut content = vec![0; usize::try_from(bytes)?];
        fill(self.seed.wrapping_add(number << 32), 0, &mut content);
        fs::write(path, &content)?;
        Ok(hex(&Sha256::digest(&content)))
    }

    /// Starts a server program and waits until it listens.
    pub(super) fn serve(&mut self, program: &str, args: &[&str], port: u16) -> Result<()> {
        // sshd wants to be called by its whole path.
        let path = sh::find(program).with_context(|| format!("{program} is not installed"))?;
        let started = self.lab.start("server", &path.to_string_lossy(), args)?;
        wait_for_port(self.lab, "server", port, &started)
    }

    /// A command in the client's namespace that knows nothing of its user's own settings.
    pub(super) fn client(&self, program: &str, args: &[&str]) -> Result<Command> {
        let mut command = self.lab.ns("client").command(program)?;
        command.args(args).env_clear().env("PATH", PATH).env("LC_ALL", "C").env("HOME", &self.directory);
        command.env(MARK, self.lab.prefix()).stdin(Stdio::null());
        Ok(command)
    }

    /// Runs a client program to its end. An error: it could not be started, or did not end in time.
    pub(super) fn run(&mut self, mut command: Command) -> Result<Done> {
        self.ran += 1;
        let [out, log] = ["out", "log"].map(|end| self.path(&format!("client-{}.{end}", self.ran)));
        let shown = command.get_program().to_string_lossy().into_owned();
        command.stdout(File::create(&out)?).stderr(File::create(&log)?);
        let mut child = command.spawn().with_context(|| format!("{shown} cannot be started"))?;
        let end = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if Instant::now() >= end {
                child.kill()?;
                child.wait()?;
                bail!("{shown} does not end: {}", last_words(&log));
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let said = fs::read(&out)?;
        Ok(Done { status, said })
    }

    /// Runs a client program that has to succeed; what it wrote to standard output.
    pub(super) fn succeed(&mut self, command: Command) -> Result<Vec<u8>> {
        let shown = format!("{command:?}").replace('"', "");
        let done = self.run(command)?;
        if !done.status.success() {
            let log = self.path(&format!("client-{}.log", self.ran));
            bail!("`{shown}` failed ({}): {}", done.status, last_words(&log));
        }
        Ok(done.said)
    }

    /// A file has this hash, or that is a failure. What has arrived is counted.
    pub(super) fn arrived(&self, measured: &mut Measured, what: &str, name: &str, expected: &str) {
        match sha256(&self.path(name)) {
            Ok((bytes, sha)) => {
                measured.bytes += bytes;
                measured.expect(sha == expected, || {
                    format!("{what}: SHA-256 {sha} of {bytes} bytes arrived, {expected} was sent")
                });
            }
            Err(error) => measured.failures.push(format!("{what}: {error:#}")),
        }
    }
}

fn sha256(path: &Path) -> Result<(u64, String)> {
    let mut file = File::open(path).with_context(|| format!("{} cannot be read", path.display()))?;
    let (mut sha, mut bytes, mut chunk) = (Sha256::new(), 0, vec![0; 64 << 10]);
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok((bytes, hex(&sha.finalize()))),
            n => {
                bytes += n as u64;
                sha.update(&chunk[..n]);
            }
        }
    }
}

/// Whether processes here can become other users: in a user namespace with one user they cannot.
pub(super) fn has_other_users() -> bool {
    // Columns: first id inside, first id outside, how many.
    let maps = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let counts = maps.lines().filter_map(|line| line.split_whitespace().nth(2)?.parse::<u64>().ok());
    counts.sum::<u64>() > 1
}

/// Whether the system has a user of this name.
pub(super) fn has_user(name: &str) -> bool {
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    users.lines().any(|line| line.split(':').next() == Some(name))
}
