//! Sequence numbers that are remembered, and end by themselves.
//!
//! Whether a number lies before or behind another one can be told for 2^31 of them (RFC 9293 3.4).
//! A connection that sends more comes round: what was passed long ago seems to lie ahead. So all
//! that is remembered of a stream is a [`Bookmark`]. It is forgotten when the stream stands too far
//! from it for a window to reach (RFC 7323 2.2: 2^30). A subject names its bookmarks once
//! ([`bookmarks!`]): they are ended and checked by that list.

use core::ops::{Deref, DerefMut};

use farlink_wire::{Instant, SeqNum};

/// What lies further away than this is forgotten, bytes: no window is larger.
pub const FAR_BYTES: u32 = 1 << 30;
/// A stream looks after its bookmarks when the upper bits of where it stands change: all but so
/// many.
const PART_BITS: u32 = 24;

/// The part of a stream that this lies in.
#[must_use]
pub fn part_of(at: SeqNum) -> u8 {
    (at.0 >> PART_BITS) as u8
}

/// What lies there can be compared with what is near `here`.
#[must_use]
pub fn is_near(at: SeqNum, here: SeqNum) -> bool {
    at.diff(here).unsigned_abs() <= FAR_BYTES
}

/// A place in a stream.
pub trait Place {
    /// Where it is.
    fn seq(&self) -> SeqNum;
}

impl Place for SeqNum {
    fn seq(&self) -> SeqNum {
        *self
    }
}

impl Place for (Instant, SeqNum) {
    fn seq(&self) -> SeqNum {
        self.1
    }
}

impl<T> Place for (SeqNum, T) {
    fn seq(&self) -> SeqNum {
        self.0
    }
}

/// A place in a stream that is remembered, or none. See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bookmark<T = SeqNum>(Option<T>);

impl<T> Bookmark<T> {
    /// Nothing is remembered.
    pub const NONE: Self = Self(None);
}

impl<T> Default for Bookmark<T> {
    fn default() -> Self {
        Self::NONE
    }
}

impl<T> From<Option<T>> for Bookmark<T> {
    fn from(at: Option<T>) -> Self {
        Self(at)
    }
}

impl<T> Deref for Bookmark<T> {
    type Target = Option<T>;

    fn deref(&self) -> &Option<T> {
        &self.0
    }
}

impl<T> DerefMut for Bookmark<T> {
    fn deref_mut(&mut self) -> &mut Option<T> {
        &mut self.0
    }
}

/// What has bookmarks in a stream.
pub trait Bookmarks {
    /// The stream stands `here`: what is far away is forgotten.
    fn end_far(&mut self, here: SeqNum);
    /// Each can be compared with what is near `here`.
    fn are_near(&self, here: SeqNum) -> bool;
}

impl<T: Place> Bookmarks for Bookmark<T> {
    fn end_far(&mut self, here: SeqNum) {
        self.0.take_if(|at| !is_near(at.seq(), here));
    }
    fn are_near(&self, here: SeqNum) -> bool {
        let bound = FAR_BYTES + (2 << PART_BITS);
        self.0.as_ref().is_none_or(|at| at.seq().diff(here).unsigned_abs() <= bound)
    }
}

impl<T: Bookmarks> Bookmarks for Option<Box<T>> {
    fn end_far(&mut self, here: SeqNum) {
        if let Some(subject) = self {
            subject.end_far(here);
        }
    }
    fn are_near(&self, here: SeqNum) -> bool {
        self.as_ref().is_none_or(|subject| subject.are_near(here))
    }
}

/// The bookmarks of a subject, and those of its parts that have some.
macro_rules! bookmarks {
    ($subject:ty { $($of:ident),+ $(,)? }) => {
        impl $crate::bookmark::Bookmarks for $subject {
            fn end_far(&mut self, here: farlink_wire::SeqNum) {
                $($crate::bookmark::Bookmarks::end_far(&mut self.$of, here);)+
            }
            fn are_near(&self, here: farlink_wire::SeqNum) -> bool {
                true $(&& $crate::bookmark::Bookmarks::are_near(&self.$of, here))+
            }
        }
    };
}
pub(crate) use bookmarks;

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Part {
        packet: Bookmark<(Instant, SeqNum)>,
    }
    bookmarks!(Part { packet });

    #[derive(Default)]
    struct Subject {
        end: Bookmark,
        part: Option<Box<Part>>,
    }
    bookmarks!(Subject { end, part });

    #[test]
    fn what_is_far_away_is_forgotten() {
        for here in [0, 7, u32::MAX, 1 << 31].map(SeqNum) {
            for (away, stays) in [(0, true), (FAR_BYTES, true), (FAR_BYTES + 1, false), (1 << 31, false)] {
                for at in [here + away, here - away] {
                    let part = Some(Box::new(Part { packet: Some((Instant::ZERO, at)).into() }));
                    let mut subject = Subject { end: Some(at).into(), part };
                    assert!(subject.are_near(here) == (away <= FAR_BYTES + 1), "{away}");
                    subject.end_far(here);
                    let part = subject.part.as_ref().is_some_and(|part| part.packet.is_some());
                    assert_eq!((subject.end.is_some(), part), (stays, stays), "{away}");
                    assert!(subject.are_near(here));
                }
            }
        }
    }
}
