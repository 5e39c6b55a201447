//! Which deadline passes next, and what it is for. A loop that is called again and again, and does
//! nothing, shows by that what it waits for.

use farlink_wire::Instant;

/// What a deadline is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Due {
    /// Retransmission timeout (RFC 6298).
    Retransmission,
    /// Tail loss probe (RFC 8985 section 7).
    TailProbe,
    /// What was not lost yet may be now (RFC 8985 section 6).
    Reordering,
    /// A closed window is probed (RFC 9293 section 3.8.6.1).
    Persist,
    /// A receiver is asked where it stands: bytes may have gone round us.
    Gap,
    /// Pacing lets the next burst go.
    Pacing,
    /// The next round of early repetition.
    EarlyRepetition,
    /// Delayed acknowledgement (RFC 9293 section 3.8.6.3).
    DelayedAck,
    /// Who holds nothing and is silent falls asleep.
    Dormancy,
    /// Draining begins.
    Draining,
    /// A reset has waited long enough for what stands before it.
    Reset,
    /// A source can be shown a larger window.
    Window,
    /// A FIN has waited long enough for its destination.
    Fin,
    /// Custody without progress is given up (RFC 5482).
    UserTimeout,
    /// A closed connection asks its hosts, or is forgotten.
    Tombstone,
    /// A sleeping connection is forgotten.
    Sleeper,
    /// A handshake that was never completed is forgotten.
    HalfOpen,
    /// The pool gives blocks back.
    Pool,
    /// A silent link is asked.
    LinkProbe,
    /// Somebody near by has not answered.
    Answer,
    /// The hosts of a sleeping connection are asked whether they live.
    Keepalive,
    /// A link has been away for as long as the operator allows.
    OutageLimit,
}

impl Due {
    /// For people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Retransmission => "retransmission",
            Self::TailProbe => "tail loss probe",
            Self::Reordering => "reordering",
            Self::Persist => "persist",
            Self::Gap => "gap",
            Self::Pacing => "pacing",
            Self::EarlyRepetition => "early repetition",
            Self::DelayedAck => "delayed acknowledgement",
            Self::Dormancy => "dormancy",
            Self::Draining => "draining",
            Self::Reset => "reset",
            Self::Window => "window",
            Self::Fin => "FIN",
            Self::UserTimeout => "user timeout",
            Self::Tombstone => "tombstone",
            Self::Sleeper => "sleeper",
            Self::HalfOpen => "half-open connection",
            Self::Pool => "pool",
            Self::LinkProbe => "link probe",
            Self::Answer => "answer",
            Self::Keepalive => "keepalive",
            Self::OutageLimit => "outage limit",
        }
    }
}

/// When something happens without a packet, and what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deadline<W = Due> {
    /// When.
    pub at: Instant,
    /// What.
    pub what: W,
}

/// The earliest of several deadlines; of several at one time the first. It is asked after every
/// packet, so it is part of its caller, and what is never due is a time like any other.
#[derive(Clone, Copy, Debug)]
pub struct Earliest<W = Due> {
    at: Instant,
    what: Option<W>,
}

impl<W> Default for Earliest<W> {
    fn default() -> Self {
        Self { at: Instant::FAR_FUTURE, what: None }
    }
}

impl<W> Earliest<W> {
    /// This is due at this time, if there is one.
    #[must_use]
    #[inline(always)]
    pub fn and(self, what: W, at: Option<Instant>) -> Self {
        let at = at.unwrap_or(Instant::FAR_FUTURE);
        if at < self.at { Self { at, what: Some(what) } } else { self }
    }

    /// The earliest of others counts, too.
    #[must_use]
    #[inline(always)]
    pub fn and_of(self, other: Option<Deadline<W>>) -> Self {
        match other {
            Some(Deadline { at, what }) => self.and(what, Some(at)),
            None => self,
        }
    }

    /// It, if there is one.
    #[must_use]
    #[inline(always)]
    pub fn deadline(self) -> Option<Deadline<W>> {
        self.what.map(|what| Deadline { at: self.at, what })
    }
}
