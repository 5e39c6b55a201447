//! OpenSSH and what runs over it: a session at a keyboard, pipes both ways, scp, rsync.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::bench::{Bench, has_other_users, has_user};
use crate::report::Measured;
use crate::sh;

/// Port of sshd.
const PORT: u16 = 2222;
/// Where sshd locks its unprivileged half in; it does not start without.
const SEPARATION: &str = "/run/sshd";
/// Lines typed in the session.
const LINES: u32 = 20;
/// Files in rsync's tree besides the large one.
const SMALL_FILES: u64 = 100;

pub(super) fn cannot_run() -> Option<String> {
    if !has_other_users() {
        return Some("sshd needs to become another user, and there is none in this namespace".into());
    }
    (!has_user("sshd")).then(|| "there is no user sshd".into())
}

/// sshd with keys of its own, and the options that reach it.
struct Ssh {
    options: Vec<String>,
    user: String,
    _separation: Separation,
}

/// The directory of privilege separation, removed when it was made here.
struct Separation(Option<&'static Path>);

impl Separation {
    fn ensure() -> Result<Self> {
        let path = Path::new(SEPARATION);
        if path.is_dir() {
            return Ok(Self(None));
        }
        fs::create_dir(path).with_context(|| format!("{SEPARATION} cannot be made"))?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
        Ok(Self(Some(path)))
    }
}

impl Drop for Separation {
    fn drop(&mut self) {
        // Another sshd may have come to need it: then it is not empty or is made again, and nothing
        // is lost.
        let _ = self.0.map(fs::remove_dir);
    }
}

impl Ssh {
    fn start(bench: &mut Bench<'_>) -> Result<Self> {
        for key in ["host_key", "user_key"] {
            sh::run("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f", &bench.text(key)])?;
        }
        fs::copy(bench.path("user_key.pub"), bench.path("authorized_keys"))?;
        let host_key = fs::read_to_string(bench.path("host_key.pub"))?;
        bench.config("known_hosts", &format!("[{}]:{PORT} {host_key}", bench.server))?;
        let separation = Separation::ensure()?;
        let config = bench.config(
            "sshd_config",
            &format!(
                "Port {PORT}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nUsePAM no\nStrictModes no\nUseDNS no\n\
                 PermitRootLogin prohibit-password\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
                 PrintMotd no\nPrintLastLog no\nPermitUserRC no\nSubsystem sftp internal-sftp\n",
                bench.text("host_key"),
                bench.text("authorized_keys"),
            ),
        )?;
        bench.serve("sshd", &["-D", "-e", "-f", &config], PORT)?;
        let options = [
            format!("UserKnownHostsFile={}", bench.text("known_hosts")),
            format!("IdentityFile={}", bench.text("user_key")),
            format!("Port={PORT}"),
            "GlobalKnownHostsFile=/dev/null".into(),
            "StrictHostKeyChecking=yes".into(),
            "IdentitiesOnly=yes".into(),
            "BatchMode=yes".into(),
        ];
        let options = options.into_iter().flat_map(|option| ["-o".to_string(), option]);
        let options = ["-F", "none"].map(String::from).into_iter().chain(options).collect();
        let user = sh::run("id", &["-un"])?.trim().to_string();
        Ok(Self { options, user, _separation: separation })
    }

    fn command(&self, bench: &Bench<'_>, program: &str, args: &[&str]) -> Result<Command> {
        let options = self.options.iter().map(String::as_str);
        bench.client(program, &options.chain(args.iter().copied()).collect::<Vec<_>>())
    }

    /// `ssh` that runs a command line of the server's shell.
    fn shell(&self, bench: &Bench<'_>, line: &str) -> Result<Command> {
        self.command(bench, "ssh", &[&format!("{}@{}", self.user, bench.server), line])
    }
}

/// A session: the exit status of the far command, a keyboard with an echo, a file through the pipe
/// each way.
pub(super) fn session(bench: &mut Bench<'_>, measured: &mut Measured) -> Result<()> {
    let ssh = Ssh::start(bench)?;
    let status = bench.run(ssh.shell(bench, "exit 7")?)?.status;
    measured.expect(status.code() == Some(7), || {
        format!("ssh ended with {status}, not with the far command's 7")
    });
    let began = std::time::Instant::now();
    type_lines(ssh.shell(bench, "cat")?)?;
    measured.metric("echo_seconds", began.elapsed().as_secs_f64() / f64::from(LINES));

    let sent = bench.file("up", bench.size_bytes, 1)?;
    let mut upload = ssh.shell(bench, &format!("cat > {}", bench.text("up.far")))?;
    upload.stdin(fs::File::open(bench.path("up"))?);
    bench.succeed(upload)?;
    bench.arrived(measured, "upload through ssh", "up.far", &sent);

    let sent = bench.file("down.far", bench.size_bytes, 2)?;
    let said = bench.succeed(ssh.shell(bench, &format!("cat {}", bench.text("down.far")))?)?;
    fs::write(bench.path("down"), said)?;
    bench.arrived(measured, "download through ssh", "down", &sent);
    Ok(())
}

/// Types lines one after another, each after the answer to the one before.
fn type_lines(mut command: Command) -> Result<()> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let (Some(mut keyboard), Some(screen)) = (child.stdin.take(), child.stdout.take()) else {
        bail!("ssh has no pipes");
    };
    let mut screen = BufReader::new(screen).lines();
    for n in 0..LINES {
        let line = format!("line {n}");
        writeln!(keyboard, "{line}")?;
        match screen.next().transpose()? {
            Some(echo) if echo == line => {}
            other => bail!("`{line}` was typed into ssh, {other:?} came back"),
        }
    }
    drop(keyboard);
    let status = child.wait()?;
    if !status.success() {
        bail!("ssh ended with {status} after the end of its input");
    }
    Ok(())
}

/// A large file by scp, each way.
pub(super) fn scp(bench: &mut Bench<'_>, measured: &mut Measured) -> Result<()> {
    let ssh = Ssh::start(bench)?;
    let far = |name: &str| format!("{}@{}:{}", ssh.user, bench.host(), bench.text(name));
    let (up, down) = (far("up.far"), far("down.far"));
    let sent = bench.file("up", bench.size_bytes, 1)?;
    bench.succeed(ssh.command(bench, "scp", &["-q", &bench.text("up"), &up])?)?;
    bench.arrived(measured, "scp to the server", "up.far", &sent);
    let sent = bench.file("down.far", bench.size_bytes, 2)?;
    bench.succeed(ssh.command(bench, "scp", &["-q", &down, &bench.text("down")])?)?;
    bench.arrived(measured, "scp from the server", "down", &sent);
    Ok(())
}

/// A tree of files by rsync over ssh, each way; then a change in the middle of the large file; then
/// nothing.
pub(super) fn rsync(bench: &mut Bench<'_>, measured: &mut Measured) -> Result<()> {
    let ssh = Ssh::start(bench)?;
    let mut sent = Vec::new();
    for n in 0..=SMALL_FILES {
        let (name, bytes) =
            if n == 0 { ("large".into(), bench.size_bytes) } else { (format!("d{}/{n}", n % 7), n * 37) };
        sent.push((name.clone(), bench.file(&format!("near/{name}"), bytes, n)?));
    }
    let shell =
        std::iter::once("ssh").chain(ssh.options.iter().map(String::as_str)).collect::<Vec<_>>().join(" ");
    let far = |name: &str| format!("{}@{}:{}/", ssh.user, bench.host(), bench.text(name));
    let (near, far, back) = (bench.text("near") + "/", far("far"), bench.text("back") + "/");
    let copy = |bench: &mut Bench<'_>, from: &str, to: &str| -> Result<Vec<u8>> {
        let command =
            bench.client("rsync", &["-a", "--no-whole-file", "--out-format=%n", "-e", &shell, from, to])?;
        bench.succeed(command)
    };
    copy(bench, &near, &far)?;
    copy(bench, &far, &back)?;
    for tree in ["far", "back"] {
        for (name, sha) in &sent {
            bench.arrived(measured, &format!("rsync, {tree}/{name}"), &format!("{tree}/{name}"), sha);
        }
    }
    // Only the change crosses the path, and what arrives is whole.
    let changed = change_middle(&bench.path("near/large"))?;
    copy(bench, &near, &far)?;
    let whole = fs::read(bench.path("far/large"))?;
    measured.expect(whole == changed, || "rsync: the changed file did not arrive whole".into());
    let again = copy(bench, &near, &far)?;
    measured.expect(again.is_empty(), || {
        format!("rsync copied once more what was the same: {}", String::from_utf8_lossy(&again).trim())
    });
    Ok(())
}

fn change_middle(path: &PathBuf) -> Result<Vec<u8>> {
    let mut content = fs::read(path)?;
    let middle = content.len() / 2;
    content.splice(middle..middle, *b"a few bytes more");
    fs::write(path, &content)?;
    Ok(content)
}
