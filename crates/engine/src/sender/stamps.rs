//! The receiver's clock (RFC 7323): how long its acknowledgements wait on their way back.
//!
//! A host stamps what it sends. So an acknowledgement shows when it left, by a clock of which only
//! the differences are known, and by how much more than any other it has waited since. What made a
//! round trip longer on the way there is not in it. That holds if the clock counts milliseconds, as
//! those of most hosts do. It does if it goes on by as much as the time in which what is
//! acknowledged was sent.

use farlink_wire::{Duration, Instant, Timestamps};

use super::Sender;

/// Less time than this shows no clock, milliseconds.
const SHOWN_MIN_MS: u32 = 8;
/// Two stamps differ by up to this more or less than the times do.
const GRAIN_MS: u32 = 2;
/// A clock that is slower than so many quarters of the time in which was sent counts no
/// milliseconds.
const SLOW_QUARTERS: u32 = 3;
/// Nor does one that is so many times as fast, for longer than anything waits on its way there.
const FAST_TIMES: u32 = 2;
const WAITS_MAX_MS: u32 = 10_000;
/// The acknowledgement that has waited least is remembered for so long, and twice as long at most:
/// clocks drift. Milliseconds.
const REMEMBERED_MS: u32 = 300_000;

/// What has waited for less on its way back has not waited for a slow one: delay jitters.
const WAITS_MIN: Duration = Duration::from_millis(50);

/// What is known of that clock. Times are milliseconds, modulo 2^32, and differences count.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stamps {
    /// The stamp of the segment that has just come.
    now: Option<u32>,
    began: Began,
    /// The shortest way back by the two clocks, milliseconds beyond that of the first
    /// acknowledgement: of this span of time, and the one before.
    least_ms: [i32; 2],
    since_ms: u32,
    /// So long the last one waited, milliseconds.
    waits_ms: Option<u32>,
    has_begun: bool,
    /// It counts milliseconds.
    is_ms: bool,
}

/// The first acknowledgement: when it came, when what it covers had left, its stamp.
#[derive(Clone, Copy, Debug, Default)]
struct Began {
    at_ms: u32,
    sent_ms: u32,
    stamp: u32,
}

impl Stamps {
    /// What completed the handshake, a round trip of which took so long, came with this stamp, and
    /// had waited for so long by what others have shown.
    fn of_handshake(now: Instant, val: u32, rtt: Duration, waited: Duration) -> Self {
        let began = Began { at_ms: millis(now), sent_ms: millis(now - rtt), stamp: val };
        let waited_ms = i32::try_from(waited.as_millis()).unwrap_or(i32::MAX);
        Self { began, least_ms: [-waited_ms; 2], since_ms: began.at_ms, has_begun: true, ..Self::default() }
    }

    /// The segment that has just come has this stamp.
    pub fn set(&mut self, stamps: Option<Timestamps>) {
        self.now = stamps.map(|stamps| stamps.val);
    }

    /// It acknowledges what was sent once, so long ago; `None`: nobody knows when that left.
    pub fn note(&mut self, now: Instant, rtt: Option<Duration>) {
        self.waits_ms = None;
        let Some(stamp) = self.now.take() else { return };
        let now_ms = millis(now);
        let sent_ms = rtt.map(|rtt| millis(now - rtt));
        if let Some(sent_ms) = sent_ms.filter(|_| !self.has_begun) {
            self.began = Began { at_ms: now_ms, sent_ms, stamp };
            (self.since_ms, self.has_begun) = (now_ms, true);
        }
        let counted_ms = stamp.wrapping_sub(self.began.stamp);
        if !self.has_begun || counted_ms > u32::MAX / 2 {
            // An old one that was overtaken.
            return;
        }
        if let Some(sent_ms) = sent_ms {
            self.judge(sent_ms.wrapping_sub(self.began.sent_ms), counted_ms);
        }
        // Both wrap on purpose.
        let back_ms = now_ms.wrapping_sub(self.began.at_ms).wrapping_sub(counted_ms) as i32;
        let [least, before] = &mut self.least_ms;
        if now_ms.wrapping_sub(self.since_ms) >= REMEMBERED_MS {
            (*before, *least, self.since_ms) = (*least, back_ms, now_ms);
        }
        *least = back_ms.min(*least);
        let waits_ms = back_ms.saturating_sub(*least.min(before));
        // A millisecond may be begun twice.
        let waits_ms = u32::try_from(waits_ms).unwrap_or(0).saturating_sub(1);
        self.waits_ms = Some(waits_ms).filter(|_| self.is_ms);
    }

    fn judge(&mut self, sent_ms: u32, counted_ms: u32) {
        if !(SHOWN_MIN_MS..u32::MAX / 2).contains(&sent_ms) {
            return;
        }
        let is_slow = counted_ms.saturating_add(GRAIN_MS) < sent_ms / 4 * SLOW_QUARTERS;
        let is_fast = counted_ms > sent_ms.saturating_mul(FAST_TIMES).saturating_add(WAITS_MAX_MS);
        self.is_ms = !is_slow && !is_fast;
    }

    /// So much longer than the shortest of its way back the last acknowledgement took; `None`:
    /// nobody knows.
    pub fn waits(&self) -> Option<Duration> {
        self.waits_ms.map(|ms| Duration::from_millis(ms.into()))
    }
}

impl Sender {
    /// What completed the handshake was stamped so by the receiver. It had waited for so long on
    /// its way back, as far as all who use the link know: acknowledgements to come will have, too.
    pub fn begin_stamps(&mut self, now: Instant, val: u32, rtt: Duration, waited: Duration) {
        self.stamps = Some(Box::new(Stamps::of_handshake(now, val, rtt, waited)));
    }

    /// What comes now was stamped so by the receiver; `None`: it has no clock of its own.
    pub fn note_stamps(&mut self, stamps: Option<Timestamps>) {
        match (&mut self.stamps, stamps) {
            (None, Some(_)) if !self.flight.is_empty() => {
                self.stamps = Some(Box::new(Stamps { now: stamps.map(|s| s.val), ..Stamps::default() }));
            }
            (None, _) => {}
            (Some(known), stamps) => known.set(stamps),
        }
    }

    pub(super) fn note_wait(&mut self, now: Instant, rtt: Option<Duration>) {
        if let Some(stamps) = &mut self.stamps {
            stamps.note(now, rtt);
        }
        if let Some((rtt, waited)) = rtt.zip(self.waited_back()).filter(|(_, waited)| *waited > WAITS_MIN) {
            self.flight.note_waited(rtt, waited);
        }
    }

    /// How long the last acknowledgement has waited on its way back; `None`: nobody knows.
    pub(super) fn waited_back(&self) -> Option<Duration> {
        self.stamps.as_ref().and_then(|stamps| stamps.waits())
    }

    pub(super) fn stamps_bytes(&self) -> usize {
        self.stamps.as_ref().map_or(0, |_| size_of::<Stamps>())
    }
}

/// Modulo 2^32 on purpose.
fn millis(at: Instant) -> u32 {
    at.since(Instant::ZERO).as_millis() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Acknowledgements of segments that left a millisecond and a half apart, each this much later
    /// than the one before on its way there and back, by a clock of so many ticks a second.
    fn waits(later_us: [u64; 2], hertz: u64) -> Option<u128> {
        let mut stamps = Stamps::default();
        for n in 0..100_u64 {
            let (sent, [there, back]) = (n * 1_500, later_us.map(|us| us * n + 20_000));
            let arrived = sent + there;
            let now = Instant::ZERO + Duration::from_micros(arrived + back);
            let val = u32::MAX.wrapping_add((arrived * hertz / 1_000_000) as u32);
            stamps.set(Some(Timestamps { val, ecr: 0 }));
            stamps.note(now, Some(Duration::from_micros(there + back)));
        }
        stamps.waits().map(|waits| waits.as_millis())
    }

    #[test]
    fn only_what_waits_on_its_way_back_counts() {
        assert_eq!(waits([0, 0], 1_000), Some(0));
        assert!(waits([6_000, 0], 1_000).is_some_and(|ms| ms == 0), "the way there is slow");
        assert!(waits([0, 6_000], 1_000).is_some_and(|ms| ms.abs_diff(594) <= 2), "the way back is");
    }

    /// All acknowledgements of a connection that begins while others fill the way back have waited.
    /// By themselves they would show only how much longer each waits than the first one.
    #[test]
    fn what_the_handshake_waited_for_counts_from_the_first_acknowledgement_on() {
        let (ms, at) = (Duration::from_millis, Instant::from_millis);
        let waits = |mut stamps: Stamps| {
            // The client got the SYN-ACK at 1,020 by its clock, and data at 1,270 and 1,290. The
            // answers waited for 180 ms, and for 300.
            for (now, val, rtt) in [(1_700, 1_270, 450), (1_840, 1_290, 570)] {
                stamps.set(Some(Timestamps { val, ecr: 0 }));
                stamps.note(at(now), Some(ms(rtt)));
            }
            stamps.waits().map(|waits| waits.as_millis())
        };
        let seeded = Stamps::of_handshake(at(1_450), 1_020, ms(430), ms(180));
        assert_eq!(waits(seeded), Some(299));
        assert_eq!(waits(Stamps::default()), Some(119), "the first one counts as prompt");
    }

    #[test]
    fn a_clock_that_counts_something_else_tells_nothing() {
        assert_eq!(waits([0, 6_000], 100), None);
        assert_eq!(waits([0, 6_000], 2), None);
    }
}
