//! What acknowledgements tell of a link beside what they are about: a gateway says what has arrived
//! there. For want of one the acknowledgements of hosts show how late they come.

use core::net::IpAddr;

use farlink_wire::{Duration, Instant};

use super::{Clock, Link, LinkReport, Links, REPORTS_MAX, RateSource};
use crate::net::Way;
use crate::peer::{Arrived, Identity};

/// What an acknowledgement was of.
#[derive(Clone, Copy, Debug)]
pub struct Acknowledged {
    /// When the newest segment left that it covers for the first time, and whether it had been sent
    /// before.
    pub newest_sent_at: Option<Instant>,
    pub newest_again: bool,
    /// Where it stands in what left without a break: which that is, bytes of it up to here, and
    /// those of them that have not arrived.
    pub place: (u32, u32, u32),
    /// Bytes found to be delivered.
    pub delivered_bytes: u64,
    /// The round trip that it showed.
    pub rtt: Option<Duration>,
    /// The shortest of this connection.
    pub min_rtt: Duration,
    /// So much of that it waited on its way back; `None`: nobody knows.
    pub waited_back: Option<Duration>,
}

/// A change by less than this part of the rate (one over it) is for new connections only.
const RATE_NEWS_PARTS: u64 = 64;

/// What comes in is looked at after so long.
const LOOK: Duration = Duration::from_millis(250);
/// More than this part (one over it) of what the other direction carries is more than
/// acknowledgements take: something else is on its way there.
const BUSY_PARTS: u64 = 8;
/// What waits there is gone so long afterwards.
const BUSY_FOR: Duration = Duration::from_secs(3);

impl Links {
    /// An acknowledgement has come over a link: by a gateway that has told what has arrived there,
    /// or by this host, where there is no gateway.
    pub(crate) fn hear_ack(
        &mut self,
        now: Instant,
        way: Way,
        (arrived, host): (Option<Arrived>, Option<IpAddr>),
        of: &Acknowledged,
    ) {
        let Some(link) = self.get_mut(way) else { return };
        if let Some(rtt) = of.rtt.filter(|_| !of.min_rtt.is_zero()) {
            link.far_end.note_round_trip(now, rtt, of.min_rtt);
        }
        // Of the link, not of this connection, all of whose packets may have waited.
        let min_rtt = link.measured_rtt();
        let told = |arrived| LinkReport {
            arrived,
            sent_at: of.newest_sent_at,
            sent_again: of.newest_again,
            place: of.place,
            min_rtt,
            of_host: false,
            waited_back: Duration::ZERO,
            back_is_slow: false,
        };
        if let Some(arrived) = arrived {
            self.hear(now, way, told(arrived));
        } else if let Some(arrived) = host.and_then(|host| link.answer(now, host, of)) {
            let report = LinkReport {
                sent_at: of.rtt.map(|rtt| now - rtt),
                sent_again: false,
                of_host: true,
                waited_back: of.waited_back.unwrap_or_default(),
                back_is_slow: !link.acks_late_by().is_zero(),
                ..told(arrived)
            };
            // What hosts have acknowledged counts up, so the newest of each says it all.
            let same = |(of, old): &&mut (Way, LinkReport)| {
                *of == way && old.of_host && old.arrived.by == report.arrived.by
            };
            // Those of gateways have room beside them.
            let has_room = self.reports.len() < REPORTS_MAX / 2;
            match self.reports.iter_mut().find(same) {
                Some((_, old)) => *old = report,
                None if has_room => self.note_report(way, report),
                None => {}
            }
        }
    }
}

impl Link {
    /// It carries clearly more or less than connections were told last: those that go by it follow.
    pub(crate) fn is_rate_news(&mut self) -> bool {
        let Some(now_bps) = self.rate_in_force_bps() else { return false };
        let is_same = now_bps.abs_diff(self.told_bps) < self.told_bps / RATE_NEWS_PARTS;
        // The last step, too, back to what is declared.
        let ends = self.pace.source().declared_bps() == Some(now_bps) && self.told_bps != now_bps;
        if !is_same || ends {
            self.told_bps = now_bps;
        }
        !is_same || ends
    }

    /// What a host has just acknowledged, as if a gateway had counted it that has the clock here.
    /// `None`: the rate is not declared, or acknowledgements are late for want of room, and the
    /// host's clock does not tell by how much. Where it does it is by milliseconds, which is enough
    /// for short trains alone ([`LinkReport::back_is_slow`]).
    fn answer(&mut self, now: Instant, host: IpAddr, of: &Acknowledged) -> Option<Arrived> {
        let delivered = u32::try_from(of.delivered_bytes).unwrap_or(u32::MAX);
        self.answered_bytes = self.answered_bytes.wrapping_add(delivered);
        let is_declared =
            matches!(self.pace.source(), RateSource::Declared(_) | RateSource::Corrected { .. });
        let is_free = !self.is_way_back_busy(now);
        let is_known = is_free && self.acks_late_by().is_zero() || of.waited_back.is_some();
        let counts = is_declared && self.pace.clock() == Clock::Queue && is_known;
        let waited = of.waited_back.unwrap_or_default();
        // Modulo 2^32 on purpose: differences count.
        let at_us = now.since(Instant::ZERO).saturating_sub(waited).as_micros() as u32;
        let received_bytes = self.answered_bytes;
        (counts && of.rtt.is_some() && delivered > 0).then_some(Arrived {
            by: number_of(host),
            at_us,
            received_bytes,
        })
    }
}

impl Link {
    /// Hosts send much by the other direction, or have until just now: acknowledgements wait behind
    /// that, and not for the link in this one.
    fn is_way_back_busy(&mut self, now: Instant) -> bool {
        let brings_bps = self.rate_in_bps().or(self.pace.source().declared_bps()).unwrap_or(u64::MAX);
        let WayBack { looked_at, received_bytes, busy_until } = &mut self.way_back;
        let time = now.since(*looked_at);
        if time >= LOOK {
            let received = self.meter.received_bytes();
            let bits = u128::from(received.wrapping_sub(*received_bytes)) * 8;
            // A fresh look says nothing yet, and a long one is an average.
            if bits * 1_000_000_000 > u128::from(brings_bps / BUSY_PARTS) * time.as_nanos() {
                *busy_until = now + BUSY_FOR;
            }
            (*looked_at, *received_bytes) = (now, received);
        }
        now < *busy_until
    }
}

/// What comes in by a link.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WayBack {
    looked_at: Instant,
    received_bytes: u64,
    busy_until: Instant,
}

/// Hosts are told apart by this; that two share it is rare, and no harm.
fn number_of(host: IpAddr) -> Identity {
    let bits = match host {
        IpAddr::V4(host) => u128::from(host.to_bits()),
        IpAddr::V6(host) => host.to_bits(),
    };
    Identity::from((bits ^ (bits >> 32) ^ (bits >> 64) ^ (bits >> 96)) as u32)
}
