//! Has a link fallen silent? What is evidence of that, and how often it is asked.
//!
//! A host that is off and a link that is gone look the same to one connection. So a retransmission
//! timeout is evidence against a link only where nothing else speaks for it:
//!
//! - Nobody has been answered over the link for as long as the timer ran. One answer to anybody
//!   ends all doubt.
//! - The timeout is of a leg on which a gateway is heard, which answers whether the host behind it
//!   lives or not. Else two different hosts must have let their timers expire: that both are off is
//!   unlikely, that one is says nothing of the link.
//! - The receiver is not known to answer round us, and has not been silent while the link answered
//!   others: then its silence is its own.
//!
//! The only host that is silent, while nobody else was answered either, may be off, or the link may
//! be away: that cannot be told apart, and makes no difference to this host. So it is asked as a
//! link would be, by one segment of one of its connections. Nobody waits for that, all timers go
//! on, and what others send goes on. When anybody is answered, this host's connections go on at
//! once: else they would wait for timers that have backed off, long after the link is back.
//!
//! A suspected link is asked by one segment of one connection. When two of them have stayed
//! unanswered all other data waits, and no timer counts. The next segment follows after the round
//! trip, or the least RTO where that is longer, and later after a part of the silence. So an outage
//! lasts longer by this part at most, and a link that is dead carries a segment every four seconds.
//!
//! Who is near by answers at once, so more is known there, and sooner. Where a gateway does not
//! answer its link is away: all waits, and the link is asked every few milliseconds, so that no
//! contact is missed. A host is asked once before that.

use core::net::IpAddr;

use farlink_wire::{Duration, Instant};

/// The next probe follows after this part of the silence so far: 3 % of it.
const PART: u32 = 32;
/// Probes are never farther apart than this, or than the round trip.
const APART_MAX: Duration = Duration::from_secs(4);
/// The same where a gateway has not answered, or somebody near by: 2 % of the silence, a second at
/// most.
const PART_DENSE: u32 = 50;
const APART_MAX_DENSE: Duration = Duration::from_secs(1);
/// All else waits when so many answers one after the other could have come: what stands in a queue
/// of others, or in a link that pauses, comes late.
const ANSWERS: u32 = 3;
/// The same over a link that loses whole bursts, and answers as well.
const ANSWERS_LOSSY: u32 = 6;
/// A probe to somebody near by counts from here on: neither a small one nor one in turn is next.
const FIRST_PROBE_NEAR: u32 = 2;
/// Each of so many is a small one: large segments alone may get lost (RFC 2923), and then the link
/// carries others.
const SMALL_EVERY: u32 = 4;
/// Each of so many is of whoever has waited longest to ask, whatever is to be expected of the
/// answer: a host that plays a gateway, or begins again and again, must not have them all.
const IN_TURN_EVERY: u32 = 3;

/// A retransmission timer has expired.
#[derive(Clone, Copy, Debug)]
pub struct Expired {
    /// How long it ran.
    pub after: Duration,
    /// The receiver.
    pub host: IpAddr,
    /// A gateway is heard on the leg.
    pub of_gateway: bool,
    /// The link loses whole bursts.
    pub is_lossy: bool,
    /// Probes cost little: a gateway is to answer, and the link's rate is known.
    pub is_dense: bool,
    /// Probes are at least so far apart.
    pub apart: Duration,
    /// The same while this host is the only one that is silent; `None`: it is not asked yet.
    pub apart_alone: Option<Duration>,
}

/// A doubt is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// It was of this host alone, not of the link.
    pub host: Option<IpAddr>,
    /// Questions had stayed unanswered for long enough to count.
    pub was_asked: bool,
}

/// A question to a silent link: by a segment of which connection, and by which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// A small segment.
    pub small: bool,
    /// The one that has waited longest asks, not the one that is best answered.
    pub in_turn: bool,
}

/// What is known of a link's silence.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silence {
    /// When somebody was answered over it last.
    answered_at: Instant,
    /// The first host that has been silent since.
    host: Option<IpAddr>,
    doubt: Option<Doubt>,
}

/// The evidence is enough: the link is asked.
#[derive(Clone, Copy, Debug)]
struct Doubt {
    since: Instant,
    /// All else waits from then on.
    until: Instant,
    apart: Duration,
    probe_at: Instant,
    probed_at: Instant,
    probes: u32,
    /// Probes cost little.
    is_dense: bool,
    /// It is a gateway that does not answer.
    of_gateway: bool,
    /// It is of this host alone, not of the link.
    host: Option<IpAddr>,
}

impl Silence {
    /// Somebody was answered, or the silence has been explained. Returns the doubt that there was.
    pub fn end(&mut self, now: Instant) -> Option<Ended> {
        self.answered_at = now;
        self.host = None;
        let doubt = self.doubt.take()?;
        Some(Ended { host: doubt.host, was_asked: now >= doubt.until })
    }

    /// A timer has expired. Returns whether the link is suspected from now on.
    pub fn note(&mut self, now: Instant, expired: &Expired) -> bool {
        if self.is_in_doubt() || now.since(self.answered_at) < expired.after {
            return false;
        }
        let first = *self.host.get_or_insert(expired.host);
        let is_alone = !expired.of_gateway && !are_apart(first, expired.host);
        if is_alone && self.doubt.is_some() {
            return false;
        }
        let Some(apart) = (if is_alone { expired.apart_alone } else { Some(expired.apart) }) else {
            return false;
        };
        let answers = if expired.is_lossy { ANSWERS_LOSSY } else { ANSWERS };
        // Its own head has just been sent again: that is the first question.
        self.doubt = Some(Doubt {
            since: now,
            until: now + apart * answers,
            apart,
            probe_at: now + apart,
            probed_at: now,
            probes: 0,
            is_dense: expired.is_dense,
            of_gateway: expired.of_gateway,
            host: is_alone.then_some(first),
        });
        !is_alone
    }

    /// The link is suspected, not one host.
    fn is_in_doubt(&self) -> bool {
        self.doubt.is_some_and(|d| d.host.is_none())
    }

    /// Somebody near by has not answered in time. Probes are `apart` at least. The first one is due
    /// if it was a gateway; a host is being asked. Returns whether the link is suspected from now
    /// on.
    pub fn note_unanswered(&mut self, now: Instant, apart: Duration, of_gateway: bool) -> bool {
        if self.is_in_doubt() {
            return false;
        }
        let probe_at = if of_gateway { now } else { now + apart };
        let (since, until, probed_at, probes) = (now, now, now, FIRST_PROBE_NEAR);
        let is_dense = true;
        let host = None;
        self.doubt =
            Some(Doubt { since, until, apart, probe_at, probed_at, probes, is_dense, of_gateway, host });
        true
    }

    /// When somebody was answered last.
    pub fn answered_at(&self) -> Instant {
        self.answered_at
    }

    /// The only host that is silent, if there is one.
    pub fn host(&self) -> Option<IpAddr> {
        self.doubt?.host
    }

    /// Since when it has been suspected, or one host has.
    pub fn since(&self) -> Option<Instant> {
        self.doubt.map(|d| d.since)
    }

    /// It is a gateway that does not answer, which would whether hosts live or not.
    pub fn is_of_gateway(&self) -> bool {
        self.doubt.is_some_and(|d| d.of_gateway)
    }

    /// When the next probe is due.
    pub fn probe_at(&self) -> Option<Instant> {
        self.doubt.map(|d| d.probe_at)
    }

    /// It has been asked for long enough, and nobody was answered since.
    pub fn is_asked(&self, now: Instant) -> bool {
        self.doubt.is_some_and(|d| now >= d.until)
    }

    /// A probe leaves; returns which.
    pub fn probe(&mut self, now: Instant) -> Option<Probe> {
        let d = self.doubt.as_mut()?;
        d.probes = d.probes.wrapping_add(1);
        d.probed_at = now;
        let (part, most) = if d.is_dense { (PART_DENSE, APART_MAX_DENSE) } else { (PART, APART_MAX) };
        d.probe_at = now + d.apart.max((now.since(d.since) / part).min(most));
        let every = |n| d.probes.is_multiple_of(n);
        Some(Probe { small: every(SMALL_EVERY), in_turn: every(IN_TURN_EVERY) })
    }

    /// There is something new to ask with, or to hope for: the next probe need not wait longer than
    /// the first ones did.
    pub fn hasten(&mut self, now: Instant) {
        // Words of others say nothing of a host that is silent alone.
        if let Some(d) = self.doubt.as_mut().filter(|d| d.host.is_none()) {
            d.probe_at = d.probe_at.min((d.probed_at + d.apart).max(now));
        }
    }
}

/// Whether these are two hosts. One has as many addresses as it likes: of both families, and all of
/// an IPv6 subnet (RFC 4291 section 2.5.4).
pub(crate) fn are_apart(a: IpAddr, b: IpAddr) -> bool {
    match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => a != b,
        (IpAddr::V6(a), IpAddr::V6(b)) => a.octets()[..8] != b.octets()[..8],
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    fn expired(host: u8, of_gateway: bool) -> Expired {
        let (after, apart) = (Duration::from_millis(300), Duration::from_millis(200));
        let host = IpAddr::from(Ipv4Addr::new(10, 0, 0, host));
        Expired {
            after,
            host,
            of_gateway,
            is_lossy: false,
            is_dense: of_gateway,
            apart,
            apart_alone: Some(apart),
        }
    }

    #[test]
    fn one_host_alone_is_no_evidence_and_two_are() {
        let mut s = Silence::default();
        assert!(!s.note(at(1_000), &expired(1, false)) && !s.note(at(2_000), &expired(1, false)));
        assert_eq!(s.host(), Some(expired(1, false).host), "it is asked");
        assert!(s.note(at(2_100), &expired(2, false)));
        assert_eq!(s.host(), None);
        assert_eq!((s.since(), s.probe_at()), (Some(at(2_100)), Some(at(2_300))));
        assert!(s.end(at(2_250)).is_some() && s.end(at(2_260)).is_none());
        // An answer makes hosts that were silent before their own matter.
        assert!(!s.note(at(3_000), &expired(2, false)));
    }

    #[test]
    fn the_addresses_of_one_host_are_no_two_hosts() {
        let [v4, one, another, far] =
            ["10.0.0.1", "fd00::1", "fd00::2", "fd00:0:0:1::1"].map(|a| a.parse().unwrap());
        assert!(!are_apart(v4, one) && !are_apart(one, another) && !are_apart(one, one));
        assert!(are_apart(one, far) && are_apart(v4, "10.0.0.2".parse().unwrap()));
    }

    #[test]
    fn a_gateway_is_evidence_unless_somebody_was_answered_meanwhile() {
        let mut s = Silence::default();
        s.end(at(1_000));
        assert!(!s.note(at(1_299), &expired(1, true)));
        assert!(s.note(at(1_300), &expired(1, true)));
    }

    #[test]
    fn probes_delay_the_end_of_an_outage_by_little() {
        let mut s = Silence::default();
        s.note(at(1_000), &expired(1, true));
        let (mut now, mut small, mut small_in_turn) = (s.probe_at().unwrap(), 0, 0);
        while now < at(1_000_000) {
            let probe = s.probe(now).unwrap();
            small += u32::from(probe.small);
            small_in_turn += u32::from(probe.small && probe.in_turn);
            let apart = s.probe_at().unwrap().since(now);
            let most = Duration::from_millis(200).max(now.since(at(1_000)) / PART_DENSE);
            assert!(apart <= most && (Duration::from_millis(200)..=APART_MAX_DENSE).contains(&apart));
            now = s.probe_at().unwrap();
        }
        assert!(now.since(at(1_000_000)) <= APART_MAX_DENSE);
        assert!(small > 10 && small_in_turn * 3 + 2 >= small, "{small}, {small_in_turn} in turn");
        s.probe(now);
        s.hasten(now + Duration::from_millis(100));
        assert_eq!(s.probe_at(), Some(now + Duration::from_millis(200)));
    }
}
