//! The checker: follows every connection through every gateway and says what a gateway did that it
//! must not.
//!
//! A gateway is judged by what came in against what went out, whatever the topology: each SYN, FIN,
//! RST, urgent place and byte that leaves has come in before, in the same place of the same
//! sequence space, and no byte is acknowledged that its source has not sent. Packets are taken in
//! the order of time, and judged at the end, when all are known.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

use farlink_sim::identifications::{Identifications, Name};
use farlink_wire::tcp::TcpSegment;
use farlink_wire::{
    ChecksumState, FragmentInfo, Instant, Offload, Parsed, ShimProtocols, checksum, parse, parse_with,
    verify_checksums,
};

use super::flow::{Flow, FlowKey, Incarnation};
use super::fragments::Fragments;
use super::judge::Judge;
use super::socket::Frame;
use super::stream::Stream;

/// Connections that are followed at a time: above this, handshakes without more (floods) make room
/// for others.
const FLOWS_USUAL: usize = 20_000;
/// Bound on them: what comes then is not followed, and the verdict says so.
const FLOWS_MAX: usize = 200_000;
/// What has been seen within this time is not finished: on a busy machine a gateway may hold a part
/// of it for seconds.
const GRACE_NS: u64 = 10_000_000_000;
/// Datagrams in fragments that are remembered because they came in.
const NAMES_MAX: usize = 1 << 18;
/// Connections that are looked at for one that may make room.
const LOOKS_MAX: usize = 16;
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

/// What shows whether gateways split.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// By node: connections with payload that passed it and that a gateway can split.
    pub splittable: BTreeMap<String, Splittable>,
    /// Those that carried much: the nodes that acknowledged a byte of theirs before its destination
    /// had. A router does not.
    pub bulk: BTreeMap<String, BTreeSet<String>>,
}

/// Connections that a gateway can split.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Splittable {
    /// How many.
    pub count: u64,
    /// Which, as many of them as are kept. Two lives of a 4-tuple stand here twice.
    pub flows: Vec<FlowKey>,
}

/// Payload that left a node again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repeated {
    /// How much.
    pub bytes: u64,
    /// The most times that any of it did.
    pub most: u32,
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
    /// Segments of connections beyond the checker's bounds.
    pub flows_unchecked: u64,
    /// Fragments that carry TCP.
    pub fragments: u64,
    /// Packets that the captures missed; with any, absence proves nothing and is not judged.
    pub drops: u64,
    /// In and out of each interface.
    pub traffic: Vec<(Point, [Traffic; 2])>,
    /// What left a node a second time, by node.
    pub repeated: BTreeMap<String, Repeated>,
    /// Datagrams of IPv4 that gateways made and that left in fragments, with an identification that
    /// another one had within four minutes (RFC 6864).
    pub ids_repeated: u64,
    /// What shows whether gateways split.
    pub split: Split,
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
    /// Those that may have to make room, in the order of their beginning or of the last look.
    idle: VecDeque<FlowKey>,
    /// Connections begun.
    begun: u64,
    /// What those did wrong that are not kept any more.
    early_failures: Vec<String>,
    fragments: Fragments,
    /// What has left in fragments, by interface.
    named: HashMap<usize, Identifications>,
    /// What has come in fragments, by node.
    came: HashSet<(usize, Name)>,
    bad_checksums: Vec<[u64; 2]>,
    allows_resets: bool,
    keeps_moments: bool,
    findings: Findings,
    /// A packet's headers before zeros, where a capture has cut it.
    blank: Vec<u8>,
}

impl Checker {
    /// A checker of these interfaces. With `allows_resets` a gateway may give up custody and reset
    /// the hosts.
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
            idle: VecDeque::new(),
            begun: 0,
            early_failures: Vec::new(),
            fragments: Fragments::default(),
            named: HashMap::new(),
            came: HashSet::new(),
            allows_resets,
            keeps_moments,
            findings: Findings::default(),
            blank: Vec::new(),
        }
    }

    /// Takes a captured packet of an interface, by its number among the points.
    pub fn take(&mut self, point: usize, frame: &Frame, packet: &[u8]) {
        if point >= self.points.len() {
            return;
        }
        if frame.wire_len <= packet.len() {
            return self.take_whole(point, frame, packet, false);
        }
        // Its headers are read as those of a whole packet are; what follows is not looked at.
        let mut blank = std::mem::take(&mut self.blank);
        blank.resize(blank.len().max(frame.wire_len), 0);
        blank[..packet.len()].copy_from_slice(packet);
        self.take_whole(point, frame, &blank[..frame.wire_len], true);
        blank[..packet.len()].fill(0);
        self.blank = blank;
    }

    fn take_whole(&mut self, point: usize, frame: &Frame, packet: &[u8], is_cut: bool) {
        let out = usize::from(frame.is_outgoing);
        self.findings.packets += 1;
        let traffic = &mut self.traffic[point][out];
        traffic.packets += 1;
        traffic.bytes += packet.len() as u64;
        // Between gateways, XCP's own header may stand before it, by either number that is for
        // experiments (RFC 3692).
        match parse_with(packet, ShimProtocols::USUAL.with(253)) {
            Parsed::Tcp(segment) => {
                let control = segment.flags.syn() || segment.flags.fin() || segment.flags.rst();
                if segment.payload_len == 0 && segment.flags.ack() && !control {
                    traffic.ack_packets += 1;
                    traffic.ack_bytes += packet.len() as u64;
                }
                traffic.payload_bytes += segment.payload_len as u64;
                self.take_tcp(point, frame, &segment, (!is_cut).then_some(packet));
            }
            Parsed::Fragment(fragment) if fragment.protocol == TCP => {
                self.findings.fragments += 1;
                self.take_identification(point, frame, &fragment);
                let Some(whole) = self.fragments.take(point, out, &fragment, packet, frame.at_ns) else {
                    return;
                };
                if let Parsed::Tcp(segment) = parse(&whole) {
                    self.take_tcp(point, frame, &segment, (!is_cut).then_some(&whole));
                }
            }
            _ => {}
        }
    }

    fn take_identification(&mut self, point: usize, frame: &Frame, fragment: &FragmentInfo) {
        let Some(name) = Identifications::name(fragment) else { return };
        let node = self.points[point].1;
        if !frame.is_outgoing {
            // Its host has given it the number.
            if self.came.len() < NAMES_MAX {
                self.came.insert((node, name));
            }
        } else if !self.came.contains(&(node, name)) {
            self.named.entry(point).or_default().leave(Instant::from_nanos(frame.at_ns), name);
        }
    }

    fn take_tcp(&mut self, point: usize, frame: &Frame, segment: &TcpSegment, packet: Option<&[u8]>) {
        let (out, node) = (usize::from(frame.is_outgoing), self.points[point].1);
        if packet.is_some_and(|p| !has_good_checksums(p, segment, frame.is_checksum_open)) {
            self.bad_checksums[node][out] += 1;
            return;
        }
        let (key, a_to_b) = FlowKey::of(segment);
        if !self.flows.contains_key(&key) && !self.admit(key, frame.at_ns) {
            self.findings.flows_unchecked += 1;
            return;
        }
        let direction = usize::from(!a_to_b);
        let Some(flow) = self.flows.get_mut(&key) else { return };
        flow.seen_ns = frame.at_ns;
        if segment.is_iack() {
            // No host has said it: a gateway tells what it holds (docs/custody.md).
            if out == 1 && !flow.has_come(segment, node, direction) && self.early_failures.is_empty() {
                let (node, arrow) = (&self.nodes[node], key.arrow(a_to_b));
                self.early_failures.push(format!("{node}, {arrow}: an IACK left of what never came in"));
            }
            return;
        }
        let Some(number) = flow.take(segment, self.nodes.len(), node, out, direction) else { return };
        let incarnation = &mut flow.incarnations[number];
        incarnation.note(segment, node, out, direction);
        let (isn, peer) = (incarnation.isns.0[direction], incarnation.isns.0[1 - direction]);
        let stream = &mut incarnation.nodes[node][out][direction];
        let payload = packet.map(|packet| segment.payload(packet));
        stream.take(segment, payload, isn, peer, frame.at_ns, self.keeps_moments);
        if let Some(old) = flow.superfluous() {
            self.findings.flows += 1;
            let judge = judge(&self.nodes, &self.fragments, self.allows_resets);
            judge.incarnation(flow, &old, key, &mut self.early_failures, &mut self.findings.repeated);
            judge.split(&old, key, &mut self.findings.split);
        }
    }

    /// Begins to follow a connection, if there is room.
    fn admit(&mut self, key: FlowKey, now_ns: u64) -> bool {
        if self.flows.len() >= FLOWS_USUAL {
            self.make_room(now_ns);
        }
        if self.flows.len() >= FLOWS_MAX {
            return false;
        }
        self.begun += 1;
        self.flows.insert(key, Flow { number: self.begun, ..Flow::default() });
        self.idle.push_back(key);
        true
    }

    /// Judges and forgets connections of which there was no more than handshakes, and those long
    /// ago.
    fn make_room(&mut self, now_ns: u64) {
        for _ in 0..LOOKS_MAX {
            let Some(key) = self.idle.pop_front() else { return };
            let Some(flow) = self.flows.get(&key).filter(|f| f.is_idle()) else { continue };
            if flow.seen_ns + GRACE_NS > now_ns {
                self.idle.push_back(key);
                continue;
            }
            let Some(flow) = self.flows.remove(&key) else { continue };
            self.findings.flows += flow.incarnations.len() as u64;
            let judge = judge(&self.nodes, &self.fragments, self.allows_resets);
            judge.flow(&flow, key, &mut self.early_failures, &mut self.findings.repeated);
            flow.incarnations.iter().for_each(|i| judge.split(i, key, &mut self.findings.split));
        }
    }

    /// How many connections are being followed.
    #[cfg(test)]
    pub(super) fn followed(&self) -> usize {
        self.flows.len()
    }

    /// The verdict. `drops`: packets that the captures missed.
    #[must_use]
    pub fn finish(mut self, drops: u64) -> Findings {
        let mut findings = std::mem::take(&mut self.findings);
        findings.drops = drops;
        let judge = judge(&self.nodes, &self.fragments, self.allows_resets);
        let mut failures = std::mem::take(&mut self.early_failures);
        let mut flows: Vec<_> = self.flows.into_iter().collect();
        flows.sort_by_key(|(_, flow)| flow.number);
        for (key, flow) in flows {
            findings.flows += flow.incarnations.len() as u64;
            judge.flow(&flow, key, &mut failures, &mut findings.repeated);
            flow.incarnations.iter().for_each(|i| judge.split(i, key, &mut findings.split));
            for incarnation in flow.incarnations {
                keep_streams(incarnation, key, &self.nodes, self.keeps_moments, &mut findings);
            }
        }
        for (node, [came, left]) in self.nodes.iter().zip(&self.bad_checksums) {
            if left > came {
                failures.push(format!(
                    "{node}: {left} segments left with a wrong checksum, {came} came in with one"
                ));
            }
        }
        for (point, named) in &self.named {
            findings.ids_repeated += named.repeated;
            if named.repeated > 0 {
                let (node, again) = (&self.points[*point].0.node, named.repeated);
                failures.push(format!("{node}: {again} datagrams left in fragments with an identification that another one had within 240 s"));
            }
        }
        // What a capture missed may be what came in.
        if drops == 0 {
            findings.failures = failures;
        }
        if findings.flows_unchecked > 0 {
            let what = format!(
                "{} segments belong to more connections than can be followed",
                findings.flows_unchecked
            );
            findings.failures.push(what);
        }
        findings.traffic = self.points.into_iter().map(|(p, _)| p).zip(self.traffic).collect();
        findings
    }
}

fn judge<'a>(nodes: &'a [String], fragments: &'a Fragments, allows_resets: bool) -> Judge<'a> {
    Judge { nodes, fragments, allows_resets }
}

/// Where the checksum is left to hardware, it must be the sum of the pseudo header that the
/// hardware begins with.
fn has_good_checksums(packet: &[u8], segment: &TcpSegment, is_open: bool) -> bool {
    let checksum = if is_open { ChecksumState::Verified } else { ChecksumState::Unverified };
    if !verify_checksums(packet, segment, &Offload { checksum, ..Offload::default() }) {
        return false;
    }
    let at = segment.tcp_offset();
    let Some([high, low]) = packet.get(at + 16..at + 18).and_then(|field| <[u8; 2]>::try_from(field).ok())
    else {
        return false;
    };
    let len = segment.ip.total_len.saturating_sub(at as u32);
    !is_open
        || u16::from_be_bytes([high, low])
            == checksum::pseudo_header(segment.ip.src, segment.ip.dst, TCP, len)
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
