//! Where the rate of a link is known from, and who is the clock of what goes into it.

use farlink_cc as cc;
use farlink_wire::Duration;

use crate::config;

/// What governs a declared link of unknown rate until there is an estimate.
pub const UNKNOWN_RATE_CC: cc::Kind = cc::Kind::CubicBbr;

/// What has been found out about a link while the gateway runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkEstimate {
    /// Bits per second, with what the link layer adds.
    pub rate_bps: u64,
    /// Smallest round-trip time over the link.
    pub rtt: Duration,
}

/// Where the rate of a link is known from. Rates are bits per second of IP packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RateSource {
    /// The operator says it.
    Declared(u64),
    /// The operator says one, and what is seen says another: the link carries less.
    Corrected {
        /// What is said.
        declared_bps: u64,
        /// What is seen.
        carries_bps: u64,
    },
    /// The gateways at both ends find it out: this is what they have found so far.
    Estimated(Option<LinkEstimate>),
    /// Nobody does.
    Nobody,
}

/// Who is the clock of what goes into a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Clock {
    /// The link's own queue: no congestion control where a leg ends with the link.
    Queue,
    /// Each connection, by a controller of this kind.
    Connections(cc::Kind),
}

/// The one and the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    source: RateSource,
    clock: Clock,
}

impl RateSource {
    /// The rate, from wherever it is known.
    #[must_use]
    pub fn rate_bps(self) -> Option<u64> {
        match self {
            Self::Declared(bps) | Self::Corrected { carries_bps: bps, .. } => Some(bps),
            Self::Estimated(estimate) => estimate.map(|e| e.rate_bps),
            Self::Nobody => None,
        }
    }
    /// The rate that the operator says.
    #[must_use]
    pub fn declared_bps(self) -> Option<u64> {
        match self {
            Self::Declared(bps) | Self::Corrected { declared_bps: bps, .. } => Some(bps),
            Self::Estimated(_) | Self::Nobody => None,
        }
    }
    /// What the gateways have found out.
    #[must_use]
    pub fn estimate(self) -> Option<LinkEstimate> {
        if let Self::Estimated(estimate) = self { estimate } else { None }
    }
    /// The rate is for the gateways to find out.
    #[must_use]
    pub fn is_estimated(self) -> bool {
        matches!(self, Self::Estimated(_))
    }
    /// It is, and they have found nothing yet.
    #[must_use]
    pub fn is_sought(self) -> bool {
        matches!(self, Self::Estimated(None))
    }
}

impl Clock {
    fn of(kind: cc::Kind) -> Self {
        if kind == cc::Kind::FixedRate { Self::Queue } else { Self::Connections(kind) }
    }
    /// The controller of a leg that ends with the link.
    #[must_use]
    pub fn controller(self) -> cc::Kind {
        match self {
            Self::Queue => cc::Kind::FixedRate,
            Self::Connections(kind) => kind,
        }
    }
}

impl Pace {
    /// As it is declared.
    #[must_use]
    pub fn declared(link: &config::Link) -> Self {
        let source = match link.rate_bps {
            Some(bps) => RateSource::Declared(bps),
            None if link.estimate_rate => RateSource::Estimated(None),
            None => RateSource::Nobody,
        };
        Self { source, clock: Clock::of(link.leg.cc) }
    }

    /// Where the rate is known from.
    #[must_use]
    pub fn source(self) -> RateSource {
        self.source
    }

    /// Who is the clock.
    #[must_use]
    pub fn clock(self) -> Clock {
        self.clock
    }

    /// With another source.
    pub(super) fn with_source(self, source: RateSource) -> Self {
        Self { source, ..self }
    }

    /// With another clock.
    pub(super) fn with_clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    /// The operator says this rate from now on; `None`: he does not know it. Somebody must, where
    /// nothing else keeps connections from flooding the link.
    #[must_use]
    pub fn with_rate(self, rate_bps: Option<u64>) -> Self {
        let (by_queue, estimated) = (self.clock == Clock::Queue, self.source.is_estimated());
        match rate_bps {
            Some(bps) if estimated => Self { source: RateSource::Declared(bps), clock: Clock::Queue },
            Some(bps) => Self { source: RateSource::Declared(bps), ..self },
            None if by_queue => {
                Self { source: RateSource::Estimated(None), clock: Clock::Connections(UNKNOWN_RATE_CC) }
            }
            None if estimated => Self { source: RateSource::Estimated(None), ..self },
            None => Self { source: RateSource::Nobody, ..self },
        }
    }

    /// The operator names a controller; `None`: whatever follows from what is known of the rate.
    #[must_use]
    pub fn with_controller(self, kind: Option<cc::Kind>) -> Self {
        match (kind, self.source) {
            (None, RateSource::Declared(_) | RateSource::Corrected { .. }) => {
                Self { clock: Clock::Queue, ..self }
            }
            (None, RateSource::Estimated(_)) => self,
            (None, RateSource::Nobody) => {
                Self { source: RateSource::Estimated(None), clock: Clock::Connections(UNKNOWN_RATE_CC) }
            }
            // The controller finds the rate from now on.
            (Some(kind), RateSource::Estimated(_)) => {
                Self { source: RateSource::Nobody, clock: Clock::of(kind) }
            }
            (Some(kind), _) => Self { clock: Clock::of(kind), ..self },
        }
    }

    /// The link carries so much less than the operator says; `None`: it carries that.
    #[must_use]
    pub fn with_carried(self, carries_bps: Option<u64>) -> Self {
        let Some(declared_bps) = self.source.declared_bps() else { return self };
        let source = match carries_bps {
            Some(carries_bps) if carries_bps < declared_bps => {
                RateSource::Corrected { declared_bps, carries_bps }
            }
            _ => RateSource::Declared(declared_bps),
        };
        Self { source, ..self }
    }

    /// The gateways have found out something else than before, or no longer know anything.
    #[must_use]
    pub fn with_estimate(self, estimate: Option<LinkEstimate>) -> Self {
        let clock = match (self.clock, estimate) {
            (_, Some(_)) => Clock::Queue,
            (Clock::Queue, None) => Clock::Connections(UNKNOWN_RATE_CC),
            (clock, None) => clock,
        };
        Self { source: RateSource::Estimated(estimate), clock }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cc::Kind;

    const BPS: u64 = 8_000_000;

    fn pace(source: RateSource, kind: Kind) -> Pace {
        Pace { source, clock: Clock::of(kind) }
    }

    #[test]
    fn what_is_declared_says_who_is_the_clock() {
        let link = |rate_bps, cc, estimate_rate| {
            let leg = config::LegConfig { cc, ..config::LegConfig::default() };
            Pace::declared(&config::Link { rate_bps, leg, estimate_rate, ..config::Link::default() })
        };
        assert_eq!(link(Some(BPS), Kind::FixedRate, false), pace(RateSource::Declared(BPS), Kind::FixedRate));
        assert_eq!(link(Some(BPS), Kind::FixedRate, false).clock, Clock::Queue);
        assert_eq!(link(Some(BPS), Kind::Cubic, true), pace(RateSource::Declared(BPS), Kind::Cubic));
        assert_eq!(link(None, Kind::CubicBbr, true), pace(RateSource::Estimated(None), Kind::CubicBbr));
        assert_eq!(link(None, Kind::Vegas, false), pace(RateSource::Nobody, Kind::Vegas));
    }

    #[test]
    fn the_queue_is_the_clock_while_the_rate_is_known_and_nobody_named_a_controller() {
        let known = pace(RateSource::Declared(BPS), Kind::FixedRate);
        let sought = pace(RateSource::Estimated(None), Kind::CubicBbr);
        let named = pace(RateSource::Declared(BPS), Kind::Cubic);
        assert_eq!(known.with_rate(None), sought, "else nobody would keep it from flooding the link");
        assert_eq!(sought.with_rate(Some(BPS)), known);
        assert_eq!(named.with_rate(Some(1)), pace(RateSource::Declared(1), Kind::Cubic));
        assert_eq!(named.with_rate(None), pace(RateSource::Nobody, Kind::Cubic));
        assert_eq!(named.with_controller(None), known);
        assert_eq!(known.with_controller(Some(Kind::Cubic)), named);
        assert_eq!(known.with_controller(Some(Kind::FixedRate)), known);
        assert_eq!(sought.with_controller(None), sought);
        assert_eq!(sought.with_controller(Some(Kind::Vegas)), pace(RateSource::Nobody, Kind::Vegas));
        assert_eq!(pace(RateSource::Nobody, Kind::Vegas).with_controller(None), sought);
    }

    #[test]
    fn an_estimate_makes_the_queue_the_clock_and_its_loss_the_connections() {
        let sought = pace(RateSource::Estimated(None), Kind::Cubic);
        let estimate = LinkEstimate { rate_bps: BPS, rtt: Duration::from_millis(500) };
        let found = sought.with_estimate(Some(estimate));
        assert_eq!((found.clock, found.source.rate_bps()), (Clock::Queue, Some(BPS)));
        assert_eq!(found.with_estimate(None), pace(RateSource::Estimated(None), Kind::CubicBbr));
        assert_eq!(sought.with_estimate(None), sought);
        assert_eq!(found.with_rate(None), pace(RateSource::Estimated(None), Kind::CubicBbr));
        assert_eq!(found.with_rate(Some(1)), pace(RateSource::Declared(1), Kind::FixedRate));
    }

    #[test]
    fn what_a_link_carries_stands_beside_what_is_declared() {
        let declared = pace(RateSource::Declared(BPS), Kind::FixedRate);
        let corrected = declared.with_carried(Some(BPS / 2));
        let source = corrected.source;
        assert_eq!((source.rate_bps(), source.declared_bps()), (Some(BPS / 2), Some(BPS)));
        assert_eq!((corrected.clock, source.is_estimated()), (Clock::Queue, false));
        assert_eq!(corrected.with_carried(None), declared);
        assert_eq!(corrected.with_carried(Some(BPS)), declared);
        assert_eq!(corrected.with_rate(Some(1)), pace(RateSource::Declared(1), Kind::FixedRate));
        assert_eq!(corrected.with_controller(None), corrected);
        let sought = pace(RateSource::Estimated(None), Kind::CubicBbr);
        assert_eq!(sought.with_carried(Some(1)), sought, "nobody has said anything");
    }
}
