//! How packets go on: plain forwarding by destination, what does not fit a link, and wires.

use farlink_wire::icmp;

use super::World;
use crate::node::{Kind, Port, host_of, router_address};
use crate::packet::{SimPacket, may_be_cut};

impl World {
    pub(super) fn mtu_towards(&self, node: usize, bytes: &[u8]) -> Option<u32> {
        let n = &self.nodes[node];
        let port = *n.routes.get(parse_dst(bytes)?)?;
        Some(n.ports.get(port)?.mtu_at(self.now))
    }

    /// Plain forwarding by destination.
    pub(super) fn forward(&mut self, node: usize, bytes: Vec<u8>, corrupted: bool) {
        let n = &self.nodes[node];
        let port = match (parse_dst(&bytes), &n.kind) {
            (Some(host), _) => n.routes.get(host).copied(),
            // What a host sends to a router goes to the one next to it.
            (None, Kind::Host(..)) => Some(0),
            (None, _) => None,
        };
        let Some(port) = port.and_then(|p| n.ports.get(p)) else { return };
        if bytes.len() as u32 > port.mtu_at(self.now) {
            let port = *port;
            self.too_big(node, &bytes, port);
            return;
        }
        let wire = port.wire;
        self.nodes[node].kind.note_sent(wire, bytes.len());
        self.push(wire, SimPacket { bytes, corrupted });
    }

    fn too_big(&mut self, node: usize, bytes: &[u8], port: Port) {
        let mtu = port.mtu_at(self.now);
        if !may_be_cut(bytes) {
            let from = router_address(node, bytes[0] >> 4 == 6);
            let mut error = Vec::new();
            if !port.is_silent && icmp::build_packet_too_big(bytes, from, mtu, &mut error).is_ok() {
                self.forward(node, error, false);
            }
            return;
        }
        let mut pieces = Vec::new();
        let _ = farlink_wire::fragment::fragment(bytes, mtu as usize, 0, &mut |p| pieces.push(p.to_vec()));
        self.router_fragments += pieces.len() as u64;
        for p in pieces {
            self.push(port.wire, SimPacket::new(p));
        }
    }

    fn push(&mut self, wire: usize, packet: SimPacket) {
        self.packets += 1;
        self.trace.hash(self.now, wire, &packet.bytes);
        let w = &mut self.wires[wire];
        if let Some(meter) = &mut w.meter {
            meter.count(self.now, &packet.bytes);
            if self.observer.hostile.is_packet_of_liar(&packet.bytes) {
                meter.hostile_bytes += packet.bytes.len() as u64;
            } else if self.observer.hostile.is_packet_forged(&packet.bytes) {
                meter.forged_bytes += packet.bytes.len() as u64;
            }
        }
        w.channel.push(self.now, packet);
        w.due = w.channel.poll_timeout();
        debug_assert!(w.from < self.nodes.len());
    }
}

/// Number of the host that a packet is for.
pub(super) fn parse_dst(bytes: &[u8]) -> Option<usize> {
    use std::net::{Ipv4Addr, Ipv6Addr};
    let address = match bytes.first()? >> 4 {
        4 => {
            let a: [u8; 4] = bytes.get(16..20)?.try_into().ok()?;
            Ipv4Addr::from(a).into()
        }
        6 => {
            let a: [u8; 16] = bytes.get(24..40)?.try_into().ok()?;
            Ipv6Addr::from(a).into()
        }
        _ => return None,
    };
    host_of(address)
}
