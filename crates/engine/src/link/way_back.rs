//! What a link brings, where that is another rate than it takes, and how soon answers come by it.

use farlink_wire::{Duration, Instant};

use super::advertised::Advertised;
use super::dated::Dated;
use super::recognised::{Came, Recogniser};
use super::{Acknowledged, Link};
use crate::ack_policy::AckPolicy;
use crate::ack_ration;
use crate::peer::{Advert, Identity, Source};

/// Nothing waits longer for acknowledgements that take turns, however many flows there are.
const ACKS_LATE_MAX: Duration = Duration::from_secs(10);

/// A change by no more than this part of the rate (one over it) is for new connections only.
const NEWS_PARTS: u64 = 16;

/// How fast a link brings what comes in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RateIn {
    /// Bits per second of IP packets.
    pub bps: u64,
    /// Whence that is known.
    pub source: Source,
    /// Since when; `None`: the operator declares it.
    pub at: Option<Instant>,
}

/// An acknowledgement without options, bits.
const LEAST_ACK_BITS: u64 = 8 * 40;
/// What an advert adds to a segment, in words of four bytes.
const ADVERT_OPTION_BYTES: u64 = 8;
/// Data comes no later than by this for it, milliseconds.
const ADVERT_MS_MAX: u64 = 5;

/// What is known of that.
#[derive(Debug)]
pub struct WayIn {
    /// As the operator says.
    declared_bps: Option<u64>,
    advertised: Advertised,
    recogniser: Recogniser,
    /// Bytes of TCP that had come in with the last pure acknowledgement.
    received_bytes: u64,
    /// What open connections have made room for, bits per second.
    in_force_bps: Option<u64>,
}

impl WayIn {
    /// Of a link of which the operator says this.
    #[must_use]
    pub fn new(declared_bps: Option<u64>) -> Self {
        Self {
            declared_bps,
            advertised: Advertised::default(),
            recogniser: Recogniser::default(),
            received_bytes: 0,
            in_force_bps: declared_bps,
        }
    }
}

impl Link {
    /// What it brings, by who knows best: the operator, the gateway at its other end, the
    /// acknowledgements of hosts. What is not declared is no less than what has been seen to come.
    #[must_use]
    pub fn rate_in(&self) -> Option<RateIn> {
        let declared = self.way_in.declared_bps.map(|bps| RateIn { bps, source: Source::Declared, at: None });
        let told = || {
            let heard = self.way_in.advertised.rate()?;
            let bps = heard.advert.rate?.0.max(self.least_in_bps());
            Some(RateIn { bps, source: Source::Told, at: Some(heard.at) })
        };
        let found = || {
            let (bps, at) = self.way_in.recogniser.found()?;
            Some(RateIn { bps, source: Source::Found, at: Some(at) })
        };
        declared.or_else(told).or_else(found)
    }

    /// The same, bits per second of IP packets; `None`: nobody knows.
    #[must_use]
    pub fn rate_in_bps(&self) -> Option<u64> {
        self.rate_in().map(|known| known.bps)
    }

    /// The operator says what it brings.
    #[must_use]
    pub fn is_rate_in_declared(&self) -> bool {
        self.way_in.declared_bps.is_some()
    }

    /// How long ago that was told, or seen, that is in force; `None`: it is declared, or nothing is
    /// known.
    #[must_use]
    pub fn rate_in_age(&self, now: Instant) -> Option<Duration> {
        let known = self.rate_in()?;
        let found = self.rate_in_found().filter(|_| known.source == Source::Found);
        found.map(|found| found.age(now)).or(known.at.map(|at| now.since(at)))
    }

    /// What acknowledgements of hosts have shown last that it brings, in this run or an earlier
    /// one; `None`: nothing.
    #[must_use]
    pub fn rate_in_found(&self) -> Option<Dated> {
        self.way_in.recogniser.last()
    }

    /// They showed this once.
    pub(crate) fn recall_rate_in(&mut self, once: Dated) {
        self.way_in.recogniser.recall(once);
    }

    /// The rate that a gateway at its other end has advertised of late, of what it sends into the
    /// link, bits per second, whatever is declared here.
    #[must_use]
    pub fn rate_in_told_bps(&self) -> Option<u64> {
        self.way_in.advertised.rate().and_then(|heard| heard.advert.rate).map(|(bps, _)| bps)
    }

    /// The most of TCP that has come in by it within a second of late, bits per second.
    #[must_use]
    pub fn rate_in_seen_bps(&self) -> u64 {
        self.meter.fastest_bps()
    }

    /// The same for the size of segments, which may try whether it is so.
    pub(super) fn rate_in_tried_bps(&self) -> Option<u64> {
        self.rate_in_bps().or(self.way_in.recogniser.suspected_bps())
    }

    /// A pure acknowledgement of a host has come over it: the way back may be full of such.
    pub(crate) fn recognise(&mut self, now: Instant, of: &Acknowledged, lost: bool) {
        let received_bytes = self.meter.received_bytes();
        let before = core::mem::replace(&mut self.way_in.received_bytes, received_bytes);
        let least = self.measured_rtt();
        let bytes = received_bytes.wrapping_sub(before) + u64::from(self.overhead_bytes);
        let rtts = of.rtt.zip(least);
        let source = self.pace.source();
        let rate_bps = source.declared_bps().or(source.rate_bps()).unwrap_or(0);
        let delivered_bytes = of.delivered_bytes;
        let came = Came { at: now, bytes, delivered_bytes, rtts, rate_bps, lost };
        self.way_in.recogniser.note(came);
    }

    /// Another room is to be made for it than open connections have made.
    pub(crate) fn is_rate_in_news(&mut self) -> bool {
        let now_bps = self.room_for_bps();
        let is_news = match (now_bps, self.way_in.in_force_bps) {
            (Some(now), Some(then)) => now.abs_diff(then) > then / NEWS_PARTS,
            (now, then) => now != then,
        };
        if is_news {
            self.way_in.in_force_bps = now_bps;
        }
        is_news
    }

    /// What it is taken to bring where room is made for that, bits per second: what is known, else
    /// as many as it takes. Only the operator's word makes it less than that.
    #[must_use]
    pub fn brings_bps(&self) -> Option<u64> {
        match self.rate_in() {
            Some(known) if known.source == Source::Declared => Some(known.bps),
            known => self.rate_in_force_bps().max(known.map(|known| known.bps)),
        }
    }

    /// What room is made for that it brings to one connection, bits per second: what is known, or
    /// as much as it takes, and no less than has been seen to come of late. The rates of both
    /// directions may differ much, or have been mistaken for each other.
    #[must_use]
    pub fn room_for_bps(&self) -> Option<u64> {
        let known = self.rate_in_bps().max(self.rate_in_force_bps())?;
        Some(known.max(self.meter.fastest_bps()))
    }

    /// What a gateway at its other end is to know of it.
    fn advert(&self) -> Advert {
        let source = self.pace.source();
        let is_declared = source.declared_bps() == source.rate_bps();
        let of = if is_declared { Source::Declared } else { Source::Found };
        let declared = self.declared_rtt.map(|rtt| (rtt, Source::Declared));
        let measured = || self.measured_rtt().map(|rtt| (rtt, Source::Found));
        let rate = source.rate_bps().map(|bps| (bps, of));
        let is_known = rate.is_some() || declared.is_some() || self.is_half_duplex;
        Advert {
            rate,
            rtt: declared.or_else(measured).filter(|_| is_known),
            is_half_duplex: self.is_half_duplex,
        }
    }

    /// What this gateway at its other end is to hear of it now; `None`: it has.
    #[must_use]
    pub fn advert_due(&self, now: Instant, to: Identity) -> Option<Advert> {
        Some(self.advert()).filter(|advert| self.way_in.advertised.is_due(now, to, advert))
    }

    /// The bytes of one take so long that no data is to wait for them: it waits for an
    /// acknowledgement.
    #[must_use]
    pub fn are_adverts_dear(&self) -> bool {
        let least_bps = 8 * 1_000 * ADVERT_OPTION_BYTES / ADVERT_MS_MAX;
        self.rate_in_force_bps().is_some_and(|bps| bps < least_bps)
    }

    /// It has not heard anything yet, and a segment of its own is to leave for it now.
    pub(crate) fn claim_advert(&mut self, now: Instant, to: Identity) -> bool {
        let advert = self.advert();
        !self.are_adverts_dear() && self.way_in.advertised.claim_segment(now, to, &advert)
    }

    /// It has been told.
    pub(crate) fn note_advertised(&mut self, now: Instant, to: Identity, advert: Advert) {
        self.way_in.advertised.note_said(now, to, advert);
    }

    /// It has said what it knows of the link.
    pub(crate) fn hear_advert(&mut self, now: Instant, by: Identity, advert: Advert) {
        if self.way_in.advertised.hear(now, by, advert) {
            self.follow();
        }
    }

    /// The round trip that a gateway at its other end says.
    #[must_use]
    pub fn told_rtt(&self) -> Option<Duration> {
        self.way_in.advertised.rtt()
    }

    /// How fast it brings answers of this gateway, bits per second, and whether both directions
    /// take turns. What a gateway says counts for its own connections: whoever plays one slows down
    /// none but its own.
    pub(super) fn brings_of(&self, gateway: Option<Identity>) -> (Option<u64>, bool) {
        let told = gateway.and_then(|gateway| self.way_in.advertised.by(gateway));
        let rate_bps = match self.rate_in() {
            Some(known) if known.source == Source::Told => {
                told.and_then(|told| told.rate).map(|(bps, _)| self.least_in_bps().max(bps))
            }
            known => known.map(|known| known.bps),
        };
        (rate_bps, self.is_half_duplex || told.is_some_and(|told| told.is_half_duplex))
    }

    /// It brings no less than this, bits per second, whoever says so: as much as has been seen to
    /// come, and an acknowledgement in the shortest round trip.
    fn least_in_bps(&self) -> u64 {
        let round_trip_us = self.measured_rtt().map_or(u64::MAX, |rtt| rtt.as_micros() as u64).max(1);
        self.meter.fastest_bps().max(LEAST_ACK_BITS.saturating_mul(1_000_000) / round_trip_us)
    }

    /// The operator says so, or not, from now on.
    pub(crate) fn set_half_duplex(&mut self, is_half_duplex: bool) {
        self.is_half_duplex = is_half_duplex;
    }

    /// Whoever is at its other end answers at once.
    #[must_use]
    pub fn is_near(&self) -> bool {
        self.rtt_in_force().is_some_and(AckPolicy::is_near)
    }

    /// By how much acknowledgements of a gateway at its other end may come later than they would,
    /// because they have little room on the way back. All who have something under way take turns,
    /// and some of them twice: what a far host has acknowledged is told, too.
    #[must_use]
    pub fn acks_late_by(&self) -> Duration {
        let Some((rate, back)) = self.rate_in_force_bps().zip(self.rate_in_bps()) else {
            return Duration::ZERO;
        };
        let flows = u32::try_from(self.budget.sharers()).unwrap_or(u32::MAX).max(1);
        let turns = flows.saturating_mul(2).saturating_sub(1);
        ack_ration::apart(rate, back).saturating_mul(turns).min(ACKS_LATE_MAX)
    }
}
