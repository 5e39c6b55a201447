//! Interfaces and routes, as the driver names them.

/// An interface of the gateway, numbered by the driver; stable while the gateway lives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct IfaceId(pub u16);

impl IfaceId {
    /// An interface that the gateway has not been told of: packets may leave there, none is
    /// diverted from there.
    pub const OTHER: Self = Self(u16::MAX);
}

/// How packets come in, and what the kernel has shown of them. Of a host: the newest one. What is
/// made in its name goes by that.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Via {
    /// The interface.
    pub iface: IfaceId,
    /// The rest.
    pub shown: Shown,
}

impl From<IfaceId> for Via {
    fn from(iface: IfaceId) -> Self {
        Self { iface, shown: Shown::default() }
    }
}

/// What the kernel has shown of a packet, where the driver took it on its way through the machine.
/// A packet that is made in its host's name is given the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Shown {
    /// The interface that the kernel had chosen for it; `None`: it was taken before that.
    pub out: Option<IfaceId>,
    /// The next hop's hardware address, where the kernel would not find it for such a packet of the
    /// driver's own.
    pub next_hop: Option<[u8; 6]>,
    /// Its mark (fwmark) and priority in the kernel; zero: none.
    pub mark: u32,
    /// See `mark`.
    pub priority: u32,
    /// The question about a route to which the kernel had the same answer.
    pub found: FoundWay,
}

/// How a way is found that the kernel has shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FoundWay {
    /// No question finds it: rules look at what a question cannot say.
    #[default]
    Not,
    /// By addresses and mark.
    ByAddresses,
    /// By these ports of TCP beside them: source and destination.
    ByPorts(u16, u16),
}

/// A declared link, by its place among those of the configuration.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkId(pub u16);

/// Which way packets leave: into a declared link, whose queue says when, or by an interface that is
/// none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Way {
    /// Into a declared link.
    Link(LinkId),
    /// By an ordinary interface, or one that is not configured.
    Ordinary(IfaceId),
}

impl Default for Way {
    fn default() -> Self {
        Self::Ordinary(IfaceId::OTHER)
    }
}

/// Where a packet for some destination leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// The interface it leaves by; [`IfaceId::OTHER`] for one that is not configured.
    pub iface: IfaceId,
    /// MTU of the route in bytes (IP packet size).
    pub mtu_bytes: u32,
}
