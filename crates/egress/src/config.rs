//! What an egress queue is told and what it tells.

use farlink_wire::time::Duration;

use crate::codel::Aqm;

/// Bytes of a full-size packet as the default for bursts and quanta: Ethernet's 1,500 and its
/// header.
pub const DEFAULT_MTU_BYTES: u32 = 1514;
/// The largest burst and the largest grant: one super-segment.
pub const MAX_BURST_BYTES: u32 = 65_536;
/// The groups of one queue, the default one included.
pub const MAX_GROUPS: usize = 256;
/// The weight of a group that gets a thousand times as much as the least.
pub const MAX_WEIGHT: u32 = 1000;

/// How one link is shaped and shared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// Rate of the link in bits per second, link-layer overhead included; `None`: unshaped,
    /// everything is granted at once. Zero grants nothing.
    pub rate_bps: Option<u64>,
    /// Link-layer bytes that each packet costs besides its wire bytes.
    pub overhead_bytes: u32,
    /// Largest packet (IP length) that is normally sent; a flow is never granted less.
    pub mtu_bytes: u32,
    /// The largest burst that leaves at once, in bytes; `None`: what the link carries in 1 ms, at
    /// least one packet and at most 64 KB, and up to 10 ms of it when the caller comes late.
    pub burst_bytes: Option<u32>,
    /// Bytes of owned packets that may wait.
    pub queue_limit_bytes: usize,
    /// Owned packets that may wait: each takes a block of memory, however small it is.
    pub queue_limit_packets: usize,
    /// Deficit round robin: bytes a flow may send per round; `None`: the burst.
    pub quantum_bytes: Option<u32>,
    /// Round-trip time of the link, when known. Equal flows then end one after the other, spread
    /// over a round trip, so that whoever waited for the first has time to ask for more before the
    /// link is idle. A flow leads by no more than twice an equal share of what the link carries in
    /// that time. `None`: they end together.
    pub rtt: Option<Duration>,
    /// How long managed packets may wait.
    pub aqm: Aqm,
    /// The same of TCP.
    pub aqm_of_tcp: Aqm,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            rate_bps: None,
            overhead_bytes: 0,
            mtu_bytes: DEFAULT_MTU_BYTES,
            burst_bytes: None,
            queue_limit_bytes: 4 << 20,
            queue_limit_packets: usize::MAX,
            quantum_bytes: None,
            rtt: None,
            aqm: Aqm::default(),
            aqm_of_tcp: Aqm::default(),
        }
    }
}

/// Priority of what waits: a class goes before those below it, within limits that keep the lower
/// ones (except [`Class::Background`] and [`Class::Spare`]) from starving: three quarters of what
/// it shares with them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Class {
    /// Pure ACKs and handshakes.
    Control,
    /// Small and urgent.
    Interactive,
    /// The rest.
    Bulk,
    /// Delay tolerant: only what the others leave, from the first idle moment on.
    Background,
    /// Not needed, only useful: what even those leave.
    Spare,
}

/// Names a group of one queue; the owner chooses the number.
///
/// A class is shared by groups, and a group by its flows. Groups are for whoever has a part of the
/// link to itself, however many flows that makes: the XCP traffic to one far gateway beside that
/// to another, all XCP traffic beside all the rest, or TCP beside what is no TCP. What nobody has
/// put elsewhere is in [`GroupId::DEFAULT`], which always exists.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct GroupId(pub u32);

impl GroupId {
    /// The group of whatever is in no other.
    pub const DEFAULT: Self = Self(0);
}

/// What a group gets of the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// In each class the groups that wait there share what the class gets by their weights. From 1
    /// to [`MAX_WEIGHT`]; what is outside counts as the nearest of these.
    pub weight: u32,
    /// The most that the group may send in all classes together, in bits per second, link-layer
    /// overhead included. It is kept to within a packet, or what it carries in 1 ms where that is
    /// more. What is not used goes to other groups, and is not saved up. `None`: as much as there
    /// is. Zero grants nothing.
    pub rate_bps: Option<u64>,
}

impl Default for Share {
    fn default() -> Self {
        Self { weight: 1, rate_bps: None }
    }
}

/// Where in the queue something waits. A class alone stands for its place in the default group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lane {
    /// Goes before other classes, or after them.
    pub class: Class,
    /// Has a share of what the class gets. One that does not exist is the default group.
    pub group: GroupId,
}

impl From<Class> for Lane {
    fn from(class: Class) -> Self {
        Self { class, group: GroupId::DEFAULT }
    }
}

/// The link's next customer.
#[derive(Debug, PartialEq, Eq)]
pub enum Grant<P> {
    /// An owned packet, already charged: send it.
    Packet(P),
    /// The same of one that is to be marked: the path is congested here (RFC 3168).
    Marked(P),
    /// The flow may send up to `bytes` of wire bytes (IP headers included) now; answer with
    /// [`crate::Egress::used`].
    Flow {
        /// The flow.
        id: u64,
        /// The class it was ready in.
        class: Class,
        /// Budget in wire bytes, at least one MTU.
        bytes: u32,
    },
}

/// Counters of one queue since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Owned bytes waiting now, a packet counted as 64 bytes at least.
    pub backlog_bytes: usize,
    /// Owned packets waiting now.
    pub backlog_packets: usize,
    /// The most owned bytes that ever waited.
    pub backlog_max_bytes: usize,
    /// Wire bytes sent, without link-layer overhead.
    pub sent_bytes: u64,
    /// The same with what the link layer adds to packets.
    pub carried_bytes: u64,
    /// Packets and grants that were used.
    pub sent_grants: u64,
    /// Packets dropped.
    pub dropped_packets: u64,
    /// Wire bytes dropped.
    pub dropped_bytes: u64,
    /// Flows listed now: those with something to send, and some that had until lately.
    pub flows: usize,
    /// Time the link was busy with what was sent (zero when unshaped).
    pub busy: Duration,
}
