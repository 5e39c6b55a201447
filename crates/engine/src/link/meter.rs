//! What comes in over a link: counted here, and told to the gateway at its other end.
//!
//! The engine only counts and carries; what the numbers mean for the rate of a link is for the one
//! that owns its queue.

use farlink_wire::{Duration, Instant, PacketBuf, TcpSegment, WireSize};

use super::clumps::Clumps;
use crate::peer::{Arrived, Identity};

/// Reports that follow the first one early, and the bytes that each of them tells of at least: a
/// quarter of the burst that is sent for them.
const EARLY_REPORTS: u8 = 3;
const EARLY_BYTES: u64 = 12_000;
/// They come this part (one over it) of the time apart that acknowledgements wait, at least.
const EARLY_PARTS: u32 = 16;
/// The same where packets overtake each other: the farthest of them is soon at the end of the
/// burst.
const OVERTAKEN_REPORTS: u8 = 9;
const OVERTAKEN_BYTES: u64 = 3_000;
const OVERTAKEN_PARTS: u32 = 64;
/// A clump comes after a pause of so long at least, and of this part of that time at most (one over
/// it): a slow link makes longer ones.
const PAUSE_MIN: Duration = Duration::from_millis(2);
const PAUSE_MAX_PARTS: u32 = 2;
/// A report is worth its 9 bytes once so many more have come in, a few full packets, or after so
/// many times the interval: a slow link carries other things.
const WORTH_BYTES: u64 = 4_000;
const WORTHLESS_INTERVALS: u32 = 32;

/// The count.
#[derive(Clone, Copy, Debug, Default)]
pub struct Meter {
    /// By which other gateways tell us apart.
    identity: Identity,
    received_bytes: u64,
    told_at: Option<Instant>,
    /// What had been received by then.
    told_bytes: u64,
    /// Reports that still come early.
    early: u8,
    /// What comes in until then may have waited here, and not before the link.
    late_until: Instant,
    fastest: Fastest,
    clumps: Clumps,
}

/// What is seen to come in is looked at over so long: what a queue lets go at once says nothing.
const LOOK: Duration = Duration::from_secs(1);
/// The most of the last one to two of these counts.
const LATELY: Duration = Duration::from_secs(300);

/// The most that has come in.
#[derive(Clone, Copy, Debug, Default)]
struct Fastest {
    since: Instant,
    bytes: u64,
    /// Bits per second: in this span of time, and in the one before.
    most_bps: [u64; 2],
    span_since: Instant,
}

impl Fastest {
    fn receive(&mut self, now: Instant, bytes: u32) {
        let time = now.since(self.since);
        if time >= LOOK {
            let bps = u128::from(self.bytes) * 8_000_000_000 / time.as_nanos().max(1);
            let [most, _] = &mut self.most_bps;
            *most = (*most).max(u64::try_from(bps).unwrap_or(u64::MAX));
            (self.since, self.bytes) = (now, 0);
        }
        if now.since(self.span_since) >= LATELY {
            let [most, _] = self.most_bps;
            (self.most_bps, self.span_since) = ([0, most], now);
        }
        // What ends the look began in it.
        self.bytes += u64::from(bytes);
    }

    fn bps(&self) -> u64 {
        let [one, other] = self.most_bps;
        one.max(other)
    }
}

/// What has waited for a loop that was late is read in this part of the time (one over it), or in
/// this time.
const READ_PARTS: u32 = 16;
const READ_MIN: Duration = Duration::from_millis(5);

impl Meter {
    /// The count of the gateway with this identity.
    #[must_use]
    pub fn new(identity: Identity) -> Self {
        Self { identity, ..Self::default() }
    }

    /// A TCP packet came in: as many bytes as its segments had on the link, IP headers included.
    pub fn count(&mut self, now: Instant, s: &TcpSegment, packet: &PacketBuf) {
        let payload_bytes = packet.len().saturating_sub(s.payload_offset);
        let size = WireSize::of(s.payload_offset, payload_bytes, &packet.offload);
        self.receive(now, size.bytes);
        self.clumps.receive(now, (s.src_port, s.dst_port), size);
    }

    /// So many bytes came in.
    pub(super) fn receive(&mut self, now: Instant, bytes: u32) {
        self.received_bytes = self.received_bytes.wrapping_add(u64::from(bytes));
        self.fastest.receive(now, bytes);
    }

    /// The most that has come in of late in a second, bits per second.
    pub(super) fn fastest_bps(&self) -> u64 {
        self.fastest.bps()
    }

    /// Bytes of TCP that have come in, modulo 2^64.
    pub(super) const fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    /// What a segment that has just come in leaves to be told.
    #[must_use]
    pub fn arrival(&self, now: Instant) -> Arrived {
        Arrived {
            by: self.identity,
            // Both modulo 2^32 on purpose: differences count.
            at_us: now.since(Instant::ZERO).as_micros() as u32,
            received_bytes: self.received_bytes as u32,
        }
    }

    /// The same of the newest that has come.
    pub(super) fn newest_arrival(&self) -> Arrived {
        self.arrival(self.clumps.came_at())
    }

    /// The same of the first packet of a clump, if the newest begins one.
    pub(super) fn clump(&self, now: Instant, told_delay: Duration) -> Option<Arrived> {
        let least = PAUSE_MIN.max(told_delay / OVERTAKEN_PARTS);
        let most = told_delay / PAUSE_MAX_PARTS;
        let arrival = self.arrival(now);
        let received_bytes = arrival.received_bytes.wrapping_sub(self.clumps.merged_bytes());
        self.clumps.begin(now, least, most).then_some(Arrived { received_bytes, ..arrival })
    }

    /// The loop was late since then.
    pub fn note_late(&mut self, since: Instant, now: Instant) {
        self.late_until = now + (now.since(since) / READ_PARTS).max(READ_MIN);
    }

    /// What comes in now may have come before, so when it is read says nothing of the link.
    #[must_use]
    pub fn has_waited_here(&self, now: Instant) -> bool {
        now < self.late_until
    }

    /// Nothing has been told for so long. `is_sought`: the rate of the link is looked for, or it is
    /// so fast that a report costs nothing, so each counts.
    #[must_use]
    pub fn is_due(&self, now: Instant, interval: Duration, is_sought: bool) -> bool {
        let is_worth = is_sought || self.received_bytes.wrapping_sub(self.told_bytes) >= WORTH_BYTES;
        let interval = if is_worth { interval } else { interval * WORTHLESS_INTERVALS };
        self.told_at.is_none_or(|at| now.since(at) >= interval)
    }

    /// The first report after a silence is followed by a few that do not wait for their time: a
    /// rate shows in two of them, and where little comes in, or one is lost, no other may follow.
    /// `has_gap`: something is missing before the newest that has come.
    #[must_use]
    pub fn is_due_early(&self, now: Instant, told_delay: Duration, has_gap: bool) -> bool {
        let (left, bytes, parts) = match has_gap {
            true => (0, OVERTAKEN_BYTES, OVERTAKEN_PARTS),
            false if self.clumps.are_seen() => (OVERTAKEN_REPORTS, EARLY_BYTES, OVERTAKEN_PARTS),
            false => (OVERTAKEN_REPORTS, EARLY_BYTES, EARLY_PARTS),
        };
        let apart = told_delay / parts;
        let enough = self.received_bytes.wrapping_sub(self.told_bytes) >= bytes;
        let is_clump = !has_gap && self.clump(now, told_delay).is_some();
        is_clump || self.early > left && enough && self.told_at.is_some_and(|at| now.since(at) >= apart)
    }

    /// The other gateway has been told. It is the first time after a silence where nothing was told
    /// for `silence`. `of_clump`: of a clump, which puts off no other.
    pub fn told(&mut self, now: Instant, silence: Duration, of_clump: bool) {
        let first = self.told_at.is_none_or(|at| now.since(at) >= silence);
        self.clumps.note_told(first, of_clump);
        if of_clump && !first {
            return;
        }
        self.early = if first { EARLY_REPORTS + OVERTAKEN_REPORTS } else { self.early.saturating_sub(1) };
        self.told_at = Some(now);
        self.told_bytes = self.received_bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_report_is_followed_by_some_that_come_early() {
        let (at, ms) = (Instant::from_millis, Duration::from_millis);
        let mut meter = Meter { received_bytes: 10_000, ..Meter::new(1.into()) };
        let silence = ms(250);
        assert!(!meter.is_due_early(at(1_000), ms(320), false), "the first is due as ever");
        meter.told(at(1_000), silence, false);
        let delay = ms(320);
        for n in 1..=3 {
            meter.receive(at(999 + 20 * n), 11_999);
            assert!(!meter.is_due_early(at(1_000 + 20 * n), delay, false), "too little");
            meter.receive(at(999 + 20 * n), 1);
            assert!(meter.is_due_early(at(1_000 + 20 * n), delay, false));
            assert!(!meter.is_due_early(at(999 + 20 * n), delay, false), "too soon");
            meter.told(at(1_000 + 20 * n), silence, false);
        }
        meter.receive(at(1_100), 50_000);
        assert!(!meter.is_due_early(at(1_100), delay, false), "enough of them");
        assert!(meter.is_due_early(at(1_100), delay, true), "some are overtaken");
        for n in 1..=9 {
            assert!(meter.is_due_early(at(1_100 + 5 * n), delay, true));
            meter.told(at(1_100 + 5 * n), silence, false);
            assert!(!meter.is_due_early(at(1_110 + 5 * n), delay, true), "too little");
            meter.receive(at(1_100 + 5 * n), 3_000);
        }
        assert!(!meter.is_due_early(at(1_200), delay, true), "enough of them");
        meter.told(at(2_000), silence, false);
        meter.receive(at(2_010), 12_000);
        assert!(meter.is_due_early(at(2_020), delay, false), "after a silence");
    }

    #[test]
    fn a_report_is_worth_a_few_packets() {
        let (at, ms) = (Instant::from_millis, Duration::from_millis);
        let mut meter = Meter::new(1.into());
        assert!(meter.is_due(at(1_000), ms(100), false), "the first");
        meter.receive(at(1_000), 1_500);
        meter.told(at(1_000), ms(250), false);
        meter.receive(at(2_000), 1_500);
        meter.receive(at(3_000), 1_500);
        assert!(!meter.is_due(at(3_000), ms(100), false), "little has come in");
        assert!(meter.is_due(at(3_000), ms(100), true), "each counts while the rate is sought");
        assert!(meter.is_due(at(4_200), ms(100), false), "after a while, however little it is");
        meter.receive(at(4_000), 1_500);
        assert!(meter.is_due(at(4_000), ms(100), false));
    }

    #[test]
    fn what_has_waited_for_a_late_loop_is_not_reported() {
        let at = Instant::from_millis;
        let mut meter = Meter::new(1.into());
        meter.note_late(at(1_000), at(1_800));
        assert!(meter.has_waited_here(at(1_800)) && meter.has_waited_here(at(1_849)), "a batch after it");
        assert!(!meter.has_waited_here(at(1_850)));
        meter.note_late(at(2_000), at(2_006));
        assert!(meter.has_waited_here(at(2_010)) && !meter.has_waited_here(at(2_011)));
    }

    #[test]
    fn the_most_of_late_is_what_a_second_brought() {
        let mut fastest = Fastest::default();
        let mut each_10_ms = |from_s: u64, to_s: u64, bytes| {
            (from_s * 100..to_s * 100).for_each(|n| fastest.receive(Instant::from_millis(n * 10), bytes));
            fastest.bps()
        };
        assert_eq!(each_10_ms(0, 5, 100), 80_000);
        assert_eq!(each_10_ms(5, 10, 40), 80_000);
        assert_eq!(each_10_ms(10, 310, 40), 80_000, "the span before this one");
        assert_eq!(each_10_ms(310, 700, 40), 32_000);
    }
}
