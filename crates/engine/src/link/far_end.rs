//! What the gateway at the far end of a link has told, and what it is still expected to tell.

use core::net::IpAddr;

use arrayvec::ArrayVec;
use farlink_wire::{Duration, Instant};

use super::{Link, are_apart};
use crate::asked::Goes;
use crate::peer::{Arrived, Capability, Hello, Identity, Opening};

/// Gateways that are remembered: a link may lead to several.
const GATEWAYS_MAX: usize = 8;

/// The round trip that counts while none is known.
const TRAIN_RTT_DEFAULT: Duration = Duration::from_secs(1);

/// What a gateway has told of a link, and what is known here of the segment that it tells of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkReport {
    /// What it told.
    pub arrived: Arrived,
    /// When the newest segment that the same acknowledgement covers for the first time left.
    pub sent_at: Option<Instant>,
    /// It had been sent before.
    pub sent_again: bool,
    /// Where it stands in what left without a break: which that is, bytes of it up to here, and
    /// those of them that have not arrived.
    pub place: (u32, u32, u32),
    /// Smallest RTT over the link of late.
    pub min_rtt: Option<Duration>,
    /// It is the acknowledgement of a host, for want of a gateway: it arrived then by the clock
    /// here.
    pub of_host: bool,
    /// So long that waited on its way back.
    pub waited_back: Duration,
    /// Acknowledgements have little room on their way back.
    pub back_is_slow: bool,
}

/// A gateway that has been heard.
#[derive(Clone, Debug)]
struct Known {
    hello: Hello,
    /// The host whose connection it was first heard on, and whether it was on one of another host.
    host: IpAddr,
    has_others: bool,
}

/// What is known of the far end.
#[derive(Clone, Debug, Default)]
pub struct FarEnd {
    /// The gateways that have been heard there, the newest last.
    gateways: ArrayVec<Known, GATEWAYS_MAX>,
    /// The newest host there that was heard without one.
    plain_host: Option<IpAddr>,
    /// Of all that is known to have arrived there: when the newest of it left, and when that was
    /// heard.
    carried: Option<(Instant, Instant)>,
    /// Where packets wait before the link: when the newest that has been answered would have been
    /// had it not waited, and when that was heard.
    line: Option<(Instant, Instant)>,
    /// When a burst left from which the rate shows.
    train_at: Option<Instant>,
    /// The newest answer to a SYN that asked for a gateway came from one.
    answers: Option<bool>,
    /// Handshakes in which one has taken part.
    met: u64,
    /// What it sends into the link gets lost, by the newest handshake.
    loses: bool,
}

impl FarEnd {
    /// It has told something.
    pub fn hear(&mut self, now: Instant, report: &LinkReport) {
        if let Some(sent_at) = report.sent_at.filter(|_| !report.sent_again) {
            self.carried = Some((self.carried.map_or(sent_at, |(newest, _)| newest.max(sent_at)), now));
        }
    }

    /// A gateway has been heard on a connection of this host.
    pub fn meet(&mut self, hello: Hello, host: IpAddr) {
        self.answers = Some(true);
        // Of one that says nothing of itself only the reports tell which it is, and they come
        // later.
        let is_same = |known: &Known| {
            let is_nameless = known.hello.identity == Identity::UNKNOWN && hello.version < 2;
            known.hello.identity == hello.identity || is_nameless
        };
        let is_version = |known: &&mut Known| known.hello.version == hello.version;
        if hello.identity == Identity::UNKNOWN
            && let Some(known) = self.gateways.iter_mut().find(is_version)
        {
            known.has_others |= are_apart(known.host, host);
            return;
        }
        let before = self.gateways.iter().position(is_same).and_then(|at| self.gateways.pop_at(at));
        if self.gateways.is_full() {
            self.gateways.remove(0);
        }
        let (first, has_others) = before.map_or((host, false), |known| (known.host, known.has_others));
        let has_others = has_others || are_apart(first, host);
        self.gateways.push(Known { hello, host: first, has_others });
    }

    /// A host has been heard there without one.
    pub fn note_plain_host(&mut self, host: IpAddr) {
        self.plain_host = Some(host);
    }

    /// What this gateway tells of the link is believed. A host can say that it is one. So while it
    /// was heard on the connections of one host alone, and other hosts there without it, it counts
    /// for no more than that host: what it tells would be at the others' cost.
    #[must_use]
    pub fn is_believed(&self, gateway: Identity) -> bool {
        let is_it = |known: &&Known| known.hello.identity == gateway;
        let Some(known) = self.gateways.iter().find(is_it) else { return true };
        let is_apart = |host: IpAddr| are_apart(host, known.host);
        let is_other =
            |other: &Known| other.hello.identity != gateway && (other.has_others || is_apart(other.host));
        known.has_others || !(self.plain_host.is_some_and(is_apart) || self.gateways.iter().any(is_other))
    }

    /// The gateways that have been heard, the newest last.
    pub fn gateways(&self) -> impl Iterator<Item = Hello> {
        self.gateways.iter().map(|known| known.hello)
    }

    /// The newest transmission that is known to have arrived, where the link delivers: what left
    /// later stands in line behind it, in a queue of others. `None`: nothing has been told for
    /// longer than `patience`.
    #[must_use]
    pub fn delivers(&self, now: Instant, patience: Duration) -> Option<Instant> {
        self.carried.filter(|(_, heard_at)| now.since(*heard_at) <= patience).map(|(sent_at, _)| sent_at)
    }

    /// A packet has been answered so much later than it left, by one whose shortest round trip is
    /// that.
    pub fn note_round_trip(&mut self, now: Instant, rtt: Duration, min_rtt: Duration) {
        let would_be_at = now - rtt + min_rtt;
        let newest_at = self.line.map(|(at, _)| at);
        if rtt > min_rtt / 2 * 3 {
            self.line = Some((newest_at.map_or(would_be_at, |at| at.max(would_be_at)), now));
        } else if newest_at.is_none_or(|at| would_be_at >= at) {
            self.line = None;
        }
    }

    /// Packets wait before the link, by all that has been told of late: what would have been
    /// answered after this, had it not waited, stands in line behind those. `None`: nothing has
    /// been told for longer than `patience`, or nothing waits.
    #[must_use]
    pub fn line(&self, now: Instant, patience: Duration) -> Option<Instant> {
        self.line.filter(|(_, heard_at)| now.since(*heard_at) <= patience).map(|(at, _)| at)
    }

    /// A SYN that asked for a gateway has been answered, by a gateway or by the host alone.
    pub fn note_answer(&mut self, of_gateway: bool) {
        self.met += u64::from(of_gateway);
        self.answers = Some(of_gateway);
    }

    /// The newest answer to one that asked was of a host alone.
    #[must_use]
    pub fn is_known_alone(&self) -> bool {
        self.answers == Some(false)
    }

    /// A SYN that comes in has been sent on by a gateway.
    pub fn note_asked(&mut self) {
        self.met += 1;
    }

    /// Handshakes in which a gateway there has taken part so far.
    #[must_use]
    pub fn met(&self) -> u64 {
        self.met
    }

    /// It has said this in the first SYN of a connection, or the first answer to one.
    pub fn note_opening(&mut self, opening: &Opening) {
        self.loses = opening.link_loses;
    }

    /// Of a SYN that asks for a gateway, and comes twice, one goes on there, by all that is known.
    #[must_use]
    pub fn takes_openings(&self) -> bool {
        let can = |known: &Known| known.hello.can(Capability::Openings);
        self.answers == Some(true) && !self.gateways.is_empty() && self.gateways.iter().all(can)
    }

    /// How the SYN goes that a host sends for the `syns`-th time, where no box is known. The first
    /// asks for a gateway. It may have got lost, or a box on the way may drop what it does not
    /// know: so the second goes as `repeated`, and the next ones as they came. When two are not
    /// answered, it is not the link that loses the option: a gateway that no SYN has reached is
    /// asked by what follows. But on a link that is away, and has lost them itself, each asks.
    #[must_use]
    pub fn asks_at(&self, syns: u32, is_away: bool, repeated: Goes) -> Goes {
        match syns {
            1 => Goes::With,
            _ if self.is_known_alone() => Goes::Plain,
            _ if is_away => Goes::With,
            2 => repeated,
            _ => Goes::Plain,
        }
    }

    /// A burst has left from which it will tell the rate.
    pub fn note_train(&mut self, now: Instant) {
        self.train_at = Some(now);
    }

    /// What it tells of the burst may still come: the round trip, and half as much again for a
    /// queue.
    #[must_use]
    pub fn train_is_under_way(&self, now: Instant, rtt: Option<Duration>) -> bool {
        self.train_at.is_some_and(|at| now < at + rtt.unwrap_or(TRAIN_RTT_DEFAULT) / 2 * 3)
    }
}

impl Link {
    /// What a gateway at the far end has said in the first SYN of a connection, or the first answer
    /// to one.
    pub(crate) fn note_opening(&mut self, opening: &Opening) {
        self.far_end.note_opening(opening);
    }

    /// A SYN that asks for a gateway may go there twice.
    #[must_use]
    pub fn takes_openings(&self) -> bool {
        self.far_end.takes_openings()
    }

    /// Packets get lost there: what is sent here, or what the gateway at the far end sends, as that
    /// has found.
    #[must_use]
    pub fn loses_openings(&self) -> bool {
        self.is_known_to_lose() || self.far_end.loses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gateways_are_remembered_by_name_and_not_without_end() {
        let mut far_end = FarEnd::default();
        let mut meet = |hello: Hello| {
            far_end.meet(hello, IpAddr::from([10, 0, 0, 1]));
            far_end.gateways().map(|known| known.identity.number()).collect::<Vec<_>>()
        };
        let old = |n: u32| Hello { identity: n.into(), ..Hello::SILENT };
        let new = |n: u32| Hello::of(n.into());
        assert_eq!(meet(old(0)), [0]);
        assert_eq!(meet(new(70_000)), [0, 70_000]);
        assert_eq!(meet(old(7)), [70_000, 7], "it has got a name");
        assert_eq!(meet(old(0)), [70_000, 7], "another connection of it, as far as is known");
        assert_eq!(meet(new(70_000)), [7, 70_000]);
        for identity in 1..=100 {
            assert!(meet(new(identity)).len() <= GATEWAYS_MAX);
        }
    }

    #[test]
    fn a_host_that_says_it_is_a_gateway_counts_for_itself() {
        let host = |n: u8| IpAddr::from([10, 0, 0, n]);
        let (gateway, liar) = (Hello::of(1.into()), Hello::of(2.into()));
        let mut far_end = FarEnd::default();
        far_end.meet(gateway, host(1));
        assert!(far_end.is_believed(1.into()), "nobody else is there");
        far_end.note_plain_host(host(9));
        assert!(!far_end.is_believed(1.into()), "one host may be all that it serves");
        far_end.meet(gateway, host(1));
        assert!(!far_end.is_believed(1.into()), "once more the same");
        far_end.meet(gateway, host(2));
        assert!(far_end.is_believed(1.into()));
        far_end.meet(liar, host(9));
        assert!(!far_end.is_believed(2.into()) && far_end.is_believed(1.into()));
        let mut far_end = FarEnd::default();
        far_end.meet(gateway, host(1));
        far_end.meet(liar, host(9));
        assert!(!far_end.is_believed(2.into()) && !far_end.is_believed(1.into()), "which of them lies?");
    }

    #[test]
    fn a_link_delivers_while_it_is_heard_to() {
        let at = Instant::from_millis;
        let mut far_end = FarEnd::default();
        let delivers = |far_end: &FarEnd, ms| far_end.delivers(at(ms), Duration::from_millis(250));
        assert_eq!(delivers(&far_end, 1_000), None);
        let arrived = Arrived { by: 2.into(), at_us: 0, received_bytes: 0 };
        let report = |sent_ms, sent_again| LinkReport {
            arrived,
            sent_at: Some(at(sent_ms)),
            sent_again,
            of_host: false,
            waited_back: Duration::ZERO,
            back_is_slow: false,
            min_rtt: None,
            place: (0, 0, 0),
        };
        far_end.hear(at(1_000), &report(100, false));
        assert_eq!(delivers(&far_end, 1_250), Some(at(100)));
        assert_eq!(delivers(&far_end, 1_251), None, "silent");
        far_end.hear(at(1_300), &report(90, false));
        assert_eq!(delivers(&far_end, 1_300), Some(at(100)), "what was older came later");
        far_end.hear(at(1_600), &report(1_500, true));
        assert_eq!(delivers(&far_end, 1_600), None, "which transmission arrived is not known");
    }

    #[test]
    fn what_left_later_stands_in_line_while_packets_wait() {
        let (at, ms) = (Instant::from_millis, Duration::from_millis);
        let mut far_end = FarEnd::default();
        let line = |far_end: &FarEnd, now| far_end.line(at(now), ms(250));
        far_end.note_round_trip(at(1_000), ms(60), ms(40));
        assert_eq!(line(&far_end, 1_000), None, "nothing waits");
        far_end.note_round_trip(at(1_100), ms(200), ms(40));
        assert_eq!(line(&far_end, 1_350), Some(at(940)), "it left at 900, and should have taken 40");
        assert_eq!(line(&far_end, 1_351), None, "silent");
        far_end.note_round_trip(at(1_120), ms(800), ms(500));
        assert_eq!(line(&far_end, 1_120), Some(at(940)), "that host is farther away, and waits, too");
        far_end.note_round_trip(at(1_130), ms(530), ms(500));
        assert_eq!(line(&far_end, 1_130), None, "that one does not wait: it is not the link");
    }
}
