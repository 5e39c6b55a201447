//! How many acknowledgements go to another gateway over a slow link: those of all flows together
//! take a part of it, however fast the link is the other way. The queue of the link keeps to it.
//! The gateway that waits for them reckons with it.

use farlink_wire::Duration;

/// They have one part of so many.
const PARTS: u64 = 7;
/// An acknowledgement with timestamps and a full message, over IPv4.
const ACK_BYTES: u64 = 80;
/// So many per second may leave on the slowest link: sources and timers go by them.
const LEAST_PER_SECOND: u64 = 4;
/// On faster links they are not counted. A seventh of this are 446 acknowledgements a second. Where
/// round trips are long a connection has twelve, and 10 Mbit/s bring as many where they are short.
const RATE_MAX_BPS: u64 = 2_000_000;
/// Hosts and near gateways acknowledge two full segments by one packet. So a link that takes less
/// than a fifth of what it brings is too slow for all of these.
const BRINGS_TIMES: u64 = 5;

/// What acknowledgements to gateways may take of a link of this rate, all together, bit/s; `None`:
/// as much as there is.
#[must_use]
pub fn ration_bps(rate_bps: u64) -> Option<u64> {
    let is_slow = (1..=RATE_MAX_BPS).contains(&rate_bps);
    is_slow.then(|| (rate_bps / PARTS).max(LEAST_PER_SECOND * 8 * ACK_BYTES))
}

/// How far apart they come over a link that brings back so much, where that is too little for all
/// that the rate calls up; zero where it is enough.
#[must_use]
pub fn apart(rate_bps: u64, rate_in_bps: u64) -> Duration {
    let is_starved = rate_in_bps.saturating_mul(BRINGS_TIMES) < rate_bps;
    let ration = ration_bps(rate_in_bps).filter(|_| is_starved);
    ration.map_or(Duration::ZERO, |bps| Duration::from_nanos(ACK_BYTES * 8 * 1_000_000_000 / bps))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seventh_of_a_slow_link_and_four_a_second_at_least() {
        assert_eq!(ration_bps(64_000), Some(9_142));
        assert_eq!(ration_bps(32_000), Some(4_571));
        assert_eq!(ration_bps(9_600), Some(2_560));
        assert_eq!([0, 2_000_001].map(ration_bps), [None; 2]);
    }

    #[test]
    fn they_are_late_where_the_link_brings_much_and_takes_little() {
        let ms = |rate, back| apart(rate, back).as_millis();
        assert_eq!((ms(8_000_000, 32_000), ms(8_000_000, 9_600)), (140, 250));
        assert_eq!(ms(100_000_000, 1_000_000), 4);
        assert_eq!((ms(8_000_000, 1_600_000), ms(64_000, 64_000)), (0, 0));
    }
}
