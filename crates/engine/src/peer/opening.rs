//! What a gateway says in a SYN that asks for another one, and in the answer: who it is, and what
//! the other one is to know before the first segment of data.
//!
//! All of it stands in the option of the handshake, so a lost one is repeated with it. What the
//! hosts' own options leave no room for falls away: first what is said of the packet, then the
//! window, then who speaks.

use farlink_wire::{PacketBuf, Parsed, build::farlink_option, edit, parse};

use super::frame::{self, Body, Frames, Kind};
use super::message::{WINDOW_UNIT, units};
use super::{Capability, Hello};

/// Bits of what is said of the packet.
const LEAVES_TWICE: u8 = 1;
const LINK_LOSES: u8 = 2;

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opening {
    /// Who speaks.
    pub hello: Hello,
    /// Bytes from the acknowledgement number on that the gateway takes before it has told another
    /// window. The header's own has no scale yet. Said in answers, where that is more.
    pub window_bytes: Option<u32>,
    /// The packet leaves twice: of both, the one that comes first goes on.
    pub leaves_twice: bool,
    /// What this gateway sends into the link gets lost now and then, as it has found itself.
    pub link_loses: bool,
}

impl Opening {
    /// Nothing but who speaks.
    #[must_use]
    pub const fn of(hello: Hello) -> Self {
        Self { hello, window_bytes: None, leaves_twice: false, link_loses: false }
    }

    /// From the body of an option in a handshake. Older gateways say less.
    #[must_use]
    pub fn read(body: &[u8]) -> Self {
        let mut opening = Self::of(Hello::read(body));
        let mut flags = None;
        for (kind, value) in Frames::of(body) {
            match (kind, value) {
                (Kind::Window, [a, b, ..]) => {
                    let window = u32::from(u16::from_be_bytes([*a, *b])) * WINDOW_UNIT;
                    opening.window_bytes.get_or_insert(window);
                }
                (Kind::Opening, [said, ..]) => {
                    flags.get_or_insert(*said);
                }
                _ => {}
            }
        }
        let flags = flags.filter(|_| opening.hello.can(Capability::Openings)).unwrap_or(0);
        opening.leaves_twice = flags & LEAVES_TWICE != 0;
        opening.link_loses = flags & LINK_LOSES != 0;
        opening
    }

    /// The body of the option.
    #[must_use]
    pub fn body(self) -> Body {
        let mut out = self.hello.body();
        if let Some(window) = self.window_bytes {
            frame::push(&mut out, Kind::Window, &[&units(window).to_be_bytes()]);
        }
        let bit = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        let flags = bit(self.leaves_twice, LEAVES_TWICE) | bit(self.link_loses, LINK_LOSES);
        if flags != 0 {
            frame::push(&mut out, Kind::Opening, &[&[flags]]);
        }
        out
    }

    /// The same, from the whole on less and less of it.
    fn shorter(self) -> [Self; 4] {
        let of_packet = Self { leaves_twice: false, link_loses: false, ..self };
        let windowless = Self { window_bytes: None, ..self };
        [self, of_packet, windowless, Self::of(self.hello)]
    }
}

/// Puts Farlink's option into a SYN or SYN-ACK: with as much of what this gateway says as there is
/// room for; `None`: the other one does not read it. Returns what has been said. No room is no
/// harm: the connection is split without a peer.
pub(crate) fn insert_opening(packet: &mut PacketBuf, form: u16, opening: Option<Opening>) -> Option<Opening> {
    let Parsed::Tcp(s) = parse(packet.bytes()) else { return None };
    let mut insert = |body: &[u8]| {
        farlink_option(form, body).is_some_and(|option| edit::insert_option(packet, &s, &option).is_ok())
    };
    let said = opening.into_iter().flat_map(Opening::shorter).find(|opening| insert(&opening.body()));
    said.or_else(|| insert(&[]).then_some(Opening::of(Hello::SILENT)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELLO: Hello = Hello::of(super::super::Identity([0, 0, 0, 7]));

    #[test]
    fn an_opening_is_read_again_and_fits_beside_usual_options() {
        let full = Opening {
            window_bytes: Some(4_000 * WINDOW_UNIT),
            leaves_twice: true,
            link_loses: true,
            ..Opening::of(HELLO)
        };
        assert_eq!(full.body()[9..], [0x32, 0x0f, 0xa0, 0xb1, 3]);
        // 40 bytes of options, 20 of a usual host, 4 of the head of our own.
        assert!(full.body().len() <= 16);
        for opening in full.shorter() {
            assert_eq!(Opening::read(&opening.body()), opening);
        }
        assert_eq!(Opening::of(HELLO).body(), HELLO.body(), "as older ones write it");
    }

    #[test]
    fn what_is_odd_is_left_out_and_a_newer_one_may_say_more() {
        let hello = HELLO.body();
        let read = |frames: &[u8]| Opening::read(&[&hello[..], frames].concat());
        let of = |window_bytes, leaves_twice| Opening { window_bytes, leaves_twice, ..Opening::of(HELLO) };
        assert_eq!(read(&[0x34, 0, 2, 0, 1, 0xb3, 0x81, 9, 9]), of(Some(2_048), true));
        assert_eq!(read(&[0x32, 0, 2, 0x32, 0xff, 0xff, 0xb1, 0, 0xb1, 1]), of(Some(2_048), false));
        assert_eq!(read(&[0x31, 2, 0xb0]), of(None, false), "cut short");
        assert_eq!(read(&[0xb2, 1]), of(None, false), "cut off");
        // One that cannot read them does not write them either.
        let old = HELLO.without(Capability::Openings);
        let odd = Opening::read(&[&old.body()[..], &[0xb1, 3]].concat());
        assert_eq!(odd, Opening::of(old));
        assert_eq!(Opening::read(&[]), Opening::of(Hello::SILENT));
    }
}
