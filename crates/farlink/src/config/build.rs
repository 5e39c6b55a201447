//! Turns the parsed file and the command line into settings, and refuses what contradicts itself.

use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use farlink_gateway::config::{self as engine, Class, DscpClasses, InitialWindow, OnLongPaths};
use farlink_gateway::{Config, IfaceId, UNKNOWN_RATE_CC, cc};
use farlink_linux::divert::{DivertConfig, Method, Selection};
use farlink_linux::driver::{ConnectionLogConfig, Finder};
use farlink_linux::tun::DEFAULT_QUEUE_PACKETS;
use farlink_wire::ShimProtocols;
use farlink_wire::ip::PROTOCOL_TCP;
use farlink_wire::shim::{SHIM_PROTOCOL, may_stand_for_shim};
use toml::Spanned;

use super::error::{ConfigError, Source};
use super::file::{self, Confinement, File};
use super::interfaces::{Named, is_pattern};
use super::values::{Dscp, Rate, Segments, Size, Time};

/// Everything that `farlink run` needs to know.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What the gateway is told. Its interfaces are those that are named and diverted.
    pub gateway: Config,
    /// Which others are diverted when they are there.
    pub finders: Vec<Finder>,
    /// Patterns that rules have in place of an interface, for numbers from `SELECTORS_FROM` on.
    pub selectors: Vec<String>,
    /// Names and numbers of the diversion.
    pub divert: DivertConfig,
    /// Packets that may wait in a TUN.
    pub queue_packets: u32,
    /// Where the connections that have data in custody are noted.
    pub journal: PathBuf,
    /// Where what is found of links is kept for the next start, if anywhere.
    pub found: Option<PathBuf>,
    /// How long SIGTERM waits for custody to be delivered.
    pub drain_timeout: Duration,
    /// The admin socket.
    pub socket: PathBuf,
    /// Where counters are served in Prometheus' text format, if anywhere.
    pub metrics_address: Option<SocketAddr>,
    /// A line for each connection, if wanted.
    pub connection_log: Option<ConnectionLogConfig>,
    /// What the daemon takes from itself.
    pub confinement: Confinement,
    /// The file that all of this comes from, and is read from again, if there is one.
    pub file: Option<PathBuf>,
    /// The file says how large the buffer pool is.
    pub(super) is_pool_said: bool,
    /// The file says how many packets may wait in a device.
    pub(super) is_queue_said: bool,
}

/// How often links may be said to have another delay and another rate.
const RECONFIGURES: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(600);
/// Hosts are asked so often at least, and at most.
const KEEPALIVE: core::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(43_200);

/// What the command line adds to the file.
#[derive(Clone, Debug, Default)]
pub struct Quick {
    /// Interfaces that are hard links.
    pub links: Vec<String>,
    /// Rate of each of them.
    pub rate: Option<Rate>,
    /// Rate of what comes in by each of them.
    pub rate_in: Option<Rate>,
    /// How often each of them has another delay and another rate.
    pub reconfigures: Option<Time>,
    /// Interfaces to divert.
    pub interfaces: Vec<String>,
    /// The admin socket, in place of the file's.
    pub socket: Option<PathBuf>,
    /// How traffic is diverted, in place of what the file says.
    pub method: Option<Method>,
    /// The same where the file says nothing.
    pub method_default: Option<Method>,
}

/// Custody is drained for this long unless the file says otherwise.
const DRAIN_TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);

/// Builds the settings.
pub fn build(file: &File, source: Source<'_>, quick: &Quick) -> Result<Settings, ConfigError> {
    let defaults = Config::default();
    let Named { interfaces: found, finders } = super::interfaces::named(file, source, quick)?;
    let interfaces: Vec<_> = (0u16..)
        .zip(found)
        .map(|(id, f)| engine::Interface {
            id: IfaceId(id),
            name: f.name,
            domain: f.domain,
            addresses: Vec::new(),
            link: f.link,
        })
        .collect();
    let mut selectors = Vec::new();
    let gateway = Config {
        rules: rules(file, source, &interfaces, (&finders, &mut selectors))?,
        interfaces,
        default_action: file
            .default_action
            .map_or(defaults.default_action, |a| action(a, file.custody_notice.unwrap_or_default())),
        dscps: dscps(&file.dscp, source)?,
        custody_notice: file.custody_notice.unwrap_or_default(),
        send_ahead: send_ahead(file, file.send_ahead.unwrap_or_default()),
        limits: limits(&file.limits, source)?,
        timers: timers(&file.timers, source)?,
        ordinary: engine::LegConfig {
            cc: controller(file.ordinary.cc.as_ref(), source, defaults.ordinary.cc, cc::Kind::ORDINARY)?,
            initial_window: file
                .ordinary
                .initial_window_segments
                .map_or(defaults.ordinary.initial_window, Segments::window),
            unfair_window_bytes: None,
        },
        pinned: match file.pinned {
            None => defaults.pinned,
            Some(file::Pinned::Auto) => engine::Pinned::Auto,
            Some(file::Pinned::Never) => engine::Pinned::Never,
        },
        flow_control: match file.flow_control.policy {
            None => defaults.flow_control,
            Some(file::Policy::Fixed) => engine::FlowControl::Fixed,
            Some(file::Policy::SendWindow) => engine::FlowControl::SendWindow,
            Some(file::Policy::Adaptive) => engine::FlowControl::Adaptive,
            Some(file::Policy::Automatic) => engine::FlowControl::Automatic,
        },
        identity: file.gateway_id.map_or(0, |id| id.0),
        soft_window: file.flow_control.soft_window.unwrap_or(defaults.soft_window),
        queue_drop: file.flow_control.queue_drop.unwrap_or(defaults.queue_drop),
        ..defaults
    };
    let flows_max = gateway.limits.flows_max;
    let socket = quick.socket.clone().or_else(|| file.admin.socket.clone());
    let socket = socket.unwrap_or_else(|| PathBuf::from(super::DEFAULT_SOCKET));
    Ok(Settings {
        is_pool_said: file.limits.pool_bytes.is_some(),
        is_queue_said: file.divert.queue_packets.is_some(),
        queue_packets: file.divert.queue_packets.map_or(DEFAULT_QUEUE_PACKETS, |n| n.0 as u32),
        // Beside the socket, so that several gateways on one machine do not share it.
        journal: file.divert.journal.clone().unwrap_or_else(|| socket.with_extension("journal")),
        found: file
            .admin
            .found_rates
            .as_ref()
            .map_or_else(|| Some(found_beside(&socket)), |kept| kept.0.clone()),
        divert: DivertConfig {
            method: method(file, quick),
            ..divert(file, source, quick, (gateway.interfaces.len(), gateway.shims()))?
        },
        gateway,
        finders,
        selectors,
        drain_timeout: file.drain_timeout.map_or(DRAIN_TIMEOUT_DEFAULT, |t| t.0),
        socket,
        connection_log: file.admin.connection_log(flows_max),
        metrics_address: file.admin.metrics_address,
        confinement: file.admin.confinement.unwrap_or_default(),
        file: None,
    })
}

/// Where what is found of links is kept if nobody says it. The service has a directory for what
/// outlives a restart of the machine; of several gateways on one machine each has its own file.
fn found_beside(socket: &Path) -> PathBuf {
    match socket == Path::new(super::DEFAULT_SOCKET) {
        true => PathBuf::from(super::DEFAULT_FOUND),
        false => socket.with_extension("found"),
    }
}

/// The class of each DSCP: of those that are not listed where a list is given, bulk.
fn dscps(table: &file::DscpTable, source: Source<'_>) -> Result<DscpClasses, ConfigError> {
    let is = |listed: &Option<Vec<Spanned<Dscp>>>, class, dscp| match listed {
        Some(listed) => listed.iter().any(|one| one.get_ref().0 == dscp),
        None => Class::of_dscp(dscp) == class,
    };
    let is_interactive = |dscp| is(&table.interactive, Class::Interactive, dscp);
    let is_background = |dscp| is(&table.background, Class::Background, dscp);
    let listed = table.background.iter().flatten();
    if let Some(both) = listed.into_iter().find(|one| is_interactive(one.get_ref().0)) {
        let wrong = format!(
            "DSCP {} is interactive already; allowed: each in one of `interactive` and `background`",
            both.get_ref().0
        );
        return Err(source.error(Some(both.span()), wrong));
    }
    Ok(DscpClasses::by(|dscp| match (is_interactive(dscp), is_background(dscp)) {
        (true, _) => Class::Interactive,
        (false, true) => Class::Background,
        (false, false) => Class::Bulk,
    }))
}

/// The controller of a link that follows from what is known of it.
const AUTO: &str = "auto";

/// With a known rate the egress queue is the clock and no congestion control is needed. Without one
/// the gateways find it out from a first burst; where no gateway is at the other end, BBR does.
pub(super) fn default_link_leg(rate_known: bool) -> engine::LegConfig {
    let usual = engine::LegConfig::default();
    engine::LegConfig { cc: if rate_known { cc::Kind::FixedRate } else { UNKNOWN_RATE_CC }, ..usual }
}

pub(super) fn link(
    l: &file::Link,
    source: Source<'_>,
    notice: engine::Notice,
) -> Result<engine::Link, ConfigError> {
    let rate_bps = match (&l.rate, &l.rate_bps) {
        (Some(_), Some(again)) => {
            return Err(
                source.error(Some(again.span()), "the rate is given twice; allowed: `rate` or `rate_bps`")
            );
        }
        (Some(rate), None) => match rate.get_ref() {
            file::LinkRate::Auto => None,
            file::LinkRate::Declared(bps) => Some(*bps),
        },
        (None, Some(bps)) => Some(bps.get_ref().0),
        (None, None) => None,
    };
    let usual = engine::XcpWeights::default();
    let leg = default_link_leg(rate_bps.is_some());
    let named = l.cc.as_ref().filter(|name| name.get_ref() != AUTO);
    if let (true, Some(most)) = (rate_bps.is_some() || named.is_some(), &l.rate_max) {
        let wrong = "there is no rate to find out where it is said, or where a controller is named; allowed: `rate_max` without `rate` and `cc`";
        return Err(source.error(Some(most.span()), wrong));
    }
    if let (Some(rate), None, Some(_)) = (&l.rate, rate_bps, named) {
        let wrong =
            "no rate is found out where a controller is named; allowed: `rate = \"auto\"` without `cc`";
        return Err(source.error(Some(rate.span()), wrong));
    }
    let cc = controller(named, source, leg.cc, cc::Kind::ALL)?;
    if let (cc::Kind::FixedRate, None, Some(name)) = (cc, rate_bps, named) {
        let wrong =
            "`fixed-rate` has no rate to go by; allowed: with `rate` or `rate_bps`, or another controller";
        return Err(source.error(Some(name.span()), wrong));
    }
    if let (true, Some(window)) = (cc != cc::Kind::Unfair, &l.window_bytes) {
        let wrong = format!("`{cc}` finds its own window; allowed: with `cc = \"unfair\"`");
        return Err(source.error(Some(window.span()), wrong));
    }
    Ok(engine::Link {
        name: l.name.as_ref().unwrap_or(&l.interface).get_ref().clone(),
        rate_bps,
        rate_in_bps: l.rate_in.as_ref().map(|rate| rate.0),
        rtt: l.rtt_ms.map(|ms| Duration::from_millis(ms.0)),
        reconfigures: reconfigures(l, source)?,
        overhead_bytes: l.overhead_bytes.map_or(0, |n| n.0 as u32),
        oversize: match &l.oversize {
            None | Some(file::Oversize::Auto) => engine::Oversize::Auto,
            Some(file::Oversize::Off) => engine::Oversize::Off,
            Some(file::Oversize::Bytes(bytes)) => engine::Oversize::Bytes(*bytes),
        },
        is_half_duplex: l.duplex == Some(file::Duplex::Half),
        is_xcp_router: l.xcp_router == Some(true),
        xcp_weights: engine::XcpWeights {
            xcp: l.xcp_weight.map_or(usual.xcp, |n| n.0 as u32),
            plain: l.plain_weight.map_or(usual.plain, |n| n.0 as u32),
        },
        weights: weights(l),
        explicit: engine::Explicit {
            sources: l.xcp_sources.iter().map(|p| (p.0, p.1)).collect(),
            destinations: l.xcp_destinations.iter().map(|p| (p.0, p.1)).collect(),
            peers: l.xcp_peers.iter().map(|id| id.0).collect(),
        },
        xcp_context: match l.xcp_context {
            Some(file::XcpContext::Flow) => engine::XcpContext::Flow,
            Some(file::XcpContext::Pair) | None => engine::XcpContext::Pair,
        },
        xcp_shim: xcp_shim(l, source)?,
        leg: engine::LegConfig {
            cc,
            initial_window: initial_window(l, leg.initial_window),
            unfair_window_bytes: l.window_bytes.as_ref().map(|w| w.get_ref().0),
        },
        estimate_rate: rate_bps.is_none() && named.is_none(),
        rate_max_bps: l.rate_max.as_ref().map(|most| most.get_ref().0),
        corrects_rate: l.rate_correction != Some(file::RateCorrection::Off),
        is_metered: l.metered,
        byte_budget: l.budget.map(|budget| budget.0),
        action: l.action.map(|action| match action {
            file::LinkAction::Split => engine::LinkAction::Split,
            file::LinkAction::Custody => engine::LinkAction::Custody(notice),
            file::LinkAction::Auto => engine::LinkAction::Auto(notice),
        }),
        ack_filter: match l.ack_filter {
            Some(file::AckFilter::On) => engine::AckFilter::On,
            Some(file::AckFilter::Off) => engine::AckFilter::Off,
            Some(file::AckFilter::Auto) | None => engine::AckFilter::Auto,
        },
        copies: copies(l, source)?,
    })
}

/// Whether data is sent again before a loss is known; on a metered link it is not.
fn copies(l: &file::Link, source: Source<'_>) -> Result<engine::Copies, ConfigError> {
    let said = l.early_repetition.as_ref();
    match (said.map(|s| *s.get_ref()), l.metered) {
        (Some(file::EarlyRepetition::Auto), true) => {
            let wrong = "each byte of a metered link costs money, so nothing is sent twice without need; allowed: `\"off\"`, or without `metered`";
            Err(source.error(said.map(Spanned::span), wrong))
        }
        (Some(file::EarlyRepetition::Off), _) | (None, true) => Ok(engine::Copies::Off),
        (Some(file::EarlyRepetition::Auto) | None, false) => Ok(engine::Copies::Auto),
    }
}

/// `None`: nobody has chosen any.
fn weights(l: &file::Link) -> Option<engine::Weights> {
    let split = l.split_weight.as_ref().map(|n| n.0 as u32);
    let forwarded = l.forwarded_weight.as_ref().map(|n| n.0 as u32);
    let usual = engine::Weights::default();
    split.or(forwarded).map(|_| engine::Weights {
        split: split.unwrap_or(usual.split),
        forwarded: forwarded.unwrap_or(usual.forwarded),
    })
}

/// The IP protocol of XCP's own header; `None`: options are used.
fn xcp_shim(l: &file::Link, source: Source<'_>) -> Result<Option<u8>, ConfigError> {
    let protocol = l.xcp_protocol.as_ref();
    if l.xcp_form != Some(file::XcpForm::Shim) {
        return match protocol {
            Some(number) => Err(source.error(
                Some(number.span()),
                "an option needs no protocol number; allowed: with `xcp_form = \"shim\"`",
            )),
            None => Ok(None),
        };
    }
    let Some(number) = protocol else { return Ok(Some(SHIM_PROTOCOL)) };
    let value = u8::try_from(number.get_ref().0).unwrap_or(SHIM_PROTOCOL);
    if !may_stand_for_shim(value) {
        let wrong = format!("{value} is in use for another protocol; allowed: 254, 253, or one of your own");
        return Err(source.error(Some(number.span()), wrong));
    }
    Ok(Some(value))
}

/// How often the link has another delay and another rate.
fn reconfigures(l: &file::Link, source: Source<'_>) -> Result<Option<Duration>, ConfigError> {
    let Some(said) = &l.reconfigures else { return Ok(None) };
    let period = said.get_ref().0;
    if RECONFIGURES.contains(&period) {
        return Ok(Some(period));
    }
    let wrong = "`reconfigures` is how often satellites take turns; allowed: 1 s to 10 min, such as \"15 s\"";
    Err(source.error(Some(said.span()), wrong))
}

/// One value for all paths, or with the second key one for short and one for long paths (thesis
/// 4.4.1).
fn initial_window(l: &file::Link, default: InitialWindow) -> InitialWindow {
    let window = l.initial_window_segments.map_or(default, Segments::window);
    match l.long_path_initial_window_segments {
        None => window,
        Some(Segments::Auto) => InitialWindow { on_long_paths: OnLongPaths::Share, ..window },
        Some(Segments::Count(n)) => InitialWindow { on_long_paths: OnLongPaths::Segments(n), ..window },
    }
}

fn controller(
    name: Option<&Spanned<String>>,
    source: Source<'_>,
    default: cc::Kind,
    allowed: &[cc::Kind],
) -> Result<cc::Kind, ConfigError> {
    let Some(name) = name else { return Ok(default) };
    allowed.iter().copied().find(|kind| kind.name() == name.get_ref()).ok_or_else(|| {
        let auto = (allowed == cc::Kind::ALL).then_some(AUTO);
        let names: Vec<_> = allowed.iter().map(|kind| kind.name()).chain(auto).collect();
        let wrong = match cc::Kind::ALL.iter().find(|kind| kind.name() == name.get_ref()) {
            Some(_) => format!("congestion control `{}` is for declared links only", name.get_ref()),
            None => format!("unknown congestion control `{}`", name.get_ref()),
        };
        source.error(Some(name.span()), format!("{wrong}; allowed: {}", names.join(", ")))
    })
}

fn action(a: file::Action, notice: engine::Notice) -> engine::Action {
    match a {
        file::Action::Split => engine::Action::Split,
        file::Action::Custody => engine::Action::Custody(notice),
        file::Action::Pass => engine::Action::Pass,
        file::Action::Refuse => engine::Action::Refuse,
    }
}

/// Where the bump is not at the link, this machine's connection tracking stands before the link. It
/// would call what is sent ahead of a window invalid, and would not translate its address.
fn send_ahead(file: &File, ahead: file::SendAhead) -> engine::SendAhead {
    let attached = attach(file);
    let is_behind = |link: &file::Link| !attached.is_empty() && !attached.contains(link.interface.get_ref());
    match ahead {
        file::SendAhead::Auto if file.link.iter().any(is_behind) => engine::SendAhead::Off,
        file::SendAhead::Auto => engine::SendAhead::Auto,
        file::SendAhead::On => engine::SendAhead::On,
        file::SendAhead::Off => engine::SendAhead::Off,
    }
}

fn class(c: file::Class) -> engine::Class {
    match c {
        file::Class::Interactive => engine::Class::Interactive,
        file::Class::Bulk => engine::Class::Bulk,
        file::Class::Background => engine::Class::Background,
    }
}

fn rules(
    file: &File,
    source: Source<'_>,
    interfaces: &[engine::Interface],
    (finders, selectors): (&[Finder], &mut Vec<String>),
) -> Result<Vec<engine::Rule>, ConfigError> {
    let mut rules: Vec<engine::Rule> = Vec::new();
    for r in &file.rule {
        let name = r.name.get_ref();
        if name.is_empty() || name == "default" || rules.iter().any(|other| other.name == *name) {
            let wrong = format!(
                "`{name}` cannot name this rule; allowed: a name of its own, not empty and not `default`"
            );
            return Err(source.error(Some(r.name.span()), wrong));
        }
        if let (None, Some(answer)) = (&r.connections_max, &r.over_limit) {
            let wrong = "there is no limit to be over; allowed: together with `connections_max`";
            return Err(source.error(Some(answer.span()), wrong));
        }
        if let (true, Some(notice)) = (*r.action.get_ref() != file::Action::Custody, &r.custody_notice) {
            let wrong = "nobody is told anything; allowed: together with `action = \"custody\"`";
            return Err(source.error(Some(notice.span()), wrong));
        }
        let notice =
            r.custody_notice.as_ref().map(|n| *n.get_ref()).or(file.custody_notice).unwrap_or_default();
        let protocols: Vec<u8> = r.protocols.iter().map(|p| p.0).collect();
        let is_of_tcp = protocols.is_empty() || protocols.contains(&PROTOCOL_TCP);
        if !is_of_tcp && *r.action.get_ref() != file::Action::Pass {
            let wrong = "only TCP is split, held or refused; allowed: \"pass\", or `protocols` with \"tcp\"";
            return Err(source.error(Some(r.action.span()), wrong));
        }
        let ids = r.interfaces.iter().map(|wanted| {
            let id = super::interfaces::meant(wanted.get_ref(), interfaces, finders, selectors);
            id.map_err(|wrong| source.error(Some(wanted.span()), wrong))
        });
        let raise_mss = match &r.raise_mss {
            None => None,
            // What IP has room for.
            Some(mss) => Some(size(Some(mss), source, 0, 536, 65_495)? as u16),
        };
        rules.push(engine::Rule {
            name: name.clone(),
            interfaces: ids.collect::<Result<_, _>>()?,
            protocols,
            sources: r.sources.iter().map(|p| (p.0, p.1)).collect(),
            destinations: r.destinations.iter().map(|p| (p.0, p.1)).collect(),
            ports: r.ports.iter().map(|p| (p.0, p.1)).collect(),
            dscps: r.dscp.iter().map(|d| d.0).collect(),
            action: action(*r.action.get_ref(), notice),
            connections_max: r.connections_max.map(|n| n.0 as u32),
            over_limit: match r.over_limit.as_ref().map(|o| *o.get_ref()) {
                None | Some(file::OverLimit::Pass) => engine::Action::Pass,
                Some(file::OverLimit::Refuse) => engine::Action::Refuse,
            },
            class: r.class.map(class),
            send_ahead: r.send_ahead.map(|ahead| send_ahead(file, ahead)),
            raise_mss,
            keepalive: keepalive(r, source)?,
        });
    }
    Ok(rules)
}

/// How often hosts of idle connections of a rule are asked whether they live.
fn keepalive(r: &file::Rule, source: Source<'_>) -> Result<Option<Duration>, ConfigError> {
    let Some(said) = &r.keepalive else { return Ok(None) };
    let every = said.get_ref().0;
    let is_split = matches!(r.action.get_ref(), file::Action::Split | file::Action::Custody);
    if is_split && KEEPALIVE.contains(&every) {
        return Ok(Some(every));
    }
    let wrong = match is_split {
        true => "`keepalive` is how often idle hosts are asked; allowed: 1 s to 12 h, such as \"60 s\"",
        false => {
            "only who takes part in a connection can ask its hosts; allowed: with `action = \"split\"` or \"custody\""
        }
    };
    Err(source.error(Some(said.span()), wrong))
}

fn size(
    size: Option<&Spanned<Size>>,
    source: Source<'_>,
    default: u64,
    min: u64,
    max: u64,
) -> Result<u64, ConfigError> {
    let Some(size) = size else { return Ok(default) };
    let bytes = size.get_ref().0;
    if (min..=max).contains(&bytes) {
        return Ok(bytes);
    }
    let wrong = format!("{bytes} bytes is out of range; allowed: {min} to {max} bytes");
    Err(source.error(Some(size.span()), wrong))
}

fn limits(l: &file::Limits, source: Source<'_>) -> Result<engine::Limits, ConfigError> {
    let d = engine::Limits::default();
    let (least, most) = engine::Limits::POOL_BYTES;
    let pool_bytes = size(l.pool_bytes.as_ref(), source, d.pool_bytes as u64, least, most)?;
    let (least, most) = engine::Limits::RELAY_BYTES;
    let relay_bytes = size(l.relay_bytes.as_ref(), source, u64::from(d.relay_bytes), least, most)?;
    // A pool that is smaller than what is usual bounds directions, too.
    if let Some(said) = l.relay_bytes.as_ref().filter(|_| relay_bytes > pool_bytes) {
        let wrong = format!(
            "a direction of a connection ({relay_bytes} bytes) may hold more than the pool of all ({pool_bytes} bytes); \
             allowed: `relay_bytes` up to `pool_bytes`"
        );
        return Err(source.error(Some(said.span()), wrong));
    }
    let reassembly_bytes = size(l.reassembly_bytes.as_ref(), source, d.reassembly_bytes as u64, 0, 1 << 30)?;
    Ok(engine::Limits {
        flows_max: l.flows_max.map_or(d.flows_max, |n| n.0 as usize),
        half_open_max: l.half_open_max.map_or(d.half_open_max, |n| n.0 as usize),
        pool_bytes: pool_bytes as usize,
        relay_bytes: relay_bytes as u32,
        relay_follows_link: relay_bytes == u64::from(d.relay_bytes),
        reassembly_bytes: reassembly_bytes as usize,
        challenge_acks_per_s: l.challenge_acks_per_s.map_or(d.challenge_acks_per_s, |n| n.0 as u32),
    })
}

fn timers(t: &file::Timers, source: Source<'_>) -> Result<engine::Timers, ConfigError> {
    let d = engine::Timers::default();
    let spanned = |time: &Option<Spanned<super::values::Time>>, default| match time {
        Some(time) => (time.get_ref().0, Some(time.span())),
        None => (default, None),
    };
    let (delayed_ack, delayed_ack_span) = spanned(&t.delayed_ack, d.delayed_ack);
    let (rto_min, rto_min_span) = spanned(&t.rto_min, d.rto_min);
    let (rto_max, rto_max_span) = spanned(&t.rto_max, d.rto_max);
    // RFC 9293 MUST-40.
    if delayed_ack >= Duration::from_millis(500) {
        return Err(source.error(delayed_ack_span, "too long a delay; allowed: less than 500 ms (RFC 9293)"));
    }
    if rto_min > rto_max {
        let wrong = format!(
            "`rto_min` ({} ms) is above `rto_max` ({} ms); allowed: rto_min <= rto_max",
            rto_min.as_millis(),
            rto_max.as_millis()
        );
        return Err(source.error(rto_min_span.or(rto_max_span), wrong));
    }
    Ok(engine::Timers {
        half_open: t.half_open.map_or(d.half_open, |t| t.0),
        dormant_after: t.dormant_after.map_or(d.dormant_after, |t| t.0),
        forget_after: t.forget_after.map_or(d.forget_after, |t| t.0),
        user_timeout: t.user_timeout.map_or(d.user_timeout, |t| t.0),
        outage_limit: t.outage_limit.map_or(d.outage_limit, |t| t.0),
        delayed_ack,
        rto_min,
        rto_max,
    })
}

/// Something about the rate of a link is said. It is that of the link, and not that of TCP alone.
fn has_rate(link: &file::Link) -> bool {
    link.rate.is_some() || link.rate_bps.is_some() || link.rate_max.is_some()
}

/// Everything that leaves by a link, where that is wanted. Where nobody has said what is, a rate
/// says it.
fn whole(link: &file::Link) -> Option<Selection> {
    let is_wanted =
        link.traffic.map_or_else(|| has_rate(link), |traffic| traffic == file::LinkTraffic::Everything);
    is_wanted.then(|| Selection::LeavesBy(link.interface.get_ref().clone()))
}

/// The interfaces of links of which nobody has said anything.
fn whole_when_known(file: &File, quick: &Quick) -> Vec<String> {
    let says_nothing = |link: &&file::Link| link.traffic.is_none() && !has_rate(link);
    let of_file = file.link.iter().filter(says_nothing).map(|link| link.interface.get_ref().clone());
    of_file.chain(quick.links.iter().filter(|_| quick.rate.is_none()).cloned()).collect()
}

/// By which means traffic is diverted.
fn method(file: &File, quick: &Quick) -> Method {
    let of_file = file.divert.method.map(|m| match m {
        file::Method::Auto => Method::Auto,
        file::Method::Bump => Method::Bump,
        file::Method::Policy => Method::Policy,
    });
    quick.method.or(of_file).or(quick.method_default).unwrap_or_default()
}

/// The interfaces that are to get a bump.
fn attach(file: &File) -> Vec<String> {
    let wanted = |i: &&file::Interface| i.attach.as_ref().is_some_and(|a| *a.get_ref());
    let named = file.interface.iter().map(Spanned::get_ref).filter(wanted).filter_map(|i| i.name.as_ref());
    named.map(|name| name.get_ref().clone()).filter(|name| !is_pattern(name)).collect()
}

fn divert(
    file: &File,
    source: Source<'_>,
    quick: &Quick,
    (interfaces, xcp): (usize, ShimProtocols),
) -> Result<DivertConfig, ConfigError> {
    let d = &file.divert;
    let default = DivertConfig::default();
    let span = |own: Option<Range<usize>>| {
        let other = d.instance.as_ref().map(Spanned::span);
        own.or(d.mark_mask.as_ref().map(Spanned::span)).or(d.table_base.as_ref().map(Spanned::span)).or(other)
    };
    let config = DivertConfig {
        instance: d.instance.as_ref().map_or_else(|| default.instance.clone(), |i| i.get_ref().clone()),
        mark_mask: d.mark_mask.as_ref().map_or(default.mark_mask, |m| m.get_ref().0 as u32),
        table_base: d.table_base.as_ref().map_or(default.table_base, |t| t.get_ref().0 as u32),
        rule_priority: d.rule_priority.as_ref().map_or(default.rule_priority, |p| p.get_ref().0 as u32),
        selections: (default.selections.iter().cloned().chain(Selection::shims(xcp)))
            .chain(file.link.iter().filter_map(whole))
            .chain(quick.rate.iter().flat_map(|_| quick.links.iter().cloned().map(Selection::LeavesBy)))
            .collect(),
        whole_when_known: whole_when_known(file, quick),
        attach: attach(file),
        ..default
    };
    let instance = &config.instance;
    if !DivertConfig::can_name_instance(instance) {
        let wrong =
            format!("`{instance}` cannot name an instance; allowed: {}", DivertConfig::INSTANCE_NAMES);
        return Err(source.error(d.instance.as_ref().map(Spanned::span), wrong));
    }
    let bits = config.mark_mask >> config.mark_mask.trailing_zeros().min(31);
    if bits & bits.wrapping_add(1) != 0 {
        let wrong =
            format!("{:#010x} has gaps; allowed: one run of one bits, such as 0x7f000000", config.mark_mask);
        return Err(source.error(d.mark_mask.as_ref().map(Spanned::span), wrong));
    }
    if interfaces > config.capacity() as usize {
        let wrong = format!(
            "{interfaces} interfaces do not fit into the {} values of mark_mask {:#010x}; allowed: a mask with more bits",
            config.capacity(),
            config.mark_mask
        );
        return Err(source.error(span(d.mark_mask.as_ref().map(Spanned::span)), wrong));
    }
    // Whatever else the driver itself would refuse.
    config.check().map_err(|e| {
        let own = d.table_base.as_ref().map(Spanned::span);
        source.error(span(own), format!("{e}; allowed: tables that neither the kernel nor others use"))
    })?;
    Ok(config)
}
