//! Who gets to see Farlink's option: gateways at the ends of declared links, and nobody else.

use farlink_wire::{Instant, PacketBuf, Parsed, TcpSegment, edit, parse, shim, verify_checksums};

use crate::engine::{Engine, Outcome};
use crate::net::{IfaceId, Via};
use crate::world::World;

impl Engine {
    /// A segment with our option that comes from where no gateway stands: nobody is to read it.
    pub(crate) fn handle_without_option(
        &mut self,
        now: Instant,
        via: Via,
        s: &TcpSegment,
        mut packet: PacketBuf,
        net: &mut dyn World,
    ) -> Outcome {
        if !verify_checksums(packet.bytes(), s, &packet.offload) {
            // Nobody reads it, and it stays as broken as it came.
            return Outcome::Forward(packet);
        }
        edit::remove_farlink_option(&mut packet, s);
        match parse(packet.bytes()) {
            Parsed::Tcp(s) if !s.options.has_ours() => self.handle_packet(now, via, &s, packet, net),
            _ => Outcome::Forward(packet),
        }
    }

    /// A handshake with XCP's own header, which no gateway sends.
    pub(crate) fn handle_without_shim(
        &mut self,
        now: Instant,
        via: Via,
        mut packet: PacketBuf,
        net: &mut dyn World,
    ) -> Outcome {
        shim::take_out(&mut packet, self.config.shims());
        match parse(packet.bytes()) {
            Parsed::Tcp(s) => self.handle_packet(now, via, &s, packet, net),
            _ => Outcome::Forward(packet),
        }
    }

    /// A segment that goes on to a host, or as one of ours. Its options are taken out, which `s`
    /// does not know then; XCP's own header, too.
    pub(crate) fn take_ours_out(&self, s: &TcpSegment, packet: &mut PacketBuf) {
        if s.options.has_ours() {
            edit::remove_farlink_option(packet, s);
        }
        if s.shim.is_some() {
            shim::take_out(packet, self.config.shims());
        }
    }

    /// A packet that is none of ours goes on. What a gateway has told on a link is for the one at
    /// the end of the next link, not for a host.
    pub(crate) fn pass(
        &self,
        via: Via,
        s: &TcpSegment,
        mut packet: PacketBuf,
        net: &mut dyn World,
    ) -> Outcome {
        if s.options.has_ours() && verify_checksums(packet.bytes(), s, &packet.offload) {
            let out = net.route(via, s.ip.src, s.ip.dst).map_or(IfaceId::OTHER, |r| r.iface);
            if !self.is_link(out) {
                edit::remove_farlink_option(&mut packet, s);
            }
        }
        Outcome::Forward(packet)
    }
}
