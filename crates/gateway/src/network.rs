//! What a gateway asks of its driver: packets to write, routes, a journal.

use core::net::IpAddr;

use farlink_engine::event::{Ends, Event};
use farlink_engine::net::{IfaceId, Route, Via};
use farlink_engine::record::Record;
use farlink_wire::Offload;

/// A packet on its way out: IP and TCP header, then payload by reference. Valid only during the
/// call.
#[derive(Debug)]
pub struct Transmit<'a> {
    /// How packets of the claimed source come in, or how this one did: it is written to the TUN of
    /// that interface, and given what the kernel has shown of them, so that the kernel treats it as
    /// it would have treated the source's own packet.
    pub via: Via,
    /// The interface it is expected to leave by.
    pub out: IfaceId,
    /// IP and TCP header. For a forwarded packet: the whole packet, with an empty payload list.
    pub header: &'a [u8],
    /// Payload in order. Header and payload together are one IP packet, possibly a super-segment
    /// (`offload.gso_size`).
    pub payload: &'a [&'a [u8]],
    /// Checksum and segmentation that are still to be done.
    pub offload: Offload,
    /// It was made here; else it is a packet that came in, fields of it perhaps changed.
    pub is_made: bool,
}

impl Transmit<'_> {
    /// Bytes of the packet, IP header included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.header.len() + self.payload.iter().map(|p| p.len()).sum::<usize>()
    }
    /// Whether it is empty (it never is).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What an interface has sent since it is there, or received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Packets; a virtual interface may count a super-segment as one.
    pub packets: u64,
    /// Bytes, with what the interface adds to each packet.
    pub bytes: u64,
}

/// How the counters of an interface stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counts {
    /// Somebody reads them for the gateway. Ask again with the next batch of packets.
    Awaited,
    /// They are of a moment ago: packets that have left since are not counted.
    Recent,
    /// They are of now.
    Exact,
}

/// The driver, as the gateway sees it during a call.
pub trait Network {
    /// Takes a packet away. Called while the gateway is at work: the driver writes or copies, and
    /// must not call back.
    fn transmit(&mut self, packet: &Transmit<'_>);
    /// Which way a packet with this source and destination would leave, having come in as `from`
    /// says. `None`: no route.
    fn route(&mut self, from: Via, src: IpAddr, dst: IpAddr) -> Option<Route>;
    /// Keeps (or, with `None`, forgets) the record of a flow that holds custody, under a slot
    /// number that is reused. It must survive the process: a restart hands the records to
    /// `reset_recorded`.
    fn journal(&mut self, slot: u32, record: Option<&Record>);
    /// The record under this slot is where it survives the process; else there was no room for it,
    /// and nothing more is promised to hosts of that flow.
    fn is_kept(&self, _slot: u32) -> bool {
        true
    }
    /// Whether `sent_by` and `received_by` have something new to say of an interface.
    fn counts(&mut self, _iface: IfaceId) -> Counts {
        Counts::Exact
    }
    /// What has left by an interface in all, whoever sent it; `None`: nobody counts.
    fn sent_by(&mut self, _iface: IfaceId) -> Option<Sent> {
        None
    }
    /// What has come in by an interface in all, whoever it was for; `None`: nobody counts.
    fn received_by(&mut self, _iface: IfaceId) -> Option<Sent> {
        None
    }
    /// Hears what happens to a connection: for a log. The counters have it already.
    fn happened(&mut self, _ends: &Ends, _what: Event) {}
}
