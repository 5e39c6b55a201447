//! Where no gateway reports: what the acknowledgements of hosts behind the link tell of its rate.
//!
//! The clock is the one here, and a report is an acknowledgement: so late did it come, so much had
//! left between two of them. But behind the link lies more than the link. What makes one host's
//! acknowledgements late is its own affair as long as another one's are not. While only one host
//! is heard, the two cannot be told apart. Then it makes no difference to that one, and another
//! host's word ends it. But where much else leaves by the link, too, no less is believed than a
//! mistake of the operator explains.

use farlink_wire::time::{Duration, Instant};

use super::peer::Sample;
use super::{RateEstimate, Report};

/// As long as a gateway has reported within this, hosts are not listened to.
const GATEWAY_LIFETIME: Duration = Duration::from_secs(600);
/// What one host alone has shown holds for so long, if nothing confirms it.
pub(super) const ONE_LIFETIME: Duration = Duration::from_secs(60);
/// Less than this part of what is declared, percent, is not believed of hosts where other traffic
/// would have to bear it.
const LEAST_PERCENT: u64 = 45;
/// Acknowledgements come late by less than this for reasons of the hosts.
pub(super) const WAIT_MIN: Duration = Duration::from_millis(20);
/// A rate is taken over so long at least: hosts acknowledge in bunches.
const TOOK_MIN: Duration = Duration::from_millis(40);
/// Where they wait on their way back some are lost: it is taken over this part of the time for
/// which they wait (one over it) at least.
const WAITED_PARTS: u32 = 4;
/// And a lower one has to show for so long: their acknowledgements, and what lies behind the link,
/// jitter.
pub(super) const FALL_TIME_MIN: Duration = Duration::from_millis(500);
/// As long as the link is believed to carry what is declared no less is sent than so much of it,
/// percent, whatever comes late.
pub(super) const GAIN_MIN_AS_DECLARED: u32 = 95;

/// Who tells, where no gateway does.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hosts {
    /// A gateway has reported then.
    gateway_at: Option<Instant>,
    /// What is known is known from hosts.
    pub(super) tell: bool,
    /// The only one that has shown that the link carries less.
    only: Option<u32>,
    /// Since then another host has been heard.
    second: bool,
}

impl Hosts {
    /// Who tells, and nothing of what they have shown.
    pub(super) fn without_shown(self) -> Self {
        Self { only: None, second: false, ..self }
    }

    /// What one host alone has shown is in force.
    pub(super) fn are_one(&self) -> bool {
        self.only.is_some()
    }
}

impl RateEstimate {
    /// Whether this report counts: a gateway knows better than hosts.
    pub(super) fn admit(&mut self, now: Instant, report: &Report) -> bool {
        if report.of_host {
            let told = self.hosts.gateway_at.is_some_and(|at| now.since(at) < GATEWAY_LIFETIME);
            self.hosts.tell = self.is_declared && !told;
            return self.hosts.tell;
        }
        if core::mem::take(&mut self.hosts.tell) {
            self.peers.retain(|peer| !peer.is_host);
            self.recent.clear();
        }
        self.hosts = Hosts { gateway_at: Some(now), ..Hosts::default() };
        true
    }

    /// Bytes that wait for less are not taken to wait.
    pub(super) fn wait_min(&self) -> Duration {
        match self.is_declared {
            true if self.hosts.tell => WAIT_MIN,
            true => super::DECLARED_WAIT_MIN,
            false => super::WAIT_MIN,
        }
    }

    /// The time over which a rate is taken by this report, at least.
    pub(super) fn took_min(&self, report: &Report) -> Duration {
        let usual = self.usual_took_min(report.of_host);
        if report.of_host { usual.max(report.waited_back / WAITED_PARTS) } else { usual }
    }

    /// The same where no report has waited on its way back.
    pub(super) fn usual_took_min(&self, of_host: bool) -> Duration {
        if of_host { (self.round() / 8).max(TOOK_MIN) } else { self.round() / 16 }
    }

    /// All that were heard of late have shown this rate. Whether it is believed.
    pub(super) fn believes(&mut self, rate_bps: u64) -> bool {
        if !self.hosts.tell {
            return true;
        }
        let Some((by, beside)) = self.recent.back().map(|(_, s)| (s.by, s.beside)) else { return false };
        // Others bear it, too, and have no say.
        let is_bearable = !beside || rate_bps >= self.least_beside_others();
        if self.recent.iter().any(|(_, s)| s.by != by) {
            self.hosts.only = None;
        } else if self.hosts.only != Some(by) {
            (self.hosts.only, self.hosts.second) = (Some(by), false);
        }
        is_bearable
    }

    fn least_beside_others(&self) -> u64 {
        self.most_bps.unwrap_or(0) / 100 * LEAST_PERCENT
    }

    /// No less than so much of the rate is to be sent, percent, whatever comes late.
    pub(super) fn gain_least(&self, sample: &Sample) -> u32 {
        let doubtful = self.hosts.tell && (self.is_as_declared() || sample.beside);
        if doubtful { GAIN_MIN_AS_DECLARED } else { 0 }
    }

    /// What waits no longer does not wait. Hosts are never prompt to the millisecond.
    pub(super) fn next_to_nothing(&self) -> Duration {
        self.waiting_wanted() / if self.hosts.tell { 1 } else { 8 }
    }

    /// Another host than the only one that has shown that the link carries less has told something:
    /// where the one waits, and the other does not, it was not the link. Else what is declared is
    /// tried again.
    pub(super) fn hear_another(&mut self, now: Instant, sample: &Sample) {
        let Some(only) = self.hosts.only else { return };
        if only == sample.by {
            if sample.beside {
                let least = self.least_beside_others();
                self.rate_bps = self.rate_bps.map(|rate| rate.max(least));
            }
            return;
        }
        let wanted = self.waiting_wanted();
        let newest = self.recent.iter().rev().find(|(_, s)| s.by == only);
        let one_waits = newest.is_some_and(|(_, s)| s.waited > 2 * wanted);
        if one_waits && sample.waited < wanted / 2 {
            self.rate_bps = self.most_bps;
            (self.gain, self.gain_until, self.draining) = (100, None, None);
            (self.probe_until, self.hosts.only) = (None, None);
            self.changed_at = now;
        } else if !self.hosts.second {
            self.hosts.second = true;
            (self.probe_gap, self.next_probe_at) = (0, now);
        }
    }

    /// What the newest samples say of what waits: the last three, and the last one of each host, so
    /// that what all see counts.
    pub(super) fn lately(&self) -> impl Iterator<Item = &Sample> {
        let by_hosts = self.hosts.tell;
        let recent = || self.recent.iter().rev().map(|(_, s)| s);
        let is_newest = move |n: usize, by: u32| recent().take(n).all(|s| s.by != by);
        recent().enumerate().filter(move |(n, s)| *n < 3 || (by_hosts && is_newest(*n, s.by))).map(|(_, s)| s)
    }
}
