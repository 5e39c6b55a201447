//! The next gateway on a leg: discovered in the handshake, believed only while it is heard.
//!
//! Any host may send our option. So it means something only where the handshake spoke of a gateway,
//! over a declared link, and in segments that come in by one; elsewhere it is a stranger's, and is
//! taken out before the segment goes on.

mod advert;
mod frame;
mod hello;
mod introduction;
mod message;
mod opening;
mod v1;

use farlink_wire::{FARLINK_DATA, FarlinkOption};

pub use advert::{Advert, Source};
pub use hello::{Capability, Hello, Identity};
pub use introduction::Introduction;
pub use message::{Arrived, Message, TOLD_WINDOW_MAX, WINDOW_UNIT};
pub use opening::Opening;
pub(crate) use opening::insert_opening;

use message::units;

/// Segments without a mark that mean "talk as to a host".
const UNMARKED_MAX: u8 = 32;

/// What is known of a gateway on a leg.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Peer {
    /// None.
    #[default]
    None,
    /// The handshake spoke of one, or it is silent now; marks are sent, nothing else is relied on.
    Offered(Hello),
    /// Its marks come; so many segments since the last one.
    Heard {
        /// What it said of itself in the handshake.
        hello: Hello,
        /// Segments without a mark since the last mark.
        unmarked: u8,
    },
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
    /// The newest segment on this leg came from the gateway: what it was promised is used by it,
    /// not by the host.
    #[must_use]
    pub const fn is_speaking(self) -> bool {
        matches!(self, Self::Heard { unmarked: 0, .. })
    }
    /// Which gateway it is.
    #[must_use]
    pub fn identity(self) -> Option<Identity> {
        self.hello().map(|hello| hello.identity)
    }
    /// What the gateway said of itself.
    #[must_use]
    pub const fn hello(self) -> Option<Hello> {
        match self {
            Self::None => None,
            Self::Offered(hello) | Self::Heard { hello, .. } => Some(hello),
        }
    }
    /// What the gateway said of itself is made use of as far as this.
    pub fn restrict(&mut self, admits: impl FnOnce(Hello) -> Hello) {
        if let Self::Offered(hello) | Self::Heard { hello, .. } = self {
            *hello = admits(*hello);
        }
    }
    /// Bytes of options that a bare mark takes in segments to this leg, which may have room for it
    /// in their padding; 0 where none is sent.
    #[must_use]
    pub fn mark_bytes(self, in_padding: bool) -> u32 {
        self.hello().map_or(0, |hello| hello.mark_bytes(in_padding))
    }
    /// The newest segment on this leg came from a gateway that can do this.
    #[must_use]
    pub fn speaks(self, what: Capability) -> bool {
        self.is_speaking() && self.hello().is_some_and(|hello| hello.can(what))
    }
    /// It is in custody mode here, and has said so.
    #[must_use]
    pub fn binds(self) -> bool {
        self.hello().is_some_and(|hello| hello.can(Capability::Custody))
    }
    /// A segment came from this leg; returns what it told, if it is from a gateway.
    pub fn on_segment(&mut self, option: Option<&FarlinkOption>) -> Option<Message> {
        let Some(option) = option.filter(|o| o.form == FARLINK_DATA) else {
            *self = match *self {
                Self::Heard { hello, unmarked } if unmarked + 1 < UNMARKED_MAX => {
                    Self::Heard { hello, unmarked: unmarked + 1 }
                }
                // Marks go on: by their absence the next gateway would take our word for the host's
                // own.
                Self::Heard { hello, .. } => Self::Offered(hello),
                other => other,
            };
            return None;
        };
        // Where nobody has been found there is nobody to hear.
        let (hello, message) = read(self.hello()?, option);
        *self = Self::Heard { hello, unmarked: 0 };
        Some(message)
    }
    /// What a segment told that newer ones have overtaken, if it is from the gateway.
    pub fn read(&self, option: Option<&FarlinkOption>) -> Option<Message> {
        let option = option.filter(|o| o.form == FARLINK_DATA && self.is_heard())?;
        Some(read(self.hello()?, option).1)
    }
}

/// What is known of the gateway after this, and what it told.
fn read(mut hello: Hello, option: &FarlinkOption) -> (Hello, Message) {
    let mut message = Message::decode(&option.body, hello);
    message.arrived =
        message.arrived.filter(|a| hello.recognise(a.by)).map(|a| Arrived { by: hello.identity, ..a });
    (hello, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrayvec::ArrayVec;

    fn option(body: &[u8]) -> FarlinkOption {
        FarlinkOption { form: FARLINK_DATA, body: body.iter().copied().collect() }
    }

    #[test]
    fn silence_means_a_host() {
        let mut p = Peer::Offered(Hello::SILENT);
        for _ in 0..100 {
            p.on_segment(None);
        }
        assert_eq!(p, Peer::Offered(Hello::SILENT));
        let mark = FarlinkOption { form: FARLINK_DATA, body: ArrayVec::new() };
        let mut host = Peer::None;
        assert_eq!((host.on_segment(Some(&mark)), host), (None, Peer::None), "a host that says so is none");
        p.on_segment(Some(&mark));
        assert!(p.is_heard());
        for _ in 0..UNMARKED_MAX {
            p.on_segment(None);
        }
        assert_eq!(p, Peer::Offered(Hello::SILENT));
    }

    #[test]
    fn reports_count_in_the_name_of_one_gateway() {
        let told = |p: &mut Peer, body: &[u8]| {
            p.on_segment(Some(&option(body))).unwrap().arrived.map(|a| a.by.number())
        };
        let v1 = |by: u16| [&[0x14][..], &by.to_be_bytes(), &[0; 8]].concat();
        let frames = [&[0x48][..], &[0; 8]].concat();
        // An older one says with each report who counts: the first time it is believed.
        let mut old = Peer::Offered(Hello::SILENT);
        assert_eq!(told(&mut old, &frames), None, "whose?");
        assert_eq!(told(&mut old, &v1(7)), Some(0x0001_0007));
        assert_eq!(told(&mut old, &v1(8)), None);
        assert_eq!(told(&mut old, &v1(7)), Some(0x0001_0007));
        // Others have said it in the handshake. Where their answer had no room for that they write
        // as older ones do.
        let mut new = Peer::Offered(Hello::of(0x0005_0007.into()));
        assert_eq!(told(&mut new, &frames), Some(0x0005_0007));
        assert_eq!(told(&mut new, &v1(7)), Some(0x0005_0007));
        assert_eq!(told(&mut new, &v1(8)), None);
    }
}
