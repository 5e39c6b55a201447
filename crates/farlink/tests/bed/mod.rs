//! A router between a client and a server, in network namespaces, with a daemon on it. As root.
#![allow(dead_code)]

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use farlink_linux::netns::{Namespace, veth};
use serde_json::Value;

pub const FARLINK: &str = env!("CARGO_BIN_EXE_farlink");
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Says why the test cannot run here, and returns true then.
pub fn skipped(test: &str) -> bool {
    let may_run = farlink_linux::caps::can_administer() && std::fs::File::open("/dev/net/tun").is_ok();
    (!may_run && says(test, "it takes root and /dev/net/tun")) || is_missing(test, "nft", "--version")
}

/// A program that cannot be started with this argument: the test cannot run here.
pub fn is_missing(test: &str, program: &str, argument: &str) -> bool {
    let has = Command::new(program).arg(argument).stdout(Stdio::null()).status().is_ok_and(|s| s.success());
    !has && says(test, &format!("{program} is not installed"))
}

/// Says it past the test harness's capture.
pub fn says(test: &str, reason: &str) -> bool {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {reason}");
    true
}

/// client - gateway - server, with a server and its load generator from the benchmark.
pub struct Bed {
    pub client: Namespace,
    pub gateway: Namespace,
    pub server: Namespace,
    pub directory: PathBuf,
    pub children: Vec<Child>,
}

impl Bed {
    pub fn new(test: &str) -> Self {
        let bed = Self::without_interfaces(test);
        bed.wire_client("to-client");
        bed.wire_server("to-server");
        bed
    }

    /// The router has no interfaces yet.
    pub fn without_interfaces(test: &str) -> Self {
        let name = |who: &str| format!("flc{}-{test}-{who}", std::process::id());
        let make = |who: &str| Namespace::create(&name(who)).unwrap();
        let (client, gateway, server) = (make("c"), make("g"), make("s"));
        gateway.make_router().unwrap();
        let directory = std::env::temp_dir().join(name("d"));
        std::fs::create_dir_all(&directory).unwrap();
        let mut bed = Self { client, gateway, server, directory, children: Vec::new() };
        let mut command = bed.server.command(FARLINK);
        let server = command
            .args(["bench-load", "server"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        bed.children.push(server);
        bed
    }

    /// An interface of the router towards the client.
    pub fn wire_client(&self, interface: &str) {
        veth(&self.client, "lan", &self.gateway, interface).unwrap();
        self.address_client(interface);
    }

    /// An interface of the router towards the server.
    pub fn wire_server(&self, interface: &str) {
        veth(&self.gateway, interface, &self.server, "lan").unwrap();
        self.address_server(interface);
    }

    pub fn address_client(&self, interface: &str) {
        self.client.address_add("lan", "10.73.1.2".parse().unwrap(), 24).unwrap();
        self.gateway.address_add(interface, "10.73.1.1".parse().unwrap(), 24).unwrap();
        self.client.route_add(None, "10.73.1.1".parse().unwrap()).unwrap();
    }

    pub fn address_server(&self, interface: &str) {
        self.gateway.address_add(interface, "10.73.2.1".parse().unwrap(), 24).unwrap();
        self.server.address_add("lan", "10.73.2.2".parse().unwrap(), 24).unwrap();
        self.server.route_add(None, "10.73.2.1".parse().unwrap()).unwrap();
    }

    pub fn socket(&self) -> String {
        self.directory.join("farlink.sock").to_str().unwrap().to_owned()
    }

    pub fn start(&self, arguments: &[&str]) -> Child {
        let log = std::fs::File::create(self.directory.join("log")).unwrap();
        let mut command = self.gateway.command(FARLINK);
        command.arg("run").args(arguments).args(["--socket", &self.socket()]).stderr(log);
        let child = command.spawn().unwrap();
        self.eventually("the daemon answers", || self.ask(&["status"]).status.success());
        child
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    pub fn ask(&self, arguments: &[&str]) -> Output {
        let mut command = self.gateway.command(FARLINK);
        command.args(arguments).args(["--socket", &self.socket()]).output().unwrap()
    }

    pub fn status(&self) -> Value {
        serde_json::from_slice(&self.ask(&["status", "--json"]).stdout).unwrap()
    }

    /// Runs the load generator on the client to its end.
    pub fn load(&self, arguments: &[&str]) -> Value {
        let mut command = self.client.command(FARLINK);
        let output = command.arg("bench-load").args(arguments).args(["--to", "10.73.2.2"]).output().unwrap();
        assert!(output.status.success(), "{}\n{}", String::from_utf8_lossy(&output.stderr), self.log());
        serde_json::from_slice(&output.stdout).unwrap()
    }

    pub fn eventually(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let end = Instant::now() + PATIENCE;
        while !is_so() {
            assert!(Instant::now() < end, "{what}: not so\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn in_gateway(&self, line: &str) -> String {
        let output = self.gateway.command("sh").args(["-c", line]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        for namespace in [&self.client, &self.gateway, &self.server] {
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

pub fn terminate(child: &Child) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
}

pub fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
