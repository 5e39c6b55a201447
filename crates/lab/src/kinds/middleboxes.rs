//! `middleboxes`: a box between the gateways, or between the one and the host, that takes offence
//! at TCP options, writes them anew, translates sequence numbers, answers for the server.
//! Connections one after another; and how much longer each waits for its first byte than the hosts
//! alone do.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use farlink_linux::tun::{ReadOutcome, Tun, TunConfig};
use farlink_sim::interference::Meddler;
use farlink_wire::{Offload, Pool, build};

use super::{Kind, Run};
use crate::build::{Lab, Life};
use crate::netns::Ns;
use crate::report::Measured;
use crate::scenario::{Cell, Scenario};
use crate::settings::Settings;
use crate::sh;
use crate::workload::socket::{self, Options};

/// The router on which the box stands.
const NODE: &str = "rt";
const PORT: u16 = 5003;
/// Connections one after another.
const CONNECTIONS: usize = 5;
/// Bytes each way.
const BYTES: usize = 150_000;
/// A connection that hangs for so long is broken.
const PATIENCE: Duration = Duration::from_secs(20);
/// What is dropped shows within this.
const SHOWS_WITHIN: Duration = Duration::from_secs(5);
/// The packet program's device, and the routing table that leads to it.
const DEVICE: &str = "box0";
const TABLE: &str = "77";

/// See the module.
pub(super) struct MiddleboxesKind;

impl Kind for MiddleboxesKind {
    fn cannot_run(&self, cell: &Cell) -> Option<String> {
        let wants_nft = cell.word("case", "").starts_with("nft-");
        (wants_nft && sh::find("nft").is_none()).then(|| "nft is not installed".into())
    }

    fn run(&mut self, scenario: &Scenario, cell: &Cell, run: &mut Run<'_>) -> Result<Measured> {
        let mut measured = Measured { bytes: (2 * CONNECTIONS * BYTES) as u64, ..Measured::default() };
        let began = Instant::now();
        let alone = Settings { gateways: 0, ..cell.settings.clone() };
        let hosts = Bench::new(scenario, cell, &alone, run)?.connections(&mut measured, "the hosts alone")?;
        let bench = Bench::new(scenario, cell, &cell.settings, run)?;
        let with = bench.connections(&mut measured, "with gateways")?;
        let usual = median(&hosts[1..]);
        measured.metric("first_byte_alone_seconds", usual);
        measured.metric("first_extra_seconds", with[0] - hosts[0]);
        measured.metric("later_extra_seconds", median(&with[1..]) - usual);
        let worst = with[1..].iter().copied().fold(0.0, f64::max);
        measured.metric("later_worst_extra_seconds", worst - usual);
        bench.judge(&mut measured, cell.word("case", "").contains("drop"))?;
        measured.seconds = began.elapsed().as_secs_f64();
        bench.lab.down()?;
        Ok(measured)
    }
}

fn median(of: &[f64]) -> f64 {
    let mut sorted = of.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

struct Bench {
    lab: Lab,
    v6: bool,
    _box: Option<Program>,
}

impl Bench {
    fn new(scenario: &Scenario, cell: &Cell, settings: &Settings, run: &Run<'_>) -> Result<Self> {
        let lab = Lab::up(&scenario.topology, settings, &run.prefix, Life::WithUs)?;
        let name = cell.word("case", "none");
        let ns = lab.ns(NODE);
        let program = match name.strip_prefix("nft-") {
            _ if name == "none" => None,
            _ if name == "syn-cookies" => {
                let always = [("net.ipv4.tcp_syncookies".to_owned(), "2".to_owned())];
                lab.ns("server").sysctls(&always)?;
                None
            }
            Some(what) => {
                nft(&ns, what)?;
                None
            }
            None => Some(Program::start(&ns, name.parse().map_err(anyhow::Error::msg)?)?),
        };
        Ok(Self { lab, v6: cell.v6(), _box: program })
    }

    /// Time to the first byte of each connection, seconds. Both hosts then send and check.
    fn connections(&self, measured: &mut Measured, who: &str) -> Result<Vec<f64>> {
        let listener = socket::listen(&self.lab.ns("server"), PORT)?;
        let to = SocketAddr::new(self.lab.address("server", self.v6)?, PORT);
        let mut seconds = Vec::new();
        for n in 0..CONNECTIONS {
            let client = socket::client(&self.lab.ns("client"), self.v6, &Options::default())?;
            match one(&listener, client, to, n as u8) {
                Ok(first) => seconds.push(first),
                Err(error) => {
                    measured.expect(false, || format!("{who}: connection {n}: {error:#}"));
                    seconds.push(PATIENCE.as_secs_f64());
                }
            }
        }
        Ok(seconds)
    }

    /// All connections were split, and status says what the box does: where it drops something that
    /// shows a few seconds after it was tried again.
    fn judge(&self, measured: &mut Measured, drops: bool) -> Result<()> {
        for gateway in &self.lab.gateways {
            let split = gateway.engine_number("counters.flows_split")?;
            measured.expect(split == CONNECTIONS as u64, || {
                format!("{split} connections are split at {}, not {CONNECTIONS}", gateway.node)
            });
        }
        let began = Instant::now();
        let told = loop {
            let told = self.told()?;
            if told > 0 || !drops || began.elapsed() > SHOWS_WITHIN {
                break told;
            }
            std::thread::sleep(Duration::from_millis(200));
        };
        measured.metric("boxes_told", told as f64);
        Ok(())
    }

    /// Sentences about boxes, of all gateways.
    fn told(&self) -> Result<usize> {
        let mut told = 0;
        for gateway in &self.lab.gateways {
            let status = gateway.status()?;
            let links = status["links"].as_array().map(Vec::as_slice).unwrap_or_default();
            told += links.iter().map(|link| link["boxes"].as_array().map_or(0, Vec::len)).sum::<usize>();
        }
        Ok(told)
    }
}

/// The next connection. Where none comes about nobody waits for ever.
fn accepted(listener: &TcpListener) -> Result<TcpStream> {
    let end = Instant::now() + PATIENCE;
    listener.set_nonblocking(true)?;
    loop {
        match listener.accept() {
            Ok((server, _)) => {
                server.set_nonblocking(false)?;
                return Ok(server);
            }
            Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => return Err(error.into()),
            Err(_) if Instant::now() > end => bail!("nobody has come"),
            Err(_) => std::thread::sleep(Duration::from_micros(200)),
        }
    }
}

/// One connection: the server greets, the client sends and gets as much, both check it. Returns
/// when the greeting was there.
fn one(listener: &TcpListener, mut client: TcpStream, to: SocketAddr, n: u8) -> Result<f64> {
    let content = |of: u8| -> Vec<u8> { (0..BYTES).map(|i| (i / 251) as u8 ^ i as u8 ^ of).collect() };
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| -> Result<()> {
            let mut server = accepted(listener)?;
            server.set_read_timeout(Some(PATIENCE))?;
            server.set_write_timeout(Some(PATIENCE))?;
            server.write_all(b"!")?;
            let mut got = vec![0; BYTES];
            server.read_exact(&mut got).context("the server reads")?;
            if got != content(n) {
                bail!("the server got other bytes");
            }
            server.write_all(&content(n ^ 0x55))?;
            Ok(())
        });
        let began = Instant::now();
        socket::connect(&client, to, PATIENCE).context("no connection")?;
        client.set_read_timeout(Some(PATIENCE))?;
        client.set_write_timeout(Some(PATIENCE))?;
        client.read_exact(&mut [0]).context("no first byte")?;
        let first = began.elapsed().as_secs_f64();
        client.write_all(&content(n))?;
        let mut got = vec![0; BYTES];
        client.read_exact(&mut got).context("the client reads")?;
        if got != content(n ^ 0x55) {
            bail!("the client got other bytes");
        }
        serving.join().map_err(|_| anyhow::anyhow!("the server panicked"))??;
        Ok(first)
    })
}

/// What nft can do.
fn nft(ns: &Ns, what: &str) -> Result<()> {
    let forward = "type filter hook forward priority mangle;";
    let rules = match what {
        "strip" => format!("chain f {{ {forward} tcp option 254 exists reset tcp option 254; }}"),
        "clamp" => format!("chain f {{ {forward} tcp flags syn tcp option maxseg size set 1000; }}"),
        "synproxy" => {
            let tracked = [("net.netfilter.nf_conntrack_tcp_loose".to_owned(), "0".to_owned())];
            ns.sysctls(&tracked)?;
            format!(
                "chain raw {{ type filter hook prerouting priority raw;
                 tcp dport {PORT} tcp flags & (syn|ack) == syn notrack; }}
                 chain f {{ type filter hook forward priority filter;
                 tcp dport {PORT} ct state invalid,untracked synproxy mss 1460 wscale 7 timestamp sack-perm;
                 ct state invalid drop; }}"
            )
        }
        other => bail!("nft does not know `{other}`"),
    };
    ns.run("nft", &[&format!("table inet box {{\n{rules}\n}}\n")])?;
    Ok(())
}

/// The packet program: all that is forwarded passes it.
struct Program {
    ends: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Program {
    fn start(ns: &Ns, does: Meddler) -> Result<Self> {
        let tun = ns.enter(|| Ok(Tun::create(&TunConfig::new(DEVICE))?))?;
        // Every packet for itself.
        ns.offloads_off(DEVICE)?;
        let interfaces = ns.run("ip", &["-o", "link"])?;
        let names = interfaces.lines().filter_map(|line| line.split([':', '@']).nth(1)).map(str::trim);
        let names: Vec<_> = names.filter(|name| name.starts_with("to-")).collect();
        for family in ["-4", "-6"] {
            ns.run("ip", &[family, "route", "add", "default", "dev", DEVICE, "table", TABLE])?;
            for name in &names {
                ns.run("ip", &[family, "rule", "add", "iif", name, "lookup", TABLE])?;
            }
        }
        let ends = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let ends = ends.clone();
            move || work(tun, does, &ends)
        });
        Ok(Self { ends, thread: Some(thread) })
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn work(mut tun: Tun, does: Meddler, ends: &AtomicBool) {
    use std::os::fd::AsRawFd;
    let mut pool = Pool::new(4 << 20);
    let fd = std::os::fd::AsFd::as_fd(&tun).as_raw_fd();
    while !ends.load(Ordering::Relaxed) {
        match tun.read(&mut pool) {
            Ok(ReadOutcome::Packet(packet)) => {
                let mut bytes = packet.bytes().to_vec();
                build::finish_checksums(&mut bytes, &packet.offload);
                packet.recycle(&mut pool);
                if let Some(bytes) = does.pass(bytes) {
                    // A device that is full drops, as a box does.
                    let _ = tun.write(&Offload::default(), &bytes, &[]);
                }
            }
            Ok(ReadOutcome::Odd) => {}
            Ok(ReadOutcome::Empty) => {
                let mut wait = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
                // SAFETY: one descriptor, which lives as long as the device.
                unsafe { libc::poll(&raw mut wait, 1, 100) };
            }
            Err(_) => return,
        }
    }
}
