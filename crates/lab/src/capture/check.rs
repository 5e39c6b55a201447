//! The checker: follows every connection through every gateway and says what a gateway did that it must not.
//!
//! A gateway is judged by what came in against what went out, whatever the topology: each SYN, FIN, RST, urgent place
//! and byte that leaves has come in before, in the same place of the same sequence space, and no byte is acknowledged
//! that its source has not sent. Order between interfaces does not matter: the judgement is at the end.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;

use farlink_wire::tcp::TcpSegment;
use farlink_wire::{ChecksumState, Offload, Parsed, parse, verify_checksums};

use super::flow::{AtNode, Flow, FlowKey, Incarnation};
use super::judge::Judge;
use super::socket::Frame;
use super::stream::Stream;

/// Bound on connections that are followed.
const FLOWS_MAX: usize = 20_000;
/// IP protocol number of TCP.
const TCP: u8 = 6;

/// An interface that is captured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Point {
    /// Name of the node.
    pub node: String,
    /// Name of the interface.
    pub interface: String,
    /// It leads to a declared link.
    pub is_link: bool,
}

/// Counters of one interface and direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// IP packets, super-segments counting once.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Pure acknowledgements.
    pub ack_packets: u64,
    /// Their bytes.
    pub ack_bytes: u64,
    /// TCP payload bytes.
    pub payload_bytes: u64,
}

/// What the captures show in the end.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// What a gateway did that it must not.
    pub failures: Vec<String>,
    /// Connections that were followed.
    pub flows: u64,
    /// Packets that were read.
    pub packets: u64,
    /// Connections beyond the checker's bounds.
    pub flows_unchecked: u64,
    /// Fragments that carry TCP.
    pub fragments: u64,
    /// Packets that the captures missed; with any, absence proves nothing and is not judged.
    pub drops: u64,
    /// In and out of each interface.
    pub traffic: Vec<(Point, [Traffic; 2])>,
    /// Payload bytes that left a node a second time, by node.
    pub repeated_bytes: BTreeMap<String, u64>,
    /// Streams as they left each node, for plots: node, key, direction `a` to `b`, stream.
    pub streams: Vec<(String, FlowKey, bool, Stream)>,
}

/// See the module.
#[derive(Debug)]
pub struct Checker {
    points: Vec<(Point, usize)>,
    nodes: Vec<String>,
    traffic: Vec<[Traffic; 2]>,
    flows: HashMap<FlowKey, Flow>,
    order: Vec<FlowKey>,
    fragmented: HashSet<(IpAddr, IpAddr)>,
    bad_checksums: Vec<[u64; 2]>,
    allows_resets: bool,
    keeps_moments: bool,
    findings: Findings,
}

impl Checker {
    /// A checker of these interfaces. With `allows_resets` a gateway may give up custody and reset the hosts.
    #[must_use]
    pub fn new(points: &[Point], allows_resets: bool, keeps_moments: bool) -> Self {
        let mut nodes: Vec<String> = Vec::new();
        let points: Vec<_> = points
            .iter()
            .map(|point| {
                let node = nodes.iter().position(|n| *n == point.node).unwrap_or_else(|| {
                    nodes.push(point.node.clone());
                    nodes.len() - 1
                });
                (point.clone(), node)
            })
            .collect();
        Self {
            traffic: vec![Default::default(); points.len()],
            bad_checksums: vec![[0; 2]; nodes.len()],
            points,
            nodes,
            flows: HashMap::new(),
            order: Vec::new(),
            fragmented: HashSet::new(),
            allows_resets,
            keeps_moments,
            findings: Findings::default(),
        }
    }

    /// Takes a captured packet of an interface, by its number among the points.
    pub fn take(&mut self, point: usize, frame: &Frame, packet: &[u8]) {
        let out = usize::from(frame.is_outgoing);
        let Some((_, node)) = self.points.get(point) else { return };
        let node = *node;
        self.findings.packets += 1;
        let traffic = &mut self.traffic[point][out];
        traffic.packets += 1;
        traffic.bytes += packet.len() as u64;
        match parse(packet) {
            Parsed::Tcp(segment) => {
                let control = segment.flags.syn() || segment.flags.fin() || segment.flags.rst();
                if segment.payload_len == 0 && segment.flags.ack() && !control {
                    traffic.ack_packets += 1;
                    traffic.ack_bytes += packet.len() as u64;
                }
                traffic.payload_bytes += segment.payload_len as u64;
                let checksum =
                    if frame.is_checksum_open { ChecksumState::Verified } else { ChecksumState::Unverified };
                if verify_checksums(packet, &segment, &Offload { checksum, ..Offload::default() }) {
                    self.take_segment(point, out, &segment, segment.payload(packet), frame.at_ns);
                } else {
                    self.bad_checksums[node][out] += 1;
                }
            }
            Parsed::Fragment(fragment) if fragment.protocol == TCP => {
                self.findings.fragments += 1;
                self.fragmented.insert((fragment.ip.src, fragment.ip.dst));
            }
            _ => {}
        }
    }

    fn take_segment(&mut self, point: usize, out: usize, segment: &TcpSegment, payload: &[u8], at_ns: u64) {
        let (key, a_to_b) = FlowKey::of(segment);
        let direction = usize::from(!a_to_b);
        if !self.flows.contains_key(&key) {
            if self.flows.len() >= FLOWS_MAX {
                self.findings.flows_unchecked += 1;
                return;
            }
            self.order.push(key);
        }
        let (nodes, node) = (self.nodes.len(), self.points[point].1);
        let flow = self.flows.entry(key).or_default();
        flow.count(segment, nodes, node, out, direction);
        let number = flow.incarnation_of(segment, direction);
        let incarnation = &mut flow.incarnations[number];
        incarnation.nodes.resize_with(nodes, AtNode::default);
        let (isn, peer) = (incarnation.isns.0[direction], incarnation.isns.0[1 - direction]);
        let stream = &mut incarnation.nodes[node][out][direction];
        stream.take(segment, payload, isn, peer, at_ns, self.keeps_moments);
        if let Some(old) = flow.superfluous() {
            let judge = Judge { nodes: &self.nodes, fragmented: &self.fragmented };
            judge.incarnation(&old, key, &mut self.findings);
        }
    }

    /// The verdict. `drops`: packets that the captures missed.
    #[must_use]
    pub fn finish(mut self, drops: u64) -> Findings {
        let mut findings = std::mem::take(&mut self.findings);
        findings.drops = drops;
        let judge = Judge { nodes: &self.nodes, fragmented: &self.fragmented };
        for key in &self.order {
            let Some(flow) = self.flows.remove(key) else { continue };
            findings.flows += flow.judged;
            if drops == 0 {
                judge.counts(&flow, *key, self.allows_resets, &mut findings.failures);
                judge.syns(&flow, *key, &mut findings.failures);
            }
            for incarnation in flow.incarnations {
                findings.flows += 1;
                if drops == 0 {
                    judge.incarnation(&incarnation, *key, &mut findings);
                }
                keep_streams(incarnation, *key, &self.nodes, self.keeps_moments, &mut findings);
            }
        }
        for (node, [came, left]) in self.nodes.iter().zip(&self.bad_checksums) {
            if left > came {
                let what =
                    format!("{node}: {left} segments left with a wrong checksum, {came} came in with one");
                findings.failures.push(what);
            }
        }
        findings.traffic = self.points.into_iter().map(|(p, _)| p).zip(self.traffic).collect();
        findings
    }
}

fn keep_streams(
    incarnation: Incarnation,
    key: FlowKey,
    nodes: &[String],
    keeps_moments: bool,
    findings: &mut Findings,
) {
    /// Streams kept for plots.
    const STREAMS_MAX: usize = 256;
    if !keeps_moments {
        return;
    }
    for (at, node) in incarnation.nodes.into_iter().zip(nodes) {
        let [_, left] = at;
        for (stream, a_to_b) in left.into_iter().zip([true, false]) {
            if stream.packets > 0 && findings.streams.len() < STREAMS_MAX {
                findings.streams.push((node.clone(), key, a_to_b, stream));
            }
        }
    }
}
