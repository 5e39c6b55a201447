//! Frames: how the things that gateways tell each other stand in the body of an option.
//!
//! A frame is a head of one byte and a value. The high four bits of the head are its type, the low
//! four the length of the value, because a byte that is saved is room for another run. A length of
//! 15 means all that is left, so such a frame stands last. Unknown types are skipped by their
//! length, and so is what a known frame has beyond what is known of it: a newer gateway may add
//! both. A frame that is longer than the body, or shorter than its type needs, ends the reading.
//! What came before it stands.

use arrayvec::ArrayVec;

/// Largest body of an option, bytes.
pub const BODY_BYTES_MAX: usize = 36;
/// A body as it goes into an option.
pub type Body = ArrayVec<u8, BODY_BYTES_MAX>;

/// The length that means all that is left.
const REST: u8 = 15;

/// What a frame is about.
///
/// Type 1 is taken: a body of version 1 begins so (`v1.rs`). Type 15 is kept for types that need
/// another byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// What the far host has acknowledged: 4 bytes.
    FarAck = 2,
    /// The window in units (2 bytes), and how much of it will be passed on in time (2 more), where
    /// that is not all.
    Window = 3,
    /// What has come in over the link: time (4) and bytes (4).
    Arrived = 4,
    /// What is held above a gap: all that is left.
    Runs = 5,
    /// Who speaks: [`super::Hello`].
    Hello = 6,
    /// Authentication, when there will be some: a counter of 40 bits, then 64 bits of a tag over
    /// segment and counter, by the key that the hello names. Stands before the runs. Without a key
    /// it is skipped.
    Tag = 7,
    /// How many segments with XCP's own header have come over the link, modulo 2^16: 2 bytes.
    Shims = 8,
    /// What is known of the link that the segment goes over: [`super::Advert`], 3 bytes or 5.
    Link = 9,
    /// How much payload of the other direction has come twice, modulo 2^32: 4 bytes.
    Twice = 10,
    /// What a gateway says of a packet of a handshake: one byte of flags ([`super::Opening`]).
    Opening = 11,
    /// How far the far host's acknowledgement is behind that of the segment: 4 bytes.
    FarBehind = 12,
}

/// Bytes of the value of a tag.
pub const TAG_BYTES: usize = 13;

impl Kind {
    const ALL: [Self; 11] = [
        Self::FarAck,
        Self::Window,
        Self::Arrived,
        Self::Runs,
        Self::Hello,
        Self::Tag,
        Self::Shims,
        Self::Link,
        Self::Twice,
        Self::Opening,
        Self::FarBehind,
    ];

    fn of(head: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == head >> 4)
    }
}

/// Appends a frame; returns whether there was room. Nothing may follow one whose value is longer
/// than 14 bytes.
pub fn push(out: &mut Body, kind: Kind, value: &[&[u8]]) -> bool {
    let bytes: usize = value.iter().map(|part| part.len()).sum();
    if out.remaining_capacity() <= bytes {
        return false;
    }
    let length = u8::try_from(bytes).map_or(REST, |n| n.min(REST));
    out.push((kind as u8) << 4 | length);
    value.iter().for_each(|part| out.extend(part.iter().copied()));
    true
}

/// The frames of a body whose types are known, in order.
#[derive(Clone, Copy, Debug)]
pub struct Frames<'a>(&'a [u8]);

impl<'a> Frames<'a> {
    /// Of this body.
    #[must_use]
    pub const fn of(body: &'a [u8]) -> Self {
        Self(body)
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = (Kind, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (&head, rest) = core::mem::take(&mut self.0).split_first()?;
            let length = if head & 15 == REST { rest.len() } else { usize::from(head & 15) };
            let (value, rest) = rest.split_at_checked(length)?;
            self.0 = rest;
            if let Some(kind) = Kind::of(head) {
                return Some((kind, value));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &[u8]) -> Vec<(Kind, Vec<u8>)> {
        Frames::of(body).map(|(kind, value)| (kind, value.to_vec())).collect()
    }

    #[test]
    fn frames_are_found_again() {
        let mut body = Body::new();
        assert!(push(&mut body, Kind::FarAck, &[&[1, 2], &[3, 4]]));
        assert!(push(&mut body, Kind::Window, &[]));
        assert!(push(&mut body, Kind::Runs, &[&[9; 20]]));
        assert_eq!(body[..7], [0x24, 1, 2, 3, 4, 0x30, 0x5f]);
        let expected = [(Kind::FarAck, vec![1, 2, 3, 4]), (Kind::Window, vec![]), (Kind::Runs, vec![9; 20])];
        assert_eq!(read(&body), expected);
        assert!(!push(&mut body, Kind::Tag, &[&[0; 10]]), "no room");
        assert!(push(&mut body, Kind::Arrived, &[&[0; 8]]), "room to the last byte");
        assert!(body.is_full());
    }

    #[test]
    fn unknown_frames_are_skipped_and_cut_ones_end_the_reading() {
        let window = (Kind::Window, vec![7, 8]);
        assert_eq!(read(&[0xd3, 1, 2, 3, 0x00, 0xf0, 0x32, 7, 8]), std::slice::from_ref(&window));
        assert_eq!(read(&[0x32, 7, 8, 0xdf, 0x32, 1, 1]), std::slice::from_ref(&window), "to the end");
        assert_eq!(read(&[0x32, 7, 8, 0x24, 1, 2, 3]), [window], "one byte is missing");
        assert_eq!(read(&[0x32]), []);
        assert_eq!(read(&[]), []);
    }

    #[test]
    fn hello_tag_and_what_a_gateway_cannot_do_without_fit_beside_timestamps() {
        // 40 bytes of options, 12 for timestamps, 4 for the head of our own.
        const ROOM: usize = 24;
        let mut body = Body::new();
        assert!(push(&mut body, Kind::Hello, &[&[0; super::super::hello::HELLO_BYTES]]));
        assert_eq!(body.len(), 9);
        assert!(push(&mut body, Kind::Tag, &[&[0; TAG_BYTES]]));
        assert!(body.len() <= ROOM, "{}", body.len());
        let mut body = Body::new();
        assert!(push(&mut body, Kind::Tag, &[&[0; TAG_BYTES]]));
        assert!(push(&mut body, Kind::FarAck, &[&[0; 4]]));
        assert!(push(&mut body, Kind::Window, &[&[0; 4]]));
        assert!(body.len() <= ROOM, "{}", body.len());
    }
}
