//! What a seed means: a path, honest connections, and who attacks them.

use farlink_channel::XcpHarm;
use farlink_gateway::Config;
use farlink_gateway::cc;
use farlink_gateway::config::{FlowControl, Pinned};
use farlink_wire::Duration;

use super::lies::Lie;
use crate::linux::host::{CLIENT_PORT, SERVER, SERVER_PORT};
use crate::linux::{Direction, LinuxConfig, Step, Transfer, congestion};
use crate::rng::Rng;

/// Number of the lying host on the clients' side; the one at the servers' side has the next, the
/// one on a network of its own beside the first gateway the one after that.
pub const LIARS: [usize; 3] = [2, 3, 4];
/// Number of the host that speaks in others' names.
pub const SPOOFER: usize = 5;
/// Listening ports of lying servers begin here.
pub const LIAR_PORT: u16 = 6000;
/// So many of the declared links have routers that say how fast, or gateways that hope for them.
const XCP_SHARE: f64 = 0.15;
/// Over so many of them liars advertise what the link carries.
const ADVERTS_SHARE: f64 = 0.3;
/// On so many of these somebody changes what is said.
const HARM_SHARE: f64 = 0.5;
const HARMS: [XcpHarm; 6] =
    [XcpHarm::Strip, XcpHarm::More, XcpHarm::Less, XcpHarm::Both, XcpHarm::Replay, XcpHarm::Wild];
/// Attackers fall silent then.
pub const ATTACK_ENDS: Duration = Duration::from_secs(60);

/// Where a host stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// With the clients, before the first gateway.
    Clients,
    /// With the servers, behind the last.
    Servers,
    /// On a network of its own at the first gateway.
    Yard,
}

/// How the gateways know the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Declared {
    /// Not at all.
    No,
    /// With its rate.
    WithRate,
    /// Its rate is to be found out.
    WithoutRate,
}

/// The hard link, the same both ways.
#[derive(Clone, Debug)]
pub struct HardLink {
    /// Bits per second.
    pub rate_bps: u64,
    /// One way.
    pub delay: Duration,
    /// Room in its queues beyond what is usual.
    pub queue_more_bytes: usize,
    /// What the gateways know.
    pub declared: Declared,
    /// From and for how long the link loses everything, and whether the gateways see it.
    pub outage: Option<(Duration, Duration, bool)>,
    /// The gateways send at the rate that routers say, and whether there is one.
    pub xcp: Option<bool>,
    /// Who changes what gateways say of that on the way.
    pub harm: Option<XcpHarm>,
    /// They say so in XCP's own header.
    pub xcp_in_shim: bool,
}

/// A connection that a lying client opens.
#[derive(Clone, Debug)]
pub struct Call {
    /// When.
    pub at: Duration,
    /// Number of its host.
    pub host: usize,
    /// Number of the host that it calls, and the port there.
    pub to: (usize, u16),
    /// Port of its own.
    pub port: u16,
    /// Over IPv6.
    pub v6: bool,
    /// Bytes that it asks with.
    pub request_bytes: u64,
    /// How it lies, and how the host that it calls does if that one lies, too.
    pub lies: [Vec<Lie>; 2],
    /// Packets that each side sends at most.
    pub packets_max: u32,
    /// Each side says something of its own accord so often.
    pub every: Duration,
}

/// A sender of packets in other hosts' names.
#[derive(Clone, Copy, Debug)]
pub struct SpoofPlan {
    /// Where it stands.
    pub place: Place,
    /// It knows the ports of the honest connections, and not only their addresses.
    pub knows_ports: bool,
    /// It also knows roughly where their sequence numbers are.
    pub knows_roughly: bool,
    /// Packets.
    pub packets_max: u32,
    /// Between two.
    pub every: Duration,
}

/// A whole run.
#[derive(Clone, Debug)]
pub struct HostilePlan {
    /// The seed it was made from.
    pub seed: u64,
    /// The policy that was asked for at all gateways.
    pub policy: Option<FlowControl>,
    /// One before each end of the link, or only the one on the clients' or the servers' side.
    pub gateways: [bool; 2],
    /// What they are told, but for the interfaces.
    pub config: Config,
    /// The link between them.
    pub link: HardLink,
    /// The stack of the honest hosts.
    pub linux: LinuxConfig,
    /// What the honest hosts do.
    pub honest: Vec<Transfer>,
    /// What liars do.
    pub calls: Vec<Call>,
    /// Who speaks in others' names.
    pub spoof: Option<SpoofPlan>,
}

impl HostilePlan {
    /// The run that `seed` stands for: with this policy of flow control at all gateways, or one by
    /// the seed.
    #[must_use]
    pub fn from_seed(seed: u64, policy: Option<FlowControl>) -> Self {
        let mut rng = Rng::new(seed, "hostile: path");
        let gateways = rng.pick(&[[true, true], [true, true], [true, false], [false, true]]);
        let mut link = link(&mut rng);
        let mut config = config(&mut rng);
        if let Some(policy) = policy {
            config.flow_control = policy;
        }
        let linux = linux(&mut rng);
        let mut rng = Rng::new(seed, "hostile: honest hosts");
        let honest = honest(&mut rng, &link);
        let mut rng = Rng::new(seed, "hostile: liars");
        let has_liars = rng.chance(0.75);
        let mut calls = Vec::new();
        if has_liars {
            let count = rng.pick(&[1, 2, 3, 5, 8]);
            calls = (0..count).map(|n| call(&mut rng, gateways, honest.len() as u16 + n)).collect();
        }
        let mut rng = Rng::new(seed, "hostile: spoofer");
        let spoof = (!has_liars || rng.chance(0.4)).then(|| spoof(&mut rng, gateways));
        let mut rng = Rng::new(seed, "hostile: xcp");
        if link.declared != Declared::No && gateways == [true; 2] && rng.chance(XCP_SHARE) {
            link.xcp = Some(rng.chance(0.7));
            let mut rng = Rng::new(seed, "hostile: xcp on the way");
            link.harm = rng.chance(HARM_SHARE).then(|| rng.pick(&HARMS));
            link.xcp_in_shim = Rng::new(seed, "hostile: xcp in its own header").chance(0.5);
            let both = calls.iter_mut().flat_map(|call| &mut call.lies);
            both.filter(|_| rng.chance(0.5)).for_each(|lies| lies.push(Lie::Wishes));
        }
        let mut rng = Rng::new(seed, "hostile: adverts");
        if link.declared != Declared::No && rng.chance(ADVERTS_SHARE) {
            let both = calls.iter_mut().flat_map(|call| &mut call.lies);
            both.filter(|_| rng.chance(0.5)).for_each(|lies| lies.push(Lie::Adverts));
        }
        let mut linux = linux;
        // Without SACK whatever a forged packet draws looks like a loss (RFC 5681), with or without
        // gateways.
        linux.sack |= spoof.is_some();
        Self { seed, policy, gateways, config, link, linux, honest, calls, spoof }
    }
}

fn link(rng: &mut Rng) -> HardLink {
    let declared = rng.pick(&[
        Declared::WithRate,
        Declared::WithRate,
        Declared::WithRate,
        Declared::WithoutRate,
        Declared::No,
    ]);
    let outage =
        rng.chance(0.12).then(|| (rng.millis(300, 6_000), rng.millis(1_000, 12_000), rng.chance(0.5)));
    HardLink {
        rate_bps: rng.log_range(1_000_000, 30_000_000),
        delay: match rng.range(0, 3) {
            0 => rng.millis(2, 20),
            1 => rng.millis(20, 100),
            _ => rng.millis(200, 280),
        },
        queue_more_bytes: 0,
        declared,
        outage,
        xcp: None,
        harm: None,
        xcp_in_shim: false,
    }
}

fn config(rng: &mut Rng) -> Config {
    let pinned = rng.pick(&[Pinned::Never, Pinned::Auto]);
    let mut c = Config { pinned, seed: rng.bits(), ..Config::default() };
    // Small enough to be filled by a bold attacker, large enough that these here do not.
    c.limits.pool_bytes = 64 << 20;
    c.limits.flows_max = 2_000;
    c.limits.half_open_max = 4_000;
    c.limits.reassembly_bytes = 1 << 20;
    if rng.chance(0.5) {
        c.timers.dormant_after = rng.millis(500, 4_000);
    }
    if rng.chance(0.3) {
        c.limits.relay_follows_link = false;
        c.limits.relay_bytes = rng.log_range(64 << 10, 4 << 20) as u32;
    }
    c.flow_control =
        rng.pick(&[FlowControl::Fixed, FlowControl::Fixed, FlowControl::SendWindow, FlowControl::Automatic]);
    if rng.chance(0.3) {
        c.ordinary.cc = cc::Kind::NewReno;
    }
    c
}

fn linux(rng: &mut Rng) -> LinuxConfig {
    let congestion = rng.pick(&[congestion::Kind::Cubic, congestion::Kind::Cubic, congestion::Kind::Reno]);
    let mut c = LinuxConfig::modern(congestion);
    c.timestamps = rng.chance(0.7);
    c.sack = rng.chance(0.85);
    c.window_scaling = rng.chance(0.85);
    if !c.window_scaling {
        c.window_max_bytes = c.window_max_bytes.min(65_535);
        c.window_bytes = c.window_bytes.min(65_535);
    }
    c
}

/// A download that fills the link for a while, and some others.
fn honest(rng: &mut Rng, link: &HardLink) -> Vec<Transfer> {
    let bulk = (link.rate_bps / 8 * rng.range(2, 5)).clamp(150_000, 1_200_000);
    let start = |rng: &mut Rng| rng.millis(1, 300);
    let at = start(rng);
    let mut all = vec![Transfer::single(Direction::Download, bulk, 200, at, rng.chance(0.4))];
    if rng.chance(0.5) {
        let at = start(rng);
        all.push(Transfer::single(Direction::Upload, rng.range(10_000, bulk / 2), 100, at, rng.chance(0.4)));
    }
    if rng.chance(0.6) {
        let count = rng.range(3, 7);
        let steps = (0..count).map(|_| Step {
            wait: rng.pick(&[
                Duration::from_millis(300),
                Duration::from_millis(2_500),
                Duration::from_secs(11),
            ]),
            up_bytes: rng.range(1, 500),
            down_bytes: rng.log_range(10, 30_000),
        });
        let steps = steps.collect();
        let at = start(rng);
        let talk = Transfer {
            steps,
            server_closes: rng.chance(0.5),
            ..Transfer::single(Direction::Download, 0, 0, at, rng.chance(0.4))
        };
        all.push(talk);
    }
    all
}

fn call(rng: &mut Rng, gateways: [bool; 2], number: u16) -> Call {
    let yard = gateways[0];
    // A lying client and an honest server; two liars over the link; two liars who meet at the first
    // gateway.
    let (host, server) = match rng.range(0, if yard { 10 } else { 7 }) {
        0..=3 => (LIARS[0], SERVER),
        4..=5 => (LIARS[0], LIARS[1]),
        6 => (LIARS[1], LIARS[0]),
        7 => (LIARS[2], LIARS[0]),
        8 => (LIARS[0], LIARS[2]),
        _ => (LIARS[2], SERVER),
    };
    let is_honest = server == SERVER;
    let lies = |rng: &mut Rng| {
        let count = rng.pick(&[1, 1, 2, 3]);
        (0..count).map(|_| rng.pick(&Lie::ALL)).collect()
    };
    Call {
        at: rng.millis(1, 4_000),
        host,
        to: (server, if is_honest { SERVER_PORT } else { LIAR_PORT + number }),
        port: CLIENT_PORT + number,
        v6: rng.chance(0.3),
        request_bytes: rng.range(1, 2_000),
        lies: [lies(rng), lies(rng)],
        packets_max: rng.log_range(20, 500) as u32,
        every: Duration::from_millis(rng.pick(&[2, 10, 50, 300])),
    }
}

fn spoof(rng: &mut Rng, gateways: [bool; 2]) -> SpoofPlan {
    let places = [Place::Clients, Place::Servers, Place::Yard];
    let place = rng.pick(if gateways[0] { &places } else { &places[..2] });
    let knows_ports = rng.chance(0.8);
    SpoofPlan {
        place,
        knows_ports,
        knows_roughly: knows_ports && rng.chance(0.7),
        packets_max: rng.log_range(50, 1_000) as u32,
        every: Duration::from_micros(rng.log_range(500, 50_000)),
    }
}

impl Call {
    /// Bytes that an honest server answers with.
    #[must_use]
    pub fn answer_bytes(&self) -> u64 {
        u64::from(self.packets_max) * 100
    }

    /// As the honest server knows it.
    #[must_use]
    pub fn transfer(&self) -> Transfer {
        Transfer {
            client: self.host,
            ..Transfer::single(Direction::Download, self.answer_bytes(), self.request_bytes, self.at, self.v6)
        }
    }
}
