//! Round-trip times from transmission records, and the retransmission timeout (RFC 6298).

use farlink_wire::Duration;

/// The RTO before the first sample (RFC 6298 2.1).
pub const RTO_INITIAL: Duration = Duration::from_secs(1);
/// The same where a SYN was repeated, and nobody knows whether too soon (RFC 6298 5.7).
const RTO_AFTER_SYNS: Duration = Duration::from_secs(3);
/// A handshake's packets of 52 and 60 bytes fit so many times into a full segment. So many of its
/// round trips are the longest that a segment and its answer can take, where both ways are alike.
const SMALL_IN_SEGMENT: u32 = 14;
/// Back-off stops doubling here; `rto_max` bounds it anyway.
const BACKOFF_MAX: u8 = 16;

/// Smoothed RTT of one leg.
#[derive(Clone, Copy, Debug)]
pub struct RttEstimator {
    srtt: Option<Duration>,
    rttvar: Duration,
    min_rtt: Duration,
    /// The smallest without what acknowledgements waited on a slow way back, microseconds;
    /// `u32::MAX`: none has waited.
    unwaited_us: u32,
    /// What the handshake took, or what the link was said to take.
    expected: Option<Duration>,
    /// The link was said to be so fast that nothing else makes a round trip longer.
    is_certain: bool,
    /// How much of SRTT is the time that the packets of the samples took.
    packets_took_us: u32,
    backoff: u8,
    /// An answer has come too soon for a repetition since the last sample.
    was_too_soon: bool,
    /// The handshake repeated a SYN: its time says nothing.
    were_syns_repeated: bool,
    /// A full segment has been seen to take no more than that over a small packet's time,
    /// microseconds; `u32::MAX`: none has been seen.
    segment_took_us: u32,
}

impl Default for RttEstimator {
    fn default() -> Self {
        Self {
            srtt: None,
            rttvar: Duration::ZERO,
            min_rtt: Duration::MAX,
            unwaited_us: u32::MAX,
            expected: None,
            is_certain: false,
            packets_took_us: 0,
            backoff: 0,
            was_too_soon: false,
            were_syns_repeated: false,
            segment_took_us: u32::MAX,
        }
    }
}

impl RttEstimator {
    /// A sample from a segment that was sent once (Karn), and took so much of it on its way into
    /// the link.
    pub fn sample(&mut self, rtt: Duration, packet_took: Duration) {
        let took = packet_took.min(rtt);
        self.min_rtt = self.min_rtt.min(rtt);
        self.backoff = 0;
        self.was_too_soon = false;
        match self.srtt {
            None => {
                self.srtt = Some(rtt);
                self.rttvar = (rtt - took) / 2;
                self.packets_took_us = micros(took);
            }
            Some(srtt) => {
                // That packets differ in size is no variation of the path.
                let delta = srtt.saturating_sub(self.packets_took()).abs_diff(rtt - took);
                self.packets_took_us = micros((self.packets_took() * 7 + took) / 8);
                self.rttvar = (self.rttvar * 3 + delta) / 4;
                self.srtt = Some((srtt * 7 + rtt) / 8);
            }
        }
    }
    /// So much of this one an acknowledgement waited on its way back: the next need not wait.
    pub fn note_waited(&mut self, rtt: Duration, waited: Duration) {
        self.unwaited_us = self.unwaited_us.min(micros(rtt.saturating_sub(waited)));
    }
    /// The path is another one of late, and its smallest round trip is this.
    pub fn set_min_rtt(&mut self, rtt: Duration) {
        self.min_rtt = rtt;
    }
    /// SRTT; `None` before the first sample.
    #[must_use]
    pub fn srtt(&self) -> Option<Duration> {
        self.srtt
    }
    /// How much of SRTT is the time that packets took.
    #[must_use]
    pub fn packets_took(&self) -> Duration {
        Duration::from_micros(self.packets_took_us.into())
    }
    /// SRTT, or the initial RTO's guess.
    #[must_use]
    pub fn srtt_or_default(&self) -> Duration {
        self.srtt.unwrap_or(RTO_INITIAL)
    }
    /// Smallest sample; zero before the first.
    #[must_use]
    pub fn min_rtt(&self) -> Duration {
        if self.srtt.is_some() { self.min_rtt } else { Duration::ZERO }
    }
    /// No answer comes sooner than that. Zero before the first sample.
    ///
    /// Where nobody has said the rate, all samples may have waited behind what left with them. The
    /// handshake had the line to itself. Its packets are small, so a quarter is the most that is
    /// believed to have been waiting.
    #[must_use]
    pub fn soonest(&self) -> Duration {
        let handshake = self.expected.filter(|_| !self.is_certain).unwrap_or(Duration::MAX);
        let min = self.min_rtt();
        min.min(handshake.max(min / 4 * 3)).min(Duration::from_micros(self.unwaited_us.into()))
    }
    /// The same, however much all samples may have waited: what a small packet took, where nobody
    /// knows more.
    #[must_use]
    pub fn soonest_of_all(&self) -> Duration {
        self.expected.filter(|_| !self.is_certain).map_or(self.soonest(), |rtt| rtt.min(self.soonest()))
    }
    /// When the next answer comes at the latest, where small packets have crossed in the round trip
    /// that was expected, and one answer has come; `None`: nobody knows.
    ///
    /// Segments that have been answered took longer than small packets by their own time, and by
    /// what they waited: the next one takes no more than that.
    #[must_use]
    pub fn next_within(&self) -> Option<Duration> {
        let rtt = self.expected.filter(|_| !self.is_certain)?;
        let shown = self.srtt.map_or(Duration::MAX, |_| self.min_rtt.saturating_sub(rtt) * 2);
        Some(rtt + self.segment_takes(rtt).min(shown))
    }
    /// The smallest round trip of a packet that takes no time; `None` before the first sample.
    #[must_use]
    pub fn min_without_packet(&self) -> Option<Duration> {
        self.srtt.map(|_| self.min_rtt.saturating_sub(self.packets_took()))
    }
    /// An answer has come too soon for a repetition.
    pub fn note_too_soon(&mut self) {
        self.was_too_soon = true;
    }
    /// It has, since the last sample.
    #[must_use]
    pub fn was_too_soon(&self) -> bool {
        self.was_too_soon
    }
    /// RTO with back-off, within the bounds.
    #[must_use]
    pub fn rto(&self, min: Duration, max: Duration) -> Duration {
        self.backed_off(self.base(min), max)
    }
    /// The same over a link whose queue is ours, with a gateway at its other end: the round trip
    /// hardly varies. What seems to be a long one is an acknowledgement that took the place of a
    /// lost one.
    #[must_use]
    pub fn rto_over_own_link(&self, min: Duration, max: Duration) -> Duration {
        let most = self.srtt.map_or(RTO_INITIAL, |_| self.min_rtt + self.min_rtt / 2 + min);
        self.backed_off(self.base(min).min(most), max)
    }
    fn base(&self, min: Duration) -> Duration {
        match (self.srtt, self.expected) {
            (Some(srtt), _) => (srtt + (self.rttvar * 4).max(min)).max(min),
            // As if that had been the first sample, and never later than without it, unless that is
            // less than two round trips: the medium may be asked for first, and delays may move.
            (None, Some(rtt)) if self.is_certain => (rtt + (rtt * 2).max(min)).min(RTO_INITIAL.max(rtt * 2)),
            (None, Some(rtt)) => {
                let usual = rtt + (rtt * 2).max(min);
                (usual + self.segment_takes(rtt)).min(usual.max(RTO_INITIAL))
            }
            (None, None) if self.were_syns_repeated => RTO_AFTER_SYNS,
            (None, None) => RTO_INITIAL,
        }
    }
    /// The handshake repeated a SYN.
    pub fn note_repeated_syns(&mut self) {
        self.were_syns_repeated = true;
    }
    /// What is expected before the first sample.
    #[must_use]
    pub fn expected(&self) -> Option<Duration> {
        self.expected
    }
    /// When the end of what was sent is asked for (RFC 8985 7.2), before the answer to a single
    /// segment may be delayed: after two round trips. Before the first sample it is when a segment
    /// would have been answered, to judge by the handshake.
    #[must_use]
    pub fn probe_after(&self) -> Option<Duration> {
        let is_shown = self.segment_took_us < u32::MAX;
        let by_handshake =
            |rtt: Duration| if is_shown { rtt * 2 } else { Duration::ZERO } + self.segment_takes(rtt);
        self.srtt.map(|srtt| srtt * 2).or(self.guess().map(by_handshake))
    }
    /// The same if a segment took no time.
    #[must_use]
    pub fn probe_after_soonest(&self) -> Option<Duration> {
        self.srtt.or(self.guess()).map(|rtt| rtt * 2)
    }
    /// The handshake's time, where timers have nothing else to go by.
    #[must_use]
    pub fn guess(&self) -> Option<Duration> {
        self.expected.filter(|_| self.srtt.is_none() && !self.is_certain)
    }
    /// So much of the RTO is for the time that a first segment may take, of which the handshake
    /// shows only the most.
    #[must_use]
    pub fn guessed(&self, min: Duration) -> Duration {
        let beyond = |rtt: Duration| self.base(min).saturating_sub(rtt + (rtt * 2).max(min));
        self.guess().map_or(Duration::ZERO, beyond)
    }
    /// Full segments over the same link have been seen to take no more than that beyond what a
    /// small packet takes.
    pub fn note_segment_took(&mut self, most: Option<Duration>) {
        self.segment_took_us = most.map_or(u32::MAX, micros);
    }
    /// How long a full segment and its answer take at most, where small ones took such a round
    /// trip.
    fn segment_takes(&self, rtt: Duration) -> Duration {
        (rtt * SMALL_IN_SEGMENT).min(Duration::from_micros(self.segment_took_us.into()))
    }
    /// Before the first sample this is expected. `is_certain`: the link has a rate that is said, so
    /// that no queue there makes it longer.
    pub fn expect(&mut self, rtt: Option<Duration>, is_certain: bool) {
        self.expected = rtt;
        self.is_certain = is_certain;
    }
    fn backed_off(&self, base: Duration, max: Duration) -> Duration {
        base.saturating_mul(1 << self.backoff.min(BACKOFF_MAX)).min(max.max(base))
    }
    /// The timer expired: doubled (RFC 6298 5.5).
    pub fn back_off(&mut self) {
        self.backoff = (self.backoff + 1).min(BACKOFF_MAX);
    }
    /// Progress: no longer doubled.
    pub fn reset_backoff(&mut self) {
        self.backoff = 0;
    }
}

/// Whole microseconds, an hour at most.
pub fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_a_link_of_our_own_little_is_added_to_the_shortest_round_trip() {
        let (min, max) = (Duration::from_millis(200), Duration::from_secs(60));
        let mut e = RttEstimator::default();
        assert_eq!(e.rto_over_own_link(min, max), Duration::from_secs(1));
        e.sample(Duration::from_millis(500), Duration::ZERO);
        assert_eq!((e.rto(min, max).as_millis(), e.rto_over_own_link(min, max).as_millis()), (1500, 950));
        (0..30).for_each(|_| e.sample(Duration::from_millis(500), Duration::ZERO));
        assert_eq!(e.rto(min, max), e.rto_over_own_link(min, max));
        e.back_off();
        assert_eq!(e.rto(min, max), e.rto_over_own_link(min, max));
    }

    #[test]
    fn what_the_handshake_took_makes_the_first_timeout() {
        let (min, max) = (Duration::from_millis(200), Duration::from_secs(60));
        let mut e = RttEstimator::default();
        for (rtt_ms, rto_ms) in [(1, 201), (150, 450), (500, 1000), (3000, 6000)] {
            e.expect(Some(Duration::from_millis(rtt_ms)), true);
            assert_eq!(e.rto(min, max), Duration::from_millis(rto_ms));
        }
        e.back_off();
        assert_eq!(e.rto(min, max), Duration::from_millis(12_000));
        e.sample(Duration::from_millis(100), Duration::ZERO);
        assert_eq!(e.rto(min, max), Duration::from_millis(300));
    }

    #[test]
    fn small_packets_that_crossed_bound_what_large_ones_take() {
        let (min, max) = (Duration::from_millis(200), Duration::from_secs(60));
        let ms = Duration::from_millis;
        let mut e = RttEstimator::default();
        // Of a line of 9,600 bit/s the first timeout is as ever; of a LAN it is as the hosts'.
        for (rtt_ms, rto_ms, probe_ms) in [(1, 215, 14), (40, 800, 560), (500, 1_500, 7_000)] {
            e.expect(Some(ms(rtt_ms)), false);
            assert_eq!((e.rto(min, max), e.probe_after()), (ms(rto_ms), Some(ms(probe_ms))));
        }
        assert_eq!(e.next_within(), Some(ms(7_500)));
        let mut measured = e;
        measured.sample(ms(620), Duration::ZERO);
        assert_eq!(measured.next_within(), Some(ms(740)), "a segment takes 120 ms more at most");
        assert_eq!(e.guessed(min), Duration::ZERO, "two round trips are longer than a second");
        // Full segments of others have shown it.
        e.expect(Some(ms(40)), false);
        assert_eq!(e.guessed(min), ms(560));
        e.note_segment_took(Some(ms(2)));
        assert_eq!((e.rto(min, max), e.guessed(min), e.probe_after()), (ms(242), ms(2), Some(ms(82))));
        e.note_segment_took(None);
        e.expect(Some(ms(1)), true);
        assert_eq!((e.probe_after(), e.next_within()), (None, None), "its rate is known");
        assert_eq!(e.guessed(min), Duration::ZERO);
        e.expect(Some(ms(9)), false);
        e.sample(ms(10), Duration::ZERO);
        assert_eq!((e.soonest(), e.min_rtt(), e.probe_after()), (ms(9), ms(10), Some(ms(20))));
        e.expect(Some(ms(1)), false);
        assert_eq!(e.soonest(), ms(10) / 4 * 3, "a large packet takes longer");
    }

    /// The first answers of a connection have all waited behind those of others. One that has not
    /// comes sooner, and may be to a repetition.
    #[test]
    fn what_waited_on_its_way_back_is_no_least_round_trip() {
        let mut e = RttEstimator::default();
        e.sample(Duration::from_millis(700), Duration::ZERO);
        assert_eq!(e.soonest(), Duration::from_millis(700));
        e.note_waited(Duration::from_millis(700), Duration::from_millis(640));
        assert_eq!((e.soonest(), e.min_rtt()), (Duration::from_millis(60), Duration::from_millis(700)));
    }

    #[test]
    fn rfc6298_rules() {
        let (min, max) = (Duration::from_millis(200), Duration::from_secs(60));
        let mut e = RttEstimator::default();
        assert_eq!(e.rto(min, max), Duration::from_secs(1));
        e.sample(Duration::from_millis(100), Duration::ZERO);
        assert_eq!(e.srtt(), Some(Duration::from_millis(100)));
        // 100 + max(200, 4 * 50)
        assert_eq!(e.rto(min, max), Duration::from_millis(300));
        e.back_off();
        assert_eq!(e.rto(min, max), Duration::from_millis(600));
        for _ in 0..40 {
            e.back_off();
        }
        assert_eq!(e.rto(min, max), max);
        e.sample(Duration::from_millis(100), Duration::ZERO);
        assert_eq!(e.backoff, 0);
        assert_eq!(e.min_rtt(), Duration::from_millis(100));
    }
}
