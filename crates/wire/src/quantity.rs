//! Rates, sizes and times as people type them: `8M`, `8mbit`, `8 Mbit/s`; `64 KiB`, `512M`;
//! `500ms`, `1.5 h`, `1h30m`. docs/configuration.md says it to them ("How values are written").
//!
//! Whether letters are large or small makes no difference, and blanks before the unit are allowed.
//! Two things are refused, because they could be meant otherwise: `MB/s` as a rate, which would be
//! bytes, and `M` in a time, which is a month to some.
//!
//! The number may be written as programs write it, `8e6`: no unit begins like that.
//! Rates go by powers of ten unless the unit says otherwise (`Kibit/s`). Sizes go by powers of two
//! where the unit says so (`KiB`, `Ki`) or is only a letter (`512M`), by powers of ten otherwise.

use crate::time::Duration;

const KIB: f64 = 1024.0;
/// As [`spelt`] has them: small letters, no plural, `/s`.
const RATES: [(&str, f64); 28] = [
    ("bit/s", 1.0),
    ("bps", 1.0),
    ("bit", 1.0),
    ("b/s", 1.0),
    ("k", 1e3),
    ("kbit/s", 1e3),
    ("kbps", 1e3),
    ("kbit", 1e3),
    ("kb/s", 1e3),
    ("m", 1e6),
    ("mbit/s", 1e6),
    ("mbps", 1e6),
    ("mbit", 1e6),
    ("mb/s", 1e6),
    ("g", 1e9),
    ("gbit/s", 1e9),
    ("gbps", 1e9),
    ("gbit", 1e9),
    ("gb/s", 1e9),
    ("t", 1e12),
    ("tbit/s", 1e12),
    ("tbps", 1e12),
    ("kibit", KIB),
    ("kibit/s", KIB),
    ("mibit", KIB * KIB),
    ("mibit/s", KIB * KIB),
    ("gibit", KIB * KIB * KIB),
    ("gibit/s", KIB * KIB * KIB),
];
const SIZES: [(&str, f64); 21] = [
    ("b", 1.0),
    ("byte", 1.0),
    ("k", KIB),
    ("ki", KIB),
    ("kib", KIB),
    ("kb", 1e3),
    ("kbyte", 1e3),
    ("m", KIB * KIB),
    ("mi", KIB * KIB),
    ("mib", KIB * KIB),
    ("mb", 1e6),
    ("mbyte", 1e6),
    ("g", KIB * KIB * KIB),
    ("gi", KIB * KIB * KIB),
    ("gib", KIB * KIB * KIB),
    ("gb", 1e9),
    ("gbyte", 1e9),
    ("t", KIB * KIB * KIB * KIB),
    ("ti", KIB * KIB * KIB * KIB),
    ("tib", KIB * KIB * KIB * KIB),
    ("tb", 1e12),
];
/// In nanoseconds.
const TIMES: [(&str, f64); 22] = [
    ("ns", 1.0),
    ("nsec", 1.0),
    ("us", 1e3),
    ("µs", 1e3),
    ("usec", 1e3),
    ("ms", 1e6),
    ("msec", 1e6),
    ("millisecond", 1e6),
    ("s", 1e9),
    ("sec", 1e9),
    ("second", 1e9),
    ("m", 60e9),
    ("min", 60e9),
    ("minute", 60e9),
    ("h", 3600e9),
    ("hr", 3600e9),
    ("hour", 3600e9),
    ("d", 86_400e9),
    ("day", 86_400e9),
    ("w", 604_800e9),
    ("wk", 604_800e9),
    ("week", 604_800e9),
];
/// Times end here, nanoseconds: ten years.
const TIME_MAX_NS: f64 = 3650.0 * 86_400e9;
/// From here on a float no longer counts in ones.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;

/// What a number without a unit means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bare {
    /// The base unit: bits per second, bytes, seconds.
    Base,
    /// This unit, one of those that may be written.
    Unit(&'static str),
    /// Nothing: it is an error.
    Refused,
}

/// A rate, in bits per second.
///
/// # Errors
/// What is wrong with the text.
pub fn rate_bps(text: &str, bare: Bare) -> Result<u64, String> {
    if text.contains("B/s") || text.contains("Bps") || text.to_lowercase().contains("byte") {
        return Err(format!("`{text}` is bytes per second; rates are in bits: 8 Mbit/s"));
    }
    whole(alone(text, &RATES, (bare, 1.0))?, text)
}

/// A size, in bytes.
///
/// # Errors
/// What is wrong with the text.
pub fn size_bytes(text: &str, bare: Bare) -> Result<u64, String> {
    whole(alone(text, &SIZES, (bare, 1.0))?, text)
}

/// A length of time, up to ten years. It may have parts: `1h30m`.
///
/// # Errors
/// What is wrong with the text.
pub fn time(text: &str, bare: Bare) -> Result<Duration, String> {
    let mut ns = 0.0;
    let (mut rest, mut bare) = (text.trim(), bare);
    loop {
        let (number, behind) = rest.split_at(number_ends(rest));
        let unit_ends = behind.find(|c: char| c.is_ascii_digit()).unwrap_or(behind.len());
        let (unit, next) = behind.split_at(unit_ends);
        if !next.is_empty() {
            // Of several parts each says what it is.
            bare = Bare::Refused;
        }
        if unit.trim() == "M" {
            return Err(format!("`{text}` could be minutes or months; minutes are `min` or `m`"));
        }
        ns += scaled(text, (number, unit), &TIMES, (bare, 1e9))?;
        if next.is_empty() {
            break;
        }
        rest = next;
    }
    if ns > TIME_MAX_NS {
        return Err(format!("`{text}` is more than ten years"));
    }
    Ok(Duration::from_nanos(ns.round() as u64))
}

/// A number, and its unit to the end.
fn alone(text: &str, units: &[(&str, f64)], bare: (Bare, f64)) -> Result<f64, String> {
    let trimmed = text.trim();
    scaled(text, trimmed.split_at(number_ends(trimmed)), units, bare)
}

fn scaled(
    text: &str,
    (number, unit): (&str, &str),
    units: &[(&str, f64)],
    (bare, base): (Bare, f64),
) -> Result<f64, String> {
    let text = text.trim();
    let number: f64 = number.parse().map_err(|_| format!("`{text}` does not begin with a number"))?;
    let unit = match (unit.trim(), bare) {
        ("", Bare::Base) => return Ok(number * base),
        ("", Bare::Unit(meant)) => meant,
        ("", Bare::Refused) => return Err(format!("`{text}` needs a unit")),
        (said, _) if said.starts_with(',') => {
            return Err(format!("`{text}` has a comma; fractions have a point: 1.5"));
        }
        (said, _) => said,
    };
    let spelt = spelt(unit);
    let known = units.iter().find(|(name, _)| *name == spelt);
    known.map(|(_, factor)| number * factor).ok_or_else(|| format!("unknown unit `{unit}`"))
}

/// A unit in the one spelling that the tables have: small letters, one bit, `/s`.
fn spelt(unit: &str) -> String {
    let unit: String = unit.to_lowercase().chars().filter(|c| !c.is_whitespace()).collect();
    let (what, per) = match unit.split_once('/') {
        Some((what, "s" | "sec" | "second")) => (what, "/s"),
        _ => (unit.as_str(), ""),
    };
    // `ms`, `us` and `bps` are no plurals.
    let is_plural =
        ["bits", "bytes", "secs", "seconds", "minutes", "mins", "hrs", "hours", "days", "weeks", "wks"];
    let one = is_plural.iter().any(|plural| what.ends_with(plural));
    let what = what.strip_suffix('s').filter(|_| one).unwrap_or(what);
    format!("{what}{per}")
}

/// Where the number at the beginning ends: `8`, `1.5`, `8e6`, `1e-3`.
fn number_ends(text: &str) -> usize {
    let rest = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let mantissa_ends = text.len() - rest.len();
    let Some(exponent) = rest.strip_prefix(['e', 'E']) else { return mantissa_ends };
    let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    match digits.trim_start_matches(|c: char| c.is_ascii_digit()) {
        rest if rest.len() == digits.len() => mantissa_ends,
        rest => text.len() - rest.len(),
    }
}

fn whole(number: f64, text: &str) -> Result<u64, String> {
    if number > 0.0 && number < 0.5 {
        Err(format!("`{text}` is less than one"))
    } else if (0.0..=WHOLE_MAX).contains(&number) {
        Ok(number.round() as u64)
    } else {
        Err(format!("`{text}` is too large"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_as_people_type_them() {
        for text in [
            "8M",
            "8mbit",
            "8 Mbit/s",
            "8Mbps",
            "8 Mbits",
            "8 Mbits/s",
            "8 Mbit/sec",
            "8 MBIT / S",
            "8000k",
            "0.008 Gbit/s",
            " 8000000 bit/s ",
            "8e3 kbit/s",
            "7812.5 Kibit/s",
            "0.000008T",
        ] {
            assert_eq!(rate_bps(text, Bare::Refused), Ok(8_000_000), "{text}");
        }
        for text in ["8000000", "8e6", "8E+6", "80000000e-1"] {
            assert_eq!(rate_bps(text, Bare::Base), Ok(8_000_000), "{text}");
        }
        for (text, wrong) in [
            ("8", "needs a unit"),
            ("8e6", "needs a unit"),
            ("8 Mbaud", "unknown unit `Mbaud`"),
            ("8 Mbit/min", "unknown unit `Mbit/min`"),
            ("1,5 Mbit/s", "has a comma; fractions have a point: 1.5"),
            ("8 MBytes/s", "bytes per second"),
            ("8M 5M", "unknown unit `M 5M`"),
            ("fast", "does not begin with a number"),
            ("-8M", "does not begin with a number"),
            ("8 MB/s", "bytes per second"),
            ("8MBps", "bytes per second"),
            ("8e-6 bit/s", "less than one"),
            ("1e9 Gbit/s", "too large"),
            ("1e999 bit/s", "too large"),
            ("8 e6", "unknown unit `e6`"),
            ("8e", "unknown unit `e`"),
            ("8e-", "unknown unit `e-`"),
            ("1.2.3M", "does not begin with a number"),
            ("99999999999999 Gbit/s", "too large"),
            ("", "does not begin with a number"),
        ] {
            let said = rate_bps(text, Bare::Refused).unwrap_err();
            assert!(said.contains(wrong), "{text}: {said}");
        }
    }

    #[test]
    fn sizes_go_by_two_or_by_ten() {
        for (text, bytes) in [
            ("512 MiB", 512 << 20),
            ("512M", 512 << 20),
            ("512Mi", 512 << 20),
            ("4 kB", 4_000),
            ("4KB", 4_000),
            ("4 kbytes", 4_000),
            ("1 byte", 1),
            ("20 bytes", 20),
            ("64k", 65_536),
            ("1T", 1 << 40),
            ("1 TB", 1_000_000_000_000),
        ] {
            assert_eq!(size_bytes(text, Bare::Refused), Ok(bytes), "{text}");
        }
        assert_eq!(size_bytes("1500", Bare::Base), Ok(1500));
        assert!(size_bytes("8 Mbit", Bare::Base).is_err());
    }

    #[test]
    fn times_have_units_down_to_the_nanosecond() {
        for (text, ns) in [
            ("500ms", 500_000_000),
            ("0.5s", 500_000_000),
            ("500 milliseconds", 500_000_000),
            ("1.5 h", 5_400_000_000_000),
            ("1h30m", 5_400_000_000_000),
            ("1 hour 30 minutes", 5_400_000_000_000),
            ("90 mins", 5_400_000_000_000),
            ("2min 30.5s", 150_500_000_000),
            ("1 day", 86_400_000_000_000),
            ("1w", 604_800_000_000_000),
            ("40 us", 40_000),
            ("40 usec", 40_000),
            ("7ns", 7),
        ] {
            assert_eq!(time(text, Bare::Refused), Ok(Duration::from_nanos(ns)), "{text}");
        }
        assert_eq!(time("2", Bare::Base), Ok(Duration::from_secs(2)));
        assert_eq!(time("2.5", Bare::Unit("ms")), Ok(Duration::from_micros(2500)));
        assert_eq!(time("2 s", Bare::Unit("ms")), Ok(Duration::from_secs(2)));
        for (text, wrong) in [
            ("11 years", "unknown unit `years`"),
            ("4000 d", "more than ten years"),
            ("5 M", "minutes or months"),
            ("1h 30", "needs a unit"),
            ("30 1h", "needs a unit"),
            ("1,5 s", "has a comma"),
            ("h", "does not begin with a number"),
            ("5 s of it", "unknown unit `s of it`"),
        ] {
            let said = time(text, Bare::Base).unwrap_err();
            assert!(said.contains(wrong), "{text}: {said}");
        }
    }
}
