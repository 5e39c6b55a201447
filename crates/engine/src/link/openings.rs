//! When handshakes leave into a link that carries little: each behind those before it.

use farlink_wire::{Duration, Instant};

use super::Link;
use super::packet_time::PacketTime;

/// The handshakes that have gone into a link.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Openings {
    /// All of them will have left by then.
    leave_by: Instant,
}

impl Openings {
    fn note(&mut self, now: Instant, takes: Duration) -> Instant {
        self.leave_by = self.leave_by.max(now) + takes;
        self.leave_by
    }
}

impl Link {
    /// A packet of a handshake goes into it, of so many bytes. Returns when it will have left, by
    /// the rate of the link and what has gone before it; at once where nobody knows the rate.
    pub fn note_opening_sent(&mut self, now: Instant, packet_bytes: u32) -> Instant {
        let rates = (self.rate_in_force_bps(), None);
        let takes = PacketTime::new(rates, 0, false)
            .of_packet(packet_bytes.saturating_add(self.overhead_bytes()).into());
        self.openings.note(now, takes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_leaves_behind_those_before_it() {
        let ms = Duration::from_millis;
        let at = Instant::from_millis;
        let mut openings = Openings::default();
        let left = [1_000, 1_000, 1_050, 5_000].map(|now| openings.note(at(now), ms(100)));
        assert_eq!(left, [at(1_100), at(1_200), at(1_300), at(5_100)]);
    }
}
