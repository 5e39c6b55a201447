//! The server: sends or takes seeded bytes, as the client's first line says, and tells afterwards
//! what its TCP did.
//!
//! `GET <bytes> <seed>` is answered with the bytes, then the end of the stream. `PUT <bytes>
//! <seed>` takes the bytes and answers with their SHA-256 in 32 bytes. `KEEP <bytes> <seed> <n>`,
//! followed by `n` bytes without meaning, is answered with the bytes, and the next such line
//! awaited until the client ends.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::content::{self, Check};
use super::socket::{self, TcpInfo};
use crate::netns::Ns;

/// Stack of a thread that serves one connection.
const STACK_BYTES: usize = 256 << 10;
/// Bytes written at a time.
const CHUNK_BYTES: usize = 64 << 10;
/// A request is one short line.
const REQUEST_BYTES_MAX: usize = 100;
/// A connection that stands still for so long is given up.
const PATIENCE: Duration = Duration::from_secs(1800);

/// What the server knows of a connection that has ended.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Served {
    /// Bytes sent or taken.
    pub bytes: u64,
    /// Whether the client closed in order, having read everything.
    pub orderly: bool,
    /// What went wrong.
    pub error: Option<String>,
    /// What the server's TCP did.
    pub info: TcpInfo,
    /// Its congestion control.
    pub congestion_control: String,
    /// When it began to send what the first request of a download asked for.
    pub began: Option<Instant>,
}

#[derive(Debug, Default)]
struct Shared {
    ended: Mutex<HashMap<SocketAddr, VecDeque<Served>>>,
    news: Condvar,
    stop: AtomicBool,
}

/// A running server. Dropping it ends the accepting; connections end by themselves.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    port: u16,
    listener: TcpListener,
}

impl Server {
    /// Serves on all addresses of a namespace.
    pub fn start(ns: &Ns, port: u16) -> Result<Self> {
        let listener = socket::listen(ns, port)?;
        let shared = Arc::new(Shared::default());
        listener.set_nonblocking(true)?;
        let in_thread = Arc::clone(&shared);
        let kept = listener.try_clone()?;
        thread::Builder::new().name("server".into()).spawn(move || accept_all(&listener, &in_thread))?;
        Ok(Self { shared, port, listener: kept })
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// From now on its connections send packets as large as their route says, cut into fragments
    /// where the interface takes only smaller ones.
    pub fn fragment_packets(&self) -> Result<()> {
        Ok(socket::fragment_packets(&self.listener)?)
    }

    /// What became of the connection from this client address; waits for its end.
    #[must_use]
    pub fn report(&self, client: SocketAddr, patience: Duration) -> Option<Served> {
        let end = Instant::now() + patience;
        let mut ended = self.shared.ended.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            // A client may take the same port again.
            if let Some(served) = ended.get_mut(&client).and_then(VecDeque::pop_front) {
                return Some(served);
            }
            let left = end.checked_duration_since(Instant::now())?;
            ended = self.shared.news.wait_timeout(ended, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }
}

fn accept_all(listener: &TcpListener, shared: &Arc<Shared>) {
    while !shared.stop.load(Ordering::Relaxed) {
        let mut poll =
            libc::pollfd { fd: std::os::fd::AsRawFd::as_raw_fd(listener), events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd, as said.
        unsafe { libc::poll(&raw mut poll, 1, 50) };
        while let Ok((stream, peer)) = listener.accept() {
            let shared = Arc::clone(shared);
            let serve = move || {
                let served = serve(stream);
                let mut ended = shared.ended.lock().unwrap_or_else(PoisonError::into_inner);
                ended.entry(plain(peer)).or_default().push_back(served);
                shared.news.notify_all();
            };
            // Without a thread the connection closes, which the client reports.
            let _ = thread::Builder::new().name("serve".into()).stack_size(STACK_BYTES).spawn(serve);
        }
    }
}

/// IPv4 clients of a socket for both families have mapped addresses.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn serve(mut stream: TcpStream) -> Served {
    let mut served = Served::default();
    if let Err(error) = serve_request(&mut stream, &mut served) {
        served.error = Some(error.to_string());
    }
    served.info = socket::tcp_info(&stream).unwrap_or_default();
    served.congestion_control = socket::congestion_control(&stream).unwrap_or_default();
    served
}

fn serve_request(stream: &mut TcpStream, served: &mut Served) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = read_line(stream)?;
    while let Some(question) = line.strip_prefix("KEEP ") {
        answer(stream, question, &mut served.bytes)?;
        line = read_line(stream)?;
        if line.is_empty() {
            served.orderly = true;
            return stream.shutdown(Shutdown::Write);
        }
    }
    let words: Vec<_> = line.split(' ').collect();
    let bad = || bad_request(&line);
    let [verb, bytes, seed] = words[..] else { return Err(bad()) };
    let (bytes, seed) = (bytes.parse().map_err(|_| bad())?, seed.parse().map_err(|_| bad())?);
    match verb {
        "GET" => {
            served.began = Some(Instant::now());
            send(stream, bytes, seed, &mut served.bytes)?;
        }
        "PUT" => {
            let sha = take(stream, bytes, seed, &mut served.bytes)?;
            stream.write_all(&sha)?;
        }
        _ => return Err(bad()),
    }
    stream.shutdown(Shutdown::Write)?;
    served.orderly = stream.read(&mut [0])? == 0;
    Ok(())
}

fn bad_request(line: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not a request: {line:?}"))
}

/// Answers one question of several on a connection.
fn answer(stream: &mut TcpStream, question: &str, sent: &mut u64) -> io::Result<()> {
    let bad = || bad_request(question);
    let numbers: Vec<u64> = question.split(' ').map_while(|word| word.parse().ok()).collect();
    let [bytes, seed, pad] = numbers[..] else { return Err(bad()) };
    if io::copy(&mut stream.take(pad), &mut io::sink())? < pad {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut sent_now = 0;
    let outcome = send(stream, bytes, seed, &mut sent_now);
    *sent += sent_now;
    outcome
}

fn read_line(stream: &mut TcpStream) -> io::Result<String> {
    let mut line = Vec::new();
    let mut byte = [0];
    while line.len() < REQUEST_BYTES_MAX && stream.read(&mut byte)? == 1 && byte != *b"\n" {
        line.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(&line).into_owned())
}

/// Sends the first `bytes` of stream `seed`, counting.
pub(super) fn send(stream: &mut impl Write, bytes: u64, seed: u64, sent: &mut u64) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES];
    while *sent < bytes {
        let n = (bytes - *sent).min(CHUNK_BYTES as u64) as usize;
        content::fill(seed, *sent, &mut chunk[..n]);
        stream.write_all(&chunk[..n])?;
        *sent += n as u64;
    }
    Ok(())
}

fn take(stream: &mut TcpStream, bytes: u64, seed: u64, taken: &mut u64) -> io::Result<[u8; 32]> {
    let mut check = Check::new(seed);
    let mut chunk = vec![0; CHUNK_BYTES];
    while *taken < bytes {
        let room = (bytes - *taken).min(CHUNK_BYTES as u64) as usize;
        let n = stream.read(&mut chunk[..room])?;
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        check.take(&chunk[..n]);
        *taken += n as u64;
    }
    Ok(check.finish().0)
}
