//! How precise the emulated link is, measured by datagrams across it: one-way delay against what
//! was asked for, and rate.
//!
//! Sender and receiver share the machine's clock, so one-way times are exact; the receiver uses the
//! kernel's own time stamps, so its wake-up does not count.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use farlink_wire::Duration;

use crate::clock;
use crate::error::{Context, Error, Result};
use crate::event_loop::precise_timers;
use crate::netlink::set_option;
use crate::netns::Namespace;

/// IP and UDP headers of a datagram.
const fn header_bytes(address: IpAddr) -> usize {
    if address.is_ipv4() { 28 } else { 48 }
}

/// Quantiles of a sample, in nanoseconds, signed: positive is late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Quantiles {
    /// Number of values.
    pub count: usize,
    /// Median.
    pub p50_ns: i64,
    /// 99th percentile of the absolute values.
    pub p99_abs_ns: i64,
    /// Largest absolute value.
    pub max_abs_ns: i64,
}

impl Quantiles {
    /// Of these values; `None` of nothing.
    #[must_use]
    pub fn of(mut values: Vec<i64>) -> Option<Self> {
        values.sort_unstable();
        let p50_ns = *values.get(values.len() / 2)?;
        let mut absolute: Vec<i64> = values.iter().map(|v| v.abs()).collect();
        absolute.sort_unstable();
        let rank = (absolute.len() * 99).div_ceil(100).saturating_sub(1);
        Some(Self {
            count: values.len(),
            p50_ns,
            p99_abs_ns: *absolute.get(rank)?,
            max_abs_ns: *absolute.last()?,
        })
    }
}

/// Sends `count` datagrams of `bytes` (IP length), one each `interval`, from one namespace to an
/// address in another, and compares the time each takes with `expected`. Lost ones do not count.
pub fn delay_error(
    from: &Namespace,
    to: &Namespace,
    address: IpAddr,
    probe: &DelayProbe,
) -> Result<Option<Quantiles>> {
    let receiver = to.run(|| receiver(address))?;
    let sender = from.run(|| sender(&receiver))?;
    let size = probe.bytes.saturating_sub(header_bytes(address)).max(16);
    let (count, interval) = (probe.count, probe.interval);
    let sending = std::thread::spawn(move || -> io::Result<()> {
        precise_timers();
        let mut datagram = vec![0u8; size];
        let mut next = clock::now();
        for _ in 0..count {
            next += interval;
            std::thread::sleep(next.since(clock::now()));
            let stamp = clock::now().as_nanos();
            if let Some(place) = datagram.first_chunk_mut::<8>() {
                *place = stamp.to_ne_bytes();
            }
            sender.send(&datagram)?;
        }
        Ok(())
    });
    let mut errors = Vec::new();
    let expected = i64::try_from(probe.expected.as_nanos()).unwrap_or(i64::MAX);
    let mut buffer = vec![0u8; 65_536];
    while errors.len() < count {
        let Ok((_, at)) = receive(&receiver, &mut buffer) else { break };
        if let Some(stamp) = buffer.first_chunk::<8>() {
            let taken = at.cast_signed() - u64::from_ne_bytes(*stamp).cast_signed();
            errors.push(taken - expected);
        }
    }
    match sending.join() {
        Ok(outcome) => outcome.context(|| "sending probes".to_owned())?,
        Err(_) => return Err(Error::Refused("the thread that sends probes died".to_owned())),
    }
    Ok(Quantiles::of(errors))
}

/// How [`delay_error`] probes.
#[derive(Clone, Copy, Debug)]
pub struct DelayProbe {
    /// Datagrams.
    pub count: usize,
    /// Between two of them.
    pub interval: Duration,
    /// IP length of each, in bytes.
    pub bytes: usize,
    /// What each should take: delay, and `8 * bytes / rate`.
    pub expected: Duration,
}

/// Overfills the link with datagrams of `bytes` (IP length) and returns the rate of IP bytes at the
/// other end, in bit/s, over `length` after a start-up of the same length.
pub fn rate(
    from: &Namespace,
    to: &Namespace,
    address: IpAddr,
    bytes: usize,
    offered_bps: f64,
    length: Duration,
) -> Result<f64> {
    let receiver = to.run(|| receiver(address))?;
    let sender = from.run(|| sender(&receiver))?;
    let size = bytes.saturating_sub(header_bytes(address));
    let is_over = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&is_over);
    let sending = std::thread::spawn(move || {
        precise_timers();
        let datagram = vec![0u8; size];
        let gap = Duration::from_secs_f64(8.0 * bytes as f64 / offered_bps);
        let mut next = clock::now();
        while !stop.load(Ordering::Relaxed) {
            // What is refused for a moment is sent too late to matter: the link is overfilled
            // anyway.
            let _ = sender.send(&datagram);
            next += gap;
            let ahead = next.since(clock::now());
            if ahead > Duration::from_micros(200) {
                std::thread::sleep(ahead);
            }
        }
    });
    let mut buffer = vec![0u8; 65_536];
    let mut first: Option<u64> = None;
    let (mut begin, mut last, mut total) = (None, 0u64, 0u64);
    let span = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
    while let Ok((n, at)) = receive(&receiver, &mut buffer) {
        let start = *first.get_or_insert(at);
        if at < start + span {
            continue;
        }
        match begin {
            None => begin = Some(at),
            Some(_) => {
                total += (n + header_bytes(address)) as u64;
                last = at;
            }
        }
        if at >= start + 2 * span {
            break;
        }
    }
    is_over.store(true, Ordering::Relaxed);
    let _ = sending.join();
    match begin {
        Some(begin) if last > begin => Ok(8.0 * total as f64 * 1e9 / (last - begin) as f64),
        _ => Err(Error::Refused("nothing came through the emulated link".to_owned())),
    }
}

fn receiver(address: IpAddr) -> Result<UdpSocket> {
    let socket = UdpSocket::bind((address, 0)).context(|| format!("opening a socket on {address}"))?;
    socket.set_read_timeout(Some(Duration::from_secs(5))).context(|| "setting a time limit".to_owned())?;
    // Without privilege the default has to do.
    let _ = set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 64 << 20);
    set_option(&socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)
        .context(|| "asking for time stamps".to_owned())?;
    Ok(socket)
}

fn sender(receiver: &UdpSocket) -> Result<UdpSocket> {
    let to = receiver.local_addr().context(|| "reading a socket's address".to_owned())?;
    let any: SocketAddr = if to.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
    let socket = UdpSocket::bind(any).context(|| "opening a socket".to_owned())?;
    let _ = set_option(&socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, 64 << 20);
    socket.connect(to).context(|| format!("connecting to {to}"))?;
    Ok(socket)
}

/// Length of a datagram and the time at which the kernel got it, on CLOCK_MONOTONIC.
fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<(usize, u64)> {
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let mut control = [0u64; 16];
    // SAFETY: msghdr is plain data, zero is a valid value of each field.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    // Of another type with another C library.
    message.msg_controllen = size_of_val(&control) as _;
    // SAFETY: all buffers are alive and unshared through the call.
    let n = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) };
    let n = usize::try_from(n).map_err(|_| io::Error::last_os_error())?;
    let (stamp, _) = super::wire::read_control(&message);
    let at = stamp.map_or_else(|| clock::now().as_nanos(), |s| s.saturating_sub(clock::realtime_offset_ns()));
    Ok((n, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_known_samples() {
        let q = Quantiles::of((-10..=90).collect()).unwrap();
        assert_eq!((q.count, q.p50_ns, q.p99_abs_ns, q.max_abs_ns), (101, 40, 89, 90));
        assert_eq!(Quantiles::of(Vec::new()), None);
        assert_eq!(Quantiles::of(vec![-5]).unwrap().max_abs_ns, 5);
    }
}
