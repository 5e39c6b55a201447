//! What else happens on a router neither ends the daemon nor holds up its packets: a log that
//! nobody reads, interfaces of others, their locks, a file system that is full, devices that are
//! taken away. In network namespaces, as root.

mod bed;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use bed::{Bed, FARLINK, says, skipped, terminate};
use serde_json::Value;

const METHODS: [&str; 2] = ["policy", "bump"];
const LINK: &str =
    "[[interface]]\nname = \"to-client\"\n[[link]]\ninterface = \"to-server\"\nrate = \"500 Mbit/s\"\n";
/// Nothing that is none of its business holds up a connection for longer.
const GAP_MAX: Duration = Duration::from_millis(800);

/// Plays with both methods.
fn by_both_methods(test: &str, play: impl Fn(&str)) {
    if skipped(test) {
        return;
    }
    for method in METHODS {
        let refused = method == "bump" && farlink_linux::bump::Bump::load(&[6]).is_err();
        if !(refused && says(test, "there can be no bump here")) {
            play(method);
        }
    }
}

impl Bed {
    fn command_of(&self, method: &str, more: &[&str]) -> std::process::Command {
        let file = self.directory.join("farlink.toml");
        if !file.exists() {
            std::fs::write(&file, LINK).unwrap();
        }
        let mut command = self.gateway.command(FARLINK);
        command.args(["run", "--config", file.to_str().unwrap(), "--divert", method]);
        command.args(["--socket", &self.socket()]).args(more);
        command
    }

    fn boot(&self, method: &str) -> Child {
        let log = std::fs::File::create(self.directory.join("log")).unwrap();
        let child = self.command_of(method, &[]).stderr(log).spawn().unwrap();
        self.eventually("the daemon answers", || self.ask(&["status"]).status.success());
        child
    }

    fn number(&self, at: &str) -> u64 {
        self.status().pointer(at).and_then(Value::as_u64).unwrap_or_else(|| panic!("{at}"))
    }

    /// A connection of which every byte is looked at, that carries all the time.
    fn carries(&self) -> Carried {
        let listener = self.server.run(|| Ok(TcpListener::bind("10.73.2.2:0"))).unwrap().unwrap();
        let to: SocketAddr = listener.local_addr().unwrap();
        let patience = Duration::from_secs(5);
        let client = self.client.run(|| Ok(TcpStream::connect_timeout(&to, patience))).unwrap().unwrap();
        let (server, _) = listener.accept().unwrap();
        Carried::start(client, server)
    }

    /// New connections get through, and are split.
    fn splits(&self, what: &str) {
        self.eventually(what, || {
            let before = self.number("/engine/counters/flows_split");
            let mut one = self.carries();
            std::thread::sleep(Duration::from_millis(20));
            one.end();
            self.number("/engine/counters/flows_split") > before
        });
    }

    fn ends(&self, mut daemon: Child) {
        assert!(daemon.try_wait().unwrap().is_none(), "it lives\n{}", self.log());
        terminate(&daemon);
        assert_eq!(daemon.wait().unwrap().code(), Some(0), "{}", self.log());
        assert!(!self.log().contains("panicked"), "{}", self.log());
        let left =
            self.in_gateway("nft list ruleset; ls /sys/class/net | grep farlink; ip rule | grep farlink");
        assert_eq!(left, "", "nothing is left");
    }
}

/// Some bytes each few milliseconds, to the server and back.
struct Carried {
    client: TcpStream,
    server: TcpStream,
    sent: u64,
    gap: Duration,
}

const PIECE: usize = 4000;

impl Carried {
    fn start(client: TcpStream, server: TcpStream) -> Self {
        for stream in [&client, &server] {
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            stream.set_nodelay(true).unwrap();
        }
        Self { client, server, sent: 0, gap: Duration::ZERO }
    }

    /// One round of exact bytes.
    fn round(&mut self) {
        let began = Instant::now();
        let piece: Vec<u8> = (self.sent..).take(PIECE).map(|i| (i % 251) as u8).collect();
        self.sent += PIECE as u64;
        let mut got = vec![0; PIECE];
        for (from, to) in [(&self.client, &self.server), (&self.server, &self.client)] {
            let (mut from, mut to) = (from, to);
            from.write_all(&piece).unwrap();
            to.read_exact(&mut got).unwrap();
            assert!(got == piece, "other bytes after {}", self.sent);
        }
        self.gap = self.gap.max(began.elapsed());
    }

    /// For so long.
    fn go_on(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until {
            self.round();
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn end(&mut self) {
        self.round();
        let _ = self.client.shutdown(std::net::Shutdown::Both);
    }
}

/// Standard error is a pipe that nobody reads, and the log says much.
#[test]
fn a_log_that_nobody_reads_stops_nothing() {
    by_both_methods("a_log_that_nobody_reads_stops_nothing", |method| {
        let bed = Bed::new("log");
        let mut daemon = bed.command_of(method, &["--log", "trace"]).stderr(Stdio::piped()).spawn().unwrap();
        bed.eventually("the daemon answers", || bed.ask(&["status"]).status.success());
        let mut one = bed.carries();
        let until = Instant::now() + Duration::from_secs(60);
        while bed.number("/driver/log_lines_lost") == 0 {
            assert!(Instant::now() < until, "the log is read by somebody");
            for _ in 0..50 {
                bed.carries().end();
            }
            one.round();
        }
        one.go_on(Duration::from_secs(3));
        assert!(one.gap < GAP_MAX, "{:?}", one.gap);
        // Somebody reads it again.
        let mut log = daemon.stderr.take().unwrap();
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            let _ = log.read_to_end(&mut all);
            String::from_utf8_lossy(&all).into_owned()
        });
        std::thread::sleep(Duration::from_millis(300));
        bed.carries().end();
        bed.ends(daemon);
        let log = reader.join().unwrap();
        assert!(log.contains("lines of the log are lost"), "{} bytes of log", log.len());
        assert!(log.contains("no connection was broken"), "the last line is there");
    });
}
