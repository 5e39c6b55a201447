//! client - router - far router - server, and a way from the far router to the client that goes
//! round the router. Gateways run on the router, and on the far one where that is wanted.

use std::io::{Read, Write};
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};

use farlink_linux::emulator::{Emulator, EmulatorConfig};
use farlink_linux::netns::{Namespace, veth};
use serde::Deserialize;
use serde_json::Value;

use super::traffic::{Load, Traffic};

const FARLINK: &str = env!("CARGO_BIN_EXE_farlink");
const PATIENCE: Duration = Duration::from_secs(20);

/// Its event loop answers there, so its diversion stands, if it can.
fn answers(socket: &str) -> bool {
    let ask = || {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"{\"cmd\": \"status\"}\n")?;
        stream.read_exact(&mut [0])
    };
    ask().is_ok()
}

/// How a situation comes about. Scripts are for `sh`.
#[derive(Deserialize, Clone, Default)]
pub struct Plan {
    /// On the router, before the gateway starts.
    #[serde(default)]
    pub setup: String,
    /// On the router, while it runs and hosts are at work.
    #[serde(default)]
    pub change: String,
    /// On the client.
    #[serde(default)]
    pub client: String,
    /// On the far router.
    #[serde(default)]
    pub far: String,
    /// On the far router, later.
    #[serde(default)]
    pub far_change: String,
    /// What somebody does there who is told the finding: it names no command of this machine.
    #[serde(default)]
    pub far_mend: String,
    /// So long it may take until that shows; 0: as usual.
    #[serde(default)]
    pub mended_within_s: u64,
    /// What hosts do: `usual`, `upload`, `ipv6`, `none`.
    #[serde(default = "usual")]
    pub traffic: String,
    /// Keys of the gateway's configuration that are other than usual.
    #[serde(default)]
    pub config: String,
    /// Configuration of a gateway on the far router.
    pub far_config: Option<String>,
    /// Nothing runs.
    #[serde(default)]
    pub is_off: bool,
    /// It is sent this at the end, such as `KILL`.
    pub signal: Option<String>,
    /// So long it takes to come about.
    #[serde(default = "moment_ms")]
    pub wait_ms: u64,
    /// `check` listens for so long.
    #[serde(default = "one")]
    pub seconds: u64,
    /// No connection may have been refused by the end.
    #[serde(default)]
    pub never_refused: bool,
    /// What is on its way between the routers takes so long, each way.
    #[serde(default)]
    pub delay_ms: u64,
    /// The asker does not find these programs.
    #[serde(default)]
    pub without_path: bool,
    /// The kernel is one before Linux 6.6: it has no tcx.
    #[serde(default)]
    pub older_kernel: bool,
}

fn usual() -> String {
    "usual".to_owned()
}
fn moment_ms() -> u64 {
    300
}
fn one() -> u64 {
    1
}

/// See the module.
pub struct Bed {
    plan: Plan,
    pub client: Namespace,
    router: Namespace,
    far: Namespace,
    pub server: Namespace,
    directory: PathBuf,
    config: toml::Table,
    daemon: Option<Child>,
    far_daemon: Option<Child>,
    traffic: Option<Traffic>,
    /// Between the routers, with the namespace that it stands in.
    delay: Option<(Emulator, Namespace)>,
}

impl Bed {
    pub fn new(n: usize, method: &str, plan: &Plan) -> Self {
        let name = |who: &str| format!("fls{}-{n}{}-{who}", std::process::id(), &method[..1]);
        let make = |who: &str| Namespace::create(&name(who)).unwrap();
        let (client, router, far, server) = (make("c"), make("g"), make("f"), make("s"));
        veth(&client, "lan", &router, "lan0").unwrap();
        let delay = (plan.delay_ms > 0).then(|| {
            let between = make("e");
            veth(&router, "sat0", &between, "a").unwrap();
            veth(&between, "b", &far, "gw0").unwrap();
            between
        });
        if delay.is_none() {
            veth(&router, "sat0", &far, "gw0").unwrap();
        }
        veth(&far, "wan", &server, "lan").unwrap();
        veth(&far, "by", &client, "by").unwrap();
        for (at, interface, net, host) in [
            (&client, "lan", 1, 2),
            (&router, "lan0", 1, 1),
            (&router, "sat0", 2, 1),
            (&far, "gw0", 2, 2),
            (&far, "wan", 3, 1),
            (&server, "lan", 3, 2),
            (&far, "by", 4, 1),
            (&client, "by", 4, 2),
        ] {
            at.address_add(interface, format!("10.74.{net}.{host}").parse().unwrap(), 24).unwrap();
            at.address_add(interface, format!("fd74:{net}::{host}").parse().unwrap(), 64).unwrap();
        }
        for (at, via4, via6) in [
            (&client, "10.74.1.1", "fd74:1::1"),
            (&router, "10.74.2.2", "fd74:2::2"),
            (&server, "10.74.3.1", "fd74:3::1"),
        ] {
            at.route_add(None, via4.parse().unwrap()).unwrap();
            at.route_add(None, via6.parse().unwrap()).unwrap();
        }
        let lan = |at: &str, bits| Some((at.parse::<IpAddr>().unwrap(), bits));
        far.route_add(lan("10.74.1.0", 24), "10.74.2.1".parse().unwrap()).unwrap();
        far.route_add(lan("fd74:1::", 64), "fd74:2::1".parse().unwrap()).unwrap();
        for at in [&router, &far] {
            at.make_router().unwrap();
        }
        if plan.delay_ms > 0 {
            router.set_offloads("sat0", false).unwrap();
            far.set_offloads("gw0", false).unwrap();
        }
        let directory = std::env::temp_dir().join(name("d"));
        std::fs::create_dir_all(&directory).unwrap();
        let bed = Self {
            plan: plan.clone(),
            client,
            router,
            far,
            server,
            config: config(&plan.config, method),
            directory,
            daemon: None,
            far_daemon: None,
            traffic: None,
            delay: delay.map(|between| (delayed(&between, plan.delay_ms), between)),
        };
        bed.wrap();
        bed
    }

    /// What operators type finds this gateway.
    fn wrap(&self) {
        use std::os::unix::fs::PermissionsExt;
        let path = self.directory.join("farlink");
        let text = format!("#!/bin/sh\nexec {FARLINK} \"$@\" --socket {}\n", self.socket());
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn socket(&self) -> String {
        self.directory.join("farlink.sock").to_str().unwrap().to_owned()
    }
    fn file(&self) -> String {
        self.directory.join("farlink.toml").to_str().unwrap().to_owned()
    }

    /// It happens.
    pub fn come_about(&mut self) {
        let plan = self.plan.clone();
        self.shell(&self.router, &plan.setup).unwrap();
        self.shell(&self.client, &plan.client).unwrap();
        self.shell(&self.far, &plan.far).unwrap();
        self.write_config();
        if let Some(text) = &plan.far_config {
            self.start_far(text);
        }
        if !plan.is_off {
            self.start();
        }
        self.traffic = self.traffic();
        if self.traffic.is_some() {
            std::thread::sleep(Duration::from_millis(500));
        }
        self.shell(&self.router, &plan.change).unwrap();
        self.shell(&self.far, &plan.far_change).unwrap();
        std::thread::sleep(Duration::from_millis(plan.wait_ms));
        if let Some(signal) = &plan.signal {
            self.signal(signal);
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Sends one to the daemon, by its name without SIG.
    pub fn signal(&self, name: &str) {
        let pid = self.daemon.as_ref().unwrap().id();
        self.shell(&self.router, &format!("kill -{name} {pid}")).unwrap();
    }

    fn traffic(&self) -> Option<Traffic> {
        let (v4, v6): (IpAddr, IpAddr) = ("10.74.3.2".parse().unwrap(), "fd74:3::2".parse().unwrap());
        let (to, load) = match self.plan.traffic.as_str() {
            "none" => return None,
            "usual" => (vec![v4, v6], Load::Usual),
            "upload" => (vec![v4], Load::Upload),
            "ipv6" => (vec![v6], Load::Usual),
            other => panic!("traffic is usual, upload, ipv6 or none, not {other}"),
        };
        Some(Traffic::start(&self.client, &self.server, &to, load))
    }

    fn on_router(&self) -> Command {
        let mut command = self.router.command(FARLINK);
        if self.plan.older_kernel {
            command.env("FARLINK_TCX", "off");
        }
        command
    }

    fn write_config(&self) {
        std::fs::write(self.file(), toml::to_string(&self.config).unwrap()).unwrap();
    }

    fn start(&mut self) {
        let log = std::fs::File::create(self.directory.join("log")).unwrap();
        let mut command = self.on_router();
        command.args(["run", "--config", &self.file(), "--socket", &self.socket()]).stderr(log);
        self.daemon = Some(command.spawn().unwrap());
        let end = Instant::now() + PATIENCE;
        while !answers(&self.socket()) {
            assert!(Instant::now() < end, "the gateway does not answer\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn start_far(&mut self, text: &str) {
        let at = |name: &str| self.directory.join(name).to_str().unwrap().to_owned();
        std::fs::write(at("far.toml"), text).unwrap();
        let log = std::fs::File::create(at("far.log")).unwrap();
        let mut command = self.far.command(FARLINK);
        command.args(["run", "--config", &at("far.toml"), "--socket", &at("far.sock")]).stderr(log);
        self.far_daemon = Some(command.spawn().unwrap());
        let end = Instant::now() + PATIENCE;
        while !answers(&at("far.sock")) {
            assert!(Instant::now() < end, "{}", std::fs::read_to_string(at("far.log")).unwrap());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Whether the process is gone, soon.
    pub fn has_ended(&mut self) -> bool {
        let end = Instant::now() + PATIENCE;
        let daemon = self.daemon.as_mut().unwrap();
        while daemon.try_wait().unwrap().is_none() {
            if Instant::now() > end {
                return false;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        true
    }

    /// After `farlink cleanup`, or the next start and its orderly end, the kernel knows nothing of
    /// Farlink.
    pub fn nothing_is_left(&mut self, by_command: bool) {
        if by_command {
            let mut command = self.router.command(FARLINK);
            let output = command.args(["cleanup", "--config", &self.file()]).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        } else {
            self.start();
            self.end();
        }
        let left = "{ ip -o link; tc qdisc show; ip rule; ip -6 rule; ip route show table all; ip -6 route show table all; nft list ruleset; } \
            | grep -E 'farlink|lookup 510|table 510|clsact' && exit 1 || exit 0";
        let end = Instant::now() + PATIENCE;
        while let Err(error) = self.shell(&self.router, left) {
            assert!(Instant::now() < end, "{error}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Connections of hosts that something refused until now.
    pub fn refused(&self) -> u64 {
        self.traffic.as_ref().map_or(0, Traffic::refused)
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    pub fn ask(&self, arguments: &[&str]) -> Output {
        let mut command = self.on_router();
        command.args(arguments).args(["--socket", &self.socket(), "--config", &self.file()]);
        if self.plan.without_path {
            command.env("PATH", self.directory.join("nothing"));
        }
        command.output().unwrap()
    }

    /// What the gateway, which runs, says when it is asked for something else than `check`.
    pub fn tell(&self, arguments: &[&str]) -> Output {
        let mut command = self.router.command(FARLINK);
        command.args(arguments).args(["--socket", &self.socket()]).output().unwrap()
    }

    /// Whether it runs and answers.
    pub fn is_running(&self) -> bool {
        self.daemon.is_some() && self.plan.signal.is_none()
    }

    /// What the gateway tells of itself.
    pub fn status(&self) -> String {
        let mut command = self.router.command(FARLINK);
        let output = command.args(["status", "--json", "--socket", &self.socket()]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// What somebody else has to mend is mended.
    pub fn mend_far(&self) -> Result<(), String> {
        self.shell(&self.far, &self.plan.far_mend)
    }

    /// What `check` says that mends it is done.
    pub fn apply(&mut self, remedy: &Value) -> Result<(), String> {
        if let Some(commands) = remedy["run"].as_array() {
            for command in commands.iter().filter_map(Value::as_str) {
                match command {
                    "systemctl start farlink" => self.start(),
                    other => self.shell(&self.router, other)?,
                }
            }
            return Ok(());
        }
        let text = |key: &str| remedy["configure"][key].as_str().unwrap_or_default().to_owned();
        let (key, value) = (text("key"), text("value"));
        let value: toml::Table = toml::from_str(&format!("value = {value}")).map_err(|e| e.to_string())?;
        let (section, key) = key.split_once('.').ok_or(format!("no section in {key}"))?;
        let section = self.config.entry(section).or_insert_with(|| toml::Value::Table(toml::Table::new()));
        let table = match section {
            toml::Value::Array(all) => all.first_mut().and_then(toml::Value::as_table_mut),
            other => other.as_table_mut(),
        };
        table.ok_or("no table")?.insert(key.to_owned(), value["value"].clone());
        self.write_config();
        self.end();
        self.start();
        // A connection that was open before is not split by the one that comes later.
        self.traffic = None;
        self.traffic = self.traffic();
        std::thread::sleep(Duration::from_millis(500));
        Ok(())
    }

    fn shell(&self, at: &Namespace, line: &str) -> Result<(), String> {
        if line.is_empty() {
            return Ok(());
        }
        let path = format!("{}:{}", self.directory.display(), std::env::var("PATH").unwrap_or_default());
        let mut command = at.command("sh");
        command
            .args(["-ec", line])
            .env("PATH", path)
            .env("FARLINK", FARLINK)
            .env("DIRECTORY", &self.directory);
        let output = command.output().unwrap();
        if output.status.success() {
            return Ok(());
        }
        Err(format!("`{line}`: {}", String::from_utf8_lossy(&output.stderr)))
    }

    fn end(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            let pid = rustix::process::Pid::from_child(&daemon);
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::CONT);
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            let _ = daemon.wait();
        }
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.traffic = None;
        for daemon in [&mut self.daemon, &mut self.far_daemon].into_iter().flatten() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        if let Some((emulator, between)) = self.delay.take() {
            drop(emulator);
            let _ = between.delete();
        }
        for namespace in [&self.client, &self.router, &self.far, &self.server] {
            for pid in namespace.pids() {
                if let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) {
                    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                }
            }
            let _ = namespace.delete();
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// A wire that takes its time.
fn delayed(between: &Namespace, delay_ms: u64) -> Emulator {
    let (a_to_b, b_to_a) = Default::default();
    let config = EmulatorConfig {
        a: "a".into(),
        b: "b".into(),
        a_to_b,
        b_to_a,
        is_half_duplex: false,
        seed: 1,
        control: None,
    };
    let emulator = between.run(|| Emulator::start(config)).unwrap();
    emulator.set(&[("delay_ms".into(), delay_ms.to_string())]).unwrap();
    emulator
}

/// The usual configuration with other values for some keys of the top.
fn config(other: &str, method: &str) -> toml::Table {
    let usual = "drain_timeout = \"1 s\"\n[[interface]]\nname = \"lan0\"\n[[link]]\nname = \"geo\"\ninterface = \"sat0\"\nrate = \"200 Mbit/s\"\n";
    let mut table: toml::Table = toml::from_str(usual).unwrap();
    table.extend(toml::from_str::<toml::Table>(other).expect("config of a situation"));
    let divert = table.entry("divert").or_insert_with(|| toml::Value::Table(toml::Table::new()));
    divert.as_table_mut().unwrap().insert("method".into(), method.into());
    table
}
