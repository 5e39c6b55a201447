//! The queue of a link as an XCP router: it answers the wishes of packets that other gateways have
//! sent. These wait in a group of their own, and share the link by weights with all others. What
//! this gateway sends itself needs no answer, for the queue is its clock; it counts as the others.

use farlink_egress::{Class, Egress, Lane, Share};
use farlink_engine::config::XcpWeights;
use farlink_wire::{Duration, Instant, PacketBuf, Said, ShimProtocols, WireSize, supersegment};
use farlink_xcp::{Backlog, Config, Kind, Port};

use crate::group;

/// The bytes of a usual packet, beside which a link layer's overhead is counted.
const PACKET_BYTES: u64 = 1_500;
/// Plain packets may wait for as long as a round trip of XCP traffic lasts, but for this in any
/// case: it is the usual one of hosts.
const ROOM_MIN: Duration = Duration::from_millis(50);
/// Some of them may, however slow the link is.
const ROOM_PACKETS_MIN: u64 = 64;

/// See the module.
pub struct XcpQueue {
    port: Port,
    overhead_bytes: u32,
    /// Its rate is known. Else it says nothing.
    has_rate: bool,
    /// The rate of the link, bits a second of packets as they are on it.
    rate_bps: Option<u64>,
    /// They stand for the draft's header.
    shims: ShimProtocols,
}

impl XcpQueue {
    /// Before this link, each packet of which takes so many bytes more. The queue gets its groups.
    pub fn new<P>(now: Instant, egress: &mut Egress<P>, weights: XcpWeights, shims: ShimProtocols) -> Self {
        let (rate_bps, overhead_bytes) = (egress.config().rate_bps, egress.config().overhead_bytes);
        let port = Port::new(now, Config::of_rate(0), Some(weights));
        let mut queue = Self { port, overhead_bytes, has_rate: false, rate_bps: None, shims };
        // What of its rate the link really carries shows in what leaves.
        queue.port.measure();
        queue.set_weights(now, egress, weights);
        queue.set_rate(rate_bps);
        queue
    }

    /// The groups share by these from now on.
    pub fn set_weights<P>(&mut self, now: Instant, egress: &mut Egress<P>, weights: XcpWeights) {
        self.port.set_weights(weights);
        for (group, weight) in [(group::XCP, weights.xcp), (group::PLAIN, weights.plain)] {
            // Without the group its packets wait with the others, and are answered all the same.
            let _ = egress.set_group(now, group, Share { weight, rate_bps: None });
        }
    }

    /// How the groups share.
    pub fn weights(&self) -> XcpWeights {
        self.port.weights().unwrap_or_default()
    }

    /// What XCP traffic has of the link now, bits a second; `None`: the rate is not known.
    pub fn capacity_bps(&self) -> Option<u64> {
        self.has_rate.then(|| self.port.capacity_bps())
    }

    /// The link has another rate from now on.
    pub fn set_rate(&mut self, rate_bps: Option<u64>) {
        self.has_rate = rate_bps.is_some();
        if self.rate_bps != rate_bps {
            self.rate_bps = rate_bps;
            let rate = u128::from(rate_bps.unwrap_or(0)) * u128::from(PACKET_BYTES);
            let carried = rate / u128::from(PACKET_BYTES + u64::from(self.overhead_bytes));
            self.port.set_link(u64::try_from(carried).unwrap_or(u64::MAX));
        }
    }

    /// A packet of this class joins the queue. Where in it.
    pub fn arrive<P>(
        &mut self,
        now: Instant,
        packet: &PacketBuf,
        class: Class,
        egress: &mut Egress<P>,
    ) -> Lane {
        // The other direction may have taken some of the medium since.
        self.set_rate(egress.carries_bps(now));
        let size = supersegment::wire_size(packet.bytes(), &packet.offload);
        let said = Said::of(packet.bytes(), self.shims).map(|said| said.fields);
        let kind = kind_of(class, said.is_some());
        self.port.arrive(now, size, kind, said.as_ref(), backlog(egress));
        egress.set_group_limit(group::PLAIN, self.plain_room(egress));
        match kind {
            // The router shares among those that wait here: none of them goes before another.
            Kind::Xcp => Lane { class: Class::Bulk, group: group::XCP },
            Kind::First | Kind::Plain | Kind::Last => class.into(),
        }
    }

    /// A packet that joined it in this class leaves it.
    pub fn depart<P>(&mut self, now: Instant, packet: &mut PacketBuf, class: Class, egress: &Egress<P>) {
        let said = Said::of(packet.bytes(), self.shims);
        let fields = said.as_ref().map(|said| &said.fields);
        let size = supersegment::wire_size(packet.bytes(), &packet.offload);
        let left = self.port.depart(now, size, kind_of(class, said.is_some()), fields, backlog(egress));
        if let (Some(said), Some(left)) = (said, left.filter(|_| self.has_rate))
            && left != said.fields
        {
            said.lower(packet, left.delta_bytes_per_s);
        }
    }

    /// Something of this gateway's own has left, in this class.
    pub fn pass<P>(&mut self, now: Instant, size: WireSize, class: Class, egress: &Egress<P>) {
        // It says nothing that is to be answered.
        let _ = self.port.depart(now, size, kind_of(class, false), None, backlog(egress));
    }

    /// Bytes of plain packets that may wait: what its part of the link carries in a round trip.
    fn plain_room<P>(&self, egress: &Egress<P>) -> usize {
        let Some(rate_bps) = self.rate_bps else { return usize::MAX };
        let rtt = self.port.router().mean_rtt().max(egress.config().rtt.unwrap_or(ROOM_MIN)).max(ROOM_MIN);
        let bytes = rate_bps as f64 / 8.0 * rtt.as_secs_f64();
        let room = bytes.max((ROOM_PACKETS_MIN * PACKET_BYTES) as f64) * self.port.plain_part();
        room as usize
    }
}

fn backlog<P>(egress: &Egress<P>) -> Backlog {
    let all = egress.stats().backlog_bytes;
    Backlog { xcp_bytes: egress.group_backlog_bytes(group::XCP) as u64, all_bytes: all as u64 }
}

/// What a packet is to the queue. Whatever its class, data that says how fast it is sent is XCP
/// traffic.
fn kind_of(class: Class, says: bool) -> Kind {
    match class {
        Class::Control => Kind::First,
        _ if says => Kind::Xcp,
        Class::Interactive => Kind::First,
        Class::Bulk => Kind::Plain,
        Class::Background | Class::Spare => Kind::Last,
    }
}
