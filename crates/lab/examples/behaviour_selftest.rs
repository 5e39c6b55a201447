//! The `behaviour` cases against themselves: the same path several times, plain kernel routing, no
//! gateway.
//!
//! ```text
//! client -- r1 --(inner link, delayed by a thread)-- r2 -- server
//! ```
//! `behaviour_selftest [--rtt-ms 40] [--repeat 2] [--only part,part] [--json FILE] [--from-mbit 0]`
//!
//! A case that differs from itself would accuse gateways of what it does itself. Needs root, `ip`,
//! `nft`, `ethtool`. Namespaces are called `flb-...` and are removed at the end.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use farlink_lab::behaviour::host::Host;
use farlink_lab::behaviour::sock::Sock;
use farlink_lab::behaviour::{End, Ends, InnerDevice, Options, Report, run_all};

struct Arguments {
    rtt: Duration,
    repeat: usize,
    json: Option<String>,
    options: Options,
}

fn arguments() -> Result<Arguments> {
    let mut arguments =
        Arguments { rtt: Duration::from_millis(40), repeat: 2, json: None, options: Options::default() };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().with_context(|| format!("{word} needs a value"))?;
        match word.as_str() {
            "--rtt-ms" => arguments.rtt = Duration::from_millis(value.parse()?),
            "--repeat" => arguments.repeat = value.parse()?,
            "--only" => arguments.options.only = value.split(',').map(str::to_string).collect(),
            "--parallel" => arguments.options.parallel = value.parse()?,
            "--from-mbit" => arguments.options.from_rate_bps = value.parse::<u64>()? * 1_000_000,
            "--json" => arguments.json = Some(value),
            _ => bail!("unknown argument {word}"),
        }
    }
    Ok(arguments)
}

/// Removes the namespaces when dropped.
struct Namespaces(Vec<String>);

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in &self.0 {
            let _ = ip(&format!("netns del {name}"));
        }
    }
}

fn ip(line: &str) -> Result<()> {
    let output = Command::new("ip").args(line.split_whitespace()).output()?;
    if !output.status.success() {
        bail!("ip {line}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

const V4: [&str; 4] = ["10.91.1.2", "10.91.1.1", "10.91.2.1", "10.91.2.2"];
const V6: [&str; 4] = ["fd91:1::2", "fd91:1::1", "fd91:2::1", "fd91:2::2"];

fn build(prefix: &str, delayed: bool) -> Result<Namespaces> {
    let mut made = Namespaces(Vec::new());
    for name in ["client", "r1", "cable", "r2", "server"] {
        let name = format!("{prefix}{name}");
        let _ = ip(&format!("netns del {name}"));
        ip(&format!("netns add {name}"))?;
        made.0.push(name.clone());
        ip(&format!("-n {name} link set lo up"))?;
        let host = Host::open(&name)?;
        host.set_sysctl("ipv4/ip_forward", "1")?;
        host.set_sysctl("ipv6/conf/all/forwarding", "1")?;
        host.set_sysctl("ipv6/conf/default/accept_dad", "0")?;
    }
    let link = |a: &str, adev: &str, b: &str, bdev: &str| -> Result<()> {
        ip(&format!("link add {adev} netns {prefix}{a} type veth peer name {bdev} netns {prefix}{b}"))?;
        ip(&format!("-n {prefix}{a} link set {adev} up"))?;
        ip(&format!("-n {prefix}{b} link set {bdev} up"))
    };
    link("client", "eth0", "r1", "eth1")?;
    link("r2", "eth1", "server", "eth0")?;
    if delayed {
        link("r1", "inner", "cable", "near")?;
        link("cable", "far", "r2", "inner")?;
        for (ns, dev) in [("r1", "inner"), ("r2", "inner"), ("cable", "near"), ("cable", "far")] {
            let off = ["-K", dev, "tx", "off", "tso", "off", "gso", "off", "gro", "off"];
            Host::open(&format!("{prefix}{ns}"))?.run("ethtool", &off)?;
        }
    } else {
        link("r1", "inner", "r2", "inner")?;
    }
    for (ns, dev, v4, v6) in [
        ("client", "eth0", V4[0], V6[0]),
        ("r1", "eth1", V4[1], V6[1]),
        ("r1", "inner", "10.91.9.1", "fd91:9::1"),
        ("r2", "inner", "10.91.9.2", "fd91:9::2"),
        ("r2", "eth1", V4[2], V6[2]),
        ("server", "eth0", V4[3], V6[3]),
    ] {
        ip(&format!("-n {prefix}{ns} addr add {v4}/24 dev {dev}"))?;
        ip(&format!("-n {prefix}{ns} addr add {v6}/64 dev {dev} nodad"))?;
    }
    for (ns, v4, v6) in [("client", V4[1], V6[1]), ("server", V4[2], V6[2])] {
        ip(&format!("-n {prefix}{ns} route add default via {v4}"))?;
        ip(&format!("-n {prefix}{ns} -6 route add default via {v6}"))?;
    }
    ip(&format!("-n {prefix}r1 route add 10.91.2.0/24 via 10.91.9.2"))?;
    ip(&format!("-n {prefix}r1 -6 route add fd91:2::/64 via fd91:9::2"))?;
    ip(&format!("-n {prefix}r2 route add 10.91.1.0/24 via 10.91.9.1"))?;
    ip(&format!("-n {prefix}r2 -6 route add fd91:1::/64 via fd91:9::1"))?;
    Ok(made)
}

/// A socket that receives all frames of a device and sends raw frames.
fn tap(host: &Host, dev: &str) -> Result<Sock> {
    let sock = Sock::new(host, libc::AF_PACKET, libc::SOCK_RAW, 0)?;
    let _ = sock.set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 64 << 20);
    // SAFETY: a NUL-terminated name; sockaddr_ll is plain data; pointer and length describe it.
    let bound = host.enter(|| unsafe {
        let name = std::ffi::CString::new(dev).unwrap_or_default();
        let mut address: libc::sockaddr_ll = std::mem::zeroed();
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = libc::if_nametoindex(name.as_ptr()) as i32;
        let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        libc::bind(sock.fd(), (&raw const address).cast(), len)
    })?;
    anyhow::ensure!(bound == 0, "cannot bind to {dev}");
    const PACKET_IGNORE_OUTGOING: i32 = 23;
    sock.set(libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)?;
    Ok(sock)
}

/// Carries frames from one device to the other, each after `delay`.
fn carry(from: &Sock, to: &Sock, delay: Duration, stop: &AtomicBool) {
    let mut queue: VecDeque<(Instant, Vec<u8>)> = VecDeque::new();
    let mut buffer = vec![0; 1 << 16];
    while !stop.load(Ordering::Relaxed) {
        let now = Instant::now();
        while queue.front().is_some_and(|(due, _)| *due <= now) {
            if let Some((_, frame)) = queue.pop_front() {
                let _ = to.send(&frame, 0);
            }
        }
        let wait = queue.front().map_or(Duration::from_millis(100), |(due, _)| *due - now);
        // poll() counts in milliseconds; the last one is slept precisely.
        if wait < Duration::from_millis(1) {
            std::thread::sleep(wait.min(Duration::from_micros(200)));
        } else if !from.poll(libc::POLLIN, wait).is_ok_and(|events| events != 0) {
            continue;
        }
        while let Ok(len) = from.recv(&mut buffer, libc::MSG_DONTWAIT) {
            queue.push_back((Instant::now() + delay, buffer[..len].to_vec()));
        }
    }
}

fn main() -> Result<()> {
    let arguments = arguments()?;
    let prefix = format!("flb-{}-", std::process::id());
    let delayed = !arguments.rtt.is_zero();
    let _namespaces = build(&prefix, delayed)?;
    let end = |name: &str, v4: &str, v6: &str| -> Result<End> {
        Ok(End { ns: format!("{prefix}{name}"), v4: v4.parse::<Ipv4Addr>()?, v6: v6.parse::<Ipv6Addr>()? })
    };
    let inner = |ns: &str| InnerDevice { ns: format!("{prefix}{ns}"), dev: "inner".into() };
    let ends = Ends {
        client: end("client", V4[0], V6[0])?,
        server: end("server", V4[3], V6[3])?,
        rtt: arguments.rtt,
        rate_bps: delayed.then_some(200_000_000),
        narrow: vec![inner("r1"), inner("r2")],
    };
    let stop = AtomicBool::new(false);
    let cable = Host::open(&format!("{prefix}cable"))?;
    let taps = if delayed { Some((tap(&cable, "near")?, tap(&cable, "far")?)) } else { None };
    let report = std::thread::scope(|scope| {
        if let Some((a, b)) = &taps {
            scope.spawn(|| carry(a, b, arguments.rtt / 2, &stop));
            scope.spawn(|| carry(b, a, arguments.rtt / 2, &stop));
        }
        let report = runs(&arguments, &ends);
        stop.store(true, Ordering::Relaxed);
        report
    })?;
    print!("{}", report.table());
    if let Some(file) = &arguments.json {
        std::fs::write(file, serde_json::to_string_pretty(&report)?)?;
    }
    if !report.all_same() {
        drop(_namespaces);
        std::process::exit(1);
    }
    Ok(())
}

fn runs(arguments: &Arguments, ends: &Ends) -> Result<Report> {
    let mut all = Vec::new();
    for run in 0..arguments.repeat {
        let start = Instant::now();
        let results = run_all(ends, &arguments.options, &|result| {
            if result.seconds > 30.0 || !result.outcome.faults.is_empty() {
                eprintln!("run {run}: {} {:.1} s {:?}", result.name, result.seconds, result.outcome.faults);
            }
        })?;
        eprintln!("run {run}: {} cases in {:.0} s", results.len(), start.elapsed().as_secs_f64());
        all.push((format!("again-{run}"), results));
    }
    let direct = all.remove(0).1;
    Ok(Report::new(arguments.rtt, direct, all))
}
