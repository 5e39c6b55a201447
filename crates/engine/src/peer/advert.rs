//! What a gateway advertises of a link: the rate of what it sends into it, its round trip, and
//! whether both directions take turns. So what the operator has told one end, or one end has found
//! out, the other one need not be told.
//!
//! The value of the frame: a byte of flags (bits 0 and 1 the source of the rate, 2 and 3 that of
//! the round trip, 4 half duplex), the rate (2 bytes), and, where it has a source, the round trip
//! in microseconds (2). Numbers are 11 bits, shifted left by 5 more.

use arrayvec::ArrayVec;
use farlink_wire::Duration;

/// Bytes of the longest value.
pub const ADVERT_BYTES_MAX: usize = 5;
const HALF_DUPLEX: u8 = 0x10;
const MANTISSA_BITS: u32 = 11;
/// A rate that has changed by more than this part (one over it) is advertised anew.
const NEWS_PARTS: u64 = 16;
/// No line is slower.
const RATE_MIN_BPS: u64 = 300;
/// No round trip is longer.
const RTT_MAX: Duration = Duration::from_secs(60);

/// Where a gateway has a number from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Source {
    /// The operator declares it.
    Declared = 1,
    /// It has been measured.
    Found = 2,
    /// Another gateway has advertised it.
    Told = 3,
}

impl Source {
    fn of(bits: u8) -> Option<Self> {
        [Self::Declared, Self::Found, Self::Told].into_iter().find(|source| *source as u8 == bits & 3)
    }

    /// Its name in the status.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Declared => "declared",
            Self::Found => "found",
            Self::Told => "told",
        }
    }
}

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Advert {
    /// Bits per second of IP packets that the gateway sends into the link, and whence it has that.
    pub rate: Option<(u64, Source)>,
    /// Round trip over the link.
    pub rtt: Option<(Duration, Source)>,
    /// Both directions take turns.
    pub is_half_duplex: bool,
}

impl Advert {
    /// It says nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whoever has been told `before` is to hear this. A round trip that is measured changes all
    /// the time, and both measure it.
    #[must_use]
    pub fn is_news_after(&self, before: &Self) -> bool {
        let rate = match (self.rate, before.rate) {
            (Some((now, of)), Some((then, from))) => of != from || now.abs_diff(then) > then / NEWS_PARTS,
            (now, then) => now != then,
        };
        let declared = |advert: &Self| advert.rtt.filter(|(_, source)| *source == Source::Declared);
        rate || declared(self) != declared(before) || self.is_half_duplex != before.is_half_duplex
    }

    /// The value of the frame.
    #[must_use]
    pub fn encode(&self) -> ArrayVec<u8, ADVERT_BYTES_MAX> {
        let source = |source: Option<Source>| source.map_or(0, |source| source as u8);
        let duplex = if self.is_half_duplex { HALF_DUPLEX } else { 0 };
        let flags = source(self.rate.map(|(_, of)| of)) | source(self.rtt.map(|(_, of)| of)) << 2 | duplex;
        let mut out = ArrayVec::new();
        out.push(flags);
        out.extend(shortened(self.rate.map_or(0, |(bps, _)| bps)).to_be_bytes());
        if let Some((rtt, _)) = self.rtt {
            let us = u64::try_from(rtt.min(RTT_MAX).as_micros()).unwrap_or(u64::MAX);
            out.extend(shortened(us).to_be_bytes());
        }
        out
    }

    /// From such a value; `None`: it is too short. A number without a source, or that no
    /// link has, says nothing.
    #[must_use]
    pub fn decode(value: &[u8]) -> Option<Self> {
        let (&[flags, a, b], rest) = value.split_first_chunk::<3>()?;
        let bps = lengthened(u16::from_be_bytes([a, b]));
        let rtt = match Source::of(flags >> 2) {
            None => None,
            Some(source) => {
                let us = lengthened(u16::from_be_bytes(*rest.first_chunk::<2>()?));
                Some((Duration::from_micros(us), source)).filter(|(rtt, _)| us > 0 && *rtt <= RTT_MAX)
            }
        };
        Some(Self {
            rate: Source::of(flags).map(|source| (bps, source)).filter(|_| bps >= RATE_MIN_BPS),
            rtt,
            is_half_duplex: flags & HALF_DUPLEX != 0,
        })
    }
}

/// As it is sent: the highest bits, and how many are left out. What is above 2^42 is that.
fn shortened(number: u64) -> u16 {
    let left_out = (u64::BITS - number.leading_zeros()).saturating_sub(MANTISSA_BITS);
    if left_out > 31 {
        return u16::MAX;
    }
    // No more than 11 bits are left.
    (left_out as u16) << MANTISSA_BITS | (number >> left_out) as u16
}

fn lengthened(sent: u16) -> u64 {
    u64::from(sent & ((1 << MANTISSA_BITS) - 1)) << (sent >> MANTISSA_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FULL: Advert = Advert {
        rate: Some((8_000_000, Source::Declared)),
        rtt: Some((Duration::from_millis(600), Source::Found)),
        is_half_duplex: true,
    };

    fn close(read: u64, said: u64) -> bool {
        read <= said && said - read <= said / 1_000
    }

    #[test]
    fn five_bytes_say_it_all_and_are_read_again() {
        let body = FULL.encode();
        assert_eq!(body.len(), ADVERT_BYTES_MAX);
        let read = Advert::decode(&body).unwrap();
        let (bps, rtt) = (read.rate.unwrap(), read.rtt.unwrap());
        assert!(close(bps.0, 8_000_000) && close(rtt.0.as_micros() as u64, 600_000), "{read:?}");
        assert_eq!((bps.1, rtt.1, read.is_half_duplex), (Source::Declared, Source::Found, true));
        let rate_only = Advert { rtt: None, is_half_duplex: false, ..FULL };
        assert_eq!(rate_only.encode().len(), 3);
        // A newer gateway may say more.
        let longer = [&rate_only.encode()[..], &[1, 2, 3]].concat();
        assert_eq!(Advert::decode(&longer), Advert::decode(&rate_only.encode()));
    }

    #[test]
    fn what_is_cut_short_or_without_a_source_says_nothing() {
        assert_eq!(Advert::decode(&FULL.encode()[..4]), None);
        assert_eq!(Advert::decode(&[1, 2]), None);
        assert_eq!(Advert::decode(&[0, 0xff, 0xff]), Some(Advert::default()));
        assert_eq!(Advert::decode(&[1, 0, 0]), Some(Advert::default()), "a rate of zero");
        assert_eq!(Advert::decode(&[4, 0, 0, 0xff, 0xff]), Some(Advert::default()), "a round trip of weeks");
    }

    #[test]
    fn small_changes_are_no_news() {
        let at = |bps| Advert { rate: Some((bps, Source::Found)), ..Advert::default() };
        assert!(!at(8_500_000).is_news_after(&at(8_000_000)) && !at(7_500_000).is_news_after(&at(8_000_000)));
        assert!(at(8_500_001).is_news_after(&at(8_000_000)) && at(1).is_news_after(&Advert::default()));
        let rtt = |rtt| Advert { rtt, ..at(8_000_000) };
        let ms = Duration::from_millis;
        assert!(!rtt(Some((ms(40), Source::Found))).is_news_after(&rtt(Some((ms(500), Source::Found)))));
        assert!(rtt(Some((ms(40), Source::Declared))).is_news_after(&rtt(None)));
    }

    proptest! {
        #[test]
        fn numbers_keep_eleven_bits(number in 0u64..1 << 42) {
            prop_assert!(close(lengthened(shortened(number)), number) || number - lengthened(shortened(number)) <= number >> 10);
            prop_assert_eq!(shortened(lengthened(shortened(number))), shortened(number));
        }

        #[test]
        fn whatever_comes_is_read_without_harm(value in prop::collection::vec(any::<u8>(), 0..8)) {
            if let Some(read) = Advert::decode(&value) {
                prop_assert_eq!(Advert::decode(&read.encode()), Some(read));
            }
        }
    }
}
