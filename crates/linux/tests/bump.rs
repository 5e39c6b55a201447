//! A bump on the wire of an interface, against the real kernel: what is met, and what netfilter
//! sees of it.

mod common;

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use common::bpf::older_kernel;
use common::daemon::{Daemon, config};
use common::packets::{Kind, NEVER, Seen, kinds, send_raw, without_hops};
use common::{
    Host, Path, Running, assert_restored, configuration, datagram_arrives, eventually, ip, skipped, transfer,
};
use farlink_gateway::config::Action;
use farlink_linux::bump::{Arrival, Bump, Marking, Marks, NO_BUMP, Side, Tap, Target, Way};
use farlink_linux::clock;
use farlink_linux::divert::Method;
use farlink_linux::driver::{Driver, DriverConfig, End};
use farlink_linux::event_loop::{Interest, Poller, Waker};
use farlink_linux::netlink::Socket;
use farlink_linux::tun::{ReadOutcome, TunConfig};
use farlink_wire::{Duration, Pool, edit};

/// Gives every packet of `bumped` back to the side that it did not come from.
struct Echo {
    stop: Arc<Waker>,
    thread: Option<std::thread::JoinHandle<farlink_linux::Result<()>>>,
    seen: Arc<Mutex<Seen>>,
    packets: Receiver<(Arrival, Vec<u8>)>,
}

impl Echo {
    /// `None`: no bpf(2) here.
    fn start(router: &Host, bumped: &str, configured: &[&str]) -> Option<Self> {
        Self::start_with(router, bumped, configured, (&[6], None))
    }

    /// The same for these protocols, and for all that leaves by an interface.
    fn start_with(
        router: &Host,
        bumped: &str,
        configured: &[&str],
        (protocols, whole): (&[u8], Option<&str>),
    ) -> Option<Self> {
        let protocols = protocols.to_vec();
        let whole = whole.map(str::to_owned);
        let configured: Vec<String> = configured.iter().map(|i| (*i).to_owned()).collect();
        let bumped = bumped.to_owned();
        let stop = Arc::new(Waker::new().unwrap());
        let seen = Arc::new(Mutex::new(Seen::default()));
        let (sender, packets) = channel();
        let (ready, is_ready) = channel();
        let (stop2, seen2) = (Arc::clone(&stop), Arc::clone(&seen));
        let thread = router.0.spawn(move || {
            let mut tap = Tap::create(&TunConfig::new("farlink0"))?;
            let bump = Bump::load(&protocols)?;
            let mut socket = Socket::open()?;
            for name in configured {
                let is_whole = whole.as_ref() == Some(&name);
                let rank = if name == bumped { 0 } else { NO_BUMP };
                bump.configure(socket.link_index(&name)?, rank, is_whole)?;
            }
            bump.serve(tap.index())?;
            let link = socket.link(&bumped)?.expect("the interface is there");
            bump.attach(&link, Some((tap.index(), tap.index())))?;
            ready.send(()).unwrap();
            let mut marks = bump.marks()?;
            // So many have places that a number takes more than one byte.
            for mark in 1..300 {
                marks.place(Marking { mark: mark << 16, priority: 0 });
            }
            echo((&mut tap, &mut marks), Target::from(&link), &stop2, |arrival, bytes, (offload, ok)| {
                let mut seen = seen2.lock().unwrap();
                seen.packets += 1;
                seen.super_segments += u64::from(offload.is_super_segment());
                seen.partial_checksums += u64::from(offload.is_partial());
                seen.write_errors += u64::from(!ok);
                let _ = sender.send((arrival, bytes[..bytes.len().min(80)].to_vec()));
            });
            Ok(())
        });
        match is_ready.recv() {
            Ok(()) => Some(Self { stop, thread: Some(thread), seen, packets }),
            Err(_) => match thread.join().unwrap() {
                Err(e) if e.is(libc::EPERM) && e.to_string().contains("BPF") => {
                    common::say(&format!("skipped: {e}"));
                    None
                }
                other => panic!("{other:?}"),
            },
        }
    }
    fn seen(&self) -> Seen {
        *self.seen.lock().unwrap()
    }
    fn drain(&self) -> Vec<(Arrival, Vec<u8>)> {
        std::thread::sleep(std::time::Duration::from_millis(100));
        self.packets.try_iter().collect()
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.stop.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What the machine is given: nobody but a VLAN or a tunnel sets either on the way in.
const GIVEN: Marking = Marking { mark: 9, priority: 0x1_0011 };

fn echo(
    (tap, marks): (&mut Tap, &mut Marks),
    target: Target,
    stop: &Waker,
    mut see: impl FnMut(Arrival, &[u8], (farlink_wire::Offload, bool)),
) {
    let mut pool = Pool::new(64 << 20);
    let mut poller = Poller::new().unwrap();
    poller.add(stop, 1, Interest::Read).unwrap();
    poller.add(&*tap, 0, Interest::Read).unwrap();
    loop {
        let ready = poller.wait(Some(clock::now() + Duration::from_secs(1))).unwrap().to_vec();
        if ready.iter().any(|r| r.token == 1) {
            return;
        }
        for _ in 0..64 {
            match tap.read(&mut pool).unwrap() {
                (ReadOutcome::Packet(mut packet), arrival) => {
                    edit::increment_packet_ttl(packet.bytes_mut());
                    let (way, marking) = match arrival.from {
                        Side::Wire => (Way::IntoMachine, GIVEN),
                        Side::Stack => (Way::Out, arrival.marking),
                    };
                    let ok = tap
                        .write((&target, way, marks.place(marking)), &packet.offload, packet.bytes(), &[])
                        .is_ok();
                    see(arrival, packet.bytes(), (packet.offload, ok));
                    packet.recycle(&mut pool);
                }
                (ReadOutcome::Odd, _) => {}
                (ReadOutcome::Empty, _) => break,
            }
        }
    }
}

/// A strict firewall: only these two ways, nothing invalid, and reverse path filters.
fn firewall(router: &Host) {
    router.sh("nft -f - <<'END'
table inet t {
  chain f {
    type filter hook forward priority 0; policy drop;
    ct state invalid counter drop
    iifname left oifname right counter accept
    iifname right oifname left counter accept
    counter
  }
}
END
for f in all left right; do sysctl -qw net.ipv4.conf.$f.rp_filter=1; done");
}

/// Packets of each counter of the chain, in order.
fn counted(router: &Host) -> Vec<u64> {
    let text = router.sh("nft list chain inet t f");
    let words: Vec<&str> = text.split_whitespace().collect();
    words.windows(2).filter(|w| w[0] == "packets").map(|w| w[1].parse().unwrap()).collect()
}

#[test]
fn netfilter_sees_each_packet_once_with_its_true_interfaces() {
    if skipped("netfilter_sees_each_packet_once_with_its_true_interfaces") {
        return;
    }
    for bumped in ["right", "left"] {
        let path = Path::new();
        let before = configuration(&path.router);
        let echo = Echo::start(&path.router, bumped, &["left", "right"]);
        let Some(echo) = echo else { return };
        firewall(&path.router);
        for address in ["10.2.0.1", "fd02::1"] {
            let earlier = (echo.seen(), counted(&path.router));
            transfer(&path, address, 20_000_000);
            // The last acknowledgements are on their way.
            std::thread::sleep(std::time::Duration::from_millis(100));
            let (seen, counts) = (echo.seen(), counted(&path.router));
            assert!(seen.super_segments > earlier.0.super_segments + 50, "{address}: {seen:?}");
            assert_eq!(seen.write_errors, 0, "{seen:?}");
            let met = seen.packets - earlier.0.packets;
            let forwarded: u64 = counts[1] + counts[2] - earlier.1[1] - earlier.1[2];
            assert_eq!((counts[0], counts[3]), (0, 0), "invalid, and refused: {counts:?}");
            // ICMPv6 of neighbours is local; what was forwarded is what has passed the bump.
            assert_eq!(met, forwarded, "{address}");
        }
        assert!(datagram_arrives(&path.client, &path.server, "10.2.0.1"), "UDP passes by");
        for (arrival, bytes) in echo.drain() {
            let protocol = if bytes[0] >> 4 == 4 { bytes[9] } else { bytes[6] };
            assert_eq!(protocol, 6, "only TCP");
            let ttl = if bytes[0] >> 4 == 4 { bytes[8] } else { bytes[7] };
            let hops = u8::from(arrival.from == Side::Stack);
            assert_eq!(ttl, 64 - hops, "{arrival:?}: one hop for all");
        }
        drop(echo);
        path.router.sh("nft flush ruleset; sysctl -qw net.ipv4.conf.all.rp_filter=0");
        eventually("the device is gone", || configuration(&path.router) == before);
        transfer(&path, "10.2.0.1", 100_000);
    }
}

#[test]
fn translated_connections_show_one_tuple_both_ways() {
    if skipped("translated_connections_show_one_tuple_both_ways") {
        return;
    }
    for (bumped, shown) in [("right", "10.2.0.2"), ("left", "10.1.0.1")] {
        let path = Path::new();
        let Some(echo) = Echo::start(&path.router, bumped, &["left", "right"]) else { return };
        firewall(&path.router);
        path.router.sh("nft 'add table ip n; add chain ip n p { type nat hook postrouting priority 100; }; \
             add rule ip n p oifname right masquerade'");
        transfer(&path, "10.2.0.1", 5_000_000);
        let packets = echo.drain();
        let us = ip(shown).to_string();
        let other = |p: &[u8]| {
            let address =
                |at: usize| std::net::Ipv4Addr::new(p[at], p[at + 1], p[at + 2], p[at + 3]).to_string();
            [address(12), address(16)].into_iter().find(|a| a != "10.2.0.1")
        };
        assert!(packets.iter().all(|(_, p)| other(p).as_ref() == Some(&us)), "{bumped}");
        let sides = |side| packets.iter().filter(|(a, _)| a.from == side).count();
        assert!(sides(Side::Wire) > 20 && sides(Side::Stack) > 20, "{bumped}: both ways");
    }
}

#[test]
fn marks_and_priorities_are_met_and_given_back() {
    if skipped("marks_and_priorities_are_met_and_given_back") {
        return;
    }
    let path = Path::new();
    let Some(echo) = Echo::start(&path.router, "right", &["left", "right"]) else { return };
    path.router.sh(r#"nft -f - <<'END'
table inet t {
  chain f {
    type filter hook prerouting priority 0;
    iifname right meta l4proto tcp meta mark 9 meta priority "1:11" counter
    iifname right meta l4proto tcp counter
  }
  chain p {
    type filter hook postrouting priority 0;
    oifname right meta l4proto tcp meta mark set 0x12345678 meta priority set "abcd:9876"
  }
}
END"#);
    for address in ["10.2.0.1", "fd02::1"] {
        let before = counted(&path.router);
        transfer(&path, address, 2_000_000);
        let counts = counted(&path.router);
        let (given, other) = (counts[0] - before[0], counts[1] - before[1]);
        assert!(given > 20 && other == given, "{address}: {given} of {other} packets have mark and priority");
        let met = echo.drain();
        let expected = |side| match side {
            Side::Wire => Marking::default(),
            Side::Stack => Marking { mark: 0x1234_5678, priority: 0xabcd_9876 },
        };
        assert!(met.iter().any(|(a, _)| a.from == Side::Stack && a.next_hop.is_some()), "{address}");
        assert!(met.iter().all(|(a, _)| a.marking == expected(a.from)), "{address}");
    }
}

#[test]
fn connections_to_the_router_itself_pass_by() {
    if skipped("connections_to_the_router_itself_pass_by") {
        return;
    }
    use std::io::{Read, Write};
    let path = Path::new();
    let Some(echo) = Echo::start(&path.router, "right", &["left", "right"]) else { return };
    for address in ["10.2.0.2", "fd02::2"] {
        let listener =
            path.router.0.run(|| Ok(std::net::TcpListener::bind((ip(address), 0)).unwrap())).unwrap();
        let to = listener.local_addr().unwrap();
        let mut stream = path.server.0.run(|| Ok(std::net::TcpStream::connect(to).unwrap())).unwrap();
        let (mut accepted, _) = listener.accept().unwrap();
        stream.write_all(b"here").unwrap();
        let mut got = [0u8; 4];
        accepted.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"here");
    }
    assert_eq!(echo.drain(), Vec::new());
    // No socket, so it is NAT's business, or nobody's: it is met, and refused.
    let refused =
        path.server.0.run(|| Ok(std::net::TcpStream::connect((ip("10.2.0.2"), 9)).is_err())).unwrap();
    assert!(refused && !echo.drain().is_empty());
}

/// By bumps, between two interfaces without a link.
fn bumped(attach: &[&str]) -> DriverConfig {
    let mut config = config(None);
    config.divert.method = Method::Bump;
    config.divert.attach = attach.iter().map(|i| (*i).to_owned()).collect();
    config
}

/// Whether bpf(2) is refused here.
fn is_refused() -> bool {
    farlink_linux::bump::Bump::load(&[6]).is_err_and(|e| e.is(libc::EPERM))
}

#[test]
fn connections_are_split_behind_a_strict_firewall() {
    if skipped("connections_are_split_behind_a_strict_firewall") || is_refused() {
        return;
    }
    for attach in [&["right"][..], &["left"], &[], &["left", "right"]] {
        let path = Path::new();
        let before = configuration(&path.router);
        let daemon = Daemon::start(&path.router, bumped(attach));
        firewall(&path.router);
        for (n, address) in ["10.2.0.1", "fd02::1"].into_iter().enumerate() {
            transfer(&path, address, 5_000_000);
            assert!(datagram_arrives(&path.client, &path.server, address));
            let (gateway, driver) = daemon.status();
            let split = gateway.engine.counters.flows_split;
            assert_eq!(split, n as u64 + 1, "{attach:?}: {gateway:?}");
            assert!(driver.ports.iter().any(|p| p.counters.super_segments_in > 10), "{driver:?}");
            let bad = driver.counters;
            assert_eq!((bad.writes_refused, bad.writes_lost, bad.route_errors), (0, 0, 0), "{bad:?}");
        }
        let counts = counted(&path.router);
        assert_eq!((counts[0], counts[3]), (0, 0), "{attach:?}: invalid, and refused: {counts:?}");
        assert_eq!(daemon.drain(), End::Drained);
        path.router.sh("nft flush ruleset; sysctl -qw net.ipv4.conf.all.rp_filter=0");
        assert_restored(&path.router, &before);
        transfer(&path, "10.2.0.1", 100_000);
    }
}

#[test]
fn connections_behind_masquerade_are_split_and_tracked_once() {
    if skipped("connections_behind_masquerade_are_split_and_tracked_once") || is_refused() {
        return;
    }
    for (attach, client) in [("left", "10.1.0.1"), ("right", "10.2.0.2")] {
        let path = Path::new();
        firewall(&path.router);
        path.router.sh("nft 'add table ip n; add chain ip n p { type nat hook postrouting priority 100; }; \
             add rule ip n p oifname right masquerade'");
        let tracked = || {
            let count = std::fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_count").unwrap();
            Ok(count.trim().parse::<u32>().unwrap())
        };
        let daemon = Daemon::start(&path.router, bumped(&[attach]));
        transfer(&path, "10.2.0.1", 5_000_000);
        let (answer, answered) = std::sync::mpsc::channel();
        daemon.ask(Box::new(move |a| {
            let now = a.now();
            answer.send(a.gateway().flows(now, 10)).unwrap();
        }));
        let flows = answered.recv().unwrap();
        let ends: Vec<String> = flows.iter().flat_map(|f| [f.a.to_string(), f.b.to_string()]).collect();
        assert!(ends.iter().any(|e| e.starts_with(client)), "{attach}: {ends:?}");
        assert_eq!(daemon.status().0.engine.counters.flows_split, 1, "{attach}");
        let entries = path.router.0.run(tracked).unwrap();
        assert_eq!(entries, 1, "{attach}: entries for one connection");
        let counts = counted(&path.router);
        assert_eq!((counts[0], counts[3]), (0, 0), "{attach}: invalid, and refused: {counts:?}");
        assert_eq!(daemon.drain(), End::Drained);
    }
}

#[test]
fn what_others_flush_and_set_does_not_touch_it() {
    if skipped("what_others_flush_and_set_does_not_touch_it") || is_refused() {
        return;
    }
    let path = Path::new();
    let daemon = Daemon::start(&path.router, bumped(&["right"]));
    let everything = [
        "nft flush ruleset",
        "for f in -4 -6; do ip $f rule flush; ip $f rule add pref 32766 lookup main; ip $f rule add pref 0 lookup local; done",
        "for f in all left right; do sysctl -qw net.ipv4.conf.$f.rp_filter=1; done",
        "for i in left right; do tc qdisc add dev $i clsact; tc qdisc del dev $i clsact; done",
        "for i in left right; do tc qdisc replace dev $i root pfifo; tc qdisc del dev $i root; done",
    ];
    for (n, line) in everything.into_iter().enumerate() {
        path.router.sh(line);
        for address in ["10.2.0.1", "fd02::1"] {
            transfer(&path, address, 200_000);
        }
        assert_eq!(daemon.status().0.engine.counters.flows_split, 2 * (n as u64 + 1), "after `{line}`");
    }
    assert_eq!(daemon.drain(), End::Drained);
}

/// Without tcx, as before Linux 6.6.
#[test]
fn older_kernels_have_bumps_by_filters() {
    for test in [
        "netfilter_sees_each_packet_once_with_its_true_interfaces",
        "connections_behind_masquerade_are_split_and_tracked_once",
        "connections_go_on_when_it_is_killed",
    ] {
        older_kernel(test);
    }
}

/// Not a test by itself: a daemon as a process of its own, to be killed.
#[test]
fn child_with_a_bump() {
    let Some(journal) = std::env::var_os("FARLINK_TEST_BUMP") else { return };
    let config = DriverConfig { journal: Some(journal.into()), ..bumped(&["right"]) };
    let driver = Driver::start(config).unwrap();
    farlink_linux::caps::keep_net_admin(true).unwrap();
    common::say("READY");
    driver.run(None, |_| {}).unwrap();
}

#[test]
fn connections_go_on_when_it_is_killed() {
    if skipped("connections_go_on_when_it_is_killed") || is_refused() {
        return;
    }
    use std::io::{Read, Write};
    let path = Path::new();
    firewall(&path.router);
    let is_there = || !path.router.sh("ip -o link | grep farlink || true").is_empty();
    let directory = std::env::temp_dir().join(format!("flb{}-killed", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let start = || {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command
            .args(["child_with_a_bump", "--exact", "--nocapture", "--test-threads=1"])
            .env("FARLINK_TEST_BUMP", directory.join("journal"))
            .stdout(std::process::Stdio::null())
            .stderr(std::fs::File::create(directory.join("log")).unwrap());
        let child = Running(path.router.0.exec(command).unwrap());
        let log = || std::fs::read_to_string(directory.join("log")).unwrap();
        eventually("it diverts", || log().contains("READY"));
        child
    };
    let mut child = start();
    let listener = path.server.0.run(|| Ok(std::net::TcpListener::bind("10.2.0.1:0").unwrap())).unwrap();
    let to = listener.local_addr().unwrap();
    let mut client = path.client.0.run(|| Ok(std::net::TcpStream::connect(to).unwrap())).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let mut talk = || {
        let mut got = [0u8; 1];
        client.write_all(b"?").unwrap();
        server.read_exact(&mut got).unwrap();
        server.write_all(b"!").unwrap();
        client.read_exact(&mut got).unwrap();
    };
    for round in 0..3 {
        // Nothing is in custody between two questions.
        (0..50).for_each(|_| talk());
        std::thread::sleep(std::time::Duration::from_millis(50));
        child.0.kill().unwrap();
        let killed = std::time::Instant::now();
        talk();
        common::say(&format!("round {round}: {} ms after the kill", killed.elapsed().as_millis()));
        (0..50).for_each(|_| talk());
        child.0.wait().unwrap();
        eventually("the device is gone", || !is_there());
        child = start();
    }
    (0..50).for_each(|_| talk());
    drop(child);
    let _ = std::fs::remove_dir_all(&directory);
}

#[test]
fn packets_of_all_kinds_are_met_as_they_came() {
    if skipped("packets_of_all_kinds_are_met_as_they_came") {
        return;
    }
    let selections: [(&[u8], Option<&str>); 3] = [(&[6], None), (&[6], Some("right")), (&[6, 254], None)];
    for (bumped, side) in [("left", Side::Wire), ("right", Side::Stack)] {
        for (protocols, whole) in selections {
            let path = Path::new();
            let both = ["left", "right"];
            let echo = Echo::start_with(&path.router, bumped, &both, (protocols, whole));
            let Some(echo) = echo else { return };
            eventually("the path is there", || datagram_arrives(&path.client, &path.server, "fd02::1"));
            echo.drain();
            for Kind { name, dst, packet, is_tcp } in kinds() {
                let is_xcp = protocols.contains(&254) && name.contains("XCP");
                let is_met = is_tcp || is_xcp || whole.is_some() && !NEVER.contains(&name);
                send_raw(&path.client, dst, &packet);
                let seen = echo.drain();
                // Answers of the server come from the other side.
                let ours: Vec<_> = seen.iter().filter(|(a, _)| a.from == side).collect();
                assert_eq!(ours.len(), usize::from(is_met), "{bumped}, {whole:?}: {name}");
                if let Some((_, bytes)) = ours.first() {
                    let kept = packet.len().min(80);
                    assert_eq!(without_hops(bytes), without_hops(&packet[..kept]), "{bumped}: {name}");
                }
            }
        }
    }
}

#[test]
fn refusals_reach_the_client_in_the_name_of_the_router() {
    if skipped("refusals_reach_the_client_in_the_name_of_the_router") || is_refused() {
        return;
    }
    for attach in ["left", "right"] {
        let path = Path::new();
        firewall(&path.router);
        let mut config = bumped(&[attach]);
        config.gateway.default_action = Action::Refuse;
        let own = path.router.0.run(farlink_linux::driver::OwnPackets::open).unwrap();
        config.own_packets = Some(Arc::new(own));
        let daemon = Daemon::start(&path.router, config);
        for address in ["10.2.0.1", "fd02::1"] {
            eventually("the path is there", || datagram_arrives_either_way(&path, address));
            let listener =
                path.server.0.run(|| Ok(std::net::TcpListener::bind((ip(address), 0)).unwrap())).unwrap();
            let to = listener.local_addr().unwrap();
            // Without a timeout: one that is woken late may find that the error has been told
            // already.
            let error = path.client.0.run(|| Ok(std::net::TcpStream::connect(to))).unwrap().unwrap_err();
            // ICMP: administratively prohibited.
            let expected = [Some(libc::EHOSTUNREACH), Some(libc::EACCES)];
            assert!(expected.contains(&error.raw_os_error()), "{attach}, {address}: {error}");
        }
        assert_eq!(daemon.status().1.counters.own_packets, 2);
        assert_eq!(daemon.drain(), End::Drained);
    }
}

/// Neighbours are known, and addresses usable.
fn datagram_arrives_either_way(path: &Path, address: &str) -> bool {
    let back = if address.contains(':') { "fd01::1" } else { "10.1.0.1" };
    datagram_arrives(&path.client, &path.server, address)
        && datagram_arrives(&path.server, &path.client, back)
}
