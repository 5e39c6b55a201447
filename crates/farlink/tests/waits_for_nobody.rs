//! What else happens on a router neither ends the daemon nor holds up its packets: a log that
//! nobody reads, interfaces of others, their locks, a file system that is full, devices that are
//! taken away. In network namespaces, as root.

mod bed;
#[path = "bed/calls.rs"]
mod calls;
#[path = "bed/held_lock.rs"]
mod held_lock;

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

/// Interfaces that are no concern of Farlink, some of them always there, others in bursts.
#[test]
fn interfaces_of_others_come_and_go_and_it_lives() {
    by_both_methods("interfaces_of_others_come_and_go_and_it_lives", |method| {
        let bed = Bed::new("others");
        let pairs = |from: u32, to: u32, line: &dyn Fn(u32) -> String| {
            let batch: String = (from..to).map(line).collect();
            let file = bed.directory.join("batch");
            std::fs::write(&file, batch).unwrap();
            bed.in_gateway(&format!("ip -batch {}", file.display()));
        };
        let add = |n: u32| format!("link add oa{n} type veth peer name ob{n}\n");
        pairs(0, 60, &add);
        let daemon = bed.boot(method);
        bed.splits("at first");
        let mut one = bed.carries();
        let until = Instant::now() + Duration::from_secs(20);
        std::thread::scope(|scope| {
            let storm = scope.spawn(|| {
                while Instant::now() < until {
                    pairs(1000, 1050, &add);
                    pairs(1000, 1050, &|n| format!("link del oa{n}\n"));
                }
            });
            while !storm.is_finished() {
                one.round();
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        assert!(one.gap < GAP_MAX, "{:?}", one.gap);
        bed.splits("afterwards");
        bed.ends(daemon);
    });
}

/// The kernel's lock for interfaces (RTNL) is held by others for two seconds.
#[test]
fn the_lock_for_interfaces_is_held_by_others() {
    by_both_methods("the_lock_for_interfaces_is_held_by_others", |method| {
        let bed = Bed::new("lock");
        let daemon = bed.boot(method);
        bed.splits("at first");
        let mut one = bed.carries();
        one.go_on(Duration::from_millis(300));
        one.gap = Duration::ZERO;
        let (mut opened, mut held) = (Duration::ZERO, Duration::ZERO);
        std::thread::scope(|scope| {
            let Some(lock) = held_lock::hold() else { return };
            // Who asks the kernel for an interface meanwhile waits as long.
            let asker = scope.spawn(|| {
                let began = Instant::now();
                bed.in_gateway("ip link show lo");
                began.elapsed()
            });
            let until = Instant::now() + Duration::from_secs(2);
            while Instant::now() < until {
                one.round();
                let began = Instant::now();
                bed.carries().end();
                bed.status();
                opened = opened.max(began.elapsed());
                std::thread::sleep(Duration::from_millis(5));
            }
            drop(lock);
            held = asker.join().unwrap();
        });
        eprintln!("{method}: held for {held:?}; longest gap {:?}, opening {opened:?}", one.gap);
        // The asker may begin late.
        let is_held = held > Duration::from_millis(1500);
        assert!(is_held || says("the_lock_for_interfaces_is_held_by_others", "no userfaultfd"), "{held:?}");
        assert!(one.gap < GAP_MAX && opened < GAP_MAX, "{:?} {opened:?}", one.gap);
        bed.ends(daemon);
    });
}

/// Its own devices are deleted, moved, renamed and taken down, one after the other.
#[test]
fn a_device_that_is_taken_away_is_made_anew() {
    by_both_methods("a_device_that_is_taken_away_is_made_anew", |method| {
        let bed = Bed::new("device");
        let daemon = bed.boot(method);
        bed.splits("at first");
        let elsewhere = bed.server.name().to_owned();
        for what in [
            "ip link del farlink0".to_owned(),
            "ip link del farlink1".to_owned(),
            format!("ip link set farlink0 netns {elsewhere}"),
            "ip link set farlink1 down".to_owned(),
            "ip link set farlink0 name mine || { ip link set farlink0 down; ip link set farlink0 name mine; }".to_owned(),
        ] {
            let mut one = bed.carries();
            one.go_on(Duration::from_millis(100));
            std::thread::scope(|scope| {
                scope.spawn(|| bed.in_gateway(&what));
                one.go_on(Duration::from_secs(2));
            });
            eprintln!("{method}: {what}: longest gap {:?}", one.gap);
            assert!(one.gap < GAP_MAX, "{what}: {:?}\n{}", one.gap, bed.log());
            bed.splits(&what);
            one.end();
        }
        let there = bed.in_gateway("ls /sys/class/net");
        let all = if method == "bump" { 4 } else { 2 };
        assert_eq!(there.matches("farlink").count(), all, "{there}");
        assert!(!there.contains("mine"), "{there}");
        let stands = |status: &Value| status.pointer("/diversion/in_place") == Some(&Value::Bool(true));
        bed.eventually("all is in place", || stands(&bed.status()));
        bed.ends(daemon);
    });
}

/// More interfaces come than there is time for: what is there goes on meanwhile.
#[test]
fn many_interfaces_that_are_diverted_come_at_once() {
    by_both_methods("many_interfaces_that_are_diverted_come_at_once", |method| {
        let bed = Bed::new("many");
        std::fs::write(
            bed.directory.join("farlink.toml"),
            format!("{LINK}[[interface]]\nname = \"many*\"\n"),
        )
        .unwrap();
        let daemon = bed.boot(method);
        bed.splits("at first");
        let batch = |line: &dyn Fn(u32) -> String| {
            let file = bed.directory.join("batch");
            std::fs::write(&file, (0..50).map(line).collect::<String>()).unwrap();
            bed.in_gateway(&format!("ip -batch {}", file.display()));
        };
        let mut one = bed.carries();
        let mut opened = Duration::ZERO;
        std::thread::scope(|scope| {
            let work = scope.spawn(|| {
                batch(&|n| format!("link add many{n} up type veth peer name other{n}\n"));
                std::thread::sleep(Duration::from_secs(2));
                batch(&|n| format!("link del many{n}\n"));
                std::thread::sleep(Duration::from_secs(2));
            });
            while !work.is_finished() {
                one.round();
                let began = Instant::now();
                bed.carries().end();
                opened = opened.max(began.elapsed());
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        eprintln!("{method}: longest gap {:?}, opening {opened:?}", one.gap);
        assert!(one.gap < GAP_MAX && opened < GAP_MAX, "{:?} {opened:?}", one.gap);
        bed.ends(daemon);
    });
}

/// A small file system of its own.
struct Small(std::path::PathBuf);

impl Small {
    fn mount(at: std::path::PathBuf) -> Self {
        std::fs::create_dir_all(&at).unwrap();
        let mut mount = std::process::Command::new("mount");
        assert!(mount.args(["-t", "tmpfs", "-o", "size=1m", "none"]).arg(&at).status().unwrap().success());
        Self(at)
    }
    fn fill(&self) {
        let mut file = std::fs::File::create(self.0.join("filler")).unwrap();
        while file.write_all(&[1; 4096]).is_ok() {}
    }
    fn free(&self) {
        std::fs::remove_file(self.0.join("filler")).unwrap();
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// The file system of the journal is full, and the journal is cut.
#[test]
fn a_journal_without_room_and_one_that_is_cut_end_nothing() {
    by_both_methods("a_journal_without_room_and_one_that_is_cut_end_nothing", |method| {
        let bed = Bed::new("journal");
        let small = Small::mount(bed.directory.join("run"));
        let journal = small.0.join("journal");
        let text = format!("{LINK}[divert]\njournal = \"{}\"\n", journal.display());
        std::fs::write(bed.directory.join("farlink.toml"), text).unwrap();
        small.fill();
        let daemon = bed.boot(method);
        let is_told =
            |bed: &Bed| bed.status()["diversion"]["found"].to_string().contains("journal-without-room");
        bed.eventually("it is told", || is_told(&bed));
        let mut one = bed.carries();
        one.go_on(Duration::from_millis(300));
        let mode = bed.ask(&["flows", "--json"]).stdout;
        let mode = String::from_utf8(mode).unwrap();
        assert!(!mode.contains("\"split\""), "nothing is promised: {mode}");
        small.free();
        bed.eventually("there is room again", || !is_told(&bed));
        let mut two = bed.carries();
        two.go_on(Duration::from_millis(300));
        // All that was put there is taken away, again and again.
        for _ in 0..5 {
            std::fs::File::options().write(true).open(&journal).unwrap().set_len(0).unwrap();
            two.go_on(Duration::from_millis(300));
            bed.eventually("another one is begun", || {
                two.round();
                std::fs::metadata(&journal).is_ok_and(|file| file.len() > 0)
            });
        }
        one.go_on(Duration::from_millis(100));
        assert!(one.gap < GAP_MAX && two.gap < GAP_MAX, "{:?} {:?}", one.gap, two.gap);
        bed.splits("afterwards");
        bed.ends(daemon);
    });
}

/// What the thread that carries packets may ask the kernel for. Nothing of it waits for a lock
/// that others hold, for a file, a log or a person.
const ALLOWED: [(i64, &str); 13] = [
    (libc::SYS_readv, "packets come"),
    (libc::SYS_writev, "packets leave"),
    (libc::SYS_epoll_pwait2, "waiting"),
    (libc::SYS_epoll_ctl, "a device comes or goes"),
    (libc::SYS_clock_gettime, "where the machine has no better clock"),
    (libc::SYS_futex, "channels"),
    (libc::SYS_restart_syscall, "waiting"),
    (libc::SYS_mmap, "memory"),
    (libc::SYS_munmap, "memory"),
    (libc::SYS_mremap, "memory"),
    (libc::SYS_madvise, "memory"),
    (libc::SYS_mprotect, "memory"),
    (libc::SYS_brk, "memory"),
];
/// These are read, and nothing else.
const READ: [&str; 2] = ["anon_inode:[eventfd]", "anon_inode:[signalfd]"];

fn is_allowed(nr: i64, what: &str) -> bool {
    let is_known = ALLOWED.iter().any(|(allowed, _)| *allowed == nr);
    is_known || (nr == libc::SYS_read && READ.contains(&what))
}

/// Under load of all kinds, half a minute with each method.
#[test]
fn the_loop_asks_the_kernel_for_packets_and_time_alone() {
    by_both_methods("the_loop_asks_the_kernel_for_packets_and_time_alone", |method| {
        let bed = Bed::new("calls");
        let log = bed.directory.join("connections.log");
        let found = bed.directory.join("found.json");
        let more = format!(
            "[admin]\nconnection_log = \"{}\"\nfound_rates = \"{}\"\n",
            log.display(),
            found.display()
        );
        std::fs::write(bed.directory.join("farlink.toml"), format!("{more}{LINK}")).unwrap();
        let daemon = bed.boot(method);
        bed.splits("at first");
        let thread = i32::try_from(daemon.id()).unwrap();
        let calls = std::thread::scope(|scope| {
            let tracer = scope.spawn(move || calls::of_thread(thread, Duration::from_secs(30)));
            let mut one = bed.carries();
            let mut n = 0;
            while !tracer.is_finished() {
                n += 1;
                one.round();
                bed.carries().end();
                match n % 40 {
                    1 => drop(bed.status()),
                    5 => drop(bed.ask(&["flows", "--json"])),
                    9 => drop(bed.in_gateway("ip link add oa0 type veth peer name ob0")),
                    13 => drop(bed.in_gateway("ip link del oa0; ip addr add 10.99.0.1/32 dev to-server")),
                    17 => drop(bed.ask(&["reload"])),
                    21 => drop(bed.ask(&["set", "link.to-server.rate_bps", "400000000"])),
                    25 => {
                        drop(bed.in_gateway("ip link del farlink0; ip addr del 10.99.0.1/32 dev to-server"))
                    }
                    29 => drop(bed.in_gateway("ip link set farlink1 down")),
                    33 => drop(bed.ask(&["check", "--seconds", "1"])),
                    _ => {}
                }
            }
            tracer.join().unwrap()
        });
        let bad: Vec<_> = calls.iter().filter(|((nr, what), _)| !is_allowed(*nr, what)).collect();
        assert!(bad.is_empty(), "{method}: number and descriptor, and how often: {bad:?}");
        let of = |nr| calls.iter().filter(|((of, _), _)| *of == nr).map(|(_, n)| n).sum::<u64>();
        assert!(of(libc::SYS_readv) > 1000 && of(libc::SYS_epoll_pwait2) > 100, "{calls:?}");
        bed.splits("afterwards");
        bed.ends(daemon);
    });
}

/// So have threads that packets or a supervisor wait for, and no others.
#[test]
fn the_loop_has_priority() {
    if rustix::process::getpriority_process(None) != Ok(0) {
        let _ = says("the_loop_has_priority", "it runs with a nice value");
        return;
    }
    by_both_methods("the_loop_has_priority", |method| {
        let bed = Bed::new("nice");
        let daemon = bed.boot(method);
        bed.splits("at first");
        let nice = |stat: String| {
            let (name, rest) = stat.split_once('(').and_then(|(_, rest)| rest.rsplit_once(')')).unwrap();
            (name.to_owned(), rest.split_whitespace().nth(16).and_then(|n| n.parse::<i32>().ok()).unwrap())
        };
        let threads = std::fs::read_dir(format!("/proc/{}/task", daemon.id())).unwrap().flatten();
        let stats = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("stat")).ok());
        let all: Vec<_> = stats.map(nice).collect();
        for (name, nice) in &all {
            let has_priority = ["farlink", "lookups", "watchdog", "supervisor"].contains(&name.as_str());
            assert_eq!(*nice, if has_priority { farlink_linux::priority::LOOP_NICE } else { 0 }, "{all:?}");
        }
        let names: Vec<_> = all.iter().map(|(name, _)| name.as_str()).collect();
        for name in ["farlink", "lookups", "housekeeping", "guard", "admin", "log"] {
            assert!(names.contains(&name), "{name}: {all:?}");
        }
        bed.ends(daemon);
    });
}
