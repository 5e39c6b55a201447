//! Throughput of one router between two hosts, veth to veth with offloads: plain forwarding, a
//! bounce over the TUN, and a splitting gateway; with CPU seconds of this process per gigabyte.
//! Needs root and iperf3: `cargo run --release -p farlink-linux --example throughput [SECONDS]`.

use std::net::IpAddr;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use farlink_gateway::IfaceId;
use farlink_gateway::config::{Action, Config, Interface};
use farlink_linux::driver::{Driver, DriverConfig, End};
use farlink_linux::event_loop::Waker;
use farlink_linux::netns::{Namespace, veth};
use farlink_linux::{Error, Result};

/// A driver on a thread of its own.
struct Daemon {
    thread: JoinHandle<Result<End>>,
    waker: Arc<Waker>,
    is_over: Arc<AtomicBool>,
}

struct Bench {
    client: Namespace,
    router: Namespace,
    server: Namespace,
    iperf: Option<Child>,
}

impl Bench {
    fn new() -> Result<Self> {
        let make = |role: &str| Namespace::create(&format!("flthr{}-{role}", std::process::id()));
        let mut bench =
            Self { client: make("client")?, router: make("router")?, server: make("server")?, iperf: None };
        veth(&bench.client, "eth0", &bench.router, "left")?;
        veth(&bench.router, "right", &bench.server, "eth0")?;
        bench.router.make_router()?;
        for (host, interface, net, last) in [
            (&bench.client, "eth0", 1, 1),
            (&bench.router, "left", 1, 2),
            (&bench.router, "right", 2, 2),
            (&bench.server, "eth0", 2, 1),
        ] {
            host.address_add(interface, IpAddr::from([10, net, 0, last]), 24)?;
        }
        bench.client.route_add(None, IpAddr::from([10, 1, 0, 2]))?;
        bench.server.route_add(None, IpAddr::from([10, 2, 0, 2]))?;
        let mut iperf = bench.server.command("iperf3");
        iperf.arg("-s").stdout(Stdio::null());
        bench.iperf = iperf.spawn().ok();
        std::thread::sleep(std::time::Duration::from_millis(300));
        Ok(bench)
    }

    /// Bits per second at the receiver.
    fn iperf(&self, arguments: &[&str], seconds: &str) -> Result<f64> {
        let mut command = self.client.command("iperf3");
        command.args(["-c", "10.2.0.1", "-J", "-t", seconds]).args(arguments);
        let output = command.output().map_err(|e| Error::os("running iperf3", e))?;
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        report["end"]["sum_received"]["bits_per_second"]
            .as_f64()
            .ok_or_else(|| Error::Refused(format!("iperf3: {}", report["error"])))
    }

    fn run(&self, name: &str, seconds: &str) -> Result<()> {
        println!("{name:>8}  request: {:.0} us (median)", self.latency()?);
        for arguments in [&["-P", "1"][..], &["-P", "1", "-R"], &["-P", "8"]] {
            // The server of iperf3 resets who comes while it still tidies up.
            std::thread::sleep(std::time::Duration::from_millis(500));
            let before = cpu_seconds();
            let rate = self.iperf(arguments, seconds)?;
            let gigabytes = rate * seconds.parse::<f64>().unwrap_or(1.0) / 8e9;
            println!(
                "{name:>8} {:>8}: {:6.2} Gbit/s, {:.3} CPU-s/GB in this process",
                arguments.join(" "),
                rate / 1e9,
                (cpu_seconds() - before) / gigabytes
            );
        }
        Ok(())
    }

    /// Median time of a request of one byte and its answer on an open connection, in microseconds.
    fn latency(&self) -> Result<f64> {
        use std::io::{Read, Write};
        use std::net::{TcpListener, TcpStream};
        let failed = |e| Error::os("exchanging bytes", e);
        let listener = self.server.run(|| TcpListener::bind("10.2.0.1:0").map_err(failed))?;
        let to = listener.local_addr().map_err(failed)?;
        let echo = std::thread::spawn(move || -> std::io::Result<()> {
            let (mut stream, _) = listener.accept()?;
            stream.set_nodelay(true)?;
            let mut byte = [0];
            while stream.read(&mut byte)? > 0 {
                stream.write_all(&byte)?;
            }
            Ok(())
        });
        let mut stream = self.client.run(|| TcpStream::connect(to).map_err(failed))?;
        stream.set_nodelay(true).map_err(failed)?;
        let mut times = Vec::new();
        for _ in 0..3000 {
            let start = std::time::Instant::now();
            stream.write_all(&[1]).map_err(failed)?;
            stream.read_exact(&mut [0]).map_err(failed)?;
            times.push(start.elapsed());
        }
        drop(stream);
        let _ = echo.join();
        times.sort_unstable();
        Ok(times.get(times.len() / 2).map_or(0.0, |t| t.as_secs_f64() * 1e6))
    }

    fn driver(&self, action: Action) -> Result<Daemon> {
        let interface = |id, name: &str| Interface {
            id: IfaceId(id),
            name: name.to_owned(),
            domain: 0,
            addresses: Vec::new(),
            link: None,
        };
        let gateway = Config {
            interfaces: vec![interface(0, "left"), interface(1, "right")],
            default_action: action,
            ..Config::default()
        };
        let (ready, started) = std::sync::mpsc::channel();
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = self.router.spawn(move || {
            let driver = Driver::start(DriverConfig { journal: None, ..DriverConfig::new(gateway) })?;
            // The receiver waits below.
            let _ = ready.send(driver.waker());
            driver.run(None, |attendance| {
                if over.load(Ordering::Relaxed) {
                    println!("{:>8} {:?}", "", attendance.status().counters);
                    attendance.drain();
                }
            })
        });
        match started.recv() {
            Ok(waker) => Ok(Daemon { thread, waker, is_over }),
            Err(_) => Err(Error::Refused(format!("{:?}", thread.join().map(|r| r.err())))),
        }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if let Some(mut iperf) = self.iperf.take() {
            let _ = iperf.kill();
            let _ = iperf.wait();
        }
        for host in [&self.client, &self.router, &self.server] {
            let _ = host.delete();
        }
    }
}

/// User and system time of this process.
fn cpu_seconds() -> f64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}

fn main() -> Result<()> {
    let seconds = std::env::args().nth(1).unwrap_or_else(|| "5".to_owned());
    let bench = Bench::new()?;
    bench.run("plain", &seconds)?;
    for (name, action) in [("passed", Action::Pass), ("split", Action::Split)] {
        let Daemon { thread, waker, is_over } = bench.driver(action)?;
        bench.run(name, &seconds)?;
        is_over.store(true, Ordering::Relaxed);
        waker.wake();
        println!("{name:>8} ends: {:?}", thread.join().ok().transpose()?);
    }
    Ok(())
}
