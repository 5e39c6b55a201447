//! Bumps at interfaces of several kinds, what they hear that is not for them, and next hops.

mod common;

use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use common::daemon::{Daemon, config};
use common::{Host, Path, datagram_arrives, eventually, ip, skipped, transfer};
use farlink_linux::clock;
use farlink_linux::divert::Method;
use farlink_linux::driver::{DriverConfig, End};
use farlink_linux::event_loop::{Interest, Poller, Waker};
use farlink_linux::netns::veth;
use farlink_linux::tun::{ReadOutcome, Tun, TunConfig};
use farlink_wire::Pool;

fn is_refused() -> bool {
    farlink_linux::bump::Bump::load(&[6]).is_err_and(|e| e.is(libc::EPERM))
}

fn bumped(attach: &[&str]) -> DriverConfig {
    let mut config = config(None);
    config.divert.method = Method::Bump;
    config.divert.attach = attach.iter().map(|i| (*i).to_owned()).collect();
    config
}

/// Transfers both ways round, in both families, all split.
fn all_is_split(path: &Path, daemon: &Daemon) {
    for address in ["10.2.0.1", "fd02::1"] {
        eventually("the path is there", || datagram_arrives(&path.client, &path.server, address));
        let before = daemon.status().0.engine.counters.flows_split;
        transfer(path, address, 3_000_000);
        let (gateway, driver) = daemon.status();
        assert_eq!(gateway.engine.counters.flows_split, before + 1, "{address}");
        let bad = driver.counters;
        assert_eq!((bad.writes_refused, bad.writes_lost, bad.route_errors), (0, 0, 0), "{bad:?}");
        assert!(driver.diversion.in_place && driver.diversion.ends == 0, "{:?}", driver.diversion);
    }
}

/// Two interfaces without Ethernet headers, of two hosts, with a wire between them.
struct PlainWire {
    stop: Arc<Waker>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl PlainWire {
    fn new(ends: [(&Host, &str); 2]) -> Self {
        let made = ends.map(|(host, name)| {
            let config = TunConfig::new(name);
            host.0.run(|| Tun::create(&config)).unwrap()
        });
        for (host, name) in ends {
            host.sh(&format!("ip link set {name} mtu 1500"));
        }
        let stop = Arc::new(Waker::new().unwrap());
        let until = Arc::clone(&stop);
        let thread = std::thread::spawn(move || carry(made, &until));
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for PlainWire {
    fn drop(&mut self) {
        self.stop.wake();
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

fn carry(mut ends: [Tun; 2], stop: &Waker) {
    let mut pool = Pool::new(64 << 20);
    let mut poller = Poller::new().unwrap();
    poller.add(stop, 1000, Interest::Read).unwrap();
    for (tun, n) in ends.iter().zip(0u64..) {
        poller.add(tun, n, Interest::Read).unwrap();
    }
    loop {
        let in_a_second = clock::now() + farlink_wire::Duration::from_secs(1);
        let ready = poller.wait(Some(in_a_second)).unwrap().to_vec();
        for one in ready {
            if one.token == 1000 {
                return;
            }
            let n = usize::try_from(one.token).unwrap();
            for _ in 0..64 {
                match ends[n].read(&mut pool) {
                    Ok(ReadOutcome::Packet(packet)) => {
                        let _ = ends[1 - n].write(&packet.offload, packet.bytes(), &[]);
                        packet.recycle(&mut pool);
                    }
                    Ok(ReadOutcome::Odd) => {}
                    _ => break,
                }
            }
        }
    }
}

#[test]
fn an_interface_without_ethernet_headers_has_a_bump() {
    if skipped("an_interface_without_ethernet_headers_has_a_bump") || is_refused() {
        return;
    }
    let path = Path { client: Host::new("client"), router: Host::new("router"), server: Host::new("server") };
    veth(&path.client.0, "eth0", &path.router.0, "left").unwrap();
    path.router.0.make_router().unwrap();
    let wire = PlainWire::new([(&path.router, "right"), (&path.server, "eth0")]);
    path.addresses();
    for attach in [&["right"][..], &[]] {
        let daemon = Daemon::start(&path.router, bumped(attach));
        all_is_split(&path, &daemon);
        assert_eq!(daemon.drain(), End::Drained);
    }
    drop(wire);
}

#[test]
fn a_bridge_has_a_bump_and_its_ports_are_left_alone() {
    if skipped("a_bridge_has_a_bump_and_its_ports_are_left_alone") || is_refused() {
        return;
    }
    let path = Path { client: Host::new("client"), router: Host::new("router"), server: Host::new("server") };
    veth(&path.client.0, "eth0", &path.router.0, "port").unwrap();
    veth(&path.router.0, "right", &path.server.0, "eth0").unwrap();
    path.router.sh("ip link add left type bridge; ip link set left up; ip link set port master left");
    path.router.0.make_router().unwrap();
    path.addresses();
    for attach in [&["left"][..], &["right"], &[]] {
        let daemon = Daemon::start(&path.router, bumped(attach));
        all_is_split(&path, &daemon);
        assert_eq!(daemon.drain(), End::Drained);
    }
}

#[test]
fn frames_for_others_are_not_taken() {
    if skipped("frames_for_others_are_not_taken") || is_refused() {
        return;
    }
    let path = Path::new();
    let daemon = Daemon::start(&path.router, bumped(&["left"]));
    all_is_split(&path, &daemon);
    // As in a switch that floods, while somebody listens at the router.
    path.router.sh("ip link set left promisc on");
    path.client.sh("ip neigh replace 10.1.0.2 lladdr 02:00:00:00:00:99 dev eth0 nud permanent");
    let read = || daemon.status().1.ports.iter().map(|p| p.counters.packets_in).sum::<u64>();
    let before = read();
    let to = (ip("10.2.0.1"), 9).into();
    let patience = Duration::from_millis(1500);
    let error = path.client.0.run(|| Ok(TcpStream::connect_timeout(&to, patience).unwrap_err())).unwrap();
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut, "nobody answers, not even by a reset");
    assert_eq!(read(), before);
    assert_eq!(daemon.drain(), End::Drained);
}

#[test]
fn a_next_hop_that_only_a_rule_knows_is_kept() {
    if skipped("a_next_hop_that_only_a_rule_knows_is_kept") || is_refused() {
        return;
    }
    let path = Path::new();
    // Nobody is asked on the wire for what lies behind a next hop.
    path.server.sh("sysctl -qw net.ipv4.conf.all.arp_ignore=1; ip addr add 10.9.0.1/32 dev lo; \
         ip -6 addr add fd09::1/128 dev lo nodad");
    let by_interface = "ip route add 10.9.0.0/24 via 10.2.0.1 dev right table 77; ip rule add iif left lookup 77; \
         ip -6 route add fd09::/64 via fd02::1 dev right table 77; ip -6 rule add iif left lookup 77";
    let by_mark = "ip rule del iif left; ip rule add fwmark 7 lookup 77; ip -6 rule del iif left; \
         ip -6 rule add fwmark 7 lookup 77; nft add table inet m; \
         nft add chain inet m p '{ type filter hook prerouting priority -150; }'; \
         nft add rule inet m p iifname left meta mark set 7";
    path.router.sh(by_interface);
    let daemon = Daemon::start(&path.router, bumped(&["right"]));
    let mut split = 0;
    let mut work = |what: &str| {
        for address in ["10.9.0.1", "fd09::1"] {
            eventually("the path is there", || datagram_arrives(&path.client, &path.server, address));
            transfer(&path, address, 1_000_000);
            split += 1;
            assert_eq!(daemon.status().0.engine.counters.flows_split, split, "{what}: {address}");
        }
    };
    work("by the incoming interface");
    path.router.sh(by_mark);
    work("by a mark");
    // The next hop has another address now.
    let other = "ip link set eth0 down; ip link set eth0 address 02:00:00:00:00:77; ip link set eth0 up";
    path.server.sh(other);
    path.server.sh("ip -6 addr replace fd02::1/64 dev eth0 nodad; ip route replace default via 10.2.0.2; ip -6 route replace default via fd02::2");
    path.router.sh("ip neigh flush dev right");
    work("by another hardware address");
    assert_eq!(daemon.status().1.diversion.ends, 0);
    assert_eq!(daemon.drain(), End::Drained);
}
