//! Openings of TCP connections, listened to at all interfaces of this machine: before its firewall
//! sees those that come in, and behind it those that leave.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use farlink_wire::ip;

use crate::error::{Context, Result};

/// So many are read at most. More do not fit into the socket, either.
const READ_MAX: usize = 1024;
/// An IPv4 header with all options, and the ports behind it.
const SNAP_BYTES: usize = 64;
const TCP: u32 = 6;
const ETH_P_ALL: u16 = 3;
const ETH_P_IPV6: u32 = 0x86dd;
const IPV6_HEADER_BYTES: u32 = 40;
const PACKET_OTHERHOST: u8 = 3;
const PACKET_OUTGOING: u8 = 4;
/// Where classic BPF finds the protocol of the layer below.
const SKF_AD_PROTOCOL: u32 = 0xffff_f000;

/// A SYN that has no ACK.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opening {
    /// The interface that it came in by, or left by, by number.
    pub interface: u32,
    /// It left.
    pub leaves: bool,
    /// Whose connection it is.
    pub source: IpAddr,
    /// Where it leads.
    pub destination: IpAddr,
    /// To which port.
    pub port: u16,
}

/// Listens from now on.
#[derive(Debug)]
pub struct Openings {
    fd: OwnedFd,
}

const fn statement(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

const fn jump(code: u32, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

/// Lets through what is IP, TCP, no later fragment, and has SYN and no ACK. Extension headers of
/// IPv6 are not followed.
fn filter() -> [libc::sock_filter; 18] {
    use libc::{BPF_ABS, BPF_ALU, BPF_AND, BPF_B, BPF_H, BPF_IND, BPF_JEQ, BPF_JMP, BPF_JSET, BPF_K, BPF_LD};
    use libc::{BPF_LDX, BPF_MSH, BPF_RET};
    let jeq = BPF_JMP | BPF_JEQ | BPF_K;
    [
        statement(BPF_LD | BPF_H | BPF_ABS, SKF_AD_PROTOCOL),
        jump(jeq, ETH_P_IPV6, 9, 0),
        jump(jeq, libc::ETH_P_IP as u32, 0, 14),
        // IPv4.
        statement(BPF_LD | BPF_B | BPF_ABS, 9),
        jump(jeq, TCP, 0, 12),
        statement(BPF_LD | BPF_H | BPF_ABS, 6),
        jump(BPF_JMP | BPF_JSET | BPF_K, 0x1fff, 10, 0),
        statement(BPF_LDX | BPF_B | BPF_MSH, 0),
        statement(BPF_LD | BPF_B | BPF_IND, 13),
        statement(BPF_ALU | BPF_AND | BPF_K, 0x12),
        jump(jeq, 0x02, 5, 6),
        // IPv6.
        statement(BPF_LD | BPF_B | BPF_ABS, 6),
        jump(jeq, TCP, 0, 4),
        statement(BPF_LD | BPF_B | BPF_ABS, IPV6_HEADER_BYTES + 13),
        statement(BPF_ALU | BPF_AND | BPF_K, 0x12),
        jump(jeq, 0x02, 0, 1),
        statement(BPF_RET | BPF_K, SNAP_BYTES as u32),
        statement(BPF_RET | BPF_K, 0),
    ]
}

impl Openings {
    /// Opens the socket.
    ///
    /// # Errors
    /// There is no privilege (CAP_NET_RAW).
    pub fn listen() -> Result<Self> {
        let what = || "listening to openings of connections".to_owned();
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // Without a protocol nothing comes in before the filter is there.
        // SAFETY: plain system call; the descriptor is fresh.
        let fd = unsafe {
            match libc::socket(libc::AF_PACKET, kind, 0) {
                fd if fd < 0 => return Err(io::Error::last_os_error()).context(what),
                fd => OwnedFd::from_raw_fd(fd),
            }
        };
        let mut program = filter();
        let fprog = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        let size = |bytes: usize| bytes as libc::socklen_t;
        // SAFETY: the kernel copies the program, which lives through the call.
        let attached = unsafe {
            let value = (&raw const fprog).cast();
            let level = libc::SOL_SOCKET;
            libc::setsockopt(fd.as_raw_fd(), level, libc::SO_ATTACH_FILTER, value, size(size_of_val(&fprog)))
        };
        if attached != 0 {
            return Err(io::Error::last_os_error()).context(what);
        }
        // SAFETY: sockaddr_ll is plain data.
        let mut all: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        all.sll_family = libc::AF_PACKET as u16;
        all.sll_protocol = ETH_P_ALL.to_be();
        // SAFETY: the address lives through the call, which has its size.
        let bound = unsafe { libc::bind(fd.as_raw_fd(), (&raw const all).cast(), size(size_of_val(&all))) };
        if bound != 0 {
            return Err(io::Error::last_os_error()).context(what);
        }
        Ok(Self { fd })
    }

    /// What has been heard.
    #[must_use]
    pub fn heard(self) -> Vec<Opening> {
        (0..READ_MAX).map_while(|_| self.read()).flatten().collect()
    }

    /// `None`: there is no more. What is for somebody else is nothing.
    fn read(&self) -> Option<Option<Opening>> {
        let mut bytes = [0_u8; SNAP_BYTES];
        // SAFETY: sockaddr_ll is plain data.
        let mut from: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        let mut from_bytes = size_of_val(&from) as libc::socklen_t;
        // SAFETY: both buffers live through the call, which has their sizes.
        let n = unsafe {
            let (to, from) = (bytes.as_mut_ptr().cast(), (&raw mut from).cast());
            libc::recvfrom(self.fd.as_raw_fd(), to, bytes.len(), libc::MSG_TRUNC, from, &raw mut from_bytes)
        };
        let length = usize::try_from(n).ok()?.min(bytes.len());
        let packet = bytes.get(..length)?;
        let is_ours = from.sll_pkttype != PACKET_OTHERHOST;
        Some(parse(packet).filter(|_| is_ours).map(|(source, destination, port)| Opening {
            interface: from.sll_ifindex.cast_unsigned(),
            leaves: from.sll_pkttype == PACKET_OUTGOING,
            source,
            destination,
            port,
        }))
    }
}

fn parse(packet: &[u8]) -> Option<(IpAddr, IpAddr, u16)> {
    let (source, destination) = ip::addresses(packet)?;
    let header = match packet.first()? >> 4 {
        4 => usize::from(packet.first()? & 0xf) * 4,
        _ => IPV6_HEADER_BYTES as usize,
    };
    let port = packet.get(header + 2..header + 4)?;
    Some((source, destination, u16::from_be_bytes([*port.first()?, *port.get(1)?])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns::Namespace;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn openings_are_heard_and_answers_are_not() {
        if !crate::caps::can_administer() {
            return;
        }
        let namespace = Namespace::create(&format!("flopen{}", std::process::id())).unwrap();
        let heard = namespace.run(|| {
            let openings = Openings::listen()?;
            let four = TcpListener::bind("127.0.0.1:0").unwrap();
            let six = TcpListener::bind("[::1]:0").unwrap();
            let ports = [&four, &six].map(|l| l.local_addr().unwrap());
            let _open = ports.map(|to| TcpStream::connect(to).unwrap());
            Ok((openings.heard(), ports))
        });
        let (heard, ports) = heard.unwrap();
        namespace.delete().unwrap();
        let wanted = ports.map(|to| (to.ip(), to.port()));
        let leave: Vec<_> = heard.iter().filter(|o| o.leaves).map(|o| (o.destination, o.port)).collect();
        let come: Vec<_> = heard.iter().filter(|o| !o.leaves).map(|o| (o.destination, o.port)).collect();
        assert_eq!((&leave[..], &come[..]), (&wanted[..], &wanted[..]), "{heard:?}");
    }
}
