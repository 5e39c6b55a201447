//! A tunnel between the hosts, as WireGuard makes one: each IP packet travels in a UDP datagram of
//! one address and port at each end. Nobody on the way sees TCP, only a flow of UDP that slows down
//! by itself, as QUIC does.

use farlink_wire::ip;
use farlink_wire::ip::{IPV4_HEADER_BYTES, IPV6_HEADER_BYTES, PROTOCOL_UDP};

use super::datagrams::{UDP_HEADER_BYTES, write_udp};

/// MTU of the device in a path of 1,500 bytes, as wg-quick sets it.
pub const MTU_BYTES: u32 = 1_420;
/// What a datagram has beyond the packet: header and tag of WireGuard.
const OWN_BYTES: usize = 32;
/// The port at both ends.
const PORT: u16 = 51_820;

/// The datagram that carries this packet.
pub(super) fn wrapped(packet: &[u8]) -> Option<Vec<u8>> {
    let ends = ip::addresses(packet)?;
    let at = if ends.0.is_ipv6() { IPV6_HEADER_BYTES } else { IPV4_HEADER_BYTES };
    let mut outer = vec![0; at + UDP_HEADER_BYTES + OWN_BYTES + packet.len()];
    outer.get_mut(at + UDP_HEADER_BYTES + OWN_BYTES..)?.copy_from_slice(packet);
    write_udp(&mut outer, 0, ends, [PORT; 2]);
    Some(outer)
}

/// The packet that this datagram carries; `None`: it is none of the tunnel's.
pub(super) fn unwrapped(outer: &[u8]) -> Option<&[u8]> {
    let upper =
        ip::upper_layer(outer).filter(|upper| !upper.is_fragment && upper.protocol == PROTOCOL_UDP)?;
    let udp = outer.get(upper.at..)?;
    let is_ours = udp.get(2..4)? == PORT.to_be_bytes();
    udp.get(UDP_HEADER_BYTES + OWN_BYTES..).filter(|_| is_ours)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::address;
    use crate::linux::host::{CLIENT, SERVER};

    #[test]
    fn a_packet_travels_in_a_datagram_between_the_same_hosts() {
        for v6 in [false, true] {
            let mut packet = vec![7; 1_420];
            let ends = (address(CLIENT, v6), address(SERVER, v6));
            write_udp(&mut packet, 0, ends, [1, 2]);
            let outer = wrapped(&packet).unwrap();
            assert!(outer.len() <= 1_500, "{}", outer.len());
            assert!(crate::packet::router_accepts(&outer));
            assert_eq!(ip::addresses(&outer), Some(ends));
            assert_eq!(unwrapped(&outer), Some(packet.as_slice()));
            assert_eq!(unwrapped(&packet), None);
        }
    }
}
