//! A packet of a handshake that waits for its link: the newest SYN of a connection, or the newest
//! answer to it. A host repeats it more and more seldom, so that its next one may come a minute
//! after the link is back.

use core::net::IpAddr;

use farlink_wire::{Offload, PacketBuf, Parsed, Pool, TcpSegment, edit, parse};

use crate::net::Via;

/// It, as it would have gone on.
#[derive(Clone, Debug)]
pub struct Kept {
    bytes: Box<[u8]>,
    offload: Offload,
    /// How it came in.
    pub via: Via,
    /// Where it comes from, and where it goes.
    pub ends: (IpAddr, IpAddr),
}

impl Kept {
    /// A copy of a packet that came in so.
    pub fn of(via: Via, s: &TcpSegment, packet: &PacketBuf) -> Self {
        Self { bytes: packet.bytes().into(), offload: packet.offload, via, ends: (s.ip.src, s.ip.dst) }
    }

    /// The same without its payload, which its host repeats: many of them may wait, for long.
    pub fn headers_of(via: Via, s: &TcpSegment, packet: &PacketBuf, pool: &mut Pool) -> Self {
        if s.payload_len == 0 {
            return Self::of(via, s, packet);
        }
        let mut copy = PacketBuf::from_slice(pool, packet.bytes(), packet.offload);
        // It may have got an option since it came.
        if let Parsed::Tcp(s) = parse(copy.bytes()) {
            edit::cut_payload(&mut copy, &s);
        }
        let kept = Self::of(via, s, &copy);
        copy.recycle(pool);
        kept
    }

    /// Memory, bytes.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.bytes.len()
    }

    /// A packet again.
    pub fn into_packet(self, pool: &mut Pool) -> PacketBuf {
        PacketBuf::from_slice(pool, &self.bytes, self.offload)
    }
}
