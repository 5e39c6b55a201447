//! TCP that is seen in IP fragments: put together, so that its headers are checked like any
//! other's. Where that fails (odd fragments), what they carried is not known, and nothing is missed
//! from their direction.

use std::collections::HashMap;
use std::net::IpAddr;

use farlink_wire::{FragmentInfo, Instant, Offload, PacketBuf, Pool, Reassembler, ReassemblyLimits};

/// Fragments of all captured interfaces.
#[derive(Debug)]
pub(super) struct Fragments {
    pool: Pool,
    /// By interface and direction; none before the first fragment.
    places: HashMap<(usize, usize), Reassembler>,
    /// By source and destination: fragments that were never part of a whole packet.
    loose: HashMap<(IpAddr, IpAddr), u64>,
}

impl Default for Fragments {
    fn default() -> Self {
        Self { pool: Pool::new(64 << 20), places: HashMap::new(), loose: HashMap::new() }
    }
}

impl Fragments {
    /// Takes a fragment that an interface has seen; the packet that it completes.
    pub(super) fn take(
        &mut self,
        point: usize,
        out: usize,
        info: &FragmentInfo,
        packet: &[u8],
        at_ns: u64,
    ) -> Option<Vec<u8>> {
        let place =
            self.places.entry((point, out)).or_insert_with(|| Reassembler::new(ReassemblyLimits::default()));
        let loose = self.loose.entry((info.ip.src, info.ip.dst)).or_default();
        *loose += 1;
        let now = Instant::from_nanos(at_ns);
        let expired = place.expire(now);
        let packet = PacketBuf::from_slice(&mut self.pool, packet, Offload::default());
        let pushed = place.push(now, packet, info, &mut self.pool);
        let whole = pushed.whole.map(|reassembled| {
            *loose -= reassembled.originals.len() as u64;
            reassembled.originals.into_iter().for_each(|p| p.recycle(&mut self.pool));
            let bytes = reassembled.whole.bytes().to_vec();
            reassembled.whole.recycle(&mut self.pool);
            bytes
        });
        pushed.forward.into_iter().chain(expired).for_each(|p| p.recycle(&mut self.pool));
        whole
    }

    /// Not all that went from the one address to the other is known.
    pub(super) fn hide(&self, direction: (IpAddr, IpAddr)) -> bool {
        self.loose.get(&direction).is_some_and(|n| *n > 0)
    }
}
