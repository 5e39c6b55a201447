//! The test bed: client - gateway - server in namespaces, veth with offloads, and what runs on the
//! gateway.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use farlink_lab::interrupt;
use farlink_linux::netns::{self, Namespace};
use serde_json::Value;

use crate::admin::client::ask;
use crate::admin::protocol::Request;

const PREFIX: &str = "farlink-bench-";
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 71, 1, 2);
const GATEWAY_CLIENT: Ipv4Addr = Ipv4Addr::new(10, 71, 1, 1);
const GATEWAY_SERVER: Ipv4Addr = Ipv4Addr::new(10, 71, 2, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 71, 2, 2);
/// Where HAProxy listens for what TPROXY gives it.
const HAPROXY_PORT: u16 = 5999;
/// What it may carry at once: each connection takes two descriptors, and a machine may not give
/// more than 20,000.
pub const HAPROXY_CONNECTIONS_MAX: u64 = 8_000;
/// What makes HAProxy fast: data moves in the kernel through pipes, and what does not fits into
/// large buffers. A process may have 20,000 descriptors on many machines: two for each connection,
/// and two for each pipe.
const HAPROXY_GLOBAL: &str = "  tune.bufsize 65536\n  tune.pipesize 65536\n  maxpipes 1500\n";
const HAPROXY_DEFAULTS: &str = "  option splice-request\n  option splice-response\n";
/// How soon a silent connection falls asleep in the benchmark.
pub const DORMANT_AFTER: Duration = Duration::from_secs(2);
/// A throttled process runs for a part of this, and stands still for the rest.
const TURN: Duration = Duration::from_millis(100);
/// How long something may take to start.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long it may take to stop: Farlink's `drain_timeout`, when hosts have gone in the middle of
/// it all, and a little.
const STOP_PATIENCE: Duration = Duration::from_secs(40);

/// What the gateway does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// The kernel forwards.
    Forward,
    /// Farlink splits; no link is declared.
    Farlink,
    /// Farlink in custody mode: it promises nothing.
    FarlinkCustody,
    /// Another build of Farlink, to see what a change has cost.
    FarlinkBefore,
    /// HAProxy splits as it is installed, with TPROXY and the client's address.
    Haproxy,
    /// HAProxy at its best: it splices, its pipes and buffers take 64 KB, and its sockets use
    /// loss-based congestion control as the hosts' do.
    HaproxyTuned,
}

impl Variant {
    /// As it stands in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Farlink => "farlink",
            Self::FarlinkCustody => "farlink-custody",
            Self::FarlinkBefore => "farlink-before",
            Self::Haproxy => "haproxy",
            Self::HaproxyTuned => "haproxy-tuned",
        }
    }

    /// A gateway of ours: it can be asked what it has split.
    pub fn is_farlink(self) -> bool {
        matches!(self, Self::Farlink | Self::FarlinkCustody | Self::FarlinkBefore)
    }

    /// Either kind of HAProxy.
    pub fn is_haproxy(self) -> bool {
        matches!(self, Self::Haproxy | Self::HaproxyTuned)
    }

    /// Every variant, in the order of the tables.
    pub const ALL: [Self; 6] = [
        Self::Forward,
        Self::Farlink,
        Self::FarlinkCustody,
        Self::FarlinkBefore,
        Self::Haproxy,
        Self::HaproxyTuned,
    ];
}

/// The namespaces and the server in them.
pub struct Bed {
    client: Namespace,
    gateway: Namespace,
    server: Namespace,
    directory: PathBuf,
    server_process: Child,
    program: PathBuf,
    /// Congestion control that the gateway's sockets have unless something else is set.
    cc: String,
    before: Option<PathBuf>,
}

impl Bed {
    /// Makes it, after removing what a killed benchmark left behind. `before` is another build to
    /// compare with.
    pub fn new(before: Option<PathBuf>) -> Result<Self> {
        remove_leftovers();
        let own = std::process::id();
        let directory = directory_of(own);
        interrupt::install(move || remove(own)).context("cannot watch for interrupts")?;
        fs::create_dir_all(&directory)?;
        let make = |who: &str| Namespace::create(&format!("{PREFIX}{own}-{who}"));
        let made = || -> Result<_> {
            let (client, gateway, server) = (make("client")?, make("gateway")?, make("server")?);
            netns::veth(&client, "up", &gateway, "to-client")?;
            netns::veth(&gateway, "to-server", &server, "up")?;
            let address = |at: &Namespace, interface, a: Ipv4Addr| at.address_add(interface, a.into(), 24);
            address(&client, "up", CLIENT)?;
            address(&gateway, "to-client", GATEWAY_CLIENT)?;
            address(&gateway, "to-server", GATEWAY_SERVER)?;
            address(&server, "up", SERVER)?;
            client.route_add(None, IpAddr::from(GATEWAY_CLIENT))?;
            server.route_add(None, IpAddr::from(GATEWAY_SERVER))?;
            gateway.make_router()?;
            client.sysctl("ipv4.ip_local_port_range", "1024 65535")?;
            Ok((client, gateway, server))
        };
        let (client, gateway, server) = made().inspect_err(|_| remove(own))?;
        let program = std::env::current_exe().context("cannot find the own program")?;
        let cc = congestion_control().inspect_err(|_| remove(own))?;
        let mut command = server.command(&program);
        command.args(["bench-load", "server"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let server_process =
            command.spawn().context("cannot start the server").inspect_err(|_| remove(own))?;
        let mut bed = Self { client, gateway, server, directory, server_process, program, cc, before };
        // It says when it listens.
        let out = bed.server_process.stdout.take().context("the server has no output")?;
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line)?;
        if line.trim() != "ready" {
            bail!("the server did not start");
        }
        Ok(bed)
    }

    /// What can be compared on this machine. Says what is left out.
    pub fn variants(&self) -> Vec<Variant> {
        let mut variants = vec![Variant::Forward, Variant::Farlink, Variant::FarlinkCustody];
        variants.extend(self.before.as_ref().map(|_| Variant::FarlinkBefore));
        match Command::new("haproxy").arg("-v").stdout(Stdio::null()).stderr(Stdio::null()).status() {
            Ok(status) if status.success() => variants.extend([Variant::Haproxy, Variant::HaproxyTuned]),
            _ => eprintln!("bench: haproxy is not installed, so it is left out (apt-get install haproxy)"),
        }
        variants
    }

    /// Puts something on the gateway and waits until it is ready.
    pub fn start(&self, variant: Variant) -> Result<Running<'_>> {
        self.start_with(variant, "")
    }

    /// The same with more of a configuration, where it is Farlink.
    pub fn start_with(&self, variant: Variant, more: &str) -> Result<Running<'_>> {
        let mut running = Running { bed: self, variant, child: None };
        match variant {
            Variant::Forward => {}
            Variant::Farlink | Variant::FarlinkCustody => {
                running.child = Some(self.start_farlink(variant, &self.program, more)?);
            }
            Variant::FarlinkBefore => {
                let program = self.before.as_ref().context("no other build was named (--before)")?;
                running.child = Some(self.start_farlink(variant, program, more)?);
            }
            Variant::Haproxy | Variant::HaproxyTuned => {
                running.child = Some(self.start_haproxy(variant)?);
                std::thread::sleep(Duration::from_millis(500));
            }
        }
        if let Some(child) = &mut running.child
            && let Some(status) = child.try_wait()?
        {
            bail!("{} ended at once ({status}); see {}", variant.name(), self.log(variant).display());
        }
        Ok(running)
    }

    fn log(&self, variant: Variant) -> PathBuf {
        self.directory.join(format!("{}.log", variant.name()))
    }

    fn socket(&self) -> PathBuf {
        self.directory.join("farlink.sock")
    }

    fn start_farlink(&self, variant: Variant, program: &Path, more: &str) -> Result<Child> {
        let config = self.directory.join("farlink.toml");
        let action = if variant == Variant::FarlinkCustody { "default_action = \"custody\"\n" } else { "" };
        let text = format!(
            "{action}[[interface]]\nname = \"to-client\"\n[[interface]]\nname = \"to-server\"\n{more}\
             [timers]\ndormant_after = \"{} s\"\n[admin]\nsocket = \"{}\"\n",
            DORMANT_AFTER.as_secs(),
            self.socket().display()
        );
        fs::write(&config, text)?;
        let mut command = self.gateway.command(program);
        command.arg("run").arg("--config").arg(&config).args(["--log", "warn"]);
        let mut child = self.spawn(command, variant)?;
        let end = Instant::now() + PATIENCE;
        while ask(&self.socket(), &Request::Status {}).is_err() {
            if Instant::now() > end || child.try_wait()?.is_some() {
                let _ = child.kill();
                let log = fs::read_to_string(self.log(variant)).unwrap_or_default();
                bail!("farlink did not start:\n{log}");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(child)
    }

    fn start_haproxy(&self, variant: Variant) -> Result<Child> {
        let is_tuned = variant == Variant::HaproxyTuned;
        // The machine's default may be BBR, which a proxy beside CUBIC hosts would hardly choose.
        // Reno is always allowed.
        self.gateway.sysctl("ipv4.tcp_congestion_control", if is_tuned { "reno" } else { &self.cc })?;
        let (global, defaults) = if is_tuned { (HAPROXY_GLOBAL, HAPROXY_DEFAULTS) } else { ("", "") };
        let config = self.directory.join("haproxy.cfg");
        let text = format!(
            "global\n  maxconn {HAPROXY_CONNECTIONS_MAX}\n{global}defaults\n{defaults}  mode tcp\n  timeout connect 5s\n  timeout client 60s\n  timeout server 60s\n\
             frontend in\n  bind 0.0.0.0:{HAPROXY_PORT} transparent\n  default_backend out\n\
             backend out\n  source 0.0.0.0 usesrc clientip\n  server s {SERVER}\n"
        );
        fs::write(&config, text)?;
        let rules = format!(
            "table ip bench {{\nchain pre {{\ntype filter hook prerouting priority -150\n\
             iifname \"to-server\" meta l4proto tcp socket transparent 1 meta mark set 1 accept\n\
             iifname \"to-client\" meta l4proto tcp ip daddr {SERVER} tproxy to :{HAPROXY_PORT} meta mark set 1 accept\n}}\n}}\n"
        );
        self.in_gateway("nft", &["-f", "-"], &rules)?;
        self.in_gateway("ip", &["rule", "add", "fwmark", "1", "lookup", "100"], "")?;
        self.in_gateway("ip", &["route", "add", "local", "default", "dev", "lo", "table", "100"], "")?;
        let mut command = self.gateway.command("haproxy");
        command.arg("-db").arg("-f").arg(&config);
        self.spawn(command, variant)
    }

    fn spawn(&self, mut command: Command, variant: Variant) -> Result<Child> {
        let log = fs::File::create(self.log(variant))?;
        let command = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        command.spawn().with_context(|| format!("cannot start {}", variant.name()))
    }

    fn in_gateway(&self, program: &str, arguments: &[&str], input: &str) -> Result<()> {
        let mut command = self.gateway.command(program);
        let mut child =
            command.args(arguments).stdin(Stdio::piped()).spawn().with_context(|| program.to_owned())?;
        child.stdin.take().map(|mut pipe| pipe.write_all(input.as_bytes())).transpose()?;
        let status = child.wait()?;
        if !status.success() {
            bail!("`{program} {}` failed in the gateway's namespace", arguments.join(" "));
        }
        Ok(())
    }

    /// Starts the load generator on the client.
    pub fn client_load(&self, arguments: &[&str]) -> Result<Load> {
        let mut command = self.client.command(&self.program);
        command.arg("bench-load").args(arguments).args(["--to", &SERVER.to_string()]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the client")?;
        let out = child.stdout.take().context("the client has no output")?;
        Ok(Load { child, out: BufReader::new(out) })
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        end(&mut self.server_process);
        for namespace in [&self.client, &self.gateway, &self.server] {
            let _ = namespace.delete();
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// A load generator at work.
pub struct Load {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Load {
    /// Waits for its line of JSON.
    pub fn line(&mut self) -> Result<Value> {
        let mut line = String::new();
        self.out.read_line(&mut line)?;
        serde_json::from_str(&line).context("the load generator gave no result")
    }
    /// Waits for its line of JSON and its end.
    pub fn result(mut self) -> Result<Value> {
        let result = self.line();
        drop(self.child.stdin.take());
        let status = self.child.wait()?;
        if !status.success() {
            bail!("the load generator failed ({status})");
        }
        result
    }
    /// Lets it end.
    pub fn end(mut self) {
        drop(self.child.stdin.take());
        end(&mut self.child);
    }
}

/// What runs on the gateway.
pub struct Running<'a> {
    bed: &'a Bed,
    variant: Variant,
    child: Option<Child>,
}

impl Running<'_> {
    /// Its processes.
    pub fn pids(&self) -> Vec<u32> {
        self.child.iter().map(Child::id).collect()
    }
    /// It has not ended by itself. Without a proxy the kernel forwards, and that would count as the
    /// proxy's.
    pub fn is_running(&mut self) -> Result<bool> {
        let Some(child) = &mut self.child else { return Ok(true) };
        Ok(child.try_wait()?.is_none())
    }
    /// Leaves it a share of a processor, in turns of a tenth of a second, until what is returned is
    /// dropped.
    pub fn throttle(&self, share: f64) -> Option<Throttle> {
        let pid = self.child.as_ref()?.id().cast_signed();
        let (over, ended) = std::sync::mpsc::channel::<()>();
        let turns = std::thread::spawn(move || {
            let (on, off) = (TURN.mul_f64(share), TURN.mul_f64(1.0 - share));
            // SAFETY: plain system calls. Whoever throttles a process holds it, so the number is
            // still its own.
            let send = |signal| unsafe { libc::kill(pid, signal) };
            let is_over = |wait| ended.recv_timeout(wait) == Err(RecvTimeoutError::Disconnected);
            loop {
                send(libc::SIGSTOP);
                let stop = is_over(off);
                send(libc::SIGCONT);
                if stop || is_over(on) {
                    return;
                }
            }
        });
        Some(Throttle { over: Some(over), turns: Some(turns) })
    }
    /// The gateway's snapshot; null for what is not Farlink.
    pub fn status(&self) -> Value {
        if !self.variant.is_farlink() {
            return Value::Null;
        }
        ask(&self.bed.socket(), &Request::Status {}).unwrap_or_default()
    }
    /// Connections that have been split so far.
    pub fn flows_split(&self) -> Option<u64> {
        self.counter("flows_split")
    }
    /// One of the gateway's counters.
    pub fn counter(&self, name: &str) -> Option<u64> {
        self.status().pointer(&format!("/engine/counters/{name}")).and_then(Value::as_u64)
    }
    /// Ends it, orderly.
    pub fn stop(mut self) -> Result<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        signal(&child, libc::SIGTERM);
        let until = Instant::now() + STOP_PATIENCE;
        while child.try_wait()?.is_none() {
            if Instant::now() > until {
                end(&mut child);
                bail!("{} did not end after SIGTERM", self.variant.name());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.clear_rules();
        Ok(())
    }
    fn clear_rules(&self) {
        if self.variant.is_haproxy() {
            let _ = self.bed.in_gateway("nft", &["delete", "table", "ip", "bench"], "");
            let _ = self.bed.in_gateway("ip", &["rule", "del", "fwmark", "1", "lookup", "100"], "");
            let _ = self.bed.in_gateway("ip", &["route", "flush", "table", "100"], "");
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            end(&mut child);
            self.clear_rules();
        }
    }
}

/// A process that gets only a share of a processor, while this lives.
pub struct Throttle {
    over: Option<std::sync::mpsc::Sender<()>>,
    turns: Option<std::thread::JoinHandle<()>>,
}

impl Drop for Throttle {
    fn drop(&mut self) {
        drop(self.over.take());
        let _ = self.turns.take().map(std::thread::JoinHandle::join);
    }
}

fn signal(child: &Child, signal: i32) {
    // SAFETY: a plain system call; the child has not been reaped, so the number is still its own.
    unsafe { libc::kill(child.id().cast_signed(), signal) };
}

fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// The machine's default: a new namespace takes it over.
fn congestion_control() -> Result<String> {
    let path = "/proc/sys/net/ipv4/tcp_congestion_control";
    Ok(fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?.trim().to_owned())
}

/// Where the process with this number keeps logs and sockets.
fn directory_of(pid: u32) -> PathBuf {
    std::env::temp_dir().join(format!("{PREFIX}{pid}"))
}

/// Removes what the benchmark of this process has made: what runs in its namespaces, these, and its
/// directory.
fn remove(pid: u32) {
    for name in Namespace::list(&format!("{PREFIX}{pid}-")) {
        // Nobody else starts anything in a namespace of this name.
        for inside in Namespace::open(&name).map(|n| n.pids()).unwrap_or_default() {
            // SAFETY: a plain system call.
            unsafe { libc::kill(inside.cast_signed(), libc::SIGKILL) };
        }
        let _ = Namespace::delete_named(&name);
    }
    let _ = fs::remove_dir_all(directory_of(pid));
}

/// What benchmarks have left whose process has gone.
fn remove_leftovers() {
    for name in Namespace::list(PREFIX) {
        let pid = name.trim_start_matches(PREFIX).split('-').next().and_then(|p| p.parse::<u32>().ok());
        if let Some(pid) = pid.filter(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            remove(pid);
        }
    }
}
