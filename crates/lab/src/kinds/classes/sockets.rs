//! Messages and transfers with sockets, in the namespaces of a laboratory.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use portable_atomic::AtomicU64;

use super::{CONNECTIONS, Carrier, Heard, Message, Plan, SETTLE};
use crate::build::Lab;
use crate::workload::content;
use crate::workload::socket::{self, Options};

/// Ports of the server: of datagrams, of messages over TCP, of the transfers.
const PORTS: [u16; 3] = [5002, 5003, 5004];
/// Headers of a datagram, IP and UDP: over IPv4, and over IPv6.
const UDP_HEADERS_BYTES: [u64; 2] = [28, 48];
const PATIENCE: Duration = Duration::from_secs(10);
/// A read looks so often whether all is over.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const CHUNK_BYTES: usize = 64 << 10;
/// Seed of the bytes of a transfer.
const BULK_SEED: u64 = 7;

/// What threads share.
struct Shared<'a> {
    plan: &'a Plan,
    began: Instant,
    is_over: AtomicBool,
    /// Seconds since the beginning at which each message was written, and read.
    written_s: Mutex<Vec<Option<f64>>>,
    read_s: Mutex<Vec<Option<f64>>>,
    bulk_bytes: AtomicU64,
    write_pause_us: AtomicU64,
    error: Mutex<Option<String>>,
}

impl Shared<'_> {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn note(&self, times: &Mutex<Vec<Option<f64>>>, number: usize) {
        let mut times = times.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(time) = times.get_mut(number) {
            time.get_or_insert(self.began.elapsed().as_secs_f64());
        }
    }

    fn fail(&self, e: impl std::fmt::Display) {
        if !self.is_over() {
            let mut error = self.error.lock().unwrap_or_else(PoisonError::into_inner);
            error.get_or_insert_with(|| e.to_string());
        }
    }

    /// Calls `send` with each message when it is due.
    fn send(&self, mut send: impl FnMut(usize, &Message) -> std::io::Result<()>) {
        for (number, message) in self.plan.messages.iter().enumerate() {
            thread::sleep(message.at.saturating_sub(self.began.elapsed()));
            self.note(&self.written_s, number);
            if let Err(e) = send(number, message) {
                return self.fail(format!("message {number}: {e}"));
            }
        }
    }
}

/// A connection from the client to the server: the end that is written, and the one that is read.
fn connect(lab: &Lab, plan: &Plan, to: IpAddr, port: u16, dscp: u8) -> Result<(TcpStream, TcpStream)> {
    let listener: TcpListener = socket::listen(&lab.ns("server"), port)?;
    let stream = socket::client(&lab.ns("client"), plan.v6, &Options { dscp, ..Options::default() })?;
    socket::connect(&stream, (to, port).into(), PATIENCE).context("connect")?;
    let (far, _) = listener.accept()?;
    let (writer, reader) = if plan.is_down { (far, stream) } else { (stream, far) };
    writer.set_nodelay(true)?;
    // A connection that began alone may have handed over much before others have their parts.
    writer.set_write_timeout(None)?;
    reader.set_read_timeout(Some(LOOK_EVERY))?;
    Ok((writer, reader))
}

/// Runs the messages of a plan once, and the transfers beside them if they are wanted.
pub(super) fn play(lab: &Lab, plan: &Plan, has_bulk: bool) -> Result<Heard> {
    let to = lab.address("server", plan.v6)?;
    let any: IpAddr = if plan.v6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    let here = lab.ns("client").enter(|| Ok(UdpSocket::bind((any, 0))?))?;
    let (message_dscp, bulk_dscp) = plan.dscps();
    socket::set_dscp(here.as_raw_fd(), plan.v6, message_dscp)?;
    let there = lab.ns("server").enter(|| Ok(UdpSocket::bind((any, PORTS[0]))?))?;
    there.set_read_timeout(Some(LOOK_EVERY))?;
    let count = if plan.carrier == Carrier::Tcp { CONNECTIONS } else { 0 };
    let talks: Vec<_> =
        (0..count).map(|_| connect(lab, plan, to, PORTS[1], message_dscp)).collect::<Result<_>>()?;
    let bulks = if has_bulk { plan.bulks } else { 0 };
    let bulks: Vec<_> =
        (0..bulks).map(|_| connect(lab, plan, to, PORTS[2], bulk_dscp)).collect::<Result<_>>()?;
    let shared = Shared {
        plan,
        began: Instant::now(),
        is_over: AtomicBool::new(false),
        written_s: Mutex::new(vec![None; plan.messages.len()]),
        read_s: Mutex::new(vec![None; plan.messages.len()]),
        bulk_bytes: AtomicU64::new(0),
        write_pause_us: AtomicU64::new(0),
        error: Mutex::new(None),
    };
    let mut bulk_bytes = [0; 2];
    thread::scope(|scope| {
        let shared = &shared;
        for (writer, reader) in &bulks {
            scope.spawn(move || write_bulk(shared, writer));
            scope.spawn(move || read_bulk(shared, reader));
        }
        match plan.carrier {
            Carrier::Udp => {
                scope.spawn(|| read_datagrams(shared, &there));
                scope.spawn(|| send_datagrams(shared, &here, (to, PORTS[0]).into()));
            }
            Carrier::Tcp => {
                for (connection, (_, far)) in talks.iter().enumerate() {
                    scope.spawn(move || read_messages(shared, connection, far));
                }
                scope.spawn(|| send_messages(shared, &talks));
            }
        }
        for (time, bytes) in [plan.window.0, plan.window.1].into_iter().zip(&mut bulk_bytes) {
            thread::sleep(time.saturating_sub(shared.began.elapsed()));
            *bytes = shared.bulk_bytes.load(Ordering::Relaxed);
        }
        thread::sleep((plan.window.1 + SETTLE).saturating_sub(shared.began.elapsed()));
        shared.is_over.store(true, Ordering::Relaxed);
        for (writer, _) in talks.iter().chain(&bulks) {
            let _ = writer.shutdown(Shutdown::Both);
        }
    });
    let (written, read) = (shared.written_s.into_inner(), shared.read_s.into_inner());
    let (written, read) =
        (written.unwrap_or_else(PoisonError::into_inner), read.unwrap_or_else(PoisonError::into_inner));
    let delays_s = written.iter().zip(&read).map(|(from, to)| Some((*to)? - (*from)?)).collect();
    let error = shared.error.into_inner().unwrap_or_else(PoisonError::into_inner);
    let write_pause_s = has_bulk.then(|| shared.write_pause_us.into_inner() as f64 / 1e6);
    Ok(Heard { delays_s, bulk_bytes, write_pause_s, error })
}

fn send_datagrams(shared: &Shared<'_>, socket: &UdpSocket, to: SocketAddr) {
    let headers_bytes = UDP_HEADERS_BYTES[usize::from(shared.plan.v6)];
    shared.send(|number, message| {
        let mut bytes = vec![0; (message.bytes - headers_bytes) as usize];
        bytes[..4].copy_from_slice(&(number as u32).to_be_bytes());
        socket.send_to(&bytes, to).map(drop)
    });
}

fn read_datagrams(shared: &Shared<'_>, socket: &UdpSocket) {
    let mut bytes = [0; 2048];
    while !shared.is_over() {
        let Ok(n) = socket.recv(&mut bytes) else { continue };
        if let Some(number) = bytes[..n].first_chunk() {
            shared.note(&shared.read_s, u32::from_be_bytes(*number) as usize);
        }
    }
}

fn send_messages(shared: &Shared<'_>, talks: &[(TcpStream, TcpStream)]) {
    shared.send(|_, message| {
        let bytes = vec![b'.'; message.bytes as usize];
        (&talks[message.connection].0).write_all(&bytes)
    });
}

fn read_messages(shared: &Shared<'_>, connection: usize, mut stream: &TcpStream) {
    let own = shared.plan.messages.iter().enumerate().filter(|(_, m)| m.connection == connection);
    let (mut read, mut due) = (0, 0);
    let mut bytes = [0; 4096];
    for (number, message) in own {
        due += message.bytes;
        while read < due {
            match stream.read(&mut bytes) {
                Ok(0) => return shared.fail(format!("connection {connection} has ended")),
                Ok(n) => read += n as u64,
                Err(_) if shared.is_over() => return,
                Err(e) if is_timeout(&e) => {}
                Err(e) => return shared.fail(format!("connection {connection}: {e}")),
            }
        }
        shared.note(&shared.read_s, number);
    }
}

fn is_timeout(e: &std::io::Error) -> bool {
    matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
}

fn write_bulk(shared: &Shared<'_>, mut stream: &TcpStream) {
    let mut bytes = vec![0; CHUNK_BYTES];
    let mut at = 0;
    while at < shared.plan.bulk_bytes && !shared.is_over() {
        content::fill(BULK_SEED, at, &mut bytes);
        let from = Instant::now();
        // At the end it is shut down, which ends the last pause, too.
        let outcome = stream.write_all(&bytes);
        let pause_us = u64::try_from(from.elapsed().as_micros()).unwrap_or(u64::MAX);
        shared.write_pause_us.fetch_max(pause_us, Ordering::Relaxed);
        if let Err(e) = outcome {
            return shared.fail(format!("the transfer: {e}"));
        }
        at += bytes.len() as u64;
    }
}

fn read_bulk(shared: &Shared<'_>, mut stream: &TcpStream) {
    let (mut bytes, mut wanted) = (vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]);
    let mut at = 0;
    while !shared.is_over() {
        let n = match stream.read(&mut bytes) {
            Ok(0) => return shared.fail("the transfer has ended"),
            Ok(n) => n,
            Err(e) if is_timeout(&e) => continue,
            Err(e) => return shared.fail(format!("the transfer: {e}")),
        };
        content::fill(BULK_SEED, at, &mut wanted[..n]);
        if bytes[..n] != wanted[..n] {
            return shared.fail(format!("the transfer: not what was sent, from byte {at} on"));
        }
        at += n as u64;
        shared.bulk_bytes.fetch_add(n as u64, Ordering::Relaxed);
    }
}
