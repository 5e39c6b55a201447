//! The device of a bumped interface: packets behind an Ethernet header that says where they were
//! met, or where they go.

use std::os::fd::{AsFd, BorrowedFd};

use farlink_wire::{Offload, Pool, edit};

use super::frame::{
    ETHERNET_BYTES, FOR_MACHINE, FROM_STACK, FROM_WIRE, LOCAL, LOW_BITS, MARKED, TO_NEIGHBOUR, TO_NEXT_HOP,
    TO_STACK, TO_WIRE, WAY_BITS,
};
use super::marks::{Marking, Place};
use crate::error::Result;
use crate::netlink::Link;
use crate::tun::{Offloads, ReadOutcome, Tun, TunConfig, WriteError};

/// The two sides of a bump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The network that the interface leads to.
    Wire,
    /// The machine itself.
    Stack,
}

/// A hardware address.
pub type Mac = [u8; 6];

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Into the machine, as if it had come in by the interface.
    IntoMachine,
    /// Out by the interface, to the next hop that the kernel finds there.
    Out,
    /// Out by the interface, to this next hop.
    OutTo(Mac),
}

/// Where a packet was met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// It came from there.
    pub from: Side,
    /// Number of the interface by which it came into the machine.
    pub interface: u32,
    /// It is for an address of this machine: NAT may know whose it is, or it is for nobody.
    pub is_for_machine: bool,
    /// The next hop that the kernel has chosen for it.
    pub next_hop: Option<Mac>,
    /// Its mark and priority.
    pub marking: Marking,
}

/// A bumped interface, as packets for it need to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    interface: u32,
    ethernet: Option<Mac>,
}

/// The Ethernet source of what Farlink sends into the machine as if it had come in by this
/// interface. A capture there sees such a packet beside the one that it stands for.
#[must_use]
pub fn injected_source(interface: u32) -> Mac {
    let [i, j, k, l] = interface.to_ne_bytes();
    [LOCAL, TO_STACK, i, j, k, l]
}

impl From<&Link> for Target {
    fn from(link: &Link) -> Self {
        Self { interface: link.index, ethernet: link.ethernet }
    }
}

impl Target {
    /// The header of a packet of this IP version.
    fn frame(&self, (way, place): (Way, Place), is_v6: bool) -> [u8; ETHERNET_BYTES] {
        let (told, to) = match (way, self.ethernet) {
            // The kernel takes what is for the interface's own address.
            (Way::IntoMachine, own) => (TO_STACK, own),
            (_, None) => (TO_WIRE, None),
            (Way::Out, own) => (TO_NEIGHBOUR, own),
            (Way::OutTo(next_hop), Some(_)) => (TO_NEXT_HOP, Some(next_hop)),
        };
        let [a, b, c, d, e, f] = to.unwrap_or_default();
        let [i, j, k, l] = self.interface.to_ne_bytes();
        let [h, t] = if is_v6 { [0x86, 0xdd] } else { [0x08, 0x00] };
        let (high, low) = (place.number() >> LOW_BITS, place.number() & ((1 << LOW_BITS) - 1));
        let (first, told) = (LOCAL | (high << WAY_BITS) as u8, told | (low << WAY_BITS) as u8);
        [a, b, c, d, e, f, first, told, i, j, k, l, h, t]
    }
}

/// Whether a header says that its packet has a mark or a priority.
fn is_marked(header: &[u8]) -> bool {
    header.get(6) == Some(&LOCAL) && header.get(7).is_some_and(|side| side & MARKED != 0)
}

/// The device.
#[derive(Debug)]
pub struct Tap {
    tun: Tun,
}

impl Tap {
    /// Makes the device in the calling thread's network namespace.
    ///
    /// # Errors
    /// As of [`Tun::create`].
    pub fn create(config: &TunConfig) -> Result<Self> {
        Tun::create_tap(config).map(|tun| Self { tun })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.tun.name()
    }
    /// Its interface number.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.tun.index()
    }
    /// What the kernel hands over and accepts.
    #[must_use]
    pub fn offloads(&self) -> Offloads {
        self.tun.offloads()
    }

    /// Reads one packet and says where it was met. The kernel routes it once, as without us, and
    /// one hop is given back to what is forwarded: so one is taken here. Never waits.
    ///
    /// # Errors
    /// As of [`Tun::read`].
    pub fn read(&mut self, pool: &mut Pool) -> Result<(ReadOutcome, Arrival)> {
        let (mut first, mut second) = ([0u8; ETHERNET_BYTES], [0u8; ETHERNET_BYTES]);
        let mut outcome = self.tun.read_behind(pool, (&mut first, &mut second), is_marked)?;
        let (marking, to) = if is_marked(&first) {
            let [a, b, c, d, e, f, .., g, h] = first;
            let (mark, priority) = (u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h]));
            (Marking { mark, priority }, second)
        } else {
            (Marking::default(), first)
        };
        let [a, b, c, d, e, f, ..] = to;
        let [_, _, _, _, _, _, local, side, i, j, k, l, ..] = first;
        let side = side & !MARKED;
        let from = match (local, side) {
            (LOCAL, FROM_WIRE | FOR_MACHINE) => Some(Side::Wire),
            (LOCAL, FROM_STACK) => Some(Side::Stack),
            // What somebody else sends by this device.
            _ => None,
        };
        let arrival = Arrival {
            from: from.unwrap_or(Side::Wire),
            interface: u32::from_ne_bytes([i, j, k, l]),
            is_for_machine: side == FOR_MACHINE,
            next_hop: Some([a, b, c, d, e, f]).filter(|to| side == FROM_STACK && *to != Mac::default()),
            marking,
        };
        match (&mut outcome, from) {
            (ReadOutcome::Packet(packet), Some(_)) => edit::decrement_packet_ttl(packet.bytes_mut()),
            (ReadOutcome::Packet(_), None) => return Ok((ReadOutcome::Odd, arrival)),
            _ => {}
        }
        Ok((outcome, arrival))
    }

    /// Writes one packet to a bumped interface, with the mark and priority of this place. Never
    /// waits.
    ///
    /// # Errors
    /// As of [`Tun::write`].
    pub fn write(
        &self,
        (target, way, place): (&Target, Way, Place),
        offload: &Offload,
        header: &[u8],
        payload: &[&[u8]],
    ) -> std::result::Result<(), WriteError> {
        let is_v6 = header.first().is_some_and(|b| b >> 4 == 6);
        self.tun.write_behind(&target.frame((way, place), is_v6), offload, header, payload)
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tun.as_fd()
    }
}
