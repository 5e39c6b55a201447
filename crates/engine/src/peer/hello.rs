//! Who speaks: what a gateway says of itself in the SYN that asks for another one, and in the
//! answer.
//!
//! The handshake repeats what is lost, so nothing needs to say that it was heard, and no later
//! segment carries it. A gateway that says nothing of itself speaks version 1: because it is older,
//! or because the host's own options left no room.

use farlink_wire::options::FARLINK_HEAD_BYTES;

use super::frame::{self, Body, Frames, Kind};

/// The version that is spoken here: frames.
pub const VERSION: u8 = 2;
/// Bytes of the value of a hello.
pub const HELLO_BYTES: usize = 8;

/// Something that a gateway understands and not every other does: it is used where both do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum Capability {
    /// How much of a window will be passed on in time.
    SoftWindow = 1,
    /// What has come in over the link.
    Reports = 2,
    /// What is held above a gap, in place of SACK blocks.
    Runs = 4,
    /// A bare mark takes no bytes beside timestamps.
    MarkInPadding = 8,
    /// What routers say of its segments (XCP).
    Xcp = 16,
    /// The same in XCP's own header, before TCP.
    Shim = 32,
    /// Of a packet of a handshake that comes twice one goes on.
    Openings = 64,
    /// The far host's acknowledgement is told by how far it is behind the segment's own. So it
    /// stands where a box on the way translates sequence numbers.
    FarBehind = 128,
    /// This connection is in custody mode here: its source waits for what the far host
    /// acknowledges. Said of each connection by itself.
    Custody = 256,
}

impl Capability {
    /// All that are told of a gateway in the status: not what is said of one connection alone.
    pub const ALL: [Self; 8] = [
        Self::SoftWindow,
        Self::Reports,
        Self::Runs,
        Self::MarkInPadding,
        Self::Xcp,
        Self::Shim,
        Self::Openings,
        Self::FarBehind,
    ];

    /// Its name in the status.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SoftWindow => "soft-window",
            Self::Reports => "reports",
            Self::Runs => "runs",
            Self::MarkInPadding => "mark-in-padding",
            Self::Xcp => "xcp",
            Self::Shim => "xcp-shim",
            Self::Openings => "openings",
            Self::FarBehind => "far-behind",
            Self::Custody => "custody",
        }
    }
}

/// Which gateway it is, until it starts again: any number, as it stands on the wire. It is told
/// once for each connection, so it is kept small.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Identity(pub [u8; 4]);

impl Identity {
    /// Not known.
    pub const UNKNOWN: Self = Self([0; 4]);

    /// As a number.
    #[must_use]
    pub const fn number(self) -> u32 {
        u32::from_be_bytes(self.0)
    }

    /// The 16 bits of it that stand in a message of version 1.
    #[must_use]
    pub const fn short(self) -> [u8; 2] {
        let [.., a, b] = self.0;
        [a, b]
    }
}

impl From<u32> for Identity {
    fn from(number: u32) -> Self {
        Self(number.to_be_bytes())
    }
}

/// What a gateway says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello {
    /// Which gateway it is.
    pub identity: Identity,
    /// The newest version that it speaks. It speaks all older ones, too.
    pub version: u8,
    /// [`Capability`] bits; those that are not known here stand for something newer.
    pub capabilities: u16,
    /// The key that its tags are made with; 0: none.
    pub key_id: u8,
}

impl Hello {
    /// A gateway that said nothing of itself: it can do what version 1 had.
    pub const SILENT: Self =
        Self { identity: Identity::UNKNOWN, version: 1, capabilities: Self::FIRST, key_id: 0 };
    /// What version 1 had.
    const FIRST: u16 = Capability::SoftWindow as u16 | Capability::Reports as u16 | Capability::Runs as u16;
    const ALL: u16 = Self::FIRST
        | Capability::MarkInPadding as u16
        | Capability::Xcp as u16
        | Capability::Openings as u16
        | Capability::FarBehind as u16;

    /// Of this gateway.
    #[must_use]
    pub const fn of(identity: Identity) -> Self {
        Self { identity, version: VERSION, capabilities: Self::ALL, ..Self::SILENT }
    }

    /// The same, which can do this, too.
    #[must_use]
    pub const fn with(self, what: Capability) -> Self {
        Self { capabilities: self.capabilities | what as u16, ..self }
    }

    /// Both can do it: what we know here, we can do.
    #[must_use]
    pub const fn can(self, what: Capability) -> bool {
        self.capabilities & what as u16 != 0
    }

    /// The same of a gateway with which this is not to be done.
    #[must_use]
    pub const fn without(self, what: Capability) -> Self {
        Self { capabilities: self.capabilities & !(what as u16), ..self }
    }

    /// Bytes of options that a bare mark takes in segments to it, which may have room for it in
    /// their padding.
    #[must_use]
    pub const fn mark_bytes(self, in_padding: bool) -> u32 {
        if in_padding && self.can(Capability::MarkInPadding) { 0 } else { FARLINK_HEAD_BYTES as u32 }
    }

    /// It reads frames.
    #[must_use]
    pub const fn reads_frames(self) -> bool {
        self.version >= VERSION
    }

    /// A report is this gateway's. One that has said nothing of itself is known by its first
    /// report, of which 16 bits stand in a message of version 1.
    pub(super) fn recognise(&mut self, by: Identity) -> bool {
        if self.identity == Identity::UNKNOWN {
            self.identity = by;
        }
        by != Identity::UNKNOWN && self.identity.short() == by.short()
    }

    /// The body of the option in a SYN or its answer.
    #[must_use]
    pub fn body(self) -> Body {
        let mut out = Body::new();
        let [a, b] = self.capabilities.to_be_bytes();
        frame::push(&mut out, Kind::Hello, &[&self.identity.0, &[self.version, a, b, self.key_id]]);
        out
    }

    /// From such a body. Older gateways put nothing there.
    #[must_use]
    pub fn read(body: &[u8]) -> Self {
        Self::find(body).unwrap_or(Self::SILENT)
    }

    /// The same in any body; `None`: nothing is said there of who speaks.
    #[must_use]
    pub fn find(body: &[u8]) -> Option<Self> {
        let (_, value) = Frames::of(body).find(|(kind, _)| *kind == Kind::Hello)?;
        let &[i, j, k, l, version, a, b, key_id] = value.first_chunk::<HELLO_BYTES>()?;
        let capabilities = u16::from_be_bytes([a, b]);
        Some(Self { identity: Identity([i, j, k, l]), version, capabilities, key_id })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_takes_nine_bytes_and_is_read_again() {
        let hello = Hello { capabilities: 0xfff5, key_id: 9, ..Hello::of(0xdead_beef.into()) };
        let body = hello.body();
        assert_eq!(body[..], [0x68, 0xde, 0xad, 0xbe, 0xef, 2, 0xff, 0xf5, 9]);
        assert_eq!(Hello::read(&body), hello);
        assert!(hello.can(Capability::Runs) && !hello.can(Capability::Reports));
    }

    #[test]
    fn a_newer_one_may_say_more_and_a_broken_one_says_nothing() {
        let body = [0xa2, 1, 1, 0x6a, 0, 0, 0, 5, 9, 0xff, 0xff, 0, 0xaa, 0xbb];
        let newer = Hello { identity: 5.into(), version: 9, capabilities: 0xffff, key_id: 0 };
        assert_eq!(Hello::read(&body), newer);
        assert!(newer.reads_frames());
        for body in [&[][..], &[0x67, 0, 0, 0, 5, 2, 0, 7], &[0x68, 0, 0], &[0x13, 0, 0, 0, 5, 2, 0, 7, 0]] {
            assert_eq!(Hello::read(body), Hello::SILENT, "{body:?}");
        }
    }
}
