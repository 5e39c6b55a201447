//! Single values of the configuration file: rates, sizes, durations, prefixes, ports, DSCPs,
//! protocols. Each
//! reads what a person writes and, when it cannot, says what is allowed.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use farlink_gateway::config::{ByteBudget, InitialWindow, Period};
use farlink_linux::driver::LogTarget;
use farlink_wire::quantity::{self, Bare};
use serde::de::{self, Deserialize, Deserializer, Visitor};

/// A rate in bits per second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate(pub u64);

/// What the command line says of a link: the rate out of its interface, and, after a `/`, the one
/// in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rates {
    /// What leaves by the interface.
    pub out: Rate,
    /// What comes in by it; `None`: nobody has said it.
    pub back: Option<Rate>,
}

/// The rate of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkRate {
    /// It is to be found out.
    Auto,
    /// The operator says it, in bits per second.
    Declared(u64),
}

/// A size in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size(pub u64);

/// A length of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Time(pub Duration);

/// An address prefix; a bare address is a host prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prefix(pub IpAddr, pub u8);

/// Ports from the first to the second, both included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ports(pub u16, pub u16);

/// A DSCP code point, 0 to 63.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dscp(pub u8);

/// An IP protocol number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Protocol(pub u8);

/// How large segments into a link are: as its other direction needs, no larger than a packet, or so
/// many bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Oversize {
    Auto,
    Off,
    Bytes(u32),
}

/// A group of interfaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Group(pub u32);

/// Where the names of groups stand.
const GROUP_FILES: [&str; 2] = ["/etc/iproute2/group", "/usr/share/iproute2/group"];

/// Where lines about connections go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogTo(pub LogTarget);

/// Where something is kept over a restart; `None`: nowhere.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeptIn(pub Option<PathBuf>);

/// So many bytes in a day, a week or a month.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget(pub ByteBudget);

/// How a gateway calls itself: eight hexadecimal digits, not all of them 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GatewayId(pub u32);

/// A whole number from `MIN` to `MAX`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Number<const MIN: u64, const MAX: u64>(pub u64);

/// An initial window: segments from 1 to `MAX`, or by what is known of the path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Segments<const MAX: u32> {
    Auto,
    Count(u32),
}

impl<const MAX: u32> Segments<MAX> {
    /// The same as the engine has it.
    pub fn window(self) -> InitialWindow {
        match self {
            Self::Auto => InitialWindow::AUTO,
            Self::Count(n) => InitialWindow::fixed(n),
        }
    }
}

/// A value that stands in the file as text or as a whole number.
trait Value: Sized {
    const ALLOWED: &'static str;
    /// Reads text; the error says only what is wrong.
    fn from_text(text: &str) -> Result<Self, String>;
    /// Reads a whole number.
    fn from_number(number: i64) -> Result<Self, String> {
        Err(format!("the number {number} needs a unit"))
    }
}

struct ValueVisitor<T>(std::marker::PhantomData<T>);

impl<T: Value> Visitor<'_> for ValueVisitor<T> {
    type Value = T;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::ALLOWED)
    }
    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        T::from_text(text).map_err(|wrong| E::custom(format_args!("{wrong}; allowed: {}", T::ALLOWED)))
    }
    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        T::from_number(number).map_err(|wrong| E::custom(format_args!("{wrong}; allowed: {}", T::ALLOWED)))
    }
    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        self.visit_i64(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

macro_rules! value {
    ($($type:ty)*) => {$(
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                d.deserialize_any(ValueVisitor(std::marker::PhantomData))
            }
        }
        impl FromStr for $type {
            type Err = String;
            fn from_str(text: &str) -> Result<Self, String> {
                Self::from_text(text).map_err(|wrong| format!("{wrong}; allowed: {}", Self::ALLOWED))
            }
        }
    )*};
}
value!(Rate LinkRate Size Time Prefix Ports Dscp Protocol GatewayId Group Oversize LogTo KeptIn Budget);

impl Value for Group {
    const ALLOWED: &'static str = "a number, or a name that stands in /etc/iproute2/group";
    fn from_text(text: &str) -> Result<Self, String> {
        if let Ok(number) = text.trim().parse() {
            return Ok(Self(number));
        }
        let known = GROUP_FILES.iter().filter_map(|file| std::fs::read_to_string(file).ok());
        let number = known.into_iter().find_map(|names| group_in(&names, text));
        number.map(Self).ok_or_else(|| format!("no group of interfaces is called `{text}`"))
    }
    fn from_number(number: i64) -> Result<Self, String> {
        u32::try_from(number).map(Self).map_err(|_| format!("{number} is no group of interfaces"))
    }
}

/// The number of a group in the text of such a file.
fn group_in(names: &str, wanted: &str) -> Option<u32> {
    names.lines().find_map(|line| {
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        let (number, name) = (words.next()?, words.next()?);
        let hexadecimal = number.strip_prefix("0x").map(|digits| u32::from_str_radix(digits, 16));
        (name == wanted).then(|| hexadecimal.unwrap_or_else(|| number.parse()).ok()).flatten()
    })
}

impl Value for Rate {
    const ALLOWED: &'static str =
        "a rate above zero such as \"384 kbit/s\", \"8 Mbit/s\", \"8M\" or \"1.5 Gbit/s\"";
    fn from_text(text: &str) -> Result<Self, String> {
        match quantity::rate_bps(text, Bare::Refused)? {
            0 => Err("a link of rate zero carries nothing".to_owned()),
            rate => Ok(Self(rate)),
        }
    }
    fn from_number(number: i64) -> Result<Self, String> {
        Err(format!("the number {number} has no unit (the key `rate_bps` takes plain bit/s)"))
    }
}

impl FromStr for Rates {
    type Err = String;
    /// Units have strokes, too ("8 Mbit/s / 32 kbit/s"): it is the stroke that has a rate on both
    /// sides.
    fn from_str(text: &str) -> Result<Self, String> {
        let whole = match Rate::from_text(text) {
            Ok(out) => return Ok(Self { out, back: None }),
            Err(wrong) => wrong,
        };
        let halves = text.match_indices('/').map(|(at, stroke)| (&text[..at], &text[at + stroke.len()..]));
        let mut wrong = whole;
        for (out, back) in halves {
            match (Rate::from_text(out.trim()), Rate::from_text(back.trim())) {
                (Ok(out), Ok(back)) => return Ok(Self { out, back: Some(back) }),
                (Ok(_), Err(of_back)) => wrong = format!("of the rate in: {of_back}"),
                (Err(of_out), Ok(_)) => wrong = format!("of the rate out: {of_out}"),
                (Err(_), Err(_)) => {}
            }
        }
        Err(format!("{wrong}; allowed: {}, or two of them, out and in, such as \"8M/32k\"", Rate::ALLOWED))
    }
}

impl Value for LinkRate {
    const ALLOWED: &'static str =
        "a rate above zero such as \"384 kbit/s\", \"8 Mbit/s\", \"8M\" or \"1.5 Gbit/s\", or \"auto\"";
    fn from_text(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            _ => Rate::from_text(text).map(|rate| Self::Declared(rate.0)),
        }
    }
    fn from_number(number: i64) -> Result<Self, String> {
        Rate::from_number(number).map(|rate| Self::Declared(rate.0))
    }
}

impl Value for Oversize {
    const ALLOWED: &'static str = "\"auto\", \"off\", or bytes from 2000 to 65000";
    fn from_text(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            _ => match quantity::size_bytes(text, Bare::Refused) {
                Ok(bytes) => Self::from_number(i64::try_from(bytes).unwrap_or(i64::MAX)),
                Err(_) => Err(format!("`{text}` is no size of a segment")),
            },
        }
    }
    fn from_number(number: i64) -> Result<Self, String> {
        match u32::try_from(number) {
            Ok(bytes @ 2_000..=65_000) => Ok(Self::Bytes(bytes)),
            _ => Err(format!("{number} is no size of a segment")),
        }
    }
}

impl Value for LogTo {
    const ALLOWED: &'static str =
        "\"stderr\", or the path of a file from the root, such as \"/var/log/farlink/connections.log\"";
    fn from_text(text: &str) -> Result<Self, String> {
        match text {
            "stderr" => Ok(Self(LogTarget::Stderr)),
            path if path.starts_with('/') && !path.ends_with('/') => Ok(Self(LogTarget::File(path.into()))),
            _ => Err(format!("`{text}` is no file")),
        }
    }
    fn from_number(number: i64) -> Result<Self, String> {
        Err(format!("{number} is no file"))
    }
}

impl Value for KeptIn {
    const ALLOWED: &'static str =
        "\"off\", or the path of a file from the root, such as \"/var/lib/farlink/found.json\"";
    fn from_text(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self(None)),
            path if path.starts_with('/') && !path.ends_with('/') => Ok(Self(Some(path.into()))),
            _ => Err(format!("`{text}` is no file")),
        }
    }
    fn from_number(number: i64) -> Result<Self, String> {
        Err(format!("{number} is no file"))
    }
}

impl Value for Size {
    const ALLOWED: &'static str =
        "bytes as a whole number, or a size such as \"64 KiB\", \"512 MiB\" or \"2 GiB\"";
    fn from_text(text: &str) -> Result<Self, String> {
        quantity::size_bytes(text, Bare::Refused).map(Self)
    }
    fn from_number(number: i64) -> Result<Self, String> {
        u64::try_from(number).map(Self).map_err(|_| format!("{number} is negative"))
    }
}

impl Value for Budget {
    const ALLOWED: &'static str =
        "a size with its unit and `day`, `week` or `month`, such as \"20 GB/month\" or \"500 MB/day\"";
    fn from_text(text: &str) -> Result<Self, String> {
        let no_period = || format!("`{text}` does not say for how long");
        let (size, period) = text.split_once('/').ok_or_else(no_period)?;
        let known = Period::ALL.into_iter().find(|known| known.name() == period.trim());
        let period = known.ok_or_else(|| format!("`{}` is no period", period.trim()))?;
        match quantity::size_bytes(size, Bare::Refused)? {
            0 => Err(format!("`{text}` is no budget")),
            bytes => Ok(Self(ByteBudget { bytes, period })),
        }
    }
}

impl Value for Time {
    const ALLOWED: &'static str =
        "a time above zero with its unit, such as \"40 ms\", \"30 s\", \"15 min\" or \"24 h\"";
    fn from_text(text: &str) -> Result<Self, String> {
        match quantity::time(text, Bare::Refused)? {
            Duration::ZERO => Err(format!("`{text}` is no time that passes")),
            time => Ok(Self(time)),
        }
    }
}

impl Value for Prefix {
    const ALLOWED: &'static str =
        "an address or prefix such as \"192.0.2.7\", \"10.0.0.0/8\" or \"2001:db8::/32\"";
    fn from_text(text: &str) -> Result<Self, String> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| format!("`{address}` is not an IP address"))?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let length =
            match length {
                None => bits,
                Some(length) => length.parse().ok().filter(|length| *length <= bits).ok_or_else(|| {
                    format!("`/{length}` is not a prefix length of an address of {bits} bits")
                })?,
            };
        let host_bits = match address {
            IpAddr::V4(a) => u32::from(a).checked_shl(u32::from(length)).unwrap_or(0) != 0,
            IpAddr::V6(a) => u128::from(a).checked_shl(u32::from(length)).unwrap_or(0) != 0,
        };
        if host_bits {
            return Err(format!("`{text}` has bits set behind the prefix"));
        }
        Ok(Self(address, length))
    }
    fn from_number(number: i64) -> Result<Self, String> {
        Err(format!("{number} is not an address"))
    }
}

/// Names of ports that are known without `/etc/services`.
const PORT_NAMES: &[(&str, u16)] = &[
    ("ftp-data", 20),
    ("ftp", 21),
    ("ssh", 22),
    ("telnet", 23),
    ("smtp", 25),
    ("domain", 53),
    ("http", 80),
    ("pop3", 110),
    ("imap", 143),
    ("ldap", 389),
    ("https", 443),
    ("microsoft-ds", 445),
    ("submission", 587),
    ("rsync", 873),
    ("imaps", 993),
    ("nfs", 2049),
    ("mysql", 3306),
    ("ms-wbt-server", 3389),
    ("postgresql", 5432),
];

fn port_by_name(name: &str) -> Option<u16> {
    if let Some((_, port)) = PORT_NAMES.iter().find(|(known, _)| *known == name) {
        return Some(*port);
    }
    std::fs::read_to_string("/etc/services").ok()?.lines().find_map(|line| {
        let mut words = line.split('#').next()?.split_whitespace();
        let (service, port) = (words.next()?, words.next()?);
        let number = port.strip_suffix("/tcp")?;
        (service == name || words.any(|alias| alias == name)).then(|| number.parse().ok())?
    })
}

fn port_number(text: &str) -> Result<u16, String> {
    match text.trim().parse::<u16>() {
        Ok(0) | Err(_) => Err(format!("`{}` is not a port", text.trim())),
        Ok(port) => Ok(port),
    }
}

impl Value for Ports {
    const ALLOWED: &'static str =
        "a port (1 to 65535), a range such as \"6000-6010\", or a service name such as \"ssh\"";
    fn from_text(text: &str) -> Result<Self, String> {
        if text.starts_with(|c: char| c.is_ascii_digit()) {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            let (first, last) = (port_number(first)?, port_number(last)?);
            return if first <= last {
                Ok(Self(first, last))
            } else {
                Err(format!("`{text}` runs backwards"))
            };
        }
        port_by_name(text)
            .map(|port| Self(port, port))
            .ok_or_else(|| format!("no TCP service is called `{text}`"))
    }
    fn from_number(number: i64) -> Result<Self, String> {
        port_number(&number.to_string()).map(|port| Self(port, port))
    }
}

impl Value for GatewayId {
    const ALLOWED: &'static str = "eight hexadecimal digits as text, not all of them 0, such as \"5eed0001\"";
    fn from_text(text: &str) -> Result<Self, String> {
        let digits = text.len() == 8 && text.bytes().all(|b| b.is_ascii_hexdigit());
        let id = u32::from_str_radix(text, 16).ok().filter(|id| digits && *id != 0);
        id.map(Self).ok_or_else(|| format!("`{text}` is not how a gateway calls itself"))
    }
    fn from_number(number: i64) -> Result<Self, String> {
        Err(format!("the number {number} is no text"))
    }
}

impl Value for Dscp {
    const ALLOWED: &'static str = "a number from 0 to 63, or one of ef, va, le, cs0 to cs7, af11 to af43";
    fn from_text(text: &str) -> Result<Self, String> {
        let unknown = || format!("`{text}` is not a DSCP");
        let digit = |i: usize, max: u8| {
            let value = text.as_bytes().get(i).map(|b| b.wrapping_sub(b'0')).filter(|v| *v <= max);
            value.ok_or_else(unknown)
        };
        match (text, text.len()) {
            ("ef", _) => Ok(Self(46)),
            ("va", _) => Ok(Self(44)),
            ("le", _) => Ok(Self(1)),
            (_, 3) if text.starts_with("cs") => Ok(Self(digit(2, 7)? * 8)),
            // RFC 2597: class x, drop precedence y is 8x + 2y.
            (_, 4) if text.starts_with("af") && !text.contains('0') => {
                Ok(Self(digit(2, 4)? * 8 + digit(3, 3)? * 2))
            }
            _ => text.parse().ok().filter(|d| *d < 64).map(Self).ok_or_else(unknown),
        }
    }
    fn from_number(number: i64) -> Result<Self, String> {
        u8::try_from(number)
            .ok()
            .filter(|d| *d < 64)
            .map(Self)
            .ok_or_else(|| format!("{number} is not a DSCP"))
    }
}

impl Value for Protocol {
    const ALLOWED: &'static str =
        "a number from 0 to 255, or one of icmp, icmpv6, tcp, udp, dccp, sctp, udplite, gre, esp, ah";
    fn from_text(text: &str) -> Result<Self, String> {
        // IANA, Assigned Internet Protocol Numbers.
        Ok(Self(match text {
            "icmp" => 1,
            "tcp" => 6,
            "udp" => 17,
            "dccp" => 33,
            "gre" => 47,
            "esp" => 50,
            "ah" => 51,
            "icmpv6" => 58,
            "sctp" => 132,
            "udplite" => 136,
            _ => return text.parse().map(Self).map_err(|_| format!("`{text}` is not an IP protocol")),
        }))
    }
    fn from_number(number: i64) -> Result<Self, String> {
        u8::try_from(number).map(Self).map_err(|_| format!("{number} is not an IP protocol"))
    }
}

impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for Number<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct NumberVisitor<const MIN: u64, const MAX: u64>;
        impl<const MIN: u64, const MAX: u64> Visitor<'_> for NumberVisitor<MIN, MAX> {
            type Value = Number<MIN, MAX>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a whole number from {MIN} to {MAX}")
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Self::Value, E> {
                let inside = u64::try_from(number).ok().filter(|n| (MIN..=MAX).contains(n));
                let outside = || {
                    E::custom(format_args!(
                        "{number} is out of range; allowed: a whole number from {MIN} to {MAX}"
                    ))
                };
                inside.map(Number).ok_or_else(outside)
            }
        }
        d.deserialize_any(NumberVisitor)
    }
}

impl<'de, const MAX: u32> Deserialize<'de> for Segments<MAX> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct SegmentsVisitor<const MAX: u32>;
        impl<const MAX: u32> SegmentsVisitor<MAX> {
            fn wrong<E: de::Error>(said: impl fmt::Display) -> E {
                E::custom(format_args!("{said}; allowed: a whole number from 1 to {MAX}, or \"auto\""))
            }
        }
        impl<const MAX: u32> Visitor<'_> for SegmentsVisitor<MAX> {
            type Value = Segments<MAX>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a whole number from 1 to {MAX}, or \"auto\"")
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Self::Value, E> {
                let count = u32::try_from(number).ok().filter(|n| (1..=MAX).contains(n));
                let outside = || Self::wrong(format_args!("{number} is out of range"));
                count.map(Segments::Count).ok_or_else(outside)
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                match text {
                    "auto" => Ok(Segments::Auto),
                    _ => Err(Self::wrong(format_args!("unknown value `{text}`"))),
                }
            }
        }
        d.deserialize_any(SegmentsVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_sizes_and_times_read_as_written() {
        assert_eq!("8 Mbit/s".parse(), Ok(Rate(8_000_000)));
        assert_eq!("1.5Gbit/s".parse(), Ok(Rate(1_500_000_000)));
        assert_eq!("9600 bit/s".parse(), Ok(Rate(9600)));
        assert_eq!("512 MiB".parse(), Ok(Size(512 << 20)));
        assert_eq!("4 kB".parse(), Ok(Size(4000)));
        assert_eq!("40 ms".parse(), Ok(Time(Duration::from_millis(40))));
        assert_eq!("24 h".parse(), Ok(Time(Duration::from_secs(86400))));
    }

    #[test]
    fn what_is_wrong_is_said_with_what_is_allowed() {
        for (text, wrong) in [
            ("8 Mbaud", "unknown unit `Mbaud`; allowed: a rate"),
            ("fast", "does not begin with a number"),
            ("8", "needs a unit"),
            ("0 Mbit/s", "carries nothing"),
            ("1e9 Gbit/s", "too large"),
            ("99999999999999 Gbit/s", "too large"),
        ] {
            let said = text.parse::<Rate>().unwrap_err();
            assert!(said.contains(wrong) && said.contains("allowed: "), "{text}: {said}");
        }
        assert!("0 s".parse::<Time>().is_err() && "30".parse::<Time>().is_err());
    }

    #[test]
    fn a_stroke_stands_between_the_rate_out_and_the_rate_in() {
        let rates = |out, back: Option<u64>| Ok(Rates { out: Rate(out), back: back.map(Rate) });
        for both in ["8M/32k", "8 Mbit/s/32 kbit/s", "8 Mbit/s / 32k", "8mbit/0.032 Mbit/s"] {
            assert_eq!(both.parse(), rates(8_000_000, Some(32_000)), "{both}");
        }
        assert_eq!("8 Mbit/s".parse(), rates(8_000_000, None));
        for (text, wrong) in [
            ("8M/", "of the rate in: "),
            ("8M/0k", "of the rate in: a link of rate zero carries nothing"),
            ("8M/32", "of the rate in: `32` needs a unit"),
            ("fast/32k", "of the rate out: "),
            ("8M/32k/1k", "of the rate out: unknown unit `M/32k`"),
            ("8 MB/s", "bytes per second"),
            ("/", "number"),
        ] {
            let said = text.parse::<Rates>().unwrap_err();
            assert!(said.contains(wrong) && said.contains("such as \"8M/32k\""), "{text}: {said}");
        }
    }

    #[test]
    fn prefixes() {
        assert_eq!("10.0.0.0/8".parse(), Ok(Prefix("10.0.0.0".parse().unwrap(), 8)));
        assert_eq!("::/0".parse(), Ok(Prefix("::".parse().unwrap(), 0)));
        assert_eq!("fd00::1".parse(), Ok(Prefix("fd00::1".parse().unwrap(), 128)));
        for bad in
            ["10.0.0.1/8", "10.0.0.0/33", "10.0.0/8", "fd00::/129", "example.net", "0.0.0.1/0", "10.0.0.0/"]
        {
            assert!(bad.parse::<Prefix>().is_err(), "{bad}");
        }
    }

    #[test]
    fn ports() {
        assert_eq!("6000-6010".parse(), Ok(Ports(6000, 6010)));
        assert_eq!("ssh".parse(), Ok(Ports(22, 22)));
        assert_eq!("443".parse(), Ok(Ports(443, 443)));
        for bad in ["0", "65536", "10-5", "nosuchservice", "", "80-", "1-70000"] {
            assert!(bad.parse::<Ports>().is_err(), "{bad}");
        }
    }

    #[test]
    fn protocols() {
        for (name, value) in [("tcp", 6), ("udp", 17), ("icmpv6", 58), ("41", 41), ("255", 255)] {
            assert_eq!(name.parse(), Ok(Protocol(value)), "{name}");
        }
        for bad in ["", "UDP", "256", "-1", "quic"] {
            assert!(bad.parse::<Protocol>().is_err(), "{bad}");
        }
    }

    #[test]
    fn dscps() {
        for (name, value) in
            [("ef", 46), ("cs0", 0), ("cs6", 48), ("af11", 10), ("af43", 38), ("le", 1), ("63", 63)]
        {
            assert_eq!(name.parse(), Ok(Dscp(value)), "{name}");
        }
        for bad in ["64", "cs8", "af51", "af14", "af10", "csx", "-1", "be"] {
            assert!(bad.parse::<Dscp>().is_err(), "{bad}");
        }
    }
}
