//! How a flow is treated. Each treatment has its own state, and nothing of another one's.

use crate::closed::Closed;
use crate::dormant::Dormant;
use crate::relays::Relays;

/// How a flow is treated. A connection without a flow is simply forwarded.
#[derive(Debug)]
pub enum Treatment {
    /// Two relays hold and send.
    Split(Box<Relays>),
    /// Forwarded; split again when both directions are seen fully acknowledged.
    Dormant(Dormant),
    /// Gone; answers late segments for a while.
    Closed(Closed),
}

/// What an event has made of a flow.
#[derive(Debug)]
pub enum Next {
    /// It goes on as it is.
    Stay,
    /// It is treated so from now on.
    Become(Treatment),
    /// It leaves the table.
    Forget,
}

impl Treatment {
    /// For people.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Split(relays) if relays.is_draining() => "draining",
            Self::Split(_) => "split",
            Self::Dormant(_) => "dormant",
            Self::Closed(_) => "closed",
        }
    }
}
