//! What the engine may be told: interfaces and links, limits, policies. Plain data; the driver
//! reads it from a file.

mod budget;
mod timers;

use core::net::IpAddr;

use farlink_cc as cc;
use farlink_wire::{Duration, ShimProtocols};
use serde::{Deserialize, Serialize};

pub use budget::{ByteBudget, Period};
pub use farlink_xcp::Weights as XcpWeights;
pub use timers::Timers;

use crate::net::IfaceId;

/// The usual initial window, segments (RFC 6928).
pub const INITIAL_WINDOW_SEGMENTS: u32 = 10;
/// The largest initial window, segments.
pub const INITIAL_WINDOW_SEGMENTS_MAX: u32 = 65_535;

/// Everything the engine is told at its start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// The diverted interfaces.
    pub interfaces: Vec<Interface>,
    /// Rules, first match wins; no match means `default_action`.
    pub rules: Vec<Rule>,
    /// What happens to a connection that no rule names.
    pub default_action: Action,
    /// The class of what no rule gives one, by its DSCP.
    pub dscps: DscpClasses,
    /// What sources in custody mode hear of an outage where nothing else is said: also of what
    /// comes into custody mode while the gateway runs.
    pub custody_notice: Notice,
    /// Bounds on everything.
    pub limits: Limits,
    /// How long things last.
    pub timers: Timers,
    /// The controller and initial window of legs that are not declared links.
    pub ordinary: LegConfig,
    /// Whether flows may be made to depend on their gateways.
    pub pinned: Pinned,
    /// How the receive buffer of a relay is bounded.
    pub flow_control: FlowControl,
    /// Gateways tell each other what they will be able to pass on, and send that first (TR 99-12
    /// section 5).
    pub soft_window: bool,
    /// Whether small windows of hosts are waited for, where no rule says it.
    pub send_ahead: SendAhead,
    /// A host that sends much faster than its data can go on loses one segment in a window (thesis
    /// 4.2).
    pub queue_drop: bool,
    /// Seeds hashing; the same seed and inputs give the same outputs.
    pub seed: u64,
    /// How other gateways tell this one apart; 0: by the seed. They are told it, so it is not to
    /// give the seed away.
    pub identity: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            interfaces: Vec::new(),
            rules: Vec::new(),
            default_action: Action::Split,
            dscps: DscpClasses::default(),
            custody_notice: Notice::default(),
            limits: Limits::default(),
            timers: Timers::default(),
            ordinary: LegConfig {
                initial_window: InitialWindow::fixed(INITIAL_WINDOW_SEGMENTS),
                ..LegConfig::default()
            },
            pinned: Pinned::Auto,
            flow_control: FlowControl::Fixed,
            soft_window: true,
            send_ahead: SendAhead::default(),
            queue_drop: false,
            seed: 0,
            identity: 0,
        }
    }
}

impl Config {
    /// So often the hosts of a connection of this rule are asked whether they live; `None`: never.
    #[must_use]
    pub fn keepalive(&self, rule: usize) -> Option<Duration> {
        self.rules.get(rule).and_then(|rule| rule.keepalive)
    }

    /// A connection of this rule that is silent for so long falls asleep: only then are its hosts
    /// asked.
    #[must_use]
    pub fn dormant_after(&self, rule: usize) -> Duration {
        let usual = self.timers.dormant_after;
        self.keepalive(rule).map_or(usual, |every| every.min(usual))
    }

    /// The IP protocols that stand for XCP's own header on some link.
    #[must_use]
    pub fn shims(&self) -> ShimProtocols {
        let links = self.interfaces.iter().filter_map(|i| i.link.as_ref());
        links.filter_map(|link| link.xcp_shim).fold(ShimProtocols::NONE, ShimProtocols::with)
    }
}

impl FlowControl {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Fixed, Self::SendWindow, Self::Adaptive, Self::Automatic];

    /// Its name in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::SendWindow => "send-window",
            Self::Adaptive => "adaptive",
            Self::Automatic => "automatic",
        }
    }
}

/// From its name; the error says which there are.
impl core::str::FromStr for FlowControl {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|policy| policy.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("`{name}`: allowed are {names}")
        })
    }
}

/// Whether the window of a host behind a declared link is waited for, or sent ahead of (Hasegawa,
/// section 3.3): what it will be when a segment arrives is what counts then.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SendAhead {
    /// It is sent ahead of where hosts of that network have taken what was.
    #[default]
    Auto,
    /// It is always sent ahead of, as long as the host reads.
    On,
    /// It is waited for.
    Off,
}

impl SendAhead {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Auto, Self::On, Self::Off];

    /// Its name in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::On => "on",
            Self::Off => "off",
        }
    }
}

/// From its name; the error says which there are.
impl core::str::FromStr for SendAhead {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|ahead| ahead.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("`{name}`: allowed are {names}")
        })
    }
}

/// A diverted interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    /// Its number with the driver.
    pub id: IfaceId,
    /// Its name, for people.
    pub name: String,
    /// Routing domain (VRF): flows of different domains never meet, even with equal addresses.
    pub domain: u16,
    /// Its own addresses: sources of the ICMP errors that the gateway makes.
    pub addresses: Vec<IpAddr>,
    /// The hard link behind it, when it is declared.
    pub link: Option<Link>,
}

/// The operator's knowledge of a hard link.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Link {
    /// A name, for people.
    pub name: String,
    /// Rate in bits per second of IP packets, when known: the egress queue then is the clock.
    pub rate_bps: Option<u64>,
    /// The rate at which it brings what comes in, when that is known to be another one.
    pub rate_in_bps: Option<u64>,
    /// Round-trip time of the link, when known.
    pub rtt: Option<Duration>,
    /// It has another delay and another rate every so often: satellites take turns.
    pub reconfigures: Option<Duration>,
    /// Bytes that the link layer adds to a packet.
    pub overhead_bytes: u32,
    /// How large segments into it are, where no gateway stands at the other end.
    pub oversize: Oversize,
    /// Both directions share one medium, of this rate.
    pub is_half_duplex: bool,
    /// Its queue answers the wishes of packets that other gateways have sent (XCP).
    pub is_xcp_router: bool,
    /// How packets that say how fast they are sent share that queue with all others.
    pub xcp_weights: XcpWeights,
    /// How split TCP and all that is only forwarded share its queue; `None`: by how many flows
    /// wait.
    pub weights: Option<Weights>,
    /// Which data goes by what routers say, where `leg.cc` is [`cc::Kind::Xcp`].
    pub explicit: Explicit,
    /// Whose the allowances are that routers give (XCP).
    pub xcp_context: XcpContext,
    /// What segments say of XCP stands in the draft's own header, by this IP protocol, where they
    /// are IPv4 and the other gateway knows it; `None`: in options.
    pub xcp_shim: Option<u8>,
    /// Controller and initial window on this link.
    pub leg: LegConfig,
    /// The rate is to be found out where the operator has said none, and `leg.cc` only governs
    /// until it is.
    pub estimate_rate: bool,
    /// What is found out is no more than this, in bits per second; `None`: nobody has said so.
    pub rate_max_bps: Option<u64>,
    /// The rate that the operator has said is held against what arrives at the other end, and less
    /// is sent where that is less.
    pub corrects_rate: bool,
    /// Each byte costs money: it is not tried whether it carries more than the operator has said, nor
    /// by a copy whether a host behind it takes segments that are larger than a packet.
    pub is_metered: bool,
    /// What it may carry for a price; `None`: nobody counts.
    pub byte_budget: Option<ByteBudget>,
    /// What is done with connections over it that no rule names; `None`: the default action.
    pub action: Option<LinkAction>,
    /// Whether acknowledgements that wait for it, of connections that are only forwarded, give way
    /// to newer ones.
    pub ack_filter: AckFilter,
    /// Whether what may be lost is sent again before that is known.
    pub copies: Copies,
}

/// How what is split and what is only forwarded share a link while both have something to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Weights {
    /// Of split TCP, 1 to 1000.
    pub split: u32,
    /// Of all else together, 1 to 1000.
    pub forwarded: u32,
}

impl Default for Weights {
    fn default() -> Self {
        Self { split: 1, forwarded: 1 }
    }
}

/// Whether data that may be lost is sent into a link again before anybody can know.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Copies {
    /// Where the link has time that nothing else wants, and loses something; a tenth of what it
    /// could have carried in the last minute at most.
    #[default]
    Auto,
    /// Never: each byte costs money.
    Off,
}

/// When the queue of a link drops forwarded acknowledgements that say nothing more (RFC 3449
/// 5.2.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AckFilter {
    /// Where the link is known to bring fifty times as much as it takes, or more.
    #[default]
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

/// Full segments and acknowledgements of every second one are as 58 to 1 (RFC 3449 2.1), so beyond
/// this they may have to wait.
const STARVED_PARTS: u64 = 50;

impl AckFilter {
    /// Of a link that takes so many bits per second, and brings so many, as far as that is known.
    #[must_use]
    pub fn filters(self, rate_bps: Option<u64>, rate_in_bps: Option<u64>) -> bool {
        match self {
            Self::On => true,
            Self::Off => false,
            Self::Auto => {
                rate_bps.zip(rate_in_bps).is_some_and(|(out, back)| out.saturating_mul(STARVED_PARTS) <= back)
            }
        }
    }
}

impl Link {
    /// Of forwarded acknowledgements that wait for it only the newest are kept.
    #[must_use]
    pub fn filters_acks(&self) -> bool {
        self.ack_filter.filters(self.rate_bps, self.rate_in_bps)
    }
}

/// How large segments to hosts behind a link are (Hasegawa, section 3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Oversize {
    /// Larger than a packet where what comes back is starved, and as large as that needs.
    #[default]
    Auto,
    /// No larger than a packet.
    Off,
    /// So much payload, bytes.
    Bytes(u32),
}

/// Which data goes by what routers say: that which lies in all three. An empty list has everything.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Explicit {
    /// Prefixes of the hosts that send it.
    pub sources: Vec<(IpAddr, u8)>,
    /// Prefixes of the hosts that it is for.
    pub destinations: Vec<(IpAddr, u8)>,
    /// The gateways at the other end of the link, as they call themselves.
    pub peers: Vec<u32>,
}

/// Who has one allowance, where routers say how fast (XCP).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum XcpContext {
    /// All flows to the same gateway together.
    #[default]
    Pair,
    /// Each flow.
    Flow,
}

impl XcpContext {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Pair, Self::Flow];

    /// Its name in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pair => "pair",
            Self::Flow => "flow",
        }
    }
}

/// From its name; the error says which there are.
impl core::str::FromStr for XcpContext {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|of| of.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("`{name}`: allowed are {names}")
        })
    }
}

/// How data is sent on a leg.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LegConfig {
    /// Congestion controller.
    pub cc: cc::Kind,
    /// Initial window.
    pub initial_window: InitialWindow,
    /// The window of [`cc::Kind::Unfair`]; `None`: as large as buffers allow.
    pub unfair_window_bytes: Option<u64>,
}

impl Default for LegConfig {
    fn default() -> Self {
        Self { cc: cc::Kind::Cubic, initial_window: InitialWindow::AUTO, unfair_window_bytes: None }
    }
}

/// The initial window of the connections over a leg.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InitialWindow {
    /// Segments, on any path.
    pub segments: u32,
    /// On paths that hold more than a window without scaling can say.
    pub on_long_paths: OnLongPaths,
}

/// The initial window of a path with a large bandwidth-delay product.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnLongPaths {
    /// As on any other.
    Same,
    /// So many segments.
    Segments(u32),
    /// By what is known of the link.
    Share,
}

impl InitialWindow {
    /// By what is known of the path.
    pub const AUTO: Self = Self { segments: INITIAL_WINDOW_SEGMENTS, on_long_paths: OnLongPaths::Share };

    /// So many segments, whatever is known.
    #[must_use]
    pub const fn fixed(segments: u32) -> Self {
        Self { segments, on_long_paths: OnLongPaths::Same }
    }
}

impl Default for InitialWindow {
    fn default() -> Self {
        Self::AUTO
    }
}

/// What is done with a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// It is split.
    Split,
    /// It is held while a link is away, and nothing is promised to its hosts: custody mode. Its
    /// sources hear this of it.
    Custody(Notice),
    /// It is forwarded as a plain router would.
    Pass,
    /// It is refused with ICMP administratively prohibited, never with a RST.
    Refuse,
}

impl Action {
    /// The gateway takes part in it, whatever it promises.
    #[must_use]
    pub fn is_split(self) -> bool {
        matches!(self, Self::Split | Self::Custody(_))
    }

    /// What its sources hear of an outage in custody mode; `None`: it is not in that.
    #[must_use]
    pub fn custody(self) -> Option<Notice> {
        if let Self::Custody(notice) = self { Some(notice) } else { None }
    }
}

/// What is done with the connections over a link that no rule names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkAction {
    /// They are split.
    Split,
    /// They are in custody mode.
    Custody(Notice),
    /// They are in custody mode while the link is near, and comes and goes; else they are split.
    Auto(Notice),
}

/// What a source in custody mode hears while the link is away for which its data is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Notice {
    /// Nothing for some seconds, then that the window is closed.
    #[default]
    Silence,
    /// What is held, in SACK blocks (RFC 2018). Hosts that have not agreed on SACK: as `Silence`.
    Sack,
    /// What is held, in intermediate acknowledgements (Reynolds, 3.4.5). Hosts that do not know
    /// them drop them.
    Iack,
    /// That the window is closed, from the beginning.
    ZeroWindow,
}

impl Notice {
    /// All that there are.
    pub const ALL: [Self; 4] = [Self::Silence, Self::Sack, Self::Iack, Self::ZeroWindow];

    /// Its name in configurations.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Silence => "silence",
            Self::Sack => "sack",
            Self::Iack => "iack",
            Self::ZeroWindow => "zero-window",
        }
    }
}

/// Which connections an action is for. Empty lists match everything.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// A name, for counters.
    pub name: String,
    /// Interfaces by which the SYN may come.
    pub interfaces: Vec<IfaceId>,
    /// IP protocols.
    pub protocols: Vec<u8>,
    /// Source prefixes of the SYN.
    pub sources: Vec<(IpAddr, u8)>,
    /// Destination prefixes of the SYN.
    pub destinations: Vec<(IpAddr, u8)>,
    /// Destination ports of the SYN, inclusive ranges.
    pub ports: Vec<(u16, u16)>,
    /// DSCP values of the SYN.
    pub dscps: Vec<u8>,
    /// What happens.
    pub action: Action,
    /// At most so many open connections under this rule; further ones get `over_limit`.
    pub connections_max: Option<u32>,
    /// What happens to connections above `connections_max`.
    pub over_limit: Action,
    /// Egress class of what falls under it; `None`: by its DSCP.
    pub class: Option<Class>,
    /// Whether small windows are waited for; `None`: as [`Config::send_ahead`] says.
    pub send_ahead: Option<SendAhead>,
    /// Answers to hosts behind a link say at least this MSS, bytes (Hasegawa 2003, section III).
    /// The connections are pinned by it.
    pub raise_mss: Option<u16>,
    /// So often the hosts of a connection that says nothing are asked whether they live; `None`:
    /// the gateway asks nobody by itself.
    pub keepalive: Option<Duration>,
}

impl Default for Rule {
    /// Everything falls under it, and is split.
    fn default() -> Self {
        Self {
            name: String::new(),
            interfaces: Vec::new(),
            protocols: Vec::new(),
            sources: Vec::new(),
            destinations: Vec::new(),
            ports: Vec::new(),
            dscps: Vec::new(),
            action: Action::Split,
            connections_max: None,
            over_limit: Action::Pass,
            class: None,
            send_ahead: None,
            keepalive: None,
            raise_mss: None,
        }
    }
}

/// Priority class of a flow's data on a declared link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Class {
    /// Before bulk.
    Interactive,
    /// The usual.
    #[default]
    Bulk,
    /// Only what the others leave.
    Background,
}

/// Which class each DSCP asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DscpClasses([Class; DSCPS]);

/// So many there are.
const DSCPS: usize = 64;

impl Default for DscpClasses {
    /// The usual meaning of each.
    fn default() -> Self {
        Self::by(Class::of_dscp)
    }
}

impl DscpClasses {
    /// By this rule.
    #[must_use]
    pub fn by(mut class: impl FnMut(u8) -> Class) -> Self {
        let mut classes = [Class::Bulk; DSCPS];
        (0..).zip(&mut classes).for_each(|(dscp, place)| *place = class(dscp));
        Self(classes)
    }

    /// Of one.
    #[must_use]
    pub fn of(&self, dscp: u8) -> Class {
        self.0.get(usize::from(dscp)).copied().unwrap_or_default()
    }
}

/// One relay may hold one over this of the pool, where a link holds that much.
const POOL_PARTS: usize = 4;

/// Bounds. At each the answer is stated: forward, or back-pressure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Split or dormant flows; above it new connections are forwarded.
    pub flows_max: usize,
    /// Half-open connections; above it the oldest is forgotten (and its connection, if it was one,
    /// forwarded).
    pub half_open_max: usize,
    /// Buffer pool; above it new connections are forwarded and old ones get smaller windows.
    pub pool_bytes: usize,
    /// Bytes that one relay (direction of a flow) may hold.
    pub relay_bytes: u32,
    /// It is the usual bound: over a link that holds more than half of it a relay may hold twice
    /// what the link holds, within the pool.
    pub relay_follows_link: bool,
    /// Fragments awaiting their kin.
    pub reassembly_bytes: usize,
    /// Challenge ACKs and other answers to odd segments, per second (RFC 5961 section 7).
    pub challenge_acks_per_s: u32,
}

impl Limits {
    /// Bytes that one relay may be allowed, from and to. With less than a super-segment each way it
    /// would not move, and no window above 1 GiB can be announced (RFC 7323).
    pub const RELAY_BYTES: (u64, u64) = (128 << 10, 1 << 30);
    /// Bytes that the pool may be given, from and to. With less than the buffers of a batch that is
    /// read it would not start.
    pub const POOL_BYTES: (u64, u64) = (1 << 20, 1 << 40);

    /// Bytes that one relay may hold over a link that holds so much.
    #[must_use]
    pub fn relay_bytes_over(&self, product_bytes: u64) -> u32 {
        if !self.relay_follows_link {
            return self.relay_bytes;
        }
        let of_pool = u64::try_from(self.pool_bytes / POOL_PARTS).unwrap_or(u64::MAX);
        let wanted = product_bytes.saturating_mul(2).min(of_pool).min(Self::RELAY_BYTES.1);
        u32::try_from(wanted).unwrap_or(u32::MAX).max(self.relay_bytes)
    }

    /// The most that one relay may hold, over whatever link, bytes.
    #[must_use]
    pub fn relay_bytes_max(&self) -> u32 {
        self.relay_bytes_over(u64::MAX)
    }

    /// No congestion window needs more than this: what a relay may hold, and as much that is
    /// repeated.
    pub(crate) const fn window_bytes(relay_bytes: u32) -> u64 {
        relay_bytes as u64 * 2
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            flows_max: 200_000,
            half_open_max: 32_768,
            pool_bytes: 512 << 20,
            relay_bytes: 16 << 20,
            relay_follows_link: true,
            reassembly_bytes: 4 << 20,
            challenge_acks_per_s: 1000,
        }
    }
}

/// Whether flows may depend on their gateways.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pinned {
    /// Where custody within the hosts' own window would not fill the path.
    Auto,
    /// Never: every flow survives the loss of any gateway with nothing in custody.
    Never,
}

/// How the receive buffer of a relay is bounded (thesis chapter 6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlowControl {
    /// `relay_bytes`, always.
    Fixed,
    /// Never more than the send window downstream (Q' <= S).
    SendWindow,
    /// The adaptive receive buffer of thesis 6.3 and 6.4: four cases, at most one change in two
    /// round trips upstream.
    Adaptive,
    /// What the link or the destination needs to be kept busy, with the round trips that are known.
    Automatic,
}
