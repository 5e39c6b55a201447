//! TCP sequence numbers: arithmetic modulo 2^32 without an order (RFC 9293 section 3.4).

use core::ops::{Add, AddAssign, Sub};

/// A TCP sequence number. It has no `<`: which of two is earlier is asked with [`SeqNum::before`],
/// and the answer means something only while the two are less than 2^31 apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct SeqNum(pub u32);

impl SeqNum {
    /// `self` is earlier than `other`.
    #[must_use]
    pub const fn before(self, other: Self) -> bool {
        (self.0.wrapping_sub(other.0) as i32) < 0
    }
    /// `self` is later than `other`.
    #[must_use]
    pub const fn after(self, other: Self) -> bool {
        other.before(self)
    }
    /// `self` is earlier than or equal to `other`.
    #[must_use]
    pub const fn before_eq(self, other: Self) -> bool {
        !other.before(self)
    }
    /// `self` is later than or equal to `other`.
    #[must_use]
    pub const fn after_eq(self, other: Self) -> bool {
        !self.before(other)
    }
    /// Bytes from `earlier` to `self`, modulo 2^32.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }
    /// Signed distance from `other` to `self`.
    #[must_use]
    pub const fn diff(self, other: Self) -> i32 {
        self.0.wrapping_sub(other.0) as i32
    }
    /// The later of the two.
    #[must_use]
    pub const fn max(self, other: Self) -> Self {
        if self.before(other) { other } else { self }
    }
    /// The earlier of the two.
    #[must_use]
    pub const fn min(self, other: Self) -> Self {
        if self.before(other) { self } else { other }
    }
}

impl Add<u32> for SeqNum {
    type Output = Self;
    fn add(self, n: u32) -> Self {
        Self(self.0.wrapping_add(n))
    }
}
impl AddAssign<u32> for SeqNum {
    fn add_assign(&mut self, n: u32) {
        *self = *self + n;
    }
}
impl Sub<u32> for SeqNum {
    type Output = Self;
    fn sub(self, n: u32) -> Self {
        Self(self.0.wrapping_sub(n))
    }
}
