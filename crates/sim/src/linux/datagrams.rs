//! Datagrams that the client sends to the server at given times (UDP, IPv4), and when each arrived.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;

use farlink_wire::{Duration, Instant, checksum, ip};

const IPV4_HEADER_BYTES: usize = 20;
const UDP_HEADER_BYTES: usize = 8;
const PROTOCOL_UDP: u8 = 17;
/// Ports of client and server.
const PORTS: [u16; 2] = [40_000, 5002];
/// Each datagram carries its number, so none is smaller.
pub const BYTES_MIN: u16 = (IPV4_HEADER_BYTES + UDP_HEADER_BYTES + size_of::<u32>()) as u16;

/// One of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Datagram {
    /// When it is sent.
    pub at: Duration,
    /// Bytes of the IP packet, at least [`BYTES_MIN`].
    pub bytes: u16,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Datagrams {
    /// All of them, the earliest first.
    pub all: Vec<Datagram>,
    /// DSCP of each.
    pub dscp: u8,
    /// When each arrived.
    pub arrived: RefCell<Vec<Option<Instant>>>,
    sent: Cell<usize>,
}

impl Datagrams {
    /// None of them is sent yet.
    #[must_use]
    pub fn new(all: Vec<Datagram>, dscp: u8) -> Self {
        let arrived = RefCell::new(vec![None; all.len()]);
        Self { all, dscp, arrived, sent: Cell::new(0) }
    }

    /// When the next one is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.all.get(self.sent.get()).map(|d| Instant::ZERO + d.at)
    }

    /// The next one, if it is due.
    pub(super) fn next(&self, now: Instant, (from, to): (IpAddr, IpAddr)) -> Option<Vec<u8>> {
        let number = self.sent.get();
        let due = self.all.get(number).filter(|d| Instant::ZERO + d.at <= now)?;
        self.sent.set(number + 1);
        let (IpAddr::V4(from), IpAddr::V4(to)) = (from, to) else { return None };
        let len = due.bytes.max(BYTES_MIN);
        let mut packet = vec![0; usize::from(len)];
        packet[0] = 0x45;
        packet[1] = self.dscp << 2;
        packet[2..4].copy_from_slice(&len.to_be_bytes());
        packet[8] = 64;
        packet[9] = PROTOCOL_UDP;
        packet[12..16].copy_from_slice(&from.octets());
        packet[16..20].copy_from_slice(&to.octets());
        let check = !checksum::sum(&packet[..IPV4_HEADER_BYTES]);
        packet[10..12].copy_from_slice(&check.to_be_bytes());
        let udp = &mut packet[IPV4_HEADER_BYTES..];
        udp[..2].copy_from_slice(&PORTS[0].to_be_bytes());
        udp[2..4].copy_from_slice(&PORTS[1].to_be_bytes());
        // No checksum: what a channel damages is lost.
        udp[4..6].copy_from_slice(&(len - IPV4_HEADER_BYTES as u16).to_be_bytes());
        udp[UDP_HEADER_BYTES..UDP_HEADER_BYTES + 4].copy_from_slice(&(number as u32).to_be_bytes());
        Some(packet)
    }

    /// A packet that is no TCP arrives at the server.
    pub(super) fn receive(&self, now: Instant, packet: &[u8]) {
        let at = IPV4_HEADER_BYTES + UDP_HEADER_BYTES;
        let is_ours = ip::addresses(packet).is_some_and(|(src, _)| src.is_ipv4())
            && packet.get(9) == Some(&PROTOCOL_UDP)
            && packet.get(at - 6..at - 4) == Some(&PORTS[1].to_be_bytes());
        let number = packet.get(at..).and_then(|b| b.first_chunk()).map(|b| u32::from_be_bytes(*b));
        if let Some(number) = number.filter(|_| is_ours)
            && let Some(arrived) = self.arrived.borrow_mut().get_mut(number as usize)
        {
            arrived.get_or_insert(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_leaves_in_its_time_and_is_known_when_it_arrives() {
        let ms = Duration::from_millis;
        let one = |at, bytes| Datagram { at: ms(at), bytes };
        let datagrams = Datagrams::new(vec![one(5, 200), one(5, 0), one(7, 1_000)], 46);
        let ends = ("10.0.1.2".parse().unwrap(), "10.0.2.2".parse().unwrap());
        let at = |t| Instant::ZERO + ms(t);
        assert_eq!((datagrams.next(at(4), ends), datagrams.deadline()), (None, Some(at(5))));
        let packets: Vec<_> = std::iter::from_fn(|| datagrams.next(at(5), ends)).collect();
        assert_eq!(packets.iter().map(Vec::len).collect::<Vec<_>>(), [200, usize::from(BYTES_MIN)]);
        assert!(packets.iter().all(|p| crate::packet::router_accepts(p) && p[1] >> 2 == 46));
        datagrams.receive(at(9), &packets[1]);
        datagrams.receive(at(10), &packets[1]);
        assert_eq!(*datagrams.arrived.borrow(), [None, Some(at(9)), None]);
        assert_eq!(datagrams.deadline(), Some(at(7)));
    }
}
