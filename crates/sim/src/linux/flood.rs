//! A flood of pings (`ping -f` of iputils): an echo request as soon as the one before was answered,
//! and at least 100 a second.

use std::net::{IpAddr, Ipv4Addr};

use farlink_wire::{Duration, Instant, checksum};

use super::datagrams::write_ip_header;

/// After so long the next request leaves without an answer to the one before.
const INTERVAL: Duration = Duration::from_millis(10);
const IPV4_HEADER_BYTES: usize = 20;
const ICMP_HEADER_BYTES: usize = 8;
const PROTOCOL_ICMP: u8 = 1;
const ECHO_REQUEST: u8 = 8;
const ECHO_REPLY: u8 = 0;

/// See the module. IPv4 only.
#[derive(Clone, Debug)]
pub struct Flood {
    from: Ipv4Addr,
    to: Ipv4Addr,
    data_bytes: usize,
    id: u16,
    sent: u16,
    answered: u16,
    last: Option<Instant>,
}

impl Flood {
    /// Requests with so many bytes of data; `id` tells several floods apart.
    #[must_use]
    pub fn new(from: Ipv4Addr, to: Ipv4Addr, data_bytes: usize, id: u16) -> Self {
        Self { from, to, data_bytes, id, sent: 0, answered: 0, last: None }
    }

    /// A packet arrives at the host.
    pub(super) fn receive(&mut self, packet: &[u8]) {
        let Some((ECHO_REPLY, id, seq)) = echo(packet) else { return };
        if id == self.id && seq.wrapping_sub(self.answered) < u16::MAX / 2 {
            self.answered = seq;
        }
    }

    /// When the next request leaves if nothing arrives before.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.last.map_or(Instant::ZERO, |t| if self.sent == self.answered { t } else { t + INTERVAL })
    }

    /// The request that leaves now, if one does.
    pub(super) fn next(&mut self, now: Instant) -> Option<Vec<u8>> {
        if self.deadline() > now {
            return None;
        }
        self.last = Some(now);
        self.sent = self.sent.wrapping_add(1);
        let icmp = IPV4_HEADER_BYTES;
        let mut packet = vec![0; IPV4_HEADER_BYTES + ICMP_HEADER_BYTES + self.data_bytes];
        write_ip_header(&mut packet, (0, PROTOCOL_ICMP), (self.from.into(), self.to.into()));
        packet[icmp] = ECHO_REQUEST;
        packet[icmp + 4..icmp + 6].copy_from_slice(&self.id.to_be_bytes());
        packet[icmp + 6..icmp + 8].copy_from_slice(&self.sent.to_be_bytes());
        finish(&mut packet);
        Some(packet)
    }
}

/// Type, identifier and sequence number of an echo message.
fn echo(packet: &[u8]) -> Option<(u8, u16, u16)> {
    if packet.first()? >> 4 != 4 || *packet.get(9)? != PROTOCOL_ICMP {
        return None;
    }
    let icmp = packet.get(usize::from(packet[0] & 15) * 4..)?;
    let word = |at: usize| Some(u16::from_be_bytes([*icmp.get(at)?, *icmp.get(at + 1)?]));
    let kind = *icmp.first()?;
    matches!(kind, ECHO_REQUEST | ECHO_REPLY).then_some((kind, word(4)?, word(6)?))
}

fn finish(packet: &mut [u8]) {
    packet[10..12].fill(0);
    let check = !checksum::sum(&packet[..IPV4_HEADER_BYTES]);
    packet[10..12].copy_from_slice(&check.to_be_bytes());
    let icmp = IPV4_HEADER_BYTES;
    packet[icmp + 2..icmp + 4].fill(0);
    let check = !checksum::sum(&packet[icmp..]);
    packet[icmp + 2..icmp + 4].copy_from_slice(&check.to_be_bytes());
}

/// The answer of a node with this address to an echo request for it.
#[must_use]
pub fn echo_reply(packet: &[u8], own: IpAddr) -> Option<Vec<u8>> {
    let (ECHO_REQUEST, ..) = echo(packet)? else { return None };
    let IpAddr::V4(own) = own else { return None };
    if packet.get(16..20)? != own.octets() || packet[0] & 15 != 5 {
        return None;
    }
    let mut reply = packet.to_vec();
    reply[8] = 64;
    reply.copy_within(12..16, 16);
    reply[12..16].copy_from_slice(&own.octets());
    reply[IPV4_HEADER_BYTES] = ECHO_REPLY;
    finish(&mut reply);
    Some(reply)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_follows_its_answers_and_is_a_hundred_a_second_without() {
        let own = Ipv4Addr::new(10, 200, 1, 1);
        let mut flood = Flood::new(Ipv4Addr::new(10, 0, 1, 2), own, 1472, 7);
        let at = |ms: u64| Instant::ZERO + Duration::from_millis(ms);
        let first = flood.next(at(0)).unwrap();
        assert_eq!(first.len(), 1500);
        assert_eq!((flood.next(at(9)), flood.deadline()), (None, at(10)));
        flood.receive(&echo_reply(&first, own.into()).unwrap());
        assert!(flood.next(at(9)).is_some());
        assert!(flood.next(at(18)).is_none() && flood.next(at(19)).is_some());
        assert_eq!(echo_reply(&first, Ipv4Addr::new(10, 200, 2, 1).into()), None);
    }
}
