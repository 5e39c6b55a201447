//! What leaves by a link's interface past its queue: what this machine sends itself, what is
//! bridged, offloaded or not diverted. Nobody shows its packets; the counters of the interface
//! tell how much it is. The queue has the rest of the rate.
//!
//! How much it will be until the next look is taken from what it was. What it was more than that
//! is charged to the queue afterwards, so that in the long run not a byte too much is sent.

use farlink_wire::{Duration, Instant, WireSize};

use crate::network::{Counts, Sent};

/// So often the counters are asked, at most.
const PERIOD: Duration = Duration::from_millis(50);
/// The rate is an average over about so long.
const SMOOTHING: Duration = Duration::from_millis(200);
/// What an interface adds to a packet where it has not been seen: an Ethernet header.
const FRAMING_BYTES: u64 = 14;
/// No interface counts more than this for its headers.
const FRAMING_MAX_BYTES: u64 = 128;
/// A part of this of the rate stays with the queue whatever goes past it.
const LEAST_PARTS: u64 = 20;
/// The rate in force follows when the other one has moved by such a part of the link.
const STEP_PARTS: u64 = 64;
/// Less than this part of the link is not foreseen: now and then a packet.
const NOTHING_PARTS: u64 = 1_000;
/// Packets of ours that the interface may not have counted yet, and for so long. After that they
/// are lost: a filter has dropped them.
const LATE_PACKETS: i64 = 256;
const LATE_TIME: Duration = Duration::from_secs(1);
/// Some interfaces count once in a second only, or in several. Where we have sent something and
/// they have counted nothing they are waited for so long.
const COARSE_MAX: Duration = Duration::from_secs(8);
/// So many packets must be hidden in super-segments before it is decided whether the interface
/// counts these or their packets.
const EVIDENCE_PACKETS: u64 = 64;

/// What is seen in one look counts as so much of the link's rate at most: a link that is overrun
/// is, however much it is.
const OVERRUN_FACTOR: u64 = 4;
/// Counters that grow faster than any interface, and than an overrun link, have been set anew.
const JUMP_BPS: u64 = 100_000_000_000;

/// Between bytes in a second and bits in a nanosecond.
const BIT_NS_PER_BYTE_S: u128 = 8_000_000_000;

/// What the queue has put onto the interface.
#[derive(Clone, Copy, Debug, Default)]
struct Own {
    /// Super-segments count once, and with one header.
    writes: Sent,
    /// As they are on the wire.
    packets: Sent,
}

impl Own {
    fn since(self, before: Self) -> Self {
        let minus = |a: Sent, b: Sent| Sent {
            packets: a.packets.saturating_sub(b.packets),
            bytes: a.bytes.saturating_sub(b.bytes),
        };
        Self { writes: minus(self.writes, before.writes), packets: minus(self.packets, before.packets) }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Beside {
    own: Own,
    last: Option<(Instant, Sent, Own)>,
    /// The last counters were of that moment.
    was_exact: bool,
    /// The interface counts super-segments as one packet, as virtual ones do, and not as what they
    /// become. Where that is not known others' traffic is rather taken for less than it is.
    counts_writes: bool,
    /// Since the last decision about that: what the interface counted, and what we did.
    evidence: (u64, Own),
    /// What the interface adds: bytes, and to how many packets.
    framing: (u64, u64),
    /// Counted by the interface and not by us; negative: the other way round.
    open: (i64, i64),
    /// Since when it has been the other way round.
    late_since: Option<Instant>,
    /// When the counters were asked last.
    asked_at: Option<Instant>,
    bps: u64,
    in_force_bps: u64,
    /// Bytes that were not foreseen; negative: what was foreseen has not come.
    debt_bytes: i64,
    /// What has gone past the queue since the start, without the interface's own headers.
    total: Sent,
    carried_bytes: u64,
    /// What has been told of that, which never becomes less.
    told_bytes: u64,
}

impl Beside {
    /// The queue has put this onto the interface, as one packet or super-segment.
    pub fn note_own(&mut self, bytes: usize, size: WireSize) {
        let add = |to: &mut Sent, packets: u64, bytes: u64| {
            to.packets += packets;
            to.bytes += bytes;
        };
        add(&mut self.own.writes, 1, bytes as u64);
        add(&mut self.own.packets, size.packets.into(), size.bytes.into());
    }

    /// It is time to ask the counters again.
    pub fn is_due(&self, now: Instant) -> bool {
        self.asked_at.is_none_or(|at| now.since(at) >= PERIOD)
    }

    /// The counters tell how much it is, or have not been asked.
    pub fn is_metered(&self) -> bool {
        self.last.is_some() || self.asked_at.is_none()
    }

    /// The interface has sent so much in all; `None`: nobody can say. The link adds
    /// `overhead_bytes` to a packet, and carries `rate_bps`. Returns the bytes that the queue has
    /// to make up for.
    pub fn look(
        &mut self,
        now: Instant,
        sent: Option<(Sent, Counts)>,
        (overhead_bytes, rate_bps): (u32, u64),
    ) -> u64 {
        self.asked_at = Some(now);
        let Some((sent, counts)) = sent else {
            (self.last, self.bps, self.in_force_bps, self.debt_bytes) = (None, 0, 0, 0);
            return 0;
        };
        if let Some((at, before, own)) = self.last
            && before == sent
            && self.own.since(own).writes.packets > 0
            && now.since(at) < COARSE_MAX
        {
            return 0;
        }
        let is_exact = counts == Counts::Exact;
        let was_exact = core::mem::replace(&mut self.was_exact, is_exact);
        let Some((at, before, own)) = self.last.replace((now, sent, self.own)) else { return 0 };
        let grown = sent.packets.checked_sub(before.packets).zip(sent.bytes.checked_sub(before.bytes));
        // They begin anew with the interface.
        let jump = bytes_in(now.since(at).max(PERIOD), JUMP_BPS.max(rate_bps.saturating_mul(OVERRUN_FACTOR)));
        let Some((packets, bytes)) = grown.filter(|(_, bytes)| *bytes <= jump) else { return 0 };
        let own = self.own.since(own);
        self.learn(Sent { packets, bytes }, own, is_exact && was_exact);
        let other = self.other(now, Sent { packets, bytes }, own);
        let wire_bytes = other.bytes + other.packets * u64::from(overhead_bytes);
        self.total.packets += other.packets;
        self.total.bytes += other.bytes;
        self.carried_bytes += wire_bytes;
        let own_bytes = own.packets.bytes + own.packets.packets * u64::from(overhead_bytes);
        self.foresee(now.since(at), (wire_bytes, own_bytes), rate_bps)
    }

    /// How this interface counts. `are_same`: what it has counted are the same packets as what we
    /// have sent.
    fn learn(&mut self, sent: Sent, own: Own, are_same: bool) {
        let (counted, ours) = &mut self.evidence;
        *counted += sent.packets;
        ours.writes.packets += own.writes.packets;
        ours.packets.packets += own.packets.packets;
        let hidden = ours.packets.packets.saturating_sub(ours.writes.packets);
        if hidden >= EVIDENCE_PACKETS {
            if *counted < ours.writes.packets + hidden / 2 {
                self.counts_writes = true;
            } else if counted.abs_diff(ours.packets.packets) <= hidden / 8 {
                self.counts_writes = false;
            }
            self.evidence = Default::default();
        }
        let own = self.counted(own);
        let added = sent.bytes.checked_sub(own.bytes);
        // Nothing else has left.
        if are_same
            && sent.packets == own.packets
            && own.packets > 0
            && let Some(added) = added.filter(|added| *added <= own.packets * FRAMING_MAX_BYTES)
        {
            let (bytes, packets) = self.framing;
            self.framing = (bytes - bytes / 8 + added, packets - packets / 8 + own.packets);
        }
    }

    /// What is ours, as the interface counts it.
    fn counted(&self, own: Own) -> Sent {
        if self.counts_writes { own.writes } else { own.packets }
    }

    fn framing_of(&self, packets: u64) -> u64 {
        match self.framing {
            (_, 0) => packets * FRAMING_BYTES,
            (bytes, of) => packets.saturating_mul(bytes) / of,
        }
    }

    /// What is not ours.
    fn other(&mut self, now: Instant, sent: Sent, own: Own) -> Sent {
        let own = self.counted(own);
        let (packets, bytes) = self.open;
        let packets = packets + signed(sent.packets) - signed(own.packets);
        let bytes = bytes + signed(sent.bytes) - signed(own.bytes + self.framing_of(own.packets));
        let Some(other) = u64::try_from(packets).ok().filter(|packets| *packets > 0) else {
            // The kernel has not sent some of ours yet, or never will.
            self.open = (packets.max(-LATE_PACKETS), bytes.clamp(packets * i64::from(u16::MAX), 0));
            let since = *self.late_since.get_or_insert(now);
            if packets == 0 || now.since(since) > LATE_TIME {
                (self.open, self.late_since) = ((0, 0), None);
            }
            return Sent::default();
        };
        (self.open, self.late_since) = ((0, 0), None);
        let bytes = u64::try_from(bytes).unwrap_or(0).min(other * u64::from(u16::MAX));
        Sent { packets: other, bytes: bytes.saturating_sub(self.framing_of(other)) }
    }

    /// What is to be expected, and what of this time was not.
    fn foresee(&mut self, time: Duration, (wire_bytes, own_bytes): (u64, u64), rate_bps: u64) -> u64 {
        let (weight, smoothing) = (time.as_nanos().max(1), SMOOTHING.as_nanos());
        let most_bps = u128::from(rate_bps.saturating_mul(OVERRUN_FACTOR));
        let seen_bps = (u128::from(wire_bytes) * BIT_NS_PER_BYTE_S / weight).min(most_bps);
        let bps = (u128::from(self.bps) * smoothing + seen_bps * weight) / (smoothing + weight);
        self.bps = u64::try_from(bps).unwrap_or(u64::MAX);
        // What is foreseen is bounded, so this is, too.
        let most_bytes = bytes_in(time, rate_bps.saturating_mul(OVERRUN_FACTOR));
        let unforeseen = signed(wire_bytes.min(most_bytes)) - signed(bytes_in(time, self.in_force_bps));
        let least = -signed(bytes_in(2 * PERIOD, self.in_force_bps));
        let most = signed(bytes_in(2 * PERIOD, rate_bps - rate_bps / LEAST_PARTS));
        // The link had room for so much more.
        let free = signed(bytes_in(time, rate_bps).saturating_sub(own_bytes.saturating_add(wire_bytes)));
        let debt = self.debt_bytes.saturating_add(unforeseen);
        let debt = (debt - free.min(debt.max(0))).clamp(least, most);
        let worth_bps = if self.bps < rate_bps / NOTHING_PARTS { 0 } else { self.bps };
        if worth_bps.abs_diff(self.in_force_bps) > rate_bps / STEP_PARTS || worth_bps == 0 {
            self.in_force_bps = worth_bps;
        }
        self.debt_bytes = debt.min(0);
        u64::try_from(debt).unwrap_or(0)
    }

    /// What of a rate stays with the queue; `carried_bps`: what the link is thought to carry. The
    /// queue has a part of that, however little is to be sent for a while.
    pub fn left_of(&self, rate_bps: u64, carried_bps: u64) -> u64 {
        let least = (carried_bps / LEAST_PARTS).min(rate_bps);
        rate_bps.saturating_sub(self.in_force_bps).max(least)
    }

    /// How much it is now, bits per second, with what the link adds to packets.
    pub fn bps(&self) -> u64 {
        self.bps
    }

    /// Packets and bytes since the start, IP headers included.
    pub fn total(&self) -> Sent {
        self.total
    }

    /// Bytes since the start, with what the link adds to packets. Between two looks it goes on as
    /// it is foreseen.
    pub fn carried_bytes(&mut self, now: Instant) -> u64 {
        let since = self.last.map_or(Duration::ZERO, |(at, ..)| now.since(at).min(PERIOD));
        self.told_bytes = self.told_bytes.max(self.carried_bytes + bytes_in(since, self.in_force_bps));
        self.told_bytes
    }
}

/// What this rate carries in this time.
fn bytes_in(time: Duration, bps: u64) -> u64 {
    u64::try_from(u128::from(bps) * time.as_nanos() / BIT_NS_PER_BYTE_S).unwrap_or(u64::MAX)
}

/// So far from the ends of its range that a few of them can be added.
fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX).min(i64::MAX / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE_BPS: u64 = 8_000_000;

    /// An interface of a machine: counts by its own fashion.
    #[derive(Default)]
    struct Interface {
        counts_writes: bool,
        framing: u64,
        sent: Sent,
    }

    impl Interface {
        fn carries(&mut self, packets: u64, bytes: u64) {
            self.sent.packets += packets;
            self.sent.bytes += bytes + packets * self.framing;
        }
        /// A super-segment of ours of so many packets of 1,500 bytes.
        fn writes(&mut self, beside: &mut Beside, packets: u32) {
            let write = 40 + 1_460 * packets as usize;
            beside.note_own(write, WireSize { bytes: 1_500 * packets, packets });
            match self.counts_writes {
                true => self.carries(1, write as u64),
                false => self.carries(packets.into(), 1_500 * u64::from(packets)),
            }
        }
        fn look(&self, beside: &mut Beside, ms: u64) -> u64 {
            beside.look(Instant::from_millis(ms), Some((self.sent, Counts::Exact)), (0, RATE_BPS))
        }
    }

    #[test]
    fn what_is_ours_is_nothing_beside_however_the_interface_counts() {
        for (counts_writes, framing) in [(false, 14), (true, 14), (false, 0), (true, 18), (false, 32)] {
            let mut interface = Interface { counts_writes, framing, ..Interface::default() };
            let mut beside = Beside::default();
            for ms in (0..5_000).step_by(50) {
                for packets in [1, 4, 2, 20] {
                    interface.writes(&mut beside, packets);
                }
                assert_eq!(interface.look(&mut beside, ms), 0, "{counts_writes} {framing} {ms}");
            }
            assert_eq!(beside.total(), Sent::default(), "{counts_writes} {framing}");
            // Three of 1,228 bytes each 10 ms: 2.95 Mbit/s.
            let mut taken = 0;
            for ms in (5_000..7_000).step_by(50) {
                interface.writes(&mut beside, 3);
                interface.carries(15, 15 * 1_228);
                taken += interface.look(&mut beside, ms);
            }
            assert_eq!(
                beside.total(),
                Sent { packets: 600, bytes: 600 * 1_228 },
                "{counts_writes} {framing}"
            );
            assert!(beside.bps().abs_diff(2_947_200) < 30_000, "{} {framing}", beside.bps());
            assert_eq!(beside.left_of(RATE_BPS, RATE_BPS), RATE_BPS - beside.in_force_bps);
            // The link had room for all of that.
            assert_eq!(taken, 0);
            assert_eq!(interface.look(&mut beside, 7_000), 0);
        }
    }

    #[test]
    fn packets_that_the_kernel_sends_later_are_nobody_elses() {
        let mut interface = Interface { framing: 14, ..Interface::default() };
        let mut beside = Beside::default();
        let mut late = 0;
        for (n, ms) in (0..10_000).step_by(50).enumerate() {
            for _ in 0..30 {
                beside.note_own(1_500, WireSize { bytes: 1_500, packets: 1 });
            }
            let waits = [0, 7, 30, 2][n % 4];
            let leaves = 30 + late - waits;
            interface.carries(leaves, leaves * 1_500);
            late = waits;
            assert_eq!(interface.look(&mut beside, ms), 0, "{ms}");
        }
        assert_eq!(beside.total(), Sent::default());
        // A filter has dropped some of ours: it hides no more than that of others' traffic.
        for _ in 0..10_000 {
            beside.note_own(1_500, WireSize { bytes: 1_500, packets: 1 });
        }
        interface.carries(1, 1_500);
        interface.look(&mut beside, 10_000);
        interface.carries(1_000, 1_500_000);
        interface.look(&mut beside, 10_050);
        assert_eq!(beside.total().packets, 1_000 - LATE_PACKETS.unsigned_abs());
    }

    #[test]
    fn on_a_full_link_what_was_not_foreseen_is_made_up_for() {
        let mut interface = Interface { framing: 14, ..Interface::default() };
        let mut beside = Beside::default();
        let mut taken = 0;
        for ms in (0..4_000).step_by(50) {
            // 4.8 Mbit/s of ours, and from the second second on 3.2 of others.
            interface.writes(&mut beside, 20);
            if ms >= 2_000 {
                interface.carries(16, 16 * 1_250);
            }
            if ms >= 3_500 {
                assert!(interface.look(&mut beside, ms) < 500, "it is known how much it is");
            } else {
                taken += interface.look(&mut beside, ms);
            }
        }
        assert!((5_000..120_000).contains(&taken), "{taken}");
    }

    /// Of a card that tells once in a second what it has sent, all that is ours is ours.
    #[test]
    fn an_interface_that_counts_in_steps_has_nothing_of_others() {
        for step_ms in [1_000, 3_000] {
            let mut interface = Interface { framing: 14, ..Interface::default() };
            let (mut beside, mut told) = (Beside::default(), Sent::default());
            for ms in (0..30_000).step_by(50) {
                interface.writes(&mut beside, 20);
                interface.writes(&mut beside, 1);
                if ms % step_ms == 0 {
                    told = interface.sent;
                }
                assert_eq!(
                    beside.look(Instant::from_millis(ms), Some((told, Counts::Exact)), (0, RATE_BPS)),
                    0
                );
                assert_eq!(beside.left_of(RATE_BPS, RATE_BPS), RATE_BPS, "{ms}");
            }
            assert_eq!(beside.total(), Sent::default());
        }
    }

    /// A backup to a host beside the modem, which does not even cross the link.
    #[test]
    fn the_queue_keeps_its_part_beside_far_more_than_the_link_carries() {
        let mut interface = Interface::default();
        let mut beside = Beside::default();
        for ms in (0..10_000).step_by(50) {
            // 96 Mbit/s.
            interface.carries(400, 400 * 1_500);
            let taken = interface.look(&mut beside, ms);
            // A 64th of what the link carries meanwhile, at most.
            assert!(ms < 5_000 || taken < 800, "{ms}: {taken}");
        }
        assert_eq!(beside.left_of(RATE_BPS, RATE_BPS), RATE_BPS / 20);
    }

    #[test]
    fn the_queue_keeps_a_part_and_forgets_what_is_over() {
        let mut interface = Interface::default();
        let mut beside = Beside::default();
        for ms in (0..5_000).step_by(50) {
            interface.carries(100, 100 * 1_500);
            let taken = interface.look(&mut beside, ms);
            assert!(taken <= 95_000, "{taken}");
        }
        assert_eq!(beside.left_of(RATE_BPS, RATE_BPS), RATE_BPS / 20);
        for ms in (5_000..8_000).step_by(50) {
            interface.look(&mut beside, ms);
        }
        assert_eq!(beside.left_of(RATE_BPS, RATE_BPS), RATE_BPS);
        assert!(beside.bps() < 8_000);
        // Counters that leap say nothing, and less of a leap is soon forgotten.
        let mut ms = 8_000;
        for (leap, told) in [(10_000_000_000, 0), (101_400_000, 100_000_000)] {
            let before = beside.total().bytes;
            interface.carries(100_000, leap);
            assert!(interface.look(&mut beside, ms) <= 95_000);
            assert_eq!(beside.total().bytes - before, told);
            assert!(beside.bps() < RATE_BPS);
            for _ in 0..20 {
                ms += 50;
                interface.look(&mut beside, ms);
            }
            assert!(beside.left_of(RATE_BPS, RATE_BPS) > RATE_BPS * 9 / 10);
        }
        // Another interface of the same name; then none that counts.
        interface.sent = Sent::default();
        assert_eq!(interface.look(&mut beside, 9_050 + ms), 0);
        interface.carries(10, 10_000);
        interface.look(&mut beside, 9_100 + ms);
        assert!(beside.bps() > 0);
        beside.look(Instant::from_millis(9_150 + ms), None, (0, RATE_BPS));
        assert_eq!((beside.bps(), beside.left_of(RATE_BPS, RATE_BPS)), (0, RATE_BPS));
    }
}
