//! How programs stand where they are wanted, as values.

use crate::bpf::{Means, Side};
use crate::error::{Error, Holder};

/// Why no program stands where one is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Who has the place.
    pub holder: Option<Holder>,
    /// What the kernel says, or what that means.
    pub text: String,
}

impl From<&Error> for Refusal {
    fn from(error: &Error) -> Self {
        let holder = match error {
            Error::Held { by, .. } => Some(*by),
            _ => None,
        };
        Self { holder, text: error.to_string() }
    }
}

/// Whether all programs stand where they are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stand {
    /// All of them.
    Whole,
    /// They did, and somebody has taken one away that stood by this.
    Removed(Means),
    /// They could not be put there.
    Refused(Refusal),
}

/// One interface, or one device, with the programs that are wanted there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Post {
    /// At which sides.
    pub sides: &'static [Side],
    /// Of an interface: the devices that its packets go to, what comes in and what leaves. None:
    /// they are only counted.
    pub devices: Option<(u32, u32)>,
    /// It is a device.
    pub is_device: bool,
    /// Whether they stand there.
    pub stand: Stand,
}
