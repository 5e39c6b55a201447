//! What the engine asks of the world round it, and what it hands out: made segments, as values.

use core::net::IpAddr;

use farlink_wire::{SegmentHeader, Shim, WireSize};

use crate::event::{Ends, Event};
use crate::net::{Route, Via, Way};
use crate::record::Record;

/// A segment that leaves: its fields, and its payload by reference. Valid only during the call.
#[derive(Debug)]
pub struct Made<'a> {
    /// How packets of the claimed source come in.
    pub via: Via,
    /// The way that it is expected to leave.
    pub out: Way,
    /// Its fields but the IPv4 identification, which the way out chooses.
    pub header: SegmentHeader<'a>,
    /// Payload in order.
    pub payload: &'a [&'a [u8]],
    /// Payload bytes of each segment on the wire: more payload is cut.
    pub segment_bytes: u32,
    /// More payload than that stays one segment, in IP fragments of packets of at most so many
    /// bytes; `None`: segments are cut.
    pub fragments: Option<Fragments>,
    /// XCP's own header before TCP: of IPv4 alone, and of one packet.
    pub shim: Option<Shim>,
}

/// How a segment that is larger than a packet leaves (Hasegawa, section 3.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fragments {
    /// The largest packet, bytes.
    pub packet_bytes: u32,
    /// They carry DF, so that a router that has no room for them says so.
    pub dont_fragment: bool,
}

impl<'a> Made<'a> {
    /// A segment without payload.
    #[must_use]
    pub fn bare((via, out): (Via, Way), header: SegmentHeader<'a>) -> Self {
        Self { via, out, header, payload: &[], segment_bytes: 0, fragments: None, shim: None }
    }

    /// Payload bytes.
    #[must_use]
    pub fn payload_bytes(&self) -> usize {
        self.payload.iter().map(|p| p.len()).sum()
    }
}

/// The world, as the engine sees it during a call.
pub trait World {
    /// Takes a segment away, and says what it takes on the wire: nothing where it could not be
    /// made. Called while the engine is at work, so it must not call back.
    fn send(&mut self, made: &Made<'_>) -> WireSize;
    /// Which way a packet with this source and destination would leave, having come in as `from`
    /// says. `None`: no route.
    fn route(&mut self, from: Via, src: IpAddr, dst: IpAddr) -> Option<Route>;
    /// Keeps (or, with `None`, forgets) the record of a flow that holds custody, under a slot
    /// number that is reused. It must survive the process: a restart hands the records to
    /// `reset_recorded`.
    fn journal(&mut self, slot: u32, record: Option<&Record>);
    /// The record under this slot is where it survives the process; else there was no room for it.
    fn is_kept(&self, _slot: u32) -> bool {
        true
    }
    /// Hears what happens to a connection. The counters have it already.
    fn happened(&mut self, ends: &Ends, what: Event);
}
