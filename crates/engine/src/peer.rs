//! The next gateway on a leg: discovered in the handshake, believed only while it is heard.
//!
//! Any host may send our option. So it means something only where the handshake spoke of a gateway, over a declared link, and
//! in segments that come in by one; elsewhere it is a stranger's, and is taken out before the segment goes on.

use arrayvec::ArrayVec;
use farlink_wire::{FARLINK_DATA, FarlinkOption, PacketBuf, Parsed, SeqNum, edit, parse};

use crate::runs::Runs;

/// Version of the messages, in the high four bits of the first byte.
const VERSION: u8 = 0x10;
const HAS_FAR_ACK: u8 = 0x01;
const HAS_WINDOW: u8 = 0x02;
const HAS_ARRIVED: u8 = 0x04;
const HAS_SOFT_WINDOW: u8 = 0x08;
/// The window is told in units of this many bytes.
pub const WINDOW_UNIT: u32 = 1024;
/// The largest window that can be told, bytes.
pub const TOLD_WINDOW_MAX: u32 = u16::MAX as u32 * WINDOW_UNIT;
/// Segments without a mark that mean "talk as to a host".
const UNMARKED_MAX: u8 = 32;
/// Largest body of the option.
const MESSAGE_BYTES_MAX: usize = 36;

/// What is known of a gateway on a leg.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Peer {
    /// None.
    #[default]
    None,
    /// The handshake spoke of one, or it is silent now; marks are sent, nothing else is relied on.
    Offered,
    /// Its marks come; so many segments since the last one.
    Heard {
        /// Segments without a mark since the last mark.
        unmarked: u8,
    },
}

/// What a gateway tells with a segment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Message {
    /// What the far host has acknowledged, of the data that flows towards it.
    pub far_ack: Option<SeqNum>,
    /// Window in bytes from the acknowledgement number on, where the header's field is too small.
    pub window_bytes: Option<u32>,
    /// Of the window, what it will be able to pass on one link delay from now; `None`: all of it.
    pub soft_window_bytes: Option<u32>,
    /// What has come in over the link.
    pub arrived: Option<Arrived>,
    /// What it holds above a gap. Stands last: the rest of the option is theirs.
    pub runs: Runs,
}

/// How much has come in over a link, from which the gateway at its other end finds the link's rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrived {
    /// The number of the gateway that counts.
    pub by: u16,
    /// When the flow's newest segment came, microseconds of that gateway's clock, modulo 2^32.
    pub at_us: u32,
    /// Bytes of packets that had come in over the link by then, that segment included, modulo 2^32.
    pub received_bytes: u32,
}

impl Peer {
    /// Marks are sent.
    #[must_use]
    pub const fn is_marked(self) -> bool {
        !matches!(self, Self::None)
    }
    /// The gateway has been heard on this leg in this flow.
    #[must_use]
    pub const fn is_heard(self) -> bool {
        matches!(self, Self::Heard { .. })
    }
    /// The newest segment on this leg came from the gateway: what it was promised is used by it, not by the host.
    #[must_use]
    pub const fn is_speaking(self) -> bool {
        matches!(self, Self::Heard { unmarked: 0 })
    }
    /// A segment came from this leg; returns what it told, if it is from a gateway.
    pub fn on_segment(&mut self, option: Option<&FarlinkOption>) -> Option<Message> {
        let Some(option) = option.filter(|o| o.form == FARLINK_DATA) else {
            *self = match *self {
                Self::Heard { unmarked } if unmarked + 1 < UNMARKED_MAX => {
                    Self::Heard { unmarked: unmarked + 1 }
                }
                // Marks go on: by their absence the next gateway would take our word for the host's own.
                Self::Heard { .. } => Self::Offered,
                other => other,
            };
            return None;
        };
        if !self.is_marked() {
            // Nobody has been found there.
            return None;
        }
        *self = Self::Heard { unmarked: 0 };
        Some(Message::decode(&option.body))
    }
}

impl Message {
    /// Bytes of the header that it takes beyond a bare mark: options are padded to four.
    #[must_use]
    pub fn header_bytes(&self) -> u32 {
        self.encode().len().next_multiple_of(4) as u32
    }
    /// The body of the option, after the ExID. Empty for a bare mark.
    #[must_use]
    pub fn encode(&self) -> ArrayVec<u8, MESSAGE_BYTES_MAX> {
        let mut out = ArrayVec::new();
        if *self == Self::default() {
            return out;
        }
        let flags = if self.far_ack.is_some() { HAS_FAR_ACK } else { 0 }
            | if self.window_bytes.is_some() { HAS_WINDOW } else { 0 }
            | if self.arrived.is_some() { HAS_ARRIVED } else { 0 }
            | if self.soft_window_bytes.is_some() { HAS_SOFT_WINDOW } else { 0 };
        let _ = out.try_push(VERSION | flags);
        if let Some(a) = self.far_ack {
            let _ = out.try_extend_from_slice(&a.0.to_be_bytes());
        }
        if let Some(w) = self.window_bytes {
            let units = u16::try_from(w / WINDOW_UNIT).unwrap_or(u16::MAX);
            let _ = out.try_extend_from_slice(&units.to_be_bytes());
        }
        if let Some(w) = self.soft_window_bytes {
            let units = u16::try_from(w / WINDOW_UNIT).unwrap_or(u16::MAX);
            let _ = out.try_extend_from_slice(&units.to_be_bytes());
        }
        if let Some(a) = self.arrived {
            let _ = out.try_extend_from_slice(&a.by.to_be_bytes());
            let _ = out.try_extend_from_slice(&a.at_us.to_be_bytes());
            let _ = out.try_extend_from_slice(&a.received_bytes.to_be_bytes());
        }
        let _ = out.try_extend_from_slice(self.runs.bytes());
        out
    }
    /// From the body; what cannot be read is left out.
    #[must_use]
    pub fn decode(body: &[u8]) -> Self {
        let mut m = Self::default();
        let Some((&head, mut rest)) = body.split_first() else { return m };
        if head & 0xf0 != VERSION {
            return m;
        }
        if head & HAS_FAR_ACK != 0 {
            let Some((a, r)) = rest.split_first_chunk::<4>() else { return m };
            m.far_ack = Some(SeqNum(u32::from_be_bytes(*a)));
            rest = r;
        }
        if head & HAS_WINDOW != 0 {
            let Some((w, r)) = rest.split_first_chunk::<2>() else { return m };
            m.window_bytes = Some(u32::from(u16::from_be_bytes(*w)) * WINDOW_UNIT);
            rest = r;
        }
        if head & HAS_SOFT_WINDOW != 0 {
            let Some((w, r)) = rest.split_first_chunk::<2>() else { return m };
            m.soft_window_bytes = Some(u32::from(u16::from_be_bytes(*w)) * WINDOW_UNIT);
            rest = r;
        }
        if head & HAS_ARRIVED != 0 {
            let Some((by, r)) = rest.split_first_chunk::<2>() else { return m };
            let Some((at, r)) = r.split_first_chunk::<4>() else { return m };
            let Some((received, r)) = r.split_first_chunk::<4>() else { return m };
            m.arrived = Some(Arrived {
                by: u16::from_be_bytes(*by),
                at_us: u32::from_be_bytes(*at),
                received_bytes: u32::from_be_bytes(*received),
            });
            rest = r;
        }
        m.runs = Runs::from_bytes(rest);
        m
    }
}

/// Appends Farlink's option to a SYN or SYN-ACK where there is room for its four bytes; returns whether there was. No room is no
/// harm: the connection is split without a peer.
pub(crate) fn insert_farlink(packet: &mut PacketBuf, form: u16) -> bool {
    let Parsed::Tcp(s) = parse(packet.bytes()) else { return false };
    farlink_wire::build::farlink_option(form, &[])
        .is_some_and(|option| edit::insert_option(packet, &s, &option).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_round_trip() {
        for far_ack in [None, Some(SeqNum(0xdead_beef))] {
            for window_bytes in [None, Some(1024 * 65_535), Some(0)] {
                for arrived in [None, Some(Arrived { by: 7, at_us: u32::MAX, received_bytes: 1 })] {
                    let runs = Runs::default();
                    let soft_window_bytes = window_bytes.filter(|w| *w > 0).map(|_| 3 * 1024);
                    let m = Message { far_ack, window_bytes, soft_window_bytes, arrived, runs };
                    assert_eq!(Message::decode(&m.encode()), m);
                }
                for runs in [Runs::default(), Runs::from_bytes(&[5, 0xa4, 10, 2])] {
                    let m = Message { far_ack, window_bytes, soft_window_bytes: None, arrived: None, runs };
                    assert_eq!(Message::decode(&m.encode()), m);
                }
            }
        }
        assert_eq!(Message::decode(&[0x23, 1, 2, 3]), Message::default());
        assert_eq!(Message::decode(&[0x11, 1]), Message::default());
    }

    #[test]
    fn the_room_that_a_message_takes_is_known() {
        let written = |body: &[u8]| {
            let header = farlink_wire::SegmentHeader {
                src: "10.0.0.1".parse().unwrap(),
                dst: "10.0.0.2".parse().unwrap(),
                src_port: 1,
                dst_port: 2,
                ttl: 64,
                traffic_class: 0,
                flow_label: 0,
                ip_id: 0,
                dont_fragment: true,
                seq: SeqNum(1),
                ack: SeqNum(1),
                flags: farlink_wire::Flags::ACK,
                window: 9,
                urgent: 0,
                timestamps: Some(farlink_wire::Timestamps { val: 1, ecr: 2 }),
                sack: &[],
                farlink: Some(body),
            };
            header.write(0).unwrap().0.len() as u32
        };
        let full = Message {
            far_ack: Some(SeqNum(7)),
            window_bytes: Some(1 << 20),
            soft_window_bytes: Some(1 << 19),
            ..Message::default()
        };
        let usual = Message { soft_window_bytes: None, ..full.clone() };
        for message in [full, usual, Message::default()] {
            let takes = written(&message.encode()) - written(&[]);
            assert_eq!(message.header_bytes(), takes, "{message:?}");
        }
    }

    #[test]
    fn silence_means_a_host() {
        let mut p = Peer::Offered;
        for _ in 0..100 {
            p.on_segment(None);
        }
        assert_eq!(p, Peer::Offered);
        let mark = FarlinkOption { form: FARLINK_DATA, body: ArrayVec::new() };
        let mut host = Peer::None;
        assert_eq!((host.on_segment(Some(&mark)), host), (None, Peer::None), "a host that says so is none");
        p.on_segment(Some(&mark));
        assert!(p.is_heard());
        for _ in 0..UNMARKED_MAX {
            p.on_segment(None);
        }
        assert_eq!(p, Peer::Offered);
    }
}
