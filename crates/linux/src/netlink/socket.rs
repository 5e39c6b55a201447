//! A blocking netlink socket: one request, its answers, its acknowledgement.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::message::{Answer, Answers, Attributes, Message, u32_at};
use crate::error::{Error, Result};

const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_DUMP: u16 = 0x300;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_DUMP_INTR: u16 = 0x10;
const NLM_F_CAPPED: u16 = 0x100;
const NLM_F_ACK_TLVS: u16 = 0x200;
const NLMSGERR_ATTR_MSG: u16 = 1;
const SOL_NETLINK: libc::c_int = 270;
const NETLINK_EXT_ACK: libc::c_int = 11;
const NETLINK_GET_STRICT_CHK: libc::c_int = 12;
/// The kernel never sends more in one datagram to a reader with a buffer of this size
/// (netlink_dump).
const RECEIVE_BYTES: usize = 32 * 1024;
/// How often a dump that the kernel calls inconsistent is repeated.
const DUMP_ATTEMPTS: usize = 5;

/// A socket in the network namespace of the thread that opened it; it stays there.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Socket {
    /// A socket for requests.
    pub fn open() -> Result<Self> {
        Self::of_protocol(libc::NETLINK_ROUTE, 0, false)
    }

    /// A socket that also receives the events of these groups (RTMGRP_... bits).
    pub(crate) fn with_groups(groups: u32, nonblocking: bool) -> Result<Self> {
        Self::of_protocol(libc::NETLINK_ROUTE, groups, nonblocking)
    }

    /// A socket for requests to netfilter.
    pub(crate) fn netfilter() -> Result<Self> {
        Self::of_protocol(libc::NETLINK_NETFILTER, 0, false)
    }

    fn of_protocol(protocol: libc::c_int, groups: u32, nonblocking: bool) -> Result<Self> {
        let extra = if nonblocking { libc::SOCK_NONBLOCK } else { 0 };
        // SAFETY: plain system call; the descriptor is owned from here on.
        let fd = unsafe {
            let fd = libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC | extra, protocol);
            if fd < 0 {
                return Err(Error::last_os("opening a netlink socket"));
            }
            OwnedFd::from_raw_fd(fd)
        };
        for option in [NETLINK_EXT_ACK, NETLINK_GET_STRICT_CHK] {
            // Kernels before 4.20 know the second one not; they then merely answer more than was
            // asked.
            let _ = set_option(&fd, SOL_NETLINK, option, 1);
        }
        // SAFETY: sockaddr_nl is plain data, zero is a valid value of each field.
        let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
        address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
        address.nl_groups = groups;
        // SAFETY: the pointer and length describe `address`, which lives through the call.
        let bound = unsafe {
            libc::bind(
                fd.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_nl>() as libc::socklen_t,
            )
        };
        if bound < 0 {
            return Err(Error::last_os("binding a netlink socket"));
        }
        Ok(Self { fd, sequence: 0, buffer: vec![0; RECEIVE_BYTES] })
    }

    /// Sends a request and waits for its acknowledgement. `what` says what is attempted, for the
    /// error.
    pub fn request(&mut self, mut message: Message, what: &str) -> Result<()> {
        message.add_flags(NLM_F_REQUEST | NLM_F_ACK);
        let sequence = self.send(&mut message, what)?;
        self.collect(sequence, what, false, &mut |_| {})?;
        Ok(())
    }

    /// Sends a request that has one answer besides its acknowledgement, and hands that to `see`.
    pub fn query(&mut self, mut message: Message, what: &str, mut see: impl FnMut(Answer<'_>)) -> Result<()> {
        message.add_flags(NLM_F_REQUEST | NLM_F_ACK);
        let sequence = self.send(&mut message, what)?;
        self.collect(sequence, what, false, &mut see)?;
        Ok(())
    }

    /// Sends requests that have one answer each, in one datagram. `see` gets each answer with the
    /// place of its request. The kernel answers them while it takes them, so nobody waits here:
    /// what its buffer had no room for is not seen.
    pub(crate) fn query_all(
        &mut self,
        messages: &mut [Message],
        what: &str,
        mut see: impl FnMut(usize, Result<Answer<'_>>),
    ) -> Result<()> {
        let first = self.sequence.wrapping_add(1);
        let mut all = Vec::new();
        for message in &mut *messages {
            self.sequence = self.sequence.wrapping_add(1);
            message.add_flags(NLM_F_REQUEST);
            all.extend_from_slice(message.finish(self.sequence));
        }
        self.send_bytes(&all, what)?;
        let mut left = messages.len();
        while left > 0 {
            let datagram = match self.receive_with(libc::MSG_DONTWAIT) {
                Ok(datagram) => datagram,
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(Error::os(what.to_owned(), error)),
            };
            for answer in Answers::new(datagram) {
                let place = answer.sequence.wrapping_sub(first) as usize;
                if place < messages.len() {
                    left = left.saturating_sub(1);
                    let is_error = answer.kind == NLMSG_ERROR;
                    see(
                        place,
                        if is_error { acknowledged(&answer, what).map(|()| answer) } else { Ok(answer) },
                    );
                }
            }
        }
        Ok(())
    }

    /// Sends a dump request and hands every answer to `see`. When the table changes under the dump
    /// it starts again, so `see` may hear things twice.
    pub fn dump(&mut self, message: Message, what: &str, see: impl FnMut(Answer<'_>)) -> Result<()> {
        match self.try_dump(message, what, see)? {
            true => Ok(()),
            false => {
                Err(Error::Refused(format!("{what}: the kernel's table changes faster than it can be read")))
            }
        }
    }

    /// The same where the table may change all the time. Returns whether the last dump was whole:
    /// else something may be missing.
    pub fn try_dump(
        &mut self,
        mut message: Message,
        what: &str,
        mut see: impl FnMut(Answer<'_>),
    ) -> Result<bool> {
        message.add_flags(NLM_F_REQUEST | NLM_F_DUMP);
        for _ in 0..DUMP_ATTEMPTS {
            let sequence = self.send(&mut message, what)?;
            if !self.collect(sequence, what, true, &mut see)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn send(&mut self, message: &mut Message, what: &str) -> Result<u32> {
        self.sequence = self.sequence.wrapping_add(1).max(1);
        self.send_bytes(message.finish(self.sequence), what)?;
        Ok(self.sequence)
    }

    fn send_bytes(&self, bytes: &[u8], what: &str) -> Result<()> {
        // SAFETY: the pointer and length describe `bytes`, which lives through the call.
        match unsafe { libc::send(self.fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), 0) } {
            sent if sent < 0 => Err(Error::last_os(what.to_owned())),
            _ => Ok(()),
        }
    }

    /// Reads one datagram; the slice is valid until the next call.
    pub(crate) fn receive(&mut self) -> io::Result<&[u8]> {
        self.receive_with(0)
    }

    fn receive_with(&mut self, flags: libc::c_int) -> io::Result<&[u8]> {
        loop {
            // SAFETY: the pointer and length describe `buffer`, which is exclusively ours.
            let n = unsafe {
                libc::recv(self.fd.as_raw_fd(), self.buffer.as_mut_ptr().cast(), self.buffer.len(), flags)
            };
            match usize::try_from(n) {
                Ok(n) => return Ok(&self.buffer[..n]),
                Err(_) => {
                    let error = io::Error::last_os_error();
                    if error.kind() != io::ErrorKind::Interrupted {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Hands the answers to `sequence` to `see` until its end. Returns whether a dump was
    /// interrupted by a change.
    fn collect(
        &mut self,
        sequence: u32,
        what: &str,
        is_dump: bool,
        see: &mut dyn FnMut(Answer<'_>),
    ) -> Result<bool> {
        let mut interrupted = false;
        loop {
            let datagram = self.receive().map_err(|e| Error::os(what.to_owned(), e))?;
            for answer in Answers::new(datagram) {
                if answer.sequence != sequence {
                    continue;
                }
                interrupted |= answer.flags & NLM_F_DUMP_INTR != 0;
                match answer.kind {
                    NLMSG_ERROR => return acknowledged(&answer, what).map(|()| interrupted),
                    NLMSG_DONE if is_dump => return acknowledged(&answer, what).map(|()| interrupted),
                    _ => see(answer),
                }
            }
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The error in an acknowledgement (or the end of a dump), with the kernel's own words.
fn acknowledged(answer: &Answer<'_>, what: &str) -> Result<()> {
    let code = u32_at(answer.payload, 0).unwrap_or(0).cast_signed();
    if code == 0 {
        return Ok(());
    }
    let mut message = String::new();
    if answer.flags & NLM_F_ACK_TLVS != 0 {
        // After the code stands the header of the request, and without CAPPED the whole request.
        let skip = if answer.kind == NLMSG_DONE {
            4
        } else if answer.flags & NLM_F_CAPPED != 0 {
            20
        } else {
            4 + u32_at(answer.payload, 4).unwrap_or(0) as usize
        };
        let attributes = Attributes::new(answer.payload.get(skip..).unwrap_or_default());
        message = attributes.find_str(NLMSGERR_ATTR_MSG).unwrap_or_default();
    }
    Err(Error::Netlink {
        what: what.to_owned(),
        answer: io::Error::from_raw_os_error(code.saturating_neg()),
        message,
    })
}

/// `setsockopt` with an integer.
pub(crate) fn set_option(fd: &impl AsRawFd, level: i32, option: i32, value: i32) -> io::Result<()> {
    // SAFETY: the pointer and length describe `value`, which lives through the call.
    let rc = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
