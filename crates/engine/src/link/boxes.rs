//! Boxes on the way that drop segments for the option in them: remembered for the link, and for the
//! network of the host where others over the same link have got through.
//!
//! A SYN that asked for a gateway was not answered: its repetition goes both ways, once with the
//! option and right behind it as it came, so that a loss by chance costs no gateway, and a box
//! nothing more. Where the answer may still be on its way, and the link would notice two, the
//! repetition goes as it came. If that is answered, and no gateway speaks, a box may have dropped
//! what had the option; and so with answers that tell of this gateway. The next handshake goes
//! both ways at once, and where none with the option arrives they go as the hosts have made them.
//! Where handshakes pass and what follows is dropped for its option, no handshake asks any more
//! ([`crate::marks`] finds out). Now and then one goes both ways again: what gets through is
//! found out so, and nobody waits for it. What follows is tried by acknowledgements that have
//! nothing else to say.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::collections::BTreeMap;

use farlink_wire::{Duration, Instant};

use super::Link;
use crate::asked::COPY_APART;

/// A link that carries more than this does not notice a SYN more: it takes a millisecond.
const SPARES_BPS: u64 = 500_000;
/// Networks that are remembered. The one goes first that was heard of least lately.
const PLACES_MAX: usize = 1024;
/// What has not been seen again for so long is forgotten.
const LIFETIME: Duration = Duration::from_secs(24 * 3600);
/// After the first, which is the next handshake: whether it gets through again is tried so much
/// later, and each time after twice as long, up to [`TRY_AFTER_MAX`].
const TRY_AFTER: Duration = Duration::from_secs(60);
/// See [`TRY_AFTER`].
const TRY_AFTER_MAX: Duration = Duration::from_secs(3600);
/// One that was lost by chance shows so by then: the next handshake tries it again.
const SURE_AFTER: Duration = Duration::from_secs(3);
/// Connections in whose data a gateway is asked for, that no SYN has reached, until one is heard.
const UNHEARD_MAX: u8 = 6;
/// Networks that are told by name.
const NAMED_MAX: usize = 4;
/// Networks of IPv4 and IPv6 by the bits of their addresses: what one operator announces at least.
const NETWORK_BITS: (u32, u32) = (24, 48);

/// What carries the option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Carrier {
    /// A SYN, which asks for a gateway.
    Syn,
    /// Its answer, which tells of one.
    Answer,
    /// All that follows, which is marked.
    Data,
}

impl Carrier {
    /// All of it.
    pub const ALL: [Self; 3] = [Self::Syn, Self::Answer, Self::Data];

    /// For people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Syn => "SYN",
            Self::Answer => "SYN-ACK",
            Self::Data => "segment",
        }
    }
}

/// What is known of such segments to a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Crossing {
    /// Nothing.
    Unknown,
    /// They have arrived.
    Open,
    /// They do not arrive.
    Shut,
    /// They did not arrive, and the next one may try again, with one behind it that goes as it
    /// came.
    Tried,
}

impl Crossing {
    /// Nothing drops them, as far as is known.
    #[must_use]
    pub const fn is_clear(self) -> bool {
        matches!(self, Self::Unknown | Self::Open)
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Boxes {
    /// Of all the link.
    whole: Place,
    places: BTreeMap<IpAddr, Place>,
    /// Changes with each news.
    news: u64,
    /// The SYN that has gone both ways last: to which host and ports, and when it was answered for
    /// the first time.
    trial: Option<(Ends, Option<Instant>)>,
}

/// Address and port of a server, and the port of its client.
type Ends = (IpAddr, u16, u16);

#[derive(Clone, Copy, Debug, Default)]
struct Place {
    syn: Seen,
    answer: Seen,
    data: Seen,
    /// An answer came without the option that a gateway had put there: the newest.
    stripped_at: Option<Instant>,
    /// Connections in whose data a gateway was asked for since one was heard, and the newest.
    unheard: Option<(u8, Instant)>,
}

/// What has been seen of one kind.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    arrived_at: Option<Instant>,
    dropped: Option<Dropped>,
}

#[derive(Clone, Copy, Debug)]
struct Dropped {
    /// The newest that did not arrive.
    at: Instant,
    try_at: Instant,
    try_after: Duration,
    tried_at: Option<Instant>,
}

impl Place {
    fn of(&self, carrier: Carrier) -> &Seen {
        match carrier {
            Carrier::Syn => &self.syn,
            Carrier::Answer => &self.answer,
            Carrier::Data => &self.data,
        }
    }

    fn of_mut(&mut self, carrier: Carrier) -> &mut Seen {
        match carrier {
            Carrier::Syn => &mut self.syn,
            Carrier::Answer => &mut self.answer,
            Carrier::Data => &mut self.data,
        }
    }

    fn seen_at(&self) -> Instant {
        let asked = [self.stripped_at, self.unheard.map(|(_, at)| at)].into_iter().flatten();
        let carried = Carrier::ALL.map(|carrier| self.of(carrier).seen_at());
        asked.chain(carried).fold(Instant::ZERO, Instant::max)
    }

    fn is_stripped(&self, now: Instant) -> bool {
        self.stripped_at.is_some_and(|at| Seen::is_alive(at, now))
    }
}

impl Seen {
    fn seen_at(&self) -> Instant {
        let at = [self.arrived_at, self.dropped.map(|dropped| dropped.at)];
        at.into_iter().flatten().max().unwrap_or(Instant::ZERO)
    }

    fn is_alive(at: Instant, now: Instant) -> bool {
        now.since(at) < LIFETIME
    }

    fn dropped(&self, now: Instant) -> Option<Dropped> {
        self.dropped.filter(|dropped| Self::is_alive(dropped.at, now))
    }

    /// They have been dropped, and were again when that was tried.
    fn is_sure(&self, now: Instant) -> bool {
        let tried_at = self.dropped(now).and_then(|dropped| dropped.tried_at);
        tried_at.is_some_and(|at| now.since(at) >= SURE_AFTER)
    }

    fn crossing(&self, now: Instant) -> Crossing {
        match (self.dropped(now), self.arrived_at) {
            (Some(dropped), _) if now >= dropped.try_at => Crossing::Tried,
            (Some(_), _) => Crossing::Shut,
            (None, Some(at)) if Self::is_alive(at, now) => Crossing::Open,
            (None, _) => Crossing::Unknown,
        }
    }

    fn note_dropped(&mut self, now: Instant) {
        // The first is tried again at once: it may have been lost.
        let fresh = Dropped { at: now, try_at: now, try_after: TRY_AFTER, tried_at: None };
        self.dropped = Some(self.dropped(now).map_or(fresh, |known| Dropped { at: now, ..known }));
    }

    fn note_arrived(&mut self, now: Instant) {
        *self = Self { arrived_at: Some(now), dropped: None };
    }

    fn note_tried(&mut self, now: Instant) {
        if let Some(dropped) = &mut self.dropped {
            dropped.at = now;
            dropped.tried_at = Some(dropped.tried_at.unwrap_or(now));
            dropped.try_at = now + dropped.try_after;
            dropped.try_after = (dropped.try_after * 2).min(TRY_AFTER_MAX);
        }
    }
}

impl Boxes {
    /// What is known of them on the way to this host: by its network, or else by all others over
    /// the link.
    #[must_use]
    pub fn crossing(&self, now: Instant, carrier: Carrier, host: IpAddr) -> Crossing {
        let own = self.places.get(&network(host)).map(|place| place.of(carrier).crossing(now));
        match (own, self.whole.of(carrier).crossing(now)) {
            (Some(own), _) if own != Crossing::Unknown => own,
            // What has arrived elsewhere says nothing of this one.
            (_, Crossing::Open) => Crossing::Unknown,
            (_, whole) => whole,
        }
    }

    /// One has not arrived there, and its repetition without the option has. Returns whether that
    /// is news.
    pub fn note_dropped(&mut self, now: Instant, carrier: Carrier, host: IpAddr) -> bool {
        let before = self.crossing(now, carrier, host);
        let whole = self.whole.of_mut(carrier);
        // Where others get through it is not the link.
        if whole.crossing(now) != Crossing::Open {
            whole.note_dropped(now);
        }
        self.place_mut(now, host).of_mut(carrier).note_dropped(now);
        let is_news = !matches!(before, Crossing::Shut | Crossing::Tried);
        self.news += u64::from(is_news);
        is_news
    }

    /// One has arrived there. Returns whether that is news.
    pub fn note_arrived(&mut self, now: Instant, carrier: Carrier, host: IpAddr) -> bool {
        let before = self.crossing(now, carrier, host);
        self.whole.of_mut(carrier).note_arrived(now);
        self.place_mut(now, host).of_mut(carrier).note_arrived(now);
        let is_news = matches!(before, Crossing::Shut | Crossing::Tried);
        self.news += u64::from(is_news);
        is_news
    }

    /// One goes both ways there. Where that was to be tried, it has been.
    pub fn note_tried(&mut self, now: Instant, carrier: Carrier, host: IpAddr) {
        if self.crossing(now, carrier, host) != Crossing::Tried {
            return;
        }
        self.whole.of_mut(carrier).note_tried(now);
        self.place_mut(now, host).of_mut(carrier).note_tried(now);
    }

    /// A SYN has gone both ways to this server, from this port of its client.
    pub fn note_trial(&mut self, ends: Ends) {
        self.trial = Some((ends, None));
    }

    /// A SYN-ACK has come. Where a SYN has gone both ways, and both are answered, the one with the
    /// option has got through, though nobody there knows it.
    pub fn hear_answer(&mut self, now: Instant, ends: Ends) {
        let Some((of, first_at)) = &mut self.trial else { return };
        if *of != ends {
            return;
        }
        match *first_at {
            None => *first_at = Some(now),
            Some(at) => {
                self.trial = None;
                if now.since(at) < COPY_APART {
                    self.note_arrived(now, Carrier::Syn, ends.0);
                }
            }
        }
    }

    /// Nothing is known of any.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// An answer from there came without the option that a gateway had put into it.
    pub fn note_stripped(&mut self, now: Instant, host: IpAddr) {
        self.news += u64::from(!self.is_stripped(now, host));
        self.whole.stripped_at = Some(now);
        self.place_mut(now, host).stripped_at = Some(now);
    }

    /// A gateway has told of itself in an answer from there.
    pub fn note_told(&mut self, host: IpAddr) {
        let own = self.places.get(&network(host)).and_then(|place| place.stripped_at);
        self.news += u64::from(own.or(self.whole.stripped_at).is_some());
        self.whole.stripped_at = None;
        if let Some(place) = self.places.get_mut(&network(host)) {
            place.stripped_at = None;
        }
    }

    /// Answers of gateways come without what they have told, from there or from everywhere.
    #[must_use]
    pub fn is_stripped(&self, now: Instant, host: IpAddr) -> bool {
        let own = self.places.get(&network(host)).is_some_and(|place| place.is_stripped(now));
        own || self.whole.is_stripped(now)
    }

    /// The data of a connection may ask for a gateway there.
    #[must_use]
    pub fn may_introduce(&self, now: Instant, host: IpAddr) -> bool {
        let unheard = self.places.get(&network(host)).and_then(|place| place.unheard);
        unheard.is_none_or(|(times, at)| times < UNHEARD_MAX || !Seen::is_alive(at, now))
    }

    /// It does so.
    pub fn note_introduced(&mut self, now: Instant, host: IpAddr) {
        self.note_tried(now, Carrier::Data, host);
        let unheard = &mut self.place_mut(now, host).unheard;
        let times = unheard.filter(|(_, at)| Seen::is_alive(*at, now)).map_or(0, |(times, _)| times);
        *unheard = Some((times.saturating_add(1), now));
    }

    /// One has been heard there.
    pub fn note_heard(&mut self, host: IpAddr) {
        if let Some(place) = self.places.get_mut(&network(host)) {
            place.unheard = None;
        }
    }

    fn place_mut(&mut self, now: Instant, host: IpAddr) -> &mut Place {
        let network = network(host);
        if !self.places.contains_key(&network) && self.places.len() >= PLACES_MAX {
            self.places.retain(|_, place| Seen::is_alive(place.seen_at(), now));
            let oldest = self.places.iter().min_by_key(|(_, place)| place.seen_at()).map(|(at, _)| *at);
            if let Some(oldest) = oldest.filter(|_| self.places.len() >= PLACES_MAX) {
                self.places.remove(&oldest);
            }
        }
        self.places.entry(network).or_default()
    }

    /// They do not arrive anywhere over the link, as far as is known.
    #[must_use]
    pub fn is_shut(&self, now: Instant, carrier: Carrier) -> bool {
        self.whole.of(carrier).is_sure(now)
    }

    /// The networks to which they do not arrive, with their bits.
    pub fn shut(&self, now: Instant, carrier: Carrier) -> impl Iterator<Item = (IpAddr, u32)> {
        self.places_where(move |place| place.of(carrier).is_sure(now))
    }

    fn places_where(&self, is_meant: impl Fn(&Place) -> bool) -> impl Iterator<Item = (IpAddr, u32)> {
        let places = self.places.iter().filter(move |(_, place)| is_meant(place));
        places.map(|(network, _)| (*network, network_bits(*network)))
    }

    /// A number that changes with what is known.
    #[must_use]
    pub fn news(&self) -> u64 {
        self.news
    }

    /// The same for people, one sentence for each thing that boxes do. Status, log and check take
    /// their words from here.
    #[must_use]
    pub fn words(&self, now: Instant) -> Vec<String> {
        let names = |places: &mut dyn Iterator<Item = (IpAddr, u32)>| {
            let names: Vec<_> = places.map(|(network, bits)| format!("{network}/{bits}")).collect();
            let shown = names.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
            match names.len().saturating_sub(NAMED_MAX) {
                0 => shown,
                more => format!("{shown} and {more} more"),
            }
        };
        let dropped = Carrier::ALL.into_iter().filter_map(|carrier| {
            let where_to = match self.is_shut(now, carrier) {
                true => "to everywhere".to_owned(),
                false => format!("to {}", names(&mut self.shut(now, carrier))),
            };
            let what = carrier.name();
            let is_any = self.is_shut(now, carrier) || self.shut(now, carrier).next().is_some();
            is_any.then(|| {
                format!("a box on the way drops {what}s with Farlink's TCP option (kind 254), {where_to}: they go without it")
            })
        });
        let is_any = self.places_where(|place| place.is_stripped(now)).next().is_some();
        let stripped = is_any.then(|| {
            let from = names(&mut self.places_where(|place| place.is_stripped(now)));
            format!("SYN-ACKs come without Farlink's TCP option (kind 254) from {from}, because of a box on the way: gateways are found later")
        });
        dropped.chain(stripped).collect()
    }
}

impl Link {
    /// Boxes on the way that drop handshakes for the option in them.
    #[must_use]
    pub fn boxes(&self) -> &Boxes {
        &self.boxes
    }

    /// What a host repeats so long after it went with the option may go both ways: the answer
    /// would be there by now, as far as is known, or the link does not notice it.
    pub(crate) fn repeats_both(&self, waited: Duration) -> bool {
        match self.rtt_in_force() {
            Some(rtt) => waited >= rtt,
            None => self.rate_in_force_bps().is_some_and(|bps| bps >= SPARES_BPS),
        }
    }

    /// One has arrived there that had the option.
    pub(crate) fn note_arrived(&mut self, now: Instant, carrier: Carrier, host: IpAddr) {
        self.boxes.note_arrived(now, carrier, host);
    }

    /// A gateway on the way to this host is heard; `was_told`: an answer has told it of this one.
    pub(crate) fn note_met(&mut self, now: Instant, host: IpAddr, was_told: bool) {
        self.boxes.note_heard(host);
        if !self.boxes.crossing(now, Carrier::Data, host).is_clear() {
            self.boxes.note_arrived(now, Carrier::Data, host);
        }
        if was_told {
            self.boxes.note_arrived(now, Carrier::Answer, host);
        }
    }

    /// One has not, and the one without it has.
    pub(crate) fn note_dropped(&mut self, now: Instant, carrier: Carrier, host: IpAddr) {
        self.boxes.note_dropped(now, carrier, host);
    }

    /// A gateway may stand on the way to this host that no SYN has reached, or whose answer has
    /// lost its option: it is asked by what follows.
    pub(crate) fn may_introduce(&self, now: Instant, host: IpAddr) -> bool {
        let may_be = !self.far_end.is_known_alone() || self.far_end.gateways().next().is_some();
        let may_arrive = self.boxes.crossing(now, Carrier::Data, host) != Crossing::Shut;
        may_be && may_arrive && self.boxes.may_introduce(now, host)
    }

    /// The same, to be changed.
    pub(crate) fn boxes_mut(&mut self) -> &mut Boxes {
        &mut self.boxes
    }
}

fn network_bits(host: IpAddr) -> u32 {
    if host.is_ipv4() { NETWORK_BITS.0 } else { NETWORK_BITS.1 }
}

fn network(host: IpAddr) -> IpAddr {
    let bits = network_bits(host);
    match host {
        IpAddr::V4(host) => IpAddr::V4(Ipv4Addr::from_bits(host.to_bits() & !(u32::MAX >> bits))),
        IpAddr::V6(host) => IpAddr::V6(Ipv6Addr::from_bits(host.to_bits() & !(u128::MAX >> bits))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Carrier::{Answer, Syn};

    fn at(s: u64) -> Instant {
        Instant::from_millis(s * 1_000)
    }

    fn host(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn what_one_network_drops_the_link_drops_as_long_as_nothing_else_has_arrived() {
        let (here, there) = (host("192.0.2.1"), host("198.51.100.1"));
        let mut boxes = Boxes::default();
        assert_eq!(boxes.crossing(at(1), Syn, here), Crossing::Unknown);
        assert!(boxes.note_dropped(at(1), Syn, here) && !boxes.is_shut(at(9), Syn), "by chance?");
        boxes.note_tried(at(1), Syn, here);
        assert!(!boxes.is_shut(at(3), Syn) && boxes.is_shut(at(4), Syn));
        for of in [here, there, host("192.0.2.77")] {
            assert_eq!(boxes.crossing(at(2), Syn, of), Crossing::Shut);
            assert_eq!(boxes.crossing(at(2), Answer, of), Crossing::Unknown, "another kind");
        }
        assert!(boxes.note_arrived(at(3), Syn, there) && !boxes.is_shut(at(3), Syn));
        assert_eq!(boxes.crossing(at(4), Syn, there), Crossing::Open);
        assert_eq!(boxes.crossing(at(4), Syn, here), Crossing::Shut, "it is that network");
        assert_eq!(boxes.crossing(at(4), Syn, host("203.0.113.9")), Crossing::Unknown);
        assert!(boxes.note_dropped(at(5), Syn, host("203.0.113.9")) && !boxes.is_shut(at(5), Syn));
        boxes.note_tried(at(5), Syn, host("203.0.113.9"));
        let shut: Vec<_> = boxes.shut(at(8), Syn).collect();
        assert_eq!(shut, [(host("192.0.2.0"), 24), (host("203.0.113.0"), 24)]);
    }

    #[test]
    fn it_is_tried_again_at_once_and_then_more_and_more_seldom_and_ends_by_itself() {
        let v6 = host("2001:db8:1:2::3");
        let mut boxes = Boxes::default();
        boxes.note_dropped(at(10), Syn, v6);
        assert_eq!(boxes.crossing(at(10), Syn, v6), Crossing::Tried, "it may have been lost");
        let (mut tries, mut last) = (0, 0);
        for s in 10..40_000 {
            if boxes.crossing(at(s), Syn, v6) == Crossing::Tried {
                boxes.note_tried(at(s), Syn, v6);
                assert!(!boxes.note_dropped(at(s), Syn, v6), "no news");
                (tries, last) = (tries + 1, s);
            }
        }
        assert!((10..20).contains(&tries), "{tries}");
        assert_eq!(boxes.shut(at(last + 3), Syn).collect::<Vec<_>>(), [(host("2001:db8:1::"), 48)]);
        assert_eq!(boxes.crossing(at(last) + LIFETIME, Syn, v6), Crossing::Unknown);
        assert!(!boxes.is_shut(at(last) + LIFETIME, Syn));
        assert_eq!(boxes.shut(at(last) + LIFETIME, Syn).count(), 0);
    }

    #[test]
    fn words_say_what_is_dropped_and_where() {
        let mut boxes = Boxes::default();
        assert!(boxes.words(at(1)).is_empty());
        boxes.note_dropped(at(1), Syn, host("192.0.2.1"));
        boxes.note_tried(at(1), Syn, host("192.0.2.1"));
        let [all] = &boxes.words(at(4))[..] else { panic!("one") };
        assert!(all.contains("drops SYNs") && all.contains("to everywhere"), "{all}");
        boxes.note_arrived(at(4), Syn, host("198.51.100.1"));
        boxes.note_stripped(at(4), host("2001:db8::1"));
        let said = boxes.words(at(5)).join("\n");
        assert!(said.contains("to 192.0.2.0/24") && said.contains("from 2001:db8::/48"), "{said}");
        boxes.note_told(host("2001:db8::1"));
        boxes.note_arrived(at(6), Syn, host("192.0.2.9"));
        assert!(boxes.words(at(6)).is_empty());
    }

    #[test]
    fn who_answers_both_of_a_pair_has_got_the_one_with_the_option() {
        let (server, ms) = (host("192.0.2.1"), Duration::from_millis);
        let after = |first: Duration, second: Option<Duration>| {
            let mut boxes = Boxes::default();
            boxes.note_dropped(at(1), Syn, server);
            boxes.note_tried(at(2), Syn, server);
            boxes.note_trial((server, 80, 4000));
            boxes.hear_answer(at(2) + first, (server, 80, 4001));
            boxes.hear_answer(at(2) + first, (server, 80, 4000));
            second.into_iter().for_each(|second| boxes.hear_answer(at(2) + second, (server, 80, 4000)));
            boxes.crossing(at(9), Syn, server)
        };
        assert_eq!(after(ms(600), Some(ms(603))), Crossing::Open);
        assert_eq!(after(ms(600), None), Crossing::Shut);
        assert_eq!(after(ms(600), Some(ms(1_600))), Crossing::Shut, "the server's own repetition");
    }

    #[test]
    fn no_more_than_so_many_networks_are_remembered() {
        let mut boxes = Boxes::default();
        for n in 0..5_000_u32 {
            boxes.note_dropped(at(u64::from(n)), Answer, IpAddr::from((n << 8).to_be_bytes()));
            boxes.note_tried(at(u64::from(n)), Answer, IpAddr::from((n << 8).to_be_bytes()));
        }
        assert_eq!(boxes.places.len(), PLACES_MAX);
        assert_eq!(boxes.shut(at(5_003), Answer).count(), PLACES_MAX);
    }
}
