//! What a seed means: topology, hosts, traffic, faults. Plain data; [`crate::build`] makes a
//! network of it.
//!
//! All topologies are chains: `hosts - P0 === Q0 - G1 - P1 === Q1 - G2 - ... - Gn - Pn === Qn -
//! hosts`. P and Q are plain routers; `===` are the gaps, good or bad, and the only places where
//! packets are harmed. Each gateway has a way round it, from the router before it to the router
//! behind it.

use farlink_channel::{ChannelConfig, GilbertElliott};
use farlink_gateway::Config;
use farlink_gateway::config::{Action, FlowControl, Notice, Pinned};
use farlink_wire::{Duration, Instant};

use crate::change::Change;
use crate::changing::{self, Changing};
use crate::interference::{Interference, Towards};
use crate::rng::Rng;
use crate::traffic::{Connection, HostConfig};

/// The part of the seeds in which all gateways have the policy `automatic`.
const AUTOMATIC_SHARE: f64 = 0.25;
/// The part of the seeds in which gateways may make flows depend on them, over a path that such
/// flows would not fill otherwise.
const PINNED_SHARE: f64 = 0.2;
/// The part of the seeds in which a box stands on the way.
const BOX_SHARE: f64 = 0.25;
/// In mode `custody`: the part of the other gateways that promise nothing, too.
const CUSTODY_SHARE: f64 = 0.7;

/// What kind of trouble a run is to have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Everything.
    Mixed,
    /// Routes that move away from gateways and back during transfers, on paths that are otherwise
    /// good.
    RouteFlap,
    /// No faults and no loss.
    Clean,
    /// Everything, and gateways that promise nothing: some of them, or all. Links go away often.
    Custody,
    /// Hosts that lie, and senders in others' names, beside honest connections: runs of their own,
    /// [`crate::hostile`].
    Hostile,
    /// The trouble of one of the first four, and beside it configurations, actions, clocks and
    /// sequence numbers that change ([`crate::changing`]).
    Changing,
    /// One connection that carries more than 2^31 bytes, over a fast path and with moving routes.
    Long,
}

impl Mode {
    /// The modes of a [`SimPlan`] whose runs are short, and that others have their trouble from.
    pub const ALL: [Self; 4] = [Self::Mixed, Self::RouteFlap, Self::Clean, Self::Custody];
    /// All others.
    pub const OTHERS: [Self; 3] = [Self::Hostile, Self::Changing, Self::Long];

    /// The names of all of them.
    #[must_use]
    pub fn names() -> String {
        Self::ALL.iter().chain(&Self::OTHERS).map(|mode| mode.name()).collect::<Vec<_>>().join(", ")
    }

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Mixed => "mixed",
            Self::RouteFlap => "route-flap",
            Self::Clean => "clean",
            Self::Custody => "custody",
            Self::Hostile => "hostile",
            Self::Changing => "changing",
            Self::Long => "long",
        }
    }

    /// Anything may go wrong.
    pub(crate) fn is_troubled(self) -> bool {
        matches!(self, Self::Mixed | Self::Custody)
    }
}

impl std::str::FromStr for Mode {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        let all = Self::ALL.into_iter().chain(Self::OTHERS);
        all.into_iter()
            .find(|m| m.name() == s)
            .ok_or_else(|| format!("unknown mode {s:?}; known are {}", Self::names()))
    }
}

/// A host and the end of the chain that it is at.
#[derive(Clone, Debug)]
pub struct HostPlan {
    /// Its stack.
    pub config: HostConfig,
    /// At the end before the first gateway (0) or behind the last (1).
    pub end: usize,
    /// One-way delay of its access link.
    pub delay: Duration,
}

/// A stretch of the path.
#[derive(Clone, Debug)]
pub struct Gap {
    /// Towards the far end.
    pub there: ChannelConfig,
    /// And back.
    pub back: ChannelConfig,
    /// MTU in bytes.
    pub mtu_bytes: u32,
    /// The gateways beside it know it as a declared link.
    pub declared: bool,
    /// They know its rate, too.
    pub rate_known: bool,
    /// What a box on it does.
    pub interference: Option<(Interference, Towards)>,
}

/// A gateway.
#[derive(Clone, Debug)]
pub struct GatewayPlan {
    /// Its configuration, but for the interfaces.
    pub config: Config,
    /// Receive offload: how long packets wait for their neighbours.
    pub merge: Option<Duration>,
    /// The way round it, each direction.
    pub bypass: ChannelConfig,
}

/// Which way a route change goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// Packets from the first end.
    There,
    /// Packets from the second end.
    Back,
    /// All.
    Both,
}

/// A fault, by the numbers of gateways and gaps.
#[derive(Clone, Debug)]
pub enum FaultPlan {
    /// Packets pass round a gateway for a time.
    Bypass {
        /// Gateway, from 0.
        gateway: usize,
        /// Which packets.
        way: Way,
        /// From when.
        at: Instant,
        /// For how long.
        lasts: Duration,
    },
    /// A gap loses everything for a time.
    Outage {
        /// The gap.
        gap: usize,
        /// Which direction.
        way: Way,
        /// From when.
        at: Instant,
        /// For how long.
        lasts: Duration,
        /// The gateways beside it see the carrier go.
        seen: bool,
    },
    /// A gateway drains, and another one starts later.
    Drain {
        /// Gateway, from 0.
        gateway: usize,
        /// When.
        at: Instant,
        /// Until the next one starts.
        restart_after: Duration,
    },
    /// A gateway is killed, and another one starts later.
    Kill {
        /// Gateway, from 0.
        gateway: usize,
        /// When.
        at: Instant,
        /// Until the next one starts.
        restart_after: Duration,
    },
    /// A gateway is given another configuration.
    Reload {
        /// Gateway, from 0.
        gateway: usize,
        /// When.
        at: Instant,
        /// What that says otherwise.
        changes: Vec<Change>,
    },
    /// A gateway's process is stopped, or its machine: it reads nothing, and no timer runs.
    Standstill {
        /// Gateway, from 0.
        gateway: usize,
        /// From when.
        at: Instant,
        /// For how long.
        lasts: Duration,
        /// So many packets wait for it; the others are lost.
        keeps: usize,
    },
}

/// A whole run.
#[derive(Clone, Debug)]
pub struct SimPlan {
    /// The seed it was made from.
    pub seed: u64,
    /// The mode it was made for.
    pub mode: Mode,
    /// The policy that was asked for at all gateways.
    pub policy: Option<FlowControl>,
    /// The hosts.
    pub hosts: Vec<HostPlan>,
    /// The gaps: one more than gateways.
    pub gaps: Vec<Gap>,
    /// The gateways.
    pub gateways: Vec<GatewayPlan>,
    /// The traffic.
    pub connections: Vec<Connection>,
    /// The faults.
    pub faults: Vec<FaultPlan>,
    /// What mode `changing` has beside that.
    pub changing: Changing,
}

fn lan(rng: &mut Rng) -> ChannelConfig {
    ChannelConfig { delay: Duration::from_micros(rng.range(20, 2_000)), ..ChannelConfig::default() }
}

/// Trouble that a packet may meet.
fn impair(rng: &mut Rng, c: &mut ChannelConfig) {
    if rng.chance(0.5) {
        c.loss = [0.001, 0.01, 0.03, 0.08][rng.range(0, 4) as usize];
    }
    if rng.chance(0.2) {
        c.gilbert_elliott =
            Some(GilbertElliott { p_good_to_bad: 0.005, p_bad_to_good: 0.2, loss_good: 0.0, loss_bad: 0.7 });
    }
    if rng.chance(0.3) {
        c.reorder = rng.range(1, 100) as f64 / 1000.0;
        c.reorder_extra = rng.millis(1, 100);
    }
    if rng.chance(0.3) {
        c.duplicate = rng.range(1, 50) as f64 / 1000.0;
    }
    if rng.chance(0.3) {
        c.corrupt = rng.range(1, 20) as f64 / 1000.0;
    }
    if rng.chance(0.3) {
        c.jitter = rng.millis(0, 30);
        c.jitter_keeps_order = rng.chance(0.5);
    }
}

fn gap(rng: &mut Rng, mode: Mode, hard: bool) -> Gap {
    let mut there = lan(rng);
    if hard {
        there.delay =
            [rng.millis(1, 20), rng.millis(20, 100), rng.millis(200, 300)][rng.range(0, 3) as usize];
        if rng.chance(0.7) {
            there.rate_bps = Some(rng.log_range(500_000, 50_000_000));
            there.queue_limit_bytes = Some(rng.log_range(20_000, 500_000) as usize);
        }
    }
    let mut back = there.clone();
    if hard && rng.chance(0.3) {
        back.rate_bps = back.rate_bps.map(|r| (r / rng.range(1, 20)).max(100_000));
    }
    if mode.is_troubled() && rng.chance(if hard { 0.7 } else { 0.15 }) {
        impair(rng, &mut there);
        if rng.chance(0.6) {
            impair(rng, &mut back);
        }
    }
    let mtu_bytes = if mode.is_troubled() && rng.chance(0.08) { rng.range(1280, 1500) as u32 } else { 9000 };
    Gap {
        there,
        back,
        mtu_bytes,
        declared: hard && rng.chance(0.8),
        rate_known: rng.chance(0.6),
        interference: None,
    }
}

fn host(rng: &mut Rng, end: usize) -> HostPlan {
    let mtu_bytes = match rng.range(0, 10) {
        0 => 576,
        1 => 1280 + rng.range(0, 220) as u16,
        2 => 9000,
        _ => 1500,
    };
    let config = HostConfig {
        mtu_bytes,
        timestamps: rng.chance(0.7),
        tsval_start: rng.bits() as u32,
        tsval_tick: Duration::from_millis(rng.pick(&[1, 1, 4, 10, 100])),
        sack: rng.chance(0.8),
        window_scaling: rng.chance(0.8),
        ttl: rng.pick(&[64, 64, 128, 255]),
        dscp: rng.pick(&[0, 0, 0, 10, 46]),
        flow_label: rng.bits() as u32 & 0xf_ffff,
        isn_clock: rng.chance(0.7),
    };
    HostPlan { config, end, delay: Duration::from_micros(rng.range(10, 1_500)) }
}

impl SimPlan {
    /// The run that `seed` stands for in `mode`: with this policy of flow control at all gateways,
    /// or each with its own.
    #[must_use]
    pub fn from_seed(seed: u64, mode: Mode, policy: Option<FlowControl>) -> Self {
        if mode == Mode::Long {
            return crate::long::plan(seed, policy);
        }
        let (asked, mode) = (mode, Changing::trouble(seed, mode));
        let mut rng = Rng::new(seed, "topology");
        let least = u64::from(matches!(mode, Mode::RouteFlap | Mode::Custody) || asked == Mode::Changing);
        let gateways = rng.pick(&[0, 1, 1, 2, 2, 2, 2, 3]).max(least) as usize;
        let hard = |rng: &mut Rng, i: usize| match gateways {
            0 => true,
            1 => i == 1 || rng.chance(0.3),
            _ => (1..gateways).contains(&i) || rng.chance(0.1),
        };
        let mut gaps: Vec<_> = (0..=gateways)
            .map(|i| {
                let hard = hard(&mut rng, i);
                gap(&mut rng, mode, hard)
            })
            .collect();
        let mut gateways: Vec<_> = (0..gateways).map(|_| gateway(&mut rng, mode)).collect();
        // A source of its own: what else a seed means does not change with it.
        let mixed = Rng::new(seed, "policy").chance(AUTOMATIC_SHARE).then_some(FlowControl::Automatic);
        if let Some(policy) = policy.or(mixed) {
            gateways.iter_mut().for_each(|g| g.config.flow_control = policy);
        }
        if mode == Mode::Custody {
            let mut notices = Rng::new(seed, "notices");
            promise_nothing(&mut Rng::new(seed, "custody"), &mut notices, &mut gateways);
        }
        let mut rng = Rng::new(seed, "hosts");
        let mut hosts = vec![host(&mut rng, 0), host(&mut rng, 1)];
        for end in [0, 1] {
            if rng.chance(0.2) {
                hosts.push(host(&mut rng, end));
            }
        }
        // IPv6 has a least MTU; small hosts speak IPv4 only, which the traffic plan heeds.
        let mut rng = Rng::new(seed, "traffic");
        let mut connections = crate::workload::connections(&mut rng, mode, &hosts);
        let mut rng = Rng::new(seed, "pinned");
        if !gateways.is_empty() && rng.chance(PINNED_SHARE) {
            pin(&mut rng, &mut gateways, &mut hosts, &mut gaps, &mut connections);
        }
        let mut rng = Rng::new(seed, "boxes");
        if mode.is_troubled() && rng.chance(BOX_SHARE) {
            let gap = rng.range(0, gaps.len() as u64) as usize;
            // Of the others the observer would think that a gateway has changed it.
            let does = rng.pick(&Interference::SAYS_THE_SAME);
            gaps[gap].interference = Some((does, rng.pick(&Towards::ALL)));
        }
        let mut rng = Rng::new(seed, "faults");
        let faults = crate::workload::faults(&mut rng, mode, gateways.len());
        let changing = Changing::default();
        let mut plan =
            Self { seed, mode: asked, policy, hosts, gaps, gateways, connections, faults, changing };
        if asked == Mode::Changing {
            changing::add(&mut plan, mode);
        }
        plan
    }

    /// The mode that its traffic and its faults are those of.
    #[must_use]
    pub fn trouble(&self) -> Mode {
        self.changing.trouble.unwrap_or(self.mode)
    }
}

/// One gateway at least, and most of the others, are in custody mode. Each tells its sources of
/// outages in its own way.
fn promise_nothing(rng: &mut Rng, notices: &mut Rng, gateways: &mut [GatewayPlan]) {
    let one = rng.range(0, gateways.len().max(1) as u64) as usize;
    for (n, gateway) in gateways.iter_mut().enumerate() {
        if n == one || rng.chance(CUSTODY_SHARE) {
            gateway.config.default_action = Action::Custody(notices.pick(&Notice::ALL));
        }
    }
}

/// Hosts that do not scale windows, over a declared link whose bandwidth-delay product is several
/// times what they can show: what gateways hold for them beyond it depends on the gateways (`pinned
/// = "auto"`).
fn pin(
    rng: &mut Rng,
    gateways: &mut [GatewayPlan],
    hosts: &mut [HostPlan],
    gaps: &mut [Gap],
    connections: &mut [Connection],
) {
    gateways.iter_mut().for_each(|g| g.config.pinned = Pinned::Auto);
    hosts.iter_mut().for_each(|h| h.config.window_scaling = false);
    if let Some(gap) = gaps.get_mut(1) {
        let rate_bps = rng.range(8_000_000, 40_000_000);
        let delay = rng.millis(150, 300);
        for channel in [&mut gap.there, &mut gap.back] {
            channel.delay = delay;
            channel.rate_bps = Some(rate_bps);
            channel.queue_limit_bytes = Some(rng.range(100_000, 1_000_000) as usize);
        }
        gap.declared = true;
    }
    // Enough of it to fill the path, in the direction in which the connection sends more.
    if let Some(connection) = connections.first_mut() {
        connection.uses = 1;
        let most = usize::from(connection.sides[1].send_bytes > connection.sides[0].send_bytes);
        let before = connection.sides[most].send_bytes.max(1);
        let bytes = before.max(rng.range(600_000, 2_000_000));
        // In as many steps as before: who writes a dozen bytes at a time would write for hours.
        let larger = |step: usize| step.saturating_mul(bytes.div_ceil(before) as usize);
        let side = &mut connection.sides[most];
        side.send_bytes = bytes;
        side.write_bytes = larger(side.write_bytes);
        let reader = &mut connection.sides[1 - most];
        reader.read_bytes = larger(reader.read_bytes);
    }
}

fn gateway(rng: &mut Rng, mode: Mode) -> GatewayPlan {
    let mut config = Config { pinned: Pinned::Never, seed: rng.bits(), ..Config::default() };
    if rng.chance(0.3) {
        config.limits.relay_follows_link = false;
        config.limits.relay_bytes = rng.log_range(16 << 10, 4 << 20) as u32;
    }
    if mode.is_troubled() && rng.chance(0.1) {
        config.limits.pool_bytes = rng.range(512 << 10, 4 << 20) as usize;
    }
    if rng.chance(0.3) {
        config.timers.dormant_after = rng.millis(200, 5_000);
    }
    if rng.chance(0.2) {
        config.flow_control = FlowControl::SendWindow;
    }
    if rng.chance(0.3) {
        config.ordinary.cc = farlink_gateway::cc::Kind::NewReno;
    }
    let merge = if rng.chance(0.5) { Some(Duration::from_micros(rng.range(0, 200))) } else { None };
    let mut bypass = lan(rng);
    if rng.chance(0.3) {
        bypass.delay = rng.millis(1, 100);
    }
    GatewayPlan { config, merge, bypass }
}
