//! Packets that come in clumps: the link has held them, and lets them go together.
//!
//! The gateway at the other end looks for the rate of the link in how a burst comes. A clump tells
//! of its rate only if its first packet is told of, and then its last.

use farlink_wire::{Duration, Instant, WireSize};

/// Clumps that are told of after a silence.
const TOLD_MAX: u8 = 6;
/// A clump begins after so many times the shortest time between two packets.
const APART: u32 = 8;
/// No packets have been that far apart.
const NEVER: Duration = Duration::from_secs(3_600);

/// What has come since the first report after a silence.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Clumps {
    came_at: Instant,
    /// How long after the packet before it the newest has come.
    pause: Duration,
    /// The shortest of these; `None`: only one packet has come.
    shortest: Option<Duration>,
    /// Bytes that were merged into the newest packet behind its first segment.
    merged_bytes: u32,
    /// Of which connection the newest is, and whether all have been since the first report.
    ports: (u16, u16),
    are_of_one: bool,
    left: u8,
}

impl Clumps {
    /// A packet came.
    pub(super) fn receive(&mut self, now: Instant, ports: (u16, u16), size: WireSize) {
        (self.pause, self.came_at) = (now.since(self.came_at), now);
        self.are_of_one &= ports == self.ports;
        self.ports = ports;
        self.merged_bytes = size.bytes - size.bytes / size.packets.max(1);
        let apart = if size.packets > 1 { Duration::ZERO } else { self.pause };
        self.shortest = self.shortest.map(|shortest| shortest.min(apart));
    }

    /// What has just come begins a clump, if something follows it at once. `least`: shorter pauses
    /// say nothing.
    pub(super) fn begin(&self, now: Instant, least: Duration, most: Duration) -> bool {
        let is_pause = self.pause >= least && self.pause <= most;
        let is_apart = self.shortest.is_some_and(|shortest| self.pause / APART >= shortest);
        self.left > 0
            && self.are_of_one
            && self.came_at == now
            && is_pause
            && (is_apart || self.left == TOLD_MAX)
    }

    /// Some have come, or the newest packet is one.
    pub(super) fn are_seen(&self) -> bool {
        self.are_of_one && self.shortest.is_some_and(|shortest| shortest.is_zero())
    }

    /// When the newest packet came.
    pub(super) const fn came_at(&self) -> Instant {
        self.came_at
    }

    pub(super) const fn merged_bytes(&self) -> u32 {
        self.merged_bytes
    }

    /// A report has been made, the first after a silence or another one.
    pub(super) fn note_told(&mut self, is_first: bool, of_clump: bool) {
        if is_first {
            let shortest = if self.merged_bytes > 0 { Duration::ZERO } else { NEVER };
            (self.shortest, self.left, self.are_of_one) = (Some(shortest), TOLD_MAX, true);
        } else if of_clump {
            self.left = self.left.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: WireSize = WireSize { bytes: 1_500, packets: 1 };

    /// Which of these begin a clump, where packets of one connection come at these times,
    /// milliseconds, and the first has been reported. Each that does is told of.
    fn begin(times_ms: &[u64], merged: u32) -> Vec<u64> {
        let mut clumps = Clumps::default();
        let (ms, mut begun) = (Duration::from_millis, Vec::new());
        for (n, at) in times_ms.iter().enumerate() {
            let now = Instant::from_millis(1_000 + at);
            let packets = if n == 0 { 1 } else { merged };
            clumps.receive(now, (80, 5_000), WireSize { bytes: 1_500 * packets, packets });
            if n == 0 {
                clumps.note_told(true, false);
            } else if clumps.begin(now, ms(2), ms(62)) {
                begun.push(*at);
                clumps.note_told(false, true);
            }
        }
        begun
    }

    #[test]
    fn what_follows_a_pause_begins_a_clump() {
        assert_eq!(begin(&[0, 12, 12, 12, 24, 24, 25], 1), [12, 24]);
        assert_eq!(begin(&[0, 12, 24, 25, 60, 200], 8), [12, 24, 60], "merged, and a silence");
        assert_eq!(begin(&[0, 8, 16, 24, 32, 40], 1), [8], "a slow link is even");
        assert_eq!(begin(&[0, 3, 6, 9, 12, 15, 18, 21, 24, 27], 2), [3, 6, 9, 12, 15, 18], "enough of them");
    }

    #[test]
    fn several_connections_show_no_clumps() {
        let mut clumps = Clumps::default();
        let at = |ms: u64| Instant::from_millis(1_000 + ms);
        clumps.receive(at(0), (80, 5_000), ONE);
        clumps.note_told(true, false);
        clumps.receive(at(5), (80, 5_001), ONE);
        assert!(!clumps.begin(at(5), Duration::from_millis(2), Duration::from_millis(62)));
    }
}
