//! What changes while the daemon runs: interfaces, routes, rules, addresses.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use super::link::Link;
use super::message::Answers;
use super::socket::{Socket, set_option};
use crate::error::{Error, Result};

const RTMGRP_LINK: u32 = 1;
const RTMGRP_IPV4_IFADDR: u32 = 0x10;
const RTMGRP_IPV4_ROUTE: u32 = 0x40;
const RTMGRP_IPV4_RULE: u32 = 0x80;
const RTMGRP_IPV6_IFADDR: u32 = 0x100;
const RTMGRP_IPV6_ROUTE: u32 = 0x400;
/// RTNLGRP_IPV6_RULE is group 19.
const RTMGRP_IPV6_RULE: u32 = 1 << 18;
/// RTNLGRP_IPV4_NETCONF is group 24, that of IPv6 group 25.
const RTMGRP_NETCONF: u32 = 1 << 23 | 1 << 24;
/// RTM_NEWNETCONF and RTM_DELNETCONF: forwarding, among others.
const NETCONF: std::ops::RangeInclusive<u16> = 80..=81;
const RECEIVE_BUFFER_BYTES: i32 = 1 << 20;

/// Something changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// An interface came or changed (state, carrier, MTU).
    Link(Link),
    /// An interface went.
    LinkGone(Link),
    /// Routes, rules or addresses changed: look them up anew.
    Routes,
    /// Addresses of this machine changed, besides.
    Addresses,
    /// Interfaces forward now that did not, or the other way round.
    Forwarding,
    /// Events were lost: look at everything anew.
    Lost,
}

/// Listens for changes in the namespace of the thread that opened it. Readable when there is
/// something.
#[derive(Debug)]
pub struct Monitor {
    socket: Socket,
}

impl Monitor {
    /// Starts listening.
    pub fn open() -> Result<Self> {
        let groups = RTMGRP_LINK
            | RTMGRP_IPV4_IFADDR
            | RTMGRP_IPV4_ROUTE
            | RTMGRP_IPV4_RULE
            | RTMGRP_IPV6_IFADDR
            | RTMGRP_IPV6_ROUTE
            | RTMGRP_IPV6_RULE
            | RTMGRP_NETCONF;
        let socket = Socket::with_groups(groups, true)?;
        // Refused without privilege; then the default size stands and overruns are reported as
        // Event::Lost.
        let fd = rustix::fd::AsRawFd::as_raw_fd(&socket.as_fd());
        let _ = set_option(&fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES);
        Ok(Self { socket })
    }

    /// Hands what has come to `see`; several changes of routes in a row are one event.
    pub fn drain(&mut self, mut see: impl FnMut(Event)) -> Result<()> {
        let (mut routes, mut addresses, mut forwarding) = (false, false, false);
        // Bounded, so that a storm of changes cannot hold up packets.
        for _ in 0..256 {
            let datagram = match self.socket.receive() {
                Ok(datagram) => datagram,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => {
                    see(Event::Lost);
                    continue;
                }
                Err(e) => return Err(Error::os("reading network events", e)),
            };
            for answer in Answers::new(datagram) {
                match answer.kind {
                    libc::RTM_NEWLINK => {
                        if let Some(link) = Link::parse(&answer) {
                            see(Event::Link(link));
                        }
                    }
                    libc::RTM_DELLINK => {
                        if let Some(link) = Link::parse(&answer) {
                            see(Event::LinkGone(link));
                        }
                    }
                    kind if NETCONF.contains(&kind) => forwarding = true,
                    kind => {
                        routes = true;
                        addresses |= matches!(kind, libc::RTM_NEWADDR | libc::RTM_DELADDR);
                    }
                }
            }
        }
        let happened =
            [(routes, Event::Routes), (addresses, Event::Addresses), (forwarding, Event::Forwarding)];
        happened.into_iter().filter(|(has, _)| *has).for_each(|(_, event)| see(event));
        Ok(())
    }
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
