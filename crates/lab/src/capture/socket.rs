//! An AF_PACKET socket on one interface: every IP packet in and out, with the time and the state of
//! its checksum.

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use anyhow::{Context, Result};
use farlink_linux::bump::{Mac, injected_source};

use crate::netns::{Ns, interface_index};

/// Room for what arrives while the reader is busy: tens of milliseconds at 10 Gbit/s.
const BUFFER_BYTES: libc::c_int = 64 << 20;

/// What is known of a captured packet besides its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    /// Time of the capture in nanoseconds since 1970.
    pub at_ns: u64,
    /// It leaves by this interface; otherwise it came in.
    pub is_outgoing: bool,
    /// Its checksum is left to hardware that is not there (TP_STATUS_CSUMNOTREADY): it cannot be
    /// verified here.
    pub is_checksum_open: bool,
    /// Bytes captured.
    pub len: usize,
    /// Bytes that the packet had.
    pub wire_len: usize,
}

/// How much of each packet is captured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Extent {
    /// All of it.
    #[default]
    Whole,
    /// Its headers: for transfers as fast as the machine, of which a capture could not keep the
    /// bytes.
    Headers,
}

/// Room for the longest IP and TCP headers, with IPv6 extension headers.
const HEADERS_BYTES: u32 = 192;

/// A capture of one interface.
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
    /// Who sends what a gateway's bump puts back on its way in. It has been seen already, as it
    /// came from the wire.
    injected_source: Mac,
}

fn check(outcome: libc::c_int) -> io::Result<libc::c_int> {
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(outcome) }
}

impl PacketSocket {
    /// Opens a capture. Packets begin with their IP header.
    pub fn open(ns: &Ns, interface: &str, extent: Extent) -> Result<Self> {
        ns.enter(|| {
            let index = interface_index(interface)?;
            let protocol = (libc::ETH_P_ALL as u16).to_be();
            // SAFETY: plain system calls with structures of the stated size; the descriptor is
            // owned at once.
            unsafe {
                // With protocol 0 nothing is captured until bind() names the interface.
                let fd = check(libc::socket(
                    libc::AF_PACKET,
                    libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
                    0,
                ))?;
                let fd = OwnedFd::from_raw_fd(fd);
                set(&fd, libc::SOL_PACKET, libc::PACKET_AUXDATA, 1)?;
                set(&fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
                if set(&fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, BUFFER_BYTES).is_err() {
                    set(&fd, libc::SOL_SOCKET, libc::SO_RCVBUF, BUFFER_BYTES)?;
                }
                if extent == Extent::Headers {
                    cut(&fd, HEADERS_BYTES)?;
                }
                let mut address: libc::sockaddr_ll = zeroed();
                address.sll_family = libc::AF_PACKET as u16;
                address.sll_protocol = protocol;
                address.sll_ifindex = index as i32;
                let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
                check(libc::bind(fd.as_raw_fd(), (&raw const address).cast(), length))?;
                Ok(Self { fd, injected_source: injected_source(index) })
            }
        })
        .with_context(|| format!("no capture on {interface} in {}", ns.name()))
    }

    /// The next IP packet into `buffer`; `None` when there is none now.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<Frame>> {
        loop {
            let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
            // SAFETY: zero is a valid value of these plain structures.
            let (mut from, mut message): (libc::sockaddr_ll, libc::msghdr) = unsafe { (zeroed(), zeroed()) };
            // Aligned as cmsghdr wants it.
            let mut control = [0u64; 32];
            message.msg_name = (&raw mut from).cast();
            message.msg_namelen = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
            message.msg_iov = &raw mut part;
            message.msg_iovlen = 1;
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = size_of_val(&control) as _;
            // SAFETY: all pointers lead to live buffers of the stated size.
            let n = unsafe { libc::recvmsg(self.fd.as_raw_fd(), &raw mut message, libc::MSG_TRUNC) };
            if n < 0 {
                let error = io::Error::last_os_error();
                return match error.kind() {
                    io::ErrorKind::WouldBlock => Ok(None),
                    io::ErrorKind::Interrupted => continue,
                    _ => Err(error),
                };
            }
            let protocol = u16::from_be(from.sll_protocol);
            if !matches!(i32::from(protocol), libc::ETH_P_IP | libc::ETH_P_IPV6) {
                continue;
            }
            if from.sll_pkttype != libc::PACKET_OUTGOING
                && from.sll_addr.get(..usize::from(from.sll_halen)) == Some(&self.injected_source[..])
            {
                continue;
            }
            let mut frame = Frame {
                at_ns: 0,
                is_outgoing: from.sll_pkttype == libc::PACKET_OUTGOING,
                is_checksum_open: false,
                len: (n as usize).min(buffer.len()),
                wire_len: n as usize,
            };
            read_control(&message, &mut frame);
            return Ok(Some(frame));
        }
    }

    /// Packets that the kernel had no room for since the last call.
    pub fn drops(&self) -> io::Result<u64> {
        // struct tpacket_stats: packets, drops.
        let mut stats = [0u32; 2];
        let mut length = size_of_val(&stats) as libc::socklen_t;
        // SAFETY: a buffer of the stated size.
        check(unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                stats.as_mut_ptr().cast(),
                &raw mut length,
            )
        })?;
        Ok(u64::from(stats[1]))
    }
}

impl AsRawFd for PacketSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

unsafe fn set(fd: &OwnedFd, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: an int option with its size.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), length) })
        .map(drop)
}

/// Lets the kernel keep no more than the first bytes of each packet: one instruction of a socket
/// filter says how many.
unsafe fn cut(fd: &OwnedFd, bytes: u32) -> io::Result<()> {
    let mut keep = libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: bytes };
    let program = libc::sock_fprog { len: 1, filter: &raw mut keep };
    let length = size_of::<libc::sock_fprog>() as libc::socklen_t;
    // SAFETY: a program of one instruction with its size; the kernel copies it.
    check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            length,
        )
    })
    .map(drop)
}

fn read_control(message: &libc::msghdr, frame: &mut Frame) {
    // SAFETY: the kernel has filled msg_control; the CMSG macros stay within it.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while let Some(h) = header.as_ref() {
            let data = libc::CMSG_DATA(header);
            if (h.cmsg_level, h.cmsg_type) == (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS) {
                let time: libc::timespec = data.cast::<libc::timespec>().read_unaligned();
                frame.at_ns = time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
            } else if (h.cmsg_level, h.cmsg_type) == (libc::SOL_PACKET, libc::PACKET_AUXDATA) {
                let aux: libc::tpacket_auxdata = data.cast::<libc::tpacket_auxdata>().read_unaligned();
                frame.wire_len = frame.wire_len.max(aux.tp_len as usize);
                frame.is_checksum_open = aux.tp_status & libc::TP_STATUS_CSUMNOTREADY != 0;
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
}
