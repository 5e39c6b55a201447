//! What has come in over a link is told to the gateway at its far end: what of it, and when.

use farlink_wire::{Duration, Instant, PacketBuf, TcpSegment};

use super::{Link, Links};
use crate::ack_policy::AckPolicy;
use crate::net::IfaceId;
use crate::peer::Arrived;

/// Below this rate a report costs something, bits per second.
const SLOW_BPS: u64 = 100_000;

/// What a segment that has just come in leaves to be told of the link that it came over.
#[derive(Clone, Copy, Debug)]
pub struct Come {
    /// `None`: nobody there asks.
    pub arrived: Option<Arrived>,
    /// The same of the first packet of a clump, where it begins one and is due. It is to be told
    /// before that.
    pub clump: Option<Arrived>,
    /// It is to be told at once. The rate of the link shows in the time between two reports: where
    /// there was none of late, this is the first, and a few follow it early.
    pub is_due: bool,
}

impl Links {
    /// A segment has just come in there. `speaks`: from a gateway, `has_gap`: beyond one.
    pub(crate) fn come(
        &self,
        now: Instant,
        via: IfaceId,
        (policy, speaks, has_gap): (AckPolicy, bool, bool),
    ) -> Come {
        let link = self.at(via);
        let told = link.filter(|_| speaks);
        let is_due = match policy {
            AckPolicy::Gateway(interval) | AckPolicy::Beginning(interval) => {
                link.is_some_and(|l| l.is_report_due(now, interval * 2, (interval, has_gap)))
            }
            _ => false,
        };
        Come {
            arrived: told.map(|link| link.arrival(now)),
            clump: told.filter(|_| is_due).and_then(|link| link.clump(now, policy.longest())),
            is_due,
        }
    }
}

impl Link {
    /// A TCP packet came in.
    pub(crate) fn count(&mut self, now: Instant, s: &TcpSegment, packet: &PacketBuf) {
        self.meter.count(now, s, packet);
    }

    /// What a segment that has just come in leaves to be told.
    fn arrival(&self, now: Instant) -> Arrived {
        self.meter.arrival(now)
    }

    /// The same of the newest packet that has come.
    pub(crate) fn newest_arrival(&self) -> Arrived {
        self.meter.newest_arrival()
    }

    /// The same of the first packet of a clump, where a segment that has just come in begins one
    /// and the rate of the link is looked for. It is to be told before the newest.
    fn clump(&self, now: Instant, told_delay: Duration) -> Option<Arrived> {
        let is_sought = !self.is_rate_declared() && !self.meter.has_waited_here(now);
        self.meter.clump(now, told_delay).filter(|_| is_sought)
    }

    /// The gateway at the far end is to be told what has come in: nothing has been told for
    /// `interval`; or for a small part of `told_delay`, and this is one of the few early ones.
    /// `has_gap`: something is missing before the newest that has come.
    #[must_use]
    pub fn is_report_due(
        &self,
        now: Instant,
        interval: Duration,
        (told_delay, has_gap): (Duration, bool),
    ) -> bool {
        if self.meter.has_waited_here(now) {
            return false;
        }
        // Where the rate is said here, it will be at the other end.
        self.meter.is_due(now, interval, !self.is_rate_declared() || !self.is_slow())
            || (!self.is_rate_declared() && self.meter.is_due_early(now, told_delay, has_gap))
    }

    /// A report takes a noticeable part of what it carries, one way or the other.
    fn is_slow(&self) -> bool {
        let rates = [self.rate_in_force_bps(), self.rate_in_bps()];
        rates.into_iter().flatten().any(|bps| bps < SLOW_BPS)
    }

    /// It has been told. `of_clump`: of the first packet of a clump.
    pub(crate) fn note_reported(&mut self, now: Instant, of_clump: bool) {
        self.meter.told(now, self.patience(), of_clump);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{SAT, links};
    use super::*;

    #[test]
    fn who_says_the_rate_needs_no_early_reports() {
        let (at, ms) = (Instant::from_millis, Duration::from_millis);
        let is_early = |rate_bps| {
            let mut links = links(rate_bps);
            let link = links.at_mut(SAT).unwrap();
            link.note_reported(at(1_000), false);
            link.meter.receive(at(1_010), 12_000);
            link.is_report_due(at(1_020), ms(250), (ms(20), false))
        };
        assert!(is_early(None) && !is_early(Some(8_000_000)));
    }
}
