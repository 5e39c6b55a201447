//! Switching an interface's offloads (linux/ethtool.h, the short requests).

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::error::{Error, Result};

/// ETHTOOL_S... requests that switch one offload each: RX and TX checksum, scatter-gather, TSO,
/// GSO, GRO. In this order, as TSO needs the ones before it.
const SWITCHES: [(u32, &str); 6] = [
    (0x15, "rx checksum"),
    (0x17, "tx checksum"),
    (0x19, "scatter-gather"),
    (0x1f, "TSO"),
    (0x24, "GSO"),
    (0x2c, "GRO"),
];

#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// Switches all offloads of an interface of the calling thread's namespace. Off, each packet is one
/// that could stand on a wire: complete checksums, no super-segments. What a device does not know
/// is left. On, GRO stays as it is (on a veth it costs more than it gives: what comes from a peer
/// with TSO is merged already).
pub fn set_offloads(interface: &str, on: bool) -> Result<()> {
    // SAFETY: plain system call; the descriptor is owned from here on.
    let socket = unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        if fd < 0 {
            return Err(Error::last_os("opening a socket"));
        }
        OwnedFd::from_raw_fd(fd)
    };
    for (command, word) in SWITCHES {
        if on && word == "GRO" {
            continue;
        }
        let mut value = Value { command, data: u32::from(on) };
        // SAFETY: ifreq is plain data, zero is a valid value of each field.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (slot, byte) in request.ifr_name.iter_mut().zip(interface.bytes()).take(15) {
            // Signed with some processors, unsigned with others.
            *slot = byte as libc::c_char;
        }
        request.ifr_ifru.ifru_data = (&raw mut value).cast();
        // SAFETY: SIOCETHTOOL reads the ifreq and the eight bytes behind its pointer, both alive
        // through the call.
        if unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) } < 0 {
            let error = io::Error::last_os_error();
            if !matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL)) {
                let state = if on { "on" } else { "off" };
                return Err(Error::os(format!("switching {word} of {interface} {state}"), error));
            }
        }
    }
    Ok(())
}
