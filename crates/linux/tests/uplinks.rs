//! Two uplinks behind masquerade, chosen by mark and by port, while the network changes in ways
//! that have nothing to do with them; and an operator's classes by mark and by priority.

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::bpf::older_kernel;
use common::daemon::Daemon;
use common::{Host, eventually, ip, pattern, say, skipped};
use farlink_gateway::IfaceId;
use farlink_gateway::config::{Config, Interface, Link};
use farlink_linux::divert::{DivertConfig, Method};
use farlink_linux::driver::{DriverConfig, End};
use farlink_linux::netns::veth;

/// Goes by the first uplink, as all that no rule is about.
const PLAIN: u16 = 5001;
/// Is marked, and goes by the second one and into class 1:10 there.
const BY_MARK: u16 = 5002;
/// A rule about its port sends it by the second one; its priority names class 1:20.
const BY_PORT: u16 = 5003;
const PORTS: [u16; 3] = [PLAIN, BY_MARK, BY_PORT];
const SERVERS: [&str; 2] = ["10.9.0.1", "fd09::1"];
/// So much takes some seconds at the 8 Mbit/s of a class.
const BYTES: usize = 3_000_000;

/// client - router = far, over two uplinks of 8 Mbit/s in each class.
struct Uplinks {
    client: Host,
    router: Host,
    far: Host,
}

/// Routes, rules and marks of the router.
const RULES: &str = r#"ip route add default via 10.11.0.1; ip -6 route add default via fd11::1
ip route add default via 10.12.0.1 table 102; ip -6 route add default via fd12::1 table 102
for f in -4 -6; do
  ip $f rule add pref 100 fwmark 0x200/0xff00 lookup 102
  ip $f rule add pref 101 ipproto tcp dport 5003 lookup 102
done
nft -f - <<'END'
table inet m {
  chain before { type filter hook prerouting priority mangle; iifname lan tcp dport 5002 meta mark set 0x207; }
  chain behind { type filter hook postrouting priority mangle; oifname up2 tcp dport 5003 meta priority set "1:20"; }
}
table inet n {
  chain p { type nat hook postrouting priority srcnat; oifname { up1, up2 } masquerade; }
}
END"#;

/// A filter by mark, as `tc filter ... fw` is one: class 1:10 where the mark is 0x207.
const BY_MARK_FILTER: &str = "4,32 0 0 4294963220,21 0 1 519,6 0 0 65552,6 0 0 0";

/// What leaves by an uplink with the address of the other one, or to a port that the other one is
/// for.
const WRONG: &str = "nft -f - <<'END'
table inet c {
  chain p {
    type filter hook prerouting priority raw;
    iifname eth1 ip saddr 10.12.0.2 counter
    iifname eth2 ip saddr 10.11.0.2 counter
    iifname eth1 ip6 saddr fd12::2 counter
    iifname eth2 ip6 saddr fd11::2 counter
    iifname eth2 tcp dport 5001 counter
    iifname eth1 tcp dport { 5002, 5003 } counter
  }
}
END";

impl Uplinks {
    fn new() -> Self {
        let (client, router, far) = (Host::new("client"), Host::new("router"), Host::new("far"));
        veth(&client.0, "eth0", &router.0, "lan").unwrap();
        veth(&router.0, "up1", &far.0, "eth1").unwrap();
        veth(&router.0, "up2", &far.0, "eth2").unwrap();
        router.0.make_router().unwrap();
        for (host, interface, net, last) in [
            (&client, "eth0", 1, 1),
            (&router, "lan", 1, 2),
            (&router, "up1", 11, 2),
            (&far, "eth1", 11, 1),
            (&router, "up2", 12, 2),
            (&far, "eth2", 12, 1),
        ] {
            host.address(interface, &format!("10.{net}.0.{last}"), 24);
            host.address(interface, &format!("fd{net:02}::{last}"), 64);
        }
        client.default_via("10.1.0.2");
        client.default_via("fd01::2");
        far.sh("ip addr add 10.9.0.1/32 dev lo; ip -6 addr add fd09::1/128 dev lo nodad; ip link set lo up");
        far.sh(WRONG);
        router.sh(RULES);
        for uplink in ["up1", "up2"] {
            router.sh(&format!(
                "tc qdisc add dev {uplink} root handle 1: htb default 30
                 for class in 10 20 30; do
                   tc class add dev {uplink} parent 1: classid 1:$class htb rate 8mbit burst 70k cburst 70k
                 done
                 tc filter add dev {uplink} parent 1: protocol all bpf bytecode '{BY_MARK_FILTER}' flowid 1:10"
            ));
        }
        Self { client, router, far }
    }

    /// A gateway whose links are the uplinks.
    fn gateway(&self) -> Daemon {
        let interface = |(id, name, is_link): (u16, &str, bool)| Interface {
            id: IfaceId(id),
            name: name.to_owned(),
            domain: 0,
            addresses: Vec::new(),
            link: is_link.then(Link::default),
        };
        let interfaces = [(1, "up1", true), (2, "up2", true), (3, "lan", false)].map(interface);
        let gateway = Config { interfaces: interfaces.into(), ..Config::default() };
        let divert = DivertConfig { method: Method::Bump, ..DivertConfig::default() };
        Daemon::start(&self.router, DriverConfig { journal: None, divert, ..DriverConfig::new(gateway) })
    }

    /// Packets by the wrong uplink.
    fn wrong(&self) -> u64 {
        let text = self.far.sh("nft list chain inet c p");
        let words: Vec<&str> = text.split_whitespace().collect();
        words.windows(2).filter(|w| w[0] == "packets").map(|w| w[1].parse::<u64>().unwrap()).sum()
    }

    /// Bytes that have left by a class of the second uplink.
    fn class_bytes(&self, class: &str) -> u64 {
        let text = self.router.sh("tc -s class show dev up2");
        let behind = text.split_once(&format!("class htb {class} ")).unwrap().1;
        behind.split_once("Sent ").unwrap().1.split_whitespace().next().unwrap().parse().unwrap()
    }

    /// Sends a known pattern to a port and checks each byte of it there. How long it takes.
    fn upload(&self, server: &str, port: u16) -> Duration {
        let listener = self.far.0.run(|| Ok(TcpListener::bind((ip(server), port)).unwrap())).unwrap();
        let to = listener.local_addr().unwrap();
        let began = Instant::now();
        let sender = self.client.0.spawn(move || {
            let mut stream = TcpStream::connect(to).unwrap();
            let data: Vec<u8> = (0..BYTES).map(pattern).collect();
            stream.write_all(&data).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            // Until the other side has all of it.
            stream.set_read_timeout(Some(Duration::from_secs(40))).unwrap();
            assert_eq!(stream.read(&mut [0]).unwrap(), 0);
            Ok(())
        });
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut got = Vec::new();
        stream.read_to_end(&mut got).unwrap();
        let took = began.elapsed();
        drop(stream);
        sender.join().unwrap().unwrap();
        assert_eq!(got.len(), BYTES, "{server} {port}");
        assert!(got.iter().enumerate().all(|(i, b)| *b == pattern(i)), "{server} {port}: bytes differ");
        took
    }

    /// One upload to each port, at once. How long the last one takes.
    fn uploads(&self, server: &str) -> Duration {
        std::thread::scope(|scope| {
            let all = PORTS.map(|port| scope.spawn(move || self.upload(server, port)));
            all.into_iter().map(|one| one.join().unwrap()).max().unwrap()
        })
    }

    /// The same while an interface of others comes and goes every so often, with an address and a
    /// route.
    fn uploads_beside_events(&self, server: &str, every: Option<Duration>) -> Duration {
        let Some(every) = every else { return self.uploads(server) };
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    self.router.sh(
                        "ip link add ev0 type veth peer name ev1; ip addr add 192.0.2.1/24 dev ev0; ip link set ev0 up; \
                         ip route add 198.51.100.0/24 via 192.0.2.2; ip link del ev0",
                    );
                    sleep(every);
                }
            });
            let took = self.uploads(server);
            is_over.store(true, Ordering::Relaxed);
            took
        })
    }
}

fn is_refused() -> bool {
    farlink_linux::bump::Bump::load(&[6]).is_err_and(|e| e.is(libc::EPERM))
}

#[test]
fn connections_keep_their_uplink_whatever_else_changes() {
    if skipped("connections_keep_their_uplink_whatever_else_changes") || is_refused() {
        return;
    }
    let uplinks = Uplinks::new();
    for server in SERVERS {
        let alone = uplinks.uploads(server);
        say(&format!("{server}: {alone:?} without a gateway"));
    }
    assert_eq!(uplinks.wrong(), 0, "by the kernel alone");
    let every = [None, Some(250), Some(1000), Some(2000)].map(|ms| ms.map(Duration::from_millis));
    for (began_after, every) in [200, 1000, 5000, 200].map(Duration::from_millis).into_iter().zip(every) {
        let daemon = uplinks.gateway();
        sleep(began_after);
        for (n, server) in (1u64..).zip(SERVERS) {
            let took = uplinks.uploads_beside_events(server, every);
            say(&format!(
                "{server}: {took:?} with an event every {every:?}, begun {began_after:?} after the start"
            ));
            assert_eq!(uplinks.wrong(), 0, "{server}, {every:?}");
            let split = daemon.status().0.engine.counters.flows_split;
            assert_eq!(split, 3 * n, "{server}, {every:?}: all are split");
        }
        let counters = daemon.status().1.counters;
        assert_eq!((counters.marks_replaced, counters.writes_refused), (0, 0), "{counters:?}");
        assert_eq!(daemon.drain(), End::Drained);
    }
}

#[test]
fn an_operators_classes_get_what_is_theirs() {
    if skipped("an_operators_classes_get_what_is_theirs") || is_refused() {
        return;
    }
    let uplinks = Uplinks::new();
    let daemon = uplinks.gateway();
    let mut split = 0;
    for server in SERVERS {
        for (port, class) in [(BY_MARK, "1:10"), (BY_PORT, "1:20")] {
            let before = (uplinks.class_bytes(class), uplinks.class_bytes("1:30"));
            uplinks.upload(server, port);
            split += 1;
            let (theirs, others) =
                (uplinks.class_bytes(class) - before.0, uplinks.class_bytes("1:30") - before.1);
            say(&format!("{server} {port}: {theirs} bytes in class {class}, {others} in that of the rest"));
            assert!(theirs as usize > BYTES && others * 100 < theirs, "{server} {port}: {theirs}, {others}");
        }
    }
    assert_eq!(daemon.status().0.engine.counters.flows_split, split);
    assert_eq!(daemon.drain(), End::Drained);
}

/// The kernel's answers move what nobody's packets show: a client that has sent everything.
#[test]
fn what_is_sent_alone_follows_the_rules() {
    if skipped("what_is_sent_alone_follows_the_rules") || is_refused() {
        return;
    }
    for (port, moves) in [
        (BY_MARK, "ip $f rule del pref 100; ip $f rule add pref 100 fwmark 0x200/0xff00 lookup 103"),
        (BY_PORT, "ip $f rule del pref 101; ip $f rule add pref 101 ipproto tcp dport 5003 lookup 103"),
    ] {
        let uplinks = Uplinks::new();
        // Without translation: it may move.
        uplinks.router.sh("nft delete table inet n");
        uplinks.far.sh("ip route add 10.1.0.0/24 via 10.11.0.2; ip -6 route add fd01::/64 via fd11::2");
        uplinks.router.sh(
            "ip route add default via 10.11.0.1 table 103; ip -6 route add default via fd11::1 table 103",
        );
        let daemon = uplinks.gateway();
        for (server, flag) in SERVERS.into_iter().zip(["-4", "-6"]) {
            let (router, far) = (&uplinks.router, &uplinks.far);
            std::thread::scope(|scope| {
                let upload = scope.spawn(|| uplinks.upload(server, port));
                // The client has sent everything: 3 MB, of which the link takes 1 in a second.
                sleep(Duration::from_millis(1000));
                router.sh(&format!("f={flag}; {moves}"));
                far.sh("nft add table inet d; nft add chain inet d p '{ type filter hook prerouting priority raw; }'");
                far.sh(&format!("nft add rule inet d p iifname eth1 tcp dport {port} counter"));
                eventually("it leaves by the first uplink", || {
                    let text = far.sh("nft list chain inet d p");
                    !text.contains("packets 0 ")
                });
                upload.join().unwrap();
            });
            far.sh("nft delete table inet d");
        }
        assert_eq!(daemon.drain(), End::Drained);
    }
}

/// Without tcx, as before Linux 6.6.
#[test]
fn older_kernels_keep_marks_and_priorities() {
    older_kernel("an_operators_classes_get_what_is_theirs");
}
