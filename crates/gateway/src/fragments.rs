//! A segment that came in fragments and goes on changed.

use farlink_wire::{Offload, PacketBuf, Parsed, Pool, fragment, parse};

/// The headers of a segment, to see whether something has been changed in it. Nothing else ever is.
#[derive(PartialEq, Eq)]
pub struct Head(Vec<u8>);

impl Head {
    /// Of these bytes; empty where they are no TCP.
    pub fn of(bytes: &[u8]) -> Self {
        let Parsed::Tcp(s) = parse(bytes) else { return Self(Vec::new()) };
        Self(bytes.iter().take(s.payload_offset).copied().collect())
    }
}

/// The packet in fragments no larger than those that came. `None`: it cannot be cut.
pub fn cut_as(pool: &mut Pool, whole: &PacketBuf, id: u32, came: &[PacketBuf]) -> Option<Vec<PacketBuf>> {
    let mtu = came.iter().map(PacketBuf::len).max()?;
    let mut out = Vec::new();
    let mut add = |f: &[u8]| out.push(PacketBuf::from_slice(pool, f, Offload::default()));
    fragment(whole.bytes(), mtu, id, &mut add).ok()?;
    Some(out)
}
