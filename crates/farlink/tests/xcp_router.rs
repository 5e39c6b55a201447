//! `farlink xcp-router` in network namespaces: everything that leaves by the link passes through
//! its queue, it costs no hop, and without it packets go on. As root.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use farlink_linux::netns::{Namespace, veth};
use serde_json::Value;

const FARLINK: &str = env!("CARGO_BIN_EXE_farlink");
const PATIENCE: Duration = Duration::from_secs(20);
const RATE_BPS: u64 = 8_000_000;
const CLIENT: &str = "10.73.1.2";
const SERVERS: [&str; 2] = ["10.73.2.2", "fd73:2::2"];
/// Hops that a packet may make to get to the server: it comes there with one left.
const HOPS: u32 = 2;

/// Says why the test cannot run here, and returns true then.
fn skipped(test: &str) -> bool {
    let may_run = farlink_linux::caps::can_administer() && std::fs::File::open("/dev/net/tun").is_ok();
    let has_nft = Command::new("nft").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !may_run || !has_nft {
        let _ = writeln!(std::io::stderr(), "SKIPPED {test}: it takes root, /dev/net/tun and nft");
    }
    !may_run || !has_nft
}

/// client - router - server; the link is the router's interface towards the server.
struct Bed {
    client: Namespace,
    router: Namespace,
    server: Namespace,
    directory: PathBuf,
}

impl Bed {
    fn new() -> Self {
        let name = |who: &str| format!("flx{}-{who}", std::process::id());
        let make = |who: &str| Namespace::create(&name(who)).unwrap();
        let (client, router, server) = (make("c"), make("r"), make("s"));
        veth(&client, "lan", &router, "near").unwrap();
        veth(&router, "sat", &server, "lan").unwrap();
        router.make_router().unwrap();
        for (at, interface, net, last) in
            [(&client, "lan", 1, 2), (&router, "near", 1, 1), (&router, "sat", 2, 1), (&server, "lan", 2, 2)]
        {
            at.address_add(interface, format!("10.73.{net}.{last}").parse().unwrap(), 24).unwrap();
            at.address_add(interface, format!("fd73:{net}::{last}").parse().unwrap(), 64).unwrap();
        }
        for (at, net) in [(&client, 1), (&server, 2)] {
            at.route_add(None, format!("10.73.{net}.1").parse().unwrap()).unwrap();
            at.route_add(None, format!("fd73:{net}::1").parse().unwrap()).unwrap();
        }
        let directory = std::env::temp_dir().join(name("d"));
        std::fs::create_dir_all(&directory).unwrap();
        Self { client, router, server, directory }
    }

    fn socket(&self) -> String {
        self.directory.join("farlink.sock").to_str().unwrap().to_owned()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    fn start(&self) -> Running {
        let log = std::fs::File::create(self.directory.join("log")).unwrap();
        let mut command = self.router.command(FARLINK);
        command.args(["xcp-router", "--in", "near", "--out", "sat", "--rate", &format!("{RATE_BPS} bit/s")]);
        command.args(["--xcp-weight", "3", "--socket", &self.socket()]).stderr(log);
        let running = Running(command.spawn().unwrap());
        self.eventually("the router answers", || self.ask(&["status"]).is_some());
        running
    }

    fn ask(&self, words: &[&str]) -> Option<String> {
        let mut command = self.router.command(FARLINK);
        let output = command.args(words).args(["--socket", &self.socket()]).output().unwrap();
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn status(&self) -> Value {
        serde_json::from_str(&self.ask(&["status", "--json"]).unwrap()).unwrap()
    }

    /// What the status says of the link, and how many packets came that are no TCP.
    fn link(&self) -> (Value, u64) {
        let status = self.status();
        let links = status["links"].as_array().unwrap();
        let link = links.iter().find(|l| l["interface"] == "sat").unwrap().clone();
        (link, status["traffic"]["packets_other"].as_u64().unwrap())
    }

    fn eventually(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let end = Instant::now() + PATIENCE;
        while !is_so() {
            assert!(Instant::now() < end, "{what}: not so\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sockets of client and server between which datagrams go.
    fn datagrams(&self, server: &str) -> (UdpSocket, UdpSocket) {
        let address: IpAddr = server.parse().unwrap();
        let to = self.server.run(|| Ok(UdpSocket::bind((address, 0)).unwrap())).unwrap();
        let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let from = self.client.run(|| Ok(UdpSocket::bind(any).unwrap())).unwrap();
        from.connect(to.local_addr().unwrap()).unwrap();
        to.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        (from, to)
    }

    /// A connection whose server sends back what it gets.
    fn echo(&self, server: &str) -> TcpStream {
        let address: IpAddr = server.parse().unwrap();
        let listener = self.server.run(|| Ok(TcpListener::bind((address, 0)).unwrap())).unwrap();
        let to = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut buffer = [0; 4096];
            while let Ok(n) = stream.read(&mut buffer) {
                if n == 0 || stream.write_all(&buffer[..n]).is_err() {
                    break;
                }
            }
        });
        let stream = self.client.run(|| Ok(TcpStream::connect(to).unwrap())).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// How many hops a datagram may make so that it arrives.
    fn hops(&self) -> u32 {
        let (from, to) = self.datagrams(SERVERS[0]);
        let mut buffer = [0; 8];
        let arrives = |ttl: &u32| {
            from.set_ttl(*ttl).unwrap();
            // Of one that did not arrive an ICMP error has come since, which is told with the next.
            let _ = from.send(b"here");
            let _ = from.send(b"here");
            to.recv(&mut buffer).is_ok()
        };
        (1..5).find(arrives).unwrap()
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        for namespace in [&self.client, &self.router, &self.server] {
            for pid in namespace.pids() {
                if let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) {
                    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                }
            }
            let _ = namespace.delete();
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

struct Running(Child);

impl Running {
    /// Without a word to it.
    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What is said comes back.
fn answers(stream: &mut TcpStream) {
    let mut buffer = [0; 4];
    stream.write_all(b"here").unwrap();
    stream.read_exact(&mut buffer).unwrap();
    assert_eq!(&buffer, b"here");
}

#[test]
fn all_that_leaves_passes_its_queue_costs_no_hop_and_goes_on_without_it() {
    if skipped("all_that_leaves_passes_its_queue_costs_no_hop_and_goes_on_without_it") {
        return;
    }
    let bed = Bed::new();
    bed.eventually("the path is there", || {
        let (from, to) = bed.datagrams(SERVERS[1]);
        let mut buffer = [0; 8];
        from.send(b"here").is_ok() && to.recv(&mut buffer).is_ok()
    });
    let mut before = bed.echo(SERVERS[0]);
    answers(&mut before);
    assert_eq!(bed.hops(), HOPS);

    let router = bed.start();
    let (link, other) = bed.link();
    assert_eq!(
        (link["rate_bps"].as_u64(), link["xcp_capacity_bps"].as_u64()),
        (Some(RATE_BPS), Some(RATE_BPS))
    );
    assert!(bed.ask(&["set"]).unwrap_or_default().contains("link.sat.xcp_weight"), "{}", bed.log());
    assert_eq!(bed.hops(), HOPS, "it costs no hop");
    answers(&mut before);
    let mut connections = SERVERS.map(|server| bed.echo(server));
    connections.iter_mut().for_each(answers);
    for server in SERVERS {
        let (from, to) = bed.datagrams(server);
        // In fragments.
        from.send(&[7; 3_000]).unwrap();
        let mut buffer = [0; 4_000];
        assert_eq!(to.recv(&mut buffer).unwrap(), 3_000, "{server}");
    }
    let (after, came) = bed.link();
    let sent = |link: &Value| link["sent_bytes"].as_u64().unwrap();
    assert!(came - other >= 2 + 2 * 3, "datagrams went past it: {other} {came}");
    assert!(sent(&after) - sent(&link) > 2 * 3_000, "{after}");
    // The client's own ICMP leaves by the link, too: nobody listens there.
    let (answering, came) =
        (bed.server.run(|| Ok(UdpSocket::bind("0.0.0.0:0").unwrap())).unwrap(), bed.link().1);
    answering.send_to(b"here", (CLIENT, 9)).unwrap();
    let sent_before = sent(&bed.link().0);
    bed.eventually("an ICMP error passes", || bed.link().1 > came && sent(&bed.link().0) >= sent_before);

    bed.the_rate_holds();
    router.kill();
    answers(&mut before);
    connections.iter_mut().for_each(answers);
    assert_eq!(bed.hops(), HOPS);
    SERVERS.iter().for_each(|server| answers(&mut bed.echo(server)));
}

impl Bed {
    /// What comes faster than the link carries it waits, whatever it is.
    fn the_rate_holds(&self) {
        const BYTES: usize = 1_000;
        let (from, to) = self.datagrams(SERVERS[0]);
        (0..300).for_each(|_| assert_eq!(from.send(&[7; BYTES]).unwrap(), BYTES));
        let mut buffer = [0; 2 * BYTES];
        let (mut got, mut first) = (0, None);
        let mut last = Instant::now();
        while to.recv(&mut buffer).is_ok() {
            (got, last) = (got + 1, Instant::now());
            first.get_or_insert(last);
        }
        // What had room in the queue, and the first few of which were seen late.
        let span = last - first.unwrap();
        let least = Duration::from_secs_f64((got - 30) as f64 * (BYTES + 28) as f64 * 8.0 / RATE_BPS as f64);
        assert!(got > 50 && span >= least, "{got} datagrams took {span:?}, and {least:?} at least");
    }
}
