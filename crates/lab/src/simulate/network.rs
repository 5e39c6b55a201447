//! The network of a cell: the laboratory's topology, node by node.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::rc::Rc;

use anyhow::{Context, Result, anyhow, bail};
use farlink_channel::{Channel, ChannelConfig};
use farlink_gateway::config::Pinned;
use farlink_sim::fault::Fault;
use farlink_sim::host::address;
use farlink_sim::linux::config::Keepalive;
use farlink_sim::linux::congestion::Kind;
use farlink_sim::linux::host::{CLIENT, CLIENT_2, CLIENT_3, SERVER};
use farlink_sim::linux::{Flood, LinuxConfig, LinuxHost, Play, tunnel};
use farlink_sim::meter::Meter;
use farlink_sim::node::{self, GatewayNode, router_address};
use farlink_sim::observer::Allowances;
use farlink_sim::tcp_store::TcpStore;
use farlink_sim::trace::Trace;
use farlink_sim::tracker::Tracker;
use farlink_sim::world::{Stalls, World};
use farlink_wire::{Duration, Instant};

use super::measure::started;
use super::{Read, ReadConfig};
use crate::baseline::TCP_STORE;
use crate::gateway::config_text;
use crate::jobs::outage::Outage;
use crate::kinds::gauges::{Gauge, Sample, taken_to_carry};
use crate::kinds::transfer::{EARLIER, is_upload};
use crate::limit::Clock;
use crate::scenario::{Cell, Scenario};
use crate::settings::{Duplex, Hosts, Mode, Settings, Way};
use crate::topology::{Role, Topology};
use farlink_gateway::IfaceId;
use farlink_gateway::LinkStatus;
use farlink_gateway::flow_trace::Collector;

/// One-way delay of the cable between two nodes, of the order of a veth pair and two kernels.
const CABLE_DELAY: Duration = Duration::from_micros(25);
/// Virtual time after which a cell counts as hung.
const TIME_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// Time between two samples of a traced flow.
const SAMPLE_EVERY: Duration = Duration::from_millis(50);
/// With more transfers they are sampled a tenth as often.
const FEW_FLOWS: usize = 200;
/// What has arrived of a transfer and is less than this is only its question.
const QUESTION_BYTES_MAX: u64 = 64;
/// After an outage the first byte is looked for so often at first, and later at each thousandth of
/// the time that has passed.
const WATCH_EVERY: Duration = Duration::from_micros(100);
/// When one of two hosts has been reset, and the link is there, the other one is so within this,
/// and within as long again as the gateway's next life has asked already: it asks at intervals that
/// double.
const TOLD_WITHIN: Duration = Duration::from_secs(2);
/// Quiet time after the last transfer, for what is still under way.
const SETTLE: Duration = Duration::from_millis(1);

/// The shortest time between two rounds of the gateway of Reynolds.
const ROUND_MIN: Duration = Duration::from_micros(100);

/// A cell's network, built and perhaps run.
pub(super) struct Network {
    pub(super) world: World,
    pub(super) topology: Topology,
    pub(super) play: Rc<Play>,
    /// Node of the world, by number of the topology's.
    nodes: BTreeMap<usize, usize>,
    /// Port of a node at an end of a wire, by the topology's numbers of node and wire.
    ports: BTreeMap<(usize, usize), usize>,
}

/// Two nodes joined by a cable or a link: the topology's numbers of the nodes and of the wires at
/// their ends.
struct Joint {
    ends: [(usize, usize); 2],
    mtu: u32,
    /// What it has from `eth_mtu_from` on.
    mtu_later: Option<u32>,
    channels: [ChannelConfig; 2],
    is_declared: bool,
    is_half_duplex: bool,
}

/// Why the simulator has no such cell, in words.
pub(super) fn cannot_run(scenario: &Scenario, cell: &Cell) -> Option<String> {
    let topology = cell.word("topology", &scenario.topology);
    if let Err(unknown) = Topology::named(topology, &cell.settings) {
        return Some(unknown.to_string());
    }
    for program in ["baseline", "program"] {
        let name = cell.word(program, "");
        if !name.is_empty() && name != TCP_STORE {
            return Some(format!("`{name}` is a program and not simulated"));
        }
    }
    if cell.v6() && !cell.settings.has_v6() {
        return Some("IPv6 needs an MTU of 1280 bytes (RFC 8200 section 5)".into());
    }
    ["client", "client2"].into_iter().find_map(|host| cell.settings.cc_of(host).parse::<Kind>().err())
}

/// Number of the simulated host that stands for this node.
pub(super) fn host_number(node: &str) -> Result<usize> {
    Ok(match node {
        "client" => CLIENT,
        "server" => SERVER,
        "client2" => CLIENT_2,
        "client3" => CLIENT_3,
        other => bail!("the simulator has no host `{other}`"),
    })
}

impl Network {
    pub(super) fn build(
        scenario: &Scenario,
        cell: &Cell,
        seed: u64,
        play: Rc<Play>,
        trace: Trace,
        read_config: ReadConfig<'_>,
    ) -> Result<Self> {
        let settings = Settings { seed, ..cell.settings.clone() };
        let topology = Topology::named(cell.word("topology", &scenario.topology), &settings)?;
        let floods = cell.number("floods", 0) as u16;
        let mut kinds = Vec::new();
        for (number, node) in topology.nodes.iter().enumerate() {
            let kind = match node.role {
                Role::Link => continue,
                Role::Host => {
                    let host = host_number(&node.name)?;
                    let iack = cell.word("baseline", "") == TCP_STORE;
                    let mut config = LinuxConfig { iack, ..host_config(&settings, &node.name)? };
                    if cell.is_in_tunnel() {
                        config.has_tunnel = true;
                        config.mtu_bytes = config.mtu_bytes.min(tunnel::MTU_BYTES);
                    }
                    let mut linux = LinuxHost::new(host, config, play.clone(), seed);
                    if host == CLIENT {
                        let floods = (0..floods).filter_map(|id| flood(&topology, number, id));
                        floods.for_each(|f| linux.add_flood(f));
                    }
                    node::Kind::Host(host, Box::new(linux))
                }
                Role::Gateway if is_tcp_store(cell, &node.name) => tcp_store(cell),
                Role::Gateway | Role::Router => router(&topology, number, &settings, read_config)?,
            };
            kinds.push((number, kind));
        }
        let mut world = World::new(seed, allowances(kinds.iter().map(|(_, k)| k)), trace);
        let mut nodes = BTreeMap::new();
        for (number, kind) in kinds {
            let is_gateway = matches!(kind, node::Kind::Gateway(_));
            let node = world.add_node(topology.nodes[number].name.clone(), kind);
            if is_gateway && settings.mode_of(&topology.nodes[number].name) == Mode::Custody {
                world.observer.expect_no_promise(node, settings.custody_notice);
            }
            if topology.nodes[number].role != Role::Host && settings.stall_share > 0.0 {
                let length = Duration::from_secs_f64(settings.stall_ms / 1e3);
                let stalls = Stalls { length, share: settings.stall_share, seed: seed ^ number as u64 };
                world.stall(node, stalls);
            }
            nodes.insert(number, node);
        }
        let mut ports = BTreeMap::new();
        let mut joints = joints(&topology, &settings);
        // The order of the interfaces in a gateway's configuration file.
        joints.sort_by_key(|j| j.is_declared);
        for Joint { ends: [a, b], mtu, mtu_later, channels: [there, back], is_half_duplex, .. } in joints {
            let (port_a, port_b) = world.link(nodes[&a.0], nodes[&b.0], mtu, there, back);
            if let Some(mtu) = mtu_later {
                let from = Instant::ZERO + Duration::from_secs_f64(settings.eth_mtu_from_ms / 1000.0);
                world.change_mtu(nodes[&a.0], port_a, from, mtu);
                world.change_mtu(nodes[&b.0], port_b, from, mtu);
            }
            if is_half_duplex {
                world.share_medium(nodes[&a.0], port_a);
            }
            if settings.eth_mtu_untold {
                world.hush(nodes[&a.0], port_a);
                world.hush(nodes[&b.0], port_b);
            }
            ports.insert(a, port_a);
            ports.insert(b, port_b);
        }
        let mut network = Self { world, topology, play, nodes, ports };
        network.set_routes()?;
        if scenario.clock == Clock::FirstByte && !cell.is_announced() {
            network.hold_schedules(cell.number(EARLIER, 0) as usize);
        }
        Ok(network)
    }

    /// Schedules of hard links begin when the clock of the first transfer that is timed does.
    fn hold_schedules(&mut self, earlier: usize) {
        let mut ends = self.ends_of_hard_links();
        ends.retain(|(node, port)| !self.world.channel_config(*node, *port).is_steady());
        if ends.is_empty() {
            return;
        }
        let play = self.play.clone();
        let is_time = move || {
            let outcomes = play.outcomes.borrow();
            let timed = play.transfers.iter().zip(outcomes.iter()).skip(earlier);
            timed.into_iter().any(|(t, o)| started(Clock::FirstByte, t, o).is_some())
        };
        self.world.hold_schedules(&ends, Box::new(is_time));
    }

    fn set_routes(&mut self) -> Result<()> {
        for (number, node) in self.nodes.clone() {
            for (host, at) in self.topology.nodes.iter().enumerate() {
                if at.role != Role::Host || host == number {
                    continue;
                }
                let path = self.topology.path(number, host);
                let Some(next) = path.get(1) else { continue };
                let wire = self.topology.interface(number, *next)?.wire;
                self.world.set_route(node, host_number(&at.name)?, self.ports[&(number, wire)]);
            }
            // Of the second client the uploads of a near set are counted.
            let at = &self.topology.nodes[number];
            let is_metered = at.role != Role::Host || at.name == "client2";
            for ((_, _), port) in self.ports.iter().filter(|((n, _), _)| is_metered && *n == number) {
                self.world.set_meter(node, *port);
            }
        }
        Ok(())
    }

    /// Node and port by which a node of this name sends to its neighbour of this name, in the
    /// numbers of the world.
    pub(super) fn port(&self, node: &str, neighbour: &str) -> Option<(usize, usize)> {
        let (node, neighbour) = (self.topology.index(node).ok()?, self.topology.index(neighbour).ok()?);
        let wire = self.topology.interface(node, neighbour).ok()?.wire;
        Some((self.nodes[&node], *self.ports.get(&(node, wire))?))
    }

    /// The meters of everything that leaves a node of this name.
    pub(super) fn meters_of(&self, node: &str) -> Vec<&Meter> {
        let Ok(number) = self.topology.index(node) else { return Vec::new() };
        let ports = self.ports.iter().filter(|((n, _), _)| *n == number).map(|(_, port)| *port);
        ports.filter_map(|port| self.world.meter(self.nodes[&number], port)).collect()
    }

    /// The number in the simulated world of the node of this name.
    pub(super) fn node(&self, name: &str) -> Option<usize> {
        self.topology.index(name).ok().and_then(|number| self.nodes.get(&number)).copied()
    }

    /// The ports of the two sides of a link, the client's first.
    pub(super) fn ends_of_link(&self, link: usize) -> Vec<(usize, usize)> {
        let name = &self.topology.nodes[link].name;
        let ends = self.topology.interfaces(link).into_iter();
        ends.filter_map(|i| self.port(&self.topology.nodes[i.neighbour].name, name)).collect()
    }

    /// The ports of the two sides of each hard link.
    fn ends_of_hard_links(&self) -> Vec<(usize, usize)> {
        self.topology.hard_links().into_iter().flat_map(|link| self.ends_of_link(link)).collect()
    }

    /// The port of a gateway of this name towards its first declared link.
    pub(super) fn port_to_link(&self, gateway: &str) -> Option<(usize, usize)> {
        let number = self.topology.index(gateway).ok()?;
        let declared = self.topology.nodes[number].declared.first()?;
        self.port(gateway, &self.topology.nodes[declared.neighbour].name)
    }

    /// Writes what each node received and sent as a file for Wireshark.
    pub(super) fn write_captures(&mut self, directory: &Path, begin: &str) -> Result<()> {
        for (node, capture) in self.world.trace.take_captures() {
            let path = directory.join(format!("{begin}-{node}.pcap"));
            std::fs::write(&path, capture)
                .with_context(|| format!("{} cannot be written", path.display()))?;
        }
        Ok(())
    }

    /// The same, and follows the first flow at the gateway nearest to where its data comes from.
    /// `None`: no gateway runs.
    pub(super) fn run_traced(&mut self, is_upload: bool) -> Result<Option<Collector>> {
        // Gateways start with the first instant.
        self.world.run_until(Instant::ZERO + Duration::from_micros(1));
        let nodes = self.topology.nodes.iter().enumerate().filter(|(_, n)| n.role == Role::Gateway);
        let mut nodes: Vec<_> = nodes.map(|(number, n)| (self.nodes[&number], n.name.clone())).collect();
        if !is_upload {
            nodes.reverse();
        }
        let mut now = self.world.now();
        let until = Instant::ZERO + TIME_MAX;
        let Some((node, name)) = nodes.into_iter().find(|(node, _)| self.running(*node).is_some()) else {
            return Ok(None);
        };
        if let Some(gateway) = self.running(node) {
            gateway.trace(now, Some((Default::default(), until))).map_err(|e| anyhow!(e))?;
        }
        let mut collector = Collector::default();
        while now < until && self.world.failure.is_none() && !self.world.is_finished() {
            now += SAMPLE_EVERY;
            self.world.run_until(now);
            if let Some(taken) = self.running(node).and_then(|g| g.take_trace(now)) {
                collector.add(&name, &taken);
            }
        }
        self.run()?;
        Ok(Some(collector))
    }

    /// The same, and looks at what gateways hold meanwhile.
    pub(super) fn run_watched(&mut self) -> Result<Vec<Sample>> {
        let few = self.play.transfers.len() <= FEW_FLOWS;
        let interval = if few { SAMPLE_EVERY } else { SAMPLE_EVERY * 10 };
        let mut samples = Vec::new();
        let mut now = self.world.now();
        while now < Instant::ZERO + TIME_MAX && self.world.failure.is_none() && !self.world.is_finished() {
            now += interval;
            self.world.run_until(now);
            let outcomes = self.play.outcomes.borrow();
            let payload = outcomes.iter().map(|o| o.received[0].max(o.received[1]));
            let payload = payload.filter(|bytes| *bytes >= QUESTION_BYTES_MAX).sum();
            drop(outcomes);
            samples.push(Sample {
                at_s: now.since(Instant::ZERO).as_secs_f64(),
                payload,
                gateways: self.gauges(),
            });
        }
        self.run()?;
        Ok(samples)
    }

    /// The same with outages of all hard links, in the order of time. Returns when the first
    /// payload byte arrived after the last of them, if something was to arrive soon.
    pub(super) fn run_with_outages(&mut self, outages: &[Outage]) -> Result<Option<f64>> {
        let at = |time: std::time::Duration| Instant::ZERO + super::planned::nanos(time);
        for outage in outages {
            for (time, up) in [(outage.from, false), (outage.until, true)] {
                let faults = self.links_change(up, outage.is_announced);
                self.world.add_faults(faults.into_iter().map(|fault| (at(time), fault)));
            }
            if let Some(kill) = outage.kill {
                let node =
                    self.node(kill.gateway).with_context(|| format!("no gateway is on {}", kill.gateway))?;
                let restart_after = super::planned::nanos(kill.restart_at - kill.at);
                self.world.add_faults([(at(kill.at), Fault::Kill { node, restart_after })]);
            }
        }
        let progress = outages.last().and_then(|last| self.first_byte_after(last));
        self.run()?;
        if self.play.outcomes.borrow().iter().any(|o| o.was_reset != [false; 2]) {
            // The other host is told when the link is there.
            let back = outages.last().map_or(Instant::ZERO, |last| at(last.until));
            let asks_since = outages.last().and_then(|last| last.kill).map(|kill| at(kill.restart_at));
            let asked = asks_since.map_or(Duration::ZERO, |since| back.since(since));
            self.world.run_until(self.world.now().max(back) + TOLD_WITHIN + asked);
        }
        Ok(progress)
    }

    /// Runs until the first payload byte has arrived after an outage, if one does soon: then.
    fn first_byte_after(&mut self, outage: &Outage) -> Option<f64> {
        let received = |play: &Play| play.outcomes.borrow().iter().map(|o| o.received[0]).sum::<u64>();
        let back = Instant::ZERO + super::planned::nanos(outage.until);
        self.world.run_until(back);
        let before = received(&self.play);
        let mut now = back;
        let end = back + super::planned::nanos(outage.patience());
        while received(&self.play) == before && now < end && !self.world.is_finished() {
            now += WATCH_EVERY.max(now.since(back) / 1000);
            self.world.run_until(now);
        }
        (received(&self.play) > before).then(|| now.since(Instant::ZERO).as_secs_f64())
    }

    /// What happens when all hard links go away or come back.
    fn links_change(&self, up: bool, is_announced: bool) -> Vec<Fault> {
        let mut faults = Vec::new();
        for (node, port) in self.ends_of_hard_links() {
            let usual = self.world.channel_config(node, port);
            let config = if up { usual } else { ChannelConfig { loss: 1.0, ..usual } };
            faults.push(Fault::Channel { node, port, config: Box::new(config) });
            if is_announced {
                faults.push(Fault::LinkState { node, port, up });
            }
        }
        faults
    }

    /// Gateways are told when contacts of hard links begin and end, as by a carrier.
    pub(super) fn announce_contacts(&mut self) {
        let mut faults = Vec::new();
        for (node, port) in self.ends_of_hard_links() {
            let channel = Channel::<Vec<u8>>::new(self.world.channel_config(node, port), 0);
            let mut up = true;
            let mut at = Some(Instant::ZERO + Duration::from_micros(1));
            while let Some(now) = at.filter(|now| *now < Instant::ZERO + TIME_MAX) {
                if channel.is_up(now) != up {
                    up = !up;
                    faults.push((now, Fault::LinkState { node, port, up }));
                }
                at = channel.next_transition(now);
            }
        }
        self.world.add_faults(faults);
    }

    fn gauges(&mut self) -> Vec<Gauge> {
        let mut gauges = Vec::new();
        for node in self.world.gateways() {
            let name = self.world.name(node).to_string();
            if let Some(gateway) = self.running(node) {
                let status = gateway.status();
                let carries = |link: &LinkStatus| {
                    taken_to_carry([link.estimated_bps, link.declared_bps, link.rate_bps])
                };
                let (e, rates) = (&status.engine, status.links.iter().map(carries));
                let gauge = Gauge::new(&name, e.custody_bytes, e.in_flight_bytes, e.pool_bytes);
                gauges.push(gauge.at(rates));
            }
        }
        gauges
    }

    fn running(&mut self, node: usize) -> Option<&mut farlink_gateway::Gateway> {
        self.world.gateway(node).and_then(|g| g.gateway.as_mut())
    }

    /// Runs until all transfers are over.
    pub(super) fn run(&mut self) -> Result<()> {
        let finished = self.world.run(SETTLE, Instant::ZERO + TIME_MAX, u64::MAX);
        if let Some(failure) = &self.world.failure {
            bail!("an invariant is broken: {failure}");
        }
        if !finished {
            let seconds = self.world.now().as_nanos() as f64 / 1e9;
            bail!("nothing happens any more at {seconds:.3} s, and not all transfers are over");
        }
        Ok(())
    }
}

/// Everything that joins two nodes, in the order of the wires. A link's wires are one joint.
fn joints(topology: &Topology, settings: &Settings) -> Vec<Joint> {
    let declares = |node: usize, neighbour: usize| {
        topology.nodes[node].declared.iter().any(|d| d.neighbour == neighbour)
    };
    let mut joints = Vec::new();
    for (wire, w) in topology.wires.iter().enumerate() {
        let is_link = |n: usize| topology.nodes[n].role == Role::Link;
        let Some(link) = [w.a, w.b].into_iter().find(|n| is_link(*n)) else {
            let cable = || ChannelConfig { delay: CABLE_DELAY, ..ChannelConfig::default() };
            joints.push(Joint {
                ends: [(w.a, wire), (w.b, wire)],
                mtu: settings.mtu,
                mtu_later: None,
                channels: [cable(), cable()],
                is_declared: declares(w.a, w.b) || declares(w.b, w.a),
                is_half_duplex: false,
            });
            continue;
        };
        // The client's side comes first; its wire stands for both.
        let sides = topology.interfaces(link);
        if sides[0].wire != wire {
            continue;
        }
        let ends = [(sides[0].neighbour, sides[0].wire), (sides[1].neighbour, sides[1].wire)];
        let joint = if let Some(number) = topology.hard_link(link) {
            let own = settings.of_link(number);
            let (up, down) = (own.channel(Way::Up), own.channel(Way::Down));
            let is_declared = ends.iter().any(|(node, _)| declares(*node, link));
            let is_half_duplex = settings.duplex == Duplex::Half;
            let mtu = settings.link_mtu;
            Joint { ends, mtu, mtu_later: None, channels: [up, down], is_declared, is_half_duplex }
        } else {
            let ethernet = settings.ethernet(&topology.nodes[link].name);
            let channel = || {
                let channel = ethernet.channel(Way::Down);
                ChannelConfig { delay: channel.delay + CABLE_DELAY, ..channel }
            };
            let channels = [channel(), channel()];
            let is_declared = ends.iter().any(|(node, _)| declares(*node, link));
            let own = settings.eth_mtu.unwrap_or(settings.mtu);
            let is_later = settings.eth_mtu_from_ms > 0.0;
            let (mtu, mtu_later) = if is_later { (settings.mtu, Some(own)) } else { (own, None) };
            Joint { ends, mtu, mtu_later, channels, is_declared, is_half_duplex: false }
        };
        joints.push(joint);
    }
    joints
}

/// The pings of 1,472 bytes that a host's flood sends to the router next to it: packets as large as
/// Ethernet takes (thesis 5.2.2).
fn flood(topology: &Topology, host: usize, id: u16) -> Option<Flood> {
    const DATA_BYTES: usize = 1472;
    let router = topology.interfaces(host).first()?.peer;
    // Links are no nodes of the world.
    let number = (0..router).filter(|n| topology.nodes[*n].role != Role::Link).count();
    match (address(CLIENT, false), router_address(number, false)) {
        (IpAddr::V4(from), IpAddr::V4(to)) => Some(Flood::new(from, to, DATA_BYTES, id)),
        _ => None,
    }
}

/// What the observer has to allow these gateways.
fn allowances<'a>(nodes: impl Iterator<Item = &'a node::Kind>) -> Allowances {
    let configs = nodes.filter_map(|kind| match kind {
        node::Kind::Gateway(g) => Some(&g.config),
        _ => None,
    });
    let mut allowed = Allowances { relay_bytes: 65_535, ..Allowances::default() };
    for config in configs {
        allowed.gateways += 1;
        let raised = config.rules.iter().filter_map(|rule| rule.raise_mss).max();
        allowed.raised_mss = allowed.raised_mss.max(raised);
        allowed.pinned |= config.pinned != Pinned::Never;
        allowed.relay_bytes = allowed.relay_bytes.max(u64::from(config.limits.relay_bytes_max()));
        allowed.dormant_after = config.timers.dormant_after;
    }
    allowed
}

/// It stands at the end of the link where the data comes from.
fn is_tcp_store(cell: &Cell, node: &str) -> bool {
    cell.word("baseline", "") == TCP_STORE && node == if is_upload(cell) { "gw1" } else { "gw2" }
}

fn tcp_store(cell: &Cell) -> node::Kind {
    let source = if is_upload(cell) { CLIENT } else { SERVER };
    let round = Duration::from_secs_f64(cell.settings.round_ms / 1e3).max(ROUND_MIN);
    node::Kind::Other(Box::new(TcpStore::new(source, round)))
}

fn router(
    topology: &Topology,
    number: usize,
    settings: &Settings,
    read_config: ReadConfig<'_>,
) -> Result<node::Kind> {
    let name = &topology.nodes[number].name;
    if !topology.nodes[number].runs_gateway {
        let resets = match settings.tracking.as_str() {
            "drop" => false,
            // A router that translates addresses takes what it cannot place for its own.
            "reset" | "masquerade" => true,
            _ => return Ok(node::Kind::Router),
        };
        let is_clients =
            topology.interfaces(number).iter().any(|i| topology.nodes[i.neighbour].name == "client");
        return Ok(match is_clients {
            true => node::Kind::Other(Box::new(Tracker::new(resets))),
            false => node::Kind::Router,
        });
    }
    let text = config_text(topology, number, settings, Path::new("/run/farlink/simulated.sock"))?;
    let Read { gateway: mut config, whole, whole_when_known } =
        read_config(&text).with_context(|| format!("the configuration of {name}:\n{text}"))?;
    config.seed = settings.seed ^ number as u64;
    // What arrives at one instant is one super-segment, as from a network card with receive
    // offload.
    let ports = |ids: Vec<IfaceId>| ids.into_iter().map(|iface| usize::from(iface.0)).collect();
    let node = GatewayNode::new(config, Some(Duration::ZERO));
    Ok(node::Kind::Gateway(Box::new(node.with_whole(ports(whole), ports(whole_when_known)))))
}

fn host_config(settings: &Settings, host: &str) -> Result<LinuxConfig> {
    let congestion: Kind = settings.cc_of(host).parse().map_err(|e: String| anyhow!(e))?;
    let mut config = match settings.hosts {
        Hosts::Modern => LinuxConfig::modern(congestion),
        Hosts::Legacy => LinuxConfig::legacy(congestion, settings.host_window_bytes),
    };
    let lacks = settings.lacks(host);
    config.timestamps &= !lacks.timestamps;
    config.window_scaling &= !lacks.scaling;
    config.sack &= !lacks.sack;
    config.takes_oversized &= !lacks.oversized;
    if let Some(bytes) = settings.client_window_bytes.filter(|_| host == "client") {
        config.set_window(bytes);
    } else if !config.window_scaling {
        config.window_max_bytes = config.window_max_bytes.min(65_535);
    }
    if settings.iw > 0 {
        config.initial_window = settings.iw;
    }
    config.mtu_bytes = settings.mtu;
    config.keepalive = settings.keepalive.map(|[idle, interval, probes]| Keepalive {
        idle: Duration::from_secs(idle),
        interval: Duration::from_secs(interval),
        probes: u32::try_from(probes).unwrap_or(u32::MAX),
    });
    Ok(config)
}
