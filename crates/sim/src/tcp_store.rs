//! The custody gateway of Reynolds in its own shape (AFIT 2006, 3.4.5 to 3.4.7: `TCPStore`), so
//! that his curves can be drawn beside ours. It is no part of Farlink.
//!
//! It has custody from the first byte on. What the source sends is kept and leaves with the next
//! round. While anything is unacknowledged there is a round every so often: first an intermediate
//! acknowledgement to the source, then all that is kept, from the first byte to the last. Hosts
//! that know that acknowledgement ([`crate::linux::LinuxConfig::iack`]) repeat nothing of it.
//!
//! The paper does not say how much leaves at most in a round; here all of it does. Its hosts of
//! 2006 had other timers, and no F-RTO.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use farlink_wire::tcp::{IACK_IP_ID, IACK_TTL};
use farlink_wire::{Duration, Flags, Instant, SegmentHeader, SeqNum, TcpSegment};

use crate::node::{Middlebox, host_of};
use crate::packet::{finish, renew, tcp};

/// So many duplicate acknowledgements draw the missing segment (3.4.6).
const DUPLICATES: u32 = 3;

/// Source and destination of a stream.
type Ends = [(IpAddr, u16); 2];

/// One stream of bytes that the source sends.
#[derive(Debug)]
struct Flow {
    first: SeqNum,
    /// Packets by the place of their first byte and their length.
    kept: BTreeMap<(u32, u32), Vec<u8>>,
    acked: u32,
    /// How often the destination has said the same.
    said_again: u32,
    /// The destination's.
    window: u16,
    /// The newest TSval of the source.
    newest_ts: u32,
}

/// See the module.
#[derive(Debug)]
pub struct TcpStore {
    source: usize,
    interval: Duration,
    flows: BTreeMap<Ends, Flow>,
    next_round: Option<Instant>,
    out: VecDeque<Vec<u8>>,
}

impl Flow {
    fn offset(&self, seq: SeqNum) -> u32 {
        seq.since(self.first)
    }

    /// A copy that leaves with the newest timestamp: the destination would refuse what is older
    /// than a repetition that it had (3.4.7).
    fn copy(&self, packet: &[u8]) -> Vec<u8> {
        let mut copy = packet.to_vec();
        renew(&mut copy, self.newest_ts);
        copy
    }

    /// Up to where all is kept or acknowledged.
    fn end(&self) -> u32 {
        self.kept.keys().fold(
            self.acked,
            |end, (from, len)| {
                if *from <= end { end.max(from + len) } else { end }
            },
        )
    }

    fn iack(&self, [source, destination]: &Ends) -> Option<Vec<u8>> {
        let header = SegmentHeader {
            src: destination.0,
            dst: source.0,
            src_port: destination.1,
            dst_port: source.1,
            ttl: IACK_TTL,
            traffic_class: 0,
            flow_label: 0,
            ip_id: IACK_IP_ID,
            dont_fragment: false,
            seq: SeqNum(0),
            ack: self.first + self.end(),
            flags: Flags::ACK | Flags::URG,
            window: self.window,
            urgent: 0,
            timestamps: None,
            sack: &[],
            farlink: None,
            marks_padding: false,
            xcp: None,
            xcp_sum: None,
        };
        let mut bytes = header.write(0).ok()?.0.to_vec();
        finish(&mut bytes);
        Some(bytes)
    }
}

impl TcpStore {
    /// Has custody of what host number `source` sends, with a round every `interval`.
    #[must_use]
    pub fn new(source: usize, interval: Duration) -> Self {
        Self { source, interval, flows: BTreeMap::new(), next_round: None, out: VecDeque::new() }
    }

    /// The source has said this.
    fn keep(&mut self, now: Instant, s: &TcpSegment, packet: Vec<u8>) {
        let ends = [(s.ip.src, s.src_port), (s.ip.dst, s.dst_port)];
        if s.flags.syn() {
            let flow = Flow {
                first: s.seq + 1,
                kept: BTreeMap::new(),
                acked: 0,
                said_again: 0,
                window: 0,
                newest_ts: 0,
            };
            self.flows.insert(ends, flow);
        } else if s.flags.rst() {
            self.flows.remove(&ends);
        }
        let flow = self.flows.get_mut(&ends).filter(|_| s.seq_len() > 0 && !s.flags.syn());
        let Some(flow) = flow else { return self.out.push_back(packet) };
        flow.newest_ts = s.options.timestamps.map_or(0, |t| t.val);
        flow.kept.insert((flow.offset(s.seq), s.seq_len()), packet);
        // The thread that sends wakes at times of its own.
        let interval_ns = self.interval.as_nanos() as u64;
        let next = (now.as_nanos() / interval_ns + 1) * interval_ns;
        self.next_round.get_or_insert(Instant::from_nanos(next));
    }

    /// The destination has said this.
    fn hear(&mut self, s: &TcpSegment, packet: Vec<u8>) {
        let ends = [(s.ip.dst, s.dst_port), (s.ip.src, s.src_port)];
        let flow = self.flows.get_mut(&ends).filter(|_| s.flags.ack() && !s.flags.syn());
        let Some(flow) = flow else { return self.out.push_back(packet) };
        let acked = flow.offset(s.ack);
        let is_again = s.seq_len() == 0 && acked == flow.acked && s.window == flow.window;
        flow.window = s.window;
        flow.acked = flow.acked.max(acked);
        let upto = flow.acked;
        flow.kept.retain(|(from, len), _| from + len > upto);
        if !is_again {
            flow.said_again = 0;
            return self.out.push_back(packet);
        }
        // One of them passes.
        flow.said_again += 1;
        if flow.said_again == 1 {
            self.out.push_back(packet);
        }
        if flow.said_again == DUPLICATES
            && let Some(missing) = flow.kept.values().next()
        {
            let copy = flow.copy(missing);
            self.out.push_back(copy);
        }
    }

    fn round(&mut self) {
        for (ends, flow) in self.flows.iter().filter(|(_, flow)| !flow.kept.is_empty()) {
            self.out.extend(flow.iack(ends));
            self.out.extend(flow.kept.values().map(|packet| flow.copy(packet)));
        }
    }
}

impl Middlebox for TcpStore {
    fn receive(&mut self, now: Instant, packet: Vec<u8>) {
        match tcp(&packet) {
            Some(s) if host_of(s.ip.src) == Some(self.source) => self.keep(now, &s, packet),
            Some(s) => self.hear(&s, packet),
            None => self.out.push_back(packet),
        }
    }

    fn run(&mut self, now: Instant) {
        if self.next_round.take_if(|at| *at <= now).is_some() {
            self.round();
            let has_more = self.flows.values().any(|flow| !flow.kept.is_empty());
            self.next_round = has_more.then(|| now + self.interval);
        }
    }

    fn take_output(&mut self) -> Option<Vec<u8>> {
        self.out.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        self.next_round
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::address;

    const SOURCE: usize = 1;

    /// A packet of the source, or of the destination, with numbers from 1000 on.
    fn packet(is_source: bool, (seq, ack): (u32, u32), flags: Flags, payload_len: usize) -> Vec<u8> {
        let ends = [(address(SOURCE, false), 80), (address(0, false), 5000)];
        let [from, to] = if is_source { ends } else { [ends[1], ends[0]] };
        let header = SegmentHeader {
            src: from.0,
            dst: to.0,
            src_port: from.1,
            dst_port: to.1,
            ttl: 64,
            traffic_class: 0,
            flow_label: 0,
            ip_id: 1,
            dont_fragment: true,
            seq: SeqNum(1000 + seq),
            ack: SeqNum(1000 + ack),
            flags,
            window: 500,
            urgent: 0,
            timestamps: Some(farlink_wire::Timestamps { val: 7 + seq, ecr: 1 }),
            sack: &[],
            farlink: None,
            marks_padding: false,
            xcp: None,
            xcp_sum: None,
        };
        let mut bytes = header.write(payload_len).unwrap().0.to_vec();
        bytes.resize(bytes.len() + payload_len, 1);
        finish(&mut bytes);
        bytes
    }

    fn put_out(store: &mut TcpStore) -> Vec<TcpSegment> {
        std::iter::from_fn(|| store.take_output()).map(|packet| tcp(&packet).unwrap()).collect()
    }

    /// With three segments of 100 bytes, of which the third came first.
    fn filled() -> TcpStore {
        let at = Instant::from_millis;
        let mut store = TcpStore::new(SOURCE, Duration::from_millis(10));
        store.receive(at(1), packet(true, (0, 0), Flags::SYN | Flags::ACK, 0));
        assert_eq!(put_out(&mut store).len(), 1, "a handshake passes");
        for seq in [201, 1, 101] {
            store.receive(at(12), packet(true, (seq, 1), Flags::ACK, 100));
        }
        assert!(put_out(&mut store).is_empty(), "data waits for the round");
        store
    }

    #[test]
    fn a_round_is_a_notice_and_all_that_is_kept() {
        let at = Instant::from_millis;
        let mut store = filled();
        assert_eq!(store.deadline(), Some(at(20)));
        store.run(at(20));
        let out = put_out(&mut store);
        assert!(out[0].flags.contains(Flags::URG | Flags::ACK) && out[0].payload_len == 0);
        assert_eq!((out[0].ack.0, out[0].seq.0, out[0].ip.ttl), (1301, 0, IACK_TTL));
        assert_eq!(host_of(out[0].ip.dst), Some(SOURCE));
        let seqs: Vec<_> = out[1..].iter().map(|s| s.seq.0).collect();
        assert_eq!(seqs, [1001, 1101, 1201], "in order");
        let stamps: Vec<_> = out[1..].iter().map(|s| s.options.timestamps.unwrap().val).collect();
        assert_eq!(stamps, [108; 3], "with the newest timestamp");
        // What is acknowledged is gone, and with the last of it the rounds end.
        store.receive(at(21), packet(false, (1, 201), Flags::ACK, 0));
        assert_eq!(put_out(&mut store).len(), 1);
        store.run(at(30));
        assert_eq!(put_out(&mut store).len(), 2);
        store.receive(at(31), packet(false, (1, 301), Flags::ACK, 0));
        store.run(at(40));
        assert_eq!((put_out(&mut store).len(), store.deadline()), (1, None));
    }

    #[test]
    fn of_the_same_acknowledgements_one_passes_and_the_third_draws_a_segment() {
        let mut store = filled();
        let again = || packet(false, (1, 1), Flags::ACK, 0);
        let mut passed = |n: u64| {
            store.receive(Instant::from_millis(12 + n), again());
            put_out(&mut store)
                .iter()
                .map(|s| (host_of(s.ip.src) == Some(SOURCE), s.seq.0))
                .collect::<Vec<_>>()
        };
        assert_eq!(passed(0), [(false, 1001)], "the window is new");
        assert_eq!(passed(1), [(false, 1001)]);
        assert_eq!(passed(2), []);
        assert_eq!(passed(3), [(true, 1001)]);
        assert_eq!(passed(4), []);
    }
}
