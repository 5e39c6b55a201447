//! The grid of a scenario, spelled out: every combination with the settings that it means.

use std::collections::BTreeMap;

use anyhow::{Context, Result, anyhow, bail};
use farlink_wire::quantity::{self, Bare};
use serde_json::{Value, json};

use super::paper::{Figures, of_cells};
use super::{Only, Scenario, axes};
use crate::settings::Settings;

/// What stands under `params` in the report.
pub type Params = BTreeMap<String, Value>;

/// Names that are parameters of a job, not settings of the laboratory.
const JOB: &[&str] = &[
    "size_bytes",
    "total_bytes",
    "flows",
    "clients",
    "floods",
    "direction",
    "ip",
    "case",
    "topology",
    "baseline",
    "program",
    "shaper",
    "app",
    "page",
    "transport",
    "duration_s",
    "outage_s",
    "outages_per_hour",
    "load_percent",
    "load_bps",
    "message_bytes",
    "udp_percent",
    "stops_ms",
    "tunnel",
    "when",
    "announced",
    "killed",
    "source",
    "earlier",
    "first_bytes",
    "begins_s",
    "client_flows",
    "attach",
    "signal_after_s",
];

/// Those of them that are whole numbers.
const COUNTS: &[&str] = &[
    "size_bytes",
    "total_bytes",
    "first_bytes",
    "flows",
    "client_flows",
    "clients",
    "floods",
    "ip",
    "duration_s",
    "outage_s",
    "outages_per_hour",
    "load_percent",
    "load_bps",
    "message_bytes",
    "udp_percent",
    "stops_ms",
    "signal_after_s",
];

/// Least size of a flow where `total_bytes` is given.
const BULK_BYTES: u64 = 30_000;

/// One measurement to be made.
#[derive(Clone, PartialEq, Debug)]
pub struct Cell {
    /// Its parameters, as reported.
    pub params: Params,
    /// Its variant.
    pub variant: String,
    /// The laboratory that it needs.
    pub settings: Settings,
    /// A program without which it is skipped.
    pub needs: Option<String>,
    /// What papers measured.
    pub papers: Vec<Figures>,
}

impl Cell {
    /// Gateways are told when the link goes away and when it is back.
    #[must_use]
    pub fn is_announced(&self) -> bool {
        self.params.get("announced").and_then(Value::as_bool).unwrap_or(false)
    }

    /// The hosts' transfers travel in a tunnel of UDP.
    #[must_use]
    pub fn is_in_tunnel(&self) -> bool {
        self.params.get("tunnel").and_then(Value::as_bool).unwrap_or(false)
    }

    /// A whole number among the params.
    #[must_use]
    pub fn number(&self, name: &str, default: u64) -> u64 {
        self.params.get(name).and_then(Value::as_u64).unwrap_or(default)
    }

    /// A word among the params.
    #[must_use]
    pub fn word<'a>(&'a self, name: &str, default: &'a str) -> &'a str {
        self.params.get(name).and_then(Value::as_str).unwrap_or(default)
    }

    /// Changes settings, each `k=v`; what the report shows of them changes too.
    pub fn set_all<'a>(&mut self, pairs: impl Iterator<Item = &'a str>) -> Result<()> {
        self.settings.set_all(pairs)?;
        self.settings.check()?;
        complete(self);
        Ok(())
    }

    /// Whether it runs over IPv6.
    #[must_use]
    pub fn v6(&self) -> bool {
        self.number("ip", 4) == 6
    }
}

impl Scenario {
    /// Every cell: the axes' combinations but those that are skipped, the first axis slowest, and
    /// within each the variants.
    pub fn cells(&self) -> Result<Vec<Cell>> {
        let combinations = axes::combinations(&self.axis)?;
        if self.variant.is_empty() {
            bail!("a scenario has at least one [[variant]]");
        }
        let mut cells = Vec::new();
        for combination in &combinations {
            for variant in &self.variant {
                let mut cell = Cell {
                    params: Params::new(),
                    variant: variant.name.clone(),
                    settings: Settings::default(),
                    needs: variant.needs.clone(),
                    papers: Vec::new(),
                };
                let given = self.settings.iter().chain(&variant.settings).map(|(k, v)| (k.as_str(), v));
                for (key, value) in given {
                    apply(&mut cell, key, value).with_context(|| format!("variant {}", variant.name))?;
                }
                for (key, value) in combination {
                    of_axis(&mut cell, key, value).with_context(|| format!("variant {}", variant.name))?;
                }
                cell.settings.check().with_context(|| format!("variant {}", variant.name))?;
                complete(&mut cell);
                cells.push(cell);
            }
        }
        axes::thin(&self.skip, &mut cells)?;
        of_cells(&self.paper, &mut cells)?;
        // No paper has measured these.
        for also in &self.also {
            let of = conditions(&also.of);
            let mut more: Vec<Cell> =
                cells.iter().filter(|c| of.matches(&c.params, &c.variant)).cloned().collect();
            if more.is_empty() {
                bail!("[[also]]: no cell is {of}");
            }
            for cell in &mut more {
                also.settings.iter().try_for_each(|(key, value)| apply(cell, key, value))?;
                cell.settings.check().with_context(|| format!("[[also]] of {of}"))?;
                complete(cell);
                cell.papers.clear();
            }
            cells.extend(more);
        }
        Ok(cells)
    }
}

/// A table of params as conditions; the values of a list are alternatives.
pub(super) fn conditions(table: &toml::Table) -> Only {
    let mut of = Only::default();
    for (key, value) in table {
        match value {
            toml::Value::Array(values) => values.iter().for_each(|value| of.add(key, &plain(value))),
            value => of.add(key, &plain(value)),
        }
    }
    of
}

/// One value of an axis. A bundle shows by its name, and sets what else it holds.
fn of_axis(cell: &mut Cell, axis: &str, value: &toml::Value) -> Result<()> {
    let toml::Value::Table(bundle) = value else { return apply(cell, axis, value) };
    let name = bundle.get(axes::NAME).map(plain).unwrap_or_default();
    let mut rest = bundle.iter().filter(|(key, _)| *key != axes::NAME);
    rest.try_for_each(|(key, value)| apply(cell, key, value)).with_context(|| format!("{axis} {name}"))?;
    cell.params.insert(axis.into(), json!(name));
    Ok(())
}

fn apply(cell: &mut Cell, key: &str, value: &toml::Value) -> Result<()> {
    if JOB.contains(&key) {
        let value = match value {
            toml::Value::String(text) => match quantity(key, text) {
                Some(read) => number(read.map_err(|wrong| anyhow!("`{key}={text}`: {wrong}"))?),
                None => json!(text),
            },
            toml::Value::Float(value) => number(*value),
            other => super::json(other),
        };
        if COUNTS.contains(&key) && value.as_u64().is_none() {
            bail!("`{key}={value}`: a whole number expected");
        }
        cell.params.insert(key.into(), value);
        return Ok(());
    }
    // `up.loss = 0.01` in a file is a table `up`.
    if let toml::Value::Table(own) = value {
        return own.iter().try_for_each(|(inner, value)| apply(cell, &format!("{key}.{inner}"), value));
    }
    cell.settings.set(key, &plain(value))
}

/// The settings that a reader of a report wants to see in every cell.
fn complete(cell: &mut Cell) {
    // What all flows together carry: each its part, and no less than makes a bulk transfer of it.
    if let Some(total) = cell.params.get("total_bytes").and_then(Value::as_u64) {
        let each = (total / cell.number("flows", 1).max(1)).max(BULK_BYTES);
        cell.params.insert("size_bytes".into(), json!(each));
    }
    let s = &cell.settings;
    let hosts = if s.hosts == crate::settings::Hosts::Legacy { "legacy" } else { "modern" };
    let shown = [
        ("rate_bps", json!(s.rate_bps)),
        ("rate_up_bps", json!(s.up_bps())),
        ("rtt_ms", number(s.rtt_ms)),
        ("jitter_ms", number(s.jitter_ms)),
        ("ber", number(s.ber)),
        ("loss", number(s.loss)),
        ("loss_burst", number(s.loss_burst.max(1.0))),
        ("wink_p", number(s.wink_p)),
        ("wink_i_ms", number(s.wink_i_ms)),
        ("gateways", json!(s.gateways)),
        ("hosts", json!(hosts)),
        ("host_cc", json!(s.host_cc)),
        // That of the TCP on the link: of the gateways where it is set, else of the hosts.
        ("iw", json!(if s.gateways > 0 && s.link_iw > 0 { s.link_iw } else { s.iw })),
    ];
    for (name, value) in shown.into_iter().chain(seldom(s)) {
        cell.params.insert(name.into(), value);
    }
    for (way, own) in [("up", &s.up), ("down", &s.down)] {
        for (key, value) in own {
            let value = value.parse().map_or_else(|_| json!(value), number);
            cell.params.insert(format!("{way}.{key}"), value);
        }
    }
}

/// What few scenarios say of the link is shown where it is said.
fn seldom(s: &Settings) -> impl Iterator<Item = (&'static str, Value)> + use<> {
    let usual = Settings::default();
    let has_states = s.ge_p > 0.0 || s.ge_loss_good > 0.0;
    let all = [
        ("ge_p", number(s.ge_p), has_states),
        ("ge_r", number(s.ge_r), has_states),
        ("ge_loss_good", number(s.ge_loss_good), has_states),
        ("ge_loss_bad", number(s.ge_loss_bad), has_states),
        ("wink_side", json!(s.wink_side), s.wink_side != usual.wink_side),
        ("contacts", json!(s.contacts), s.contacts != usual.contacts),
        ("contact_period_ms", json!(s.contact_period_ms), s.contact_period_ms.is_some()),
        ("contact_hold", json!(s.contact_hold), s.contact_hold),
        ("rate_changes", json!(s.rate_changes), s.rate_changes != usual.rate_changes),
        ("delay_changes", json!(s.delay_changes), s.delay_changes != usual.delay_changes),
        ("trace", json!(s.trace), s.trace.is_some()),
        ("demand", json!(s.demand), s.demand.is_some()),
        ("phases", json!(s.phases), s.phases.is_some()),
        ("turnaround_ms", number(s.turnaround_ms), s.turnaround_ms > 0.0),
        ("jitter_keeps_order", json!(s.jitter_keeps_order), !s.jitter_keeps_order),
        ("jitter_frame_ms", number(s.jitter_frame_ms), s.jitter_frame_ms > 0.0),
        ("duplex", json!(s.duplex), s.duplex != usual.duplex),
        ("mtu", json!(s.mtu), s.mtu != usual.mtu),
        ("link_mtu", json!(s.link_mtu), s.link_mtu != usual.link_mtu),
        ("fragment_loss", number(s.fragment_loss), s.fragment_loss > 0.0),
        ("firewall", json!(s.firewall), !s.firewall.is_empty()),
        ("firewall_from_ms", number(s.firewall_from_ms), s.firewall_from_ms > 0.0),
        ("tracking", json!(s.tracking), !s.tracking.is_empty()),
        ("client_window_bytes", json!(s.client_window_bytes), s.client_window_bytes.is_some()),
        ("client_lacks", json!(s.client_lacks), s.client_lacks != usual.client_lacks),
        ("queue_time_ms", json!(s.queue_time_ms), s.queue_time_ms.is_some()),
        ("queue_packets", json!(s.queue_packets), s.queue_packets.is_some()),
        ("xcp", json!(s.xcp), s.xcp),
        ("xcp_capacity_bps", json!(s.xcp_capacity_bps), s.xcp_capacity_bps.is_some()),
        ("xcp_weights", json!(s.xcp_weights), s.xcp_weights.is_some()),
        ("xcp_away", json!(s.xcp_away), s.xcp_away != usual.xcp_away),
        ("xcp_harm", json!(s.xcp_harm), !s.xcp_harm.is_empty()),
        ("behind_rate_bps", json!(s.behind_rate_bps), s.behind_rate_bps > 0),
        ("behind_queue_bytes", json!(s.behind_queue_bytes), s.behind_queue_bytes.is_some()),
        ("eth_rate_bps", json!(s.eth_rate_bps), s.eth_rate_bps != usual.eth_rate_bps),
        ("eth_mtu", json!(s.eth_mtu), s.eth_mtu.is_some()),
        ("eth_mtu_untold", json!(s.eth_mtu_untold), s.eth_mtu.is_some()),
        ("eth_mtu_from_ms", number(s.eth_mtu_from_ms), s.eth_mtu.is_some()),
        ("eth_rtts", json!(rtts_text(s)), !s.eth_rtts_ms.is_empty()),
        ("stagger_ms", number(s.stagger_ms), s.stagger_ms > 0.0),
        ("round_ms", number(s.round_ms), s.round_ms != usual.round_ms),
        ("keepalive", json!(s.keepalive.map(|k| k.map(|n| n.to_string()).join("/"))), s.keepalive.is_some()),
        ("custody_notice", json!(s.custody_notice), s.has_custody()),
        ("modes", json!(modes_text(s)), !s.modes.is_empty()),
        ("client2_cc", json!(s.client2_cc), !s.client2_cc.is_empty()),
        ("client2_lacks", json!(s.client2_lacks), s.client2_lacks != usual.client2_lacks),
    ];
    all.into_iter().filter(|(_, _, is_said)| *is_said).map(|(name, value, _)| (name, value))
}

/// The modes of single gateways, as `modes` takes them.
fn modes_text(s: &Settings) -> String {
    let modes = s.modes.iter().map(|(gateway, mode)| format!("{gateway}={}", mode.name()));
    modes.collect::<Vec<_>>().join(" ")
}

/// The round-trip times of single Ethernets, as `eth_rtts` takes them.
fn rtts_text(s: &Settings) -> String {
    let rtts = s.eth_rtts_ms.iter().map(|(name, ms)| format!("{name}={ms}ms"));
    rtts.collect::<Vec<_>>().join(" ")
}

/// What people typed for a param, in the unit that its name ends with; nothing if it has none.
pub(super) fn quantity(name: &str, text: &str) -> Option<Result<f64, String>> {
    let whole = |read: Result<u64, String>| Some(read.map(|n| n as f64));
    match name.rsplit_once('_')?.1 {
        "bps" => whole(quantity::rate_bps(text, Bare::Base)),
        "bytes" => whole(quantity::size_bytes(text, Bare::Base)),
        "ms" => Some(quantity::time(text, Bare::Unit("ms")).map(|time| time.as_nanos() as f64 / 1e6)),
        "s" => Some(quantity::time(text, Bare::Base).map(|time| time.as_nanos() as f64 / 1e9)),
        _ => None,
    }
}

/// Whole numbers without a fraction, as people write them.
fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 1e15 { json!(value as i64) } else { json!(value) }
}

/// As it stands on a command line.
pub(super) fn plain(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        // Schedules may stand one entry to a line.
        toml::Value::Array(entries) => entries.iter().map(plain).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        name = "t"
        title = "t"
        kind = "transfer"
        [settings]
        rtt = "100ms"
        [[axis]]
        name = "size_bytes"
        values = [1000, 2000]
        [[axis]]
        name = "loss"
        values = [0, 0.01]
        [[variant]]
        name = "direct"
        gateways = 0
        [[variant]]
        name = "farlink"
        host_cc = "bbr"
        [[also]]
        of = { variant = "farlink", size_bytes = [1000, 2000], loss = 0 }
        ip = 6
        [[paper]]
        seconds = 7.5
        variant = "farlink"
        size_bytes = 2000
    "#;

    #[test]
    fn axes_multiply_and_variants_stand_innermost() {
        let cells = Scenario::parse(TEXT).unwrap().cells().unwrap();
        let shown: Vec<_> =
            cells.iter().map(|c| (c.number("size_bytes", 0), c.settings.loss, c.variant.as_str())).collect();
        assert_eq!(shown[0], (1000, 0.0, "direct"));
        assert_eq!(shown[1], (1000, 0.0, "farlink"));
        assert_eq!(shown[2], (1000, 0.01, "direct"));
        assert_eq!(shown[7], (2000, 0.01, "farlink"));
        assert_eq!(shown.len(), 10);
        assert_eq!(shown[8..], [(1000, 0.0, "farlink"), (2000, 0.0, "farlink")]);
        assert!(cells[8..].iter().all(Cell::v6) && !cells[..8].iter().any(Cell::v6));
    }

    #[test]
    fn sizes_of_a_job_are_read_as_people_type_them() {
        let cells = |size: &str| Scenario::parse(&TEXT.replace("[1000, 2000]", size))?.cells();
        let text = TEXT.replace("values = [1000, 2000]", "values = [\"1 kB\", \"2kB\"]");
        assert_eq!(Scenario::parse(&text).unwrap().cells().unwrap(), cells("[1000, 2000]").unwrap());
        let text = TEXT.replace("values = [1000, 2000]", "values = [1000, 2000, \"much\"]");
        let wrong = format!("{:#}", Scenario::parse(&text).and_then(|s| s.cells()).unwrap_err());
        assert!(wrong.contains("`size_bytes=much`: `much` does not begin with a number"), "{wrong}");
        let text = TEXT.replace("values = [1000, 2000]", "values = [1e3, 2e3]");
        assert_eq!(Scenario::parse(&text).unwrap().cells().unwrap(), cells("[1000, 2000]").unwrap());
        for odd in ["1000.5", "-1000"] {
            let text = TEXT.replace("values = [1000, 2000]", &format!("values = [1000, 2000, {odd}]"));
            let wrong = format!("{:#}", Scenario::parse(&text).and_then(|s| s.cells()).unwrap_err());
            assert!(wrong.contains("a whole number expected"), "{wrong}");
        }
    }

    #[test]
    fn more_of_cells_that_do_not_exist_is_refused() {
        let text = TEXT.replace("size_bytes = [1000, 2000]", "size_bytes = 3000");
        let error = format!("{:#}", Scenario::parse(&text).unwrap_err());
        assert!(error.contains("no cell is") && error.contains("3000"), "{error}");
    }

    #[test]
    fn params_carry_numbers_and_the_usual_names() {
        let cells = Scenario::parse(TEXT).unwrap().cells().unwrap();
        let params = serde_json::to_value(&cells[3].params).unwrap();
        assert_eq!(params["rtt_ms"], json!(100));
        assert_eq!(params["loss"], json!(0.01));
        assert_eq!(params["host_cc"], json!("bbr"));
        assert_eq!(params["gateways"], json!(2));
        assert_eq!(params["rate_bps"], json!(8_000_000));
    }

    #[test]
    fn the_papers_figures_stand_at_their_cells() {
        let cells = Scenario::parse(TEXT).unwrap().cells().unwrap();
        let with: Vec<_> = cells.iter().filter(|c| !c.papers.is_empty()).collect();
        assert_eq!(with.len(), 2);
        assert!(with.iter().all(|c| c.variant == "farlink" && c.number("size_bytes", 0) == 2000));
    }
}
