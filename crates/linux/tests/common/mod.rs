//! Namespaces for tests, with unique names, removed in the end whatever happens.
#![allow(dead_code)]

pub mod bpf;
pub mod daemon;
pub mod packets;

use std::net::IpAddr;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use farlink_linux::netns::{Namespace, veth};

/// Says why the test cannot run here, and returns true then.
pub fn skipped(test: &str) -> bool {
    let reason = if !farlink_linux::caps::can_administer() {
        "not root"
    } else if let Err(e) = std::fs::File::open("/dev/net/tun") {
        &format!("/dev/net/tun: {e}")
    } else if which("nft").is_none() {
        "nft is not installed"
    } else {
        return false;
    };
    say(&format!("SKIPPED {test}: {reason}"));
    true
}

/// Prints past the test harness's capture, so that a passing test can be seen to have done nothing.
pub fn say(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Whether a program is there; says so when not.
pub fn missing(test: &str, program: &str) -> bool {
    if which(program).is_some() {
        return false;
    }
    say(&format!("SKIPPED {test}: {program} is not installed"));
    true
}

fn which(program: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|d| d.join(program))
        .find(|p| p.exists())
}

static COUNT: AtomicU32 = AtomicU32::new(0);

/// A namespace that goes with its value, and everything that runs in it too.
pub struct Host(pub Namespace);

impl Host {
    pub fn new(role: &str) -> Self {
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        Self(Namespace::create(&format!("flt{}-{n}-{role}", std::process::id())).unwrap())
    }
    pub fn sh(&self, script: &str) -> String {
        let out = self.0.command("sh").args(["-c", script]).output().unwrap();
        let mut text = String::from_utf8_lossy(&out.stdout).into_owned();
        // iproute2 says so when another test takes a namespace away while it lists.
        for line in String::from_utf8_lossy(&out.stderr).split_inclusive('\n') {
            if !line.contains("Peer netns reference is invalid") {
                text.push_str(line);
            }
        }
        assert!(out.status.success(), "{script}: {text}");
        text
    }
    pub fn start(&self, script: &str) -> Running {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("exec {script}")]).stdout(Stdio::null()).stderr(Stdio::null());
        Running(self.0.exec(command).unwrap())
    }
    pub fn address(&self, interface: &str, address: &str, prefix: u8) {
        self.0.address_add(interface, ip(address), prefix).unwrap();
    }
    pub fn default_via(&self, gateway: &str) {
        self.0.route_add(None, ip(gateway)).unwrap();
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        for pid in self.0.pids() {
            if let Some(pid) = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
        let _ = self.0.delete();
    }
}

/// A process that is killed with its value.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// client - router - server: 10.1.0.1 - 10.1.0.2|10.2.0.2 - 10.2.0.1, and fd01::, fd02:: likewise.
/// `left` and `right` are the router's interfaces.
pub struct Path {
    pub client: Host,
    pub router: Host,
    pub server: Host,
}

impl Path {
    pub fn new() -> Self {
        let path =
            Self { client: Host::new("client"), router: Host::new("router"), server: Host::new("server") };
        veth(&path.client.0, "eth0", &path.router.0, "left").unwrap();
        veth(&path.router.0, "right", &path.server.0, "eth0").unwrap();
        path.router.0.make_router().unwrap();
        path.addresses();
        path
    }

    /// Addresses and routes, once the interfaces are there.
    pub fn addresses(&self) {
        let path = self;
        for (host, interface, net, last) in [
            (&path.client, "eth0", 1, 1),
            (&path.router, "left", 1, 2),
            (&path.router, "right", 2, 2),
            (&path.server, "eth0", 2, 1),
        ] {
            host.address(interface, &format!("10.{net}.0.{last}"), 24);
            host.address(interface, &format!("fd0{net}::{last}"), 64);
        }
        path.client.default_via("10.1.0.2");
        path.client.default_via("fd01::2");
        path.server.default_via("10.2.0.2");
        path.server.default_via("fd02::2");
    }
}

/// Whether a datagram from `client` reaches `address` (of `server`) unchanged.
pub fn datagram_arrives(client: &Host, server: &Host, address: &str) -> bool {
    use std::net::UdpSocket;
    let receiver = server.0.run(|| Ok(UdpSocket::bind((ip(address), 0)).unwrap())).unwrap();
    receiver.set_read_timeout(Some(std::time::Duration::from_secs(2))).unwrap();
    let to = receiver.local_addr().unwrap();
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let sender = client.0.run(|| Ok(UdpSocket::bind(any).unwrap())).unwrap();
    sender.send_to(b"here", to).unwrap();
    let mut buffer = [0u8; 16];
    receiver.recv_from(&mut buffer).is_ok_and(|(n, _)| &buffer[..n] == b"here")
}

/// Byte `i` of what [`transfer`] carries.
pub fn pattern(i: usize) -> u8 {
    u8::try_from((i * 7 + i / 251) % 256).unwrap()
}

/// Fetches `bytes` of a known pattern from a server and checks each of them.
pub fn transfer(path: &Path, address: &str, bytes: usize) {
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpListener, TcpStream};
    const PATIENCE: std::time::Duration = std::time::Duration::from_secs(20);
    let listener = path.server.0.run(|| Ok(TcpListener::bind((ip(address), 0)).unwrap())).unwrap();
    let to = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let data: Vec<u8> = (0..bytes).map(pattern).collect();
        stream.write_all(&data).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap(), 0);
    });
    let mut stream = path.client.0.run(|| Ok(TcpStream::connect(to).unwrap())).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut got = Vec::new();
    stream.read_to_end(&mut got).unwrap();
    drop(stream);
    server.join().unwrap();
    assert_eq!(got.len(), bytes);
    assert!(got.iter().enumerate().all(|(i, b)| *b == pattern(i)), "bytes differ");
}

/// Everything that diversion could leave behind, as text.
pub fn configuration(host: &Host) -> String {
    host.sh(
        "ip rule; ip -6 rule; ip -4 route show table all; ip -6 route show table all | grep -v 'table local\\|fe80'; \
         nft list ruleset; \
         ip -o link | grep -o 'farlink[0-9]*' || true",
    )
}

/// Fails unless the configuration is again what it was. A device may take a moment to vanish:
/// programs that other tests start hold copies of its descriptor between fork and exec.
pub fn assert_restored(host: &Host, before: &str) {
    for _ in 0..100 {
        if configuration(host) == before {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(configuration(host), before, "something is left behind");
}

/// Waits until `done` holds; fails after ten seconds.
pub fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..1000 {
        if done() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("never came true: {what}");
}
