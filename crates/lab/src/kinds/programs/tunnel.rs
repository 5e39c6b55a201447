//! A tunnel as WireGuard makes one: IP packets in UDP datagrams of one address and port at each
//! end, with as many bytes round them. Nothing is encrypted: the link sees no difference.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};

use super::downloads::LOOK_EVERY;
use crate::build::Lab;
use crate::netns::Ns;

/// Both ends'.
const PORT: u16 = 51_820;
const DEVICE: &str = "tunnel";
/// MTU of the device, as wg-quick sets it.
const MTU_BYTES: usize = 1_420;
/// Before and behind a packet: type, receiver and counter, and the tag.
const HEADER_BYTES: usize = 16;
const TAG_BYTES: usize = 16;
/// Of a message that carries data.
const TYPE: u8 = 4;
/// Addresses of the client and the server in it.
const INSIDE: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 99, 0, 1), Ipv4Addr::new(10, 99, 0, 2)];
/// A datagram that the kernel takes.
const DATAGRAM_BYTES_MAX: usize = 2048;

/// Stands until it is dropped.
pub(super) struct Tunnel {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Tunnel {
    /// Between client and server.
    pub(super) fn up(lab: &Lab, v6: bool) -> Result<Self> {
        let mut tunnel = Self { is_over: Arc::default(), threads: Vec::new() };
        for (place, node) in ["client", "server"].into_iter().enumerate() {
            let far = ["server", "client"][place];
            let (ns, far) = (lab.ns(node), SocketAddr::new(lab.address(far, v6)?, PORT));
            let device = device(&ns, INSIDE[place], lab.settings.cc_of(node))
                .with_context(|| format!("a tunnel at {node}"))?;
            tunnel.carry(device, socket(&ns, far)?)?;
        }
        Ok(tunnel)
    }

    /// The server's address in it.
    pub(super) fn server(&self) -> IpAddr {
        INSIDE[1].into()
    }

    /// Carries packets both ways between a device and a socket.
    fn carry(&mut self, device: File, socket: UdpSocket) -> Result<()> {
        let (mut to_device, socket_too, over) =
            (device.try_clone()?, socket.try_clone()?, self.is_over.clone());
        let mut device = device;
        self.threads.push(thread::spawn(move || {
            let mut counter = 0;
            let mut packet = [0; MTU_BYTES];
            while !over.load(Ordering::Relaxed) {
                wait_readable(&device);
                while let Ok(n) = device.read(&mut packet) {
                    counter += 1;
                    // What finds no room is lost.
                    let _ = socket.send(&wrapped(counter, &packet[..n]));
                }
            }
        }));
        let over = self.is_over.clone();
        self.threads.push(thread::spawn(move || {
            let mut datagram = [0; DATAGRAM_BYTES_MAX];
            while !over.load(Ordering::Relaxed) {
                let Ok(n) = socket_too.recv(&mut datagram) else { continue };
                if let Some(packet) = unwrapped(&datagram[..n]) {
                    let _ = to_device.write(packet);
                }
            }
        }));
        Ok(())
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

fn wrapped(counter: u64, packet: &[u8]) -> Vec<u8> {
    let mut datagram = vec![0; HEADER_BYTES + packet.len() + TAG_BYTES];
    datagram[0] = TYPE;
    datagram[8..HEADER_BYTES].copy_from_slice(&counter.to_le_bytes());
    datagram[HEADER_BYTES..][..packet.len()].copy_from_slice(packet);
    datagram
}

fn unwrapped(datagram: &[u8]) -> Option<&[u8]> {
    let packet = datagram.get(HEADER_BYTES..datagram.len().checked_sub(TAG_BYTES)?)?;
    (datagram[0] == TYPE && !packet.is_empty()).then_some(packet)
}

fn socket(ns: &Ns, far: SocketAddr) -> Result<UdpSocket> {
    let any: IpAddr = match far.ip() {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = ns.enter(|| Ok(UdpSocket::bind((any, PORT))?))?;
    socket.connect(far)?;
    socket.set_read_timeout(Some(LOOK_EVERY))?;
    Ok(socket)
}

/// A TUN with an address, and a route by which TCP has the hosts' congestion control.
fn device(ns: &Ns, own: Ipv4Addr, congestion_control: &str) -> Result<File> {
    let file = ns.enter(open)?;
    let congctl = match congestion_control {
        "" => String::new(),
        name => format!(" congctl {name}"),
    };
    let lines = [
        format!("addr add {own}/24 dev {DEVICE} noprefixroute"),
        format!("link set {DEVICE} mtu {MTU_BYTES} up"),
        format!("route add 10.99.0.0/24 dev {DEVICE} src {own}{congctl}"),
    ];
    ns.ip_batch(false, &lines)?;
    Ok(file)
}

/// In the calling thread's namespace. It goes when it is closed.
fn open() -> Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/net/tun")
        .context("/dev/net/tun")?;
    // SAFETY: ifreq is plain data, zero is a valid value of each field.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (slot, byte) in request.ifr_name.iter_mut().zip(DEVICE.bytes()) {
        *slot = byte as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes one ifreq behind the pointer.
    if unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) } < 0 {
        return Err(std::io::Error::last_os_error()).context("TUNSETIFF");
    }
    Ok(file)
}

fn wait_readable(file: &File) {
    let mut poll = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let patience = libc::c_int::try_from(LOOK_EVERY.as_millis()).unwrap_or(libc::c_int::MAX);
    // SAFETY: one pollfd, as said.
    if unsafe { libc::poll(&raw mut poll, 1, patience) } < 0 {
        thread::sleep(Duration::from_millis(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_grows_as_in_wireguard_and_comes_out_as_it_was() {
        let datagram = wrapped(7, &[0x45; MTU_BYTES]);
        // With the headers of IPv6 and UDP it fills a packet of an Ethernet.
        assert_eq!(datagram.len() + 40 + 8, 1_500);
        assert_eq!(unwrapped(&datagram), Some(&[0x45; MTU_BYTES][..]));
        for odd in [&datagram[..HEADER_BYTES + TAG_BYTES], &datagram[..5], &[], &[0; 100]] {
            assert_eq!(unwrapped(odd), None);
        }
    }
}
