//! Both hosts of a connection, however it is treated: what their legs and their agreement say by
//! themselves.

use farlink_wire::{Duration, Flags, SegmentHeader, SeqNum};

use crate::cx::Cx;
use crate::leg::{Agreed, Leg};
use crate::link::Links;
use crate::net::Way;
use crate::path_mtu::PathMtu;
use crate::side::{Pair, Side};
use crate::tally::count_bare;
use crate::world::Made;

/// Both hosts of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Hosts<'a> {
    /// What is known of them.
    pub legs: &'a Pair<Leg>,
    /// What they agreed on.
    pub agreed: Agreed,
}

impl Hosts<'_> {
    /// One of the legs is a declared link.
    #[must_use]
    pub fn is_on_link(&self) -> bool {
        [self.legs.a.out, self.legs.b.out].into_iter().any(|out| matches!(out, Way::Link(_)))
    }

    /// Payload bytes of a full segment towards a host, options deducted.
    #[must_use]
    pub fn segment_payload(&self, to: Side) -> u32 {
        self.payload_of(to, self.legs.get(to).path_mtu.bytes())
    }

    /// The same where packets may have so many bytes.
    #[must_use]
    pub fn payload_of(&self, to: Side, mtu_bytes: u32) -> u32 {
        let leg = self.legs.get(to);
        let by_mtu = mtu_bytes.saturating_sub(leg.header_bytes());
        let timestamps = if self.agreed.timestamps { 12 } else { 0 };
        let options = timestamps + leg.peer.mark_bytes(self.agreed.marks_padding()) + leg.explicit_bytes();
        by_mtu.min(u32::from(leg.mss())).saturating_sub(options).max(8)
    }

    /// An acknowledgement of a host, bytes of IP packet.
    #[must_use]
    pub fn ack_bytes(&self, of: Side) -> u32 {
        self.legs.get(of).header_bytes() + if self.agreed.timestamps { 12 } else { 0 }
    }

    /// So long acknowledgements of a host wait before a link that is slow that way (a gateway sends
    /// few).
    #[must_use]
    pub fn acks_wait(&self, links: &Links, of: Side) -> Duration {
        let leg = self.legs.get(of);
        let link = links.get(leg.out).filter(|_| !leg.peer.is_marked());
        link.map_or(Duration::ZERO, |link| link.acks_wait(self.ack_bytes(of)))
    }

    /// What is the same in all segments to a host in the other one's name.
    #[must_use]
    pub fn header(&self, to: Side) -> SegmentHeader<'static> {
        let (src, dst) = (self.legs.get(to.other()), self.legs.get(to));
        SegmentHeader {
            ttl: src.ttl.saturating_add(1),
            traffic_class: src.traffic_class & !3,
            flow_label: src.flow_label,
            dont_fragment: !dst.path_mtu.is_cut(),
            ..SegmentHeader::between((src.addr, src.port), (dst.addr, dst.port))
        }
    }

    /// RST to a host in the other one's name.
    pub fn make_rst(&self, cx: &mut Cx<'_>, to: Side, seq: SeqNum, ack: SeqNum) {
        self.make_bare(cx, to, Flags::RST | Flags::ACK, seq, ack);
    }

    /// A segment without payload and relay, to a host in the other one's name.
    pub(crate) fn make_bare(&self, cx: &mut Cx<'_>, to: Side, flags: Flags, seq: SeqNum, ack: SeqNum) {
        let (src, dst) = (self.legs.get(to.other()), self.legs.get(to));
        let window = if flags.rst() { 0 } else { crate::window::field(src.window_bytes(), src.window_scale) };
        let timestamps = self.agreed.timestamps.then(|| src.timestamps_to(dst));
        let header = SegmentHeader { seq, ack, flags, window, timestamps, ..self.header(to) };
        let size = cx.net.send(&Made::bare((src.via(), dst.out), header));
        count_bare(cx, dst.out, size);
    }
}

/// Looks up which way packets to a host leave, and how large they may be. Returns the way before,
/// if it was another one.
pub fn look_up(cx: &mut Cx<'_>, legs: &mut Pair<Leg>, to: Side) -> Option<Way> {
    let (other, leg) = legs.both_mut(to.other());
    let r = cx.net.route(other.via(), other.addr, leg.addr)?;
    let out = cx.links.way(r.iface);
    let before = core::mem::replace(&mut leg.out, out);
    leg.leave_over(cx.links.get(out), other.addr);
    if before != out {
        // What was found out about the size of packets was of another way.
        leg.path_mtu = PathMtu::default();
    }
    leg.path_mtu.set_route(cx.now, r.mtu_bytes.max(if leg.addr.is_ipv4() { 68 } else { 1280 }));
    let known = cx.links.get(out).and_then(|link| link.clients().mtu(cx.now, leg.addr));
    if let Some((mtu, at)) = known {
        leg.path_mtu.recall(at, mtu);
    }
    (before != out).then_some(before)
}
