//! What becomes of the doubts of a link: who raises them, whom they concern, and who is told when
//! they end.

use core::net::IpAddr;

use farlink_wire::{Duration, Instant};

use super::silence::{Expired, Probe, are_apart};
use super::{Link, Links, State, Witness};
use crate::net::{LinkId, Way};

impl Links {
    /// A retransmission timer of a leg that leads this way has expired.
    pub(crate) fn note_expired(&mut self, now: Instant, way: Way, expired: &Expired) {
        if let Some(link) = self.get_mut(way)
            && link.evidence.state() == State::Up
            && link.silence.note(now, expired)
        {
            link.evidence.tell(now, Witness::Silence, false);
        }
    }

    /// Somebody near by, at the other end of a link, has not answered. If it was a gateway nothing
    /// more is sent into the link than what asks for it; if it was a host it is being asked.
    pub(crate) fn note_unanswered(&mut self, now: Instant, way: Way, apart: Duration, of_gateway: bool) {
        if let Some(link) = self.get_mut(way)
            && link.evidence.state() == State::Up
            && link.silence.note_unanswered(now, apart, of_gateway)
        {
            link.evidence.tell(now, Witness::Silence, false);
            if of_gateway {
                link.evidence.probe(now);
            }
        }
    }

    /// What was sent this way has been answered.
    pub(crate) fn hear_answer(&mut self, now: Instant, way: Way) {
        let Some(link) = self.get_mut(way) else { return };
        let Some(ended) = link.silence.end(now) else { return };
        if let Some(host) = ended.host {
            if ended.was_asked {
                self.note_host_back(way, host);
            }
            return;
        }
        let waits = link.evidence.state() == State::Probing;
        link.evidence.tell(now, Witness::Silence, true);
        if waits {
            self.note_back(way, true);
        }
    }

    /// Something has come over it: an answer, or a word that lets hope for one. Who is heard may
    /// hear as well.
    pub(crate) fn hear_word(&mut self, now: Instant, way: Way, answers: bool) {
        if answers {
            self.hear_answer(now, way);
        } else if let Some(link) = self.get_mut(way) {
            link.hasten_probe(now);
        }
    }

    /// A link whose silence is to be looked into now.
    pub(crate) fn next_to_probe(&self, now: Instant) -> Option<Way> {
        let due = |l: &Link| l.silence.probe_at().is_some_and(|at| at <= now);
        let place = self.links.iter().position(due)?;
        Some(Way::Link(LinkId(u16::try_from(place).ok()?)))
    }

    /// When that is.
    pub(crate) fn probe_deadline(&self) -> Option<Instant> {
        self.links.iter().filter_map(|l| l.silence.probe_at()).min()
    }

    /// Hosts that were silent alone, and whose links have answered since this was last asked.
    pub(crate) fn take_hosts_back(&mut self) -> Vec<(Way, IpAddr)> {
        core::mem::take(&mut self.hosts_back)
    }

    /// One of each link: the newest is the one that has waited.
    fn note_host_back(&mut self, way: Way, host: IpAddr) {
        self.hosts_back.retain(|(of, _)| *of != way);
        self.hosts_back.push((way, host));
    }
}

impl Link {
    /// When somebody was answered over it last.
    #[must_use]
    pub fn answered_at(&self) -> Instant {
        self.silence.answered_at()
    }

    /// Since when it has been suspected of carrying nothing.
    #[must_use]
    pub fn silent_since(&self) -> Option<Instant> {
        self.silence.since().filter(|_| self.silence.host().is_none())
    }

    /// Since when somebody is asked over it, be it the link that is suspected or one host.
    #[must_use]
    pub fn asked_since(&self) -> Option<Instant> {
        self.silence.since()
    }

    /// The only host that is asked, because it is the only one that is silent. It is off, or the
    /// link is away.
    #[must_use]
    pub fn silent_host(&self) -> Option<IpAddr> {
        self.silence.host()
    }

    /// This host is the only one that is silent, and is asked.
    #[must_use]
    pub(crate) fn is_silent_alone(&self, host: IpAddr) -> bool {
        self.silent_host().is_some_and(|alone| !are_apart(alone, host))
    }

    /// It is a gateway at its other end that does not answer.
    #[must_use]
    pub fn is_gateway_silent(&self) -> bool {
        self.silence.is_of_gateway()
    }

    /// It is asked by a segment now; returns by which.
    pub(crate) fn probe(&mut self, now: Instant) -> Option<Probe> {
        if self.silence.is_asked(now) {
            self.evidence.probe(now);
        }
        self.silence.probe(now)
    }

    /// The next question need not wait longer than the first ones did.
    pub(crate) fn hasten_probe(&mut self, now: Instant) {
        self.silence.hasten(now);
    }
}
