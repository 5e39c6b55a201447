//! A socket, with the calls as an application sees them: results and error names, nothing hidden.

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::errno::{Errno, SysResult};
use super::host::Host;
use super::sockaddr::RawAddr;

/// How long a call may block before the case calls it hung. Longer than any wait that a case
/// provokes.
const CALL_LIMIT: Duration = Duration::from_secs(100);

/// IPv4 or IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// `AF_INET` or `AF_INET6`.
    pub fn domain(self) -> i32 {
        match self {
            Family::V4 => libc::AF_INET,
            Family::V6 => libc::AF_INET6,
        }
    }

    /// The suffix of case names.
    pub fn suffix(self) -> &'static str {
        match self {
            Family::V4 => "v4",
            Family::V6 => "v6",
        }
    }

    /// One of two values.
    pub fn pick<T>(self, v4: T, v6: T) -> T {
        match self {
            Family::V4 => v4,
            Family::V6 => v6,
        }
    }
}

/// The parts of `struct tcp_info` that cases look at.
#[derive(Clone, Copy, Debug)]
pub struct TcpInfo {
    /// `TCPI_OPT_*` bits: 1 timestamps, 2 SACK, 4 window scale, 8 ECN, 16 ECN seen, 32 data in SYN
    /// accepted.
    pub options: u8,
    /// Maximum segment size for sending, in bytes.
    pub snd_mss: u32,
    /// Path MTU known to the socket, in bytes.
    pub pmtu: u32,
    /// Bytes acknowledged by the far side.
    pub bytes_acked: u64,
    /// Bytes received in order.
    pub bytes_received: u64,
    /// Segments delivered with a congestion mark.
    pub delivered_ce: u32,
}

/// An open socket.
#[derive(Debug)]
pub struct Sock(OwnedFd);

fn check(result: i32) -> SysResult<i32> {
    if result < 0 { Err(Errno::last()) } else { Ok(result) }
}

/// Repeats a call that a stop signal has interrupted (signal(7): calls with a time-out are not
/// restarted).
fn retried<T>(mut call: impl FnMut() -> SysResult<T>) -> SysResult<T> {
    loop {
        match call() {
            Err(Errno(libc::EINTR)) => {}
            result => return result,
        }
    }
}

fn retried_len(mut call: impl FnMut() -> isize) -> SysResult<usize> {
    retried(|| usize::try_from(call()).map_err(|_| Errno::last()))
}

impl Sock {
    /// Any socket inside the namespace of `host`.
    pub fn new(host: &Host, domain: i32, kind: i32, protocol: i32) -> Result<Sock> {
        // SAFETY: a plain system call without pointers.
        let fd =
            host.enter(|| check(unsafe { libc::socket(domain, kind | libc::SOCK_CLOEXEC, protocol) }))?;
        let fd = fd.with_context(|| format!("socket({domain}, {kind}, {protocol})"))?;
        // SAFETY: the descriptor is new and ours alone.
        let sock = Sock(unsafe { OwnedFd::from_raw_fd(fd) });
        sock.limit(CALL_LIMIT)?;
        Ok(sock)
    }

    /// A TCP socket.
    pub fn tcp(host: &Host, family: Family) -> Result<Sock> {
        Sock::new(host, family.domain(), libc::SOCK_STREAM, libc::IPPROTO_TCP)
    }

    /// A UDP socket.
    pub fn udp(host: &Host, family: Family) -> Result<Sock> {
        Sock::new(host, family.domain(), libc::SOCK_DGRAM, libc::IPPROTO_UDP)
    }

    /// A raw socket of one IP protocol.
    pub fn raw(host: &Host, family: Family, protocol: i32) -> Result<Sock> {
        Sock::new(host, family.domain(), libc::SOCK_RAW, protocol)
    }

    /// The descriptor.
    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Limits how long each blocking call may take.
    pub fn limit(&self, limit: Duration) -> SysResult<()> {
        let time = libc::timeval {
            tv_sec: limit.as_secs() as libc::time_t,
            tv_usec: libc::suseconds_t::from(limit.subsec_micros()),
        };
        self.set_struct(libc::SOL_SOCKET, libc::SO_RCVTIMEO, &time)?;
        self.set_struct(libc::SOL_SOCKET, libc::SO_SNDTIMEO, &time)
    }

    fn set_struct<T: Copy>(&self, level: i32, name: i32, value: &T) -> SysResult<()> {
        // SAFETY: T is plain data made for this option; its size is passed along.
        let bytes = unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) };
        self.set_bytes(level, name, bytes)
    }

    /// `setsockopt` with bytes.
    pub fn set_bytes(&self, level: i32, name: i32, value: &[u8]) -> SysResult<()> {
        let len = value.len() as libc::socklen_t;
        // SAFETY: pointer and length describe `value`.
        check(unsafe { libc::setsockopt(self.fd(), level, name, value.as_ptr().cast(), len) }).map(drop)
    }

    /// `setsockopt` with an integer.
    pub fn set(&self, level: i32, name: i32, value: i32) -> SysResult<()> {
        self.set_bytes(level, name, &value.to_ne_bytes())
    }

    /// `getsockopt` with bytes; how many the kernel wrote.
    pub fn get_bytes(&self, level: i32, name: i32, value: &mut [u8]) -> SysResult<usize> {
        let mut len = value.len() as libc::socklen_t;
        // SAFETY: pointer and length describe `value`.
        let done =
            unsafe { libc::getsockopt(self.fd(), level, name, value.as_mut_ptr().cast(), &raw mut len) };
        check(done).map(|_| len as usize)
    }

    /// `getsockopt` with an integer.
    pub fn get(&self, level: i32, name: i32) -> SysResult<i32> {
        let mut value = [0; 4];
        self.get_bytes(level, name, &mut value)?;
        Ok(i32::from_ne_bytes(value))
    }

    /// Sets a TCP option.
    pub fn tcp_option(&self, name: i32, value: i32) -> SysResult<()> {
        self.set(libc::IPPROTO_TCP, name, value)
    }

    /// Binds, with `SO_REUSEADDR`.
    pub fn bind(&self, addr: SocketAddr) -> SysResult<()> {
        self.set(libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
        let addr = RawAddr::new(addr);
        // SAFETY: pointer and length describe the address.
        check(unsafe { libc::bind(self.fd(), addr.as_ptr(), addr.size()) }).map(drop)
    }

    /// Listens.
    pub fn listen(&self, backlog: i32) -> SysResult<()> {
        // SAFETY: no pointers.
        check(unsafe { libc::listen(self.fd(), backlog) }).map(drop)
    }

    /// Accepts one connection.
    pub fn accept(&self) -> SysResult<Sock> {
        let null = std::ptr::null_mut();
        // SAFETY: null address pointers are allowed.
        let accept = || unsafe { libc::accept4(self.fd(), null, std::ptr::null_mut(), libc::SOCK_CLOEXEC) };
        let fd = retried(|| check(accept()))?;
        // SAFETY: the descriptor is new and ours alone.
        let sock = Sock(unsafe { OwnedFd::from_raw_fd(fd) });
        sock.limit(CALL_LIMIT)?;
        Ok(sock)
    }

    /// Connects.
    pub fn connect(&self, to: SocketAddr) -> SysResult<()> {
        let addr = RawAddr::new(to);
        // SAFETY: pointer and length describe the address.
        let result = check(unsafe { libc::connect(self.fd(), addr.as_ptr(), addr.size()) });
        if result != Err(Errno(libc::EINTR)) {
            return result.map(drop);
        }
        // Interrupted: it goes on by itself.
        self.poll(libc::POLLOUT, CALL_LIMIT)?;
        self.take_error().map_or(Ok(()), Err)
    }

    /// The local address.
    pub fn local(&self) -> SysResult<SocketAddr> {
        let mut addr = RawAddr::empty();
        let (pointer, len) = addr.as_mut();
        // SAFETY: the pointers describe room for an address.
        check(unsafe { libc::getsockname(self.fd(), pointer, len) })?;
        addr.get().ok_or(Errno(libc::EAFNOSUPPORT))
    }

    /// Sends; how many bytes were taken. Never raises SIGPIPE.
    pub fn send(&self, data: &[u8], flags: i32) -> SysResult<usize> {
        let flags = flags | libc::MSG_NOSIGNAL;
        // SAFETY: pointer and length describe `data`.
        retried_len(|| unsafe { libc::send(self.fd(), data.as_ptr().cast(), data.len(), flags) })
    }

    /// Sends everything, or says how much went before the error.
    pub fn send_all(&self, data: &[u8]) -> Result<(), (usize, Errno)> {
        let mut sent = 0;
        while sent < data.len() {
            sent += self.send(&data[sent..], 0).map_err(|errno| (sent, errno))?;
        }
        Ok(())
    }

    /// Sends to an address.
    pub fn send_to(&self, data: &[u8], to: SocketAddr, flags: i32) -> SysResult<usize> {
        let addr = RawAddr::new(to);
        let flags = flags | libc::MSG_NOSIGNAL;
        let (data, len) = (data.as_ptr().cast(), data.len());
        // SAFETY: pointers and lengths describe the data and the address.
        retried_len(|| unsafe { libc::sendto(self.fd(), data, len, flags, addr.as_ptr(), addr.size()) })
    }

    /// Receives; 0 is the end of the stream.
    pub fn recv(&self, into: &mut [u8], flags: i32) -> SysResult<usize> {
        // SAFETY: pointer and length describe `into`.
        retried_len(|| unsafe { libc::recv(self.fd(), into.as_mut_ptr().cast(), into.len(), flags) })
    }

    /// Receives a datagram and who sent it.
    pub fn recv_from(&self, into: &mut [u8]) -> SysResult<(usize, Option<SocketAddr>)> {
        let mut addr = RawAddr::empty();
        let (pointer, len) = addr.as_mut();
        // SAFETY: pointers and lengths describe `into` and room for an address.
        let got = retried_len(|| unsafe {
            libc::recvfrom(self.fd(), into.as_mut_ptr().cast(), into.len(), 0, pointer, len)
        })?;
        Ok((got, addr.get()))
    }

    /// Ends the sending direction.
    pub fn shutdown_write(&self) -> SysResult<()> {
        // SAFETY: no pointers.
        check(unsafe { libc::shutdown(self.fd(), libc::SHUT_WR) }).map(drop)
    }

    /// Closes with an RST (`SO_LINGER` of zero).
    pub fn abort(self) -> SysResult<()> {
        self.set_struct(libc::SOL_SOCKET, libc::SO_LINGER, &libc::linger { l_onoff: 1, l_linger: 0 })
    }

    /// Waits for events; those that came, 0 after `limit`.
    pub fn poll(&self, events: i16, limit: Duration) -> SysResult<i16> {
        let deadline = Instant::now() + limit;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let mut poll = libc::pollfd { fd: self.fd(), events, revents: 0 };
            // SAFETY: one valid pollfd.
            match check(unsafe { libc::poll(&raw mut poll, 1, left.as_millis() as i32) }) {
                Err(Errno(libc::EINTR)) => {}
                Err(errno) => return Err(errno),
                Ok(_) => return Ok(poll.revents),
            }
        }
    }

    /// The pending error of the socket (`SO_ERROR`), cleared by reading it.
    pub fn take_error(&self) -> Option<Errno> {
        self.get(libc::SOL_SOCKET, libc::SO_ERROR).ok().filter(|&code| code != 0).map(Errno)
    }

    fn ioctl_int(&self, request: libc::c_ulong) -> SysResult<i32> {
        let mut value: libc::c_int = 0;
        // SAFETY: both requests used here write one int.
        check(unsafe { libc::ioctl(self.fd(), request as _, &raw mut value) })?;
        Ok(value)
    }

    /// Bytes written but not yet acknowledged by whatever answers for the far side (`SIOCOUTQ`).
    pub fn unacknowledged(&self) -> SysResult<i32> {
        self.ioctl_int(libc::TIOCOUTQ)
    }

    /// Waits until everything written is acknowledged; false if it is not by then.
    pub fn wait_acknowledged(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        while Instant::now() < deadline {
            if self.unacknowledged() == Ok(0) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        false
    }

    /// Waits until so many bytes have been received in order, read or not; false if they are not by
    /// then.
    pub fn wait_received(&self, bytes: u64, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        while Instant::now() < deadline {
            if self.info().is_ok_and(|info| info.bytes_received >= bytes) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        false
    }

    /// Whether the next byte is the one after the urgent mark (`SIOCATMARK`).
    pub fn at_mark(&self) -> SysResult<bool> {
        const SIOCATMARK: libc::c_ulong = 0x8905;
        self.ioctl_int(SIOCATMARK).map(|value| value != 0)
    }

    /// `TCP_INFO`.
    pub fn info(&self) -> SysResult<TcpInfo> {
        // Offsets in struct tcp_info, linux/tcp.h; the structure only ever grows at its end.
        let mut bytes = [0; 232];
        self.get_bytes(libc::IPPROTO_TCP, libc::TCP_INFO, &mut bytes)?;
        let word = |at: usize| {
            bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |&word| u32::from_ne_bytes(word))
        };
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        Ok(TcpInfo {
            options: bytes[5],
            snd_mss: word(16),
            pmtu: word(60),
            bytes_acked: long(120),
            bytes_received: long(128),
            delivered_ce: word(196),
        })
    }

    /// (SND.NXT, RCV.NXT) of an established connection that is at rest, read in repair mode without
    /// sending anything. Needs CAP_NET_ADMIN.
    pub fn sequence(&self) -> SysResult<(u32, u32)> {
        const TCP_QUEUE_SEQ: i32 = 21;
        self.tcp_option(libc::TCP_REPAIR, 1)?;
        let read = |queue: i32| {
            self.tcp_option(libc::TCP_REPAIR_QUEUE, queue)?;
            self.get(libc::IPPROTO_TCP, TCP_QUEUE_SEQ).map(|value| value as u32)
        };
        let (receive, send) = (read(1), read(2));
        self.tcp_option(libc::TCP_REPAIR, -1)?;
        // Leaving repair mode takes SO_REUSEADDR away, and a later TIME-WAIT would hold the port.
        self.set(libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
        Ok((send?, receive?))
    }

    /// Chooses the initial sequence number of a connection about to be opened. Needs CAP_NET_ADMIN.
    pub fn choose_isn(&self, isn: u32) -> SysResult<()> {
        const TCP_QUEUE_SEQ: i32 = 21;
        self.tcp_option(libc::TCP_REPAIR, 1)?;
        self.tcp_option(libc::TCP_REPAIR_QUEUE, 2)?;
        self.tcp_option(TCP_QUEUE_SEQ, isn as i32)?;
        self.tcp_option(libc::TCP_REPAIR_QUEUE, 0)?;
        self.tcp_option(libc::TCP_REPAIR, 0)
    }
}
