//! The calendar, in UTC: how times are written, and when periods begin.

use std::time::{SystemTime, UNIX_EPOCH};

use farlink_gateway::config::Period;

/// Seconds of a day.
const DAY_S: u64 = 86_400;

/// Seconds since 1970 by the calendar.
pub(super) fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// When the period began in which this second lies, seconds since 1970.
pub(super) fn began_s(period: Period, at_s: u64) -> u64 {
    let days = at_s / DAY_S;
    let first = match period {
        Period::Day => days,
        // The first day of 1970 was a Thursday: the Monday before is no day of that count.
        Period::Week => (days + 3).saturating_sub((days + 3) % 7).saturating_sub(3),
        Period::Month => days.saturating_sub(Date::of(days).day - 1),
    };
    first * DAY_S
}

/// A day of the calendar.
struct Date {
    year: u64,
    month: u64,
    day: u64,
}

impl Date {
    /// So many days after the first one of 1970.
    fn of(days: u64) -> Self {
        // Years of 365.2425 days that begin in March: the leap day is the last one.
        let z = days + 719_468;
        let (era, of_era) = (z / 146_097, z % 146_097);
        let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year + year / 4 - year / 100);
        let from_march = (5 * of_year + 2) / 153;
        let day = of_year - (153 * from_march + 2) / 5 + 1;
        let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
        let year = year + era * 400 + u64::from(month <= 2);
        Self { year, month, day }
    }
}

/// Milliseconds since 1970 as people and programs read them: `2026-11-25T14:47:00.123Z`.
pub(super) struct Utc(pub u64);

impl core::fmt::Display for Utc {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let (days, ms) = (self.0 / 86_400_000, self.0 % 86_400_000);
        let (seconds, ms) = (ms / 1000, ms % 1000);
        let Date { year, month, day } = Date::of(days);
        let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_795_618_020_123, "2026-11-25T14:47:00.123Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(Utc(ms).to_string(), text);
        }
    }

    #[test]
    fn periods_begin_at_midnight_on_mondays_and_on_the_first() {
        let began = |period, ms: u64| Utc(began_s(period, ms / 1000) * 1000).to_string();
        // A Wednesday.
        let now_ms = 1_795_618_020_123;
        assert_eq!(began(Period::Day, now_ms), "2026-11-25T00:00:00.000Z");
        assert_eq!(began(Period::Week, now_ms), "2026-11-23T00:00:00.000Z");
        assert_eq!(began(Period::Month, now_ms), "2026-11-01T00:00:00.000Z");
        // The last second of a leap year's February.
        assert_eq!(began(Period::Month, 951_868_799_000), "2000-02-01T00:00:00.000Z");
        for period in Period::ALL {
            assert_eq!(began_s(period, 5), 0, "no period begins before 1970");
            let at_s = began_s(period, now_ms / 1000);
            assert_eq!(began_s(period, at_s), at_s);
            assert!(began_s(period, at_s - 1) < at_s);
        }
    }
}
