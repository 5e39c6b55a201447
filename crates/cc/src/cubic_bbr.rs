//! CUBIC and BBR at once, and the larger window of both: for a declared link of which nobody knows
//! the rate, with no gateway at its other end.
//!
//! There the connection is to be no slower than its hosts would be alone, whichever of the two they
//! use. CUBIC begins without BBR's pauses and keeps a link full whose rate moves. BBR goes on where
//! packets are lost at random, or their delay jitters. As long as less is under way than CUBIC
//! would have, the larger pace of both counts, too: BBR drains what its startup has put into a
//! queue, and CUBIC has halved its window for that already. Neither knows of the other one: each
//! goes by the acknowledgements of all that is sent. What short queues lose by a window that left
//! at once, at the beginning, is not counted as congestion by BBR.
//!
//! BBR version 3 gives way from 2 % of loss on, version 1, which hosts have, does not. A loss while
//! nothing waits is not for want of room, so it is kept from BBR. One that comes while round trips
//! are longer than they could be counts.

use farlink_wire::time::{Duration, Instant};

use crate::api::{Ack, Config, Congestion, Kind, Lost};
use crate::bbr::Bbr;
use crate::loss_based::LossBased;

/// A round trip that is longer than the shortest one by more than this part shows a queue.
const QUEUE_PARTS: u32 = 8;
/// And so does one that is longer by this.
const QUEUE_MAX: Duration = Duration::from_millis(15);
/// Hosts' clocks tell no less of what acknowledgements wait.
const STAMP_STEP: Duration = Duration::from_millis(4);
/// Round trips after a burst in which its losses are found.
const BURST_ROUNDS: u32 = 2;
/// A window of this size, at least, is paced in slow start, too.
const UNPACED_BYTES_MAX: u64 = 256 * 1024;
/// In slow start it leaves so many times as fast as otherwise: a host on CUBIC has no pace, and is
/// ahead by what the last window is spread over.
const START_TIMES: u64 = 2;
/// An initial window (RFC 6928): hosts send so much at once.
const INITIAL_WINDOW_SEGMENTS: u32 = 10;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct CubicBbr {
    /// `None`: BBR is alone, which knows the rate, and delay that hardly varies shows a queue.
    cubic: Option<LossBased>,
    bbr: Bbr,
    /// The last round trip shows that packets wait somewhere.
    waits: bool,
    /// Acknowledgements are known not to wait on their way back: round trips tell of the way ahead.
    is_free_back: bool,
    /// In so many round trips there may still be lost what has left without a pace: a short queue
    /// overflows then at any rate.
    bursts: u32,
    /// So much is under way, bytes.
    in_flight: u64,
    /// There has been a timeout, and CUBIC's window has not been larger than an initial one since.
    timed_out: bool,
}

impl CubicBbr {
    pub(crate) fn new(config: &Config) -> Self {
        let of = |kind| Config { kind, ..*config };
        let cubic = Some(LossBased::new(&of(Kind::Cubic)));
        Self::begin(cubic, Bbr::new(&of(Kind::Bbr)))
    }

    /// Both, before anything has been sent or heard.
    fn begin(cubic: Option<LossBased>, bbr: Bbr) -> Self {
        Self { cubic, bbr, waits: false, is_free_back: false, bursts: 0, in_flight: 0, timed_out: false }
    }

    /// Where something has been carried already, at this rate, bits per second: BBR goes on from
    /// there, and CUBIC begins with what is under way then. Where delay does not vary BBR is alone.
    pub(crate) fn resume(
        config: &Config,
        now: Instant,
        (rate_bps, min_rtt): (u64, Duration),
        delay_varies: bool,
    ) -> Self {
        let bbr = Bbr::resume(&Config { kind: Kind::Bbr, ..*config }, now, rate_bps, min_rtt);
        let cubic = delay_varies.then(|| {
            // A declared rate makes the initial window as large as the link was thought to be,
            // which is no least window here.
            let initial_window_segments = config.initial_window_segments.min(INITIAL_WINDOW_SEGMENTS);
            let config = &Config { kind: Kind::Cubic, initial_window_segments, ..*config };
            let mut cubic = LossBased::new(config);
            cubic.begin_with(bbr.cwnd() / 2);
            cubic
        });
        Self::begin(cubic, bbr)
    }

    pub(crate) fn on_sent(&mut self, now: Instant, bytes: u64, in_flight: u64, app_limited: bool) {
        if let Some(cubic) = &mut self.cubic {
            cubic.on_sent(now, bytes, in_flight);
        }
        self.in_flight = in_flight;
        self.bbr.on_sent(now, bytes, in_flight, app_limited);
    }

    pub(crate) fn note_used(&mut self, bytes: u64) {
        if let Some(cubic) = &mut self.cubic {
            cubic.note_used(bytes);
        }
    }

    pub(crate) fn on_ack(&mut self, ack: &Ack) {
        if let Some(rtt) = ack.rtt {
            let more = (ack.min_rtt / QUEUE_PARTS).min(QUEUE_MAX);
            self.waits = rtt > ack.min_rtt + more;
            self.is_free_back = ack.waited_back.is_some_and(|waited| waited <= more && more >= STAMP_STEP);
        }
        if self.is_unpaced() {
            self.bursts = BURST_ROUNDS;
        } else if ack.round_start {
            self.bursts = self.bursts.saturating_sub(1);
        }
        let held_back = self.relies_on_pacing();
        if let Some(cubic) = &mut self.cubic {
            // What BBR's pace holds back does not fill CUBIC's window, which grows by use alone.
            let unused = held_back && ack.prior_in_flight_bytes.saturating_add(cubic.mss()) < cubic.cwnd();
            cubic.on_ack(&Ack { app_limited: ack.app_limited || unused, ..*ack });
            self.timed_out &= is_initial(cubic);
        }
        self.in_flight = ack.in_flight_bytes;
        // BBR alone would have no more under way. It waits for that where it probes for the RTT.
        let in_flight_bytes = ack.in_flight_bytes.min(self.bbr.cwnd());
        self.bbr.on_ack(&Ack { in_flight_bytes, ..*ack });
    }

    /// The path is another one of late, where a round trip takes so long at least.
    pub(crate) fn settle_phase(&mut self, now: Instant, min_rtt: Duration) {
        self.bbr.settle_phase(now, min_rtt);
    }

    pub(crate) fn on_lost(&mut self, lost: &Lost) {
        if (self.waits && self.bursts == 0) || self.cubic.is_none() {
            self.bbr.on_lost(lost);
        }
    }

    pub(crate) fn on_congestion(&mut self, now: Instant, why: Congestion, in_flight: u64) {
        if let Some(cubic) = &mut self.cubic {
            match self.waits && self.is_free_back {
                true => cubic.on_overflow(in_flight),
                false => cubic.on_congestion(in_flight),
            }
        }
        self.bbr.on_congestion(now, why, in_flight);
    }

    pub(crate) fn on_rto(&mut self, now: Instant, in_flight: u64, pipe: u64) {
        if let Some(cubic) = &mut self.cubic {
            cubic.on_rto(in_flight);
        }
        self.bbr.on_rto(now, pipe);
        self.timed_out = true;
    }

    pub(crate) fn on_recovery_exit(&mut self) {
        if let Some(cubic) = &mut self.cubic {
            cubic.on_recovery_exit();
        }
        self.bbr.on_recovery_exit();
    }

    pub(crate) fn undo(&mut self, now: Instant) {
        if let Some(cubic) = &mut self.cubic {
            cubic.undo(now);
        }
        self.bbr.undo();
    }

    pub(crate) fn set_mss(&mut self, mss: u32) {
        if let Some(cubic) = &mut self.cubic {
            cubic.set_mss(mss);
        }
        self.bbr.set_mss(mss);
    }

    pub(crate) fn set_window_limit(&mut self, bytes: u64) {
        if let Some(cubic) = &mut self.cubic {
            cubic.set_window_limit(bytes);
        }
        self.bbr.set_window_limit(bytes);
    }

    pub(crate) fn cwnd(&self) -> u64 {
        self.bbr_cwnd().max(self.cubic_cwnd())
    }

    /// Where BBR probes for the RTT it halves what the path holds. All of that leaves no queue,
    /// either, and keeps the link full.
    fn bbr_cwnd(&self) -> u64 {
        if self.bbr.is_probing_rtt() { self.bbr.held_bytes() } else { self.bbr.cwnd() }
    }

    /// So much under way has no pace, for a host on CUBIC has none: its window, as long as that is
    /// at the beginning of slow start, or no larger than an initial one after a timeout. BBR's pace
    /// would keep back for seconds what the timeout has left of it.
    pub(crate) fn unpaced_bytes(&self) -> u64 {
        let cubic = self.cubic.as_ref().filter(|c| begins(c) || (self.timed_out && is_initial(c)));
        cubic.map_or(0, LossBased::cwnd)
    }

    /// CUBIC is at the beginning of slow start, and its window the larger one.
    fn is_unpaced(&self) -> bool {
        self.cubic.as_ref().is_some_and(|c| begins(c) && c.cwnd() >= self.bbr_cwnd())
    }

    /// Zero where BBR is alone.
    fn cubic_cwnd(&self) -> u64 {
        self.cubic.as_ref().map_or(0, LossBased::cwnd)
    }

    /// CUBIC goes by acknowledgements at the beginning of slow start, as hosts do. Later a window
    /// at once would only overflow short queues. Where acknowledgements wait on their way back,
    /// those of a burst come late, and BBR's pace is the better one.
    pub(crate) fn pacing_rate_bps(&self, srtt: Duration) -> Option<u64> {
        let bbr = self.bbr.pacing_rate_bps();
        match &self.cubic {
            Some(cubic)
                if !self.relies_on_pacing() || (self.is_free_back && self.in_flight < cubic.cwnd()) =>
            {
                let times = if cubic.in_slow_start() { START_TIMES } else { 1 };
                let cubic = cubic.pacing_rate_bps(srtt).map(|rate| rate.saturating_mul(times));
                cubic.max(bbr).filter(|_| !self.is_unpaced())
            }
            _ => bbr,
        }
    }

    /// BBR's window is the larger one. CUBIC's needs no pace, and has none on short round trips.
    pub(crate) fn relies_on_pacing(&self) -> bool {
        self.bbr_cwnd() > self.cubic_cwnd()
    }

    pub(crate) fn in_startup(&self) -> bool {
        self.bbr.in_startup() || self.cubic.as_ref().is_some_and(LossBased::in_slow_start)
    }

    /// What has been carried of late, bits per second.
    pub(crate) fn bandwidth_bps(&self) -> u64 {
        self.bbr.bandwidth_bps()
    }

    /// The smallest RTT of late.
    pub(crate) fn min_rtt(&self) -> Option<Duration> {
        self.bbr.min_rtt()
    }
}

/// At the beginning of slow start.
fn begins(cubic: &LossBased) -> bool {
    cubic.in_slow_start() && cubic.cwnd() <= UNPACED_BYTES_MAX
}

/// The window is no larger than an initial one.
fn is_initial(cubic: &LossBased) -> bool {
    cubic.cwnd() <= cubic.mss() * u64::from(INITIAL_WINDOW_SEGMENTS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Sample;

    /// An acknowledgement after a round trip of 500 ms and what packets wait. Its sender has so
    /// much under way.
    fn ack(at_ms: u64, waits_ms: u64, waited_back: Duration, in_flight: u64) -> Ack {
        Ack {
            now: Instant::from_millis(at_ms),
            acked_bytes: 20_000,
            rtt: Some(Duration::from_millis(500 + waits_ms)),
            srtt: Duration::from_millis(500 + waits_ms),
            min_rtt: Duration::from_millis(500),
            in_flight_bytes: in_flight,
            prior_in_flight_bytes: in_flight + 20_000,
            sample: Sample { rate_bps: Some(8_000_000), ..Sample::default() },
            app_limited: false,
            in_recovery: false,
            round_start: true,
            waited_back: Some(waited_back),
        }
    }

    /// Slow start has put 500 ms of 8 Mbit/s into a queue, and overruns it. 300 kB are under way.
    fn overrun(waited_back: Duration) -> CubicBbr {
        let mut c = CubicBbr::new(&Config { mss: 1_000, ..Config::default() });
        for n in 0..60 {
            c.on_ack(&ack(600 + n * 20, 500, waited_back, 1_000_000));
        }
        c.on_congestion(Instant::from_millis(2_000), Congestion::Loss, 1_000_000);
        c.on_sent(Instant::from_millis(2_000), 1_000, 300_000, false);
        c
    }

    #[test]
    fn slow_start_that_overruns_a_queue_keeps_half() {
        assert_eq!(overrun(Duration::ZERO).cubic_cwnd(), 500_000);
        // Who waits on the way back has more under way than the path ahead holds.
        assert!(overrun(Duration::from_millis(400)).cubic_cwnd() > 600_000);
    }

    #[test]
    fn what_cubic_would_have_under_way_leaves_at_its_pace() {
        let rtt = Duration::from_millis(500);
        let config = Config { mss: 1_000, ..Config::default() };
        let mut c = CubicBbr::resume(&config, Instant::from_millis(1), (8_000_000, rtt), true);
        let window = c.cubic_cwnd();
        c.on_ack(&ack(20, 0, Duration::ZERO, window - 1_000));
        let (of_cubic, of_bbr) = (c.cubic.as_ref().unwrap().pacing_rate_bps(rtt), c.bbr.pacing_rate_bps());
        assert!(c.relies_on_pacing() && of_bbr < of_cubic);
        assert_eq!(c.pacing_rate_bps(rtt), of_cubic);
        c.on_sent(Instant::from_millis(21), 1_000, c.cubic_cwnd(), false);
        assert_eq!(c.pacing_rate_bps(rtt), of_bbr, "the rest leaves at BBR's");
        c.on_ack(&ack(40, 0, Duration::from_millis(400), window - 1_000));
        assert_eq!(c.pacing_rate_bps(rtt), c.bbr.pacing_rate_bps(), "and all where the way back is full");
    }

    #[test]
    fn what_a_pace_holds_back_does_not_fill_the_window() {
        let rtt = Duration::from_millis(500);
        let grown = |in_flight: u64| {
            let mut now = Instant::from_millis(1);
            let config = Config { mss: 1_000, ..Config::default() };
            let mut c = CubicBbr::resume(&config, now, (8_000_000, rtt), true);
            let before = c.cubic_cwnd();
            assert!(c.relies_on_pacing());
            for n in 0..60 {
                now += rtt / 20;
                c.on_ack(&Ack {
                    now,
                    acked_bytes: in_flight / 20,
                    rtt: Some(rtt),
                    srtt: rtt,
                    min_rtt: rtt,
                    in_flight_bytes: in_flight - in_flight / 20,
                    prior_in_flight_bytes: in_flight,
                    sample: Sample::default(),
                    app_limited: false,
                    in_recovery: false,
                    round_start: n % 20 == 0,
                    waited_back: None,
                });
            }
            c.cubic_cwnd() > before
        };
        assert!(!grown(400_000), "BBR's pace holds a part of it back");
        assert!(grown(1_000_000), "it is full");
    }
}
