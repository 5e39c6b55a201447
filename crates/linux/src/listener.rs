//! Sockets that listen by TCP at an address which need not be there yet.

use std::io;
use std::net::{SocketAddr, TcpListener};

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 32;

/// Listens there. The machine may get the address later (IP_FREEBIND); connections come in from
/// then on.
///
/// # Errors
/// Another program has the port, an interface that the address names (`%eth0`) is not there, or
/// this process may not use the port.
pub fn listen_at(address: SocketAddr) -> io::Result<TcpListener> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // Connections of a run that has just ended may still have the port.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    // Without it the address has to be there.
    let _ = match address {
        SocketAddr::V4(_) => sockopt::set_ip_freebind(&socket, true),
        SocketAddr::V6(_) => sockopt::set_ipv6_freebind(&socket, true),
    };
    bind(&socket, &address)?;
    listen(&socket, BACKLOG)?;
    Ok(TcpListener::from(socket))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Those of documentation (RFC 5737, RFC 3849): no machine has them.
    #[test]
    fn an_address_that_is_not_there_is_listened_at() {
        for address in ["192.0.2.77:0", "[2001:db8::77]:0"] {
            let address: SocketAddr = address.parse().unwrap();
            assert!(TcpListener::bind(address).is_err(), "{address} is there");
            match listen_at(address) {
                Ok(listener) => assert_eq!(listener.local_addr().unwrap().ip(), address.ip()),
                Err(error) => assert!(address.is_ipv6() && error.raw_os_error() == Some(libc::EAFNOSUPPORT)),
            }
        }
    }

    #[test]
    fn a_port_that_is_taken_is_refused() {
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let refused = listen_at(other.local_addr().unwrap()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
    }
}
