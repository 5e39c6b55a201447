//! How much may leave ahead of a window, by what is known of the host.

/// A host that has acknowledged so much beyond its windows takes all of it.
const PROOF_BYTES: u32 = 64 << 10;

/// What may leave ahead of a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Leave {
    /// Nothing: the window is waited for.
    #[default]
    Nothing,
    /// One segment, and the next when that is acknowledged.
    Segment,
    /// So many bytes, and the next when these are acknowledged.
    Bytes(u32),
    /// All.
    All,
}

/// What a host, or whoever stands before it, makes of segments that are ahead of its window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Known {
    /// So many bytes of them were acknowledged.
    Takes(u32),
    /// They are refused.
    Refuses(Refusal),
}

impl Default for Known {
    fn default() -> Self {
        Self::Takes(0)
    }
}

/// How they were refused, within a round trip.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// By a reset.
    Reset,
    /// Exactly they were dropped.
    Dropped,
}

impl Known {
    /// The same when so many more have been acknowledged; `None`: that changes nothing.
    #[must_use]
    pub fn more(self, bytes: u64) -> Option<Self> {
        let Self::Takes(before) = self else { return None };
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        (bytes > 0).then(|| Self::Takes(before.saturating_add(bytes).min(PROOF_BYTES)))
    }

    /// It takes all that comes.
    #[must_use]
    pub fn takes_all(self) -> bool {
        matches!(self, Self::Takes(bytes) if bytes >= PROOF_BYTES)
    }

    /// What may leave then.
    #[must_use]
    pub fn leave(self) -> Leave {
        match self {
            Self::Takes(0) => Leave::Segment,
            Self::Takes(bytes) if bytes < PROOF_BYTES => Leave::Bytes(PROOF_BYTES),
            Self::Takes(_) => Leave::All,
            Self::Refuses(_) => Leave::Nothing,
        }
    }
}

/// Whether a window is waited for, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waited {
    /// Nobody has to ask: it is not towards a host behind a link.
    Elsewhere,
    /// The configuration says that it is not.
    Told,
    /// The configuration says that it is.
    Off,
    /// The link is metered.
    Metered,
    /// Nobody has said how fast the link is, it carries clearly less than that, or it holds no more
    /// in a round trip than any window.
    Link,
    /// Some of what the host sends is seen to go round this gateway: so may a reset for what leaves
    /// ahead, and nobody here could keep it from the other host.
    Round,
    /// By what is known of the host.
    Known(Known),
}

impl Waited {
    /// What may leave then.
    #[must_use]
    pub fn leave(self) -> Leave {
        match self {
            Self::Elsewhere | Self::Off | Self::Metered | Self::Link | Self::Round => Leave::Nothing,
            Self::Told => Leave::All,
            Self::Known(known) => known.leave(),
        }
    }

    /// For people; empty: there is nothing to say.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Elsewhere => "",
            Self::Told => "on",
            Self::Off => "off",
            Self::Metered => "off: metered",
            Self::Link => "off: link",
            Self::Round => "off: round",
            Self::Known(Known::Refuses(Refusal::Reset)) => "off: reset",
            Self::Known(Known::Refuses(Refusal::Dropped)) => "off: dropped",
            Self::Known(known) if known.takes_all() => "on",
            Self::Known(_) => "tried",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_begins_with_one_segment_and_earns_the_rest() {
        let unknown = Known::default();
        assert_eq!(unknown.leave(), Leave::Segment);
        let one = unknown.more(1_448).unwrap();
        assert_eq!(one.leave(), Leave::Bytes(PROOF_BYTES));
        let all = one.more(u64::from(PROOF_BYTES)).unwrap();
        assert_eq!((all.leave(), all.more(u64::MAX)), (Leave::All, Some(all)));
        let refused = Known::Refuses(Refusal::Reset);
        assert_eq!((refused.leave(), refused.more(1_448)), (Leave::Nothing, None));
    }
}
