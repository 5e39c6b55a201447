//! What a packet says of how it is sent (XCP), in either form: for routers, which read it and lower
//! the wish.
//!
//! It stands in an option of Farlink's own (`xcp.rs`) or in the draft's header (`shim.rs`).

use crate::bytes::put;
use crate::edit::{options_area, patch_covered};
use crate::ip::{Parsed, parse};
use crate::options::OptionWalk;
use crate::packet::PacketBuf;
use crate::shim::{Shim, ShimProtocols};
use crate::tcp::{TCP_CHECKSUM_OFFSET, TCP_HEADER_BYTES};
use crate::xcp::{DELTA_AT, XcpFields};

/// What a packet says, and where it does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Said {
    /// What it says.
    pub fields: XcpFields,
    place: Place,
}

/// Where the wish stands, from the packet's first byte on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// In a TCP header, which begins at `tcp_at`: its checksum covers it.
    Option { tcp_at: usize, delta_at: usize },
    /// In a header that no checksum covers.
    Shim { delta_at: usize },
}

impl Said {
    /// What a packet says; these protocols stand for the draft's header, behind which anything may
    /// stand. Its minimal format is nothing for routers.
    #[must_use]
    pub fn of(packet: &[u8], shims: ShimProtocols) -> Option<Self> {
        if let Some((at, _, shim)) = Shim::of_packet(packet, shims) {
            let place = Place::Shim { delta_at: at.saturating_add(shim.delta_at()) };
            return Some(Self { fields: shim.said?, place });
        }
        let Parsed::Tcp(s) = parse(packet) else { return None };
        let fields = s.options.xcp?;
        let found = OptionWalk::new(options_area(packet, &s)?).find(|raw| XcpFields::of(raw).is_some())?;
        let tcp_at = s.tcp_offset();
        let delta_at = tcp_at.saturating_add(TCP_HEADER_BYTES + DELTA_AT).saturating_add(found.offset);
        Some(Self { fields, place: Place::Option { tcp_at, delta_at } })
    }

    /// Lowers the wish of the packet that says this to so many bytes a second. A TCP checksum is
    /// brought up to date; one left partial covers no options.
    pub fn lower(&self, packet: &mut PacketBuf, delta_bytes_per_s: i32) {
        let is_partial = packet.offload.is_partial();
        self.write(packet.bytes_mut(), delta_bytes_per_s, is_partial);
    }

    /// The same in a packet with a complete checksum that is no [`PacketBuf`].
    pub fn lower_in(&self, packet: &mut [u8], delta_bytes_per_s: i32) {
        self.write(packet, delta_bytes_per_s, false);
    }

    fn write(&self, packet: &mut [u8], delta_bytes_per_s: i32, is_partial: bool) {
        let value = delta_bytes_per_s.to_be_bytes();
        match self.place {
            Place::Shim { delta_at } => {
                put(packet, delta_at, &value);
            }
            Place::Option { tcp_at, delta_at } => {
                if let Some(tcp) = packet.get_mut(tcp_at..) {
                    let check_at = (!is_partial).then_some(TCP_CHECKSUM_OFFSET);
                    patch_covered(tcp, delta_at.saturating_sub(tcp_at), &value, check_at);
                }
            }
        }
    }
}
