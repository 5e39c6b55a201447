//! Connections in a capture: named by their addresses and ports, and by the client's ISN where a name is used again.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use farlink_wire::tcp::TcpSegment;

use super::stream::Stream;

/// Incarnations of one 4-tuple that are kept; older ones are judged when a newer one begins.
const INCARNATIONS_MAX: usize = 8;
/// Bound on the SYNs that are remembered of one 4-tuple.
const SYNS_MAX: usize = 8192;
/// How far beyond what was seen of it a connection may go on at once.
const AHEAD_BYTES: i64 = 1 << 18;
/// A segment may lie a little before the beginning of its stream (keepalives, spoofed ones).
const BEFORE_BYTES: u32 = 1 << 16;

/// Addresses and ports of both hosts, the smaller first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct FlowKey {
    /// The smaller end.
    pub a: SocketAddr,
    /// The greater end.
    pub b: SocketAddr,
}

impl FlowKey {
    /// The key of a segment, and whether it goes from `a` to `b`.
    #[must_use]
    pub fn of(segment: &TcpSegment) -> (Self, bool) {
        let from = SocketAddr::new(segment.ip.src, segment.src_port);
        let to = SocketAddr::new(segment.ip.dst, segment.dst_port);
        if from <= to { (Self { a: from, b: to }, true) } else { (Self { a: to, b: from }, false) }
    }

    /// Source and destination of a direction (0: `a` to `b`).
    #[must_use]
    pub fn addresses(&self, direction: usize) -> (IpAddr, IpAddr) {
        let (a, b) = (self.a.ip(), self.b.ip());
        if direction == 0 { (a, b) } else { (b, a) }
    }

    /// For people, in the direction that is meant.
    #[must_use]
    pub fn arrow(&self, a_to_b: bool) -> String {
        if a_to_b { format!("{} > {}", self.a, self.b) } else { format!("{} > {}", self.b, self.a) }
    }
}

/// The ISNs of one incarnation of a connection, by direction (`a` to `b` first).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Isns(pub [Option<u32>; 2]);

/// In and out, each with both directions of a connection.
pub(super) type AtNode = [[Stream; 2]; 2];

/// One life of a 4-tuple.
#[derive(Debug, Default)]
pub(super) struct Incarnation {
    pub(super) isns: Isns,
    pub(super) nodes: Vec<AtNode>,
}

/// Segments of one direction at a node, of all incarnations.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    pub(super) packets: u64,
    pub(super) rsts: u64,
}

/// A 4-tuple with its lives.
#[derive(Debug, Default)]
pub(super) struct Flow {
    pub(super) incarnations: Vec<Incarnation>,
    /// By node: in and out, each with both directions.
    pub(super) counted: Vec<[[Counted; 2]; 2]>,
    /// Every SYN seen, by node, direction and ISN: whether it came in, whether it left.
    pub(super) syns: BTreeMap<(usize, usize, u32), [bool; 2]>,
    /// Incarnations that were judged and dropped.
    pub(super) judged: u64,
}

impl Incarnation {
    /// How far the stream of this direction has come.
    fn end(&self, direction: usize) -> u64 {
        self.nodes.iter().flatten().map(|both| both[direction].end_max).max().unwrap_or(0)
    }

    /// How far a sequence number lies from the end of what has been seen of the stream; `None` if it cannot belong to it.
    fn distance(&self, direction: usize, seq: u32) -> Option<u64> {
        let end = self.end(direction);
        let low = seq.wrapping_sub(self.isns.0[direction]?).wrapping_sub(1);
        let beyond = i64::from(low.wrapping_sub(end as u32) as i32);
        // Behind it at most to the beginning.
        let fits = beyond <= AHEAD_BYTES && beyond + end as i64 + i64::from(BEFORE_BYTES) >= 0;
        fits.then_some(beyond.unsigned_abs())
    }

    /// How badly a segment fits. After TIME-WAIT Linux begins anew only 64 KB beyond its old numbers, so the sequence
    /// number by itself does not tell.
    fn misfit(&self, segment: &TcpSegment, direction: usize) -> (u8, u64) {
        let seq = self.distance(direction, segment.seq.0);
        let ack = self.distance(1 - direction, segment.ack.0).filter(|_| segment.flags.ack());
        let is_fresh = self.end(0) == 0 && self.end(1) == 0;
        match (seq, ack) {
            (Some(seq), Some(ack)) => (u8::from(is_fresh), seq + ack),
            (Some(_), None) if self.end(direction) > 0 => (2, 0),
            _ => (3, 0),
        }
    }

    fn has_data(&self) -> bool {
        self.nodes.iter().flatten().flatten().any(|stream| stream.end_max > 0)
    }
}

impl Flow {
    /// Counts a segment at a node, coming in (0) or leaving (1).
    pub(super) fn count(
        &mut self,
        segment: &TcpSegment,
        nodes: usize,
        node: usize,
        out: usize,
        direction: usize,
    ) {
        self.counted.resize(nodes, Default::default());
        let counted = &mut self.counted[node][out][direction];
        counted.packets += 1;
        counted.rsts += u64::from(segment.flags.rst());
        if segment.flags.syn() && self.syns.len() < SYNS_MAX {
            self.syns.entry((node, direction, segment.seq.0)).or_default()[out] = true;
        }
    }

    /// The incarnation that a segment belongs to; a SYN with an ISN of its own begins one. Which one does not depend on
    /// when a segment is read, as the order between interfaces is not known.
    pub(super) fn incarnation_of(&mut self, segment: &TcpSegment, direction: usize) -> usize {
        let (flags, seq, acked) = (segment.flags, segment.seq.0, segment.ack.0);
        if flags.syn() {
            let answered =
                |i: &Incarnation| !flags.ack() || i.isns.0[1 - direction] == Some(acked.wrapping_sub(1));
            let has = |i: &Incarnation, isn| i.isns.0[direction] == isn && answered(i);
            let places = || (0..self.incarnations.len()).rev();
            // A late or spoofed SYN-ACK with another ISN changes nothing in a connection that is under way.
            let is_under_way = |i: &Incarnation| flags.ack() && answered(i) && i.has_data();
            let found = places()
                .find(|n| has(&self.incarnations[*n], Some(seq)))
                .or_else(|| places().find(|n| has(&self.incarnations[*n], None)))
                .or_else(|| places().find(|n| is_under_way(&self.incarnations[*n])));
            let number = found.unwrap_or_else(|| {
                let mut isns = Isns::default();
                if flags.ack() {
                    isns.0[1 - direction] = Some(acked.wrapping_sub(1));
                }
                self.incarnations.push(Incarnation { isns, nodes: Vec::new() });
                self.incarnations.len() - 1
            });
            self.incarnations[number].isns.0[direction].get_or_insert(seq);
            return number;
        }
        if self.incarnations.is_empty() {
            self.incarnations.push(Incarnation::default());
        }
        // The one that it fits best, else the one whose ISN is the nearest before it; an answer to a SYN of a closed port
        // (RST, sequence number 0) has only an acknowledgement to go by.
        let distance = |i: &Incarnation| {
            let [own, peer] = [i.isns.0[direction], i.isns.0[1 - direction]];
            let by_ack = peer.filter(|_| flags.ack() && (flags.rst() || own.is_none()));
            let by_seq = own.filter(|_| by_ack.is_none());
            let ahead = |value: u32, isn: u32| value.wrapping_sub(isn).wrapping_add(BEFORE_BYTES);
            by_ack.map(|isn| ahead(acked, isn)).or(by_seq.map(|isn| ahead(seq, isn))).unwrap_or(u32::MAX)
        };
        // One that was never answered (a spoofed SYN) counts only where there is no other.
        let rank = |i: &Incarnation| (i.misfit(segment, direction), i.isns.0.contains(&None), distance(i));
        let nearest = (0..self.incarnations.len()).rev().min_by_key(|n| rank(&self.incarnations[*n]));
        nearest.unwrap_or(0)
    }

    /// Removes an incarnation when there are too many: the oldest in which no data has flowed (spoofed SYNs), else the
    /// oldest.
    pub(super) fn superfluous(&mut self) -> Option<Incarnation> {
        if self.incarnations.len() <= INCARNATIONS_MAX {
            return None;
        }
        let last = self.incarnations.len() - 1;
        let idle = self.incarnations[..last].iter().position(|i| !i.has_data());
        self.judged += 1;
        Some(self.incarnations.remove(idle.unwrap_or(0)))
    }
}
