//! What goes into a controller: its configuration and the events it hears.

use core::fmt;
use core::str::FromStr;

use farlink_wire::time::{Duration, Instant};

/// Which algorithm governs the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
#[non_exhaustive]
pub enum Kind {
    /// RFC 5681 and RFC 6582 with byte counting (RFC 3465) and HyStart++ (RFC 9406).
    NewReno,
    /// RFC 9438 with HyStart++ (RFC 9406).
    #[default]
    Cubic,
    /// Caini and Firrincieli 2004: a long round trip grows as fast in time as one of 25 ms. For
    /// declared links: beside other traffic of long round trips it takes more than its share.
    Hybla,
    /// Brakmo and Peterson 1995 with Linux' thresholds: by delay, keeps two to four segments of its
    /// own in the queue. Yields to traffic that fills queues.
    Vegas,
    /// draft-ietf-ccwg-bbr, version 3: by a model of the path's rate and RTT.
    Bbr,
    /// The larger window of [`Self::Cubic`] and [`Self::Bbr`]: for a declared link of unknown rate.
    CubicBbr,
    /// No congestion control at all: for a declared link, whose rate its owner knows. The window is
    /// the limit, the egress queue (or a configured rate) is the clock.
    FixedRate,
    /// At the rate of a declared link, as long as nothing behind it is narrower; else BBR. It takes
    /// the place of [`Self::FixedRate`] where no gateway is heard at the other end of the link, and
    /// is not chosen by name.
    KnownRate,
    /// At the rate that routers on the way say (XCP, draft-falk-xcp-spec-03), and by BBR where none
    /// speaks. For declared links with a gateway at the other end.
    Xcp,
    /// A fixed window, sent as fast as it fills, whatever is lost: for comparison only (Reynolds
    /// 4.4).
    Unfair,
}

impl Kind {
    /// Every kind that can be chosen, in the order in which a person should read them.
    pub const ALL: &'static [Self] = &[
        Self::NewReno,
        Self::Cubic,
        Self::Hybla,
        Self::Vegas,
        Self::Bbr,
        Self::CubicBbr,
        Self::FixedRate,
        Self::Xcp,
        Self::Unfair,
    ];

    /// Those that are no more aggressive than TCP towards strangers: for legs that are nobody's
    /// own.
    pub const ORDINARY: &'static [Self] = &[Self::NewReno, Self::Cubic, Self::Vegas, Self::Bbr];

    /// A link's own queue is the clock of what it sends: there is no congestion control, and the
    /// leg ends with the link.
    #[must_use]
    pub const fn is_clocked_by_queue(self) -> bool {
        matches!(self, Self::FixedRate)
    }

    /// It goes by the rate of a link, rather than by what it measures itself.
    #[must_use]
    pub const fn goes_by_link_rate(self) -> bool {
        matches!(self, Self::FixedRate | Self::KnownRate)
    }

    /// The name used in configuration files and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NewReno => "reno",
            Self::Cubic => "cubic",
            Self::Hybla => "hybla",
            Self::Vegas => "vegas",
            Self::Bbr => "bbr",
            Self::CubicBbr => "cubic-bbr",
            Self::FixedRate => "fixed-rate",
            Self::KnownRate => "known-rate",
            Self::Xcp => "xcp",
            Self::Unfair => "unfair",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that is no congestion controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownKind(pub String);

impl fmt::Display for UnknownKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown congestion control {:?}; known are", self.0)?;
        for (i, kind) in Kind::ALL.iter().enumerate() {
            write!(f, "{} {kind}", if i == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl core::error::Error for UnknownKind {}

impl FromStr for Kind {
    type Err = UnknownKind;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        Self::ALL.iter().copied().find(|kind| kind.name() == s).ok_or_else(|| UnknownKind(s.to_owned()))
    }
}

/// How a controller starts and where its bounds are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// The algorithm.
    pub kind: Kind,
    /// Largest payload of a segment on this leg, in bytes (SMSS of RFC 5681).
    pub mss: u32,
    /// Initial window in segments; RFC 6928 gives 10.
    pub initial_window_segments: u32,
    /// [`Kind::FixedRate`]: the rate to pace at, in bits per second; `None`: unpaced, the egress
    /// queue is the clock. [`Kind::KnownRate`]: what the link carries of payload. [`Kind::Xcp`]: no
    /// more is ever believed.
    pub fixed_rate_bps: Option<u64>,
    /// The window never grows past this many bytes; for [`Kind::FixedRate`] it *is* the window.
    pub window_limit_bytes: u64,
    /// [`Kind::Unfair`] only: its window, at most `window_limit_bytes`; `None`: as much as that.
    pub unfair_window_bytes: Option<u64>,
    /// RTT of the leg, when the handshake has shown it.
    pub handshake_rtt: Option<Duration>,
    /// [`Kind::KnownRate`]: so long acknowledgements may wait for their own way back, which says
    /// nothing of the way there.
    pub acks_wait: Duration,
    /// The receiver acknowledges selectively, so more than one loss is seen in a round trip.
    pub selective_acks: bool,
    /// [`Kind::Bbr`] only: where its random waiting times begin, so that flows do not probe in
    /// step.
    pub seed: u64,
    /// NewReno and CUBIC: leave slow start on rising delay (HyStart++, RFC 9406).
    pub hystart: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            kind: Kind::Cubic,
            mss: 1460,
            initial_window_segments: 10,
            fixed_rate_bps: None,
            window_limit_bytes: 64 << 20,
            unfair_window_bytes: None,
            handshake_rtt: None,
            acks_wait: Duration::ZERO,
            selective_acks: true,
            seed: 0,
            hystart: true,
        }
    }
}

/// What one arriving acknowledgement says. Every ACK that acknowledges something new (cumulatively
/// or by SACK) is reported, in recovery too: rounds and RTTs are counted there as well.
#[derive(Clone, Copy, Debug)]
pub struct Ack {
    /// When it arrived.
    pub now: Instant,
    /// Bytes newly acknowledged: cumulatively, or by SACK for the first time. A byte counts once.
    pub acked_bytes: u64,
    /// The newest RTT sample of this ACK, not from a retransmitted segment.
    pub rtt: Option<Duration>,
    /// Smoothed RTT (RFC 6298); zero while unknown.
    pub srtt: Duration,
    /// Smallest RTT seen on this leg; zero while unknown.
    pub min_rtt: Duration,
    /// Bytes in flight after this ACK.
    pub in_flight_bytes: u64,
    /// Bytes in flight before this ACK.
    pub prior_in_flight_bytes: u64,
    /// What the newest segment that it covers has measured.
    pub sample: Sample,
    /// The sender had less to send than the window allowed (the source or the receiver's window was
    /// the limit).
    pub app_limited: bool,
    /// Fast recovery (or CWR after ECN) is under way: PRR governs, the window does not grow. False
    /// in the slow start that follows a time-out.
    pub in_recovery: bool,
    /// This ACK covers the first byte sent after the previous round's first ACK: a round trip has
    /// passed.
    pub round_start: bool,
    /// So much of `rtt` the ACK waited on its way back, by the receiver's clock: not the delay of
    /// the forward path; `None`: nobody knows.
    pub waited_back: Option<Duration>,
}

/// A delivery-rate sample (draft-ietf-ccwg-bbr 4.1; `RS` there): from the time when the newest
/// segment just acknowledged was sent, until now.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    /// Bits per second; `None`: the interval was too short to tell.
    pub rate_bps: Option<u64>,
    /// Bytes delivered on this leg so far.
    pub delivered_bytes: u64,
    /// That count when the segment was sent.
    pub prior_delivered_bytes: u64,
    /// Bytes in flight when it had been sent, itself included.
    pub tx_in_flight_bytes: u64,
    /// Bytes taken for lost since it was sent.
    pub lost_bytes: u64,
    /// When it was sent the source had not had enough to send.
    pub app_limited: bool,
}

/// A transmission that is taken for lost.
#[derive(Clone, Copy, Debug)]
pub struct Lost {
    /// When that became known.
    pub now: Instant,
    /// Its payload.
    pub bytes: u64,
    /// Segments that it was sent in. They may be larger than a packet.
    pub segments: u64,
    /// Bytes in flight when it had been sent, itself included.
    pub tx_in_flight_bytes: u64,
    /// Bytes taken for lost since it was sent, itself included.
    pub lost_since_sent_bytes: u64,
    /// When it was sent the source had not had enough to send.
    pub app_limited: bool,
    /// It follows directly on the one reported before: the same gap.
    pub continues: bool,
    /// Bytes delivered on this leg so far.
    pub delivered_bytes: u64,
}

/// What may be sent a second time before anybody can know whether it was lost, with what a link of
/// one's own has idle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Copies {
    /// Nothing.
    None,
    /// The last segment.
    End,
    /// All that is in flight.
    All,
}

/// Why the sender believes that the path is congested.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Congestion {
    /// Segments were lost.
    Loss,
    /// The receiver echoed congestion-experienced marks (RFC 3168).
    Ecn,
}
