//! The ends of the emulated wire: AF_PACKET sockets that take every frame off an interface and put
//! frames onto one.

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use farlink_wire::{Duration, Instant};

use crate::clock;
use crate::error::{Error, Result};
use crate::netlink::set_option;

/// Bytes of an Ethernet header; what the emulated link counts begins behind it.
pub(crate) const ETHERNET_BYTES: usize = 14;
/// Largest frame that can be carried. A larger one is a super-segment: somebody left offloads on.
const FRAME_MAX_BYTES: usize = 16 * 1024;
const BATCH: usize = 64;
/// The far end's queue in the kernel (net.core.netdev_max_backlog) may be full for a moment when
/// the machine is busy; no wire loses a frame by that. So often a frame is tried, and so long it is
/// waited between.
const SEND_TRIES: u32 = 200;
const SEND_PAUSE: Duration = Duration::from_micros(100);
const SOCKET_BUFFER_BYTES: i32 = 256 << 20;
const CONTROL_BYTES: usize = 128;
/// A packet's checksum is still to be filled in by hardware that is not there (linux/if_packet.h).
const TP_STATUS_CSUMNOTREADY: u32 = 8;
/// struct tpacket_auxdata of linux/if_packet.h: status is its first word.
const PACKET_AUXDATA: i32 = 8;

/// What went wrong with frames at this end; all should be zero in a valid measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct WireFaults {
    /// Frames that the kernel dropped because the emulator was too slow.
    pub overrun_packets: u64,
    /// Frames larger than any wire carries (offloads are on at the far end); dropped.
    pub oversized_packets: u64,
    /// Frames with unfinished checksums (offloads are on at the far end); carried.
    pub unfinished_checksums: u64,
    /// Frames that could not be sent on.
    pub send_failures: u64,
    /// The error number of the last of them.
    pub send_errno: i32,
}

fn socket() -> Result<OwnedFd> {
    // SAFETY: plain system call; the descriptor is owned from here on. Protocol 0 receives nothing
    // until it is bound, so no frame of another interface slips in.
    unsafe {
        let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0);
        if fd < 0 {
            return Err(Error::last_os("opening a packet socket (CAP_NET_RAW is needed)"));
        }
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

fn bind(fd: &OwnedFd, interface: u32, protocol: u16) -> Result<()> {
    // SAFETY: sockaddr_ll is plain data, zero is a valid value of each field.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = interface.cast_signed();
    let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the pointer and length describe `address`, which lives through the call.
    if unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len) } < 0 {
        return Err(Error::last_os("binding a packet socket"));
    }
    Ok(())
}

fn big_buffer(fd: &OwnedFd, forced: i32, plain: i32) {
    // With privilege beyond the machine's limit, otherwise up to it.
    if set_option(fd, libc::SOL_SOCKET, forced, SOCKET_BUFFER_BYTES).is_err() {
        let _ = set_option(fd, libc::SOL_SOCKET, plain, SOCKET_BUFFER_BYTES);
    }
}

/// Takes frames off an interface.
pub(crate) struct Receiver {
    fd: OwnedFd,
    frames: Vec<u8>,
    controls: Vec<u8>,
    pub(crate) faults: WireFaults,
}

impl Receiver {
    /// All frames that come in by an interface (not those that leave by it).
    pub(crate) fn open(interface: u32) -> Result<Self> {
        let fd = socket()?;
        big_buffer(&fd, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF);
        set_option(&fd, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)
            .map_err(|e| Error::os("PACKET_IGNORE_OUTGOING (Linux 4.20 or newer is needed)", e))?;
        set_option(&fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)
            .map_err(|e| Error::os("asking for time stamps", e))?;
        set_option(&fd, libc::SOL_PACKET, PACKET_AUXDATA, 1)
            .map_err(|e| Error::os("asking for checksum states", e))?;
        bind(&fd, interface, libc::ETH_P_ALL as u16)?;
        Ok(Self {
            fd,
            frames: vec![0; BATCH * FRAME_MAX_BYTES],
            controls: vec![0; BATCH * CONTROL_BYTES],
            faults: WireFaults::default(),
        })
    }

    /// Hands the frames that have come, at most a batch, to `see`, each with the time at which the
    /// kernel got it. Returns whether there may be more.
    pub(crate) fn receive(&mut self, mut see: impl FnMut(Instant, &[u8])) -> Result<bool> {
        // SAFETY: mmsghdr and iovec are plain data, zero is a valid value of each field.
        let mut messages: [libc::mmsghdr; BATCH] = unsafe { mem::zeroed() };
        // SAFETY: as above.
        let mut parts: [libc::iovec; BATCH] = unsafe { mem::zeroed() };
        let buffers =
            self.frames.chunks_exact_mut(FRAME_MAX_BYTES).zip(self.controls.chunks_exact_mut(CONTROL_BYTES));
        for ((message, part), (frame, control)) in messages.iter_mut().zip(&mut parts).zip(buffers) {
            part.iov_base = frame.as_mut_ptr().cast();
            part.iov_len = frame.len();
            message.msg_hdr.msg_iov = part;
            message.msg_hdr.msg_iovlen = 1;
            message.msg_hdr.msg_control = control.as_mut_ptr().cast();
            // Of another type with another C library, as the flags below.
            message.msg_hdr.msg_controllen = control.len() as _;
        }
        // SAFETY: every message points to buffers of `self` and parts of this frame, all alive and
        // unshared.
        let n = unsafe {
            libc::recvmmsg(
                self.fd.as_raw_fd(),
                messages.as_mut_ptr(),
                BATCH as u32,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        let Ok(n) = usize::try_from(n) else {
            let error = io::Error::last_os_error();
            return match error.raw_os_error() {
                // ENETDOWN: the interface is down for the moment.
                Some(libc::EAGAIN | libc::EINTR | libc::ENETDOWN) => Ok(false),
                _ => Err(Error::os("receiving frames", error)),
            };
        };
        let offset = clock::realtime_offset_ns();
        for (message, frame) in messages.iter().zip(self.frames.chunks_exact(FRAME_MAX_BYTES)).take(n) {
            let (stamp, status) = read_control(&message.msg_hdr);
            if status & TP_STATUS_CSUMNOTREADY != 0 {
                self.faults.unfinished_checksums += 1;
            }
            if message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0 {
                self.faults.oversized_packets += 1;
                continue;
            }
            let at = stamp.map_or_else(clock::now, |s| Instant::from_nanos(s.saturating_sub(offset)));
            see(at, frame.get(..message.msg_len as usize).unwrap_or_default());
        }
        Ok(n == BATCH)
    }

    /// Asks the kernel how many frames it dropped since the last time.
    pub(crate) fn count_overruns(&mut self) {
        // SAFETY: tpacket_stats is plain data, zero is a valid value of each field.
        let mut stats: libc::tpacket_stats = unsafe { mem::zeroed() };
        let mut len = size_of::<libc::tpacket_stats>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes into `stats`.
        let rc = unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut stats).cast(),
                &raw mut len,
            )
        };
        if rc == 0 {
            self.faults.overrun_packets += u64::from(stats.tp_drops);
        }
    }
}

impl AsFd for Receiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Time stamp (nanoseconds of CLOCK_REALTIME) and packet status out of a received message.
pub(super) fn read_control(header: &libc::msghdr) -> (Option<u64>, u32) {
    let (mut stamp, mut status) = (None, 0);
    // SAFETY: the kernel has filled in a well-formed chain of control messages within
    // msg_controllen; the macros walk it, and each payload is read only after its type says what it
    // is.
    unsafe {
        let mut next = libc::CMSG_FIRSTHDR(header);
        while let Some(one) = next.as_ref() {
            match (one.cmsg_level, one.cmsg_type) {
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                    let t: libc::timespec = libc::CMSG_DATA(one).cast::<libc::timespec>().read_unaligned();
                    let secs = u64::try_from(t.tv_sec).unwrap_or(0);
                    stamp = Some(secs * 1_000_000_000 + u64::try_from(t.tv_nsec).unwrap_or(0));
                }
                (libc::SOL_PACKET, PACKET_AUXDATA) => {
                    status = libc::CMSG_DATA(one).cast::<u32>().read_unaligned();
                }
                _ => {}
            }
            next = libc::CMSG_NXTHDR(header, one);
        }
    }
    (stamp, status)
}

/// Puts frames onto an interface.
pub(crate) struct Sender {
    fd: OwnedFd,
    /// Frames that could not be sent, and the error number of the last of them.
    pub(crate) failures: (u64, i32),
}

impl Sender {
    pub(crate) fn open(interface: u32) -> Result<Self> {
        let fd = socket()?;
        big_buffer(&fd, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF);
        // No queue of the kernel's between the emulated link and the other end.
        let _ = set_option(&fd, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1);
        bind(&fd, interface, 0)?;
        Ok(Self { fd, failures: (0, 0) })
    }

    /// Sends these frames.
    pub(crate) fn send<'a>(&mut self, frames: impl Iterator<Item = &'a [u8]>) {
        let mut frames = frames.peekable();
        while frames.peek().is_some() {
            // SAFETY: mmsghdr and iovec are plain data, zero is a valid value of each field.
            let mut messages: [libc::mmsghdr; BATCH] = unsafe { mem::zeroed() };
            // SAFETY: as above.
            let mut parts: [libc::iovec; BATCH] = unsafe { mem::zeroed() };
            let mut count = 0;
            for ((message, part), frame) in
                messages.iter_mut().zip(&mut parts).zip(frames.by_ref().take(BATCH))
            {
                part.iov_base = frame.as_ptr().cast_mut().cast();
                part.iov_len = frame.len();
                message.msg_hdr.msg_iov = part;
                message.msg_hdr.msg_iovlen = 1;
                count += 1;
            }
            self.send_all(&mut messages[..count]);
        }
    }

    fn send_all(&mut self, mut messages: &mut [libc::mmsghdr]) {
        let mut tries = 0;
        while !messages.is_empty() {
            // SAFETY: every message points to a frame that outlives the call; the kernel only reads
            // them.
            let n = unsafe {
                libc::sendmmsg(
                    self.fd.as_raw_fd(),
                    messages.as_mut_ptr(),
                    messages.len() as u32,
                    libc::MSG_DONTWAIT as _,
                )
            };
            if let Some(n) = usize::try_from(n).ok().filter(|n| *n > 0) {
                messages = &mut messages[n..];
                tries = 0;
                continue;
            }
            // Why the first one was not taken.
            let error = io::Error::last_os_error();
            tries += 1;
            match error.raw_os_error().unwrap_or(0) {
                libc::EINTR => {}
                libc::ENOBUFS | libc::EAGAIN if tries < SEND_TRIES => std::thread::sleep(SEND_PAUSE),
                // The interface is down, or it is too large for it.
                errno => {
                    self.failures = (self.failures.0 + 1, errno);
                    messages = &mut messages[1..];
                    tries = 0;
                }
            }
        }
    }
}
