//! A TUN whose packets carry virtio-net headers, so that super-segments stay whole both ways.
//!
//! Non-persistent: it vanishes with the process, and with it the route that diverts traffic to it
//! (fail-open).

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use farlink_wire::{Block, Offload, PacketBuf, Pool, SMALL_BLOCK_BYTES, VNET_HEADER_BYTES};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::netlink::Socket;
use crate::sysctl;

/// Largest packet that is written at once. Above about this the kernel answers EINVAL for
/// super-segments (64 KB less its own room for headers), measured on Linux 6.18.
pub const MAX_WRITE_BYTES: usize = 65_500;
/// Packets that may wait to be read. A full queue drops (the default of 500 dropped 1,764 packets
/// in one run at 10 Gbit/s).
pub const DEFAULT_QUEUE_PACKETS: u32 = 10_000;
/// The largest MTU of a TUN: no packet that a real interface accepted is too large for it.
pub const MTU_BYTES: u32 = 65_535;
/// Of a TAP, whose Ethernet headers come on top.
const TAP_MTU_BYTES: u32 = MTU_BYTES - 14;
/// Packets of up to this size are copied into a small block, so that the large one can take the
/// next packet.
const COPY_BELOW_BYTES: usize = SMALL_BLOCK_BYTES - PacketBuf::HEADROOM;
/// RFC 7600: an address for interfaces that need one and have none.
const DUMMY_ADDRESS: std::net::Ipv4Addr = std::net::Ipv4Addr::new(192, 0, 0, 8);
/// Longest interface name.
const NAME_MAX_BYTES: usize = 15;

/// TUN_F_USO4 and TUN_F_USO6: the kernel takes both or neither.
const TUN_F_USO: libc::c_uint = 0x20 | 0x40;

/// What the kernel accepted of the offloads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offloads {
    /// Checksums may be left to the other side.
    pub checksum: bool,
    /// IPv4 TCP super-segments.
    pub tso4: bool,
    /// IPv6 TCP super-segments.
    pub tso6: bool,
    /// Super-segments with CWR.
    pub ecn: bool,
    /// UDP super-segments, of both families (Linux 6.2).
    pub uso: bool,
}

impl Offloads {
    fn bits(self) -> libc::c_uint {
        [
            (self.checksum, libc::TUN_F_CSUM),
            (self.tso4, libc::TUN_F_TSO4),
            (self.tso6, libc::TUN_F_TSO6),
            (self.ecn, libc::TUN_F_TSO_ECN),
            (self.uso, TUN_F_USO),
        ]
        .iter()
        .filter(|(on, _)| *on)
        .fold(0, |bits, (_, bit)| bits | bit)
    }
}

/// Why a packet could not be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteError {
    /// The kernel has no room now (EAGAIN, ENOBUFS, ENOMEM): try again later.
    Busy,
    /// The kernel refuses this packet or its virtio-net header (EINVAL): cut it and try plain ones.
    Invalid,
    /// It is larger than [`MAX_WRITE_BYTES`].
    TooLarge,
    /// The device is down (EIO) or gone (EBADFD).
    Down,
}

/// What a read gave.
#[derive(Debug)]
pub enum ReadOutcome {
    /// A packet.
    Packet(PacketBuf),
    /// Something that nobody diverted: the kernel's own announcements to multicast groups, what is
    /// no IP packet, or has a virtio-net header that was never asked for. It is dropped.
    Odd,
    /// Nothing more now.
    Empty,
}

/// A TUN device, attached.
#[derive(Debug)]
pub struct Tun {
    fd: OwnedFd,
    name: String,
    index: u32,
    offloads: Offloads,
    /// A large block that waits for the next packet.
    spare: Option<Block>,
}

/// How a TUN is made.
#[derive(Clone, Debug)]
pub struct TunConfig {
    /// Interface name, at most 15 bytes.
    pub name: String,
    /// Packets that may wait to be read.
    pub queue_packets: u32,
}

impl TunConfig {
    /// The usual settings.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), queue_packets: DEFAULT_QUEUE_PACKETS }
    }
}

impl Tun {
    /// Makes the device in the calling thread's network namespace, with everything that forwarding
    /// through it needs, and brings it up. The device must not exist; a killed predecessor's may
    /// take some milliseconds to vanish, which is waited for.
    pub fn create(config: &TunConfig) -> Result<Self> {
        let (tun, mut netlink) = Self::make(config, libc::IFF_TUN)?;
        prepare_sysctls(&tun.name)?;
        tun.bring_up(&mut netlink, config, MTU_BYTES)?;
        open_source_check(&mut netlink, &tun.name, tun.index)?;
        Ok(tun)
    }

    /// The same as a TAP: an Ethernet header stands before each packet, and the kernel sends
    /// nothing to it and takes nothing from it by itself.
    pub fn create_tap(config: &TunConfig) -> Result<Self> {
        let (tun, mut netlink) = Self::make(config, libc::IFF_TAP)?;
        let no_ipv6 = ["ipv6", "conf", tun.name.as_str(), "disable_ipv6"];
        if sysctl::exists(&no_ipv6) {
            sysctl::write(&no_ipv6, "1")?;
        }
        tun.bring_up(&mut netlink, config, TAP_MTU_BYTES)?;
        Ok(tun)
    }

    fn make(config: &TunConfig, kind: libc::c_int) -> Result<(Self, Socket)> {
        let name = config.name.as_str();
        if name.is_empty() || name.len() > NAME_MAX_BYTES || name.contains(['/', '%', ' ']) {
            return Err(Error::Refused(format!("\"{name}\" cannot be the name of an interface")));
        }
        let fd = rustix::fs::open(
            "/dev/net/tun",
            OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(|e| Error::os(cannot_open(e), e))?;
        attach(&fd, name, kind)?;
        let header: libc::c_int = VNET_HEADER_BYTES as libc::c_int;
        // SAFETY: TUNSETVNETHDRSZ reads one int behind the pointer.
        if unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETVNETHDRSZ, &raw const header) } < 0 {
            return Err(Error::last_os(format!("setting the header size of {name}")));
        }
        let offloads = probe_offloads(&fd);
        let mut netlink = Socket::open()?;
        let index = netlink.link_index(name)?;
        Ok((Self { fd, name: name.to_owned(), index, offloads, spare: None }, netlink))
    }

    fn bring_up(&self, netlink: &mut Socket, config: &TunConfig, mtu_bytes: u32) -> Result<()> {
        let outcome = netlink.link_no_autoaddress(self.index);
        if sysctl::exists(&["ipv6"]) {
            outcome?;
        }
        netlink.link_sizes(self.index, Some(mtu_bytes), Some(config.queue_packets))?;
        netlink.link_without_multicast(self.index)?;
        netlink.link_up(self.index, true)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
    /// Its interface number.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }
    /// What the kernel hands over and accepts.
    #[must_use]
    pub fn offloads(&self) -> Offloads {
        self.offloads
    }

    /// Reads one packet into a block of `pool`. Never waits.
    ///
    /// # Errors
    /// The device is gone or down.
    pub fn read(&mut self, pool: &mut Pool) -> Result<ReadOutcome> {
        self.read_behind(pool, (&mut [], &mut []), |_| false)
    }

    /// The same where each packet has a header of the link layer before it, and some have two, as
    /// the first one says.
    ///
    /// # Errors
    /// As of [`Tun::read`].
    pub fn read_behind(
        &mut self,
        pool: &mut Pool,
        (link_header, second): (&mut [u8], &mut [u8]),
        has_second: impl FnOnce(&[u8]) -> bool,
    ) -> Result<ReadOutcome> {
        let mut block = self.spare.take().unwrap_or_else(|| pool.take_large());
        let mut header = [0u8; VNET_HEADER_BYTES];
        let link_bytes = link_header.len();
        let room = block.as_mut_slice().get_mut(PacketBuf::HEADROOM..).unwrap_or_default();
        let mut parts = [IoSliceMut::new(&mut header), IoSliceMut::new(link_header), IoSliceMut::new(room)];
        let n = loop {
            match rustix::io::readv(&self.fd, &mut parts) {
                Ok(n) => break n,
                Err(Errno::INTR) => {}
                Err(e) => {
                    self.spare = Some(block);
                    return match e {
                        Errno::AGAIN => Ok(ReadOutcome::Empty),
                        e => Err(Error::os(format!("reading from {}", self.name), e)),
                    };
                }
            }
        };
        let (mut at, mut len) = (PacketBuf::HEADROOM, n.saturating_sub(VNET_HEADER_BYTES + link_bytes));
        if len >= second.len() && has_second(link_header) {
            second.copy_from_slice(&block.as_slice()[at..][..second.len()]);
            (at, len) = (at + second.len(), len - second.len());
        }
        let link_bytes = link_bytes + (at - PacketBuf::HEADROOM);
        let offload = Offload::parse(&header).map(|o| o.shifted(-(link_bytes as i16)));
        let (Ok(offload), true) = (offload, is_unicast(&block.as_slice()[at..][..len])) else {
            self.spare = Some(block);
            return Ok(ReadOutcome::Odd);
        };
        if len <= COPY_BELOW_BYTES {
            let bytes = block.as_slice().get(at..at + len).unwrap_or_default();
            let packet = PacketBuf::from_slice(pool, bytes, offload);
            self.spare = Some(block);
            return Ok(ReadOutcome::Packet(packet));
        }
        Ok(ReadOutcome::Packet(PacketBuf::from_block(block, at, len, offload)))
    }

    /// Writes one packet: its parts in order. Never waits. Success means that the kernel took it,
    /// not that it forwards it.
    ///
    /// # Errors
    /// See [`WriteError`]; nothing was written then.
    pub fn write(
        &self,
        offload: &Offload,
        header: &[u8],
        payload: &[&[u8]],
    ) -> std::result::Result<(), WriteError> {
        self.write_behind(&[], offload, header, payload)
    }

    /// The same behind a header of the link layer.
    ///
    /// # Errors
    /// As of [`Tun::write`].
    pub fn write_behind(
        &self,
        link_header: &[u8],
        offload: &Offload,
        header: &[u8],
        payload: &[&[u8]],
    ) -> std::result::Result<(), WriteError> {
        const PARTS_MAX: usize = 64;
        let len = header.len() + payload.iter().map(|p| p.len()).sum::<usize>();
        if link_header.len() + len > MAX_WRITE_BYTES {
            return Err(WriteError::TooLarge);
        }
        let vnet = offload.shifted(link_header.len() as i16).write();
        if payload.len() + 3 <= PARTS_MAX {
            let mut parts = [IoSlice::new(&[]); PARTS_MAX];
            parts[0] = IoSlice::new(&vnet);
            parts[1] = IoSlice::new(link_header);
            parts[2] = IoSlice::new(header);
            for (slot, part) in parts[3..].iter_mut().zip(payload) {
                *slot = IoSlice::new(part);
            }
            return self.writev(&parts[..payload.len() + 3]);
        }
        // Many small pieces (1-byte writes of a host): one copy is cheaper than a long vector.
        let mut whole = Vec::with_capacity(len);
        whole.extend_from_slice(header);
        payload.iter().for_each(|p| whole.extend_from_slice(p));
        self.writev(&[IoSlice::new(&vnet), IoSlice::new(link_header), IoSlice::new(&whole)])
    }

    fn writev(&self, parts: &[IoSlice<'_>]) -> std::result::Result<(), WriteError> {
        loop {
            return match rustix::io::writev(&self.fd, parts) {
                Ok(_) => Ok(()),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM) => Err(WriteError::Busy),
                Err(Errno::INVAL | Errno::MSGSIZE) => Err(WriteError::Invalid),
                Err(_) => Err(WriteError::Down),
            };
        }
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// What stands in the way of a TUN, and what helps.
fn cannot_open(error: Errno) -> &'static str {
    match error {
        Errno::ACCESS | Errno::PERM => {
            "opening /dev/net/tun: it takes root, or CAP_NET_ADMIN (as the unit gives it) and leave to use the device; in a network \
             namespace of one's own the latter is enough"
        }
        _ => "opening /dev/net/tun (`modprobe tun` loads it; a container must be given the device)",
    }
}

/// Whether it is an IP packet to one host.
fn is_unicast(packet: &[u8]) -> bool {
    match packet.first().map(|b| b >> 4) {
        Some(4) => packet.get(16).is_some_and(|b| *b < 224),
        Some(6) => packet.get(24).is_some_and(|b| *b != 0xff),
        _ => false,
    }
}

/// TUNSETIFF, waiting for a killed predecessor's device of this name to vanish.
fn attach(fd: &OwnedFd, name: &str, kind: libc::c_int) -> Result<()> {
    const ATTEMPTS: u32 = 100;
    let flags = kind | libc::IFF_NO_PI | libc::IFF_VNET_HDR | libc::IFF_TUN_EXCL;
    // SAFETY: ifreq is plain data, zero is a valid value of each field.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (slot, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *slot = byte as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (flags & 0xffff) as libc::c_short;
    for attempt in 1.. {
        // SAFETY: TUNSETIFF reads and writes one ifreq behind the pointer.
        if unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF, &raw mut request) } >= 0 {
            break;
        }
        let error = io::Error::last_os_error();
        let in_use = matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST));
        if !in_use || attempt >= ATTEMPTS {
            let hint = match error.raw_os_error() {
                Some(libc::EPERM) => " (it takes root, or CAP_NET_ADMIN)",
                Some(libc::EBUSY | libc::EEXIST) => {
                    " (another process holds a device of this name; if that is another gateway, give this one an `instance`, a `table_base` \
                     and a `mark_mask` of its own in `[divert]`)"
                }
                _ => "",
            };
            return Err(Error::os(format!("creating the TUN {name}{hint}"), error));
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    Ok(())
}

/// Asks for one offload after the other and keeps what works: older kernels refuse a set with one
/// unknown member.
fn probe_offloads(fd: &OwnedFd) -> Offloads {
    let mut have = Offloads::default();
    let steps: [fn(&mut Offloads); 5] =
        [|o| o.checksum = true, |o| o.tso4 = true, |o| o.tso6 = true, |o| o.ecn = true, |o| o.uso = true];
    for step in steps {
        let mut wanted = have;
        step(&mut wanted);
        // SAFETY: TUNSETOFFLOAD takes the bits by value.
        if unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(wanted.bits())) }
            >= 0
        {
            have = wanted;
        }
    }
    have
}

/// Parameters of the new device (and of nothing else) that forwarding through it needs.
fn prepare_sysctls(name: &str) -> Result<()> {
    let wanted = [
        // What comes out of a TUN is routed on, also where the administrator forwards between
        // chosen interfaces only.
        ("ipv4", "forwarding", "1"),
        ("ipv6", "force_forwarding", "1"),
        // Sources of all kinds come out of it; 1 and 2 drop everything on a device without
        // addresses.
        ("ipv4", "rp_filter", "0"),
        // ICMP errors that the gateway makes carry one of this machine's own addresses as their
        // source.
        ("ipv4", "accept_local", "1"),
        ("ipv4", "send_redirects", "0"),
        ("ipv6", "disable_ipv6", "0"),
        ("ipv6", "accept_ra", "0"),
        ("ipv6", "router_solicitations", "0"),
        // A device without a reader must not swallow what is routed to it.
        ("ipv4", "ignore_routes_with_linkdown", "1"),
        ("ipv6", "ignore_routes_with_linkdown", "1"),
    ];
    for (family, key, value) in wanted {
        let parts = [family, "conf", name, key];
        // A kernel without IPv6, or without one of the younger parameters.
        if !sysctl::exists(&parts) {
            continue;
        }
        sysctl::write(&parts, value)?;
    }
    Ok(())
}

/// The larger of `all` and the device's own rp_filter counts. 1, and on a device without an address
/// 2, drop everything that comes out of a TUN: sources of all kinds do. So the device has 0 while
/// `all` is 0. Otherwise it gets an address that nobody uses and 2, which is then in force whatever
/// `all` says, and accepts every source that has a route. Says what had to be changed.
pub(crate) fn open_source_check(netlink: &mut Socket, name: &str, index: u32) -> Result<Option<String>> {
    let value = |of: &str| sysctl::read_number(&["ipv4", "conf", of, "rp_filter"]).unwrap_or(0);
    let (all, own) = (value("all"), value(name));
    let wanted = if all == 0 { 0 } else { 2 };
    if wanted == 2 {
        // Only asked here: usually there is nothing to ask.
        let has_address = netlink.addresses_of(index)?.contains(&DUMMY_ADDRESS.into());
        if !has_address {
            netlink.address_add(index, DUMMY_ADDRESS.into(), 32)?;
        }
    }
    if own == wanted {
        return Ok(None);
    }
    sysctl::write(&["ipv4", "conf", name, "rp_filter"], &wanted.to_string())?;
    // 0 is laxer than needed to the one side, and 2 to the other: only what drops is worth a word.
    let drops = all.max(own) > 0 && (own != 2 || all != 0);
    Ok(drops.then(|| {
        let (key, value) = if own == 1 { (name, own) } else { ("all", all) };
        format!("net.ipv4.conf.{key}.rp_filter={value}")
    }))
}
