//! A simulated network in virtual time: nodes, channels between them, faults at given times, one
//! observer.

mod faults;
mod forward;
mod jumps;
mod stalls;

use farlink_channel::{Carried, Channel, ChannelConfig, Medium, Stats};
use farlink_wire::{Duration, Instant, Offload, supersegment};

use crate::app::End;
use crate::fault::Fault;
use crate::gro::Merged;
use crate::interference::{Interference, Towards};
use crate::linux::flood::echo_reply;
use crate::meter::Meter;
use crate::node::{GatewayNode, Kind, Node, Port, is_diverted, offload_is_sane, router_address};
use crate::observer::{Allowances, Observer};
use crate::packet::{SimPacket, hash, hop, router_accepts, tcp};
use crate::trace::Trace;
use forward::parse_dst;
use jumps::Jumping;
use stalls::Stalled;
pub use stalls::Stalls;

/// Calls at one instant after which a run counts as a livelock.
const ROUNDS_PER_INSTANT_MAX: u32 = 100_000;
/// Bytes by which a gateway's pool may exceed its bound: fragments, which have a bound of their
/// own.
const POOL_SLACK_BYTES: usize = 0;

/// A one-way link.
struct Wire {
    from: usize,
    to: (usize, usize),
    channel: Channel<SimPacket>,
    due: Option<Instant>,
    meter: Option<Meter>,
    /// What a box on it does.
    interference: Option<Interference>,
}

impl Wire {
    /// What its box leaves of a packet. One that is damaged passes as it is.
    fn pass_box(&self, packet: SimPacket) -> Option<SimPacket> {
        match self.interference {
            Some(box_does) if !packet.corrupted => box_does.pass(packet.bytes).map(SimPacket::new),
            _ => Some(packet),
        }
    }
}

/// Wires whose schedules have not begun, and whether it is time.
struct Held {
    wires: Vec<usize>,
    is_time: Box<dyn Fn() -> bool>,
}

/// The network.
pub struct World {
    now: Instant,
    nodes: Vec<Node>,
    wires: Vec<Wire>,
    held: Option<Held>,
    schedules_began: Instant,
    faults: std::collections::VecDeque<(Instant, Fault)>,
    node_due: Vec<Option<Instant>>,
    /// Those that stand still at times.
    stalled: std::collections::BTreeMap<usize, Stalled>,
    /// A connection whose streams go on round the gateways.
    jumping: Option<Jumping>,
    seed: u64,
    /// Sees everything.
    pub observer: Observer,
    /// What is kept of it.
    pub trace: Trace,
    /// The first broken invariant.
    pub failure: Option<String>,
    /// Packets that entered wires so far.
    pub packets: u64,
    /// Fragments that routers made.
    pub router_fragments: u64,
}

impl World {
    /// An empty network.
    #[must_use]
    pub fn new(seed: u64, allowed: Allowances, trace: Trace) -> Self {
        Self {
            now: Instant::ZERO,
            nodes: Vec::new(),
            wires: Vec::new(),
            held: None,
            schedules_began: Instant::ZERO,
            faults: std::collections::VecDeque::new(),
            node_due: Vec::new(),
            stalled: std::collections::BTreeMap::new(),
            jumping: None,
            seed,
            observer: Observer::new(allowed),
            trace,
            failure: None,
            packets: 0,
            router_fragments: 0,
        }
    }

    /// Adds a node; its number.
    pub fn add_node(&mut self, name: impl Into<String>, kind: Kind) -> usize {
        self.nodes.push(Node { name: name.into(), ports: Vec::new(), routes: Vec::new(), kind });
        self.node_due.push(Some(Instant::ZERO));
        self.nodes.len() - 1
    }

    /// Joins two nodes by two channels, the first from `a` to `b`. The port numbers at both.
    pub fn link(
        &mut self,
        a: usize,
        b: usize,
        mtu_bytes: u32,
        there: ChannelConfig,
        back: ChannelConfig,
    ) -> (usize, usize) {
        let (port_a, port_b) = (self.nodes[a].ports.len(), self.nodes[b].ports.len());
        for (from, to, config) in [(a, (b, port_b), there), (b, (a, port_a), back)] {
            let wire = self.wires.len();
            let channel = Channel::new(config, hash(self.seed, &(wire as u64).to_le_bytes()));
            self.wires.push(Wire { from, to, channel, due: None, meter: None, interference: None });
            self.nodes[from].ports.push(Port { wire, mtu_bytes, mtu_later: None, is_silent: false });
        }
        (port_a, port_b)
    }

    /// From then on the link at this port of `node` has another MTU, in bytes.
    pub fn change_mtu(&mut self, node: usize, port: usize, from: Instant, mtu_bytes: u32) {
        self.nodes[node].ports[port].mtu_later = Some((from, mtu_bytes));
    }

    /// From now on what does not fit this link vanishes, and nobody says so.
    pub fn hush(&mut self, node: usize, port: usize) {
        self.nodes[node].ports[port].is_silent = true;
    }

    /// From now on a box does this to all that passes the link at this port of `node` towards these
    /// hosts. The second one is behind the other end of the link.
    pub fn interfere(&mut self, node: usize, port: usize, does: Interference, towards: Towards) {
        let there = self.nodes[node].ports[port].wire;
        let (far, far_port) = self.wires[there].to;
        let back = self.nodes[far].ports[far_port].wire;
        for (wire, unless) in [(there, Towards::Client), (back, Towards::Server)] {
            self.wires[wire].interference = Some(does).filter(|_| towards != unless);
        }
    }

    /// From now on both directions of the link at this port of `node` share one medium.
    pub fn share_medium(&mut self, node: usize, port: usize) {
        let there = self.nodes[node].ports[port].wire;
        let (far, far_port) = self.wires[there].to;
        let back = self.nodes[far].ports[far_port].wire;
        let medium = Medium::new();
        for wire in [there, back] {
            self.wires[wire].channel.share(&medium);
        }
    }

    /// The schedules (winks, contacts, rates) of the links at these ports of nodes begin as soon as
    /// it `is_time`, instead of at time zero. Until then the links are there.
    pub fn hold_schedules(&mut self, ends: &[(usize, usize)], is_time: Box<dyn Fn() -> bool>) {
        let wires: Vec<usize> = ends.iter().map(|(node, port)| self.nodes[*node].ports[*port].wire).collect();
        self.set_starts(&wires, Instant::FAR_FUTURE);
        self.held = Some(Held { wires, is_time });
    }

    /// When schedules began.
    #[must_use]
    pub fn schedules_began(&self) -> Instant {
        self.schedules_began
    }

    fn set_starts(&mut self, wires: &[usize], start: Instant) {
        for wire in wires {
            let wire = &mut self.wires[*wire];
            wire.channel.update(self.now, |config| config.start = start);
            wire.due = wire.channel.poll_timeout();
        }
    }

    /// The port of `node` towards host `host`.
    pub fn set_route(&mut self, node: usize, host: usize, port: usize) {
        let routes = &mut self.nodes[node].routes;
        if routes.len() <= host {
            routes.resize(host + 1, 0);
        }
        routes[host] = port;
    }

    /// The configuration of the channel that leaves `node` by `port`.
    #[must_use]
    pub fn channel_config(&self, node: usize, port: usize) -> ChannelConfig {
        self.wires[self.nodes[node].ports[port].wire].channel.config().clone()
    }

    /// Counts from now on what leaves `node` by `port`.
    pub fn set_meter(&mut self, node: usize, port: usize) {
        self.wires[self.nodes[node].ports[port].wire].meter = Some(Meter::default());
    }

    /// What was counted there.
    #[must_use]
    pub fn meter(&self, node: usize, port: usize) -> Option<&Meter> {
        self.wires[self.nodes[node].ports[port].wire].meter.as_ref()
    }

    /// The counters of the channel that leaves `node` by `port`.
    #[must_use]
    pub fn channel_stats(&self, node: usize, port: usize) -> Stats {
        self.wires[self.nodes[node].ports[port].wire].channel.stats()
    }

    /// What the channel that leaves `node` by `port` has carried by time.
    #[must_use]
    pub fn carried(&self, node: usize, port: usize) -> &Carried {
        self.wires[self.nodes[node].ports[port].wire].channel.carried()
    }

    /// Adds faults; they need not be in order.
    pub fn add_faults(&mut self, faults: impl IntoIterator<Item = (Instant, Fault)>) {
        let mut all: Vec<_> = self.faults.drain(..).chain(faults).collect();
        all.sort_by_key(|(t, _)| *t);
        self.faults = all.into();
    }

    /// Virtual time.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.now
    }

    /// A node's gateway part.
    pub fn gateway(&mut self, node: usize) -> Option<&mut GatewayNode> {
        match &mut self.nodes[node].kind {
            Kind::Gateway(g) => Some(g),
            _ => None,
        }
    }

    /// Numbers of the nodes that are gateways.
    #[must_use]
    pub fn gateways(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|n| matches!(self.nodes[*n].kind, Kind::Gateway(_))).collect()
    }

    /// Name of a node.
    #[must_use]
    pub fn name(&self, node: usize) -> &str {
        self.nodes.get(node).map_or("", |n| &n.name)
    }

    /// All hosts are done with what they had to do.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.nodes.iter().all(|n| match &n.kind {
            Kind::Host(_, h) => h.is_finished(),
            _ => true,
        })
    }

    /// What became of all connections, at all hosts.
    #[must_use]
    pub fn ends(&self) -> Vec<End> {
        let hosts = self.nodes.iter().filter_map(|n| match &n.kind {
            Kind::Host(_, h) => Some(h.ends()),
            _ => None,
        });
        hosts.flatten().collect()
    }

    /// Runs until all is done and `settle` has passed, or until `limit`. `true` when all was done.
    pub fn run(&mut self, settle: Duration, limit: Instant, packets_max: u64) -> bool {
        let mut done_at = None;
        while self.failure.is_none() {
            let Some(next) = self.next_event() else { break };
            if done_at.is_none() && self.is_finished() {
                done_at = Some(self.now);
            }
            if done_at.is_some_and(|t| next > t + settle) {
                break;
            }
            if next > limit || self.packets > packets_max {
                return false;
            }
            self.step_to(next);
        }
        self.is_finished()
    }

    /// Runs all that happens before `until`, and sets the clock to it.
    pub fn run_until(&mut self, until: Instant) {
        while self.failure.is_none() {
            match self.next_event() {
                Some(next) if next < until => self.step_to(next),
                _ => break,
            }
        }
        self.now = self.now.max(until);
    }

    fn next_event(&self) -> Option<Instant> {
        let faults = self.faults.front().map(|(t, _)| *t);
        let wires = self.wires.iter().filter_map(|w| w.due);
        let nodes = self.node_due.iter().copied().flatten();
        wires.chain(nodes).chain(faults).min()
    }

    fn fail(&mut self, node: usize, what: impl AsRef<str>) {
        if self.failure.is_none() {
            let at = self.now.as_nanos() as f64 / 1e9;
            let name = self.nodes.get(node).map_or("?", |n| n.name.as_str());
            self.failure = Some(format!("{at:.6} s, {name}: {}", what.as_ref()));
        }
    }

    fn step_to(&mut self, next: Instant) {
        self.now = self.now.max(next);
        self.observer.now = self.now;
        self.step();
        if let Some(held) = self.held.take_if(|held| (held.is_time)()) {
            self.schedules_began = self.now;
            self.set_starts(&held.wires, self.now);
        }
    }

    /// Everything that is due now.
    fn step(&mut self) {
        while let Some((at, _)) = self.faults.front()
            && *at <= self.now
        {
            if let Some((_, fault)) = self.faults.pop_front() {
                self.inject(fault);
            }
        }
        let mut rounds = 0;
        loop {
            let mut busy = false;
            for w in 0..self.wires.len() {
                while self.wires[w].due.is_some_and(|t| t <= self.now) {
                    let popped = self.wires[w].channel.pop(self.now);
                    self.wires[w].due = self.wires[w].channel.poll_timeout();
                    let Some(packet) = popped else { break };
                    busy = true;
                    let (node, port) = self.wires[w].to;
                    if let Some(packet) = self.wires[w].pass_box(packet) {
                        self.deliver(node, port, packet);
                    }
                }
            }
            for n in 0..self.nodes.len() {
                if self.node_due[n].is_some_and(|t| t <= self.now) {
                    busy = true;
                    self.work(n);
                }
            }
            if self.failure.is_some() || !busy {
                return;
            }
            rounds += 1;
            if rounds > ROUNDS_PER_INSTANT_MAX {
                self.fail(usize::MAX, "time stands still: a timer that is due again and again");
            }
        }
    }

    fn with_gateway(&mut self, node: usize, f: impl FnOnce(&mut GatewayNode, &[Port], &[usize])) {
        self.note_links(node);
        let n = &mut self.nodes[node];
        if let Kind::Gateway(g) = &mut n.kind {
            f(g, &n.ports, &n.routes);
        }
        self.ship(node);
    }

    /// What a gateway knows of its links, before it does something and after it.
    fn note_links(&mut self, node: usize) {
        let Kind::Gateway(g) = &self.nodes[node].kind else { return };
        if let Some(gateway) = &g.gateway {
            self.observer.note_links(node, gateway.knows_of_outage());
        }
    }

    /// A packet arrives at a node.
    fn deliver(&mut self, node: usize, port: usize, packet: SimPacket) {
        let now = self.now;
        let Some(packet) = self.keep_stalled(node, port, packet) else { return };
        let SimPacket { mut bytes, corrupted } = packet;
        if let Kind::Host(number, _) = self.nodes[node].kind {
            self.deliver_to_host(node, number, &bytes, corrupted);
            return;
        }
        if router_accepts(&bytes)
            && let Some(reply) = echo_reply(&bytes, router_address(node, false))
        {
            self.forward(node, reply, false);
            return;
        }
        if !router_accepts(&bytes) || !hop(&mut bytes) {
            return;
        }
        if let Kind::Other(other) = &mut self.nodes[node].kind
            && !corrupted
        {
            other.receive(now, bytes);
            self.node_due[node] = other.deadline();
            self.pass_on(node);
            return;
        }
        let out = parse_dst(&bytes).and_then(|host| self.nodes[node].routes.get(host).copied());
        let Kind::Gateway(g) = &mut self.nodes[node].kind else {
            self.forward(node, bytes, corrupted);
            return;
        };
        let is_whole = out.is_some_and(|port| g.takes_all_of(port));
        if g.gateway.is_none() || !(is_whole || is_diverted(&bytes)) {
            self.forward(node, bytes, corrupted);
            return;
        }
        let ready = match &mut g.merger {
            Some(m) => m.push(now, port, bytes, corrupted),
            None => vec![Merged { port, bytes, offload: Offload::default(), damaged: corrupted }],
        };
        for m in ready {
            self.hand_over(node, m);
        }
        self.node_due[node] = Some(now);
    }

    fn deliver_to_host(&mut self, node: usize, number: usize, bytes: &[u8], corrupted: bool) {
        self.trace.packet(self.now, &self.nodes[node].name, "<", bytes, &self.observer);
        if !corrupted && let Err(e) = self.observer.host_receives(bytes) {
            let packet = self.observer.describe(bytes);
            self.fail(node, format!("{e}\n  {packet}"));
            return;
        }
        if parse_dst(bytes) == Some(number)
            && let Kind::Host(_, host) = &mut self.nodes[node].kind
        {
            host.receive(self.now, bytes);
            self.node_due[node] = Some(self.now);
            self.collect(node);
        }
    }

    /// A packet goes into a gateway.
    fn hand_over(&mut self, node: usize, m: Merged) {
        let now = self.now;
        self.trace.packet(now, &self.nodes[node].name, "<", &m.bytes, &self.observer);
        let n = &mut self.nodes[node];
        let Kind::Gateway(g) = &mut n.kind else { return };
        let Some(gateway) = &g.gateway else {
            self.forward(node, m.bytes, m.damaged);
            return;
        };
        let is_away = gateway.link_states().any(|(_, said)| said.is_away());
        self.observer.note_links(node, gateway.knows_of_outage());
        self.observer.gateway_in(node, &m.bytes, &m.offload, (m.damaged, is_away));
        let mut bytes = m.bytes;
        if let Some(jumping) = &self.jumping {
            jumping.enter(&mut bytes, &m.offload);
        }
        g.handle_packet(now, &n.ports, &n.routes, m.port, &bytes, m.offload);
        self.ship(node);
    }

    /// Timers, flushes and applications of a node.
    fn work(&mut self, node: usize) {
        let now = self.now;
        if self.stands_still(node) {
            return;
        }
        self.node_due[node] = None;
        match &mut self.nodes[node].kind {
            Kind::Router => return,
            Kind::Host(_, host) => {
                host.run(now);
                self.collect(node);
            }
            Kind::Gateway(_) => self.work_gateway(node),
            Kind::Other(other) => {
                other.run(now);
                self.pass_on(node);
            }
        }
        self.node_due[node] = match &mut self.nodes[node].kind {
            Kind::Router => None,
            Kind::Host(_, host) => host.deadline(),
            Kind::Gateway(g) => g.deadline(),
            Kind::Other(other) => other.deadline(),
        };
    }

    /// Sends on what another gateway than ours has put out.
    fn pass_on(&mut self, node: usize) {
        while let Kind::Other(other) = &mut self.nodes[node].kind
            && let Some(bytes) = other.take_output()
        {
            self.trace.packet(self.now, &self.nodes[node].name, ">", &bytes, &self.observer);
            self.observer.iacks.let_in(&bytes);
            self.forward(node, bytes, false);
        }
    }

    fn work_gateway(&mut self, node: usize) {
        let now = self.now;
        let Some(g) = self.gateway(node) else { return };
        if g.start_at.is_some_and(|t| t <= now) {
            let records: Vec<_> = g.records.values().copied().collect();
            self.trace.note(now, || format!("gateway starts with {} records", records.len()));
            self.observer.gateway_started(node, &records);
            self.with_gateway(node, |g, ports, routes| g.start(now, ports, routes));
        }
        let ready = self.gateway(node).and_then(|g| g.merger.as_mut()).map(|m| m.expired(now));
        for m in ready.unwrap_or_default() {
            self.hand_over(node, m);
        }
        let mut worked = Ok(());
        self.with_gateway(node, |g, ports, routes| {
            worked = g.work(now, ports, routes);
        });
        if let Err(why) = worked {
            self.fail(node, why);
        }
        let mut gone = None;
        let mut records = Vec::new();
        self.with_gateway(node, |g, ports, routes| {
            if g.drain_limit.is_some() {
                records = g.records.values().copied().collect();
            }
            gone = g.check_drained(now, ports, routes);
        });
        if let Some(abandoned) = gone {
            self.trace.note(now, || format!("drained, {abandoned} flows abandoned"));
            let left = self.gateway(node).map_or(0, |g| g.records.len());
            if abandoned == 0 && left > 0 {
                self.fail(node, format!("drained, and {left} records of custody are left"));
            }
            if abandoned > 0 {
                self.in_hosts_numbers(&mut records);
                self.observer.excuse(&records, "a bounded drain gave it up");
            }
            self.observer.gateway_started(node, &[]);
        }
        self.check_memory(node);
    }

    fn check_memory(&mut self, node: usize) {
        let Some(g) = self.gateway(node) else { return };
        let limit = g.pool_bytes_most();
        let used = g.gateway.as_mut().map_or(0, |g| g.pool().used_bytes());
        if used > limit + POOL_SLACK_BYTES {
            self.fail(node, format!("{used} bytes of buffers in use, {limit} allowed"));
        }
    }

    /// Takes what a host has to send.
    fn collect(&mut self, node: usize) {
        loop {
            let Kind::Host(_, host) = &mut self.nodes[node].kind else { return };
            let Some(bytes) = host.take_output() else { return };
            let is_hostile = host.is_hostile();
            self.trace.packet(self.now, &self.nodes[node].name, ">", &bytes, &self.observer);
            if is_hostile {
                self.observer.hostile.note(&bytes);
            } else if let Err(e) = self.observer.host_sent(&bytes) {
                self.fail(node, e);
                return;
            } else {
                self.let_overhear(&bytes);
            }
            self.forward(node, bytes, false);
        }
    }

    fn let_overhear(&mut self, bytes: &[u8]) {
        let now = self.now;
        for n in &mut self.nodes {
            if let Kind::Host(_, host) = &mut n.kind
                && host.is_hostile()
            {
                host.overhear(now, bytes);
            }
        }
    }

    /// Sends on what a gateway has transmitted: cut to the wire's packets, checked, one hop
    /// counted.
    fn ship(&mut self, node: usize) {
        self.note_links(node);
        let Some(g) = self.gateway(node) else { return };
        let outbox = std::mem::take(&mut g.outbox);
        for mut o in outbox {
            if !self.leave_in_hosts_numbers(&mut o) {
                continue;
            }
            if !offload_is_sane(&o.bytes, &o.offload) {
                self.fail(node, format!("an offload that the kernel drops: {:?}", o.offload));
                return;
            }
            let mut pieces = Vec::new();
            supersegment::segment(&o.bytes, &o.offload, &mut |p| pieces.push(p.to_vec()));
            for bytes in pieces {
                self.emit(node, bytes, o.forwarded);
            }
        }
    }

    fn emit(&mut self, node: usize, mut bytes: Vec<u8>, forwarded: bool) {
        let how = if forwarded { ">" } else { "*>" };
        self.trace.packet(self.now, &self.nodes[node].name, how, &bytes, &self.observer);
        if let Err(e) = self.observer.gateway_out(node, &bytes, forwarded) {
            let packet = self.observer.describe(&bytes);
            self.fail(node, format!("{e}\n  {packet}"));
            return;
        }
        if !forwarded
            && let Some(mtu) = self.mtu_towards(node, &bytes)
            && bytes.len() as u32 > mtu
        {
            self.fail(node, format!("made a packet of {} bytes for an MTU of {mtu}", bytes.len()));
            return;
        }
        let damaged =
            tcp(&bytes).is_some_and(|s| !farlink_wire::verify_checksums(&bytes, &s, &Offload::default()));
        if hop(&mut bytes) {
            self.forward(node, bytes, damaged);
        }
    }
}
