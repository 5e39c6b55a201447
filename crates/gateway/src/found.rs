//! What has been found out of links where nobody declares it, as values: a driver keeps them over a
//! restart, and the next run begins with them as with a first guess.
//!
//! A rate that is found counts for ten minutes without being confirmed. After that, and after a
//! restart, it is a guess for a day: as good as what a link had this morning, and no better. It is
//! in force from the next handshake on in which a gateway at the other end takes part, since only
//! that one can show whether it still holds. A minute without its word ends it.

use farlink_engine::link::Dated;
use farlink_wire::{Duration, Instant};

use crate::gateway::Gateway;

/// What is older says nothing.
pub const GUESS_AGE_MAX: Duration = Duration::from_secs(86_400);
/// No link is slower, or faster.
const RATES_BPS: core::ops::RangeInclusive<u64> = 300..=1 << 42;
/// No round trip is longer.
const RTT_MAX: Duration = Duration::from_secs(60);

/// What has been found out of a link.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Found {
    /// The link's name.
    pub link: String,
    /// Its interface.
    pub interface: String,
    /// What the operator says of its rate besides: that is never above this, bits per second.
    pub rate_max_bps: Option<u64>,
    /// What it carries, with what the link layer adds.
    pub rate: Option<FoundRate>,
    /// The smallest round trip that belongs to it.
    pub rtt: Option<Duration>,
    /// What it brings, by the acknowledgements of hosts.
    pub rate_in: Option<FoundRate>,
}

/// A rate that has been found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FoundRate {
    /// Bits per second.
    pub bps: u64,
    /// How long ago it was seen last.
    pub age: Duration,
}

impl FoundRate {
    pub(crate) fn of(dated: Dated, now: Instant) -> Option<Self> {
        Some(Self { bps: dated.bps, age: dated.age(now) }).filter(|rate| rate.is_guess())
    }

    /// It is young enough for a first guess, and some link has such a rate.
    fn is_guess(self) -> bool {
        self.age <= GUESS_AGE_MAX && RATES_BPS.contains(&self.bps)
    }

    fn dated(self, now: Instant) -> Option<Dated> {
        self.is_guess().then(|| Dated::aged(self.bps, now, self.age))
    }
}

impl Gateway {
    /// What has been found out of the declared links, where nobody declares it. Links of which
    /// nothing has been found are left out.
    #[must_use]
    pub fn found(&self, now: Instant) -> Vec<Found> {
        let links = self.engine.links();
        let of = self.declared().map(|queue| {
            let known = links.get(queue.way());
            let back = known.filter(|link| !link.is_rate_in_declared());
            let rate = queue.rate_found(now);
            Found {
                link: queue.name().to_owned(),
                interface: queue.interface().to_owned(),
                rate_max_bps: queue.rate_max_bps(),
                rate: rate.map(|(rate, _)| rate),
                rtt: rate.map(|(_, rtt)| rtt),
                rate_in: back.and_then(|link| FoundRate::of(link.rate_in_found()?, now)),
            }
        });
        of.filter(|found| found.rate.is_some() || found.rate_in.is_some()).collect()
    }

    /// The links whose rate nobody says, and has been found in this run, by name: that rate, bits
    /// per second.
    pub fn found_rates(&self, now: Instant) -> impl Iterator<Item = (&str, u64)> {
        self.declared().filter_map(move |queue| Some((queue.name(), queue.rate_in_force_found(now)?)))
    }

    /// An earlier run has found this. What is too old, of another link, or declared by now is let
    /// go. Returns the links of which some of it is a first guess.
    pub fn recall(&mut self, now: Instant, found: &[Found]) -> Vec<Found> {
        let mut taken = Vec::new();
        for once in found {
            let queues = self.outlet.links_mut().iter_mut();
            let same = |name: &str, interface: &str| name == once.link && interface == once.interface;
            let of_name = |queue: &&mut crate::links::LinkQueue| same(queue.name(), queue.interface());
            let Some(queue) = queues.into_iter().find(of_name).filter(|_| !once.link.is_empty()) else {
                continue;
            };
            let way = queue.way();
            let rtt = once.rtt.filter(|rtt| !rtt.is_zero() && *rtt <= RTT_MAX);
            let is_same = queue.rate_max_bps() == once.rate_max_bps;
            let rate = once.rate.and_then(|rate| rate.dated(now)).zip(rtt).filter(|_| is_same);
            let is_taken = rate.is_some_and(|(rate, rtt)| queue.recall(rate, rtt));
            let links = self.engine.links();
            let is_open = links.get(way).is_some_and(|link| !link.is_rate_in_declared());
            let rate_in = once.rate_in.and_then(|rate| rate.dated(now)).filter(|_| is_open);
            if let Some(rate_in) = rate_in {
                self.engine.recall_link_rate_in(way, rate_in);
            }
            let rate = once.rate.filter(|_| is_taken);
            let rate_in = once.rate_in.filter(|_| rate_in.is_some());
            if rate.is_some() || rate_in.is_some() {
                taken.push(Found { rate, rate_in, ..once.clone() });
            }
        }
        taken
    }
}
