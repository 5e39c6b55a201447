//! How long the engine waits.

use farlink_wire::Duration;

/// How long things last.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Timers {
    /// A half-open connection is forgotten after this.
    pub half_open: Duration,
    /// A flow without custody and traffic becomes a dormant record after this.
    pub dormant_after: Duration,
    /// A dormant record is forgotten (and its connection simply forwarded) after this.
    pub forget_after: Duration,
    /// Custody that makes no progress while the link is up is abandoned after this (RFC 5482 user
    /// timeout).
    pub user_timeout: Duration,
    /// A link may be away for so long before what waits for it is given up, and keepalives are
    /// answered no more.
    pub outage_limit: Duration,
    /// Delayed acknowledgements wait at most this long.
    pub delayed_ack: Duration,
    /// Lower bound of the retransmission timeout.
    pub rto_min: Duration,
    /// Upper bound of the retransmission timeout.
    pub rto_max: Duration,
}

impl Default for Timers {
    fn default() -> Self {
        Self {
            half_open: Duration::from_secs(75),
            dormant_after: Duration::from_secs(10),
            forget_after: Duration::from_secs(24 * 3600),
            user_timeout: Duration::from_secs(900),
            outage_limit: Duration::from_secs(24 * 3600),
            delayed_ack: Duration::from_millis(40),
            rto_min: Duration::from_millis(200),
            rto_max: Duration::from_secs(60),
        }
    }
}
