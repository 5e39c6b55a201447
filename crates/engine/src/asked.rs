//! Which segments of a handshake have gone on over a link with our option, and which as they came:
//! what answers them tells whether a box on the way drops those that have it.

use core::num::NonZeroU32;

use farlink_wire::{Duration, Instant, TcpSegment};

/// What follows so soon behind one with the option is no repetition of a host: a gateway has sent
/// both (see [`crate::link::Boxes`]).
pub const COPY_APART: Duration = Duration::from_millis(200);

/// How a segment goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Goes {
    /// As it came.
    Plain,
    /// With the option. Where the link loses, it may leave so twice.
    With,
    /// With the option, and right behind it once more as it came: one of both gets through a box
    /// that drops the option.
    Both,
}

/// Which of several segments has been answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answered {
    /// One with the option.
    With,
    /// One that went as it came, or behind one with the option; none before it has.
    Plain,
    /// Nobody knows.
    Either,
}

/// A time in milliseconds, modulo 2^32 and to two of them: there may be very many half-open
/// connections, and of each there are several.
#[derive(Clone, Copy, Debug)]
struct At(NonZeroU32);

impl At {
    fn of(now: Instant) -> Self {
        Self(NonZeroU32::MIN | (now.as_nanos() / 1_000_000) as u32)
    }

    /// Zero before it has come.
    fn since(self, now: Instant) -> Duration {
        let ms = Self::of(now).0.get().wrapping_sub(self.0.get()) as i32;
        Duration::from_millis(u64::try_from(ms).unwrap_or(0))
    }
}

/// When a segment has gone on, and its TSval.
#[derive(Clone, Copy, Debug)]
struct Stamped {
    at: At,
    stamp: u32,
}

/// The SYNs of a connection that have gone on, or the answers to them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gone {
    /// The newest with the option.
    with: Option<Stamped>,
    /// The newest that went as it came, alone or behind one with the option. `None` also where only
    /// the first has.
    plain: Option<Stamped>,
    /// The first went both ways.
    began_with_both: bool,
}

impl Gone {
    /// One has gone on, and has left then.
    pub fn note(&mut self, left_at: Instant, s: &TcpSegment, how: Goes) {
        let gone = Some(Stamped { at: At::of(left_at), stamp: s.options.timestamps.map_or(0, |t| t.val) });
        match how {
            Goes::Plain => self.plain = gone,
            Goes::With => self.with = gone,
            Goes::Both if self.with.is_some() => self.plain = gone,
            Goes::Both => (self.with, self.began_with_both) = (gone, true),
        }
    }

    /// One has gone on with the option.
    #[must_use]
    pub fn has_with(&self) -> bool {
        self.with.is_some()
    }

    /// One has gone on as it came, or right behind the one with the option.
    #[must_use]
    pub fn has_plain(&self) -> bool {
        self.plain.is_some() || self.began_with_both
    }

    /// So long ago one has left with the option alone.
    #[must_use]
    pub fn waits(&self, now: Instant) -> Duration {
        self.with.filter(|_| !self.began_with_both).map_or(Duration::ZERO, |with| with.at.since(now))
    }

    /// One with the option has gone on just now.
    #[must_use]
    pub fn is_with_at(&self, now: Instant) -> bool {
        self.with.is_some_and(|with| with.at.since(now) < COPY_APART)
    }

    /// Which of them this segment, which comes now, answers: by the stamp that it echoes, which is
    /// that of the first that has arrived, or else by the time since, in round trips.
    #[must_use]
    pub fn answered(&self, now: Instant, by: &TcpSegment, rtt: Option<Duration>) -> Answered {
        let (with, plain) = match (self.with, self.plain) {
            _ if self.began_with_both => return Answered::Either,
            (None, _) => return Answered::Plain,
            (Some(_), None) => return Answered::With,
            (Some(with), Some(plain)) => (with, plain),
        };
        let is_later = |a: u32, b: u32| (a.wrapping_sub(b) as i32) > 0;
        let echo = by.options.timestamps.map(|t| t.ecr).filter(|_| plain.stamp != with.stamp);
        let is_plains = match echo {
            _ if is_later(with.at.0.get(), plain.at.0.get()) => return Answered::Either,
            Some(echo) => is_later(echo, with.stamp),
            None => rtt.is_none_or(|rtt| plain.at.since(now) >= rtt / 4 * 3),
        };
        if is_plains { Answered::Plain } else { Answered::With }
    }
}

/// The SYNs that have come over a link from a gateway, or from a host behind none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Came {
    asked_at: Option<At>,
    is_plain: bool,
}

impl Came {
    /// One has come.
    pub fn note(&mut self, now: Instant, asks: bool) {
        if asks {
            *self = Self { asked_at: Some(At::of(now)), is_plain: false };
        } else if !self.has_just_asked(now) {
            self.is_plain = true;
        }
    }

    /// One has come with the option just now: what comes without it is the copy that a gateway has
    /// sent right behind it.
    #[must_use]
    pub fn has_just_asked(&self, now: Instant) -> bool {
        self.asked_at.is_some_and(|at| at.since(now) < COPY_APART)
    }

    /// The newest came without the option. It is answered without it: a box on the way may have
    /// dropped the answer that had it.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.is_plain
    }
}
