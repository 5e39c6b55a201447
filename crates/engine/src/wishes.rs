//! What has come of the wishes of a gateway that sends at the rate that routers say (XCP).

use farlink_wire::xcp::XcpFields;
use farlink_xcp::{NO_WISH, Receiver, WISH};

/// What has come of a gateway's wishes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wishes {
    receiver: Receiver,
    /// A router has answered the newest one.
    are_answered: bool,
    /// What that gateway was told last.
    told: Option<u32>,
}

impl Wishes {
    /// So many packets have come that say this.
    pub fn hear(&mut self, packets: u32, said: &XcpFields) {
        match said.delta_bytes_per_s {
            NO_WISH => {}
            left => self.are_answered = left != WISH,
        }
        if self.are_answered {
            self.receiver.on_packets(packets, said);
        }
    }

    /// What the gateway is to be told; nothing while no router answers.
    #[must_use]
    pub fn sum(&self) -> Option<u32> {
        self.are_answered.then(|| self.receiver.sum())
    }

    /// It has not been told yet.
    #[must_use]
    pub fn are_untold(&self) -> bool {
        self.are_answered && self.sum() != self.told
    }

    /// It has been told.
    pub fn note_told(&mut self) {
        self.told = self.sum();
    }
}
