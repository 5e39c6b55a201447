//! Segments larger than a packet, where acknowledgements do not get through as fast as data could:
//! how large they have to be for a link.

use farlink_wire::Duration;

use super::Link;
use crate::config::Oversize;

/// The other direction is starved where it is so many times slower: an ordinary receiver
/// acknowledges each second packet, and 52 bytes acknowledge 2,896 then.
const STARVED_PARTS: u64 = 50;
/// Acknowledgements are to take this part (one over it) of what comes back: the other direction has
/// other things to carry.
const WANTED_PARTS: u64 = 2;
/// They may take so much, percent, where larger segments would be lost too often.
const MOST_PERCENT: u64 = 96;
/// A segment is lost with one of its fragments. So many segments out of a hundred may be.
const LOST_PERCENT: u64 = 2;
/// Datagrams a second that identifications are enough for (RFC 6864), a few less.
const DATAGRAMS_PER_S: u64 = 260;

/// One acknowledgement in the time of so many is a small part of the other direction.
const ACKS_SPARED: u64 = 16;
/// A usual queue before the other direction holds so many acknowledgements (the 50 packets of
/// dummynet), and none waits longer than this: with timestamps, over IPv6, at 9.6 kbit/s.
const ACKS_WAITING: u64 = 50;
const ACKS_WAIT_MAX: Duration = Duration::from_secs(3);

/// How large a packet of a connection is.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// IP header and what each fragment has beside it, bytes.
    pub fragment_header_bytes: u32,
    /// The largest packet, bytes.
    pub packet_bytes: u32,
    /// TCP header with options, bytes.
    pub tcp_header_bytes: u32,
    /// An acknowledgement, bytes of IP packet.
    pub ack_bytes: u32,
    /// The identification has 16 bits.
    pub is_v4: bool,
}

impl Sizes {
    /// What each fragment but the last carries, bytes (RFC 791 section 3.2).
    const fn each_bytes(&self) -> u32 {
        self.packet_bytes.saturating_sub(self.fragment_header_bytes) & !7
    }

    /// Payload of a segment in so many fragments, bytes.
    #[must_use]
    pub const fn payload_bytes(&self, fragments: u32) -> u32 {
        self.each_bytes().saturating_mul(fragments).saturating_sub(self.tcp_header_bytes)
    }

    /// The fewest fragments of a segment with so much payload.
    #[must_use]
    pub fn fragments(&self, payload_bytes: u64) -> u32 {
        let all = payload_bytes + u64::from(self.tcp_header_bytes);
        u32::try_from(all.div_ceil(u64::from(self.each_bytes()).max(8))).unwrap_or(u32::MAX)
    }

    /// The most fragments that an IP packet can have.
    fn fragments_max(&self) -> u32 {
        // The header counts where there is one length for all (IPv4).
        (65_535 - 60) / self.each_bytes().max(8)
    }
}

/// What a link asks of the segments into it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// Fragments that leave room for acknowledgements.
    pub fragments: u32,
    /// With fewer the other direction is full of them.
    pub least: u32,
}

impl Link {
    /// How large segments into it are to be; `None`: no larger than a packet.
    #[must_use]
    pub fn oversize(&self, sizes: &Sizes) -> Option<Wanted> {
        let most = sizes.fragments_max();
        let (rate_bps, return_bps) = match self.oversize {
            Oversize::Off => return None,
            Oversize::Bytes(bytes) => {
                let fragments = sizes.fragments(u64::from(bytes)).min(most);
                return (fragments > 1).then_some(Wanted { fragments, least: fragments });
            }
            Oversize::Auto => self.starved()?,
        };
        let full =
            u128::from(rate_bps) * u128::from(self.ack_bits(sizes.ack_bytes) / 8) / u128::from(return_bps);
        let full = u64::try_from(full).unwrap_or(u64::MAX).min(1 << 30);
        let least = sizes.fragments(full * 100 / MOST_PERCENT);
        let by_numbers = rate_bps / 8 / DATAGRAMS_PER_S;
        let numbers = if sizes.is_v4 { sizes.fragments(by_numbers) } else { 1 };
        let mut fragments = sizes.fragments(full * WANTED_PARTS);
        if let Some(survives) = self.fragments_that_survive(fragments) {
            fragments = fragments.min(survives);
        }
        let fragments = fragments.max(least).max(numbers).min(most);
        (fragments > 1).then_some(Wanted { fragments, least: least.max(numbers).min(most) })
    }

    /// So long acknowledgements of a host, packets of `ack_bytes`, wait before the other direction,
    /// where that is starved.
    #[must_use]
    pub fn acks_wait(&self, ack_bytes: u32) -> Duration {
        let Some((_, return_bps)) = self.starved() else { return Duration::ZERO };
        let bits = ACKS_WAITING * self.ack_bits(ack_bytes);
        Duration::from_micros(bits * 1_000_000 / return_bps).min(ACKS_WAIT_MAX)
    }

    /// So long acknowledgements of what has come wait before this link, where it takes little of
    /// what it brings. The rates of both directions may have been mistaken for each other.
    #[must_use]
    pub fn our_acks_wait(&self, ack_bytes: u32) -> Duration {
        let takes = |takes: u64| self.rate_in_bps().map_or(takes, |brings| brings.min(takes));
        let rates = self.rate_in_force_bps().map(takes).zip(self.room_for_bps());
        let starved = rates.filter(|(takes, brings)| *takes > 0 && brings / takes >= STARVED_PARTS);
        let bits = ACKS_WAITING * self.ack_bits(ack_bytes);
        let wait = |takes| Duration::from_micros(bits * 1_000_000 / takes).min(ACKS_WAIT_MAX);
        starved.map_or(Duration::ZERO, |(takes, _)| wait(takes))
    }

    /// In so long an acknowledgement takes a small part of the other direction.
    #[must_use]
    pub fn acks_spared(&self, ack_bytes: u32) -> Duration {
        let micros = ACKS_SPARED * self.ack_bits(ack_bytes) * 1_000_000;
        let return_bps = self.rate_in_tried_bps().unwrap_or(0);
        Duration::from_micros(micros.checked_div(return_bps).unwrap_or(0)).min(ACKS_WAIT_MAX)
    }

    /// So many of them come back within this time; `None`: the other direction is not starved.
    #[must_use]
    pub fn acks_in(&self, time: Duration, ack_bytes: u32) -> Option<u32> {
        let (_, return_bps) = self.starved()?;
        let bits = u128::from(return_bps) * time.as_micros() / 1_000_000;
        Some(u32::try_from(bits / u128::from(self.ack_bits(ack_bytes).max(1))).unwrap_or(u32::MAX))
    }

    fn ack_bits(&self, ack_bytes: u32) -> u64 {
        u64::from(ack_bytes.saturating_add(self.overhead_bytes())) * 8
    }

    /// Its rate and that of the other direction, bits per second, where that is starved.
    fn starved(&self) -> Option<(u64, u64)> {
        let rates = (self.rate_in_force_bps()?, self.rate_in_tried_bps()?.max(1));
        (rates.0 / rates.1 >= STARVED_PARTS).then_some(rates)
    }

    /// Where the link loses much: fragments of a segment of which few enough are lost. `now`: what
    /// they are.
    fn fragments_that_survive(&self, now: u32) -> Option<u32> {
        let (sent, lost) = self.losses.sent_and_lost();
        let one_in = sent.checked_div(lost)?.saturating_mul(u64::from(now));
        Some(u32::try_from(one_in * LOST_PERCENT / 100).unwrap_or(u32::MAX).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;
    use crate::link::Links;
    use crate::net::{IfaceId, LinkId, Way};

    const V4: Sizes = Sizes {
        fragment_header_bytes: 20,
        packet_bytes: 1_500,
        tcp_header_bytes: 32,
        ack_bytes: 52,
        is_v4: true,
    };

    /// What a link of these rates says.
    fn told<T>(rate_bps: u64, return_bps: Option<u64>, what: impl Fn(&Link) -> Option<T>) -> Option<T> {
        let oversize = Oversize::Auto;
        let link = config::Link {
            rate_bps: Some(rate_bps),
            rate_in_bps: return_bps,
            oversize,
            ..config::Link::default()
        };
        let (id, name, addresses) = (IfaceId(3), "sat0".into(), Vec::new());
        let interfaces = vec![config::Interface { id, name, domain: 0, addresses, link: Some(link) }];
        let links = Links::new(&config::Config { interfaces, ..config::Config::default() });
        what(links.get(Way::Link(LinkId(0)))?)
    }

    fn wanted(rate_bps: u64, return_bps: Option<u64>) -> Option<Wanted> {
        told(rate_bps, return_bps, |link| link.oversize(&V4))
    }

    /// 13 ms for each at 32 kbit/s, and 60 ms at 9.6 kbit/s over IPv6.
    #[test]
    fn acknowledgements_wait_for_each_other() {
        let wait = |return_bps, bytes| told(8_000_000, return_bps, |link| Some(link.acks_wait(bytes)));
        assert_eq!(wait(Some(32_000), 52), Some(Duration::from_millis(650)));
        assert_eq!(wait(Some(9_600), 72), Some(Duration::from_millis(3_000)));
        assert_eq!(wait(Some(1_000_000), 52), Some(Duration::ZERO), "not starved");
        let come = |return_bps| {
            told(8_000_000, Some(return_bps), |link| link.acks_in(Duration::from_millis(130), 52))
        };
        assert_eq!((come(32_000), come(9_600), come(1_000_000)), (Some(10), Some(3), None));
    }

    /// 12,792 bytes for each acknowledgement at 32 kbit/s, 42,640 at 9.6 kbit/s.
    #[test]
    fn segments_are_as_large_as_the_return_link_is_slow() {
        let at = |return_bps| wanted(8_000_000, Some(return_bps));
        assert_eq!(at(32_000), Some(Wanted { fragments: 18, least: 10 }));
        assert_eq!(at(9_600), Some(Wanted { fragments: 44, least: 31 }));
        assert_eq!(at(128_000), Some(Wanted { fragments: 5, least: 3 }));
        assert_eq!(at(1_000_000), None, "not starved");
        assert_eq!(wanted(8_000_000, None), None, "nobody knows");
    }

    #[test]
    fn identifications_last_on_a_fast_link() {
        let fast = wanted(100_000_000, Some(1_000_000)).unwrap();
        assert!(fast.least >= 32, "{fast:?}: no more than 273 datagrams a second");
    }

    #[test]
    fn payload_of_fragments() {
        assert_eq!((V4.payload_bytes(9), V4.payload_bytes(18)), (13_288, 26_608));
        assert_eq!(V4.fragments(26_608), 18);
        assert!(V4.payload_bytes(V4.fragments_max()) < 65_483);
    }
}
