//! The network of a cell: `client - gw1 === gw2 - server`, as the laboratory's line.

use std::path::Path;
use std::rc::Rc;

use anyhow::{Context, Result, anyhow, bail};
use farlink_channel::ChannelConfig;
use farlink_gateway::config::Pinned;
use farlink_sim::linux::congestion::Kind;
use farlink_sim::linux::host::{CLIENT, SERVER};
use farlink_sim::linux::transfer::{Outcomes, outcomes};
use farlink_sim::linux::{Direction, LinuxConfig, LinuxHost, Transfer};
use farlink_sim::node::{self, GatewayNode};
use farlink_sim::observer::Allowances;
use farlink_sim::trace::Trace;
use farlink_sim::world::World;
use farlink_wire::{Duration, Instant};

use super::ReadConfig;
use crate::gateway::config_text;
use crate::kinds::transfer::{EARLIER, is_upload};
use crate::link;
use crate::scenario::{Cell, Scenario};
use crate::settings::{Hosts, Settings};
use crate::topology::Topology;

/// One-way delay of the cable between a host and its router, of the order of a veth pair and two kernels.
const CABLE_DELAY: Duration = Duration::from_micros(25);
/// Virtual time after which a cell counts as hung.
const TIME_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
/// Quiet time after the last transfer, for what is still under way.
const SETTLE: Duration = Duration::from_millis(1);

/// The port of each gateway towards its host: the first interface of its configuration file.
const TO_HOST: usize = 0;
/// And towards the link: the second.
pub(super) const TO_LINK: usize = 1;

/// A cell's network, built and perhaps run.
pub(super) struct Network {
    pub(super) world: World,
    /// Node numbers of gw1 and gw2.
    pub(super) gateways: [usize; 2],
    pub(super) transfers: Rc<Vec<Transfer>>,
    pub(super) outcomes: Outcomes,
}

/// Why the simulator has no such cell, in words.
pub(super) fn cannot_run(scenario: &Scenario, cell: &Cell) -> Option<String> {
    let topology = cell.word("topology", &scenario.topology);
    if topology != "line" {
        return Some(format!("topology `{topology}` is not simulated, `line` is"));
    }
    let baseline = cell.word("baseline", "");
    if !baseline.is_empty() {
        return Some(format!("baseline `{baseline}` is a program and not simulated"));
    }
    if cell.settings.link_mtu < cell.settings.mtu {
        return Some("simulated hosts do not discover an MTU: link_mtu is below mtu".into());
    }
    cell.settings.host_cc.parse::<Kind>().err()
}

impl Network {
    pub(super) fn build(cell: &Cell, seed: u64, read_config: ReadConfig<'_>) -> Result<Self> {
        let settings = Settings { seed, ..cell.settings.clone() };
        let topology = Topology::named("line", &settings)?;
        let transfers = Rc::new(transfers(cell, seed));
        let outcomes = outcomes(&transfers);
        let host = |number: usize| -> Result<node::Kind> {
            let config = host_config(&settings)?;
            let host = LinuxHost::new(number, config, transfers.clone(), outcomes.clone(), seed);
            Ok(node::Kind::Host(number, Box::new(host)))
        };
        let routers = [
            router(&topology, "gw1", &settings, read_config)?,
            router(&topology, "gw2", &settings, read_config)?,
        ];
        let mut world = World::new(seed, allowances(&routers), Trace::default());
        let client = world.add_node("client", host(CLIENT)?);
        let server = world.add_node("server", host(SERVER)?);
        let mut gateways = [0; 2];
        for ((gateway, name), kind) in gateways.iter_mut().zip(["gw1", "gw2"]).zip(routers) {
            *gateway = world.add_node(name, kind);
        }
        let [gw1, gw2] = gateways;
        let cable = || ChannelConfig { delay: CABLE_DELAY, ..ChannelConfig::default() };
        world.link(gw1, client, settings.mtu, cable(), cable());
        world.link(gw2, server, settings.mtu, cable(), cable());
        let up = link::channel(&settings, settings.up_bps());
        let down = link::channel(&settings, settings.rate_bps);
        world.link(gw1, gw2, settings.link_mtu, up, down);
        for (gateway, [to_client, to_server]) in
            gateways.into_iter().zip([[TO_HOST, TO_LINK], [TO_LINK, TO_HOST]])
        {
            world.set_route(gateway, CLIENT, to_client);
            world.set_route(gateway, SERVER, to_server);
            world.set_meter(gateway, TO_LINK);
        }
        for node in [client, server] {
            world.set_route(node, CLIENT, 0);
            world.set_route(node, SERVER, 0);
        }
        Ok(Self { world, gateways, transfers, outcomes })
    }

    /// Runs until all transfers are over.
    pub(super) fn run(&mut self) -> Result<()> {
        let finished = self.world.run(SETTLE, Instant::ZERO + TIME_MAX, u64::MAX);
        if let Some(failure) = &self.world.failure {
            bail!("an invariant is broken: {failure}");
        }
        if !finished {
            bail!("nothing happens any more at {:?}, and not all transfers are over", self.world.now());
        }
        Ok(())
    }
}

/// What the observer has to allow these gateways.
fn allowances(routers: &[node::Kind]) -> Allowances {
    let configs = routers.iter().filter_map(|kind| match kind {
        node::Kind::Gateway(g) => Some(&g.config),
        _ => None,
    });
    let mut allowed = Allowances { relay_bytes: 65_535, ..Allowances::default() };
    for config in configs {
        allowed.pinned |= config.pinned != Pinned::Never;
        allowed.relay_bytes = allowed.relay_bytes.max(u64::from(config.limits.relay_bytes));
        allowed.dormant_after = config.timers.dormant_after;
    }
    allowed
}

fn router(
    topology: &Topology,
    name: &str,
    settings: &Settings,
    read_config: ReadConfig<'_>,
) -> Result<node::Kind> {
    let number = topology.index(name)?;
    if !topology.nodes[number].runs_gateway {
        return Ok(node::Kind::Router);
    }
    let text = config_text(topology, number, settings, Path::new("/run/farlink/simulated.sock"))?;
    let mut config = read_config(&text).with_context(|| format!("the configuration of {name}:\n{text}"))?;
    config.seed = settings.seed ^ number as u64;
    // What arrives at one instant is one super-segment, as from a network card with receive offload.
    Ok(node::Kind::Gateway(Box::new(GatewayNode::new(config, Some(Duration::ZERO)))))
}

fn host_config(settings: &Settings) -> Result<LinuxConfig> {
    let congestion: Kind = settings.host_cc.parse().map_err(|e: String| anyhow!(e))?;
    let mut config = match settings.hosts {
        Hosts::Modern => LinuxConfig::modern(congestion),
        Hosts::Legacy => LinuxConfig::legacy(congestion, settings.host_window_bytes),
    };
    if settings.iw > 0 {
        config.initial_window = settings.iw;
    }
    config.mtu_bytes = settings.mtu;
    Ok(config)
}

fn transfers(cell: &Cell, seed: u64) -> Vec<Transfer> {
    let bytes = cell.number("size_bytes", 1_000_000);
    let (direction, verb) =
        if is_upload(cell) { (Direction::Upload, "PUT") } else { (Direction::Download, "GET") };
    let (earlier, flows) = (cell.number(EARLIER, 0), cell.number("flows", 1));
    // Long enough for what goes before to be over, also without help.
    let apart =
        Duration::from_secs_f64(30.0 + 8.0 * 3.0 * bytes as f64 / cell.settings.rate_bps.max(1) as f64);
    let transfer = |flow: u64| Transfer {
        direction,
        bytes,
        request_bytes: format!("{verb} {bytes} {}\n", seed.wrapping_add(flow)).len() as u64,
        start: Duration::from_millis(1) + apart * u32::try_from(flow.min(earlier)).unwrap_or(u32::MAX),
        v6: cell.v6(),
    };
    (0..earlier + flows).map(transfer).collect()
}
