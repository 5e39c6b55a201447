//! What can change about a link from outside.

use farlink_cc as cc;

use super::{LinkEstimate, Pace, Witness};
use crate::config::InitialWindow;

/// A change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// The operator says the rate, in bits per second of IP packets; `None`: he does not know it.
    Rate(Option<u64>),
    /// The operator names a controller; `None`: whatever follows from what is known of the rate.
    Controller(Option<cc::Kind>),
    /// The gateways have found out the rate where nobody says it; `None`: they no longer know
    /// anything.
    Estimate(Option<LinkEstimate>),
    /// The link carries so much less than the operator says; `None`: it carries that.
    Carried(Option<u64>),
    /// A witness says that it is up (`true`) or down. Ordinary interfaces may be down, too.
    Up(Witness, bool),
    /// The initial window of connections that begin from now on.
    InitialWindow(InitialWindow),
}

impl Change {
    /// What it makes of the pace.
    pub(crate) fn of(self, pace: Pace) -> Pace {
        match self {
            Self::Rate(rate_bps) => pace.with_rate(rate_bps),
            Self::Controller(kind) => pace.with_controller(kind),
            Self::Estimate(estimate) => pace.with_estimate(estimate),
            Self::Carried(carries_bps) => pace.with_carried(carries_bps),
            Self::Up(..) | Self::InitialWindow(_) => pace,
        }
    }
}
