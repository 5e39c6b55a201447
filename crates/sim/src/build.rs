//! Makes a network of a plan.

use std::sync::Arc;

use farlink_channel::{ChannelConfig, XcpRouter};
use farlink_gateway::IfaceId;
use farlink_gateway::cc;
use farlink_gateway::config::{
    AckFilter, Action, Copies, Interface, LegConfig, Link, Notice, Oversize, Pinned, SendAhead, XcpContext,
};
use farlink_wire::shim::SHIM_PROTOCOL;
use farlink_wire::{Duration, Instant};

use crate::changing;
use crate::fault::Fault;
use crate::host::SmolHost;
use crate::node::{GatewayNode, Kind};
use crate::observer::Allowances;
use crate::plan::{FaultPlan, Gap, GatewayPlan, SimPlan, Way};
use crate::rng::Rng;
use crate::talker::{Talk, Talker};
use crate::trace::Trace;
use crate::tracker::Tracker;
use crate::world::World;

/// A drain that takes longer than this is cut short. Longer than any reader of a plan stops.
const DRAIN_LIMIT: Duration = Duration::from_secs(1800);
/// MTU of links that are not gaps.
const ACCESS_MTU_BYTES: u32 = 9000;

/// Node and port numbers of one built plan.
struct Chain {
    /// The router before each gap, and the router behind it.
    gap_ends: Vec<(usize, usize)>,
    /// Ports of the gap at these two.
    gap_ports: Vec<(usize, usize)>,
    gateways: Vec<usize>,
    /// Of each gateway: the ports at the routers beside it, to it and round it. (before, behind) of
    /// (to, round).
    beside: Vec<[(usize, usize); 2]>,
}

/// A world ready to run.
#[must_use]
pub fn build(plan: &SimPlan, trace: Trace) -> World {
    let pinned = plan.gateways.iter().any(|g| g.config.pinned != Pinned::Never);
    let relay = (0..plan.gateways.len()).map(|g| changing::relay_bytes_most(plan, g)).max().unwrap_or(0);
    let between = &plan.gaps[1..plan.gaps.len().max(2) - 1];
    let steady = plan.faults.iter().all(|f| matches!(f, FaultPlan::Outage { .. }))
        && plan.gaps.iter().all(|gap| gap.interference.is_none());
    let dormant = plan.gateways.iter().map(|g| g.config.timers.dormant_after).min();
    let allowed = Allowances {
        abandonment: false,
        pinned,
        // A host's own window of the handshake was promised before the gateway had a say.
        relay_bytes: relay.max(65_535),
        gateways: plan.gateways.len() as u64,
        gateways_in_touch: (steady && between.iter().all(|g| g.declared)).then_some(plan.gateways.len()),
        dormant_after: dormant.unwrap_or_default(),
        raised_mss: None,
        large: plan.changing.is_large(&plan.faults)
            || plan.gaps.iter().any(|gap| oversize(gap, plan.gateways.len()) != Oversize::Auto),
    };
    let mut world = World::new(plan.seed, allowed, trace);
    let mut rng = Rng::new(plan.seed, "hosts' ISNs");
    let connections = Arc::new(plan.connections.clone());
    let hosts: Vec<usize> = plan
        .hosts
        .iter()
        .enumerate()
        .map(|(n, h)| {
            let host = SmolHost::new(n, h.config.clone(), connections.clone(), rng.bits());
            world.add_node(format!("host{n}"), Kind::Host(n, Box::new(host)))
        })
        .collect();
    let chain = build_chain(&mut world, plan);
    let mut ends: Vec<End> = std::iter::zip(&plan.hosts, &hosts)
        .map(|(h, node)| End { node: *node, end: h.end, delay: h.delay })
        .collect();
    ends.extend(talkers(&mut world, plan));
    route(&mut world, plan, &ends, &chain);
    let faults = faults(&world, plan, &chain);
    world.add_faults(faults);
    if let Some(jump) = plan.changing.jump {
        world.jump(&plan.connections[jump.connection], jump);
    }
    world
}

/// A host: its node, the end of the chain that it is at, and its delay.
struct End {
    node: usize,
    end: usize,
    delay: Duration,
}

/// Who sends what is no TCP, and who gets it, one at each end. Their numbers follow those of the
/// others.
fn talkers(world: &mut World, plan: &SimPlan) -> Vec<End> {
    let Some(talk) = plan.changing.talk else { return Vec::new() };
    let first = plan.hosts.len();
    let silent = Talk { lasts: Duration::ZERO, ..talk };
    let back = plan.seed.is_multiple_of(3);
    let both = [(0, first, first + 1, !back), (1, first + 1, first, back)];
    let add = |(end, number, to, talks): (usize, usize, usize, bool)| {
        let talker = Talker::new(number, to, if talks { talk } else { silent }, plan.seed);
        let node = world.add_node(format!("talker{end}"), Kind::Host(number, Box::new(talker)));
        End { node, end, delay: Duration::from_micros(50) }
    };
    both.map(add).into()
}

fn wire(delay: Duration) -> ChannelConfig {
    ChannelConfig { delay, ..ChannelConfig::default() }
}

/// Behind the last gap, where one gateway stands before it, a router tracks connections in one of
/// four worlds: taken from the delay, too. It drops what is beyond a window, or resets.
fn behind(plan: &SimPlan, gap: usize) -> Kind {
    let turn = plan.gaps.get(gap).map_or(0, |gap| gap.there.delay.as_nanos() / 17_000 % 8);
    let is_there = plan.gateways.len() == 1 && gap + 1 == plan.gaps.len() && turn < 2;
    // What goes round the gateway it cannot keep back: a reset would end the connection.
    // And an IACK of the paper's lies beyond every window (DEVIATIONS).
    let is_iack = |g: &GatewayPlan| g.config.default_action == Action::Custody(Notice::Iack);
    let resets = turn == 1
        && !plan.faults.iter().any(|f| matches!(f, FaultPlan::Bypass { .. }))
        && !plan.gateways.iter().any(is_iack);
    if is_there { Kind::Other(Box::new(Tracker::new(resets))) } else { Kind::Router }
}

fn build_chain(world: &mut World, plan: &SimPlan) -> Chain {
    let mut chain =
        Chain { gap_ends: Vec::new(), gap_ports: Vec::new(), gateways: Vec::new(), beside: Vec::new() };
    for (i, gap) in plan.gaps.iter().enumerate() {
        let p = world.add_node(format!("p{i}"), Kind::Router);
        let q = world.add_node(format!("q{i}"), behind(plan, i));
        chain.gap_ends.push((p, q));
        chain.gap_ports.push(world.link(
            p,
            q,
            gap.mtu_bytes,
            controlled(gap, &gap.there),
            controlled(gap, &gap.back),
        ));
    }
    for ((p, _), (port, _), gap) in
        std::iter::zip(&chain.gap_ends, &chain.gap_ports).zip(&plan.gaps).map(|((a, b), gap)| (a, b, gap))
    {
        if let Some((does, towards)) = gap.interference {
            world.interfere(*p, *port, does, towards);
        }
    }
    for (i, g) in plan.gateways.iter().enumerate() {
        let mut config = g.config.clone();
        config.interfaces = [&plan.gaps[i], &plan.gaps[i + 1]]
            .into_iter()
            .enumerate()
            .map(|(port, gap)| {
                let out = if port == 0 { &gap.back } else { &gap.there };
                let mut interface = interface(port, gap, out, oversize(gap, plan.gateways.len()));
                change_link(&mut interface, plan, i + port, out);
                interface
            })
            .collect();
        config.send_ahead = send_ahead(&plan.gaps[i]);
        let whole = (0..2).filter(|port| plan.changing.talk.is_some() && plan.gaps[i + port].declared);
        let gateway = GatewayNode::new(config, g.merge).with_whole(whole.collect(), Vec::new());
        let node = world.add_node(format!("gw{}", i + 1), Kind::Gateway(Box::new(gateway)));
        if let Some(notice) = plan.changing.notices.get(i).copied().flatten() {
            world.observer.expect_promises_or_none(node, notice);
        } else if let Action::Custody(notice) = g.config.default_action {
            world.observer.expect_no_promise(node, notice);
        }
        let before = chain.gap_ends[i].1;
        let behind = chain.gap_ends[i + 1].0;
        let short = wire(Duration::from_micros(10));
        // A gateway's port towards a gap has the gap's MTU: it is the gateway that has the link.
        let (to_before, _) = world.link(before, node, plan.gaps[i].mtu_bytes, short.clone(), short.clone());
        let (_, to_behind) = world.link(node, behind, plan.gaps[i + 1].mtu_bytes, short.clone(), short);
        let (round_before, round_behind) =
            world.link(before, behind, ACCESS_MTU_BYTES, g.bypass.clone(), g.bypass.clone());
        chain.gateways.push(node);
        chain.beside.push([(to_before, round_before), (to_behind, round_behind)]);
    }
    chain
}

/// What mode `changing` says of a link.
fn change_link(interface: &mut Interface, plan: &SimPlan, gap: usize, out: &ChannelConfig) {
    let Some(link) = &mut interface.link else { return };
    if let Some(part) = plan.changing.rate_in.get(gap).copied().flatten() {
        let bps = out.rate_bps.unwrap_or(20_000_000) as f64 * part;
        link.rate_in_bps = Some((bps as u64).max(2_400));
    }
    if let Some(bytes) = plan.changing.oversize.get(gap).copied().flatten() {
        link.oversize = Oversize::Bytes(bytes);
    }
    if plan.changing.jump.is_some() {
        link.oversize = Oversize::Off;
    }
}

fn interface(port: usize, gap: &Gap, out: &ChannelConfig, oversize: Oversize) -> Interface {
    let link = gap.declared.then(|| {
        let rate_bps = out.rate_bps.filter(|_| gap.rate_known);
        let kind = if rate_bps.is_some() { cc::Kind::FixedRate } else { controller(gap) };
        // Where BBR has its turn, the gateways find the rate out.
        let estimate_rate = kind == cc::Kind::Bbr;
        Link {
            name: format!("link{port}"),
            rate_bps,
            rtt: Some(gap.there.delay + gap.back.delay),
            reconfigures: None,
            overhead_bytes: 0,
            rate_in_bps: None,
            oversize,
            is_half_duplex: false,
            is_xcp_router: false,
            xcp_weights: Default::default(),
            weights: None,
            explicit: Default::default(),
            xcp_context: XcpContext::default(),
            xcp_shim: xcp_shim(gap),
            leg: LegConfig { cc: kind, ..LegConfig::default() },
            estimate_rate,
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

/// Small windows of hosts are not waited for here, each third time, and each third time where one
/// has shown what it takes: taken from the delay, too.
fn send_ahead(gap: &Gap) -> SendAhead {
    match gap.there.delay.as_nanos() / 11_000 % 3 {
        0 => SendAhead::On,
        1 => SendAhead::Auto,
        _ => SendAhead::Off,
    }
}

/// Segments into it are larger than a packet, each second time. Not before another gateway: what it
/// puts together of fragments the observer does not see.
fn oversize(gap: &Gap, gateways: usize) -> Oversize {
    let turn = gap.there.delay.as_nanos() / 13_000;
    if turn.is_multiple_of(2) && gateways == 1 {
        Oversize::Bytes(3_000 + (turn % 61) as u32 * 1_000)
    } else {
        Oversize::Auto
    }
}

/// Each controller that finds its own window has its turn. Taken from the delay, which is drawn,
/// not drawn itself: seeds keep their meaning.
fn controller(gap: &Gap) -> cc::Kind {
    if xcp_turn(gap).is_some() {
        return cc::Kind::Xcp;
    }
    let others = [cc::Kind::FixedRate, cc::Kind::Xcp];
    let kinds: Vec<cc::Kind> = cc::Kind::ALL.iter().copied().filter(|k| !others.contains(k)).collect();
    let turn = gap.there.delay.as_nanos() / 1_000 % kinds.len() as u128;
    kinds.get(turn as usize).copied().unwrap_or_default()
}

/// XCP has its turn here, and whether the queues before the gap are those of its routers.
fn xcp_turn(gap: &Gap) -> Option<bool> {
    const EACH: u128 = 9;
    let turn = gap.there.delay.as_nanos() / 7_000;
    turn.is_multiple_of(EACH).then_some(!(turn / EACH).is_multiple_of(3))
}

/// Each second time it is said in XCP's own header.
fn xcp_shim(gap: &Gap) -> Option<u8> {
    let is_in_shim = (gap.there.delay.as_nanos() / 63_000) % 2 == 1;
    xcp_turn(gap).filter(|_| is_in_shim).map(|_| SHIM_PROTOCOL)
}

/// A direction of a gap, with the router that belongs to its gateways' controller.
fn controlled(gap: &Gap, channel: &ChannelConfig) -> ChannelConfig {
    let has_router = gap.declared && !gap.rate_known && xcp_turn(gap) == Some(true);
    let xcp = has_router.then(XcpRouter::default);
    ChannelConfig { xcp, ..channel.clone() }
}

fn route(world: &mut World, plan: &SimPlan, hosts: &[End], chain: &Chain) {
    let last = plan.gaps.len() - 1;
    for (n, h) in hosts.iter().enumerate() {
        let router = if h.end == 0 { chain.gap_ends[0].0 } else { chain.gap_ends[last].1 };
        let (_, port) = world.link(h.node, router, ACCESS_MTU_BYTES, wire(h.delay), wire(h.delay));
        world.set_route(router, n, port);
        for other in 0..hosts.len() {
            world.set_route(h.node, other, 0);
        }
        // Towards the far end (1): through the gap, then to the gateway; and the reverse.
        for (i, (p, q)) in chain.gap_ends.iter().enumerate() {
            let (gap_p, gap_q) = chain.gap_ports[i];
            if h.end == 1 {
                world.set_route(*p, n, gap_p);
                if i < last {
                    world.set_route(*q, n, chain.beside[i][0].0);
                }
            } else {
                world.set_route(*q, n, gap_q);
                if i > 0 {
                    world.set_route(*p, n, chain.beside[i - 1][1].0);
                }
            }
        }
        for g in &chain.gateways {
            world.set_route(*g, n, h.end);
        }
    }
}

fn faults(world: &World, plan: &SimPlan, chain: &Chain) -> Vec<(Instant, Fault)> {
    let mut out = Vec::new();
    for f in &plan.faults {
        match *f {
            FaultPlan::Bypass { gateway, way, at, lasts } => {
                let [before, behind] = chain.beside[gateway];
                let sides = [
                    (Way::There, chain.gap_ends[gateway].1, before, 1),
                    (Way::Back, chain.gap_ends[gateway + 1].0, behind, 0),
                ];
                for (which, node, (to, round), end) in sides {
                    if way != which && way != Way::Both {
                        continue;
                    }
                    for host in (0..plan.hosts.len()).filter(|h| plan.hosts[*h].end == end) {
                        out.push((at, Fault::Route { node, host, port: round }));
                        out.push((at + lasts, Fault::Route { node, host, port: to }));
                    }
                }
            }
            FaultPlan::Outage { gap, way, at, lasts, seen } => {
                let ((p, q), (port_p, port_q)) = (chain.gap_ends[gap], chain.gap_ports[gap]);
                for (which, node, port) in [(Way::There, p, port_p), (Way::Back, q, port_q)] {
                    if way != which && way != Way::Both {
                        continue;
                    }
                    let config = world.channel_config(node, port);
                    let dead = ChannelConfig { loss: 1.0, ..config.clone() };
                    out.push((at, Fault::Channel { node, port, config: Box::new(dead) }));
                    out.push((at + lasts, Fault::Channel { node, port, config: Box::new(config) }));
                }
                if seen {
                    let beside = [gap.checked_sub(1).map(|g| (g, 1)), Some((gap, 0))];
                    for (g, port) in beside.into_iter().flatten() {
                        let Some(node) = chain.gateways.get(g).copied() else { continue };
                        out.push((at, Fault::LinkState { node, port, up: false }));
                        out.push((at + lasts, Fault::LinkState { node, port, up: true }));
                    }
                }
            }
            FaultPlan::Drain { gateway, at, restart_after } => {
                let node = chain.gateways[gateway];
                out.push((at, Fault::Drain { node, limit: DRAIN_LIMIT, restart_after }));
            }
            FaultPlan::Kill { gateway, at, restart_after } => {
                let node = chain.gateways[gateway];
                out.push((at, Fault::Kill { node, restart_after }));
            }
            FaultPlan::Reload { gateway, at, ref changes } => {
                let node = chain.gateways[gateway];
                out.push((at, Fault::Reload { node, changes: changes.clone() }));
            }
            FaultPlan::Standstill { gateway, at, lasts, keeps } => {
                let node = chain.gateways[gateway];
                out.push((at, Fault::Standstill { node, lasts, keeps }));
            }
        }
    }
    out
}
