//! The whole datapath: a gateway on a router between real hosts.

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};

use common::daemon::{Daemon, config};
use common::{
    Host, Path, Running, assert_restored, configuration, datagram_arrives, eventually, pattern, skipped,
    transfer,
};
use farlink_linux::driver::{By, Driver, End, Finder};
use farlink_linux::event_loop::Signals;

#[test]
fn connections_are_split_in_both_families_and_a_drain_leaves_nothing() {
    if skipped("connections_are_split_in_both_families_and_a_drain_leaves_nothing") {
        return;
    }
    let path = Path::new();
    let before = configuration(&path.router);
    let daemon = Daemon::start(&path.router, config(None));
    for (n, address) in ["10.2.0.1", "fd02::1"].into_iter().enumerate() {
        transfer(&path, address, 5_000_000);
        assert!(datagram_arrives(&path.client, &path.server, address));
        let (gateway, driver) = daemon.status();
        assert_eq!(gateway.engine.counters.flows_split, n as u64 + 1, "{gateway:?}");
        assert!(driver.ports.iter().all(|p| p.up && p.tso4 && p.tso6), "{driver:?}");
        assert!(driver.ports.iter().any(|p| p.counters.super_segments_in > 10), "{driver:?}");
        let bad = driver.counters;
        assert_eq!((bad.writes_refused, bad.writes_lost, bad.route_errors), (0, 0, 0), "{bad:?}");
    }
    assert_eq!(daemon.drain(), End::Drained);
    assert_restored(&path.router, &before);
    transfer(&path, "10.2.0.1", 100_000);
}

#[test]
fn link_events_reach_the_gateway() {
    if skipped("link_events_reach_the_gateway") {
        return;
    }
    let path = Path::new();
    let daemon = Daemon::start(&path.router, config(None));
    let is_up = |name: &str| daemon.status().1.ports.iter().any(|p| p.interface == name && p.up);
    assert!(is_up("right"));
    path.server.0.link_up("eth0", false).unwrap();
    eventually("the carrier's loss is noticed", || !is_up("right"));
    assert!(is_up("left"));
    path.server.0.link_up("eth0", true).unwrap();
    eventually("its return is noticed", || is_up("right"));
    assert_eq!(daemon.drain(), End::Drained);
}

#[test]
fn an_interface_without_room_is_a_finding_until_there_is_some() {
    if skipped("an_interface_without_room_is_a_finding_until_there_is_some") {
        return;
    }
    let path = Path::new();
    let add = |n: u32| {
        path.router.sh(&format!(
            "ip link add x{n} type veth peer name y{n}; ip link set x{n} up; ip link set y{n} up"
        ));
    };
    let mut few = config(None);
    // Marks for three: two of them are named.
    few.divert.mark_mask = 0x3000_0000;
    few.finders = vec![Finder { by: By::Pattern("x*".into()), domain: 0, attach: false, divert: true }];
    add(0);
    let daemon = Daemon::start(&path.router, few);
    let found = || {
        let found = daemon.status().1.diversion.found;
        found.into_iter().find(|f| f.id == "interfaces-without-room").map(|f| f.text)
    };
    assert_eq!(found(), None);
    add(1);
    eventually("it is said", || found().is_some_and(|text| text.contains("x1")));
    path.router.sh("ip link del x0");
    path.router.sh("ip link set x1 down; ip link set x1 up");
    eventually("there is room", || found().is_none());
    assert!(daemon.status().1.ports.iter().any(|p| p.interface == "x1" && p.present));
    assert_eq!(daemon.drain(), End::Drained);
}

/// Not a test by itself: the daemon as a process of its own, for signals.
#[test]
fn child_that_is_a_daemon() {
    let Some(journal) = std::env::var_os("FARLINK_TEST_DAEMON") else { return };
    let signals = Signals::take(&[libc::SIGTERM, libc::SIGINT]).unwrap();
    let driver = Driver::start(config(Some(journal.into()))).unwrap();
    farlink_linux::caps::keep_net_admin(false).unwrap();
    // The test harness has threads that do not block these signals: they are to be sent to this
    // one.
    common::say(&format!("READY {}", rustix::thread::gettid().as_raw_nonzero()));
    let end = driver.run(Some(&signals), |_| {}).unwrap();
    common::say(&format!("END {end:?}"));
}

struct Process {
    running: Running,
    directory: std::path::PathBuf,
}

impl Process {
    fn start(router: &Host, directory: std::path::PathBuf) -> Self {
        std::fs::create_dir_all(&directory).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["child_that_is_a_daemon", "--exact", "--nocapture", "--test-threads=1"])
            .env("FARLINK_TEST_DAEMON", directory.join("journal"))
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(directory.join("log")).unwrap());
        let process = Self { running: Running(router.0.exec(command).unwrap()), directory };
        eventually("the daemon diverts", || process.log().contains("READY"));
        process
    }
    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.join("log")).unwrap()
    }
    fn signal(&self, signal: rustix::process::Signal) {
        let log = self.log();
        let thread: i32 =
            log.lines().find_map(|l| l.strip_prefix("READY ")).and_then(|t| t.parse().ok()).unwrap();
        // SAFETY: plain system call.
        let rc = unsafe { libc::syscall(libc::SYS_tgkill, self.running.0.id(), thread, signal.as_raw()) };
        assert_eq!(rc, 0);
    }
    fn ended(&mut self) -> Option<bool> {
        self.running.0.try_wait().unwrap().map(|s| s.success())
    }
}

fn scratch(name: &str) -> std::path::PathBuf {
    std::env::temp_dir().join(format!("flt{}-{name}", std::process::id()))
}

#[test]
fn a_terminated_daemon_drains_and_breaks_nothing() {
    if skipped("a_terminated_daemon_drains_and_breaks_nothing") {
        return;
    }
    let path = Path::new();
    let before = configuration(&path.router);
    let directory = scratch("drain");
    let mut daemon = Process::start(&path.router, directory.clone());
    let listener = path.server.0.run(|| Ok(TcpListener::bind("10.2.0.1:0").unwrap())).unwrap();
    let to = listener.local_addr().unwrap();
    let mut client = path.client.0.run(|| Ok(TcpStream::connect(to).unwrap())).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    const BYTES: usize = 8_000_000;
    let sender = std::thread::spawn(move || {
        for piece in (0..BYTES).collect::<Vec<_>>().chunks(40_000) {
            server.write_all(&piece.iter().map(|i| pattern(*i)).collect::<Vec<u8>>()).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    });
    let mut got = vec![0u8; BYTES];
    client.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    client.read_exact(&mut got[..1_000_000]).unwrap();
    daemon.signal(rustix::process::Signal::TERM);
    client.read_exact(&mut got[1_000_000..]).unwrap();
    sender.join().unwrap();
    assert!(got.iter().enumerate().all(|(i, b)| *b == pattern(i)));
    eventually("the daemon ends", || daemon.ended() == Some(true));
    assert!(daemon.log().contains("END Drained"), "{}", daemon.log());
    assert_restored(&path.router, &before);
    assert!(!directory.join("journal").exists());
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_killed_daemon_loses_only_what_it_held_and_its_restart_says_so() {
    if skipped("a_killed_daemon_loses_only_what_it_held_and_its_restart_says_so") {
        return;
    }
    let path = Path::new();
    let before = configuration(&path.router);
    let directory = scratch("kill");
    let daemon = Process::start(&path.router, directory.clone());
    let connect = || {
        let listener = path.server.0.run(|| Ok(TcpListener::bind("10.2.0.1:0").unwrap())).unwrap();
        let to = listener.local_addr().unwrap();
        let client = path.client.0.run(|| Ok(TcpStream::connect(to).unwrap())).unwrap();
        let (server, _) = listener.accept().unwrap();
        for stream in [&client, &server] {
            stream.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
        }
        (client, server)
    };
    let exchange = |from: &mut TcpStream, to: &mut TcpStream| {
        from.write_all(b"word").unwrap();
        let mut word = [0; 4];
        to.read_exact(&mut word).unwrap();
        assert_eq!(&word, b"word");
    };
    // One with nothing in custody, one whose reader has stopped, so that the gateway holds its
    // bytes.
    let (mut quiet, mut quiet_server) = connect();
    exchange(&mut quiet, &mut quiet_server);
    let (mut stuck, mut stuck_server) = connect();
    stuck_server.set_nonblocking(true).unwrap();
    let mut sent = 0;
    let mut idle = 0;
    while idle < 30 {
        match stuck_server.write(&[7; 65_536]) {
            Ok(n) => {
                sent += n;
                idle = 0;
            }
            Err(_) => {
                idle += 1;
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
        }
    }
    stuck_server.set_nonblocking(false).unwrap();
    assert!(sent > 1_000_000, "{sent}");
    daemon.signal(rustix::process::Signal::KILL);
    let mut daemon = daemon;
    daemon.running.0.wait().unwrap();
    exchange(&mut quiet, &mut quiet_server);
    exchange(&mut quiet_server, &mut quiet);
    transfer(&path, "10.2.0.1", 1_000_000);

    let again = Process::start(&path.router, directory.clone());
    let mut sink = vec![0; 1 << 20];
    let fate = |stream: &mut TcpStream, sink: &mut [u8]| loop {
        match stream.read(sink) {
            Ok(0) => panic!("an orderly end after bytes were lost"),
            Ok(_) => {}
            Err(e) => return e.kind(),
        }
    };
    assert_eq!(fate(&mut stuck, &mut sink), std::io::ErrorKind::ConnectionReset, "the reader is told");
    assert_eq!(fate(&mut stuck_server, &mut sink), std::io::ErrorKind::ConnectionReset, "the writer is told");
    exchange(&mut quiet, &mut quiet_server);
    exchange(&mut quiet_server, &mut quiet);
    again.signal(rustix::process::Signal::TERM);
    let mut again = again;
    eventually("the daemon ends", || again.ended() == Some(true));
    assert_restored(&path.router, &before);
    std::fs::remove_dir_all(directory).unwrap();
}

/// The process that holds the nftables table of a namespace.
fn holder(router: &common::Host) -> Option<i32> {
    let inside = std::path::PathBuf::from(router.sh("readlink /proc/self/ns/net").trim());
    let is_there = |pid: &i32| {
        let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        comm.trim() == "nft" && std::fs::read_link(format!("/proc/{pid}/ns/net")).is_ok_and(|n| n == inside)
    };
    let pids = std::fs::read_dir("/proc").unwrap();
    pids.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).find(is_there)
}

#[test]
fn a_table_whose_holder_is_killed_is_put_back() {
    if skipped("a_table_whose_holder_is_killed_is_put_back") {
        return;
    }
    let path = Path::new();
    let daemon = Daemon::start(&path.router, config(None));
    assert!(daemon.status().1.diversion.in_place);
    for round in 1..3 {
        let pid = rustix::process::Pid::from_raw(holder(&path.router).unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        eventually("it is put back", || daemon.status().1.diversion.repairs == round);
        assert!(daemon.status().1.diversion.in_place);
        transfer(&path, "10.2.0.1", 100_000);
        assert_eq!(daemon.status().0.engine.counters.flows_split, round);
    }
    assert_eq!(daemon.drain(), End::Drained);
    assert_eq!(path.router.sh("nft list ruleset"), "");
    assert_eq!(holder(&path.router), None);
}
