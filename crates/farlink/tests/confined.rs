//! What the daemon may not do any more once it has begun, started by hand as root and as a user of
//! its own; and that it does all that it has to. In network namespaces, as root.

mod bed;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::chown;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use bed::{Bed, FARLINK, is_missing, says, skipped, terminate};
use serde_json::Value;

const METHODS: [&str; 2] = ["policy", "bump"];
/// A user without a name.
const USER: u32 = 61_234;
const PORT: u16 = 9464;
/// Of the router, later.
const LATE: [&str; 2] = ["10.99.9.1", "fd99::9"];

impl Bed {
    fn file(&self) -> std::path::PathBuf {
        self.directory.join("etc/farlink.toml")
    }

    fn configure(&self, more: &str) {
        std::fs::create_dir_all(self.directory.join("etc")).unwrap();
        let links = "[[interface]]\nname = \"to-client\"\n[[link]]\ninterface = \"to-server\"\nrate = \"500 Mbit/s\"\n";
        std::fs::write(self.file(), format!("{links}{more}")).unwrap();
    }

    /// `user`: what the unit of systemd gives it, and no more.
    fn boot(&self, method: &str, user: Option<u32>) -> Child {
        let log = std::fs::File::create(self.directory.join("log")).unwrap();
        let mut command = match user {
            None => self.gateway.command(FARLINK),
            Some(user) => {
                chown(&self.directory, Some(user), Some(user)).unwrap();
                let mut command = self.gateway.command("unshare");
                // Usually everybody may open it; its mode is the machine's, and is left alone.
                let with_device = "mknod \"$0/tun\" c 10 200 && chmod 666 \"$0/tun\" && mount --bind \"$0/tun\" /dev/net/tun && exec \"$@\"";
                command
                    .args(["--mount", "sh", "-c", with_device])
                    .arg(self.directory.join("etc"))
                    .arg("setpriv");
                let capabilities = "+net_admin,+bpf,+net_raw";
                command.args(["--reuid", &user.to_string(), "--regid", &user.to_string(), "--clear-groups"]);
                command.args(["--inh-caps", capabilities, "--ambient-caps", capabilities, FARLINK]);
                command
            }
        };
        command.args(["run", "--config", self.file().to_str().unwrap(), "--divert", method]);
        command.args(["--socket", &self.socket()]).env("FARLINK_TRY_CONFINEMENT", "1").stderr(log);
        let child = command.spawn().unwrap();
        self.eventually("the daemon answers", || self.ask(&["status"]).status.success());
        child
    }

    fn count(&self, at: &str) -> u64 {
        self.status().pointer(at).and_then(Value::as_u64).unwrap_or(0)
    }

    /// New connections are split, and carry what they are given.
    fn splits(&self, what: &str) {
        self.eventually(what, || {
            let before = self.count("/engine/counters/flows_split");
            self.echo().is_ok() && self.count("/engine/counters/flows_split") > before
        });
    }

    fn echo(&self) -> std::io::Result<()> {
        let listener = self.server.run(|| Ok(TcpListener::bind("10.73.2.2:0"))).unwrap()?;
        let to = listener.local_addr()?;
        let patience = Duration::from_secs(5);
        let server = std::thread::spawn(move || -> std::io::Result<()> {
            let (mut stream, _) = listener.accept()?;
            let mut all = vec![0; 100_000];
            stream.read_exact(&mut all)?;
            stream.write_all(&all)
        });
        let mut stream = self.client.run(|| Ok(TcpStream::connect_timeout(&to, patience))).unwrap()?;
        stream.set_read_timeout(Some(patience))?;
        let sent: Vec<u8> = (0..100_000).map(|i| (i % 251) as u8).collect();
        stream.write_all(&sent)?;
        let mut got = Vec::new();
        stream.read_to_end(&mut got)?;
        assert!(got == sent, "{} bytes came back, or others", got.len());
        server.join().unwrap()
    }

    fn found(&self, id: &str) -> bool {
        self.status()["diversion"]["found"].to_string().contains(&format!("\"{id}\""))
    }

    /// What is asked for over HTTP, on the router itself.
    fn scraped(&self, address: SocketAddr) -> Option<String> {
        let patience = Duration::from_secs(3);
        let stream = self.gateway.run(|| Ok(TcpStream::connect_timeout(&address, patience).ok())).unwrap();
        let mut stream = stream?;
        stream.set_read_timeout(Some(patience)).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        answer.starts_with("HTTP/1.1 200 OK").then_some(answer)
    }

    fn ends(&self, mut daemon: Child) {
        assert!(daemon.try_wait().unwrap().is_none(), "it lives\n{}", self.log());
        terminate(&daemon);
        assert_eq!(daemon.wait().unwrap().code(), Some(0), "{}", self.log());
        assert!(!self.log().contains("panicked"), "{}", self.log());
        self.eventually("nothing is left", || {
            let left =
                self.in_gateway("nft list ruleset; ls /sys/class/net | grep farlink; ip rule | grep farlink");
            left.is_empty() && self.gateway.pids().is_empty()
        });
    }
}

/// Plays with both methods, as root and as a user of its own.
fn by_all_means(test: &str, play: impl Fn(&str, Option<u32>)) {
    if skipped(test) || is_missing(test, "setpriv", "--version") {
        return;
    }
    let mut by_user = Command::new("setpriv");
    by_user.args(["--reuid", &USER.to_string(), "--clear-groups", FARLINK, "--version"]);
    let may_run = by_user.output().is_ok_and(|output| output.status.success());
    for method in METHODS {
        let refused = method == "bump" && farlink_linux::bump::Bump::load(&[6]).is_err();
        if refused && says(test, "there can be no bump here") {
            continue;
        }
        play(method, None);
        if may_run || !says(test, "the program cannot be read by others") {
            play(method, Some(USER));
        }
    }
}

/// It tries it itself, and all that it has to do later is done.
#[test]
fn what_the_daemon_does_not_need_is_refused_and_all_else_is_done() {
    by_all_means("what_the_daemon_does_not_need_is_refused_and_all_else_is_done", |method, user| {
        let bed = Bed::new("confined");
        let found = bed.directory.join("var/found.json");
        let text = format!("[admin]\nfound_rates = \"{}\"\n", found.display());
        bed.configure(&text);
        if user.is_some() {
            std::fs::create_dir_all(found.parent().unwrap()).unwrap();
            chown(found.parent().unwrap(), user, user).unwrap();
        }
        let daemon = bed.boot(method, user);
        let log = bed.log();
        let can = |what: &str| log.lines().any(|line| line.contains(what) && line.contains("it can be done"));
        if bed.found("unconfined") {
            says("confined", "this kernel, or this processor, has no means for it");
        } else {
            assert_eq!(log.matches("tried: ").count(), 6, "{log}");
            // Landlock knows ports from Linux 6.7 on; seccomp knows them always.
            assert!(!can("tried: "), "{method} {user:?}: {log}");
        }
        bed.splits("at first");
        // Devices are made, the firewall is mended, the configuration is read, as without.
        bed.in_gateway("ip link del farlink0; nft flush ruleset; ip rule flush; ip rule add from all lookup main pref 32766");
        bed.splits("after all was taken away");
        let in_place = |bed: &Bed| bed.status().pointer("/diversion/in_place") == Some(&Value::Bool(true));
        bed.eventually("all is in place", || in_place(&bed));
        bed.configure(
            &text.replace("[admin]", "[[rule]]\nname = \"new\"\naction = \"pass\"\nports = [22]\n[admin]"),
        );
        let reloaded = bed.ask(&["reload"]);
        assert!(reloaded.status.success(), "{}", bed::text(&reloaded));
        assert!(bed.status()["engine"]["rules"].to_string().contains("\"new\""));
        bed.splits("with another configuration");
        bed.ends(daemon);
        assert!(!bed.log().contains("Permission denied"), "{method} {user:?}: {}", bed.log());
    });
}

/// By a key nothing is taken away.
#[test]
fn confinement_can_be_switched_off() {
    by_all_means("confinement_can_be_switched_off", |method, user| {
        if user.is_some() {
            return;
        }
        for (value, open) in [("off", 6), ("files", 2)] {
            let bed = Bed::new("unconfined");
            bed.configure(&format!("[admin]\nconfinement = \"{value}\"\n"));
            let daemon = bed.boot(method, user);
            let can = bed.log().lines().filter(|line| line.contains("it can be done")).count();
            // A socket of packets takes a privilege that is gone in any case.
            assert!(can >= open - 1, "{value}: {}", bed.log());
            bed.splits("as ever");
            bed.ends(daemon);
        }
    });
}

/// The addresses of metrics come when the daemon is up, or another program has the port for a
/// while.
#[test]
fn a_metrics_address_that_comes_later_is_served_then() {
    by_all_means("a_metrics_address_that_comes_later_is_served_then", |method, user| {
        for address in LATE {
            let bed = Bed::new("late");
            let address = SocketAddr::new(address.parse().unwrap(), PORT);
            bed.configure(&format!("[admin]\nmetrics_address = \"{address}\"\n"));
            let daemon = bed.boot(method, user);
            bed.splits("up all the time");
            assert!(!bed.found("metrics-unserved") && bed.scraped(address).is_none(), "{}", bed.log());
            bed.in_gateway(&format!("ip address add {} dev lo; ip link set lo up", address.ip()));
            let came = Instant::now();
            bed.eventually("it is served", || bed.scraped(address).is_some());
            assert!(came.elapsed() < Duration::from_secs(5), "{:?}", came.elapsed());
            bed.ends(daemon);
        }
        let bed = Bed::new("taken");
        let other = bed.gateway.run(|| Ok(TcpListener::bind(("10.73.1.1", PORT)))).unwrap().unwrap();
        let address = other.local_addr().unwrap();
        bed.configure(&format!("[admin]\nmetrics_address = \"{address}\"\n"));
        let daemon = bed.boot(method, user);
        bed.eventually("it is told", || bed.found("metrics-unserved"));
        bed.splits("and it is up");
        drop(other);
        bed.eventually("it is served", || bed.scraped(address).is_some() && !bed.found("metrics-unserved"));
        bed.ends(daemon);
    });
}

/// One that is killed again and again starts at once, and then later each time.
#[test]
fn one_that_ends_again_and_again_begins_later() {
    let test = "one_that_ends_again_and_again_begins_later";
    if skipped(test) {
        return;
    }
    let bed = Bed::new("again");
    bed.configure("");
    for _ in 0..6 {
        let mut daemon = bed.boot("policy", None);
        assert!(!bed.log().contains("begins later"), "{}", bed.log());
        daemon.kill().unwrap();
        daemon.wait().unwrap();
    }
    let daemon = bed.boot("policy", None);
    assert!(bed.log().contains("the last 6 runs have ended within a minute each"), "{}", bed.log());
    bed.splits("after all");
    bed.ends(daemon);
    let daemon = bed.boot("policy", None);
    assert!(
        !bed.log().contains("begins later"),
        "one that has ended in order begins a new row: {}",
        bed.log()
    );
    bed.ends(daemon);
}
