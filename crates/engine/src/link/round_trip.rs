//! The round trip of a link: as it is said, or the smallest of any connection of late.

use farlink_wire::{Duration, Instant};

use super::Link;
use crate::anew::Anew;

/// It is the smallest of one to two of these: long enough for a pause of the link's users, short
/// enough for a route of the link layer that has become longer.
const WINDOW: Duration = Duration::from_secs(300);

/// A round trip that is longer than the smallest one by one part of so many.
const LATE_PARTS: u32 = 8;
/// What waits for less than this may not wait at all.
pub const WAITS_MIN: Duration = Duration::from_millis(10);

/// The smallest of the last one to two windows.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundTrip {
    now: Option<Duration>,
    before: Option<Duration>,
    since: Instant,
    /// A phase of the link has begun.
    anew: Option<Anew>,
}

impl RoundTrip {
    /// A connection over the link has measured its leg: the link, and what lies behind it.
    pub fn note(&mut self, now: Instant, rtt: Duration) {
        if let Some(found) = self.anew.as_mut().and_then(|anew| anew.note(now, rtt)) {
            *self = Self { now: Some(found), before: None, since: now, anew: None };
        }
        if now.since(self.since) >= WINDOW {
            *self = Self { now: None, before: self.now, since: now, anew: self.anew };
        }
        self.now = Some(self.now.map_or(rtt, |min| min.min(rtt)));
    }

    /// Another satellite has taken over, and the delay is another one. That of the phase before is
    /// a first guess.
    fn begin_phase(&mut self, now: Instant) {
        self.anew = self.smallest().map(|before| Anew::begin(now, before));
    }

    /// A round trip that took so long has waited.
    fn is_late(&self, took: Duration) -> bool {
        self.smallest().is_some_and(|least| took > least + least / LATE_PARTS)
    }

    /// The smallest.
    #[must_use]
    pub fn smallest(&self) -> Option<Duration> {
        self.now.into_iter().chain(self.before).min()
    }
}

impl Link {
    /// Round-trip time: as the operator says, else as estimated, else as measured, else as a
    /// gateway at the other end says.
    #[must_use]
    pub fn rtt_in_force(&self) -> Option<Duration> {
        self.declared_rtt
            .or(self.pace.source().estimate().map(|e| e.rtt))
            .or(self.measured_rtt)
            .or(self.told_rtt())
    }

    /// Round-trip time as the operator says.
    #[must_use]
    pub fn declared_rtt(&self) -> Option<Duration> {
        self.declared_rtt
    }

    /// What has been measured of late is in force from now on.
    pub(crate) fn follow_rtt(&mut self) {
        let measured = self.measured_rtt();
        if core::mem::replace(&mut self.measured_rtt, measured) != measured {
            self.follow();
        }
    }

    /// A connection has measured its leg: the link, and what lies behind it. `is_full`: with a full
    /// segment.
    pub(crate) fn note_rtt(&mut self, now: Instant, rtt: Duration, is_full: bool) {
        self.round_trip.note(now, rtt);
        if is_full {
            self.full_round_trip.note(now, rtt);
        }
    }

    /// A handshake has measured it. The packet that completed it waited by so much longer than the
    /// SYN on its way back. Others are on their way, too, where anything waits, and say the same. A
    /// clock that counts no milliseconds shows waiting where one begins alone.
    pub(crate) fn note_handshake(&mut self, now: Instant, rtt: Duration, waited: Duration) {
        self.note_rtt(now, rtt, false);
        let unwaited = rtt.saturating_sub(waited);
        if let Some((at, before)) = self.last_handshake.replace((now, unwaited))
            && now.since(at) <= rtt
        {
            self.unwaited_round_trip.note(now, unwaited.max(before));
        }
    }

    /// So much of a handshake that took so long it waited on its way back: by what the clocks of
    /// hosts have shown of any of them. Zero where that may be the grain of a clock.
    #[must_use]
    pub fn handshake_waits(&self, rtt: Duration) -> Duration {
        let waits = self.unwaited_round_trip.smallest().map(|least| rtt.saturating_sub(least));
        waits.filter(|waits| *waits >= WAITS_MIN).unwrap_or_default()
    }

    /// A full segment takes no more than that beyond what the smallest packet takes; `None`: none
    /// has been acknowledged of late.
    #[must_use]
    pub fn segment_took(&self) -> Option<Duration> {
        Some(self.full_round_trip.smallest()?.saturating_sub(self.measured_rtt()?))
    }

    /// Another satellite has taken over.
    pub(crate) fn begin_phase(&mut self, now: Instant) {
        self.round_trip.begin_phase(now);
        self.full_round_trip.begin_phase(now);
        self.unwaited_round_trip.begin_phase(now);
    }

    /// A round trip of a packet without a payload took so long: something stood before the link of
    /// which its queue here knows nothing, such as what waits for slots that are not granted yet.
    #[must_use]
    pub fn stood_before(&self, took: Duration) -> bool {
        self.round_trip.is_late(took)
    }

    /// The smallest RTT of any connection of late.
    #[must_use]
    pub fn measured_rtt(&self) -> Option<Duration> {
        self.round_trip.smallest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_of_late_counts() {
        let (ms, at) = (Duration::from_millis, Instant::from_millis);
        let mut rtt = RoundTrip::default();
        assert_eq!(rtt.smallest(), None);
        rtt.note(at(1_000), ms(520));
        rtt.note(at(2_000), ms(501));
        rtt.note(at(3_000), ms(900));
        assert_eq!(rtt.smallest(), Some(ms(501)));
        rtt.note(at(400_000), ms(800));
        assert_eq!(rtt.smallest(), Some(ms(501)));
        rtt.note(at(800_000), ms(810));
        assert_eq!(rtt.smallest(), Some(ms(800)));
    }

    /// Two connections begin at once. The SYN of the second one stands behind that of the first,
    /// and what completes their handshakes stands behind both.
    #[test]
    fn what_a_handshake_waits_for_is_known_of_all() {
        use crate::config;
        use crate::link::Links;
        use crate::net::{IfaceId, LinkId, Way};
        let (ms, at) = (Duration::from_millis, Instant::from_millis);
        let (id, name, addresses) = (IfaceId(3), "sat0".into(), Vec::new());
        let link = Some(config::Link::default());
        let interfaces = vec![config::Interface { id, name, domain: 0, addresses, link }];
        let mut links = Links::new(&config::Config { interfaces, ..config::Config::default() });
        let link = links.get_mut(Way::Link(LinkId(0))).expect("it has one");
        assert_eq!(link.handshake_waits(ms(224)), Duration::ZERO, "nobody knows");
        link.note_handshake(at(300), ms(224), ms(169));
        assert_eq!(link.handshake_waits(ms(224)), Duration::ZERO, "its clock may count anything");
        link.note_handshake(at(316), ms(225), ms(170));
        link.note_handshake(at(560), ms(241), ms(0));
        assert_eq!((link.handshake_waits(ms(224)), link.handshake_waits(ms(241))), (ms(169), ms(186)));
        assert_eq!(link.handshake_waits(ms(64)), Duration::ZERO, "next to nothing");
        assert_eq!(link.measured_rtt(), Some(ms(224)), "as it was");
    }

    #[test]
    fn a_handshake_that_takes_longer_than_others_has_waited() {
        let ms = Duration::from_millis;
        let mut rtt = RoundTrip::default();
        assert!(!rtt.is_late(ms(5_000)), "nothing to compare it with");
        rtt.note(Instant::from_millis(1_000), ms(640));
        assert!(!rtt.is_late(ms(720)) && rtt.is_late(ms(721)));
    }

    #[test]
    fn another_phase_has_another_one() {
        let (ms, at) = (Duration::from_millis, Instant::from_millis);
        let mut rtt = RoundTrip::default();
        rtt.note(at(1_000), ms(30));
        rtt.begin_phase(at(2_000));
        assert_eq!(rtt.smallest(), Some(ms(30)), "a first guess");
        (0..100).for_each(|n| rtt.note(at(2_000 + n * 10), ms(if n < 50 { 200 - n } else { 60 })));
        assert_eq!(rtt.smallest(), Some(ms(30)), "something may have waited");
        rtt.note(at(3_000), ms(61));
        assert_eq!(rtt.smallest(), Some(ms(60)));
        rtt.begin_phase(at(17_000));
        rtt.note(at(17_100), ms(25));
        assert_eq!(rtt.smallest(), Some(ms(25)), "a smaller one counts at once");
    }
}
