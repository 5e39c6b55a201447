//! Hybla (Caini and Firrincieli, "TCP Hybla: a TCP enhancement for heterogeneous networks", 2004;
//! Linux tcp_hybla.c): a long round trip grows its window as fast in time as a reference connection
//! of 25 ms does.

use farlink_wire::time::Duration;

/// The round-trip time of the connection that is imitated.
const RTT0: Duration = Duration::from_millis(25);
/// One, as the fixed-point number that rho is.
const ONE: u64 = 1 << 10;
/// Above this the exponent changes nothing any more: one acknowledgement fills any window (Linux:
/// 16).
const EXPONENT_MAX: u64 = 16;
/// Slow start threshold of the reference connection while nothing is known: a window without
/// scaling (RFC 2001).
const REFERENCE_SSTHRESH_BYTES: u64 = 65_535;
/// `2^(1/2)`, `2^(1/4)`, ... `2^(1/1024)`, 32 bits of fraction.
const ROOTS: [u64; 10] = [
    6_074_001_000,
    5_107_605_667,
    4_683_695_048,
    4_485_121_744,
    4_389_014_833,
    4_341_736_423,
    4_318_288_544,
    4_306_612_134,
    4_300_785_774,
    4_297_875_550,
];

/// State of Hybla beside window and threshold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hybla {
    /// RTT / RTT0, at least one; `ONE` is 1.
    rho: u64,
    /// The part of the window below one byte, 2^-32.
    fraction: u64,
}

impl Hybla {
    /// `rtt`: that of the handshake; zero while unknown.
    pub(crate) fn new(rtt: Duration) -> Self {
        let mut new = Self { rho: ONE, fraction: 0 };
        new.measure(rtt);
        new
    }

    /// The smallest RTT is what rho goes by: one with a queue in it would build more queue.
    pub(crate) fn measure(&mut self, min_rtt: Duration) {
        if !min_rtt.is_zero() {
            let rho = min_rtt.as_nanos() * u128::from(ONE) / RTT0.as_nanos();
            // A minute and a half of RTT is enough for anybody.
            self.rho = u64::try_from(rho).unwrap_or(u64::MAX).clamp(ONE, 4096 * ONE);
        }
    }

    /// What rho makes of the reference connection's window at the start.
    pub(crate) fn initial_window(&self, mss: u64) -> u64 {
        self.rho * mss / ONE
    }

    /// The reference connection's first threshold, scaled as the paper has it.
    pub(crate) fn initial_ssthresh(&self) -> u64 {
        self.rho * REFERENCE_SSTHRESH_BYTES / ONE
    }

    /// Slow start: 2^rho - 1 for each segment acknowledged.
    pub(crate) fn slow_start(&self, acked: u64) -> u64 {
        let grown = u128::from(acked) * u128::from(exp2(self.rho.min(EXPONENT_MAX * ONE)) - (1 << 32));
        u64::try_from(grown >> 32).unwrap_or(u64::MAX)
    }

    /// Congestion avoidance: rho^2 / W for each segment acknowledged.
    pub(crate) fn grow(&mut self, cwnd: u64, acked: u64, mss: u64) -> u64 {
        let rho2 = u128::from(self.rho) * u128::from(self.rho);
        // ONE^2 is 2^20; 12 bits more make the fraction 2^-32. A single ACK does not count for more
        // than a window.
        let acked = u128::from(acked.min(cwnd));
        let growth =
            ((rho2 * acked * u128::from(mss)) << 12) / u128::from(cwnd.max(1)) + u128::from(self.fraction);
        self.fraction = (growth & 0xffff_ffff) as u64;
        cwnd.saturating_add(u64::try_from(growth >> 32).unwrap_or(u64::MAX))
    }

    /// `ssthresh` after congestion: that of Reno.
    pub(crate) fn reduce(&mut self, flight: u64) -> u64 {
        self.fraction = 0;
        flight / 2
    }
}

/// 2^x with 32 bits of fraction, `x` in units of 1/1024; integers only, so the same everywhere.
fn exp2(x: u64) -> u64 {
    let mut y: u64 = 1 << 32;
    let mut bit = ONE >> 1;
    for root in ROOTS {
        if x & bit != 0 {
            y = ((u128::from(y) * u128::from(root)) >> 32) as u64;
        }
        bit >>= 1;
    }
    y << (x / ONE).min(31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_two() {
        for x in 0..=16 * ONE {
            let exact = 2f64.powf(x as f64 / ONE as f64) * 2f64.powi(32);
            assert!((exp2(x) as f64 / exact - 1.0).abs() < 1e-8, "{x}");
        }
    }

    #[test]
    fn rho_is_the_ratio_to_25_ms_and_at_least_one() {
        for (rtt_ms, window) in [(0, 1000), (10, 1000), (25, 1000), (50, 2000), (600, 24_000)] {
            assert_eq!(Hybla::new(Duration::from_millis(rtt_ms)).initial_window(1000), window, "{rtt_ms} ms");
        }
    }

    /// Table I of the paper in other words: after a second the window is the same for every RTT,
    /// times rho.
    #[test]
    fn grows_as_fast_in_time_as_the_reference() {
        for rtt_ms in [25, 50, 100] {
            let hybla = Hybla::new(Duration::from_millis(rtt_ms));
            let mut window = hybla.initial_window(1000);
            for _ in 0..200 / rtt_ms {
                window += hybla.slow_start(window);
            }
            // The reference doubles eight times in 200 ms.
            assert_eq!(window, (1000 << 8) * rtt_ms / 25, "{rtt_ms} ms");
        }
    }

    #[test]
    fn adds_rho_squared_segments_per_round_trip() {
        let mut hybla = Hybla::new(Duration::from_millis(600));
        let mut window = 4_000_000;
        for _ in 0..1000 {
            window = hybla.grow(window, 4000, 1000);
        }
        // 24 * 24 segments, less what the growing window itself takes away.
        assert!((4_530_000..=4_576_000).contains(&window), "{window}");
    }
}
