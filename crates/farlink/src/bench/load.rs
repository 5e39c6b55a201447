//! The load generator: a server and a client for the benchmark, run in their namespaces as
//! processes of their own.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec};
use serde_json::json;

/// Bytes of a small request and of its answer.
pub const PING_BYTES: usize = 100;
/// Body of a short HTTP answer.
pub const HTTP_BODY_BYTES: usize = 1000;
const BULK_PORT: u16 = 7001;
const PING_PORT: u16 = 7002;
const HTTP_PORT: u16 = 7003;
const IDLE_PORT: u16 = 7004;
const MANY_PORT: u16 = 7005;
const DATAGRAM_PORT: u16 = 7006;
/// What is written and read at once in bulk.
const CHUNK_BYTES: usize = 128 << 10;
/// What the bulk stream consists of.
const FILL: u8 = 0x5A;
/// Threads that open HTTP connections, and that accept them.
const HTTP_THREADS: u64 = 16;
/// A connection that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(5);
/// Not counted in bulk.
const WARM_UP: Duration = Duration::from_secs(1);

/// `farlink bench-load`
#[derive(clap::Args, Debug)]
pub struct LoadArgs {
    /// What to do
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand, Debug)]
enum What {
    /// Serve everything until standard input ends
    Server,
    /// Read from parallel connections
    Bulk {
        /// Connections
        #[arg(long)]
        flows: u64,
        /// Time that is counted
        #[arg(long)]
        seconds: u64,
        /// Server
        #[arg(long)]
        to: IpAddr,
    },
    /// Small requests and answers on one connection
    Ping {
        /// How many
        #[arg(long)]
        count: u64,
        /// Server
        #[arg(long)]
        to: IpAddr,
    },
    /// Short HTTP connections at a steady rate
    Http {
        /// Connections per second
        #[arg(long)]
        rate: u64,
        /// For how long
        #[arg(long)]
        seconds: u64,
        /// Server
        #[arg(long)]
        to: IpAddr,
    },
    /// Read from very many connections at once
    Many {
        /// Connections
        #[arg(long)]
        flows: u64,
        /// Time that is counted
        #[arg(long)]
        seconds: u64,
        /// Server
        #[arg(long)]
        to: IpAddr,
    },
    /// UDP datagrams, a window of them under way
    Datagrams {
        /// Handed to the kernel at once
        #[arg(long)]
        at_once: usize,
        /// Time that is counted
        #[arg(long)]
        seconds: u64,
        /// Server
        #[arg(long)]
        to: IpAddr,
    },
    /// Connections that stay open
    Idle {
        /// How many
        #[arg(long)]
        count: u64,
        /// Server
        #[arg(long)]
        to: IpAddr,
    },
}

/// Runs it.
pub fn run(args: &LoadArgs) -> Result<ExitCode> {
    raise_descriptor_limit();
    match args.what {
        What::Server => serve()?,
        What::Bulk { flows, seconds, to } => bulk(flows, seconds, to)?,
        What::Many { flows, seconds, to } => {
            super::many::read(flows, seconds, SocketAddr::new(to, MANY_PORT))?
        }
        What::Ping { count, to } => ping(count, to)?,
        What::Http { rate, seconds, to } => http(rate, seconds, to)?,
        What::Datagrams { at_once, seconds, to } => {
            super::datagrams::send(at_once, seconds, to, DATAGRAM_PORT)?
        }
        What::Idle { count, to } => idle(count, to)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn raise_descriptor_limit() {
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = limit.maximum;
    // If it stays low, opening connections says so.
    let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, limit);
}

/// The benchmark compares datapaths, so every host uses the same congestion control whatever the
/// machine's default.
fn use_cubic(socket: &impl AsRawFd) {
    let name = b"cubic";
    // SAFETY: reads the five bytes behind the pointer.
    unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_CONGESTION,
            name.as_ptr().cast(),
            name.len() as libc::socklen_t,
        )
    };
}

fn serve() -> Result<()> {
    let listen = |port: u16| {
        let listener = listen_on(port).with_context(|| format!("cannot listen on port {port}"))?;
        use_cubic(&listener);
        anyhow::Ok(listener)
    };
    let many = listen(MANY_PORT)?;
    thread::spawn(move || super::many::serve(&many));
    thread::spawn(|| super::datagrams::serve(DATAGRAM_PORT));
    let (bulk, ping, http, idle) =
        (listen(BULK_PORT)?, listen(PING_PORT)?, listen(HTTP_PORT)?, listen(IDLE_PORT)?);
    thread::spawn(move || serve_bulk(&bulk));
    thread::spawn(move || {
        for mut stream in ping.incoming().flatten() {
            let _ = stream.set_nodelay(true);
            thread::spawn(move || {
                let mut request = [0; PING_BYTES];
                while stream.read_exact(&mut request).is_ok() && stream.write_all(&request).is_ok() {}
            });
        }
    });
    let http = Arc::new(http);
    for _ in 0..HTTP_THREADS {
        let listener = Arc::clone(&http);
        thread::spawn(move || {
            let answer = http_answer();
            for stream in listener.incoming().flatten() {
                // A client that fails says so itself.
                let _ = answer_http(stream, &answer);
            }
        });
    }
    thread::spawn(move || {
        let mut open = Vec::new();
        for mut stream in idle.incoming().flatten() {
            let mut byte = [0];
            if stream.read_exact(&mut byte).is_ok() && stream.write_all(&byte).is_ok() {
                open.push(stream);
            }
        }
    });
    println!("ready");
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    Ok(())
}

/// As `TcpListener::bind`, with a queue that takes a burst of connections.
fn listen_on(port: u16) -> Result<TcpListener> {
    let listener = TcpListener::bind(("0.0.0.0", port))?;
    // SAFETY: plain system call on an own descriptor; listening again only sets the length of the
    // queue.
    unsafe { libc::listen(listener.as_raw_fd(), 4096) };
    Ok(listener)
}

fn http_answer() -> Vec<u8> {
    let mut answer =
        format!("HTTP/1.1 200 OK\r\nContent-Length: {HTTP_BODY_BYTES}\r\nConnection: close\r\n\r\n")
            .into_bytes();
    answer.resize(answer.len() + HTTP_BODY_BYTES, b'x');
    answer
}

fn answer_http(mut stream: TcpStream, answer: &[u8]) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut request = Vec::new();
    let mut chunk = [0; 1024];
    while !request.ends_with(b"\r\n\r\n") {
        match stream.read(&mut chunk)? {
            0 => return Ok(()),
            n => request.extend_from_slice(&chunk[..n]),
        }
    }
    stream.write_all(answer)
}

/// One thread for all connections, as iperf3 and most servers have: what is measured is the
/// datapath, not the scheduler.
fn serve_bulk(listener: &TcpListener) -> Result<()> {
    listener.set_nonblocking(true)?;
    let chunk = vec![FILL; CHUNK_BYTES];
    let mut streams: Vec<TcpStream> = Vec::new();
    loop {
        let ready = ready(listener, &streams, PollFlags::OUT)?;
        if ready.listener
            && let Ok((stream, _)) = listener.accept()
        {
            stream.set_nonblocking(true)?;
            streams.push(stream);
        }
        let mut ready = ready.streams.into_iter();
        streams.retain_mut(|stream| {
            if !ready.next().unwrap_or(false) {
                return true;
            }
            match stream.write(&chunk) {
                // The stream is the same byte throughout, so it does not matter how much of the
                // chunk went.
                Ok(written) => written > 0,
                Err(e) => e.kind() == ErrorKind::WouldBlock,
            }
        });
    }
}

struct Ready {
    listener: bool,
    streams: Vec<bool>,
}

/// Waits until something is ready.
fn ready(listener: &impl AsFd, streams: &[TcpStream], events: PollFlags) -> Result<Ready> {
    let listener = PollFd::new(listener, PollFlags::IN);
    let streams = streams.iter().map(|s| PollFd::new(s, events));
    let mut all: Vec<_> = std::iter::once(listener).chain(streams).collect();
    let timeout = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    rustix::event::poll(&mut all, Some(&timeout))?;
    let mut ready = all.iter().map(|fd| !fd.revents().is_empty());
    Ok(Ready { listener: ready.next().unwrap_or(false), streams: ready.collect() })
}

fn bulk(flows: u64, seconds: u64, to: IpAddr) -> Result<()> {
    let connect = |_| {
        let stream = TcpStream::connect((to, BULK_PORT)).context("cannot connect")?;
        stream.set_nonblocking(true)?;
        anyhow::Ok(stream)
    };
    let mut streams = (0..flows).map(connect).collect::<Result<Vec<_>>>()?;
    // Nothing ever comes in by this one; it stands where the server has its listener.
    let nobody = TcpListener::bind(("127.0.0.1", 0))?;
    let mut chunk = vec![0; CHUNK_BYTES];
    let (mut bytes, mut counted_from) = (0u64, None);
    let began = Instant::now();
    loop {
        let ready = ready(&nobody, &streams, PollFlags::IN)?;
        for (stream, _) in streams.iter_mut().zip(ready.streams).filter(|(_, ready)| *ready) {
            match stream.read(&mut chunk) {
                Ok(n) if n > 0 && chunk[0] == FILL && chunk[n - 1] == FILL => bytes += n as u64,
                Ok(_) => bail!("a stream ended or carries other bytes"),
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) => return Err(e).context("reading"),
            }
        }
        match counted_from {
            None if began.elapsed() >= WARM_UP => {
                bytes = 0;
                counted_from = Some(Instant::now());
            }
            Some(from) if from.elapsed() >= Duration::from_secs(seconds) => {
                let elapsed = from.elapsed().as_secs_f64();
                let rate = bytes as f64 * 8.0 / elapsed;
                return print_json(&json!({"bytes": bytes, "seconds": elapsed, "bits_per_second": rate}));
            }
            _ => {}
        }
    }
}

fn ping(count: u64, to: IpAddr) -> Result<()> {
    let mut stream = TcpStream::connect((to, PING_PORT))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let request = [7; PING_BYTES];
    let mut answer = [0; PING_BYTES];
    let mut times = Vec::new();
    let from = Instant::now();
    for _ in 0..count {
        // As a person or a program would: not back to back, so that everything has come to rest.
        thread::sleep(Duration::from_micros(200));
        let sent = Instant::now();
        stream.write_all(&request)?;
        stream.read_exact(&mut answer)?;
        times.push(sent.elapsed());
        if answer != request {
            bail!("the answer differs from what was asked");
        }
    }
    let (p50, p99) = (percentile(&mut times, 50), percentile(&mut times, 99));
    print_json(
        &json!({"count": count, "seconds": from.elapsed().as_secs_f64(), "p50_us": p50, "p99_us": p99}),
    )
}

/// In microseconds.
fn percentile(times: &mut [Duration], percent: usize) -> f64 {
    times.sort_unstable();
    let at = times.len().saturating_sub(1) * percent / 100;
    times.get(at).map_or(0.0, |t| t.as_secs_f64() * 1e6)
}

fn http(rate: u64, seconds: u64, to: IpAddr) -> Result<()> {
    let total = rate * seconds;
    let from = Instant::now();
    let workers: Vec<_> = (0..HTTP_THREADS)
        .map(|first| {
            thread::spawn(move || {
                let mut times = Vec::new();
                let mut failures = Vec::new();
                // Open loop: a slow answer delays the following connections of its thread only, and
                // they catch up.
                for n in (first..total).step_by(HTTP_THREADS as usize) {
                    let due = Duration::from_nanos(n * 1_000_000_000 / rate);
                    thread::sleep(due.saturating_sub(from.elapsed()));
                    let began = Instant::now();
                    match one_http(to) {
                        Ok(()) => times.push(began.elapsed()),
                        Err(e) => failures.push(format!("{e:#}")),
                    }
                }
                (times, failures)
            })
        })
        .collect();
    let (mut times, mut failures) = (Vec::new(), Vec::new());
    for worker in workers {
        let (t, f) = worker.join().map_err(|_| anyhow::anyhow!("a worker died"))?;
        times.extend(t);
        failures.extend(f);
    }
    let elapsed = from.elapsed().as_secs_f64();
    failures.sort_unstable();
    let kinds =
        failures.chunk_by(|a, b| a == b).map(|c| format!("{} x {}", c.len(), c[0])).collect::<Vec<_>>();
    let (p50, p99) = (percentile(&mut times, 50), percentile(&mut times, 99));
    print_json(&json!({
        "connections": times.len(),
        "failed": failures.len(),
        "failures": kinds,
        "seconds": elapsed,
        "connections_per_s": times.len() as f64 / elapsed,
        "p50_us": p50,
        "p99_us": p99,
    }))
}

fn one_http(to: IpAddr) -> Result<()> {
    let mut stream =
        TcpStream::connect_timeout(&SocketAddr::new(to, HTTP_PORT), PATIENCE).context("connecting")?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: bench\r\n\r\n").context("asking")?;
    let mut answer = Vec::with_capacity(HTTP_BODY_BYTES + 200);
    stream.read_to_end(&mut answer).context("reading the answer")?;
    if answer != http_answer() {
        bail!("the answer has {} bytes", answer.len());
    }
    Ok(())
}

fn idle(count: u64, to: IpAddr) -> Result<()> {
    let from = Instant::now();
    let mut open = Vec::new();
    for _ in 0..count {
        let mut stream =
            TcpStream::connect_timeout(&SocketAddr::new(to, IDLE_PORT), PATIENCE).context("connecting")?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut byte = [42];
        stream.write_all(&byte)?;
        stream.read_exact(&mut byte)?;
        open.push(stream);
    }
    print_json(&json!({"open": open.len(), "seconds": from.elapsed().as_secs_f64()}))?;
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    // Each must still be there: nothing to read, and no end.
    for mut stream in open {
        stream.set_nonblocking(true)?;
        match stream.read(&mut [0]) {
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            other => bail!("an idle connection was disturbed: {other:?}"),
        }
    }
    Ok(())
}

pub(super) fn print_json(value: &serde_json::Value) -> Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "{value}")?;
    out.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles() {
        let mut times: Vec<_> = (1..=100).rev().map(Duration::from_micros).collect();
        assert!((percentile(&mut times, 50) - 50.0).abs() < 0.01);
        assert!((percentile(&mut times, 99) - 99.0).abs() < 0.01);
        assert!(percentile(&mut [], 50) < 0.01);
    }
}
