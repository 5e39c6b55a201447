//! A network namespace seen as a host: entering it, and changes in it that undo themselves.

use std::fs::File;
use std::io::Write;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// A network namespace that stands for one machine.
#[derive(Debug)]
pub struct Host {
    /// Name as given.
    pub name: String,
    ns: File,
}

/// Takes the calling thread back to the namespace it came from.
struct Return(File);

impl Drop for Return {
    fn drop(&mut self) {
        // A thread that cannot go home must not go on in a foreign namespace.
        if enter_ns(&self.0).is_err() {
            std::process::abort();
        }
    }
}

fn enter_ns(ns: &File) -> std::io::Result<()> {
    // SAFETY: setns takes a descriptor we own and a flag; it touches no memory.
    match unsafe { libc::setns(ns.as_raw_fd(), libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

impl Host {
    /// Opens a namespace by its name (below `/run/netns`) or by a path to it.
    pub fn open(name: &str) -> Result<Host> {
        let path = if name.contains('/') { PathBuf::from(name) } else { Path::new("/run/netns").join(name) };
        let ns = File::open(&path).with_context(|| format!("no network namespace {}", path.display()))?;
        Ok(Host { name: name.to_string(), ns })
    }

    /// Runs `f` on the calling thread inside the namespace. Sockets and child processes made there
    /// stay there.
    pub fn enter<T>(&self, f: impl FnOnce() -> T) -> Result<T> {
        let home = File::open("/proc/thread-self/ns/net").context("own network namespace")?;
        enter_ns(&self.ns).with_context(|| format!("entering namespace {}", self.name))?;
        let _home = Return(home);
        Ok(f())
    }

    /// Runs a program in the namespace; its standard output, or an error with what it said.
    pub fn run(&self, program: &str, args: &[&str]) -> Result<String> {
        self.run_with(program, args, "")
    }

    /// As [`Host::run`], with text on its standard input.
    pub fn run_with(&self, program: &str, args: &[&str], input: &str) -> Result<String> {
        let output = self.enter(|| -> std::io::Result<_> {
            let mut child = Command::new(program)
                .args(args)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()?;
            if let Some(mut stdin) = child.stdin.take() {
                stdin.write_all(input.as_bytes())?;
            }
            child.wait_with_output()
        })?;
        let output = output.with_context(|| format!("cannot run {program}"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("{} in {}: {program} {}: {}", output.status, self.name, args.join(" "), said.trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs `ip` with the words of `line`.
    pub fn ip(&self, line: &str) -> Result<String> {
        self.run("ip", &line.split_whitespace().collect::<Vec<_>>())
    }

    /// The value of a sysctl below `/proc/sys/net`, e.g. `ipv4/tcp_sack`.
    pub fn sysctl(&self, key: &str) -> Result<String> {
        let path = format!("/proc/sys/net/{key}");
        let text = self.enter(|| std::fs::read_to_string(&path))?.with_context(|| path.clone())?;
        Ok(text.trim().to_string())
    }

    /// Sets a sysctl for good.
    pub fn set_sysctl(&self, key: &str, value: &str) -> Result<()> {
        let path = format!("/proc/sys/net/{key}");
        self.enter(|| std::fs::write(&path, value))?.with_context(|| format!("{path} = {value}"))
    }

    /// Sets a sysctl until the guard goes.
    pub fn hold_sysctl(&self, key: &str, value: &str) -> Result<SysctlGuard<'_>> {
        let before = self.sysctl(key)?;
        self.set_sysctl(key, value)?;
        Ok(SysctlGuard { host: self, key: key.to_string(), before })
    }

    /// Installs an nftables table of the family `inet` with these lines until the guard goes.
    pub fn nft(&self, table: &str, body: &str) -> Result<NftGuard<'_>> {
        let script =
            format!("table inet {table}\ndelete table inet {table}\ntable inet {table} {{\n{body}\n}}\n");
        self.run_with("nft", &["-f", "-"], &script)?;
        Ok(NftGuard { host: self, table: table.to_string() })
    }

    /// Does `ip ADD` now and `ip REMOVE` when the guard goes.
    pub fn ip_until(&self, add: &str, remove: &str) -> Result<IpGuard<'_>> {
        self.ip(add)?;
        Ok(IpGuard { host: self, remove: remove.to_string() })
    }

    /// Where packets to `to` leave this host.
    pub fn route_to(&self, to: IpAddr) -> Result<Route> {
        let text = self.ip(&format!("-j route get {to}"))?;
        let value: serde_json::Value = serde_json::from_str(&text)?;
        let field = |name: &str| value[0][name].as_str();
        let dev = field("dev").with_context(|| format!("no route to {to} in {}", self.name))?;
        let via = field("gateway").or(value[0]["via"]["host"].as_str());
        Ok(Route { dev: dev.to_string(), via: via.and_then(|text| text.parse().ok()) })
    }
}

/// The way to a destination.
#[derive(Clone, Debug)]
pub struct Route {
    /// Device.
    pub dev: String,
    /// Next router, if the destination is not on the device's own network.
    pub via: Option<IpAddr>,
}

/// Puts a sysctl back when dropped.
#[derive(Debug)]
pub struct SysctlGuard<'a> {
    host: &'a Host,
    key: String,
    before: String,
}

impl Drop for SysctlGuard<'_> {
    fn drop(&mut self) {
        let _ = self.host.set_sysctl(&self.key, &self.before);
    }
}

/// Removes an nftables table when dropped.
#[derive(Debug)]
pub struct NftGuard<'a> {
    host: &'a Host,
    table: String,
}

impl NftGuard<'_> {
    /// Packets counted by the named counter of the table.
    pub fn counter(&self, name: &str) -> Result<u64> {
        let text = self.host.run("nft", &["-j", "list", "counter", "inet", &self.table, name])?;
        let value: serde_json::Value = serde_json::from_str(&text)?;
        let objects = value["nftables"].as_array().context("nft: no objects")?;
        objects
            .iter()
            .find_map(|object| object["counter"]["packets"].as_u64())
            .with_context(|| format!("nft: no counter {name}"))
    }
}

impl Drop for NftGuard<'_> {
    fn drop(&mut self) {
        let _ = self.host.run("nft", &["delete", "table", "inet", &self.table]);
    }
}

/// Undoes an `ip` command when dropped.
#[derive(Debug)]
pub struct IpGuard<'a> {
    host: &'a Host,
    remove: String,
}

impl Drop for IpGuard<'_> {
    fn drop(&mut self) {
        let _ = self.host.ip(&self.remove);
    }
}
