//! What an acknowledgement promises that is made here before the far host's own.

use farlink_wire::SeqNum;

use crate::config::{Notice, Pinned};
use crate::leg::Agreed;
use crate::relays::Over;

/// What an acknowledgement made here promises its source. It is read in two places: how far one may
/// run ahead of the far host's own, and which window is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Promise {
    /// The connection is free: what is acknowledged stays within the largest window that the source
    /// has seen. So it goes on, if this gateway vanishes with nothing held (invariant 7).
    #[default]
    Shown,
    /// The connection is pinned, or a gateway is told what is promised: all that is acknowledged is
    /// held, however much that is.
    Held,
    /// Custody mode: the source hears what the far host says and nothing else, in acknowledgements
    /// and windows. What is held here is its own still, so a gateway that dies loses nothing. While
    /// the link is away it may hear more.
    Nothing(Notice),
}

impl Promise {
    /// Of a connection in custody mode, or else of one whose hosts scale their windows, or do not,
    /// or have been told more than the other one said.
    #[must_use]
    pub fn of(custody: Option<Notice>, pinned: Pinned, agreed: Agreed) -> Self {
        let stands_alone = agreed.window_scale && !agreed.mss_raised;
        match (custody, pinned == Pinned::Never || stands_alone) {
            (Some(notice), _) => Self::Nothing(notice),
            (None, true) => Self::Shown,
            (None, false) => Self::Held,
        }
    }

    /// The most that may be acknowledged, `far_acked` being the far host's own word: no further
    /// ahead of that than any window that the source has seen reaches. `None`: all that is held.
    #[must_use]
    pub fn ack_max(self, far_acked: SeqNum, shown_max_bytes: u32) -> Option<SeqNum> {
        match self {
            Self::Shown => Some(far_acked + shown_max_bytes),
            Self::Held => None,
            Self::Nothing(_) => Some(far_acked),
        }
    }

    /// What it promises a gateway, which reads more than a host could: how far the far host is.
    #[must_use]
    pub fn to_gateway(self) -> Self {
        if self == Self::Shown { Self::Held } else { self }
    }

    /// What is held in order is owed to its source: it is acknowledged, or about to be.
    #[must_use]
    pub fn binds(self) -> bool {
        self.notice().is_none()
    }

    /// What sources hear while the link is away, where nothing is promised to them.
    #[must_use]
    pub fn notice(self) -> Option<Notice> {
        if let Self::Nothing(notice) = self { Some(notice) } else { None }
    }

    /// How a connection ends whose data cannot be delivered: its hosts learn it, or go on by
    /// themselves. Who was told that it is held (`noticed`) would not send it again.
    #[must_use]
    pub fn given_up(self, noticed: bool) -> Over {
        if self.binds() || noticed { Over::Abandoned } else { Over::Asleep }
    }

    /// A larger window is shown before anything is acknowledged that lies in it.
    #[must_use]
    pub fn shows_before_acking(self) -> bool {
        self == Self::Shown
    }
}
