//! Datagrams that the client sends to the server at given times (UDP), and when each arrived.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;

use farlink_wire::ip::{IPV4_HEADER_BYTES, IPV6_HEADER_BYTES, PROTOCOL_UDP};
use farlink_wire::{Duration, Instant, checksum, ip};

use super::host::{CLIENT, SERVER};
use crate::host::address;

pub(super) const UDP_HEADER_BYTES: usize = 8;
/// Each datagram carries its number.
const NUMBER_BYTES: usize = size_of::<u32>();
/// TTL, or hop limit.
const HOPS: u8 = 64;
/// Ports of client and server.
const PORTS: [u16; 2] = [40_000, 5002];

/// One of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Datagram {
    /// When it is sent.
    pub at: Duration,
    /// Bytes of the IP packet: its headers and four bytes at least.
    pub bytes: u16,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Datagrams {
    /// All of them, the earliest first.
    pub all: Vec<Datagram>,
    /// DSCP of each.
    pub dscp: u8,
    /// Over IPv6.
    pub v6: bool,
    /// When each arrived.
    pub arrived: RefCell<Vec<Option<Instant>>>,
    sent: Cell<usize>,
}

impl Datagrams {
    /// None of them is sent yet.
    #[must_use]
    pub fn new(all: Vec<Datagram>, dscp: u8, v6: bool) -> Self {
        let arrived = RefCell::new(vec![None; all.len()]);
        Self { all, dscp, v6, arrived, sent: Cell::new(0) }
    }

    /// When the next one is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.all.get(self.sent.get()).map(|d| Instant::ZERO + d.at)
    }

    /// The next one, if it is due.
    pub(super) fn next(&self, now: Instant) -> Option<Vec<u8>> {
        let number = self.sent.get();
        let due = self.all.get(number).filter(|d| Instant::ZERO + d.at <= now)?;
        self.sent.set(number + 1);
        let [from, to] = [CLIENT, SERVER].map(|host| address(host, self.v6));
        let at = if self.v6 { IPV6_HEADER_BYTES } else { IPV4_HEADER_BYTES };
        let len = usize::from(due.bytes).max(at + UDP_HEADER_BYTES + NUMBER_BYTES);
        let mut packet = vec![0; len];
        packet[at + UDP_HEADER_BYTES..][..NUMBER_BYTES].copy_from_slice(&(number as u32).to_be_bytes());
        write_udp(&mut packet, self.dscp, (from, to), PORTS);
        Some(packet)
    }

    /// A packet that is no TCP arrives at the server.
    pub(super) fn receive(&self, now: Instant, packet: &[u8]) {
        if let Some(number) = number_of(packet)
            && let Some(arrived) = self.arrived.borrow_mut().get_mut(number as usize)
        {
            arrived.get_or_insert(now);
        }
    }
}

/// The headers of a packet of this length that carries a datagram, between addresses of one family;
/// what it carries stands there already.
pub(super) fn write_udp(packet: &mut [u8], dscp: u8, (from, to): (IpAddr, IpAddr), ports: [u16; 2]) {
    let at = if from.is_ipv6() { IPV6_HEADER_BYTES } else { IPV4_HEADER_BYTES };
    let udp_len = (packet.len() - at) as u16;
    write_ip_header(packet, (dscp, PROTOCOL_UDP), (from, to));
    let udp = &mut packet[at..];
    udp[..2].copy_from_slice(&ports[0].to_be_bytes());
    udp[2..4].copy_from_slice(&ports[1].to_be_bytes());
    udp[4..6].copy_from_slice(&udp_len.to_be_bytes());
    udp[6..8].fill(0);
    let pseudo = checksum::pseudo_header(from, to, PROTOCOL_UDP, u32::from(udp_len));
    let check = !checksum::add(pseudo, checksum::sum(udp));
    // 0 says that there is none (RFC 768), which IPv6 forbids (RFC 8200 section 8.1).
    let check = if check == 0 { u16::MAX } else { check };
    udp[6..8].copy_from_slice(&check.to_be_bytes());
}

/// The header of a packet of this length, between addresses of one family.
pub(super) fn write_ip_header(packet: &mut [u8], (dscp, protocol): (u8, u8), ends: (IpAddr, IpAddr)) {
    let len = packet.len();
    match ends {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            packet[0] = 0x45;
            packet[1] = dscp << 2;
            packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
            packet[8] = HOPS;
            packet[9] = protocol;
            packet[12..16].copy_from_slice(&from.octets());
            packet[16..20].copy_from_slice(&to.octets());
            let check = !checksum::sum(&packet[..IPV4_HEADER_BYTES]);
            packet[10..12].copy_from_slice(&check.to_be_bytes());
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            packet[..2].copy_from_slice(&(0x6000 | u16::from(dscp) << 6).to_be_bytes());
            packet[4..6].copy_from_slice(&((len - IPV6_HEADER_BYTES) as u16).to_be_bytes());
            packet[6] = protocol;
            packet[7] = HOPS;
            packet[8..24].copy_from_slice(&from.octets());
            packet[24..40].copy_from_slice(&to.octets());
        }
        _ => {}
    }
}

/// The number that a datagram of ours carries; `None`: it is another packet.
fn number_of(packet: &[u8]) -> Option<u32> {
    let upper = ip::upper_layer(packet).filter(|upper| !upper.is_fragment)?;
    let udp = packet.get(upper.at..)?;
    let is_ours = upper.protocol == PROTOCOL_UDP && udp.get(2..4)? == PORTS[1].to_be_bytes();
    let number = u32::from_be_bytes(*udp.get(UDP_HEADER_BYTES..)?.first_chunk()?);
    is_ours.then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_leaves_in_its_time_and_is_known_when_it_arrives() {
        let ms = Duration::from_millis;
        let one = |at, bytes| Datagram { at: ms(at), bytes };
        let at = |t| Instant::ZERO + ms(t);
        for (v6, header_bytes) in [(false, 20), (true, 40)] {
            let datagrams = Datagrams::new(vec![one(5, 200), one(5, 0), one(7, 1_000)], 46, v6);
            assert_eq!((datagrams.next(at(4)), datagrams.deadline()), (None, Some(at(5))));
            let packets: Vec<_> = std::iter::from_fn(|| datagrams.next(at(5))).collect();
            assert_eq!(packets.iter().map(Vec::len).collect::<Vec<_>>(), [200, header_bytes + 12]);
            for packet in &packets {
                assert!(crate::packet::router_accepts(packet));
                assert_eq!(ip::traffic_class(packet), Some(46 << 2));
                let (from, to) = ip::addresses(packet).unwrap();
                assert_eq!((from, to), (address(CLIENT, v6), address(SERVER, v6)));
                let udp = &packet[header_bytes..];
                let pseudo = checksum::pseudo_header(from, to, PROTOCOL_UDP, udp.len() as u32);
                assert_eq!(checksum::add(pseudo, checksum::sum(udp)), 0xffff);
            }
            datagrams.receive(at(9), &packets[1]);
            datagrams.receive(at(10), &packets[1]);
            assert_eq!(*datagrams.arrived.borrow(), [None, Some(at(9)), None]);
            assert_eq!(datagrams.deadline(), Some(at(7)));
        }
    }
}
