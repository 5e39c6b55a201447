//! Rates, sizes and times as people type them: `8M`, `8mbit`, `8 Mbit/s`; `64 KiB`, `512M`;
//! `500ms`, `1.5 h`.
//!
//! Whether letters are large or small makes no difference, and blanks before the unit are allowed.
//! Only `MB/s` is no rate: it would be bytes.
//! The number may be written as programs write it, `8e6`: no unit begins like that.
//! Rates go by powers of ten. Sizes go by powers of two where the unit says so (`KiB`) or is only a
//! letter (`512M`), and by powers of ten otherwise (`MB`).

use crate::time::Duration;

const RATES: [(&str, f64); 20] = [
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
    ("tbit/s", 1e12),
];
const KIB: f64 = 1024.0;
const SIZES: [(&str, f64); 13] = [
    ("b", 1.0),
    ("byte", 1.0),
    ("bytes", 1.0),
    ("k", KIB),
    ("kib", KIB),
    ("kb", 1e3),
    ("m", KIB * KIB),
    ("mib", KIB * KIB),
    ("mb", 1e6),
    ("g", KIB * KIB * KIB),
    ("gib", KIB * KIB * KIB),
    ("gb", 1e9),
    ("tib", KIB * KIB * KIB * KIB),
];
/// In nanoseconds.
const TIMES: [(&str, f64); 13] = [
    ("ns", 1.0),
    ("us", 1e3),
    ("µs", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("sec", 1e9),
    ("second", 1e9),
    ("seconds", 1e9),
    ("min", 60e9),
    ("h", 3600e9),
    ("hour", 3600e9),
    ("hours", 3600e9),
    ("d", 86_400e9),
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
    if text.contains("B/s") || text.contains("Bps") {
        return Err(format!("`{text}` is bytes per second; rates are in bits: 8 Mbit/s"));
    }
    whole(scaled(text, &RATES, (bare, 1.0))?, text)
}

/// A size, in bytes.
///
/// # Errors
/// What is wrong with the text.
pub fn size_bytes(text: &str, bare: Bare) -> Result<u64, String> {
    whole(scaled(text, &SIZES, (bare, 1.0))?, text)
}

/// A length of time, up to ten years.
///
/// # Errors
/// What is wrong with the text.
pub fn time(text: &str, bare: Bare) -> Result<Duration, String> {
    let ns = scaled(text, &TIMES, (bare, 1e9))?;
    if ns > TIME_MAX_NS {
        return Err(format!("`{text}` is more than ten years"));
    }
    Ok(Duration::from_nanos(ns.round() as u64))
}

fn scaled(text: &str, units: &[(&str, f64)], (bare, base): (Bare, f64)) -> Result<f64, String> {
    let text = text.trim();
    let (number, unit) = text.split_at(number_ends(text));
    let number: f64 = number.parse().map_err(|_| format!("`{text}` does not begin with a number"))?;
    let unit = match (unit.trim(), bare) {
        ("", Bare::Base) => return Ok(number * base),
        ("", Bare::Unit(meant)) => meant,
        ("", Bare::Refused) => return Err(format!("`{text}` needs a unit")),
        (said, _) => said,
    };
    let known = units.iter().find(|(name, _)| *name == unit.to_lowercase());
    known.map(|(_, factor)| number * factor).ok_or_else(|| format!("unknown unit `{unit}`"))
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
        for text in
            ["8M", "8mbit", "8 Mbit/s", "8Mbps", "8000k", "0.008 Gbit/s", " 8000000 bit/s ", "8e3 kbit/s"]
        {
            assert_eq!(rate_bps(text, Bare::Refused), Ok(8_000_000), "{text}");
        }
        for text in ["8000000", "8e6", "8E+6", "80000000e-1"] {
            assert_eq!(rate_bps(text, Bare::Base), Ok(8_000_000), "{text}");
        }
        for (text, wrong) in [
            ("8", "needs a unit"),
            ("8e6", "needs a unit"),
            ("8 Mbits", "unknown unit `Mbits`"),
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
        for (text, bytes) in
            [("512 MiB", 512 << 20), ("512M", 512 << 20), ("4 kB", 4_000), ("4KB", 4_000), ("64k", 65_536)]
        {
            assert_eq!(size_bytes(text, Bare::Refused), Ok(bytes), "{text}");
        }
        assert_eq!(size_bytes("1500", Bare::Base), Ok(1500));
        assert!(size_bytes("8 Mbit", Bare::Base).is_err());
    }

    #[test]
    fn times_have_units_down_to_the_nanosecond() {
        for (text, ns) in
            [("500ms", 500_000_000), ("1.5 h", 5_400_000_000_000), ("40 us", 40_000), ("7ns", 7)]
        {
            assert_eq!(time(text, Bare::Refused), Ok(Duration::from_nanos(ns)), "{text}");
        }
        assert_eq!(time("2", Bare::Base), Ok(Duration::from_secs(2)));
        assert_eq!(time("2.5", Bare::Unit("ms")), Ok(Duration::from_micros(2500)));
        assert_eq!(time("2 s", Bare::Unit("ms")), Ok(Duration::from_secs(2)));
        assert!(time("11 years", Bare::Base).is_err() && time("4000 d", Bare::Base).is_err());
    }
}
