//! IP fragments become packets again at the host that they are for, as in Linux (ip_fragment.c,
//! reassembly.c of IPv6, inet_fragment.c). What is given up is not reported to its sender by ICMP.

use std::collections::BTreeMap;
use std::net::IpAddr;

use farlink_wire::ip::{FragmentInfo, IPV6_FRAGMENT_HEADER_BYTES};
use farlink_wire::{Duration, Instant, Parsed, checksum, parse};

/// Linux `net.ipv4.ipfrag_time`; of IPv6 it is twice as long.
const TIME: Duration = Duration::from_secs(30);
/// Linux `IPV6_FRAG_TIMEOUT`.
const TIME_V6: Duration = Duration::from_secs(60);
/// Linux `net.ipv4.ipfrag_high_thresh`.
const BYTES_MAX: usize = 4 << 20;
/// Linux `net.ipv4.ipfrag_max_dist`: a packet that so many others of its source have overtaken is
/// not waited for.
const DISTANCE_MAX: u64 = 64;
/// The largest packet.
const PACKET_BYTES_MAX: usize = 65_535;

/// What fragments of one packet have in common. The protocol is no part of it in IPv6.
type Key = (IpAddr, IpAddr, u32, u8);

/// A packet under way.
#[derive(Debug)]
struct Queue {
    begun: Instant,
    /// Fragments that this source had sent when its newest one came.
    count: u64,
    /// Everything in front of the payload, once the first fragment is there.
    head: Option<Vec<u8>>,
    /// Payload by offset; parts that touch are not joined.
    parts: BTreeMap<usize, Vec<u8>>,
    bytes: usize,
    /// Payload of the whole, once the last fragment is there.
    total: Option<usize>,
}

/// What came of a fragment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fit {
    /// It is new.
    New,
    /// All of it was there.
    Known,
    /// It says something else of bytes that are there, or of the end: nothing of its packet is
    /// believed (RFC 5722 section 4; Linux does the same for IPv4).
    Contradicts,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Reassembly {
    queues: BTreeMap<Key, Queue>,
    /// Fragments by source.
    counts: BTreeMap<IpAddr, u64>,
    bytes: usize,
}

impl Reassembly {
    /// A packet that is no fragment, or one that a fragment has completed.
    pub fn push(&mut self, now: Instant, packet: &[u8]) -> Option<Vec<u8>> {
        let Parsed::Fragment(f) = parse(packet) else { return None };
        self.expire(now);
        let is_v4 = f.ip.is_v4();
        let key = (f.ip.src, f.ip.dst, f.id, if is_v4 { f.protocol } else { 0 });
        if self.bytes > BYTES_MAX {
            return None;
        }
        let count = self.counts.entry(f.ip.src).or_default();
        *count += 1;
        let count = *count;
        let queue = self.queues.entry(key).or_insert_with(|| Queue::new(now, count));
        if is_v4 && count - queue.count > DISTANCE_MAX {
            self.bytes -= queue.bytes;
            *queue = Queue::new(now, count);
        }
        queue.count = count;
        let before = queue.bytes;
        let fit = queue.take(&f, packet);
        self.bytes = self.bytes + queue.bytes - before;
        let whole = if fit == Fit::New { queue.whole() } else { None };
        if fit == Fit::Contradicts || whole.is_some() {
            self.forget(&key);
        }
        whole
    }

    fn forget(&mut self, key: &Key) {
        if let Some(queue) = self.queues.remove(key) {
            self.bytes -= queue.bytes;
        }
    }

    fn expire(&mut self, now: Instant) {
        let over = |(key, queue): (&Key, &Queue)| {
            let time = if key.0.is_ipv4() { TIME } else { TIME_V6 };
            (queue.begun + time <= now).then_some(*key)
        };
        for key in self.queues.iter().filter_map(over).collect::<Vec<_>>() {
            self.forget(&key);
        }
    }
}

impl Queue {
    fn new(begun: Instant, count: u64) -> Self {
        Self { begun, count, head: None, parts: BTreeMap::new(), bytes: 0, total: None }
    }

    fn take(&mut self, f: &FragmentInfo, packet: &[u8]) -> Fit {
        let Some(payload) = packet.get(f.payload_offset..f.payload_offset + f.payload_len) else {
            return Fit::Contradicts;
        };
        let (start, end) = (f.offset as usize, f.end() as usize);
        let reached = self.parts.last_key_value().map_or(0, |(at, part)| at + part.len());
        let is_odd = f.more && (payload.is_empty() || !payload.len().is_multiple_of(8));
        let beyond = self.total.is_some_and(|total| end > total || (!f.more && end != total));
        if is_odd || beyond || (!f.more && end < reached) || end > PACKET_BYTES_MAX {
            return Fit::Contradicts;
        }
        if !f.more {
            self.total = Some(end);
        }
        let overlapping = self.parts.range(..end).next_back().filter(|(at, part)| *at + part.len() > start);
        if let Some((at, part)) = overlapping {
            let covers = *at <= start && at + part.len() >= end;
            return if covers { Fit::Known } else { Fit::Contradicts };
        }
        if start == 0 {
            self.head = Some(head(f, packet));
        }
        self.bytes += payload.len();
        self.parts.insert(start, payload.to_vec());
        Fit::New
    }

    /// The whole packet, if nothing is missing.
    fn whole(&self) -> Option<Vec<u8>> {
        let (head, total) = (self.head.as_ref()?, self.total?);
        if self.bytes != total {
            return None;
        }
        let mut packet = head.clone();
        self.parts.values().for_each(|part| packet.extend_from_slice(part));
        let is_v4 = packet[0] >> 4 == 4;
        if packet.len() > PACKET_BYTES_MAX + if is_v4 { 0 } else { 40 } {
            return None;
        }
        if is_v4 {
            let len = packet.len() as u16;
            packet[2..4].copy_from_slice(&len.to_be_bytes());
            packet[10..12].fill(0);
            let check = !checksum::sum(&packet[..head.len()]);
            packet[10..12].copy_from_slice(&check.to_be_bytes());
        } else {
            let len = (packet.len() - 40) as u16;
            packet[4..6].copy_from_slice(&len.to_be_bytes());
        }
        Some(packet)
    }
}

/// What stands in front of the payload of the whole packet.
fn head(f: &FragmentInfo, first: &[u8]) -> Vec<u8> {
    let mut head = first[..f.payload_offset].to_vec();
    if f.ip.is_v4() {
        head[6..8].fill(0);
        return head;
    }
    // The fragment header goes, and what it announced is announced by the header before it.
    let at = f.payload_offset - IPV6_FRAGMENT_HEADER_BYTES;
    let mut next_at = 6;
    let mut walked = 40;
    while walked < at {
        next_at = walked;
        walked += 8 + 8 * usize::from(head[walked + 1]);
    }
    head[next_at] = f.protocol;
    head.truncate(at);
    head
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::test_bed::{data_segment, endpoint, endpoint_v6};

    fn pieces(packet: &[u8], mtu_bytes: usize) -> Vec<Vec<u8>> {
        let mut packet = packet.to_vec();
        if packet[0] >> 4 == 4 {
            packet[6..8].fill(0);
            packet[4..6].copy_from_slice(&77_u16.to_be_bytes());
            packet[10..12].fill(0);
            let check = !checksum::sum(&packet[..20]);
            packet[10..12].copy_from_slice(&check.to_be_bytes());
        }
        let mut all = Vec::new();
        farlink_wire::fragment::fragment(&packet, mtu_bytes, 77, &mut |p| all.push(p.to_vec())).unwrap();
        all
    }

    fn joined(pieces: &[Vec<u8>]) -> Option<Vec<u8>> {
        let mut r = Reassembly::default();
        let whole = pieces.iter().filter_map(|p| r.push(Instant::ZERO, p)).last();
        assert!(whole.is_none() || (r.queues.is_empty() && r.bytes == 0));
        whole
    }

    #[test]
    fn fragments_in_any_order_are_the_packet_again() {
        let v4 = data_segment(endpoint(1, 1000), endpoint(2, 80), 3000);
        let v6 = data_segment(endpoint_v6(1, 1000), endpoint_v6(2, 80), 3000);
        for packet in [v4, v6] {
            let mut all = pieces(&packet, 1280);
            assert!(all.len() >= 3);
            let forth = joined(&all).expect("whole");
            all.reverse();
            assert_eq!(joined(&all).as_ref(), Some(&forth));
            let again: Vec<_> = all.iter().flat_map(|p| [p.clone(), p.clone()]).collect();
            let mut r = Reassembly::default();
            assert_eq!(again.iter().filter_map(|p| r.push(Instant::ZERO, p)).next(), Some(forth.clone()));
            let s = crate::packet::tcp(&forth).expect("TCP");
            assert_eq!(s.payload_len, 3000);
            assert!(farlink_wire::verify_checksums(&forth, &s, &farlink_wire::Offload::default()));
            all.pop();
            assert_eq!(joined(&all), None, "one is missing");
        }
    }

    #[test]
    fn a_contradiction_ends_the_packet() {
        let packet = data_segment(endpoint(1, 1000), endpoint(2, 80), 3000);
        let (all, others) = (pieces(&packet, 1280), pieces(&packet, 1000));
        let mut r = Reassembly::default();
        assert_eq!(r.push(Instant::ZERO, &all[0]), None);
        assert_eq!(r.push(Instant::ZERO, &others[1]), None, "it overlaps in part");
        assert!(r.queues.is_empty() && r.bytes == 0);
    }

    #[test]
    fn what_takes_too_long_is_forgotten() {
        let packet = data_segment(endpoint(1, 1000), endpoint(2, 80), 3000);
        let all = pieces(&packet, 1600);
        let mut r = Reassembly::default();
        assert_eq!(r.push(Instant::ZERO, &all[0]), None);
        assert_eq!(r.push(Instant::ZERO + TIME, &all[1]), None);
        assert_eq!(r.queues.len(), 1, "the second begins anew");
    }

    #[test]
    fn memory_and_the_distance_to_others_are_bounded() {
        let packet = data_segment(endpoint(1, 1000), endpoint(2, 80), 3000);
        let first = |id: u16| {
            let mut p = pieces(&packet, 1600)[0].clone();
            p[4..6].copy_from_slice(&id.to_be_bytes());
            p
        };
        let mut r = Reassembly::default();
        for id in 0..=u16::MAX {
            r.push(Instant::ZERO, &first(id));
        }
        assert!(r.bytes <= BYTES_MAX + 1600, "{}", r.bytes);
        let mut r = Reassembly::default();
        r.push(Instant::ZERO, &first(77));
        for id in 100..=164 {
            r.push(Instant::ZERO, &first(id));
        }
        assert_eq!(r.push(Instant::ZERO, &pieces(&packet, 1600)[1]), None, "too many have passed it");
    }
}
