//! The driver's one clock: CLOCK_MONOTONIC as the sans-I/O crates' `Instant`.

use farlink_wire::Instant;
use rustix::time::{ClockId, Timespec, clock_gettime};

/// Nanoseconds of a non-negative kernel time.
pub(crate) fn nanos(t: Timespec) -> u64 {
    let secs = u64::try_from(t.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(t.tv_nsec).unwrap_or(0);
    secs.saturating_mul(1_000_000_000).saturating_add(nanos)
}

/// Time since boot (without suspend).
#[must_use]
pub fn now() -> Instant {
    Instant::from_nanos(nanos(clock_gettime(ClockId::Monotonic)))
}

/// How far CLOCK_REALTIME, in which the kernel stamps packets, is ahead of CLOCK_MONOTONIC, in
/// nanoseconds.
#[must_use]
pub fn realtime_offset_ns() -> u64 {
    let before = nanos(clock_gettime(ClockId::Monotonic));
    let real = nanos(clock_gettime(ClockId::Realtime));
    let after = nanos(clock_gettime(ClockId::Monotonic));
    real.saturating_sub(before.midpoint(after))
}
