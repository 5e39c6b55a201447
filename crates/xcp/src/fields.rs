//! What a packet says of how it is sent.

use farlink_wire::Duration;

const FRACTION_BITS: u32 = 28;

/// A time in seconds with 28 bits of fraction, below 16 s (section 2.1 of the draft).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct HeaderTime(pub u32);

impl HeaderTime {
    /// Not known.
    pub const UNKNOWN: Self = Self(0);
    /// The longest that can be said, 3.7 ns below 16 s.
    pub const MAX: Self = Self(u32::MAX);

    /// The nearest that can be said.
    #[must_use]
    pub fn of_seconds(seconds: f64) -> Self {
        // The conversion saturates, and makes nothing of what is no number.
        Self((seconds * f64::from(1 << FRACTION_BITS)).round() as u32)
    }

    /// The nearest that can be said.
    #[must_use]
    pub fn of(duration: Duration) -> Self {
        Self::of_seconds(duration.as_secs_f64())
    }

    /// In seconds.
    #[must_use]
    pub fn seconds(self) -> f64 {
        f64::from(self.0) / f64::from(1 << FRACTION_BITS)
    }
}

/// What a packet says of how it is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Fields {
    /// X: the time from one packet to the next.
    pub spacing: HeaderTime,
    /// The sender's round-trip time.
    pub rtt: HeaderTime,
    /// Delta_Throughput: how much faster it may be sent, as far as this packet is concerned, bytes
    /// a second. The sender writes a wish, routers lower it.
    pub delta_bytes_per_s: i32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_with_28_bits_of_fraction() {
        assert_eq!(HeaderTime::of(Duration::from_secs(1)), HeaderTime(1 << 28));
        assert_eq!(HeaderTime::of(Duration::from_millis(500)).seconds(), 0.5);
        assert_eq!(HeaderTime::of(Duration::from_nanos(4)), HeaderTime(1));
        assert_eq!(HeaderTime::of(Duration::from_nanos(1)), HeaderTime::UNKNOWN);
        assert_eq!(HeaderTime::of(Duration::from_secs(16)), HeaderTime::MAX);
        assert_eq!(HeaderTime::of(Duration::MAX), HeaderTime::MAX);
        for nonsense in [-1.0, f64::NAN, f64::NEG_INFINITY] {
            assert_eq!(HeaderTime::of_seconds(nonsense), HeaderTime::UNKNOWN);
        }
    }
}
