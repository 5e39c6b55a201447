//! Connections in a capture: named by their addresses and ports, and where a name is used again by
//! their ISNs.
//!
//! An incarnation is begun by SYNs, and is a connection once a SYN-ACK has answered the other
//! side's SYN. Any other segment belongs to the incarnation in whose two sequence spaces its
//! numbers lie; one that lies in none is only counted. Segments are taken in the order of time, so
//! what comes into a gateway is placed before it leaves.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use farlink_wire::tcp::TcpSegment;

use super::stream::{Stream, place};

/// Incarnations of one 4-tuple that are kept; older ones are judged when a newer one begins.
const INCARNATIONS_MAX: usize = 16;
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
        (Self::between(from, to), from <= to)
    }

    /// The key of all that goes between these, in whichever direction.
    #[must_use]
    pub fn between(one: SocketAddr, other: SocketAddr) -> Self {
        Self { a: one.min(other), b: one.max(other) }
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
    /// By direction: a SYN with this ISN was seen, not only an acknowledgement of it.
    has_syn: [bool; 2],
    /// A SYN-ACK has answered a SYN: both hosts take part.
    pub(super) is_answered: bool,
    /// Its handshake or its options are none that a gateway splits.
    pub(super) is_odd: bool,
    /// By direction: a SYN that answers none.
    opens: [bool; 2],
    /// Kinds of options in SYNs that nobody knows, a bit each, by direction.
    unknown_options: [[u128; 2]; 2],
    /// The host that began it has acknowledged the answer.
    is_complete: bool,
    /// By node: a byte left acknowledged that its destination had not acknowledged yet.
    pub(super) is_early: Vec<bool>,
}

/// Segments of one direction at a node, of all incarnations.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    pub(super) packets: u64,
    pub(super) rsts: u64,
    /// Segments with numbers of no incarnation.
    pub(super) strangers: u64,
    /// Those of them with RST.
    pub(super) strange_rsts: u64,
}

/// A 4-tuple with its lives.
#[derive(Debug, Default)]
pub(super) struct Flow {
    /// Number in the order of their first segments.
    pub(super) number: u64,
    /// When it was last seen, nanoseconds since 1970.
    pub(super) seen_ns: u64,
    pub(super) incarnations: Vec<Incarnation>,
    /// By node: in and out, each with both directions.
    pub(super) counted: Vec<[[Counted; 2]; 2]>,
    /// Every SYN seen, by node, direction and ISN: whether it came in, whether it left.
    pub(super) syns: BTreeMap<(usize, usize, u32), [bool; 2]>,
}

impl Incarnation {
    /// How far the stream of this direction has come.
    fn end(&self, direction: usize) -> u64 {
        self.nodes.iter().flatten().map(|both| both[direction].end_max).max().unwrap_or(0)
    }

    /// How far a sequence number lies outside of what has been seen of the stream; `None` if it
    /// cannot belong to it.
    fn distance(&self, direction: usize, seq: u32) -> Option<u64> {
        let end = self.end(direction);
        let low = seq.wrapping_sub(self.isns.0[direction]?).wrapping_sub(1);
        let beyond = i64::from(low.wrapping_sub(end as u32) as i32);
        let before = -(beyond + end as i64);
        let fits = beyond <= AHEAD_BYTES && before <= i64::from(BEFORE_BYTES);
        fits.then_some(beyond.max(before).max(0).unsigned_abs())
    }

    /// How badly a segment fits; `None`: not at all. After TIME-WAIT Linux begins anew only 64 KB
    /// beyond its old numbers, so both numbers count.
    fn misfit(&self, segment: &TcpSegment, direction: usize) -> Option<(u8, u64)> {
        let seq = self.distance(direction, segment.seq.0);
        let ack = if segment.flags.ack() { self.distance(1 - direction, segment.ack.0) } else { Some(0) };
        Some(match (seq, ack) {
            (Some(seq), Some(ack)) => (u8::from(!self.is_answered), seq + ack),
            (Some(seq), None) => (2, seq),
            // As a closed port answers a SYN: RST with sequence number 0.
            (None, Some(ack)) if segment.flags.ack() => (3, ack),
            _ => return None,
        })
    }

    /// Looks at a segment that it is about to take for what shows whether a gateway splits it.
    pub(super) fn note(&mut self, segment: &TcpSegment, node: usize, out: usize, direction: usize) {
        let (flags, options) = (segment.flags, &segment.options);
        // What has something in its IP header takes the ordinary way.
        self.is_odd |= segment.ip.has_options;
        if flags.syn() {
            let odd = options.md5 || options.ao || options.malformed || options.mptcp;
            self.is_odd |= odd || segment.payload_len > 0 || flags.rst() || flags.fin();
            self.opens[direction] |= !flags.ack();
            for kind in &options.unknown {
                self.unknown_options[direction][usize::from(kind >> 7)] |= 1 << (kind & 0x7f);
            }
            let [one, other] = self.unknown_options;
            let is_agreed = one.iter().zip(other).any(|(one, other)| one & other != 0);
            self.is_odd |= self.opens == [true; 2] || is_agreed;
            return;
        }
        self.is_complete |= self.is_answered && self.opens[direction] && flags.ack() && !flags.rst();
        let Some(peer) = self.isns.0[1 - direction].filter(|_| flags.ack() && !flags.rst() && out == 1)
        else {
            return;
        };
        let [came, left] = [0, 1].map(|out| &self.nodes[node][out][direction]);
        let acked = place(peer, segment.ack.0, left.ack_max);
        self.is_early.resize(self.nodes.len().max(self.is_early.len()), false);
        // A FIN counts as a byte, and only the other host acknowledges it.
        let is_of_payload = acked.is_some_and(|acked| acked <= self.nodes[node][0][1 - direction].end_max);
        self.is_early[node] |= is_of_payload && acked > Some(came.ack_max);
    }

    /// Payload has flowed.
    pub(super) fn has_data(&self) -> bool {
        self.nodes.iter().flatten().flatten().any(|stream| stream.end_max > 0)
    }
}

impl Flow {
    /// Places a segment at a node, coming in (0) or leaving (1), and counts it: the number of its
    /// incarnation.
    pub(super) fn take(
        &mut self,
        segment: &TcpSegment,
        nodes: usize,
        node: usize,
        out: usize,
        direction: usize,
    ) -> Option<usize> {
        let number = self.incarnation_of(segment, direction);
        let flags = segment.flags;
        self.counted.resize(nodes, Default::default());
        let counted = &mut self.counted[node][out][direction];
        counted.packets += 1;
        counted.rsts += u64::from(flags.rst());
        counted.strangers += u64::from(number.is_none());
        counted.strange_rsts += u64::from(number.is_none() && flags.rst());
        if flags.syn() && self.syns.len() < SYNS_MAX {
            self.syns.entry((node, direction, segment.seq.0)).or_default()[out] = true;
        }
        if let Some(number) = number {
            self.incarnations[number].nodes.resize_with(nodes, AtNode::default);
        }
        let is_of_another = number.is_some_and(|n| self.incarnations[n].is_complete);
        if flags.rst() && !is_of_another {
            // Whether hosts believe a reset of a handshake is their business: gateways keep out of
            // it.
            let half_open = self.incarnations.iter_mut().filter(|i| !i.is_complete);
            half_open.for_each(|incarnation| incarnation.is_odd = true);
        }
        number
    }

    /// What an intermediate acknowledgement in this direction tells to be held has come in at this
    /// node.
    pub(super) fn has_come(&self, segment: &TcpSegment, node: usize, direction: usize) -> bool {
        self.incarnations.iter().rev().any(|i| {
            let (Some(isn), Some(at)) = (i.isns.0[1 - direction], i.nodes.get(node)) else { return false };
            let came = at[0][1 - direction].end_max;
            place(isn, segment.ack.0, came).is_some_and(|told| told <= came)
        })
    }

    /// The incarnation that a segment belongs to; a SYN with an ISN of its own begins one.
    fn incarnation_of(&mut self, segment: &TcpSegment, direction: usize) -> Option<usize> {
        if segment.flags.syn() {
            return Some(self.incarnation_of_syn(segment, direction));
        }
        let misfits = self.incarnations.iter().enumerate().rev();
        let fits = misfits.filter_map(|(n, i)| Some((i.misfit(segment, direction)?, n)));
        fits.min_by_key(|(misfit, _)| *misfit).map(|(_, n)| n)
    }

    fn incarnation_of_syn(&mut self, segment: &TcpSegment, direction: usize) -> usize {
        let (is_answer, seq) = (segment.flags.ack(), segment.seq.0);
        let answered = segment.ack.0.wrapping_sub(1);
        let fits = |i: &Incarnation| !is_answer || i.isns.0[1 - direction] == Some(answered);
        let has = |i: &Incarnation, isn| i.isns.0[direction] == isn && fits(i);
        let find = |f: &dyn Fn(&Incarnation) -> bool| self.incarnations.iter().rposition(f);
        let found = find(&|i| has(i, Some(seq)))
            .or_else(|| find(&|i| has(i, None)))
            // A late or spoofed SYN-ACK with another ISN changes nothing in a connection that is
            // under way.
            .or_else(|| find(&|i| is_answer && fits(i) && i.has_data()));
        let number = found.unwrap_or_else(|| {
            let mut incarnation = Incarnation::default();
            if is_answer {
                // A server may choose anew when the first choice was lost: the client's SYN is the
                // same.
                incarnation.isns.0[1 - direction] = Some(answered);
                incarnation.has_syn[1 - direction] =
                    self.incarnations.iter().any(|i| fits(i) && i.has_syn[1 - direction]);
            }
            self.incarnations.push(incarnation);
            self.incarnations.len() - 1
        });
        let incarnation = &mut self.incarnations[number];
        if *incarnation.isns.0[direction].get_or_insert(seq) == seq {
            incarnation.has_syn[direction] = true;
            incarnation.is_answered |= is_answer && incarnation.has_syn[1 - direction];
        }
        number
    }

    /// Removes an incarnation when there are too many: the oldest in which no data has flowed
    /// (spoofed SYNs), else the oldest.
    pub(super) fn superfluous(&mut self) -> Option<Incarnation> {
        if self.incarnations.len() <= INCARNATIONS_MAX {
            return None;
        }
        let last = self.incarnations.len() - 1;
        let idle = self.incarnations[..last].iter().position(|i| !i.has_data());
        Some(self.incarnations.remove(idle.unwrap_or(0)))
    }

    /// No more than handshakes: what floods leave behind.
    pub(super) fn is_idle(&self) -> bool {
        !self.incarnations.iter().any(Incarnation::has_data)
    }
}
