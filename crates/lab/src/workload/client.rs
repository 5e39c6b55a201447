//! The client: one timed transfer, or many at once.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use portable_atomic::AtomicU64;
use sha2::{Digest, Sha256};

use super::content::{self, Check};
use super::server;
use super::socket::{self, Options, TcpInfo};
use crate::limit::Clock;
use crate::netns::Ns;

/// Stack of a thread that runs one transfer.
const STACK_BYTES: usize = 256 << 10;
/// Bytes read at a time.
const CHUNK_BYTES: usize = 64 << 10;

/// Which way the bytes go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Direction {
    /// From the server.
    #[default]
    Download,
    /// To the server.
    Upload,
}

/// A transfer to be made.
#[derive(Clone, Debug)]
pub struct Transfer {
    /// Where the client is.
    pub ns: Ns,
    /// The server's address.
    pub to: IpAddr,
    /// The server's port.
    pub port: u16,
    /// Which way.
    pub direction: Direction,
    /// How much.
    pub bytes: u64,
    /// Which bytes.
    pub seed: u64,
    /// When its clock starts.
    pub clock: Clock,
    /// How the socket is made.
    pub options: Options,
    /// It begins so long after the call.
    pub start_after: Duration,
    /// It sends its request so long after the call, or when it is connected if that is later.
    pub request_after: Duration,
    /// It waits between reading pieces, so as to be a slow reader; zero: it does not.
    pub pause_per_chunk: Duration,
    /// It fails when it stands still for so long.
    pub patience: Duration,
    /// The client of a download notes when each so many bytes have come; 0: it does not.
    pub mark_every: u64,
    /// The client of a download stops reading for so long when so many bytes have come.
    pub stops: Option<(u64, Duration)>,
}

impl Transfer {
    /// A download that starts its clock at connect().
    #[must_use]
    pub fn download(ns: Ns, to: IpAddr, port: u16, bytes: u64, seed: u64) -> Self {
        Self {
            ns,
            to,
            port,
            direction: Direction::Download,
            bytes,
            seed,
            clock: Clock::Connect,
            options: Options::default(),
            start_after: Duration::ZERO,
            request_after: Duration::ZERO,
            pause_per_chunk: Duration::ZERO,
            patience: Duration::from_secs(300),
            mark_every: 0,
            stops: None,
        }
    }
}

/// What the application saw.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Outcome {
    /// By the transfer's clock, until the last byte.
    pub seconds: f64,
    /// Seconds that connect() took.
    pub connect_seconds: f64,
    /// When it began, in seconds since the call.
    pub began_s: f64,
    /// When it ended, in seconds since the call.
    pub ended_s: f64,
    /// When a download's last byte arrived.
    pub last_byte: Option<Instant>,
    /// When each [`Transfer::mark_every`] bytes had arrived, in seconds by the transfer's clock.
    pub marks_s: Vec<f64>,
    /// Bytes that arrived.
    pub bytes: u64,
    /// SHA-256 of what arrived equals that of what was sent, and the stream ended in order.
    pub intact: bool,
    /// What went wrong, in words.
    pub error: Option<String>,
    /// The same as an error number.
    pub errno: Option<i32>,
    /// The client's own address, by which the server knows the connection.
    pub local: Option<SocketAddr>,
    /// What the client's TCP did.
    pub info: TcpInfo,
}

impl Transfer {
    /// Makes the transfer. `progress` counts payload bytes as they arrive.
    pub fn run(&self, progress: &AtomicU64) -> Outcome {
        let called = Instant::now();
        thread::sleep(self.start_after);
        let mut outcome = Outcome { began_s: called.elapsed().as_secs_f64(), ..Outcome::default() };
        if let Err(error) = self.attempt(called, &mut outcome, progress) {
            outcome.errno = error.root_cause().downcast_ref::<io::Error>().and_then(io::Error::raw_os_error);
            outcome.error = Some(format!("{error:#}"));
            outcome.intact = false;
        }
        outcome.ended_s = called.elapsed().as_secs_f64();
        outcome
    }

    fn attempt(&self, called: Instant, outcome: &mut Outcome, progress: &AtomicU64) -> Result<()> {
        let mut stream = socket::client(&self.ns, self.to.is_ipv6(), &self.options)?;
        let mut start = Instant::now();
        socket::connect(&stream, (self.to, self.port).into(), self.patience).context("connect")?;
        outcome.connect_seconds = start.elapsed().as_secs_f64();
        outcome.local = Some(stream.local_addr()?);
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(self.patience))?;
        stream.set_write_timeout(Some(self.patience))?;
        thread::sleep(self.request_after.saturating_sub(called.elapsed()));
        if self.clock != Clock::Connect {
            start = Instant::now();
        }
        let done = match self.direction {
            Direction::Download => self.download_body(&mut stream, start, outcome, progress),
            Direction::Upload => self.upload_body(&mut stream, start, outcome, progress),
        };
        outcome.info = socket::tcp_info(&stream).unwrap_or_default();
        done
    }

    fn download_body(
        &self,
        stream: &mut TcpStream,
        mut start: Instant,
        outcome: &mut Outcome,
        progress: &AtomicU64,
    ) -> Result<()> {
        stream.write_all(format!("GET {} {}\n", self.bytes, self.seed).as_bytes()).context("sending")?;
        let mut check = Check::new(self.seed);
        let mut chunk = vec![0; CHUNK_BYTES];
        let (mut last, mut stops) = (start, self.stops);
        loop {
            let read = stream.read(&mut chunk);
            if let (Err(_), Some(at)) = (&read, check.first_difference()) {
                anyhow::bail!("byte {at} is not the one that was sent");
            }
            let n = read.with_context(|| format!("reading after {} bytes", check.bytes()))?;
            if n == 0 {
                break;
            }
            if check.bytes() == 0 && self.clock == Clock::FirstByte {
                start = Instant::now();
            }
            last = Instant::now();
            check.take(&chunk[..n]);
            outcome.bytes = check.bytes();
            let marks = outcome.bytes.checked_div(self.mark_every).unwrap_or(0) as usize;
            outcome.marks_s.resize(marks, last.duration_since(start).as_secs_f64());
            progress.fetch_add(n as u64, Ordering::Relaxed);
            if let Some((_, wait)) = stops.take_if(|(bytes, _)| outcome.bytes >= *bytes) {
                thread::sleep(wait);
            }
            if !self.pause_per_chunk.is_zero() {
                thread::sleep(self.pause_per_chunk);
            }
        }
        outcome.last_byte = Some(last);
        outcome.seconds = last.saturating_duration_since(start).as_secs_f64();
        let difference = check.first_difference();
        let (_, same) = check.finish();
        outcome.intact = same && outcome.bytes == self.bytes;
        if let Some(at) = difference {
            anyhow::bail!("byte {at} is not the one that was sent");
        }
        anyhow::ensure!(outcome.intact, "{} of {} bytes arrived", outcome.bytes, self.bytes);
        Ok(())
    }

    fn upload_body(
        &self,
        stream: &mut TcpStream,
        start: Instant,
        outcome: &mut Outcome,
        progress: &AtomicU64,
    ) -> Result<()> {
        stream.write_all(format!("PUT {} {}\n", self.bytes, self.seed).as_bytes()).context("sending")?;
        let mut counted = Counted { inner: &mut *stream, progress };
        server::send(&mut counted, self.bytes, self.seed, &mut outcome.bytes)
            .with_context(|| format!("sending after {} bytes", outcome.bytes))?;
        let mut answer = [0; 32];
        stream.read_exact(&mut answer).context("reading the server's answer")?;
        outcome.seconds = start.elapsed().as_secs_f64();
        outcome.intact = answer == sha_of(self.seed, self.bytes);
        anyhow::ensure!(outcome.intact, "what the server received is not what was sent");
        anyhow::ensure!(stream.read(&mut [0])? == 0, "bytes after the end");
        Ok(())
    }
}

struct Counted<'a> {
    inner: &'a mut TcpStream,
    progress: &'a AtomicU64,
}

impl Write for Counted<'_> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let n = self.inner.write(data)?;
        self.progress.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// SHA-256 of the first bytes of a stream.
fn sha_of(seed: u64, bytes: u64) -> [u8; 32] {
    let mut sha = Sha256::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut at = 0;
    while at < bytes {
        let n = (bytes - at).min(CHUNK_BYTES as u64) as usize;
        content::fill(seed, at, &mut chunk[..n]);
        sha.update(&chunk[..n]);
        at += n as u64;
    }
    sha.finalize().into()
}

/// Makes transfers at once, each on a thread; the outcomes stand in the order of the transfers.
/// `during` runs beside them on the caller's thread.
pub fn run_all<T>(
    transfers: &[Transfer],
    progress: &AtomicU64,
    during: impl FnOnce() -> T,
) -> (Vec<Outcome>, T) {
    thread::scope(|scope| {
        let threads: Vec<_> = transfers
            .iter()
            .map(|t| {
                let run = move || t.run(progress);
                thread::Builder::new()
                    .name("transfer".into())
                    .stack_size(STACK_BYTES)
                    .spawn_scoped(scope, run)
            })
            .collect();
        let value = during();
        let outcomes = threads
            .into_iter()
            .map(|thread| match thread.map(thread::ScopedJoinHandle::join) {
                Ok(Ok(outcome)) => outcome,
                Ok(Err(panic)) => std::panic::resume_unwind(panic),
                Err(e) => Outcome { error: Some(format!("no thread: {e}")), ..Outcome::default() },
            })
            .collect();
        (outcomes, value)
    })
}
