//! When an acknowledgement of what a source sent is due. Each leg has a policy, and only the policy
//! decides. Which leg has which: `policies.rs`.

use farlink_wire::{Duration, Instant};

/// Below this RTT gateways acknowledge as hosts do.
const GATEWAY_RTT_MIN: Duration = Duration::from_millis(40);

/// So many acknowledgements in a round trip where they tell how fast.
const EXPLICIT_PARTS: u32 = 16;
/// The same where they could, and no router does: the gateway looks for the rate by them.
const SEEKING_PARTS: u32 = 32;

/// The same where the source's window is all that holds it.
const WINDOW_PARTS: u32 = 64;
/// Such a window has 16 segments for each acknowledgement.
const WINDOW_WORTH_BYTES: u64 = 64 * 16 * 1_460;

/// In custody mode a gateway near by hears what is held here when the far host has not spoken for
/// so long.
const HELD_TOLD_AFTER: Duration = Duration::from_millis(2);

/// The acknowledgement that is owed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owed {
    /// None.
    Nothing,
    /// By this time at the latest.
    By(Instant),
    /// At once.
    Now,
}

impl Owed {
    /// The one of the two that is due first.
    #[must_use]
    pub fn sooner(self, other: Self) -> Self {
        match (self, other) {
            (Self::Now, _) | (_, Self::Now) => Self::Now,
            (Self::Nothing, one) | (one, Self::Nothing) => one,
            (Self::By(a), Self::By(b)) => Self::By(a.min(b)),
        }
    }
}

/// What a payload that came says of the stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum News {
    /// It continues the stream, and nothing waits above a hole.
    InOrder,
    /// It lies above a hole, or something waits above one, or part of it had come before.
    AtGap,
    /// It shows a hole that nobody has been told of.
    NewGap,
    /// All of it had come before, or nothing of it could be taken.
    Nothing,
}

/// What a policy goes by.
#[derive(Clone, Copy, Debug)]
pub struct Came {
    /// What the payload says.
    pub news: News,
    /// It completes the second full-sized segment since the last acknowledgement, or each one is
    /// acknowledged for now.
    pub is_second: bool,
    /// As much is not acknowledged as an initial window holds.
    pub is_window: bool,
    /// The source is to learn the path's RTT from acknowledgements that come this late.
    pub stretched: Option<Duration>,
}

/// How soon what comes is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AckPolicy {
    /// As a host does it: every second full-sized segment at once, a single one after this delay
    /// (RFC 9293 3.8.6.3), everything at once that has to do with a gap (RFC 5681 4.2), and after a
    /// gap a few segments one by one, as Linux does.
    Host(Duration),
    /// To a gateway, which sends by what it knows of the link and not by the clock of
    /// acknowledgements: one for each interval, a new gap at once.
    Gateway(Duration),
    /// The same where the gateway may begin by the clock of acknowledgements, as a host does: what
    /// an initial window holds is acknowledged at once.
    Beginning(Duration),
    /// None for what comes here: the source hears the far host's acknowledgements. Only of a hole
    /// that the far host stands before is it told here, and what the far host has is acknowledged
    /// again. A source that may give up is told to wait.
    Silent {
        /// It lies behind a hole that the far host stands before, the far host has it, or its
        /// source may give up.
        is_answered: bool,
    },
}

impl AckPolicy {
    /// To a gateway behind this RTT: at most 8 acknowledgements for each, and at most 12 per second
    /// where it is 250 ms or more. `None` where so few would be felt.
    #[must_use]
    pub fn to_gateway(rtt: Duration) -> Option<Self> {
        let second = Duration::from_secs(1);
        (rtt >= GATEWAY_RTT_MIN).then(|| Self::Gateway((rtt / 8).max((rtt / 3).min(second / 12))))
    }

    /// The same where routers say with acknowledgements how fast (XCP): what comes late is steered
    /// late.
    #[must_use]
    pub fn to_explicit_gateway(rtt: Duration) -> Option<Self> {
        Self::to_gateway(rtt).map(|_| Self::Gateway(rtt / EXPLICIT_PARTS))
    }

    /// The same where none says it: the gateway goes by the clock of acknowledgements.
    #[must_use]
    pub fn to_seeking_gateway(rtt: Duration) -> Option<Self> {
        Self::to_gateway(rtt).map(|_| Self::Gateway(rtt / SEEKING_PARTS))
    }

    /// The same to a source that has this window, and no more, under way: with each 64th of it,
    /// where that is worth an acknowledgement.
    #[must_use]
    pub fn by_window(self, rtt: Duration, window_bytes: u64) -> Self {
        match self {
            Self::Gateway(interval) if window_bytes >= WINDOW_WORTH_BYTES => {
                Self::Gateway(interval.min(rtt / WINDOW_PARTS))
            }
            other => other,
        }
    }

    /// The same where the acknowledgement is the far host's, and tells what is held here.
    #[must_use]
    pub fn of_held_to_gateway(rtt: Duration) -> Self {
        Self::to_gateway(rtt).unwrap_or(Self::Gateway(HELD_TOLD_AFTER))
    }

    /// The same at the beginning of a stream.
    #[must_use]
    pub const fn at_beginning(self) -> Self {
        if let Self::Gateway(interval) = self { Self::Beginning(interval) } else { self }
    }

    /// Whoever is behind this RTT acknowledges at once, a gateway, too: it is near.
    #[must_use]
    pub fn is_near(rtt: Duration) -> bool {
        Self::to_gateway(rtt).is_none()
    }

    /// The acknowledgement that is owed for what came.
    #[must_use]
    pub fn owed(self, now: Instant, came: &Came) -> Owed {
        match (self, came.news) {
            (Self::Silent { is_answered: true }, News::AtGap | News::NewGap | News::Nothing)
            | (Self::Host(_), News::AtGap | News::NewGap | News::Nothing)
            | (Self::Gateway(_) | Self::Beginning(_), News::NewGap) => Owed::Now,
            (Self::Beginning(_), News::InOrder) if came.is_window => Owed::Now,
            (Self::Silent { .. }, _) => Owed::Nothing,
            (Self::Host(delay), News::InOrder) => match came.stretched {
                Some(late) => Owed::By(now + late),
                None if came.is_second => Owed::Now,
                None => Owed::By(now + delay),
            },
            (Self::Gateway(interval) | Self::Beginning(interval), News::AtGap) => {
                Owed::By(now + interval / 4)
            }
            (Self::Gateway(interval) | Self::Beginning(interval), News::InOrder) => Owed::By(now + interval),
            // Copies come in two bursts, a part of a round trip apart.
            (Self::Gateway(interval) | Self::Beginning(interval), News::Nothing) => {
                Owed::By(now + interval / 2 * 3)
            }
        }
    }

    /// After a gap a few segments are acknowledged one by one.
    #[must_use]
    pub const fn is_quick_after_gaps(self) -> bool {
        matches!(self, Self::Host(_))
    }

    /// The longest wait. What is new, and no payload, waits so long for an acknowledgement that
    /// leaves anyway.
    #[must_use]
    pub const fn longest(self) -> Duration {
        match self {
            Self::Host(d) | Self::Gateway(d) | Self::Beginning(d) => d,
            Self::Silent { .. } => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gateways_acknowledge_a_few_times_a_round_trip() {
        let interval = |ms: u64| AckPolicy::to_gateway(Duration::from_millis(ms)).map(AckPolicy::longest);
        assert_eq!(interval(20), None, "a terrestrial leg is acknowledged as to a host");
        for ms in [40u64, 100, 250, 500, 700, 1300] {
            let wait = interval(ms).unwrap();
            assert!(wait * 8 >= Duration::from_millis(ms), "{ms}: more than 8 for each round trip");
            assert!(wait * 2 <= Duration::from_millis(ms), "{ms}: fewer than 2");
            assert!(ms < 250 || wait * 12 >= Duration::from_millis(999), "{ms}: more than 12 per second");
        }
    }

    #[test]
    fn a_window_that_is_all_there_is_is_acknowledged_more_often() {
        let (rtt, wait) = (Duration::from_millis(640), Duration::from_millis(100));
        let by = |window_bytes| AckPolicy::Gateway(wait).by_window(rtt, window_bytes);
        assert_eq!(by(65_535 << 10), AckPolicy::Gateway(Duration::from_millis(10)));
        assert_eq!(by(65_535), AckPolicy::Gateway(wait), "a small one is not worth it");
        assert_eq!(AckPolicy::Host(wait).by_window(rtt, 65_535 << 10), AckPolicy::Host(wait));
    }

    #[test]
    fn a_policy_decides_by_what_came() {
        let (now, wait) = (Instant::ZERO, Duration::from_millis(80));
        let owed = |policy: AckPolicy, news, is_second, stretched| {
            policy.owed(now, &Came { news, is_second, is_window: is_second, stretched })
        };
        let (host, gateway) = (AckPolicy::Host(wait), AckPolicy::Gateway(wait));
        assert_eq!(owed(host, News::InOrder, false, None), Owed::By(now + wait));
        assert_eq!(owed(host, News::InOrder, true, None), Owed::Now);
        assert_eq!(owed(host, News::InOrder, true, Some(wait * 2)), Owed::By(now + wait * 2));
        assert_eq!(owed(host, News::AtGap, false, Some(wait)), Owed::Now);
        assert_eq!(owed(gateway, News::InOrder, true, None), Owed::By(now + wait));
        assert_eq!(owed(gateway, News::AtGap, true, None), Owed::By(now + wait / 4));
        assert_eq!(owed(gateway, News::NewGap, false, None), Owed::Now);
        assert_eq!(owed(gateway, News::Nothing, true, None), Owed::By(now + wait / 2 * 3));
        let begins = gateway.at_beginning();
        assert_eq!(owed(begins, News::InOrder, true, None), Owed::Now, "an initial window is full");
        assert_eq!(owed(begins, News::InOrder, false, None), Owed::By(now + wait));
        assert_eq!(host.at_beginning(), host);
    }

    #[test]
    fn what_is_due_first_counts() {
        let at = |ms| Owed::By(Instant::ZERO + Duration::from_millis(ms));
        assert_eq!(at(5).sooner(at(3)), at(3));
        assert_eq!(Owed::Nothing.sooner(at(3)), at(3));
        assert_eq!(at(3).sooner(Owed::Now), Owed::Now);
        assert_eq!(Owed::Now.sooner(Owed::Nothing), Owed::Now);
    }
}
