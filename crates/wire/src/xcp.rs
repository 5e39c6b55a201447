//! The fields of XCP (draft-falk-xcp-spec-03), and where they stand in a TCP segment.
//!
//! Farlink carries them in a TCP option of its own (kind 254, ExID [`FARLINK_XCP`]): in a segment
//! of data the spacing, the round trip and the wish, 16 bytes; in an acknowledgement the sum of
//! what has come of the wishes of the other direction, 8 bytes. So a super-segment keeps them in
//! each of its segments, IPv6 is as IPv4, and no router has to know of them.

use crate::bytes::u32_at;
use crate::options::{KIND_EXPERIMENT, RawOption};
use core::time::Duration;

/// ExID of XCP's fields.
pub const FARLINK_XCP: u16 = 0xFA54;
/// Bytes of the option in a segment of data, and of that in an acknowledgement.
pub const XCP_DATA_BYTES: usize = 16;
/// See [`XCP_DATA_BYTES`].
pub const XCP_SUM_BYTES: usize = 8;
const EXID: [u8; 2] = FARLINK_XCP.to_be_bytes();
/// Kind and length.
const OPTION_HEAD_BYTES: usize = 2;
/// Where the first word stands, from the option's first byte on.
pub(crate) const WORDS_AT: usize = 4;
/// Where the wish stands, from the option's first byte on.
pub(crate) const DELTA_AT: usize = 12;

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
pub struct XcpFields {
    /// X: the time from one packet to the next.
    pub spacing: HeaderTime,
    /// The sender's round-trip time.
    pub rtt: HeaderTime,
    /// Delta_Throughput: how much faster it may be sent, as far as this packet is concerned, bytes
    /// a second. The sender writes a wish, routers lower it.
    pub delta_bytes_per_s: i32,
}

impl XcpFields {
    /// The whole option of a segment of data.
    #[must_use]
    pub fn option(&self) -> [u8; XCP_DATA_BYTES] {
        let mut out = [0; XCP_DATA_BYTES];
        let words = [self.spacing.0, self.rtt.0, self.delta_bytes_per_s.cast_unsigned()];
        let head = [KIND_EXPERIMENT, XCP_DATA_BYTES as u8, EXID[0], EXID[1]];
        let bytes = head.into_iter().chain(words.into_iter().flat_map(u32::to_be_bytes));
        out.iter_mut().zip(bytes).for_each(|(out, byte)| *out = byte);
        out
    }

    /// From an option of a header; `None`: it is another one.
    pub(crate) fn of(raw: &RawOption<'_>) -> Option<Self> {
        if raw.exid() != Some(FARLINK_XCP) || raw.body.len() + OPTION_HEAD_BYTES != XCP_DATA_BYTES {
            return None;
        }
        Some(Self {
            spacing: HeaderTime(u32_at(raw.body, 2)?),
            rtt: HeaderTime(u32_at(raw.body, 6)?),
            delta_bytes_per_s: u32_at(raw.body, 10)?.cast_signed(),
        })
    }
}

/// The whole option of an acknowledgement: what has come of the wishes of the other direction since
/// the beginning, bytes a second, modulo 2^32.
#[must_use]
pub fn sum_option(sum: u32) -> [u8; XCP_SUM_BYTES] {
    let [a, b, c, d] = sum.to_be_bytes();
    [KIND_EXPERIMENT, XCP_SUM_BYTES as u8, EXID[0], EXID[1], a, b, c, d]
}

/// From an option of a header; `None`: it is another one.
pub(crate) fn sum_of(raw: &RawOption<'_>) -> Option<u32> {
    let is_sum = raw.exid() == Some(FARLINK_XCP) && raw.body.len() + OPTION_HEAD_BYTES == XCP_SUM_BYTES;
    u32_at(raw.body, 2).filter(|_| is_sum)
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
