//! What copies of data that may have been lost may cost a link: a tenth of what it could have
//! carried in the last minute. Capacity is paid for by the byte on some links, and copies of many
//! short transfers would take most of one that is idle otherwise.

use farlink_wire::{Duration, Instant};

use super::Link;

/// So much at once, in time of the link at its full rate.
const MINUTE: Duration = Duration::from_secs(60);
/// One part of so many of it.
const PART: u64 = 10;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct CopyBudget {
    is_off: bool,
    /// What has been spent and not been earned again, bytes.
    spent_bytes: u64,
    at: Instant,
}

impl CopyBudget {
    /// `is_off`: there are to be no copies.
    #[must_use]
    pub fn new(is_off: bool) -> Self {
        Self { is_off, ..Self::default() }
    }

    fn spent(&self, now: Instant, rate_bps: u64) -> u64 {
        self.spent_bytes.saturating_sub(carries(rate_bps, now.since(self.at)) / PART)
    }

    /// One more copy may go, at this rate of the link.
    #[must_use]
    pub fn has_room(&self, now: Instant, rate_bps: u64) -> bool {
        !self.is_off && self.spent(now, rate_bps) < carries(rate_bps, MINUTE) / PART
    }

    /// A copy has gone.
    pub fn spend(&mut self, now: Instant, rate_bps: u64, bytes: u32) {
        self.spent_bytes = self.spent(now, rate_bps).saturating_add(u64::from(bytes));
        self.at = now;
    }
}

/// Bytes that a link carries in so long.
fn carries(rate_bps: u64, time: Duration) -> u64 {
    let bytes = u128::from(rate_bps) * time.as_micros() / 8_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

impl Link {
    /// One more copy of what may be lost may go into it.
    #[must_use]
    pub fn may_copy(&self, now: Instant) -> bool {
        self.copies.has_room(now, self.rate_in_force_bps().unwrap_or(u64::MAX))
    }

    /// A copy has gone into it.
    pub fn note_copy(&mut self, now: Instant, bytes: u32) {
        let rate = self.rate_in_force_bps().unwrap_or(u64::MAX);
        self.copies.spend(now, rate, bytes);
    }

    /// A copy may ask a host behind it whether it takes segments that are larger than a packet.
    #[must_use]
    pub fn may_ask_by_copy(&self) -> bool {
        !self.is_metered
    }

    /// Its bytes cost money.
    #[must_use]
    pub fn is_metered(&self) -> bool {
        self.is_metered
    }

    /// The same from now on.
    pub fn set_metered(&mut self, is_metered: bool) {
        self.is_metered = is_metered;
    }

    /// Whether there are to be copies, from now on.
    pub fn set_copies(&mut self, off: bool) {
        self.copies.is_off = off;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_take_a_tenth_of_what_the_link_could_have_carried_in_a_minute() {
        let start = Instant::ZERO + Duration::from_secs(1000);
        let mut copies = CopyBudget::new(false);
        let mut spend = |now, seconds: u64| {
            let mut spent = 0u64;
            let end = now + Duration::from_secs(seconds);
            let mut now = now;
            while now <= end {
                while copies.has_room(now, 8_000_000) {
                    copies.spend(now, 8_000_000, 1_500);
                    spent += 1_500;
                }
                now += Duration::from_millis(100);
            }
            spent
        };
        let first = spend(start, 0);
        assert!((6_000_000..6_002_000).contains(&first), "{first} of 60 MB");
        let minute = spend(start + Duration::from_millis(100), 60);
        assert!((5_990_000..6_050_000).contains(&minute), "{minute} in the next minute");
        let later = spend(start + Duration::from_secs(3600), 0);
        assert!((6_000_000..6_002_000).contains(&later), "no more than that is saved: {later}");
        assert!(!CopyBudget::new(true).has_room(start, 8_000_000));
    }
}
