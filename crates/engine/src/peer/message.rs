//! What a gateway tells with a segment.

use farlink_wire::{SeqNum, options::FARLINK_HEAD_BYTES};

use super::frame::{self, Body, Frames, Kind, TAG_BYTES};
use super::{Advert, Capability, Hello, Identity, v1};
use crate::runs::Runs;

/// The window is told in units of this many bytes.
pub const WINDOW_UNIT: u32 = 1024;
/// The largest window that can be told, bytes.
pub const TOLD_WINDOW_MAX: u32 = u16::MAX as u32 * WINDOW_UNIT;

/// What a gateway tells with a segment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Message {
    /// What the far host has acknowledged, of the data that flows towards it.
    pub far_ack: Option<SeqNum>,
    /// So far is that behind the acknowledgement number of the segment. Boxes on the way that
    /// translate sequence numbers do not know it. Version 1, and older gateways, have no room for
    /// it.
    pub far_behind: Option<u32>,
    /// Window in bytes from the acknowledgement number on, where the header's field is too small.
    pub window_bytes: Option<u32>,
    /// Of the window, what it will be able to pass on one link delay from now; `None`: all of it.
    pub soft_window_bytes: Option<u32>,
    /// What has come in over the link.
    pub arrived: Option<Arrived>,
    /// How many segments with XCP's own header have.
    pub shims: Option<u16>,
    /// What is known of the link. Version 1 has no room for it.
    pub link: Option<Advert>,
    /// How much of what the gateway has sent has come twice, modulo 2^32: what it sent again
    /// without need. Version 1 has no room for it.
    pub twice_bytes: Option<u32>,
    /// What it holds above a gap. Stands last: the rest of the option is theirs.
    pub runs: Runs,
}

/// How much has come in over a link, from which the gateway at its other end finds the link's rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrived {
    /// The identity of the gateway that counts.
    pub by: Identity,
    /// When the flow's newest segment came, microseconds of that gateway's clock, modulo 2^32.
    pub at_us: u32,
    /// Bytes of packets that had come in over the link by then, that segment included, modulo 2^32.
    pub received_bytes: u32,
}

impl Message {
    /// Bytes of options that it takes beyond a bare mark, for which there may be room in the
    /// padding: options are padded to four.
    #[must_use]
    pub fn header_bytes(&self, to: Hello, in_padding: bool) -> u32 {
        let apart = |body: usize| (FARLINK_HEAD_BYTES + body).next_multiple_of(4) as u32;
        match self.encode(to).len() {
            0 => 0,
            body => apart(body) - to.mark_bytes(in_padding),
        }
    }

    /// The body of the option, after the ExID, for this gateway. Empty for a bare mark.
    #[must_use]
    pub fn encode(&self, to: Hello) -> Body {
        if *self == Self::default() {
            Body::new()
        } else if to.reads_frames() {
            self.write(to)
        } else {
            v1::write(self)
        }
    }

    /// As much of it as fits into so many bytes. What can be missed most easily falls away first:
    /// what has come twice, which is only counted, runs and the report, which the next
    /// acknowledgement brings, then what is known of the link, which is said seldom, the number of
    /// headers, the soft part of the window, the window, the far host's acknowledgement.
    #[must_use]
    pub fn fit(mut self, to: Hello, room_bytes: usize) -> Self {
        while self.encode(to).len() > room_bytes {
            if self.twice_bytes.take().is_some() {
                continue;
            }
            if !self.runs.bytes().is_empty() {
                self.runs = Runs::default();
            } else if self.arrived.take().is_none()
                && self.link.take().is_none()
                && self.shims.take().is_none()
                && self.soft_window_bytes.take().is_none()
                && self.window_bytes.take().is_none()
            {
                (self.far_ack, self.far_behind) = (None, None);
            }
        }
        self
    }

    /// The same without the far host's acknowledgement.
    #[must_use]
    pub fn without_far(self) -> Self {
        Self { far_ack: None, far_behind: None, ..self }
    }

    /// The same where it has come with a segment of this acknowledgement number.
    #[must_use]
    pub fn at(self, ack: SeqNum) -> Self {
        let far_ack = self.far_behind.map(|behind| ack - behind).or(self.far_ack);
        Self { far_ack, far_behind: None, ..self }
    }

    fn write(&self, to: Hello) -> Body {
        let mut out = Body::new();
        match (self.far_behind.filter(|_| to.can(Capability::FarBehind)), self.far_ack) {
            (Some(behind), _) => {
                frame::push(&mut out, Kind::FarBehind, &[&behind.to_be_bytes()]);
            }
            (None, Some(ack)) => {
                frame::push(&mut out, Kind::FarAck, &[&ack.0.to_be_bytes()]);
            }
            (None, None) => {}
        }
        match (self.window_bytes.map(units), self.soft_window_bytes.map(units)) {
            (Some(window), Some(soft)) => {
                frame::push(&mut out, Kind::Window, &[&window.to_be_bytes(), &soft.to_be_bytes()]);
            }
            (Some(window), None) => {
                frame::push(&mut out, Kind::Window, &[&window.to_be_bytes()]);
            }
            (None, _) => {}
        }
        if let Some(a) = self.arrived {
            // Who counts has been said in the handshake.
            let (at, bytes) = (a.at_us.to_be_bytes(), a.received_bytes.to_be_bytes());
            frame::push(&mut out, Kind::Arrived, &[&at, &bytes]);
        }
        if let Some(shims) = self.shims {
            frame::push(&mut out, Kind::Shims, &[&shims.to_be_bytes()]);
        }
        if let Some(advert) = self.link {
            frame::push(&mut out, Kind::Link, &[&advert.encode()]);
        }
        if let Some(bytes) = self.twice_bytes {
            frame::push(&mut out, Kind::Twice, &[&bytes.to_be_bytes()]);
        }
        if !self.runs.bytes().is_empty() {
            frame::push(&mut out, Kind::Runs, &[self.runs.bytes()]);
        }
        out
    }

    /// From a body, of whichever version, by a gateway that has said this of itself. What cannot be
    /// read is left out.
    #[must_use]
    pub fn decode(body: &[u8], from: Hello) -> Self {
        if v1::is_v1(body) { v1::read(body) } else { Self::read(body, from) }
    }

    fn read(body: &[u8], from: Hello) -> Self {
        let mut m = Self::default();
        for (kind, value) in Frames::of(body) {
            let read = match kind {
                Kind::FarAck => word(value).map(|ack| m.far_ack = m.far_ack.or(Some(SeqNum(ack)))),
                Kind::FarBehind => word(value).map(|behind| {
                    m.far_behind.get_or_insert(behind);
                }),
                Kind::Window => m.read_window(value),
                Kind::Arrived => {
                    word(value).zip(value.get(4..).and_then(word)).map(|(at_us, received_bytes)| {
                        let arrived = Arrived { by: from.identity, at_us, received_bytes };
                        m.arrived.get_or_insert(arrived);
                    })
                }
                Kind::Shims => half(value).map(|shims| {
                    m.shims.get_or_insert(shims);
                }),
                Kind::Link => Advert::decode(value).map(|advert| {
                    m.link.get_or_insert(advert);
                }),
                Kind::Twice => word(value).map(|bytes| {
                    m.twice_bytes.get_or_insert(bytes);
                }),
                Kind::Runs => {
                    if m.runs.bytes().is_empty() {
                        m.runs = Runs::from_bytes(value);
                    }
                    Some(())
                }
                Kind::Tag if value.len() < TAG_BYTES => None,
                // There are no keys to judge it by. Hello and opening have their place in the
                // handshake.
                Kind::Tag | Kind::Hello | Kind::Opening => Some(()),
            };
            if read.is_none() {
                break;
            }
        }
        m.far_ack = m.far_ack.filter(|_| m.far_behind.is_none());
        m
    }

    fn read_window(&mut self, value: &[u8]) -> Option<()> {
        let window = half(value)?;
        if self.window_bytes.is_none() {
            self.window_bytes = Some(u32::from(window) * WINDOW_UNIT);
            self.soft_window_bytes = value.get(2..).and_then(half).map(|w| u32::from(w) * WINDOW_UNIT);
        }
        Some(())
    }
}

/// A window in units, rounded down.
pub(super) fn units(window_bytes: u32) -> u16 {
    u16::try_from(window_bytes / WINDOW_UNIT).unwrap_or(u16::MAX)
}

fn word(value: &[u8]) -> Option<u32> {
    value.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

fn half(value: &[u8]) -> Option<u16> {
    value.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FRAMES: Hello = Hello::of(Identity([0, 0, 0, 7]));
    /// Body bytes beside timestamps: 40 of options, 12 for timestamps, 4 for the head of our own.
    const BESIDE_TIMESTAMPS: usize = 24;

    fn full() -> Message {
        Message {
            far_ack: Some(SeqNum(0xdead_beef)),
            far_behind: Some(7),
            window_bytes: Some(1 << 20),
            soft_window_bytes: Some(1 << 19),
            arrived: Some(Arrived { by: FRAMES.identity, at_us: u32::MAX, received_bytes: 1 }),
            shims: None,
            link: None,
            twice_bytes: None,
            runs: Runs::from_bytes(&[5, 0xa4, 1, 1]),
        }
    }

    #[test]
    fn the_fullest_message_fits_beside_timestamps_and_what_does_not_falls_away_in_order() {
        assert_eq!(full().encode(FRAMES).len(), BESIDE_TIMESTAMPS);
        let mut left = Vec::new();
        for to in [FRAMES, Hello::SILENT] {
            let mut m = full();
            left.clear();
            for room in (0..=BESIDE_TIMESTAMPS).rev() {
                m = m.fit(to, room);
                assert!(m.encode(to).len() <= room);
                let has = [
                    m.far_ack.is_some(),
                    m.window_bytes.is_some(),
                    m.soft_window_bytes.is_some(),
                    m.arrived.is_some(),
                    !m.runs.bytes().is_empty(),
                ];
                if left.last() != Some(&has) {
                    left.push(has);
                }
            }
            let (t, f) = (true, false);
            let order =
                [[t, t, t, t, t], [t, t, t, t, f], [t, t, t, f, f], [t, t, f, f, f], [t, f, f, f, f], [f; 5]];
            assert_eq!(left[..], order);
        }
    }

    #[test]
    fn frames_of_a_newer_gateway_are_passed_over() {
        let mut tag = [0; 1 + TAG_BYTES];
        tag[0] = (Kind::Tag as u8) << 4 | TAG_BYTES as u8;
        // An unknown frame, a tag, a far ACK that has grown, another far ACK, which does not count.
        let body = [&[0xb2, 1, 2][..], &tag, &[0x26, 0, 0, 0, 9, 1, 1, 0x24, 0, 0, 0, 8]].concat();
        let m = Message { far_ack: Some(SeqNum(9)), ..Message::default() };
        assert_eq!(Message::decode(&body, FRAMES), m);
    }

    #[test]
    fn a_malformed_frame_ends_the_reading_and_what_came_before_stands() {
        let far = Message { far_ack: Some(SeqNum(9)), ..Message::default() };
        for broken in
            [&[0x31, 5][..], &[0x3e, 1], &[0x47, 1, 2, 3, 4, 5, 6, 7], &[0x7c; 13], &[0x23, 1, 2, 3]]
        {
            let body = [&[0x24, 0, 0, 0, 9], broken, &[0x32, 0, 1]].concat();
            assert_eq!(Message::decode(&body, FRAMES), far, "{broken:02x?}");
        }
        // Another version's first byte in a message of version 1.
        assert_eq!(Message::decode(&[0x23, 1, 2, 3], Hello::SILENT), Message::default());
    }

    #[test]
    fn the_room_that_a_message_takes_is_known() {
        let ends = (("10.0.0.1".parse().unwrap(), 1), ("10.0.0.2".parse().unwrap(), 2));
        let written = |body: &[u8], to: Hello, timestamps: bool| {
            let header = farlink_wire::SegmentHeader {
                timestamps: timestamps.then_some(farlink_wire::Timestamps { val: 1, ecr: 2 }),
                farlink: Some(body),
                marks_padding: to.can(super::super::Capability::MarkInPadding),
                ..farlink_wire::SegmentHeader::between(ends.0, ends.1)
            };
            header.write(0).unwrap().0.len() as u32
        };
        let usual = Message { soft_window_bytes: None, runs: Runs::default(), ..full() };
        for message in [full(), usual, Message::default()] {
            for to in [FRAMES, Hello::SILENT] {
                for timestamps in [false, true] {
                    let message = message.clone().fit(to, BESIDE_TIMESTAMPS);
                    let bare = written(&[], to, timestamps);
                    let takes = written(&message.encode(to), to, timestamps) - bare;
                    assert_eq!(message.header_bytes(to, timestamps), takes, "{message:?}");
                    let options = if timestamps { 12 } else { 0 };
                    assert_eq!(bare, 20 + 20 + options + to.mark_bytes(timestamps));
                }
            }
        }
    }

    proptest! {
        #[test]
        fn messages_round_trip(
            far in any::<Option<u32>>(),
            window in any::<Option<(u16, Option<u16>)>>(),
            arrived in any::<Option<(u32, u32)>>(),
            runs in proptest::collection::vec(any::<u8>(), 0..8),
            shims in any::<Option<u16>>(),
            link in any::<Option<[u8; 5]>>(),
            twice in any::<Option<u32>>(),
            frames in any::<bool>(),
        ) {
            let bytes = |w: u16| u32::from(w) * WINDOW_UNIT;
            let m = Message {
                far_ack: None,
                far_behind: far.filter(|_| frames),
                window_bytes: window.map(|(w, _)| bytes(w)),
                soft_window_bytes: window.and_then(|(_, soft)| soft).map(bytes),
                arrived: arrived.map(|(at_us, received_bytes)| Arrived { by: FRAMES.identity, at_us, received_bytes }),
                runs: Runs::from_bytes(&runs),
                shims: shims.filter(|_| frames),
                link: link.and_then(|value| Advert::decode(&value)).filter(|_| frames),
                // All at once would leave no room for the runs.
                twice_bytes: twice.filter(|_| frames && arrived.is_none()),
            };
            let to = if frames { FRAMES } else { Hello::SILENT };
            let from = if frames { FRAMES } else { Hello { identity: 0x0001_0007.into(), ..to } };
            let arrived = m.arrived.map(|a| Arrived { by: from.identity, ..a });
            prop_assert_eq!(Message::decode(&m.encode(to), from), Message { arrived, ..m });
        }

        #[test]
        fn any_bytes_can_be_read(body in proptest::collection::vec(any::<u8>(), 0..=36)) {
            let hello = Hello::read(&body);
            let m = Message::decode(&body, hello);
            // What was read can be written and read again.
            let again = m.clone().fit(FRAMES, 36);
            let written = again.encode(FRAMES);
            let read = Message::decode(&written, FRAMES);
            // Frames have heads: the runs of a full body of version 1 may not fit any more, and
            // stay out.
            let fits = written.len() + 1 + again.runs.bytes().len() <= 36;
            let stay_out = read.runs.bytes().is_empty() && !fits;
            prop_assert_eq!(read, Message {
                arrived: again.arrived.map(|a| Arrived { by: FRAMES.identity, ..a }),
                runs: if stay_out { Runs::default() } else { again.runs.clone() },
                ..again.clone()
            });
            for ack in [SeqNum(0), SeqNum(u32::MAX)] {
                prop_assert!(m.runs.blocks(ack).len() <= crate::runs::RUNS_MAX);
            }
        }
    }
}
