//! The queue of a link as an XCP router: it answers the wishes of packets that other gateways have
//! sent. What this gateway sends itself needs no answer, for the queue is its clock; it is counted.

use farlink_wire::{Instant, PacketBuf, Parsed, TcpSegment, WireSize, edit, parse, supersegment};
use farlink_xcp::{Config, Router};

/// The bytes of a usual packet, beside which a link layer's overhead is counted.
const PACKET_BYTES: u64 = 1_500;

/// See the module.
pub struct XcpQueue {
    router: Router,
    overhead_bytes: u32,
    /// Its rate is known. Else it says nothing.
    has_rate: bool,
}

impl XcpQueue {
    /// Before a link of this rate, bits a second, each packet of which takes so many bytes more.
    pub fn new(now: Instant, rate_bps: Option<u64>, overhead_bytes: u32) -> Self {
        let router = Router::new(now, Config::of_rate(0));
        let mut queue = Self { router, overhead_bytes, has_rate: false };
        queue.set_rate(rate_bps);
        queue
    }

    /// The link has another rate from now on.
    pub fn set_rate(&mut self, rate_bps: Option<u64>) {
        self.has_rate = rate_bps.is_some();
        let rate = u128::from(rate_bps.unwrap_or(0)) * u128::from(PACKET_BYTES);
        let carried = rate / u128::from(PACKET_BYTES + u64::from(self.overhead_bytes));
        self.router.set_capacity(u64::try_from(carried).unwrap_or(u64::MAX));
    }

    /// A packet joins the queue, in which so many bytes wait.
    pub fn arrive(&mut self, now: Instant, packet: &PacketBuf, queue_bytes: usize) {
        let size = supersegment::wire_size(packet.bytes(), &packet.offload);
        let said = segment(packet).and_then(|s| s.options.xcp);
        self.router.on_arrival(now, size, said.as_ref(), queue_bytes as u64);
    }

    /// It leaves the queue, and so many bytes wait behind it.
    pub fn depart(&mut self, now: Instant, packet: &mut PacketBuf, queue_bytes: usize) {
        let said = segment(packet).and_then(|s| s.options.xcp.map(|said| (s, said)));
        let Some((s, said)) = said.filter(|_| self.has_rate) else {
            return self.router.note_departure(now, queue_bytes as u64);
        };
        let size = supersegment::wire_size(packet.bytes(), &packet.offload);
        let left = self.router.on_departure(now, size, &said, queue_bytes as u64);
        if left != said {
            edit::set_xcp_delta(packet, &s, left.delta_bytes_per_s);
        }
    }

    /// Something of this gateway's own has left.
    pub fn pass(&mut self, now: Instant, size: WireSize, queue_bytes: usize) {
        self.router.on_arrival(now, size, None, queue_bytes as u64);
        self.router.note_departure(now, queue_bytes as u64);
    }
}

fn segment(packet: &PacketBuf) -> Option<TcpSegment> {
    match parse(packet.bytes()) {
        Parsed::Tcp(s) => Some(s),
        _ => None,
    }
}
