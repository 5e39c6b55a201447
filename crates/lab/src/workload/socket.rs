//! Sockets with what the standard library leaves out: made in a namespace, congestion control,
//! DSCP, TCP_INFO.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::netns::Ns;

/// How a client's socket is made.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// TCP_CONGESTION; empty: what route and kernel say.
    pub congestion_control: String,
    /// DSCP of everything it sends.
    pub dscp: u8,
    /// Receive buffer in bytes; 0: the kernel's own.
    pub receive_buffer_bytes: u32,
}

/// What TCP_INFO says of a socket, as far as it is reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TcpInfo {
    /// Segments sent again.
    pub retransmits: u32,
    /// Payload bytes sent again.
    pub retransmitted_bytes: u64,
    /// Payload bytes sent, repetitions included.
    pub sent_bytes: u64,
    /// Least round-trip time seen, microseconds.
    pub min_rtt_us: u32,
    /// Payload of the largest segment that came, as far as the kernel estimates it, bytes.
    pub received_segment_bytes: u32,
}

fn check(outcome: libc::c_int) -> io::Result<libc::c_int> {
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(outcome) }
}

fn set_int(fd: RawFd, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    // SAFETY: an int option with its size.
    check(unsafe {
        libc::setsockopt(
            fd,
            level,
            name,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    })
    .map(drop)
}

/// Sets the DSCP of all that a socket of this family sends.
pub fn set_dscp(fd: RawFd, v6: bool, dscp: u8) -> io::Result<()> {
    let (level, name) =
        if v6 { (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) } else { (libc::IPPROTO_IP, libc::IP_TOS) };
    set_int(fd, level, name, libc::c_int::from(dscp) << 2)
}

/// Sets TCP_CONGESTION.
pub fn set_congestion_control(fd: RawFd, name: &str) -> io::Result<()> {
    // SAFETY: bytes with their length.
    check(unsafe {
        let length = name.len() as libc::socklen_t;
        libc::setsockopt(fd, libc::IPPROTO_TCP, libc::TCP_CONGESTION, name.as_ptr().cast(), length)
    })
    .map(drop)
}

/// The congestion control of a socket.
pub fn congestion_control(stream: &TcpStream) -> io::Result<String> {
    let mut name = [0u8; 16];
    let mut length = name.len() as libc::socklen_t;
    // SAFETY: the buffer with its length.
    check(unsafe {
        let fd = stream.as_raw_fd();
        libc::getsockopt(
            fd,
            libc::IPPROTO_TCP,
            libc::TCP_CONGESTION,
            name.as_mut_ptr().cast(),
            &raw mut length,
        )
    })?;
    Ok(String::from_utf8_lossy(&name).trim_end_matches('\0').to_string())
}

fn info(stream: &TcpStream) -> io::Result<[u8; 256]> {
    let mut info = [0u8; 256];
    let mut length = info.len() as libc::socklen_t;
    // SAFETY: the buffer with its length.
    check(unsafe {
        let fd = stream.as_raw_fd();
        libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, info.as_mut_ptr().cast(), &raw mut length)
    })?;
    Ok(info)
}

fn info_word(info: &[u8; 256], at: usize) -> u32 {
    info[at..].first_chunk().map_or(0, |b| u32::from_ne_bytes(*b))
}

/// Reads TCP_INFO. What an older kernel does not tell is zero.
pub fn tcp_info(stream: &TcpStream) -> io::Result<TcpInfo> {
    // Offsets in struct tcp_info of linux/tcp.h, which only ever grows.
    const RCV_MSS: usize = 20;
    const MIN_RTT: usize = 148;
    const TOTAL_RETRANS: usize = 100;
    const BYTES_SENT: usize = 200;
    const BYTES_RETRANS: usize = 208;
    let info = info(stream)?;
    let word = |at: usize| info_word(&info, at);
    let long = |at: usize| info[at..].first_chunk().map_or(0, |b| u64::from_ne_bytes(*b));
    Ok(TcpInfo {
        retransmits: word(TOTAL_RETRANS),
        retransmitted_bytes: long(BYTES_RETRANS),
        sent_bytes: long(BYTES_SENT),
        min_rtt_us: word(MIN_RTT),
        received_segment_bytes: word(RCV_MSS),
    })
}

/// Congestion window of a socket in segments.
pub fn cwnd(stream: &TcpStream) -> io::Result<u32> {
    const SND_CWND: usize = 80;
    Ok(info_word(&info(stream)?, SND_CWND))
}

/// A listener in a namespace, on all its addresses of both families.
pub fn listen(ns: &Ns, port: u16) -> Result<TcpListener> {
    // The standard library's listeners take 128 waiting connections; floods and bursts need more.
    const BACKLOG: libc::c_int = 4096;
    ns.enter(|| {
        let any: SocketAddr = (std::net::Ipv6Addr::UNSPECIFIED, port).into();
        // SAFETY: plain system calls; the descriptor is owned by the listener at once.
        let listener = unsafe {
            let fd = check(libc::socket(libc::AF_INET6, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0))?;
            TcpListener::from_raw_fd(fd)
        };
        let fd = listener.as_raw_fd();
        set_int(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 0)?;
        set_int(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
        with_address(any, |address, length| {
            // SAFETY: an address with its length.
            check(unsafe { libc::bind(fd, address, length) })
        })
        .with_context(|| format!("port {port} cannot be listened on"))?;
        // SAFETY: a plain system call.
        check(unsafe { libc::listen(fd, BACKLOG) })?;
        Ok(listener)
    })
    .with_context(|| format!("in the namespace {}", ns.name()))
}

/// A socket of a namespace, not connected yet, for an address of this family.
pub fn client(ns: &Ns, v6: bool, options: &Options) -> Result<TcpStream> {
    ns.enter(|| {
        let family = if v6 { libc::AF_INET6 } else { libc::AF_INET };
        // SAFETY: a plain system call; the descriptor is owned by the stream at once.
        let stream = unsafe {
            let fd = check(libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0))?;
            TcpStream::from_raw_fd(fd)
        };
        let fd = stream.as_raw_fd();
        if !options.congestion_control.is_empty() {
            set_congestion_control(fd, &options.congestion_control)
                .with_context(|| format!("congestion control {}", options.congestion_control))?;
        }
        set_dscp(fd, v6, options.dscp)?;
        if options.receive_buffer_bytes > 0 {
            set_int(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, options.receive_buffer_bytes as libc::c_int)?;
        }
        Ok(stream)
    })
}

/// connect() of an unconnected stream; `patience` bounds it.
pub fn connect(stream: &TcpStream, to: SocketAddr, patience: Duration) -> io::Result<()> {
    stream.set_write_timeout(Some(patience))?;
    // SAFETY: an address with its length.
    let outcome = with_address(to, |address, length| {
        check(unsafe { libc::connect(stream.as_raw_fd(), address, length) })
    });
    match outcome {
        Ok(_) => Ok(()),
        // A blocking connect() that runs out of SO_SNDTIMEO says EINPROGRESS.
        Err(e) if e.raw_os_error() == Some(libc::EINPROGRESS) => Err(io::ErrorKind::TimedOut.into()),
        Err(e) => Err(e),
    }
}

/// Sends without DF, in fragments of the interface's MTU; also what a listener accepts from now on.
pub fn fragment_packets(listener: &TcpListener) -> io::Result<()> {
    // IP_PMTUDISC_INTERFACE and IPV6_PMTUDISC_INTERFACE of linux/in.h and linux/in6.h.
    const INTERFACE: libc::c_int = 4;
    let fd = listener.as_raw_fd();
    set_int(fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, INTERFACE)?;
    set_int(fd, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, INTERFACE)
}

/// Asks the other end whether it lives: after so many seconds of silence, every so many, so many
/// times.
pub fn ask_peer(stream: &TcpStream, [idle_s, every_s, count]: [u32; 3]) -> io::Result<()> {
    let fd = stream.as_raw_fd();
    set_int(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)?;
    for (name, value) in
        [(libc::TCP_KEEPIDLE, idle_s), (libc::TCP_KEEPINTVL, every_s), (libc::TCP_KEEPCNT, count)]
    {
        set_int(fd, libc::IPPROTO_TCP, name, value as libc::c_int)?;
    }
    Ok(())
}

/// Closing sends a RST instead of a FIN.
pub fn reset_on_close(stream: &TcpStream) -> io::Result<()> {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    // SAFETY: the structure with its size.
    check(unsafe {
        let length = size_of::<libc::linger>() as libc::socklen_t;
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            length,
        )
    })
    .map(drop)
}

fn with_address<T>(address: SocketAddr, f: impl FnOnce(*const libc::sockaddr, libc::socklen_t) -> T) -> T {
    match address {
        SocketAddr::V4(v4) => {
            let raw = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                sin_zero: [0; 8],
            };
            f((&raw const raw).cast(), size_of_val(&raw) as libc::socklen_t)
        }
        SocketAddr::V6(v6) => {
            let raw = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            };
            f((&raw const raw).cast(), size_of_val(&raw) as libc::socklen_t)
        }
    }
}
