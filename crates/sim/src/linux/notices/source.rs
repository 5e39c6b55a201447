//! Sources of the bench: hosts that write without end.

use std::str::FromStr;
use std::sync::Arc;

use farlink_wire::Instant;

use super::super::config::LinuxConfig;
use super::super::congestion::Kind;
use super::super::conn::Conn;
use crate::content::Endpoint;
use crate::host::{Host, SmolHost, address};
use crate::packet::tcp;
use crate::traffic::{Congestion, Connection, HostConfig, Side};

/// Ports of both ends.
const PORTS: (u16, u16) = (30_000, 1_000);
/// What smoltcp may have under way, bytes: as much as the receiver's window becomes.
const SMOL_BUFFER_BYTES: usize = 4 << 20;
/// More than any bench waits for.
const WITHOUT_END_BYTES: u64 = 1 << 30;

/// Which TCP the source has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stack {
    /// Linux with this congestion control.
    Linux(Kind),
    /// Linux with CUBIC that offers no SACK.
    NoSack,
    /// Linux with CUBIC that offers no timestamps.
    NoTimestamps,
    /// smoltcp with CUBIC.
    Smoltcp,
    /// Linux with CUBIC that knows intermediate acknowledgements (Reynolds, 3.4.5).
    Reynolds,
}

impl Stack {
    /// All of them.
    pub const ALL: [(&str, Self); 7] = [
        ("cubic", Self::Linux(Kind::Cubic)),
        ("reno", Self::Linux(Kind::Reno)),
        ("bbr", Self::Linux(Kind::Bbr)),
        ("no-sack", Self::NoSack),
        ("no-timestamps", Self::NoTimestamps),
        ("smoltcp", Self::Smoltcp),
        ("reynolds", Self::Reynolds),
    ];

    /// The name of the congestion control of a kernel that does the same; `None`: no kernel does.
    #[must_use]
    pub fn kernels(self) -> Option<&'static str> {
        let stack = match self {
            Self::Linux(_) => self,
            Self::NoSack | Self::NoTimestamps => Self::Linux(Kind::Cubic),
            Self::Smoltcp | Self::Reynolds => return None,
        };
        Self::ALL.into_iter().find(|(_, known)| *known == stack).map(|(name, _)| name)
    }
}

impl FromStr for Stack {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        let names = || Self::ALL.map(|(name, _)| name).join(", ");
        let found = Self::ALL.into_iter().find(|(name, _)| *name == s).map(|(_, stack)| stack);
        found.ok_or_else(|| format!("there is no source `{s}`; there are {}", names()))
    }
}

/// A source.
pub(super) enum Source {
    Linux(Box<Conn>),
    Smol(Box<SmolHost>),
}

impl Source {
    pub(super) fn new(stack: Stack) -> Self {
        let linux = |config| Self::Linux(Box::new(Conn::connect(config, own_end(), far_end(), 77)));
        let cubic = LinuxConfig::modern(Kind::Cubic);
        match stack {
            Stack::Linux(kind) => linux(LinuxConfig::modern(kind)),
            Stack::NoSack => linux(LinuxConfig { sack: false, ..cubic }),
            Stack::NoTimestamps => linux(LinuxConfig { timestamps: false, ..cubic }),
            Stack::Reynolds => linux(LinuxConfig { iack: true, ..cubic }),
            Stack::Smoltcp => {
                let mut plan = Connection::new(0, 1, 0, WITHOUT_END_BYTES, 0);
                plan.sides[0] = Side {
                    tx_buffer_bytes: SMOL_BUFFER_BYTES,
                    congestion: Congestion::Cubic,
                    ..plan.sides[0].clone()
                };
                Self::Smol(Box::new(SmolHost::new(0, HostConfig::default(), Arc::new(vec![plan]), 77)))
            }
        }
    }

    pub(super) fn timeout(&mut self, now: Instant) {
        match self {
            Self::Linux(conn) => conn.timeout(now),
            Self::Smol(host) => {
                if host.deadline().is_some_and(|at| at <= now) {
                    host.run(now);
                }
            }
        }
    }

    pub(super) fn receive(&mut self, now: Instant, packet: &[u8]) {
        match self {
            Self::Linux(conn) => {
                if let Some(s) = tcp(packet) {
                    conn.receive(now, &s, packet);
                }
            }
            Self::Smol(host) => {
                host.receive(now, packet);
                host.run(now);
            }
        }
    }

    pub(super) fn next_packet(&mut self, now: Instant) -> Option<Vec<u8>> {
        match self {
            Self::Linux(conn) => conn.next_packet(now, &|_, into| into.fill(7)),
            Self::Smol(host) => host.take_output(),
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Linux(conn) => conn.deadline(),
            Self::Smol(host) => host.deadline(),
        }
    }

    /// It has a connection; one that opens it by itself may not have one yet.
    pub(super) fn is_open(&self) -> bool {
        if let Self::Linux(conn) = self { conn.is_open() } else { true }
    }

    /// Writes without end, where it does not do so by itself.
    pub(super) fn write(&mut self) {
        if let Self::Linux(conn) = self {
            conn.tx.write(WITHOUT_END_BYTES);
        }
    }

    /// Its congestion window in segments, where it tells.
    pub(super) fn cwnd(&self) -> Option<u32> {
        if let Self::Linux(conn) = self { Some(conn.tx.window.cwnd) } else { None }
    }
}

/// Where the source is.
pub(super) fn own_end() -> Endpoint {
    (address(0, false), PORTS.0)
}

/// Where the receiver is.
pub(super) fn far_end() -> Endpoint {
    (address(1, false), PORTS.1)
}
