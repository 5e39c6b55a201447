//! Everything that leaves by a link passes through the gateway, and waits in the link's queue: UDP,
//! ping and TCP, IPv4 and IPv6.

mod common;

use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::daemon::{Daemon, config};
use common::{
    Path, Running, assert_restored, configuration, datagram_arrives, eventually, ip, missing, skipped,
    transfer,
};
use farlink_gateway::cc;
use farlink_gateway::config::{LegConfig, Link, XcpContext};
use farlink_linux::divert::{Method, Selection};
use farlink_linux::driver::{Driver, DriverConfig, End};

const RATE_BPS: u64 = 8_000_000;
const SERVERS: [&str; 2] = ["10.2.0.1", "fd02::1"];

/// A gateway whose interface `right` is a link of known rate.
fn gateway(everything: bool, method: Method) -> DriverConfig {
    let mut config = config(None);
    config.divert.method = method;
    config.gateway.interfaces[1].link = Some(Link {
        name: "hard".into(),
        rate_bps: Some(RATE_BPS),
        rtt: None,
        overhead_bytes: 0,
        rate_in_bps: None,
        oversize: Default::default(),
        is_half_duplex: false,
        is_xcp_router: false,
        xcp_weights: Default::default(),
        weights: None,
        explicit: Default::default(),
        xcp_context: XcpContext::default(),
        xcp_shim: None,
        leg: LegConfig { cc: cc::Kind::FixedRate, ..LegConfig::default() },
        estimate_rate: false,
        reconfigures: None,
        rate_max_bps: None,
        corrects_rate: true,
        is_metered: false,
        byte_budget: None,
        action: None,
        ack_filter: Default::default(),
        copies: Default::default(),
    });
    if everything {
        config.divert.selections.push(Selection::LeavesBy("right".into()));
    }
    config
}

/// The ways to divert that there are here.
fn methods() -> Vec<Method> {
    let refused = farlink_linux::bump::Bump::load(&[6]).is_err_and(|e| e.is(libc::EPERM));
    if refused { vec![Method::Policy] } else { vec![Method::Policy, Method::Bump] }
}

/// Sockets of client and server between which datagrams go.
fn datagrams(path: &Path, server: &str) -> (UdpSocket, UdpSocket) {
    let to = path.server.0.run(|| Ok(UdpSocket::bind((ip(server), 0)).unwrap())).unwrap();
    let any = if ip(server).is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let from = path.client.0.run(|| Ok(UdpSocket::bind(any).unwrap())).unwrap();
    from.connect(to.local_addr().unwrap()).unwrap();
    to.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    (from, to)
}

/// Datagrams, one in fragments, pings, one of them in fragments, and a connection.
fn all_kinds_pass(path: &Path, server: &str) {
    assert!(datagram_arrives(&path.client, &path.server, server));
    let (from, to) = datagrams(path, server);
    let data: Vec<u8> = (0..5_000).map(common::pattern).collect();
    from.send(&data).unwrap();
    let mut buffer = [0; 6_000];
    assert_eq!(to.recv(&mut buffer).unwrap(), data.len(), "{server}: a datagram in fragments");
    assert!(buffer[..data.len()] == data[..], "{server}: bytes differ");
    path.client
        .sh(&format!("ping -n -c 2 -i 0.2 -W 2 {server} && ping -n -c 2 -i 0.2 -W 2 -s 3000 {server}"));
    transfer(path, server, 300_000);
    // The gateway is no hop: one more than the router, and it is there.
    let exceeded = format!("ping -n -c 1 -W 2 -t 1 {server} | grep -i exceeded");
    let router = if ip(server).is_ipv4() { "10.1.0.2" } else { "fd01::2" };
    assert!(path.client.sh(&exceeded).contains(router), "{server}: the router answers");
    path.client.sh(&format!("ping -n -c 1 -W 2 -t 2 {server}"));
}

#[test]
fn udp_ping_and_tcp_pass_with_the_selection_and_without() {
    let name = "udp_ping_and_tcp_pass_with_the_selection_and_without";
    if skipped(name) || missing(name, "ping") {
        return;
    }
    let path = Path::new();
    let before = configuration(&path.router);
    // On, off, and on again.
    let rounds = methods().into_iter().flat_map(|method| [true, false, true].map(|on| (on, method)));
    for (everything, method) in rounds {
        let daemon = Daemon::start(&path.router, gateway(everything, method));
        for (n, server) in SERVERS.into_iter().enumerate() {
            let other = daemon.status().0.traffic.packets_other;
            all_kinds_pass(&path, server);
            let (gateway, driver) = daemon.status();
            assert_eq!(gateway.engine.counters.flows_split, n as u64 + 1, "{gateway:?}");
            let bad = driver.counters;
            assert_eq!((bad.writes_refused, bad.writes_lost, bad.route_errors), (0, 0, 0), "{bad:?}");
            let came = gateway.traffic.packets_other - other;
            // Two datagrams, one in four fragments; five pings, two in three fragments. One more
            // gets no further than the router.
            let expected = if everything { 1 + 4 + 2 + 2 * 3 + 1 } else { 0 };
            assert_eq!(came, expected, "{server}");
            assert_eq!(driver.diversion.everything, everything.then_some(true));
            assert!(driver.diversion.found.is_empty(), "{:?}", driver.diversion);
        }
        assert_eq!(daemon.drain(), End::Drained);
        assert_restored(&path.router, &before);
        SERVERS.iter().for_each(|server| all_kinds_pass(&path, server));
    }
}

#[test]
fn the_rate_of_a_link_holds_for_udp() {
    if skipped("the_rate_of_a_link_holds_for_udp") {
        return;
    }
    for method in methods() {
        rate_holds(method);
    }
}

fn rate_holds(method: Method) {
    const PAYLOAD_BYTES: usize = 1_000;
    const SENT: usize = 400;
    let path = Path::new();
    let spans = [false, true].map(|everything| {
        let daemon = Daemon::start(&path.router, gateway(everything, method));
        let (from, to) = datagrams(&path, SERVERS[0]);
        (0..SENT).for_each(|_| assert_eq!(from.send(&[7; PAYLOAD_BYTES]).unwrap(), PAYLOAD_BYTES));
        let mut buffer = [0; 2 * PAYLOAD_BYTES];
        let (mut got, mut first, mut last) = (0, None, Instant::now());
        while to.recv(&mut buffer).is_ok() {
            (got, last) = (got + 1, Instant::now());
            first.get_or_insert(last);
        }
        let link = &daemon.status().0.links[0];
        assert_eq!(link.sent_bytes > 0, everything, "{link:?}");
        assert_eq!(daemon.drain(), End::Drained);
        (got, last - first.unwrap())
    });
    let (got, span) = spans[1];
    common::say(&format!("{SENT} datagrams without and with the selection: {spans:?}"));
    assert!(got > 60, "{spans:?}");
    // The first may have left with a little more than their share, and on a busy machine been seen
    // late.
    let least =
        Duration::from_secs_f64((got - 30) as f64 * (PAYLOAD_BYTES + 28) as f64 * 8.0 / RATE_BPS as f64);
    assert!(span >= least, "{got} datagrams took {span:?} over a link that takes {least:?} for them");
}

#[test]
fn datagrams_go_on_while_diversion_ends_and_begins() {
    if skipped("datagrams_go_on_while_diversion_ends_and_begins") {
        return;
    }
    methods().into_iter().for_each(datagrams_go_on);
}

fn datagrams_go_on(method: Method) {
    let path = Path::new();
    // IPv6 addresses are not usable at once.
    eventually("the path is there", || datagram_arrives(&path.client, &path.server, SERVERS[1]));
    let over = Arc::new(AtomicBool::new(false));
    let streams = SERVERS.map(|server| {
        let (from, to) = datagrams(&path, server);
        let over = Arc::clone(&over);
        let sender = std::thread::spawn(move || {
            let mut sent = 0u32;
            while !over.load(Ordering::Relaxed) {
                from.send(&sent.to_be_bytes()).unwrap();
                sent += 1;
                std::thread::sleep(Duration::from_millis(5));
            }
            sent
        });
        let receiver = std::thread::spawn(move || {
            let (mut got, mut buffer) = (0, [0; 8]);
            while to.recv(&mut buffer).is_ok() {
                got += 1;
            }
            got
        });
        (server, sender, receiver)
    });
    for _ in 0..3 {
        let daemon = Daemon::start(&path.router, gateway(true, method));
        eventually("datagrams are diverted", || daemon.status().0.traffic.packets_other > 40);
        assert_eq!(daemon.drain(), End::Drained);
        std::thread::sleep(Duration::from_millis(50));
    }
    over.store(true, Ordering::Relaxed);
    for (server, sender, receiver) in streams {
        let sent: u32 = sender.join().unwrap();
        let lost = sent - receiver.join().unwrap();
        common::say(&format!("{server}: {lost} of {sent} datagrams were lost over three starts and ends"));
        // Nothing follows a change of rules faster than a packet that is under way.
        assert!(lost <= 6, "{server}: {lost} of {sent}");
    }
}

/// Not a test by itself: the process that the next test kills.
#[test]
fn child_with_a_whole_link() {
    let Some(by) = std::env::var_os("FARLINK_TEST_WHOLE_LINK") else { return };
    let method = if by == "policy" { Method::Policy } else { Method::Bump };
    let driver = Driver::start(gateway(true, method)).unwrap();
    common::say("READY");
    driver.run(None, |_| {}).unwrap();
}

#[test]
fn what_is_not_split_goes_on_when_it_is_killed() {
    let name = "what_is_not_split_goes_on_when_it_is_killed";
    if skipped(name) || missing(name, "ping") {
        return;
    }
    methods().into_iter().for_each(outlives_a_kill);
}

fn outlives_a_kill(method: Method) {
    let path = Path::new();
    // IPv6 addresses are not usable at once.
    eventually("the path is there", || datagram_arrives(&path.client, &path.server, SERVERS[1]));
    let before = configuration(&path.router);
    let log = std::env::temp_dir().join(format!("flw{}-{method:?}", std::process::id()));
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command
        .args(["child_with_a_whole_link", "--exact", "--nocapture", "--test-threads=1"])
        .env("FARLINK_TEST_WHOLE_LINK", if method == Method::Policy { "policy" } else { "bump" })
        .stdout(std::process::Stdio::null())
        .stderr(std::fs::File::create(&log).unwrap());
    let mut child = Running(path.router.0.exec(command).unwrap());
    eventually("it diverts", || std::fs::read_to_string(&log).unwrap().contains("READY"));
    let _ = std::fs::remove_file(&log);
    // What has come in by the devices of the gateway.
    let diverted = || {
        let count =
            "cat /sys/class/net/farlink*/statistics/rx_packets /sys/class/net/farlink*/statistics/tx_packets";
        path.router.sh(count).lines().map(|n| n.parse::<u64>().unwrap()).sum::<u64>()
    };
    let none = diverted();
    SERVERS.iter().for_each(|server| all_kinds_pass(&path, server));
    assert!(diverted() > none + 50, "{method:?}: it passes through the gateway");

    let ways = SERVERS.map(|server| datagrams(&path, server));
    let (mut sent, mut got, mut buffer) = (0, [0, 0], [0; 8]);
    ways.iter().for_each(|(_, to)| to.set_nonblocking(true).unwrap());
    let mut exchange = |rounds: u32| {
        for _ in 0..rounds {
            ways.iter().for_each(|(from, _)| drop(from.send(b"a call")));
            sent += 1;
            std::thread::sleep(Duration::from_millis(5));
            for ((_, to), got) in ways.iter().zip(&mut got) {
                while to.recv(&mut buffer).is_ok() {
                    *got += 1;
                }
            }
        }
        got.map(|got| sent - got)
    };
    // Half of them are sent after the kill.
    let pings = SERVERS.map(|server| {
        let ping = format!("ping -n -q -c 60 -i 0.02 -W 2 {server}");
        path.client.start(&format!("sh -c '{ping} | grep -qE \" (5[0-9]|60) received\"'"))
    });
    exchange(100);
    child.0.kill().unwrap();
    child.0.wait().unwrap();
    let lost = exchange(100);
    common::say(&format!("{method:?}: {lost:?} of {sent} datagrams were lost when it was killed"));
    assert!(lost.iter().all(|lost| *lost <= 40), "{lost:?} of {sent}: not longer than a fifth of a second");
    for mut ping in pings {
        assert!(ping.0.wait().unwrap().success(), "pings are answered");
    }
    // Whatever comes now takes the ordinary way, and the next start finds nothing in its way.
    SERVERS.iter().for_each(|server| all_kinds_pass(&path, server));
    let daemon = Daemon::start(&path.router, gateway(true, method));
    SERVERS.iter().for_each(|server| all_kinds_pass(&path, server));
    assert!(daemon.status().0.traffic.packets_other > 0);
    assert_eq!(daemon.drain(), End::Drained);
    assert_restored(&path.router, &before);
}

#[test]
fn what_a_firewall_keeps_from_coming_out_takes_the_ordinary_way() {
    if skipped("what_a_firewall_keeps_from_coming_out_takes_the_ordinary_way") {
        return;
    }
    let path = Path::new();
    // It knows UDP by the interface that it comes in by, and TCP not at all.
    path.router
        .sh("nft add table inet fw; nft add chain inet fw c '{ type filter hook forward priority 0; }'; \
         nft add rule inet fw c iifname farlink0 meta l4proto udp drop");
    let daemon = Daemon::start(&path.router, gateway(true, Method::Policy));
    let (from, to) = datagrams(&path, SERVERS[0]);
    to.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let mut buffer = [0; 8];
    eventually("datagrams arrive", || {
        from.send(b"here").unwrap();
        to.recv(&mut buffer).is_ok()
    });
    let parts = ["IPv4 traffic other than TCP is not diverted now", "inet fw c"];
    eventually("it is said", || {
        let said =
            daemon.status().1.diversion.found.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        parts.iter().all(|part| said.contains(part))
    });
    let (gateway, driver) = daemon.status();
    assert!(gateway.traffic.packets_other > 0);
    assert_eq!(
        (driver.diversion.ipv4, driver.diversion.everything),
        (true, Some(true)),
        "IPv6 is diverted whole"
    );
    transfer(&path, SERVERS[0], 100_000);
    assert_eq!(daemon.status().0.engine.counters.flows_split, 1, "TCP is split all the same");
    // The rule goes: everything is diverted again.
    path.router.sh("nft delete table inet fw");
    let other = || daemon.status().0.traffic.packets_other;
    let before = other();
    eventually("it is tried again", || {
        from.send(b"here").unwrap();
        assert!(to.recv(&mut buffer).is_ok());
        other() > before
    });
    assert_eq!(daemon.drain(), End::Drained);
}

/// UDP that fills the queue of the link for ever holds no drain up: nothing is in custody.
#[test]
fn a_drain_ends_although_datagrams_fill_the_link() {
    if skipped("a_drain_ends_although_datagrams_fill_the_link") {
        return;
    }
    let path = Path::new();
    let before = configuration(&path.router);
    for method in methods() {
        let mut config = gateway(true, method);
        config.drain_timeout = Duration::from_secs(600);
        let daemon = Daemon::start(&path.router, config);
        let (from, _to) = datagrams(&path, SERVERS[0]);
        let goes_on = Arc::new(AtomicBool::new(true));
        let flood = std::thread::spawn({
            let goes_on = Arc::clone(&goes_on);
            move || {
                // Three times what the link carries.
                while goes_on.load(Ordering::Relaxed) {
                    (0..3).for_each(|_| drop(from.send(&[7; 1_000])));
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        });
        eventually("the queue fills", || daemon.status().0.links[0].backlog_bytes > 0);
        let began = Instant::now();
        assert_eq!(daemon.drain(), End::Drained);
        let took = began.elapsed();
        goes_on.store(false, Ordering::Relaxed);
        flood.join().unwrap();
        assert!(took < Duration::from_secs(60), "{took:?}");
        assert_restored(&path.router, &before);
    }
}

/// Datagrams that a host hands to the kernel as one (UDP_SEGMENT, as QUIC libraries do) arrive as
/// what they are, in their order, whether they cross the gateway in one piece or not.
#[test]
fn datagrams_of_a_super_segment_arrive_one_by_one() {
    if skipped("datagrams_of_a_super_segment_arrive_one_by_one") {
        return;
    }
    const SEGMENT: i32 = 1_000;
    let path = Path::new();
    for method in methods() {
        let daemon = Daemon::start(&path.router, gateway(true, method));
        for server in SERVERS {
            let (from, to) = datagrams(&path, server);
            // SAFETY: the option's value is an int, which lives until the call returns.
            let outcome = unsafe {
                let value: *const i32 = &SEGMENT;
                libc::setsockopt(from.as_raw_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, value.cast(), 4)
            };
            assert_eq!(outcome, 0, "{}", std::io::Error::last_os_error());
            for round in 0..5 {
                let data: Vec<u8> = (0..10_400).map(|n| common::pattern(n + round)).collect();
                from.send(&data).unwrap();
                let mut buffer = [0; 2_000];
                for piece in data.chunks(SEGMENT as usize) {
                    let n = to.recv(&mut buffer).unwrap();
                    assert!(buffer[..n] == *piece, "{server}: {n} of {} bytes", piece.len());
                }
            }
        }
        let (gateway, driver) = daemon.status();
        let bad = driver.counters;
        assert_eq!((bad.writes_refused, bad.writes_lost), (0, 0), "{bad:?}");
        assert!(gateway.traffic.packets_other >= 2 * 5, "they pass through the gateway");
        let is_whole = driver.ports.iter().any(|port| port.uso);
        assert!(!is_whole || gateway.traffic.packets_other < 2 * 5 * 11, "in one piece where that may be");
        assert_eq!(daemon.drain(), End::Drained);
    }
}
