//! The rate of a link as it is seen: found out where nobody says it, and looked at where somebody
//! does. What is declared is the operator's word; what arrives at the other end is the truth.

use farlink_egress::{RateEstimate, Report};
use farlink_engine::config;
use farlink_engine::link::{Change, Clock, Dated, Link, LinkEstimate, LinkReport, Pace, RateSource};
use farlink_wire::{Duration, Instant};

use crate::found::{FoundRate, GUESS_AGE_MAX};

/// See the module.
pub struct LinkRate {
    estimate: Option<RateEstimate>,
    /// A declared rate is held against what arrives.
    corrects: bool,
    /// It is tried whether it carries more.
    tries: bool,
    /// The most that it can be, bits per second; `None`: nobody has said so.
    most_bps: Option<u64>,
    /// It has another delay and another rate every so often.
    period: Option<Duration>,
    /// Bytes sent that the gateway at the other end counts.
    counted_bytes: u64,
    /// What was found once, with the round trip of that time, and counts no longer, or not yet.
    once: Option<(Dated, Duration)>,
    /// Handshakes with a gateway at the other end, when that was looked at last.
    handshakes: u64,
    /// When the newest phase of the link began of which connections have been told.
    phase_began: Option<Instant>,
}

impl LinkRate {
    /// Of a link that nobody has used yet.
    pub fn new(link: &config::Link, is_own: bool) -> Self {
        let most_bps = link.rate_max_bps;
        let mut rate = Self {
            estimate: None,
            corrects: link.corrects_rate,
            tries: !link.is_metered,
            most_bps,
            period: link.reconfigures,
            counted_bytes: 0,
            once: None,
            handshakes: 0,
            phase_began: None,
        };
        rate.follow(Instant::ZERO, Pace::declared(link), is_own);
        rate
    }

    /// Another source, or another clock: what was found out so far is forgotten, unless it is of
    /// the same declared rate. `is_own`: neither the other direction nor routers have a say in how
    /// fast it is.
    pub fn follow(&mut self, now: Instant, pace: Pace, is_own: bool) {
        let before = self.estimate.take().filter(RateEstimate::is_declared);
        self.once = None;
        self.estimate = match (pace.source(), pace.clock()) {
            (RateSource::Estimated(_), _) => {
                Some(self.most_bps.map_or_else(RateEstimate::default, RateEstimate::below))
            }
            (RateSource::Declared(bps) | RateSource::Corrected { declared_bps: bps, .. }, Clock::Queue)
                if self.corrects && is_own =>
            {
                let mut estimate = before.unwrap_or_else(|| RateEstimate::declared(bps));
                estimate.declare(now, bps);
                Some(estimate)
            }
            _ => None,
        };
        self.say_period();
    }

    fn say_period(&mut self) {
        if let Some(estimate) = &mut self.estimate {
            estimate.set_period(self.period);
        }
    }

    /// What was found out of a declared rate is forgotten, too.
    pub fn forget(&mut self, now: Instant, pace: Pace, is_own: bool) {
        self.estimate = None;
        self.follow(now, pace, is_own);
    }

    /// The most that it can be, bits per second; `None`: nobody has said so.
    pub fn most_bps(&self) -> Option<u64> {
        self.most_bps
    }

    /// A declared rate is held against what arrives, or not; a rate that is found out is no more
    /// than this; and it is another one every so often.
    pub fn set(&mut self, link: &config::Link) {
        (self.corrects, self.most_bps) = (link.corrects_rate, link.rate_max_bps);
        self.tries = !link.is_metered;
        self.period = link.reconfigures;
        self.say_period();
    }

    /// It is tried whether the link carries more than is declared, or not.
    pub fn set_tries(&mut self, tries: bool) {
        self.tries = tries;
    }

    /// Nobody says it.
    pub fn is_sought(&self) -> bool {
        self.estimate.as_ref().is_some_and(|estimate| !estimate.is_declared())
    }

    /// So many bytes have been sent that the gateway at the other end counts.
    pub fn note_counted(&mut self, bytes: u32) {
        self.counted_bytes += u64::from(bytes);
    }

    /// The gateway at the other end has told what arrived there.
    pub fn hear(
        &mut self,
        now: Instant,
        report: &LinkReport,
        (carried_bytes, busy_since): (u64, Option<Instant>),
    ) {
        let uncounted_bytes = carried_bytes.saturating_sub(self.counted_bytes);
        let Some(estimate) = self.estimate.as_mut() else { return };
        estimate.begin(now, carried_bytes, uncounted_bytes);
        let arrived = report.arrived;
        let report = Report {
            peer: arrived.by.number(),
            arrived_us: arrived.at_us,
            received_bytes: arrived.received_bytes,
            sent_at: report.sent_at,
            sent_again: report.sent_again,
            place: report.place,
            min_rtt: report.min_rtt,
            of_host: report.of_host,
            waited_back: report.waited_back,
            back_is_slow: report.back_is_slow,
        };
        estimate.on_report(now, &report, busy_since);
    }

    /// Nothing could be heard for so long.
    pub fn note_late(&mut self, late: Duration) {
        if let Some(estimate) = &mut self.estimate {
            estimate.note_late(late);
        }
    }

    /// Time may have come. `carried_bytes`: sent into the link in all, with what it adds to
    /// packets. Returns the rate at which to send; `None`: as the source says.
    pub fn step(&mut self, now: Instant, carried_bytes: u64) -> Option<Option<u64>> {
        let uncounted_bytes = carried_bytes.saturating_sub(self.counted_bytes);
        self.forget_in_time(now);
        let estimate = self.estimate.as_mut()?;
        estimate.note_sent(now, carried_bytes, uncounted_bytes);
        Some(estimate.sending_bps())
    }

    /// What is found is forgotten when nothing has confirmed it for long. Then it is what was found
    /// once.
    fn forget_in_time(&mut self, now: Instant) {
        let due = self.poll_timeout().filter(|due| *due <= now);
        let known = due.and_then(|due| self.in_force(due));
        let Some(estimate) = self.estimate.as_mut() else { return };
        estimate.handle_timeout(now);
        if estimate.rate_bps().is_none() && known.is_some() {
            self.once = known;
        }
    }

    /// What has been found where nobody declares it, by the reports of this run.
    pub fn in_force(&self, now: Instant) -> Option<(Dated, Duration)> {
        let estimate =
            self.estimate.as_ref().filter(|e| !e.is_declared() && e.is_known() && !e.is_recalled())?;
        let age = now.since(estimate.confirmed_at()?);
        Some((Dated::aged(estimate.rate_bps()?, now, age), estimate.rtt()?))
    }

    /// What has been found where nobody declares it, in this run or before.
    pub fn found(&self, now: Instant) -> Option<(Dated, Duration)> {
        self.in_force(now).or(self.once)
    }

    /// What was found once, and nothing has confirmed since; `None`: nothing, or it is too old.
    pub fn once(&self, now: Instant) -> Option<FoundRate> {
        let (once, _) = self.once.filter(|_| self.in_force(now).is_none())?;
        FoundRate::of(once, now)
    }

    /// An earlier run has found this. Returns whether it is a first guess.
    pub fn recall(&mut self, once: Dated, rtt: Duration) -> bool {
        let is_open = self.is_sought() && self.estimate.as_ref().is_some_and(|e| e.rate_bps().is_none());
        if is_open {
            self.once = Some((once, rtt));
        }
        is_open
    }

    /// So many handshakes have been seen in which a gateway at the other end took part. With a new
    /// one what was found once is in force, where nothing else is known.
    pub fn meet(&mut self, now: Instant, known: &Link) {
        let handshakes = known.handshakes_with_gateway();
        if core::mem::replace(&mut self.handshakes, handshakes) == handshakes {
            return;
        }
        let (Some((once, rtt)), Some(estimate)) = (self.once, self.estimate.as_mut()) else { return };
        if once.age(now) <= GUESS_AGE_MAX {
            estimate.recall(now, once.bps, known.measured_rtt().unwrap_or(rtt));
        }
    }

    /// The link has begun another phase, and nobody has been told.
    pub fn takes_turns(&mut self) -> bool {
        let began = self.estimate.as_ref().and_then(RateEstimate::phase_began);
        began.is_some() && core::mem::replace(&mut self.phase_began, began) != began
    }

    /// What follows for the connections; `None`: nothing is looked at.
    pub fn news(&self, now: Instant) -> Option<Change> {
        let estimate = self.estimate.as_ref()?;
        let offered_bps = estimate.offered_bps(now);
        Some(if estimate.is_declared() {
            Change::Carried(offered_bps.filter(|_| !estimate.is_as_declared()))
        } else {
            let found = offered_bps.zip(estimate.rtt());
            Change::Estimate(found.map(|(rate_bps, rtt)| LinkEstimate { rate_bps, rtt }))
        })
    }

    /// The round trip that is in force.
    pub fn rtt(&self, known: &Link) -> Option<Duration> {
        let estimated = self.estimate.as_ref().and_then(RateEstimate::rtt);
        known.declared_rtt().or(estimated).or(known.measured_rtt())
    }

    /// More stands before the link than is meant to.
    pub fn has_backlog(&self, now: Instant, carried_bytes: u64) -> bool {
        self.estimate.as_ref().is_some_and(|estimate| estimate.has_backlog(now, carried_bytes))
    }

    /// What has been found out, bits per second; zero: nothing, or the operator says it and it is
    /// so.
    pub fn found_bps(&self) -> u64 {
        let found = self.estimate.as_ref().filter(|estimate| !estimate.is_as_declared());
        found.and_then(RateEstimate::rate_bps).unwrap_or(0)
    }

    /// It is known what the link carries, and no mere guess; `None`: nothing is looked at.
    pub fn is_known(&self) -> Option<bool> {
        self.estimate.as_ref().map(|estimate| estimate.is_known() && !estimate.is_recalled())
    }

    /// What the link is thought to carry, bits per second; `None`: nothing is looked at.
    pub fn carried_bps(&self) -> Option<u64> {
        self.estimate.as_ref().and_then(RateEstimate::rate_bps)
    }

    /// Only those wait for the link who send a lot, since then: it may be tried whether it carries
    /// more than is declared.
    pub fn may_try(&mut self, now: Instant, busy_since: Instant) {
        if self.tries
            && let Some(estimate) = self.estimate.as_mut()
        {
            estimate.may_try(now, busy_since);
        }
    }

    /// What such trials have shown it to carry, bits per second; zero: no more than is declared, as
    /// far as is known.
    pub fn room_bps(&self) -> u64 {
        self.estimate.as_ref().and_then(RateEstimate::room_bps).unwrap_or(0)
    }

    /// When [`Self::step`] wants attention.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.estimate.as_ref().and_then(RateEstimate::poll_timeout)
    }
}
