//! What happens to connections, as values. The counters count them, the log of connections tells
//! them, and the trace of a connection shows them.

use core::net::SocketAddr;

use farlink_cc::Doubt;
use farlink_wire::{Flags, TcpSegment};

pub use crate::leave::Refusal;
use crate::side::Side;
use crate::spent::Spent;

/// What happened to a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A rule passes it by.
    Passed,
    /// A rule refuses it.
    Refused,
    /// It is forwarded, though no rule says so.
    Forwarded(Because),
    /// Its handshake is complete, and it is split.
    Split,
    /// Nothing is held for it any longer: it is forwarded, and remembered.
    Slept(Carried),
    /// It is split again.
    Woken,
    /// A new connection has taken the place of its record.
    Evicted,
    /// Both hosts have closed it.
    Closed(Carried),
    /// A host has reset it.
    Reset(Carried),
    /// The gateway has given up what it held for it.
    Abandoned(Carried),
    /// Packets of it have gone round the gateway.
    Bypassed,
    /// The retransmission timer towards this host has expired.
    TimedOut(Side),
    /// Losses towards this host are being repaired.
    Recovers(Side),
    /// A segment of this host is answered with a challenge ACK (RFC 5961).
    Challenged(Side),
    /// A segment of this host was dropped for want of buffer. The host repeats it.
    NoBuffer(Side),
    /// A segment of this host was dropped because much was held already.
    QueueDrop(Side),
    /// What is sent to this host goes by what routers say (XCP).
    Explicit(Side),
    /// It does no longer, for this reason; BBR governs until routers are tried again.
    Doubted(Side, Doubt),
    /// What was sent to this host ahead of its window was refused so, within a round trip.
    Refuses(Side, Refusal),
}

/// Why a connection is forwarded, though no rule says so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Because {
    /// An option or its shape forbids splitting.
    Unsplittable,
    /// Memory or the flow table is short.
    Memory,
    /// The processor is short.
    Processor,
}

/// What the connection has carried since it was split last, and what it took.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Carried {
    /// Payload from the client that the server has acknowledged, bytes.
    pub to_server_bytes: u64,
    /// Payload from the server that the client has acknowledged, bytes.
    pub to_client_bytes: u64,
    /// What was sent from here to the server.
    pub spent_to_server: Spent,
    /// What was sent from here to the client.
    pub spent_to_client: Spent,
}

/// The hosts of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ends {
    /// The host that sent the SYN.
    pub client: SocketAddr,
    /// The other one.
    pub server: SocketAddr,
}

impl Ends {
    /// Of a segment of a handshake: only a server's has SYN and ACK.
    #[must_use]
    pub(crate) fn of_handshake(s: &TcpSegment) -> Self {
        let (src, dst) = (SocketAddr::new(s.ip.src, s.src_port), SocketAddr::new(s.ip.dst, s.dst_port));
        let is_servers = s.flags.contains(Flags::SYN | Flags::ACK);
        let (client, server) = if is_servers { (dst, src) } else { (src, dst) };
        Self { client, server }
    }
}

impl Event {
    /// For people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Passed => "passed by rule",
            Self::Refused => "refused by rule",
            Self::Forwarded(Because::Unsplittable) => "forwarded: cannot be split",
            Self::Forwarded(Because::Memory) => "forwarded: memory is short",
            Self::Forwarded(Because::Processor) => "forwarded: the processor is short",
            Self::Split => "split",
            Self::Slept(_) => "asleep",
            Self::Woken => "split again",
            Self::Evicted => "forgotten for a new connection",
            Self::Closed(_) => "closed",
            Self::Reset(_) => "reset by a host",
            Self::Abandoned(_) => "given up",
            Self::Bypassed => "packets went round the gateway",
            Self::TimedOut(_) => "retransmission timeout",
            Self::Recovers(_) => "repairs losses",
            Self::Challenged(_) => "challenge ACK",
            Self::NoBuffer(_) => "segment dropped: no buffer",
            Self::QueueDrop(_) => "segment dropped: much is held",
            Self::Explicit(_) => "XCP: goes by what routers say",
            Self::Doubted(_, Doubt::Silent) => "XCP given up: no router speaks",
            Self::Doubted(_, Doubt::Marked) => "XCP given up: a queue marks packets",
            Self::Doubted(_, Doubt::Overrun) => "XCP given up: a queue that is none of theirs overflows",
            Self::Doubted(_, Doubt::Contradicted) => "XCP given up: routers give twice what arrives",
            Self::Doubted(_, Doubt::Absurd) => "XCP given up: routers take more than any queue could",
            Self::Doubted(_, Doubt::Starved) => "XCP given up: routers leave nothing, and no queue shows",
            Self::Refuses(_, Refusal::Reset) => "ahead of its window: a reset",
            Self::Refuses(_, Refusal::Dropped) => "ahead of its window: dropped",
        }
    }

    /// Which host's packets, or the packets to which host, it is about.
    #[must_use]
    pub const fn side(self) -> Option<Side> {
        match self {
            Self::TimedOut(side)
            | Self::Recovers(side)
            | Self::Challenged(side)
            | Self::NoBuffer(side)
            | Self::QueueDrop(side)
            | Self::Explicit(side)
            | Self::Doubted(side, _)
            | Self::Refuses(side, _) => Some(side),
            _ => None,
        }
    }

    /// What the connection had carried when it ended or fell asleep.
    #[must_use]
    pub const fn carried(self) -> Option<Carried> {
        match self {
            Self::Slept(carried)
            | Self::Closed(carried)
            | Self::Reset(carried)
            | Self::Abandoned(carried) => Some(carried),
            _ => None,
        }
    }
}
