//! Socket addresses as the system calls want them.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// A socket address in the kernel's layout.
pub struct RawAddr {
    storage: libc::sockaddr_storage,
    len: libc::socklen_t,
}

impl RawAddr {
    /// Room for an address that the kernel fills in.
    pub fn empty() -> RawAddr {
        // SAFETY: sockaddr_storage is plain data for which all-zero is valid.
        let storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
        RawAddr { storage, len: size_of::<libc::sockaddr_storage>() as libc::socklen_t }
    }

    /// The kernel's form of `addr`.
    pub fn new(addr: SocketAddr) -> RawAddr {
        let mut raw = RawAddr::empty();
        let to = &raw mut raw.storage;
        match addr {
            SocketAddr::V4(addr) => {
                let sin = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: addr.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(addr.ip().octets()) },
                    sin_zero: [0; 8],
                };
                // SAFETY: sockaddr_storage is large and aligned enough for every socket address.
                unsafe { to.cast::<libc::sockaddr_in>().write(sin) };
                raw.len = size_of::<libc::sockaddr_in>() as libc::socklen_t;
            }
            SocketAddr::V6(addr) => {
                let sin6 = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: addr.port().to_be(),
                    sin6_flowinfo: addr.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: addr.ip().octets() },
                    sin6_scope_id: addr.scope_id(),
                };
                // SAFETY: as above.
                unsafe { to.cast::<libc::sockaddr_in6>().write(sin6) };
                raw.len = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
            }
        }
        raw
    }

    /// The address, if it is an Internet one.
    pub fn get(&self) -> Option<SocketAddr> {
        let from = &raw const self.storage;
        match i32::from(self.storage.ss_family) {
            libc::AF_INET => {
                // SAFETY: the family says that this is what the kernel wrote.
                let sin = unsafe { from.cast::<libc::sockaddr_in>().read() };
                let ip = Ipv4Addr::from(sin.sin_addr.s_addr.to_ne_bytes());
                Some(SocketAddrV4::new(ip, u16::from_be(sin.sin_port)).into())
            }
            libc::AF_INET6 => {
                // SAFETY: as above.
                let sin6 = unsafe { from.cast::<libc::sockaddr_in6>().read() };
                let ip = Ipv6Addr::from(sin6.sin6_addr.s6_addr);
                Some(SocketAddrV6::new(ip, u16::from_be(sin6.sin6_port), 0, 0).into())
            }
            _ => None,
        }
    }

    /// For calls that read an address.
    pub fn as_ptr(&self) -> *const libc::sockaddr {
        (&raw const self.storage).cast()
    }

    /// For calls that write an address.
    pub fn as_mut(&mut self) -> (*mut libc::sockaddr, *mut libc::socklen_t) {
        ((&raw mut self.storage).cast(), &raw mut self.len)
    }

    /// Size in bytes.
    pub fn size(&self) -> libc::socklen_t {
        self.len
    }

    /// The bytes, for socket options that carry an address.
    pub fn bytes(&self) -> [u8; 128] {
        let mut bytes = [0; 128];
        // SAFETY: sockaddr_storage is 128 bytes of plain data.
        unsafe { std::ptr::copy_nonoverlapping(self.as_ptr().cast(), bytes.as_mut_ptr(), 128) };
        bytes
    }
}
