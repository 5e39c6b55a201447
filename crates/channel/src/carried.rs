//! What the line has carried, by time.

use farlink_wire::time::{Duration, Instant};

/// Length of the intervals in which bytes are counted apart, milliseconds.
pub const CARRIED_INTERVAL_MS: u64 = 10;
/// How many of them are kept: ten minutes.
const INTERVALS_MAX: usize = 60_000;
/// Handshakes and acknowledgements are smaller than this, full segments larger. Bytes.
pub const DATA_BYTES_MIN: usize = 200;

/// Bytes by time since the channel's start.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Carried {
    /// Bytes that have left the line in each interval of [`CARRIED_INTERVAL_MS`].
    pub bytes: Vec<u64>,
    /// When the first packet of more than 200 bytes came, which is the first with data of any
    /// length to speak of.
    pub first_data: Option<Duration>,
}

impl Carried {
    /// A packet enters.
    pub(crate) fn enters(&mut self, since_start: Duration, len_bytes: usize) {
        if len_bytes > DATA_BYTES_MIN && self.first_data.is_none() {
            self.first_data = Some(since_start);
        }
    }

    /// A packet has left the line. Its bytes count evenly over the time that it took.
    pub(crate) fn leaves(&mut self, start: Instant, begin: Instant, end: Instant, bytes: u64) {
        let interval_ns = u128::from(CARRIED_INTERVAL_MS) * 1_000_000;
        let (from, to) = (begin.since(start).as_nanos(), end.since(start).as_nanos());
        let (first, last) = (from / interval_ns, to / interval_ns);
        if last as usize >= INTERVALS_MAX {
            return;
        }
        if self.bytes.len() <= last as usize {
            self.bytes.resize(last as usize + 1, 0);
        }
        let mut left = bytes;
        for n in first..=last {
            let share = if n == last {
                left
            } else {
                let upto = ((n + 1) * interval_ns).min(to) - (n * interval_ns).max(from);
                let share = u128::from(bytes) * upto / (to - from).max(1);
                u64::try_from(share).unwrap_or(left).min(left)
            };
            left -= share;
            if let Some(sum) = self.bytes.get_mut(n as usize) {
                *sum += share;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_count_over_the_time_they_took() {
        let mut carried = Carried::default();
        let at = Instant::from_millis;
        carried.leaves(at(1000), at(1005), at(1025), 2_000);
        assert_eq!(carried.bytes, [500, 1_000, 500]);
        carried.leaves(at(1000), at(1025), at(1025), 7);
        assert_eq!(carried.bytes, [500, 1_000, 507]);
        carried.leaves(at(1000), at(10_000_000), at(10_000_000), 7);
        assert_eq!(carried.bytes.len(), 3);
        for (at, len) in [(5, 60), (7, 1500), (9, 1500)] {
            carried.enters(Duration::from_millis(at), len);
        }
        assert_eq!(carried.first_data, Some(Duration::from_millis(7)));
    }
}
