//! Packets that wait for an answer of the kernel: nobody knows yet which way they leave.

use std::collections::VecDeque;

use farlink_gateway::Via;
use farlink_wire::{Duration, Instant, PacketBuf};

/// Packets, and bytes, that may wait. More go without an answer.
const PACKETS_MAX: usize = 1024;
const BYTES_MAX: usize = 4 << 20;
/// One that has waited so long goes without an answer, into the machine, which knows the way.
const PATIENCE: Duration = Duration::from_millis(100);

#[derive(Debug)]
struct Waiting {
    by: Via,
    packet: PacketBuf,
    until: Instant,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Parked {
    waiting: VecDeque<Waiting>,
    bytes: usize,
}

impl Parked {
    /// A packet that came in so waits. Returned: there is no room.
    pub(super) fn keep(&mut self, now: Instant, by: Via, packet: PacketBuf) -> Option<PacketBuf> {
        if self.waiting.len() >= PACKETS_MAX || self.bytes + packet.len() > BYTES_MAX {
            return Some(packet);
        }
        self.bytes += packet.len();
        self.waiting.push_back(Waiting { by, packet, until: now + PATIENCE });
        None
    }

    /// When the first one has waited long enough.
    pub(super) fn due(&self) -> Option<Instant> {
        self.waiting.front().map(|first| first.until)
    }

    /// Those that wait no longer, in the order in which they came. `is_known`: which way such a
    /// packet leaves.
    pub(super) fn take(
        &mut self,
        now: Instant,
        mut is_known: impl FnMut(Via, &PacketBuf) -> bool,
    ) -> Vec<(Via, PacketBuf)> {
        let mut taken = Vec::new();
        for one in std::mem::take(&mut self.waiting) {
            if one.until <= now || is_known(one.by, &one.packet) {
                self.bytes -= one.packet.len();
                taken.push((one.by, one.packet));
            } else {
                self.waiting.push_back(one);
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use farlink_wire::{Offload, Pool};

    use super::*;

    #[test]
    fn packets_wait_in_order_and_not_for_ever() {
        let mut pool = Pool::new(1 << 20);
        let mut packet = |n: u8| PacketBuf::from_slice(&mut pool, &[n; 100], Offload::default());
        let at = Instant::from_millis;
        let mut parked = Parked::default();
        for n in 0..3 {
            assert!(parked.keep(at(n.into()), Via::default(), packet(n)).is_none());
        }
        let first = |taken: &[(Via, PacketBuf)]| taken.iter().map(|(_, p)| p.bytes()[0]).collect::<Vec<_>>();
        assert_eq!(first(&parked.take(at(3), |_, p| p.bytes()[0] != 1)), [0, 2]);
        assert_eq!(parked.due(), Some(at(101)));
        assert_eq!(first(&parked.take(at(101), |_, _| false)), [1]);
        assert_eq!((parked.due(), parked.bytes), (None, 0));
        let kept = (0..2000).filter(|_| parked.keep(at(0), Via::default(), packet(1)).is_none()).count();
        assert_eq!(kept, PACKETS_MAX);
    }
}
