//! Parameters that change while the gateway runs.

use farlink_cc::Kind;
use farlink_egress::MAX_WEIGHT;
use farlink_engine::config::{
    Action, INITIAL_WINDOW_SEGMENTS, INITIAL_WINDOW_SEGMENTS_MAX, InitialWindow, Limits, LinkAction,
    OnLongPaths, Weights, XcpWeights,
};
use farlink_engine::link::{Change, Link, Witness};
use farlink_engine::net::Way;
use farlink_wire::Instant;
use farlink_wire::quantity::{self, Bare};

use crate::gateway::Gateway;
use crate::links::LinkQueue;

/// A parameter: its name, what it means, and how it is read and changed. `PerLink`s belong to a
/// link, whose interface is named, and `PerRule`s to a rule.
enum Setting {
    Whole(
        &'static str,
        &'static str,
        fn(&Gateway) -> String,
        fn(&mut Gateway, Instant, &str) -> Result<(), String>,
    ),
    PerLink(
        &'static str,
        &'static str,
        fn(&Gateway, &LinkQueue) -> String,
        fn(&mut Gateway, Instant, Way, &str) -> Result<(), String>,
    ),
    PerRule(
        &'static str,
        &'static str,
        fn(&Gateway, &str) -> String,
        fn(&mut Gateway, &str, &str) -> Result<(), String>,
    ),
}

use Setting::{PerLink, PerRule, Whole};

/// All that can be changed while the gateway runs. The laboratory's settings stand in a table like
/// this one: `crates/lab/src/settings/table.rs`.
const SETTINGS: [Setting; 24] = [
    PerLink(
        "rate_bps",
        "its rate (a number alone is bit/s), or unknown; `rate` is the same, and needs a unit",
        read_link_rate,
        |gateway, now, way, value| gateway.set_link_rate(now, way, value, Bare::Base),
    ),
    PerLink("cc", "congestion control on it, or auto", read_link_cc, Gateway::set_link_cc),
    PerLink(
        "initial_window_segments",
        "for connections that begin, or auto",
        |gateway, link| window_text(gateway.initial_window_of(link.way())),
        Gateway::set_link_initial_window,
    ),
    PerLink(
        "long_path_initial_window_segments",
        "the same where a window needs scaling, or auto, same",
        read_link_long_window,
        Gateway::set_link_long_window,
    ),
    PerLink(
        "up",
        "false: the modem, or you, say that it is down",
        |gateway, link| gateway.has_no_denial(link, Witness::Operator),
        |gateway, now, way, value| gateway.hear_witness(now, way, Witness::Operator, value),
    ),
    PerLink(
        "contact",
        "false: a plan of contacts says that there is none",
        |gateway, link| gateway.has_no_denial(link, Witness::ContactPlan),
        |gateway, now, way, value| gateway.hear_witness(now, way, Witness::ContactPlan, value),
    ),
    PerLink(
        "action",
        "split, custody or auto: what is done with connections over it that no rule names, or default",
        Gateway::link_action_text,
        |gateway, _, way, value| gateway.set_link_action(way, value),
    ),
    PerLink(
        "duplex",
        "half: both directions share one medium, of its rate; or full",
        |_, link| if link.is_half_duplex() { "half" } else { "full" }.into(),
        |gateway, now, way, value| gateway.set_link_duplex(now, way, value),
    ),
    PerLink(
        "xcp_weight",
        "parts of an XCP router's link for those that are told how fast, while all want it",
        |_, link| weight_text(link.xcp_weights(), |weights| weights.xcp, NO_WEIGHT),
        |gateway, now, way, value| gateway.set_xcp_weight(now, way, value, |w| &mut w.xcp),
    ),
    PerLink(
        "plain_weight",
        "and for all others",
        |_, link| weight_text(link.xcp_weights(), |weights| weights.plain, NO_WEIGHT),
        |gateway, now, way, value| gateway.set_xcp_weight(now, way, value, |w| &mut w.plain),
    ),
    PerLink(
        "split_weight",
        "parts of the link for split TCP while others want it, too; auto: half, less if more others wait",
        |_, link| weight_text(link.weights(), |weights| weights.split, AUTO),
        |gateway, _, way, value| gateway.set_weight(way, value, |w| &mut w.split),
    ),
    PerLink(
        "forwarded_weight",
        "and for all other traffic",
        |_, link| weight_text(link.weights(), |weights| weights.forwarded, AUTO),
        |gateway, _, way, value| gateway.set_weight(way, value, |w| &mut w.forwarded),
    ),
    PerLink(
        "xcp_context",
        "pair: flows to the same gateway share what routers allow (XCP); or flow",
        |gateway, link| {
            let by = gateway.engine.links().get(link.way()).map(Link::xcp_context);
            by.unwrap_or_default().name().into()
        },
        |gateway, _, way, value| {
            gateway.engine.set_xcp_context(way, value.parse()?);
            Ok(())
        },
    ),
    PerRule(
        "action",
        "split or custody: what it does with connections",
        |gateway, rule| gateway.action_text(Some(rule)),
        |gateway, rule, value| gateway.set_action(Some(rule), value),
    ),
    Whole(
        "default_action",
        "the same where no rule matches",
        |gateway| gateway.action_text(None),
        |gateway, _, value| gateway.set_action(None, value),
    ),
    PerRule(
        "send_ahead",
        "auto, on or off: whether small windows are waited for",
        |gateway, rule| gateway.engine.send_ahead(Some(rule)).name().into(),
        |gateway, rule, value| {
            gateway.engine.set_send_ahead(Some(rule), value.parse()?);
            Ok(())
        },
    ),
    Whole(
        "send_ahead",
        "the same where no rule says it",
        |gateway| gateway.engine.send_ahead(None).name().into(),
        |gateway, _, value| {
            gateway.engine.set_send_ahead(None, value.parse()?);
            Ok(())
        },
    ),
    Whole(
        "ordinary.cc",
        "congestion control on all other legs",
        |gateway| gateway.engine.config().ordinary.cc.name().into(),
        |gateway, now, value| {
            gateway.engine.set_ordinary_cc(now, controller(value, Kind::ORDINARY)?);
            Ok(())
        },
    ),
    Whole(
        "ordinary.initial_window_segments",
        "for connections that begin, or auto",
        |gateway| window_text(gateway.engine.config().ordinary.initial_window),
        |gateway, _, value| {
            gateway.engine.set_ordinary_initial_window(initial_window(value, INITIAL_WINDOW_SEGMENTS)?);
            Ok(())
        },
    ),
    Whole(
        "flow_control.policy",
        "how much connections hold",
        |gateway| gateway.engine.config().flow_control.name().into(),
        |gateway, _, value| {
            gateway.engine.set_flow_control(value.parse()?);
            Ok(())
        },
    ),
    Whole(
        "flow_control.soft_window",
        "gateways say what they will be able to pass on",
        |gateway| gateway.engine.config().soft_window.to_string(),
        |gateway, _, value| {
            gateway.engine.set_soft_window(switch(value)?);
            Ok(())
        },
    ),
    Whole(
        "flow_control.queue_drop",
        "hosts that send too fast lose a segment",
        |gateway| gateway.engine.config().queue_drop.to_string(),
        |gateway, _, value| {
            gateway.engine.set_queue_drop(switch(value)?);
            Ok(())
        },
    ),
    Whole(
        "limits.relay_bytes",
        "what a direction of a connection may hold",
        |gateway| gateway.engine.config().limits.relay_bytes.to_string(),
        |gateway, _, value| {
            let bytes = size(value, Limits::RELAY_BYTES)?;
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            gateway.engine.set_relay_bytes(bytes, bytes == Limits::default().relay_bytes);
            Ok(())
        },
    ),
    Whole(
        "limits.pool_bytes",
        "the buffer pool of all connections",
        |gateway| gateway.engine.config().limits.pool_bytes.to_string(),
        |gateway, _, value| {
            let bytes = size(value, Limits::POOL_BYTES)?;
            gateway.engine.set_pool_bytes(usize::try_from(bytes).unwrap_or(usize::MAX));
            Ok(())
        },
    ),
];

impl Setting {
    /// As `set` takes it, `NAME` for the link's.
    fn key(&self) -> String {
        match self {
            Whole(name, ..) => (*name).to_owned(),
            PerLink(what, ..) => format!("link.NAME.{what}"),
            PerRule(what, ..) => format!("rule.NAME.{what}"),
        }
    }

    fn means(&self) -> &'static str {
        match self {
            Whole(_, means, ..) | PerLink(_, means, ..) | PerRule(_, means, ..) => means,
        }
    }
}

/// What [`Gateway::set`] changes, and what it means, for help.
pub fn settable() -> impl Iterator<Item = (String, &'static str)> {
    SETTINGS.iter().map(|setting| (setting.key(), setting.means()))
}

/// Why a parameter has not been changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NotSet {
    /// There is none of this name.
    UnknownKey {
        /// The name.
        key: String,
        /// Those that there are.
        known: Vec<String>,
        /// What may stand for `NAME` in them.
        links: Vec<String>,
    },
    /// The value is not allowed: which one, and what is.
    Value(String),
}

impl core::fmt::Display for NotSet {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Value(wrong) => f.write_str(wrong),
            Self::UnknownKey { key, known, links } => {
                write!(f, "unknown key `{key}`: allowed are ")?;
                match known.split_last() {
                    Some((last, rest)) if !rest.is_empty() => write!(f, "{} and {last}", rest.join(", "))?,
                    _ => f.write_str(&known.concat())?,
                }
                match links.is_empty() {
                    true => f.write_str("; no link is declared"),
                    false => write!(f, "; NAME is one of {}", links.join(", ")),
                }
            }
        }
    }
}

impl core::error::Error for NotSet {}

fn read_link_rate(gateway: &Gateway, link: &LinkQueue) -> String {
    let rate = gateway.engine.links().get(link.way()).and_then(|l| l.pace().source().declared_bps());
    rate.map_or_else(|| "unknown".into(), |bps| bps.to_string())
}

/// What is said of links that are no XCP routers.
const NO_WEIGHT: &str = "none";
/// By how many flows wait.
const AUTO: &str = "auto";

fn weight_text<W>(weights: Option<W>, which: fn(W) -> u32, otherwise: &str) -> String {
    weights.map_or_else(|| otherwise.into(), |weights| which(weights).to_string())
}

fn weight_of(value: &str) -> Option<u32> {
    value.parse().ok().filter(|weight| (1..=MAX_WEIGHT).contains(weight))
}

fn read_link_cc(gateway: &Gateway, link: &LinkQueue) -> String {
    let pace =
        gateway.engine.links().get(link.way()).map(Link::pace).filter(|pace| !pace.source().is_estimated());
    pace.map_or("auto", |pace| pace.clock().controller().name()).into()
}

fn read_link_long_window(gateway: &Gateway, link: &LinkQueue) -> String {
    let window = gateway.initial_window_of(link.way());
    match window.on_long_paths {
        OnLongPaths::Segments(n) => n.to_string(),
        OnLongPaths::Share if window != InitialWindow::AUTO => "auto".into(),
        OnLongPaths::Same | OnLongPaths::Share => "same".into(),
    }
}

impl Gateway {
    /// Every parameter that [`Gateway::set`] changes, with the value that is in force, as `set`
    /// takes it.
    #[must_use]
    pub fn settings(&self) -> Vec<(String, String)> {
        let mut all = Vec::new();
        for link in self.declared() {
            for setting in &SETTINGS {
                if let PerLink(what, _, read, _) = setting {
                    all.push((format!("link.{}.{what}", link.name()), read(self, link)));
                }
            }
        }
        for rule in self.engine.rule_names() {
            for setting in &SETTINGS {
                if let PerRule(what, _, read, _) = setting {
                    all.push((format!("rule.{rule}.{what}"), read(self, rule)));
                }
            }
        }
        for setting in &SETTINGS {
            if let Whole(key, _, read, _) = setting {
                all.push(((*key).to_owned(), read(self)));
            }
        }
        all
    }

    /// Changes a running parameter, one of [`Self::settings`]. Rates and sizes are read as people
    /// type them: `8M`, `8 Mbit/s`, `512 MiB`. `NAME` is a link's, or its interface's.
    /// `link.NAME.rate_bps` may also be `unknown`, `link.NAME.cc` and initial windows `auto`.
    /// `link.NAME.rate` is `rate_bps` with a unit, as the configuration has it. Initial windows are
    /// for connections that begin from then on, all else is for those that are open, too.
    ///
    /// # Errors
    /// What is wrong and what is allowed; nothing has changed then.
    pub fn set(&mut self, now: Instant, key: &str, value: &str) -> Result<(), NotSet> {
        let of_link = key.strip_prefix("link.").and_then(|k| k.rsplit_once('.'));
        let of_rule = key.strip_prefix("rule.").and_then(|k| k.rsplit_once('.'));
        let of_rule = of_rule.filter(|(rule, _)| self.engine.action_of(Some(rule)).is_some());
        let way = of_link.and_then(|(name, _)| self.link_named(name)).map(LinkQueue::way);
        for setting in &SETTINGS {
            match (setting, of_link, way) {
                (Whole(name, .., write), ..) if *name == key => {
                    return write(self, now, value).map_err(NotSet::Value);
                }
                (PerLink(what, .., write), Some((_, wanted)), Some(way)) if *what == wanted => {
                    return write(self, now, way, value).map_err(NotSet::Value);
                }
                (PerRule(what, .., write), ..) if of_rule.is_some_and(|(_, wanted)| *what == wanted) => {
                    let rule = of_rule.map_or("", |(rule, _)| rule);
                    return write(self, rule, value).map_err(NotSet::Value);
                }
                _ => {}
            }
        }
        match (of_link, way) {
            (Some((_, "rate")), Some(way)) => {
                self.set_link_rate(now, way, value, Bare::Refused).map_err(NotSet::Value)
            }
            _ => Err(self.unknown_key(key)),
        }
    }

    /// The link of this name, or else the one of the interface.
    fn link_named(&self, name: &str) -> Option<&LinkQueue> {
        let of_interface = || self.declared().find(|link| link.interface() == name);
        self.declared().find(|link| link.name() == name).or_else(of_interface)
    }

    fn action_text(&self, rule: Option<&str>) -> String {
        match self.engine.action_of(rule) {
            Some(Action::Custody(_)) => "custody",
            Some(Action::Pass) => "pass",
            Some(Action::Refuse) => "refuse",
            Some(Action::Split) | None => "split",
        }
        .into()
    }

    /// What is in custody mode already tells its sources what it told them.
    fn set_action(&mut self, rule: Option<&str>, value: &str) -> Result<(), String> {
        let notice = self.engine.action_of(rule).and_then(Action::custody);
        let action = match value {
            "split" => Action::Split,
            "custody" => Action::Custody(notice.unwrap_or(self.engine.config().custody_notice)),
            same if same == self.action_text(rule) => return Ok(()),
            _ => return Err(format!("`{value}`: allowed are split and custody")),
        };
        self.engine.set_action(rule, action);
        self.actions_changed = true;
        Ok(())
    }

    fn link_action_text(&self, link: &LinkQueue) -> String {
        match self.engine.links().get(link.way()).and_then(|link| link.said_action()) {
            None => "default",
            Some(LinkAction::Split) => "split",
            Some(LinkAction::Custody(_)) => "custody",
            Some(LinkAction::Auto(_)) => "auto",
        }
        .into()
    }

    fn set_link_action(&mut self, way: Way, value: &str) -> Result<(), String> {
        let notice = match self.engine.links().get(way).and_then(|link| link.said_action()) {
            Some(LinkAction::Custody(notice) | LinkAction::Auto(notice)) => notice,
            Some(LinkAction::Split) | None => self.engine.config().custody_notice,
        };
        let action = match value {
            "default" => None,
            "split" => Some(LinkAction::Split),
            "custody" => Some(LinkAction::Custody(notice)),
            "auto" => Some(LinkAction::Auto(notice)),
            _ => return Err(format!("`{value}`: allowed are split, custody, auto and default")),
        };
        self.engine.set_link_action(way, action);
        self.actions_changed = true;
        Ok(())
    }

    fn set_link_duplex(&mut self, now: Instant, way: Way, value: &str) -> Result<(), String> {
        let is_half_duplex = match value {
            "half" => true,
            "full" => false,
            _ => return Err(format!("`{value}`: allowed are half and full")),
        };
        if let Some(link) = self.outlet.link_mut(way) {
            link.set_half_duplex(is_half_duplex);
        }
        self.engine.set_half_duplex(way, is_half_duplex);
        self.follow_duplex(now, way);
        Ok(())
    }

    fn set_xcp_weight(
        &mut self,
        now: Instant,
        way: Way,
        value: &str,
        which: fn(&mut XcpWeights) -> &mut u32,
    ) -> Result<(), String> {
        let link = self.outlet.link_mut(way);
        let weights = link.as_ref().and_then(|link| link.xcp_weights());
        if value == NO_WEIGHT && weights.is_none() {
            // As it is said of links that are no routers.
            return Ok(());
        }
        let weight = weight_of(value).ok_or_else(|| format!("`{value}`: allowed are 1 to {MAX_WEIGHT}"))?;
        let (Some(link), Some(mut weights)) = (link, weights) else {
            return Err(
                "it is no XCP router, so nothing shares by weights; allowed: with `xcp_router = true`".into(),
            );
        };
        *which(&mut weights) = weight;
        link.set_xcp_weights(now, weights);
        Ok(())
    }

    fn set_weight(
        &mut self,
        way: Way,
        value: &str,
        which: fn(&mut Weights) -> &mut u32,
    ) -> Result<(), String> {
        let Some(link) = self.outlet.link_mut(way) else { return Ok(()) };
        let mut chosen = None;
        if value != AUTO {
            let allowed = || format!("`{value}`: allowed are 1 to {MAX_WEIGHT} and {AUTO}");
            let mut weights = link.weights().unwrap_or_default();
            *which(&mut weights) = weight_of(value).ok_or_else(allowed)?;
            chosen = Some(weights);
        }
        link.set_weights(chosen);
        Ok(())
    }

    fn has_no_denial(&self, link: &LinkQueue, witness: Witness) -> String {
        let evidence = self.engine.links().evidence(link.way());
        (!evidence.is_some_and(|said| said.is_denied_by(witness))).to_string()
    }

    fn hear_witness(&mut self, now: Instant, way: Way, witness: Witness, value: &str) -> Result<(), String> {
        let up = switch(value)?;
        self.tell(now, way, witness, up);
        Ok(())
    }

    fn unknown_key(&self, key: &str) -> NotSet {
        let links: Vec<_> = self.declared().map(|link| link.name().to_owned()).collect();
        let has_rules = self.engine.rule_names().next().is_some();
        let can_be = |setting: &&Setting| match setting {
            Whole(..) => true,
            PerLink(..) => !links.is_empty(),
            PerRule(..) => has_rules,
        };
        let known = SETTINGS.iter().filter(can_be).map(Setting::key).collect();
        NotSet::UnknownKey { key: key.to_owned(), known, links }
    }

    fn set_link_rate(&mut self, now: Instant, way: Way, value: &str, bare: Bare) -> Result<(), String> {
        let number = if bare == Bare::Base { ", a number of bits per second," } else { "" };
        let rate = match value {
            "unknown" => None,
            v => Some(quantity::rate_bps(v, bare).and_then(above_zero).map_err(|wrong| {
                format!("{wrong}; allowed: a rate above zero such as `8M` or `8 Mbit/s`{number} or `unknown`")
            })?),
        };
        let declared = self.engine.links().get(way).and_then(|link| link.pace().source().declared_bps());
        if rate.is_some() && rate == declared {
            // A modem that says it again has said nothing new.
            return Ok(());
        }
        self.engine.apply(now, way, Change::Rate(rate));
        self.follow_rate_source(now, way);
        Ok(())
    }

    /// The queue of a link goes by the rate as it is known now.
    pub(crate) fn follow_rate_source(&mut self, now: Instant, way: Way) {
        // What was found out is forgotten.
        self.engine.apply(now, way, Change::Carried(None));
        let pace = self.engine.links().get(way).map(Link::pace);
        if let (Some(pace), Some(queue)) = (pace, self.outlet.link_mut(way)) {
            queue.follow_pace(now, pace);
        }
    }

    /// A declared rate is held against what arrives where the link has its medium for itself. What
    /// was found out stays.
    pub(crate) fn follow_duplex(&mut self, now: Instant, way: Way) {
        let pace = self.engine.links().get(way).map(Link::pace);
        if pace.is_some_and(|pace| pace.source().declared_bps().is_some()) {
            self.follow_rate_source(now, way);
        }
    }

    fn initial_window_of(&self, way: Way) -> InitialWindow {
        self.engine.links().get(way).map_or(InitialWindow::AUTO, Link::initial_window)
    }

    fn set_link_initial_window(&mut self, now: Instant, way: Way, value: &str) -> Result<(), String> {
        let mut window = initial_window(value, INITIAL_WINDOW_SEGMENTS_MAX)?;
        let before = self.initial_window_of(way).on_long_paths;
        if let (true, OnLongPaths::Segments(_)) = (value != "auto", before) {
            window.on_long_paths = before;
        }
        self.engine.apply(now, way, Change::InitialWindow(window));
        Ok(())
    }

    fn set_link_long_window(&mut self, now: Instant, way: Way, value: &str) -> Result<(), String> {
        let before = self.initial_window_of(way);
        let on_long_paths = match value {
            // What is said of all paths may itself go by the path.
            "same" if before == InitialWindow::AUTO => OnLongPaths::Share,
            "same" => OnLongPaths::Same,
            "auto" => OnLongPaths::Share,
            v => OnLongPaths::Segments(segments(v, INITIAL_WINDOW_SEGMENTS_MAX, "`auto` and `same`")?),
        };
        self.engine.apply(now, way, Change::InitialWindow(InitialWindow { on_long_paths, ..before }));
        Ok(())
    }

    fn set_link_cc(&mut self, now: Instant, way: Way, value: &str) -> Result<(), String> {
        let Some(before) = self.engine.links().get(way).map(Link::pace) else { return Ok(()) };
        let kind = match value {
            "auto" => None,
            name => Some(controller(name, Kind::ALL).map_err(|wrong| wrong + ", auto")?),
        };
        if kind.is_some_and(Kind::is_clocked_by_queue) && before.source().declared_bps().is_none() {
            return Err("`fixed-rate` has no rate to go by: set link.NAME.rate_bps first".into());
        }
        self.engine.apply(now, way, Change::Controller(kind));
        let after = self.engine.links().get(way).map(Link::pace);
        if after.is_some_and(|after| after != before) {
            self.follow_rate_source(now, way);
        }
        Ok(())
    }
}

fn window_text(window: InitialWindow) -> String {
    if window == InitialWindow::AUTO { "auto".into() } else { window.segments.to_string() }
}

fn above_zero(number: u64) -> Result<u64, String> {
    if number > 0 { Ok(number) } else { Err("nothing at all is too little".into()) }
}

fn size(value: &str, (least, most): (u64, u64)) -> Result<u64, String> {
    let bytes = quantity::size_bytes(value, Bare::Base).ok().filter(|bytes| (least..=most).contains(bytes));
    bytes.ok_or_else(|| {
        format!("`{value}`: allowed are {least} to {most} bytes, or a size such as `64M` or `64 MiB`")
    })
}

fn switch(value: &str) -> Result<bool, String> {
    value.parse().map_err(|_| format!("`{value}`: allowed are true and false"))
}

fn initial_window(value: &str, most: u32) -> Result<InitialWindow, String> {
    match value {
        "auto" => Ok(InitialWindow::AUTO),
        number => segments(number, most, "`auto`").map(InitialWindow::fixed),
    }
}

fn segments(value: &str, most: u32, words: &str) -> Result<u32, String> {
    let number = value.parse::<u32>().ok().filter(|n| (1..=most).contains(n));
    number.ok_or_else(|| format!("`{value}`: allowed are 1 to {most} segments, {words}"))
}

fn controller(name: &str, allowed: &[Kind]) -> Result<Kind, String> {
    allowed.iter().copied().find(|kind| kind.name() == name).ok_or_else(|| {
        let names: Vec<&str> = allowed.iter().map(|kind| kind.name()).collect();
        format!("`{name}`: allowed are {}", names.join(", "))
    })
}
