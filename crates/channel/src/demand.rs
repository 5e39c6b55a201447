//! Capacity by demand: a return link whose terminal asks for slots (DVB-RCS2, ETSI EN 301 545-2
//! 9.2: RBDC and VBDC).
//!
//! At the end of each frame the terminal asks for a rate: what has arrived in that frame (RBDC),
//! and as much again as sends what waits in the time that asking takes (VBDC). It has that rate,
//! within its bounds, one such time later and for a frame; a terminal that has not asked has the
//! least.

use std::collections::VecDeque;

use farlink_wire::time::Instant;

use crate::config::Demand;
use crate::schedule::Section;

/// Frames in the time from asking to getting.
const FRAMES: u64 = 20;
const FRAME_MIN_NS: u64 = 1_000_000;
const NS_PER_S: u128 = 1_000_000_000;

/// What a terminal has asked for, by frames.
#[derive(Debug)]
pub(crate) struct Asked {
    demand: Demand,
    frame_ns: u64,
    /// Number of a frame, and the rate that was asked for at its end, bits per second.
    asked: VecDeque<(u64, u64)>,
    /// The frame that has not ended, and the bits that have arrived in it.
    frame: u64,
    arrived_bits: u64,
}

impl Asked {
    pub(crate) fn new(now: Instant, demand: Demand) -> Self {
        let latency_ns = u64::try_from(demand.latency.as_nanos()).unwrap_or(u64::MAX);
        let frame_ns = (latency_ns / FRAMES).max(FRAME_MIN_NS);
        Self { demand, frame_ns, asked: VecDeque::new(), frame: now.as_nanos() / frame_ns, arrived_bits: 0 }
    }

    /// So much arrives. [`Self::follow`] has been called for this time.
    pub(crate) fn arrive(&mut self, bits: u64) {
        self.arrived_bits = self.arrived_bits.saturating_add(bits);
    }

    /// Frames have ended until now, when so much waits. To be called at the end of each frame, but
    /// for those in which nothing waits.
    pub(crate) fn follow(&mut self, now: Instant, waiting_bits: u64) {
        let current = now.as_nanos() / self.frame_ns;
        if current <= self.frame {
            return;
        }
        let per_s = |bits: u64, ns: u128| u128::from(bits) * NS_PER_S / ns.max(1);
        let arrived = per_s(self.arrived_bits, u128::from(self.frame_ns));
        let waiting = per_s(waiting_bits, self.demand.latency.as_nanos());
        let bps = u64::try_from(arrived + waiting).unwrap_or(u64::MAX);
        if bps > self.demand.least_bps {
            self.asked.push_back((self.frame, bps));
        }
        self.frame = current;
        self.arrived_bits = 0;
        let behind = self.frames_behind();
        while self.asked.front().is_some_and(|(frame, _)| frame + behind < current) {
            self.asked.pop_front();
        }
    }

    /// The rate that the terminal has at this time, and when that may change.
    pub(crate) fn limit(&self, at: Instant, section: Section) -> Section {
        let frame = at.as_nanos() / self.frame_ns;
        let asked = self.asked.iter().find(|(asked, _)| asked + self.frames_behind() == frame);
        let bps = asked.map_or(0, |(_, bps)| *bps).min(self.demand.most_bps).max(self.demand.least_bps);
        let end = Instant::from_nanos(frame.saturating_add(1).saturating_mul(self.frame_ns));
        Section {
            rate_bps: Some(section.rate_bps.map_or(bps, |own| own.min(bps))),
            until: Some(section.until.map_or(end, |until| until.min(end))),
            ..section
        }
    }

    /// What is asked for at the end of a frame is there so many frames after it.
    fn frames_behind(&self) -> u64 {
        let latency_ns = u64::try_from(self.demand.latency.as_nanos()).unwrap_or(u64::MAX);
        latency_ns.div_ceil(self.frame_ns) + 1
    }
}

#[cfg(test)]
mod tests {
    use farlink_wire::time::Duration;

    use super::*;

    const OPEN: Section = Section { open: true, rate_bps: None, until: None };

    #[test]
    fn what_is_asked_for_comes_later_and_goes_again() {
        let latency = Duration::from_millis(600);
        let demand = Demand { least_bps: 16_000, most_bps: 2_000_000, latency };
        let mut asked = Asked::new(Instant::ZERO, demand);
        let at = Instant::from_millis;
        let rate = |asked: &Asked, t: u64| asked.limit(at(t), OPEN).rate_bps;
        // 3,000 bits in a frame of 30 ms are 100 kbit/s; 6,000 that wait 10 more.
        asked.arrive(3_000);
        asked.follow(at(30), 6_000);
        asked.arrive(1_000_000);
        asked.follow(at(60), 0);
        assert_eq!([0, 600, 629].map(|t| rate(&asked, t)), [Some(16_000); 3]);
        assert_eq!([630, 659].map(|t| rate(&asked, t)), [Some(110_000); 2]);
        assert_eq!([660, 690].map(|t| rate(&asked, t)), [Some(2_000_000), Some(16_000)]);
        assert_eq!(asked.limit(at(631), OPEN).until, Some(at(660)));
        let slow = Section { rate_bps: Some(64_000), until: Some(at(640)), ..OPEN };
        assert_eq!(asked.limit(at(631), slow), slow);
        asked.follow(at(5_000), 0);
        assert!(asked.asked.is_empty());
    }
}
