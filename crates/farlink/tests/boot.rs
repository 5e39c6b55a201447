//! Interfaces and a daemon that come in any order: what passes is split, and no restart is needed.
//! In network namespaces, as root.

mod bed;
#[path = "bed/boots.rs"]
mod boots;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use bed::{Bed, is_missing, says, skipped, text};
use boots::by_both_methods;
use farlink_linux::event_loop::{Interest, Poller, Waker};
use farlink_linux::netns::{Namespace, veth};
use farlink_linux::tun::{ReadOutcome, Tun, TunConfig};
use farlink_wire::Pool;
use serde_json::Value;

const NAMES: &str =
    "[[interface]]\nname = \"to-client\"\n[[link]]\ninterface = \"to-server\"\nrate = \"500 Mbit/s\"\n";

#[test]
fn interfaces_are_there_before_the_daemon_and_come_back() {
    by_both_methods("interfaces_are_there_before_the_daemon_and_come_back", |method| {
        let bed = Bed::new("before");
        let before = bed.own();
        let daemon = bed.boot(method, NAMES);
        bed.splits("from the start");
        // The link's interface goes, and comes back as another one.
        bed.in_gateway("ip link del to-server");
        bed.eventually("it is awaited", || bed.state_of("to-server") == Some((false, false)));
        assert!(bed.log().contains("it is waited for"), "{}", bed.log());
        assert!(text(&bed.ask(&["status"])).contains("awaited"), "{}", text(&bed.ask(&["status"])));
        let metrics = text(&bed.ask(&["status", "--prometheus"]));
        assert!(metrics.contains("farlink_interface_present{interface=\"to-server\"} 0\n"), "{metrics}");
        bed.wire_server("to-server");
        bed.splits("the link is back");
        // The hosts' interface, too.
        bed.in_gateway("ip link del to-client");
        bed.wire_client("to-client");
        bed.splits("the hosts' interface is back");
        // In another namespace for a while. It loses its addresses there.
        let elsewhere = bed.server.name().to_owned();
        bed.in_gateway(&format!("ip link set to-client netns {elsewhere}"));
        bed.eventually("it is awaited", || bed.state_of("to-client") == Some((false, false)));
        let back = format!("ip link set to-client netns {}", bed.gateway.name());
        assert!(bed.server.command("sh").args(["-c", &back]).status().unwrap().success());
        bed.in_gateway("ip addr add 10.73.1.1/24 dev to-client; ip link set to-client up");
        bed.splits("it is here again");
        bed.ends(daemon, &before);
    });
}

#[test]
fn interfaces_come_after_the_daemon() {
    by_both_methods("interfaces_come_after_the_daemon", |method| {
        for configuration in [NAMES, "[[interface]]\nname = \"*\"\n", "[[interface]]\nname = \"to-*\"\n", ""]
        {
            let bed = Bed::without_interfaces("after");
            let before = bed.own();
            let daemon = bed.boot(method, configuration);
            bed.eventually("it waits", || bed.log().contains("no interface is there yet"));
            assert!(
                text(&bed.ask(&["status"])).contains("WAITING: no interface"),
                "{}",
                text(&bed.ask(&["status"]))
            );
            let check = bed.ask(&["check", "--seconds", "1", "--json"]);
            assert!(
                text(&check).contains("\"no-interface\"") && check.status.code() == Some(1),
                "{}",
                text(&check)
            );
            bed.wire_server("to-server");
            bed.wire_client("to-client");
            bed.splits(&format!("{configuration:?}"));
            assert!(bed.log().contains("the interface is there"), "{}", bed.log());
            bed.ends(daemon, &before);
        }
    });
}

#[test]
fn interfaces_are_renamed_into_place_and_away() {
    by_both_methods("interfaces_are_renamed_into_place_and_away", |method| {
        let bed = Bed::without_interfaces("renamed");
        let before = bed.own();
        bed.wire_client("eth0");
        bed.wire_server("eth1");
        let daemon = bed.boot(method, NAMES);
        bed.transfer().unwrap();
        assert_eq!(bed.count("/engine/counters/flows_split"), 0, "nobody has named these");
        bed.in_gateway("ip link set eth0 name to-client; ip link set eth1 name to-server");
        bed.splits("as udev does");
        // What it was it stays under another name.
        bed.in_gateway("ip link set to-server name sat9");
        bed.eventually("it is followed", || bed.log().contains("it is followed until"));
        bed.splits("under another name");
        assert!(text(&bed.ask(&["status"])).contains("up, as sat9"), "{}", text(&bed.ask(&["status"])));
        // Until another one has its name: the two change places.
        bed.in_gateway("ip link set to-client name swap; ip link set sat9 name to-client; ip link set swap name to-server");
        bed.eventually("the link is at the other one", || {
            let status = bed.status();
            status["interfaces"].as_array().unwrap().iter().all(|i| i["name"] == i["called"])
        });
        bed.splits("in each other's place");
        bed.ends(daemon, &before);
    });
}

#[test]
fn an_interface_becomes_a_port_of_a_bridge() {
    by_both_methods("an_interface_becomes_a_port_of_a_bridge", |method| {
        let bed = Bed::new("bridge");
        let before = bed.own();
        let daemon = bed.boot(method, "[[interface]]\nname = \"*\"\n[[link]]\ninterface = \"to-server\"\n");
        bed.splits("as it is");
        assert_eq!(bed.state_of("to-client"), Some((true, true)));
        bed.in_gateway(
            "ip link add br0 type bridge; ip addr flush dev to-client; ip link set to-client master br0; \
             ip addr add 10.73.1.1/24 dev br0; ip link set br0 up",
        );
        bed.splits("the bridge is the interface");
        assert_eq!((bed.state_of("to-client"), bed.state_of("br0")), (None, Some((true, true))));
        assert!(bed.log().contains("is a port of a bridge or a bond now"), "{}", bed.log());
        bed.in_gateway(
            "ip link set to-client nomaster; ip addr flush dev br0; ip addr add 10.73.1.1/24 dev to-client; ip link del br0",
        );
        bed.splits("it stands alone again");
        bed.ends(daemon, &before);
    });
}

#[test]
fn a_vlan_comes_later() {
    let test = "a_vlan_comes_later";
    by_both_methods(test, |method| {
        let bed = Bed::without_interfaces("vlan");
        let before = bed.own();
        bed.wire_client("to-client");
        veth(&bed.gateway, "port", &bed.server, "port").unwrap();
        let daemon = bed.boot(method, NAMES);
        let vlan = |at: &Namespace, name: &str| {
            let line = format!("ip link add link port name {name} type vlan id 7 && ip link set {name} up");
            at.command("sh").args(["-c", &line]).output().unwrap().status.success()
        };
        if !vlan(&bed.server, "lan") || !vlan(&bed.gateway, "to-server") {
            says(test, "this kernel has no VLANs");
        } else {
            bed.address_server("to-server");
            bed.splits("by a VLAN");
        }
        bed.ends(daemon, &before);
    });
}

/// Two interfaces without Ethernet headers with a wire between them, as a tunnel in user space
/// makes them.
struct PlainWire {
    stop: Arc<Waker>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl PlainWire {
    fn new(ends: [(&Namespace, &str); 2]) -> Self {
        let made = ends.map(|(at, name)| at.run(|| Tun::create(&TunConfig::new(name))).unwrap());
        let stop = Arc::new(Waker::new().unwrap());
        let until = Arc::clone(&stop);
        Self { stop, thread: Some(std::thread::spawn(move || carry(made, &until))) }
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
    poller.add(stop, 2, Interest::Read).unwrap();
    for (tun, n) in ends.iter().zip(0..) {
        poller.add(tun, n, Interest::Read).unwrap();
    }
    loop {
        let ready = poller.wait(None).unwrap().to_vec();
        for one in ready {
            let Some(n) = usize::try_from(one.token).ok().filter(|n| *n < 2) else { return };
            while let Ok(ReadOutcome::Packet(packet)) = ends[n].read(&mut pool) {
                let _ = ends[1 - n].write(&packet.offload, packet.bytes(), &[]);
                packet.recycle(&mut pool);
            }
        }
    }
}

#[test]
fn a_tunnel_without_ethernet_headers_comes_later() {
    by_both_methods("a_tunnel_without_ethernet_headers_comes_later", |method| {
        let bed = Bed::without_interfaces("tunnel");
        let before = bed.own();
        bed.wire_client("to-client");
        let daemon = bed.boot(method, NAMES);
        for _ in 0..2 {
            let wire = PlainWire::new([(&bed.gateway, "to-server"), (&bed.server, "lan")]);
            bed.address_server("to-server");
            bed.in_gateway("ip link set to-server mtu 1420");
            bed.splits("by a tunnel");
            drop(wire);
            bed.eventually("it is awaited", || bed.state_of("to-server") == Some((false, false)));
        }
        bed.ends(daemon, &before);
    });
}

/// WireGuard in user space between router and server, over a wire that is not diverted.
#[test]
fn a_wireguard_tunnel_comes_later() {
    let test = "a_wireguard_tunnel_comes_later";
    if is_missing(test, "wireguard-go", "--version") || is_missing(test, "wg", "--version") {
        return;
    }
    by_both_methods(test, |method| {
        let bed = Bed::without_interfaces("wg");
        let before = bed.own();
        bed.wire_client("to-client");
        veth(&bed.gateway, "under", &bed.server, "under").unwrap();
        let daemon = bed.boot(method, NAMES);
        let keys: Vec<(String, String)> = (0..2)
            .map(|_| {
                let output =
                    Command::new("sh").args(["-c", "k=$(wg genkey); echo $k; echo $k | wg pubkey"]).output();
                let text = String::from_utf8(output.unwrap().stdout).unwrap();
                let (private, public) = text.trim().split_once('\n').unwrap();
                (private.to_owned(), public.to_owned())
            })
            .collect();
        let mut tunnels = Vec::new();
        for (n, (at, name)) in [(&bed.gateway, "to-server"), (&bed.server, "lan")].into_iter().enumerate() {
            let (own, peer) = (n + 1, 2 - n);
            let mut command = at.command("wireguard-go");
            tunnels.push(command.args(["-f", name]).stderr(std::process::Stdio::null()).spawn().unwrap());
            let script = format!(
                "ip addr add 10.74.0.{own}/24 dev under; echo {} > {}/key{n}; \
                 until ip link show {name} >/dev/null 2>&1 && wg set {name} listen-port 5182{n} private-key {}/key{n} \
                 peer {} allowed-ips 0.0.0.0/0 endpoint 10.74.0.{peer}:5182{}; do sleep 0.05; done; ip link set {name} up",
                keys[n].0,
                bed.directory.display(),
                bed.directory.display(),
                keys[1 - n].1,
                1 - n
            );
            let output = at.command("timeout").args(["10", "sh", "-c", &script]).output().unwrap();
            assert!(output.status.success(), "{}", text(&output));
        }
        bed.address_server("to-server");
        bed.splits("by WireGuard");
        for tunnel in &mut tunnels {
            tunnel.kill().unwrap();
            tunnel.wait().unwrap();
        }
        bed.ends(daemon, &before);
        let _ = std::fs::remove_file("/var/run/wireguard/to-server.sock");
        let _ = std::fs::remove_file("/var/run/wireguard/lan.sock");
    });
}

#[test]
fn interfaces_are_found_by_pattern_group_and_forwarding() {
    by_both_methods("interfaces_are_found_by_pattern_group_and_forwarding", |method| {
        let bed = Bed::new("found");
        let before = bed.own();
        let group = "[[interface]]\nname = \"to-cl*\"\n[[interface]]\ngroup = 7\n\
                     [[rule]]\nname = \"far\"\ninterfaces = [\"to-cl*\"]\nports = [9]\naction = \"pass\"\n";
        let mut daemon = bed.boot(method, group);
        assert_eq!((bed.state_of("to-client"), bed.state_of("to-server")), (Some((true, true)), None));
        bed.in_gateway("ip link set to-server group 7");
        bed.splits("it is in the group");
        // The rule knows what the pattern has found.
        let refused = bed.client.run(|| Ok(TcpStream::connect("10.73.2.2:9"))).unwrap();
        assert!(refused.is_err(), "nobody listens there");
        assert_eq!(bed.count("/engine/rules/0/connections"), 1, "{}", bed.status()["engine"]["rules"]);
        // One that is killed leaves nothing in the way of the next.
        daemon.kill().unwrap();
        daemon.wait().unwrap();
        bed.transfer().unwrap();
        daemon = bed.boot(method, group);
        bed.splits("by the next process");
        bed.in_gateway("ip link set to-server group 0");
        bed.eventually("it is let go", || bed.state_of("to-server").is_none());
        bed.transfer().unwrap();
        bed.in_gateway("ip link set to-client name to-cl9; ip link set to-server group 7");
        bed.splits("it is called otherwise, as the pattern says");
        assert_eq!((bed.state_of("to-client"), bed.state_of("to-cl9")), (None, Some((true, true))));
        bed.in_gateway("ip link set to-cl9 name to-client; ip link set to-server group 0");
        bed.eventually("it is let go", || bed.state_of("to-server").is_none());
        // All that forward.
        bed.gateway.sysctl("ipv4.conf.to-server.forwarding", "0").unwrap();
        bed.gateway.sysctl("ipv6.conf.to-server.forwarding", "0").unwrap();
        bed.configure("[[interface]]\nname = \"*\"\n");
        let said = text(&bed.ask(&["reload"]));
        assert!(said.contains("holds now: rules, interfaces by pattern, group or all"), "{said}");
        // What was known of forwarding may be some milliseconds old.
        bed.eventually("it does not forward", || {
            (bed.state_of("to-client"), bed.state_of("to-server")) == (Some((true, true)), None)
        });
        bed.gateway.sysctl("ipv4.conf.to-server.forwarding", "1").unwrap();
        bed.splits("it forwards");
        bed.in_gateway("ip link set to-server down");
        bed.eventually("it is down", || bed.state_of("to-server") == Some((true, false)));
        bed.in_gateway("ip link set to-server up");
        bed.splits("it is up again");
        bed.ends(daemon, &before);
    });
}

#[test]
fn connections_that_begin_while_an_interface_is_taken_out_are_whole() {
    by_both_methods("connections_that_begin_while_an_interface_is_taken_out_are_whole", |method| {
        let bed = Bed::new("out");
        let before = bed.own();
        let daemon = bed.boot(method, "[[interface]]\nname = \"to-client\"\n[[interface]]\ngroup = 7\n");
        std::thread::scope(|scope| {
            let changing = scope.spawn(|| {
                for _ in 0..6 {
                    let split = bed.count("/engine/counters/flows_split");
                    bed.in_gateway("ip link set to-server group 7");
                    bed.eventually("some are split", || bed.count("/engine/counters/flows_split") > split);
                    bed.in_gateway("ip link set to-server group 0");
                    bed.eventually("it is let go", || bed.state_of("to-server").is_none());
                }
            });
            while !changing.is_finished() {
                bed.transfer().unwrap();
            }
        });
        bed.ends(daemon, &before);
    });
}

#[test]
fn others_come_and_go_and_nobody_notices() {
    by_both_methods("others_come_and_go_and_nobody_notices", |method| {
        let bed = Bed::new("others");
        let before = bed.own();
        let daemon = bed.boot(method, &format!("{NAMES}[[interface]]\nname = \"ex*\"\n"));
        bed.splits("at first");
        let listener = bed.server.run(|| Ok(TcpListener::bind("10.73.2.2:0").unwrap())).unwrap();
        let to = listener.local_addr().unwrap();
        let mut here = bed.client.run(|| Ok(TcpStream::connect(to).unwrap())).unwrap();
        let (mut there, _) = listener.accept().unwrap();
        let losses = || ["rtos", "recoveries"].map(|what| bed.count(&format!("/engine/counters/{what}")));
        let before_it = losses();
        let flap = "for n in 1 2 3 4 5; do ip link add ex0 type veth peer name ex1; ip link set ex0 up; ip link set ex1 up; \
                    sleep 0.1; ip link set ex1 name ex2; sleep 0.1; ip link del ex0; done";
        std::thread::scope(|scope| {
            let flapping = scope.spawn(|| bed.in_gateway(flap));
            while !flapping.is_finished() {
                here.write_all(&[7; 50_000]).unwrap();
                there.read_exact(&mut [0; 50_000]).unwrap();
                there.write_all(&[8; 1000]).unwrap();
                here.read_exact(&mut [0; 1000]).unwrap();
            }
        });
        assert!(bed.log().matches("the interface is there").count() >= 10, "{}", bed.log());
        assert_eq!(losses(), before_it, "nothing was lost");
        assert_eq!(bed.count("/engine/flows_split"), 1);
        bed.ends(daemon, &before);
    });
}

#[test]
fn a_reload_adds_and_takes_out_interfaces_and_links() {
    by_both_methods("a_reload_adds_and_takes_out_interfaces_and_links", |method| {
        let bed = Bed::new("reload");
        let before = bed.own();
        let daemon = bed.boot(method, "[[interface]]\nname = \"to-client\"\n");
        let reload = |configuration: &str| {
            bed.configure(configuration);
            text(&bed.ask(&["reload"]))
        };
        bed.transfer().unwrap();
        assert_eq!(bed.count("/engine/counters/flows_split"), 0);
        assert_eq!(reload(NAMES), "holds now: link at to-server\n");
        bed.splits("the link was added");
        assert_eq!(bed.count("/links/0/rate_bps"), 500_000_000);
        // A connection that is open while its link is taken out, and put in again as no link.
        let listener = bed.server.run(|| Ok(TcpListener::bind("10.73.2.2:0").unwrap())).unwrap();
        let to = listener.local_addr().unwrap();
        let mut here = bed.client.run(|| Ok(TcpStream::connect(to).unwrap())).unwrap();
        let (mut there, _) = listener.accept().unwrap();
        let mut talk = |what: &str| {
            for _ in 0..20 {
                here.write_all(&[7; 20_000]).unwrap();
                there.read_exact(&mut [0; 20_000]).unwrap_or_else(|e| panic!("{what}: {e}"));
                there.write_all(&[8; 1000]).unwrap();
                here.read_exact(&mut [0; 1000]).unwrap_or_else(|e| panic!("{what}: {e}"));
            }
        };
        talk("at first");
        let said = reload("[[interface]]\nname = \"to-client\"\n");
        assert_eq!(said, "holds now: link at to-server is let go\n");
        talk("while it leaves");
        let split = bed.count("/engine/counters/flows_split");
        bed.transfer().unwrap();
        assert_eq!(bed.count("/engine/counters/flows_split"), split, "nothing new is split");
        let plain = "[[interface]]\nname = \"to-client\"\n[[interface]]\nname = \"to-server\"\n";
        assert_eq!(reload(plain), "holds now: interface to-server\n");
        bed.splits("it is no link now");
        talk("by an ordinary interface");
        bed.eventually("there is no link", || bed.status()["links"].as_array().unwrap().is_empty());
        assert_eq!(reload(NAMES), "holds now: link at to-server, interface to-server is let go\n");
        bed.splits("and a link again");
        talk("by the link");
        assert_eq!(bed.count("/engine/flows_split"), 1, "it is split all the while");
        // A wrong one changes nothing.
        let wrong = reload("[[interface]]\nname = \"to-client\"\n[[interface]]\nname = \"to client\"\n");
        assert!(wrong.contains("cannot be the name of an interface"), "{wrong}");
        bed.splits("as before");
        if method == "bump" {
            let devices = || {
                let status = bed.status();
                let of = |i: &Value| i["device"] != "";
                status["interfaces"].as_array().unwrap().iter().map(of).collect::<Vec<_>>()
            };
            assert_eq!(devices(), [true, true], "{}", bed.status());
            assert_eq!(
                reload(&NAMES.replacen('\n', "\nattach = true\n", 1)),
                "holds now: send_ahead, attach\n"
            );
            assert_eq!(devices(), [true, false], "{}", bed.status());
            bed.splits("only the hosts' interface has a bump");
            talk("by one bump");
            assert_eq!(reload(NAMES), "holds now: send_ahead, attach\n");
            bed.splits("both have one again");
            talk("by two bumps");
        }
        drop((here, there));
        // Taken out for good, it goes when nothing is split any more that passes it.
        reload("[[interface]]\nname = \"to-client\"\n");
        bed.eventually("it is gone", || bed.state_of("to-server").is_none());
        bed.ends(daemon, &before);
    });
}

#[test]
fn a_reload_changes_what_of_the_traffic_is_taken() {
    by_both_methods("a_reload_changes_what_of_the_traffic_is_taken", |method| {
        let bed = Bed::new("taken");
        let before = bed.own();
        let daemon = bed.boot(method, NAMES);
        let is_taken = |what: &str, wanted: bool| bed.takes_datagrams(what, wanted);
        is_taken("a link with a rate has everything", true);
        let tcp = format!("{NAMES}traffic = \"tcp\"\n");
        for round in 0..2 {
            bed.configure(&tcp);
            assert_eq!(text(&bed.ask(&["reload"])), "holds now: link.to-server.traffic\n");
            is_taken("it takes the ordinary way", false);
            bed.splits(&format!("TCP, round {round}"));
            bed.configure(NAMES);
            assert_eq!(text(&bed.ask(&["reload"])), "holds now: link.to-server.traffic\n");
            is_taken("it passes the queue again", true);
            bed.splits(&format!("TCP and all else, round {round}"));
        }
        bed.ends(daemon, &before);
    });
}

#[test]
fn everything_is_taken_once_the_rate_of_a_link_is_known() {
    by_both_methods("everything_is_taken_once_the_rate_of_a_link_is_known", |method| {
        let bed = Bed::new("known");
        let before = bed.own();
        let nobody_knows = NAMES.replace("rate = \"500 Mbit/s\"\n", "");
        let daemon = bed.boot(method, &nobody_knows);
        bed.splits("while nobody knows the rate");
        bed.takes_datagrams("a link of unknown rate has TCP alone", false);
        let set = |rate: &str| assert!(bed.ask(&["set", "link.to-server.rate", rate]).status.success());
        set("500 Mbit/s");
        bed.takes_datagrams("a link of known rate has everything", true);
        assert!(bed.log().contains("the rate of the link is known"), "{}", bed.log());
        // What an operator has said holds beyond a reload of the same file, and this by it.
        assert_eq!(text(&bed.ask(&["reload"])), "nothing differs\n");
        bed.takes_datagrams("nothing has changed", true);
        bed.splits("TCP and all else");
        set("unknown");
        bed.takes_datagrams("what has begun stays so", true);
        assert_eq!(text(&bed.ask(&["reload"])), "nothing differs\n");
        bed.takes_datagrams("and beyond a reload", true);
        let tcp = format!("{nobody_knows}traffic = \"tcp\"\n");
        for (file, wanted) in [(&tcp, false), (&nobody_knows, false), (&NAMES.to_owned(), true)] {
            bed.configure(file);
            assert!(bed.ask(&["reload"]).status.success());
            bed.takes_datagrams(file, wanted);
        }
        bed.ends(daemon, &before);
    });
}

/// A firewall that refuses TCP by Farlink's devices refuses the rest there, too. So that is not
/// even tried.
#[test]
fn a_reload_takes_nothing_that_a_firewall_would_refuse() {
    const NAME: &str = "a_reload_takes_nothing_that_a_firewall_would_refuse";
    if skipped(NAME) || is_missing(NAME, "nft", "--version") {
        return;
    }
    let bed = Bed::new("refused");
    let before = bed.own();
    bed.in_gateway(
        "nft 'table inet fw { chain c { type filter hook forward priority 0; ct state established accept; \
         iifname to-client oifname to-server accept; reject; }; }'",
    );
    let tcp = format!("{NAMES}traffic = \"tcp\"\n");
    let daemon = bed.boot("policy", &tcp);
    let at = |place: &str| bed.status().pointer(place).cloned().unwrap_or_default();
    bed.eventually("it is foreseen", || at("/diversion/ipv4") == false);
    let to = bed.server.run(|| Ok(UdpSocket::bind("10.73.2.2:0").unwrap())).unwrap();
    let from = bed.client.run(|| Ok(UdpSocket::bind("0.0.0.0:0").unwrap())).unwrap();
    from.connect(to.local_addr().unwrap()).unwrap();
    to.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    bed.configure(NAMES);
    assert_eq!(text(&bed.ask(&["reload"])), "holds now: link.to-server.traffic\n");
    let mut buffer = [0; 8];
    for n in 0..30 {
        from.send(b"here").unwrap_or_else(|error| panic!("datagram {n} was refused: {error}"));
        assert_eq!(to.recv(&mut buffer).unwrap_or_default(), 4, "datagram {n} is lost");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(at("/diversion/everything"), false);
    assert_eq!(at("/diversion/ends"), 0, "{}", bed.log());
    // The firewall goes: both are diverted.
    bed.in_gateway("nft delete table inet fw");
    bed.splits("TCP is diverted");
    bed.eventually("all else is", || {
        let seen = bed.count("/traffic/packets_other");
        from.send(b"here").unwrap();
        std::thread::sleep(Duration::from_millis(50));
        bed.count("/traffic/packets_other") > seen
    });
    bed.ends(daemon, &before);
}

/// Whether diversion would work is tried with new connections: what is open is left alone. This
/// firewall cannot be seen through from its rules.
#[test]
fn a_trial_leaves_open_connections_alone() {
    const NAME: &str = "a_trial_leaves_open_connections_alone";
    if skipped(NAME) || is_missing(NAME, "nft", "--version") || is_missing(NAME, "ss", "-V") {
        return;
    }
    let bed = Bed::new("trial");
    let before = bed.own();
    bed.in_gateway(
        "nft 'table inet fw { chain c { type filter hook forward priority 0; policy drop; ip dscp 0x3f accept; \
         iifname to-client oifname to-server accept; iifname to-server oifname to-client accept; }; }'",
    );
    let daemon = bed.boot("policy", &format!("{NAMES}traffic = \"tcp\"\n"));
    let at = |place: &str| bed.status().pointer(place).cloned().unwrap_or_default();
    bed.eventually("it is let go", || {
        let _ = bed.transfer();
        at("/diversion/ipv4") == false
    });
    let listener = bed.server.run(|| Ok(TcpListener::bind("10.73.2.2:0").unwrap())).unwrap();
    let to = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        std::io::copy(&mut stream.try_clone().unwrap(), &mut stream).unwrap();
    });
    let mut open = bed.client.run(|| Ok(TcpStream::connect(to).unwrap())).unwrap();
    let port = open.local_addr().unwrap().port();
    let mut speak = || {
        let mut heard = [0; 4];
        open.write_all(b"here").unwrap();
        open.read_exact(&mut heard).unwrap();
    };
    speak();
    // A change of the firewall brings a trial.
    let ends = at("/diversion/ends").as_u64().unwrap();
    bed.in_gateway("nft add table inet another");
    std::thread::scope(|scope| {
        let connects = scope.spawn(|| {
            bed.eventually("it was tried", || {
                let _ = bed.transfer();
                at("/diversion/ends").as_u64().unwrap() > ends
            });
        });
        while !connects.is_finished() {
            speak();
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let filter = format!("sport = :{port}");
    let sockets =
        bed.client.run(|| Ok(Command::new("ss").args(["-tinOH", &filter]).output().unwrap())).unwrap();
    let said = text(&sockets);
    assert!(said.contains("rtt:") && !said.contains("retrans:"), "something was lost: {said}");
    drop(open);
    server.join().unwrap();
    bed.in_gateway("nft 'delete table inet fw; delete table inet another'");
    bed.eventually("connections are split", || {
        let split = bed.count("/engine/counters/flows_split");
        bed.transfer().is_ok() && bed.count("/engine/counters/flows_split") > split
    });
    bed.ends(daemon, &before);
}
