//! The configuration file as it stands on disk. Every key here is explained in
//! docs/configuration.md and stands in packaging/farlink.toml; a test sees to it.

use std::net::SocketAddr;
use std::path::PathBuf;

use farlink_gateway::config::Notice;
use farlink_linux::driver::ConnectionLogConfig;
use serde::Deserialize;
use toml::Spanned;

use super::units::{Bps, Bytes, In, Ms};
use super::values::{
    Budget, Dscp, GatewayId, Group, KeptIn, LogTo, Number, Ports, Prefix, Protocol, Rate, Segments, Size,
    Time,
};
pub use super::values::{LinkRate, Oversize};

/// The whole file. What is absent has the default that the engine states.
#[derive(Deserialize, Debug, Default)]
#[serde(deny_unknown_fields, default)]
pub struct File {
    /// Interfaces whose traffic is diverted.
    pub interface: Vec<Spanned<Interface>>,
    /// Declared hard links.
    pub link: Vec<Link>,
    /// What is split; the first rule that matches decides.
    pub rule: Vec<Rule>,
    /// Which class a DSCP asks for.
    pub dscp: DscpTable,
    /// What happens to a connection that no rule matches.
    pub default_action: Option<Action>,
    #[serde(default)]
    pub send_ahead: Option<SendAhead>,
    /// What sources in custody mode hear of an outage, unless a rule says otherwise.
    pub custody_notice: Option<Notice>,
    /// Whether flows may depend on their gateways.
    pub pinned: Option<Pinned>,
    /// How long SIGTERM waits for custody to be delivered.
    pub drain_timeout: Option<Time>,
    /// How other gateways know this one, also when it has started again.
    #[serde(default)]
    pub gateway_id: Option<GatewayId>,
    /// How data is sent on legs that are not declared links.
    pub ordinary: Ordinary,
    /// Bounds.
    pub limits: Limits,
    /// How long things last.
    pub timers: Timers,
    /// How a relay's receive buffer is bounded.
    pub flow_control: FlowControl,
    /// Names and numbers that diversion uses.
    pub divert: Divert,
    /// Where the daemon can be asked.
    pub admin: Admin,
}

/// `[dscp]`
#[derive(Deserialize, Debug, Default)]
#[serde(deny_unknown_fields)]
pub struct DscpTable {
    #[serde(default)]
    pub interactive: Option<Vec<Spanned<Dscp>>>,
    #[serde(default)]
    pub background: Option<Vec<Spanned<Dscp>>>,
}

/// `[[interface]]`
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Interface {
    #[serde(default)]
    pub name: Option<Spanned<String>>,
    #[serde(default)]
    pub group: Option<Spanned<Group>>,
    #[serde(default)]
    pub domain: Option<Number<0, 65535>>,
    #[serde(default)]
    pub divert: Option<bool>,
    #[serde(default)]
    pub attach: Option<Spanned<bool>>,
}

/// `[[link]]`
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Link {
    pub interface: Spanned<String>,
    #[serde(default)]
    pub name: Option<Spanned<String>>,
    #[serde(default)]
    pub rate: Option<Spanned<LinkRate>>,
    #[serde(default)]
    pub rate_bps: Option<Spanned<In<Bps, 1, { u64::MAX >> 1 }>>>,
    #[serde(default)]
    pub rate_max: Option<Spanned<Rate>>,
    #[serde(default)]
    pub rate_correction: Option<RateCorrection>,
    #[serde(default)]
    pub rate_in: Option<Rate>,
    #[serde(default)]
    pub ack_filter: Option<AckFilter>,
    #[serde(default)]
    pub early_repetition: Option<Spanned<EarlyRepetition>>,
    #[serde(default)]
    pub metered: bool,
    #[serde(default)]
    pub budget: Option<Budget>,
    #[serde(default)]
    pub rtt_ms: Option<In<Ms, 1, 600_000>>,
    #[serde(default)]
    pub reconfigures: Option<Spanned<Time>>,
    #[serde(default)]
    pub overhead_bytes: Option<In<Bytes, 0, 1024>>,
    #[serde(default)]
    pub oversize: Option<Oversize>,
    #[serde(default)]
    pub duplex: Option<Duplex>,
    #[serde(default)]
    pub xcp_router: Option<bool>,
    #[serde(default)]
    pub xcp_weight: Option<Number<1, 1000>>,
    #[serde(default)]
    pub plain_weight: Option<Number<1, 1000>>,
    #[serde(default)]
    pub split_weight: Option<Number<1, 1000>>,
    #[serde(default)]
    pub forwarded_weight: Option<Number<1, 1000>>,
    #[serde(default)]
    pub xcp_sources: Vec<Prefix>,
    #[serde(default)]
    pub xcp_destinations: Vec<Prefix>,
    #[serde(default)]
    pub xcp_peers: Vec<GatewayId>,
    #[serde(default)]
    pub xcp_context: Option<XcpContext>,
    #[serde(default)]
    pub xcp_form: Option<XcpForm>,
    #[serde(default)]
    pub xcp_protocol: Option<Spanned<Number<0, 255>>>,
    #[serde(default)]
    pub cc: Option<Spanned<String>>,
    #[serde(default)]
    pub window_bytes: Option<Spanned<Size>>,
    #[serde(default)]
    pub initial_window_segments: Option<Segments<65_535>>,
    #[serde(default)]
    pub long_path_initial_window_segments: Option<Segments<65_535>>,
    #[serde(default)]
    pub traffic: Option<LinkTraffic>,
    #[serde(default)]
    pub action: Option<LinkAction>,
}

/// Whether both directions of a link share one medium.
#[derive(Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Duplex {
    Full,
    Half,
}

/// Whether a rate that is declared is held against what arrives.
#[derive(Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum RateCorrection {
    Auto,
    Off,
}

/// When the queue of a link drops forwarded acknowledgements that say nothing more.
#[derive(Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum AckFilter {
    Auto,
    On,
    Off,
}

/// Whether what may be lost is sent again before that is known.
#[derive(Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum EarlyRepetition {
    Auto,
    Off,
}

/// Who has one allowance of a link on which routers say how fast.
#[derive(Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum XcpContext {
    Pair,
    Flow,
}

/// Where segments say what they say of XCP.
#[derive(Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum XcpForm {
    Option,
    Shim,
}

/// What is done with the connections over a link that no rule names.
#[derive(Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum LinkAction {
    Split,
    Custody,
    Auto,
}

/// What of the traffic that leaves by a link passes through its queue.
#[derive(Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum LinkTraffic {
    Tcp,
    Everything,
}

/// `[[rule]]`
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    pub name: Spanned<String>,
    #[serde(default)]
    pub interfaces: Vec<Spanned<String>>,
    #[serde(default)]
    pub protocols: Vec<Protocol>,
    #[serde(default)]
    pub sources: Vec<Prefix>,
    #[serde(default)]
    pub destinations: Vec<Prefix>,
    #[serde(default)]
    pub ports: Vec<Ports>,
    #[serde(default)]
    pub dscp: Vec<Dscp>,
    pub action: Spanned<Action>,
    #[serde(default)]
    pub custody_notice: Option<Spanned<Notice>>,
    #[serde(default)]
    pub connections_max: Option<Number<0, { u32::MAX as u64 }>>,
    #[serde(default)]
    pub over_limit: Option<Spanned<OverLimit>>,
    #[serde(default)]
    pub class: Option<Class>,
    #[serde(default)]
    pub send_ahead: Option<SendAhead>,
    #[serde(default)]
    pub keepalive: Option<Spanned<Time>>,
    pub raise_mss: Option<Spanned<Size>>,
}

/// What is done with a connection.
#[derive(Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    Split,
    Custody,
    Pass,
    Refuse,
}

/// Whether small windows are waited for.
#[derive(Deserialize, Debug, Clone, Copy, PartialEq, Eq, Default)]
#[serde(rename_all = "kebab-case")]
pub enum SendAhead {
    #[default]
    Auto,
    On,
    Off,
}

/// What is done with connections above `connections_max`.
#[derive(Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum OverLimit {
    Pass,
    Refuse,
}

/// Priority in the queue of a declared link.
#[derive(Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    Interactive,
    Bulk,
    Background,
}

/// Whether flows may depend on their gateways.
#[derive(Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Pinned {
    Auto,
    Never,
}

/// `[ordinary]`
#[derive(Deserialize, Debug, Default)]
#[serde(deny_unknown_fields, default)]
pub struct Ordinary {
    pub cc: Option<Spanned<String>>,
    pub initial_window_segments: Option<Segments<10>>,
}

/// `[limits]`
#[derive(Deserialize, Debug, Default)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    pub flows_max: Option<Number<1, 100_000_000>>,
    pub half_open_max: Option<Number<1, 100_000_000>>,
    pub pool_bytes: Option<Spanned<Size>>,
    pub relay_bytes: Option<Spanned<Size>>,
    pub reassembly_bytes: Option<Spanned<Size>>,
    pub challenge_acks_per_s: Option<Number<1, 1_000_000>>,
}

/// `[timers]`
#[derive(Deserialize, Debug, Default)]
#[serde(deny_unknown_fields, default)]
pub struct Timers {
    pub half_open: Option<Time>,
    pub dormant_after: Option<Time>,
    pub forget_after: Option<Time>,
    pub user_timeout: Option<Time>,
    pub outage_limit: Option<Time>,
    pub delayed_ack: Option<Spanned<Time>>,
    pub rto_min: Option<Spanned<Time>>,
    pub rto_max: Option<Spanned<Time>>,
}

/// `[flow_control]`
#[derive(Deserialize, Debug, Default)]
#[serde(deny_unknown_fields, default)]
pub struct FlowControl {
    pub policy: Option<Policy>,
    pub soft_window: Option<bool>,
    pub queue_drop: Option<bool>,
}

/// How a relay's receive buffer is bounded.
#[derive(Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    Fixed,
    SendWindow,
    Adaptive,
    Automatic,
}

/// By which means traffic is diverted.
#[derive(Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    Auto,
    Bump,
    Policy,
}

/// `[divert]`
#[derive(Deserialize, Debug, Default)]
#[serde(deny_unknown_fields, default)]
pub struct Divert {
    pub method: Option<Method>,
    pub instance: Option<Spanned<String>>,
    pub mark_mask: Option<Spanned<Number<1, { u32::MAX as u64 }>>>,
    pub table_base: Option<Spanned<Number<1, { u32::MAX as u64 }>>>,
    pub rule_priority: Option<Spanned<Number<1, 32_765>>>,
    pub queue_packets: Option<Number<1, 1_000_000>>,
    pub journal: Option<PathBuf>,
}

/// `[admin]`
#[derive(Deserialize, Debug, Default)]
#[serde(deny_unknown_fields, default)]
pub struct Admin {
    pub socket: Option<PathBuf>,
    pub metrics_address: Option<SocketAddr>,
    pub found_rates: Option<KeptIn>,
    pub connection_log: Option<LogTo>,
    pub connection_log_per_second: Option<Number<1, 1_000_000>>,
    pub confinement: Option<Confinement>,
}

/// What the daemon takes from itself when it begins.
#[derive(Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Confinement {
    /// Files that are none of its business, ports, and system calls that it never makes.
    #[default]
    Full,
    /// Files and ports alone.
    Files,
    /// Nothing.
    Off,
}

/// Lines of the connection log in a second, unless the file says otherwise.
const CONNECTION_LOG_PER_SECOND: u32 = 1000;

impl Admin {
    /// The connection log of a gateway with so many connections, where one is wanted.
    pub fn connection_log(&self, connections_max: usize) -> Option<ConnectionLogConfig> {
        let per_second = self.connection_log_per_second.map(|n| n.0 as u32);
        self.connection_log.as_ref().map(|LogTo(to)| ConnectionLogConfig {
            to: to.clone(),
            lines_per_second_max: per_second.unwrap_or(CONNECTION_LOG_PER_SECOND),
            connections_max,
        })
    }
}
