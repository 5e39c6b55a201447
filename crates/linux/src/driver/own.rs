//! Packets in the machine's own name: ICMP errors about what is refused. A bump has no side from
//! which the kernel would take them, since their source is its own address. So they leave by raw
//! sockets, as any packet that this machine sends.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use farlink_gateway::Transmit;
use farlink_wire::ip;

use crate::error::{Context, Result};

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

/// Two raw sockets. They are opened while there is the privilege (CAP_NET_RAW), in the network
/// namespace of the gateway.
#[derive(Debug)]
pub struct OwnPackets {
    v4: OwnedFd,
    /// `None`: this machine has no IPv6.
    v6: Option<OwnedFd>,
}

fn raw(family: libc::c_int) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: plain system call; the descriptor is fresh.
    unsafe {
        match libc::socket(family, kind, libc::IPPROTO_RAW) {
            fd if fd < 0 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

impl OwnPackets {
    /// Opens the sockets.
    ///
    /// # Errors
    /// There is no privilege.
    pub fn open() -> Result<Self> {
        let v4 = raw(libc::AF_INET).context(|| "opening a raw socket".to_owned())?;
        Ok(Self { v4, v6: raw(libc::AF_INET6).ok() })
    }

    /// Sends the packet if it is in the machine's own name. Lost when the kernel has no room: it is
    /// an error message.
    pub(crate) fn sends(&self, packet: &Transmit<'_>) -> bool {
        let protocol = match packet.header.first().map(|b| b >> 4) {
            Some(4) => packet.header.get(9),
            Some(6) => packet.header.get(6),
            _ => None,
        };
        if !protocol.is_some_and(|p| [ICMP, ICMPV6].contains(p)) {
            return false;
        }
        let Some((_, dst)) = ip::addresses(packet.header) else { return false };
        match dst {
            IpAddr::V4(dst) => {
                // SAFETY: sockaddr_in is plain data.
                let mut to: libc::sockaddr_in = unsafe { std::mem::zeroed() };
                to.sin_family = libc::AF_INET as u16;
                to.sin_addr.s_addr = u32::from_ne_bytes(dst.octets());
                send(&self.v4, packet.header, &to);
            }
            IpAddr::V6(dst) => {
                let Some(fd) = &self.v6 else { return false };
                // SAFETY: sockaddr_in6 is plain data.
                let mut to: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
                to.sin6_family = libc::AF_INET6 as u16;
                to.sin6_addr.s6_addr = dst.octets();
                send(fd, packet.header, &to);
            }
        }
        true
    }
}

fn send<A>(fd: &OwnedFd, packet: &[u8], to: &A) {
    // SAFETY: packet and address are valid for these lengths through the call.
    unsafe {
        libc::sendto(
            fd.as_raw_fd(),
            packet.as_ptr().cast(),
            packet.len(),
            0,
            std::ptr::from_ref(to).cast(),
            size_of::<A>() as libc::socklen_t,
        );
    }
}
