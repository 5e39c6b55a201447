//! Interfaces and routes, as the driver names them.

/// An interface of the gateway, numbered by the driver; stable while the gateway lives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct IfaceId(pub u16);

impl IfaceId {
    /// An interface that the gateway has not been told of: packets may leave there, none is
    /// diverted from there.
    pub const OTHER: Self = Self(u16::MAX);
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
