//! Messages as gateways of version 1 write and read them: a byte of version and flags, then the
//! fields in a fixed order, then runs. All gateways read them. They are written to those that have
//! not said that they read frames.

use farlink_wire::SeqNum;

use super::frame::Body;
use super::{Arrived, Identity, Message, WINDOW_UNIT, units};
use crate::runs::Runs;

/// The high four bits of the first byte.
const VERSION: u8 = 0x10;
const HAS_FAR_ACK: u8 = 0x01;
const HAS_WINDOW: u8 = 0x02;
const HAS_ARRIVED: u8 = 0x04;
const HAS_SOFT_WINDOW: u8 = 0x08;

/// The body begins as one of version 1.
#[must_use]
pub fn is_v1(body: &[u8]) -> bool {
    body.first().is_some_and(|head| head & 0xf0 == VERSION)
}

/// The body of a message that says something. The gateway that counts what arrived has 16 bits
/// here.
#[must_use]
pub fn write(m: &Message) -> Body {
    let mut out = Body::new();
    let flags = if m.far_ack.is_some() { HAS_FAR_ACK } else { 0 }
        | if m.window_bytes.is_some() { HAS_WINDOW } else { 0 }
        | if m.arrived.is_some() { HAS_ARRIVED } else { 0 }
        | if m.soft_window_bytes.is_some() { HAS_SOFT_WINDOW } else { 0 };
    let _ = out.try_push(VERSION | flags);
    if let Some(a) = m.far_ack {
        let _ = out.try_extend_from_slice(&a.0.to_be_bytes());
    }
    for window in [m.window_bytes, m.soft_window_bytes].into_iter().flatten() {
        let _ = out.try_extend_from_slice(&units(window).to_be_bytes());
    }
    if let Some(a) = m.arrived {
        let _ = out.try_extend_from_slice(&a.by.short());
        let _ = out.try_extend_from_slice(&a.at_us.to_be_bytes());
        let _ = out.try_extend_from_slice(&a.received_bytes.to_be_bytes());
    }
    let _ = out.try_extend_from_slice(m.runs.bytes());
    out
}

/// What can be read of such a body.
#[must_use]
pub fn read(body: &[u8]) -> Message {
    let mut m = Message::default();
    let mut rest = body;
    let _ = read_into(&mut m, &mut rest);
    m
}

/// `None` where the body ends too early: what was read before stands.
fn read_into(m: &mut Message, rest: &mut &[u8]) -> Option<()> {
    let [head] = take(rest)?;
    if head & HAS_FAR_ACK != 0 {
        m.far_ack = Some(SeqNum(u32::from_be_bytes(take(rest)?)));
    }
    let mut window = |flag| -> Option<Option<u32>> {
        if head & flag == 0 {
            return Some(None);
        }
        Some(Some(u32::from(u16::from_be_bytes(take(rest)?)) * WINDOW_UNIT))
    };
    m.window_bytes = window(HAS_WINDOW)?;
    // It is a part of the window.
    m.soft_window_bytes = window(HAS_SOFT_WINDOW)?.filter(|_| head & HAS_WINDOW != 0);
    if head & HAS_ARRIVED != 0 {
        m.arrived = Some(Arrived {
            by: named(take(rest)?),
            at_us: u32::from_be_bytes(take(rest)?),
            received_bytes: u32::from_be_bytes(take(rest)?),
        });
    }
    m.runs = Runs::from_bytes(rest);
    Some(())
}

/// A gateway of version 1 names itself by 16 bits, any of them.
fn named([a, b]: [u8; 2]) -> Identity {
    Identity([0, 1, a, b])
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, more) = rest.split_first_chunk::<N>()?;
    *rest = more;
    Some(*bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_those_of_version_1() {
        let arrived = Arrived { by: 0x0405_0203.into(), at_us: 4, received_bytes: 5 };
        let m = Message {
            far_ack: Some(SeqNum(0xdead_beef)),
            far_behind: None,
            window_bytes: Some(7 * WINDOW_UNIT),
            soft_window_bytes: Some(6 * WINDOW_UNIT),
            arrived: Some(arrived),
            shims: None,
            link: None,
            twice_bytes: None,
            runs: Runs::from_bytes(&[5, 0xa4, 10, 2]),
        };
        let body = write(&m);
        let fields = [0x1f, 0xde, 0xad, 0xbe, 0xef, 0, 7, 0, 6, 2, 3, 0, 0, 0, 4, 0, 0, 0, 5, 5, 0xa4, 10, 2];
        assert_eq!(body[..], fields);
        let arrived = Some(Arrived { by: named([2, 3]), ..arrived });
        assert_eq!(read(&body), Message { arrived, ..m });
        assert_eq!(read(&[0x11, 1]), Message::default());
        assert_eq!(read(&[0x13, 0, 0, 0, 1, 9]).far_ack, Some(SeqNum(1)), "what came before stands");
    }
}
