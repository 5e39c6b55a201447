//! Values whose key names their unit, such as `rtt_ms`: a number of it, or text with a unit of its
//! own.

use std::fmt;
use std::marker::PhantomData;

use farlink_wire::quantity::{self, Bare};
use serde::de::{self, Deserialize, Deserializer, Visitor};

/// What a key ends with.
pub trait Unit {
    /// Its name, and what text may say.
    const ALLOWED: (&'static str, &'static str);
    /// Text with a unit, in this one; rounded to a whole number.
    fn read(text: &str) -> Result<u64, String>;
}

/// `_ms`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ms;
/// `_bps`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bps;
/// `_bytes`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes;

impl Unit for Ms {
    const ALLOWED: (&'static str, &'static str) = ("ms", "a time such as \"500 ms\" or \"0.5s\"");
    fn read(text: &str) -> Result<u64, String> {
        let ns = quantity::time(text, Bare::Refused)?.as_nanos();
        Ok(u64::try_from((ns + 500_000) / 1_000_000).unwrap_or(u64::MAX))
    }
}

impl Unit for Bps {
    const ALLOWED: (&'static str, &'static str) = ("bit/s", "a rate such as \"8 Mbit/s\" or \"8M\"");
    fn read(text: &str) -> Result<u64, String> {
        quantity::rate_bps(text, Bare::Refused)
    }
}

impl Unit for Bytes {
    const ALLOWED: (&'static str, &'static str) = ("bytes", "a size such as \"4 KiB\"");
    fn read(text: &str) -> Result<u64, String> {
        quantity::size_bytes(text, Bare::Refused)
    }
}

/// A whole number of a unit, from `MIN` to `MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct In<U, const MIN: u64, const MAX: u64>(pub u64, PhantomData<U>);

/// What is allowed, for whoever has written something else.
struct Allowed<U, const MIN: u64, const MAX: u64>(PhantomData<U>);

impl<U: Unit, const MIN: u64, const MAX: u64> fmt::Display for Allowed<U, MIN, MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, text) = U::ALLOWED;
        write!(f, "{MIN} to {MAX} {unit} as a whole number, or {text}")
    }
}

impl<U: Unit, const MIN: u64, const MAX: u64> In<U, MIN, MAX> {
    fn checked(number: u64, said: &dyn fmt::Display) -> Result<Self, String> {
        let inside = Some(number).filter(|n| (MIN..=MAX).contains(n));
        let outside = || format!("{said} is out of range; allowed: {}", Allowed::<U, MIN, MAX>(PhantomData));
        inside.map(|n| Self(n, PhantomData)).ok_or_else(outside)
    }
    fn of_text(text: &str) -> Result<Self, String> {
        let refuse = |wrong| format!("{wrong}; allowed: {}", Allowed::<U, MIN, MAX>(PhantomData));
        Self::checked(U::read(text).map_err(refuse)?, &format_args!("`{text}`"))
    }
}

impl<U: Unit, const MIN: u64, const MAX: u64> Visitor<'_> for Allowed<U, MIN, MAX> {
    type Value = In<U, MIN, MAX>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Self::Value, E> {
        // What is negative is out of range, too: no unit goes so far.
        Self::Value::checked(u64::try_from(number).unwrap_or(u64::MAX), &number).map_err(E::custom)
    }
    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        Self::Value::of_text(text).map_err(E::custom)
    }
}

impl<'de, U: Unit, const MIN: u64, const MAX: u64> Deserialize<'de> for In<U, MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(Allowed(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::{refused, settings};

    #[derive(serde::Deserialize, Debug)]
    struct Keys {
        rtt_ms: Option<In<Ms, 1, 600_000>>,
        rate_bps: Option<In<Bps, 1, 1_000_000_000>>,
        overhead_bytes: Option<In<Bytes, 0, 1024>>,
    }

    #[test]
    fn a_number_is_of_the_keys_unit_and_text_has_its_own() {
        for (text, ms) in
            [("500", 500), ("'500 ms'", 500), ("'0.5s'", 500), ("'1min'", 60_000), ("'1.6 ms'", 2)]
        {
            let keys: Keys = toml::from_str(&format!("rtt_ms = {text}")).unwrap();
            assert_eq!(keys.rtt_ms.map(|t| t.0), Some(ms), "{text}");
        }
        let keys: Keys = toml::from_str("rate_bps = '8M'\noverhead_bytes = '1 KiB'").unwrap();
        assert_eq!((keys.rate_bps.unwrap().0, keys.overhead_bytes.unwrap().0), (8_000_000, 1024));
    }

    #[test]
    fn what_is_wrong_is_said_with_what_is_allowed() {
        for (text, wrong) in [
            ("rtt_ms = 0", "0 is out of range; allowed: 1 to 600000 ms as a whole number, or a time such as"),
            ("rtt_ms = -5", "-5 is out of range"),
            ("rtt_ms = '0.2 ms'", "`0.2 ms` is out of range"),
            ("rtt_ms = '500'", "`500` needs a unit; allowed: 1 to 600000 ms"),
            ("rtt_ms = 0.5", "1 to 600000 ms as a whole number"),
            ("rate_bps = '8 MB/s'", "bytes per second"),
            ("overhead_bytes = '2 KiB'", "`2 KiB` is out of range; allowed: 0 to 1024 bytes"),
        ] {
            let said = toml::from_str::<Keys>(text).unwrap_err().to_string();
            assert!(said.contains(wrong), "{text}: {said}");
        }
    }

    #[test]
    fn a_budget_is_a_size_and_a_period() {
        let of = |text: &str| {
            let settings = settings(&format!("[[link]]\ninterface='sat0'\nbudget='{text}'")).unwrap();
            let budget =
                settings.gateway.interfaces.iter().find_map(|i| i.link.as_ref()?.byte_budget).unwrap();
            (budget.bytes, budget.period.name())
        };
        assert_eq!(of("20 GB/month"), (20_000_000_000, "month"));
        assert_eq!(of("500MiB / day"), (500 << 20, "day"));
        assert_eq!(of("1.5 TB/week"), (1_500_000_000_000, "week"));
        for (wrong, said) in [
            ("20 GB", "does not say for how long"),
            ("20 GB/year", "`year` is no period"),
            ("20/month", "unit"),
            ("0 B/day", "is no budget"),
            ("/day", "3:8"),
        ] {
            let refused = refused(&format!("[[link]]\ninterface='sat0'\nbudget='{wrong}'"));
            assert!(refused.contains(said) && refused.contains("allowed: a size"), "{refused}");
        }
    }
}
