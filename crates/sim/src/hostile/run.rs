//! Runs a hostile seed, with the attackers and without, and judges.

use std::collections::VecDeque;
use std::rc::Rc;

use farlink_channel::{ChannelConfig, Weights, XcpRouter};
use farlink_gateway::IfaceId;
use farlink_gateway::cc;
use farlink_gateway::config::{
    AckFilter, Copies, FlowControl, Interface, LegConfig, Limits, Link, Pinned, XcpContext,
};
use farlink_gateway::engine_status;
use farlink_wire::shim::SHIM_PROTOCOL;
use farlink_wire::{Duration, Instant};

use super::beside;
use super::liar::{Liar, addresses};
use super::plan::{ATTACK_ENDS, Declared, HostilePlan, LIARS, Place, SPOOFER};
use super::spoofer::Spoofer;
use crate::fault::Fault;
use crate::host::{Host, address};
use crate::linux::host::{CLIENT, CLIENT_PORT, SERVER, SERVER_PORT};
use crate::linux::{Direction, LinuxHost, Outcome, Play, Transfer};
use crate::meter::Meter;
use crate::node::{GatewayNode, Kind};
use crate::observer::Allowances;
use crate::plan::Mode;
use crate::runner::{Report, Traced};
use crate::trace::Trace;
use crate::world::World;

/// Virtual time within which the honest connections must be over.
const TIME_MAX: Duration = Duration::from_secs(900);
/// After the attack nothing may be held any more once this has passed: up to 1,400 s until a host
/// gives up what a vanished liar does not acknowledge (Linux `tcp_retries2`), and the user timeout
/// of 900 s.
const QUIET: Duration = Duration::from_secs(2_400);
/// Some time after the attack the link is used again, so often, and each time somebody is answered.
/// Until then it may count as away, for as long as an outage may last: a liar may have played a
/// gateway before it fell silent. Who was silent once while another was answered may have had bad
/// luck; who always is will not be believed.
const USED_AGAIN: Duration = Duration::from_secs(660);
const USES: u32 = 12;
const USED_EVERY: Duration = Duration::from_secs(20);
/// What is asked then, and answered, bytes.
const ASKED_AGAIN_BYTES: [u64; 2] = [100, 1_000];
/// How often gauges are read.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// A connection's record with its places in the index and the lists, most.
const FLOW_RECORD_BYTES: usize = 1_024;
/// What a split connection takes besides, without its blocks: two relays, their boards and lists
/// when little is under way.
const SPLIT_FLOW_BYTES: u64 = 16_384;
/// A half-open connection's record, most.
const HALF_OPEN_BYTES: usize = 1_024;
pub(super) const MTU_BYTES: u32 = 1500;
const LAN_DELAY: Duration = Duration::from_micros(100);

/// Number of a hostile host, where it stands, and what it is.
pub(super) type Attacker = (usize, Place, Box<dyn Host>);

/// A network and what plays in it.
pub(super) struct Bed {
    pub(super) world: World,
    pub(super) play: Rc<Play>,
    /// Node and port of both ends of the link.
    pub(super) link: [(usize, usize); 2],
    pub(super) gateways: Vec<usize>,
}

/// What one run came to.
pub(super) struct Ran {
    pub(super) outcomes: Vec<Outcome>,
    /// Bytes of liars that entered the link, of the direction that had more.
    pub(super) hostile_bytes: u64,
    /// The same of forged packets.
    pub(super) forged_bytes: u64,
    failure: Option<String>,
}

/// Runs one seed with a trace.
#[must_use]
pub fn run(seed: u64, policy: Option<FlowControl>, trace: Trace) -> Traced {
    run_plan(&HostilePlan::from_seed(seed, policy), trace)
}

/// The run without attackers that a seed's honest connections are compared with.
#[must_use]
pub fn run_alone(seed: u64, policy: Option<FlowControl>, trace: Trace) -> Traced {
    let plan = HostilePlan::from_seed(seed, policy);
    let mut bed = build(&plan, trace, Vec::new());
    let ran = play(&mut bed, &plan, false);
    let packets = bed.world.packets;
    told(&mut bed, &plan, &ran, ran.failure.clone(), packets)
}

/// Runs a plan.
#[must_use]
pub fn run_plan(plan: &HostilePlan, trace: Trace) -> Traced {
    let mut bed = build(plan, trace, attackers(plan));
    let with = play(&mut bed, plan, true);
    let mut failure = with.failure.clone();
    let mut packets = bed.world.packets;
    if failure.is_none() {
        let mut alone = build(plan, Trace::default(), Vec::new());
        let without = play(&mut alone, plan, false);
        packets += alone.world.packets;
        let again = |n, attacked| {
            let shifted = beside::shifted(plan, n);
            let attackers = attackers(&shifted);
            let attackers = if attacked { attackers } else { beside::chaff(attackers) };
            let mut bed = build(&shifted, Trace::default(), attackers);
            play(&mut bed, &shifted, false)
        };
        failure = without
            .failure
            .clone()
            .map(|f| format!("without attackers: {f}"))
            .or_else(|| beside::compare(plan, &with, without, &again));
    }
    told(&mut bed, plan, &with, failure, packets)
}

fn told(bed: &mut Bed, plan: &HostilePlan, ran: &Ran, failure: Option<String>, packets: u64) -> Traced {
    let world = &mut bed.world;
    let report = Report {
        seed: plan.seed,
        mode: Mode::Hostile,
        policy: plan.policy,
        failure,
        digest: world.trace.digest(),
        beyond_windows_bytes: world.observer.beyond_windows_bytes,
        packets,
        virtual_time: world.now().since(Instant::ZERO),
        received_bytes: ran.outcomes.iter().map(|o| o.received[0] + o.received[1]).sum(),
    };
    Traced { report, lines: world.trace.take_text(), captures: world.trace.take_captures() }
}

fn play(bed: &mut Bed, plan: &HostilePlan, attacked: bool) -> Ran {
    let honest = plan.honest.len();
    let mut failure = None;
    let is_over = |bed: &Bed| bed.play.outcomes.borrow()[..honest].iter().all(Outcome::is_over);
    while bed.world.failure.is_none() && failure.is_none() && !is_over(bed) {
        let next = bed.world.now() + LOOK_EVERY;
        bed.world.run_until(next);
        failure = look(bed);
        if next > Instant::ZERO + TIME_MAX {
            failure = failure.or(Some("the honest connections do not end".into()));
        }
    }
    let outcomes = bed.play.outcomes.borrow()[..honest].to_vec();
    let most = |of: fn(&Meter) -> u64| {
        bed.link.iter().filter_map(|(n, p)| bed.world.meter(*n, *p)).map(of).max().unwrap_or(0)
    };
    let (hostile_bytes, forged_bytes) = (most(|m| m.hostile_bytes), most(|m| m.forged_bytes));
    for (n, o) in outcomes.iter().enumerate() {
        if !o.is_intact() && failure.is_none() {
            failure = Some(format!("honest connection {n} is not intact: {o:?}"));
        }
    }
    let mut failure = bed.world.failure.clone().or(failure);
    if attacked && failure.is_none() {
        let end = bed.world.now().max(Instant::ZERO + ATTACK_ENDS) + QUIET;
        bed.world.run_until(end);
        failure = bed.world.failure.clone().or_else(|| look(bed)).or_else(|| left_behind(bed));
    }
    Ran { outcomes, hostile_bytes, forged_bytes, failure }
}

/// All that a gateway may hold by its configuration: the pool with the relays of split connections,
/// a record for each connection, half-open connections, fragments; and what is held of segments
/// under way and of the blocks that they lie in.
#[must_use]
pub fn memory_bound_bytes(limits: &Limits) -> u64 {
    let tables = limits.flows_max * FLOW_RECORD_BYTES + limits.half_open_max * HALF_OPEN_BYTES;
    (limits.pool_bytes + limits.pool_bytes / 4 + tables + limits.reassembly_bytes) as u64
}

/// What a gateway may hold of what it has just now: no host makes it keep much for little.
fn memory_in_use_bytes(e: &engine_status::Status, limits: &Limits) -> u64 {
    let flows = e.flows_split + e.flows_dormant + e.flows_draining + e.flows_closed;
    let tables =
        (flows * 2 + 64) * FLOW_RECORD_BYTES as u64 + limits.half_open_max as u64 * HALF_OPEN_BYTES as u64;
    let split = (e.flows_split + e.flows_draining) * SPLIT_FLOW_BYTES;
    tables + split + 2 * e.memory.blocks_bytes + e.memory.spare_blocks_bytes
}

/// Everything is bounded, at any time.
fn look(bed: &mut Bed) -> Option<String> {
    for n in bed.gateways.clone() {
        let Some(node) = bed.world.gateway(n) else { continue };
        let limits = node.config.limits.clone();
        let Some(gateway) = &mut node.gateway else { continue };
        let status = gateway.status();
        let e = &status.engine;
        let flows = e.flows_split + e.flows_dormant + e.flows_draining + e.flows_closed;
        let bounds = [
            ("flows", flows, limits.flows_max as u64),
            ("half-open connections", e.half_open, limits.half_open_max as u64),
            ("bytes of the pool", e.pool_bytes, limits.pool_bytes as u64),
            ("bytes of fragments", status.reassembly_bytes, limits.reassembly_bytes as u64),
            (
                "bytes of memory",
                e.memory.total_bytes() + status.reassembly_bytes,
                memory_bound_bytes(&limits),
            ),
            ("bytes of memory for what there is", e.memory.total_bytes(), memory_in_use_bytes(e, &limits)),
        ];
        let broken = bounds.into_iter().find(|(_, is, most)| is > most);
        if let Some((what, is, most)) = broken {
            return Some(format!("{}: {is} {what}, {most} allowed; {:?}", bed.world.name(n), e.memory));
        }
    }
    None
}

/// After a long quiet nothing is held.
fn left_behind(bed: &mut Bed) -> Option<String> {
    let now = bed.world.now();
    for n in bed.gateways.clone() {
        let Some(gateway) = bed.world.gateway(n).and_then(|g| g.gateway.as_mut()) else { continue };
        let status = gateway.status();
        let e = &status.engine;
        let left = [
            ("half-open connections", e.half_open),
            ("split connections", e.flows_split + e.flows_draining),
            ("closed connections", e.flows_closed),
            ("bytes in custody", e.custody_bytes),
            ("bytes of the pool", e.pool_bytes),
            ("bytes of fragments", status.reassembly_bytes),
        ];
        if let Some((what, is)) = left.into_iter().find(|(_, is)| *is > 0) {
            let flows: Vec<String> = gateway
                .flows(now, 1000)
                .into_iter()
                .filter(|f| f.mode != "dormant")
                .map(|f| {
                    format!("\n  {} > {} {} {} {}", f.a, f.b, f.mode, f.custody_ab_bytes, f.custody_ba_bytes)
                })
                .collect();
            let s = QUIET.as_secs();
            return Some(format!(
                "{}: {is} {what} are left {s} s after the attack{}",
                bed.world.name(n),
                flows.concat()
            ));
        }
    }
    None
}

pub(super) fn build(plan: &HostilePlan, trace: Trace, attackers: Vec<Attacker>) -> Bed {
    let count = plan.gateways.iter().filter(|g| **g).count();
    let declared = plan.link.declared != Declared::No;
    let allowed = Allowances {
        raised_mss: None,
        abandonment: false,
        pinned: plan.config.pinned != Pinned::Never,
        relay_bytes: u64::from(plan.config.limits.relay_bytes_max()).max(65_535),
        gateways: count as u64,
        gateways_in_touch: declared.then_some(count),
        dormant_after: plan.config.timers.dormant_after,
        large: false,
    };
    let mut world = World::new(plan.seed, allowed, trace);
    let mut transfers = plan.honest.clone();
    transfers.extend(plan.calls.iter().map(super::plan::Call::transfer));
    let [asks, gets] = ASKED_AGAIN_BYTES;
    let starts = (0..USES).map(|n| USED_AGAIN + USED_EVERY * n);
    transfers.extend(starts.map(|at| Transfer::single(Direction::Download, gets, asks, at, false)));
    let play = Play::new(transfers, Vec::<VecDeque<_>>::new());
    let ends: Vec<usize> = (0..2)
        .map(|end| match plan.gateways[end] {
            true => {
                let mut config = plan.config.clone();
                config.seed ^= end as u64;
                world.add_node(
                    format!("gw{}", end + 1),
                    Kind::Gateway(Box::new(GatewayNode::new(config, Some(Duration::ZERO)))),
                )
            }
            false => world.add_node(format!("r{}", end + 1), Kind::Router),
        })
        .collect();
    let lan = || ChannelConfig { delay: LAN_DELAY, ..ChannelConfig::default() };
    let honest = [CLIENT, SERVER].map(|n| {
        let host = LinuxHost::new(n, plan.linux.clone(), play.clone(), plan.seed);
        (n, world.add_node(format!("host{n}"), Kind::Host(n, Box::new(host))))
    });
    let mut ports = Vec::new();
    for (end, (n, node)) in honest.iter().enumerate() {
        let (port, _) = world.link(ends[end], *node, MTU_BYTES, lan(), lan());
        ports.push((*n, end, port));
    }
    let hard = ChannelConfig {
        rate_bps: Some(plan.link.rate_bps),
        delay: plan.link.delay,
        queue_limit_bytes: Some(queue_bytes(plan)),
        xcp: (plan.link.xcp == Some(true)).then(|| XcpRouter {
            // Every other one has queues of their own for what liars say and what they do not.
            weights: plan.seed.is_multiple_of(2).then(Weights::default),
            ..XcpRouter::default()
        }),
        xcp_harm: plan.link.harm,
        ..ChannelConfig::default()
    };
    let (port_a, port_b) = world.link(ends[0], ends[1], MTU_BYTES, hard.clone(), hard);
    let link = [(ends[0], port_a), (ends[1], port_b)];
    for (node, port) in link {
        world.set_meter(node, port);
    }
    for (n, place, host) in attackers {
        if n != SPOOFER {
            addresses(n).into_iter().for_each(|a| world.observer.hostile.add_liar(a));
        }
        let node = world.add_node(format!("host{n}"), Kind::Host(n, host));
        let end = usize::from(place == Place::Servers);
        let (port, _) = world.link(ends[end], node, MTU_BYTES, lan(), lan());
        ports.push((n, end, port));
        for other in 0..=SPOOFER {
            world.set_route(node, other, 0);
        }
    }
    for (_, node) in honest {
        (0..=SPOOFER).for_each(|other| world.set_route(node, other, 0));
    }
    for (n, end, port) in &ports {
        world.set_route(ends[*end], *n, *port);
        world.set_route(ends[1 - *end], *n, link[1 - *end].1);
    }
    let gateways: Vec<usize> = (0..2).filter(|end| plan.gateways[*end]).map(|end| ends[end]).collect();
    for end in 0..2 {
        if let Some(g) = world.gateway(ends[end]) {
            let mut all: Vec<usize> = ports.iter().filter(|p| p.1 == end).map(|p| p.2).collect();
            all.push(link[end].1);
            all.sort_unstable();
            g.config.interfaces =
                all.into_iter().map(|port| interface(port, plan, port == link[end].1)).collect();
        }
    }
    if let Some((at, lasts, seen)) = plan.link.outage {
        outage(&mut world, link, at, lasts, seen);
    }
    Bed { world, play, link, gateways }
}

fn attackers(plan: &HostilePlan) -> Vec<Attacker> {
    let mut all: Vec<Attacker> = Vec::new();
    for (n, place) in LIARS.into_iter().zip([Place::Clients, Place::Servers, Place::Yard]) {
        if plan.calls.iter().any(|c| c.host == n || c.to.0 == n) {
            all.push((n, place, Box::new(Liar::new(n, &plan.calls, plan.seed))));
        }
    }
    if let Some(spoof) = plan.spoof {
        let victims = plan.honest.iter().enumerate().map(|(n, t)| {
            [(address(CLIENT, t.v6), CLIENT_PORT + n as u16), (address(SERVER, t.v6), SERVER_PORT)]
        });
        let spoofer = Spoofer::new(
            spoof,
            victims.collect(),
            plan.config.limits.relay_bytes,
            plan.link.delay * 2,
            plan.seed,
        );
        all.push((SPOOFER, spoof.place, Box::new(spoofer)));
    }
    all
}

/// A queue as routers have it: what the path holds, and some packets at least.
fn queue_bytes(plan: &HostilePlan) -> usize {
    let product = plan.link.rate_bps as f64 / 8.0 * plan.link.delay.as_secs_f64() * 2.0;
    (product as usize).max(64 << 10) + plan.link.queue_more_bytes
}

fn interface(port: usize, plan: &HostilePlan, is_link: bool) -> Interface {
    let link = (is_link && plan.link.declared != Declared::No).then(|| {
        let rate_bps = (plan.link.declared == Declared::WithRate).then_some(plan.link.rate_bps);
        let kind = match rate_bps {
            _ if plan.link.xcp.is_some() => cc::Kind::Xcp,
            Some(_) => cc::Kind::FixedRate,
            None => cc::Kind::Bbr,
        };
        Link {
            name: "hard".into(),
            rate_bps,
            rtt: Some(plan.link.delay * 2),
            reconfigures: None,
            overhead_bytes: 0,
            rate_in_bps: None,
            oversize: Default::default(),
            is_half_duplex: false,
            is_xcp_router: false,
            xcp_weights: Default::default(),
            weights: None,
            explicit: Default::default(),
            xcp_context: XcpContext::default(),
            xcp_shim: plan.link.xcp_in_shim.then_some(SHIM_PROTOCOL),
            leg: LegConfig { cc: kind, ..LegConfig::default() },
            estimate_rate: rate_bps.is_none(),
            rate_max_bps: None,
            corrects_rate: true,
            is_metered: false,
            byte_budget: None,
            action: None,
            ack_filter: AckFilter::On,
            copies: Copies::Auto,
        }
    });
    Interface { id: IfaceId(port as u16), name: format!("if{port}"), domain: 0, addresses: Vec::new(), link }
}

fn outage(world: &mut World, link: [(usize, usize); 2], at: Duration, lasts: Duration, seen: bool) {
    let from = Instant::ZERO + at;
    let mut faults = Vec::new();
    for (node, port) in link {
        let config = world.channel_config(node, port);
        let dead = ChannelConfig { loss: 1.0, ..config.clone() };
        faults.push((from, Fault::Channel { node, port, config: Box::new(dead) }));
        faults.push((from + lasts, Fault::Channel { node, port, config: Box::new(config) }));
        if seen {
            faults.push((from, Fault::LinkState { node, port, up: false }));
            faults.push((from + lasts, Fault::LinkState { node, port, up: true }));
        }
    }
    world.add_faults(faults);
}
