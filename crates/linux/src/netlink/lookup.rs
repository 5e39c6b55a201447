//! Which way a packet leaves, asked of the kernel without its lock for interfaces (RTNL): whoever
//! holds that for seconds does not hold up the answer.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::route::{Hop, RouteKey};
use super::socket::Socket;
use crate::error::{Error, Result};

const RTN_UNICAST: u8 = 1;

/// Where a packet leaves, and how large it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaves {
    /// Outgoing interface.
    pub interface: u32,
    /// MTU in bytes of a forwarded packet there: the route's own, else the interface's (Linux
    /// ip_dst_mtu_maybe_forward).
    pub mtu: u32,
    /// The router that it goes to first, if any.
    pub gateway: Option<IpAddr>,
}

/// Asks the kernel's routing tables.
#[derive(Debug)]
pub struct Lookup {
    socket: Socket,
    /// Any socket answers questions about interfaces.
    any: OwnedFd,
}

impl Lookup {
    /// In the calling thread's network namespace.
    pub fn open() -> Result<Self> {
        // SAFETY: plain system call; the descriptor is owned from here on.
        let any = unsafe {
            match libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) {
                fd if fd < 0 => return Err(Error::last_os("opening a socket")),
                fd => OwnedFd::from_raw_fd(fd),
            }
        };
        Ok(Self { socket: Socket::open()?, any })
    }

    /// Where a packet leaves. `None`: nowhere (no route, blackhole, or it is this machine's own).
    pub fn ask(&mut self, key: &RouteKey) -> Result<Option<Leaves>> {
        self.ask_all(std::slice::from_ref(key)).pop().unwrap_or(Ok(None))
    }

    /// The same of many packets at once, which is cheaper. An error is of one question alone.
    pub fn ask_all(&mut self, keys: &[RouteKey]) -> Vec<Result<Option<Leaves>>> {
        let mut mtus: HashMap<u32, u32> = HashMap::new();
        let hops = self.socket.route_lookups(keys);
        let mut leaves = |hop: Option<Hop>| {
            let Some(Hop { interface, mtu, gateway, .. }) = hop.filter(|hop| hop.kind == RTN_UNICAST) else {
                return Ok(None);
            };
            let mtu = match mtu.or_else(|| mtus.get(&interface).copied()) {
                Some(mtu) => mtu,
                None => {
                    let mtu = self.mtu(interface)?;
                    mtus.insert(interface, mtu);
                    mtu
                }
            };
            Ok(Some(Leaves { interface, mtu, gateway }))
        };
        hops.into_iter().map(|hop| leaves(hop?)).collect()
    }

    /// The MTU of an interface, in bytes.
    pub fn mtu(&self, index: u32) -> Result<u32> {
        // SAFETY: ifreq is plain data, zero is a valid value of each field.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        request.ifr_ifru.ifru_ifindex = index.cast_signed();
        self.ioctl(libc::SIOCGIFNAME, &mut request)?;
        self.ioctl(libc::SIOCGIFMTU, &mut request)?;
        // SAFETY: the kernel has filled in this field of the union.
        Ok(unsafe { request.ifr_ifru.ifru_mtu }.cast_unsigned())
    }

    fn ioctl(&self, which: libc::c_ulong, request: &mut libc::ifreq) -> Result<()> {
        // SAFETY: both questions read and write one ifreq behind the pointer.
        match unsafe { libc::ioctl(self.any.as_raw_fd(), which as _, std::ptr::from_mut(request)) } {
            0 => Ok(()),
            _ => Err(Error::os("reading an interface's MTU", io::Error::last_os_error())),
        }
    }
}
