//! What the kernel knows of next hops.

use std::net::IpAddr;

use super::message::{Message, u16_at};
use super::route::{Family, octets};
use super::socket::Socket;
use crate::error::{Error, Result};

/// struct ndmsg.
const NDMSG_BYTES: usize = 12;
const NDA_DST: u16 = 1;
/// NUD_VALID (linux/neighbour.h): its hardware address is known.
const VALID: u16 = 0x80 | 0x40 | 0x10 | 0x08 | 0x04 | 0x02;

impl Socket {
    /// Whether the hardware address of a next hop is known; not, if nobody has asked for it lately.
    pub fn is_neighbour_known(&mut self, interface: u32, address: IpAddr) -> Result<bool> {
        let mut body = [0; NDMSG_BYTES];
        body[0] = Family::of(address).number();
        body[4..8].copy_from_slice(&interface.to_ne_bytes());
        let mut request = Message::new(libc::RTM_GETNEIGH, 0, &body);
        request.attr(NDA_DST, &octets(address));
        let mut state = 0;
        let asked = self.query(request, "asking for a neighbour", |answer| {
            let fixed = answer.split(NDMSG_BYTES).map(|(fixed, _)| fixed);
            state = fixed.and_then(|fixed| u16_at(fixed, 8)).unwrap_or(0);
        });
        match asked {
            Err(Error::Netlink { answer, .. }) if answer.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            other => other.map(|()| state & VALID != 0),
        }
    }
}
